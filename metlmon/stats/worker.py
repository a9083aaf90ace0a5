"""What screens ask of the figures, while the ensemble moves: computed once for each picture,
and never on the screen's time where it takes long.

A :class:`StatsInput` is everything that figures are computed from; a figure is a pure function of
it. :meth:`StatsWorker.of` gives the figure's newest value.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from metlmon.frozen import frozen
from metlmon.jobfiles.records import Streamed, TrainingOutput
from metlmon.live.feed import Feed, Snapshot
from metlmon.model.job_events import JobId
from metlmon.model.settings import Settings
from metlmon.snapshot.dag_description import DagDescription
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.types import Status

T = TypeVar("T")

AT_ONCE: Final = 200
"""Nodes up to which a figure is computed when it is asked for (some ten milliseconds); those of
a larger ensemble are computed in a thread, and told of when they are there."""

FIRST_AT_ONCE: Final = 1000
"""Nodes up to which that is so when a screen has nothing to show yet: a tenth of a second's wait
is better than a screen that is empty for as long."""

WRITTEN_SECONDS: Final = 5.0
"""How often what the jobs write is looked at again while somebody wants it: an epoch takes
hours, a progress line counts seconds; each look is one ``stat`` per file."""

CLOCK_SECONDS: Final = 15.0
"""While nothing happens but that time goes by, figures are this old at most: they are hours and
days, and each costs as much as a picture."""

SHARE_IDLE: Final = 400.0
"""And where they take long, so many times as old as that takes: a quarter of a per cent."""

SHARE: Final = 5.0
"""After work that took so long the thread rests for this many times as long."""

FORGET_SECONDS: Final = 10.0
"""A figure that nobody asked for since is not computed anew."""


@frozen
class StatsInput:
    """All that figures are computed from. ``trainings`` by run key, ``streams`` by job: what
    the jobs wrote, empty until it was read once (``written`` tells). ``described`` tells of the
    DAG files' nodes: asked for by the few figures that need them."""

    status: Status
    ledger: Ledger
    settings: Settings = field(default_factory=Settings)
    trainings: Mapping[str, TrainingOutput] = field(default_factory=dict)
    streams: Mapping[JobId, Streamed] = field(default_factory=dict)
    written: bool = False
    described: Callable[[], DagDescription] = DagDescription


@dataclass(slots=True)
class _CachedStat:
    value: Any = None
    basis: StatsInput | None = None
    asked: float = 0.0


class StatsWorker:
    """The figures of one feed. ``tell`` is called, in the study's own thread, when a value has
    come that was not there when it was asked for."""

    def __init__(self, feed: Feed, tell: Callable[[], None]) -> None:
        self._feed = feed
        self._tell = tell
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._figures: dict[Callable[[StatsInput], Any], _CachedStat] = {}
        self._of: Snapshot | None = None
        self._made = float("-inf")
        self._cost = 0.0
        self._cost_of: Snapshot | None = None
        self._basis: StatsInput | None = None
        self._trainings: Mapping[str, TrainingOutput] = {}
        self._streams: Mapping[JobId, Streamed] = {}
        self._written = False
        self._wanted_written = float("-inf")
        self._errors: dict[object, str] = {}

    @property
    def error(self) -> str | None:
        """What failed the last time that it was tried; None when all goes well."""
        return next(iter(self._errors.values()), None)

    def of(self, figure: Callable[[StatsInput], T]) -> T | None:
        """The newest value of ``figure``; None while it is computed for the first time.
        Returns at once: what takes long comes later, and is told."""
        with self._lock:
            known = self._figures.setdefault(figure, _CachedStat())
            known.asked = time.monotonic()
            update = self._feed.latest
            if update is None:
                return cast(T | None, known.value)
            nodes = sum(update.status.node_states.values())
            if nodes <= (FIRST_AT_ONCE if known.basis is None else AT_ONCE):
                begun = time.thread_time()
                try:
                    self._bring(known, figure, self._newest(update))
                except Exception as error:
                    self._tell_failure(figure, error)
                self._charge(time.thread_time() - begun)
            elif known.basis is None:
                # Somebody waits before an empty screen: the thread rests later.
                self._hurry.set()
                self._rouse()
            elif self._of is not update:
                self._rouse()
            return cast(T | None, known.value)

    def foresee(self, *figures: Callable[[StatsInput], Any]) -> None:
        """Compute these once in the thread, before a screen asks for them: where that takes long
        enough to be felt."""
        update = self._feed.latest
        if update is None or sum(update.status.node_states.values()) <= AT_ONCE:
            return
        with self._lock:
            for figure in figures:
                self._figures.setdefault(figure, _CachedStat()).asked = time.monotonic()
        self._rouse()

    def want_written(self) -> None:
        """Somebody looks at what the jobs write: it is read again every few seconds, in the
        thread, until nobody has asked for a while."""
        now = time.monotonic()
        # Where nobody has asked for a while the thread rests until it is roused.
        rests = now - self._wanted_written >= FORGET_SECONDS
        self._wanted_written = now
        if rests or not self._written:
            self._rouse()
        self._start()

    def close(self) -> None:
        """End the thread; it is not waited for, it may be in the middle of a file."""
        self._stop.set()
        self._hurry.set()
        self._wake.set()

    # --- the work -----------------------------------------------------------------------

    def _newest(self, update: Snapshot) -> StatsInput:
        """The basis of this picture: made once."""
        with self._lock:
            basis, written = self._basis, (self._trainings, self._streams, self._written)
            if basis is not None and (self._of is update or self._only_older(update)):
                return basis
        # Not under the lock: a screen that asks meanwhile gets what there is.
        ledger, settings = self._feed.ledger(), self._feed.settings
        basis = StatsInput(
            update.status, ledger, settings, *written, lambda: self._feed.described()
        )
        with self._lock:
            if written == (self._trainings, self._streams, self._written):
                self._basis, self._of, self._made = basis, update, time.monotonic()
        return basis

    def _only_older(self, update: Snapshot) -> bool:
        """Has nothing happened since the basis was made but that a little time went by?"""
        before, now = self._of, update
        oldest = max(CLOCK_SECONDS, SHARE_IDLE * self._cost)
        if before is None or time.monotonic() - self._made > oldest:
            return False
        return _happened(before.status) == _happened(now.status)

    def _bring(
        self, known: _CachedStat, figure: Callable[[StatsInput], Any], basis: StatsInput
    ) -> bool:
        if known.basis is basis:
            return False
        value = figure(basis)
        mended = self._errors.pop(figure, None) is not None
        news = mended or bool(value != known.value)
        known.value, known.basis = value, basis
        return news

    def _rouse(self) -> None:
        self._start()
        self._wake.set()

    def _start(self) -> None:
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, name="metlmon-study", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        looked = float("-inf")
        while not self._stop.is_set():
            begun = time.monotonic()
            self._hurry.clear()
            news = False
            wanted = begun - self._wanted_written < FORGET_SECONDS
            if wanted and (begun - looked >= WRITTEN_SECONDS or not self._written):
                news |= self._tried("what the jobs wrote", self._read_written)
                looked = time.monotonic()
            news |= self._tried("adding up", self._compute)
            if news and not self._stop.is_set():
                self._tell()
            pause = (time.monotonic() - begun) * SHARE
            self._hurry.wait(pause)
            self._wake.wait(WRITTEN_SECONDS if wanted else None)
            self._wake.clear()

    def _tried(self, what: str, work: Callable[[], bool]) -> bool:
        try:
            news = work()
        except Exception as error:
            return self._tell_failure(what, error)
        return self._errors.pop(what, None) is not None or news

    def _tell_failure(self, what: object, error: Exception) -> bool:
        from metlmon.error_text import (
            describe_error,  # Who prints figures once needs no word for this.
        )

        text = describe_error(
            f"{what} failed" if isinstance(what, str) else "a figure failed", error
        )
        news = text != self._errors.get(what)
        self._errors[what] = text
        return news

    def _read_written(self) -> bool:
        """Read what the jobs wrote; whether it is something new. Not before the logs are read:
        they say whose files there are."""
        update = self._feed.latest
        if update is None or update.progress.fraction < 1:
            return False
        trainings, streams = self._feed.trainings(), self._feed.streams()
        with self._lock:
            same = self._written and (trainings, streams) == (self._trainings, self._streams)
            self._trainings, self._streams, self._written = trainings, streams, True
            if not same:
                self._basis = None
        return not same

    def _compute(self) -> bool:
        update = self._feed.latest
        if update is None:
            return False
        now = time.monotonic()
        with self._lock:
            asked = [
                (figure, known)
                for figure, known in self._figures.items()
                if now - known.asked < FORGET_SECONDS
            ]
        nodes = sum(update.status.node_states.values())
        if not asked or (update.progress.fraction < 1 and nodes > FIRST_AT_ONCE):
            # To book what is only half read takes the time from reading the rest.
            return False
        begun = time.thread_time()
        basis = self._newest(update)
        news = False
        for figure, known in asked:
            try:
                news |= self._bring(known, figure, basis)
            except Exception as error:  # One figure that fails must not end all others.
                news |= self._tell_failure(figure, error)
        self._charge(time.thread_time() - begun)
        return news

    def _charge(self, seconds: float) -> None:
        """So long was worked for the newest basis."""
        if self._cost_of is not self._of:
            self._cost_of, self._cost = self._of, 0.0
        self._cost += seconds


def _happened(status: Status) -> tuple[object, ...]:
    """What is another one as soon as anything has happened."""
    hours = status.gpu_hours
    return (
        status.live,
        status.dags,
        status.logs,
        status.warnings,
        status.node_states,
        (hours.good, hours.bad),
    )
