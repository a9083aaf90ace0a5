"""Results of evaluations, by the epoch that they evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from metlmon.jobfiles.records import TrainingOutput
from metlmon.snapshot.types import EpochRow
from metlmon.stats.inputs import StatsInput

PREFERRED_METRIC: Final = "eval_loss"
"""The metric that is shown if there are several."""

METRIC_PREFIX: Final = "eval"
"""Prefix of the metrics that evaluations write, which separates them from the training's."""


class EvaluationResult(Struct, frozen=True):
    """The evaluation results of one run, for one ``metric``.

    ``by_version``: by the ``version_<k>`` of the file (for an evaluation: VAR ``epoch``);
    ``by_epoch``: by the epoch in the training node's name.
    """

    metric: str
    by_version: Mapping[int, float]
    by_epoch: Mapping[int, float]

    def value(self, evaluation: EpochRow, epoch: EpochRow) -> float | None:
        """The result of the evaluation of an epoch; None if it has written none."""
        if self.by_version:
            return self.by_version.get(-1 if evaluation.epoch_var is None else evaluation.epoch_var)
        return self.by_epoch.get(-1 if epoch.epoch is None else epoch.epoch)


def evaluations(stats_input: StatsInput) -> Mapping[str, EvaluationResult]:
    """The evaluation results by run key, without runs that have none."""
    results = {key: _evaluation_result(training) for key, training in stats_input.trainings.items()}
    return {key: result for key, result in results.items() if result is not None}


def _evaluation_result(training: TrainingOutput) -> EvaluationResult | None:
    names = sorted(name for name in training.metrics if name.startswith(METRIC_PREFIX))
    if not names:
        return None
    name = PREFERRED_METRIC if PREFERRED_METRIC in names else names[0]
    points = training.metrics[name]
    by_version = {p.version: p.value for p in points if p.version is not None}
    return EvaluationResult(name, by_version, {p.epoch: p.value for p in points})
