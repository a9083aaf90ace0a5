"""Questions whose answer changes something: an answer counts only if it can have been meant.

A pasted word that the terminal did not mark as a paste arrives as keys, the first of which may
ask the question and the next answer it. So an answer is taken only when the question has stood on
the screen for a moment and no other key came meanwhile.
"""

from __future__ import annotations

from math import inf
from time import monotonic

from screens.base.screens import SnapshotScreen

CHECK_SECONDS = 0.1
"""How often it is checked whether the question can be answered now, to show that."""


class ConfirmationBase(SnapshotScreen):
    """A screen that asks before something is changed."""

    _asked_at = inf
    _shown_open = False

    def on_mount(self) -> None:
        super().on_mount()
        self.ask()
        self.set_interval(CHECK_SECONDS, self._show_open)

    def ask(self) -> None:
        """The question is a new one: it has to be painted and read before it is answered."""
        self._asked_at, self._shown_open = inf, False
        self.call_after_refresh(self._painted)

    def _painted(self) -> None:
        self._asked_at = monotonic()
        self._show_open()

    @property
    def open(self) -> bool:
        """Would an answer be taken now?"""
        since = max(self._asked_at, self.monitor.key_at)
        return monotonic() - since >= self.monitor.ANSWER_SECONDS

    @property
    def answered_in_time(self) -> bool:
        """May the key that is being handled answer the question?"""
        monitor = self.monitor
        shown = monitor.key_at - self._asked_at
        return min(shown, monitor.key_pause) >= monitor.ANSWER_SECONDS

    def _show_open(self) -> None:
        if self.open != self._shown_open:
            self._shown_open = self.open
            self._again()
