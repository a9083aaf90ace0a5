"""The state of a job after each event, and the result of its executions (``metlmon/README.md``,
"Job state, from events" and "GPU-hours")."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.config.settings import Settings
from metlmon.eventlog.events import Event
from metlmon.eventlog.reader import parse
from metlmon.model.job_events import LoggedJob, RecentJobs, Stream
from metlmon.model.states import Outcome, State
from metlmon.stats.totals import break_down
from metlmon.text import spans
from screens.job import build_sections
from tests.support.event_logs import Log, moment, of_one_job
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir

USAGE = FIXTURES / "usage"

NODE = "run0-train_epoch0"


def submitted() -> Log:
    return Log().submit(77, NODE)


def running() -> Log:
    return submitted().execute(77, gpus=2)


def state(log: Log) -> State:
    return of_one_job(log).job(77).state


# --- the rows of the table ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (submitted(), State.IDLE),
        (submitted().transfer(77, "queued input"), State.TRANSFERRING_INPUT),
        (submitted().transfer(77, "started input"), State.TRANSFERRING_INPUT),
        (submitted().transfer(77, "started input").transfer(77, "finished input"), State.STARTING),
        (running(), State.RUNNING),
        (running().transfer(77, "started output"), State.TRANSFERRING_OUTPUT),
        (running().transfer(77, "started output").transfer(77, "finished output"), State.RUNNING),
        (running().suspend(77), State.SUSPENDED),
        (running().suspend(77).resume(77), State.RUNNING),
        (running().disconnect(77), State.DISCONNECTED),
        (running().disconnect(77).reconnect(77), State.RUNNING),
        (running().disconnect(77).reconnect_failed(77), State.IDLE),
        (running().evict(77), State.IDLE),
        (running().shadow_exception(77), State.IDLE),
        (running().hold(77), State.HELD),
        (running().hold(77).release(77), State.IDLE),
        (running().terminate(77, 0), State.COMPLETED),
        (running().terminate(77, 3), State.FAILED),
        (running().killed(77, 9), State.FAILED),
        (running().requeue(77, 1), State.IDLE),
        (running().remove(77), State.REMOVED),
        (submitted().remove(77), State.REMOVED),
        (submitted().hold(77), State.HELD),
        # A release of a job that is not held, and an eviction of one that is.
        (running().release(77), State.RUNNING),
        (running().hold(77, at="12:00:00").evict(77, at="12:00:00"), State.HELD),
        # Any later event shows that it is connected, no earlier one.
        (running().disconnect(77).image(77, 9), State.RUNNING),
        (running().disconnect(77).raw(21, 77, "Message from starter:", "\tx\n"), State.RUNNING),
        (running().disconnect(77).transfer(77, "started output"), State.TRANSFERRING_OUTPUT),
        (running().image(77, 9).disconnect(77), State.DISCONNECTED),
        # Without its 001.
        (submitted().disconnect(77), State.DISCONNECTED),
        (submitted().disconnect(77).reconnect(77), State.RUNNING),
        (submitted().reconnect(77), State.RUNNING),
        (submitted().suspend(77), State.SUSPENDED),
        (submitted().suspend(77).resume(77), State.RUNNING),
        (submitted().hold(77).disconnect(77), State.HELD),
    ],
)
def test_state_after_an_event(log: Log, expected: State) -> None:
    assert state(log) is expected


@pytest.mark.parametrize(
    ("number", "text", "body"),
    [
        (6, "Image size of job updated: 6804", "\t5  -  MemoryUsage of job (MB)\n"),
        (8, "epoch=12 loss=0.113", ""),
        (21, "Error from starter on slot1_1@gpu01:", "\tSTARTER failed to send file(s)\n"),
        (28, "Job ad information event triggered.", 'Proc = 0\nJobStatus = 5\nMyType = "x"\n'),
        (33, "Changing job attribute JobPrio from 0 to 5", ""),
        (52, "An event of next year's HTCondor", "\tJob was held.\n"),
    ],
)
@pytest.mark.parametrize("before", [submitted, running], ids=["idle", "running"])
def test_other_events_keep_the_state(before: type[Log], number: int, text: str, body: str) -> None:
    quiet, spoken = before(), before().raw(number, 77, text, body)
    result = of_one_job(spoken)
    assert result.job(77).state is state(quiet)
    assert result.executions(77) == of_one_job(quiet).executions(77)
    if number != 6:
        view = result.builder().job_view(77, 0)
        assert view.events[-1].number == number


def test_job_first_seen_in_mid_life() -> None:
    log = Log().execute(77).remove(78)
    result = of_one_job(log)
    assert result.job(77).state is State.RUNNING
    assert result.job(77).submitted is None
    assert result.job(78).state is State.REMOVED


def test_since_is_the_start_of_the_state() -> None:
    log = submitted().execute(77, at="11:00:00").image(77, 5, at="15:00:00")
    result = of_one_job(log)
    view = result.builder().job_view(77, 0)
    assert (view.job.since, view.seconds) == (moment("11:00:00"), 4 * 3600)


@pytest.mark.parametrize(
    ("log", "stays"),
    [
        (running().terminate(77, 0), State.COMPLETED),
        (running().terminate(77, 1), State.FAILED),
        (running().remove(77), State.REMOVED),
    ],
)
def test_terminal_states_are_final(log: Log, stays: State) -> None:
    log.evict(77).hold(77).release(77).execute(77).terminate(77, 0).remove(77).submit(77, NODE)
    result = of_one_job(log)
    assert result.job(77).state is stays
    assert len(result.job(77).executions) == 1


# --- executions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "outcome"),
    [
        (running().terminate(77, 0), "good"),
        (running().terminate(77, 1), "failed"),
        (running().killed(77, 11), "failed"),
        (running().evict(77), "evicted"),
        (running().hold(77), "held"),
        (running().remove(77), "removed"),
        (running().shadow_exception(77), "shadow-exception"),
        (running().disconnect(77).reconnect_failed(77), "reconnect-failed"),
        (running(), "in-flight"),
    ],
)
def test_first_ending_event_decides_the_outcome(log: Log, outcome: str) -> None:
    ended = log.clock
    result = of_one_job(log)
    assert result.executions(77) == [outcome]
    last = result.last_execution(77)
    assert last.start == moment("10:02:00")
    assert last.end == (None if outcome == "in-flight" else ended)


def test_end_of_an_execution_has_its_details() -> None:
    failed = of_one_job(running().terminate(77, 3)).last_execution(77)
    assert (failed.return_value, failed.signal) == (3, None)
    requeued = of_one_job(running().requeue(77, 1)).last_execution(77)
    assert (requeued.outcome, requeued.return_value) == (Outcome.FAILED, 1)
    killed = of_one_job(running().killed(77, 9)).last_execution(77)
    assert (killed.return_value, killed.signal) == (None, 9)
    evicted = of_one_job(running().evict(77, 1014, "draining")).last_execution(77)
    assert (evicted.code, evicted.subcode, evicted.reason) == (1014, 0, "draining")
    held = of_one_job(running().hold(77, 34, "memory exceeded", subcode=102)).last_execution(77)
    assert (held.code, held.subcode, held.reason) == (34, 102, "memory exceeded")


def test_hold_explains_the_eviction_it_caused() -> None:
    log = submitted().execute(77, at="10:00:00").evict(77, None, at="11:00:00")
    log.hold(77, 34, "memory usage exceeded request_memory", at="11:00:00", subcode=102)
    last = of_one_job(log).last_execution(77)
    assert (last.outcome, last.code, last.subcode) == (Outcome.EVICTED, 34, 102)
    assert last.reason == "memory usage exceeded request_memory"


def test_eviction_without_an_execute_is_not_an_execution() -> None:
    """Its input transfer failed: code 1007 or 13."""
    log = submitted().transfer(77, "started input").transfer(77, "finished input")
    result = of_one_job(log.evict(77, 1007, "Transfer input files failure"))
    assert result.executions(77) == []
    assert result.job(77).state is State.IDLE
    assert result.builder().status().hours.total == 0


@pytest.mark.parametrize(
    ("begun", "gpus", "gpu_hours"),
    [
        (submitted().execute(77, gpus=None), 0, 0.0),
        (submitted().execute(77, bare=True), None, None),
    ],
    ids=["resources and no GPU", "nothing listed"],
)
def test_execute_without_a_gpu(begun: Log, gpus: int | None, gpu_hours: float | None) -> None:
    open_ = of_one_job(begun).last_execution(77)
    ended = of_one_job(begun.terminate(77)).last_execution(77)
    assert [(each.gpus, each.gpu_hours) for each in (open_, ended)] == [(gpus, gpu_hours)] * 2


def test_suspended_job_keeps_its_gpus() -> None:
    log = submitted().execute(77, gpus=1, at="10:00:00").suspend(77, at="11:00:00")
    log.resume(77, at="11:30:00").suspend(77, at="12:00:00").terminate(77, 0, at="14:00:00")
    last = of_one_job(log).last_execution(77)
    assert last.gpu_hours == 4.0
    assert last.suspended == timedelta(hours=2, minutes=30).total_seconds()
    # A suspension without its end counts once.
    log = submitted().execute(77, gpus=1, at="10:00:00").suspend(77, at="11:00:00")
    log.suspend(77, at="12:00:00").resume(77, at="12:30:00").terminate(77, 0, at="14:00:00")
    last = of_one_job(log).last_execution(77)
    assert last.suspended == timedelta(hours=1, minutes=30).total_seconds()


def test_eviction_after_a_failed_reconnect_ends_nothing() -> None:
    log = submitted().execute(77, at="10:00:00").disconnect(77, at="11:00:00")
    log.reconnect_failed(77, at="11:40:00").evict(77, 1008, "reconnect failed", at="11:40:10")
    result = of_one_job(log)
    assert result.executions(77) == ["reconnect-failed"]
    assert result.last_execution(77).end == moment("11:40:00")
    assert result.job(77).state is State.IDLE


def out_of_reach() -> Log:
    """A job on one GPU since 10:00 that was disconnected at 11:00 and never reconnected."""
    return submitted().execute(77, at="10:00:00").disconnect(77, at="11:00:00")


@pytest.mark.parametrize(
    ("log", "outcome"),
    [
        pytest.param(out_of_reach(), "reconnect-failed", id="nothing more"),
        pytest.param(
            out_of_reach().reconnect_failed(77, at="15:00:00"), "reconnect-failed", id="too late"
        ),
        pytest.param(out_of_reach().evict(77, 1008, at="15:00:00"), "evicted", id="evicted"),
        pytest.param(
            out_of_reach().execute(77, at="15:00:00").terminate(77, at="16:00:00"),
            "reconnect-failed",
            id="runs again after a crash of the access point",
        ),
    ],
)
def test_disconnected_execution_ends_with_its_lease(log: Log, outcome: str) -> None:
    lost = of_one_job(log).job(77, as_of="20:00:00").executions[0]
    assert (lost.outcome, lost.end) == (outcome, moment("11:40:00"))
    assert lost.lost == timedelta(minutes=100).total_seconds()


def test_disconnected_execution_lasts_during_its_lease() -> None:
    result = of_one_job(out_of_reach())
    for as_of, outcome in [("11:30:00", "in-flight"), ("12:00:00", "reconnect-failed")]:
        assert result.executions(77, as_of) == [outcome]
    result = of_one_job(out_of_reach().reconnect(77, at="11:39:00"))
    assert result.executions(77, "20:00:00") == ["in-flight"]


def test_checkpoint_before_a_disconnection_counts() -> None:
    log = submitted().execute(77, at="10:00:00").transfer(77, "started output", at="10:29:00")
    log.transfer(77, "finished output", at="10:30:00").disconnect(77, at="11:00:00")
    (lost,) = of_one_job(log).job(77, as_of="20:00:00").executions
    assert (lost.stored, lost.lost) == (1800, 4200)


def test_checkpoint_before_a_rerun_counts() -> None:
    """The transfers of its next execution are not this one's."""
    log = submitted().execute(77, at="10:00:00").transfer(77, "started output", at="10:29:00")
    log.transfer(77, "finished output", at="10:30:00").disconnect(77, at="11:00:00")
    log.reconnect_failed(77, at="11:40:01").transfer(77, "started input", at="11:45:00")
    log.transfer(77, "finished input", at="11:50:00").execute(77, at="11:50:00")
    lost, _ = of_one_job(log.terminate(77, at="13:00:00")).job(77).executions
    assert (lost.end, lost.checkpoint) == (moment("11:40:00"), moment("10:30:00"))


def resubmitted() -> Log:
    """The next job of a node, submitted while the first one runs by the log."""
    return running().submit(78, NODE, at="15:00:00")


def test_job_left_the_queue_before_its_successor() -> None:
    """Its end is lost with a part of the log, or the access point lost its queue."""
    log = resubmitted().execute(78, at="16:00:00").terminate(78, 0, at="17:00:00")
    result = of_one_job(log)
    job = result.job(77, as_of="20:00:00")
    assert (job.state, job.since, job.queued) == (State.UNKNOWN, moment("15:00:00"), False)
    (lost,) = job.executions
    assert (lost.end, lost.outcome, lost.uncertain) == (moment("15:00:00"), "evicted", True)
    assert result.job(78).state is State.COMPLETED


@pytest.mark.parametrize(
    ("log", "state", "outcome"),
    [
        (resubmitted().execute(78, at="16:00:00"), State.RUNNING, "in-flight"),
        (resubmitted().image(77, 9), State.RUNNING, "in-flight"),
        (resubmitted().evict(77).remove(77), State.REMOVED, "evicted"),
        (running().submit((77, 1), NODE), State.RUNNING, "in-flight"),
    ],
    ids=[
        "the next one runs, too",
        "it runs beside the next one",
        "its removal took a while",
        "a proc of the same cluster",
    ],
)
def test_possibly_queued_job_has_not_left_the_queue(log: Log, state: State, outcome: str) -> None:
    job = of_one_job(log).job(77)
    assert (job.state, job.executions[0].outcome) == (state, outcome)
    assert not job.executions[0].uncertain


def test_lost_end_is_uncertain_and_reported() -> None:
    """001, and hours later only 009: the quota was exhausted in between."""
    log = submitted().execute(77, at="10:00:00").remove(77, at="22:00:00")
    result = of_one_job(log)
    assert result.last_execution(77).uncertain
    assert [n.kind for n in result.builder().notices()] == ["log-gap"]
    notice = next(iter(result.builder().notices()))
    assert notice.file == "metl.log"
    assert notice.line == log.data.count(b"\n", 0, log.data.index(b"\n009 (")) + 2


def test_removal_of_a_reporting_execution_is_certain() -> None:
    log = submitted().execute(77, at="10:00:00").image(77, 4, at="21:59:00")
    result = of_one_job(log.remove(77, at="22:00:00"))
    assert not result.last_execution(77).uncertain
    assert not list(result.builder().notices())


def test_second_execute_ends_the_first() -> None:
    log = submitted().execute(77, at="10:00:00").execute(77, at="15:00:00").terminate(77, 0)
    result = of_one_job(log)
    assert result.executions(77) == ["evicted", "good"]
    first = result.job(77).executions[0]
    assert (first.end, first.uncertain) == (moment("15:00:00"), True)


CHECKPOINTS = Settings(checkpoint_codes=frozenset({85}))


@pytest.mark.parametrize("form", ["requeued", "terminated"])
def test_checkpoint_exit_code_makes_the_execution_good(form: str) -> None:
    def log() -> Log:
        begun = submitted().execute(77, gpus=1, at="10:00:00")
        if form == "requeued":
            return begun.requeue(77, 85, at="12:00:00")
        return begun.terminate(77, 85, at="12:00:00")

    hours = of_one_job(log(), settings=CHECKPOINTS).builder().status().hours
    assert (hours.goodput, hours.badput) == (2.0, 0.0)
    hours = of_one_job(log()).builder().status().hours
    assert (hours.goodput, hours.badput) == (0.0, 2.0)


@pytest.mark.parametrize(
    ("finished", "end", "outcome", "seconds"),
    [
        ("10:15:00", lambda log: log.execute(77, at="10:16:00"), "ok", 300),
        # "Finished" is logged of a failed transfer, too.
        ("10:12:00", lambda log: log.evict(77, 1007, at="10:12:01"), "aborted", 120),
        ("10:12:00", lambda log: log, "in-flight", 120),
        ("", lambda log: log, "in-flight", 0),
        ("", lambda log: log.evict(77, at="12:10:00"), "unfinished", 7200),
        ("", lambda log: log.hold(77, at="12:10:00"), "unfinished", 7200),
        ("", lambda log: log.remove(77, at="12:10:00"), "unfinished", 7200),
    ],
)
def test_input_transfer_has_its_outcome(
    finished: str, end: Callable[[Log], Log], outcome: str, seconds: int
) -> None:
    log = submitted().transfer(77, "started input", at="10:10:00")
    if finished:
        log.transfer(77, "finished input", at=finished)
    result = of_one_job(end(log))
    (only,) = result.transfers(77)
    assert (only.direction, only.outcome, only.seconds) == ("input", outcome, seconds)
    assert only.host == "<172.31.17.82:37055>"
    totals = break_down(result.builder().ledger()).transfers
    counts = [totals.input_ok.n, totals.input_aborted.n, totals.input_unfinished.n]
    assert counts == [outcome == each for each in ("ok", "aborted", "unfinished")]


# --- bytes and memory ---------------------------------------------------------------------


def test_bytes_are_the_larger_of_total_and_sum() -> None:
    """After a restart of the shadow the last run has 0 while the total is right; after a lost total
    the runs are."""
    log = submitted().execute(77).evict(77, sent=10, received=500).execute(77)
    log.terminate(77, 0, run=(7, 0), total=(12, 900))
    job = of_one_job(log).job(77)
    assert (job.bytes_sent, job.bytes_received) == (17, 900)


def test_bytes_of_a_failed_shadow_count() -> None:
    """HTCondor adds them to the job's total (``BaseShadow::log_except``)."""
    lost = "\tFAILED to send files\n\t3  -  Run Bytes Sent By Job\n"
    lost += "\t700  -  Run Bytes Received By Job\n"
    log = submitted().execute(77).raw(7, 77, "Shadow exception!", lost).execute(77)
    assert (of_one_job(log).job(77).bytes_sent, of_one_job(log).job(77).bytes_received) == (3, 700)
    log.terminate(77, 0, run=(7, 500), total=(10, 1200))
    job = of_one_job(log).job(77)
    assert (job.bytes_sent, job.bytes_received) == (10, 1200)
    assert [execution.bytes_received for execution in job.executions] == [700, 500]


def test_bytes_of_an_open_job_are_unknown() -> None:
    job = of_one_job(running()).job(77)
    assert job.bytes_sent is job.bytes_received is None


def test_memory_is_the_peak() -> None:
    log = running().image(77, 120_000).image(77, 90_000).image(77, 30)
    result = of_one_job(log)
    assert result.job(77).memory_mb == 120_000
    view = result.builder().job_view(77, 0)
    assert view.memory_updates == 3
    assert 6 not in [event.number for event in view.events]
    assert of_one_job(log.terminate(77)).job(77).request_memory_mb == 160_000


@pytest.mark.parametrize(
    ("label", "used", "known"),
    [
        *(("Gpus (Average)", "1.86", 1.86), ("Gpus (Average)", "nan", None)),
        *(("GPUs", "0.91", 0.91), ("GPUs", "0", 0.0), ("GPUs", "", None)),
    ],
)
def test_gpu_usage_is_known_where_measured(label: str, used: str, known: float | None) -> None:
    text = "Job terminated."
    body = "\t(1) Normal termination (return value 0)\n"
    body += "\tPartitionable Resources :    Usage  Request Allocated Assigned\n"
    body += f"\t   {label:<20} : {used:>8}        2         2\n"
    usage = of_one_job(running().raw(5, 77, text, body)).job(77).usage
    assert usage is not None
    assert (usage.gpus, usage.gpus_requested, usage.gpus_allocated) == (known, 2, 2)


def test_environment_values_are_never_kept() -> None:
    when = datetime(2026, 1, 5, 9)
    change = 'Changing job attribute Environment from "KEY=s3cret" to "KEY=0ther"'
    body = 'Environment = "KEY=s3cret"\nJobStatus = 2\nenv = "KEY=0ther"\n'
    job = LoggedJob((7, 0, 0), RECENT)
    for number, text, result in (
        (33, change, ""),
        (28, "Job ad information event triggered.", body),
    ):
        event = Event(number, 7, 0, 0, when, text, result, None, 1)
        assert job.add(event, Stream(0, "metl.log"))
    kept = repr(job.events())
    assert "s3cret" not in kept
    assert "0ther" not in kept
    assert "JobStatus = 2" in kept


@pytest.mark.parametrize(
    ("number", "text", "body", "shown"),
    [
        (36, "Cluster removed", "\tMaterialized 2 jobs from 3 items.\n", "2 jobs from 3 items"),
        (35, "Cluster submitted from host: <10.0.0.1:9>", "    a note\n", "a note"),
        (8, "a line", "\tand another\n", "and another"),
        (12, "Job was held.", "\tno more\n\tCode 1 Subcode 0\n", "no more"),
        (60, "Something new.", "\twith a reason\n", "with a reason"),
        (40, "", "\tof a new kind\n", "of a new kind"),
        (35, "Cluster submitted from host: x", "    password = hunter2hunter2\n", "password = "),
    ],
)
def test_body_of_an_event_is_shown_once(number: int, text: str, body: str, shown: str) -> None:
    view = of_one_job(running().raw(number, 77, text, body)).builder().job_view(77, 0)
    (line,) = [event.text for event in view.events if event.number == number]
    assert line.startswith(text)
    assert line.count(shown) == 1
    assert "hunter2" not in line


STEPS: tuple[Callable[[Log, str], Log], ...] = (
    lambda log, at: log.execute(77, at=at),
    lambda log, at: log.evict(77, at=at),
    lambda log, at: log.hold(77, at=at),
    lambda log, at: log.release(77, at=at),
    lambda log, at: log.disconnect(77, at=at),
    lambda log, at: log.reconnect(77, at=at),
    lambda log, at: log.image(77, 500, at=at),
    lambda log, at: log.transfer(77, "started input", at=at),
    lambda log, at: log.transfer(77, "finished input", at=at),
    lambda log, at: log.remove(77, at=at),
)


RECENT = RecentJobs()


def job_of(events: list[Event], *, follow: bool) -> LoggedJob:
    """The job of these events; ``follow``: its history is read after each."""
    job = LoggedJob((77, 0, 0), RECENT)
    for event in events:
        if event.number == 6:
            job.note_memory(event.time, 500)
        else:
            job.add(event, Stream(0, "metl.log"))
        if follow:
            job.history()
    return job


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(-90, 4000)), max_size=12))
def test_incremental_history_equals_the_whole(
    steps: list[tuple[Callable[[Log, str], Log], int]],
) -> None:
    log = submitted()
    for step, seconds in steps:
        step(log, str(log.clock + timedelta(seconds=seconds)))
    events = list(parse(log.data).events)
    assert job_of(events, follow=True).history() == job_of(events, follow=False).history()


def test_usage_is_that_of_its_own_execution() -> None:
    builder = read_dagdir(USAGE)
    uses = {}
    for job in builder.ledger().jobs:
        if len(job.executions) > 1:
            view = builder.job_view(*job.job)
            assert view is not None
            lines = [spans.text(each) for each in build_sections(view, None, (), 120).lines]
            uses[job.run] = [
                re.findall(r"[\d.]+ of \d|–", each) for each in lines if " localhost" in each
            ][:2]
            row = next(row for row in view.usage if row.name == "GPUs")
            assert row.usage == job.gpu_use
    assert uses == {
        "run2": [["1.00 of 1", "0.00 of 2"], ["–", "0.00 of 2"]],
        "run3": [["2.00 of 2", "0.25 of 2"], ["1.40 of 2", "0.00 of 2"]],
    }
