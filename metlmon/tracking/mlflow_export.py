"""Brings an MLflow server to what the logs say, by writing the difference alone.

What the server has is read first, by the tag ``metlmon.key`` of its runs: nothing about it is
stored here. Runs are created with that tag, points are compared by metric, step and value, and
the tag ``metlmon.points`` confirms those that are written: an export that was interrupted at any
call is completed by the next one. A call whose answer was lost may have been carried out; it is
not repeated, but the difference is computed again.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct, field

from metlmon.redact import redact_secrets
from metlmon.text.formatting import count, plain
from metlmon.tracking.mlflow_client import (
    ARTIFACTS,
    CREATE_EXPERIMENT,
    CREATE_RUN,
    DELETE_RUN,
    GET_EXPERIMENT,
    LOG_BATCH,
    METRIC_HISTORY,
    SEARCH_RUNS,
    UPDATE_RUN,
    Endpoint,
    TrackingClient,
    TrackingError,
)
from metlmon.tracking.mlflow_runs import (
    ENSEMBLE_TAG,
    KEY_TAG,
    NAME_TAG,
    NOTE_MARK,
    NOTE_TAG,
    PARENT_TAG,
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

PAGE: Final = 1000
"""Runs per answer of a search."""

Json = Mapping[str, Any]


class ServerRun(Struct):
    """A run as the server has it; ``latest``: the newest step and value of each metric."""

    id: str
    status: str
    end: int | None
    artifacts: str
    tags: dict[str, str]
    params: dict[str, str]
    latest: dict[str, int]


class ExportResult(Struct):
    """What an export wrote, or would write in a dry run.

    ``created`` and ``updated``: keys of runs; ``texts``: number of params and tags. ``problems``:
    sentences about what was refused; ``warnings``: about what was left out. ``url``: the page of
    the parent run; None if there is none yet.
    """

    experiment: str
    created: set[str] = field(default_factory=set)
    updated: set[str] = field(default_factory=set)
    points: int = 0
    texts: int = 0
    uploads: int = 0
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    url: str | None = None

    @property
    def summary(self) -> str:
        """``3 runs created, 1 updated, 120 points, 45 params and tags, report uploaded``."""
        parts = [
            f"{count(len(self.created), 'run')} created",
            f"{len(self.updated - self.created)} updated",
            count(self.points, "point"),
            f"{self.texts} params and tags",
        ]
        if self.uploads:
            parts.append("report uploaded")
        return ", ".join(parts)


class MlflowExporter:
    """Exports ensembles to one experiment of a server.

    ``dry_run``: nothing is written. ``progress`` is called with the runs that are done and all.
    An instance may be used again for later states of an ensemble.
    """

    def __init__(
        self,
        server: TrackingClient,
        experiment: str,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._server = server
        self._experiment = experiment
        self._dry_run = dry_run
        self._progress = progress
        self._result = ExportResult(experiment)

    def export(self, ensemble: TrackedEnsemble, report: bytes | None = None) -> ExportResult:
        """Write what the server lacks; ``report``: HTML, an artifact of the parent.

        Raises TrackingError if a call fails repeatedly; the next export goes on from there.
        """
        self._result = result = ExportResult(self._experiment)
        for attempt in range(1, ATTEMPTS + 1):
            result.problems, result.warnings = [], []
            try:
                self._export_once(ensemble, report)
                return result
            except TrackingError as error:
                if not error.transient or attempt == ATTEMPTS:
                    raise
            time.sleep(2.0 ** (attempt - 1))
        raise AssertionError

    def _export_once(self, ensemble: TrackedEnsemble, report: bytes | None) -> None:
        experiment = self._find_experiment()
        runs = self._find_runs(experiment, ensemble.parent.key) if experiment is not None else {}
        total = 1 + len(ensemble.children)
        self._progress(0, total)
        parent = self._write(ensemble.parent, runs, experiment, None)
        if parent is not None and experiment is not None:
            path = f"#/experiments/{experiment}/runs/{parent.id}"
            self._result.url = f"{self._server.uri}/{path}"
        for done, child in enumerate(ensemble.children, 1):
            self._progress(done, total)
            self._write(child, runs, experiment, parent)
        if report is not None:
            self._upload(parent, report)
        self._progress(total, total)

    # --- what the server has ----------------------------------------------------------------

    def _find_experiment(self) -> str | None:
        """The id of the experiment, which is created where there is none; None in a dry run."""
        try:
            answer = self._server.get(GET_EXPERIMENT, experiment_name=self._experiment)
        except TrackingError as error:
            if error.code != "RESOURCE_DOES_NOT_EXIST":
                raise
            if self._dry_run:
                return None
        else:
            experiment = answer.get("experiment", {})
            if experiment.get("lifecycle_stage") == "deleted":
                raise TrackingError(
                    f"the experiment {plain(self._experiment, 80)} is deleted on "
                    f"{self._server.uri}: restore it there, or name another one by --experiment"
                )
            return str(experiment.get("experiment_id"))
        try:
            created = self._server.post(CREATE_EXPERIMENT, {"name": self._experiment})
        except TrackingError as error:
            if error.code != "RESOURCE_ALREADY_EXISTS":
                raise
            raise TrackingError(str(error), transient=True) from None
        return str(created.get("experiment_id"))

    def _find_runs(self, experiment: str, ensemble: str) -> dict[str, ServerRun]:
        """The runs of the ensemble, by key.

        Where a create was carried out twice, as may happen when its answer is lost, the run with
        the most in it remains.
        """
        found: dict[str, list[ServerRun]] = {}
        body: dict[str, object] = {
            "experiment_ids": [experiment],
            "filter": f"tags.`{ENSEMBLE_TAG}` = '{ensemble}'",
            "max_results": PAGE,
        }
        while True:
            answer = self._server.post(SEARCH_RUNS, body)
            for item in answer.get("runs", ()):
                run = _server_run(item)
                found.setdefault(run.tags.get(KEY_TAG, ""), []).append(run)
            token = answer.get("next_page_token")
            if not token:
                break
            body = {**body, "page_token": token}
        runs = {}
        for key, same in found.items():
            best, *duplicates = sorted(
                same, key=lambda run: (-len(run.latest), -len(run.tags), run.id)
            )
            runs[key] = best
            for duplicate in duplicates:
                self._post(DELETE_RUN, duplicate, {})
        return runs

    def _history(self, run: ServerRun, key: str) -> set[tuple[int, float | None]]:
        """The steps and values of a metric that the server has."""
        have = set()
        token = ""
        while True:
            parameters: dict[str, str | int] = {
                "run_id": run.id,
                "metric_key": key,
                "max_results": 25 * PAGE,
            }
            if token:
                parameters["page_token"] = token
            answer = self._server.get(METRIC_HISTORY, **parameters)
            for item in answer.get("metrics", ()):
                have.add((int(item.get("step", 0)), _comparable(float(item.get("value", 0)))))
            token = answer.get("next_page_token", "")
            if not token:
                return have

    # --- one run ----------------------------------------------------------------------------

    def _write(
        self,
        run: TrackedRun,
        runs: dict[str, ServerRun],
        experiment: str | None,
        parent: ServerRun | None,
    ) -> ServerRun | None:
        """Bring one run up to date; None if it does not exist, in a dry run."""
        known = runs.get(run.key)
        points = run.points if known is None else self._missing_points(run, known)
        params = self._missing_params(run, known)
        tags = _missing_tags(run, known)
        status = _missing_status(run, known)
        if known is not None and not (points or params or tags or status):
            return known
        if known is None:
            self._result.created.add(run.key)
            if not self._dry_run:
                known = runs[run.key] = self._create(run, experiment, parent)
                status = _missing_status(run, known)
        self._result.updated.add(run.key)
        # The tags come behind the points, which one of them confirms.
        for batch in (*_batches(points, params, {}), *_batches((), {}, tags)):
            self._post(LOG_BATCH, known, batch)
            self._result.points += len(batch.get("metrics", ()))
            self._result.texts += len(batch.get("params", ())) + len(batch.get("tags", ()))
        if status:
            self._post(UPDATE_RUN, known, status)
        return known

    def _post(self, endpoint: Endpoint, run: ServerRun | None, body: Json) -> None:
        """Call an endpoint that writes to a run; not in a dry run."""
        if run is not None and not self._dry_run:
            self._server.post(endpoint, {"run_id": run.id, **body})

    def _create(
        self, run: TrackedRun, experiment: str | None, parent: ServerRun | None
    ) -> ServerRun:
        tags = {KEY_TAG: run.key, ENSEMBLE_TAG: run.tags[ENSEMBLE_TAG], NAME_TAG: run.name}
        if parent is not None:
            tags[PARENT_TAG] = parent.id
        answer = self._server.post(
            CREATE_RUN,
            {
                "experiment_id": experiment,
                "run_name": run.name,
                "start_time": run.start,
                "tags": _pairs(tags),
            },
        )
        return _server_run(answer.get("run", {}))

    def _missing_points(self, run: TrackedRun, known: ServerRun) -> Sequence[MetricPoint]:
        """The points that the server does not have.

        The tag confirms those before a certain one. Of the others, one beyond the newest step of
        its metric is missing; else the metric's history shows whether it is.
        """
        number, _, digest = known.tags.get(POINTS_TAG, "").partition(" ")
        confirmed = int(number) if number.isdecimal() else 0
        if digest != _digest(run.points[:confirmed]):
            confirmed = 0
        missing = []
        histories: dict[str, set[tuple[int, float | None]]] = {}
        for point in run.points[confirmed:]:
            newest = known.latest.get(point.key)
            if newest is not None and point.step <= newest:
                if point.key not in histories:
                    histories[point.key] = self._history(known, point.key)
                if (point.step, _comparable(point.value)) in histories[point.key]:
                    continue
            missing.append(point)
        return missing

    def _missing_params(self, run: TrackedRun, known: ServerRun | None) -> dict[str, str]:
        """The params that the server does not have; a changed one is a problem."""
        if known is None:
            return dict(run.params)
        for name, value in run.params.items():
            old = known.params.get(name, value)
            if old != value:
                self._result.problems.append(
                    f"run {plain(run.name, 80)}: the param {plain(name, 80)} is "
                    f"{_quoted(old)} on {self._server.uri} and {_quoted(value)} here; MLflow "
                    "refuses to change a param (all else was exported): delete that run there, and "
                    "export again"
                )
        return {name: value for name, value in run.params.items() if name not in known.params}

    # --- the report -------------------------------------------------------------------------

    def _upload(self, parent: ServerRun | None, report: bytes) -> None:
        digest = hashlib.sha256(report).hexdigest()
        if parent is not None and parent.tags.get(REPORT_TAG) == digest:
            return
        path = _proxied_path(parent.artifacts) if parent is not None else ""
        if path is None:
            self._result.warnings.append(
                f"{self._server.uri} stores artifacts where only MLflow's own clients write: the "
                "report is not there; metlmon report --html writes it to a file"
            )
            return
        self._result.uploads += 1
        if self._dry_run or parent is None:
            return
        self._server.put_artifact(f"{path}/{REPORT_NAME}", report, "text/html")
        self._post(LOG_BATCH, parent, {"tags": _pairs({REPORT_TAG: digest})})


# --- differences ----------------------------------------------------------------------------


def _missing_tags(run: TrackedRun, known: ServerRun | None) -> dict[str, str]:
    """The tags that differ. A description that a person wrote, and a new name, stay."""
    have = known.tags if known is not None else {}
    tags = {**run.tags, POINTS_TAG: f"{len(run.points)} {_digest(run.points)}"}
    note = have.get(NOTE_TAG, "")
    if run.note and (not note or note.startswith(NOTE_MARK)):
        tags[NOTE_TAG] = run.note
    return {name: value for name, value in tags.items() if have.get(name) != value}


def _missing_status(run: TrackedRun, known: ServerRun | None) -> dict[str, object]:
    """The status and the end, if one of them differs; an end cannot be taken back."""
    status, end = (known.status, known.end) if known is not None else ("", None)
    if run.status == status and run.end in (None, end):
        return {}
    return {"status": run.status} | ({} if run.end is None else {"end_time": run.end})


def _digest(points: Sequence[MetricPoint]) -> str:
    """A digest of what points are compared by."""
    text = "\n".join(f"{point.step} {point.key} {point.value!r}" for point in points)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _comparable(value: float) -> float | None:
    """A value as an SQL store returns it: infinities as the largest number; None for NaN."""
    if math.isnan(value):
        return None
    return max(-1.7976931348623157e308, min(1.7976931348623157e308, value))


def _server_run(item: Json) -> ServerRun:
    info, data = item.get("info", {}), item.get("data", {})
    end = int(info.get("end_time") or 0)
    return ServerRun(
        id=str(info.get("run_id", "")),
        status=str(info.get("status", "")),
        end=end or None,
        artifacts=str(info.get("artifact_uri", "")),
        tags={tag["key"]: tag.get("value", "") for tag in data.get("tags", ())},
        params={param["key"]: param.get("value", "") for param in data.get("params", ())},
        latest={each["key"]: int(each.get("step", 0)) for each in data.get("metrics", ())},
    )


def _quoted(value: str) -> str:
    return repr(plain(redact_secrets(value), 80))


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
