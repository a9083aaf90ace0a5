"""What lies in ``gate/<name>/`` and ``placement/<name>/``: requests of people and answers of the
gate (``metlmon/trainer/gate.py``, which says what each file is), bytes → records.

The files are anybody's who may write there: every text is bounded and without what looks like a
secret, nothing is raised.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Final

from metlmon.frozen import frozen
from metlmon.redact import redact_secrets

LONGEST: Final = 64 << 10
"""Bytes of such a file that are looked at: it holds a sentence."""

REASON_CHARACTERS: Final = 1000
"""That are kept of a reason: it is a sentence, and whoever may write there wrote it."""

RULES: Final = frozenset({"file", "patience", "divergence", "median"})

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_PLACED: Final = re.compile(r"\s*ResourceName\s*=\s*(\S(?:.*\S)?)\s*", re.IGNORECASE)
_SITE: Final = re.compile(r"[^\s\"'$\\\ufffd](?:[^\n\r\"'$\\\ufffd]{0,198}[^\s\"'$\\\ufffd])?")
"""What a gate takes for a site's name."""


@frozen
class Stopping:
    """``<uuid>.stopped``: as :class:`metlmon.snapshot.types.Stopped`, and the ``node`` before
    which the run was stopped."""

    rule: str
    node: str | None
    epoch: int | None
    reason: str
    time: datetime | None


@frozen
class Pausing:
    """``<uuid>.paused``: which node waits, and since when."""

    node: str | None
    epoch: int | None
    time: datetime | None


@frozen
class RunGate:
    """What lies there of one run. ``stop``, ``pause``: when the request was written, in seconds
    since 1970; ``target``: the site for its next epochs."""

    stop: float | None = None
    pause: float | None = None
    target: str | None = None
    stopped: Stopping | None = None
    paused: Pausing | None = None


def read_stopped(data: bytes) -> Stopping | None:
    """None where it is no answer of a gate; that the run was stopped is true all the same: the
    gate itself goes by the file's name."""
    said = _object(data)
    if said is None:
        return None
    rule = said.get("rule")
    return Stopping(
        rule if isinstance(rule, str) and rule in RULES else "file",
        _text(said.get("node")),
        _epoch(said.get("epoch")),
        _text(said.get("reason")) or "",
        _time(said.get("time")),
    )


def read_paused(data: bytes) -> Pausing | None:
    """None where it is no answer of a gate."""
    said = _object(data)
    if said is None:
        return None
    return Pausing(_text(said.get("node")), _epoch(said.get("epoch")), _time(said.get("time")))


def read_request(data: bytes) -> float | None:
    """When ``<uuid>.stop`` or ``.pause`` was written, in seconds since 1970; None where it does not
    say so (somebody wrote it by hand): no file's own time outlasts a copy."""
    for line in data[:LONGEST].decode("utf-8", "replace").splitlines():
        if line.endswith("Z") and (when := _time(line[:-1])) is not None:
            return when.replace(tzinfo=UTC).timestamp()
    return None


def read_target(data: bytes) -> str | None:
    """The site that ``<uuid>.target`` names; None where a gate would not take it for one."""
    text = data[:LONGEST].decode("utf-8", "replace").rstrip("\r\n")
    return redact_secrets(text) if _SITE.fullmatch(text) and text.isprintable() else None


def read_placement(data: bytes) -> str | None:
    """The ResourceName of a ``placement/<name>/<node>.inc``; None where it sets none, or no plain
    one."""
    found = None
    for line in data[:LONGEST].decode("utf-8", "replace").splitlines():
        match = _PLACED.fullmatch(line)
        if match is not None:
            found = match.group(1)
    return read_target(found.encode()) if found is not None else None


def read_log(data: bytes) -> tuple[int, str]:
    """Of the end of ``gate.log``: how many lines it has, and the last one."""
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    return len(lines), _kept(lines[-1]) if lines else ""


def _object(data: bytes) -> dict[str, object] | None:
    try:
        said = json.loads(data[:LONGEST])
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _text(value: object) -> str | None:
    return _kept(value) if isinstance(value, str) else None


def _kept(text: str) -> str:
    # What is cut in two stands at the end, far behind what is kept.
    return redact_secrets(text[: 2 * REASON_CHARACTERS])[:REASON_CHARACTERS]


def _epoch(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 10**9 else None


def _time(value: object) -> datetime | None:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None
