"""The fields of a request that users set: one table for all ways of setting them.

A description, the options of a command, the form, and the parameters and the configuration of an
MLflow project are read by the readers of these fields; :func:`with_fields` makes the request. The
reader of a field takes a value of TOML or a text, and raises ValueError with a text that begins
with "must be": what stands before it is the key, the option or the label.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.graph import MOST_NODES
from metlmon.authoring.request import (
    LONGEST_VALUE,
    MOST_VALUES,
    Constraint,
    EnsembleShape,
    Evaluation,
    MetricGoal,
    Policy,
    Request,
    StopRules,
)

MOST_ITEMS: Final = 10_000
"""Maximum items of a list; more runs than a DAG may have."""

MOST_COMPARED: Final = 20_000
LONGEST_COMPARED: Final = 100
"""Names, and characters of a name, that are compared for a suggestion."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_SIZE: Final = re.compile(r"([0-9]{1,15}) ?(?:([kmgt])i?b?)?", re.IGNORECASE)
_KB: Final = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3}
_RANGE: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


class NumberLiteral(float):
    """A number that keeps its spelling, so that a swept 0.10 stays 0.10."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text.replace("_", "")  # TOML allows 1_000.


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


# --- readers: each raises ValueError ----------------------------------------------------------


def read_whole(value: object) -> int:
    """A whole number."""
    if type(value) is int:
        return value
    if not isinstance(value, str) or not _WHOLE.fullmatch(value.strip()):
        raise ValueError("must be a whole number, such as 4")
    return int(value)


def read_number(value: object) -> float:
    """Any number."""
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise ValueError("must be a number, such as 0.01")


def read_flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def read_text(value: object) -> str:
    """A text of at most LONGEST_VALUE characters."""
    if isinstance(value, str) and len(value) <= LONGEST_VALUE:
        return value
    length_limit = f" of at most {LONGEST_VALUE} characters" if isinstance(value, str) else ""
    raise ValueError(f"must be a text in quotes{length_limit}")


def read_size(value: object) -> int:
    """``4096``, ``4096 MB``, ``4 GB`` or ``4g`` in MB, rounded up.

    A MB has 1024 kB, as in HTCondor.
    """
    text = None if isinstance(value, bool) else scalar_text(value)
    match = _SIZE.fullmatch(text.strip()) if text is not None else None
    if match is None:
        raise ValueError('must be a size: 4096 (MB), or "4 GB"')
    return -(-int(match[1]) * _KB[(match[2] or "m").lower()] // 1024)


def read_seeds(value: object) -> tuple[int, ...]:
    """``7, 11, 13`` or ``1-4``, or a list of numbers."""
    if isinstance(value, list) and all(type(seed) is int for seed in value):
        return tuple(value)
    if not isinstance(value, str):
        raise ValueError('must be a list of whole numbers, [7, 11, 13], or "1-4"')
    seeds: list[int] = []
    for item in filter(None, re.split(r"[,\s]+", value.strip())):
        if match := _RANGE.fullmatch(item):
            first, last = int(match[1]), int(match[2])
            if not 0 <= last - first < MOST_VALUES:
                raise ValueError("must be ranges from the smaller seed to the larger, as 1-4")
            seeds.extend(range(first, last + 1))
        elif _WHOLE.fullmatch(item):
            seeds.append(int(item))
        else:
            raise ValueError("must be whole numbers, such as 7, 11, 13 or 1-4")
    return tuple(seeds)


def read_texts(value: object) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError('must be a list of texts, ["…", "…"]')
    if len(value) > MOST_ITEMS or any(len(item) > LONGEST_VALUE for item in value):
        raise ValueError(f"must be a list of at most {MOST_ITEMS} short texts")
    return tuple(value)


def read_names(value: object) -> tuple[str, ...]:
    """A list of names, or names separated by commas, then without duplicates."""
    if not isinstance(value, str):
        return read_texts(value)
    names = (name.strip() for name in value.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def one_of(kinds: type[StrEnum]) -> Callable[[object], Any]:
    """The reader of a word."""
    choices = [str(kind) for kind in kinds]

    def read(value: object) -> StrEnum:
        if isinstance(value, str) and value in choices:
            return kinds(value)
        similar = nearest(value, choices) if isinstance(value, str) else None
        suggestion = f"; did you mean {similar!r}?" if similar else ""
        raise ValueError(f"must be one of {', '.join(choices)}{suggestion}")

    return read


def nearest(name: str, known: Collection[str]) -> str | None:
    """The most similar of the known names, or None."""
    from difflib import get_close_matches  # Imported late: rarely needed.

    candidates = list(islice(known, MOST_COMPARED))
    return next(iter(get_close_matches(name[:LONGEST_COMPARED], candidates, n=1)), None)


# --- the table --------------------------------------------------------------------------------


class RequestField(Struct, frozen=True):
    """A field that users set.

    - ``name``: in :class:`Request`; behind a dot: in its evaluation or its gate.
    - ``read``: see above.
    - ``noun``, ``limits``: of a number, what it counts, and the least and the largest one.
    - ``key``: in a description; ``option``: of commands, without ``--``.
    """

    name: str
    read: Callable[[Any], Any]
    noun: str
    limits: tuple[float, float] | None
    key: str
    option: str

    def problem_of(self, value: float) -> str | None:
        """Why the number is outside of the limits, with the remedy; None if it is not."""
        if self.limits is None:
            return None
        low, high = self.limits
        expected = Constraint(low=low, high=high).expectation(str(value))
        return None if expected is None else f"{value} {self.noun}: give {expected}"


def _field(
    name: str,
    read: Callable[[Any], Any],
    noun: str = "",
    limits: tuple[float, float] | None = None,
    key: str = "",
    option: str = "",
) -> RequestField:
    key = key or name
    option = option or key.rpartition(".")[2].replace("_", "-")
    return RequestField(name, read, noun, limits, key=key, option=option)


_POSITIVE: Final = (1, math.inf)

FIELDS: Final[Mapping[str, RequestField]] = {
    field.name: field
    for field in (
        _field("name", read_text),
        _field("shape", one_of(EnsembleShape)),
        _field("template", read_text),
        _field("runs", read_whole, "runs", (1, 500)),
        _field("epochs", read_whole, "epochs of a run", (1, 10_000)),
        _field("seeds", read_seeds),
        _field("sites", read_names),
        _field("policy", one_of(Policy)),
        _field("gpus", read_whole, "GPUs of a job", (0, 64)),
        _field("gpu_memory_mb", read_size, "MB of a GPU", (1, 1 << 20), key="gpu_memory"),
        _field("gpu_models", read_names),
        _field("memory_mb", read_size, "MB of memory", (16, 16 << 20), key="memory"),
        _field("retries", read_whole, "retries", (0, 100)),
        _field("subdags", read_flag),
        _field("mlproject", read_flag),
        _field("shards", read_whole, "shards", (1, MOST_NODES), key="bag.shards"),
        _field("gather", read_text, key="bag.gather"),
        # More machines are seldom free at the same time.
        _field("machines", read_whole, "machines for an epoch", (2, 64), key="multi-node.machines"),
        _field("evaluation.template", read_text, option="evaluate"),
        _field("evaluation.every", read_whole, "epochs", _POSITIVE),
        _field("evaluation.gates", read_flag),
        _field("gate.metric", read_text, key="stop.metric"),
        _field("gate.goal", one_of(MetricGoal), key="stop.goal"),
        _field(
            "gate.patience",
            read_whole,
            "epochs",
            _POSITIVE,
            key="stop.patience",
            option="stop-patience",
        ),
        _field(
            "gate.min_delta",
            read_number,
            "as the least improvement",
            (0, math.inf),
            key="stop.min_delta",
        ),
        _field("gate.divergence", read_number, key="stop.divergence", option="diverge"),
        _field("gate.median_after", read_whole, "epochs", _POSITIVE, key="stop.median_after"),
        # DAGMan starts a process for each check of each paused run.
        _field("gate.poll", read_whole, "seconds between checks", (5, 86_400), key="stop.poll"),
    )
}
"""The fields by name; sweeps, stages, regions, values and variables have notations of their own."""

_TABLES: Final = {"evaluation": Evaluation, "gate": StopRules}

_KEYS: Final = {"stages": "stage", "regions": "region", "gate": "stop"}
_OPTIONS: Final = {
    **{"directory": "DIR", "source": "FILE", "evaluation": "--evaluate", "variables": "--var"},
    "values": "--set",
}


def key_of(name: str) -> str:
    """The key in a description for the field of a :class:`RequestProblem`."""
    if name in FIELDS:
        return FIELDS[name].key
    table, dot, rest = name.partition(".")
    return _KEYS.get(table, table) + dot + rest


def option_of(name: str) -> str:
    """The option for the field of a :class:`RequestProblem`."""
    if name in FIELDS:
        return f"--{FIELDS[name].option}"
    table, dot, rest = name.partition(".")
    if dot and table in ("values", "variables"):
        return f"{_OPTIONS[table]} {rest}"
    return _OPTIONS.get(name, f"--{name}")


def value_of(request: Request, name: str) -> Any:
    """The value of a field; None if the request lacks its table."""
    value: Any = request
    for part in name.split("."):
        value = None if value is None else getattr(value, part)
    return value


def with_fields(request: Request, values: Mapping[str, Any]) -> Request:
    """The request with these values by field name.

    One of a table that the request lacks makes that, with defaults. There are as many runs as
    seeds, unless ``values`` say how many.
    """
    fields = {name: value for name, value in values.items() if "." not in name}
    for table, kind in _TABLES.items():
        prefix = f"{table}."
        inner = {
            name.removeprefix(prefix): value
            for name, value in values.items()
            if name.startswith(prefix)
        }
        if inner:
            current = fields.get(table, getattr(request, table))
            fields[table] = replace(current or kind(), **inner)
    if fields.get("seeds") and fields.get("source", request.source) is None:
        fields.setdefault("runs", len(fields["seeds"]))
    return replace(request, **fields)
