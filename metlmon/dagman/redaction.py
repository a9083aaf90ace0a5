"""Redacts secrets in the nodes, after submit macros have been expanded.

Submit descriptions name files by VARS. Their macros are expanded with the original values, so
that a log whose name only looks like a secret is still found.
"""

from __future__ import annotations

from collections.abc import Iterable

from metlmon.dagman.records import Node, Script
from metlmon.redact import hide_value, redact_secrets


def redact_nodes(nodes: Iterable[Node]) -> None:
    """Redact secrets in VARS, attributes and script command lines of nodes."""
    # Most pairs occur in many nodes.
    cached: dict[tuple[str, str], str] = {}
    scripts: dict[Script, Script] = {}
    for node in nodes:
        for pair in node.vars.items():
            value = cached.get(pair)
            if value is None:
                value = cached[pair] = hide_value(*pair)
            if value is not pair[1] and value != pair[1]:
                # Changing only values is safe during the iteration.
                node.vars[pair[0]] = value
        if node.attributes:
            node.attributes = {k: hide_value(k, v) for k, v in node.attributes.items()}
        if node.pre or node.post or node.hold:
            node.pre, node.post, node.hold = (
                script and (scripts.get(script) or scripts.setdefault(script, _redacted(script)))
                for script in (node.pre, node.post, node.hold)
            )


def _redacted(script: Script) -> Script:
    command = redact_secrets(script.command)
    return script if command == script.command else Script(command, script.defer)
