"""A command on a pseudo-terminal: keys typed into it, and what stands on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import pyte

from tests.keystrokes import type_keys

PATIENCE = 30.0
"""Seconds until a test says that what it waits for does not come."""

KEYS = {
    "enter": b"\r",
    "escape": b"\x1b",
    "tab": b"\t",
    "shift+tab": b"\x1b[Z",
    "space": b" ",
    "up": b"\x1b[A",
    "down": b"\x1b[B",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
    "home": b"\x1b[H",
    "end": b"\x1b[F",
    "backspace": b"\x7f",
}
"""What a terminal sends for a key that has a name; any other key sends its character."""


class Terminal:
    """A child on a pseudo-terminal, and what its bytes leave on the screen."""

    def __init__(self, argv: Sequence[str], size: tuple[int, int], env: Mapping[str, str]) -> None:
        columns, lines = size
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.child = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        self.bytes = b""
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.leave()
            except AssertionError:
                self.child.kill()
                self.child.wait()
        os.close(self.master)

    @property
    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def pump(self, seconds: float) -> bool:
        """Take what has been written; False when there was nothing for so long."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return False
        try:
            got = os.read(self.master, 65536)
        except OSError:
            # The child has ended, and nobody else has the terminal open.
            return False
        self.bytes += got
        # pyte takes the keyboard protocol's sequences for cursor commands.
        self.stream.feed(re.sub(rb"\x1b\[[<>=?]\d*u", b"", got))
        return bool(got)

    def settle(self) -> str:
        """Until nothing more is written for a moment, after something was; the screen's text."""
        self.pump(1.0)
        while self.pump(0.15):
            pass
        return self.text

    def press(self, *keys: str) -> None:
        """Type keys, as :data:`KEYS` names them, or characters."""
        for key in keys:
            type_keys(self.master, KEYS.get(key) or key.encode())

    def until(self, seen: Callable[[str], object], what: str, seconds: float = PATIENCE) -> str:
        """Wait until ``seen`` is true of the screen's text, and give that text."""
        deadline = time.monotonic() + seconds
        while not seen(self.text):
            self.pump(0.2)
            assert time.monotonic() < deadline, f"{what} did not come:\n{self.text}"
            assert self.child.poll() is None or seen(self.text), (
                f"it ended with {self.child.returncode} before {what} came:\n{self.text}"
            )
        return self.text

    def wait_for(self, pattern: str, gone: str | None = None, seconds: float = PATIENCE) -> str:
        """Until this (a regular expression) stands on the screen, and ``gone`` does not."""

        def seen(text: str) -> bool:
            return bool(re.search(pattern, text)) and not (gone and re.search(gone, text))

        return self.until(seen, repr(pattern), seconds)

    def line(self, pattern: str) -> str:
        """The first line of the screen with this in it."""
        found = [line for line in self.text.splitlines() if re.search(pattern, line)]
        assert found, f"no line has {pattern!r}:\n{self.text}"
        return found[0]

    def leave(self) -> int:
        """Until the child has ended; its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.child.poll() is None:
            self.pump(0.1)
            assert time.monotonic() < deadline, f"it does not leave:\n{self.text}"
        while self.pump(0.05):
            pass
        return self.child.returncode
