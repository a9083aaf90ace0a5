"""The input of the rules: one DAG, its files as written, and the files beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from metlmon.authoring.lint.finding import Findings
from metlmon.authoring.submit_source import SubmitText, file_lines, submit_text
from metlmon.config.settings import Settings
from metlmon.dagman import Node, NodeKind, Workflow
from metlmon.dagman.commands import (
    DagCommand,
    DescriptionCommand,
    NodeCommand,
    VarsCommand,
    VarsPlacement,
)
from metlmon.dagman.file_cache import places
from metlmon.dagman.lexer import Line, LogicalLines, SyntaxFault, Tokens, shown
from metlmon.dagman.parser import READERS
from metlmon.dagman.submit_description import command_values
from metlmon.live.regular_files import read_regular_file
from metlmon.model.run import RunPart, parse_run_part

MOST_FILES: Final = 20_000
"""Limit of path look-ups: each costs a stat, on network file systems 1 ms."""

RUN_SUFFIXES: Final = (".dagman.out", ".dagman.log", ".nodes.log", ".metrics")
"""Files beside a DAG file that DAGMan has run. (``.condor.sub`` needs no run.)"""

RUN_LOGS_CHECKED: Final = 20
"""Most job logs to look up for :attr:`LintContext.has_run`."""

JOB_KINDS: Final = frozenset({NodeKind.JOB, NodeKind.FINAL, NodeKind.SERVICE, NodeKind.PROVISIONER})


class Positioned(Protocol):
    """A node, command or statement with its position."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int | None: ...


class SourceCommand(Struct, frozen=True):
    """One DAG command as written.

    ``file``: its name in findings. ``keyword``: in upper case with ``_``; ``rest``: the text after
    it; ``command``: None if it cannot be parsed; ``block``: the lines of its inline description.
    """

    file: str
    line: int
    keyword: str
    rest: str
    command: DagCommand | None
    block: tuple[Line, ...] = ()


class _RecordingLines(LogicalLines):
    """Logical lines that record the inline description read last, with line numbers."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.recorded: list[Line] = []

    def block(self, end: str) -> tuple[list[str], str]:
        self.recorded = []
        while (line := self.physical()) is not None:
            if line.text == end or line.text.startswith(end + " "):
                return [recorded.text for recorded in self.recorded], line.text[len(end) :]
            self.recorded.append(line)
        raise SyntaxFault(f"Missing inline description closing token: {shown(end)}")


def source_commands(file: str, data: bytes) -> Iterator[SourceCommand]:
    """The commands of one DAG file, in order, read as by the parser of DAG files."""
    lines = _RecordingLines(data)
    while (line := lines.logical()) is not None:
        tokens, command, keyword = Tokens(line.text), None, ""
        lines.recorded = []
        try:
            keyword = tokens.next().upper().replace("-", "_")
            rest_start = tokens.position
            if (parse := READERS.get(keyword)) is not None:
                command = parse(line.number, tokens, lines)
        except SyntaxFault:
            rest_start = len(keyword)
        rest, block = line.text[rest_start:].strip(), tuple(lines.recorded)
        yield SourceCommand(file, line.number, keyword, rest, command=command, block=block)


class FileStore:
    """The files of one check, each read once and shared by parser and rules."""

    def __init__(self) -> None:
        self._bytes: dict[Path, bytes | OSError] = {}
        self._existing: dict[str, bool] = {}

    def read(self, path: Path) -> bytes:
        """As :func:`read_regular_file`. Raises OSError, ValueError."""
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


class LintContext:
    """One workflow, prepared for the rules.

    ``dagman_dir``: its DAGMan's working directory; ``dagdir``: the directory being checked, to
    which file names are relative; ``name``: the DAG file's name in findings; ``names``: its files
    by their names in findings; ``commands``: the commands of each DAG file; ``parts``: each
    node's part in a run.
    """

    def __init__(
        self,
        workflow: Workflow,
        dagman_dir: Path,
        dagdir: Path,
        files: FileStore,
        settings: Settings,
        findings: Findings,
    ) -> None:
        self.workflow, self.dagman_dir, self.dagdir = workflow, dagman_dir, dagdir
        self.files, self.findings = files, findings
        self.name = self.display_name(workflow.path)
        self.names: dict[str, Path] = {}
        self.commands: dict[str, list[SourceCommand]] = {}
        self.parts: dict[str, RunPart] = {}
        self._blocks: dict[tuple[str, int], SubmitText] = {}
        self._shared: dict[str, SubmitText] = {}
        self._files: dict[tuple[str, str, str], SubmitText | None] = {}
        self._texts: dict[Path, SubmitText] = {}
        self._vars: dict[str, dict[tuple[str, str], int]] = {}
        self._appends = False
        self._has_run: bool | None = None
        node_files = {node.file for node in workflow.nodes.values()}
        for path in workflow.files:
            name = self.display_name(path)
            self.names[name] = path
            if path == workflow.path or name in node_files or path in workflow.references:
                self._read_dag_file(name, files.get(path) or b"")
        for node in workflow.nodes.values():
            if (part := parse_run_part(node, settings)) is not None:
                self.parts[node.name] = part

    def _read_dag_file(self, name: str, data: bytes) -> None:
        self.commands[name] = list(source_commands(name, data))
        directory = self.names[name].parent
        for entry in self.commands[name]:
            match entry.command:
                case DescriptionCommand(name=description):
                    text = self._submit_text(name, entry.block, directory, inline=True)
                    self._shared.setdefault(description, text)
                case NodeCommand(submit=None):
                    text = self._submit_text(name, entry.block, directory, inline=True)
                    self._blocks[name, entry.line] = text
                case VarsCommand(placement=VarsPlacement.APPEND):
                    self._appends = True
                case _:
                    pass

    def _submit_text(
        self, file: str, lines: Sequence[Line], directory: Path, *, inline: bool = False
    ) -> SubmitText:
        """The description of ``file``; it includes files relative to ``directory``."""

        def include(name: str) -> tuple[str, Sequence[Line]] | None:
            for path in places(name, directory, self.dagman_dir):
                if (data := self.files.get(path)) is not None:
                    return self.display_name(path), file_lines(data)
            return None

        return submit_text(file, lines, inline=inline, include=include)

    def display_name(self, path: Path) -> str:
        """The file's name in findings: relative to the dagdir if it is below it."""
        return str(path.relative_to(self.dagdir) if path.is_relative_to(self.dagdir) else path)

    def report(self, kind: str, source: Positioned, message: str, about: str | None = None) -> None:
        """Add a finding at the position of ``source``; see :meth:`Findings.add`."""
        self.findings.add(kind, source.file, source.line, message, about=about)

    # --- queries ------------------------------------------------------------------------

    @property
    def has_run(self) -> bool:
        """Whether DAGMan has run the DAG.

        If so, a missing file existed then, or was not needed.
        """
        if self._has_run is None:
            nodes = self.workflow.nodes.values()
            logs = sorted({node.log for node in nodes if node.log and "$" not in node.log})
            names = [name for log in logs[:RUN_LOGS_CHECKED] for name in (log, Path(log).name)]
            logged = any(self.files.exists(str(self.dagman_dir / name)) for name in names)
            self._has_run = logged or (self.submitted and not self._parse_failed())
        return self._has_run

    def _parse_failed(self) -> bool:
        """Whether DAGMan only failed to parse the DAG, so that no node ran."""
        path = self.workflow.path
        if any(self.files.exists(f"{path}{suffix}") for suffix in (".nodes.log", ".metrics")):
            return False
        return b"Failed to parse" in (self.files.get(Path(f"{path}.dagman.out")) or b"")

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
            if path not in self._texts and (data := self.files.get(path)) is not None:
                lines = file_lines(data)
                self._texts[path] = self._submit_text(self.display_name(path), lines, path.parent)
            if path in self._texts:
                return self._texts[path]
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
