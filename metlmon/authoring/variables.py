"""Merges the variables of a node from all sources by precedence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.graph import NodeRole, Precedence, VariableValue
from metlmon.authoring.request import Region, Request, RunPlan
from metlmon.authoring.runs import GPU_VARIABLE, checkpoint_directory

DESCRIPTION: Final = "the description"
"""Source of a variable that the description defines."""

VARIABLE_ORDER: Final = (
    *("run", "run_uuid", "epoch", "epochs", "random_seed", "ResourceName", "GpuModel"),
    "continue_from_checkpoint",
)
"""Order of the variables in a VARS line; fixed, so that a rewritten ensemble stays the same."""

OWN_VARIABLES: Final = frozenset(
    {
        *("run", "run_uuid", "epoch", "epochs", "random_seed", "continue_from_checkpoint"),
        *("node", "metlmon_dag", "stage", "stage_epoch", "stage_epochs"),
        *("shard", "shards", "machines"),
    }
)
"""Variables that metlmon defines."""

RESERVED_NAMES: Final = frozenset(
    {
        *("arguments", "args", "executable", "environment", "env", "getenv", "universe", "queue"),
        *("input", "output", "error", "log", "userlog", "requirements", "rank", "priority"),
        *("initialdir", "iwd", "notification", "cluster", "clusterid", "process", "procid"),
        *("transfer_input_files", "transfer_output_files", "request_cpus", "request_gpus"),
        *("request_memory", "request_disk", "job", "retry", "item", "row", "step", "name"),
        *("all_nodes", "prepend", "append", "if", "elif", "else", "endif", "include", "use", "my"),
        *("should_transfer_files", "when_to_transfer_output", "noop_job", "hold", "max_retries"),
        *("retry_until", "success_exit_code", "leave_in_queue", "kill_sig", "nice_user"),
        *("container_image", "docker_image", "concurrency_limits", "concurrency_limits_expr"),
        *("batch_name", "dagmanjobid", "dag_status", "failed_count", "submit_file", "metlsite"),
    }
)
"""Names with a meaning in HTCondor: as a variable they would change the job."""

RESERVED_PREFIXES: Final = (
    *("queue", "request_", "transfer_", "on_exit_", "periodic_", "accounting_group", "stream_"),
    *("deferral_", "cron_", "x509userproxy", "remote_", "require_gpus", "gpus_m"),
)
"""Prefixes of such names; DAGMan refuses any that begins with "queue"."""


def is_reserved(name: str) -> bool:
    """Whether a variable of this name has a meaning in HTCondor."""
    lowered = name.lower()
    return lowered in RESERVED_NAMES or lowered.startswith(RESERVED_PREFIXES)


class NodePosition(Struct, frozen=True):
    """Identifies a node, to find the regions that contain it."""

    node: str
    run: str | None = None
    epoch: int | None = None
    role: NodeRole = NodeRole.TRAIN


def merge_variables(variables: Iterable[VariableValue]) -> tuple[VariableValue, ...]:
    """Merge variables: each name (case-insensitive, as in HTCondor) once.

    The highest precedence wins, among equals the last. Names keep the order of their first
    occurrence; the winner keeps the values that it hides.
    """
    by_name: dict[str, VariableValue] = {}
    for variable in variables:
        key = variable.name.lower()
        existing = by_name.get(key)
        by_name[key] = variable if existing is None else _merge_two(existing, variable)
    return tuple(by_name.values())


def _merge_two(existing: VariableValue, new: VariableValue) -> VariableValue:
    """The winner of ``existing`` and ``new``, with all hidden values."""
    # Sorting keeps the order of equals: the last one is first here.
    variables = (new, existing, *existing.hidden)
    ordered = sorted(variables, key=lambda variable: variable.level, reverse=True)
    first, *rest = (replace(variable, hidden=()) for variable in ordered)
    return replace(first, hidden=tuple(rest))


def in_order(variables: Iterable[VariableValue]) -> list[VariableValue]:
    """The variables in the order of a VARS line; others behind, as they come."""
    order = {name.lower(): index for index, name in enumerate(VARIABLE_ORDER)}
    return sorted(variables, key=lambda variable: order.get(variable.name.lower(), len(order)))


def request_variables(request: Request, position: NodePosition) -> list[VariableValue]:
    """The variables that the request defines: for all nodes, and by regions."""
    variables = [
        VariableValue(name, value, Precedence.ALL, DESCRIPTION)
        for name, value in request.variables.items()
    ]
    for region in request.regions:
        if region_contains(region, position):
            where = region.where or f"the region {region.name}"
            variables += [
                VariableValue(name, value, Precedence.REGION, where)
                for name, value in region.variables.items()
            ]
    return variables


def run_variables(request: Request, run: RunPlan) -> list[VariableValue]:
    """The variables of all nodes of a run that metlmon defines in every shape."""
    seed = DESCRIPTION if request.seeds else "metlmon: seeds count from 1"
    uuid = "metlmon: made of all that makes the model"
    return [
        VariableValue("run", run.name, Precedence.RUN, "metlmon: the run's name"),
        VariableValue("run_uuid", run.uuid, Precedence.RUN, uuid),
        VariableValue("random_seed", str(run.seed), Precedence.RUN, seed),
        *gpu_variables(request, run.gpu),
    ]


def gpu_variables(request: Request, model: str | None) -> list[VariableValue]:
    """The variable with the GPU model of a node, if it has one."""
    if model is None:
        return []
    return [VariableValue(GPU_VARIABLE, model, Precedence.RUN, f"the policy: {request.policy}")]


def checkpoint_variable(uuid: str) -> VariableValue:
    """The variable with the checkpoint of a run.

    The first epoch must not have it: HTCondor 25.5 refuses empty values, and any other value counts
    as defined in a template's "if defined continue_from_checkpoint".
    """
    where = "metlmon: where the epoch before leaves its checkpoint"
    path = checkpoint_directory(uuid)
    return VariableValue("continue_from_checkpoint", path, Precedence.NODE, where)


def region_contains(region: Region, position: NodePosition) -> bool:
    """Whether the node is in the region.

    Nodes outside of runs are identified by their own names.
    """
    if region.runs and position.run not in region.runs and position.node not in region.runs:
        return False
    if region.epochs is None:
        return True
    first, last = region.epochs
    return position.epoch is not None and first <= position.epoch <= last
