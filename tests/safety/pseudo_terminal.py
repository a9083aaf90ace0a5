"""The real program on a pseudo-terminal: every byte that reaches it, and what then stands there."""

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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyte

from tests.keystrokes import type_keys

PATIENCE = 60.0
"""Seconds until a test says that what it waits for does not come."""


class Terminal:
    """A program on a terminal of its own; leave it by ``with``."""

    def __init__(
        self, argv: Sequence[bytes | str], size: tuple[int, int], env: Mapping[str, str]
    ) -> None:
        columns, lines = size
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.child = subprocess.Popen(
            list(argv),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=dict(env),
            start_new_session=True,
        )
        os.close(slave)
        self.bytes = b""
        self.seen: list[str] = []
        """What stood on the screen whenever it came to rest."""
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        os.close(self.master)

    def type(self, keys: bytes) -> None:
        type_keys(self.master, keys)

    def pump(self, seconds: float) -> bool:
        """Take what has been written; False when there was nothing for so long."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            got = os.read(self.master, 1 << 16)
        except OSError:
            return False
        self.bytes += got
        # pyte takes the keyboard protocol's sequences for cursor commands.
        self._stream.feed(re.sub(rb"\x1b\[[<>=?]\d*u", b"", got))
        return bool(got)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.text:
            self.pump(0.05)
            assert time.monotonic() < deadline, f"{text!r} did not come:\n{self.text}"
        self.seen.append(self.text)

    def rest(self, seconds: float = 0.25) -> None:
        """Until nothing has been written for so long, and no thread waits for a processor."""
        deadline = time.monotonic() + PATIENCE
        while (self.pump(seconds) or self._has_to_do()) and time.monotonic() < deadline:
            pass
        self.seen.append(self.text)

    def _has_to_do(self) -> bool:
        for thread in Path(f"/proc/{self.child.pid}/task").glob("*/stat"):
            with suppress(OSError):
                if thread.read_text().rpartition(")")[2].split()[0] == "R":
                    return True
        return False

    def end(self) -> int:
        """Until it has ended; its exit status."""
        deadline = time.monotonic() + PATIENCE
        while self.child.poll() is None:
            self.pump(0.05)
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
        while self.pump(0.05):
            pass
        self.seen.append(self.text)
        assert self.child.returncode is not None
        return self.child.returncode


SEQUENCES = re.compile(
    r"\x1b\[[0-9;:]*m"  # colours and weights
    r"|\x1b\[\d*(?:;\d*)?H|\x1b\[\d*[ABCDGd]"  # where to write
    r"|\x1b\[\d*[JKXP@LMST]|\x1b\[(?:\d+;\d+)?r"  # erase, insert, scroll
    r"|\x1b\[\?(?:25|7|1004|1049|2004|2026|2048|1000|1002|1003|1006|1015|1016)[hl]"
    r"|\x1b\[\?(?:2026|2048)\$p"
    r"|\x1b\[(?:>\d+|<|\?|=\d+(?:;\d+)?)u"  # the keyboard protocol
    r"|\x1b\[14t|\x1b\[c|\x1b\[6n|\x1b\[>0q"
    r"|\rreading \d+ MB: +\d+%(?=\r)|\r(?=\x1b\[K)"  # how far a command has read
    r"|\x1b\]22;default(?:\x1b\\|\x07)"  # the ordinary mouse pointer, of Textual
)
"""Every form of sequence that the program writes itself, and no other."""


def without_own(data: bytes) -> str:
    """What is left of what reached a terminal when the program's own sequences are gone."""
    return SEQUENCES.sub("", data.decode("utf-8")).replace("\r\n", "\n")
