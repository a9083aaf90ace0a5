"""When a session and the commands keep what they have read, and recall it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from metlmon import load
from metlmon.cli.main import main
from metlmon.live import cache_entry as kept_module
from metlmon.live import cache_session as keeping_module
from metlmon.live import cached_workflows as workflows_module
from metlmon.live import session as session_module
from metlmon.live.cache import Cache
from metlmon.live.cache_entry import CacheWrite
from metlmon.live.dagdir_reader import DagdirReader, LogReader
from metlmon.live.feed import Snapshot
from metlmon.live.session import Session
from tests.live.dagdirs import Dagdir, log_of

PATIENCE = 20.0
"""Seconds until what does not come is a failure."""


@pytest.fixture(autouse=True)
def _all_logs_are_worth_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping_module, "WORTH_KEEPING", 1)
    monkeypatch.setattr(workflows_module, "WORTH_SECONDS", 1000.0)
    # Tests run while somebody edits the code.
    monkeypatch.setattr(kept_module, "code", lambda: "this code")


@pytest.fixture(name="cache")
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """The user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Cache(tmp_path / "cache" / "metlmon")


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", log_of(77))
    return dagdir


def session(dagdir: Dagdir, cache: Cache) -> tuple[Session, DagdirReader, queue.Queue[Snapshot]]:
    reader = DagdirReader(dagdir.path, live=False, cache=cache)
    reader.open()
    pictures: queue.Queue[Snapshot] = queue.Queue()
    session = Session(reader)
    session.start(pictures.put)
    return session, reader, pictures


def recalled(dagdir: Dagdir, cache: Cache) -> int:
    """Bytes that a reader which opens the dagdir now need not read."""
    reader = DagdirReader(dagdir.path, cache=cache)
    reader.open()
    return reader.consumed_bytes


def awaited(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_session_keeps_what_it_has_read_when_all_is_shown(dagdir: Dagdir, cache: Cache) -> None:
    going, _, pictures = session(dagdir, cache)
    try:
        awaited(lambda: recalled(dagdir, cache) > 0)
        assert pictures.get(timeout=PATIENCE).progress.fraction == 1.0
    finally:
        going.stop()


def test_what_came_later_is_kept_at_its_end(
    dagdir: Dagdir, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not before it: that was kept a moment ago."""
    monkeypatch.setattr(session_module, "KEEP_SECONDS", 10_000.0)
    going, reader, _ = session(dagdir, cache)
    awaited(lambda: recalled(dagdir, cache) > 0)
    before = recalled(dagdir, cache)
    dagdir.append("metl.log", log_of(78))
    awaited(lambda: reader.consumed_bytes > before)
    assert recalled(dagdir, cache) == before
    going.stop()
    assert recalled(dagdir, cache) == reader.consumed_bytes > before


def test_what_came_while_something_was_being_kept_is_kept_after_it(
    dagdir: Dagdir, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the file system of the cache is: here it writes when somebody waits for it."""
    begun, waited = threading.Event(), threading.Semaphore(0)
    write, join = CacheWrite.write, threading.Thread.join

    def slow(self: CacheWrite) -> None:
        begun.set()
        assert waited.acquire(timeout=PATIENCE)
        write(self)

    def joining(self: threading.Thread, timeout: float | None = None) -> None:
        if self.name == "metlmon-keep" and self.is_alive():
            waited.release()
        join(self, timeout)

    monkeypatch.setattr(CacheWrite, "write", slow)
    monkeypatch.setattr(threading.Thread, "join", joining)
    going, reader, _ = session(dagdir, cache)
    assert begun.wait(PATIENCE)
    before = reader.consumed_bytes
    dagdir.append("metl.log", log_of(78))
    awaited(lambda: reader.consumed_bytes > before)
    going.stop()
    assert recalled(dagdir, cache) == reader.consumed_bytes


def test_two_sessions_are_no_problem_to_each_other(dagdir: Dagdir, cache: Cache) -> None:
    several = [session(dagdir, cache)[0] for _ in range(3)]
    dagdir.append("metl.log", log_of(78))
    for going in several:
        going.stop()
    assert recalled(dagdir, cache) > 0
    assert not list(cache.directory.glob("*.new"))


def test_where_nothing_can_be_kept_nobody_is_told(dagdir: Dagdir, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    going, reader, pictures = session(dagdir, Cache(tmp_path / "file" / "metlmon"))
    try:
        awaited(lambda: reader.consumed_bytes > 0 and not pictures.empty())
        dagdir.append("metl.log", log_of(78))
        awaited(lambda: len(reader.ensemble.jobs) == 2)
    finally:
        going.stop()
    while not pictures.empty():
        assert pictures.get().error is None


@pytest.mark.parametrize("command", ["status", "jobs", "sites"])
def test_a_command_reads_what_another_has_not(
    command: str,
    dagdir: Dagdir,
    cache: Cache,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [command, "--json", str(dagdir.path)]
    read: list[int] = []
    original = LogReader.read

    def counted(self: LogReader, *arguments: object) -> object:
        before = self.position.offset
        got = original(self, *arguments)  # type: ignore[arg-type]
        read.append(self.position.offset - before)
        return got

    monkeypatch.setattr(LogReader, "read", counted)
    assert main(words) == 0
    first = capsys.readouterr()
    assert sum(read) == len(log_of(77))
    read.clear()
    assert main(words) == 0
    assert sum(read) == 0
    again = capsys.readouterr()
    assert again.out.splitlines()[1:] == first.out.splitlines()[1:]
    assert again.err == first.err
    dagdir.append("metl.log", log_of(78))
    assert main(words) == 0
    assert sum(read) == len(log_of(78))


def test_a_notebook_has_it_too(dagdir: Dagdir, cache: Cache) -> None:
    pytest.importorskip("pandas")
    assert list(load(dagdir.path).jobs["cluster"]) == [77]
    assert recalled(dagdir, cache) > 0
    assert list(load(dagdir.path).jobs["cluster"]) == [77]


def test_the_demo_is_not_kept(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--status"]) == 0
    assert "run" in capsys.readouterr().out
    assert not cache.directory.exists()
