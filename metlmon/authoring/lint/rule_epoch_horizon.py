"""Rules for the schedule's horizon: a job's own epoch passed as the total number.

A learning-rate schedule depends on the total number of epochs. A job that trains one epoch and
gets "train up to epoch 3" through that same option builds a schedule that ends with epoch 3:
every job of the chain then has a different, too short schedule.
"""

from __future__ import annotations

import os
import re
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.authoring.submit_source import Statement, SubmitText
from metlmon.dagman import Node
from metlmon.dagman.lexer import shown

_HORIZON_NAMES: Final = r"(?:max|num|total|n)[-_]?(?:train[-_]?)?epochs?|epochs|horizon"
_OPTION: Final = re.compile(
    rf"(?<![\w.-])--?[\w.]*?({_HORIZON_NAMES})(?:=|[ \t]++)['\"]*([^\s'\"]+)", re.IGNORECASE
)
_NAME: Final = re.compile(rf"(?:{_HORIZON_NAMES})$", re.IGNORECASE)
_EPOCH: Final = re.compile(r"\$\(epoch(?::[^()]*)?\)", re.IGNORECASE)
_MACRO: Final = re.compile(r"\$\((\w+)")
_MAX_EPOCHS: Final = re.compile(r"max[-_]?epochs?(?:=|[ \t]+)[\"']?\$\{?(\w+)", re.IGNORECASE)

MAX_SCRIPT_BYTES: Final = 1 << 20
"""How many bytes of a script are searched."""


def check(context: LintContext) -> None:
    """Check variables, arguments and scripts of the trainings."""
    _check_variables(context)
    checked: set[int] = set()
    for node, _ in context.trainings():
        text = context.submit_text_of(node)
        if text is None or text.unresolved or id(text) in checked:
            continue
        checked.add(id(text))
        arguments = text.last("arguments", "args")
        if arguments is not None and _EPOCH.search(arguments.value):
            _check_arguments(context, node, text, arguments)


def _check_variables(context: LintContext) -> None:
    """VARS that are named like a horizon but increase with the epoch."""
    runs: dict[str, dict[str, list[tuple[Node, str, int | None]]]] = {}
    for node, part in context.trainings():
        for key, value in node.vars.items():
            if _NAME.match(key):
                runs.setdefault(part.run, {}).setdefault(key, []).append(
                    (node, value, part.epoch_var)
                )
    for names in runs.values():
        for key, settings in names.items():
            equals_epoch = all(value.strip() == str(epoch) for _, value, epoch in settings)
            if equals_epoch and len({value for _, value, _ in settings}) > 1:
                node = settings[0][0]
                message = f"VARS {shown(key)} goes up with the epoch: it is no horizon"
                line = context.line_of_vars(node, key)
                context.findings.add("epoch-is-horizon", node.file, line, message)


def _check_arguments(
    context: LintContext, node: Node, text: SubmitText, arguments: Statement
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
    script = _find_script(context, node, text, arguments)
    if script is None:
        message = "the jobs are told their own epoch, and not how many there are in all"
        context.report("no-horizon", arguments, message)
        return
    path, position = script
    _check_script(context, path, position)


def _find_script(
    context: LintContext, node: Node, text: SubmitText, arguments: Statement
) -> tuple[str, int] | None:
    """The script that gets the arguments, and the position of the epoch among them.

    None if the script is not readable here.
    """
    words = arguments.value.strip('"').split()
    position = next((index for index, word in enumerate(words) if _EPOCH.search(word)), 0)
    executable = (context.values(node, text, "executable")["executable"] or "").strip()
    if is_posix_shell(executable) and words:
        name = words[0]
    else:
        name, position = executable, position + 1
    if not name or "$" in name:
        return None
    for directory in (context.dagman_dir / (node.dir or ""), context.workflow.path.parent):
        path = os.path.normpath(os.path.join(directory, name))
        if os.path.isfile(path):
            return path, position
    return None


def is_posix_shell(executable: str) -> bool:
    """Whether it is a shell whose first argument is the script."""
    return os.path.basename(executable) in ("sh", "bash", "dash", "zsh", "ksh")


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
        if line.lstrip().startswith("#"):
            continue
        for variable in _MAX_EPOCHS.findall(line):
            if variable in names:
                message = "the script makes its max_epochs of the epoch that the job is told"
                name = os.path.relpath(path, context.dagdir)
                context.findings.add("epoch-is-horizon", name, number, message)
                return
