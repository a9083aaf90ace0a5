"""Every key of the application, once: bindings, footer, palette and help come from here.

An action's ``name`` is the method ``action_<name>`` of the screen (or, for scope
``everywhere``, of the application; for ``moving``, of the list that has the focus).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from textual.binding import Binding, BindingType


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a person can do.

    ``keys`` are Textual's names of the keys, ``shown`` what the key cap says. ``footer``:
    0 for not in the footer, else the larger stays longer when the terminal is narrow.
    ``at_once``: taken before what has the focus sees the key, so that the keys right behind
    it (typed fast, or come together over a slow line) find what it opened.
    """

    scope: str
    name: str
    keys: tuple[str, ...]
    shown: str
    label: str
    help: str
    footer: int = 0
    at_once: bool = False


ACTIONS: Final[tuple[Action, ...]] = (
    Action("list", "open", ("enter",), "enter", "open", "Open what the cursor is on", 9),
    Action("below", "back", ("escape",), "esc", "back", "Clear the filter, then go back", 9),
    Action("overview", "back", ("escape",), "esc", "clear", "Clear the filter"),
    Action(
        "list",
        "filter",
        ("slash",),
        "/",
        "filter",
        "Show only rows with this text in any column; /! shows those without it",
        7,
        at_once=True,
    ),
    Action("list", "sort", ("s",), "s", "sort", "Sort by the next criterion", 6),
    Action("list", "reverse", ("S",), "S", "reverse", "Reverse the order"),
    Action(
        "overview",
        "faults",
        ("f",),
        "f",
        "faults",
        "Show only runs that need a person, or all again",
        5,
    ),
    Action(
        "overview",
        "new",
        ("n",),
        "n",
        "new",
        "Submit a new ensemble: choose, see every file first, then submit and watch it",
        3,
    ),
    Action("run", "chart", ("c",), "c", "chart", "Show or hide the chart", 3),
    Action(
        "job",
        "older",
        ("left_square_bracket",),
        "[",
        "older",
        "The job of this node that was submitted before",
        5,
    ),
    Action(
        "job",
        "newer",
        ("right_square_bracket",),
        "]",
        "newer job",
        "The job of this node that was submitted after",
        5,
    ),
    Action("job", "section", ("tab",), "tab", "section", "Jump to the next section", 6),
    Action("job", "owner", ("r",), "r", "run", "Open the run of this job", 4),
    Action("cause", "owner", ("r",), "r", "run", "Open the run of the job under the cursor", 6),
    Action(
        "everywhere",
        "problems",
        ("p",),
        "p",
        "problems",
        "What is held, failed, evicted or stalled, by cause",
        8,
    ),
    Action(
        "everywhere",
        "inputs",
        ("exclamation_mark", "i"),
        "!",
        "warnings",
        "DAGs, logs and their freshness, and every warning with its file and line",
        4,
    ),
    Action(
        "everywhere",
        "palette",
        ("colon", "ctrl+p"),
        ":",
        "palette",
        "Find an action by its name",
        2,
    ),
    Action("everywhere", "light", ("ctrl+t",), "^t", "light/dark", "Change between dark and light"),
    Action("everywhere", "help", ("question_mark",), "?", "help", "Keys and signs", 10),
    Action("everywhere", "leave", ("q", "ctrl+q"), "q", "quit", "Leave", 11),
    Action("everywhere", "interrupt", ("ctrl+c",), "^c", "interrupt", "Leave with exit status 130"),
    Action("moving", "up", ("up", "k"), "up k", "up", "One row up"),
    Action("moving", "down", ("down", "j"), "down j", "down", "One row down"),
    Action("moving", "page_up", ("pageup", "ctrl+b"), "pgup", "page up", "One page up"),
    Action("moving", "page_down", ("pagedown", "ctrl+f"), "pgdn", "page down", "One page down"),
    Action("moving", "first", ("home", "g"), "home g", "first", "To the first row"),
    Action("moving", "last", ("end", "G"), "end G", "last", "To the last row"),
)

SCOPES: Final[dict[str, str]] = {
    "everywhere": "Everywhere",
    "below": "Below the overview",
    "moving": "Moving",
    "list": "Lists",
    "overview": "Overview",
    "run": "Run",
    "job": "Job",
    "cause": "One problem",
}
"""Scopes in the order of the help screen, with their headings."""


def actions_of(scopes: Iterable[str]) -> list[Action]:
    """The actions of some scopes, in the registry's order."""
    wanted = frozenset(scopes)
    return [action for action in ACTIONS if action.scope in wanted]


def bindings_of(*scopes: str) -> list[BindingType]:
    """Textual's bindings for some scopes; each has an id, so that a key map can change it."""
    return [
        Binding(
            ",".join(action.keys),
            action.name,
            action.label,
            tooltip=action.help,
            priority=action.at_once,
            show=False,
            id=f"{action.scope}.{action.name}",
        )
        for action in actions_of(scopes)
    ]
