"""Layout of table columns: which ones fit, and how wide each is. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from rich.cells import cell_len

from metlmon.frozen import frozen
from metlmon.text.spans import DIM, Align, Line, fit, line, width

T = TypeVar("T")


GAP: Final = 2
"""Cells between two columns."""

MARGIN: Final = 2
"""Cells before the first column: the cursor, and the sign of a marked row."""


@frozen
class TableColumn:
    """A rendered column: heading, width in cells, and alignment."""

    title: str
    width: int
    align: Align = "left"


@frozen
class Column(Generic[T]):
    """The definition of a column, before its width is known.

    ``cell`` renders the value for a width (None: unlimited). ``drop``: 0 is never dropped,
    else the largest is dropped first. ``minimum`` and ``maximum`` bound the width in cells;
    ``comfortable`` is a width down to which the column shrinks before any column is dropped, and
    ``grow`` one up to which it takes spare room.
    """

    name: str
    title: str
    cell: Callable[[T, int | None], Line]
    align: Align = "left"
    drop: int = 0
    minimum: int = 1
    maximum: int = 200
    comfortable: int | None = None
    grow: int = 0


def fit_columns(specs: Sequence[Column[T]], rows: Sequence[T], width: int) -> dict[str, int]:
    """Widths in cells of the columns that fit, by name, in order.

    Columns are dropped from the largest ``drop`` on. When none may be dropped any more, the
    widest shrink, down to ``minimum``; spare room goes to those with ``grow``.
    """
    natural_widths = {spec.name: _natural_width(spec, rows) for spec in specs}
    fitting = list(specs)
    room = width - MARGIN - 1
    minimum_widths = {
        s.name: min(natural_widths[s.name], s.comfortable or natural_widths[s.name]) for s in specs
    }
    while _total_width(fitting, minimum_widths) > room:
        droppable = [spec for spec in fitting if spec.drop]
        if not droppable:
            break
        fitting.remove(max(droppable, key=lambda spec: spec.drop))
    widths = {spec.name: natural_widths[spec.name] for spec in fitting}
    _shrink(fitting, widths, room, {s.name: s.comfortable or natural_widths[s.name] for s in specs})
    _shrink(fitting, widths, room, {s.name: s.minimum for s in specs})
    spare = room - _total_width(fitting, widths)
    for spec in fitting:
        if spec.grow > widths[spec.name] and spare > 0:
            extra = min(spare, spec.grow - widths[spec.name])
            widths[spec.name] += extra
            spare -= extra
    return widths


SAMPLE: Final = 200
"""Rows measured for a column's width, evenly spaced; wider cells of other rows are cut.
Measuring ten thousand rows takes a second per snapshot."""


def _natural_width(spec: Column[T], rows: Sequence[T]) -> int:
    sample = rows[:: 1 + len(rows) // SAMPLE]
    widest = max((width(spec.cell(row, None)) for row in sample), default=0)
    return max(spec.minimum, cell_len(spec.title), min(spec.maximum, widest))


def _total_width(specs: Sequence[Column[T]], widths: Mapping[str, int]) -> int:
    return sum(widths[spec.name] for spec in specs) + GAP * max(0, len(specs) - 1)


def _shrink(
    specs: Sequence[Column[T]],
    widths: dict[str, int],
    room: int,
    minimum_widths: Mapping[str, int],
) -> None:
    while _total_width(specs, widths) > room:
        shrinkable = [spec for spec in specs if widths[spec.name] > minimum_widths[spec.name]]
        if not shrinkable:
            return
        widest = max(shrinkable, key=lambda spec: widths[spec.name])
        widths[widest.name] -= 1


def table_columns(specs: Sequence[Column[T]], widths: Mapping[str, int]) -> list[TableColumn]:
    """The columns that fit, as the table widget takes them."""
    return [
        TableColumn(spec.title, widths[spec.name], spec.align)
        for spec in specs
        if spec.name in widths
    ]


def render_cells(specs: Sequence[Column[T]], widths: Mapping[str, int], row: T) -> tuple[Line, ...]:
    """The cells of one row for the columns that fit."""
    return tuple(spec.cell(row, widths[spec.name]) for spec in specs if spec.name in widths)


def render_table(specs: Sequence[Column[T]], rows: Sequence[T], width: int) -> list[Line]:
    """A small table as lines: the heading, then one line per row."""
    widths = fit_columns(specs, rows, width)
    fitting = table_columns(specs, widths)
    lines = [_render_row([line((column.title, DIM)) for column in fitting], fitting)]
    return lines + [_render_row(render_cells(specs, widths, row), fitting) for row in rows]


def _render_row(row_cells: Sequence[Line], fitting: Sequence[TableColumn]) -> Line:
    rendered: Line = line(" " * (MARGIN - 1))
    for i, (cell, column) in enumerate(zip(row_cells, fitting, strict=True)):
        rendered += (line(" " * GAP) if i else ()) + fit(cell, column.width, column.align)
    return rendered
