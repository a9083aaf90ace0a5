"""A recording of the pool, copied to be damaged, and all outputs of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from metlmon.health.build import make_health
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import StatsInput
from metlmon.stats.estimates import make_forecast
from metlmon.text.record_json import json_of

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def copied(name: str, to: Path) -> Path:
    """A writable copy of a recording."""
    return writable_copy(FIXTURES / name, to)


def writable_copy(source: Path, to: Path, *ignored: str) -> Path:
    """A copy of a directory, writable even if the original is not."""
    ignore = shutil.ignore_patterns(*ignored)
    shutil.copytree(source, to, ignore=ignore, copy_function=shutil.copyfile)
    for path in (to, *to.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    return to


def opened(dagdir: Path, **options: Any) -> DagdirReader:
    """A reader that has read everything."""
    return read_all(DagdirReader(dagdir, live=False, **options))


def read_all(reader: DagdirReader) -> DagdirReader:
    """The reader, once it has read everything."""
    reader.open()
    reader.read_all()
    return reader


def again(reader: DagdirReader) -> dict[str, Any]:
    """Its result after another check."""
    reader.check()
    reader.read_all()
    return report_of(reader)


def report_of(reader: DagdirReader) -> dict[str, Any]:
    """Every field of ``status --json`` and ``jobs --json``, except sentences that need an earlier
    reading."""
    builder = reader.snapshot_builder()
    status = builder.status()
    stamp = builder.clock.with_offset
    basis = StatsInput(status, builder.ledger(), reader.ensemble.settings)
    whole = json_of(status, stamp)
    figures = {"estimate": make_forecast(basis), "health": make_health(basis).entries}
    whole |= json_of({**figures, "jobs": builder.job_rows()}, stamp)
    whole["warnings"] = [w for w in whole["warnings"] if w["kind"] != "rewritten-log"]
    plain: dict[str, Any] = json.loads(json.dumps(whole, default=str))
    return plain


def sentences(reader: DagdirReader, kind: str) -> list[str]:
    return [each.text for each in reader.snapshot_builder().notices() if each.kind == kind]
