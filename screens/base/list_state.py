"""The chosen columns and orders of the lists, remembered between sessions.

They are in ``$XDG_STATE_HOME/metlmon/lists.json``, else ``~/.local/state/metlmon``.
"""

from __future__ import annotations

import os
import re
from calendar import month_abbr
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from metlmon.tables.layout import Column
from metlmon.text import spans

T = TypeVar("T")

MAX_BYTES: Final = 1 << 20


class ListState(msgspec.Struct):
    """What was chosen in a list.

    ``hidden`` are columns that are not shown; ``column`` is the one that the rows are sorted by,
    None: by the list's own order ``order``, the index of one of its criteria.
    """

    hidden: list[str] = []
    column: str | None = None
    order: int = 0
    reversed: bool = False


def state_file() -> Path:
    """The file of the user's choices; a relative ``XDG_STATE_HOME`` is ignored."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local/state") / "metlmon/lists.json"


def load_states(path: Path | None) -> dict[str, ListState]:
    """The states by name of their screen; empty if the file is missing or damaged."""
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MAX_BYTES), type=dict[str, ListState])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def save_states(path: Path | None, states: dict[str, ListState]) -> None:
    """Write the states; where that is not possible, they last for the session."""
    if path is None:
        return
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new.write_bytes(msgspec.json.encode(states))
        new.replace(path)


# --- sorting by a column -------------------------------------------------------------------

_DURATION: Final = re.compile(r"(?:\d+ ?(?:d|h|min|m|s) ?)*(?:(\d+):(\d\d)(?::(\d\d))?)?")
_DURATION_PART: Final = re.compile(r"(\d+) ?(d|h|min|m|s)")
_SECONDS: Final = {"d": 86_400, "h": 3600, "min": 60, "m": 60, "s": 1}
_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
_MONTHS: Final = list(month_abbr)[1:]
_DATE: Final = re.compile(rf"(\d\d?) ({'|'.join(_MONTHS)})(?: (\d{{4}}))?(?: (\d\d:\d\d.*))?")
_THIS_YEAR: Final = "9999"
"""A date without a year is of the newest one."""

_UNITS: Final = {"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def shown_value(text: str) -> tuple[int, float, str]:
    """What the text of a cell is sorted by: numbers (largest first), texts, then nothing."""
    text = re.sub(r"(?<=\d)[\u202f\u2009\xa0](?=\d)", "", text).strip()
    if not text.strip("?–-·. "):
        return 2, 0.0, ""
    if (duration := _DURATION.fullmatch(text)) and not text.isdigit():
        hours, minutes, seconds = (int(part or 0) for part in duration.groups())
        total = sum(int(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(text))
        return 0, -float(total + hours * 3600 + minutes * 60 + seconds), text
    if date := _DATE.fullmatch(text):
        day, month, year, time = date.groups()
        return 1, 0.0, f"{year or _THIS_YEAR}{_MONTHS.index(month):02}{day:0>2}{time or ''}"
    number = _NUMBER.match(text)
    if number is None or re.match(r"\d{4}-\d\d", text):
        # Numbers in names are compared as numbers: run9 before run12.
        return 1, 0.0, re.sub(r"\d+", lambda digits: digits.group().zfill(9), text.lower())
    unit = _UNITS.get(text[number.end() :].strip()[:2], 1.0)
    return 0, -float(number.group()) * unit, text


def column_order(column: Column[T]) -> Callable[[T], tuple[Any, ...]]:
    """Sorts rows by what a column shows of them."""
    return lambda row: shown_value(spans.text(column.cell(row, None)))
