"""Evaluates statistics in a thread, and other values as they are needed.

A statistic is a pure function of a :class:`StatsInput` and of other arguments, evaluated for these
at most once per snapshot. A screen is refreshed on every cursor move, when little has changed:
sorting and measuring ten thousand rows again would be wasted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar, cast

from msgspec import Struct

from metlmon.errors import describe_error
from metlmon.jobfiles.error_lines import Errors
from metlmon.jobfiles.records import Streamed
from metlmon.live.feed import NOT_READ, Feed, StatsInput
from metlmon.model.job_events import JobId
from metlmon.snapshot.records import Snapshot, Status

P = ParamSpec("P")
T = TypeVar("T")

Statistic: TypeAlias = tuple[Callable[..., Any], tuple[object, ...]]
"""A function of the input, and its other arguments."""

LARGE: Final = 1000
"""Number of nodes from which nothing is evaluated until the logs are read, which it would delay."""

WRITTEN_SECONDS: Final = 5.0
"""Polling interval of the job files while a screen shows them: one ``stat`` per file."""

CLOCK_SECONDS: Final = 15.0
"""Maximum age while only the clock advances: values are in hours and costly to compute."""

IDLE_INTERVAL_FACTOR: Final = 400.0
"""Minimum ratio of that maximum age to the computation time: limits the load to 0.25 %."""

SHARE: Final = 5.0
"""Pause of the thread after each pass, as a multiple of its processor time."""

FORGET_SECONDS: Final = 10.0
"""A statistic that was not requested for this long is no longer updated."""


class _CachedStat(Struct):
    """The last value of a statistic, its input, and the time of the last request.

    ``error``: of its last evaluation. ``precompute``: evaluate it once without a request.
    """

    value: Any = None
    error: str | None = None
    stats_input: StatsInput | None = None
    requested: float = 0.0
    precompute: bool = False


class _BuiltInput(Struct):
    """The input of a snapshot, when it was built, and its cost so far in CPU seconds."""

    snapshot: Snapshot
    stats_input: StatsInput
    built_at: float
    cost: float = 0.0

    def is_valid(self, snapshot: Snapshot) -> bool:
        """Whether it belongs to this snapshot, or to one that differs only by a little time."""
        if self.snapshot is snapshot:
            return True
        if time.monotonic() - self.built_at > max(CLOCK_SECONDS, IDLE_INTERVAL_FACTOR * self.cost):
            return False
        return _fingerprint(self.snapshot.status) == _fingerprint(snapshot.status)


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
        self._figures: dict[Statistic, _CachedStat] = {}
        self._built: _BuiltInput | None = None
        self._job_files = NOT_READ
        self._files_requested = float("-inf")
        self._file_error: str | None = None
        self._input_error: str | None = None

    @property
    def error(self) -> str | None:
        """The error of a requested statistic, or of its input; None without one."""
        now = time.monotonic()
        errors = [self._input_error]
        if now - self._files_requested < FORGET_SECONDS:
            errors.append(self._file_error)
        with self._lock:
            figures = self._figures.values()
            errors += [each.error for each in figures if now - each.requested < FORGET_SECONDS]
        return next(filter(None, errors), None)

    def value(
        self, statistic: Callable[Concatenate[StatsInput, P], T], *arguments: P.args, **_: P.kwargs
    ) -> T | None:
        """The newest value of a statistic; None until its first evaluation has finished.

        Never blocks: the evaluation runs in the thread and ends with the callback.
        """
        with self._lock:
            cached = self._figures.setdefault((statistic, arguments), _CachedStat())
            cached.requested = time.monotonic()
            snapshot, built = self._feed.latest, self._built
            if snapshot is not None and cached.stats_input is None:
                # The screen is empty until then: skip the pause of the thread.
                self._skip_pause.set()
                self._wake_thread()
            elif snapshot is not None and (
                built is None
                or built.snapshot is not snapshot
                or built.stats_input is not cached.stats_input
            ):
                self._wake_thread()
            return cast(T | None, cached.value)

    def precompute(self, *statistics: Callable[[StatsInput], Any]) -> None:
        """Evaluate these once, before a screen needs them."""
        with self._lock:
            for statistic in statistics:
                self._figures.setdefault((statistic, ()), _CachedStat()).precompute = True
        self._wake_thread()

    def watch_job_files(self) -> None:
        """Read the job files every few seconds, until this is not called for a while."""
        now = time.monotonic()
        # After a while without requests the thread waits until it is woken.
        idle = now - self._files_requested >= FORGET_SECONDS
        self._files_requested = now
        if idle or not self._job_files.are_read:
            self._wake_thread()

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until all that was requested has been evaluated; False after ``seconds``."""
        return self._idle.wait(seconds)

    def close(self) -> None:
        """Stop the thread without joining it: it may be reading a file."""
        self._stop.set()
        self._skip_pause.set()
        self._wake.set()

    def _wake_thread(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="metlmon-stats", daemon=True)
                self._thread.start()
            self._idle.clear()
            self._wake.set()

    # --- in the thread ------------------------------------------------------------------

    def _run(self) -> None:
        last_read, error = float("-inf"), self.error
        while not self._stop.is_set():
            started, cost = time.monotonic(), time.thread_time()
            self._skip_pause.clear()
            changed = False
            wanted = started - self._files_requested < FORGET_SECONDS
            if wanted and (started - last_read >= WRITTEN_SECONDS or not self._job_files.are_read):
                changed, self._file_error = _attempt("what the jobs wrote", self._read_job_files)
                last_read = time.monotonic()
            evaluated, self._input_error = _attempt("adding up", self._evaluate_requested)
            previous, error = error, self.error
            if (changed or evaluated or error != previous) and not self._stop.is_set():
                self._on_change()
            with self._lock:
                if not self._wake.is_set():
                    self._idle.set()
            # Processor time: waiting for a processor, or for a file, costs nothing.
            self._skip_pause.wait((time.thread_time() - cost) * SHARE)
            self._wake.wait(WRITTEN_SECONDS if wanted or error else None)
            self._wake.clear()

    def _read_job_files(self) -> bool:
        """Read the job files; return whether their content changed.

        The logs are read first, since they name the jobs whose files exist.
        """
        snapshot = self._feed.latest
        if snapshot is None or not snapshot.is_complete:
            return False
        job_files = self._feed.job_files()
        if job_files == self._job_files:
            return False
        self._job_files, self._built = job_files, None
        return True

    def _evaluate_requested(self) -> bool:
        """Evaluate requested statistics if the input is new; return whether one changed."""
        snapshot, now = self._feed.latest, time.monotonic()
        if snapshot is None:
            return False
        with self._lock:
            requested = [
                (statistic, cached)
                for statistic, cached in self._figures.items()
                if cached.precompute or now - cached.requested < FORGET_SECONDS
            ]
        nodes = sum(snapshot.status.node_states.values())
        if not requested or (not snapshot.is_complete and nodes > LARGE):
            # Building the ledger of a partial read would delay reading the rest.
            return False
        started = time.thread_time()
        built = self._built
        if built is None or not built.is_valid(snapshot):
            built = self._built = _BuiltInput(snapshot, self._build(snapshot), time.monotonic())
        changed = False
        for statistic, cached in requested:
            if cached.stats_input is not built.stats_input:
                work = partial(_evaluate, statistic, cached, built.stats_input)
                is_new, cached.error = _attempt("a figure", work)
                changed |= is_new
            cached.precompute = False
        built.cost += time.thread_time() - started
        return changed

    def _build(self, snapshot: Snapshot) -> StatsInput:
        return StatsInput(
            status=snapshot.status,
            ledger=self._feed.ledger(),
            settings=self._feed.settings,
            job_files=self._job_files,
            load_description=lambda: self._feed.dag_description(),
            queue=self._feed.queue(),
        )


def streams(stats_input: StatsInput) -> Mapping[JobId, Streamed]:
    """The statistic of the running jobs' progress lines."""
    return stats_input.job_files.streams


def errors(stats_input: StatsInput) -> Errors:
    """The statistic of what failed jobs and scripts wrote."""
    return stats_input.job_files.errors


def has_job_files(stats_input: StatsInput) -> bool:
    """The statistic that says whether the jobs' output has been read."""
    return stats_input.job_files.are_read


def _attempt(name: str, work: Callable[[], bool]) -> tuple[bool, str | None]:
    """Do ``work``, which returns whether a value has changed; return that, and its error."""
    try:
        return work(), None
    except Exception as error:  # One failing statistic must not stop the others.
        return False, describe_error(f"{name} failed", error)


def _evaluate(statistic: Statistic, cached: _CachedStat, stats_input: StatsInput) -> bool:
    function, arguments = statistic
    value = function(stats_input, *arguments)
    changed = bool(value != cached.value)
    if changed:
        # An equal value stays the same object: what screens derive from it is kept.
        cached.value = value
    cached.stats_input = stats_input
    return changed


def _fingerprint(status: Status) -> tuple[object, ...]:
    """A fingerprint of the status that changes with every event."""
    hours = status.hours
    return (
        status.live,
        status.dags,
        status.logs,
        status.warnings,
        status.node_states,
        (hours.goodput, hours.badput),
    )
