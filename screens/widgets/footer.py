"""The last line: what can be done here. Two actions' room is left to what matters most."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from screens.actions import Action, actions_of
from screens.widgets.line_widget import LineWidget
from screens.widgets.spans import DIM, KEY, Line, joined, line, width

ELSEWHERE: Final = frozenset(
    {"problems", "timeline", "sites", "curves", "estimates", "incidents", "inputs", "palette"}
    | {"nodes", "grid", "bag"}
)
"""Ways to other screens. A screen that asks something offers its answers, not these."""


RELABELLED: Final = 10
"""What a key does only at the moment stays in a narrow footer as long as the way to the help."""


class KeyFooter(LineWidget):
    """The footer of a screen, from the action registry, without the actions of these names."""

    def __init__(self, scopes: Sequence[str], without: Collection[str] = ()) -> None:
        super().__init__(id="keys")
        self._scopes = tuple(scopes)
        self._without = frozenset(without)
        self._labels: Mapping[str, str] = {}
        self._alone = False

    def relabel(self, labels: Mapping[str, str], alone: bool = False) -> None:
        """What some actions, by name, do at the moment. ``alone``: no other key does anything."""
        if (self._labels, self._alone) != (labels, alone):
            self._labels, self._alone = labels, alone
            self.repaint()

    def leave_out(self, names: Collection[str]) -> None:
        """Offer all but these from now on: they would do nothing here."""
        if self._without != frozenset(names):
            self._without = frozenset(names)
            self.repaint()

    def line_at(self, y: int) -> tuple[Line, bool]:
        return line(" ") + key_line(list(self._shown()), self.size.width - 2), False

    def _shown(self) -> Iterable[Action]:
        for action in actions_of(self._scopes, self.monitor.options.read_only):
            label = self._labels.get(action.name)
            if label is not None:
                yield replace(action, label=label, footer=max(action.footer, RELABELLED))
            elif action.footer and action.name not in self._without and not self._alone:
                yield action


def key_line(actions: Sequence[Action], cells: int) -> Line:
    """Keys and labels that fit into so many cells: the least important go first."""
    kept = list(actions)
    while True:
        made = joined((_key(action) for action in kept), line("   "))
        if width(made) <= cells or not kept:
            return made
        kept.remove(min(kept, key=lambda action: action.footer))


def _key(action: Action) -> Line:
    return line((action.shown, KEY), " ", (action.label, DIM))
