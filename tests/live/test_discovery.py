"""The files of a dagdir: its top-level DAGs and all logs, including later ones."""

from __future__ import annotations

import os
import re
import tracemalloc
from pathlib import Path

import pytest

from metlmon.cli.reading import read_whole
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.discovery import dag_files, discover_dags, discover_logs
from metlmon.live.file_access import read_file, read_regular_file
from metlmon.live.session import Session
from metlmon.model.model_state import Notice
from metlmon.model.states import State
from tests.conftest import Shared
from tests.support.dagdir_builder import NODE, Dagdir, again, jobs, log_of, states
from tests.support.event_logs import Log, Out


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    return Dagdir(tmp_path / "ensemble", dag="")


def tops(dagdir: Dagdir) -> list[str]:
    return [dag.file for dag in discover_dags(dagdir.path).dags if dag.is_top]


def logs(dagdir: Dagdir) -> set[str]:
    found = discover_dags(dagdir.path)
    return {log.name for log in discover_logs(dagdir.path, found.dags).logs}


# --- DAGs -----------------------------------------------------------------------------------


def test_dags_that_no_other_dag_names_are_top_level(dagdir: Dagdir) -> None:
    dagdir.write("top.dag", "SPLICE s part.dag\nINCLUDE more.dag\nSUBDAG EXTERNAL sub inner.dag\n")
    dagdir.write("part.dag", "JOB a t.sub\n")
    dagdir.write("more.dag", "JOB b t.sub\n")
    dagdir.write("inner.dag", "JOB run0-train_epoch0 t.sub\n")
    dagdir.write("second.dag", "JOB c t.sub\n")
    assert tops(dagdir) == ["second.dag", "top.dag"]
    keys = [dag.key for dag in discover_dags(dagdir.path).dags]
    assert "inner.dag" in keys, "the sub-DAG's nodes are wanted too"


@pytest.mark.parametrize("name", ["a.dag", "experiment.txt"])
def test_dag_file_is_recognised_by_dagmans_files(dagdir: Dagdir, name: str) -> None:
    """Its name may have any suffix, and others of its command line may be missing."""
    dagdir.write(name, f"JOB {NODE} t.sub\n")
    dagdir.write(f"{name}.condor.sub", f'arguments = "-Dag {name} -Dag gone.dag"\n')
    assert tops(dagdir) == [name]


def test_backups_and_rescue_files_are_not_dags() -> None:
    names = ["x.dag", "x.dag.rescue001", "x.dag~", "#x.dag#", ".#x.dag", "x.dag.old", "y.dag.bak"]
    assert dag_files([*names, "x.dag.metrics", "x.dag.rescue001.metrics"]) == ["x.dag"]


def test_only_the_given_dag_is_read(dagdir: Dagdir) -> None:
    dagdir.write("a.dag", "JOB A t.sub\n")
    path = dagdir.write("b.dag", "JOB B t.sub\n")
    reader = DagdirReader(path)
    reader.open()
    assert list(reader.ensemble.dags) == ["b.dag"]
    assert reader.dagdir == dagdir.path


def test_dags_that_name_each_other_are_found(dagdir: Dagdir) -> None:
    dagdir.write("a.dag", "JOB A t.sub\nSUBDAG EXTERNAL B b.dag\n")
    dagdir.write("b.dag", "JOB B2 t.sub\nSUBDAG EXTERNAL A a.dag\n")
    assert tops(dagdir)


def test_bad_dag_beside_a_good_one_is_a_warning(dagdir: Dagdir) -> None:
    dagdir.write("bad.dag", "JOB A t.sub\nJOB A t.sub\n")
    dagdir.write("good.dag", f"JOB {NODE} t.sub\n")
    found = discover_dags(dagdir.path)
    assert [dag.key for dag in found.dags] == ["good.dag"]
    assert ("bad.dag", 2) in [(problem.file, problem.line) for problem in found.problems]


# --- errors -----------------------------------------------------------------------------------


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        DagdirReader(path).open()
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_broken_link_or_directory_named_like_a_dag_is_refused(dagdir: Dagdir) -> None:
    os.symlink("nowhere.dag", dagdir.path / "x.dag")
    assert "x.dag: cannot be read" in refused(dagdir.path)
    (dagdir.path / "x.dag").unlink()
    (dagdir.path / "x.dag").mkdir()
    assert "x.dag: cannot be read" in refused(dagdir.path)


BROKEN = {
    "syntax": "RETRY A many",
    "unknown-node": "PARENT A CHILD NOBODY",
    "cycle": "PARENT A CHILD B\nPARENT B CHILD A",
    "duplicate-node": "JOB A t.sub",
    "missing-file": "SPLICE S nowhere.dag",
    "reject": "REJECT",
    "dependency": "FINAL F t.sub\nPARENT A CHILD F",
}
"""Kind of problem → lines that make DAGMan refuse a DAG."""

OUT = b"11/21/26 00:17:19 Bootstrapping...\n"


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        *((kind, ".nodes.log") for kind in BROKEN),
        *(("syntax", ending) for ending in (".dagman.out", ".dagman.log", ".metrics")),
    ],
)
def test_errors_of_a_dag_that_ran_are_warnings(dagdir: Dagdir, kind: str, ending: str) -> None:
    dagdir.write("x.dag", f"JOB A t.sub\nJOB B t.sub\n{BROKEN[kind]}\nRETRY B 3\n")
    dagdir.write("t.sub", "executable = t.sh\n")
    dagdir.write(f"x.dag{ending}", b"")
    remedy = "one of these PARENT … CHILD lines" if kind == "cycle" else "x.dag"
    assert remedy in refused(dagdir.path), "an empty log does not prove that it ran"
    dagdir.write(f"x.dag{ending}", {".dagman.out": OUT, ".metrics": b"{}"}.get(ending, log_of(77)))
    reader = dagdir.reader()
    [dag] = reader.ensemble.dags.values()
    assert {"A", "B"} <= dag.workflow.nodes.keys()
    assert dag.workflow.nodes["B"].retries == 3
    [warning] = [w for w in reader.snapshot_builder().notices() if w.kind == kind]
    assert warning.file == "x.dag"
    assert "DAGMan" in warning.text


def test_dag_file_broken_while_its_dag_runs_is_kept(dagdir: Dagdir) -> None:
    dagdir.write("x.dag", f"JOB {NODE} t.sub\n")
    dagdir.write("x.dag.nodes.log", log_of(77))
    reader = dagdir.reader()
    dagdir.write("x.dag", f"JOB {NODE} t.sub\nPRIORITY {NODE} high\nJOB B t.sub\n")
    again(reader)
    [dag] = reader.ensemble.dags.values()
    assert list(dag.workflow.nodes) == [NODE, "B"]
    assert 77 in jobs(reader)
    assert "syntax" in [problem.kind for problem in reader.snapshot_builder().notices()]


def test_errors_of_a_sub_dag_are_warnings(dagdir: Dagdir) -> None:
    dagdir.write("x.dag", "SUBDAG EXTERNAL S inner.sub\n")
    dagdir.write("inner.sub", "JOB A t.sub\nRETRY A many\n")
    [warning] = [w for w in dagdir.reader().snapshot_builder().notices() if w.kind == "syntax"]
    assert (warning.file, warning.line) == ("inner.sub", 2)
    assert warning.text.endswith("DAGMan would refuse this: the rest is shown")
    dagdir.write("inner.sub.nodes.log", log_of(77, node="A"))
    [warning] = [w for w in dagdir.reader().snapshot_builder().notices() if w.kind == "syntax"]
    assert warning.text.endswith("but has run the DAG: the rest is shown")


# --- logs -------------------------------------------------------------------------------------


def test_logs_of_inline_descriptions_and_submit_files(dagdir: Dagdir) -> None:
    dagdir.write("t.sub", "executable = t.sh\nlog = logs/train.ulog\nqueue\n")
    dagdir.write("x.dag", "JOB A t.sub\nJOB B {\n log = inline.txt\n}\nJOB C { \n log = c.log\n}\n")
    for name in ("logs/train.ulog", "inline.txt"):
        dagdir.write(name, log_of(77))
    assert logs(dagdir) == {"logs/train.ulog", "inline.txt"}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("logs/metl_$(Cluster).$(Process).txt", {"logs/metl_77.0.txt", "logs/metl_78.1.txt"}),
        ("$(run_uuid)/train.log", {"aaaa/train.log"}),
        ("/home/ada/of/a/copy/metl.ulog", {"metl.ulog"}),
    ],
)
def test_logs_named_by_descriptions(dagdir: Dagdir, name: str, found: set[str]) -> None:
    dagdir.write("x.dag", f'JOB A {{\n log = {name}\n}}\nVARS A run_uuid="aaaa"\n')
    for path in ("logs/metl_x.0.txt", *found):
        dagdir.write(path, log_of(77))
    assert logs(dagdir) == found


def test_logs_beside_the_dag_are_recognised_by_content(dagdir: Dagdir) -> None:
    dagdir.write("x.dag", "JOB A t.sub\n")
    dagdir.write("metl_12714074.log", log_of(77))
    dagdir.write("wandb.log", "2026-05-04 10:00:00 INFO hello\n")
    dagdir.write("empty.log", "")
    dagdir.write("xml.log", b'<c>\n    <a n="MyType"><s>SubmitEvent</s></a>\n</c>\n')
    dagdir.write("out/deeper.log", log_of(78))
    assert logs(dagdir) == {"metl_12714074.log", "xml.log"}


def test_nodes_log_of_a_missing_dag_is_reported(dagdir: Dagdir) -> None:
    dagdir.write("x.dag", "JOB A t.sub\n")
    dagdir.write("gone.dag.nodes.log", log_of(77, node="B"))
    reader = dagdir.reader()
    result = [(n.kind, n.file) for n in reader.snapshot_builder().status().warnings]
    assert ("missing-dag", "gone.dag.nodes.log") in result
    assert jobs(reader)[77].node is None
    # With DAGMAN_DEFAULT_NODE_LOG it may be the log of a DAG that is here.
    dagdir.write("x.dag.dagman.out", Out().start().submitted("A", 77).data)
    assert "missing-dag" not in {note.kind for note in again(reader).warnings}


# --- later files ------------------------------------------------------------------------------


def test_later_per_job_logs_are_found(dagdir: Dagdir) -> None:
    dagdir.write("run.dag", f"JOB {NODE} {{\n log = metl_$(Cluster).txt\n}}\n")
    dagdir.write("metl_77.txt", Log().submit(77, NODE).execute(77).terminate(77, 1).data)
    reader = dagdir.reader()
    dagdir.write("metl_90.txt", Log().submit(90, NODE, at="12:00:00").data)
    again(reader)
    assert states(reader) == {77: State.FAILED, 90: State.IDLE}


def test_later_dag_is_found(dagdir: Dagdir) -> None:
    dagdir.write("run.dag", f"JOB {NODE} {{\n log = metl.log\n}}\n")
    dagdir.write("metl.log", log_of(77) + log_of(90, node="run9-train_epoch0"))
    reader = dagdir.reader()
    assert jobs(reader)[90].node is None
    dagdir.write("two.dag", "JOB run9-train_epoch0 t.sub\n")
    status = again(reader)
    assert [dag.file for dag in status.dags] == ["run.dag", "two.dag"]
    assert {run.run: run.state for run in status.runs} == {"run0": State.IDLE, "run9": State.IDLE}
    assert jobs(reader)[90].dag == "two.dag"


def test_later_files_of_dagman_are_found(dagdir: Dagdir) -> None:
    dagdir.write("run.dag", f"JOB {NODE} t.sub\nJOB run0-train_epoch1 t.sub\n")
    reader = dagdir.reader()
    dagdir.write("run.dag.dagman.out", Out().start().data)
    assert again(reader).dags[0].state == "running"
    rescue = f"# Created 5/4/2026 20:00:00 UTC\n\nDONE {NODE}\n"
    dagdir.write("run.dag.rescue001", rescue)
    status = again(reader)
    assert (status.dags[0].rescue, status.dags[0].nodes_done) == (1, 1)
    dagdir.write("run.dag.halt", "")
    assert again(reader).dags[0].halted
    (dagdir.path / "run.dag.halt").unlink()
    assert not again(reader).dags[0].halted


def test_dag_file_that_breaks_keeps_the_snapshot(dagdir: Dagdir) -> None:
    dagdir.write("run.dag", f"JOB {NODE} t.sub\n")
    reader = dagdir.reader()
    dagdir.write("run.dag", f"JOB {NODE} t.sub\nJOB {NODE} t.sub\n")
    assert len(again(reader).runs) == 1
    assert reader.error is not None
    assert "run.dag:2" in reader.error
    dagdir.write("run.dag", f"JOB {NODE} t.sub\nJOB run0-train_epoch1 t.sub\n")
    assert again(reader).runs[0].epochs_total == 2
    assert reader.error is None


def test_small_file_needs_little_memory(tmp_path: Path) -> None:
    (tmp_path / "ens.dag").write_bytes(b"JOB a a.sub\n")
    tracemalloc.start()
    try:
        assert read_regular_file(tmp_path / "ens.dag") == b"JOB a a.sub\n"
        assert read_file(str(tmp_path / "ens.dag"), 256 << 20) == b"JOB a a.sub\n"
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20


@pytest.mark.parametrize("name", [".x.dag", "#x.dag", "..x.dag", ".#x.dag"])
def test_hidden_dag_file_is_ignored(dagdir: Dagdir, name: str) -> None:
    dagdir.write(name, "JOB a a.sub\n")
    with pytest.raises(InputError, match=f"{re.escape(name)}, a hidden file") as caught:
        discover_dags(dagdir.path)
    assert "cannot be read" not in str(caught.value)


# --- warnings about many nodes ----------------------------------------------------------------


def warnings_of(dagdir: Path) -> tuple[Notice, ...]:
    return Session(read_whole(dagdir)).take().status.warnings


def test_thirty_missing_submit_files_are_one_warning(shared: Shared) -> None:
    (only,) = warnings_of(shared("cases/one-warning-for-each-node"))
    assert (only.kind, only.line, only.count) == ("missing-submit-file", 1, 30)
    assert "calibrate_000.sub" in only.text
    assert "29 more" in only.text


def nodes(number: int, more: str = "") -> str:
    return "".join(f"JOB n{i} n{i}.sub\n" for i in range(number)) + more


def test_warning_of_another_kind_stays_visible(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path, nodes(40, "FROBNICATE n0 3\n"))
    found = {notice.kind: notice.count for notice in warnings_of(dagdir.path)}
    assert found == {"missing-submit-file": 40, "unknown-command": 1}


def test_few_missing_files_are_listed_singly(tmp_path: Path) -> None:
    found = warnings_of(Dagdir(tmp_path, nodes(2)).path)
    assert [(notice.line, notice.count) for notice in found] == [(1, 1), (2, 1)]
