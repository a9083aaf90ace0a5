"""Header, matrix layout and cell details of the sweep grid.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metlmon.stats.curves import curve_symbol
from metlmon.stats.sweep import Axis, CellRun, Grid, GridCell, Point
from metlmon.tables import sweep as sweep_table
from metlmon.text import formatting
from metlmon.text.formatting import STATES, Colour, plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    PLAIN,
    Line,
    TextStyle,
    crop,
    crop_middle,
    first_that_fits,
    fit,
    join,
    justify,
    line,
    style_of,
    text_width,
    width,
)
from screens.base.screens import padded
from screens.widgets.matrix import GAP, Key, MatrixLayout

SCALE: Final = "▁▂▃▄▅▆▇"
"""Signs of a value's rank, the best last.

Ranks, so that one outlier does not flatten all others. The very best has a mark of its own.
"""

BEST: Final = TextStyle(Colour.GREEN, BOLD.weight)

BAR: Final = 6
BAR_GROWN: Final = 12
"""Width of a cell's progress bar, and its maximum."""

ROOMY: Final = 9
"""Maximum extra width of a column; more would separate related values."""


# --- header -------------------------------------------------------------------------------------


def head(grid: Grid, room: int) -> list[Line]:
    """Render the best point, the progress of the sweep, and the metric."""
    answer = sweep_table.sweep_headline(grid)
    title, dot = line(("Grid", BOLD), "   "), line((" · ", DIM))
    best, points = line((answer.best, BEST)), line((answer.points, BOLD))
    short, need = line((answer.points_short, BOLD)), line((answer.needs_action, ALARM))
    moving, epochs = line((answer.active, MOVING)), line((answer.epochs, DIM))
    candidates = (
        (best, line((answer.run, DIM)), points, need, moving, epochs),
        (best, points, need, moving, epochs),
        (best, points, need, moving),
        (best, points, need),
        (best, short, need),
        (best, short),
    )
    free = room - width(title)
    first = first_that_fits((join(parts, dot) for parts in candidates), free)
    goal = {"min": "lower is better", "max": "higher is better", None: "no goal"}[grid.goal]
    position = grid.metrics.index(grid.metric) + 1 if grid.metric in grid.metrics else 1
    number = f"metric {position} of {len(grid.metrics)}" if len(grid.metrics) > 1 else ""
    metric = join(
        (
            line((plain(grid.metric, 40), BOLD)),
            line((goal, DIM)),
            line((number, DIM)),
            *(line((text, NOTE)) for text in sweep_table.folding_texts(grid)),
        ),
        line("   "),
    )
    legend: Line = ()
    if grid.goal is not None:
        ranks = f"   {SCALE[0]}{SCALE[3]}{SCALE[-1]} by rank"
        legend = line((f"{sweep_table.BEST} best", BEST), (ranks, DIM))
    fits = width(metric) + width(legend) + 3 <= room
    return [
        title + crop(first, free),
        justify(metric, legend, room) if fits else crop(metric, room),
    ]


# --- the matrix ---------------------------------------------------------------------------------


def layout(grid: Grid, room: int, lines: int) -> MatrixLayout | None:
    """Lay out the sweep in ``room`` cells and ``lines`` lines.

    Cells get several lines, and columns extra width, if the whole sweep then still fits.
    """
    if grid.rows is None:
        return None
    if grid.columns is None:
        return _list(grid, grid.rows, room)
    rows, columns, ranks = grid.rows, grid.columns, grid.ranked_cells
    values = [sweep_table.cell_value_text(cell) for cell in grid.cells.values()]
    value_cells = max((text_width(text) for text in values), default=3)
    row_names, heads = sweep_table.labels(rows), sweep_table.labels(columns)
    labels = max(text_width(text) for text in row_names.values())
    labels = max(labels, 4, min(12, text_width(sweep_table.axis_name(rows)) + 2))
    names = f"{sweep_table.axis_name(rows)} ↓  {sweep_table.axis_name(columns)} →"
    left_cells = 1 + labels + 2 + value_cells + 2
    min_width = max(value_cells + 3, min(16, max(text_width(text) for text in heads.values())))
    # Widen the labels for both axis names if no column is pushed out.
    spare = room - left_cells - (min_width + GAP) * len(columns.points)
    extra = max(0, min(1 + text_width(names) + GAP - left_cells, spare))
    labels, left_cells = labels + extra, left_cells + extra
    max_width = (room - left_cells) // len(columns.points) - GAP
    cell_width = min(max(min_width, max_width), min_width + ROOMY)
    fits = [n for n in (4, 3, 2) if n * len(rows.points) + 3 <= lines]
    cell_lines = fits[0] if fits and cell_width >= BAR + 4 else 1

    def column_header(point: Key) -> Sequence[Line]:
        # Leave a gap for the state symbol behind each value.
        gap = line("  ")
        name = line((crop_middle(heads[point], cell_width - 2), BOLD))
        return name + gap, _best(grid.column_best.get(point)) + gap

    def row_header(point: Key) -> Line:
        name = fit(line((row_names[point], BOLD)), labels, "right")
        best = fit(_best(grid.row_best.get(point)), value_cells, "right")
        return line(" ") + name + line("  ") + best + line((" │", DIM))

    def cell(row: Key, column: Key) -> Sequence[Line]:
        grid_cell = grid.cells.get((row, column))
        if grid_cell is None:
            return [()] * 4
        return _cell_lines(grid_cell, ranks, value_cells, cell_width)

    best_label = fit(line(("best", DIM)), labels + 2 + value_cells, "right")
    corner = (line(" ", (names, NOTE)), line(" ") + best_label)
    return MatrixLayout(
        rows=rows.points,
        columns=columns.points,
        corner=corner,
        heading=column_header,
        row_heading=row_header,
        cell=cell,
        row_heading_width=left_cells,
        cell_width=cell_width,
        cell_height=cell_lines,
    )


def _best(cell: GridCell | None) -> Line:
    if cell is None:
        return line((formatting.UNKNOWN, DIM))
    return line((sweep_table.cell_value_text(cell), BEST if cell.rank == 1 else DIM))


def rank_mark(cell: GridCell, ranks: int) -> str:
    """Return the sign of a cell's rank."""
    if cell.rank is None:
        return " "
    if cell.rank == 1:
        return sweep_table.BEST
    step = (ranks - cell.rank) * len(SCALE) // max(1, ranks)
    return SCALE[max(0, min(step, len(SCALE) - 1))]


def _value_style(cell: GridCell, ranks: int) -> TextStyle:
    if cell.rank == 1:
        return BEST
    if cell.diverged_course is not None:
        return BAD
    if cell.rank is None or 2 * cell.rank > ranks + 1:
        return DIM
    return GOOD if 4 * cell.rank <= ranks + 3 else PLAIN


def _cell_lines(cell: GridCell, ranks: int, value_cells: int, width: int) -> list[Line]:
    """Render a cell: rank sign, value and state; progress; run name; blank.

    Only as many of these lines are drawn as fit.
    """
    style, sign = _value_style(cell, ranks), sweep_table.cell_symbol(cell)
    value = sweep_table.cell_value_text(cell)
    spacious = width - value_cells >= 4
    first = line(
        (" " if spacious else "", style),
        (rank_mark(cell, ranks), style),
        (f"{value:>{value_cells + spacious}}", style if cell.best is not None else DIM),
        (" ", PLAIN),
        (sign.glyph, style_of(sign)),
    )
    name = line((plain(cell.runs[0].entry.run_name, width - 2), DIM))
    more = line((f" +{len(cell.runs) - 1}", NOTE)) if len(cell.runs) > 1 else ()
    lines: list[Line] = [first, _progress_text(cell, width), name + more, ()]
    return [fit(text, width, "right") for text in lines]


def _progress_text(cell: GridCell, width: int) -> Line:
    text = f"{cell.done}/{cell.total}"
    room = width - len(text) - 2
    bar = min(BAR_GROWN if room > BAR + 4 else BAR, room)
    progress = formatting.progress_bar(cell.done, cell.total, bar) if bar >= 3 else ""
    return line((progress, DIM), " ", (text, DIM))


# --- one variable: a list -----------------------------------------------------------------------


def _list(grid: Grid, rows: Axis, room: int) -> MatrixLayout:
    row_names, axis = sweep_table.labels(rows), sweep_table.axis_name(rows)
    labels = min(room // 3, max(text_width(text) for text in (*row_names.values(), axis)))
    left_cells = 1 + labels + 2
    cells, ranks = grid.cells.values(), grid.ranked_cells
    value_cells = max([4, *(text_width(sweep_table.cell_value_text(cell)) for cell in cells)])
    names = max(text_width(plain(cell.runs[0].entry.run_name, 20)) for cell in cells)
    cell_width = room - left_cells - GAP
    titles = (
        f"  {'BEST':>{value_cells}}  {'RUN':<{names}}  {'IN EPOCH':>8}  {'DONE':<{BAR + 8}}STATE"
    )

    def label(text: str, style: TextStyle) -> Line:
        return line(" ") + fit(line((crop_middle(text, labels), style)), labels, "right")

    def cell(row: Key, column: Key) -> Sequence[Line]:
        grid_cell = grid.cells.get((row, column))
        return [_list_line(grid_cell, ranks, value_cells, names) if grid_cell is not None else ()]

    return MatrixLayout(
        rows=rows.points,
        columns=((),),
        corner=(label(axis, DIM),),
        heading=lambda point: (fit(line((titles, DIM)), cell_width, "left"),),
        row_heading=lambda point: label(row_names[point], BOLD),
        cell=cell,
        row_heading_width=left_cells,
        cell_width=cell_width,
    )


def _list_line(cell: GridCell, ranks: int, value_cells: int, names: int) -> Line:
    best = cell.best
    style, sign = _value_style(cell, ranks), sweep_table.cell_symbol(cell)
    reached = None if best is None else best.value
    epoch = "" if reached is None else formatting.epoch_text(reached.epoch)
    value = f"{rank_mark(cell, ranks)} {sweep_table.cell_value_text(cell):>{value_cells}}  "
    return (
        line((value, style))
        + fit(line(plain(cell.runs[0].entry.run_name, 20)), names, "left")
        + line((f"  {epoch:>8}  ", DIM))
        + fit(_progress_text(cell, BAR + 7), BAR + 7, "left")
        + line(" ", (sweep_table.cell_state_text(cell), style_of(sign)))
    )


# --- the cell under the cursor ------------------------------------------------------------------

DETAILS: Final = 3
"""Lines of the cell details; on 24 lines the matrix needs the rest."""


def details(grid: Grid, at: tuple[Point, Point] | None, room: int) -> list[Line]:
    """Return the details of the current cell, padded to a fixed height."""
    cell = grid.cells.get(at) if at is not None else None
    lines = [line(("no run has these values", DIM))] if at is not None else []
    if cell is not None:
        lines = [_point_line(grid, cell), *_run_lines(grid, cell)]
    return padded([line(" ") + crop(text, room - 2) for text in lines[:DETAILS]], DETAILS)


def _point_line(grid: Grid, cell: GridCell) -> Line:
    ranked = f"rank {formatting.number(cell.rank or 0)} of {grid.ranked_cells}"
    state = sweep_table.cell_state_text(cell)
    return join(
        (
            line((sweep_table.cell_point_text(grid, cell, full=True), BOLD)),
            line((ranked, BEST if cell.rank == 1 else PLAIN)) if cell.rank else (),
            line((state, style_of(STATES[cell.state]))),
            line((f"{cell.done} of {formatting.count(cell.total, 'epoch')}", DIM)),
        ),
        line("   "),
    )


def _run_lines(grid: Grid, cell: GridCell) -> list[Line]:
    if len(cell.runs) == 1:
        return _single_run_lines(grid, cell.runs[0])
    runs = join((_run_summary(run) for run in cell.runs), line((", ", DIM)))
    several = formatting.count(len(cell.runs), "run")
    return [line((f"{several} here, the best first: ", DIM)) + runs]


def _run_summary(run: CellRun) -> Line:
    sign = STATES[run.state]
    value = formatting.metric(run.value.value) if run.value is not None else ""
    return join(
        (
            line(plain(run.entry.run_name, 20)),
            line((value, BAD if run.curve.diverged else PLAIN)),
            line((sign.glyph, style_of(sign))),
        ),
        line(" "),
    )


def _single_run_lines(grid: Grid, run: CellRun) -> list[Line]:
    name = plain(run.entry.run_name, 24)
    metric = plain(grid.metric, 40)
    course = curve_symbol(run.curve)
    if run.value is None:
        reached = line((f"{name} has no {metric} yet", DIM))
    else:
        value = formatting.metric(run.value.value)
        which = "best" if grid.goal is not None else "last"
        epoch = formatting.epoch_number(run.value.epoch)
        reached = line(
            (
                f"{name}: {which} {metric} {value} in epoch {epoch}   ",
                PLAIN,
            ),
            (course.word if grid.goal is not None else "", style_of(course)),
        )
    lines = [reached]
    if run.stopped is not None:
        lines.append(line(("stopped: ", NOTE), plain(run.stopped, 200)))
    return lines
