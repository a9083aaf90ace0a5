"""What is told of one job, section by section. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from metlmon.frozen import frozen
from metlmon.model.states import Outcome, State
from metlmon.snapshot.types import EventLine, ExecutionRow, JobRow, JobView, TransferRow, UsageRow
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, STATES, Colour, Symbol, Weight, plain
from screens.base.column_layout import ColumnSpec, render_table
from screens.base.screens import heading
from screens.job.state_bar import life
from screens.overview.header import seconds_ago
from screens.overview.table import place
from screens.widgets.spans import (
    ALARM,
    BAD,
    DIM,
    NOTE,
    Line,
    TextStyle,
    bounded,
    line,
    style_of,
    symbol_span,
    width,
    wrapped,
)

T = TypeVar("T")

REASON: Final = 4000
"""Characters of a reason "in full": a reason can hold a whole error log."""


@frozen
class OutputTail:
    """The end of an output file: its ``lines``, or why there are none (``problem``)."""

    title: str
    name: str
    lines: tuple[str, ...]
    problem: str | None = None


@dataclass(slots=True)
class JobSections:
    """Lines with headings; ``sections`` are the numbers of the headings' lines."""

    lines: list[Line]
    sections: list[int]

    def add(self, title: str, body: Iterable[Line], room: int, ascii: bool) -> None:
        """A section, unless it has nothing to say."""
        told = list(body)
        if not told:
            return
        if self.lines:
            self.lines.append(())
        self.sections.append(len(self.lines))
        self.lines.append(heading(title, room, ascii))
        self.lines.extend(told)


def story(
    view: JobView, as_of: datetime | None, read: Sequence[OutputTail], room: int, ascii: bool
) -> JobSections:
    """All that is known of a job, what matters most first: of a failed one that is what it
    wrote last. ``read`` are the ends of its output files, if they are to be told here."""
    made = JobSections([], [])
    row = view.row
    failed = row.state is State.FAILED
    made.add("Why it is held", _hold(row, room, ascii), room, ascii)
    made.add("Life", _indented(life(view, as_of, room - 2, ascii)), room, ascii)
    title = formatting.count(len(row.executions), "execution", ascii=ascii)
    made.add(title.capitalize(), _executions(row.executions, room, ascii), room, ascii)
    if failed:
        _tails(made, read, room, ascii)
    made.add("Transfers", _transfers(row, room, ascii), room, ascii)
    made.add("Resources", _usage(view.usage, room, ascii), room, ascii)
    made.add("Events", _events(view, room, ascii), room, ascii)
    if not failed:
        _tails(made, read, room, ascii)
    return made


def outputs(read: Sequence[OutputTail], room: int, ascii: bool) -> JobSections:
    """The ends of the output files alone."""
    made = JobSections([], [])
    _tails(made, read, room, ascii)
    return made


def _tails(story: JobSections, read: Iterable[OutputTail], room: int, ascii: bool) -> None:
    for tail in read:
        name = plain(tail.name, 60, ascii)
        body = (
            [line(" ", (f"not shown: {plain(tail.problem, 200, ascii)}", DIM))]
            if tail.problem is not None
            else [line(" ", plain(each, room - 2, ascii)) for each in tail.lines]
        )
        title = f"{tail.title}  {name}" if name else tail.title
        story.add(title, body or [line(" ", ("it is empty", DIM))], room, ascii)


def _indented(lines: Iterable[Line]) -> list[Line]:
    return [line(" ") + each for each in lines]


def _hold(row: JobRow, room: int, ascii: bool) -> list[Line]:
    if row.state is not State.HELD:
        return []
    why = plain(row.hold_reason or "The log gives no reason.", REASON, ascii)
    lines = wrapped(why, room - 2, BAD, indent=1)
    codes = _codes(row.hold_code, row.hold_subcode)
    since = f"held for {formatting.duration(row.seconds, ascii)}"
    return [*lines, line(" ", (since, ALARM), (f"   {codes}" if codes else "", DIM))]


def _codes(code: int | None, subcode: int | None) -> str:
    if code is None:
        return ""
    return f"code {code}" + ("" if subcode is None else f", subcode {subcode}")


# --- tables within the story ----------------------------------------------------------------


def _executions(rows: Sequence[ExecutionRow], room: int, ascii: bool) -> list[Line]:
    if not rows:
        return [line(" ", ("It never ran.", DIM))]
    numbered = list(enumerate(rows, 1))
    specs = _execution_specs(ascii)
    if not any(row.suspended for row in rows):
        specs = [spec for spec in specs if spec.name != "suspended"]
    made = render_table(specs, numbered, room, ascii)
    out = made[:1]
    for each, (_, row) in zip(made[1:], numbered, strict=True):
        out.append(each)
        why = _why(row, ascii)
        if why:
            out.extend(wrapped(why, room - 2, TextStyle(OUTCOMES[row.outcome].colour), indent=6))
    return out


def _why(row: ExecutionRow, ascii: bool) -> str:
    if row.outcome is Outcome.GOOD:
        return ""
    parts = [plain(row.reason, REASON, ascii)] if row.reason else []
    if row.signal is not None:
        parts.append(f"killed by signal {row.signal}")
    elif row.return_value:
        parts.append(f"return value {row.return_value}")
    if codes := _codes(row.code, row.subcode):
        parts.append(f"({codes})")
    if row.uncertain:
        parts.append("(its end is not in the log; taken from the event that proves it)")
    return " ".join(parts)


Numbered = tuple[int, ExecutionRow]


def _execution_specs(ascii: bool) -> list[ColumnSpec[Numbered]]:
    def of(name: str) -> Callable[[Numbered, int | None], Line]:
        return lambda thing, _: _execution_cell(name, *thing, ascii)

    return [
        ColumnSpec("n", "#", of("n"), "right"),
        ColumnSpec("outcome", "OUTCOME", of("outcome")),
        ColumnSpec("start", "START", of("start"), drop=1),
        ColumnSpec("seconds", "TIME", of("seconds"), "right"),
        ColumnSpec("suspended", "SUSPENDED", of("suspended"), "right", drop=6),
        ColumnSpec("site", "SITE", of("site"), drop=2, most=24, least=8),
        ColumnSpec("gpu", "GPU", of("gpu"), drop=3, most=20),
        ColumnSpec("hours", "GPU-h", of("hours"), "right", drop=4),
        ColumnSpec("host", "HOST", of("host"), drop=5, most=44),
    ]


def _execution_cell(name: str, n: int, row: ExecutionRow, ascii: bool) -> Line:
    made: Mapping[str, Line] = {
        "n": line((str(n), DIM)),
        "outcome": symbol_span(OUTCOMES[row.outcome], ascii),
        "start": line(formatting.moment(row.start, ascii)),
        "seconds": line(formatting.duration(row.seconds, ascii)),
        "suspended": line(
            (formatting.duration(row.suspended, ascii) if row.suspended else "", NOTE)
        ),
        "site": line(plain(row.site, 40, ascii) if row.site else formatting.unknown(ascii)),
        "gpu": line(formatting.gpus(row.gpu, row.gpus, ascii)),
        "hours": line(formatting.hours(row.gpu_hours, ascii)),
        "host": line((plain(row.host or "", 60, ascii), DIM)),
    }
    return made[name]


def _transfers(row: JobRow, room: int, ascii: bool) -> list[Line]:
    made = [line(" ") + _transfer(each, ascii) for each in row.transfers]
    if row.bytes_sent is not None or row.bytes_received is not None:
        sent, received = (
            formatting.size(row.bytes_sent, ascii),
            formatting.size(row.bytes_received, ascii),
        )
        made.append(line(" ", ("in all ", DIM), f"{received} received, {sent} sent"))
    return made


_TRANSFER_INK: Final[Mapping[str, TextStyle]] = {
    "ok": TextStyle(Colour.GREEN),
    "aborted": NOTE,
    "unfinished": NOTE,
    "in-flight": TextStyle(Colour.BLUE),
}


def _transfer(row: TransferRow, ascii: bool) -> Line:
    incoming = row.direction == "input"
    arrow = STATES[State.TRANSFERRING_INPUT if incoming else State.TRANSFERRING_OUTPUT].mark(ascii)
    outcome = plain(row.outcome, 12, ascii)
    queued = (
        f"   queued {formatting.duration(row.queue_seconds, ascii)}" if row.queue_seconds else ""
    )
    host = f"   {plain(_address(row.host), 48, ascii)}" if row.host else ""
    return line(
        f"{arrow} {'input ' if incoming else 'output'}  ",
        (f"{outcome:<10}", _TRANSFER_INK.get(row.outcome, TextStyle())),
        f"  {formatting.moment(row.start, ascii):<19}",
        f"  {formatting.duration(row.seconds, ascii):>9}",
        (queued + host, DIM),
    )


def _address(host: str) -> str:
    """``<3.88.128.244:9618?addrs=…>`` without what only HTCondor reads."""
    return host.removeprefix("<").partition("?")[0].removesuffix(">")


def _usage(rows: Sequence[UsageRow], room: int, ascii: bool) -> list[Line]:
    if not rows:
        return []

    def of(name: str) -> partial[Line]:
        return partial(_usage_cell, name, ascii)

    specs: list[ColumnSpec[UsageRow]] = [
        ColumnSpec("name", "RESOURCE", of("name"), most=28),
        ColumnSpec("usage", "USED", of("usage"), "right"),
        ColumnSpec("request", "REQUESTED", of("request"), "right"),
        ColumnSpec("allocated", "ALLOCATED", of("allocated"), "right"),
        ColumnSpec("assigned", "ASSIGNED", of("assigned"), drop=1, most=60),
    ]
    return render_table(specs, rows, room, ascii)


def _usage_cell(name: str, ascii: bool, row: UsageRow, width: int | None) -> Line:
    if name == "name":
        unit = f" ({plain(row.unit, 10, ascii)})" if row.unit else ""
        return line(plain(row.name, 24, ascii), (unit, DIM))
    if name == "assigned":
        return line((plain(row.assigned or "", 80, ascii), DIM))
    value: float | None = getattr(row, name)
    if value is None:
        return ()
    over = name == "usage" and row.request is not None and value > row.request and row.unit == "MB"
    whole = value == int(value) if abs(value) < 1e15 else True
    told = formatting.number(int(value), ascii) if whole else f"{value:.2f}"
    return line((told, BAD if over else TextStyle()))


# --- the timeline of events -----------------------------------------------------------------

_SIGNS: Final[Mapping[int, Symbol]] = {
    0: Symbol("◦", "i", "submitted", Colour.PLAIN),
    1: Symbol("▶", "R", "executing", Colour.SKY),
    4: OUTCOMES[Outcome.EVICTED],
    5: Symbol("✓", "+", "terminated", Colour.GREEN),
    7: OUTCOMES[Outcome.SHADOW_EXCEPTION],
    8: Symbol("»", '"', "the job says", Colour.PLAIN),
    9: Symbol("⌫", "D", "aborted", Colour.ORANGE),
    10: STATES[State.SUSPENDED],
    11: Symbol("▶", "R", "unsuspended", Colour.SKY),
    12: STATES[State.HELD],
    13: Symbol("◦", "i", "released", Colour.PLAIN),
    16: Symbol("◕", "P", "post script ended", Colour.BLUE),
    21: Symbol("!", "!", "remote error", Colour.ORANGE),
    22: STATES[State.DISCONNECTED],
    23: Symbol("▶", "R", "reconnected", Colour.SKY),
    24: OUTCOMES[Outcome.RECONNECT_FAILED],
    34: STATES[State.SKIPPED],
}
_OTHER: Final = Symbol("·", ".", "", Colour.GREY, Weight.DIM)


DATED: Final = 110
"""From this width on, every event has its date; else a line does wherever the day changes,
since what happened needs the cells more."""


REASONED: Final = frozenset({9, 12})
"""Events whose reason stands nowhere else once the job is out of that state: removed, held."""

REASON_LINES: Final = 6


def _events(view: JobView, room: int, ascii: bool) -> list[Line]:
    made: list[Line] = []
    before: EventLine | None = None
    by_day = room < DATED
    for event in view.events:
        when = formatting.moment(event.time, ascii)
        day, _, clock = when.partition(" ")
        if by_day and (before is None or before.time.date() != event.time.date()):
            made.append(line(" ", (day, DIM)))
        sign = _sign_of(event, view.row.state)
        word = sign.word or plain(event.name.lower().replace("_", " "), 24, ascii)
        gap = seconds_ago(event.time, before.time) if before else None
        later = f"+{formatting.duration(gap, ascii)}" if gap and gap >= 1 else ""
        start = line(
            " ",
            (clock if by_day else when, DIM),
            (f" {later:>12} ", DIM),
            (f" {sign.mark(ascii)} {word:<17} ", style_of(sign)),
        )
        damaged = line(("cut in the log  ", NOTE)) if event.damaged else ()
        text, indent = plain(event.text, REASON, ascii), width(start + damaged)
        lines: list[Line] = [line((text, DIM))]
        if event.number in REASONED:
            lines = bounded(wrapped(text, room, DIM, indent), REASON_LINES, room, indent, ascii)
            lines[0] = lines[0][1:]
        made += [start + damaged + lines[0], *lines[1:]]
        before = event
    if view.memory_updates:
        told = formatting.count(view.memory_updates, "memory report", ascii=ascii)
        made.append(line(" ", (f"and {told}, not listed", DIM)))
    return made


def _sign_of(event: EventLine, state: State) -> Symbol:
    if event.number == 5 and state is State.FAILED:
        return Symbol("✗", "X", "terminated", Colour.VERMILLION)
    if event.number == 40:
        incoming = "input" in event.text.lower()
        sign = STATES[State.TRANSFERRING_INPUT if incoming else State.TRANSFERRING_OUTPUT]
        return Symbol(sign.glyph, sign.letter, "transfer", sign.colour)
    return _SIGNS.get(event.number, _OTHER)


def facts(row: JobRow, ascii: bool) -> list[Line]:
    """Where the job is, on what, and with how much memory, as parts of one line."""
    made = []
    if row.site is not None:
        made.append(place(row.site, row.target, row.off_target, None, ascii, row.state))
    elif row.target is not None:
        made.append(line(("wants ", DIM), plain(row.target, 40, ascii)))
    if row.gpu is not None or row.gpus is not None:
        made.append(line(formatting.gpus(row.gpu, row.gpus, ascii)))
    if row.memory_mb is not None:
        of = (
            f" of {formatting.number(row.request_memory_mb, ascii)}"
            if row.request_memory_mb
            else ""
        )
        made.append(line(("memory ", DIM), f"{formatting.number(row.memory_mb, ascii)}{of} MB"))
    if row.submitted is not None:
        made.append(line(("submitted ", DIM), formatting.moment(row.submitted, ascii)))
    return made
