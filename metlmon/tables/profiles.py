"""Columns and cursor details of the profiles of pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from metlmon.snapshot.ledger import HOUR
from metlmon.stats.pool_profiles import PoolProfile, ProfileFigure
from metlmon.tables.layout import Column, text_column
from metlmon.text.formatting import count, duration, gpu_short, moment, number, plain, share
from metlmon.text.spans import ALARM, BAD, BOLD, DIM, PLAIN, Line, crop, join, line

NAME_LIMIT: Final = 40
ESTIMATED: Final = "~"
"""Before a figure that other pools have a part in."""

GAP: Final = line("   ")


def profile_columns(gpu_names: Mapping[str | None, str]) -> list[Column[Any]]:
    """The columns of profiles; ``gpu_names``: by GPU model as logged."""

    def name(row: PoolProfile) -> Line:
        return line((pool_site(row), BAD if row.excluded else PLAIN if row.pool.site else DIM))

    def gpu(row: PoolProfile) -> Line:
        known = gpu_names.get(row.pool.gpu or None) or gpu_short(row.pool.gpu or None)
        return line((known, PLAIN if row.pool.gpu else DIM))

    def loss(row: PoolProfile) -> Line:
        text = share(row.loss.value, 1)
        return line((_mark(row.loss) + text, DIM if row.loss.borrowed else PLAIN))

    return [
        text_column("site", "POOL", name, minimum=8, comfortable=14, maximum=40),
        text_column("gpu", "GPU", gpu, minimum=5, comfortable=8, maximum=20),
        text_column("epochs", "EPOCHS", lambda row: number(row.epochs), "right"),
        text_column("hours", "MEAN EPOCH", _hours, "right"),
        text_column(
            "interval",
            "80 % INTERVAL",
            lambda row: "" if row.excluded else _interval(row.hours),
            "right",
            style=DIM,
        ),
        text_column("wait", "MEAN WAIT", _figure(lambda row: row.wait), "right"),
        text_column("input", "MEAN INPUT", _figure(lambda row: row.transfer), "right", drop=2),
        text_column("loss", "LOSS", loss, "right"),
        text_column("slots", "SLOTS", lambda row: number(row.slots), "right", drop=3),
        text_column("borrowed", "BORROWED FROM", _sources, drop=1, style=DIM, maximum=60),
    ]


def pool_site(row: PoolProfile) -> str:
    """The site of a pool, and its annex."""
    annex = f" (annex {plain(row.pool.annex, NAME_LIMIT)})" if row.pool.annex else ""
    return (plain(row.pool.site, NAME_LIMIT) or "unknown") + annex


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


def _hours(row: PoolProfile) -> Line:
    if row.excluded:
        return line(("excluded", ALARM))
    return _figure(lambda row: row.hours)(row)


def _figure(get: Callable[[PoolProfile], ProfileFigure | None]) -> Callable[[PoolProfile], Line]:
    def cell(row: PoolProfile) -> Line:
        figure = get(row)
        if figure is None:
            return line((duration(None), DIM))
        text = _mark(figure) + duration(figure.value * HOUR)
        return line((text, DIM if figure.borrowed else PLAIN))

    return cell


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
    return ", ".join(plain(each, NAME_LIMIT) for each in known)


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
    return f"; borrows from {plain(figure.borrowed, NAME_LIMIT)}" if figure.borrowed else ""


def _label(title: str) -> Line:
    return line((f" {title:<11}", DIM))
