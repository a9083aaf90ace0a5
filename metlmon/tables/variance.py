"""Where the differences between epoch times come from: one sentence, and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from metlmon.stats.variance import CLEAR_SHARE, MIN_SPREAD, Effect, PlaceFigures, Variation
from metlmon.tables.layout import Column, Kind
from metlmon.tables.usage import NAME_LIMIT, machine, site_name
from metlmon.text import formatting
from metlmon.text.spans import BOLD, DIM, Line, line

EFFECT_NAMES: Final[Mapping[Effect, str]] = {
    **{"gpu": "GPU model", "site": "site", "host": "host", "run": "run", "rest": "rest"}
}

CHOICES: Final[Mapping[Effect, str]] = {
    "gpu": "choose by GPU model",
    "site": "choose by site",
    "host": "choose by host",
    "run": "the runs differ most",
    "rest": "the place hardly matters",
}


def percents(variation: Variation) -> dict[Effect, str]:
    """The shares in whole per cent, which sum to 100 (the largest remainders are rounded up)."""
    exact = {e.effect: 100 * e.share for e in variation.shares if e.share is not None}
    whole = {effect: int(value) for effect, value in exact.items()}
    by_remainder = sorted(exact, key=lambda effect: whole[effect] - exact[effect])
    for effect in by_remainder[: 100 - sum(whole.values()) if whole else 0]:
        whole[effect] += 1
    return {effect: "<1 %" if not n and exact[effect] else f"{n} %" for effect, n in whole.items()}


def sentences(variation: Variation, item: str = "epoch") -> tuple[Line, ...]:
    """Where the differences come from, and what to choose by; the longest wording first."""
    if variation.missing is not None:
        return (line((f"Where {item} times differ is not known: {variation.missing}", DIM)),)
    shares = ", ".join(
        f"{EFFECT_NAMES[effect]} {percent}" for effect, percent in percents(variation).items()
    )
    choice = "no clear choice"
    if variation.choose_by is not None:
        choice = CHOICES[variation.choose_by]
    elif variation.spread is not None and variation.spread < MIN_SPREAD:
        choice = "hardly at all"
    elif (variation.between_numbers or 0.0) >= CLEAR_SHARE:
        between = formatting.share(variation.between_numbers or 0.0, 1)
        choice = f"unclear: {between} between {item} numbers"
    spread = f"{item.capitalize()} times vary by {formatting.share(variation.spread or 0.0, 1)}: "
    absent = [each.missing for each in variation.shares if each.missing is not None]
    missing = line((f"; {', '.join(absent)}", DIM)) if absent else ()
    short = line(shares, ": ", (choice, BOLD))
    return (line(spread) + short + missing, line(spread) + short, short, line(shares))


def intervals(variation: Variation) -> Line:
    """The 80 % intervals of the shares; empty if there are none."""
    known = ", ".join(
        f"{EFFECT_NAMES[e.effect]} {100 * (e.lower or 0):.0f}–{100 * (e.upper or 0):.0f} %"
        for e in variation.shares
        if e.share is not None
    )
    number = formatting.number(variation.epochs)
    if variation.without:
        number += f" of {formatting.number(variation.epochs + variation.without)}"
    return line((f"80 % intervals, {number} epochs: {known}", DIM)) if known else ()


def share_columns() -> list[Column[Any]]:
    """The columns of the shares, one row for each effect."""
    return [
        Column("effect", lambda row: EFFECT_NAMES[row.effect], title="Between"),
        Column("groups", lambda row: row.groups or None, Kind.COUNT, title="Number"),
        Column("share", attrgetter("share"), Kind.SHARE, title="Share"),
        Column("lower", attrgetter("lower"), Kind.SHARE, title="from", group="80 % interval"),
        Column("upper", attrgetter("upper"), Kind.SHARE, title="to", group="80 % interval"),
        Column("missing", lambda row: row.missing or "", title="Why not", drop=1),
    ]


def place_columns(model_names: Mapping[str | None, str]) -> list[Column[Any]]:
    """The columns of what may explain the epoch times of a GPU model at a site."""

    def used(name: str) -> Callable[[PlaceFigures], float | None]:
        def value(row: PlaceFigures) -> float | None:
            median: float | None = getattr(row, name).median
            return None if median is None else round(median, 2)

        return value

    def device(name: str) -> Callable[[PlaceFigures], str | None]:
        def value(row: PlaceFigures) -> str | None:
            known = [getattr(each, name) for each in row.devices]
            return ", ".join(f"{each:g}" for each in dict.fromkeys(known) if each) or None

        return value

    return [
        Column("gpu", lambda row: machine(model_names, row.gpu, row.gpus)),
        Column("site", lambda row: site_name(row.site, NAME_LIMIT)),
        Column("epochs", attrgetter("epochs"), Kind.COUNT),
        Column("cpus", used("cpus"), Kind.NUMBER, title="CPUS USED"),
        Column("gpus_used", used("gpus_used"), Kind.NUMBER, title="GPUS USED"),
        Column("transfer", attrgetter("transfer.median"), Kind.DURATION, title="INPUT"),
        Column("driver", device("driver"), align="right", drop=1),
        Column("clock", device("clock_mhz"), title="MHZ", align="right", drop=2),
        Column("capability", device("capability"), align="right", drop=3),
    ]
