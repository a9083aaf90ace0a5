"""The Shards screen: throughput, stragglers and remaining time of a bag."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.live.feed import Snapshot
from metlmon.stats.shards import Bag, bags
from metlmon.tables import shard_text
from metlmon.tables import shards as shards_table
from metlmon.tables.layout import fit_columns, render_cells, table_columns
from metlmon.text.spans import BOLD, DIM, Line, line, wrap
from screens.actions import bindings_of
from screens.base.screens import ListScreen
from screens.widgets.footer import KeyFooter
from screens.widgets.lines import StaticLines
from screens.widgets.table import Table, TableRow


class ShardsScreen(ListScreen):
    """The shards of one bag, most urgent first."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "bag", "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("list", "bag", "below")]
    ORDERS = shards_table.ORDERS

    def __init__(self) -> None:
        super().__init__()
        self.key: str | None = None

    def key_footer(self) -> KeyFooter:
        """Return the footer, without the key of this screen."""
        return KeyFooter((*self.SCOPES, "everywhere"), hidden=("bag",))

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield from self.compose_foot()

    # --- rendering --------------------------------------------------------------------------

    def show(self, update: Snapshot | None) -> None:
        all_bags = self.context.stats.value(bags)
        bag = self._chosen(all_bags)
        has_several = all_bags is not None and len(all_bags) > 1
        self.query_one(KeyFooter).hide_actions(("bag",) if has_several else ("bag", "next_bag"))
        if bag is None or all_bags is None:
            self._nothing(all_bags, update)
            return
        room = self.app.size.width
        live = update is not None and update.status.live
        position = f"bag {all_bags.index(bag) + 1} of {len(all_bags)}" if len(all_bags) > 1 else ""
        head = shards_table.head(bag, live, position, room - 2)
        self.query_one("#head", StaticLines).show(
            [*(line(" ") + header_line for header_line in head), ()]
        )
        shards = sorted(bag.shards, key=shards_table.urgency) if not self.sort_index else bag.shards
        filtered = self.filter_rows(shards, shards_table.filter_text)
        specs = shards_table.specs(bag)
        widths = fit_columns(specs, bag.shards, room)
        rows = [
            TableRow(shard.node, partial(render_cells, specs, widths, shard)) for shard in filtered
        ]
        empty = [line("  ", "No shard has this in any column."), line("  ", ("esc clears", DIM))]
        self.table.show(table_columns(specs, widths), rows, empty)
        note = self.note_line(len(filtered), len(shards), noun="shard")
        self.query_one("#note", StaticLines).show([note])

    def _chosen(self, all_bags: tuple[Bag, ...] | None) -> Bag | None:
        """Return the selected bag; initially the first unfinished one."""
        if not all_bags:
            return None
        selected = next((bag for bag in all_bags if bag.key == self.key), None)
        if selected is None:
            selected = next((bag for bag in all_bags if not bag.is_complete), all_bags[0])
            self.key = selected.key
        return selected

    def _nothing(self, all_bags: tuple[Bag, ...] | None, update: Snapshot | None) -> None:
        """Show why there is no bag, and how one is made."""
        room = self.app.size.width
        reading = all_bags is None or update is None or update.progress.fraction < 1
        first = "reading the DAG" if reading else "there is no bag here"
        title = line(" ", ("Shards", BOLD), "   ", (first, DIM))
        self.query_one("#head", StaticLines).show([title])
        message: list[Line] = [line("  ", ("Bags appear when their DAG file is read.", DIM))]
        if not reading:
            message = []
            for index, text in enumerate(shard_text.no_bag_lines()):
                message += [()] * (index > 0) + wrap(text, room - 2, BOLD if not index else DIM, 2)
        self.table.show([], [], message)
        self.query_one("#note", StaticLines).show([self.note_line(0, 0, noun="shard")])

    # --- actions ------------------------------------------------------------------------------

    def open_row(self, key: str) -> None:
        bag = self._chosen(self.context.stats.value(bags))
        shard = next(
            (candidate for candidate in (bag.shards if bag else ()) if candidate.node == key), None
        )
        if shard is None:
            return
        if shard.job is None:
            self.show_message("it has no job yet")
        else:
            self.context.open_job(*shard.job)

    def action_next_bag(self) -> None:
        all_bags = self.context.stats.value(bags)
        bag = self._chosen(all_bags)
        if all_bags is None or bag is None:
            return
        if len(all_bags) == 1:
            self.show_message("this is the only bag")
            return
        self.key = all_bags[(all_bags.index(bag) + 1) % len(all_bags)].key
        self._refresh_if_mounted()
