"""The cost of opening and watching a large directory, counted in calls, not in time."""

from __future__ import annotations

import builtins
import io
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metlmon.live import dagdir_reader
from metlmon.live.dagdir_reader import NON_LOGS_PER_CHECK, DagdirReader
from metlmon.model.states import State
from metlmon.snapshot.records import Status
from tests.support.dagdir_builder import NODE, Dagdir, again, log_of
from tests.support.event_logs import Log
from tests.support.patience import PATIENCE

CALLS = ("stat", "lstat", "listdir", "scandir", "open", "readlink")


@pytest.fixture(name="counted")
def _counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls of the file system's functions; an open counts once, whatever function is used."""
    counted: Counter[str] = Counter()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counts(*given: Any, **named: Any) -> Any:
            counted[name] += 1
            return function(*given, **named)

        return counts

    for name in CALLS:
        monkeypatch.setattr(os, name, counting(name, getattr(os, name)))
    opens = counting("open", builtins.open)
    monkeypatch.setattr(builtins, "open", opens)
    monkeypatch.setattr(io, "open", opens)
    return counted


def fill(dagdir: Dagdir, count: int, name: str) -> None:
    for number in range(count):
        with open(f"{dagdir.path}/{name.format(number)}", "wb") as file:
            file.write(b"written by a job\n")


def opened(dagdir: Dagdir) -> DagdirReader:
    reader = DagdirReader(dagdir.path, live=True)
    reader.open()
    while reader.step(PATIENCE).more:
        pass
    return reader


def calls(counted: Counter[str], what: Callable[[], object]) -> Counter[str]:
    counted.clear()
    what()
    return Counter(counted)


@pytest.fixture(name="in_memory")
def _in_memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where many files are made fast, if possible."""
    memory = Path("/dev/shm")
    place = memory / f"metlmon-test-{os.getpid()}" if os.access(memory, os.W_OK) else tmp_path / "m"
    # The parent directory is listed, too: no other process writes there.
    (place / "ensemble").mkdir(parents=True)
    yield place / "ensemble"
    shutil.rmtree(place)


def test_outputs_beside_the_logs_are_not_opened(in_memory: Path, counted: Counter[str]) -> None:
    """Twenty thousand of them."""
    dagdir = Dagdir(in_memory)
    dagdir.write("metl.log", log_of(7))
    few = calls(counted, lambda: opened(dagdir))
    for number in range(20_000):
        os.mknod(f"{dagdir.path}/run{number}_1.out")
    many = calls(counted, lambda: opened(dagdir))
    # On a busy machine it is listed once more.
    assert sum((many - few).values()) < 100, "none of its other files is asked for"
    reader = opened(dagdir)
    for _ in range(3):
        assert sum(calls(counted, reader.check).values()) < 30
    dagdir.write("new.out", "x")
    assert sum(calls(counted, reader.check).values()) < 40


def test_files_named_like_logs_are_opened_once(in_memory: Path, counted: Counter[str]) -> None:
    """Three thousand outputs called ``*.log``: each is opened once, and checked in turn."""
    dagdir = Dagdir(in_memory)
    dagdir.write("metl.log", log_of(7))
    fill(dagdir, 3_000, "job{}.log")
    # One that has just changed is listed again at every look.
    os.utime(dagdir.path, (0, 0))
    reader = opened(dagdir)
    for _ in range(3):
        some = calls(counted, reader.check)
        assert some["stat"] < NON_LOGS_PER_CHECK + 30
        assert some["open"] < 5
    dagdir.write("new.out", "x")
    assert calls(counted, reader.check)["open"] < 5, "a new name beside them opens none again"


def test_fifty_dags_share_one_listing(in_memory: Path, counted: Counter[str]) -> None:
    dagdir = Dagdir(in_memory, "")
    for number in range(50):
        dagdir.write(f"d{number}.dag", f"JOB {NODE} t.sub\n")
    fill(dagdir, 2_000, "run{}.out")
    reader = opened(dagdir)
    dagdir.write("new.out", "x")
    looked = calls(counted, reader.check)
    assert looked["listdir"] + looked["scandir"] < 10
    assert looked["stat"] < 50 * 12


def test_logs_of_queued_jobs_are_checked_at_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others in turn: the log of a finished job rarely grows."""
    monkeypatch.setattr(dagdir_reader, "LOGS_AT_ONCE", 3)
    dagdir = Dagdir(tmp_path, "")
    for cluster in range(10, 20):
        log = Log().submit(cluster).execute(cluster)
        dagdir.write(f"{cluster}.log", (log if cluster == 19 else log.terminate(cluster)).data)
    reader = dagdir.reader(live=True)
    # The last snapshot has the queued jobs.
    assert states(again(reader)) == {State.COMPLETED: 9, State.RUNNING: 1}
    dagdir.append("19.log", Log().terminate(19, 0, at="11:00:00").data)
    assert states(again(reader)) == {State.COMPLETED: 10}, "the log of a running job"
    dagdir.write("30.log", Log().submit(30, at="11:00:00").data)
    assert states(again(reader)) == {State.COMPLETED: 10, State.IDLE: 1}, "a new log"
    dagdir.append("17.log", Log().submit(40, at="11:00:00").data)
    found = [states(again(reader)).get(State.IDLE) for _ in range(4)]
    assert found[-1] == 2, "a log of a job that had ended, in its turn"


def states(status: Status) -> dict[State, int]:
    return {state: count for state, count in status.node_states.items() if count}
