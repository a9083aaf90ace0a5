"""Files that a DAG needs: submit files, executables, inputs, scripts, directories.

Of a DAG that has run everything was there once, or was lived without: what is missing in a copy
of it is told in one note.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import stat
from collections.abc import Iterator
from typing import Final

from metlmon.authoring.gate_config import INTERPRETER, SCRIPT
from metlmon.authoring.lint.context import LintContext
from metlmon.authoring.lint.finding import listed
from metlmon.authoring.lint.source_map import SubmitText
from metlmon.dagman import Node
from metlmon.dagman.commands import JobstateCommand, ScriptCommand
from metlmon.dagman.lexer import Tokens, shown
from metlmon.frozen import frozen

_NO: Final = frozenset({"false", "f", "no", "n", "0"})

#: An absolute path is one in the image there.
_IN_AN_IMAGE: Final = frozenset({"container", "docker"})

#: Where the executable is a program of the schedd's machine, or of no machine of ours.
_ELSEWHERE: Final = frozenset({"grid", "vm", "java"})

MOST_NAMES: Final = 500_000
"""Names of input files that are gone over, of all nodes together: some seconds at most."""

#: What stands behind ``from``: no list of items in brackets, and no slice.
_FROM_FILE: Final = re.compile(r"\bfrom[ \t]+(?!\()(?:\[[^\]]*\][ \t]*)?([^(].*)", re.IGNORECASE)

_HEAD: Final = 512
"""Bytes of a script that tell how its first line ends."""

_COMMANDS: Final = (
    *("executable", "transfer_executable", "universe", "initialdir", "initial_dir"),
    *("transfer_input_files", "transferinputfiles", "container_image", "docker_image"),
)


class _Missing:
    """What is not there: told one by one, or all in one note."""

    def __init__(self, look: LintContext) -> None:
        self._look = look
        self._gone: dict[str, None] = {}

    def tell(self, kind: str, file: str, line: int | None, name: str, what: str) -> None:
        if self._look.ran:
            self._gone[shown(name)] = None
        else:
            self._look.found.add(kind, file, line, what, about=name)

    def finish(self) -> None:
        if self._gone:
            text = f"it has run; what it needed is not here: {listed(list(self._gone))}"
            self._look.found.add("files-not-here", self._look.name, None, text)


def check(look: LintContext) -> None:
    missing = _Missing(look)
    _configs(look)
    _scripts(look, missing)
    _directories(look, missing)
    _status_logs(look, missing)
    inputs = _Inputs(look, missing)
    for node in look.jobs():
        text = look.described(node)
        if text is None:
            if name := node.submit:
                what = f"the submit file {shown(name)} of {shown(node.name)} cannot be read"
                missing.tell("missing-submit-file", node.file, node.line, name, what)
            continue
        if not node.done:
            inputs.of(node, text)
            _items(look, node, text, missing)
    inputs.finish()
    missing.finish()
    if look.shelf.full:
        text_ = "more files are named than are looked for"
        look.found.add("too-many-files", look.name, None, text_)


# --- files of the DAG ---------------------------------------------------------------------


def _configs(look: LintContext) -> None:
    for name, told in look.commands.items():
        first = ""
        for each in told:
            if each.keyword == "CONFIG" and each.command is not None:
                file = Tokens(each.rest).file()
                first = first or file
                # They are compared as they are written.
                if file != first:
                    text = f"the configuration file {shown(file)} is named behind {shown(first)}"
                    look.found.add("second-config", name, each.line, text)
                if not _anywhere(look, name, file, "."):
                    text = f"the configuration file {shown(file)} is not there"
                    look.found.add("missing-config", name, each.line, text)


def _anywhere(look: LintContext, dag: str, file: str, folder: str) -> str | None:
    """Where it is: as DAGMan sees it, or beside the DAG file that names it."""
    for base in (look.home / folder, look.names[dag].parent):
        path = os.path.normpath(os.path.join(base, file))
        if look.shelf.there(path):
            return path
    return None


def _directories(look: LintContext, missing: _Missing) -> None:
    """DIR of nodes, those without a job too: DAGMan goes there while it reads the DAG."""
    for node in look.flow.nodes.values():
        if not node.dir or node.file not in look.names:
            continue
        if _anywhere(look, node.file, node.dir, ".") is None:
            what = f"the directory {shown(node.dir)} of {shown(node.name)} is not there"
            missing.tell("missing-directory", node.file, node.line, node.dir, what)


def _status_logs(look: LintContext, missing: _Missing) -> None:
    """The folder of a JOBSTATE_LOG: DAGMan opens that file before it starts any node."""
    log = look.flow.jobstate_log
    folder = posixpath.dirname(log or "")
    if log is None or not folder or _anywhere(look, look.name, folder, ".") is not None:
        return
    for name, told in look.commands.items():
        for each in told:
            if isinstance(each.command, JobstateCommand) and each.command.file == log:
                what = f"the directory of the JOBSTATE_LOG {shown(log)} is not there"
                missing.tell("missing-directory", name, each.line, folder, what)
                return


def _items(look: LintContext, node: Node, text: SubmitText, missing: _Missing) -> None:
    """The file that ``queue … from FILE`` reads, when the node is submitted."""
    for each in text.statements:
        found = _FROM_FILE.search(each.value) if each.directive and each.key == "queue" else None
        if found is None or "$" in found[1] or found[1].endswith("|"):
            continue
        file = found[1].strip().strip('"')
        if file and _anywhere(look, node.file, file, node.dir or ".") is None:
            what = f"the file {shown(file)}, which a queue line reads items from, is not there"
            missing.tell("missing-queue-items", each.file, each.line, file, what)


def _scripts(look: LintContext, missing: _Missing) -> None:
    for name, told in look.commands.items():
        for each in told:
            command = each.command
            if isinstance(command, ScriptCommand):
                node = look.flow.nodes.get(command.node)
                folder = (node.dir if node is not None else None) or "."
                _script(look, missing, name, each.line, command, folder)


def _script(
    look: LintContext, missing: _Missing, dag: str, line: int, command: ScriptCommand, folder: str
) -> None:
    file = command.command.split(None, 1)[0]
    if "$" in file:
        return
    if "'" in file or '"' in file:
        text = f"the {command.kind.name} script of {shown(command.node)} is written in quotes"
        look.found.add("script-quoted", dag, line, text)
        return
    what = f"{command.kind.name} script {shown(file)} of {shown(command.node)}"
    path = _anywhere(look, dag, file, folder)
    if path is None:
        missing.tell("missing-script", dag, line, file, f"the {what} is not there")
        return
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    if not look.ran and not mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
        look.found.add(
            "script-not-executable", dag, line, f"the {what} is not executable", about=file
        )
    first = _first_line(path)
    if first.endswith("\r"):
        text = f"the first line of the {what} ends in CR LF"
        look.found.add("script-crlf", dag, line, text, about=file)
        return
    needed = _interpreter(first)
    if os.path.basename(path) == SCRIPT and ".gate.json" in command.command:
        needed = INTERPRETER
    if needed is not None and not look.ran and shutil.which(needed) is None:
        where = "is not there" if "/" in needed else "is not on PATH here"
        text = f"the {what} needs {shown(needed)}, which {where}"
        look.found.add("no-interpreter", dag, line, text, about=needed)


def _first_line(path: str) -> str:
    """The first line of a script, if it names an interpreter; else nothing."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except (OSError, ValueError):
        return ""
    return head.split(b"\n", 1)[0].decode("utf-8", "replace") if head.startswith(b"#!") else ""


def _interpreter(first: str) -> str | None:
    """The program that runs a script with this first line, looked up by ``env`` or not."""
    program, *words = first.removeprefix("#!").split() or [""]
    if os.path.basename(program) == "env":
        program = next((each for each in words if not each.startswith("-") and "=" not in each), "")
    return program or None


# --- files of the jobs --------------------------------------------------------------------


@frozen
class _Gone:
    """A file that is not there. ``first``: a node needs it that nothing comes before."""

    first: bool
    executable: bool
    file: str
    line: int
    what: str


class _Inputs:
    """What jobs take along. A file that is not there is no mistake where an earlier node may
    leave it: then it is told only if its name is the same for all nodes, and not for sure."""

    def __init__(self, look: LintContext, missing: _Missing) -> None:
        self._look = look
        self._missing = missing
        self._gone: dict[tuple[str, str], _Gone] = {}
        #: Files by (base, name) that are there, or that an earlier node may well leave there.
        self._fine: set[tuple[str, str]] = set()
        self._later: set[tuple[str, str]] = set()
        self._left = MOST_NAMES

    def of(self, node: Node, text: SubmitText) -> None:
        said = self._look.values(node, text, *_COMMANDS)
        folder = (said["initialdir"] or said["initial_dir"] or "").strip()
        base = posixpath.join(node.dir or "", folder)
        if "$" in base or self._look.shelf.full:
            return
        if base and not self._is_there(node, "", base):
            if folder:
                what = f"the initialdir {shown(base)} of {shown(node.name)} is not there"
                self._missing.tell("missing-directory", node.file, node.line, base, what)
            return
        for key, name in _taken(said):
            self._left -= 1
            if self._left < 0 or self._look.shelf.full:
                return
            if "$" not in name and "://" not in name:
                self._take(node, text, key, name, base)

    def _take(self, node: Node, text: SubmitText, key: str, name: str, base: str) -> None:
        this = (base, name)
        first = not node.parents and node.pre is None
        known = self._gone.get(this)
        if this in self._fine or (not first and (known is not None or this in self._later)):
            return
        if known is not None and known.first:
            return
        if known is None and self._is_there(node, base, name):
            self._fine.add(this)
            if key == "executable":
                self._line_end(text, name, base)
            return
        written = (_names(each.value) for each in text.statements if each.key == key)
        if not first and not any(name in names for names in written):
            self._later.add(this)
            return
        place = text.last(key)
        file, line = (place.file, place.line) if place else (text.file, text.line)
        executable = key == "executable"
        which = "the executable" if executable else "the file"
        what = f"{which} {shown(name)}, which {shown(node.name)} takes along, is not there"
        self._gone[this] = _Gone(first, executable, file, line, what)

    def _line_end(self, text: SubmitText, name: str, base: str) -> None:
        if _first_line(os.path.join(self._look.home, base, name)).endswith("\r"):
            place = text.last("executable")
            file, line = (place.file, place.line) if place else (text.file, text.line)
            what = f"the first line of the executable {shown(name)} ends in CR LF"
            self._look.found.add("script-crlf", file, line, what, about=name)

    def _is_there(self, node: Node, base: str, name: str) -> bool:
        folders = [self._look.home / base]
        if node.file in self._look.names:
            folders.append(self._look.names[node.file].parent / base)
        paths = (os.path.normpath(os.path.join(folder, name)) for folder in folders)
        return any(self._look.shelf.there(path) for path in paths)

    def finish(self) -> None:
        for (_, name), gone in self._gone.items():
            kind = "missing-executable" if gone.executable else "missing-input"
            kind = kind if gone.first else "missing-later-input"
            self._missing.tell(kind, gone.file, gone.line, name, gone.what)


def _taken(said: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    """The files of one job, with the command that names each: what is sent from here."""
    executable = (said["executable"] or "").strip().strip('"')
    sent = (said["transfer_executable"] or "").strip().lower() not in _NO
    universe = (said["universe"] or "").strip().lower()
    imaged = universe in _IN_AN_IMAGE or said["container_image"] or said["docker_image"]
    if imaged and executable.startswith("/"):
        sent = False
    if executable and sent and universe not in _ELSEWHERE:
        yield "executable", executable
    image = (said["container_image"] or "").strip().strip('"')
    if image.endswith(".sif"):
        yield "container_image", image
    for key in ("transfer_input_files", "transferinputfiles"):
        for name in _names(said[key]):
            yield key, name


def _names(value: str | None) -> Iterator[str]:
    for name in (value or "").strip().strip('"').split(","):
        if name := name.strip():
            yield name
