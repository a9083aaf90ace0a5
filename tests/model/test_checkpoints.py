"""Self-checkpointing trainings: time up to a stored checkpoint is goodput, and later time is lost
(``metlmon/README.md``, "GPU-hours"). HTCondor's ``CommittedTime`` is the same;
``tests/pool/test_checkpoints_on_pool.py`` compares the two."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from metlmon.health.build import make_health
from metlmon.stats.timeline import build_timeline
from metlmon.stats.usage import usage_in_window
from metlmon.stats.windows import TimeWindow
from metlmon.tables.timeline_text import BADPUT, GOODPUT, span_symbol
from tests.conftest import Shared
from tests.support.event_logs import Log, moment, of_one_job
from tests.support.records import read_dagdir, stats_input

NODE = "run0-train_epoch0"
HOUR = 3600.0

FAILED_UPLOAD = (
    "Error from starter on slot1_1@gpu1.example.edu:",
    "\tStarter failed to upload checkpoint\n\tCode 36 Subcode -1\n",
)
RESCHEDULED = (
    "Error from starter on slot1_1@gpu1.example.edu:",
    "\tRescheduling self-checkpoint job after checkpoint upload because reactivating the claim "
    "would have failed.\n\tCode 1025 Subcode 0\n",
)


def running() -> Log:
    return Log().submit(77, NODE, at="09:59:00").execute(77, gpus=2, at="10:00:00", site="Alpha")


def uploaded(log: Log, at: str, until: str = "") -> Log:
    return log.transfer(77, "started output", at=at).transfer(77, "finished output", at=until or at)


def hours(log: Log) -> tuple[float, float]:
    """GPU-hours: goodput, badput."""
    found = of_one_job(log).builder().status().hours
    return round(found.goodput, 3), round(found.badput, 3)


# --- stored checkpoints -----------------------------------------------------------------------


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize(
    "end",
    [
        lambda log: log.evict(77, 1022, "Job vacated by schedd", at="13:00:00"),
        lambda log: log.evict(77, None, at="13:00:00"),
        lambda log: log.hold(77, at="13:00:00"),
        lambda log: log.evict(77, 1, at="13:00:00").hold(77, at="13:00:00"),
        lambda log: log.evict(77, 36, at="13:00:00").hold(77, 36, at="13:00:00"),
        lambda log: log.evict(77, 1023, at="13:00:00").remove(77, at="13:00:00"),
        lambda log: log.remove(77, at="13:00:00"),
        lambda log: log.shadow_exception(77, at="13:00:00"),
        lambda log: log.disconnect(77, at="12:59:00").reconnect_failed(77, at="13:00:00"),
        lambda log: log.execute(77, at="13:00:00"),
        # ``when_to_transfer_output = ON_SUCCESS``: one that failed has no output.
        lambda log: log.terminate(77, 1, at="13:00:00"),
        lambda log: log.requeue(77, 1, at="13:00:00"),
    ],
)
def test_stored_time_is_goodput_however_it_ends(
    end: Callable[[Log], Log], interrupted: bool
) -> None:
    log = uploaded(uploaded(running(), "11:00:00"), "11:58:00", until="12:00:00")
    if interrupted:
        log.transfer(77, "started output", at="12:58:00")
    assert hours(end(log)) == (4.0, 2.0)


@pytest.mark.parametrize("reported", [True, False])
def test_successful_checkpoint_loses_no_time(reported: bool) -> None:
    log = uploaded(running(), "12:59:50", until="12:59:59")
    if reported:
        log.raw(21, 77, *RESCHEDULED, at="12:59:59")
    log.evict(77, 1025, at="13:00:00")
    assert hours(log) == (6.0, 0.0)
    (execution,) = of_one_job(log).job(77).executions
    assert (execution.kind, execution.cause) == ("goodput", None)
    assert execution.outcome == "evicted"
    assert [t.outcome for t in of_one_job(log).transfers(77)] == ["ok"]


CHECKPOINTED = (
    "\t(1) Job was checkpointed.\n\t\tUsr 0 01:02:03, Sys 0 00:00:04  -  Run Remote Usage\n"
)


@pytest.mark.parametrize(
    ("log", "good", "bad"),
    [
        (running().evict(77, 1022, at="13:00:00"), 0.0, 6.0),
        (running().raw(4, 77, "Job was evicted.", CHECKPOINTED, "13:00:00"), 6.0, 0.0),
        # The output of a failed job is not a checkpoint; a success is goodput with its uploads.
        (
            uploaded(uploaded(running(), "11:00:00"), "12:58:00", until="12:59:00").terminate(
                77, 1, at="13:00:00"
            ),
            *(2.0, 4.0),
        ),
        (
            uploaded(uploaded(running(), "11:00:00", until="11:30:00"), "13:00:00").terminate(
                77, 0, at="13:00:00"
            ),
            *(6.0, 0.0),
        ),
        # A later end of the job takes no goodput back.
        (
            uploaded(running(), "12:00:00")
            .evict(77, 1022, at="13:00:00")
            .execute(77, gpus=2, at="14:00:00")
            .terminate(77, 1, at="15:00:00"),
            *(4.0, 4.0),
        ),
    ],
)
def test_goodput_and_badput_of_histories(log: Log, good: float, bad: float) -> None:
    assert hours(log) == (good, bad)


@pytest.mark.parametrize(
    ("before", "start", "stored"),
    [
        ("", "12:40:00", 0.0),
        ("11:00:00", "12:40:00", 2.0),
        ("12:59:58", "12:59:59", 5.999),
        ("12:59:58", "", 0.0),
    ],
)
def test_transfer_of_an_eviction_stores_nothing(before: str, start: str, stored: float) -> None:
    """``when_to_transfer_output = ON_EXIT_OR_EVICT``: CommittedTime does not include it either,
    but a checkpoint before it, if it is another transfer."""
    log = uploaded(running(), before) if before else running()
    log = log.transfer(77, "started output", at=start) if start else log
    log.transfer(77, "finished output", at="12:59:59").evict(77, 1022, at="13:00:00")
    assert hours(log) == (stored, round(6.0 - stored, 3))


def test_running_execution_counts_as_running() -> None:
    log = uploaded(running(), "11:00:00").image(77, 100, at="13:00:00")
    found = of_one_job(log).builder().status().hours
    assert (found.goodput, found.badput, found.running) == (0.0, 0.0, 6.0)


# --- uploads that failed ----------------------------------------------------------------------


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("ends_as", ["reported", "evicted", "held"])
def test_failed_upload_stores_no_time(finished: bool, ends_as: str) -> None:
    log = running().transfer(77, "started output", at="11:00:00")
    if finished:
        log.transfer(77, "finished output", at="11:17:30")
    if ends_as == "reported":
        log.raw(21, 77, *FAILED_UPLOAD, at="11:17:30")
    if ends_as == "held":
        log.hold(77, 36, "Starter failed to upload checkpoint", at="11:17:38", subcode=-1)
    else:
        log.evict(77, 36 if ends_as == "evicted" else 1022, at="11:17:38")
    assert hours(log)[0] == 0.0
    (upload,) = of_one_job(log).transfers(77)
    assert upload.outcome == "failed"
    assert upload.seconds is not None
    assert 1050 <= upload.seconds <= 1058


@pytest.mark.parametrize("evicted", [True, False])
def test_output_transfer_that_the_hold_is_about_has_failed(evicted: bool) -> None:
    """As older access points log it, without a 021."""
    log = uploaded(running(), "12:59:50", until="12:59:54")
    if evicted:
        log.evict(77, 12, "Transfer output files failure", at="13:00:00")
    log.hold(77, 12, "Transfer output files failure", at="13:00:00")
    assert hours(log) == (0.0, 6.0)
    assert [t.outcome for t in of_one_job(log).transfers(77)] == ["failed"]


def test_error_before_the_end_of_the_upload() -> None:
    log = running().transfer(77, "started output", at="11:00:00")
    log.raw(21, 77, *FAILED_UPLOAD, at="11:17:30").transfer(77, "finished output", at="11:17:35")
    assert hours(log.evict(77, 1022, at="13:00:00")) == (0.0, 6.0)
    (upload,) = of_one_job(log).transfers(77)
    assert (upload.outcome, upload.seconds) == ("failed", 1055.0)


def test_output_of_an_unlogged_end_is_not_a_checkpoint() -> None:
    """The disk was full: the job runs again, from what it had stored before."""
    log = uploaded(uploaded(running(), "11:00:00"), "12:59:50").terminate(77, at="13:00:00")
    text = "\tUserLog Unable to log ULOG_JOB_TERMINATED event\n"
    assert hours(log.raw(7, 77, "Shadow exception!", text, at="13:00:01")) == (2.0, 4.0)


def test_checkpoint_before_a_failed_one_counts() -> None:
    log = uploaded(uploaded(running(), "11:00:00"), "12:00:00")
    log.raw(21, 77, *FAILED_UPLOAD, at="12:00:00").evict(77, 36, at="12:00:10")
    good, bad = hours(log)
    assert good == 2.0
    assert bad > 2.0
    assert [t.outcome for t in of_one_job(log).transfers(77)] == ["ok", "failed"]


def test_upload_cut_by_a_disconnection_has_failed() -> None:
    log = uploaded(running(), "11:00:00").disconnect(77, at="11:00:01")
    assert hours(log.reconnect_failed(77, at="11:30:00")) == (0.0, 3.0)


def test_failed_checkpoint_is_not_successful() -> None:
    """Long before the end it may be of an earlier execution: the last upload is not logged."""
    for failed, result in (("12:59:59", (0.0, 6.0)), ("11:00:00", (6.0, 0.0))):
        log = uploaded(running(), failed).raw(21, 77, *FAILED_UPLOAD, at=failed)
        assert hours(log.evict(77, 1025, at="13:00:00")) == result


@pytest.mark.parametrize(
    "pause",
    [
        lambda log: uploaded(log, "11:00:00", until="11:05:00"),
        lambda log: log.disconnect(77, at="11:00:00").reconnect(77, at="11:05:00"),
        lambda log: log.disconnect(77, at="11:00:00").image(77, 9, at="11:05:00"),
        lambda log: log.suspend(77, at="11:00:00").resume(77, at="11:05:00"),
    ],
    ids=["upload", "reconnected", "connected by a 006", "unsuspended"],
)
def test_job_runs_since_its_execution_started(pause: Callable[[Log], Log]) -> None:
    view = of_one_job(pause(running())).builder("12:00:00").job_view(77, 0)
    assert (view.job.state.value, view.job.since) == ("running", moment("10:00:00"))
    assert view.seconds == 2 * HOUR
    assert of_one_job(pause(running())).run("run0", as_of="12:00:00").seconds == 2 * HOUR


# --- cases from reports -----------------------------------------------------------------------


def test_rescheduled_after_each_checkpoint(shared: Shared) -> None:
    builder = read_dagdir(shared("cases/checkpoint-counted-as-loss"))
    usage = usage_in_window(builder.ledger())
    totals = {site.name: site.totals for site in usage.sites}
    assert (totals["Alpha"].hours.goodput, totals["Beta"].hours.goodput) == (24, 12)
    assert usage.total.totals.hours.badput == 0
    assert {name: each.success_rate for name, each in totals.items()} == {"Alpha": 1, "Beta": 1}
    assert not usage.causes
    assert not usage.wasteful_sites
    assert not make_health(stats_input(builder)).entries


def test_rescheduled_after_each_checkpoint_and_running(shared: Shared) -> None:
    builder = read_dagdir(shared("cases/checkpoint-counted-as-loss/open"))
    assert not make_health(stats_input(builder)).entries
    for pool in usage_in_window(builder.ledger()).profiles:
        assert not pool.excluded
        assert not pool.doubtful
        assert pool.loss.value < 0.05
        assert pool.hours_per_epoch.value == pytest.approx(3.0, rel=0.02)


def test_two_failed_uploads(shared: Shared) -> None:
    builder = read_dagdir(shared("cases/failed-checkpoint-upload-is-called-ok"))
    (job,) = builder.job_rows()
    assert [(t.outcome, t.seconds) for t in job.transfers] == [("failed", 1050), ("failed", 1051)]
    assert builder.status().hours.goodput == 0
    (held,) = make_health(stats_input(builder)).open_entries
    assert "transfer_checkpoint_files" in (held.advice or "")
    assert "checkpoint_destination" in (held.advice or "")


def test_running_since_includes_uploads(shared: Shared) -> None:
    builder = read_dagdir(shared("cases/checkpoint-resets-the-time-running"))
    (job,) = builder.job_rows()
    assert job.since is not None
    assert (f"{job.since:%H:%M:%S}", builder.seconds(job.since)) == ("14:05:40", 3619)


# --- one rule for all figures -----------------------------------------------------------------


def resumed() -> Log:
    """Three hours at Alpha, two of them in a checkpoint; then an hour at Beta completes it."""
    log = uploaded(running(), "12:00:00").evict(77, 1022, "Job vacated by schedd", at="13:00:00")
    log.execute(77, gpus=1, at="14:00:00", site="Beta")
    return log.terminate(77, 0, at="15:00:00")


def test_training_time_of_an_epoch_spans_its_executions() -> None:
    builder = of_one_job(resumed()).builder()
    ledger = builder.ledger()
    (epoch,) = ledger.epochs
    assert epoch.success_seconds == epoch.longest_seconds == 3 * HOUR
    assert not epoch.hidden
    assert (epoch.hours.goodput, epoch.hours.badput) == (5, 2)
    usage = usage_in_window(ledger)
    sites = {site.name: site for site in usage.sites}
    assert sites["Beta"].epoch_seconds.median == 3 * HOUR
    assert (sites["Alpha"].totals.hours.goodput, sites["Alpha"].totals.hours.badput) == (4, 2)
    assert sites["Alpha"].totals.success_rate == 1.0
    assert sites["Alpha"].evictions == 1
    (cause,) = usage.causes
    assert (cause.executions, cause.badput) == (1, 2)
    pools = {profile.pool.site: profile for profile in usage.profiles}
    assert pools["Beta"].hours_per_epoch.value == pytest.approx(3.0)
    assert pools["Alpha"].loss.value < 0.1
    (view,) = builder.run_view(builder.find_runs("run0")[0].key).epochs  # type: ignore[union-attr]
    assert view.trained_on is None


@pytest.mark.parametrize("edge", ["11:00:00", "12:00:00", "12:30:00", "13:30:00"])
def test_windows_share_stored_time(edge: str) -> None:
    ledger = of_one_job(resumed()).builder().ledger()
    windows = TimeWindow(until=moment(edge)), TimeWindow(since=moment(edge))
    totals = [usage_in_window(ledger, window).total.totals for window in windows]
    assert sum(each.hours.goodput for each in totals) == 5
    assert sum(each.hours.badput for each in totals) == 2
    stored = min(moment(edge), moment("12:00:00")) - moment("10:00:00")
    assert totals[0].hours.goodput == 2 * stored / timedelta(hours=1)


def test_timeline_shows_time_lost_after_the_checkpoint() -> None:
    (lane,) = build_timeline(of_one_job(resumed()).builder().ledger()).lanes
    kinds = {span.start: span_symbol(span) for span in lane.spans}
    assert kinds[moment("10:00:00")] is GOODPUT
    assert kinds[moment("12:00:00")] is BADPUT
    assert kinds[moment("14:00:00")] is GOODPUT
