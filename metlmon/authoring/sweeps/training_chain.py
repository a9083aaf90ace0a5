"""The training chain of a run: epochs, uuid, and the variables that metlmon adds.

A swept DAG uses the same submit templates as any other, and is monitored as runs. metlmon adds
only variables that the sweep file does not set. An evaluation belongs to the training before it
by PARENT … CHILD, not by its number: in METL's experiment eval_epoch1 follows train_epoch0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from metlmon.authoring.gate_config import gate_variables
from metlmon.authoring.graph import NodeRole, Precedence, VariableValue
from metlmon.authoring.request import EnsembleShape, PlanError, Request, RunPlan
from metlmon.authoring.runs import (
    LOCATION_VARIABLES,
    SITE_VARIABLE,
    checkpoint_variable,
    gpu_model,
    in_order,
    merge_variables,
    request_variables,
    run_uuid,
    run_variables,
    target_sites,
    uuid_inputs,
)
from metlmon.authoring.sweeps.nodes import TRAINING_ROLES, NodeDraft, RunDraft
from metlmon.authoring.templates import JobTemplate
from metlmon.dagman.lexer import shown

_UUID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class TrainingChain:
    """One run: its epochs, its uuid, the variables of its nodes."""

    def __init__(self, request: Request, jobs: Sequence[JobTemplate], run: RunDraft) -> None:
        self._request = request
        self._run = run
        self._epochs_before: dict[str, int | None] = {}
        self._find_epochs()
        trains = [node for node in run.nodes.values() if node.role is NodeRole.TRAIN]
        # Two nodes that train the same epoch would overwrite each other's checkpoints.
        nodes: dict[tuple[str | None, int | None], NodeDraft] = {}
        for node in trains:
            previous = nodes.setdefault((self._value_of(node, "run_uuid"), node.epoch), node)
            if previous is not node:
                raise PlanError(
                    f"{node.where}: {shown(node.key)} trains the same epoch of a run as "
                    f"{shown(previous.key)} ({previous.where}); give one of them another epoch "
                    "(from 1) or a run_uuid of its own in VARS"
                )
        trains.sort(key=lambda node: node.epoch or 0)
        self._epochs = max((node.epoch or 0) + 1 for node in trains) if trains else 0
        chain = replace(request, shape=EnsembleShape.CHAIN, epochs=len(trains))
        self._targets = dict(
            zip((node.epoch for node in trains), target_sites(chain, run.index), strict=True)
        )
        self.uuid = self._make_uuid(jobs, trains)

    # --- epochs -------------------------------------------------------------------------------

    def _find_epochs(self) -> None:
        """Set the epochs, from 0: by VAR epoch (from 1), or by the name's number."""
        run = self._run
        for key in run.template.order:
            node = run.nodes[key]
            parents = [run.nodes[parent] for parent in run.template.parents[key]]
            # The last epoch trained once each parent has ended.
            epochs = (
                parent.epoch if parent.role is NodeRole.TRAIN else self._epochs_before[parent.key]
                for parent in parents
            )
            latest = max((epoch for epoch in epochs if epoch is not None), default=None)
            self._epochs_before[key] = latest
            if node.role not in TRAINING_ROLES:
                continue
            text = self._value_of(node, "epoch")
            if text is not None and _NUMBER.fullmatch(text) and int(text):
                node.epoch = int(text) - 1
            elif node.role is NodeRole.EVALUATE:
                if latest is None:
                    raise PlanError(
                        f"{node.where}: {shown(key)} evaluates, but no training comes before it; "
                        f"write 'PARENT {{run}}-train_epoch0 CHILD {shown(key)}', or its epoch in "
                        "VARS"
                    )
                node.epoch = latest

    def _value_of(self, node: NodeDraft, name: str) -> str | None:
        """The value that the sweep file sets for a variable, or None."""
        assignments = [variable for variable in node.variables if variable.name.lower() == name]
        effective = merge_variables(assignments)
        return effective[0].value if effective else None

    # --- the uuid -----------------------------------------------------------------------------

    def _make_uuid(self, jobs: Sequence[JobTemplate], trains: Sequence[NodeDraft]) -> str:
        """The uuid, derived from everything that determines the model.

        These are its swept values and its nodes' variables, except where they run.
        """
        run, request = self._run, self._request
        chain = replace(request, shape=EnsembleShape.CHAIN, epochs=self._epochs)
        node_variables = [
            sorted(
                (variable.name, variable.value.replace(run.values["uuid"], "{uuid}"))
                for variable in merge_variables(node.variables)
                if variable.name.lower() not in LOCATION_VARIABLES
            )
            for node in trains
        ]
        definition = [*uuid_inputs(chain, jobs), ["sweep", sorted(run.point.items())]]
        return run_uuid([run.name, run.seed, *definition, ["told", node_variables]])

    # --- variables ----------------------------------------------------------------------------

    def variables(self, node: NodeDraft, *, gated: bool) -> tuple[VariableValue, ...]:
        """All variables of the node, in the standard order."""
        requested = request_variables(self._request, node.name, self._run.name, node.epoch)
        assigned = merge_variables([*requested, *node.variables])
        if node.role not in TRAINING_ROLES:
            return assigned
        by_name = {variable.name.lower(): variable for variable in assigned}
        site = by_name.get(SITE_VARIABLE.lower())
        if site is not None and set(site.value) & {'"', "\\"}:
            # It would end its string in the submit file.
            raise PlanError(
                f"{site.where}: {shown(site.value)!r} cannot be a site's name; give the value of "
                "its GLIDEIN_ResourceName, without quotes"
            )
        uuid = self._node_uuid(by_name.get("run_uuid"), node)
        gate = gate_variables(self._request.name, node.name) if gated else ()
        for variable in gate:
            own = by_name.pop(variable.name, variable)
            if own.value != variable.value:
                raise PlanError(
                    f"{own.where}: metlmon sets {own.name} for the nodes of a run that can be "
                    "stopped; choose another name for this variable"
                )
        added = (
            variable
            for variable in self._added_variables(node, uuid)
            if variable.name.lower() not in by_name
        )
        return tuple(in_order((*added, *gate, *by_name.values())))

    def _node_uuid(self, assigned: VariableValue | None, node: NodeDraft) -> str:
        """The node's uuid. Raises PlanError if it cannot be a file name."""
        if assigned is None:
            return self.uuid
        value = assigned.value.replace(self._run.values["uuid"], self.uuid)
        if not _UUID.fullmatch(value):
            raise PlanError(
                f"{assigned.where}: run_uuid of {shown(node.name)} names directories and files; "
                "use letters, digits, '-', '_' and '.', 100 at most, or leave it to metlmon"
            )
        return value

    def _added_variables(self, node: NodeDraft, uuid: str) -> list[VariableValue]:
        """The variables that metlmon adds."""
        run, request = self._run, self._request
        assert node.epoch is not None
        plan = RunPlan(run.name, uuid, run.seed, (), gpu=gpu_model(request, run.index))
        source = "metlmon: that of the training before it"
        if node.role is NodeRole.TRAIN:
            source = "metlmon: epochs count from 1"
        variables = [
            *run_variables(request, plan),
            VariableValue("epoch", str(node.epoch + 1), Precedence.NODE, source),
        ]
        if self._epochs:
            source = "metlmon: the last epoch of the run"
            variables.append(VariableValue("epochs", str(self._epochs), Precedence.RUN, source))
        if (target := self._targets.get(node.epoch)) is not None:
            variables.append(
                VariableValue(
                    SITE_VARIABLE, target, Precedence.ALL, f"the policy: {request.policy}"
                )
            )
        if self._epochs_before[node.key] is not None:
            variables.append(checkpoint_variable(uuid))
        return variables
