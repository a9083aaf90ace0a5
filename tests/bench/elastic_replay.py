"""A replay of idle nodes: elastic trainings on whatever nodes are idle, under one policy."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

MOST_NODES: Final = 64
PROFILE_NODES: Final = (8, 4, 2, 1)
PROFILE_SECONDS: Final = 20.0
"""MalleTrain's profiling: each new training runs this long on each of these."""

READING_SECONDS: Final = 20.0
"""A training logs its rate when it has trained this long on one number of nodes."""

READING_SIGMA: Final = 0.03
"""Log-scale standard deviation of a logged or profiled rate."""

Curve = tuple[float, ...]
"""Work per second on 0, 1, … MOST_NODES nodes."""


@dataclass(frozen=True)
class Window:
    """Idle nodes over a time: those at its start, and (seconds, joined, left) of each change."""

    first: frozenset[int]
    changes: tuple[tuple[float, frozenset[int], frozenset[int]], ...]
    seconds: float


@dataclass(frozen=True)
class Workload:
    """Trainings in the order in which they are admitted, ``parallel`` at a time.

    ``truth``: throughput of each kind of net; ``sizes``: work of one training of it.
    """

    truth: Mapping[str, Curve]
    sizes: Mapping[str, float]
    nets: Sequence[str]
    parallel: int


@dataclass
class Job:
    """One training."""

    number: int
    net: str
    truth: Curve
    left: float
    grow: float
    shrink: float
    rng: random.Random
    nodes: set[int] = field(default_factory=set)
    ready: float = 0.0
    at: float = 0.0
    read_at: float = math.inf
    stage: int | None = None
    rates: dict[int, float] = field(default_factory=dict)

    def finish(self) -> float:
        """When it is done, with its present nodes."""
        rate = self.truth[len(self.nodes)]
        return max(self.at, self.ready) + self.left / rate if rate else math.inf

    def steady(self, now: float) -> float:
        """Seconds for which it has trained on its present nodes."""
        return now - self.ready if self.nodes else 0.0

    def reading(self) -> float:
        """A rate as it logs it."""
        return self.truth[len(self.nodes)] * math.exp(self.rng.gauss(0, READING_SIGMA))


class Policy:
    """How nodes are shared; this one profiles nothing.

    ``profiles``: trainings are profiled before they take part. ``reads``: allocations are made
    again once a training has logged its rate on a number of nodes that is new for it.
    ``preemptions`` of trainings so far, within ``node_seconds`` of all of them.
    """

    def __init__(self) -> None:
        self.preemptions, self.node_seconds = 0, 0.0

    profiles = False
    reads = False

    def add(self, job: Job) -> None:
        """A training was admitted."""

    def remove(self, job: Job) -> None:
        """A training is done."""

    def observe(self, job: Job, rate: float) -> None:
        """A training has logged its rate on its present number of nodes."""

    def profiled(self, job: Job) -> None:
        """The profile of a training is complete: its ``rates`` by number of nodes."""

    def allocate(self, jobs: Sequence[Job], nodes: int) -> Sequence[int]:
        """The number of nodes of each job."""
        raise NotImplementedError


class Replay:
    """One window under one policy; ``work`` done and ``finished`` trainings are counted."""

    def __init__(self, window: Window, workload: Workload, policy: Policy, seed: int) -> None:
        self.work, self.finished, self.pauses = 0.0, 0, 0
        self._window, self._workload, self._policy, self._seed = window, workload, policy, seed
        self._free = set(window.first)
        self._owner: dict[int, Job] = {}
        self._jobs: list[Job] = []
        self._admitted = 0
        self._now = 0.0

    def run(self) -> Replay:
        """Replay the window to its end."""
        changes = iter((*self._window.changes, (math.inf, frozenset(), frozenset())))
        self._admit()
        self._decide()
        change = next(changes)
        while True:
            wake = min((self._wake(job) for job in self._jobs), default=math.inf)
            now = min(change[0], wake)
            self._advance(min(now, self._window.seconds))
            if now >= self._window.seconds:
                return self
            if change[0] <= now:
                self._take(change[1], change[2])
                change = next(changes)
            self._finish()
            self._read()
            self._admit()
            self._decide()

    def _wake(self, job: Job) -> float:
        return min(job.finish(), job.read_at)

    def _advance(self, now: float) -> None:
        held = sum(len(job.nodes) for job in self._jobs)
        self._policy.node_seconds += held * (now - self._now)
        for job in self._jobs:
            trained = now - max(job.at, job.ready)
            if trained > 0 and job.nodes:
                done = min(job.left, trained * job.truth[len(job.nodes)])
                job.left -= done
                self.work += done
            job.at = now
        self._now = now

    def _take(self, joined: frozenset[int], left: frozenset[int]) -> None:
        hit: dict[int, Job] = {}
        for node in left:
            job = self._owner.pop(node, None)
            if job is None:
                self._free.discard(node)
            else:
                if job.number not in hit:
                    self._sample(job)
                job.nodes.discard(node)
                hit[job.number] = job
        self._policy.preemptions += len(hit)
        for job in hit.values():
            self._pause(job, job.shrink)
            if job.stage is not None:
                self._restart_stage(job)
        self._free |= joined

    def _finish(self) -> None:
        for job in [job for job in self._jobs if job.finish() <= self._now + 1e-6]:
            self._sample(job)
            self._release(job, len(job.nodes))
            self._jobs.remove(job)
            self._policy.remove(job)
            self.finished += 1

    def _admit(self) -> None:
        while len(self._jobs) < self._workload.parallel:
            number = self._admitted
            net = self._workload.nets[number % len(self._workload.nets)]
            rng = random.Random(f"{self._seed} {number}")
            job = Job(
                number=number,
                net=net,
                truth=self._workload.truth[net],
                left=self._workload.sizes[net],
                grow=rng.uniform(17, 19),
                shrink=rng.uniform(11, 13),
                rng=rng,
                at=self._now,
                stage=-1 if self._policy.profiles else None,
            )
            self._admitted += 1
            self._jobs.append(job)
            self._policy.add(job)

    # --- rates ------------------------------------------------------------------------------

    def _sample(self, job: Job) -> None:
        """Let the policy have the rate on the nodes that a job is about to lose or exceed."""
        count = len(job.nodes)
        if (
            job.stage is None
            and count not in job.rates
            and job.steady(self._now) >= READING_SECONDS
        ):
            job.rates[count] = job.reading()
            self._policy.observe(job, job.rates[count])

    def _read(self) -> None:
        for job in self._jobs:
            if job.read_at > self._now:
                continue
            job.read_at = math.inf
            if job.stage is None:
                self._sample(job)
            else:
                job.rates[len(job.nodes)] = job.reading()
                self._next_stage(job)

    # --- profiling --------------------------------------------------------------------------

    def _next_stage(self, job: Job) -> None:
        fewer = [count for count in PROFILE_NODES if count < len(job.nodes)]
        if fewer:
            self._set_nodes(job, fewer[0])
        else:
            job.stage = None
            self._policy.profiled(job)

    def _restart_stage(self, job: Job) -> None:
        """A preempted training goes on with the next smaller number, or starts again."""
        counts = [count for count in PROFILE_NODES if count <= len(job.nodes)]
        if not counts:
            job.stage, job.read_at = -1, math.inf
        elif counts[0] != len(job.nodes):
            self._set_nodes(job, counts[0])

    def _start_profiles(self) -> None:
        """Start profiles on idle nodes, and on nodes of the trainings that have theirs."""
        running = [job for job in self._jobs if job.stage is not None and job.stage >= 0]
        taken = sum(len(job.nodes) for job in running)
        available = len(self._free) + len(self._owner) - taken
        for job in self._jobs:
            counts = [count for count in PROFILE_NODES if count <= available]
            if job.stage != -1 or not counts:
                continue
            for other in self._jobs:
                if other.stage is None and len(self._free) < counts[0]:
                    missing = counts[0] - len(self._free)
                    self._set_nodes(other, max(0, len(other.nodes) - missing))
            job.stage = 0
            self._set_nodes(job, counts[0])
            available -= counts[0]

    # --- nodes ------------------------------------------------------------------------------

    def _decide(self) -> None:
        if self._policy.profiles:
            self._start_profiles()
        jobs = [job for job in self._jobs if job.stage is None]
        nodes = len(self._free) + sum(len(job.nodes) for job in jobs)
        allocation = self._policy.allocate(jobs, nodes)
        # First those that lose nodes: others gain them.
        for job, count in sorted(
            zip(jobs, allocation, strict=True), key=lambda each: each[1] - len(each[0].nodes)
        ):
            self._set_nodes(job, count)

    def _set_nodes(self, job: Job, count: int) -> None:
        change = count - len(job.nodes)
        if not change:
            return
        self._sample(job)
        if change < 0:
            self._release(job, -change)
        for _ in range(change):
            node = self._free.pop()
            job.nodes.add(node)
            self._owner[node] = job
        self._pause(job, job.grow if change > 0 else job.shrink)

    def _release(self, job: Job, count: int) -> None:
        for _ in range(count):
            node = job.nodes.pop()
            del self._owner[node]
            self._free.add(node)

    def _pause(self, job: Job, seconds: float) -> None:
        self.pauses += 1
        job.ready = max(job.ready, self._now + seconds)
        job.read_at = math.inf
        if job.nodes and job.stage is not None:
            job.read_at = job.ready + PROFILE_SECONDS
        elif job.nodes and self._policy.reads and len(job.nodes) not in job.rates:
            job.read_at = job.ready + READING_SECONDS
