"""A dagdir whose logs are in the cache says what it would say if it were read from its beginning,
whatever has become of the logs and of the cache."""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import msgpack
from msgspec.structs import replace

from metlmon.cli.main import main
from metlmon.config.settings import Settings
from metlmon.live import cache as cache_module
from metlmon.live.cache import Cache, CachedLog, CacheWrite, LogFragment, entry_name, load_entry
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.discovery import LogFile
from metlmon.live.feed import Snapshot
from metlmon.live.session import Session
from tests.conftest import SHARED
from tests.support.dagdir_builder import DAG, NODE, Dagdir, log_of
from tests.support.event_logs import Log, Out
from tests.support.patience import PATIENCE
from tests.support.recordings import report_of, writable_copy

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
NEXT = "run0-train_epoch1"

RECORDED = [
    *(FIXTURES / name for name in ("demo", "rescue", "holds", "scripts", "shared-log", "trainer")),
    *(FIXTURES / name for name in ("gated", "machines")),
    SHARED / "examples/pool-ensemble",
    SHARED / "examples/metl-aws",
]

GROWING = (".log", ".dagman.out")


@pytest.fixture(autouse=True)
def _one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run while somebody edits the code."""
    monkeypatch.setattr(cache_module, "parser_version", lambda: "this version")


def opened(
    path: Path, cache: Cache | None = None, settings: Settings | None = None
) -> DagdirReader:
    reader = DagdirReader(path, settings, live=False, cache=cache)
    reader.open()
    return reader


def read(path: Path, cache: Cache | None = None, settings: Settings | None = None) -> DagdirReader:
    reader = opened(path, cache, settings)
    reader.read_all()
    return reader


def log_bytes(path: Path) -> int:
    return sum(log.stat().st_size for log in path.glob("*.log"))


def assert_same(reader: DagdirReader, settings: Settings | None = None) -> None:
    """It says what a reader of the whole files says."""
    fresh, cached = report_of(read(Path(reader.path_given), None, settings)), report_of(reader)
    assert cached == fresh


# --- appended -----------------------------------------------------------------------------


def copied_up_to(source: Path, target: Path, share: Callable[[], float]) -> dict[Path, bytes]:
    """Copy a recording without the ends of the files that grow; return those ends."""
    writable_copy(source, target, "output", "*.out", "*.err")
    rests = {}
    for path in sorted(source.iterdir()):
        if path.name.endswith(GROWING):
            data = path.read_bytes()
            end = int(len(data) * share())
            (target / path.name).write_bytes(data[:end])
            os.chmod(target / path.name, 0o644)
            rests[target / path.name] = data[end:]
    os.chmod(target, 0o755)
    return rests


@pytest.mark.parametrize("source", RECORDED, ids=lambda path: path.name)
def test_what_has_been_appended_is_read_on(source: Path, tmp_path: Path, cache: Cache) -> None:
    if not source.is_dir():
        pytest.skip("the real recording is not beside this checkout")
    dice = random.Random(source.name)
    dagdir = tmp_path / "ensemble"
    rests = copied_up_to(source, dagdir, dice.random)
    read(dagdir, cache)
    for path, rest in rests.items():
        with open(path, "ab") as file:
            file.write(rest)
    reader = opened(dagdir, cache)
    assert reader.cached_bytes > 0
    reader.read_all()
    assert reader.cached_bytes == 0
    assert_same(reader)
    again = read(dagdir, cache)
    assert_same(again)


def test_a_session_that_goes_on_is_cached_as_it_went_on(dagdir: Dagdir, cache: Cache) -> None:
    dagdir.write("metl.log", log_of(77))
    reader = read(dagdir.path, cache)
    dagdir.append("metl.log", log_of(78, node=NEXT))
    reader.check()
    reader.read_all()
    last = opened(dagdir.path, cache)
    assert last.cached_bytes == log_bytes(dagdir.path)
    last.read_all()
    assert_same(last)


def test_a_torn_event_is_read_when_it_is_whole(dagdir: Dagdir, cache: Cache) -> None:
    event = log_of(78, node=NEXT)
    dagdir.write("metl.log", log_of(77) + event[:40])
    read(dagdir.path, cache)
    again = read(dagdir.path, cache)
    kinds = [notice.kind for notice in again.snapshot_builder().notices()]
    assert kinds == ["unterminated-event"]
    dagdir.append("metl.log", event[40:])
    assert_same(read(dagdir.path, cache))


def test_warnings_and_utc_times_come_back(dagdir: Dagdir, cache: Cache) -> None:
    utc = Log().submit(78, NEXT).execute(78).data.replace(b":00 ", b":00Z ")
    dagdir.write("metl.log", log_of(77) + b"garbage\n...\n" + utc + log_of(79))
    assert_same(read(dagdir.path, cache))
    again = opened(dagdir.path, cache)
    assert again.cached_bytes
    again.read_all()
    assert_same(again)


def test_an_ad_names_dagmans_job_behind_many_attributes(dagdir: Dagdir, cache: Cache) -> None:
    """An event's body is cached up to where the model looks."""
    log = Log().submit(77, NODE)
    attributes = "".join(f"Attribute{n} = {n}\n" for n in range(400))
    log.raw(28, 77, "Job ad information event triggered.", f"{attributes}DAGManJobId = 900\n")
    dagdir.write("metl.log", log.data)
    for _ in range(2):
        reader = read(dagdir.path, cache)
        assert_same(reader)


# --- changed ------------------------------------------------------------------------------


def other_inode(dagdir: Dagdir) -> None:
    dagdir.replace("metl.log", (dagdir.path / "metl.log").read_bytes())


def cut(dagdir: Dagdir) -> None:
    dagdir.write("metl.log", (dagdir.path / "metl.log").read_bytes()[:-200])


def another_of_the_same_size(dagdir: Dagdir) -> None:
    data = (dagdir.path / "metl.log").read_bytes()
    dagdir.write("metl.log", data.replace(b"(077.", b"(078."))


def changed_in_its_middle(dagdir: Dagdir) -> None:
    """In place, of the same size; and the file has grown."""
    data = (dagdir.path / "metl.log").read_bytes()
    changed = data.replace(b"(return value 0)", b"(return value 7)")
    assert changed != data
    dagdir.write("metl.log", changed + log_of(99, node=NEXT))


def gone(dagdir: Dagdir) -> None:
    (dagdir.path / "metl.log").unlink()


def unreadable(dagdir: Dagdir) -> None:
    gone(dagdir)
    (dagdir.path / "metl.log").mkdir()


def write_dagdir(dagdir: Dagdir, cache: Cache) -> None:
    """Write a dagdir, and read it into the cache."""
    dagdir.write("metl.log", Log().submit(77, NODE).execute(77).terminate(77).data)
    dagdir.write("run.dag.dagman.log", Log().submit(900).execute(900).data)
    dagdir.write("run.dag.nodes.log", log_of(77))
    dagdir.write("run.dag.dagman.out", Out().start().submitted(NODE, 77).data)
    read(dagdir.path, cache)
    assert opened(dagdir.path, cache).cached_bytes == log_bytes(dagdir.path)


@pytest.mark.parametrize(
    "change", [other_inode, cut, another_of_the_same_size, changed_in_its_middle, gone, unreadable]
)
def test_a_log_that_was_changed_is_read_from_its_beginning(
    dagdir: Dagdir, cache: Cache, change: Callable[[Dagdir], None]
) -> None:
    write_dagdir(dagdir, cache)
    others = log_bytes(dagdir.path) - (dagdir.path / "metl.log").stat().st_size
    change(dagdir)
    reader = opened(dagdir.path, cache)
    assert reader.cached_bytes == others
    reader.read_all()
    assert_same(reader)


@pytest.mark.parametrize("at", [0, 5000, 4 << 20, (6 << 20) - 100])
def test_a_large_log_is_compared_by_samples(tmp_path: Path, at: int) -> None:
    """At its beginning, in the second sample of 64, in its middle, at its end."""
    path = tmp_path / "metl.log"
    size = 6 << 20
    path.write_bytes(bytes(range(256)) * (size // 256))
    mark, _ = cache_module.mark_file(path, size)
    with open(path, "r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"more")
        file.flush()
        assert mark.matches(cache_module.mark_file(path, size)[0])
        step = (size - cache_module.SAMPLE_BYTES) / (cache_module.SAMPLES - 1)
        file.seek(round(at / step) * int(step) + 100)
        file.write(b"!")
    assert not mark.matches(cache_module.mark_file(path, size)[0])


def test_other_dag_files_need_no_other_entry(dagdir: Dagdir, cache: Cache) -> None:
    write_dagdir(dagdir, cache)
    for name, content in (
        ("run.dag", DAG + f"SCRIPT POST {NODE} judge.sh\nJOB run0-train_epoch2 train\n"),
        ("second.dag", DAG),
        ("run.dag.rescue001", f"DONE {NODE}\n"),
        ("run.dag.dagman.out", Out().start().submitted(NEXT, 77).data),
    ):
        dagdir.write(name, content)
        reader = opened(dagdir.path, cache)
        assert reader.cached_bytes == log_bytes(dagdir.path)
        reader.read_all()
        assert_same(reader)


def test_events_that_are_in_no_file_any_more_are_not_cached(dagdir: Dagdir, cache: Cache) -> None:
    """A reader that was there knows more than the files say; one that comes later does not."""
    dagdir.write("run.dag.nodes.log", log_of(77))
    reader = read(dagdir.path, cache)
    dagdir.write("run.dag.nodes.log", log_of(78, 79, node=NEXT))
    reader.check()
    reader.read_all()
    assert len(reader.ensemble.jobs) == 3
    assert_same(read(dagdir.path, cache))


def test_a_log_replaced_before_it_is_written_is_not_cached(dagdir: Dagdir, cache: Cache) -> None:
    dagdir.write("metl.log", log_of(77))
    reader = opened(dagdir.path, cache)
    while reader.step().more:
        pass
    dagdir.replace("metl.log", log_of(78, 79, node=NEXT))
    assert reader.cache_writes() == []


# --- what is cached ---------------------------------------------------------------------------


def test_settings_other_than_the_zone_need_no_other_entry(dagdir: Dagdir, cache: Cache) -> None:
    dagdir.write("metl.log", Log().submit(77, NODE).execute(77).terminate(77, code=85).data)
    read(dagdir.path, cache)
    settings = Settings(checkpoint_codes=frozenset({85}))
    reader = opened(dagdir.path, cache, settings)
    assert reader.cached_bytes
    reader.read_all()
    assert_same(reader, settings)
    settings = Settings(zone=UTC)
    for cached in (False, True):
        reader = opened(dagdir.path, cache, settings)
        assert bool(reader.cached_bytes) is cached
        reader.read_all()
        assert_same(reader, settings)


def test_a_past_time_is_neither_written_nor_read(dagdir: Dagdir, cache: Cache) -> None:
    dagdir.write("metl.log", log_of(77, 78))
    moment = datetime(2026, 5, 4, 10, 1, 30)
    for _ in range(2):
        reader = DagdirReader(dagdir.path, as_of=moment, cache=cache)
        reader.open()
        assert reader.cached_bytes == 0
        reader.read_all()
        assert len(reader.ensemble.jobs) == 1
        assert not cache.directory.exists()
    read(dagdir.path, cache)


def test_a_small_log_is_not_cached(dagdir: Dagdir, cache: Cache) -> None:
    dagdir.write("metl.log", log_of(77))
    cache.min_log_bytes = 1 << 20
    read(dagdir.path, cache)
    assert not cache.directory.exists()


def test_the_dagdir_is_never_written_to(dagdir: Dagdir, cache: Cache) -> None:
    write_dagdir(dagdir, cache)
    inside = Cache(dagdir.path / ".cache" / "metlmon", min_log_bytes=1)
    before = sorted(dagdir.path.iterdir())
    read(dagdir.path, inside)
    assert sorted(dagdir.path.iterdir()) == before


def test_a_dagdir_is_the_same_however_it_is_named(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dagdir = Dagdir(tmp_path / os.fsdecode(b"ens\xff\xc3\n\x1b[2J"))
    write_dagdir(dagdir, cache)
    (tmp_path / "link").symlink_to(dagdir.path)
    assert opened(tmp_path / "link", cache).cached_bytes == log_bytes(dagdir.path)
    monkeypatch.chdir(dagdir.path)
    assert opened(Path(), cache).cached_bytes == log_bytes(dagdir.path)


# --- the entry ----------------------------------------------------------------------------


def entry_of(dagdir: Dagdir, cache: Cache) -> CachedLog:
    return load_entry(cache, os.path.realpath(os.fsencode(dagdir.path / "metl.log")))


def test_another_version_is_read_anew(
    dagdir: Dagdir, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dagdir(dagdir, cache)
    monkeypatch.setattr(cache_module, "parser_version", lambda: "another version")
    assert opened(dagdir.path, cache).cached_bytes == 0
    assert_same(read(dagdir.path, cache))
    assert opened(dagdir.path, cache).cached_bytes == log_bytes(dagdir.path)


def test_an_entry_of_another_log_is_a_miss(
    dagdir: Dagdir, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All entries have one name here: the last one has it."""
    monkeypatch.setattr(cache_module, "entry_name", lambda path: "x")
    dagdir.write("metl.log", log_of(77))
    dagdir.write("other.log", log_of(500, node=NEXT))
    for _ in range(2):
        assert_same(read(dagdir.path, cache))


def test_a_malformed_entry_is_made_anew(dagdir: Dagdir, cache: Cache) -> None:
    """Its checksum is right, and its content is nothing that was ever written."""
    write_dagdir(dagdir, cache)
    entry = entry_of(dagdir, cache)
    (fragment,) = entry.fragments
    length = fragment.length
    for wrong in (
        b"",
        msgpack.encode(None),
        msgpack.encode([1, 2]),
        msgpack.encode(replace(entry, fragments=[LogFragment(length, b"")])),
        msgpack.encode(replace(entry, fragments=[LogFragment(length, msgpack.encode([[]]))])),
        msgpack.encode(
            replace(
                entry,
                fragments=[
                    LogFragment(
                        length, msgpack.encode([[], [[1, 0, 0, False, [9]]], [], [], None, None])
                    )
                ],
            )
        ),
    ):
        assert cache.write(entry_name(entry.path), wrong)
        reader = read(dagdir.path, cache)
        fresh, got = report_of(read(dagdir.path)), report_of(reader)
        assert {**got, "warnings": ()} == {**fresh, "warnings": ()}
        read(dagdir.path, cache)
        assert entry_of(dagdir, cache).fragments == [fragment]


def test_two_entries_that_fail_one_after_the_other(
    dagdir: Dagdir, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one fails when all is read again because of the first one."""
    log = Log().submit(5, NODE).execute(5).terminate(5)
    dagdir.write("metl.log", log.data)
    dagdir.write("run.dag.nodes.log", Log().submit(6, NEXT).execute(6).data)
    read(dagdir.path, cache)
    calls: Counter[str] = Counter()
    unpack = cache_module.unpack_fragment

    def failing(fragment: LogFragment, file: LogFile) -> Any:
        calls[file.name] += 1
        if (file.name, calls[file.name]) in (("metl.log", 1), ("run.dag.nodes.log", 2)):
            raise ValueError("malformed")
        return unpack(fragment, file)

    monkeypatch.setattr(cache_module, "unpack_fragment", failing)
    reader = read(dagdir.path, cache)
    assert calls == {"metl.log": 1, "run.dag.nodes.log": 2}
    fresh, got = report_of(read(dagdir.path)), report_of(reader)
    assert {**got, "warnings": ()} == {**fresh, "warnings": ()}


# --- sessions and commands ---------------------------------------------------------------------


@pytest.fixture(name="user_cache")
def _user_cache(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> Cache:
    for module in ("metlmon.cli.reading", "metlmon.stats.frames"):
        monkeypatch.setattr(f"{module}.user_cache", lambda: cache)
    return cache


def session_of(dagdir: Dagdir, cache: Cache) -> tuple[Session, DagdirReader, queue.Queue[Snapshot]]:
    reader = opened(dagdir.path, cache)
    snapshots: queue.Queue[Snapshot] = queue.Queue()
    session = Session(reader)
    session.start(snapshots.put)
    return session, reader, snapshots


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def cached_bytes(dagdir: Dagdir, cache: Cache) -> int:
    return opened(dagdir.path, cache).cached_bytes


def test_a_session_writes_what_it_has_read_and_the_rest_at_its_end(
    dagdir: Dagdir, cache: Cache
) -> None:
    first, second = log_of(77), log_of(78)
    dagdir.write("metl.log", first)
    session, reader, _ = session_of(dagdir, cache)
    wait_for(lambda: cached_bytes(dagdir, cache) == len(first))
    dagdir.append("metl.log", second)
    wait_for(lambda: len(reader.ensemble.jobs) == 2)
    assert cached_bytes(dagdir, cache) == len(first)
    session.stop()
    assert cached_bytes(dagdir, cache) == len(first + second)


def test_a_slow_cache_holds_nothing_up(
    dagdir: Dagdir, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes when somebody waits for it: what came meanwhile is written after it."""
    begun, waited = threading.Event(), threading.Semaphore(0)
    write, join = CacheWrite.write, threading.Thread.join

    def slow(self: CacheWrite) -> bool:
        begun.set()
        assert waited.acquire(timeout=PATIENCE)
        return write(self)

    def joining(self: threading.Thread, timeout: float | None = None) -> None:
        if self.name == "metlmon-cache" and self.is_alive():
            waited.release()
        join(self, timeout)

    monkeypatch.setattr(CacheWrite, "write", slow)
    monkeypatch.setattr(threading.Thread, "join", joining)
    dagdir.write("metl.log", log_of(77))
    session, reader, _ = session_of(dagdir, cache)
    assert begun.wait(PATIENCE)
    dagdir.append("metl.log", log_of(78))
    wait_for(lambda: len(reader.ensemble.jobs) == 2)
    session.stop()
    assert cached_bytes(dagdir, cache) == log_bytes(dagdir.path)


def test_a_cache_that_cannot_be_written_is_no_error(dagdir: Dagdir, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    dagdir.write("metl.log", log_of(77))
    session, reader, snapshots = session_of(dagdir, Cache(tmp_path / "file" / "metlmon", 1))
    try:
        dagdir.append("metl.log", log_of(78))
        wait_for(lambda: len(reader.ensemble.jobs) == 2)
    finally:
        session.stop()
    while not snapshots.empty():
        assert snapshots.get().error is None


@pytest.mark.parametrize("command", ["status", "jobs", "sites"])
def test_a_command_says_the_same_with_the_cache(
    command: str, dagdir: Dagdir, user_cache: Cache, capsys: pytest.CaptureFixture[str]
) -> None:
    dagdir.write("metl.log", log_of(77))
    words = [command, "--json", str(dagdir.path)]
    assert main(words) == 0
    first = capsys.readouterr()
    assert cached_bytes(dagdir, user_cache) == len(log_of(77))
    assert main(words) == 0
    again = capsys.readouterr()
    assert again.out.splitlines()[1:] == first.out.splitlines()[1:]
    assert again.err == first.err
