"""Reading fast tells what reading with all care tells: whatever the bytes, however they come."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import datetime
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metlmon.eventlog import reader
from metlmon.eventlog.events import Event, ImageSize, ImageSizes, LogWarning, Position
from metlmon.eventlog.reader import parse, parse_fast
from tests.eventlog.test_log_prefixes import REAL, real
from tests.eventlog.test_recovery import RELEASED

Sums = dict[tuple[int, int, int], tuple[int, datetime, datetime, int | None]]
EnsembleReading = tuple[list[Event], Sums, list[LogWarning], Position]

MEMORY = (
    b"006 (12714074.000.000) 2025-11-04 %02d:%02d:00 Image size of job updated: %d\n"
    b"\t%d  -  MemoryUsage of job (MB)\n\t%d  -  ResidentSetSize of job (KB)\n...\n"
)


def summed(images: Iterable[ImageSizes]) -> Sums:
    """All sums of one job as one."""
    sums: Sums = {}
    for one in images:
        key = (one.cluster, one.proc, one.subproc)
        updates, first, last, memory = sums.get(key, (0, one.first, one.last, None))
        sizes = [size for size in (memory, one.memory_mb) if size is not None]
        sums[key] = (
            updates + one.updates,
            min(first, one.first),
            max(last, one.last),
            max(sizes, default=None),
        )
    return sums


def as_images(events: Iterable[Event]) -> list[ImageSizes]:
    return [
        ImageSizes(e.cluster, e.proc, e.subproc, 1, e.time, e.time, e.detail.memory_mb)
        for e in events
        if e.number == 6 and not e.damaged and isinstance(e.detail, ImageSize)
    ]


def divided(events: Iterable[Event]) -> tuple[list[Event], list[ImageSizes]]:
    """The events, and their 006 apart, but for cut ones."""
    others = [event for event in events if event.number != 6 or event.damaged]
    return others, as_images(events)


def carefully(data: bytes) -> EnsembleReading:
    parsed = parse(data, year_hint=2025)
    events, images = divided(parsed.events)
    return events, summed(images), list(parsed.warnings), parsed.after


def quickly(data: bytes, cuts: Iterable[int] = ()) -> EnsembleReading:
    """By a follower that sees the file end at each of ``cuts``."""
    at = Position()
    events: list[Event] = []
    images: list[ImageSizes] = []
    warnings: list[LogWarning] = []
    for end in [*sorted(cuts), len(data)]:
        got = parse_fast(data[at.offset : end], at, year_hint=2025)
        others, more = divided(got.events)
        events += others
        images += [*got.images, *more]
        warnings += got.warnings
        at = got.after
    return events, summed(images), warnings, at


@cache
def bytes_of(name: str) -> tuple[bytes, EnsembleReading]:
    data = real(name)
    return data, carefully(data)


@pytest.mark.parametrize("name", REAL)
def test_a_real_log_at_once_and_in_any_pieces(name: str) -> None:
    data, expected = bytes_of(name)
    assert quickly(data) == expected
    dice = random.Random(7)
    for _ in range(3):
        cuts = [dice.randrange(len(data)) for _ in range(dice.randrange(1, 12))]
        assert quickly(data, cuts) == expected


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_log_with_any_damage(data: st.DataObject) -> None:
    """Bytes changed, cut out, or put in, anywhere in some KB of a real log."""
    whole, _ = bytes_of(REAL[0])
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
    cuts = data.draw(st.lists(st.integers(0, len(log)), max_size=4))
    assert quickly(bytes(log), cuts) == carefully(bytes(log))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_memory_report_with_any_byte_changed(data: st.DataObject) -> None:
    """Also where it stays a text of digits: a date that is none, a number with zeros."""
    reports = [
        bytearray(MEMORY % (hour, hour, 10**7 + hour, 4000 - hour, 10**6)) for hour in range(9, 23)
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        report = data.draw(st.sampled_from(reports))
        at = data.draw(st.integers(0, len(report) - 1))
        report[at] = data.draw(st.sampled_from(b"0123456789 ().:-\n\t\r\0TZx."))
    log = b"".join(reports)
    assert quickly(log) == carefully(log)


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
    assert quickly(log) == carefully(log)


def test_dates_of_two_forms_in_one_log() -> None:
    one, other = (MEMORY % (hour, 0, 10**7, 4000, 10**6) for hour in (9, 10))
    log = one + other.replace(b":00 Image", b":00.500 Image") + one
    assert quickly(log) == carefully(log)


def test_a_date_between_two_others_that_is_none() -> None:
    log = b"".join(
        (MEMORY % (9, 0, 10**7, size, 10**6)).replace(b"11-04", day)
        for size, day in ((1, b"11-30"), (9, b"11-31"), (3, b"12-01"))
    )
    assert quickly(log) == carefully(log)
    assert [warning.kind for warning in parse_fast(log).warnings] == ["bad-header"]


def test_a_log_that_begins_with_what_is_no_event() -> None:
    """The first event is the 006 behind it, not the one behind that."""
    report = MEMORY % (9, 0, 10**7, 1, 10**6)
    log = RELEASED.replace(b"2025-11", b"2025-13") + report + RELEASED
    got = parse_fast(log)
    assert got.images
    assert got.events
    assert got.first == datetime(2025, 11, 4, 9)


def test_stamps_that_step_back() -> None:
    log = b"".join(MEMORY % (hour, 0, 10**7, 4000, 10**6) for hour in (9, 12, 8, 11))
    (image,) = parse_fast(log).images
    assert (image.first.hour, image.last.hour) == (8, 12)
    assert parse_fast(log).after.last == datetime(2025, 11, 4, 11)


def test_reports_behind_a_moment_are_left_out() -> None:
    log = b"".join(MEMORY % (hour, 0, 10**7, 4000, 10**6) for hour in (9, 10, 11))
    (images,) = parse_fast(log, until=datetime(2025, 11, 4, 10)).images
    assert (images.updates, images.last) == (2, datetime(2025, 11, 4, 10))
    result = parse_fast(log, until=datetime(2025, 11, 4, 8))
    assert (result.images, result.events) == ((), ())
    assert (result.first, result.after.last) == (
        datetime(2025, 11, 4, 9),
        datetime(2025, 11, 4, 11),
    )


def test_a_real_log_is_read_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for what is cut: most of it never goes the careful way."""
    data, expected = bytes_of(REAL[0])
    noted_bytes: list[int] = []
    text_parse = reader.text_parser.parse

    def noted(blocks: bytes, *rest: object) -> object:
        noted_bytes.append(len(blocks))
        return text_parse(blocks, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(reader.text_parser, "parse", noted)
    assert quickly(data) == expected
    assert 0 < sum(noted_bytes) < 20_000
