"""Usage by site, by GPU model, by site and GPU model, and by cause of loss.

Totals come from :mod:`metlmon.stats.totals` over one ledger. Entries without a site (a transfer
without an execution, a hold of a job that never ran) are grouped under None and never omitted,
so that the groups of one kind sum to the total.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from statistics import median, quantiles
from typing import Final, TypeVar

from metlmon.frozen import frozen
from metlmon.model.hour_unit import HourUnit
from metlmon.model.job import SAME_MOMENT
from metlmon.model.job_events import JobId
from metlmon.model.states import Outcome, State
from metlmon.snapshot.ledger import (
    EpochEntry,
    ExecutionEntry,
    HoldEntry,
    JobEntry,
    Ledger,
    TransferEntry,
    in_hour_unit,
)
from metlmon.snapshot.problems import TRANSFER_LIMIT
from metlmon.stats.totals import UsageTotals, group_by, sum_executions
from metlmon.stats.windows import ALL, TimeWindow, clip_ledger, full_seconds
from metlmon.stats.worker import StatsInput

K = TypeVar("K", bound=Hashable)

SLOW_TIMES: Final = 1.25
"""A site is slow for a GPU model and count if its median epoch exceeds this multiple of the
fastest site's, and its lower quartile exceeds that site's upper quartile. Runs and hosts of one
site differ by about 10 %; 25 % beyond the quartiles is worth an e-mail."""

SLOW_MIN_EPOCHS: Final = 3
"""Minimum epochs on both sides of a comparison: of two, one outlier decides."""

WORTH_LEAST: Final = 3
"""Minimum completed epochs of a site for comparing its GPU-hours per epoch."""

STALL_TIMES: Final = 3.0
"""A failed input transfer stalled if it exceeded this multiple of the site's upper quartile."""

STALL_LEAST: Final = TRANSFER_LIMIT.total_seconds()
"""Minimum seconds of a stalled transfer, as for problems."""

STALL_MIN_TRANSFERS: Final = 4
"""Minimum transfers for a site's upper quartile to be used."""

END_UNKNOWN: Final = "end not logged"
"""Part of the key of a cause whose executions have no end event."""


@frozen
class Distribution:
    """Median, quartiles (linear between ranks), minimum and maximum of ``n`` values.

    All are None if ``n`` is 0.
    """

    n: int = 0
    median: float | None = None
    lower_quartile: float | None = None
    upper_quartile: float | None = None
    minimum: float | None = None
    maximum: float | None = None


@frozen
class TransferStats:
    """Input transfers of a group of executions, and the bytes of the executions.

    ``ok``: seconds of the transfers that an execution followed. ``failed``: the number of aborted
    and unfinished ones; ``stalls``: the number of these, and of those in flight, that exceeded
    ``limit`` seconds; ``stalled_seconds``: their total seconds. ``sent``, ``received``: bytes.
    """

    ok: Distribution
    aborted: int
    unfinished: int
    in_flight: int
    stalls: int
    stalled_seconds: float
    limit: float
    sent: int
    received: int

    @property
    def failed(self) -> int:
        return self.aborted + self.unfinished


@frozen
class CauseReason:
    """One folded text of a cause, with the outcome and the lost GPU-seconds (``bad``)."""

    text: str
    outcome: Outcome
    executions: int
    bad: float


@frozen
class Cause:
    """A cause of loss: executions and holds with the same code, or else reason.

    ``executions``: the number it ended; ``holds``: the number of holds; ``ended_by_hold``: the
    holds that ended one of these executions. ``bad``: lost GPU-seconds. ``reasons``: the texts,
    the most expensive first; ``example``: one of them as logged. ``end_unknown``: the ends of its
    executions were not logged.
    """

    key: str
    text: str
    code: int | None
    subcode: int | None
    executions: int
    holds: int
    ended_by_hold: int
    bad: float
    outcomes: tuple[Outcome, ...]
    reasons: tuple[CauseReason, ...]
    example: str | None
    end_unknown: bool

    @property
    def occurrences(self) -> int:
        """The number of occurrences; a hold and the eviction it caused count once."""
        return self.executions + self.holds - self.ended_by_hold


@frozen
class SiteUsage:
    """Usage of a site, of a GPU model (``name``; None: unknown), or in total.

    ``targets``: requested targets of its executions. ``machines``: their GPU models and counts,
    ``sites``: their sites; most frequent first. ``epoch``: seconds of the executions that
    completed an epoch; ``hidden``: the number of these that were shorter than half of their
    epoch's longest execution, so that they may not have trained it. ``wait``: queue seconds
    before each execution. ``evictions``: executions that ended before their job did, other than
    by a hold; ``holds``: all holds.
    """

    name: str | None
    targets: tuple[str, ...]
    machines: tuple[tuple[str | None, int | None], ...]
    sites: tuple[str | None, ...]
    totals: UsageTotals
    epoch: Distribution
    hidden: int
    wait: Distribution
    input: TransferStats
    evictions: int
    holds: int
    causes: tuple[Cause, ...]

    @property
    def gpu_seconds_per_epoch(self) -> float | None:
        """GPU-seconds per epoch (:attr:`metlmon.stats.totals.UsageTotals.per_epoch`)."""
        return self.totals.per_epoch


@frozen
class SiteGpuUsage:
    """Usage of one GPU model and count at one site.

    ``relative_time``: its median epoch relative to that of ``fastest_site``, the fastest site with
    the same model and count, where both have enough epochs. ``slow``: slower than
    :data:`SLOW_TIMES`.
    """

    gpu: str | None
    gpus: int | None
    site: str | None
    totals: UsageTotals
    epoch: Distribution
    hidden: int
    relative_time: float | None = None
    fastest_site: str | None = None
    slow: bool = False


@frozen
class TargetWaits:
    """Waits without an execution, of one target's jobs; they are in no median.

    ``waiting``: jobs idle at as-of; ``removed``: jobs removed while idle; with the longest wait
    of each in seconds.
    """

    target: str | None
    waiting: int
    longest: float | None
    removed: int
    longest_removed: float | None


@frozen
class Usage:
    """Usage of the ensemble in ``window``; groups by descending GPU-seconds.

    ``hidden``: completed epochs whose successful execution was shorter than half of their longest
    one. ``executions``: the executions that all totals are computed from.
    """

    as_of: datetime | None
    window: TimeWindow
    total: SiteUsage
    sites: tuple[SiteUsage, ...]
    gpus: tuple[SiteUsage, ...]
    site_gpus: tuple[SiteGpuUsage, ...]
    causes: tuple[Cause, ...]
    waiting: tuple[TargetWaits, ...]
    hidden: tuple[EpochEntry, ...]
    executions: tuple[ExecutionEntry, ...]
    nodes_unlogged: int = 0
    measure: HourUnit = HourUnit.GPU

    @property
    def ranked_sites(self) -> tuple[SiteUsage, ...]:
        """Known sites with enough epochs, by ascending GPU-hours per epoch."""
        known = [
            (usage.gpu_seconds_per_epoch, usage)
            for usage in self.sites
            if usage.name is not None and usage.totals.completed >= WORTH_LEAST
        ]
        by_cost = [(cost, usage) for cost, usage in known if cost is not None]
        return tuple(usage for _, usage in sorted(by_cost, key=lambda pair: pair[0]))


def site_usage(stats_input: StatsInput) -> Usage:
    """The statistic of the Sites screen: usage up to as-of."""
    return usage_in_window(in_hour_unit(stats_input.ledger))


def usage_in_window(ledger: Ledger, window: TimeWindow = ALL) -> Usage:
    """The usage within ``window``, without the executions of sub-DAGs' DAGMan jobs."""
    window_ledger = clip_ledger(ledger, window)
    builder = _UsageBuilder(
        window_ledger, window, {e.job for e in ledger.executions if not e.dagman}
    )
    return Usage(
        as_of=ledger.as_of,
        window=window,
        total=builder.usage(
            None, builder.executions, builder.inputs, builder.holds, builder.idle_bytes
        ),
        sites=builder.usages(lambda e: e.site, lambda t: t.site, lambda h: h.site),
        # A transfer without an execution has no GPU.
        gpus=builder.usages(lambda e: e.gpu, builder.gpu_of, lambda h: h.gpu),
        site_gpus=_compare(builder.cells()),
        causes=causes_of(builder.executions, builder.holds),
        waiting=tuple(_waits(ledger, window)),
        hidden=tuple(builder.epochs[e.job] for e in builder.finals if builder.is_hidden(e)),
        executions=builder.executions,
        nodes_unlogged=ledger.nodes_unlogged,
        measure=ledger.measure,
    )


# --- distributions ----------------------------------------------------------------------------


def distribution(values: Iterable[float | None]) -> Distribution:
    """The distribution of the values that are not None."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return Distribution()
    low, _, high = quantiles(known, n=4, method="inclusive") if len(known) > 1 else known * 3
    return Distribution(len(known), median(known), low, high, known[0], known[-1])


def stall_limit(seconds: Distribution) -> float:
    """Seconds beyond which a transfer counts as stalled, given the successful ones."""
    upper_quartile = seconds.upper_quartile if seconds.n >= STALL_MIN_TRANSFERS else None
    return max(STALL_LEAST, STALL_TIMES * (upper_quartile or 0.0))


# --- sites and GPUs ---------------------------------------------------------------------------


def is_evicted(outcome: Outcome) -> bool:
    """Did the execution end without its job being done, held or removed?"""
    return outcome in (Outcome.EVICTED, Outcome.SHADOW_EXCEPTION, Outcome.RECONNECT_FAILED)


Bytes = tuple[int, int]
Held = tuple[HoldEntry, ExecutionEntry | None]
"""A hold, and the execution that it ended, if any."""


class _UsageBuilder:
    """Builds the usage from a ledger clipped to ``window``.

    ``ran``: the jobs that have an execution, in the window or not.
    """

    def __init__(self, ledger: Ledger, window: TimeWindow, ran: Set[JobId]) -> None:
        self.executions = tuple(e for e in ledger.executions if not e.dagman)
        self.finals = [e for e in self.executions if e.final]
        self.inputs = [t for t in ledger.transfers if t.direction == "input" and t.counted]
        self.holds = _match_holds(ledger.jobs, self.executions)
        self.idle_bytes = _bytes_of_idle(job for job in ledger.jobs if job.job not in ran)
        self.epochs: dict[JobId, EpochEntry] = {
            job: epoch for epoch in ledger.epochs for job in epoch.jobs
        }
        self._gpus = _gpus_by_start(self.executions)
        # Each is used four times: in total, by site, by GPU model, and by both.
        timed: tuple[ExecutionEntry | TransferEntry, ...] = (*self.finals, *self.inputs)
        self._durations = {id(e): full_seconds(ledger, window, e) for e in timed}

    def is_hidden(self, final: ExecutionEntry) -> bool:
        epoch = self.epochs.get(final.job)
        return epoch is not None and epoch.hidden

    def gpu_of(self, transfer: TransferEntry) -> str | None:
        """The GPU of the execution that followed an input transfer."""
        if transfer.outcome != "ok" or transfer.start is None:
            return None
        later = [gpu for start, gpu in self._gpus.get(transfer.job, ()) if start >= transfer.start]
        return later[0] if later else None

    def usages(
        self,
        of_execution: Callable[[ExecutionEntry], str | None],
        of_transfer: Callable[[TransferEntry], str | None],
        of_hold: Callable[[HoldEntry], str | None],
    ) -> tuple[SiteUsage, ...]:
        executions = group_by(self.executions, of_execution)
        inputs = group_by(self.inputs, of_transfer)
        holds = group_by(self.holds, lambda pair: of_hold(pair[0]))
        names: dict[str | None, None] = dict.fromkeys((*executions, *inputs, *holds))
        if any(self.idle_bytes):
            names[None] = None
        usages = [
            self.usage(
                name=name,
                executions=executions.get(name, ()),
                inputs=inputs.get(name, ()),
                holds=holds.get(name, ()),
                idle_bytes=self.idle_bytes if name is None else (0, 0),
            )
            for name in names
        ]
        return tuple(sorted(usages, key=_largest_first))

    def usage(
        self,
        name: str | None,
        executions: Sequence[ExecutionEntry],
        inputs: Sequence[TransferEntry],
        holds: Sequence[Held],
        idle_bytes: Bytes,
    ) -> SiteUsage:
        counted = [e for e in executions if e.counted]
        by_hold = {id(e) for _, e in holds}
        epoch, hidden = self._epochs(executions)
        return SiteUsage(
            name=name,
            targets=tuple(sorted({e.target for e in executions if e.target is not None})),
            machines=_by_frequency((e.gpu, e.gpus) for e in executions),
            sites=_by_frequency(e.site for e in executions),
            totals=sum_executions(executions),
            epoch=epoch,
            hidden=hidden,
            wait=distribution(e.wait for e in counted),
            input=self._transfers(executions, inputs, idle_bytes),
            evictions=sum(is_evicted(e.outcome) and id(e) not in by_hold for e in counted),
            holds=len(holds),
            causes=causes_of(executions, holds),
        )

    def cells(self) -> list[SiteGpuUsage]:
        groups = group_by(self.executions, lambda e: (e.gpu, e.gpus, e.site))
        return [
            SiteGpuUsage(*group, sum_executions(entries), *self._epochs(entries))
            for group, entries in groups.items()
        ]

    def _epochs(self, executions: Iterable[ExecutionEntry]) -> tuple[Distribution, int]:
        """Full durations of the completed epochs, also of those partly in the window."""
        finals = [e for e in executions if e.final]
        return distribution(self._durations[id(e)] for e in finals), sum(
            map(self.is_hidden, finals)
        )

    def _transfers(
        self,
        executions: Iterable[ExecutionEntry],
        inputs: Sequence[TransferEntry],
        idle_bytes: Bytes,
    ) -> TransferStats:
        ok = distribution(self._durations[id(t)] for t in inputs if t.outcome == "ok")
        limit = stall_limit(ok)
        lost = [t for t in inputs if t.outcome != "ok"]
        stalls = [s for t in lost if (s := self._durations[id(t)]) is not None and s > limit]
        sent, received = idle_bytes
        for entry in executions:
            sent += entry.bytes_sent or 0
            received += entry.bytes_received or 0
        kinds = [t.outcome for t in lost]
        return TransferStats(
            ok=ok,
            aborted=kinds.count("aborted"),
            unfinished=kinds.count("unfinished"),
            in_flight=kinds.count("in-flight"),
            stalls=len(stalls),
            stalled_seconds=sum(stalls),
            limit=limit,
            sent=sent,
            received=received,
        )


def _gpus_by_start(
    executions: Iterable[ExecutionEntry],
) -> dict[JobId, list[tuple[datetime, str | None]]]:
    gpus: dict[JobId, list[tuple[datetime, str | None]]] = {}
    for entry in executions:
        gpus.setdefault(entry.job, []).append((entry.start, entry.gpu))
    return gpus


def _bytes_of_idle(jobs: Iterable[JobEntry]) -> Bytes:
    """Bytes of jobs without an execution, which no execution entry has."""
    own = [job for job in jobs if not job.dagman]
    return sum(job.bytes_sent or 0 for job in own), sum(job.bytes_received or 0 for job in own)


def _by_frequency(values: Iterable[K]) -> tuple[K, ...]:
    """The distinct values, the most frequent first."""
    counts: dict[K, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return tuple(sorted(counts, key=lambda value: (-counts[value], str(value))))


def _largest_first(usage: SiteUsage) -> tuple[float, int, str]:
    return -usage.totals.total, -usage.totals.executions, usage.name or ""


# --- site and GPU -----------------------------------------------------------------------------


def _compare(cells: Iterable[SiteGpuUsage]) -> tuple[SiteGpuUsage, ...]:
    """The cells with their comparison, GPU models by descending GPU-seconds."""
    models: list[tuple[float, list[SiteGpuUsage]]] = []
    for group in group_by(cells, lambda cell: (cell.gpu, cell.gpus)).values():
        fastest = _fastest(group)
        ordered = sorted(group, key=lambda c: (c.epoch.median or float("inf"), c.site or ""))
        models.append(
            (sum(cell.totals.total for cell in group), [_compare_with(fastest, c) for c in ordered])
        )
    models.sort(key=lambda pair: -pair[0])
    return tuple(cell for _, group in models for cell in group)


def _fastest(group: Iterable[SiteGpuUsage]) -> SiteGpuUsage | None:
    """The reference of a comparison; None if fewer than two cells are comparable."""
    comparable = [cell for cell in group if _comparable(cell)]
    return (
        min(comparable, key=lambda cell: cell.epoch.median or 0.0) if len(comparable) > 1 else None
    )


def _comparable(cell: SiteGpuUsage) -> bool:
    known = cell.gpu is not None and cell.site is not None
    return known and cell.epoch.n >= SLOW_MIN_EPOCHS and bool(cell.epoch.median)


def _compare_with(fastest: SiteGpuUsage | None, cell: SiteGpuUsage) -> SiteGpuUsage:
    if fastest is None or not fastest.epoch.median or not _comparable(cell):
        return cell
    times = (cell.epoch.median or 0.0) / fastest.epoch.median
    beyond_quartiles = (cell.epoch.lower_quartile or 0.0) > (fastest.epoch.upper_quartile or 0.0)
    slow = times > SLOW_TIMES and beyond_quartiles
    return replace(cell, relative_time=times, fastest_site=fastest.site, slow=slow)


# --- causes -----------------------------------------------------------------------------------


def cause_key(code: int | None, subcode: int | None, text: str) -> str:
    """``1023/0``, or the folded reason if there is no code."""
    return f"{code}/{subcode or 0}" if code else text


def cause_of_execution(entry: ExecutionEntry) -> str:
    """The cause key of a bad execution.

    Executions without a logged end have their own key, since their cost is a guess.
    """
    if entry.uncertain:
        return f"{entry.outcome.value}, {END_UNKNOWN}"
    return cause_key(entry.code, entry.subcode, entry.cause or entry.outcome.value)


def causes_of(
    executions: Iterable[ExecutionEntry], holds: Iterable[Held] = ()
) -> tuple[Cause, ...]:
    """The causes of bad executions and of holds, by descending GPU-seconds.

    A hold that ended an execution has the cause of that execution.
    """
    by_executions = group_by((e for e in executions if e.kind == "bad"), cause_of_execution)
    by_holds = group_by(
        holds,
        lambda pair: (
            cause_key(pair[0].code, pair[0].subcode, pair[0].cause)
            if pair[1] is None
            else cause_of_execution(pair[1])
        ),
    )
    causes = [
        _build_cause(key, by_executions.get(key, []), by_holds.get(key, []))
        for key in by_executions | by_holds
    ]
    return tuple(sorted(causes, key=lambda c: (-c.bad, -c.occurrences, c.key)))


def _match_holds(jobs: Iterable[JobEntry], executions: Iterable[ExecutionEntry]) -> list[Held]:
    """Every hold with the execution it ended, which is logged seconds before it."""
    ended = group_by((e for e in executions if e.kind == "bad" and e.counted), lambda e: e.job)
    matched: list[Held] = []
    for job in jobs:
        if not job.dagman and job.holds:
            ends = {
                aware: _Ends(e for e in ended.get(job.job, ()) if _is_aware(e.end) is aware)
                for aware in (False, True)
            }
            matched += [
                (hold, ends[_is_aware(hold.start)].before(hold.start)) for hold in job.holds
            ]
    return matched


def _is_aware(when: datetime | None) -> bool:
    return when is not None and when.tzinfo is not None


class _Ends:
    """The executions of a job by end time; all ends are zone-aware, or all are naive."""

    def __init__(self, executions: Iterable[ExecutionEntry]) -> None:
        self._executions = [e for e in executions if e.end is not None]
        ends = [e.end for e in self._executions if e.end is not None]
        self._order = sorted(range(len(ends)), key=ends.__getitem__)
        self._ends = [ends[index] for index in self._order]
        self._first: dict[tuple[int, int], int] = {}

    def before(self, moment: datetime) -> ExecutionEntry | None:
        """The first in the log that ended within :data:`SAME_MOMENT` before ``moment``."""
        window = bisect_left(self._ends, moment - SAME_MOMENT), bisect_right(self._ends, moment)
        if window[0] >= window[1]:
            return None
        if window not in self._first:
            self._first[window] = min(self._order[slice(*window)])
        return self._executions[self._first[window]]


def _build_cause(key: str, executions: Sequence[ExecutionEntry], holds: Sequence[Held]) -> Cause:
    texts = group_by(executions, lambda e: (e.cause or e.outcome.value, e.outcome))
    reasons = [
        CauseReason(
            text, outcome, sum(e.counted for e in es), sum(e.gpu_seconds or 0.0 for e in es)
        )
        for (text, outcome), es in texts.items()
    ]
    execution_texts = {text for text, _ in texts}
    hold_texts = dict.fromkeys(hold.cause for hold, execution in holds if execution is None)
    reasons += [
        CauseReason(text, Outcome.HELD, 0, 0.0)
        for text in hold_texts
        if text not in execution_texts
    ]
    reasons.sort(key=lambda reason: (-reason.bad, -reason.executions, reason.text))
    first = executions[0] if executions else None
    code, subcode = (
        (holds[0][0].code, holds[0][0].subcode) if first is None else (first.code, first.subcode)
    )
    costliest = max(executions, key=lambda e: e.gpu_seconds or 0.0, default=None)
    unknown = first is not None and first.uncertain
    return Cause(
        key=key,
        text=f"{key}: {reasons[0].text}" if unknown else reasons[0].text,
        code=code or None,
        subcode=subcode if code else None,
        executions=sum(e.counted for e in executions),
        holds=len(holds),
        ended_by_hold=sum(execution is not None for _, execution in holds),
        bad=sum(e.gpu_seconds or 0.0 for e in executions),
        outcomes=tuple(dict.fromkeys(reason.outcome for reason in reasons)),
        reasons=tuple(reasons),
        example=costliest.reason if costliest is not None else None,
        end_unknown=unknown,
    )


# --- waits without an execution ---------------------------------------------------------------


def _waits(ledger: Ledger, window: TimeWindow) -> Iterable[TargetWaits]:
    """Per target, the jobs that wait at as-of and those removed while waiting.

    The former count if as-of is in the window, the latter if the removal is.
    """
    waits: dict[str | None, list[float]] = {}
    removed: dict[str | None, list[float]] = {}
    for job in ledger.jobs:
        if job.dagman or not job.states:
            continue
        since, state = job.states[-1]
        if state is State.IDLE and ledger.as_of and _in_window(ledger, window, ledger.as_of):
            waits.setdefault(job.target, []).append(ledger.seconds_between(since, ledger.as_of))
        elif state is State.REMOVED and len(job.states) > 1 and _in_window(ledger, window, since):
            idle_since, before = job.states[-2]
            waited = ledger.seconds_between(idle_since, since)
            # An eviction directly followed by the removal is no wait.
            if before is State.IDLE and waited > SAME_MOMENT.total_seconds():
                removed.setdefault(job.target, []).append(waited)
    for target in sorted({*waits, *removed}, key=lambda name: (name is None, name or "")):
        idle, removed_waits = waits.get(target, []), removed.get(target, [])
        yield TargetWaits(
            target,
            len(idle),
            max(idle, default=None),
            len(removed_waits),
            max(removed_waits, default=None),
        )


def _in_window(ledger: Ledger, window: TimeWindow, moment: datetime) -> bool:
    after = window.since is None or ledger.seconds_between(moment, window.since) <= 0
    return after and (window.until is None or ledger.seconds_between(moment, window.until) > 0)


# --- executions behind a total ----------------------------------------------------------------


@frozen
class UsageFilter:
    """Selects the executions behind a total.

    ``site``, ``gpu`` (as logged) and ``gpus`` (count) are tuples of one, since None is a valid
    value; ``cause``: the key of a cause. An attribute that is None matches everything.
    """

    site: tuple[str | None] | None = None
    gpu: tuple[str | None] | None = None
    gpus: tuple[int | None] | None = None
    cause: str | None = None

    def matches(self, entry: ExecutionEntry) -> bool:
        """Does the filter match this execution?"""
        return (
            (self.site is None or entry.site == self.site[0])
            and (self.gpu is None or entry.gpu == self.gpu[0])
            and (self.gpus is None or entry.gpus == self.gpus[0])
            and (
                self.cause is None
                or (entry.kind == "bad" and cause_of_execution(entry) == self.cause)
            )
        )


def select_executions(usage: Usage, usage_filter: UsageFilter) -> tuple[ExecutionEntry, ...]:
    """The executions that match the filter, in order of their start."""
    matching = [entry for entry in usage.executions if usage_filter.matches(entry)]
    return tuple(sorted(matching, key=lambda entry: (entry.start.replace(tzinfo=None), entry.job)))


def hidden_jobs(usage: Usage) -> Mapping[JobId, EpochEntry]:
    """Epochs trained by another execution than the successful one, by their jobs."""
    return {job: epoch for epoch in usage.hidden for job in epoch.jobs}
