"""The input of the rules: one DAG, its files as written, and the files beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct, field

from metlmon.authoring.lint.finding import Findings
from metlmon.authoring.lint.source_map import (
    SourceCommand,
    SubmitText,
    file_lines,
    source_commands,
    submit_text,
)
from metlmon.config.settings import Settings
from metlmon.dagman import Node, NodeKind, Workflow
from metlmon.dagman.commands import DescriptionCommand, NodeCommand, Placement, VarsCommand
from metlmon.dagman.file_cache import places
from metlmon.dagman.lexer import Line
from metlmon.dagman.submit_description import command_values
from metlmon.live.regular_files import read_regular_file
from metlmon.model.run import RunPart, parse_run_part

MOST_FILES: Final = 20_000
"""Limit of path look-ups: each costs a stat, on network file systems 1 ms."""

RUN_SUFFIXES: Final = (".dagman.out", ".dagman.log", ".nodes.log", ".metrics")
"""Files beside a DAG file that DAGMan has run. (``.condor.sub`` needs no run.)"""

JOB_KINDS: Final = frozenset({NodeKind.JOB, NodeKind.FINAL, NodeKind.SERVICE, NodeKind.PROVISIONER})


class Positioned(Protocol):
    """A node, command or statement with its position."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int | None: ...


class FileStore:
    """The files of one check, each read once and shared by parser and rules."""

    def __init__(self) -> None:
        self._bytes: dict[Path, bytes | OSError] = {}
        self._existing: dict[str, bool] = {}

    def read(self, path: Path) -> bytes:
        """As :func:`metlmon.live.regular_files.read_regular_file`. Raises OSError, ValueError."""
        if path not in self._bytes:
            try:
                self._bytes[path] = read_regular_file(path)
            except OSError as error:
                self._bytes[path] = error
        result = self._bytes[path]
        if isinstance(result, OSError):
            raise result
        return result

    def get(self, path: Path) -> bytes | None:
        """The bytes, or None if the file cannot be read."""
        try:
            return self.read(path)
        except (OSError, ValueError):
            return None

    @property
    def exhausted(self) -> bool:
        """Whether the limit of path look-ups is reached."""
        return len(self._existing) >= MOST_FILES

    def exists(self, path: str) -> bool:
        """Whether the path exists; True beyond the limit of look-ups."""
        if path not in self._existing:
            if self.exhausted:
                return True
            try:
                self._existing[path] = os.path.lexists(path)
            except ValueError:  # a NUL in the name
                self._existing[path] = False
        return self._existing[path]


class LintContext(Struct):
    """One workflow, prepared for the rules.

    ``dagman_dir``: its DAGMan's working directory; ``dagdir``: the directory being checked, to
    which file names are relative; ``name``: the DAG file's name in findings; ``names``: its files
    by their names in findings; ``commands``: the commands of each DAG file; ``parts``: each
    node's part in a run.
    """

    workflow: Workflow
    dagman_dir: Path
    dagdir: Path
    files: FileStore
    settings: Settings
    findings: Findings
    name: str
    names: dict[str, Path] = field(default_factory=dict)
    commands: dict[str, list[SourceCommand]] = field(default_factory=dict)
    parts: dict[str, RunPart] = field(default_factory=dict)
    _blocks: dict[tuple[str, int], SubmitText] = field(default_factory=dict)
    _shared: dict[str, SubmitText] = field(default_factory=dict)
    _files: dict[tuple[str, str, str], SubmitText | None] = field(default_factory=dict)
    _texts: dict[Path, SubmitText] = field(default_factory=dict)
    _vars: dict[str, dict[tuple[str, str], int]] = field(default_factory=dict)
    _appends: bool = False
    _has_run: bool | None = None

    # --- reading -----------------------------------------------------------------------

    def open(self) -> None:
        """Read the DAG files of the workflow as written."""
        node_files = {node.file for node in self.workflow.nodes.values()}
        for path in self.workflow.files:
            name = self.display_name(path)
            self.names[name] = path
            if path == self.workflow.path or name in node_files or path in self.workflow.references:
                self._read_dag_file(name, self.files.get(path) or b"")
        for node in self.workflow.nodes.values():
            if (part := parse_run_part(node, self.settings)) is not None:
                self.parts[node.name] = part

    def _read_dag_file(self, name: str, data: bytes) -> None:
        self.commands[name] = entries = list(source_commands(name, data))
        for entry in entries:
            match entry.command:
                case DescriptionCommand(name=description_name):
                    self._shared.setdefault(description_name, self._inline_text(name, entry.block))
                case NodeCommand(submit=None):
                    self._blocks[name, entry.line] = self._inline_text(name, entry.block)
                case VarsCommand(placement=Placement.APPEND):
                    self._appends = True
                case _:
                    pass

    def _inline_text(self, name: str, block: tuple[Line, ...]) -> SubmitText:
        directory = self.names[name].parent
        return submit_text(
            name, block, inline=True, include=lambda file: self._read_include(file, directory)
        )

    def _read_include(self, name: str, directory: Path) -> tuple[str, list[Line]] | None:
        for path in places(name, directory, self.dagman_dir):
            if (data := self.files.get(path)) is not None:
                return self.display_name(path), file_lines(data)
        return None

    def display_name(self, path: Path) -> str:
        """The file's name in findings: relative to the dagdir if it is below it."""
        try:
            return str(path.relative_to(self.dagdir))
        except ValueError:
            return str(path)

    def report(
        self,
        kind: str,
        source: Positioned,
        message: str,
        about: str | None = None,
    ) -> None:
        """Add a finding at the position of ``source``; see :meth:`Findings.add`."""
        self.findings.add(kind, source.file, source.line, message, about)

    # --- queries ------------------------------------------------------------------------

    @property
    def has_run(self) -> bool:
        """Whether DAGMan has run the DAG.

        If so, a missing file existed then, or was not needed.
        """
        if self._has_run is None:
            logs = {
                node.log
                for node in self.workflow.nodes.values()
                if node.log and "$" not in node.log
            }
            paths = (
                [f"{self.workflow.path}{suffix}" for suffix in RUN_SUFFIXES]
                if not self._parse_failed()
                else []
            )
            paths += [str(self.dagman_dir / log) for log in sorted(logs)[:RUN_LOGS_CHECKED]]
            paths += [
                str(self.dagman_dir / Path(log).name) for log in sorted(logs)[:RUN_LOGS_CHECKED]
            ]
            self._has_run = any(self.files.exists(path) for path in paths)
        return self._has_run

    def _parse_failed(self) -> bool:
        """Whether DAGMan only failed to parse the DAG, so that no node ran."""
        if any(
            self.files.exists(f"{self.workflow.path}{suffix}")
            for suffix in (".nodes.log", ".metrics")
        ):
            return False
        out = self.files.get(Path(f"{self.workflow.path}.dagman.out")) or b""
        return b"Failed to parse" in out

    @property
    def submitted(self) -> bool:
        """Whether DAGMan's own files show that the DAG was submitted.

        Unlike :attr:`has_run` this ignores the job logs, which may be shared with another DAG.
        """
        return any(self.files.exists(f"{self.workflow.path}{suffix}") for suffix in RUN_SUFFIXES)

    def all_commands(self) -> Iterator[SourceCommand]:
        """The commands of all DAG files."""
        for commands in self.commands.values():
            yield from commands

    def jobs(self) -> Iterator[Node]:
        """The nodes that submit a job."""
        for node in self.workflow.nodes.values():
            if node.kind in JOB_KINDS and not node.noop:
                yield node

    def trainings(self) -> Iterator[tuple[Node, RunPart]]:
        """The training nodes with their parts in their runs."""
        for name, part in self.parts.items():
            if part.training:
                yield self.workflow.nodes[name], part

    def submit_text_of(self, node: Node) -> SubmitText | None:
        """The submit description of a node's job, or None if it cannot be read."""
        if node.submit is None:
            return self._blocks.get((node.file, node.line))
        if node.submit in self._shared:
            return self._shared[node.submit]
        key = (node.submit, node.dir or "", node.file)
        if key not in self._files:
            self._files[key] = self._read_submit_file(*key)
        return self._files[key]

    def _read_submit_file(self, name: str, directory: str, dag_file: str) -> SubmitText | None:
        dag_directory = self.names.get(dag_file, self.workflow.path).parent
        for path in places(name, self.dagman_dir / directory, self.dagman_dir, dag_directory):
            if path in self._texts:
                return self._texts[path]
            if (data := self.files.get(path)) is not None:
                display_name = self.display_name(path)
                text = submit_text(
                    display_name,
                    file_lines(data),
                    inline=False,
                    include=lambda file, parent=path.parent: self._read_include(file, parent),  # type: ignore[misc]
                )
                self._texts[path] = text
                return text
        return None

    def submit_texts(self) -> dict[int, tuple[SubmitText, list[Node]]]:
        """Every description with the nodes that use it, possibly none."""
        result: dict[int, tuple[SubmitText, list[Node]]] = {
            id(text): (text, []) for text in self._shared.values()
        }
        for node in self.jobs():
            if (text := self.submit_text_of(node)) is not None:
                result.setdefault(id(text), (text, []))[1].append(node)
        return result

    def values(self, node: Node, text: SubmitText, *names: str) -> dict[str, str | None]:
        """The values of these commands for the node's job, with macros expanded."""
        defaults = {"JOB": node.name, **node.vars}
        return command_values(text.description, defaults, node.vars if self._appends else {}, names)

    def line_of_vars(self, node: Node, key: str) -> int:
        """The line that last sets a variable of the node, else the node's own line."""
        lines = self._vars.get(node.file)
        if lines is None:
            lines = self._vars[node.file] = {
                (entry.command.node, name.lower()): entry.line
                for entry in self.commands.get(node.file, ())
                if isinstance(entry.command, VarsCommand)
                for name, _ in entry.command.pairs
            }
        return lines.get((node.name.rsplit("+", 1)[-1], key.lower()), node.line)


RUN_LOGS_CHECKED: Final = 20
"""Most job logs to look up for :attr:`LintContext.has_run`."""
