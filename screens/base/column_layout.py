"""Which columns have room, and how wide each is. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from rich.cells import cell_len

from metlmon.frozen import frozen
from screens.widgets.spans import DIM, Align, Line, fit, line, width
from screens.widgets.table import GAP, MARGIN, TableColumn

T = TypeVar("T")


@frozen
class ColumnSpec(Generic[T]):
    """A column as the screen wants it.

    ``cell`` makes the value for a width (None: as wide as it likes). ``drop``: 0 stays
    always, else the larger goes earlier. ``least`` and ``most`` bound its cells; a column
    with a ``soft`` gives way down to that before any column is dropped, one with a ``grow``
    takes up to that many when there is room to spare.
    """

    name: str
    title: str
    cell: Callable[[T, int | None], Line]
    align: Align = "left"
    drop: int = 0
    least: int = 1
    most: int = 200
    soft: int | None = None
    grow: int = 0


def fit_columns(specs: Sequence[ColumnSpec[T]], things: Sequence[T], cells: int) -> dict[str, int]:
    """Cells of each column that stays, by name, in order.

    Columns are dropped from the largest ``drop`` on; when nothing may be dropped any more,
    the widest shrink, to their ``least`` if need be; what is left goes to those that grow.
    """
    natural = {spec.name: _natural(spec, things) for spec in specs}
    kept = list(specs)
    room = cells - MARGIN - 1
    firm = {s.name: min(natural[s.name], s.soft or natural[s.name]) for s in specs}
    while _total(kept, firm) > room:
        droppable = [spec for spec in kept if spec.drop]
        if not droppable:
            break
        kept.remove(max(droppable, key=lambda spec: spec.drop))
    widths = {spec.name: natural[spec.name] for spec in kept}
    _shrink(kept, widths, room, {s.name: s.soft or natural[s.name] for s in specs})
    _shrink(kept, widths, room, {s.name: s.least for s in specs})
    spare = room - _total(kept, widths)
    for spec in kept:
        if spec.grow > widths[spec.name] and spare > 0:
            more = min(spare, spec.grow - widths[spec.name])
            widths[spec.name] += more
            spare -= more
    return widths


SAMPLE: Final = 200
"""Rows that decide how wide a column is; of more of them every n-th is asked, and what is
wider than those is cut. Asking ten thousand takes a second, at every picture."""


def _natural(spec: ColumnSpec[T], things: Sequence[T]) -> int:
    asked = things[:: 1 + len(things) // SAMPLE]
    widest = max((width(spec.cell(thing, None)) for thing in asked), default=0)
    return max(spec.least, cell_len(spec.title), min(spec.most, widest))


def _total(specs: Sequence[ColumnSpec[T]], widths: Mapping[str, int]) -> int:
    return sum(widths[spec.name] for spec in specs) + GAP * max(0, len(specs) - 1)


def _shrink(
    specs: Sequence[ColumnSpec[T]], widths: dict[str, int], room: int, down_to: Mapping[str, int]
) -> None:
    while _total(specs, widths) > room:
        able = [spec for spec in specs if widths[spec.name] > down_to[spec.name]]
        if not able:
            return
        widest = max(able, key=lambda spec: widths[spec.name])
        widths[widest.name] -= 1


def columns(specs: Sequence[ColumnSpec[T]], widths: Mapping[str, int]) -> list[TableColumn]:
    """The columns to draw."""
    return [
        TableColumn(spec.title, widths[spec.name], spec.align)
        for spec in specs
        if spec.name in widths
    ]


def cells(specs: Sequence[ColumnSpec[T]], widths: Mapping[str, int], thing: T) -> tuple[Line, ...]:
    """One row's cells for the columns that stay."""
    return tuple(spec.cell(thing, widths[spec.name]) for spec in specs if spec.name in widths)


def render_table(
    specs: Sequence[ColumnSpec[T]], rows: Sequence[T], room: int, ascii: bool
) -> list[Line]:
    """A small table as lines: its heading, then one line for each row."""
    widths = fit_columns(specs, rows, room)
    kept = columns(specs, widths)
    lines = [_row([line((column.title, DIM)) for column in kept], kept, ascii)]
    return lines + [_row(cells(specs, widths, row), kept, ascii) for row in rows]


def _row(made: Sequence[Line], kept: Sequence[TableColumn], ascii: bool) -> Line:
    out: Line = line(" " * (MARGIN - 1))
    for i, (cell, column) in enumerate(zip(made, kept, strict=True)):
        out += (line(" " * GAP) if i else ()) + fit(cell, column.cells, column.align, ascii)
    return out
