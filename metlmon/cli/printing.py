"""Standard output: one JSON object, or what its terminal can show."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on standard output; ASCII, so that nothing in it moves a cursor."""
    indent = 2 if sys.stdout.isatty() else None
    sys.stdout.write(json.dumps(value, indent=indent, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def can_show(stream: TextIO) -> bool:
    """Can ``stream`` show the signs that are not ASCII?"""
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    return encoding in ("utf8", "utf8sig", "utf16", "utf32")


def is_terminal() -> bool:
    """Is there a terminal that can show the dashboard? (It is drawn on standard error.)"""
    dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    return all(each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr)) and not dumb
