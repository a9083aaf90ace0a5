"""The runs that a tracker should have of an ensemble, from its records and the trainings' output.

The ensemble is the parent run, and each training run that has begun is a child. The step of a
child's metrics is the epoch as in the node's name, mostly from 0; their time is the epoch's end
according to the logs. The step of the parent's metrics is the number of executions that have ended.
A run starts with its first submission, when its wait begins.

A point appears when its epoch has ended, since trackers do not delete points; an epoch with a job
in the queue has not ended. If the logs lack the time of an end, it is that of the next epoch's
submission, else the run's end.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from msgspec import Struct

from metlmon.live.feed import StatsInput
from metlmon.model.states import ACTIVE, ALIVE, DONE, ENDED, DagState, State
from metlmon.redact import hide_value, redact_secrets
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import Epoch, Execution, HourUnit, Job, Ledger, Run, Status
from metlmon.stats.sweep import constant_values
from metlmon.stats.totals import group_by
from metlmon.tables import frames
from metlmon.text.formatting import epoch_number, hours, plain

MAX_KEY: Final = 250
MAX_PARAM: Final = 6000
MAX_TAG: Final = 5000
"""Maximum characters of names, params and tags on MLflow servers; some accept 8000 in a tag."""

KEY_TAG: Final = "metlmon.key"
ENSEMBLE_TAG: Final = "metlmon.ensemble"
PARENT_TAG: Final = "mlflow.parentRunId"
NOTE_TAG: Final = "mlflow.note.content"
NOTE_MARK: Final = "Epochs by the logs, written by metlmon:"
"""The first line of a description that may be replaced: people write their own, too."""

NO_PARAMS: Final = frozenset(
    """
    run run_uuid node epoch epochs resourcename gpumodel continue_from_checkpoint
    """.split()
)
"""Variables, in lower case, that name the run, its place or its length, which may grow."""

GPU_HOURS: Final = ("gpu_hours_goodput", "gpu_hours_badput")
EPOCH_METRICS: Final = (*GPU_HOURS, "attempts", "gpus", "seconds")
"""Columns of the frame ``epochs`` that are metrics."""

MEMORY_METRIC: Final = "system/memory_mb"

EXECUTION_SUMS: Final[Mapping[str, Callable[[Execution], float | None]]] = {
    "wait_seconds": attrgetter("wait"),
    "transfer_seconds": attrgetter("transfer"),
    "bytes_sent": attrgetter("bytes_sent"),
    "bytes_received": attrgetter("bytes_received"),
}
"""Sums over the executions of an epoch that are metrics."""

OWN_METRICS: Final = (
    *(f"metlmon/{name}" for name in (*EPOCH_METRICS, *EXECUTION_SUMS)),
    MEMORY_METRIC,
)
"""Reserved names of metrics, which a training cannot use."""

RUN_TAGS: Final = (
    "state",
    "uuid",
    "run",
    "label",
    "dag",
    "epochs_done",
    "epochs_total",
    *GPU_HOURS,
    "hold_code",
    "hold_reason",
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
"""Tags that may be removed from a run, such as the reason of a hold."""

STATUSES: Final[Mapping[State, str]] = {
    State.COMPLETED: "FINISHED",
    State.SKIPPED: "FINISHED",
    State.FAILED: "FAILED",
    State.FUTILE: "FAILED",
    State.REMOVED: "KILLED",
}
"""Status of a run by its state; runs in other states are under way."""

ENDED_STATUSES: Final = {
    DagState.DONE: "FINISHED",
    DagState.FAILED: "FAILED",
    DagState.REMOVED: "KILLED",
}
"""Status of a run that is not complete when its DAG has ended."""

UNDER_WAY: Final = ("RUNNING", "SCHEDULED")
"""Statuses of runs that may continue."""


class EndedEpoch(NamedTuple):
    """An epoch that has ended, the step of its metrics, and its end in milliseconds since 1970."""

    epoch: Epoch
    step: int
    time: int


class MetricPoint(Struct, frozen=True):
    """One value of a metric; ``time``: milliseconds since 1970."""

    step: int
    key: str
    value: float
    time: int


class TrackedRun(Struct, frozen=True):
    """One run of a tracker.

    ``key`` identifies it on the server; ``start`` and ``end``: milliseconds since 1970; ``end``
    None: not ended, or unknown. ``status``: FINISHED, FAILED, KILLED, RUNNING or SCHEDULED.
    ``note``: its description, in Markdown. ``points`` are ordered by step, then by key.
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

    ``zone_known`` False: the logs lack the time zone, and that of this machine is used.
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
    """Identifies an ensemble: its first job, and when that was submitted.

    It does not change when the directory is moved or copied, when runs are continued, or when the
    time zone becomes known, since it ignores quarters of an hour, of which offsets are multiples.
    """
    times = ((job.submitted or next(_times([job]), datetime.max), job) for job in ledger.jobs)
    time, first = min(times, key=lambda each: (each[0], each[1].job))
    moment = (time.minute % 15, time.second)
    identity = (first.job, moment, first.node, first.uuid or first.run)
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]


class _Ensemble:
    def __init__(self, builder: SnapshotBuilder, basis: StatsInput) -> None:
        self._clock = builder.clock
        self._basis = basis
        self._ledger = basis.ledger
        self._key = ensemble_key(basis.ledger)
        jobs, executions = self._ledger.jobs, self._ledger.executions
        self._started = {each.key for each in executions}
        self._by_node = group_by(executions, lambda each: each.node_key)
        self._jobs_by_node = group_by(jobs, lambda job: job.node_key)
        # Evaluations may be queued after the last epoch: the training has ended by then.
        self._queued_runs = {job.key for job in jobs if job.training and job.state in ACTIVE}
        self._has_gpu_hours = basis.status.hours.measure is HourUnit.GPU
        self._jobs_by_run = group_by(jobs, lambda job: job.key)
        self._epochs = group_by(
            (epoch for epoch in self._ledger.epochs if epoch.counts), lambda epoch: epoch.key
        )
        self._params = _params(basis)
        self._dag_states = {row.file: row.state for row in basis.status.dags}
        self._dag_ends = {row.file: row.ended for row in basis.status.dags}

    def tracked(self) -> TrackedEnsemble:
        statuses = [self._status(run) for run in self._ledger.runs]
        children = tuple(
            self._child(run, run.began, status)
            for run, status in zip(self._ledger.runs, statuses, strict=True)
            if run.began is not None
        )
        return TrackedEnsemble(
            parent=self._parent(children, statuses),
            children=children,
            untimed=len(statuses) - len(children),
            zone_known=self._clock.has_offset or self._clock.utc_only,
        )

    # --- runs -------------------------------------------------------------------------------

    def _child(self, run: Run, began: datetime, status: str) -> TrackedRun:
        ended = self._run_end(run, began) if status in STATUSES.values() else None
        epochs = self._ended_epochs(run, ended)
        points = [*self._epoch_points(epochs), *self._training_points(run.key, epochs, ended)]
        tags = {f"metlmon.{name}": value for name, value in self._values(RUN_TAGS, run).items()}
        tags["metlmon.steps_by_site"] = _steps_by("site", epochs)
        tags["metlmon.steps_by_gpu"] = _steps_by("gpu", epochs)
        key = f"{self._key}/{run.uuid or run.key}"
        return TrackedRun(
            key=key,
            name=run.run or run.key,
            start=self._milliseconds(began),
            end=None if ended is None else self._milliseconds(ended),
            status=status,
            params=self._params.get(run.key, {}),
            tags=_texts({**tags, KEY_TAG: key, ENSEMBLE_TAG: self._key, "metlmon.kind": "run"}),
            points=_ordered(points),
            note=_note(epochs),
        )

    def _status(self, run: Run) -> str:
        dag = self._dag_states.get(run.dag)
        # Between two epochs the state is that of the previous one.
        if not (run.key in self._queued_runs and self._may_go_on(run)):
            if run.state in STATUSES and (not run.epochs_left or run.state not in DONE):
                return STATUSES[run.state]
            if dag in ENDED_STATUSES:
                return ENDED_STATUSES[dag]
        return "RUNNING" if run.key in self._started else "SCHEDULED"

    def _may_go_on(self, run: Run) -> bool:
        """Whether a job that the logs have in the queue may really be there."""
        return self._basis.status.live or self._dag_states.get(run.dag) not in ENDED

    def _values(self, names: Iterable[str], record: Run | Epoch) -> dict[str, Any]:
        """Columns of a frame; the GPU-hours of an ensemble without GPUs are unknown."""
        columns = frames.RUNS if isinstance(record, Run) else frames.EPOCHS
        values = {column.name: column.value for column in columns}
        known = [name for name in names if self._has_gpu_hours or name not in GPU_HOURS]
        return {name: values[name](record) for name in known}

    def _run_end(self, run: Run, began: datetime) -> datetime:
        """When a run ended: its last job left the queue, or its DAG was removed."""
        jobs = self._jobs_by_run.get(run.key, ())
        times = [job.ended for job in jobs]
        times += [epoch.completed for epoch in self._epochs.get(run.key, ())]
        end = max(filter(None, times), default=None)
        stopped = self._dag_ends.get(run.dag)
        if stopped is not None and run.state not in STATUSES:
            return stopped if end is None else max(end, stopped)
        return end or stopped or max(_times(jobs), default=began)

    def _parent(self, children: Sequence[TrackedRun], statuses: Sequence[str]) -> TrackedRun:
        status = self._basis.status
        state = _ensemble_status(status, statuses)
        ends = [child.end for child in children if child.end is not None]
        ends += [self._milliseconds(end) for end in self._dag_ends.values() if end is not None]
        unit = status.hours.measure.lower()
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
            "metlmon.epochs_done": status.epoch_states.get(State.COMPLETED, 0),
            "metlmon.epochs_total": sum(status.epoch_states.values()),
            f"metlmon.{unit}_hours_goodput": status.hours.goodput,
            f"metlmon.{unit}_hours_badput": status.hours.badput,
            "metlmon.newest_event": self._clock.with_offset(newest).isoformat(),
        }
        directory = posixpath.basename(posixpath.abspath(status.dagdir))
        return TrackedRun(
            key=self._key,
            name=plain(directory or "ensemble", MAX_KEY),
            start=self._milliseconds(first),
            end=max(ends, default=None) if state in STATUSES.values() else None,
            status=state,
            params={},
            tags=_texts(tags),
            points=_ordered(self._usage_points()),
        )

    # --- points -----------------------------------------------------------------------------

    def _ended_epochs(self, run: Run, run_end: datetime | None) -> list[EndedEpoch]:
        epochs = self._epochs.get(run.key, [])
        ended = []
        for i, epoch in enumerate(epochs):
            jobs = self._jobs_by_node.get(epoch.node_key, ())
            if self._may_go_on(run) and any(job.state in ACTIVE for job in jobs):
                continue
            end = run_end if epoch.attempts else None
            if epoch.state in DONE:
                later = (each.first_submitted for each in epochs[i + 1 :])
                end = epoch.completed or next(filter(None, later), run_end)
            if end is not None:
                step = i if epoch.epoch is None else epoch.epoch
                ended.append(EndedEpoch(epoch, step, self._milliseconds(end)))
        return ended

    def _epoch_points(self, epochs: Iterable[EndedEpoch]) -> Iterator[MetricPoint]:
        for epoch, step, time in epochs:
            if not epoch.attempts:
                # Skipped, or its logs are not here: its cost is unknown.
                continue
            values = self._values(EPOCH_METRICS, epoch)
            executions = self._by_node.get(epoch.node_key, ())
            for name, of in EXECUTION_SUMS.items():
                known = [value for each in executions if (value := of(each)) is not None]
                values[name] = sum(known) if known else None
            jobs = self._jobs_by_node.get(epoch.node_key, ())
            memory = [job.memory_mb for job in jobs if job.memory_mb is not None]
            if memory:
                yield MetricPoint(step, MEMORY_METRIC, float(max(memory)), time)
            for name, value in values.items():
                if value is not None:
                    yield MetricPoint(step, f"metlmon/{name}", float(value), time)

    def _training_points(
        self, run: str, epochs: Sequence[EndedEpoch], run_end: datetime | None
    ) -> Iterator[MetricPoint]:
        """What the training wrote by epoch, for the epochs that have ended."""
        output = self._basis.job_files.trainings.get(run)
        if output is None:
            return
        times = {step: time for _, step, time in epochs}
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
        ended = [(each.end, each) for each in self._ledger.executions if each.end is not None]
        ended.sort(key=lambda pair: (pair[0], pair[1].job, pair[1].start))
        totals = {"goodput": 0.0, "badput": 0.0}
        for step, (end, execution) in enumerate(ended, 1):
            lost = execution.lost / execution.seconds if execution.lost else 0.0
            totals["goodput"] += (1 - lost) * (execution.gpu_hours or 0.0)
            totals["badput"] += lost * (execution.gpu_hours or 0.0)
            time = self._milliseconds(end)
            for kind, value in totals.items():
                yield MetricPoint(step, f"metlmon/gpu_hours_{kind}", value, time)

    def _milliseconds(self, time: datetime) -> int:
        """A logged time in milliseconds since 1970, in this machine's zone if theirs is unknown."""
        aware = self._clock.with_offset(time)
        seconds = None if aware.tzinfo is not None else self._clock.to_epoch(time)
        return round(1000 * (aware.timestamp() if seconds is None else seconds))


def _times(jobs: Iterable[Job]) -> Iterator[datetime]:
    return (time for job in jobs for time, _ in job.states)


def _ordered(points: Iterable[MetricPoint]) -> tuple[MetricPoint, ...]:
    return tuple(sorted(points, key=lambda point: (point.step, point.key)))


def _ensemble_status(status: Status, statuses: Sequence[str]) -> str:
    """Under way while a DAG or a run is; else the worst final status of a run."""
    if any(word in UNDER_WAY for word in statuses) or any(
        row.state in ALIVE for row in status.dags
    ):
        return "SCHEDULED" if set(statuses) == {"SCHEDULED"} else "RUNNING"
    return next((worst for worst in ("FAILED", "KILLED") if worst in statuses), "FINISHED")


# --- params and tags ------------------------------------------------------------------------


def _params(basis: StatsInput) -> dict[str, dict[str, str]]:
    """The variables that are constant within a run, including swept ones, by run."""
    nodes = basis.load_description().nodes.all
    trainings = [node for node in nodes if node.key is not None and node.training]
    params = {}
    for run, run_nodes in group_by(trainings, lambda node: node.key or "").items():
        spelling = {name.lower(): name for node in run_nodes for name in node.node.vars}
        values, varying = constant_values(run_nodes)
        constant = {
            spelling[name]: plain(hide_value(name, value), MAX_PARAM)
            for name, value in values.items()
            # A macro, such as $(RETRY), is not a value.
            if value and name not in varying and name not in NO_PARAMS and "$(" not in value
        }
        names = _clean_names(constant)
        params[run] = {names[name]: value for name, value in constant.items()}
    return params


def _texts(tags: Mapping[str, object]) -> dict[str, str]:
    """Tags as texts, without unknown ones."""
    known = {name: value for name, value in tags.items() if value is not None and value != ""}
    return {
        name: plain(redact_secrets(f"{v:.6g}" if isinstance(v, float) else str(v)), MAX_TAG)
        for name, v in known.items()
    }


_FORBIDDEN: Final = re.compile(r"[^/\w.\- ]")


def _clean_names(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Names that MLflow accepts, by the original names; different ones stay different.

    MLflow: letters, digits, ``/ _ . - :`` and blanks, which must form a normal relative path;
    servers on Windows reject colons. ``taken``: names that must not be used.
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


def _steps_by(place: str, epochs: Iterable[EndedEpoch]) -> str:
    """``Delta-GPU 0-2 5, Expanse-GPU 3-4``: the steps that each site or GPU model completed."""
    steps: dict[str, list[int]] = {}
    for epoch, step, _ in epochs:
        name = getattr(epoch.success, place, None)
        if name is not None:
            steps.setdefault(name, []).append(step)
    texts = []
    for name, numbers in steps.items():
        ranges = []
        for _, group in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
            members = [number for _, number in group]
            ranges.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
        texts.append(f"{name} {' '.join(ranges)}")
    return ", ".join(texts)


def _note(epochs: Sequence[EndedEpoch]) -> str:
    """A Markdown table of where each epoch was trained, and what it cost."""
    lines = [
        f"{NOTE_MARK}\n",
        "| epoch | step | site | GPU | tries | GPU-hours goodput | badput |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, (epoch, step, _) in enumerate(epochs):
        # Without an execution that completed the epoch, show the longest one.
        shown, spent = epoch.success or epoch.longest, epoch.hours.of_gpus
        site, gpu = (shown.site, shown.gpu) if shown is not None else (None, None)
        gpus = epoch.success.gpus if epoch.success is not None else None
        cells = (
            epoch_number(step),
            step,
            site or "—",
            f"{gpu or '—'} ×{gpus}" if gpus else gpu or "—",
            epoch.attempts,
            hours(spent.goodput),
            hours(spent.badput),
        )
        line = f"| {' | '.join(plain(str(cell), 80).replace('|', '/') for cell in cells)} |"
        if sum(map(len, lines)) + len(lines) + len(line) > MAX_TAG - 100:
            lines.append(f"\nand {len(epochs) - number} more")
            break
        lines.append(line)
    return "\n".join(lines) if epochs else ""
