"""Brings an MLflow server to what the logs say, by writing the difference alone.

What the server has is read first, by the tag ``metlmon.key`` of its runs: nothing about it is
stored here. Runs are created with that tag, points are compared by metric, step and value, and
the tag ``metlmon.points`` confirms those that are written: an export that was interrupted at any
call is completed by the next one. A call whose answer was lost may have been carried out; it is
not repeated, but the difference is computed again.

A server deletes no point: a value that has changed is written behind the old one, as the newest of
its step.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.text.formatting import count, plain
from metlmon.tracking.mlflow_client import (
    ARTIFACTS,
    CREATE_EXPERIMENT,
    CREATE_RUN,
    DELETE_RUN,
    DELETE_TAG,
    GET_EXPERIMENT,
    GET_RUN,
    LOG_BATCH,
    METRIC_HISTORY,
    SEARCH_RUNS,
    UPDATE_RUN,
    Endpoint,
    HistoryAnswer,
    KeyValue,
    Metric,
    NoContent,
    Run,
    RunData,
    RunInfo,
    RunsAnswer,
    TrackingClient,
    TrackingError,
    stored_value,
)
from metlmon.tracking.mlflow_runs import (
    ENSEMBLE_TAG,
    KEY_TAG,
    NOTE_MARK,
    NOTE_TAG,
    PARENT_TAG,
    PASSING_TAGS,
    MetricPoint,
    TrackedEnsemble,
    TrackedRun,
)

ATTEMPTS: Final = 3
"""How often the difference is computed and written before an export fails."""

MAX_ITEMS: Final = 1000
MAX_PAIRS: Final = 100
MAX_BYTES: Final = 900_000
"""Limits of a batch: items in all, params or tags each, and bytes (MLflow: 1 MB)."""

POINTS_TAG: Final = "metlmon.points"
"""Number and digest of the first points of a run, all of which the server has."""

REPORT_TAG: Final = "metlmon.report_sha256"
REPORT_NAME: Final = "report.html"

MAX_RUNS: Final = 1000
MAX_POINTS: Final = 25_000
"""Runs and points in one answer."""

Page = TypeVar("Page", RunsAnswer, HistoryAnswer)


class ExportResult(Struct):
    """What an export wrote, or would write in a dry run.

    ``created`` and ``updated``: keys of runs; ``statuses``: the new ones, by the names of runs;
    ``points_by_run``: how many, by key; ``texts``: number of params and tags. ``problems``:
    sentences about what was refused; ``warnings``: about what was left out. ``url``: the page of
    the parent run; None if there is none yet.
    """

    experiment: str
    created: set[str] = field(default_factory=set)
    updated: set[str] = field(default_factory=set)
    statuses: dict[str, str] = field(default_factory=dict)
    points_by_run: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    uploads: int = 0
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    url: str | None = None

    @property
    def points(self) -> int:
        """Number of points of all runs."""
        return self.points_by_run.total()

    @property
    def changed(self) -> bool:
        """Whether anything was written."""
        return bool(self.created or self.updated or self.uploads)

    @property
    def summary(self) -> str:
        """``3 new runs, 1 changed run, 120 points, 45 params and tags, the report``."""
        numbers = (
            (len(self.created), "new run"),
            (len(self.updated - self.created), "changed run"),
            (self.points, "point"),
            (self.texts, "param or tag", "params and tags"),
        )
        parts = [count(number, *words) for number, *words in numbers if number]
        parts += ["the report"] if self.uploads else []
        return ", ".join(parts) or "nothing"


class MlflowExporter:
    """Exports ensembles to one experiment of a server.

    ``experiment``: its name; it is created where there is none. ``parent_id``: a run of the server
    that becomes the ensemble's, in whatever experiment it is; without it the ensemble's run is
    found by its tag, or created. ``dry_run``: nothing is written. ``progress`` is called with the
    number of runs that are done, and of all. An instance may be used again for later states.
    """

    def __init__(
        self,
        server: TrackingClient,
        experiment: str,
        *,
        parent_id: str | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._server = server
        self.experiment = experiment
        self._parent_id = parent_id
        self._dry_run = dry_run
        self._progress = progress
        self._result = ExportResult(experiment)

    def export(
        self, ensemble: TrackedEnsemble, report: bytes | None = None, attempts: int = ATTEMPTS
    ) -> ExportResult:
        """Write what the server lacks; ``report``: HTML, an artifact of the ensemble's run.

        Raises TrackingError if it fails ``attempts`` times; the next export goes on from there.
        """
        self._result = result = ExportResult(self.experiment)
        for attempt in range(1, attempts + 1):
            result.problems, result.warnings = [], []
            try:
                self._export_once(ensemble, report)
                return result
            except TrackingError as error:
                if not error.transient or attempt == attempts:
                    raise
            finally:
                # A line of progress would stay before the error.
                self._progress(1, 1)
            time.sleep(2.0 ** (attempt - 1))
        raise AssertionError

    def _export_once(self, ensemble: TrackedEnsemble, report: bytes | None) -> None:
        experiment, runs = self._find(ensemble)
        total = 1 + len(ensemble.children)
        self._progress(0, total)
        parent = self._write(ensemble.parent, runs, experiment, None)
        if parent.id:
            path = self._server.safe_text(f"#/experiments/{experiment}/runs/{parent.id}")
            self._result.url = f"{self._server.uri}/{path}"
        for done, child in enumerate(ensemble.children, 1):
            self._progress(done, total)
            try:
                self._write(child, runs, experiment, parent)
            except TrackingError as error:
                if error.code != "INVALID_PARAMETER_VALUE":
                    raise
                # No reason to leave the other runs as they are.
                self._result.problems.append(f"run {plain(child.name, 80)}: {error}")
        if report is not None:
            self._upload(parent, report)

    # --- what the server has ----------------------------------------------------------------

    def _find(self, ensemble: TrackedEnsemble) -> tuple[str | None, dict[str, Run]]:
        """The experiment's id, and its runs by key; None without one, in a dry run."""
        key = ensemble.parent.key
        if self._parent_id is not None:
            parent = self._server.call(GET_RUN, run_id=self._parent_id).run
            experiment = parent.info.experiment_id
            return experiment, {**self._find_runs(experiment, key), key: parent}
        found = self._find_experiment()
        return found, {} if found is None else self._find_runs(found, key)

    def _find_experiment(self) -> str | None:
        """The id of the experiment, which is created where there is none; None in a dry run."""
        try:
            found = self._server.call(GET_EXPERIMENT, experiment_name=self.experiment)
        except TrackingError as error:
            if error.code != "RESOURCE_DOES_NOT_EXIST":
                raise
            if self._dry_run:
                return None
        else:
            if found.experiment.lifecycle_stage == "deleted":
                raise TrackingError(
                    f"the experiment {plain(self.experiment, 80)} is deleted on {self._server.uri}",
                    "restore it there, or name another one by --experiment",
                )
            return found.experiment.experiment_id
        try:
            return self._server.call(CREATE_EXPERIMENT, name=self.experiment).experiment_id
        except TrackingError as error:
            if error.code != "RESOURCE_ALREADY_EXISTS":
                raise
            # Another program has just created it.
            raise TrackingError(error.event, "export again", transient=True) from None

    def _find_runs(self, experiment: str, ensemble: str) -> dict[str, Run]:
        """The runs of the ensemble, by key."""
        found: dict[str, list[Run]] = {}
        for answer in self._pages(
            SEARCH_RUNS,
            experiment_ids=[experiment],
            filter=f"tags.`{ENSEMBLE_TAG}` = '{ensemble}'",
            max_results=MAX_RUNS,
        ):
            for run in answer.runs:
                if KEY_TAG in run.tags:
                    found.setdefault(run.tags[KEY_TAG], []).append(run)
        return {key: self._only_one(same) for key, same in found.items()}

    def _only_one(self, same: list[Run]) -> Run:
        """The one of several runs with the same key that is written to.

        A create that was carried out after its time limit leaves a second run, in which nothing
        is: it is deleted, as MLflow deletes, so that it can be restored. Any other stays.
        """
        chosen, *others = sorted(same, key=lambda run: (_is_blank(run), run.id))
        for other in others:
            if _is_blank(other):
                self._post(DELETE_RUN, other)
            else:
                text = f"{self._server.uri} has a second run with the tag {KEY_TAG} of {chosen.id}"
                self._result.warnings.append(
                    f"{self._server.safe_text(f'{text}, {other.id}')}: only the first one is kept "
                    "up to date; delete the one that you do not need"
                )
        return chosen

    def _newest_values(self, run: Run, key: str) -> dict[int, Metric]:
        """The newest value at each step of a metric."""
        newest: dict[int, Metric] = {}
        for answer in self._pages(
            METRIC_HISTORY, run_id=run.id, metric_key=key, max_results=MAX_POINTS
        ):
            for item in answer.metrics:
                have = newest.get(item.step)
                if have is None or item.timestamp > have.timestamp:
                    newest[item.step] = item
        return newest

    def _pages(self, endpoint: Endpoint[Page], **fields: Any) -> Iterator[Page]:
        """All pages of an answer. Raises TrackingError for one that names itself as next."""
        while True:
            page = self._server.call(endpoint, **fields)
            yield page
            token = page.next_page_token
            if not token:
                return
            if token == fields.get("page_token"):
                raise TrackingError(
                    f"{self._server.uri} answered with the same page again", "see the server's log"
                )
            fields["page_token"] = token

    # --- one run ----------------------------------------------------------------------------

    def _write(
        self, run: TrackedRun, runs: dict[str, Run], experiment: str | None, parent: Run | None
    ) -> Run:
        """Bring one run up to date."""
        known = runs.get(run.key)
        if known is None:
            self._result.created.add(run.key)
            known = runs[run.key] = self._create(run, experiment, parent)
        points = self._missing_points(run, known)
        params = self._missing_params(run, known)
        tags = _missing_tags(run, known, parent)
        passed = sorted(PASSING_TAGS & known.tags.keys() - run.tags.keys())
        status = _missing_status(run, known)
        if points or params or tags or passed or status:
            self._result.updated.add(run.key)
        # The tags come behind the points, which one of them confirms.
        for batch in (*_batches(points, params, {}), *_batches((), {}, tags)):
            self._post(LOG_BATCH, known, **batch)
            self._result.points_by_run[run.key] += len(batch.get("metrics", ()))
            self._result.texts += len(batch.get("params", ())) + len(batch.get("tags", ()))
        for tag in passed:
            self._post(DELETE_TAG, known, key=tag)
        if status:
            self._post(UPDATE_RUN, known, **status)
            if run.status != known.info.status:
                self._result.statuses[run.name] = run.status
        return known

    def _post(self, endpoint: Endpoint[NoContent], run: Run, **fields: Any) -> None:
        """Call an endpoint that writes to a run; not in a dry run."""
        if not self._dry_run:
            self._server.call(endpoint, run_id=run.id, **fields)

    def _create(self, run: TrackedRun, experiment: str | None, parent: Run | None) -> Run:
        """The new run; in a dry run one without an id."""
        tags = {KEY_TAG: run.key, ENSEMBLE_TAG: run.tags[ENSEMBLE_TAG]}
        if parent is not None:
            tags[PARENT_TAG] = parent.id
        if self._dry_run:
            data = RunData(tags=[KeyValue(name, value) for name, value in tags.items()])
            return Run(RunInfo("", status="RUNNING"), data)
        return self._server.call(
            CREATE_RUN,
            experiment_id=experiment,
            run_name=run.name,
            start_time=run.start,
            tags=_pairs(tags),
        ).run

    def _missing_points(self, run: TrackedRun, known: Run) -> Sequence[MetricPoint]:
        """The points that the server does not have.

        The tag confirms those before a certain one. Of the others, one beyond the greatest step of
        its metric is missing; else the metric's history shows whether it is.
        """
        number, _, digest = known.tags.get(POINTS_TAG, "").partition(" ")
        confirmed = int(number) if number.isdecimal() else 0
        if digest != _digest(run.points[:confirmed]):
            confirmed = 0
        missing = []
        steps = {metric.key: metric.step for metric in known.data.metrics}
        histories: dict[str, dict[int, Metric]] = {}
        for point in run.points[confirmed:]:
            if point.step <= steps.get(point.key, point.step - 1):
                if point.key not in histories:
                    histories[point.key] = self._newest_values(known, point.key)
                have = histories[point.key].get(point.step)
                if have is not None:
                    if stored_value(have.value) == stored_value(point.value):
                        continue
                    # Of two values at a step, the one with the later time is shown.
                    point = replace(point, time=max(point.time, have.timestamp + 1))
            missing.append(point)
        return missing

    def _missing_params(self, run: TrackedRun, known: Run) -> dict[str, str]:
        """The params that the server does not have; changed ones are a problem."""
        have = known.params
        changed = [name for name, value in run.params.items() if have.get(name, value) != value]
        if changed:
            name, *more = changed
            others = f" (and {len(more)} more)" if more else ""
            self._result.problems.append(
                f"run {plain(run.name, 80)}: the param {plain(name, 80)} is "
                f"{self._quoted(have[name])} on {self._server.uri} and "
                f"{self._quoted(run.params[name])} here{others}; MLflow refuses to change a param "
                "(all else was exported): delete that run there, and export again"
            )
        return {name: value for name, value in run.params.items() if name not in have}

    def _quoted(self, value: str) -> str:
        return repr(plain(self._server.safe_text(value), 80))

    # --- the report -------------------------------------------------------------------------

    def _upload(self, parent: Run, report: bytes) -> None:
        digest = hashlib.sha256(report).hexdigest()
        if parent.tags.get(REPORT_TAG) == digest:
            return
        path = _proxied_path(parent.info.artifact_uri)
        if path is None and parent.id:
            self._result.warnings.append(
                f"{self._server.uri} stores artifacts where only MLflow's own clients write: the "
                "report is not there; metlmon report --html writes it to a file"
            )
            return
        self._result.uploads += 1
        if not self._dry_run:
            self._server.put_artifact(f"{path}/{REPORT_NAME}", report, "text/html")
            self._post(LOG_BATCH, parent, tags=_pairs({REPORT_TAG: digest}))


# --- differences ----------------------------------------------------------------------------


def _missing_tags(run: TrackedRun, known: Run, parent: Run | None) -> dict[str, str]:
    """The tags that differ. A description that a person wrote, and a new name, stay."""
    have = known.tags
    tags = {**run.tags, POINTS_TAG: f"{len(run.points)} {_digest(run.points)}"}
    if parent is not None:
        tags[PARENT_TAG] = parent.id
    note = have.get(NOTE_TAG, "")
    if run.note and (not note or note.startswith(NOTE_MARK)):
        tags[NOTE_TAG] = run.note
    return {name: value for name, value in tags.items() if have.get(name) != value}


def _missing_status(run: TrackedRun, known: Run) -> dict[str, object]:
    """The status and the end, if one of them differs; MLflow takes no end back."""
    if run.status == known.info.status and run.end in (None, known.info.end_time):
        return {}
    return {"status": run.status} | ({} if run.end is None else {"end_time": run.end})


def _is_blank(run: Run) -> bool:
    """Whether a run is as metlmon creates one, before anything is written to it."""
    own = {name for name in run.tags if not name.startswith("mlflow.")}
    is_new = run.info.status == "RUNNING" and own <= {KEY_TAG, ENSEMBLE_TAG}
    return is_new and not run.data.metrics and not run.data.params and NOTE_TAG not in run.tags


def _digest(points: Sequence[MetricPoint]) -> str:
    """A digest of what points are compared by."""
    text = "\n".join(f"{point.step} {point.key} {point.value!r}" for point in points)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _proxied_path(artifact_uri: str) -> str | None:
    """The path of a run's artifacts behind the server's proxy; None if it has none there."""
    parts = urlsplit(artifact_uri)
    if parts.scheme == "mlflow-artifacts":
        return parts.path.strip("/")
    if parts.scheme in ("http", "https") and ARTIFACTS in parts.path:
        return parts.path.partition(ARTIFACTS)[2].strip("/")
    return None


# --- batches --------------------------------------------------------------------------------


def _pairs(values: Mapping[str, str]) -> list[dict[str, object]]:
    return [{"key": key, "value": value} for key, value in values.items()]


Batch = dict[str, list[dict[str, object]]]


def _batches(
    points: Sequence[MetricPoint], params: Mapping[str, str], tags: Mapping[str, str]
) -> Iterator[Batch]:
    """The bodies of ``log-batch`` within its limits; points in order, so that steps ascend."""
    items = [("params", pair) for pair in _pairs(params)]
    items += [("tags", pair) for pair in _pairs(tags)]
    items += [("metrics", _metric_json(point)) for point in points]
    batch: Batch = {}
    size = number = 0
    for kind, item in items:
        length = len(json.dumps(item)) + 2
        is_full = kind != "metrics" and len(batch.get(kind, ())) == MAX_PAIRS
        if is_full or number == MAX_ITEMS or size + length > MAX_BYTES:
            yield batch
            batch, size, number = {}, 0, 0
        batch.setdefault(kind, []).append(item)
        size, number = size + length, number + 1
    if batch:
        yield batch


def _metric_json(point: MetricPoint) -> dict[str, object]:
    value: object = point.value
    if math.isnan(point.value):
        value = "NaN"
    elif math.isinf(point.value):
        value = "Infinity" if point.value > 0 else "-Infinity"
    return {"key": point.key, "value": value, "timestamp": point.time, "step": point.step}
