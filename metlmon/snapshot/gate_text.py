"""Texts about the gate of a run: a symbol in place of its state, and sentences.

Pure functions, shared by commands and screens. A gate's reason is foreign text: it is sanitised
by :func:`metlmon.text.formatting.plain`.
"""

from __future__ import annotations

from typing import Final

from metlmon.model.run import GateStatus, Stopped
from metlmon.model.states import ACTIVE, State
from metlmon.snapshot.types import EpochRow, RunRow, Status
from metlmon.text.formatting import Colour, Symbol, epoch_number, moment, plain

STOPPED: Final = Symbol("□", "stopped", Colour.ORANGE)
"""Its gate stopped it before its last epoch."""

PAUSED: Final = Symbol("◧", "paused", Colour.YELLOW)
"""Its next epoch waits at the gate until the pause is removed."""

REQUESTED: Final = Symbol("◇", "asked", Colour.YELLOW)
"""Beside its state: a request that its gate has not acted on yet."""

MAX_REASON: Final = 1000
MAX_SITE: Final = 60

_RULE_TEXT: Final = {
    "patience": " by patience",
    "divergence": " by divergence",
    "median": " by the median",
}


def gate_symbol(row: RunRow) -> Symbol | None:
    """The symbol of the gate, where it replaces that of the run's state; else None.

    An epoch in progress keeps its own symbol, whatever was requested.
    """
    if row.gate is None or row.state in ACTIVE or row.state in (State.FAILED, State.REMOVED):
        return None
    if row.gate.stopped is not None:
        return STOPPED
    return PAUSED if row.gate.paused is not None else None


def is_waiting_at(row: RunRow, epoch: EpochRow) -> bool:
    """Whether it is this epoch that the gate of its run holds back."""
    paused = row.gate is not None and row.gate.paused is not None
    return paused and epoch.state is State.PRE and gate_symbol(row) is PAUSED


def paused_epochs(status: Status) -> int:
    """The number of epochs whose PRE script is a gate that holds them back."""
    waiting = status.epoch_states.get(State.PRE, 0)
    return min(waiting, sum(gate_symbol(row) is PAUSED for row in status.runs)) if waiting else 0


def waits_since(gate: GateStatus) -> str:
    """The text below an epoch that waits at its gate."""
    return f"waits at the gate since {moment(gate.paused)}"


def epoch_target(row: RunRow, epoch: EpochRow) -> str | None:
    """The target of an epoch.

    One that its gate has not let through yet goes to the target set at the gate.
    """
    gate = row.gate
    if gate is None or gate.target is None or epoch.state not in (State.WAITING, State.PRE):
        return epoch.target
    return epoch.target if epoch.jobs else gate.target


def has_open_request(row: RunRow) -> bool:
    """Whether a request is pending that the symbol of the gate does not show."""
    gate = row.gate
    if gate is None or gate.stopped is not None or _is_complete(row):
        return False
    requests = (gate.stop_requested, gate.pause_requested, gate.target)
    return gate_symbol(row) is None and any(request is not None for request in requests)


def gate_sentences(row: RunRow) -> list[str]:
    """Sentences about a run's gate, the most important one first."""
    gate = row.gate
    if gate is None:
        return []
    if gate.stopped is not None:
        return [_stopped(gate.stopped)]
    if _is_complete(row):
        return []
    sentences = []
    if gate.stop_requested is not None:
        sentences.append(_request_text("stops", row))
    elif gate.paused is not None:
        sentences.append(_paused(gate, row))
    elif gate.pause_requested is not None:
        sentences.append(_request_text("pauses", row))
    if gate.target is not None:
        sentences.append(f"sends its next epochs to {plain(gate.target, MAX_SITE)}")
    return sentences


def ends_before(row: RunRow) -> int | None:
    """The first epoch that the run will not train, since its gate stops it.

    None where it trains all of them.
    """
    if row.gate is None:
        return None
    if row.gate.stopped is not None:
        return row.gate.stopped.epoch
    return _next_epoch(row) if row.gate.stop_requested is not None else None


def _is_complete(row: RunRow) -> bool:
    """Whether no request concerns an epoch any more."""
    return 0 < row.epochs_total <= row.epochs_done


def _stopped(stopped: Stopped) -> str:
    rule = _RULE_TEXT.get(stopped.rule, "")
    before = f" before epoch {epoch_number(stopped.epoch)}" if stopped.epoch is not None else ""
    time = f" at {moment(stopped.time)}" if stopped.time is not None else ""
    reason = plain(stopped.reason, MAX_REASON)
    return f"stopped{rule}{before}{time}" + (f": {reason}" if reason else "")


def _paused(gate: GateStatus, row: RunRow) -> str:
    since = f" since {moment(gate.paused)}"
    number = _next_epoch(row)
    before = f" before epoch {epoch_number(number)}" if number is not None else ""
    if gate.pause_requested is None:
        return f"paused{before}{since}; continues when its gate is asked next"
    return f"paused{before}{since}"


def _request_text(verb: str, row: RunRow) -> str:
    """``stops before epoch 7, when epoch 6 has ended``."""
    number = _next_epoch(row)
    if number is None:
        return f"{verb} before its next epoch"
    latest = row.latest
    before = f"{verb} before epoch {epoch_number(number)}"
    if latest is not None and latest.state is not State.COMPLETED:
        return f"{before}, when epoch {number} has ended"
    return before


def _next_epoch(row: RunRow) -> int | None:
    """The number of the epoch after the latest one; None where that has no number."""
    if row.latest is None:
        return 0
    return None if row.latest.epoch is None else row.latest.epoch + 1
