"""JSON objects made of records, whose types give their JSON Schema.

Fields are added over time, never renamed or repurposed within one schema number. A value that is
not known is null, never 0 or "".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property, reduce
from operator import attrgetter, or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET, UnsetType, defstruct

from metlmon.remote.paths import as_typed
from metlmon.text.formatting import epoch_number
from metlmon.text.record_json import MAX_WHOLE as MAX_WHOLE
from metlmon.text.record_json import SCHEMA as SCHEMA
from metlmon.text.record_json import Stamp as Stamp
from metlmon.text.record_json import Time as Time
from metlmon.text.record_json import is_record, json_of, json_type
from metlmon.text.record_json import nonfinite as nonfinite
from metlmon.text.record_json import unstamped as unstamped

Kind = Any
"""A type; a JsonObject; a list of one of these; a tuple of one of these and None, for null."""


class JsonObject:
    """How records of one type are written as a JSON object, where not whole.

    Records of other types are written whole: all their fields, under their names. Numbers have
    twelve digits, but those of metrics, which are computed.

    ``name`` in the schema: by default that of the record's type, without ``Row``. ``fields``:
    names, separated by blanks, as ``name=source`` where the record has another one (``a.b``:
    attribute b of attribute a); ``*`` first: all fields that are not named elsewhere, too.
    ``kinds``: kinds of fields that do not follow from the record. ``computed``: kinds of fields,
    and functions of the record. ``given``: kinds of fields whose values callers pass; ``optional``
    ones may be missing. ``main``: whether records of this type within others are written so.
    """

    def __init__(
        self,
        record: type | None,
        description: str,
        fields: str = "",
        *,
        name: str = "",
        kinds: Mapping[str, Kind] | None = None,
        computed: Mapping[str, tuple[Kind, Callable[[Any], Any]]] | None = None,
        given: Mapping[str, Kind] | None = None,
        optional: Mapping[str, Kind] | None = None,
        base: JsonObject | None = None,
        main: bool = True,
    ) -> None:
        self.name = name or (record.__name__.removesuffix("Row") if record is not None else "")
        self.description = description
        self.kinds: dict[str, Kind] = {**(base.kinds if base else {})}
        self._fields: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Stamp], Any]]]
        self._fields = {**(base._fields if base else {})}
        if fields.startswith("*"):
            own: Sequence[str] = getattr(record, "__struct_fields__", ())
            named = {*(computed or {}), *fields.split()}
            fields = " ".join((*(each for each in own if each not in named), *fields[1:].split()))
        for word in fields.split():
            field, _, source = word.partition("=")
            kind = (kinds or {}).get(field)
            self.kinds[field] = kind if kind is not None else _Attribute(record, source or field)
            write = _number if kind is None else _writer(kind)
            self._fields[field] = attrgetter(source or field), _epoch if field in _EPOCHS else write
        for field, (kind, function) in (computed or {}).items():
            write = _epoch if field in _EPOCHS else _writer(kind)
            self.kinds[field], self._fields[field] = kind, (function, write)
        self._optional: dict[str, Kind] = {**(base._optional if base else {}), **(optional or {})}
        for field, kind in {**(given or {}), **(optional or {})}.items():
            self.kinds[field], self._fields[field] = kind, (_not_given, _writer(kind))
        if main and record is not None:
            if record in _OBJECTS:
                raise TypeError(
                    f"{self.name}: records of {record} are {_OBJECTS[record].name} already"
                )
            _OBJECTS[record] = self

    def write(self, record: Any, stamp: Stamp = unstamped, **given: Any) -> dict[str, Any]:
        """The object of a record; ``given``: values of fields, in place of the record's."""
        result: dict[str, Any] = {}
        for field, (read, convert) in self._fields.items():
            value = given[field] if field in given else read(record)
            if value is not UNSET:
                result[field] = convert(value, stamp)
        return result

    @cached_property
    def type(self) -> type:
        """The type of the JSON object, for its schema and for validation."""
        required = [
            (field, _type(kind))
            for field, kind in self.kinds.items()
            if field not in self._optional
        ]
        optional = [
            (field, _type(kind) | UnsetType, UNSET) for field, kind in self._optional.items()
        ]
        namespace = {"__doc__": self.description}
        return defstruct(self.name, [*required, *optional], namespace=namespace)


_OBJECTS: Final[dict[type, JsonObject]] = {}


def _not_given(record: Any) -> Any:
    return UNSET


# --- values -----------------------------------------------------------------------------------


def _writer(kind: Kind) -> Callable[[Any, Stamp], Any]:
    if isinstance(kind, JsonObject):
        return lambda value, stamp: (
            value if value is None or isinstance(value, dict) else kind.write(value, stamp)
        )
    if isinstance(kind, tuple):
        return _writer(kind[0])
    if isinstance(kind, list):
        item = _writer(kind[0])
        return lambda value, stamp: [item(each, stamp) for each in value]
    return _value


def _value(value: Any, stamp: Stamp) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is datetime:
        return stamp(value).isoformat()
    if kind in _OBJECTS:
        return _OBJECTS[kind].write(value, stamp)
    if is_record(kind):
        return json_of(value, stamp)
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _value(each, stamp) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_value(each, stamp) for each in value]
    raise TypeError(f"{kind} is no JSON")


def _epoch(value: int | None, stamp: Stamp) -> int | None:
    """The number of an epoch, from 1."""
    return None if value is None else epoch_number(value)


_EPOCHS: Final = frozenset({"epoch", "parent_epoch"})
"""Fields that are the number of an epoch: from 1, as on the screens, whatever the DAG's names."""

_PLAIN: Final = frozenset({str, int, float, bool, NoneType})


def _number(value: Any, stamp: Stamp) -> Any:
    """A field's value; numbers have twelve digits, without the noise of their sums."""
    if type(value) is not float:
        return _value(value, stamp)
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < MAX_WHOLE else float(f"{value:.12g}")


def utc_time(seconds_since_1970: float | None) -> str | None:
    """A time of the queue in UTC; None if it is out of range."""
    if seconds_since_1970 is None:
        return None
    try:
        return datetime.fromtimestamp(int(seconds_since_1970), UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return None


def finite(value: float | None) -> float | None:
    """The number; None for NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def job_ids(record: Any) -> list[str]:
    """The jobs of a record as ``cluster.proc``."""
    return [f"{cluster}.{proc}" for cluster, proc in record.jobs]


# --- types ------------------------------------------------------------------------------------


class _Attribute:
    """The kind of a record's attribute."""

    def __init__(self, record: type | None, path: str) -> None:
        self._record, self._path = record, path

    def type(self) -> Any:
        kind: Any = self._record
        for name in self._path.split("."):
            record = next(each for each in (*get_args(kind), kind) if each is not NoneType)
            kind = _hint(record, name)
        return _type(kind)


def _hint(record: type, name: str) -> Any:
    """The type of a record's field or property."""
    attribute = next((vars(base)[name] for base in record.__mro__ if name in vars(base)), None)
    if isinstance(attribute, property | cached_property):
        function = attribute.fget if isinstance(attribute, property) else attribute.func
        return get_type_hints(function)["return"]
    return get_type_hints(record)[name]


def _type(kind: Kind) -> Any:
    """The type in JSON of a kind, or of a value of a record."""
    if isinstance(kind, _Attribute):
        return kind.type()
    if isinstance(kind, JsonObject):
        return kind.type
    if isinstance(kind, tuple):
        return _type(kind[0]) | None
    if isinstance(kind, list):
        return list[_type(kind[0])]  # type: ignore[misc]
    if isinstance(kind, type) and kind in _OBJECTS:
        return _OBJECTS[kind].type
    if is_record(kind):
        return json_type(kind)
    origin: Any = get_origin(kind)
    arguments = get_args(kind)
    if origin is Union or origin is UnionType:
        return reduce(or_, (_type(each) for each in arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[str, _type(arguments[1])]  # type: ignore[misc]
    if isinstance(origin, type) and issubclass(origin, Sequence):
        items = [_type(each) for each in arguments if each is not Ellipsis]
        return list[reduce(or_, items)]  # type: ignore[misc]
    if kind is datetime:
        return Time
    return str if isinstance(kind, type) and issubclass(kind, Path) else kind


# --- outputs about an ensemble ------------------------------------------------------------------


HEAD: Final[Mapping[str, Kind]] = {
    "schema": int,
    "dagdir": str,
    "as_of": Time | None,
    "live": bool,
}


def ensemble_output(output: JsonObject, builder: Any, record: Any, **given: Any) -> dict[str, Any]:
    """An output about the ensemble of a SnapshotBuilder, with its head."""
    stamp = builder.clock.with_offset
    head = {
        "schema": SCHEMA,
        "dagdir": as_typed(builder.dagdir),
        "as_of": builder.as_of,
        "live": builder.live,
        "warnings": tuple(builder.notices()),
    }
    return output.write(record, stamp, **head, **given)
