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

from msgspec.structs import replace

from metlmon.authoring.request import (
    EnsembleShape,
    Evaluation,
    Region,
    Request,
    StageRequest,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
)

WIDTH: Final = 96
"""Maximum characters of a line of a list."""

_GATHER: Final = "template of a node after all shards"

COMMENT_AT: Final = 28
"""Column of the comments after short values."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def format_request(request: Request) -> str:
    """Return the description of ``request`` as TOML text."""
    parts = ["\n".join(_top_level_keys(request))]
    tables = {"values": request.values, "variables": request.variables}
    parts += [
        "\n".join(_string_table(heading, table)) for heading, table in tables.items() if table
    ]
    if request.sweep is not None:
        parts.append("\n".join(_sweep(request.sweep)))
    parts += ["\n".join(_stage(stage)) for stage in request.stages]
    if request.shape is EnsembleShape.BAG:
        shards = _line("shards", str(request.shards), "jobs that need nothing of each other")
        gather = [] if request.gather is None else [_line("gather", _text(request.gather), _GATHER)]
        parts.append("\n".join(["[bag]", shards, *gather]))
    if request.shape is EnsembleShape.MULTI_NODE:
        machines = _line("machines", str(request.machines), "that train an epoch together")
        parts.append("\n".join(["[multi-node]", machines]))
    if request.evaluation is not None:
        has_interval = request.source is None
        parts.append("\n".join(_evaluation(request.evaluation, has_interval=has_interval)))
    if request.gate is not None and request.gate != StopRules():
        parts.append("\n".join(_stop(request.gate)))
    parts += ["\n".join(_region(region)) for region in request.regions]
    return "\n\n".join(parts) + "\n"


def example(shape: EnsembleShape, template: str) -> str:
    """A small, complete description to start from."""
    return format_request(_EXAMPLES[shape](Request(template, Path(), shape=shape)))


# --- the keys at the top --------------------------------------------------------------------


def _top_level_keys(request: Request) -> Iterator[str]:
    yield "# An ensemble, for: metlmon new FILE.toml [DIR]"
    yield _line("name", _text(request.name), "of the DAG file, without .dag")
    from_file = request.source is not None
    if not from_file:
        yield _line("shape", _text(request.shape), "one of " + ", ".join(EnsembleShape))
    template_comment = "one that comes along, or a submit description beside this file"
    yield _line("template", _text(request.template), template_comment)
    if request.source is not None:
        yield _line("source", _text(str(request.source)), "the sweep file that says the runs")
    defaults = Request("", Path())
    counted_otherwise = request.shape in (EnsembleShape.SWEEP, EnsembleShape.BAG)
    if not from_file and (not counted_otherwise or request.runs != defaults.runs):
        yield _line("runs", str(request.runs), "models to train")
    has_epochs = request.shape is not EnsembleShape.BAG
    if not from_file and (has_epochs or request.epochs != defaults.epochs):
        yield _line("epochs", str(request.epochs), "of each run, one job each")
    if request.seeds:
        yield from _list("seeds", [str(seed) for seed in request.seeds])
    else:
        yield _hint("seeds", '"1-4"', "one for each run; 1, 2, 3, … if not said")
    if request.sites:
        yield from _list("sites", [_text(site) for site in request.sites])
    else:
        yield _hint("sites", '["A", "B"]', "values of GLIDEIN_ResourceName; anywhere if not said")
    policy_comment = "any; permute: each site once, then again; pin: one a run; gpu-pin"
    yield _line("policy", _text(request.policy), policy_comment)
    yield _line("gpus", str(request.gpus), "of each job")
    if request.gpu_memory_mb is not None:
        yield _line("gpu_memory", str(request.gpu_memory_mb), "MB, the least of a GPU")
    else:
        yield _hint("gpu_memory", '"40 GB"', "the least memory of a GPU")
    if request.gpu_models:
        yield from _list("gpu_models", [_text(model) for model in request.gpu_models])
    yield _line("memory", str(request.memory_mb), 'MB of each job, or a text such as "4 GB"')
    yield _line("retries", str(request.retries), "of each node")
    gate = "true" if request.gate is not None else "false"
    yield _line("gate", gate, "can a run be stopped, paused and sent elsewhere meanwhile?")
    if request.subdags:
        yield _line("subdags", "true", "each run in a sub-DAG of its own")


def _line(key: str, value: str, comment: str = "") -> str:
    assignment = f"{_key(key)} = {value}"
    return f"{assignment:<{COMMENT_AT}}# {comment}" if comment else assignment


def _hint(key: str, value: str, comment: str) -> str:
    return f"{f'# {key} = {value}':<{COMMENT_AT}}# {comment}"


def _list(key: str, items: Sequence[str]) -> Iterator[str]:
    one_line = f"{_key(key)} = [{', '.join(items)}]"
    if len(one_line) <= WIDTH:
        yield one_line
        return
    yield f"{_key(key)} = ["
    line = "   "
    for item in items:
        if len(line) + len(item) > WIDTH and line.strip():
            yield line
            line = "   "
        line += f" {item},"
    yield line
    yield "]"


# --- tables ---------------------------------------------------------------------------------


def _string_table(heading: str, table: Mapping[str, str]) -> Iterator[str]:
    comments = {
        "values": "# Parameters of the template.",
        "variables": "# VARS of every node, beside what metlmon gives.",
    }
    yield comments[heading]
    yield f"[{heading}]"
    for name, value in table.items():
        yield _line(name, _text(value))


def _sweep(sweep: SweepRequest) -> Iterator[str]:
    yield "# A run for each combination: decimal ranges with both ends in them, or lists."
    yield "[sweep]"
    yield _line("group", _text(sweep.group), "what the runs are called, before their number")
    if sweep.mode is not None:
        yield _line("how", _text(sweep.mode), "zip: first with first; product: each with each")
    else:
        yield _hint("how", '"product"', "or zip; lists of one length are zipped if not said")
    for variable in sweep.variables:
        yield from _list(variable.name, [_text(value) for value in variable.values])


def _stage(stage: StageRequest) -> Iterator[str]:
    yield "[[stage]]"
    yield _line("name", _text(stage.name))
    yield _line("epochs", str(stage.epochs))
    if stage.template is not None:
        yield _line("template", _text(stage.template))
    if stage.values:
        yield _line("values", _inline(stage.values))


def _evaluation(evaluation: Evaluation, *, has_interval: bool) -> Iterator[str]:
    """``has_interval``: whether the description sets ``every``, rather than a sweep file."""
    yield "# Side nodes that evaluate what an epoch left."
    yield "[evaluation]"
    yield _line("template", _text(evaluation.template))
    if has_interval:
        yield _line("every", str(evaluation.every), "after each so many epochs")
    gates = "true" if evaluation.gates else "false"
    yield _line("gates", gates, "does the next epoch wait for it, and fail with it?")
    if evaluation.values:
        yield _line("values", _inline(evaluation.values))


RULES: Final[Mapping[str, tuple[str, str]]] = {
    "metric": ("", "what a run is judged by"),
    "goal": ('"max"', "which of its values are good; min or max by its name if not said"),
    "patience": ("3", "stop after so many epochs without an improvement"),
    "min_delta": ("", "of more than this"),
    "divergence": ("5.0", "stop at NaN, or above this many times the best value"),
    "median_after": ("3", "stop when worse than the median of the runs, from so many epochs on"),
    "poll": ("", "seconds after which a paused run asks again"),
}
"""Fields of :class:`StopRules`: an example for a rule that is off, and the comment."""


def _stop(rules: StopRules) -> Iterator[str]:
    yield "# When a run is stopped without being told to."
    yield "[stop]"
    for name in rules.__struct_fields__:
        value = getattr(rules, name)
        example_value, comment = RULES[name]
        if value is None:
            yield _hint(name, example_value, comment)
        else:
            yield _line(name, _text(value) if isinstance(value, str) else repr(value), comment)


def _region(region: Region) -> Iterator[str]:
    yield f"[region.{_key(region.name)}]"
    if region.epochs is not None:
        first, last = region.epochs
        span = str(first) if first == last else _text(f"{first} to {last}")
        yield _line("epochs", span, "as in node names, from 0")
    if region.runs:
        yield from _list("runs", [_text(run) for run in region.runs])
    yield _line("variables", _inline(region.variables))


def _inline(table: Mapping[str, str]) -> str:
    items = ", ".join(f"{_key(name)} = {_text(value)}" for name, value in table.items())
    return f"{{ {items} }}" if items else "{}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    """A basic string: a JSON string with DEL escaped, as TOML requires.

    Bytes of a file name that are not Unicode are replaced.
    """
    text = text.encode("utf-8", "replace").decode()
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


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
