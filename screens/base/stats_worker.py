"""Evaluates statistics in a thread, each at most once per snapshot.

A statistic is a pure function of a :class:`StatsInput`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from msgspec import Struct

from metlmon.error_text import describe_error
from metlmon.jobfiles.records import Streamed, TrainingOutput
from metlmon.live.feed import Feed, Snapshot
from metlmon.model.job_events import JobId
from metlmon.snapshot.types import Status
from metlmon.stats.inputs import StatsInput

T = TypeVar("T")

LARGE: Final = 1000
"""Nodes from which nothing is evaluated before the logs have been read: it would delay that."""

WRITTEN_SECONDS: Final = 5.0
"""Polling interval of the job files while a screen shows them: one ``stat`` per file."""

CLOCK_SECONDS: Final = 15.0
"""Maximum age while only the clock advances: values are in hours and costly to compute."""

SHARE_IDLE: Final = 400.0
"""Minimum ratio of that maximum age to the computation time: limits the load to 0.25 %."""

SHARE: Final = 5.0
"""Pause of the thread after each pass, as a multiple of the duration of the pass."""

FORGET_SECONDS: Final = 10.0
"""A statistic that was not requested for this long is no longer updated."""


class _CachedStat(Struct):
    """The last value of a statistic, its input, and the time of the last request."""

    value: Any = None
    stats_input: StatsInput | None = None
    requested: float = 0.0


class StatsWorker:
    """Evaluates the statistics of one feed.

    ``on_change`` is called in the worker thread when a value has changed since it was requested.
    """

    def __init__(self, feed: Feed, on_change: Callable[[], None]) -> None:
        self._feed = feed
        self._on_change = on_change
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._skip_pause = threading.Event()
        self._stop = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None
        self._figures: dict[Callable[[StatsInput], Any], _CachedStat] = {}
        self._snapshot: Snapshot | None = None
        self._built_at = float("-inf")
        self._cost = 0.0
        self._cost_snapshot: Snapshot | None = None
        self._input: StatsInput | None = None
        self._trainings: Mapping[str, TrainingOutput] = {}
        self._streams: Mapping[JobId, Streamed] = {}
        self._files_read = False
        self._files_requested = float("-inf")
        self._errors: dict[object, str] = {}

    @property
    def error(self) -> str | None:
        """The message of a statistic whose last evaluation failed; None if none did."""
        return next(iter(self._errors.values()), None)

    def value(self, statistic: Callable[[StatsInput], T]) -> T | None:
        """The newest value of ``statistic``; None until its first evaluation has finished.

        Never blocks: the evaluation runs in the thread and ends with the callback.
        """
        with self._lock:
            cached = self._figures.setdefault(statistic, _CachedStat())
            cached.requested = time.monotonic()
            snapshot = self._feed.latest
            if snapshot is not None and cached.stats_input is None:
                # The screen is empty until then: skip the pause of the thread.
                self._skip_pause.set()
                self._wake_thread()
            elif snapshot is not None and self._snapshot is not snapshot:
                self._wake_thread()
            return cast(T | None, cached.value)

    def precompute(self, *statistics: Callable[[StatsInput], Any]) -> None:
        """Evaluate these before a screen needs them."""
        with self._lock:
            for statistic in statistics:
                self._figures.setdefault(statistic, _CachedStat()).requested = time.monotonic()
        self._wake_thread()

    def watch_job_files(self) -> None:
        """Read the job files every few seconds, until this was not called for a while."""
        now = time.monotonic()
        # After a while without requests the thread waits until it is woken.
        idle = now - self._files_requested >= FORGET_SECONDS
        self._files_requested = now
        if idle or not self._files_read:
            self._wake_thread()
        self._start()

    def close(self) -> None:
        """Stop the thread without joining it: it may be reading a file."""
        self._stop.set()
        self._skip_pause.set()
        self._wake.set()

    # --- evaluation ---------------------------------------------------------------------

    def _current_input(self, snapshot: Snapshot) -> StatsInput:
        """The input for this snapshot, built once."""
        with self._lock:
            stats_input, job_files = self._input, (self._trainings, self._streams, self._files_read)
            if stats_input is not None and (
                self._snapshot is snapshot or self._only_clock_advanced(snapshot)
            ):
                return stats_input
        # Outside the lock, so that a screen can read the previous value meanwhile.
        ledger, settings = self._feed.ledger(), self._feed.settings
        trainings, streams, files_read = job_files
        stats_input = StatsInput(
            status=snapshot.status,
            ledger=ledger,
            settings=settings,
            trainings=trainings,
            streams=streams,
            files_read=files_read,
            load_description=lambda: self._feed.dag_description(),
        )
        with self._lock:
            if job_files == (self._trainings, self._streams, self._files_read):
                self._input, self._snapshot = stats_input, snapshot
                self._built_at = time.monotonic()
        return stats_input

    def _only_clock_advanced(self, snapshot: Snapshot) -> bool:
        """Has only the clock advanced, and little, since the input was built?"""
        before, now = self._snapshot, snapshot
        oldest = max(CLOCK_SECONDS, SHARE_IDLE * self._cost)
        if before is None or time.monotonic() - self._built_at > oldest:
            return False
        return _fingerprint(before.status) == _fingerprint(now.status)

    def _refresh(
        self, cached: _CachedStat, statistic: Callable[[StatsInput], Any], stats_input: StatsInput
    ) -> bool:
        """Evaluate one statistic if the input is new; return whether its value changed."""
        if cached.stats_input is stats_input:
            return False
        value = statistic(stats_input)
        recovered = self._errors.pop(statistic, None) is not None
        changed = recovered or bool(value != cached.value)
        cached.value, cached.stats_input = value, stats_input
        return changed

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until all that was requested has been evaluated; False after ``seconds``."""
        return self._idle.wait(seconds)

    def _wake_thread(self) -> None:
        self._start()
        with self._lock:
            self._idle.clear()
            self._wake.set()

    def _start(self) -> None:
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, name="metlmon-stats", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        last_read = float("-inf")
        while not self._stop.is_set():
            started = time.monotonic()
            self._skip_pause.clear()
            changed = False
            wanted = started - self._files_requested < FORGET_SECONDS
            if wanted and (started - last_read >= WRITTEN_SECONDS or not self._files_read):
                changed |= self._attempt("what the jobs wrote", self._read_job_files)
                last_read = time.monotonic()
            changed |= self._attempt("adding up", self._compute)
            if changed and not self._stop.is_set():
                self._on_change()
            with self._lock:
                if not self._wake.is_set():
                    self._idle.set()
            pause = (time.monotonic() - started) * SHARE
            self._skip_pause.wait(pause)
            self._wake.wait(WRITTEN_SECONDS if wanted else None)
            self._wake.clear()

    def _attempt(self, task: str, work: Callable[[], bool]) -> bool:
        try:
            changed = work()
        except Exception as error:
            return self._record_error(task, error)
        return self._errors.pop(task, None) is not None or changed

    def _record_error(self, task: object, error: Exception) -> bool:
        text = describe_error(
            f"{task} failed" if isinstance(task, str) else "a figure failed", error
        )
        changed = text != self._errors.get(task)
        self._errors[task] = text
        return changed

    def _read_job_files(self) -> bool:
        """Read the job files; return whether their content changed.

        The logs are read first, since they name the jobs whose files exist.
        """
        snapshot = self._feed.latest
        if snapshot is None or snapshot.progress.fraction < 1:
            return False
        trainings, streams = self._feed.training_outputs(), self._feed.progress_lines()
        with self._lock:
            same = self._files_read and (trainings, streams) == (self._trainings, self._streams)
            self._trainings, self._streams, self._files_read = trainings, streams, True
            if not same:
                self._input = None
        return not same

    def _compute(self) -> bool:
        snapshot = self._feed.latest
        if snapshot is None:
            return False
        now = time.monotonic()
        with self._lock:
            requested = [
                (statistic, cached)
                for statistic, cached in self._figures.items()
                if now - cached.requested < FORGET_SECONDS
            ]
        nodes = sum(snapshot.status.node_states.values())
        if not requested or (snapshot.progress.fraction < 1 and nodes > LARGE):
            # Building the ledger of a partial read would delay reading the rest.
            return False
        started = time.thread_time()
        stats_input = self._current_input(snapshot)
        changed = False
        for statistic, cached in requested:
            try:
                changed |= self._refresh(cached, statistic, stats_input)
            except Exception as error:  # One failing statistic must not stop the others.
                changed |= self._record_error(statistic, error)
        self._add_cost(time.thread_time() - started)
        return changed

    def _add_cost(self, seconds: float) -> None:
        """Add CPU time to the cost of the newest input."""
        if self._cost_snapshot is not self._snapshot:
            self._cost_snapshot, self._cost = self._snapshot, 0.0
        self._cost += seconds


def _fingerprint(status: Status) -> tuple[object, ...]:
    """A fingerprint of the status that changes with every event."""
    hours = status.gpu_hours
    return (
        status.live,
        status.dags,
        status.logs,
        status.warnings,
        status.node_states,
        (hours.good, hours.bad),
    )
