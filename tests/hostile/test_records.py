"""Readers sanitise their texts: no record has secrets, control or invisible characters.

Names of files are the exception, since the files are opened: they are made visible where they are
shown, as are the sentences that name one.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from metlmon.config.loader import load_settings
from metlmon.health.build import make_health
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import StatsInput
from metlmon.live.job_files import TrainingFiles
from metlmon.stats.curves import curves
from metlmon.stats.sweep import GridChoice, grid
from metlmon.stats.usage import usage_in_window
from tests.hostile.corpus import A_KEY, fields_in, forbidden
from tests.hostile.dagdir import Dagdir
from tests.hostile.keyed_files import NODES
from tests.support.recordings import read_all

FILES: Final = frozenset(
    {
        *("dagdir", "dag", "in_dag", "dag_key", "file", "log", "logs", "error", "output"),
        *("submit", "path", "dir", "key", "node_key", "node_keys"),
    }
)
"""Fields with the name of a file, or a key made of it."""

SENTENCES: Final = frozenset({"Notice.text", "HealthEntry.reason", "HealthEntry.text"})
"""Sentences that may name a file."""


def texts(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Every text in records, with its record and field."""
    if isinstance(value, str) and not isinstance(value, Enum):
        yield where, value
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            if name not in FILES:
                yield from texts(getattr(value, name), f"{type(value).__name__}.{name}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(key, where)
            yield from texts(item, where)
    elif isinstance(value, Sequence | AbstractSet):
        for item in value:
            yield from texts(item, where)


def read(path: Path) -> DagdirReader:
    return read_all(DagdirReader(path, load_settings(path)))


@pytest.fixture(scope="module")
def records(hostile: Dagdir) -> Mapping[str, Any]:
    reader = read(hostile.path)
    builder = reader.snapshot_builder()
    ledger = builder.ledger()
    jobs = builder.real_jobs()
    files = TrainingFiles(reader.dagdir, reader.ensemble.settings)
    basis = StatsInput(
        builder.status(),
        ledger,
        reader.ensemble.settings,
        job_files=files.read(builder),
        load_description=builder.dag_description,
    )
    return {
        "status": basis.status,
        "ledger": ledger,
        "jobs": [builder.job_view(*job.id) for job in jobs],
        "events": [builder.event_lines(job) for job in jobs],
        "runs": [builder.run_view(run.key) for run in basis.status.runs],
        "nodes": [builder.node_row(node.key) for node in reader.ensemble.nodes.values()],
        "trainings": basis.job_files.trainings,
        "curves": curves(basis),
        "grid": grid(basis, GridChoice()),
        "health": make_health(basis),
        "usage": usage_in_window(ledger),
    }


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("status", {"runt", "sitet", "gput", "holdt", "resourcet"}),
        ("ledger", {"runt", "uuidt", "sitet", "gput", "slott", "shadowt", "abortt", "label"}),
        ("jobs", {"runt", "sitet", "slott", "holdt"}),
        ("events", {"holdt", "generict", "shadowt"}),
        ("runs", {"runt", "sitet"}),
        ("nodes", {"runt"}),
        ("trainings", {"metrict"}),
        ("curves", {"runt", "metrict"}),
        ("grid", {"runt", "sweptt"}),
        ("health", {"runt"}),
        ("usage", {"sitet", "gput"}),
    ],
)
def test_every_text_is_visible(records: Mapping[str, Any], name: str, fields: set[str]) -> None:
    found = dict[str, list[str]]()
    seen = set[str]()
    for where, text in texts(records[name]):
        if where not in SENTENCES:
            seen |= fields_in(text)
            # The text of an event has several lines.
            if bad := forbidden(text, newlines=where == "EventLine.text"):
                found.setdefault(where, bad)
    assert found == {}
    assert seen >= fields


def test_traceback_has_no_secret_of_a_record(hostile: Dagdir) -> None:
    """Not even in the locals of its frames."""
    builder = read(hostile.path).snapshot_builder()
    records = [builder.status(), builder.job_view(87, 0), builder.runs]
    try:
        raise RuntimeError(records)
    except RuntimeError as error:
        result = traceback.TracebackException.from_exception(error, capture_locals=True)
    shown = "".join(result.format())
    assert NODES[0] in shown
    assert not A_KEY.search(shown)
