"""The states of DAGs and of their nodes (``metlmon/README.md``, "Node state").

A node's own state is kept until its jobs or DAGMan's reports on it change. Its precedence is: the
DAG file, DAGMan's reports, the POST script's result, the job events. The states of all nodes that
edges connect are then derived again from these and from their ancestors and descendants.

Unrecorded nodes, which no file mentions, were either done before the newest DAGMan run, or are
still waiting. DAGMan starts with the nodes that its rescue file marks ``DONE``, truncates its
nodes.log, and submits the ready nodes in every cycle. Without the rescue file, the nodes done
earlier are inferred from the number of pre-completed nodes in ``.dagman.out``, from nodes that were
never submitted although ready, and from an end with all nodes done. Manual: "DAGMan Workflows > The
Rescue DAG"; source followed: ``Dag::SubmitReadyNodes`` in ``dag.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import PurePath
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple, replace

from metlmon.dagman.records import DagMetrics, MessageKind, Node, NodeKind, StatusFile
from metlmon.dagman.reports import rescue_number
from metlmon.model.dag import (
    STATUS_REPORT_KINDS,
    Component,
    Dag,
    NodeReport,
    failed_part,
    failure_text,
    name_script,
    sub_dags,
)
from metlmon.model.dagman_runs import Process
from metlmon.model.job_events import NO_DAG, JobKey, LoggedJob, NodeKey
from metlmon.model.states import ACTIVE, ALIVE, DONE, FAILED_JOB, DagState, Outcome, State

WORST_FIRST: Final = (
    State.HELD,
    State.DISCONNECTED,
    State.SUSPENDED,
    State.IDLE,
    State.TRANSFERRING_INPUT,
    State.STARTING,
    State.TRANSFERRING_OUTPUT,
    State.RUNNING,
    State.FAILED,
    State.REMOVED,
    State.COMPLETED,
)
"""Of several procs, the one whose state comes first here determines the node's state."""

RETRY_REPORTS: Final = (MessageKind.PRE_STARTED, MessageKind.PRE_FAILED, MessageKind.RETRYING)
"""Reports on a node that DAGMan retries after its POST script."""

REPORTS_BEFORE_JOB_END: Final = (
    MessageKind.PRE_STARTED,
    MessageKind.PRE_OK,
    MessageKind.SUBMITTED,
    MessageKind.RETRYING,
)
"""Reports on a node before DAGMan has seen the end of its job."""

REPORTS_WITH_JOB: Final = (
    MessageKind.SUBMITTED,
    MessageKind.JOB_OK,
    MessageKind.JOB_FAILED,
    MessageKind.POST_STARTED,
)
"""Reports on a node that has a job."""

POST_REPORTS: Final = (MessageKind.POST_STARTED, MessageKind.POST_OK, MessageKind.POST_FAILED)
"""Reports on a node whose job has ended."""

FINAL_FAILURE_REPORTS: Final = (MessageKind.SUBMIT_FAILED, MessageKind.NODE_FAILED)
"""Reports on a node that DAGMan does not retry, whatever its RETRY is."""

FAILED_PARTS: Final = {
    MessageKind.PRE_FAILED: "pre",
    MessageKind.SUBMIT_FAILED: "submit",
    MessageKind.POST_FAILED: "post",
    MessageKind.JOB_FAILED: "job",
}
"""The part of a node that failed, by the kind of DAGMan's report."""

REPORTS_AFTER_FAILURE: Final = (MessageKind.NODE_FAILED, MessageKind.RETRYING)
"""Reports that DAGMan writes after the report of a failure."""

REMOVAL_DETAILS: Final = "Was STATUS_"
"""Prefix of StatusDetails of unfinished nodes, which a DAGMan that is being removed reports as
ERROR. These are ignored: the job may even have succeeded."""


class NodeFailure(Struct, frozen=True):
    """Why a node failed, by DAGMan's reports alone.

    ``part``: pre (PRE script), submit (submission), post (POST script), job, or lost (DAGMan did
    not read the end of the job). ``text``: as in StatusDetails of the node status file, with the
    name of a script. ``value``: return value, or minus the signal. ``error``: what was wrong with
    its submit description.
    """

    part: str
    text: str
    value: int | None = None
    error: str | None = None


class NodeState(Struct, frozen=True, gc=False):
    """The state of a node.

    ``job``: the job that determines it. ``inferred``: done because a descendant was submitted.
    ``superseded``: invalidated by a later submission of an ancestor. ``submitted``: time of the
    last submission. ``failure``: why it failed, unless job events show it. ``failed_ancestor``: the
    failed ancestor of a futile node. ``can_retry``: failed with retries left, which its DAGMan, if
    it has ended, did not use. ``aborts``: its value equals that of its ABORT-DAG-ON;
    ``unless_exit``: that of its UNLESS-EXIT.
    """

    state: State
    since: datetime | None = None
    job: LoggedJob | None = None
    inferred: bool = False
    superseded: bool = False
    submitted: datetime | None = None
    failure: NodeFailure | None = None
    failed_ancestor: NodeKey | None = None
    can_retry: bool = False
    aborts: bool = False
    unless_exit: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether DAGMan has not read the end of its job."""
        return self.failure is not None and self.failure.part == "lost"

    @property
    def is_unknown(self) -> bool:
        """Whether no file says if the node is done; False if its DAGMan waits for a lost end."""
        return self.state is State.UNKNOWN and not self.is_lost


class PostResult(Struct, frozen=True):
    """Result of a POST script (016).

    ``cluster``: the submission it ran for, None when the submit failed. ``value``: return
    value, None for a signal.
    """

    time: datetime
    cluster: int | None
    ok: bool
    value: int | None = None


class SubmissionResult(Struct, frozen=True, gc=False):
    """Result of a node's submissions; a submission comprises all procs of one cluster.

    ``jobs``: those of all submissions, in order; ``submit_times``: their times. ``state``,
    ``since``: those of the last submission; ``job``: the one that determines its state.
    ``success_job``, ``success_index``: the execution that completed the node, the last good one of
    its last good job; None without one.
    """

    jobs: tuple[LoggedJob, ...]
    submit_times: tuple[datetime | None, ...]
    state: State
    since: datetime | None
    job: LoggedJob
    success_job: JobKey | None
    success_index: int

    @property
    def procs(self) -> list[LoggedJob]:
        """The jobs of the last submission."""
        last = self.job.cluster, self.job.subproc
        return [job for job in self.jobs if (job.cluster, job.subproc) == last]


class NodeRecord(Struct, gc=False):
    """A node of one DAG, identified by (DAG, node name), with its jobs and scripts.

    ``posts`` and ``skips`` are tuples, since most nodes, which have no scripts, share one empty
    tuple. ``result``: that of its jobs as found by :func:`submission_result`. ``possible``:
    jobs that may belong to it, or to a node of another DAG. ``own_state``: its state regardless of
    other nodes; ``state``: its state; both None until they are resolved. ``component``: that of its
    DAG with this node.
    """

    key: NodeKey
    node: Node
    jobs: tuple[LoggedJob, ...] = ()
    posts: tuple[PostResult, ...] = ()
    skips: tuple[datetime, ...] = ()
    result: SubmissionResult | None = None
    possible: frozenset[JobKey] = frozenset()
    own_state: NodeState | None = None
    state: NodeState | None = None
    component: Component | None = None


def submission_result(record: NodeRecord) -> SubmissionResult | None:
    """The result of the node's submissions, None without any; found once until they change."""
    if record.result is None and record.jobs:
        record.result = _submission_result(record.jobs)
    return record.result


def _submission_result(all_jobs: tuple[LoggedJob, ...]) -> SubmissionResult:
    by_cluster: dict[tuple[int, int], list[LoggedJob]] = {}
    for job in all_jobs:
        by_cluster.setdefault((job.cluster, job.subproc), []).append(job)
    submissions: list[tuple[datetime, int, list[LoggedJob]]] = []
    for (cluster, _), jobs in by_cluster.items():
        jobs.sort(key=lambda job: (job.proc, job.subproc))
        times = [time for time in map(_first_sign, jobs) if time is not None]
        submissions.append((min(times, default=datetime.min), cluster, jobs))
    submissions.sort(key=lambda submission: submission[:2])
    submit_times = tuple(time if time > datetime.min else None for time, _, _ in submissions)
    state, since, job = _submission_state(submissions[-1][2])
    in_order = tuple([job for _, _, procs in submissions for job in procs])
    success_job, success_index = _last_success(jobs for _, _, jobs in reversed(submissions))
    return SubmissionResult(
        jobs=all_jobs if in_order == all_jobs else in_order,
        submit_times=submit_times,
        state=state,
        since=since,
        job=job,
        success_job=success_job,
        success_index=success_index,
    )


def _first_sign(job: LoggedJob) -> datetime | None:
    history = job.history()
    return history.submitted or history.first or job.newest_time


def _submission_state(procs: Sequence[LoggedJob]) -> tuple[State, datetime | None, LoggedJob]:
    """State and time of a submission, and the job that determines them.

    That is the worst proc in the queue, else the worst that has left it. If all materialized procs
    have completed, and more may follow, the submission is idle.
    """
    known = [(job, history) for job in procs if (history := job.history()).state is not None]
    if not known:
        return State.IDLE, procs[0].newest_time, procs[0]
    job, history = min(known, key=lambda pair: WORST_FIRST.index(pair[1].state or State.IDLE))
    if history.state is State.COMPLETED:
        job, history = max(known, key=lambda pair: pair[1].since or datetime.min)
        if job.factory is not None and not job.factory.has_ended:
            return State.IDLE, history.since, job
    return history.state or State.IDLE, history.since, job


def _last_success(submissions: Iterable[Sequence[LoggedJob]]) -> tuple[JobKey | None, int]:
    """The job and the index of the good execution that ended last, of the first with one.

    The last of several procs completes their node.
    """
    for procs in submissions:
        successes = [
            (execution.end or datetime.min, (job.key, index))
            for job in procs
            for index, execution in enumerate(job.history().executions)
            if execution.outcome is Outcome.GOOD
        ]
        if successes:
            return max(successes, key=lambda success: success[0])[1]
    return None, 0


SERVICE_REMOVAL_REASON: Final = "Removed by DAGMan"
"""DAGMan's reason for the removal of SERVICE nodes. Source: ``RemoveServiceNodes`` in
``dag.cpp``, ``RemoveBatchJob`` in ``dag.h``."""


def removed_at_dag_end(job: LoggedJob) -> bool:
    """Whether the job was removed because its DAG ended."""
    reason = job.history().removal or ""
    return job.removed_with_dag or reason.startswith(SERVICE_REMOVAL_REASON)


class NodeResolver:
    """Resolves the own state of one node, regardless of other nodes.

    ``inputs``: what the states of all nodes of its DAG depend on. Reports after the DAG's cut are
    ignored.
    """

    def __init__(self, dag: Dag, inputs: Inputs, record: NodeRecord) -> None:
        self._dag, self._alive, self._inputs = dag, inputs.alive, inputs
        self._record, self._node = record, record.node
        self._result = result = submission_result(record)
        self._submitted = result.submit_times[-1] if result is not None else None
        self._post = self._post_result()
        self._reports = self._read_reports()
        self._report = self._newest_report()

    def resolve(self) -> NodeState:
        """The node's own state."""
        skip, result = self._last_skip(), self._result
        is_done = self._node.name in self._inputs.done
        if not is_done and self._predates_run(skip):
            # Its jobs belong to an earlier run: DAGMan ignored them when it started again.
            if result is not None and result.state in ACTIVE:
                return NodeState(result.state, result.since, result.job, submitted=self._submitted)
            return NodeState(State.WAITING, superseded=result is not None)
        if skip is not None:
            return NodeState(State.SKIPPED, skip.time)
        if is_done:
            return self._resolve_done()
        return self._resolve_without_job() if result is None else self._resolve_with_job(result)

    def _read_reports(self) -> list[NodeReport]:
        """DAGMan's reports about the node up to the cut, with local times and in their order."""
        reports: list[NodeReport] = []
        # Within one second reports of the jobstate log come last: DAGMan may buffer lines of
        # its .out, but never of the jobstate log.
        for report in sorted(
            self._dag.node_reports.get(self._node.name, ()),
            key=lambda report: report.epoch is not None,
        ):
            time = report.time
            if time is None and report.epoch is not None:
                if self._dag.is_after_cut(report.epoch) is not False:
                    continue
                time = self._dag.clock.to_local(report.epoch)
            reports.append(NodeReport(report.kind, time, value=report.value, text=report.text))
        reports.sort(key=_time_of)
        return reports

    def _newest_report(self) -> NodeReport | None:
        newest = self._reports[-1] if self._reports else None
        status = self._status_report()
        if status is not None and (
            newest is None or (status.time and newest.time and status.time > newest.time)
        ):
            newest = status
        return newest

    def _status_report(self) -> NodeReport | None:
        status, name = self._dag.status, self._node.name
        if status is None or name not in status.nodes:
            return None
        local = status.local
        if local is None and status.epoch is not None:
            local = self._dag.clock.to_local(status.epoch)
        found = status.nodes[name]
        if found.details.startswith(REMOVAL_DETAILS):
            return None
        kind = STATUS_REPORT_KINDS.get(found.status)
        if kind is None:
            return None
        if kind is MessageKind.NODE_FAILED and found.procs_queued:
            # DAGMan removes the remaining procs, and may then retry the node.
            kind = MessageKind.POST_FAILED
        return NodeReport(kind, local, value=found.retry_count, text=found.details or None)

    def _rescue_report(self) -> NodeReport | None:
        """The failure of a node that the newest rescue file reports, if its job does not show it.

        If the node's job succeeded, its POST script failed. A later DAGMan may have run a node
        without a job again.
        """
        rescue, is_job_here = self._dag.current_rescue(), self._result is not None
        if rescue is None or rescue.created is None or self._node.name not in rescue.failed:
            return None
        time = self._dag.clock.to_local(rescue.created.timestamp())
        if is_job_here:
            post = NodeReport(MessageKind.NODE_FAILED, time, text=failure_text("post", None))
            return post if self._node.post is not None else None
        starts, may_run = self._dag.run_starts(), self._alive or self._record.possible
        is_over = time is not None and starts and max(starts) <= time and not may_run
        return NodeReport(MessageKind.NODE_FAILED, time) if is_over else None

    def _post_result(self) -> PostResult | None:
        """The newest POST script's result, if it may be that of the last submission."""
        if self._result is None:
            return self._record.posts[-1] if self._record.posts else None
        for post in reversed(self._record.posts):
            if post.cluster == self._result.job.cluster:
                return post
            if self._submitted is None or post.time >= self._submitted:
                return post if post.cluster is None or post.cluster <= 0 else None
        return None

    def _predates_run(self, skip: NodeReport | None) -> bool:
        """Whether all evidence about the node is older than the newest DAGMan run."""
        if self._inputs.fresh_start is None:
            return False
        reported = self._report.time if self._report is not None else None
        skipped = skip.time if skip is not None else None
        times = (time for time in (reported, self._submitted, skipped) if time is not None)
        newest = max(times, default=None)
        return newest is not None and newest < self._inputs.fresh_start

    def _resolve_done(self) -> NodeState:
        """A node that a file marks as done: since its POST script ended, or else its job."""
        result, report, post = self._result, self._report, self._post
        if result is None:
            return NodeState(State.COMPLETED)
        since = None if result.state in ACTIVE else result.since
        if post is not None and post.ok:
            since = post.time
        elif (
            result.state is not State.COMPLETED
            and report is not None
            and report.kind is MessageKind.POST_OK
            and _is_newer(report, since)
        ):
            since = report.time
        return NodeState(State.COMPLETED, since, result.job, submitted=self._submitted)

    def _last_skip(self) -> NodeReport | None:
        """The report that PRE_SKIP ended the node, unless DAGMan continued with it since.

        A rescue file then marks it ``DONE``; earlier, interrupted jobs do not matter.
        """
        reports = self._reports
        skips = [report for report in reports if report.kind is MessageKind.PRE_SKIPPED]
        skips += [NodeReport(MessageKind.PRE_SKIPPED, time) for time in self._record.skips]
        if not skips:
            return None
        last = max(skips, key=_time_of)
        if last.time is None:
            return last if reports[-1].kind is MessageKind.PRE_SKIPPED else None
        done = self._node.name in self._inputs.done
        later_reports = [
            report
            for report in reports
            if _time_of(report) > last.time and (report.kind in REPORTS_WITH_JOB or not done)
        ]
        is_later = self._submitted is not None and self._submitted > last.time
        return None if later_reports or is_later else last

    def _resolve_with_job(self, result: SubmissionResult) -> NodeState:
        state, since, job = result.state, result.since, result.job
        report = self._report = self._report or self._rescue_report()
        if (
            self._alive
            and state not in ACTIVE
            and since is not None
            and report is not None
            and report.kind is MessageKind.SUBMITTED
            and _is_newer(report, since)
        ):
            # DAGMan has submitted the node again, before the job logs show it.
            return NodeState(State.IDLE, report.time, None, submitted=report.time)
        post = self._post
        if post is None and (missed := self._missed_end(result)) is not None:
            return missed
        if post is not None:
            state, since = (State.COMPLETED if post.ok else State.FAILED), post.time
            if report is not None and report.kind in RETRY_REPORTS and _is_newer(report, since):
                state, since = self._state_by_newer_report(report, state, since)
        elif report is not None and _is_newer(report, since):
            is_of_one_proc = report.kind in (MessageKind.JOB_OK, MessageKind.JOB_FAILED)
            if len(result.procs) == 1 or not is_of_one_proc:
                state, since = self._state_by_newer_report(report, state, since)
        elif self._awaits_post_script(result):
            state = self._state_before_post_script(state)
        resolved = self._with_failure(NodeState(state, since, job, submitted=self._submitted))
        is_service = self._node.kind is NodeKind.SERVICE
        if resolved.state is State.REMOVED and is_service and removed_at_dag_end(job):
            # A SERVICE node runs until its DAG ends: removal is success.
            return replace(resolved, state=State.COMPLETED)
        return resolved

    def _missed_end(self, result: SubmissionResult) -> NodeState | None:
        """The state of a node whose job has ended while DAGMan still waits for it, by its files.

        DAGMan continues with the node only after it has read that end, which may never happen.
        """
        ended, job = result.since, result.job
        has_read = self._report is not None and self._report.kind not in REPORTS_BEFORE_JOB_END
        if ended is None or has_read or result.state in ACTIVE:
            return None
        if self._dag.missed_end(self._node.name, job.cluster, ended) is None:
            return None
        text = f"DAGMan has not read the end of its job {job.cluster}.{job.proc}"
        failure = NodeFailure("lost", text)
        # A DAGMan that ended without reading it left the node to the next DAGMan.
        state = State.UNKNOWN if self._alive else State.WAITING
        return NodeState(state, ended, job, submitted=self._submitted, failure=failure)

    def _awaits_post_script(self, result: SubmissionResult) -> bool:
        """Whether the job has ended, and DAGMan has not ended the POST script by its files.

        These are a report about this node, or else nodes.log, which would have the 016.
        """
        if self._node.post is None or result.state in ACTIVE:
            return False
        if self._report is not None:
            return self._report.kind in REPORTS_BEFORE_JOB_END
        return any(job.nodes_logs for job in result.procs)

    def _resolve_without_job(self) -> NodeState:
        """The state of a node without a job in any log."""
        self._report = self._report or self._rescue_report()
        state, since = self._state_without_job()
        if self._record.possible and state is State.WAITING and not any(self._dag.coverage_ends()):
            # A job in the log may be its own, and no file of DAGMan lists what was submitted.
            return NodeState(State.UNKNOWN)
        # The time of the last reported submission: job logs can lag or be lost.
        times = [each.time for each in self._reports if each.kind is MessageKind.SUBMITTED]
        submitted = max((time for time in times if time is not None), default=None)
        return self._with_failure(NodeState(state, since, submitted=submitted))

    def _state_without_job(self) -> tuple[State, datetime | None]:
        post, report = self._post, self._report
        if post is not None:
            return State.COMPLETED if post.ok else State.FAILED, post.time
        if report is None:
            return State.WAITING, None
        match report.kind:
            case MessageKind.PRE_STARTED | MessageKind.PRE_OK:
                return (State.PRE if self._alive else State.WAITING), report.time
            case claim if claim in FAILED_PARTS or claim in FINAL_FAILURE_REPORTS:
                return State.FAILED, report.time
            case MessageKind.RETRYING:
                return (State.RETRYING if self._alive else State.FAILED), report.time
            case MessageKind.SUBMITTED:
                return (State.IDLE if self._alive else State.WAITING), report.time
            case MessageKind.POST_STARTED:
                return (State.POST if self._alive else State.WAITING), report.time
            case MessageKind.POST_OK | MessageKind.JOB_OK:
                return State.COMPLETED, report.time
            case _:
                return State.WAITING, None

    def _state_before_post_script(self, state: State) -> State:
        """The state of a node whose POST script has not ended; ``state``: that of its job.

        DAGMan runs the script next, whatever the job returned. If it has ended instead, the next
        one runs the node again.
        """
        if self._alive:
            return State.POST
        if state is not State.COMPLETED:
            return state
        return State.WAITING if self._dag.has_run() else State.UNKNOWN

    def _state_by_newer_report(
        self, report: NodeReport, state: State, since: datetime | None
    ) -> tuple[State, datetime | None]:
        # The job may be open in a log that has lost its end, or lags behind DAGMan's files.
        match report.kind:
            case MessageKind.PRE_STARTED:
                return (State.PRE if self._alive else state), report.time
            case MessageKind.POST_STARTED if self._alive or state is State.COMPLETED:
                return self._state_before_post_script(state), report.time
            case MessageKind.PRE_FAILED | MessageKind.SUBMIT_FAILED:
                return State.FAILED, report.time
            case MessageKind.POST_OK | MessageKind.JOB_OK:
                return State.COMPLETED, since if state is State.COMPLETED else report.time
            case MessageKind.POST_FAILED | MessageKind.JOB_FAILED | MessageKind.NODE_FAILED if (
                state not in FAILED_JOB
            ):
                return State.FAILED, report.time
            case MessageKind.RETRYING if self._alive:
                return State.RETRYING, report.time
            case _:
                return state, since

    # --- failures -----------------------------------------------------------------------

    def _with_failure(self, resolved: NodeState) -> NodeState:
        """The state with the reason of its failure, and whether DAGMan retries the node."""
        state, since, failure, again = resolved.state, resolved.since, None, False
        abort_on = self._node.abort_on
        if state not in (State.FAILED, State.RETRYING, State.REMOVED):
            ended = state is State.COMPLETED and abort_on == 0
            return replace(resolved, aborts=True) if ended else resolved
        if state is not State.REMOVED:
            failure_time, failure = self._failure()
            since = failure_time or since
        aborts = unless_exit = False
        if state is not State.RETRYING:
            codes = self._exit_codes(failure)
            aborts = abort_on is not None and abort_on in codes
            unless_exit = any(code == self._node.unless_exit for code in codes if code is not None)
            again = self._retries_left(codes)
            if again and self._alive:
                state = State.RETRYING
        return replace(
            resolved,
            state=state,
            since=since,
            failure=failure,
            can_retry=again,
            aborts=aborts,
            unless_exit=unless_exit,
        )

    def _failure(self) -> tuple[datetime | None, NodeFailure | None]:
        """When and why the node failed, unless its job's events or 016 show it."""
        report, result, node = self._report, self._result, self._node
        if report is None:
            return None, None
        reports = [each for each in self._reports if each.kind not in REPORTS_AFTER_FAILURE]
        last = reports[-1] if reports else None
        details = report.text if report.kind is MessageKind.NODE_FAILED else None
        if last is not None and last.kind in FAILED_PARTS:
            part, time, value = FAILED_PARTS[last.kind], last.time, last.value
        elif details is not None:
            part, time, value = failed_part(details), report.time, None
        else:
            return None, None
        older = time is not None and self._submitted is not None and time < self._submitted
        is_in_events = self._post is not None or (result is not None and result.state in FAILED_JOB)
        # Another file of DAGMan's may repeat the report without the text.
        doubles = [
            each.text for each in reports[-2:] if last is not None and each.kind is last.kind
        ]
        not_started = next(filter(None, doubles), None) if part in ("pre", "post") else None
        if older or (part in ("job", "post") and is_in_events and not_started is None):
            return None, None
        submit = last is not None and last.kind is MessageKind.SUBMIT_FAILED
        error = (last.text or "").rstrip(" :") if last is not None and submit else None
        if error and node.submit:
            error = error.replace("of submit file", f"of {node.submit}")
        if not_started is not None:
            details = f"{part.upper()} Script {not_started}"
        text = name_script(details or failure_text(part, value), part, node)
        if error:
            text = f"{text}: {error}"
        return time, NodeFailure(part, text, value, error)

    def _exit_codes(self, failure: NodeFailure | None) -> tuple[int | None, ...]:
        """The values that DAGMan may take as the node's return value, one per proc.

        A signal counts as its negative number. Source: ``Dag::ProcessTerminatedEvent``.
        """
        if failure is not None:
            return (failure.value,)
        if self._post is not None:
            return (self._post.value,)
        histories = [job.history() for job in self._result.procs] if self._result else []
        codes = [-h.signal if h.signal is not None else h.return_value for h in histories]
        return tuple(code for code in codes if code)

    def _retries_left(self, codes: Sequence[int | None]) -> bool:
        node, result = self._node, self._result
        if node.retries <= 0 or node.kind is NodeKind.SERVICE:
            return False
        if self._inputs.aborted or self._gave_up():
            return False
        procs = result.procs if result is not None else ()
        removed = [job.history().since for job in procs if job.removed_with_dag]
        if not all(map(self._dag.counts_removal, removed)):
            return False
        if any(code is not None and code in (node.unless_exit, node.abort_on) for code in codes):
            return False
        return retries_left(self._dag, self._record) > 0

    def _gave_up(self) -> bool:
        """Whether DAGMan reported that it gave up after the last submission."""
        report = self._report
        if report is None or report.kind not in FINAL_FAILURE_REPORTS:
            return False
        return self._submitted is None or report.time is None or report.time >= self._submitted


def _time_of(report: NodeReport) -> datetime:
    return report.time or datetime.min


def _is_newer(report: NodeReport, since: datetime | None) -> bool:
    if report.time is None:
        return False
    if since is None:
        return True
    # A POST script may start, and end, in the same second in which its job ended.
    return report.time >= since if report.kind in POST_REPORTS else report.time > since


def retries_left(dag: Dag, record: NodeRecord) -> int:
    """Number of retries that the current DAGMan run has left for the node."""
    used, started = tries(dag, record)
    # A retry that has started, but whose submission has not been read yet, still counts.
    return max(0, record.node.retries + 1 - used, int(started))


def tries(dag: Dag, record: NodeRecord) -> tuple[int, bool]:
    """Number of tries of the node in the current DAGMan run; a rescue DAG starts from 0.

    Also whether one has started whose submission has not been read yet.
    """
    run_start, result = dag.last_fresh_start(), submission_result(record)

    def in_this_run(time: datetime | None) -> bool:
        return run_start is None or time is None or time >= run_start

    submissions = sum(map(in_this_run, result.submit_times if result is not None else ()))
    reported = dag.node_reports.get(record.node.name, ())
    reports = [each for each in reported if each.epoch is None and in_this_run(each.time)]
    retry = max(
        (report.value or 0 for report in reports if report.kind is MessageKind.RETRYING), default=0
    )
    started = bool(reports) and reports[-1].kind is MessageKind.RETRYING
    return max(submissions, retry + 1), started and retry >= submissions


# --- all nodes of a DAG ------------------------------------------------------------------------


END_TOLERANCE: Final = timedelta(seconds=1)
"""DAGMan submits nothing after its end; timestamps of two logs may differ by this."""


class DagStates:
    """The states of some DAGs and of their nodes."""

    def __init__(self) -> None:
        self.set_dags({}, {})

    def set_dags(self, dags: Mapping[str, Dag], nodes: Mapping[NodeKey, NodeRecord]) -> None:
        """Set the DAGs and their nodes, and drop all states."""
        self._dags, self._nodes = dags, nodes
        self._tables: dict[str, NodeStateTable] = {}
        self.live = False
        """As in the last call of :meth:`table`."""
        self.sub_dags = sub_dags(dags)
        self._hosts: dict[str, set[NodeKey]] = {}
        """By sub-DAG, the SUBDAG nodes that run it."""
        for node, inner in self.sub_dags.items():
            self._hosts.setdefault(inner, set()).add(node)

    def mark_changed(self, nodes: Iterable[NodeKey]) -> None:
        """Mark nodes whose reports or jobs may have changed."""
        for key in nodes:
            if (record := self._nodes.get(key)) is not None:
                record.result = None
            if (table := self._tables.get(key[0])) is not None:
                table.pending.add(key[1])
            if key[0] in self._hosts:
                self._mark_hosts(key[0])

    def _mark_hosts(self, dag_key: str) -> None:
        """Mark the SUBDAG nodes that contain a DAG, directly or not."""
        marked: set[NodeKey] = set()
        dags = [dag_key]
        while dags:
            for host in self._hosts.get(dags.pop(), set()) - marked:
                marked.add(host)
                dags.append(host[0])
                if (table := self._tables.get(host[0])) is not None:
                    table.pending.add(host[1])

    def invalidate(self, dag_key: str | None = None) -> None:
        """Resolve all nodes of one DAG, or of all DAGs, again.

        Needed after a change of the clock or of DAGMan's files, and if a DAG has lost nodes.
        """
        for key, table in self._tables.items():
            if dag_key is None or key == dag_key:
                table.is_valid = False
                self._mark_hosts(key)

    def table(self, dag_key: str, live: bool = False, limit: int | None = None) -> NodeStateTable:
        """The states of a DAG's nodes; resolves at most ``limit`` changed nodes."""
        dag, self.live = self._dags[dag_key], live
        ended = dag.end_state()
        evidence = self._evidence_in_hosts(dag)
        if evidence is None and dag_key != NO_DAG:
            evidence = unrecorded_evidence(dag, ended)
        run = dag.current_run()
        # A DAGMan that is being removed removes its jobs first: they are not retried.
        may_be_alive = ended is None and not (run is not None and run.removed)
        inputs = Inputs(
            alive=may_be_alive and (dag.has_run() or live),
            done=dag.done_nodes(),
            fresh_start=dag.fresh_start(),
            last_fresh_start=dag.last_fresh_start(),
            aborted=dag.aborted,
            recoveries=dag.recovery_count(),
            evidence=evidence,
            status=dag.status,
            failed_host=self._failed_host(dag),
        )
        table = self._tables.get(dag_key)
        if table is None or not table.is_valid or table.inputs != inputs:
            table = self._tables[dag_key] = NodeStateTable(dag, self._nodes, inputs)
        if table.pending:

            def resolve(name: str) -> NodeState:
                key = (dag_key, name)
                state = NodeResolver(dag, inputs, self._nodes[key]).resolve()
                if state.state is not State.WAITING or key not in self.sub_dags or dag.has_run():
                    return state
                return self._state_of_sub_dag(key) or state

            table.resolve(resolve, limit)
        return table

    def _evidence_in_hosts(self, dag: Dag) -> UnrecordedEvidence | None:
        """Evidence about a sub-DAG of which nothing has run here, although its nodes are done.

        These are its SUBDAG nodes, as resolved last; a POST script may have made them succeed.
        """
        hosts = self._hosts.get(dag.key, ())
        states = [self._nodes[host].state for host in hosts]
        if not states or any(state is None or state.state not in DONE for state in states):
            return None
        if dag.has_run() or any(self._nodes[dag.key, name].jobs for name in dag.workflow.nodes):
            return None
        done = not any(self._nodes[host].node.post for host in hosts) and succeeds_with_all(dag)
        return UnrecordedEvidence(done=done, recorded=False, has_ended=True)

    def _failed_host(self, dag: Dag) -> tuple[datetime, NodeKey] | None:
        """Since when, and by which failed node, no SUBDAG node can run this sub-DAG."""
        causes: list[tuple[datetime, NodeKey]] = []
        for host in self._hosts.get(dag.key, ()):
            state = self._nodes[host].state or NodeState(State.WAITING)
            failed = not dag.has_run() and has_failed(state, self._dags[host[0]])
            if not failed and state.state is not State.FUTILE:
                return None
            causes.append((state.since or datetime.min, state.failed_ancestor or host))
        return min(causes, default=None)

    def _state_of_sub_dag(self, key: NodeKey) -> NodeState | None:
        """The state of a SUBDAG node by the nodes of its sub-DAG; None if none of them ran.

        For DAGs without any file of DAGMan. If several nodes have the same sub-DAG, it is unknown
        which one ran it.
        """
        inner = self.sub_dags[key]
        dag_state, ended = self.dag_state(inner)
        if dag_state is DagState.NOT_SUBMITTED or self._dags[inner].is_top:
            return None
        if len(hosts := self._hosts[inner]) > 1:
            is_of_other = any(self._dags[host_dag].has_run() for host_dag, _ in hosts)
            return None if is_of_other else NodeState(State.UNKNOWN)
        states = self.table(inner, self.live).states.values()
        times = [time for each in states if (time := each.submitted or each.since) is not None]
        submitted = min(times, default=None)
        # Nodes that are done because this one is prove nothing about it.
        by_host = self._evidence_in_hosts(self._dags[inner]) is not None and any(
            each.inferred and each.since is None for each in states
        )
        if dag_state is DagState.DONE and self._nodes[key].node.post is None and not by_host:
            ended = ended or max((each.since for each in states if each.since), default=None)
            return NodeState(State.COMPLETED, ended, submitted=submitted)
        is_active = dag_state in ALIVE or any(each.state in ACTIVE for each in states)
        return NodeState(
            State.RUNNING if is_active else State.UNKNOWN, submitted, submitted=submitted
        )

    def unrecorded(self, dag_key: str) -> UnrecordedCounts | None:
        """The unrecorded nodes of a DAG, None if there are none; as resolved last."""
        table = self._tables.get(dag_key)
        return table.unrecorded if table is not None else None

    def aborting_node(self, dag_key: str) -> str | None:
        """The node whose value ended the DAG by its ABORT-DAG-ON; None without one.

        Uses the node states resolved last; DAGMan ends at once, so that without its output the
        value is enough. Source: ``Dag::CheckForDagAbort`` in ``dag.cpp``.
        """
        table, dag = self._tables.get(dag_key), self._dags[dag_key]
        if table is None or not table.aborts or (dag.processes and not dag.aborted):
            return None
        return max((state.since or datetime.min, name) for name, state in table.aborts.items())[1]

    def was_active_after(self, dag_key: str, moment: datetime | None) -> bool:
        """Whether a node was submitted, or the node status file written, after this moment.

        Then a DAGMan that ended at that moment is not the newest one. Uses the node states
        resolved last.
        """
        table, status = self._tables.get(dag_key), self._dags[dag_key].status
        signs = table and table.last_submitted, status and status.local
        return any(moment and sign and sign - moment > END_TOLERANCE for sign in signs)

    def dag_state(self, dag_key: str) -> tuple[DagState, datetime | None]:
        """The DAG's state and the time of its end, if it has ended."""
        dag = self._dags[dag_key]
        ended = dag.end_state()
        if ended is not None and not self.was_active_after(dag_key, ended[1]):
            return ended
        if ended is None and dag.has_run():
            return dag.live_state(), None
        states = self.table(dag_key, self.live).states.values()
        records = [self._nodes[(dag_key, name)] for name in dag.workflow.nodes]
        has_jobs = any(record.jobs for record in records)
        if not has_jobs and not any(state.submitted for state in states):
            # A rescue file shows that a DAGMan ran and ended; a new one may have started.
            may_have_run = dag.rescue_files_at_cut() or any(record.possible for record in records)
            may_have_run = may_have_run or any(state.state is State.UNKNOWN for state in states)
            return (DagState.UNKNOWN if may_have_run else DagState.NOT_SUBMITTED), None
        if all(state.state in DONE for state in states):
            return DagState.DONE, None
        return DagState.UNKNOWN, None


class Inputs(NamedTuple):
    """What the states of all nodes of a DAG depend on, besides their own jobs and reports.

    ``alive``: its DAGMan has not ended. ``done``: the nodes that a file marks ``DONE``.
    ``fresh_start``, ``last_fresh_start``, ``aborted``, ``status``: as in :class:`Dag`, and
    ``recoveries``.
    ``evidence``: that about unrecorded nodes. ``failed_host``: as in :class:`DagStates`.
    """

    alive: bool
    done: frozenset[str]
    fresh_start: datetime | None
    last_fresh_start: datetime | None
    aborted: bool
    recoveries: int
    evidence: UnrecordedEvidence | None
    status: StatusFile | None
    failed_host: tuple[datetime, NodeKey] | None


class NodeStateTable:
    """The states of one DAG's nodes, as long as the ``inputs`` of all of them stay the same.

    Each node's own state is kept until it is ``pending``. The ``states`` follow from these: a node
    that was submitted before one of its ancestors was submitted again is superseded; one whose
    child was submitted after it must be done, even if its log lost the end (``inferred``); a join
    node is done with its parents; a waiting descendant of a node that failed for good is futile.
    Nodes of a cycle have their own states.

    ``last_submitted``: the newest submission of any node. ``is_valid``: False if all nodes have to
    be resolved again, by another table.
    """

    def __init__(self, dag: Dag, records: Mapping[NodeKey, NodeRecord], inputs: Inputs) -> None:
        self.inputs, self.is_valid = inputs, True
        self.pending = set(dag.workflow.nodes)
        self.last_submitted: datetime | None = None
        self._dag = dag
        self._nodes = dag.workflow.nodes
        self._records = records
        for name in self._nodes:
            self._record(name).own_state = None
        # Nodes of no DAG do not affect each other, and more may be added.
        for component in dag.facts.components if dag.key != NO_DAG else ():
            for name in (*component.order, *component.unordered):
                records[dag.key, name].component = component
        self._outdated: dict[int, Component] = {}
        self._verdict = State.WAITING
        self._unrecorded: dict[int, UnrecordedCounts] = {}

    @property
    def states(self) -> dict[str, NodeState]:
        """The states of the nodes that have been resolved, by name."""
        return {name: state for name in self._nodes if (state := self._record(name).state)}

    @property
    def aborts(self) -> dict[str, NodeState]:
        """The states of the nodes that returned the value of their ABORT-DAG-ON."""
        names = self._dag.facts.aborting if self._dag.key != NO_DAG else ()
        states = ((name, self._record(name).state) for name in names)
        return {name: state for name, state in states if state is not None and state.aborts}

    @property
    def unrecorded(self) -> UnrecordedCounts | None:
        """The unrecorded nodes, None if the files cover all nodes."""
        if self.inputs.evidence is None:
            return None
        counts = (astuple(each) for each in self._unrecorded.values())
        return UnrecordedCounts(*map(sum, zip(*counts, strict=True)))

    def resolve(self, resolve_own: Callable[[str], NodeState], limit: int | None = None) -> None:
        """Resolve at most ``limit`` pending nodes, and after the last of them the ``states``."""
        resolved = list(islice(self.pending, limit))
        self.pending.difference_update(resolved)
        for name in resolved:
            record, state = self._record(name), resolve_own(name)
            if state == record.own_state:
                continue
            record.own_state = state
            if state.submitted is not None:
                self.last_submitted = max(self.last_submitted or datetime.min, state.submitted)
            if record.component is None:
                record.state = state
            else:
                self._outdated[id(record.component)] = record.component
        if self.pending or not self._outdated:
            return
        self._resolve_components(self._outdated.values())
        self._outdated = {}
        unrecorded, evidence = self.unrecorded, self.inputs.evidence
        if unrecorded is not None and evidence is not None:
            verdict = evidence.verdict(unrecorded)
            if verdict is not self._verdict:
                self._verdict = verdict
                self._resolve_components(self._dag.facts.components)

    def _resolve_components(self, components: Iterable[Component]) -> None:
        evidence = self.inputs.evidence
        for component in components:
            unrecorded = None
            if evidence is not None:
                unrecorded = UnrecordedNodes(evidence, self._nodes, self._verdict)
                self._unrecorded[id(component)] = unrecorded.counts
            inferred = self._inferred_states(component)
            final = self._final_states(component.order, inferred, unrecorded)
            for name, state in final.items():
                self._record(name).state = state

    def _inferred_states(self, component: Component) -> dict[str, NodeState]:
        """The states after superseding nodes by ancestors and inferring done from descendants."""
        nodes, order = self._nodes, component.order
        records = map(self._record, (*order, *component.unordered))
        states = {each.node.name: state for each in records if (state := each.own_state)}
        newest: dict[str, datetime] = {}
        for name in order:
            times = (newest.get(parent) for parent in nodes[name].parents)
            latest = max((time for time in times if time is not None), default=None)
            state, submitted = states[name], states[name].submitted
            if latest is not None and submitted is not None and submitted < latest:
                if name not in self.inputs.done and state.state not in ACTIVE:
                    states[name] = NodeState(State.WAITING, superseded=True)
            else:
                latest = submitted or latest
            if latest is not None:
                newest[name] = latest
        for name in reversed(order):
            if states[name].state not in DONE:
                states[name] = infer_done(nodes[name], states[name], nodes, states)
        return states

    def _record(self, name: str) -> NodeRecord:
        return self._records[self._dag.key, name]

    def _final_states(
        self,
        order: Iterable[str],
        inferred: Mapping[str, NodeState],
        unrecorded: UnrecordedNodes | None,
    ) -> dict[str, NodeState]:
        """The ``inferred`` states with complete joins, unrecorded nodes and futile ones."""
        nodes, states = self._nodes, dict(inferred)
        for name in order:
            node, state = nodes[name], states[name]
            if node.kind is NodeKind.JOIN:
                state = complete_join(node, state, states)
            if unrecorded is not None:
                state = unrecorded.resolve(name, state, states)
            if state.state is State.WAITING:
                state = self._mark_futile(node, state, states)
            states[name] = state
        return states

    def _failed_for_good(self, state: NodeState) -> bool:
        """Whether a node has failed for good in the current DAGMan run.

        A new run retries the nodes that failed in an earlier one.
        """
        run_start = self.inputs.last_fresh_start
        if run_start is not None and state.since is not None and state.since < run_start:
            return False
        return has_failed(state, self._dag)

    def _mark_futile(
        self, node: Node, state: NodeState, states: Mapping[str, NodeState]
    ) -> NodeState:
        """Mark a waiting descendant of a node that failed for good as futile.

        So are the nodes of a sub-DAG that it keeps from running. A child over a weak edge is not:
        its parent only has to end. Source: ``Node::SetDescendantsToFutile`` in ``node.cpp``.
        """
        first = self.inputs.failed_host
        for name in node.parents:
            parent = states.get(name)
            if parent is None:
                continue
            has_failed = name not in node.weak_parents and self._failed_for_good(parent)
            if parent.state is State.FUTILE or has_failed:
                failed = parent.failed_ancestor or (self._dag.key, name)
                candidate = parent.since or datetime.min, failed
                first = candidate if first is None else min(first, candidate)
        if first is None:
            return state
        since = None if first[0] == datetime.min else first[0]
        return NodeState(State.FUTILE, since, superseded=state.superseded, failed_ancestor=first[1])


def infer_done(
    node: Node, state: NodeState, nodes: Mapping[str, Node], states: Mapping[str, NodeState]
) -> NodeState:
    """Infer that a node is done because a child was submitted after it."""
    for child in node.children:
        if node.name in nodes[child].weak_parents:
            continue
        reached, time = _was_reached(states[child])
        if reached and (state.submitted is None or (time and time > state.submitted)):
            return NodeState(
                State.COMPLETED, time, state.job, inferred=True, submitted=state.submitted
            )
    return state


def _was_reached(child: NodeState) -> tuple[bool, datetime | None]:
    """Whether DAGMan reached this node, and when: then all its ancestors are done."""
    if child.superseded:
        return False, None
    if child.submitted is not None:
        return True, child.submitted
    return child.inferred or child.state in (State.PRE, State.SKIPPED), child.since


def has_failed(state: NodeState, dag: Dag) -> bool:
    """Whether the node has failed, as DAGMan counts.

    A node whose job a user removed has failed, one whose job was removed with its DAG only if
    DAGMan has read that. A node with retries left has not, although its DAG was removed.
    """
    if state.can_retry:
        return False
    if state.state is State.REMOVED and state.job is not None and state.job.removed_with_dag:
        return dag.counts_removal(state.since)
    return state.state in FAILED_JOB


def effective_parents(nodes: Mapping[str, Node], name: str) -> list[str]:
    """The parents of a node in the DAG's order, with joins replaced by their parents."""
    parents: set[str] = set()
    pending = list(nodes[name].parents) if name in nodes else []
    joins: set[str] = set()
    while pending:
        parent = pending.pop()
        node = nodes.get(parent)
        if node is None or parent in joins:
            continue
        if node.kind is NodeKind.JOIN:
            joins.add(parent)
            pending += node.parents
        else:
            parents.add(parent)
    return sorted(parents, key=lambda parent: (nodes[parent].line, parent))


def complete_join(node: Node, state: NodeState, states: Mapping[str, NodeState]) -> NodeState:
    """Mark a waiting join node as done if all its parents are done."""
    if state.state is not State.WAITING:
        return state
    parents = [states[parent].state for parent in node.parents if parent in states]
    done = bool(parents) and all(state in DONE for state in parents)
    return NodeState(State.COMPLETED) if done else state


# --- unrecorded nodes -----------------------------------------------------------------------------

CYCLE: Final = timedelta(seconds=5)
"""Time between two cycles of DAGMan: the default of ``DAGMAN_USER_LOG_SCAN_INTERVAL``."""

SUBMISSION: Final = timedelta(seconds=1)
"""Upper limit on the duration of one submission."""

ORDERED_KINDS: Final = (NodeKind.JOB, NodeKind.SUBDAG, NodeKind.JOIN)
"""Kinds of nodes that DAGMan runs in the order of the graph."""

THROTTLES: Final = ("-maxidle", "-maxjobs")
"""Options of condor_submit_dag that delay the submission of ready nodes."""


class UnrecordedEvidence(Struct, frozen=True):
    """Evidence about the unrecorded nodes of one DAG.

    ``done``: DAGMan ended, at ``ended``, with all nodes done. ``started``: start of the newest
    DAGMan run that started from its ``pre_completed`` DONE nodes. ``rescue_missing``: the rescue
    file that it used is missing. ``recorded``: a file has its submissions. ``unthrottled``: it
    submitted all ready nodes. ``has_ended``: its files prove that it ran, and none shows that it
    is still running.
    """

    done: bool = False
    ended: datetime | None = None
    started: datetime | None = None
    pre_completed: int | None = None
    rescue_missing: bool = False
    recorded: bool = True
    unthrottled: bool = False
    has_ended: bool = False

    def verdict(self, counts: UnrecordedCounts) -> State:
        """The common state of the unrecorded nodes."""
        if self.pre_completed is not None:
            missing = self.pre_completed - counts.done_before_run
            if missing <= 0:
                return State.WAITING
            return State.COMPLETED if missing == counts.unrecorded else State.UNKNOWN
        if self.has_ended and not (self.recorded or counts.submitted):
            return State.UNKNOWN
        if self.rescue_missing or counts.lost:
            return State.COMPLETED if self.unthrottled else State.UNKNOWN
        return State.WAITING


class UnrecordedCounts(Struct):
    """Numbers of nodes of a DAG, or of a component of it.

    ``unrecorded``: in no file. ``inferred``, ``unknown``: in no log, and assumed done, or unknown.
    ``lost``: without a record, although they must be done, since descendants were submitted.
    ``submitted``: those whose submission is known. ``done_before_run``: known to be done when
    the newest run started.
    """

    unrecorded: int = 0
    inferred: int = 0
    unknown: int = 0
    lost: int = 0
    submitted: int = 0
    done_before_run: int = 0


class UnrecordedNodes:
    """The unrecorded nodes of a component, found while its states are resolved in order.

    All parents of an unrecorded node were done when the newest DAGMan run started, or are
    unrecorded, too: descendants of a node that this run submitted are waiting or recorded.
    All unrecorded nodes of a DAG share one ``verdict``.
    """

    def __init__(
        self, evidence: UnrecordedEvidence, nodes: Mapping[str, Node], verdict: State
    ) -> None:
        self.counts = UnrecordedCounts()
        self._evidence = evidence
        self._nodes = nodes
        self._verdict = verdict
        self._names: set[str] = set()

    def resolve(self, name: str, state: NodeState, states: Mapping[str, NodeState]) -> NodeState:
        """Resolve a node with the recorded ``state``; those of its parents are final."""
        node, counts = self._nodes[name], self.counts
        state = self._resolve(node, state, states)
        if state.submitted is not None:
            counts.submitted += 1
        elif state.job is None:
            counts.inferred += state.inferred
            counts.unknown += state.state is State.UNKNOWN
        if name in self._names:
            counts.unrecorded += 1
        elif node.kind is not NodeKind.SERVICE:
            counts.done_before_run += self._was_done_before_run(state)
        return state

    def _resolve(self, node: Node, state: NodeState, states: Mapping[str, NodeState]) -> NodeState:
        evidence, verdict = self._evidence, self._verdict
        is_unsubmitted = state.job is None and state.submitted is None
        # Only these nodes have a job in a log if submitted: no NOOP, no sub-DAG, no join.
        may_be_lost = is_unsubmitted and node.kind is NodeKind.JOB and not node.noop
        self.counts.lost += state.inferred and may_be_lost
        if evidence.done and self._done_at_end(node, state):
            return NodeState(
                State.COMPLETED, None, state.job, inferred=True, submitted=state.submitted
            )
        is_failed = state.state in FAILED_JOB and state.failure is None
        if node.post is not None and is_failed and not evidence.recorded:
            # The POST script decides, and only DAGMan's files have its result.
            return NodeState(State.UNKNOWN, state.since, state.job, submitted=state.submitted)
        parents = [
            parent
            for parent in node.parents
            if parent in states and parent not in node.weak_parents
        ]
        is_plain = (
            state.state is State.WAITING and not state.superseded and node.kind in ORDERED_KINDS
        )
        is_unrecorded = is_plain and is_unsubmitted and state.since is None
        if not is_unrecorded or not all(
            parent in self._names or self._was_done_before_run(states[parent]) for parent in parents
        ):
            return state
        self._names.add(node.name)
        if verdict is State.WAITING:
            return state
        # A PRE script may have prevented its submission.
        is_unsure = node.pre is not None and evidence.pre_completed is None
        is_unsure = is_unsure or any(states[parent].state is State.UNKNOWN for parent in parents)
        if is_unsure or verdict is State.UNKNOWN:
            return NodeState(State.UNKNOWN)
        return NodeState(State.COMPLETED, inferred=True)

    def _done_at_end(self, node: Node, state: NodeState) -> bool:
        """Whether a node is done because DAGMan ended with all nodes done."""
        ended = self._evidence.ended
        if state.state in DONE or node.kind not in ORDERED_KINDS:
            return False
        return state.submitted is None or ended is None or state.submitted <= ended

    def _was_done_before_run(self, state: NodeState) -> bool:
        """Whether the node is done, and the newest DAGMan run did not submit it."""
        started, submitted = self._evidence.started, state.submitted
        is_of_run = submitted is not None and (started is None or submitted >= started)
        return state.state in DONE and not is_of_run


# --- evidence in DAGMan's files -----------------------------------------------------------------


def unrecorded_evidence(
    dag: Dag, ending: tuple[DagState, datetime | None] | None
) -> UnrecordedEvidence | None:
    """Evidence about the unrecorded nodes of ``dag``; None if its files cover all nodes."""
    nodes_log = dag.logs.nodes_log_span
    process = last_fresh_process(dag)
    pre_completed = process.pre_completed if process is not None else None
    rescue_missing = missing_rescue(dag) is not None
    over = ending is not None or bool(dag.rescue_files_at_cut()) or dag.metrics is not None
    done = ending is not None and ended_with_all_done(dag, ending[0])
    has_reports = bool(dag.processes) or bool(dag.jobstate_started) or dag.status is not None
    if not rescue_missing and not done and pre_completed in dag.done_counts():
        return None
    return UnrecordedEvidence(
        done=done,
        ended=ending[1] if ending is not None else None,
        started=process.start if process is not None else None,
        pre_completed=pre_completed,
        rescue_missing=rescue_missing,
        recorded=has_reports or nodes_log is not None,
        unthrottled=nodes_log is not None and _submitted_all_ready(dag, nodes_log),
        has_ended=over,
    )


def last_fresh_process(dag: Dag) -> Process | None:
    """The newest process that started from its DONE nodes and reported their number."""
    fresh = (each for each in reversed(dag.processes) if not each.recovery and not each.refused)
    return next((each for each in fresh if each.pre_completed is not None), None)


def current_metrics(dag: Dag) -> DagMetrics | None:
    """The metrics file, if the newest DAGMan run wrote it at its end."""
    run = dag.current_run()
    if run is None and dag.dagman_runs():
        return None
    return dag.metrics if dag.wrote_metrics(run) else None


def missing_rescue(dag: Dag) -> str | None:
    """The name of the rescue file that the newest DAGMan run used, if it is missing."""
    rescues = dag.rescue_files
    process = last_fresh_process(dag)
    if process is not None:
        name = PurePath(process.rescue).name if process.rescue else None
        number = rescue_number(name, PurePath(dag.file).name) if name else None
        return name if number is not None and number not in rescues else None
    metrics = current_metrics(dag)
    number = metrics.rescue_number if metrics is not None else None
    if not number and dag.condor_sub is not None:
        number = dag.condor_sub.rescue_from
    if not number or number in rescues:
        return None
    return f"{PurePath(dag.file).name}.rescue{number:03d}"


def ended_with_all_done(dag: Dag, state: DagState) -> bool:
    """Whether DAGMan ended with all nodes of this DAG file done.

    Its exit status alone does not show that: it can be that of a FINAL node, or be set by
    ABORT-DAG-ON.
    """
    metrics = current_metrics(dag)
    if metrics is not None and metrics.total_nodes is not None:
        if not matches_node_count(dag, metrics.total_nodes):
            return False
        return metrics.succeeded == metrics.total_nodes and not metrics.failed
    totals = reported_totals(dag)
    if state is not DagState.DONE or any(not matches_node_count(dag, total) for _, total in totals):
        return False
    return succeeds_with_all(dag)


def succeeds_with_all(dag: Dag) -> bool:
    """Whether the DAG can succeed with all its nodes done alone."""
    nodes = dag.workflow.nodes.values()
    return not any(node.kind is NodeKind.FINAL or node.abort_return == 0 for node in nodes)


def reported_totals(dag: Dag) -> list[tuple[str, int]]:
    """Names of files of the newest DAGMan run, with the number of nodes that each reports."""
    totals: list[tuple[str, int | None]] = []
    if dag.processes:
        totals.append((f"{dag.file}.dagman.out", dag.processes[-1].total))
    metrics = current_metrics(dag)
    if metrics is not None:
        totals.append((metrics.path.name, metrics.total_nodes))
    if dag.status is not None:
        totals.append((dag.status.path.name, dag.status.totals.get("NodesTotal")))
    return [(name, total) for name, total in totals if total]


def matches_node_count(dag: Dag, total: int) -> bool:
    """Whether this is the DAG file's number of nodes, with or without SERVICE nodes."""
    return dag.node_count <= total <= len(dag.workflow.nodes)


def effective_counts(
    dag: Dag, total: int, done: int, failed: int, unknown: int
) -> tuple[int, int, int]:
    """Numbers of all, done and failed nodes of a DAG.

    If the states of some are ``unknown``, DAGMan's own numbers from its metrics, if available.
    """
    metrics = current_metrics(dag) if unknown else None
    if metrics is None or metrics.total_nodes is None or metrics.succeeded is None:
        return total, done, failed
    return metrics.total_nodes, metrics.succeeded, metrics.failed or 0


def end_in_utc(dag: Dag) -> datetime | None:
    """End of the newest DAGMan run (aware), if a file has it in seconds since 1970."""
    metrics = current_metrics(dag)
    epoch = metrics.end if metrics is not None else None
    if epoch is None and (finished := dag.jobstate_end()) is not None:
        epoch = finished[0]
    return datetime.fromtimestamp(epoch, UTC) if epoch is not None else None


def _submitted_all_ready(dag: Dag, nodes_log: tuple[datetime, datetime]) -> bool:
    """Whether the DAGMan of the nodes.log had to submit all ready nodes, and had time to.

    False if its command line is unknown.
    """
    nodes = dag.workflow.nodes.values()
    if dag.condor_sub is None or dag.condor_sub.configured:
        return False
    if any(node.category is not None or node.submission.queue_count is None for node in nodes):
        return False
    jobs = sum(node.submission.queue_count or 0 for node in nodes)
    roots = sum(not node.parents for node in nodes)
    words = [word.lower() for word in dag.condor_sub.words]
    for option, value in pairwise(words):
        if option in THROTTLES and (not value.isdecimal() or 0 < int(value) < jobs):
            return False
    return nodes_log[1] - nodes_log[0] >= CYCLE + roots * SUBMISSION
