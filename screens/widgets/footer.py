"""The footer: keys and labels of the most important available actions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from metlmon.text.spans import DIM, KEY, Line, join, line, width
from screens.actions import SCREEN_ACTIONS, Action, actions_of
from screens.widgets.line_widget import LineWidget

HIDDEN_IN_MODALS: Final = SCREEN_ACTIONS | {"palette"}
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

    def set_labels(self, labels: Mapping[str, str], alone: bool = False) -> None:
        """Set temporary labels by action name. ``alone``: hide all other keys."""
        if (self._labels, self._alone) != (labels, alone):
            self._labels, self._alone = labels, alone
            self.refresh_changed()

    def hide_actions(self, names: Collection[str]) -> None:
        """Hide these actions, which would do nothing here, and show all others."""
        if self._hidden != frozenset(names):
            self._hidden = frozenset(names)
            self.refresh_changed()

    def line_at(self, y: int) -> tuple[Line, bool]:
        return line(" ") + key_line(list(self._shown()), self.size.width - 2), False

    def _shown(self) -> Iterable[Action]:
        for action in actions_of(self._scopes, self.context.options.read_only):
            label = self._labels.get(action.name)
            if label is not None:
                yield replace(action, label=label, footer=max(action.footer, RELABELLED))
            elif action.footer and action.name not in self._hidden and not self._alone:
                yield action


def key_line(actions: Sequence[Action], cells: int) -> Line:
    """Keys and labels that fit into ``cells``; the least important are dropped first."""
    shown = list(actions)
    while True:
        content = join((_key(action) for action in shown), line("   "))
        if width(content) <= cells or not shown:
            return content
        shown.remove(min(shown, key=lambda action: action.footer))


def _key(action: Action) -> Line:
    return line((action.key_cap, KEY), " ", (action.label, DIM))
