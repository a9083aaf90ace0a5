"""Names in a DAG are relative to where condor_submit_dag was called, not to the DAG file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from metlmon.authoring.lint.run import check
from metlmon.config.settings import Settings
from metlmon.errors import InputError
from metlmon.live.discovery import discover_dags
from metlmon.live.file_access import UnreadableFile, output_file
from tests.support.records import read_dagdir

CASE = Path(__file__).parents[3] / "shared" / "cases" / "dag-file-in-a-subdirectory"
DAG = """JOB run0-train_epoch0 {0}
JOB run0-train_epoch1 {0}
PARENT run0-train_epoch0 CHILD run0-train_epoch1
"""
EVENTS = (
    "000 (7.000.000) 2025-10-02 09:00:00 Job submitted from host: <10.0.0.9:9618>\n"
    "    DAG Node: run0-train_epoch0\n...\n"
    "001 (7.000.000) 2025-10-02 09:10:00 Job executing on host: <10.1.0.7:9618>\n"
    '\tSlotName: slot1_1@gpu1.example.edu\n\tGLIDEIN_ResourceName = "Alpha"\n\tGPUs = 1\n...\n'
)
OUT = "10/02/25 08:59:50 ** condor_scheduniv_exec.6.0 (CONDOR_DAGMAN) STARTING UP\n{}"


def sites(path: Path) -> set[str]:
    """The sites of the executions of one dagdir or DAG file."""
    return {e.site for e in read_dagdir(path, settings=Settings()).ledger().executions}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def layout(dag: str, submit: str, log: str, named: str | None = None) -> dict[str, str]:
    """A directory where DAGMan ran: its DAG file, submit file and log."""
    return {dag: DAG.format(named or submit), submit: f"executable = t.sh\nlog = {log}\nqueue\n"}


@pytest.mark.skipif(not CASE.exists(), reason=f"{CASE} is not here")
@pytest.mark.parametrize("name", ["dags", "dags/e.dag"])
def test_log_of_a_dag_submitted_from_the_parent_directory(tmp_path: Path, name: str) -> None:
    shutil.copytree(CASE, tmp_path / "case")
    assert sites(tmp_path / "case" / name) == {"Alpha", "Beta"}


ARGUMENTS = 'arguments = "-p 0 -f -l . -Lockfile x.lock -Dag {0}{1}"\n'
EVIDENCE = {
    "parsed": {".dagman.out": OUT.format("10/02/25 08:59:51 Parsing dag/e.dag ...\n")},
    "argv": {
        ".dagman.out": OUT.format(
            '10/02/25 08:59:51 argv[1] == "-Dag"\n10/02/25 08:59:51 argv[2] == "dag/e.dag"\n'
        )
    },
    "dot": {".condor.sub": ARGUMENTS.format("./dag/e.dag", "")},
    "submit file": {".condor.sub": ARGUMENTS.format("dag/e.dag", "")},
    "absolute": {".condor.sub": ARGUMENTS.format("/home/u/old/dag/e.dag", "")},
    "nothing": {},
}


@pytest.mark.parametrize("evidence", EVIDENCE)
def test_submission_directory_is_found(tmp_path: Path, evidence: str) -> None:
    files = layout("dag/e.dag", "jobs/train.sub", "logs/train.txt") | {"logs/train.txt": EVENTS}
    files |= {f"dag/e.dag{suffix}": text for suffix, text in EVIDENCE[evidence].items()}
    write(tmp_path, files)
    assert sites(tmp_path / "dag") == {"Alpha"}


OLD = "/nowhere/u/out"
PARSED = OUT.format(
    "10/02/25 08:59:51 Default node log file is: </home/u/p/ens/../dag/e.dag.nodes.log>\n"
    "10/02/25 08:59:51 Parsing ../dag/e.dag ...\n"
)

LAYOUTS = {
    "two directories above, as bilby submits": (
        "out/submit",
        layout("out/submit/dag_x.submit", "out/submit/train.submit", "out/log_train/t.txt"),
        {
            "out/log_train/t.txt": EVENTS,
            "out/submit/dag_x.submit.condor.sub": ARGUMENTS.format("out/submit/dag_x.submit", ""),
        },
    ),
    "beside the directory of the DAG file": (
        "dag",
        layout("dag/e.dag", "ens/jobs/train.sub", "logs/train.txt", "jobs/train.sub"),
        {"dag/e.dag.dagman.out": PARSED, "ens/logs/train.txt": EVENTS},
    ),
    "where the DAG file is, with -UseDagDir": (
        "dag",
        layout("dag/e.dag", "dag/train.sub", "train.txt", "train.sub"),
        {
            "train.sub": "log = other.txt\nqueue\n",
            "dag/train.txt": EVENTS,
            "dag/e.dag.condor.sub": ARGUMENTS.format("dag/e.dag", " -UseDagDir"),
        },
    ),
    "a sub-DAG where its DAG runs": (
        "",
        layout("sub/inner.dag", "jobs/train.sub", "logs/train.txt"),
        {"logs/train.txt": EVENTS, "o.dag": "SUBDAG EXTERNAL s sub/inner.dag\n"},
    ),
    "DIR": (
        "dag",
        layout("dag/e.dag", "w/train.sub", "train.txt", "train.sub DIR w"),
        {"w/train.txt": EVENTS, "dag/e.dag.condor.sub": ARGUMENTS.format("dag/e.dag", "")},
    ),
    "absolute names of another machine": (
        "submit",
        layout("submit/x.submit", "jobs/t.sub", f"{OLD}/log_t/t.txt", f"{OLD}/jobs/t.sub"),
        {
            "log_t/t.txt": EVENTS,
            "submit/x.submit.condor.sub": ARGUMENTS.format(f"{OLD}/submit/x.submit", ""),
        },
    ),
}


@pytest.mark.parametrize(("dagdir", "dag", "more"), LAYOUTS.values(), ids=LAYOUTS)
def test_names_are_relative_to_the_submission_directory(
    tmp_path: Path, dagdir: str, dag: dict[str, str], more: dict[str, str]
) -> None:
    write(tmp_path, dag | more)
    assert sites(tmp_path / dagdir) == {"Alpha"}


@pytest.mark.parametrize("order", [("dag/a.dag", "dag/b.dag"), ("dag/a.dag", "other/b.dag")])
def test_dag_files_of_one_command_line(tmp_path: Path, order: tuple[str, str]) -> None:
    files = layout(order[0], "jobs/train.sub", "logs/train.txt")
    files |= layout(order[1], "jobs/train.sub", "logs/train.txt")
    files["logs/train.txt"] = EVENTS.replace("DAG Node: ", "DAG Node: 1.")
    files[f"{order[0]}.condor.sub"] = ARGUMENTS.format(order[0], f" -Dag {order[1]}")
    write(tmp_path, files)
    assert sites(tmp_path / "dag") == {"Alpha"}


def test_message_lists_where_a_submit_file_was_searched(tmp_path: Path) -> None:
    files = layout("dag/e.dag", "x/other.sub", "l.txt", f"{'long/' * 9}jobs/train.sub")
    files["dag/e.dag.condor.sub"] = ARGUMENTS.format("dag/e.dag", "")
    write(tmp_path, files)
    [text, *_] = [p.text for p in discover_dags(tmp_path / "dag").problems]
    assert "g/long/jobs/train.sub cannot be read beside the DAG file and in .. from" in text


def test_dag_file_with_another_suffix_is_suggested(tmp_path: Path) -> None:
    write(tmp_path, layout("dag_x.submit", "train.submit", "t.log"))
    with pytest.raises(InputError, match=r"dag_x\.submit"):
        discover_dags(tmp_path)
    with pytest.raises(InputError, match=r"dag_x\.submit"):
        check(tmp_path, Settings())
    assert discover_dags(tmp_path, "dag_x.submit").dags[0].workflow.nodes


def test_check_finds_the_files_of_a_dag_in_a_subdirectory(tmp_path: Path) -> None:
    files = layout("dag/e.dag", "jobs/train.sub", "logs/train.txt") | {"t.sh": "#!/bin/sh\n"}
    write(tmp_path, files)
    kinds = {finding.kind for finding in check(tmp_path / "dag", Settings()).findings}
    assert not kinds & {"missing-submit-file", "missing-executable"}


def test_common_name_in_the_parent_directory_is_no_proof(tmp_path: Path) -> None:
    write(tmp_path, layout("ens1/e.dag", "ens1/train.sub", "metl.log", named="train.sub"))
    write(tmp_path, {"ens1/metl.log": EVENTS, "train.sub": "log = metl.log\nqueue\n"})
    write(tmp_path, {"metl.log": EVENTS.replace("Alpha", "Beta")})
    assert sites(tmp_path / "ens1") == {"Alpha"}


def output_of(dagdir: Path) -> Path:
    """The resolved output file of the only job."""
    name = read_dagdir(dagdir, settings=Settings()).output_file((7, 0, 0))
    assert name is not None
    return output_file(dagdir, name)


@pytest.mark.parametrize("output", ["out/$(Cluster).out", "dag/7.out", "{root}/out/7.out", "7.out"])
def test_output_beside_the_dag_directory_is_read(tmp_path: Path, output: str) -> None:
    files = layout("dag/e.dag", "jobs/train.sub", "logs/train.txt") | {"logs/train.txt": EVENTS}
    files |= dict.fromkeys(("out/7.out", "dag/7.out", "7.out"), "epoch 1\n")
    files["jobs/train.sub"] = f"output = {output}\n" + files["jobs/train.sub"]
    files["jobs/train.sub"] = files["jobs/train.sub"].replace("{root}", str(tmp_path))
    write(tmp_path, files)
    expected = output.replace("$(Cluster)", "7").replace("{root}/", "")
    assert output_of(tmp_path / "dag") == tmp_path / expected


@pytest.mark.parametrize(
    "output", ["/etc/passwd", "../secret", "../ensemble2/x", ".ssh/key", "link", "out/../../secret"]
)
def test_output_of_others_beside_the_dag_directory_is_not_read(tmp_path: Path, output: str) -> None:
    root = tmp_path / "ensemble"
    files = layout("dag/e.dag", "jobs/train.sub", "logs/train.txt") | {"logs/train.txt": EVENTS}
    files |= {".ssh/key": "k", "../secret": "s", "../ensemble2/x": "x"}
    files["jobs/train.sub"] = f"output = {output}\n" + files["jobs/train.sub"]
    write(root, files)
    (root / "link").symlink_to("../secret")
    with pytest.raises(UnreadableFile, match="outside"):
        output_of(root / "dag")


def test_output_above_a_dag_submitted_in_place_is_not_read(tmp_path: Path) -> None:
    files = layout("e.dag", "train.sub", "train.txt") | {"train.txt": EVENTS, "../secret": "s"}
    files["train.sub"] = "output = ../secret\n" + files["train.sub"]
    write(tmp_path / "ensemble", files)
    with pytest.raises(UnreadableFile, match="outside"):
        output_of(tmp_path / "ensemble")
