"""The columns of what has changed, and the texts beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from metlmon.health.changes import Change, ChangeKind
from metlmon.model.states import State
from metlmon.snapshot.records import Run
from metlmon.stats.estimates import Forecast
from metlmon.tables.estimates import approximate_text, eta_text
from metlmon.tables.layout import Column, Kind, dag_column, have_same_names, name_column, searched
from metlmon.text.formatting import (
    STATES,
    Colour,
    Symbol,
    Weight,
    clip_middle,
    count,
    epoch_number,
    moment,
    plain,
    year_of,
)

TEXT_LIMIT: Final = 400

SYMBOLS: Final[Mapping[ChangeKind, Symbol]] = {
    ChangeKind.FAILED: STATES[State.FAILED],
    ChangeKind.REMOVED: STATES[State.REMOVED],
    ChangeKind.HELD: STATES[State.HELD],
    ChangeKind.DAGMAN_ENDED: Symbol("◇", "DAGMan ended", Colour.ORANGE),
    ChangeKind.BAD_SITE: Symbol("▲", "site turned bad", Colour.VERMILLION, Weight.BOLD),
    ChangeKind.RELEASED: Symbol("◦", "released", Colour.BLUE),
    ChangeKind.DAGMAN_STARTED: Symbol("◆", "DAGMan started", Colour.SKY),
    ChangeKind.BEST: Symbol("★", "new best", Colour.GREEN),
    ChangeKind.FINISHED: Symbol("✓", "run finished", Colour.GREEN),
    ChangeKind.DONE: Symbol("✓", "done", Colour.GREEN),
    ChangeKind.JOB_DONE: Symbol("✓", "job done", Colour.GREEN),
    ChangeKind.SUBMITTED: Symbol("↗", "submitted", Colour.BLUE),
}


def what_text(change: Change, with_dag: bool = True) -> str:
    """The reason, or the epochs that are done, or the DAG."""
    text = plain(change.text, TEXT_LIMIT)
    first, last = change.first_epoch, change.last_epoch
    if not text and first is not None and last is not None:
        numbers = (epoch_number(first), epoch_number(last))
        return f"epoch {numbers[0]}" if first == last else f"epochs {numbers[0]}–{numbers[1]}"
    dag = plain(change.dag or "", TEXT_LIMIT) if with_dag else ""
    return ": ".join(filter(None, (dag, text)))


def who_text(change: Change) -> str:
    """The name of the only run, or the number of runs."""
    names = list(change.runs.values()) or [""]
    return clip_middle(names[0], 40) if len(names) == 1 else count(len(names), "run")


def columns(runs: Sequence[Run], this_year: int | None) -> list[Column[Change]]:
    """The columns of changes of an ensemble that has these runs."""
    dags = {run.key: run.dag for run in runs}

    def dag_of(row: Change) -> str:
        of_runs = {dags.get(key, "") for key in row.runs}
        return row.dag or (of_runs.pop() if len(of_runs) == 1 else "")

    same_names = have_same_names(runs)
    return [
        Column("when", lambda row: row.last, Kind.TIME, year=this_year),
        Column("what", lambda row: SYMBOLS[row.kind], Kind.STATE),
        Column("count", lambda row: row.number, Kind.COUNT),
        name_column("run", who_text, maximum=24, minimum=6),
        *([dag_column(dag_of, same_names)] if same_names else []),
        Column("why", partial(what_text, with_dag=not same_names), minimum=12),
    ]


def filter_text(change: Change) -> str:
    word = SYMBOLS[change.kind].word
    return searched(word, what_text(change), change.site, *change.runs.values())


def estimate_text(then: Forecast | None, now: Forecast) -> str:
    """``ETA 23 Oct (20–28 Oct), 2d later, was 21 Oct (18–26 Oct)``; empty if neither is known.

    ``then``: None if nothing had happened yet.
    """
    new, old = (
        None if each is None else each.completed_at or each.expected_end for each in (now, then)
    )
    if new is None and old is None:
        return ""
    seconds = (new - old).total_seconds() if new is not None and old is not None else 0.0
    moved = f"{approximate_text(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"
    texts = [_end_text(each) for each in (now, then) if each is not None]
    if len(texts) < 2 or texts[0] == texts[1]:
        return texts[0]
    parts = texts[0], moved if abs(seconds) >= 60 else "", f"was {texts[1].removeprefix('ETA ')}"
    return ", ".join(filter(None, parts))


def _end_text(forecast: Forecast) -> str:
    if forecast.completed_at is not None:
        return f"done {moment(forecast.completed_at, year_of(forecast.as_of))}"
    if forecast.remaining is None or forecast.as_of is None:
        return "ETA unknown"
    return f"ETA {eta_text(forecast.as_of, forecast.remaining, forecast.expected_end)}"
