"""The progress of bags: shards, rates, remaining time.

A bag is a group of equal, independent nodes (the shards of a large inference): nodes of one DAG, of
no run, with the same submit file, whose names differ in one number only, and none of which depends
on another. The DAG files alone determine it.

Statistics of a bag are per shard, not per execution:

- shard time: the duration of a completed shard in seconds; median, quartiles, 90th percentile.
- rate: shards completed per hour, since the first submission and within a recent window. A shard
  is completed when its node is, after its POST script.
- straggler: a running shard older than ``STRAGGLER_FACTOR`` times the 90th percentile.
- remaining time: a Monte Carlo simulation (:mod:`metlmon.stats.simulation`).

A shard can take several executions. One that ended with a code for "checkpointed, run me again"
continues where it stopped: the duration of the shard is the sum of its good executions since its
start. The processes of one job (``queue 3``) run in parallel: the duration is the time from the
first start to the last end. Interrupted executions do not count, and neither do executions without
a logged end of a job that a later job of the node has replaced.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from math import sqrt
from operator import attrgetter
from typing import ClassVar, Final, TypeAlias

from msgspec import Struct

from metlmon.dagman.records import NodeKind
from metlmon.live.feed import StatsInput
from metlmon.model.job_events import JobId, NodeKey
from metlmon.model.run import MAX_NAME_LENGTH
from metlmon.model.states import ACTIVE, DONE, FAILED_JOB, DagState, Outcome, State
from metlmon.snapshot.records import (
    HOUR,
    DagDescription,
    DescribedNode,
    Execution,
    Job,
    Ledger,
    Nodes,
    job_key,
    submission_key,
)
from metlmon.stats.estimates import DAG_STOP_REASONS, Interval, merge_intervals, time_after_as_of
from metlmon.stats.simulation import KaplanMeier, Lifetime, RemainingShards, simulate_makespan
from metlmon.stats.timeline import TimeAxis
from metlmon.stats.totals import UsageTotals, group_by, percentile, quartiles, sum_executions
from metlmon.text.record_json import Flat

# --- bags --------------------------------------------------------------------------------------


MIN_NODES: Final = 4
"""Minimum nodes of a bag: three similar nodes are an ordinary small workflow."""


class BagNodes(Struct, frozen=True):
    """The nodes of a bag.

    ``dag``: the file of the top-level DAG; ``in_dag``: that of the DAG with the nodes, which may
    be a sub-DAG; ``name_pattern``: the common part of their names, with ``*`` for the number;
    ``submit``: their submit description; ``nodes``: in order of the number.
    """

    dag: str
    in_dag: str
    name_pattern: str
    submit: str
    nodes: tuple[DescribedNode, ...]


_NUMBER: Final = re.compile(r"\d+")

MAX_DIGITS: Final = 18
"""Maximum digits of a shard's number: longer ones are identifiers."""

Family: TypeAlias = tuple[str, str, str, str]
"""DAG, submit description, and the parts of the name before and after the number."""


@lru_cache(4)
def find_bags(nodes: Nodes) -> tuple[BagNodes, ...]:
    """Find the bags among the nodes, in the order of their first nodes."""
    members = [(node, list(_family_choices(node))) for node in nodes.all if _is_candidate(node)]
    sizes = Counter(family for _, choices in members for family, _ in choices)
    # A name with several numbers belongs to its largest family; on a tie the last number is the
    # index, the others denote a kind.
    numbered = [
        (*max(reversed(choices), key=lambda choice: sizes[choice[0]]), node)
        for node, choices in members
        if choices
    ]
    graph = {node.node_key: node for node in nodes.all}
    bags = []
    for (in_dag, submit, prefix, suffix), group in group_by(numbered, lambda m: m[0]).items():
        shards = tuple(node for _, _, node in sorted(group, key=lambda member: member[1]))
        if len(shards) >= MIN_NODES and _independent(shards, graph):
            bags.append(BagNodes(shards[0].dag, in_dag, f"{prefix}*{suffix}", submit, shards))
    return tuple(bags)


def _is_candidate(node: DescribedNode) -> bool:
    dag_node = node.node
    return (
        node.key is None
        and dag_node.kind is NodeKind.JOB
        and not dag_node.noop
        and dag_node.submit is not None
        and len(dag_node.name) <= MAX_NAME_LENGTH
    )


def _family_choices(node: DescribedNode) -> Iterable[tuple[Family, int]]:
    """The family and number for each possible choice of the index in the name."""
    name, submit = node.node.name, node.node.submit or ""
    for match in _NUMBER.finditer(name):
        if len(match[0]) <= MAX_DIGITS:
            family = node.node_key[0], submit, name[: match.start()], name[match.end() :]
            yield family, int(match[0])


def _independent(members: Sequence[DescribedNode], graph: Mapping[NodeKey, DescribedNode]) -> bool:
    """Whether no member depends on another, directly or indirectly."""
    own_keys = {node.node_key for node in members}
    seen: set[NodeKey] = set()
    pending = [(node.node_key[0], child) for node in members for child in node.node.children]
    while pending:
        key = pending.pop()
        if key in own_keys:
            return False
        if key not in seen and key in graph:
            seen.add(key)
            pending += [(key[0], child) for child in graph[key].node.children]
    return True


# --- shards ------------------------------------------------------------------------------------


STRAGGLER_FACTOR: Final = 1.5
"""Multiple of the 90th percentile beyond which a shard is a straggler. Equal shards on equal
machines hardly ever exceed it; machines that differ by 50 % do not suffice either."""

MIN_COMPLETED: Final = 5
"""Minimum completed shards for the detection of stragglers."""

WINDOW_SHARDS: Final = 4.0
WINDOW_MIN_SECONDS: Final = 3600.0
"""The recent window: this many median shard times, but at least so many seconds. In a shorter one
the rate jumps with each completion."""

WINDOW_PARTS: Final = 4
"""Number of parts of the window, for the variation of the number of machines."""

MIN_LOG_SIGMA: Final = 0.1
MAX_LOG_SIGMA: Final = 0.7
"""Limits of the log-scale standard deviation of the future number of machines."""

RUNNING: Final = frozenset(
    {
        State.STARTING,
        State.RUNNING,
        State.TRANSFERRING_OUTPUT,
        State.SUSPENDED,
        State.DISCONNECTED,
    }
)
"""States of a job that occupies a machine."""


class ShardTimes(Struct, frozen=True):
    """The distribution of the durations of completed shards, in seconds."""

    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    percentile_90: float
    maximum: float
    shards: int


class Shard(Struct, frozen=True):
    """One node of a bag.

    ``number``: the one in its name; ``seconds``: its duration, or its progress so far, None if no
    machine works on it; ``job``: its newest job, None before the first; ``attempts``: the number
    of its executions. ``times_median``: its seconds relative to the median, if it is in progress
    for too long.
    """

    json_properties: ClassVar = ("is_straggler",)

    node: str
    number: int
    state: State
    job: JobId | None
    site: str | None
    host: str | None
    seconds: float | None
    since: datetime | None
    attempts: int
    times_median: float | None

    @property
    def is_straggler(self) -> bool:
        """Whether it has been in progress for too long."""
        return self.times_median is not None


class ShardRate(Struct, frozen=True):
    """The number of shards completed within ``seconds``."""

    json_properties: ClassVar = ("per_hour",)

    shards: int
    seconds: float

    @property
    def per_hour(self) -> float:
        return self.shards * HOUR / self.seconds


class Bag(Struct, frozen=True):
    """The state of one bag as of the snapshot.

    ``states``: numbers of shards, without states that do not occur. ``overall_rate``: the rate
    since ``first_submitted``, until the last completion if all are done; ``recent_rate``: the
    recent rate, None once all are done. ``machines``: recent mean of shards in progress. One of
    ``remaining``, ``completed_at`` and ``missing_reason`` is set, as in
    :mod:`metlmon.stats.estimates`; ``excluded``: failed and held shards, which the span does not
    include. ``totals``: of the executions of its shards.
    """

    json_properties: ClassVar = (
        "done",
        "running",
        "failed",
        "stragglers",
    )

    dag: str
    in_dag: str
    name_pattern: str
    submit: str
    total: int
    states: Mapping[State, int]
    shards: tuple[Shard, ...]
    first_submitted: datetime | None
    overall_rate: ShardRate | None
    recent_rate: ShardRate | None
    durations: ShardTimes | None
    machines: float
    remaining: Interval | None
    expected_end: datetime | None
    completed_at: datetime | None
    missing_reason: str | None
    excluded: int
    totals: Flat[UsageTotals]

    @property
    def stragglers(self) -> tuple[Shard, ...]:
        """The shards in progress for too long, the longest first."""
        stragglers = [shard for shard in self.shards if shard.is_straggler]
        return tuple(sorted(stragglers, key=lambda shard: -(shard.seconds or 0.0)))

    @property
    def key(self) -> str:
        return f"{self.in_dag}:{self.name_pattern}:{self.submit}"

    def count_in(self, *kinds: State) -> int:
        """The number of shards in one of these states."""
        return sum(self.states.get(state, 0) for state in kinds)

    @property
    def done(self) -> int:
        return self.count_in(State.COMPLETED)

    @property
    def is_complete(self) -> bool:
        """Whether all shards are completed or skipped."""
        return self.count_in(*DONE) == self.total

    @property
    def running(self) -> int:
        return self.count_in(*RUNNING)

    @property
    def failed(self) -> int:
        return self.count_in(*FAILED_JOB)


# --- the work on a shard ------------------------------------------------------------------------

WorkSpan: TypeAlias = tuple[float, float]
"""Begin and end of an interval of work on a shard, in seconds since the bag's start."""


class ShardWork(Struct, frozen=True):
    """The work on one shard, in seconds.

    ``seconds``: the duration of a completed shard; None if it is not completed, or not logged.
    ``progress``: the work that counts of an uncompleted one (checkpointed, and in progress).
    ``in_progress``: a machine works on it. ``lost``: work that does not count.
    ``interrupted_progress``: the progress of each interrupted attempt. ``spans``: when machines
    worked on it, in order. ``representative``: the execution that completed it or is in progress,
    else the last one. ``attempts``: the number of executions; ``newest``: its newest job, None
    before the first.
    """

    seconds: float | None = None
    progress: float = 0.0
    in_progress: bool = False
    lost: float = 0.0
    interrupted_progress: tuple[float, ...] = ()
    spans: tuple[WorkSpan, ...] = ()
    representative: Execution | None = None
    attempts: int = 0
    newest: Job | None = None


def shard_work(
    state: State,
    has_post_script: bool,
    jobs: Sequence[Job],
    axis: TimeAxis,
) -> ShardWork:
    """The work on a shard.

    ``state``: that of its node; ``has_post_script``: a POST script can make the node succeed
    whatever its job returned; ``jobs``: the node's, in order of submission.
    """
    if not jobs:
        return ShardWork()
    executions = [entry for job in jobs for entry in job.executions]
    newest = submission_key(jobs[-1])

    def is_newest(entry: Job | Execution) -> bool:
        return submission_key(entry) == newest

    parallel = sum(map(is_newest, jobs)) > 1
    complete = state in (State.COMPLETED, State.POST)
    # The log may lack the end of an older job: how long it ran is not known.
    ended = [e for e in executions if e.end is not None and (is_newest(e) or not e.uncertain)]
    in_flight = [e for e in executions if e.end is None and is_newest(e)]
    known = [*ended, *(in_flight if state in ACTIVE else ())]
    if not parallel:
        counted = _checkpoint_chain(known, complete, has_post_script)
        if counted and not complete and counted[-1].end and not _is_checkpoint(counted[-1]):
            counted = []
    elif complete or state in ACTIVE:
        processes = group_by(filter(is_newest, known), job_key)
        chains = (_checkpoint_chain(p, complete, has_post_script) for p in processes.values())
        counted = [e for chain in chains for e in chain]
    else:
        counted = []
    own_spans = merge_intervals(_span_of(e, axis) for e in counted)
    if parallel and own_spans:
        own_spans = [(own_spans[0][0], own_spans[-1][1])]
    spans = merge_intervals([*own_spans, *(_span_of(e, axis, lost=True) for e in known)])
    done = complete and bool(counted)
    in_progress = state in RUNNING and any(e.end is None for e in counted)
    seconds = _total_seconds(own_spans) if parallel else sum(e.stored or e.seconds for e in counted)
    candidates = counted if done or in_progress else known
    # Of parallel processes, only a whole job is an attempt.
    attempts = [e for e in known if not (parallel and is_newest(e))]
    return ShardWork(
        seconds=seconds if done else None,
        progress=0.0 if done else seconds,
        in_progress=in_progress,
        lost=_total_seconds(spans) - _total_seconds(own_spans),
        interrupted_progress=tuple(_interrupted_progress(attempts, {id(e) for e in counted})),
        spans=tuple(spans),
        representative=next(
            (e for e in candidates if e.end is None), candidates[-1] if candidates else None
        ),
        attempts=len(executions),
        newest=jobs[-1],
    )


def _checkpoint_chain(
    executions: Sequence[Execution], complete: bool, has_post_script: bool
) -> list[Execution]:
    """The executions that count: good ones since a restart, and those in progress."""
    chain: list[Execution] = []
    for entry in executions:
        if entry.kind == "badput" and not entry.stored:
            continue
        if chain and not _is_checkpoint(chain[-1], entry):
            # The shard was complete, or its checkpoint gone, and was started again.
            chain = []
        chain.append(entry)
    if complete and has_post_script and executions and executions[-1].outcome is Outcome.FAILED:
        # The POST script made the node succeed.
        chain = [*(e for e in chain if _is_checkpoint(e)), executions[-1]]
    if complete and chain and chain[-1].end is None:
        chain.pop()
    return chain


def _interrupted_progress(
    executions: Iterable[Execution], counted_ids: set[int]
) -> Iterator[float]:
    """The progress of each lost attempt, including the checkpointed work before it."""
    checkpointed = 0.0
    for entry in executions:
        if entry.kind == "badput" and id(entry) not in counted_ids:
            yield checkpointed + entry.seconds
        elif _is_checkpoint(entry):
            checkpointed += entry.seconds - entry.lost
        elif entry.kind == "goodput":
            checkpointed = 0.0


def _is_checkpoint(entry: Execution, after: Execution | None = None) -> bool:
    """Whether it stored a checkpoint from which ``after`` continued.

    It did so by an upload, for later executions of the same job, or by its return value.
    """
    if entry.checkpoint is not None:
        return after is None or job_key(after) == job_key(entry)
    return entry.kind == "goodput" and entry.return_value not in (0, None)


def _span_of(entry: Execution, axis: TimeAxis, lost: bool = False) -> WorkSpan:
    """The interval of an execution, up to as-of without an end; with its lost part if ``lost``."""
    begin = axis.position(entry.start)
    if entry.stored and not lost:
        return begin, begin + entry.stored
    return begin, max(begin, axis.now if entry.end is None else axis.position(entry.end))


def _total_seconds(spans: Iterable[WorkSpan]) -> float:
    return sum(end - begin for begin, end in spans)


# --- progress -----------------------------------------------------------------------------------


def bags(stats_input: StatsInput) -> tuple[Bag, ...]:
    """The statistic of the shards screen: all bags of the ensemble."""
    description, ledger = stats_input.load_description(), stats_input.ledger
    all_bags = find_bags(description.nodes)
    wanted = {node.node_key for nodes in all_bags for node in nodes.nodes}
    of_bags = [job for job in ledger.jobs if job.node_key in wanted]
    # Not by cluster: a schedd that was installed again counts from 1.
    of_bags.sort(key=lambda job: job.entered_at[:1])
    jobs = group_by(of_bags, attrgetter("node_key"))
    dags = {dag.file: dag.state for dag in stats_input.status.dags}
    return tuple(
        _BagBuilder(
            ledger=ledger,
            description=description,
            nodes=nodes,
            jobs=jobs,
            dag_state=dags.get(nodes.dag, DagState.UNKNOWN),
        ).bag()
        for nodes in all_bags
    )


class _BagBuilder:
    def __init__(
        self,
        ledger: Ledger,
        description: DagDescription,
        nodes: BagNodes,
        jobs: Mapping[NodeKey, Sequence[Job]],
        dag_state: DagState,
    ) -> None:
        self.ledger, self.nodes, self.dag_state = ledger, nodes, dag_state
        keys = [node.node_key for node in nodes.nodes]
        self.states = {key: description.states.get(key, State.WAITING) for key in keys}
        own_jobs = [job for key in keys for job in jobs.get(key, ())]
        self.executions = [entry for job in own_jobs for entry in job.executions]
        submitted = [job.submitted for job in own_jobs if job.submitted is not None]
        self.axis = TimeAxis(ledger, [*submitted, *(e.start for e in self.executions)])
        self.now = self.axis.now
        self.first_submitted = min(submitted, key=self.axis.position, default=None)
        self.first_position = min(map(self.axis.position, submitted), default=0.0)
        self.work = {
            node.node_key: shard_work(
                state=self.states[node.node_key],
                has_post_script=node.node.post is not None,
                jobs=jobs.get(node.node_key, ()),
                axis=self.axis,
            )
            for node in nodes.nodes
        }
        completed = [key for key in keys if self.states[key] is State.COMPLETED]
        self.ends = sorted(
            (
                description.completed[key]
                for key in completed
                if key in description.completed and self.work[key].newest is not None
            ),
            key=self.axis.position,
        )
        self.times = _shard_times(
            [seconds for key in completed if (seconds := self.work[key].seconds) is not None]
        )
        self.left = [key for key in keys if self.states[key] not in DONE]

    def bag(self) -> Bag:
        counts = Counter(self.states.values())
        over = not self.left
        machines, log_sigma = self._machine_count()
        remaining = None if over else self._remaining(machines, log_sigma)
        excluded = sum(counts[state] for state in (*FAILED_JOB, State.HELD))
        return Bag(
            dag=self.nodes.dag,
            in_dag=self.nodes.in_dag,
            name_pattern=self.nodes.name_pattern,
            submit=self.nodes.submit,
            total=len(self.nodes.nodes),
            states={state: counts[state] for state in State if state in counts},
            shards=tuple(self._shard(node.node_key) for node in self.nodes.nodes),
            first_submitted=self.first_submitted,
            overall_rate=self._overall_rate(over),
            recent_rate=None if over else self._recent_rate(),
            durations=self.times,
            machines=machines,
            remaining=remaining,
            expected_end=None
            if remaining is None
            else time_after_as_of(self.ledger, remaining.median),
            completed_at=self.ends[-1] if over and self.ends else None,
            missing_reason=None if over or remaining is not None else self._missing_reason(),
            excluded=excluded if remaining is not None else 0,
            totals=sum_executions(self.executions),
        )

    def _shard(self, key: NodeKey) -> Shard:
        name, work = key[1], self.work[key]
        job, entry, times = work.newest, work.representative, self.times
        prefix, _, suffix = self.nodes.name_pattern.partition("*")
        return Shard(
            node=name,
            number=int(name[len(prefix) : len(name) - len(suffix)]),
            state=self.states[key],
            job=job.job if job is not None else None,
            site=entry.site if entry is not None else None,
            host=entry.host if entry is not None else None,
            seconds=work.progress if work.in_progress else work.seconds,
            since=job.since if job is not None else None,
            attempts=work.attempts,
            times_median=work.progress / times.median
            if times is not None
            and times.shards >= MIN_COMPLETED
            and times.median > 0
            and work.in_progress
            and work.progress > STRAGGLER_FACTOR * times.percentile_90
            else None,
        )

    # --- rates --------------------------------------------------------------------------

    def _overall_rate(self, over: bool) -> ShardRate | None:
        until = self.axis.position(self.ends[-1]) if over and self.ends else self.now
        seconds = until - self.first_position
        if self.first_submitted is None or seconds <= 0:
            return None
        return ShardRate(len(self.ends), seconds)

    def _window_seconds(self) -> float:
        wanted = WINDOW_SHARDS * self.times.median if self.times is not None else 0.0
        return min(self.now - self.first_position, max(WINDOW_MIN_SECONDS, wanted))

    def _recent_rate(self) -> ShardRate | None:
        window = self._window_seconds()
        if self.first_submitted is None or window <= 0:
            return None
        recent = sum(self.now - window < self.axis.position(end) <= self.now for end in self.ends)
        return ShardRate(recent, window)

    def _machine_count(self) -> tuple[float, float]:
        """The recent mean of shards in progress, and its log-scale standard deviation."""
        spans = [span for work in self.work.values() for span in work.spans]
        running = float(sum(work.in_progress for work in self.work.values()))
        # The time before the first machine does not count.
        first = min((begin for begin, _ in spans), default=self.now)
        begin = max(self.now - self._window_seconds(), first)
        length = self.now - begin
        if length <= 0:
            return running, MAX_LOG_SIGMA
        means = []
        for part in range(WINDOW_PARTS):
            start = begin + length * part / WINDOW_PARTS
            stop = begin + length * (part + 1) / WINDOW_PARTS
            seconds = sum(max(0.0, min(up, stop) - max(down, start)) for down, up in spans)
            means.append(seconds * WINDOW_PARTS / length)
        mean = sum(means) / WINDOW_PARTS
        if mean <= 0:
            return running, MAX_LOG_SIGMA
        deviation = sqrt(sum((each - mean) ** 2 for each in means) / WINDOW_PARTS)
        return mean, min(MAX_LOG_SIGMA, max(MIN_LOG_SIGMA, deviation / mean))

    # --- what is left -------------------------------------------------------------------

    def _missing_reason(self) -> str:
        states = {self.states[key] for key in self.left}
        if states <= {*FAILED_JOB, State.HELD}:
            return "stopped: the remaining shards failed or are held"
        if self.dag_state in DAG_STOP_REASONS:
            return DAG_STOP_REASONS[self.dag_state]
        if states <= {*FAILED_JOB, State.HELD, State.POST}:
            return "unknown: only POST scripts are left to run"
        if all(work.seconds is None for work in self.work.values()):
            return "unknown: no shard has ended yet"
        return "unknown: no shard is running"

    def _remaining(self, machines: float, log_sigma: float) -> Interval | None:
        """The remaining time of the shards that still need a machine."""
        inactive_states = (*FAILED_JOB, State.HELD, State.POST)
        unfinished = [
            self.work[key] for key in self.left if self.states[key] not in inactive_states
        ]
        running = [work.progress for work in unfinished if work.in_progress]
        parallelism = min(float(len(unfinished)), max(machines, float(len(running))))
        curve = KaplanMeier.fit(self._lifetimes())
        if (
            self.dag_state not in (DagState.RUNNING, DagState.UNKNOWN)
            or curve is None
            or parallelism < 0.5
        ):
            return None
        remaining = RemainingShards(
            running=running,
            queued=[work.progress for work in unfinished if not work.in_progress],
            parallelism=parallelism,
            log_sigma=log_sigma,
            interrupted=sum(len(work.interrupted_progress) for work in self.work.values()),
            lost=sum(work.lost for work in self.work.values()),
        )
        durations = sorted(work.seconds for work in self.work.values() if work.seconds is not None)
        # From here on a shard is or was a straggler.
        slow = STRAGGLER_FACTOR * percentile(durations, 0.9) if durations else curve.mean
        trials = simulate_makespan(curve, slow, remaining)
        return Interval.from_trials(trials, curve.events, f"{curve.events} shards of its own")

    def _lifetimes(self) -> Iterator[Lifetime]:
        """The durations of shards; attempts in progress or interrupted are censored."""
        for work in self.work.values():
            if work.seconds is not None:
                yield Lifetime(work.seconds)
            elif work.progress:
                yield Lifetime(work.progress, False)
            for seconds in work.interrupted_progress:
                yield Lifetime(seconds, False)


def _shard_times(seconds: Sequence[float]) -> ShardTimes | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    lower, middle, upper = quartiles(ordered)
    return ShardTimes(
        minimum=ordered[0],
        lower_quartile=lower,
        median=middle,
        upper_quartile=upper,
        percentile_90=percentile(ordered, 0.9),
        maximum=ordered[-1],
        shards=len(ordered),
    )
