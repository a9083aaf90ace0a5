"""Sweeps: texts of the command and the screen, and runs of a point as table rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from metlmon.model.states import TROUBLE
from metlmon.snapshot.row_text import PAUSED, STOPPED
from metlmon.stats.curves import Course, curve_symbol
from metlmon.stats.sweep import Axis, CellRun, Grid, GridCell, Point, Value
from metlmon.tables.layout import Column, Kind, name_column, shared_start
from metlmon.text.formatting import (
    STATES,
    UNKNOWN,
    Colour,
    Symbol,
    Weight,
    clip,
    clip_middle,
    count,
    epoch_number,
    number,
    plain,
)
from metlmon.text.formatting import metric as format_metric
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    MOVING,
    PLAIN,
    Line,
    TextStyle,
    crop_middle,
    join_fitting,
    line,
)

VALUE_LIMIT: Final = 24
"""Maximum characters of a value as a row or column label."""

FIXED_VALUE_LIMIT: Final = 48
FULL_VALUE_LIMIT: Final = 400
"""Maximum characters of a value in a sentence, and if it is shown in full."""

NAME_LIMIT: Final = 24

BEST: Final = "★"
BEST_STYLE: Final = TextStyle(Colour.GREEN, Weight.BOLD)
"""Marks the best cell, and the best run."""


def value_text(value: Value) -> str:
    """The full text of a value; a dash if it is not set."""
    return UNKNOWN if value is None else clip(value, FULL_VALUE_LIMIT) or '""'


def labels(axis: Axis) -> dict[Point, str]:
    """The label of each point: ``0.1``; for several variables ``0.1 + 20``."""
    short_texts = [
        short_values([point[i] for point in axis.points]) for i, _ in enumerate(axis.names)
    ]
    return {
        point: " + ".join(names[value] for names, value in zip(short_texts, point, strict=True))
        for point in axis.points
    }


def short_values(values: Iterable[Value]) -> dict[Value, str]:
    """Short texts of one variable's values.

    Long values lose their common beginning first, then their middle.
    """
    texts = {item: value_text(item) for item in values}
    long = {text for text in texts.values() if len(text) > VALUE_LIMIT}
    cut = shared_start(long) if len(long) > 1 else 0
    short = {text: crop_middle("…" * (cut > 0) + text[cut:], VALUE_LIMIT) for text in long}
    return {item: short.get(text, text) for item, text in texts.items()}


def axis_name(axis: Axis) -> str:
    """``lr``; for several variables ``lr + width``."""
    return " + ".join(clip(name, NAME_LIMIT) for name in axis.names)


def cell_point_text(grid: Grid, cell: GridCell, full: bool = False) -> str:
    """The point of a cell: ``lr 0.1, width 64``; long values are shortened unless ``full``."""
    texts = []
    for axis, point in ((grid.rows, cell.row), (grid.columns, cell.column)):
        if axis is None:
            continue
        for place, name in enumerate(axis.names):
            value, values = point[place], [each[place] for each in axis.points]
            shown = value_text(value) if full else short_values(values)[value]
            texts.append(f"{clip(name, NAME_LIMIT)} {shown}")
    return ", ".join(texts)


def cell_value_text(cell: GridCell) -> str:
    """The value of a cell; ``NaN`` or ``inf`` if none is finite, a dash without any."""
    if cell.best is not None and cell.best.reached is not None:
        return format_metric(cell.best.reached.value)
    run = cell.diverged_run
    last = run.curve.last if run is not None and run.curve.course is Course.NAN else None
    return format_metric(None if last is None else last.value)


def cell_symbol(cell: GridCell) -> Symbol:
    """The symbol of a cell: needs attention, diverged, stopped, paused, or state."""
    if cell.state in TROUBLE:
        return STATES[cell.state]
    if cell.diverged_run is not None:
        return curve_symbol(cell.diverged_run.curve)
    if cell.stopped:
        return STOPPED
    return PAUSED if cell.paused else STATES[cell.state]


def cell_state_text(cell: GridCell) -> str:
    """``▶ running``, ``✓ completed, diverged``, ``✓ completed, stopped``."""
    text = STATES[cell.state].text()
    run = cell.diverged_run
    text += f", {curve_symbol(run.curve).word}" if run is not None else ""
    text += f", {STOPPED.word}" if cell.stopped else ""
    return text + (f", {PAUSED.word}" if cell.paused else "")


def no_sweep_lines() -> list[str]:
    """The text shown without a sweep: what a sweep is, and how to create one."""
    return [
        "No sweep here: no variable (VARS) of the DAG is the same all through each run and "
        "differs between runs.",
        "metlmon's own do not count: run, run_uuid, node, epoch, epochs, random_seed, "
        "ResourceName, GpuModel, continue_from_checkpoint.",
        "metlmon new writes a sweep: one run for each combination of values.",
    ]


def headline(grid: Grid, room: int, full: bool = False) -> Line:
    """``best 0.2308 at lr 0.03 · 1 held or failed · 7 of 10 done · 3 stopped · 2 running · …``.

    Long values are shortened unless ``full``.
    """
    progress, run = grid.progress, grid.best.best if grid.best is not None else None
    best = where = ""
    if grid.best is not None and run is not None and run.reached is not None:
        best = f"best {cell_value_text(grid.best)} at {cell_point_text(grid, grid.best, full)}"
        where = f"{clip(run.entry.run, NAME_LIMIT)} epoch {epoch_number(run.reached.epoch)}"
    active = (
        (progress.active, "running"),
        (progress.idle, "idle"),
        (progress.paused, PAUSED.word),
        (progress.waiting - progress.paused, "waiting"),
    )
    done = f"{number(progress.finished)} of {number(progress.points)} done"
    stopped = f"{number(progress.stopped)} {STOPPED.word}" if progress.stopped else ""
    needs = f"{number(progress.needs_action)} held or failed"
    epochs = f"{number(progress.epochs_done)} of {count(progress.epochs_total, 'epoch')}"
    parts = (
        line((best, BEST_STYLE)),
        line((needs if progress.needs_action else "", ALARM)),
        line((done, BOLD)),
        line((stopped, BOLD)),
        line((", ".join(f"{number(n)} {word}" for n, word in active if n > 0), MOVING)),
        line((epochs, DIM)),
        line((where, DIM)),
    )
    return join_fitting(parts, line((" · ", DIM)), room)


def folding_texts(grid: Grid) -> list[str]:
    """Text on the other variables: ``best over up to 3 of seed``, ``width fixed at 64``."""
    fixed = [
        (clip(name, NAME_LIMIT), crop_middle(value_text(entry), FIXED_VALUE_LIMIT))
        for name, entry in grid.fixed
    ]
    texts = [f"{name} fixed at {entry}" for name, entry in fixed]
    texts += [
        f"best over up to {entry.max_values} of {axis_name(entry.axis)}"
        for entry in grid.folded
        if entry.max_values > 1
    ]
    most = max((len(cell.runs) for cell in grid.cells.values()), default=0)
    values = max((entry.max_values for entry in grid.folded), default=0)
    if most > max(values, 1):
        texts.append(f"best of up to {most} runs a point")
    return texts


# --- the points, and the runs of one ------------------------------------------------------------


def point_columns(axis: Axis) -> list[Column[GridCell]]:
    """The columns of the points of a sweep over one axis."""
    names = labels(axis)

    def epoch(cell: GridCell) -> int | None:
        reached = cell.best.reached if cell.best is not None else None
        return None if reached is None else epoch_number(reached.epoch)

    return [
        Column("point", lambda cell: names[cell.row], title=axis_name(axis)),
        Column("best", cell_value_text, align="right"),
        Column("rank", lambda cell: cell.rank, Kind.COUNT, drop=1),
        name_column("run", lambda cell: clip_middle(cell.runs[0].entry.run, NAME_LIMIT)),
        Column("epoch", epoch, Kind.COUNT, drop=2),
        Column("done", lambda cell: f"{cell.epochs_done}/{cell.epochs_total}", align="right"),
        Column("state", cell_state_text),
    ]


def run_columns() -> list[Column[CellRun]]:
    """The columns of the runs of a point, the best value before the run's state."""

    def epoch(run: CellRun) -> int | str:
        return "" if run.reached is None else epoch_number(run.reached.epoch)

    return [
        name_column("run", lambda run: clip_middle(run.entry.run, 40), minimum=6),
        Column(
            "best",
            lambda run: run.reached and run.reached.value,
            Kind.NUMBER,
            style=lambda run: BAD if run.curve.diverged else PLAIN,
            minimum=6,
        ),
        Column("epoch", epoch, Kind.COUNT, title="IN EPOCH", drop=1, style=DIM),
        Column(
            "done",
            lambda run: run.entry.epochs_done,
            Kind.COUNT,
            cell=lambda run, _: line(f"{run.entry.epochs_done}/{run.entry.epochs_total}"),
        ),
        Column("course", lambda run: curve_symbol(run.curve), Kind.STATE, title="TREND"),
        Column("state", lambda run: STATES[run.state], Kind.STATE),
        Column(
            "why", lambda run: plain(run.stopped or "", 200), title="STOPPED", drop=2, style=DIM
        ),
    ]
