"""Gates of a run's nodes: detection, and their status at a moment.

A gate (``metlmon/trainer/gate.py``) is a PRE script with the argument ``<name>.gate.json``; its
own files and users' requests are in ``gate/<name>/``.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from metlmon.dagman import Node
from metlmon.jobfiles.gate_files import RunGate
from metlmon.model.clock import Clock
from metlmon.snapshot.types import GateStatus, Stopped

MAX_COMMAND_LENGTH: Final = 4000
"""Characters of a script's command line that are searched for a gate."""

_GATE: Final = re.compile(r"(?:^|[\s/'\"])([^\s/'\"]{1,200})\.gate\.json(?=$|[\s'\"])")


def gate_name(node: Node) -> str | None:
    """The ``<name>`` of the node's gate, None without one."""
    gate = gate_command(node)
    return gate[1] if gate is not None else None


def gate_command(node: Node) -> tuple[str, str] | None:
    """The command of the node's gate up to its file, and the file's ``<name>``."""
    if node.pre is None or ".gate.json" not in node.pre.command:
        return None
    command = node.pre.command[:MAX_COMMAND_LENGTH]
    match = _GATE.search(command)
    return (command[: match.start(1)], match.group(1)) if match is not None else None


def gate_status(
    files: RunGate | None, clock: Clock, cut: datetime | None, alive: bool
) -> GateStatus:
    """The status of a run's gate at ``cut``; later requests are ignored.

    ``alive``: its DAGMan is running; otherwise no node waits.
    """
    if files is None:
        return GateStatus()

    def moment(epoch: float | None) -> datetime | None:
        time = _local(epoch, clock)
        return time if time is None or cut is None or time <= cut else None

    stopped, stop, paused = None, files.stopped, files.paused
    if stop is not None and not (cut is not None and stop.time and stop.time > cut):
        stopped = Stopped(stop.rule, stop.epoch, stop.reason, stop.time)
    since = paused.time if paused is not None else None
    if not alive or (since is not None and cut is not None and since > cut):
        since = None
    return GateStatus(
        _earlier_request(moment(files.stop), stopped.time if stopped is not None else None),
        moment(files.pause),
        since,
        files.target,
        stopped,
    )


def _earlier_request(requested: datetime | None, executed: datetime | None) -> datetime | None:
    """The time of a request, at most that of its execution.

    A copied request file has a later modification time.
    """
    return min(requested, executed) if requested is not None and executed is not None else requested


def _local(epoch: float | None, clock: Clock) -> datetime | None:
    if epoch is None:
        return None
    local = clock.to_local(epoch)
    if local is None:
        try:
            local = datetime.fromtimestamp(epoch)
        except (OverflowError, ValueError, OSError):
            return None
    return local.replace(microsecond=0)
