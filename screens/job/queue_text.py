"""What the schedd adds to the logs, in a line or two. Pure functions; ``now`` and the times of
the queue's word are seconds since the epoch."""

from __future__ import annotations

from typing import Final

from metlmon.pool.types import QueueSnapshot
from metlmon.snapshot.types import QueueRow
from metlmon.text import formatting
from metlmon.text.formatting import plain
from screens.widgets.spans import (
    ALARM,
    BOLD,
    DIM,
    MOVING,
    NOTE,
    Line,
    joined,
    line,
    packed,
    wrapped,
)

REASON: Final = 400
"""Characters of the negotiator's reason, and of the schedd's words on why it does not answer."""


def of_a_job(row: QueueRow | None, now: float, room: int, ascii: bool) -> list[Line]:
    """Priority, position, matches and the last rejection of a job, on a screen so wide; first
    of all that the queue has it in another state than the log."""
    if row is None:
        return []
    lines: list[Line] = []
    if row.differs is not None:
        told = f"! {plain(row.differs, REASON, ascii)}"
        lines += wrapped(told, room, ALARM, indent=1)
    parts = [
        line(("in the queue", DIM)),
        _position(row, ascii),
        line(("priority ", DIM), str(row.priority)),
        line(formatting.count(row.matches, "match", "matches", ascii=ascii)),
        line((f"asked {ago(row.asked, now, ascii)}", DIM)),
    ]
    lines += [line(" ") + each for each in packed([p for p in parts if p], line("   "), room)]
    if row.rejection is not None:
        when = "" if row.rejected_at is None else f" {ago(row.rejected_at, now, ascii)}"
        told = f"last rejected{when}: {plain(row.rejection, REASON, ascii)}"
        lines += wrapped(told, room, NOTE, indent=1)
    return lines


def in_short(row: QueueRow | None, now: float, ascii: bool) -> Line:
    """Of an idle job: its position and last rejection, the most telling first."""
    if row is None:
        return ()
    rejected: Line = ()
    if row.rejection is not None:
        when = "" if row.rejected_at is None else f" {ago(row.rejected_at, now, ascii)}"
        rejected = line((f"rejected{when}: ", DIM), (plain(row.rejection, REASON, ascii), NOTE))
    differs = line((plain(row.differs, REASON, ascii), ALARM)) if row.differs else ()
    return joined((differs, _position(row, ascii), rejected), line("   "))


def _position(row: QueueRow, ascii: bool) -> Line:
    if row.position is None:
        return ()
    place, of = (formatting.number(n, ascii) for n in (row.position, row.waiting))
    return line(("place ", DIM), (place, BOLD), f" of {of} idle")


def ago(when: float, now: float, ascii: bool) -> str:
    """``12 s ago``."""
    return f"{formatting.age(now - when, ascii)} ago"


def of_the_schedd(
    word: QueueSnapshot | None, none: str, now: float, room: int, ascii: bool
) -> list[Line]:
    """Who was asked, as whom and when; without an answer why, and when it is tried again.
    ``none``: why there is nobody to ask."""
    if word is None:
        return wrapped(f"not asked: {plain(none, REASON, ascii)}", room, DIM, indent=1)
    name = line((plain(word.schedd, 80, ascii), BOLD)) if word.schedd else ()
    version = line((plain(word.version or "", 60, ascii), DIM))
    user = line(("as ", DIM), plain(word.user, 60, ascii)) if word.user else ()
    who = [
        line(" ") + each
        for each in packed([p for p in (name, version, user) if p], line("   "), room)
    ]
    if word.error is not None:
        told = wrapped(f"no word: {plain(word.error, REASON, ascii)}", room, NOTE, indent=1)
        wait = None if word.next_try is None else max(0.0, word.next_try - now)
        again = "" if wait is None else f"asked again in {formatting.age(wait, ascii)}; "
        rest = f"{again}all that logs tell is shown"
        return [*who, *told, *wrapped(rest, room, DIM, indent=1)]
    if word.asked is None:
        return [*who, line(" ", ("asking the schedd" + ("..." if ascii else "…"), MOVING))]
    jobs = formatting.count(len(word.jobs), "job", ascii=ascii)
    there = line(
        f" {jobs} of this ensemble in the queue", (f"   {ago(word.asked, now, ascii)}", DIM)
    )
    return [*who, there]
