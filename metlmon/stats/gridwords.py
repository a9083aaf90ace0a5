"""How a sweep is told: the same words in the command and on the screen."""

from __future__ import annotations

from typing import Final

from metlmon.ensemble.gatewords import PAUSED, STOPPED
from metlmon.ensemble.wording import STATES, Sign, count, number, plain, unknown
from metlmon.ensemble.wording import metric as metric_told
from metlmon.frozen import frozen
from metlmon.stats.curves import COURSES, Course
from metlmon.stats.grid import NEEDS, Cell, Grid, standing
from metlmon.stats.swept import Axis, Point, Value

VALUE_LIMIT: Final = 24
NAME_LIMIT: Final = 24

BEST: Final = "★"
"""Marks the best cell; "*" in ASCII."""


@frozen
class Answer:
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
    return unknown(ascii) if of is None else plain(of, VALUE_LIMIT, ascii) or '""'


def point(of: Point, ascii: bool = False) -> str:
    """``0.1``; of variables that go together ``0.1 + 20``."""
    return " + ".join(value(each, ascii) for each in of)


def axis_name(of: Axis, ascii: bool = False) -> str:
    """``lr``; of variables that go together ``lr + width``."""
    return " + ".join(plain(name, NAME_LIMIT, ascii) for name in of.names)


def named(axis: Axis, at: Point, ascii: bool = False) -> str:
    """``lr 0.1, width 64``."""
    return ", ".join(
        f"{plain(name, NAME_LIMIT, ascii)} {value(each, ascii)}"
        for name, each in zip(axis.names, at, strict=True)
    )


def place(of: Grid, cell: Cell, ascii: bool = False) -> str:
    """Where a cell is: ``lr 0.1, width 64``."""
    parts = [named(of.rows, cell.row, ascii)] if of.rows is not None else []
    parts += [named(of.columns, cell.column, ascii)] if of.columns is not None else []
    return ", ".join(parts)


def reached(cell: Cell, ascii: bool = False) -> str:
    """The value of a cell, ``NaN`` where there is none but that, a dash without any."""
    if cell.best is not None and cell.best.value is not None:
        return metric_told(cell.best.value.value, ascii)
    return "NaN" if cell.lost is Course.NAN else unknown(ascii)


def sign(cell: Cell) -> Sign:
    """What is to be seen first of a cell beside its value: what needs a person, that it went
    wrong, that it was stopped, or its state."""
    if cell.state in NEEDS:
        return STATES[cell.state]
    if cell.lost is not None:
        return COURSES[cell.lost]
    if cell.stopped:
        return STOPPED
    return PAUSED if cell.paused else STATES[cell.state]


def state(cell: Cell, ascii: bool = False) -> str:
    """``▶ running``, ``✓ completed, diverged``, ``✓ completed, stopped``."""
    told = STATES[cell.state].text(ascii)
    told += f", {COURSES[cell.lost].word}" if cell.lost is not None else ""
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


def answer(of: Grid, ascii: bool = False) -> Answer:
    """The first line of a sweep."""
    told = standing(of)
    best, where = "", ""
    run = of.best.best if of.best is not None else None
    if of.best is not None and run is not None and run.value is not None:
        best = f"best {reached(of.best, ascii)} at {place(of, of.best, ascii)}"
        where = f"{plain(run.name, NAME_LIMIT, ascii)} epoch {run.value.epoch}"
    moving = [f"{number(told.moving, ascii)} running"] * (told.moving > 0)
    moving += [f"{number(told.idle, ascii)} idle"] * (told.idle > 0)
    moving += [f"{number(told.paused, ascii)} {PAUSED.word}"] * (told.paused > 0)
    waiting = told.waiting - told.paused
    moving += [f"{number(waiting, ascii)} waiting"] * (waiting > 0)
    stopped = f", {number(told.stopped, ascii)} {STOPPED.word}" if told.stopped else ""
    verb = "needs" if told.need == 1 else "need"
    return Answer(
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
    told = [
        f"{plain(name, NAME_LIMIT, ascii)} fixed at {value(each, ascii)}" for name, each in of.fixed
    ]
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
