"""Requests that would fit, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metlmon.stats.requests import RequestAdvice, amount_text, over_text, used_text
from metlmon.tables.layout import Column, Kind
from metlmon.text.formatting import UNKNOWN, plain
from metlmon.text.spans import BOLD, PLAIN

NAME_LIMIT: Final = 40

NOTE: Final = (
    "95 %, MOST: of epochs of usual length, of CPUs and GPUs the averages. NOW, WOULD FIT: as in "
    "submit files. OVER: completed jobs that used more than would fit."
)
GAIN_NOTE: Final = (
    "MORE SLOTS: of the pool, that match all that would fit, but not what is requested now."
)


def columns(rows: Sequence[RequestAdvice], item: str) -> list[Column[RequestAdvice]]:
    """The columns of a row for each request."""

    def fit(row: RequestAdvice) -> str:
        if row.suggested is not None:
            return amount_text(row, row.suggested)
        return UNKNOWN if row.fitting is None else "as it is"

    found = [
        Column[RequestAdvice](
            "submit_file",
            "SUBMIT FILE",
            lambda row: plain(row.submit or UNKNOWN, NAME_LIMIT),
            minimum=8,
            maximum=NAME_LIMIT,
            comfortable=12,
            drop=1,
        ),
        Column("request", "REQUEST", lambda row: row.command),
        Column("requested", "NOW", lambda row: amount_text(row, row.requested), align="right"),
        Column("used_95", "95 %", lambda row: used_text(row, row.used_95), align="right", drop=3),
        Column("used_most", "MOST", lambda row: used_text(row, row.used_most), align="right"),
        Column("measured", f"{item.upper()}S", lambda row: row.measured, Kind.COUNT),
        Column(
            "fits",
            "WOULD FIT",
            fit,
            align="right",
            style=lambda row: BOLD if row.suggested else PLAIN,
        ),
        Column("over", "OVER", over_text, align="right", drop=2),
    ]
    if any(row.slots for row in rows):
        found.append(Column("gain", "MORE SLOTS", lambda row: row.gain, Kind.SHARE, drop=4))
    return found
