"""Applies commands to existing nodes: SCRIPT, RETRY, VARS, PRIORITY, DONE etc.

Source followed: the ``Process…`` functions of DAGMan's ``parse.cpp``.
"""

from __future__ import annotations

from metlmon.dagman.commands import (
    AbortCommand,
    CategoryCommand,
    DoneCommand,
    NodeModifier,
    PreSkipCommand,
    PriorityCommand,
    RetryCommand,
    SavePointCommand,
    ScriptCommand,
    ScriptKind,
    VarsCommand,
)
from metlmon.dagman.records import Node, NodeKind, Script

#: The kinds of nodes to which the commands of ``_FOR_ORDINARY`` apply.
_ORDINARY = frozenset({NodeKind.JOB, NodeKind.SUBDAG, NodeKind.JOIN})
_FOR_ORDINARY = {
    RetryCommand: "RETRY",
    PriorityCommand: "PRIORITY",
    CategoryCommand: "CATEGORY",
    SavePointCommand: "SAVE_POINT_FILE",
    DoneCommand: "DONE",
}


def applies(command: NodeModifier, node: Node) -> bool:
    """Whether DAGMan allows this command for a node of this kind."""
    if type(command) in _FOR_ORDINARY:
        return node.kind in _ORDINARY
    if isinstance(command, AbortCommand):
        return node.kind is not NodeKind.FINAL
    return True


def keyword(command: NodeModifier) -> str:
    """The keyword of a command that does not apply to every kind of node."""
    return _FOR_ORDINARY.get(type(command), "ABORT-DAG-ON")


def apply(command: NodeModifier, node: Node) -> None:
    """Apply the command to ``node``; the last of several wins."""
    match command:
        case ScriptCommand(kind=kind, command=line, defer=defer):
            _set_script(node, kind, Script(line, defer))
        case RetryCommand(retries=retries, unless_exit=code):
            node.retries, node.unless_exit = retries, code
        case AbortCommand(on=status, returns=code):
            node.abort_on, node.abort_return = status, code
        case VarsCommand(pairs=pairs):
            _set_vars(node, pairs)
        case PriorityCommand(priority=priority):
            node.priority = priority
        case PreSkipCommand(code=code):
            node.pre_skip = code
        case CategoryCommand(category=category):
            node.category = category
        case DoneCommand():
            node.done = True
        case _:
            pass


def attribute_name(key: str) -> str | None:
    """The job attribute that a VARS name sets (``+x``, ``My.x``), None for a macro."""
    if key[0] == "+":
        return key[1:]
    if key[0] in "mM" and key.lower().startswith("my."):
        return key[len("my.") :]
    return None


def _set_vars(node: Node, pairs: tuple[tuple[str, str], ...]) -> None:
    attributes: dict[str, str] = {}
    for key, value in pairs:
        if (name := attribute_name(key)) is not None:
            attributes[name] = value
        else:
            # Removed first to keep the order of writing: macros are case-insensitive in
            # HTCondor, and the last one written wins.
            node.vars.pop(key, None)
            node.vars[key] = value
    if attributes:
        if node.attributes and isinstance(node.attributes, dict):
            node.attributes.update(attributes)  # created here, not shared with other nodes
        else:
            node.attributes = attributes


def _set_script(node: Node, kind: ScriptKind, script: Script) -> None:
    match kind:
        case ScriptKind.PRE:
            node.pre = script
        case ScriptKind.POST:
            node.post = script
        case ScriptKind.HOLD:
            node.hold = script
