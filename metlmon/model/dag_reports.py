"""What DAGMan's own files report on one DAG, and on its nodes.

Manual: "DAGMan Workflows > DAG Monitoring".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import Final

from msgspec import Struct, field

from metlmon.dagman import (
    CondorSub,
    DagmanMessage,
    DagmanMessageKind,
    DagMetrics,
    JobstateLine,
    Rescue,
    StatusFile,
    Workflow,
)
from metlmon.eventlog.redaction import redact_and_truncate
from metlmon.model.clock import Clock, ClockObservation, DagmanInterval, OutTimes, SubmissionTimes
from metlmon.model.dagman_runs import DagmanJob, DagmanRun, Process, is_restart_status

MAX_UNKNOWN_NODES: Final = 1000
"""Stored names of nodes that the DAG file does not have: enough for a warning."""

DAGMAN_ERRORS: Final = {
    -1001: "its job was not submitted",
    -1002: "its job was removed from the queue",
    -1003: "DAGMan could not read its log",
    -1004: "its job was skipped",
}
"""DAGMan's own return values of nodes. Manual: "DAGMan Workflows > DAGMan Scripts", ``$RETURN``."""

_DAGMAN_ERROR: Final = re.compile(r"[Jj]ob failed due to DAGMAN error (-100[1-4])\b")

QUEUED: Final = "STATUS_SUBMITTED"
"""DAGMan's status of a node whose job is in the queue."""


def _translated(text: str | None) -> str | None:
    """DAGMan's reason for a failure, with its own return values in words."""
    return text and _DAGMAN_ERROR.sub(lambda match: DAGMAN_ERRORS[int(match[1])], text)


class DagLogs(Struct):
    """What the event logs of a DAG's DAGMan have, also while its DAG file is missing.

    ``jobs``: DAGMan's own jobs. ``intervals``: its processes in ``.dagman.log``, also those after
    the cut. ``nodes_log_span``: times of the first and the newest event in its nodes.log.
    """

    jobs: list[DagmanJob] = field(default_factory=list)
    intervals: list[DagmanInterval] = field(default_factory=list)
    nodes_log_span: tuple[datetime, datetime] | None = None


class DagReports:
    """The reports of one DAG's DAGMan, with their times."""

    def __init__(self, key: str, file: str, workflow: Workflow, top: str | None = None) -> None:
        self.key = key
        self.file = file
        self.workflow = workflow
        self.top = top or key
        self.rescue_files: dict[int, Rescue] = {}
        self.clock = Clock()
        self.cut: datetime | None = None
        self.status_file: StatusFile | None = None
        self.metrics_file: DagMetrics | None = None
        self.condor_sub: CondorSub | None = None
        self.processes: list[Process] = []
        self.logs = DagLogs()
        self.node_reports: dict[str, list[NodeReport]] = {}
        self.submit_epochs: dict[int, float] = {}
        self.jobstate_started: list[tuple[float, int | None]] = []
        self.jobstate_finished: list[tuple[float, int | None, int]] = []
        """Ends in the jobstate log: seconds since 1970, return value, number of starts before."""
        self.halted = False
        self.out_last_time: datetime | None = None
        self.jobstate_last_epoch: float | None = None
        self.unknown_nodes: dict[str, datetime | None] = {}
        """Nodes in ``.dagman.out`` that the DAG file does not have, with the last time."""
        self.pending: dict[str, DagmanMessage] = {}
        """Nodes in DAGMan's newest list of those that it waits for."""
        self.lost: dict[str, DagmanMessage] = {}
        """Nodes whose jobs a restarted DAGMan did not find."""
        self._out_submitted: dict[int, str] = {}
        self._jobstate_submitted: dict[int, str] = {}
        self.out_times = OutTimes()
        self._submission_times = SubmissionTimes()
        self._clock_observations: list[ClockObservation] = []
        self._runs: list[DagmanRun] | None = None

    def apply_messages(self, messages: Iterable[DagmanMessage]) -> set[str]:
        """Apply messages of ``.dagman.out``; return the names of their nodes.

        Messages after the cut are evidence for the UTC offset alone.
        """
        touched: set[str] = set()
        until, cut = self.out_last_time, self.cut
        for line in messages:
            time = line.time
            self._note_time(line)
            if cut is not None and (time is None or time > cut):
                continue
            if time is not None and (until is None or time > until):
                until = time
            if line.kind is DagmanMessageKind.JOB_EVENT:
                continue
            if line.node is None:
                self._apply_dag_message(line)
            else:
                touched.add(self._apply_node_message(line.node, line))
            if time is not None and (process := self._writing_process()) is not None:
                process.last = time
        self.out_last_time = until
        return touched

    def _note_time(self, line: DagmanMessage) -> None:
        """Store a local time that another file may have in UTC."""
        if line.node is None:
            self.out_times.add(line)
        elif (
            line.kind is DagmanMessageKind.SUBMITTED
            and line.cluster is not None
            and line.time is not None
        ):
            epoch = self.submit_epochs.get(line.cluster)
            if epoch is None:
                self._submission_times.add(line.cluster, line.time)
            else:
                self._clock_observations.append((line.time, epoch))

    def _apply_dag_message(self, line: DagmanMessage) -> None:
        """Apply a message on the DAG as a whole."""
        self._runs = None
        process = self._writing_process()
        match line.kind:
            case DagmanMessageKind.STARTED:
                previous = self.processes[-1] if self.processes else None
                if previous is not None and previous.cluster == line.cluster:
                    previous.note_successor()
                self.processes.append(Process(line.time, line.cluster))
            case DagmanMessageKind.RECOVERY if process:
                process.recovery = True
            case DagmanMessageKind.PRE_COMPLETED if process:
                process.pre_completed = line.value
            case DagmanMessageKind.RESCUE_USED if process:
                process.rescue = line.text
            case DagmanMessageKind.TOTALS if process:
                process.total = dict(line.totals).get("total")
            case DagmanMessageKind.ERROR if process:
                process.error = line.text
            case DagmanMessageKind.ERROR_CONTINUED if process and process.error:
                process.error = redact_and_truncate(f"{process.error} {line.text}")
            case DagmanMessageKind.LOG_ERROR if process:
                process.log_error = line.time
            case DagmanMessageKind.BAD_EVENT if process:
                first, number = process.bad_events or (line.text or "", 0)
                process.bad_events = first, number + 1
            case DagmanMessageKind.PENDING:
                self.pending = {}
            case DagmanMessageKind.REMOVED if process:
                process.removed = True
            case DagmanMessageKind.ABORTED if process:
                process.aborted = True
            case DagmanMessageKind.REFUSED if process:
                process.refused = True
            case DagmanMessageKind.EXITED:
                self._apply_exit(line)

    def _writing_process(self) -> Process | None:
        """The process that writes ``.dagman.out``: the newest one that has not ended.

        A second DAGMan may end while the first one continues.
        """
        newest = self.processes[-1] if self.processes else None
        return next((process for process in reversed(self.processes) if not process.ended), newest)

    def _apply_exit(self, line: DagmanMessage) -> None:
        process = self._writing_process()
        if line.cluster is not None:
            named = (p for p in reversed(self.processes) if p.cluster in (None, line.cluster))
            process = next(named, None)
        if process is None:
            return
        process.ended, process.end, process.status = True, line.time, line.value
        if line.value is None:
            process.crash = line.text or ""
        elif process.pre_completed is None and process.total is None:
            # Before its first submission it ends in error only where it rejects its files.
            process.error = process.error or line.text

    def _apply_node_message(self, name: str, line: DagmanMessage) -> str:
        """Apply a message on a node; return its name as in :meth:`_canonical_name`."""
        node, message_kind, kind = self.workflow.nodes.get(name), line.kind, None
        if node is not None:
            name = node.name
        elif len(self.unknown_nodes) < MAX_UNKNOWN_NODES:
            self.unknown_nodes[name] = line.time
        if message_kind is DagmanMessageKind.SUBMITTED:
            kind = NodeReportKind.SUBMITTED
            if line.cluster is not None:
                self._out_submitted[line.cluster] = name
        elif (
            message_kind is not DagmanMessageKind.JOB_OK
            and message_kind is not DagmanMessageKind.JOB_FAILED
        ):
            kind = OUT_REPORT_KINDS.get(message_kind)
        elif node is not None and node.post is None:
            # Without a POST script the job's result is the node's.
            kind = (
                NodeReportKind.JOB_DONE
                if message_kind is DagmanMessageKind.JOB_OK
                else NodeReportKind.JOB_FAILED
            )
        if message_kind is DagmanMessageKind.PENDING:
            self.pending[name] = line
        elif message_kind is DagmanMessageKind.NODE_LOST:
            self.lost[name] = line
        if kind is not None:
            cluster = line.cluster if kind is NodeReportKind.SUBMITTED else None
            text = _translated(line.text)
            report = NodeReport(kind, line.time, value=line.value, text=text, cluster=cluster)
            self._add_report(name, report)
        return name

    def reset_out(self) -> None:
        """Reset what was read from ``.dagman.out``, which was replaced."""
        self.processes = []
        self._runs = None
        self.unknown_nodes, self.pending, self.lost = {}, {}, {}
        self.out_last_time = None
        self.out_times = OutTimes()
        self._out_submitted = {}
        for node, reports in self.node_reports.items():
            self.node_reports[node] = [report for report in reports if report.time is None]

    def reset_jobstate(self) -> None:
        """Reset what was read from the jobstate log, which was replaced."""
        self.jobstate_started, self.jobstate_finished = [], []
        self.jobstate_last_epoch = None
        self.submit_epochs = {}
        self._jobstate_submitted = {}
        for node, reports in self.node_reports.items():
            self.node_reports[node] = [report for report in reports if report.epoch is None]

    def apply_jobstate(self, entries: Iterable[JobstateLine]) -> set[str]:
        """Apply lines of the jobstate log; return the names of their nodes."""
        touched: set[str] = set()
        for entry in entries:
            self.jobstate_last_epoch = max(self.jobstate_last_epoch or 0.0, entry.epoch)
            if entry.node is None:
                if entry.event == "DAGMAN_STARTED":
                    self.jobstate_started.append((entry.epoch, entry.cluster))
                elif entry.event == "DAGMAN_FINISHED" and not is_restart_status(entry.value):
                    starts = len(self.jobstate_started)
                    self.jobstate_finished.append((entry.epoch, entry.value, starts))
                continue
            name = self._canonical_name(entry.node)
            touched.add(name)
            cluster = (
                entry.cluster if entry.event == "SUBMIT" and (entry.cluster or 0) > 0 else None
            )
            if cluster is not None:
                self._jobstate_submitted.setdefault(cluster, name)
                self.submit_epochs.setdefault(cluster, entry.epoch)
                submitted = self._submission_times.get(cluster)
                if submitted is not None:
                    self._clock_observations.append((submitted, entry.epoch))
            kind = JOBSTATE_REPORT_KINDS.get(entry.event) or self._job_report_kind(entry)
            if kind is not None:
                report = NodeReport(kind, None, entry.epoch, entry.value, cluster=cluster)
                self._add_report(name, report)
        return touched

    def _canonical_name(self, name: str) -> str:
        """The DAG file's string object for this name, so that copies share memory."""
        node = self.workflow.nodes.get(name)
        return name if node is None else node.name

    def _job_report_kind(self, entry: JobstateLine) -> NodeReportKind | None:
        """The report of a job's result, which is the node's without a POST script."""
        node = self.workflow.nodes.get(entry.node or "")
        if node is None or node.post is not None:
            return None
        return {
            "JOB_SUCCESS": NodeReportKind.JOB_DONE,
            "JOB_FAILURE": NodeReportKind.JOB_FAILED,
        }.get(entry.event)

    def _add_report(self, node: str, report: NodeReport) -> None:
        self.node_reports.setdefault(node, []).append(report)


class NodeReportKind(Enum):
    """Kind of a report by DAGMan on a node."""

    PRE = "pre"
    PRE_OK = "pre-ok"
    PRE_FAILED = "pre-failed"
    SKIPPED = "skipped"
    SUBMITTED = "submitted"
    POST = "post"
    DONE = "done"
    FAILED = "failed"
    RETRYING = "retrying"
    JOB_DONE = "job-done"
    JOB_FAILED = "job-failed"
    SUBMIT_FAILED = "submit-failed"
    GAVE_UP = "gave-up"


class NodeReport(Struct, frozen=True):
    """A report by DAGMan on one node.

    ``epoch`` replaces ``time`` in files with seconds since 1970. ``value``: return value
    (negative: the signal), or the number of the retry. ``text``: DAGMan's reason for the
    failure of the node. ``cluster``: of a submission.
    """

    kind: NodeReportKind
    time: datetime | None
    epoch: float | None = None
    value: int | None = None
    text: str | None = None
    cluster: int | None = None


OUT_REPORT_KINDS: Final = {
    DagmanMessageKind.PRE_STARTED: NodeReportKind.PRE,
    DagmanMessageKind.PRE_OK: NodeReportKind.PRE_OK,
    DagmanMessageKind.PRE_FAILED: NodeReportKind.PRE_FAILED,
    DagmanMessageKind.PRE_SKIPPED: NodeReportKind.SKIPPED,
    DagmanMessageKind.SUBMITTED: NodeReportKind.SUBMITTED,
    DagmanMessageKind.POST_STARTED: NodeReportKind.POST,
    DagmanMessageKind.POST_OK: NodeReportKind.DONE,
    DagmanMessageKind.POST_FAILED: NodeReportKind.FAILED,
    DagmanMessageKind.RETRYING: NodeReportKind.RETRYING,
    DagmanMessageKind.NODE_FAILED: NodeReportKind.GAVE_UP,
    DagmanMessageKind.SUBMIT_FAILED: NodeReportKind.SUBMIT_FAILED,
}


JOBSTATE_REPORT_KINDS: Final = {
    "PRE_SCRIPT_STARTED": NodeReportKind.PRE,
    "PRE_SCRIPT_SUCCESS": NodeReportKind.PRE_OK,
    "PRE_SCRIPT_FAILURE": NodeReportKind.PRE_FAILED,
    "PRESKIP": NodeReportKind.SKIPPED,
    "SUBMIT": NodeReportKind.SUBMITTED,
    "POST_SCRIPT_STARTED": NodeReportKind.POST,
    "POST_SCRIPT_SUCCESS": NodeReportKind.DONE,
    "POST_SCRIPT_FAILURE": NodeReportKind.FAILED,
}


STATUS_REPORT_KINDS: Final = {
    2: NodeReportKind.PRE,
    4: NodeReportKind.POST,
    5: NodeReportKind.DONE,
    6: NodeReportKind.GAVE_UP,
}
"""By NodeStatus of the node status file; only values that job events may not show."""


def failed_part(details: str) -> str:
    """The part of a node that failed, by DAGMan's StatusDetails."""
    if details.startswith("Job submit"):
        return "submit"
    if "POST" in details:
        return "post"
    return "pre" if details.startswith("PRE ") else "job"


def failure_text(part: str, value: int | None) -> str:
    """The text of DAGMan's StatusDetails. Source: ``dag.cpp``."""
    if part == "submit":
        return "Job submit failed"
    part_name = {"pre": "PRE Script", "post": "POST Script", "job": "Job"}[part]
    if value is None:
        return f"{part_name} failed"
    if part == "job" and value in DAGMAN_ERRORS:
        return f"Job failed: {DAGMAN_ERRORS[value]}"
    ending = f"died on signal {-value}" if value < 0 else f"failed with status {value}"
    return f"{part_name} {ending}"
