"""Reads what the METL workflow records about checkpoints: sidecars and NDJSON events.

Source followed: ``mldag/provenance`` (``sidecar.py``, ``events.py``, ``watcher.py``) of MLDAG,
schema 1.0. A sidecar ``*.ckpt.provenance.json`` names the SHA-256 of its checkpoint and of the one
that this was trained from; the events of a run name both for one epoch after the other. Job ids
are an addition of the bundled trainer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from metlmon.jobfiles.records import CheckpointRecord
from metlmon.redact import harmless
from metlmon.text.record_json import json_object

SIDECAR_SUFFIX: Final = ".ckpt.provenance.json"

MAX_EPOCH: Final = 999_999_999
MAX_JOB_NUMBER: Final = 2**31 - 1
MAX_NAME_LENGTH: Final = 255
"""Characters of a host's, slot's or site's name; longer texts are not names."""

_DIGEST: Final = re.compile(r"(?:sha256:)?[0-9A-Za-z]{3,128}")


def read_sidecar(text: str, file: str) -> CheckpointRecord | None:
    """Parse a sidecar; None if it names no checkpoint."""
    sidecar = json_object(text) or {}
    produced_at = sidecar.get("produced_at")
    place = produced_at if isinstance(produced_at, dict) else {}
    parent = sidecar.get("parent_hash")
    return _record(
        sidecar.get("epoch"),
        sidecar.get("checkpoint_hash"),
        parent=parent,
        parent_known="parent_hash" in sidecar and (parent is None or _digest(parent) is not None),
        place=place,
        time=place.get("ts"),
        file=file,
    )


def read_events(lines: Iterable[str], file: str) -> list[CheckpointRecord]:
    """The checkpoints that the events of one run name; damaged lines are left out.

    An epoch's ``epoch.started`` names the parent, its ``epoch.completed`` the checkpoint, and the
    ``job.assigned`` before them the place.
    """
    return list(_checkpoints(filter(None, map(json_object, lines)), file))


def _checkpoints(events: Iterable[Mapping[str, Any]], file: str) -> Iterator[CheckpointRecord]:
    place: Mapping[str, Any] = {}
    parents: dict[Any, Any] = {}
    for event in events:
        kind, epoch = event.get("type"), _whole(event.get("epoch"), MAX_EPOCH)
        if kind == "job.assigned":
            place, parents = event, {}
        elif kind == "epoch.started" and "checkpoint_in_hash" in event:
            parents[epoch] = event["checkpoint_in_hash"]
        elif kind == "epoch.completed":
            known, parent = epoch in parents, parents.pop(epoch, None)
            record = _record(
                epoch,
                event.get("checkpoint_out_hash"),
                parent=parent,
                parent_known=known and (parent is None or _digest(parent) is not None),
                place=place,
                time=event.get("ts"),
                file=file,
            )
            if record is not None:
                yield record


def _record(
    epoch: object,
    digest: object,
    *,
    parent: object,
    parent_known: bool,
    place: Mapping[str, Any],
    time: object,
    file: str,
) -> CheckpointRecord | None:
    number, checked = _whole(epoch, MAX_EPOCH), _digest(digest)
    if number is None or checked is None:
        return None
    cluster = _whole(place.get("cluster_id"), MAX_JOB_NUMBER)
    proc = _whole(place.get("proc_id", 0), MAX_JOB_NUMBER)
    return CheckpointRecord(
        epoch=number,
        digest=checked,
        parent=_digest(parent),
        parent_known=parent_known,
        job=(cluster, proc) if cluster and proc is not None else None,
        host=_name(place.get("hostname")),
        slot=_name(place.get("slot")),
        site=_name(place.get("site")),
        time=_time(time),
        file=file,
    )


def _digest(value: object) -> str | None:
    """A hash in lower case, without a prefix; None for anything else."""
    if not isinstance(value, str) or _DIGEST.fullmatch(value) is None:
        return None
    return value.removeprefix("sha256:").lower()


def _whole(value: object, most: int) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= most else None  # type: ignore[operator,return-value]


def _name(value: object) -> str | None:
    """A name; ``unknown`` and ``none`` are METL's words for a missing one."""
    if not isinstance(value, str) or not value or len(value) > MAX_NAME_LENGTH:
        return None
    return None if value in ("unknown", "none") else harmless(value)


def _time(value: object) -> datetime | None:
    """A time in UTC; None for any other text."""
    if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH:
        return None
    try:
        time = datetime.fromisoformat(value)
        return time.astimezone(UTC) if time.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
