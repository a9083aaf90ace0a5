"""When a new snapshot is shown: not more often than is seen, rarely if idle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final

from metlmon.live.feed import Snapshot

QUEUE_CHECK_SECONDS: Final = 1.0
"""Interval of the check for a new queue snapshot: it is cheap, and a DAG that does not run
produces no snapshots that would trigger it."""

BURST: Final = 5
"""Changes shown without a delay: HTCondor logs several events of a job in a row. On average the
interval between changes is kept all the same."""

IDLE_AFTER_SECONDS: Final = 20.0
IDLE_REPAINT_SECONDS: Final = 5.0
"""After ``IDLE_AFTER_SECONDS`` without input or change, snapshots that differ in elapsed time
only are shown once in ``IDLE_REPAINT_SECONDS``. The clock beside them shows their time."""


class SnapshotPacer:
    """Holds the newest snapshot of a feed, and says when it is to be shown.

    ``repaint_seconds`` is the minimum mean time between the changes shown. ``on_idle`` is called
    with True when nothing has happened for a while, and with False when something does.
    """

    def __init__(self, repaint_seconds: float, on_idle: Callable[[bool], None]) -> None:
        self.newest: Snapshot | None = None
        self._repaint_seconds = repaint_seconds
        self._on_idle = on_idle
        self._announced = False
        self._idle = False
        self._active_at = monotonic()
        self._shown_at = float("-inf")
        self._changes_shown_at = deque([self._shown_at] * BURST, maxlen=BURST)

    def receive(self, snapshot: Snapshot) -> bool:
        """Store a snapshot, in any thread; returns whether to announce it to the application.

        At most one announcement is under way; its handler shows the newest snapshot.
        """
        self.newest = snapshot
        first, self._announced = not self._announced, True
        return first

    def record_input(self) -> None:
        """Somebody has pressed a key."""
        self._active_at = monotonic()
        self._set_idle(False)

    def seconds_until_due(self, shown: Snapshot | None) -> float | None:
        """Seconds until the newest snapshot is to be shown; None: it is skipped.

        It is skipped if it differs from the one shown in elapsed time only, and nobody looks.
        """
        now = monotonic()
        # Clear the flag before reading the snapshot, or one could be missed.
        self._announced = False
        if _is_change(shown, self.newest):
            self._active_at = now
        self._set_idle(now - self._active_at > IDLE_AFTER_SECONDS)
        shown_recently = now - self._shown_at < IDLE_REPAINT_SECONDS - QUEUE_CHECK_SECONDS / 2
        if self._idle and shown_recently:
            return None
        self._announced = True
        # A recent clock tick must not delay a real change.
        return max(0.0, self._changes_shown_at[0] + BURST * self._repaint_seconds - now)

    def take(self, shown: Snapshot | None) -> Snapshot | None:
        """The newest snapshot, which is shown now instead of ``shown``."""
        self._announced = False
        self._shown_at = monotonic()
        if _is_change(shown, self.newest):
            self._changes_shown_at.append(self._shown_at)
        return self.newest

    def _set_idle(self, idle: bool) -> None:
        if idle != self._idle:
            self._idle = idle
            self._on_idle(idle)


def _is_change(shown: Snapshot | None, newest: Snapshot | None) -> bool:
    return shown is None or newest is None or not differs_in_time_only(shown, newest)


def differs_in_time_only(previous: Snapshot, current: Snapshot) -> bool:
    """Whether these snapshots differ in elapsed times only."""

    def compared_fields(snapshot: Snapshot) -> tuple[object, ...]:
        status = snapshot.status
        states = status.live, status.epoch_states, status.node_states
        return snapshot.progress, snapshot.error, status.logs, status.dags, status.warnings, *states

    return compared_fields(previous) == compared_fields(current)
