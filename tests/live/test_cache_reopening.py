"""A dagdir that is opened again says what it would say if it were read from its beginning:
whatever has been appended, changed or put in place of something since, and whatever has become
of the cache."""

from __future__ import annotations

import math
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from metlmon.live import cache_entry as kept_module
from metlmon.live import cache_session as keeping_module
from metlmon.live import cached_workflows as workflows_module
from metlmon.live.cache import Cache
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.settings import Settings
from tests.conftest import SHARED
from tests.live.dagdirs import DAG, NODE, Dagdir, log_of
from tests.model.written import Log, Out

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
NEXT = "run0-train_epoch1"

RECORDED = [
    *(FIXTURES / name for name in ("demo", "rescue", "holds", "scripts", "shared-log", "trainer")),
    *(FIXTURES / name for name in ("gated", "machines", "first-round")),
    SHARED / "examples/pool-ensemble",
    SHARED / "examples/metl-aws",
]

CODE = kept_module.code

GROWING = (".log", ".dagman.out")


@pytest.fixture(autouse=True)
def _workflows_are_worth_keeping_too(
    all_is_worth_keeping: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows_module, "WORTH_SECONDS", 0.0)


def opened(
    path: Path, cache: Cache | None = None, settings: Settings | None = None
) -> DagdirReader:
    reader = DagdirReader(path, settings, cache=cache)
    reader.open()
    return reader


def read(path: Path, cache: Cache | None = None, settings: Settings | None = None) -> DagdirReader:
    reader = opened(path, cache, settings)
    reader.read_all()
    return reader


def recalled(reader: DagdirReader) -> int:
    """Bytes that a reader which has just been opened need not read."""
    return reader.consumed_bytes


def all_recalled(reader: DagdirReader) -> bool:
    return reader.progress().fraction == 1.0


def pictures(reader: DagdirReader) -> dict[str, Any]:
    """Everything that is ever shown."""
    painter = reader.snapshot_builder()
    status = painter.status()
    ledger = painter.ledger()
    return {
        "status": status,
        "runs": [painter.run_view(run.key) for run in status.runs],
        "jobs": [
            painter.job_view(cluster, proc) for cluster, proc, _ in sorted(reader.ensemble.jobs)
        ],
        "rows": list(painter.job_rows()),
        "problems": painter.problems(),
        "ledger": ledger,
        "notices": sorted(map(str, painter.notices())),
    }


def differences(a: Any, b: Any, where: str) -> list[str]:
    """Where two answers differ. Sums of the same numbers in another order differ in their last
    bits; functions are not compared."""
    if isinstance(a, float) and isinstance(b, float):
        alike = math.isclose(a, b, rel_tol=1e-12)
    elif type(a) is type(b) and is_dataclass(a):
        pairs = [(each.name, getattr(a, each.name), getattr(b, each.name)) for each in fields(a)]
        return [d for name, x, y in pairs for d in differences(x, y, f"{where}/{name}")]
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        both = enumerate(zip(a, b, strict=True))
        return [d for i, (x, y) in both for d in differences(x, y, f"{where}/{i}")]
    else:
        alike = a == b or (callable(a) and callable(b))
    return [] if alike else [f"{where}: {a!r} != {b!r}"]


def same(reader: DagdirReader, settings: Settings | None = None) -> bool:
    """Does it say what a reader of the whole files says?"""
    fresh = pictures(read(Path(reader.path_given), None, settings))
    assert says(reader, fresh)
    return True


def says(reader: DagdirReader, expected: dict[str, Any]) -> bool:
    said = pictures(reader)
    assert [d for what in expected for d in differences(said[what], expected[what], what)] == []
    return True


# --- appended -----------------------------------------------------------------------------


def grows(name: str) -> bool:
    return name.endswith(GROWING)


def copied_up_to(source: Path, target: Path, share: Callable[[], float]) -> dict[Path, bytes]:
    """A copy in which the files that grow have not come to their end; the rest of them."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("output", "*.out", "*.err"))
    rests = {}
    for path in sorted(source.iterdir()):
        if grows(path.name):
            data = path.read_bytes()
            end = int(len(data) * share())
            (target / path.name).write_bytes(data[:end])
            os.chmod(target / path.name, 0o644)
            rests[target / path.name] = data[end:]
    os.chmod(target, 0o755)
    return rests


@pytest.mark.parametrize("source", RECORDED, ids=lambda path: path.name)
@pytest.mark.parametrize("seed", [1, 2])
def test_what_has_been_appended_is_read_on(
    source: Path, seed: int, tmp_path: Path, cache: Cache
) -> None:
    if not source.is_dir():
        pytest.skip("the real recording is not beside this checkout")
    dice = random.Random(f"{source.name} {seed}")
    dagdir = tmp_path / "ensemble"
    rests = copied_up_to(source, dagdir, dice.random)
    first = read(dagdir, cache)
    for path, rest in rests.items():
        with open(path, "ab") as file:
            file.write(rest)
    reader = opened(dagdir, cache)
    assert recalled(reader) == recalled(first) > 0
    reader.read_all()
    assert same(reader)
    again = opened(dagdir, cache)
    assert recalled(again) == recalled(reader)
    assert same(again)


def test_a_dagdir_that_grows_between_many_openings(tmp_path: Path, cache: Cache) -> None:
    dagdir = tmp_path / "ensemble"
    rests = copied_up_to(FIXTURES / "scripts", dagdir, lambda: 0.1)
    dice = random.Random(5)
    for _ in range(12):
        for path, rest in rests.items():
            piece = rest[: dice.randrange(len(rest) // 4 + 2)]
            rests[path] = rest[len(piece) :]
            with open(path, "ab") as file:
                file.write(piece)
        assert same(read(dagdir, cache))


def test_a_session_that_goes_on_is_kept_as_it_went_on(dagdir: Dagdir, cache: Cache) -> None:
    dagdir.write("metl.log", log_of(77))
    reader = read(dagdir.path, cache)
    dagdir.append("metl.log", log_of(78, node=NEXT))
    reader.check()
    reader.read_all()
    last = opened(dagdir.path, cache)
    assert all_recalled(last)
    assert same(last)


def test_a_torn_event_is_read_when_it_is_whole(dagdir: Dagdir, cache: Cache) -> None:
    event = log_of(78, node=NEXT)
    dagdir.write("metl.log", log_of(77) + event[:40])
    read(dagdir.path, cache)
    again = read(dagdir.path, cache)
    assert [notice.kind for notice in again.snapshot_builder().notices()] == ["unterminated-event"]
    dagdir.append("metl.log", event[40:])
    assert same(read(dagdir.path, cache))


def test_a_new_log_is_read_beside_those_that_are_known(dagdir: Dagdir, cache: Cache) -> None:
    dagdir.write("metl.log", log_of(77))
    first = read(dagdir.path, cache)
    dagdir.write("other.log", Log().execute(77).data)
    reader = opened(dagdir.path, cache)
    assert recalled(reader) == recalled(first)
    reader.read_all()
    assert same(reader)


# --- changed ------------------------------------------------------------------------------


def told(dagdir: Dagdir, cache: Cache) -> None:
    """A dagdir that has been read and kept."""
    dagdir.write("metl.log", Log().submit(77, NODE).execute(77).terminate(77).data)
    dagdir.write("run.dag.dagman.log", Log().submit(900).execute(900).data)
    dagdir.write("run.dag.nodes.log", log_of(77))
    dagdir.write("run.dag.dagman.out", Out().start().submitted(NODE, 77).data)
    read(dagdir.path, cache)
    assert all_recalled(opened(dagdir.path, cache))


def other_inode(dagdir: Dagdir) -> None:
    dagdir.replace("metl.log", (dagdir.path / "metl.log").read_bytes())


def cut(dagdir: Dagdir) -> None:
    dagdir.write("metl.log", (dagdir.path / "metl.log").read_bytes()[:-200])


def emptied(dagdir: Dagdir) -> None:
    dagdir.write("run.dag.nodes.log", b"")


def begun_anew(dagdir: Dagdir) -> None:
    dagdir.write("run.dag.nodes.log", log_of(78, 79, 80, node=NEXT))


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
    path = dagdir.path / "metl.log"
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "change",
    [
        other_inode,
        cut,
        emptied,
        begun_anew,
        another_of_the_same_size,
        changed_in_its_middle,
        gone,
        unreadable,
    ],
)
def test_a_log_that_was_changed_is_read_from_its_beginning(
    dagdir: Dagdir, cache: Cache, change: Callable[[Dagdir], None]
) -> None:
    told(dagdir, cache)
    change(dagdir)
    reader = opened(dagdir.path, cache)
    assert recalled(reader) == 0
    reader.read_all()
    assert same(reader)


@pytest.mark.parametrize("at", [0, 5000, 4 << 20, (6 << 20) - 100])
def test_a_large_file_is_known_by_samples(tmp_path: Path, at: int) -> None:
    """At its beginning, in the second sample of 64, in its middle, at its end."""
    path = tmp_path / "metl.log"
    size = 6 << 20
    path.write_bytes(bytes(range(256)) * (size // 256))
    mark = kept_module.mark_of(path, size)
    assert mark is not None
    with open(path, "r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"more")
        assert mark.holds()
        step = (size - kept_module.SAMPLE) / (kept_module.SAMPLES - 1)
        file.seek(round(at / step) * int(step) + 100)
        file.write(b"!")
    assert not mark.holds()


def another_post(dagdir: Dagdir) -> None:
    dagdir.write("run.dag", DAG + f"SCRIPT POST {NODE} judge.sh\n")


def another_node(dagdir: Dagdir) -> None:
    dagdir.write("run.dag", DAG + "JOB run0-train_epoch2 train\n")


def fewer_nodes(dagdir: Dagdir) -> None:
    dagdir.write("run.dag", f"JOB {NEXT} train\n")


def a_second_dag(dagdir: Dagdir) -> None:
    """Which has a node of the same name, and so may be the job's, too."""
    dagdir.write("second.dag", DAG)


def a_rescue_file(dagdir: Dagdir) -> None:
    dagdir.write("run.dag.rescue001", f"DONE {NODE}\n")


def metrics(dagdir: Dagdir) -> None:
    dagdir.write("run.dag.metrics", '{"start_time": 1, "end_time": 2, "exitcode": 1}')


def a_status_file(dagdir: Dagdir) -> None:
    dagdir.write("run.dag", DAG + "NODE_STATUS_FILE run.status\n")
    dagdir.write("run.status", '[ Type = "DagStatus"; DagFiles = { "run.dag" }; ]\n')


def a_jobstate_log(dagdir: Dagdir) -> None:
    dagdir.write("run.dag", DAG + "JOBSTATE_LOG run.jobstate\n")
    dagdir.write("run.jobstate", f"1777888800 {NODE} JOB_SUCCESS 0 - - 1\n")


def dagman_says_something_else(dagdir: Dagdir) -> None:
    dagdir.write("run.dag.dagman.out", Out().start().submitted(NEXT, 77).data)


def dagman_says_more(dagdir: Dagdir) -> None:
    out = Out().start().submitted(NODE, 77)
    path = dagdir.path / "run.dag.dagman.out"
    assert path.read_bytes() == out.data
    dagdir.append(
        path.name, out.say(f"Retrying node {NODE} (retry #1 of 3)...").data[path.stat().st_size :]
    )


def halted(dagdir: Dagdir) -> None:
    dagdir.write("run.dag.halt", "")


@pytest.mark.parametrize(
    "change",
    [
        another_post,
        another_node,
        fewer_nodes,
        a_second_dag,
        a_rescue_file,
        metrics,
        a_status_file,
        a_jobstate_log,
        dagman_says_something_else,
        dagman_says_more,
        halted,
    ],
)
def test_what_dagman_does_meanwhile_is_seen(
    dagdir: Dagdir, cache: Cache, change: Callable[[Dagdir], None]
) -> None:
    told(dagdir, cache)
    change(dagdir)
    reader = opened(dagdir.path, cache)
    assert recalled(reader) > 0
    reader.read_all()
    assert same(reader)
    assert same(read(dagdir.path, cache))


def test_what_was_only_in_a_log_that_began_anew_is_not_kept(dagdir: Dagdir, cache: Cache) -> None:
    """A reader that was there knows more than the files say; one that comes later does not."""
    dagdir.write("run.dag.nodes.log", log_of(77))
    reader = read(dagdir.path, cache)
    dagdir.write("run.dag.nodes.log", log_of(78, 79, node=NEXT))
    reader.check()
    reader.read_all()
    assert len(reader.ensemble.jobs) == 3
    assert same(read(dagdir.path, cache))


def test_words_that_were_understood_otherwise_are_not_kept(dagdir: Dagdir, cache: Cache) -> None:
    """DAGMan said that a job had failed, when that was the node's own result."""
    dagdir.write("run.dag.dagman.out", Out().start().submitted(NODE, 77).data)
    dagdir.write("metl.log", log_of(77))
    reader = read(dagdir.path, cache)
    another_post(dagdir)
    dagdir.append("metl.log", log_of(78, node=NEXT))
    reader.check()
    reader.read_all()
    assert same(read(dagdir.path, cache))


def test_a_log_that_was_replaced_before_it_was_kept_is_not_taken_for_it(
    dagdir: Dagdir, cache: Cache
) -> None:
    """Between the last look at it and the writing of the entry."""
    dagdir.write("metl.log", log_of(77))
    reader = opened(dagdir.path, cache)
    while reader.step().more:
        pass
    dagdir.write("metl.log", log_of(78, 79, node=NEXT))
    assert not [kept for kept in reader.keep() if kept.entry.key[0] == "logs"]


# --- DAG files ----------------------------------------------------------------------------


@pytest.mark.parametrize("source", RECORDED, ids=lambda path: path.name)
def test_a_workflow_comes_back_as_it_was(source: Path, cache: Cache) -> None:
    if not source.is_dir():
        pytest.skip("the real recording is not beside this checkout")
    woven = read(source, cache).ensemble.dags
    again = opened(source, cache)
    assert again.keep() == []
    assert {key: dag.workflow for key, dag in again.ensemble.dags.items()} == {
        key: dag.workflow for key, dag in woven.items()
    }


SPLICED = """\
SPLICE inner inner.dag
SUBDAG EXTERNAL below below.dag
JOB last last.sub
SCRIPT POST last judge.sh
PARENT inner CHILD below
PARENT below CHILD last
VARS last a="1" My.b="2"
"""


@pytest.fixture(name="spliced")
def _spliced(dagdir: Dagdir, cache: Cache) -> Dagdir:
    """A DAG of several files, of which one is missing; read and kept."""
    dagdir.write("run.dag", SPLICED)
    dagdir.write("inner.dag", DAG)
    dagdir.write("below.dag", "JOB deep deep.sub\nSUBDAG EXTERNAL deeper missing.dag\n")
    dagdir.write("last.sub", "log = metl.log\nqueue 2\n")
    dagdir.write("metl.log", log_of(77, node="last"))
    read(dagdir.path, cache)
    return dagdir


def workflows(reader: DagdirReader) -> list[Any]:
    return [dag.workflow for dag in reader.ensemble.dags.values()]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("run.dag", SPLICED + "JOB more last.sub\n"),
        ("inner.dag", DAG.replace('epoch="2"', 'epoch="3"')),
        ("below.dag", "JOB deep other.sub\n"),
        ("last.sub", "log = other.log\nqueue 2\n"),
        ("deep.sub", "log = deep.log\nqueue\n"),
        ("missing.dag", "JOB deepest deep.sub\n"),
        ("last.sub", None),
        ("unnamed.dag", "JOB alone last.sub\n"),
    ],
)
def test_a_workflow_is_woven_again_when_any_of_its_files_changes(
    spliced: Dagdir, cache: Cache, file: str, content: str | None
) -> None:
    before = workflows(opened(spliced.path, cache))
    assert before == workflows(opened(spliced.path))
    if content is None:
        (spliced.path / file).unlink()
    else:
        spliced.write(file, content)
    after = workflows(opened(spliced.path, cache))
    assert after == workflows(opened(spliced.path))
    assert after != before


def test_a_dag_that_is_watched_is_woven_again_only_when_it_changes(
    spliced: Dagdir, cache: Cache
) -> None:
    reader = opened(spliced.path, cache)
    (before, *_) = workflows(reader)
    spliced.write("unnamed.dag", "JOB alone last.sub\n")
    reader.check()
    assert len(workflows(reader)) == 3
    assert workflows(reader)[0] is before
    spliced.write("last.sub", "log = other.log\nqueue 2\n")
    reader.check()
    assert workflows(reader) == workflows(opened(spliced.path))


def test_damaged_workflows_are_woven_again(spliced: Dagdir, cache: Cache) -> None:
    (path,) = cache.directory.glob("*-dags-*")
    whole = path.read_bytes()
    expected = workflows(opened(spliced.path))
    name = path.name.removesuffix(".kept")
    header, first, *others = cache.records(name)
    for wrong in ([], [header, first], [header, first, *others[:-1]], [header, None, *others]):
        assert cache.write(name, wrong)
        assert workflows(opened(spliced.path, cache)) == expected
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at])
        assert workflows(opened(spliced.path, cache)) == expected


# --- settings -----------------------------------------------------------------------------


def test_each_setting_that_matters_has_its_own_entry(dagdir: Dagdir, cache: Cache) -> None:
    dagdir.write("metl.log", Log().submit(77, NODE).execute(77).terminate(77, code=85).data)
    several = [Settings(), Settings(checkpoint_codes=frozenset({85})), Settings(zone=UTC)]
    for settings in several:
        read(dagdir.path, cache, settings)
    for settings in several:
        reader = opened(dagdir.path, cache, settings)
        assert all_recalled(reader)
        assert same(reader, settings)


def test_a_moment_of_the_past_is_neither_kept_nor_recalled(dagdir: Dagdir, cache: Cache) -> None:
    dagdir.write("metl.log", log_of(77, 78))
    moment = datetime(2026, 5, 4, 10, 1, 30)
    reader = DagdirReader(dagdir.path, as_of=moment, cache=cache)
    reader.open()
    reader.read_all()
    assert not cache.directory.exists()
    read(dagdir.path, cache)
    reader = DagdirReader(dagdir.path, as_of=moment, cache=cache)
    reader.open()
    assert recalled(reader) == 0
    reader.read_all()
    assert len(reader.ensemble.jobs) == 1


def test_little_is_not_worth_keeping(
    dagdir: Dagdir, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    dagdir.write("metl.log", log_of(77))
    monkeypatch.setattr(keeping_module, "WORTH_KEEPING", 5 << 20)
    monkeypatch.setattr(workflows_module, "WORTH_SECONDS", 1000.0)
    read(dagdir.path, cache)
    assert not cache.directory.exists()


# --- the cache ----------------------------------------------------------------------------


def entry(cache: Cache) -> Path:
    """Of what the logs told."""
    (path,) = cache.directory.glob("*-logs-*")
    return path


def test_another_version_is_read_anew(
    dagdir: Dagdir, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(dagdir, cache)
    monkeypatch.setattr(kept_module, "code", lambda: "other code")
    reader = opened(dagdir.path, cache)
    assert recalled(reader) == 0
    reader.read_all()
    assert same(reader)
    assert all_recalled(opened(dagdir.path, cache))


def test_code_is_known_by_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no more once one of them is younger than what runs."""
    monkeypatch.setattr(kept_module, "STARTED", time.time() + 1.0)
    known = CODE.__wrapped__()
    assert known == CODE.__wrapped__() is not None
    monkeypatch.setattr(kept_module, "CODE", ("eventlog", "dagman"))
    assert CODE.__wrapped__() not in (None, known)
    monkeypatch.setattr(kept_module, "STARTED", 0.0)
    assert CODE.__wrapped__() is None


def test_code_that_was_replaced_while_it_ran_keeps_nothing(
    dagdir: Dagdir, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_module, "code", lambda: None)
    dagdir.write("metl.log", log_of(77))
    assert same(read(dagdir.path, cache))
    assert not cache.directory.exists()


def test_an_entry_of_another_dagdir_is_none(dagdir: Dagdir, cache: Cache, tmp_path: Path) -> None:
    """Two dagdirs whose entries are called alike: the last one has it."""
    told(dagdir, cache)
    other = Dagdir(tmp_path / "other")
    other.write("metl.log", log_of(500))
    read(other.path, cache)
    for kind in ("logs", "dags"):
        first, second = sorted(cache.directory.glob(f"*-{kind}-*"))
        shutil.copy(first, second)
    reader = opened(other.path, cache)
    if recalled(reader) == 0:
        reader.read_all()
    assert same(reader)
    assert same(read(dagdir.path, cache))


def test_a_damaged_entry_is_made_anew(dagdir: Dagdir, cache: Cache) -> None:
    told(dagdir, cache)
    path = entry(cache)
    whole = path.read_bytes()
    expected = pictures(read(dagdir.path))
    dice = random.Random(3)
    for damage in range(60):
        at = dice.randrange(len(whole))
        if damage % 2:
            path.write_bytes(whole[:at])
        else:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << damage % 8)]) + whole[at + 1 :])
        reader = opened(dagdir.path, cache)
        assert recalled(reader) == 0
        reader.read_all()
        assert says(reader, expected)
        assert all_recalled(opened(dagdir.path, cache))


def test_an_entry_of_another_shape_is_none(dagdir: Dagdir, cache: Cache) -> None:
    """Its checksums are right, and what it says is nothing that was ever written."""
    told(dagdir, cache)
    name = entry(cache).name.removesuffix(".kept")
    records = list(cache.records(name))
    expected = pictures(read(dagdir.path))
    header = records[0]
    for wrong in (
        [],
        [None],
        [{}],
        [header],
        records[:-1],
        [*records, records[-1]],
        [header, *((key, None) for key, _ in records[1:-1]), records[-1]],
        [{**header, "logs": []}, *records[1:]],
        [{**header, "dags": {}}, *records[1:]],
        [{**header, "dags": {"run.dag": {}}}, *records[1:]],
        [{**header, "logs": [{**log, "position": ()} for log in header["logs"]]}, *records[1:]],
    ):
        assert cache.write(name, wrong)
        reader = read(dagdir.path, cache)
        assert says(reader, expected)


def test_no_value_of_an_environment_gets_there(dagdir: Dagdir, cache: Cache) -> None:
    secret = b"0123456789abcdef-the-key"
    dagdir.write(
        "run.dag", DAG.replace("log =", f'environment = "KEY={secret.decode()}"\n    log =')
    )
    log = Log().submit(77, NODE)
    log.raw(28, 77, "Job ad information event triggered.", f'Env = "KEY={secret.decode()}"\n')
    log.raw(33, 77, f'Changing job attribute Environment from "" to "KEY={secret.decode()}"')
    dagdir.write("metl.log", log.data)
    read(dagdir.path, cache)
    assert secret in (dagdir.path / "metl.log").read_bytes()
    for path in cache.directory.iterdir():
        assert secret not in path.read_bytes()


def test_a_dagdir_whose_name_is_no_text(tmp_path: Path, cache: Cache) -> None:
    dagdir = Dagdir(tmp_path / os.fsdecode(b"ens\xff\xc3\n\x1b[2J"))
    told(dagdir, cache)
    assert same(read(dagdir.path, cache))


def test_a_dagdir_is_the_same_however_it_is_named(
    dagdir: Dagdir, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(dagdir, cache)
    (tmp_path / "link").symlink_to(dagdir.path)
    assert all_recalled(opened(tmp_path / "link", cache))
    monkeypatch.chdir(dagdir.path)
    reader = opened(Path(), cache)
    assert all_recalled(reader)
    assert same(reader)


def test_the_dagdir_is_left_alone(dagdir: Dagdir, cache: Cache) -> None:
    told(dagdir, cache)
    inside = Cache(dagdir.path / ".cache" / "metlmon")
    before = sorted(dagdir.path.iterdir())
    read(dagdir.path, inside)
    assert sorted(dagdir.path.iterdir()) == before
