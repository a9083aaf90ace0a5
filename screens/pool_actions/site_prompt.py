"""Prompt for the site of jobs or epochs: typed, or chosen from a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

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


def known_sites(
    pool_sites: Sequence[SiteInfo],
    status: Status | None,
    epochs: Iterable[EpochRow],
    with_default: bool,
) -> dict[str, str]:
    """Return the selectable sites with a description: collector, DAG, past executions.

    ``with_default`` puts the entry :data:`DAG_DEFAULT` first.
    """
    about = {DAG_DEFAULT: "no longer elsewhere"} if with_default else {}
    for site in pool_sites:
        slots = formatting.count(site.slots, "slot")
        about[site.name] = ", ".join([slots, *site.gpus])
    targets = {row.target for row in epochs}
    for run in status.runs if status is not None else ():
        targets |= {part.target for part in (run.latest, run.gate) if part is not None}
    for name in sorted(filter(None, targets)):
        about.setdefault(name, "named in the DAG")
    for row in status.sites if status is not None else ():
        if row.site is not None:
            count = formatting.count(row.executions, "execution")
            about.setdefault(row.site, f"{count} so far")
    return about


class SitePrompt(Prompt):
    """Input of a site name; ``up`` and ``down`` go through the matching ones of ``sites``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "screen.back", show=False),
        Binding("up,shift+tab", "choose(-1)", show=False),
        Binding("down,tab", "choose(1)", show=False),
    ]

    def __init__(self, sites: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(id="value", hint="a site's name; up and down choose one")
        self._sites = sites
        self._typed = ""
        self._chosen: str | None = None

    def action_choose(self, step: int) -> None:
        """Insert the next matching site."""
        if self.value != self._chosen:
            self._typed = self.value
        names = list(self.matching())
        if not names:
            return
        index = names.index(self.value) + step if self.value in names else min(step, 0)
        self._chosen = self.value = names[index % len(names)]
        self.cursor_position = len(self.value)

    def matching(self) -> dict[str, str]:
        """The sites that contain the text, as it was typed before one was chosen."""
        needle = (self._typed if self.value == self._chosen else self.value).strip().lower()
        return {name: about for name, about in self._sites().items() if needle in name.lower()}


def site_lines(
    sites: Mapping[str, str], chosen: str, loading: bool, error: str | None
) -> list[Line]:
    """Render the sites around ``chosen``, and the state of the collector query."""
    names = list(sites)
    index = names.index(chosen) if chosen in names else 0
    first = max(0, min(index - MAX_SITES // 2, len(names) - MAX_SITES))
    visible = names[first : first + MAX_SITES]
    labels = [line((plain(name, 40), BOLD if name == chosen else PLAIN)) for name in visible]
    label_width = max(map(width, labels), default=0)
    lines = [
        line("▌" if name == chosen else " ")
        + fit(label, label_width, "left")
        + line((f"  {plain(sites[name], 80)}", DIM))
        for name, label in zip(visible, labels, strict=True)
    ]
    if len(names) > len(visible):
        lines.append(line((f" {len(names) - len(visible)} more; what is typed narrows them", DIM)))
    if loading:
        lines.append(line((" asking the collector…", DIM)))
    elif error is not None:
        lines.append(line((f" {plain(error, 200)}", NOTE)))
    elif not names:
        lines.append(line((" no site that is known has this in its name", DIM)))
    return lines
