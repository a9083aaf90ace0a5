"""Usage by site, GPU model, cause, run and label, for commands, screens, reports.

Everything is summed from the entries of one ledger by :mod:`metlmon.stats.totals`. Entries without
a site (a transfer without an execution, a hold of a job that never ran) are grouped under None and
never omitted, so that the groups of one kind sum to the total.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from math import inf
from operator import attrgetter
from statistics import median
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from metlmon.live.feed import StatsInput
from metlmon.model.job import SAME_MOMENT
from metlmon.model.job_events import NodeKey
from metlmon.model.states import EVICTIONS, State
from metlmon.snapshot.records import (
    Epoch,
    Execution,
    HourUnit,
    Job,
    Ledger,
    Transfer,
    job_key,
)
from metlmon.stats.causes import Cause, MatchedHold, cause_of_execution, causes_of, match_holds
from metlmon.stats.hosts import (
    SLOW_FACTOR,
    SLOW_MIN_EPOCHS,
    EpochTime,
    HostComparison,
    HostKey,
    compare_hosts,
)
from metlmon.stats.pool_profiles import (
    PoolProfile,
    ResourcePool,
    pool_of,
    profiles_in_window,
)
from metlmon.stats.resources import Ended, ResourceGroup, ended_as, resource_use
from metlmon.stats.totals import (
    TRANSFER_SECONDS,
    UsageTotals,
    group_by,
    quartiles,
    sum_executions,
)
from metlmon.stats.windows import ALL, TimeWindow, WindowClipper, clip_ledger, full_seconds
from metlmon.text.record_json import Flat

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

COST_MIN_EPOCHS: Final = 3
"""Minimum completed epochs of a site for comparing its GPU-hours per epoch."""

STALL_FACTOR: Final = 3.0
"""A failed input transfer stalled if it exceeded this multiple of the site's upper quartile."""

STALL_MIN_TRANSFERS: Final = 4
"""Minimum transfers for a site's upper quartile to be used."""

WASTE_MIN_SHARE: Final = 0.1
"""Minimum loss of a wasteful site, as a share of the GPU-hours of ended executions."""


class Distribution(Struct, frozen=True):
    """Median, quartiles (linear between ranks), minimum and maximum of ``n`` values.

    All are None if ``n`` is 0.
    """

    n: int = 0
    median: float | None = None
    lower_quartile: float | None = None
    upper_quartile: float | None = None
    minimum: float | None = None
    maximum: float | None = None


class TransferStats(Struct, frozen=True):
    """Input transfers of a group of executions, and the bytes of its executions.

    ``ok``: seconds of the transfers that an execution followed. ``stalls``: the number of the
    others that exceeded ``limit`` seconds; ``stalled_seconds``: their total. ``sent``,
    ``received``: bytes.
    """

    ok: Distribution = field(default_factory=Distribution)
    aborted: int = 0
    unfinished: int = 0
    in_flight: int = 0
    stalls: int = 0
    stalled_seconds: float = 0.0
    limit: float = TRANSFER_SECONDS
    sent: int = 0
    received: int = 0


class LongestExecutions(Struct, frozen=True):
    """The longest execution of each of some completed epochs, whatever its outcome.

    ``epochs``: the number of these epochs; ``seconds``, ``gpu_seconds``: of their longest
    executions.
    """

    epochs: int = 0
    seconds: float = 0.0
    gpu_seconds: float = 0.0


class Machine(NamedTuple):
    """A GPU model, and how many GPUs of it."""

    gpu: str | None
    gpus: int | None


class GroupUsage(Struct, frozen=True):
    """Usage of a site, GPU model, run or label (``name``; None: unknown), or in total.

    ``targets``: requested targets of its executions. ``machines``: their GPU models and counts,
    ``sites``: their sites; most frequent first. ``epoch_seconds``: of the executions that
    completed an epoch; ``hidden_epochs``: the number of these that were shorter than half of their
    epoch's longest execution, so that they may not have trained it. ``longest``: the completed
    epochs by their longest execution instead. ``wait_seconds``: in the queue before each execution.
    ``transfers``: their number in both directions, for GPU models only of input.
    ``evictions``: executions that ended before their job did, except by a hold; ``holds``: all.
    """

    name: str | None
    targets: tuple[str, ...]
    machines: tuple[Machine, ...]
    sites: tuple[str | None, ...]
    totals: Flat[UsageTotals]
    epoch_seconds: Distribution
    hidden_epochs: int
    longest: LongestExecutions
    wait_seconds: Distribution
    input: TransferStats
    transfers: int
    evictions: int
    holds: int
    causes: tuple[Cause, ...]


class SiteGpuUsage(Struct, frozen=True):
    """Usage of one GPU model and count at one site.

    ``relative_time``: its median epoch relative to that of ``fastest_site``, the fastest site with
    the same model and count; ``slow``: see :data:`SLOW_FACTOR`. Both are None unless both sites
    have enough epochs.
    """

    gpu: str | None
    gpus: int | None
    site: str | None
    totals: Flat[UsageTotals]
    epoch_seconds: Distribution
    hidden_epochs: int
    relative_time: float | None = None
    fastest_site: str | None = None
    slow: bool | None = None


class HostUsage(HostComparison, frozen=True, kw_only=True):
    """Usage of one host, by GPU model and number of GPUs, and its comparison with others.

    ``epoch_seconds``: of its completed epochs without the ``hidden_epochs``. ``gpus_used`` and
    ``cpus_used``: the averages of these epochs, as far as measured.
    """

    host: str | None
    site: str | None
    gpu: str | None
    gpus: int | None
    totals: Flat[UsageTotals]
    epoch_seconds: Distribution
    hidden_epochs: int
    gpus_used: Distribution
    cpus_used: Distribution


class TargetWaits(Struct, frozen=True):
    """Waits without an execution, for the jobs of one target; they are in no median.

    ``waiting``: jobs idle at as-of; ``removed``: jobs removed while idle; with the longest wait
    of each in seconds.
    """

    target: str | None
    waiting: int
    longest: float | None
    removed: int
    longest_removed: float | None


class Usage(Struct, frozen=True, dict=True):
    """Usage of the ensemble in ``window``; groups by descending GPU-seconds.

    ``hidden_epochs``: completed ones whose successful execution was shorter than half of their
    longest one. ``executions``: those from which all totals are computed. ``profiles``: what to
    expect of an epoch at each pool, the pools with the most epochs first. ``nodes_unlogged``: nodes
    that ran but have no execution in the logs, so that their hours are missing. ``resources``: for
    the screen.
    """

    json_omits: ClassVar = frozenset({"as_of", "executions", "resources"})

    as_of: datetime | None
    window: TimeWindow
    total: GroupUsage
    sites: tuple[GroupUsage, ...]
    gpus: tuple[GroupUsage, ...]
    site_gpus: tuple[SiteGpuUsage, ...]
    hosts: tuple[HostUsage, ...]
    causes: tuple[Cause, ...]
    waiting: tuple[TargetWaits, ...]
    hidden_epochs: tuple[Epoch, ...]
    executions: tuple[Execution, ...]
    profiles: tuple[PoolProfile, ...] = ()
    nodes_unlogged: int = 0
    measure: HourUnit = HourUnit.GPU
    item: str = "epoch"
    resources: tuple[ResourceGroup, ...] = ()

    def hidden_epoch(self, execution: Execution) -> Epoch | None:
        """The epoch that an execution completed, where another one trained it."""
        return self._hidden_by_node.get(execution.node_key) if execution.final else None

    @cached_property
    def _hidden_by_node(self) -> Mapping[NodeKey | None, Epoch]:
        return {epoch.node_key: epoch for epoch in self.hidden_epochs}

    @property
    def ranked_sites(self) -> tuple[GroupUsage, ...]:
        """Known sites with enough epochs, by ascending GPU-hours per epoch."""
        by_cost = [
            (cost, site)
            for site in self.sites
            if site.name is not None
            and site.totals.completed_epochs >= COST_MIN_EPOCHS
            and (cost := site.totals.hours_per_epoch) is not None
        ]
        return tuple(site for _, site in sorted(by_cost, key=lambda pair: pair[0]))

    @property
    def wasteful_sites(self) -> tuple[GroupUsage, ...]:
        """Known sites with few epochs that lost many GPU-hours, worst first."""
        ended = self.total.totals.hours.ended
        wasteful = [
            site
            for site in self.sites
            if site.name is not None
            and site.totals.completed_epochs < COST_MIN_EPOCHS
            and site.totals.hours.badput > 0
            # A share of whole seconds, without the noise of hours.
            and round(site.totals.hours.badput / ended, 9) >= WASTE_MIN_SHARE
        ]
        return tuple(sorted(wasteful, key=lambda site: -site.totals.hours.badput))


def site_usage(stats_input: StatsInput) -> Usage:
    """The statistic of the Sites screen: usage up to as-of."""
    ledger = stats_input.ledger
    return replace(usage_in_window(ledger), resources=resource_use(ledger).groups)


def usage_in_window(ledger: Ledger, window: TimeWindow = ALL) -> Usage:
    """The usage within ``window``, without the executions of sub-DAGs' DAGMan jobs."""
    groups = UsageGroups(ledger, window)
    finals = (e for e in groups.executions if e.final)
    return Usage(
        as_of=ledger.as_of,
        window=window,
        total=groups.total(),
        sites=groups.by_site(),
        gpus=groups.by_gpu(),
        site_gpus=_compare(groups.by_site_and_gpu()),
        hosts=groups.by_host(),
        causes=causes_of(groups.executions, ledger.measure, groups.holds),
        waiting=tuple(_target_waits(ledger, window)),
        hidden_epochs=tuple(groups.hidden[e.node_key] for e in finals if groups.is_hidden(e)),
        executions=groups.executions,
        profiles=profiles_in_window(ledger, window),
        nodes_unlogged=ledger.nodes_unlogged,
        measure=ledger.measure,
        item=ledger.item,
    )


# --- distributions ----------------------------------------------------------------------------


def distribution(values: Iterable[float | None]) -> Distribution:
    """The distribution of the values that are not None."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return Distribution()
    low, _, high = quartiles(known)
    return Distribution(len(known), median(known), low, high, known[0], known[-1])


def stall_limit(seconds: Distribution) -> float:
    """Seconds beyond which a transfer counts as stalled, given the successful ones."""
    upper_quartile = seconds.upper_quartile if seconds.n >= STALL_MIN_TRANSFERS else None
    return max(TRANSFER_SECONDS, STALL_FACTOR * (upper_quartile or 0.0))


# --- groups -----------------------------------------------------------------------------------


Groups = Mapping[str | None, Sequence[T]]


class UsageGroups:
    """Groups the entries of a ledger, clipped to ``window``.

    ``executions``: without those of sub-DAGs' DAGMan jobs, which run at no site; ``epochs``: the
    completed ones that count; ``hidden``: those with hidden compute, by node; ``clipped``: the
    clipped ledger.
    """

    def __init__(self, ledger: Ledger, window: TimeWindow = ALL) -> None:
        self.clipped = clip_ledger(ledger, window)
        self.executions = tuple(e for e in self.clipped.executions if not e.at_access_point)
        self.epochs = [e for e in self.clipped.epochs if e.counts and e.state is State.COMPLETED]
        self._epochs_with_executions = [epoch for epoch in self.epochs if epoch.attempts]
        self.transfers = [t for t in self.clipped.transfers if t.counted]
        self.holds = match_holds(self.clipped.jobs, self.executions)
        ran = {job_key(e) for e in ledger.executions if not e.at_access_point}
        self.idle_jobs = [
            job for job in self.clipped.jobs if job_key(job) not in ran and not job.at_access_point
        ]
        self.hidden: dict[NodeKey | None, Epoch] = {
            epoch.node_key: epoch for epoch in self.clipped.epochs if epoch.hidden
        }
        self._starts = group_by(self.executions, job_key)
        finals = [e for e in self.executions if e.final]
        timed: list[Execution | Transfer] = [*finals, *self.transfers]
        # Each is used several times: in total and in every kind of group.
        self._durations = {id(entry): full_seconds(ledger, window, entry) for entry in timed}
        for entry in finals:
            if entry.carried:
                self._durations[id(entry)] = (self.seconds(entry) or 0.0) + entry.carried

    def seconds(self, entry: Execution | Transfer) -> float | None:
        """The full duration of an epoch's training or a transfer, also out of the window."""
        return self._durations[id(entry)]

    def is_hidden(self, final: Execution) -> bool:
        """Whether another execution was at least twice as long as this successful one."""
        return final.node_key in self.hidden

    def total(self) -> GroupUsage:
        return self.usage(
            None, self.executions, self.epochs, self.transfers, self.holds, self.idle_jobs
        )

    def by_site(self) -> tuple[GroupUsage, ...]:
        return self._groups(
            executions=group_by(self.executions, lambda e: e.site),
            epochs=group_by(self._epochs_with_executions, lambda e: e.longest_site),
            transfers=group_by(self.transfers, lambda t: t.site),
            holds=group_by(self.holds, lambda hold: hold[0].site),
        )

    def by_gpu(
        self, model: Callable[[str | None], str | None] = lambda gpu: gpu
    ) -> tuple[GroupUsage, ...]:
        """The usage by GPU, as named by ``model``; transfers have their execution's GPU."""
        inputs = (t for t in self.transfers if t.direction == "input")
        return self._groups(
            executions=group_by(self.executions, lambda e: model(e.gpu)),
            epochs=group_by(self._epochs_with_executions, lambda e: model(e.longest_gpu)),
            transfers=group_by(inputs, lambda t: model(self._gpu_of(t))),
            holds=group_by(self.holds, lambda hold: model(hold[0].gpu)),
        )

    def by_label(self) -> tuple[GroupUsage, ...]:
        """The usage by label of the run, without transfers and holds."""
        return self._groups(
            executions=group_by(self.executions, lambda e: e.label),
            epochs=group_by(self._epochs_with_executions, lambda e: e.label),
        )

    def by_run(self) -> Mapping[str | None, GroupUsage]:
        """The usage by run key, without transfers and holds; None: jobs of no run."""
        executions = group_by(self.executions, lambda e: e.key)
        epochs: Groups[Epoch] = {**group_by(self.epochs, lambda e: e.key)}
        return {
            run: self.usage(run, executions.get(run, ()), epochs.get(run, ()))
            for run in dict.fromkeys((*executions, *epochs))
        }

    def by_site_and_gpu(self) -> list[SiteGpuUsage]:
        """The usage by GPU model, count and site, not compared yet."""
        groups = group_by(self.executions, lambda e: (e.gpu, e.gpus, e.site))
        return [
            SiteGpuUsage(
                *group,
                sum_executions(entries, self.clipped.measure),
                *self._completed_epochs(entries),
            )
            for group, entries in groups.items()
        ]

    def by_host(self) -> tuple[HostUsage, ...]:
        """The usage by host; slow ones first, then those with the most epochs."""
        place_of: Callable[[Execution], HostKey] = attrgetter("host", "site", "gpu", "gpus")
        groups = group_by(self.executions, place_of)
        counted = (e for e in self.executions if e.final and not self.is_hidden(e))
        trained = group_by(counted, place_of)
        comparisons = compare_hosts(
            EpochTime(place, e.key, e.start, self.seconds(e) or 0.0)
            for place, entries in trained.items()
            for e in entries
        )
        usages = []
        for place, entries in groups.items():
            (host, site, gpu, gpus), own = place, trained.get(place, [])
            usages.append(
                HostUsage(
                    host=host,
                    site=site,
                    gpu=gpu,
                    gpus=gpus,
                    totals=sum_executions(entries, self.clipped.measure),
                    epoch_seconds=distribution(map(self.seconds, own)),
                    hidden_epochs=sum(e.final for e in entries) - len(own),
                    gpus_used=distribution(e.usage.gpus for e in own if e.usage),
                    cpus_used=distribution(e.usage.cpus for e in own if e.usage),
                    **asdict(comparisons.get(place, HostComparison())),
                )
            )
        usages.sort(
            key=lambda u: (
                not u.slow,
                -u.totals.completed_epochs,
                -u.totals.hours.total,
                u.host or "",
            )
        )
        return tuple(usages)

    def _groups(
        self,
        executions: Groups[Execution],
        epochs: Groups[Epoch],
        transfers: Groups[Transfer] = MappingProxyType({}),
        holds: Groups[MatchedHold] = MappingProxyType({}),
    ) -> tuple[GroupUsage, ...]:
        names = dict.fromkeys((*executions, *epochs, *transfers, *holds))
        if any(job.bytes_sent or job.bytes_received for job in self.idle_jobs):
            names[None] = None
        usages = [
            self.usage(
                name,
                executions=executions.get(name, ()),
                epochs=epochs.get(name, ()),
                transfers=transfers.get(name, ()),
                holds=holds.get(name, ()),
                idle_jobs=self.idle_jobs if name is None else (),
            )
            for name in names
        ]
        usages.sort(key=lambda u: (-u.totals.hours.total, -u.totals.executions, u.name or ""))
        return tuple(usages)

    def usage(
        self,
        name: str | None,
        executions: Sequence[Execution],
        epochs: Sequence[Epoch],
        transfers: Sequence[Transfer] = (),
        holds: Sequence[MatchedHold] = (),
        idle_jobs: Sequence[Job] = (),
    ) -> GroupUsage:
        """The usage of one group; ``idle_jobs``: jobs without an execution, for their bytes."""
        counted = [e for e in executions if e.counted]
        by_hold = {id(e) for _, e in holds}
        epoch, hidden = self._completed_epochs(executions)
        return GroupUsage(
            name=name,
            targets=tuple(sorted({e.target for e in executions if e.target is not None})),
            machines=_by_frequency(Machine(e.gpu, e.gpus) for e in executions),
            sites=_by_frequency(e.site for e in executions),
            totals=sum_executions(executions, self.clipped.measure),
            epoch_seconds=epoch,
            hidden_epochs=hidden,
            longest=self._longest_of(epochs),
            wait_seconds=distribution(e.wait for e in counted),
            input=self._transfer_stats(transfers, [*executions, *idle_jobs]),
            transfers=len(transfers),
            evictions=sum(e.outcome in EVICTIONS and id(e) not in by_hold for e in counted),
            holds=len(holds),
            causes=causes_of(executions, self.clipped.measure, holds),
        )

    def _completed_epochs(self, executions: Iterable[Execution]) -> tuple[Distribution, int]:
        """Full durations of the completed epochs, and the number of hidden ones."""
        finals = [e for e in executions if e.final]
        return distribution(map(self.seconds, finals)), sum(map(self.is_hidden, finals))

    def _longest_of(self, epochs: Sequence[Epoch]) -> LongestExecutions:
        longest = [epoch.longest for epoch in epochs if epoch.longest is not None]
        weight = self.clipped.measure.weight
        return LongestExecutions(
            epochs=len(epochs),
            seconds=sum(epoch.longest_seconds or 0.0 for epoch in epochs),
            gpu_seconds=sum(each.trained * (weight(each) or 0) for each in longest),
        )

    def _transfer_stats(
        self, transfers: Iterable[Transfer], with_bytes: Sequence[Execution | Job]
    ) -> TransferStats:
        """``with_bytes``: executions, and jobs without one, whose bytes count."""
        inputs = [t for t in transfers if t.direction == "input"]
        ok = distribution(self.seconds(t) for t in inputs if t.outcome == "ok")
        limit = stall_limit(ok)
        failed = [t for t in inputs if t.outcome != "ok"]
        stalls = [s for t in failed if (s := self.seconds(t)) is not None and s > limit]
        outcomes = [t.outcome for t in failed]
        return TransferStats(
            ok=ok,
            aborted=outcomes.count("aborted"),
            unfinished=outcomes.count("unfinished"),
            in_flight=outcomes.count("in-flight"),
            stalls=len(stalls),
            stalled_seconds=sum(stalls),
            limit=limit,
            sent=sum(each.bytes_sent or 0 for each in with_bytes),
            received=sum(each.bytes_received or 0 for each in with_bytes),
        )

    def _gpu_of(self, transfer: Transfer) -> str | None:
        """The GPU of the execution that followed an input transfer."""
        moment = transfer.end if transfer.start is None else transfer.start
        if transfer.outcome != "ok" or moment is None:
            return None
        later = (e for e in self._starts.get(job_key(transfer), ()) if e.start >= moment)
        execution = next(later, None)
        return execution.gpu if execution is not None else None


def _by_frequency(values: Iterable[K]) -> tuple[K, ...]:
    """The distinct values, the most frequent first."""
    counts = Counter(values)
    return tuple(sorted(counts, key=lambda value: (-counts[value], str(value))))


# --- comparison of sites with the same GPU ----------------------------------------------------


def _compare(site_gpus: Iterable[SiteGpuUsage]) -> tuple[SiteGpuUsage, ...]:
    """The usages with their comparison, GPU models by descending GPU-seconds."""
    models = sorted(
        group_by(site_gpus, lambda usage: (usage.gpu, usage.gpus)).values(),
        key=lambda group: -sum(usage.totals.hours.total for usage in group),
    )
    compared = []
    for group in models:
        comparable = [usage for usage in group if _is_comparable(usage)]
        fastest = min(comparable, key=lambda usage: usage.epoch_seconds.median or 0.0, default=None)
        group.sort(key=lambda usage: (usage.epoch_seconds.median or inf, usage.site or ""))
        compared += [
            _compare_with(fastest, usage)
            if fastest is not None and len(comparable) > 1 and _is_comparable(usage)
            else usage
            for usage in group
        ]
    return tuple(compared)


def _is_comparable(usage: SiteGpuUsage) -> bool:
    known = usage.gpu is not None and usage.site is not None
    return known and usage.epoch_seconds.n >= SLOW_MIN_EPOCHS and bool(usage.epoch_seconds.median)


def _compare_with(fastest: SiteGpuUsage, usage: SiteGpuUsage) -> SiteGpuUsage:
    relative = (usage.epoch_seconds.median or 0.0) / (fastest.epoch_seconds.median or 1.0)
    beyond = (usage.epoch_seconds.lower_quartile or 0.0) > (
        fastest.epoch_seconds.upper_quartile or 0.0
    )
    slow = relative > SLOW_FACTOR and beyond
    return replace(usage, relative_time=relative, fastest_site=fastest.site, slow=slow)


# --- waits without an execution ---------------------------------------------------------------


def _target_waits(ledger: Ledger, window: TimeWindow) -> Iterable[TargetWaits]:
    """Per target, the jobs that wait at as-of and those removed while waiting.

    The former count if as-of is in the window, the latter if the removal is.
    """
    clipper = WindowClipper(ledger, window)
    waits: dict[str | None, list[float]] = {}
    removed: dict[str | None, list[float]] = {}
    for job in ledger.jobs:
        if job.at_access_point or not job.states:
            continue
        since, state = job.states[-1]
        if state is State.IDLE and ledger.as_of and clipper.contains(ledger.as_of):
            waits.setdefault(job.target, []).append(ledger.seconds_between(since, ledger.as_of))
        elif state is State.REMOVED and len(job.states) > 1 and clipper.contains(since):
            idle_since, before = job.states[-2]
            waited = ledger.seconds_between(idle_since, since)
            # An eviction directly followed by the removal is not a wait.
            if before is State.IDLE and waited > SAME_MOMENT.total_seconds():
                removed.setdefault(job.target, []).append(waited)
    for target in sorted({*waits, *removed}, key=lambda name: (name is None, name or "")):
        yield TargetWaits(
            target=target,
            waiting=len(waits.get(target, ())),
            longest=max(waits.get(target, ()), default=None),
            removed=len(removed.get(target, ())),
            longest_removed=max(removed.get(target, ()), default=None),
        )


# --- executions behind a total ----------------------------------------------------------------


class UsageFilter(Struct, frozen=True):
    """Selects the executions behind a total.

    ``site``, ``host``, ``gpu`` (as logged) and ``gpus`` (count) are tuples of one, since None is a
    valid value; ``cause``: the key of a cause; ``ended``: how they ended; ``pool``: in which they
    ran. An attribute that is None matches everything.
    """

    site: tuple[str | None] | None = None
    host: tuple[str | None] | None = None
    gpu: tuple[str | None] | None = None
    gpus: tuple[int | None] | None = None
    cause: str | None = None
    ended: Ended | None = None
    pool: ResourcePool | None = None

    def matches(self, entry: Execution, usage: Usage) -> bool:
        """Whether the filter matches this execution of ``usage``."""
        hidden = usage.hidden_epoch(entry) is not None
        return (
            (self.site is None or entry.site == self.site[0])
            and (self.host is None or entry.host == self.host[0])
            and (self.gpu is None or entry.gpu == self.gpu[0])
            and (self.gpus is None or entry.gpus == self.gpus[0])
            and (
                self.cause is None
                or (entry.kind == "badput" and cause_of_execution(entry) == self.cause)
            )
            and (self.ended is None or ended_as(entry, hidden) is self.ended)
            and (self.pool is None or pool_of(entry) == self.pool)
        )


def select_executions(usage: Usage, usage_filter: UsageFilter) -> tuple[Execution, ...]:
    """The executions that match the filter, in order of their start."""
    matching = [entry for entry in usage.executions if usage_filter.matches(entry, usage)]
    return tuple(sorted(matching, key=lambda entry: (entry.start, entry.job)))
