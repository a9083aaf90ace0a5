"""Whose job is it: logs can be a copy, or forged, and a schedd's numbers begin at 1 everywhere."""

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
        # A job of our node that writes a log that was read.
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
        # A log is meant from the job's directory.
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
def test_whose_job_it_is(ad: dict[str, str], more: dict[str, Any], ours: bool) -> None:
    assert is_ours(job(12, **ad), **more) is ours


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "name").symlink_to("real")
    assert is_ours(job(12, directory=tmp_path / "real"), tmp_path / "name")
    assert is_dagman_of(dagman(directory=tmp_path / "real"), tmp_path / "name" / "ens.dag")


# --- directories that somebody else prepared ------------------------------------------------


class Prepared(NamedTuple):
    """A directory whose files lead to the jobs of ``victim``, beside it or below it."""

    path: Path
    victim: Path
    log: str
    dag: str = "ens.dag"


def sub_dag(path: Path, victim: Path) -> Prepared:
    """``SUBDAG EXTERNAL s ../victim/ens.dag``, whose log is followed."""
    (path / "top.dag").write_text(f"SUBDAG EXTERNAL s {victim}/ens.dag\n")
    return Prepared(path, victim, str(victim / "metl.log"), "top.dag")


def log_elsewhere(path: Path, victim: Path) -> Prepared:
    """A copy of the DAG, with ``log = ../victim/metl.log``."""
    (path / "ens.dag").write_text("JOB n12 a.sub\n")
    return Prepared(path, victim, os.path.join("..", victim.name, "metl.log"))


def linked_log(path: Path, victim: Path) -> Prepared:
    (path / "ens.dag").write_text("JOB n12 a.sub\n")
    (path / "metl.log").symlink_to(victim / "metl.log")
    return Prepared(path, victim, "metl.log")


def linked_nodes_log(path: Path, victim: Path) -> Prepared:
    (path / "ens.dag.nodes.log").symlink_to(victim / "ens.dag.nodes.log")
    return Prepared(path, victim, "ens.dag.nodes.log")


def linked_directory(path: Path, victim: Path) -> Prepared:
    (path / "sub").symlink_to(victim)
    return Prepared(path, victim, "sub/metl.log", "sub/ens.dag")


@pytest.mark.parametrize("has_nodes_log", [True, False])
@pytest.mark.parametrize(
    ("beside", "by_dag"), [("victim", True), ("victim", False), ("evil/victim", True)]
)
@pytest.mark.parametrize(
    "prepare", [sub_dag, log_elsewhere, linked_log, linked_nodes_log, linked_directory]
)
def test_files_of_a_directory_cannot_name_the_jobs_of_another(
    tmp_path: Path,
    prepare: Callable[[Path, Path], Prepared],
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
    # Its number is in the forged files, too.
    rows = [dag(file=made.dag)]
    ads = {9: dagman(directory=victim)}
    logs = [made.log, "ens.dag.nodes.log"]
    assert not Ownership(evil, rows, logs, ads.get).includes(theirs, "n12")
    # In its own directory it is ours.
    assert Ownership(victim, [dag()], ["metl.log"], ads.get).includes(theirs, "n12")
    if made.dag != "sub/ens.dag":
        assert not is_dagman_of(ads[9], evil / made.dag)


def test_an_initial_directory_elsewhere(tmp_path: Path) -> None:
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


def test_the_jobs_of_a_dagdir_below_are_not_those_of_the_folder_above() -> None:
    below = job(12, directory=BELOW, nodes_log=f"{BELOW}/ens.dag.nodes.log")
    assert not is_ours(below, dagmans=[dagman(directory=BELOW)])
    assert not is_ours(replace(below, nodes_log=None), dagmans=[dagman(directory=BELOW)])


def test_a_job_of_our_dagman_is_ours_whatever_log_it_writes() -> None:
    away = job(12, directory="/scratch", log="/scratch/log")
    assert is_ours(away, dagmans=[dagman()])
    assert not is_ours(away, dagmans=[])
    assert not is_ours(replace(away, dagman=8), dagmans=[dagman(), dagman(8)])


def test_a_job_of_a_dagman_that_ours_submitted_is_ours() -> None:
    below = replace(dagman(20, "inner.dag", "/scratch"), node="sub", dagman=9)
    inner = job(12, directory="/scratch", log=None, dagman=20)
    assert is_ours(inner, dagmans=[dagman(), below])
    assert not is_ours(inner, dagmans=[dagman(directory=BELOW), below])


def test_dagmans_that_name_each_other_end() -> None:
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
        (
            replace(dagman(dag="'my ens.dag'"), log="my ens.dag.dagman.log"),
            "my ens.dag",
            True,
        ),
        # A job that only has such arguments.
        (job(9, arguments="-Dag ens.dag"), "ens.dag", False),
        (replace(dagman(), log="/home/ben/ens.dag.dagman.log"), "ens.dag", False),
    ],
)
def test_dagman_is_known_by_its_dag_file(ad: QueueJob, file: str, known: bool) -> None:
    assert is_dagman_of(ad, DAGDIR / file) is known


def test_the_dagman_of_the_file_behind_a_link_is_anothers(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder in (mine, theirs):
        folder.mkdir()
    (theirs / "ens.dag").write_text("JOB a a.sub\n")
    (mine / "ens.dag").symlink_to(theirs / "ens.dag")
    made = dagman(directory=theirs)
    assert not is_dagman_of(made, mine / "ens.dag")
    assert is_dagman_of(made, theirs / "ens.dag")
    # It is the same DAG all the same: it must not be submitted a second time.
    assert runs_file(made, mine / "ens.dag")
