"""Lines for submit files by which epochs go where a plan has them, without a gate.

condor_submit reads a submit file for each job that DAGMan submits, so that a line added to it
holds from the next epoch on. Manual: "condor_submit" (``$(name:default)``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from metlmon.live.feed import Feed
from metlmon.model.sites import ANY_SITE_TARGETS, normalize_name
from metlmon.placement.application import is_named_by_host
from metlmon.placement.types import PlacementPlan
from metlmon.pool.exclusion import can_exclude
from metlmon.pool.gate_requests import submit_file, takes_site_lists
from metlmon.snapshot.records import Run
from metlmon.text.formatting import plain
from metlmon.text.site_lists import SEPARATOR, joined

PINNED: Final = "instead of the condition on the site in its requirements"
ADDED: Final = "below its requirements"

MOST_NAMED: Final = 8
"""Runs that are named where a line belongs."""


class SubmitLine(Struct, frozen=True, kw_only=True):
    """A line for a submit file that gates do not place: for all ``runs`` that use it.

    ``file``: relative to the dagdir. ``where``: which place in the file.
    """

    file: str
    line: str
    where: str
    runs: tuple[str, ...]


def submit_lines(plan: PlacementPlan, feed: Feed) -> tuple[SubmitLine, ...]:
    """The lines for all runs of the plan that no request can send to a list of sites.

    A file that several runs use gets the sites of all of them; one that leaves out no site of the
    plan gets no line. Reads submit files: not for the UI thread.
    """
    assert feed.latest is not None
    rows: Mapping[str, Run] = {run.key: run for run in feed.latest.status.runs}
    runs: dict[str, list[Run]] = {}
    sites: dict[str, set[str]] = {}
    for placement in plan.runs:
        row = rows.get(placement.run)
        names = {pool.site for pool in placement.pools}
        if row is None or not names or (row.gate and takes_site_lists(feed, row.key)):
            continue
        # A machine does not advertise a name derived from its host: the line would exclude it.
        if any(not can_exclude(name) or is_named_by_host(name, feed) for name in names):
            continue
        file = submit_file(feed, row.key)
        if file is not None:
            runs.setdefault(file, []).append(row)
            sites.setdefault(file, set()).update(names)
    unused = {pool.site for pool, _ in plan.excluded}
    return tuple(
        SubmitLine(
            file=file,
            line=requirements_line(sites[file], _are_pinned(using)),
            where=PINNED if _are_pinned(using) else ADDED,
            runs=tuple(run.name for run in using),
        )
        for file, using in runs.items()
        if _are_pinned(using) or not unused <= sites[file]
    )


def requirements_line(sites: Iterable[str], pinned: bool) -> str:
    """The line; ``pinned``: the requirements of before name one site, and have to go."""
    member = (
        f'stringListIMember(TARGET.GLIDEIN_ResourceName, "{joined(sorted(sites))}", "{SEPARATOR}")'
    )
    return (
        f"requirements = {member}"
        if pinned
        else f"requirements = ($(requirements:true)) && {member}"
    )


def _are_pinned(runs: Iterable[Run]) -> bool:
    targets = {normalize_name((run.latest and run.latest.target) or "any") for run in runs}
    return not targets <= ANY_SITE_TARGETS


def submit_line_text(row: SubmitLine) -> tuple[str, str]:
    """Where a line belongs, naming some of its runs, and the line."""
    runs = plain(", ".join(row.runs[:MOST_NAMED]), 200)
    more = f" and {len(row.runs) - MOST_NAMED} more" if len(row.runs) > MOST_NAMED else ""
    place = f"{plain(row.file, 100)}, {row.where} (for the next epochs of {runs}{more}):"
    return place, plain(row.line, 400)
