"""What the nodes of a run are to its training, and what metlmon gives them for it.

A swept DAG runs with the same submit templates as any other, and is watched as runs. metlmon gives
only what the sweep file does not. An evaluation belongs to the training that comes before it by
PARENT … CHILD, never by its number: in METL's experiment eval_epoch1 comes after train_epoch0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from metlmon.authoring.build_graph import ORDER, checkpoint_directory, on_gpu
from metlmon.authoring.gate_config import OF_A_NODE, told_by_gate
from metlmon.authoring.graph import NodeRole, Precedence, VariableValue
from metlmon.authoring.jobs import JobTemplate
from metlmon.authoring.request import EnsembleShape, PlanError, Request
from metlmon.authoring.runs import (
    PLACE,
    WHEREABOUTS,
    gpu_model,
    run_uuid,
    targets,
    what_makes_a_run,
)
from metlmon.authoring.sweeps.node_drafts import NodeDraft, RunDraft
from metlmon.authoring.variables import NodePosition, described, merged
from metlmon.dagman import NodeKind
from metlmon.dagman.lexer import shown
from metlmon.model.settings import SIDE_NODE, TRAIN_NODE

_TRAIN: Final = re.compile(TRAIN_NODE)
_EVALUATE: Final = re.compile(SIDE_NODE)
_UUID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")

TRAINS: Final = frozenset({NodeRole.TRAIN, NodeRole.EVALUATE})


def _check_own(own: VariableValue, given: VariableValue | None) -> None:
    if given is not None and given.value != own.value:
        raise PlanError(
            f"{given.where}: {own.name} is what a run that can be stopped is told of its nodes "
            "by metlmon; choose another name for this variable"
        )


def find_role(node: NodeDraft) -> None:
    """What the node does, and the number in its name, by the patterns that watch them."""
    if node.kind is not NodeKind.JOB or node.run is None:
        return
    for role, pattern in ((NodeRole.TRAIN, _TRAIN), (NodeRole.EVALUATE, _EVALUATE)):
        match = pattern.match(node.name)
        if match and _NUMBER.fullmatch(match["epoch"]):
            node.role, node.epoch = role, int(match["epoch"])
            return


def _check_place(given: VariableValue | None) -> None:
    """Raises PlanError where it would end the string of the submit file that it stands in."""
    if given is not None and set(given.value) & {'"', "\\"}:
        raise PlanError(
            f"{given.where}: {shown(given.value)!r} cannot be a site's name; give the value of its "
            "GLIDEIN_ResourceName, without quotes"
        )


class TrainingChain:
    """One run: its epochs, its uuid, the variables of its nodes."""

    def __init__(self, request: Request, jobs: Sequence[JobTemplate], run: RunDraft) -> None:
        self._request = request
        self._run = run
        self._trained: dict[str, int | None] = {}
        self._find_epochs()
        trains = [node for node in run.nodes.values() if node.role is NodeRole.TRAIN]
        self._refuse_twice(trains)
        trains.sort(key=lambda node: node.epoch or 0)
        self._epochs = max((node.epoch or 0) + 1 for node in trains) if trains else 0
        chain = replace(request, shape=EnsembleShape.CHAIN, epochs=len(trains))
        self._targets = dict(
            zip((node.epoch for node in trains), targets(chain, run.index), strict=True)
        )
        self.uuid = self._uuid(jobs, trains)

    # --- epochs -------------------------------------------------------------------------------

    def _find_epochs(self) -> None:
        """From 0: by VAR epoch, which counts from 1, or else by the number in the name."""
        run = self._run
        for key in run.template.ordered:
            node = run.nodes[key]
            before = [
                epoch
                for parent in run.template.before[key]
                for epoch in [self._reached(run.nodes[parent])]
                if epoch is not None
            ]
            latest = max(before, default=None)
            self._trained[key] = latest
            if node.role not in TRAINS:
                continue
            said = self._said(node, "epoch")
            if said is not None and _NUMBER.fullmatch(said) and int(said):
                node.epoch = int(said) - 1
            elif node.role is NodeRole.EVALUATE:
                if latest is None:
                    raise PlanError(
                        f"{node.where}: {shown(key)} evaluates, but no training comes before it; "
                        f"write 'PARENT {{run}}-train_epoch0 CHILD {shown(key)}', or its epoch in "
                        "VARS"
                    )
                node.epoch = latest

    def _refuse_twice(self, trains: Sequence[NodeDraft]) -> None:
        """Two trainings of one epoch would write over each other's checkpoints."""
        found: dict[tuple[str | None, int | None], NodeDraft] = {}
        for node in trains:
            other = found.setdefault((self._said(node, "run_uuid"), node.epoch), node)
            if other is not node:
                raise PlanError(
                    f"{node.where}: {shown(node.key)} trains the same epoch of a run as "
                    f"{shown(other.key)} ({other.where}); give one of them another epoch (from 1) "
                    "or a run_uuid of its own in VARS"
                )

    def _reached(self, node: NodeDraft) -> int | None:
        return node.epoch if node.role is NodeRole.TRAIN else self._trained[node.key]

    def _said(self, node: NodeDraft, name: str) -> str | None:
        found = [each for each in node.given if each.name.lower() == name]
        counts = merged(found)
        return counts[0].value if counts else None

    # --- the uuid -----------------------------------------------------------------------------

    def _uuid(self, jobs: Sequence[JobTemplate], trains: Sequence[NodeDraft]) -> str:
        """Made of all that makes the model: its swept values and what its nodes are told, but for
        where they go."""
        run, request = self._run, self._request
        chain = replace(request, shape=EnsembleShape.CHAIN, epochs=self._epochs)
        told = [
            sorted(
                (each.name, each.value.replace(run.mark, "{uuid}"))
                for each in merged(node.given)
                if each.name.lower() not in WHEREABOUTS
            )
            for node in trains
        ]
        made = [*what_makes_a_run(chain, jobs), ["sweep", sorted(run.point.items())]]
        return run_uuid([run.name, run.seed, *made, ["told", told]])

    # --- variables ----------------------------------------------------------------------------

    def variables(self, node: NodeDraft, *, gated: bool) -> tuple[VariableValue, ...]:
        """All of the node's, metlmon's own first."""
        place = NodePosition(node.name, self._run.name, node.epoch, node.role)
        told = merged([*described(self._request, place), *node.given])
        if node.role not in TRAINS:
            return told
        there = {each.name.lower(): each for each in told}
        _check_place(there.get(PLACE.lower()))
        uuid = self._checked(there.get("run_uuid"), node)
        own = [each for each in self._own(node, uuid) if each.name.lower() not in there]
        if gated:
            for each in told_by_gate(self._request.name, node.name):
                _check_own(each, there.get(each.name))
            own += told_by_gate(self._request.name, node.name)
            told = tuple(each for each in told if each.name.lower() not in OF_A_NODE)
        places = {name.lower(): at for at, name in enumerate(ORDER)}
        return tuple(
            sorted((*own, *told), key=lambda each: places.get(each.name.lower(), len(places)))
        )

    def _checked(self, given: VariableValue | None, node: NodeDraft) -> str:
        if given is None:
            return self.uuid
        value = given.value.replace(self._run.mark, self.uuid)
        if not _UUID.fullmatch(value):
            raise PlanError(
                f"{given.where}: run_uuid of {shown(node.name)} names directories and files; use "
                "letters, digits, '-', '_' and '.', 100 at most, or leave it to metlmon"
            )
        return value

    def _own(self, node: NodeDraft, uuid: str) -> list[VariableValue]:
        run, request = self._run, self._request
        assert node.epoch is not None
        trained = self._trained[node.key]
        seed = "the description" if request.seeds else "metlmon: seeds count from 1"
        found = [
            VariableValue("run", run.name, Precedence.RUN, "metlmon: the run's name"),
            VariableValue(
                "run_uuid", uuid, Precedence.RUN, "metlmon: made of all that makes the model"
            ),
            VariableValue("epoch", str(node.epoch + 1), Precedence.NODE, self._why_epoch(node)),
            VariableValue("random_seed", str(run.seed), Precedence.RUN, seed),
        ]
        if self._epochs:
            why = "metlmon: the last epoch of the run"
            found.append(VariableValue("epochs", str(self._epochs), Precedence.RUN, why))
        if (target := self._targets.get(node.epoch)) is not None:
            found.append(
                VariableValue(PLACE, target, Precedence.ALL, f"the policy: {request.policy}")
            )
        found += on_gpu(request, gpu_model(request, run.index))
        if trained is not None:
            where = "metlmon: where the epoch before leaves its checkpoint"
            path = checkpoint_directory(uuid)
            found.append(VariableValue("continue_from_checkpoint", path, Precedence.NODE, where))
        return found

    def _why_epoch(self, node: NodeDraft) -> str:
        if node.role is NodeRole.TRAIN:
            return "metlmon: epochs count from 1"
        return "metlmon: that of the training before it"
