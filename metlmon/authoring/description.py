"""The description of an ensemble in TOML: written beside its DAG, and read.

``<name>.toml`` is enough to write the same files again, together with copies of the templates that
are not bundled. Its text is a function of the request alone and contains all numbers, defaults
included, so that a later version with other defaults reads the same request; the directory is not
part of it. Its last lines are digests; later they show which files were edited by hand.

Reading continues after a key with a problem, so that all problems are reported together, each with
its line. Limits beyond the type of a value are checked by :func:`metlmon.authoring.validate`, as
for options and the form.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec.structs import asdict, replace

from metlmon.authoring.request import (
    FIELDS,
    GATED_SHAPES,
    MAX_ITEMS,
    MAX_VALUES,
    EnsembleShape,
    Evaluation,
    NumberLiteral,
    Plan,
    PlanError,
    PlannedFile,
    Region,
    Request,
    StageRequest,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
    is_default,
    key_of,
    one_of,
    read_flag,
    read_text,
    read_texts,
    read_whole,
    scalar_text,
    value_of,
    with_fields,
)
from metlmon.authoring.templates import bundled_names, load_template, template_for
from metlmon.config.toml_file import SettingProblem, TomlFile, Where, dotted_key
from metlmon.live.file_access import content_of

WIDTH: Final = 96
"""Maximum characters of a line of a list."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")

LARGEST: Final = 16 << 20
"""Maximum bytes of a description; it lists all swept values and digests."""

_DIGEST_HEADING: Final = "# What was written, to tell later what was changed by hand:"
_DIGEST: Final = re.compile(r"# sha256 ([0-9a-f]{64})  (\S.*)")


def format_request(request: Request) -> str:
    """Return the description of ``request`` as TOML text."""
    return "\n\n".join("\n".join(lines) for lines in _parts(request)) + "\n"


def example(shape: EnsembleShape, template: str) -> str:
    """A small, complete description to start from."""
    return format_request(Request(template, Path(), shape=shape, **_EXAMPLES[shape]))


# --- the tables -------------------------------------------------------------------------------


def _parts(request: Request) -> Iterator[Iterable[str]]:
    """The lines of each table, those of the keys at the top first."""
    yield ["# An ensemble, for: metlmon new FILE.toml [DIR]", *_top_level_keys(request)]
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
        yield ["[bag]", *_lines(request, "bag").values()]
    if request.shape is EnsembleShape.MULTI_NODE:
        yield ["[multi-node]", *_lines(request, "multi-node").values()]
    if (evaluation := request.evaluation) is not None:
        values = [_entry("values", evaluation.values)] if evaluation.values else []
        comment = "# Side nodes that evaluate what an epoch left."
        yield [comment, "[evaluation]", *_lines(request, "evaluation").values(), *values]
    if request.gate is not None and request.gate != StopRules():
        comment = "# When a run is stopped without a request."
        yield [comment, "[stop]", *_lines(request, "stop").values()]
    for region in request.regions:
        lines = [f"[region.{_key(region.name)}]"]
        if region.epochs is not None:
            first, last = region.epochs
            span = first if first == last else f"{first} to {last}"
            lines.append(_entry("epochs", span, "as in node names, from 0"))
        lines += [_list("runs", region.runs)] if region.runs else []
        yield [*lines, _entry("variables", region.variables)]


def _top_level_keys(request: Request) -> Iterator[str]:
    lines = _lines(request, "")
    for name in ("name", "shape", "template"):  # In the form the template comes first.
        if name in lines:
            yield lines.pop(name)
    if request.source is not None:
        yield _entry("source", str(request.source), "the sweep file that defines the runs")
    flags = [lines.pop(key) for key in ("subdags", "mlproject") if key in lines]
    yield from lines.values()
    comment = "can a run be stopped, paused and sent elsewhere meanwhile?"
    yield _entry("gate", request.gate is not None, comment)
    yield from flags


def _lines(request: Request, table: str) -> dict[str, str]:
    """The keys of a table (those at the top have ""), each with its line.

    A key without an effect is among them only if it is set.
    """
    lines = {}
    for field in FIELDS.values():
        heading, _, key = field.key.rpartition(".")
        if heading != table or (request.source is not None and field.name in SET_BY_SWEEP_FILE):
            continue
        is_usual = request.shape in field.shapes and not field.optional
        if not is_usual and is_default(request, field):
            continue
        value = value_of(request, field.name)
        comment = (value is None and field.usage) or field.comment
        if isinstance(value, tuple):
            lines[key] = _list(key, value, comment, field.hint)
        else:
            lines[key] = _entry(key, value, comment, field.hint)
    return lines


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
    return f"{assignment:<28}# {comment}" if comment else assignment


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

_EXAMPLES: Final[Mapping[EnsembleShape, Mapping[str, Any]]] = {
    EnsembleShape.CHAIN: {
        "evaluation": Evaluation(),
        "gate": StopRules(patience=3, divergence=5.0),
    },
    EnsembleShape.SWEEP: {"sweep": _SWEEP, "gate": StopRules()},
    EnsembleShape.STAGES: {
        "runs": 2,
        "stages": (StageRequest("pretrain", 3), StageRequest("finetune", 2)),
        "gate": StopRules(),
    },
    EnsembleShape.BAG: {"shards": 10, "gather": "gather"},
    EnsembleShape.MULTI_NODE: {"runs": 1, "machines": 2},
}

# --- reading ----------------------------------------------------------------------------------


SET_BY_SWEEP_FILE: Final = ("shape", "runs", "epochs", "evaluation.every")
"""Fields that a sweep file sets."""

STAGE: Final = 'each [[stage]] needs name = "pretrain" and epochs = 10'

_SHAPE_TABLES: Final = {
    "sweep": EnsembleShape.SWEEP,
    "stage": EnsembleShape.STAGES,
    "bag": EnsembleShape.BAG,
    "multi-node": EnsembleShape.MULTI_NODE,
}
"""Tables that imply a shape."""

_EPOCHS: Final = re.compile(r"\s*([0-9]{1,9})\s*(?:to|-)\s*([0-9]{1,9})\s*")

Reader = Callable[[TomlFile, Where, Any], Any]
"""Reads the value of a key. Raises ValueError as the reader of a field, or PlanError."""


class DescriptionError(PlanError):
    """The description is invalid. ``sentences``: all problems, with file and line."""

    def __init__(self, problems: list[SettingProblem]) -> None:
        self.sentences = tuple(
            f"{problem.path}{f':{problem.line}' if problem.line else ''}: {problem.message}"
            for problem in sorted(problems, key=lambda problem: problem.line or 0)
        )
        more = len(problems) - 1
        super().__init__(self.sentences[0] + (f" (and {more} more)" if more else ""))


def read_description(path: Path, directory: Path | None = None) -> Request:
    """Read the request from the TOML file at ``path``.

    ``directory``: target; default: a directory named like the DAG, in the current one. Relative
    paths in the description start from its directory. Raises DescriptionError with all problems.
    """
    file = TomlFile(path, fraction=NumberLiteral, largest=LARGEST)
    if not file.exists:
        file.report_problem((), "there is no such file; metlmon new --example chain prints one")
    values = {} if file.problems else _values(file)
    if file.problems:
        raise DescriptionError(file.problems)
    name = values.setdefault("name", path.stem)
    return with_fields(Request("", directory or Path(name.replace("/", "_"))), values)


def position_of_field(path: Path, field: str, exact: bool = False) -> str | None:
    """Where a description sets the field of a problem: ``ensemble.toml:4: runs``.

    None if it does not; unless ``exact``, the table that would contain the key counts, too.
    """
    file = TomlFile(path, fraction=NumberLiteral, largest=LARGEST)
    where: Where = tuple(key_of(field).split("."))
    if where[0] == "stage" and len(where) > 1:
        stages = file.table.get("stage", [])
        names = [stage.get("name") for stage in stages if isinstance(stage, dict)]
        known = where[1] in names
        where = ("stage", names.index(where[1]), *where[2:]) if known else ("stage",)
    if exact and not _contains(file.table, where):
        return None
    line = file.line(where)
    return None if line is None else f"{path}:{line}: {dotted_key(where)}"


def _contains(table: Any, where: Where) -> bool:
    """Whether a table of the description has the key."""
    for part in where:
        if isinstance(part, str) and (not isinstance(table, dict) or part not in table):
            return False
        if isinstance(part, int) and not isinstance(table, list):
            return False
        table = table[part]
    return True


def _values(file: TomlFile) -> dict[str, Any]:
    """The values that the description sets, and those derived from them, by field name."""
    read = _read_table(file, (), file.table, _READERS)
    gate = read.pop("gate", None)
    values: dict[str, Any] = {}
    if "evaluation" in read:
        values["evaluation"] = Evaluation()
    if "stop" in read:
        values["gate"] = StopRules()
    for name in _TABLES:
        inner = read.pop(name, {})
        read |= {f"{name}.{key}": value for key, value in inner.items()}
    values |= {_FIELD_NAMES.get(key, key): value for key, value in read.items()}
    keys = [*(key_of(name) for name in SET_BY_SWEEP_FILE), *_SHAPE_TABLES]
    for where in (tuple(key.split(".")) for key in keys) if "source" in file.table else ():
        if _contains(file.table, where):
            text = "the sweep file (source) says that; take it out"
            file.report_problem(where, f"{dotted_key(where)}: {text}")
    values["shape"] = shape = _shape(file, values)
    values.setdefault("template", template_for(shape))
    if gate is False and "stop" in file.table:
        file.report_problem(("gate",), "gate = false leaves nobody to follow [stop]; take one out")
    if gate is True or (gate is None and shape in GATED_SHAPES):
        values.setdefault("gate", StopRules())
    return values


def _shape(file: TomlFile, values: Mapping[str, Any]) -> EnsembleShape:
    """The shape, as set or as implied by a table."""
    used = {key: shape for key, shape in _SHAPE_TABLES.items() if key in file.table}
    implied = next(iter(used.values()), EnsembleShape.CHAIN)
    shape: EnsembleShape = values.get("shape") or implied
    for key, required in used.items():
        if required is not shape:
            heading = "[[stage]]" if key == "stage" else f"[{key}]"
            text = f'{heading} belongs to shape = "{required}", and this is "{shape}"'
            file.report_problem((key,), f"{text}; take one of them out")
    return shape


def _table(file: TomlFile, where: Where, value: object) -> dict[str, Any]:
    """The table at ``where``; empty, with a problem, if it is not a table."""
    key = dotted_key(where)
    if not isinstance(value, dict):
        file.report_problem(where, f"{key} is a table: [{key}], then its keys")
    elif len(value) > MAX_ITEMS:
        file.report_problem(where, f"[{key}] has more than {MAX_ITEMS} keys")
    else:
        return value
    return {}


def _read_table(
    file: TomlFile, where: Where, value: object, readers: Mapping[str, Reader]
) -> dict[str, Any]:
    """The valid values of a table that may have only these keys."""
    table = _table(file, where, value)
    file.report_unknown_keys(where, table, readers)
    return _read_keys(file, where, table, readers)


def _read_keys(
    file: TomlFile, where: Where, table: Mapping[str, Any], readers: Mapping[str, Reader]
) -> dict[str, Any]:
    """The valid values of those keys of ``readers`` that the table has."""
    values = {}
    for key, read in readers.items():
        if key in table:
            name = dotted_key((*where, key))
            try:
                values[key] = read(file, (*where, key), table[key])
            except ValueError as error:
                file.report_problem((*where, key), f"{name} {error}")
            except PlanError as error:
                file.report_problem((*where, key), f"{name}: {error}")
    return values


# --- the notations of single keys -------------------------------------------------------------


def _plain(read: Callable[[Any], Any]) -> Reader:
    return lambda file, where, value: read(value)


def _scalar(_: TomlFile, where: Where, value: object) -> str:
    """A value of a variable or parameter: text, or a number as spelled."""
    text = scalar_text(value)
    if text is None:
        raise ValueError('must be a text in quotes or a number: "0.01" or 0.01')
    return text


def _path(file: TomlFile, where: Where, value: object) -> Path:
    """A path in the description; relative ones start from its directory."""
    text = read_text(value)
    try:
        return file.path.parent / Path(text).expanduser()
    except RuntimeError:
        return file.path.parent / text


def _template(file: TomlFile, where: Where, value: object) -> str:
    text = read_text(value)
    if not text.strip() or text in bundled_names():
        return text
    path = _path(file, where, text)
    return str(path) if "/" in text or "." in text or path.exists() else text


def _epochs(_: TomlFile, where: Where, value: object) -> tuple[int, int]:
    if type(value) is int:
        return value, value
    match = _EPOCHS.fullmatch(value[:80]) if isinstance(value, str) else None
    if match is None or int(match[1]) > int(match[2]):
        raise ValueError('must be an epoch as in node names, from 0: 20, or "20 to 29"')
    return int(match[1]), int(match[2])


def _string_table(file: TomlFile, where: Where, value: object) -> dict[str, str]:
    table = _table(file, where, value)
    return _read_keys(file, where, table, dict.fromkeys(table, _scalar))


def _position(file: TomlFile, where: Where) -> str:
    """File and line, as in the ``where`` of a node's variables."""
    line = file.line(where)
    return file.path.name if line is None else f"{file.path.name}:{line}"


def _read_sweep(file: TomlFile, where: Where, value: object) -> SweepRequest:
    table = _table(file, where, value)
    readers = {"group": _plain(read_text), "how": _plain(one_of(SweepMode))}
    options = _read_keys(file, where, table, readers)
    names = [name for name in table if name not in readers]
    if not names:
        text = '[sweep] has no variable; write one such as a = "0.01 to 0.1 by 0.01"'
        file.report_problem(where, text)
    variables = _read_keys(file, where, table, dict.fromkeys(names, _swept_variable))
    return SweepRequest(
        group=options.get("group", "run"),
        variables=tuple(variables.values()),
        mode=options.get("how"),
        where=_position(file, where),
    )


def _swept_variable(file: TomlFile, where: Where, value: object) -> SweptVariable:
    name, position = str(where[-1]), _position(file, where)
    if isinstance(value, list):
        items = [text for item in value if (text := scalar_text(item)) is not None]
        if not 0 < len(items) <= MAX_VALUES or len(items) < len(value):
            raise ValueError(f"must be a list of 1 to {MAX_VALUES} texts and numbers")
        return SweptVariable(name, tuple(items), position)
    text = scalar_text(value)
    if text is None:
        raise ValueError('must be "0.01 to 0.1 by 0.01", or a list of values')
    from metlmon.authoring.sweeps.values import values  # Imported late: most have no sweep.

    try:
        return SweptVariable(name, values(text, position), position)
    except PlanError as error:
        raise PlanError(str(error).removeprefix(f"{position}: ")) from None


def _stages(file: TomlFile, where: Where, value: object) -> tuple[StageRequest, ...]:
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        file.report_problem(where, STAGE)
        return ()
    readers = {
        "name": _plain(read_text),
        "epochs": _plain(read_whole),
        "template": _template,
        "values": _string_table,
    }
    stages = []
    for number, item in enumerate(value):
        if not isinstance(item, dict) or not {"name", "epochs"} <= item.keys():
            file.report_problem((*where, number), STAGE)
            continue
        fields = _read_table(file, (*where, number), item, readers)
        if {"name", "epochs"} <= fields.keys():
            stages.append(StageRequest(**fields))
    return tuple(stages)


def _regions(file: TomlFile, where: Where, value: object) -> tuple[Region, ...]:
    readers = {"epochs": _epochs, "runs": _plain(read_texts), "variables": _string_table}
    regions = []
    for name, item in _table(file, where, value).items():
        place = (*where, name)
        fields = _read_table(file, place, item, readers)
        if isinstance(item, dict) and not item.get("variables"):
            text = f"[{dotted_key(place)}] gives no variables"
            file.report_problem(place, f'{text}; write variables = {{ ResourceName = "…" }}')
        fields.setdefault("variables", {})
        regions.append(Region(name=name, where=_position(file, place), **fields))
    return tuple(regions)


_TABLES: Final = ("evaluation", "stop", "bag", "multi-node")
"""Tables of single keys."""

_FIELD_NAMES: Final = {
    **{field.key: field.name for field in FIELDS.values()},
    **{"stage": "stages", "region": "regions"},
}
"""Fields whose names differ from their keys."""


def _readers() -> dict[str, Reader]:
    """The readers of the keys at the top, and of the tables."""
    keys: dict[str, Reader] = {field.key: _plain(field.read) for field in FIELDS.values()}
    keys |= dict.fromkeys(("template", "evaluation.template", "bag.gather"), _template)
    keys |= dict.fromkeys(("values", "variables", "evaluation.values"), _string_table)
    keys |= {"gate": _plain(read_flag), "source": _path}
    keys |= {"sweep": _read_sweep, "stage": _stages, "region": _regions}
    tables: dict[str, dict[str, Reader]] = {}
    for key, reader in keys.items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, {})[name] = reader
    return tables[""] | {key: partial(_read_table, readers=tables[key]) for key in _TABLES}


_READERS: Final = _readers()


# --- names, copies and digests of files ------------------------------------------------------


def description_name(name: str) -> str:
    """Name of the description beside this DAG; never that of the settings."""
    return f"{name}-dag.toml" if name == "metlmon" else f"{name}.toml"


def sweep_copy_name(source: Path) -> str:
    """Name of a sweep file's copy; not ``.dag``, which would be taken for another DAG."""
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
    about = "the request; metlmon new reads it"
    return (*copies, PlannedFile(description_name(request.name), text.encode(), False, about))


def _template_copies(request: Request) -> tuple[list[PlannedFile], Request]:
    """Copies of the user's template files, and the request that refers to the copies."""
    copies: list[PlannedFile] = []

    def copied_name(name: str) -> str:
        path = load_template(name).path
        if path is None:
            return name
        copy = f"{path.stem}.template"
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
    """Digests of files written with this DAG, by name; empty without a description."""
    return _read_digests(content_of(directory / description_name(name), LARGEST) or b"")


def content_digest(name: str, data: bytes) -> str:
    """As in :func:`recorded_digests`; of a description, without its digests."""
    return digest(data.partition(_DIGEST_HEADING.encode())[0] if name.endswith(".toml") else data)


def is_edited(description: Path) -> bool:
    """Whether a description beside its DAG differs from what was written."""
    data = content_of(description, LARGEST) or b""
    return _read_digests(data).get(description.name) != content_digest(description.name, data)


def with_own_text(plan: Plan, description: Path) -> Plan:
    """The plan with the text of ``description`` as the one beside the DAG.

    Keeps the user's comments: both describe the same request. Only the digests after the text
    change, and only if another file changes.
    """
    name = description_name(plan.request.name)
    data = content_of(description, LARGEST) or b""
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
