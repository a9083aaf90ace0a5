"""The owner of a job: logs can be a copy or forged, and every schedd's numbers begin at 1."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from metlmon.pool.queue_checks import Ownership, is_dagman_of, runs_file
from metlmon.pool.types import QueueJob
from tests.support.queue_rows import DAGDIR, dag, dagman, job


def is_ours(
    queued: QueueJob,
    dagdir: Path = DAGDIR,
    node: str | None = "n12",
    logs: Iterable[str] = ("metl.log",),
    dagmans: Iterable[QueueJob] = (),
) -> bool:
    ads = {each.cluster: each for each in dagmans}
    return Ownership(dagdir, [dag()], logs, ads.get).includes(queued, node)


NODES_LOG = f"{DAGDIR}/./ens.dag.nodes.log"
OTHER = "/home/anna/other"


@pytest.mark.parametrize(
    ("ad", "more", "ours"),
    [
        # A job of our node whose log was read.
        ({}, {}, True),
        ({}, {"node": "n13"}, False),
        ({}, {"node": None}, True),
        ({"directory": "/home/ben/ens"}, {"node": None}, False),
        ({"directory": f"{DAGDIR}-copy"}, {}, False),
        # A node with a directory of its own is known by its logs.
        (
            {"directory": "/scratch/anna", "log": None, "nodes_log": NODES_LOG},
            {"logs": ["ens.dag.nodes.log"]},
            True,
        ),
        ({"directory": "/scratch/anna", "log": f"{DAGDIR}/metl.log"}, {}, True),
        # A log is relative to the job's directory.
        ({"directory": "/home/anna", "log": "ens/metl.log"}, {}, True),
        ({"log": "../ben/metl.log"}, {}, False),
        ({"directory": "", "log": None}, {}, False),
        # The log of another directory may be ours.
        (
            {
                "directory": OTHER,
                "log": f"{DAGDIR}/metl.log",
                "nodes_log": f"{OTHER}/ens.dag.nodes.log",
            },
            {},
            False,
        ),
        *(
            ({"directory": place, "log": place, "nodes_log": place}, {}, False)
            for place in ("\0", "a\0b", "x" * 5000, "\udcff")
        ),
    ],
)
def test_owner_of_a_job(ad: dict[str, str], more: dict[str, Any], ours: bool) -> None:
    assert is_ours(job(12, **ad), **more) is ours


def test_links_to_logs_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "name").symlink_to("real")
    assert is_ours(job(12, directory=tmp_path / "real"), tmp_path / "name")
    assert is_dagman_of(dagman(directory=tmp_path / "real"), tmp_path / "name" / "ens.dag")


# --- prepared directories -------------------------------------------------------------------


class PreparedDirectory(NamedTuple):
    """A directory whose files refer to the jobs of ``victim``, beside or below it."""

    path: Path
    victim: Path
    log: str
    dag: str = "ens.dag"


def sub_dag(path: Path, victim: Path) -> PreparedDirectory:
    """``SUBDAG EXTERNAL s ../victim/ens.dag``, whose log is followed."""
    (path / "top.dag").write_text(f"SUBDAG EXTERNAL s {victim}/ens.dag\n")
    return PreparedDirectory(path, victim, str(victim / "metl.log"), "top.dag")


def log_elsewhere(path: Path, victim: Path) -> PreparedDirectory:
    """A copy of the DAG, with ``log = ../victim/metl.log``."""
    (path / "ens.dag").write_text("JOB n12 a.sub\n")
    return PreparedDirectory(path, victim, os.path.join("..", victim.name, "metl.log"))


def linked_log(path: Path, victim: Path) -> PreparedDirectory:
    (path / "ens.dag").write_text("JOB n12 a.sub\n")
    (path / "metl.log").symlink_to(victim / "metl.log")
    return PreparedDirectory(path, victim, "metl.log")


def linked_nodes_log(path: Path, victim: Path) -> PreparedDirectory:
    (path / "ens.dag.nodes.log").symlink_to(victim / "ens.dag.nodes.log")
    return PreparedDirectory(path, victim, "ens.dag.nodes.log")


def linked_directory(path: Path, victim: Path) -> PreparedDirectory:
    (path / "sub").symlink_to(victim)
    return PreparedDirectory(path, victim, "sub/metl.log", "sub/ens.dag")


@pytest.mark.parametrize("has_nodes_log", [True, False])
@pytest.mark.parametrize(
    ("beside", "by_dag"), [("victim", True), ("victim", False), ("evil/victim", True)]
)
@pytest.mark.parametrize(
    "prepare", [sub_dag, log_elsewhere, linked_log, linked_nodes_log, linked_directory]
)
def test_files_cannot_claim_jobs_of_another_directory(
    tmp_path: Path,
    prepare: Callable[[Path, Path], PreparedDirectory],
    beside: str,
    by_dag: bool,
    has_nodes_log: bool,
) -> None:
    evil, victim = tmp_path / "evil", tmp_path / beside
    evil.mkdir()
    victim.mkdir()
    for name in ("metl.log", "ens.dag", "ens.dag.nodes.log"):
        (victim / name).write_text("")
    made = prepare(evil, victim)
    nodes_log = f"{victim}/ens.dag.nodes.log" if by_dag and has_nodes_log else None
    theirs = job(12, directory=victim, nodes_log=nodes_log, dagman=9 if by_dag else None)
    # The forged files have its number, too.
    rows = [dag(file=made.dag)]
    ads = {9: dagman(directory=victim)}
    logs = [made.log, "ens.dag.nodes.log"]
    assert not Ownership(evil, rows, logs, ads.get).includes(theirs, "n12")
    # In its own directory it belongs to us.
    assert Ownership(victim, [dag()], ["metl.log"], ads.get).includes(theirs, "n12")
    if made.dag != "sub/ens.dag":
        assert not is_dagman_of(ads[9], evil / made.dag)


def test_job_with_an_initial_directory_elsewhere(tmp_path: Path) -> None:
    ours, away = tmp_path / "ours", tmp_path / "away"
    for folder in (ours, away, ours / "run0"):
        folder.mkdir()
    ads = {9: dagman(directory=ours)}

    def is_one(of: QueueJob, log: str) -> bool:
        return Ownership(ours, [dag()], [log], ads.get).includes(of, "n12")

    by_dag = job(12, directory=away)
    assert is_one(by_dag, f"{away}/metl.log")
    ads.clear()
    # Its DAGMan has left the queue; its ad still names the nodes log here.
    assert is_one(replace(by_dag, nodes_log=f"{ours}/ens.dag.nodes.log"), f"{away}/metl.log")
    assert not is_one(by_dag, f"{away}/metl.log")
    # Without a DAG: below the directory, or with a log in it.
    assert is_one(job(12, directory=ours / "run0", dagman=None), "run0/metl.log")
    assert is_one(job(12, directory=away, log=f"{ours}/metl.log", dagman=None), "metl.log")
    assert not is_one(job(12, directory=away, dagman=None), f"{away}/metl.log")


# --- a forged log in a folder above -------------------------------------------------------


BELOW = DAGDIR / "below"
"""A dagdir of its own, with the same node names and DAG file as ``DAGDIR``."""


def test_jobs_of_a_nested_dagdir_are_not_the_parents() -> None:
    below = job(12, directory=BELOW, nodes_log=f"{BELOW}/ens.dag.nodes.log")
    assert not is_ours(below, dagmans=[dagman(directory=BELOW)])
    assert not is_ours(replace(below, nodes_log=None), dagmans=[dagman(directory=BELOW)])


def test_job_of_our_dagman_is_ours_whatever_its_log() -> None:
    away = job(12, directory="/scratch", log="/scratch/log")
    assert is_ours(away, dagmans=[dagman()])
    assert not is_ours(away, dagmans=[])
    assert not is_ours(replace(away, dagman=8), dagmans=[dagman(), dagman(8)])


def test_job_of_a_nested_dagman_is_ours() -> None:
    below = replace(dagman(20, "inner.dag", "/scratch"), node="sub", dagman=9)
    inner = job(12, directory="/scratch", log=None, dagman=20)
    assert is_ours(inner, dagmans=[dagman(), below])
    assert not is_ours(inner, dagmans=[dagman(directory=BELOW), below])


def test_dagmans_that_name_each_other_are_resolved() -> None:
    ring = [replace(dagman(9, "a.dag"), dagman=8), replace(dagman(8, "b.dag"), dagman=9)]
    assert not is_ours(job(12, log=None), dagmans=ring)


# --- DAGMan's own job ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ad", "file", "known"),
    [
        (dagman(), "ens.dag", True),
        (dagman(dag="other.dag"), "ens.dag", False),
        (dagman(directory="/home/ben/ens"), "ens.dag", False),
        # Submitted from above.
        (dagman(dag="ens/ens.dag", directory="/home/anna"), "ens.dag", True),
        # A name with blanks, as DAGMan reads it.
        (replace(dagman(dag="'my ens.dag'"), log="my ens.dag.dagman.log"), "my ens.dag", True),
        # A job that merely has such arguments.
        (job(9, arguments="-Dag ens.dag"), "ens.dag", False),
        (replace(dagman(), log="/home/ben/ens.dag.dagman.log"), "ens.dag", False),
    ],
)
def test_dagman_is_recognised_by_its_dag_file(ad: QueueJob, file: str, known: bool) -> None:
    assert is_dagman_of(ad, DAGDIR / file) is known


def test_dagman_of_a_linked_dag_file_is_not_ours(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder in (mine, theirs):
        folder.mkdir()
    (theirs / "ens.dag").write_text("JOB a a.sub\n")
    (mine / "ens.dag").symlink_to(theirs / "ens.dag")
    made = dagman(directory=theirs)
    assert not is_dagman_of(made, mine / "ens.dag")
    assert is_dagman_of(made, theirs / "ens.dag")
    # It is still the same DAG, which must not be submitted twice.
    assert runs_file(made, mine / "ens.dag")
