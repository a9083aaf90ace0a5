"""Where the hours went: by site, by GPU model, by both, and by cause.

All sums are :mod:`metlmon.stats.totals`'s over one ledger; whatever has no site (a transfer
that led to no execution, a hold of a job that never ran) is of the place None, never left out,
so that the places of one kind sum to the whole.
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
    measured,
)
from metlmon.snapshot.problems import STALLED_TRANSFER
from metlmon.stats.totals import UsageTotals, grouped, tally
from metlmon.stats.windows import ALL, TimeWindow, clipped, whole_seconds
from metlmon.stats.worker import StatsInput

K = TypeVar("K", bound=Hashable)

SLOW_TIMES: Final = 1.25
"""A site is slow for a GPU model where its median epoch takes more than so many times that of
the fastest site with as many GPUs of that model, and its faster quarter is still slower than
that one's slower quarter. Runs and hosts of one site differ by a tenth or so; a quarter that
the spreads do not explain is worth an e-mail."""

SLOW_LEAST: Final = 3
"""Epochs that a median is of, on both sides, before it is compared: of two, one odd epoch
decides."""

WORTH_LEAST: Final = 3
"""Completed epochs before a site's GPU-hours per epoch are compared with another's."""

STALL_TIMES: Final = 3.0
"""An input transfer that came to nothing stalled when it took longer than so many times what
three of four there take."""

STALL_LEAST: Final = STALLED_TRANSFER.total_seconds()
"""Seconds below which no transfer stalled, however fast the others are: as for problems."""

HABIT_LEAST: Final = 4
"""Transfers that make a habit."""

END_UNKNOWN: Final = "end not logged"
"""Stands in the key of a cause whose executions ended at a time that no event tells."""


@frozen
class Distribution:
    """``n`` durations in seconds: median, quartiles (linear between ranks), least and most;
    None of nothing."""

    n: int = 0
    median: float | None = None
    low: float | None = None
    high: float | None = None
    least: float | None = None
    most: float | None = None


@frozen
class TransferStats:
    """Input transfers of a place, and the bytes of its executions.

    ``ok``: seconds of those that an execution followed. ``failed``: how many came to nothing
    (aborted or unfinished); ``stalls``: those of them, and of those in flight, that took longer
    than ``limit`` seconds, ``stalled`` their seconds together. ``sent``, ``received``: bytes.
    """

    ok: Distribution
    aborted: int
    unfinished: int
    in_flight: int
    stalls: int
    stalled: float
    limit: float
    sent: int
    received: int

    @property
    def failed(self) -> int:
        return self.aborted + self.unfinished


@frozen
class Reason:
    """One folded text of a cause; ``bad``: GPU-seconds, ``outcome``: how its executions ended."""

    text: str
    outcome: Outcome
    executions: int
    bad: float


@frozen
class Cause:
    """One cause of lost time: executions and holds with the same code, or, where there is none,
    with the same folded reason.

    ``executions`` ended by it; ``holds``: all holds by it; ``both``: holds that ended one of
    those executions. ``bad``: GPU-seconds. ``reasons``: the texts, the most expensive first;
    ``example``: one as it was logged. ``end_unknown``: when its executions ended was not logged.
    """

    key: str
    text: str
    code: int | None
    subcode: int | None
    executions: int
    holds: int
    both: int
    bad: float
    outcomes: tuple[Outcome, ...]
    reasons: tuple[Reason, ...]
    example: str | None
    end_unknown: bool

    @property
    def times(self) -> int:
        """How often it struck: a hold and the eviction it caused are one thing."""
        return self.executions + self.holds - self.both


@frozen
class SiteUsage:
    """A site, a GPU model (``name``; None: not known), or the whole.

    ``targets``: those that its executions wanted to go to. ``machines``: GPU models and numbers
    of GPUs of its executions, ``sites``: their sites; the most executions first. ``epoch``:
    seconds of the executions that completed an epoch; ``hidden``: how many of these lasted less
    than half of their epoch's longest one, so that they may not have trained it. ``wait``:
    seconds in the queue before each execution. ``evictions``: executions that ended although
    the job had not, other than by a hold; ``holds``: all holds.
    """

    name: str | None
    targets: tuple[str, ...]
    machines: tuple[tuple[str | None, int | None], ...]
    sites: tuple[str | None, ...]
    sum: UsageTotals
    epoch: Distribution
    hidden: int
    wait: Distribution
    input: TransferStats
    evictions: int
    holds: int
    causes: tuple[Cause, ...]

    @property
    def cost(self) -> float | None:
        """GPU-seconds per epoch (:attr:`metlmon.stats.totals.UsageTotals.per_epoch`)."""
        return self.sum.per_epoch


@frozen
class SiteGpuUsage:
    """A GPU model, so many of them, at a site. ``times``: its median epoch against that of the
    fastest site with as many of the same model (``fastest``), where both have enough of them;
    ``slow``: that is more than the spreads explain."""

    gpu: str | None
    gpus: int | None
    site: str | None
    sum: UsageTotals
    epoch: Distribution
    hidden: int
    times: float | None = None
    fastest: str | None = None
    slow: bool = False


@frozen
class Waiting:
    """Waits that led to no execution, of the jobs for one target: they are not in any median.
    ``waiting``: idle at as-of; ``removed``: while idle. The longest of each, in seconds."""

    target: str | None
    waiting: int
    longest: float | None
    removed: int
    longest_removed: float | None


@frozen
class Usage:
    """All places of the ensemble in ``window``; those of each kind by GPU-seconds, the most
    first. ``hidden``: completed epochs whose successful execution lasted less than half of
    their longest one. ``executions``: what everything is added up from."""

    as_of: datetime | None
    window: TimeWindow
    total: SiteUsage
    sites: tuple[SiteUsage, ...]
    gpus: tuple[SiteUsage, ...]
    cells: tuple[SiteGpuUsage, ...]
    causes: tuple[Cause, ...]
    waiting: tuple[Waiting, ...]
    hidden: tuple[EpochEntry, ...]
    executions: tuple[ExecutionEntry, ...]
    nodes_unlogged: int = 0
    measure: HourUnit = HourUnit.GPU

    @property
    def ranked(self) -> tuple[SiteUsage, ...]:
        """Known sites by what an epoch costs there in GPU-hours, the cheapest first; those with
        too few epochs are left out."""
        known = [
            (place.cost, place)
            for place in self.sites
            if place.name is not None and place.sum.completed >= WORTH_LEAST
        ]
        costly = [(cost, place) for cost, place in known if cost is not None]
        return tuple(place for _, place in sorted(costly, key=lambda pair: pair[0]))


def sites(basis: StatsInput) -> Usage:
    """The figure of the Sites screen: everything up to as-of."""
    return places_in(measured(basis.ledger))


def places_in(ledger: Ledger, window: TimeWindow = ALL) -> Usage:
    """All places of what lies in ``window``. A sub-DAG's DAGMan runs at no site and has no
    GPU: its executions are left out."""
    part = clipped(ledger, window)
    booking = _UsageBuilder(part, window, {e.job for e in ledger.executions if not e.dagman})
    return Usage(
        ledger.as_of,
        window,
        booking.place(None, booking.executions, booking.inputs, booking.holds, booking.idle_bytes),
        booking.places(lambda e: e.site, lambda t: t.site, lambda h: h.site),
        # A transfer that led nowhere was for no GPU yet.
        booking.places(lambda e: e.gpu, booking.gpu_of, lambda h: h.gpu),
        _compared(booking.cells()),
        causes_of(booking.executions, booking.holds),
        tuple(_waiting(ledger, window)),
        tuple(booking.epochs[e.job] for e in booking.finals if booking.is_hidden(e)),
        booking.executions,
        ledger.nodes_unlogged,
        ledger.measure,
    )


# --- spreads ----------------------------------------------------------------------------------


def spread(values: Iterable[float | None]) -> Distribution:
    """The spread of the known values."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return Distribution()
    low, _, high = quantiles(known, n=4, method="inclusive") if len(known) > 1 else known * 3
    return Distribution(len(known), median(known), low, high, known[0], known[-1])


def habit(seconds: Distribution) -> float:
    """Seconds from which on an input transfer stalls where others take as long as these."""
    usual = seconds.high if seconds.n >= HABIT_LEAST else None
    return max(STALL_LEAST, STALL_TIMES * (usual or 0.0))


# --- places -----------------------------------------------------------------------------------


def is_evicted(outcome: Outcome) -> bool:
    """Did the execution end although the job was not done, held or removed?"""
    return outcome in (Outcome.EVICTED, Outcome.SHADOW_EXCEPTION, Outcome.RECONNECT_FAILED)


Bytes = tuple[int, int]
Held = tuple[HoldEntry, ExecutionEntry | None]
"""A hold, and the execution that it ended."""


class _UsageBuilder:
    """The entries of one ledger, clipped to ``window``, and what they tell of each other. ``ran``:
    the jobs that have an execution, in the window or not."""

    def __init__(self, ledger: Ledger, window: TimeWindow, ran: Set[JobId]) -> None:
        self.executions = tuple(e for e in ledger.executions if not e.dagman)
        self.finals = [e for e in self.executions if e.final]
        self.inputs = [t for t in ledger.transfers if t.direction == "input" and t.counted]
        self.holds = _tied(ledger.jobs, self.executions)
        self.idle_bytes = _bytes_of_idle(job for job in ledger.jobs if job.job not in ran)
        self.epochs: dict[JobId, EpochEntry] = {
            job: epoch for epoch in ledger.epochs for job in epoch.jobs
        }
        self._gpus = _gpus_by_start(self.executions)
        # Asked four times each: for the whole, the site, the GPU model, and both.
        timed: tuple[ExecutionEntry | TransferEntry, ...] = (*self.finals, *self.inputs)
        self._lasted = {id(e): whole_seconds(ledger, window, e) for e in timed}

    def is_hidden(self, final: ExecutionEntry) -> bool:
        epoch = self.epochs.get(final.job)
        return epoch is not None and epoch.hidden

    def gpu_of(self, transfer: TransferEntry) -> str | None:
        """The GPU of the execution that an input transfer led to."""
        if transfer.outcome != "ok" or transfer.start is None:
            return None
        later = [gpu for start, gpu in self._gpus.get(transfer.job, ()) if start >= transfer.start]
        return later[0] if later else None

    def places(
        self,
        of_execution: Callable[[ExecutionEntry], str | None],
        of_transfer: Callable[[TransferEntry], str | None],
        of_hold: Callable[[HoldEntry], str | None],
    ) -> tuple[SiteUsage, ...]:
        executions = grouped(self.executions, of_execution)
        inputs = grouped(self.inputs, of_transfer)
        holds = grouped(self.holds, lambda held: of_hold(held[0]))
        names: dict[str | None, None] = dict.fromkeys((*executions, *inputs, *holds))
        if any(self.idle_bytes):
            names[None] = None
        made = [
            self.place(
                name,
                executions.get(name, ()),
                inputs.get(name, ()),
                holds.get(name, ()),
                self.idle_bytes if name is None else (0, 0),
            )
            for name in names
        ]
        return tuple(sorted(made, key=_largest_first))

    def place(
        self,
        name: str | None,
        executions: Sequence[ExecutionEntry],
        inputs: Sequence[TransferEntry],
        holds: Sequence[Held],
        more: Bytes,
    ) -> SiteUsage:
        counted = [e for e in executions if e.counted]
        by_hold = {id(e) for _, e in holds}
        return SiteUsage(
            name,
            tuple(sorted({e.target for e in executions if e.target is not None})),
            _by_number((e.gpu, e.gpus) for e in executions),
            _by_number(e.site for e in executions),
            tally(executions),
            *self._epochs(executions),
            spread(e.wait for e in counted),
            self._moved(executions, inputs, more),
            sum(is_evicted(e.outcome) and id(e) not in by_hold for e in counted),
            len(holds),
            causes_of(executions, holds),
        )

    def cells(self) -> list[SiteGpuUsage]:
        groups = grouped(self.executions, lambda e: (e.gpu, e.gpus, e.site))
        return [
            SiteGpuUsage(*where, tally(entries), *self._epochs(entries))
            for where, entries in groups.items()
        ]

    def _epochs(self, executions: Iterable[ExecutionEntry]) -> tuple[Distribution, int]:
        """Whole seconds of the epochs completed, also where only a part is in the window."""
        finals = [e for e in executions if e.final]
        return spread(self._lasted[id(e)] for e in finals), sum(map(self.is_hidden, finals))

    def _moved(
        self,
        executions: Iterable[ExecutionEntry],
        inputs: Sequence[TransferEntry],
        more: Bytes,
    ) -> TransferStats:
        ok = spread(self._lasted[id(t)] for t in inputs if t.outcome == "ok")
        limit = habit(ok)
        lost = [t for t in inputs if t.outcome != "ok"]
        stalls = [s for t in lost if (s := self._lasted[id(t)]) is not None and s > limit]
        sent, received = more
        for entry in executions:
            sent += entry.bytes_sent or 0
            received += entry.bytes_received or 0
        kinds = [t.outcome for t in lost]
        return TransferStats(
            ok,
            kinds.count("aborted"),
            kinds.count("unfinished"),
            kinds.count("in-flight"),
            len(stalls),
            sum(stalls),
            limit,
            sent,
            received,
        )


def _gpus_by_start(
    executions: Iterable[ExecutionEntry],
) -> dict[JobId, list[tuple[datetime, str | None]]]:
    found: dict[JobId, list[tuple[datetime, str | None]]] = {}
    for entry in executions:
        found.setdefault(entry.job, []).append((entry.start, entry.gpu))
    return found


def _bytes_of_idle(jobs: Iterable[JobEntry]) -> Bytes:
    """Bytes of jobs without an execution: nothing else has them."""
    own = [job for job in jobs if not job.dagman]
    return sum(job.bytes_sent or 0 for job in own), sum(job.bytes_received or 0 for job in own)


def _by_number(values: Iterable[K]) -> tuple[K, ...]:
    """Each value once, the most frequent first."""
    counts: dict[K, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return tuple(sorted(counts, key=lambda value: (-counts[value], str(value))))


def _largest_first(place: SiteUsage) -> tuple[float, int, str]:
    return -place.sum.total, -place.sum.executions, place.name or ""


# --- site and GPU -----------------------------------------------------------------------------


def _compared(cells: Iterable[SiteGpuUsage]) -> tuple[SiteGpuUsage, ...]:
    """The cells, model by model, the most GPU-seconds first; each with how it compares."""
    made: list[tuple[float, list[SiteGpuUsage]]] = []
    for group in grouped(cells, lambda cell: (cell.gpu, cell.gpus)).values():
        fastest = _fastest(group)
        ordered = sorted(group, key=lambda c: (c.epoch.median or float("inf"), c.site or ""))
        made.append(
            (sum(cell.sum.total for cell in group), [_against(fastest, c) for c in ordered])
        )
    made.sort(key=lambda pair: -pair[0])
    return tuple(cell for _, group in made for cell in group)


def _fastest(group: Iterable[SiteGpuUsage]) -> SiteGpuUsage | None:
    """The cell that the others are compared with."""
    able = [cell for cell in group if _comparable(cell)]
    return min(able, key=lambda cell: cell.epoch.median or 0.0) if len(able) > 1 else None


def _comparable(cell: SiteGpuUsage) -> bool:
    known = cell.gpu is not None and cell.site is not None
    return known and cell.epoch.n >= SLOW_LEAST and bool(cell.epoch.median)


def _against(fastest: SiteGpuUsage | None, cell: SiteGpuUsage) -> SiteGpuUsage:
    if fastest is None or not fastest.epoch.median or not _comparable(cell):
        return cell
    times = (cell.epoch.median or 0.0) / fastest.epoch.median
    apart = (cell.epoch.low or 0.0) > (fastest.epoch.high or 0.0)
    slow = times > SLOW_TIMES and apart
    return replace(cell, times=times, fastest=fastest.site, slow=slow)


# --- causes -----------------------------------------------------------------------------------


def cause_key(code: int | None, subcode: int | None, text: str) -> str:
    """``1023/0``, or the folded reason where no code tells."""
    return f"{code}/{subcode or 0}" if code else text


def cause_of_execution(entry: ExecutionEntry) -> str:
    """The key of what ended a bad execution. One whose end was not logged is apart: what it
    cost is a guess."""
    if entry.uncertain:
        return f"{entry.outcome.value}, {END_UNKNOWN}"
    return cause_key(entry.code, entry.subcode, entry.cause or entry.outcome.value)


def causes_of(
    executions: Iterable[ExecutionEntry], holds: Iterable[Held] = ()
) -> tuple[Cause, ...]:
    """What ended bad executions and what held jobs, the most GPU-seconds first. A hold that
    ended an execution is of that one's cause."""
    struck = grouped((e for e in executions if e.kind == "bad"), cause_of_execution)
    held = grouped(
        holds,
        lambda pair: (
            cause_key(pair[0].code, pair[0].subcode, pair[0].cause)
            if pair[1] is None
            else cause_of_execution(pair[1])
        ),
    )
    made = [_cause(key, struck.get(key, []), held.get(key, [])) for key in struck | held]
    return tuple(sorted(made, key=lambda c: (-c.bad, -c.times, c.key)))


def _tied(jobs: Iterable[JobEntry], executions: Iterable[ExecutionEntry]) -> list[Held]:
    """Every hold with the execution that it ended, which is logged within seconds before it."""
    ended = grouped((e for e in executions if e.kind == "bad" and e.counted), lambda e: e.job)
    tied: list[Held] = []
    for job in jobs:
        if not job.dagman and job.holds:
            ends = {
                aware: _Ends(e for e in ended.get(job.job, ()) if _is_aware(e.end) is aware)
                for aware in (False, True)
            }
            tied += [(hold, ends[_is_aware(hold.start)].before(hold.start)) for hold in job.holds]
    return tied


def _is_aware(when: datetime | None) -> bool:
    return when is not None and when.tzinfo is not None


class _Ends:
    """The executions of a job by when they ended; all with a time zone, or all without."""

    def __init__(self, executions: Iterable[ExecutionEntry]) -> None:
        self._executions = [e for e in executions if e.end is not None]
        ends = [e.end for e in self._executions if e.end is not None]
        self._order = sorted(range(len(ends)), key=ends.__getitem__)
        self._ends = [ends[index] for index in self._order]
        self._first: dict[tuple[int, int], int] = {}

    def before(self, moment: datetime) -> ExecutionEntry | None:
        """The first in the log that ended at this moment, or within :data:`SAME_MOMENT` before."""
        window = bisect_left(self._ends, moment - SAME_MOMENT), bisect_right(self._ends, moment)
        if window[0] >= window[1]:
            return None
        if window not in self._first:
            self._first[window] = min(self._order[slice(*window)])
        return self._executions[self._first[window]]


def _cause(key: str, executions: Sequence[ExecutionEntry], holds: Sequence[Held]) -> Cause:
    texts = grouped(executions, lambda e: (e.cause or e.outcome.value, e.outcome))
    reasons = [
        Reason(text, outcome, sum(e.counted for e in es), sum(e.gpu_seconds or 0.0 for e in es))
        for (text, outcome), es in texts.items()
    ]
    told_already = {text for text, _ in texts}
    lone = dict.fromkeys(hold.cause for hold, execution in holds if execution is None)
    reasons += [Reason(text, Outcome.HELD, 0, 0.0) for text in lone if text not in told_already]
    reasons.sort(key=lambda reason: (-reason.bad, -reason.executions, reason.text))
    first = executions[0] if executions else None
    code, subcode = (
        (holds[0][0].code, holds[0][0].subcode) if first is None else (first.code, first.subcode)
    )
    told = max(executions, key=lambda e: e.gpu_seconds or 0.0, default=None)
    unknown = first is not None and first.uncertain
    return Cause(
        key,
        f"{key}: {reasons[0].text}" if unknown else reasons[0].text,
        code or None,
        subcode if code else None,
        sum(e.counted for e in executions),
        len(holds),
        sum(execution is not None for _, execution in holds),
        sum(e.gpu_seconds or 0.0 for e in executions),
        tuple(dict.fromkeys(reason.outcome for reason in reasons)),
        tuple(reasons),
        told.reason if told is not None else None,
        unknown,
    )


# --- waits that led to nothing ----------------------------------------------------------------


def _waiting(ledger: Ledger, window: TimeWindow) -> Iterable[Waiting]:
    """By target: jobs that wait still (told where as-of is in the window), and those removed
    while they waited (where they were removed in it)."""
    waits: dict[str | None, list[float]] = {}
    removed: dict[str | None, list[float]] = {}
    for job in ledger.jobs:
        if job.dagman or not job.states:
            continue
        begun, state = job.states[-1]
        if state is State.IDLE and ledger.as_of and _has(ledger, window, ledger.as_of):
            waits.setdefault(job.target, []).append(ledger.between(begun, ledger.as_of))
        elif state is State.REMOVED and len(job.states) > 1 and _has(ledger, window, begun):
            since, before = job.states[-2]
            lasted = ledger.between(since, begun)
            # Evicted and removed in one breath is no wait.
            if before is State.IDLE and lasted > SAME_MOMENT.total_seconds():
                removed.setdefault(job.target, []).append(lasted)
    for target in sorted({*waits, *removed}, key=lambda name: (name is None, name or "")):
        now, gone = waits.get(target, []), removed.get(target, [])
        yield Waiting(target, len(now), max(now, default=None), len(gone), max(gone, default=None))


def _has(ledger: Ledger, window: TimeWindow, moment: datetime) -> bool:
    after = window.since is None or ledger.between(moment, window.since) <= 0
    return after and (window.until is None or ledger.between(moment, window.until) > 0)


# --- the executions behind a number -----------------------------------------------------------


@frozen
class UsageFilter:
    """Which executions a number was added up from. ``site``, ``gpu``: as logged, in a tuple of
    one, since None is a place too; ``gpus``: so many; ``cause``: a cause's key. What is None
    does not choose."""

    site: tuple[str | None] | None = None
    gpu: tuple[str | None] | None = None
    gpus: tuple[int | None] | None = None
    cause: str | None = None

    def has(self, entry: ExecutionEntry) -> bool:
        """Is this execution one of them?"""
        return (
            (self.site is None or entry.site == self.site[0])
            and (self.gpu is None or entry.gpu == self.gpu[0])
            and (self.gpus is None or entry.gpus == self.gpus[0])
            and (
                self.cause is None
                or (entry.kind == "bad" and cause_of_execution(entry) == self.cause)
            )
        )


def chosen(found: Usage, choice: UsageFilter) -> tuple[ExecutionEntry, ...]:
    """The executions behind a number, in order of their start."""
    kept = [entry for entry in found.executions if choice.has(entry)]
    return tuple(sorted(kept, key=lambda entry: (entry.start.replace(tzinfo=None), entry.job)))


def hidden_jobs(found: Usage) -> Mapping[JobId, EpochEntry]:
    """Epochs that another execution trained than the one that succeeded, by their jobs."""
    return {job: epoch for epoch in found.hidden for job in epoch.jobs}
