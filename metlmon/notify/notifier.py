"""Sends notifications in a thread of its own, which delays nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic, time
from typing import Final

from msgspec import Struct

from metlmon.config.settings import NotifySettings
from metlmon.errors import describe_error
from metlmon.notify.channels import open_channels
from metlmon.notify.delivery import Delivery
from metlmon.notify.events import NotifyEvent

SLOWEST_READER: Final = timedelta(minutes=15)
"""The clock of the access point goes back by more than that at the end of summer time."""

CLOSE_SECONDS: Final = 1.0
"""Time that exiting waits for a message that is being sent."""


class _Ensemble(Struct):
    """The newest events of one dagdir; ``due``: when they are to be looked at again."""

    dagdir: Path
    events: Sequence[NotifyEvent] = ()
    live: bool = False
    as_of: datetime | None = None
    complete: bool = True
    keys: tuple[tuple[str, int], ...] | None = None
    due: float | None = None
    delivery: Delivery | None = None
    problems: tuple[str, ...] = ()


class Notifier:
    """Sends the events of one or several ensembles.

    ``write`` writes to the terminal (:func:`metlmon.notify.channels.open_channels`);
    ``on_change`` is called in the thread when :attr:`problems` has changed.
    """

    def __init__(
        self,
        settings: NotifySettings,
        write: Callable[[str], bool] | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._channels = open_channels(settings, write)
        self._on_change = on_change
        self._ensembles: dict[Path, _Ensemble] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The channels and where they send to, without secrets."""
        return tuple(f"{channel.name}: {channel.target}" for channel in self._channels)

    @property
    def problems(self) -> tuple[str, ...]:
        """What was not sent, and why."""
        with self._lock:
            ensembles = list(self._ensembles.values())
        return tuple(dict.fromkeys(text for each in ensembles for text in each.problems))

    def update(
        self,
        dagdir: Path,
        events: Sequence[NotifyEvent],
        *,
        live: bool,
        as_of: datetime | None,
        complete: bool = True,
    ) -> None:
        """Take what holds in an ensemble at ``as_of``; returns at once.

        ``complete``: as for :meth:`metlmon.notify.delivery.Delivery.deliver`. What is a little
        older than the last update comes from a slower reader, and is ignored.
        """
        with self._lock:
            ensemble = self._ensembles.setdefault(dagdir, _Ensemble(dagdir))
            if _is_outdated(as_of, ensemble.as_of):
                return
            ensemble.as_of = as_of
            ensemble.events, ensemble.live, ensemble.complete = events, live, complete
            keys = tuple((event.key, event.size) for event in events)
            if keys == ensemble.keys:
                return
            ensemble.keys, ensemble.due = keys, 0.0
            if self._thread is None and self._channels and not self._stopped.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="metlmon-notify", daemon=True
                )
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Stop the thread; what it has not sent is sent by the next process."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            now, before = monotonic(), self.problems
            with self._lock:
                due = [e for e in self._ensembles.values() if e.due is not None and e.due <= now]
            for ensemble in due:
                if not self._stopped.is_set():
                    self._deliver(ensemble, now)
            if self.problems != before:
                self._on_change()
            with self._lock:
                waits = [e.due - now for e in self._ensembles.values() if e.due is not None]
            self._wake.wait(max(0.0, min(waits)) if waits else None)

    def _deliver(self, ensemble: _Ensemble, now: float) -> None:
        with self._lock:
            events, live, complete = ensemble.events, ensemble.live, ensemble.complete
            ensemble.due = None
        try:
            if ensemble.delivery is None:
                ensemble.delivery = Delivery(
                    ensemble.dagdir, self._channels, self.settings.interval
                )
            state = ensemble.delivery.deliver(events, live=live, complete=complete, now=time())
        except Exception as error:  # One ensemble must not stop the others.
            ensemble.problems = (describe_error("notifications failed", error),)
            return
        ensemble.problems = state.problems
        with self._lock:
            if state.wait is not None and ensemble.due is None:
                ensemble.due = now + state.wait


def _is_outdated(as_of: datetime | None, newest: datetime | None) -> bool:
    if as_of is None or newest is None or (as_of.tzinfo is None) != (newest.tzinfo is None):
        return False
    return timedelta() < newest - as_of < SLOWEST_READER
