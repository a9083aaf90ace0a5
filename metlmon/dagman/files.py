"""The files of one workflow: DAG files, and the submit descriptions of its nodes.

Each is found, read and parsed once.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from msgspec import Struct

from metlmon.dagman.commands import VarsCommand, VarsPlacement
from metlmon.dagman.graph import Scope
from metlmon.dagman.lexer import shown
from metlmon.dagman.parser import DagFile, parse_dag
from metlmon.dagman.records import Node, Problem
from metlmon.dagman.submit_description import (
    Description,
    evaluate,
    parse_description,
    string_value,
)
from metlmon.remote.paths import join, normalize, there

Read = Callable[[Path], bytes]

#: Nodes, commands, edges and applications of ALL_NODES together, for one load. A real DAG of
#: 10,000 nodes needs 5 % of it; a few lines of nested splices could exhaust any memory.
MOST_WORK = 2_000_000


class TooLarge(Exception):
    """The DAG needs more work than :data:`MOST_WORK`."""


class FileCache:
    """Reads files by ``read`` and names them in problems relative to a directory of ``homes``.

    These are the directory of the DAG file, and the working directory of its DAGMan. The cache is
    not in a reference cycle, which would keep all commands after loading.
    """

    def __init__(self, read: Read, *homes: Path) -> None:
        self._read = read
        self._homes = homes
        self.base = homes[0]
        self._work_left = MOST_WORK
        self._names: dict[Path, str] = {}
        self._dags: dict[Path, DagFile | None] = {}
        self._paths: dict[tuple[str, tuple[Path, ...]], Path] = {}
        self._submits: dict[Path, Description | None] = {}

    def spend(self, amount: int) -> None:
        """Subtract ``amount`` from the remaining work; raise TooLarge below zero."""
        self._work_left -= amount
        if self._work_left < 0:
            raise TooLarge

    def name(self, path: Path) -> str:
        """The file's name in problems: relative to the first of its directories that it is in."""
        if path not in self._names:
            names = (str(path.relative_to(h)) for h in self._homes if path.is_relative_to(h))
            self._names[path] = next(names, None) or there(path)
        return self._names[path]

    def dag(self, path: Path) -> DagFile | None:
        """The commands of a DAG file, None when it cannot be read."""
        if path not in self._dags:
            data = self._read_bytes(path)
            self._dags[path] = None if data is None else parse_dag(data, self.name(path))
        return self._dags[path]

    def find_dag(self, name: str, *folders: Path) -> tuple[Path, DagFile | None]:
        """Search ``folders`` for the DAG file ``name``: its path and its commands.

        If none is readable: the first path searched, and None.
        """
        key = (name, folders)
        if key not in self._paths:
            candidates = places(name, *folders)
            readable = (path for path in candidates if self.dag(path) is not None)
            self._paths[key] = next(readable, candidates[0])
        path = self._paths[key]
        return path, self.dag(path)

    def submit(self, path: Path) -> Description | None:
        """The description in a submit file, None when it cannot be read."""
        if path not in self._submits:
            lines = self._read_lines(path)
            self._submits[path] = None if lines is None else self._parse_submit(path, lines)
        return self._submits[path]

    def _parse_submit(self, path: Path, lines: list[str]) -> Description:
        def include(name: str) -> tuple[str, list[str]] | None:
            for included in places(name, path.parent, *self._homes):
                if (content := self._read_lines(included)) is not None:
                    return self.name(included), content
            return None

        return parse_description(lines, include, self.name(path))

    def _read_lines(self, path: Path) -> list[str] | None:
        data = self._read_bytes(path)
        return None if data is None else data.decode("utf-8", "replace").split("\n")

    def _read_bytes(self, path: Path) -> bytes | None:
        try:
            return self._read(path)
        except (OSError, ValueError):  # ValueError: a NUL in the name
            return None


def places(name: str, *folders: Path) -> list[Path]:
    """Candidate paths of the file ``name``: in each folder, then by base name in each."""
    base = posixpath.basename(name) or name
    paths = [join(folder, name) for name in (name, base) for folder in folders]
    paths += moved(name, folders[-1])
    return list(dict.fromkeys(normalize(path) for path in paths))


def moved(name: str, folder: Path) -> list[Path]:
    """Where the file of an absolute ``name`` may be in a copy: near a DAG file in ``folder``.

    A copy keeps the last parts of its paths: below the directory of the DAG file, or those above.
    """
    parts = PurePosixPath(name).parts
    if not parts or parts[0] != "/":
        return []
    tails = [posixpath.join(*parts[-n:]) for n in (2, 3) if len(parts) > n]
    return [join(folder, up + tail) for tail in tails for up in ("", "../", "../../")]


# --- submit descriptions of nodes --------------------------------------------------

#: Assignments made and characters expanded for all nodes together: 100,000 nodes with 1,000.
_MAX_WORK = 100_000_000


class PendingSubmitInfo(Struct):
    """A node whose submit description is not resolved yet.

    ``file`` defines the node, ``inline`` is its inline description, if any, and ``appended``
    are the names of its VARS that override the description (APPEND).
    """

    node: Node
    scope: Scope
    file: Path
    inline: Description | None
    appended: set[str] | None = None

    def record_placement(self, command: VarsCommand) -> None:
        """Record whether these VARS are set before or after the description."""
        names = {name for name, _ in command.pairs}
        if command.placement is VarsPlacement.APPEND:
            if self.appended is None:
                self.appended = set()
            self.appended |= names
        elif self.appended is not None:
            self.appended -= names


class SubmitInfoResolver:
    """Finds submit descriptions and sets the fields of the nodes that depend on them."""

    def __init__(self, files: FileCache, home: Path, scopes: Iterable[Scope]) -> None:
        self._files = files
        self._home = home
        #: Names are shared among all splices; the first description of a name wins.
        self._shared: dict[str, Description] = {}
        for scope in scopes:
            for name, description in scope.descriptions.items():
                self._shared.setdefault(name, description)
        self._descriptions: dict[tuple[str, str, Path], Description | None] = {}
        self._folders: dict[Path, Path] = {}
        self._work_left = _MAX_WORK
        self._limit_reported = False
        self.files: dict[Path, None] = {}
        self.problems: list[Problem] = []

    def resolve(self, pending: PendingSubmitInfo) -> Description | None:
        """Set the fields of a node that its submit description determines.

        Returns the description, None if it cannot be read.
        """
        description = self._description(pending)
        if description is None:
            return None
        if self._work_left <= 0:
            if not self._limit_reported:
                self._limit_reported = True
                text = "submit descriptions are too long for so many nodes"
                self._warn("too-large", pending.node, f"{text}: of the rest no log is known")
            return description
        node, appended = pending.node, pending.appended
        before = {"JOB": node.name, **node.vars}
        after = {key: before.pop(key) for key in node.vars if key in appended} if appended else {}
        info, work = evaluate(description, before, after)
        self._work_left -= work
        node.log = _in_folder(node.dir, info.log)
        node.output = _in_folder(node.dir, info.output)
        node.error = _in_folder(node.dir, info.error)
        node.request_gpus = info.request_gpus
        named = (v for k, v in node.attributes.items() if k.lower() == "targetannexname")
        node.annex = string_value(next(named, None)) or info.annex
        node.lease = info.lease
        node.queue_count = info.queue_count
        node.universe = info.universe
        return description

    def _description(self, pending: PendingSubmitInfo) -> Description | None:
        node = pending.node
        if node.submit is None:
            return pending.inline
        own = pending.scope.descriptions.get(node.submit)
        if named := own or self._shared.get(node.submit):
            return named
        dag_folder = self._folders.get(pending.file)
        if dag_folder is None:
            dag_folder = self._folders[pending.file] = pending.file.parent
        key = (node.submit, node.dir or "", dag_folder)
        if key not in self._descriptions:
            self._descriptions[key] = self._read(node, *key)
        return self._descriptions[key]

    def _read(self, node: Node, name: str, folder: str, dag_folder: Path) -> Description | None:
        for path in places(name, join(self._home, folder), self._home, dag_folder):
            if (description := self._files.submit(path)) is not None:
                self.files[path] = None
                return description
        if not node.noop:
            base = there(self._files.base)
            searched = (dag_folder, self._home, join(self._home, folder))
            folders = dict.fromkeys(os.path.relpath(there(path), base) for path in searched)
            text = f"submit file {shown(name)} cannot be read"
            if list(folders) != ["."]:
                text += f" in {', '.join(map(shown, folders))} as seen from the DAG file"
            text += ": its log is not known"
            self._warn("missing-submit-file", node, text)
        return None

    def _warn(self, kind: str, node: Node, text: str) -> None:
        self.problems.append(Problem(kind, node.file, node.line, text, error=False))


def _in_folder(folder: str | None, name: str | None) -> str | None:
    """A job's file relative to DAGMan's directory; the job is submitted in ``folder``."""
    return name if folder is None or name is None else posixpath.join(folder, name)
