"""Which ensembles are found below a path."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metlmon.home import finder
from metlmon.home.finder import NOTHING_HERE, FoundDagdir, find_dagdirs
from metlmon.home.places import user_dagdirs
from metlmon.home.summary import EnsembleState, make_figures
from metlmon.pool.protocol import QueueJob, ScheddInfo
from tests.faults.test_permissions_and_space import nobody
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log

DAG, NUL = "JOB a a.sub\n", "SUBDAG EXTERNAL n \0/inner.dag\n"


def find_all(paths: Iterable[str]) -> list[FoundDagdir]:
    return [finding for finding in find_dagdirs(paths) if finding is not None]


def write_dag(directory: Path, text: str = DAG, name: str = "ens.dag") -> str:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text)
    return str(directory)


def paths(*roots: Path | str) -> list[str]:
    found = find_all(map(str, roots))
    assert not [each for each in found if each.error or each.more]
    return [each.path for each in found]


def test_dagdirs_are_found_in_nested_folders(tmp_path: Path) -> None:
    made = [write_dag(tmp_path / name) for name in ("b", "a/2025/x", "a/2025/y")]
    (tmp_path / "a/empty").mkdir()
    write_dag(tmp_path / "a/.trash/old")
    assert paths(tmp_path) == made
    assert paths(tmp_path / "a", tmp_path) == [*made[1:], made[0]]


def test_nested_dagdir_is_separate_unless_a_dag_refers_to_it(tmp_path: Path) -> None:
    own = write_dag(tmp_path / "ens/second-try")
    write_dag(tmp_path / "ens/stage2", name="inner.dag")
    outer = write_dag(tmp_path / "ens", f"SUBDAG EXTERNAL s stage2/inner.dag\n{NUL}")
    assert paths(tmp_path) == [outer, own]


def test_links_are_followed_once_and_cycles_end(tmp_path: Path) -> None:
    real = write_dag(tmp_path / "scratch/ens")
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "link").symlink_to(tmp_path / "scratch")
    (shown / "up").symlink_to(tmp_path)
    (shown / "self").symlink_to(shown / "self")
    (shown / "gone").symlink_to(tmp_path / "nowhere")
    assert paths(shown) == [str(shown / "link/ens")]
    assert paths(tmp_path) == [real]


def test_empty_or_missing_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "empty/below").mkdir(parents=True)
    (nothing,) = find_all([str(tmp_path / "empty")])
    assert nothing.error == NOTHING_HERE
    (missing,) = find_all([str(tmp_path / "missing")])
    assert missing.error == "No such file or directory; give the directory of a DAG"
    logs = Dagdir(tmp_path / "logs", "")
    logs.write("job_7.log", Log().submit(7).data)
    (alone,) = find_all([str(logs.path)])
    assert alone.error is None, "event logs alone are an ensemble"


def test_unreadable_directory_is_reported_beside_the_others(open_to_all: Path) -> None:
    mine = write_dag(open_to_all / "mine")
    closed = Path(write_dag(open_to_all / "closed"))
    closed.chmod(0)
    with nobody():
        found = {each.path: each.error for each in find_all([str(open_to_all)])}
    closed.chmod(0o700)
    assert found.keys() == {mine, str(closed)}
    assert found[mine] is None
    assert (found[str(closed)] or "").startswith("Permission denied; ask its owner")


def test_search_of_a_huge_directory_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "MAX_DIRECTORIES", 4)
    write_dag(tmp_path / "a")
    for number in range(9):
        os.mkdir(tmp_path / f"output{number}")
    found = find_all([str(tmp_path)])
    assert [each.path for each in found if each.more] == [str(tmp_path)]
    assert str(tmp_path / "a") in {each.path for each in found}


def test_state_of_logs_is_that_of_their_jobs(tmp_path: Path) -> None:
    def state(log: Log, dag: str = "") -> EnsembleState:
        logs = Dagdir(tmp_path, dag)
        logs.write("metl.log", log.data)
        return make_figures(logs.reader()).state

    log = Log().submit(7).execute(7)
    assert state(log) is EnsembleState.RUNNING
    assert state(log.hold(7)) is EnsembleState.JOBS_HELD
    assert state(log.release(7).execute(7).terminate(7)) is EnsembleState.DONE
    assert state(log.submit(8).execute(8).terminate(8, 1)) is EnsembleState.FAILED
    log = Log().submit(7, "a").execute(7)
    assert state(log, DAG) is EnsembleState.UNKNOWN
    assert state(log.hold(7), DAG) is EnsembleState.JOBS_HELD


# --- The ensembles of the queue: directories of the user's DAGMan jobs ------------------------


def dagman(cluster: int, directory: str, dag: str, **fields: Any) -> QueueJob:
    values: dict[str, Any] = {"owner": "alice", "universe": 7, "directory": directory}
    arguments = f"-p 0 -f -l . -Lockfile {dag}.lock -AutoRescue 1 -Dag {dag} -Suppress_notification"
    return QueueJob(cluster, 0, 2, arguments=arguments, **(values | fields))


def test_queue_gives_the_directories_of_the_users_dag_files() -> None:
    dagmans = (
        dagman(1, "/home/alice/ens", "ens.dag"),
        dagman(2, "/home/alice/ens", "ens-2.dag"),
        dagman(3, "/home/alice", "sweeps/a/sweep.dag"),
        dagman(4, "/home/alice", "/scratch/alice/b.dag"),
        dagman(5, "/home/alice/ens/stage2", "inner.dag", dagman=1),
        dagman(6, "/home/bob/ens", "ens.dag", owner="bob"),
        dagman(7, "/home/alice/x", "x.dag", universe=5),
    )
    queue: Any = SimpleNamespace(
        where=lambda: ScheddInfo("ap40", "24.0.0", "alice@ap40", None), dagmans=lambda: dagmans
    )
    assert user_dagdirs(queue) == ("/home/alice/ens", "/home/alice/sweeps/a", "/scratch/alice")
