"""Files that a DAG needs: submit files, executables, inputs, scripts, directories.

Of a DAG that has run everything was there once, or was lived without: what is missing in a copy
of it is told in one note.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator
from typing import Final

from metlmon.authoring.checking.look import Look
from metlmon.authoring.checking.records import listed
from metlmon.authoring.checking.sources import SubmitText
from metlmon.dagman import Node
from metlmon.dagman.commands import ScriptCommand
from metlmon.dagman.dagtext import SyntaxFault, Tokens, shown

_NO: Final = frozenset({"false", "f", "no", "n", "0"})

#: Where the executable is a program of the schedd's machine, or of no machine of ours.
_ELSEWHERE: Final = frozenset({"grid", "vm", "java"})

MOST_NAMES: Final = 500_000
"""Names of input files that are gone over, of all nodes together: some seconds at most."""

_HEAD: Final = 512
"""Bytes of a script that tell how its first line ends."""

_COMMANDS: Final = (
    *("executable", "transfer_executable", "universe", "initialdir", "initial_dir"),
    *("transfer_input_files", "transferinputfiles", "container_image"),
)


class _Missing:
    """What is not there: told one by one, or all in one note."""

    def __init__(self, look: Look) -> None:
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


def check(look: Look) -> None:
    missing = _Missing(look)
    _configs(look)
    _scripts(look, missing)
    _directories(look, missing)
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
    inputs.finish()
    missing.finish()
    if look.shelf.full:
        text_ = "more files are named than are looked for"
        look.found.add("too-many-files", look.name, None, text_)


# --- files of the DAG ---------------------------------------------------------------------


def _configs(look: Look) -> None:
    for name, told in look.commands.items():
        for each in told:
            if each.keyword == "CONFIG" and each.command is not None:
                file = Tokens(each.rest).next()
                if not _anywhere(look, name, file, "."):
                    text = f"the configuration file {shown(file)} is not there"
                    look.found.add("missing-config", name, each.line, text)


def _anywhere(look: Look, dag: str, file: str, folder: str) -> str | None:
    """Where it is: as DAGMan sees it, or beside the DAG file that names it."""
    for base in (look.home / folder, look.names[dag].parent):
        path = os.path.normpath(os.path.join(base, file))
        if look.shelf.there(path):
            return path
    return None


def _directories(look: Look, missing: _Missing) -> None:
    """DIR of nodes, those without a job too: DAGMan goes there while it reads the DAG."""
    for node in look.flow.nodes.values():
        if not node.dir or node.file not in look.names:
            continue
        if _anywhere(look, node.file, node.dir, ".") is None:
            what = f"the directory {shown(node.dir)} of {shown(node.name)} is not there"
            missing.tell("missing-directory", node.file, node.line, node.dir, what)


def _scripts(look: Look, missing: _Missing) -> None:
    for name, told in look.commands.items():
        for each in told:
            command = each.command
            if isinstance(command, ScriptCommand):
                node = look.flow.nodes.get(command.node)
                folder = (node.dir if node is not None else None) or "."
                _script(look, missing, name, each.line, command, folder)


def _script(
    look: Look, missing: _Missing, dag: str, line: int, command: ScriptCommand, folder: str
) -> None:
    try:
        file = Tokens(command.command).next()
    except SyntaxFault:
        return
    if not file or "$" in file:
        return
    what = f"{command.kind.name} script {shown(file)} of {shown(command.node)}"
    path = _anywhere(look, dag, file, folder)
    if path is None:
        missing.tell("missing-script", dag, line, file, f"the {what} is not there")
        return
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not look.ran and not mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
        look.found.add(
            "script-not-executable", dag, line, f"the {what} is not executable", about=file
        )
    if _ends_in_crlf(path):
        text = f"the first line of the {what} ends in CR LF"
        look.found.add("script-crlf", dag, line, text, about=file)


def _ends_in_crlf(path: str) -> bool:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except (OSError, ValueError):
        return False
    return head.startswith(b"#!") and head.split(b"\n", 1)[0].endswith(b"\r")


# --- files of the jobs --------------------------------------------------------------------


class _Inputs:
    """What jobs take along. A file that is not there is no mistake where an earlier node may
    leave it: then it is told only if its name is the same for all nodes, and not for sure."""

    def __init__(self, look: Look, missing: _Missing) -> None:
        self._look = look
        self._missing = missing
        #: What is missing by (base, name): whether a node needs it that nothing comes before.
        self._gone: dict[tuple[str, str], tuple[bool, str, int, str]] = {}
        self._later: set[tuple[str, str]] = set()
        self._left = MOST_NAMES

    def of(self, node: Node, text: SubmitText) -> None:
        said = self._look.values(node, text, *_COMMANDS)
        universe = (said["universe"] or "vanilla").strip().lower()
        folder = said["initialdir"] or said["initial_dir"] or ""
        base = posixpath.join(node.dir or "", folder.strip())
        if "$" in base or self._look.shelf.full:
            return
        if base and not self._is_there(node, "", base):
            if folder:
                what = f"the initialdir {shown(base)} of {shown(node.name)} is not there"
                self._missing.tell("missing-directory", node.file, node.line, base, what)
            return
        if universe not in _ELSEWHERE:
            self._executable(node, text, said, base)
        first = not node.parents and node.pre is None
        key = "transfer_input_files" if said["transfer_input_files"] else "transferinputfiles"
        for name in _names(said[key]):
            self._left -= 1
            if self._left < 0 or self._look.shelf.full:
                return
            self._input(node, text, key, name, base, first)
        image = (said["container_image"] or "").strip().strip('"')
        if image.endswith(".sif"):
            self._input(node, text, "container_image", image, base, first)

    def _executable(
        self, node: Node, text: SubmitText, said: dict[str, str | None], base: str
    ) -> None:
        name = (said["executable"] or "").strip().strip('"')
        sent = (said["transfer_executable"] or "").strip().lower() not in _NO
        if not name or not sent or "$" in name or "://" in name:
            return
        place = text.last("executable")
        file, line = (place.file, place.line) if place else (text.file, text.line)
        if not self._is_there(node, base, name):
            # It is transferred from here; only a node before this one could have made it.
            kind = "missing-later-input" if node.parents or node.pre else "missing-executable"
            what = f"the executable {shown(name)} of {shown(node.name)} is not there"
            self._missing.tell(kind, file, line, name, what)
        elif _ends_in_crlf(os.path.join(self._look.home, base, name)):
            what = f"the first line of the executable {shown(name)} ends in CR LF"
            self._look.found.add("script-crlf", file, line, what, about=name)

    def _input(
        self, node: Node, text: SubmitText, key: str, name: str, base: str, first: bool
    ) -> None:
        if "$" in name or "://" in name:
            return
        known = self._gone.get((base, name))
        if known is not None and (known[0] or not first):
            return
        if not first and (base, name) in self._later:
            return
        if known is None and self._is_there(node, base, name):
            return
        place = text.last(key)
        written = (_names(each.value) for each in text.statements if each.key == key)
        if not first and not any(name in names for names in written):
            self._later.add((base, name))
            return
        file, line = (place.file, place.line) if place else (text.file, text.line)
        what = f"the file {shown(name)}, which {shown(node.name)} takes along, is not there"
        self._gone[base, name] = (first, file, line, what)

    def _is_there(self, node: Node, base: str, name: str) -> bool:
        folders = [self._look.home / base]
        if node.file in self._look.names:
            folders.append(self._look.names[node.file].parent / base)
        paths = (os.path.normpath(os.path.join(folder, name)) for folder in folders)
        return any(self._look.shelf.there(path) for path in paths)

    def finish(self) -> None:
        for (_, name), (first, file, line, what) in self._gone.items():
            kind = "missing-input" if first else "missing-later-input"
            self._missing.tell(kind, file, line, name, what)


def _names(value: str | None) -> Iterator[str]:
    for name in (value or "").strip().strip('"').split(","):
        if name := name.strip():
            yield name
