"""The sweep grid: the best point, progress, matrix layout and cell details."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Final

from msgspec.structs import replace
from rich.cells import cell_len
from textual.app import ComposeResult

from metlmon.live.feed import Snapshot
from metlmon.stats.curves import curve_symbol
from metlmon.stats.sweep import (
    Axis,
    CellRun,
    Grid,
    GridCell,
    GridChoice,
    Point,
    choices,
    next_fixed,
    next_pair,
    swap_axes,
)
from metlmon.stats.sweep import grid as grid_in
from metlmon.tables import sweep as sweep_table
from metlmon.tables.layout import empty_text
from metlmon.tables.sweep import BEST_STYLE
from metlmon.text import formatting
from metlmon.text.formatting import STATES, clip, plain
from metlmon.text.spans import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    NOTE,
    PLAIN,
    Line,
    TextStyle,
    crop,
    crop_middle,
    fit,
    join,
    justify,
    line,
    style_of,
    width,
)
from screens.base.screens import ListScreen, how_to, padded, rule
from screens.curves import MetricKeys, goal_text, metric_position
from screens.widgets.matrix import GAP, Key, Matrix, MatrixLayout

SCALE: Final = "▁▂▃▄▅▆▇"
"""Signs of a value's rank, the best last. Ranks, so that one outlier does not flatten all others.
The very best has a mark of its own."""

BAR: Final = 6
BAR_GROWN: Final = 12
"""Width of a cell's progress bar, and its maximum."""

ROOMY: Final = 9
"""Maximum extra width of a column; more would separate related values."""


# --- header -------------------------------------------------------------------------------------


def head_lines(grid: Grid, room: int) -> list[Line]:
    """Render the best point, the progress of the sweep, and the metric."""
    title = line(("Grid", BOLD), "   ")
    first = sweep_table.headline(grid, room - width(title))
    metric = join(
        (
            line((clip(grid.metric, 40), BOLD)),
            line((goal_text(grid.goal), DIM)),
            line((metric_position(grid.metrics, grid.metric), DIM)),
            *(line((text, NOTE)) for text in sweep_table.folding_texts(grid)),
        ),
        line("   "),
    )
    legend: Line = ()
    if grid.goal is not None:
        ranks = f"   {SCALE[0]}{SCALE[3]}{SCALE[-1]} by rank"
        legend = line((f"{sweep_table.BEST} best", BEST_STYLE), (ranks, DIM))
    fits = width(metric) + width(legend) + 3 <= room
    return [
        crop(title + first, room),
        justify(metric, legend, room) if fits else crop(metric, room),
    ]


# --- the matrix ---------------------------------------------------------------------------------


def matrix_layout(grid: Grid, room: int, lines: int) -> MatrixLayout | None:
    """Lay out the sweep in ``room`` cells and ``lines`` lines."""
    if grid.rows is None:
        return None
    if grid.columns is None:
        return _list(grid, grid.rows, room)
    rows, columns, ranks = grid.rows, grid.columns, grid.ranked_cells
    values = [sweep_table.cell_value_text(cell) for cell in grid.cells.values()]
    value_cells = max((cell_len(text) for text in values), default=3)
    row_names, heads = sweep_table.labels(rows), sweep_table.labels(columns)
    labels = max(cell_len(text) for text in row_names.values())
    labels = max(labels, 4, min(12, cell_len(sweep_table.axis_name(rows)) + 2))
    names = f"{sweep_table.axis_name(rows)} ↓  {sweep_table.axis_name(columns)} →"
    left_cells = 1 + labels + 2 + value_cells + 2
    min_width = max(value_cells + 3, min(16, max(cell_len(text) for text in heads.values())))
    # Widen the labels for both axis names if no column is pushed out.
    spare = room - left_cells - (min_width + GAP) * len(columns.points)
    extra = max(0, min(1 + cell_len(names) + GAP - left_cells, spare))
    labels, left_cells = labels + extra, left_cells + extra
    max_width = (room - left_cells) // len(columns.points) - GAP
    cell_width = min(max(min_width, max_width), min_width + ROOMY)
    fits = [n for n in (4, 3, 2) if n * len(rows.points) + 3 <= lines]
    cell_lines = fits[0] if fits and cell_width >= BAR + 4 else 1

    def column_header(point: Key) -> Sequence[Line]:
        # Leave a gap for the state symbol after each value.
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
    return line((sweep_table.cell_value_text(cell), BEST_STYLE if cell.rank == 1 else DIM))


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
        return BEST_STYLE
    if cell.diverged_course is not None:
        return BAD
    if cell.rank is None or 2 * cell.rank > ranks + 1:
        return DIM
    return GOOD if 4 * cell.rank <= ranks + 3 else PLAIN


def _cell_lines(cell: GridCell, ranks: int, value_cells: int, width: int) -> list[Line]:
    """Render a cell: rank sign, value and state; progress; run name; blank."""
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
    name = line((clip(cell.runs[0].entry.run, width - 2), DIM))
    more = line((f" +{len(cell.runs) - 1}", NOTE)) if len(cell.runs) > 1 else ()
    lines: list[Line] = [first, _progress_text(cell, width), name + more, ()]
    return [fit(text, width, "right") for text in lines]


def _progress_text(cell: GridCell, width: int) -> Line:
    text = f"{cell.epochs_done}/{cell.epochs_total}"
    room = width - len(text) - 2
    bar = min(BAR_GROWN if room > BAR + 4 else BAR, room)
    progress = formatting.progress_bar(cell.epochs_done, cell.epochs_total, bar) if bar >= 3 else ""
    return line((progress, DIM), " ", (text, DIM))


# --- one variable: a list -----------------------------------------------------------------------


def _list(grid: Grid, rows: Axis, room: int) -> MatrixLayout:
    row_names, axis = sweep_table.labels(rows), sweep_table.axis_name(rows)
    labels = min(room // 3, max(cell_len(text) for text in (*row_names.values(), axis)))
    left_cells = 1 + labels + 2
    cells, ranks = grid.cells.values(), grid.ranked_cells
    value_cells = max([4, *(cell_len(sweep_table.cell_value_text(cell)) for cell in cells)])
    names = max(cell_len(clip(cell.runs[0].entry.run, 20)) for cell in cells)
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
    reached = None if best is None else best.reached
    epoch = "" if reached is None else formatting.epoch_text(reached.epoch)
    value = f"{rank_mark(cell, ranks)} {sweep_table.cell_value_text(cell):>{value_cells}}  "
    return (
        line((value, style))
        + fit(line(clip(cell.runs[0].entry.run, 20)), names, "left")
        + line((f"  {epoch:>8}  ", DIM))
        + fit(_progress_text(cell, BAR + 7), BAR + 7, "left")
        + line(" ", (sweep_table.cell_state_text(cell), style_of(sign)))
    )


# --- the cell under the cursor ------------------------------------------------------------------

DETAILS: Final = 3
"""Lines of the cell details; on 24 lines the matrix needs the rest."""


def cell_details(grid: Grid, at: tuple[Point, Point] | None, room: int) -> list[Line]:
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
            line((ranked, BEST_STYLE if cell.rank == 1 else PLAIN)) if cell.rank else (),
            line((state, style_of(STATES[cell.state]))),
            line((f"{cell.epochs_done} of {formatting.count(cell.epochs_total, 'epoch')}", DIM)),
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
    value = formatting.metric(run.reached.value) if run.reached is not None else ""
    return join(
        (
            line(clip(run.entry.run, 20)),
            line((value, BAD if run.curve.diverged else PLAIN)),
            line((sign.glyph, style_of(sign))),
        ),
        line(" "),
    )


def _single_run_lines(grid: Grid, run: CellRun) -> list[Line]:
    name = clip(run.entry.run, 24)
    metric = clip(grid.metric, 40)
    course = curve_symbol(run.curve)
    if run.reached is None:
        reached = line((f"{name} has no {metric} yet", DIM))
    else:
        value = formatting.metric(run.reached.value)
        which = "best" if grid.goal is not None else "last"
        epoch = formatting.epoch_number(run.reached.epoch)
        reached = line(
            (f"{name}: {which} {metric} {value} in epoch {epoch}   ", PLAIN),
            (course.word if grid.goal is not None else "", style_of(course)),
        )
    lines = [reached]
    if run.stopped is not None:
        lines.append(line(("stopped: ", NOTE), plain(run.stopped, 200)))
    return lines


# --- the screens ------------------------------------------------------------------------------


class PointRunsScreen(ListScreen):
    """The runs of a sweep point, the best first."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "below")
    ORDERS = (("value", None), "run", "done")

    def __init__(self, choice: GridChoice, point: tuple[Point, Point]) -> None:
        super().__init__()
        self.choice, self.point = choice, point

    def show(self, update: Snapshot) -> None:
        self.context.stats.watch_job_files()
        grid = self.context.stats.value(grid_in, self.choice)
        cell = grid.cells.get(self.point) if grid is not None else None
        if grid is None or cell is None:
            self.show_nothing("Grid", empty_text("No run has these values now."))
            return
        point = sweep_table.cell_point_text(grid, cell, full=True)
        runs = f"   {formatting.count(len(cell.runs), 'run')}, {clip(grid.metric, 40)}"
        self.show_head([line(" ", ("Grid", BOLD), "   ", (point, BOLD), (runs, DIM)), ()])
        self.fill(
            sweep_table.run_columns(),
            cell.runs,
            lambda run: run.entry.key,
            lambda run: run.entry.run.lower(),
        )


FRAME_LINES: Final = 4
"""Lines outside matrix and details: two of the header, the rule, the footer."""


GRID_ACTIONS: Final = ("open", "swap", "view", "fix", "next_metric")
"""Actions without effect if nothing is swept."""


class SweepScreen(MetricKeys):
    """The points of a sweep as rows and columns."""

    SCOPES: ClassVar[tuple[str, ...]] = ("grid", "below")
    HELP_SCOPES: ClassVar[tuple[str, ...]] = ("grid", "sideways", "below")
    AUTO_FOCUS: ClassVar[str | None] = "Matrix"

    def __init__(self) -> None:
        super().__init__()
        self.choice = GridChoice()
        self._placed = False
        self._next_cursor: tuple[Point, Point] | None = None

    def compose_body(self) -> ComposeResult:
        yield Matrix()

    @property
    def matrix(self) -> Matrix:
        return self.query_one(Matrix)

    # --- rendering --------------------------------------------------------------------------

    def show(self, update: Snapshot) -> None:
        self.context.stats.watch_job_files()
        grid = self.context.stats.value(grid_in, self.choice)
        if grid is None or not grid.has_sweep:
            self._nothing(grid, update)
            return
        room = self.app.size.width
        head = [line(" ") + text for text in head_lines(grid, room - 2)]
        self.show_head([*head, ()])
        lines = self.app.size.height - FRAME_LINES - DETAILS - self.tab_lines
        self.matrix.show(matrix_layout(grid, room, lines))
        if not self._placed and grid.best is not None:
            # Start at the best point.
            self._placed = True
            self.matrix.select(grid.best.row, grid.best.column)
        if self._next_cursor is not None and self._next_cursor in grid.cells:
            self.matrix.select(*self._next_cursor)
            self._next_cursor = None
        details = cell_details(grid, self.matrix.cursor, room)
        self.show_note([self._rule(grid), *details])

    def _rule(self, grid: Grid) -> Line:
        parts = self.messages()
        if grid.excluded_runs:
            parts.append(line((f"{grid.excluded_runs} runs have another value", DIM)))
        if not grid.files_read:
            dots = "…"
            parts.append(line((f"reading what the trainings wrote{dots}", DIM)))
        above, below, left, right = self.matrix.hidden_counts
        signs = ("↑", "↓", "←", "→")
        more = [
            line((f"{sign} {n}", DIM))
            for sign, n in zip(signs, (above, below, left, right), strict=True)
            if n
        ]
        if more:
            parts.append(join(more, line("  ")) + line((" more", DIM)))
        return rule(parts, self.app.size.width)

    def _nothing(self, grid: Grid | None, update: Snapshot) -> None:
        """Explain why no grid is shown, and how to create a sweep."""
        room = self.app.size.width
        reading = grid is None or not update.is_complete
        first = "reading the DAG" if reading else ""
        self.show_head([line(" ", ("Grid", BOLD), "   ", (first, DIM))])
        waiting = empty_text("", "A sweep appears when its DAG file is read.")
        self.matrix.show(None, waiting if reading else how_to(sweep_table.no_sweep_lines(), room))
        self.show_note([rule(self.messages(), room)])

    def on_matrix_cell_highlighted(self, event: Matrix.CellHighlighted) -> None:
        event.stop()
        if event.moved:
            self._message = ""
        self._refresh_if_mounted()

    # --- actions ------------------------------------------------------------------------------

    @property
    def _shown(self) -> Grid | None:
        grid = self.context.stats.value(grid_in, self.choice)
        return grid if grid is not None and grid.has_sweep else None

    def on_matrix_cell_selected(self, event: Matrix.CellSelected) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        grid, cursor = self._shown, self.matrix.cursor
        cell = grid.cells.get(cursor) if grid is not None and cursor is not None else None
        if grid is None or cell is None:
            return
        if len(cell.runs) == 1:
            self.context.open_screen("run", cell.runs[0].entry.key)
        else:
            self.context.push_screen(PointRunsScreen(self.choice, (cell.row, cell.column)))

    def hidden_actions(self) -> Collection[str]:
        return self.refusals().keys()

    def refusals(self) -> Mapping[str, str]:
        grid = self._shown
        if grid is None:
            return dict.fromkeys(GRID_ACTIONS, "nothing is swept here")
        reasons: dict[str, str] = {}
        if grid.columns is None:
            reasons["swap"] = "one axis only: there is nothing to swap"
        if len(choices(grid.sweep)) < 2:
            reasons["view"] = "there are no other variables to choose from"
        if not grid.folded and not grid.fixed:
            reasons["fix"] = "no variable is left over that could be held fixed"
        if len(grid.metrics) < 2:
            reasons["next_metric"] = "there is one metric only"
        return reasons

    def action_swap(self) -> None:
        grid, cursor = self._shown, self.matrix.cursor
        if grid is not None and not self.notify_refusal("swap"):
            self.choice = swap_axes(grid, self.choice)
            self._next_cursor = (cursor[1], cursor[0]) if cursor is not None else None
            self._refresh_if_mounted()

    def action_view(self) -> None:
        grid = self._shown
        if grid is not None and not self.notify_refusal("view"):
            self.choice, self._placed = next_pair(grid, self.choice), False
            self._refresh_if_mounted()

    def action_fix(self) -> None:
        grid = self._shown
        if grid is not None and not self.notify_refusal("fix"):
            self.choice = next_fixed(grid, self.choice)
            self._refresh_if_mounted()

    def choose_metric(self, metric: str) -> None:
        self.choice = replace(self.choice, metric=metric)
