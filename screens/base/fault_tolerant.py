"""Mixins that keep the application running after an unexpected exception.

Textual ends the application, and the message loop of the widget, with the first exception in
any handler. A monitor has to survive the night: here the error is shown on the screen and the
next message is handled.
"""

from __future__ import annotations

from typing import TypeVar

from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import ModalScreen

T = TypeVar("T")


class FaultTolerant(MessagePump):
    """Mixin for the application, screens and widgets: survives handler exceptions."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            self.app._handle_exception(error)


class ResultModal(FaultTolerant, ModalScreen[T]):
    """A modal screen that returns its result once.

    A second key in the same batch must not dismiss the screen below.
    """

    def return_result(self, result: T) -> None:
        """Dismiss with this result, unless already dismissed."""
        if self.is_current:
            self.dismiss(result)
