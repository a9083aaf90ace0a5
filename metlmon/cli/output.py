"""Standard output and standard error of commands: warnings, progress, what they can show."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

if TYPE_CHECKING:
    from metlmon.model.model_state import Notice

WARNINGS_SHOWN: Final = 20
"""Warnings printed by commands for people; ``--json`` has them all."""

WIDEST: Final = 1000
"""Columns that are filled at most, as on the screens: COLUMNS may be any number."""

WAITING_SECONDS: Final = 1.0
"""What takes longer shows what it does."""

WEB_DRIVER: Final = "textual.drivers.web_driver:WebDriver"
"""What textual-serve sets TEXTUAL_DRIVER to, for the programs that it shows in a browser."""


def terminal_width() -> int:
    """Columns of the terminal, or of the variable COLUMNS, at most ``WIDEST``."""
    return min(shutil.get_terminal_size().columns, WIDEST)


def print_refusal(sentence: str) -> None:
    """Print why something cannot be used, on standard error."""
    from metlmon.redact import redact_secrets
    from metlmon.remote.paths import as_typed
    from metlmon.text.formatting import plain

    print(f"metlmon: {plain(as_typed(redact_secrets(sentence)), 2000)}", file=sys.stderr)


@contextmanager
def waiting_line(text: str) -> Iterator[None]:
    """A line on standard error while the block takes more than a second, if it is a terminal."""
    stream = sys.stderr
    if not stream.isatty():
        yield
        return
    lines: list[str] = []

    def show() -> None:
        lines.append(text)
        stream.write(text)
        stream.flush()

    timer = threading.Timer(WAITING_SECONDS, show)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if lines:
            stream.write("\r\x1b[K")
            stream.flush()


def progress_line(stream: TextIO) -> Callable[[str | None], None]:
    """Shows what is being done if it takes long and ``stream`` is a terminal; None: it is done."""
    start, shown = time.monotonic(), False

    def show(text: str | None) -> None:
        nonlocal shown
        if text is None and not shown:
            return
        if shown or (stream.isatty() and time.monotonic() - start > WAITING_SECONDS):
            stream.write(f"\r\x1b[K{text or ''}")
            stream.flush()
            shown = text is not None

    return show


def print_warnings(notices: Iterable[Notice]) -> None:
    """Warnings on standard error, the first of them."""
    listed = list(notices)
    for notice in listed[:WARNINGS_SHOWN]:
        print(f"metlmon: warning: {warning_line(notice)}", file=sys.stderr)
    if len(listed) > WARNINGS_SHOWN:
        print(f"metlmon: and {len(listed) - WARNINGS_SHOWN} more warnings", file=sys.stderr)


def warning_line(notice: Notice) -> str:
    """``file:line: text``, made safe to print."""
    from metlmon.text.formatting import plain

    where = f"{notice.file}:{notice.line}" if notice.line is not None else notice.file or ""
    return plain(f"{where}: {notice.text}" if where else notice.text, 400)


@contextmanager
def standard_output(*, ascii: bool) -> Iterator[None]:
    """Standard output; symbols become ASCII if required, or if it shows nothing else.

    See :func:`metlmon.text.spans.to_ascii`.
    """
    if not ascii and can_show(sys.stdout):
        yield
        return
    with redirect_stdout(cast(TextIO, _AsciiStream(sys.stdout))):
        yield


class _AsciiStream:
    """A text stream that writes ASCII only."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        from metlmon.text.spans import to_ascii

        return self._stream.write(to_ascii(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def can_show(stream: TextIO) -> bool:
    """Whether ``stream`` shows symbols that are not ASCII."""
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    return encoding in ("utf8", "utf8sig", "utf16", "utf32")


def is_terminal() -> bool:
    """Whether a terminal (standard error, where it is drawn) or a browser can show it."""
    if os.environ.get("TEXTUAL_DRIVER") == WEB_DRIVER:
        return True
    dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    streams: list[TextIO | None] = [sys.stdin, sys.stdout, sys.stderr]
    # One that was closed by whoever started this is None.
    return not dumb and all(each is not None and each.isatty() for each in streams)
