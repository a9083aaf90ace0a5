"""Annexes that start, expire and share a name, as ``condor_status`` and metlmon see them."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from annexes import IDLE_SECONDS, SimulatedAnnexes
from pools import Pool, until

from metlmon.placement.annexes import annex_command
from metlmon.pool.annex_ads import AnnexGeneration, AnnexShape

NAME, SHARED = f"annex{os.getpid()}", f"shared{os.getpid()}"
LIFETIME = 30
JOBS = 2
CLOCK_SECONDS = 2.0
"""What metlmon shows may be this much older or newer than what condor_status does."""

PRESENT = ("up", "expiring")
ABSENT = ("requested", "pending", "gone")

Slots = dict[str, "Nodes"]
"""By request id."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """What the collector has of one request: GPUs, busy GPUs, and the end of its node."""

    gpus: int
    busy: int
    end: int


@dataclass(frozen=True, slots=True)
class Look:
    """The output of one command, and the times (seconds since the epoch) around it."""

    begin: float
    end: float
    shown: Any


@dataclass(slots=True)
class Lives:
    """Three annexes of equal lifetime, polled each second: one with jobs, two that share a name."""

    pool: Pool
    annexes: SimulatedAnnexes
    directory: Path
    requests: dict[str, str] = field(default_factory=dict)
    """Request id by the words busy, new and old: these two share a name."""
    before: list[dict[str, Any]] = field(default_factory=list)
    shown: list[Look] = field(default_factory=list)
    truth: list[Look] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)
    silent: Look | None = None
    refused: Look | None = None

    def ask(self, **environment: str) -> Look:
        """``metlmon annexes``, as the user."""
        begin = time.time()
        argv = ["metlmon", "annexes", ".", "--json"]
        text = self.pool.run(argv, self.directory, **environment).stdout
        return Look(begin, time.time(), json.loads(text))

    def rows(self, shown: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The rows of our requests, by request id."""
        ours = set(self.requests.values())
        return {row["request_id"]: row for row in shown["annexes"] if row["request_id"] in ours}

    def status(self) -> Look:
        """``condor_status``, as the collector has it."""
        begin = time.time()
        names = " || ".join(f'AnnexName == "{name}"' for name in (NAME, SHARED))
        attributes = ("hpc_annex_request_id", "SlotType", "Activity", "TotalSlotGPUs", "GPUs")
        words = ("-constraint", names, "-af", *attributes, "DaemonStartTime", "DaemonStopTime")
        text = self.pool.script.inside("condor_status", *words)
        found: Slots = {}
        lines = sorted((line.split() for line in text.splitlines()), key=lambda words: words[1])
        for request, kind, activity, total, own, start, stop in reversed(lines):
            # Partitionable slots come first: they have the sum.
            if kind == "Partitionable":
                end = int(start) + LIFETIME if stop == "undefined" else int(stop)
                found[request] = Nodes(int(total), 0, end)
            elif request in found and activity == "Busy":
                nodes = found[request]
                found[request] = Nodes(nodes.gpus, nodes.busy + int(own), nodes.end)
        return Look(begin, time.time(), found)


# --- the scenario -------------------------------------------------------------------------


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that accepts connections and sends nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def lives(pool: Pool) -> Iterator[Lives]:
    """Run the scenario once: requests, start, jobs, expiry."""
    if pool.script is None:
        pytest.skip("this HTCondor was there before the tests: it has no simulated annexes")
    annexes = pool.script.annexes()
    found = Lives(pool, annexes, pool.directory("annexes"))
    try:
        live(found)
        yield found
    finally:
        for name in (NAME, SHARED):
            annexes.end(name)


def live(lives: Lives) -> None:
    pool, annexes = lives.pool, lives.annexes
    assert pool.script is not None
    user = str(pool.users[0])
    submit(lives)
    sites = list(pool.script.SITES)
    clusters = {
        "busy": annexes.request(NAME, user),
        "new": annexes.request(SHARED, user),
        "old": annexes.request(SHARED, user, LIFETIME),
    }
    for ad in pool.queue(" || ".join(f"ClusterId == {each}" for each in clusters.values())):
        word = next(word for word, cluster in clusters.items() if cluster == ad["ClusterId"])
        lives.requests[word] = ad["GlobalJobId"]
    lives.before = list(lives.rows(lives.ask().shown).values())
    refused = free_port()
    annexes.refusing_collector(NAME, refused)
    stop = threading.Event()
    with ThreadPoolExecutor(4) as threads, silent_port() as silent:
        looking = [
            threads.submit(each_second, stop, lives.status, lives.truth),
            threads.submit(each_second, stop, lives.ask, lives.shown),
        ]
        try:
            for word, gpus in (("busy", 2), ("new", 3), ("old", 1)):
                annexes.start(
                    NAME if word == "busy" else SHARED,
                    clusters[word],
                    site=sites[1],
                    seconds=LIFETIME,
                    gpus=gpus,
                    idle=IDLE_SECONDS,
                )
            others: list[Future[Look]] = [
                threads.submit(lives.ask, _CONDOR_ANNEX_COLLECTOR=f"127.0.0.1:{port}")
                for port in (silent, refused)
            ]
            lives.silent, lives.refused = (other.result() for other in others)
            # Its jobs are evicted, and idle again.
            until(lambda: lives.truth[-1].shown == {}, "the annexes expire", LIFETIME + 60)
            until(lambda: len(idle_jobs(lives)) == JOBS, "the jobs are idle again")
            count = len(lives.shown)
            until(lambda: len(lives.shown) > count + 1, "metlmon was asked after that")
        finally:
            stop.set()
        for each in looking:
            each.result()
    lives.last = lives.ask().shown


def each_second(stop: threading.Event, look: Callable[[], Look], looks: list[Look]) -> None:
    while not stop.wait(max(0.0, 1.0 - (time.time() - looks[-1].begin)) if looks else 0.0):
        looks.append(look())


def submit(lives: Lives) -> None:
    """Jobs that may run only in an annex."""
    text = f"""\
executable = /bin/sleep
arguments = 600
transfer_executable = False
log = metl.log
request_cpus = 1
request_memory = 128
request_gpus = 1
+TargetAnnexName = "{NAME}"
requirements = TARGET.AnnexName =?= "{NAME}"
ulog_execute_attrs = GLIDEIN_ResourceName, AnnexName
batch_name = annexes
queue {JOBS}
"""
    lives.pool.place(lives.directory / "annexes.sub", text)
    lives.pool.run(["condor_submit", "annexes.sub"], lives.directory)


def ends_of(lives: Lives, word: str) -> set[int]:
    """The ends of a request's nodes, by condor_status."""
    request = lives.requests[word]
    return {look.shown[request].end for look in lives.truth if request in look.shown}


def idle_jobs(lives: Lives) -> list[Any]:
    return lives.pool.queue("JobStatus == 1", f'TargetAnnexName == "{NAME}"')


# --- each second --------------------------------------------------------------------------


def content(row: Mapping[str, Any] | None) -> Nodes | None:
    """The row of a request's nodes in metlmon; None without nodes."""
    if row is None or row["state"] in ABSENT:
        return None
    assert row["state"] in PRESENT, row
    end = datetime.fromisoformat(row["alive_until"]).replace(tzinfo=UTC)
    return Nodes(row["gpus"], row["gpus_busy"], int(end.timestamp()))


def around(look: Look, truth: list[Look]) -> list[Slots]:
    """The states in condor_status within two seconds of a look, and the nearest ones."""
    begin, end = look.begin - CLOCK_SECONDS, look.end + CLOCK_SECONDS
    first = max((n for n, each in enumerate(truth) if each.end < begin), default=0)
    last = min((n for n, each in enumerate(truth) if each.begin > end), default=len(truth) - 1)
    return [each.shown for each in truth[first : last + 1]]


def is_between(shown: Nodes | None, expected: list[Nodes | None]) -> bool:
    """Whether ``shown`` is one of the states, or has a number of busy GPUs between theirs."""
    if shown in expected:
        return True
    nodes = [each for each in expected if each is not None]
    busy = [each.busy if each is not None else 0 for each in expected]
    return shown is not None and any(
        (shown.gpus, shown.end) == (each.gpus, each.end) and min(busy) <= shown.busy <= max(busy)
        for each in nodes
    )


def test_rows_agree_with_condor_status_each_second(lives: Lives) -> None:
    wrong = []
    for look in lives.shown:
        rows = lives.rows(look.shown)
        for word, request in lives.requests.items():
            shown = content(rows.get(request))
            expected = [slots.get(request) for slots in around(look, lives.truth)]
            if not is_between(shown, expected):
                wrong.append(f"{look.begin:.1f} {word}: {shown}, condor_status: {expected}")
    assert not wrong, "\n".join(wrong)
    seen = [content(lives.rows(look.shown).get(lives.requests["busy"])) for look in lives.shown]
    # One job may start a moment before the other.
    assert max(each.busy for each in seen if each is not None) == JOBS
    assert [each for each in seen if each is not None]


def test_annex_without_a_node_is_requested_or_pending(lives: Lives) -> None:
    states = {row["request_id"]: row["state"] for row in lives.before}
    words = {word: states[request] for word, request in lives.requests.items()}
    assert words == {"busy": "requested", "new": "requested", "old": "pending"}
    assert all(row["alive_until"] is None for row in lives.before)


def test_no_node_leaves_before_alive_until(lives: Lives) -> None:
    for word, request in lives.requests.items():
        last = max(look.end for look in lives.truth if request in look.shown)
        (end,) = ends_of(lives, word)
        assert last >= end - CLOCK_SECONDS, f"{word} left early"


def test_annexes_are_gone_and_jobs_wait_after_expiry(lives: Lives) -> None:
    rows = lives.rows(lives.last)
    assert {row["state"] for row in rows.values()} == {"gone"}
    assert rows[lives.requests["busy"]]["jobs_idle"] == JOBS
    (waits,) = (text for text in lives.last["annex_warnings"] if NAME in text)
    assert "wait" in waits
    assert "gone" in waits


def test_evictions_at_expiry_date_the_expiry(lives: Lives) -> None:
    rows = lives.rows(lives.last)
    (time_,) = rows[lives.requests["busy"]]["expiries"]
    moment = datetime.fromisoformat(time_).replace(tzinfo=UTC).timestamp()
    (end,) = ends_of(lives, "busy")
    assert end - CLOCK_SECONDS <= moment <= lives.truth[-1].end


# --- warnings -----------------------------------------------------------------------------


def test_two_annexes_of_one_name_are_two_rows_and_one_warning(lives: Lives) -> None:
    both = {lives.requests["new"], lives.requests["old"]}
    look = next(
        look
        for look in lives.shown
        if all(content(lives.rows(look.shown).get(request)) for request in both)
    )
    rows = lives.rows(look.shown)
    assert [rows[lives.requests[word]]["gpus"] for word in ("new", "old")] == [3, 1]
    sentences = [text for text in look.shown["annex_warnings"] if f"called {SHARED}" in text]
    assert len(sentences) == 1, look.shown["annex_warnings"]


def test_silent_collector_is_one_warning(lives: Lives) -> None:
    sentences = [text for text in lives.silent.shown["annex_warnings"] if "gave no answer" in text]
    assert len(sentences) == 1
    assert sentences[0].startswith("the annex collector gave no answer in 10 s (127.0.0.1:")
    states = {row["state"] for row in lives.rows(lives.silent.shown).values()}
    assert states <= {*PRESENT, "gone"}, "the requests name a collector that answers"


def test_refusing_collector_is_one_warning(lives: Lives) -> None:
    sentences = [text for text in lives.refused.shown["annex_warnings"] if "127.0.0.1" in text]
    assert len(sentences) == 1
    assert "does not let you read" in sentences[0]


def test_annexes_are_inferred_from_logs_when_nobody_answers(lives: Lives) -> None:
    port = free_port()
    shown = lives.ask(
        _CONDOR_COLLECTOR_HOST=f"127.0.0.1:{port}", _CONDOR_SCHEDD_ADDRESS_FILE="/none"
    ).shown
    assert not shown["asked"]
    assert all(row["inferred"] for row in shown["annexes"])
    assert len(shown["annex_warnings"]) == len(set(shown["annex_warnings"]))
    assert any("schedd" in text for text in shown["annex_warnings"])


# --- the command --------------------------------------------------------------------------


@pytest.mark.parametrize("names", [(), ("metl",)])
def test_htcondor_accepts_the_proposed_command(lives: Lives, names: tuple[str, ...]) -> None:
    shape = AnnexShape(
        name="metl",
        site="Delta-GPU",
        queue="gpuA100x4",
        nodes=2,
        lifetime=43200.0,
        gpus=4,
        cpus=16,
        allocation="abc123-delta-gpu",
    )
    command = annex_command(shape, AnnexGeneration.OLD, names)
    assert command is not None
    # A hidden option checks the request against the limits of the site, and exits.
    argv = ["chroot", str(lives.annexes.root), "/usr/bin/env", "_CONDOR_HPC_ANNEX_ENABLED=True"]
    argv += [*shlex.split(command), "--test", "1"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    too_long = ["999999" if word == "43200" else word for word in argv]
    assert subprocess.run(too_long, capture_output=True).returncode != 0
