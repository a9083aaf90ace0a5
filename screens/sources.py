"""The Sources screen: DAGs, logs and their age, and all warnings."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.live.discovery import directory_shown
from metlmon.live.feed import Snapshot
from metlmon.snapshot.types import DagRow, LogRow, Notice, Status
from metlmon.text import formatting
from metlmon.text.formatting import dag_sign, plain
from screens.actions import bindings_of
from screens.base.screens import SnapshotScreen, heading, rule
from screens.job import queue_text
from screens.overview.header import reading, seconds_ago
from screens.widgets.document import Document
from screens.widgets.lines import StaticLines
from screens.widgets.spans import (
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    Line,
    line,
    spread,
    style_of,
    width,
    wrapped,
)


class SourcesScreen(SnapshotScreen):
    """The DAGs, logs and warnings of the dagdir."""

    SCOPES: ClassVar[tuple[str, ...]] = ("below",)
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("below")]

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Document()
        yield StaticLines(id="note")
        yield self.keys()

    def show(self, update: Snapshot | None) -> None:
        ascii, room = self.ascii, self.app.size.width
        document = self.query_one(Document)
        dagdir = plain(directory_shown(str(self.monitor.feed.dagdir)), 200, ascii)
        title = line(("What is read", BOLD), "   ", (dagdir, DIM))
        right: Line = ()
        if update is not None and update.progress.fraction < 1:
            right = reading(update.progress, 0, ascii)
        head = line(" ") + spread(title, right, room - 2, ascii)
        self.query_one("#head", StaticLines).show([head, ()])
        lines = [] if update is None else source_lines(update.status, room, ascii)
        if lines:
            queue = queue_text.of_the_schedd(
                self.monitor.word, self.monitor.options.no_desk, self.monitor.now(), room - 2, ascii
            )
            lines += [(), heading("Queue", room, ascii), *queue]
        document.show(lines)
        down = "v" if ascii else "↓"
        more = [line((f"{down} {document.below} more", DIM))] if document.below else []
        self.query_one("#note", StaticLines).show([rule(more, room, ascii)])


def source_lines(status: Status, room: int, ascii: bool) -> list[Line]:
    """Return the lines of all sources, warnings first."""
    lines: list[Line] = []
    count = len(status.warnings)
    lines.append(heading(formatting.count(count, "warning", ascii=ascii).capitalize(), room, ascii))
    if not count:
        lines.append(line(" ", ("Everything could be read.", GOOD)))
    for notice in status.warnings:
        lines.extend(_warning(notice, room, ascii))
    lines += [(), heading(formatting.count(len(status.dags), "DAG", ascii=ascii), room, ascii)]
    if not status.dags:
        lines.append(line(" ", ("There is no *.dag file in this directory.", DIM)))
    for dag in status.dags:
        lines.extend(_dag(dag, room, ascii))
    lines += [
        (),
        heading(formatting.count(len(status.logs), "event log", ascii=ascii), room, ascii),
    ]
    if not status.logs:
        lines.append(
            line(" ", ("No event log yet: it is written when the first job is submitted.", DIM))
        )
    widest = min(60, max((len(plain(log.file, 60, ascii)) for log in status.logs), default=0))
    for log in status.logs:
        lines.extend(_log(log, status, widest, room, ascii))
    return lines


def _warning(notice: Notice, room: int, ascii: bool) -> list[Line]:
    location = plain(notice.file or "", 120, ascii)
    if notice.line is not None:
        location += f":{notice.line}"
    first = line(
        " ", (location, BOLD), "  " if location else "", (plain(notice.kind, 40, ascii), NOTE)
    )
    return [first, *wrapped(plain(notice.text, 1000, ascii), room - 2, indent=3)]


def _dag(dag: DagRow, room: int, ascii: bool) -> list[Line]:
    sign = dag_sign(dag.state, dag.nodes_failed)
    rescue = f"   rescue file {dag.rescue}" if dag.rescue else ""
    first = line(
        " ",
        (sign.mark(ascii), style_of(sign)),
        " ",
        (plain(dag.file, 120, ascii), BOLD),
        "  ",
        (sign.word, style_of(sign)),
        ("   halted" if dag.halted else "", NOTE),
        (f"   {formatting.at_least(str(dag.nodes_done), dag.at_least, ascii)}", DIM),
        (f" of {dag.nodes_total} nodes done", DIM),
        (f", {dag.nodes_failed} failed" if dag.nodes_failed else "", NOTE),
        (rescue, DIM),
    )
    times = ", ".join(formatting.moment(time, ascii) for time in dag.submissions[-6:])
    lines = [first]
    if times:
        earlier = "... " if len(dag.submissions) > 6 else ""
        lines.append(line(("   DAGMan began ", DIM), f"{earlier}{times}"))
    if dag.refused:
        text = formatting.refused_submissions(dag.refused, ascii)
        lines.append(line("   ", (text, NOTE)))
    if dag.hold is not None:
        since = formatting.moment(dag.hold.time, ascii)
        reason = f"on hold since {since}: {plain(dag.hold.reason or '', 300, ascii)}"
        lines += wrapped(reason, room, indent=3)
        lines.append(line(("   its jobs run on; R lets DAGMan go on (act release-dag)", DIM)))
    if dag.ended is not None:
        lines.append(line(("   ended ", DIM), formatting.moment(dag.ended, ascii)))
    return lines


def _log(log: LogRow, status: Status, widest: int, room: int, ascii: bool) -> list[Line]:
    ago = formatting.age(seconds_ago(status.as_of, log.last), ascii)
    age = line((f"   {ago} ago", MOVING)) if status.live and log.last else ()
    span = f"{formatting.moment(log.first, ascii)} to {formatting.moment(log.last, ascii)}"
    summary = line(
        f" {plain(log.file, 60, ascii):<{widest}}  ",
        f"{formatting.size(log.bytes, ascii):>8}  ",
        f"{formatting.count(log.events, 'event', ascii=ascii):>14}",
    )
    times = line((f"   {span}", DIM)) + age
    return [summary + times] if width(summary + times) <= room else [summary, times]
