"""Formatting of states, times, numbers and foreign text for people.

Pure functions and tables of symbols, shared by commands and screens, so that the same thing
always has the same text. All functions return one line of plain characters: no markup, no
escape sequences. Unknown values are written as a dash, never as 0. The output edge translates
symbols for ASCII terminals: :func:`metlmon.text.spans.to_ascii`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from metlmon.model.states import DagState, Outcome, State
from metlmon.redact import clip as clip
from metlmon.redact import plain as plain
from metlmon.remote.paths import as_typed, split

THIN: Final = "\u202f"
"""Separates groups of three digits: a no-break space, so that no number is wrapped."""

UNKNOWN: Final = "–"
"""Text of an unknown value."""

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


class Colour(StrEnum):
    """The eight colours of Okabe and Ito, safe for colour-blind users.

    Grey replaces their black, which no dark terminal shows. The theme defines the shades.
    """

    PLAIN = "plain"
    GREY = "grey"
    ORANGE = "orange"
    SKY = "sky"
    GREEN = "green"
    YELLOW = "yellow"
    BLUE = "blue"
    VERMILLION = "vermillion"
    PURPLE = "purple"


class Weight(StrEnum):
    """Bold for text that needs attention, dim for text that does not."""

    BOLD = "bold"
    NORMAL = "normal"
    DIM = "dim"


class Symbol(Struct, frozen=True, cache_hash=True):
    """The display of a state: a glyph and a word, each sufficient alone."""

    glyph: str
    word: str
    colour: Colour
    weight: Weight = Weight.NORMAL
    letter: str = ""
    """Label of a site's symbol on the timeline."""

    def text(self) -> str:
        """Glyph and word: ``▶ running``."""
        return f"{self.glyph} {self.word}"


STATES: Final[Mapping[State, Symbol]] = {
    State.WAITING: Symbol("·", "waiting", Colour.GREY, Weight.DIM),
    State.IDLE: Symbol("◦", "idle", Colour.PLAIN),
    State.TRANSFERRING_INPUT: Symbol("↓", "transferring in", Colour.BLUE),
    State.STARTING: Symbol("↗", "starting", Colour.BLUE),
    State.RUNNING: Symbol("▶", "running", Colour.SKY),
    State.TRANSFERRING_OUTPUT: Symbol("↑", "transferring out", Colour.BLUE),
    State.SUSPENDED: Symbol("‖", "suspended", Colour.YELLOW),
    State.DISCONNECTED: Symbol("≈", "disconnected", Colour.PURPLE),
    State.HELD: Symbol("■", "held", Colour.VERMILLION, Weight.BOLD),
    State.PRE: Symbol("◔", "pre script", Colour.BLUE),
    State.POST: Symbol("◕", "post script", Colour.BLUE),
    State.COMPLETED: Symbol("✓", "completed", Colour.GREEN),
    State.SKIPPED: Symbol("–", "skipped", Colour.GREY, Weight.DIM),
    State.FAILED: Symbol("✗", "failed", Colour.VERMILLION, Weight.BOLD),
    State.REMOVED: Symbol("⌫", "removed", Colour.ORANGE),
    State.RETRYING: Symbol("↻", "retrying", Colour.ORANGE),
    State.FUTILE: Symbol("⊘", "futile", Colour.ORANGE, Weight.DIM),
    State.UNKNOWN: Symbol("?", "unknown", Colour.GREY),
}

OUTCOMES: Final[Mapping[Outcome, Symbol]] = {
    Outcome.GOOD: Symbol("✓", "succeeded", Colour.GREEN),
    Outcome.FAILED: Symbol("✗", "failed", Colour.VERMILLION, Weight.BOLD),
    Outcome.EVICTED: Symbol("↩", "evicted", Colour.ORANGE),
    Outcome.HELD: Symbol("■", "held", Colour.VERMILLION, Weight.BOLD),
    Outcome.REMOVED: Symbol("⌫", "removed", Colour.ORANGE),
    Outcome.SHADOW_EXCEPTION: Symbol("†", "shadow exception", Colour.PURPLE),
    Outcome.RECONNECT_FAILED: Symbol("≈", "reconnect failed", Colour.PURPLE),
    Outcome.IN_FLIGHT: Symbol("▶", "running", Colour.SKY),
}

BETWEEN: Final = "between epochs"
"""The state of a run between the end of its latest epoch and the submission of the next."""


STALLED: Final = Symbol("◌", "stalled", Colour.YELLOW, Weight.BOLD)

DAG_STATES: Final[Mapping[DagState, Symbol]] = {
    DagState.NOT_SUBMITTED: Symbol("·", "not submitted", Colour.GREY, Weight.DIM),
    DagState.RUNNING: Symbol("▶", "running", Colour.SKY),
    DagState.HELD: Symbol("■", "DAGMan held", Colour.VERMILLION, Weight.BOLD),
    DagState.RESTARTING: Symbol("≈", "DAGMan not running (restarts)", Colour.PURPLE),
    DagState.DONE: Symbol("✓", "done", Colour.GREEN),
    DagState.FAILED: Symbol("✗", "failed", Colour.VERMILLION, Weight.BOLD),
    DagState.REMOVED: Symbol("⌫", "removed", Colour.ORANGE),
    DagState.UNKNOWN: Symbol("?", "DAGMan's state unknown", Colour.GREY),
}


DONE_WITH_FAILURES: Final = Symbol("✓", "done with failures", Colour.ORANGE)
"""A DAG that succeeded by its FINAL node, although other nodes failed."""


def dag_sign(state: DagState, nodes_failed: int) -> Symbol:
    """The symbol of a DAG, by its state and number of failed nodes."""
    return DONE_WITH_FAILURES if state is DagState.DONE and nodes_failed else DAG_STATES[state]


def clip_middle(name: str, limit: int) -> str:
    """At most ``limit`` characters of a name, cut in its middle: names differ at their ends."""
    if len(name) <= limit:
        return name
    end = limit // 2
    return f"{name[: limit - end - 1]}…{name[-end:]}"


def duration(seconds: float | None) -> str:
    """``26s``, ``3m14s``, ``4h03m``, ``1d06h``, ``140d``; a dash for None."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0:
        return "-" + duration(-seconds)
    whole = int(seconds)
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // MINUTE}m{whole % MINUTE:02}s"
    if whole < DAY:
        return f"{whole // HOUR}h{whole % HOUR // MINUTE:02}m"
    days = whole // DAY
    return f"{number(days)}d" if days >= 100 else f"{days}d{whole % DAY // HOUR:02}h"


def seconds_ago(as_of: datetime | None, when: datetime | None) -> float | None:
    """Seconds from ``when`` to ``as_of``; None if unknown, or in different zones."""
    if as_of is None or when is None or (as_of.tzinfo is None) != (when.tzinfo is None):
        return None
    return (as_of - when).total_seconds()


def age(seconds: float | None) -> str:
    """A duration in its largest unit: ``3s``, ``41m``, ``5h``, ``12d``."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        if whole >= unit:
            return f"{number(whole // unit)}{name}"
    return f"{whole}s"


def number(value: int) -> str:
    """Digits in groups of three, separated by thin no-break spaces."""
    grouped = f"{value:,}"
    return grouped.replace(",", THIN)


def epoch_number(epoch: int) -> int:
    """The number of an epoch as shown, from 1; nodes and metrics count from 0."""
    return epoch + 1


def epoch_text(epoch: int | None) -> str:
    """The number of an epoch, from 1; empty for None."""
    return "" if epoch is None else str(epoch_number(epoch))


def ordinal(value: int) -> str:
    """``1st``, ``2nd``, ``13th``."""
    teen = 10 <= value % 100 <= 20
    return number(value) + ("th" if teen else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th"))


def count(value: int, one: str, many: str | None = None) -> str:
    """``1 warning``, ``12 warnings``; ``many`` is the plural if that is not made by "s"."""
    return f"{number(value)} {one if value == 1 else many or one + 's'}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """The first names: ``a, b, c and 12 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def hours(value: float | None) -> str:
    """Hours with about three digits: ``0``, ``<0.01``, ``0.31``, ``45.5``, ``1 011``."""
    if value is None:
        return UNKNOWN
    if value <= 0:
        return "0"
    if value < 0.005:
        return "<0.01"
    if value < 0.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.1f}"
    return number(round(value))


def exact_hours(value: float, decimals: int = 2) -> str:
    """Hours with ``decimals`` decimals: ``0``, ``<0.01``, ``0.31``, ``1 011.20``."""
    if 0 < value <= 0.5 * 10**-decimals:
        return f"<{10**-decimals:.{decimals}f}"
    grouped = f"{value:,.{decimals}f}" if value > 0 else "0"
    return grouped.replace(",", THIN)


def hours_added(parts: Sequence[float]) -> tuple[tuple[str, ...], str]:
    """Hours that are shown together, and their sum, with the same number of decimals.

    The sum is that of the rounded parts, so that it agrees with the shown hours; its last digit is
    off by a few at most. ``--json`` is exact.
    """
    decimals = hour_decimals(sum(parts))
    total = sum(round(max(0.0, part), decimals) for part in parts)
    shown = tuple(exact_hours(part, decimals) for part in parts)
    return shown, exact_hours(total or max(parts), decimals)


def hour_decimals(total: float) -> int:
    """The number of decimals for hours with this sum: about four digits for the largest."""
    return 3 if total < 0.9995 else 2 if total < 9.995 else 1 if total < 9999.5 else 0


def share(part: float, whole: float) -> str:
    """``40 %`` of a whole; a dash if that is 0. Only exact values are 0 % or 100 %."""
    if whole <= 0:
        return UNKNOWN
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "<1 %"
    if 99 < percent < 100:
        return ">99 %"
    return f"{percent:.0f} %"


def size(value: int | None, base: int = 1000) -> str:
    """Bytes with three digits: ``512 B``, ``2.30 TB``; a dash for None.

    Units are decimal or, with ``base`` 1024, those of submit files.
    """
    if value is None:
        return UNKNOWN
    amount, unit = float(value), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if abs(amount) < 999.5:
            break
        amount, unit = amount / base, larger
    if unit == "B":
        return f"{value} B"
    digits = 2 if abs(amount) < 9.995 else 1 if abs(amount) < 99.95 else 0
    return f"{amount:.{digits}f} {unit}"


def request_amount(kb: float) -> str:
    """``12GB``, ``160000MB``: as a submit file has it, in the largest unit without a fraction."""
    units = iter(("MB", "GB", "TB"))
    unit = "KB"
    while kb and kb % 1024 == 0 and (larger := next(units, None)):
        kb, unit = kb / 1024, larger
    return f"{kb:.0f}{unit}"


def metric(value: float | None) -> str:
    """A metric's value with four significant digits (``3.1e-05``); a dash for None."""
    if value is None:
        return UNKNOWN
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "-inf" if value < 0 else "inf"
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def metric_format(values: Iterable[float | None], digits: int = 4) -> Callable[[float], str]:
    """One format for the values of a metric in a column, aligned at the decimal point.

    It has as many decimals as give the lower median ``digits`` significant digits.
    """
    known = sorted(abs(value) for value in values if value and math.isfinite(value))
    middle = known[(len(known) - 1) // 2] if known else 1.0
    decimals = max(0, digits - 1 - math.floor(math.log10(middle)))
    if decimals > MAX_DECIMALS:
        return metric

    def write(value: float) -> str:
        if not math.isfinite(value):
            return metric(value)
        if abs(value) >= 1000 * middle:
            # The decimals of a diverged value say nothing.
            return metric(value) + " " * (decimals and decimals + 1)
        if value and not round(value, decimals):
            return metric(value)
        return f"{value:.{decimals}f}"

    return write


MAX_DECIMALS: Final = 6


def refused_submissions(times: int) -> str:
    """``1 submission refused: another DAGMan runs``; empty for 0."""
    return f"{count(times, 'submission')} refused: another DAGMan runs" if times else ""


def at_least(text: str, more: bool) -> str:
    """A number, with ``≥`` before it if there may be ``more``."""
    return f"≥{text}" if more else text


def nothing_logged(ended: Iterable[datetime | None]) -> str:
    """The text in place of a time, for a directory whose jobs logged nothing."""
    end_times = list(ended)
    known = [time for time in end_times if time is not None]
    if not known or len(known) < len(end_times):
        return "nothing was logged yet"
    local = [time for time in known if time.tzinfo is None] or known
    return f"nothing was logged; DAGMan ended {moment(max(local))}"


def moment(when: datetime | None, this_year: int | None = None, *, seconds: bool = False) -> str:
    """``14 Nov 08:14``, with seconds ``14 Nov 08:14:03``; a dash for None.

    ``this_year``, which is not written, is the year of the snapshot, so that the text does not
    depend on the day. A time with a zone, as in some logs, is followed by ``UTC`` or its offset.
    """
    if when is None:
        return UNKNOWN
    year = "" if when.year == this_year else f" {when.year}"
    clock = f"{when:%H:%M:%S}" if seconds else f"{when:%H:%M}"
    zone = "" if when.tzinfo is None else " UTC" if not when.utcoffset() else f" {when:%z}"
    return f"{when.day} {when:%b}{year} {clock}{zone}"


def day(when: datetime) -> str:
    """``4 Nov 2025``."""
    return f"{when.day} {when:%b %Y}"


_ISO_DATE: Final = re.compile(r"\b\d{4}-\d\d-\d\d\b")


def readable_dates(text: str) -> str:
    """A text such as ``2025-11-04 to 2025-11-30`` with its ISO dates formatted by :func:`day`."""
    return _ISO_DATE.sub(lambda match: day(datetime.fromisoformat(match[0])), text)


def year_of(as_of: datetime | None) -> int | None:
    """The year that the texts of a snapshot as of this time leave out."""
    return None if as_of is None else as_of.year


def period(start: datetime | None, end: datetime | None, this_year: int | None = None) -> str:
    """``14 Nov 08:14 → 15 Nov 09:00``; the date only once if both are on one day."""
    if start is None or end is None:
        return UNKNOWN
    seconds = abs((end - start).total_seconds()) < HOUR
    if start.date() == end.date():
        until = f"{end:%H:%M:%S}" if seconds else f"{end:%H:%M}"
    else:
        until = moment(end, this_year, seconds=seconds)
    return f"{moment(start, this_year, seconds=seconds)} → {until}"


_VENDORS: Final = re.compile(r"\b(NVIDIA|AMD|Intel|Tesla|Quadro|GeForce|Instinct|Radeon)\b ?", re.I)
_MEMORY: Final = re.compile(r"[ -]?\b(\d+) ?GB\b", re.I)
_FORM_FACTOR: Final = re.compile(
    r"[ -](SXM\d?|PCI[eE]|HBM\d\w?|OAM|Server Edition|Workstation Edition|Blackwell)\b"
)


def gpu_short(name: str | None) -> str:
    """``NVIDIA A100-SXM4-40GB`` → ``A100-40``, ``NVIDIA L40S`` → ``L40S``.

    Several models (``A + B``) keep their plus. Unknown names stay, except for the vendor's name.
    """
    if not name:
        return UNKNOWN
    return "+".join(_one_gpu(plain(part, 40)) for part in name.split(" + "))


def gpu_precise(name: str) -> str:
    """``NVIDIA A100-SXM4-40GB`` → ``A100-40 SXM4``: the short name with the form factor."""
    left_out = (part.strip(" -") for part in _FORM_FACTOR.findall(plain(name, 40)))
    return " ".join((gpu_short(name), *left_out)) if _FORM_FACTOR.search(name) else plain(name, 40)


def gpu_models(names: Iterable[str | None]) -> dict[str | None, str]:
    """The display names of GPU models: short, with the form factor if two are alike."""
    known_names = [name for name in dict.fromkeys(names) if name is not None]
    short = [gpu_short(name) for name in known_names]
    by_name: dict[str | None, str] = {None: "unknown"}
    for name, brief in zip(known_names, short, strict=True):
        by_name[name] = gpu_precise(name) if short.count(brief) > 1 else brief
    return by_name


def _one_gpu(name: str) -> str:
    short = _FORM_FACTOR.sub("", _VENDORS.sub("", name))
    memory = _MEMORY.search(short)
    if memory is None:
        return short.strip() or name
    before, after = short[: memory.start()], short[memory.end() :]
    return f"{before.strip()}-{memory.group(1)}{after.rstrip()}"


def used_of(used: float | None, of: float | None) -> str | None:
    """``0.91 of 1``; None if it was not measured."""
    if used is None:
        return None
    return f"{used:.2f}" if of is None else f"{used:.2f} of {of:g}"


def gpus(name: str | None, amount: int | None) -> str:
    """Model and number: ``A100-40 ×2``; a dash when neither is known."""
    if name is None and amount is None:
        return UNKNOWN
    sign = "×"
    if amount is None:
        return gpu_short(name)
    if name is None:
        return "no GPU" if amount == 0 else f"{sign}{amount}"
    return f"{gpu_short(name)} {sign}{amount}"


def job_id(cluster: int | None, proc: int | None) -> str:
    """``14808782.0``; a dash without a job."""
    if cluster is None:
        return UNKNOWN
    return f"{cluster}.{proc if proc is not None else 0}"


def done_without_job(rescue: int | None) -> str:
    """The reason why completed nodes have no job."""
    if rescue is not None:
        return "done by the rescue file"
    return "done, and no log here has a job of it"


def wants(target: str) -> str:
    """``→ expanse``: the target of a run that is not at a site yet."""
    return f"→ {plain(target, 40)}"


def last_site(site: str, target: str | None) -> str:
    """``→ expanse (was at Delta)``: the site of a job that is not running now."""
    was = f"was at {plain(site, 40)}"
    return was if target is None else f"{wants(target)} ({was})"


def progress_bar(done: int, total: int, width: int) -> str:
    """A bar of exactly ``width`` cells.

    It is full only when all is done, and not empty when something is: readers trust a full bar more
    than the number beside it.
    """
    if width <= 0:
        return ""
    steps = 2
    all_steps = width * steps
    filled = 0 if total <= 0 else max(0, min(all_steps, done * all_steps // total))
    if 0 < done < total:
        filled = max(1, min(filled, all_steps - 1))
    full_cells, half_cell = divmod(filled, steps)
    return "━" * full_cells + "╸" * half_cell + "─" * (width - full_cells - half_cell)


def apportion(amounts: list[int], cells: int) -> list[int]:
    """Cells in proportion to the amounts, with a sum of exactly ``cells``.

    Each is at least one, if there are as many cells as amounts.
    """
    total = sum(amounts)
    shares = [max(1, cells * amount // total) for amount in amounts]
    while sum(shares) != cells:
        step = 1 if sum(shares) < cells else -1
        # Add (remove) a cell where the share is furthest below (above) the exact value.
        deficit = [
            (cells * amount / total - share) * step
            for amount, share in zip(amounts, shares, strict=True)
        ]
        adjustable = [i for i, share in enumerate(shares) if step > 0 or share > 1] or list(
            range(len(shares))
        )
        shares[max(adjustable, key=lambda i: deficit[i])] += step
    return shares


def directory_name(dagdir: str) -> str:
    """The name of a dagdir or DAG file, with ``.`` and ``..`` resolved; ``HOST:NAME`` if remote."""
    name = os.path.basename(os.path.normpath(dagdir))
    if (place := split(dagdir)) is not None:
        return f"{place.host}:{name}"
    if name in (os.curdir, os.pardir):
        with suppress(OSError):  # the current directory may have been removed
            name = os.path.basename(os.path.abspath(dagdir))
    return name or dagdir


def directory_label(dagdir: str) -> str:
    """The path as given, or a name if it has none (``.``, ``..``)."""
    name = os.path.basename(os.path.normpath(dagdir))
    return directory_name(dagdir) if name in (os.curdir, os.pardir) else as_typed(dagdir)


# --- lists of sites, as in MetlSite, MetlExcluded and the files of the gate -----------

SEPARATOR: Final = "|"
"""Separates the sites of a list; names may contain commas and blanks."""


def site_list(text: str) -> tuple[str, ...]:
    """The sites of a list; a single name is a list of one."""
    return tuple(filter(None, (name.strip() for name in text.split(SEPARATOR))))


def joined(sites: Iterable[str]) -> str:
    """The sites as a list."""
    return SEPARATOR.join(sites)
