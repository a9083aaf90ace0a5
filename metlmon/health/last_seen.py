"""What has changed in an ensemble since its user last looked at it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from metlmon.config.user_state import read_state, state_path
from metlmon.model.states import State
from metlmon.snapshot.records import Run, Status
from metlmon.snapshot.row_text import counted_states
from metlmon.text.formatting import count, moment, number

PURPOSE: Final = "seen"

FINISHED: Final = "finished"

TROUBLE: Final[Mapping[State, str]] = {
    State.HELD: "held",
    State.FAILED: "failed",
    State.REMOVED: "removed",
}


class EnsembleSummary(Struct, frozen=True):
    """What can be compared of an ensemble: its progress, and the runs that need attention.

    ``seen_at``: when the user saw it, in the local time of this host. ``done``: epochs that are
    done, or nodes where no node is an epoch (``noun``). ``runs``: held, failed, removed or
    finished runs by key, and since when they are held. ``nodes``: the numbers of such nodes where
    there are no runs.
    """

    seen_at: datetime
    done: int
    noun: str
    runs: dict[str, tuple[str, datetime | None]] = {}
    nodes: dict[str, int] = {}


def summarize(status: Status, seen_at: datetime) -> EnsembleSummary:
    """The summary of a status that was seen at ``seen_at``, a local time without zone."""
    states = counted_states(status)
    # A name may have bytes that are not characters.
    keyed = ((run.key.encode(errors="backslashreplace").decode(), run) for run in status.runs)
    runs = {key: state for key, run in keyed if (state := _state(run)) is not None}
    nodes = {word: states.get(state, 0) for state, word in TROUBLE.items()}
    return EnsembleSummary(
        seen_at=seen_at,
        done=states.get(State.COMPLETED, 0),
        noun="epoch" if states is status.epoch_states else "node",
        runs=runs,
        nodes={} if status.runs else nodes,
    )


def _state(run: Run) -> tuple[str, datetime | None] | None:
    if run.epochs_total and run.epochs_done + run.epochs_skipped == run.epochs_total:
        return FINISHED, None
    word = TROUBLE.get(run.state)
    # A run that was released and is held again is held again, as a new entry.
    since = run.latest.since if run.latest is not None and run.state is State.HELD else None
    return None if word is None else (word, since)


def difference(before: EnsembleSummary | None, now: EnsembleSummary) -> str | None:
    """``since 14 Nov 08:14: 12 epochs done, 1 run held, 2 finished``.

    None if nothing of that has changed, and if nothing was seen before.
    """
    if before is None:
        return None
    parts = []
    if before.noun == now.noun and now.done > before.done:
        parts.append(f"{count(now.done - before.done, now.noun)} done")
    noun = "run" if now.runs else "" if parts else "node"
    for word in (*TROUBLE.values(), FINISHED):
        changed = sum(
            state[0] == word and state != before.runs.get(key) for key, state in now.runs.items()
        )
        changed = changed or max(0, now.nodes.get(word, 0) - before.nodes.get(word, 0))
        if changed:
            counted = count(changed, noun) if noun else number(changed)
            parts.append(f"{counted} {word}")
            noun = ""
    if not parts:
        return None
    return f"since {moment(before.seen_at, now.seen_at.year)}: {', '.join(parts)}"


def load_last_seen(dagdir: Path) -> EnsembleSummary | None:
    """What the user last saw of a dagdir; None if that is not known. Reads one small file."""
    return read_state(state_path(PURPOSE, dagdir), EnsembleSummary)
