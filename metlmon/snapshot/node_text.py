"""Texts about a node beside its state: the reason for it, and what it waits for.

Pure functions, for the tree of nodes in commands and on screens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

from metlmon.model.states import FAILED_JOB, DagState, State
from metlmon.snapshot.types import DagRow, EpochRow, NodeRow, SideCounts, Status
from metlmon.text.formatting import STATES, count, moment, number, ordinal, plain

MAX_NAME: Final = 60
MAX_REASON: Final = 400
"""Characters of names and reasons; ``--json`` has them in full."""

KINDS: Final = frozenset({"final", "provisioner", "service"})
"""Kinds of nodes outside the graph, written in capitals as in the DAG file."""

WAITS: Final = "waits for "
"""Prefix of the names of unfinished parents."""

MIN_COMMON_PREFIX: Final = 4
"""Length of a common prefix from which the second name omits it."""


def name_range(first: str, last: str) -> str:
    """``run0-train_epoch0 … 4``: two names, with their common prefix once."""
    first, last = plain(first, MAX_NAME), plain(last, MAX_NAME)
    if first == last:
        return first
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    # Numbers are not divided: 18 … 20, not 18 … 0.
    prefix = "".join(character for character, _ in pairs).rstrip("0123456789")
    rest = last[len(prefix) :] if len(prefix) >= MIN_COMMON_PREFIX else last
    return f"{first} … {rest or last}"


def job_result_text(row: NodeRow | EpochRow) -> str:
    """``return value 3``, of a node whose job failed."""
    if row.job_return is not None:
        return f"return value {row.job_return}"
    return "its job was removed" if row.job_state is State.REMOVED else "its job failed"


def submission_text(dag: DagRow, this_year: int | None, last: bool = False) -> str:
    """``15th submission (rescue012), last 14 Nov 08:14``; empty for a DAG that was never run.

    ``last``: with the time of the last submission.
    """
    rescue = f"rescue{dag.rescue:03}" if dag.rescue else ""
    if not dag.submitted:
        return rescue
    text = f"{ordinal(dag.submitted)} submission"
    parts = [f"{text} ({rescue})" if rescue else text]
    parts += [f"recovered {dag.recoveries}×"] * bool(dag.recoveries)
    if last and dag.submissions:
        parts.append(f"last {moment(dag.submissions[-1], this_year)}")
    return ", ".join(parts)


def running_text(status: Status, dag: DagRow) -> str:
    """``▶ 5 jobs running`` for the only DAG, where its files do not show its DAGMan."""
    running = status.node_states.get(State.RUNNING, 0)
    if dag.state is not DagState.UNKNOWN or len(status.dags) > 1 or not running:
        return ""
    return f"{STATES[State.RUNNING].glyph} {count(running, 'job')} running"


def failed_evaluations(side: SideCounts) -> tuple[str, str]:
    """``2 evaluations failed``, and the result of their nodes after POST scripts.

    Both are empty where none has failed.
    """
    overruled, failed = side.overruled, side.failed
    if not overruled + failed:
        return "", ""
    text = f"{count(overruled + failed, 'evaluation')} failed"
    if not failed:
        return text, "POST script passed" if overruled == 1 else "POST scripts passed"
    return text, f"{number(failed)} for good" if overruled else ""


INACTIVE: Final = frozenset({State.COMPLETED, State.WAITING, State.SKIPPED})
"""States of a node that has ended, or has not begun."""


def active_other_nodes(status: Status) -> Mapping[State, int]:
    """The number of active or failed nodes that are no epochs, by state.

    No epoch may make progress while there is one. Nodes listed by name (``special_nodes``), and
    failed evaluations (:func:`failed_evaluations`), are not included.
    """
    named = Counter(row.state for row in status.special_nodes)
    side = status.side_nodes
    named.update({State.FAILED: side.failed - side.removed, State.REMOVED: side.removed})
    counts = {
        state: status.other_states.get(state, 0) - named[state]
        for state in State
        if state not in INACTIVE
    }
    return {state: number for state, number in counts.items() if number > 0}


def counted_states(status: Status) -> Mapping[State, int]:
    """The states of the epochs; without epochs those of the nodes, as DAGMan counts.

    SERVICE nodes, which are listed by name, are not included.
    """
    if any(status.epoch_states.values()):
        return status.epoch_states
    services = Counter(row.state for row in status.special_nodes if row.kind == "service")
    return {state: number - services[state] for state, number in status.node_states.items()}


def state_reason(row: NodeRow) -> str:
    """The reason of the state of a node; empty where the state says it all."""
    match row.state:
        case State.HELD:
            return plain(row.hold_reason or "the log gives no reason", MAX_REASON)
        case State.WAITING:
            return _waiting(row)
        case State.FUTILE:
            return (
                f"cannot run: {plain(row.failed_ancestor or 'a node before it', MAX_NAME)} failed"
            )
        case State.FAILED | State.REMOVED | State.RETRYING:
            return _failed(row)
        case State.SKIPPED if row.stopped_by is not None:
            by = "somebody asked for it" if row.stopped_by == "file" else row.stopped_by
            return f"skipped: the run was stopped ({plain(by, MAX_NAME)})"
        case State.SKIPPED:
            return "its PRE script ended it without a job"
        case State.COMPLETED if row.ended_with_dag:
            return "ended with its DAG"
        case State.COMPLETED if row.overruled:
            return f"{job_result_text(row)}: its POST script let it pass"
        case State.COMPLETED if row.inferred:
            return "inferred: a node after it was submitted"
        case _:
            return ""


def _waiting(row: NodeRow) -> str:
    if row.waits_for:
        return f"{WAITS}{name_list(row.waits_for, row.unfinished_parents)}"
    if row.kind == "final":
        return "waits for the end of all others"
    if row.parents:
        return "nothing is before it any more: DAGMan has not submitted it"
    return "not submitted yet"


def name_list(names: Sequence[str], total: int, limit: int = 3) -> str:
    """``a, b, c and 9 more``."""
    shown = ", ".join(plain(name, MAX_NAME) for name in names[:limit])
    more = total - min(limit, len(names))
    return f"{shown} and {number(more)} more" if more > 0 else shown


def _failed(row: NodeRow) -> str:
    if row.reason is not None:
        text = plain(row.reason, MAX_REASON)
        if not row.jobs and row.submissions > 1:
            text += f", after {count(row.submissions, 'try', 'tries')}"
    elif row.job_state is None:
        text = "DAGMan reports that it failed, without a reason"
    elif row.job_state in FAILED_JOB:
        text = job_result_text(row)
    else:
        text = "its POST script failed"
    if not row.retries:
        return text
    left = row.retries_left or 0
    return f"{text}, {count(left, 'retry', 'retries') if left else 'no retries'} left"
