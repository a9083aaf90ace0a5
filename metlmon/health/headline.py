"""The first line of health: what a header, ``metlmon status`` and notifications say."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from msgspec import Struct

from metlmon.health.kinds import KINDS
from metlmon.health.types import Health, Severity
from metlmon.text.formatting import count, hours, number, share

CALM: Final = "nothing held or failed"
NOTABLE_BADPUT: Final = 0.1
"""Share of badput from which it is mentioned although all is well."""
UNLOGGED: Final = "no event log of the jobs is here: only .dagman.out may say that one is held"


class Headline(Struct, frozen=True):
    """The first line of health.

    ``severity``: that of the worst entry, None if all is well. ``label``: STOPPED if runs are
    stopped, else empty. ``text``: the figures, or the worst entry. ``cause``: the worst entry if
    runs are stopped, the one with most badput if all is well; omitted, or on a second line, where
    the first has no room for it. ``others``: the number of further open entries above a note.
    """

    severity: Severity | None
    label: str
    text: str
    cause: str | None = None
    others: int = 0

    @property
    def line(self) -> str:
        """The complete headline in one line."""
        more = f" (and {number(self.others)} more)" if self.others else ""
        parts = [f"{self.label}  {self.text}" if self.label else self.text, self.cause or ""]
        return ": ".join(filter(None, parts)) + more


def health_headline(health: Health) -> Headline:
    """``STOPPED  10 of 10 runs · 206 epochs left · no job queued``, or the worst entry."""
    worst = health.worst
    serious = [e for e in health.open_entries if e.severity is not Severity.NOTE]
    others = max(0, len(serious) - 1)
    if health.runs_stopped:
        runs = f"{number(health.runs_stopped)} of {count(health.runs_total, 'run')}"
        parts = [runs, f"{count(health.epochs_left, health.item)} left"]
        if not health.jobs_queued:
            parts.append("no job queued")
        cause = (worst.heading or worst.text) if worst is not None else None
        return Headline(Severity.STOPPED, "STOPPED", " · ".join(parts), cause, others)
    if worst is None and health.unlogged:
        return Headline(Severity.NOTE, "", UNLOGGED)
    if worst is None:
        return _calm(health)
    return Headline(worst.severity, "", worst.text, None, others)


def _calm(health: Health) -> Headline:
    """The headline when all is well; with the badput and its main cause where there is much."""
    if health.badput <= NOTABLE_BADPUT * health.ended_hours:
        return Headline(None, "", CALM)
    by_kind = defaultdict[str, float](float)
    for entry in health.closed_entries:
        by_kind[entry.kind] += entry.gpu_hours
    kind, most = max(by_kind.items(), key=lambda item: item[1], default=("", 0.0))
    cause = None
    if 2 * most > health.badput:
        cause = f"mostly {KINDS[kind].title} ({hours(most)} {health.hour_unit})"
    lost = share(health.badput, health.ended_hours)
    return Headline(None, "", f"{CALM} · {lost} badput", cause)
