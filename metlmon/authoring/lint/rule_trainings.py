"""Rules for trainings as chains of epochs: ends, restarts, failures, horizons."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from itertools import pairwise
from typing import Final

from metlmon.authoring.lint.rules import LintContext
from metlmon.dagman.lexer import shown
from metlmon.dagman.records import Node, NodeKind
from metlmon.dagman.submit_description import Description, Statement
from metlmon.model.run import RunPart, gate_name, variable

_SITE: Final = "glidein_resourcename"
_CHECKPOINT: Final = "continue_from_checkpoint"
_TRUE: Final = frozenset({"/bin/true", "/usr/bin/true", "true"})

MAX_VISITED: Final = 50
"""Maximum number of nodes to visit between two epochs of a run: evaluations, copies, joins."""

_PROC_NUMBER: Final = re.compile(r"\$\((?:process|procid)\)", re.IGNORECASE)

Epochs = dict[int, tuple[Node, RunPart]]


def check(context: LintContext) -> None:
    """Check the runs of the DAG and their training nodes."""
    runs: dict[str, Epochs] = defaultdict(dict)
    for node, part in context.trainings():
        if part.epoch is not None:
            runs[part.run].setdefault(part.epoch, (node, part))
    for node, _ in context.trainings():
        _check_node(context, node, len(runs))
    _check_sites(context)
    _check_side_nodes(context)
    for epochs in runs.values():
        _check_chain(context, epochs)
    _check_checkpoints(context, runs)
    _check_uuids(context, runs)
    _check_stopped_before(context)
    _check_horizons(context)


def _check_node(context: LintContext, node: Node, runs: int) -> None:
    """RETRY, POST script, number of jobs and ABORT-DAG-ON of one training."""
    name = shown(node.name)
    if node.retries == 0 and not node.done and not node.noop:
        context.report("no-retry", node, f"{name} has no RETRY")
    if node.post is not None and node.post.command.split(None, 1)[:1] in [[word] for word in _TRUE]:
        message = f"{name} trains, and its POST script calls every end a good one"
        context.report("failure-hidden", node, message)
    if (node.submission.queue_count or 0) > 1:
        text = context.description_of(node)
        names = ("arguments", "args", "environment", "env")
        arguments = text.last(*names) if text is not None else None
        # With its number each of them gets its part of the epoch's training.
        if arguments is None or not _PROC_NUMBER.search(arguments.value):
            message = f"{name} queues {node.submission.queue_count} jobs for one epoch"
            context.report("several-procs", node, message)
    if node.abort_on is not None and runs > 1:
        message = f"{name} with exit code {node.abort_on} stops all {runs} runs"
        context.report("abort-stops-all", node, message)


def _check_sites(context: LintContext) -> None:
    """Descriptions without the attribute that logs the site."""
    for text, _ in context.training_descriptions():
        if context.logs_have_sites():
            return
        statement = text.last("ulog_execute_attrs", "my.ulogexecuteattrs", "my.ulog_execute_attrs")
        if statement is None:
            message = "the log will not have the sites of these trainings"
            context.report("no-site", text, message)
        elif _SITE not in statement.value.lower() and "$" not in statement.value:
            message = "ulog_execute_attrs does not have GLIDEIN_ResourceName, the site"
            context.report("no-site", statement, message)


def _check_side_nodes(context: LintContext) -> None:
    """Failures of an evaluation on which no node depends fail the whole DAG."""
    for name, part in context.parts.items():
        node = context.workflow.nodes[name]
        is_leaf = not node.children and node.kind is NodeKind.JOB
        if not part.training and is_leaf and node.post is None and not node.noop and not node.done:
            message = f"{shown(name)} does not train, and its failure fails the whole DAG"
            context.report("side-node-fails-dag", node, message)


def _check_chain(context: LintContext, epochs: Epochs) -> None:
    """Missing epochs, and epochs that do not wait for the one before."""
    for previous, number in pairwise(sorted(epochs)):
        (earlier, _), (node, _) = epochs[previous], epochs[number]
        if number != previous + 1:
            message = f"between {shown(earlier.name)} and {shown(node.name)} epochs are missing"
            context.report("epoch-gap", node, message)
        if not _waits_for(context, node, earlier):
            message = f"{shown(node.name)} does not wait for {shown(earlier.name)}"
            context.report("broken-chain", node, message)


def _waits_for(context: LintContext, node: Node, earlier: Node) -> bool:
    """Whether the node depends on ``earlier``; True if that is too far away to tell."""
    seen, queue = {node.name}, [node.name]
    for name in queue:
        parents = context.workflow.nodes[name].parents
        if earlier.name in parents or len(seen) + len(parents) > MAX_VISITED:
            return True
        queue += [parent for parent in parents if parent not in seen]
        seen.update(parents)
    return False


def _check_checkpoints(context: LintContext, runs: dict[str, Epochs]) -> None:
    """Missing checkpoints.

    If trainings continue from checkpoints, all but the first epoch must.
    """
    if not any(variable(node, _CHECKPOINT) for node, _ in context.trainings()) and not any(
        nodes and _names_checkpoint(text) for text, nodes in context.descriptions()
    ):
        return
    for epochs in runs.values():
        first, *others = sorted(epochs)
        for node in (epochs[number][0] for number in others):
            text = context.description_of(node)
            used = text is None or _names_checkpoint(text)
            if used and variable(node, _CHECKPOINT) is None:
                message = f"{shown(node.name)} has no continue_from_checkpoint"
                context.report("no-checkpoint", node, message)
        node, _ = epochs[first]
        if first == 0 and variable(node, _CHECKPOINT) and not node.parents:
            message = f"{shown(node.name)} is a run's first epoch, and has continue_from_checkpoint"
            context.report_vars("checkpoint-at-first", node, _CHECKPOINT, message)


def _names_checkpoint(text: Description) -> bool:
    return any(_CHECKPOINT in statement.value.lower() for statement in text.statements)


def _check_stopped_before(context: LintContext) -> None:
    """Stop files of a gate from an earlier DAG of this name.

    Uuids are derived from the run's definition, and so recur.
    """
    if context.submitted:
        return
    directory = context.workflow.path.parent / "gate"
    checked: set[tuple[str, str]] = set()
    for node, part in context.trainings():
        gate = gate_name(node)
        if gate is None or part.uuid is None or (gate, part.uuid) in checked:
            continue
        checked.add((gate, part.uuid))
        stop_file = str(directory / gate / f"{part.uuid}.stopped")
        if not context.files.exhausted and context.files.exists(stop_file):
            message = f"{shown(part.run)} was stopped before, as gate/{shown(gate)} says"
            context.report("stopped-before", node, message)


def _check_uuids(context: LintContext, runs: dict[str, Epochs]) -> None:
    """Missing, duplicate and changing uuids."""
    any_uuid = any(part.uuid for _, part in context.trainings())
    owners: dict[str, str] = {}
    for name, epochs in runs.items():
        first: str | None = None
        for _, (node, part) in sorted(epochs.items()):
            if part.uuid is None:
                if any_uuid:
                    message = f"{shown(node.name)} has no run_uuid, and other trainings have"
                    context.report("no-uuid", node, message)
            elif first is None:
                first = part.uuid
                owner = owners.setdefault(first, name)
                if owner != name:
                    message = f"the runs {shown(owner)} and {shown(name)} have the same run_uuid"
                    context.report_vars("uuid-twice", node, "run_uuid", message)
            elif part.uuid != first:
                message = f"{shown(node.name)} has another run_uuid than the epochs before it"
                context.report_vars("uuid-changes", node, "run_uuid", message)


# --- the schedule's horizon ------------------------------------------------------------------
# A job that trains one epoch and gets "train up to epoch 3" as the total number of epochs builds
# a learning-rate schedule that ends at epoch 3: each job of the chain has another, too short one.

_HORIZON_NAMES: Final = r"(?:max|num|total|n)[-_]?(?:train[-_]?)?epochs?|epochs|horizon"
_OPTION: Final = re.compile(
    rf"(?<![\w.-])--?[\w.]*?({_HORIZON_NAMES})(?:=|[ \t]++)['\"]*([^\s'\"]+)", re.IGNORECASE
)
_NAME: Final = re.compile(rf"(?:{_HORIZON_NAMES})$", re.IGNORECASE)
_EPOCH: Final = re.compile(r"\$\(epoch(?::[^()]*)?\)", re.IGNORECASE)
_MACRO: Final = re.compile(r"\$\((\w+)")
_MAX_EPOCHS: Final = re.compile(r"max[-_]?epochs?(?:=|[ \t]+)[\"']?\$\{?(\w+)", re.IGNORECASE)

MAX_SCRIPT_BYTES: Final = 1 << 20
"""How many bytes of a script are searched."""


def _check_horizons(context: LintContext) -> None:
    _check_variables(context)
    checked: set[int] = set()
    for node, _ in context.trainings():
        text = context.description_of(node)
        if text is not None and not text.unresolved and id(text) not in checked:
            checked.add(id(text))
            arguments = text.last("arguments", "args")
            if arguments is not None and _EPOCH.search(arguments.value):
                _check_arguments(context, node, text, arguments)


def _check_variables(context: LintContext) -> None:
    """VARS that are named like a horizon but increase with the epoch."""
    settings: dict[tuple[str, str], list[tuple[Node, str, bool]]] = defaultdict(list)
    for node, part in context.trainings():
        for key, value in node.vars.items():
            if _NAME.match(key):
                equals_epoch = value.strip() == str(part.epoch_var)
                settings[part.run, key].append((node, value, equals_epoch))
    for (_, key), found in settings.items():
        values = {value for _, value, _ in found}
        if len(values) > 1 and all(equals_epoch for _, _, equals_epoch in found):
            node = found[0][0]
            message = f"VARS {shown(key)} goes up with the epoch: it is not a horizon"
            context.report_vars("epoch-is-horizon", node, key, message)


def _check_arguments(
    context: LintContext, node: Node, text: Description, arguments: Statement
) -> None:
    """Arguments that pass the epoch as the horizon, or no horizon at all."""
    options = _OPTION.findall(arguments.value)
    for name, value in options:
        if _EPOCH.search(value):
            message = f"{shown(name)}, the horizon of the schedule, is the job's own epoch"
            context.report("epoch-is-horizon", arguments, message)
            return
    if options or any(_NAME.match(name) for name in _MACRO.findall(arguments.value)):
        return
    # The script that gets the arguments, and the position of the epoch among them.
    words = arguments.value.strip('"').split()
    position = next((index for index, word in enumerate(words) if _EPOCH.search(word)), 0)
    script = (context.values(node, text, "executable")["executable"] or "").strip()
    if words and os.path.basename(script) in ("sh", "bash", "dash", "zsh", "ksh"):
        script = words[0]
    else:
        position += 1
    directories = (context.dagman_dir / (node.dir or ""), context.workflow.path.parent)
    paths = (os.path.normpath(os.path.join(directory, script)) for directory in directories)
    path = next(filter(os.path.isfile, paths), None) if script and "$" not in script else None
    if path is None:
        message = "the jobs get their own epoch, and not the number of epochs"
        context.report("no-horizon", arguments, message)
    else:
        _check_script(context, path, position)


def _check_script(context: LintContext, path: str, position: int) -> None:
    """A script that sets max_epochs from the epoch passed to it."""
    try:
        with open(path, "rb") as file:
            source = file.read(MAX_SCRIPT_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    assignment = re.compile(rf"(?<!\w)(\w++)=[\"']?\$\{{?{position}(?!\d)")
    names = {str(position), *assignment.findall(source)}
    for number, line in enumerate(source.split("\n"), start=1):
        is_comment = line.lstrip().startswith("#")
        if not is_comment and not names.isdisjoint(_MAX_EPOCHS.findall(line)):
            message = "the script makes its max_epochs of the epoch that the job gets"
            name = os.path.relpath(path, context.dagdir)
            context.findings.add("epoch-is-horizon", name, number, message)
            return
