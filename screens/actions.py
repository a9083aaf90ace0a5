"""Registry of actions and keys: the source of bindings, footer, palette and help.

An action's ``name`` is the method ``action_<name>`` of the screen (or, for scope
``everywhere``, of the application; for ``moving``, of the widget that has the focus).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from textual.binding import Binding, BindingType


class Action(Struct, frozen=True):
    """An action of the user, with its keys and texts.

    ``keys`` are Textual's key names, ``key_cap`` is the key cap. ``footer``: priority in the
    footer, 0 for not shown; lower ones are dropped first on a narrow terminal. ``priority``: a
    priority binding, handled before the focused widget, so that keys queued behind it (fast
    typing, slow line) reach what it opened.
    """

    scope: str
    name: str
    keys: tuple[str, ...]
    key_cap: str
    label: str
    help: str
    footer: int = 0
    priority: bool = False


ACTIONS: Final[tuple[Action, ...]] = (
    Action("list", "open", ("enter",), "enter", "open", "Open what the cursor is on", 9),
    Action(
        "below",
        "back",
        ("escape",),
        "esc",
        "back",
        "Clear the filter, then the marks, then return to now, then go back",
        9,
    ),
    Action(
        "overview",
        "back",
        ("escape",),
        "esc",
        "clear",
        "Clear the filter, then the marks, then return to now",
    ),
    Action(
        "list",
        "filter",
        ("slash",),
        "/",
        "filter",
        "Show only rows with this text in any column; /! shows those without it",
        7,
        priority=True,
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
    Action("submit", "choose", ("enter",), "enter", "choose", "Choose from a list, or go on", 8),
    Action("submit", "preview", ("tab",), "tab", "preview", "See every file, or the form again", 9),
    Action(
        "submit", "submit", ("ctrl+s",), "^s", "submit", "Submit: all it does, then yes or no", 12
    ),
    Action("submit", "again", ("ctrl+r",), "^r", "ask again", "Ask schedd and collector again", 3),
    Action("submit", "back", ("escape",), "esc", "back", "Leave the form; n brings it back", 10),
    Action("typing", "palette", ("ctrl+p",), "^p", "palette", "Find an action by its name", 2),
    Action("typing", "help", ("f1",), "F1", "help", "Keys and signs", 7),
    Action("typing", "leave", ("ctrl+q",), "^q", "quit", "Leave", 6),
    Action("form", "up", ("up", "shift+tab"), "up", "up", "To the field above"),
    Action("form", "down", ("down",), "down", "down", "To the field below"),
    Action("form", "left", ("left",), "left", "left", "One character, or the option before"),
    Action("form", "right", ("right",), "right", "right", "One character, or the next option"),
    Action("form", "start", ("home", "ctrl+a"), "home", "start", "To the start of the field"),
    Action("form", "end", ("end", "ctrl+e"), "end", "end", "To the end of the field"),
    Action("form", "erase", ("backspace", "ctrl+h"), "bksp", "erase", "Erase what is before"),
    Action("form", "delete", ("delete", "ctrl+d"), "del", "delete", "Delete what is behind"),
    Action("form", "word", ("ctrl+w",), "^w", "word", "Erase a word"),
    Action("form", "clear", ("ctrl+u",), "^u", "clear", "Empty the field"),
    Action("form", "page_up", ("pageup",), "pgup", "page up", "Scroll the preview, or the form"),
    Action("form", "page_down", ("pagedown",), "pgdn", "page down", "Scroll the other way"),
    Action("preview", "next_part", ("n", "right_square_bracket"), "n", "next", "To the next file"),
    Action("launch", "launch", ("y",), "y", "yes, submit", "Write the files, submit the DAG", 16),
    Action("launch", "replace", ("R",), "R", "replace", "Yes, replace the files in the way", 15),
    Action("launch", "write", ("w",), "w", "write only", "Write the files, submit nothing", 14),
    Action("launch", "watch", ("enter",), "enter", "watch", "Watch what was submitted", 16),
    Action("launch", "back", ("escape", "n"), "esc", "back", "Back to the form", 13),
    Action(
        "timeline",
        "before",
        ("left", "h"),
        "left right",
        "in time",
        "The cursor one cell back; in the past all screens go along",
        6,
    ),
    Action("timeline", "after", ("right", "l"), "right", "later", "The cursor one cell on"),
    Action(
        "timeline", "far_before", ("shift+left",), "sh+left", "far back", "A tenth of the view back"
    ),
    Action(
        "timeline", "far_after", ("shift+right",), "sh+right", "far on", "A tenth of the view on"
    ),
    Action(
        "timeline", "change_before", ("comma",), ",", "change", "To the last change of this run"
    ),
    Action(
        "timeline", "change_after", ("full_stop",), ".", "change", "To the next change of this run"
    ),
    Action("timeline", "stall", ("z",), "z", "stall", "To the longest stretch without work", 4),
    Action(
        "timeline", "zoom_in", ("plus", "equals_sign"), "+ -", "zoom", "Closer, at the cursor", 9
    ),
    Action("timeline", "zoom_out", ("minus",), "-", "zoom out", "Further away"),
    Action("timeline", "whole", ("0",), "0", "all", "All of it from the first event to now", 3),
    Action(
        "timeline", "pan_left", ("left_parenthesis", "ctrl+left"), "(", "pan", "Half a view back"
    ),
    Action(
        "timeline", "pan_right", ("right_parenthesis", "ctrl+right"), ")", "pan", "Half a view on"
    ),
    Action(
        "timeline",
        "by",
        ("b",),
        "b",
        "by site",
        "Colours and textures by what came of it, or by site",
        9,
    ),
    Action("timeline", "units", ("u",), "u", "GPUs/jobs", "Count GPUs at a time, or jobs"),
    Action(
        "timeline",
        "view",
        ("v",),
        "v",
        "view then",
        "Show every screen as it was at the cursor, or now again",
        10,
    ),
    Action("run", "chart", ("b",), "b", "bars", "Show or hide the bars of execution times", 3),
    Action(
        "run",
        "evaluations",
        ("v",),
        "v",
        "evaluations",
        "Evaluations as rows of their own, or beside their epochs",
        3,
    ),
    Action(
        "run",
        "evaluation",
        ("o",),
        "o",
        "its evaluation",
        "Open the job of the evaluation that comes after the epoch",
        4,
    ),
    Action(
        "job",
        "older",
        ("left_square_bracket",),
        "[",
        "older",
        "The job of this node that was submitted before",
        8,
    ),
    Action(
        "job",
        "newer",
        ("right_square_bracket",),
        "]",
        "newer job",
        "The job of this node that was submitted after",
        8,
    ),
    Action("acting", "acts", ("a",), "a", "act", "All that can be done here, and why not", 8),
    Action("acting", "hold", ("H",), "H", "hold", "Hold jobs: they stop, and wait for R"),
    Action("acting", "release", ("R",), "R", "release", "Release held jobs into the queue"),
    Action("acting", "remove", ("X",), "X", "remove", "Remove jobs from the queue, for good"),
    Action("acting", "vacate", ("V",), "V", "vacate", "Vacate: off their machines, and idle again"),
    Action("acting", "priority", ("P",), "P", "priority", "Set the priority of jobs"),
    Action(
        "acting", "retarget", ("O",), "O", "retarget", "Send idle jobs to another site, right now"
    ),
    Action("acting", "halt", ("Z",), "Z", "halt/resume", "Halt the DAG, or resume it"),
    Action("acting", "remove_dag", ("D",), "D", "remove DAG", "Remove the DAG and all its jobs"),
    Action(
        "acting",
        "resubmit",
        ("U",),
        "U",
        "resubmit DAG",
        "Submit the DAG again, from its newest rescue file",
    ),
    Action("acting", "stop", ("T",), "T", "stop", "Stop runs after the epoch that is under way"),
    Action(
        "acting",
        "stop_now",
        ("K",),
        "K",
        "stop now",
        "Stop runs at once: what the epoch did since its last checkpoint is lost",
    ),
    Action("acting", "pause_run", ("W",), "W", "pause", "Let runs wait before their next epoch"),
    Action(
        "acting",
        "resume_run",
        ("C",),
        "C",
        "resume run",
        "Take back a pause, or a stop that no epoch has met yet",
    ),
    Action("acting", "send", ("E",), "E", "send", "Send the next epochs of runs to another site"),
    Action("acting", "answers", ("A",), "A", "answers", "What the schedd answered last, per job"),
    Action(
        "marking",
        "mark",
        ("space",),
        "space",
        "mark",
        "Mark the row, or unmark it: acts are for all marked rows",
        3,
    ),
    Action("marking", "mark_all", ("ctrl+a",), "^a", "mark all", "Mark all rows shown, or none"),
    Action("menu", "choose", ("enter",), "enter", "choose", "To the question that comes before", 9),
    Action("question", "confirm", ("y",), "y", "do it", "Yes, do exactly what is listed", 12),
    Action("question", "back", ("escape", "n"), "esc", "cancel", "No, touch nothing", 12),
    Action("job", "section", ("tab",), "tab", "section", "Jump to the next section", 6),
    Action("job", "owner", ("r",), "r", "run", "Open the run of this job", 4),
    Action("cause", "owner", ("r",), "r", "run", "Open the run of the job under the cursor", 6),
    Action("sites", "next_view", ("tab",), "tab", "view", "Sites, GPU models, both, causes", 8),
    Action("sites", "previous_view", ("shift+tab",), "sh+tab", "view before", "The view before"),
    Action(
        "executions",
        "kind",
        ("f",),
        "f",
        "only",
        "Show only goodput, badput, running or marked executions, or all again",
        6,
    ),
    Action("executions", "owner", ("r",), "r", "run", "Open the run of the execution", 5),
    Action("curves", "next_metric", ("m",), "m", "metric", "The next metric", 8),
    Action("curves", "previous_metric", ("M",), "M", "metric before", "The metric before"),
    Action(
        "curves",
        "view",
        ("v",),
        "v",
        "view",
        "Each run, all runs as a band, or by label (heterogeneous against control)",
        8,
    ),
    Action("curves", "log", ("l",), "l", "log", "Values by their logarithm, or as they are", 7),
    Action("tree", "unfold", ("right",), "left right", "fold", "Show what this row holds", 9),
    Action("tree", "fold", ("left",), "left", "fold", "Fold it, or go to what it stands below"),
    Action("tree", "unfold_all", ("plus", "equals_sign"), "+ -", "all", "Unfold everything", 2),
    Action("tree", "fold_all", ("minus",), "-", "fold all", "Fold everything"),
    Action("nodes", "faults", ("f",), "f", "faults", "Show only nodes in trouble, or all again", 5),
    Action(
        "everywhere",
        "nodes",
        ("d",),
        "d",
        "nodes",
        "Every node of every DAG as a tree, what needs a person first",
        4,
    ),
    Action(
        "grid", "open", ("enter",), "enter", "open", "Open the run of this point, or list them", 9
    ),
    Action("grid", "next_metric", ("m",), "m", "metric", "The next metric", 8),
    Action("grid", "previous_metric", ("M",), "M", "metric before", "The metric before"),
    Action("grid", "swap", ("x",), "x", "swap", "Rows as columns, columns as rows", 8),
    Action(
        "grid", "pair", ("v",), "v", "variables", "The next two variables as rows and columns", 7
    ),
    Action(
        "grid",
        "fix",
        ("f",),
        "f",
        "fix",
        "Hold a variable that is left over at its next value, or take the best over all of them",
        6,
    ),
    Action(
        "bag", "next_bag", ("tab",), "tab", "next bag", "The next bag, where there are several", 7
    ),
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
        "timeline",
        ("t",),
        "t",
        "timeline",
        "When what ran where; a cursor in time takes every screen back to it",
        7,
    ),
    Action(
        "everywhere",
        "sites",
        ("w",),
        "w",
        "sites",
        "Where the hours went: sites, GPU models, causes",
        7,
    ),
    Action("everywhere", "curves", ("c",), "c", "curves", "Is it learning: metrics by epoch", 6),
    Action(
        "everywhere",
        "estimates",
        ("e",),
        "e",
        "estimates",
        "When each run and the whole will be done, and how sure that is",
        5,
    ),
    Action(
        "everywhere",
        "incidents",
        ("i",),
        "i",
        "incidents",
        "What happened that a person should know of, newest first",
        4,
    ),
    Action(
        "everywhere",
        "grid",
        ("number_sign",),
        "#",
        "grid",
        "A sweep's points as rows and columns: which is best, and how far it is",
        1,
    ),
    Action(
        "everywhere",
        "bag",
        ("B",),
        "B",
        "shards",
        "Bags of equal nodes: done, rate, stragglers, and when they will be done",
        1,
    ),
    Action(
        "everywhere",
        "earlier",
        ("less_than_sign",),
        "<",
        "earlier",
        "Show every screen as it was a step earlier (a hundredth of the story; esc: now)",
    ),
    Action(
        "everywhere",
        "later",
        ("greater_than_sign",),
        ">",
        "later",
        "As it was a step later, or now",
    ),
    Action(
        "everywhere",
        "inputs",
        ("exclamation_mark",),
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
    Action("everywhere", "redraw", ("ctrl+l",), "^l", "redraw", "Write the whole screen again"),
    Action("everywhere", "help", ("question_mark",), "?", "help", "Keys and signs", 10),
    Action("everywhere", "leave", ("q", "ctrl+q"), "q", "quit", "Leave", 11),
    Action("everywhere", "pause", ("ctrl+z",), "^z", "suspend", "Back to the shell; fg goes on"),
    Action("everywhere", "interrupt", ("ctrl+c",), "^c", "interrupt", "Leave with exit status 130"),
    Action("moving", "up", ("up", "k"), "up k", "up", "One row up"),
    Action("moving", "down", ("down", "j"), "down j", "down", "One row down"),
    Action("moving", "page_up", ("pageup", "ctrl+b"), "pgup", "page up", "One page up"),
    Action("moving", "page_down", ("pagedown", "ctrl+f"), "pgdn", "page down", "One page down"),
    Action("moving", "first", ("home", "g"), "home g", "first", "To the first row"),
    Action("moving", "last", ("end", "G"), "end G", "last", "To the last row"),
    Action("sideways", "left", ("left", "h"), "left h", "left", "One column left"),
    Action("sideways", "right", ("right", "l"), "right l", "right", "One column right"),
    Action("sideways", "far_left", ("shift+left", "0"), "sh+left", "first", "To the first column"),
    Action("sideways", "far_right", ("shift+right",), "sh+right", "last", "To the last column"),
)


def own_key_cap(action: Action) -> str:
    """The key cap where each action has its own line.

    It lacks the key of the action's counterpart, which the footer shows with it.
    """
    others = {other.key_cap for other in ACTIONS if other.scope == action.scope and other != action}
    return " ".join(key for key in action.key_cap.split(" ") if key not in others) or action.key_cap


SCOPES: Final[dict[str, str]] = {
    "everywhere": "Everywhere",
    "below": "Below the overview",
    "moving": "Moving",
    "list": "Lists",
    "marking": "Marking rows",
    "acting": "Acting on jobs, runs and DAGs",
    "overview": "Overview",
    "timeline": "Timeline",
    "run": "Run",
    "tree": "Trees of nodes",
    "nodes": "Nodes",
    "job": "Job",
    "cause": "One problem",
    "sites": "Sites",
    "executions": "Executions behind a number",
    "curves": "Curves",
    "grid": "Grid of a sweep",
    "sideways": "In the grid, from column to column",
    "bag": "Shards of a bag",
    "menu": "The menu of acts",
    "question": "The question before an act",
    "submit": "Submitting",
    "form": "In a field",
    "typing": "While one types",
    "preview": "The preview",
    "launch": "The question before submitting",
}
"""Headings of the scopes, in the order of the help screen."""


def actions_of(scopes: Iterable[str], read_only: bool = False) -> list[Action]:
    """The actions of these scopes, in the registry's order.

    With ``read_only``, without those that change something.
    """
    wanted = frozenset(scopes)
    return [
        action
        for action in ACTIONS
        if action.scope in wanted and not (read_only and changes_something(action))
    ]


def changes_something(action: Action) -> bool:
    """Whether it changes jobs, DAGs or files, or belongs to a screen that does."""
    return action.scope in _CHANGING_SCOPES or action.name == "new"


_CHANGING_SCOPES: Final = frozenset(
    {"marking", "acting", "menu", "question"} | {"submit", "form", "typing", "preview", "launch"}
)

READ_ONLY_REFUSED: Final = frozenset(
    action.name
    for action in ACTIONS
    if changes_something(action) and action.scope in ("marking", "acting", "overview")
)
"""Actions refused in read-only mode; the screens of the other changing scopes do not exist."""


SCREEN_ACTIONS: Final = frozenset(
    {"problems", "timeline", "sites", "curves", "estimates", "incidents", "inputs"}
    | {"nodes", "grid", "bag"}
)
"""Actions that open the screen of their name, from any other screen."""

_APP_ACTIONS: Final = frozenset({"new", "palette", "help", "leave"})
"""Actions that are the application's, whatever scope their key is in."""


def bindings_of(*scopes: str) -> list[BindingType]:
    """Textual's bindings of these scopes, with ids so that a keymap can change them."""
    return [
        Binding(
            ",".join(action.keys),
            _textual_action(action),
            action.label,
            tooltip=action.help,
            priority=action.priority,
            show=False,
            id=f"{action.scope}.{action.name}",
        )
        for action in actions_of(scopes)
    ]


def _textual_action(action: Action) -> str:
    if action.scope == "everywhere" and action.name in SCREEN_ACTIONS:
        return f"app.open_screen('{action.name}')"
    return f"app.{action.name}" if action.name in _APP_ACTIONS else action.name
