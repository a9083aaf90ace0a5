"""Which runs ``--only`` names: names, uuids, patterns of them, or beginnings of uuids, separated
by commas."""

from __future__ import annotations

import fnmatch

from metlmon.snapshot.types import RunRow

MOST_LISTED = 8
"""Runs that a message names."""


def is_named(only: str, uuid: str | None, *names: str | None) -> bool:
    """Does ``only`` name something with this uuid and these names?"""
    for pattern in filter(None, (each.strip() for each in only.split(","))):
        known = [name for name in (uuid, *names) if name]
        if any(name == pattern or fnmatch.fnmatchcase(name, pattern) for name in known):
            return True
        if uuid and fnmatch.fnmatchcase(uuid, f"{pattern}*"):
            return True
    return False


def run_named(run: RunRow, only: str) -> bool:
    """Does ``only`` name this run?"""
    return is_named(only, run.uuid, run.run, run.key)


def listed_runs(runs: tuple[RunRow, ...]) -> str:
    """``there are run0 (aaaa1111), run1 (…), …``, for messages."""
    known = [f"{r.run} ({r.uuid[:8]})" if r.uuid else r.run for r in runs[: MOST_LISTED + 1]]
    some = ", ".join(known[:MOST_LISTED]) + (", …" if len(known) > MOST_LISTED else "")
    return f"there are {some}" if known else "this dagdir has no runs"
