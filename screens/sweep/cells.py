"""Header, matrix layout and cell details of the sweep grid.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metlmon.stats.curves import course_symbol
from metlmon.stats.sweep import Axis, Point
from metlmon.stats.sweep_grid import CellRun, Grid, GridCell
from metlmon.tables import sweep_text
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
    answer = sweep_text.sweep_headline(grid)
    dot = line((" · ", DIM))
    title = line(("Grid", BOLD), "   ")
    best, location = line((answer.best, BEST)), line((answer.run, DIM))
    points, epochs = line((answer.points, BOLD)), line((answer.epochs, DIM))
    moving, need = line((answer.active, MOVING)), line((answer.needs_action, ALARM))
    first = first_that_fits(
        (
            join((best, location, points, need, moving, epochs), dot),
            join((best, points, need, moving, epochs), dot),
            join((best, points, need, moving), dot),
            join((best, points, need), dot),
            join((best, line((answer.points_short, BOLD)), need), dot),
            join((best, line((answer.points_short, BOLD))), dot),
        ),
        room - width(title),
    )
    goal = {"min": "lower is better", "max": "higher is better", None: "no goal"}[grid.goal]
    position = grid.metrics.index(grid.metric) + 1 if grid.metric in grid.metrics else 1
    number = f"metric {position} of {len(grid.metrics)}" if len(grid.metrics) > 1 else ""
    gap = line("   ")
    metric_info = join(
        (
            line((plain(grid.metric, 40), BOLD)),
            line((goal, DIM)),
            line((number, DIM)),
            *(line((text, NOTE)) for text in sweep_text.folding_texts(grid)),
        ),
        gap,
    )
    scale_legend = legend(grid)
    if width(metric_info) + width(scale_legend) + 3 > room:
        return [title + crop(first, room - width(title)), crop(metric_info, room)]
    return [
        title + crop(first, room - width(title)),
        justify(metric_info, scale_legend, room),
    ]


def legend(grid: Grid) -> Line:
    """Render the legend of the rank signs."""
    if grid.goal is None:
        return ()
    return line(
        (f"{sweep_text.BEST} best", BEST), (f"   {SCALE[0]}{SCALE[3]}{SCALE[-1]} by rank", DIM)
    )


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
    values = [sweep_text.cell_value_text(cell) for cell in grid.cells.values()]
    value_cells = max((text_width(text) for text in values), default=3)
    row_names, heads = sweep_text.labels(rows), sweep_text.labels(columns)
    labels = max(text_width(text) for text in row_names.values())
    labels = max(labels, 4, min(12, text_width(sweep_text.axis_name(rows)) + 2))
    arrow = ("↓", "→")
    names = f"{sweep_text.axis_name(rows)} {arrow[0]}  {sweep_text.axis_name(columns)} {arrow[1]}"
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
        best = grid.column_best.get(point)
        # Leave a gap for the state symbol behind each value.
        gap = line("  ")
        name = line((crop_middle(heads[point], cell_width - 2), BOLD))
        return name + gap, _best(best) + gap

    def row_header(point: Key) -> Line:
        name = fit(line((row_names[point], BOLD)), labels, "right")
        best = fit(_best(grid.row_best.get(point)), value_cells, "right")
        edge = "│"
        return line(" ") + name + line("  ") + best + line((f" {edge}", DIM))

    def cell(row: Key, column: Key) -> Sequence[Line]:
        grid_cell = grid.cells.get((row, column))
        return (
            _cell_lines(grid_cell, ranks, value_cells, cell_width)
            if grid_cell is not None
            else [()] * 4
        )

    best_label = fit(line(("best", DIM)), labels + 2 + value_cells, "right")
    corner = (line(" ", (names, NOTE)), line(" ") + best_label)
    return MatrixLayout(
        rows.points,
        columns.points,
        corner,
        column_header,
        row_header,
        cell,
        left_cells,
        cell_width,
        cell_lines,
    )


def _best(cell: GridCell | None) -> Line:
    if cell is None:
        return line((formatting.UNKNOWN, DIM))
    return line((sweep_text.cell_value_text(cell), BEST if cell.rank == 1 else DIM))


def rank_mark(cell: GridCell, ranks: int) -> str:
    """Return the sign of a cell's rank."""
    if cell.rank is None:
        return " "
    if cell.rank == 1:
        return sweep_text.BEST
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
    style, sign = _value_style(cell, ranks), sweep_text.cell_symbol(cell)
    value = sweep_text.cell_value_text(cell)
    spacious = width - value_cells >= 4
    first = line(
        (" " if spacious else "", style),
        (rank_mark(cell, ranks), style),
        (f"{value:>{value_cells + spacious}}", style if cell.best is not None else DIM),
        (" ", PLAIN),
        (sign.glyph, style_of(sign)),
    )
    name = line((plain(cell.runs[0].name, width - 2), DIM))
    more = line((f" +{len(cell.runs) - 1}", NOTE)) if len(cell.runs) > 1 else ()
    lines: list[Line] = [first, _progress_text(cell, width), name + more, ()]
    return [_right_aligned(text, width) for text in lines]


def _progress_text(cell: GridCell, width: int) -> Line:
    text = f"{cell.done}/{cell.total}"
    room = width - len(text) - 2
    bar = min(BAR_GROWN if room > BAR + 4 else BAR, room)
    progress = formatting.progress_bar(cell.done, cell.total, bar) if bar >= 3 else ""
    return line((progress, DIM), " ", (text, DIM))


def _right_aligned(text: Line, cell_width: int) -> Line:
    return line(" " * max(0, cell_width - width(text))) + text


# --- one variable: a list -----------------------------------------------------------------------


def _list(grid: Grid, rows: Axis, room: int) -> MatrixLayout:
    row_names = sweep_text.labels(rows)
    labels = max(text_width(text) for text in row_names.values())
    labels = max(labels, text_width(sweep_text.axis_name(rows)))
    labels = min(labels, room // 3)
    left_cells = 1 + labels + 2
    values, ranks = (
        [sweep_text.cell_value_text(cell) for cell in grid.cells.values()],
        grid.ranked_cells,
    )
    value_cells = max([4, *(text_width(text) for text in values)])
    names = max(text_width(plain(cell.runs[0].name, 20)) for cell in grid.cells.values())
    cell_width = room - left_cells - GAP
    titles = (
        f"  {'BEST':>{value_cells}}  {'RUN':<{names}}  {'IN EPOCH':>8}  {'DONE':<{BAR + 8}}STATE"
    )

    def cell(row: Key, column: Key) -> Sequence[Line]:
        grid_cell = grid.cells.get((row, column))
        return [_list_line(grid_cell, ranks, value_cells, names) if grid_cell is not None else ()]

    title = fit(line((sweep_text.axis_name(rows), DIM)), labels, "right")
    corner = (line(" ") + title,)
    return MatrixLayout(
        rows.points,
        ((),),
        corner,
        lambda point: (fit(line((titles, DIM)), cell_width, "left"),),
        lambda point: (
            line(" ") + fit(line((crop_middle(row_names[point], labels), BOLD)), labels, "right")
        ),
        cell,
        left_cells,
        cell_width,
    )


def _list_line(cell: GridCell, ranks: int, value_cells: int, names: int) -> Line:
    best = cell.best
    style, sign = _value_style(cell, ranks), sweep_text.cell_symbol(cell)
    epoch = str(best.value.epoch) if best is not None and best.value is not None else ""
    done = fit(_progress_text(cell, BAR + 7), BAR + 7, "left")
    name = fit(line((plain(cell.runs[0].name, 20), PLAIN)), names, "left")
    return (
        line(
            (rank_mark(cell, ranks), style),
            (f" {sweep_text.cell_value_text(cell):>{value_cells}}  ", style),
        )
        + name
        + line(("  " + f"{epoch:>8}" + "  ", DIM))
        + done
        + line(" ", (sweep_text.cell_state_text(cell), style_of(sign)))
    )


# --- the cell under the cursor ------------------------------------------------------------------

DETAILS: Final = 3
"""Lines of the cell details; on 24 lines the matrix needs the rest."""


def details(grid: Grid, at: tuple[Point, Point] | None, room: int) -> list[Line]:
    """Return the details of the current cell, padded to a fixed height."""
    cell = grid.cells.get(at) if at is not None else None
    lines = _details(grid, at, cell)[:DETAILS]
    rows = [line(" ") + crop(text, room - 2) for text in lines]
    return [*rows, *[()] * (DETAILS - len(rows))]


def _details(grid: Grid, at: tuple[Point, Point] | None, cell: GridCell | None) -> list[Line]:
    gap = line("   ")
    if cell is None:
        return [line(("no run has these values", DIM))] if at is not None else []
    sign = STATES[cell.state]
    ranked = f"{formatting.number(cell.rank or 0)} of {grid.ranked_cells}"
    first = join(
        (
            line((sweep_text.cell_point_text(grid, cell, full=True), BOLD)),
            line((f"rank {ranked}", BEST if cell.rank == 1 else PLAIN)) if cell.rank else (),
            line((sweep_text.cell_state_text(cell), style_of(sign))),
            line((f"{cell.done} of {formatting.count(cell.total, 'epoch')}", DIM)),
        ),
        gap,
    )
    if len(cell.runs) == 1:
        return [first, *_single_run_lines(grid, cell.runs[0])]
    several = formatting.count(len(cell.runs), "run")
    runs = [_run_summary(run) for run in cell.runs]
    comma = line((", ", DIM))
    return [first, line((f"{several} here, the best first: ", DIM)) + join(runs, comma)]


def _run_summary(run: CellRun) -> Line:
    sign = STATES[run.state]
    value = formatting.metric(run.value.value) if run.value is not None else ""
    return join(
        (
            line(plain(run.name, 20)),
            line((value, BAD if run.diverged else PLAIN)),
            line((sign.glyph, style_of(sign))),
        ),
        line(" "),
    )


def _single_run_lines(grid: Grid, run: CellRun) -> list[Line]:
    name = plain(run.name, 24)
    metric = plain(grid.metric, 40)
    course = course_symbol(run.course, run.last)
    if run.value is None:
        reached = line((f"{name} has no {metric} yet", DIM))
    else:
        value = formatting.metric(run.value.value)
        which = "best" if grid.goal is not None else "last"
        reached = line(
            (f"{name}: {which} {metric} {value} in epoch {run.value.epoch}   ", PLAIN),
            (course.word if grid.goal is not None else "", style_of(course)),
        )
    lines = [reached]
    if run.stopped is not None:
        lines.append(line(("stopped: ", NOTE), plain(run.stopped, 200)))
    return lines
