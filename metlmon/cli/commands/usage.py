"""``metlmon usage``: what the jobs used of what they requested."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from metlmon.cli.output import EnsembleOutput, show
from metlmon.cli.queue_report import query_slots
from metlmon.cli.reading import open_reader, stats_input, window_of
from metlmon.cli.text_output import TextOutput
from metlmon.stats.requests import (
    MIN_EPOCHS,
    RequestAdvice,
    advice_text,
    advise_requests,
    amount_text,
)
from metlmon.stats.resources import Resources, resource_use
from metlmon.stats.windows import TimeWindow, window_text
from metlmon.tables import requests as requests_table
from metlmon.tables import resources as resources_table
from metlmon.text.formatting import moment, plain, readable_dates
from metlmon.text.record_json import Flat
from metlmon.text.spans import BOLD, DIM, line


class UsageOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon usage --json``."""

    resources: Flat[Resources]


class UsageRequestsOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon usage --requests --json``."""

    window: TimeWindow
    requests: tuple[RequestAdvice, ...]


def usage(options: argparse.Namespace) -> int:
    """``metlmon usage``."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    ledger, window = builder.ledger(), window_of(options, builder)
    if options.requests:
        slots = query_slots() if reader.as_of is None and not reader.host else ()
        requests = advise_requests(stats_input(reader), window, slots)
        print_text = partial(print_requests, requests, window, ledger.item)
        return show(
            options, UsageRequestsOutput, builder, print_text, window=window, requests=requests
        )
    found = resource_use(ledger, options.by, window)
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
    out.table(resources_table.group_columns(found.by, found.groups), found.groups, "")
    out.print(line((resources_table.NOTE, DIM)))


def print_requests(requests: Sequence[RequestAdvice], window: TimeWindow, item: str) -> None:
    """What would fit, a sentence for each request that does not; then what was used."""
    out = TextOutput()
    if not window.unbounded:
        out.print(readable_dates(window_text(window)))
    if not requests:
        out.print("No completed job has a usage table: nothing is known of what they need.")
        return
    advised = [row for row in requests if row.suggested is not None]
    for row in advised:
        command = f"{row.command} = {amount_text(row, row.suggested)}"
        now = f" instead of {amount_text(row, row.requested)}"
        where = f" in {plain(row.submit, requests_table.NAME_LIMIT)}" if row.submit else ""
        out.print(line((command, BOLD), f"{now}{where}: {advice_text(row, item)}"))
    if not advised:
        out.print(
            f"Nothing is suggested: the requests fit, or fewer than {MIN_EPOCHS} {item}s tell."
        )
    out.table(requests_table.columns(requests, item), requests, "")
    out.print(line((requests_table.NOTE, DIM)))
    if any(row.slots for row in requests):
        out.print(line((requests_table.GAIN_NOTE, DIM)))
