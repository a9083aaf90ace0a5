"""Trainings as chains of epochs: what makes them end early, start anew, or fail the whole DAG."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.dagman import Node, NodeKind
from metlmon.dagman.lexer import shown
from metlmon.model.gates import gate_name
from metlmon.model.run import RunPart, variable

_SITE: Final = "glidein_resourcename"
_CHECKPOINT: Final = "continue_from_checkpoint"
_TRUE: Final = frozenset({"/bin/true", "/usr/bin/true", "true"})

FARTHEST: Final = 50
"""Nodes between two epochs of one run that are gone through to find that one waits for the
other: an evaluation, a copy, a join node."""

_NUMBERED: Final = re.compile(r"\$\((?:process|procid)\)", re.IGNORECASE)

Epochs = dict[int, tuple[Node, RunPart]]


def check(look: LintContext) -> None:
    runs = _runs(look)
    _sites(look)
    _retries(look)
    _side_nodes(look)
    _hidden_failures(look)
    _procs(look)
    _chains(look, runs)
    _checkpoints(look, runs)
    _uuids(look, runs)
    _stopped_before(look)
    if len(runs) > 1:
        for node, _ in look.trainings():
            if node.abort_on is not None:
                what = (
                    f"{shown(node.name)} with exit code {node.abort_on} stops all {len(runs)} runs"
                )
                look.found.add("abort-stops-all", node.file, node.line, what)


def _runs(look: LintContext) -> dict[str, Epochs]:
    """The training nodes by the run's name and their epoch."""
    runs: dict[str, Epochs] = defaultdict(dict)
    for node, part in look.trainings():
        if part.epoch is not None:
            runs[part.run].setdefault(part.epoch, (node, part))
    return runs


def _sites(look: LintContext) -> None:
    done: set[int] = set()
    for node, _ in look.trainings():
        text = look.described(node)
        if text is None or text.unresolved or id(text) in done or node.noop:
            continue
        done.add(id(text))
        place = text.last("ulog_execute_attrs", "my.ulogexecuteattrs", "my.ulog_execute_attrs")
        if place is None:
            what = "the log will not tell at which site these trainings ran"
            look.found.add("no-site", text.file, text.line, what)
        elif _SITE not in place.value.lower() and "$" not in place.value:
            what = "ulog_execute_attrs does not have GLIDEIN_ResourceName, the site"
            look.found.add("no-site", place.file, place.line, what)


def _retries(look: LintContext) -> None:
    for node, _ in look.trainings():
        if node.retries == 0 and not node.done and not node.noop:
            what = f"{shown(node.name)} has no RETRY"
            look.found.add("no-retry", node.file, node.line, what)


def _side_nodes(look: LintContext) -> None:
    """An evaluation that nothing waits for ends a DAG of weeks with exit code 1."""
    for name, part in look.parts.items():
        node = look.flow.nodes[name]
        ends = not node.children and node.kind is NodeKind.JOB
        if not part.training and ends and node.post is None and not node.noop and not node.done:
            what = f"{shown(name)} is no training, and its failure fails the whole DAG"
            look.found.add("side-node-fails-dag", node.file, node.line, what)


def _hidden_failures(look: LintContext) -> None:
    for node, _ in look.trainings():
        if node.post is not None and node.post.command.split()[:1] and _is_true(node.post.command):
            what = f"{shown(node.name)} trains, and its POST script calls every end a good one"
            look.found.add("failure-hidden", node.file, node.line, what)


def _is_true(command: str) -> bool:
    return command.split(None, 1)[0] in _TRUE


def _procs(look: LintContext) -> None:
    for node, _ in look.trainings():
        several = node.queue_count is not None and node.queue_count > 1
        if several and not _knows_its_part(look, node):
            what = f"{shown(node.name)} queues {node.queue_count} jobs for one epoch"
            look.found.add("several-procs", node.file, node.line, what)


def _knows_its_part(look: LintContext, node: Node) -> bool:
    """Is each of the jobs told its number? Then they train the epoch together."""
    text = look.described(node)
    place = text.last("arguments", "args", "environment", "env") if text is not None else None
    return place is not None and _NUMBERED.search(place.value) is not None


def _chains(look: LintContext, runs: dict[str, Epochs]) -> None:
    for epochs in runs.values():
        numbers = sorted(epochs)
        for before, number in pairwise(numbers):
            (earlier, _), (node, _) = epochs[before], epochs[number]
            if number != before + 1:
                what = f"between {shown(earlier.name)} and {shown(node.name)} epochs are missing"
                look.found.add("epoch-gap", node.file, node.line, what)
            if not _waits_for(look, node, earlier):
                what = f"{shown(node.name)} does not wait for {shown(earlier.name)}"
                look.found.add("broken-chain", node.file, node.line, what)


def _waits_for(look: LintContext, node: Node, earlier: Node) -> bool:
    seen, ahead = {node.name}, [node.name]
    while ahead:
        parents = look.flow.nodes[ahead.pop(0)].parents
        if earlier.name in parents:
            return True
        if len(seen) + len(parents) > FARTHEST:
            return True  # too far to say: better no word than a wrong one
        ahead += [parent for parent in parents if parent not in seen]
        seen |= parents
    return False


def _checkpoints(look: LintContext, runs: dict[str, Epochs]) -> None:
    """Where the trainings are told to go on, all but the first epoch must be."""
    used = any(variable(node, _CHECKPOINT) for node, _ in look.trainings())
    asked = any(
        _CHECKPOINT in each.value.lower()
        for text, nodes in look.texts().values()
        if nodes
        for each in text.statements
    )
    if not used and not asked:
        return
    for epochs in runs.values():
        numbers = sorted(epochs)
        for number in numbers[1:]:
            node, _ = epochs[number]
            if variable(node, _CHECKPOINT) is None and _own_checkpoint(look, node):
                what = f"{shown(node.name)} has no continue_from_checkpoint"
                look.found.add("no-checkpoint", node.file, node.line, what)
        first, _ = epochs[numbers[0]]
        if numbers[0] == 0 and variable(first, _CHECKPOINT) and not first.parents:
            what = f"{shown(first.name)} is a run's first epoch, and has continue_from_checkpoint"
            line = look.line_of_vars(first, _CHECKPOINT)
            look.found.add("checkpoint-at-first", first.file, line, what)


def _own_checkpoint(look: LintContext, node: Node) -> bool:
    """Does this node's description ask for it, if it can be read?"""
    text = look.described(node)
    return text is None or any(_CHECKPOINT in each.value.lower() for each in text.statements)


def _stopped_before(look: LintContext) -> None:
    """Answers of a gate to another DAG of this name: uuids are made of what makes a run, and come
    back."""
    if look.submitted:
        return
    folder = look.flow.path.parent / "gate"
    asked: set[tuple[str, str]] = set()
    for node, part in look.trainings():
        gate = gate_name(node)
        if gate is None or part.uuid is None or (gate, part.uuid) in asked:
            continue
        asked.add((gate, part.uuid))
        if not look.shelf.full and look.shelf.there(str(folder / gate / f"{part.uuid}.stopped")):
            what = f"{shown(part.run)} was stopped before, as gate/{shown(gate)} says"
            look.found.add("stopped-before", node.file, node.line, what)


def _uuids(look: LintContext, runs: dict[str, Epochs]) -> None:
    given = any(part.uuid for _, part in look.trainings())
    owners: dict[str, str] = {}
    for name, epochs in runs.items():
        first: str | None = None
        for number in sorted(epochs):
            node, part = epochs[number]
            if part.uuid is None:
                if given:
                    what = f"{shown(node.name)} has no run_uuid, and other trainings have"
                    look.found.add("no-uuid", node.file, node.line, what)
                continue
            if first is None:
                first = part.uuid
                owner = owners.setdefault(first, name)
                if owner != name:
                    line = look.line_of_vars(node, "run_uuid")
                    what = f"the runs {shown(owner)} and {shown(name)} have the same run_uuid"
                    look.found.add("uuid-twice", node.file, line, what)
            elif part.uuid != first:
                line = look.line_of_vars(node, "run_uuid")
                what = f"{shown(node.name)} has another run_uuid than the epochs before it"
                look.found.add("uuid-changes", node.file, line, what)
