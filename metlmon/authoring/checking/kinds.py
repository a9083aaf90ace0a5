"""Every kind of finding: how bad it is, and what to do about it.

The names are stable: scripts and configuration of other tools filter by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from metlmon.authoring.checking.severity import Severity
from metlmon.frozen import frozen

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE

APART: Final = 20
"""Findings of one kind in one file that are told one by one: whoever mends them mends a few and
looks again. Of what is one mistake repeated on every node only the first is told."""


@frozen
class Kind:
    """``todo``: one sentence. ``apart``: how many in a file are told one by one."""

    severity: Severity
    todo: str
    apart: int = APART


KINDS: Final[Mapping[str, Kind]] = {
    # --- the text of DAG files ---------------------------------------------------------
    "syntax": Kind(_E, "Correct the line: DAGMan refuses the whole DAG for it."),
    "unknown-command": Kind(
        _E, "Correct the word, or put # before the line: DAGMan refuses the whole DAG for it."
    ),
    "byte-order-mark": Kind(_E, "Save the file as UTF-8 without a byte order mark."),
    "crlf": Kind(
        _N,
        "Convert it with dos2unix; scripts from the same editor would not run.",
        1,
    ),
    "not-utf8": Kind(_W, "Save the file as UTF-8: names are compared byte by byte.", 1),
    "unfinished-line": Kind(_W, "Remove the last backslash, or write the line that follows it."),
    "queue-in-description": Kind(
        _N,
        "Leave the queue line out: it is not needed, and HTCondor before 24.11 can refuse it here.",
        1,
    ),
    "unquoted-value": Kind(
        _W, 'Put the value in double quotes, name="value": HTCondor before 25.5 demands them.', 1
    ),
    "value-goes-on": Kind(
        _E,
        "Put a blank between the pairs: HTCondor before 25.5 refuses the DAG, later ones take all "
        "of it for the value.",
    ),
    "vars-escape": Kind(
        _W,
        "Write two backslashes for one: HTCondor before 25.5 refuses the DAG, later ones drop it.",
        1,
    ),
    "vars-name": Kind(
        _W,
        "Use letters, digits and _ only: HTCondor before 25.5 refuses other characters, and $(…) "
        "finds no such name.",
        1,
    ),
    "job-attribute": Kind(
        _E, "Write SET_JOB_ATTR name = value: condor_submit_dag cannot submit DAGMan like this."
    ),
    # --- the graph ---------------------------------------------------------------------
    "missing-file": Kind(_E, "Put the file there, or correct the path."),
    "recursion": Kind(_E, "Take the line out that leads back."),
    "duplicate-node": Kind(_E, "Give every node and splice a name of its own."),
    "unknown-node": Kind(_E, "Correct the name, or add its JOB line."),
    "dependency": Kind(_E, "Take the node out of the PARENT line."),
    "pins": Kind(_E, "Give both splices the same pin numbers, from 1 on."),
    "reject": Kind(_E, "Remove REJECT when the DAG is ready to run."),
    "too-large": Kind(_E, "Split the DAG, or make fewer splices."),
    "cycle": Kind(_E, "Remove one of these PARENT … CHILD lines."),
    "missing-subdag": Kind(_E, "Write the sub-DAG file, unless an earlier node does."),
    "subdag-recursion": Kind(_E, "Take the SUBDAG line out that leads back."),
    "splice-node": Kind(
        _E,
        "Put the command into the splice's own DAG file (PARENT takes the splice as a whole): "
        "DAGMan refuses the DAG.",
    ),
    "node-kind": Kind(_E, "Remove the line: DAGMan refuses the whole DAG for it."),
    "lone-node": Kind(_N, "Add a PARENT … CHILD line, if it was to wait for the others."),
    "unused-throttle": Kind(_W, "Correct the category's name in MAXJOBS or CATEGORY."),
    "throttle-zero": Kind(
        _E, "Give MAXJOBS 1 or more, or remove it: none of the category's nodes would ever start."
    ),
    "pre-skip-range": Kind(_E, "Use an exit code from 1 to 255: DAGMan refuses the whole DAG."),
    "pre-skip-zero": Kind(
        _W, "Use another exit code: with 0 every PRE script that ends well skips."
    ),
    "abort-stops-all": Kind(
        _W, "Use a gate with PRE_SKIP, or a sub-DAG for each run, to stop one run alone.", 1
    ),
    "nested-as-job": Kind(
        _W, "Write SUBDAG EXTERNAL and the DAG file: HTCondor 23.9 refuses the DAG as it is."
    ),
    # --- files -------------------------------------------------------------------------
    "missing-config": Kind(_E, "Put the file there, or remove the CONFIG line."),
    "second-config": Kind(_E, "Keep one CONFIG line: condor_submit_dag refuses several."),
    "missing-submit-file": Kind(_E, "Write the submit file, or correct its name."),
    "missing-executable": Kind(_E, "Put it there; transfer_executable = false uses the machine's."),
    "missing-input": Kind(_E, "Put the file there, or correct transfer_input_files."),
    "missing-later-input": Kind(
        _W, "Put the file there, unless an earlier node brings it back under this name."
    ),
    "missing-script": Kind(_E, "Put the script there, or correct its path: the node would fail."),
    "script-quoted": Kind(
        _E, "Leave the quotes out: DAGMan splits the line at blanks, and takes them for characters."
    ),
    "script-not-executable": Kind(_E, "Run chmod +x on it: the node would fail."),
    "no-interpreter": Kind(
        _W,
        "Put it on PATH where the DAG is submitted: a script that cannot start fails its node, and "
        "a gate lets every epoch train.",
    ),
    "script-crlf": Kind(
        _E, "Convert it with dos2unix: the kernel looks for an interpreter ending in CR."
    ),
    "missing-directory": Kind(_E, "Make the directory, or correct DIR or initialdir."),
    "files-not-here": Kind(
        _N, "Nothing, if this is a copy; to submit it from here, bring them along.", 1
    ),
    "missing-queue-items": Kind(
        _E, "Put the file there, or correct the queue line: the node's submission would fail."
    ),
    "too-many-files": Kind(_N, "Put them in one directory or archive, and name that.", 1),
    # --- submit descriptions -----------------------------------------------------------
    "bare-requirement": Kind(_E, "Write: requirements = …, with this condition in it."),
    "submit-syntax": Kind(_E, "Correct the line: condor_submit takes name = value."),
    "submit-command": Kind(
        _W,
        "Correct the name, or write MY.name for an attribute of the job: condor_submit passes over "
        "what it does not know.",
    ),
    "unfinished-expression": Kind(
        _E, "Correct the expression: condor_submit refuses it, and the node fails."
    ),
    "unbalanced-if": Kind(_E, "Close every if with an endif."),
    "undefined-macro": Kind(_W, "Set it with VARS, or correct the name: it comes out empty."),
    "gpus-not-requested": Kind(_W, "Add request_gpus = 1: without it the job gets no GPU."),
    "no-log": Kind(
        _W, "Add: log = NAME.log; transfers and memory are told in a job's own log only."
    ),
    "log-per-job": Kind(
        _W, "Let all jobs share one log: one file is followed at once, hundreds are searched."
    ),
    "shared-log": Kind(_N, "Give each DAG a log of its own, so that no job's DAG is in doubt."),
    "shared-status-file": Kind(_W, "Give each DAG a file of its own: each overwrites the other's."),
    "several-procs": Kind(_W, "Use queue 1: each of the jobs would train the same epoch.", 1),
    "mail": Kind(_N, "Use notification = never: DAGMan itself sends one mail at the end."),
    "network-file-system": Kind(
        _W, "Submit from a local disk: on network file systems events are lost or come late."
    ),
    "in-tmp": Kind(
        _W,
        "Submit it from a directory that stays: DAGMan refuses a nodes.log in /tmp, unless "
        "DAGMAN_USE_STRICT is 0.",
    ),
    # --- secrets -----------------------------------------------------------------------
    "secret": Kind(
        _W,
        "Take it out and make it invalid: who can read the file or the queue has it; transfer a "
        "file that only you can read.",
    ),
    # --- trainings ---------------------------------------------------------------------
    "no-site": Kind(
        _W,
        "Add: ulog_execute_attrs = GLIDEIN_ResourceName; else the log tells slots, not sites.",
    ),
    "no-retry": Kind(
        _W, "Add: RETRY ALL_NODES 3; one bad machine ends the run, and fails the DAG.", 1
    ),
    "side-node-fails-dag": Kind(
        _W,
        "Add: SCRIPT POST node /bin/true; if it fails for good, the whole DAG is a failed one.",
        1,
    ),
    "failure-hidden": Kind(
        _W, "Remove the POST script: failed epochs count as done, and RETRY never comes to it.", 1
    ),
    "broken-chain": Kind(_W, "Add the PARENT … CHILD line: both epochs can run at once.", 1),
    "epoch-gap": Kind(_N, "Add the epochs that are missing, if they are not in another DAG.", 1),
    "no-checkpoint": Kind(
        _W, "Set VARS continue_from_checkpoint there, too: the job would train from the start.", 1
    ),
    "checkpoint-at-first": Kind(
        _N, "Leave continue_from_checkpoint out, unless the run continues one that has been.", 1
    ),
    "no-uuid": Kind(_W, "Set VARS run_uuid there, too: else the run is told by its name only.", 1),
    "uuid-twice": Kind(_W, "Give each run a uuid of its own: they write into the same files."),
    "uuid-changes": Kind(_W, "Use one uuid for all epochs of a run.", 1),
    "stopped-before": Kind(
        _W,
        "Move gate/<name> away before submitting: the gate leaves these runs out, and the DAG ends "
        "well without them.",
        1,
    ),
    "epoch-is-horizon": Kind(
        _W,
        "Pass the number of epochs in all as the horizon, and the epoch to stop after apart "
        "from it: else the learning-rate schedule ends in every job.",
    ),
    "no-horizon": Kind(
        _N,
        "See that the script does not take it for max_epochs, or its learning-rate schedule ends "
        "in every job; $(epochs) can be passed besides.",
        1,
    ),
}
