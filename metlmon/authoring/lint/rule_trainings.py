"""Rules for trainings as chains of epochs: early ends, restarts, hidden failures."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.dagman import Node, NodeKind
from metlmon.dagman.lexer import shown
from metlmon.model.run import RunPart, gate_name, variable

_SITE: Final = "glidein_resourcename"
_CHECKPOINT: Final = "continue_from_checkpoint"
_TRUE: Final = frozenset({"/bin/true", "/usr/bin/true", "true"})

MAX_VISITED: Final = 50
"""Most nodes to visit between two epochs of a run: evaluations, copies, joins."""

_PROC_NUMBER: Final = re.compile(r"\$\((?:process|procid)\)", re.IGNORECASE)

Epochs = dict[int, tuple[Node, RunPart]]


def check(context: LintContext) -> None:
    """Check the runs of the DAG and their training nodes."""
    runs = _epochs_by_run(context)
    _check_sites(context)
    _check_retries(context)
    _check_side_nodes(context)
    _check_hidden_failures(context)
    _check_procs(context)
    _check_chains(context, runs)
    _check_checkpoints(context, runs)
    _check_uuids(context, runs)
    _check_stopped_before(context)
    if len(runs) > 1:
        for node, _ in context.trainings():
            if node.abort_on is not None:
                message = (
                    f"{shown(node.name)} with exit code {node.abort_on} stops all {len(runs)} runs"
                )
                context.report("abort-stops-all", node, message)


def _epochs_by_run(context: LintContext) -> dict[str, Epochs]:
    """The training nodes by run name and epoch."""
    runs: dict[str, Epochs] = defaultdict(dict)
    for node, part in context.trainings():
        if part.epoch is not None:
            runs[part.run].setdefault(part.epoch, (node, part))
    return runs


def _check_sites(context: LintContext) -> None:
    """Descriptions without the attribute that logs the site."""
    checked: set[int] = set()
    for node, _ in context.trainings():
        text = context.submit_text_of(node)
        if text is None or text.unresolved or id(text) in checked or node.noop:
            continue
        checked.add(id(text))
        statement = text.last("ulog_execute_attrs", "my.ulogexecuteattrs", "my.ulog_execute_attrs")
        if statement is None:
            message = "the log will not tell at which site these trainings ran"
            context.report("no-site", text, message)
        elif _SITE not in statement.value.lower() and "$" not in statement.value:
            message = "ulog_execute_attrs does not have GLIDEIN_ResourceName, the site"
            context.report("no-site", statement, message)


def _check_retries(context: LintContext) -> None:
    """Trainings without RETRY."""
    for node, _ in context.trainings():
        if node.retries == 0 and not node.done and not node.noop:
            message = f"{shown(node.name)} has no RETRY"
            context.report("no-retry", node, message)


def _check_side_nodes(context: LintContext) -> None:
    """Failures of an evaluation on which no node depends fail the whole DAG."""
    for name, part in context.parts.items():
        node = context.workflow.nodes[name]
        is_leaf = not node.children and node.kind is NodeKind.JOB
        if not part.training and is_leaf and node.post is None and not node.noop and not node.done:
            message = f"{shown(name)} is no training, and its failure fails the whole DAG"
            context.report("side-node-fails-dag", node, message)


def _check_hidden_failures(context: LintContext) -> None:
    """POST scripts that hide the failure of a training."""
    for node, _ in context.trainings():
        if (
            node.post is not None
            and node.post.command.split()[:1]
            and _is_true_command(node.post.command)
        ):
            message = f"{shown(node.name)} trains, and its POST script calls every end a good one"
            context.report("failure-hidden", node, message)


def _is_true_command(command: str) -> bool:
    return command.split(None, 1)[0] in _TRUE


def _check_procs(context: LintContext) -> None:
    """Several jobs for one epoch."""
    for node, _ in context.trainings():
        many_jobs = node.queue_count is not None and node.queue_count > 1
        if many_jobs and not _has_proc_number(context, node):
            message = f"{shown(node.name)} queues {node.queue_count} jobs for one epoch"
            context.report("several-procs", node, message)


def _has_proc_number(context: LintContext, node: Node) -> bool:
    """Whether each proc gets its number, so that they share the epoch's training."""
    text = context.submit_text_of(node)
    statement = text.last("arguments", "args", "environment", "env") if text is not None else None
    return statement is not None and _PROC_NUMBER.search(statement.value) is not None


def _check_chains(context: LintContext, runs: dict[str, Epochs]) -> None:
    """Missing epochs, and epochs that do not wait for the one before."""
    for epochs in runs.values():
        numbers = sorted(epochs)
        for previous, number in pairwise(numbers):
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
    while queue:
        parents = context.workflow.nodes[queue.pop(0)].parents
        if earlier.name in parents:
            return True
        if len(seen) + len(parents) > MAX_VISITED:
            return True  # too far to tell: avoid a false positive
        queue += [parent for parent in parents if parent not in seen]
        seen |= parents
    return False


def _check_checkpoints(context: LintContext, runs: dict[str, Epochs]) -> None:
    """Missing checkpoints.

    If trainings continue from checkpoints, all but the first epoch must.
    """
    in_variables = any(variable(node, _CHECKPOINT) for node, _ in context.trainings())
    in_description = any(
        _CHECKPOINT in statement.value.lower()
        for text, nodes in context.submit_texts().values()
        if nodes
        for statement in text.statements
    )
    if not in_variables and not in_description:
        return
    for epochs in runs.values():
        numbers = sorted(epochs)
        for number in numbers[1:]:
            node, _ = epochs[number]
            if variable(node, _CHECKPOINT) is None and _uses_checkpoint(context, node):
                message = f"{shown(node.name)} has no continue_from_checkpoint"
                context.report("no-checkpoint", node, message)
        first, _ = epochs[numbers[0]]
        if numbers[0] == 0 and variable(first, _CHECKPOINT) and not first.parents:
            message = (
                f"{shown(first.name)} is a run's first epoch, and has continue_from_checkpoint"
            )
            line = context.line_of_vars(first, _CHECKPOINT)
            context.findings.add("checkpoint-at-first", first.file, line, message)


def _uses_checkpoint(context: LintContext, node: Node) -> bool:
    """Whether the node's description uses the checkpoint, or cannot be read."""
    text = context.submit_text_of(node)
    return text is None or any(
        _CHECKPOINT in statement.value.lower() for statement in text.statements
    )


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
        if not context.files.exhausted and context.files.exists(
            str(directory / gate / f"{part.uuid}.stopped")
        ):
            message = f"{shown(part.run)} was stopped before, as gate/{shown(gate)} says"
            context.report("stopped-before", node, message)


def _check_uuids(context: LintContext, runs: dict[str, Epochs]) -> None:
    """Missing, duplicate and changing uuids."""
    any_uuid = any(part.uuid for _, part in context.trainings())
    owners: dict[str, str] = {}
    for name, epochs in runs.items():
        first: str | None = None
        for number in sorted(epochs):
            node, part = epochs[number]
            if part.uuid is None:
                if any_uuid:
                    message = f"{shown(node.name)} has no run_uuid, and other trainings have"
                    context.report("no-uuid", node, message)
                continue
            if first is None:
                first = part.uuid
                owner = owners.setdefault(first, name)
                if owner != name:
                    line = context.line_of_vars(node, "run_uuid")
                    message = f"the runs {shown(owner)} and {shown(name)} have the same run_uuid"
                    context.findings.add("uuid-twice", node.file, line, message)
            elif part.uuid != first:
                line = context.line_of_vars(node, "run_uuid")
                message = f"{shown(node.name)} has another run_uuid than the epochs before it"
                context.findings.add("uuid-changes", node.file, line, message)
