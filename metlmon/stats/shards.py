"""Bags: many equal nodes that need nothing of each other (the shards of a large inference), how
fast they go, which of them lag, and when the last one will be done.

A bag is a group of nodes of one DAG, of no run, that are described by the same submit file, whose
names differ by one number only, and none of which comes after another. That follows from the DAG
files alone.

A bag is summed by its shards, not by their executions (:mod:`metlmon.stats.shard_times`):

- a shard's time: what completed it, in seconds. Median, quarters, 90th percentile.
- rate: shards completed per hour, since its first submission; and of late, within the window. A
  shard is completed when its node is: after its POST script.
- straggler: it runs, and has for longer than ``STRAGGLES`` times the 90th percentile.
- how long the rest takes is played out (:mod:`metlmon.stats.simulation`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from math import sqrt
from operator import attrgetter
from typing import Final, TypeAlias

from metlmon.dagman import NodeKind
from metlmon.frozen import frozen
from metlmon.model.job_events import JobId, NodeKey
from metlmon.model.run import LONGEST_NAME
from metlmon.model.states import DONE, DagState, State
from metlmon.snapshot.dag_description import DagDescription, DescribedNode, Nodes
from metlmon.snapshot.ledger import HOUR, ExecutionEntry, JobEntry, Ledger
from metlmon.snapshot.types import GpuHours
from metlmon.stats.epoch_times import time_after_as_of
from metlmon.stats.estimates import HIGH, LOW, TRIALS, Interval
from metlmon.stats.kaplan_meier import KaplanMeier, Lifetime
from metlmon.stats.quantiles import quarters
from metlmon.stats.shard_times import RUNNING, Moments, Work, work_on
from metlmon.stats.simulation import RemainingShards, simulate_makespan
from metlmon.stats.totals import grouped
from metlmon.stats.worker import StatsInput

FEWEST: Final = 4
"""Nodes that are a bag: three alike are an ordinary small workflow."""

STRAGGLES: Final = 1.5
"""Times the 90th percentile of what is done: of equal shards on equal machines hardly one lasts
so long, of machines that differ by half none does for that reason."""

ENOUGH: Final = 5
"""Shards done before any is called a straggler."""

WINDOW_SHARDS: Final = 4.0
WINDOW_LEAST: Final = 3600.0
"""How far back "of late" goes, seconds: so many median shards, an hour at least. Shorter than a few
shards, and the rate jumps with each that ends."""

PARTS: Final = 4
"""So many parts of the window tell how much the number of machines changes."""

SWING_LEAST: Final = 0.1
SWING_MOST: Final = 0.7
"""How far the machines to come may be from those of late (one sigma, as a logarithm)."""

FAILED: Final = frozenset({State.FAILED, State.REMOVED})


@frozen
class Shards:
    """The nodes of a bag. ``dag``: the file of the top-level DAG; ``in_dag``: of the DAG that holds
    them, which may be a sub-DAG of it; ``stem``: what their names have in common, ``*`` for the
    number; ``submit``: their description; ``nodes`` in order of the number."""

    dag: str
    in_dag: str
    stem: str
    submit: str
    nodes: tuple[DescribedNode, ...]


@frozen
class ShardTimes:
    """What the shards took, seconds."""

    least: float
    lower: float
    median: float
    upper: float
    ninetieth: float
    most: float
    shards: int


@frozen
class Straggler:
    """A shard that lasts for too long: for ``seconds`` so far, ``times`` the median."""

    node: str
    job: JobId
    site: str | None
    host: str | None
    seconds: float
    times: float


@frozen
class Shard:
    """One node of a bag. ``number``: as in its name; ``seconds``: what completed it, or what it has
    come to so far, None while no machine is at it; ``job`` the newest, None before the first.
    ``attempts``: its executions."""

    node: str
    number: int
    state: State
    job: JobId | None
    site: str | None
    seconds: float | None
    since: datetime | None
    attempts: int
    straggles: bool


@frozen
class ShardRate:
    """``shards`` were completed within ``seconds``."""

    shards: int
    seconds: float

    @property
    def per_hour(self) -> float:
        return self.shards * HOUR / self.seconds


@frozen
class Bag:
    """One bag at the picture's moment. ``states``: how many are in which, those that are not there
    left out. ``overall``: since ``began``, the first submission, to the last completion if all is
    over; ``lately``: of the window, None once it is over. ``machines``: shards at work at a time of
    late. Of ``span``, ``ended`` and ``why_not`` one is there, as in :mod:`metlmon.stats.estimates`;
    ``without``: shards that the span leaves out because they failed or are held."""

    dag: str
    in_dag: str
    stem: str
    submit: str
    total: int
    states: Mapping[State, int]
    shards: tuple[Shard, ...]
    began: datetime | None
    overall: ShardRate | None
    lately: ShardRate | None
    times: ShardTimes | None
    stragglers: tuple[Straggler, ...]
    machines: float
    span: Interval | None
    at: datetime | None
    ended: datetime | None
    why_not: str | None
    without: int
    gpu_hours: GpuHours
    executions: int
    lost: int

    @property
    def key(self) -> str:
        return f"{self.in_dag}:{self.stem}:{self.submit}"

    def counted(self, *kinds: State) -> int:
        """How many are in one of these states."""
        return sum(self.states.get(state, 0) for state in kinds)

    @property
    def done(self) -> int:
        return self.counted(State.COMPLETED)

    @property
    def over(self) -> bool:
        """Nothing of it is left to be done: what is not completed was skipped."""
        return self.counted(*DONE) == self.total

    @property
    def running(self) -> int:
        return self.counted(*RUNNING)

    @property
    def failed(self) -> int:
        return self.counted(*FAILED)


# --- which nodes are a bag ----------------------------------------------------------------------

_NUMBER: Final = re.compile(r"\d+")

MOST_DIGITS: Final = 18
"""Of a shard's number: more is an identifier."""

Family: TypeAlias = tuple[str, str, str, str]
"""DAG, description, and what stands before and behind the number."""


@lru_cache(4)
def bags_in(nodes: Nodes) -> tuple[Shards, ...]:
    """The bags among these nodes, in the order of their first nodes."""
    families: dict[Family, list[tuple[int, DescribedNode]]] = {}
    could: list[tuple[DescribedNode, list[tuple[Family, int]]]] = []
    for each in nodes.every:
        if _may_be_one(each):
            ways = list(_ways(each))
            could.append((each, ways))
            for family, number in ways:
                families.setdefault(family, []).append((number, each))
    # A name with two numbers belongs where it has most company; of equal ones the last number
    # counts things, the first ones say what kind they are of.
    chosen: dict[Family, list[tuple[int, DescribedNode]]] = {}
    for each, ways in could:
        if ways:
            family, number = max(reversed(ways), key=lambda way: len(families[way[0]]))
            chosen.setdefault(family, []).append((number, each))
    found = []
    graph = {each.key: each for each in nodes.every}
    for (in_dag, submit, before, behind), group in chosen.items():
        if len(group) >= FEWEST and _independent([each for _, each in group], graph):
            group.sort(key=lambda pair: pair[0])
            members = tuple(each for _, each in group)
            found.append(Shards(members[0].dag, in_dag, f"{before}*{behind}", submit, members))
    return tuple(found)


def _may_be_one(each: DescribedNode) -> bool:
    node = each.node
    return (
        each.run is None
        and node.kind is NodeKind.JOB
        and not node.noop
        and node.submit is not None
        and len(node.name) <= LONGEST_NAME
    )


def _ways(each: DescribedNode) -> Iterable[tuple[Family, int]]:
    """Each number in the name, taken as the one that counts."""
    name, submit = each.node.name, each.node.submit or ""
    for match in _NUMBER.finditer(name):
        if len(match[0]) <= MOST_DIGITS:
            family = each.key[0], submit, name[: match.start()], name[match.end() :]
            yield family, int(match[0])


def _independent(members: Sequence[DescribedNode], graph: Mapping[NodeKey, DescribedNode]) -> bool:
    """Does none of them come after another, also not by way of others?"""
    own = {each.key for each in members}
    seen: set[NodeKey] = set()
    to_go = [(each.key[0], child) for each in members for child in each.node.children]
    while to_go:
        key = to_go.pop()
        if key in own:
            return False
        if key not in seen and key in graph:
            seen.add(key)
            to_go += [(key[0], child) for child in graph[key].node.children]
    return True


# --- how it goes --------------------------------------------------------------------------------


def bags(basis: StatsInput) -> tuple[Bag, ...]:
    """All bags of the ensemble."""
    told = basis.described()
    found = bags_in(told.nodes)
    if not found:
        return ()
    wanted = {each.key for shards in found for each in shards.nodes}
    executions = grouped((e for e in basis.ledger.executions if e.key in wanted), attrgetter("key"))
    jobs = grouped((job for job in basis.ledger.jobs if job.key in wanted), attrgetter("key"))
    dags = {dag.file: dag.state for dag in basis.status.dags}
    return tuple(
        _BagView(basis.ledger, told, shards, executions, jobs, dags).bag() for shards in found
    )


class _BagView:
    """One bag is looked at."""

    def __init__(
        self,
        ledger: Ledger,
        told: DagDescription,
        shards: Shards,
        executions: Mapping[NodeKey, Sequence[ExecutionEntry]],
        jobs: Mapping[NodeKey, Sequence[JobEntry]],
        dags: Mapping[str, DagState],
    ) -> None:
        self.ledger, self.shards = ledger, shards
        keys = [each.key for each in shards.nodes]
        self.state = {key: told.states.get(key, State.WAITING) for key in keys}
        self.dag = dags.get(shards.dag, DagState.UNKNOWN)
        self.executions = [entry for key in keys for entry in executions.get(key, ())]
        mine = [job for key in keys for job in jobs.get(key, ())]
        submitted = [job.submitted for job in mine if job.submitted is not None]
        self.moments = Moments(ledger, [*submitted, *(e.start for e in self.executions)])
        self.now = self.moments.now
        self.began = min(submitted, key=self.moments.at, default=None)
        self.begun = self.moments.at(self.began) if self.began is not None else 0.0
        self.work = {
            each.key: work_on(
                self.state[each.key],
                each.node.post is not None,
                jobs.get(each.key, ()),
                executions.get(each.key, ()),
                self.moments,
            )
            for each in shards.nodes
        }
        ends = [
            when
            for key, when in told.completed.items()
            if self.state.get(key) is State.COMPLETED and (self.work[key].newest is not None)
        ]
        self.ends = sorted(ends, key=self.moments.at)
        took = [self.work[key].took for key in keys if self.state[key] is State.COMPLETED]
        self.times = _spread([seconds for seconds in took if seconds is not None])
        self.left = [key for key in keys if self.state[key] not in DONE]

    def bag(self) -> Bag:
        counts: dict[State, int] = {}
        for state in self.state.values():
            counts[state] = counts.get(state, 0) + 1
        stragglers = self._stragglers()
        lagging = {each.node for each in stragglers}
        over = not self.left
        machines, swing = self._machines()
        stuck = sum(counts.get(state, 0) for state in (*FAILED, State.HELD))
        span = None if over else self._span(machines, swing)
        why = None if over or span is not None else self._why_none()
        hours = {"good": 0.0, "bad": 0.0, "in_flight": 0.0}
        for entry in self.executions:
            hours[entry.kind] += entry.gpu_seconds or 0.0
        shards = self.shards
        return Bag(
            shards.dag,
            shards.in_dag,
            shards.stem,
            shards.submit,
            len(shards.nodes),
            {state: counts[state] for state in State if state in counts},
            tuple(self._shard(each, lagging) for each in shards.nodes),
            self.began,
            self._overall(over),
            None if over else self._lately(),
            self.times,
            stragglers,
            machines,
            span,
            time_after_as_of(self.ledger, span.middle) if span is not None else None,
            self.ends[-1] if over and self.ends else None,
            why,
            stuck if span is not None else 0,
            GpuHours(hours["good"] / HOUR, hours["bad"] / HOUR, hours["in_flight"] / HOUR),
            len(self.executions),
            sum(entry.kind == "bad" for entry in self.executions),
        )

    def _shard(self, each: DescribedNode, lagging: set[str]) -> Shard:
        name, work = each.key[1], self.work[each.key]
        job, shown = work.newest, work.shown
        before, _, behind = self.shards.stem.partition("*")
        return Shard(
            name,
            int(name[len(before) : len(name) - len(behind)]),
            self.state[each.key],
            job.job if job is not None else None,
            shown.site if shown is not None else None,
            work.so_far if work.under_way else work.took,
            job.states[-1][0] if job is not None and job.states else None,
            work.attempts,
            name in lagging,
        )

    # --- rates --------------------------------------------------------------------------

    def _overall(self, over: bool) -> ShardRate | None:
        if self.began is None:
            return None
        until = self.moments.at(self.ends[-1]) if over and self.ends else self.now
        return ShardRate(len(self.ends), until - self.begun) if until > self.begun else None

    def _window(self) -> float:
        """How many seconds until now are "of late"."""
        wanted = WINDOW_SHARDS * self.times.median if self.times is not None else 0.0
        return min(self.now - self.begun, max(WINDOW_LEAST, wanted))

    def _lately(self) -> ShardRate | None:
        window = self._window()
        if self.began is None or window <= 0:
            return None
        recent = sum(self.now - window < self.moments.at(end) <= self.now for end in self.ends)
        return ShardRate(recent, window)

    def _machines(self) -> tuple[float, float]:
        """How many shards were at work at a time of late, and how much that changes (one sigma,
        as a logarithm)."""
        stretches = [each for work in self.work.values() for each in work.at_work]
        running = float(sum(work.under_way for work in self.work.values()))
        # Before the first machine came nothing says how many there will be.
        first = min((each.begin for each in stretches), default=self.now)
        begin = max(self.now - self._window(), first)
        whole = self.now - begin
        if whole <= 0:
            return running, SWING_MOST
        parts = []
        for part in range(PARTS):
            start = begin + whole * part / PARTS
            stop = begin + whole * (part + 1) / PARTS
            parts.append(sum(max(0.0, min(s.end, stop) - max(s.begin, start)) for s in stretches))
        means = [seconds * PARTS / whole for seconds in parts]
        mean = sum(means) / PARTS
        if mean <= 0:
            return running, SWING_MOST
        deviation = sqrt(sum((each - mean) ** 2 for each in means) / PARTS)
        return mean, min(SWING_MOST, max(SWING_LEAST, deviation / mean))

    # --- stragglers ---------------------------------------------------------------------

    def _stragglers(self) -> tuple[Straggler, ...]:
        times = self.times
        if times is None or times.shards < ENOUGH or times.median <= 0:
            return ()
        limit = STRAGGLES * times.ninetieth
        found = []
        for (_, name), work in self.work.items():
            at = work.shown
            if at is not None and work.under_way and work.so_far > limit:
                so_far = work.so_far
                found.append(
                    Straggler(name, at.job, at.site, at.host, so_far, so_far / times.median)
                )
        return tuple(sorted(found, key=lambda each: -each.seconds))

    # --- what is left -------------------------------------------------------------------

    def _to_do(self) -> list[Work]:
        """The work on what machines have yet to be at, now or again."""
        off = (*FAILED, State.HELD, State.POST)
        return [self.work[key] for key in self.left if self.state[key] not in off]

    def _why_none(self) -> str:
        states = {self.state[key] for key in self.left}
        if states <= {*FAILED, State.HELD}:
            return "no end in sight: all that is left failed or is held"
        if self.dag is DagState.NOT_SUBMITTED:
            return "not before its DAG is submitted"
        if self.dag in (DagState.HELD, DagState.RESTARTING):
            return f"not while DAGMan is {'held' if self.dag is DagState.HELD else 'not running'}"
        if self.dag in (DagState.DONE, DagState.FAILED, DagState.REMOVED):
            return f"not while its DAG is {self.dag.value}"
        if states <= {*FAILED, State.HELD, State.POST}:
            return "unknown: only POST scripts are left to run"
        if all(work.took is None for work in self.work.values()):
            return "unknown: no shard has ended yet"
        return "unknown: nothing of it runs"

    def _span(self, machines: float, swing: float) -> Interval | None:
        to_do = self._to_do()
        if not to_do or self.dag not in (DagState.RUNNING, DagState.UNKNOWN):
            return None
        running = [work.so_far for work in to_do if work.under_way]
        queued = [work.so_far for work in to_do if not work.under_way]
        curve = KaplanMeier.of(self._samples())
        at_once = min(float(len(to_do)), max(machines, float(len(running))))
        if curve is None or at_once < 0.5:
            return None
        broken = sum(len(work.broken) for work in self.work.values())
        lost = sum(work.lost for work in self.work.values())
        rest = RemainingShards(running, queued, at_once, swing, broken, lost)
        ordered = sorted(simulate_makespan(curve, self._slow(curve), rest))
        low, middle, high = (
            ordered[min(TRIALS - 1, int(share * TRIALS))] for share in (LOW, 0.5, HIGH)
        )
        return Interval(low, middle, high, curve.events, f"{curve.events} shards of its own")

    def _slow(self, curve: KaplanMeier) -> float:
        """From so many seconds on a shard is a straggler, or was one."""
        took = sorted(work.took for work in self.work.values() if work.took is not None)
        return STRAGGLES * percentile(took, 0.9) if took else curve.mean

    def _samples(self) -> Iterator[Lifetime]:
        """What each shard took; what it takes still, or came to when it was broken off, is "at
        least so long"."""
        for work in self.work.values():
            if work.took is not None:
                yield Lifetime(work.took)
            elif work.so_far:
                yield Lifetime(work.so_far, False)
            for seconds in work.broken:
                yield Lifetime(seconds, False)


def _spread(seconds: Sequence[float]) -> ShardTimes | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    lower, middle, upper = quarters(ordered) if len(ordered) > 1 else ordered * 3
    return ShardTimes(
        ordered[0], lower, middle, upper, percentile(ordered, 0.9), ordered[-1], len(ordered)
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """So large is what this share (0–1) of the values does not exceed; between two values that
    lie around it in proportion, as the quarters are (the inclusive method)."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
