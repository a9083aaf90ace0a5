"""Jobs in the logs and in the queue, in short form."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from metlmon.live.feed import NullFeed
from metlmon.model.states import ACTIVE, DagState, State
from metlmon.pool.types import PoolError, QueueJob, ScheddInfo, SiteInfo
from metlmon.snapshot.records import DagRow, Job, JobView, LogRow, Progress, Snapshot, Status

DAGDIR = Path("/home/anna/ens")
NINE = datetime(2026, 1, 5, 9, 0, 0)
WHERE = ScheddInfo("ap.example.org", "25.0.0", "anna@example.org", None)


def row(
    cluster: int,
    state: State = State.IDLE,
    node: str | None = None,
    run: str | None = "run0",
    since: datetime = NINE,
) -> Job:
    """A job as in the logs."""
    return Job(
        dag="ens.dag",
        in_dag="ens.dag",
        node=node or f"n{cluster}",
        node_name=node or f"n{cluster}",
        key=run,
        run=run,
        epoch=0,
        job=(cluster, 0),
        state=state,
        since=since,
        submitted=NINE,
    )


def job(
    cluster: int,
    status: int = 1,
    *,
    node: str | None = None,
    priority: int = 0,
    at: float = 1000.0,
    owner: str = "anna",
    directory: Path | str = DAGDIR,
    **more: object,
) -> QueueJob:
    """A job as in the queue."""
    made = QueueJob(
        cluster=cluster,
        proc=0,
        status=status,
        owner=owner,
        priority=priority,
        submitted_at=at,
        node=node or f"n{cluster}",
        directory=str(directory),
        log="metl.log",
        dagman=9,
        universe=5,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def dagman(
    cluster: int = 9, dag: str = "ens.dag", directory: Path | str = DAGDIR, owner: str = "anna"
) -> QueueJob:
    """DAGMan's own job."""
    made = job(cluster, 2, directory=directory, owner=owner, log=f"{dag}.dagman.log")
    arguments = f"-p 0 -f -l . -Lockfile {dag}.lock -Dag {dag} -CsdVersion $CondorVersion:' '25'$"
    return replace(made, node=None, dagman=None, universe=7, arguments=arguments)


def dag(state: DagState = DagState.RUNNING, **more: object) -> DagRow:
    made = DagRow("ens.dag", state, 1, 4, 1, 0, None, (NINE,), cluster=9)
    return replace(made, **more)  # type: ignore[arg-type]


def picture(dags: Iterable[DagRow]) -> Status:
    """A snapshot with these DAGs."""
    latest = NullFeed(DAGDIR).latest
    return replace(latest.status, as_of=NINE, live=True, dags=tuple(dags))


class Logs(NullFeed):
    """A feed on the jobs and DAGs of a test."""

    def __init__(self, *rows: Job, dags: Iterable[DagRow] = (), dagdir: Path = DAGDIR) -> None:
        super().__init__(dagdir)
        self.rows = {(each.cluster, each.proc): each for each in rows}
        self.dags = tuple(dags)
        self.there: bool | None = None
        self.notify: Callable[[Snapshot], None] | None = None
        self.live = True
        self.logs: tuple[LogRow, ...] = (LogRow("metl.log", 0, 0, None, None),)

    @property
    def latest(self) -> Snapshot | None:
        status = replace(picture(self.dags), live=self.live, logs=self.logs)
        return Snapshot(status, Progress(1, 1))

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        self.notify = notify

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        found = self.rows.get((cluster, proc))
        return JobView(found, None, False, (), 0, (), None, None, ()) if found else None

    def queued_jobs(self, run: str | None = None) -> tuple[Job, ...]:
        return tuple(each for each in self.rows.values() if each.state in ACTIVE)

    def set_in_queue(self, present: bool) -> None:
        self.there = present


def submit_command(path: Path, text: str = "") -> str:
    """A condor_submit_dag at ``path`` that writes directory and arguments to ``PATH.output``."""
    path.write_text(
        f'#!/bin/sh\n{text}\nprintf "%s\\n" "$PWD" "$@" > "$0.output"\n'
        'echo "1 job(s) submitted to cluster 77."\n'
    )
    path.chmod(0o755)
    return str(path)


class Schedd:
    """A pool connection with a queue in memory, set answers, and a record of the requests."""

    def __init__(self, *jobs: QueueJob) -> None:
        self.jobs = {(each.cluster, each.proc): each for each in jobs}
        self.answers: dict[int, str] = {}
        self.down: str | None = None
        self.deaf: set[int] = set()
        self.asked: list[tuple[object, ...]] = []
        self.submit_command: str | None = "/nonexistent/condor_submit_dag"

    def _received(self, *what: object) -> None:
        self.asked.append(what)
        if self.down is not None:
            raise PoolError(self.down)

    def where(self) -> ScheddInfo:
        self._received("where")
        return replace(WHERE, submit_command=self.submit_command)

    def query(self, dagmans: Iterable[int], clusters: Iterable[int]) -> tuple[QueueJob, ...]:
        by, of = set(dagmans), set(clusters)
        self._received("query", by, of)
        return tuple(j for j in self.jobs.values() if j.dagman in by or j.cluster in of)

    def job(self, cluster: int, proc: int) -> QueueJob | None:
        self._received("job", cluster, proc)
        return self.jobs.get((cluster, proc))

    def dagmans(self) -> tuple[QueueJob, ...]:
        self._received("dagmans")
        return tuple(j for j in self.jobs.values() if j.universe == 7)

    def act(self, action: str, cluster: int, proc: int) -> str:
        self._received(action, cluster, proc)
        return self.answers.get(cluster, "done")

    def edit(self, cluster: int, proc: int, field: str, value: int | str) -> None:
        self._received("edit", cluster, proc, field, value)
        if cluster not in self.deaf:
            key = (cluster, proc)
            self.jobs[key] = replace(self.jobs[key], **{field: value})  # type: ignore[arg-type]

    def exclude(self, cluster: int, proc: int, site: str, excluded: bool, on: str) -> None:
        self._received("exclude", cluster, proc, site, excluded, on)
        if cluster not in self.deaf:
            key = (cluster, proc)
            sites = [*self.jobs[key].excluded, site] if excluded else []
            self.jobs[key] = replace(self.jobs[key], excluded=tuple(sites))

    def sites(self) -> tuple[SiteInfo, ...]:
        return ()

    def close(self) -> None:
        """Do nothing: no process was started."""

    def acts(self) -> list[tuple[object, ...]]:
        """The changing requests, without queries."""
        looks = {"where", "query", "job", "dagmans"}
        return [what for what in self.asked if what[0] not in looks]
