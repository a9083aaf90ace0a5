"""``.dagman.out``: each message in DAGMan's wordings, with the function that writes it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.dagman.dagman_out import LONGEST_LINE, OutState, read_dagman_out
from metlmon.dagman.records import DagmanMessage
from metlmon.dagman.records import MessageKind as Kind
from tests.fuzz import targets

NOON = datetime(2026, 11, 21, 12, 0, 0)
STAMP = b"11/21/26 12:00:00 "


def messages_of(*messages: bytes, state: OutState | None = None) -> list[DagmanMessage]:
    """The parsed messages, written with the default header."""
    data = b"".join(STAMP + message + b"\n" for message in messages)
    result, _, used = read_dagman_out(data, state or OutState())
    assert used == len(data)
    return result


def at_noon(kind: Kind, *fields: Any, **named: Any) -> DagmanMessage:
    return DagmanMessage(kind, NOON, *fields, **named)


@pytest.mark.parametrize(
    ("message", "expected"),
    {
        # dc_main (dc_startup banner), of 23 and of 7
        b"** condor_dagman (CONDOR_DAGMAN) STARTING UP": at_noon(Kind.STARTED),
        b"** condor_scheduniv_exec.84.0 (CONDOR_DAGMAN) STARTING UP": at_noon(
            Kind.STARTED, cluster=84
        ),
        # DC_Exit, with and (before 7.5) without the pid
        b"**** condor_dagman (condor_DAGMAN) pid 37763 EXITING WITH STATUS 3": at_noon(
            Kind.EXITED, value=3
        ),
        b"**** condor_scheduniv_exec.84.0 (condor_DAGMAN) EXITING WITH STATUS 1": at_noon(
            Kind.EXITED, cluster=84, value=1
        ),
        # main_init
        (
            b"Aborting because it looks like another instance of DAGMan is currently running on "
            b"this DAG; if that is not the case, delete the lock file (x.dag.lock) and re-submit "
            b"the DAG."
        ): at_noon(Kind.REFUSED),
        # _EXCEPT_: no exit status is written after it
        b'ERROR "Fatal log file monitoring error!" at line 2310 in file ./dag.cpp': at_noon(
            Kind.EXITED, text="Fatal log file monitoring error!"
        ),
        # Dag::Bootstrap
        b"Running in RECOVERY mode... >>>>>>>>>>>>>>>>>>>>>>>>>>>>>>": at_noon(Kind.RECOVERY),
        b"Number of pre-completed nodes: 12": at_noon(Kind.PRE_COMPLETED, value=12),
        # main_init: rescueDagMsg, of 7.7.2 and newer, with -DoRescueFrom, and of 7.2
        (
            b"Found rescue DAG number 2; running x.dag.rescue002 in combination with "
            b"normal DAG file"
        ): at_noon(Kind.RESCUE_USED, text="x.dag.rescue002"),
        (
            b"Rescue DAG number 1 specified; running x.dag_multi.rescue001 in combination with "
            b"normal DAG files"
        ): at_noon(Kind.RESCUE_USED, text="x.dag_multi.rescue001"),
        b"Found rescue DAG number 2; running x.dag.rescue002 instead of normal DAG file": at_noon(
            Kind.RESCUE_USED, text="x.dag.rescue002"
        ),
        # main_init: -load_save
        b"Loading saved progress from half.save for DAG.": at_noon(
            Kind.RESCUE_USED, text="half.save"
        ),
        # Dag::WriteRescue
        b"Writing Rescue DAG to my dags/x.dag.rescue003...": at_noon(
            Kind.RESCUE_WRITTEN, text="my dags/x.dag.rescue003"
        ),
        # ScriptQ::Run
        b"Running PRE script of Node A...": at_noon(Kind.PRE_STARTED, node="A"),
        b"Running POST script of Node S+A.b...": at_noon(Kind.POST_STARTED, node="S+A.b"),
        # Dag::PreScriptReaper: of 25, of 23 ("Job"), killed
        b"PRE Script of Node A failed with status 9": at_noon(Kind.PRE_FAILED, node="A", value=9),
        b"PRE Script of Job A failed with status 9": at_noon(Kind.PRE_FAILED, node="A", value=9),
        b"PRE Script of node A died on signal 15 (Terminated)": at_noon(
            Kind.PRE_FAILED, node="A", value=-15
        ),
        b"PRE Script of node A completed successfully.": at_noon(Kind.PRE_OK, node="A"),
        b"PRE_SKIP return value 9 indicates we are done (successfully) with node A": at_noon(
            Kind.PRE_SKIPPED, node="A", value=9
        ),
        # Dag::ProcessPostTermEvent
        b"POST Script of node A completed successfully.": at_noon(Kind.POST_OK, node="A"),
        b"POST Script of Node A failed with status 1": at_noon(Kind.POST_FAILED, node="A", value=1),
        b"POST Script of node A died on signal 9": at_noon(Kind.POST_FAILED, node="A", value=-9),
        # Dag::ProcessTerminatedEvent
        b"Node A job proc (12.1.0) completed successfully.": at_noon(Kind.JOB_OK, "A", 12, 1),
        b"Node A job proc (12.0.0) failed with status 3.": at_noon(Kind.JOB_FAILED, "A", 12, 0, 3),
        b"Node A job proc (12.0.0) failed with signal 11.": at_noon(
            Kind.JOB_FAILED, "A", 12, 0, -11
        ),
        # Dag::RestartNode
        b"Retrying node A (retry #1 of 2)...": at_noon(Kind.RETRYING, "A", value=1),
        b"Looking for retry of node A (retry #2 of 2)...": at_noon(Kind.RETRYING, "A", value=2),
        b"Aborting further retries of node A (last attempt returned 7)": at_noon(
            Kind.NODE_FAILED, "A", value=7
        ),
        (
            b"Aborting further retries of node A because final node is running "
            b"(last attempt returned -9)"
        ): at_noon(Kind.NODE_FAILED, "A", value=-9),
        # Dag::ProcessFailedSubmit
        b"Shortcutting node A retries because of submit failure(s)": at_noon(
            Kind.SUBMIT_FAILED, "A"
        ),
        # Dag::CheckForDagAbort
        b"Aborting DAG because we got the ABORT exit value from a PRE script": at_noon(
            Kind.ABORTED, text="PRE script"
        ),
        # main_shutdown_remove
        b"Received SIGUSR1": at_noon(Kind.REMOVED),
    }.items(),
    ids=lambda value: value.decode()[:40] if isinstance(value, bytes) else "",
)
def test_wording_has_its_meaning(message: bytes, expected: DagmanMessage) -> None:
    assert messages_of(message) == [expected]


@pytest.mark.parametrize(
    "event",
    [
        # Dag::PrintEvent: of 8.3.2 and newer, of 8.0 (no event time), of 7, of Stork, of 6.8
        b"Event: ULOG_SUBMIT for HTCondor Node A (77.1.0) {11/21/26 12:00:00}",
        b"Event: ULOG_SUBMIT for HTCondor Node A (77.1.0) {11/21/26 12:00:00} [recovery mode]",
        b"Event: ULOG_SUBMIT for HTCondor Node A (77.1.0)",
        b"Event: ULOG_SUBMIT for Condor Node A (77.1.0)",
        b"Event: ULOG_SUBMIT for Stork Node A (77.1.0)",
        b"Event: ULOG_SUBMIT for Node A (77.1.0)",
        b"Event: ULOG_SUBMIT for Condor Job A (77.1.0)",
    ],
)
def test_submit_event_maps_the_node_to_its_job(event: bytes) -> None:
    assert messages_of(event) == [DagmanMessage(Kind.SUBMITTED, NOON, "A", 77, 1)]


def test_assigned_id_is_read_as_a_submission() -> None:
    """Dag::SubmitNodeJob and Dag::ProcessSuccessfulSubmit, then Dag::PrintEvent."""
    result = messages_of(
        b"Submitting HTCondor Node A job(s)...",
        b"Submitting node A from inline description using direct job submission",
        b"\tassigned HTCondor ID (77.0.0)",
        b"Submitting Condor Node B job(s)...",
        b"\tassigned Condor ID (78.0.0)",
        b"Event: ULOG_SUBMIT for HTCondor Node A (77.0.0) {11/21/26 11:59:59}",
        b"Event: ULOG_SUBMIT for HTCondor Node A (77.1.0) {11/21/26 11:59:59}",
    )
    submitted = [(s.node, s.cluster, s.proc) for s in result]
    assert submitted == [("A", 77, 0), ("B", 78, 0), ("A", 77, 1)]
    assert result[2].time == datetime(2026, 11, 21, 11, 59, 59), "the event's own time"


@pytest.mark.parametrize(
    ("messages", "kinds"),
    [
        pytest.param(
            (
                b"Event: ULOG_EXECUTE for HTCondor Node A (77.0.0) {11/21/26 12:00:00}",
                b"Event: ULOG_SUBMIT for unknown Node (78.0.0) {11/21/26 12:00:00}: ignoring...",
            ),
            [],
            id="other events, and jobs of others",
        ),
        pytest.param(
            (
                b"Submitting HTCondor Node A job(s)...",
                b"\tassigned HTCondor ID (77.0.0)",
                b"Received SIGUSR1",
            ),
            [Kind.SUBMITTED, Kind.REMOVED],
            id="removed right after a submission, whose event it never saw",
        ),
    ],
)
def test_sequence_of_messages_is_read(messages: tuple[bytes, ...], kinds: list[Kind]) -> None:
    assert [message.kind for message in messages_of(*messages)] == kinds


def test_number_of_nodes_in_the_status_table_is_read() -> None:
    # print_status
    table = messages_of(
        b"Of 39 nodes total:",
        b" Done     Pre   Queued    Post   Ready   Un-Ready   Failed   Futile",
        b"  ===     ===      ===     ===     ===        ===      ===      ===",
        b"12345       0        6       0       0         27        2        1",
    )
    assert table == [DagmanMessage(Kind.TOTAL, NOON, value=39)]


def test_final_list_of_failed_nodes_is_read() -> None:
    # condor_event_timer, Dag::PrintNodeList, Node::Dump
    result = messages_of(
        b"ERROR: the following job(s) failed:",
        b"---------------------- Job ----------------------",
        b"      Node Name: A",
        b"           Noop: false",
        b"         NodeID: 0",
        b"    Node Status: STATUS_ERROR    ",
        b"Node return val: 3",
        b"          Error: Job proc (43.0.0) failed with status 3 (after 2 node retries)",
        b"Job Submit File: a.sub",
        b"---------------------------------------\t<END>",
        b"**** condor_scheduniv_exec.42.0 (condor_DAGMAN) pid 9 EXITING WITH STATUS 1",
    )
    assert result == [
        DagmanMessage(
            Kind.NODE_FAILED,
            NOON,
            "A",
            value=3,
            text="Job proc (43.0.0) failed with status 3 (after 2 node retries)",
        ),
        DagmanMessage(Kind.EXITED, NOON, cluster=42, value=1),
    ]


@pytest.mark.parametrize(
    ("header", "time"),
    [
        # _format_global_header with each of DEBUG_TIME_FORMAT, D_SUB_SECOND, D_PID, D_CAT …
        (b"11/21/26 12:00:00 ", NOON),
        (b"11/21/26 12:00:00 (D_ALWAYS) ", NOON),
        (b"11/21/26 12:00:00 (D_ALWAYS:2|D_FAILURE) ", NOON),
        (b"11/21/26 12:00:00 (fd:7) (pid:37763) (tid:2) (cid:12) (bt:0fa1:3) (D_STATUS) ", NOON),
        (b"11/21/26 12:00:00.250 (pid:1) ", NOON.replace(microsecond=250_000)),
        (b"11/21/2026 12:00:00 ", NOON),
        (b"2026-11-21 12:00:00 ", NOON),
        (b"2026-11-21T12:00:00.5+0100 ", NOON.replace(microsecond=500_000)),
        (b"1795262400 ", None),
        (b"1795262400.123 (D_ALWAYS) ", None),
        (b"Nov 21 12:00:00 ", None),
        (b"[12:00:00] ", None),
        (b"11/21 12:00:00 ", None),
        (b"13/41/26 12:00:00 ", None),
    ],
)
def test_message_is_found_after_any_header(header: bytes, time: datetime | None) -> None:
    result, _, _ = read_dagman_out(header + b"\tassigned HTCondor ID (1.0.0)\n")
    assert result == []
    result, _, _ = read_dagman_out(header + b"Retrying node A (retry #1 of 2)...\r\n")
    assert result == [DagmanMessage(Kind.RETRYING, time, "A", value=1)]


def test_lines_below_a_message_are_ignored() -> None:
    """A hold reason can have several lines, and a job can write them."""
    result, _, _ = read_dagman_out(
        STAMP
        + b"  Hold reason: no\nEvent: ULOG_SUBMIT for HTCondor Node A (1.0.0)\n"
        + b"Received SIGUSR1\n"
    )
    assert result == []


def test_too_long_line_is_skipped() -> None:
    good = STAMP + b"Received SIGUSR1\n"
    long = STAMP + b"Received SIGUSR1 " + b"x" * LONGEST_LINE + b"\n"
    data = good + long + good
    whole, _, used = read_dagman_out(data)
    assert (len(whole), used) == (2, len(data))
    part, state, used = read_dagman_out(data[: len(data) - len(good) - 1])
    assert used == len(data) - len(good) - 1, "it is not read again at the next look"
    rest, state, _ = read_dagman_out(data[used:], state)
    assert part + rest == whole
    assert replace(state, before=b"") == OutState()


MESSAGES = st.sampled_from(
    [
        b"Of 4 nodes total:",
        b" Done     Pre   Queued    Post",
        b"  ===  ===",
        b"  1  2  3  4",
        b"Submitting HTCondor Node A job(s)...",
        b"\tassigned HTCondor ID (77.0.0)",
        b"Event: ULOG_SUBMIT for HTCondor Node A (77.0.0) {13/99/26 25:61:61}",
        b'argv[1] == "-Dag"',
        b"      Node Name: A",
        b"          Error: x",
        b"** x (CONDOR_DAGMAN) STARTING UP",
    ]
)


OFTEN = st.sampled_from(
    [
        b"Node A job proc (77.0.0) completed successfully.",
        b"Node A job proc (77.0.0) failed with status 3.",
        b"Node A job completed",
        b"Node return val: 3",
        b"Job (77.0.0) x",
        b"Submitting node A from file x.sub using direct job submission",
        b"Submitting Job A job(s)...",
        b"Number of idle job procs: 3",
        b"Number of pre-completed nodes: 3",
        b"Event: ULOG_EXECUTE for HTCondor Node A (77.0.0) {01/06/25 09:30:24}",
        b"(pid:1) (D_ALWAYS) Received SIGUSR1",
        b"(pid:1) Number of idle job procs: 3",
        b"Retrying node A (retry #1 of 3)...",
        b"Number of pre-completed nodes: ",
        b"",
    ]
)


@settings(max_examples=400)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([STAMP, STAMP, STAMP, b"\0" + STAMP, b"", b"12:0", b"2/29 1:00:00 "]),
            MESSAGES | OFTEN | st.binary(max_size=40),
        ),
        max_size=30,
    ),
    st.sampled_from([b"", b"\n", b"\n" + STAMP[:9], b"\n" + STAMP + b"Node A j"]),
)
def test_any_lines_are_read_alike_in_any_pieces(
    lines: list[tuple[bytes, bytes]], end: bytes
) -> None:
    targets.dagman_out(b"\n".join(header + message for header, message in lines) + end)
