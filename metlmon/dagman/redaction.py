"""What looks like a key goes out of the nodes of a workflow, once nothing is made of it any more.

Submit descriptions name files by VARS: their macros are filled in before, with what the DAG file
says, so that a log whose name only looks like a secret is followed all the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from metlmon.dagman.records import Node, Script
from metlmon.redact import hide_value, redact_secrets


def hide_secrets(nodes: Iterable[Node]) -> None:
    """Hide values of VARS and of attributes, and what stands in the command lines of scripts."""
    # Most pairs stand in many nodes.
    told: dict[tuple[str, str], str] = {}
    scripts: dict[Script, Script] = {}
    for node in nodes:
        for pair in node.vars.items():
            value = told.get(pair)
            if value is None:
                value = told[pair] = hide_value(*pair)
            if value is not pair[1] and value != pair[1]:
                # Only values change while the dictionary is gone over.
                node.vars[pair[0]] = value
        if node.attributes:
            node.attributes = {k: hide_value(k, v) for k, v in node.attributes.items()}
        if node.pre or node.post or node.hold:
            node.pre, node.post, node.hold = (
                script and (scripts.get(script) or scripts.setdefault(script, _hidden(script)))
                for script in (node.pre, node.post, node.hold)
            )


def _hidden(script: Script) -> Script:
    command = redact_secrets(script.command)
    return script if command == script.command else Script(command, script.defer)
