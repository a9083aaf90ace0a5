"""How a sweep is told: the same words in the command and on the screen."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from metlmon.frozen import frozen
from metlmon.snapshot.gate_text import PAUSED, STOPPED
from metlmon.stats.curves import Course, course_sign
from metlmon.stats.sweep import Axis, Point, Value
from metlmon.stats.sweep_grid import NEEDS, Grid, GridCell, standing
from metlmon.text.formatting import STATES, Symbol, clip_middle, count, number, plain, unknown
from metlmon.text.formatting import metric as metric_told

VALUE_LIMIT: Final = 24
"""Characters of a value as a row or a column is called."""

NAMED_LIMIT: Final = 48
WHOLE_LIMIT: Final = 400
"""And where it stands in a sentence, and where there is all the room that it needs."""

BEFORE: Final = 8
"""Characters that stay before those in which long values differ, where no part begins there."""

PARTS: Final = "/_- ,;:="
"""Behind these a part of a path or a name begins."""

NAME_LIMIT: Final = 24

BEST: Final = "★"
"""Marks the best cell; "*" in ASCII."""


@frozen
class SweepHeadline:
    """Which point is best, and how far the sweep is, in parts: ``best 0.2308 at lr 0.03, width
    64``, ``run17 epoch 4``, ``7 of 10 points done, 3 stopped`` (``points_short``: ``7 of 10
    done``), ``2 running, 1 paused``, ``1 needs a person``, ``43 of 60 epochs``; "" for what
    there is not."""

    best: str
    where: str
    points: str
    points_short: str
    moving: str
    need: str
    epochs: str


def value(of: Value, ascii: bool = False) -> str:
    """A value as it is; a dash where it is not given."""
    return unknown(ascii) if of is None else plain(of, WHOLE_LIMIT, ascii) or '""'


def labels(axis: Axis, ascii: bool = False) -> dict[Point, str]:
    """What each point is called: ``0.1``, of variables that go together ``0.1 + 20``. Long values
    are shortened, so that what they differ in is left (:func:`_short`)."""
    short = [_short([at[i] for at in axis.points], ascii) for i, _ in enumerate(axis.names)]
    return {
        at: " + ".join(names[each] for names, each in zip(short, at, strict=True))
        for at in axis.points
    }


def _short(values: Iterable[Value], ascii: bool) -> dict[Value, str]:
    """The values of one variable. What all long ones begin with is left out, up to where a part
    of a name begins, then the middle of what is too long still."""
    told = {each: value(each, ascii) for each in values}
    long = {text for text in told.values() if len(text) > VALUE_LIMIT}
    skip = _shared(long)
    dots = "..." if ascii else "…"
    return {
        each: clip_middle(dots + text[skip:] if skip else text, VALUE_LIMIT, ascii)
        if text in long
        else text
        for each, text in told.items()
    }


def _shared(texts: Collection[str]) -> int:
    """So many characters all of several texts begin with, up to where a part of a name begins, or
    else to some characters before they differ: a name without its beginning says little."""
    if len(texts) < 2:
        return 0
    first, last = min(texts), max(texts)
    same = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first)
    )
    return max(first.rfind(mark, 0, same) + 1 for mark in PARTS) or max(0, same - BEFORE)


def axis_name(of: Axis, ascii: bool = False) -> str:
    """``lr``; of variables that go together ``lr + width``."""
    return " + ".join(plain(name, NAME_LIMIT, ascii) for name in of.names)


def named(axis: Axis, at: Point, ascii: bool = False, whole: bool = False) -> str:
    """``lr 0.1, width 64``; long values shortened unless ``whole``."""
    told = [value(each, ascii) for each in at]
    if not whole:
        told = [
            _short((point[i] for point in axis.points), ascii)[each] for i, each in enumerate(at)
        ]
    return ", ".join(
        f"{plain(name, NAME_LIMIT, ascii)} {each}"
        for name, each in zip(axis.names, told, strict=True)
    )


def place(of: Grid, cell: GridCell, ascii: bool = False, whole: bool = False) -> str:
    """Where a cell is: ``lr 0.1, width 64``; long values shortened unless ``whole``."""
    parts = [named(of.rows, cell.row, ascii, whole)] if of.rows is not None else []
    parts += [named(of.columns, cell.column, ascii, whole)] if of.columns is not None else []
    return ", ".join(parts)


def reached(cell: GridCell, ascii: bool = False) -> str:
    """The value of a cell, ``NaN`` or ``∞`` where there is none but that, a dash without any."""
    if cell.best is not None and cell.best.value is not None:
        return metric_told(cell.best.value.value, ascii)
    odd = cell.astray.last if cell.lost is Course.NAN and cell.astray is not None else None
    return metric_told(odd, ascii)


def sign(cell: GridCell) -> Symbol:
    """What is to be seen first of a cell beside its value: what needs a person, that it went
    wrong, that it was stopped, or its state."""
    if cell.state in NEEDS:
        return STATES[cell.state]
    if cell.astray is not None:
        return course_sign(cell.astray.course, cell.astray.last)
    if cell.stopped:
        return STOPPED
    return PAUSED if cell.paused else STATES[cell.state]


def state(cell: GridCell, ascii: bool = False) -> str:
    """``▶ running``, ``✓ completed, diverged``, ``✓ completed, stopped``."""
    told = STATES[cell.state].text(ascii)
    run = cell.astray
    told += f", {course_sign(run.course, run.last).word}" if run is not None else ""
    told += f", {STOPPED.word}" if cell.stopped else ""
    return told + (f", {PAUSED.word}" if cell.paused else "")


def no_sweep() -> list[str]:
    """Why there is no grid, and what would make one."""
    return [
        "No sweep here: no variable (VARS) of the DAG is the same all through each run and "
        "differs between runs.",
        "metlmon's own do not count: run, run_uuid, node, epoch, epochs, random_seed, "
        "ResourceName, GpuModel, continue_from_checkpoint.",
        "metlmon new writes a sweep: one run for each combination of values.",
    ]


def answer(of: Grid, ascii: bool = False, whole: bool = False) -> SweepHeadline:
    """The first line of a sweep; long values shortened unless ``whole``."""
    told = standing(of)
    best, where = "", ""
    run = of.best.best if of.best is not None else None
    if of.best is not None and run is not None and run.value is not None:
        best = f"best {reached(of.best, ascii)} at {place(of, of.best, ascii, whole)}"
        where = f"{plain(run.name, NAME_LIMIT, ascii)} epoch {run.value.epoch}"
    moving = [f"{number(told.moving, ascii)} running"] * (told.moving > 0)
    moving += [f"{number(told.idle, ascii)} idle"] * (told.idle > 0)
    moving += [f"{number(told.paused, ascii)} {PAUSED.word}"] * (told.paused > 0)
    waiting = told.waiting - told.paused
    moving += [f"{number(waiting, ascii)} waiting"] * (waiting > 0)
    stopped = f", {number(told.stopped, ascii)} {STOPPED.word}" if told.stopped else ""
    verb = "needs" if told.need == 1 else "need"
    return SweepHeadline(
        best,
        where,
        f"{number(told.over, ascii)} of {count(told.points, 'point', ascii=ascii)} done{stopped}",
        f"{number(told.over, ascii)} of {number(told.points, ascii)} done",
        ", ".join(moving),
        f"{number(told.need, ascii)} {verb} a person" if told.need else "",
        f"{number(told.done, ascii)} of {count(told.total, 'epoch', ascii=ascii)}",
    )


def folding(of: Grid, ascii: bool = False) -> list[str]:
    """What becomes of the variables that are neither rows nor columns: ``best over up to 3 of
    seed``, ``width fixed at 64``."""
    fixed = [
        (plain(name, NAME_LIMIT, ascii), clip_middle(value(each, ascii), NAMED_LIMIT, ascii))
        for name, each in of.fixed
    ]
    told = [f"{name} fixed at {each}" for name, each in fixed]
    told += [
        f"best over up to {each.most} of {axis_name(each.axis, ascii)}"
        for each in of.folded
        if each.most > 1
    ]
    most = max((len(cell.runs) for cell in of.cells.values()), default=0)
    values = max((each.most for each in of.folded), default=0)
    if most > max(values, 1):
        told.append(f"best of up to {most} runs a point")
    return told
