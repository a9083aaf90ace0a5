"""Resolves the submit descriptions of the nodes, once the whole DAG is loaded."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path

from msgspec import Struct

from metlmon.dagman.commands import VarsCommand, VarsPlacement
from metlmon.dagman.file_cache import FileCache, places
from metlmon.dagman.lexer import shown
from metlmon.dagman.loader_scope import Scope
from metlmon.dagman.records import NO_NAMES, Node, Problem
from metlmon.dagman.submit_description import Description, evaluate

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
    appended: AbstractSet[str] = NO_NAMES

    def record_placement(self, command: VarsCommand) -> None:
        """Record whether these VARS are set before or after the description."""
        if command.placement is VarsPlacement.APPEND:
            if not isinstance(self.appended, set):
                self.appended = set(self.appended)
            self.appended.update(key for key, _ in command.pairs)
        elif isinstance(self.appended, set):
            self.appended.difference_update(key for key, _ in command.pairs)


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
            self._report_limit(pending.node)
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
        node.queue_count = info.queue_count
        return description

    def _report_limit(self, node: Node) -> None:
        if not self._limit_reported:
            self._limit_reported = True
            text = "submit descriptions are too long for so many nodes: of the rest no log is known"
            self.problems.append(Problem("too-large", node.file, node.line, text, error=False))

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
        for path in places(name, self._home / folder, self._home, dag_folder):
            if (description := self._files.submit(path)) is not None:
                self.files[path] = None
                return description
        if not node.noop:
            text = f"submit file {shown(name)} cannot be read: its log is not known"
            kind = "missing-submit-file"
            self.problems.append(Problem(kind, node.file, node.line, text, error=False))
        return None


def _in_folder(folder: str | None, name: str | None) -> str | None:
    """A job's file relative to DAGMan's directory; the job is submitted in ``folder``."""
    return name if folder is None or name is None else posixpath.join(folder, name)
