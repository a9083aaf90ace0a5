"""Whether epochs end before their annex expires, and how much work waits for it.

Durations are medians of similar executions (:class:`metlmon.stats.epoch_times.ExecutionDurations`)
and the forecast of the epoch in progress (:mod:`metlmon.stats.estimates`): an epoch fits if it is
as likely as not to end in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from statistics import median

from metlmon.live.feed import StatsInput
from metlmon.model.job_events import JobId
from metlmon.model.states import Outcome
from metlmon.placement.types import AnnexEpoch
from metlmon.snapshot.expiries import ExecutionId, execution_id
from metlmon.snapshot.records import Execution
from metlmon.stats.epoch_times import ExecutionDurations
from metlmon.stats.estimates import Forecast, make_forecast


class AnnexEpochs:
    """The epochs of an ensemble that run in annexes, or could."""

    def __init__(self, stats_input: StatsInput) -> None:
        self._stats_input = stats_input
        self._ledger = stats_input.ledger
        trainings = [e for e in self._ledger.executions if e.training and not e.at_access_point]
        self._newest_first = sorted(trainings, key=lambda entry: entry.start, reverse=True)
        self._running = [e for e in self._newest_first if e.outcome is Outcome.IN_FLIGHT]
        self._similar: dict[tuple[str, str, str], Execution | None] = {}
        self._seconds: dict[ExecutionId | None, float | None] = {}

    def prepare(self) -> None:
        """Compute now what takes long: then all else is a look-up."""
        for name in ("_durations", "_forecasts", "_runs"):
            getattr(self, name)

    @cached_property
    def _durations(self) -> ExecutionDurations:
        return ExecutionDurations(self._ledger)

    @cached_property
    def _forecast(self) -> Forecast:
        return make_forecast(self._stats_input)

    @cached_property
    def _forecasts(self) -> Mapping[str, tuple[int | None, float]]:
        """Number and remaining seconds of each run's epoch in progress."""
        return {
            run.run: (run.epoch_number, run.epoch_remaining.median)
            for run in self._forecast.runs
            if run.epoch_remaining is not None
        }

    @cached_property
    def _runs(self) -> Mapping[JobId, str]:
        """The run of each job."""
        return {job.job: job.run or "" for job in self._ledger.jobs}

    def running(self, annex: str, jobs: Iterable[JobId]) -> list[Execution]:
        """The epochs that run in an annex: by the log, else those of ``jobs``, by their slots."""
        in_slots = frozenset(jobs)
        return [
            entry
            for entry in self._running
            if _is_in(entry, annex) or (entry.annex is None and entry.job in in_slots)
        ]

    def similar(self, annex: str, site: str, gpu: str) -> Execution | None:
        """The newest execution in the annex; else at its site, else on its GPU model."""
        key = annex, site, gpu
        if key not in self._similar:
            newest = self._newest_first
            own = (e for e in newest if _is_in(e, annex))
            at_site = (e for e in newest if site and e.site == site and gpu in ("", e.gpu))
            of_model = (e for e in newest if gpu and e.gpu == gpu)
            self._similar[key] = next(chain(own, at_site, of_model), None)
        return self._similar[key]

    def next_seconds(self, like: Execution | None) -> float | None:
        """Seconds from the match to the end of an epoch at the place of ``like``, the median.

        With the input transfer; None without a completed epoch.
        """
        key = None if like is None else execution_id(like)
        if key not in self._seconds:
            curve, _ = self._durations.curve(like, "")
            transfers = [
                entry.transfer
                for entry in self._newest_first
                if entry.transfer is not None and (like is None or entry.site == like.site)
            ]
            transfer = median(transfers) if transfers else 0.0
            known = None if curve is None else curve.conditional_quantile(0.5) + transfer
            self._seconds[key] = known
        return self._seconds[key]

    def annex_epochs(
        self, running: Iterable[Execution], seconds_left: float | None
    ) -> tuple[AnnexEpoch, ...]:
        """Each running epoch, and whether it ends within ``seconds_left`` of the annex."""
        epochs = []
        for entry in running:
            rest = self._remaining(entry)
            known = rest is not None and seconds_left is not None
            epochs.append(
                AnnexEpoch(
                    run=entry.run or "",
                    run_name=entry.run_name or entry.node or "",
                    epoch=entry.epoch,
                    job=entry.job,
                    gpus=entry.gpus,
                    seconds_left=rest,
                    fits=rest <= seconds_left if known else None,  # type: ignore[operator]
                )
            )
        return tuple(epochs)

    def _remaining(self, entry: Execution) -> float | None:
        """Seconds until a running epoch ends: as on the Estimates screen, where that has it."""
        forecast = self._forecasts.get(entry.run or "")
        if forecast is not None and forecast[0] == entry.epoch:
            return forecast[1]
        curve, _ = self._durations.curve(entry, entry.run or "")
        return None if curve is None else curve.conditional_quantile(0.5, entry.trained)

    def pressure(
        self,
        epochs: Sequence[AnnexEpoch],
        ready: Iterable[JobId],
        gpus: int,
        seconds_left: float,
        epoch_seconds: float,
    ) -> float | None:
        """(ready + expected before expiry) x GPU-hours per epoch / GPU-hours left.

        ``ready``: jobs that wait for the annex. Expected: the later epochs of their runs, and of
        those that run there, one after the other until the annex expires. GPU-hours left: those
        that the running epochs do not take. None if nothing is left.
        """
        left = gpus * seconds_left
        per_epoch = self._gpus_per_epoch(epochs) * epoch_seconds
        expected = 0
        epochs_left = {run.run: run.epochs_left for run in self._forecast.runs}
        for epoch in epochs:
            rest = epoch_seconds if epoch.seconds_left is None else epoch.seconds_left
            left -= (epoch.gpus or 1) * min(rest, seconds_left)
            # Its own epoch is one of those left.
            expected += self._later(seconds_left - rest, epoch_seconds, epochs_left, epoch.run, 1)
        for job in ready:
            run = self._runs.get(job, "")
            expected += 1 + self._later(
                seconds_left - epoch_seconds, epoch_seconds, epochs_left, run, 1
            )
        return expected * per_epoch / left if left > 0 else None

    @staticmethod
    def _later(
        seconds: float, epoch_seconds: float, epochs_left: Mapping[str, int], run: str, begun: int
    ) -> int:
        """Epochs of a run that become ready within ``seconds``, after those ``begun``."""
        if seconds < 0 or epoch_seconds <= 0:
            return 0
        return min(1 + int(seconds // epoch_seconds), max(0, epochs_left.get(run, 0) - begun))

    def _gpus_per_epoch(self, epochs: Sequence[AnnexEpoch]) -> float:
        counts = [epoch.gpus for epoch in epochs if epoch.gpus]
        counts = counts or [entry.gpus for entry in self._newest_first if entry.gpus]
        return float(median(counts)) if counts else 1.0


def _is_in(entry: Execution, annex: str) -> bool:
    """Does an execution name an annex? HTCondor compares names without regard to case."""
    return entry.annex is not None and entry.annex.casefold() == annex.casefold()
