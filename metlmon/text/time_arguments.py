"""Times as people write them in options: dates, moments, and ``7d`` or ``yesterday``."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Final

from metlmon.errors import InputError

FORMS: Final = "2025-11-14 or 2025-11-14T08:14:00"
RELATIVE_FORMS: Final = "'14 Nov 08:14', today, yesterday or 7d"

_UNITS: Final = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}

_AGE: Final = re.compile(r"(?:\d{1,6}[wdhms])+")

_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec".split()

_DAY: Final = re.compile(
    r"(\d{1,2}) ([A-Za-z]{3})(?: (\d{4}))?(?: (\d{1,2}):(\d\d)(?::(\d\d))?)?", re.ASCII
)
"""A moment as the screens write it."""

_RELATIVE: Final = {"now": timedelta(), "yesterday": timedelta(days=1)}


def parse_time_argument(
    argument_name: str,
    value: str | datetime | None,
    zone: tzinfo | None,
    now: Callable[[], datetime | None] = lambda: None,
) -> datetime | None:
    """Parse a time argument as naive local time of the logs.

    ``argument_name``: the option (``--as-of``) or argument (``as_of=``); ``zone``: that of the
    logs, if known; ``now``: the time from which ``7d``, ``yesterday`` (24 hours earlier), ``today``
    (its midnight) and days without a year count back. Raises InputError.
    """
    if value is None:
        return None
    argument = (
        f"{argument_name}{value!r}" if argument_name.endswith("=") else f"{argument_name} {value!r}"
    )
    try:
        moment = value if isinstance(value, datetime) else _moment(value.strip(), now)
    except (ValueError, OverflowError):
        forms = FORMS if now() is None else f"{FORMS}, {RELATIVE_FORMS}".replace(" or", ",", 1)
        raise InputError(f"{argument} is not a time; write it as {forms}") from None
    if moment.tzinfo is not None:
        if zone is None:
            option = "tz=" if argument_name.endswith("=") else "--tz"
            raise InputError(
                f"{argument} names a zone, but the logs' own is not known: add {option}, or give "
                "the logs' local time"
            )
        try:
            return moment.astimezone(zone).replace(tzinfo=None)
        except OverflowError:
            raise InputError(f"{argument} is outside the calendar") from None
    if zone is not None and not _exists(moment, zone):
        raise InputError(
            f"{argument} is a time that the logs' zone left out: clocks went forward then"
        )
    return moment


def _exists(moment: datetime, zone: tzinfo) -> bool:
    """Whether a local time exists, that is, was not skipped when clocks went forward.

    Fold 0 has the smaller offset in the skipped hour, and the larger one in the repeated hour.
    """
    try:
        earlier = moment.replace(tzinfo=zone, fold=0).utcoffset()
        later = moment.replace(tzinfo=zone, fold=1).utcoffset()
    except OverflowError:
        return True
    return earlier is None or later is None or earlier >= later


def _moment(text: str, now: Callable[[], datetime | None]) -> datetime:
    """The moment; raises ValueError or OverflowError."""
    words, day = text.lower(), _DAY.fullmatch(text)
    ago = _ago(words)
    if ago is None and words != "today" and day is None:
        return datetime.fromisoformat(text)
    reference = now()
    if reference is None:
        raise ValueError("no time is known to count from")
    if ago is not None:
        return reference - ago
    if day is None:
        return reference.replace(hour=0, minute=0, second=0, microsecond=0)
    return _last_day(day, reference)


def _ago(words: str) -> timedelta | None:
    """``7d``, ``1d06h``, ``90m ago`` as a duration; None for other texts."""
    words = words.removesuffix("ago").strip()
    return _RELATIVE[words] if words in _RELATIVE else parse_duration(words)


def parse_duration(words: str) -> timedelta | None:
    """``12h`` or ``1d06h`` as a duration; None for other texts."""
    if _AGE.fullmatch(words) is None:
        return None
    parts = re.findall(r"(\d+)([wdhms])", words)
    return timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in parts))


def _last_day(match: re.Match[str], reference: datetime) -> datetime:
    """``14 Nov 08:14``: without a year, the last one that is not after ``reference``."""
    month = _MONTHS.index(match[2].lower()) + 1
    hour, minute, second = (int(match[part] or 0) for part in (4, 5, 6))
    year = int(match[3] or reference.year)
    moment = datetime(year, month, int(match[1]), hour, minute, second)
    if match[3] is None and moment > reference:
        return moment.replace(year=year - 1)
    return moment
