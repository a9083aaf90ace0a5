"""Pictures that are kept up to date say what those say that are drawn of everything anew."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from metlmon.eventlog.events import Event
from metlmon.eventlog.reader import parse
from metlmon.model.model_state import Batch, LogRole
from metlmon.snapshot.builder import SnapshotBuilder
from tests.support.event_logs import EnsembleReading, Log, read_ensemble

DAG = """\
JOB run0-train_epoch0 train.sub
JOB run0-train_epoch1 train.sub
JOB run0-train_epoch2 train.sub
JOB run1-train_epoch0 train.sub
JOB run1-train_epoch1 train.sub
JOB after train.sub
PARENT run0-train_epoch0 CHILD run0-train_epoch1
PARENT run0-train_epoch1 CHILD run0-train_epoch2
PARENT run1-train_epoch0 CHILD run1-train_epoch1
PARENT run0-train_epoch2 run1-train_epoch1 CHILD after
RETRY ALL_NODES 2
VARS ALL_NODES ResourceName="delta"
"""

NODES = [line.split()[1] for line in DAG.splitlines() if line.startswith("JOB")]

ENDS = (
    lambda log, job: log.execute(job),
    lambda log, job: log.execute(job).terminate(job),
    lambda log, job: log.execute(job).terminate(job, code=3),
    lambda log, job: log.execute(job).evict(job),
    lambda log, job: log.execute(job).hold(job, 34, "too large"),
    lambda log, job: log.transfer(job, "started input"),
    lambda log, job: log.execute(job).disconnect(job),
    lambda log, job: log.execute(job).remove(job),
)


def history(dice: random.Random) -> Log:
    """Jobs of any node in any order: submitted again, lost, held, and done before their time."""
    log = Log()
    for job in range(70, 70 + dice.randrange(3, 16)):
        log.submit(job, dice.choice(NODES))
        for _ in range(dice.randrange(3)):
            dice.choice(ENDS)(log, dice.randrange(70, job + 1))
    return log


def pieces(log: Log, dice: random.Random) -> Iterator[list[Event]]:
    events = list(parse(log.data).events)
    while events:
        n = dice.randrange(1, 6)
        yield events[:n]
        del events[:n]


def facts(painter: SnapshotBuilder) -> tuple[object, ...]:
    states = {
        key: (state.state, state.since, state.inferred, state.superseded, state.submitted)
        for key, state in painter.states.items()
    }
    rows = [painter.run_view(run.key) for run in painter.status().runs]
    return (
        painter.status(),
        painter.queued_rows(),
        painter.ledger(),
        states,
        rows,
    )


def both(kept: EnsembleReading, log: Log, events: list[Event], live: bool) -> tuple[object, object]:
    anew = read_ensemble(DAG)
    anew.ensemble.apply(Batch(log.file, LogRole.USER, events))
    as_of = "2026-05-20 10:00:00"
    return facts(kept.painter(as_of, live)), facts(anew.painter(as_of, live))


@pytest.mark.parametrize("seed", range(25))
def test_a_picture_after_each_piece_is_that_of_all_pieces_at_once(seed: int) -> None:
    dice = random.Random(seed)
    log, live = history(dice), bool(seed % 2)
    kept, so_far = read_ensemble(DAG), list[Event]()
    for piece in pieces(log, dice):
        kept.ensemble.apply(Batch(log.file, LogRole.USER, piece))
        so_far += piece
        ours, anew = both(kept, log, so_far, live)
        assert ours == anew
