"""The request that the options of ``metlmon new`` and ``metlmon submit`` describe.

``new`` has options for all shapes, and applies them to a description; ``submit`` has those of a
chain only. An option that a command does not have counts as not given.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from metlmon.authoring.from_toml import (
    GATED_SHAPES,
    parse_megabytes,
    parse_seeds,
    parse_sites,
    position_of_field,
    template_for,
)
from metlmon.authoring.request import (
    EnsembleShape,
    Evaluation,
    Policy,
    Request,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
)
from metlmon.errors import InputError

_OPTION_NAMES: Final = {
    "directory": "DIR",
    "gpu_memory_mb": "--gpu-memory",
    "gpu_models": "--gpu-models",
    "memory_mb": "--memory",
    "evaluation": "--evaluate",
    "evaluation.template": "--evaluate",
    "evaluation.every": "--every",
    "gate.patience": "--stop-patience",
    "gate.divergence": "--diverge",
    "gate.median_after": "--median-after",
    "source": "FILE",
    "variables": "--var",
}
"""Options whose names differ from those of the fields."""

_SET_BY_SWEEP_FILE: Final = (
    "shape",
    "runs",
    "epochs",
    "sweep",
    "how",
    "shards",
    "machines",
    "every",
)
"""Options that have no effect on a sweep file."""


def option_of(field: str) -> str:
    """The option for a field of a request, as in :class:`RequestProblem`."""
    if field.startswith("values."):
        return f"--set {field.removeprefix('values.')}"
    if field.startswith("variables."):
        return f"--var {field.removeprefix('variables.')}"
    return _OPTION_NAMES.get(field, f"--{field}")


def is_given(options: argparse.Namespace, field: str) -> bool:
    """Whether an option sets the field of a request."""
    name, _, rest = field.partition(".")
    if name in ("values", "variables"):
        texts = (options.set if name == "values" else options.var) or ()
        return any(text.partition("=")[0].strip() == rest for text in texts)
    option = option_of(field).removeprefix("--").replace("-", "_")
    return getattr(options, option, None) not in (None, [])


def position_of(
    options: argparse.Namespace, source: Path | None, field: str, exact: bool = False
) -> str | None:
    """The line of a description that sets a field; None if an option does, or nothing.

    ``source``: the description, or a sweep file. ``exact``: as for :func:`place_of`.
    """
    if source is None or source.suffix != ".toml" or is_given(options, field):
        return None
    return position_of_field(source, field, exact=exact)


def with_options(request: Request, options: argparse.Namespace, plain: bool) -> Request:
    """The request with what the options set. ``plain``: there is no description.

    Raises InputError for an option that cannot be read, and PlanError.
    """
    fields: dict[str, Any] = {
        name: getattr(options, name)
        for name in (
            *("name", "runs", "epochs", "gpus", "retries", "template"),
            *("shards", "machines", "subdags", "mlproject"),
        )
    }
    fields |= {
        "policy": None if options.policy is None else Policy(options.policy),
        "sites": None if options.sites is None else parse_sites(options.sites),
        "gpu_models": None if options.gpu_models is None else parse_sites(options.gpu_models),
        "gpu_memory_mb": _size(options, "gpu_memory"),
        "memory_mb": _size(options, "memory"),
        "shape": _shape(options),
        "sweep": _sweep(request, options),
        "evaluation": _evaluation(request, options),
    }
    if options.seeds is not None:
        fields["seeds"] = seeds = _seeds(options.seeds)
        if options.runs is None and request.source is None and seeds:
            fields["runs"] = len(seeds)
    fields = {name: value for name, value in fields.items() if value is not None}
    fields["values"] = {**request.values, **dict(map(_assignment, options.set))}
    fields["variables"] = {
        **request.variables,
        **dict(map(_assignment, options.var or ())),
    }
    request = replace(request, **fields)
    if not request.template:
        request = replace(request, template=template_for(request.shape))
    return replace(request, gate=_gate(request, options, plain))


def refuse_sweep_file_options(options: argparse.Namespace) -> None:
    """Raise InputError for an option that would have no effect on a sweep file."""
    given = [name for name in _SET_BY_SWEEP_FILE if getattr(options, name) not in (None, [])]
    if given:
        raise InputError(f"--{given[0]}: the sweep file says that; take it out")
    if options.evaluate == "":
        remedy = "name a template (--evaluate T), or take it out"
        raise InputError(f"--evaluate: the sweep file says that; {remedy}")


def _shape(options: argparse.Namespace) -> EnsembleShape | None:
    """The shape, as set or as implied by another option."""
    if options.shape is not None:
        return EnsembleShape(options.shape)
    if options.sweep:
        return EnsembleShape.SWEEP
    if options.shards is not None:
        return EnsembleShape.BAG
    return EnsembleShape.MULTI_NODE if options.machines is not None else None


def _sweep(request: Request, options: argparse.Namespace) -> SweepRequest | None:
    how = None if options.how is None else SweepMode(options.how)
    if not options.sweep:
        if how is None:
            return None
        if request.sweep is None:
            raise InputError("--how: there is no sweep; say what is swept with --sweep NAME=VALUES")
        return replace(request.sweep, mode=how)
    from metlmon.authoring.sweeps.values import values  # Imported late: most have no sweep.

    variables = []
    for text in options.sweep:
        name, equals, line = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--sweep {text!r}: write it as a=0.01 to 0.1 by 0.01, or a=1,2,3")
        where = f"--sweep {name.strip()}"
        variables.append(SweptVariable(name.strip(), values(line, where), where))
    group = request.sweep.group if request.sweep is not None else "run"
    return SweepRequest(group, tuple(variables), how, "--sweep")


def _evaluation(request: Request, options: argparse.Namespace) -> Evaluation | None:
    if options.evaluate is None and options.every is None:
        return request.evaluation
    given = {"template": options.evaluate or None, "every": options.every}
    fields = {name: value for name, value in given.items() if value is not None}
    return replace(request.evaluation or Evaluation(), **fields)


def _gate(request: Request, options: argparse.Namespace, plain: bool) -> StopRules | None:
    rules: dict[str, Any] = {
        "patience": options.stop_patience,
        "divergence": options.diverge,
        "median_after": options.median_after,
    }
    rules = {field: value for field, value in rules.items() if value is not None}
    if options.gate is False:
        if rules:
            raise InputError("--no-gate: nobody would follow the rules then; take one of them out")
        return None
    gate = request.gate
    if plain and request.shape not in GATED_SHAPES and not options.gate:
        gate = None
    if rules or options.gate:
        gate = gate or StopRules()
    return replace(gate, **rules) if gate is not None and rules else gate


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return parse_seeds(text)
    except ValueError as error:
        raise InputError(f"--seeds {text!r}: {error}") from None


def _size(options: argparse.Namespace, name: str) -> int | None:
    text = getattr(options, name)
    size = None if text is None else parse_megabytes(text)
    if text is not None and size is None:
        option = "--" + name.replace("_", "-")
        raise InputError(f"{option} {text!r} is no size; write it as 4096 (MB) or 4GB")
    return size


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        # The text behind a blank may be a value, even a secret one.
        first = text.split()[0] if text.split() else text
        raise InputError(f"--set {first!r}: write it as name=value, a parameter of the template")
    return name.strip(), value
