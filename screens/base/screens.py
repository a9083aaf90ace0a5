"""What all screens share: they are shown a picture, and show it; lists filter and sort."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Input

from metlmon.error_text import describe_error
from metlmon.live.feed import Snapshot
from metlmon.text.formatting import plain
from screens.actions import READ_ONLY_FORBIDS
from screens.base.fault_tolerant import FaultTolerant
from screens.terminal.driver import release_styles
from screens.widgets.footer import KeyFooter
from screens.widgets.lines import StaticLines
from screens.widgets.spans import ALARM, DIM, NOTE, Line, crop, joined, line, width
from screens.widgets.table import Table

if TYPE_CHECKING:
    from screens.app import MetlmonApp

T = TypeVar("T")


NOW: Final = "now"
"""The label of the key that returns to the present."""


class SnapshotScreen(FaultTolerant, Screen[None]):
    """A screen that shows pictures. ``SCOPES`` are the scopes of its actions;
    ``HELPS``, where they are others, those that the help begins with. ``IN_TIME``: it shows the
    ensemble, of now or as it was; one that asks or explains something does not. ``HAS_HEAD``: what
    is wrong with the files stands in a head of its own; elsewhere it is the first line."""

    SCOPES: ClassVar[tuple[str, ...]] = ()
    HELPS: ClassVar[tuple[str, ...]] = ()
    IN_TIME: ClassVar[bool] = True
    HAS_HEAD: ClassVar[bool] = False
    AUTO_FOCUS: ClassVar[str | None] = "Table, Document"

    def __init__(self) -> None:
        super().__init__()
        self._ready = False
        self._said = self._failed = ""
        self._when: StaticLines | None = None

    @property
    def monitor(self) -> MetlmonApp:
        """The application, typed."""
        return cast("MetlmonApp", self.app)

    @property
    def ascii(self) -> bool:
        """Only characters below 0x80 may be drawn."""
        return self.monitor.options.ascii

    def show(self, update: Snapshot | None) -> None:
        """Show a new picture; None before the first."""
        raise NotImplementedError

    def on_mount(self) -> None:
        # Before the first layout: a screen that is painted empty first flickers, and costs
        # its bytes twice.
        self._ready = True
        self._again()

    def on_unmount(self) -> None:
        release_styles()

    def on_screen_resume(self) -> None:
        self._again()

    def on_resize(self) -> None:
        self._again()

    def _again(self) -> None:
        if self._ready and self.is_attached:
            self.again()

    def again(self) -> None:
        """Show the picture that is to be shown now, and of what time it is."""
        self.tell_first()
        try:
            self.show(self.monitor.picture)
        except Exception as error:
            # What is on the screen stays; keys work, and the next picture is tried again.
            self._failed = describe_error("this screen failed and is tried again", error)
            self.monitor.noticed(error)
            self.tell_first()
        else:
            if self._failed:
                self._failed = ""
                self.tell_first()

        self.tell_keys()

    def labels(self) -> Mapping[str, str]:
        """Names of actions that do something else now than the registry says, and what."""
        travel = self.monitor.travel
        away = travel.away or travel.error is not None
        return {"back": NOW} if self.IN_TIME and away else {}

    def tell_keys(self) -> None:
        """Say in the footer what keys do at the moment."""
        for keys in self.query(KeyFooter):
            keys.relabel(self.labels())

    def tell_first(self) -> None:
        """What stands above all else, in a line made when there is something: what failed, or
        of what time the picture is."""
        cells = self.app.size.width
        returns = self.labels().get("back") == NOW
        told = self.monitor.travel.banner(cells, self.ascii, returns) if self.IN_TIME else ()
        failed = self._failed or self.monitor.mishap
        picture = self.monitor.picture
        if picture is not None and not told and self.IN_TIME and not self.HAS_HEAD:
            failed = failed or picture.error or ""
        if failed:
            told = line(" ", (plain(failed, max(cells - 2, 1), self.ascii), ALARM))
        if self._when is None and told:
            self._when = StaticLines(id="when")
            self.mount(self._when, before=0)
        if self._when is not None:
            self._when.display = bool(told)
            if told:
                self._when.show([told])

    def on_document_scrolled(self) -> None:
        self._again()

    def say(self, what: str) -> None:
        """Tell this on the note line, until the cursor moves."""
        self._said = what
        self._again()

    def remarks(self) -> list[Line]:
        """What the note line has to say first."""
        failed = self.monitor.study.error
        told = [each for each in (self._said, failed) if each]
        return [line(plain(each, 200, self.ascii)) for each in told]

    def refusals(self) -> Mapping[str, str]:
        """Actions of this screen that cannot be done now, by name, and why."""
        return {}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """With ``read_only`` nothing that changes something is done, whoever asks for it."""
        return not (self.monitor.options.read_only and action in READ_ONLY_FORBIDS)

    def keys(self) -> KeyFooter:
        """The footer of this screen."""
        return KeyFooter((*self.SCOPES, "everywhere"))

    def action_back(self) -> None:
        self.monitor.go_back()


class Prompt(FaultTolerant, Input):
    """One line to type a filter into. Its cursor does not blink: that would repaint it for
    ever while nothing happens."""

    def __init__(self, *, id: str, hint: str) -> None:
        super().__init__(id=id, placeholder=hint, select_on_focus=False, compact=True)
        self.cursor_blink = False


class FilterPrompt(Prompt):
    """The prompt of a list. It is left when its key is read, not some messages later, and keys
    that came with that one (typed fast, or in one packet) go where the focus went: an act's
    key right behind enter is no letter of the filter."""

    def __init__(self) -> None:
        super().__init__(id="prompt", hint="text in any column; ! before it: rows without it")
        self._left = False

    def begin(self, text: str) -> None:
        """Take the focus. At once, not soon as focus() does: who types fast would lose the
        first letters."""
        self._left = False
        self.display = True
        self.value = text
        self.screen.set_focus(self)

    async def _on_key(self, event: events.Key) -> None:
        if not self._left and event.key not in ("enter", "escape"):
            return
        event.stop()
        event.prevent_default()
        if self._left:
            self.app.post_message(events.Key(event.key, event.character))
            return
        self._left = True
        if event.key == "escape":
            self.value = ""
        cast("ListScreen", self.screen).take_filter(self.value)


class ListScreen(SnapshotScreen):
    """A screen with one table that filters and sorts; both outlive every refresh."""

    ORDERS: ClassVar[Sequence[tuple[str, Callable[[Any], tuple[Any, ...]] | None]]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.wanted = ""
        self.order = 0
        self.reversed = False

    # --- parts ----------------------------------------------------------------------------

    def foot(self) -> ComposeResult:
        """Below the table: where one is in it, the prompt, the keys."""
        yield StaticLines(id="note")
        yield FilterPrompt()
        yield self.keys()

    @property
    def table(self) -> Table:
        return self.query_one(Table)

    # --- keys -----------------------------------------------------------------------------

    def labels(self) -> Mapping[str, str]:
        if self.wanted:
            return {"back": "clear filter"}
        return {"back": "clear marks"} if self.table.marks else super().labels()

    def tell_keys(self) -> None:
        """While one types a filter, letters are part of it."""
        if not isinstance(self.focused, FilterPrompt):
            super().tell_keys()
            return
        for keys in self.query(KeyFooter):
            keys.relabel({"open": "keep filter", "back": "clear filter"}, alone=True)

    # --- filter and order -----------------------------------------------------------------

    def kept(self, things: Iterable[T], text: Callable[[T], str]) -> list[T]:
        """What the filter lets pass, in the chosen order. ``text`` is what it looks in,
        lower case; a filter that starts with ``!`` keeps what does not have the text."""
        inverse = self.wanted.startswith("!")
        needle = self.wanted[inverse:].strip().lower()
        kept = [thing for thing in things if not needle or (needle in text(thing)) is not inverse]
        key = self.ORDERS[self.order][1] if self.ORDERS else None
        if key is not None:
            kept.sort(key=key)
        if self.reversed:
            kept.reverse()
        return kept

    def note(self, shown: int, total: int, more: Sequence[Line] = (), noun: str = "run") -> Line:
        """The rule below the table: what is filtered, how it is sorted, what lies outside."""
        ascii, cells = self.ascii, self.app.size.width
        parts = [*self.remarks(), *self._marked(), *more]
        if self.wanted:
            parts.append(line(("filter ", DIM), (plain(self.wanted, 30, ascii), NOTE)))
        if shown != total:
            parts.append(line((f"{shown} of {total} {noun}s", NOTE)))
        if self.ORDERS and (self.order or self.reversed):
            by = self.ORDERS[self.order][0]
            parts.append(line((f"by {by}{', reversed' if self.reversed else ''}", DIM)))
        above, below = self.table.above, self.table.below
        down, up = ("v", "^") if ascii else ("↓", "↑")
        outside = [f"{up} {above}"] * (above > 0) + [f"{down} {below} more"] * (below > 0)
        if outside:
            parts.append(line(("  ".join(outside), DIM)))
        return rule(parts, cells, ascii)

    def _marked(self) -> list[Line]:
        marks = self.table.marks
        if not marks:
            return []
        hidden = self.table.hidden_marks
        unseen = f", {hidden} of them not shown" if hidden else ""
        return [line((f"{len(marks)} marked", NOTE), (f"{unseen}, esc clears", DIM))]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While one types a filter, its key is a letter like any other."""
        if action == "filter" and isinstance(self.focused, Prompt):
            return False
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        self.query_one(FilterPrompt).begin(self.wanted)
        self.tell_keys()

    def take_filter(self, text: str) -> None:
        """Keep the rows with this text, and go on in the table."""
        self.wanted = text
        self.set_focus(self.table)
        self._again()

    @on(Input.Changed, "#prompt")
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.wanted = event.value
        self._again()

    @on(Input.Blurred, "#prompt")
    def _left(self, event: Input.Blurred) -> None:
        event.stop()
        self.query_one("#prompt", Prompt).display = False
        self.tell_keys()

    def action_sort(self) -> None:
        self.order = (self.order + 1) % max(1, len(self.ORDERS))
        self.reversed = False
        self._again()

    def action_reverse(self) -> None:
        self.reversed = not self.reversed
        self._again()

    def action_open(self) -> None:
        if self.table.cursor is not None:
            self.open(self.table.cursor)

    def on_table_opened(self, event: Table.Opened) -> None:
        event.stop()
        self.open(event.key)

    def on_table_moved(self, event: Table.Moved) -> None:
        event.stop()
        self._said = ""
        self._again()

    def action_mark(self) -> None:
        self.table.toggle_mark()
        self._again()

    def action_mark_all(self) -> None:
        self.table.toggle_all()
        self._again()

    def clear_first(self) -> bool:
        """Clear the filter, or else the marks; False when there was neither."""
        if self.wanted:
            self.wanted = ""
        elif self.table.marks:
            self.table.clear_marks()
        else:
            return False
        self._again()
        return True

    def open(self, key: str) -> None:
        """Go to what this row stands for."""
        raise NotImplementedError

    def action_back(self) -> None:
        if not self.clear_first():
            super().action_back()


def rule(parts: Sequence[Line], cells: int, ascii: bool) -> Line:
    """A line across the screen, with notes at its right end."""
    dash = "-" if ascii else "─"
    if not parts:
        return line((dash * cells, DIM))
    notes = line(" ") + crop(joined(parts, line("   ")), cells - 6, ascii) + line(" ")
    return line((dash * (cells - width(notes) - 2), DIM)) + notes + line((dash * 2, DIM))


def heading(title: str, cells: int, ascii: bool) -> Line:
    """A section's heading with a rule behind it."""
    dash = "-" if ascii else "─"
    return line((f" {title} ", DIM), (dash * max(0, cells - cell_len(title) - 3), DIM))
