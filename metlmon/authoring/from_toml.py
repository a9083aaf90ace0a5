"""A description of an ensemble in TOML → a request.

Each key has one reader, which takes what TOML gave and returns what :class:`Request` wants;
where that cannot be, it complains with the line of the key, and goes on: all that is wrong is
told at once. What a value may be beyond its type (so many runs, such names) is for
:func:`metlmon.authoring.validate`, which asks the same of options and of a form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from metlmon.authoring.graph import NodeRole
from metlmon.authoring.inputs import megabytes, seeds_in, sites_in
from metlmon.authoring.request import (
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
from metlmon.config.toml_file import SettingProblem, TomlFile, Where, spelled

MOST_ITEMS: Final = 10_000
"""Of a list: more runs than that no DAG may have."""

LARGEST: Final = 16 << 20
"""Bytes of a description: that beside a DAG lists every swept value, and digests of all files."""

MOST_VALUES: Final = 100_000
"""Of one swept variable: as many as a DAG may have nodes."""

LONGEST_TEXT: Final = 4096
"""Characters of one value: no path is longer."""

STEERED: Final = frozenset({EnsembleShape.CHAIN, EnsembleShape.SWEEP, EnsembleShape.STAGES})
"""Shapes whose runs can be stopped and paused one by one: these have a gate unless it is said
that they have none."""

GROUP: Final = "run"
"""What the runs of a sweep are called when nothing is said."""

SAID_BY_A_SWEEP_FILE: Final = (*("shape", "runs", "epochs", "sweep", "stage", "bag", "multi-node"),)
"""Keys that mean nothing beside ``source``."""

_EPOCHS: Final = re.compile(r"\s*([0-9]{1,9})\s*(?:to|-)\s*([0-9]{1,9})\s*")

_Kind = TypeVar("_Kind", Policy, EnsembleShape, SweepMode, MetricGoal)


class NumberLiteral(float):
    """A number that remembers how it was written: a swept 0.10 stays 0.10."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text.replace("_", "")  # Only TOML takes 1_000 for a number.


class DescriptionError(PlanError):
    """The description cannot be used. ``sentences``: all that is wrong, each with its place."""

    def __init__(self, complaints: list[SettingProblem]) -> None:
        self.sentences = tuple(placed(each) for each in complaints)
        more = len(complaints) - 1
        super().__init__(self.sentences[0] + (f" (and {more} more)" if more else ""))


def placed(each: SettingProblem) -> str:
    """A complaint with its file and line before it."""
    where = f"{each.path}:{each.line}" if each.line is not None else str(each.path)
    return f"{where}: {each.message}"


def description_of(path: Path, directory: Path | None = None) -> Request:
    """The request that the TOML file at ``path`` describes, for ``directory`` (default: one
    called like the DAG, in the current directory). A template or a sweep file that it names by
    a relative path lies beside the description. Raises Unreadable with all that is wrong."""
    file = TomlFile(path, fraction=NumberLiteral, largest=LARGEST)
    if not file.exists:
        file.complain((), "there is no such file; metlmon new --example chain prints one")
    found = {} if file.complaints else _fields(file)
    if file.complaints:
        raise DescriptionError(sorted(file.complaints, key=lambda each: each.line or 0))
    name = found.setdefault("name", path.stem)
    return Request(directory=directory or Path(name.replace("/", "_")), **found)


def place_of(path: Path, field: str, exact: bool = False) -> str | None:
    """Where a description says what a complaint's ``field`` is about: ``ensemble.toml:4: runs``;
    None when it says nothing of it, with ``exact`` not even by a table that it would stand in."""
    file = TomlFile(path, fraction=NumberLiteral, largest=LARGEST)
    head, *rest = field.split(".")
    key = {**LINES, "shards": "bag.shards", "machines": "multi-node.machines"}.get(head, head)
    where: Where = (*key.split("."), *rest)
    if key == "stage" and rest:
        stages = file.table.get("stage", [])
        known = [each.get("name") for each in stages if isinstance(each, dict)]
        where = ("stage", known.index(rest[0]), *rest[1:]) if rest[0] in known else ("stage",)
    if exact and not _says(file.table, where):
        return None
    line = file.line(where)
    return None if line is None else f"{path}:{line}: {spelled(where)}"


def _says(table: Any, where: Where) -> bool:
    for part in where:
        if isinstance(part, str) != isinstance(table, dict):
            return False
        if isinstance(part, str) and part not in table:
            return False
        table = table[part]
    return True


def _fields(file: TomlFile) -> dict[str, Any]:
    """The fields of the request that the description says, and those that follow from them."""
    file.knows((), file.table, READERS)
    readers = {key: read for key, (_, read) in READERS.items()}
    found = {READERS[key][0]: value for key, value in _all(file, (), file.table, readers).items()}
    found |= found.pop("_bag", {})
    if "source" in file.table:
        _refuse_beside_a_sweep_file(file)
    found["shape"] = shape = _shaped(file, found)
    if "template" not in found:
        found["template"] = template_for(shape)
    if found.get("seeds") and "runs" not in found and "source" not in found:
        found["runs"] = len(found["seeds"])
    if _gated(file, found, shape):
        found.setdefault("gate", StopRules())
    return found


def template_for(shape: EnsembleShape) -> str:
    """The first template that comes along for the main nodes of a shape; "" if there is none."""
    role = NodeRole.SHARD if shape is EnsembleShape.BAG else NodeRole.TRAIN
    known = [each for each in templates() if each.role is role]
    if shape is EnsembleShape.MULTI_NODE:
        # Any other trains each epoch on one machine, whatever was asked for.
        known = [each for each in known if "{machines}" in each.text] or known
    return next((each.name for each in known), "")


def _shaped(file: TomlFile, found: Mapping[str, Any]) -> EnsembleShape:
    """The shape that is said, or that a table tells. A table of another shape would have no
    effect, which is a mistake."""
    tables = {
        "sweep": EnsembleShape.SWEEP,
        "stage": EnsembleShape.STAGES,
        "bag": EnsembleShape.BAG,
        "multi-node": EnsembleShape.MULTI_NODE,
    }
    told = [(key, shape) for key, shape in tables.items() if key in file.table]
    shape: EnsembleShape = found.get("shape") or (told[0][1] if told else EnsembleShape.CHAIN)
    for key, needed in told:
        if needed is not shape:
            head = f"[[{key}]]" if key == "stage" else f"[{key}]"
            said = f'{head} belongs to shape = "{needed}", and this is "{shape}"'
            file.complain((key,), f"{said}; take one of them out")
    return shape


def _refuse_beside_a_sweep_file(file: TomlFile) -> None:
    """What a sweep file says itself would have no effect beside it, or half of one."""
    evaluation = file.table.get("evaluation")
    said: list[Where] = [(key,) for key in SAID_BY_A_SWEEP_FILE if key in file.table]
    if isinstance(evaluation, dict) and "every" in evaluation:
        said.append(("evaluation", "every"))
    for where in said:
        file.complain(where, f"{spelled(where)}: the sweep file (source) says that; take it out")


def _gated(file: TomlFile, found: dict[str, Any], shape: EnsembleShape) -> bool:
    said = file.table.get("gate")
    found.pop("_gate", None)
    if said is False and "stop" in file.table:
        file.complain(("gate",), "gate = false leaves nobody to follow [stop]; take one out")
    return said is True or (said is None and shape in STEERED)


# --- single values ------------------------------------------------------------------------


def _whole(file: TomlFile, where: Where, value: object) -> int:
    if type(value) is int:
        return value
    raise _wrong(where, "a whole number, such as 4")


class _FieldError(Exception):
    """What is wrong with the key that is being read."""


def _wrong(where: Where, wanted: str) -> _FieldError:
    return _FieldError(f"{spelled(where)} must be {wanted}")


def _number(file: TomlFile, where: Where, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise _wrong(where, "a number, such as 0.01")


def _yes(file: TomlFile, where: Where, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(where, "true or false")


def _text(file: TomlFile, where: Where, value: object) -> str:
    if isinstance(value, str) and len(value) <= LONGEST_TEXT:
        return value
    long = f" of at most {LONGEST_TEXT} characters" if isinstance(value, str) else ""
    raise _wrong(where, f"a text in quotes{long}")


def _scalar(file: TomlFile, where: Where, value: object) -> str:
    """A value of a variable or of a template's parameter: text, or a number as it is written."""
    text = written(value)
    if text is not None and len(text) <= LONGEST_TEXT:
        return text
    raise _wrong(where, 'a text in quotes or a number: "0.01" or 0.01')


def written(value: object) -> str | None:
    """A text, a number or a truth value of TOML as text, a number's digits as they stand there."""
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


def _size(file: TomlFile, where: Where, value: object) -> int:
    text = written(value)
    size = None if text is None or isinstance(value, bool) else megabytes(text)
    if size is None:
        raise _wrong(where, 'a size: 4096 (MB), or "4 GB"')
    return size


def _one_of(
    kinds: type[_Kind],
) -> Callable[[TomlFile, Where, object], _Kind]:
    words = [str(each) for each in kinds]

    def read(file: TomlFile, where: Where, value: object) -> _Kind:
        if value in words:
            return kinds(value)
        from difflib import get_close_matches  # Most are right.

        near = get_close_matches(value[:80], words, n=1) if isinstance(value, str) else []
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise _wrong(where, f"one of {', '.join(words)}{meant}")

    return read


def _path(file: TomlFile, where: Where, value: object) -> Path:
    return _beside(file, _text(file, where, value))


def _beside(file: TomlFile, text: str) -> Path:
    """A path of the description: relative ones start where it lies."""
    try:
        return file.path.parent / Path(text).expanduser()
    except RuntimeError:
        return file.path.parent / text


def _template(file: TomlFile, where: Where, value: object) -> str:
    text = _text(file, where, value)
    if not text.strip() or text in bundled_names():
        return text
    path = _beside(file, text)
    if "/" in text or "." in text or path.exists():
        return str(path)
    return text


def _seeds(file: TomlFile, where: Where, value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        try:
            return seeds_in(value)
        except ValueError as error:
            raise _FieldError(f"{spelled(where)}: {error}") from None
    if isinstance(value, list) and all(type(each) is int for each in value):
        return tuple(value)
    raise _wrong(where, 'a list of whole numbers, [7, 11, 13], or "1-4"')


def _texts(file: TomlFile, where: Where, value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        if len(value) <= MOST_ITEMS and all(len(each) <= LONGEST_TEXT for each in value):
            return tuple(value)
        raise _wrong(where, f"a list of at most {MOST_ITEMS} short texts")
    raise _wrong(where, 'a list of texts, ["…", "…"]')


def _sites(file: TomlFile, where: Where, value: object) -> tuple[str, ...]:
    return sites_in(value) if isinstance(value, str) else _texts(file, where, value)


# --- tables -------------------------------------------------------------------------------

Reader = Callable[[TomlFile, Where, object], Any]


def _table(file: TomlFile, where: Where, value: object) -> dict[str, Any]:
    """The table at ``where``; empty, with a complaint, where there is something else."""
    if isinstance(value, dict):
        if len(value) <= MOST_ITEMS:
            return value
        file.complain(where, f"[{spelled(where)}] has more than {MOST_ITEMS} keys")
    else:
        file.complain(where, f"{spelled(where)} is a table: [{spelled(where)}], then its keys")
    return {}


def _told(
    file: TomlFile, where: Where, value: object, readers: Mapping[str, Reader]
) -> dict[str, Any]:
    """What a table says by these keys alone."""
    table = _table(file, where, value)
    file.knows(where, table, readers)
    return _all(file, where, table, readers)


def _all(
    file: TomlFile, where: Where, table: Mapping[str, Any], readers: Mapping[str, Reader]
) -> dict[str, Any]:
    """Those keys of ``readers`` that the table has and that are as they should be."""
    found = {}
    for key, read in readers.items():
        if key in table:
            try:
                value = read(file, (*where, key), table[key])
            except _FieldError as wrong:
                file.complain((*where, key), str(wrong))
                continue
            if value is not None:
                found[key] = value
    return found


def _names(file: TomlFile, where: Where, value: object) -> dict[str, str]:
    table = _table(file, where, value)
    return _all(file, where, table, dict.fromkeys(table, _scalar))


def _place(file: TomlFile, where: Where) -> str:
    """File and line, as a node's variables tell where they are from."""
    line = file.line(where)
    return file.path.name if line is None else f"{file.path.name}:{line}"


def _sweep(file: TomlFile, where: Where, value: object) -> SweepRequest:
    table = _table(file, where, value)
    said = _all(file, where, table, {"group": _text, "how": _one_of(SweepMode)})
    names = [name for name in table if name not in ("group", "how")]
    if not names:
        file.complain(where, '[sweep] has no variable; write one such as a = "0.01 to 0.1 by 0.01"')
    found = _all(file, where, table, dict.fromkeys(names, _swept))
    variables = tuple(found.values())
    return SweepRequest(said.get("group", GROUP), variables, said.get("how"), _place(file, where))


def _swept(file: TomlFile, where: Where, value: object) -> SweptVariable:
    name = str(where[-1])
    if isinstance(value, list):
        texts = [written(each) for each in value]
        if not texts or len(texts) > MOST_VALUES or None in texts:
            raise _wrong(where, f"a list of 1 to {MOST_VALUES} texts and numbers")
        found = tuple(each for each in texts if each is not None)
        return SweptVariable(name, found, _place(file, where))
    text = written(value)
    if text is None or len(text) > LONGEST_TEXT:
        raise _wrong(where, '"0.01 to 0.1 by 0.01", or a list of values')
    from metlmon.authoring.sweeps import values  # Few ensembles are sweeps.

    try:
        return SweptVariable(name, values(text, _place(file, where)), _place(file, where))
    except PlanError as error:
        said = str(error).removeprefix(f"{_place(file, where)}: ")
        raise _FieldError(f"{spelled(where)}: {said}") from None


def _stop(file: TomlFile, where: Where, value: object) -> StopRules:
    return StopRules(
        **_told(
            file,
            where,
            value,
            {
                "metric": _text,
                "goal": _one_of(MetricGoal),
                "patience": _whole,
                "min_delta": _number,
                "divergence": _number,
                "median_after": _whole,
                "poll": _whole,
            },
        )
    )


def _evaluation(file: TomlFile, where: Where, value: object) -> Evaluation:
    readers = {"template": _template, "every": _whole, "gates": _yes, "values": _names}
    return Evaluation(**_told(file, where, value, readers))


STAGE: Final = 'each [[stage]] needs name = "pretrain" and epochs = 10'


def _stages(file: TomlFile, where: Where, value: object) -> tuple[StageRequest, ...]:
    if not isinstance(value, list) or len(value) > MOST_ITEMS:
        file.complain(where, STAGE)
        return ()
    readers = {"name": _text, "epochs": _whole, "template": _template, "values": _names}
    stages = []
    for number, each in enumerate(value):
        here = (*where, number)
        if not isinstance(each, dict) or not {"name", "epochs"} <= each.keys():
            file.complain(here, STAGE)
            continue
        told = _told(file, here, each, readers)
        if {"name", "epochs"} <= told.keys():
            stages.append(StageRequest(**told))
    return tuple(stages)


def _bag(file: TomlFile, where: Where, value: object) -> dict[str, Any]:
    return _told(file, where, value, {"shards": _whole, "gather": _template})


def _machines(file: TomlFile, where: Where, value: object) -> int | None:
    return _told(file, where, value, {"machines": _whole}).get("machines")


def _regions(file: TomlFile, where: Where, value: object) -> tuple[Region, ...]:
    readers = {"epochs": _epochs, "runs": _texts, "variables": _names}
    regions = []
    for name, each in _table(file, where, value).items():
        here = (*where, name)
        told = _told(file, here, each, readers)
        if isinstance(each, dict) and not each.get("variables"):
            said = f"[{spelled(here)}] gives no variables"
            file.complain(here, f'{said}; write variables = {{ ResourceName = "…" }}')
        regions.append(Region(name, told.pop("variables", {}), where=_place(file, here), **told))
    return tuple(regions)


def _epochs(file: TomlFile, where: Where, value: object) -> tuple[int, int]:
    if type(value) is int:
        return value, value
    match = _EPOCHS.fullmatch(value[:80]) if isinstance(value, str) else None
    if match is None or int(match[1]) > int(match[2]):
        raise _wrong(where, 'an epoch as in node names, from 0: 20, or "20 to 29"')
    return int(match[1]), int(match[2])


READERS: Final[Mapping[str, tuple[str, Reader]]] = {
    "name": ("name", _text),
    "shape": ("shape", _one_of(EnsembleShape)),
    "template": ("template", _template),
    "runs": ("runs", _whole),
    "epochs": ("epochs", _whole),
    "seeds": ("seeds", _seeds),
    "sites": ("sites", _sites),
    "policy": ("policy", _one_of(Policy)),
    "gpus": ("gpus", _whole),
    "gpu_memory": ("gpu_memory_mb", _size),
    "gpu_models": ("gpu_models", _sites),
    "memory": ("memory_mb", _size),
    "retries": ("retries", _whole),
    "gate": ("_gate", _yes),
    "source": ("source", _path),
    "subdags": ("subdags", _yes),
    "values": ("values", _names),
    "variables": ("variables", _names),
    "sweep": ("sweep", _sweep),
    "evaluation": ("evaluation", _evaluation),
    "stop": ("gate", _stop),
    "stage": ("stages", _stages),
    "bag": ("_bag", _bag),
    "multi-node": ("machines", _machines),
    "region": ("regions", _regions),
}
"""Every key that there is, with the field of the request that it fills."""

LINES: Final[Mapping[str, str]] = {field: key for key, (field, _) in READERS.items()}
"""What a field of a request is called in the file."""
