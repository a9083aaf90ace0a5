"""Converts records to JSON, and to the types that their JSON Schema is made from; reads objects.

A record (a Struct or a NamedTuple) is written whole: its fields, except those that ``json_omits``
names, and the properties that its class variable ``json_properties`` names, all under their own
names. A mapping by tuples is written as the list of its values. Fields are added over time, never
renamed or repurposed within one schema number. An unknown value is null, never 0 or "".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import Enum
from functools import cache, cached_property, reduce
from inspect import cleandoc
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import UNSET, Meta, UnsetType, defstruct

SCHEMA: Final = 1

Stamp = Callable[[datetime], datetime]
"""Adds the zone to a time of the logs, if known."""

_T = TypeVar("_T")

Flat = Annotated[_T, "flat"]
"""A record whose fields are inserted into the containing object; later fields replace them."""

Nullable = Annotated[_T, "nullable"]
"""A text that is empty if unknown, or a logged number that may be NaN: both are null then."""

Time = Annotated[str, Meta(description="ISO 8601, in local time of the logs")]

EPOCHS: Final = frozenset(
    """
    epoch parent_epoch running_epoch since_epoch ends_before done_epoch first_epoch last_epoch
    """.split()
)
"""Fields with the number of an epoch, written from 1 like on the screens, whatever the DAG says."""

MAX_WHOLE: Final = 1e15
"""Limit below which a whole number is written without a fraction."""

_PLAIN: Final = frozenset({str, int, bool, NoneType})


def unstamped(time: datetime) -> datetime:
    """The stamp for an unknown zone."""
    return time


def json_of(value: Any, stamp: Stamp = unstamped) -> Any:
    """Convert a record, or any other value, to JSON; numbers get twelve significant digits."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return _number(value)
    if kind is datetime:
        return stamp(value).isoformat()
    if is_record(kind):
        return _object(value, stamp)
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): json_of(each, stamp) for key, each in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(json_of(each, stamp) for each in value)
    if isinstance(value, Iterable):
        return [json_of(each, stamp) for each in value]
    raise TypeError(f"{kind} is not JSON")


def _object(record: Any, stamp: Stamp) -> dict[str, Any]:
    result: dict[str, Any] = {}
    kind: type = type(record)
    for name, _, mark in _fields(kind):
        value = getattr(record, name)
        if value is UNSET:
            continue
        if mark == "flat":
            result.update(_object(value, stamp))
        elif mark == "job":
            result[name] = _jobs(value)
        elif mark == "epoch":
            result[name] = None if value is None else value + 1
        elif mark == "values":
            result[name] = json_of(value.values(), stamp)
        elif mark == "nullable":
            result[name] = None if value == "" or nonfinite(value) else value
        else:
            result[name] = json_of(value, stamp)
    return result


def _number(value: float) -> float | None:
    """A number without rounding noise; None for NaN and infinity, which JSON lacks."""
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < MAX_WHOLE else float(f"{value:.12g}")


def _jobs(value: Any) -> Any:
    """One job, or a sequence of jobs."""
    if value is None:
        return None
    if value and isinstance(value[0], int):
        return f"{value[0]}.{value[1]}"
    return [f"{cluster}.{proc}" for cluster, proc in value]


def nonfinite(value: Any) -> str | None:
    """``nan``, ``inf`` or ``-inf``; None for other values."""
    if not isinstance(value, float) or math.isfinite(value):
        return None
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


# --- the fields of records ---------------------------------------------------------------------


class _Field(NamedTuple):
    """A field of a record: its name, its type, and its mark."""

    name: str
    hint: Any
    mark: str


def is_record(kind: Any) -> bool:
    """Whether values of this type are written as objects."""
    return hasattr(kind, "__struct_fields__") or hasattr(kind, "_field_defaults")


@cache
def _fields(record: type) -> tuple[_Field, ...]:
    omitted = getattr(record, "json_omits", ())
    properties: tuple[str, ...] = getattr(record, "json_properties", ())
    hints = get_type_hints(record, include_extras=True)
    names: Iterable[str] = getattr(record, "__struct_fields__", None) or record._fields  # type: ignore[attr-defined]
    kept = [(name, hints[name]) for name in names if name not in omitted]
    kept += [(name, _property_type(record, name)) for name in properties]
    return tuple(_Field(name, hint, _mark(name, hint)) for name, hint in kept)


def _property_type(record: type, name: str) -> Any:
    """The type of a property."""
    found = next(vars(base)[name] for base in record.__mro__ if name in vars(base))
    function = found.func if isinstance(found, cached_property) else found.fget
    return get_type_hints(function, include_extras=True)["return"]


def _mark(name: str, hint: Any) -> str:
    if name in EPOCHS:
        return "epoch"
    marks = getattr(hint, "__metadata__", ())
    if marks:
        return str(marks[0])
    if _is_by_tuples(hint):
        return "values"
    return next((mark for each in get_args(hint) if (mark := _mark("", each)) == "job"), "")


def _is_by_tuples(hint: Any) -> bool:
    origin: Any = get_origin(hint)
    mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    return mapping and get_origin(get_args(hint)[0]) is tuple


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object in a text; None for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


# --- types --------------------------------------------------------------------------------------


@cache
def json_type(record: type) -> type:
    """The type of a record's JSON object, for its schema and for validation."""
    found = _field_types(record)
    required = [(name, kind) for name, (kind, optional) in found.items() if not optional]
    optional = [(name, kind, UNSET) for name, (kind, optional) in found.items() if optional]
    namespace = {"__doc__": cleandoc(record.__doc__ or "")}
    fields: Any = [*required, *optional]
    return defstruct(record.__name__, fields, namespace=namespace, module=record.__module__)


def _field_types(record: type) -> dict[str, tuple[Any, bool]]:
    """The types of the fields by name, and whether they may be missing."""
    result: dict[str, tuple[Any, bool]] = {}
    for name, hint, mark in _fields(record):
        if mark == "flat":
            result |= _field_types(get_args(hint)[0])
        else:
            result[name] = _type(hint), UnsetType in get_args(hint)
    return result


def _type(hint: Any) -> Any:
    """The type in JSON of a value of a record."""
    if is_record(hint):
        return json_type(hint)
    origin: Any = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        kinds = {"nullable": arguments[0] | None, "job": str}
        return kinds.get(arguments[1], hint)
    if origin is Union or origin is UnionType:
        return reduce(or_, (_type(each) for each in arguments))
    if _is_by_tuples(hint):
        return list[_type(arguments[1])]  # type: ignore[misc]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[str, _type(arguments[1])]  # type: ignore[misc]
    if isinstance(origin, type) and issubclass(origin, Iterable):
        items = [_type(each) for each in arguments if each is not Ellipsis]
        return list[reduce(or_, items)]  # type: ignore[misc]
    if hint is datetime:
        return Time
    return str if isinstance(hint, type) and issubclass(hint, Path) else hint
