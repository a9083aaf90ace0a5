"""How states, times, numbers and foreign text are written for people.

Pure functions and one table of signs, shared by the commands and the screens, so that no
two of them say the same thing differently.  Everything here returns one line of plain
characters: no markup, no escape sequences.  ``ascii=True`` asks for characters below 0x80
only; "not known" is written as a dash, never as 0.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from metlmon.frozen import frozen
from metlmon.model.states import UNPLACED, DagState, Outcome, State

THIN: Final = "\u202f"
"""Separates groups of three digits; the no-break form, so that no number is wrapped."""

UNKNOWN: Final = "–"
"""Stands for a value that is not known; "-" in ASCII."""

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


class Colour(StrEnum):
    """The eight colours of Okabe and Ito by name (grey for their black, which no dark
    terminal shows): told apart by people who see few colours. Who draws decides the shade."""

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
    """Bold for what needs a person, dim for what does not."""

    BOLD = "bold"
    NORMAL = "normal"
    DIM = "dim"


@frozen
class Symbol:
    """How one state is told: each of glyph, letter and word is enough alone."""

    glyph: str
    letter: str
    word: str
    colour: Colour
    weight: Weight = Weight.NORMAL

    def mark(self, ascii: bool = False) -> str:
        """The glyph, or its letter in ASCII: one cell wide either way."""
        return self.letter if ascii else self.glyph

    def text(self, ascii: bool = False) -> str:
        """Mark and word: ``▶ running``."""
        return f"{self.mark(ascii)} {self.word}"


STATES: Final[Mapping[State, Symbol]] = {
    State.WAITING: Symbol("·", ".", "waiting", Colour.GREY, Weight.DIM),
    State.IDLE: Symbol("◦", "i", "idle", Colour.PLAIN),
    State.TRANSFERRING_INPUT: Symbol("↓", "<", "transferring in", Colour.BLUE),
    State.STARTING: Symbol("↗", "s", "starting", Colour.BLUE),
    State.RUNNING: Symbol("▶", "R", "running", Colour.SKY),
    State.TRANSFERRING_OUTPUT: Symbol("↑", ">", "transferring out", Colour.BLUE),
    State.SUSPENDED: Symbol("‖", "S", "suspended", Colour.YELLOW),
    State.DISCONNECTED: Symbol("≈", "?", "disconnected", Colour.PURPLE),
    State.HELD: Symbol("■", "H", "held", Colour.VERMILLION, Weight.BOLD),
    State.PRE: Symbol("◔", "p", "pre script", Colour.BLUE),
    State.POST: Symbol("◕", "P", "post script", Colour.BLUE),
    State.COMPLETED: Symbol("✓", "+", "completed", Colour.GREEN),
    State.SKIPPED: Symbol("–", "-", "skipped", Colour.GREY, Weight.DIM),
    State.FAILED: Symbol("✗", "X", "failed", Colour.VERMILLION, Weight.BOLD),
    State.REMOVED: Symbol("⌫", "D", "removed", Colour.ORANGE),
    State.RETRYING: Symbol("↻", "r", "retrying", Colour.ORANGE),
    State.FUTILE: Symbol("⊘", "F", "futile", Colour.ORANGE, Weight.DIM),
    State.UNKNOWN: Symbol("?", "u", "unknown", Colour.GREY),
}

OUTCOMES: Final[Mapping[Outcome, Symbol]] = {
    Outcome.GOOD: Symbol("✓", "+", "good", Colour.GREEN),
    Outcome.FAILED: Symbol("✗", "X", "failed", Colour.VERMILLION, Weight.BOLD),
    Outcome.EVICTED: Symbol("↩", "e", "evicted", Colour.ORANGE),
    Outcome.HELD: Symbol("■", "H", "held", Colour.VERMILLION, Weight.BOLD),
    Outcome.REMOVED: Symbol("⌫", "D", "removed", Colour.ORANGE),
    Outcome.SHADOW_EXCEPTION: Symbol("†", "x", "shadow exception", Colour.PURPLE),
    Outcome.RECONNECT_FAILED: Symbol("≈", "?", "reconnect failed", Colour.PURPLE),
    Outcome.IN_FLIGHT: Symbol("▶", "R", "in flight", Colour.SKY),
}

BETWEEN: Final = "next waits"
"""Of a run whose latest epoch is over while the one after it was not submitted yet."""


def between_epochs(state: State, done: int, total: int) -> bool:
    """Whether a run in this state waits for its next epoch: ``done`` of ``total`` are over."""
    return state in (State.COMPLETED, State.SKIPPED) and done < total


STALLED: Final = Symbol("◌", "z", "stalled", Colour.YELLOW, Weight.BOLD)

DAG_STATES: Final[Mapping[DagState, Symbol]] = {
    DagState.NOT_SUBMITTED: Symbol("·", ".", "not submitted", Colour.GREY, Weight.DIM),
    DagState.RUNNING: Symbol("▶", "R", "running", Colour.SKY),
    DagState.HELD: Symbol("■", "H", "DAGMan held", Colour.VERMILLION, Weight.BOLD),
    DagState.RESTARTING: Symbol("≈", "z", "DAGMan not running (restarts)", Colour.PURPLE),
    DagState.DONE: Symbol("✓", "+", "done", Colour.GREEN),
    DagState.FAILED: Symbol("✗", "X", "failed", Colour.VERMILLION, Weight.BOLD),
    DagState.REMOVED: Symbol("⌫", "D", "removed", Colour.ORANGE),
    DagState.UNKNOWN: Symbol("?", "?", "state unknown", Colour.GREY),
}


DONE_WITH_FAILURES: Final = Symbol("✓", "+", "done with failures", Colour.ORANGE)
"""Of a DAG whose FINAL node succeeded, which decides, although other nodes failed."""


def dag_sign(state: DagState, nodes_failed: int) -> Symbol:
    """The sign of a DAG in this state of which so many nodes failed."""
    return DONE_WITH_FAILURES if state is DagState.DONE and nodes_failed else DAG_STATES[state]


def problem_sign(kind: str) -> Symbol:
    """The sign of a problem group's ``kind`` (an outcome's value, or ``stalled``)."""
    if kind == "stalled":
        return STALLED
    try:
        return OUTCOMES[Outcome(kind)]
    except ValueError:
        return Symbol("!", "!", plain(kind, 20, ascii=True), Colour.ORANGE)


def unknown(ascii: bool = False) -> str:
    """The dash for a value that is not known."""
    return "-" if ascii else UNKNOWN


def duration(seconds: float | None, ascii: bool = False) -> str:
    """``12 s``, ``0:41:10``, ``3:41:10``, ``2 d 4:12``, ``140 d``; a dash for None.

    Always hours:minutes:seconds below a day and days hours:minutes above, so that a
    column of them cannot be misread. A negative one (a clock set back) keeps its sign.
    """
    if seconds is None:
        return unknown(ascii)
    if seconds < 0:
        return "-" + duration(-seconds, ascii)
    whole = int(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < DAY:
        return f"{whole // HOUR}:{whole % HOUR // MINUTE:02}:{whole % MINUTE:02}"
    days, rest = divmod(whole, DAY)
    if days >= 100:
        return f"{number(days, ascii)} d"
    return f"{days} d {rest // HOUR}:{rest % HOUR // MINUTE:02}"


def age(seconds: float | None, ascii: bool = False) -> str:
    """A duration in one unit, for "log 3 s ago": ``3 s``, ``41 min``, ``5 h``, ``12 d``."""
    if seconds is None:
        return unknown(ascii)
    whole = max(0, int(seconds))
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if whole >= unit:
            return f"{number(whole // unit, ascii)} {name}"
    return f"{whole} s"


def number(value: int, ascii: bool = False) -> str:
    """Digits in groups of three: thin no-break spaces between them, commas in ASCII."""
    grouped = f"{value:,}"
    return grouped if ascii else grouped.replace(",", THIN)


def count(value: int, one: str, many: str | None = None, ascii: bool = False) -> str:
    """``1 warning``, ``12 warnings``; ``many`` where an "s" does not make the plural."""
    return f"{number(value, ascii)} {one if value == 1 else many or one + 's'}"


def hours(value: float | None, ascii: bool = False) -> str:
    """Hours: ``0``, ``<0.01``, ``0.31``, ``45.5``, ``1 011``: decimals while they tell."""
    if value is None:
        return unknown(ascii)
    if value <= 0:
        return "0"
    if value < 0.005:
        return "<0.01"
    if value < 0.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.1f}"
    return number(round(value), ascii)


def hours_added(parts: Sequence[float], ascii: bool = False) -> tuple[tuple[str, ...], str]:
    """Hours that are told together, and their sum: all with the same number of decimals (the
    fewer the larger they are), and the sum that of what is shown, so that who adds up finds
    no difference. It is off by a few of its last digit at most; ``--json`` has it whole."""
    decimals = _decimals(sum(parts))
    units = [round(max(0.0, part) * 10**decimals) for part in parts]

    def told(unit: int) -> str:
        grouped = f"{unit / 10**decimals:,.{decimals}f}" if unit else "0"
        return grouped if ascii else grouped.replace(",", THIN)

    least = f"<{10**-decimals:.{decimals}f}"
    shown = tuple(
        least if part > 0 and not unit else told(unit)
        for part, unit in zip(parts, units, strict=True)
    )
    nothing = not any(units) and any(part > 0 for part in parts)
    return shown, least if nothing else told(sum(units))


def _decimals(total: float) -> int:
    """Of hours that make so many together: four digits or so of the largest."""
    return 3 if total < 0.9995 else 2 if total < 9.995 else 1 if total < 9999.5 else 0


def share(part: float, whole: float, ascii: bool = False) -> str:
    """``40 %`` of a whole; a dash of nothing. Never 0 % or 100 % of what is neither."""
    if whole <= 0:
        return unknown(ascii)
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "<1 %"
    if 99 < percent < 100:
        return ">99 %"
    return f"{percent:.0f} %"


def size(value: int | None, ascii: bool = False) -> str:
    """Bytes in decimal units, three digits: ``512 B``, ``2.30 TB``; a dash for None."""
    if value is None:
        return unknown(ascii)
    amount, unit = float(value), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if abs(amount) < 999.5:
            break
        amount, unit = amount / 1000, larger
    if unit == "B":
        return f"{value} B"
    digits = 2 if abs(amount) < 9.995 else 1 if abs(amount) < 99.95 else 0
    return f"{amount:.{digits}f} {unit}"


def metric(value: float | None, ascii: bool = False) -> str:
    """A metric's value with four digits that tell: ``0.2308``, ``48``, ``2428``, ``3.1e-05``, and
    ``NaN``, ``∞`` (``inf``); a dash for None."""
    if value is None:
        return unknown(ascii)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return ("-" if value < 0 else "") + ("inf" if ascii else "∞")
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def refused_submissions(times: int, ascii: bool = False) -> str:
    """``1 submission refused: another DAGMan runs``; empty for none."""
    return (
        f"{count(times, 'submission', ascii=ascii)} refused: another DAGMan runs" if times else ""
    )


def at_least(told: str, more: bool, ascii: bool = False) -> str:
    """A number, ``≥4`` where there may be ``more``."""
    return f"{'>=' if ascii else '≥'}{told}" if more else told


def nothing_logged(ended: Iterable[datetime | None], ascii: bool = False) -> str:
    """In place of a moment, of a directory whose jobs logged nothing. ``ended``: when the DAGMan
    of each of its DAGs ended, None for one that did not, or of which that is not known."""
    moments = list(ended)
    known = [each for each in moments if each is not None]
    if not known or len(known) < len(moments):
        return "nothing was logged yet"
    local = [each for each in known if each.tzinfo is None] or known
    return f"nothing was logged; DAGMan ended {moment(max(local), ascii)}"


def moment(when: datetime | None, ascii: bool = False) -> str:
    """``2025-11-14 08:14:00``, with a ``Z`` where the log said UTC; a dash for None."""
    if when is None:
        return unknown(ascii)
    zone = "" if when.tzinfo is None else "Z" if not when.utcoffset() else when.strftime("%z")
    return when.strftime("%Y-%m-%d %H:%M:%S") + zone


_MAKERS: Final = re.compile(r"\b(NVIDIA|AMD|Intel|Tesla|Quadro|GeForce|Instinct|Radeon)\b ?", re.I)
_MEMORY: Final = re.compile(r"[ -]?\b(\d+) ?GB\b", re.I)
_FORM: Final = re.compile(
    r"[ -](SXM\d?|PCI[eE]|HBM\d\w?|OAM|Server Edition|Workstation Edition|Blackwell)\b"
)


def gpu_short(name: str | None, ascii: bool = False) -> str:
    """``NVIDIA A100-SXM4-40GB`` → ``A100-40``, ``NVIDIA L40S`` → ``L40S``; several models
    (``A + B``) keep their plus. What is not recognised stays, without its maker's name."""
    if not name:
        return unknown(ascii)
    return "+".join(_one_gpu(plain(part, 40, ascii)) for part in name.split(" + "))


def _one_gpu(name: str) -> str:
    short = _FORM.sub("", _MAKERS.sub("", name))
    memory = _MEMORY.search(short)
    if memory is None:
        return short.strip() or name
    before, after = short[: memory.start()], short[memory.end() :]
    return f"{before.strip()}-{memory.group(1)}{after.rstrip()}"


def gpus(name: str | None, how_many: int | None, ascii: bool = False) -> str:
    """Model and number: ``A100-40 ×2``; a dash when neither is known."""
    if name is None and how_many is None:
        return unknown(ascii)
    times = "x" if ascii else "×"
    if how_many is None:
        return gpu_short(name, ascii)
    if name is None:
        return "no GPU" if how_many == 0 else f"{times}{how_many}"
    return f"{gpu_short(name, ascii)} {times}{how_many}"


def job_id(cluster: int | None, proc: int | None, ascii: bool = False) -> str:
    """``14808782.0``; a dash when there is no job."""
    if cluster is None:
        return unknown(ascii)
    return f"{cluster}.{proc if proc is not None else 0}"


def done_without_job(rescue: int | None) -> str:
    """Why nothing was submitted of what is done. ``rescue``: the number of the DAG's rescue file,
    None without one."""
    if rescue is not None:
        return "done by the rescue file"
    return "done, and no log here tells of a job of it"


def wants(target: str, limit: int = 40, ascii: bool = False) -> str:
    """``→ expanse``: where a run is to go, and is not yet."""
    return f"{'->' if ascii else '→'} {plain(target, limit, ascii)}"


def site(
    where: str | None,
    target: str | None,
    off_target: bool,
    limit: int = 40,
    ascii: bool = False,
    state: State | None = None,
) -> str:
    """Where a run is; ``Delta ≠ expanse`` (``!=`` in ASCII) where it wanted to go elsewhere;
    ``→ expanse (was at Delta)`` where its job, by ``state``, runs nowhere now.

    With an unknown site nothing is said of the target: a target is never a site.
    """
    if where is None:
        return unknown(ascii)
    here = plain(where, limit, ascii)
    if state in UNPLACED:
        was = f"was at {here}"
        return was if target is None else f"{wants(target, limit, ascii)} ({was})"
    if not off_target or target is None:
        return here
    return f"{here} {'!=' if ascii else '≠'} {plain(target, limit, ascii)}"


def progress_bar(done: int, total: int, width: int, ascii: bool = False) -> str:
    """A bar of exactly ``width`` cells. It is full only when all is done, and never empty
    when something is: a stranger trusts a full bar more than the number beside it."""
    width = max(0, width)
    steps = 1 if ascii else 2
    whole = width * steps
    filled = 0 if total <= 0 else max(0, min(whole, done * whole // total))
    if 0 < done < total:
        filled = max(1, min(filled, whole - 1))
    full, half = divmod(filled, steps)
    if ascii:
        return "#" * full + "-" * (width - full)
    return "━" * full + "╸" * half + "─" * (width - full - half)


_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Me"})
"""Unicode categories that a terminal obeys, hides or draws at no certain width: controls,
formats (bidi overrides, zero-width, tags), surrogates, private use, unassigned, line ends,
enclosing marks (no language is written with them)."""

_STACKED: Final = 2
"""Combining marks in a row that real languages need; more are meant to climb over lines."""


def plain(text: str, limit: int | None = None, ascii: bool = False) -> str:
    """Foreign text as one visible, bounded line. **Every** text that a log, a DAG file or a
    job wrote goes through here before it is drawn or printed.

    White space of any kind becomes single blanks; what a terminal would obey or not show
    (escape sequences, control characters, bidi overrides, zero-width characters, stacked
    marks) is written as ``\\x1b`` or ``\\u202e``; at most ``limit`` characters come back,
    the last of them an ellipsis when something was cut.
    """
    if limit is not None:
        # Work is bounded too: a line of megabytes costs what its visible part costs. The
        # factor leaves room for blanks that are about to be folded.
        text = text[: 4 * limit + 64]
    if text.isascii() and text.isprintable() and "  " not in text:
        shown = text.strip()
    else:
        shown = " ".join("".join(_visible(unicodedata.normalize("NFC", text))).split())
    if ascii and not shown.isascii():
        shown = shown.translate(_TYPOGRAPHY).encode("ascii", "backslashreplace").decode("ascii")
    return clip(shown, limit, ascii)


_TYPOGRAPHY: Final = str.maketrans(
    {"…": "...", "–": "-", "—": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "×": "x", "≠": "!="}
)
"""What is no less legible in ASCII, and common in messages."""


def clip(text: str, limit: int | None, ascii: bool = False) -> str:
    """At most ``limit`` characters of ``text``, ending in an ellipsis when it was cut."""
    if limit is None or len(text) <= limit:
        return text
    dots = "..." if ascii else "…"
    return text[: max(0, limit - len(dots))] + dots[: max(0, limit)]


def clip_middle(text: str, limit: int, ascii: bool = False) -> str:
    """At most ``limit`` characters of ``text``, its middle left out when it was cut: what paths
    and names differ in stands mostly at their end."""
    dots = "..." if ascii else "…"
    end = limit // 2
    if len(text) <= limit or end <= len(dots):
        return clip(text, limit, ascii)
    return text[: limit - end - len(dots)] + dots + text[-end:]


def _visible(text: str) -> list[str]:
    out: list[str] = []
    marks = _STACKED
    for character in text:
        category = unicodedata.category(character)
        if category[0] == "M":
            marks += 1
            selector = "\ufe00" <= character <= "\ufe0f" or character >= "\U000e0100"
            unseen = selector or category == "Me" or marks > _STACKED or character in _UNSEEN
            out.append(_escaped(character) if unseen else character)
            continue
        marks = 0
        if character.isspace() and category != "Zl" and category != "Zp":
            out.append(" ")
        elif category in _HIDDEN or character in _UNSEEN:
            out.append(_escaped(character))
            marks = _STACKED
        else:
            out.append(character)
    return out


_UNSEEN: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U00016fe4"
)
"""Fillers, joiners and selectors that count as letters, marks or symbols and show nothing
(Default_Ignorable_Code_Point of Unicode, and blank cells)."""


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
