"""The cost of showing a log is proportional to the number of its events, whatever they are."""

from __future__ import annotations

import cProfile
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from metlmon.cli.reading import read_whole
from metlmon.eventlog.events import EVENT_TYPES
from metlmon.live.feed import StatsInput
from metlmon.live.session import Session
from metlmon.snapshot.derive import latest_by
from metlmon.stats.estimates import make_forecast
from metlmon.stats.pool_profiles import profiles_in_window
from metlmon.stats.timeline import build_timeline
from metlmon.stats.usage import site_usage

BEGUN: Final = datetime(2026, 1, 5, 9)
EXECUTE: Final = "Job executing on host: <10.0.0.2:9618?addrs=10>\n\tSlotName: slot1@host#\n"
HELD: Final = "Job was held.\n\tError from slot: no space left\n\tCode 12 Subcode 28\n"
RELEASED: Final = "Job was released.\n\tvia condor_release\n"
NO_USE: Final = "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run "
EVICTED: Final = (
    f"Job was evicted.\n\t(0) CPU times\n{NO_USE}Remote Usage\n{NO_USE}Local Usage\n"
    "\t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job\n"
)
TEXTS: Final = {
    1: EXECUTE,
    3: "Job was checkpointed.\n",
    4: EVICTED,
    5: "Job terminated.\n\t(1) Normal termination (return value 1)\n",
    6: "Image size of job updated: 12\n\t3  -  MemoryUsage of job (MB)\n",
    7: "Shadow exception!\n\tlost\n",
    9: "Job was aborted.\n\tvia condor_rm\n",
    10: "Job was suspended.\n\tNumber of processes actually suspended: 1\n",
    11: "Job was unsuspended.\n",
    12: HELD,
    13: RELEASED,
    16: "POST Script terminated.\n\t(1) Normal termination (return value 1)\n"
    "    DAG Node: run0-epoch0\n",
    21: "Error from slot1@host#:\n\tno space left\n",
    22: "Job disconnected, attempting to reconnect\n    Socket closed\n    Trying to reconnect\n",
    23: "Job reconnected to slot1@host#\n",
    24: "Job reconnection failed\n    Job not found\n    Can not reconnect, rescheduling job\n",
    28: 'Job ad information event triggered.\nRunUuid = "a"\n',
    40: "Started transferring output files\n\tTransferring to host: <10.0.0.2:9618>\n",
}

EVENTS: Final = dict.fromkeys((*EVENT_TYPES, 100, 200), "Something.\n") | TEXTS
"""An event of each number, and two that HTCondor does not have yet; ``#``: the host's number."""

GROUPS: Final = {
    "submitted": [0],
    "terminated": [5],
    "removed": [9],
    "all others": sorted(EVENTS.keys() - {0, 5, 9}),
}

SHAPES: Final = {
    "one job": lambda i: (1, "run0-epoch0", 0),
    "one node": lambda i: (1 + i, "run0-epoch0", i),
    "one site": lambda i: (1 + i, f"run{i}-epoch0", 0),
    "many jobs": lambda i: (1 + i, f"run{i}-epoch0", i),
}
"""By number of an event: the cluster, the node and the host."""


ROUNDS: Final = {1: (10, 20, 50), len(GROUPS["all others"]): (4, 8, 20)}
"""How often a group occurs, by the number of its events: few, more, many times."""

STRAIGHT: Final = 1.03
"""The calls for one more round, of many to of few: 1 where they do not depend on the others."""


def picture(dagdir: Path) -> None:
    session = Session(read_whole(dagdir))
    status = session.take().status
    ledger = session.ledger()
    build_timeline(ledger)
    stats_input = StatsInput(status, ledger)
    site_usage(stats_input)
    profiles_in_window(ledger)
    make_forecast(stats_input)
    assert session.job_view(1, 0) is not None


def calls(work: Callable[[], object]) -> int:
    """The number of function calls, including built-in ones; the same on every machine."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


def repeat_events(dagdir: Path, numbers: list[int], shape: str, rounds: int) -> Path:
    """A dagdir in which each of these events happens to an execution so many times."""
    dagdir.mkdir()
    (dagdir / "a.sub").write_text("executable = /bin/true\nlog = metl.log\nqueue\n")
    jobs = [SHAPES[shape](i) for i in range(rounds)]
    nodes = dict.fromkeys(node for _, node, _ in jobs)
    (dagdir / "ens.dag").write_text("".join(f"JOB {node} a.sub\n" for node in nodes))
    submitted, when = set(), BEGUN
    with (dagdir / "metl.log").open("w") as log:
        for cluster, node, host in jobs:
            events = [
                each for number in numbers for each in ((1, EXECUTE), (number, EVENTS[number]))
            ]
            if cluster not in submitted:
                submitted.add(cluster)
                first = f"Job submitted from host: <10.0.0.1:9618>\n    DAG Node: {node}\n"
                events.insert(0, (0, first))
            for code, text in events:
                when += timedelta(seconds=1)
                log.write(f"{code:03d} ({cluster:03d}.000.000) {when} ")
                log.write(text.replace("#", f".site{host}.edu") + "...\n")
    return dagdir


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("group", GROUPS)
def test_cost_of_an_event_is_independent_of_their_number(
    group: str, shape: str, tmp_path: Path
) -> None:
    rounds = ROUNDS[len(GROUPS[group])]
    dagdirs = [repeat_events(tmp_path / str(n), GROUPS[group], shape, n) for n in rounds]
    picture(dagdirs[0])  # Imports, and regular expressions are compiled.
    small, middle, large = (calls(lambda each=each: picture(each)) for each in dagdirs)
    few = (middle - small) / (rounds[1] - rounds[0])
    many = (large - middle) / (rounds[2] - rounds[1])
    assert many < STRAIGHT * few, f"{few:.0f} calls for one round, then {many:.0f}"


def test_lookups_agree_with_a_linear_search() -> None:
    choose = random.Random(7)
    for _ in range(200):
        times = [BEGUN + timedelta(seconds=choose.randrange(6)) for _ in range(choose.randrange(7))]
        last = latest_by(times)
        for second in range(-1, 8):
            when = BEGUN + timedelta(seconds=second)
            before = [index for index, time in enumerate(times) if time <= when]
            assert last(when) == (before[-1] if before else None)
