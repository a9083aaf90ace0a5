"""What is to be said of a node besides its state: why it is so, and what it waits for.

Pure functions, for the tree of nodes as it is printed and as it is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

from metlmon.model.states import State
from metlmon.snapshot.types import FAILED_JOB, EpochRow, NodeRow, SideCounts, Status
from metlmon.text.formatting import count, number, plain

NAME_LIMIT: Final = 60
REASON_LIMIT: Final = 400
"""Characters of names and reasons; ``--json`` has them whole."""

KINDS: Final = frozenset({"final", "provisioner", "service"})
"""Kinds of nodes that are told in capitals, as the DAG file has them: they stand outside the
graph."""

WAITS: Final = "waits for "
"""What the names of nodes follow that are not done."""

SHORTENED: Final = 4
"""Characters that two names must begin with for the second to be told without them."""


def from_to(first: str, last: str, ascii: bool = False) -> str:
    """``run0-train_epoch0 … 4``: two names, what is the same in them once."""
    first, last = plain(first, NAME_LIMIT, ascii), plain(last, NAME_LIMIT, ascii)
    if first == last:
        return first
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    # A number is told whole: 18 … 20 is not 18 … 0.
    same = "".join(character for character, _ in pairs).rstrip("0123456789")
    rest = last[len(same) :] if len(same) >= SHORTENED else last
    return f"{first} {'...' if ascii else '…'} {rest or last}"


def ended_with(row: NodeRow | EpochRow) -> str:
    """``return value 3``, of a node whose job failed."""
    if row.job_return is not None:
        return f"return value {row.job_return}"
    return "its job was removed" if row.job_state is State.REMOVED else "its job failed"


def failed_evaluations(side: SideCounts, ascii: bool = False) -> tuple[str, str]:
    """``2 evaluations failed``, and what is to be said of their nodes: a POST script may have let
    them pass. Both empty where none has failed."""
    passed, failed = side.overruled, side.failed
    if not passed + failed:
        return "", ""
    told = f"{count(passed + failed, 'evaluation', ascii=ascii)} failed"
    if not failed:
        return told, "its node did not" if passed == 1 else "their nodes did not"
    return told, f"{number(failed, ascii)} for good" if passed else ""


AT_REST: Final = frozenset({State.COMPLETED, State.WAITING, State.SKIPPED})
"""States of a node that is over, or has not begun."""


def others_astir(status: Status) -> Mapping[State, int]:
    """How many nodes that are no epoch are at work or in trouble, by state: while one of them is,
    no epoch may move. Those that are told by name (``special_nodes``), or as evaluations that
    failed (:func:`failed_evaluations`), are not among them."""
    named = Counter(row.state for row in status.special_nodes)
    side = status.side_nodes
    named.update({State.FAILED: side.failed - side.removed, State.REMOVED: side.removed})
    counts = {
        state: status.other_states.get(state, 0) - named[state]
        for state in State
        if state not in AT_REST
    }
    return {state: n for state, n in counts.items() if n > 0}


def counted_states(status: Status) -> Mapping[State, int]:
    """The states of the epochs; where there is no epoch those of the nodes, as DAGMan counts them:
    SERVICE nodes, which are told by name, are not among them."""
    if any(status.epoch_states.values()):
        return status.epoch_states
    services = Counter(row.state for row in status.special_nodes if row.kind == "service")
    return {state: n - services[state] for state, n in status.node_states.items()}


def why(row: NodeRow, ascii: bool = False) -> str:
    """Why a node is at what it is at, as far as anything is known; empty where its state says
    it all."""
    match row.state:
        case State.HELD:
            return plain(row.hold_reason or "the log gives no reason", REASON_LIMIT, ascii)
        case State.WAITING:
            return _waiting(row, ascii)
        case State.FUTILE:
            return (
                f"cannot run: {plain(row.behind or 'a node before it', NAME_LIMIT, ascii)} failed"
            )
        case State.FAILED | State.REMOVED | State.RETRYING:
            return _failed(row, ascii)
        case State.SKIPPED if row.stopped_by is not None:
            by = "somebody asked for it" if row.stopped_by == "file" else row.stopped_by
            return f"skipped: the run was stopped ({plain(by, NAME_LIMIT, ascii)})"
        case State.SKIPPED:
            return "its PRE script ended it without a job"
        case State.COMPLETED if row.ended_with_dag:
            return "ended with its DAG"
        case State.COMPLETED if row.overruled:
            return f"{ended_with(row)}: its POST script let it pass"
        case State.COMPLETED if row.inferred:
            return "inferred: a node after it was submitted"
        case _:
            return ""


def _waiting(row: NodeRow, ascii: bool) -> str:
    if row.waits_for:
        return f"{WAITS}{some(row.waits_for, row.waiting, ascii)}"
    if row.kind == "final":
        return "waits for the end of all others"
    if row.parents:
        return "nothing is before it any more: DAGMan has not submitted it"
    return "not submitted yet"


def some(names: Sequence[str], total: int, ascii: bool = False, told: int = 3) -> str:
    """``a, b, c and 9 more``."""
    shown = ", ".join(plain(name, NAME_LIMIT, ascii) for name in names[:told])
    more = total - min(told, len(names))
    return f"{shown} and {number(more, ascii)} more" if more > 0 else shown


def _failed(row: NodeRow, ascii: bool) -> str:
    if row.reason is not None:
        ended = plain(row.reason, REASON_LIMIT, ascii)
        if not row.jobs and row.submissions > 1:
            ended += f", after {count(row.submissions, 'try', 'tries', ascii)}"
    elif row.job_state is None:
        ended = "DAGMan says that it failed, and not why"
    elif row.job_state in FAILED_JOB:
        ended = ended_with(row)
    else:
        ended = "its POST script failed"
    if not row.retries:
        return ended
    left = row.retries_left or 0
    return f"{ended}, {count(left, 'retry', 'retries', ascii) if left else 'no retries'} left"
