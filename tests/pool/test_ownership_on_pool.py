"""Actions in directories whose files name jobs of another directory are refused.

Two users: the researcher, whose jobs run, and a colleague, whose directories name them.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import truth
from pools import SCHEDULER_UNIVERSE, Pool

from tests.pool import gated_dag

REFUSED = 6
"""Exit status of ``metlmon act`` when not all was done."""

numbers = itertools.count()

JOB_ACTS = (("hold", "run0"), ("remove", "run0"), ("vacate", "run1"), ("remove", "run1"))
DAG_ACTS = (("halt",), ("remove-dag",))


@pytest.fixture(scope="module")
def ours(pool: Pool) -> gated_dag.GatedDag:
    """The researcher's DAG: two jobs wait in the queue."""
    dag = gated_dag.write(pool, "owned", runs=2)
    dagman = dag.submit()
    pool.running(2, f"DAGManJobId == {dagman}", "NumJobStarts == 1")
    return dag


def linked(pool: Pool, ours: gated_dag.GatedDag, colleague: str) -> Path:
    """Every file of the DAG is a link to the researcher's."""
    directory = pool.directory(f"links-{next(numbers)}", colleague)
    for file in ours.directory.iterdir():
        (directory / file.name).symlink_to(file)
    return directory


def copied(pool: Pool, ours: gated_dag.GatedDag, colleague: str) -> Path:
    """A copy of the files, which names the researcher's jobs and DAGMan."""
    directory = pool.directory(f"copies-{next(numbers)}", colleague)
    for file in ours.directory.iterdir():
        if file.is_file():
            pool.give(Path(shutil.copy(file, directory)), colleague)
    return directory


def above(pool: Pool, ours: gated_dag.GatedDag, colleague: str) -> Path:
    """A parent directory with a DAG of the same node names and a log that names the jobs below."""
    directory = pool.base
    for name in ("ens.dag", "metl.log"):
        pool.place(directory / name, (ours.directory / name).read_bytes())
    return directory


def sub_dag(pool: Pool, ours: gated_dag.GatedDag, colleague: str) -> Path:
    """``SUBDAG EXTERNAL`` of the researcher's DAG, whose log is followed."""
    directory = pool.directory(f"outer-{next(numbers)}", colleague)
    dag = pool.place(directory / "top.dag", f"SUBDAG EXTERNAL s {ours.directory}/ens.dag\n")
    pool.give(dag, colleague)
    return directory


def log_elsewhere(pool: Pool, ours: gated_dag.GatedDag, colleague: str) -> Path:
    """A copy of the DAG with submit descriptions whose log is the researcher's."""
    directory = copied(pool, ours, colleague)
    (directory / "metl.log").unlink()
    for file in directory.iterdir():
        text = file.read_bytes()
        if file.suffix in (".dag", ".sub") and b"metl.log" in text:
            log = str(ours.directory / "metl.log").encode()
            pool.give(pool.place(file, text.replace(b"metl.log", log)), colleague)
    return directory


def linked_log(pool: Pool, ours: gated_dag.GatedDag, colleague: str) -> Path:
    """A copy of the DAG, and a link to the researcher's log."""
    directory = copied(pool, ours, colleague)
    (directory / "metl.log").unlink()
    (directory / "metl.log").symlink_to(ours.directory / "metl.log")
    return directory


def act(pool: Pool, directory: Path, user: str, *what: str) -> str:
    argv = ["metlmon", "act", what[0], str(directory), *what[1:], "--yes", "--json"]
    done = pool.run(argv, pool.base, user, None)
    assert done.returncode == REFUSED, done.stdout + done.stderr
    answered = json.loads(done.stdout)
    assert all(each["reply"] != "done" for each in answered["answers"]), answered
    return done.stdout


@pytest.mark.parametrize("place", [copied, above, sub_dag, log_elsewhere, linked_log])
def test_jobs_of_another_directory_are_not_touched(
    pool: Pool,
    ours: gated_dag.GatedDag,
    colleague: str,
    place: Callable[[Pool, gated_dag.GatedDag, str], Path],
) -> None:
    directory = place(pool, ours, colleague)
    jobs = f'DAGNodeName =!= undefined && Iwd == "{ours.directory}"'
    try:
        before = {ad["ClusterId"]: ad for ad in pool.queue(jobs)}
        for what in JOB_ACTS:
            act(pool, directory, pool.users[0], *what)
        act(pool, directory, colleague, *JOB_ACTS[0])
        after = {ad["ClusterId"]: ad for ad in pool.queue(jobs)}
        assert len(before) == 2
        assert before.keys() == after.keys()
        for cluster, ad in after.items():
            for name in ("JobStatus", "NumJobStarts", "NumHolds"):
                assert ad.get(name) == before[cluster].get(name), (cluster, name)
    finally:
        for name in ("ens.dag", "metl.log"):
            if directory == pool.base:
                (directory / name).unlink()


@pytest.mark.parametrize("place", [linked, copied])
def test_dagman_of_another_directory_is_not_touched(
    pool: Pool,
    ours: gated_dag.GatedDag,
    colleague: str,
    place: Callable[[Pool, gated_dag.GatedDag, str], Path],
) -> None:
    directory = place(pool, ours, colleague)
    files = sorted(file.name for file in directory.iterdir())
    for user in (pool.users[0], colleague):
        for what in DAG_ACTS:
            act(pool, directory, user, *what)
    assert sorted(file.name for file in directory.iterdir()) == files, "no halt file either"
    assert not (ours.directory / "ens.dag.halt").exists()
    (dagman,) = pool.queue(f'JobUniverse == {SCHEDULER_UNIVERSE} && Iwd == "{ours.directory}"')
    assert dagman["JobStatus"] == truth.RUNNING


def test_actions_work_in_the_owning_directory(pool: Pool, ours: gated_dag.GatedDag) -> None:
    argv = ["metlmon", "act", "hold", str(ours.directory), "run0", "--yes", "--json"]
    answered = json.loads(pool.run(argv, pool.base, None, 0).stdout)
    assert [each["reply"] for each in answered["answers"]] == ["done"]
