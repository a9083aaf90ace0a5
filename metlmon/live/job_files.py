"""Reads what jobs write beside their logs: metrics, progress, provenance."""

from __future__ import annotations

import glob
import re
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, islice
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from metlmon.config.settings import MetricPattern, Settings
from metlmon.jobfiles.error_lines import (
    ERROR_TAIL,
    ErrorLine,
    Errors,
    JobError,
    ScriptRun,
    find_error_line,
    find_script_lines,
)
from metlmon.jobfiles.provenance import SIDECAR_SUFFIX, read_events, read_sidecar
from metlmon.jobfiles.records import CheckpointRecord, Point, Streamed, TrainingOutput
from metlmon.jobfiles.training_files import (
    MetricsTable,
    matched_values,
    newest_progress,
    printed_values,
    read_args_txt,
    read_metrics_csv,
    read_metrics_txt,
)
from metlmon.jobfiles.wandb_run import BLOCK_BYTES, WandbRun, read_wandb_run
from metlmon.live.feed import JobFiles
from metlmon.live.file_access import (
    FileState,
    UnreadableFile,
    file_state,
    open_output,
    open_text,
    output_file,
    read_file_end,
)
from metlmon.model.job_events import JobId, NodeKey
from metlmon.model.states import State
from metlmon.remote import filesystem
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import Job, Ledger, Run, job_key

# --- files that match a pattern, strictly below the dagdir --------------------------------------

MAX_ENTRIES: Final = 100_000
"""Maximum number of names read in one directory, three times those of 10,000 jobs."""

MAX_MATCHES: Final = 1000
"""Maximum number of matches of one pattern for one run."""

MATCHING_SECONDS: Final = 3.0
SECONDS_PER_RUN: Final = 0.002
"""CPU time of all patterns of one check: usual ones take less than 0.1 ms for each run."""


class SafeGlob:
    """Finds the matches of patterns; caches directory listings, so make one per check.

    Patterns of file names come from the settings; the values in them from a DAG file, which may
    have been copied from anywhere. A name that leads out of its directory matches nothing, and
    links are followed only within the dagdir.

    ``runs``: the number of runs for which each pattern is matched, which sets the time limit.
    """

    def __init__(self, dagdir: Path, runs: int = 0) -> None:
        try:
            self.base = filesystem.resolve(dagdir)
        except (OSError, RuntimeError):
            self.base = dagdir
        self._listings: dict[Path, dict[str, bool]] = {}
        self._folders: dict[Path, list[str]] = {}
        self._walks: dict[tuple[Path, tuple[str, ...]], list[Path]] = {}
        self._indexes: dict[tuple[Path, tuple[str, ...]], dict[str, list[Path]]] = {}
        self._seconds_left = MATCHING_SECONDS + SECONDS_PER_RUN * runs
        self.disabled = False
        """Whether the patterns took too long, and do not match any more."""

    def matching(
        self, pattern: str, values: Mapping[str, str | None], start: Path | None = None
    ) -> list[Path]:
        """Return the resolved paths in the dagdir that match ``pattern``, sorted by name.

        ``{name}`` is replaced by its value in ``values``; a missing value, or one that is not a
        plain file name, matches nothing. ``start``: a directory that matched before, by default
        the dagdir. Patterns with a common beginning share the walk to their last folders.
        """
        expanded = [_expand(part, values) for part in Path(pattern).parts]
        parts = tuple(part for part in expanded if part is not None)
        if self.disabled or not parts or len(parts) < len(expanded):
            return []
        begin = time.thread_time()
        folders = self._folders_of(start or self.base, parts[:-1])
        is_walk = any(map(glob.has_magic, parts[:-1])) and not glob.has_magic(parts[-1])
        if is_walk:
            # Few of many folders have the name: one index of their names serves all patterns.
            folders = self._index_of(start or self.base, parts[:-1]).get(parts[-1], [])
        found = (self._matches_in(folder, parts[-1], last=True) for folder in folders)
        paths = list(chain.from_iterable(found))
        self._seconds_left -= time.thread_time() - begin
        self.disabled = self._seconds_left < 0
        return paths[:MAX_MATCHES]

    def _folders_of(self, start: Path, parts: tuple[str, ...]) -> list[Path]:
        """The folders below ``start`` that match ``parts``."""
        if not parts:
            return [start]
        key = (start, parts)
        if key not in self._walks:
            found = [
                path
                for folder in self._folders_of(start, parts[:-1])
                for path in self._matches_in(folder, parts[-1], last=False)
            ]
            self._walks[key] = found[:MAX_MATCHES]
        return self._walks[key]

    def _index_of(self, start: Path, parts: tuple[str, ...]) -> dict[str, list[Path]]:
        """The folders that match ``parts``, by the names in them."""
        key = (start, parts)
        if key not in self._indexes:
            index = self._indexes[key] = {}
            for folder in self._folders_of(start, parts):
                for name in self.list_directory(folder):
                    index.setdefault(name, []).append(folder)
        return self._indexes[key]

    def list_directory(self, path: Path) -> Mapping[str, bool]:
        """Return the sorted names in a directory, and whether each is a directory.

        Empty if it is unreadable. Links that leave the dagdir are excluded.
        """
        if path not in self._listings:
            try:
                with filesystem.scandir(path) as entries:
                    names_and_kinds = [
                        (entry.name, entry.is_dir())
                        for entry in islice(entries, MAX_ENTRIES)
                        if not entry.is_symlink()
                        or self.resolve_inside(path / entry.name) is not None
                    ]
            except OSError:
                names_and_kinds = []
            self._listings[path] = dict(sorted(names_and_kinds))
        return self._listings[path]

    def relative(self, path: str) -> str:
        """Return a path relative to the dagdir."""
        return path.removeprefix(f"{self.base}/")

    def resolve_inside(self, path: Path) -> Path | None:
        """Return the resolved path if it is below the dagdir.

        For a name in a resolved directory, one ``lstat`` suffices unless it is a link.
        """
        try:
            file_type = filesystem.file_type(path)
            is_link = file_type == stat.S_IFLNK
            resolved = filesystem.resolve(path, strict=True) if is_link else path
        except (OSError, RuntimeError, ValueError):
            return None
        if file_type is None:
            return None
        return resolved if resolved.is_relative_to(self.base) and resolved != self.base else None

    def _matches_in(self, folder: Path, name_pattern: str, last: bool) -> list[Path]:
        names = [name_pattern]
        if glob.has_magic(name_pattern):
            names = self._names_in(folder, name_pattern, last)
        resolved_paths = (self.resolve_inside(folder / name) for name in names)
        return [path for path in resolved_paths if path is not None]

    def _names_in(self, folder: Path, name_pattern: str, last: bool) -> list[str]:
        """The names that match; only directories, unless it is the ``last`` part."""
        names = self.list_directory(folder)
        if not last and folder not in self._folders:
            self._folders[folder] = [name for name, is_folder in names.items() if is_folder]
        # As in a shell, hidden names match only a pattern that begins with a dot.
        return [
            name
            for name in (names if last else self._folders[folder])
            if fnmatchcase(name, name_pattern) and (name_pattern[0] == "." or name[0] != ".")
        ]


def _expand(part: str, values: Mapping[str, str | None]) -> str | None:
    if part in ("..", "/") or "\0" in part:
        return None
    for name, value in values.items():
        if f"{{{name}}}" not in part:
            continue
        if not value or value in (".", "..") or "/" in value or "\0" in value:
            return None
        part = part.replace(f"{{{name}}}", glob.escape(value))
    return part


# --- what trainings write -----------------------------------------------------------------------

T = TypeVar("T")

LARGEST_CSV: Final = 256_000_000
"""Bytes of one metrics.csv: five times a file with a million logged steps."""

LARGEST_WANDB_RUN: Final = 256_000_000
"""Bytes of the file of one W&B run: half a million rows of a dozen metrics."""

WANDB_PLACES: Final = ("wandb/offline-run-*/run-*.wandb", "run-*.wandb")
"""Where the W&B library writes: below its directory, and in the directory of a run."""

LARGEST_TEXT: Final = 1_000_000
"""Bytes of a metrics.txt or an args.txt, which have a hundred lines."""

LARGEST_SIDECAR: Final = 256_000
"""Bytes of a checkpoint's sidecar: one with a hundred metrics has ten thousand."""

LARGEST_EVENTS: Final = 8_000_000
"""Bytes of a run's provenance events: about 2 kB per epoch."""

MAX_SIDECARS: Final = 1000
"""Sidecars of one run that are read."""

EVENT_FOLDERS: Final = ("output/provenance", "provenance")
"""Where METL's workflow writes the events of all runs."""

RUN_FILES: Final = (*WANDB_PLACES, f"checkpoints/*{SIDECAR_SUFFIX}", "*.ndjson")
VERSION_FILES: Final = ("metrics.csv", "metrics.txt", "args.txt")
"""Files that are read in the folder of a run, and in those of its versions."""

PROGRESS_TAIL: Final = 16 * 1024
"""Bytes at the end of a job's output that are searched for its progress line: a hundred of them."""

VALUES_TAIL: Final = 64 * 1024
"""Bytes at the end of a job's output that are searched for values of metrics."""

MAX_FAILED_JOBS: Final = 200
"""Number of failed jobs, and of failed scripts, whose output is read: nobody reads more."""

MAX_LINES: Final = 200_000

MAX_VERSIONS: Final = 2000
"""Number of a run's newest starts whose files are read: each costs three ``stat`` calls."""

MAX_PROBLEMS: Final = 20
"""Number of problems reported per run."""

STALE_SECONDS: Final = 60.0
"""A progress line written earlier than this before the job's newest start belongs to an earlier
start; the clock of a file server differs by less."""

AT_WORK: Final = frozenset({State.RUNNING, State.SUSPENDED, State.DISCONNECTED})

_VERSION: Final = re.compile(r"version_(\d{1,9})", re.ASCII)
_LINES: Final = re.compile(r"[\r\n]+")

TOO_SLOW: Final = (
    "the patterns of files in metlmon.toml take too long and are not used any more: fewer of them, "
    "or folders without *"
)

EpochValues = list[tuple[int | None, float]]
"""Epochs named in lines and the lines' values, in order of increasing precedence."""


class FileCache:
    """What readers made of files, read again only when a file has changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Callable[[str], Any], str], tuple[FileState, Any]] = {}
        self._used: set[tuple[Callable[[str], Any], str]] = set()

    def read(self, path: str, read: Callable[[str], T]) -> tuple[FileState, T | None] | None:
        """Return a file's state and what ``read`` makes of it; None without such a file.

        If it cannot be read, its content is None.
        """
        state = file_state(path)
        if state is None:
            return None
        key = read, path
        self._used.add(key)
        known = self._known.get(key)
        if known is None or known[0] != state:
            content: T | None = None
            with suppress(UnreadableFile, OSError):
                content = read(path)
            known = self._known[key] = (state, content)
        return known

    def forget_unused(self) -> None:
        """Forget the files that have not been read since the last call of this method."""
        self._known = {key: known for key, known in self._known.items() if key in self._used}
        self._used.clear()


class _Version(NamedTuple):
    """A directory like METL's ``version_<k>``."""

    number: int | None
    path: str


class _Output(NamedTuple):
    """The output of a job: resolved path, name as displayed, epoch of its node."""

    path: str
    name: str
    epoch: int | None


class _RunFiles(Struct):
    """The contents of one run's files. ``signature``: all files and their states."""

    cache: FileCache
    values: dict[str, dict[int, Point]] = field(default_factory=dict)
    summary: Mapping[str, float] = field(default_factory=dict)
    arguments: dict[int, Mapping[str, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    signature: list[tuple[Any, ...]] = field(default_factory=list)
    checkpoints: list[CheckpointRecord] = field(default_factory=list)

    def take(self, path: str, read: Callable[[str], T]) -> T | None:
        """Return the content of a file that belongs to the run; None if there is none."""
        known = self.cache.read(path, read)
        if known is None:
            return None
        self.signature.append((path, known[0]))
        return known[1]

    def add_missing(self, metric: str, points: Iterable[Point]) -> None:
        """Add the values of epochs that have none."""
        new = {point.epoch: point for point in points}
        self.values[metric] = {**new, **self.values.get(metric, {})}

    def count_from_zero(self, named_from: int) -> None:
        """Renumber the values of a run that is ``named_from`` 1, unless its files have an epoch 0.

        Without an epoch 0, they count like the names of its nodes, not like Lightning.
        """
        if named_from and not any(0 in points for points in self.values.values()):
            self.values = {
                metric: {n - 1: replace(point, epoch=n - 1) for n, point in points.items()}
                for metric, points in self.values.items()
            }

    def restrict_to_epochs(self, epochs: frozenset[int | None]) -> None:
        """Remove the values of other epochs, and the arguments of versions without values."""
        before = sum(map(len, self.values.values()))
        self.values = {
            metric: {epoch: point for epoch, point in points.items() if epoch in epochs}
            for metric, points in self.values.items()
        }
        self.checkpoints = [each for each in self.checkpoints if each.epoch in epochs]
        points = [point for points in self.values.values() for point in points.values()]
        versions = {point.version for point in points}
        self.arguments = {k: names for k, names in self.arguments.items() if k in versions}
        if len(points) < before:
            self.summary = {}


class TrainingFiles:
    """The files that the trainings below ``dagdir`` write.

    Its methods may be called from any thread, and block for as long as reading takes. Metrics
    come from ``metrics.csv``, in METL's layout or wherever ``settings.metrics.files`` says; then
    from W&B runs there; then from the patterns of the settings; then from the jobs' stdout, for
    epochs without a value of the primary metric. Files have no times: for an ensemble as of a past
    time (``cut``) only the epochs completed by then are returned.
    """

    def __init__(self, dagdir: Path, settings: Settings) -> None:
        self._dagdir = dagdir
        self._settings = settings
        self._base = ""
        self._lock = threading.Lock()
        self._files = FileCache()
        self._matched: dict[MetricPattern, Callable[[str], EpochValues]] = {
            pattern: partial(_read_matches, pattern) for pattern in settings.metrics.patterns
        }
        self._outputs: dict[str, tuple[tuple[Any, ...], TrainingOutput]] = {}
        self.problem: str | None = None
        """The message that the patterns of the settings took too long and are disabled."""

    def read(self, builder: SnapshotBuilder) -> JobFiles:
        """Read the files that have changed.

        A training's output that has not changed is the same object as before. An ensemble as of
        a past time has neither progress lines nor errors, since files show the present.
        """
        with self._lock:
            found = JobFiles(self._training_outputs(builder))
            if builder.ensemble.cut is None:
                streams, errors = self._progress_lines(builder), self._errors(builder)
                found = replace(found, streams=streams, errors=errors)
            self._files.forget_unused()
            return found

    def read_errors(self, builder: SnapshotBuilder) -> Errors:
        """Read only what failed jobs and scripts wrote."""
        if builder.ensemble.cut is not None:
            return Errors()
        with self._lock:
            return self._errors(builder)

    def _training_outputs(self, builder: SnapshotBuilder) -> Mapping[str, TrainingOutput]:
        ledger = builder.ledger()
        glob = SafeGlob(self._dagdir, len(ledger.runs))
        self._base = f"{glob.base}/"
        jobs: dict[str, list[Job]] = {}
        for job in ledger.jobs:
            if job.key is not None and job.training:
                jobs.setdefault(job.key, []).append(job)
        completed = _completed_epochs(ledger) if builder.ensemble.cut is not None else None
        results = {}
        filesystem.read_ahead(
            self._dagdir, self._run_files(ledger, glob), LARGEST_TEXT, follow=False
        )
        event_folders = [path for name in EVENT_FOLDERS for path in glob.matching(name, {})]
        if any(pattern.file == "out" for pattern in self._matched):
            self._read_outputs_ahead(ledger.jobs, VALUES_TAIL, builder)
        collected = {
            run.key: self._collect(run, jobs.get(run.key, ()), glob, builder) for run in ledger.runs
        }
        without = [
            job
            for run, files in collected.items()
            for job in self._without_value(files, jobs.get(run, ()))
        ]
        self._read_outputs_ahead(without, VALUES_TAIL, builder)
        if glob.disabled:
            self.problem = TOO_SLOW
        if self.problem is not None and ledger.runs:
            collected[ledger.runs[0].key].problems.append(self.problem)
        for run in ledger.runs:
            files = collected[run.key]
            self._add_printed(files, jobs.get(run.key, ()), builder)
            for folder in event_folders:
                self._add_events(files, folder, run, glob)
            epochs = None if completed is None else frozenset(completed.get(run.key, ()))
            output = self._output_of(run.key, files, epochs)
            if output is not None:
                results[run.key] = output
        self._outputs = {run: known for run, known in self._outputs.items() if run in results}
        return results

    def _output_of(
        self, run: str, files: _RunFiles, epochs: frozenset[int | None] | None
    ) -> TrainingOutput | None:
        signature = (tuple(files.signature), epochs, tuple(files.problems))
        known = self._outputs.get(run)
        if known is not None and known[0] == signature:
            return known[1]
        if not files.signature and not files.problems:
            return None
        if epochs is not None:
            files.restrict_to_epochs(epochs)
        output = TrainingOutput(
            key=run,
            metrics={
                metric: tuple(points[epoch] for epoch in sorted(points))
                for metric, points in files.values.items()
                if points
            },
            summary=dict(files.summary),
            arguments=dict(files.arguments),
            problems=tuple(files.problems[:MAX_PROBLEMS]),
            checkpoints=_distinct_checkpoints(files.checkpoints),
        )
        self._outputs[run] = (signature, output)
        return output

    def _collect(
        self, run: Run, jobs: Sequence[Job], glob: SafeGlob, builder: SnapshotBuilder
    ) -> _RunFiles:
        files = _RunFiles(self._files)
        placeholders = {"uuid": run.uuid, "run": run.run}
        patterns = self._settings.metrics.files if self.problem is None else ()
        found = (glob.matching(pattern, placeholders) for pattern in patterns)
        folders = list(dict.fromkeys(chain.from_iterable(found)))
        for version in _versions(glob, folders):
            self._add_version(files, version, glob)
        paths = _wandb_paths(glob, folders)
        taken = ((path, files.take(path, _read_wandb_run)) for path in paths)
        wandb_runs = [(each.started or 0.0, path, each) for path, each in taken if each is not None]
        # Those that began last count. The times in their names are not used: execute hosts may be
        # in several time zones.
        for _, path, wandb_run in sorted(wandb_runs, key=itemgetter(0, 1), reverse=True):
            self._add_wandb_run(files, glob.relative(path), wandb_run, jobs, builder)
        named_from = builder.runs.by_key[run.key].named_from
        files.count_from_zero(named_from)
        for folder in folders:
            self._add_sidecars(files, folder, glob)
            self._add_events(files, folder, run, glob)
        for pattern, read in self._matched.items():
            new: list[Point] = []
            if pattern.file == "out":
                for job in jobs:
                    output = self._job_output(job, builder)
                    if output is not None:
                        values = files.take(output.path, read)
                        new += _points(values or (), output, named_from)
            elif self.problem is None:
                for path in map(str, glob.matching(pattern.file, placeholders)):
                    # Values without an epoch are those of epochs 0, 1, 2 … in order.
                    matches = files.take(path, read) or ()
                    output = _Output(path, glob.relative(path), None)
                    first = named_from if all(epoch != 0 for epoch, _ in matches) else 0
                    for i, (epoch, value) in enumerate(matches):
                        new += _points([(i if epoch is None else epoch - first, value)], output)
            files.add_missing(pattern.name, new)
        return files

    def _add_version(self, files: _RunFiles, version: _Version, glob: SafeGlob) -> None:
        path = f"{version.path}/metrics.csv"
        table = files.take(path, _read_csv)
        if table is not None:
            name = glob.relative(path)
            files.problems += [f"{name} {problem}" for problem in table.problems]
            for metric, values in table.values.items():
                points = files.values.setdefault(metric, {})
                for epoch, value in values.items():
                    points[epoch] = Point(epoch, value, version.number, name)
        summary = files.take(f"{version.path}/metrics.txt", _read_summary)
        if summary is not None:
            files.summary = summary
        arguments = files.take(f"{version.path}/args.txt", _read_arguments)
        if arguments is not None:
            files.arguments[version.number or 0] = arguments

    def _add_wandb_run(
        self,
        files: _RunFiles,
        name: str,
        run: WandbRun,
        jobs: Iterable[Job],
        builder: SnapshotBuilder,
    ) -> None:
        """Add the values of a W&B run for epochs without one; ``name``: that of its file."""
        problems = list(run.table.problems)
        values: Mapping[str, Mapping[int, float]] = run.table.values
        if run.newest:
            epoch = _epoch_at(run.started, jobs, builder)
            files.signature.append((name, epoch))
            if epoch is None:
                problems.append("logs no epoch, and which job wrote it is not known")
            else:
                values = {metric: {epoch: value} for metric, value in run.newest.items()}
        files.problems += [f"{name} {problem}" for problem in problems]
        for metric, points in values.items():
            new = (Point(epoch, value, None, name) for epoch, value in points.items())
            files.add_missing(metric, new)

    def _add_sidecars(self, files: _RunFiles, folder: Path, glob: SafeGlob) -> None:
        """Add the records of the sidecars in ``checkpoints/`` of a run's folder."""
        if not glob.list_directory(folder).get("checkpoints"):
            return
        checkpoints = folder / "checkpoints"
        names = [n for n in glob.list_directory(checkpoints) if n.endswith(SIDECAR_SUFFIX)]
        if len(names) > MAX_SIDECARS:
            text = f"has {len(names)} sidecars, of which {MAX_SIDECARS} are read"
            files.problems.append(f"{glob.relative(str(checkpoints))} {text}")
        for name in names[:MAX_SIDECARS]:
            path = f"{checkpoints}/{name}"
            records = files.take(path, self._read_sidecar)
            if records == []:
                text = "is not read: it names no epoch and no checkpoint"
                files.problems.append(f"{glob.relative(path)} {text}")
            files.checkpoints += records or ()

    def _add_events(self, files: _RunFiles, folder: Path, run: Run, glob: SafeGlob) -> None:
        """Add the records in the NDJSON events of a run, if they are in ``folder``."""
        name = f"{run.uuid}.ndjson"
        if run.uuid and name in glob.list_directory(folder):
            records = files.take(f"{folder}/{name}", self._read_events)
            files.checkpoints += records or ()

    def _read_sidecar(self, path: str) -> list[CheckpointRecord]:
        record = None
        with suppress(UnreadableFile, OSError), open_text(path, LARGEST_SIDECAR) as file:
            record = read_sidecar(file.read(), path.removeprefix(self._base))
        return [record] if record is not None else []

    def _read_events(self, path: str) -> list[CheckpointRecord]:
        with open_text(path, LARGEST_EVENTS) as lines:
            return read_events(islice(lines, MAX_LINES), path.removeprefix(self._base))

    def _read_printed(self, path: str) -> EpochValues:
        lines = _LINES.split(read_file_end(path, VALUES_TAIL))
        values = printed_values(lines, self._settings.metrics.primary)
        # Values whose line names the epoch take precedence.
        return sorted(values.items(), key=lambda item: item[0] is not None)

    def _add_printed(self, files: _RunFiles, jobs: Sequence[Job], builder: SnapshotBuilder) -> None:
        """Add values from stdout for epochs without a value of the primary metric."""
        new = list[Point]()
        for job in self._without_value(files, jobs):
            output = self._job_output(job, builder)
            if output is None:
                continue
            known = self._files.read(output.path, self._read_printed)
            if known is not None and known[1]:
                files.signature.append((output.path, known[0]))
                new += _points(known[1], output, builder.runs.by_key[job.key or ""].named_from)
        files.add_missing(self._settings.metrics.primary, new)

    def _without_value(self, files: _RunFiles, jobs: Sequence[Job]) -> list[Job]:
        """The jobs of epochs without a value of the primary metric."""
        values = files.values.get(self._settings.metrics.primary, ())
        return [job for job in jobs if job.epoch is None or job.epoch not in values]

    def _run_files(self, ledger: Ledger, glob: SafeGlob) -> Iterator[Path]:
        """The files of all runs that the patterns find, and those of their versions."""
        patterns = self._settings.metrics.files
        found = [
            path
            for run in ledger.runs
            for pattern in patterns
            for path in glob.matching(pattern, {"uuid": run.uuid, "run": run.run})
        ]
        for folder in (*found, *chain.from_iterable(glob.matching(n, {}) for n in EVENT_FOLDERS)):
            for pattern in RUN_FILES:
                yield from glob.matching(pattern, {}, folder)
            for version in _versions(glob, [folder]):
                yield from (Path(version.path, name) for name in VERSION_FILES)

    def _read_outputs_ahead(
        self, jobs: Iterable[Job], size: int, builder: SnapshotBuilder, suffix: str = "out"
    ) -> None:
        """Read the last bytes of the outputs of many jobs together."""
        names = (builder.output_file(job_key(job), suffix) for job in jobs)
        paths = (f"{self._dagdir}/{name}" for name in names if name)
        filesystem.read_ahead(self._dagdir, paths, size, follow=False)

    def _job_output(
        self, job: Job, builder: SnapshotBuilder, suffix: str = "out"
    ) -> _Output | None:
        name = builder.output_file(job_key(job), suffix)
        path = self._output_path(name) if name is not None else None
        return _Output(path, name, job.epoch) if name is not None and path is not None else None

    def _output_path(self, name: str) -> str | None:
        """The resolved path of an output file; None if it may not be read or is missing."""
        # Resolving a path takes twenty times as long, and a copy may lack all outputs.
        if not filesystem.lexists(f"{self._dagdir}/{name}"):
            return None
        try:
            return str(output_file(self._dagdir, name))
        except UnreadableFile:
            return None

    def _progress_lines(self, builder: SnapshotBuilder) -> Mapping[JobId, Streamed]:
        """The newest progress line of every running job."""
        ledger = builder.ledger()
        durations = {e.job: e.seconds for e in ledger.executions if e.end is None}
        lines, now = {}, filesystem.now(self._dagdir)
        running = [job for job in ledger.jobs if job.state in AT_WORK and not job.dagman]
        self._read_outputs_ahead(running, PROGRESS_TAIL, builder)
        for job in running:
            output = self._job_output(job, builder)
            known = output and self._files.read(output.path, _read_progress)
            if known is None or known[1] is None:
                continue
            seconds = durations.get(job.job, inf) if ledger.live else inf
            if now - known[0][2] / 1e9 <= seconds + STALE_SECONDS:
                lines[job.job] = known[1]
        return lines

    def _errors(self, builder: SnapshotBuilder) -> Errors:
        """The errors that failed jobs and scripts wrote; of many jobs, those of the newest."""
        jobs = builder.ledger().jobs
        failed = [job for job in jobs if job.state is State.FAILED and not job.dagman]
        failed = failed[-MAX_FAILED_JOBS:]
        for suffix in ("err", "out"):
            self._read_outputs_ahead(failed, ERROR_TAIL, builder, suffix)
        found = {
            job_key(job): error
            for job in failed
            if (error := self._job_error(job, builder)) is not None
        }
        return Errors(found, self._script_errors(builder))

    def _script_errors(self, builder: SnapshotBuilder) -> Mapping[NodeKey, JobError]:
        """The errors that failed scripts wrote, if DAGMan stored their output (SCRIPT DEBUG)."""
        failed = list(builder.failed_scripts())[-MAX_FAILED_JOBS:]
        names = (f"{self._dagdir}/{name}" for _, _, name in failed)
        filesystem.read_ahead(self._dagdir, names, ERROR_TAIL, follow=False)
        errors = {}
        for key, script, name in failed:
            path = self._output_path(name)
            known = path and self._files.read(path, _read_script_lines)
            line = known[1].get((key[1], script)) if known and known[1] else None
            errors[key] = JobError(name, line)
        return errors

    def _job_error(self, job: Job, builder: SnapshotBuilder) -> JobError | None:
        """The error that a failed job wrote, or the name of the file that lacks one.

        None if neither its output nor its submit description was read.
        """
        for suffix in ("err", "out"):
            output = self._job_output(job, builder, suffix)
            known = output and self._files.read(output.path, _read_error_line)
            line = known[1] if known is not None else None
            # The last line of an output need not be an error.
            if output is not None and line is not None and (line.cause or suffix == "err"):
                return JobError(output.name, line)
        name = builder.output_file(job_key(job), "err")
        return JobError(name) if name is not None or builder.is_described(job_key(job)) else None


def _epoch_at(moment: float | None, jobs: Iterable[Job], builder: SnapshotBuilder) -> int | None:
    """The epoch of the one job that was in the queue at a time in seconds since 1970."""
    if moment is None:
        return None
    clock = builder.clock
    # The logs of a live ensemble are in the local time of the machine that has them.
    local = clock.local_or_machine_time(moment) if builder.live else clock.to_local(moment)
    if local is None:
        return None
    epochs = {
        job.epoch
        for job in jobs
        if job.submitted is not None
        and job.submitted <= local
        and (job.ended is None or local <= job.ended)
    }
    return epochs.pop() if len(epochs) == 1 else None


def _points(
    values: Iterable[tuple[int | None, float]], output: _Output, named_from: int = 0
) -> Iterator[Point]:
    """Yield the values in a file as points; those without an epoch get that of the file's job.

    In a run that is ``named_from`` 1, a job may name its own epoch counting from 1.
    """
    for named, value in values:
        is_own = named is None or (output.epoch is not None and named == output.epoch + named_from)
        epoch = output.epoch if is_own else named
        if epoch is not None:
            yield Point(epoch, value, None, output.name)


def _read_csv(path: str) -> MetricsTable:
    try:
        with open_text(path, LARGEST_CSV) as lines:
            return read_metrics_csv(lines)
    except (UnreadableFile, OSError) as problem:
        return MetricsTable({}, (f"is not read: {problem}",))


def _read_wandb_run(path: str) -> WandbRun:
    try:
        with open_output(path) as (file, size):
            if size > LARGEST_WANDB_RUN:
                raise UnreadableFile(f"it is larger than {LARGEST_WANDB_RUN // 1_000_000} MB")
            with file.stream() as stream:
                return read_wandb_run(iter(partial(stream.read, BLOCK_BYTES), b""))
    except (UnreadableFile, OSError) as problem:
        return WandbRun(MetricsTable({}, (f"is not read: {problem}",)), {})


def _read_text(parse: Callable[[str], dict[str, T]], path: str) -> dict[str, T]:
    """What a text says; empty if it cannot be read."""
    with suppress(UnreadableFile, OSError), open_text(path, LARGEST_TEXT) as file:
        return parse(file.read())
    return {}


_read_summary: Final = partial(_read_text, read_metrics_txt)
_read_arguments: Final = partial(_read_text, read_args_txt)


def _read_matches(pattern: MetricPattern, path: str) -> EpochValues:
    if pattern.file == "out":
        return matched_values(_LINES.split(read_file_end(path, VALUES_TAIL)), pattern.pattern)
    with open_text(path, LARGEST_CSV) as file:
        return matched_values(islice(file, MAX_LINES), pattern.pattern)


def _read_progress(path: str) -> Streamed | None:
    return newest_progress(read_file_end(path, PROGRESS_TAIL))


def _read_error_line(path: str) -> ErrorLine | None:
    return find_error_line(read_file_end(path, ERROR_TAIL))


def _read_script_lines(path: str) -> Mapping[ScriptRun, ErrorLine]:
    return find_script_lines(read_file_end(path, ERROR_TAIL))


def _distinct_checkpoints(records: Iterable[CheckpointRecord]) -> tuple[CheckpointRecord, ...]:
    """The earliest record of each checkpoint, by epoch; later ones may repeat it."""
    distinct: dict[tuple[int, str], CheckpointRecord] = {}
    for record in records:
        key = (record.epoch, record.digest)
        known = distinct.get(key)
        if known is None or (record.time and known.time and record.time < known.time):
            distinct[key] = record
    return tuple(distinct[key] for key in sorted(distinct))


def _versions(glob: SafeGlob, folders: Iterable[Path]) -> list[_Version]:
    """The directories of a run's starts, in the order in which they began."""
    versions: dict[str, _Version] = {}
    for folder in folders:
        names, path = glob.list_directory(folder), str(folder)
        for name, is_folder in names.items():
            if is_folder and (number := _VERSION.fullmatch(name)):
                versions[f"{path}/{name}"] = _Version(int(number[1]), f"{path}/{name}")
        if "metrics.csv" in names or "metrics.txt" in names:
            number = _VERSION.fullmatch(folder.name)
            versions[path] = _Version(int(number[1]) if number else None, path)
    counts = Counter(version.number for version in versions.values())

    def order(version: _Version) -> tuple[int, float, str]:
        number = -1 if version.number is None else version.number
        # Of two directories with the same number, the one last written to is the later one.
        is_repeated = counts[version.number] > 1
        return number, _mtime(version.path) if is_repeated else 0.0, version.path

    return sorted(versions.values(), key=order)[-MAX_VERSIONS:]


def _wandb_paths(glob: SafeGlob, folders: Iterable[Path]) -> list[str]:
    """The files of a run's W&B runs; of too many, the newest ones by their names."""
    paths = {
        path
        for folder in folders
        for place in WANDB_PLACES
        for path in glob.matching(place, {}, folder)
    }
    order = sorted(paths, key=lambda path: (path.parent.name, path))
    return [str(path) for path in order[-MAX_VERSIONS:]]


def _mtime(path: str) -> float:
    try:
        return filesystem.stat(path).st_mtime
    except OSError:
        return 0.0


def _completed_epochs(ledger: Ledger) -> dict[str, set[int | None]]:
    completed: dict[str, set[int | None]] = {}
    for epoch in ledger.epochs:
        if epoch.state is State.COMPLETED:
            completed.setdefault(epoch.key, set()).add(epoch.epoch)
    return completed
