"""The ensemble, live: a thread that reads, and immutable pictures for whoever looks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metlmon.error_text import describe_error
from metlmon.jobfiles.records import Streamed, TrainingOutput
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.errors import InputError
from metlmon.live.feed import Feed, Snapshot
from metlmon.live.fs_timeout import FsExecutor, FsTimeout, calls_through
from metlmon.live.job_files import TrainingFiles
from metlmon.live.priority_lock import PriorityLock
from metlmon.live.watcher import DirectoryWatcher
from metlmon.model.job_events import JobId, NodeKey
from metlmon.model.run import Runs
from metlmon.model.settings import Settings
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.dag_description import DagDescription, Nodes, described
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.types import JobRow, JobView, NodeRow, Notice, ProblemGroup, RunView

if TYPE_CHECKING:
    from metlmon.live.cache_entry import CacheWrite
    from metlmon.snapshot.node_tree import DagNodes

POLL_SECONDS: Final = 0.9
"""``stat`` of the known files this often is the truth: inotify does not see what another NFS
client wrote. It costs a twentieth of a per cent of a core."""

PICTURE_SECONDS: Final = 0.1
"""At least this long between two pictures: nobody reads faster."""

LOADING_PICTURE_SECONDS: Final = 0.25
"""While the first reading goes on, pictures are rarer: they take time from it."""

TURN_SECONDS: Final = 0.01
"""For so long reading and adding up go on before a screen's question gets its turn."""

SHARE_MOVING: Final = 5.0
SHARE_IDLE: Final = 100.0
"""A picture of a large ensemble takes long to draw: the next waits for so many times as long,
so that drawing takes a fifth of a core while things happen, a hundredth while only time does."""

FAILURE_PAUSE_SECONDS: Final = 5.0
"""After a failure that nobody foresaw reading rests for this long: what caused it may pass,
and a loop of failures must not take a core."""

KEEP_SECONDS: Final = 300.0
"""What was read is kept for the next session at most this often, and when this one ends."""

CLOCK_SECONDS: Final = POLL_SECONDS
"""How often a live picture is drawn anew only because time went by: at each look, or it would be
at every second one."""


STOP_SECONDS: Final = 5.0
"""For so long the end waits for what was read to be kept: a large model takes a second or two."""

REST_SECONDS: Final = 5.0
"""How often that is while nobody looks: the least for which one who glances over sees that it
lives."""


NOT_KEPT: Final = "what was read could not be kept for the next time"


class Session:
    """Implements :class:`metlmon.live.feed.Feed` over a :class:`DagdirReader`."""

    FAILED = "reading failed and is tried again"

    def __init__(self, reader: DagdirReader) -> None:
        self._reader = reader
        self._turns = PriorityLock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._watcher: threading.Thread | None = None
        self._wakeup: DirectoryWatcher | None = None
        self._resting = False
        self._latest: Snapshot | None = None
        self._painter: SnapshotBuilder | None = None
        self._described: tuple[Runs, Nodes] | None = None
        self._cost = self._tick_cost = 0.0
        self._told = False
        self._kept = -KEEP_SECONDS
        self._keeper: threading.Thread | None = None
        self._files = FsExecutor(self._wake.set)
        self._written = TrainingFiles(reader.dagdir, self.settings)

    @property
    def dagdir(self) -> Path:
        return self._reader.dagdir

    @property
    def latest(self) -> Snapshot | None:
        return self._latest

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Begin to read, in a thread of its own; see :class:`Feed`."""
        # With no descriptor left for it, files are looked at every second all the same.
        with suppress(OSError):
            self._wakeup = DirectoryWatcher()
        self._thread = threading.Thread(
            target=self._run, args=(notify,), name="metlmon-reader", daemon=True
        )
        self._thread.start()
        if self._wakeup is not None:
            self._watcher = threading.Thread(
                target=self._await_changes, args=(self._wakeup,), name="metlmon-wake", daemon=True
            )
            self._watcher.start()

    def _await_changes(self, wakeup: DirectoryWatcher) -> None:
        try:
            with calls_through(self._files):
                folders = self._reader.watched()
            wakeup.run(folders, self._wake.set)
        except Exception as error:
            self._remark("being told of changes failed; files are looked at every second", error)

    def _remark(self, what: str, error: Exception) -> None:
        """Called in any thread: what went wrong costs no more than time."""
        self._reader.remarks[what] = Notice("mishap", None, None, describe_error(what, error))
        self._told = True
        self._wake.set()

    def stop(self) -> None:
        """End the threads; returns when reading has ended. A thread that waits for a file system
        that does not answer is not waited for: it ends with the program."""
        self._stop.set()
        self._wake.set()
        self._files.close()
        if self._wakeup is not None:
            self._wakeup.end()
        until = time.monotonic() + STOP_SECONDS
        self._join(self._thread, until)
        # Asked for only now: the one that keeps the last of it is begun by the one that reads.
        self._join(self._keeper, until)
        self._join(self._watcher, until)

    def _join(self, thread: threading.Thread | None, until: float) -> None:
        """Wait for another thread to end until then, if there is hope that it does."""
        if thread is not None and thread is not threading.current_thread():
            patience = 0.0 if self._files.stuck else until - time.monotonic()
            thread.join(timeout=max(PICTURE_SECONDS, patience))

    def run_view(self, key: str) -> RunView | None:
        with self._turns.asking():
            return self._paint().run_view(key)

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        with self._turns.asking():
            return self._paint().job_view(cluster, proc)

    def nodes(self) -> tuple[DagNodes, ...]:
        with self._turns.asking():
            return self._paint().nodes_now()

    def node_row(self, key: NodeKey) -> NodeRow | None:
        with self._turns.asking():
            return self._paint().node_row(key)

    def problems(self) -> tuple[ProblemGroup, ...]:
        with self._turns.asking():
            return self._paint().problems()

    def queued(self, run: str | None = None) -> tuple[JobRow, ...]:
        with self._turns.asking():
            return self._paint().queued(run)

    @property
    def settings(self) -> Settings:
        return self._reader.ensemble.settings

    def ledger(self) -> Ledger:
        return self._book()[1]

    def described(self) -> DagDescription:
        with self._turns.asking():
            painter, known = self._paint(), self._described
            same = known is not None and known[0] is painter.runs
            told = described(painter, known[1] if known is not None and same else None)
            self._described = painter.runs, told.nodes
            return told

    def trainings(self) -> Mapping[str, TrainingOutput]:
        painter, ledger = self._book()
        return self._written.trainings(ledger, painter)

    def streams(self) -> Mapping[JobId, Streamed]:
        painter, ledger = self._book()
        return self._written.streams(ledger, painter)

    def _book(self) -> tuple[SnapshotBuilder, Ledger]:
        """The ledger of the picture that is shown. It is made in turns, between which screens
        are answered; nothing is read meanwhile."""
        with self._turns.still:
            with self._turns.working():
                painter = self._paint()
            made = False
            while not made:
                with self._turns.working():
                    made = painter.book(TURN_SECONDS)
            return painter, painter.ledger()

    def past(self, moment: datetime) -> Feed:
        from metlmon.live.historical import HistoricalSession  # It is a session itself.

        reader = DagdirReader(Path(self._reader.given), self.settings, as_of=moment)
        try:
            with calls_through(self._files):
                reader.open()
        except FsTimeout as error:
            raise InputError(f"{error.path}: {error}") from None
        return HistoricalSession(reader)

    def in_queue(self, there: bool) -> None:
        with self._turns.asking():
            if self._reader.in_queue != there:
                self._reader.in_queue = there
                self._told = True
                self._wake.set()

    def rest(self, resting: bool) -> None:
        self._resting = resting
        if not resting:
            self._wake.set()

    def take(self) -> Snapshot:
        """One picture of what has been read, without the thread; it becomes the latest."""
        self._publish(lambda update: None)
        assert self._latest is not None
        return self._latest

    def _paint(self) -> SnapshotBuilder:
        """The painter of the picture that is shown; a new one when there is none."""
        if self._painter is None:
            self._painter = self._reader.painter()
        return self._painter

    # --- the reading thread -------------------------------------------------------------

    def _run(self, notify: Callable[[Snapshot], None]) -> None:
        with calls_through(self._files):
            while not self._stop.is_set():
                try:
                    self._read(notify)
                except Exception as error:  # A monitor that dies at night is useless: go on.
                    self._tell_failure(notify, error)
                    self._stop.wait(FAILURE_PAUSE_SECONDS)
        # What came while something was being kept is kept after it.
        self._join(self._keeper, time.monotonic() + STOP_SECONDS)
        # Nobody is there any more who could be told.
        with suppress(Exception):
            self._keep()

    def _tell_failure(self, notify: Callable[[Snapshot], None], error: Exception) -> None:
        """Something went wrong that nobody foresaw: the last picture stays, with a sentence."""
        if self._latest is None:
            # Nothing was shown yet: what there is of a picture has room for the sentence.
            with suppress(Exception):
                self._publish(lambda update: None)
        if self._latest is not None:
            self._latest = replace(self._latest, error=describe_error(self.FAILED, error))
            # It may be telling that failed: whoever was told is gone, or will ask again.
            with suppress(Exception):
                notify(self._latest)

    def _read(self, notify: Callable[[Snapshot], None]) -> None:
        """Read, draw and wait until the end is asked for."""
        drawn = changed = looked = 0.0
        dirty = first = True
        while not self._stop.is_set():
            now = time.monotonic()
            if first or now - looked >= POLL_SECONDS or self._wake.is_set():
                self._wake.clear()
                # It is asked how the files stand before anybody has to wait for a turn.
                with self._turns.still, self._files.looking(), self._turns.working():
                    dirty |= bool(self._reader.look())
                looked = now
            with self._turns.still, self._turns.working():
                step = self._reader.step(TURN_SECONDS)
                dirty |= bool(step.changes) or self._told
                self._told = False
            pause = LOADING_PICTURE_SECONDS if step.more else PICTURE_SECONDS
            pause = max(pause, self._cost * SHARE_MOVING)
            ticking = self._latest is not None and self._latest.status.live
            tick = REST_SECONDS if self._resting else CLOCK_SECONDS
            tick = max(tick, self._tick_cost * SHARE_IDLE)
            due = dirty or (ticking and time.monotonic() - drawn >= tick)
            due |= self._latest is not None and self._latest.error != self._reader.error
            # That the clock ticked a moment ago keeps no change waiting.
            rest = changed + pause - time.monotonic()
            if due and (first or rest <= 0):
                self._publish(notify)
                drawn = time.monotonic()
                changed = drawn if dirty else changed
                dirty = first = False
            if not step.more:
                if not dirty and time.monotonic() - self._kept >= KEEP_SECONDS:
                    self._keep()
                if dirty:
                    # Nothing that comes meanwhile is drawn earlier for being seen at once.
                    self._stop.wait(max(0.0, min(rest, POLL_SECONDS)))
                else:
                    self._wake.wait(POLL_SECONDS)

    def _keep(self) -> None:
        """Keep what was read, if that is worth while."""
        # It reads the model alone: screens may read it at the same time.
        if self._files.stuck or (self._keeper is not None and self._keeper.is_alive()):
            return
        self._kept, before = time.monotonic(), self._kept
        try:
            with self._turns.still:
                worth = self._reader.keep()
        except Exception as error:
            self._remark(NOT_KEPT, error)
            return
        if not worth:
            self._kept = before
            return
        # The cache may lie on a file server that does not answer.
        self._keeper = threading.Thread(
            target=self._write, args=(worth,), name="metlmon-keep", daemon=True
        )
        self._keeper.start()

    def _write(self, worth: list[CacheWrite]) -> None:
        try:
            for each in worth:
                each.write()
            self._reader.remarks.pop(NOT_KEPT, None)
        except Exception as error:
            self._remark(NOT_KEPT, error)

    def _publish(self, notify: Callable[[Snapshot], None]) -> None:
        begun = time.thread_time()
        with self._turns.still:
            self._add_up()
            with self._turns.working():
                self._painter = self._reader.painter()
                painted = time.thread_time()
                status = self._painter.status()
                # What a picture costs for which only time went by.
                self._tick_cost = time.thread_time() - painted
                progress = self._reader.progress()
        self._cost = time.thread_time() - begun
        before = {r.key: r for r in self._latest.status.runs} if self._latest else {}
        changed = frozenset(r.key for r in status.runs if before.get(r.key) != r)
        update = Snapshot(status, changed, progress, self._reader.error)
        self._latest = update
        notify(update)

    def _add_up(self) -> None:
        """Add up the jobs that changed, and judge the nodes, in turns."""
        summary, done = self._reader.ensemble.summary, False
        while not done:
            with self._turns.working():
                done = summary.add_up(TURN_SECONDS)
        done = False
        while not done:
            with self._turns.working():
                done = summary.settle(self._reader.live(), TURN_SECONDS)
