"""Formats the warnings about damaged logs; quoted text is bounded and sanitized."""

from __future__ import annotations

from typing import Final

from metlmon.eventlog.events import LogWarning
from metlmon.redact import redact_secrets

EXCERPT: Final = 80
"""Characters of a log that a warning quotes: enough to locate them with grep."""


def excerpt(data: bytes) -> str:
    """The start of ``data`` on one line, without control characters or secrets."""
    text = redact_secrets(data[: 16 * EXCERPT].decode("utf-8", "replace"))[: 4 * EXCERPT]
    plain = "".join(char if char.isprintable() else " " for char in text)
    short = " ".join(plain.split())
    return short if len(short) <= EXCERPT else short[: EXCERPT - 1] + "…"


def garbage(data: bytes, line: int) -> LogWarning:
    """Warn about bytes that belong to no event."""
    return LogWarning("garbage", line, f"no event begins here, skipped: {excerpt(data)}")


def bad_header(data: bytes, line: int) -> LogWarning:
    """Warn about a line that begins like a header but cannot be read as one."""
    return LogWarning("bad-header", line, f"unreadable event header, skipped: {excerpt(data)}")


def glued(cut: str, header: str, line: int) -> LogWarning:
    """Warn about a header in mid-line, after an event that was cut off."""
    return LogWarning(
        "glued-header", line, f"{cut} was cut here; {header} follows on the same line"
    )


def ambiguous_header(event: str, header: str, line: int) -> LogWarning:
    """Warn about mid-line text that may be a header or a quotation of one."""
    return LogWarning(
        "glued-header",
        line,
        f"{header} is quoted in the text of {event}, or was glued to it; not taken as an event",
    )


def unterminated(cut: str, line: int, next_header: str | None) -> LogWarning:
    """Warn about an event cut off by the next header or the end of a dead log."""
    reason = (
        f"{next_header} begins before its end" if next_header else "the log ends before its end"
    )
    return LogWarning("unterminated-event", line, f"{cut} was cut: {reason}")


def nul_bytes(count: int, line: int) -> LogWarning:
    """Warn about a run of NUL bytes, as file servers leave them."""
    noun = "byte" if count == 1 else "bytes"
    return LogWarning("nul-bytes", line, f"{count} NUL {noun}; events may be lost here")


def bad_utf8(event: str, line: int) -> LogWarning:
    """Warn about bytes that are not UTF-8; they are read as U+FFFD."""
    return LogWarning("bad-utf8", line, f"{event} holds bytes that are not UTF-8")
