"""Pictures → the JSON contract (schema 1), for ``status``, ``run`` and ``jobs``.

Fields are added over time, never renamed or repurposed within one schema number. What is
not known is null, never 0 or "".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from metlmon.model.model_state import Notice
from metlmon.model.run import GateStatus
from metlmon.model.states import HourUnit, State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.node_text import state_reason
from metlmon.snapshot.types import (
    Count,
    EpochRow,
    ExecutionRow,
    FailedEpoch,
    GpuHours,
    JobRow,
    Latest,
    NodeRow,
    RunRow,
    RunView,
    Status,
    TransferRow,
)

if TYPE_CHECKING:
    from metlmon.pool.discrepancies import QueueDiscrepancy
    from metlmon.pool.types import QueueSnapshot
    from metlmon.stats.estimates import Forecast, Interval, RunForecast
    from metlmon.stats.incident_rules import Incident
    from metlmon.stats.inputs import StatsInput

SCHEMA: Final = 1

HOURS_DIGITS: Final = 6
"""Decimals of GPU-hours: a millionth of an hour is below the second that stamps resolve."""

SECONDS_DIGITS: Final = 3

Stamp = Callable[[datetime], datetime]


class JsonWriter:
    """Writes the pictures of one ensemble; ``stated`` adds a zone where one is known."""

    def __init__(self, stated: Stamp) -> None:
        self._stated = stated

    def time(self, when: datetime | None) -> str | None:
        return self._stated(when).isoformat() if when is not None else None

    def status(self, status: Status) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "dagdir": status.dagdir,
            "as_of": self.time(status.as_of),
            "live": status.live,
            "warnings": warnings(status.warnings),
            "dags": [
                {
                    "file": dag.file,
                    "state": str(dag.state),
                    "dagmans": dag.dagmans,
                    "nodes_total": dag.nodes_total,
                    "nodes_done": dag.nodes_done,
                    "nodes_failed": dag.nodes_failed,
                    "nodes_unknown": dag.nodes_unknown,
                    "rescue": dag.rescue,
                    "submissions": [self.time(t) for t in dag.submissions],
                    "ended": self.time(dag.ended),
                    "halted": dag.halted,
                    "recoveries": dag.recoveries,
                    "cluster": dag.cluster,
                    "submissions_refused": dag.refused,
                    "hold_reason": dag.hold.reason if dag.hold else None,
                    "hold_code": dag.hold.code if dag.hold else None,
                }
                for dag in status.dags
            ],
            "runs": [self.run(run) for run in status.runs],
            "special_nodes": [self.node(node) for node in status.special_nodes],
            "side_nodes": {
                "total": status.side_nodes.total,
                "done": status.side_nodes.done,
                "failed": status.side_nodes.failed,
                "overruled": status.side_nodes.overruled,
            },
            "states": {
                "epochs": _counts(status.epoch_states),
                "nodes": _counts(status.node_states),
            },
            "nodes_unlogged": status.nodes_unlogged,
            "gpu_hours": _gpu_hours(status.gpu_hours),
            "hours": hours_of(status.gpu_hours),
            "sites": [
                {
                    "site": site.site,
                    "target": list(site.target),
                    "executions": site.executions,
                    "completed_epochs": site.completed_epochs,
                    **_split(site.gpu_hours),
                    "seconds_median": seconds(site.seconds_median),
                }
                for site in status.sites
            ],
            "gpus": [
                {
                    "gpu": gpu.gpu,
                    "executions": gpu.executions,
                    "completed_epochs": gpu.completed_epochs,
                    **_split(gpu.gpu_hours),
                }
                for gpu in status.gpus
            ],
            "causes": [
                {
                    "cause": cause.cause,
                    "code": cause.code,
                    "subcode": cause.subcode,
                    "executions": cause.executions,
                    "bad": hours(cause.bad),
                    "example": cause.example,
                    "end_unknown": cause.end_unknown,
                }
                for cause in status.causes
            ],
            "transfers": {
                "input": {
                    "ok": _count(status.transfers.input_ok),
                    "aborted": _count(status.transfers.input_aborted),
                    "unfinished": _count(status.transfers.input_unfinished),
                },
                "output": _count(status.transfers.output),
                "bytes_sent": status.transfers.bytes_sent,
                "bytes_received": status.transfers.bytes_received,
            },
            "logs": [
                {
                    "file": log.file,
                    "bytes": log.bytes,
                    "events": log.events,
                    "first": self.time(log.first),
                    "last": self.time(log.last),
                }
                for log in status.logs
            ],
        }

    def run(self, run: RunRow) -> dict[str, Any]:
        return {
            "run": run.run,
            "uuid": run.uuid,
            "dag": run.dag,
            "epochs_total": run.epochs_total,
            "epochs_done": run.epochs_done,
            "epochs_inferred": run.epochs_inferred,
            "epochs_unknown": run.epochs_unknown,
            "epochs_skipped": run.epochs_skipped,
            "epochs_overruled": run.epochs_overruled,
            "state": str(run.state),
            "latest": self._latest(run.latest) if run.latest else None,
            "gpu_hours": _gpu_hours(run.gpu_hours),
            "hours": hours_of(run.gpu_hours),
            "gate": self._gate(run.gate) if run.gate else None,
            "failed": self._failed(run.failed) if run.failed else None,
        }

    def _failed(self, failed: FailedEpoch) -> dict[str, Any]:
        return {
            "epoch": failed.epoch,
            "node": failed.node,
            "state": str(failed.state),
            "since": self.time(failed.since),
            "reason": failed.reason,
        }

    def _gate(self, gate: GateStatus) -> dict[str, Any]:
        stopped = gate.stopped
        return {
            "stop_asked": self.time(gate.stop_requested),
            "pause_asked": self.time(gate.pause_requested),
            "paused": self.time(gate.paused),
            "target": gate.target,
            "stopped": stopped
            and {
                "rule": stopped.rule,
                "epoch": stopped.epoch,
                "reason": stopped.reason,
                "time": self.time(stopped.time),
            },
        }

    def _latest(self, latest: Latest) -> dict[str, Any]:
        return {
            "epoch": latest.epoch,
            "epoch_var": latest.epoch_var,
            "node": latest.node,
            "cluster": latest.cluster,
            "proc": latest.proc,
            "target": latest.target,
            "site": latest.site,
            "gpu": latest.gpu,
            "gpus": latest.gpus,
            "state": str(latest.state),
            "since": self.time(latest.since),
            "seconds": seconds(latest.seconds),
            "attempt": latest.attempt,
            "hold_reason": latest.hold_reason,
            "hold_code": latest.hold_code,
            "off_target": latest.off_target,
            "overruled": latest.overruled,
        }

    def run_view(self, view: RunView) -> dict[str, Any]:
        return {
            **self.run(view.row),
            "epochs": [self.epoch(epoch) for epoch in view.epochs],
            "side_nodes": [self.epoch(epoch) for epoch in view.side],
        }

    def epoch(self, epoch: EpochRow) -> dict[str, Any]:
        return {
            "node": epoch.node,
            "dag": epoch.dag,
            "in_dag": epoch.in_dag,
            "epoch": epoch.epoch,
            "epoch_var": epoch.epoch_var,
            "state": str(epoch.state),
            "inferred": epoch.inferred,
            "since": self.time(epoch.since),
            "seconds": seconds(epoch.seconds),
            "jobs": [f"{cluster}.{proc}" for cluster, proc in epoch.jobs],
            "target": epoch.target,
            "site": epoch.site,
            "gpu": epoch.gpu,
            "gpus": epoch.gpus,
            "submitted": self.time(epoch.submitted),
            "queue_wait": seconds(epoch.queue_wait),
            "transfer": seconds(epoch.transfer),
            "execution": seconds(epoch.execution),
            "attempts": epoch.attempts,
            "gpu_hours": _gpu_hours(epoch.gpu_hours),
            "trained_on": epoch.trained_on,
            "hold_reason": epoch.hold_reason,
            "hold_code": epoch.hold_code,
            "job_state": _state(epoch.job_state),
            "job_return": epoch.job_return,
            "overruled": epoch.overruled,
            "evaluations": [row.node for row in epoch.evaluations],
        }

    def node(self, node: NodeRow) -> dict[str, Any]:
        """Any node. ``job_state``, ``job_return``: what its job came to, whatever a POST script
        made of it; ``run``: the key of its run."""
        return {
            "dag": node.dag,
            "in_dag": node.dag_key,
            "node": node.node,
            "kind": node.kind,
            "run": node.run,
            "state": str(node.state),
            "inferred": node.inferred,
            "since": self.time(node.since),
            "seconds": seconds(node.seconds),
            "jobs": [f"{cluster}.{proc}" for cluster, proc in node.jobs],
            "job_state": _state(node.job_state),
            "job_return": node.job_return,
            "overruled": node.overruled,
            "attempts": node.attempts,
            "retries": node.retries,
            "retries_left": node.retries_left,
            "target": node.target,
            "site": node.site,
            "gpu": node.gpu,
            "gpus": node.gpus,
            "parents": node.parents,
            "children": node.children,
            "waiting_parents": node.unfinished_parents,
            "waits_for": list(node.waits_for),
            "why": state_reason(node) or None,
            "reason": node.reason,
            "behind": node.failed_ancestor,
            "submissions": node.submissions,
            "submit": node.submit,
            "hold_reason": node.hold_reason,
            "hold_code": node.hold_code,
        }

    def jobs(self, painter: SnapshotBuilder, rows: Iterable[JobRow]) -> dict[str, Any]:
        return {**self.jobs_head(painter), "jobs": [self.job(row) for row in rows]}

    def jobs_head(self, painter: SnapshotBuilder) -> dict[str, Any]:
        """What stands before the jobs."""
        return {
            "schema": SCHEMA,
            "dagdir": painter.dagdir,
            "as_of": self.time(painter.as_of),
            "warnings": warnings(painter.notices()),
        }

    def job(self, job: JobRow) -> dict[str, Any]:
        return {
            "dag": job.dag,
            "in_dag": job.in_dag,
            "node": job.node,
            "run": job.run,
            "uuid": job.uuid,
            "epoch": job.epoch,
            "cluster": job.cluster,
            "proc": job.proc,
            "state": str(job.state),
            "since": self.time(job.since),
            "target": job.target,
            "site": job.site,
            "gpu": job.gpu,
            "gpus": job.gpus,
            "submitted": self.time(job.submitted),
            "executions": [self._execution(e) for e in job.executions],
            "transfers": [self._transfer(t) for t in job.transfers],
            "bytes_sent": job.bytes_sent,
            "bytes_received": job.bytes_received,
            "memory_mb": job.memory_mb,
            "request_memory_mb": job.request_memory_mb,
            "hold_reason": job.hold_reason,
            "hold_code": job.hold_code,
            "hold_subcode": job.hold_subcode,
            "candidates": list(job.ambiguous),
        }

    def _execution(self, e: ExecutionRow) -> dict[str, Any]:
        return {
            "start": self.time(e.start),
            "end": self.time(e.end),
            "outcome": str(e.outcome),
            "code": e.code,
            "subcode": e.subcode,
            "reason": e.reason,
            "return_value": e.return_value,
            "signal": e.signal,
            "site": e.site,
            "host": e.host,
            "gpu": e.gpu,
            "gpus": e.gpus,
            "gpu_hours": None if e.gpu_hours is None else hours(e.gpu_hours),
            "seconds": seconds(e.seconds),
            "suspended": seconds(e.suspended),
            "uncertain": e.uncertain,
        }

    def _transfer(self, t: TransferRow) -> dict[str, Any]:
        return {
            "direction": t.direction,
            "start": self.time(t.start),
            "end": self.time(t.end),
            "outcome": t.outcome,
            "host": t.host,
            "seconds": seconds(t.seconds),
            "queue_seconds": t.queue_seconds,
        }


def queue_word(word: QueueSnapshot, differing: Iterable[QueueDiscrepancy]) -> dict[str, Any]:
    """The queue's word: its own times are seconds since the epoch, written in UTC.
    ``differs`` is how it is at this moment: the log may be a moment behind."""
    from metlmon.pool.discrepancies import WORDS

    differs = {each.job: each.queue_says for each in differing}
    gone = sorted(differs.keys() - {(job.cluster, job.proc) for job in word.jobs})
    return {
        "schedd": word.schedd,
        "version": word.version,
        "user": word.user,
        "asked": _utc(word.asked),
        "error": word.error,
        "jobs": [
            {
                "cluster": job.cluster,
                "proc": job.proc,
                "status": WORDS.get(job.status),
                "owner": job.owner or None,
                "priority": job.priority,
                "position": job.position,
                "waiting": job.waiting,
                "matches": job.matches,
                "rejection": job.rejection,
                "rejected_at": _utc(job.rejected_at),
                "differs": differs.get((job.cluster, job.proc)),
            }
            for job in word.jobs
        ],
        "missing": [{"cluster": cluster, "proc": proc} for cluster, proc in gone],
    }


def _utc(seconds_since_1970: float | None) -> str | None:
    if seconds_since_1970 is None:
        return None
    try:
        return datetime.fromtimestamp(int(seconds_since_1970), UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return None


def figures_json(writer: JsonWriter, basis: StatsInput) -> dict[str, Any]:
    """What ``status --json`` adds to the picture: when it will be done, and every incident."""
    from metlmon.stats.estimates import make_forecast
    from metlmon.stats.incidents import incidents

    return {
        "estimate": outlook_json(writer, make_forecast(basis)),
        "incidents": [incident_json(writer, each) for each in incidents(basis)],
    }


def outlook_json(writer: JsonWriter, told: Forecast) -> dict[str, Any]:
    """An estimate: ``remaining`` in seconds from as-of, with the interval that holds in four of
    five cases; ``why_not`` where nothing can be said."""
    rate = told.rate
    return {
        "epochs_done": told.done,
        "epochs_total": told.total,
        "epochs_skipped": told.skipped,
        "remaining": _span(told.remaining),
        "at": writer.time(told.expected_end),
        "ended": writer.time(told.completed_at),
        "why_not": told.missing_reason,
        "without": [{"run": name, "why": why} for name, why in told.excluded],
        "slowest": told.slowest_run,
        "rate": None
        if rate is None
        else {
            "epochs": rate.epochs,
            "seconds": seconds(rate.seconds),
            "per_day": round(rate.per_day, 6),
        },
        "runs": [_run_outlook(writer, run) for run in told.runs],
    }


def _run_outlook(writer: JsonWriter, run: RunForecast) -> dict[str, Any]:
    pace = run.durations
    return {
        "key": run.run,
        "run": run.run_name,
        "epochs_done": run.done,
        "epochs_total": run.total,
        "epochs_left": run.epochs_left,
        "remaining": _span(run.remaining),
        "at": writer.time(run.expected_end),
        "ended": writer.time(run.completed_at),
        "why_not": run.missing_reason,
        "epoch": run.epoch_number,
        "epoch_remaining": _span(run.epoch_remaining),
        "seconds_per_epoch": None
        if pace is None
        else {
            "median": seconds(pace.median),
            "lower_quartile": seconds(pace.lower),
            "upper_quartile": seconds(pace.upper),
            "epochs": pace.epochs,
        },
    }


def _span(span: Interval | None) -> dict[str, Any] | None:
    if span is None:
        return None
    return {
        "low": seconds(span.low),
        "middle": seconds(span.median),
        "high": seconds(span.high),
        "samples": span.samples,
        "source": span.source,
    }


def incident_json(writer: JsonWriter, incident: Incident) -> dict[str, Any]:
    """One incident; ``until`` null and ``still`` true: it lasts."""
    return {
        "kind": incident.kind,
        "severity": incident.severity.name.lower(),
        "since": writer.time(incident.since),
        "until": writer.time(incident.until),
        "still": incident.ongoing,
        "text": incident.text,
        "advice": incident.advice,
        "runs": list(incident.runs),
        "jobs": [f"{cluster}.{proc}" for cluster, proc in incident.jobs],
        "site": incident.site,
    }


def head(painter: SnapshotBuilder) -> dict[str, Any]:
    """What every answer about an ensemble begins with."""
    return {
        "schema": SCHEMA,
        "dagdir": painter.dagdir,
        "as_of": JsonWriter(painter.clock.with_offset).time(painter.as_of),
        "live": painter.live,
        "warnings": warnings(painter.notices()),
    }


def warnings(notices: Iterable[Notice]) -> list[dict[str, Any]]:
    return [{"kind": n.kind, "file": n.file, "line": n.line, "text": n.text} for n in notices]


def _state(state: State | None) -> str | None:
    return None if state is None else str(state)


def _counts(states: Mapping[State, int]) -> dict[str, int]:
    return {str(state): states.get(state, 0) for state in State}


def hours_of(value: GpuHours) -> dict[str, Any]:
    """Hours in the measure of the ensemble: ``GPU``; ``CPU`` or ``wall`` where nothing had one."""
    split = {"good": value.good, "bad": value.bad, "in_flight": value.in_flight}
    told = {kind: hours(each) for kind, each in split.items()}
    return {"measure": str(value.measure), **told, "total": hours(value.total)}


def _gpu_hours(value: GpuHours) -> dict[str, float]:
    return {**_split(value), "total": hours(value.total) if value.measure is HourUnit.GPU else 0.0}


def _split(value: GpuHours) -> dict[str, float]:
    if value.measure is not HourUnit.GPU:
        value = GpuHours()
    return {
        "good": hours(value.good),
        "bad": hours(value.bad),
        "in_flight": hours(value.in_flight),
    }


def _count(value: Count) -> dict[str, float]:
    return {"n": value.n, "seconds": seconds(value.seconds) or 0}


def hours(value: float) -> float:
    return round(value, HOURS_DIGITS)


def seconds(value: float | None) -> float | None:
    """Seconds, whole where stamps were whole."""
    if value is None:
        return None
    rounded = round(value, SECONDS_DIGITS)
    return int(rounded) if rounded == int(rounded) else rounded
