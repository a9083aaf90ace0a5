"""What JSON outputs about an ensemble have in common: they are records, written whole."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from metlmon.cli.output import print_json, print_warnings
from metlmon.model.model_state import Notice
from metlmon.remote.paths import as_typed
from metlmon.text.record_json import SCHEMA, json_of


class Output(Struct, frozen=True, kw_only=True):
    """What every output begins with."""

    schema: int = SCHEMA


class EnsembleOutput(Output, frozen=True, kw_only=True):
    """What every output about an ensemble begins with."""

    dagdir: str
    as_of: datetime | None
    live: bool
    warnings: tuple[Notice, ...]


def print_record(
    output: type[EnsembleOutput], builder: Any, *, one_line: bool = False, **fields: Any
) -> None:
    """Print an output about the ensemble of a SnapshotBuilder, and its warnings."""
    notices = tuple(builder.notices())
    record = output(
        dagdir=as_typed(builder.dagdir),
        as_of=builder.as_of,
        live=builder.live,
        warnings=notices,
        **fields,
    )
    print_json(json_of(record, builder.clock.with_offset), one_line=one_line)
    print_warnings(notices)
