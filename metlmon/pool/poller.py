"""The queue's word: a thread that asks the schedd now and then, and a feed that shows it."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metlmon.error_text import describe_error
from metlmon.jobfiles.records import Streamed, TrainingOutput
from metlmon.live.feed import Feed, Snapshot
from metlmon.model.job_events import NodeKey
from metlmon.model.settings import Settings
from metlmon.model.states import ALIVE
from metlmon.pool.connection import PoolConnection
from metlmon.pool.discrepancies import IDLE, JobId, QueueDiscrepancy, differences, lasting
from metlmon.pool.ownership import DEEPEST, Ownership, is_dagman_of
from metlmon.pool.types import PoolError, QueueJob, QueueSnapshot, ScheddInfo
from metlmon.pool.worker import SCHEDULER_UNIVERSE
from metlmon.snapshot.dag_description import DagDescription
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.types import (
    DagRow,
    JobRow,
    JobView,
    NodeRow,
    Notice,
    ProblemGroup,
    QueueRow,
    RunView,
)

if TYPE_CHECKING:
    from metlmon.snapshot.node_tree import DagNodes

QUERY_SECONDS: Final = 30.0
"""At most so often: an access point serves many, and each query walks its whole queue."""

LONGEST_PAUSE: Final = 600.0
"""After errors, and where the schedd has none of the jobs, pauses double up to this."""

SOON_SECONDS: Final = 2.0
"""After an action: what it did takes the schedd about that long to show."""

LOOK_SECONDS: Final = 1.0
"""How often the thread sees whether there is something to ask for."""

DAY_SECONDS: Final = 86400.0

IDS_NAMED: Final = 3
"""Jobs that a warning names; it counts the others."""


@dataclass(slots=True)
class PollPace:
    """When to ask next. ``pause``: seconds after the last answer."""

    pause: float = QUERY_SECONDS

    def after(self, useful: bool) -> float:
        """The pause after an answer that was of use, or was not (an error, none of our jobs):
        then it doubles."""
        self.pause = QUERY_SECONDS if useful else min(LONGEST_PAUSE, self.pause * 2)
        return self.pause


class QueuePoller:
    """Asks the schedd for the jobs of ``feed``'s ensemble: in a thread of its own between
    :meth:`start` and :meth:`stop`, and whenever :meth:`ask` is called (which waits)."""

    def __init__(
        self, feed: Feed, connection: PoolConnection, now: Callable[[], float] = time.time
    ) -> None:
        self._feed = feed
        self._connection = connection
        self._now = now
        self._word = QueueSnapshot(asking=True)
        self._where: ScheddInfo | None = None
        self._found: dict[JobId, QueueDiscrepancy] = {}
        self._here = False
        self._pace = PollPace()
        self._next = self._asked = 0.0
        self._asked_for = False
        self._seen: Snapshot | None = None
        self._ids: frozenset[JobId] = frozenset()
        self._logged = 0
        self._asking = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def word(self) -> QueueSnapshot:
        """What the queue said last."""
        return self._word

    @property
    def differing(self) -> tuple[QueueDiscrepancy, ...]:
        """Where it said something else than the logs when it was asked last: it may be that
        they are a moment apart."""
        return tuple(self._found.values()) if self._word.error is None else ()

    @property
    def lasting(self) -> tuple[QueueDiscrepancy, ...]:
        """Where it lastingly says something else than the logs."""
        word = self._word
        if word.asked is None or word.error is not None:
            return ()
        return lasting(self._found, word.asked, QUERY_SECONDS)

    @property
    def silence(self) -> str | None:
        """That a schedd which had our jobs gives no answer any more, in a sentence; None while
        it does, and where none ever had them."""
        word = self._word
        if not self._here or word.error is None or word.asked is None:
            return None
        long_ago = self._now() - word.asked > DAY_SECONDS
        since = time.strftime("%m-%d %H:%M" if long_ago else "%H:%M:%S", time.localtime(word.asked))
        return f"no answer from the schedd since {since} (asked again; the logs are read on)"

    # --- the thread ---------------------------------------------------------------------

    def start(self, told: Callable[[], None]) -> None:
        """Begin to ask; ``told`` is called in the thread after every answer."""
        self._thread = threading.Thread(
            target=self._run, args=(told,), name="metlmon-queue", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended, or soon after while the schedd keeps it
        waiting (closing the connection ends that)."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def soon(self) -> None:
        """Ask again soon: something was done to the jobs."""
        self._next = min(self._next, self._now() + SOON_SECONDS)
        self._wake.set()

    def _run(self, told: Callable[[], None]) -> None:
        while not self._stop.is_set():
            self._wake.wait(LOOK_SECONDS)
            self._wake.clear()
            try:
                if not self._stop.is_set() and self.due():
                    self.ask()
                    if not self._stop.is_set():
                        told()
            except Exception as error:  # A thread that dies would do so on the screen.
                self._failed(describe_error("asking failed", error))

    def due(self) -> bool:
        """Is there something to ask for, and is it time? Only while jobs are in the queue by
        the logs, or a DAG runs; when the first of them appear, at once."""
        latest = self._feed.latest
        if latest is None or latest.progress.done < latest.progress.total:
            return False
        if self._word.asking:
            # Once in any case: who we are, and does anybody answer?
            return True
        if self._word.error is not None and _events(latest) != self._logged:
            # A schedd that lives again, or a shadow of its, has written that.
            self._next = min(self._next, self._asked + QUERY_SECONDS)
        idle = not self._asked_for and self._word.error is None
        if self._now() < (self._asked + SOON_SECONDS if idle else self._next):
            return False
        if latest is not self._seen:
            # Going through all jobs costs: once for each picture is enough.
            self._seen, self._ids = latest, self._wanted(latest)
        return bool(self._ids)

    def _wanted(self, latest: Snapshot) -> frozenset[JobId]:
        """Jobs that are in the queue by the logs, and the DAGMans that run."""
        ids = {(row.cluster, row.proc) for row in self._feed.queued()}
        ids |= {(dag.cluster or 0, 0) for dag in latest.status.dags if dag.state in ALIVE}
        return frozenset(ids)

    # --- asking -------------------------------------------------------------------------

    def ask(self) -> QueueSnapshot:
        """Ask now, and wait for the answer: an error is a word, too."""
        with self._asking:
            rows = {(row.cluster, row.proc): row for row in self._feed.queued()}
            latest = self._feed.latest
            dags = list(latest.status.dags) if latest is not None else []
            logs = [log.file for log in latest.status.logs] if latest is not None else []
            self._asked = self._now()
            try:
                self._where = where = self._where or self._connection.where()
                jobs = self._jobs(rows, dags)
            except PoolError as error:
                self._failed(str(error))
                return self._word
            asked = self._now()
            word = match_jobs(where, asked, jobs, rows, dags, self._feed.dagdir, logs)
            self._take(word, rows, dags)
            return self._word

    def _failed(self, why: str) -> None:
        """The last answer stays, with the reason why there is no newer one."""
        self._where = None
        latest = self._feed.latest
        self._logged = 0 if latest is None else _events(latest)
        self._next = self._now() + self._pace.after(False)
        self._word = replace(self._word, error=why, asking=False, next_try=self._next)

    def _jobs(self, rows: Mapping[JobId, JobRow], dags: Sequence[DagRow]) -> list[QueueJob]:
        """All jobs of our DAGMans; then those of our clusters that were not among them (their
        DAGMan is not known: a DAG below another, or without its own log)."""
        level = {dag.cluster for dag in dags if dag.cluster and dag.state in ALIVE}
        clusters = {cluster for cluster, _ in rows}
        # Thousands of ids are dozens of queries, and DAGMan's one id stands for most of them.
        wanted = set(level)
        found: dict[JobId, QueueJob] = {}
        asked: set[int] = set()
        for _ in range(DEEPEST):
            if not level:
                wanted, clusters = clusters - {cluster for cluster, _ in found}, set()
                if not wanted:
                    break
            more = self._connection.query(level, wanted)
            found.update({(job.cluster, job.proc): job for job in more})
            asked |= level
            below = {job.cluster for job in more if job.universe == SCHEDULER_UNIVERSE}
            level, wanted = below - asked, set()
        return list(found.values())

    def _take(
        self, word: QueueSnapshot, rows: Mapping[JobId, JobRow], dags: Sequence[DagRow]
    ) -> None:
        there = bool(word.jobs or word.dagmans)
        # Logs of another machine differ from this queue in everything: that is no warning.
        self._here |= there
        known = dict(rows)
        for job in word.jobs:
            key = (job.cluster, job.proc)
            if key not in known:
                view = self._feed.job_view(*key)
                if view is not None:
                    known[key] = view.row
        self._found = differences(word, known, self._found) if self._here else {}
        self._asked_for = bool(rows) or any(dag.state in ALIVE for dag in dags)
        self._next = self._now() + self._pace.after(there or not rows)
        self._word = word
        self._feed.in_queue(there)


def _events(latest: Snapshot) -> int:
    """How many events the logs hold."""
    return sum(log.events for log in latest.status.logs)


def match_jobs(
    where: ScheddInfo,
    asked: float,
    jobs: Iterable[QueueJob],
    rows: Mapping[JobId, JobRow],
    dags: Sequence[DagRow],
    dagdir: Path,
    logs: Iterable[str],
) -> QueueSnapshot:
    """The queue's answer as a word: who of them is ours, and each idle job's position. ``rows``
    are the jobs that are in the queue by the logs; ``logs``: those that were read. Pure."""
    jobs = list(jobs)
    first = {job.cluster: job for job in jobs if job.proc == 0}
    ownership = Ownership(dagdir, dags, logs, first.get)
    files = {dag.cluster: dagdir / dag.file for dag in dags if dag.cluster is not None}
    ours: list[QueueJob] = []
    dagmans: list[QueueJob] = []
    strangers: list[QueueJob] = []
    for job in jobs:
        key = (job.cluster, job.proc)
        row = rows.get(key)
        if row is None and job.cluster in files:
            (dagmans if is_dagman_of(job, files[job.cluster]) else strangers).append(job)
        elif ownership.includes(job, row.node if row is not None else None):
            ours.append(job)
        elif row is not None:
            strangers.append(job)
    idle = sorted(
        (job for job in ours if job.status == IDLE),
        key=lambda job: (-job.priority, job.submitted_at or 0, job.cluster, job.proc),
    )
    place = {(job.cluster, job.proc): number for number, job in enumerate(idle, start=1)}
    return QueueSnapshot(
        schedd=where.schedd,
        version=where.version,
        user=where.user or None,
        asked=asked,
        jobs=tuple(
            replace(job, position=place.get((job.cluster, job.proc)), waiting=len(idle))
            for job in sorted(ours, key=lambda job: (job.cluster, job.proc))
        ),
        dagmans=tuple(dagmans),
        strangers=tuple(sorted((job.cluster, job.proc) for job in strangers)),
    )


# --- showing it ---------------------------------------------------------------------------


class QueueFeed:
    """Implements :class:`metlmon.live.feed.Feed`: the pictures of ``feed``, with what the queue
    adds. Starts and stops both."""

    def __init__(self, feed: Feed, queue: QueuePoller) -> None:
        self._feed = feed
        self._queue = queue

    @property
    def dagdir(self) -> Path:
        return self._feed.dagdir

    @property
    def latest(self) -> Snapshot | None:
        update = self._feed.latest
        return self._added(update) if update is not None else None

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Begin to read and to ask; ``notify`` is also called in the queue's thread, when its
        word has changed what is to be warned of."""
        said: tuple[object, ...] = ((), None)

        def asked() -> None:
            nonlocal said
            now = notices(self._queue.lasting), self._queue.silence
            latest = self.latest
            if latest is not None and now != said:
                said = now
                notify(replace(latest, changed=frozenset()))

        self._feed.start(lambda update: notify(self._added(update)))
        self._queue.start(asked)

    def stop(self) -> None:
        """End reading and asking."""
        self._queue.stop()
        self._feed.stop()

    def run_view(self, key: str) -> RunView | None:
        return self._feed.run_view(key)

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        view = self._feed.job_view(cluster, proc)
        return replace(view, queue=self.queue_row(cluster, proc)) if view is not None else None

    def nodes(self) -> tuple[DagNodes, ...]:
        return self._feed.nodes()

    def node_row(self, key: NodeKey) -> NodeRow | None:
        return self._feed.node_row(key)

    def problems(self) -> tuple[ProblemGroup, ...]:
        return self._feed.problems()

    def queued(self, run: str | None = None) -> tuple[JobRow, ...]:
        return self._feed.queued(run)

    @property
    def settings(self) -> Settings:
        return self._feed.settings

    def ledger(self) -> Ledger:
        return self._feed.ledger()

    def described(self) -> DagDescription:
        return self._feed.described()

    def trainings(self) -> Mapping[str, TrainingOutput]:
        return self._feed.trainings()

    def streams(self) -> Mapping[JobId, Streamed]:
        return self._feed.streams()

    def past(self, moment: datetime) -> Feed:
        """Of the past the queue has no word."""
        return self._feed.past(moment)

    def in_queue(self, there: bool) -> None:
        self._feed.in_queue(there)

    def rest(self, resting: bool) -> None:
        self._feed.rest(resting)

    def _added(self, update: Snapshot) -> Snapshot:
        more = notices(self._queue.lasting)
        if more:
            status = replace(update.status, warnings=(*update.status.warnings, *more))
            update = replace(update, status=status)
        # Of an ensemble that has ended nobody is asked any more.
        silence = self._queue.silence if update.status.live else None
        return replace(update, error=silence) if silence and update.error is None else update

    def queue_row(self, cluster: int, proc: int) -> QueueRow | None:
        """What the queue adds to the job; None when it has no word on it."""
        return queue_row(self._queue.word, self._queue.lasting, (cluster, proc))


def queue_row(
    word: QueueSnapshot, differing: Iterable[QueueDiscrepancy], key: JobId
) -> QueueRow | None:
    """The word on one job; None when there is none."""
    if word.asked is None:
        return None
    differs = next((each.queue_says for each in differing if each.job == key), None)
    job = word.job(*key)
    if job is None:
        return QueueRow(word.asked, 0, 0, None, 0, None, None, differs) if differs else None
    return QueueRow(
        word.asked,
        job.priority,
        job.matches,
        job.position,
        job.waiting,
        job.rejection,
        job.rejected_at,
        differs,
    )


def notices(differing: Iterable[QueueDiscrepancy]) -> tuple[Notice, ...]:
    """One warning for all jobs that differ in the same way."""
    groups: defaultdict[tuple[object, int], list[QueueDiscrepancy]] = defaultdict(list)
    for each in differing:
        groups[(each.state, each.status)].append(each)
    return tuple(Notice("queue-differs", None, None, _sentence(group)) for group in groups.values())


def _sentence(group: Sequence[QueueDiscrepancy]) -> str:
    if len(group) == 1:
        return group[0].text
    first = group[0]
    named = ", ".join(f"{each.job[0]}.{each.job[1]}" for each in group[:IDS_NAMED])
    more = f" and {len(group) - IDS_NAMED} more" if len(group) > IDS_NAMED else ""
    who = f"{len(group)} jobs ({named}{more})"
    if first.state is None:
        return f"{who} are {first.queue_says} in the queue; no log tells of them"
    said = str(first.state).replace("_", " ")
    where = first.queue_says if first.status == 0 else f"{first.queue_says} in the queue"
    return f"{who} are {said} by their logs, and {where}"
