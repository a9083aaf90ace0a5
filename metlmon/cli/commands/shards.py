"""``metlmon shards``: bags of equal nodes, as tables or as JSON."""

from __future__ import annotations

import argparse
from typing import Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.outputs import EnsembleOutput, print_record
from metlmon.cli.reading import open_reader, stats_input
from metlmon.cli.status_text import hours_line
from metlmon.cli.text_output import TextOutput
from metlmon.snapshot.builder import describe_dags
from metlmon.stats.shards import Bag, bags
from metlmon.tables import shards as shards_table
from metlmon.text.formatting import plain
from metlmon.text.spans import BOLD, line, text

STRAGGLERS_SHOWN: Final = 20
"""Printed by the command; ``--json`` has them all."""


class ShardsOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon shards --json``."""

    bags: tuple[Bag, ...]


def shards(options: argparse.Namespace) -> int:
    """``metlmon shards``."""
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    description = describe_dags(builder)
    bag_list = bags(stats_input(reader, load_description=lambda: description))
    if options.json:
        print_record(ShardsOutput, builder, bags=bag_list)
    else:
        print_bags(bag_list, builder.live)
    return Exit.OK


# --- tables -----------------------------------------------------------------------------------


def print_bags(bag_list: tuple[Bag, ...], live: bool) -> None:
    """Each bag: how far it is, how fast, and what lags."""
    out = TextOutput()
    if not bag_list:
        for line in shards_table.no_bag_lines():
            out.print(line)
    for place, bag in enumerate(bag_list):
        if place:
            out.print()
        _print_bag(out, bag, live)


def _print_bag(out: TextOutput, bag: Bag, live: bool) -> None:
    headline = shards_table.shard_headline(bag, live)
    dot = " · "
    parts = [
        part
        for part in (headline.done, headline.running, headline.held, headline.stragglers)
        if part
    ]
    head = f"{shards_table.name_text(bag)}  {dot.join(parts)}; {headline.when}"
    out.print(line((head, BOLD)))
    out.print(f"{plain(bag.in_dag, 60)}, {plain(bag.submit, 60)}")
    out.print("  ".join(map(text, shards_table.state_texts(bag))))
    if bag.durations is not None:
        out.print(f"A shard takes {shards_table.times_text(bag.durations)}")
    if bag.overall_rate is not None:
        rates = f"Rate: {shards_table.rate_text(bag.overall_rate)}"
        if bag.recent_rate is not None:
            window = shards_table.window_text(bag.recent_rate)
            rates += f", {shards_table.rate_text(bag.recent_rate)} in {window}"
            rates += f", {bag.machines:.1f} at a time"
        out.print(rates)
    if bag.remaining is not None:
        sure = bag.remaining.quality
        out.print(f"How sure: {sure}, from {bag.remaining.samples} shards that have ended")
    out.print(hours_line(bag.totals.hours))
    if not bag.stragglers:
        return
    out.print()
    out.table(shards_table.straggler_columns(), bag.stragglers[:STRAGGLERS_SHOWN])
    if len(bag.stragglers) > STRAGGLERS_SHOWN:
        out.print(f"and {len(bag.stragglers) - STRAGGLERS_SHOWN} more: see --json")
