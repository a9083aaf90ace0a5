"""Gates before a run's nodes: which run has one, and what was asked of it.

A gate (``metlmon/trainer/gate.py``) is a PRE script that is given ``<name>.gate.json``; what it
and people say lies in ``gate/<name>/``.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from metlmon.dagman import Node
from metlmon.jobfiles.gate_files import RunGate
from metlmon.model.clock import Clock
from metlmon.snapshot.types import GateStatus, Stopped

LONGEST_COMMAND: Final = 4000
"""Characters of a script's command line in which a gate is looked for."""

_GATE: Final = re.compile(r"(?:^|[\s/'\"])([^\s/'\"]{1,200})\.gate\.json(?=$|[\s'\"])")


def gate_name(node: Node) -> str | None:
    """The ``<name>`` of the gate before this node; None where none stands there."""
    found = gate_called(node)
    return found[1] if found is not None else None


def gate_called(node: Node) -> tuple[str, str] | None:
    """How the gate before this node is called, up to its file, and the ``<name>`` of that."""
    if node.pre is None or ".gate.json" not in node.pre.command:
        return None
    command = node.pre.command[:LONGEST_COMMAND]
    found = _GATE.search(command)
    return (command[: found.start(1)], found.group(1)) if found is not None else None


def gate_of(said: RunGate | None, clock: Clock, cut: datetime | None, alive: bool) -> GateStatus:
    """The gate of a run at a moment: what was said after ``cut`` was not said yet. ``alive``:
    its DAGMan runs; where it does not, no node waits."""
    if said is None:
        return GateStatus()

    def moment(epoch: float | None) -> datetime | None:
        when = _local(epoch, clock)
        return when if when is None or cut is None or when <= cut else None

    stopped, told, paused = None, said.stopped, said.paused
    if told is not None and not (cut is not None and told.time and told.time > cut):
        stopped = Stopped(told.rule, told.epoch, told.reason, told.time)
    since = paused.time if paused is not None else None
    if not alive or (since is not None and cut is not None and since > cut):
        since = None
    return GateStatus(
        _not_after(moment(said.stop), stopped.time if stopped is not None else None),
        moment(said.pause),
        since,
        said.target,
        stopped,
    )


def _not_after(asked: datetime | None, met: datetime | None) -> datetime | None:
    """A request was there when it was met: what says that it is younger is a copy's own time."""
    return min(asked, met) if asked is not None and met is not None else asked


def _local(epoch: float | None, clock: Clock) -> datetime | None:
    if epoch is None:
        return None
    local = clock.local(epoch)
    if local is None:
        try:
            local = datetime.fromtimestamp(epoch)
        except (OverflowError, ValueError, OSError):
            return None
    return local.replace(microsecond=0)
