"""Brings an MLflow server up to date with the logs, by writing only the differences.

What the server has is read first, by the tag ``metlmon.key`` of its runs: nothing about it is
stored here. Runs are created with that tag, points are compared by metric, step and value, and
the tag ``metlmon.points`` confirms those that were written: an export interrupted at any call is
completed by the next one. A call whose answer was lost may have been carried out; it is not
repeated, but the difference is computed again.

A server deletes no points: a changed value is written after the old one, as the newest of its step.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.text.formatting import count, plain
from metlmon.tracking.mlflow_client import ARTIFACTS, TrackingClient, TrackingError, stored_value
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

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run, RunTag

ATTEMPTS: Final = 3
"""How often an export computes and writes the difference before it fails."""

MAX_ITEMS: Final = 1000
MAX_PARAMS: Final = 100
"""MLflow's limits of a batch: items in all, and params. Only texts in other alphabets reach its
third one, 1 MB."""

POINTS_TAG: Final = "metlmon.points"
"""Number and digest of the first points of a run, which the server has completely."""

REPORT_TAG: Final = "metlmon.report_sha256"
REPORT_NAME: Final = "report.html"

MAX_RUNS: Final = 1000
MAX_POINTS: Final = 25_000
"""Maximum runs and points in one answer."""


class ExportResult(Struct):
    """What an export wrote, or would write in a dry run.

    ``created`` and ``updated``: keys of runs; ``statuses``: the new ones, by names of runs;
    ``points_by_run``: their number by key; ``texts``: number of params and tags. ``problems``:
    sentences on what was refused; ``warnings``: on what was left out. ``url``: the page of the
    parent run; None if it does not exist yet.
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

    ``experiment``: its name; it is created if missing. ``parent_id``: a run of the server that
    becomes the ensemble's, in any experiment; without it the ensemble's run is found by its tag, or
    created. ``dry_run``: nothing is written. ``progress`` is called with the number of completed
    runs and of all. An instance may be used again for later states.
    """

    def __init__(
        self,
        server: TrackingClient,
        experiment: str,
        *,
        parent_id: str | None = None,
        dry_run: bool = False,
    ) -> None:
        self._server = server
        self.experiment = experiment
        self._parent_id = parent_id
        self._dry_run = dry_run
        self.progress: Callable[[int, int], object] = lambda done, total: None
        self._result = ExportResult(experiment)

    def export(
        self, ensemble: TrackedEnsemble, report: bytes | None = None, attempts: int = ATTEMPTS
    ) -> ExportResult:
        """Write what the server lacks; ``report``: HTML, an artifact of the ensemble's run.

        Raises TrackingError if it fails ``attempts`` times; the next export continues from there.
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
                # Otherwise a line of progress would stay above the error.
                self.progress(1, 1)
            time.sleep(2.0 ** (attempt - 1))
        raise AssertionError

    def _export_once(self, ensemble: TrackedEnsemble, report: bytes | None) -> None:
        experiment, runs = self._find(ensemble)
        total = 1 + len(ensemble.children)
        self.progress(0, total)
        parent = self._write(ensemble.parent, runs, experiment, None)
        if parent.info.run_id:
            path = self._server.safe_text(f"#/experiments/{experiment}/runs/{parent.info.run_id}")
            self._result.url = f"{self._server.uri}/{path}"
        for done, child in enumerate(ensemble.children, 1):
            self.progress(done, total)
            try:
                self._write(child, runs, experiment, parent)
            except TrackingError as error:
                if error.code != "INVALID_PARAMETER_VALUE":
                    raise
                # The other runs are still brought up to date.
                self._result.problems.append(f"run {plain(child.name, 80)}: {error}")
        if report is not None:
            self._upload(parent, report)

    # --- what the server has ----------------------------------------------------------------

    def _find(self, ensemble: TrackedEnsemble) -> tuple[str | None, dict[str, Run]]:
        """The experiment's id, and its runs by key; None without one, in a dry run."""
        key = ensemble.parent.key
        if self._parent_id is not None:
            parent = self._server.call("get_run", self._parent_id)
            experiment = parent.info.experiment_id
            return experiment, {**self._find_runs(experiment, key), key: parent}
        found = self._find_experiment()
        return found, {} if found is None else self._find_runs(found, key)

    def _find_experiment(self) -> str | None:
        """The ID of the experiment, which is created if missing; None in a dry run."""
        found = self._server.call("get_experiment_by_name", self.experiment)
        if found is None and self._dry_run:
            return None
        if found is None:
            try:
                return str(self._server.call("create_experiment", self.experiment))
            except TrackingError as error:
                if error.code != "RESOURCE_ALREADY_EXISTS":
                    raise
                # Another program has just created it.
                raise TrackingError(error.event, "export again", transient=True) from None
        if found.lifecycle_stage == "deleted":
            raise TrackingError(
                f"the experiment {plain(self.experiment, 80)} is deleted on {self._server.uri}",
                "restore it there, or name another one by --experiment",
            )
        return str(found.experiment_id)

    def _find_runs(self, experiment: str, ensemble: str) -> dict[str, Run]:
        """The runs of the ensemble, by key."""
        from mlflow.entities import ViewType

        found: dict[str, list[Run]] = {}
        for run in self._server.pages(
            "search_runs",
            experiment_ids=[experiment],
            filter_string=f"tags.`{ENSEMBLE_TAG}` = '{ensemble}'",
            run_view_type=ViewType.ACTIVE_ONLY,
            max_results=MAX_RUNS,
        ):
            if KEY_TAG in run.data.tags:
                found.setdefault(run.data.tags[KEY_TAG], []).append(run)
        return {key: self._only_one(same) for key, same in found.items()}

    def _only_one(self, same: list[Run]) -> Run:
        """Choose which of several runs with the same key is written to.

        A create that was carried out after its time limit leaves a second, empty run: it is deleted
        in MLflow's way, so that it can be restored. Any other stays.
        """
        chosen, *others = sorted(same, key=lambda run: (_is_blank(run), run.info.run_id))
        for other in others:
            if _is_blank(other):
                self._write_to(other, "delete_run")
            else:
                ids = self._server.safe_text(f"{chosen.info.run_id}, {other.info.run_id}")
                self._result.warnings.append(
                    f"{self._server.uri} has a second run with the tag {KEY_TAG} of {ids}: only "
                    "the first one is kept up to date; delete the one that you do not need"
                )
        return chosen

    def _newest_values(self, run: Run, key: str) -> dict[int, Metric]:
        newest: dict[int, Metric] = {}
        for item in self._server.pages(
            "get_metric_history", run_id=run.info.run_id, metric_key=key, max_results=MAX_POINTS
        ):
            have = newest.get(item.step)
            if have is None or item.timestamp > have.timestamp:
                newest[item.step] = item
        return newest

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
        passed = sorted(PASSING_TAGS & known.data.tags.keys() - run.tags.keys())
        # MLflow cannot unset an end.
        new_end = run.end not in (None, known.info.end_time)
        new_status = new_end or run.status != known.info.status
        if points or params or tags or passed or new_status:
            self._result.updated.add(run.key)
        for some_points, some_params in _batches(points, params):
            self._log(run, known, some_points, some_params, {})
        # Tags follow the points, since one of them confirms these.
        if tags:
            self._log(run, known, (), {}, tags)
        for tag in passed:
            self._write_to(known, "delete_tag", tag)
        if new_status:
            if not self._dry_run:
                self._server.set_status(known.info.run_id, run.status, run.end)
            if run.status != known.info.status:
                self._result.statuses[run.name] = run.status
        return known

    def _write_to(self, run: Run, method: str, *arguments: Any, **named: Any) -> None:
        """Call a method that writes to a run; does nothing in a dry run."""
        if not self._dry_run:
            self._server.call(method, run.info.run_id, *arguments, **named)

    def _log(
        self,
        run: TrackedRun,
        known: Run,
        points: Sequence[MetricPoint],
        params: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> None:
        """Write points, params and tags, at most as many as one call may have."""
        from mlflow.entities import Metric, Param

        self._write_to(
            known,
            "log_batch",
            metrics=[Metric(each.key, each.value, each.time, each.step) for each in points],
            params=[Param(name, value) for name, value in params.items()],
            tags=_run_tags(tags),
        )
        self._result.points_by_run[run.key] += len(points)
        self._result.texts += len(params) + len(tags)

    def _create(self, run: TrackedRun, experiment: str | None, parent: Run | None) -> Run:
        """Create the run; in a dry run return one without an ID."""
        tags = {KEY_TAG: run.key, ENSEMBLE_TAG: run.tags[ENSEMBLE_TAG]}
        if parent is not None:
            tags[PARENT_TAG] = parent.info.run_id
        if self._dry_run:
            return _run_without_id(tags)
        return self._server.call(
            "create_run",
            experiment_id=experiment,
            user_id="",
            start_time=run.start,
            tags=_run_tags(tags),
            run_name=run.name,
        )

    def _missing_points(self, run: TrackedRun, known: Run) -> Sequence[MetricPoint]:
        """The points that the server does not have.

        Those that the tag confirms are not missing. Of the others, one beyond the greatest step of
        its metric is missing; for the rest, the metric's history decides.
        """
        number, _, digest = known.data.tags.get(POINTS_TAG, "").partition(" ")
        confirmed = int(number) if number.isdecimal() else 0
        if digest != _digest(run.points[:confirmed]):
            confirmed = 0
        missing = []
        # RunData.metrics has only the values.
        steps = {metric.key: metric.step for metric in known.data.to_proto().metrics}
        histories: dict[str, dict[int, Metric]] = {}
        for point in run.points[confirmed:]:
            if point.step <= steps.get(point.key, point.step - 1):
                if point.key not in histories:
                    histories[point.key] = self._newest_values(known, point.key)
                have = histories[point.key].get(point.step)
                if have is not None:
                    if stored_value(have.value) == stored_value(point.value):
                        continue
                    # If a step has two values, MLflow shows the one with the later time.
                    point = replace(point, time=max(point.time, have.timestamp + 1))
            missing.append(point)
        return missing

    def _missing_params(self, run: TrackedRun, known: Run) -> dict[str, str]:
        """The params that the server does not have; changed ones are a problem."""
        have = known.data.params
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
        if parent.data.tags.get(REPORT_TAG) == digest:
            return
        path = _proxied_path(parent.info.artifact_uri or "")
        if path is None and parent.info.run_id:
            self._result.warnings.append(
                f"{self._server.uri} stores artifacts where only MLflow's own clients write: the "
                "report is not there; metlmon report --html writes it to a file"
            )
            return
        self._result.uploads += 1
        if not self._dry_run:
            self._server.upload(f"{path}/{REPORT_NAME}", report, "text/html")
            tags = _run_tags({REPORT_TAG: digest})
            self._write_to(parent, "log_batch", metrics=[], params=[], tags=tags)


# --- differences ----------------------------------------------------------------------------


def _missing_tags(run: TrackedRun, known: Run, parent: Run | None) -> dict[str, str]:
    """The tags that differ, except a description or a new name given by a person."""
    have = known.data.tags
    tags = {**run.tags, POINTS_TAG: f"{len(run.points)} {_digest(run.points)}"}
    if parent is not None:
        tags[PARENT_TAG] = parent.info.run_id
    note = have.get(NOTE_TAG, "")
    if run.note and (not note or note.startswith(NOTE_MARK)):
        tags[NOTE_TAG] = run.note
    return {name: value for name, value in tags.items() if have.get(name) != value}


def _is_blank(run: Run) -> bool:
    """Whether a run is as metlmon creates it, with nothing written to it since."""
    tags = run.data.tags
    own = {name for name in tags if not name.startswith("mlflow.")}
    is_new = run.info.status == "RUNNING" and own <= {KEY_TAG, ENSEMBLE_TAG}
    return is_new and not run.data.metrics and not run.data.params and NOTE_TAG not in tags


def _digest(points: Sequence[MetricPoint]) -> str:
    """A digest of the fields by which points are compared."""
    text = "\n".join(f"{point.step} {point.key} {point.value!r}" for point in points)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _proxied_path(artifact_uri: str) -> str | None:
    """The path of a run's artifacts behind the server's proxy; None if they are elsewhere."""
    parts = urlsplit(artifact_uri)
    if parts.scheme == "mlflow-artifacts":
        return parts.path.strip("/")
    if parts.scheme in ("http", "https") and ARTIFACTS in parts.path:
        return parts.path.partition(ARTIFACTS)[2].strip("/")
    return None


# --- MLflow's records -----------------------------------------------------------------------


def _run_tags(tags: Mapping[str, str]) -> list[RunTag]:
    from mlflow.entities import RunTag

    return [RunTag(name, value) for name, value in tags.items()]


def _run_without_id(tags: Mapping[str, str]) -> Run:
    """A run as it would be created."""
    from mlflow.entities import Run, RunData, RunInfo

    info = RunInfo(
        run_id="",
        experiment_id="",
        user_id="",
        status="RUNNING",
        start_time=0,
        end_time=None,
        lifecycle_stage="active",
    )
    return Run(info, RunData(tags=_run_tags(tags)))


def _batches(
    points: Sequence[MetricPoint], params: Mapping[str, str]
) -> Iterator[tuple[Sequence[MetricPoint], Mapping[str, str]]]:
    """Points and params for one call each; points stay in order, so that steps ascend."""
    pairs = list(params.items())
    while points or pairs:
        some = dict(pairs[:MAX_PARAMS])
        room = MAX_ITEMS - len(some)
        yield points[:room], some
        points, pairs = points[room:], pairs[MAX_PARAMS:]
