"""How estimates and rates are written: the same words in commands and on screens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from metlmon.stats.estimates import EpochDurations, Forecast, Interval, Rate, RunForecast
from metlmon.text.formatting import DAY, HOUR, MINUTE, count, number, plain

UNITS: Final = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"))

SURE: Final = 2.0
ROUGH: Final = 5.0
"""An estimate is good when the late end of its interval is less than twice the early one, and
rough when it is more than five times as much."""

FEW: Final = 5
"""Of fewer epochs than this nothing good can be said."""


def _in_unit(seconds: float) -> tuple[int, str]:
    """Two of a unit at least: 36 h tell more than 1 d."""
    for unit, name in UNITS:
        if seconds >= 1.95 * unit:
            return max(1, round(seconds / unit)), name
    return max(0, round(seconds)), "s"


def about(seconds: float, ascii: bool = False) -> str:
    """``6 d``, ``36 h``, ``50 min``."""
    amount, unit = _in_unit(seconds)
    return f"{number(amount, ascii)} {unit}"


def between(low: float, high: float, ascii: bool = False) -> str:
    """``4–9 d``, ``20 h – 3 d``."""
    dash = "-" if ascii else "–"
    (first, unit), (second, other) = _in_unit(low), _in_unit(high)
    if unit == other:
        same = first == second
        return about(high, ascii) if same else f"{number(first, ascii)}{dash}{about(high, ascii)}"
    return f"{about(low, ascii)} {dash} {about(high, ascii)}"


def span(value: Interval | None, ascii: bool = False) -> str:
    """``6 d (4–9 d)``."""
    if value is None:
        return ""
    return _within(about(value.middle, ascii), between(value.low, value.high, ascii))


def _within(middle: str, ends: str) -> str:
    """``6 d (4–9 d)``; only ``6 d`` where both ends are written like that too."""
    return middle if middle == ends else f"{middle} ({ends})"


def sureness(value: Interval) -> str:
    """``good``, ``fair`` or ``rough``, by the width of the interval and what it is made from."""
    if value.samples < FEW or value.high > ROUGH * max(1.0, value.low):
        return "rough"
    return "good" if value.high < SURE * max(1.0, value.low) else "fair"


def rate(value: Rate | None, ascii: bool = False) -> str:
    """``17 epochs/day``; of less than a day ``12 epochs in 5 h``; nothing before the first."""
    if value is None or not value.epochs:
        return ""
    if value.seconds < DAY:
        return f"{count(value.epochs, 'epoch', ascii=ascii)} in {about(value.seconds, ascii)}"
    per_day = value.per_day
    shown = f"{per_day:.1f}" if per_day < 9.95 else number(round(per_day), ascii)
    return f"{shown} epochs/day"


def pace(value: EpochDurations | None, ascii: bool = False) -> str:
    """``6 h (5–18 h) of 10``: what an epoch took, its middle half, of how many."""
    if value is None:
        return ""
    told = about(value.median, ascii)
    if value.lower is None or value.upper is None:
        return told
    return _within(told, between(value.lower, value.upper, ascii))


def epochs(outlook: Forecast, ascii: bool = False) -> str:
    """``14 of 30 epochs done, 16 skipped``."""
    done = f"{number(outlook.done, ascii)} of "
    done += f"{count(outlook.total, 'epoch', ascii=ascii)} done"
    return done + (f", {number(outlook.skipped, ascii)} skipped" if outlook.skipped else "")


def done_in(outlook: Forecast, ascii: bool = False, brief: bool = False) -> str:
    """``done in 6 d (4–9 d) without run4, which is held``; when it was; or why it cannot be
    said. Of a copy that is not live it holds from its own moment on."""
    if outlook.ended is not None:
        return f"done since {minute(outlook.ended)}"
    if outlook.span is None:
        why = plain(outlook.why_not or "", ascii=ascii)
        if why.startswith("not before"):
            return f"no estimate {why.removeprefix('not ')}"
        return f"end {why}" if why.startswith("unknown") else why
    told = span(outlook.span, ascii)
    told = f"done in {told}" if outlook.live else f"{told} to go then"
    return told + without(outlook.without, ascii, brief)


def without(left_out: Sequence[tuple[str, str]], ascii: bool = False, brief: bool = False) -> str:
    """`` without run4, which is held``; `` without 3 runs, which are held``."""
    if not left_out:
        return ""
    if brief:
        return f" without {count(len(left_out), 'run', ascii=ascii)}"
    if len(left_out) == 1:
        name, why = left_out[0]
        return f" without {plain(name, 24, ascii)}, which {why}"
    reasons = {why for _, why in left_out}
    told = f" without {count(len(left_out), 'run', ascii=ascii)}"
    if len(reasons) > 1:
        return f"{told} that do not go on"
    why = reasons.pop()
    plural = {
        "is held": "are held",
        "was removed": "were removed",
        "does not go on": "do not go on",
    }
    return f"{told}, which {plural.get(why, why)}"


def minute(when: datetime | None) -> str:
    """``2025-11-14 08:14``; nothing for None."""
    return "" if when is None else f"{when:%Y-%m-%d %H:%M}"


def run_left(run: RunForecast, ascii: bool = False) -> str:
    """``6 d (4–9 d)`` of a run; when it ended; why it cannot be said."""
    if not run.left:
        word = "stopped" if run.stopped else "done"
        return f"{word} {minute(run.ended)}" if run.ended is not None else word
    return span(run.span, ascii) if run.span is not None else run.why_not or ""
