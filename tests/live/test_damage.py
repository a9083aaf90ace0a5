"""Real dagdirs with any bytes of any file changed: a picture or one sentence, never a crash."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metlmon.config.settings import Settings
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.text.record_json import json_of
from tests.support.recordings import FIXTURES

WRITTEN_BY_JOBS = {".out", ".err", ".ckpt", ".bin", ".csv"}
"""Endings of what no reader of an ensemble opens (``.dagman.out`` is read all the same)."""


def files(dagdir: Path) -> list[Path]:
    return [
        path
        for path in sorted(dagdir.iterdir())
        if path.is_file()
        and (path.suffix not in WRITTEN_BY_JOBS or path.name.endswith(".dagman.out"))
    ]


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Bytes changed, a stretch lost, a stretch twice, numbers gone wild, or cut short."""
    if not data:
        return data
    at, size = dice.randrange(len(data)), dice.randrange(1, 400)
    match dice.randrange(6):
        case 0:
            return data[:at] + bytes(dice.randrange(256) for _ in range(9)) + data[at + 9 :]
        case 1:
            return data[:at] + data[at + size :]
        case 2:
            return data[: at + size] + data[at:]
        case 3:
            digit = dice.choice(b"0123456789")
            return data.replace(bytes([digit]), dice.choice([b"9999999999", b"-1", b"0", b""]), 40)
        case 4:
            return data[:at]
        case _:
            return data[:at] + b"\0" * size + data[at:]


def refusal(reader: DagdirReader) -> str | None:
    try:
        reader.open()
    except InputError as error:
        return str(error)
    return None


DIRS = [FIXTURES / name for name in ("demo", "gated", "holds", "lineage", "scripts", "shared-log")]


@pytest.mark.parametrize("dagdir", DIRS, ids=lambda path: path.name)
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_a_picture_or_a_sentence(dagdir: Path, seed: int) -> None:
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for path in files(dagdir):
            if dice.random() < 0.35:
                (place / path.name).write_bytes(damaged(path.read_bytes(), dice))
            elif dice.random() < 0.95:
                shutil.copyfile(path, place / path.name)
        zone = dice.choice([None, ZoneInfo("America/Chicago"), ZoneInfo("Asia/Tokyo")])
        reader = DagdirReader(place, Settings(zone=zone), live=dice.choice([None, True, False]))
        refused = refusal(reader)
        if refused is not None:
            assert "\n" not in refused
            return
        reader.read_all()
        painter = reader.snapshot_builder()
        status, rows = painter.status(), painter.job_rows()
        stamp = painter.clock.with_offset
        json.dumps(json_of([status, rows], stamp), allow_nan=False)
        for run in status.runs:
            view = painter.run_view(run.key)
            assert view is not None
            json.dumps(json_of(view, stamp), allow_nan=False)
        for row in rows[:5]:
            assert painter.job_view(row.cluster, row.proc) is not None
        beside = sum(map(painter.derivation.is_beside, painter.states))
        assert sum(status.node_states.values()) == len(painter.states) - beside
        assert status.hours.goodput >= 0
        assert status.hours.badput >= 0
