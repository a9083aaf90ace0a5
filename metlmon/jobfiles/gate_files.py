"""Parses the files in ``gate/<name>/`` and ``placement/<name>/``.

They contain users' requests and the gate's results; ``metlmon/trainer/gate.py`` documents each
file. They are untrusted, since other users may write there: every text is bounded and redacted,
and nothing is raised.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from metlmon.redact import harmless, redact_secrets
from metlmon.text.record_json import json_object

LONGEST: Final = 64 << 10
"""Bytes of such a file that are read: it contains one sentence."""

REASON_CHARACTERS: Final = 1000
"""Characters stored of a reason: one sentence of untrusted text."""

ABORT_RULE: Final = "abort-dag-on"

RULES: Final = frozenset({"file", "patience", "divergence", "median"})

_TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
_PLACED: Final = r"(?i)\s*ResourceName\s*=\s*(\S(?:.*\S)?)\s*"
_SITE: Final = r"[^\s\"'$\\\ufffd](?:[^\n\r\"'$\\\ufffd]{0,198}[^\s\"'$\\\ufffd])?"
"""A site's name, as the gate accepts it."""


class Stopped(Struct, frozen=True):
    """``<uuid>.stopped``: a run that its gate stopped before its last epoch.

    ``rule``: file (a user asked for it), patience, divergence or median; :data:`ABORT_RULE`,
    without a file, if its DAG was ended on purpose. ``epoch``: the first one not trained, as in
    the name of its ``node``. ``reason``: a sentence, as the gate wrote it. ``time``: naive, local
    to the access point.
    """

    rule: str
    epoch: int | None
    reason: str
    time: datetime | None
    node: str | None = None


class PausedFile(Struct, frozen=True):
    """``<uuid>.paused``: the node that waits, and since when."""

    node: str | None
    epoch: int | None
    time: datetime | None


class RunGate(Struct, frozen=True):
    """The gate files of one run.

    ``stop``, ``pause``: when the request was written, in seconds since 1970; ``target``: the
    site for its next epochs.
    """

    stop: float | None = None
    pause: float | None = None
    target: str | None = None
    stopped: Stopped | None = None
    paused: PausedFile | None = None


def read_stopped(data: bytes) -> Stopped | None:
    """Parse ``<uuid>.stopped``; None when a gate did not write it.

    The run is stopped in any case: the gate itself checks only the file's name.
    """
    fields = json_object(data[:LONGEST])
    if fields is None:
        return None
    rule = fields.get("rule")
    return Stopped(
        rule=rule if isinstance(rule, str) and rule in RULES else "file",
        node=_bounded_text(fields.get("node")),
        epoch=_valid_epoch(fields.get("epoch")),
        reason=_bounded_text(fields.get("reason")) or "",
        time=_parse_time(fields.get("time")),
    )


def read_paused(data: bytes) -> PausedFile | None:
    """Parse ``<uuid>.paused``; None when a gate did not write it."""
    fields = json_object(data[:LONGEST])
    if fields is None:
        return None
    return PausedFile(
        _bounded_text(fields.get("node")),
        _valid_epoch(fields.get("epoch")),
        _parse_time(fields.get("time")),
    )


def read_request(data: bytes) -> float | None:
    """When ``<uuid>.stop`` or ``.pause`` was written, in seconds since 1970.

    Read from the contents, since a copy may lose the file's time; None for a file written by
    hand without a time.
    """
    for line in data[:LONGEST].decode("utf-8", "replace").splitlines():
        if line.endswith("Z") and (time := _parse_time(line[:-1])) is not None:
            return time.replace(tzinfo=UTC).timestamp()
    return None


def read_target(data: bytes) -> str | None:
    """The site in ``<uuid>.target``; None when the gate would not accept it."""
    text = data[:LONGEST].decode("utf-8", "replace").rstrip("\r\n")
    return redact_secrets(text) if re.fullmatch(_SITE, text) and text.isprintable() else None


def read_placement(data: bytes) -> str | None:
    """The ResourceName in ``placement/<name>/<node>.inc``; None if not a plain name."""
    site = None
    for line in data[:LONGEST].decode("utf-8", "replace").splitlines():
        match = re.fullmatch(_PLACED, line)
        if match is not None:
            site = match.group(1)
    return read_target(site.encode()) if site is not None else None


def read_log(data: bytes) -> tuple[int, str]:
    """The number of lines in the end of ``gate.log``, and the last line."""
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    return len(lines), _bounded(lines[-1]) if lines else ""


def _bounded_text(value: object) -> str | None:
    return _bounded(value) if isinstance(value, str) else None


def _bounded(text: str) -> str:
    # Redacted before the final cut: a secret cut in two is beyond the part that is stored.
    return harmless(text[: 2 * REASON_CHARACTERS])[:REASON_CHARACTERS]


def _valid_epoch(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 10**9 else None


def _parse_time(value: object) -> datetime | None:
    if not isinstance(value, str) or not re.fullmatch(_TIME, value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None
