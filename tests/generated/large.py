"""Large ensembles: logs of any size, written as fast as a disk takes them, and what is true.

    python -m tests.generated.large [DIRECTORY] [NAME …]

Nothing here reads a log or asks metlmon. The same name and seed give the same bytes. Jobs are
lived through in order of their submission, their events kept until no job that is still to come
can have an earlier one, then written: memory is that of the jobs in flight.

The access point's zone is UTC: none of its hours exists twice.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import shutil
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, BinaryIO, Final

from tests.generated import events
from tests.generated.events import Slot
from tests.generated.places import PLACES

START: Final = int(datetime(2025, 1, 6, 9, 0, 12, tzinfo=UTC).timestamp())
DAY: Final = 86400
DAGMAN: Final = 12_713_158
"""The cluster of the DAG's DAGMan; the first job's is the next one."""

JOBS_AT_ONCE: Final = 200
"""Jobs lived through between two writes."""

WATCHED: Final = 37
"""Of every so many jobs one's memory is in the truth."""

SLOTS: Final = 100
NEW_MACHINE: Final = 0.25
"""How often a slot is one that nothing ran on before: slots come and go with their glideins, and
METL's 93 executions ran on 32 of them."""

SHARES: Final = [sum(place.shares) for place in PLACES]
INPUT: Final = 26_479_000_000
NOT_KNOWN_YET: Final = math.inf
EVER: Final = math.inf

IN_NODES_LOG: Final = frozenset([b"000", b"001", b"004", b"005", b"009", b"012", b"013", b"024"])
"""What DAGMan has written to its own log: no memory, transfers, errors, disconnects."""

REMOVED: Final = "via condor_rm (by user researcher)"


@dataclass(frozen=True, slots=True)
class Habit:
    """What becomes of jobs. ``ends``: how they end, by weight. ``evictions``: least and most of
    them before; ``evicted``: the share of jobs that has any. ``updates``: least and most 006 of an
    execution, one every ``interval`` seconds. ``gpus``: weights of 1, 2, 3, 4 GPUs. ``retries``: of
    each node. ``at_once``: runs that are trained at the same time."""

    ends: Mapping[str, int]
    evictions: tuple[int, int]
    evicted: float
    updates: tuple[int, int]
    interval: int
    gpus: tuple[int, int, int, int]
    retries: int
    at_once: int


METL: Final = Habit(
    {
        "completes": 44,
        "fails": 14,
        "is removed": 26,
        "is removed in transfer": 4,
        "is removed idle": 8,
        "is held": 4,
    },
    (1, 2),
    0.07,
    (4, 112),
    300,
    (2, 10, 0, 6),
    8,
    40,
)
"""The shares of the METL experiment's log: of its events 88 % are 006."""

STORM: Final = Habit(
    {"completes": 90, "fails": 10}, (4, 14), 1.0, (0, 2), 700, (2, 10, 0, 6), 6, 40
)
"""Nearly every execution is evicted: most events are 001, 004 and 040."""

TRAINING: Final = Habit(
    {"completes": 90, "fails": 6, "is removed": 3, "is held": 1},
    (1, 3),
    0.15,
    (6, 10),
    2400,
    (6, 3, 0, 1),
    6,
    100,
)
SHORT: Final = Habit(
    {"completes": 92, "fails": 6, "is removed": 2}, (1, 2), 0.05, (0, 2), 900, (1, 0, 0, 0), 6, 200
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be written: until ``size`` bytes of log, ``completed`` epochs or ``jobs`` are
    reached, or all runs are through. ``runs`` None: as many as it takes. ``beside``: also what
    DAGMan leaves beside its DAG file."""

    habit: Habit
    epochs: int
    runs: int | None = None
    size: float = EVER
    completed: float = EVER
    jobs: float = EVER
    beside: bool = False


PLANS: Final[Mapping[str, Plan]] = {
    "mix20": Plan(METL, 30, size=20e6),
    "mix200": Plan(METL, 30, size=200e6),
    "mix1000": Plan(METL, 30, size=1000e6),
    "storm20": Plan(STORM, 30, size=20e6),
    "storm200": Plan(STORM, 30, size=200e6),
    "storm1000": Plan(STORM, 30, size=1000e6),
    "nodes10k": Plan(TRAINING, 100, runs=100, completed=9700, beside=True),
    "jobs100k": Plan(SHORT, 93, runs=1000, jobs=100_000, beside=True),
}


# --- what is kept of one job ------------------------------------------------------------------


@dataclass(slots=True)
class Execution:
    """What is true of one execution; ``outcome`` in the domain's words."""

    start: int
    gpus: int
    site: str
    end: float = NOT_KNOWN_YET
    outcome: str = "in-flight"


@dataclass(slots=True)
class Moved:
    """One transfer: ``decided`` is when the log tells its outcome."""

    direction: str
    start: int
    end: float = NOT_KNOWN_YET
    decided: float = NOT_KNOWN_YET
    outcome: str = "in-flight"


@dataclass(slots=True)
class Job:
    """One submission of a node, and what its log tells of it, up to its end. ``again``: should
    it not complete, the node is tried again."""

    cluster: int
    run: int
    epoch: int
    submitted: int
    lines: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    transfers: list[Moved] = field(default_factory=list)
    states: list[tuple[int, str]] = field(default_factory=list)
    holds: list[tuple[int, str]] = field(default_factory=list)
    moved: list[tuple[int, int, int]] = field(default_factory=list)
    memory: list[tuple[int, int]] = field(default_factory=list)
    again: bool = False

    @property
    def last(self) -> int:
        return self.lines[-1][0]

    @property
    def ends(self) -> str:
        return self.states[-1][1]


@dataclass(slots=True)
class Run:
    """One run: ``states`` of its nodes, ``tries`` of the epoch that it is at."""

    name: str
    uuid: str
    seed: int
    target: str
    states: list[str]
    epoch: int = 0
    tries: int = 0


class _Stamps:
    """Seconds since 1970 as the log prints them."""

    def __init__(self) -> None:
        self._clock = [
            f"{n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d}".encode() for n in range(DAY)
        ]
        self._days: dict[int, bytes] = {}

    def __call__(self, when: int) -> bytes:
        day, second = divmod(when, DAY)
        result = self._days.get(day)
        if result is None:
            result = f"{datetime.fromtimestamp(when, UTC):%Y-%m-%d} ".encode()
            self._days[day] = result
        return result + self._clock[second]


@dataclass(frozen=True, slots=True)
class _Machine:
    """A slot, and its 001 in two pieces: the head and a directory's number stand between."""

    slot: Slot
    before: bytes
    after: bytes


def _machine(rng: Random, gpus: tuple[int, int, int, int]) -> _Machine:
    place = rng.choices(PLACES, SHARES)[0]
    number = rng.randint(1, 60)
    host = place.host.format(number)
    count = rng.choices((1, 2, 3, 4), gpus)[0]
    ids = tuple(f"GPU-{rng.getrandbits(32):08x}" for _ in range(count))
    name = f"slot1_{rng.randint(1, 8)}@"
    if place.resource:
        name += f"glidein_{rng.randint(100, 999)}_{rng.randint(10**8, 10**9)}@"
    slot = Slot(place, host, name + host, f"198.51.100.{number}", ids)
    text = events.executing("", slot).removeprefix("001 ").encode()
    before, _, after = text.partition(f"dir_{place.sock}".encode())
    return _Machine(slot, before + b"dir_", after + b"\n...\n")


# --- one job ----------------------------------------------------------------------------------


class _Telling:
    """Lives one job through: ``now`` moves on with every step."""

    def __init__(self, world: Large, job: Job) -> None:
        self.world, self.job, self.rng, self.now = world, job, world.rng, job.submitted
        self.habit = world.plan.habit
        self.head = f"({job.cluster}.000.000) "
        self.machine = world.machine()
        self.peak = 0
        run = world.runs[job.run]
        self.node = f"{run.name}-train_epoch{job.epoch}"
        self.say(events.submitted(self.at(), self.node))
        self.enter("idle")
        self.tells_dagman("ULOG_SUBMIT")

    def at(self) -> str:
        return self.head + self.world.stamps(self.now).decode()

    def say(self, text: str) -> None:
        self.job.lines.append(
            (self.now, self.job.cluster, len(self.job.lines), f"{text}\n...\n".encode())
        )

    def enter(self, state: str) -> None:
        self.job.states.append((self.now, state))

    def passes(self, low: int, high: int) -> None:
        self.now += self.rng.randint(low, high)

    def watch(self, mb: int) -> None:
        if self.job.cluster % WATCHED == 0:
            self.job.memory.append((self.now, mb))

    def tells_dagman(self, event: str, *more: str) -> None:
        """DAGMan looks at its log every five seconds."""
        if self.world.plan.beside:
            self.world.dagman_hears(self.now, self.node, self.job.cluster, event, more)

    # What a job lives through.

    def waits(self) -> None:
        self.passes(30, 900)
        self.machine = self.world.machine()

    def begins_to_fetch(self) -> Moved:
        slot, waited = self.machine.slot, None
        if self.rng.random() < 0.1:
            self.say(events.queued(self.at(), "input"))
            self.enter("transferring_input")
            waited = self.rng.randint(2, 300)
            self.now += waited
        self.say(events.transfer_started(self.at(), "input", slot, waited))
        self.enter("transferring_input")
        self.job.transfers.append(Moved("input", self.now))
        return self.job.transfers[-1]

    def starts(self) -> None:
        self.waits()
        moved = self.begins_to_fetch()
        self.passes(40, 500)
        self.say(events.transfer_finished(self.at(), "input"))
        self.enter("starting")
        moved.end = self.now
        self.passes(1, 4)
        moved.decided, moved.outcome = self.now, "ok"
        slot = self.machine.slot
        text = b"001 %b%b%b%d%b" % (
            self.head.encode(),
            self.world.stamps(self.now),
            self.machine.before,
            self.rng.randint(1000, 99999),
            self.machine.after,
        )
        self.job.lines.append((self.now, self.job.cluster, len(self.job.lines), text))
        self.enter("running")
        self.job.executions.append(Execution(self.now, len(slot.gpus), slot.place.site))
        self.tells_dagman("ULOG_EXECUTE")

    def works(self) -> None:
        """Runs, and tells its memory now and then (:func:`events.memory`'s form)."""
        rng, job, stamps = self.rng, self.job, self.world.stamps
        head = b"006 " + self.head.encode()
        cluster, lines, count = job.cluster, job.lines, rng.randint(*self.habit.updates)
        rss, place, interval = rng.randint(17_000, 19_000), len(lines), self.habit.interval
        self.now += 14
        noise = self.world.noise
        for turn in range(count):
            # Loads its data within the first quarter of an hour, then grows slowly.
            step = noise[(cluster + turn * 7) & 1023]
            rss += 3_000_000 + (step << 10) if turn in (1, 2, 3) else step << 5
            lines.append(
                (
                    self.now,
                    cluster,
                    place + turn,
                    b"%b%b Image size of job updated: %d\n\t%d  -  MemoryUsage of job (MB)\n"
                    b"\t%d  -  ResidentSetSize of job (KB)\n...\n"
                    % (head, stamps(self.now), rss, (rss >> 10) + 1, rss),
                )
            )
            self.peak = max(self.peak, (rss >> 10) + 1)
            self.watch(self.peak)
            self.now += interval + (step >> 6)
        if self.rng.random() < 0.01:
            self.loses_touch()
        self.passes(30, 40 + interval // 2)

    def loses_touch(self) -> None:
        self.say(events.disconnected(self.at(), self.machine.slot))
        self.enter("disconnected")
        self.passes(20, 600)
        self.say(events.reconnected(self.at(), self.machine.slot))
        self.enter("running")

    def uploads(self) -> None:
        self.say(events.transfer_started(self.at(), "output", self.machine.slot))
        self.enter("transferring_output")
        moved = Moved("output", self.now)
        self.job.transfers.append(moved)
        self.passes(8, 240)
        self.say(events.transfer_finished(self.at(), "output"))
        self.enter("running")
        moved.end = moved.decided = self.now
        moved.outcome = "ok"

    def ends(self, outcome: str) -> int:
        execution = self.job.executions[-1]
        execution.end, execution.outcome = self.now, outcome
        return self.now - execution.start

    def moves(self, sent: int, received: int) -> tuple[int, int]:
        self.job.moved.append((self.now, sent, received))
        return sent, received

    def is_evicted(self, code: int, reason: str) -> None:
        slot, rng = self.machine.slot, self.rng
        moved = self.moves(rng.randint(0, 9000), INPUT + rng.randint(0, 999_999))
        self.say(events.evicted(self.at(), slot, code, 0, reason, moved))
        self.ends("evicted")
        self.enter("idle")
        self.tells_dagman("ULOG_JOB_EVICTED")

    def is_lost(self) -> None:
        """One execution, evicted."""
        self.starts()
        self.works()
        if self.rng.random() < 0.3:
            silence = self.rng.randint(3610, 3660)
            text = f"Input File transfer stalled for {silence} seconds"
            self.say(events.remote_error(self.at(), self.machine.slot, text))
            self.is_evicted(1007, f"Error from {self.machine.slot.name}: {text}")
        else:
            self.is_evicted(1005, "Unspecified job interruption")

    def terminates(self, value: int) -> None:
        rng, job = self.rng, self.job
        sent = 1_180_000_000 + rng.randint(0, 9_999_999) if value == 0 else 11597
        moved = self.moves(sent, INPUT + rng.randint(0, 999_999))
        total = (sum(m[1] for m in job.moved), sum(m[2] for m in job.moved))
        seconds = self.ends("good" if value == 0 else "failed")
        mb = self.peak or rng.randint(12_000, 41_000)
        self.watch(mb)
        self.say(
            events.terminated(self.at(), self.machine.slot, seconds, value, None, moved, total, mb)
        )
        self.enter("completed" if value == 0 else "failed")
        name = f"Node {self.node} job proc ({job.cluster}.0.0)"
        if value == 0:
            done = (f"{name} completed successfully.", f"Node {self.node} job completed")
        else:
            done = (f"{name} failed with status {value}.",)
        self.tells_dagman("ULOG_JOB_TERMINATED", *done)

    def is_removed(self) -> None:
        self.say(events.removed(self.at(), REMOVED))
        self.enter("removed")
        self.tells_dagman("ULOG_JOB_ABORTED")

    # How it ends.

    def completes(self) -> None:
        self.starts()
        self.works()
        if self.rng.random() < 0.5:
            self.uploads()
            self.passes(20, 200)
        self.uploads()
        self.passes(1, 3)
        self.terminates(0)

    def fails(self) -> None:
        self.starts()
        self.works()
        self.uploads()
        self.passes(1, 3)
        self.terminates(1)

    def removed_running(self) -> None:
        self.starts()
        self.works()
        if self.rng.random() < 0.25:
            address = self.machine.slot.address
            text = (
                f"STARTER at {address} failed to send file(s) to <192.0.2.62:9618>: |Error: "
                "reading from file /srv/execute/dir_12206/output: (errno 2) No such file or "
                f"directory; SHADOW failed to receive file(s) from <{address}:33557>\n"
                "\tCode 13 Subcode 2"
            )
            self.say(events.remote_error(self.at(), self.machine.slot, text))
        self.is_evicted(1023, REMOVED)
        self.is_removed()

    def removed_in_transfer(self) -> None:
        self.waits()
        moved = self.begins_to_fetch()
        self.passes(20, 2000)
        slot = self.machine.slot
        self.say(events.evicted(self.at(), slot, 1023, 0, REMOVED, self.moves(0, 0)))
        moved.end = moved.decided = self.now
        moved.outcome = "unfinished"
        self.tells_dagman("ULOG_JOB_EVICTED")
        self.is_removed()

    def removed_idle(self) -> None:
        self.passes(60, 9000)
        self.is_removed()

    def held(self) -> None:
        """Its output finds no room; released, it is trained again."""
        self.starts()
        self.works()
        self.say(events.transfer_started(self.at(), "output", self.machine.slot))
        self.enter("transferring_output")
        moved = Moved("output", self.now)
        self.job.transfers.append(moved)
        self.passes(10, 40)
        reason = (
            "Transfer output files failure at access point ap40 while receiving files from "
            f"execution point {self.machine.slot.name}. Details: writing to file output/"
            f"training_logs/checkpoints/epoch={self.job.epoch}.ckpt: (errno 122) Disk quota "
            "exceeded"
        )
        self.is_evicted(1005, reason)
        moved.end = moved.decided = self.now
        moved.outcome = "unfinished"
        self.say(events.held(self.at(), 12, 122, reason))
        self.enter("held")
        self.job.holds.append((self.now, "12/122"))
        self.tells_dagman("ULOG_JOB_HELD")
        self.passes(600, 9000)
        self.say(events.released(self.at()))
        self.enter("idle")
        self.tells_dagman("ULOG_JOB_RELEASED")
        self.completes()

    def lives(self) -> None:
        habit = self.habit
        if self.rng.random() < habit.evicted:
            for _ in range(self.rng.randint(*habit.evictions)):
                self.is_lost()
        end = self.rng.choices(list(habit.ends), list(habit.ends.values()))[0]
        match end:
            case "completes":
                self.completes()
            case "fails":
                self.fails()
            case "is removed":
                self.removed_running()
            case "is removed in transfer":
                self.removed_in_transfer()
            case "is removed idle":
                self.removed_idle()
            case _:
                self.held()


# --- all of them ------------------------------------------------------------------------------


class Large:
    """Writes one ensemble into ``directory``; :meth:`write` gives what is true of it."""

    def __init__(self, name: str, plan: Plan, seed: int = 1) -> None:
        self.name, self.plan, self.seed = name, plan, seed
        self.rng = Random(f"{name} {plan.size} {plan.runs} {seed}")
        self.stamps = _Stamps()
        self._machines = [_machine(self.rng, plan.habit.gpus) for _ in range(SLOTS)]
        self.noise = [self.rng.randrange(1024) for _ in range(1024)]
        self.runs: list[Run] = []
        self._next: list[tuple[int, int]] = []
        self._cluster = DAGMAN
        self._submitted: list[int] = []
        self._completions: list[int] = []
        self._lines: list[tuple[int, int, int, bytes]] = []
        self._said: list[tuple[int, int, bytes]] = []
        self._message_count = 0
        self._open: list[Job] = []
        self._written = 0
        self._sums = _Sums()

    def write(self, directory: Path) -> dict[str, Any]:
        """The log, the DAG file, what lies beside it, ``metlmon.toml`` and ``truth.json``."""
        directory.mkdir(parents=True, exist_ok=True)
        files = [directory / "metl.log"]
        if self.plan.beside:
            files += [directory / f"ensemble.dag.{end}" for end in ("nodes.log", "dagman.out")]
            _dagman_log(directory / "ensemble.dag.dagman.log")
        streams = [path.open("wb") for path in files]
        if self.plan.beside:
            streams[2].write(_dagman_starts())
        cut = self._live_through(streams)
        for stream in streams:
            stream.close()
        self._write_dag(directory / "ensemble.dag")
        (directory / "metlmon.toml").write_text(SETTINGS, encoding="utf-8")
        truth = self._truth(cut)
        (directory / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
        return truth

    def machine(self) -> _Machine:
        """A slot for one execution."""
        number = self.rng.randrange(SLOTS)
        if self.rng.random() < NEW_MACHINE:
            self._machines[number] = _machine(self.rng, self.plan.habit.gpus)
        return self._machines[number]

    # --- time goes by -------------------------------------------------------------------

    def _live_through(self, streams: list[BinaryIO]) -> int:
        """Returns the moment of the last event."""
        for _ in range(min(self.plan.habit.at_once, self.plan.runs or 10**9)):
            self._begin_run(START + 5 + self.rng.randint(0, 40 * len(self.runs)))
        cut: float = EVER
        while self._next and self._next[0][0] <= cut:
            for _ in range(JOBS_AT_ONCE):
                if self._next and self._next[0][0] <= cut:
                    self._submit(*heapq.heappop(self._next))
            horizon = self._next[0][0] - 1 if self._next else EVER
            self._lines.sort()
            cut = min(cut, self._limit(horizon))
            self._flush(min(horizon, cut), streams)
        self._settle(cut, all_of_them=True)
        return self._sums.last

    def _limit(self, horizon: float) -> float:
        """The moment at which there is enough, if it lies before ``horizon``."""
        plan = self.plan
        limit: float = EVER
        if plan.size < EVER:
            size = self._written
            for when, _, _, line in self._lines:
                size += len(line)
                if size >= plan.size:
                    limit = when
                    break
        if len(self._submitted) >= plan.jobs:
            limit = min(limit, self._submitted[int(plan.jobs) - 1])
        self._completions.sort()
        if len(self._completions) >= plan.completed:
            limit = min(limit, self._completions[int(plan.completed) - 1])
        return limit if limit <= horizon else EVER

    def _flush(self, until: float, streams: list[BinaryIO]) -> None:
        """Write what happened up to ``until``: nothing earlier can come any more."""
        ready = bisect_right(self._lines, until, key=lambda line: line[0])
        lines = [line[3] for line in self._lines[:ready]]
        if ready:
            self._sums.note(self._lines[0][0], self._lines[ready - 1][0])
        del self._lines[:ready]
        self._sums.events.update([line[:3] for line in lines])
        self._written += streams[0].write(b"".join(lines))
        if len(streams) > 1:
            streams[1].write(b"".join([line for line in lines if line[:3] in IN_NODES_LOG]))
            self._said.sort()
            received_2 = bisect_right(self._said, until, key=lambda line: line[0])
            streams[2].write(b"".join([line[2] for line in self._said[:received_2]]))
            del self._said[:received_2]
        self._settle(until, all_of_them=False)

    def _settle(self, until: float, all_of_them: bool) -> None:
        still = []
        for job in self._open:
            if all_of_them or job.last <= until:
                self._sums.add(job, self.runs[job.run], until)
            else:
                still.append(job)
        self._open = still

    def _begin_run(self, when: int) -> None:
        number = len(self.runs)
        uuid = f"{self.rng.getrandbits(32):08x}"
        target = self.rng.choice(("ospool", "delta", "aws", "expanse"))
        states = ["waiting"] * self.plan.epochs
        self.runs.append(Run(f"run{number}", uuid, self.rng.randint(1, 10**9), target, states))
        heapq.heappush(self._next, (when, number))

    def _submit(self, when: int, number: int) -> None:
        run = self.runs[number]
        self._cluster += 1
        self._submitted.append(when)
        job = Job(self._cluster, number, run.epoch, when)
        job.again = run.tries < self.plan.habit.retries
        telling = _Telling(self, job)
        telling.lives()
        self._lines += job.lines
        self._open.append(job)
        run.tries += 1
        last, node = job.last, telling.node
        # What is kept until the job is over need not be kept twice.
        job.lines = job.lines[-1:]
        if job.ends == "completed":
            self._completions.append(last)
            run.epoch, run.tries = run.epoch + 1, 0
            if run.epoch < self.plan.epochs:
                heapq.heappush(self._next, (last + self.rng.randint(8, 20), number))
                return
        elif run.tries <= self.plan.habit.retries:
            if self.plan.beside:
                retry = f"(retry #{run.tries} of {self.plan.habit.retries})"
                self.says(last + 5, f"Retrying node {node} {retry}...")
            heapq.heappush(self._next, (last + self.rng.randint(8, 20), number))
            return
        if self.plan.runs is None or len(self.runs) < self.plan.runs:
            self._begin_run(last + self.rng.randint(8, 20))

    # --- DAGMan's words -----------------------------------------------------------------

    def says(self, when: int, *texts: str) -> None:
        """Lines of ``.dagman.out``."""
        at = datetime.fromtimestamp(when, UTC).strftime("%m/%d/%y %H:%M:%S")
        self._message_count += 1
        lines = "".join(f"{at} {text}\n" for text in texts)
        self._said.append((when, self._message_count, lines.encode()))

    def dagman_hears(
        self, when: int, node: str, cluster: int, event: str, more: tuple[str, ...]
    ) -> None:
        """What DAGMan says of one of its job's events, and before a submission."""
        if event == "ULOG_SUBMIT":
            self.says(
                when,
                f"Submitting HTCondor Node {node} job(s)...",
                f"Submitting node {node} from inline description using direct job submission",
                f"\tassigned HTCondor ID ({cluster}.0.0)",
                "Just submitted 1 job this cycle...",
            )
        at = datetime.fromtimestamp(when, UTC).strftime("%m/%d/%y %H:%M:%S")
        self.says(
            when + 4,
            f"Event: {event} for HTCondor Node {node} ({cluster}.0.0) {{{at}}}",
            f"Number of idle job procs: {cluster % 23}",
            *more,
        )

    # --- the files ----------------------------------------------------------------------

    def _write_dag(self, path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.write(DESCRIPTION)
            for run in self.runs:
                file.writelines(
                    f"JOB {run.name}-train_epoch{n} pretrain.sub\n" for n in range(self.plan.epochs)
                )
            for run in self.runs:
                for n in range(self.plan.epochs):
                    more = ' continue_from_checkpoint="true"' if n else ""
                    file.write(
                        f'VARS {run.name}-train_epoch{n} epoch="{n + 1}" run_uuid="{run.uuid}" '
                        f'random_seed="{run.seed}" ResourceName="{run.target}"{more}\n'
                    )
            for run in self.runs:
                file.writelines(
                    f"PARENT {run.name}-train_epoch{n - 1} CHILD {run.name}-train_epoch{n}\n"
                    for n in range(1, self.plan.epochs)
                )
            file.write(f"RETRY ALL_NODES {self.plan.habit.retries}\n")

    def _truth(self, cut: int) -> dict[str, Any]:
        sums = self._sums
        states = Counter(state for run in self.runs for state in run.states)
        return {
            "name": self.name,
            "seed": self.seed,
            "log_bytes": self._written,
            "first": _iso(sums.first),
            "last": _iso(cut),
            "events": {number.decode(): n for number, n in sorted(sums.events.items())},
            "runs": len(self.runs),
            "epochs": len(self.runs) * self.plan.epochs,
            "completed": states["completed"],
            "nodes": dict(sorted(_judged(states, self.plan.beside).items())),
            "nodes_live": dict(sorted(_judged(states, True).items())),
            "jobs": sums.jobs,
            "job_states": dict(sorted(sums.job_states.items())),
            "executions": dict(sorted(sums.executions.items())),
            "gpu_seconds": dict(sorted(sums.gpu_seconds.items())),
            "sites": {site: dict(sorted(of.items())) for site, of in sorted(sums.sites.items())},
            "transfers": {
                key: {"count": n, "seconds": seconds}
                for key, (n, seconds) in sorted(sums.transfers.items())
            },
            "holds": dict(sorted(sums.holds.items())),
            "bytes_sent": sums.sent,
            "bytes_received": sums.received,
            "memory_mb": {str(cluster): mb for cluster, mb in sorted(sums.memory.items())},
        }


def _judged(states: Counter[str], alive: bool) -> Counter[str]:
    """A job that failed with tries left: its node is retried where DAGMan is known to live."""
    judged: Counter[str] = Counter()
    for state, count in states.items():
        word, _, again = state.partition("+")
        judged["retrying" if again and alive else word] += count
    return judged


def _iso(when: int) -> str:
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M:%S")


class _Sums:
    """What is true, added up job by job, of what happened up to a moment."""

    def __init__(self) -> None:
        self.first = self.last = 0
        self.jobs = self.sent = self.received = 0
        self.events: Counter[bytes] = Counter()
        self.job_states: Counter[str] = Counter()
        self.executions: Counter[str] = Counter()
        self.gpu_seconds: Counter[str] = Counter()
        self.sites: dict[str, Counter[str]] = {}
        self.transfers: dict[str, tuple[int, int]] = {}
        self.holds: Counter[str] = Counter()
        self.memory: dict[int, int] = {}

    def note(self, first: int, last: int) -> None:
        self.first = self.first or first
        self.last = max(self.last, last)

    def add(self, job: Job, run: Run, until: float) -> None:
        """Take in what ``job`` lived through up to ``until``; an execution that goes on then
        has lasted until the last event of all."""
        if job.submitted > until:
            return
        self.jobs += 1
        state = [word for when, word in job.states if when <= until][-1]
        self.job_states[state] += 1
        self._node(job, run, state)
        for execution in job.executions:
            if execution.start <= until:
                self._execution(execution, until)
        for moved in job.transfers:
            if moved.decided <= until:
                key = f"{moved.direction} {moved.outcome}"
                count, seconds = self.transfers.get(key, (0, 0))
                self.transfers[key] = (count + 1, seconds + int(moved.end) - moved.start)
        self.holds.update(code for when, code in job.holds if when <= until)
        for when, sent, received in job.moved:
            if when <= until:
                self.sent += sent
                self.received += received
        memory = [mb for when, mb in job.memory if when <= until]
        if memory:
            self.memory[job.cluster] = max(memory)

    def _node(self, job: Job, run: Run, state: str) -> None:
        again = state in ("failed", "removed") and job.again
        run.states[job.epoch] = state + "+" * again

    def _execution(self, execution: Execution, until: float) -> None:
        ended = execution.end <= until
        outcome = execution.outcome if ended else "in-flight"
        seconds = (int(execution.end) if ended else self.last) - execution.start
        self.executions[outcome] += 1
        self.gpu_seconds[outcome] += seconds * execution.gpus
        kind = outcome if outcome in ("good", "in-flight") else "bad"
        site = self.sites.setdefault(execution.site, Counter())
        site["executions"] += 1
        site[kind] += seconds * execution.gpus


SETTINGS: Final = """\
tz = "UTC"

[site_aliases]
"SDSC-PRP-CE1" = "NRP"

[[site]]
host = "*.hpc.example.edu"
name = "campus"
"""

DESCRIPTION: Final = """\
SUBMIT-DESCRIPTION pretrain.sub {
	universe = container
	container_image = osdf:///example/metl_global.sif
	request_disk = 100GB
	request_memory = 64000
	request_cpus = 8
	request_gpus = 2
	executable = /bin/bash
	transfer_executable = false
	arguments = pretrain.sh $(epoch) $(run_uuid) $(random_seed)
	transfer_input_files = pretrain.sh, osdf:///example/processed-global.tar.gz
	transfer_output_files = output
	output = $(run_uuid)/$(epoch)_$(CLUSTERID).out
	error = $(run_uuid)/$(epoch)_$(CLUSTERID).err
	log = metl.log
	queue
}
"""


def _dagman_starts() -> bytes:
    at = datetime.fromtimestamp(START, UTC).strftime("%m/%d/%y %H:%M:%S")
    return "".join(
        f"{at} {line}\n"
        for line in (
            "*" * 54,
            f"** condor_scheduniv_exec.{DAGMAN}.0 (CONDOR_DAGMAN) STARTING UP",
            "** $CondorVersion: 25.3.1 2025-09-01 BuildID: 800000 $",
            "*" * 54,
            "Parsing ensemble.dag ...",
        )
    ).encode()


def _dagman_log(path: Path) -> None:
    """DAGMan's own job: it runs."""
    head = f"({DAGMAN}.000.000) {_iso(START)}"
    path.write_text(
        f"{events.submitted(head, None)}\n...\n"
        f"001 {head} Job executing on host: {events.SCHEDD}\n...\n",
        encoding="utf-8",
        newline="\n",
    )


# --- the command ------------------------------------------------------------------------------


def cache_directory() -> Path:
    """Where generated ensembles are kept: never in the checkout."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "metlmon-bench"


def generated(name: str, directory: Path, seed: int = 1) -> Path:
    """The directory of the ensemble ``name`` below ``directory``; written if it is not there.
    It appears when it is complete."""
    made = directory / name
    if not (made / "truth.json").exists():
        part = directory / f".{name}.part"
        shutil.rmtree(part, ignore_errors=True)
        begun = perf_counter()
        truth = Large(name, PLANS[name], seed).write(part)
        shutil.rmtree(made, ignore_errors=True)
        part.rename(made)
        seconds = perf_counter() - begun
        size = truth["log_bytes"] / 1e6
        print(f"{made}: {size:.0f} MB of log written in {seconds:.1f} s", file=sys.stderr)
    return made


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write large ensembles, and what is true of them.")
    parser.add_argument("directory", nargs="?", type=Path, default=cache_directory())
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PLANS))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(None if arguments is None else list(arguments))
    unknown = [name for name in given.names if name not in PLANS]
    if unknown:
        parser.error(f"no such ensemble: {', '.join(unknown)}; there are {', '.join(PLANS)}")
    for name in given.names or [n for n in PLANS if not n.endswith("1000")]:
        generated(name, given.directory, given.seed)


if __name__ == "__main__":
    main()
