"""Formats a report's values, alike for HTML, Markdown and the terminal."""

from __future__ import annotations

import re
from typing import Final

from metlmon.report.document import Raw, ValueKind
from metlmon.text.formatting import THIN, UNKNOWN, duration, number, plain, size

TEXT_LIMIT: Final = 300
"""Maximum length of a name or reason; ``--json`` has the full text."""

_WITHIN_NUMBERS: Final = re.compile(rf"(?<=\d){THIN}(?=\d)")

NOT_KNOWN: Final = "not known"


def format_value(kind: ValueKind, value: Raw, digits: int = 2) -> str:
    """Format one value; ``digits``: decimals of hours.

    An unknown number is a dash, an unknown name is NOT_KNOWN.
    """
    if value == "":
        return ""
    if kind is ValueKind.TEXT:
        return NOT_KNOWN if value is None else plain(str(value), TEXT_LIMIT)
    if value is None or isinstance(value, str):
        return UNKNOWN
    if kind is ValueKind.COUNT:
        return number(round(value))
    if kind is ValueKind.HOURS:
        return hours(value, digits)
    if kind is ValueKind.SHARE:
        return percent(value)
    if kind is ValueKind.BYTES:
        return size(round(value)).replace(" ", THIN)
    return duration(value)


def sanitize(text: str) -> str:
    """Return a sentence on one line, without invisible characters.

    As :func:`~metlmon.text.formatting.plain`, but thin spaces within numbers are preserved.
    """
    return THIN.join(plain(part) for part in text.split(THIN))


def hours(value: float, digits: int = 2) -> str:
    """Format hours with ``digits`` decimals; values that round to 0 as ``<0.01``."""
    if 0 < value < 0.5 * 10**-digits:
        return f"<{10**-digits:.{digits}f}"
    grouped = f"{value:,.{digits}f}" if value > 0 else "0"
    return grouped.replace(",", THIN)


def percent(value: float | None) -> str:
    """Format a share of one in per cent with one decimal; None as a dash.

    Values other than 0 and 1 are never formatted as 0.0 % or 100.0 %.
    """
    if value is None:
        return UNKNOWN
    text = f"{100 * value:.1f}"
    if value > 0 and text == "0.0":
        text = "<0.1"
    elif value < 1 and text == "100.0":
        text = ">99.9"
    return f"{text}{THIN}%"


def hours_digits(total: float) -> int:
    """Return the decimals of all hours in a report with ``total`` GPU-hours."""
    return 4 if total < 1 else 3 if total < 10 else 2 if total < 100_000 else 1
