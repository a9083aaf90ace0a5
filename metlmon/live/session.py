"""Reads a dagdir in a background thread and publishes immutable snapshots.

:class:`Session` follows it, :class:`HistoricalSession` reads it as it was at a given time.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.errors import InputError, describe_error
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Feed, JobFiles
from metlmon.live.file_access import FsExecutor, calls_through
from metlmon.live.job_files import TrainingFiles
from metlmon.model.job_events import NodeKey
from metlmon.model.model_state import Notice
from metlmon.model.run import Runs
from metlmon.remote.paths import NoAnswer
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import (
    DagDescription,
    Job,
    JobView,
    Ledger,
    NodeRow,
    Nodes,
    RunView,
    Snapshot,
)

if TYPE_CHECKING:
    from metlmon.snapshot.node_tree import DagNodes

POLL_SECONDS: Final = 0.9
"""Interval of ``stat`` of the known files: inotify misses writes of other NFS clients. Costs
0.05 % of a core."""

SNAPSHOT_SECONDS: Final = 0.2
"""Minimum interval between snapshots of changes: more would not be seen, but costs bytes."""

SLICE_SECONDS: Final = 0.01
"""Length of one slice of background work, before the UI may use the model."""

INTERVAL_FACTOR: Final = 5.0
IDLE_INTERVAL_FACTOR: Final = 100.0
"""Minimum interval between snapshots as a multiple of a snapshot's cost: building them takes at
most a fifth of a core when data changes, a hundredth when only the clock does."""

FAILURE_PAUSE_SECONDS: Final = 5.0
"""Pause after an unexpected exception: its cause may go away, and repeated failures must not take
a core."""

CLOCK_SECONDS: Final = POLL_SECONDS
"""Interval of snapshots for the clock alone: as often as checks; any longer skips every other."""

UNATTENDED_CLOCK_SECONDS: Final = 5.0
"""The same while unattended: still visibly alive at a glance."""

STOP_SECONDS: Final = 5.0
"""How long :meth:`Session.stop` waits for the threads."""


class PriorityLock:
    """A lock whose foreground users (the UI) take precedence over its background threads.

    Background threads hold it for some milliseconds at a time. With a plain lock, the thread that
    has just released it would acquire it again before another thread wakes up.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._count_lock = threading.Lock()
        self._foreground_count = 0
        self.no_foreground = threading.Event()
        """Cleared while a foreground user waits."""
        self.no_foreground.set()
        self.exclusive = threading.RLock()
        """Held by threads that change the model, and by threads that need it unchanged across
        several background slices."""

    @contextmanager
    def foreground(self) -> Iterator[None]:
        """Acquire for the UI; wait for the current background slice only."""
        with self._count_lock:
            self._foreground_count += 1
            self.no_foreground.clear()
        self._lock.acquire()
        with self._count_lock:
            self._foreground_count -= 1
            if not self._foreground_count:
                self.no_foreground.set()
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def background(self) -> Iterator[None]:
        """Acquire for one background slice, some milliseconds long."""
        self.no_foreground.wait()
        with self._lock:
            yield


class Session(Feed):
    """The feed of what a :class:`DagdirReader` reads."""

    FAILURE_TEXT = "reading failed and is tried again"

    def __init__(self, reader: DagdirReader) -> None:
        self._reader = reader
        self._lock = PriorityLock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._watch_thread: threading.Thread | None = None
        self._directory_watcher: DirectoryWatcher | None = None
        self._unattended = False
        self._latest: Snapshot | None = None
        self._builder: SnapshotBuilder | None = None
        self._dag_description: tuple[Runs, Nodes] | None = None
        self._snapshot_seconds = self._tick_seconds = 0.0
        self._changed_outside = False
        """Whether the queue or an annex has brought something new since the last step."""
        self._files = FsExecutor(self._wake.set)
        self._training_files = TrainingFiles(reader.dagdir, self.settings)
        self._job_files = JobFiles()

    @property
    def dagdir(self) -> Path:
        return self._reader.dagdir

    @property
    def latest(self) -> Snapshot | None:
        return self._latest

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Start the reader thread; see :class:`Feed`."""
        # Without a free file descriptor, polling every second still works.
        with suppress(OSError):
            self._directory_watcher = DirectoryWatcher()
        self._thread = threading.Thread(
            target=self._run, args=(notify,), name="metlmon-reader", daemon=True
        )
        self._thread.start()
        if self._directory_watcher is not None:
            self._watch_thread = threading.Thread(
                target=self._watch,
                args=(self._directory_watcher,),
                name="metlmon-wake",
                daemon=True,
            )
            self._watch_thread.start()

    def _watch(self, directory_watcher: DirectoryWatcher) -> None:
        try:
            with calls_through(self._files):
                folders = self._reader.watched_directories()
            directory_watcher.run(folders, self._wake.set)
        except Exception as error:
            message = "watching for changes failed; files are checked every second"
            text = describe_error(message, error)
            self._reader.extra_notices.append(Notice("mishap", None, None, text))
            self._changed_outside = True
            self._wake.set()

    def stop(self) -> None:
        """Stop the threads; return when reading has ended.

        Do not wait for a thread blocked by a hung file system, which ends with the process.
        """
        self._stop.set()
        self._wake.set()
        self._files.close()
        if self._directory_watcher is not None:
            self._directory_watcher.stop()
        deadline = time.monotonic() + STOP_SECONDS
        self._join(self._thread, deadline)
        self._join(self._watch_thread, deadline)

    def _join(self, thread: threading.Thread | None, deadline: float) -> None:
        """Join another thread until the deadline; only briefly if a call is pending."""
        if thread is not None and thread is not threading.current_thread():
            timeout = 0.0 if self._files.has_hung_call else deadline - time.monotonic()
            thread.join(timeout=max(SNAPSHOT_SECONDS, timeout))

    def run_view(self, key: str) -> RunView | None:
        with self._lock.foreground():
            return self._current_builder().run_view(key)

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        with self._lock.foreground():
            return self._current_builder().job_view(cluster, proc)

    def dag_nodes(self) -> tuple[DagNodes, ...]:
        with self._lock.foreground():
            return self._current_builder().dag_nodes()

    def node_row(self, key: NodeKey) -> NodeRow | None:
        with self._lock.foreground():
            return self._current_builder().node_row(key)

    def queued_jobs(self, run: str | None = None) -> tuple[Job, ...]:
        with self._lock.foreground():
            return self._current_builder().queued_jobs(run)

    @property
    def settings(self) -> Settings:
        return self._reader.ensemble.settings

    def ledger(self) -> Ledger:
        return self._builder_with_ledger().ledger()

    def dag_description(self) -> DagDescription:
        with self._lock.foreground():
            builder, known = self._current_builder(), self._dag_description
            same = known is not None and known[0] is builder.runs
            description = builder.dag_description(known[1] if known is not None and same else None)
            self._dag_description = builder.runs, description.nodes
            return description

    def job_files(self) -> JobFiles:
        builder = self._builder_with_ledger()
        # While the file system does not answer, keep what was read before.
        with suppress(NoAnswer):
            self._job_files = self._training_files.read(builder)
        return self._job_files

    def _builder_with_ledger(self) -> SnapshotBuilder:
        """Return the current builder with its ledger built; nothing is read meanwhile."""
        with self._lock.exclusive, self._lock.background():
            builder = self._current_builder()
            builder.ledger()
            return builder

    def historical(self, moment: datetime) -> Feed:
        path, logs = Path(self._reader.path_given), self._reader.logs
        reader = DagdirReader(path, self.settings, logs=logs, as_of=moment)
        try:
            with calls_through(self._files):
                reader.open()
        except NoAnswer as error:
            raise InputError(error.describe()) from None
        return HistoricalSession(reader)

    def set_in_queue(self, present: bool) -> None:
        with self._lock.foreground():
            if self._reader.in_queue != present:
                self._reader.in_queue = present
                self._changed_outside = True
                self._wake.set()

    def set_annex_ends(self, ends: Mapping[str, Iterable[float]]) -> None:
        with self._lock.foreground():
            if self._reader.ensemble.add_annex_ends(ends):
                self._changed_outside = True
                self._wake.set()

    def set_unattended(self, unattended: bool) -> None:
        self._unattended = unattended
        if not unattended:
            self._wake.set()

    def take(self) -> Snapshot:
        """Build one snapshot without the reader thread; it becomes the latest."""
        self._publish(lambda snapshot: None)
        assert self._latest is not None
        return self._latest

    def _current_builder(self) -> SnapshotBuilder:
        """Return the builder of the current snapshot; create it if needed."""
        if self._builder is None:
            self._builder = self._reader.snapshot_builder()
        return self._builder

    # --- the reading thread -------------------------------------------------------------

    def _run(self, notify: Callable[[Snapshot], None]) -> None:
        with calls_through(self._files):
            while not self._stop.is_set():
                try:
                    self._read(notify)
                except Exception as error:  # Continue: a monitor must survive the night.
                    self._publish_failure(notify, error)
                    self._stop.wait(FAILURE_PAUSE_SECONDS)

    def _publish_failure(self, notify: Callable[[Snapshot], None], error: Exception) -> None:
        """Publish the last snapshot again, with an unexpected exception as its error."""
        if self._latest is None:
            # Nothing was shown yet: build a snapshot that can carry the error.
            with suppress(Exception):
                self._publish(lambda snapshot: None)
        if self._latest is not None:
            self._latest = replace(self._latest, error=describe_error(self.FAILURE_TEXT, error))
            # It may be notify that failed.
            with suppress(Exception):
                notify(self._latest)

    def _read(self, notify: Callable[[Snapshot], None]) -> None:
        """Read, publish snapshots and wait, until stopped."""
        published_at = changed_at = checked_at = 0.0
        dirty = first = True
        while not self._stop.is_set():
            now = time.monotonic()
            if first or now - checked_at >= POLL_SECONDS or self._wake.is_set():
                self._wake.clear()
                # Statuses are fetched before the lock makes the UI wait.
                with (
                    self._lock.exclusive,
                    self._files.prefetched(),
                    self._lock.background(),
                ):
                    dirty |= self._reader.check()
                checked_at = now
            with self._lock.exclusive, self._lock.background():
                step = self._reader.step(SLICE_SECONDS)
                dirty |= step.changed or self._changed_outside
                self._changed_outside = False
            pause = max(SNAPSHOT_SECONDS, self._snapshot_seconds * INTERVAL_FACTOR)
            live = self._latest is not None and self._latest.status.live
            tick = UNATTENDED_CLOCK_SECONDS if self._unattended else CLOCK_SECONDS
            tick = max(tick, self._tick_seconds * IDLE_INTERVAL_FACTOR)
            due = dirty or (live and time.monotonic() - published_at >= tick)
            due |= self._latest is not None and self._latest.error != self._reader.error
            # A recent clock tick must not delay a real change.
            remaining = changed_at + pause - time.monotonic()
            if due and (first or remaining <= 0):
                self._publish(notify)
                published_at = time.monotonic()
                if dirty:
                    changed_at = published_at
                dirty = first = False
            if not step.more:
                if dirty:
                    # No snapshot is due before, so a wake-up would only cost time.
                    self._stop.wait(max(0.0, min(remaining, POLL_SECONDS)))
                else:
                    self._wake.wait(POLL_SECONDS)

    def _publish(self, notify: Callable[[Snapshot], None]) -> None:
        started = time.thread_time()
        with self._lock.exclusive:
            done = False
            while not done:
                with self._lock.background():
                    done = self._reader.update(SLICE_SECONDS)
            with self._lock.background():
                updated = time.thread_time()
                self._builder = self._reader.snapshot_builder()
                status = self._builder.status()
                # The cost of a snapshot for the clock alone.
                self._tick_seconds = time.thread_time() - updated
                progress = self._reader.progress()
        self._snapshot_seconds = time.thread_time() - started
        snapshot = Snapshot(status, progress, self._reader.error)
        self._latest = snapshot
        notify(snapshot)


class HistoricalSession(Session):
    """A session on a reader with an ``as_of``, which reads a dagdir once.

    Its thread ends when everything up to that time is read; nothing is polled.
    """

    FAILURE_TEXT = "reading what was then failed"

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Start the reader thread; snapshots before the last show the progress of reading."""
        self._thread = threading.Thread(
            target=self._run, args=(notify,), name="metlmon-past", daemon=True
        )
        self._thread.start()

    def _run(self, notify: Callable[[Snapshot], None]) -> None:
        try:
            with calls_through(self._files):
                self._read(notify)
        except Exception as error:  # As in Session: show it and continue.
            self._publish_failure(notify, error)

    def _read(self, notify: Callable[[Snapshot], None]) -> None:
        published_at, more = time.monotonic(), True
        while more and not self._stop.is_set():
            with self._lock.exclusive, self._lock.background():
                more = self._reader.step(SLICE_SECONDS).more
            pause = max(SNAPSHOT_SECONDS, INTERVAL_FACTOR * self._snapshot_seconds)
            if not more or time.monotonic() - published_at >= pause:
                self._publish(notify)
                published_at = time.monotonic()


# --- watching for changes --------------------------------------------------------------------

_MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0x40 | 0x80, 0x100, 0x200
_CHANGES: Final = _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE
"""Source followed: ``sys/inotify.h``."""

_NONBLOCK_CLOEXEC: Final = os.O_NONBLOCK | os.O_CLOEXEC

_PAUSE: Final = 0.02
"""Minimum seconds between two wake-ups: at most fifty a second for a busy log."""

_READ: Final = 1 << 16


class DirectoryWatcher:
    """Reports changes in directories, in the thread that calls :meth:`run` (once).

    On Linux inotify(7) reports writes of this machine, but not those of other clients of a network
    file system; this is therefore only an early wake-up for a reader that polls.

    watchfiles costs little, 0.2 % of a core when idle, and is 30 ms slower. But it holds the
    interpreter lock while it adds a directory: a file system that does not answer would stop the
    whole program (``tests/faults/test_stalls.py``). It is used on other systems only.
    """

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._stop_reader, self._stop_writer = os.pipe()

    def run(self, directories: Iterable[Path], notify: Callable[[], None]) -> None:
        """Call ``notify`` after each change in ``directories``, until :meth:`stop`."""
        try:
            with _inotify(directories) as descriptor:
                self._read_events(descriptor, notify)
        except (OSError, AttributeError):
            self._poll(directories, notify)
        finally:
            os.close(self._stop_reader)

    def stop(self) -> None:
        """Make :meth:`run` return, even if it is called later."""
        if not self._stopped.is_set():
            self._stopped.set()
            os.close(self._stop_writer)

    def _read_events(self, descriptor: int, notify: Callable[[], None]) -> None:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self._stop_reader, select.POLLIN)
        while not self._stopped.is_set():
            poll.poll()
            if self._stopped.is_set():
                break
            # Discard the events: only the fact of a change matters.
            with suppress(BlockingIOError):
                while os.read(descriptor, _READ):
                    pass
            notify()
            self._stopped.wait(_PAUSE)

    def _poll(self, folders: Iterable[Path], notify: Callable[[], None]) -> None:
        try:
            from watchfiles import watch

            for _ in watch(
                *folders,
                stop_event=self._stopped,
                recursive=False,
                debounce=50,
                step=20,
                rust_timeout=500,
                raise_interrupt=False,
            ):
                notify()
        except (ImportError, OSError, RuntimeError):
            return


@contextmanager
def _inotify(folders: Iterable[Path]) -> Iterator[int]:
    """Yield an inotify descriptor, readable after each change.

    Raises OSError if the kernel has none left, AttributeError on other systems than Linux.
    """
    import ctypes  # Takes 10 ms: import only when watching.

    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.inotify_init1(_NONBLOCK_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    try:
        for folder in folders:
            if library.inotify_add_watch(descriptor, os.fsencode(folder), _CHANGES) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", str(folder))
        yield descriptor
    finally:
        os.close(descriptor)
