"""The text form: headers, separators, and incomplete events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from metlmon.eventlog.events import Event, Generic, ImageSize, LogFormat, Position, event_name
from metlmon.eventlog.header import first_year
from metlmon.eventlog.reader import looks_like_event_log, parse, sniff

SUBMIT = b"000 (077.003.000) 2026-03-29 01:59:59 Job submitted from host: <10.0.0.1:9618>\n...\n"


def one(data: bytes, **options: int) -> Event:
    parsed = parse(data, **options)  # type: ignore[arg-type]
    assert parsed.warnings == ()
    (event,) = parsed.events
    return event


@pytest.mark.parametrize(
    ("date", "time"),
    [
        (b"2026-03-29 01:59:59", datetime(2026, 3, 29, 1, 59, 59)),
        (b"2026-03-29T01:59:59", datetime(2026, 3, 29, 1, 59, 59)),
        (b"2026-03-29 01:59:59.125", datetime(2026, 3, 29, 1, 59, 59, 125_000)),
        (b"2026-03-29 06:59:59Z", datetime(2026, 3, 29, 6, 59, 59, tzinfo=UTC)),
        (b"2026-03-29 06:59:59.500Z", datetime(2026, 3, 29, 6, 59, 59, 500_000, tzinfo=UTC)),
        (b"03/29 01:59:59", datetime(2024, 3, 29, 1, 59, 59)),
        (b"03/29 01:59:59.250", datetime(2024, 3, 29, 1, 59, 59, 250_000)),
        (b"02/29 12:00:00", datetime(2024, 2, 29, 12)),
    ],
)
def test_every_form_of_the_date_is_read(date: bytes, time: datetime) -> None:
    event = one(b"013 (12713917.000.000) " + date + b" Job was released.\n...\n", year_hint=2024)
    assert event.time == time
    assert (event.time.tzinfo is None) == (time.tzinfo is None)
    assert event.text == "Job was released."


@pytest.mark.parametrize(
    ("written", "ids"),
    [
        (b"077.003.000", (77, 3, 0)),
        (b"077.-01.000", (77, -1, 0)),
        (b"-01.000.000", (-1, 0, 0)),
        (b"077.-1000.000", (77, -1000, 0)),
        (b"000.2147483647.4294967296", (0, 2147483647, 4294967296)),
        (b"1.000.000", (1, 0, 0)),
        # The header of the global log.
        (b"-01.-01.-01", (-1, -1, -1)),
    ],
)
def test_ids_are_signed_and_unbounded(written: bytes, ids: tuple[int, int, int]) -> None:
    event = one(b"013 (" + written + b") 2026-03-29 01:59:59 Job was released.\n...\n")
    assert (event.cluster, event.proc, event.subproc) == ids


def test_unknown_event_numbers_are_kept() -> None:
    event = one(b"777 (001.000.000) 2026-03-29 01:59:59 Something new\n\tof a newer pool\n...\n")
    assert (event_name(event.number), event.text) == ("EVENT_777", "Something new")
    assert (event.body, event.detail) == ("\tof a newer pool", None)


def test_041_has_no_first_text() -> None:
    event = one(b"041 (077.003.000) 2026-03-29 01:59:59 \n\tBytes reserved: 1000\n...\n")
    assert (event.text, event.body) == ("", "\tBytes reserved: 1000")


@pytest.mark.parametrize("cut", range(len(SUBMIT)))
def test_torn_tail_waits_for_its_rest(cut: int) -> None:
    parsed = parse(SUBMIT[:cut])
    assert (parsed.events, parsed.warnings, parsed.after.offset) == ((), (), 0)
    whole = parse(SUBMIT, parsed.after)
    assert len(whole.events) == 1
    assert (whole.after.offset, whole.after.line) == (len(SUBMIT), 3)


def test_only_the_exact_separator_ends_an_event() -> None:
    event = one(b"008 (001.000.000) 2026-03-29 01:59:59 a\n...b\n ...\n....\n...\n")
    assert event.detail == Generic("a\n...b\n ...\n....")


def test_crlf_is_not_damage() -> None:
    unix = parse(SUBMIT + SUBMIT).events
    windows = parse((SUBMIT + SUBMIT).replace(b"\n", b"\r\n"))
    assert windows.events == unix
    assert windows.warnings == ()


def test_usual_006_is_read_like_other_events() -> None:
    usual = (
        b"006 (077.003.000) 2026-03-29 01:59:59 Image size of job updated: 2048\n"
        b"\t3  -  MemoryUsage of job (MB)\n\t2500  -  ResidentSetSize of job (KB)\n...\n"
    )
    event = one(usual)
    assert event.detail == ImageSize(3)
    assert event == one(usual.replace(b"\n", b"\r\n"))
    unusual = one(usual.replace(b"...", b"\t2400  -  ProportionalSetSize of job (KB)\n...", 1))
    assert (unusual.detail, unusual.text) == (event.detail, event.text)


def test_limit_loses_no_event() -> None:
    log = SUBMIT * 7
    at, seen = Position(), []
    while at.offset < len(log):
        parsed = parse(log[at.offset :], at, limit=2)
        assert 1 <= len(parsed.events) <= 2
        seen += parsed.events
        at = parsed.after
    assert tuple(seen) == parse(log).events
    assert [event.line for event in seen] == [1, 3, 5, 7, 9, 11, 13]


def test_yearless_log_spans_new_year() -> None:
    stamps = (b"11/30 10:00:00", b"12/31 23:59:59", b"01/01 00:00:02", b"12/31 23:59:58")
    stamps += (b"01/01 00:00:03", b"02/29 00:00:00", b"12/31 00:00:00", b"01/02 00:00:00")
    log = b"".join(b"013 (001.000.000) " + each + b" Job was released.\n...\n" for each in stamps)
    events = parse(log, year_hint=2023).events
    assert [event.time.year for event in events] == [2023, 2023, 2024, 2023, 2024, 2024, 2024, 2025]
    assert first_year(log, datetime(2025, 6, 1)) == 2023
    assert first_year(SUBMIT, datetime(2025, 6, 1)) is None


@pytest.mark.parametrize(
    ("stamps", "written", "year"),
    [
        (["12/03 10:00:00"], "2026-01-20", 2025),
        (["12/03 10:00:00"], "2026-12-03", 2026),
        (["12/03 10:00:00"], "2026-12-02 10:00:00", 2026),
        (["12/03 10:00:00"], "2026-12-02 09:59:59", 2025),
        # Across new year, and copied before the end of the next year.
        (["11/05 10:00:00", "02/03 10:00:00"], "2026-01-20", 2024),
        (["11/05 10:00:00", "02/03 10:00:00"], "2026-02-03 10:00:00", 2025),
        (["11/05 10:00:00", "02/03 10:00:00", "12/24 10:00:00"], "2026-11-23", 2024),
        # The file was written on New Year's Eve by a slow clock.
        (["12/31 23:59:00", "01/01 00:00:10"], "2025-12-31 23:59:50", 2025),
        (["01/01 00:00:10"], "2025-12-31 23:59:50", 2026),
        # A leap day, read in a year without one, and after new year.
        (["02/28 10:00:00", "02/29 10:00:00", "03/01 10:00:00"], "2026-05-01", 2024),
        (["11/05 10:00:00", "02/29 10:00:00"], "2026-05-01", 2023),
        (["02/29 10:00:00"], "1903-05-01", 1896),
    ],
)
def test_events_of_a_yearless_log_precede_its_mtime(
    stamps: list[str], written: str, year: int
) -> None:
    log = "".join(f"013 (001.000.000) {each} Job was released.\n...\n" for each in stamps)
    first = first_year(log.encode(), datetime.fromisoformat(written))
    assert first == year
    events = parse(log.encode(), year_hint=first).events
    assert events[0].time.year == year
    assert [f"{event.time:%m/%d %H:%M:%S}" for event in events] == stamps
    assert max(event.time for event in events) <= datetime.fromisoformat(written) + timedelta(1)


def test_post_script_without_a_job_dates_a_yearless_log() -> None:
    log = b"013 (001.000.000) 03/20 10:00:00 Job was released.\n...\n"
    log += b"016 (-01.000.000) 12/29 10:00:00 POST Script terminated.\n...\n"
    assert first_year(log, datetime(2026, 11, 30)) == 2025


def test_dates_with_years_date_earlier_events() -> None:
    stamps = ("11/05 10:00:00", "02/03 10:00:00", "2025-02-03 12:00:00", "02/04 10:00:00")
    log = "".join(f"013 (001.000.000) {each} Job was released.\n...\n" for each in stamps)
    first = first_year(log.encode(), datetime.fromisoformat("2026-11-30"))
    years = [event.time.year for event in parse(log.encode(), year_hint=first).events]
    assert years == [2024, 2025, 2025, 2025]


def test_year_is_kept_across_calls() -> None:
    first = parse(b"013 (001.000.000) 12/31 23:59:59 Job was released.\n...\n", year_hint=2023)
    again = b"013 (001.000.000) 01/01 00:00:01 Job was released.\n...\n"
    assert parse(again, first.after, year_hint=1999).events[0].time.year == 2024


@pytest.mark.parametrize(
    ("first", "form"),
    [
        (SUBMIT, LogFormat.TEXT),
        (b"\n\n" + SUBMIT, LogFormat.TEXT),
        (b'<c>\n    <a n="Proc"><i>3</i></a>\n', LogFormat.XML),
        (b'<?xml version="1.0"?>\n<c>', LogFormat.XML),
        (b'{\n  "Proc": 3,\n  "MyType": "SubmitEvent"\n}\n', LogFormat.JSON),
        (b'{"loss": 0.1}\n', None),
        (b"<html><body>", None),
        (b"INFO 2026-03-29 01:59:59 epoch 3\n", None),
        (b"", None),
    ],
)
def test_form_of_a_log_is_detected(first: bytes, form: LogFormat | None) -> None:
    assert sniff(first) is form
    assert looks_like_event_log(first) is (form is not None)
