"""Rescue files, in the words of ``Dag::WriteRescue`` and ``Dag::WriteNodeToRescue``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.dagman.reports import read_rescue, rescue_number

HERE = Path("x.dag.rescue003")

# Dag::Rescue (first two lines), Dag::WriteRescue (comments), Dag::WriteNodeToRescue (the rest)
# with DAGMAN_RESET_RETRIES_UPON_RESCUE false.
PARTIAL = b"""\
# Rescue DAG file, created after running
#   the x.dag DAG file
# Created 11/21/2026 6:15:09 UTC
# Rescue DAG version: 2.0.1 (partial)
#
# Total number of Nodes: 5
# Nodes premarked DONE: 2
# Nodes that failed: 2
#   run0-train_epoch1,outer+inner+B,<ENDLIST>

DONE run0-train_epoch0
# 1 of 3 retries already performed; 2 remaining
RETRY run0-train_epoch1 2
# 0 of 2 retries performed; remaining attempts aborted after node returned 7
RETRY outer+inner+B 2 UNLESS-EXIT 7
DONE run1-train_epoch0
"""

# The same with the partial flag off (the default before 7.7.2, gone with 24): a whole DAG.
FULL = b"""\
# Rescue DAG file, created after running
#   the x.dag DAG file
# Created 2/3/2012 18:00:00 UTC
# Rescue DAG version: 2.0.1 (full)
#
# Total number of Nodes: 4
# Nodes premarked DONE: 2
# Nodes that failed: 0
#   <ENDLIST>

CONFIG dag.config

NODE_STATUS_FILE x.status

JOBSTATE_LOG x.jobstate.log


JOB A a.sub DIR done NOOP
SCRIPT PRE A pre.sh DONE
PRE_SKIP A 1
VARS A epoch="1"
ABORT-DAG-ON A 9 RETURN 0
PRIORITY A 3
CATEGORY A train
DONE A
RETRY A 1

JOB B b.sub DIR DONE
SUBDAG EXTERNAL C c.dag DONE
PROVISIONER P p.sub DONE
FINAL F f.sub DONE

PARENT A CHILD  B C
MAXJOBS train 2
"""


def test_partial_rescue_has_done_and_failed() -> None:
    rescue, problems = read_rescue(HERE, PARTIAL)

    assert problems == []
    assert rescue.number == 3
    assert rescue.created == datetime(2026, 11, 21, 6, 15, 9, tzinfo=UTC)
    assert rescue.done == {"run0-train_epoch0", "run1-train_epoch0"}
    assert rescue.failed == {"run0-train_epoch1", "outer+inner+B"}


def test_full_rescue_has_done_in_both_spellings() -> None:
    rescue, problems = read_rescue(HERE, FULL)

    assert problems == []
    assert rescue.done == {"A", "C", "P"}, "B's directory is called DONE; FINAL is never done"
    assert rescue.failed == frozenset()


def test_save_file_is_a_rescue_without_a_number() -> None:
    # Dag::WriteSavePoint
    data = PARTIAL.replace(
        b"# Rescue DAG file, created after running\n#   the x.dag DAG file\n",
        b"# Save file written at Start Node run0-train_epoch1\n",
    )
    rescue, problems = read_rescue(Path("save_files/half.save"), data)

    assert problems == []
    assert rescue.number == 0
    assert len(rescue.done) == 2


def test_truncated_name_is_not_another_node() -> None:
    cut = PARTIAL[: PARTIAL.index(b"DONE run1-train_epoch0") + len(b"DONE run1")]
    rescue, problems = read_rescue(HERE, cut)

    assert rescue.done == {"run0-train_epoch0"}
    assert [p.kind for p in problems] == ["torn-file"]
    assert str(problems[0]).startswith("x.dag.rescue003:16: ")


def test_unknown_lines_are_one_problem() -> None:
    rescue, problems = read_rescue(HERE, b"DONE A\nhello\nRETRY A many\nDONE\nDONE B\n")

    assert rescue.done == {"A", "B"}
    assert [(p.kind, p.line, p.error) for p in problems] == [("rescue-line", 2, False)]
    assert "2 more" in problems[0].text


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("x.dag.rescue001", 1),
        ("x.dag.rescue100", 100),
        ("x.dag_multi.rescue007", 7),
        ("x.dag.rescue01", None),
        ("x.dag.rescue001.old", None),
        ("x.dag.rescue", None),
        ("xx.dag.rescue001", None),
        ("x.dag.rescue٠٠١", None),
        ("x.dag", None),
    ],
)
def test_rescue_file_is_recognised_by_its_name(name: str, number: int | None) -> None:
    assert rescue_number(name, "x.dag") == number


@given(st.integers(min_value=0, max_value=len(PARTIAL)))
def test_prefix_has_no_more_done_nodes_than_the_whole(cut: int) -> None:
    whole, _ = read_rescue(HERE, PARTIAL)
    part, _ = read_rescue(HERE, PARTIAL[:cut])
    assert part.done <= whole.done
