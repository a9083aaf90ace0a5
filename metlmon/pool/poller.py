"""Polls the schedd in a thread, and adds the results to the snapshots of a feed."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from metlmon.errors import describe_error
from metlmon.live.feed import Feed
from metlmon.model.model_state import Notice
from metlmon.model.states import ALIVE
from metlmon.pool.annex_poller import AnnexPoller
from metlmon.pool.connection import PoolConnection
from metlmon.pool.protocol import SCHEDULER_UNIVERSE
from metlmon.pool.queue_checks import (
    DEEPEST,
    GONE,
    IDLE,
    JobId,
    Ownership,
    QueueDiscrepancy,
    differences,
    discrepancy_text,
    is_dagman_of,
)
from metlmon.pool.types import (
    LONGEST_PAUSE,
    QUERY_SECONDS,
    PoolError,
    QueueJob,
    QueueSnapshot,
    ScheddInfo,
)
from metlmon.snapshot.records import DagRow, Job, JobView, Snapshot

SOON_SECONDS: Final = 2.0
"""Pause after an action: the schedd takes about that long to show its effect."""

LOOK_SECONDS: Final = 1.0
"""How often the thread checks whether a query is due."""

DAY_SECONDS: Final = 86400.0


class QueuePoller:
    """Queries the schedd for the jobs of ``feed``'s ensemble.

    Queries run in a thread between :meth:`start` and :meth:`stop`, and in the caller's thread in
    :meth:`query`, which blocks.
    """

    def __init__(
        self, feed: Feed, connection: PoolConnection, now: Callable[[], float] = time.time
    ) -> None:
        self._feed = feed
        self._connection = connection
        self._now = now
        self._snapshot = QueueSnapshot(is_pending=True)
        self._schedd_info: ScheddInfo | None = None
        self._discrepancies: dict[JobId, QueueDiscrepancy] = {}
        self._has_our_jobs = False
        self._pause = QUERY_SECONDS
        self._next_query = self._last_query = 0.0
        self._has_live_jobs = False
        self._checked_snapshot: Snapshot | None = None
        self._is_wanted = False
        self._event_count = 0
        self._query_lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def snapshot(self) -> QueueSnapshot:
        """The latest queue snapshot."""
        return self._snapshot

    @property
    def discrepancies(self) -> tuple[QueueDiscrepancy, ...]:
        """Discrepancies between queue and logs in the last query.

        They may be transient: logs and queue are read at different moments.
        """
        return tuple(self._discrepancies.values()) if self._snapshot.error is None else ()

    @property
    def lasting_discrepancies(self) -> tuple[QueueDiscrepancy, ...]:
        """Discrepancies between queue and logs that persist."""
        snapshot = self._snapshot
        if snapshot.queried_at is None or snapshot.error is not None:
            return ()
        latest = snapshot.queried_at - QUERY_SECONDS
        return tuple(item for item in self._discrepancies.values() if item.first <= latest)

    @property
    def silence_warning(self) -> str | None:
        """A warning that the schedd, which had our jobs, does not respond; else None."""
        snapshot = self._snapshot
        if not self._has_our_jobs or snapshot.error is None or snapshot.queried_at is None:
            return None
        over_a_day = self._now() - snapshot.queried_at > DAY_SECONDS
        since = time.strftime(
            "%m-%d %H:%M" if over_a_day else "%H:%M:%S", time.localtime(snapshot.queried_at)
        )
        return f"no answer from the schedd since {since} (asked again; the logs are read on)"

    # --- the thread ---------------------------------------------------------------------

    def start(self, on_query: Callable[[], None]) -> None:
        """Start polling; ``on_query`` is called in the thread after every query."""
        self._thread = threading.Thread(
            target=self._run, args=(on_query,), name="metlmon-queue", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; give up after a second if the schedd blocks it."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def query_soon(self) -> None:
        """Query again soon, after an action on the jobs."""
        self._next_query = min(self._next_query, self._now() + SOON_SECONDS)
        self._wake.set()

    def _run(self, on_query: Callable[[], None]) -> None:
        while not self._stop.is_set():
            self._wake.wait(LOOK_SECONDS)
            self._wake.clear()
            try:
                if not self._stop.is_set() and self.is_due():
                    self.query()
                    if not self._stop.is_set():
                        on_query()
            except Exception as error:  # An uncaught one would be printed on the screen.
                self._record_failure(describe_error("asking failed", error))

    def is_due(self) -> bool:
        """Whether a query is due: only while by the logs jobs are queued or a DAG runs."""
        latest = self._feed.latest
        if latest is None or latest.progress.done < latest.progress.total:
            return False
        if self._snapshot.is_pending:
            # Always query once, for our user name and whether the schedd responds.
            return True
        if self._snapshot.error is not None and _count_events(latest) != self._event_count:
            # New events: the schedd or one of its shadows is up again.
            self._next_query = min(self._next_query, self._last_query + QUERY_SECONDS)
        idle = not self._has_live_jobs and self._snapshot.error is None
        if self._now() < (self._last_query + SOON_SECONDS if idle else self._next_query):
            return False
        if latest is not self._checked_snapshot:
            # Scanning all jobs is expensive: once per snapshot.
            self._checked_snapshot = latest
            is_any_alive = any(dag.state in ALIVE for dag in latest.status.dags)
            self._is_wanted = is_any_alive or bool(self._feed.queued_jobs())
        return self._is_wanted

    # --- queries ------------------------------------------------------------------------

    def query(self) -> QueueSnapshot:
        """Query now and wait for the result, which may be a snapshot with an error."""
        with self._query_lock:
            rows = {(row.cluster, row.proc): row for row in self._feed.queued_jobs()}
            latest = self._feed.latest
            dags = list(latest.status.dags) if latest is not None else []
            logs = [log.file for log in latest.status.logs] if latest is not None else []
            self._last_query = self._now()
            try:
                self._schedd_info = info = self._schedd_info or self._connection.where()
                jobs = self._query_jobs(rows, dags)
            except PoolError as error:
                self._record_failure(str(error))
                return self._snapshot
            queried_at = self._now()
            snapshot = match_jobs(info, queried_at, jobs, rows, dags, self._feed.dagdir, logs)
            self._store(snapshot, rows, dags)
            return self._snapshot

    def _record_failure(self, error: str) -> None:
        """Keep the last snapshot, with the reason why no newer one exists."""
        self._schedd_info = None
        latest = self._feed.latest
        self._event_count = 0 if latest is None else _count_events(latest)
        self._schedule(useful=False)
        self._snapshot = replace(
            self._snapshot, error=error, is_pending=False, next_try=self._next_query
        )

    def _schedule(self, useful: bool) -> None:
        """Set the time of the next query.

        The pause doubles after a query that was not ``useful``: it failed or had none of our jobs.
        """
        self._pause = QUERY_SECONDS if useful else min(LONGEST_PAUSE, self._pause * 2)
        self._next_query = self._now() + self._pause

    def _query_jobs(self, rows: Mapping[JobId, Job], dags: Sequence[DagRow]) -> list[QueueJob]:
        """All jobs of our DAGMans, then those of our clusters not among them.

        The latter have an unknown DAGMan: that of a sub-DAG, or one without a log.
        """
        dagmans = {dag.cluster for dag in dags if dag.cluster and dag.state in ALIVE}
        clusters = {cluster for cluster, _ in rows}
        # DAGMan's id covers most jobs; querying thousands of ids takes dozens of queries.
        queried_clusters = set(dagmans)
        jobs: dict[JobId, QueueJob] = {}
        queried: set[int] = set()
        for _ in range(DEEPEST):
            if not dagmans:
                queried_clusters, clusters = clusters - {cluster for cluster, _ in jobs}, set()
                if not queried_clusters:
                    break
            batch = self._connection.query(dagmans, queried_clusters)
            jobs.update({(job.cluster, job.proc): job for job in batch})
            queried |= dagmans
            sub_dagmans = {job.cluster for job in batch if job.universe == SCHEDULER_UNIVERSE}
            dagmans, queried_clusters = sub_dagmans - queried, set()
        return list(jobs.values())

    def _store(
        self, snapshot: QueueSnapshot, rows: Mapping[JobId, Job], dags: Sequence[DagRow]
    ) -> None:
        """Store a snapshot, update the discrepancies, and schedule the next query."""
        has_jobs = bool(snapshot.jobs or snapshot.dagmans)
        # Logs of another machine differ from this queue entirely: do not warn about that.
        self._has_our_jobs |= has_jobs
        log_rows = dict(rows)
        for job in snapshot.jobs:
            key = (job.cluster, job.proc)
            if key not in log_rows:
                view = self._feed.job_view(*key)
                if view is not None:
                    log_rows[key] = view.job
        self._discrepancies = (
            differences(snapshot, log_rows, self._discrepancies) if self._has_our_jobs else {}
        )
        self._has_live_jobs = bool(rows) or any(dag.state in ALIVE for dag in dags)
        self._schedule(useful=has_jobs or not rows)
        self._snapshot = snapshot
        self._feed.set_in_queue(has_jobs)


def _count_events(latest: Snapshot) -> int:
    return sum(log.events for log in latest.status.logs)


def match_jobs(
    info: ScheddInfo,
    queried_at: float,
    jobs: Iterable[QueueJob],
    rows: Mapping[JobId, Job],
    dags: Sequence[DagRow],
    dagdir: Path,
    logs: Iterable[str],
) -> QueueSnapshot:
    """The result of a query as a snapshot. Pure.

    Selects the jobs that are ours and ranks the idle ones. ``rows``: the jobs queued according to
    the logs; ``logs``: the logs that were read.
    """
    jobs = list(jobs)
    first_procs = {job.cluster: job for job in jobs if job.proc == 0}
    ownership = Ownership(dagdir, dags, logs, first_procs.get)
    files = {dag.cluster: dagdir / dag.file for dag in dags if dag.cluster is not None}
    ours: list[QueueJob] = []
    dagmans: list[QueueJob] = []
    foreign: list[QueueJob] = []
    for job in jobs:
        key = (job.cluster, job.proc)
        row = rows.get(key)
        if row is None and job.cluster in files:
            (dagmans if is_dagman_of(job, files[job.cluster]) else foreign).append(job)
        elif ownership.includes(job, row.node_name if row is not None else None):
            ours.append(job)
        elif row is not None:
            foreign.append(job)
    idle = sorted(
        (job for job in ours if job.status == IDLE),
        key=lambda job: (-job.priority, job.submitted_at or 0, job.cluster, job.proc),
    )
    positions = {(job.cluster, job.proc): rank for rank, job in enumerate(idle, start=1)}
    return QueueSnapshot(
        schedd=info.schedd,
        version=info.version,
        user=info.user or None,
        queried_at=queried_at,
        jobs=tuple(
            replace(job, position=positions.get((job.cluster, job.proc)), waiting=len(idle))
            for job in sorted(ours, key=lambda job: (job.cluster, job.proc))
        ),
        dagmans=tuple(dagmans),
        foreign_jobs=tuple(sorted((job.cluster, job.proc) for job in foreign)),
    )


# --- the feed -----------------------------------------------------------------------------


class QueueFeed:
    """A :class:`metlmon.live.feed.Feed` that adds queue data to the snapshots.

    Starts and stops both the feed and the poller; everything else is the feed's. A historical feed
    has no queue data: the queue has no history.
    """

    def __init__(self, feed: Feed, poller: QueuePoller, annexes: AnnexPoller | None = None) -> None:
        self._feed = feed
        self._poller = poller
        self._annexes = annexes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    @property
    def latest(self) -> Snapshot | None:
        snapshot = self._feed.latest
        return self._with_warnings(snapshot) if snapshot is not None else None

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Start reading and polling; ``notify`` is called in any of the threads."""
        shown: tuple[object, ...] = ((), None)

        def on_query() -> None:
            nonlocal shown
            if self._annexes is not None:
                self._annexes.follow_queue()
            current = notices(self._poller.lasting_discrepancies), self._poller.silence_warning
            latest = self.latest
            if latest is not None and current != shown:
                shown = current
                notify(latest)

        def on_answer() -> None:
            latest = self.latest
            if self._annexes is not None:
                self._feed.set_annex_ends(self._annexes.answer.ends)
            if latest is not None:
                notify(latest)

        self._feed.start(lambda snapshot: notify(self._with_warnings(snapshot)))
        if self._annexes is not None:
            self._annexes.start(on_answer)
        self._poller.start(on_query)

    def stop(self) -> None:
        """Stop reading and polling."""
        if self._annexes is not None:
            self._annexes.stop()
        self._poller.stop()
        self._feed.stop()

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        view = self._feed.job_view(cluster, proc)
        queried_at = self._poller.snapshot.queried_at
        if view is None or queried_at is None:
            return view
        return replace(view, queue=self._queued(cluster, proc), queried_at=queried_at)

    def _with_warnings(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the queue's warnings added."""
        warnings = notices(self._poller.lasting_discrepancies)
        if warnings:
            status = replace(snapshot.status, warnings=(*snapshot.status.warnings, *warnings))
            snapshot = replace(snapshot, status=status)
        # An ended ensemble is no longer polled.
        silence = self._poller.silence_warning if snapshot.status.live else None
        return replace(snapshot, error=silence) if silence and snapshot.error is None else snapshot

    def queue(self) -> QueueSnapshot:
        """The queue as of the last query."""
        return self._poller.snapshot

    def _queued(self, cluster: int, proc: int) -> QueueJob | None:
        """The job in the queue, with its lasting discrepancy from the logs, if any."""
        lasting = self._poller.lasting_discrepancies
        differs = next((d.queue_state for d in lasting if d.job == (cluster, proc)), None)
        job = self._poller.snapshot.job(cluster, proc)
        if differs is None:
            return job
        return replace(job or QueueJob(cluster, proc, GONE), differs=differs)


def notices(discrepancies: Iterable[QueueDiscrepancy]) -> tuple[Notice, ...]:
    """One warning for each group of jobs with the same discrepancy."""
    groups: defaultdict[tuple[object, int], list[QueueDiscrepancy]] = defaultdict(list)
    for item in discrepancies:
        groups[(item.state, item.status)].append(item)
    texts = map(discrepancy_text, groups.values())
    return tuple(Notice("queue-differs", None, None, text) for text in texts)
