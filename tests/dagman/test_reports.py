"""The node status file, in the words of ``Dag::DumpNodeStatus``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from metlmon.dagman.records import StatusFile
from metlmon.dagman.reports import LONGEST_LINE, read_condor_sub, read_jobstate, read_node_status

HERE = Path("nodes.dag.status")

# Dag::DumpNodeStatus, with two DAG files, an error text quoted by EscapeClassadString, and
# a node that was running when DAGMan was removed (markNodesError).
REMOVED = rb"""[
  Type = "DagStatus";
  DagFiles = {
    "a.dag",
    "dir with ] and { /b.dag"
  };
  Timestamp = 1795220261; /* "Sun Nov  1 00:17:41 2026" */
  DagStatus = 6; /* "STATUS_ERROR (removed)" */
  NodesTotal = 3;
  NodesDone = 1;
  NodesFailed = 2;
  JobProcsIdle = 0; /* includes held */
]
[
  Type = "NodeStatus";
  Node = "0.A";
  NodeStatus = 6; /* "STATUS_ERROR" */
  StatusDetails = "Was STATUS_SUBMITTED";
  RetryCount = 2;
  JobProcsQueued = 0;
  JobProcsHeld = 0;
]
[
  Type = "NodeStatus";
  Node = "1.A";
  NodeStatus = 6; /* "STATUS_ERROR" */
  StatusDetails = "said \"no\"\n]\\ \303\244";
  RetryCount = 0;
  JobProcsQueued = 3;
  JobProcsHeld = 1;
]
[
  Type = "StatusEnd";
  EndTime = 1795220261; /* "Sun Nov  1 00:17:41 2026" */
  NextUpdate = 0; /* "none" */
]
"""


def read_whole(data: bytes) -> StatusFile:
    status, problems = read_node_status(HERE, data)
    assert problems == []
    assert status is not None
    return status


def test_every_attribute_is_read() -> None:
    status = read_whole(REMOVED)

    assert status.dag_files == ("a.dag", "dir with ] and { /b.dag")
    assert status.local == datetime(2026, 11, 1, 0, 17, 41)
    assert status.totals == {"NodesTotal": 3, "NodesDone": 1, "NodesFailed": 2, "JobProcsIdle": 0}
    assert status.nodes["0.A"].details == "Was STATUS_SUBMITTED"
    second = status.nodes["1.A"]
    assert second.details.startswith('said "no" ]\\ ')
    assert second.procs_queued == 3


def test_list_of_dag_files_may_be_on_one_line() -> None:
    listed = REMOVED[REMOVED.index(b"{\n") : REMOVED.index(b"};")]
    status = read_whole(REMOVED.replace(listed, b'{ "a.dag", "b.dag" '))
    assert status.dag_files == ("a.dag", "b.dag")


def test_complete_nodes_of_a_torn_copy_are_used() -> None:
    cut = REMOVED[: REMOVED.index(b"JobProcsQueued = 3")]
    status, problems = read_node_status(HERE, cut)

    assert list(status.nodes) == ["0.A"]
    assert [p.kind for p in problems] == ["torn-file"]


def test_unknown_node_status_is_a_problem_with_its_line() -> None:
    status, problems = read_node_status(
        HERE, REMOVED.replace(b"NodeStatus = 6;", b"NodeStatus = 60;", 1)
    )
    assert list(status.nodes) == ["1.A"]
    assert str(problems[0]).startswith("nodes.dag.status:14: ")


def test_other_file_is_none() -> None:
    # the form before 8.1.6
    status, problems = read_node_status(HERE, b"BEGIN 1\nJOB A STATUS_DONE ()\nEND 1\n")
    assert status is None
    assert len(problems) == 1


@given(st.integers(min_value=0, max_value=len(REMOVED) - 3))
def test_prefix_has_no_more_nodes_than_the_whole(cut: int) -> None:
    whole = read_whole(REMOVED)
    part, problems = read_node_status(HERE, REMOVED[:cut])
    assert problems
    if part is not None:
        assert part.nodes.items() <= whole.nodes.items()


# --- The jobstate log, in the words of ``JobstateLog`` ----------------------------------------


# JobstateLog::Write, WriteDagmanStarted, WriteRecovery…, WriteScriptSuccessOrFailure,
# WriteSubmitFailure, WriteEvent (PRESKIP, a POST script whose submit failed, a Pegasus tag).
LINES = b"""\
1795219935 INTERNAL *** DAGMAN_STARTED 12.0 ***
1795219935 INTERNAL *** RECOVERY_STARTED ***
1795219936 A PRE_SCRIPT_STARTED - - - 1
1795219937 A PRE_SCRIPT_FAILURE - - - 1
1795219937 A PRESKIP 0.2147483647 - - 1
1795219938 B SUBMIT_FAILURE - - - 2
1795219939 B POST_SCRIPT_TERMINATED - - - 2
1795219940 C JOB_FAILURE -9 local - 3
1795219941 C+D JOB_SUCCESS 0 - - 4
1795219942 INTERNAL SUBMIT 7.1 - - 5
1795219943 INTERNAL *** DAGMAN_FINISHED 1001 ***
"""


def test_each_kind_of_line_is_read() -> None:
    result, problems, _ = read_jobstate(LINES)
    assert problems == []
    assert [(s.node, s.event, s.cluster, s.value) for s in result] == [
        (None, "DAGMAN_STARTED", 12, None),
        (None, "RECOVERY_STARTED", None, None),
        ("A", "PRE_SCRIPT_STARTED", None, None),
        ("A", "PRE_SCRIPT_FAILURE", None, None),
        ("A", "PRESKIP", 0, None),
        ("B", "SUBMIT_FAILURE", None, None),
        ("B", "POST_SCRIPT_TERMINATED", None, None),
        ("C", "JOB_FAILURE", None, -9),
        ("C+D", "JOB_SUCCESS", None, 0),
        ("INTERNAL", "SUBMIT", 7, None),
        (None, "DAGMAN_FINISHED", None, 1001),
    ]


def test_torn_last_line_waits_until_the_end() -> None:
    line = b"1795219936 A SUBMIT 2.0 - - 1\n1795219937 A SUBMIT 3.0 - - 12"
    result, _, used = read_jobstate(line)
    assert [s.cluster for s in result] == [2]
    assert line[used:].startswith(b"1795219937 A")
    result, problems, used = read_jobstate(line[used:], final=True)
    assert [s.cluster for s in result] == [3]
    assert problems == []


def test_unknown_lines_are_one_problem_with_file_and_line() -> None:
    result, problems, _ = read_jobstate(
        b"\xff\xfe\n\n1795219936 A SUBMIT 2.0 - - 1\nx\n", file="ens.jobstate.log", line=10
    )
    assert len(result) == 1
    assert len(problems) == 1
    assert str(problems[0]).startswith("ens.jobstate.log:10: ")
    assert "1 more" in problems[0].text


def test_file_without_line_ends_is_not_buffered() -> None:
    data = b"0" * (LONGEST_LINE + 1)
    _, problems, used = read_jobstate(data)
    assert used == len(data)
    assert len(problems) == 1


# --- DAGMan's own submit file, as ``condor_submit_dag`` writes it -----------------------------


def test_dag_files_of_the_submit_file_keep_their_order() -> None:
    # DagmanUtils::writeSubmitFile; ArgList::GetArgsStringV2Quoted for blanks and quotes
    sub = read_condor_sub(
        b"# Filename: b.dag.condor.sub\n"
        b"universe\t= scheduler\n"
        b'Arguments\t= "-p 0 -f -l . -Lockfile b.dag.lock -AutoRescue 1 -DoRescueFrom 4 '
        b"-Dag b.dag -Dag 'runs of ''may''/a \"\"x\"\".dag' -UseDagDir -Suppress_notification "
        b"-CsdVersion $CondorVersion:' '25.14.1' '2026-10-16' '$ -dagman /usr/bin/condor_dagman\"\n"
        b"environment = \"X=-Dag' 'secret.dag\"\n"
        b"queue\n"
    )
    assert sub.dag_files == ("b.dag", "runs of 'may'/a \"x\".dag")
    assert sub.use_dag_dir
    assert sub.rescue_from == 4


def test_old_syntax_of_arguments_has_no_quotes() -> None:
    sub = read_condor_sub(b"arguments = -f -l . -Dag x.dag -DoRescueFrom 0 -UseDagDir\r\nqueue\r\n")
    assert (sub.dag_files, sub.use_dag_dir, sub.rescue_from) == (("x.dag",), True, None)


def test_other_file_names_no_dag() -> None:
    assert read_condor_sub(b"JOB A a.sub\n").dag_files == ()
    assert read_condor_sub(b'arguments = "-Dag"\n').dag_files == ()
