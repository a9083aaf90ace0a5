"""Whose job is it: logs can be a copy, and a schedd's numbers begin at 1 everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.pool.identity import is_dagman_of, is_ours
from tests.queue.written import DAGDIR, dagman, job


def test_a_job_of_our_node_in_our_directory_is_ours() -> None:
    assert is_ours(job(12), DAGDIR, "n12")


def test_a_job_of_another_node_is_not() -> None:
    assert not is_ours(job(12), DAGDIR, "n13")


def test_where_the_node_is_not_known_the_directory_decides() -> None:
    assert is_ours(job(12), DAGDIR, None)
    assert not is_ours(job(12, directory="/home/ben/ens"), DAGDIR, None)


def test_a_directory_whose_name_only_begins_alike_is_another() -> None:
    assert not is_ours(job(12, directory=f"{DAGDIR}-copy"), DAGDIR, "n12")


def test_a_node_with_a_directory_of_its_own_is_known_by_its_logs() -> None:
    away = job(12, directory="/scratch/anna", nodes_log=f"{DAGDIR}/./ens.dag.nodes.log")
    assert is_ours(away, DAGDIR, "n12")
    beside = job(12, directory="/scratch/anna", log=f"{DAGDIR}/ens.log")
    assert is_ours(beside, DAGDIR, "n12")


def test_a_log_is_meant_from_the_jobs_directory() -> None:
    assert is_ours(job(12, directory="/home/anna", log="ens/ens.log"), DAGDIR, "n12")


def test_a_way_out_of_the_directory_is_not_in_it() -> None:
    assert not is_ours(job(12, directory=f"{DAGDIR}/../ben"), DAGDIR, "n12")


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "name").symlink_to("real")
    assert is_ours(job(12, directory=tmp_path / "real"), tmp_path / "name", "n12")


@pytest.mark.parametrize("place", ["\0", "a\0b", "x" * 5000, "\udcff"])
def test_what_is_no_path_is_not_ours(place: str) -> None:
    assert not is_ours(job(12, directory=place, log=place, nodes_log=place), DAGDIR, "n12")


def test_an_ad_that_says_nothing_is_not_ours() -> None:
    assert not is_ours(job(12, directory=""), DAGDIR, "n12")


def test_dagman_is_known_by_its_dag_file() -> None:
    assert is_dagman_of(dagman(), DAGDIR / "ens.dag")
    assert not is_dagman_of(dagman(dag="other.dag"), DAGDIR / "ens.dag")
    assert not is_dagman_of(dagman(directory="/home/ben/ens"), DAGDIR / "ens.dag")


def test_dagman_submitted_from_above_is_known_too() -> None:
    assert is_dagman_of(dagman(dag="ens/ens.dag", directory="/home/anna"), DAGDIR / "ens.dag")


def test_a_name_with_blanks_is_read_as_dagman_reads_it() -> None:
    made = dagman(dag="'my ens.dag'")
    assert is_dagman_of(made, DAGDIR / "my ens.dag")


def test_a_job_that_only_has_such_arguments_is_no_dagman() -> None:
    made = job(9, arguments="-Dag ens.dag")
    assert not is_dagman_of(made, DAGDIR / "ens.dag")
