"""Sentences for what is wrong in a log. Log text in them is untrusted: bounded and plain."""

from __future__ import annotations

from typing import Final

from metlmon.eventlog.events import LogWarning
from metlmon.redact import redact_secrets

EXCERPT: Final = 80
"""Characters of a log that a warning quotes: enough to find the place with grep."""


def excerpt(data: bytes) -> str:
    """The beginning of ``data`` on one line, without control characters."""
    text = redact_secrets(data[: 16 * EXCERPT].decode("utf-8", "replace"))[: 4 * EXCERPT]
    plain = "".join(char if char.isprintable() else " " for char in text)
    short = " ".join(plain.split())
    return short if len(short) <= EXCERPT else short[: EXCERPT - 1] + "…"


def garbage(data: bytes, line: int) -> LogWarning:
    """Bytes that belong to no event."""
    return LogWarning("garbage", line, f"no event begins here, skipped: {excerpt(data)}")


def bad_header(data: bytes, line: int) -> LogWarning:
    """A line that set out to be a header and is none."""
    return LogWarning("bad-header", line, f"unreadable event header, skipped: {excerpt(data)}")


def glued(cut: str, found: str, line: int) -> LogWarning:
    """A header in mid-line, behind an event that was cut."""
    return LogWarning("glued-header", line, f"{cut} was cut here; {found} follows on the same line")


def not_glued(event: str, found: str, line: int) -> LogWarning:
    """What may be a header in mid-line, but may as well be a quotation."""
    return LogWarning(
        "glued-header",
        line,
        f"{found} is quoted in the text of {event}, or was glued to it; not taken as an event",
    )


def unterminated(cut: str, line: int, found: str | None) -> LogWarning:
    """An event without its end, before the next header or at the end of a dead log."""
    why = f"{found} begins before its end" if found else "the log ends before its end"
    return LogWarning("unterminated-event", line, f"{cut} was cut: {why}")


def nul_bytes(count: int, line: int) -> LogWarning:
    """A hole of NULs, as a file server leaves one."""
    noun = "byte" if count == 1 else "bytes"
    return LogWarning("nul-bytes", line, f"{count} NUL {noun}; events may be lost here")


def bad_utf8(event: str, line: int) -> LogWarning:
    """Bytes that are no UTF-8; they read as U+FFFD."""
    return LogWarning("bad-utf8", line, f"{event} holds bytes that are not UTF-8")
