"""The driver of an application that is shown in a browser, by textual-serve.

Input and output are packets on pipes (see Textual's web driver), not a terminal. As on a
terminal, frames wait for the ones before them, and input is decoded whatever it is.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import Any, Final

from textual import events
from textual.geometry import Size

from screens.terminal.flow_control import (
    MAXIMUM_HEIGHT,
    MAXIMUM_WIDTH,
    QUEUE_LIMIT,
    READ_BYTES,
    READ_MILLISECONDS,
    FlowControl,
)
from screens.terminal.input_decoder import InputDecoder
from screens.terminal.private import ByteStream, HookedWebDriver

STARTED: Final = b"__GANGLION__\n"
"""What textual-serve waits for: packets follow."""

SCREEN_SEQUENCES: Final = ("\x1b[?1049h", "\x1b[?25l", "\x1b[?2004h", "\x1b[?7l")
"""The alternative screen without cursor and line wrap; pastes are marked as such."""

MOUSE_SEQUENCES: Final = ("\x1b[?1000h", "\x1b[?1003h", "\x1b[?1015h", "\x1b[?1006h")

STDIN: Final = 0


class FlowControlledWebDriver(FlowControl, HookedWebDriver):
    """Textual's driver for a browser, extended by flow control and a robust input decoder.

    It handles no signal: the application does. Without the server it ends.
    """

    def write_bytes(self, data: bytes) -> None:
        try:
            super().write_bytes(data)
        except OSError:
            self.application.terminal_lost()

    def start_application_mode(self) -> None:
        self.write_bytes(STARTED)
        # Apart: the page says that the program starts until it receives more than 10 bytes.
        for sequence in (*SCREEN_SEQUENCES, *(MOUSE_SEQUENCES if self.sends_mouse else ())):
            self.write(sequence)
        self.process_message(_resized(*(self.initial_size() or (80, 24))))
        self.request_synchronised_output()
        self.start_input_thread()

    def run_input_thread(self) -> None:
        """Read the server's packets until exit, or until the server has gone."""
        decoder, packets, poller = InputDecoder(), ByteStream(), select.poll()
        poller.register(STDIN, select.POLLIN)
        while not self.exit_event.is_set():
            if self.application.message_queue_size > QUEUE_LIMIT:
                self.exit_event.wait(READ_MILLISECONDS / 1000)
                continue
            if poller.poll(READ_MILLISECONDS):
                try:
                    data = os.read(STDIN, READ_BYTES)
                except OSError:
                    data = b""
                if not data:
                    self.application.terminal_lost()
                    return
                for kind, payload in packets.feed(data):
                    if kind == "D":
                        # One key is one packet: several of them in one read are no paste.
                        for message in decoder.feed(payload):
                            self.process_message(message)
                    else:
                        self.handle_meta(kind, payload)
            for message in decoder.tick():
                self.process_message(message)

    def on_meta(self, packet_type: str, payload: dict[str, Any]) -> None:
        if packet_type == "resize":
            with suppress(KeyError, TypeError, ValueError):
                self.process_message(_resized(payload["width"], payload["height"]))
        else:
            super().on_meta(packet_type, payload)


def _resized(width: float, height: float) -> events.Resize:
    columns = max(1, min(int(width), MAXIMUM_WIDTH))
    size = Size(columns, max(1, min(int(height), MAXIMUM_HEIGHT)))
    return events.Resize(size, size)
