"""A program on a pseudo-terminal, and an emulator of the terminal's screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import pyte

from tests.support.patience import PATIENCE

_KEYS: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)?|.", re.DOTALL)


def encode_keys(keys: str) -> bytes:
    """Several keys in one write, as a terminal with the Kitty keyboard protocol sends them.

    Each printable character becomes ``CSI code ; ; text u``: the program takes plain characters
    that come in one read for a paste. Sequences, control characters and a single key stay.
    """
    found = _KEYS.findall(keys)
    if len(found) == 1:
        return keys.encode()
    return "".join(
        f"\x1b[{ord(key)};;{ord(key)}u" if key.isprintable() else key for key in found
    ).encode()


class FillingScreen(pyte.Screen):
    """Fills erased cells with the current background, as xterm, VTE and tmux do."""

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        super().erase_in_display(how, *args, **kwargs)
        if how == 2:
            for y in range(self.lines):
                for x in range(self.columns):
                    self.buffer[y][x] = self.cursor.attrs


def terminal_environment(**changes: str | None) -> dict[str, str]:
    """This process's environment for a terminal of all colours; None removes a variable."""
    ours = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLORTERM", "LC_ALL")}
    environment = {**ours, "TERM": "xterm-256color", "LANG": "C.UTF-8", **changes}
    return {name: value for name, value in environment.items() if value is not None}


class PseudoTerminal:
    """A program on a terminal of its own; ``bytes`` is all its output. Use it with ``with``."""

    def __init__(
        self,
        argv: Sequence[bytes | str],
        size: tuple[int, int],
        env: Mapping[str, str],
        cwd: Path | None = None,
        controlling: bool = True,
    ) -> None:
        self.master, self.slave = pty.openpty()
        self.modes = termios.tcgetattr(self.slave)
        self._set_size(*size)
        self.child = subprocess.Popen(
            list(argv),
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
            # Only a controlling terminal sends SIGHUP and stops background processes.
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if controlling else None,
        )
        self.bytes = b""
        self.screen = FillingScreen(*size)
        self._stream = pyte.ByteStream(self.screen)
        self._text: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.kill()
        self.child.wait()
        for descriptor in (self.master, self.slave):
            if descriptor >= 0:
                os.close(descriptor)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        """Change the size, and signal it to the program."""
        self._text = None
        self._set_size(columns, lines)
        with suppress(IndexError):
            self.screen.resize(max(lines, 1), max(columns, 1))

    def hang_up(self) -> None:
        """Close the terminal's end of the line."""
        os.close(self.master)
        self.master = -1

    # --- input and output ---------------------------------------------------------------

    def type(self, keys: bytes | str) -> None:
        """Type keys: characters and sequences."""
        text = keys if isinstance(keys, str) else keys.decode()
        os.write(self.master, encode_keys(text))

    def command(self, line: str) -> None:
        """Type a command line of a shell."""
        os.write(self.master, f"{line}\r".encode())

    def pump(self, seconds: float = 0.0) -> bool:
        """Read output; False if there was none for this time. Answers cursor position requests."""
        if self.master < 0 or not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            return False
        self.bytes += data
        self._text = None
        # pyte takes the keyboard protocol's sequences for cursor commands.
        self._stream.feed(re.sub(rb"\x1b\[[<>=?]\d*u", b"", data))
        for _ in range(data.count(b"\x1b[6n")):
            with suppress(OSError):
                os.write(self.master, b"\x1b[1;1R")
        return bool(data)

    @property
    def text(self) -> str:
        """The text on the screen, without spaces at the ends of lines."""
        if self._text is None:
            columns = range(self.screen.columns)
            rows = (self.screen.buffer[y] for y in range(self.screen.lines))
            lines = ("".join([row[x].data for x in columns]).rstrip() for row in rows)
            self._text = "\n".join(lines)
        return self._text

    def cells(self) -> list[list[tuple[object, ...]]]:
        """Every cell with its colours and attributes."""
        buffer = self.screen.buffer
        columns, lines = range(self.screen.columns), range(self.screen.lines)
        return [[tuple(buffer[y][x]) for x in columns] for y in lines]

    # --- waiting ------------------------------------------------------------------------

    def until(self, condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
        """Read output until the condition holds; fails with ``what`` and the screen."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.pump(0.05)
            assert time.monotonic() < deadline, f"{what}:\n{self.text}"
            assert self.child.poll() is None or self.pump() or condition(), (
                f"it ended with {self.child.returncode} before this: {what}\n{self.text}"
            )

    def wait_for(self, text: str, gone: str | None = None) -> None:
        """Wait until this text is on the screen, and ``gone`` is not."""
        self.until(
            lambda: text in self.text and (gone is None or gone not in self.text),
            f"{text!r} did not come",
        )

    def rest(self, seconds: float = 0.4) -> None:
        """Wait until there was no output for this time."""
        deadline = time.monotonic() + PATIENCE
        while self.pump(seconds):
            assert time.monotonic() < deadline, "it never rests"

    def end(self) -> int:
        """Wait until the program has ended; its exit status, negative after a signal."""
        deadline = time.monotonic() + PATIENCE
        while self.child.poll() is None:
            self.pump(0.05)
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
        while self.pump(0.05):
            pass
        assert self.child.returncode is not None
        return self.child.returncode

    # --- afterwards ---------------------------------------------------------------------

    def restored(self) -> bool:
        """Whether the terminal is as before: modes, cursor, keyboard, alternate screen."""
        for name in (b"1049", b"2004", b"1004"):
            if self.bytes.rfind(b"\x1b[?%bh" % name) > self.bytes.rfind(b"\x1b[?%bl" % name):
                return False
        for name in (b"25", b"7"):
            if self.bytes.rfind(b"\x1b[?%bl" % name) > self.bytes.rfind(b"\x1b[?%bh" % name):
                return False
        return termios.tcgetattr(self.slave) == self.modes

    def text_after_screen(self) -> str:
        """The text written after the program left the alternate screen."""
        data = self.bytes[self.bytes.rfind(b"\x1b[?1049l") + 8 :]
        return re.sub(rb"\x1b\[[0-?]*[ -/]*[@-~]", b"", data).decode("utf-8", "replace").strip()

    def processes(self) -> list[int]:
        """The live processes of the program's session, itself included."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = entry.read_text().rpartition(")")[2].split()
                if fields[0] != "Z" and int(fields[3]) == self.child.pid:
                    found.append(int(entry.parent.name))
        return found
