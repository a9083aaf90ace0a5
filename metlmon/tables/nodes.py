"""Nodes and jobs as table rows: columns, and details of the tree. Pure functions."""

from __future__ import annotations

from functools import partial
from typing import Final

from metlmon.health.groups import hold_text
from metlmon.jobfiles.error_lines import NO_ERRORS, Errors
from metlmon.model.states import State
from metlmon.snapshot.node_tree import TreeRow
from metlmon.snapshot.records import NodeRow
from metlmon.snapshot.row_text import KINDS, brief_reason, name_range, state_reason
from metlmon.tables.layout import Column, Kind, dag_column, empty_text
from metlmon.tables.runs import FAULTS, hold_reason, overruled_state, site_and_target, tries_style
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain
from metlmon.text.spans import (
    BAD,
    BOLD,
    DIM,
    NOTE,
    PLAIN,
    Line,
    TextStyle,
    crop_middle,
    file_name,
    join,
    line,
    style_of,
    symbol_span,
    width,
    wrap,
)

DEEPEST: Final = 10
"""Maximum number of indented levels: a real DAG has three, and rows need space."""

STEP: Final = 2
"""Indentation of a level, in cells."""

NAME_LIMIT: Final = 200

FIRST_NAME: Final = 24
"""Length of a name that fits into the column at 80 columns."""

REASON_LINES: Final = 2
"""Lines below the table for the reason of a state."""

TreeItem = tuple[TreeRow, NodeRow | None, NodeRow | None]
"""A row, its node, and the worst node in it if it has none itself."""


def columns(errors: Errors = NO_ERRORS, of_dags: bool = False) -> list[Column[TreeItem]]:
    """The columns of the node tree.

    ``errors``: what failed jobs and scripts wrote. ``of_dags``: whether nodes of several DAGs are
    listed without the rows of their DAGs.
    """
    return [
        Column(
            "node",
            lambda item: item[0].title,
            doc="a node, or those that are alike",
            cell=_node,
            minimum=18,
            comfortable=30,
            maximum=60,
            identifies=lambda item: _identity(item[0]),
        ),
        *([dag_column(lambda item: item[1].dag if item[1] else "", True)] if of_dags else []),
        Column(
            "state",
            lambda item: STATES[item[1].state] if item[1] else "",
            Kind.STATE,
            doc="state of the node, or the first state of several",
            cell=_state,
            minimum=11,
            comfortable=16,
        ),
        Column("for", _seconds, Kind.DURATION, doc="time in this state", drop=2, minimum=7),
        Column(
            "site",
            lambda item: item[1].site if item[1] else "",
            doc="where its last execution ran; ≠: the node asked for another site",
            drop=5,
            cell=_site,
            minimum=6,
            comfortable=14,
            maximum=28,
        ),
        Column(
            "try",
            lambda item: (item[1] and item[1].tries) or "",
            Kind.COUNT,
            title="TRIES",
            doc="executions",
            drop=4,
            style=lambda item: tries_style(item[1].tries) if item[1] else PLAIN,
        ),
        Column("left", _retries_left, Kind.COUNT, doc="retries left", drop=6, cell=_left),
        Column(
            "nodes",
            lambda item: item[0].size if item[1] is None else "",
            Kind.COUNT,
            doc="those in it, by state",
            align="left",
            drop=7,
            cell=lambda item, _: () if item[1] is not None else state_counts(item[0]),
        ),
        Column("job", _job, doc="its latest job", align="right", drop=3, style=DIM),
        Column(
            "why",
            partial(_reason, errors),
            doc="why it is in this state; of several nodes, why the worst one is",
            cell=partial(_why, errors),
            minimum=12,
            comfortable=22,
            maximum=90,
            grow=90,
        ),
    ]


def _mark(row: TreeRow) -> str:
    marks = {None: "  ", True: "▾ ", False: "▸ "}
    return "  " * (STEP // 2) * min(row.depth, DEEPEST) + marks[row.open]


def _node(item: TreeItem, _: int | None) -> Line:
    row, node, _worst = item
    lead = line(_mark(row))
    if row.node is not None:
        return lead + _node_title(row, node)
    match row.kind:
        case "alike":
            name = line((f"{formatting.number(int(row.title))} × ", BOLD), _title(row))
        case "line":
            name = line(_title(row))
        case _:
            name = line((_title(row), BOLD))
    size = "" if row.kind == "alike" and int(row.title) == row.size else f"  ({row.size})"
    return lead + name + line((size, DIM))


def _title(row: TreeRow) -> str:
    """The name in a row: of its node, its file, or of the first and last of several nodes."""
    if row.node is not None:
        return plain(row.title, NAME_LIMIT)
    if row.kind in ("alike", "line"):
        return name_range(row.first, row.last)
    return file_name(row.title, 60) if row.title else "jobs without a DAG"


def _identity(row: TreeRow) -> str:
    """The part of a title that is shortened where it resembles others.

    Of several nodes none if the first name fits: what is cut off then is the last name.
    """
    if row.kind == "alike" or (row.kind == "line" and len(row.first) <= FIRST_NAME):
        return ""
    return _title(row)


def _node_title(row: TreeRow, node: NodeRow | None) -> Line:
    name = _title(row)
    bold = node is not None and node.state in (State.HELD, State.FAILED)
    dim = node is not None and node.state in (State.WAITING, State.SKIPPED)
    title = line((name, BOLD if bold else DIM if dim else TextStyle()))
    if node is not None and node.kind in KINDS:
        title = line((f"{node.kind.upper()} ", DIM)) + title
    if row.open is False:
        title += line((f"  (+{row.size - 1})", DIM))
    return title


def _state(item: TreeItem, _: int | None) -> Line:
    row, node, _worst = item
    if node is not None:
        if node.overruled:
            return overruled_state(node.state)
        return symbol_span(STATES[node.state])
    if not row.counts:
        return ()
    state, number = row.counts[0]
    sign = STATES[state]
    if len(row.counts) == 1:
        return symbol_span(sign)
    return line((f"{sign.glyph} {formatting.number(number)} {sign.word}", style_of(sign)))


def _seconds(item: TreeItem) -> float | str:
    node = item[1]
    if node is None or node.seconds is None or node.state is State.WAITING:
        return ""
    return node.seconds


def _reason(errors: Errors, item: TreeItem) -> str:
    node = item[1] or item[2]
    return state_reason(node, errors) if node else ""


def _why(errors: Errors, item: TreeItem, max_width: int | None) -> Line:
    node = item[1] or item[2]
    if node is None:
        return ()
    text = hold_reason(node.hold_reason) if node.hold_reason else state_reason(node, errors)
    if max_width is not None and len(text) > max_width:
        # As Health names it; the full reason is below the list.
        text = hold_text(node.hold) if node.hold else brief_reason(text)
    return line((text, _reason_style(node)))


def _reason_style(node: NodeRow) -> TextStyle:
    if node.state in (State.HELD, State.FAILED):
        return BAD
    return NOTE if node.overruled or node.state in FAULTS else DIM


def state_counts(row: TreeRow) -> Line:
    """Render the counts by state of a row: ``■ 1  ▶ 2  · 17  ✓ 12``."""
    signs = ((STATES[state], number) for state, number in row.counts)
    counts = (line((s.glyph, style_of(s)), f" {formatting.number(n)}") for s, n in signs)
    return join(counts, line("  "))


def _site(item: TreeItem, max_width: int | None) -> Line:
    node = item[1]
    if node is None or (node.site is None and (node.target is None or not node.jobs)):
        return ()
    return site_and_target(node.site, node.target, node.off_target, max_width, state=node.state)


def _left(item: TreeItem, _: int | None) -> Line:
    left = _retries_left(item)
    return line((str(left), DIM if left else NOTE))


SETTLED_STATES: Final = (State.COMPLETED, State.SKIPPED, State.WAITING, State.FUTILE)
"""States in which the number of retries left is irrelevant."""


def _retries_left(item: TreeItem) -> int | str:
    node = item[1]
    if node is None or node.state in SETTLED_STATES or node.retries_left is None:
        return ""
    return node.retries_left


def _job(item: TreeItem) -> str:
    node = item[1]
    return formatting.job_id(*node.jobs[-1]) if node is not None and node.jobs else ""


# --- cursor detail ------------------------------------------------------------------------------


def cursor_detail(item: TreeItem | None, room: int, errors: Errors) -> list[Line]:
    """Return the lines on the current row: the node, and the reason of its state."""
    if item is None:
        return []
    row, node, worst = item
    if node is None:
        key = line(("[enter] folds" if row.open else "[enter] unfolds", DIM))
        first = join((state_counts(row), key), line("   "))
        reason = state_reason(worst, errors) if worst else ""
        if worst is None or not reason:
            return [line(" ") + first]
        name = line(" ", (plain(worst.node, 60), BOLD), "  ")
        text = crop_middle(reason, room - width(name) - 1)
        return [line(" ") + first, name + line((text, _reason_style(worst)))]
    facts = [(plain(node.submit, 60) if node.submit else "")]
    parents = formatting.count(node.parents, "parent")
    children = formatting.count(node.children, "child", "children")
    facts += [f"{parents}, {children}"] if node.parents or node.children else []
    if node.retries:
        left = "" if node.retries_left is None else f", {node.retries_left or 'none'} left"
        facts.append(f"RETRY {node.retries}{left}")
    if len(node.jobs) > 1:
        facts.append(formatting.count(len(node.jobs), "job"))
    facts.append(file_name(node.in_dag, 60))
    name = line((plain(node.node, 60), BOLD))
    first = line(" ") + join((name, *(line((fact, DIM)) for fact in facts if fact)), line("   "))
    reason = state_reason(node, errors)
    return [first, *wrap(reason, room - 2, _reason_style(node), 1, REASON_LINES)]


def no_job_text(node: NodeRow) -> str:
    """Return why a node has no job that can be opened."""
    reason = state_reason(node)
    return "it has no job to open" + (f": {reason}" if reason else "")


def empty(filtered: bool, faults: bool, reading: bool) -> list[Line]:
    if reading:
        return empty_text("", "Nodes appear as soon as their DAG has been read.")
    if faults and not filtered:
        sentence = "No open entry of Health [2] concerns a node."
        return empty_text(sentence, "[f] shows all nodes again.")
    if filtered:
        hint = "[esc] clears the filter; [/] changes it."
        return empty_text("No node has this in any column.", hint)
    return empty_text("The DAG has no nodes.", "JOB lines in a *.dag file make them.")
