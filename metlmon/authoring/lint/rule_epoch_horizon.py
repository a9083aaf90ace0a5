"""The epoch that a job is told, and whether its training takes it for the number of all epochs.

A learning-rate schedule is made from the number of epochs in all. A job that trains one epoch and
is told "train up to epoch 3" by that same number makes a schedule that ends with epoch 3: every
job of the chain has another one, each too short.
"""

from __future__ import annotations

import os
import re
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.authoring.lint.source_map import Statement, SubmitText
from metlmon.dagman import Node
from metlmon.dagman.lexer import shown

_WORDS: Final = r"(?:max|num|total|n)[-_]?(?:train[-_]?)?epochs?|epochs|horizon"
_OPTION: Final = re.compile(
    rf"(?<![\w.-])--?[\w.]*?({_WORDS})(?:=|[ \t]++)['\"]*([^\s'\"]+)", re.IGNORECASE
)
_NAME: Final = re.compile(rf"(?:{_WORDS})$", re.IGNORECASE)
_EPOCH: Final = re.compile(r"\$\(epoch(?::[^()]*)?\)", re.IGNORECASE)
_MACRO: Final = re.compile(r"\$\((\w+)")
_TOLD: Final = re.compile(r"max[-_]?epochs?(?:=|[ \t]+)[\"']?\$\{?(\w+)", re.IGNORECASE)

LARGEST_SCRIPT: Final = 1 << 20
"""Bytes of a script that is looked into."""


def check(look: LintContext) -> None:
    _variables(look)
    done: set[int] = set()
    for node, _ in look.trainings():
        text = look.described(node)
        if text is None or text.unresolved or id(text) in done:
            continue
        done.add(id(text))
        place = text.last("arguments", "args")
        if place is not None and _EPOCH.search(place.value):
            _arguments(look, node, text, place)


def _variables(look: LintContext) -> None:
    """VARS that name a horizon and go up with the epoch."""
    runs: dict[str, dict[str, list[tuple[Node, str, int | None]]]] = {}
    for node, part in look.trainings():
        for key, value in node.vars.items():
            if _NAME.match(key):
                runs.setdefault(part.run, {}).setdefault(key, []).append(
                    (node, value, part.epoch_var)
                )
    for names in runs.values():
        for key, told in names.items():
            same = all(value.strip() == str(epoch) for _, value, epoch in told)
            if same and len({value for _, value, _ in told}) > 1:
                node = told[0][0]
                what = f"VARS {shown(key)} goes up with the epoch: it is no horizon"
                line = look.line_of_vars(node, key)
                look.found.add("epoch-is-horizon", node.file, line, what)


def _arguments(look: LintContext, node: Node, text: SubmitText, place: Statement) -> None:
    options = _OPTION.findall(place.value)
    for name, value in options:
        if _EPOCH.search(value):
            what = f"{shown(name)}, the horizon of the schedule, is the job's own epoch"
            look.found.add("epoch-is-horizon", place.file, place.line, what)
            return
    if options or any(_NAME.match(name) for name in _MACRO.findall(place.value)):
        return
    script = _script(look, node, text, place)
    if script is None:
        what = "the jobs are told their own epoch, and not how many there are in all"
        look.found.add("no-horizon", place.file, place.line, what)
        return
    path, position = script
    _inside(look, path, position)


def _script(
    look: LintContext, node: Node, text: SubmitText, place: Statement
) -> tuple[str, int] | None:
    """The script that gets the arguments, and which of them is the epoch; None where it is not
    here to be read."""
    words = place.value.strip('"').split()
    position = next((i for i, word in enumerate(words) if _EPOCH.search(word)), 0)
    executable = (look.values(node, text, "executable")["executable"] or "").strip()
    if posix_shell(executable) and words:
        name = words[0]
    else:
        name, position = executable, position + 1
    if not name or "$" in name:
        return None
    for folder in (look.home / (node.dir or ""), look.flow.path.parent):
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(path):
            return path, position
    return None


def posix_shell(executable: str) -> bool:
    """Is it the shell, and the script its first argument?"""
    return os.path.basename(executable) in ("sh", "bash", "dash", "zsh", "ksh")


def _inside(look: LintContext, path: str, position: int) -> None:
    try:
        with open(path, "rb") as file:
            source = file.read(LARGEST_SCRIPT).decode("utf-8", "replace")
    except OSError:
        return
    given = re.compile(rf"(?<!\w)(\w++)=[\"']?\$\{{?{position}(?!\d)")
    names = {str(position), *given.findall(source)}
    for number, line in enumerate(source.split("\n"), start=1):
        if line.lstrip().startswith("#"):
            continue
        for told in _TOLD.findall(line):
            if told in names:
                what = "the script makes its max_epochs of the epoch that the job is told"
                name = os.path.relpath(path, look.dagdir)
                look.found.add("epoch-is-horizon", name, number, what)
                return
