"""Columns of tables: their values, which ones fit, and how wide each is. Pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr
from rich.cells import cell_len, set_cell_size

from metlmon.snapshot.row_text import OfRun
from metlmon.text import formatting
from metlmon.text.formatting import UNKNOWN, Symbol
from metlmon.text.spans import (
    BOLD,
    DIM,
    PLAIN,
    Align,
    Line,
    TextStyle,
    crop,
    crop_middle,
    file_name,
    fit,
    line,
    symbol_span,
)
from metlmon.text.spans import width as line_width

T = TypeVar("T")

SHORTEST_NAME: Final = 6
"""Width in cells below which no part of a name distinguishes it from others."""


GAP: Final = 2
"""Cells between two columns."""

MARGIN: Final = 2
"""Cells before the first column: the cursor, and the sign of a marked row."""


class TableColumn(Struct, frozen=True):
    """A rendered column: heading, width in cells, alignment, and its name.

    ``mark``: one character after the heading of the column by which the rows are sorted.
    """

    title: str
    width: int
    align: Align = "left"
    name: str = ""
    mark: str = ""


class Kind(StrEnum):
    """The kind of a column's values, which determines their text, alignment, order and type.

    ``hours``: hours, such as GPU-hours; ``duration``: seconds; ``share``: 0–1; ``number``: the
    value of a metric; ``state``: a symbol with its word; ``time``: a moment; ``flag``: true or
    false.
    """

    TEXT = "text"
    STATE = "state"
    FLAG = "flag"
    TIME = "time"
    COUNT = "count"
    NUMBER = "number"
    HOURS = "hours"
    DURATION = "duration"
    SHARE = "share"
    BYTES = "bytes"

    @property
    def align(self) -> Align:
        """Right for numbers and times, so that their digits line up."""
        return "left" if self in (Kind.TEXT, Kind.STATE, Kind.FLAG) else "right"


Value = str | int | float | datetime | Symbol | None
"""A value: None if unknown, an empty text if it does not apply."""


AS_NAMED: Final = "\0"
"""Stands for the column's name in capitals as its heading."""


class Column(Struct, Generic[T], frozen=True):
    """The definition of a column: the value of a row, and how it is shown.

    ``value`` is in the unit of its ``kind``, unless ``unit`` names another one; ``doc`` describes
    it, and ``words`` lists the possible states. Without enough room the column with the largest
    ``drop`` is dropped first, and those with 0 never are.

    ``footnote``: the key of its definition in a report, and ``group``: a heading over several
    columns there.

    ``write`` formats a known value, by default as its kind; ``style`` is that of the text, or a
    function of the row; ``year`` is omitted from times. ``cell`` draws anything more than a text,
    in a width in cells (None: unlimited); ``graphic``: it is a bar, which a pipe does not get.
    ``order`` is the sort key if it is not that of the value.

    ``minimum`` and ``maximum`` bound the width in cells; the column shrinks to ``comfortable``
    before any column is dropped, and takes spare room up to ``grow``. ``measure`` returns the cells
    that a row needs if it has a shorter text for less room; ``reserve`` the spare cells that it may
    need later. ``short``: the width with a shorter text in all cells, used if not every column can
    have its natural width. ``identifies`` returns the row's name, which is a part of the cell's
    text and is shortened where it resembles other names; empty of a row without one.
    """

    name: str
    value: Callable[[T], Value]
    kind: Kind = Kind.TEXT
    doc: str = ""
    title: str = AS_NAMED
    footnote: str = ""
    group: str = ""
    unit: str = ""
    words: tuple[str, ...] = ()
    align: Align | None = None
    drop: float = 0
    style: TextStyle | Callable[[T], TextStyle] = PLAIN
    write: Callable[[Any], str] | None = None
    year: int | None = None
    cell: Callable[[T, int | None], Line] | None = None
    graphic: bool = False
    order: Callable[[T], tuple[Any, ...]] | None = None
    minimum: int = 1
    maximum: int = 200
    comfortable: int | None = None
    grow: int = 0
    measure: Callable[[T], int] | None = None
    reserve: Callable[[T], int] | None = None
    short: int | None = None
    identifies: Callable[[T], str] | None = None

    def __post_init__(self) -> None:
        if self.title == AS_NAMED:
            force_setattr(self, "title", self.name.upper())

    def draw(self, row: T, width: int | None = None) -> Line:
        """The cell of a row, which may exceed ``width`` cells (None: unlimited)."""
        if self.cell is not None:
            return self.cell(row, width)
        value = self.value(row)
        if value is None:
            return UNKNOWN_CELL
        if isinstance(value, Symbol):
            return symbol_span(value)
        text = self.text(value)
        style = self.style if isinstance(self.style, TextStyle) else self.style(row)
        nothing = value == 0 and self.kind in (Kind.COUNT, Kind.HOURS)
        return line((text, DIM if nothing else style)) if text else ()

    def text(self, value: Any) -> str:
        """The text of a known value that is not a symbol."""
        if self.write is not None and value != "":
            return self.write(value)
        if isinstance(value, str):
            return value
        if self.kind is Kind.TIME:
            return formatting.moment(value, self.year)
        return _TEXTS[self.kind](value)

    def sort_key(self, row: T) -> tuple[Any, ...]:
        """Sort key: numbers descending, then texts and times ascending, then unknown values."""
        return self.order(row) if self.order is not None else value_order(self.value(row))

    @property
    def alignment(self) -> Align:
        return self.align or self.kind.align


def name_column(name: str, value: Callable[[T], str | None], **more: Any) -> Column[T]:
    """A column of names, which are shortened where they resemble each other."""
    return Column(name, value, identifies=lambda row: value(row) or "", **more)


_TEXTS: Final[Mapping[Kind, Callable[[Any], str]]] = {
    Kind.TEXT: str,
    Kind.COUNT: formatting.number,
    Kind.NUMBER: formatting.metric,
    Kind.HOURS: formatting.hours,
    Kind.DURATION: formatting.duration,
    Kind.SHARE: lambda share: formatting.share(share, 1),
    Kind.BYTES: formatting.size,
}
"""Formats a known value, by kind."""


def searched(*parts: str | None) -> str:
    """The text of a row that the filter of a list searches: its parts, in lower case."""
    return "\n".join(filter(None, parts)).lower()


def value_order(value: Value) -> tuple[Any, ...]:
    """The sort key of a value; numbers within texts count as numbers: run9 comes before run12."""
    if isinstance(value, datetime):
        return 1, 0.0, value.isoformat()
    if isinstance(value, int | float) and not math.isnan(value):
        return 0, -value, ""
    text = value.word if isinstance(value, Symbol) else str(value or "")
    if not text.strip("?–-·. "):
        return 2, 0.0, ""
    return 1, 0.0, re.sub(r"\d+", lambda digits: digits.group().zfill(9), text.lower())


class ColumnWidths(dict[str, int]):
    """Widths in cells by column; ``names``: shortened texts of long names, by column and name."""

    def __init__(self, widths: Mapping[str, int] = MappingProxyType({})) -> None:
        super().__init__(widths)
        self.names: dict[str, dict[str, str]] = {}


UNKNOWN_CELL: Final = line((UNKNOWN, DIM))


def count_cell(value: int) -> Line:
    """A number, dim for 0."""
    return line((formatting.number(value), PLAIN if value else DIM))


def have_same_names(runs: Sequence[OfRun]) -> bool:
    """Whether runs have the same name, so that their DAGs identify them."""
    return len({row.run for row in runs}) < len(runs)


def dag_column(dag_of: Callable[[T], str], same_names: bool) -> Column[T]:
    """The column of DAGs, which is not dropped if rows have the same names."""
    return Column(
        "dag",
        dag_of,
        doc="file of the top-level DAG",
        drop=0 if same_names else 10,
        cell=lambda row, cells: line((file_name(dag_of(row), cells), DIM)),
        minimum=5,
        comfortable=10 if same_names else 16,
        maximum=28,
    )


def dag_columns(runs: Sequence[OfRun], dag_of: Callable[[T], str]) -> list[Column[T]]:
    """The column of DAGs, unless all these runs are of the same one."""
    if len({row.dag for row in runs}) == 1:
        return []
    return [dag_column(dag_of, have_same_names(runs))]


class ColumnChoice(Struct, frozen=True):
    """Which columns of a table are shown besides its first one, which always is.

    ``names``: the names or headings in ``metlmon.toml``, in their order; all if empty. ``a`` stands
    for all ``a.b``. ``hidden`` and ``shown`` are names chosen on the screen, which take precedence.
    """

    names: Sequence[str] = ()
    hidden: Collection[str] = ()
    shown: Collection[str] = ()

    def includes(self, name: str, title: str) -> bool:
        """Whether the column with this name and heading is shown."""
        if name in self.hidden or name in self.shown:
            return name in self.shown
        return not self.names or self._place(name, title) < len(self.names)

    def _place(self, name: str, title: str) -> int:
        own = {name.lower(), name.lower().partition(".")[0], title.lower()}
        places = (place for place, each in enumerate(self.names) if each.lower() in own)
        return next(places, len(self.names))

    def choose(self, columns: Sequence[Column[T]]) -> list[Column[T]]:
        """The columns that are shown, in the order of ``names``."""
        others = [each for each in columns[1:] if self.includes(each.name, each.title)]
        return [*columns[:1], *sorted(others, key=lambda each: self._place(each.name, each.title))]


def fit_columns(
    columns: Sequence[Column[T]],
    rows: Sequence[T],
    width: int,
    widest: dict[str, int] | None = None,
) -> ColumnWidths:
    """Widths in cells of the columns that fit, by name, in order.

    Columns are dropped in descending order of ``drop``. When none is left to drop, the widest
    shrink, down to ``minimum``; spare room goes to those with ``grow``. ``widest`` keeps the widest
    content of each column, so that columns do not move back and forth as rows change; from the
    spare room they then reserve what a row may need later.
    """
    natural_widths = {} if widest is None else widest
    for column in columns:
        natural_widths[column.name] = max(
            _natural_width(column, rows), natural_widths.get(column.name, 0)
        )
    fitting = list(columns)
    room = width - MARGIN - 1
    minimum_widths = {
        s.name: min(natural_widths[s.name], s.short or s.comfortable or natural_widths[s.name])
        for s in columns
    }
    while _total_width(fitting, minimum_widths) > room:
        droppable = [column for column in fitting if column.drop]
        if not droppable:
            break
        fitting.remove(max(droppable, key=lambda column: column.drop))
    widths = ColumnWidths({column.name: natural_widths[column.name] for column in fitting})
    if _total_width(fitting, widths) > room:
        widths.update((column.name, column.short) for column in fitting if column.short)
    _shrink(
        fitting, widths, room, {s.name: s.comfortable or natural_widths[s.name] for s in columns}
    )
    _shrink(fitting, widths, room, {s.name: s.minimum for s in columns})
    if widest is not None:
        _widen(widths, room, {s.name: _reserved_width(s, rows) for s in fitting if s.reserve})
    _widen(widths, room, {column.name: column.grow for column in fitting})
    for column in fitting:
        if (name_of := column.identifies) is not None:
            widths.names[column.name] = _short_names(column, name_of, rows, widths[column.name])
    return widths


def _short_names(
    column: Column[T], identifies: Callable[[T], str], rows: Sequence[T], width: int
) -> dict[str, str]:
    """Shortened texts of the names that do not fit into a column, by name."""
    long: dict[str, int] = {}
    for row in rows:
        name, cells = identifies(row), line_width(column.draw(row, None))
        if name and cells > width:
            room = width - (cells - cell_len(name))
            long[name] = min(room, long.get(name, room))
    room = max(0, min(long.values(), default=0))
    return distinct_texts(long, room) if room > SHORTEST_NAME else {}


def distinct_texts(names: Collection[str], cells: int) -> dict[str, str]:
    """Texts of at most ``cells`` cells for long names, which differ where the names do.

    Names that would look the same lose what all of them share at the beginning and at the end,
    then what some of them share; the ends of names are kept the longest.
    """
    return _tell_apart({name: crop_middle(name, cells) for name in names}, cells)


def _tell_apart(texts: dict[str, str], cells: int) -> dict[str, str]:
    """Replace texts that are the same for several names."""
    alike: dict[str, list[str]] = {}
    for name, shown in texts.items():
        alike.setdefault(shown, []).append(name)
    for group in alike.values():
        if len(group) > 1:
            cut = shared_start(group)
            end = shared_start([name[cut:][::-1] for name in group])
            end *= any(cell_len(name[cut:]) >= cells for name in group)
            shown_of = {name: _window(name, cut, end, cells) for name in group}
            if 1 < len(set(shown_of.values())) < len(group):
                shown_of = _tell_apart(shown_of, cells)
            texts.update(shown_of)
    return texts


def shared_start(texts: Collection[str]) -> int:
    """The number of characters that all texts share at the beginning, up to a separator."""
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), len(first))
    return max(first.rfind(mark, 0, same) for mark in "/_- ,;:=") + 1 or max(0, same - 2)


def _window(name: str, cut: int, end: int, cells: int) -> str:
    """A name without its last ``end`` characters, and without those before ``cut``.

    Of the latter, as many as fit are kept; without room for the rest, it is cut elsewhere.
    """
    rest, tail = name[cut:], "…" if end else ""
    different = name[cut : len(name) - end] + tail
    room = cells - cell_len(different) - 1
    if cut and room >= 0:
        return f"{set_cell_size(name, room)}…{different}"
    return f"…{crop_middle(rest, cells - 1)}" if cut else crop_middle(rest, cells)


def _widen(widths: dict[str, int], room: int, wanted: Mapping[str, int]) -> None:
    """Give the spare room to columns that want more, in order."""
    for name, width in wanted.items():
        spare = room - sum(widths.values()) - GAP * max(0, len(widths) - 1)
        if width > widths[name] and spare > 0:
            widths[name] += min(spare, width - widths[name])


SAMPLE: Final = 200
"""Rows measured for a column's width, evenly spaced; wider cells of other rows are cut.
Measuring ten thousand rows takes a second per snapshot."""


def _sample(rows: Sequence[T]) -> Sequence[T]:
    return rows[:: 1 + len(rows) // SAMPLE]


def _reserved_width(column: Column[T], rows: Sequence[T]) -> int:
    reserved = map(column.reserve, _sample(rows)) if column.reserve is not None else ()
    return min(column.maximum, max(reserved, default=0))


def _natural_width(column: Column[T], rows: Sequence[T]) -> int:
    measure = column.measure or (lambda row: line_width(column.draw(row, None)))
    widest = max(map(measure, _sample(rows)), default=0)
    return max(column.minimum, cell_len(column.title), min(column.maximum, widest))


def _total_width(columns: Sequence[Column[T]], widths: Mapping[str, int]) -> int:
    return sum([widths[column.name] for column in columns]) + GAP * max(0, len(columns) - 1)


def _shrink(
    columns: Sequence[Column[T]],
    widths: dict[str, int],
    room: int,
    minimum_widths: Mapping[str, int],
) -> None:
    while _total_width(columns, widths) > room:
        shrinkable = [each for each in columns if widths[each.name] > minimum_widths[each.name]]
        if not shrinkable:
            return
        widest = max(shrinkable, key=lambda column: widths[column.name])
        widths[widest.name] -= 1


def table_columns(
    columns: Sequence[Column[T]],
    widths: Mapping[str, int],
    sorted_by: str | None = None,
    mark: str = "",
) -> list[TableColumn]:
    """The columns that fit, for the table widget; the one named ``sorted_by`` has the ``mark``."""
    marks = {sorted_by: mark}
    return [
        TableColumn(c.title, widths[c.name], c.alignment, c.name, marks.get(c.name, ""))
        for c in columns
        if c.name in widths
    ]


def render_cells(columns: Sequence[Column[T]], widths: ColumnWidths, row: T) -> tuple[Line, ...]:
    """The cells of one row for the columns that fit."""
    return tuple(_cell(column, widths, row) for column in columns if column.name in widths)


def _cell(column: Column[T], widths: ColumnWidths, row: T) -> Line:
    name = column.identifies(row) if column.identifies is not None else ""
    shown = widths.names.get(column.name, {}).get(name)
    if shown is not None:
        full = column.draw(row, None)
        return tuple((shown if text == name else text, style) for text, style in full)
    return column.draw(row, widths[column.name])


def empty_text(sentence: str | Line, *hints: str) -> list[Line]:
    """The text in place of rows: an optional sentence, and below it what to do, dim."""
    first = line(sentence) if isinstance(sentence, str) else sentence
    shown = [first, *(line((hint, DIM)) for hint in hints)]
    return [line("  ") + each for each in shown if each]


def render_table(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> list[Line]:
    """A small table on a screen as lines: the heading, then one line per row."""
    lines = table_lines(columns, rows, width - MARGIN - 1, DIM)
    return [line(" " * (MARGIN - 1)) + content for content in lines]


def table_lines(
    columns: Sequence[Column[T]],
    rows: Sequence[T],
    width: int | None,
    heading_style: TextStyle = BOLD,
) -> list[Line]:
    """A table without margin: the heading, then one line per row.

    ``width`` None: all columns except graphic ones, without cropping.
    """
    if width is not None:
        widths = fit_columns(columns, rows, width + MARGIN + 1)
        fitting = table_columns(columns, widths)
        cells_of_rows = [render_cells(columns, widths, row) for row in rows]
    else:
        shown = [column for column in columns if not column.graphic]
        cells_of_rows = [tuple(column.draw(row, None) for column in shown) for row in rows]
        fitting = [
            TableColumn(
                column.title,
                max([cell_len(column.title), *(line_width(cells[i]) for cells in cells_of_rows)]),
                column.alignment,
            )
            for i, column in enumerate(shown)
        ]
    heading = tuple(line((column.title, heading_style)) for column in fitting)
    lines = []
    for cells in (heading, *cells_of_rows):
        content: Line = ()
        for i, (cell, column) in enumerate(zip(cells, fitting, strict=True)):
            # The last one is not padded on its right.
            is_last = i == len(fitting) - 1 and column.align == "left"
            padded = crop(cell, column.width) if is_last else fit(cell, column.width, column.align)
            content += (line(" " * GAP) if i else ()) + padded
        lines.append(content)
    return lines
