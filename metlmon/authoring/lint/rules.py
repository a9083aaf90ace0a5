"""The kinds of findings, with severity and remedy; the collected findings; the input of the rules.

The kinds are stable: scripts and the configuration of other tools filter by them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.dagman.commands import DescriptionCommand, VarsCommand
from metlmon.dagman.parser import SourceCommand, read_commands
from metlmon.dagman.records import Node, NodeKind, Problem, Workflow
from metlmon.dagman.submit_description import Description, Statement, command_values
from metlmon.eventlog.events import site_in_ad
from metlmon.live.file_access import UnreadableFile, linked_content, read_file_end
from metlmon.model.run import RunPart, parse_run_part
from metlmon.redact import redact_secrets


class LintSeverity(StrEnum):
    """The severity of a finding.

    ERROR: HTCondor refuses it, or a node cannot do its work. WARNING: it runs, but causes trouble
    later. NOTE: worth knowing, often intended.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


_E, _W, _N = LintSeverity.ERROR, LintSeverity.WARNING, LintSeverity.NOTE

MAX_LISTED: Final = 20
"""Maximum number of listed findings of one kind and file; few are fixed at a time.

Mistakes repeated on every node list only the first.
"""


class Rule(Struct, frozen=True):
    """A kind of finding.

    ``remedy``: one sentence. ``most_listed``: the maximum number of listed findings per file.
    """

    severity: LintSeverity
    remedy: str
    most_listed: int = MAX_LISTED


KINDS: Final[Mapping[str, Rule]] = {
    # --- the text of DAG files ---------------------------------------------------------
    "syntax": Rule(_E, "Correct the line: DAGMan refuses the whole DAG for it."),
    "newer-command": Rule(
        _W, "Nothing, if it is a command of a newer HTCondor: DAGMan has run this DAG with it."
    ),
    "unknown-command": Rule(
        _E, "Correct the word, or put # before the line: DAGMan refuses the whole DAG for it."
    ),
    "not-a-dag": Rule(
        _N, "Nothing, if it is a graph of another program; else write its nodes as JOB lines."
    ),
    "byte-order-mark": Rule(_E, "Save the file as UTF-8 without a byte order mark."),
    "crlf": Rule(_N, "Convert it with dos2unix; scripts from the same editor would not run.", 1),
    "not-utf8": Rule(_W, "Save the file as UTF-8: names are compared byte by byte.", 1),
    "unfinished-line": Rule(_W, "Remove the last backslash, or write the line that follows it."),
    "queue-in-description": Rule(
        _N,
        "Leave the queue line out: it is not needed, and HTCondor before 24.11 can refuse it here.",
        1,
    ),
    "unquoted-value": Rule(
        _W, 'Put the value in double quotes, name="value": HTCondor before 25.5 demands them.', 1
    ),
    "value-goes-on": Rule(
        _E,
        "Put a blank between the pairs: HTCondor before 25.5 refuses the DAG, later ones take all "
        "of it for the value.",
    ),
    "vars-escape": Rule(
        _W,
        "Write two backslashes for one: HTCondor before 25.5 refuses the DAG, later ones drop it.",
        1,
    ),
    "vars-name": Rule(
        _W,
        "Use letters, digits and _ only: HTCondor before 25.5 refuses other characters, and $(…) "
        "finds no such name.",
        1,
    ),
    "job-attribute": Rule(
        _E, "Write SET_JOB_ATTR name = value: condor_submit_dag cannot submit DAGMan like this."
    ),
    # --- the graph ---------------------------------------------------------------------
    "missing-file": Rule(_E, "Put the file there, or correct the path."),
    "recursion": Rule(_E, "Take the line out that leads back."),
    "duplicate-node": Rule(_E, "Give every node and splice a name of its own."),
    "unknown-node": Rule(_E, "Correct the name, or add its JOB line."),
    "dependency": Rule(_E, "Take the node out of the PARENT line."),
    "pins": Rule(_E, "Give both splices the same pin numbers, from 1 on."),
    "reject": Rule(_E, "Remove REJECT when the DAG is ready to run."),
    "too-large": Rule(_E, "Split the DAG, or make fewer splices."),
    "cycle": Rule(_E, "Remove one of these PARENT … CHILD lines."),
    "missing-subdag": Rule(_E, "Write the sub-DAG file: no node or script before it can."),
    "missing-later-subdag": Rule(
        _W, "Write the sub-DAG file, unless an earlier node or the PRE script writes it."
    ),
    "subdag-recursion": Rule(_E, "Take the SUBDAG line out that leads back."),
    "splice-node": Rule(
        _E,
        "Put the command into the splice's own DAG file (PARENT takes the splice as a whole): "
        "DAGMan refuses the DAG.",
    ),
    "node-kind": Rule(_E, "Remove the line: DAGMan refuses the whole DAG for it."),
    "lone-node": Rule(_N, "Add a PARENT … CHILD line, if it was to wait for the others."),
    "unused-throttle": Rule(_W, "Correct the category's name in MAXJOBS or CATEGORY."),
    "throttle-zero": Rule(
        _E, "Give MAXJOBS 1 or more, or remove it: none of the category's nodes would ever start."
    ),
    "pre-skip-range": Rule(_E, "Use an exit code from 1 to 255: DAGMan refuses the whole DAG."),
    "pre-skip-zero": Rule(
        _W, "Use another exit code: with 0 every PRE script that ends well skips."
    ),
    "abort-stops-all": Rule(
        _W, "Use a gate with PRE_SKIP, or a sub-DAG for each run, to stop one run alone.", 1
    ),
    "abort-restarts": Rule(
        _W,
        "Add RETURN 0, 1 or 2: after any other status HTCondor starts DAGMan again and again.",
        1,
    ),
    "done-line": Rule(
        _W, "Write DONE at the end of the JOB line: DAGMan of HTCondor 23.9 crashes otherwise."
    ),
    "done-in-splice": Rule(
        _W, "Mark it DONE in a rescue file: DAGMan reads DONE in the DAG file itself alone."
    ),
    "nested-as-job": Rule(
        _W, "Write SUBDAG EXTERNAL and the DAG file: HTCondor 23.9 refuses the DAG as it is."
    ),
    # --- files -------------------------------------------------------------------------
    "missing-config": Rule(_E, "Put the file there, or remove the CONFIG line."),
    "second-config": Rule(_E, "Keep one CONFIG line: condor_submit_dag refuses several."),
    "missing-submit-file": Rule(_E, "Write the submit file, or correct its name."),
    "missing-executable": Rule(_E, "Put it there; transfer_executable = false uses the machine's."),
    "missing-input": Rule(_E, "Put the file there, or correct transfer_input_files."),
    "missing-later-input": Rule(
        _W, "Put the file there, unless an earlier node brings it back under this name."
    ),
    "missing-script": Rule(_E, "Put the script there, or correct its path: the node would fail."),
    "script-quoted": Rule(
        _E, "Leave the quotes out: DAGMan splits the line at blanks, and takes them for characters."
    ),
    "script-not-executable": Rule(_E, "Run chmod +x on it: the node would fail."),
    "no-interpreter": Rule(
        _W,
        "Put it on PATH where the DAG is submitted: a script that cannot start fails its node, and "
        "a gate lets every epoch train.",
    ),
    "script-crlf": Rule(
        _E, "Convert it with dos2unix: the kernel looks for an interpreter ending in CR."
    ),
    "missing-directory": Rule(_E, "Make the directory, or correct DIR or initialdir."),
    "files-not-here": Rule(
        _N, "Nothing, if this is a copy; to submit it from here, bring them along.", 1
    ),
    "missing-queue-items": Rule(
        _E, "Put the file there, or correct the queue line: the node's submission would fail."
    ),
    "too-many-files": Rule(_N, "Put them in one directory or archive, and name that.", 1),
    # --- submit descriptions -----------------------------------------------------------
    "bare-requirement": Rule(_E, "Write: requirements = …, with this condition in it."),
    "submit-syntax": Rule(_E, "Correct the line: condor_submit takes name = value."),
    "submit-command": Rule(
        _W,
        "Correct the name, or write MY.name for an attribute of the job: condor_submit passes over "
        "what it does not know.",
    ),
    "unfinished-expression": Rule(
        _E, "Correct the expression: condor_submit refuses it, and the node fails."
    ),
    "unbalanced-if": Rule(_E, "Close every if with an endif."),
    "undefined-macro": Rule(_W, "Set it with VARS, or correct the name: it comes out empty."),
    "request-too-large": Rule(_N, "Request less: more machines match it."),
    "request-exceeded": Rule(_N, "Request more: jobs were held for it."),
    "gpus-not-requested": Rule(_W, "Add request_gpus = 1: without it the job gets no GPU."),
    "no-log": Rule(_W, "Add: log = NAME.log; transfers and memory are in a job's own log only."),
    "log-per-job": Rule(
        _W, "Let all jobs share one log: one file is followed at once, hundreds are searched."
    ),
    "shared-log": Rule(_N, "Give each DAG a log of its own, so that no job's DAG is in doubt."),
    "shared-status-file": Rule(_W, "Give each DAG a file of its own: each overwrites the other's."),
    "several-procs": Rule(_W, "Use queue 1: each of the jobs would train the same epoch.", 1),
    "mail": Rule(_N, "Use notification = never: DAGMan itself sends one mail at the end."),
    "network-file-system": Rule(
        _W, "Submit from a local disk: on network file systems events are lost or come late."
    ),
    "in-tmp": Rule(
        _W,
        "Submit it from a directory that stays: DAGMan refuses a nodes.log in /tmp, unless "
        "DAGMAN_USE_STRICT is 0.",
    ),
    # --- secrets -----------------------------------------------------------------------
    "secret": Rule(
        _W,
        "Take it out and make it invalid: who can read the file or the queue has it; transfer a "
        "file that only you can read.",
    ),
    # --- trainings ---------------------------------------------------------------------
    "no-site": Rule(
        _W, "Add: ulog_execute_attrs = GLIDEIN_ResourceName; else the log has slots, not sites."
    ),
    "no-retry": Rule(
        _W, "Add: RETRY ALL_NODES 3; one bad machine ends the run, and fails the DAG.", 1
    ),
    "side-node-fails-dag": Rule(
        _W,
        "Add: SCRIPT POST node /bin/true; if it fails for good, the whole DAG is a failed one.",
        1,
    ),
    "failure-hidden": Rule(
        _W, "Remove the POST script: failed epochs count as done, and RETRY never comes to it.", 1
    ),
    "broken-chain": Rule(_W, "Add the PARENT … CHILD line: both epochs can run at once.", 1),
    "epoch-gap": Rule(_N, "Add the epochs that are missing, if they are not in another DAG.", 1),
    "no-checkpoint": Rule(
        _W, "Set VARS continue_from_checkpoint there, too: the job would train from the start.", 1
    ),
    "checkpoint-at-first": Rule(
        _N, "Leave continue_from_checkpoint out, unless the run continues one that has been.", 1
    ),
    "no-uuid": Rule(_W, "Set VARS run_uuid there, too: else the run is known by its name only.", 1),
    "uuid-twice": Rule(_W, "Give each run a uuid of its own: they write into the same files."),
    "uuid-changes": Rule(_W, "Use one uuid for all epochs of a run.", 1),
    "stopped-before": Rule(
        _W,
        "Move gate/<name> away before submitting: the gate leaves these runs out, and the DAG ends "
        "well without them.",
        1,
    ),
    "epoch-is-horizon": Rule(
        _W,
        "Pass the number of epochs in all as the horizon, and the epoch to stop after apart "
        "from it: else the learning-rate schedule ends in every job.",
    ),
    "no-horizon": Rule(
        _N,
        "See that the script does not take it for max_epochs, or its learning-rate schedule ends "
        "in every job; $(epochs) can be passed besides.",
        1,
    ),
}

_MAX_REMEMBERED: Final = 100_000
"""Limit of the duplicate detection; hostile files could produce millions."""


class Finding(Struct, frozen=True):
    """One finding.

    ``kind``: stable, since scripts filter by it. ``file``: relative to the dagdir. ``line``: from
    1; None for the file as a whole. ``message``, ``remedy``: one sentence each, without secrets;
    names from the files in them are not yet escaped for the terminal. ``count``: the places in this
    file that it stands for; ``line`` is the first of them.
    """

    severity: LintSeverity
    kind: str
    file: str
    line: int | None
    message: str
    remedy: str
    count: int = 1


class LintResult(Struct, frozen=True):
    """The result of a check.

    ``dags``: the top-level DAG files; ``findings``: sorted by file and line.
    """

    json_properties: ClassVar = ("errors", "warnings", "notes")

    dags: tuple[str, ...]
    findings: tuple[Finding, ...]

    def number(self, severity: LintSeverity) -> int:
        """The number of findings of this severity."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def errors(self) -> int:
        return self.number(LintSeverity.ERROR)

    @property
    def warnings(self) -> int:
        return self.number(LintSeverity.WARNING)

    @property
    def notes(self) -> int:
        return self.number(LintSeverity.NOTE)


class Findings:
    """Collects findings in bounded memory.

    A limited number per kind and file is listed; the rest is counted.
    """

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str], dict[object, Finding]] = {}
        self._seen: set[tuple[str, str, int | None, str]] = set()

    def add(
        self, kind: str, file: str, line: int | None, message: str, about: str | None = None
    ) -> None:
        """Add a finding.

        An identical one (of a splice used twice) counts once; several of one kind ``about`` the
        same thing (a script that many nodes use) are merged.
        """
        identity = (kind, file, line, message)
        if identity in self._seen:
            return
        if len(self._seen) < _MAX_REMEMBERED:
            self._seen.add(identity)
        rule, group = KINDS[kind], self._findings.setdefault((kind, file), {})
        key: object = about or (line, message)
        if key not in group and len(group) >= rule.most_listed:
            key = next(reversed(group))
        new = Finding(rule.severity, kind, file, line, message, rule.remedy)
        if (known := group.get(key)) is not None:
            is_before = line is not None and (known.line is None or line < known.line)
            new = replace(new if is_before else known, count=known.count + 1)
        group[key] = new

    def all(self) -> tuple[Finding, ...]:
        """All findings, sorted by file, line, then severity, the worst first."""

        def place(each: Finding) -> tuple[object, ...]:
            order = list(LintSeverity).index(each.severity)
            return each.file, each.line or 0, order, each.kind, each.message

        findings = (
            replace(each, message=redact_secrets(each.message))
            for group in self._findings.values()
            for each in group.values()
        )
        return tuple(sorted(findings, key=place))


# --- the input of the rules: one DAG, its files as written, and the files beside it ------------


MAX_FILES: Final = 20_000
"""Limit of path look-ups: each costs a stat, on network file systems 1 ms."""

RUN_SUFFIXES: Final = (".dagman.out", ".dagman.log", ".nodes.log", ".metrics")
"""Files beside a DAG file that exist after DAGMan has run it; ``.condor.sub`` exists before."""

RUN_LOGS_CHECKED: Final = 20
"""Maximum number of job logs to look for."""

LOG_BYTES_CHECKED: Final = 1 << 20
"""Bytes read at the end of each, for :meth:`LintContext.logs_have_sites`."""

JOB_KINDS: Final = frozenset({NodeKind.JOB, NodeKind.FINAL, NodeKind.SERVICE, NodeKind.PROVISIONER})


RequestedAmount = tuple[str | None, str, float]
"""A node's submit file, a submit command that requests a resource, and the amount (in KB)."""

NO_REQUESTS: Final[Mapping[RequestedAmount, tuple[str, str]]] = {}


Positioned = Node | SourceCommand | Statement | Description | Problem
"""What has a position: its ``file`` and ``line``."""


class FileStore:
    """The files of one check, each read once and shared by parser and rules."""

    def __init__(self) -> None:
        self.get: Callable[[Path], bytes | None] = cache(linked_content)
        """The bytes of a file, or None if it cannot be read."""
        self._existing: dict[str, bool] = {}

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
        requests: Mapping[RequestedAmount, tuple[str, str]],
    ) -> None:
        self.workflow, self.dagman_dir, self.dagdir = workflow, workflow.directory, dagdir
        self.files, self.findings, self.requests = files, findings, requests
        self.name = self.display_name(workflow.path)
        self.names: dict[str, Path] = {}
        self.commands: dict[str, list[SourceCommand]] = {}
        self.parts: dict[str, RunPart] = {}
        self._vars: dict[str, dict[tuple[str, str], int]] = {}
        self.outer: list[LintContext] = []
        """Those of the DAGs of which this is a sub-DAG."""
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

    @cached_property
    def has_run(self) -> bool:
        """Whether DAGMan has run the DAG, or one of which it is a sub-DAG.

        If so, a missing file existed then, or was not needed.
        """
        if any(map(self.files.exists, self._job_logs())):
            return True
        if self.submitted and not self._parse_failed():
            return True
        return any(context.has_run for context in self.outer)

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

    def training_descriptions(self) -> Iterator[tuple[Description, list[Node]]]:
        """The descriptions of trainings that are known completely, with these trainings."""
        for text, nodes in self.descriptions():
            trainings = [
                node for node in nodes if (part := self.parts.get(node.name)) and part.training
            ]
            if trainings and not text.unresolved:
                yield text, trainings

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
