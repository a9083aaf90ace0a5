"""Base class of confirmation screens, guarded against accidental confirmation.

Pasted text that the terminal does not mark as a paste arrives as single keys: the first may
open the confirmation, the next confirm it. A key confirms only after the question has been on
the screen for ``ANSWER_SECONDS`` without any other key.
"""

from __future__ import annotations

from math import inf
from time import monotonic

from screens.base.screens import SnapshotScreen

CHECK_SECONDS = 0.1
"""Interval of the check whether confirming is possible yet, to show that."""


class ConfirmationBase(SnapshotScreen):
    """A screen that asks for confirmation before something is changed."""

    _painted_at = inf
    _open_shown = False

    def on_mount(self) -> None:
        super().on_mount()
        self.ask()
        self.set_interval(CHECK_SECONDS, self._update_open)

    def ask(self) -> None:
        """Restart the delay for a new question, once that is painted."""
        self._painted_at, self._open_shown = inf, False
        self.call_after_refresh(self._question_painted)

    def _question_painted(self) -> None:
        self._painted_at = monotonic()
        self._update_open()

    @property
    def open(self) -> bool:
        """Would a key confirm now?"""
        last_event = max(self._painted_at, self.monitor.key_at)
        return monotonic() - last_event >= self.monitor.ANSWER_SECONDS

    @property
    def answered_in_time(self) -> bool:
        """May the key that is being handled confirm?"""
        monitor = self.monitor
        seconds_shown = monitor.key_at - self._painted_at
        return min(seconds_shown, monitor.key_pause) >= monitor.ANSWER_SECONDS

    def _update_open(self) -> None:
        if self.open != self._open_shown:
            self._open_shown = self.open
            self._again()
