"""Records and ensembles for tests, with empty values by default."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import fields

from metlmon.config.loader import load_settings
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import NOT_READ, StatsInput
from metlmon.live.job_files import TrainingFiles
from metlmon.model.states import Outcome, State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import Execution, Hold, Job
from tests.support.recordings import read_all

T = TypeVar("T", bound=msgspec.Struct)


def blank(record: type[T], **values: Any) -> T:
    """A record with these values; its other required fields are None, 0, False, "" or empty."""
    required = _required_fields(record).items()
    empty = {name: _empty(annotation) for name, annotation in required if name not in values}
    return record(**empty, **values)


@cache
def _required_fields(record: type[msgspec.Struct]) -> dict[str, Any]:
    """Types by name. Resolving annotations takes far longer than making a record."""
    return {field.name: field.type for field in fields(record) if field.required}


def _empty(annotation: Any) -> Any:
    origin = get_origin(annotation) or annotation
    if origin is Annotated:
        return _empty(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return None if type(None) in get_args(annotation) else _empty(get_args(annotation)[0])
    if origin in (Mapping, dict):
        return {}
    if origin in (Sequence, tuple):
        return ()
    return blank(origin) if issubclass(origin, msgspec.Struct) else origin()


def execution_at(
    site: str | None, gpu: str | None = None, gpus: int | None = None, seconds: float = 0.0
) -> Execution:
    """An execution of an epoch, known only by its place."""
    start = datetime(2026, 1, 1)
    return Execution(
        job=(0, 0), start=start, end=start, seconds=seconds, outcome=Outcome.GOOD, site=site,
        gpu=gpu, gpus=gpus,
    )  # fmt: skip


def job_at(
    site: str | None,
    gpu: str | None = None,
    gpus: int | None = None,
    hold: str | None = None,
    code: int | None = None,
    submitted: datetime | None = None,
) -> Job:
    """The job of an epoch, its last place, and the reason of its hold."""
    now = datetime(2026, 1, 1)
    holds = () if hold is None else (Hold(now, None, 0, code, None, hold, None, None, hold),)
    return Job(
        job=(0, 0), state=State.HELD if hold else State.RUNNING, submitted=submitted, holds=holds,
        executions=(execution_at(site, gpu, gpus),),
    )  # fmt: skip


def read_dagdir(path: Path, **options: Any) -> SnapshotBuilder:
    """Read a dagdir with its settings; ``options``: those of DagdirReader."""
    settings = options.pop("settings", None) or load_settings(path)
    return read_all(DagdirReader(path, settings, **options)).snapshot_builder()


def stats_input(builder: SnapshotBuilder, files_in: Path | None = None) -> StatsInput:
    """The input of the statistics; with the job files below ``files_in``, if given."""
    ledger, settings = builder.ledger(), builder.ensemble.settings
    job_files = NOT_READ
    if files_in is not None:
        job_files = TrainingFiles(files_in, settings).read(builder)
    return StatsInput(
        builder.status(),
        ledger,
        settings,
        job_files=job_files,
        load_description=builder.dag_description,
    )
