"""Base class of confirmation screens, guarded against accidental confirmation.

Pasted text that the terminal does not mark as a paste arrives as single keys: the first may
open the confirmation, the next confirm it. A key confirms only after the question has been on
the screen for ``CONFIRM_SECONDS`` without any other key.
"""

from __future__ import annotations

from math import inf
from time import monotonic

from screens.base.screens import DocumentScreen

CHECK_SECONDS = 0.1
"""Interval of the check whether confirming is possible yet, to show that."""


class ConfirmationBase(DocumentScreen):
    """A screen that asks for confirmation before something is changed."""

    _painted_at = inf
    _shown_can_confirm = False

    def on_mount(self) -> None:
        super().on_mount()
        self.start_delay()
        self.set_interval(CHECK_SECONDS, self._update_can_confirm)

    def start_delay(self) -> None:
        """Restart the delay for a new question, once that is painted."""
        self._painted_at, self._shown_can_confirm = inf, False
        self.call_after_refresh(self._question_painted)

    def _question_painted(self) -> None:
        self._painted_at = monotonic()
        self._update_can_confirm()

    @property
    def can_confirm(self) -> bool:
        """Would a key confirm now?"""
        last_event = max(self._painted_at, self.context.last_key_time)
        return monotonic() - last_event >= self.context.CONFIRM_SECONDS

    @property
    def key_confirms(self) -> bool:
        """May the key that is being handled confirm?"""
        monitor = self.context
        seconds_shown = monitor.last_key_time - self._painted_at
        return min(seconds_shown, monitor.pause_before_key) >= monitor.CONFIRM_SECONDS

    def _update_can_confirm(self) -> None:
        if self.can_confirm != self._shown_can_confirm:
            self._shown_can_confirm = self.can_confirm
            self._refresh_if_mounted()
