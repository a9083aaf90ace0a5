"""Registries: of screens and tabs; of actions and keys, for footer, palette, help and guide."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from string import punctuation
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from textual.binding import Binding, BindingType
from textual.keys import KEY_NAME_REPLACEMENTS
from textual.screen import Screen

if TYPE_CHECKING:
    from screens.base.screens import SnapshotScreen


class ScreenEntry(Struct, frozen=True):
    """A screen: its class below ``screens``, its title, and the digit of its tab, if it has one.

    The module is imported when the screen is first opened.
    """

    path: str
    title: str = ""
    tab: int = 0


SCREENS: Final = {
    "overview": ScreenEntry("overview.OverviewScreen", "Overview", 1),
    "health": ScreenEntry("health.HealthScreen", "Health", 2),
    "sites": ScreenEntry("sites.SitesScreen", "Sites", 3),
    "annexes": ScreenEntry("annexes.AnnexesScreen", "Annexes", 3),
    "timeline": ScreenEntry("timeline.TimelineScreen", "Timeline", 4),
    "curves": ScreenEntry("curves.CurvesScreen", "Curves", 5),
    "nodes": ScreenEntry("nodes.NodesScreen", "Nodes", 6),
    "grid": ScreenEntry("sweep.SweepScreen", "Grid", 6),
    "bag": ScreenEntry("shards.ShardsScreen", "Shards", 6),
    "estimates": ScreenEntry("estimates.EstimatesScreen", "Estimates", 7),
    "advice": ScreenEntry("advice.AdviceScreen", "Advice", 7),
    "inputs": ScreenEntry("sources.SourcesScreen", "Sources", 8),
    "changes": ScreenEntry("changes.ChangesScreen", "Changes", 9),
    "compare": ScreenEntry("compare.CompareScreen"),
    "executions": ScreenEntry("sites.ExecutionsScreen"),
    "help": ScreenEntry("help.HelpScreen"),
    "home": ScreenEntry("home.HomeScreen"),
    "job": ScreenEntry("job.JobScreen"),
    "new": ScreenEntry("submit.SubmitScreen"),
    "output": ScreenEntry("job.OutputScreen"),
    "run": ScreenEntry("run.RunScreen"),
}
"""All screens that are opened by name; those of a tab in the order of its repeated digit."""

TABS: Final = tuple(
    tuple(name for name, entry in SCREENS.items() if entry.tab == tab)
    for tab in range(1, 1 + max(entry.tab for entry in SCREENS.values()))
)
"""The names of the screens of each tab; the first gives the tab its title."""


_NAMES: Final = {f"screens.{entry.path}": name for name, entry in SCREENS.items()}


def title_of(name: str) -> str:
    """The title of a screen that has a tab."""
    return SCREENS[name].title


def create_screen(name: str, *arguments: object) -> SnapshotScreen:
    """Create the screen with this name; ``arguments`` are those of its class."""
    module, _, class_name = SCREENS[name].path.rpartition(".")
    screen: SnapshotScreen = getattr(import_module(f"screens.{module}"), class_name)(*arguments)
    return screen


def name_of_screen(screen: Screen[Any]) -> str | None:
    """The name of a screen's class in :data:`SCREENS`."""
    return _NAMES.get(f"{type(screen).__module__}.{type(screen).__name__}")


class Action(msgspec.Struct, frozen=True):
    """An action of the user, with its keys and texts.

    ``keys`` are key caps (``/``, ``^s``, ``enter``). ``cap`` and ``label`` are for the footer,
    ``footer`` is the priority there, 0 for not shown; lower ones are dropped first on a narrow
    terminal. ``help`` describes it in at most :data:`HELP_CELLS` cells.
    """

    scope: str
    name: str
    keys: tuple[str, ...]
    footer: int
    cap: str
    label: str
    help: str


HELP_CELLS: Final = 29
"""Two columns of keys fit side by side on 80 cells."""

# name | keys | footer: priority, caps and label | help
_TABLE: Final = """
# everywhere: Everywhere
palette   | : ^p     | 7 :: find      | Find actions, runs, jobs, …
help      | ?        | 10 ?: help     | Keys; again: all, and signs
close     | q        | 11 q: back     | Back; from the overview: quit
quit      | Q ^q     |    Q: quit     | Quit without asking
interrupt | ^c       |    ^c: quit    | Quit with exit status 130
earlier   | <        |    <: earlier  | All screens one step earlier
later     | >        |    >: later    | One step later, or now
light     | ^t       |    ^t: theme   | Dark or light colours
redraw    | ^l       |    ^l: redraw  | Redraw the screen
report    | ^y       |    ^y: report  | Write the report, as HTML
browse    | ^o       |    ^o: browser | Open that report
picture   | ^x       |    ^x: picture | Save this screen, as SVG
pause     | ^z       |    ^z: suspend | Suspend; fg returns

# below: Everywhere
back      | esc      |    esc: back   | Clear filter, marks; or back

# overview: Overview
back      | esc      |    esc: clear  | Clear filter, marks, past
section   | tab      | 2 tab: the run | To the run below, and back
faults    | f        | 5 f: faults    | Runs with an open entry
new       | N        | 3 N: new       | Submit a new ensemble

# home: Home
back      | esc      |    esc: clear  | Clear filter
faults    | f        | 5 f: faults    | Only what needs attention
add       | +        | 4 +: add       | Add a directory to your list
drop      | -        | 2 -: drop      | Drop one from your list
new       | N        | 3 N: new       | Submit a new ensemble

# moving: Moving
up        | up k     |    up: up      | One row up
down      | down j   |    down: down  | One row down
page_up   | pgup ^b  |    pgup: page  | One page up
page_down | pgdn ^f  |    pgdn: page  | One page down
first     | home g   |    g: first    | To the first row
last      | end G    |    G: last     | To the last row

# list: Lists
open      | enter    | 9 enter: open  | Go down into the row
filter    | /        | 7 /: filter    | Rows with a text; /! without
sort      | s        | 6 s: sort      | Sort by the next order
reverse   | S        |    S: reverse  | Reverse the order
columns   | *        | 2 *: columns   | Choose columns, sort by one

# marking: Marking rows
mark      | space    | 3 space: mark  | Mark the row, for acts and &
mark_all  | ^a       |    ^a: all     | Mark all rows, or none

# comparing: Comparing runs
compare   | &        | 1 &: compare   | Marked runs side by side

# acting: Acting on jobs, runs and DAGs
acts      | a        | 8 a: act       | All acts, and why not

# acts: Acts, in the menu behind a
hold       | H |    H: hold         | Hold jobs, until released
release    | R |    R: release      | Release held jobs
remove     | X |    X: remove       | Remove jobs for good
vacate     | V |    V: vacate       | Evict jobs; they go idle
priority   | P |    P: priority     | Set the priority of jobs
raise      | B |    B: raise        | Raise memory or disk, release
retarget   | O |    O: retarget     | Send idle jobs elsewhere
stop       | T |    T: stop         | Stop runs after this epoch
stop_now   | K |    K: stop now     | Stop runs; epoch's work lost
pause_run  | W |    W: pause        | Pause before the next epoch
resume_run | C |    C: resume run   | Undo a pause, or a stop
send       | E |    E: send         | Send next epochs elsewhere
exclude_site | J |  J: exclude      | Keep jobs off a site or host
include_site | I |  I: include      | Allow jobs there again
halt       | Z |    Z: halt/resume  | Halt the DAG, or resume it
remove_dag | D |    D: remove DAG   | Remove the DAG and its jobs
resubmit   | U |    U: resubmit DAG | Resubmit from newest rescue
answers    | A |    A: answers      | The schedd's last answers

# run: Run
chart       | b   | 3 b: bars        | Bars of the execution times
view        | v   | 3 v: evaluations | Evaluations as rows, or not
evaluation  | o   | 4 o: its evaluation | The job of its evaluation

# job: Job
section     | tab | 6 tab: section  | To the next section
previous    | [   | 8 [: older      | Older job of this node
next        | ]   | 8 ]: newer job  | Newer job of this node
owner       | r   | 4 r: run        | The run of this job
output      | enter | 9 enter: output | Open its output files
copy        | Y   | 3 Y: copy       | Copy id, reason, path, …
view        | v   | 2 v: contacts   | Addresses in full, or hosts
ask         | ^n  | 5 ^n: ask pool  | Why idle, or what it writes

# output: Output of a job
view        | v   | 8 v: other file | .out or .err
filter      | /   | 9 /: find       | Find a text in the file
next        | .   | 7 . ,: matches  | The next match
previous    | ,   |   ,: match      | The previous match
wrap        | \\   | 6 \\: wrap      | Wrap long lines, or cut them
pager       | ^v  | 5 ^v: pager     | Open the whole in $PAGER
copy        | Y   | 3 Y: copy       | Copy id, reason, path, …
ask         | ^n  | 4 ^n: ask pool  | Why idle, or what it writes

# health: Health
section     | tab | 5 tab: full text | To the full text, and back
owner       | r   | 4 r: run         | The run, if it is one

# entry: Jobs of one health entry
owner       | r   | 6 r: run        | The run of the job

# sites: Sites
view          | v        | 8 v: view | Sites, GPUs, hosts, causes
previous_view | sh+tab   |   sh+tab: previous view | The previous view

# annexes: Annexes
copy        | Y   | 8 Y: copy      | Copy the command for another
ask         | ^n  | 5 ^n: ask pool | Ask schedd and collectors

# executions: Executions behind a number
kind        | f   | 6 f: only       | Only goodput, badput, …
owner       | r   | 5 r: run        | The run of the execution

# timeline: Timeline
before      | left h   | 6 left right: in time | Back by one cell
after       | right l  |   right: later       | Forward by one cell
far_before  | sh+left  |   sh+left: far back  | Back by a tenth
far_after   | sh+right |   sh+right: far forward   | Forward by a tenth
change_before | ,      |   ,: change          | Previous change of this run
change_after  | .      |   .: change          | Next change of this run
stall       | z        | 4 z: stall           | To the longest stall
zoom_in     | + =      | 9 + -: zoom          | Zoom in at the cursor
zoom_out    | -        |   -: zoom out        | Zoom out
whole       | 0        | 3 0: all             | From first event to now
pan_left    | ( ^left  |   (: pan             | Back by half a view
pan_right   | ) ^right |   ): pan             | Forward by half a view
view        | v        | 9 v: by site         | By outcome, or by site
units       | u        |   u: GPUs/jobs       | Count GPUs, or jobs
travel      | @        | 10 @: time travel    | All screens as of the cursor

# curves: Curves
next_metric     | m | 8 m: metric        | The next metric
previous_metric | M |   M: previous metric | The previous metric
view            | v | 8 v: view          | Runs, a band, or by label
log             | L | 7 L: log           | Logarithmic, or linear
zoom_in         | + = | 6 + -: zoom        | The later half of the epochs
zoom_out        | -   |   -: zoom out      | Twice as many epochs

# compare: Runs side by side
next_metric     | m | 8 m: metric        | The next metric
previous_metric | M |   M: previous metric | The previous metric
log             | L | 7 L: log           | Logarithmic, or linear
zoom_in         | + = | 6 + -: zoom        | The later half of the epochs
zoom_out        | -   |   -: zoom out      | Twice as many epochs

# tree: Trees of nodes
unfold      | right | 9 left right: fold | Unfold the row
fold        | left  |   left: fold       | Fold it, or to its parent
unfold_all  | + =   | 2 + -: all         | Unfold everything
fold_all    | -     |   -: fold all      | Fold everything

# nodes: Nodes
faults      | f   | 5 f: faults     | Nodes with an open entry

# grid: Grid of a sweep
open            | enter | 9 enter: open      | The run or runs of a point
next_metric     | m     | 8 m: metric        | The next metric
previous_metric | M     |   M: previous metric | The previous metric
swap            | x     | 8 x: swap          | Rows as columns
view            | v     | 7 v: variables     | The next two variables
fix             | f     | 6 f: only          | Fix one value of a variable

# sideways: In the grid
left        | left h   |   left: left     | One column left
right       | right l  |   right: right   | One column right
far_left    | sh+left  |   sh+left: first | To the first column
far_right   | sh+right |   sh+right: last | To the last column

# changes: Changes
view        | v   | 8 v: period     | Last look, day, week, or all

# bag: Shards of a bag
view        | v   | 7 v: next bag   | The next bag

# menu: The menu of acts
choose      | enter | 9 enter: choose | Do it, after a question
acts        | a     |   a: close      | Close the menu

# question: The question before an act
confirm     | y     | 12 y: do it     | Do exactly what is listed
back        | esc n | 12 esc: cancel  | Do nothing

# advice: Advice
acts        | a     | 8 a: apply     | Send, retarget, exclude, undo

# applying: Before a plan is applied
next_act    | tab   | 9 tab: other act | Send, retarget, exclude, undo

# submit: Submitting
choose      | enter | 8 enter: choose | Choose, or go on
preview     | tab   | 9 tab: preview  | Show all files, or the form
submit      | ^s    | 12 ^s: submit   | Submit, after a question
again       | ^r    | 3 ^r: ask again | Ask schedd and collector
back        | esc   | 10 esc: back    | Leave; N brings it back

# typing: While one types
palette     | ^p    | 2 ^p: palette | Find actions, runs, jobs, …
help        | f1    | 7 f1: help    | Keys; again: all, and signs
quit        | ^q    | 6 ^q: quit    | Quit without asking

# form: In a field
up          | up sh+tab |   up: up        | To the field above
down        | down      |   down: down    | To the field below
left        | left      |   left: left    | A character, or option
right       | right     |   right: right  | A character, or option
start       | home ^a   |   home: start   | To the start
end         | end ^e    |   end: end      | To the end
erase       | bksp ^h   |   bksp: erase   | Erase the character before
delete      | del ^d    |   del: delete   | Delete the character after
word        | ^w        |   ^w: word      | Erase a word
clear       | ^u        |   ^u: clear     | Empty the field
page_up     | pgup      |   pgup: page up | Scroll up
page_down   | pgdn      |   pgdn: page    | Scroll down

# preview: The preview
next        | ]     |   ]: next       | To the next file

# launch: The question before submitting
launch      | y     | 16 y: yes, submit | Write files, submit the DAG
replace     | F     | 15 F: replace     | Yes, replace the files
write       | w     | 14 w: write only  | Write files, submit nothing
watch       | enter | 16 enter: watch   | Watch what was submitted
back        | esc n | 13 esc: back      | Back to the form

"""


_MARKS: Final = {
    mark: unicodedata.name(mark).lower().replace("-", "_").replace(" ", "_") for mark in punctuation
}

_KEY_NAMES: Final[Mapping[str, str]] = {
    "esc": "escape",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "bksp": "backspace",
    "del": "delete",
    **{mark: KEY_NAME_REPLACEMENTS.get(name, name) for mark, name in _MARKS.items()},
}
"""Textual's names of key caps that are not their own name."""


def textual_key(cap: str) -> str:
    """Textual's name of a key cap: ``^s`` is ``ctrl+s``, ``sh+tab`` is ``shift+tab``."""
    if len(cap) > 1 and cap.startswith("^"):
        return "ctrl+" + cap[1:]
    if cap.startswith("sh+"):
        return "shift+" + cap[3:]
    return _KEY_NAMES.get(cap, cap)


def key_cap(key: str) -> str:
    """The key cap of a key as Textual names it."""
    caps = {name: cap for cap, name in _KEY_NAMES.items()}
    return caps.get(key, key.replace("ctrl+", "^").replace("shift+", "sh+"))


def _parse(table: str) -> tuple[dict[str, str], tuple[Action, ...]]:
    """The titles of the scopes, and all actions."""
    titles: dict[str, str] = {}
    actions = []
    scope = ""
    for row in filter(None, table.splitlines()):
        if row.startswith("# "):
            scope, _, titles[scope] = row[2:].partition(": ")
            continue
        name, keys, shown, text = (cell.strip() for cell in row.split("|"))
        cap, _, label = shown.rpartition(": ")
        priority, _, rest = cap.partition(" ")
        if not (priority.isdigit() and rest):
            priority, rest = "0", cap
        actions.append(
            Action(
                scope=scope,
                name=name,
                keys=tuple(keys.split()),
                footer=int(priority),
                cap=rest,
                label=label,
                help=text,
            )
        )
    return titles, tuple(actions)


def _tab(number: int, names: tuple[str, ...]) -> Action:
    key = str(number)
    return Action(
        scope="tabs",
        name=f"tab({number})",
        keys=(key,),
        footer=0,
        cap=key,
        label=title_of(names[0]),
        help=", ".join(map(title_of, names)),
    )


SCOPES, _ACTIONS = _parse(_TABLE)
"""Titles of the scopes, in the order of the help screen."""

ACTIONS: Final = (*(_tab(i, names) for i, names in enumerate(TABS, 1)), *_ACTIONS)

ALL_NAMES: Final = frozenset(action.name for action in ACTIONS)

DIRECT: Final = frozenset({"release", "stop_now"})
"""Acts with a key of their own; all others are behind the menu."""

_CHANGING_SCOPES: Final = frozenset(
    {"acting", "acts", "menu", "question", "advice", "applying"}
    | {"submit", "form", "typing", "preview", "launch"}
)

READ_ONLY_REFUSED: Final = frozenset(
    {action.name for action in ACTIONS if action.scope in ("acting", "acts")} | {"new"}
)
"""Actions refused in read-only mode; the screens of the other changing scopes do not exist."""

_APP_SCOPES: Final = frozenset({"everywhere", "tabs", "typing"})
"""Scopes whose actions belong to the application, like ``new``."""

_EARLY: Final = frozenset({"filter"})
"""Handled before the focused widget, so that keys typed after them reach what they open."""


def changes_something(action: Action) -> bool:
    """Whether it changes jobs, DAGs or files, or belongs to a screen that does."""
    return action.scope in _CHANGING_SCOPES or action.name == "new"


def actions_of(
    scopes: Iterable[str], read_only: bool = False, keys: Mapping[str, str] | None = None
) -> list[Action]:
    """The actions of these scopes, in the order of the scopes and of the registry.

    With ``read_only``, without those that change something. ``keys`` replaces key caps, by
    action name or ``scope.name``.
    """
    return [
        _remapped(action, keys or {})
        for scope in dict.fromkeys(scopes)
        for action in ACTIONS
        if action.scope == scope and not (read_only and changes_something(action))
    ]


def _remapped(action: Action, keys: Mapping[str, str]) -> Action:
    caps = keys.get(f"{action.scope}.{action.name}", keys.get(action.name, "")).split()
    if not caps:
        return action
    return msgspec.structs.replace(action, keys=tuple(caps), cap=caps[0])


def keymap(keys: Mapping[str, str]) -> dict[str, str]:
    """Textual's keymap for replaced key caps: its key names, by the id of the binding."""
    return {
        f"{action.scope}.{action.name}": ",".join(map(textual_key, action.keys))
        for action in actions_of(SCOPES, keys=keys)
        if action not in ACTIONS
    }


KNOWN_NAMES: Final[Mapping[str, Collection[str]]] = {
    "keys": tuple(name for a in ACTIONS for name in (a.name, f"{a.scope}.{a.name}")),
    "columns": tuple(
        entry.path.rpartition(".")[2].removesuffix("Screen").lower() for entry in SCREENS.values()
    ),
}
"""The names that these tables of ``metlmon.toml`` may have: actions, and screens."""


def bindings_of(*scopes: str, direct_of: Iterable[str] = ()) -> list[BindingType]:
    """Textual's bindings of these scopes, with ids so that a keymap can change them.

    ``direct_of``: scopes of which only the actions in :data:`DIRECT` have bindings.
    """
    direct = [action for action in actions_of(direct_of) if action.name in DIRECT]
    return [
        Binding(
            ",".join(map(textual_key, action.keys)),
            _textual_action(action),
            action.label,
            tooltip=action.help,
            priority=action.name in _EARLY,
            show=False,
            id=f"{action.scope}.{action.name}",
        )
        for action in [*actions_of(scopes), *direct]
    ]


def _textual_action(action: Action) -> str:
    is_apps = action.scope in _APP_SCOPES or action.name == "new"
    return f"app.{action.name}" if is_apps else action.name
