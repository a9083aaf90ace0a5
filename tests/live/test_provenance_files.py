"""Sidecars and events of checkpoints are read only from a run's folder, with limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metlmon.live import job_files
from tests.live.test_written import DAG, LOGS, UUID, Look
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log

CHECKPOINTS = f"{LOGS}/checkpoints"


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path) -> Dagdir:
    dagdir = Dagdir(tmp_path / "ensemble", DAG)
    dagdir.write("metl.log", Log().submit(77, NODE).execute(77).terminate(77).data)
    return dagdir


def sidecar(epoch: int = 0, digest: str = "aaa") -> str:
    return json.dumps({"epoch": epoch, "checkpoint_hash": digest, "parent_hash": None})


def event(epoch: int = 0, digest: str = "aaa") -> str:
    line = {"type": "epoch.completed", "epoch": epoch, "checkpoint_out_hash": digest}
    return json.dumps(line) + "\n"


def digests(look: Look) -> list[str]:
    found = look.trainings().get(UUID)
    return [record.digest for record in found.checkpoints] if found is not None else []


def test_sidecars_and_events_of_a_run_are_read(dagdir: Dagdir) -> None:
    dagdir.write(f"{CHECKPOINTS}/last.ckpt.provenance.json", sidecar(0, "aaa"))
    dagdir.write(f"{LOGS}/{UUID}.ndjson", event(1, "bbb") + event(0, "aaa"))
    dagdir.write(f"output/provenance/{UUID}.ndjson", event(2, "ccc") + "{half a line")
    dagdir.write(f"provenance/{UUID}.ndjson", event(3, "ddd"))
    records = Look(dagdir).training().checkpoints
    digests = ["aaa", "bbb", "ccc", "ddd"]
    assert [(record.epoch, record.digest) for record in records] == list(enumerate(digests))
    assert records[0].file == f"{CHECKPOINTS}/last.ckpt.provenance.json"


def test_events_of_another_run_are_ignored(dagdir: Dagdir) -> None:
    dagdir.write("output/provenance/other.ndjson", event())
    dagdir.write(f"{LOGS}/other.ndjson", event())
    assert digests(Look(dagdir)) == []


def test_checkpoints_are_never_opened(dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch) -> None:
    path = dagdir.write(f"{CHECKPOINTS}/last.ckpt", b"weights")
    dagdir.write(f"{CHECKPOINTS}/last.ckpt.provenance.json", sidecar())
    path.chmod(0)
    before = path.stat().st_atime_ns
    assert digests(Look(dagdir)) == ["aaa"]
    assert path.stat().st_atime_ns == before


def test_sidecar_without_a_checkpoint_is_reported(dagdir: Dagdir) -> None:
    dagdir.write(f"{CHECKPOINTS}/a.ckpt.provenance.json", "{")
    assert Look(dagdir).training().problems == (
        f"{CHECKPOINTS}/a.ckpt.provenance.json is not read: it names no epoch and no checkpoint",
    )


def test_excessive_files_are_reported(dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_files, "MAX_SIDECARS", 2)
    for epoch in range(3):
        dagdir.write(f"{CHECKPOINTS}/e{epoch}.ckpt.provenance.json", sidecar(epoch, f"aa{epoch}"))
    dagdir.write(f"{CHECKPOINTS}/e0.ckpt.provenance.json", sidecar() + " " * 300_000)
    found = Look(dagdir).training()
    assert [record.digest for record in found.checkpoints] == ["aa1"]
    assert found.problems[0] == f"{CHECKPOINTS} has 3 sidecars, of which 2 are read"
