"""Durations between times without a zone, across the two hours a year that are ambiguous or missing
(``metlmon/README.md``, "Time")."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.config.settings import Settings
from metlmon.model.clock import Clock
from metlmon.model.model_state import LogRole
from metlmon.model.states import DagState
from tests.support.event_logs import Log, Out, moment, of_one_job, read_ensemble

CHICAGO = ZoneInfo("America/Chicago")
IN_CHICAGO = Settings(zone=CHICAGO)
NODE = "run0-train_epoch0"


def hours_of(log: Log, settings: Settings | None = None) -> float:
    return of_one_job(log, settings=settings).builder().status().hours.goodput


def overnight(day_before: str, day: str) -> Log:
    log = Log().submit(77, NODE, at=f"{day_before} 21:00:00")
    return log.execute(77, gpus=1, at=f"{day_before} 22:00:00").terminate(77, at=f"{day} 08:00:00")


@pytest.mark.parametrize(
    ("day_before", "day", "in_zone"),
    [("2025-11-01", "2025-11-02", 11.0), ("2026-03-07", "2026-03-08", 9.0)],
)
def test_hours_across_a_clock_change(day_before: str, day: str, in_zone: float) -> None:
    log = overnight(day_before, day)
    assert (hours_of(log), hours_of(log, IN_CHICAGO)) == (10.0, in_zone)


def test_second_pass_of_the_repeated_hour() -> None:
    """Times step back from 01:59 to 01:00: later ones are in the second pass."""
    log = Log().submit(77, NODE, at="2025-11-02 00:50:00")
    log.execute(77, gpus=1, at="2025-11-02 01:00:00").image(77, 5, at="2025-11-02 01:59:00")
    log.image(77, 6, at="2025-11-02 01:10:00").terminate(77, at="2025-11-02 01:40:00")
    assert hours_of(log, IN_CHICAGO) == pytest.approx(100 / 60)


def test_two_writers_apart_are_not_a_second_pass() -> None:
    log = Log().submit(77, NODE, at="2025-11-02 01:05:00")
    log.execute(77, gpus=1, at="2025-11-02 01:04:59").terminate(77, at="2025-11-02 01:35:00")
    assert hours_of(log, IN_CHICAGO) == pytest.approx(0.5, abs=0.001)


def test_times_are_shown_as_logged() -> None:
    log = overnight("2025-11-01", "2025-11-02")
    job = of_one_job(log, settings=IN_CHICAGO).job(77)
    assert job.executions[0].start == datetime(2025, 11, 1, 22, 0)
    clock = of_one_job(log, settings=IN_CHICAGO).ensemble.clock
    assert clock.with_offset(job.executions[0].start).isoformat() == "2025-11-01T22:00:00-05:00"
    assert Clock().with_offset(job.executions[0].start).isoformat() == "2025-11-01T22:00:00"


def test_log_in_utc() -> None:
    log = Log().submit(77, NODE).execute(77, gpus=1, at="10:00:00").terminate(77, at="12:00:00")
    log.events = [e.replace(b":00 ", b":00Z ", 1) for e in log.events]
    result = of_one_job(log)
    assert result.builder().status().hours.goodput == 2.0
    stated = result.ensemble.clock.with_offset(moment("10:00:00"))
    assert stated.isoformat() == "2026-05-04T10:00:00+00:00"
    result = of_one_job(log, settings=IN_CHICAGO)
    assert result.job(77).executions[0].start == moment("05:00:00")


# --- inferred offsets ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [timedelta(hours=20), timedelta(hours=-13), timedelta(minutes=7), timedelta(days=400)]
)
def test_offset_of_no_zone_is_rejected(wrong: timedelta) -> None:
    clock = Clock()
    clock.observe(moment("10:00:00"), (moment("10:00:00") - wrong).replace(tzinfo=UTC).timestamp())
    assert not clock.has_offset


def metrics_of(begun: float, lasted: float, **more: object) -> bytes:
    """What DAGMan writes at its end."""
    metrics = {"client": "condor_dagman", "version": "25.14.1", "exitcode": 0, "DagStatus": 0}
    return json.dumps(metrics | {"start_time": begun, "end_time": begun + lasted} | more).encode()


def test_metrics_file_and_dagman_out_give_the_offset() -> None:
    begun = moment("09:00:00").replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    metrics = metrics_of(begun, 3600, metrics_version=2)
    result = read_ensemble(f"JOB {NODE} t.sub\n", out=Out().start("09:00:00"), metrics=metrics)
    assert result.ensemble.clock.to_local(begun) == moment("09:00:00")


def test_metrics_of_an_earlier_dagman_give_no_offset() -> None:
    begun = moment("09:00:00").replace(tzinfo=UTC).timestamp()
    metrics = metrics_of(begun, 1136, version="23.9.6", exitcode=2, DagStatus=4)
    out = Out().start("09:00:00").exit(2, "09:18:56").start("09:18:57")
    result = read_ensemble(f"JOB {NODE} t.sub\n", out=out, metrics=metrics)
    assert result.ensemble.clock.to_local(begun) == moment("09:00:00")
    assert result.ensemble.dag_state("run.dag")[0] is DagState.RUNNING


def test_restarted_dagman_is_matched_by_its_duration() -> None:
    """``.dagman.log`` repeats 001 after a restart of the schedd; the metrics name the cluster and
    are of the last start."""
    begun = moment("10:20:07").replace(tzinfo=CHICAGO).timestamp()
    metrics = metrics_of(begun, 600, dagman_id="900")
    log = Log("run.dag.dagman.log", LogRole.DAGMAN, "run.dag").submit(900, at="09:00:00")
    log.execute(900, at="09:07:00").execute(900, at="10:20:07")
    dag = f"JOB {NODE} t.sub\n"
    unended = read_ensemble(dag, log, metrics=metrics)
    assert not unended.ensemble.clock.has_offset
    log.terminate(900, at="10:30:07")
    for cut in (None, "08:00:00"):
        clock = read_ensemble(dag, log, metrics=metrics, cut=cut).ensemble.clock
        assert clock.to_local(begun) == moment("10:20:07")
    others = metrics.replace(b'"900"', b'"899"')
    assert not read_ensemble(dag, log, metrics=others).ensemble.clock.has_offset


def test_offsets_of_both_seasons_are_inferred() -> None:
    log, lines = Log(), b""
    times = ("2026-10-31 12:00:00", "2026-11-01 12:00:00")
    for cluster, at in enumerate(times, start=77):
        log.submit(cluster, NODE, at=at)
        epoch = int(moment(at).replace(tzinfo=CHICAGO).timestamp())
        lines += f"{epoch} {NODE} SUBMIT {cluster}.0 - - 1\n".encode()
    clock = read_ensemble(f"JOB {NODE} t.sub\n", log, jobstate=lines).ensemble.clock
    assert clock.seconds(moment(times[0]), moment(times[1])) == 25 * 3600


def test_time_far_from_all_events_needs_no_zone() -> None:
    clock, stamp = Clock(), moment("12:00:00")
    noon = stamp.replace(tzinfo=UTC).timestamp()
    assert clock.is_after(noon - 14 * 3600, stamp) is False
    assert clock.is_after(noon - 14 * 3600 + 1, stamp) is None
    assert clock.is_after(noon + 12 * 3600, stamp) is None
    assert clock.is_after(noon + 12 * 3600 + 1, stamp) is True
    assert clock.is_after(float("inf"), stamp) is None
    for hours in (-12, 14):
        zone = timezone(timedelta(hours=hours))
        there = Clock(zone)
        for off in (-14 * 3600, 12 * 3600 + 1):
            assert there.is_after(noon + off, stamp) is clock.is_after(noon + off, stamp)


def ended(log: Log, job: int, at: str, zone: ZoneInfo, late: int = 3) -> Log:
    """A 005 by HTCondor before 24.7, ``late`` seconds after the job's own end."""
    end = moment(at).replace(tzinfo=zone).astimezone(UTC) - timedelta(seconds=late)
    body = (
        "\t(1) Normal termination (return value 0)\n"
        f"\tJob terminated of its own accord at {end:%Y-%m-%dT%H:%M:%S}Z with exit-code 0.\n"
    )
    return log.raw(5, job, "Job terminated.", body, at)


def test_two_ends_in_utc_give_the_offset() -> None:
    log = Log().submit(77, NODE, at="10:00:00").submit(78, NODE, at="10:00:00")
    one = read_ensemble(f"JOB {NODE} t.sub\n", ended(log, 77, "11:00:00", CHICAGO))
    assert not one.ensemble.clock.has_offset
    result = read_ensemble(f"JOB {NODE} t.sub\n", ended(log, 78, "12:00:00", CHICAGO))
    noon = moment("12:00:00")
    assert result.ensemble.clock.to_local(noon.replace(tzinfo=CHICAGO).timestamp()) == noon


def test_end_logged_late_gives_no_offset() -> None:
    log = Log()
    for job in (77, 78, 79):
        log.submit(job, NODE, at="10:00:00")
        ended(log, job, "12:00:00", CHICAGO, late=1200)
    assert not read_ensemble(f"JOB {NODE} t.sub\n", log).ensemble.clock.has_offset


def test_offset_keeps_fractions_of_seconds() -> None:
    begin, end = datetime(2026, 11, 21, 9, 50, 1, 1000), datetime(2026, 11, 21, 9, 50, 6, 176000)
    clock = Clock()
    assert clock.seconds(begin, end) == 5.175
    for local in (begin, datetime(2026, 12, 1)):
        clock.observe(local, local.replace(tzinfo=UTC).timestamp())
    assert clock.seconds(begin, end) == 5.175
    assert Clock(CHICAGO).seconds(begin, end) == 5.175


@pytest.mark.parametrize("zone", [None, CHICAGO, ZoneInfo("Asia/Tokyo")])
@pytest.mark.parametrize("form", ["", "Z"])
def test_time_out_of_range_in_another_zone_raises_nothing(zone: ZoneInfo | None, form: str) -> None:
    log = Log().submit(77, NODE, at="0001-01-01 00:00:00").execute(77, at="10:00:00")
    log.terminate(77, at="11:00:00").submit(78, NODE, at="9999-12-31 23:59:59")
    for stamp in (b"0001-01-01 00:00:00", b"9999-12-31 23:59:59"):
        log.events = [e.replace(stamp, stamp + form.encode()) for e in log.events]
    result = of_one_job(log, settings=Settings(zone=zone))
    assert result.builder().status().hours.goodput == 1.0
    assert [job.cluster for job in result.builder().job_rows()] == [77, 78]


@pytest.mark.parametrize("epoch", [1e18, -1e18, 253402300799.0, float("inf")])
@pytest.mark.parametrize("zone", [None, CHICAGO, ZoneInfo("Asia/Tokyo")])
def test_seconds_out_of_range_are_no_time(epoch: float, zone: ZoneInfo | None) -> None:
    clock = Clock(zone)
    clock.observe(moment("10:00:00"), epoch)
    assert not clock.has_offset or zone is not None
    local = clock.to_local(epoch)
    assert local is None or local.year == 9999


# --- always -------------------------------------------------------------------------------

near_a_change = st.builds(
    lambda day, minutes, fold: (day + timedelta(minutes=minutes)).replace(fold=fold),
    st.sampled_from([datetime(2026, 3, 8), datetime(2026, 11, 1), datetime(2026, 7, 4)]),
    st.integers(-3000, 3000),
    st.integers(0, 1),
)


@given(near_a_change, near_a_change)
def test_difference_equals_that_of_the_times(a: datetime, b: datetime) -> None:
    clock = Clock(CHICAGO)
    begun, ended = (each.replace(tzinfo=CHICAGO).astimezone(UTC) for each in (a, b))
    assert clock.seconds(a, b) == max(0.0, (ended - begun).total_seconds())


def test_difference_at_the_ends_of_the_calendar() -> None:
    clock = Clock(CHICAGO)
    assert clock.seconds(datetime.min, datetime.min + timedelta(hours=1)) == 3600.0
    assert clock.seconds(datetime.max - timedelta(hours=1), datetime.max) == 3600.0
