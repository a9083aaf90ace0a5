"""Rows and details of jobs."""

from __future__ import annotations

import re

from metlmon.eventlog import (
    Aborted,
    ConnectionEvent,
    Evicted,
    Execute,
    Generic,
    Held,
    Released,
    RemoteError,
)
from metlmon.model.job import Execution, JobHistory, TransferSpan
from metlmon.model.job_events import Job
from metlmon.model.node import submitted_jobs
from metlmon.model.sites import host_of
from metlmon.model.states import State
from metlmon.snapshot.lookups import SnapshotLookups
from metlmon.snapshot.types import EventLine, ExecutionRow, JobRow, JobView, TransferRow

_CLUSTER = re.compile(r"\$\((?:cluster|clusterid)\)", re.IGNORECASE)

_PROCESS = re.compile(r"\$\((?:process|procid)\)", re.IGNORECASE)


class JobRows(SnapshotLookups):
    """Builds the rows of jobs."""

    def job_rows(self) -> list[JobRow]:
        """All jobs, in order of cluster and proc.

        The DAGMan jobs of top-level DAGs are not included.
        """
        return [self.job_row(job) for job in self.real_jobs()]

    def job_row(self, job: Job) -> JobRow:
        """The row of one job."""
        history = self.history(job)
        key = self.node_of(job)
        run = self.runs.by_node.get(key) if key else None
        part = self.runs.parts.get(key) if key else None
        attribution = self.attributions.get((job.cluster, job.proc, job.subproc))
        machine = _machine(history)
        hold = history.hold if history.state is State.HELD else None
        request = next((usage.request for usage in history.usage if usage.name == "Memory"), None)
        peak = next((usage.usage for usage in history.usage if usage.name == "Memory"), None)
        memory = max((value for value in (job.memory_max, peak) if value is not None), default=None)
        return JobRow(
            dag=self.dag_file(key[0]) if key else None,
            in_dag=key[0] if key else None,
            node=key[1] if key else None,
            run=run.names[self.naming_node(run)] if run else None,
            uuid=run.uuid if run else None,
            epoch=part.epoch if part else None,
            cluster=job.cluster,
            proc=job.proc,
            state=history.state or State.IDLE,
            since=history.since,
            seconds=self.seconds(history.since, None) if history.since else None,
            target=self.target(key),
            site=self.site(machine),
            gpu=self.gpu(machine),
            gpus=history.executions[-1].gpus if history.executions else None,
            submitted=history.submitted,
            executions=tuple(self._execution_row(execution) for execution in history.executions),
            transfers=tuple(self._transfer_row(span) for span in history.transfers),
            bytes_sent=history.bytes_sent,
            bytes_received=history.bytes_received,
            memory_mb=int(memory) if memory is not None else None,
            request_memory_mb=int(request) if request is not None else None,
            hold_reason=hold.reason if hold else None,
            hold_code=hold.code if hold else None,
            hold_subcode=hold.subcode if hold else None,
            ambiguous=tuple(
                self.dags[dag_key].file
                for dag_key in (attribution.candidates if attribution else ())
            ),
            off_target=self.off_target(key, self.site(machine)),
        )

    def _execution_row(self, execution: Execution) -> ExecutionRow:
        machine = execution.machine
        return ExecutionRow(
            start=execution.start,
            end=execution.end,
            seconds=self.seconds(execution.start, execution.end),
            suspended=sum(self.seconds(start, end) or 0.0 for start, end in execution.suspensions),
            outcome=execution.outcome,
            code=execution.code,
            subcode=execution.subcode,
            reason=execution.reason,
            return_value=execution.return_value,
            signal=execution.signal,
            site=self.site(machine),
            host=host_of(machine) if machine else None,
            gpu=self.gpu(machine),
            gpus=execution.gpus,
            gpu_hours=self.gpu_hours(execution),
            uncertain=execution.uncertain,
        )

    def _transfer_row(self, span: TransferSpan) -> TransferRow:
        outcome = "in-flight" if span.outcome == "pending" else span.outcome
        return TransferRow(
            direction=span.direction,
            start=span.start,
            end=span.end,
            seconds=self.seconds(span.start, span.end),
            outcome=outcome,
            host=span.host,
            queue_seconds=span.queue_seconds,
        )

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        """The details of one job; None when there is no such job."""
        job = self.ensemble.jobs.get(self.ensemble.reused_ids.newest((cluster, proc)))
        if job is None or job.key in self.ensemble.unproven.foreign:
            return None
        key = self.node_of(job)
        record = self.nodes.get(key) if key else None
        siblings = submitted_jobs(record) if record else (job.id,)
        return JobView(
            row=self.job_row(job),
            events=self.event_lines(job),
            memory_updates=job.memory_updates,
            usage=self.history(job).usage,
            output=_expand_macros(record.node.output, job) if record else None,
            error=_expand_macros(record.node.error, job) if record else None,
            siblings=siblings,
            states=tuple(self.history(job).states),
        )

    def event_lines(self, job: Job) -> tuple[EventLine, ...]:
        """The events of a job as lines of text.

        Left out are its 006 events, and inferred holds that turned out to be needless.
        """
        holds = self.history(job).holds
        return tuple(
            EventLine(
                time=event.time,
                number=event.number,
                name=event.name,
                text=_event_text(event.text, event.detail, event.body),
                damaged=event.damaged,
            )
            for event in job.events()
            if not (isinstance(event.detail, Held) and event.detail.inferred)
            or (event.time, event.detail) in holds
        )

    def output_file(self, cluster: int, proc: int) -> str | None:
        """The output file of a job, from its submit description.

        None where that is not known.
        """
        job = self.ensemble.jobs.get(self.ensemble.reused_ids.newest((cluster, proc)))
        key = self.node_of(job) if job is not None else None
        record = self.nodes.get(key) if key else None
        return _expand_macros(record.node.output, job) if record and job else None


def _machine(history: JobHistory | None) -> Execute | None:
    return history.executions[-1].machine if history is not None and history.executions else None


def _event_text(text: str, detail: object, body: str) -> str:
    """An event's header text, followed by the reason in its body."""
    match detail:
        case Evicted() | Held() | Released() | Aborted() | ConnectionEvent():
            reason = detail.reason
        case RemoteError():
            reason = detail.message
        case Generic():
            reason = None
        case None:
            reason = body.strip() or None
        case _:
            reason = getattr(detail, "reason", None)
    return f"{text} {reason}".strip() if reason else text


def _expand_macros(name: str | None, job: Job) -> str | None:
    """A file name with the ``$(Cluster)`` and ``$(Process)`` macros expanded."""
    if name is None:
        return None
    return _PROCESS.sub(str(job.proc), _CLUSTER.sub(str(job.cluster), name))
