"""Cost estimate of a planned ensemble from the epochs of another one.

All executions of completed epochs count, including lost ones. Epochs that were never completed and
evaluations do not count. The estimate is the number of epochs times the mean. Its interval comes
from the variance between the means of runs and the variance of epochs within a run, so that it is
narrower for many runs than for one epoch. GPU-hours refer to the number of GPUs per epoch in the
past; the effect of a different number is unknown, so it is mentioned but not estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import NormalDist, fmean, median, quantiles, stdev
from typing import Final

from msgspec import Struct

from metlmon.live.feed import StatsInput
from metlmon.model.states import State
from metlmon.snapshot.records import Epoch
from metlmon.stats.estimates import HIGH, counted_epochs, epoch_durations
from metlmon.stats.simulation import gamma_quantile
from metlmon.text.formatting import count, duration, number, share

MIN_EPOCHS: Final = 3
"""Minimum completed epochs for an estimate."""


DASH: Final = "–"

PRIOR_RUN_SIGMA: Final = 0.15
"""Relative standard deviation of the runs' means if there is only one run; it is 0.13 in a
recorded round of 21 runs."""


class CostHistory(Struct, frozen=True):
    """The cost of the completed ``epochs`` of an ensemble with this many ``runs``.

    ``gpu_hours``: mean GPU-hours per epoch, ``lower``, ``upper``: quartiles;
    ``sigma_between_runs``, ``sigma_within_run``: standard deviations in hours of the runs' means,
    and of epochs within a run; ``lost_share``: the share of these hours in bad executions (0–1);
    ``cycle_seconds``: median seconds since the completion of the previous epoch, None if there are
    too few. ``gpus``: minimum and maximum GPUs of an epoch on all its machines, None if not logged.
    """

    epochs: int
    runs: int
    gpu_hours: float
    lower: float
    upper: float
    sigma_between_runs: float
    sigma_within_run: float
    lost_share: float
    cycle_seconds: float | None
    gpus: tuple[int, int] | None

    @staticmethod
    def from_runs(
        run_hours: Sequence[Sequence[float]],
        bad: float = 0.0,
        cycle: float | None = None,
        gpus: tuple[int, int] | None = None,
    ) -> CostHistory:
        """Summarise the GPU-hours of each run's epochs, of which ``bad`` were lost."""
        epoch_hours = [hours for run in run_hours for hours in run]
        lower, _, upper = quantiles(epoch_hours, n=4, method="inclusive")
        means = [fmean(run) for run in run_hours]
        deviations = [
            hours - mean for run, mean in zip(run_hours, means, strict=True) for hours in run
        ]
        degrees_of_freedom = len(epoch_hours) - len(run_hours)
        return CostHistory(
            epochs=len(epoch_hours),
            runs=len(run_hours),
            gpu_hours=fmean(epoch_hours),
            lower=lower,
            upper=upper,
            sigma_between_runs=stdev(means) if len(means) > 1 else PRIOR_RUN_SIGMA * means[0],
            sigma_within_run=sqrt(
                sum(deviation**2 for deviation in deviations) / degrees_of_freedom
            )
            if degrees_of_freedom
            else 0.0,
            lost_share=bad / sum(epoch_hours),
            cycle_seconds=cycle,
            gpus=gpus,
        )


class CostEstimate(Struct, frozen=True):
    """The estimated cost of ``epochs`` epochs.

    ``gpu_hours``: GPU-hours in total, with the 80 % interval ``lower`` to ``upper``, if they
    resemble the past ones; ``seconds``: of one run. ``gpus``: GPUs requested per epoch on all
    machines, None if unknown; ``evaluations``: whether there are any, which are not included.
    """

    epochs: int
    gpu_hours: float
    lower: float
    upper: float
    seconds: float | None
    history: CostHistory
    gpus: int | None
    evaluations: bool


def cost_history(stats_input: StatsInput) -> CostHistory | None:
    """The cost history of this ensemble; None if too few epochs are completed."""
    run_hours: list[list[float]] = []
    gpus: list[int] = []
    bad = 0.0
    cycles: list[float] = []
    for epochs in counted_epochs(stats_input.ledger).values():
        # The hours of an epoch whose completion is only inferred are unknown.
        completed = [
            e
            for e in epochs
            if e.state is State.COMPLETED and not e.inferred and e.hours.of_gpus.goodput > 0
        ]
        if completed:
            hours = [epoch.hours for epoch in completed]
            run_hours.append([each.goodput + each.badput for each in hours])
            bad += sum(each.badput for each in hours)
        gpus += [n for epoch in completed if (n := _gpus(epoch)) is not None]
        cycles += [
            cycle.seconds for cycle in epoch_durations(stats_input.ledger, epochs) if cycle.ended
        ]
    if sum(map(len, run_hours)) < MIN_EPOCHS:
        return None
    median_cycle = median(cycles) if len(cycles) >= MIN_EPOCHS else None
    gpu_range = (min(gpus), max(gpus)) if gpus else None
    return CostHistory.from_runs(run_hours, bad, median_cycle, gpu_range)


def _gpus(epoch: Epoch) -> int | None:
    """The GPUs of an epoch, on all machines of its last job."""
    machines = len({job for job in epoch.jobs if job[0] == epoch.jobs[-1][0]})
    gpus = epoch.success.gpus if epoch.success else None
    return gpus * machines if gpus is not None else None


def estimate_cost(
    history: CostHistory | None,
    epochs: int,
    chain: int,
    gpus: int | None = None,
    evaluations: bool = False,
) -> CostEstimate | None:
    """Estimate the cost of ``epochs`` epochs, ``chain`` of them in each run, or None."""
    if history is None or epochs < 1:
        return None
    total = epochs * history.gpu_hours
    low, high = _interval(history, epochs, max(1.0, epochs / max(1, chain)))
    seconds = None if history.cycle_seconds is None else chain * history.cycle_seconds
    return CostEstimate(
        epochs=epochs,
        gpu_hours=total,
        lower=low * total,
        upper=high * total,
        seconds=seconds,
        history=history,
        gpus=gpus,
        evaluations=evaluations,
    )


def _interval(history: CostHistory, epochs: int, runs: float) -> tuple[float, float]:
    """The 80 % interval of the total cost relative to its mean."""
    between = (history.sigma_between_runs / history.gpu_hours) ** 2 * (1 / history.runs + 1 / runs)
    within = (history.sigma_within_run / history.gpu_hours) ** 2 * (1 / history.epochs + 1 / epochs)
    variance = between + within
    if variance <= 0:
        return 1.0, 1.0
    # For few samples: the first term of the expansion of Student's t quantile.
    z = NormalDist().inv_cdf(HIGH)
    degrees_of_freedom = max(1, (history.runs if between > within else history.epochs) - 1)
    z += (z**3 + z) / (4 * degrees_of_freedom)
    return min(1.0, gamma_quantile(1 / variance, -z)), max(1.0, gamma_quantile(1 / variance, z))


def cost_estimate_lines(estimate: CostEstimate, source: str) -> Iterable[str]:
    """The estimate as text lines; ``source`` names the ensemble of the history."""
    interval = f"{_hours(estimate.lower)}{DASH}{_hours(estimate.upper)}"
    suffix = ", evaluations not in it" if estimate.evaluations else ""
    yield f"about {_hours(estimate.gpu_hours)} GPU-hours ({interval}){suffix}"
    if estimate.seconds is not None:
        yield f"a run takes about {duration(estimate.seconds)}, waiting included"
    history = estimate.history
    lost = f", {share(history.lost_share, 1)} of it lost" if history.lost_share >= 0.005 else ""
    yield (
        f"as {count(history.epochs, 'epoch')} of {source} took: "
        f"{history.gpu_hours:.3g} GPU-hours each{_gpu_text(history)}{lost}"
    )
    if (
        history.gpus is not None
        and estimate.gpus is not None
        and history.gpus != (estimate.gpus, estimate.gpus)
    ):
        gpus_text = count(estimate.gpus, "GPU")
        yield f"these ask for {gpus_text} each: epochs that take as long cost in proportion"


def _gpu_text(history: CostHistory) -> str:
    if history.gpus is None:
        return ""
    least, most = history.gpus
    return f" on {least}{f'{DASH}{most}' if most > least else ''} GPU{'s' if most > 1 else ''}"


def _hours(hours: float) -> str:
    return number(round(hours)) if hours >= 10 else f"{hours:.2g}"
