"""A log is read alike in any pieces and at any speed, and no event before it is complete.

What must hold of any bytes is :func:`tests.fuzz.targets.event_log`.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metlmon.eventlog import reader
from metlmon.eventlog.reader import parse, parse_fast
from tests.conftest import SHARED
from tests.eventlog.test_recovery import EVICTED, EXECUTE, QUOTED, QUOTED_BARE, RELEASED
from tests.fuzz.targets import event_log

REAL = [
    "examples/metl-aws/metl.log",
    "examples/pool-ensemble/metl.log",
    "examples/pool-ensemble/ens.dag.nodes.log",
    "conformance/logs/test_condor.log",
    *(
        f"conformance/logs/golden/all_events.{form}.log"
        for form in ("legacy_subsec", "utc", "xml", "json", "in.json")
    ),
]


MEMORY = (
    b"006 (12714074.000.000) 2025-11-04 %02d:%02d:00 Image size of job updated: %d\n"
    b"\t%d  -  MemoryUsage of job (MB)\n\t%d  -  ResidentSetSize of job (KB)\n...\n"
)


@cache
def real(name: str) -> bytes:
    path: Path = SHARED / name
    if not path.exists():
        pytest.skip(f"no {name} beside this checkout: the real recordings are not here")
    return path.read_bytes()


@pytest.mark.parametrize("name", REAL)
def test_real_logs_keep_the_contract(name: str) -> None:
    event_log(real(name))


@pytest.mark.parametrize(
    "place", [b"Run Local Usa013", b"004 (12713939.000.000) 2025-11-13 05:09:53"]
)
def test_prefixes_around_real_damage(place: bytes) -> None:
    """Byte by byte: an event exists from the last byte of its separator on."""
    data = real("examples/metl-aws/metl.log")
    start = data.rindex(b"\n...\n", 0, data.index(place) - 400) + 5
    piece = data[start : data.index(b"\n...\n", data.index(place) + 200) + 5]
    whole = parse(piece)
    for size in range(len(piece) + 1):
        parsed = parse(piece[:size])
        assert parsed.events == whole.events[: len(parsed.events)]
        ends = piece[:size].count(b"\n...\n")
        assert len({event.line for event in parsed.events if not event.damaged}) == ends
        assert parsed.after.offset == (piece.rfind(b"\n...\n", 0, size) + 5 if ends else 0)


@pytest.mark.parametrize("form", ["json", "in.json", "xml"])
def test_prefixes_of_classad_logs(form: str) -> None:
    data = real(f"conformance/logs/golden/all_events.{form}.log")[:3000]
    whole = parse(data)
    seen = 0
    for size in range(len(data) + 1):
        parsed = parse(data[:size])
        assert parsed.events == whole.events[: len(parsed.events)]
        assert len(parsed.events) in (seen, seen + 1)
        seen = len(parsed.events)
        assert (
            parsed.after.offset == 0 or data[parsed.after.offset - 1 : parsed.after.offset] == b"\n"
        )


JSON = b"""\
{
  "Proc": 3,
  "Cluster": 77,
  "EventTime": "2026-03-29T01:59:59",
  "Info": "a {b}",
  "EventTypeNumber": 8
}
"""
XML = (
    b'<c>\n    <a n="Proc"><i>3</i></a>\n    <a n="Cluster"><i>77</i></a>\n'
    b'    <a n="EventTime"><s>2026-03-29T01:59:59</s></a>\n    <a n="P"><c>\n    </c></a>\n'
    b'    <a n="EventTypeNumber"><i>11</i></a>\n</c>\n'
)


@pytest.mark.parametrize("event", [RELEASED, JSON, XML], ids=["text", "json", "xml"])
def test_noise_is_reported_at_its_line(event: bytes) -> None:
    log = event + b"\n\n\nnoise\n" + event
    (warning,) = parse(log).warnings
    assert log.splitlines()[warning.line - 1] == b"noise"


TEXT_SHREDS = st.sampled_from(
    [
        *(EVICTED, EXECUTE, RELEASED, QUOTED, QUOTED_BARE),
        *(b"...\n", b"...", b"..", b"\n", b"\r\n", b"\t", b"\0", b"\xff", b"004 ("),
        b"013 (001.000.000) 12/31 23:59:59 Job was released.\n...\n",
        b"013 (001.000.000) 01/01 00:00:00 Job was released.\r\n...\r\n",
    ]
)
JSON_SHREDS = st.sampled_from(
    [JSON, b"{", b"}", b"\n", b'"', b"\\", b"\0", b"[", b"]", b",\n", b'"a": ']
)
XML_SHREDS = st.sampled_from(
    [XML, b"<c>", b"</c>", b"\n", b'<a n="x">', b"<l>", b"</l>", b"<s>", b"\0"]
)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Damaged logs: whole and cut events, and traces of full disks and file servers."""
    first, shreds = draw(
        st.sampled_from([(EXECUTE, TEXT_SHREDS), (JSON, JSON_SHREDS), (XML, XML_SHREDS)])
    )
    pieces = [first]
    for piece in draw(st.lists(shreds, max_size=8)):
        if draw(st.booleans()):
            pieces.append(piece)
        else:
            start = draw(st.integers(0, len(piece)))
            pieces.append(piece[start : draw(st.integers(start, len(piece)))])
    return b"".join(pieces[draw(st.integers(0, 1)) :])


@settings(max_examples=300, deadline=None)
@given(data=logs() | st.binary(max_size=300))
def test_damaged_logs_keep_the_contract(data: bytes) -> None:
    event_log(data)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_log_with_any_damage(data: st.DataObject) -> None:
    """Bytes changed, removed or inserted anywhere in some KB of a real log."""
    whole = real(REAL[0])
    begin = data.draw(st.integers(0, len(whole) - 20_000))
    begin = whole.index(b"\n...\n", begin) + 5
    log = bytearray(whole[begin : begin + 12_000])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(log) - 1))
        length = data.draw(st.integers(0, 200))
        put_in = data.draw(
            st.sampled_from(
                [
                    *(b"", b"\0", b"\0" * 300, b"\r", b"\xff", b"\n...\n", b"...\n", b"9", b" "),
                    *(b"\n", b"006 (1.2.3) 2025-", b"006 (12714074.000.000) 2"),
                    bytes(log[at : at + 90]),
                ]
            )
        )
        log[at : at + length] = put_in
    event_log(bytes(log))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_memory_report_with_any_byte_changed(data: st.DataObject) -> None:
    """Even where only digits change: an invalid date, a number with zeros."""
    reports = [
        bytearray(MEMORY % (hour, hour, 10**7 + hour, 4000 - hour, 10**6)) for hour in range(9, 23)
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        report = data.draw(st.sampled_from(reports))
        at = data.draw(st.integers(0, len(report) - 1))
        report[at] = data.draw(st.sampled_from(b"0123456789 ().:-\n\t\r\0TZx."))
    log = b"".join(reports)
    event_log(log)


@pytest.mark.parametrize("behind", [b"", b".123", b".123456", b"Z", b".123Z"])
@pytest.mark.parametrize("between", [b" ", b"T"])
def test_every_form_of_a_date_is_read_fast(behind: bytes, between: bytes) -> None:
    reports = b"".join(MEMORY % (hour, hour, 10**7, 4000 + hour, 10**6) for hour in range(24))
    log = reports.replace(b"2025-11-04 ", b"2025-11-04" + between).replace(
        b":00 Image", b":00" + behind + b" Image"
    )
    got = parse_fast(log)
    assert (got.events, len(got.images), got.images[0].updates) == ((), 1, 24)
    assert got.images[0].memory_mb == 4023
    event_log(log)


def test_invalid_date_between_valid_ones() -> None:
    log = b"".join(
        (MEMORY % (9, 0, 10**7, size, 10**6)).replace(b"11-04", day)
        for size, day in ((1, b"11-30"), (9, b"11-31"), (3, b"12-01"))
    )
    event_log(log)
    assert [warning.kind for warning in parse_fast(log).warnings] == ["bad-header"]


def test_log_that_begins_with_an_invalid_event() -> None:
    """The first event is the 006 after it, not the one after that."""
    report = MEMORY % (9, 0, 10**7, 1, 10**6)
    log = RELEASED.replace(b"2025-11", b"2025-13") + report + RELEASED
    got = parse_fast(log)
    assert got.images
    assert got.events
    assert got.first == datetime(2025, 11, 4, 9)


def test_times_that_step_back() -> None:
    log = b"".join(MEMORY % (hour, 0, 10**7, 4000, 10**6) for hour in (9, 12, 8, 11))
    (image,) = parse_fast(log).images
    assert (image.first.hour, image.last.hour) == (8, 12)
    assert parse_fast(log).after.last == datetime(2025, 11, 4, 11)


def test_reports_after_a_time_are_left_out() -> None:
    log = b"".join(MEMORY % (hour, 0, 10**7, 4000, 10**6) for hour in (9, 10, 11))
    (images,) = parse_fast(log, until=datetime(2025, 11, 4, 10)).images
    assert (images.updates, images.last) == (2, datetime(2025, 11, 4, 10))
    result = parse_fast(log, until=datetime(2025, 11, 4, 8))
    assert (result.images, result.events) == ((), ())
    first, last = (datetime(2025, 11, 4, hour) for hour in (9, 11))
    assert (result.first, result.after.last) == (first, last)


def test_real_log_is_read_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except for damage: most of it never needs the slow parser."""
    noted_bytes: list[int] = []
    text_parse = reader.text_parser.parse

    def noted(blocks: bytes, *rest: object) -> object:
        noted_bytes.append(len(blocks))
        return text_parse(blocks, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(reader.text_parser, "parse", noted)
    parse_fast(real(REAL[0]))
    assert 0 < sum(noted_bytes) < 20_000
