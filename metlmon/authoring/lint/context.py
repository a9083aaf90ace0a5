"""The input of the rules: one DAG, its files as written, and the files beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from metlmon.authoring.lint.rules import Findings
from metlmon.config.settings import Settings
from metlmon.dagman.commands import DescriptionCommand, VarsCommand
from metlmon.dagman.parser import SourceCommand, read_commands
from metlmon.dagman.records import Node, NodeKind, Workflow
from metlmon.dagman.submit_description import Description, command_values
from metlmon.eventlog.events import site_in_ad
from metlmon.live.file_access import UnreadableFile, read_file_end, read_regular_file
from metlmon.model.run import RunPart, parse_run_part

MAX_FILES: Final = 20_000
"""Limit of path look-ups: each costs a stat, on network file systems 1 ms."""

RUN_SUFFIXES: Final = (".dagman.out", ".dagman.log", ".nodes.log", ".metrics")
"""Files beside a DAG file that exist after DAGMan has run it; ``.condor.sub`` exists before."""

RUN_LOGS_CHECKED: Final = 20
"""Maximum number of job logs to look for."""

LOG_BYTES_CHECKED: Final = 1 << 20
"""Bytes read at the end of each, for :meth:`LintContext.logs_have_sites`."""

JOB_KINDS: Final = frozenset({NodeKind.JOB, NodeKind.FINAL, NodeKind.SERVICE, NodeKind.PROVISIONER})


RequestedAmount: TypeAlias = tuple[str | None, str, float]
"""A node's submit file, a submit command that requests a resource, and the amount (in KB)."""

NO_REQUESTS: Final[Mapping[RequestedAmount, tuple[str, str]]] = {}


class Positioned(Protocol):
    """A node, command or statement with its position."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int | None: ...


class FileStore:
    """The files of one check, each read once and shared by parser and rules."""

    def __init__(self) -> None:
        self.get: Callable[[Path], bytes | None] = cache(self._get)
        self._existing: dict[str, bool] = {}

    def _get(self, path: Path) -> bytes | None:
        """The bytes, or None if the file cannot be read."""
        try:
            return read_regular_file(path)
        except (OSError, ValueError):
            return None

    def read(self, path: Path) -> bytes:
        """The bytes. Raises OSError."""
        if (data := self.get(path)) is None:
            raise FileNotFoundError(path)
        return data

    @property
    def exhausted(self) -> bool:
        """Whether the limit of path look-ups is reached."""
        return len(self._existing) >= MAX_FILES

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
    by their names in findings; ``commands``: those of each DAG file; ``parts``: each node's part in
    a run; ``requests``: the kind and the message of a finding by requested amount.
    """

    def __init__(
        self,
        workflow: Workflow,
        dagdir: Path,
        files: FileStore,
        settings: Settings,
        findings: Findings,
        requests: Mapping[RequestedAmount, tuple[str, str]] = NO_REQUESTS,
    ) -> None:
        self.requests = requests
        self.workflow, self.dagman_dir, self.dagdir = workflow, workflow.directory, dagdir
        self.files, self.findings = files, findings
        self.name = self.display_name(workflow.path)
        self.names: dict[str, Path] = {}
        self.commands: dict[str, list[SourceCommand]] = {}
        self.parts: dict[str, RunPart] = {}
        self._vars: dict[str, dict[tuple[str, str], int]] = {}
        self._has_run: bool | None = None
        node_files = {node.file for node in workflow.nodes.values()}
        for path in workflow.files:
            name = self.display_name(path)
            self.names[name] = path
            if path == workflow.path or name in node_files or path in workflow.references:
                self.commands[name] = list(read_commands(files.get(path) or b"", name))
        for node in workflow.nodes.values():
            if (part := parse_run_part(node, settings)) is not None:
                self.parts[node.name] = part

    def display_name(self, path: Path) -> str:
        """The file's name in findings: relative to the dagdir if it is below it."""
        return str(path.relative_to(self.dagdir) if path.is_relative_to(self.dagdir) else path)

    def report(self, kind: str, source: Positioned, message: str, about: str | None = None) -> None:
        """Add a finding at the position of ``source``; see :meth:`Findings.add`."""
        self.findings.add(kind, source.file, source.line, message, about=about)

    def report_vars(self, kind: str, node: Node, key: str, message: str) -> None:
        """Add a finding where a variable of the node is set, else at the node."""
        self.findings.add(kind, node.file, self._line_of_vars(node, key), message)

    # --- queries ------------------------------------------------------------------------

    @property
    def has_run(self) -> bool:
        """Whether DAGMan has run the DAG.

        If so, a missing file existed then, or was not needed.
        """
        if self._has_run is None:
            logged = any(map(self.files.exists, self._job_logs()))
            self._has_run = logged or (self.submitted and not self._parse_failed())
        return self._has_run

    def logs_have_sites(self) -> bool:
        """Whether the job logs have the sites of executions."""
        for path in self._job_logs():
            with suppress(OSError, ValueError, UnreadableFile):
                if site_in_ad(read_file_end(path, LOG_BYTES_CHECKED)):
                    return True
        return False

    def _job_logs(self) -> Iterator[str]:
        """Possible paths of the first job logs: as named, or beside the DAG file."""
        nodes = self.workflow.nodes.values()
        logs = sorted({node.log for node in nodes if node.log and "$" not in node.log})
        for log in logs[:RUN_LOGS_CHECKED]:
            yield from (str(self.dagman_dir / name) for name in (log, Path(log).name))

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

    def description_of(self, node: Node) -> Description | None:
        """The submit description of a node's job, or None if it cannot be read."""
        return self.workflow.descriptions.get(node.name)

    def descriptions(self) -> Iterable[tuple[Description, list[Node]]]:
        """Every description with the nodes that use it, possibly none."""
        result: dict[tuple[str, int], tuple[Description, list[Node]]] = {}
        for entry in self.all_commands():
            if isinstance(entry.command, DescriptionCommand):
                description = entry.command.description
                result.setdefault((description.file, description.line), (description, []))
        for node in self.jobs():
            if (used := self.description_of(node)) is not None:
                result.setdefault((used.file, used.line), (used, []))[1].append(node)
        return result.values()

    def values(self, node: Node, text: Description, *names: str) -> dict[str, str | None]:
        """The values of these commands for the node's job, with macros expanded."""
        appended = self.workflow.appended.get(node.name, ())
        before = {"JOB": node.name, **node.vars}
        after = {name: before.pop(name) for name in appended if name in before}
        return command_values(text, before, after, names)

    def _line_of_vars(self, node: Node, key: str) -> int:
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
