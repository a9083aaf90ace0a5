"""Made-up training outputs: twelve runs in two cohorts, one of which diverges; and a feed on
them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from metlmon.jobfiles.records import Point, Streamed, TrainingOutput
from metlmon.model.states import State
from tests.support.sample_snapshots import FakeFeed, ledger, run, status, update

RUNS = tuple(
    run(f"run{n}", 7 - n % 3, 30, State.RUNNING if n % 4 else State.IDLE) for n in range(12)
)
LOST = "run7"


def loss(n: int, epoch: int) -> float:
    """A fixed curve for each run; run7 diverges in epoch 4 and is NaN from 5 on."""
    if n == 7 and epoch >= 4:
        return 90.0 if epoch == 4 else math.nan
    wave = ((n * 7919 + epoch * 104729) % 1000) / 20000
    return 0.2 + 0.01 * n + 0.8 * math.exp(-0.6 * epoch) + wave


def training(key: str, n: int, epochs: int) -> TrainingOutput:
    def points(value: Callable[[int], float]) -> tuple[Point, ...]:
        return tuple(Point(e, value(e), e, f"version_{e}/metrics.csv") for e in range(epochs))

    metrics = {
        "val_loss": points(lambda epoch: loss(n, epoch)),
        "test/pearson_total_score": points(lambda epoch: 1 - loss(1, epoch) / 3),
    }
    return TrainingOutput(key, metrics, {}, {})


def learning(labels: bool = True) -> FakeFeed:
    """A live feed whose runs have written their metrics."""
    picture = update(replace(status(), runs=RUNS))
    feed = FakeFeed(picture, Path("/nowhere/global_pretraining"))
    book = ledger(picture)
    named = tuple(
        replace(each, label="heterogeneous" if place % 3 else "control") if labels else each
        for place, each in enumerate(book.runs)
    )
    feed.book = replace(book, runs=named)
    feed.written = {row.key: training(row.key, n, row.epochs_done) for n, row in enumerate(RUNS)}
    feed.streamed = {
        (row.latest.cluster or 0, row.latest.proc or 0): Streamed(
            0.64, 64, 100, 1.17, 48601.0, row.epochs_done, 0.25
        )
        for row in RUNS[1:6:4]
        if row.latest is not None
    }
    return feed
