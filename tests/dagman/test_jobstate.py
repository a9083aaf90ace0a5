"""The jobstate log, in the words of ``JobstateLog``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metlmon.dagman import read_jobstate
from metlmon.dagman.records import JobstateLine
from metlmon.dagman.reports import LONGEST_LINE

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


def test_a_recorded_ensemble_agrees_with_its_own_story(shared: Callable[[str], Path]) -> None:
    data = shared("examples/pool-ensemble/ens.jobstate.log").read_bytes()
    result, problems, used = read_jobstate(data)

    assert problems == []
    assert used == len(data)
    assert result[0] == JobstateLine(1795219935, None, "DAGMAN_STARTED", 1, 0, None, None)
    assert result[-1] == JobstateLine(1795220261, None, "DAGMAN_FINISHED", None, None, 0, None)
    events = Counter(line.event for line in result)
    assert events["SUBMIT"] == 36
    assert len({line.node for line in result if line.node}) == 30
    assert JobstateLine(1795219946, "run0-train_epoch0", "JOB_FAILURE", None, None, 3, 1) in result
    assert JobstateLine(1795219948, "run0-train_epoch0", "SUBMIT", 8, 0, None, 7) in result


def test_each_kind_of_line() -> None:
    result, problems, _ = read_jobstate(LINES)
    assert problems == []
    assert [(s.node, s.event, s.cluster, s.proc, s.value, s.sequence) for s in result] == [
        (None, "DAGMAN_STARTED", 12, 0, None, None),
        (None, "RECOVERY_STARTED", None, None, None, None),
        ("A", "PRE_SCRIPT_STARTED", None, None, None, 1),
        ("A", "PRE_SCRIPT_FAILURE", None, None, None, 1),
        ("A", "PRESKIP", 0, 2147483647, None, 1),
        ("B", "SUBMIT_FAILURE", None, None, None, 2),
        ("B", "POST_SCRIPT_TERMINATED", None, None, None, 2),
        ("C", "JOB_FAILURE", None, None, -9, 3),
        ("C+D", "JOB_SUCCESS", None, None, 0, 4),
        ("INTERNAL", "SUBMIT", 7, 1, None, 5),
        (None, "DAGMAN_FINISHED", None, None, 1001, None),
    ]


def test_a_torn_last_line_waits_unless_nothing_follows() -> None:
    line = b"1795219936 A SUBMIT 2.0 - - 1\n1795219937 A SUBMIT 3.0 - - 12"
    result, _, used = read_jobstate(line)
    assert [s.cluster for s in result] == [2]
    assert line[used:].startswith(b"1795219937 A")
    result, problems, used = read_jobstate(line[used:], final=True)
    assert [s.cluster for s in result] == [3]
    assert problems == []


def test_strange_lines_are_one_problem_with_file_and_line() -> None:
    result, problems, _ = read_jobstate(
        b"\xff\xfe\n\n1795219936 A SUBMIT 2.0 - - 1\nx\n", file="ens.jobstate.log", line=10
    )
    assert len(result) == 1
    assert len(problems) == 1
    assert str(problems[0]).startswith("ens.jobstate.log:10: ")
    assert "1 more" in problems[0].text


def test_a_file_without_line_ends_is_not_kept_for_ever() -> None:
    data = b"0" * (LONGEST_LINE + 1)
    _, problems, used = read_jobstate(data)
    assert used == len(data)
    assert len(problems) == 1


def in_chunks(data: bytes, cuts: list[int]) -> list[JobstateLine]:
    """What a follower reads when the file grows in steps."""
    received: list[JobstateLine] = []
    offset = 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        new, _, used = read_jobstate(data[offset:cut])
        received += new
        offset += used
    return received


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cuts=st.lists(st.integers(min_value=0, max_value=10_000), max_size=8))
def test_any_chunking_says_the_same(shared: Callable[[str], Path], cuts: list[int]) -> None:
    data = shared("examples/pool-ensemble/ens.jobstate.log").read_bytes()
    assert in_chunks(data, cuts) == read_jobstate(data)[0]
