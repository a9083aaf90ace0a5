"""Reads one dagdir into the state model, in steps of bounded time.

The reader never writes, holds no file open, and relies on ``stat``. Early wake-ups come from
:mod:`metlmon.live.session`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.dagman.dagman_out import OutState, read_dagman_out
from metlmon.dagman.records import MessageKind, Problem, Rescue
from metlmon.dagman.reports import (
    read_condor_sub,
    read_jobstate,
    read_metrics,
    read_node_status,
    read_rescue,
    rescue_number,
)
from metlmon.errors import InputError
from metlmon.eventlog.events import LogWarning
from metlmon.live.discovery import (
    Discovery,
    Sniffed,
    check_logs,
    dag_file_paths,
    discover_dags,
    discover_logs,
    has_event_logs,
    is_event_log,
    output_names,
    read_ahead,
)
from metlmon.live.file_access import (
    call_with_timeout,
    check_dagdir,
    clock_time,
    is_directory,
    read_regular_file,
    sizes_and_ctimes,
)
from metlmon.live.follower import (
    CHUNK,
    DirectoryMtimes,
    FileCheck,
    FileError,
    FileErrors,
    Follower,
    LogReader,
    duration_suffix,
)
from metlmon.live.gate_files import GateFiles
from metlmon.memory import gc_paused
from metlmon.model.dag import Dag
from metlmon.model.ensemble import NOTICES_PER_KIND, Ensemble
from metlmon.model.job_events import NO_DAG
from metlmon.model.model_state import LogRole, LogStats, Notice
from metlmon.model.run import JobOutputs
from metlmon.remote import filesystem
from metlmon.remote.paths import NoAnswer, host_of
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.derive import Derivation
from metlmon.snapshot.records import Progress

FRESH: Final = timedelta(days=1)
"""Maximum age of a live ensemble's newest event: memory sizes are logged every few minutes."""

RESTART_SECONDS: Final = 10.0
"""Minimum interval between restarts, so that a continually rewritten log does not take a core."""

LOGS_AT_ONCE: Final = 500
"""Logs without a job in the queue that one check tests for growth: a few milliseconds."""

NON_LOGS_PER_CHECK: Final = 500
"""Files that one check tests for having become event logs: a few milliseconds."""

NEVER_MERGED: Final = frozenset({"unreadable", "unknown-command", "settings"})
"""Kinds of notices that are never merged."""

MAX_UNMERGED: Final = 3
"""Notices of one kind that are listed; more are merged into one with their number."""

STEP_SECONDS: Final = 0.05
"""Time limit of one step, before the UI may use the model."""


class ReadStep(Struct, frozen=True):
    """The result of one step.

    ``changed``: anything may have changed. ``more``: more can be read right now.
    """

    changed: bool
    more: bool


class DagdirReader:
    """Reads one dagdir. Not thread-safe; raises InputError from :meth:`open` only.

    ``dagdir``: a directory with DAGs or event logs, one of its DAG files, or an event log.
    ``logs``: event logs in it, at any depth; if given, only these are read, and no DAG file.
    ``now`` returns seconds since 1970 (default: of the dagdir's machine), ``local_now`` the access
    point's local time if the caller knows it (a replay). ``as_of`` excludes later events; ``live``
    overrides whether the ensemble is live according to its files. ``in_queue`` is set from outside
    if a reachable schedd has the jobs.
    """

    def __init__(
        self,
        dagdir: Path,
        settings: Settings | None = None,
        *,
        logs: Sequence[Path] = (),
        as_of: datetime | None = None,
        live: bool | None = None,
        now: Callable[[], float] | None = None,
        local_now: Callable[[], datetime] | None = None,
    ) -> None:
        self.path_given = str(dagdir)
        self.logs = tuple(logs) or ((dagdir,) if _is_log_file(dagdir) else ())
        is_file = filesystem.isfile(dagdir)
        self._only = dagdir.name if is_file and not self.logs else None
        self.dagdir = dagdir.parent if is_file else dagdir
        self.as_of = as_of
        self.ensemble = self._new_ensemble(settings or Settings())
        self.derivation = Derivation(self.ensemble)
        self._patterns = self.ensemble.settings.safe_patterns()
        self.error: str | None = None
        self.in_queue = False
        self._forced_live = live
        self._now = now or partial(filesystem.now, self.dagdir)
        self._local_clock = local_now
        self._logs: dict[str, LogReader] = {}
        self._dagman_files: list[DagmanFiles] = []
        self._gates = GateFiles()
        self._dag_problems: list[Problem] = []
        self._log_problems: list[Problem] = []
        self._absent_logs: set[tuple[Path, str]] = set()
        self._directory_mtimes = DirectoryMtimes()
        self._dag_paths: list[Path] = []
        self._non_logs: dict[Path, tuple[int, int]] = {}
        self._next_non_log = 0
        self._next_log, self._log_folders = 0, set[Path]()
        self._sniffed: Sniffed = {}
        self._dag_signature: dict[Path, tuple[int, int]] = {}
        self._next_dagman_files = 0
        self._grew = False
        self._caught_up = False
        self._file_errors = FileErrors()
        self._is_answered = True
        self._dagdir_error: tuple[str, float] | None = None
        self._directory_id: tuple[int, int] | None = None
        self._rewritten_log_notices: dict[str, Notice] = {}
        self.extra_notices: list[Notice] = []
        """Notices of the reader's owner, which are shown with those of the reader."""
        self._restarted_at = float("-inf")

    def _new_ensemble(self, settings: Settings) -> Ensemble:
        ensemble = Ensemble(settings, self.as_of)
        ensemble.clock.machine_time = partial(filesystem.local_time, self.dagdir)
        return ensemble

    # --- checks -------------------------------------------------------------------------

    def open(self) -> None:
        """Make the first check. Raises InputError if the dagdir is unusable."""
        try:
            call_with_timeout(read_ahead, self.dagdir)
            with gc_paused():
                self._reload_dags()
        except NoAnswer as error:
            raise InputError(error.describe()) from None
        self.check()

    def check(self) -> bool:
        """Check the dagdir, reading small files only; return whether it may have changed.

        A dagdir that has become unusable leaves the model unchanged and sets ``error``.
        """
        changed, self._is_answered = False, True
        error: str | None = None
        try:
            check_dagdir(self.dagdir)
            listing_changed = self._directory_mtimes.changed(
                self.watched_directories(), self._now()
            )
            if listing_changed and not self.logs:
                self._dag_paths = dag_file_paths(self.dagdir)
            if self._dag_files_signature() != self._dag_signature:
                self._reload_dags()
                changed = True
            elif listing_changed or self._may_have_become_logs():
                self._discover_logs()
            if self._is_replaced():
                self._restart()
                return True
        except InputError as problem:
            error = self._removed_dags_error() or str(problem)
        except NoAnswer as problem:
            self._is_answered = False
            error = problem.describe() + duration_suffix(problem.since)
            # List all names again once the file system responds.
            self._directory_mtimes = DirectoryMtimes()
        # Before the logs, which then have the end of each job that DAGMan has reported.
        listed: dict[Path, list[str]] = {}
        for files in self._dagman_files:
            changed |= files.check(self.ensemble, listed, self._now())
        for reader in self._logs_to_check():
            size = reader.follower.size
            check = reader.check()
            if check.problem is None:
                self.ensemble.log_stats[reader.log.name].bytes = check.size
            if check.restarted:
                self._add_emptied_notice(reader)
                self.ensemble.reset_log(reader.log.name, reader.log.dag)
                changed = True
            # Touching the file makes an incomplete last event be read again: no growth.
            if self._caught_up and check.grew and (check.restarted or check.size > size):
                self._grew = True
        if self._gates.are_used:
            changed |= self._gates.check(self.ensemble, self._now())
        self._update_error(error)
        return changed

    def _logs_to_check(self) -> list[LogReader]:
        """The logs that a check tests for growth.

        Up to ``LOGS_AT_ONCE`` logs are all tested. Of more logs, those that were never read,
        DAGMan's own, and those of jobs in the queue are; and in turn some of the others.
        """
        readers = list(self._logs.values())
        if len(readers) <= LOGS_AT_ONCE:
            return readers
        jobs = filter(None, map(self.ensemble.jobs.get, self.derivation.totals.queued))
        active = {log for job in jobs for log in job.user_logs}
        first = self._next_log if self._next_log < len(readers) else 0
        self._next_log = first + LOGS_AT_ONCE
        return [
            reader
            for index, reader in enumerate(readers)
            if first <= index < self._next_log
            or not reader.follower.was_readable
            or reader.log.role is not LogRole.USER
            or reader.log.name in active
        ]

    def _is_replaced(self) -> bool:
        """Whether another directory has replaced the one read before."""
        try:
            status = call_with_timeout(filesystem.stat, self.dagdir)
        except OSError:
            return False
        before, self._directory_id = self._directory_id, (status.st_dev, status.st_ino)
        return before not in (None, self._directory_id)

    def _update_error(self, error: str | None) -> None:
        """Set ``error``: an unusable dagdir, else a file that has become unreadable."""
        if error is None:
            self._dagdir_error = None
        elif self._dagdir_error is None or self._dagdir_error[0] != error:
            since = time.time() if self._dagdir_error is None else self._dagdir_error[1]
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
        dags = [dag.workflow.path.name for dag in self._dags() if dag.top == dag.key]
        if self._dag_paths or not dags or not is_directory(self.dagdir):
            return None
        more = f" (and {len(dags) - 1} more)" if len(dags) > 1 else ""
        return f"{dags[0]}{more} is gone; what was read before stays"

    def _all_file_errors(self) -> list[FileError]:
        return self._file_errors.reportable() + [
            error for files in self._dagman_files for error in files.file_errors.reportable()
        ]

    def _dag_files_signature(self) -> dict[Path, tuple[int, int]]:
        """Return size and ctime of all DAG files, to detect changes of any of them."""
        files = {path for dag in self._dags() for path in dag.workflow.files}
        return sizes_and_ctimes(files.union(self._dag_paths))

    def _dags(self) -> list[Dag]:
        return [dag for key, dag in self.ensemble.dags.items() if key != NO_DAG]

    def _reload_dags(self) -> None:
        self._dag_paths = [] if self.logs else dag_file_paths(self.dagdir)
        before = self._dag_files_signature()
        discovery = Discovery()
        if self.logs:
            check_logs(self.logs)
        elif self._dag_paths or self._dagman_files or not has_event_logs(self.dagdir):
            discovery = discover_dags(self.dagdir, self._only)
        shared = shared_jobstate_logs(discovery.dags)
        files_by_dag = {files.key: files for files in self._dagman_files}
        dags = []
        for dag in discovery.dags:
            known = self.ensemble.dags.get(dag.key)
            if known is not None and files_by_dag[dag.key].names_same_files(dag, shared):
                known.replace_workflow(dag.workflow)
                known.top = dag.top
                dags.append(known)
            else:
                files_by_dag[dag.key] = DagmanFiles(dag, shared)
                dags.append(dag)
        self._dag_problems = discovery.problems
        self._dagman_files = [files_by_dag[dag.key] for dag in dags]
        self.ensemble.set_dags(dags)
        self._gates.find(self.ensemble)
        # A file written while it was being read must be read again.
        now = self._dag_files_signature()
        self._dag_signature = {path: before.get(path, stat) for path, stat in now.items()}
        self._discover_logs()

    def _discover_logs(self) -> None:
        discovery = discover_logs(self.dagdir, self._dags(), self._sniffed, self.logs)
        self.ensemble.groups.outputs = JobOutputs(output_names(self.dagdir))
        self._log_problems = discovery.problems
        self._absent_logs = discovery.missing_logs
        self._non_logs = sizes_and_ctimes(discovery.candidates)
        for log in discovery.logs:
            reader = self._logs.get(log.name)
            if reader is None:
                reader = LogReader(log, self._now)
                self._logs[log.name] = reader
                self.ensemble.log_stats.setdefault(log.name, LogStats(log.name, log.role))
            else:
                reader.log = log
        self._log_folders = {reader.log.path.parent for reader in self._logs.values()}
        # In the order in which a new reader would discover them.
        self._logs = {**{log.name: self._logs[log.name] for log in discovery.logs}, **self._logs}
        log_stats = self.ensemble.log_stats
        self.ensemble.log_stats = {**{name: log_stats[name] for name in self._logs}, **log_stats}

    def _may_have_become_logs(self) -> bool:
        """Whether a file that was not an event log has changed.

        Of many such files (job outputs named ``*.log``), each check tests the next few.
        """
        first = self._next_non_log if self._next_non_log < len(self._non_logs) else 0
        self._next_non_log = first + NON_LOGS_PER_CHECK
        batch = list(islice(self._non_logs, first, first + NON_LOGS_PER_CHECK))
        return any(stamp != self._non_logs[path] for path, stamp in sizes_and_ctimes(batch).items())

    # --- reading ------------------------------------------------------------------------

    def step(self, seconds: float = STEP_SECONDS) -> ReadStep:
        """Read and apply events for about ``seconds``."""
        deadline = time.monotonic() + seconds
        changed = False
        unread = [files for files in self._dagman_files if files.unread_bytes]
        if unread:
            self._next_dagman_files += 1
            changed |= unread[self._next_dagman_files % len(unread)].read_some(self.ensemble)
        readers = list(self._logs.values())
        undated = any(files.unread_bytes for files in self._dagman_files)
        # A log without years waits until DAGMan's files, which have the years, are read.
        queue = [
            (self._reading_order(reader), index)
            for index, reader in enumerate(readers)
            if reader.unread_bytes and not (undated and reader.awaits_year())
        ]
        heapify(queue)
        while queue and time.monotonic() < deadline:
            index = heappop(queue)[1]
            reader = readers[index]
            changed |= self._apply(reader)
            self._compress_events()
            if reader.unread_bytes:
                heappush(queue, (self._reading_order(reader), index))
        more = any(r.unread_bytes for r in readers) or any(
            f.unread_bytes for f in self._dagman_files
        )
        if not more:
            for files in self._dagman_files:
                more |= files.find_unlogged_jobs(self.ensemble)
                self._compress_events()
        replaced = any(reader.content_replaced for reader in readers)
        # A log may be replaced again and again: limit the restarts.
        if replaced and time.monotonic() - self._restarted_at >= RESTART_SECONDS:
            self._restart()
            return ReadStep(changed=True, more=True)
        if not more:
            self._caught_up = True
        return ReadStep(changed, more)

    def _reading_order(self, reader: LogReader) -> tuple[bool, datetime]:
        """Sort key: logs of DAGMan's own job first, then by the time up to which each was read.

        Thus both copies of an event in two logs are read while the job's events are in memory.
        """
        last = reader.position.last
        time_read = self.ensemble.clock.naive(last) if last is not None else datetime.min
        return reader.log.role is not LogRole.DAGMAN, time_read

    def _apply(self, reader: LogReader) -> bool:
        batch, warnings = reader.read(self.ensemble.clock, self.as_of, self.ensemble)
        changed = self.ensemble.apply(batch)
        stats = self.ensemble.log_stats[reader.log.name]
        stats.bytes = reader.follower.size
        if warnings and self.as_of is not None:
            naive, as_of = self.ensemble.clock.naive, self.as_of
            later = [event.line for event in batch.events if naive(event.time) > as_of]
            warnings = tuple(each for each in warnings if not later or each.line < later[0])
        for warning in warnings:
            self._add_warning(stats, warning)
        return changed

    def _compress_events(self) -> None:
        """Compress the events of jobs if too many are in memory, after building their records."""
        recent = self.ensemble.recent_jobs
        if surplus := recent.surplus():
            self.derivation = self.derivation.renewed()
            self.derivation.update_ended(surplus)
            recent.compress(surplus)

    def _add_emptied_notice(self, reader: LogReader) -> None:
        """Add a notice if a user log was emptied; DAGMan truncates its own on restart."""
        name = reader.log.name
        if reader.log.role is LogRole.USER:
            text = (
                f"it was emptied or replaced at {clock_time(time.time())}; the events read "
                "before stay until metlmon is started again"
            )
            self._rewritten_log_notices[name] = Notice("rewritten-log", name, None, text)

    def _restart(self) -> None:
        """Discard the model and read everything again, as a new reader would."""
        at = clock_time(time.time())
        replaced = [name for name, reader in self._logs.items() if reader.content_replaced]
        for name in replaced:
            text = f"at {at} what had been read of it was not in it any more: all was read again"
            self._rewritten_log_notices[name] = Notice("rewritten-log", name, None, text)
        if not replaced:
            text = f"at {at} another directory was in its place: all was read again"
            self._rewritten_log_notices[""] = Notice("rewritten-log", self.path_given, None, text)
        self.ensemble = self._new_ensemble(self.ensemble.settings)
        self.derivation = Derivation(self.ensemble)
        self._logs, self._dagman_files, self._gates = {}, [], GateFiles()
        self._dag_signature, self._non_logs, self._directory_mtimes = {}, {}, DirectoryMtimes()
        self._grew = self._caught_up = False
        self._file_errors = FileErrors()
        self._restarted_at = time.monotonic()
        self.check()

    def _add_warning(self, stats: LogStats, warning: LogWarning) -> None:
        count = stats.notices[warning.kind] = stats.notices.get(warning.kind, 0) + 1
        if count > NOTICES_PER_KIND:
            return
        text = warning.text
        if count == NOTICES_PER_KIND:
            text += " (and more of this kind further on)"
        self.ensemble.notices.append(Notice(warning.kind, stats.file, warning.line, text))

    def read_all(self, progress: Callable[[Progress], None] | None = None) -> None:
        """Read everything, and update the records."""
        with gc_paused():
            while self.step(0.25).more:
                if progress is not None:
                    progress(self.progress())
            self.update()

    def progress(self) -> Progress:
        """Return the progress of reading, over all files."""
        total = sum(r.follower.size for r in self._logs.values())
        behind = sum(r.unread_bytes for r in self._logs.values())
        total += sum(f.total_bytes for f in self._dagman_files)
        behind += sum(f.unread_bytes for f in self._dagman_files)
        return Progress(total - behind, total)

    def log_paths(self) -> list[Path]:
        return [reader.log.path for reader in self._logs.values()]

    def watched_directories(self) -> list[Path]:
        """Return the directories to watch, without their subdirectories."""
        folders = {self.dagdir, *self._log_folders}
        folders.update(dag.workflow.path.parent for dag in self._dags())
        return sorted(f for f in folders if is_directory(f))

    @property
    def lacks_answers(self) -> bool:
        """Whether the file system has not answered everything since the last check."""
        return not (
            self._is_answered
            and all(reader.follower.is_answered for reader in self._logs.values())
            and all(files.are_answered for files in self._dagman_files)
        )

    @property
    def host(self) -> str:
        """The remote machine that has the dagdir, as typed; empty for this machine."""
        return host_of(self.dagdir)

    # --- results ------------------------------------------------------------------------

    def live(self) -> bool:
        """Whether the ensemble is live, as defined in ``metlmon/README.md``."""
        if self._forced_live is not None:
            return self._forced_live
        if self.as_of is not None or not self.derivation.is_unfinished():
            return False
        newest = self.ensemble.newest_line
        if newest is None:
            return False
        return self._grew or self.in_queue or abs(self.local_now() - newest) < FRESH

    def local_now(self) -> datetime:
        """The access point's local time, naive, in whole seconds."""
        if self._local_clock is not None:
            return self._local_clock()
        local = self.ensemble.clock.local_or_machine_time(self._now())
        return (local or datetime.max).replace(microsecond=0)

    def duration_end(self, live: bool) -> datetime | None:
        """Return the time up to which durations count."""
        if self.as_of is not None:
            return self.as_of
        newest = self.ensemble.newest_line
        if newest is not None and not (live and self._caught_up):
            # Until everything has been read, the newest event counts as now.
            return newest
        if not live:
            return None
        # The access point may be in another zone, or its clock may be ahead.
        return max(self.local_now(), newest) if newest else self.local_now()

    def update(self, seconds: float | None = None) -> bool:
        """Update records and states for about ``seconds``; return False while some are left."""
        derivation = self.derivation = self.derivation.renewed()
        # Whether the ensemble is live depends on the jobs.
        return derivation.update_jobs(seconds) and derivation.update_nodes(self.live(), seconds)

    def snapshot_builder(self) -> SnapshotBuilder:
        self.update()
        live = self.live()
        self._gather_notices(live)
        return SnapshotBuilder(self.derivation, self.path_given, self.duration_end(live), live)

    def _gather_notices(self, live: bool) -> None:
        """Collect the current notices about the input, other than from parsing the logs."""
        notices = [_notice(p) for p in (*self._dag_problems, *self._log_problems)]
        settings = self.ensemble.settings
        notices += [Notice("settings", *remark) for remark in settings.remarks]
        for key, pattern in self._patterns:
            if pattern.disabled:
                text = f"the pattern of {key} takes too long and is not used any more: simplify it"
                notices.append(Notice("settings", "metlmon.toml", None, text))
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
            *self.extra_notices,
            *(self._gates.notices() if self._gates.are_used else ()),
        )
        for reader in self._logs.values():
            may_be_cut = not live and reader.at_end and reader.follower.unread_bytes
            is_read_whole = self.ensemble.offsets.first_later is None
            if may_be_cut and is_read_whole and reader.unparsed_text().strip():
                text = "the log ends in the middle of an event, which is not counted"
                at = reader.log.name, reader.position.line
                notices.append(Notice("unterminated-event", *at, text))
        notices += self._missing_dags()
        notices += self._missing_logs(reported)
        self.ensemble.lasting_notices = list(_merged(notices))

    def _missing_dags(self) -> list[Notice]:
        missing: dict[str, str] = {}
        for reader in self._logs.values():
            dag = reader.log.dag
            if dag is not None and dag not in self.ensemble.dags and reader.position.offset:
                missing.setdefault(dag, reader.log.name)
        if missing:
            # DAGMAN_DEFAULT_NODE_LOG may name the log of a DAG that is here differently.
            for key, found in self.ensemble.attributions.items():
                if found.proven and found.dag and key in self.ensemble.jobs:
                    for dag in self.ensemble.jobs[key].nodes_logs:
                        missing.pop(dag, None)
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
        """Yield notices about missing logs of nodes whose jobs were submitted.

        DAGMan's own log may have only the last submission of these nodes. ``reported``: files
        that already have a notice.
        """
        if not self._absent_logs:
            return
        names = {Path(name).name for name in reported}
        for key, record in self.ensemble.nodes.items():
            log, folder = record.node.log, self.ensemble.dags[key[0]].workflow.directory
            if (
                log
                and record.jobs
                and (folder, log) in self._absent_logs
                and Path(log).name not in names
            ):
                names.add(Path(log).name)
                text = (
                    "this log, which the submit description names, is not here: of its jobs only "
                    "what DAGMan's own files have is counted; put it beside the DAG file"
                )
                yield Notice("missing-log", Path(log).name, None, text)


def _is_log_file(path: Path) -> bool:
    with suppress(OSError, NoAnswer):
        return is_event_log(path)
    return False


def _merged(notices: Iterable[Notice]) -> Iterator[Notice]:
    """The notices; many of one kind, such as one per submit file, are merged into one."""
    by_kind: dict[str, list[Notice]] = {}
    for notice in notices:
        by_kind.setdefault(notice.kind, []).append(notice)
    for kind, alike in by_kind.items():
        if len(alike) <= MAX_UNMERGED or kind in NEVER_MERGED:
            yield from alike
        else:
            text = f"{alike[0].text} (and {len(alike) - 1} more like this)"
            yield replace(alike[0], text=text, count=len(alike))


def _notice(problem: Problem) -> Notice:
    return Notice(problem.kind, problem.file, problem.line, problem.text)


# --- the files that DAGMan writes -----------------------------------------------------

MAX_SMALL_FILE_BYTES: Final = 64 << 20
"""Ten times the size of rescue, status and metrics files for 100,000 nodes."""


class DagmanFiles:
    """The DAGMan files of one DAG.

    Small files are read again when they change, growing ones from the last offset.
    ``shared``: jobstate logs named by several DAGs, whose lines do not identify the DAG.
    """

    def __init__(self, dag: Dag, shared: frozenset[str]) -> None:
        path = dag.workflow.path
        self.key = dag.key
        self._directory = path.parent
        self._name = path.name
        self._halt_file = path.with_name(f"{path.name}.halt")
        self._directory_mtimes = DirectoryMtimes()
        self._out = Follower(path.with_name(f"{path.name}.dagman.out"))
        self._out_state = OutState()
        self._submitted: set[int] = set()
        self._events_offset: int | None = None
        """The next offset at which job events are read, if a job of this DAG is in no log."""
        self._events_state = OutState(with_events=True)
        jobstate = dag.workflow.jobstate_log
        named = jobstate is not None and jobstate not in shared
        self._jobstate = Follower(self._locate(jobstate, dag)) if jobstate and named else None
        self._jobstate_line = 1
        status = dag.workflow.node_status_file
        self._file_names = (jobstate, status, jobstate in shared)
        self._status = Follower(self._locate(status, dag)) if status else None
        self._metrics = Follower(path.with_name(f"{path.name}.metrics"))
        self._condor_sub = Follower(path.with_name(f"{path.name}.condor.sub"))
        self._rescues: dict[str, tuple[int, int, int]] = {}
        self.problems: dict[str, list[Problem]] = {}
        self.file_errors = FileErrors()

    def names_same_files(self, dag: Dag, shared: frozenset[str]) -> bool:
        """Whether the rewritten DAG file names the same files."""
        jobstate, status = dag.workflow.jobstate_log, dag.workflow.node_status_file
        return (jobstate, status, jobstate in shared) == self._file_names

    def _locate(self, name: str, dag: Dag) -> Path:
        """Return the path as DAGMan resolves it, or, if missing, that beside the DAG file."""
        path = dag.workflow.path_of(name)
        exists = call_with_timeout(filesystem.exists, path)
        return path if exists else self._directory / Path(name).name

    @property
    def unread_bytes(self) -> int:
        """Unread bytes of the growing files."""
        unread = self._out.unread_bytes + (self._jobstate.unread_bytes if self._jobstate else 0)
        return unread + self._unread_events

    @property
    def _unread_events(self) -> int:
        return 0 if self._events_offset is None else self._out.offset - self._events_offset

    @property
    def are_answered(self) -> bool:
        """Whether the file system has answered the last call for each growing file."""
        return self._out.is_answered and (self._jobstate is None or self._jobstate.is_answered)

    @property
    def total_bytes(self) -> int:
        return self._out.size + (self._jobstate.size if self._jobstate else 0)

    # --- small files --------------------------------------------------------------------

    def check(self, ensemble: Ensemble, listed: dict[Path, list[str]], now: float) -> bool:
        """Read changed small files and check the growing ones; return whether any changed.

        ``listed``: names of rescue files by directory, shared by all DAGs of this check. ``now``:
        as for :meth:`GateFiles.check`.
        """
        dag, changed = ensemble.dags[self.key], False
        try:
            self._relocate_missing(dag)
            names: Iterable[str] = self._rescues
            if self._directory_mtimes.changed([self._directory], now):
                names = self._rescue_names(listed)
            changed = self._check_rescues(names, dag)
            for follower in (self._status, self._metrics, self._condor_sub):
                data = None if follower is None else self._changed_content(follower)
                if follower is None or data is None:
                    continue
                changed = True
                if follower is self._status:
                    self._set_status(follower.path, data, dag)
                elif follower is self._metrics:
                    metrics, self.problems["metrics"] = read_metrics(follower.path, data)
                    dag.metrics_file = metrics or dag.metrics_file
                else:
                    dag.condor_sub = read_condor_sub(data)
            halted = call_with_timeout(filesystem.exists, self._halt_file)
            changed |= halted != dag.halted
            dag.halted = halted
        except NoAnswer:
            # List all names again once the file system responds.
            self._directory_mtimes = DirectoryMtimes()
        restarted = self._check_growing(dag)
        if changed:
            ensemble.dag_facts_changed(self.key)
        if restarted:
            ensemble.reset_dagman_messages(self.key)
        return changed or restarted

    def _relocate_missing(self, dag: Dag) -> None:
        """Locate again the named files that do not exist yet."""
        workflow = dag.workflow
        for follower, name in (
            (self._status, workflow.node_status_file),
            (self._jobstate, workflow.jobstate_log),
        ):
            if follower is not None and name and not follower.was_readable:
                follower.path = self._locate(name, dag)

    def _check_growing(self, dag: Dag) -> bool:
        """Check the growing files; return whether one of them restarted."""
        restarted = False
        out = self._out.check()
        self._update_errors(self._out, out)
        if out.restarted:
            self._out_state, self._events_state = OutState(), OutState(with_events=True)
            self._events_offset = None if self._events_offset is None else 0
            dag.reset_out()
            restarted = True
        if self._jobstate is not None:
            jobstate = self._jobstate.check()
            self._update_errors(self._jobstate, jobstate)
            if jobstate.restarted:
                self._jobstate_line = 1
                self.problems["jobstate"] = []
                dag.reset_jobstate()
                restarted = True
        return restarted

    def _update_errors(self, follower: Follower, check: FileCheck) -> None:
        """Record a read error, except for a file that has not existed yet."""
        missing = check.missing and not follower.was_readable
        self.file_errors.update(
            follower.path.name, follower, None if missing else check.problem, check.missing
        )

    def _changed_content(self, follower: Follower) -> bytes | None:
        """The content of a small file that has changed; else None."""
        check = follower.check()
        self._update_errors(follower, check)
        if check.problem is not None or not (check.restarted or check.grew):
            return None
        try:
            data = follower.read(0, MAX_SMALL_FILE_BYTES)
        except OSError:
            return None
        # Replaced or rewritten: always read it whole; the offset is only used to detect changes.
        follower.consume(0)
        return data

    def _set_status(self, path: Path, data: bytes, dag: Dag) -> None:
        status, problems = read_node_status(path, data)
        self.problems["status"] = problems
        if dag.status_file is not None and any(problem.kind == "torn-file" for problem in problems):
            return  # It is being copied: keep the last complete state.
        if status is None:
            return
        # Several DAGs may share a status file.
        if not status.dag_files or self._name in {Path(f).name for f in status.dag_files}:
            dag.status_file = status

    def _rescue_names(self, listed: dict[Path, list[str]]) -> Iterable[str]:
        if self._directory not in listed:
            # Each directory is listed once for all its DAGs.
            try:
                names = call_with_timeout(filesystem.listdir, self._directory)
            except OSError:
                return self._rescues
            listed[self._directory] = [name for name in names if ".rescue" in name]
        names = listed[self._directory]
        return [name for name in names if rescue_number(name, self._name) is not None]

    def _check_rescues(self, names: Iterable[str], dag: Dag) -> bool:
        signatures = {}
        for name in sorted(names):
            try:
                status = call_with_timeout(filesystem.stat, self._directory / name)
            except FileNotFoundError:
                continue
            except OSError:
                # It may still exist: keep what was read from it.
                return False
            signatures[name] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if signatures == self._rescues:
            return False
        directory_exists: bool = call_with_timeout(filesystem.isdir, self._directory)
        if not (signatures or directory_exists):
            return False
        # Read all before changing anything, since a read may time out.
        results = [_read_rescue(self._directory / name) for name in signatures]
        self._rescues = signatures
        dag.rescue_files = {rescue.number: rescue for rescue, _ in results if rescue is not None}
        self.problems["rescue"] = [problem for _, problems in results for problem in problems]
        return True

    # --- growing files ------------------------------------------------------------------

    def read_some(self, ensemble: Ensemble) -> bool:
        """Read the next chunk of each growing file; return whether any had a message."""
        has_messages = self._read_out(ensemble)
        has_messages |= self._read_events(ensemble)
        return self._read_jobstate(ensemble) or has_messages

    def find_unlogged_jobs(self, ensemble: Ensemble) -> bool:
        """Start reading job events from ``.dagman.out`` if a submitted job is in no log here.

        Call this when all logs have been read; returns whether more can be read now.
        """
        submitted, self._submitted = self._submitted, set()
        if self._events_offset is None and not all(map(ensemble.has_job, submitted)):
            self._events_offset = 0
        return self._unread_events > 0

    def _read_events(self, ensemble: Ensemble) -> bool:
        if not self._unread_events or self._events_offset is None:
            return False
        size = min(CHUNK, self._unread_events)
        try:
            data = self._out.read(self._events_offset, size)
        except OSError:
            return False
        messages, self._events_state, consumed = read_dagman_out(data, self._events_state)
        # Without a complete line, these bytes are a line that the other parser skipped.
        self._events_offset += consumed or len(data)
        kinds = MessageKind.JOB_EVENT, MessageKind.EXITED
        events = [message for message in messages if message.kind in kinds]
        if events:
            ensemble.apply_reported_events(self.key, events)
        return bool(events)

    def _read_out(self, ensemble: Ensemble) -> bool:
        if not self._out.unread_bytes:
            return False
        data = _next_chunk(self._out)
        messages, self._out_state, consumed = read_dagman_out(data, self._out_state)
        _advance(self._out, consumed, len(data))
        if messages:
            self._submitted.update(
                line.cluster
                for line in messages
                if line.kind is MessageKind.SUBMITTED and line.cluster
            )
            ensemble.apply_dagman_messages(self.key, messages)
        return bool(messages)

    def _read_jobstate(self, ensemble: Ensemble) -> bool:
        if self._jobstate is None or not self._jobstate.unread_bytes:
            return False
        data = _next_chunk(self._jobstate)
        entries, problems, consumed = read_jobstate(
            data, file=self._jobstate.path.name, line=self._jobstate_line
        )
        _advance(self._jobstate, consumed, len(data))
        self._jobstate_line += data.count(b"\n", 0, consumed)
        known = self.problems.setdefault("jobstate", [])
        known += problems[: NOTICES_PER_KIND - len(known)]
        if entries:
            ensemble.apply_jobstate(self.key, entries)
        return bool(entries)


def _read_rescue(path: Path) -> tuple[Rescue | None, list[Problem]]:
    try:
        return read_rescue(path, read_regular_file(path))
    except OSError as error:
        text = f"the rescue file cannot be read: {error.strerror or error}"
        return None, [Problem("unreadable", path.name, None, text, False)]


def _next_chunk(follower: Follower) -> bytes:
    try:
        return follower.read(follower.offset, CHUNK)
    except OSError:
        return b""


def _advance(follower: Follower, consumed: int, read: int) -> None:
    follower.consume(follower.offset + consumed)
    if consumed == 0 or read < CHUNK:
        # What is left is an incomplete line: wait until the file grows.
        follower.size = follower.offset


def shared_jobstate_logs(dags: list[Dag]) -> frozenset[str]:
    """Return the jobstate logs named by several DAGs of one directory."""
    logs = Counter((dag.workflow.directory, dag.workflow.jobstate_log) for dag in dags)
    return frozenset(name for (_, name), number in logs.items() if name and number > 1)
