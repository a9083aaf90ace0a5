"""What the rules look at: one DAG with its files as they are written, and what lies beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from metlmon.authoring.lint.finding import Findings
from metlmon.authoring.lint.source_map import SourceMap, SubmitText, file_lines, spoken, submit_text
from metlmon.dagman import Node, NodeKind, Workflow
from metlmon.dagman.commands import DescriptionCommand, NodeCommand, Placement, VarsCommand
from metlmon.dagman.file_cache import places
from metlmon.dagman.lexer import Line
from metlmon.dagman.submit_description import command_values
from metlmon.live.discovery import read_regular
from metlmon.model.run import RunPart, part_of_run
from metlmon.model.settings import Settings

MOST_FILES: Final = 20_000
"""Paths that are looked for: each costs a stat, on a network file system a millisecond."""

RAN: Final = (".dagman.out", ".dagman.log", ".nodes.log", ".metrics")
"""Beside a DAG file that DAGMan has had in its hands. (``.condor.sub`` is there without.)"""

WITH_JOB: Final = frozenset({NodeKind.JOB, NodeKind.FINAL, NodeKind.SERVICE, NodeKind.PROVISIONER})


class FileStore:
    """The files of one check: each is read once, in whatever order rules and parser ask."""

    def __init__(self) -> None:
        self._bytes: dict[Path, bytes | OSError] = {}
        self._there: dict[str, bool] = {}

    def read(self, path: Path) -> bytes:
        """As :func:`metlmon.live.discovery.read_regular`. Raises OSError, ValueError."""
        if path not in self._bytes:
            try:
                self._bytes[path] = read_regular(path)
            except OSError as error:
                self._bytes[path] = error
        held = self._bytes[path]
        if isinstance(held, OSError):
            raise held
        return held

    def get(self, path: Path) -> bytes | None:
        """The bytes, None where there are none to be had."""
        try:
            return self.read(path)
        except (OSError, ValueError):
            return None

    @property
    def full(self) -> bool:
        """Have as many paths been looked for as will be?"""
        return len(self._there) >= MOST_FILES

    def there(self, path: str) -> bool:
        """Whether anything has this path; True where it is not looked for any more."""
        if path not in self._there:
            if self.full:
                return True
            try:
                self._there[path] = os.path.lexists(path)
            except ValueError:  # a NUL in the name
                self._there[path] = False
        return self._there[path]


@dataclass(slots=True)
class LintContext:
    """One workflow, ready for the rules. ``home`` is its DAGMan's directory, ``dagdir`` the one
    that was asked for, which files are called by, ``names`` how its files are called in
    findings, ``ran`` whether DAGMan has had it in its hands."""

    flow: Workflow
    home: Path
    dagdir: Path
    shelf: FileStore
    settings: Settings
    found: Findings
    name: str
    names: dict[str, Path] = field(default_factory=dict)
    commands: dict[str, list[SourceMap]] = field(default_factory=dict)
    parts: dict[str, RunPart] = field(default_factory=dict)
    _blocks: dict[tuple[str, int], SubmitText] = field(default_factory=dict)
    _shared: dict[str, SubmitText] = field(default_factory=dict)
    _files: dict[tuple[str, str, str], SubmitText | None] = field(default_factory=dict)
    _texts: dict[Path, SubmitText] = field(default_factory=dict)
    _vars: dict[str, dict[tuple[str, str], int]] = field(default_factory=dict)
    _appends: bool = False
    _ran: bool | None = None

    # --- making one --------------------------------------------------------------------

    def open(self) -> None:
        """Reads the DAG files of the workflow as they are written."""
        tops = {node.file for node in self.flow.nodes.values()}
        for path in self.flow.files:
            name = self.called(path)
            self.names[name] = path
            if path == self.flow.path or name in tops or path in self.flow.references:
                self._add(name, self.shelf.get(path) or b"")
        for node in self.flow.nodes.values():
            if (part := part_of_run(node, self.settings)) is not None:
                self.parts[node.name] = part

    def _add(self, name: str, data: bytes) -> None:
        self.commands[name] = told = list(spoken(data))
        for each in told:
            match each.command:
                case DescriptionCommand(name=described):
                    self._shared.setdefault(described, self._inline(name, each.block))
                case NodeCommand(submit=None):
                    self._blocks[name, each.line] = self._inline(name, each.block)
                case VarsCommand(placement=Placement.APPEND):
                    self._appends = True
                case _:
                    pass

    def _inline(self, name: str, block: tuple[Line, ...]) -> SubmitText:
        folder = self.names[name].parent
        return submit_text(
            name, block, inline=True, include=lambda file: self._included(file, folder)
        )

    def _included(self, name: str, folder: Path) -> tuple[str, list[Line]] | None:
        for path in places(name, folder, self.home):
            if (data := self.shelf.get(path)) is not None:
                return self.called(path), file_lines(data)
        return None

    def called(self, path: Path) -> str:
        """The file's name in findings: relative to the dagdir where it lies in it."""
        try:
            return str(path.relative_to(self.dagdir))
        except ValueError:
            return str(path)

    # --- what rules ask ------------------------------------------------------------------

    @property
    def ran(self) -> bool:
        """Has DAGMan had it in its hands? Then what is missing was there, or was lived without."""
        if self._ran is None:
            logs = {
                node.log for node in self.flow.nodes.values() if node.log and "$" not in node.log
            }
            paths = [f"{self.flow.path}{ending}" for ending in RAN] if not self._refused() else []
            paths += [str(self.home / log) for log in sorted(logs)[:RAN_LOGS]]
            paths += [str(self.home / Path(log).name) for log in sorted(logs)[:RAN_LOGS]]
            self._ran = any(self.shelf.there(path) for path in paths)
        return self._ran

    def _refused(self) -> bool:
        """Did DAGMan come no further than to read it? Then nothing of it ran."""
        if any(
            self.shelf.there(f"{self.flow.path}{ending}") for ending in (".nodes.log", ".metrics")
        ):
            return False
        out = self.shelf.get(Path(f"{self.flow.path}.dagman.out")) or b""
        return b"Failed to parse" in out

    @property
    def submitted(self) -> bool:
        """Has DAGMan had it in its hands, by its own files? The log may be another DAG's, too."""
        return any(self.shelf.there(f"{self.flow.path}{ending}") for ending in RAN)

    def jobs(self) -> Iterator[Node]:
        """Nodes that submit something."""
        for node in self.flow.nodes.values():
            if node.kind in WITH_JOB and not node.noop:
                yield node

    def trainings(self) -> Iterator[tuple[Node, RunPart]]:
        """The training nodes and what they are to their runs."""
        for name, part in self.parts.items():
            if part.training:
                yield self.flow.nodes[name], part

    def described(self, node: Node) -> SubmitText | None:
        """The description that a node's job is made from, None where it cannot be read."""
        if node.submit is None:
            return self._blocks.get((node.file, node.line))
        if node.submit in self._shared:
            return self._shared[node.submit]
        key = (node.submit, node.dir or "", node.file)
        if key not in self._files:
            self._files[key] = self._file(*key)
        return self._files[key]

    def _file(self, name: str, folder: str, beside: str) -> SubmitText | None:
        around = self.names.get(beside, self.flow.path).parent
        for path in places(name, self.home / folder, self.home, around):
            if path in self._texts:
                return self._texts[path]
            if (data := self.shelf.get(path)) is not None:
                called = self.called(path)
                text = submit_text(
                    called,
                    file_lines(data),
                    inline=False,
                    include=lambda file, here=path.parent: self._included(file, here),  # type: ignore[misc]
                )
                self._texts[path] = text
                return text
        return None

    def texts(self) -> dict[int, tuple[SubmitText, list[Node]]]:
        """Every description with the nodes that use it; one that no node uses has none."""
        found: dict[int, tuple[SubmitText, list[Node]]] = {
            id(text): (text, []) for text in self._shared.values()
        }
        for node in self.jobs():
            if (text := self.described(node)) is not None:
                found.setdefault(id(text), (text, []))[1].append(node)
        return found

    def values(self, node: Node, text: SubmitText, *names: str) -> dict[str, str | None]:
        """What these commands come to for the node's job."""
        before = {"JOB": node.name, **node.vars}
        return command_values(text.description, before, node.vars if self._appends else {}, names)

    def line_of_vars(self, node: Node, key: str) -> int:
        """The line that last sets a VAR of the node; the node's own where none is found."""
        lines = self._vars.get(node.file)
        if lines is None:
            lines = self._vars[node.file] = {
                (each.command.node, name.lower()): each.line
                for each in self.commands.get(node.file, ())
                if isinstance(each.command, VarsCommand)
                for name, _ in each.command.pairs
            }
        return lines.get((node.name.rsplit("+", 1)[-1], key.lower()), node.line)


RAN_LOGS: Final = 20
"""Logs of the jobs that are looked for to know whether a DAG ran: one would do."""
