"""Matches runs against ``--only``: names, uuids, patterns, prefixes of uuids."""

from __future__ import annotations

import fnmatch

from metlmon.snapshot.types import RunRow

MAX_LISTED_RUNS = 8
"""Maximum number of runs listed in a message."""


def matches_name(only: str, uuid: str | None, *names: str | None) -> bool:
    """Does ``only`` match this uuid or any of these names?"""
    for pattern in filter(None, (pattern.strip() for pattern in only.split(","))):
        values = [name for name in (uuid, *names) if name]
        if any(name == pattern or fnmatch.fnmatchcase(name, pattern) for name in values):
            return True
        if uuid and fnmatch.fnmatchcase(uuid, f"{pattern}*"):
            return True
    return False


def matches_run(run: RunRow, only: str) -> bool:
    """Does ``only`` match this run?"""
    return matches_name(only, run.uuid, run.run, run.key)


def format_run_list(runs: tuple[RunRow, ...]) -> str:
    """A list of runs for messages: ``there are run0 (aaaa1111), run1 (…), …``."""
    known = [f"{r.run} ({r.uuid[:8]})" if r.uuid else r.run for r in runs[: MAX_LISTED_RUNS + 1]]
    some = ", ".join(known[:MAX_LISTED_RUNS]) + (", …" if len(known) > MAX_LISTED_RUNS else "")
    return f"there are {some}" if known else "this dagdir has no runs"
