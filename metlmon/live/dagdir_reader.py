"""Reads one dagdir into the state model, in steps of bounded time.

The reader never writes, holds no file open, and relies on ``stat``. Early wake-ups come from
:mod:`metlmon.live.watcher`.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metlmon.dagman import Problem
from metlmon.eventlog import FastResult, LogWarning, Position, first_year, parse, parse_fast
from metlmon.frozen import frozen
from metlmon.live.cache import Cache
from metlmon.live.cache_session import CacheSession
from metlmon.live.dagman_files import DagmanFiles
from metlmon.live.discovery import (
    Discovery,
    LogFile,
    Sniffed,
    check_dagdir,
    dag_file_paths,
    discover_dags,
    discover_logs,
)
from metlmon.live.ensemble_warnings import as_of_warnings, reused_ids_warning, zone_conflict
from metlmon.live.errors import InputError
from metlmon.live.file_errors import FileError, FileErrors, duration_suffix
from metlmon.live.follower import CHUNK, GREATEST_REST, DirectoryMtimes, FileCheck, Follower
from metlmon.live.fs_timeout import FsTimeout, call_all, call_with_timeout, clock_time
from metlmon.live.gate_files import GateFiles
from metlmon.model.clock import Clock
from metlmon.model.dag import Dag
from metlmon.model.dump_dag import judged_by_jobs
from metlmon.model.ensemble import NOTICES_PER_KIND, Batch, Changes, Ensemble, LogRole, LogStats
from metlmon.model.settings import Settings
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.types import Notice, Progress

if TYPE_CHECKING:
    from metlmon.live.cache_entry import CachedState, CacheWrite

FRESH: Final = timedelta(days=1)
"""Maximum age of a running ensemble's newest event: memory sizes are logged every few minutes."""

YEARLESS_HEADER: Final = re.compile(rb"\d{3} \([-\d.]+\) \d\d/\d\d ")
"""An event header whose date has no year."""

UNWRITTEN_SECONDS: Final = 60.0
"""How long after a write zeros in a file may be data not yet visible: NFS clients hold back pages
for up to 30 s."""

ANEW_SECONDS: Final = 10.0
"""Minimum interval of re-reading everything, so that a log rewritten continually takes no core."""

NO_LOGS_AT_ONCE: Final = 500
"""Files that one check tests for having become a log: a few milliseconds."""

STEP_SECONDS: Final = 0.05
"""Time limit of one step, before the UI may use the model."""


@frozen
class ReadStep:
    """The result of one step. ``more``: there is more to read right now."""

    changes: Changes
    more: bool


class LogReader:
    """Reader of one event log: its follower, position and role."""

    def __init__(self, log: LogFile) -> None:
        self.log = log
        self.follower = Follower(log.path)
        self.position = Position()
        self.read_error: str | None = None
        self.missing = False
        self.at_end = False
        self.content_replaced = False
        """The content read before has been replaced: everything must be read again."""
        self._last_time: datetime | None = None
        self._has_hole = False
        self._year: int | None = None

    @property
    def year(self) -> int | None:
        """The year of the first event, where a log writes none."""
        return self._year

    def resume(self, position: Position, year: int | None, inode: int, start: bytes) -> None:
        """Continue at the position of another reader; see :meth:`Follower.resume`."""
        self.position, self._year = position, year
        self.follower.resume(position.offset, inode, start)

    def check(self) -> FileCheck:
        """Check the state of the file."""
        check = self.follower.check()
        self.read_error, self.missing = check.problem, check.missing
        if check.restarted:
            self._last_time = self.position.last or self._last_time
            self.position, self._year = Position(), None
        if check.restarted or check.grew or self._has_hole:
            self.at_end = False
        return check

    @property
    def unread_bytes(self) -> int:
        """Bytes not yet read."""
        return 0 if self.at_end else self.follower.unread_bytes

    def read(self, clock: Clock, until: datetime | None) -> tuple[Batch, tuple[LogWarning, ...]]:
        """Return the next complete events, those of one chunk.

        ``until``: later events are not needed.
        """
        if self.content_replaced:
            self.at_end = True
            return self._empty_batch(), ()
        size = CHUNK
        while True:
            try:
                data = self.follower.read(self.follower.offset, size)
            except OSError as error:
                self.read_error, self.at_end = error.strerror or str(error), True
                return self._empty_batch(), ()
            data = self._without_hole(data)
            year = self._first_year(data, clock)
            at_end, endless = len(data) < size, size >= GREATEST_REST
            result = self._parse(data, year, clock, until)
            if result.after.offset > self.position.offset or at_end:
                break
            if endless:
                result = _parse_slow(data, self.position, year, final=True)
                break
            # One event is longer than the chunk: read more to find its end.
            size *= 4
        self.at_end = at_end
        if self._starts_earlier(result, clock):
            self.content_replaced = self.at_end = True
            return self._empty_batch(), ()
        self.position = result.after
        self.follower.consume(result.after.offset)
        log, last = self.log, result.after.last
        return Batch(
            log.name, log.role, result.events, log.dag, result.images, result.first, last
        ), result.warnings

    def _empty_batch(self) -> Batch:
        return Batch(self.log.name, self.log.role, (), self.log.dag)

    def _without_hole(self, data: bytes) -> bytes:
        """Return the data before a hole that may still be filled.

        Another NFS client sees a file's new size before the bytes, and zeros in their place;
        zeros in an older file are damage, and remain.
        """
        hole = data.find(b"\0")
        age = time.time() - self.follower.mtime
        self._has_hole = hole >= 0 and -UNWRITTEN_SECONDS < age < UNWRITTEN_SECONDS
        return data[:hole] if self._has_hole else data

    def _starts_earlier(self, result: FastResult, clock: Clock) -> bool:
        """Whether an emptied log continues with earlier events than it had.

        A log emptied by DAGMan or to save space continues later in time; otherwise it is
        another log, or repeats events already read.
        """
        first = result.first or next((event.time for event in result.events), None)
        if self._last_time is None or first is None or self.log.role is LogRole.DAGMAN:
            # DAGMan truncates its own job log on restart; its events are discarded then.
            return False
        last_time, self._last_time = self._last_time, None
        return clock.naive(first) < clock.naive(last_time)

    def _parse(
        self, data: bytes, year: int | None, clock: Clock, until: datetime | None
    ) -> FastResult:
        result = parse_fast(data, self.position, year_hint=year, until=until)
        if clock.zone is None or not result.images:
            return result
        # A log may switch to UTC: only local times can be compared.
        times = [clock.naive(event.time) for event in result.events]
        for image in result.images:
            times += clock.naive(image.first), clock.naive(image.last)
        if clock.is_steady(min(times), max(times)):
            return result
        # In the hour that occurs twice, only the order of the events resolves their times.
        return _parse_slow(data, self.position, year)

    def _first_year(self, data: bytes, clock: Clock) -> int | None:
        """Infer the year in a log without years: no event is newer than the file."""
        if (
            self._year is None
            and self.position.offset == 0
            and YEARLESS_HEADER.match(data.lstrip())
        ):
            mtime = self.follower.mtime
            written = clock.to_local(mtime) or datetime.fromtimestamp(mtime)
            self._year = first_year(self._all_bytes(data), written)
        return self._year

    def _all_bytes(self, data: bytes) -> bytes:
        if len(data) >= self.follower.size:
            return data
        try:
            return self.follower.read(0, self.follower.size)
        except OSError:
            return data

    def unparsed_text(self) -> str:
        """Return the text after the last complete event."""
        try:
            return self.follower.read(self.follower.offset, 4096).decode("utf-8", "replace")
        except OSError:
            return ""


class DagdirReader:
    """Reads one dagdir. Not thread-safe; raises InputError from :meth:`open` only.

    ``now`` returns seconds since 1970, ``local_now`` the access point's local time if the caller
    knows it (a replay). ``as_of`` excludes later events; ``live`` overrides whether the ensemble
    is running according to its files. ``job_states_at`` is set from outside if a reachable schedd
    has the jobs. ``cache`` stores the model for the next reader of this dagdir (not with
    ``as_of``).
    """

    def __init__(
        self,
        dagdir: Path,
        settings: Settings | None = None,
        *,
        as_of: datetime | None = None,
        live: bool | None = None,
        now: Callable[[], float] = time.time,
        local_now: Callable[[], datetime] | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.path_given = str(dagdir)
        self._only = dagdir.name if dagdir.is_file() else None
        self.dagdir = dagdir.parent if self._only else dagdir
        self.as_of = as_of
        self.ensemble = Ensemble(settings or Settings(), as_of)
        self.error: str | None = None
        self.in_queue = False
        self._forced_live = live
        self._now = now
        self._local_clock = local_now
        self._logs: dict[str, LogReader] = {}
        self._dagman_files: list[DagmanFiles] = []
        self._gates = GateFiles(now)
        self._dag_problems: list[Problem] = []
        self._log_problems: list[Problem] = []
        self._absent_logs: set[tuple[Path, str]] = set()
        self._directory_mtimes = DirectoryMtimes()
        self._dag_paths: list[Path] = []
        self._non_logs: dict[Path, tuple[int, int]] = {}
        self._next_non_log = 0
        self._sniffed: Sniffed = {}
        self._dag_signature: dict[Path, tuple[int, int]] = {}
        self._next_dagman_files = 0
        self._grew = False
        self._caught_up = False
        self._cache_session: CacheSession | None = None
        if cache is not None and as_of is None and not cache.lies_in(self.dagdir):
            self._cache_session = CacheSession(
                cache, self.dagdir, self._only, self.ensemble.settings
            )
        self._cached_state: CachedState | None = None
        self._diverged = False
        self._file_errors = FileErrors(now)
        self._dagdir_error: tuple[str, float] | None = None
        self._directory_id: tuple[int, int] | None = None
        self._rewritten_log_notices: dict[str, Notice] = {}
        self.extra_notices: dict[str, Notice] = {}
        """Notices of the reader's user, by their text, shown with those of the reader."""
        self._restarted_at = float("-inf")

    # --- checks -------------------------------------------------------------------------

    def open(self) -> Changes:
        """Make the first check. Raises InputError if the dagdir is unusable."""
        with _gc_paused(settled=True):
            changes = self._load_initial()
            if self._cached_state is not None:
                self._cached_state.restore_totals(self.ensemble)
        # In the order of discovery: the reader that wrote the cache may have had another.
        self.ensemble.log_stats = {name: self.ensemble.log_stats[name] for name in self._logs}
        self._cached_state = None
        if self._cache_session is not None:
            self._cache_session.holds(self.consumed_bytes)
        return changes | self.check()

    def _load_initial(self) -> Changes:
        """Load the cached state if it is valid, else begin with an empty model."""
        self._load_cached()
        try:
            changes = self._reload_dags()
        except InputError:
            raise
        except Exception:
            # The cached state is malformed.
            if self._cached_state is None:
                raise
            changes = self._reload_dags_uncached()
        if self._cached_state is not None and not self._cached_state.complete:
            changes = self._reload_dags_uncached()
        return changes

    def _load_cached(self) -> None:
        """Load the state cached by an earlier reader of this dagdir, if still valid."""
        if self._cache_session is not None:
            self._cached_state = self._cache_session.recall(self.ensemble)
            if self._cached_state is None:
                self._reset()

    def _reload_dags_uncached(self) -> Changes:
        self._reset()
        return self._reload_dags()

    def _reset(self) -> None:
        """Begin with an empty model."""
        self.ensemble = Ensemble(self.ensemble.settings, self.as_of)
        self._logs, self._dagman_files, self._cached_state = {}, [], None
        self._gates = GateFiles(self._now)

    @property
    def consumed_bytes(self) -> int:
        """Bytes consumed of the growing files."""
        logs = sum(reader.position.offset for reader in self._logs.values())
        return logs + sum(file.offset for files in self._dagman_files for file in files.growing)

    def keep(self) -> list[CacheWrite]:
        """Return the cache entries due to be written, for the caller to write later."""
        if self._cache_session is None:
            return []
        # A model with events that are in no file any more must not be cached.
        consumed = 0 if self._diverged else self.consumed_bytes
        if not self._cache_session.due(consumed):
            return []
        with _gc_paused():
            return self._cache_session.keep(
                consumed, self.ensemble, self._logs.values(), self._dagman_files
            )

    def check(self) -> Changes:
        """Check the dagdir for changes; reads only small files.

        A dagdir that has become unusable leaves the model unchanged and sets ``error``.
        """
        changes = Changes()
        error: str | None = None
        try:
            check_dagdir(self.dagdir)
            listing_changed = self._directory_mtimes.changed(
                self.watched_directories(), self._now()
            )
            if listing_changed:
                self._dag_paths = dag_file_paths(self.dagdir)
            if self._dag_files_signature() != self._dag_signature:
                changes |= self._reload_dags()
            elif listing_changed or self._may_have_become_logs():
                self._discover_logs()
            if self._is_replaced():
                return changes | self._restart()
        except InputError as problem:
            error = self._removed_dags_error() or str(problem)
        except FsTimeout as problem:
            error = f"{problem.path}: {problem}{duration_suffix(problem.since)}"
            # List all names again once the file system responds.
            self._directory_mtimes = DirectoryMtimes()
        for reader in self._logs.values():
            size = reader.follower.size
            check = reader.check()
            if check.problem is None:
                self.ensemble.log_stats[reader.log.name].bytes = check.size
            if check.restarted:
                self._diverged = True
                self._note_emptied(reader)
                changes |= self.ensemble.reset_log(reader.log.name, reader.log.dag)
            # An incomplete last event is read again when the file is only touched: no growth.
            if self._caught_up and check.grew and (check.restarted or check.size > size):
                self._grew = True
        listed: dict[Path, list[str]] = {}
        for files in self._dagman_files:
            changes |= files.check(self.ensemble, listed)
        changes |= self._gates.check(self.ensemble)
        self._update_error(error)
        return changes

    def _is_replaced(self) -> bool:
        """Whether another directory has replaced the one read before."""
        try:
            status = call_with_timeout(os.stat, self.dagdir)
        except OSError:
            return False
        before, self._directory_id = self._directory_id, (status.st_dev, status.st_ino)
        return before not in (None, self._directory_id)

    def _update_error(self, error: str | None) -> None:
        """Set ``error``: an unusable dagdir, else a file that has become unreadable."""
        if error is None:
            self._dagdir_error = None
        elif self._dagdir_error is None or self._dagdir_error[0] != error:
            since = self._now() if self._dagdir_error is None else self._dagdir_error[1]
            self._dagdir_error = (error, since)
        for reader in self._logs.values():
            self._file_errors.update(
                reader.log.name, reader.follower, reader.read_error, reader.missing
            )
        self.error = None
        if self._dagdir_error is not None:
            message, since = self._dagdir_error
            known = not self._caught_up or "since" in message
            # The time comes first: a narrow terminal cuts off the end of a long sentence.
            self.error = message if known else f"since {clock_time(since)}: {message}"
            return
        errors = [error for error in self._all_file_errors() if error.since is not None]
        if errors:
            more = f" (and {len(errors) - 1} more files)" if len(errors) > 1 else ""
            self.error = errors[0].message(errors[0].name) + more

    def _removed_dags_error(self) -> str | None:
        """Return an error if all DAG files have been removed."""
        dags = [dag.workflow.path.name for dag in self.ensemble.dags.values() if dag.top == dag.key]
        if self._dag_paths or not dags or not _is_directory(self.dagdir):
            return None
        more = f" (and {len(dags) - 1} more)" if len(dags) > 1 else ""
        return f"{dags[0]}{more} is gone; what it told before stays"

    def _all_file_errors(self) -> list[FileError]:
        return self._file_errors.reportable() + [
            error for files in self._dagman_files for error in files.file_errors.reportable()
        ]

    def _dag_files_signature(self) -> dict[Path, tuple[int, int]]:
        """Return size and ctime of all DAG files, to detect changes of any of them."""
        files = {path for dag in self.ensemble.dags.values() for path in dag.workflow.files}
        return _sizes_and_ctimes(files.union(self._dag_paths))

    def _reload_dags(self) -> Changes:
        self._dag_paths = dag_file_paths(self.dagdir)
        before = self._dag_files_signature()
        discovery = self._discover_dags()
        shared = _shared_names(discovery.dags)
        files_by_dag = {files.key: files for files in self._dagman_files}
        dags = []
        for dag in discovery.dags:
            known = self.ensemble.dags.get(dag.key)
            if known is None or not files_by_dag[dag.key].names_same_files(dag, shared):
                files_by_dag[dag.key] = DagmanFiles(dag, shared)
                if self._cached_state is not None:
                    self._cached_state.restore_dagman_files(files_by_dag[dag.key], dag)
                dags.append(dag)
                continue
            if judged_by_jobs(known.workflow) != judged_by_jobs(dag.workflow):
                files_by_dag[dag.key].misinterpreted = True
            known.replace_workflow(dag.workflow)
            known.top = dag.top
            dags.append(known)
        self._dag_problems = discovery.problems
        self._dagman_files = [files_by_dag[dag.key] for dag in dags]
        attributed = None
        if self._cache_session is not None and self._cached_state is not None:
            attributed = self._cache_session.places(self._cached_state, self.ensemble, dags)
        changes = self.ensemble.set_dags(dags, attributed)
        # A file written while it was being read must be read again.
        now = self._dag_files_signature()
        self._dag_signature = {path: before.get(path, stat) for path, stat in now.items()}
        self._discover_logs()
        return changes

    def _discover_dags(self) -> Discovery:
        if self._cache_session is None:
            return discover_dags(self.dagdir, self._only)
        return discover_dags(self.dagdir, self._only, self._cache_session.load)

    def _discover_logs(self) -> None:
        discovery = discover_logs(self.dagdir, list(self.ensemble.dags.values()), self._sniffed)
        self._log_problems = discovery.problems
        self._absent_logs = discovery.missing_logs
        self._non_logs = _sizes_and_ctimes(discovery.candidates)
        for log in discovery.logs:
            reader = self._logs.get(log.name)
            if reader is None:
                reader = self._logs[log.name] = LogReader(log)
                if self._cached_state is not None:
                    self._cached_state.resume(reader)
                self.ensemble.log_stats.setdefault(log.name, LogStats(log.name, log.role))
            else:
                self._diverged |= (log.role, log.dag) != (reader.log.role, reader.log.dag)
                reader.log = log
        self._sort_logs([log.name for log in discovery.logs])

    def _sort_logs(self, names: list[str]) -> None:
        """Sort the logs in the order in which a new reader would discover them."""
        self._logs = {**{name: self._logs[name] for name in names}, **self._logs}
        log_stats = self.ensemble.log_stats
        self.ensemble.log_stats = {**{name: log_stats[name] for name in self._logs}, **log_stats}

    def _may_have_become_logs(self) -> bool:
        """Whether a file that was no log has changed.

        If there are many (job outputs named ``*.log``), each check tests the next few of them.
        """
        first = self._next_non_log if self._next_non_log < len(self._non_logs) else 0
        self._next_non_log = first + NO_LOGS_AT_ONCE
        batch = list(islice(self._non_logs, first, first + NO_LOGS_AT_ONCE))
        return any(
            stamp != self._non_logs[path] for path, stamp in _sizes_and_ctimes(batch).items()
        )

    # --- reading ------------------------------------------------------------------------

    def step(self, seconds: float = STEP_SECONDS) -> ReadStep:
        """Read and apply events for about ``seconds``.

        First a chunk of one DAGMan's files, then DAGMan's own job logs, then the other logs.
        """
        deadline = time.monotonic() + seconds
        changes = Changes()
        unread = [files for files in self._dagman_files if files.unread_bytes]
        if unread:
            self._next_dagman_files += 1
            changes |= unread[self._next_dagman_files % len(unread)].read_some(self.ensemble)
        readers = sorted(self._logs.values(), key=lambda r: r.log.role is not LogRole.DAGMAN)
        for reader in readers:
            while reader.unread_bytes and time.monotonic() < deadline:
                changes |= self._apply(reader)
        more = any(r.unread_bytes for r in readers) or any(
            f.unread_bytes for f in self._dagman_files
        )
        replaced = any(reader.content_replaced for reader in readers)
        if replaced and time.monotonic() - self._restarted_at >= ANEW_SECONDS:
            return ReadStep(changes | self._restart(), True)
        if not more:
            self._caught_up = True
        return ReadStep(changes, more)

    def _apply(self, reader: LogReader) -> Changes:
        batch, warnings = reader.read(self.ensemble.clock, self.as_of)
        changes = self.ensemble.apply(batch)
        stats = self.ensemble.log_stats[reader.log.name]
        stats.bytes = reader.follower.size
        for warning in warnings:
            self._add_warning(stats, warning)
        return changes

    def _note_emptied(self, reader: LogReader) -> None:
        """Add a notice if a user log was emptied; DAGMan truncates its own on restart."""
        name = reader.log.name
        if reader.log.role is LogRole.USER:
            text = (
                f"it was emptied or replaced at {clock_time(self._now())}; what it told before "
                "stays until metlmon is started anew"
            )
            self._rewritten_log_notices[name] = Notice("rewritten-log", name, None, text)

    def _restart(self) -> Changes:
        """Discard the model and read everything again, as a new reader would.

        Done, with a notice, if a log's content or the directory itself has been replaced.
        """
        at = clock_time(self._now())
        replaced = [name for name, reader in self._logs.items() if reader.content_replaced]
        for name in replaced:
            text = f"at {at} what had been read of it was not in it any more: all was read anew"
            self._rewritten_log_notices[name] = Notice("rewritten-log", name, None, text)
        if not replaced:
            text = f"at {at} another directory was in its place: all was read anew"
            self._rewritten_log_notices[""] = Notice("rewritten-log", self.path_given, None, text)
        self._reset()
        self._dag_signature, self._non_logs, self._directory_mtimes = {}, {}, DirectoryMtimes()
        self._grew = self._caught_up = self._diverged = False
        self._file_errors = FileErrors(self._now)
        self._restarted_at = time.monotonic()
        if self._cache_session is not None:
            self._cache_session.holds(0)
        return self.check()

    def _add_warning(self, stats: LogStats, warning: LogWarning) -> None:
        count = stats.notices[warning.kind] = stats.notices.get(warning.kind, 0) + 1
        if count > NOTICES_PER_KIND:
            return
        text = warning.text
        if count == NOTICES_PER_KIND:
            text += " (and more of this kind further on)"
        self.ensemble.notices.append(Notice(warning.kind, stats.file, warning.line, text))

    def read_all(self, progress: Callable[[Progress], None] | None = None) -> None:
        """Read until there is nothing more to read, and update the totals."""
        with _gc_paused(settled=True):
            while self.step(0.25).more:
                if progress is not None:
                    progress(self.progress())
            # The caller needs the totals, and so will the next reader from the cache.
            self.ensemble.aggregates.add_up()
            self.ensemble.aggregates.settle(self.live())
        for cache_write in self.keep():
            cache_write.write()

    def progress(self) -> Progress:
        """Return the progress of reading, over all files."""
        total = sum(r.follower.size for r in self._logs.values())
        behind = sum(r.unread_bytes for r in self._logs.values())
        total += sum(f.total_bytes for f in self._dagman_files)
        behind += sum(f.unread_bytes for f in self._dagman_files)
        return Progress(total - behind, total)

    def watched_directories(self) -> list[Path]:
        """Return the directories to watch, without their subdirectories."""
        folders = {self.dagdir, *(r.log.path.parent for r in self._logs.values())}
        folders.update(dag.workflow.path.parent for dag in self.ensemble.dags.values())
        return sorted(f for f in folders if _is_directory(f))

    # --- results ------------------------------------------------------------------------

    def live(self) -> bool:
        """Whether an ensemble is running here, as defined in ``metlmon/README.md``."""
        if self._forced_live is not None:
            return self._forced_live
        if self.as_of is not None or not self.ensemble.is_unfinished():
            return False
        newest = self.ensemble.newest
        if newest is None:
            return False
        return self._grew or self.in_queue or abs(self._local_now() - newest) < FRESH

    def _local_now(self) -> datetime:
        if self._local_clock is not None:
            return self._local_clock()
        now = self._now()
        local = self.ensemble.clock.to_local(now) or datetime.fromtimestamp(now)
        return local.replace(microsecond=0)

    def duration_end(self, live: bool) -> datetime | None:
        """Return the time up to which durations count."""
        if self.as_of is not None:
            return self.as_of
        newest = self.ensemble.newest
        if newest is not None and not (live and self._caught_up):
            # Before all is read, the newest event is the present.
            return newest
        if not live:
            return None
        # The access point may be in another zone, or its clock may be ahead.
        return max(self._local_now(), newest) if newest else self._local_now()

    def snapshot_builder(self) -> SnapshotBuilder:
        """Return a snapshot builder of the current state."""
        # First the job totals: resolving the node states needs them too.
        self.ensemble.aggregates.add_up()
        live = self.live()
        self._gather_notices(live)
        return SnapshotBuilder(self.ensemble, self.path_given, self.duration_end(live), live)

    def _gather_notices(self, live: bool) -> None:
        """Collect the current notices on the input, other than from parsing the logs."""
        notices = [_notice(p) for p in (*self._dag_problems, *self._log_problems)]
        notices += [Notice("settings", *remark) for remark in self.ensemble.settings.remarks]
        for files in self._dagman_files:
            notices += [_notice(p) for problems in files.problems.values() for p in problems]
        errors = self._all_file_errors()
        logs = {reader.log.name for reader in self._logs.values()}
        # Discovery may have reported these files already.
        reported = {error.name for error in errors}
        notices = [n for n in notices if n.kind != "unreadable" or n.file not in reported]
        for error in errors:
            text = error.message("the log" if error.name in logs else "the file")
            notices.append(Notice("unreadable", error.name, None, text))
        notices += (
            *self._rewritten_log_notices.values(),
            *self.extra_notices.values(),
            *self._gates.notices(),
        )
        for reader in self._logs.values():
            if not live and reader.at_end and reader.follower.unread_bytes:
                notices += self._unterminated(reader)
        notices += self._missing_dags()
        notices += self._missing_logs(reported)
        notices += zone_conflict(self.ensemble.clock)
        notices += as_of_warnings(self.ensemble)
        if self.ensemble.reused_ids:
            notices.append(reused_ids_warning(self.ensemble.reused_ids))
        self.ensemble.lasting_notices = notices

    def _unterminated(self, reader: LogReader) -> list[Notice]:
        if not reader.unparsed_text().strip():
            return []
        text = "the log ends in the middle of an event, which is not counted"
        line = reader.position.line
        return [Notice("unterminated-event", reader.log.name, line, text)]

    def _missing_dags(self) -> list[Notice]:
        missing: dict[str, str] = {}
        for reader in self._logs.values():
            dag = reader.log.dag
            if dag is not None and dag not in self.ensemble.dags and reader.position.offset:
                missing.setdefault(dag, reader.log.name)
        return [
            Notice(
                "missing-dag",
                log,
                None,
                f"the DAG file {dag} is not here: its jobs are listed without run and node; "
                "put it beside its logs",
            )
            for dag, log in missing.items()
        ]

    def _missing_logs(self, reported: set[str]) -> Iterator[Notice]:
        """Yield notices on missing logs of nodes whose jobs were submitted.

        DAGMan's own log may have only the last submission of these nodes. ``reported``: files
        that already have a notice.
        """
        if not self._absent_logs:
            return
        names = {Path(name).name for name in reported}
        for key, record in self.ensemble.nodes.items():
            log, folder = record.node.log, self.ensemble.dags[key[0]].workflow.path.parent
            if (
                log
                and record.jobs
                and (folder, log) in self._absent_logs
                and Path(log).name not in names
            ):
                names.add(Path(log).name)
                text = (
                    "this log, which the submit description names, is not here: of its jobs only "
                    "what DAGMan's own log has is counted; put it beside the DAG file"
                )
                yield Notice("missing-log", Path(log).name, None, text)


def _parse_slow(data: bytes, at: Position, year: int | None, final: bool = False) -> FastResult:
    parsed = parse(data, at, year_hint=year, final=final)
    return FastResult(parsed.events, (), parsed.warnings, parsed.after)


@contextmanager
def _gc_paused(settled: bool = False) -> Iterator[None]:
    """Pause garbage collection.

    Loading or building a cache entry creates a million acyclic objects at once; collecting would
    take at least as long as the work itself.

    ``settled``: finally move all objects to the oldest generation. That resets the collector's
    counters, so it is for one-time work only: at every check it would prevent any collection.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if settled and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()


def _sizes_and_ctimes(paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Return size and ctime of files; the ctime also changes with permissions."""
    stamps = {}
    listed = list(paths)
    for path, get_status in zip(listed, call_all(os.stat, listed), strict=True):
        try:
            status = get_status()
            stamps[path] = (status.st_size, status.st_ctime_ns)
        except OSError:
            stamps[path] = (-1, -1)
        except FsTimeout:
            stamps[path] = (-2, -2)
    return stamps


def _is_directory(path: Path) -> bool:
    try:
        return call_with_timeout(os.path.isdir, path)
    except FsTimeout:
        return True


def _notice(problem: Problem) -> Notice:
    return Notice(problem.kind, problem.file, problem.line, problem.text)


def _shared_names(dags: list[Dag]) -> frozenset[str]:
    """Return the jobstate logs named by several DAGs of one directory."""
    seen: set[tuple[Path, str]] = set()
    shared: set[str] = set()
    for dag in dags:
        name = dag.workflow.jobstate_log
        if name is None:
            continue
        location = (dag.workflow.path.parent, name)
        if location in seen:
            shared.add(name)
        seen.add(location)
    return frozenset(shared)
