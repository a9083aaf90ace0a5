"""The kinds of findings, with severity and remedy; and the collected findings.

The kinds are stable: scripts and the configuration of other tools filter by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final

from msgspec import Struct

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

ORDER: Final = (LintSeverity.ERROR, LintSeverity.WARNING, LintSeverity.NOTE)

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


class _Occurrences(Struct):
    """The first occurrence of a finding, and the number of all."""

    line: int | None
    message: str
    count: int = 0


class Findings:
    """Collects findings in bounded memory.

    A limited number per kind and file is listed; the rest is counted.
    """

    def __init__(self) -> None:
        self._occurrences: dict[tuple[str, str], dict[object, _Occurrences]] = {}
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
        group = self._occurrences.setdefault((kind, file), {})
        key: object = about or (line, message)
        if key not in group and len(group) >= KINDS[kind].most_listed:
            key = next(reversed(group))
        first = group.setdefault(key, _Occurrences(line, message))
        first.count += 1
        if line is not None and (first.line is None or line < first.line):
            first.line, first.message = line, message

    def all(self) -> tuple[Finding, ...]:
        """All findings, sorted by file, line, then severity, the worst first."""
        findings = [
            Finding(
                severity=KINDS[kind].severity,
                kind=kind,
                file=file,
                line=first.line,
                message=redact_secrets(first.message),
                remedy=KINDS[kind].remedy,
                count=first.count,
            )
            for (kind, file), group in self._occurrences.items()
            for first in group.values()
        ]
        findings.sort(
            key=lambda finding: (
                finding.file,
                finding.line or 0,
                ORDER.index(finding.severity),
                finding.kind,
                finding.message,
            )
        )
        return tuple(findings)
