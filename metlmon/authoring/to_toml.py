"""Writes a request as a TOML description, the inverse of ``from_toml``.

The text is a function of the request alone and contains all numbers, defaults included, so that a
later version with other defaults reads the same request. The directory is not part of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import asdict, replace

from metlmon.authoring.request import (
    EnsembleShape,
    Evaluation,
    Request,
    StageRequest,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
)

WIDTH: Final = 96
"""Maximum characters of a line of a list."""

COMMENT_AT: Final = 28
"""Column of the comments after short values."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")

RULES: Final[Mapping[str, tuple[str, str]]] = {
    "metric": ("", "what a run is judged by"),
    "goal": ('"max"', "which of its values are good; min or max by its name if not given"),
    "patience": ("3", "stop after this many epochs without an improvement"),
    "min_delta": ("", "of more than this"),
    "divergence": ("5.0", "stop at NaN, or above this many times the best value"),
    "median_after": ("3", "stop when worse than the median of the runs, from this many epochs on"),
    "poll": ("", "seconds after which a paused run asks again"),
}
"""Fields of :class:`StopRules`: an example for a rule that is off, and the comment."""


def format_request(request: Request) -> str:
    """Return the description of ``request`` as TOML text."""
    return "\n\n".join("\n".join(lines) for lines in _parts(request)) + "\n"


def example(shape: EnsembleShape, template: str) -> str:
    """A small, complete description to start from."""
    return format_request(_EXAMPLES[shape](Request(template, Path(), shape=shape)))


# --- the tables -------------------------------------------------------------------------------


def _parts(request: Request) -> Iterator[Iterator[str] | list[str]]:
    """The lines of each table, those of the keys at the top first."""
    yield _top_level_keys(request)
    for comment, heading, table in (
        ("# Parameters of the template.", "values", request.values),
        ("# VARS of every node, beside what metlmon gives.", "variables", request.variables),
    ):
        if table:
            entries = (_entry(name, value) for name, value in table.items())
            yield [comment, f"[{heading}]", *entries]
    if request.sweep is not None:
        yield _sweep(request.sweep)
    for stage in request.stages:
        entries = (
            _entry(name, value) for name, value in asdict(stage).items() if value not in (None, {})
        )
        yield ["[[stage]]", *entries]
    if request.shape is EnsembleShape.BAG:
        shards = _entry("shards", request.shards, "jobs that need nothing of each other")
        gather = _entry("gather", request.gather, "template of a node after all shards")
        yield ["[bag]", shards, *([] if request.gather is None else [gather])]
    if request.shape is EnsembleShape.MULTI_NODE:
        yield ["[multi-node]", _entry("machines", request.machines, "that train an epoch together")]
    if (evaluation := request.evaluation) is not None:
        every = _entry("every", evaluation.every, "after every Nth epoch")
        gates = "does the next epoch wait for it, and fail with it?"
        yield [
            "# Side nodes that evaluate what an epoch left.",
            "[evaluation]",
            _entry("template", evaluation.template),
            *([every] if request.source is None else []),  # else the sweep file sets it
            _entry("gates", evaluation.gates, gates),
            *([_entry("values", evaluation.values)] if evaluation.values else []),
        ]
    if request.gate is not None and request.gate != StopRules():
        rules = (
            _entry(name, value, RULES[name][1], hint=RULES[name][0])
            for name, value in asdict(request.gate).items()
        )
        yield ["# When a run is stopped without a request.", "[stop]", *rules]
    for region in request.regions:
        lines = [f"[region.{_key(region.name)}]"]
        if region.epochs is not None:
            first, last = region.epochs
            span = first if first == last else f"{first} to {last}"
            lines.append(_entry("epochs", span, "as in node names, from 0"))
        lines += [_list("runs", region.runs)] if region.runs else []
        yield [*lines, _entry("variables", region.variables)]


def _top_level_keys(request: Request) -> Iterator[str]:
    yield "# An ensemble, for: metlmon new FILE.toml [DIR]"
    yield _entry("name", request.name, "of the DAG file, without .dag")
    if request.source is None:
        yield _entry("shape", request.shape, "one of " + ", ".join(EnsembleShape))
    comment = "one that comes along, or a submit description beside this file"
    yield _entry("template", request.template, comment)
    if request.source is not None:
        yield _entry("source", str(request.source), "the sweep file that defines the runs")
    else:
        defaults = Request("", Path())
        is_bag = request.shape is EnsembleShape.BAG
        counted = not is_bag and request.shape is not EnsembleShape.SWEEP
        if counted or request.runs != defaults.runs:
            yield _entry("runs", request.runs, "models to train")
        if not is_bag or request.epochs != defaults.epochs:
            yield _entry("epochs", request.epochs, "of each run, one job each")
    comment = "one for each run; 1, 2, 3, … if not given"
    yield _list("seeds", request.seeds, comment, hint='"1-4"')
    comment = "values of GLIDEIN_ResourceName; anywhere if not given"
    yield _list("sites", request.sites, comment, hint='["A", "B"]')
    comment = "any; permute: each site once, then again; pin: one a run; gpu-pin"
    yield _entry("policy", request.policy, comment)
    yield _entry("gpus", request.gpus, "of each job")
    is_set = request.gpu_memory_mb is not None
    comment = "MB, the least of a GPU" if is_set else "the least memory of a GPU"
    yield _entry("gpu_memory", request.gpu_memory_mb, comment, hint='"40 GB"')
    if request.gpu_models:
        yield _list("gpu_models", request.gpu_models)
    yield _entry("memory", request.memory_mb, 'MB of each job, or a text such as "4 GB"')
    yield _entry("retries", request.retries, "of each node")
    comment = "can a run be stopped, paused and sent elsewhere meanwhile?"
    yield _entry("gate", request.gate is not None, comment)
    if request.subdags:
        yield _entry("subdags", True, "each run in a sub-DAG of its own")


def _sweep(sweep: SweepRequest) -> Iterator[str]:
    yield "# A run for each combination: decimal ranges with both ends in them, or lists."
    yield "[sweep]"
    yield _entry("group", sweep.group, "what the runs are called, before their number")
    comment = "zip: first with first; product: each with each"
    if sweep.mode is None:
        comment = "or zip; lists of one length are zipped if not given"
    yield _entry("how", sweep.mode, comment, hint='"product"')
    for variable in sweep.variables:
        yield _list(variable.name, variable.values)


# --- keys and values --------------------------------------------------------------------------


Value = str | int | float | Mapping[str, str] | None


def _entry(key: str, value: Value, comment: str = "", hint: str = "") -> str:
    """A key with its value; without a value the ``hint``, commented out."""
    assignment = f"# {key} = {hint}" if value is None else f"{_key(key)} = {_value(value)}"
    return f"{assignment:<{COMMENT_AT}}# {comment}" if comment else assignment


def _value(value: Value) -> str:
    if isinstance(value, str):
        # A JSON string with DEL escaped, as TOML requires. Bytes of a file name that are not
        # Unicode are replaced.
        text = json.dumps(value.encode("utf-8", "replace").decode(), ensure_ascii=False)
        return text.replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        items = ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items())
        return f"{{ {items} }}" if items else "{}"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _list(key: str, values: Sequence[str | int], comment: str = "", hint: str = "") -> str:
    """A key with a list, wrapped if it is long; without values the ``hint``."""
    if not values and hint:
        return _entry(key, None, comment, hint)
    items = [_value(value) for value in values]
    one_line = f"{_key(key)} = [{', '.join(items)}]"
    if len(one_line) <= WIDTH:
        return one_line
    lines = [f"{_key(key)} = [", "   "]
    for item in items:
        if len(lines[-1]) + len(item) > WIDTH and lines[-1].strip():
            lines.append("   ")
        lines[-1] += f" {item},"
    return "\n".join([*lines, "]"])


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


# --- examples -------------------------------------------------------------------------------


_SWEEP: Final = SweepRequest(
    "run",
    (
        SweptVariable("learning_rate", ("0.001", "0.003", "0.01"), ""),
        SweptVariable("batch_size", ("16", "32"), ""),
    ),
    SweepMode.PRODUCT,
)
_STAGES: Final = (StageRequest("pretrain", 3), StageRequest("finetune", 2))

_EXAMPLES: Final[Mapping[EnsembleShape, Callable[[Request], Request]]] = {
    EnsembleShape.CHAIN: lambda plain: replace(
        plain, evaluation=Evaluation(), gate=StopRules(patience=3, divergence=5.0)
    ),
    EnsembleShape.SWEEP: lambda plain: replace(plain, sweep=_SWEEP, gate=StopRules()),
    EnsembleShape.STAGES: lambda plain: replace(plain, runs=2, stages=_STAGES, gate=StopRules()),
    EnsembleShape.BAG: lambda plain: replace(plain, shards=10, gather="gather"),
    EnsembleShape.MULTI_NODE: lambda plain: replace(plain, runs=1, machines=2),
}
