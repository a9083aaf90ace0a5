"""However a log's bytes come in, it says the same; and nothing before it is complete."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metlmon.eventlog.events import Event, LogWarning, Parsed, Position
from metlmon.eventlog.reader import parse
from tests.conftest import SHARED
from tests.eventlog.test_recovery import EVICTED, EXECUTE, QUOTED, QUOTED_BARE, RELEASED

Read = tuple[tuple[Event, ...], tuple[LogWarning, ...], Position]

REAL = [
    "examples/metl-aws/metl.log",
    "examples/pool-ensemble/metl.log",
    "examples/pool-ensemble/ens.dag.nodes.log",
    "conformance/logs/test_condor.log",
    "conformance/logs/golden/all_events.legacy_subsec.log",
    "conformance/logs/golden/all_events.utc.log",
    "conformance/logs/golden/all_events.xml.log",
    "conformance/logs/golden/all_events.json.log",
    "conformance/logs/golden/all_events.in.json.log",
]


def in_chunks(data: bytes, cuts: list[int], limit: int | None = None) -> Read:
    """Read ``data`` as a follower does that sees the file end at each of ``cuts``."""
    at = Position()
    events: list[Event] = []
    warnings: list[LogWarning] = []
    for end in [*sorted(cuts), len(data)]:
        while True:
            parsed = parse(data[at.offset : end], at, limit=limit, year_hint=2025)
            events += parsed.events
            warnings += parsed.warnings
            moved = parsed.after.offset > at.offset
            at = parsed.after
            if limit is None or not moved:
                break
    return tuple(events), tuple(warnings), at


def at_once(data: bytes) -> Read:
    parsed = parse(data, year_hint=2025)
    return parsed.events, parsed.warnings, parsed.after


@cache
def real(name: str) -> bytes:
    path: Path = SHARED / name
    if not path.exists():
        pytest.skip(f"no {name} beside this checkout: the real recordings are not here")
    return path.read_bytes()


@pytest.mark.parametrize("name", REAL)
def test_real_bytes_in_any_chunks(name: str) -> None:
    data = real(name)
    whole = at_once(data)
    dice = random.Random(name)
    for count in (1, 7, 60):
        cuts = [dice.randrange(len(data) + 1) for _ in range(count)]
        assert in_chunks(data, cuts) == whole
    assert in_chunks(data, [], limit=50) == whole


@pytest.mark.parametrize("name", REAL)
def test_a_prefix_of_real_bytes_says_a_prefix(name: str) -> None:
    data = real(name)
    events, warnings, _ = at_once(data)
    dice = random.Random(name)
    for _ in range(25):
        size = dice.randrange(len(data) + 1)
        seen, result, after = at_once(data[:size])
        assert seen == events[: len(seen)]
        assert result == warnings[: len(result)]
        assert after.offset <= size


@pytest.mark.parametrize(
    "place", [b"Run Local Usa013", b"004 (12713939.000.000) 2025-11-13 05:09:53"]
)
def test_every_prefix_around_real_damage(place: bytes) -> None:
    """Byte by byte: an event is there from its separator's last byte on, and not before."""
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
def test_every_prefix_of_the_attribute_forms(form: str) -> None:
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
TEXT_SHREDS = st.sampled_from(
    [
        EVICTED,
        EXECUTE,
        RELEASED,
        QUOTED,
        QUOTED_BARE,
        b"...\n",
        b"...",
        b"..",
        b"\n",
        b"\r\n",
        b"\t",
        b"\0",
        b"\xff",
        b"004 (",
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
    """Damaged logs: whole events, cut ones, and what full disks and file servers leave."""
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


@settings(max_examples=400, deadline=None)
@given(data=logs(), draw=st.data())
def test_damaged_logs_in_any_chunks(data: bytes, draw: st.DataObject) -> None:
    cuts = draw.draw(st.lists(st.integers(0, len(data)), max_size=6))
    whole = at_once(data)
    assert in_chunks(data, cuts) == whole
    assert in_chunks(data, cuts, limit=1) == whole


@settings(max_examples=300, deadline=None)
@given(data=logs() | st.binary(max_size=300))
def test_a_dead_log_is_read_to_its_end(data: bytes) -> None:
    growing = parse(data)
    dead: Parsed = parse(data, final=True)
    assert dead.events[: len(growing.events)] == growing.events
    assert dead.warnings[: len(growing.warnings)] == growing.warnings
    if data.strip(b" \t\r\n\0"):
        assert dead.after.offset == len(data)
    for warning in dead.warnings:
        assert warning.text.isprintable()
        assert 1 <= warning.line <= data.count(b"\n") + 1
