"""Warnings about the input, printed for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from metlmon.model.model_state import Notice
from metlmon.text.formatting import plain

WARNINGS_SHOWN: Final = 20
"""Warnings printed by commands for people; ``--json`` has them all."""


def print_warnings(notices: Iterable[Notice]) -> None:
    """Warnings on standard error, the first of them."""
    listed = list(notices)
    for notice in listed[:WARNINGS_SHOWN]:
        print(f"metlmon: warning: {warning_line(notice)}", file=sys.stderr)
    if len(listed) > WARNINGS_SHOWN:
        print(f"metlmon: and {len(listed) - WARNINGS_SHOWN} more warnings", file=sys.stderr)


def warning_line(notice: Notice) -> str:
    """``file:line: text``, made safe to print."""
    where = f"{notice.file}:{notice.line}" if notice.line is not None else notice.file or ""
    return plain(f"{where}: {notice.text}" if where else notice.text, 400)
