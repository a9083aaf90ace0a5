"""Incidents: what happened that a person should know of, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.live.feed import Snapshot
from metlmon.stats.incidents import Incident, IncidentList, IncidentSeverity, found, names_of
from metlmon.text import formatting
from metlmon.text.formatting import plain
from screens.actions import bindings_of
from screens.base.column_layout import ColumnSpec, cells, columns, fit_columns
from screens.base.screens import ListScreen
from screens.widgets.footer import KeyFooter
from screens.widgets.lines import StaticLines
from screens.widgets.spans import (
    ALARM,
    BOLD,
    DIM,
    GOOD,
    KEY,
    NOTE,
    Line,
    TextStyle,
    bounded,
    crop,
    line,
    spread,
    width,
    wrapped,
)
from screens.widgets.table import Table, TableRow

TEXT_LINES: Final = 3
ADVICE_LINES: Final = 2
"""Always as many below the table, so that it keeps its height while the cursor moves."""

WORDS: Final = {
    "log-gap": "log gap",
    "log-damage": "log damaged",
    "disk-quota": "disk full",
    "evictions": "evictions",
    "removed": "removed",
    "stalled-transfer": "stalled",
    "held": "held",
    "exhausted": "retries up",
    "script-failed": "PRE script",
    "submit-failed": "submission",
    "misdirected": "misdirected",
    "unserved": "no machine",
    "configuration": "arguments",
}

SIGNS: Final = {
    IncidentSeverity.ALARM: ("■", "!", ALARM),
    IncidentSeverity.WARNING: ("▲", "*", NOTE),
    IncidentSeverity.NOTE: ("·", ".", DIM),
}

OF_A_SITE: Final = frozenset({"evictions", "stalled-transfer", "misdirected", "unserved"})
"""Kinds whose next question is how the sites do."""


class IncidentsScreen(ListScreen):
    """All incidents, what lasts first, then the newest."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("list", "below")]
    ORDERS = (
        ("what lasts, then the newest", None),
        ("the worst", lambda each: (-each.severity, not each.still)),
        ("kind", lambda each: (each.kind,)),
    )

    def keys(self) -> KeyFooter:
        """Without the way to itself."""
        return KeyFooter((*self.SCOPES, "everywhere"), without=("incidents",))

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield from self.foot()

    def show(self, update: Snapshot | None) -> None:
        # What a training was called with stands in files that it wrote.
        self.monitor.study.want_written()
        told = self.monitor.study.of(found)
        room, ascii = self.app.size.width, self.ascii
        self.query_one("#head", StaticLines).show(head(told, room, ascii))
        every = () if told is None else told.incidents
        kept = self.kept(every, lambda each: _text(each, told))
        specs = _specs(told, ascii)
        widths = fit_columns(specs, every, room)
        rows = [TableRow(each.key, partial(cells, specs, widths, each)) for each in kept]
        self.table.show(columns(specs, widths), rows, self._empty(told, update))
        under = next((each for each in kept if each.key == self.table.cursor), None)
        note = self.note(len(kept), len(every), noun="incident")
        self.query_one("#note", StaticLines).show([note, *below(under, room, ascii)])

    def _empty(self, told: IncidentList | None, update: Snapshot | None) -> list[Line]:
        if told is None or update is None or update.progress.fraction < 1:
            return [line("  ", ("Incidents appear as the logs are read.", DIM))]
        if told.incidents:
            return [line("  ", "No incident has this text."), line("  ", ("esc clears", DIM))]
        return [
            line("  ", ("Nothing out of the ordinary happened.", GOOD)),
            line("  ", ("Holes in the logs, full disks, many evictions at once, stalled", DIM)),
            line("  ", ("transfers, runs that stand still, targets that take no job and", DIM)),
            line("  ", ("arguments that change between epochs would be listed here.", DIM)),
        ]

    def open(self, key: str) -> None:
        told = self.monitor.study.of(found)
        each = next((i for i in (told.incidents if told else ()) if i.key == key), None)
        if each is None:
            return
        if each.kind in OF_A_SITE:
            self.monitor.action_sites()
        elif len(each.runs) == 1 and (each.still or len(each.jobs) != 1):
            self.monitor.open_run(each.runs[0])
        elif each.jobs:
            self.monitor.open_job(*each.jobs[0])
        elif each.runs:
            self.monitor.open_run(each.runs[0])
        else:
            self.monitor.action_inputs()


def head(told: IncidentList | None, room: int, ascii: bool) -> list[Line]:
    """How many matter now; then the worst of them."""
    title = line(("Incidents", BOLD), "   ")
    if told is None:
        return [line(" ") + title + line(("reading what happened", DIM)), ()]
    now, every = len(told.pressing), len(told.incidents)
    if now:
        how = ALARM if told.pressing[0].severity is IncidentSeverity.ALARM else NOTE
        first = line((formatting.count(now, "incident", ascii=ascii), how))
        first += line(f" {'matters' if now == 1 else 'matter'} now")
    else:
        first = line(("nothing is wrong now", GOOD))
    all_told = (
        line((f"{formatting.number(every, ascii)} since the beginning", DIM)) if every else ()
    )
    both = width(title + first) + width(all_told) + 3 <= room - 2
    lines = [line(" ") + spread(title + first, all_told if both else (), room - 2, ascii)]
    if now:
        lead = "the worst: "
        worst = line((lead, DIM), plain(told.pressing[0].text, 400, ascii))
        lines.append(line(" ") + crop(worst, room - 2, ascii))
    return [*lines, ()]


def below(each: Incident | None, room: int, ascii: bool) -> list[Line]:
    """The incident under the cursor in full, and what to do next."""
    if each is None:
        return [()] * (TEXT_LINES + ADVICE_LINES)
    text = wrapped(plain(each.text, 2000, ascii), room - 2, indent=1)
    told = bounded(text, TEXT_LINES, room - 2, 1, ascii)
    arrow = "> " if ascii else "→ "
    advice = wrapped(
        arrow + plain(each.advice, 600, ascii), room - 2, TextStyle(KEY.colour), indent=1
    )
    what = bounded(advice, ADVICE_LINES, room - 2, 1, ascii)
    lines = [*told, *what]
    return [*lines, *[()] * (TEXT_LINES + ADVICE_LINES - len(lines))]


# --- columns ------------------------------------------------------------------------------


def _text(each: Incident, told: IncidentList | None) -> str:
    names = names_of(each, told) if told is not None else ()
    parts = [each.kind, WORDS.get(each.kind, ""), each.text, each.site or "", *names]
    return "\n".join(parts).lower()


def _specs(told: IncidentList | None, ascii: bool) -> list[ColumnSpec[Incident]]:
    def kind(each: Incident, _: int | None) -> Line:
        glyph, letter, how = SIGNS[each.severity]
        return line((f"{letter if ascii else glyph} {WORDS.get(each.kind, each.kind)}", how))

    def since(each: Incident, _: int | None) -> Line:
        return line(f"{each.since:%Y-%m-%d %H:%M}" if each.since else "")

    def lasted(each: Incident, _: int | None) -> Line:
        seconds = told.seconds.get(each.key) if told is not None else None
        if each.still:
            return line(("still", ALARM if each.severity is IncidentSeverity.ALARM else NOTE))
        if seconds is None:
            return ()
        return line((formatting.age(seconds, ascii) if seconds >= 1 else "at once", DIM))

    def runs(each: Incident, room: int | None) -> Line:
        names: Sequence[str] = names_of(each, told) if told is not None else ()
        shown = " ".join(plain(name, 24, ascii) for name in names[:12])
        if room is not None and len(shown) > room and len(names) > 1:
            shown = formatting.count(len(names), "run", ascii=ascii)
        return line((shown, DIM))

    def what(each: Incident, _: int | None) -> Line:
        text = plain(each.text, 400, ascii)
        return line((text, BOLD if each.still else TextStyle()))

    return [
        ColumnSpec("kind", "KIND", kind, least=9),
        ColumnSpec("since", "SINCE", since, drop=2),
        ColumnSpec("lasted", "FOR", lasted, "right", drop=3),
        ColumnSpec("runs", "RUNS", runs, drop=4, least=4, soft=8, most=20),
        ColumnSpec("what", "WHAT", what, least=24, soft=38, most=400),
    ]
