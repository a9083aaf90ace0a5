"""A form: one field to a line, all of them open for typing, painted by the cell.

Textual's Input is a widget for each field; forty of them, each with its own cursor, cost
kilobytes on every move. This is one canvas with one cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.strip import Strip

from metlmon.frozen import frozen
from metlmon.text.formatting import Colour
from screens.actions import actions_of, bindings_of
from screens.base.sanitize import exact
from screens.widgets.line_widget import LineWidget, Told
from screens.widgets.spans import BOLD, DIM, Line, TextStyle, both_ends, fit, line

MARGIN: Final = 2
GAP: Final = 2
LONGEST: Final = 4096
"""Characters in a field: a path has at most as many."""

CURSOR: Final = TextStyle(Colour.SKY)

_NAMES: Final = {key: action.name for action in actions_of(["form"]) for key in action.keys}


@frozen
class FormEntry:
    """One field as it is drawn; ``name`` None: a heading. ``note`` stands beside it.
    ``options`` are stepped through with left and right; ``closed``: nothing else can be
    typed. ``hint`` stands in the field while it is empty. ``listed``: enter is not for the
    form, which goes on to the next field, but for a list of what could be chosen."""

    name: str | None
    label: str
    text: str = ""
    unit: str = ""
    note: Line = ()
    hint: str = ""
    options: tuple[str, ...] = ()
    closed: bool = False
    listed: bool = False

    @property
    def chosen(self) -> bool:
        """It stands at one of its options."""
        return self.text in self.options


class FormView(LineWidget, can_focus=True):
    """Fields under one cursor. What is typed first into a field replaces the value that it came
    with; once that was edited, or the caret moved in it, it goes where the caret is. ``changed``
    is told a field's name and its new text, at once: between a message and its answer another
    letter may come. ``FormView.Moved`` tells where the cursor is, ``FormView.Paged`` a page up or
    down."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("form")

    class Moved(Message):
        """The cursor is in another field, or other fields are in view."""

    class Paged(Message):
        """A page up (-1) or down (1)."""

        def __init__(self, by: int) -> None:
            super().__init__()
            self.by = by

    def __init__(self, changed: Callable[[str, str], None], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._changed = changed
        self._entries: Sequence[FormEntry] = ()
        self._value = 24
        self._at = 0
        self._caret = 0
        self._top = 0
        self._edited: set[str] = set()

    # --- what is shown --------------------------------------------------------------------

    @property
    def cursor(self) -> str | None:
        """Name of the field under the cursor."""
        return self._entries[self._at].name if self._entries else None

    @property
    def above(self) -> int:
        """How many lines lie above what is in view."""
        return self._top

    @property
    def below(self) -> int:
        """How many lines lie below what is in view."""
        return max(0, len(self._entries) - self._top - self.size.height)

    def show(self, entries: Sequence[FormEntry], value: int) -> None:
        """Show these fields, each value ``value`` cells wide. The cursor stays in its field."""
        before = self._entries[self._at] if self._entries else None
        self._entries, self._value = entries, value
        names = [each.name for each in entries]
        if before is None or before.name not in names:
            self._at = min(self._at, len(entries) - 1)
            self._at = self._field_from(self._at, 1)
            self._caret = len(self._entry.text)
        else:
            self._at = names.index(before.name)
            if self._entry.text != before.text:
                self._caret = len(self._entry.text)
                self._edited.add(before.name or "")  # chosen from a list
        self._keep_in_view()
        self.repaint()

    def select(self, name: str) -> None:
        """Put the cursor into this field, if it is there."""
        at = next((i for i, each in enumerate(self._entries) if each.name == name), None)
        if at is not None:
            self._go(at)

    @property
    def _entry(self) -> FormEntry:
        return self._entries[self._at]

    def _field_from(self, at: int, step: int) -> int:
        """The first field from ``at`` on, in one direction; the other one at an end."""
        for way in (step, -step):
            i = at
            while 0 <= i < len(self._entries):
                if self._entries[i].name is not None:
                    return i
                i += way
        return at

    def _keep_in_view(self) -> None:
        height = max(1, self.size.height)
        self._top = max(self._top, self._at - height + 1)
        # A heading goes along with the field below it.
        head = self._at - (self._at > 0 and self._entries[self._at - 1].name is None)
        self._top = min(self._top, head if height > 1 else self._at)
        self._top = max(0, min(self._top, len(self._entries) - height))

    def on_resize(self) -> None:
        if self._entries:
            self._keep_in_view()
            self.repaint()
            self.post_message(self.Moved())

    def on_focus(self) -> None:
        self.repaint()

    def on_blur(self) -> None:
        self.repaint()

    # --- drawing --------------------------------------------------------------------------

    @property
    def _label(self) -> int:
        return min(18, max((cell_len(e.label) for e in self._entries if e.name), default=0))

    @property
    def _unit(self) -> int:
        return max((cell_len(each.unit) for each in self._entries), default=0)

    def line_at(self, y: int) -> tuple[Line, bool]:
        at = self._top + y
        if at >= len(self._entries):
            return (), False
        entry, here = self._entries[at], at == self._at and self.has_focus
        if entry.name is None:
            return line(" ", (entry.label, DIM)), False
        mark = (">" if self.ascii else "▌") if at == self._at else " "
        made = line((mark, CURSOR if here else DIM), " " * (MARGIN - 1))
        made += fit(
            line((entry.label, BOLD if here else TextStyle())), self._label, "left", self.ascii
        )
        made += line(" " * GAP) + fit(self._shown(entry, here), self._value, "left", self.ascii)
        unit = fit(line((entry.unit, DIM)), self._unit, "left", self.ascii)
        return made + line(" ") + (unit + line("  ") if entry.unit else ()) + entry.note, False

    def _shown(self, entry: FormEntry, here: bool) -> Line:
        room = self._value - 2
        if entry.chosen:
            left, right = ("<", ">") if self.ascii else ("‹", "›")
            text = both_ends(exact(entry.text, self.ascii), room - 4, self.ascii)
            return line((f" {left} ", DIM), text, (f" {right} ", DIM))
        if not entry.text:
            return line(" ", (entry.hint, DIM))
        if not here:
            return line(" ", both_ends(exact(entry.text, self.ascii), room, self.ascii))
        start, _ = self._window(entry, room)
        # Like a hint, a value that typing will replace.
        ink = TextStyle() if entry.name in self._edited else DIM
        return line(" ", (exact(entry.text[start:], self.ascii)[: room + 1], ink))

    def _window(self, entry: FormEntry, room: int) -> tuple[int, int]:
        """The first character in view, so that the caret is; and the caret's cell."""
        start = 0
        while (at := cell_len(exact(entry.text[start : self._caret], self.ascii))) > room:
            start += max(1, (at - room) // 2)
        return start, at

    def told_at(self, y: int) -> Told:
        at = self._top + y
        return *self.line_at(y), at, at == self._at and self.has_focus and self._caret

    def strip_of(self, y: int, told: Told) -> Strip:
        strip = super().strip_of(y, told)
        at = self._top + y
        if at >= len(self._entries) or self._entries[at].name is None:
            return strip
        entry = self._entries[at]
        start = MARGIN + self._label + GAP
        pieces = [
            strip.crop(0, start),
            _under(strip.crop(start, start + self._value), self._field_ground),
            strip.crop(start + self._value, self.size.width),
        ]
        strip = Strip.join(pieces).adjust_cell_length(self.size.width, self.base)
        if at == self._at and self.has_focus and not entry.chosen:
            caret = start + 1 + self._window(entry, self._value - 2)[1]
            under = _under(strip.crop(caret, caret + 1), Style(reverse=True))
            after = strip.crop(caret + 1, self.size.width)
            strip = Strip.join([strip.crop(0, caret), under, after])
        return strip

    @property
    def _field_ground(self) -> Style:
        # Where there are no shades a line tells how far a field goes.
        panel = self.shades.selection
        return Style(underline=True) if panel is None else Style(bgcolor=panel)

    # --- moving ---------------------------------------------------------------------------

    def _go(self, at: int) -> None:
        if at == self._at:
            return
        self._at = at
        self._caret = len(self._entry.text)
        self._keep_in_view()
        self.repaint()
        self.post_message(self.Moved())

    def page(self, by: int) -> None:
        """A page of fields up (-1) or down (1)."""
        at = self._at + by * max(1, self.size.height - 1)
        self._go(self._field_from(max(0, min(at, len(self._entries) - 1)), by))

    def action_up(self) -> None:
        self._go(self._field_from(max(0, self._at - 1), -1))

    def action_down(self) -> None:
        self._go(self._field_from(min(self._at + 1, len(self._entries) - 1), 1))

    def action_page_up(self) -> None:
        self.post_message(self.Paged(-1))

    def action_page_down(self) -> None:
        self.post_message(self.Paged(1))

    def on_click(self, event: events.Click) -> None:
        at = self._top + event.y
        if at < len(self._entries) and self._entries[at].name is not None:
            self._go(at)

    # --- typing ---------------------------------------------------------------------------

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Letters are letters here, whatever they do elsewhere."""
        return character is not None and character.isprintable()

    async def _on_key(self, event: events.Key) -> None:
        """All keys of the form, in the order they come: a binding would be performed after
        the letters that are typed right behind it."""
        if self.cursor is None:
            return
        name = _NAMES.get(event.key)
        if event.key == "enter" and not self._entry.listed:
            name = "down"
        if name is not None:
            getattr(self, f"action_{name}")()
        elif event.character is not None and event.is_printable:
            self._type(event.character)
        else:
            return
        event.stop()
        event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        first = next(iter(event.text.splitlines()), "")
        kept = "".join(each for each in first if each.isprintable())
        if kept and self.cursor is not None:
            self._type(kept)

    def _type(self, text: str) -> None:
        entry = self._entry
        if entry.closed:
            later = entry.options[entry.options.index(entry.text) + 1 :] if entry.chosen else ()
            fitting = [e for e in (*later, *entry.options) if e.startswith(text.lower())]
            if fitting:
                self._put(fitting[0], len(fitting[0]))
        elif entry.chosen or (entry.name not in self._edited and text.strip()):
            # Whoever begins to type where an option or a default stands, wants something else.
            self._put(text, len(text))
        else:
            at = self._caret
            self._put(entry.text[:at] + text + entry.text[at:], at + len(text))

    def _put(self, text: str, caret: int) -> None:
        entry = self._entry
        if entry.name is None or len(text) > LONGEST:
            return
        self._caret = max(0, min(caret, len(text)))
        self._edited.add(entry.name)
        entries = list(self._entries)
        entries[self._at] = replace(entry, text=text)
        self._entries = entries
        self.repaint()
        if text != entry.text:
            self._changed(entry.name, text)

    def _step(self, by: int) -> None:
        entry = self._entry
        if entry.chosen:
            at = (entry.options.index(entry.text) + by) % len(entry.options)
            self._put(entry.options[at], len(entry.options[at]))
        else:
            self._put(entry.text, self._caret + by)

    def action_left(self) -> None:
        self._step(-1)

    def action_right(self) -> None:
        self._step(1)

    def action_start(self) -> None:
        self._put(self._entry.text, 0)

    def action_end(self) -> None:
        self._put(self._entry.text, len(self._entry.text))

    def action_erase(self) -> None:
        self._cut(self._caret - 1, self._caret)

    def action_delete(self) -> None:
        self._cut(self._caret, self._caret + 1)

    def action_word(self) -> None:
        before = self._entry.text[: self._caret].rstrip(" ,/")
        at = max(before.rfind(each) for each in " ,/") + 1
        self._cut(at, self._caret)

    def action_clear(self) -> None:
        self._cut(0, len(self._entry.text))

    def _cut(self, start: int, end: int) -> None:
        entry = self._entry
        if entry.closed:
            return
        if entry.chosen:
            start, end = 0, len(entry.text)
        if 0 <= start < end <= len(entry.text):
            self._put(entry.text[:start] + entry.text[end:], start)


def _under(strip: Strip, style: Style) -> Strip:
    return Strip(Segment.apply_style(strip, post_style=style), strip.cell_length)
