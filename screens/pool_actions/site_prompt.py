"""Prompt for the site of jobs or epochs: typed, or chosen from a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from metlmon.frozen import frozen
from metlmon.pool.types import SiteInfo
from metlmon.snapshot.types import EpochRow, Status
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import BOLD, DIM, NOTE, PLAIN, Line, fit, line, width
from screens.base.screens import Prompt

DAG_DEFAULT: Final = "as the DAG says"
"""Accepted instead of a site name, to undo an earlier choice of site."""

MAX_SITES: Final = 6
"""Maximum sites listed; the targets need the other lines."""


@frozen
class SiteChoice:
    """A selectable site and a description of it."""

    name: str
    description: str


def known_sites(
    pool_sites: Sequence[SiteInfo],
    status: Status | None,
    epochs: Iterable[EpochRow],
    with_default: bool,
) -> list[SiteChoice]:
    """List the selectable sites: collector, then DAG, then past executions.

    ``with_default`` puts the entry :data:`BACK` first.
    """
    about = {DAG_DEFAULT: "no longer elsewhere"} if with_default else {}
    for offer in pool_sites:
        slots = formatting.count(offer.slots, "slot")
        about[offer.name] = ", ".join([slots, *offer.gpus])
    targets = {target for row in epochs if (target := row.target)}
    for run in status.runs if status is not None else ():
        targets |= {run.latest.target} if run.latest is not None and run.latest.target else set()
        targets |= {run.gate.target} if run.gate is not None and run.gate.target else set()
    for name in sorted(targets):
        about.setdefault(name, "named in the DAG")
    for row in status.sites if status is not None else ():
        if row.site is not None:
            count = formatting.count(row.executions, "execution")
            about.setdefault(row.site, f"{count} so far")
    return [SiteChoice(name, text) for name, text in about.items()]


class SitePrompt(Prompt):
    """Input of a site name. ``up`` and ``down`` go through the matching ones of ``sites``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "screen.back", show=False),
        Binding("up,shift+tab", "choose(-1)", show=False),
        Binding("down,tab", "choose(1)", show=False),
    ]

    def __init__(self, sites: Callable[[], Sequence[SiteChoice]]) -> None:
        super().__init__(id="site", hint="a site's name; up and down choose one")
        self._sites = sites
        self._typed_text = ""
        self._chosen_site: str | None = None

    def action_choose(self, step: int) -> None:
        """Insert the next matching site."""
        names = [site.name for site in self.matching(self._sites())]
        if not names:
            return
        index = names.index(self.value) + step if self.value in names else min(step, 0)
        self._chosen_site = names[index % len(names)]
        self.value = self._chosen_site
        self.cursor_position = len(self.value)

    def set_typed_text(self, value: str) -> None:
        """Update the search text, unless the text was inserted by a choice."""
        if value != self._chosen_site:
            self._typed_text, self._chosen_site = value, None

    def matching(self, sites: Sequence[SiteChoice]) -> list[SiteChoice]:
        """Filter the sites by the typed text."""
        needle = self._typed_text.strip().lower()
        return [site for site in sites if needle in site.name.lower()]


def site_lines(
    sites: Sequence[SiteChoice], chosen: str, loading: bool, error: str | None
) -> list[Line]:
    """Render the sites around ``chosen``, and the state of the collector query."""
    names = [site.name for site in sites]
    index = names.index(chosen) if chosen in names else 0
    first = max(0, min(index - MAX_SITES // 2, len(sites) - MAX_SITES))
    visible = sites[first : first + MAX_SITES]
    names_shown = [line((plain(s.name, 40), BOLD if s.name == chosen else PLAIN)) for s in visible]
    name_width = max(map(width, names_shown), default=0)
    marker = "▌"
    lines = [
        line(marker if site.name == chosen else " ")
        + fit(name, name_width, "left")
        + line((f"  {plain(site.description, 80)}", DIM))
        for site, name in zip(visible, names_shown, strict=True)
    ]
    if len(sites) > len(visible):
        lines.append(line((f" {len(sites) - len(visible)} more; what is typed narrows them", DIM)))
    if loading:
        lines.append(line((" asking the collector…", DIM)))
    elif error is not None:
        lines.append(line((f" {plain(error, 200)}", NOTE)))
    elif not sites:
        lines.append(line((" no site that is known has this in its name", DIM)))
    return lines
