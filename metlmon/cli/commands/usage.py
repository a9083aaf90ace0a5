"""``metlmon usage``: what the jobs used of what they requested."""

from __future__ import annotations

import argparse
from functools import partial

from metlmon.cli.output import EnsembleOutput, show
from metlmon.cli.reading import open_reader, window_of
from metlmon.cli.text_output import TextOutput
from metlmon.stats.resources import Resources, resource_use
from metlmon.stats.windows import window_text
from metlmon.tables import resources as resources_table
from metlmon.tables.usage import models
from metlmon.text.formatting import moment, readable_dates
from metlmon.text.record_json import Flat
from metlmon.text.spans import BOLD, DIM, line


class UsageOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon usage --json``."""

    resources: Flat[Resources]


def usage(options: argparse.Namespace) -> int:
    """``metlmon usage``."""
    builder = open_reader(options).snapshot_builder()
    ledger = builder.ledger()
    found = resource_use(ledger, options.by, window_of(options, builder))
    print_text = partial(print_resources, found, ledger.item)
    return show(options, UsageOutput, builder, print_text, resources=found)


def print_resources(found: Resources, item: str) -> None:
    """What completed epochs used of each resource; then the same by group."""
    out = TextOutput()
    window = "" if found.window.unbounded else f"{readable_dates(window_text(found.window))}, "
    out.print(f"{window}snapshot {moment(found.as_of)}")
    if not found.total:
        out.print("", "Nothing ran: no execution is in the event logs.")
        return
    out.print(line((resources_table.headline(found, item), BOLD)))
    hours = resources_table.hours_line(found.total)
    if hours:
        out.print(hours)
    if found.completed is not None:
        shown = resources_table.shown_resources([found.completed])
        out.table(resources_table.resource_columns(found.completed), shown, "")
    names = models(group.name for group in found.groups) if found.by == "gpu" else {}
    out.table(resources_table.group_columns(found.by, found.groups, names), found.groups, "")
    for note in resources_table.notes(found, item):
        out.print(line((note, DIM)))
