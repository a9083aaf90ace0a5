"""How a DAG was submitted, and its resubmission."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from metlmon.pool import submission
from metlmon.pool.submission import leftovers, previous_submission
from metlmon.pool.types import PoolError
from tests.support.queue_rows import Schedd, submit_command

ARGUMENTS = (
    "-p 0 -f -l . -Debug 4 -Lockfile ens.dag.lock {dags} -MaxIdle 7 -MaxJobs 3 -UseDagDir "
    "-Suppress_notification -Notification never -Priority -5 "
    "-CsdVersion $CondorVersion:' '25'$ -AutoRescue 1 -DoRescueFrom 2 -Force"
)


def submitted(dagdir: Path, dags: str, extra: str = "") -> Path:
    (dagdir / "ens.dag").write_text("JOB a a.sub\n")
    text = f'{extra}arguments = "{ARGUMENTS.format(dags=dags)}"\nqueue\n'
    (dagdir / "ens.dag.condor.sub").write_text(text)
    return dagdir / "ens.dag"


def test_options_are_kept_except_force_and_rescue(tmp_path: Path) -> None:
    before = previous_submission(
        submitted(tmp_path, "-Dag ens.dag", 'My.JobBatchName = "a sweep"\n')
    )
    assert before.files == ("ens.dag",)
    assert " ".join(before.options) == (
        "-debug 4 -maxidle 7 -maxjobs 3 -usedagdir -suppress_notification -notification never "
        "-priority -5 -batch-name a sweep"
    )


def test_several_dags_are_resubmitted_together(tmp_path: Path) -> None:
    dag = submitted(tmp_path, "-Dag ens.dag -Dag b.dag")
    assert previous_submission(dag).refused == (
        "it was submitted with b.dag: metlmon act resubmit … --keep=b.dag keeps that"
    )
    before = previous_submission(dag, ["b.dag"])
    assert (before.files, before.refused) == (("ens.dag", "b.dag"), None)


def test_dag_submitted_from_above_is_resubmitted_from_there(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    dag = submitted(tmp_path / "sub", "-Dag sub/ens.dag")
    assert previous_submission(dag).refused is not None
    before = previous_submission(dag, [str(tmp_path.resolve())])
    assert before.refused is None
    assert before.directory == tmp_path.resolve()
    assert before.files == ("sub/ens.dag",)


@pytest.mark.parametrize(
    "dags", ["-Dag elsewhere/ens.dag", "-Dag /other/ens.dag", "-Dag b.dag", ""]
)
def test_submit_file_of_another_dag_is_ignored(tmp_path: Path, dags: str) -> None:
    before = previous_submission(submitted(tmp_path, dags))
    assert before.directory == tmp_path
    assert before.files == ("ens.dag",)
    assert (before.refused is not None) == bool(dags)


@pytest.mark.parametrize("option", ["-import_env", "-Outfile_dir /elsewhere"])
def test_unsafe_option_is_kept_only_by_name(tmp_path: Path, option: str) -> None:
    dag = submitted(tmp_path, f"-Dag ens.dag {option}")
    name = option.split()[0].lower()
    assert f"--keep={name}" in (previous_submission(dag).refused or "")
    assert previous_submission(dag, [name]).refused is None


def test_environment_values_are_never_kept(tmp_path: Path) -> None:
    dag = submitted(tmp_path, "-Dag ens.dag -insert_env LD_PRELOAD=/x.so")
    refused = previous_submission(dag, ["-insert_env"]).refused
    assert refused == (
        "it was submitted with -insert_env: submit it with condor_submit_dag yourself"
    )


def test_link_to_a_dag_is_submitted_at_the_link(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "theirs").mkdir()
    theirs = submitted(tmp_path / "theirs", "-Dag ens.dag")
    (tmp_path / "mine" / "ens.dag").symlink_to(theirs)
    (tmp_path / "mine" / "ens.dag.condor.sub").symlink_to(f"{theirs}.condor.sub")
    assert (
        previous_submission(tmp_path / "mine" / "ens.dag").directory
        == (tmp_path / "mine").resolve()
    )


def test_pipe_in_place_of_a_submit_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "ens.dag").write_text("")
    os.mkfifo(tmp_path / "ens.dag.condor.sub")
    assert previous_submission(tmp_path / "ens.dag").options == ()


def test_batch_name_cannot_add_a_line(tmp_path: Path) -> None:
    text = 'My.JobBatchName = "a\\"\\nexecutable = /bin/sh"\n'
    assert (
        "-batch-name" not in previous_submission(submitted(tmp_path, "-Dag ens.dag", text)).options
    )


def test_existing_files_are_found_by_name(tmp_path: Path) -> None:
    dag = tmp_path / "ens.dag"
    dag.write_text("")
    (tmp_path / "ens.dag.halt").write_text("")
    (tmp_path / "other.dag.dagman.out").write_text("")
    assert leftovers(dag) == []
    (tmp_path / "ens.dag.nodes.log").symlink_to("nowhere")
    assert leftovers(dag) == ["ens.dag.nodes.log"]


# --- the command --------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def submit(dagdir: Path, command: str | None, file: str = "ens.dag", *options: str) -> int:
    schedd = Schedd()
    schedd.submit_command = command
    return submission.submit(schedd, dagdir, (file,), options)  # type: ignore[arg-type]


def test_command_runs_in_the_dagdir_without_a_shell(tmp_path: Path) -> None:
    command, name = submit_command(tmp_path / "submit"), "-f $(touch hacked).dag"
    assert submit(tmp_path, command, name, "-maxidle", "3") == 77
    result = (tmp_path / "submit.output").read_text().splitlines()
    assert result == [str(tmp_path), "-maxidle", "3", f"./{name}"]
    assert not (tmp_path / "hacked").exists()


def test_refusal_of_the_command_is_quoted(tmp_path: Path) -> None:
    command = submit_command(tmp_path / "csd", 'echo "ERROR: no \033[2J such DAG" >&2; exit 1')
    with pytest.raises(PoolError, match=r"ERROR: no .* such DAG") as caught:
        submit(tmp_path, command)
    assert "\033" not in str(caught.value)


def test_missing_command_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PoolError, match="not in PATH"):
        submit(tmp_path, None)
