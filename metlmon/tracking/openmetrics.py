"""The figures of an ensemble as metrics for Prometheus and what reads its formats.

Values are those of ``status --json``, in base units: hours become seconds. An unknown value has no
sample. Labels are run, site, gpu, state and cause: all have few values, which neither name a
cluster, a host or a user nor grow with the number of jobs.

``prometheus_client`` writes the text, in the format that a reader requests. Names, units and the
``_total`` of counters follow OpenMetrics 1.0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain, count
from types import MappingProxyType
from typing import Final, TypeVar

from msgspec import Struct
from prometheus_client import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from metlmon.health.build import make_health
from metlmon.health.types import Health, Severity
from metlmon.live.feed import StatsInput
from metlmon.model.reasons import code_text, is_expiry
from metlmon.model.states import ACTIVE, TERMINAL, DagState, State
from metlmon.snapshot.records import HOUR, GpuHours, HourUnit
from metlmon.stats.estimates import Forecast, RunForecast, make_forecast
from metlmon.stats.run_figures import run_figures
from metlmon.stats.totals import Breakdown, CauseRow, GpuRow, SiteRow, break_down
from metlmon.text.formatting import epoch_number, plain

PREFIX: Final = "metlmon_"

FIRST_LINE: Final = f"# HELP {PREFIX}live "
"""The beginning of the text."""

LABEL_LENGTH: Final = 100
"""Maximum characters of a label's value."""

UNKNOWN: Final = "unknown"
"""The label of a site or a GPU model that no log names."""

OTHER: Final = "other"
"""The cause of losses whose reason is free text, which may name hosts and users."""

OWN_CAUSES: Final = re.compile(
    r"exited with return value -?\d{1,10}|killed by signal \d{1,3}( \([\w; ?]*\))?"
    r"|ended without a return value|[a-z ]{1,20}, no reason given"
)
"""Causes in metlmon's own words, for logs that have neither code nor reason."""

EpochTime = Callable[[datetime], float | None]
"""Converts a time of the logs to seconds since 1970; None if its zone is unknown."""


class MetricFamily(Struct, frozen=True):
    """Name without prefix, type (gauge or counter) and help of a metric."""

    name: str
    type: str
    help: str

    @property
    def unit(self) -> str:
        """The unit, with which its name ends; empty if it has none."""
        return next((unit for unit in ("seconds", "bytes") if self.name.endswith(f"_{unit}")), "")

    @property
    def sample_name(self) -> str:
        """The name of its samples: that of a counter ends with ``_total``."""
        return f"{PREFIX}{self.name}{'_total' if self.type == 'counter' else ''}"


def _gauge(name: str, help: str) -> MetricFamily:
    return MetricFamily(name, "gauge", help)


def _counter(name: str, help: str) -> MetricFamily:
    return MetricFamily(name, "counter", help)


def _time_families(scope: str = "", of_what: str = "") -> Iterator[MetricFamily]:
    """Time of executions in each unit; an ensemble has one of these units."""
    for unit in HourUnit:
        what = {HourUnit.WALL: "Wall-clock seconds"}.get(unit, f"{unit} seconds")
        name = f"{unit.lower()}_seconds"
        ended = "that ended well (goodput) or not (badput); by outcome (state)."
        yield _counter(f"{scope}{name}", f"{what} of executions {of_what}{ended}")
        yield _gauge(f"{scope}running_{name}", f"{what} of executions {of_what}in flight.")


_FAMILIES: Final = (
    _gauge("live", "1 while the ensemble is live, else 0."),
    _gauge("read_errors", "1 while the directory cannot be read, else 0."),
    _gauge("warnings", "Warnings about what was read, by kind (cause)."),
    _gauge("snapshot_timestamp_seconds", "The time for which all values hold."),
    _gauge("last_event_timestamp_seconds", "Time of the newest event in the event logs."),
    _gauge("last_event_age_seconds", "Age of the newest event in the event logs."),
    _gauge("problems", "Open entries of metlmon health by severity (state)."),
    _gauge("problem_kinds", "Open entries of metlmon health by severity (state), kind (cause)."),
    _gauge("stopped_runs", "Runs that can go on no further unless somebody acts."),
    _gauge("runs", "Runs by state; between two epochs that of the first."),
    _gauge("epochs", "Epochs by state."),
    _gauge("nodes", "Nodes of all DAGs by state."),
    _gauge("jobs", "Jobs by state."),
    _gauge("dags", "DAGs by state of their DAGMan."),
    _gauge("epochs_planned", "Epochs of all runs."),
    _gauge("epochs_done", "Epochs of all runs that are done."),
    _gauge("dag_nodes_planned", "Nodes of all DAGs, as DAGMan counts them."),
    _gauge("dag_nodes_done", "Nodes of all DAGs that are done, as DAGMan counts them."),
    _gauge("dag_nodes_failed", "Nodes of all DAGs that failed, as DAGMan counts them."),
    *_time_families(),
    _gauge("badput_executions", "Executions that did not end well, by cause."),
    _gauge("badput_gpu_seconds", "GPU seconds of such executions, by cause."),
    _gauge("input_transfers", "Input transfers by outcome (state)."),
    _gauge("input_transfer_seconds", "Seconds of input transfers by outcome (state)."),
    _gauge("output_transfers", "Output transfers that succeeded."),
    _gauge("output_transfer_seconds", "Seconds of output transfers that succeeded."),
    _counter("transfer_bytes", "Bytes that all jobs sent or received (state)."),
    _gauge("remaining_seconds", "Estimated time until all runs are done: the median."),
    _gauge("remaining_low_seconds", "Lower end of its 80 % interval."),
    _gauge("remaining_high_seconds", "Upper end of its 80 % interval."),
    _gauge("expected_end_timestamp_seconds", "Estimated time at which all runs are done."),
    _gauge("completed_timestamp_seconds", "Time at which all runs were done."),
    _gauge("run_state", "1 for the state of a run; site and gpu: of its latest epoch."),
    _gauge("run_state_seconds", "How long the latest epoch of a run has been in its state."),
    _gauge("run_epochs_planned", "Epochs of a run."),
    _gauge("run_epochs_done", "Epochs of a run that are done."),
    _gauge("run_latest_epoch", "Number of the latest epoch that was submitted, from 1."),
    *_time_families("run_", "of a run "),
    _gauge("run_duration_seconds", "From the first submission of a run that ended to its end."),
    _gauge("run_metric_best", "Best value of the primary metric of a run."),
    _gauge("run_metric_best_epoch", "Number of the epoch with that value, from 1."),
    _gauge("run_metric_last", "Latest value of the primary metric of a run."),
    _gauge("run_remaining_seconds", "Estimated time until a run is done: the median."),
    _gauge("run_expected_end_timestamp_seconds", "Estimated time at which a run is done."),
    _gauge("run_completed_timestamp_seconds", "Time at which a run was done."),
    *_time_families("site_", "at a site "),
    _counter("site_executions", "Executions at a site."),
    _gauge("site_epochs_done", "Epochs that a site completed."),
    _gauge("site_epoch_median_seconds", "Median time of the epochs that a site completed."),
    *_time_families("model_", "on a GPU model "),
    _counter("model_executions", "Executions on a GPU model."),
    _gauge("model_epochs_done", "Epochs that a GPU model completed."),
)
FAMILIES: Final[Mapping[str, MetricFamily]] = MappingProxyType({f.name: f for f in _FAMILIES})
"""Every possible metric by its name without prefix, in the order of the output."""

Labels = tuple[tuple[str, str], ...]

Key = TypeVar("Key", str, str | None)
_State = TypeVar("_State", State, DagState)


class MetricSamples(Collector):
    """Samples by metric: the value of each set of labels; ``epoch_time`` converts times."""

    def __init__(self, epoch_time: EpochTime = lambda time: None) -> None:
        self.by_family: dict[str, dict[Labels, float]] = {}
        self._epoch_time = epoch_time

    def add(self, name: str, value: float | None, **labels: str) -> None:
        """Add a value to the sample with these labels; None, for unknown, adds nothing."""
        if value is not None:
            samples = self.by_family.setdefault(FAMILIES[name].name, {})
            key = tuple(labels.items())
            samples[key] = samples[key] + value if key in samples else value

    def add_time(self, name: str, time: datetime | None, **labels: str) -> None:
        """Add a time of the logs, if it and its zone are known."""
        self.add(name, None if time is None else self._epoch_time(time), **labels)

    def collect(self) -> Iterator[Metric]:
        """The metrics that have samples, in the order of :data:`FAMILIES`."""
        for name, family in FAMILIES.items():
            if samples := self.by_family.get(name):
                metric = Metric(PREFIX + name, family.help, family.type, family.unit)
                for labels, value in samples.items():
                    metric.add_sample(family.sample_name, dict(labels), value)
                yield metric

    def text(self) -> str:
        """The text of ``application/openmetrics-text``, version 1.0.0."""
        text: bytes = generate_latest(self)  # type: ignore[no-untyped-call]
        return text.decode()


def ensemble_samples(
    stats: StatsInput, *, epoch_time: EpochTime, error: str | None = None
) -> MetricSamples:
    """All samples of an ensemble at the time of its snapshot."""
    samples = MetricSamples(epoch_time)
    forecast, breakdown = make_forecast(stats), break_down(stats.ledger)
    _add_head(samples, stats, error)
    _add_problems(samples, make_health(stats))
    _add_counts(samples, stats, forecast)
    _add_losses(samples, stats.status.hours, breakdown)
    _add_estimate(samples, "", forecast)
    if forecast.remaining is not None:
        samples.add("remaining_low_seconds", round(forecast.remaining.low, 3))
        samples.add("remaining_high_seconds", round(forecast.remaining.high, 3))
    sites = unique_labels({site.site: site.site for site in breakdown.sites})
    models = unique_labels({model.gpu: model.gpu for model in breakdown.gpus})
    _add_runs(samples, stats, forecast, sites, models)
    for site in breakdown.sites:
        _add_place(samples, "site_", site, site=sites[site.site])
        median = site.epoch_seconds_median
        name = "site_epoch_median_seconds"
        samples.add(name, median and round(median, 3), site=sites[site.site])
    for model in breakdown.gpus:
        _add_place(samples, "model_", model, gpu=models[model.gpu])
    return samples


def _add_head(samples: MetricSamples, stats: StatsInput, error: str | None) -> None:
    status = stats.status
    samples.add("live", int(status.live))
    samples.add("read_errors", int(error is not None))
    for warning in status.warnings:
        samples.add("warnings", 1, cause=warning.kind)
    last = max((log.last for log in status.logs if log.last is not None), default=None)
    samples.add_time("snapshot_timestamp_seconds", status.as_of)
    samples.add_time("last_event_timestamp_seconds", last)
    if last is not None and status.as_of is not None:
        age = stats.ledger.seconds_between(last, status.as_of)
        samples.add("last_event_age_seconds", age)


def _add_problems(samples: MetricSamples, health: Health) -> None:
    opened = Counter((entry.severity, entry.kind) for entry in health.open_entries)
    for severity in Severity:
        number = sum(n for (each, _), n in opened.items() if each is severity)
        samples.add("problems", number, state=severity)
    for (severity, kind), number in opened.items():
        samples.add("problem_kinds", number, state=severity, cause=kind)
    samples.add("stopped_runs", health.runs_stopped)


def _add_counts(samples: MetricSamples, stats: StatsInput, forecast: Forecast) -> None:
    status = stats.status
    _add_states(samples, "runs", Counter(run.state for run in status.runs), State)
    _add_states(samples, "epochs", status.epoch_states, State)
    _add_states(samples, "nodes", status.node_states, State)
    jobs = Counter(job.state for job in stats.ledger.jobs)
    _add_states(samples, "jobs", jobs, (s for s in State if s in ACTIVE | TERMINAL | set(jobs)))
    _add_states(samples, "dags", Counter(dag.state for dag in status.dags), DagState)
    samples.add("epochs_planned", forecast.epochs_total)
    samples.add("epochs_done", forecast.epochs_done)
    if status.dags:
        samples.add("dag_nodes_planned", sum(dag.nodes_total for dag in status.dags))
        samples.add("dag_nodes_done", sum(dag.nodes_done for dag in status.dags))
        samples.add("dag_nodes_failed", sum(dag.nodes_failed for dag in status.dags))


def _add_states(
    samples: MetricSamples, name: str, numbers: Mapping[_State, int], states: Iterable[_State]
) -> None:
    for state in states:
        samples.add(name, numbers.get(state, 0), state=state)


def _add_hours(samples: MetricSamples, scope: str, hours: GpuHours, **labels: str) -> None:
    name = f"{hours.measure.lower()}_seconds"
    samples.add(f"{scope}{name}", _seconds(hours.goodput), **labels, state="goodput")
    samples.add(f"{scope}{name}", _seconds(hours.badput), **labels, state="badput")
    samples.add(f"{scope}running_{name}", _seconds(hours.running), **labels)


def _seconds(hours: float) -> float:
    return round(hours * HOUR, 3)


def _add_losses(samples: MetricSamples, hours: GpuHours, breakdown: Breakdown) -> None:
    _add_hours(samples, "", hours)
    for row in breakdown.causes:
        cause = cause_label(row)
        samples.add("badput_executions", row.executions, cause=cause)
        if hours.measure is HourUnit.GPU:
            samples.add("badput_gpu_seconds", _seconds(row.badput), cause=cause)
    transfers = breakdown.transfers
    inputs = {
        "ok": transfers.input_ok,
        "aborted": transfers.input_aborted,
        "unfinished": transfers.input_unfinished,
    }
    for outcome, each in inputs.items():
        samples.add("input_transfers", each.n, state=outcome)
        samples.add("input_transfer_seconds", round(each.seconds, 3), state=outcome)
    samples.add("output_transfers", transfers.output.n)
    samples.add("output_transfer_seconds", round(transfers.output.seconds, 3))
    samples.add("transfer_bytes", transfers.bytes_sent, state="sent")
    samples.add("transfer_bytes", transfers.bytes_received, state="received")


def cause_label(row: CauseRow) -> str:
    """The label of a cause: the code and its name, or metlmon's own words; never a reason."""
    if is_expiry(row.cause) or (row.code is None and OWN_CAUSES.fullmatch(row.cause)):
        return row.cause
    return OTHER if row.code is None else code_text(row.code, reason=row.example)


def _add_estimate(
    samples: MetricSamples, scope: str, forecast: Forecast | RunForecast, **labels: str
) -> None:
    if forecast.remaining is not None:
        remaining = round(forecast.remaining.median, 3)
        samples.add(f"{scope}remaining_seconds", remaining, **labels)
    expected, completed = forecast.expected_end, forecast.completed_at
    samples.add_time(f"{scope}expected_end_timestamp_seconds", expected, **labels)
    samples.add_time(f"{scope}completed_timestamp_seconds", completed, **labels)


def _add_runs(
    samples: MetricSamples,
    stats: StatsInput,
    forecast: Forecast,
    sites: Mapping[str | None, str],
    models: Mapping[str | None, str],
) -> None:
    # Jobs outside of any DAG may have only the name of their cluster.
    rows = [row for row in stats.status.runs if row.dag or not row.run.isdecimal()]
    labels = unique_labels({row.key: row.run for row in rows})
    figures = run_figures(stats)
    for row in rows:
        run, latest = labels[row.key], row.latest
        places = {}
        if latest is not None and latest.site:
            places["site"] = sites.get(latest.site) or label_text(latest.site)
        if latest is not None and latest.gpu:
            places["gpu"] = models.get(latest.gpu) or label_text(latest.gpu)
        samples.add("run_state", 1, run=run, state=row.state, **places)
        if latest is not None:
            samples.add("run_state_seconds", row.seconds, run=run)
            if latest.epoch is not None:
                samples.add("run_latest_epoch", epoch_number(latest.epoch), run=run)
        samples.add("run_epochs_planned", row.epochs_total, run=run)
        samples.add("run_epochs_done", row.epochs_done, run=run)
        _add_hours(samples, "run_", row.hours, run=run)
        samples.add("run_duration_seconds", figures.wall_seconds.get(row.key), run=run)
        curve = figures.by_run.get(row.key)
        if curve is not None and curve.best is not None:
            samples.add("run_metric_best", curve.best.value, run=run)
            samples.add("run_metric_best_epoch", epoch_number(curve.best.epoch), run=run)
        if curve is not None and curve.last is not None:
            samples.add("run_metric_last", curve.last.value, run=run)
    for each in forecast.runs:
        if each.key in labels:
            _add_estimate(samples, "run_", each, run=labels[each.key])


def unique_labels(names: Mapping[Key, str | None]) -> dict[Key, str]:
    """A label for each key, from its name; numbered if an earlier key has the same label."""
    labels: dict[Key, str] = {}
    used: set[str] = set()
    for key, name in names.items():
        text = label_text(name)
        numbered = chain([text], (f"{text} ({number})" for number in count(2)))
        labels[key] = next(label for label in numbered if label not in used)
        used.add(labels[key])
    return labels


def label_text(text: str | None) -> str:
    """Untrusted text as the value of a label: one line of limited length."""
    return plain(text, LABEL_LENGTH) if text else UNKNOWN


def _add_place(samples: MetricSamples, scope: str, place: SiteRow | GpuRow, **label: str) -> None:
    _add_hours(samples, scope, place.hours, **label)
    samples.add(f"{scope}executions", place.executions, **label)
    samples.add(f"{scope}epochs_done", place.completed_epochs, **label)
