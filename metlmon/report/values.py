"""How a report's values are written: the same in HTML, in Markdown and on the terminal."""

from __future__ import annotations

import re
from typing import Final

from metlmon.report.document import Raw, ValueKind
from metlmon.text.formatting import THIN, duration, number, plain, size, unknown

TEXT_LIMIT: Final = 300
"""Characters of a name or reason: ``--json`` has it whole."""

_WITHIN_NUMBERS: Final = re.compile(rf"(?<=\d){THIN}(?=\d)")

NOT_KNOWN: Final = "not known"


def format_value(kind: ValueKind, value: Raw, digits: int = 2, ascii: bool = False) -> str:
    """One value. ``digits``: decimals of hours. A dash for what is not known, words where it is
    a name that is not."""
    if value == "":
        return ""
    if kind is ValueKind.TEXT:
        return NOT_KNOWN if value is None else plain(str(value), TEXT_LIMIT, ascii)
    if value is None or isinstance(value, str):
        return unknown(ascii)
    if kind is ValueKind.COUNT:
        return number(round(value), ascii)
    if kind is ValueKind.HOURS:
        return hours(value, digits, ascii)
    if kind is ValueKind.SHARE:
        return percent(value, ascii)
    if kind is ValueKind.BYTES:
        return size(round(value), ascii).replace(" ", " " if ascii else THIN)
    return duration(value, ascii)


def visible(text: str, ascii: bool = False) -> str:
    """A sentence of the report on one line, with nothing in it that a reader would not see
    (:func:`~metlmon.text.formatting.plain`); the blanks within its numbers stay narrow."""
    if ascii:
        text = _WITHIN_NUMBERS.sub(",", text).replace(THIN, " ")
    return THIN.join(plain(part, ascii=ascii) for part in text.split(THIN))


def hours(value: float, digits: int = 2, ascii: bool = False) -> str:
    """Hours with so many decimals; what would be rounded to nothing is less than the least."""
    if 0 < value < 0.5 * 10**-digits:
        return f"<{10**-digits:.{digits}f}"
    grouped = f"{value:,.{digits}f}" if value > 0 else "0"
    return grouped if ascii else grouped.replace(",", THIN)


def percent(value: float | None, ascii: bool = False) -> str:
    """A share of one, in per cent with one decimal; a dash of nothing. Never 0.0 % or 100.0 %
    of what is neither."""
    if value is None:
        return unknown(ascii)
    shown = f"{100 * value:.1f}"
    if value > 0 and shown == "0.0":
        shown = "<0.1"
    elif value < 1 and shown == "100.0":
        shown = ">99.9"
    return f"{shown}{' ' if ascii else THIN}%"


def hours_digits(total: float) -> int:
    """Decimals of all hours in a report of ``total`` GPU-hours: small ensembles need more."""
    return 4 if total < 1 else 3 if total < 10 else 2 if total < 100_000 else 1
