"""What commands print as JSON: records, written whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from metlmon.cli.output import print_warnings
from metlmon.model.model_state import Notice
from metlmon.remote.paths import as_typed
from metlmon.text.record_json import SCHEMA, Stamp, json_of, unstamped

if TYPE_CHECKING:
    from metlmon.snapshot.builder import SnapshotBuilder

T = TypeVar("T", bound="EnsembleOutput")


class Output(Struct, frozen=True, kw_only=True):
    """What every output begins with."""

    schema: int = SCHEMA


class EnsembleOutput(Output, frozen=True, kw_only=True):
    """What every output about an ensemble begins with."""

    dagdir: str
    as_of: datetime | None
    live: bool
    warnings: tuple[Notice, ...]


def print_json(value: dict[str, Any], *, one_line: bool = False) -> None:
    """One JSON object on standard output; ASCII, so that nothing in it moves a cursor."""
    indent = 2 if sys.stdout.isatty() and not one_line else None
    sys.stdout.write(json.dumps(value, indent=indent, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def print_json_list(head: dict[str, Any], name: str, items: Iterable[dict[str, Any]]) -> None:
    """Print the object ``{**head, name: [*items]}``.

    Into a file each item is written as it is made: a hundred thousand are never there at once.
    """
    if sys.stdout.isatty():
        print_json({**head, name: list(items)})
        return
    write = sys.stdout.write
    write(f"{json.dumps(head)[:-1]}, {json.dumps(name)}: [")
    for number, item in enumerate(items):
        write((", " if number else "") + json.dumps(item))
    write("]}\n")
    sys.stdout.flush()


def print_output(output: Output, stamp: Stamp = unstamped) -> None:
    """Print an output that is about no ensemble, or about files alone."""
    print_json(json_of(output, stamp))


def print_record(
    output: type[EnsembleOutput], builder: SnapshotBuilder, *, one_line: bool = False, **fields: Any
) -> None:
    """Print an output about an ensemble, and its warnings."""
    record = _record(output, builder, **fields)
    print_json(json_of(record, builder.clock.with_offset), one_line=one_line)
    print_warnings(record.warnings)


def print_records(
    output: type[EnsembleOutput],
    builder: SnapshotBuilder,
    name: str,
    records: Iterable[Struct],
    **fields: Any,
) -> None:
    """As :func:`print_record`, with many ``records`` in the field ``name``, which comes last."""
    record, stamp = _record(output, builder, **{name: ()}, **fields), builder.clock.with_offset
    head = {field: value for field, value in json_of(record, stamp).items() if field != name}
    print_json_list(head, name, (json_of(each, stamp) for each in records))
    print_warnings(record.warnings)


def _record(output: type[T], builder: SnapshotBuilder, **fields: Any) -> T:
    return output(
        dagdir=as_typed(builder.dagdir),
        as_of=builder.as_of,
        live=builder.live,
        warnings=tuple(builder.notices()),
        **fields,
    )
