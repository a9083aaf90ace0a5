"""Results of a pool action, job by job, as they arrive."""

from __future__ import annotations

from typing import ClassVar, Final

from metlmon.live.feed import Snapshot
from metlmon.pool.types import AS_THE_DAG_SAYS
from metlmon.tables.layout import render_table
from metlmon.text.formatting import plain
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
    width,
    wrap,
    wrap_parts,
)
from screens.base.screens import DocumentScreen
from screens.pool_actions.columns import result_columns
from screens.pool_actions.running_action import (
    TEXTS,
    RunningAction,
    TargetResult,
    summary,
    target_results,
)

ERROR_LINES: Final = 4

NOTE_TEXT: Final = "The screens show the result as soon as the log has it."


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
    head, *rows = render_table(result_columns(results), results, room)
    lines = [head]
    for row, result in zip(rows, results, strict=True):
        text = plain(result.text, 1000)
        short = row + line("  ", (text, DIM))
        if not text or width(short) < room:
            lines.append(short)
        else:
            lines += [row, *wrap(text, room - 2, DIM, indent=6)]
    return lines
