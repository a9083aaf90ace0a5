"""Columns and cursor details of the profiles of pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from metlmon.snapshot.records import HOUR
from metlmon.stats.pool_profiles import PoolProfile, ProfileFigure
from metlmon.tables.layout import UNKNOWN_CELL, Column, Kind
from metlmon.text.formatting import clip, count, duration, gpu_short, moment, number, share
from metlmon.text.spans import ALARM, BAD, BOLD, DIM, PLAIN, Line, crop, join, line

NAME_LIMIT: Final = 40
ESTIMATED: Final = "~"
"""Before a figure that other pools have a part in."""

GAP: Final = line("   ")


def profile_columns(gpu_names: Mapping[str | None, str]) -> list[Column[Any]]:
    """The columns of profiles; ``gpu_names``: by GPU model as logged."""

    def gpu(row: PoolProfile) -> str:
        return gpu_names.get(row.pool.gpu or None) or gpu_short(row.pool.gpu or None)

    return [
        Column(
            "site",
            "POOL",
            pool_site,
            style=lambda row: BAD if row.excluded else PLAIN if row.pool.site else DIM,
            minimum=8,
            comfortable=14,
            maximum=40,
        ),
        Column(
            "gpu",
            "GPU",
            gpu,
            style=lambda row: PLAIN if row.pool.gpu else DIM,
            minimum=5,
            comfortable=8,
            maximum=20,
        ),
        Column("epochs", "EPOCHS", lambda row: row.epochs, Kind.COUNT),
        _figure_column("hours", "MEAN EPOCH", lambda row: row.hours, excludes=True),
        Column(
            "interval",
            "80 % INTERVAL",
            lambda row: "" if row.excluded else _interval(row.hours),
            align="right",
            style=DIM,
        ),
        _figure_column("wait", "MEAN WAIT", lambda row: row.wait),
        _figure_column("input", "MEAN INPUT", lambda row: row.transfer, drop=2),
        Column(
            "loss",
            "LOSS",
            lambda row: row.loss.value,
            Kind.SHARE,
            cell=lambda row, _: line(
                (_mark(row.loss) + share(row.loss.value, 1), DIM if row.loss.borrowed else PLAIN)
            ),
        ),
        Column("slots", "SLOTS", lambda row: row.slots, Kind.COUNT, drop=3),
        Column("borrowed", "BORROWED FROM", _sources, drop=1, style=DIM, maximum=60),
    ]


def _figure_column(
    name: str,
    title: str,
    figure_of: Callable[[PoolProfile], ProfileFigure | None],
    drop: int = 0,
    excludes: bool = False,
) -> Column[PoolProfile]:
    """A figure with its mark; ``excludes``: or that the pool is excluded."""

    def seconds(row: PoolProfile) -> float | None:
        figure = figure_of(row)
        return None if figure is None else figure.value * HOUR

    def cell(row: PoolProfile, _: int | None) -> Line:
        figure = figure_of(row)
        if excludes and row.excluded:
            return line(("excluded", ALARM))
        if figure is None:
            return UNKNOWN_CELL
        text = _mark(figure) + duration(figure.value * HOUR)
        return line((text, DIM if figure.borrowed else PLAIN))

    return Column(name, title, seconds, Kind.DURATION, drop=drop, cell=cell)


def pool_site(row: PoolProfile) -> str:
    """The site of a pool, and its annex."""
    annex = f" (annex {clip(row.pool.annex, NAME_LIMIT)})" if row.pool.annex else ""
    return (clip(row.pool.site, NAME_LIMIT) or "unknown") + annex


def exclusion(row: PoolProfile, item: str = "epoch") -> str:
    """Why a pool is excluded, and until when."""
    tried = f"one {item} tries it now"
    if row.probe_at is not None:
        tried = f"worth one {item} from {moment(row.probe_at)} on"
    return f"{row.excluded}; {tried}"


def profile_text(row: PoolProfile) -> str:
    """What the filter searches, in lower case."""
    parts = (row.pool.site or "unknown", row.pool.gpu, row.pool.annex, row.excluded)
    return "\n".join(parts).lower()


def _mark(figure: ProfileFigure) -> str:
    return ESTIMATED if figure.borrowed else ""


def _interval(figure: ProfileFigure | None) -> str:
    if figure is None:
        return ""
    return f"{duration(figure.low * HOUR)}–{duration(figure.high * HOUR)}"


def _sources(row: PoolProfile) -> str:
    """Whose figures have a part in those of a pool: ``A40 elsewhere, all pools``."""
    figures = (row.hours, row.wait, row.transfer, row.loss)
    known = dict.fromkeys(each.borrowed for each in figures if each is not None and each.borrowed)
    return ", ".join(clip(each, NAME_LIMIT) for each in known)


def profile_details(row: PoolProfile, room: int, item: str = "epoch") -> list[Line]:
    """The lines about one pool, its figures with what they are made of."""
    ended = row.loss.samples
    counts = f"{count(row.epochs, item)} of {count(row.starts, 'execution')}"
    running = f", {number(row.running)} running" if row.running else ""
    most = f"most at a time: {number(row.slots)}" if row.slots else ""
    first = line(" ", (f"{pool_site(row)} {gpu_short(row.pool.gpu or None)}", BOLD))
    lines = [join([first, line(counts + running), line((most, DIM))], GAP)]
    if row.excluded:
        lines.append(line(" ", ("excluded", ALARM), f": {exclusion(row, item)}"))
    hidden = 0 if row.hours is None else row.epochs - row.hours.samples
    samples = f"{item}s" + (f", without {number(hidden)} ⇄" if hidden else "")
    lines += [
        _details(f"{item} time", row.hours, samples, "unfinished", f"no completed {item}"),
        _details("queue wait", row.wait, "starts", "waiting", "nothing has started"),
        _details("input", row.transfer, "transfers", "", "no transfer was logged"),
    ]
    low, high = share(row.loss.low, 1), share(row.loss.high, 1)
    each = f", {duration(row.lost_hours * HOUR)} each" if row.lost_hours else ""
    lines.append(
        _label("loss")
        + line(
            share(row.loss.value, 1),
            (f" (80 % interval {low} to {high}) of {number(ended)} ended{each}", DIM),
            (_borrowed(row.loss), DIM),
        )
    )
    return [crop(each, room) for each in lines]


def _details(
    title: str, figure: ProfileFigure | None, samples: str, censored: str, none: str
) -> Line:
    if figure is None:
        return _label(title) + line((none, DIM))
    more = f", {number(figure.censored)} {censored}" if figure.censored else ""
    return _label(title) + line(
        duration(figure.value * HOUR),
        (f" (80 % interval {_interval(figure)}), {number(figure.samples)} {samples}{more}", DIM),
        (_borrowed(figure), DIM),
    )


def _borrowed(figure: ProfileFigure) -> str:
    return f"; borrows from {clip(figure.borrowed, NAME_LIMIT)}" if figure.borrowed else ""


def _label(title: str) -> Line:
    return line((f" {title:<11}", DIM))
