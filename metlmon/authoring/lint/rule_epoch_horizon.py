"""Rules for the schedule's horizon: a job's own epoch passed as the total number.

A learning-rate schedule depends on the total number of epochs. A job that trains one epoch and
gets "train up to epoch 3" through that same option builds a schedule that ends with epoch 3:
every job of the chain then has a different, too short schedule.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.dagman import Node
from metlmon.dagman.lexer import shown
from metlmon.dagman.submit_description import Description, Statement

_HORIZON_NAMES: Final = r"(?:max|num|total|n)[-_]?(?:train[-_]?)?epochs?|epochs|horizon"
_OPTION: Final = re.compile(
    rf"(?<![\w.-])--?[\w.]*?({_HORIZON_NAMES})(?:=|[ \t]++)['\"]*([^\s'\"]+)", re.IGNORECASE
)
_NAME: Final = re.compile(rf"(?:{_HORIZON_NAMES})$", re.IGNORECASE)
_EPOCH: Final = re.compile(r"\$\(epoch(?::[^()]*)?\)", re.IGNORECASE)
_MACRO: Final = re.compile(r"\$\((\w+)")
_MAX_EPOCHS: Final = re.compile(r"max[-_]?epochs?(?:=|[ \t]+)[\"']?\$\{?(\w+)", re.IGNORECASE)

_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
"""Programs whose first argument is the script."""

MAX_SCRIPT_BYTES: Final = 1 << 20
"""How many bytes of a script are searched."""


def check(context: LintContext) -> None:
    """Check variables, arguments and scripts of the trainings."""
    _check_variables(context)
    checked: set[int] = set()
    for node, _ in context.trainings():
        text = context.description_of(node)
        if text is not None and not text.unresolved and id(text) not in checked:
            checked.add(id(text))
            arguments = text.last("arguments", "args")
            if arguments is not None and _EPOCH.search(arguments.value):
                _check_arguments(context, node, text, arguments)


def _check_variables(context: LintContext) -> None:
    """VARS that are named like a horizon but increase with the epoch."""
    settings: dict[tuple[str, str], list[tuple[Node, str, bool]]] = defaultdict(list)
    for node, part in context.trainings():
        for key, value in node.vars.items():
            if _NAME.match(key):
                equals_epoch = value.strip() == str(part.epoch_var)
                settings[part.run, key].append((node, value, equals_epoch))
    for (_, key), found in settings.items():
        values = {value for _, value, _ in found}
        if len(values) > 1 and all(equals_epoch for _, _, equals_epoch in found):
            node = found[0][0]
            message = f"VARS {shown(key)} goes up with the epoch: it is no horizon"
            line = context.line_of_vars(node, key)
            context.findings.add("epoch-is-horizon", node.file, line, message)


def _check_arguments(
    context: LintContext, node: Node, text: Description, arguments: Statement
) -> None:
    """Arguments that pass the epoch as the horizon, or no horizon at all."""
    options = _OPTION.findall(arguments.value)
    for name, value in options:
        if _EPOCH.search(value):
            message = f"{shown(name)}, the horizon of the schedule, is the job's own epoch"
            context.report("epoch-is-horizon", arguments, message)
            return
    if options or any(_NAME.match(name) for name in _MACRO.findall(arguments.value)):
        return
    # The script that gets the arguments, and the position of the epoch among them.
    words = arguments.value.strip('"').split()
    position = next((index for index, word in enumerate(words) if _EPOCH.search(word)), 0)
    script = (context.values(node, text, "executable")["executable"] or "").strip()
    if words and os.path.basename(script) in _SHELLS:
        script = words[0]
    else:
        position += 1
    directories = (context.dagman_dir / (node.dir or ""), context.workflow.path.parent)
    paths = (os.path.normpath(os.path.join(directory, script)) for directory in directories)
    path = next(filter(os.path.isfile, paths), None) if script and "$" not in script else None
    if path is None:
        message = "the jobs get their own epoch, and not the number of epochs"
        context.report("no-horizon", arguments, message)
    else:
        _check_script(context, path, position)


def _check_script(context: LintContext, path: str, position: int) -> None:
    """A script that sets max_epochs from the epoch passed to it."""
    try:
        with open(path, "rb") as file:
            source = file.read(MAX_SCRIPT_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    assignment = re.compile(rf"(?<!\w)(\w++)=[\"']?\$\{{?{position}(?!\d)")
    names = {str(position), *assignment.findall(source)}
    for number, line in enumerate(source.split("\n"), start=1):
        is_comment = line.lstrip().startswith("#")
        if not is_comment and not names.isdisjoint(_MAX_EPOCHS.findall(line)):
            message = "the script makes its max_epochs of the epoch that the job gets"
            name = os.path.relpath(path, context.dagdir)
            context.findings.add("epoch-is-horizon", name, number, message)
            return
