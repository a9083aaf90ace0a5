"""Nodes and their submit descriptions brought together, once the whole DAG is known."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from metlmon.dagman.commands import Placement, VarsCommand
from metlmon.dagman.file_cache import FileCache, places
from metlmon.dagman.lexer import shown
from metlmon.dagman.loader_scope import Scope
from metlmon.dagman.records import NO_NAMES, Node, Problem
from metlmon.dagman.submit_description import Description, QueueStatements, Submission, submission

#: Statements carried out for all nodes together, where each node has to have its own way through
#: them: a hundred thousand nodes with twenty each.
_MOST_STATEMENTS = 2_000_000


@dataclass(slots=True)
class PendingSubmitInfo:
    """A node that waits for its description: where it was written, its block if it has one,
    and the names of its VARS that override the description (APPEND)."""

    node: Node
    scope: Scope
    file: Path
    inline: Description | None
    appended: AbstractSet[str] = NO_NAMES

    def place(self, command: VarsCommand) -> None:
        """Remembers whether these VARS stand before or behind the description."""
        if command.placement is Placement.APPEND:
            if not isinstance(self.appended, set):
                self.appended = set(self.appended)
            self.appended.update(key for key, _ in command.pairs)
        elif isinstance(self.appended, set):
            self.appended.difference_update(key for key, _ in command.pairs)


class Describer:
    """Finds descriptions and puts down in each node what its own says for it."""

    def __init__(self, library: FileCache, home: Path, scopes: Iterable[Scope]) -> None:
        self._library = library
        self._home = home
        #: Names are shared over all splices; of two with one name the first stays.
        self._shared: dict[str, Description] = {}
        for scope in scopes:
            for name, description in scope.descriptions.items():
                self._shared.setdefault(name, description)
        self._found: dict[tuple[str, str, Path], Description | None] = {}
        self._folders: dict[Path, Path] = {}
        self._submissions: dict[int, QueueStatements] = {}
        self._left = _MOST_STATEMENTS
        self._left_out = False
        self.files: dict[Path, None] = {}
        self.problems: list[Problem] = []

    def describe(self, waiting: PendingSubmitInfo) -> None:
        description = self._description(waiting)
        if description is None:
            return
        if description is waiting.inline:
            # Of this node alone: there is nothing to find for many.
            _fill_in(waiting, partial(submission, description))
            return
        submissions = self._submissions.get(id(description))
        if submissions is None:
            submissions = self._submissions[id(description)] = QueueStatements(description)
        if not submissions.has_forms:
            self._left -= len(description.statements)
            if self._left < 0:
                self._leave_out(waiting.node)
                return
        _fill_in(waiting, submissions.of)

    def _leave_out(self, node: Node) -> None:
        if not self._left_out:
            self._left_out = True
            text = "submit descriptions are too long for so many nodes: of the rest no log is known"
            self.problems.append(Problem("too-large", node.file, node.line, text, error=False))

    def _description(self, waiting: PendingSubmitInfo) -> Description | None:
        node = waiting.node
        if node.submit is None:
            return waiting.inline
        own = waiting.scope.descriptions.get(node.submit)
        if named := own or self._shared.get(node.submit):
            return named
        beside = self._folders.get(waiting.file)
        if beside is None:
            beside = self._folders[waiting.file] = waiting.file.parent
        key = (node.submit, node.dir or "", beside)
        if key not in self._found:
            self._found[key] = self._read(node, *key)
        return self._found[key]

    def _read(self, node: Node, name: str, folder: str, beside: Path) -> Description | None:
        for place in places(name, self._home / folder, self._home, beside):
            if (description := self._library.submit(place)) is not None:
                self.files[place] = None
                return description
        if not node.noop:
            text = f"submit file {shown(name)} cannot be read: its log is not known"
            kind = "missing-submit-file"
            self.problems.append(Problem(kind, node.file, node.line, text, error=False))
        return None


def _fill_in(
    waiting: PendingSubmitInfo, submit: Callable[[Mapping[str, str], Mapping[str, str]], Submission]
) -> None:
    node, appended = waiting.node, waiting.appended
    after: Mapping[str, str] = {}
    if appended:
        before = {"JOB": node.name} | {k: v for k, v in node.vars.items() if k not in appended}
        after = {k: v for k, v in node.vars.items() if k in appended}
    else:
        before = {"JOB": node.name, **node.vars}
    said = submit(before, after)
    node.log = _below(node.dir, said.log)
    node.output = _below(node.dir, said.output)
    node.error = _below(node.dir, said.error)
    node.request_gpus = said.request_gpus
    node.queue_count = said.queue_count


def _below(folder: str | None, name: str | None) -> str | None:
    """A file as seen from DAGMan's working directory; the job is submitted in ``folder``."""
    return name if folder is None or name is None else posixpath.join(folder, name)
