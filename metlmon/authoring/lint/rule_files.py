"""Rules for files that a DAG needs, and for the locations of logs.

For a DAG that has run, every needed file existed once: files missing in a copy of it are reported
in a single note.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from metlmon.authoring.gate_config import INTERPRETER, SCRIPT
from metlmon.authoring.lint.rules import LintContext, Positioned
from metlmon.dagman.commands import ConfigCommand, JobstateCommand, ScriptCommand, ScriptKind
from metlmon.dagman.lexer import shown, shown_file
from metlmon.dagman.parser import SourceCommand
from metlmon.dagman.records import Node
from metlmon.dagman.submit_description import FALSE_WORDS, Description, file_names
from metlmon.text.formatting import listed

MAX_NAMES: Final = 500_000
"""Limit of input file names checked over all nodes: a few seconds at most."""

#: The file name after ``from``: not a list in brackets, and without a slice.
_FROM_FILE: Final = re.compile(r"\bfrom[ \t]+(?!\()(?:\[[^\]]*\][ \t]*)?([^(].*)", re.IGNORECASE)

_HEAD_BYTES: Final = 512
"""How many bytes of a script are read to find the end of its first line."""

_COMMANDS: Final = tuple(
    """
    executable transfer_executable universe initialdir initial_dir transfer_input_files
    transferinputfiles container_image docker_image
    """.split()
)


def check(context: LintContext) -> None:
    """Check the files of the DAG and its jobs, and the locations of logs."""
    _FileChecker(context).check()
    _check_locations(context)


_Missing = tuple[bool, str, Positioned, str]
"""A missing input file: whether a node without predecessors needs it, and the finding."""


class _FileChecker:
    """Checks the files that one DAG names.

    A missing input file is not an error if an earlier node may create it: it is then reported as a
    possible problem, and only if its name is the same for all nodes.
    """

    def __init__(self, context: LintContext) -> None:
        self._context = context
        self._files_not_here: dict[str, None] = {}
        self._missing_inputs: dict[tuple[str, str], _Missing] = {}
        #: Existing files by (base, name), and those that an earlier node may create.
        self._found: set[tuple[str, str]] = set()
        self._later: set[tuple[str, str]] = set()
        self._names_left = MAX_NAMES
        self._script_directories: dict[tuple[ScriptKind, str], dict[str, None]] = {}
        """By the kind and command of a script, the directories of its nodes, in which it runs."""
        for node in context.workflow.nodes.values():
            for kind in ScriptKind:
                if (script := getattr(node, kind.value)) is not None:
                    directories = self._script_directories.setdefault((kind, script.command), {})
                    directories[node.dir or ""] = None

    def check(self) -> None:
        context = self._context
        self._check_configs()
        for entry in context.all_commands():
            if isinstance(entry.command, ScriptCommand):
                self._check_script(entry, entry.command)
        self._check_directories()
        for node in context.jobs():
            text = context.description_of(node)
            if text is not None and not node.done:
                self._check_inputs(node, text)
                self._check_queue_items(node, text)
            elif text is None and (name := node.submit):
                message = f"the submit file {shown_file(name)} of {shown(node.name)} cannot be read"
                self._report_missing("missing-submit-file", node, name, message)
        for (_, name), (_, kind, source, message) in self._missing_inputs.items():
            self._report_missing(kind, source, name, message)
        if self._files_not_here:
            message = (
                f"it has run; what it needed is not here: {listed(list(self._files_not_here))}"
            )
            context.findings.add("files-not-here", context.name, None, message)
        if context.files.exhausted:
            message = "more files are named than are looked for"
            context.findings.add("too-many-files", context.name, None, message)

    def _report_missing(self, kind: str, source: Positioned, name: str, message: str) -> None:
        """Report the missing file ``name``, or collect it for the note."""
        if self._context.has_run:
            self._files_not_here[shown_file(name)] = None
        else:
            self._context.report(kind, source, message, about=name)

    def _find(self, dag: str, file: str, directory: str = "") -> str | None:
        """The file's path in DAGMan's view, or beside the DAG file that names it."""
        bases = [self._context.dagman_dir / directory]
        if dag in self._context.names:
            bases.append(self._context.names[dag].parent)
        paths = (os.path.normpath(os.path.join(base, file)) for base in bases)
        return next(filter(self._context.files.exists, paths), None)

    # --- files of the DAG ---------------------------------------------------------------------

    def _check_configs(self) -> None:
        first_by_dag: dict[str, str] = {}
        for entry in self._context.all_commands():
            if not isinstance(entry.command, ConfigCommand):
                continue
            file = entry.command.file
            first = first_by_dag.setdefault(entry.file, file)
            # condor_submit_dag compares the names as written.
            if file != first:
                message = (
                    f"the configuration file {shown_file(file)} is named behind {shown_file(first)}"
                )
                self._context.report("second-config", entry, message)
            if self._find(entry.file, file) is None:
                message = f"the configuration file {shown_file(file)} is not there"
                self._context.report("missing-config", entry, message)

    def _check_directories(self) -> None:
        """DIR of all nodes, which DAGMan enters while parsing, and that of a JOBSTATE_LOG."""
        context = self._context
        for node in context.workflow.nodes.values():
            if not node.dir or node.file not in context.names:
                continue
            if self._find(node.file, node.dir) is None:
                message = f"the directory {shown_file(node.dir)} of {shown(node.name)} is not there"
                self._report_missing("missing-directory", node, node.dir, message)
        log = context.workflow.jobstate_log or ""
        directory = posixpath.dirname(log)
        if not directory or self._find(context.name, directory) is not None:
            return
        for entry in context.all_commands():
            if isinstance(entry.command, JobstateCommand) and entry.command.file == log:
                message = f"the directory of the JOBSTATE_LOG {shown_file(log)} is not there"
                self._report_missing("missing-directory", entry, directory, message)
                return

    def _check_queue_items(self, node: Node, text: Description) -> None:
        """The file read by ``queue … from FILE`` at the node's submission."""
        for statement in text.statements:
            is_queue = statement.directive and statement.key == "queue"
            match = _FROM_FILE.search(statement.value) if is_queue else None
            if match is None or "$" in match[1] or match[1].endswith("|"):
                continue
            file = match[1].strip().strip('"')
            if file and self._find(node.file, file, node.dir or "") is None:
                where = "which a queue line reads items from"
                message = f"the file {shown_file(file)}, {where}, is not there"
                self._report_missing("missing-queue-items", statement, file, message)

    def _check_script(self, entry: SourceCommand, command: ScriptCommand) -> None:
        context, file = self._context, command.script.command.split(None, 1)[0]
        if "$" in file:
            return
        if "'" in file or '"' in file:
            message = (
                f"the {command.kind.name} script of {shown(command.node)} is written in quotes"
            )
            context.report("script-quoted", entry, message)
            return
        label = f"{command.kind.name} script {shown_file(file)} of {shown(command.node)}"
        path = ""
        for directory in self._directories_of(command):
            found = self._find(entry.file, file, directory)
            if found is None:
                place = f" (from {shown_file(directory)})" if directory else ""
                message = f"the {label} is not there{place}"
                self._report_missing("missing-script", entry, file, message)
                return
            path = path or found
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
        if os.path.basename(path) == SCRIPT and ".gate.json" in command.script.command:
            interpreter = INTERPRETER
        if interpreter and not context.has_run and shutil.which(interpreter) is None:
            problem = "is not there" if "/" in interpreter else "is not on PATH here"
            message = f"the {label} needs {shown(interpreter)}, which {problem}"
            context.report("no-interpreter", entry, message, about=interpreter)

    def _directories_of(self, command: ScriptCommand) -> Iterable[str]:
        """The directories of a script's nodes, in which it runs (``Script::BackgroundRun``)."""
        node = self._context.workflow.nodes.get(command.node)
        own = (node.dir if node is not None else None) or ""
        return self._script_directories.get((command.kind, command.script.command)) or [own]

    # --- input files of jobs ------------------------------------------------------------------

    def _check_inputs(self, node: Node, text: Description) -> None:
        context = self._context
        values = context.values(node, text, *_COMMANDS)
        initialdir = (values["initialdir"] or values["initial_dir"] or "").strip()
        base = posixpath.join(node.dir or "", initialdir)
        if "$" in base or context.files.exhausted:
            return
        if base and self._find(node.file, base) is None:
            if initialdir:
                message = f"the initialdir {shown_file(base)} of {shown(node.name)} is not there"
                self._report_missing("missing-directory", node, base, message)
            return
        for key, name in _transferred_files(values):
            self._names_left -= 1
            if self._names_left < 0 or context.files.exhausted:
                return
            if "$" not in name and "://" not in name:
                self._check_input(node, text, key, name, base=base)

    def _check_input(self, node: Node, text: Description, key: str, name: str, base: str) -> None:
        path = (base, name)
        first = not node.parents and node.pre is None
        previous = self._missing_inputs.get(path)
        known = previous is not None and (previous[0] or not first)
        if known or path in self._found or (not first and path in self._later):
            return
        if previous is None and self._find(node.file, posixpath.join(base, name)) is not None:
            self._found.add(path)
            script = os.path.join(self._context.dagman_dir, base, name)
            if key == "executable" and _first_line(script).endswith("\r"):
                source = text.last("executable") or text
                message = f"the first line of the executable {shown_file(name)} ends in CR LF"
                self._context.report("script-crlf", source, message, about=name)
            return
        values = [statement.value for statement in text.statements if statement.key == key]
        if not first and not any(name in file_names(value) for value in values):
            self._later.add(path)
            return
        label, kind = "the file", "missing-input"
        if key == "executable":
            label, kind = "the executable", "missing-executable"
        message = f"{label} {shown_file(name)}, which {shown(node.name)} takes along, is not there"
        kind = kind if first else "missing-later-input"
        self._missing_inputs[path] = first, kind, text.last(key) or text, message


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


def _interpreter(first_line: str) -> str:
    """The program that runs a script with this first line, also if through ``env``."""
    program, *words = first_line.removeprefix("#!").split() or [""]
    if os.path.basename(program) == "env":
        return next((word for word in words if not word.startswith("-") and "=" not in word), "")
    return program


def _transferred_files(values: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    """The files that the job transfers from here, with the command that names each."""
    executable = (values["executable"] or "").strip().strip('"')
    universe = (values["universe"] or "").strip().lower()
    in_container = (
        universe in ("container", "docker") or values["container_image"] or values["docker_image"]
    )
    transferred = (values["transfer_executable"] or "").strip().lower() not in FALSE_WORDS
    if in_container and executable.startswith("/"):
        transferred = False  # The path is one in the container's image.
    # In these universes it is not transferred from the submit directory.
    if executable and transferred and universe not in ("grid", "vm", "java"):
        yield "executable", executable
    image = (values["container_image"] or "").strip().strip('"')
    if image.endswith(".sif"):
        yield "container_image", image
    for key in ("transfer_input_files", "transferinputfiles"):
        for name in file_names(values[key] or ""):
            yield key, name


# --- where logs are: network file systems lose, delay or split appends ------------------------

MOUNTS: Final = Path("/proc/self/mountinfo")
"""The mount table of this process (man 5 proc).

The file systems themselves are not queried, since an unreachable server would block.
"""

NETWORK: Final = frozenset(
    """
    nfs nfs3 nfs4 afs auristorfs lustre gpfs mmfs beegfs ceph fuse.ceph cifs smb smb3 smbfs
    glusterfs fuse.glusterfs fuse.sshfs panfs orangefs pvfs2 wekafs fuse.juicefs fuse.s3fs
    fuse.rclone fuse.gcsfuse
    """.split()
)

TEMPORARY = "/tmp"
"""The directory in which DAGMan refuses its nodes log, by default.

Source: ``DagmanUtils``, "default node log file … is in /tmp".
"""

MAX_LOG_DIRECTORIES: Final = 100
"""Maximum number of log directories to check: enough for one per run."""

_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def _check_locations(context: LintContext) -> None:
    dagman_dir = os.path.abspath(context.dagman_dir)
    if dagman_dir == TEMPORARY or dagman_dir.startswith(f"{TEMPORARY}/"):
        message = f"DAGMan's own files, nodes.log among them, lie below {TEMPORARY}"
        context.findings.add("in-tmp", context.name, None, message)
    mounts = read_mounts(MOUNTS)
    if not mounts:
        return
    if kind := network_type(dagman_dir, mounts):
        message = f"DAGMan's own files, nodes.log among them, lie on {kind}"
        context.findings.add("network-file-system", context.name, None, message)
    seen: set[str] = set()
    for node in context.jobs():
        if not node.log or "$" in node.log or len(seen) >= MAX_LOG_DIRECTORIES:
            continue
        directory = os.path.dirname(os.path.normpath(os.path.join(dagman_dir, node.log)))
        if directory in seen or directory == dagman_dir:
            continue
        seen.add(directory)
        text = context.description_of(node)
        statement = text.last("log", "userlog") if text is not None else None
        if statement is not None and (kind := network_type(directory, mounts)):
            message = f"the log {shown_file(node.log)} lies on {kind}"
            context.report("network-file-system", statement, message)


def read_mounts(path: Path) -> list[tuple[str, str]]:
    """(mount point, type) in mount order; empty if the table cannot be read."""
    try:
        text = path.read_text("utf-8", "surrogateescape")
    except OSError:
        return []
    mounts = []
    for line in text.splitlines():
        head, separator, tail = line.partition(" - ")
        fields = head.split(" ")
        if separator and len(fields) > 4 and tail:
            point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
            mounts.append((point, tail.split(" ", 1)[0]))
    return mounts


def network_type(path: str, mounts: list[tuple[str, str]]) -> str | None:
    """The type of the file system of ``path`` if it is a network one, else None."""
    try:
        real_path = os.path.realpath(path)
    except ValueError:  # a NUL in the name
        return None
    best_point, kind = "", ""
    for point, mount_type in mounts:
        inside = point == "/" or real_path == point or real_path.startswith(point + "/")
        if inside and len(point) >= len(best_point):
            best_point, kind = point, mount_type
    return kind if kind in NETWORK else None
