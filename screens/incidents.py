"""The Incidents screen: notable events, and the advised next step."""

from __future__ import annotations

from typing import ClassVar, Final

from metlmon.live.feed import Snapshot
from metlmon.stats.incident_rules import Incident, IncidentSeverity
from metlmon.stats.incidents import IncidentList, incident_list, run_names
from metlmon.tables.layout import Column, text_column
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    GOOD,
    KEY,
    NOTE,
    Line,
    TextStyle,
    crop,
    justify,
    limit_lines,
    line,
    width,
    wrap,
)
from screens.base.list_screen import ListScreen, runs_cell
from screens.base.screens import padded

TEXT_LINES: Final = 3
ADVICE_LINES: Final = 2
"""Lines below the table; fixed, so that its height does not depend on the cursor."""

KIND_LABELS: Final = {
    "log-gap": "log gap",
    "log-damage": "log damaged",
    "disk-quota": "disk full",
    "evictions": "evictions",
    "removed": "removed",
    "stalled-transfer": "stalled",
    "held": "held",
    "exhausted": "retries exhausted",
    "script-failed": "PRE script",
    "submit-failed": "submission",
    "misdirected": "wrong site",
    "unserved": "unmatched",
    "configuration": "arguments",
}

SEVERITY_MARKS: Final = {
    IncidentSeverity.ALARM: ("■", ALARM),
    IncidentSeverity.WARNING: ("▲", NOTE),
    IncidentSeverity.NOTE: ("·", DIM),
}

SITE_KINDS: Final = frozenset({"evictions", "stalled-transfer", "misdirected", "unserved"})
"""Kinds that open the Sites screen."""


class IncidentsScreen(ListScreen):
    """All incidents, ongoing ones first, then the newest."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "below")
    ORDERS = (
        ("what lasts, then the newest", None),
        ("the worst", lambda incident: (-incident.severity, not incident.ongoing)),
        ("kind", lambda incident: (incident.kind,)),
    )

    def show(self, update: Snapshot | None) -> None:
        # The arguments of a training are in files written by its jobs.
        self.context.stats.watch_job_files()
        report = self.context.stats.value(incident_list)
        room = self.app.size.width
        self.show_head(head(report, room))
        self.fill(
            _columns(report, self.this_year),
            () if report is None else report.incidents,
            lambda incident: incident.key,
            lambda incident: _text(incident, report),
            empty=self._empty(report, update),
            noun="incident",
            details=lambda incident: incident_detail(incident, room),
        )

    def _empty(self, report: IncidentList | None, update: Snapshot | None) -> list[Line]:
        if report is None or update is None or update.progress.fraction < 1:
            return [line("  ", ("Incidents appear as the logs are read.", DIM))]
        return [
            line("  ", ("No incidents.", GOOD)),
            line("  ", ("Holes in the logs, full disks, many evictions at once, stalled", DIM)),
            line("  ", ("transfers, runs out of retries, targets without a match and", DIM)),
            line("  ", ("arguments that change between epochs would be listed here.", DIM)),
        ]

    def open_row(self, key: str) -> None:
        report = self.context.stats.value(incident_list)
        incident = next((i for i in (report.incidents if report else ()) if i.key == key), None)
        if incident is None:
            return
        if incident.kind in SITE_KINDS:
            self.context.open_screen("sites")
        elif len(incident.runs) == 1 and (incident.ongoing or len(incident.jobs) != 1):
            self.context.open_run(incident.runs[0])
        elif incident.jobs:
            self.context.open_job(*incident.jobs[0])
        elif incident.runs:
            self.context.open_run(incident.runs[0])
        else:
            self.context.open_screen("inputs")


def head(report: IncidentList | None, room: int) -> list[Line]:
    """Render the number of pressing incidents, and the worst of them."""
    title = line(("Incidents", BOLD), "   ")
    if report is None:
        return [line(" ") + title + line(("reading what happened", DIM)), ()]
    pressing, total = len(report.urgent), len(report.incidents)
    if pressing:
        style = ALARM if report.urgent[0].severity is IncidentSeverity.ALARM else NOTE
        first = line((f"{formatting.number(pressing)} open", style))
    else:
        first = line(("none open", GOOD))
    since_start = line((f"{formatting.number(total)} in total", DIM)) if total else ()
    fits = width(title + first) + width(since_start) + 3 <= room - 2
    lines = [line(" ") + justify(title + first, since_start if fits else (), room - 2)]
    if pressing:
        worst = line(("the worst: ", DIM), plain(report.urgent[0].text, 400))
        lines.append(line(" ") + crop(worst, room - 2))
    return [*lines, ()]


def incident_detail(incident: Incident | None, room: int) -> list[Line]:
    """Render the current incident in full, and the advised next step."""
    if incident is None:
        return [()] * (TEXT_LINES + ADVICE_LINES)
    text = wrap(plain(incident.text, 2000), room - 2, indent=1)
    advice = wrap(f"→ {plain(incident.advice, 600)}", room - 2, TextStyle(KEY.colour), indent=1)
    lines = limit_lines(text, TEXT_LINES, room - 2, 1)
    lines += limit_lines(advice, ADVICE_LINES, room - 2, 1)
    return padded(lines, TEXT_LINES + ADVICE_LINES)


# --- columns ------------------------------------------------------------------------------


def _text(incident: Incident, report: IncidentList | None) -> str:
    names = run_names(incident, report) if report is not None else ()
    parts = [incident.kind, KIND_LABELS.get(incident.kind, ""), incident.text, incident.site or ""]
    return "\n".join([*parts, *names]).lower()


def _columns(report: IncidentList | None, this_year: int | None) -> list[Column[Incident]]:
    def kind(incident: Incident, _: int | None) -> Line:
        glyph, style = SEVERITY_MARKS[incident.severity]
        return line((f"{glyph} {KIND_LABELS.get(incident.kind, incident.kind)}", style))

    def lasted(incident: Incident, _: int | None) -> Line:
        seconds = report.seconds.get(incident.key) if report is not None else None
        if incident.ongoing:
            return line(("ongoing", ALARM if incident.severity is IncidentSeverity.ALARM else NOTE))
        if seconds is None:
            return ()
        return line((formatting.age(seconds) if seconds >= 1 else "instant", DIM))

    def since(incident: Incident) -> str:
        return formatting.moment(incident.since, this_year) if incident.since else ""

    def runs(incident: Incident, room: int | None) -> Line:
        return runs_cell(() if report is None else run_names(incident, report), room)

    def what(incident: Incident, _: int | None) -> Line:
        return line((plain(incident.text, 400), BOLD if incident.ongoing else TextStyle()))

    return [
        Column("kind", "KIND", kind, minimum=9),
        text_column("since", "SINCE", since, "right", drop=2),
        Column("lasted", "FOR", lasted, "right", drop=3),
        Column("runs", "RUNS", runs, drop=4, minimum=4, comfortable=8, maximum=20),
        Column("what", "WHAT", what, minimum=24, comfortable=38, maximum=400),
    ]
