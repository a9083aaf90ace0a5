"""The pool client: performs the pool operations of screens and commands.

Before an action on a job, the queue is queried for that job, which must be the one in the logs
(:mod:`metlmon.pool.queue_checks`). Manual: "Managing a Job", "DAGMan Workflows > Running and
Managing DAGMan" (halt files), "Rescue DAG".
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.dagman.reports import newest_rescue
from metlmon.live.feed import Feed
from metlmon.model.states import DagState
from metlmon.pool import gate_requests, submission
from metlmon.pool.annex_ads import AnnexAnswer
from metlmon.pool.annex_poller import AnnexPoller
from metlmon.pool.connection import PoolConnection, PoolRefused, PoolUnreachable
from metlmon.pool.exclusion import can_exclude
from metlmon.pool.gate_requests import NO_SITE, site_of
from metlmon.pool.poller import QueuePoller
from metlmon.pool.previews import (
    EXCLUDED,
    NO_NAMES,
    NOT_EXCLUDED,
    UNITS,
    action_previews,
    amount,
    exclusion_preview,
    names,
)
from metlmon.pool.queue_checks import (
    IDLE,
    STATUS_NAMES,
    Ownership,
    belongs_elsewhere,
    is_dagman_of,
    runs_file,
    user_name,
)
from metlmon.pool.types import (
    ACTS,
    AS_THE_DAG_SAYS,
    EXCLUDE_ACTS,
    HELD,
    HOST_ACTS,
    JOB_ACTS,
    PLACE_ACTS,
    RAISE_ACTS,
    RUN_ACTS,
    SITE_ACTS,
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
    Target,
)
from metlmon.snapshot.records import DagRow, Job, Status
from metlmon.text.formatting import plain, site_list

MAX_PRIORITY: Final = 2**31 - 1
"""``JobPrio`` is an ``int`` to the schedd."""

FINISHED: Final = "it is not in the queue: it has ended"


class FeedAndPool(Struct, frozen=True):
    """A feed, and the pool client that acts on its jobs.

    If ``pool`` is None, ``no_pool`` has the reason. ``read_only``: the client only asks.
    """

    feed: Feed
    pool: PoolClient | None = None
    no_pool: str = "nothing can be acted on here"
    read_only: bool = False


class PoolClient:
    """Actions on the jobs, DAGs and runs of one dagdir.

    ``queue_snapshot``, ``annex_answer`` and ``previews`` use known data only, and may be called
    from the event loop. The other methods wait for the schedd: they must be called in a thread, and
    raise PoolError. Without a ``feed`` (no dagdir yet), only ``where``, ``sites`` and
    ``submit_dag`` work.
    """

    def __init__(
        self,
        feed: Feed | None = None,
        connection: PoolConnection | None = None,
        queue: QueuePoller | None = None,
        *,
        annexes: AnnexPoller | None = None,
    ) -> None:
        self._feed = feed
        self._connection = connection or PoolConnection()
        if queue is None and feed is not None:
            queue = QueuePoller(feed, self._connection)
        self.queue = queue
        """Started and stopped by :class:`metlmon.pool.poller.QueueFeed`, which has to get it."""
        self._annexes = annexes

    @property
    def annex_answer(self) -> AnnexAnswer:
        """The last answers of schedd and collectors about annexes."""
        return self._annexes.answer if self._annexes is not None else AnnexAnswer(is_pending=True)

    def query_annexes_soon(self) -> None:
        """Query annexes now, in the poller's thread, since a user looks at them."""
        if self._annexes is not None:
            self._annexes.query_soon()

    def query_gpus_soon(self) -> None:
        """Query free GPUs in the poller's thread, at most every ten minutes."""
        if self._annexes is not None:
            self._annexes.query_gpus_soon()

    @property
    def queue_snapshot(self) -> QueueSnapshot:
        """The latest queue snapshot."""
        return self.queue.snapshot if self.queue is not None else QueueSnapshot(is_pending=True)

    def previews(
        self,
        status: Status,
        jobs: Sequence[Job],
        dags: Sequence[DagRow],
        runs: Sequence[SelectedRun] = (),
        site: str | None = None,
        host: str | None = None,
    ) -> tuple[ActionPreview, ...]:
        """Previews of every action for the selection, in the order of :class:`PoolAction`.

        ``jobs``: the selected jobs in whatever state; ``dags``: the DAGs they belong to;
        ``runs``: the selected runs; ``site``, ``host``: the selected one; without one, the result
        has no SITE_ACTS or HOST_ACTS.
        """
        previews = action_previews(self.queue_snapshot, jobs, dags, runs, status)
        previews = tuple(
            self._with_options(preview) if preview.act is PoolAction.RESUBMIT else preview
            for preview in previews
        )
        for name, acts in ((site, SITE_ACTS), (host, HOST_ACTS)):
            if name is not None:
                previews += tuple(self._place_previews(status, name, acts))
        return previews

    def _place_previews(
        self, status: Status, name: str, acts: Iterable[PoolAction]
    ) -> Iterator[ActionPreview]:
        """Previews of PLACE_ACTS, which apply to all jobs and DAGs of the ensemble."""
        assert self._feed is not None
        jobs, files = self._feed.queued_jobs(), {}
        for dag in status.dags:
            path = self._feed.dagdir / dag.file
            # The action itself reports a file that cannot be read.
            with suppress(OSError):
                file = gate_requests.exclusion_file(dag.file)
                files[dag.file] = gate_requests.excluded_places(path.parent, file)
        for act in acts:
            yield exclusion_preview(act, self.queue_snapshot, name, jobs, status, files)

    def _with_options(self, preview: ActionPreview) -> ActionPreview:
        """The preview of RESUBMIT, with the earlier submission's options added."""
        if preview.request is None or preview.request.dag is None or self._feed is None:
            return preview
        previous = submission.previous_submission(self._feed.dagdir / preview.request.dag)
        if not previous.options:
            return preview
        kept = plain(shlex.join(previous.options), 200)
        return replace(preview, effect=f"{preview.effect}; keeps {kept}")

    def where(self) -> ScheddInfo:
        """The local schedd."""
        return self._connection.where()

    def sites(self) -> tuple[SiteInfo, ...]:
        """The sites currently known to the collector."""
        return self._connection.sites()

    def submit_dag(self, dag_file: Path) -> int:
        """Submit a new DAG from its own directory; return DAGMan's cluster.

        Raises PoolError, for example if files of an earlier submission exist beside it.
        """
        dag_file = dag_file.absolute()
        if not dag_file.is_file():
            raise PoolError(f"{dag_file} is not a file")
        leftovers = submission.leftovers(dag_file)
        if leftovers:
            raise PoolError(
                f"{dag_file.name} was submitted before ({leftovers[0]} is there): resubmit it, or "
                "choose another directory"
            )
        return submission.submit(self._connection, dag_file.parent, (dag_file.name,))

    def close(self) -> None:
        """End threads and processes; return when they have ended."""
        self._connection.close()
        if self._annexes is not None:
            self._annexes.stop()
        if self.queue is not None:
            self.queue.stop()

    # --- actions ------------------------------------------------------------------------

    def perform(
        self, request: ActionRequest, on_result: Callable[[ActionResult], None]
    ) -> tuple[ActionResult, ...]:
        """Perform a request; ``on_result`` is called with each result, one per target.

        Raises PoolError only if nothing at all was done. A ``dry`` request changes nothing: its
        result is DONE if all checks pass.
        """
        if self._feed is None:
            raise PoolError("there is no ensemble to act on")
        results: list[ActionResult] = []
        try:
            for result in self._results(request, self._feed):
                results.append(result)
                on_result(result)
        finally:
            if self.queue is not None:
                self.queue.query_soon()
        return tuple(results)

    def _results(self, request: ActionRequest, feed: Feed) -> Iterator[ActionResult]:
        """Perform a request; yield a result for each target."""
        if request.act in JOB_ACTS:
            yield from self._perform_jobs(request)
        elif request.act in RUN_ACTS:
            yield from self._perform_runs(request, feed)
        elif request.act in PLACE_ACTS:
            yield from self._perform_exclusion(request, feed)
        else:
            yield self._perform_dag(request, feed)

    def _perform_jobs(self, request: ActionRequest) -> Iterator[ActionResult]:
        value = request.value
        if request.act is PoolAction.PRIORITY and (value is None or abs(value) > MAX_PRIORITY):
            limits = f"from -{MAX_PRIORITY} to {MAX_PRIORITY}"
            raise PoolError(f"a priority is a whole number {limits}; higher ones go first")
        if request.act is PoolAction.RETARGET and site_of(request.site or "") is None:
            raise PoolError(NO_SITE)
        yield from self._perform_each(request, request.targets, self._user_name())

    def _perform_each(
        self, request: ActionRequest, targets: Sequence[Target], user: str
    ) -> Iterator[ActionResult]:
        unreachable = False
        ownership = self._ownership()
        for target in targets:
            try:
                if unreachable:
                    raise PoolError("not tried: the schedd gave no answer for the job before")
                yield self._perform_job(request, target, user, ownership)
            except PoolError as error:
                # Each time-out is long: do not query an unresponsive schedd again.
                unreachable |= isinstance(error, PoolUnreachable)
                yield ActionResult(target.id, ResultCode.FAILED, str(error))

    def _perform_runs(self, request: ActionRequest, feed: Feed) -> Iterator[ActionResult]:
        """Write the gate's files, then remove jobs.

        In this order because the gate of a retried job must find the files.
        """
        to_site = request.act is PoolAction.SEND and request.site != AS_THE_DAG_SAYS
        if to_site and site_of(request.site or "") is None:
            raise PoolError(NO_SITE)
        user = self._user_name() if any(run.jobs for run in request.runs) else ""
        for run in request.runs:
            result = gate_requests.change_requests(feed, request, run)
            yield result
            if result.succeeded:
                yield from self._perform_each(request, run.jobs, user)
                continue
            reason = "not tried: its run could not be stopped"
            for job in run.jobs:
                yield ActionResult(job.id, ResultCode.FAILED, reason)

    def _perform_exclusion(self, request: ActionRequest, feed: Feed) -> Iterator[ActionResult]:
        """Change the files first: DAGMan may submit jobs at any moment."""
        on = ACTS[request.act].on
        if not can_exclude(request.site or "", on):
            raise PoolError(NO_NAMES[on])
        user = self._user_name() if request.targets else ""
        for dag in request.dags:
            yield gate_requests.change_exclusion(feed, request, dag)
        yield from self._perform_each(request, request.targets, user)

    def _user_name(self) -> str:
        """Our user name at the schedd, "" if unknown. Raises PoolError without a schedd."""
        return user_name(self._connection.where().user)

    def _ownership(self) -> Ownership:
        """The ownership test; DAGMan's ads are queried when it needs them."""
        assert self._feed is not None
        latest = self._feed.latest
        dags = latest.status.dags if latest is not None else ()
        logs = [log.file for log in latest.status.logs] if latest is not None else []
        return Ownership(
            self._feed.dagdir, dags, logs, lambda cluster: self._connection.job(cluster, 0)
        )

    def _perform_job(
        self, request: ActionRequest, target: Target, user: str, ownership: Ownership
    ) -> ActionResult:
        """Check that the job is ours, and act on it."""
        job = self._connection.job(target.cluster, target.proc)
        if job is None:
            return ActionResult(target.id, ResultCode.NOT_FOUND, FINISHED)
        if not ownership.includes(job, target.node):
            return ActionResult(target.id, ResultCode.NOT_FOUND, belongs_elsewhere(job))
        if ACTS[request.act].value:
            return self._edit(job, target, request, user)
        if request.act in PLACE_ACTS:
            return self._exclude(job, request, user)
        return self._act_on(request, job, user)

    def _act_on(self, request: ActionRequest, job: QueueJob, user: str) -> ActionResult:
        subject = f"{job.cluster}.{job.proc}"
        if request.dry:
            return ActionResult(subject, ResultCode.DONE)
        action = ACTS[request.act].worker
        code = ResultCode(self._connection.act(action, job.cluster, job.proc))
        texts = {ResultCode.DENIED: _owner_text(job, user), ResultCode.NOT_FOUND: FINISHED}
        return ActionResult(subject, code, texts.get(code, ""))

    def _edit(
        self, job: QueueJob, target: Target, request: ActionRequest, user: str
    ) -> ActionResult:
        """Set the job's priority, MetlSite or request, and check the ad."""
        result = partial(ActionResult, target.id)
        field, then = ACTS[request.act].value, ACTS[request.act].worker
        value: int | str = request.value or 0
        name: str = field
        if request.act in RAISE_ACTS:
            if target.value is None:
                raise PoolError("no new request is given")
            if (refusal := _raise_refusal(job, field)) is not None:
                return result(ResultCode.BAD_STATE, refusal)
            value = target.value
        if field == "site":
            if (refusal := _retarget_refusal(job, request.site or "")) is not None:
                return result(ResultCode.BAD_STATE, refusal)
            name, value = "MetlSite", (request.site or "").strip()
        if getattr(job, field) == value and not then:
            return result(ResultCode.ALREADY, f"its {name} is {value}")
        if request.dry:
            return result(ResultCode.DONE)
        edit = partial(self._connection.edit, job.cluster, job.proc, field, value)
        edited, error = self._edited(job, edit)
        if edited is None:
            return result(ResultCode.NOT_FOUND, FINISHED)
        if getattr(edited, field) != value:
            still = f"its {name} is still {getattr(edited, field)}"
            return _failure(job, user, error or still)
        before = getattr(job, field)
        text = f"its {name} was {amount(field, before) if field in UNITS else before}"
        if then:
            released = self._act_on(request, job, user)
            if released.reply is not ResultCode.DONE:
                text += f"; the job was not released: {released.text or released.reply}"
            return replace(released, text=text)
        if request.act is PoolAction.RETARGET and self._feed is not None:
            if edited.status != IDLE:
                text += "; it began to run in this moment, maybe there"
            text += gate_requests.write_placement(self._feed, target, str(value))
        return result(ResultCode.DONE, text)

    def _exclude(self, job: QueueJob, request: ActionRequest, user: str) -> ActionResult:
        """Exclude or include a site or host for one job, and check the ad."""
        site, exclude, on = request.site or "", request.act in EXCLUDE_ACTS, ACTS[request.act].on
        result = partial(ActionResult, f"{job.cluster}.{job.proc}")
        if names(job.excluded, site) is exclude:
            return result(ResultCode.ALREADY, EXCLUDED if exclude else NOT_EXCLUDED)
        if exclude and job.status not in (IDLE, HELD):
            text = f"it is {STATUS_NAMES.get(job.status, 'not waiting')} in the queue"
            return result(ResultCode.BAD_STATE, f"{text}: only waiting jobs are changed")
        if request.dry:
            return result(ResultCode.DONE)
        edit = partial(self._connection.exclude, job.cluster, job.proc, site, exclude, on)
        edited, error = self._edited(job, edit)
        if edited is None:
            return result(ResultCode.NOT_FOUND, FINISHED)
        if names(edited.excluded, site) is exclude:
            return result(ResultCode.DONE)
        return _failure(job, user, error or "its requirements are as before")

    def _edited(self, job: QueueJob, edit: Callable[[], None]) -> tuple[QueueJob | None, str]:
        """Edit a job; return its ad afterwards (None if it has ended), and any refusal.

        The bindings do not always raise an error when the schedd refuses, so only the ad read
        afterwards is proof.
        """
        error = ""
        try:
            edit()
        except PoolRefused as exception:
            error = exception.schedd_text
        return self._connection.job(job.cluster, job.proc), error

    # --- a DAG --------------------------------------------------------------------------

    def _perform_dag(self, request: ActionRequest, feed: Feed) -> ActionResult:
        dag = _dag_row(feed, request.dag)
        path = feed.dagdir / dag.file
        if request.act is PoolAction.RESUBMIT:
            return self._resubmit(dag, path, request)
        job, reason = self._dagman(dag, path)
        if job is None:
            return ActionResult(dag.file, ResultCode.NOT_FOUND, reason)
        if request.act in (PoolAction.HALT, PoolAction.RESUME):
            return _change_halt_file(dag.file, path, request.act is PoolAction.HALT, request.dry)
        result = self._act_on(request, job, self._user_name())
        done = result.reply is ResultCode.DONE
        text = result.text or (f"DAGMan was job {result.subject}" if done else "")
        return ActionResult(dag.file, result.reply, text)

    def _dagman(self, dag: DagRow, path: Path) -> tuple[QueueJob | None, str]:
        """The DAG's DAGMan job in the queue and "", or None and the reason."""
        if dag.cluster is None:
            return None, "the number of DAGMan's job is not known"
        job = self._connection.job(dag.cluster, 0)
        if job is None:
            return None, "its DAGMan is not in the queue: it has ended"
        if not is_dagman_of(job, path):
            return None, belongs_elsewhere(job)
        return job, ""

    def _resubmit(self, dag: DagRow, path: Path, request: ActionRequest) -> ActionResult:
        """Submit the DAG again, if no DAGMan runs it and nothing is in the way."""
        result = partial(ActionResult, dag.file)
        if dag.state is DagState.DONE:
            return result(ResultCode.ALREADY, "the DAG is done")
        rescue = newest_rescue(os.listdir(path.parent), path.name)
        previous = submission.previous_submission(path, request.confirmed)
        obstacle = self._resubmit_obstacle(dag, path, rescue) or previous.refused
        if obstacle is not None:
            return result(ResultCode.BAD_STATE, obstacle)
        if not os.access(path.parent, os.W_OK):
            return result(ResultCode.DENIED, f"you may not write in {path.parent.resolve()}")
        options = previous.options
        if rescue is None:
            # Without a rescue file, files of the earlier submission prevent a new one.
            options += ("-update_submit",)
        if request.dry:
            submission.submit_command(self._connection)
            return result(ResultCode.DONE)
        cluster = submission.submit(self._connection, previous.directory, previous.files, options)
        suffix = f", continues from {rescue}" if rescue else ""
        return result(ResultCode.DONE, f"DAGMan is job {cluster}.0{suffix}")

    def _resubmit_obstacle(self, dag: DagRow, path: Path, rescue: str | None) -> str | None:
        """Why the DAG must not be submitted again now."""
        lock = path.with_name(f"{path.name}.lock")
        if os.path.lexists(lock):
            return (
                f"{lock.name} is there: its DAGMan has not ended, or was broken off; if none "
                "runs anywhere, condor_submit_dag -update_submit lets a new one recover"
            )
        for job in self._connection.dagmans():
            if runs_file(job, path):
                return f"its DAGMan is in the queue, job {job.cluster}.{job.proc}"
        if rescue is None and dag.nodes_done:
            return "it has no rescue file to continue from, and some nodes are done"
        return None


def _dag_row(feed: Feed, file: str | None) -> DagRow:
    latest = feed.latest
    for dag in latest.status.dags if latest is not None else ():
        if dag.file == file:
            return dag
    raise PoolError(f"there is no DAG {file} here")


def _failure(job: QueueJob, user: str, text: str) -> ActionResult:
    """The result of an edit without an effect: the job is another user's, or ``text``."""
    subject = f"{job.cluster}.{job.proc}"
    if user and job.owner and user != job.owner:
        return ActionResult(subject, ResultCode.DENIED, _owner_text(job, user))
    return ActionResult(subject, ResultCode.FAILED, text)


def _owner_text(job: QueueJob, user: str) -> str:
    """The text that another user owns the job."""
    if not user:
        return f"the job belongs to {job.owner}; the schedd did not authenticate you"
    return f"the job belongs to {job.owner}, you are {user}"


def _raise_refusal(job: QueueJob, field: str) -> str | None:
    """Why the job's request cannot be raised; None if it can."""
    if job.status != HELD:
        return f"it is {STATUS_NAMES.get(job.status, 'not held')} in the queue: only held jobs go"
    return f"its {field} is an expression" if getattr(job, field) is None else None


def _retarget_refusal(job: QueueJob, site: str) -> str | None:
    """Why the job cannot be sent to another site or to a list of sites; None if it can."""
    if job.status != IDLE:
        return f"it is {STATUS_NAMES.get(job.status, 'not idle')} in the queue: only idle jobs go"
    if job.site is None or not job.by_site:
        return "its requirements do not look at MetlSite: it would not go there"
    if len(site_list(site)) > 1 and not job.by_site_list:
        return "its requirements compare MetlSite with one site, not with a list"
    return None


def _change_halt_file(name: str, path: Path, halt: bool, dry: bool) -> ActionResult:
    """Create or delete the halt file.

    DAGMan checks for it before it submits; running jobs and POST scripts continue. A new
    submission deletes the file.
    """
    file = f"{path.name}.halt"
    if os.path.lexists(path.with_name(file)) == halt:
        text = f"{file} is {'' if halt else 'not '}there"
        return ActionResult(name, ResultCode.ALREADY, text)
    return gate_requests.change_file(name, path.parent, file, b"" if halt else None, dry=dry)
