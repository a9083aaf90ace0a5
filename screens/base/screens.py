"""Base classes of all screens, and of screens with a filtered and sorted table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, TypeVar, cast

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Input

from metlmon.error_text import describe_error
from metlmon.live.feed import Snapshot
from metlmon.tables.layout import Column, fit_columns, render_cells, table_columns
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    NOTE,
    Line,
    TextStyle,
    crop,
    join,
    line,
    width,
    wrap,
)
from screens.actions import READ_ONLY_REFUSED, bindings_of
from screens.base.columns_screen import ColumnsScreen
from screens.base.context import AppContext
from screens.base.list_state import ListState, column_order
from screens.terminal.private import FaultTolerant, release_styles
from screens.widgets.document import Document
from screens.widgets.footer import KeyFooter
from screens.widgets.lines import StaticLines
from screens.widgets.table import LazyRows, Table, TableRow

T = TypeVar("T")


TAB_HEIGHT: Final = 16
"""Lower terminals have no room for the tab bar."""

BACK_TO_NOW: Final = "now"
"""Footer label of the key that returns to the present."""


class SnapshotScreen(FaultTolerant, Screen[None]):
    """A screen that shows the current snapshot.

    ``SCOPES``: the scopes of its actions, from which its bindings are made; ``OLD_SCOPES``: further
    scopes, whose keys work but are not shown. ``HELP_SCOPES``: the scopes that the help lists, if
    they differ. ``OWN_ACTIONS``: actions that its footer hides. ``SHOWS_ENSEMBLE``: it shows the
    ensemble, present or past; prompts and help screens do not. ``HAS_HEADER``: errors of the
    files are shown in its own header; elsewhere they are in the banner.
    """

    SCOPES: ClassVar[tuple[str, ...]] = ()
    OLD_SCOPES: ClassVar[tuple[str, ...]] = ()
    HELP_SCOPES: ClassVar[tuple[str, ...]] = ()
    OWN_ACTIONS: ClassVar[Collection[str]] = ()
    SHOWS_ENSEMBLE: ClassVar[bool] = True
    HAS_HEADER: ClassVar[bool] = False
    AUTO_FOCUS: ClassVar[str | None] = "Table, Document"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "BINDINGS" not in cls.__dict__:
            cls.BINDINGS = bindings_of(*cls.SCOPES, *cls.OLD_SCOPES)
        super().__init_subclass__(**kwargs)

    def __init__(self) -> None:
        super().__init__()
        self._ready = False
        self._message = self._error = ""
        self._banner: StaticLines | None = None

    @property
    def context(self) -> AppContext:
        """The application, as screens use it."""
        return cast(AppContext, self.app)

    @property
    def ascii(self) -> bool:
        """Only characters below 0x80 may be drawn."""
        return self.context.options.ascii

    @property
    def this_year(self) -> int | None:
        """The year of the snapshot, which times leave out."""
        snapshot = self.context.snapshot
        return None if snapshot is None else formatting.year_of(snapshot.status.as_of)

    def show(self, snapshot: Snapshot | None) -> None:
        """Show a new snapshot; None before the first."""
        raise NotImplementedError

    def on_mount(self) -> None:
        # Before the first layout: painting an empty screen first would flicker, and cost
        # its bytes twice.
        self._ready = True
        self._refresh_if_mounted()

    def on_unmount(self) -> None:
        release_styles()

    def on_screen_resume(self) -> None:
        self._refresh_if_mounted()

    def on_resize(self) -> None:
        self._refresh_if_mounted()

    def _refresh_if_mounted(self) -> None:
        """Refresh, if the screen is mounted."""
        if self._ready and self.is_attached:
            self.refresh_view()

    def refresh_view(self) -> None:
        """Refresh the banner, the current snapshot and the footer."""
        self.show_banner()
        try:
            self.show(self.context.snapshot)
        except Exception as error:
            # The last content stays, keys work, and the next snapshot is tried again.
            self._error = describe_error("this screen failed and is tried again", error)
            self.context.record_error(error)
            self.show_banner()
        else:
            if self._error:
                self._error = ""
                self.show_banner()
        self.update_footer()

    def footer_labels(self) -> Mapping[str, str]:
        """Footer labels, by action name, that currently differ from the registry."""
        travel = self.context.time_travel
        in_past = travel.active or travel.error is not None
        return {"back": BACK_TO_NOW} if self.SHOWS_ENSEMBLE and in_past else {}

    def update_footer(self) -> None:
        """Update the footer to what the keys currently do."""
        for footer in self.query(KeyFooter):
            footer.show_tabs(self.tab_lines > 0)
            footer.set_labels(self.footer_labels())

    @property
    def tab_lines(self) -> int:
        """The height of the tab bar: 0 where it is not shown."""
        return int(self.SHOWS_ENSEMBLE and self.app.size.height >= TAB_HEIGHT)

    def show_banner(self) -> None:
        """Show or hide the first line: an error, or which past moment is shown.

        The widget is created when it is first needed.
        """
        width = self.app.size.width
        returns = self.footer_labels().get("back") == BACK_TO_NOW
        content = self.context.time_travel.banner(width, returns) if self.SHOWS_ENSEMBLE else ()
        error = self._error or self.context.error_banner
        snapshot = self.context.snapshot
        if snapshot is not None and not content and self.SHOWS_ENSEMBLE and not self.HAS_HEADER:
            error = error or snapshot.error or ""
        if error:
            content = line(" ", (plain(error, max(width - 2, 1)), ALARM))
        if self._banner is None and content:
            self._banner = StaticLines(id="when")
            self.mount(self._banner, before=0)
        if self._banner is not None:
            self._banner.display = bool(content)
            if content:
                self._banner.show([content])

    def on_document_scrolled(self) -> None:
        self._refresh_if_mounted()

    def show_message(self, message: str) -> None:
        """Show a message on the note line, until the cursor moves."""
        self._message = message
        self._refresh_if_mounted()

    def messages(self) -> list[Line]:
        """Messages at the start of the note line."""
        error = self.context.stats.error
        messages = [message for message in (self._message, error) if message]
        return [line(plain(message, 200)) for message in messages]

    def refusals(self) -> Mapping[str, str]:
        """Reasons, by action name, of actions that are currently not possible."""
        return {}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action may run: with ``read_only``, none that changes something."""
        return not (self.context.options.read_only and action in READ_ONLY_REFUSED)

    def key_footer(self) -> KeyFooter:
        """The footer of this screen."""
        scopes = (*self.SCOPES, "everywhere")
        return KeyFooter(scopes, self.OWN_ACTIONS)

    def show_head(self, lines: Sequence[Line]) -> None:
        """Show the lines above the table or the text."""
        self.query_one("#head", StaticLines).show(lines)

    def show_note(self, lines: Sequence[Line]) -> None:
        """Show these lines below the content."""
        self.query_one("#note", StaticLines).show(lines)

    def show_document_note(self, document: Document, below: Sequence[Line] = ()) -> None:
        """Show the rule below a text, with messages and the number of lines below the view."""
        notes = [*self.messages(), *hidden_below(document.lines_below)]
        self.show_note([rule(notes, self.app.size.width), *below])

    def action_back(self) -> None:
        self.context.go_back()

    def close(self) -> None:
        """Return to the previous screen."""
        if self.SHOWS_ENSEMBLE:
            self.context.pop_screen()
        else:
            self.action_back()


class DocumentScreen(SnapshotScreen):
    """A screen with a head and one text."""

    SCOPES: ClassVar[tuple[str, ...]] = ("below",)

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield from self.compose_input()
        yield Document()
        yield StaticLines(id="note")
        yield self.key_footer()

    def compose_input(self) -> ComposeResult:
        """The widgets between head and text; by default none."""
        yield from ()

    def show_document(
        self, head: Sequence[Line], lines: Sequence[Line], below: Sequence[Line] = ()
    ) -> None:
        """Show a head and a text, and the lines ``below`` under the rule."""
        document = self.query_one(Document)
        self.show_head(head)
        document.show(lines)
        self.show_document_note(document, below)


class Prompt(FaultTolerant, Input):
    """A one-line input. Its cursor does not blink: that would repaint an idle screen."""

    def __init__(self, *, id: str, hint: str) -> None:
        super().__init__(id=id, placeholder=hint, select_on_focus=False, compact=True)
        self.cursor_blink = False


class FilterPrompt(Prompt):
    """The filter prompt of a table.

    Enter and escape close it while the key is handled, not some messages later. Keys queued
    behind them (fast typing, one packet) go to the newly focused widget instead of the filter.
    """

    def __init__(self) -> None:
        super().__init__(id="prompt", hint="text in any column; ! before it: rows without it")
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


class ListScreen(SnapshotScreen):
    """A screen with one table whose filter, order and columns survive every refresh.

    ``ORDERS`` are the criteria that the sort key goes through, by name; None: as given.
    """

    ORDERS: ClassVar[Sequence[tuple[str, Callable[[Any], tuple[Any, ...]] | None]]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.filter_text = ""
        self._columns_defined: Sequence[Column[Any]] = ()

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
    ) -> list[T]:
        """Show the rows that pass the filter, in the chosen order and columns; return them.

        ``key`` identifies a row, ``text`` is what the filter searches, in lower case. ``all_rows``
        are the rows to which columns are fitted, so that a choice among them does not move the
        columns. ``empty`` is shown if there are none of them, ``no_match`` if none is shown.
        ``cursor`` moves the cursor to this row. ``details`` are the lines below the note line for
        the row under the cursor. The others are those of :meth:`note_line`.
        """
        all_rows = rows if all_rows is None else all_rows
        columns = self.chosen_columns(columns)
        widths = fit_columns(columns, all_rows, self.app.size.width)
        shown = self.filter_rows(rows, text)
        keys = [key(row) for row in shown]
        if self.table.marks:
            self.table.keep_marks({key(row) for row in all_rows})
        if all_rows:
            clears = [line("  ", f"No {noun} has this text."), line("  ", ("esc clears", DIM))]
            empty = clears if no_match is None else no_match

        def build(index: int) -> TableRow:
            return TableRow(keys[index], partial(render_cells, columns, widths, shown[index]))

        table_rows = LazyRows(keys, [1] * len(keys), build)
        self.table.show(table_columns(columns, widths), table_rows, empty)
        if cursor is not None:
            self.table.select(cursor)
        index = self.table.index_of(self.table.cursor)
        note = self.note_line(len(shown), len(all_rows), extra, noun)
        self.show_note([note, *details(None if index is None else shown[index])])
        return shown

    def show_nothing(
        self, title: str, reason: str, text: Sequence[Line], noun: str = "run"
    ) -> None:
        """Show an empty table with this text, and the reason beside the title."""
        self.show_head([line(" ", (title, BOLD), "   ", (reason, DIM))])
        self.table.show([], [], text)
        self.show_note([self.note_line(0, 0, noun=noun)])

    def chosen_columns(self, columns: Sequence[Column[T]]) -> list[Column[T]]:
        """The columns that are not hidden; the first one always stays."""
        self._columns_defined = columns
        hidden = self.state.hidden
        return [column for i, column in enumerate(columns) if not i or column.name not in hidden]

    def action_columns(self) -> None:
        if self._columns_defined:
            columns = [(column.name, column.title) for column in self._columns_defined]
            self.app.push_screen(ColumnsScreen(columns, self.state), self._columns_chosen)
        else:
            self.show_message("this list has no columns to choose from")

    def _columns_chosen(self, state: ListState | None) -> None:
        if state is not None:
            self.context.list_states[type(self).__name__] = state
            self.context.save_list_states()
            self._refresh_if_mounted()

    # --- keys -----------------------------------------------------------------------------

    def footer_labels(self) -> Mapping[str, str]:
        if self.filter_text:
            return {"back": "clear filter"}
        return {"back": "clear marks"} if self.table.marks else super().footer_labels()

    def update_footer(self) -> None:
        """While a filter is typed, offer only the keys that end it."""
        if not isinstance(self.focused, FilterPrompt):
            super().update_footer()
            return
        for footer in self.query(KeyFooter):
            footer.set_labels({"open": "keep filter", "back": "clear filter"}, alone=True)

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
                return column.title, column_order(column)
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
        return [line((f"{len(marks)} marked", NOTE), (f"{hidden_text}, esc clears", DIM))]

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

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        event.stop()
        self._message = ""
        self._refresh_if_mounted()

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
        """Open the screen of this row."""
        raise NotImplementedError

    def action_back(self) -> None:
        if not self.clear_filter_or_marks():
            super().action_back()


def rule(parts: Sequence[Line], available: int) -> Line:
    """A horizontal rule with notes at its right end."""
    dash = "─"
    if not parts:
        return line((dash * available, DIM))
    notes = line(" ") + crop(join(parts, line("   ")), available - 6) + line(" ")
    return line((dash * (available - width(notes) - 2), DIM)) + notes + line((dash * 2, DIM))


def heading(title: str, width: int) -> Line:
    """A section heading followed by a rule."""
    dash = "─"
    return line((f" {title} ", DIM), (dash * max(0, width - cell_len(title) - 3), DIM))


def hidden_below(count: int, style: TextStyle = DIM) -> list[Line]:
    """The note on lines or rows below the view, if there are any."""
    return [line((f"↓ {count} more", style))] if count else []


def padded(lines: Sequence[Line], count: int) -> list[Line]:
    """These lines and blank ones, so that what is above keeps its height."""
    return [*lines, *[()] * (count - len(lines))]


def how_to(paragraphs: Sequence[str], available: int) -> list[Line]:
    """The text of an empty screen: what is missing, then how it is made."""
    lines = wrap(paragraphs[0], available - 2, BOLD, 2)
    for paragraph in paragraphs[1:]:
        lines += [(), *wrap(paragraph, available - 2, DIM, 2)]
    return lines
