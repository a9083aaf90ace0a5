"""What goes on after an error that nobody foresaw.

Textual ends an application with the first exception of any handler, and the loop of messages of
whoever it was. A monitor that dies at night is useless: here the error is told on the screen,
and the next message is taken.
"""

from __future__ import annotations

from typing import TypeVar

from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import ModalScreen

T = TypeVar("T")


class FaultTolerant(MessagePump):
    """Mixed into the application, its screens and widgets: an exception of one message does
    not keep the next from being taken."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            self.app._handle_exception(error)


class ResultModal(FaultTolerant, ModalScreen[T]):
    """A screen over another that gives something back, once: of two keys that came together the
    second would give back what is below."""

    def answer(self, result: T) -> None:
        """Give this back, if nothing was given back yet."""
        if self.is_current:
            self.dismiss(result)
