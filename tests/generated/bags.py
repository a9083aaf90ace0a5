"""A simulated bag: shards on so many machines, some slow, some evicted, some held.

Times are seconds since its beginning; no code of metlmon is used, so that its truth is independent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from math import log
from pathlib import Path
from random import Random
from typing import Final

from tests.support.event_logs import Log, Out, log_of_events

BEGUN: Final = datetime(2026, 5, 4, 8)
MINUTES, SLOW, BROKEN = 40.0, 0.03, 0.05
SITES: Final = ("delta", "expanse", "CHTC-Spark-CE1", "aws")


@dataclass(frozen=True)
class Attempt:
    """One execution of a shard; ``how`` it ended: good, evicted, held."""

    shard: int
    site: str
    start: int
    end: int
    how: str


@dataclass
class SimulatedBag:
    """``attempts`` in order of their start; ``submitted``: the time of each shard; ``over``: the
    end of the last one."""

    shards: int
    attempts: list[Attempt] = field(default_factory=list)
    submitted: list[int] = field(default_factory=list)

    @property
    def over(self) -> int:
        return max(each.end for each in self.attempts)


def live(shards: int, machines: int, seed: int) -> SimulatedBag:
    """Each machine takes the next shard when it is free. SLOW shards take four times as long on a
    machine; BROKEN attempts are evicted halfway, and queued again."""
    rng = Random(seed)
    lived = SimulatedBag(shards, submitted=[30 + 2 * n for n in range(shards)])
    queue = [(lived.submitted[n], n) for n in range(shards)]
    free = [(90 + 45 * n, n) for n in range(machines)]
    while queue:
        ready, shard = heappop(queue)
        at, machine = heappop(free)
        start = max(at, ready) + rng.randint(5, 40)
        took = rng.lognormvariate(log(MINUTES * 60), 0.2)
        took *= 4 if rng.random() < SLOW else 1
        how = "good"
        if rng.random() < BROKEN:
            how, took = "evicted", took * rng.random()
        end = start + max(60, round(took))
        lived.attempts.append(Attempt(shard, SITES[machine % len(SITES)], start, end, how))
        heappush(free, (end, machine))
        if how != "good":
            heappush(queue, (end, shard))
    lived.attempts.sort(key=lambda each: each.start)
    return lived


def dag_text(shards: int, gather: bool = True) -> str:
    """The DAG file: shards, and a node that gathers their outputs."""
    width = len(str(shards - 1))
    names = [f"shard{n:0{max(3, width)}}" for n in range(shards)]
    lines = [f"JOB {name} infer.sub" for name in names]
    lines += [f'VARS {name} shard="{n}" shards="{shards}"' for n, name in enumerate(names)]
    if gather:
        lines += ["JOB gather gather.sub", f"PARENT {' '.join(names)} CHILD gather"]
    return "\n".join([*lines, "RETRY ALL_NODES 3", ""])


def name_of(shard: int, shards: int) -> str:
    return f"shard{shard:0{max(3, len(str(shards - 1)))}}"


def event_log(lived: SimulatedBag, until: int | None = None, held: tuple[int, ...] = ()) -> Log:
    """HTCondor's log up to a time (None: all of it). ``held``: shards whose running attempts were
    held at that time."""
    until = lived.over if until is None else until
    ends = {"good": Log.terminate, "evicted": Log.evict}
    reason = "memory usage exceeded request_memory"
    found = [
        (at, partial(Log.submit, job=1000 + shard, node=name_of(shard, lived.shards)))
        for shard, at in enumerate(lived.submitted)
    ]
    for each in lived.attempts:
        job = 1000 + each.shard
        found.append((each.start, partial(Log.execute, job=job, site=each.site, gpu="NVIDIA A40")))
        found.append((each.end, partial(ends[each.how], job=job)))
        if each.start <= until < each.end and each.shard in held:
            hold = partial(Log.hold, job=job, code=34, reason=reason, subcode=102)
            found += [(until, partial(Log.evict, job=job)), (until, hold)]
    times = ((BEGUN + timedelta(seconds=at), write) for at, write in found if at <= until)
    return log_of_events(times, "bag.log")


def write(
    directory: Path, lived: SimulatedBag, until: int | None = None, held: tuple[int, ...] = ()
) -> None:
    """Write the DAG file, the event log up to a time, and DAGMan's own file."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "bag.dag").write_text(dag_text(lived.shards))
    for name in ("infer", "gather"):
        text = f"executable = {name}.sh\nrequest_gpus = 1\nlog = bag.log\nqueue\n"
        (directory / f"{name}.sub").write_text(text)
    (directory / "bag.log").write_bytes(event_log(lived, until, held).data)
    out = Out().start(str(BEGUN))
    for shard, at in enumerate(lived.submitted):
        if until is None or at <= until:
            when = str(BEGUN + timedelta(seconds=at))
            out.submitted(name_of(shard, lived.shards), 1000 + shard, when)
    (directory / "bag.dag.dagman.out").write_bytes(out.data)
