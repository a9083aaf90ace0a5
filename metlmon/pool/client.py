"""The office: what a screen or a command asks of the pool is done here.

Before anything is done to a job the queue is asked for that job, and it must be the one that
the logs tell of (:mod:`metlmon.pool.ownership`). Manual: "Managing a Job", "DAGMan Workflows >
Running and Managing DAGMan" (halt files), "Rescue DAG".
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from metlmon.live.feed import Feed
from metlmon.model.states import DagState
from metlmon.pool import gate_actions, submission
from metlmon.pool.connection import PoolConnection, PoolRefused, PoolUnreachable
from metlmon.pool.discrepancies import IDLE, WORDS
from metlmon.pool.gate_actions import refused
from metlmon.pool.gate_requests import NO_SITE, site_of
from metlmon.pool.job_actions import dagman_target, offers
from metlmon.pool.ownership import Ownership, belongs_elsewhere, is_dagman_of, runs_file
from metlmon.pool.poller import QueuePoller
from metlmon.pool.types import (
    AS_THE_DAG_SAYS,
    JOB_ACTS,
    RUN_ACTS,
    ActionPreview,
    ActionRequest,
    ActionResult,
    PoolAction,
    PoolError,
    QueueJob,
    QueueSnapshot,
    ResultCode,
    ScheddInfo,
    SelectedRun,
    SiteInfo,
    SubmitResult,
    Target,
)
from metlmon.snapshot.types import DagRow, JobRow, Status
from metlmon.text.formatting import plain

REPLIES: Final = {
    "done": ResultCode.DONE,
    "already": ResultCode.ALREADY,
    "denied": ResultCode.DENIED,
    "not-found": ResultCode.NOT_FOUND,
    "bad-state": ResultCode.BAD_STATE,
}
"""How the schedd counts one job, and its answer. Whatever else it is: it failed."""

ACTION: Final = {
    PoolAction.HOLD: "hold",
    PoolAction.RELEASE: "release",
    PoolAction.REMOVE: "remove",
    PoolAction.VACATE: "vacate",
    PoolAction.RELEASE_DAG: "release",
    PoolAction.REMOVE_DAG: "remove",
    PoolAction.STOP_NOW: "remove",
}

GREATEST_PRIORITY: Final = 2**31 - 1
"""``JobPrio`` is an ``int`` to the schedd."""

FINISHED: Final = "it is not in the queue: it has ended"


class PoolClient:
    """Implements :class:`metlmon.pool.interface.PoolActions` for the ensemble of ``feed`` (None:
    no dagdir
    yet, only ``where``, ``sites`` and ``submit_dag`` are of use). ``refusal``: why nothing may
    be done here at all (a picture of the past, a recording): every offer is refused with it."""

    def __init__(
        self,
        feed: Feed | None = None,
        connection: PoolConnection | None = None,
        queue: QueuePoller | None = None,
        *,
        refusal: str | None = None,
    ) -> None:
        self._feed = feed
        self._connection = connection or PoolConnection()
        if queue is None and feed is not None:
            queue = QueuePoller(feed, self._connection)
        self.queue = queue
        """Give it to :class:`metlmon.pool.poller.QueueFeed`, which starts and stops it."""
        self._refusal = refusal

    @property
    def word(self) -> QueueSnapshot:
        return self.queue.word if self.queue is not None else QueueSnapshot(asking=True)

    def offers(
        self,
        status: Status,
        jobs: Sequence[JobRow],
        dags: Sequence[DagRow],
        runs: Sequence[SelectedRun] = (),
    ) -> tuple[ActionPreview, ...]:
        made = offers(self.word, jobs, dags, self._refusal, runs, status)
        return tuple(self._with_options(o) if o.act is PoolAction.RESUBMIT else o for o in made)

    def _with_options(self, offer: ActionPreview) -> ActionPreview:
        """The offer to resubmit, with what is kept of the earlier submission."""
        if offer.order is None or offer.order.dag is None or self._feed is None:
            return offer
        kept = submission.former(self._feed.dagdir / offer.order.dag).kept
        return replace(offer, effect=f"{offer.effect}; keeps {plain(kept, 200)}") if kept else offer

    def where(self) -> ScheddInfo:
        return self._connection.where()

    def sites(self) -> tuple[SiteInfo, ...]:
        return self._connection.sites()

    def submit_dag(self, dag_file: Path) -> SubmitResult:
        """Submit a DAG that was never submitted, from the directory that it lies in. Raises
        PoolError, also where files of an earlier submission lie beside it."""
        dag_file = dag_file.absolute()
        if not dag_file.is_file():
            raise PoolError(f"{dag_file} is no file")
        there = submission.leftovers(dag_file)
        if there:
            raise PoolError(
                f"{dag_file.name} was submitted before ({there[0]} is there): resubmit it, or "
                "choose another directory"
            )
        return submission.submit(self._connection, dag_file.parent, (dag_file.name,), {})

    def close(self) -> None:
        """End threads and processes; returns when they have ended."""
        self._connection.close()
        if self.queue is not None:
            self.queue.stop()

    # --- performing ---------------------------------------------------------------------

    def perform(
        self, order: ActionRequest, told: Callable[[ActionResult], None]
    ) -> tuple[ActionResult, ...]:
        """Do it; ``told`` hears each answer as it comes. Every target gets exactly one. Raises
        PoolError only where nothing at all was done. Of an order that is ``dry`` nothing is done:
        DONE is the answer where nothing that can be known beforehand refuses it."""
        if self._refusal is not None:
            raise PoolError(self._refusal)
        if self._feed is None:
            raise PoolError("there is no ensemble to act on")
        try:
            if order.act in JOB_ACTS:
                return self._perform_jobs(order, told)
            if order.act in RUN_ACTS:
                return self._perform_runs(order, self._feed, told)
            answer = self._perform_dag(order, self._feed)
            told(answer)
            return (answer,)
        finally:
            if self.queue is not None:
                self.queue.soon()

    def _perform_jobs(
        self, order: ActionRequest, told: Callable[[ActionResult], None]
    ) -> tuple[ActionResult, ...]:
        value = order.value
        if order.act is PoolAction.PRIORITY and (value is None or abs(value) > GREATEST_PRIORITY):
            raise PoolError("a priority is a whole number; higher ones go first")
        if order.act is PoolAction.RETARGET and site_of(order.site or "") is None:
            raise PoolError(NO_SITE)
        user = self._user()
        answers: list[ActionResult] = []
        for answer in self._each_job(order, order.targets, user):
            answers.append(answer)
            told(answer)
        return tuple(answers)

    def _each_job(
        self, order: ActionRequest, targets: Sequence[Target], user: str
    ) -> Iterator[ActionResult]:
        silent = False
        ownership = self._ownership()
        for target in targets:
            try:
                if silent:
                    raise PoolError("not tried: the schedd gave no answer for the job before")
                yield self._perform_job(order, target, user, ownership)
            except PoolError as error:
                # Each wait is long: a schedd that is silent once is not asked again.
                silent |= isinstance(error, PoolUnreachable)
                yield ActionResult(target.id, ResultCode.FAILED, str(error))

    def _perform_runs(
        self, order: ActionRequest, feed: Feed, told: Callable[[ActionResult], None]
    ) -> tuple[ActionResult, ...]:
        """The files first: a job that is removed must meet them when it is tried again."""
        elsewhere = order.act is PoolAction.SEND and order.site != AS_THE_DAG_SAYS
        if elsewhere and site_of(order.site or "") is None:
            raise PoolError(NO_SITE)
        user = self._user() if any(run.jobs for run in order.runs) else ""
        answers: list[ActionResult] = []

        def add(answer: ActionResult) -> None:
            answers.append(answer)
            told(answer)

        for run in order.runs:
            add(gate_actions.ask_gate(feed, order, run))
            if answers[-1].reply not in (ResultCode.DONE, ResultCode.ALREADY):
                for job in run.jobs:
                    add(
                        ActionResult(
                            job.id, ResultCode.FAILED, "not tried: its run could not be stopped"
                        )
                    )
                continue
            for answer in self._each_job(order, run.jobs, user):
                add(answer)
        return tuple(answers)

    def _user(self) -> str:
        """Who we are to the schedd, "" when it does not say. Raises PoolError when there is no
        schedd: then nothing was done to any job."""
        return self._connection.where().user.partition("@")[0]

    def _ownership(self) -> Ownership:
        """What tells whose a job is; DAGMans' ads are asked for when they are needed."""
        assert self._feed is not None
        latest = self._feed.latest
        dags = latest.status.dags if latest is not None else ()
        logs = [log.file for log in latest.status.logs] if latest is not None else []
        return Ownership(self._feed.dagdir, dags, logs, lambda n: self._connection.job(n, 0))

    def _perform_job(
        self, order: ActionRequest, target: Target, user: str, ownership: Ownership
    ) -> ActionResult:
        job = self._connection.job(target.cluster, target.proc)
        if job is None:
            return ActionResult(target.id, ResultCode.NOT_FOUND, FINISHED)
        if not ownership.includes(job, target.node):
            return ActionResult(target.id, ResultCode.NOT_FOUND, belongs_elsewhere(job))
        if order.act is PoolAction.PRIORITY:
            return self._prioritise(job, target, order, user)
        if order.act is PoolAction.RETARGET:
            return self._retarget(job, target, order, user)
        return self._act(order, job, user)

    def _act(self, order: ActionRequest, job: QueueJob, user: str) -> ActionResult:
        subject = f"{job.cluster}.{job.proc}"
        if order.dry:
            return ActionResult(subject, ResultCode.DONE)
        said = self._connection.act(ACTION[order.act], job.cluster, job.proc)
        reply = REPLIES.get(said, ResultCode.FAILED)
        if reply is ResultCode.DENIED:
            return ActionResult(subject, reply, _whose(job, user))
        if reply is ResultCode.NOT_FOUND:
            return ActionResult(subject, reply, FINISHED)
        return ActionResult(subject, reply)

    def _prioritise(
        self, job: QueueJob, target: Target, order: ActionRequest, user: str
    ) -> ActionResult:
        value = order.value
        assert value is not None
        if job.priority == value:
            return ActionResult(target.id, ResultCode.ALREADY, f"its priority is {value}")
        if order.dry:
            return ActionResult(target.id, ResultCode.DONE)
        change = partial(self._connection.priority, job.cluster, job.proc, value)
        after, said = self._changed(job, change)
        if after is None:
            return ActionResult(target.id, ResultCode.NOT_FOUND, FINISHED)
        if after.priority == value:
            return ActionResult(target.id, ResultCode.DONE, f"its priority was {job.priority}")
        if user and job.owner and user != job.owner:
            return ActionResult(target.id, ResultCode.DENIED, _whose(job, user))
        return ActionResult(
            target.id, ResultCode.FAILED, said or f"its priority is still {after.priority}"
        )

    def _retarget(
        self, job: QueueJob, target: Target, order: ActionRequest, user: str
    ) -> ActionResult:
        site = (order.site or "").strip()
        if job.status != IDLE:
            text = f"it is {WORDS.get(job.status, 'not idle')} in the queue: only idle jobs go"
            return ActionResult(target.id, ResultCode.BAD_STATE, text)
        if job.site is None or not job.by_site:
            text = "its requirements do not look at MetlSite: it would not go there"
            return ActionResult(target.id, ResultCode.BAD_STATE, text)
        if job.site == site:
            return ActionResult(target.id, ResultCode.ALREADY, f"its MetlSite is {site}")
        if order.dry:
            return ActionResult(target.id, ResultCode.DONE)
        change = partial(self._connection.place, job.cluster, job.proc, site)
        after, said = self._changed(job, change)
        if after is None:
            return ActionResult(target.id, ResultCode.NOT_FOUND, FINISHED)
        if after.site != site:
            if user and job.owner and user != job.owner:
                return ActionResult(target.id, ResultCode.DENIED, _whose(job, user))
            return ActionResult(
                target.id, ResultCode.FAILED, said or f"its MetlSite is still {after.site}"
            )
        text = f"its MetlSite was {job.site}"
        if after.status != IDLE:
            text += "; it began to run in this moment, maybe there"
        assert self._feed is not None
        return ActionResult(
            target.id, ResultCode.DONE, text + gate_actions.place(self._feed, target, site)
        )

    def _changed(self, job: QueueJob, change: Callable[[], None]) -> tuple[QueueJob | None, str]:
        """The job behind a change of its ad (None: it has left the queue), and what the schedd
        refused. The bindings do not always raise that: only the ad proves it."""
        said = ""
        try:
            change()
        except PoolRefused as refusal:
            said = refusal.said
        return self._connection.job(job.cluster, job.proc), said

    # --- a DAG --------------------------------------------------------------------------

    def _perform_dag(self, order: ActionRequest, feed: Feed) -> ActionResult:
        dag = _dag_row(feed, order.dag)
        path = feed.dagdir / dag.file
        if order.act is PoolAction.RESUBMIT:
            return self._resubmit(dag, path, order)
        job, why = self._dagman(dag, path)
        if job is None:
            return ActionResult(dag.file, ResultCode.NOT_FOUND, why)
        if order.act is PoolAction.HALT:
            return _halt(dag.file, path, order.dry)
        if order.act is PoolAction.RESUME:
            return _resume(dag.file, path, order.dry)
        answer = self._act(order, job, self._user())
        text = answer.text or (f"DAGMan was job {answer.subject}" if _done(answer) else "")
        return ActionResult(dag.file, answer.reply, text)

    def _dagman(self, dag: DagRow, path: Path) -> tuple[QueueJob | None, str]:
        """Its DAGMan's job in the queue; None, and why not."""
        if dag.cluster is None:
            return None, "the number of DAGMan's job is not known"
        job = self._connection.job(dagman_target(dag).cluster, 0)
        if job is None:
            return None, "its DAGMan is not in the queue: it has ended"
        if not is_dagman_of(job, path):
            return None, belongs_elsewhere(job)
        return job, ""

    def _resubmit(self, dag: DagRow, path: Path, order: ActionRequest) -> ActionResult:
        if dag.state is DagState.DONE:
            return ActionResult(dag.file, ResultCode.ALREADY, "the DAG is done")
        lock = path.with_name(f"{path.name}.lock")
        if os.path.lexists(lock):
            text = (
                f"{lock.name} is there: its DAGMan has not ended, or was broken off; if none "
                "runs anywhere, condor_submit_dag lets a new one recover"
            )
            return ActionResult(dag.file, ResultCode.BAD_STATE, text)
        for job in self._connection.dagmans():
            if runs_file(job, path):
                text = f"its DAGMan is in the queue, job {job.cluster}.{job.proc}"
                return ActionResult(dag.file, ResultCode.BAD_STATE, text)
        if (answer := _unwritable(dag.file, path)) is not None:
            return answer
        rescue = submission.newest_rescue(path)
        if rescue is None and dag.nodes_done:
            text = "there is no rescue file to go on from, and some nodes are done"
            return ActionResult(dag.file, ResultCode.BAD_STATE, text)
        before = submission.former(path, order.confirmed)
        if before.refused is not None:
            return ActionResult(dag.file, ResultCode.BAD_STATE, before.refused)
        options = dict(before.options)
        if rescue is None:
            # Without one the files of the earlier submission would be in the way.
            options["UpdateSubmit"] = True
        if order.dry:
            submission.submit_command(self._connection, before.files)
            return ActionResult(dag.file, ResultCode.DONE)
        made = submission.submit(self._connection, before.directory, before.files, options)
        on = f", goes on from {rescue}" if rescue else ""
        return ActionResult(
            dag.file, ResultCode.DONE, f"DAGMan is job {made.cluster}.0 (by {made.way}){on}"
        )


def open_pool() -> PoolClient:
    """An office without an ensemble: to submit the first one."""
    return PoolClient()


def _dag_row(feed: Feed, file: str | None) -> DagRow:
    latest = feed.latest
    for dag in latest.status.dags if latest is not None else ():
        if dag.file == file:
            return dag
    raise PoolError(f"there is no DAG {file} here")


def _done(answer: ActionResult) -> bool:
    return answer.reply is ResultCode.DONE


def _whose(job: QueueJob, user: str) -> str:
    if not user:
        return f"the job belongs to {job.owner}; the schedd did not authenticate you"
    return f"the job belongs to {job.owner}, you are {user}"


def _halt(name: str, path: Path, dry: bool) -> ActionResult:
    """DAGMan looks for the file before it submits: running jobs and POST scripts go on. A new
    submission deletes it."""
    file = path.with_name(f"{path.name}.halt")
    if dry and not os.path.lexists(file):
        return _unwritable(name, file) or ActionResult(name, ResultCode.DONE)
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o644))
    except FileExistsError:
        return ActionResult(name, ResultCode.ALREADY, f"{file.name} is there")
    except OSError as error:
        return refused(name, f"{file.name} cannot be written", error)
    return ActionResult(name, ResultCode.DONE, f"{file.name} was written")


def _unwritable(name: str, file: Path) -> ActionResult | None:
    if os.access(file.parent, os.W_OK):
        return None
    return ActionResult(name, ResultCode.DENIED, f"you may not write in {file.parent.resolve()}")


def _resume(name: str, path: Path, dry: bool) -> ActionResult:
    file = path.with_name(f"{path.name}.halt")
    try:
        if not stat.S_ISREG(os.lstat(file).st_mode):
            return ActionResult(
                name, ResultCode.FAILED, f"{file.name} is no ordinary file: delete it yourself"
            )
        if dry:
            return _unwritable(name, file) or ActionResult(name, ResultCode.DONE)
        os.unlink(file)
    except FileNotFoundError:
        return ActionResult(name, ResultCode.ALREADY, f"{file.name} is not there")
    except OSError as error:
        return refused(name, f"{file.name} cannot be deleted", error)
    return ActionResult(name, ResultCode.DONE, f"{file.name} was deleted")
