"""Reads many ensembles one after another, in small steps, and follows the live ones.

One ensemble is read at a time. Only the summary of a finished one is kept, with the sizes and times
of its files: it is read again when these change. The readers of live ones are kept, up to
``FOLLOWED_BYTES`` of logs in total; the others are read again, at a rate that costs little.
Not thread-safe; made for the process of :mod:`metlmon.home.worker`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.config.loader import load_settings
from metlmon.config.user_state import state_path
from metlmon.errors import InputError, describe_error, unusable_path
from metlmon.health.changes import PURPOSE
from metlmon.home.finder import NOTHING_HERE, FoundDagdir, find_dagdirs
from metlmon.home.summary import HomeSummary, Phase, make_figures
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.file_access import (
    FsExecutor,
    call_with_timeout,
    calls_through,
    stat_all,
)
from metlmon.memory import gc_paused
from metlmon.remote.paths import Disconnected, NoAnswer

STEP_SECONDS: Final = 0.05
"""Length of one step, between which commands are answered."""

SEARCH_SECONDS: Final = 10.0
"""Interval of the search for new dagdirs; at least ``SHARE`` times the duration of a search."""

FOLLOW_SECONDS: Final = 3.0
"""Interval at which the files of live ensembles are checked."""

CHECK_SECONDS: Final = 30.0
"""The same for ensembles that are not followed."""

CLOCK_SECONDS: Final = 900.0
"""Age at which the figures of a live ensemble are recomputed although nothing changed."""

VISIT_SECONDS: Final = 1.0
"""Pause before an ensemble at which the user has looked is checked."""

RETRY_SECONDS: Final = 30.0
"""Pause before a directory that could not be read is tried again."""

CONNECTION_RETRY_SECONDS: Final = 3.0
"""The same after a lost connection, which may be back."""

SHARE: Final = 20.0
"""Pause after updating an ensemble, and after a search, as a multiple of their duration: repeated
work takes a twentieth of a core, however many ensembles there are."""

PROGRESS_SECONDS: Final = 0.25
"""Interval at which progress of a reading is reported."""

FOLLOWED_BYTES: Final = 60 << 20
"""Maximum bytes of logs with open readers; a reader needs several times its logs in memory."""

SIDE_FILES: Final = (".dagman.out", ".metrics", ".halt")
"""Suffixes of DAGMan's files that may change without an event in a log."""

MAX_STORED: Final = 500
"""Maximum summaries stored for later sessions; the oldest ones are dropped first."""

Signature = tuple[tuple[str, int, int], ...]
"""Size and modification time in nanoseconds of files and directories, by path."""


class StoredSummary(Struct, frozen=True):
    """A summary for the next session, with the signature of its files."""

    summary: HomeSummary
    signature: Signature


class HomeUpdate(Struct, frozen=True, kw_only=True):
    """What has changed: summaries, and paths that are gone.

    ``searching``: the first search for dagdirs is in progress; ``more``: paths below which there
    are more directories than are searched; ``queue_error``: why the queue did not answer.
    """

    summaries: tuple[HomeSummary, ...] = ()
    removed: tuple[str, ...] = ()
    searching: bool = False
    more: tuple[str, ...] = ()
    queue_error: str | None = None


class _Entry:
    """One ensemble: its summary, and what is needed to bring it up to date."""

    def __init__(self, path: str) -> None:
        self.summary = HomeSummary(path=path)
        self.signature: Signature = ()
        self.reader: DagdirReader | None = None
        self.files: FsExecutor | None = None
        self.due = 0.0
        self.figures_at = self.changed_at = float("-inf")

    @property
    def path(self) -> str:
        return self.summary.path

    @property
    def is_live(self) -> bool:
        figures = self.summary.figures
        return figures is not None and figures.live

    def close(self) -> None:
        """Close the reader and drop it."""
        self.reader = None
        if self.files is not None:
            self.files.close()
            self.files = None


class HomeReader:
    """The ensembles of Home.

    ``notify`` gets the changes, at most one update per turn and ``update_seconds``.
    ``stored``: summaries of an earlier session. ``clock`` returns seconds, like
    :func:`time.monotonic`.
    """

    def __init__(
        self,
        notify: Callable[[HomeUpdate], None],
        stored: Iterable[StoredSummary] = (),
        clock: Callable[[], float] = time.monotonic,
        update_seconds: float = 0.0,
    ) -> None:
        self._notify = notify
        self._clock = clock
        self._update_seconds = update_seconds
        self._notified_at = float("-inf")
        self._stored = {each.summary.path: each for each in stored}
        self._paths: tuple[str, ...] | None = None
        self._quiet: str | None = None
        self._entries: dict[str, _Entry] = {}
        self._search: Iterator[FoundDagdir | None] | None = None
        self._search_cost = 0.0
        self._interrupted = False
        self._rest_until = float("-inf")
        self._next_search = float("inf")
        self._searched_once = False
        self._found: set[str] = set()
        self._more: tuple[str, ...] = ()
        self._current: Iterator[None] | None = None
        self._changed: dict[str, HomeSummary] = {}
        self._removed: list[str] = []
        self._state_changed = True
        self._queue_error: str | None = None

    def set_paths(
        self, paths: Iterable[str], quiet: str | None = None, queue_error: str | None = None
    ) -> None:
        """Set the absolute paths below which ensembles are searched, and search them now.

        ``quiet``: one of them that gets no line unless there is an ensemble below it.
        """
        self._quiet = quiet
        paths = tuple(dict.fromkeys(paths))
        if paths != self._paths:
            self._paths = paths
            self._search, self._next_search = None, float("-inf")
        if queue_error != self._queue_error:
            self._queue_error, self._state_changed = queue_error, True

    def look_again(self, path: str) -> None:
        """Check the files of an ensemble soon; what the user has seen is just being written."""
        entry = self._entries.get(path)
        if entry is not None:
            entry.due = min(entry.due, self._clock() + VISIT_SECONDS)

    def stored(self) -> list[StoredSummary]:
        """The summaries to be stored for the next session."""
        read = {
            path: StoredSummary(entry.summary, entry.signature)
            for path, entry in self._entries.items()
            if entry.signature and entry.summary.phase is Phase.READ
        }
        others = {path: each for path, each in self._stored.items() if path not in read}
        return [*others.values(), *read.values()][-MAX_STORED:]

    def turn(self) -> float:
        """Do one step of work; return the seconds until the next is due, 0 for immediately."""
        now = self._clock()
        pause = self._step(now)
        if self._changed or self._removed or self._state_changed:
            due_in = self._notified_at + self._update_seconds - now
            if due_in > 0:
                return min(pause, due_in)
            update = HomeUpdate(
                summaries=tuple(self._changed.values()),
                removed=tuple(self._removed),
                searching=not self._searched_once,
                more=self._more,
                queue_error=self._queue_error,
            )
            self._changed, self._removed, self._state_changed = {}, [], False
            self._notified_at = now
            self._notify(update)
        return pause

    def _step(self, now: float) -> float:
        if self._search is None and now >= self._next_search:
            self._search = find_dagdirs(self._paths or ())
            self._search_cost, self._found, self._interrupted = 0.0, set(), False
            self._state_changed |= not self._searched_once
        if self._search is not None and (self._current is None or not self._searched_once):
            self._search_some(self._search)
            return 0.0
        if self._current is not None:
            if next(self._current, self) is self:
                self._current = None
            return 0.0
        due = min(self._entries.values(), key=self._due_time, default=None)
        if due is not None and self._due_time(due) <= now:
            self._current = self._bring_up_to_date(due)
            return 0.0
        times = [self._next_search, *map(self._due_time, self._entries.values())]
        return max(0.0, min(times) - now)

    def _due_time(self, entry: _Entry) -> float:
        """When the entry is due; one that was read before also waits for the common pause."""
        is_read = entry.summary.phase is Phase.READ
        return max(entry.due, self._rest_until) if is_read else entry.due

    # --- the search -----------------------------------------------------------------------

    def _search_some(self, search: Iterator[FoundDagdir | None]) -> None:
        started = self._clock()
        while self._clock() - started < STEP_SECONDS:
            finding = next(search, self)
            if finding is self:
                self._search_cost += self._clock() - started
                self._end_search()
                return
            if isinstance(finding, FoundDagdir) and finding.more:
                self._more = tuple(dict.fromkeys((*self._more, finding.path)))
                self._state_changed = True
            elif isinstance(finding, FoundDagdir):
                if finding.path == self._quiet and finding.error == NOTHING_HERE:
                    continue
                below = {path for path in self._entries if Path(path).is_relative_to(finding.path)}
                self._interrupted |= finding.interrupted
                if finding.interrupted and below:
                    self._found |= below
                else:
                    self._found.add(finding.path)
                    self._add(finding)
        self._search_cost += self._clock() - started

    def _add(self, finding: FoundDagdir) -> None:
        """Add or update the line of a finding."""
        entry = self._entries.get(finding.path)
        if entry is None:
            entry = self._entries[finding.path] = _Entry(finding.path)
            # Those that changed last are read first.
            entry.due = -finding.modified
            self._changed[finding.path] = entry.summary
            stored = self._stored.get(finding.path)
            if stored is not None and finding.error is None:
                self._show_stored(entry, stored)
        if finding.error is not None:
            entry.close()
            entry.signature, entry.due = (), float("inf")
            self._show(entry, Phase.UNREADABLE, error=finding.error)
        elif entry.due == float("inf"):
            entry.due = 0.0

    def _show_stored(self, entry: _Entry, stored: StoredSummary) -> None:
        """Show the summary of an earlier session, which is valid if the files are the same."""
        same = _is_current(stored.signature)
        entry.summary = stored.summary
        self._show(entry, Phase.READ if same else Phase.STORED)
        if same and not entry.is_live:
            entry.signature = stored.signature
            entry.due = self._clock() + CHECK_SECONDS

    def _end_search(self) -> None:
        self._search = None
        self._state_changed |= not self._searched_once
        self._searched_once = True
        pause = CONNECTION_RETRY_SECONDS if self._interrupted else SEARCH_SECONDS
        self._next_search = self._clock() + max(pause, SHARE * self._search_cost)
        for path in self._entries.keys() - self._found:
            self._entries.pop(path).close()
            self._changed.pop(path, None)
            self._removed.append(path)

    # --- one ensemble ---------------------------------------------------------------------

    def _bring_up_to_date(self, entry: _Entry) -> Iterator[None]:
        """Read an ensemble, or check its files, in steps; any error is shown in its line."""
        started, again = time.thread_time(), entry.summary.phase is Phase.READ
        try:
            if entry.reader is not None:
                yield from self._follow(entry, entry.reader)
            elif self._is_unchanged(entry):
                entry.due = self._clock() + CHECK_SECONDS
                return
            else:
                yield from self._read(entry)
        except NoAnswer as error:
            is_lost = isinstance(error, Disconnected)
            pause = CONNECTION_RETRY_SECONDS if is_lost else RETRY_SECONDS
            self._fail(entry, error.describe(), pause)
        except InputError as error:
            self._fail(entry, str(error))
        except OSError as error:
            known = unusable_path(error)
            self._fail(entry, str(known) if known else describe_error("reading failed", error))
        except Exception as error:  # One ensemble must not stop the others.
            self._fail(entry, describe_error("reading failed", error))
        if again:
            self._rest_until = self._clock() + SHARE * (time.thread_time() - started)

    def _fail(self, entry: _Entry, error: str, pause: float = RETRY_SECONDS) -> None:
        entry.close()
        entry.signature, entry.due = (), self._clock() + pause
        # The line does not repeat the path of its own directory.
        self._show(entry, Phase.UNREADABLE, error=error.removeprefix(f"{entry.path}: "))

    def _is_unchanged(self, entry: _Entry) -> bool:
        old = self._clock() - entry.figures_at > CLOCK_SECONDS
        if not entry.signature or (entry.is_live and old):
            return False
        return _is_current(entry.signature)

    def _read(self, entry: _Entry) -> Iterator[None]:
        path = Path(entry.path)
        entry.files = FsExecutor(lambda: None)
        with calls_through(entry.files):
            settings = call_with_timeout(load_settings, path)
            reader = DagdirReader(path, settings)
            reader.open()
            before = signature(_read_files(reader))
        yield
        shown_at = 0.0
        for _ in self._steps(entry, reader):
            if self._clock() - shown_at >= PROGRESS_SECONDS and not entry.summary.figures:
                shown_at, progress = self._clock(), reader.progress()
                fraction = progress.fraction
                self._show(entry, Phase.READING, fraction=fraction, size=progress.total)
            yield
        self._show_figures(entry, reader)
        entry.signature = before
        if entry.is_live and reader.progress().total <= FOLLOWED_BYTES:
            entry.reader, entry.changed_at = reader, self._clock()
            entry.due = self._clock() + FOLLOW_SECONDS
            del reader
            self._limit_followed()
        else:
            entry.close()
            del reader
            entry.due = self._clock() + CHECK_SECONDS
        # A model has cycles, and its memory is needed for the next one.
        gc.collect()

    def _follow(self, entry: _Entry, reader: DagdirReader) -> Iterator[None]:
        assert entry.files is not None
        with calls_through(entry.files), entry.files.prefetched():
            changed = reader.check()
        for step_changed in self._steps(entry, reader):
            changed |= step_changed
            yield
        now = self._clock()
        if changed:
            entry.changed_at = now
        seen = last_seen_file(reader)
        changed |= seen is not None and not set(signature([str(seen)])) <= set(entry.signature)
        old = now - entry.figures_at > CLOCK_SECONDS
        if changed or old or reader.error != entry.summary.error:
            with calls_through(entry.files):
                entry.signature = signature(_read_files(reader))
            self._show_figures(entry, reader)
        entry.due = self._clock() + FOLLOW_SECONDS
        if not entry.is_live:
            entry.close()

    def _steps(self, entry: _Entry, reader: DagdirReader) -> Iterator[bool]:
        """Read what is unread, then update the totals; yield whether a step changed anything."""
        assert entry.files is not None
        more = True
        while more:
            with calls_through(entry.files), gc_paused(once=False):
                step = reader.step(STEP_SECONDS)
            more = step.more
            yield step.changed
        done = False
        while not done:
            with gc_paused(once=False):
                done = reader.update(STEP_SECONDS)
            yield False

    def _show_figures(self, entry: _Entry, reader: DagdirReader) -> None:
        with gc_paused(once=False):
            figures = make_figures(reader)
        entry.figures_at = self._clock()
        entry.summary = replace(entry.summary, figures=figures)
        self._show(entry, Phase.READ, error=reader.error, size=reader.progress().total)

    def _show(
        self,
        entry: _Entry,
        phase: Phase,
        *,
        error: str | None = None,
        fraction: float = 1.0,
        size: int | None = None,
    ) -> None:
        """Change the summary of an ensemble, and mark it as changed."""
        before = entry.summary
        entry.summary = replace(
            before,
            phase=phase,
            error=error,
            fraction=fraction,
            size=before.size if size is None else size,
        )
        if entry.summary != before or phase is Phase.READ:
            self._changed[entry.path] = entry.summary

    def _limit_followed(self) -> None:
        """Close the readers of the live ensembles whose last change is the oldest."""
        followed = [entry for entry in self._entries.values() if entry.reader is not None]
        followed.sort(key=lambda entry: entry.changed_at)
        total = sum(entry.summary.size for entry in followed)
        for entry in followed:
            if total <= FOLLOWED_BYTES:
                break
            total -= entry.summary.size
            entry.close()


def _is_current(known: Signature) -> bool:
    """Whether the files still have this signature; False if the file system does not answer."""
    files = FsExecutor(lambda: None)
    try:
        with calls_through(files):
            return signature(path for path, _, _ in known) == known
    except NoAnswer:
        return False
    finally:
        files.close()


def signature(paths: Iterable[str]) -> Signature:
    """The signature of these files; a missing one has size -1. Raises NoAnswer."""
    return tuple(
        (str(path), -1, -1)
        if isinstance(status, OSError)
        else (str(path), status.st_size, status.st_mtime_ns)
        for path, status in stat_all(map(Path, paths)).items()
    )


def _read_files(reader: DagdirReader) -> list[str]:
    """The files and directories whose changes may affect the figures."""
    paths = set(reader.watched_directories())
    paths.update(reader.log_paths())
    for dag in reader.ensemble.dags.values():
        paths.update(dag.workflow.files)
        # Jobs without a DAG belong to a workflow without a file.
        paths.update(Path(f"{dag.workflow.path}{s}") for s in SIDE_FILES if dag.workflow.files)
    paths.add(reader.dagdir / "metlmon.toml")
    if (seen := last_seen_file(reader)) is not None:
        paths.add(seen)
    return sorted(map(str, paths))


def last_seen_file(reader: DagdirReader) -> Path | None:
    """The file that remembers what the user has seen of the ensemble."""
    return state_path(PURPOSE, Path(reader.path_given))
