"""The footer: the tab bar, and the keys of the most important available actions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

from textual import events

from metlmon.text.spans import BOLD, DIM, KEY, Line, crop, first_that_fits, join, line, width
from screens.actions import TABS, actions_of, title_of
from screens.widgets.line_widget import LineWidget

if TYPE_CHECKING:
    from screens.base.screens import SnapshotScreen

RELABELLED: Final = 10
"""Footer priority of a temporary label: that of the help, so that it stays on narrow screens."""

KEY_GAP: Final = "   "


class KeyFooter(LineWidget):
    """The footer of a screen: the keys of its scopes, with what they do now."""

    def __init__(self, scopes: Sequence[str]) -> None:
        super().__init__(id="keys")
        self._scopes = tuple(scopes)

    @property
    def _owner(self) -> SnapshotScreen:
        return cast("SnapshotScreen", self.screen)

    def update_lines(self) -> None:
        """Show what the keys do now, below the tab bar if there is room for it."""
        height = 1 + self._owner.tab_lines
        if self.styles.height is None or self.styles.height.value != height:
            self.styles.height = height
            self.reset_painted()
        else:
            self.refresh_changed()

    def line_at(self, y: int) -> tuple[Line, bool]:
        if y < self._owner.tab_lines:
            return tab_line(self.context.screen_name, self.size.width), False
        return line(" ") + key_line(list(self._shown()), self.size.width - 2), False

    async def on_click(self, event: events.Click) -> None:
        """Open the tab whose digit is at this position, or before it."""
        if event.y < self._owner.tab_lines:
            before = crop(tab_line(self.context.screen_name, self.size.width), event.x + 1)
            digits = [text for text, style in before if style == KEY]
            if digits:
                self.context.action_tab(int(digits[-1]))

    def _shown(self) -> Iterable[tuple[int, str, str]]:
        options = self.context.options
        actions = actions_of(self._scopes, options.read_only, self.context.keys)
        labels, hidden = self._owner.footer_labels(), self._owner.hidden_actions()
        own_back = any(action.name == "back" and action.footer for action in actions)
        for action in actions:
            if action.name in hidden or (own_back and action.name == "close"):
                continue
            label = labels.get(action.name)
            if label is not None:
                yield max(action.footer, RELABELLED), action.cap, label
            elif action.footer:
                yield action.footer, action.cap, action.label


def key_line(keys: Sequence[tuple[int, str, str]], cells: int) -> Line:
    """Key caps and labels that fit into ``cells``."""
    parts = [line((cap, KEY), " ", (label, DIM)) for _, cap, label in keys]
    needed = sum([width(part) + len(KEY_GAP) for part in parts]) - len(KEY_GAP)
    for index in sorted(range(len(keys)), key=lambda index: keys[index][0]):
        if needed <= cells:
            break
        needed -= width(parts[index]) + len(KEY_GAP)
        parts[index] = ()
    return join(parts, line(KEY_GAP))


def tab_line(current: str | None, cells: int) -> Line:
    """The tab bar: every tab with its digit, that of ``current`` in brackets."""
    active = next((i for i, names in enumerate(TABS) if current in names), None)

    def bar(gap: int, tabs: Sequence[Sequence[str]], blank: str = " ") -> Line:
        content: Line = ()
        for i in range(len(tabs) + 1):
            ends, begins = i - 1 == active, i == active
            marks = ("]" if ends else " ") + ("[" if begins else " ")
            content += line((marks if gap > 1 else marks.strip() or " ", DIM))
            if i < len(tabs):
                alone = begins and len(tabs[i]) == 1
                titles = (
                    line((title_of(name), BOLD if alone or name == current else DIM))
                    for name in tabs[i]
                )
                content += line((str(i + 1), KEY), blank if tabs[i] else "")
                content += join(titles, line(("·", DIM)))
        return content

    firsts = [names[:1] for names in TABS]
    one = [(current,) if i == active and current else names for i, names in enumerate(firsts)]
    short = [names if i == active else () for i, names in enumerate(firsts)]
    candidates = (bar(2, TABS), bar(1, TABS), bar(2, one), bar(1, one), bar(1, one, ""))
    return first_that_fits((*candidates, bar(1, firsts, ""), bar(1, short)), cells)
