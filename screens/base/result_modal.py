"""Modal screens that return a result."""

from __future__ import annotations

from typing import TypeVar

from textual.screen import ModalScreen

from screens.terminal.private import FaultTolerant

T = TypeVar("T")


class ResultModal(FaultTolerant, ModalScreen[T]):
    """A modal screen that returns its result once.

    A second key in the same batch must not dismiss the screen below.
    """

    def return_result(self, result: T) -> None:
        """Dismiss with this result, unless already dismissed."""
        if self.is_current:
            self.dismiss(result)
