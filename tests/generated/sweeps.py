"""A simulated sweep: a run for each combination of two values, some of which learn badly.

Written as a dagdir: DAG file, event log, and metrics.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from math import exp, log10
from pathlib import Path
from typing import Final

from tests.support.event_logs import Event, Log, log_of_events

RATES: Final = ("1e-4", "3e-4", "0.001", "0.003", "0.01", "0.1")
WIDTHS: Final = ("32", "64", "128", "256", "1024")
EPOCHS: Final = 6

SITES: Final = ("delta", "expanse", "CHTC-Spark-CE1", "aws")
BEGUN: Final = datetime(2026, 5, 4, 8)


def uuid_of(index: int) -> str:
    return f"{index:02x}c0ffee"


def loss(rate: str, width: str, epoch: int) -> float:
    """Lowest at 0.003 and 256; a rate of 0.1 diverges from epoch 1 on, with 1024 it is NaN."""
    if float(rate) > 0.05 and epoch:
        return float("nan") if width == "1024" else 40.0 * epoch
    off = abs(log10(float(rate)) - log10(0.003)) + 0.4 * abs(log10(int(width)) - log10(256))
    return 0.21 + 0.09 * off + 0.8 * exp(-1.1 * epoch)


def dag_text(rates: tuple[str, ...] = RATES, widths: tuple[str, ...] = WIDTHS) -> str:
    """One run for each combination, the second value changing fastest."""
    lines = []
    points = [(rate, width) for rate in rates for width in widths]
    for index, (rate, width) in enumerate(points):
        names = [f"run{index:02}-train_epoch{epoch}" for epoch in range(EPOCHS)]
        for epoch, name in enumerate(names):
            lines.append(f"JOB {name} train.sub")
            lines.append(
                f'VARS {name} lr="{rate}" width="{width}" run="run{index:02}" '
                f'run_uuid="{uuid_of(index)}" epoch="{epoch + 1}" random_seed="1" '
                f'ResourceName="{SITES[(index + epoch) % len(SITES)]}"'
            )
        lines += [f"PARENT {a} CHILD {b}" for a, b in pairwise(names)]
    return "\n".join([*lines, "RETRY ALL_NODES 3", ""])


def reached(index: int) -> int:
    """Epochs that a run has done: all of the first runs, fewer of later ones, none of some."""
    return 0 if index % 11 == 10 else max(0, min(EPOCHS, 9 - index // 5))


def event_log(points: int) -> Log:
    """HTCondor's log of it up to :data:`AS_OF`."""
    job, events = 500, list[Event]()
    for index in range(points):
        at = BEGUN + timedelta(minutes=7 * index)
        for epoch in range(reached(index) + 1):
            if epoch >= EPOCHS or not reached(index):
                break
            job += 1
            node = f"run{index:02}-train_epoch{epoch}"
            events.append((at, partial(Log.submit, job=job, node=node)))
            if epoch == reached(index) and index % 4 == 1:
                continue
            start = partial(Log.execute, job=job, site=SITES[(index + epoch) % 4], gpu="NVIDIA A40")
            events.append((at + timedelta(minutes=5), start))
            if epoch == reached(index):
                if index % 7 == 6:
                    held = partial(
                        Log.hold, job=job, code=34, reason="memory exceeded", subcode=102
                    )
                    over = at + timedelta(minutes=9)
                    events += [(over, partial(Log.evict, job=job)), (over, held)]
                continue
            at += timedelta(minutes=65 + index % 9)
            events.append((at, partial(Log.terminate, job=job)))
    return log_of_events(events)


def write(
    directory: Path, rates: tuple[str, ...] = RATES, widths: tuple[str, ...] = WIDTHS
) -> None:
    """DAG file, event log and metrics of the whole."""
    directory.mkdir(parents=True, exist_ok=True)
    points = [(rate, width) for rate in rates for width in widths]
    (directory / "sweep.dag").write_text(dag_text(rates, widths))
    (directory / "train.sub").write_text("executable = train.sh\nlog = metl.log\nqueue\n")
    (directory / "metl.log").write_bytes(event_log(len(points)).data)
    for index, (rate, width) in enumerate(points):
        rows = ["epoch,step,val_loss"]
        rows += [f"{e},{e},{loss(rate, width, e):.5f}" for e in range(reached(index))]
        file = directory / f"output/training_logs/{uuid_of(index)}/version_0/metrics.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(rows) + "\n")
