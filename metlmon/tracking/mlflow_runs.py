"""The runs that a tracker should have of an ensemble, from its frames and what trainings wrote.

The ensemble is the parent run, each training run that has begun a child. The step of a child's
metrics is the epoch as in the node's name, mostly from 0; their time is the epoch's
end by the logs. The step of the parent's metrics is the number of executions that have ended.
A run starts with its first submission, which is the beginning of its wait.

A point appears when its epoch has ended, since trackers do not delete points: an epoch with a job
in the queue has not. Where the logs do not have the time of an end, it is that of the next epoch's
submission, else the run's end.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from msgspec import Struct

from metlmon.live.feed import StatsInput
from metlmon.model.states import ACTIVE, ALIVE, DONE, ENDED, DagState, State
from metlmon.redact import hide_value, redact_secrets
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import HourUnit, Job, Ledger, Status
from metlmon.stats.sweep import constant_values
from metlmon.stats.totals import group_by
from metlmon.tables.frames import Frames, Value
from metlmon.text.formatting import epoch_text, hours, plain

MAX_KEY: Final = 250
MAX_PARAM: Final = 6000
MAX_TAG: Final = 5000
"""Characters that MLflow servers take of names, params and tags; some take 8000 of a tag."""

KEY_TAG: Final = "metlmon.key"
ENSEMBLE_TAG: Final = "metlmon.ensemble"
PARENT_TAG: Final = "mlflow.parentRunId"
NOTE_TAG: Final = "mlflow.note.content"
NOTE_MARK: Final = "Epochs by the logs, written by metlmon:"
"""The first line of a description that may be replaced: people write their own, too."""

NO_PARAMS: Final = frozenset(
    {
        *("run", "run_uuid", "node", "epoch", "epochs"),
        *("resourcename", "gpumodel", "continue_from_checkpoint"),
    }
)
"""Variables, in lower case, that name the run, its place or its length, which may grow."""

GPU_HOURS: Final = ("gpu_hours_goodput", "gpu_hours_badput")
EPOCH_METRICS: Final = (*GPU_HOURS, "attempts", "gpus", "seconds")
"""Columns of the frame ``epochs`` that are metrics."""

MEMORY_METRIC: Final = "system/memory_mb"

EXECUTION_SUMS: Final = ("wait_seconds", "transfer_seconds", "bytes_sent", "bytes_received")
"""Columns of the frame ``executions`` whose sums over an epoch are metrics."""

OWN_METRICS: Final = (
    *(f"metlmon/{name}" for name in (*EPOCH_METRICS, *EXECUTION_SUMS)),
    MEMORY_METRIC,
)
"""Names of metrics that a training cannot give to its own."""

RUN_TAGS: Final = (
    *("state", "uuid", "run_name", "label", "dag", "epochs_done", "epochs_total"),
    *(*GPU_HOURS, "hold_code", "hold_reason"),
)
"""Columns of the frame ``runs`` that are tags."""

PASSING_TAGS: Final = frozenset(
    {
        *(f"metlmon.{name}" for name in (*RUN_TAGS, "steps_by_site", "steps_by_gpu")),
        *(
            f"metlmon.{unit.lower()}_hours_{kind}"
            for unit in HourUnit
            for kind in ("goodput", "badput")
        ),
    }
)
"""Tags that a run may lose again, such as the reason of a hold."""

STATUSES: Final[Mapping[State, str]] = {
    State.COMPLETED: "FINISHED",
    State.SKIPPED: "FINISHED",
    State.FAILED: "FAILED",
    State.FUTILE: "FAILED",
    State.REMOVED: "KILLED",
}
"""Status of a run by its state; the others are under way."""

ENDED_STATUSES: Final = {
    DagState.DONE: "FINISHED",
    DagState.FAILED: "FAILED",
    DagState.REMOVED: "KILLED",
}
"""Status of a run that is not complete when its DAG has ended."""

UNDER_WAY: Final = ("RUNNING", "SCHEDULED")
"""Statuses of runs that may go on."""

Row = Mapping[str, Any]


class MetricPoint(Struct, frozen=True):
    """One value of a metric; ``time``: milliseconds since 1970."""

    step: int
    key: str
    value: float
    time: int


class TrackedRun(Struct, frozen=True):
    """One run of a tracker.

    ``key``: found again by it; ``start`` and ``end``: milliseconds since 1970; ``end`` None: not
    ended, or not known when. ``status``: FINISHED, FAILED, KILLED, RUNNING or SCHEDULED. ``note``:
    its description, Markdown. ``points`` are ordered by step, then by key.
    """

    key: str
    name: str
    start: int
    end: int | None
    status: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    points: tuple[MetricPoint, ...]
    note: str = ""


class TrackedEnsemble(Struct, frozen=True):
    """The parent run and its children; ``untimed``: runs without a submission in the logs.

    ``zone_known`` False: the logs do not have the time zone, and that of this machine is used.
    """

    parent: TrackedRun
    children: tuple[TrackedRun, ...]
    untimed: int
    zone_known: bool


def tracked_ensemble(builder: SnapshotBuilder, basis: StatsInput) -> TrackedEnsemble | None:
    """The runs of an ensemble; None if none of its jobs was ever submitted.

    ``basis``: the same snapshot with what the trainings wrote.
    """
    if basis.ledger.first_time is None:
        return None
    return _Ensemble(builder, basis).tracked()


def ensemble_key(ledger: Ledger) -> str:
    """What identifies an ensemble: its first job, and when that was submitted.

    It does not change when the directory is moved or copied, when runs are continued, or when the
    time zone becomes known: offsets are multiples of a quarter of an hour, which do not count.
    """
    times = {job.job: job.submitted or next(_times([job]), datetime.max) for job in ledger.jobs}
    first = min(ledger.jobs, key=lambda job: (times[job.job], job.job))
    time = times[first.job]
    moment = (time.minute % 15, time.second)
    identity = (first.job, moment, first.node, first.uuid or first.run_name)
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]


class _Ensemble:
    """Collects the runs of one snapshot."""

    def __init__(self, builder: SnapshotBuilder, basis: StatsInput) -> None:
        self._clock = builder.clock
        self._basis = basis
        self._ledger = basis.ledger
        self._frames = Frames(builder)
        self._key = ensemble_key(basis.ledger)
        self._executions = self._rows("executions")
        self._started = {row["run"] for row in self._executions}
        self._by_node = group_by(self._executions, _node)
        jobs = self._rows("jobs")
        self._jobs_by_node = group_by(jobs, _node)
        # Evaluations may be queued behind the last epoch: the training has ended by then.
        self._queued_runs = {
            row["run"] for row in jobs if row["training"] and State(row["state"]) in ACTIVE
        }
        self._has_gpu_hours = basis.status.gpu_hours.measure is HourUnit.GPU
        self._jobs_by_run = group_by(
            (job for job in self._ledger.jobs if job.run is not None), lambda job: job.run or ""
        )
        self._epochs = group_by(
            (row for row in self._rows("epochs") if row["counts"]), lambda row: row["run"]
        )
        self._params = _params(basis)
        self._dag_states = {row.file: row.state for row in basis.status.dags}
        self._dag_ends = {row.file: row.ended for row in basis.status.dags}

    def tracked(self) -> TrackedEnsemble:
        rows = self._rows("runs")
        statuses = {row["run"]: self._status(row) for row in rows}
        begun = [row for row in rows if row["began"] is not None]
        children = tuple(self._child(row, statuses[row["run"]]) for row in begun)
        return TrackedEnsemble(
            parent=self._parent(children, list(statuses.values())),
            children=children,
            untimed=len(rows) - len(begun),
            zone_known=self._clock.has_offset or self._clock.utc_only,
        )

    def _rows(self, frame: str) -> list[Row]:
        values = self._frames.values(frame)
        return [
            dict(zip(values, record, strict=True)) for record in zip(*values.values(), strict=True)
        ]

    # --- runs -------------------------------------------------------------------------------

    def _child(self, row: Row, status: str) -> TrackedRun:
        run = row["run"]
        ended = self._run_end(row) if status in STATUSES.values() else None
        epochs = self._ended_epochs(row, ended)
        points = [*self._epoch_points(epochs), *self._training_points(run, epochs, ended)]
        tags = {f"metlmon.{name}": row[name] for name in self._known(RUN_TAGS)}
        tags["metlmon.steps_by_site"] = _steps_by("site", epochs)
        tags["metlmon.steps_by_gpu"] = _steps_by("gpu", epochs)
        key = f"{self._key}/{row['uuid'] or run}"
        return TrackedRun(
            key=key,
            name=row["run_name"] or run,
            start=self._milliseconds(row["began"]),
            end=None if ended is None else self._milliseconds(ended),
            status=status,
            params=self._params.get(run, {}),
            tags=_texts({**tags, KEY_TAG: key, ENSEMBLE_TAG: self._key, "metlmon.kind": "run"}),
            points=_ordered(points),
            note=_note(epochs),
        )

    def _status(self, row: Row) -> str:
        state, dag = State(row["state"]), self._dag_states.get(row["dag"])
        # Between two epochs the state is that of the one before.
        complete = row["epochs_done"] + row["epochs_skipped"] >= row["epochs_total"]
        if not (row["run"] in self._queued_runs and self._may_go_on(row)):
            if state in STATUSES and (complete or state not in DONE):
                return STATUSES[state]
            if dag in ENDED_STATUSES:
                return ENDED_STATUSES[dag]
        return "RUNNING" if row["run"] in self._started else "SCHEDULED"

    def _may_go_on(self, row: Row) -> bool:
        """Whether a job that the logs have in the queue is there, for a run or an epoch."""
        return self._basis.status.live or self._dag_states.get(row["dag"]) not in ENDED

    def _known(self, names: Iterable[str]) -> list[str]:
        """Columns that can be filled: GPU-hours of an ensemble without GPUs cannot."""
        return [name for name in names if self._has_gpu_hours or name not in GPU_HOURS]

    def _run_end(self, row: Row) -> datetime:
        """When a run ended: its last job left the queue, or its DAG was removed."""
        jobs = self._jobs_by_run.get(row["run"], ())
        times = [job.ended for job in jobs if job.ended is not None]
        times += [epoch["completed"] for epoch in self._epochs.get(row["run"], ())]
        end = max(filter(None, times), default=None)
        stopped = self._dag_ends.get(row["dag"])
        if stopped is not None and State(row["state"]) not in STATUSES:
            return stopped if end is None else max(end, stopped)
        return end or stopped or max(_times(jobs), default=row["began"])

    def _parent(self, children: Sequence[TrackedRun], statuses: Sequence[str]) -> TrackedRun:
        status = self._basis.status
        state = _ensemble_status(status, statuses)
        ends = [child.end for child in children if child.end is not None]
        ends += [self._milliseconds(end) for end in self._dag_ends.values() if end is not None]
        unit = status.gpu_hours.measure.lower()
        first = self._ledger.first_time
        assert first is not None
        newest = max((log.last for log in status.logs if log.last is not None), default=first)
        tags = {
            KEY_TAG: self._key,
            ENSEMBLE_TAG: self._key,
            "metlmon.kind": "ensemble",
            "metlmon.dag": ", ".join(row.file for row in status.dags),
            "metlmon.dag_state": ", ".join(row.state for row in status.dags),
            "metlmon.runs": len(status.runs),
            "metlmon.epochs_done": sum(status.epoch_states.get(state, 0) for state in DONE),
            "metlmon.epochs_total": sum(status.epoch_states.values()),
            f"metlmon.{unit}_hours_goodput": status.gpu_hours.goodput,
            f"metlmon.{unit}_hours_badput": status.gpu_hours.badput,
            "metlmon.newest_event": self._frames.local_time_text(newest),
        }
        return TrackedRun(
            key=self._key,
            name=_ensemble_name(status),
            start=self._milliseconds(first),
            end=max(ends, default=None) if state in STATUSES.values() else None,
            status=state,
            params={},
            tags=_texts(tags),
            points=_ordered(self._usage_points()),
        )

    # --- points -----------------------------------------------------------------------------

    def _ended_epochs(self, run: Row, run_end: datetime | None) -> list[Row]:
        """The epochs of a run that have ended, with ``step`` and ``time`` added."""
        epochs = self._epochs.get(run["run"], [])
        ended: list[Row] = []
        for i, row in enumerate(epochs):
            jobs = self._jobs_by_node.get(_node(row), ())
            if self._may_go_on(run) and any(State(job["state"]) in ACTIVE for job in jobs):
                continue
            end = run_end if row["attempts"] else None
            if State(row["state"]) in DONE:
                later = (epoch["first_submitted"] for epoch in epochs[i + 1 :])
                end = row["completed"] or next(filter(None, later), run_end)
            if end is not None:
                step = i if row["epoch"] is None else row["epoch"] - 1
                ended.append({**row, "step": step, "time": self._milliseconds(end)})
        return ended

    def _epoch_points(self, epochs: Iterable[Row]) -> Iterator[MetricPoint]:
        for row in epochs:
            if not row["attempts"]:
                # Skipped, or of a part whose logs are not here: its cost is not known.
                continue
            values: dict[str, Value] = {
                f"metlmon/{name}": row[name] for name in self._known(EPOCH_METRICS)
            }
            executions = self._by_node.get(_node(row), ())
            for name in EXECUTION_SUMS:
                known = [each[name] for each in executions if each[name] is not None]
                values[f"metlmon/{name}"] = sum(known) if known else None
            jobs = self._jobs_by_node.get(_node(row), ())
            memory = [job["memory_mb"] for job in jobs if job["memory_mb"] is not None]
            values[MEMORY_METRIC] = max(memory, default=None)
            for key, value in values.items():
                if isinstance(value, int | float):
                    yield MetricPoint(row["step"], key, float(value), row["time"])

    def _training_points(
        self, run: str, epochs: Sequence[Row], run_end: datetime | None
    ) -> Iterator[MetricPoint]:
        """What the training wrote by epoch, of the epochs that have ended."""
        output = self._basis.trainings.get(run)
        if output is None:
            return
        times = {row["step"]: row["time"] for row in epochs}
        names = _clean_names(output.metrics, OWN_METRICS)
        for metric, points in output.metrics.items():
            for point in points:
                time = times.get(point.epoch)
                if time is None and run_end is not None:
                    time = self._milliseconds(run_end)
                if time is not None:
                    yield MetricPoint(point.epoch, names[metric], point.value, time)

    def _usage_points(self) -> Iterator[MetricPoint]:
        """GPU-hours so far, after each execution that has ended."""
        if not self._has_gpu_hours:
            return
        ended = [row for row in self._executions if row["end"] is not None]
        ended.sort(key=lambda row: (row["end"], row["cluster"], row["proc"], row["start"]))
        totals = {"goodput": 0.0, "badput": 0.0}
        for step, row in enumerate(ended, 1):
            lost = row["lost_seconds"] / row["seconds"] if row["lost_seconds"] else 0.0
            totals["goodput"] += (1 - lost) * (row["gpu_hours"] or 0.0)
            totals["badput"] += lost * (row["gpu_hours"] or 0.0)
            time = self._milliseconds(row["end"])
            for kind, value in totals.items():
                yield MetricPoint(step, f"metlmon/gpu_hours_{kind}", value, time)

    def _milliseconds(self, time: datetime) -> int:
        """A logged time in milliseconds since 1970, by this machine's zone where none is known."""
        aware = self._clock.with_offset(time)
        seconds = None if aware.tzinfo is not None else self._clock.to_epoch(time)
        return round(1000 * (aware.timestamp() if seconds is None else seconds))


def _node(row: Row) -> tuple[object, object]:
    return row["in_dag"], row["node"]


def _times(jobs: Iterable[Job]) -> Iterator[datetime]:
    return (time for job in jobs for time, _ in job.states)


def _ordered(points: Iterable[MetricPoint]) -> tuple[MetricPoint, ...]:
    return tuple(sorted(points, key=lambda point: (point.step, point.key)))


def _ensemble_status(status: Status, statuses: Sequence[str]) -> str:
    """Under way while a DAG or a run is; else the worst that a run came to."""
    if any(word in UNDER_WAY for word in statuses) or any(
        row.state in ALIVE for row in status.dags
    ):
        return "SCHEDULED" if set(statuses) == {"SCHEDULED"} else "RUNNING"
    return next((worst for worst in ("FAILED", "KILLED") if worst in statuses), "FINISHED")


def _ensemble_name(status: Status) -> str:
    path = posixpath.abspath(status.dagdir)
    return plain(posixpath.basename(path) or "ensemble", MAX_KEY)


# --- params and tags ------------------------------------------------------------------------


def _params(basis: StatsInput) -> dict[str, dict[str, str]]:
    """The variables that never change within a run, swept ones among them, by run."""
    nodes = basis.load_description().nodes.all
    trainings = [node for node in nodes if node.run is not None and node.training]
    params = {}
    for run, run_nodes in group_by(trainings, lambda node: node.run or "").items():
        spelling = {name.lower(): name for node in run_nodes for name in node.node.vars}
        values, varying = constant_values(run_nodes)
        constant = {
            spelling[name]: plain(hide_value(name, value), MAX_PARAM)
            for name, value in values.items()
            # A macro, such as $(RETRY), is no value.
            if value and name not in varying and name not in NO_PARAMS and "$(" not in value
        }
        names = _clean_names(constant)
        params[run] = {names[name]: value for name, value in constant.items()}
    return params


def _texts(tags: Mapping[str, object]) -> dict[str, str]:
    """Tags as texts, without those whose value is not known."""
    return {
        name: plain(redact_secrets(_text(value)), MAX_TAG)
        for name, value in tags.items()
        if value is not None and value != ""
    }


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_FORBIDDEN: Final = re.compile(r"[^/\w.\- ]")


def _clean_names(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Names that MLflow takes, by the names as written; different ones stay different.

    MLflow: letters, digits and ``/ _ . - :`` and blanks, which must be a normal relative path;
    servers on Windows take no colon. ``taken``: what no name may become.
    """
    used = set(taken)
    cleaned: dict[str, str] = {}
    for name in names:
        clean = posixpath.normpath(_FORBIDDEN.sub("_", name)[:MAX_KEY])
        clean = re.sub(r"^[./]+", "_", clean) or "_"
        if clean in used:
            digest = hashlib.sha256(name.encode()).hexdigest()[:8]
            clean = f"{clean[: MAX_KEY - 9]}_{digest}"
        used.add(clean)
        cleaned[name] = clean
    return cleaned


def _steps_by(column: str, epochs: Iterable[Row]) -> str:
    """``Delta-GPU 0-2 5, Expanse-GPU 3-4``: the steps that each site or GPU model completed."""
    steps: dict[str, list[int]] = {}
    for row in epochs:
        if row[column] is not None:
            steps.setdefault(row[column], []).append(row["step"])
    return ", ".join(f"{name} {_ranges(numbers)}" for name, numbers in steps.items())


def _ranges(numbers: Iterable[int]) -> str:
    """``0-2 5``."""
    ranges = []
    for _, group in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in group]
        ranges.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return " ".join(ranges)


def _note(epochs: Sequence[Row]) -> str:
    """Where each epoch was trained, and what it cost, as a table in Markdown."""
    lines = [
        f"{NOTE_MARK}\n",
        "| epoch | step | site | GPU | tries | GPU-hours goodput | badput |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, row in enumerate(epochs):
        # Without an execution that completed it, the longest one has its place.
        prefix = "" if row["seconds"] is not None else "longest_"
        gpu = row[f"{prefix}gpu"] or "—"
        cells = (
            *(epoch_text(row["step"]), row["step"], row[f"{prefix}site"] or "—"),
            f"{gpu} ×{row['gpus']}" if row["gpus"] else gpu,
            *(row["attempts"], hours(row["gpu_hours_goodput"]), hours(row["gpu_hours_badput"])),
        )
        line = f"| {' | '.join(plain(str(cell), 80).replace('|', '/') for cell in cells)} |"
        if sum(map(len, lines)) + len(lines) + len(line) > MAX_TAG - 100:
            lines.append(f"\nand {len(epochs) - number} more")
            break
        lines.append(line)
    return "\n".join(lines) if epochs else ""
