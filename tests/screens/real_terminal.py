"""The real program on a pseudo-terminal that is its controlling one, as ssh and tmux make it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyte
from filling import Filling

from tests.keystrokes import type_keys

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"

PATIENCE = 30.0
"""Seconds until a test says that what it waits for does not come."""

PROGRAM = (sys.executable, "-m", "metlmon")


class Line:
    """A program on its terminal: what it wrote, and what that leaves on the screen."""

    def __init__(
        self,
        argv: Sequence[str],
        size: tuple[int, int],
        env: Mapping[str, str | None],
        cwd: Path | None = None,
    ) -> None:
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self._set_size(size)
        base = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLORTERM", "LC_ALL")}
        made: dict[str, str | None] = {
            **base,
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            **env,
        }
        self.child = subprocess.Popen(
            argv,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={k: v for k, v in made.items() if v is not None},
            cwd=cwd,
            start_new_session=True,
            # Only a controlling terminal sends SIGHUP and stops who is in the background.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.bytes = b""
        self._show(size)

    def _show(self, size: tuple[int, int]) -> None:
        self.screen = Filling(*size)
        self._stream = pyte.ByteStream(self.screen)

    # --- the terminal -----------------------------------------------------------------------

    def _set_size(self, size: tuple[int, int]) -> None:
        columns, lines = size
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        """Another size, which the program is told of. What stood there stays as it may."""
        self._set_size((columns, lines))
        with suppress(IndexError):
            self.screen.resize(max(lines, 1), max(columns, 1))

    def type(self, keys: bytes | str) -> None:
        data = keys.encode() if isinstance(keys, str) else keys
        type_keys(self.master, data)

    def command(self, line: str) -> None:
        """Give a shell this line."""
        os.write(self.master, f"{line}\r".encode())

    def pump(self, seconds: float = 0.0) -> bool:
        """Take what has been written; False when there was nothing for so long. Questions for
        the cursor's place are answered, as terminals do."""
        if self.master < 0 or not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            got = os.read(self.master, 1 << 16)
        except OSError:
            return False
        self.bytes += got
        # pyte takes the keyboard protocol's sequences for cursor commands.
        self._stream.feed(re.sub(rb"\x1b\[[<>=?]\d*u", b"", got))
        for _ in range(got.count(b"\x1b[6n")):
            with suppress(OSError):
                os.write(self.master, b"\x1b[1;1R")
        return bool(got)

    def hang_up(self) -> None:
        os.close(self.master)
        self.master = -1

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def cells(self) -> list[list[tuple[object, ...]]]:
        """Every cell with its colours and marks."""
        buffer = self.screen.buffer
        columns, lines = range(self.screen.columns), range(self.screen.lines)
        return [[tuple(buffer[y][x]) for x in columns] for y in lines]

    # --- waiting ----------------------------------------------------------------------------

    def until(self, what: Callable[[], object], why: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not what():
            self.pump(0.05)
            assert time.monotonic() < deadline, f"{why}:\n{self.text}"

    def wait_for(self, text: str) -> None:
        self.until(lambda: text in self.text, f"{text!r} did not come")

    def rest(self, seconds: float = 0.4) -> None:
        """Until nothing has been written for so long."""
        deadline = time.monotonic() + PATIENCE
        while self.pump(seconds):
            assert time.monotonic() < deadline, "it never rests"

    def end(self) -> int:
        """Until it has ended; its exit status, negative after a signal's default."""
        self.until(lambda: self.child.poll() is not None, "it does not end")
        while self.pump(0.05):
            pass
        assert self.child.returncode is not None
        return self.child.returncode

    # --- what is left -----------------------------------------------------------------------

    def given_back(self) -> bool:
        """Alternate screen left, cursor shown, paste, focus and keys as before, lines echoed."""
        for on, off in (
            (b"\x1b[?1049h", b"\x1b[?1049l"),
            (b"\x1b[?25l", b"\x1b[?25h"),
            (b"\x1b[?2004h", b"\x1b[?2004l"),
            (b"\x1b[?1004h", b"\x1b[?1004l"),
            (b"\x1b[?7l", b"\x1b[?7h"),
        ):
            if self.bytes.rfind(on) > self.bytes.rfind(off):
                return False
        return termios.tcgetattr(self.slave) == self.before

    def said_last(self) -> str:
        """What it wrote after it left the alternate screen."""
        behind = self.bytes[self.bytes.rfind(b"\x1b[?1049l") + 8 :]
        return re.sub(rb"\x1b\[[0-?]*[ -/]*[@-~]", b"", behind).decode("utf-8", "replace").strip()

    def family(self) -> list[int]:
        """The processes of its session that live, itself among them."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = entry.read_text().rpartition(")")[2].split()
                if fields[0] != "Z" and int(fields[3]) == self.child.pid:
                    found.append(int(entry.parent.name))
        return found


@contextmanager
def on_a_line(
    *arguments: str,
    size: tuple[int, int] = (100, 30),
    argv: Sequence[str] | None = None,
    cwd: Path | None = None,
    **env: str | None,
) -> Iterator[Line]:
    """``metlmon`` with these arguments; ended whatever happens."""
    made = Line(argv or (*PROGRAM, *arguments), size, env, cwd)
    try:
        yield made
    finally:
        if made.child.poll() is None:
            made.child.send_signal(signal.SIGCONT)
            made.child.kill()
            made.child.wait()
        for descriptor in (made.master, made.slave):
            if descriptor >= 0:
                os.close(descriptor)
