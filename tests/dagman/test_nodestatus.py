"""The node status file, in the words of ``Dag::DumpNodeStatus``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from metlmon.dagman import read_node_status
from metlmon.dagman.records import StatusFile

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


def test_a_finished_ensemble_has_all_its_nodes_done(shared: Callable[[str], Path]) -> None:
    path = shared("examples/pool-ensemble/nodes.dag.status")
    status = read_whole(path.read_bytes())

    assert status.dag_files == ("ens.dag",)
    assert status.dag_status == 5
    assert status.epoch == 1795220261
    assert status.local == datetime(2026, 11, 21, 0, 17, 41)
    assert status.totals["NodesTotal"] == status.totals["NodesDone"] == 30
    assert "DagStatus" not in status.totals
    assert Counter(node.status for node in status.nodes.values()) == {5: 30}
    assert sum(node.retry_count for node in status.nodes.values()) == 6


def test_every_attribute_is_read_as_it_was_meant() -> None:
    status = read_whole(REMOVED)

    assert status.dag_files == ("a.dag", "dir with ] and { /b.dag")
    assert status.local == datetime(2026, 11, 1, 0, 17, 41)
    assert status.totals == {"NodesTotal": 3, "NodesDone": 1, "NodesFailed": 2, "JobProcsIdle": 0}
    assert status.nodes["0.A"].details == "Was STATUS_SUBMITTED"
    second = status.nodes["1.A"]
    assert second.details.startswith('said "no"\n]\\ ')
    assert (second.procs_queued, second.procs_held) == (3, 1)


def test_the_list_of_dag_files_may_stand_on_one_line() -> None:
    listed = REMOVED[REMOVED.index(b"{\n") : REMOVED.index(b"};")]
    status = read_whole(REMOVED.replace(listed, b'{ "a.dag", "b.dag" '))
    assert status.dag_files == ("a.dag", "b.dag")


def test_of_a_torn_copy_the_complete_nodes_are_used_and_a_problem_says_so() -> None:
    cut = REMOVED[: REMOVED.index(b"JobProcsQueued = 3")]
    status, problems = read_node_status(HERE, cut)

    assert status is not None
    assert list(status.nodes) == ["0.A"]
    assert [p.kind for p in problems] == ["torn-file"]


def test_a_node_with_a_status_that_no_dagman_writes_is_a_problem_with_its_line() -> None:
    status, problems = read_node_status(
        HERE, REMOVED.replace(b"NodeStatus = 6;", b"NodeStatus = 60;", 1)
    )
    assert status is not None
    assert list(status.nodes) == ["1.A"]
    assert str(problems[0]).startswith("nodes.dag.status:14: ")


def test_another_file_is_none() -> None:
    # the form before 8.1.6
    status, problems = read_node_status(HERE, b"BEGIN 1\nJOB A STATUS_DONE ()\nEND 1\n")
    assert status is None
    assert len(problems) == 1


@given(st.integers(min_value=0, max_value=len(REMOVED) - 3))
def test_a_prefix_never_says_more_than_the_whole(cut: int) -> None:
    whole = read_whole(REMOVED)
    part, problems = read_node_status(HERE, REMOVED[:cut])
    assert problems
    if part is not None:
        assert part.nodes.items() <= whole.nodes.items()
