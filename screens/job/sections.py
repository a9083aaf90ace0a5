"""The sections of the job screen, its states over time among them. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from metlmon.model.reasons import code_text, signal_text
from metlmon.model.states import TERMINAL, Outcome, State
from metlmon.snapshot.records import EventLine, Execution, Job, JobView, Transfer, UsageRow
from metlmon.stats.lineage import CheckpointOrigin
from metlmon.tables.layout import Column, Kind, render_table
from metlmon.tables.runs import site_and_target
from metlmon.text import formatting
from metlmon.text.formatting import OUTCOMES, STATES, Colour, Symbol, Weight, clip, plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    DIM,
    NOTE,
    Line,
    TextStyle,
    justify,
    line,
    style_of,
    width,
    wrap,
    wrap_parts,
)
from screens.base.screens import heading
from screens.overview.header import seconds_ago

REASON: Final = 4000
"""Maximum length of a reason in characters: one may contain a whole error log."""


NO_OUTPUT_IN_PAST: Final = "what it had written then is not known: its lines carry no times"


class OutputTail(Struct, frozen=True):
    """The end of an output file: its ``lines``, or the ``problem`` with reading it."""

    title: str
    name: str
    lines: tuple[str, ...]
    problem: str | None = None


class JobSections(Struct):
    """Lines with headings; ``sections`` are the indices of the headings."""

    lines: list[Line]
    sections: list[int]

    def add(self, title: str, body: Iterable[Line], room: int) -> None:
        """Add a section, unless it is empty."""
        lines = list(body)
        if not lines:
            return
        if self.lines:
            self.lines.append(())
        self.sections.append(len(self.lines))
        self.lines.append(heading(title, room))
        self.lines.extend(lines)


def build_sections(
    view: JobView,
    as_of: datetime | None,
    tails: Sequence[OutputTail],
    room: int,
    this_year: int | None = None,
    origin: CheckpointOrigin | None = None,
) -> JobSections:
    """All sections of a job; for a failed one, its output comes early.

    ``tails``: the ends of its output files, if they are shown here. ``this_year``: see
    :func:`metlmon.text.formatting.moment`. ``origin``: of the checkpoint of its epoch.
    """
    sections = JobSections([], [])
    row = view.job
    failed = row.state is State.FAILED
    sections.add("Why it is held", _hold(view, room), room)
    sections.add("Life", _indent(state_lines(row, as_of, room - 2, this_year)), room)
    title = formatting.count(len(row.executions), "execution")
    sections.add(title.capitalize(), _executions(row.executions, room, this_year), room)
    if origin is not None and origin.recorded:
        sections.add("Checkpoint", _indent(_checkpoint(row, origin)), room)
    if failed:
        _add_tails(sections, tails, room)
    sections.add("Transfers", _transfers(row, room, this_year), room)
    resources, used_in = "Resources", view.usage_execution
    if 0 < used_in < len(row.executions):
        resources = f"Resources of execution {used_in}, the newest that logged them"
    sections.add(resources, _usage(view.usage, room), room)
    sections.add("Events", _events(view, room, this_year), room)
    if not failed:
        _add_tails(sections, tails, room)
    return sections


def output_sections(tails: Sequence[OutputTail], room: int) -> JobSections:
    """The sections of the output files alone."""
    sections = JobSections([], [])
    _add_tails(sections, tails, room)
    return sections


def _add_tails(sections: JobSections, tails: Iterable[OutputTail], room: int) -> None:
    for tail in tails:
        name = plain(tail.name, 60)
        body = (
            [line(" ", (f"not shown: {plain(tail.problem, 200)}", DIM))]
            if tail.problem is not None
            else [line(" ", plain(text, room - 2)) for text in tail.lines]
        )
        title = f"{tail.title}  {name}" if name else tail.title
        sections.add(title, body or [line(" ", ("it is empty", DIM))], room)


def _indent(lines: Iterable[Line]) -> list[Line]:
    return [line(" ") + content for content in lines]


def _hold(view: JobView, room: int) -> list[Line]:
    row = view.job
    if row.state is not State.HELD:
        return []
    reason = clip(row.hold_reason or "The log gives no reason.", REASON)
    codes = "" if row.hold_code is None else f"   code {code_text(row.hold_code, row.hold_subcode)}"
    since = f"held for {formatting.duration(view.seconds)}"
    return [*wrap(reason, room - 2, BAD, indent=1), line(" ", (since, ALARM), (codes, DIM))]


def _checkpoint(row: Job, origin: CheckpointOrigin) -> list[Line]:
    """Which job made the checkpoint of the epoch, and from which checkpoint."""
    where = f" at {clip(origin.site, 40)}" if origin.site else ""
    if origin.job == (row.cluster, row.proc):
        execution = f" in its execution {origin.execution}" if origin.execution else ""
        made = line(f"made by this job{execution}{where}")
    elif origin.job is not None:
        made = line((f"made by job {formatting.job_id(*origin.job)}{where}, not by this one", NOTE))
    else:
        made = line(f"made{where} by a job that is not recorded")
    if not origin.parent_known:
        parent = "what it continues is not recorded"
    elif origin.parent is None:
        parent = "trained from scratch"
    elif origin.parent_epoch is None:
        parent = f"continues an unrecorded checkpoint, sha256 {origin.parent[:16]}…"
    else:
        parent = f"continues the checkpoint of epoch {formatting.epoch_text(origin.parent_epoch)}"
    file = plain((origin.file or "").rpartition("/")[2], 60)
    digest = f"sha256 {(origin.digest or '')[:16]}…, recorded in {file}"
    return [made, line(parent), line((digest, DIM))]


# --- tables in sections ---------------------------------------------------------------------


Numbered = tuple[int, Execution]


def _executions(rows: Sequence[Execution], room: int, this_year: int | None) -> list[Line]:
    if not rows:
        return [line(" ", ("It never ran.", DIM))]
    columns = _execution_columns(this_year)
    if not any(row.suspended for row in rows):
        columns = [column for column in columns if column.name != "suspended"]
    heading_line, *table = render_table(columns, list(enumerate(rows, 1)), room)
    lines = [heading_line]
    for content, row in zip(table, rows, strict=True):
        lines.append(content)
        if reason := _outcome_reason(row):
            lines += wrap(reason, room - 2, TextStyle(OUTCOMES[row.outcome].colour), indent=6)
    return lines


def _outcome_reason(row: Execution) -> str:
    if row.outcome is Outcome.GOOD:
        return ""
    parts = [plain(row.reason, REASON)] if row.reason else []
    if row.signal is not None:
        parts.append(signal_text(row.signal))
    elif row.return_value:
        parts.append(f"return value {row.return_value}")
    if row.code is not None:
        parts.append(f"(code {code_text(row.code, row.subcode)})")
    if row.uncertain:
        parts.append("(its end is not in the log; taken from the event that proves it)")
    return " ".join(parts)


def _execution_columns(this_year: int | None) -> list[Column[Numbered]]:
    return [
        Column("n", "#", lambda row: row[0], Kind.COUNT, style=DIM),
        Column("outcome", "OUTCOME", lambda row: OUTCOMES[row[1].outcome], Kind.STATE),
        Column("start", "START", lambda row: row[1].start, Kind.TIME, drop=1, year=this_year),
        Column("seconds", "TIME", lambda row: row[1].seconds, Kind.DURATION),
        Column(
            "suspended",
            "SUSPENDED",
            lambda row: row[1].suspended or "",
            Kind.DURATION,
            drop=6,
            style=NOTE,
        ),
        Column(
            "site",
            "SITE",
            lambda row: clip(row[1].site or "", 40) or None,
            drop=2,
            maximum=24,
            minimum=8,
        ),
        Column(
            "gpu",
            "GPU",
            lambda row: formatting.gpus(row[1].gpu, row[1].gpus),
            drop=3,
            maximum=20,
        ),
        Column("hours", "GPU-h", lambda row: row[1].gpu_hours, Kind.HOURS, drop=4),
        Column(
            "host",
            "HOST",
            lambda row: clip(row[1].host or "", 60),
            drop=5,
            style=DIM,
            maximum=44,
        ),
    ]


def _transfers(row: Job, room: int, this_year: int | None) -> list[Line]:
    lines = [line(" ") + _transfer(transfer, this_year) for transfer in row.transfers]
    if row.bytes_sent is not None or row.bytes_received is not None:
        sent, received = (formatting.size(row.bytes_sent), formatting.size(row.bytes_received))
        lines.append(line(" ", ("in all ", DIM), f"{received} received, {sent} sent"))
    return lines


_TRANSFER_STYLE: Final[Mapping[str, TextStyle]] = {
    "ok": TextStyle(Colour.GREEN),
    "aborted": NOTE,
    "unfinished": NOTE,
    "failed": NOTE,
    "in-flight": TextStyle(Colour.BLUE),
}


def _transfer(row: Transfer, this_year: int | None) -> Line:
    incoming = row.direction == "input"
    arrow = STATES[State.TRANSFERRING_INPUT if incoming else State.TRANSFERRING_OUTPUT].glyph
    outcome = clip(row.outcome, 12)
    queued = f"   queued {formatting.duration(row.queue_seconds)}" if row.queue_seconds else ""
    host = f"   {clip(_address(row.host), 48)}" if row.host else ""
    return line(
        f"{arrow} {'input ' if incoming else 'output'}  ",
        (f"{outcome:<10}", _TRANSFER_STYLE.get(row.outcome, TextStyle())),
        f"  {formatting.moment(row.start, this_year, seconds=True):>20}",
        f"  {formatting.duration(row.seconds):>6}",
        (queued + host, DIM),
    )


def _address(host: str) -> str:
    """``<3.88.128.244:9618?addrs=…>`` without the brackets and parameters."""
    return host.removeprefix("<").partition("?")[0].removesuffix(">")


def _usage(rows: Sequence[UsageRow], room: int) -> list[Line]:
    def name(row: UsageRow, _: int | None) -> Line:
        return line(clip(row.name, 24), (f" ({clip(row.unit, 10)})" if row.unit else "", DIM))

    def used(row: UsageRow, _: int | None) -> Line:
        exceeds = row.usage is not None and row.request is not None and row.usage > row.request
        return line((_amount(row.usage), BAD if exceeds and row.unit == "MB" else TextStyle()))

    columns: list[Column[UsageRow]] = [
        Column("name", "RESOURCE", lambda row: row.name, cell=name, maximum=28),
        Column("usage", "USED", lambda row: _known(row.usage), Kind.NUMBER, cell=used),
        Column("request", "REQUESTED", lambda row: _known(row.request), Kind.NUMBER, write=_amount),
        Column(
            "allocated",
            "ALLOCATED",
            lambda row: _known(row.allocated),
            Kind.NUMBER,
            write=_amount,
        ),
        Column(
            "assigned",
            "ASSIGNED",
            lambda row: clip(row.assigned or "", 80),
            drop=1,
            style=DIM,
            maximum=60,
        ),
    ]
    return render_table(columns, rows, room) if rows else []


def _known(value: float | None) -> float | str:
    return "" if value is None else value


def _amount(value: float | None) -> str:
    if value is None:
        return ""
    is_whole = abs(value) >= 1e15 or value == int(value)
    return formatting.number(int(value)) if is_whole else f"{value:.2f}"


# --- the timeline of events -----------------------------------------------------------------

_EVENT_SYMBOLS: Final[Mapping[int, Symbol]] = {
    0: Symbol("◦", "submitted", Colour.PLAIN),
    1: Symbol("▶", "executing", Colour.SKY),
    4: OUTCOMES[Outcome.EVICTED],
    5: Symbol("✓", "terminated", Colour.GREEN),
    7: OUTCOMES[Outcome.SHADOW_EXCEPTION],
    8: Symbol("»", "the job says", Colour.PLAIN),
    9: Symbol("⌫", "aborted", Colour.ORANGE),
    10: STATES[State.SUSPENDED],
    11: Symbol("▶", "unsuspended", Colour.SKY),
    12: STATES[State.HELD],
    13: Symbol("◦", "released", Colour.PLAIN),
    16: Symbol("◕", "post script ended", Colour.BLUE),
    21: Symbol("!", "remote error", Colour.ORANGE),
    22: STATES[State.DISCONNECTED],
    23: Symbol("▶", "reconnected", Colour.SKY),
    24: OUTCOMES[Outcome.RECONNECT_FAILED],
    34: STATES[State.SKIPPED],
}
_OTHER_EVENT: Final = Symbol("·", "", Colour.GREY, Weight.DIM)


DATED_WIDTH: Final = 110
"""From this width on, every event shows its date; else there is a line for each new day."""


def _events(view: JobView, room: int, this_year: int | None) -> list[Line]:
    lines: list[Line] = []
    previous: EventLine | None = None
    one_line_per_day = room < DATED_WIDTH
    for event in view.events:
        time = formatting.moment(event.time, this_year, seconds=True)
        day, _, clock = time.rpartition(" ")
        if one_line_per_day and (previous is None or previous.time.date() != event.time.date()):
            lines.append(line(" ", (day, DIM)))
        symbol = _event_symbol(event, view.job.state)
        word = symbol.word or clip(event.name.lower().replace("_", " "), 24)
        gap = seconds_ago(event.time, previous.time) if previous else None
        interval = f"+{formatting.duration(gap)}" if gap and gap >= 1 else ""
        prefix = line(
            " ",
            (clock if one_line_per_day else f"{time:>20}", DIM),
            (f" {interval:>8} ", DIM),
            (f" {symbol.glyph} {word:<17} ", style_of(symbol)),
        )
        damaged = line(("cut in the log  ", NOTE)) if event.damaged else ()
        text, indent = plain(event.text, REASON), width(prefix + damaged)
        first, *more = wrap(text, room, DIM, indent)
        lines += [prefix + damaged + first[1:], *more]
        previous = event
    if view.memory_updates:
        reports = formatting.count(view.memory_updates, "memory report")
        lines.append(line(" ", (f"and {reports}, not listed", DIM)))
    return lines


def _event_symbol(event: EventLine, state: State) -> Symbol:
    if event.number == 5 and state is State.FAILED:
        return Symbol("✗", "terminated", Colour.VERMILLION)
    if event.number == 40:
        incoming = "input" in event.text.lower()
        symbol = STATES[State.TRANSFERRING_INPUT if incoming else State.TRANSFERRING_OUTPUT]
        return Symbol(symbol.glyph, "transfer", symbol.colour)
    return _EVENT_SYMBOLS.get(event.number, _OTHER_EVENT)


# --- the states over time ---------------------------------------------------------------------

_TEXTURE: Final[Mapping[State, str]] = {
    State.IDLE: "░",
    State.TRANSFERRING_INPUT: "▒",
    State.STARTING: "▒",
    State.RUNNING: "█",
    State.TRANSFERRING_OUTPUT: "▓",
    State.HELD: "╳",
    State.SUSPENDED: "┄",
    State.DISCONNECTED: "┄",
}


class StateSpan(Struct, frozen=True):
    """A period of a job in one state, in seconds since its first event."""

    state: State
    start: float
    end: float


def spans_by_state(job: Job, as_of: datetime | None) -> list[StateSpan]:
    """The states of a job in order, up to its end or ``as_of``."""
    if not job.states:
        return []
    origin = job.states[0][0]
    spans: list[StateSpan] = []
    state, span_start = job.states[0][1], 0.0
    for when, next_state in job.states[1:]:
        seconds = seconds_ago(when, origin)
        if seconds is not None and seconds > span_start:
            spans.append(StateSpan(state, span_start, seconds))
            span_start = seconds
        # An event with an earlier time stamp does not move time backwards.
        state = next_state
    end = seconds_ago(as_of, origin)
    if state not in TERMINAL and end is not None and end > span_start:
        spans.append(StateSpan(state, span_start, end))
    return spans


def state_bar(state_spans: Sequence[StateSpan], cells: int) -> Line:
    """The spans as one bar; each cell shows the state that took most of its time."""
    if not state_spans or cells <= 0:
        return ()
    end = state_spans[-1].end
    spans: list[tuple[str, State]] = []
    for cell in range(cells):
        low, high = end * cell / cells, end * (cell + 1) / cells
        state = max(state_spans, key=lambda span: min(span.end, high) - max(span.start, low)).state
        character = _TEXTURE.get(state, "·")
        if spans and spans[-1][1] is state:
            spans[-1] = (spans[-1][0] + character, state)
        else:
            spans.append((character, state))
    return line(*((character, style_of(STATES[state])) for character, state in spans))


def state_lines(
    job: Job, as_of: datetime | None, cells: int, this_year: int | None = None
) -> list[Line]:
    """The bar, its start and end, and the total time in each state."""
    spans = spans_by_state(job, as_of)
    if not spans:
        return []
    start = job.states[0][0]
    last = as_of if job.state not in TERMINAL else job.states[-1][0]
    totals: dict[State, float] = {}
    for span in spans:
        totals[span.state] = totals.get(span.state, 0.0) + span.end - span.start
    parts = [
        line((STATES[state].text(), style_of(STATES[state])), " ", formatting.duration(seconds))
        for state, seconds in totals.items()
        if seconds >= 1
    ]
    ends = justify(
        line((formatting.moment(start, this_year, seconds=True), DIM)),
        line((formatting.moment(last, this_year, seconds=True), DIM)),
        cells,
    )
    return [state_bar(spans, cells), ends, *wrap_parts(parts, line("   "), cells)]


def facts(view: JobView, this_year: int | None) -> list[Line]:
    """Site, GPU, memory and submission time of a job, as parts of one line."""
    row, parts = view.job, []
    if row.site is not None:
        parts.append(site_and_target(row.site, row.target, view.off_target, None, state=row.state))
    elif row.target is not None:
        parts.append(line(("wants ", DIM), clip(row.target, 40)))
    if row.gpu is not None or row.gpus is not None:
        parts.append(line(formatting.gpus(row.gpu, row.gpus)))
    if row.memory_mb is not None:
        requested = (
            f" of {formatting.number(row.request_memory_mb)}" if row.request_memory_mb else ""
        )
        parts.append(line(("memory ", DIM), f"{formatting.number(row.memory_mb)}{requested} MB"))
    if row.submitted is not None:
        parts.append(line(("submitted ", DIM), formatting.moment(row.submitted, this_year)))
    return parts
