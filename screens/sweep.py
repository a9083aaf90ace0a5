"""The sweep grid: the best point, progress, matrix layout and cell details."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partialmethod
from typing import Any, ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message

from metlmon.snapshot.records import Snapshot
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
from metlmon.text.formatting import STATES, clip, clip_middle, plain
from metlmon.text.spans import (
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
    fit,
    join,
    justify,
    line,
    style_of,
    width,
)
from screens.actions import bindings_of
from screens.base.screens import ListScreen, how_to, padded, rule
from screens.curves import MetricKeys, metric_parts
from screens.widgets.line_widget import LineState, MovingWidget

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
    folding = (line((text, NOTE)) for text in sweep_table.folding_texts(grid))
    metric = join((*metric_parts(grid), *folding), line("   "))
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
    if cell is not None and len(cell.runs) == 1:
        lines = [_point_line(grid, cell), *_single_run_lines(grid, cell.runs[0])]
    elif cell is not None:
        runs = join(map(_run_summary, cell.runs), line((", ", DIM)))
        several = formatting.count(len(cell.runs), "run")
        first = line((f"{several} here, the best first: ", DIM))
        lines = [_point_line(grid, cell), first + runs]
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


def _run_summary(run: CellRun) -> Line:
    sign = STATES[run.state]
    value = formatting.metric(run.reached.value) if run.reached is not None else ""
    shown = line((value, BAD if run.curve.diverged else PLAIN))
    parts = (line(clip_middle(run.entry.run, 20)), shown, line((sign.glyph, style_of(sign))))
    return join(parts, line(" "))


def _single_run_lines(grid: Grid, run: CellRun) -> list[Line]:
    name = clip_middle(run.entry.run, 24)
    metric = clip(grid.metric, 40)
    course = curve_symbol(run.curve)
    reached = line((f"{name} has no {metric} yet", DIM))
    if run.reached is not None:
        value = formatting.metric(run.reached.value)
        which = "best" if grid.goal is not None else "last"
        epoch = formatting.epoch_number(run.reached.epoch)
        reached = line(
            (f"{name}: {which} {metric} {value} in epoch {epoch}   ", PLAIN),
            (course.word if grid.goal is not None else "", style_of(course)),
        )
    stopped = line(("stopped: ", NOTE), plain(run.stopped or "", 200))
    return [reached, *([stopped] if run.stopped is not None else [])]


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
        self.show_head([*(line(" ") + text for text in head_lines(grid, room - 2)), ()])
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
            parts.append(line(("reading what the trainings wrote…", DIM)))
        hidden = zip("↑↓←→", self.matrix.hidden_counts, strict=True)
        more = [line((f"{sign} {n}", DIM)) for sign, n in hidden if n]
        if more:
            parts.append(join(more, line("  ")) + line((" more", DIM)))
        return rule(parts, self.app.size.width)

    def _nothing(self, grid: Grid | None, update: Snapshot) -> None:
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


# --- its widget: fixed headings, a cursor that moves from cell to cell ------------------

Key = tuple[Any, ...]

CURSOR: Final = MOVING

GAP: Final = 1
"""Width between two columns: each cell begins with the cursor or a blank."""


class MatrixLayout(Struct, frozen=True):
    """The content of a matrix.

    ``corner`` and ``heading``: the lines of the corner and of a column's heading; ``row_heading``:
    a row's heading, ``row_heading_width`` wide; ``cell``: a cell's lines, ``cell_width`` wide,
    ``cell_height`` high.
    """

    rows: Sequence[Key] = ()
    columns: Sequence[Key] = ()
    corner: Sequence[Line] = ()
    heading: Callable[[Key], Sequence[Line]] = lambda column: ()
    row_heading: Callable[[Key], Line] = lambda row: ()
    cell: Callable[[Key, Key], Sequence[Line]] = lambda row, column: ()
    row_heading_width: int = 0
    cell_width: int = 1
    cell_height: int = 1


NO_CONTENT: Final = MatrixLayout()


class Matrix(MovingWidget):
    """A matrix of cells; posts ``Matrix.CellSelected`` and ``Matrix.CellHighlighted``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("sideways")
    WHEEL_LINES = 1

    class CellSelected(Message):
        """A cell was double-clicked."""

    class CellHighlighted(Message):
        """The cursor ``moved`` to another cell, or the view was resized."""

        def __init__(self, *, moved: bool = True) -> None:
            super().__init__()
            self.moved = moved

    def __init__(self) -> None:
        super().__init__()
        self._layout = NO_CONTENT
        self._empty: Sequence[Line] = ()
        self._cell: tuple[Key, Key] | None = None
        self._top = self._left = 0

    # --- what is shown --------------------------------------------------------------------

    @property
    def cursor(self) -> tuple[Key, Key] | None:
        """Row and column of the cell under the cursor."""
        return None if self._layout is NO_CONTENT else self._cell

    @property
    def hidden_counts(self) -> tuple[int, int, int, int]:
        """Number of rows above and below the view, and of columns left and right of it."""
        layout = self._layout
        if layout is NO_CONTENT:
            return 0, 0, 0, 0
        below = len(layout.rows) - self._top - self._rows_in_view
        right = len(layout.columns) - self._left - self._columns_in_view
        return self._top, max(0, below), self._left, max(0, right)

    def show(self, layout: MatrixLayout | None, empty: Sequence[Line] = ()) -> None:
        """Show this layout, or the lines ``empty`` if there is none."""
        previous, self._layout, self._empty = self._layout, layout or NO_CONTENT, empty
        if layout is not None:
            row, column = self._cell or (None, None)
            row = _key_or_neighbour(row, previous.rows, layout.rows)
            column = _key_or_neighbour(column, previous.columns, layout.columns)
            self._cell = None if row is None or column is None else (row, column)
        self._keep_in_view()
        self.refresh_changed()

    def select(self, row: Key, column: Key) -> None:
        """Move the cursor to this cell, if it exists."""
        if row not in self._layout.rows or column not in self._layout.columns:
            return
        moved, self._cell = (row, column) != self._cell, (row, column)
        self._keep_in_view()
        self.refresh_changed()
        if moved:
            self.post_message(self.CellHighlighted())

    # --- positions ------------------------------------------------------------------------

    @property
    def _rows_in_view(self) -> int:
        layout = self._layout
        return max(1, (self.size.height - len(layout.corner)) // layout.cell_height)

    @property
    def _columns_in_view(self) -> int:
        layout = self._layout
        return max(1, (self.size.width - layout.row_heading_width) // (layout.cell_width + GAP))

    def _indices(self, cursor: tuple[Key, Key]) -> tuple[int, int]:
        row, column = cursor
        return list(self._layout.rows).index(row), list(self._layout.columns).index(column)

    def _keep_in_view(self) -> None:
        if self.cursor is None:
            return
        row, column = self._indices(self.cursor)
        rows, columns = len(self._layout.rows), len(self._layout.columns)
        self._top = _first_in_view(self._top, row, self._rows_in_view, rows)
        self._left = _first_in_view(self._left, column, self._columns_in_view, columns)

    def on_resize(self) -> None:
        self._keep_in_view()
        self.post_message(self.CellHighlighted(moved=False))

    # --- drawing --------------------------------------------------------------------------

    def line_at(self, y: int) -> LineState:
        """A line, and the spans of the cursor's cell in it."""
        layout = self._layout
        if layout is NO_CONTENT:
            # A blank line, then the text for an empty matrix.
            return (self._empty[y - 1] if 1 <= y <= len(self._empty) else ()), ()
        columns = layout.columns[self._left : self._left + self._columns_in_view]
        if y < len(layout.corner):
            content = fit(layout.corner[y], layout.row_heading_width, "left")
            for column in columns:
                heads = layout.heading(column)
                head = heads[y] if y < len(heads) else ()
                content += line(" " * GAP) + fit(head, layout.cell_width, "right")
            return content, ()
        row_in_view, line_in_row = divmod(y - len(layout.corner), layout.cell_height)
        if self._top + row_in_view >= len(layout.rows) or row_in_view >= self._rows_in_view:
            return (), ()
        row = layout.rows[self._top + row_in_view]
        heading = () if line_in_row else layout.row_heading(row)
        content = fit(heading, layout.row_heading_width, "left")
        cursor_spans: tuple[int, ...] = ()
        for column in columns:
            under_cursor = (row, column) == self._cell
            cell = fit(layout.cell(row, column)[line_in_row], layout.cell_width, "left")
            content += line(("▌" if under_cursor and not line_in_row else " ", CURSOR))
            if under_cursor:
                cursor_spans = tuple(range(len(content) - 1, len(content) + len(cell)))
            content += cell
        return content, cursor_spans

    # --- moving ---------------------------------------------------------------------------

    def _move_cursor(self, down: int, right: int) -> None:
        if self.cursor is None:
            return
        rows, columns = self._layout.rows, self._layout.columns
        row, column = self._indices(self.cursor)
        self.select(
            rows[max(0, min(row + down, len(rows) - 1))],
            columns[max(0, min(column + right, len(columns) - 1))],
        )

    @property
    def page_size(self) -> int:
        return self._rows_in_view

    def move_by(self, lines: int) -> None:
        self._move_cursor(lines, 0)

    action_left = partialmethod(_move_cursor, 0, -1)
    action_right = partialmethod(_move_cursor, 0, 1)
    action_far_left = partialmethod(_move_cursor, 0, -sys.maxsize)
    action_far_right = partialmethod(_move_cursor, 0, sys.maxsize)

    def on_click(self, event: events.Click) -> None:
        layout = self._layout
        if event.y < len(layout.corner) or event.x < layout.row_heading_width:
            return
        row = (event.y - len(layout.corner)) // layout.cell_height
        column = (event.x - layout.row_heading_width) // (layout.cell_width + GAP)
        rows = layout.rows[self._top : self._top + self._rows_in_view]
        columns = layout.columns[self._left : self._left + self._columns_in_view]
        if row < len(rows) and column < len(columns):
            self.select(rows[row], columns[column])
            if event.chain > 1:
                self.post_message(self.CellSelected())


def _key_or_neighbour(
    key: Key | None, previous: Sequence[Key], current: Sequence[Key]
) -> Key | None:
    """The key if it still exists, or the one now at its index."""
    if key in current or not current:
        return key if current else None
    index = list(previous).index(key) if key is not None and key in previous else 0
    return current[min(index, len(current) - 1)]


def _first_in_view(first: int, index: int, view: int, count: int) -> int:
    """The first index in view, so that ``index`` is in view and no room is empty."""
    first = min(max(first, index - view + 1), index)
    return max(0, min(first, count - view))
