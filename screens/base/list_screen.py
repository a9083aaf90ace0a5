"""Base class of screens with a table: filter, order, chosen columns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, cast

import msgspec
from msgspec import Struct
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from metlmon.tables.layout import (
    Column,
    ColumnChoice,
    TableColumn,
    fit_columns,
    render_cells,
    table_columns,
)
from metlmon.text.formatting import count, plain
from metlmon.text.spans import BOLD, DIM, KEY, NOTE, Line, line
from screens.actions import ALL_NAMES
from screens.base.context import ListState
from screens.base.screens import Prompt, ResultModal, SnapshotScreen, rule
from screens.base.stats_worker import Memo
from screens.widgets.line_widget import StaticLines
from screens.widgets.table import LazyRows, Table, TableRow

T = TypeVar("T")


class FilterPrompt(Prompt):
    """The filter prompt of a table.

    Enter and escape close it while the key is handled, not some messages later. Keys queued
    behind them (fast typing, one packet) go to the newly focused widget instead of the filter.
    """

    def __init__(self, hint: str = "text in any column; ! before it: rows without it") -> None:
        super().__init__(id="prompt", hint=hint)
        self._finished = False

    def begin(self, text: str) -> None:
        """Take the focus, immediately: focus() is deferred and would lose fast letters."""
        self._finished = False
        self.display = True
        self.value = text
        self.screen.set_focus(self)

    async def _on_key(self, event: events.Key) -> None:
        if not self._finished and event.key not in ("enter", "escape"):
            return
        event.stop()
        event.prevent_default()
        if self._finished:
            self.app.post_message(events.Key(event.key, event.character))
            return
        self._finished = True
        if event.key == "escape":
            self.value = ""
        cast("ListScreen", self.screen).set_filter(self.value)


class ColumnsScreen(ResultModal[ListState | None]):
    """Choice of the columns that are shown, and of one to sort by.

    ``columns``: name and title of each. ``names``: those of ``metlmon.toml``. ``sortable``: rows
    can be sorted by them. Returns the new state of the list.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "show_or_hide", show=False),
        Binding("enter,s", "choose", show=False),
        Binding("escape,q,asterisk", "done", show=False),
    ]

    def __init__(
        self,
        columns: Sequence[tuple[str, str]],
        state: ListState,
        names: Sequence[str] = (),
        sortable: bool = True,
    ) -> None:
        super().__init__()
        self._names = names
        self._sortable = sortable
        self._columns = columns
        self._state = msgspec.convert(msgspec.to_builtins(state), ListState)

    def compose(self) -> ComposeResult:
        with Vertical(id="palette"):
            yield StaticLines(id="head")
            yield Table()

    def fill(self) -> None:
        keys = [("space", "shows or hides"), ("enter", "sorts by it"), ("esc", "closes")]
        if not self._sortable:
            del keys[1]
        hint = line(*(part for cap, text in keys for part in ((cap, KEY), (f" {text}   ", DIM))))
        self.query_one("#head", StaticLines).show([line(("Columns", BOLD)), hint])
        rows = [TableRow(name, partial(self._cells, name, title)) for name, title in self._columns]
        self.query_one(Table).show([TableColumn("SHOWN", 6), TableColumn("COLUMN", 40)], rows)

    def _cells(self, name: str, title: str) -> tuple[Line, Line]:
        shown = name == self._columns[0][0] or self._choice.includes(name, title)
        order = "   sorts the rows" if name == self._state.column else ""
        return line("[x]" if shown else "[ ]"), line(title or name, (order, DIM))

    @property
    def _choice(self) -> ColumnChoice:
        return ColumnChoice(self._names, self._state.hidden, self._state.shown)

    def action_show_or_hide(self) -> None:
        name, state = self.query_one(Table).cursor, self._state
        if name is None:
            return
        title = dict(self._columns)[name]
        wanted = not self._choice.includes(name, title)
        for exceptions in (state.hidden, state.shown):
            if name in exceptions:
                exceptions.remove(name)
        if self._choice.includes(name, title) is not wanted:
            (state.shown if wanted else state.hidden).append(name)
        self.fill()

    def action_choose(self) -> None:
        if not self._sortable:
            self.action_done()
            return
        name = self.query_one(Table).cursor
        self._state.column = None if name == self._state.column else name
        self._state.reversed = False
        self.return_result(self._state)

    def action_done(self) -> None:
        self.return_result(self._state)


class _Heading(Struct, frozen=True):
    """A title between rows."""

    text: str


class SecondLines(Struct, Generic[T], frozen=True):
    """Second lines of rows: whether a row ``has`` one, its text, and its first cell."""

    has: Callable[[T], bool]
    line: Callable[[T], Line]
    indent: int


class ListScreen(SnapshotScreen):
    """A screen with one table whose filter, order and columns survive every refresh.

    ``ORDERS`` are the criteria that the sort key goes through, by name; None: as given.
    """

    ORDERS: ClassVar[Sequence[tuple[str, Callable[[Any], tuple[Any, ...]] | None]]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.filter_text = ""
        self._columns_defined: Sequence[Column[Any]] = ()
        self._sortable = True
        self._shown_rows: Memo[tuple[list[Any], list[Any]]] = Memo()
        self._table_rows: Memo[LazyRows] = Memo()
        self._items: Sequence[Any] = ()

    @property
    def state(self) -> ListState:
        """The chosen columns and order, remembered by the application."""
        return self.context.list_states.setdefault(type(self).__name__, ListState())

    @property
    def sort_index(self) -> int:
        """The index of the chosen criterion of ``ORDERS``."""
        return self.state.order

    @property
    def sort_reversed(self) -> bool:
        """Are the rows in reverse order?"""
        return self.state.reversed

    # --- parts ----------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield from self.compose_foot()

    def compose_foot(self) -> ComposeResult:
        """The widgets below the table: note line, filter prompt and footer."""
        yield StaticLines(id="note")
        yield FilterPrompt()
        yield self.key_footer()

    @property
    def table(self) -> Table:
        return self.query_one(Table)

    # --- filling the table ----------------------------------------------------------------

    @property
    def table_width(self) -> int:
        """The cells that the table has."""
        return self.app.size.width

    def fill(
        self,
        columns: Sequence[Column[T]],
        rows: Sequence[T],
        key: Callable[[T], str],
        text: Callable[[T], str],
        *,
        all_rows: Sequence[T] | None = None,
        empty: Sequence[Line] = (),
        no_match: Sequence[Line] | None = None,
        cursor: str | None = None,
        extra: Sequence[Line] = (),
        noun: str = "run",
        details: Callable[[T | None], Sequence[Line]] = lambda row: (),
        widths: Mapping[str, int] | None = None,
        second_lines: SecondLines[T] | None = None,
        sign: Callable[[T], Line] = lambda row: (),
        more_rows: Sequence[T] = (),
        more_title: str = "",
        expand: Callable[[list[T]], list[T]] = list,
        heading: Callable[[T], str | None] = lambda row: None,
    ) -> list[T]:
        """Show the rows that pass the filter, in chosen order and columns; return them.

        ``key`` identifies a row, ``text`` is what the filter searches, in lower case. ``all_rows``
        are the rows to which columns are fitted, so that a choice among them does not move the
        columns. ``empty`` is shown if there are none of them, ``no_match`` if none is shown.
        ``cursor`` moves the cursor to this row. ``details`` are the lines below the note line for
        the row under the cursor. ``widths`` are those of the columns, if they are known already.
        ``sign`` returns a sign of one cell before a row, where it is not marked.
        ``more_rows`` follow under the heading ``more_title``; ``expand`` adds the rows that belong
        to others; ``heading`` is what a row stands under, together with those before it that have
        the same. The rest are those of :meth:`note_line`. While rows and columns are the same
        objects, they are neither filtered nor rendered again.
        """
        all_rows = rows if all_rows is None else all_rows
        all_columns, columns = columns, self.chosen_columns(columns)
        if widths is None:
            widths = fit_columns(columns, all_rows, self.table_width)
        state = self.state
        order = self.filter_text, state.column, state.order, state.reversed
        shown, more = self._shown_rows(
            lambda: (expand(self.filter_rows(rows, text)), self.filter_rows(more_rows, text)),
            *(rows, more_rows, *order),
        )
        if self.table.marks:
            self.table.keep_marks({key(row) for row in all_rows})
        if all_rows:
            clears = [line("  ", f"No {noun} has this text."), line("  ", ("[esc] clears", DIM))]
            empty = clears if no_match is None else no_match

        def build_rows() -> LazyRows:
            rows: list[T | _Heading] = _with_headings(shown, heading)
            if more:
                gap = [_Heading("")] if rows else []
                rows += [*gap, _Heading(more_title), *_with_headings(more, heading)]
            self._items = rows
            keys = [None if isinstance(row, _Heading) else key(row) for row in rows]
            has = (lambda row: False) if second_lines is None else second_lines.has
            heights = [1 + (not isinstance(row, _Heading) and has(row)) for row in rows]

            def build(index: int) -> TableRow:
                row = rows[index]
                if isinstance(row, _Heading):
                    title = line((row.text, DIM))
                    return TableRow(None, lambda: (title,))
                cells = partial(render_cells, columns, widths, row)
                if second_lines is None:
                    return TableRow(keys[index], cells, sign=sign(row))
                detail, indent = second_lines.line(row), second_lines.indent
                return TableRow(keys[index], cells, detail, indent, sign(row))

            return LazyRows(keys, heights, build)

        inputs = shown, more, all_columns, state.hidden, state.shown, self.table_width
        table_rows = self._table_rows(build_rows, *inputs)
        self.table.show(table_columns(columns, widths), table_rows, empty)
        if cursor is not None:
            self.table.select(cursor)
        index = self.table.index_of(self.table.cursor)
        note = self.note_line(len(shown) + len(more), len(all_rows), extra, noun)
        selected = None if index is None else self._items[index]
        self.show_note([note, *details(selected)])
        return shown

    def show_nothing(
        self, title: str, reason: str, text: Sequence[Line], noun: str = "run"
    ) -> None:
        """Show an empty table with this text, and the reason beside the title."""
        self.show_head([line(" ", (title, BOLD), "   ", (reason, DIM))])
        self.table.show([], [], text)
        self.show_note([self.note_line(0, 0, noun=noun)])

    def chosen_columns(
        self, columns: Sequence[Column[T]], sortable: bool = True
    ) -> list[Column[T]]:
        """The columns that are chosen; the first one always is.

        ``sortable``: the rows can be sorted by a column; those of a tree cannot.
        """
        self._columns_defined, self._sortable = columns, sortable
        return ColumnChoice(self.column_names, self.state.hidden, self.state.shown).choose(columns)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of this list in ``metlmon.toml``; empty if none are set."""
        name = type(self).__name__.removesuffix("Screen").lower()
        return self.context.feed.settings.columns_of(name)

    def action_columns(self) -> None:
        if self._columns_defined:
            columns = [(column.name, column.title) for column in self._columns_defined]
            chooser = ColumnsScreen(columns, self.state, self.column_names, self._sortable)
            self.app.push_screen(chooser, self._columns_chosen)
        else:
            self.show_message("this list has no columns to choose from")

    def _columns_chosen(self, state: ListState | None) -> None:
        if state is not None:
            self.context.list_states[type(self).__name__] = state
            self.context.save_list_states()
            self._refresh_if_mounted()

    # --- keys -----------------------------------------------------------------------------

    def footer_labels(self) -> Mapping[str, str]:
        if isinstance(self.focused, FilterPrompt):
            return {"open": "keep filter", "back": "clear filter"}
        if self.filter_text:
            return {"back": "clear filter"}
        return {"back": "clear marks"} if self.table.marks else super().footer_labels()

    def hidden_actions(self) -> Collection[str]:
        """While a filter is typed, all but the keys that end it."""
        return ALL_NAMES - {"open", "back"} if isinstance(self.focused, FilterPrompt) else ()

    # --- filter and order -----------------------------------------------------------------

    def filter_rows(self, rows: Iterable[T], text: Callable[[T], str]) -> list[T]:
        """The rows that match the filter, in the chosen order.

        ``text`` returns the lower-case text that is searched; a filter that starts with ``!``
        keeps the rows without the text.
        """
        inverse = self.filter_text.startswith("!")
        needle = self.filter_text[inverse:].strip().lower()
        matching = [row for row in rows if not needle or (needle in text(row)) is not inverse]
        key = self._order()[1]
        if key is not None:
            matching.sort(key=key)
        if self.state.reversed:
            matching.reverse()
        return matching

    def _order(self) -> tuple[str, Callable[[Any], tuple[Any, ...]] | None]:
        """The name and the key of the chosen order; empty: the list's own first one."""
        state = self.state
        for column in self._columns_defined:
            if column.name == state.column:
                return column.title, column.sort_key
        index = state.order if state.order < len(self.ORDERS) else 0
        name, key = self.ORDERS[index] if self.ORDERS else ("", None)
        return (name if index else ""), key

    def note_line(
        self, shown: int, total: int, extra: Sequence[Line] = (), noun: str = "run"
    ) -> Line:
        """The rule below the table: filter, order, and rows outside the view."""
        width = self.app.size.width
        parts = [*self.messages(), *self._marks_note(), *extra]
        if self.filter_text:
            parts.append(line(("filter ", DIM), (plain(self.filter_text, 30), NOTE)))
        if shown != total:
            parts.append(line((f"{shown} of {total} {noun}s", NOTE)))
        order = self._order()[0]
        if order or self.state.reversed:
            order = order or (self.ORDERS[0][0] if self.ORDERS else "the file")
            parts.append(line((f"by {order}{', reversed' if self.state.reversed else ''}", DIM)))
        rows_above, rows_below = self.table.rows_above, self.table.rows_below
        down, up = ("↓", "↑")
        outside = [f"{up} {rows_above}"] * (rows_above > 0) + [f"{down} {rows_below} more"] * (
            rows_below > 0
        )
        if outside:
            parts.append(line(("  ".join(outside), DIM)))
        return rule(parts, width)

    def _marks_note(self) -> list[Line]:
        marks = self.table.marks
        if not marks:
            return []
        hidden_count = self.table.hidden_marks
        hidden_text = f", {hidden_count} of them not shown" if hidden_count else ""
        compare = ", [&] compares" if "comparing" in self.SCOPES and len(marks) > 1 else ""
        return [
            line((f"{len(marks)} marked", NOTE), (f"{hidden_text}{compare}, [esc] clears", DIM))
        ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action may run: in a prompt, the filter's key is a letter."""
        if action == "filter" and isinstance(self.focused, Prompt):
            return False
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        self.query_one(FilterPrompt).begin(self.filter_text)
        self.update_footer()

    def set_filter(self, text: str) -> None:
        """Set the filter and return the focus to the table."""
        self.filter_text = text
        self.set_focus(self.table)
        self._refresh_if_mounted()

    @on(Input.Changed, "#prompt")
    def _filter_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.filter_text = event.value
        self._refresh_if_mounted()

    @on(Input.Blurred, "#prompt")
    def _prompt_blurred(self, event: Input.Blurred) -> None:
        event.stop()
        self.query_one("#prompt", Prompt).display = False
        self.update_footer()

    def action_sort(self) -> None:
        state = self.state
        state.order = 0 if state.column else (state.order + 1) % max(1, len(self.ORDERS))
        state.column, state.reversed = None, False
        self.context.save_list_states()
        self._refresh_if_mounted()

    def action_reverse(self) -> None:
        self.state.reversed = not self.state.reversed
        self.context.save_list_states()
        self._refresh_if_mounted()

    def action_open(self) -> None:
        if self.table.cursor is not None:
            self.open_row(self.table.cursor)

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        event.stop()
        self.open_row(event.key)

    async def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        event.stop()
        self._message = ""
        self._refresh_if_mounted()
        # Until the note line asks for its update, so that both are painted in one frame.
        await asyncio.sleep(0)

    def action_mark(self) -> None:
        self.table.toggle_mark()
        self._refresh_if_mounted()

    def action_mark_all(self) -> None:
        self.table.toggle_all()
        self._refresh_if_mounted()

    def clear_filter_or_marks(self) -> bool:
        """Clear the filter, or else the marks; False if there was neither."""
        if self.filter_text:
            self.filter_text = ""
        elif self.table.marks:
            self.table.clear_marks()
        else:
            return False
        self._refresh_if_mounted()
        return True

    def open_row(self, key: str) -> None:
        """Open the screen of this row; by default it is that of a run."""
        self.context.open_screen("run", key)

    def action_back(self) -> None:
        if not self.clear_filter_or_marks():
            super().action_back()


def _with_headings(rows: Iterable[T], heading: Callable[[T], str | None]) -> list[T | _Heading]:
    result: list[T | _Heading] = []
    previous: str | None = None
    for row in rows:
        title = heading(row)
        if title is not None and title != previous:
            result.append(_Heading(title))
        previous = title
        result.append(row)
    return result


def compare_marked(screen: ListScreen, metric: str | None = None) -> None:
    """Open the marked runs of a list side by side, by this metric; below two say how."""
    # Few users compare: what it needs is loaded for them only.
    from metlmon.tables.comparison import FEWEST

    marks = screen.table.marks
    keys = [key for key in screen.table.keys if key in marks]
    keys += sorted(marks.difference(keys))
    if len(keys) < FEWEST:
        screen.show_message("[space] marks runs; mark two or more, and [&] compares them")
        return
    screen.context.open_screen("compare", keys, metric)


def runs_cell(names: Sequence[str], room: int | None) -> Line:
    """The names of runs, or their number if there is no room; ``room`` None: no limit."""
    text = " ".join(plain(name, 24) for name in names[:12])
    if room is not None and len(text) > room and len(names) > 1:
        text = count(len(names), "run")
    return line((text, DIM))
