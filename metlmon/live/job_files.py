"""What the jobs of an ensemble write beside their logs: found, read, and read again when it
has changed."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from metlmon.config.settings import MetricPattern, Settings
from metlmon.frozen import frozen
from metlmon.jobfiles.metl_files import read_args_txt, read_metrics_txt
from metlmon.jobfiles.metrics_csv import MetricsTable, read_metrics_csv
from metlmon.jobfiles.records import Point, Streamed, TrainingOutput
from metlmon.jobfiles.stdout import matched_values, newest_progress, printed_values
from metlmon.live.safe_glob import SafeGlob, Seen, file_state, open_text, read_file_end
from metlmon.live.tail import UnreadableFile, output_file
from metlmon.model.job_events import JobId
from metlmon.model.states import State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.ledger import JobEntry, Ledger, RunEntry

T = TypeVar("T")

LARGEST_CSV: Final = 256_000_000
"""Bytes of one metrics.csv: a million logged steps are a fifth of it."""

LARGEST_TEXT: Final = 1_000_000
"""Bytes of a metrics.txt or an args.txt: they have a hundred lines."""

PROGRESS_TAIL: Final = 16 * 1024
"""Bytes of a job's output in which its progress line is looked for: a hundred of them."""

VALUES_TAIL: Final = 64 * 1024
"""Bytes of a job's output in which values of metrics are looked for."""

MOST_LINES: Final = 200_000

MOST_VERSIONS: Final = 2000
"""Starts of one run that are looked at, the newest ones: each costs three looks at files."""

STALE_SECONDS: Final = 60.0
"""A progress line that was written longer before the job's newest start is of an earlier one;
clocks of a file server differ by less."""

AT_WORK: Final = frozenset({State.RUNNING, State.SUSPENDED, State.DISCONNECTED})

_VERSION: Final = re.compile(r"version_(\d{1,9})", re.ASCII)
_LINES: Final = re.compile(r"[\r\n]+")
_PROBLEMS: Final = 20
"""Sentences kept of one run."""


@frozen
class _Version:
    """A folder like METL's ``version_<k>``; ``path`` a text, since there are thousands."""

    number: int | None
    path: str


class _FileCache(Generic[T]):
    """What was read from files, by file: one that did not change is not read again."""

    def __init__(self, read: Callable[[str], T]) -> None:
        self._read = read
        self._known: dict[str, tuple[Seen, T]] = {}
        self._used: set[str] = set()

    def read(self, path: str) -> tuple[Seen, T] | None:
        """The file's state and content; None where there is no such file."""
        now = file_state(path)
        if now is None:
            return None
        self._used.add(path)
        known = self._known.get(path)
        if known is None or known[0] != now:
            known = self._known[path] = (now, self._read(path))
        return known

    def forget_unused(self) -> None:
        """Forget files that nobody asked for since this was called last."""
        for path in self._known.keys() - self._used:
            del self._known[path]
        self._used.clear()


@dataclass(slots=True)
class _RunFiles:
    """One run's files while they are put together. ``signature`` tell whether anything changed."""

    values: dict[str, dict[int, Point]] = field(default_factory=dict)
    summary: Mapping[str, float] = field(default_factory=dict)
    arguments: dict[int, Mapping[str, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    signature: list[tuple[str, Seen]] = field(default_factory=list)

    def add(self, metric: str, point: Point) -> None:
        """Take a value; it goes before the one that there is for its epoch."""
        self.values.setdefault(metric, {})[point.epoch] = point

    def add_missing(self, metric: str, points: Mapping[int, Point]) -> None:
        """Take the values of epochs that have none."""
        self.values[metric] = {**points, **self.values.get(metric, {})}

    def has(self, metric: str, epoch: int | None) -> bool:
        return epoch is not None and epoch in self.values.get(metric, {})


class TrainingFiles:
    """The files that the trainings below ``dagdir`` write. Its methods may be called from any
    thread, and block for as long as the files take.

    Metrics come from ``metrics.csv``, in METL's layout or wherever ``settings.metrics.files``
    says; then from the patterns of the settings; then from what jobs print, where an epoch has
    no value of the primary metric yet. Files tell no time: of an ensemble as it was at a moment
    (``cut``) only the epochs are told that were completed by then.
    """

    def __init__(self, dagdir: Path, settings: Settings) -> None:
        self._dagdir = dagdir
        self._settings = settings
        self._lock = threading.Lock()
        self._csv = _FileCache(_read_csv)
        self._summaries = _FileCache(_reader_of_text(read_metrics_txt))
        self._arguments = _FileCache(_reader_of_text(read_args_txt))
        self._output_ends = _FileCache(self._read_end)
        self._matched = {p: _FileCache(_reader_of_matches(p)) for p in settings.metrics.patterns}
        self._progress = _FileCache(_read_progress)
        self._outputs: dict[str, tuple[tuple[Any, ...], TrainingOutput]] = {}

    # --- trainings ------------------------------------------------------------------------

    def training_outputs(
        self, ledger: Ledger, builder: SnapshotBuilder
    ) -> Mapping[str, TrainingOutput]:
        """What each run's training wrote, by run key; runs of which there is nothing are left
        out. The same object comes again as long as nothing has changed."""
        with self._lock:
            places = SafeGlob(self._dagdir)
            jobs: dict[str, list[JobEntry]] = {}
            for job in ledger.jobs:
                if job.run is not None and job.training:
                    jobs.setdefault(job.run, []).append(job)
            by_then = _completed_epochs(ledger) if builder.ensemble.cut is not None else None
            made = {}
            for run in ledger.runs:
                gathered = self._collect(run, jobs.get(run.run, ()), places, builder)
                epochs = None if by_then is None else frozenset(by_then.get(run.run, ()))
                training = self._training(run.run, gathered, epochs)
                if training is not None:
                    made[run.run] = training
            self._forget(made)
            return made

    def _forget(self, made: Mapping[str, TrainingOutput]) -> None:
        self._outputs = {run: known for run, known in self._outputs.items() if run in made}
        every: list[_FileCache[Any]] = [
            self._csv,
            self._summaries,
            self._arguments,
            self._output_ends,
        ]
        for read in (*every, *self._matched.values()):
            read.forget_unused()

    def _training(
        self, run: str, gathered: _RunFiles, epochs: frozenset[int | None] | None
    ) -> TrainingOutput | None:
        signs = (tuple(gathered.signature), epochs, tuple(gathered.problems))
        known = self._outputs.get(run)
        if known is not None and known[0] == signs:
            return known[1]
        if not gathered.signature and not gathered.problems:
            return None
        if epochs is not None:
            _restrict_to_epochs(gathered, epochs)
        training = TrainingOutput(
            run,
            {
                metric: tuple(points[epoch] for epoch in sorted(points))
                for metric, points in gathered.values.items()
                if points
            },
            dict(gathered.summary),
            dict(gathered.arguments),
            tuple(gathered.problems[:_PROBLEMS]),
        )
        self._outputs[run] = (signs, training)
        return training

    def _collect(
        self, run: RunEntry, jobs: Sequence[JobEntry], places: SafeGlob, builder: SnapshotBuilder
    ) -> _RunFiles:
        gathered = _RunFiles()
        filled = {"uuid": run.uuid, "run": run.run_name}
        for version in _versions(places, self._settings.metrics.files, filled):
            self._add_version(gathered, version, places)
        for pattern in self._settings.metrics.patterns:
            if pattern.file == "out":
                self._add_matches_of_jobs(gathered, pattern, jobs, builder)
            else:
                self._add_matches_of_files(gathered, pattern, places, filled)
        self._add_printed(gathered, jobs, builder)
        return gathered

    def _add_version(self, gathered: _RunFiles, version: _Version, places: SafeGlob) -> None:
        path = f"{version.path}/metrics.csv"
        table = self._csv.read(path)
        if table is not None:
            gathered.signature.append((path, table[0]))
            file = places.relative(path)
            gathered.problems += [f"{file} {problem}" for problem in table[1].problems]
            for metric, values in table[1].values.items():
                for epoch, value in values.items():
                    gathered.add(metric, Point(epoch, value, version.number, file))
        path = f"{version.path}/metrics.txt"
        summary = self._summaries.read(path)
        if summary is not None:
            gathered.signature.append((path, summary[0]))
            gathered.summary = summary[1]
        path = f"{version.path}/args.txt"
        arguments = self._arguments.read(path)
        if arguments is not None:
            gathered.signature.append((path, arguments[0]))
            gathered.arguments[version.number or 0] = arguments[1]

    def _add_matches_of_files(
        self,
        gathered: _RunFiles,
        pattern: MetricPattern,
        places: SafeGlob,
        filled: Mapping[str, str | None],
    ) -> None:
        """Values without an epoch are those of epochs 0, 1, 2 … in order of their lines."""
        new: dict[int, Point] = {}
        for path in map(str, places.matching(pattern.file, filled)):
            found = self._matched[pattern].read(path)
            if found is None:
                continue
            gathered.signature.append((path, found[0]))
            file = places.relative(path)
            for place, (said, value) in enumerate(found[1]):
                epoch = place if said is None else said
                new[epoch] = Point(epoch, value, None, file)
        gathered.add_missing(pattern.metric, new)

    def _add_matches_of_jobs(
        self,
        gathered: _RunFiles,
        pattern: MetricPattern,
        jobs: Sequence[JobEntry],
        builder: SnapshotBuilder,
    ) -> None:
        """Values without an epoch are of the epoch of their job's node."""
        new: dict[int, Point] = {}
        for job in jobs:
            path, name = self._output(job.job, builder)
            found = self._matched[pattern].read(path) if path is not None else None
            if path is None or found is None:
                continue
            gathered.signature.append((path, found[0]))
            for said, value in found[1]:
                epoch = job.epoch if said is None else said
                if epoch is not None:
                    new[epoch] = Point(epoch, value, None, name)
        gathered.add_missing(pattern.metric, new)

    def _add_printed(
        self, gathered: _RunFiles, jobs: Sequence[JobEntry], builder: SnapshotBuilder
    ) -> None:
        metric = self._settings.metrics.primary
        new: dict[int, Point] = {}
        for job in jobs:
            if gathered.has(metric, job.epoch):
                continue
            path, name = self._output(job.job, builder)
            found = self._output_ends.read(path) if path is not None else None
            if path is None or found is None:
                continue
            if found[1]:
                gathered.signature.append((path, found[0]))
            # What names its epoch goes before what does not.
            for said in sorted(found[1], key=lambda epoch: epoch is not None):
                epoch = job.epoch if said is None else said
                if epoch is not None:
                    new[epoch] = Point(epoch, found[1][said], None, name)
        gathered.add_missing(metric, new)

    def _output(self, job: JobId, builder: SnapshotBuilder) -> tuple[str | None, str]:
        name = builder.output_file(*job)
        if name is None:
            return None, ""
        try:
            return str(output_file(self._dagdir, name)), name
        except UnreadableFile:
            return None, name

    def _read_end(self, path: str) -> dict[int | None, float]:
        try:
            text = read_file_end(path, VALUES_TAIL)
        except UnreadableFile:
            return {}
        return printed_values(_LINES.split(text), self._settings.metrics.primary)

    # --- progress -------------------------------------------------------------------------

    def progress_lines(self, ledger: Ledger, builder: SnapshotBuilder) -> Mapping[JobId, Streamed]:
        """The newest progress line of every running job. None of an ensemble as it was at a
        moment: what a job printed then is not known any more."""
        if builder.ensemble.cut is not None:
            return {}
        with self._lock:
            lasts = {e.job: e.seconds for e in ledger.executions if e.end is None}
            found = {}
            for job in ledger.jobs:
                if job.state not in AT_WORK or job.dagman:
                    continue
                path, _ = self._output(job.job, builder)
                streamed = self._progress.read(path) if path is not None else None
                if streamed is None or streamed[1] is None:
                    continue
                if not (ledger.live and _is_stale(streamed[0], lasts.get(job.job))):
                    found[job.job] = streamed[1]
            self._progress.forget_unused()
            return found


def _is_stale(file: Seen, seconds: float | None) -> bool:
    """Was it written before the execution began that has lasted so long?"""
    return seconds is not None and time.time() - file[2] / 1e9 > seconds + STALE_SECONDS


def _read_progress(path: str) -> Streamed | None:
    try:
        return newest_progress(read_file_end(path, PROGRESS_TAIL))
    except UnreadableFile:
        return None


# --- reading ------------------------------------------------------------------------------


def _read_csv(path: str) -> MetricsTable:
    try:
        with open_text(path, LARGEST_CSV) as lines:
            return read_metrics_csv(lines)
    except (UnreadableFile, OSError) as problem:
        return MetricsTable({}, (f"is not read: {problem}",))


def _reader_of_text(take: Callable[[str], dict[str, T]]) -> Callable[[str], dict[str, T]]:
    def read(path: str) -> dict[str, T]:
        try:
            with open_text(path, LARGEST_TEXT) as file:
                return take(file.read())
        except (UnreadableFile, OSError):
            return {}

    return read


def _reader_of_matches(
    pattern: MetricPattern,
) -> Callable[[str], list[tuple[int | None, float]]]:
    def read(path: str) -> list[tuple[int | None, float]]:
        try:
            if pattern.file == "out":
                lines = _LINES.split(read_file_end(path, VALUES_TAIL))
                return matched_values(lines, pattern.pattern)
            with open_text(path, LARGEST_CSV) as file:
                return matched_values(islice(file, MOST_LINES), pattern.pattern)
        except (UnreadableFile, OSError):
            return []

    return read


# --- what is where --------------------------------------------------------------------------


def _versions(
    places: SafeGlob, patterns: Iterable[str], filled: Mapping[str, str | None]
) -> list[_Version]:
    """The folders of a run's starts, in the order in which they began."""
    found: dict[str, _Version] = {}
    for pattern in patterns:
        for folder in places.matching(pattern, filled):
            names, path = places.list_directory(folder), str(folder)
            for name, is_folder in names.items():
                number = _VERSION.fullmatch(name)
                if number and is_folder:
                    inner = f"{path}/{name}"
                    found[inner] = _Version(int(number.group(1)), inner)
            if "metrics.csv" in names or "metrics.txt" in names:
                number = _VERSION.fullmatch(folder.name)
                found[path] = _Version(int(number.group(1)) if number else None, path)
    times = Counter(version.number for version in found.values())

    def place(version: _Version) -> tuple[int, tuple[float, str]]:
        told = _version_time(version) if times[version.number] > 1 else (0.0, "")
        return -1 if version.number is None else version.number, told

    return sorted(found.values(), key=place)[-MOST_VERSIONS:]


def _version_time(version: _Version) -> tuple[float, str]:
    """Two folders with the same number: the one that was written to last is the later one."""
    try:
        return os.stat(version.path).st_mtime, version.path
    except OSError:
        return 0.0, version.path


def _completed_epochs(ledger: Ledger) -> dict[str, set[int | None]]:
    """The numbers of each run's completed epochs."""
    done: dict[str, set[int | None]] = {}
    for epoch in ledger.epochs:
        if epoch.state is State.COMPLETED:
            done.setdefault(epoch.run, set()).add(epoch.epoch)
    return done


def _restrict_to_epochs(gathered: _RunFiles, epochs: frozenset[int | None]) -> None:
    """Leave out what came after these epochs, and versions that have none of them."""
    before = sum(len(points) for points in gathered.values.values())
    gathered.values = {
        metric: {epoch: point for epoch, point in points.items() if epoch in epochs}
        for metric, points in gathered.values.items()
    }
    kept = [point for points in gathered.values.values() for point in points.values()]
    shown = {point.version for point in kept}
    gathered.arguments = {k: said for k, said in gathered.arguments.items() if k in shown}
    if len(kept) < before:
        gathered.summary = {}
