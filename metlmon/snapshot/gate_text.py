"""What is told of a run's gate: a sign in place of its state, and sentences.

Pure functions, shared by commands and screens. A gate's reason is foreign text: it comes back as
:func:`metlmon.text.formatting.plain` made it.
"""

from __future__ import annotations

from typing import Final

from metlmon.model.states import ACTIVE, State
from metlmon.snapshot.types import EpochRow, GateStatus, RunRow, Status, Stopped
from metlmon.text.formatting import Colour, Symbol, moment, plain

STOPPED: Final = Symbol("□", "T", "stopped", Colour.ORANGE)
"""Its gate ended it before its last epoch."""

PAUSED: Final = Symbol("◧", "U", "paused", Colour.YELLOW)
"""Its next epoch waits at the gate until somebody lets it go on."""

ASKED: Final = Symbol("◇", "~", "asked", Colour.YELLOW)
"""Beside its state: something was asked of it that its gate has not answered yet."""

REASON_LIMIT: Final = 1000
SITE_LIMIT: Final = 60

_BY: Final = {
    "patience": " by patience",
    "divergence": " by divergence",
    "median": " by the median",
}


def gate_sign(row: RunRow) -> Symbol | None:
    """The sign that tells more than the state of the run's latest epoch; None where that is what
    there is to tell: an epoch under way is, whatever was asked for."""
    if row.gate is None or row.state in ACTIVE or row.state in (State.FAILED, State.REMOVED):
        return None
    if row.gate.stopped is not None:
        return STOPPED
    return PAUSED if row.gate.paused is not None else None


def is_waiting_at(row: RunRow, epoch: EpochRow) -> bool:
    """Is it this epoch that the gate of its run keeps waiting?"""
    paused = row.gate is not None and row.gate.paused is not None
    return paused and epoch.state is State.PRE and gate_sign(row) is PAUSED


def paused_epochs(status: Status) -> int:
    """Of how many epochs the PRE script is a gate that keeps them waiting."""
    waiting = status.epoch_states.get(State.PRE, 0)
    return min(waiting, sum(gate_sign(row) is PAUSED for row in status.runs)) if waiting else 0


def waits_since(gate: GateStatus, ascii: bool = False) -> str:
    """What is told below an epoch that waits at its gate."""
    return f"waits at the gate since {moment(gate.paused, ascii)}"


def target_of(row: RunRow, epoch: EpochRow) -> str | None:
    """Where an epoch is to go: one that its gate has not let through goes where its run was
    sent."""
    gate = row.gate
    if gate is None or gate.target is None or epoch.state not in (State.WAITING, State.PRE):
        return epoch.target
    return epoch.target if epoch.jobs else gate.target


def is_asked(row: RunRow) -> bool:
    """Is there more to tell of its gate than its sign does?"""
    gate = row.gate
    if gate is None or gate.stopped is not None or _is_complete(row):
        return False
    asked = (gate.stop_asked, gate.pause_asked, gate.target)
    return gate_sign(row) is None and any(each is not None for each in asked)


def gate_told(row: RunRow, ascii: bool = False) -> list[str]:
    """Sentences about the run's gate, the one that matters most first; none where nothing was
    asked and nothing happened."""
    gate = row.gate
    if gate is None:
        return []
    if gate.stopped is not None:
        return [_stopped(gate.stopped, ascii)]
    if _is_complete(row):
        return []
    told = []
    if gate.stop_asked is not None:
        told.append(_before("stops", row))
    elif gate.paused is not None:
        told.append(_paused(gate, row, ascii))
    elif gate.pause_asked is not None:
        told.append(_before("pauses", row))
    if gate.target is not None:
        told.append(f"sends its next epochs to {plain(gate.target, SITE_LIMIT, ascii)}")
    return told


def ends_before(row: RunRow) -> int | None:
    """The first epoch that the run will not train, since its gate ended it or is to; None where it
    trains all of them."""
    if row.gate is None:
        return None
    if row.gate.stopped is not None:
        return row.gate.stopped.epoch
    return _next(row) if row.gate.stop_asked is not None else None


def _is_complete(row: RunRow) -> bool:
    """Nothing that was asked of it concerns an epoch any more."""
    return 0 < row.epochs_total <= row.epochs_done


def _stopped(stopped: Stopped, ascii: bool) -> str:
    by = _BY.get(stopped.rule, "")
    before = f" before epoch {stopped.epoch}" if stopped.epoch is not None else ""
    when = f" at {moment(stopped.time, ascii)}" if stopped.time is not None else ""
    why = plain(stopped.reason, REASON_LIMIT, ascii)
    return f"stopped{by}{before}{when}" + (f": {why}" if why else "")


def _paused(gate: GateStatus, row: RunRow, ascii: bool) -> str:
    since = f" since {moment(gate.paused, ascii)}"
    number = _next(row)
    before = f" before epoch {number}" if number is not None else ""
    if gate.pause_asked is None:
        return f"paused{before}{since}; goes on when its gate is asked next"
    return f"paused{before}{since}"


def _before(does: str, row: RunRow) -> str:
    """``stops before epoch 7, when epoch 6 has ended``."""
    number = _next(row)
    if number is None:
        return f"{does} before its next epoch"
    latest = row.latest
    if latest is not None and latest.state is not State.COMPLETED:
        return f"{does} before epoch {number}, when epoch {latest.epoch} has ended"
    return f"{does} before epoch {number}"


def _next(row: RunRow) -> int | None:
    """The number of the epoch after the latest one; None where that has no number."""
    if row.latest is None:
        return 0
    return None if row.latest.epoch is None else row.latest.epoch + 1
