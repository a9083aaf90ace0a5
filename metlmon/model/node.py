"""Resolves the state of a node (``metlmon/README.md``, "Node state").

The precedence is: the DAG file, DAGMan's reports, the POST script's result, the job events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.dagman.records import NodeKind
from metlmon.model.clock import Clock
from metlmon.model.dag import (
    STATUS_REPORT_KINDS,
    Dag,
    NodeReport,
    NodeReportKind,
    failed_part,
    failure_text,
    name_script,
)
from metlmon.model.job_events import JobId, JobKey, LoggedJob, NodeRecord, PostResult
from metlmon.model.states import ACTIVE, FAILED_JOB, Outcome, State

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
"""Order in which a proc determines the node's state, if a submission has several."""

RETRY_REPORTS: Final = (NodeReportKind.PRE, NodeReportKind.PRE_FAILED, NodeReportKind.RETRYING)
"""Reports on a node that DAGMan retries after its POST script."""

REPORTS_BEFORE_JOB_END: Final = (
    NodeReportKind.PRE,
    NodeReportKind.PRE_OK,
    NodeReportKind.SUBMITTED,
    NodeReportKind.RETRYING,
)
"""Reports on a node before DAGMan has seen the end of its job."""

REPORTS_WITH_JOB: Final = (
    NodeReportKind.SUBMITTED,
    NodeReportKind.JOB_DONE,
    NodeReportKind.JOB_FAILED,
    NodeReportKind.POST,
)
"""Reports on a node that has a job."""

FINAL_FAILURE_REPORTS: Final = (NodeReportKind.SUBMIT_FAILED, NodeReportKind.GAVE_UP)
"""Reports on a node that DAGMan does not retry, whatever its RETRY is."""

FAILED_PARTS: Final = {
    NodeReportKind.PRE_FAILED: "pre",
    NodeReportKind.SUBMIT_FAILED: "submit",
    NodeReportKind.FAILED: "post",
    NodeReportKind.JOB_FAILED: "job",
}
"""The part of a node that failed, by the kind of DAGMan's report."""

REPORTS_AFTER_FAILURE: Final = (NodeReportKind.GAVE_UP, NodeReportKind.RETRYING)
"""Reports that DAGMan writes after the report of a failure."""

REMOVAL_DETAILS: Final = "Was STATUS_"
"""Prefix of StatusDetails of an unfinished node that a DAGMan being removed writes as ERROR.
It is ignored: the job may even have succeeded."""


class NodeFailure(Struct, frozen=True):
    """Why a node failed, by DAGMan's reports alone.

    ``part``: pre (PRE script), submit (submission), post (POST script), job, or lost (the end of
    the job, which DAGMan did not read). ``text``: as in StatusDetails of the node status file, with
    the name of a script. ``value``: return value, or minus the signal.
    ``error``: what was wrong with its submit description.
    """

    part: str
    text: str
    value: int | None = None
    error: str | None = None


class NodeState(Struct, frozen=True):
    """The state of a node.

    ``job``: the job that determines it. ``inferred``: done because a descendant was submitted.
    ``superseded``: invalidated by a later submission of an ancestor. ``submitted``: time of the
    last submission. ``failure``: why it failed, unless job events show it. ``failed_ancestor``: the
    failed ancestor of a futile node. ``can_retry``: failed with retries left, which its DAGMan, if
    it has ended, did not use. ``aborts``: its value is that of its ABORT-DAG-ON,
    ``unless_exit``: of its UNLESS-EXIT.
    """

    state: State
    since: datetime | None = None
    job: LoggedJob | None = None
    inferred: bool = False
    superseded: bool = False
    submitted: datetime | None = None
    failure: NodeFailure | None = None
    failed_ancestor: str | None = None
    can_retry: bool = False
    aborts: bool = False
    unless_exit: bool = False


def is_unknown(state: NodeState) -> bool:
    """Whether no file says if it is done. With a lost end it is not: its DAGMan waits."""
    lost = state.failure is not None and state.failure.part == "lost"
    return state.state is State.UNKNOWN and not lost


class SubmissionResult(Struct, frozen=True):
    """Result of a node's submissions; one submission is all procs of one cluster.

    ``cluster``, ``procs``, ``submitted``, ``state``, ``since``, ``job``: of the last submission,
    ``job`` being the one that determines its state. ``submit_times``: the times of all submissions.
    ``jobs``: the ids of all jobs in their order, without those that ran nothing (noop).
    ``success``: the job and the index of the execution that completed the node, the last good one
    of its last good job; None without one.
    """

    cluster: int
    procs: tuple[LoggedJob, ...]
    submitted: datetime | None
    state: State
    since: datetime | None
    job: LoggedJob
    submit_times: tuple[datetime | None, ...]
    jobs: tuple[JobId, ...]
    success: tuple[JobKey, int] | None


def submission_result(record: NodeRecord) -> SubmissionResult | None:
    """The result of the node's submissions, None without any."""
    by_cluster: dict[tuple[int, int], list[LoggedJob]] = {}
    for job in record.jobs:
        by_cluster.setdefault((job.cluster, job.subproc), []).append(job)
    submissions: list[tuple[datetime, int, list[LoggedJob]]] = []
    for (cluster, _), jobs in by_cluster.items():
        jobs.sort(key=lambda job: (job.proc, job.subproc))
        times = [time for time in map(_first_sign, jobs) if time is not None]
        submissions.append((min(times, default=datetime.min), cluster, jobs))
    if not submissions:
        return None
    submissions.sort(key=lambda submission: submission[:2])
    submit_times = tuple(time if time > datetime.min else None for time, _, _ in submissions)
    _, cluster, procs = submissions[-1]
    state, since, job = _submission_state(procs)
    return SubmissionResult(
        cluster=cluster,
        procs=tuple(procs),
        submitted=submit_times[-1],
        state=state,
        since=since,
        job=job,
        submit_times=submit_times,
        jobs=tuple(job.id for _, _, jobs in submissions for job in jobs if not job.noop),
        success=_last_success(job for _, _, jobs in reversed(submissions) for job in jobs),
    )


def _first_sign(job: LoggedJob) -> datetime | None:
    history = job.history()
    return history.submitted or history.first or job.newest_time


def _submission_state(procs: Sequence[LoggedJob]) -> tuple[State, datetime | None, LoggedJob]:
    """State, time and job that determine a submission.

    That is the worst proc in the queue, else the worst that has left it.
    """
    known = [(job, history) for job in procs if (history := job.history()).state is not None]
    if not known:
        return State.IDLE, procs[0].newest_time, procs[0]
    job, history = min(known, key=lambda pair: WORST_FIRST.index(pair[1].state or State.IDLE))
    if history.state is State.COMPLETED:
        job, history = max(known, key=lambda pair: pair[1].since or datetime.min)
    return history.state or State.IDLE, history.since, job


def _last_success(jobs: Iterable[LoggedJob]) -> tuple[JobKey, int] | None:
    """The first job with a good execution, and the index of its last one."""
    for job in jobs:
        executions = job.history().executions
        for index in range(len(executions) - 1, -1, -1):
            if executions[index].outcome is Outcome.GOOD:
                return job.key, index
    return None


SERVICE_REMOVAL_REASON: Final = "Removed by DAGMan"
"""DAGMan's reason for the removal of SERVICE nodes. Source: ``RemoveServiceNodes`` in
``dag.cpp``, ``RemoveBatchJob`` in ``dag.h``."""


def removed_at_dag_end(job: LoggedJob) -> bool:
    """Whether the job was removed because its DAG ended."""
    executions = job.history().executions
    reason = executions[-1].reason if executions else None
    return job.removed_with_dag or (
        reason is not None and reason.startswith(SERVICE_REMOVAL_REASON)
    )


class NodeStateResolver:
    """Resolves the states of the nodes of one DAG.

    ``alive``: its DAGMan has not ended. ``cut``: later reports are ignored.
    """

    def __init__(self, dag: Dag, clock: Clock, alive: bool, cut: datetime | None = None) -> None:
        self._dag = dag
        self._clock = clock
        self._alive = alive
        self._cut = cut
        self._done = dag.done_nodes()
        self._fresh_start = dag.fresh_start()

    def resolve(self, record: NodeRecord, result: SubmissionResult | None) -> NodeState:
        """The node's own state, without other nodes; ``result``: of its submissions."""
        report = self._newest_report(record)
        skip = self._last_skip(record, result)
        if self._predates_run(result, report, skip):
            is_done = record.node.name in self._done
            if not is_done or skip is None:
                return self._resolve_old(is_done, result)
        if skip is not None:
            return NodeState(State.SKIPPED, skip.time)
        if record.node.name in self._done:
            return self._resolve_done(result)
        return self._resolve_with_job(record, result, report)

    def _predates_run(
        self, result: SubmissionResult | None, report: NodeReport | None, skip: NodeReport | None
    ) -> bool:
        """Whether all evidence on the node is older than the newest DAGMan run."""
        if self._fresh_start is None:
            return False
        reported = report.time if report is not None else None
        submitted = result.submitted if result is not None else None
        skipped = skip.time if skip is not None else None
        newest = max(
            (time for time in (reported, submitted, skipped) if time is not None), default=None
        )
        return newest is not None and newest < self._fresh_start

    def _resolve_old(self, done: bool, result: SubmissionResult | None) -> NodeState:
        if done:
            return self._resolve_done(result)
        # Its jobs are of an earlier run: DAGMan started again without regard to them.
        if result is not None and result.state in ACTIVE:
            return NodeState(result.state, result.since, result.job, submitted=result.submitted)
        return NodeState(State.WAITING, None, None, superseded=result is not None)

    def _resolve_done(self, result: SubmissionResult | None) -> NodeState:
        if result is None:
            return NodeState(State.COMPLETED)
        since = None if result.state in ACTIVE else result.since
        return NodeState(State.COMPLETED, since, result.job, submitted=result.submitted)

    def _last_skip(self, record: NodeRecord, result: SubmissionResult | None) -> NodeReport | None:
        """The report that PRE_SKIP ended the node, unless DAGMan continued with it since.

        A rescue file then marks it ``DONE``; earlier, interrupted jobs do not matter.
        """
        reports = self._reports(record.node.name)
        skips = [report for report in reports if report.kind is NodeReportKind.SKIPPED]
        skips += [NodeReport(NodeReportKind.SKIPPED, time) for time in record.skips]
        if not skips:
            return None
        last = max(skips, key=_time_of)
        if last.time is None:
            return last if reports[-1].kind is NodeReportKind.SKIPPED else None
        done = record.node.name in self._done
        later_reports = [
            report
            for report in reports
            if _time_of(report) > last.time and (report.kind in REPORTS_WITH_JOB or not done)
        ]
        submitted = result.submitted if result is not None else None
        return None if later_reports or (submitted and submitted > last.time) else last

    def _newest_report(self, record: NodeRecord) -> NodeReport | None:
        """DAGMan's newest report on the node, in local time."""
        reports = self._reports(record.node.name)
        newest = reports[-1] if reports else None
        status = self._status_report(record.node.name)
        if status is not None and (
            newest is None or (status.time and newest.time and status.time > newest.time)
        ):
            newest = status
        return newest

    def _reports(self, name: str) -> list[NodeReport]:
        """DAGMan's reports on a node up to the cut, with and in order of local times."""
        reports: list[NodeReport] = []
        # Within one second reports of the jobstate log come last, as the newest: DAGMan may
        # buffer lines of its .out, but never of the jobstate log.
        for report in sorted(
            self._dag.node_reports.get(name, ()), key=lambda report: report.epoch is not None
        ):
            time = report.time
            if time is None and report.epoch is not None:
                if self._cut and self._clock.is_after(report.epoch, self._cut) is not False:
                    continue
                time = self._clock.to_local(report.epoch)
            reports.append(NodeReport(report.kind, time, value=report.value, text=report.text))
        reports.sort(key=_time_of)
        return reports

    def _status_report(self, name: str) -> NodeReport | None:
        status = self._dag.status
        if status is None or name not in status.nodes:
            return None
        local = status.local
        if local is None and status.epoch is not None:
            local = self._clock.to_local(status.epoch)
        node_status = status.nodes[name]
        if node_status.details.startswith(REMOVAL_DETAILS):
            return None
        kind = STATUS_REPORT_KINDS.get(node_status.status)
        if kind is None:
            return None
        if kind is NodeReportKind.GAVE_UP and node_status.procs_queued:
            # DAGMan removes the remaining procs, and may retry the node then.
            kind = NodeReportKind.FAILED
        return NodeReport(
            kind, local, value=node_status.retry_count, text=node_status.details or None
        )

    def _resolve_with_job(
        self, record: NodeRecord, result: SubmissionResult | None, report: NodeReport | None
    ) -> NodeState:
        if result is None:
            return self._resolve_without_job(record, report)
        state, since, job = result.state, result.since, result.job
        if report is not None and self._is_resubmitted(report, since, state):
            return NodeState(State.IDLE, report.time, None, submitted=report.time)
        post = self._post_result(record, result)
        if post is None and (missed := self._missed_end(record, result, report)) is not None:
            return missed
        if post is not None:
            state, since = (State.COMPLETED if post.ok else State.FAILED), post.time
            if (
                report is not None
                and report.kind in RETRY_REPORTS
                and self._is_newer(report, since, state)
            ):
                state, since = self._state_by_newer_report(report, state, since)
        elif report is not None and self._is_newer(report, since, state):
            is_of_one_proc = report.kind in (NodeReportKind.JOB_DONE, NodeReportKind.JOB_FAILED)
            if len(result.procs) == 1 or not is_of_one_proc:
                state, since = self._state_by_newer_report(report, state, since)
        elif self._awaits_post_script(record, report, state):
            state = State.POST
        resolved = NodeState(state, since, job, submitted=result.submitted)
        resolved = self._with_failure(resolved, record, result, report, post)
        is_service = record.node.kind is NodeKind.SERVICE
        if resolved.state is State.REMOVED and is_service and removed_at_dag_end(job):
            # A SERVICE node runs until its DAG ends: removal is success.
            return replace(resolved, state=State.COMPLETED)
        return resolved

    def _missed_end(
        self, record: NodeRecord, result: SubmissionResult, report: NodeReport | None
    ) -> NodeState | None:
        """The state of a node whose job has ended, where DAGMan's files say that it waits for it.

        DAGMan goes on with the node only when it has read that end, which may never be.
        """
        ended, job = result.since, result.job
        has_read = report is not None and report.kind not in REPORTS_BEFORE_JOB_END
        if ended is None or has_read or result.state in ACTIVE:
            return None
        if self._dag.missed_end(record.node.name, result.cluster, ended) is None:
            return None
        text = f"DAGMan has not read the end of its job {job.cluster}.{job.proc}"
        failure = NodeFailure("lost", text)
        # A DAGMan that has ended has not done the node: the next one runs it again.
        state = State.UNKNOWN if self._alive else State.WAITING
        return NodeState(state, ended, job, submitted=result.submitted, failure=failure)

    def _with_failure(
        self,
        resolved: NodeState,
        record: NodeRecord,
        result: SubmissionResult | None,
        report: NodeReport | None,
        post: PostResult | None,
    ) -> NodeState:
        """The state with the reason of its failure, and whether DAGMan retries the node."""
        state, since, failure, again = resolved.state, resolved.since, None, False
        abort_on = record.node.abort_on
        if state not in (State.FAILED, State.RETRYING, State.REMOVED):
            ended = state is State.COMPLETED and abort_on == 0
            return replace(resolved, aborts=True) if ended else resolved
        if state is not State.REMOVED:
            failure_time, failure = self._failure(record, report, result, post)
            since = failure_time or since
        aborts = unless_exit = False
        if state is not State.RETRYING:
            codes = self._exit_codes(result, post, failure)
            aborts = abort_on is not None and abort_on in codes
            unless_exit = any(code == record.node.unless_exit for code in codes if code is not None)
            again = self._retries_left(record, result, report, codes)
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

    def _is_resubmitted(self, report: NodeReport, since: datetime | None, state: State) -> bool:
        """Whether DAGMan has submitted the node again, before the job logs show it.

        DAGMan reports the time of the submission, not of reading its event.
        """
        if report.kind is not NodeReportKind.SUBMITTED or not self._alive or state in ACTIVE:
            return False
        return since is not None and report.time is not None and report.time > since

    def _resolve_without_job(self, record: NodeRecord, report: NodeReport | None) -> NodeState:
        """The state of a node without a job in any log."""
        post = record.posts[-1] if record.posts else None
        state, since = self._state_without_job(post, report)
        # Of the last reported submission: job logs can lag or be lost.
        reports = self._reports(record.node.name)
        times = [each.time for each in reports if each.kind is NodeReportKind.SUBMITTED]
        submitted = max((time for time in times if time is not None), default=None)
        resolved = NodeState(state, since, submitted=submitted)
        return self._with_failure(resolved, record, None, report, post)

    def _state_without_job(
        self, post: PostResult | None, report: NodeReport | None
    ) -> tuple[State, datetime | None]:
        if post is not None:
            return State.COMPLETED if post.ok else State.FAILED, post.time
        if report is None:
            return State.WAITING, None
        match report.kind:
            case NodeReportKind.PRE | NodeReportKind.PRE_OK:
                return (State.PRE if self._alive else State.WAITING), report.time
            case claim if claim in FAILED_PARTS or claim in FINAL_FAILURE_REPORTS:
                return State.FAILED, report.time
            case NodeReportKind.RETRYING:
                return (State.RETRYING if self._alive else State.FAILED), report.time
            case NodeReportKind.SUBMITTED:
                return (State.IDLE if self._alive else State.WAITING), report.time
            case NodeReportKind.POST:
                return (State.POST if self._alive else State.WAITING), report.time
            case NodeReportKind.DONE | NodeReportKind.JOB_DONE:
                return State.COMPLETED, report.time
            case _:
                return State.WAITING, None

    def _post_result(self, record: NodeRecord, result: SubmissionResult) -> PostResult | None:
        """The POST script's result for the last submission, if available."""
        submitted = result.submitted
        for post in reversed(record.posts):
            if post.cluster == result.cluster:
                return post
            if submitted is None or post.time >= submitted:
                return post if post.cluster is None or post.cluster <= 0 else None
        return None

    def _awaits_post_script(
        self, record: NodeRecord, report: NodeReport | None, state: State
    ) -> bool:
        """Whether the job has ended, and DAGMan will run the POST script next.

        The node is neither done nor failed then, whatever the job returned. Requires reports
        of DAGMan on this node.
        """
        if record.node.post is None or not self._alive or state in ACTIVE:
            return False
        return report is not None and report.kind in REPORTS_BEFORE_JOB_END

    def _is_newer(self, report: NodeReport, since: datetime | None, state: State) -> bool:
        if report.time is None:
            return False
        if since is None:
            return True
        # A POST script starts in the same second in which its job ended.
        return report.time >= since if report.kind is NodeReportKind.POST else report.time > since

    def _state_by_newer_report(
        self, report: NodeReport, state: State, since: datetime | None
    ) -> tuple[State, datetime | None]:
        # The job may be open in a log that lost its end or lags behind DAGMan's.
        match report.kind:
            case NodeReportKind.PRE:
                return (State.PRE if self._alive else state), report.time
            case NodeReportKind.POST if self._alive:
                return State.POST, report.time
            case NodeReportKind.PRE_FAILED | NodeReportKind.SUBMIT_FAILED:
                return State.FAILED, report.time
            case NodeReportKind.DONE | NodeReportKind.JOB_DONE:
                return State.COMPLETED, since if state is State.COMPLETED else report.time
            case NodeReportKind.FAILED | NodeReportKind.JOB_FAILED | NodeReportKind.GAVE_UP if (
                state not in FAILED_JOB
            ):
                return State.FAILED, report.time
            case NodeReportKind.RETRYING if self._alive:
                return State.RETRYING, report.time
            case _:
                return state, since

    def _failure(
        self,
        record: NodeRecord,
        report: NodeReport | None,
        result: SubmissionResult | None,
        post: PostResult | None,
    ) -> tuple[datetime | None, NodeFailure | None]:
        """When and why a node failed, unless its job's events or 016 show it."""
        if report is None:
            return None, None
        reports = [
            r for r in self._reports(record.node.name) if r.kind not in REPORTS_AFTER_FAILURE
        ]
        last = reports[-1] if reports else None
        details = report.text if report.kind is NodeReportKind.GAVE_UP else None
        if last is not None and last.kind in FAILED_PARTS:
            part, time, value = FAILED_PARTS[last.kind], last.time, last.value
        elif details is not None:
            part, time, value = failed_part(details), report.time, None
        else:
            return None, None
        submitted = result.submitted if result is not None else None
        older = time is not None and submitted is not None and time < submitted
        is_in_events = post is not None or (result is not None and result.state in FAILED_JOB)
        if older or (part in ("job", "post") and is_in_events):
            return None, None
        submit = last is not None and last.kind is NodeReportKind.SUBMIT_FAILED
        error = last.text if last is not None and submit else None
        text = name_script(details or failure_text(part, value), part, record.node)
        if error is not None and not error.endswith(":"):
            text = f"{text}: {error}"
        return time, NodeFailure(part, text, value, error)

    def _exit_codes(
        self, result: SubmissionResult | None, post: PostResult | None, failure: NodeFailure | None
    ) -> tuple[int | None, ...]:
        """The values that DAGMan may take as the node's return value, one per proc.

        A signal counts as its negative number. Source: ``Dag::ProcessTerminatedEvent``.
        """
        if failure is not None:
            return (failure.value,)
        if post is not None:
            return (post.value,)
        histories = [job.history() for job in result.procs] if result is not None else []
        codes = [-h.signal if h.signal is not None else h.return_value for h in histories]
        return tuple(code for code in codes if code)

    def _retries_left(
        self,
        record: NodeRecord,
        result: SubmissionResult | None,
        report: NodeReport | None,
        codes: Sequence[int | None],
    ) -> bool:
        node = record.node
        if node.retries <= 0 or node.kind is NodeKind.SERVICE:
            return False
        if self._dag.aborted or self._gave_up(result, report):
            return False
        if result is not None and any(job.removed_with_dag for job in result.procs):
            return False
        if any(code is not None and code in (node.unless_exit, node.abort_on) for code in codes):
            return False
        return retries_left(self._dag, record, result) > 0

    def _gave_up(self, result: SubmissionResult | None, report: NodeReport | None) -> bool:
        """Whether DAGMan reported that it gave up after the last submission."""
        if report is None or report.kind not in FINAL_FAILURE_REPORTS:
            return False
        submitted = result.submitted if result is not None else None
        return submitted is None or report.time is None or report.time >= submitted


def _time_of(report: NodeReport) -> datetime:
    return report.time or datetime.min


def retries_left(dag: Dag, record: NodeRecord, result: SubmissionResult | None) -> int:
    """Number of retries that the current DAGMan run has left for the node."""
    used, started = _tries(dag, record, result)
    # A retry that has started, but whose submission was not read yet, still counts.
    return max(0, record.node.retries + 1 - used, int(started))


def tries(dag: Dag, record: NodeRecord, result: SubmissionResult | None) -> int:
    """Number of tries of the node in the current DAGMan run; a rescue DAG begins again."""
    return _tries(dag, record, result)[0]


def _tries(dag: Dag, record: NodeRecord, result: SubmissionResult | None) -> tuple[int, bool]:
    """The tries, and whether one has started whose submission was not read yet."""
    run_start = dag.last_fresh_start()

    def in_this_run(time: datetime | None) -> bool:
        return run_start is None or time is None or time >= run_start

    submissions = sum(map(in_this_run, result.submit_times if result is not None else ()))
    reports = [
        report for report in dag.node_reports.get(record.node.name, ()) if report.epoch is None
    ]
    reports = [report for report in reports if in_this_run(report.time)]
    retry = max(
        (report.value or 0 for report in reports if report.kind is NodeReportKind.RETRYING),
        default=0,
    )
    started = bool(reports) and reports[-1].kind is NodeReportKind.RETRYING
    return max(submissions, retry + 1), started and retry >= submissions
