"""The footer: the tab bar, and the keys of the most important available actions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from metlmon.text.spans import BOLD, DIM, KEY, Line, first_that_fits, join, line, width
from screens.actions import actions_of
from screens.base.registry import TABS, title_of
from screens.widgets.line_widget import LineWidget

HIDDEN_IN_MODALS: Final = frozenset({"palette"})
"""Actions that leave a modal screen, which offers its own keys instead."""

RELABELLED: Final = 10
"""Footer priority of a temporary label: that of the help, so that it stays on narrow screens."""


class KeyFooter(LineWidget):
    """The footer of a screen, from the action registry, without excluded actions."""

    def __init__(self, scopes: Sequence[str], hidden: Collection[str] = ()) -> None:
        super().__init__(id="keys")
        self._scopes = tuple(scopes)
        self._hidden = frozenset(hidden)
        self._labels: Mapping[str, str] = {}
        self._alone = False
        self._tabs = False

    def set_labels(self, labels: Mapping[str, str], alone: bool = False) -> None:
        """Set temporary labels by action name. ``alone``: hide all other keys."""
        if (self._labels, self._alone) != (labels, alone):
            self._labels, self._alone = labels, alone
            self.refresh_changed()

    def show_tabs(self, shown: bool) -> None:
        """Show or hide the tab bar above the keys."""
        if self._tabs != shown:
            self._tabs = shown
            self.styles.height = 1 + shown
            self.reset_painted()

    def hide_actions(self, names: Collection[str]) -> None:
        """Hide these actions, which would do nothing here, and show all others."""
        if self._hidden != frozenset(names):
            self._hidden = frozenset(names)
            self.refresh_changed()

    def line_at(self, y: int) -> tuple[Line, bool]:
        if self._tabs and y == 0:
            return tab_line(self.context.screen_name, self.size.width), False
        return line(" ") + key_line(list(self._shown()), self.size.width - 2), False

    def _shown(self) -> Iterable[tuple[int, str, str]]:
        options = self.context.options
        actions = actions_of(self._scopes, options.read_only, self.context.keys)
        own_back = any(action.name == "back" and action.footer for action in actions)
        for action in actions:
            if own_back and action.name == "close":
                continue
            label = self._labels.get(action.name)
            if label is not None:
                yield max(action.footer, RELABELLED), action.cap, label
            elif action.footer and action.name not in self._hidden and not self._alone:
                yield action.footer, action.cap, action.label


def key_line(keys: Sequence[tuple[int, str, str]], cells: int) -> Line:
    """Key caps and labels that fit into ``cells``.

    ``keys``: priority, cap and label; the least important are dropped first.
    """
    shown = list(keys)
    while True:
        parts = (line((cap, KEY), " ", (label, DIM)) for _, cap, label in shown)
        content = join(parts, line("   "))
        if width(content) <= cells or not shown:
            return content
        shown.remove(min(shown, key=lambda key: key[0]))


def tab_line(current: str | None, cells: int) -> Line:
    """The tab bar: every tab with its digit, that of ``current`` in brackets."""
    active = next((i for i, names in enumerate(TABS) if current in names), -1)

    def bar(gap: int, titles: Sequence[str]) -> Line:
        content: Line = ()
        for i in range(len(titles) + 1):
            ends, begins = i - 1 == active, i == active
            marks = ("]" if ends else " ") + ("[" if begins else " ")
            content += line((marks if gap > 1 else marks.strip() or " ", DIM))
            if i < len(titles):
                style = BOLD if begins else DIM
                content += line((str(i + 1), KEY), (f" {titles[i]}" if titles[i] else "", style))
        return content

    titles = [title_of(names[0]) for names in TABS]
    full = [title_of(current) if i == active and current else t for i, t in enumerate(titles)]
    short = [title if i == active else "" for i, title in enumerate(titles)]
    candidates = (bar(2, full), bar(1, full), bar(1, titles), bar(1, short))
    return first_that_fits(candidates, cells)
