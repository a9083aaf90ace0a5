"""The Sources screen: DAGs, logs and their age, and all warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metlmon.model.model_state import Notice
from metlmon.snapshot.records import DagRow, LogRow, Snapshot, Status
from metlmon.snapshot.row_text import failed_nodes_text
from metlmon.text import formatting
from metlmon.text.formatting import dag_sign, directory_label, plain, seconds_ago
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    Line,
    crop_middle,
    justify,
    line,
    style_of,
    width,
    wrap,
)
from screens.base.screens import DocumentScreen, Sections, schedd_status_lines
from screens.overview import reading_progress

if TYPE_CHECKING:
    from metlmon.notify.delivery import Notifier


class SourcesScreen(DocumentScreen):
    """The DAGs, logs and warnings of the dagdir."""

    def show(self, update: Snapshot) -> None:
        room = self.app.size.width
        title = line(("Sources and warnings", BOLD), "   ")
        dagdir = plain(directory_label(str(self.context.feed.dagdir)))
        title += line((crop_middle(dagdir, max(1, room - 4 - width(title))), DIM))
        right: Line = ()
        if update.opened and not update.is_complete:
            right = reading_progress(update.progress, 0)
        sections = Sections()
        if update.opened:
            add_sources(sections, update.status, room)
            no_pool, now = self.context.opened.no_pool, self.context.now()
            queue = schedd_status_lines(self.context.queue, no_pool, now, room - 2)
            sections.add("Queue", queue, room)
            if self.context.absence.notifier is not None:
                sent = notification_lines(self.context.absence.notifier, room)
                sections.add("Notifications", sent, room)
        self.show_document([line(" ") + justify(title, right, room - 2), ()], sections.lines)


def notification_lines(notifier: Notifier, room: int) -> list[Line]:
    """Return where notifications are sent, and what was not sent."""
    lines = [line(" ", (plain(target, room), BOLD)) for target in notifier.targets]
    for problem in notifier.problems:
        lines += wrap(problem, room - 2, ALARM, indent=3)
    about = ", ".join(notifier.settings.about)
    return [*lines, *wrap(f"about: {about}", room - 2, DIM, indent=1)]


def add_sources(sections: Sections, status: Status, room: int) -> None:
    """Add the sections of all sources, warnings first."""
    warnings = [each for notice in status.warnings for each in _warning(notice, room)]
    title = formatting.count(len(status.warnings), "warning").capitalize()
    good = line(" ", ("Everything could be read.", GOOD))
    sections.add(title, warnings or [good], room)
    dags = [each for dag in status.dags for each in _dag(dag, status, room)]
    none = line(" ", ("There is no *.dag file in this directory.", DIM))
    sections.add(formatting.count(len(status.dags), "DAG"), dags or [none], room)
    widest = min(60, max((len(plain(log.file, 60)) for log in status.logs), default=0))
    logs = [each for log in status.logs for each in _log(log, status, widest, room)]
    none = line(" ", ("No event log yet: it is written when the first job is submitted.", DIM))
    sections.add(formatting.count(len(status.logs), "event log"), logs or [none], room)


def _warning(notice: Notice, room: int) -> list[Line]:
    location = plain(notice.file or "", 120)
    if notice.line is not None:
        location += f":{notice.line}"
    first = line(" ", (location, BOLD), "  " if location else "", (plain(notice.kind, 40), NOTE))
    return [first, *wrap(plain(notice.text, 1000), room - 2, indent=3)]


def _dag(dag: DagRow, status: Status, room: int) -> list[Line]:
    this_year = formatting.year_of(status.as_of)
    sign = dag_sign(dag.state, dag.nodes_failed)
    first = line(
        (f" {sign.glyph} ", style_of(sign)),
        (plain(dag.file, 120), BOLD),
        (f"  {sign.word}", style_of(sign)),
        ("   halted" if dag.halted else "", NOTE),
        (f"   {formatting.at_least(str(dag.nodes_done), dag.is_lower_bound)}", DIM),
        (f" of {dag.nodes_total} nodes done", DIM),
        (f", {failed_nodes_text(status, dag.nodes_failed)}" if dag.nodes_failed else "", NOTE),
        (f"   rescue file {dag.rescue}" if dag.rescue else "", DIM),
    )
    began = [formatting.moment(time, this_year) for time in dag.submissions[-6:]]
    earlier = "... " if len(dag.submissions) > 6 else ""
    facts = [f"DAGMan began {earlier}{', '.join(began)}"] if began else []
    facts += [f"ended {formatting.moment(dag.ended, this_year)}"] if dag.ended is not None else []
    lines = [first, *(wrap("   ".join(facts), room - 2, indent=3) if facts else [])]
    if dag.refused:
        lines.append(line("   ", (formatting.refused_submissions(dag.refused), NOTE)))
    if dag.hold is not None:
        since = formatting.moment(dag.hold.time, this_year)
        reason = f"on hold since {since}: {plain(dag.hold.reason or '', 300)}"
        lines += wrap(reason, room, indent=3)
        remedy = "[R] in Overview releases it (act release-dag)"
        lines.append(line((f"   its jobs keep running; {remedy}", DIM)))
    return lines


def _log(log: LogRow, status: Status, widest: int, room: int) -> list[Line]:
    ago = formatting.age(seconds_ago(status.as_of, log.last))
    age = line((f"   {ago} ago", MOVING)) if status.live and log.last else ()
    year = formatting.year_of(status.as_of)
    span = formatting.period(log.first, log.last, year)
    summary = line(
        f" {plain(log.file, 60):<{widest}}  ",
        f"{formatting.size(log.bytes):>8}  ",
        f"{formatting.count(log.events, 'event'):>14}",
    )
    times = line((f"   {span}", DIM)) + age
    return [summary + times] if width(summary + times) <= room else [summary, times]
