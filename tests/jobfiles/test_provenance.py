"""Provenance of checkpoints by METL's workflow (MLDAG, schema 1.0) and by the trainer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.jobfiles.provenance import read_events, read_sidecar
from metlmon.jobfiles.records import CheckpointRecord

METL_SIDECAR: dict[str, Any] = {
    "schema_version": "1.0",
    "checkpoint_hash": "sha256:8bc1f3aa",
    "parent_hash": None,
    "run_id": "a3f9cc12",
    "epoch": 0,
    "produced_at": {
        "hostname": "gpu04.chtc.wisc.edu",
        "slot": "slot1_2",
        "gpu_model": "NVIDIA H200",
        "gpu_count": 1,
        "ts": "2026-08-05T00:00:00+00:00",
    },
    "environment": {"python": "3.9.17", "cuda": "11.6", "mldag_version": "0.1.0rc11"},
    "training": {"val_loss": float("nan"), "train_loss_step": 14.0, "duration_s": 100.0},
}


def sidecar(**changes: Any) -> CheckpointRecord | None:
    return read_sidecar(json.dumps({**METL_SIDECAR, **changes}), "a.ckpt.provenance.json")


def events(*lines: dict[str, Any]) -> list[CheckpointRecord]:
    return read_events([json.dumps(line) for line in lines], "a.ndjson")


def test_sidecar_of_metls_workflow() -> None:
    assert sidecar() == CheckpointRecord(
        epoch=0,
        digest="8bc1f3aa",
        parent=None,
        parent_known=True,
        job=None,
        host="gpu04.chtc.wisc.edu",
        slot="slot1_2",
        site=None,
        time=datetime(2026, 8, 5, tzinfo=UTC),
        file="a.ckpt.provenance.json",
    )


def test_events_of_metls_workflow_are_found_among_others() -> None:
    head = {"schema_version": "1.0", "run_id": "a3f9cc12", "ts": "2026-08-05T00:00:00+00:00"}
    (record,) = events(
        {**head, "type": "job.submitted", "job_name": "run0-train_epoch4", "epoch": 4},
        {**head, "type": "job.assigned", "hostname": "gpu04", "slot": "unknown"},
        {**head, "type": "job.executing", "cluster_id": 5, "source": "htcondor_event_log"},
        {**head, "type": "epoch.started", "epoch": 4, "checkpoint_in_hash": "sha256:AAA"},
        {**head, "type": "epoch.completed", "epoch": 4, "checkpoint_out_hash": "sha256:bbb"},
        {**head, "type": "job.completed", "wall_time_s": 31580},
    )
    assert (record.digest, record.parent, record.host) == ("bbb", "aaa", "gpu04")
    assert record.slot is None
    assert record.job is None


def test_epoch_without_its_start_has_no_known_parent() -> None:
    (record,) = events({"type": "epoch.completed", "epoch": 4, "checkpoint_out_hash": "bbb"})
    assert not record.parent_known


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": -1},
        {"epoch": True},
        {"epoch": "3"},
        {"epoch": 10**30},
        {"checkpoint_hash": None},
        {"checkpoint_hash": "sha256:../../etc/passwd"},
        {"checkpoint_hash": "a" * 500},
    ],
)
def test_sidecar_without_a_checkpoint(changes: dict[str, Any]) -> None:
    assert sidecar(**changes) is None


def test_damaged_values_are_unknown() -> None:
    place = {"hostname": 5, "slot": "s" * 999, "site": "", "ts": "now", "cluster_id": "x"}
    record = sidecar(produced_at=place, parent_hash=[1])
    assert (record.host, record.slot, record.site, record.time) == (None, None, None, None)
    assert record.job is None
    assert not record.parent_known
    without_zone = sidecar(produced_at={"ts": "2026-08-05T00:00:00"})
    assert without_zone.time is None


def test_name_that_looks_like_a_secret_is_hidden() -> None:
    record = sidecar(produced_at={"hostname": "WANDB_API_KEY=" + "0123456789abcdef" * 3})
    assert "0123456789" not in str(record.host)


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_raises_nothing(text: str) -> None:
    read_sidecar(text, "x")
    read_events(text.splitlines(), "x")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_NAMES = ("type", "epoch", "checkpoint_in_hash", "checkpoint_out_hash", "ts", "cluster_id")
_KINDS = st.sampled_from(("job.assigned", "epoch.started", "epoch.completed"))


@given(st.lists(st.dictionaries(st.sampled_from(_NAMES), _JSON | _KINDS), max_size=6))
def test_events_with_any_values_raise_nothing(lines: list[dict[str, Any]]) -> None:
    events(*lines)
    for line in lines:
        sidecar(**line, produced_at=line)


def test_deep_nesting_is_not_a_checkpoint() -> None:
    assert read_sidecar("[" * 200_000, "x") is None
    assert read_events(['{"a":' * 100_000], "x") == []
