"""Queue information on a job, and the schedd's state, as lines. Pure functions.

``now`` and the times of the queue snapshot are seconds since the epoch.
"""

from __future__ import annotations

from typing import Final

from metlmon.pool.types import QueueSnapshot
from metlmon.snapshot.types import QueueRow
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    MOVING,
    NOTE,
    Line,
    join,
    line,
    wrap,
    wrap_parts,
)
from screens.base.context import AppContext

ROOMY_LINES: Final = 30
"""Height from which there is room for blank lines."""

REASON: Final = 400
"""Maximum length in characters of the negotiator's reasons and the schedd's errors."""


def job_lines(row: QueueRow | None, now: float, room: int) -> list[Line]:
    """Priority, position, matches and last rejection of a job, ``room`` cells wide.

    A difference between the states in queue and log comes first.
    """
    if row is None:
        return []
    lines: list[Line] = []
    if row.differs is not None:
        text = f"! {plain(row.differs, REASON)}"
        lines += wrap(text, room, ALARM, indent=1)
    parts = [
        line(("in the queue", DIM)),
        _position(row),
        line(("priority ", DIM), str(row.priority)),
        line(formatting.count(row.matches, "match", "matches")),
        line((f"asked {age_text(row.queried_at, now)}", DIM)),
    ]
    lines += [
        line(" ") + content
        for content in wrap_parts([part for part in parts if part], line("   "), room)
    ]
    if row.rejection is not None:
        time = "" if row.rejected_at is None else f" {age_text(row.rejected_at, now)}"
        text = f"last rejected{time}: {plain(row.rejection, REASON)}"
        lines += wrap(text, room, NOTE, indent=1)
    return lines


def short_line(row: QueueRow | None, now: float) -> Line:
    """One line on an idle job: its difference to the log, position and last rejection."""
    if row is None:
        return ()
    rejected: Line = ()
    if row.rejection is not None:
        time = "" if row.rejected_at is None else f" {age_text(row.rejected_at, now)}"
        rejected = line((f"rejected{time}: ", DIM), (plain(row.rejection, REASON), NOTE))
    differs = line((plain(row.differs, REASON), ALARM)) if row.differs else ()
    return join((differs, _position(row), rejected), line("   "))


def lines_below(
    context: AppContext, job: tuple[int, int] | None, name: str, height: int
) -> list[Line]:
    """The line below a table on an idle job (None: on none), after its name.

    On a screen of ``ROOMY_LINES`` the line is always there, so that the table keeps its height.
    """
    # Building the view of a job with thousands of events takes time and memory.
    view = None if job is None or context.queue is None else context.feed.job_view(*job)
    text = short_line(view.queue if view else None, context.now())
    if text:
        return [line(" ", (name, BOLD), "  ") + text]
    return [()] if height >= ROOMY_LINES and context.queue is not None else []


def _position(row: QueueRow) -> Line:
    if row.position is None:
        return ()
    position, idle_jobs = (formatting.number(number) for number in (row.position, row.waiting))
    return line(("place ", DIM), (position, BOLD), f" of {idle_jobs} idle")


def age_text(time: float, now: float) -> str:
    """The age of a time: ``12 s ago``."""
    return f"{formatting.age(now - time)} ago"


def schedd_status_lines(
    queue: QueueSnapshot | None, no_schedd_reason: str, now: float, room: int
) -> list[Line]:
    """The schedd, its version, our user and the time of the last query, or its error.

    ``no_schedd_reason``: why there is no schedd.
    """
    if queue is None:
        return wrap(f"not asked: {plain(no_schedd_reason, REASON)}", room, DIM, indent=1)
    name = line((plain(queue.schedd, 80), BOLD)) if queue.schedd else ()
    version = line((plain(queue.version or "", 60), DIM))
    user = line(("as ", DIM), plain(queue.user, 60)) if queue.user else ()
    schedd_lines = [
        line(" ") + content
        for content in wrap_parts(
            [part for part in (name, version, user) if part], line("   "), room
        )
    ]
    if queue.error is not None:
        error_lines = wrap(plain(queue.error, REASON), room, NOTE, indent=1)
        wait = None if queue.next_try is None else max(0.0, queue.next_try - now)
        retry = "" if wait is None else f"asked again in {formatting.age(wait)}; "
        note = f"{retry}only the logs are shown"
        return [*schedd_lines, *error_lines, *wrap(note, room, DIM, indent=1)]
    if queue.queried_at is None:
        return [*schedd_lines, line(" ", ("asking the schedd" + "…", MOVING))]
    jobs = formatting.count(len(queue.jobs), "job")
    summary = line(
        f" {jobs} of this ensemble in the queue", (f"   {age_text(queue.queried_at, now)}", DIM)
    )
    return [*schedd_lines, summary]
