"""What the generated trainings write: one ``metrics.csv`` a run, in METL's layout.

Sparse rows as PyTorch Lightning's CSV logger writes them, ``epoch`` from 0.
"""

from __future__ import annotations

from math import exp
from random import Random
from typing import Final

from tests.generated.ensembles import EPOCHS, Lived

STEPS: Final = 51484
"""Steps of an epoch."""

SPIKE: Final = ("hetero5", 22)
"""The run and the epoch whose loss jumps, and comes down again."""

HEAD: Final = "lr-Adagrad,step,train_loss_step,epoch,val_loss,train_loss_epoch"


def training_files(lived: Lived) -> dict[str, str]:
    """Each file's name below the dagdir, and its text."""
    return {
        f"output/training_logs/{uuid}/version_0/metrics.csv": _metrics(run, uuid)
        for plan in lived.dags
        for run, uuid in plan.runs
    }


def _metrics(run: str, uuid: str) -> str:
    rng = Random(uuid)
    floor = 0.21 if run.startswith("control") else 0.24
    start, pace = rng.uniform(1.0, 1.4), rng.uniform(4.5, 6.5)
    rows = [HEAD]
    for epoch in range(EPOCHS):
        loss = floor + start * exp(-epoch / pace) + rng.gauss(0, 0.008)
        if (run, epoch) == SPIKE:
            loss += 0.9
        step = (epoch + 1) * STEPS - 1
        rows.append(f"{0.01 * (1 - epoch / EPOCHS):.6f},{step},,,,")
        rows.append(f",{step},{loss * rng.uniform(0.8, 1.1):.5f},{epoch},,")
        rows.append(f",{step},,{epoch},{loss:.5f},")
        rows.append(f",{step},,{epoch},,{loss * 0.94:.5f}")
    return "\n".join(rows) + "\n"
