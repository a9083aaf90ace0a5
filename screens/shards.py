"""The Shards screen: throughput, stragglers and remaining time of a bag."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from metlmon.snapshot.records import Snapshot
from metlmon.stats.shards import Bag, bags
from metlmon.tables import shards as shards_table
from metlmon.tables.layout import empty_text
from metlmon.text.spans import line
from screens.base.screens import ListScreen, how_to


class ShardsScreen(ListScreen):
    """The shards of one bag, most urgent first."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "bag", "below")
    ORDERS = (("what needs attention", None), "shard", "time", "site", "tries")

    def __init__(self) -> None:
        super().__init__()
        self.key: str | None = None

    # --- rendering --------------------------------------------------------------------------

    def show(self, update: Snapshot) -> None:
        all_bags = self.context.stats.value(bags)
        bag = self._chosen(all_bags)
        if bag is None or all_bags is None:
            self._nothing(all_bags, update)
            return
        room = self.app.size.width
        position = f"bag {all_bags.index(bag) + 1} of {len(all_bags)}" if len(all_bags) > 1 else ""
        head = shards_table.head(bag, position, room - 2)
        self.show_head([*(line(" ") + header_line for header_line in head), ()])
        shards = (
            sorted(bag.shards, key=shards_table.urgency) if not self.state.order else bag.shards
        )
        self.fill(
            shards_table.columns(bag),
            shards,
            lambda shard: shard.node,
            shards_table.filter_text,
            all_rows=bag.shards,
            noun="shard",
        )

    def _chosen(self, all_bags: tuple[Bag, ...] | None) -> Bag | None:
        """Return the selected bag; initially the first unfinished one."""
        if not all_bags:
            return None
        selected = next((bag for bag in all_bags if bag.key == self.key), None)
        if selected is None:
            selected = next((bag for bag in all_bags if not bag.is_complete), all_bags[0])
            self.key = selected.key
        return selected

    def _nothing(self, all_bags: tuple[Bag, ...] | None, update: Snapshot) -> None:
        if all_bags is None or not update.is_complete:
            text = empty_text("", "Bags appear when their DAG file is read.")
            self.show_nothing("Shards", text, "reading the DAG")
        else:
            text = how_to(shards_table.no_bag_lines(), self.app.size.width)
            self.show_nothing("Shards", text)

    def hidden_actions(self) -> Collection[str]:
        all_bags = self.context.stats.value(bags)
        one = all_bags is None or len(all_bags) < 2
        return {*super().hidden_actions(), *(("view",) if one else ())}

    # --- actions ------------------------------------------------------------------------------

    def open_row(self, key: str) -> None:
        shard = self.row(key)
        if shard is not None and shard.job is None:
            self.show_message("it has no job yet")
        elif shard is not None:
            self.context.open_screen("job", *shard.job)

    def action_view(self) -> None:
        all_bags = self.context.stats.value(bags)
        bag = self._chosen(all_bags)
        if all_bags is None or bag is None:
            return
        if len(all_bags) == 1:
            self.show_message("this is the only bag")
            return
        self.key = all_bags[(all_bags.index(bag) + 1) % len(all_bags)].key
        self._refresh_if_mounted()
