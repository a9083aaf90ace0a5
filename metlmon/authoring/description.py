"""The description beside a DAG: TOML text, digests of files, copies of templates.

``<name>.toml`` is enough to write the same files again, together with copies of the templates that
are not bundled. Its text is a function of the request alone and contains all numbers, defaults
included, so that a later version with other defaults reads the same request; the directory is not
part of it. Its last lines are digests; later they show which files were edited by hand.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import asdict, replace

from metlmon.authoring.request import (
    EnsembleShape,
    Evaluation,
    Plan,
    PlannedFile,
    Request,
    StageRequest,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
)
from metlmon.authoring.templates import load_template
from metlmon.live.file_access import UnreadableFile, read_file

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

LARGEST: Final = 16 << 20
"""Maximum size of a description in bytes."""

_DIGEST_HEADING: Final = "# What was written, to tell later what was changed by hand:"
_DIGEST: Final = re.compile(r"# sha256 ([0-9a-f]{64})  (\S.*)")
_SETTINGS_STEM: Final = "metlmon"


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
    if request.mlproject:
        yield _entry("mlproject", True, "also an MLflow project, for mlflow run . -b metlmon")


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


# --- names, copies and digests of files ------------------------------------------------------


def description_name(name: str) -> str:
    """Name of the description beside this DAG; never that of the settings."""
    return f"{name}-dag.toml" if name == _SETTINGS_STEM else f"{name}.toml"


def template_copy_name(template: Path) -> str:
    """Name of the copy of a template file."""
    return f"{template.stem}.template"


def sweep_copy_name(source: Path) -> str:
    """The name of a sweep file's copy beside the DAG made from it.

    It does not end in ``.dag``, which would be taken for another DAG.
    """
    return f"{source.stem}.sweep"


def source_copy_name(name: str) -> str:
    """The name beside the DAG of a file that a sweep file refers to, maybe by a path."""
    path = Path(name)
    return sweep_copy_name(path) if path.suffix == ".dag" else path.name


def description_files(request: Request, files: Sequence[PlannedFile]) -> tuple[PlannedFile, ...]:
    """The description and copies of the templates, to be written with ``files``."""
    copies, portable_request = _template_copies(request)
    text = format_request(portable_request) + "\n"
    digests = {file.name: digest(file.data) for file in (*files, *copies)}
    text += _digest_lines({**digests, description_name(request.name): digest(text.encode())})
    about = "what was asked for; metlmon new reads it"
    return (*copies, PlannedFile(description_name(request.name), text.encode(), False, about))


def _template_copies(request: Request) -> tuple[list[PlannedFile], Request]:
    """Copies of the user's template files, and the request that refers to the copies."""
    copies: list[PlannedFile] = []

    def copied_name(name: str) -> str:
        path = load_template(name).path
        if path is None:
            return name
        copy = template_copy_name(path)
        copies.append(PlannedFile(copy, path.read_bytes(), False, "the template, as it was"))
        return copy

    evaluation, gather, source = request.evaluation, request.gather, request.source
    portable_request = replace(
        request,
        template=copied_name(request.template),
        evaluation=evaluation and replace(evaluation, template=copied_name(evaluation.template)),
        gather=gather and copied_name(gather),
        source=source and Path(sweep_copy_name(source)),
        stages=tuple(
            replace(stage, template=stage.template and copied_name(stage.template))
            for stage in request.stages
        ),
    )
    return copies, portable_request


def digest(data: bytes) -> str:
    """SHA-256 of ``data`` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def recorded_digests(directory: Path, name: str) -> Mapping[str, str]:
    """Digests of the files written with this DAG, by file name.

    Empty without a description. The description's own digest covers the text before the digests.
    """
    return _read_digests(_content(directory / description_name(name)))


def content_digest(name: str, data: bytes) -> str:
    """As in :func:`recorded_digests`; of a description, without its digests."""
    return digest(data.partition(_DIGEST_HEADING.encode())[0] if name.endswith(".toml") else data)


def is_edited(description: Path) -> bool:
    """Whether a description beside its DAG differs from what was written."""
    data = _content(description)
    digests = _read_digests(data)
    return digests.get(description.name) != content_digest(description.name, data)


def with_own_text(plan: Plan, description: Path) -> Plan:
    """The plan with the text of ``description`` as the one beside the DAG.

    Keeps the user's comments: both describe the same request. Only the digests after the text
    change, and only if another file changes.
    """
    name = description_name(plan.request.name)
    data = _content(description)
    text, _, _ = data.partition(_DIGEST_HEADING.encode())
    planned = next(file.data for file in plan.files if file.name == name)
    digests = {**_read_digests(planned), name: digest(text)}
    changed = digests.items() ^ _read_digests(data).items()
    if any(file != name for file, _ in changed):
        text += b"" if text.endswith(b"\n") else b"\n"
        data = text + _digest_lines({**digests, name: digest(text)}).encode()
    files = (replace(file, data=data) if file.name == name else file for file in plan.files)
    return replace(plan, files=tuple(files))


def _digest_lines(digests: Mapping[str, str]) -> str:
    lines = [f"# sha256 {value}  {name}" for name, value in digests.items()]
    return "\n".join([_DIGEST_HEADING, *lines]) + "\n"


def _read_digests(data: bytes) -> dict[str, str]:
    lines = data.decode("utf-8", "replace").split("\n")
    return {match[2]: match[1] for match in map(_DIGEST.fullmatch, lines) if match is not None}


def _content(path: Path) -> bytes:
    """Content of a file; empty if it cannot be read."""
    try:
        return read_file(str(path), LARGEST)
    except (OSError, UnreadableFile):
        return b""
