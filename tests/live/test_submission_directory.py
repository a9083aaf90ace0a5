"""DAG files in a directory other than that where condor_submit_dag was called."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from metlmon.authoring.lint.run import check
from metlmon.cli.reading import read_whole
from metlmon.config.settings import Settings
from metlmon.errors import InputError
from metlmon.live.session import Session
from tests.support.dagdir_builder import NODE, log_of

SUBMIT = "executable = train.sh\nlog = {log}\nqueue\n"
CONDOR_SUB = 'arguments = "-p 0 -f -l . -Lockfile {dag}.lock -Dag {dag}{more}"\nqueue\n'
STARTED = (
    "10/02/25 08:59:50 ** condor_scheduniv_exec.79.0 (CONDOR_DAGMAN) STARTING UP\n"
    "10/02/25 08:59:51 Parsing 1 dagfiles\n10/02/25 08:59:51 Parsing {dag} ...\n"
)


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def submitted(top: Path, dag: str, submit: str, log: str) -> Path:
    """An ensemble whose DAG was submitted in ``top``, to which its paths are relative."""
    write(top / dag, f"JOB {NODE} {submit}\n")
    write(top / submit, SUBMIT.format(log=log))
    write(top / log, log_of(77))
    return (top / dag).parent


def clusters(path: Path) -> list[int]:
    return [job.cluster for job in read_whole(path).snapshot_builder().job_rows()]


def test_the_dag_file_is_in_a_subdirectory(shared: Callable[[str], Path]) -> None:
    dags = shared("cases/dag-file-in-a-subdirectory") / "dags"
    for path in (dags, dags / "e.dag"):
        ledger = Session(read_whole(path)).ledger()
        found = [(e.site, e.seconds) for e in ledger.executions]
        assert found == [("Alpha", 7200.0), ("Beta", 0.0)]
    errors = [f.kind for f in check(dags, Settings()).findings if f.severity.name == "ERROR"]
    assert errors == []


@pytest.mark.parametrize("evidence", ["out", "sub", "none"])
@pytest.mark.parametrize(
    ("dag", "submit", "log"),
    [
        ("dags/e.dag", "jobs/train.sub", "logs/train.log"),
        ("dags/e.dag", "train.sub", "logs/train.log"),
        ("out/submit/dag_x.submit", "out/submit/train.submit", "out/log_data/train.log"),
        ("./dags/e.dag", "train.sub", "metl.log"),
    ],
)
def test_paths_are_relative_to_where_it_was_submitted(
    dag: str, submit: str, log: str, evidence: str, tmp_path: Path
) -> None:
    dagdir = submitted(tmp_path, dag, submit, log)
    if evidence == "out":
        write(tmp_path / f"{dag}.dagman.out", STARTED.format(dag=dag))
    if evidence == "sub":
        write(tmp_path / f"{dag}.condor.sub", CONDOR_SUB.format(dag=dag, more=""))
    assert clusters(dagdir / Path(dag).name) == [77]


def test_with_usedagdir_paths_are_relative_to_the_dag_file(tmp_path: Path) -> None:
    dagdir = submitted(tmp_path / "dags", "e.dag", "train.sub", "metl.log")
    write(tmp_path / "train.sub", SUBMIT.format(log="other.log"))
    write(tmp_path / "other.log", log_of(78))
    write(dagdir / "e.dag.condor.sub", CONDOR_SUB.format(dag="dags/e.dag", more=" -UseDagDir"))
    assert clusters(dagdir) == [77]


def test_a_usual_name_in_the_parent_directory_proves_nothing(tmp_path: Path) -> None:
    submitted(tmp_path / "ens1", "e.dag", "train.sub", "metl.log")
    write(tmp_path / "train.sub", SUBMIT.format(log="metl.log"))
    write(tmp_path / "metl.log", log_of(78))
    assert clusters(tmp_path / "ens1") == [77]


def test_a_renamed_copy_of_all_is_read(tmp_path: Path) -> None:
    submitted(tmp_path / "runs", "dags/e.dag", "jobs/train.sub", "logs/train.log")
    write(tmp_path / "runs/dags/e.dag.dagman.out", STARTED.format(dag="/home/alice/dags/e.dag"))
    copy = Path(shutil.copytree(tmp_path / "runs", tmp_path / "copy"))
    shutil.rmtree(tmp_path / "runs")
    assert clusters(copy / "dags") == [77]


def test_a_dag_file_with_another_suffix_is_named(tmp_path: Path) -> None:
    dagdir = submitted(tmp_path, "submit/dag_x.submit", "submit/train.submit", "logs/train.log")
    with pytest.raises(InputError, match=r"dag_x\.submit"):
        read_whole(dagdir)
