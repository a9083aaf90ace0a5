"""One DAG: its workflow, and what DAGMan's own files report about it.

Stores the reports with their times; :mod:`metlmon.model.node` resolves conflicts with the job
events. Manual: "DAGMan Workflows > DAG Monitoring", "Rescue DAG".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePath
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from metlmon.dagman.graph import topological_order
from metlmon.dagman.records import (
    DagmanMessage,
    DagMetrics,
    JobstateLine,
    MessageKind,
    Node,
    NodeKind,
    Rescue,
    StatusFile,
    Workflow,
)
from metlmon.dagman.reports import CondorSub, rescue_number
from metlmon.eventlog.events import redact_and_truncate
from metlmon.model.clock import (
    Clock,
    ClockObservation,
    DagmanInterval,
    OutTimes,
    SubmissionTimes,
    jobstate_observations,
    metrics_cluster,
    metrics_observations,
    rescue_observations,
)
from metlmon.model.dagman_runs import (
    DagmanJob,
    DagmanRun,
    Process,
    build_runs,
    current_run,
    is_restart_status,
)
from metlmon.model.job_events import NodeKey
from metlmon.model.states import DagState

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


class DagLogs(Struct):
    """The contents of the event logs of a DAG's DAGMan, kept while its DAG file is missing.

    ``jobs``: DAGMan's own jobs. ``intervals``: its processes in ``.dagman.log``, also those after
    the cut. ``nodes_log_span``: times of the first and the newest event in its nodes.log.
    """

    jobs: list[DagmanJob] = field(default_factory=list)
    intervals: list[DagmanInterval] = field(default_factory=list)
    nodes_log_span: tuple[datetime, datetime] | None = None


class NodeReport(Struct, frozen=True, gc=False):
    """A report by DAGMan about one node.

    ``kind``: that of the message in ``.dagman.out``; reports in other files have the one that says
    the same, and POST_OK if the node is done, with or without a script. ``epoch`` replaces ``time``
    in files with seconds since 1970. ``value``: return value (negative: the signal), or the number
    of the retry. ``text``: DAGMan's reason for the failure of the node. ``cluster``: that of a
    submission.
    """

    kind: MessageKind
    time: datetime | None
    epoch: float | None = None
    value: int | None = None
    text: str | None = None
    cluster: int | None = None


OUT_REPORT_KINDS: Final = frozenset(
    {
        MessageKind.PRE_STARTED,
        MessageKind.PRE_OK,
        MessageKind.PRE_FAILED,
        MessageKind.PRE_SKIPPED,
        MessageKind.SUBMITTED,
        MessageKind.POST_STARTED,
        MessageKind.POST_OK,
        MessageKind.POST_FAILED,
        MessageKind.RETRYING,
        MessageKind.NODE_FAILED,
        MessageKind.SUBMIT_FAILED,
        MessageKind.JOB_OK,
        MessageKind.JOB_FAILED,
    }
)
"""Messages of ``.dagman.out`` that are reports."""

JOBSTATE_REPORT_KINDS: Final = {
    "PRE_SCRIPT_STARTED": MessageKind.PRE_STARTED,
    "PRE_SCRIPT_SUCCESS": MessageKind.PRE_OK,
    "PRE_SCRIPT_FAILURE": MessageKind.PRE_FAILED,
    "PRESKIP": MessageKind.PRE_SKIPPED,
    "SUBMIT": MessageKind.SUBMITTED,
    "POST_SCRIPT_STARTED": MessageKind.POST_STARTED,
    "POST_SCRIPT_SUCCESS": MessageKind.POST_OK,
    "POST_SCRIPT_FAILURE": MessageKind.POST_FAILED,
    "JOB_SUCCESS": MessageKind.JOB_OK,
    "JOB_FAILURE": MessageKind.JOB_FAILED,
}

STATUS_REPORT_KINDS: Final = {
    2: MessageKind.PRE_STARTED,
    4: MessageKind.POST_STARTED,
    5: MessageKind.POST_OK,
    6: MessageKind.NODE_FAILED,
}
"""Reports by NodeStatus of the node status file; only values that job events may not show."""


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


def name_script(text: str, part: str, node: Node) -> str:
    """``PRE script check.sh failed with status 2``: the text with the name of the script."""
    script = {"pre": node.pre, "post": node.post}.get(part)
    name = script.command.split()[0].removeprefix("./") if script is not None else ""
    return text.replace(" Script ", f" script {name} ", 1) if name else text


Submitter: TypeAlias = Callable[[int], str | None]
"""Returns the key of the DAG whose DAGMan submitted a cluster; None if unknown."""

DAG_ABORTED: Final = 3
"""``DagStatus`` of ``.metrics`` after ABORT-DAG-ON."""


WRITE_DELAY: Final = timedelta(seconds=10)
"""DAGMan writes a submission to its files within this time, before anything later."""

READ_DELAY: Final = timedelta(minutes=1)
"""DAGMan reads its log every few seconds; a file server may show it half a minute late."""

ONE_SECOND: Final = timedelta(seconds=1)
"""The schedd and the shadows write the events of one second in any order."""


DAG_REMOVED: Final = 4
"""``DagStatus`` of ``.metrics`` for a DAGMan that was removed."""

EXIT_ABORT: Final = 2
"""Exit status of a DAGMan that was removed (``main_shutdown_remove`` in ``dagman_main.cpp``)."""


class Component(NamedTuple):
    """A connected component: its nodes, parents first, and those of a cycle or after one."""

    order: list[str]
    unordered: list[str]


class WorkflowFacts:
    """What follows from a DAG file alone; computed once.

    ``components``: the connected components of its nodes. ``node_count``: without SERVICE nodes.
    ``aborting``: nodes with ABORT-DAG-ON. ``has_final``: it has a FINAL node, so that DAGMan reads
    logs even after ABORT-DAG-ON.
    """

    def __init__(self, workflow: Workflow) -> None:
        self._nodes = workflow.nodes
        self._done: dict[int | None, tuple[Rescue | None, frozenset[str]]] = {}

    def done_with(self, rescue: Rescue | None) -> frozenset[str]:
        """The nodes that the DAG file or this rescue file marks ``DONE``."""
        number = rescue.number if rescue is not None else None
        known = self._done.get(number)
        if known is None or known[0] is not rescue:
            marked = rescue.done if rescue is not None else frozenset()
            done = marked.union(name for name, node in self._nodes.items() if node.done)
            known = self._done[number] = rescue, done
        return known[1]

    @cached_property
    def node_count(self) -> int:
        return sum(node.kind is not NodeKind.SERVICE for node in self._nodes.values())

    @cached_property
    def has_final(self) -> bool:
        return any(node.kind is NodeKind.FINAL for node in self._nodes.values())

    @cached_property
    def aborting(self) -> list[str]:
        return [name for name, node in self._nodes.items() if node.abort_on is not None]

    @cached_property
    def components(self) -> list[Component]:
        nodes, components, found = self._nodes, list[Component](), dict[str, Component]()
        for first in nodes:
            connected = [] if first in found else [first]
            if connected:
                components.append(Component([], []))
            while connected:
                name = connected.pop()
                if name in nodes and name not in found:
                    found[name] = components[-1]
                    connected += [*nodes[name].parents, *nodes[name].children]
        parents = {
            name: [parent for parent in node.parents if parent in nodes]
            for name, node in nodes.items()
        }
        for name in (order := topological_order(parents)):
            found[name].order.append(name)
        for name in found.keys() - order:
            found[name].unordered.append(name)
        return components


class Dag:
    """A DAG, top-level or external sub-DAG.

    ``key`` is unique in the ensemble, ``file`` the DAG file's name relative to the dagdir,
    ``top`` the key of the top-level DAG it belongs to (its own for a top-level one).
    ``logs``: the contents of the event logs of its DAGMan. ``out_last_time`` and
    ``jobstate_last_epoch`` (seconds since 1970): the newest times in ``.dagman.out`` and in the
    jobstate log.
    """

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
        self.logs = DagLogs()
        self.node_reports: dict[str, tuple[NodeReport, ...]] = {}
        self.halted = False
        self._submission_times = SubmissionTimes()
        self._clock_observations: list[ClockObservation] = []
        self.facts = WorkflowFacts(workflow)
        self.reset_out()
        self.reset_jobstate()

    def reset_out(self) -> None:
        """Reset what was read from ``.dagman.out``, which is new, or was replaced."""
        self.processes: list[Process] = []
        self.out_last_time: datetime | None = None
        self.unknown_nodes: dict[str, datetime | None] = {}
        """Nodes in ``.dagman.out`` that the DAG file does not have, with their last times."""
        self.pending: dict[str, DagmanMessage] = {}
        """Nodes in DAGMan's newest list of those that it waits for."""
        self.lost: dict[str, DagmanMessage] = {}
        """Nodes whose jobs a restarted DAGMan did not find."""
        self.out_times = OutTimes()
        self._out_submitted: dict[int, str] = {}
        self._runs: list[DagmanRun] | None = None
        for node, reports in self.node_reports.items():
            self.node_reports[node] = tuple([each for each in reports if each.time is None])

    def reset_jobstate(self) -> None:
        """Reset what was read from the jobstate log, which is new, or was replaced."""
        self.jobstate_started: list[tuple[float, int | None]] = []
        self.jobstate_finished: list[tuple[float, int | None, int]] = []
        """Ends in the jobstate log: seconds since 1970, return value, number of starts before."""
        self.jobstate_last_epoch: float | None = None
        self.submit_epochs: dict[int, float] = {}
        self._jobstate_submitted: dict[int, str] = {}
        for node, reports in self.node_reports.items():
            self.node_reports[node] = tuple([each for each in reports if each.epoch is None])

    @property
    def is_top(self) -> bool:
        """Whether this is a top-level DAG."""
        return self.top == self.key

    @property
    def node_count(self) -> int:
        """Number of nodes as DAGMan counts them: without SERVICE nodes."""
        return self.facts.node_count

    # --- reports ------------------------------------------------------------------------

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
            if line.kind is MessageKind.JOB_EVENT:
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
        """Store a local time for which another file may have the time in UTC."""
        if line.node is None:
            self.out_times.add(line)
        elif (
            line.kind is MessageKind.SUBMITTED
            and line.cluster is not None
            and line.time is not None
        ):
            epoch = self.submit_epochs.get(line.cluster)
            if epoch is None:
                self._submission_times.add(line.cluster, line.time)
            else:
                self._clock_observations.append((line.time, epoch))

    def _apply_dag_message(self, line: DagmanMessage) -> None:
        self._runs = None
        process = self._writing_process()
        match line.kind:
            case MessageKind.STARTED:
                previous = self.processes[-1] if self.processes else None
                if previous is not None and previous.cluster == line.cluster:
                    previous.note_successor()
                self.processes.append(Process(line.time, line.cluster))
            case MessageKind.RECOVERY if process:
                process.recovery = True
            case MessageKind.PRE_COMPLETED if process:
                process.pre_completed = line.value
            case MessageKind.RESCUE_USED if process:
                process.rescue = line.text
            case MessageKind.RESCUE_WRITTEN if process:
                process.wrote = line.text
            case MessageKind.TOTAL if process:
                process.total = line.value
            case MessageKind.ERROR if process:
                process.error = line.text
            case MessageKind.ERROR_CONTINUED if process and process.error:
                process.error = redact_and_truncate(f"{process.error} {line.text}")
            case MessageKind.LOG_ERROR if process:
                process.log_error = line.time
            case MessageKind.BAD_EVENT if process:
                first, number = process.bad_events or (line.text or "", 0)
                process.bad_events = first, number + 1
            case MessageKind.PENDING:
                self.pending = {}
            case MessageKind.REMOVED if process:
                process.removed = True
            case MessageKind.ABORTED if process:
                process.aborted = True
            case MessageKind.REFUSED if process:
                process.refused = True
            case MessageKind.EXITED:
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
        if process is None and not self.processes:
            # Its beginning was cut, or is in a file that was renamed (.dagman.out.old).
            process = Process(None, line.cluster)
            self.processes.append(process)
        if process is None:
            return
        process.ended, process.end, process.status = True, line.time, line.value
        if line.value is None:
            process.crash = line.text or ""
        elif process.aborted and process.restarts:
            process.crash = f"ABORT-DAG-ON: HTCondor starts it again after exit status {line.value}"
        elif process.pre_completed is None and process.total is None:
            # Before its first submission it fails only if it rejects its files.
            process.error = process.error or line.text

    def _apply_node_message(self, name: str, line: DagmanMessage) -> str:
        """Apply a message about a node; return its name, the DAG file's object if it has it."""
        node, kind = self.workflow.nodes.get(name), line.kind
        if node is not None:
            name = node.name
        elif len(self.unknown_nodes) < MAX_UNKNOWN_NODES:
            self.unknown_nodes[name] = line.time
        is_submission = kind is MessageKind.SUBMITTED
        if is_submission and line.cluster is not None:
            self._out_submitted[line.cluster] = name
        elif kind is MessageKind.PENDING:
            self.pending[name] = line
        elif kind is MessageKind.NODE_LOST:
            self.lost[name] = line
        if kind in OUT_REPORT_KINDS:
            cluster = line.cluster if is_submission else None
            # With DAGMan's own return values in words.
            text = line.text and _DAGMAN_ERROR.sub(lambda m: DAGMAN_ERRORS[int(m[1])], line.text)
            report = NodeReport(kind, line.time, value=line.value, text=text, cluster=cluster)
            self._add_report(name, report)
        return name

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
            node = self.workflow.nodes.get(entry.node)
            # The DAG file's string object, so that copies share memory.
            name = entry.node if node is None else node.name
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
            if (kind := JOBSTATE_REPORT_KINDS.get(entry.event)) is not None:
                report = NodeReport(kind, None, entry.epoch, entry.value, cluster=cluster)
                self._add_report(name, report)
        return touched

    def _add_report(self, name: str, report: NodeReport) -> None:
        """Add a report about a node; the result of its job only without a POST script."""
        node = self.workflow.nodes.get(name)
        is_of_job = report.kind in (MessageKind.JOB_OK, MessageKind.JOB_FAILED)
        if not is_of_job or (node is not None and node.post is None):
            self.node_reports[name] = (*self.node_reports.get(name, ()), report)

    # --- queries ------------------------------------------------------------------------

    def clock_observations(self) -> Iterator[ClockObservation]:
        """Yield moments that its files have in local time and UTC; submissions only once."""
        observations, self._clock_observations = self._clock_observations, []
        yield from observations
        status, metrics = self.status_file, self.metrics_file
        if status is not None and status.local and status.epoch is not None:
            yield status.local, status.epoch
        if metrics is not None:
            yield from metrics_observations(metrics, self.logs.intervals)
            yield from metrics_observations(metrics, self.out_times.runs)
        yield from jobstate_observations(self.jobstate_started, self.logs.intervals)
        rescues = self.rescue_files.values()
        yield from rescue_observations(rescues, self.out_times.written, self.logs.intervals)

    def out_is_complete_at(self, moment: datetime) -> bool:
        """Whether ``.dagman.out`` has every submission of this DAG around ``moment``.

        DAGMan always appends to it, so it is complete from its first process to its last line.
        """
        first = self.processes[0].start if self.processes else None
        if first is None or self.out_last_time is None or not self._out_submitted:
            return False
        return first <= moment <= self.out_last_time

    @property
    def metrics(self) -> DagMetrics | None:
        """The metrics file; None unless it certainly existed at the cut."""
        metrics = self.metrics_file
        has_file = metrics is not None and self.is_after_cut(metrics.end) is False
        return metrics if has_file else None

    @property
    def status(self) -> StatusFile | None:
        """The node status file; None unless it certainly existed at the cut."""
        status = self.status_file
        if status is None or self.cut is None:
            return status
        after_cut = status.local > self.cut if status.local else self.is_after_cut(status.epoch)
        return status if after_cut is False else None

    def submission_date(self, cluster: int) -> datetime | None:
        """When a cluster was submitted, or its DAGMan started, to a day; None if not reported."""
        for report in self._submissions(self.node_of(cluster) or ""):
            if report.cluster == cluster:
                return report.time or _in_utc(report.epoch)
        starts = [(process.cluster, process.start) for process in self.processes]
        starts += [(interval.cluster, interval.start) for interval in self.logs.intervals]
        if (metrics := self.metrics_file) is not None:
            starts.append((metrics_cluster(metrics), _in_utc(metrics.start)))
        return next((start for known, start in starts if start and known == cluster), None)

    def spans(self) -> Iterator[tuple[datetime, datetime]]:
        """First and last times of its DAGMan runs in all of its files, to a day."""
        spans = [(process.start, process.end) for process in self.processes]
        spans += [(job.start, job.end or job.last_execute) for job in self.logs.jobs]
        epochs = [epoch for epoch, _ in self.jobstate_started]
        if epochs:
            spans.append((_in_utc(epochs[0]), _in_utc(self.jobstate_last_epoch)))
        if (metrics := self.metrics_file) is not None:
            spans.append((_in_utc(metrics.start), _in_utc(metrics.end)))
        for start, end in spans:
            if start is not None:
                yield start, max(start, end or self.out_last_time or start)

    def missed_end(self, node: str, cluster: int, ended: datetime) -> datetime | None:
        """When DAGMan last waited for a job of a node although its log already had the job's end.

        This follows from its list of pending nodes, the node status file, or a message that it
        could not read an event or lost track of the node. None if no file says so, or if the times
        cannot be compared, since the logs are in UTC and the zone is unknown.
        """
        if self.clock.utc_only and self.clock.zone is None:
            return None
        pending, lost, status = self.pending.get(node), self.lost.get(node), self.status
        errors = (process.log_error for process in self.processes)
        times = [time for time in errors if time is not None and time >= ended]
        if lost is not None and lost.cluster == cluster and lost.time is not None:
            times.append(lost.time)
        late = []
        if pending is not None and (pending.cluster, pending.text) == (cluster, QUEUED):
            late.append(pending.time)
        if status is not None and node in status.nodes and status.nodes[node].procs_queued:
            late.append(status.local)
        times += [time for time in late if time is not None and time - ended > READ_DELAY]
        return max(times, default=None)

    def jobstate_covers(self, moment: datetime) -> bool:
        """Whether the jobstate log had started by ``moment``, and contains submissions."""
        epoch = self.clock.to_epoch(moment)
        start = self.jobstate_started[0][0] if self.jobstate_started else None
        return bool(self.submit_epochs) and start is not None and (epoch or 0.0) >= start

    def coverage_ends(self) -> tuple[datetime | None, datetime | None, datetime | None]:
        """Times up to which ``.dagman.out``, the jobstate log and nodes.log are complete."""
        epoch = self.jobstate_last_epoch
        jobstate = self.clock.to_local(epoch) if epoch else None
        nodes_log = self.logs.nodes_log_span[1] if self.logs.nodes_log_span is not None else None
        return (
            _subtract(self.out_last_time, WRITE_DELAY),
            _subtract(jobstate, WRITE_DELAY),
            _subtract(nodes_log, ONE_SECOND),
        )

    def rescue_files_at_cut(self) -> dict[int, Rescue]:
        """The rescue files that certainly existed at the cut, by number."""
        if self.cut is None:
            return self.rescue_files
        return {n: r for n, r in self.rescue_files.items() if self._rescue_is_after_cut(r) is False}

    def _rescue_is_after_cut(self, rescue: Rescue) -> bool | None:
        if rescue.created is not None:
            return self.is_after_cut(rescue.created.timestamp())
        written = self.out_times.written.get(rescue.path.name)
        return None if written is None or self.cut is None else written > self.cut

    def is_after_cut(self, epoch: float | None) -> bool | None:
        """Whether a moment is after the cut; None if unknown."""
        if self.cut is None:
            return False
        return None if epoch is None else self.clock.is_after(epoch, self.cut)

    def undated_files(self) -> list[str]:
        """Names of files that are ignored because they may not have existed at the cut."""
        if self.cut is None:
            return []
        rescues = self.rescue_files.items()
        names = [r.path.name for _, r in sorted(rescues) if self._rescue_is_after_cut(r) is None]
        metrics, status = self.metrics_file, self.status_file
        if metrics is not None and self.is_after_cut(metrics.end) is None:
            names.append(metrics.path.name)
        if status is not None and not status.local and self.is_after_cut(status.epoch) is None:
            names.append(status.path.name)
        epochs = [epoch for epoch, _ in self.jobstate_started[:1]]
        epochs += islice(self.submit_epochs.values(), 1)
        if self.workflow.jobstate_log and any(self.is_after_cut(epoch) is None for epoch in epochs):
            names.append(PurePath(self.workflow.jobstate_log).name)
        return names

    def current_rescue(self) -> Rescue | None:
        """The rescue file in force: the highest number wins."""
        rescues = self.rescue_files_at_cut()
        return rescues[max(rescues)] if rescues else None

    def done_nodes(self) -> frozenset[str]:
        """Nodes that the DAG file or the rescue file marks ``DONE``."""
        return self.facts.done_with(self.current_rescue())

    def unknown_names(self) -> list[tuple[Path, frozenset[str]]]:
        """Node names, by file (status file, rescue file), that the DAG file does not have."""
        status, rescue = self.status, self.current_rescue()
        named = [(status.path, frozenset(status.nodes))] if status is not None else []
        named += [(rescue.path, rescue.done)] if rescue is not None else []
        return [(path, names - self.workflow.nodes.keys()) for path, names in named]

    def fresh_start(self) -> datetime | None:
        """Start of the newest process, if it started from its DONE nodes alone.

        None for a recovery, and if its number of DONE nodes matches no rescue file here: then a
        file is missing, and older events are the only evidence.
        """
        newest = next(self._accepted_processes(), None)
        if newest is None or newest.recovery or newest.pre_completed not in self.done_counts():
            return None
        return newest.start

    def done_counts(self) -> set[int]:
        """Numbers of nodes marked ``DONE``, without and with each of the rescue files."""
        rescues = (None, *self.rescue_files_at_cut().values())
        return {len(self.facts.done_with(rescue)) for rescue in rescues}

    def last_fresh_start(self) -> datetime | None:
        """Start of the newest process that is not a recovery; None if unknown."""
        return next((p.start for p in self._accepted_processes() if not p.recovery), None)

    def _accepted_processes(self) -> Iterator[Process]:
        """The processes of all runs except refused ones, the newest first."""
        refused = {id(each) for run in self.dagman_runs() if run.refused for each in run.processes}
        return (process for process in reversed(self.processes) if id(process) not in refused)

    def recovery_count(self) -> int:
        """Number of processes that recovered an interrupted one."""
        return sum(process.recovery for process in self._accepted_processes())

    @property
    def aborted(self) -> bool:
        """Whether the newest process got a node's ABORT-DAG-ON value; no node is retried then."""
        newest = next(self._accepted_processes(), None)
        return newest is not None and newest.aborted

    def counts_removal(self, time: datetime | None) -> bool:
        """Whether its newest DAGMan has read that a job was removed then with the whole DAG.

        It counts the job's node as failed. A recovery reads what happened before it, and after
        ABORT-DAG-ON DAGMan reads logs until its FINAL node has ended.
        """
        newest = next(self._accepted_processes(), None)
        if newest is None or not newest.recovery or newest.start is None or time is None:
            return self.aborted and self.facts.has_final
        return time < newest.start

    def submitted_clusters(self, node: str) -> set[int]:
        """The clusters that DAGMan submitted for a node, as reported up to the cut."""
        return {
            report.cluster or 0
            for report in self._submissions(node)
            if report.epoch is None or self.is_after_cut(report.epoch) is False
        }

    def _submissions(self, node: str) -> list[NodeReport]:
        reports = self.node_reports.get(node, ())
        return [report for report in reports if report.cluster is not None]

    def node_of(self, cluster: int) -> str | None:
        """The node that DAGMan submitted the cluster for; None if not reported."""
        return self._out_submitted.get(cluster) or self._jobstate_submitted.get(cluster)

    def replace_workflow(self, workflow: Workflow) -> None:
        """Replace the workflow after a change of the DAG file."""
        self.workflow, self.facts = workflow, WorkflowFacts(workflow)

    # --- DAGMan runs --------------------------------------------------------------------

    def dagman_runs(self) -> list[DagmanRun]:
        """All DAGMan runs, including refused submissions, in the order of their starts."""
        if self._runs is None:
            self._runs = build_runs(self.logs.jobs, self.processes)
        return self._runs

    def accepted_runs(self) -> list[DagmanRun]:
        """The DAGMan runs that acquired the lock file: only these submit jobs."""
        return [run for run in self.dagman_runs() if not run.refused]

    def reset_runs(self) -> None:
        """Drop the cached runs after a change of ``logs.jobs``."""
        self._runs = None

    def current_run(self) -> DagmanRun | None:
        """The current DAGMan run: the live one, else the one that ended last."""
        return current_run(self.dagman_runs())

    def run_starts(self) -> tuple[datetime, ...]:
        """Starts of its DAGMan runs except refused submissions, oldest first."""
        if self.dagman_runs():
            return tuple(run.start for run in self.accepted_runs() if run.start)
        starts = {cluster or epoch: epoch for epoch, cluster in reversed(self._jobstate_starts())}
        local = map(self.clock.to_local, sorted(starts.values()))
        return tuple(time for time in local if time is not None)

    def _jobstate_starts(self) -> list[tuple[float, int | None]]:
        """DAGMan's starts in the jobstate log: seconds since 1970 and DAGMan's cluster."""
        return [start for start in self.jobstate_started if self.is_after_cut(start[0]) is False]

    def dagman_run_count(self) -> int | None:
        """Number of DAGMan runs shown by the files; None if unknown."""
        if self.dagman_runs():
            return len(self.accepted_runs())
        return len({cluster or epoch for epoch, cluster in self._jobstate_starts()}) or None

    def live_state(self) -> DagState:
        """The DAG's state while its DAGMan has not ended."""
        run = self.current_run()
        return DagState.RUNNING if run is None else run.live_state()

    def end_state(self) -> tuple[DagState, datetime | None] | None:
        """State and time of its newest DAGMan's end; None if it has not ended by the cut."""
        run = self.current_run()
        if run is None and self.dagman_runs():
            # All submissions were refused: the other files are not those of the running DAGMan.
            return None
        if run is None:
            ended = self._ended_by_epoch() or self._ended_by_status()
        else:
            metrics = self.metrics if self.wrote_metrics(run) else None
            removed = metrics is not None and metrics.dag_status == DAG_REMOVED
            ended = run.end_state(removed) or self._ended_by_epoch()
            is_done = ended is not None and ended[0] is DagState.DONE
            if ended is not None and is_done and self._aborted_with_rescue(run, metrics):
                ended = DagState.FAILED, ended[1]
        is_later = ended is not None and self.cut and ended[1] and ended[1] > self.cut
        return None if is_later else ended

    def _aborted_with_rescue(self, run: DagmanRun, metrics: DagMetrics | None) -> bool:
        """Whether this run was aborted, and wrote a rescue file.

        DAGMan writes none after ``ABORT-DAG-ON … RETURN 0``, but does so if a FINAL node makes
        its exit status 0.
        """
        last = run.processes[-1] if run.processes else None
        used = PurePath(last.rescue or "").name if last is not None else ""
        previous = rescue_number(used, PurePath(self.file).name)
        if metrics is not None:
            previous = metrics.rescue_number
        reported = metrics is not None and metrics.dag_status == DAG_ABORTED
        aborted = reported or (last is not None and last.aborted)
        return aborted and max(self.rescue_files_at_cut(), default=0) > (previous or 0)

    def wrote_metrics(self, run: DagmanRun | None) -> bool:
        """Whether this run wrote the metrics file; without a run, whether the file exists."""
        metrics = self.metrics
        return metrics is not None and self._matches_run(run, metrics_cluster(metrics), metrics.end)

    def _matches_run(self, run: DagmanRun | None, cluster: int | None, end: float | None) -> bool:
        """Whether this end of a DAGMan, at ``end`` (seconds since 1970), is that of ``run``.

        Without a run: that of the newest DAGMan in the jobstate log.
        """
        if run is not None and run.cluster is not None and cluster is not None:
            return run.cluster == cluster
        if end is None:
            return False
        earliest = max((epoch for epoch, _ in self._jobstate_starts()), default=0.0)
        if run is not None and run.start is not None:
            started = self.clock.to_epoch(run.start)
            if started is None:
                return run.ended or not self.processes
            earliest = max(earliest, started)
        return end >= earliest

    def _ended_by_epoch(self) -> tuple[DagState, datetime | None] | None:
        """The end by files with seconds since 1970, if they belong to the newest run."""
        run, metrics = self.current_run(), self.metrics
        if metrics is not None and is_restart_status(metrics.exitcode or 0):
            metrics = None
        if metrics is not None and metrics.end is not None and self.wrote_metrics(run):
            time = self.clock.to_local(metrics.end)
            if metrics.dag_status == DAG_REMOVED:
                return DagState.REMOVED, time
            return (DagState.DONE if metrics.exitcode == 0 else DagState.FAILED), time
        if (finished := self.jobstate_end()) is not None:
            epoch, value = finished
            refused = {other.cluster for other in self.dagman_runs() if other.refused}
            started = [cluster for _, cluster in self._jobstate_starts()]
            ends = sum(starts == len(started) for _, _, starts in self.jobstate_finished)
            # A refused DAGMan ends before those that were already running.
            if started and started[-1] in refused and ends == 1:
                return None
            clusters = (cluster for cluster in reversed(started) if cluster not in refused)
            if self._matches_run(run, next(clusters, None), epoch):
                # It is also the return value of a node after ABORT-DAG-ON.
                is_removal = value == EXIT_ABORT and not self.facts.aborting
                ended = DagState.REMOVED if is_removal else DagState.FAILED
                return (DagState.DONE if value == 0 else ended), self.clock.to_local(epoch)
        return None

    def jobstate_end(self) -> tuple[float, int | None] | None:
        """The end of the newest DAGMan in the jobstate log (seconds since 1970), and its value."""
        start_count = len(self._jobstate_starts())
        for epoch, value, starts in reversed(self.jobstate_finished):
            if self.is_after_cut(epoch) is False:
                return (epoch, value) if starts == start_count else None
        return None

    def _ended_by_status(self) -> tuple[DagState, datetime | None] | None:
        """The end by the node status file, used only without any DAGMan log."""
        if self.status is None or self.status.dag_status not in (5, 6):
            return None
        state = DagState.DONE if self.status.dag_status == 5 else DagState.FAILED
        return state, self.status.local

    def has_run(self) -> bool:
        """Whether any file shows that a DAGMan of this DAG ever ran (up to the cut)."""
        if self.dagman_runs() or self._jobstate_starts():
            return True
        metrics, status = self.metrics_file, self.status_file
        if metrics is not None and self.is_after_cut(metrics.start) is False:
            return True
        # The node status file is rewritten all the time: a timestamp after the cut proves that
        # DAGMan had not run before only if another file has its start.
        dated = self.jobstate_started or metrics or self.out_times.runs or self.logs.intervals
        return status is not None and (self.status is not None or not dated)

    def dagman_in_queue_at(self, moment: datetime) -> bool | None:
        """Whether a DAGMan of this DAG was in the queue then; None if unknown."""
        if not self.dagman_runs():
            return None
        return any(
            run.start is not None
            and run.start <= moment
            and (run.ended_by is None or moment <= run.ended_by)
            for run in self.accepted_runs()
        )

    def is_dagman(self, cluster: int) -> bool:
        """Whether this is the cluster of a DAGMan job of this DAG."""
        return any(run.cluster == cluster for run in self.dagman_runs())


def _in_utc(epoch: float | None) -> datetime | None:
    if epoch is None:
        return None
    with suppress(OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(epoch, UTC).replace(tzinfo=None)
    return None


def _subtract(time: datetime | None, span: timedelta) -> datetime | None:
    if time is None:
        return None
    with suppress(OverflowError):
        return time - span
    return None


def sub_dags(dags: Mapping[str, Dag]) -> dict[NodeKey, str]:
    """The key of the DAG that each SUBDAG node runs, by node, if it is one of ``dags``."""
    by_path = {dag.workflow.path: key for key, dag in dags.items()}
    inner_by_node: dict[NodeKey, str] = {}
    for key, dag in dags.items():
        for name, node in dag.workflow.nodes.items() if dag.workflow.subdags else ():
            subdag = None if node.subdag is None else dag.workflow.subdags[node.subdag]
            inner = by_path.get(subdag.path) if subdag is not None else None
            if inner is not None and inner != key:
                inner_by_node[key, name] = inner
    return inner_by_node


def named_by(dags: Mapping[str, Dag]) -> dict[str, list[str]]:
    """The keys of the DAGs that name each sub-DAG, in order, by the key of the sub-DAG."""
    named: dict[str, dict[str, None]] = {}
    for (key, _), inner in sub_dags(dags).items():
        if not dags[inner].is_top:
            named.setdefault(inner, {})[key] = None
    return {inner: list(keys) for inner, keys in named.items()}


def set_top_dags(
    dags: Mapping[str, Dag], named: Mapping[str, list[str]], submitter: Submitter
) -> bool:
    """Set the top-level DAG of each sub-DAG; return whether any changed."""
    parents = {
        key: _parent(dags[key], [dags[dag_key] for dag_key in dag_keys], submitter)
        for key, dag_keys in named.items()
    }
    changed = False
    for key in named:
        top, visited = parents[key], {key}
        while top in parents and top not in visited:
            visited.add(top)
            top = parents[top]
        if dags[key].top != top and parents.get(top, top) == top:
            dags[key].top, changed = top, True
    return changed


def _parent(subdag: Dag, candidates: list[Dag], submitter: Submitter) -> str:
    """The DAG that submitted it last, else the first that ran, else the first.

    The sub-DAG itself if none ran, and a user submitted it.
    """
    for run in reversed(subdag.dagman_runs()):
        dag_key = submitter(run.cluster) if run.cluster is not None else None
        if any(dag_key == dag.key for dag in candidates):
            return dag_key or ""
    current, ran = subdag.current_run(), [dag.key for dag in candidates if dag.has_run()]
    by_user = current is not None and current.job is not None and current.job.by_user
    return next(iter(ran), subdag.key if by_user else candidates[0].key)
