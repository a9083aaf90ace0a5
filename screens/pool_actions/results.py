"""Results of a pool action, job by job, as they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from metlmon.live.feed import Snapshot
from metlmon.pool.types import AS_THE_DAG_SAYS, DAG_ACTS, RunTarget, Target
from metlmon.tables.layout import Column, render_table
from metlmon.text import formatting
from metlmon.text.formatting import Colour, Symbol, Weight, plain
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    MOVING,
    NOTE,
    Line,
    justify,
    limit_lines,
    line,
    symbol_span,
    width,
    wrap,
    wrap_parts,
)
from screens.base.screens import DocumentScreen
from screens.pool_actions.running_action import (
    RESULT_SYMBOLS,
    TEXTS,
    RunningAction,
    summary,
)

ERROR_LINES: Final = 4

NOTE_TEXT: Final = "The screens show the result as soon as the log has it."

NO_RESULT_YET: Final = Symbol("·", "no answer yet", Colour.GREY, Weight.DIM)
NO_RESULT: Final = Symbol("–", "not answered", Colour.ORANGE)


class TargetResult(msgspec.Struct, frozen=True):
    """The result for a job or run; ``target`` None: for the DAG itself."""

    subject: str
    target: Target | RunTarget | None
    symbol: Symbol
    text: str = ""


def target_results(running: RunningAction) -> list[TargetResult]:
    """Return each target with its result, problems first."""
    # Copied once: the performing thread keeps appending.
    results = {result.subject: result for result in tuple(running.results)}
    targets: dict[str, Target | RunTarget | None] = {
        item.id: item for item in running.request.touched
    }
    if running.request.act in DAG_ACTS:
        # The result concerns the DAG, even if the target is DAGMan's own job.
        targets = dict.fromkeys(results or [running.request.dag or running.preview.subject])
    pending = NO_RESULT if running.ended else NO_RESULT_YET
    rows = []
    for subject, target in targets.items():
        result = results.get(subject)
        sign = pending if result is None else RESULT_SYMBOLS[result.code]
        rows.append(TargetResult(subject, target, sign, "" if result is None else result.text))
    problems = list(RESULT_SYMBOLS.values())[:-1]
    return sorted(rows, key=lambda row: [*problems, row.symbol].index(row.symbol))


class ResultsScreen(DocumentScreen):
    """Results of a running action. Leaving the screen does not stop it."""

    SCOPES: ClassVar[tuple[str, ...]] = ("below",)
    SHOWS_ENSEMBLE: ClassVar[bool] = False

    def __init__(self, running: RunningAction) -> None:
        super().__init__()
        self._running_action = running

    def show(self, update: Snapshot | None) -> None:
        room, running = self.app.size.width, self._running_action
        results = target_results(running)
        note = wrap(NOTE_TEXT, room - 2, DIM, indent=1)
        self.show_document(self._head(room - 2), _rows(results, room) if results else [], note)
        running.end_shown = running.end_shown or running.ended

    def _head(self, room: int) -> list[Line]:
        running = self._running_action
        title = f"{TEXTS[running.request.act].progress} {plain(running.preview.subject, 120)}"
        value = running.request.site if running.request.value is None else running.request.value
        if value is not None:
            title += " where the DAG says" if value == AS_THE_DAG_SAYS else f" to {value}"
        done = f"{len(running.results)} of {running.total} answered"
        incomplete = running.ended and len(running.results) < running.total
        right = line((done, NOTE if incomplete else MOVING))
        lines = [line(" ") + justify(line((plain(title, 200), BOLD)), right, room)]
        counts = summary(running.results)
        if counts:
            lines += [line(" ") + text for text in wrap_parts(counts, line("   "), room)]
        elif not running.ended:
            lines.append(line(" ", ("waiting for the schedd; esc leaves, it continues", DIM)))
        if running.error is not None:
            error = wrap(plain(running.error, 1000), room, ALARM, indent=1)
            lines += limit_lines(error, ERROR_LINES, room, 1)
        return [*lines, ()]


def _rows(results: list[TargetResult], room: int) -> list[Line]:
    """Return a line per target, with its message behind or, if long, below it."""
    head, *rows = render_table(_columns(results), results, room)
    lines = [head]
    for row, result in zip(rows, results, strict=True):
        text = plain(result.text, 1000)
        short = row + line("  ", (text, DIM))
        if not text or width(short) < room:
            lines.append(short)
        else:
            lines += [row, *wrap(text, room - 2, DIM, indent=6)]
    return lines


def _columns(results: Sequence[TargetResult]) -> list[Column[TargetResult]]:
    """Columns of results: of jobs, of runs (identified by name) or of a DAG."""
    only_dags = all(part.target is None for part in results)
    any_job = any(isinstance(part.target, Target) for part in results)
    any_run = any(part.target is not None and part.target.run is not None for part in results)

    def subject(part: TargetResult, _: int | None) -> Line:
        return line("" if isinstance(part.target, RunTarget) else plain(part.subject, 60))

    def run(part: TargetResult, _: int | None) -> Line:
        return line(plain(part.target.run or "", 24) if part.target else "")

    def epoch(part: TargetResult, _: int | None) -> Line:
        number = part.target.epoch if isinstance(part.target, Target) else None
        return line(formatting.epoch_text(number))

    columns = []
    if any_job:
        columns.append(Column("job", "JOB", subject, "right"))
    if only_dags:
        columns.append(Column("job", "DAG", subject))
    if any_run:
        columns.append(Column("run", "RUN", run, minimum=6, comfortable=10, maximum=24))
    if any_run and any_job:
        columns.append(Column("epoch", "EPOCH", epoch, "right"))
    return [*columns, Column("answer", "ANSWER", lambda part, _: symbol_span(part.symbol))]
