"""Queue information on a job, and the schedd's state, as lines. Pure functions.

``now`` and the times of the queue snapshot are seconds since the epoch.
"""

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
"""Maximum length in characters of the negotiator's reasons and the schedd's errors."""


def job_lines(row: QueueRow | None, now: float, room: int, ascii: bool) -> list[Line]:
    """Priority, position, matches and last rejection of a job, ``room`` cells wide.

    A difference between the states in queue and log comes first.
    """
    if row is None:
        return []
    lines: list[Line] = []
    if row.differs is not None:
        text = f"! {plain(row.differs, REASON, ascii)}"
        lines += wrapped(text, room, ALARM, indent=1)
    parts = [
        line(("in the queue", DIM)),
        _position(row, ascii),
        line(("priority ", DIM), str(row.priority)),
        line(formatting.count(row.matches, "match", "matches", ascii=ascii)),
        line((f"asked {ago(row.asked, now, ascii)}", DIM)),
    ]
    lines += [
        line(" ") + content
        for content in packed([part for part in parts if part], line("   "), room)
    ]
    if row.rejection is not None:
        time = "" if row.rejected_at is None else f" {ago(row.rejected_at, now, ascii)}"
        text = f"last rejected{time}: {plain(row.rejection, REASON, ascii)}"
        lines += wrapped(text, room, NOTE, indent=1)
    return lines


def short_line(row: QueueRow | None, now: float, ascii: bool) -> Line:
    """One line on an idle job: its difference to the log, position and last rejection."""
    if row is None:
        return ()
    rejected: Line = ()
    if row.rejection is not None:
        time = "" if row.rejected_at is None else f" {ago(row.rejected_at, now, ascii)}"
        rejected = line((f"rejected{time}: ", DIM), (plain(row.rejection, REASON, ascii), NOTE))
    differs = line((plain(row.differs, REASON, ascii), ALARM)) if row.differs else ()
    return joined((differs, _position(row, ascii), rejected), line("   "))


def _position(row: QueueRow, ascii: bool) -> Line:
    if row.position is None:
        return ()
    position, idle_jobs = (
        formatting.number(number, ascii) for number in (row.position, row.waiting)
    )
    return line(("place ", DIM), (position, BOLD), f" of {idle_jobs} idle")


def ago(time: float, now: float, ascii: bool) -> str:
    """The age of a time: ``12 s ago``."""
    return f"{formatting.age(now - time, ascii)} ago"


def of_the_schedd(
    word: QueueSnapshot | None, none: str, now: float, room: int, ascii: bool
) -> list[Line]:
    """The schedd, its version, our user and the time of the last query, or its error.

    ``none``: why there is no schedd.
    """
    if word is None:
        return wrapped(f"not asked: {plain(none, REASON, ascii)}", room, DIM, indent=1)
    name = line((plain(word.schedd, 80, ascii), BOLD)) if word.schedd else ()
    version = line((plain(word.version or "", 60, ascii), DIM))
    user = line(("as ", DIM), plain(word.user, 60, ascii)) if word.user else ()
    schedd_lines = [
        line(" ") + content
        for content in packed([part for part in (name, version, user) if part], line("   "), room)
    ]
    if word.error is not None:
        error_lines = wrapped(f"no word: {plain(word.error, REASON, ascii)}", room, NOTE, indent=1)
        wait = None if word.next_try is None else max(0.0, word.next_try - now)
        retry = "" if wait is None else f"asked again in {formatting.age(wait, ascii)}; "
        note = f"{retry}all that logs tell is shown"
        return [*schedd_lines, *error_lines, *wrapped(note, room, DIM, indent=1)]
    if word.asked is None:
        return [*schedd_lines, line(" ", ("asking the schedd" + ("..." if ascii else "…"), MOVING))]
    jobs = formatting.count(len(word.jobs), "job", ascii=ascii)
    summary = line(
        f" {jobs} of this ensemble in the queue", (f"   {ago(word.asked, now, ascii)}", DIM)
    )
    return [*schedd_lines, summary]
