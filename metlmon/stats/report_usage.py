"""Usage for the report: epochs and GPU-hours by GPU, site, cause, run and time.

Computed from the ledger alone (:mod:`metlmon.stats.totals`), for all time or one window. Units are
seconds and GPU-seconds; None means unknown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from metlmon.frozen import frozen
from metlmon.model.job_events import JobId, NodeKey
from metlmon.model.states import Outcome, State
from metlmon.snapshot.ledger import EpochEntry, ExecutionEntry, Ledger, RunEntry, TransferEntry
from metlmon.stats.totals import UsageTotals, group_by, sum_by, sum_executions
from metlmon.stats.windows import (
    ALL,
    TimeWindow,
    Unit,
    clip_ledger,
    distribute_seconds,
    full_seconds,
    partition,
)

K = TypeVar("K")

_VENDOR: Final = re.compile(r"^(?:(?:NVIDIA|Tesla)\s+)+", re.IGNORECASE)

LONGEST_SERIES: Final = timedelta(days=50 * 365)
"""Maximum length of a series: times further apart come from damaged lines."""

WHISKER: Final = 1.5
"""Whiskers extend to the last value within this many interquartile ranges of the box (Tukey)."""


def gpu_model(name: str | None) -> str | None:
    """The GPU model: ``DeviceName`` without the vendor prefix.

    (``NVIDIA A100-PCIE-40GB``, ``Tesla V100-SXM2-32GB``). Several models stay joined by a plus.
    """
    if not name:
        return None
    return " + ".join(_VENDOR.sub("", part).strip() or part for part in name.split(" + "))


@frozen
class TransferredBytes:
    """Bytes to the jobs (their input) and from them (their output)."""

    received: int = 0
    sent: int = 0

    def __add__(self, other: TransferredBytes) -> TransferredBytes:
        return TransferredBytes(self.received + other.received, self.sent + other.sent)


@frozen
class GroupUsage:
    """The usage of one GPU model, site, run or period.

    ``totals``: totals of its executions, where ``completed`` counts epochs by their successful
    execution. ``by_longest``: completed epochs whose longest execution was here; ``longest``:
    seconds of these executions, ``longest_gpu``: the same in GPU-seconds. ``targets``: requested
    targets of the executions.
    """

    totals: UsageTotals = field(default_factory=UsageTotals)
    by_longest: int = 0
    longest: float = 0.0
    longest_gpu: float = 0.0
    transferred: TransferredBytes = field(default_factory=TransferredBytes)
    transfers: int = 0
    targets: tuple[str, ...] = ()


@frozen
class BoxPlot:
    """A box plot of durations in seconds: interpolated quartiles, whiskers, outliers."""

    n: int
    lower_whisker: float
    lower_quartile: float
    median: float
    upper_quartile: float
    upper_whisker: float
    outliers: tuple[float, ...] = ()


@frozen
class TransferGroup:
    """Transfers of one direction and outcome.

    ``timed``: those with a logged start; ``seconds``: theirs, within the window. ``median`` and
    ``longest`` refer to full durations.
    """

    direction: str
    outcome: str
    count: int
    timed: int
    seconds: float
    median: float | None
    longest: float | None
    queued_seconds: float


@frozen
class LossByCause:
    """Bad GPU-seconds of one cause.

    ``code``, ``subcode``: those of the event; ``label``: the label without a code
    (``return value 1``). ``reasons``: the folded reasons, the most expensive first.
    """

    code: int | None
    subcode: int | None
    label: str | None
    executions: int
    seconds: float
    reasons: tuple[tuple[str, int, float], ...]


@frozen
class UsageSeries:
    """Epochs completed, and GPU-seconds by outcome and by site, in adjacent windows."""

    unit: Unit
    windows: tuple[TimeWindow, ...]
    epochs: tuple[int, ...]
    good: tuple[float, ...]
    bad: tuple[float, ...]
    in_flight: tuple[float, ...]
    sites: Mapping[str | None, tuple[float, ...]]


@frozen
class ReportUsage:
    """Usage of a window. ``ledger``: the complete ledger; ``clipped``: the clipped one.

    ``epochs``: distinct completed epochs. ``unlocated``: those without a successful execution in
    the logs (marked done, or inferred); ``unlogged``: those without any execution. ``undated``:
    completed epochs of the complete ledger without a known end, which are in no window.
    ``repeated``: successful executions that do not count for an epoch, since another DAG trained
    it too, or it was repeated. ``hidden``: epochs whose successful execution is shorter than half
    of their longest one. ``completing_executions``: the executions that completed an epoch, with
    their full durations.
    """

    window: TimeWindow
    ledger: Ledger
    clipped: Ledger
    total: GroupUsage
    epochs: int
    unlocated: int
    unlogged: int
    undated: int
    repeated: int
    hidden: int
    gpus: Mapping[str | None, GroupUsage]
    sites: Mapping[str | None, GroupUsage]
    by_site_and_gpu: Mapping[tuple[str | None, str | None], UsageTotals]
    runs: tuple[tuple[RunEntry, GroupUsage], ...]
    labels: Mapping[str | None, GroupUsage]
    periods: tuple[tuple[TimeWindow, GroupUsage], ...]
    period: Unit
    transfer_groups: tuple[TransferGroup, ...]
    losses: tuple[LossByCause, ...]
    series: UsageSeries | None
    completing_executions: tuple[tuple[ExecutionEntry, float], ...]
    waits: tuple[float, ...]
    uncounted_gpus: int
    uncertain: int

    @property
    def epoch_times(self) -> tuple[float, ...]:
        """The sorted durations of the executions that completed an epoch."""
        return tuple(sorted(seconds for _, seconds in self.completing_executions))


def report_usage(ledger: Ledger, window: TimeWindow = ALL) -> ReportUsage:
    """The usage of a complete ``ledger`` within ``window``."""
    return _ReportBuilder(ledger, window).report_usage()


# --- totals -----------------------------------------------------------------------------------


class _ReportBuilder:
    """Builds the usage of one window."""

    def __init__(self, ledger: Ledger, window: TimeWindow) -> None:
        self.window = window
        self.whole = ledger
        self.part = clip_ledger(ledger, window)
        # A sub-DAG's DAGMan runs at no site and on no GPU.
        self.executions = [entry for entry in self.part.executions if not entry.dagman]
        self.epochs = [e for e in self.part.epochs if e.counts and e.state is State.COMPLETED]
        self.longest = _longest(ledger)
        # Bytes of jobs without an execution are in no execution entry.
        ran = {entry.job for entry in ledger.executions if not entry.dagman}
        self.idle_bytes = sum(
            (
                TransferredBytes(job.bytes_received or 0, job.bytes_sent or 0)
                for job in self.part.jobs
                if job.job not in ran
            ),
            TransferredBytes(),
        )

    def report_usage(self) -> ReportUsage:
        placed = _epochs_of(e for e in self.executions if e.final and e.counted)
        done = {(epoch.run, epoch.epoch) for epoch in self.epochs}
        finals = sum(e.final and e.counted for e in self.executions)
        unit, periods = self._periods()
        waits = [e.wait for e in self.executions if e.counted and e.wait is not None]
        return ReportUsage(
            window=self.window,
            ledger=self.whole,
            clipped=self.part,
            total=self._total(),
            epochs=len(self.epochs),
            unlocated=len(done - placed),
            unlogged=sum(not e.attempts for e in self.epochs),
            undated=sum(e.counts and _has_unknown_end(e) for e in self.whole.epochs),
            repeated=finals - len(done & placed),
            hidden=sum(epoch.hidden for epoch in self.epochs),
            gpus=self._usage_by(lambda e: gpu_model(e.gpu), lambda e: gpu_model(e.longest_gpu)),
            sites=self._sites(),
            by_site_and_gpu=sum_by(self.executions, lambda e: (e.site, gpu_model(e.gpu))),
            runs=self._runs(),
            labels=self._usage_by(lambda e: e.label, lambda e: e.label),
            periods=periods,
            period=unit,
            transfer_groups=tuple(_transfer_groups(self.part.transfers, self._full_seconds)),
            losses=tuple(_losses(self.executions)),
            series=self._series(),
            completing_executions=tuple(
                (e, self._full_seconds(e) or 0.0) for e in self.executions if e.final
            ),
            waits=tuple(sorted(waits)),
            uncounted_gpus=sum(e.weight is None and e.counted for e in self.executions),
            uncertain=sum(e.uncertain and e.counted for e in self.executions),
        )

    def _full_seconds(self, entry: ExecutionEntry | TransferEntry) -> float | None:
        return full_seconds(self.whole, self.window, entry)

    def _total(self) -> GroupUsage:
        moved = sum((_bytes(e) for e in self.executions), self.idle_bytes)
        return replace(
            self._share(self.executions, self.epochs),
            transferred=moved,
            transfers=sum(t.counted for t in self.part.transfers),
        )

    def _share(
        self, executions: Iterable[ExecutionEntry], epochs: Iterable[EpochEntry]
    ) -> GroupUsage:
        executions, epochs = list(executions), list(epochs)
        longest = [self.longest[e.key] for e in epochs if e.key in self.longest]
        return GroupUsage(
            totals=sum_executions(executions),
            by_longest=len(epochs),
            longest=sum(e.longest_seconds or 0.0 for e in epochs),
            longest_gpu=sum(entry.gpu_seconds or 0.0 for entry in longest),
            transferred=sum((_bytes(e) for e in executions), TransferredBytes()),
            transfers=0,
            targets=tuple(sorted({e.target for e in executions if e.target})),
        )

    def _usage_by(
        self,
        key: Callable[[ExecutionEntry], K],
        longest: Callable[[EpochEntry], K],
    ) -> dict[K, GroupUsage]:
        """The usage for each value of ``key``, by descending GPU-seconds."""
        executions = group_by(self.executions, key)
        epochs = group_by((e for e in self.epochs if e.attempts), longest)
        order = [*sum_by(self.executions, key), *epochs]
        return {
            name: self._share(executions.get(name, ()), epochs.get(name, ()))
            for name in dict.fromkeys(order)
        }

    def _sites(self) -> dict[str | None, GroupUsage]:
        shares: dict[str | None, GroupUsage] = self._usage_by(
            lambda e: e.site, lambda e: e.longest_site
        )
        moves = group_by((t for t in self.part.transfers if t.counted), lambda t: t.site)
        for name in sorted(moves.keys() - shares.keys(), key=str):
            shares[name] = GroupUsage()
        if self.idle_bytes != TransferredBytes() and None not in shares:
            shares[None] = GroupUsage()
        return {
            name: replace(
                share,
                transfers=len(moves.get(name, ())),
                transferred=share.transferred + self.idle_bytes
                if name is None
                else share.transferred,
            )
            for name, share in shares.items()
        }

    def _runs(self) -> tuple[tuple[RunEntry, GroupUsage], ...]:
        executions = group_by(self.executions, lambda e: e.run)
        epochs = group_by(self.epochs, lambda e: e.run)
        return tuple(
            (run, self._share(executions.get(run.run, ()), epochs.get(run.run, ())))
            for run in self.part.runs
        )

    # --- over time ----------------------------------------------------------------------

    def _span(self) -> tuple[datetime, datetime] | None:
        """The first and the last logged time of any activity in the window."""
        first, last = self.whole.first_time, self.whole.as_of
        if first is None or last is None:
            return None
        # DAGMan's files may report epochs before the start and after the end of the job log.
        moments = {e.completed for e in self.whole.epochs if e.counts and e.completed is not None}
        plausible = [
            when
            for when in moments
            if (when.tzinfo is None) == (first.tzinfo is None)
            and abs(when - first) < LONGEST_SERIES
        ]
        first, last = min([first, *plausible]), max([last, *plausible])
        first, last = max(first, self.window.since or first), min(last, self.window.until or last)
        return (first, last) if first < last and last - first < LONGEST_SERIES else None

    def _windows(self, unit: Unit) -> tuple[TimeWindow, ...]:
        span = self._span()
        if span is None:
            return ()
        windows = list(partition(*span, unit))
        since, until = self.window.since, self.window.until
        if until is not None and windows[-1].since == until:
            # It starts at the exclusive end of the window.
            windows.pop()
        if since is not None:
            windows[0] = replace(windows[0], since=max(since, windows[0].since or since))
        if until is not None:
            windows[-1] = replace(windows[-1], until=min(until, windows[-1].until or until))
        return tuple(windows)

    def _periods(self) -> tuple[Unit, tuple[tuple[TimeWindow, GroupUsage], ...]]:
        span = self._span()
        days = (span[1] - span[0]).days if span else 0
        unit = Unit.DAY if days < 10 else Unit.WEEK if days < 60 else Unit.MONTH
        windows = self._windows(unit)
        return unit, tuple(
            (window, _ReportBuilder(self.whole, window)._total()) for window in windows
        )

    def _series(self) -> UsageSeries | None:
        span = self._span()
        if span is None:
            return None
        days = (span[1] - span[0]).days
        unit = Unit.DAY if days <= 150 else Unit.WEEK if days <= 1000 else Unit.MONTH
        windows = self._windows(unit)
        starts = [window.since or datetime.min for window in windows]
        epochs = [0] * len(windows)
        for epoch in self.epochs:
            if epoch.completed is not None:
                epochs[max(0, bisect_right(starts, epoch.completed) - 1)] += 1
        by_kind: dict[str, list[float]] = {
            kind: [0.0] * len(windows) for kind in ("good", "bad", "in_flight")
        }
        by_site: dict[str | None, list[float]] = {}
        for entry in self.whole.executions:
            weight = entry.weight
            if entry.dagman or not weight:
                continue
            for index, seconds in distribute_seconds(
                self.whole, entry.start, entry.seconds, windows
            ):
                by_kind[entry.kind][index] += seconds * weight
                by_site.setdefault(entry.site, [0.0] * len(windows))[index] += seconds * weight
        largest = sorted(by_site.items(), key=lambda item: (-sum(item[1]), str(item[0])))
        return UsageSeries(
            unit=unit,
            windows=windows,
            epochs=tuple(epochs),
            good=tuple(by_kind["good"]),
            bad=tuple(by_kind["bad"]),
            in_flight=tuple(by_kind["in_flight"]),
            sites={name: tuple(values) for name, values in largest},
        )


def _has_unknown_end(epoch: EpochEntry) -> bool:
    return epoch.state is State.COMPLETED and epoch.completed is None


def _bytes(entry: ExecutionEntry) -> TransferredBytes:
    return TransferredBytes(entry.bytes_received or 0, entry.bytes_sent or 0)


def _epochs_of(executions: Iterable[ExecutionEntry]) -> set[tuple[str, int | None]]:
    return {(entry.run, entry.epoch) for entry in executions if entry.run is not None}


def _longest(ledger: Ledger) -> dict[NodeKey, ExecutionEntry]:
    """The longest execution of each node, the first of equally long ones."""
    longest: dict[NodeKey, ExecutionEntry] = {}
    for entry in ledger.executions:
        key = entry.key
        if key is None:
            continue
        if key not in longest or entry.seconds > longest[key].seconds:
            longest[key] = entry
    return longest


# --- transfers and causes -----------------------------------------------------------------------


_OUTCOME_ORDER: Final = ("ok", "aborted", "unfinished", "in-flight")


def _transfer_groups(
    transfers: Iterable[TransferEntry], length: Callable[[TransferEntry], float | None]
) -> Iterable[TransferGroup]:
    groups = group_by(transfers, lambda t: (t.direction, t.outcome))

    def sort_key(key: tuple[str, str]) -> tuple[str, int]:
        return key[0], _OUTCOME_ORDER.index(key[1]) if key[1] in _OUTCOME_ORDER else len(
            _OUTCOME_ORDER
        )

    for key in sorted(groups, key=sort_key):
        group = groups[key]
        counted = [t for t in group if t.counted]
        lengths = sorted(s for t in counted if (s := length(t)) is not None)
        yield TransferGroup(
            *key,
            count=len(counted),
            timed=len(lengths),
            seconds=sum(t.seconds or 0.0 for t in group),
            median=quantile(lengths, 0.5) if lengths else None,
            longest=lengths[-1] if lengths else None,
            queued_seconds=sum(t.queue_seconds or 0 for t in counted),
        )


def _losses(executions: Iterable[ExecutionEntry]) -> Iterable[LossByCause]:
    bad = [entry for entry in executions if entry.kind == "bad"]
    for (code, subcode, word), spent in sum_by(bad, _cause_key).items():
        matching = (entry for entry in bad if _cause_key(entry) == (code, subcode, word))
        reasons = sum_by(matching, lambda entry: entry.cause or "")
        yield LossByCause(
            code=code,
            subcode=subcode,
            label=word,
            executions=spent.executions,
            seconds=spent.bad,
            reasons=tuple((reason, sums.executions, sums.bad) for reason, sums in reasons.items()),
        )


def _cause_key(entry: ExecutionEntry) -> tuple[int | None, int | None, str | None]:
    if entry.code is not None:
        return entry.code, entry.subcode, None
    if entry.outcome is Outcome.FAILED and entry.signal is not None:
        return None, None, f"signal {entry.signal}"
    if entry.outcome is Outcome.FAILED and entry.return_value is not None:
        return None, None, f"return value {entry.return_value}"
    if entry.outcome is Outcome.REMOVED and entry.uncertain:
        return None, None, "removed, end unknown"
    return None, None, str(entry.outcome).replace("-", " ")


# --- distributions ------------------------------------------------------------------------------


def quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile at ``share`` of sorted values, linearly interpolated."""
    position = share * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (position - lower) * (ordered[upper] - ordered[lower])


def make_box_plot(values: Iterable[float]) -> BoxPlot | None:
    """The box plot of the values; None if there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    first, median, third = (quantile(ordered, share) for share in (0.25, 0.5, 0.75))
    reach = WHISKER * (third - first)
    inside = [value for value in ordered if first - reach <= value <= third + reach]
    outliers = [value for value in ordered if not first - reach <= value <= third + reach]
    return BoxPlot(
        n=len(ordered),
        lower_whisker=inside[0],
        lower_quartile=first,
        median=median,
        upper_quartile=third,
        upper_whisker=inside[-1],
        outliers=tuple(outliers),
    )


def epoch_boxes(usage: ReportUsage, key: Callable[[ExecutionEntry], K]) -> dict[K, BoxPlot]:
    """Box plots of the durations of completed epochs by ``key``, most epochs first."""
    groups = group_by(usage.completing_executions, lambda pair: key(pair[0]))
    boxes = {
        name: box_plot
        for name, group in groups.items()
        if (box_plot := make_box_plot(seconds for _, seconds in group)) is not None
    }
    return dict(sorted(boxes.items(), key=lambda item: (-item[1].n, str(item[0]))))


def jobs_in(usage: ReportUsage) -> set[JobId]:
    """The jobs that were in the queue in the window."""
    return {job.job for job in usage.clipped.jobs if not job.dagman}
