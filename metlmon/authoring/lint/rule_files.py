"""Rules for files that a DAG needs: submit files, executables, inputs, scripts.

For a DAG that has run, every needed file existed once: files missing in a copy of it are reported
in a single note.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import stat
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from metlmon.authoring.gate_config import INTERPRETER, SCRIPT
from metlmon.authoring.lint.context import LintContext, Positioned
from metlmon.authoring.lint.finding import listed
from metlmon.authoring.lint.source_map import SourceCommand, SubmitText
from metlmon.dagman import Node
from metlmon.dagman.commands import JobstateCommand, ScriptCommand
from metlmon.dagman.lexer import Tokens, shown

_FALSE: Final = frozenset({"false", "f", "no", "n", "0"})

#: An absolute path refers to the container image in these universes.
_CONTAINER_UNIVERSES: Final = frozenset({"container", "docker"})

#: The executable is not transferred from the submit directory in these universes.
_REMOTE_UNIVERSES: Final = frozenset({"grid", "vm", "java"})

MAX_NAMES: Final = 500_000
"""Limit of input file names checked over all nodes: a few seconds at most."""

#: The file name after ``from``: not a list in brackets, and without a slice.
_FROM_FILE: Final = re.compile(r"\bfrom[ \t]+(?!\()(?:\[[^\]]*\][ \t]*)?([^(].*)", re.IGNORECASE)

_HEAD_BYTES: Final = 512
"""How many bytes of a script are read to find the end of its first line."""

_COMMANDS: Final = (
    *("executable", "transfer_executable", "universe", "initialdir", "initial_dir"),
    *("transfer_input_files", "transferinputfiles", "container_image", "docker_image"),
)


class _MissingReporter:
    """Reports missing files, one by one or in a single note."""

    def __init__(self, context: LintContext) -> None:
        self._context = context
        self._missing_files: dict[str, None] = {}

    def report(self, kind: str, source: Positioned, name: str, message: str) -> None:
        """Report the missing file ``name``, or collect it for the note."""
        if self._context.has_run:
            self._missing_files[shown(name)] = None
        else:
            self._context.report(kind, source, message, about=name)

    def finish(self) -> None:
        """Report the note."""
        if self._missing_files:
            message = f"it has run; what it needed is not here: {listed(list(self._missing_files))}"
            self._context.findings.add("files-not-here", self._context.name, None, message)


def check(context: LintContext) -> None:
    """Check the files of the DAG and of its jobs."""
    missing = _MissingReporter(context)
    _check_configs(context)
    _check_scripts(context, missing)
    _check_directories(context, missing)
    _check_jobstate_log(context, missing)
    inputs = _InputChecker(context, missing)
    for node in context.jobs():
        text = context.submit_text_of(node)
        if text is None:
            if name := node.submit:
                message = f"the submit file {shown(name)} of {shown(node.name)} cannot be read"
                missing.report("missing-submit-file", node, name, message)
            continue
        if not node.done:
            inputs.check(node, text)
            _check_queue_items(context, node, text, missing)
    inputs.finish()
    missing.finish()
    if context.files.exhausted:
        message = "more files are named than are looked for"
        context.findings.add("too-many-files", context.name, None, message)


# --- files of the DAG ---------------------------------------------------------------------


def _check_configs(context: LintContext) -> None:
    first_by_dag: dict[str, str] = {}
    for entry in context.all_commands():
        if entry.keyword != "CONFIG" or entry.command is None:
            continue
        file = Tokens(entry.rest).file()
        first = first_by_dag.setdefault(entry.file, file)
        # condor_submit_dag compares the names as written.
        if file != first:
            message = f"the configuration file {shown(file)} is named behind {shown(first)}"
            context.report("second-config", entry, message)
        if not _find(context, entry.file, file, "."):
            message = f"the configuration file {shown(file)} is not there"
            context.report("missing-config", entry, message)


def _find(context: LintContext, dag: str, file: str, directory: str) -> str | None:
    """The file's path in DAGMan's view, or beside the DAG file that names it."""
    for base in (context.dagman_dir / directory, context.names[dag].parent):
        path = os.path.normpath(os.path.join(base, file))
        if context.files.exists(path):
            return path
    return None


def _check_directories(context: LintContext, missing: _MissingReporter) -> None:
    """DIR of all nodes, even of those without a job.

    DAGMan enters these directories while it parses the DAG.
    """
    for node in context.workflow.nodes.values():
        if not node.dir or node.file not in context.names:
            continue
        if _find(context, node.file, node.dir, ".") is None:
            message = f"the directory {shown(node.dir)} of {shown(node.name)} is not there"
            missing.report("missing-directory", node, node.dir, message)


def _check_jobstate_log(context: LintContext, missing: _MissingReporter) -> None:
    """The directory of a JOBSTATE_LOG, which DAGMan opens before it starts a node."""
    log = context.workflow.jobstate_log
    directory = posixpath.dirname(log or "")
    if log is None or not directory or _find(context, context.name, directory, ".") is not None:
        return
    for entry in context.all_commands():
        if isinstance(entry.command, JobstateCommand) and entry.command.file == log:
            message = f"the directory of the JOBSTATE_LOG {shown(log)} is not there"
            missing.report("missing-directory", entry, directory, message)
            return


def _check_queue_items(
    context: LintContext, node: Node, text: SubmitText, missing: _MissingReporter
) -> None:
    """The file read by ``queue … from FILE`` at the node's submission."""
    for statement in text.statements:
        match = (
            _FROM_FILE.search(statement.value)
            if statement.directive and statement.key == "queue"
            else None
        )
        if match is None or "$" in match[1] or match[1].endswith("|"):
            continue
        file = match[1].strip().strip('"')
        if file and _find(context, node.file, file, node.dir or ".") is None:
            message = f"the file {shown(file)}, which a queue line reads items from, is not there"
            missing.report("missing-queue-items", statement, file, message)


def _check_scripts(context: LintContext, missing: _MissingReporter) -> None:
    for entry in context.all_commands():
        if isinstance(entry.command, ScriptCommand):
            _check_script(context, missing, entry, entry.command)


def _check_script(
    context: LintContext,
    missing: _MissingReporter,
    entry: SourceCommand,
    command: ScriptCommand,
) -> None:
    file = command.command.split(None, 1)[0]
    if "$" in file:
        return
    if "'" in file or '"' in file:
        message = f"the {command.kind.name} script of {shown(command.node)} is written in quotes"
        context.report("script-quoted", entry, message)
        return
    label = f"{command.kind.name} script {shown(file)} of {shown(command.node)}"
    node = context.workflow.nodes.get(command.node)
    directory = (node.dir if node is not None else None) or "."
    path = _find(context, entry.file, file, directory)
    if path is None:
        missing.report("missing-script", entry, file, f"the {label} is not there")
        return
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    if not context.has_run and not mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
        message = f"the {label} is not executable"
        context.report("script-not-executable", entry, message, about=file)
    first_line = _first_line(path)
    if first_line.endswith("\r"):
        message = f"the first line of the {label} ends in CR LF"
        context.report("script-crlf", entry, message, about=file)
        return
    interpreter = _interpreter(first_line)
    if os.path.basename(path) == SCRIPT and ".gate.json" in command.command:
        interpreter = INTERPRETER
    if interpreter is not None and not context.has_run and shutil.which(interpreter) is None:
        problem = "is not there" if "/" in interpreter else "is not on PATH here"
        message = f"the {label} needs {shown(interpreter)}, which {problem}"
        context.report("no-interpreter", entry, message, about=interpreter)


def _first_line(path: str) -> str:
    """The first line of a script if it names an interpreter, else an empty string."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return ""
    return head.split(b"\n", 1)[0].decode("utf-8", "replace") if head.startswith(b"#!") else ""


def _interpreter(first_line: str) -> str | None:
    """The program that runs a script with this first line, also if through ``env``."""
    program, *words = first_line.removeprefix("#!").split() or [""]
    if os.path.basename(program) == "env":
        program = next((word for word in words if not word.startswith("-") and "=" not in word), "")
    return program or None


# --- files of the jobs --------------------------------------------------------------------


class _MissingFile(Struct, frozen=True):
    """A missing file.

    ``first``: a node without predecessors needs it. ``source``: the statement that names it.
    """

    first: bool
    executable: bool
    source: Positioned
    message: str


class _InputChecker:
    """Checks the input files of jobs.

    A missing file is no error if an earlier node may create it: it is then reported as a possible
    problem, and only if its name is the same for all nodes.
    """

    def __init__(self, context: LintContext, missing: _MissingReporter) -> None:
        self._context = context
        self._missing = missing
        self._missing_files: dict[tuple[str, str], _MissingFile] = {}
        #: Existing files by (base, name), and those that an earlier node may create.
        self._found: set[tuple[str, str]] = set()
        self._later: set[tuple[str, str]] = set()
        self._names_left = MAX_NAMES

    def check(self, node: Node, text: SubmitText) -> None:
        """Check the inputs of one node's job."""
        values = self._context.values(node, text, *_COMMANDS)
        initialdir = (values["initialdir"] or values["initial_dir"] or "").strip()
        base = posixpath.join(node.dir or "", initialdir)
        if "$" in base or self._context.files.exhausted:
            return
        if base and not self._exists(node, "", base):
            if initialdir:
                message = f"the initialdir {shown(base)} of {shown(node.name)} is not there"
                self._missing.report("missing-directory", node, base, message)
            return
        for key, name in _transferred_files(values):
            self._names_left -= 1
            if self._names_left < 0 or self._context.files.exhausted:
                return
            if "$" not in name and "://" not in name:
                self._check_file(node, text, key, name, base)

    def _check_file(self, node: Node, text: SubmitText, key: str, name: str, base: str) -> None:
        key_path = (base, name)
        first = not node.parents and node.pre is None
        previous = self._missing_files.get(key_path)
        if key_path in self._found or (
            not first and (previous is not None or key_path in self._later)
        ):
            return
        if previous is not None and previous.first:
            return
        if previous is None and self._exists(node, base, name):
            self._found.add(key_path)
            if key == "executable":
                self._check_line_end(text, name, base)
            return
        name_lists = (
            _names(statement.value) for statement in text.statements if statement.key == key
        )
        if not first and not any(name in names for names in name_lists):
            self._later.add(key_path)
            return
        executable = key == "executable"
        label = "the executable" if executable else "the file"
        message = f"{label} {shown(name)}, which {shown(node.name)} takes along, is not there"
        self._missing_files[key_path] = _MissingFile(
            first=first, executable=executable, source=text.last(key) or text, message=message
        )

    def _check_line_end(self, text: SubmitText, name: str, base: str) -> None:
        if _first_line(os.path.join(self._context.dagman_dir, base, name)).endswith("\r"):
            source = text.last("executable") or text
            message = f"the first line of the executable {shown(name)} ends in CR LF"
            self._context.report("script-crlf", source, message, about=name)

    def _exists(self, node: Node, base: str, name: str) -> bool:
        directories = [self._context.dagman_dir / base]
        if node.file in self._context.names:
            directories.append(self._context.names[node.file].parent / base)
        paths = (os.path.normpath(os.path.join(directory, name)) for directory in directories)
        return any(self._context.files.exists(path) for path in paths)

    def finish(self) -> None:
        """Report the missing files."""
        for (_, name), missing_file in self._missing_files.items():
            kind = "missing-executable" if missing_file.executable else "missing-input"
            kind = kind if missing_file.first else "missing-later-input"
            self._missing.report(kind, missing_file.source, name, missing_file.message)


def _transferred_files(values: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    """The files that the job transfers from here, with the command that names each."""
    executable = (values["executable"] or "").strip().strip('"')
    transferred = (values["transfer_executable"] or "").strip().lower() not in _FALSE
    universe = (values["universe"] or "").strip().lower()
    in_container = (
        universe in _CONTAINER_UNIVERSES or values["container_image"] or values["docker_image"]
    )
    if in_container and executable.startswith("/"):
        transferred = False
    if executable and transferred and universe not in _REMOTE_UNIVERSES:
        yield "executable", executable
    image = (values["container_image"] or "").strip().strip('"')
    if image.endswith(".sif"):
        yield "container_image", image
    for key in ("transfer_input_files", "transferinputfiles"):
        for name in _names(values[key]):
            yield key, name


def _names(value: str | None) -> Iterator[str]:
    """The file names in a comma-separated list."""
    for name in (value or "").strip().strip('"').split(","):
        if name := name.strip():
            yield name
