"""What evaluations found, by the epoch that each one is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from metlmon.frozen import frozen
from metlmon.jobfiles.records import TrainingOutput
from metlmon.snapshot.types import EpochRow
from metlmon.stats.worker import StatsInput

FIRST: Final = "eval_loss"
"""The metric that is told of where there are several."""

PREFIX: Final = "eval"
"""How the metrics begin that evaluations write, so that they are none of the training's."""


@frozen
class EvaluationResult:
    """One run's values of ``metric``: by the ``version_<k>`` that they come from (an evaluation's
    is VAR ``epoch``), and by epoch, as in the training node's name."""

    metric: str
    by_version: Mapping[int, float]
    by_epoch: Mapping[int, float]

    def of(self, evaluation: EpochRow, epoch: EpochRow) -> float | None:
        """What an evaluation of an epoch found; None where it has written nothing."""
        if self.by_version:
            return self.by_version.get(-1 if evaluation.epoch_var is None else evaluation.epoch_var)
        return self.by_epoch.get(-1 if epoch.epoch is None else epoch.epoch)


def evaluations(basis: StatsInput) -> Mapping[str, EvaluationResult]:
    """By run key, what its evaluations found; runs of which none has written are not in it."""
    found = {key: _found(training) for key, training in basis.trainings.items()}
    return {key: each for key, each in found.items() if each is not None}


def _found(training: TrainingOutput) -> EvaluationResult | None:
    names = sorted(name for name in training.metrics if name.startswith(PREFIX))
    if not names:
        return None
    name = FIRST if FIRST in names else names[0]
    points = training.metrics[name]
    by_version = {p.version: p.value for p in points if p.version is not None}
    return EvaluationResult(name, by_version, {p.epoch: p.value for p in points})
