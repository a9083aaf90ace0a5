"""When the queue is queried, what follows from its answer, and how a feed shows it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import DagState, State
from metlmon.pool import poller
from metlmon.pool.types import QueueJob, ScheddInfo
from metlmon.snapshot.records import LogRow, Progress, Snapshot
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.patience import PATIENCE
from tests.support.queue_rows import DAGDIR, WHERE, Logs, Schedd, dag, dagman, job, picture, row
from tests.support.recordings import opened
from tests.support.watched_session import WatchedSession


def asked(schedd: Schedd) -> list[tuple[object, ...]]:
    """The clusters of DAGMans and of jobs in each query."""
    return [what[1:] for what in schedd.asked if what[0] == "query"]


def asker(logs: Logs, schedd: Schedd) -> tuple[poller.QueuePoller, SimpleNamespace]:
    clock = SimpleNamespace(now=1000.0)
    return poller.QueuePoller(logs, schedd, lambda: clock.now), clock  # type: ignore[arg-type]


# --- when ---------------------------------------------------------------------------------


def test_pauses_double_and_are_reset_by_an_answer() -> None:
    schedd = Schedd(job(1))
    schedd.down = "the schedd does not answer"
    queue, clock = asker(Logs(row(1)), schedd)
    pauses = [(queue.query().next_try or 0) - clock.now for _ in range(7)]
    assert pauses == [60, 120, 240, 480, 600, 600, 600]
    assert max(pauses) == poller.LONGEST_PAUSE
    clock.now += poller.LONGEST_PAUSE - 1
    assert not queue.is_due()
    clock.now += 1
    assert queue.is_due()
    assert (queue.snapshot.error, queue.snapshot.is_pending) == (schedd.down, False)
    schedd.down = None
    assert queue.query().error is None
    clock.now += poller.QUERY_SECONDS
    assert queue.is_due()


@pytest.mark.parametrize(
    ("logs", "schedd", "seconds", "due"),
    [
        # The queue is empty.
        (Logs(row(1, State.COMPLETED), dags=[dag(DagState.DONE)]), Schedd(), 10_000, False),
        # At most every half minute.
        (Logs(row(1), dags=[dag()]), Schedd(job(1), dagman()), poller.QUERY_SECONDS - 0.1, False),
        (Logs(row(1), dags=[dag()]), Schedd(job(1), dagman()), poller.QUERY_SECONDS, True),
        # A DAG that runs, without jobs.
        (Logs(dags=[dag()]), Schedd(dagman()), poller.QUERY_SECONDS, True),
        # A schedd without our jobs is queried ever more rarely.
        (Logs(row(1)), Schedd(), poller.QUERY_SECONDS, False),
        (Logs(row(1)), Schedd(), 2 * poller.QUERY_SECONDS, True),
    ],
)
def test_interval_of_queries(logs: Logs, schedd: Schedd, seconds: float, due: bool) -> None:
    queue, clock = asker(logs, schedd)
    queue.query()
    clock.now += seconds
    assert queue.is_due() is due


def test_no_query_before_the_logs_are_read() -> None:
    class Reading(Logs):
        done = 1

        @property
        def latest(self) -> Snapshot | None:
            return Snapshot(picture(self.dags), Progress(self.done, 2))

    logs = Reading(row(1))
    queue, _ = asker(logs, Schedd(job(1)))
    assert not queue.is_due()
    logs.done = 2
    assert queue.is_due()


def test_unforeseen_error_is_reported() -> None:
    class Odd(Schedd):
        def where(self) -> ScheddInfo:
            raise ZeroDivisionError("odd")

    queue, _ = asker(Logs(row(1)), Odd())
    queue.start(lambda: None)
    deadline = time.monotonic() + PATIENCE
    while queue.snapshot.error is None and time.monotonic() < deadline:
        time.sleep(0.01)
    queue.stop()
    assert queue.snapshot.error.startswith("asking failed: ZeroDivisionError: odd (test_asking.py:")
    assert queue.snapshot.error.endswith("; please report this")


# --- contents -----------------------------------------------------------------------------


def test_positions_are_by_priority_then_age() -> None:
    jobs = [job(1, at=10), job(2, at=5), job(3, priority=7, at=50), job(4, 2), job(5, at=5)]
    word = poller.match_jobs(WHERE, 1.0, jobs, {}, [], DAGDIR, ["metl.log"])
    assert {each.cluster: each.position for each in word.jobs} == {3: 1, 2: 2, 5: 3, 1: 4, 4: None}
    assert {each.waiting for each in word.jobs} == {4}


def test_jobs_of_other_directories_are_excluded() -> None:
    rows = {(1, 0): row(1), (2, 0): row(2)}
    jobs = [job(1), job(2, directory="/home/ben"), job(3, directory="/home/ben")]
    word = poller.match_jobs(WHERE, 1.0, jobs, rows, [], DAGDIR, ["metl.log"])
    assert [each.cluster for each in word.jobs] == [1]
    assert word.foreign_jobs == ((2, 0),)


@pytest.mark.parametrize(("place", "dagmans"), [(DAGDIR, [9]), (Path("/home/ben/ens"), [])])
def test_dagmans_job_is_separate(place: Path, dagmans: list[int]) -> None:
    jobs = [dagman(directory=place), job(1)]
    word = poller.match_jobs(WHERE, 1.0, jobs, {}, [dag()], DAGDIR, ["metl.log"])
    assert [each.cluster for each in word.jobs] == [1]
    assert [each.cluster for each in word.dagmans] == dagmans
    assert word.foreign_jobs == (() if dagmans else ((9, 0),))


def test_jobs_of_a_dagman_are_queried_by_its_id_others_by_theirs() -> None:
    schedd = Schedd(dagman(), *(job(n) for n in range(100, 1100)))
    queue, _ = asker(Logs(*(row(n) for n in range(100, 1100)), dags=[dag()]), schedd)
    assert len(queue.query().jobs) == 1000
    assert asked(schedd) == [({9}, {9})]
    schedd = Schedd(dagman(), job(1), job(2, dagman=None))
    queue, _ = asker(Logs(row(1), row(2), row(3), dags=[dag()]), schedd)
    assert [each.cluster for each in queue.query().jobs] == [1, 2]
    assert asked(schedd) == [({9}, {9}), (set(), {2, 3})]


def test_jobs_of_a_nested_dagman_are_queried() -> None:
    below = replace(dagman(20, "inner.dag"), node="sub", dagman=None)
    schedd, logs = Schedd(below, job(21, dagman=20)), Logs(row(20, node="sub"))
    logs.logs += (LogRow("inner.dag.dagman.log", 0, 0, None, None),)
    queue, _ = asker(logs, schedd)
    assert [each.cluster for each in queue.query().jobs] == [20, 21]
    assert asked(schedd) == [(set(), {20}), ({20}, set())]


# --- shown --------------------------------------------------------------------------------


def test_only_lasting_differences_are_warnings() -> None:
    logs, schedd = Logs(row(1, State.RUNNING), dags=[dag()]), Schedd(job(1, 5), dagman())
    queue, clock = asker(logs, schedd)
    feed = poller.QueueFeed(logs, queue)
    queue.query()
    assert feed.latest.status.warnings == ()
    clock.now += poller.SOON_SECONDS
    queue.query()
    assert feed.latest.status.warnings == (), "two answers soon after one another prove nothing"
    clock.now += poller.QUERY_SECONDS
    queue.query()
    (warning,) = feed.latest.status.warnings
    assert warning.kind == "queue-differs"
    view = feed.job_view(1, 0)
    assert view.queue.differs == "held"
    schedd.down = "gone"
    queue.query()
    assert queue.lasting_discrepancies == (), "a schedd that went away warns of nothing"


def test_logs_of_another_machine_give_no_warning() -> None:
    logs = Logs(row(1, State.RUNNING), dags=[dag()])
    queue, clock = asker(logs, Schedd())
    for _ in range(3):
        queue.query()
        clock.now += poller.QUERY_SECONDS
    assert queue.lasting_discrepancies == ()


def test_jobs_missing_from_the_queue_are_a_warning() -> None:
    logs, schedd = Logs(row(1, State.RUNNING), dags=[dag()]), Schedd(job(1, 2), dagman())
    queue, clock = asker(logs, schedd)
    queue.query()
    del schedd.jobs[1, 0]
    for _ in range(2):
        clock.now += poller.QUERY_SECONDS
        queue.query()
    (found,) = queue.lasting_discrepancies
    assert (found.job, found.state, found.queue_state) == (
        (1, 0),
        State.RUNNING,
        "not in the queue",
    )
    view = poller.QueueFeed(logs, queue).job_view(1, 0)
    assert view.queue.differs == "not in the queue"


# --- a schedd that falls silent -----------------------------------------------------------


def silent(logs: Logs, schedd: Schedd) -> tuple[poller.QueuePoller, SimpleNamespace]:
    """A schedd that had our jobs and then stopped answering."""
    queue, clock = asker(logs, schedd)
    queue.query()
    clock.now += poller.QUERY_SECONDS
    schedd.down = "the schedd does not answer"
    queue.query()
    return queue, clock


def test_silent_schedd_is_reported_until_it_answers() -> None:
    logs, schedd = Logs(row(1, State.RUNNING), dags=[dag()]), Schedd(job(1, 2), dagman())
    queue, clock = silent(logs, schedd)
    feed = poller.QueueFeed(logs, queue)
    assert feed.latest is not None
    since = time.strftime("%H:%M:%S", time.localtime(clock.now - poller.QUERY_SECONDS))
    assert f"no answer from the schedd since {since}" in (feed.latest.error or "")
    schedd.down = None
    queue.query()
    assert feed.latest.error is None


@pytest.mark.parametrize(("live", "jobs"), [(False, [job(1, 2), dagman()]), (True, [])])
def test_ended_or_foreign_ensemble_needs_no_schedd(live: bool, jobs: list[QueueJob]) -> None:
    logs = Logs(row(1, State.RUNNING), dags=[dag()])
    queue, _ = silent(logs, Schedd(*jobs))
    logs.live = live
    shown = poller.QueueFeed(logs, queue).latest
    assert shown.error is None


def test_session_started_during_a_silence_queries_on_new_events() -> None:
    logs, schedd = Logs(row(1, State.RUNNING), dags=[dag()]), Schedd(job(1, 2), dagman())
    queue, clock = asker(logs, schedd)
    schedd.down = "no schedd is known here"
    queue.query()
    clock.now += poller.QUERY_SECONDS
    assert not queue.is_due()
    logs.logs = (LogRow("metl.log", 100, 3, None, None),)
    assert queue.is_due()
    assert queue.silence_warning is None, "there may be none here at all"


def test_start_and_end_of_a_silence_are_shown_at_once() -> None:
    logs, schedd = Logs(row(1, State.RUNNING), dags=[dag()]), Schedd(job(1, 2), dagman())
    queue, clock = asker(logs, schedd)
    queue.query()
    schedd.down = "the schedd does not answer"
    clock.now += poller.QUERY_SECONDS
    feed = poller.QueueFeed(logs, queue)
    result, pictures = threading.Event(), []

    def notify(update: Snapshot) -> None:
        pictures.append(update)
        result.set()

    feed.start(notify)
    assert result.wait(PATIENCE)
    result.clear()
    schedd.down = None
    clock.now += poller.LONGEST_PAUSE
    assert result.wait(PATIENCE)
    feed.stop()
    assert [picture.error is None for picture in pictures] == [False, True]
    assert not any(thread.name == "metlmon-queue" for thread in threading.enumerate())


# --- live by the queue ------------------------------------------------------------------------


@pytest.fixture(name="months_old")
def _months_old(tmp_path: Path) -> Path:
    """A dagdir whose logs are months old, a job in the queue by them."""
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", Log().submit(77, NODE).data)
    return dagdir.path


def test_old_logs_are_live_if_the_queue_has_their_jobs(months_old: Path) -> None:
    watched = WatchedSession(DagdirReader(months_old))
    watched.begin()
    try:
        assert not watched.until(lambda update: bool(update.status.logs)).status.live
        watched.session.set_in_queue(True)
        watched.until(lambda update: update.status.live)
        watched.session.set_in_queue(False)
        watched.until(lambda update: not update.status.live)
    finally:
        watched.session.stop()


def test_option_not_live_overrides_the_queue(months_old: Path) -> None:
    reader = opened(months_old)
    reader.in_queue = True
    assert not reader.live()
