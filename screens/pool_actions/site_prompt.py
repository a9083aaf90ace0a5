"""Choosing a site for jobs or epochs: by name, typed or taken from those that are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, cast

from textual.binding import Binding, BindingType

from metlmon.frozen import frozen
from metlmon.pool.types import SiteInfo
from metlmon.snapshot.types import EpochRow, Status
from metlmon.text import formatting
from metlmon.text.formatting import plain
from screens.base.screens import Prompt
from screens.widgets.spans import BOLD, DIM, NOTE, PLAIN, Line, fit, line, width

if TYPE_CHECKING:
    from screens.pool_actions.confirm import ConfirmScreen

BACK: Final = "as the DAG says"
"""Instead of a site's name, where an order to go elsewhere can be taken back."""

MAX_SITES: Final = 6
"""Lines for sites; what is touched needs the others."""


@frozen
class SiteChoice:
    """A site that may be meant, and what is known of it."""

    name: str
    about: str


def known_sites(
    offers: Sequence[SiteInfo],
    status: Status | None,
    epochs: Iterable[EpochRow],
    with_default: bool,
) -> list[SiteChoice]:
    """Those that the collector knows now, then those that the DAG names or that the ensemble ran
    at; with ``back`` the way back first."""
    about = {BACK: "no longer elsewhere"} if with_default else {}
    for offer in offers:
        slots = formatting.count(offer.slots, "slot", ascii=True)
        about[offer.name] = ", ".join([slots, *offer.gpus])
    named = {target for row in epochs if (target := row.target)}
    for run in status.runs if status is not None else ():
        named |= {run.latest.target} if run.latest is not None and run.latest.target else set()
        named |= {run.gate.target} if run.gate is not None and run.gate.target else set()
    for name in sorted(named):
        about.setdefault(name, "named in the DAG")
    for row in status.sites if status is not None else ():
        if row.site is not None:
            count = formatting.count(row.executions, "execution", ascii=True)
            about.setdefault(row.site, f"{count} so far")
    return [SiteChoice(name, text) for name, text in about.items()]


class SitePrompt(Prompt):
    """A site's name. ``up`` and ``down`` go through those that have what was typed in them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", show=False),
        Binding("up,shift+tab", "choose(-1)", show=False),
        Binding("down,tab", "choose(1)", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="site", hint="a site's name; up and down choose one")
        self._typed_text = ""
        self._chosen_site: str | None = None

    @property
    def _question(self) -> ConfirmScreen:
        return cast("ConfirmScreen", self.screen)

    def action_give_up(self) -> None:
        self._question.action_back()

    def action_choose(self, step: int) -> None:
        """Take the next of those that have what was typed in them."""
        names = [site.name for site in self.matching(self._question.sites)]
        if not names:
            return
        index = names.index(self.value) + step if self.value in names else min(step, 0)
        self._chosen_site = names[index % len(names)]
        self.value = self._chosen_site
        self.cursor_position = len(self.value)

    def typed(self, value: str) -> None:
        """The text has changed: by typing, or because one was chosen."""
        if value != self._chosen_site:
            self._typed_text, self._chosen_site = value, None

    def matching(self, sites: Sequence[SiteChoice]) -> list[SiteChoice]:
        """Those with what was typed in their names."""
        wanted = self._typed_text.strip().lower()
        return [site for site in sites if wanted in site.name.lower()]


def site_lines(
    sites: Sequence[SiteChoice], chosen: str, asking: bool, error: str | None, ascii: bool
) -> list[Line]:
    """Some of them, those around ``chosen``; and whether there may be more."""
    names = [site.name for site in sites]
    index = names.index(chosen) if chosen in names else 0
    first = max(0, min(index - MAX_SITES // 2, len(sites) - MAX_SITES))
    shown = sites[first : first + MAX_SITES]
    names_shown = [
        line((plain(s.name, 40, ascii), BOLD if s.name == chosen else PLAIN)) for s in shown
    ]
    name_width = max(map(width, names_shown), default=0)
    marker = ">" if ascii else "▌"
    lines = [
        line(marker if site.name == chosen else " ")
        + fit(name, name_width, "left", ascii)
        + line((f"  {plain(site.about, 80, ascii)}", DIM))
        for site, name in zip(shown, names_shown, strict=True)
    ]
    if len(sites) > len(shown):
        lines.append(line((f" {len(sites) - len(shown)} more; what is typed narrows them", DIM)))
    if asking:
        lines.append(line((f" asking the collector{'...' if ascii else '…'}", DIM)))
    elif error is not None:
        lines.append(line((f" {plain(error, 200, ascii)}", NOTE)))
    elif not sites:
        lines.append(line((" no site that is known has this in its name", DIM)))
    return lines
