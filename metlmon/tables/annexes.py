"""Annexes as table rows, and the texts above and below them. Pure functions."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from metlmon.placement.types import Annex, AnnexReport, AnnexState, SiteLife
from metlmon.tables.layout import UNKNOWN_CELL, Column, text_column
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
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    GOOD,
    NOTE,
    PLAIN,
    Line,
    line,
    symbol_span,
    wrap,
)

NAME_LIMIT: Final = 40
TEXT_LIMIT: Final = 400

STATES: Final = {
    AnnexState.REQUESTED: Symbol("◌", "requested", Colour.GREY),
    AnnexState.PENDING: Symbol("◔", "pending", Colour.SKY),
    AnnexState.UP: Symbol("●", "up", Colour.GREEN),
    AnnexState.EXPIRING: Symbol("◕", "expiring", Colour.ORANGE),
    AnnexState.GONE: Symbol("·", "gone", Colour.GREY),
    AnnexState.UNKNOWN: Symbol("?", "unknown", Colour.GREY),
}

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


def title(report: AnnexReport) -> str:
    """``2 annexes, 1 up``, or what the logs alone show."""
    if not report.annexes:
        return "no annex"
    up = sum(row.state in (AnnexState.UP, AnnexState.EXPIRING) for row in report.annexes)
    noun = count(len(report.annexes), "annex", "annexes")
    return f"{noun}, {number(up)} up" if report.asked else f"{noun}, inferred from the logs"


def warning_lines(report: AnnexReport, room: int | None = None) -> list[Line]:
    """The warnings, one line each, or wrapped to ``room`` cells."""
    lines = []
    for warning in report.warnings:
        text = plain(warning, TEXT_LIMIT)
        parts = [line(text)] if room is None else wrap(text, room - 2)
        lines += [
            line(("  ", ALARM) if number else ("! ", ALARM), *part)
            for number, part in enumerate(parts)
        ]
    return lines


def columns(report: AnnexReport) -> list[Column[Annex]]:
    """The columns of annexes: those of which something is known."""
    rows, this_year = report.annexes, year_of(report.as_of)
    found = [
        text_column("name", "ANNEX", _name, minimum=8, comfortable=12, maximum=28),
        text_column("site", "SITE", lambda r: _text(r.site), drop=4, minimum=6, maximum=24),
        text_column("state", "STATE", lambda r: symbol_span(STATES[r.state])),
        text_column("until", "ALIVE UNTIL", lambda r: _until(r, report.as_of), "right"),
        text_column("left", "LEFT", _left, "right", drop=1),
        text_column("gpus", "GPUS", _gpus, "right"),
        text_column("model", "GPU", lambda r: gpu_short(r.gpu) if r.gpu else None, drop=9),
        text_column("nodes", "NODES", _nodes, "right", drop=6),
        text_column("epochs", "EPOCHS", _epochs, drop=2),
        text_column("next", "NEXT", _next, drop=1),
        text_column("idle", "IDLE", lambda r: _number(r.jobs_idle), "right", drop=3),
        text_column("pressure", "PRESSURE", _pressure, "right", drop=5),
        text_column("balance", "BALANCE", _balance, "right", drop=7),
        text_column("answered", "ANSWERED", _answered, "right", drop=8, style=DIM),
        text_column("expired", "EXPIRED", lambda r: _expired(r, this_year), "right", drop=10),
    ]
    unknown = (UNKNOWN_CELL, None)
    return [
        column
        for column in found
        if column.drop == 0 or any(column.cell(row, None) not in unknown for row in rows)
    ]


def _until(row: Annex, as_of: datetime | None) -> str | None:
    """``14:03``, with the date if it is not today."""
    end = row.alive_until
    if end is None or as_of is None or end.date() != as_of.date():
        return None if end is None else moment(end, year_of(as_of))
    return f"{end:%H:%M}"


def _expired(row: Annex, this_year: int | None) -> str | None:
    return moment(row.expiries[-1], this_year) if row.expiries else None


def _name(row: Annex) -> Line:
    name = plain(row.name, NAME_LIMIT) or "unnamed"
    mark = line((" inferred", DIM)) if row.inferred else ()
    return line((name, NOTE if row.warnings else PLAIN)) + mark


def _text(text: str) -> str | None:
    return plain(text, NAME_LIMIT) or None


def _number(value: int | None) -> str | None:
    return None if value is None else number(value)


def _left(row: Annex) -> Line | None:
    if row.seconds_left is None:
        return None
    style = NOTE if row.state is AnnexState.EXPIRING else PLAIN
    return line((duration(row.seconds_left), DIM if row.state is AnnexState.GONE else style))


def _gpus(row: Annex) -> str | None:
    """``3/4``: busy, of all."""
    busy = _number(row.gpus_busy) or UNKNOWN
    return None if row.gpus is None else f"{busy}/{number(row.gpus)}"


def _nodes(row: Annex) -> str | None:
    """``2``, or ``2/3``: of those requested."""
    if row.nodes_requested is None:
        return _number(row.nodes)
    return f"{_number(row.nodes) or UNKNOWN}/{number(row.nodes_requested)}"


def _epochs(row: Annex) -> Line | None:
    """``2 fit``, ``1 of 2 late``: those that run there."""
    late = sum(epoch.fits is False for epoch in row.epochs)
    if late:
        return line((f"{late} of {len(row.epochs)} late", BAD))
    word = "fit" if row.epochs_fit else "running"
    return line((f"{len(row.epochs)} {word}", GOOD)) if row.epochs else None


def _next(row: Annex) -> Line | None:
    if row.next_fits is None:
        return None
    return line(("fits", GOOD)) if row.next_fits else line(("too long", BAD))


def _pressure(row: Annex) -> Line | None:
    if row.pressure is None:
        return None
    return line((f"{row.pressure:.1f}", NOTE if row.pressure > 1 else PLAIN))


def _balance(row: Annex) -> str | None:
    return None if row.balance is None else number(round(row.balance))


def _answered(row: Annex) -> str | None:
    return None if row.answered_at is None else f"{row.answered_at:%H:%M:%S}"


def site_columns(this_year: int | None) -> list[Column[SiteLife]]:
    """The columns of what the logs show of sites."""
    return [
        text_column("site", "SITE", lambda r: _text(r.site), minimum=8, maximum=28),
        text_column("annex", "ANNEX", lambda r: _text(r.annex), maximum=28, drop=1),
        text_column("first", "FIRST START", lambda r: moment(r.first_start, this_year), "right"),
        text_column("last", "LAST START", lambda r: moment(r.last_start, this_year), "right"),
        text_column("running", "RUNNING", lambda r: number(r.running), "right"),
        text_column(
            "expiries",
            "EXPIRED (INFERRED)",
            lambda r: ", ".join(moment(time, this_year) for time in r.expiries[-3:]) or None,
            maximum=60,
        ),
    ]


def details(row: Annex | None, this_year: int | None) -> list[str]:
    """What the columns do not have room for, without the warnings: one sentence each."""
    parts: list[str] = []
    if row is None:
        return parts
    for epoch in row.epochs:
        ends = "unknown" if epoch.seconds_left is None else duration(epoch.seconds_left)
        fits = {True: "fits", False: "does not fit", None: "end unknown"}[epoch.fits]
        parts.append(f"{epoch.run_name}: {ends} left, {fits}")
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
    """The command for the site, after the other one and the steps that it prints."""
    return line(("then at the site: ", DIM), plain(site_command, TEXT_LIMIT))
