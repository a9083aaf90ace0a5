"""A simulated ensemble: jobs, their events, and the truth about them.

Times are seconds since 1970; no code of metlmon is used and no log is read, so that the truth is
independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

from tests.generated import events
from tests.generated.events import Slot
from tests.generated.places import PLACES, Place

ZONE: Final = ZoneInfo("America/Chicago")
EPOCHS: Final = 30
HETEROGENEOUS: Final = 16
CONTROL: Final = 5
HOUR: Final = 3600
CHECKPOINTED: Final = 85
"""The return value of a training that is to be run again."""

LEASE: Final = 2400
"""Seconds until a disconnected job is given up (JobLeaseDuration's default)."""


def moment(text: str) -> int:
    """Seconds since 1970 of a local time."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZONE).timestamp())


TWICE: Final = (moment("2025-11-02 00:59"), moment("2025-11-02 02:01"))
"""Around the hour that exists twice: nothing is logged in it, so that each stamp has one
meaning whatever reads it; executions and months lie across it."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a DAG's DAGMan. ``end`` None: until all nodes are done."""

    start: int
    end: int | None = None


@dataclass(frozen=True, slots=True)
class DagPlan:
    """One DAG: its file, its runs by name and uuid, its lives."""

    file: str
    runs: tuple[tuple[str, str], ...]
    lives: tuple[Life, ...]
    epochs: int = EPOCHS


@dataclass(slots=True)
class Execution:
    """The truth of one execution. ``cause``: ``kind code/subcode``, None of a good one."""

    slot: Slot
    start: int
    end: int = 0
    cause: str | None = None
    return_value: int | None = None

    @property
    def gpu_seconds(self) -> int:
        return (self.end - self.start) * len(self.slot.gpus)


@dataclass(slots=True)
class Moved:
    """One transfer: ``outcome`` as in ``metlmon/README.md``."""

    direction: str
    start: int
    end: int = 0
    outcome: str = "ok"


@dataclass(slots=True)
class Job:
    """One submission of a node."""

    dag: int
    run: str
    epoch: int
    submitted: int
    cluster: int = 0
    lines: list[tuple[int, Callable[[str], str]]] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    transfers: list[Moved] = field(default_factory=list)
    holds: list[tuple[int, str]] = field(default_factory=list)
    moved: list[tuple[int, int, int]] = field(default_factory=list)
    memory: list[tuple[int, int]] = field(default_factory=list)
    completed: bool = False

    @property
    def node(self) -> str:
        return f"{self.run}-train_epoch{self.epoch}"

    @property
    def last(self) -> int:
        """The time of its last event."""
        return self.lines[-1][0]


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The whole ensemble. ``jobs`` in order of submission; ``dagmans``: cluster, DAG, life."""

    dags: tuple[DagPlan, ...]
    jobs: tuple[Job, ...]
    dagmans: tuple[tuple[int, int, Life], ...]
    targets: dict[str, str]
    seeds: dict[str, int]


# --- one job ----------------------------------------------------------------------------------


class JobLog:
    """Writes one job's events: ``now`` advances with every step."""

    def __init__(self, job: Job, rng: Random, memory_every: float | None) -> None:
        self.job, self.rng, self.now = job, rng, job.submitted
        self.memory_every = memory_every
        self.slot: Slot | None = None
        self.say(lambda head: events.submitted(head, job.node))

    def say(self, text: Callable[[str], str]) -> None:
        self.job.lines.append((self.now, text))

    def passes(self, seconds: float) -> None:
        self.now = _once(self.now + max(1, round(seconds)))

    def waits(self, place: Place) -> None:
        """Stay idle until a slot is found."""
        median = 14 * HOUR if place.target == "ospool" else 26 * HOUR
        self.passes(self.rng.lognormvariate(0, 0.9) * median + 60)
        self.slot = choose_slot(place, self.rng)

    def fetches(self, stall: bool = False) -> Slot:
        """The input transfer."""
        slot = self.slot
        assert slot is not None
        waited = None
        if self.rng.random() < 0.25:
            self.say(lambda head: events.queued(head, "input"))
            waited = self.rng.randint(2, 900)
            self.passes(waited)
        self.say(lambda head: events.transfer_started(head, "input", slot, waited))
        self.job.transfers.append(Moved("input", self.now))
        if not stall:
            self.passes(self.rng.lognormvariate(0, 0.5) * 420 + 40)
            self.say(lambda head: events.transfer_finished(head, "input"))
            self.job.transfers[-1].end = self.now
        return slot

    def starts(self, place: Place) -> Slot:
        self.waits(place)
        slot = self.fetches()
        self.say(lambda head: events.executing(head, slot))
        self.job.executions.append(Execution(slot, self.now))
        return slot

    def works(self, seconds: float, quiet: bool = False) -> None:
        """Run: memory is reported at times, unless ``quiet``."""
        end = self.now + max(60, round(seconds))
        mb = self.rng.randint(9000, 11000)
        step = self.memory_every or max(300.0, seconds / self.rng.choice((1.5, 2.5, 3.5)))
        while not quiet and self.now + step < end - 60:
            self.passes(step)
            mb += self.rng.randint(0, 900) if mb < 40000 else 0
            self.say(lambda head, mb=mb: events.memory(head, mb))
            self.job.memory.append((self.now, mb))
        self.passes(max(1, end - self.now))

    def uploads(self) -> None:
        """The output transfer, or a checkpoint's in mid-run."""
        slot = self.slot
        assert slot is not None
        self.say(lambda head: events.transfer_started(head, "output", slot))
        self.job.transfers.append(Moved("output", self.now))
        self.passes(self.rng.randint(8, 240))
        self.say(lambda head: events.transfer_finished(head, "output"))
        self.job.transfers[-1].end = self.now

    def ends(self, cause: str | None) -> Execution:
        execution = self.job.executions[-1]
        execution.end, execution.cause = self.now, cause
        return execution

    def settles(self, outcome: str) -> None:
        """Its last transfer failed."""
        last = self.job.transfers[-1]
        last.outcome, last.end = outcome, last.end or self.now

    def is_evicted(self, code: int, subcode: int, reason: str, ran: bool = True) -> None:
        slot = self.slot
        assert slot is not None
        bytes_ = self._moves(self.rng.randint(0, 9000), _input(self.rng)) if ran else (0, 0)
        self.say(lambda head: events.evicted(head, slot, code, subcode, reason, bytes_))
        if ran:
            self.ends(f"evicted {code}/{subcode}")
        elif not self.job.moved or self.job.moved[-1][0] != self.now:
            self._moves(0, 0)

    def is_held(self, code: int, subcode: int, reason: str) -> None:
        self.say(lambda head: events.held(head, code, subcode, reason))
        self.job.holds.append((self.now, f"{code}/{subcode}"))
        self.passes(self.rng.lognormvariate(0, 1.0) * 5 * HOUR)
        self.say(events.released)

    def terminates(self, value: int | None, signal: int | None = None) -> None:
        slot = self.slot
        assert slot is not None
        good = value in (0, CHECKPOINTED)
        sent = 1_180_000_000 + self.rng.randint(0, 9_999_999) if good else 11597
        moved = self._moves(sent, _input(self.rng))
        total = (sum(m[1] for m in self.job.moved), sum(m[2] for m in self.job.moved))
        word = f"signal {signal}" if signal is not None else f"failed {value}"
        execution = self.ends(None if good else word)
        execution.return_value = value
        seconds, mb = execution.end - execution.start, self.rng.randint(12000, 41000)
        self.job.memory.append((self.now, mb))
        self.say(
            lambda head: events.terminated(head, slot, seconds, value, signal, moved, total, mb)
        )
        self.job.completed = value == 0

    def _moves(self, sent: int, received: int) -> tuple[int, int]:
        self.job.moved.append((self.now, sent, received))
        return sent, received


def _once(when: int) -> int:
    """``when``, but never in the repeated hour."""
    first, last = TWICE
    return last + (when - first) // 60 if first <= when < last else when


def choose_slot(place: Place, rng: Random) -> Slot:
    number = rng.randint(1, 60)
    host = place.host.format(number)
    gpus = 1
    if place.most_gpus > 1:
        gpus = rng.choices(range(1, place.most_gpus + 1), [6, 3, 0, 1][: place.most_gpus])[0]
    name = f"slot1_{rng.randint(1, 8)}@"
    if place.resource:
        name += f"glidein_{rng.randint(100, 999)}_{rng.randint(10**8, 10**9)}@"
    ids = tuple(f"GPU-{rng.getrandbits(32):08x}" for _ in range(gpus))
    return Slot(place, host, name + host, f"198.51.100.{number}", ids)


def _input(rng: Random) -> int:
    return 26_479_000_000 + rng.randint(0, 999_999)


# --- what goes wrong --------------------------------------------------------------------------


def training_seconds(place: Place, slot: Slot, rng: Random) -> float:
    """The duration of an epoch here: the usual one with some spread, less with more GPUs."""
    return place.hours * HOUR * rng.lognormvariate(0, 0.09) / len(slot.gpus) ** 0.9


def evicted_while_running(t: JobLog, place: Place) -> None:
    slot = t.starts(place)
    t.works(training_seconds(place, slot, t.rng) * t.rng.uniform(0.05, 0.95))
    t.is_evicted(1005, 0, "Unspecified job interruption")


def stalled_input(t: JobLog, place: Place) -> None:
    t.waits(place)
    slot = t.fetches(stall=True)
    silence = t.rng.randint(3610, 3660)
    t.passes(silence)
    text = f"Input File transfer stalled for {silence} seconds"
    t.say(lambda head: events.remote_error(head, slot, text))
    t.is_evicted(1007, 0, f"Error from {slot.name}: {text}", ran=False)
    t.settles("unfinished")


def _quota(t: JobLog, place: Place) -> None:
    slot = t.starts(place)
    t.works(training_seconds(place, slot, t.rng) * t.rng.uniform(0.05, 0.9))
    file = f"{t.job.run}/{t.job.epoch + 1}.out"
    text = f"StreamHandler: stdout: couldn't write to {file}: Disk quota exceeded (-1!=106)"
    t.say(lambda head: events.remote_error(head, slot, text))
    t.is_evicted(1007, 0, f"Error from {slot.name}: {text}")


def lost_contact(t: JobLog, place: Place) -> None:
    slot = t.starts(place)
    t.works(training_seconds(place, slot, t.rng) * t.rng.uniform(0.1, 0.9))
    t.say(lambda head: events.disconnected(head, slot))
    t.passes(LEASE)
    t.say(lambda head: events.reconnect_failed(head, slot))
    t.ends("reconnect-failed")
    t.passes(10)
    t.is_evicted(1008, 0, "Reconnect failed", ran=False)


def _no_room(t: JobLog, place: Place) -> None:
    slot = t.starts(place)
    t.works(training_seconds(place, slot, t.rng))
    t.say(lambda head: events.transfer_started(head, "output", slot))
    t.job.transfers.append(Moved("output", t.now))
    t.passes(31)
    reason = (
        "Transfer output files failure at access point ap40 while receiving files from "
        f"execution point {slot.name}. Details: writing to file output/training_logs/"
        f"checkpoints/epoch={t.job.epoch}-val_loss=0.{t.rng.randint(100, 999)}.ckpt: "
        "(errno 122) Disk quota exceeded"
    )
    t.is_evicted(12, 122, reason)
    t.settles("unfinished")
    t.is_held(12, 122, reason)


def _no_input(t: JobLog, place: Place) -> None:
    t.waits(place)
    slot = t.fetches()
    reason = (
        "Transfer input files failure at access point ap40 while sending files to execution "
        f"point {slot.name}. Details: 1 total failures: first failure: reading from file "
        "output/training_logs/checkpoints: (errno 2) No such file or directory"
    )
    t.is_evicted(13, 2, reason, ran=False)
    t.settles("aborted")
    t.is_held(13, 2, reason)


def _too_long(t: JobLog, place: Place) -> None:
    # Only the hold ends the execution: no 004 is logged.
    slot = t.starts(place)
    t.works(training_seconds(place, slot, t.rng) * t.rng.uniform(1.1, 1.4))
    t.ends("held 26/0")
    t.is_held(26, 0, "Job exceeded allowed execute duration for its category")


def over_memory(t: JobLog, place: Place) -> None:
    slot = t.starts(place)
    t.works(training_seconds(place, slot, t.rng) * t.rng.uniform(0.02, 0.6))
    reason = (
        f"Error from {slot.name}: Job has gone over cgroup memory limit of 64000 megabytes. "
        f"Last measured usage: {t.rng.randint(62000, 63990)} megabytes.  Consider resubmitting "
        "with a higher request_memory."
    )
    t.is_evicted(34, 102, reason)
    t.is_held(34, 102, reason)


def _fails(t: JobLog, place: Place) -> None:
    t.starts(place)
    t.works(t.rng.lognormvariate(0, 1.0) * 1500)
    t.uploads()
    t.terminates(1)


def _killed(t: JobLog, place: Place) -> None:
    t.starts(place)
    t.works(t.rng.uniform(0.2, 3.0) * HOUR)
    t.terminates(None, 9)


def _shadow(t: JobLog, place: Place) -> None:
    slot = t.starts(place)
    t.works(training_seconds(place, slot, t.rng) * t.rng.uniform(0.1, 0.8))
    reason = f"Error from {slot.name}: FileLock::obtain(1) failed - errno 5"
    t.say(lambda head: events.shadow_exception(head, reason))
    t.ends("shadow-exception")


def _silent(t: JobLog, place: Place) -> None:
    # Its end is not logged; it is removed hours later, which restarts it.
    slot = t.starts(place)
    t.works(training_seconds(place, slot, t.rng) * t.rng.uniform(0.5, 1.5), quiet=True)
    t.say(lambda head: events.removed(head, "via condor_rm (by user researcher)"))
    t.ends("removed")


def _removed(t: JobLog, place: Place) -> None:
    slot = t.starts(place)
    t.works(training_seconds(place, slot, t.rng) * t.rng.uniform(0.1, 0.9))
    t.is_evicted(1023, 0, "via condor_rm (by user researcher)")
    t.say(lambda head: events.removed(head, "via condor_rm (by user researcher)"))


def _checkpointed(t: JobLog, place: Place) -> None:
    slot = t.starts(place)
    t.works(training_seconds(place, slot, t.rng))
    t.uploads()
    t.terminates(CHECKPOINTED)


def _late_loss(t: JobLog, place: Place) -> None:
    slot = t.starts(place)
    t.works(training_seconds(place, slot, t.rng) * 0.99)
    t.is_evicted(1005, 0, "Unspecified job interruption")


Act = Callable[[JobLog, Place], None]

OVER: Final[frozenset[Act]] = frozenset({_fails, _killed, _silent, _removed, _checkpointed})
"""After these the job is over and DAGMan submits the node again."""

SHORT: Final[frozenset[Act]] = frozenset({_checkpointed, _late_loss})
"""After these the epoch has been trained: what succeeds only validates it."""

DECK: Final[tuple[tuple[Act, int], ...]] = (
    (evicted_while_running, 48),
    (stalled_input, 14),
    (_quota, 14),
    (lost_contact, 10),
    (_no_room, 12),
    (_no_input, 10),
    (_too_long, 6),
    (over_memory, 16),
    (_fails, 34),
    (_killed, 4),
    (_shadow, 4),
    (_silent, 3),
    (_removed, 5),
    (_checkpointed, 9),
    (_late_loss, 5),
)
"""How often each kind of trouble is met in 630 epochs."""


def _succeeds(t: JobLog, place: Place, short: bool) -> None:
    slot = t.starts(place)
    seconds = training_seconds(place, slot, t.rng)
    if short:
        t.works(seconds * t.rng.uniform(0.01, 0.04))
    else:
        kind = t.rng.random()
        t.works(seconds * 0.5)
        if kind < 0.10:
            t.uploads()
        elif kind < 0.14:
            t.say(lambda head: events.disconnected(head, slot))
            t.passes(t.rng.randint(20, LEASE - 60))
            t.say(lambda head: events.reconnected(head, slot))
        elif kind < 0.15:
            t.say(events.suspended)
            t.passes(t.rng.randint(60, 4000))
            t.say(events.unsuspended)
        t.works(seconds * 0.5)
    t.uploads()
    t.terminates(0)


# --- the ensemble -----------------------------------------------------------------------------


def live(seed: int) -> Ensemble:
    """The first round: 16 heterogeneous and 5 control runs of 30 epochs, all completed."""
    rng = Random(seed)
    dags = _plans(rng)
    final = _final_places(dags, rng)
    return lived_through(seed, dags, final, _troubles(final, rng), rng)


def lived_through(
    seed: int,
    dags: tuple[DagPlan, ...],
    final: dict[tuple[str, int], Place],
    troubles: dict[tuple[str, int], list[tuple[Act, Place]]],
    rng: Random,
    memory_every: float | None = None,
) -> Ensemble:
    """Simulate these DAGs, where each epoch completes at its place and after its troubles."""
    jobs: list[Job] = []
    for number, plan in enumerate(dags):
        for run, uuid in plan.runs:
            own = Random(f"{seed} {uuid}")
            jobs += _run(number, plan, run, final, troubles, own, memory_every)
    jobs.sort(key=lambda job: (job.submitted, job.node))
    return Ensemble(
        dags,
        tuple(jobs),
        number_clusters(dags, jobs),
        {f"{run}-train_epoch{epoch}": place.target for (run, epoch), place in final.items()},
        {run: rng.randint(100000, 999999) for plan in dags for run, _ in plan.runs},
    )


def _plans(rng: Random) -> tuple[DagPlan, ...]:
    def runs(kind: str, count: int) -> tuple[tuple[str, str], ...]:
        return tuple((f"{kind}{n}", f"{rng.getrandbits(32):08x}") for n in range(count))

    return (
        DagPlan(
            "heterogeneous.dag",
            runs("hetero", HETEROGENEOUS),
            (
                Life(moment("2025-09-08 10:12:07"), moment("2025-09-29 16:41:30")),
                Life(moment("2025-10-02 09:05:12"), moment("2025-10-29 22:17:48")),
                Life(moment("2025-10-30 11:30:02")),
            ),
        ),
        DagPlan("control.dag", runs("control", CONTROL), (Life(moment("2025-10-01 13:50:41")),)),
    )


def _final_places(dags: tuple[DagPlan, ...], rng: Random) -> dict[tuple[str, int], Place]:
    """The place where each epoch will complete."""
    final: dict[tuple[str, int], Place] = {}
    for number, plan in enumerate(dags):
        hand = [place for place in PLACES for _ in range(place.shares[number])]
        rng.shuffle(hand)
        keys = [(run, epoch) for run, _ in plan.runs for epoch in range(EPOCHS)]
        final.update(zip(keys, hand, strict=True))
    return final


def _troubles(
    final: dict[tuple[str, int], Place], rng: Random
) -> dict[tuple[str, int], list[tuple[Act, Place]]]:
    """The troubles before, and their places: mostly at another site of the same target."""
    dealt: dict[tuple[str, int], list[tuple[Act, Place]]] = {}
    hand = [act for act, count in DECK for _ in range(count)]
    rng.shuffle(hand)
    last = [act for act in hand if act in SHORT]
    others = [act for act in hand if act not in SHORT]
    keys = list(final)
    for act in others:
        key = rng.choice(keys)
        alike = [p for p in PLACES if p.target == final[key].target and _served(p, key[0])]
        if len(dealt.get(key, ())) < 3:
            dealt.setdefault(key, []).append((act, rng.choice(alike)))
    for key, act in zip(rng.sample(keys, len(last)), last, strict=True):
        far = [p for p in PLACES if p.site != final[key].site and _served(p, key[0])]
        dealt.setdefault(key, []).append((act, rng.choice(far)))
    return dealt


def _served(place: Place, run: str) -> bool:
    return place.shares[run.startswith("control")] > 0


def _run(
    dag: int,
    plan: DagPlan,
    run: str,
    final: dict[tuple[str, int], Place],
    troubles: dict[tuple[str, int], list[tuple[Act, Place]]],
    rng: Random,
    memory_every: float | None,
) -> Iterator[Job]:
    """The jobs of one run, over all lives of its DAG."""
    lives = iter(plan.lives)
    life = next(lives)
    now = life.start + rng.randint(2, 40)
    for epoch in range(plan.epochs):
        acts = list(troubles.get((run, epoch), ()))
        trained = completed = False
        while not completed:
            if life.end is not None and now >= life.end:
                life = next(lives)
                now = life.start + rng.randint(2, 40)
            result = JobLog(Job(dag, run, epoch, now), rng, memory_every)
            trained = _tries(result, acts, trained, final[(run, epoch)])
            if life.end is not None and result.job.last >= life.end:
                _cut(result.job, life.end)
                # Its training may be lost with the DAG: it trains again.
                trained = False
            completed = result.job.completed
            yield result.job
            now = result.now + rng.randint(5, 12)


def _tries(report_of: JobLog, acts: list[tuple[Act, Place]], trained: bool, final: Place) -> bool:
    """One job of an epoch: its troubles, until the job is over or has succeeded. Returns whether
    the epoch has been trained by then."""
    while acts:
        act, place = acts.pop(0)
        act(report_of, place)
        trained = trained or act in SHORT
        if act in OVER:
            return trained
    _succeeds(report_of, final, trained)
    return True


def _cut(job: Job, when: int) -> None:
    """The DAG is removed, and the job with it."""
    job.lines = [line for line in job.lines if line[0] < when]
    job.executions = [e for e in job.executions if e.start < when]
    job.transfers = [t for t in job.transfers if t.start < when]
    job.holds = [h for h in job.holds if h[0] < when]
    job.moved = [m for m in job.moved if m[0] < when]
    job.completed = False
    reason = "DAG Removed: User removed scheduler job from queue. (by user researcher)"
    running = job.executions[-1] if job.executions else None
    moving = job.transfers[-1] if job.transfers else None
    if running is not None and running.end >= when:
        slot = running.slot
        running.end, running.cause, running.return_value = when, "evicted 1023/0", None
        job.moved.append((when, 0, 26_479_089_009))
        job.lines.append(
            (when, lambda head: events.evicted(head, slot, 1023, 0, reason, (0, 26_479_089_009)))
        )
    if moving is not None and (moving.end == 0 or moving.end >= when):
        moving.outcome, moving.end = "unfinished", when
    job.lines.append((when, lambda head: events.removed(head, reason)))


def number_clusters(
    dags: tuple[DagPlan, ...], jobs: list[Job]
) -> tuple[tuple[int, int, Life], ...]:
    """Number clusters in the order of submission, including DAGMans."""
    starts = [(life.start, dag, life) for dag, plan in enumerate(dags) for life in plan.lives]
    waiting: list[tuple[int, int, Job | tuple[int, Life]]] = [
        *((start, 0, (dag, life)) for start, dag, life in starts),
        *((job.submitted, 1, job) for job in jobs),
    ]
    waiting.sort(key=lambda entry: entry[:2])
    dagmans = []
    for cluster, (_, _, who) in enumerate(waiting, start=11_845_017):
        if isinstance(who, Job):
            who.cluster = cluster
        else:
            dagmans.append((cluster, *who))
    return tuple(dagmans)
