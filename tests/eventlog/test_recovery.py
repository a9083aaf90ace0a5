"""Damaged logs: no event is silently lost, and none is forged."""

from __future__ import annotations

import pytest

from metlmon.eventlog.events import Aborted, Evicted, Generic, Held, Parsed, Released
from metlmon.eventlog.reader import parse

EVICTED = b"""\
004 (12713942.000.000) 2025-11-13 05:09:55 Job was evicted. Code 1007 Subcode 0
\t(0) CPU times
\t\tUsr 0 08:28:56, Sys 0 00:30:02  -  Run Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
\t0  -  Run Bytes Sent By Job
\t30936335573  -  Run Bytes Received By Job
\tReason: Error from slot1_1@ip-10-0-0-1: couldn't write to 5.out: Disk quota exceeded (-1!=98)
\tPartitionable Resources :       Usage   Request Allocated Assigned
\t   Cpus                 :        4.45         8         8
\t   GPUs                 :                     2         2 "GPU-d6041c7c,GPU-1d3f0e92"
...
"""
RELEASED = b"""\
013 (12713917.000.000) 2025-11-13 09:22:27 Job was released.
\tvia condor_release (by user someone)
...
"""
EXECUTE = b"""\
001 (12713918.000.000) 2025-11-13 09:30:00 Job executing on host: <10.0.0.7:9618>
\tSlotName: slot1_1@ip-10-0-0-1
\tGPUs = 2
...
"""


def numbers(parsed: Parsed) -> list[int]:
    return [event.number for event in parsed.events]


def kinds(parsed: Parsed) -> list[str]:
    return [warning.kind for warning in parsed.warnings]


def test_header_glued_to_a_cut_line() -> None:
    cut = EVICTED[: EVICTED.index(b"ge\n", EVICTED.index(b"Run Local"))]
    parsed = parse(cut + RELEASED + EXECUTE)
    evicted, released, execute = parsed.events
    assert evicted.damaged
    assert isinstance(evicted.detail, Evicted)
    assert (evicted.cluster, evicted.detail.code, evicted.detail.reason) == (12713942, 1007, None)
    assert evicted.body.endswith("-  Run Local Usa")
    assert (released.cluster, released.line, released.damaged) == (12713917, 4, False)
    assert released.detail == Released("via condor_release (by user someone)")
    assert (execute.line, execute.damaged) == (7, False)
    (warning,) = parsed.warnings
    assert (warning.kind, warning.line) == ("glued-header", 4)


HEADER_END = EVICTED.index(b" Job was evicted") + 1


@pytest.mark.parametrize("follower", [RELEASED, EXECUTE, EVICTED], ids=["013", "001", "004"])
def test_event_after_a_cut_event_is_found(follower: bytes) -> None:
    whole = parse(follower).events[0]
    for cut in range(1, len(EVICTED) - 4):
        parsed = parse(EVICTED[:cut] + follower + EXECUTE)
        assert numbers(parsed)[-2:] == [whole.number, 1], cut
        found = parsed.events[-2]
        assert (found.cluster, found.detail) == (whole.cluster, whole.detail), cut
        assert not found.damaged, cut
        if cut < HEADER_END:
            assert numbers(parsed) == [whole.number, 1], cut
            assert kinds(parsed) == ["bad-header" if cut > 4 else "garbage"], cut
        else:
            assert parsed.events[0].damaged, cut
            at_line_start = EVICTED[cut - 1 : cut] == b"\n"
            assert kinds(parsed) == ["unterminated-event" if at_line_start else "glued-header"], cut


@pytest.mark.parametrize("dots", [b".", b"..", b"..."])
def test_header_glued_to_the_separator_keeps_the_event(dots: bytes) -> None:
    parsed = parse(EVICTED.removesuffix(b"...\n") + dots + RELEASED)
    assert numbers(parsed) == [4, 13]
    assert parsed.events[0] == parse(EVICTED).events[0]
    assert kinds(parsed) == ["glued-header"]


def test_sequence_of_cut_events() -> None:
    cut = EVICTED[:200] + EXECUTE[:120] + RELEASED[:70] + EVICTED
    parsed = parse(cut)
    assert numbers(parsed) == [4, 1, 13, 4]
    assert [event.damaged for event in parsed.events] == [True, True, True, False]


QUOTED = b"005 (12713917.000.000) 2025-11-13 09:22:27 Job terminated."
QUOTED_BARE = b"009 (12713917.000.000) 2025-11-13 09:22:27 Job was aborted."


@pytest.mark.parametrize("quoted", [QUOTED, QUOTED_BARE, RELEASED.splitlines()[0]])
@pytest.mark.parametrize("before", [b"", b"epoch 3: ", b"x"])
def test_job_cannot_forge_an_event(quoted: bytes, before: bytes) -> None:
    parsed = parse(
        b"008 (001.000.000) 2025-11-13 05:09:55 " + before + quoted + b"\n...\n" + EXECUTE
    )
    assert numbers(parsed) == [8, 1]
    assert parsed.events[0].detail == Generic((before + quoted).decode())


@pytest.mark.parametrize("quoted", [QUOTED, QUOTED_BARE, EXECUTE.splitlines()[0]])
@pytest.mark.parametrize("before", [b"", b"the job said: ", b"cannot read /data/x"])
@pytest.mark.parametrize("behind", [b"", b"' (errno 2)"])
def test_hold_reason_may_quote_a_header(quoted: bytes, before: bytes, behind: bytes) -> None:
    reason = before + quoted + behind
    parsed = parse(
        b"012 (001.000.000) 2025-11-13 05:09:55 Job was held.\n\t"
        + reason
        + b"\n\tCode 13 Subcode 2\n...\n"
        + EXECUTE
    )
    assert numbers(parsed) == [12, 1]
    assert parsed.events[0].detail == Held(reason.decode(), 13, 2)
    assert parsed.warnings == ()


def test_header_at_the_end_of_a_reason_is_reported() -> None:
    parsed = parse(
        b"009 (001.000.000) 2025-11-13 05:09:55 Job was aborted.\n\tas of "
        + QUOTED_BARE
        + b"\n...\n"
    )
    (event,) = parsed.events
    assert event.detail == Aborted("as of " + QUOTED_BARE.decode())
    assert kinds(parsed) == ["glued-header"]


def test_attribute_may_quote_a_header() -> None:
    line = b'\tGLIDEIN_ResourceName = "as of ' + EXECUTE.splitlines()[0] + b'"'
    parsed = parse(EXECUTE.replace(b"\tGPUs", line + b"\n\tGPUs") + RELEASED)
    assert numbers(parsed) == [1, 13]


@pytest.mark.parametrize("attribute", [b'Name = "', b"Name = [ Id = ", b'Name = [ Id = "x"; '])
def test_attribute_cut_at_a_blank_or_quote(attribute: bytes) -> None:
    finished = (
        b"040 (12713194.000.000) 2025-11-05 08:51:35 Finished transferring input files\n...\n"
    )
    parsed = parse(EXECUTE.removesuffix(b"...\n") + b"\t" + attribute + finished)
    assert numbers(parsed) == [1, 40]
    assert kinds(parsed) == ["glued-header"]


def test_garbage_between_events_is_reported_with_its_line() -> None:
    parsed = parse(EXECUTE + b"\nwhat is\x1b[31m this\n[bold]markup\n" + RELEASED)
    assert numbers(parsed) == [1, 13]
    assert not any(event.damaged for event in parsed.events)
    (warning,) = parsed.warnings
    assert (warning.kind, warning.line) == ("garbage", 6)
    assert warning.text.isprintable()
    assert "what is\\x1b[31m this" in warning.text


@pytest.mark.parametrize(
    "header",
    [
        b"004 (12713942.000.000) 2025-13-45 05:09:55 Job was evicted.",
        b"004 (12713942.000) 2025-11-13 05:09:55 Job was evicted.",
        b"004 (12713942.000.000) yesterday Job was evicted.",
    ],
)
def test_invalid_header_is_reported(header: bytes) -> None:
    parsed = parse(EXECUTE + header + b"\n\tbody\n...\n" + RELEASED)
    assert numbers(parsed) == [1, 13]
    assert [(warning.kind, warning.line) for warning in parsed.warnings] == [("bad-header", 5)]


def test_nuls_before_a_header_lose_no_event() -> None:
    parsed = parse(EXECUTE + b"\0" * 4096 + RELEASED)
    assert numbers(parsed) == [1, 13]
    assert not any(event.damaged for event in parsed.events)
    assert [(warning.kind, warning.line) for warning in parsed.warnings] == [("nul-bytes", 5)]
    assert "4096" in parsed.warnings[0].text


def test_nuls_across_two_events() -> None:
    parsed = parse(EXECUTE[:100] + b"\0" * 60 + RELEASED)
    assert numbers(parsed) == [1, 13]
    assert [event.damaged for event in parsed.events] == [True, False]
    assert "\0" not in parsed.events[0].body
    assert kinds(parsed) == ["nul-bytes", "unterminated-event"]


def test_invalid_utf8_is_replaced_with_one_warning() -> None:
    parsed = parse(
        b"012 (001.000.000) 2025-11-13 05:09:55 Job was held.\n"
        b"\tcaf\xe9 \xff\n\tCode 1 Subcode 0\n...\n"
    )
    assert parsed.events[0].detail == Held("caf� �", 1, 0)
    assert [(warning.kind, warning.line) for warning in parsed.warnings] == [("bad-utf8", 1)]


def test_cut_end_of_a_finished_log_is_reported() -> None:
    cut = EXECUTE + EVICTED[: EVICTED.index(b"\tReason")]
    assert numbers(parse(cut)) == [1]
    parsed = parse(cut, final=True)
    assert numbers(parsed) == [1, 4]
    assert parsed.events[1].damaged
    assert [(warning.kind, warning.line) for warning in parsed.warnings] == [
        ("unterminated-event", 5)
    ]
    assert parsed.after.offset == len(cut)


def test_finished_log_may_lack_its_last_newline() -> None:
    log = EXECUTE + RELEASED.removesuffix(b"\n")
    parsed = parse(log, final=True)
    assert parsed.events == parse(EXECUTE + RELEASED).events
    assert parsed.warnings == ()
    assert parsed.after.offset == len(log)


def test_finished_log_may_end_in_half_a_header() -> None:
    parsed = parse(EXECUTE + b"005 (001.000.000) 2025-11-1", final=True)
    assert numbers(parsed) == [1]
    assert [(warning.kind, warning.line) for warning in parsed.warnings] == [("bad-header", 5)]


def test_line_of_many_headers_is_one_damaged_part() -> None:
    line = QUOTED * 100_000
    parsed = parse(line + b"\n...\n" + EXECUTE)
    assert parsed.after.offset == len(line) + 5 + len(EXECUTE)
    assert numbers(parsed)[-1] == 1
    assert all(event.damaged for event in parsed.events[:-2])
    assert set(kinds(parsed)) <= {"bad-header", "glued-header"}
