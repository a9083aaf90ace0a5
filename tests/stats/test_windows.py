"""Windows of time sum to the whole, wherever they cut."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metlmon.config.settings import Settings
from metlmon.errors import InputError
from metlmon.model.states import State
from metlmon.snapshot.records import HOUR, Ledger
from metlmon.stats.totals import sum_executions
from metlmon.stats.windows import (
    ALL,
    TimeWindow,
    Unit,
    clip_ledger,
    parse_window,
    partition,
    window_text,
)
from tests.conftest import shared_path
from tests.support.event_logs import Log, of_one_job
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir

CHICAGO = ZoneInfo("America/Chicago")
NODE = "run0-train_epoch0"
EXAMPLES = ("metl-aws", "pool-ensemble")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def ledger_of(log: Log, settings: Settings | None = None) -> Ledger:
    return of_one_job(log, settings=settings).builder().ledger()


def seconds(ledger: Ledger) -> dict[str, float]:
    hours = sum_executions(ledger.executions).hours
    kinds = {"good": hours.goodput, "bad": hours.badput, "in flight": hours.running}
    return {kind: round(each * HOUR, 3) for kind, each in kinds.items()}


# --- one execution ----------------------------------------------------------------------------


def over_the_border() -> Ledger:
    """Two GPUs from 22:00 on the last of October until 10:00 on the first of November."""
    log = Log().submit(77, NODE, at="2025-10-31 21:00:00")
    log.execute(77, gpus=2, at="2025-10-31 22:00:00")
    log.terminate(77, run=(5, 6), total=(5, 6), at="2025-11-01 10:00:00")
    return ledger_of(log)


def test_execution_across_the_end_of_a_month() -> None:
    ledger = over_the_border()
    october, november = (
        clip_ledger(ledger, parse_window(None, None, month)) for month in ("2025-10", "2025-11")
    )
    assert seconds(october) == {"good": 2 * 2 * 3600, "bad": 0, "in flight": 0}
    assert seconds(november) == {"good": 2 * 10 * 3600, "bad": 0, "in flight": 0}
    # It counts, and completes its epoch and transfers, in the month of its end.
    spent = [sum_executions(each.executions) for each in (october, november)]
    assert [(each.executions, each.completed_epochs) for each in spent] == [(0, 0), (1, 1)]
    assert (len(october.epochs), len(november.epochs)) == (0, 1)
    assert [e.final for e in (*october.executions, *november.executions)] == [False, True]
    assert october.executions[0].bytes_sent is None
    assert november.executions[0].bytes_sent == 5
    assert [job.bytes_received for job in (*october.jobs, *november.jobs)] == [None, 6]
    assert [run.hours.goodput for run in (*october.runs, *november.runs)] == [4, 20]
    # Its own times are unchanged.
    assert november.executions[0].start == at("2025-10-31T22:00")


def test_boundary_belongs_to_the_later_window() -> None:
    ledger, end = over_the_border(), at("2025-11-01T10:00")
    before = clip_ledger(ledger, TimeWindow(until=end))
    after = clip_ledger(ledger, TimeWindow(since=end))
    assert [e.counted for e in before.executions] == [False]
    assert [(e.counted, e.seconds) for e in after.executions] == [(True, 0.0)]
    assert (len(before.epochs), len(after.epochs)) == (0, 1)


def test_window_across_the_repeated_hour() -> None:
    log = Log().submit(77, NODE, at="2025-11-01 21:00:00")
    log.execute(77, gpus=1, at="2025-11-01 22:00:00").terminate(77, at="2025-11-02 08:00:00")
    ledger = ledger_of(log, Settings(zone=CHICAGO))
    parts = [
        seconds(clip_ledger(ledger, window))["good"] / 3600
        for window in (
            TimeWindow(until=at("2025-11-02T01:30")),
            TimeWindow(at("2025-11-02T01:30"), at("2025-11-02T02:00")),
            TimeWindow(since=at("2025-11-02T02:00")),
        )
    ]
    # From the first 01:30 to 02:00 are one and a half hours.
    assert parts == [3.5, 1.5, 6.0]
    assert sum(parts) == seconds(ledger)["good"] / 3600 == 11.0


def test_execution_in_the_second_pass_of_an_hour() -> None:
    log = Log().submit(77, NODE, at="2025-11-02 00:30:00")
    log.execute(77, gpus=1, at="2025-11-02 01:40:00").raw(6, 77, "Image size of job updated: 1")
    log.terminate(77, at="2025-11-02 01:10:00").submit(78, at="2025-11-02 04:00:00")
    ledger = ledger_of(log, Settings(zone=CHICAGO))
    assert seconds(ledger)["good"] == 1800
    between = at("2025-11-02T01:20")
    parts = [clip_ledger(ledger, each) for each in (TimeWindow(None, between), TimeWindow(between))]
    # The first 01:20 was before its start, though its end is logged as 01:10.
    assert [seconds(each)["good"] for each in parts] == [0, 1800]
    assert [sum_executions(each.executions).executions for each in parts] == [0, 1]


@cache
def real(name: str, zone: str | None) -> Ledger:
    path = shared_path(f"examples/{name}") if name in EXAMPLES else FIXTURES / name
    return read_dagdir(path, settings=Settings(zone=ZoneInfo(zone) if zone else None)).ledger()


def total(parts: Iterable[int | float | None]) -> float:
    return sum(part or 0 for part in parts)


def sums(ledger: Ledger) -> dict[str, float]:
    """All sums and counts."""
    spent = sum_executions(ledger.executions)
    out: dict[str, float] = {
        "executions": spent.executions,
        "good executions": spent.good_executions,
        "bad executions": spent.bad_executions,
        "completed": spent.completed_epochs,
        "good": spent.hours.goodput * 3600,
        "bad": spent.hours.badput * 3600,
        "in flight": spent.hours.running * 3600,
        "seconds": total(e.seconds for e in ledger.executions),
        "suspended": total(e.suspended for e in ledger.executions),
        "wait": total(e.wait for e in ledger.executions),
        "sent by executions": total(e.bytes_sent for e in ledger.executions),
        "received by executions": total(e.bytes_received for e in ledger.executions),
        "sent by jobs": total(j.bytes_sent for j in ledger.jobs),
        "received by jobs": total(j.bytes_received for j in ledger.jobs),
        "holds": sum(len(j.holds) for j in ledger.jobs),
        "hold seconds": sum(h.seconds for j in ledger.jobs for h in j.holds),
        "transfers": sum(t.counted for t in ledger.transfers),
        "transfer seconds": total(t.seconds for t in ledger.transfers),
        "epochs": sum(e.state is State.COMPLETED for e in ledger.epochs),
        "longest": total(e.longest_seconds for e in ledger.epochs if e.state is State.COMPLETED),
        "runs' good": sum(r.hours.goodput for r in ledger.runs) * 3600,
        "runs' bad": sum(r.hours.badput for r in ledger.runs) * 3600,
    }
    for e in ledger.executions:
        key = f"{e.site} / {e.gpu} / {e.cause}"
        out[key] = out.get(key, 0) + (e.gpu_seconds or 0)
    return {name: round(value, 3) for name, value in out.items() if value}


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("metl-aws", "America/Chicago"),
        ("pool-ensemble", None),
        ("holds", None),
        ("shared-log", None),
    ],
)
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_windows_cut_anywhere_sum_to_the_whole(
    name: str, zone: str | None, data: st.DataObject
) -> None:
    ledger = real(name, zone)
    assert ledger.first_time is not None
    assert ledger.as_of is not None
    moments = [ledger.first_time, *(m for e in ledger.executions for m in (e.start, e.end) if m)]
    span = int((ledger.as_of - ledger.first_time).total_seconds())
    anywhere = st.integers(-3600, span + 3600).map(
        lambda seconds: ledger.first_time + timedelta(seconds=seconds)
    )
    cuts = data.draw(st.lists(st.one_of(st.sampled_from(moments), anywhere), max_size=4))
    added: dict[str, float] = {}
    for since, until in pairwise([None, *sorted(set(cuts)), None]):
        for key, value in sums(clip_ledger(ledger, TimeWindow(since, until))).items():
            assert value > 0, key
            added[key] = added.get(key, 0) + value
    assert {key: round(value, 3) for key, value in added.items()} == sums(ledger)


def test_window_without_ends_is_the_whole() -> None:
    ledger = over_the_border()
    assert clip_ledger(ledger, ALL) is ledger


# --- arguments --------------------------------------------------------------------------------


def test_months_dates_and_times() -> None:
    assert parse_window(None, None, None) == ALL
    assert parse_window(None, None, "2025-12") == TimeWindow(at("2025-12-01"), at("2026-01-01"))
    window = parse_window("2025-11-01", "2025-11-14 08:14", None)
    assert window == TimeWindow(at("2025-11-01"), at("2025-11-14T08:14:00"))
    window = parse_window("2025-11-14T08:14:00Z", None, None, CHICAGO)
    assert window == TimeWindow(at("2025-11-14T02:14:00"))


@pytest.mark.parametrize(
    ("since", "until", "month", "sentence"),
    [
        (None, None, "2025-13", "--month '2025-13' is not a month; write it as 2025-11"),
        (None, None, "November", "is not a month"),
        ("2025-11-01", None, "2025-11", "leave out --since and --until"),
        ("yesterday", None, None, "--since 'yesterday' is not a time; write it as 2025-11-14"),
        (None, "2025-11-32", None, "--until '2025-11-32' is not a time"),
        ("2025-11-02", "2025-11-02", None, "nothing is between"),
        ("2025-11-02T00:00Z", None, None, "the logs' own is not known: add --tz"),
    ],
)
def test_invalid_windows_are_refused(
    since: str | None, until: str | None, month: str | None, sentence: str
) -> None:
    with pytest.raises(InputError) as error:
        parse_window(since, until, month)
    assert sentence in str(error.value)


def test_window_in_the_skipped_hour() -> None:
    assert parse_window("2026-03-08T02:30", None, None) == TimeWindow(at("2026-03-08T02:30"))
    with pytest.raises(InputError, match="clocks went forward"):
        parse_window("2026-03-08T02:30", None, None, CHICAGO)
    parse_window("2025-11-02T01:30", None, None, CHICAGO)


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (ALL, "all time"),
        (TimeWindow(at("2025-11-01"), at("2025-12-01")), "November 2025"),
        (TimeWindow(at("2025-11-01"), at("2025-11-15")), "2025-11-01 to 2025-11-14"),
        (TimeWindow(at("2025-11-01"), at("2025-11-02")), "2025-11-01"),
        (TimeWindow(at("2025-11-01")), "since 2025-11-01"),
        (TimeWindow(until=at("2025-11-01T08:00")), "until 2025-11-01 08:00"),
        (
            TimeWindow(at("2025-11-01"), at("2025-11-01T08:14:30")),
            "2025-11-01 00:00 to 2025-11-01 08:14:30",
        ),
    ],
)
def test_text_of_a_window(window: TimeWindow, words: str) -> None:
    assert window_text(window) == words


def test_weeks_begin_on_monday() -> None:
    windows = partition(at("2025-10-31T12:00"), at("2025-11-03T00:00"), Unit.WEEK)
    assert windows == (
        TimeWindow(at("2025-10-27"), at("2025-11-03")),
        TimeWindow(at("2025-11-03"), at("2025-11-10")),
    )


def test_years_of_a_damaged_log() -> None:
    for unit in Unit:
        assert partition(datetime(1, 1, 1), datetime(1, 1, 1), unit)
        assert partition(datetime(9999, 12, 31), datetime.max, unit)
    assert parse_window(None, None, "9999-12") == TimeWindow(at("9999-12-01"), datetime.max)
