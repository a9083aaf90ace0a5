"""Reads the TOML description of an ensemble into a request.

Each key has a reader that converts the TOML value to that of :class:`Request`. A reader that fails
records a problem with the line of its key; reading goes on, so that all problems are reported
together. Limits beyond the type of a value are checked by :func:`metlmon.authoring.validate`, as
for options and the form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import ValidationError, convert

from metlmon.authoring.graph import NodeRole
from metlmon.authoring.request import (
    LONGEST_VALUE,
    MOST_VALUES,
    EnsembleShape,
    Evaluation,
    MetricGoal,
    PlanError,
    Policy,
    Region,
    Request,
    StageRequest,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
)
from metlmon.authoring.templates import bundled_names, templates
from metlmon.config.toml_file import SettingProblem, TomlFile, Where, dotted_key

MOST_ITEMS: Final = 10_000
"""Maximum items of a list; more runs than a DAG may have."""

LARGEST: Final = 16 << 20
"""Maximum bytes of a description; one beside a DAG lists all swept values and digests."""

GATED_SHAPES: Final = frozenset({EnsembleShape.CHAIN, EnsembleShape.SWEEP, EnsembleShape.STAGES})
"""Shapes whose runs can be stopped and paused one by one; these have a gate by default."""

GROUP: Final = "run"
"""Default prefix of the names of a sweep's runs."""

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


class NumberLiteral(float):
    """A number that keeps its spelling, so that a swept 0.10 stays 0.10."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text.replace("_", "")  # TOML allows 1_000.


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
    fields = {} if file.problems else _fields(file)
    if file.problems:
        raise DescriptionError(file.problems)
    name = fields.setdefault("name", path.stem)
    return Request(directory=directory or Path(name.replace("/", "_")), **fields)


def position_of_field(path: Path, field: str, exact: bool = False) -> str | None:
    """Where a description sets the field of a problem: ``ensemble.toml:4: runs``.

    None if it does not; unless ``exact``, the table that would contain the key counts, too.
    """
    file = TomlFile(path, fraction=NumberLiteral, largest=LARGEST)
    field_name, *rest = field.split(".")
    keys = {name: key for key, (name, _) in READERS.items()}
    keys |= {"shards": "bag.shards", "machines": "multi-node.machines"}
    where: Where = (*keys.get(field_name, field_name).split("."), *rest)
    if where[0] == "stage" and rest:
        stages = file.table.get("stage", [])
        names = [stage.get("name") for stage in stages if isinstance(stage, dict)]
        known = rest[0] in names
        where = ("stage", names.index(rest[0]), *rest[1:]) if known else ("stage",)
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


def _fields(file: TomlFile) -> dict[str, Any]:
    """The fields that the description sets, and those derived from them."""
    readers = {key: read for key, (_, read) in READERS.items()}
    values = _read_table(file, (), file.table, readers)
    fields = {READERS[key][0]: value for key, value in values.items() if READERS[key][0]}
    fields |= {**values.get("bag", {}), **values.get("multi-node", {})}
    set_by_sweep_file = ("shape", "runs", "epochs", *_SHAPE_TABLES)
    refused: list[Where] = [*((key,) for key in set_by_sweep_file), ("evaluation", "every")]
    for where in refused if "source" in file.table else ():
        if _contains(file.table, where):
            text = "the sweep file (source) says that; take it out"
            file.report_problem(where, f"{dotted_key(where)}: {text}")
    fields["shape"] = shape = _shape(file, fields)
    if "template" not in fields:
        fields["template"] = template_for(shape)
    if fields.get("seeds") and "runs" not in fields and "source" not in fields:
        fields["runs"] = len(fields["seeds"])
    gate = file.table.get("gate")
    if gate is False and "stop" in file.table:
        file.report_problem(("gate",), "gate = false leaves nobody to follow [stop]; take one out")
    if gate is True or (gate is None and shape in GATED_SHAPES):
        fields.setdefault("gate", StopRules())
    return fields


def template_for(shape: EnsembleShape) -> str:
    """Name of the first bundled template for the main nodes of a shape, or ""."""
    role = NodeRole.SHARD if shape is EnsembleShape.BAG else NodeRole.TRAIN
    candidates = [template for template in templates() if template.role is role]
    if shape is EnsembleShape.MULTI_NODE:
        # Any other template trains each epoch on a single machine: the sort is stable.
        candidates.sort(key=lambda template: "{machines}" not in template.text)
    return next((template.name for template in candidates), "")


def _shape(file: TomlFile, fields: Mapping[str, Any]) -> EnsembleShape:
    """The shape, as set or as implied by a table.

    A table of another shape is an error, as it would have no effect.
    """
    used = {key: shape for key, shape in _SHAPE_TABLES.items() if key in file.table}
    implied = next(iter(used.values()), EnsembleShape.CHAIN)
    shape: EnsembleShape = fields.get("shape") or implied
    for key, required in used.items():
        if required is not shape:
            heading = "[[stage]]" if key == "stage" else f"[{key}]"
            text = f'{heading} belongs to shape = "{required}", and this is "{shape}"'
            file.report_problem((key,), f"{text}; take one of them out")
    return shape


# --- single values ------------------------------------------------------------------------


class _Invalid(Exception):
    """The problem with the key that is being read: the text behind its name."""


def _expected(what: str) -> _Invalid:
    return _Invalid(f" must be {what}")


def _plain(kind: type, expected: str) -> Reader:
    """The reader of a number or of true and false."""

    def read(_: TomlFile, where: Where, value: Any) -> Any:
        try:
            return convert(float(value) if isinstance(value, NumberLiteral) else value, kind)
        except ValidationError:
            raise _expected(expected) from None

    return read


_integer: Final = _plain(int, "a whole number, such as 4")
_number: Final = _plain(float, "a number, such as 0.01")
_boolean: Final = _plain(bool, "true or false")


def _text(_: TomlFile, where: Where, value: object) -> str:
    if isinstance(value, str) and len(value) <= LONGEST_VALUE:
        return value
    length_limit = f" of at most {LONGEST_VALUE} characters" if isinstance(value, str) else ""
    raise _expected(f"a text in quotes{length_limit}")


def _scalar(_: TomlFile, where: Where, value: object) -> str:
    """A value of a variable or parameter: text, or a number as spelled."""
    text = scalar_text(value)
    if text is not None and len(text) <= LONGEST_VALUE:
        return text
    raise _expected('a text in quotes or a number: "0.01" or 0.01')


def scalar_text(value: object) -> str | None:
    """A TOML string, number or boolean as text, numbers as spelled; else None."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case NumberLiteral():
            return value.text
        case int():
            return str(value)
    return None


def _size(_: TomlFile, where: Where, value: object) -> int:
    text = scalar_text(value)
    size = None if text is None or isinstance(value, bool) else parse_megabytes(text)
    if size is None:
        raise _expected('a size: 4096 (MB), or "4 GB"')
    return size


def _one_of(kinds: type[StrEnum]) -> Reader:
    choices = [str(kind) for kind in kinds]

    def read(_: TomlFile, where: Where, value: Any) -> StrEnum:
        if value in choices:
            return kinds(value)
        from difflib import get_close_matches  # Imported late: rarely needed.

        similar = get_close_matches(value[:80], choices, n=1) if isinstance(value, str) else []
        suggestion = f"; did you mean {similar[0]!r}?" if similar else ""
        raise _expected(f"one of {', '.join(choices)}{suggestion}")

    return read


def _path(file: TomlFile, where: Where, value: object) -> Path:
    """A path in the description; relative ones start from its directory."""
    text = _text(file, where, value)
    try:
        return file.path.parent / Path(text).expanduser()
    except RuntimeError:
        return file.path.parent / text


def _template(file: TomlFile, where: Where, value: object) -> str:
    text = _text(file, where, value)
    if not text.strip() or text in bundled_names():
        return text
    path = _path(file, where, text)
    return str(path) if "/" in text or "." in text or path.exists() else text


def _seeds(_: TomlFile, where: Where, value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        try:
            return parse_seeds(value)
        except ValueError as error:
            raise _Invalid(f": {error}") from None
    if isinstance(value, list) and all(type(seed) is int for seed in value):
        return tuple(value)
    raise _expected('a list of whole numbers, [7, 11, 13], or "1-4"')


def _texts(_: TomlFile, where: Where, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _expected('a list of texts, ["…", "…"]')
    if len(value) > MOST_ITEMS or any(len(item) > LONGEST_VALUE for item in value):
        raise _expected(f"a list of at most {MOST_ITEMS} short texts")
    return tuple(value)


def _sites(file: TomlFile, where: Where, value: object) -> tuple[str, ...]:
    return parse_sites(value) if isinstance(value, str) else _texts(file, where, value)


def _epochs(_: TomlFile, where: Where, value: object) -> tuple[int, int]:
    if type(value) is int:
        return value, value
    match = _EPOCHS.fullmatch(value[:80]) if isinstance(value, str) else None
    if match is None or int(match[1]) > int(match[2]):
        raise _expected('an epoch as in node names, from 0: 20, or "20 to 29"')
    return int(match[1]), int(match[2])


# --- tables -------------------------------------------------------------------------------


def _table(file: TomlFile, where: Where, value: object) -> dict[str, Any]:
    """The table at ``where``; empty, with a problem, if it is not a table."""
    key = dotted_key(where)
    if not isinstance(value, dict):
        file.report_problem(where, f"{key} is a table: [{key}], then its keys")
    elif len(value) > MOST_ITEMS:
        file.report_problem(where, f"[{key}] has more than {MOST_ITEMS} keys")
    else:
        return value
    return {}


def _read_table(
    file: TomlFile, where: Where, value: object, readers: Mapping[str, Reader]
) -> dict[str, Any]:
    """The values of a table that may have only these keys."""
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
            try:
                value = read(file, (*where, key), table[key])
            except _Invalid as error:
                file.report_problem((*where, key), f"{dotted_key((*where, key))}{error}")
                continue
            if value is not None:
                values[key] = value
    return values


def _string_table(file: TomlFile, where: Where, value: object) -> dict[str, str]:
    table = _table(file, where, value)
    return _read_keys(file, where, table, dict.fromkeys(table, _scalar))


def _position(file: TomlFile, where: Where) -> str:
    """File and line, as in the ``where`` of a node's variables."""
    line = file.line(where)
    return file.path.name if line is None else f"{file.path.name}:{line}"


def _sweep(file: TomlFile, where: Where, value: object) -> SweepRequest:
    table = _table(file, where, value)
    options = _read_keys(file, where, table, {"group": _text, "how": _one_of(SweepMode)})
    names = [name for name in table if name not in ("group", "how")]
    if not names:
        text = '[sweep] has no variable; write one such as a = "0.01 to 0.1 by 0.01"'
        file.report_problem(where, text)
    variables = _read_keys(file, where, table, dict.fromkeys(names, _swept_variable))
    return SweepRequest(
        group=options.get("group", GROUP),
        variables=tuple(variables.values()),
        mode=options.get("how"),
        where=_position(file, where),
    )


def _swept_variable(file: TomlFile, where: Where, value: object) -> SweptVariable:
    name, position = str(where[-1]), _position(file, where)
    if isinstance(value, list):
        items = [text for item in value if (text := scalar_text(item)) is not None]
        if not 0 < len(items) <= MOST_VALUES or len(items) < len(value):
            raise _expected(f"a list of 1 to {MOST_VALUES} texts and numbers")
        return SweptVariable(name, tuple(items), position)
    text = scalar_text(value)
    if text is None or len(text) > LONGEST_VALUE:
        raise _expected('"0.01 to 0.1 by 0.01", or a list of values')
    from metlmon.authoring.sweeps.values import values  # Imported late: most have no sweep.

    try:
        return SweptVariable(name, values(text, position), position)
    except PlanError as error:
        raise _Invalid(f": {str(error).removeprefix(f'{position}: ')}") from None


def _evaluation(file: TomlFile, where: Where, value: object) -> Evaluation:
    readers = {"template": _template, "every": _integer, "gates": _boolean, "values": _string_table}
    return Evaluation(**_read_table(file, where, value, readers))


def _stop(file: TomlFile, where: Where, value: object) -> StopRules:
    return StopRules(**_read_table(file, where, value, _RULES))


def _stages(file: TomlFile, where: Where, value: object) -> tuple[StageRequest, ...]:
    if not isinstance(value, list) or len(value) > MOST_ITEMS:
        file.report_problem(where, STAGE)
        return ()
    readers = {"name": _text, "epochs": _integer, "template": _template, "values": _string_table}
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
    readers = {"epochs": _epochs, "runs": _texts, "variables": _string_table}
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


_RULES: Final[Mapping[str, Reader]] = {
    "metric": _text,
    "goal": _one_of(MetricGoal),
    **dict.fromkeys(("patience", "median_after", "poll"), _integer),
    **dict.fromkeys(("min_delta", "divergence"), _number),
}
_BAG: Final[Mapping[str, Reader]] = {"shards": _integer, "gather": _template}

READERS: Final[Mapping[str, tuple[str, Reader]]] = {
    "name": ("name", _text),
    "shape": ("shape", _one_of(EnsembleShape)),
    "template": ("template", _template),
    "runs": ("runs", _integer),
    "epochs": ("epochs", _integer),
    "seeds": ("seeds", _seeds),
    "sites": ("sites", _sites),
    "policy": ("policy", _one_of(Policy)),
    "gpus": ("gpus", _integer),
    "gpu_memory": ("gpu_memory_mb", _size),
    "gpu_models": ("gpu_models", _sites),
    "memory": ("memory_mb", _size),
    "retries": ("retries", _integer),
    "gate": ("", _boolean),
    "source": ("source", _path),
    "subdags": ("subdags", _boolean),
    "mlproject": ("mlproject", _boolean),
    "values": ("values", _string_table),
    "variables": ("variables", _string_table),
    "sweep": ("sweep", _sweep),
    "evaluation": ("evaluation", _evaluation),
    "stop": ("gate", _stop),
    "stage": ("stages", _stages),
    "bag": ("", partial(_read_table, readers=_BAG)),
    "multi-node": ("", partial(_read_table, readers={"machines": _integer})),
    "region": ("regions", _regions),
}
"""Every key, with the field of the request that it sets."""


# --- texts of options and of the form ---------------------------------------------------------


_SIZE: Final = re.compile(r"([0-9]{1,15}) ?(?:([kmgt])i?b?)?", re.IGNORECASE)
_KB: Final = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3}
_RANGE: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


def parse_megabytes(text: str) -> int | None:
    """``4096``, ``4096 MB``, ``4 GB`` or ``4g`` in MB, rounded up; None if invalid.

    A MB has 1024 kB, as in HTCondor.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    return -(-int(match[1]) * _KB[(match[2] or "m").lower()] // 1024)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse ``7, 11, 13`` or ``1-4``. Raises ValueError with a sentence."""
    seeds: list[int] = []
    for item in filter(None, re.split(r"[,\s]+", text.strip())):
        if match := _RANGE.fullmatch(item):
            first, last = int(match[1]), int(match[2])
            if not 0 <= last - first < MOST_VALUES:
                raise ValueError("a range goes from its smaller seed to its larger, as 1-4")
            seeds.extend(range(first, last + 1))
        elif re.fullmatch(r"-?[0-9]{1,18}", item):
            seeds.append(int(item))
        else:
            raise ValueError("whole numbers are needed, such as 7, 11, 13 or 1-4")
    return tuple(seeds)


def parse_sites(text: str) -> tuple[str, ...]:
    """Parse names separated by commas, without duplicates."""
    names = (name.strip() for name in text.split(","))
    return tuple(dict.fromkeys(name for name in names if name))
