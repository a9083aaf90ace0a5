"""Annexes as table rows, and the texts above and below them. Pure functions."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from metlmon.placement.types import ABSENT, Annex, AnnexReport, AnnexState, SiteLife
from metlmon.tables.layout import UNKNOWN_CELL, Column, Kind
from metlmon.text.formatting import (
    UNKNOWN,
    Colour,
    Symbol,
    count,
    duration,
    gpu_short,
    moment,
    number,
    plain,
    year_of,
)
from metlmon.text.spans import ALARM, BAD, BOLD, DIM, GOOD, NOTE, PLAIN, Line, TextStyle, line, wrap

NAME_LIMIT: Final = 40
TEXT_LIMIT: Final = 400

STATES: Final = {
    AnnexState.REQUESTED: Symbol("◌", "requested", Colour.GREY),
    AnnexState.PENDING: Symbol("◔", "pending", Colour.SKY),
    AnnexState.UP: Symbol("●", "up", Colour.GREEN),
    AnnexState.EXPIRING: Symbol("◕", "expiring", Colour.ORANGE),
    AnnexState.GONE: Symbol("·", "gone", Colour.GREY),
    AnnexState.NEVER_SEEN: Symbol("!", "never seen", Colour.ORANGE),
    AnnexState.UNKNOWN: Symbol("?", "unknown", Colour.GREY),
}

NOT_LOGGED: Final = Symbol("?", "not logged", Colour.GREY)
"""Stands for ``NEVER_SEEN`` where jobs started in some annex that the logs do not name."""

WHAT_IT_IS: Final = (
    "No annex is known here.",
    "An annex adds nodes of a supercomputer to your pool for some hours: its slots run only jobs "
    "that target it, and all of them leave when it expires.",
    "htcondor annex create NAME requests one; jobs target it with +TargetAnnexName = "
    '"NAME" (htcondor job submit --annex-name NAME does that). It is listed here from the '
    "request on. With ulog_execute_attrs = GLIDEIN_ResourceName, AnnexName in the submit "
    "description the logs show it, too.",
)
"""Paragraphs of an empty table."""


def state_symbol(row: Annex) -> Symbol:
    never_seen = row.state is AnnexState.NEVER_SEEN
    return NOT_LOGGED if never_seen and row.jobs_started else STATES[row.state]


def title(report: AnnexReport) -> str:
    """``2 annexes, 1 up``, or what is known from the logs alone."""
    if not report.annexes:
        return "no annex"
    up = sum(row.state in (AnnexState.UP, AnnexState.EXPIRING) for row in report.annexes)
    noun = count(len(report.annexes), "annex", "annexes")
    return f"{noun}, {number(up)} up" if report.asked else f"{noun}, inferred from the logs"


def warning_lines(report: AnnexReport, room: int | None = None) -> list[Line]:
    """The warnings, one line each, or wrapped to ``room`` cells."""
    lines = []
    for warning in report.annex_warnings:
        text = plain(warning, TEXT_LIMIT)
        parts = [line(text)] if room is None else wrap(text, room - 2)
        lines += [
            line(("  ", ALARM) if number else ("! ", ALARM), *part)
            for number, part in enumerate(parts)
        ]
    return lines


def columns(report: AnnexReport) -> list[Column[Annex]]:
    """The columns of annexes, without those for which nothing is known."""
    rows, this_year = report.annexes, year_of(report.as_of)

    def left_style(row: Annex) -> TextStyle:
        if row.state in ABSENT:
            return DIM
        return NOTE if row.state is AnnexState.EXPIRING else PLAIN

    found: list[Column[Annex]] = [
        Column(
            "name",
            lambda r: r.name,
            title="ANNEX",
            cell=_name,
            minimum=8,
            comfortable=12,
            maximum=28,
        ),
        Column("site", lambda r: _text(r.site), drop=4, minimum=6, maximum=24),
        Column("state", state_symbol, Kind.STATE),
        Column(
            "until",
            lambda r: r.alive_until,
            Kind.TIME,
            title="ALIVE UNTIL",
            write=lambda end: _until(end, report.as_of),
        ),
        Column("left", lambda r: r.seconds_left, Kind.DURATION, drop=1, style=left_style),
        Column("gpus", lambda r: r.gpus, Kind.COUNT, cell=_gpus),
        Column("model", lambda r: gpu_short(r.gpu) if r.gpu else None, title="GPU", drop=9),
        Column("nodes", lambda r: r.nodes, Kind.COUNT, drop=6, cell=_nodes),
        Column(
            "epochs",
            lambda r: len(r.epochs) or None,
            Kind.COUNT,
            align="left",
            drop=2,
            cell=_epochs,
        ),
        Column(
            "next",
            lambda r: {True: "fits", False: "too long", None: None}[r.next_fits],
            drop=1,
            style=lambda r: GOOD if r.next_fits else BAD,
        ),
        Column("idle", lambda r: r.jobs_idle, Kind.COUNT, drop=3),
        Column(
            "pressure",
            lambda r: r.pressure,
            Kind.NUMBER,
            doc="GPU-hours asked for, of those left",
            drop=5,
            style=lambda r: NOTE if (r.pressure or 0) > 1 else PLAIN,
            write=lambda pressure: f"{pressure:.1f}",
        ),
        Column(
            "balance",
            lambda r: r.balance,
            Kind.NUMBER,
            drop=7,
            write=lambda balance: number(round(balance)),
        ),
        Column(
            "answered",
            lambda r: r.answered_at,
            Kind.TIME,
            drop=8,
            style=DIM,
            write=lambda when: f"{when:%H:%M:%S}",
        ),
        Column(
            "expired",
            lambda r: r.expiries[-1] if r.expiries else None,
            Kind.TIME,
            drop=10,
            year=this_year,
        ),
    ]
    return [
        column
        for column in found
        if column.drop == 0 or any(column.draw(row) != UNKNOWN_CELL for row in rows)
    ]


def _until(end: datetime, as_of: datetime | None) -> str:
    """``14:03``, with the date if it is not today."""
    if as_of is None or end.date() != as_of.date():
        return moment(end, year_of(as_of))
    return f"{end:%H:%M}"


def _name(row: Annex, _: int | None) -> Line:
    name = plain(row.name, NAME_LIMIT) or "unnamed"
    mark = line((" inferred", DIM)) if row.inferred else ()
    return line((name, NOTE if row.warnings else PLAIN)) + mark


def _text(text: str) -> str | None:
    return plain(text, NAME_LIMIT) or None


def _gpus(row: Annex, _: int | None) -> Line:
    """``3/4``: busy, of all."""
    if row.gpus is None:
        return UNKNOWN_CELL
    busy = UNKNOWN if row.gpus_busy is None else number(row.gpus_busy)
    return line(f"{busy}/{number(row.gpus)}")


def _nodes(row: Annex, _: int | None) -> Line:
    """``2``, or ``2/3``: of those requested."""
    nodes = UNKNOWN if row.nodes is None else number(row.nodes)
    if row.nodes_requested is None:
        return UNKNOWN_CELL if row.nodes is None else line(nodes)
    return line(f"{nodes}/{number(row.nodes_requested)}")


def _epochs(row: Annex, _: int | None) -> Line:
    """``2 fit``, ``1 of 2 late``: of the epochs that run there."""
    late = sum(epoch.fits is False for epoch in row.epochs)
    if late:
        return line((f"{late} of {len(row.epochs)} late", BAD))
    word = "fit" if row.epochs_fit else "running"
    return line((f"{len(row.epochs)} {word}", GOOD)) if row.epochs else UNKNOWN_CELL


def site_columns(this_year: int | None) -> list[Column[SiteLife]]:
    """The columns of what the logs show of sites."""
    return [
        Column("site", lambda r: _text(r.site), minimum=8, maximum=28),
        Column("annex", lambda r: _text(r.annex), drop=1, maximum=28),
        Column("first", lambda r: r.first_start, Kind.TIME, title="FIRST START", year=this_year),
        Column("last", lambda r: r.last_start, Kind.TIME, title="LAST START", year=this_year),
        Column("running", lambda r: r.running, Kind.COUNT),
        Column(
            "expiries",
            lambda r: ", ".join(moment(time, this_year) for time in r.expiries[-3:]) or None,
            title="EXPIRED (INFERRED)",
            maximum=60,
        ),
    ]


def details(row: Annex | None, this_year: int | None) -> list[str]:
    """What the columns have no room for, except the warnings: one sentence each."""
    parts: list[str] = []
    if row is None:
        return parts
    for epoch in row.epochs:
        ends = "unknown" if epoch.seconds_left is None else duration(epoch.seconds_left)
        fits = {True: "fits", False: "does not fit", None: "end unknown"}[epoch.fits]
        parts.append(f"{epoch.run}: {ends} left, {fits}")
    if row.epoch_seconds is not None:
        parts.append(f"an epoch takes {duration(row.epoch_seconds)} there")
    if row.site_command:
        parts.append(f"another one, at the site: {row.site_command}")
    if row.pressure is not None:
        parts.append(f"pressure {row.pressure:.1f}: GPU-hours asked for, of those left")
    if row.allocation:
        left = "" if row.balance is None else f": {number(round(row.balance))} left"
        parts.append(f"allocation {row.allocation}{left}")
    if row.expiries:
        parts.append(f"expired {moment(row.expiries[-1], this_year)}")
    if row.first_start is not None:
        parts.append(
            f"jobs started there from {moment(row.first_start, this_year)} to "
            f"{moment(row.last_start, this_year)}"
        )
    if row.jobs_started:
        jobs = count(row.jobs_started, "job that targets it", "jobs that target it")
        parts.append(f"{jobs} started: ulog_execute_attrs = AnnexName shows where")
    if row.inferred:
        parts.append("inferred from the logs: neither schedd nor collector shows it")
    return [plain(part, TEXT_LIMIT) for part in parts]


def head_lines(report: AnnexReport) -> list[Line]:
    """The first line, and the warnings."""
    return [line((title(report), BOLD)), *warning_lines(report)]


def command_line(report: AnnexReport, command: str) -> Line:
    """The command to copy."""
    label = "another one: " if report.annexes else "request one: "
    return line((label, DIM), (plain(command, TEXT_LIMIT), BOLD))


def site_line(site_command: str) -> Line:
    """The command to run at the site, after the other one and the steps that it prints."""
    return line(("then at the site: ", DIM), plain(site_command, TEXT_LIMIT))
