"""A form with one field per line, in one widget with one cursor.

Textual's Input is one widget per field; forty of them, each with its own cursor, cost
kilobytes of output on every move.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.strip import Strip

from metlmon.text.formatting import Colour, plain
from metlmon.text.spans import BOLD, DIM, Line, TextStyle, crop_middle, fit, line
from screens.actions import actions_of, bindings_of, textual_key
from screens.widgets.line_widget import LineState, MovingWidget

MARGIN: Final = 2
GAP: Final = 2
TEXT_LIMIT: Final = 4096
"""Maximum length of a field in characters, that of a path."""

CURSOR: Final = TextStyle(Colour.SKY)

_BLANKS: Final = re.compile(r"( +)")
_OTHER_SPACE: Final = re.compile(r"[^\S ]")

_ACTION_BY_KEY: Final = {
    textual_key(key): action.name for action in actions_of(["form"]) for key in action.keys
}


class FormEntry(Struct, frozen=True):
    """One field, or a heading if ``name`` is None.

    ``note`` is shown beside it, ``hint`` in the field while it is empty. Left and right step
    through ``options``; ``options_only``: no other text can be typed. ``has_list``: enter opens a
    list of choices instead of moving to the next field.
    """

    name: str | None
    label: str
    text: str = ""
    unit: str = ""
    note: Line = ()
    hint: str = ""
    options: tuple[str, ...] = ()
    options_only: bool = False
    has_list: bool = False

    @property
    def has_option(self) -> bool:
        """Whether the text is one of the options."""
        return self.text in self.options


class FormView(MovingWidget):
    """The fields of a form, with one cursor.

    The first text typed into a field replaces its initial value; once the field was edited, or
    the caret moved in it, text is inserted at the caret. ``changed`` is called directly with a
    field's name and new text: with a message, another letter could arrive before the handler
    runs. ``lines_above``: those above the view. Page keys move ``page_target``, by default the
    cursor. Posts ``FormView.FieldHighlighted``.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("form")

    class FieldHighlighted(Message):
        """The cursor moved to another field, or the view was resized."""

    def __init__(self, changed: Callable[[str, str], None], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._changed = changed
        self.page_target: MovingWidget = self
        self._entries: Sequence[FormEntry] = ()
        self._value_width = 24
        self._cursor_index = 0
        self._caret = 0
        self.lines_above = 0
        self._edited: set[str] = set()

    # --- what is shown --------------------------------------------------------------------

    @property
    def cursor(self) -> str | None:
        """The name of the field under the cursor."""
        return self._entries[self._cursor_index].name if self._entries else None

    @property
    def lines_below(self) -> int:
        """Number of lines below the view."""
        return max(0, len(self._entries) - self.lines_above - self.size.height)

    def show(self, entries: Sequence[FormEntry], value: int) -> None:
        """Show these fields, values ``value`` cells wide; the cursor stays in its field."""
        previous = self._entries[self._cursor_index] if self._entries else None
        self._entries, self._value_width = entries, value
        names = [entry.name for entry in entries]
        if previous is None or previous.name not in names:
            self._cursor_index = min(self._cursor_index, len(entries) - 1)
            self._cursor_index = self._field_from(self._cursor_index, 1)
            self._caret = len(self._entry.text)
        else:
            self._cursor_index = names.index(previous.name)
            if self._entry.text != previous.text:
                self._caret = len(self._entry.text)
                self._edited.add(previous.name or "")  # chosen from a list
        self._keep_in_view()
        self.refresh_changed()

    def select(self, name: str) -> None:
        """Move the cursor to this field, if it exists."""
        index = next((i for i, entry in enumerate(self._entries) if entry.name == name), None)
        if index is not None:
            self._move_to(index)

    @property
    def _entry(self) -> FormEntry:
        return self._entries[self._cursor_index]

    def _field_from(self, start: int, step: int) -> int:
        """The nearest field from ``start`` in one direction, or else in the other."""
        for direction in (step, -step):
            index = start
            while 0 <= index < len(self._entries):
                if self._entries[index].name is not None:
                    return index
                index += direction
        return start

    def _keep_in_view(self) -> None:
        height = max(1, self.size.height)
        self.lines_above = max(self.lines_above, self._cursor_index - height + 1)
        # Keep the heading above the field in view.
        above = self._entries[max(0, self._cursor_index - 1)]
        head = self._cursor_index - (self._cursor_index > 0 and above.name is None)
        self.lines_above = min(self.lines_above, head if height > 1 else self._cursor_index)
        self.lines_above = max(0, min(self.lines_above, len(self._entries) - height))

    def on_resize(self) -> None:
        if self._entries:
            self._keep_in_view()
            self.refresh_changed()
            self.post_message(self.FieldHighlighted())

    # --- drawing --------------------------------------------------------------------------

    @property
    def _label_width(self) -> int:
        labels = (cell_len(each.label) for each in self._entries if each.name)
        return min(18, max(labels, default=0))

    def line_at(self, y: int) -> LineState:
        """A field, with its index and the caret in it."""
        index = self.lines_above + y
        if index >= len(self._entries):
            return (), False
        entry, focused = self._entries[index], index == self._cursor_index and self.has_focus
        if entry.name is None:
            return line(" ", (entry.label, DIM)), False
        mark = "▌" if index == self._cursor_index else " "
        content = line((mark, CURSOR if focused else DIM), " " * (MARGIN - 1))
        label = line((entry.label, BOLD if focused else TextStyle()))
        content += fit(label, self._label_width, "left") + line(" " * GAP)
        content += fit(self._render_value(entry, focused), self._value_width, "left")
        unit_width = max(cell_len(each.unit) for each in self._entries)
        unit = fit(line((entry.unit, DIM)), unit_width, "left")
        content += line(" ") + (unit + line("  ") if entry.unit else ()) + entry.note
        return content, False, index, self._caret if focused else None

    def _render_value(self, entry: FormEntry, focused: bool) -> Line:
        room = self._value_width - 2
        if entry.has_option:
            text = crop_middle(plain_with_blanks(entry.text), room - 4)
            return line((" ‹ ", DIM), text, (" › ", DIM))
        if not entry.text:
            return line(" ", (entry.hint, DIM))
        if not focused:
            return line(" ", crop_middle(plain_with_blanks(entry.text), room))
        start, _ = self._window(entry, room)
        # An initial value, which typing replaces, looks like a hint.
        style = TextStyle() if entry.name in self._edited else DIM
        return line(" ", (plain_with_blanks(entry.text[start:])[: room + 1], style))

    def _window(self, entry: FormEntry, room: int) -> tuple[int, int]:
        """The first character in view such that the caret is too, and the caret's cell."""
        start = 0
        while (caret := cell_len(plain_with_blanks(entry.text[start : self._caret]))) > room:
            start += max(1, (caret - room) // 2)
        return start, caret

    def render_state(self, y: int, state: LineState) -> Strip:
        strip = super().render_state(y, state)
        index = self.lines_above + y
        if index >= len(self._entries) or self._entries[index].name is None:
            return strip
        entry = self._entries[index]
        start = MARGIN + self._label_width + GAP
        strip = _restyle(strip, start, start + self._value_width, self._field_style)
        strip = strip.adjust_cell_length(self.size.width, self.base_style)
        if index == self._cursor_index and self.has_focus and not entry.has_option:
            caret = start + 1 + self._window(entry, self._value_width - 2)[1]
            strip = _restyle(strip, caret, caret + 1, Style(reverse=True))
        return strip

    @property
    def _field_style(self) -> Style:
        # Without background colours, underlining shows the extent of a field.
        background = self.palette.selection_background
        return Style(underline=True) if background is None else Style(bgcolor=background)

    # --- moving ---------------------------------------------------------------------------

    def _move_to(self, index: int) -> None:
        if index == self._cursor_index:
            return
        self._cursor_index = index
        self._caret = len(self._entry.text)
        self._keep_in_view()
        self.refresh_changed()
        self.post_message(self.FieldHighlighted())

    def move_by(self, lines: int) -> None:
        index = max(0, min(self._cursor_index + lines, len(self._entries) - 1))
        self._move_to(self._field_from(index, 1 if lines > 0 else -1))

    def _turn_page(self, pages: int) -> None:
        self.page_target.move_by(pages * self.page_target.page_size)

    action_page_up = partialmethod(_turn_page, -1)
    action_page_down = partialmethod(_turn_page, 1)

    def on_click(self, event: events.Click) -> None:
        index = self.lines_above + event.y
        if index < len(self._entries) and self._entries[index].name is not None:
            self._move_to(index)

    # --- typing ---------------------------------------------------------------------------

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Treat printable keys as text, whatever their bindings elsewhere."""
        return character is not None and character.isprintable()

    async def _on_key(self, event: events.Key) -> None:
        # A binding would run after the letters typed directly after it.
        if self.cursor is None:
            return
        name = _ACTION_BY_KEY.get(event.key)
        if event.key == "enter" and not self._entry.has_list:
            name = "down"
        if name is not None:
            getattr(self, f"action_{name}")()
        elif event.character is not None and event.is_printable:
            self._insert(event.character)
        else:
            return
        event.stop()
        event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        first_line = next(iter(event.text.splitlines()), "")
        printable = "".join(character for character in first_line if character.isprintable())
        if printable and self.cursor is not None:
            self._insert(printable)

    def _insert(self, text: str) -> None:
        entry = self._entry
        if entry.options_only:
            after = entry.options.index(entry.text) + 1 if entry.has_option else 0
            for option in (*entry.options[after:], *entry.options):
                if option.startswith(text.lower()):
                    self._replace(0, len(entry.text), option)
                    return
        elif entry.has_option or (entry.name not in self._edited and text.strip()):
            # Typing over an option or an initial value replaces it.
            self._replace(0, len(entry.text), text)
        else:
            self._replace(self._caret, self._caret, text)

    def _replace(self, start: int, end: int, text: str) -> None:
        """Replace these characters, and put the caret after the new ones."""
        entry = self._entry
        caret, text = start + len(text), entry.text[:start] + text + entry.text[end:]
        if entry.name is None or len(text) > TEXT_LIMIT:
            return
        entries = list(self._entries)
        entries[self._cursor_index] = replace(entry, text=text)
        self._entries = entries
        self._place(caret)
        if text != entry.text:
            self._changed(entry.name, text)

    def _place(self, caret: int) -> None:
        """Move the caret; the field counts as edited from then on."""
        self._caret = max(0, min(caret, len(self._entry.text)))
        self._edited.add(self._entry.name or "")
        self.refresh_changed()

    def _step(self, delta: int) -> None:
        entry = self._entry
        if entry.has_option:
            index = (entry.options.index(entry.text) + delta) % len(entry.options)
            self._replace(0, len(entry.text), entry.options[index])
        else:
            self._place(self._caret + delta)

    def _erase(self, start: int, end: int) -> None:
        entry = self._entry
        if entry.has_option:
            start, end = 0, len(entry.text)
        if not entry.options_only and 0 <= start < end <= len(entry.text):
            self._replace(start, end, "")

    action_left = partialmethod(_step, -1)
    action_right = partialmethod(_step, 1)

    def action_start(self) -> None:
        self._place(0)

    def action_end(self) -> None:
        self._place(len(self._entry.text))

    def action_erase(self) -> None:
        self._erase(self._caret - 1, self._caret)

    def action_delete(self) -> None:
        self._erase(self._caret, self._caret + 1)

    def action_word(self) -> None:
        before = self._entry.text[: self._caret].rstrip(" ,/")
        self._erase(max(before.rfind(mark) for mark in " ,/") + 1, self._caret)

    def action_clear(self) -> None:
        self._erase(0, len(self._entry.text))


def _restyle(strip: Strip, start: int, end: int, style: Style) -> Strip:
    """The strip with another style on the cells from ``start`` to ``end``."""
    before, middle = strip.crop(0, start), strip.crop(start, end)
    middle = Strip(Segment.apply_style(middle, post_style=style), middle.cell_length)
    return Strip.join([before, middle, strip.crop(end, strip.cell_length)])


def plain_with_blanks(text: str) -> str:
    """One line of text as :func:`plain` shows it, but with all its blanks.

    Tabs are expanded to multiples of eight cells; other white space is shown as ``\\x0d``.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _OTHER_SPACE.sub(_escape, text.expandtabs(8))
    pieces = _BLANKS.split(text)
    return "".join(piece if piece.startswith(" ") else plain(piece, None) for piece in pieces)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
