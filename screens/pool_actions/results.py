"""Results of a pool action, job by job, as they arrive."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.live.feed import Snapshot
from metlmon.pool.types import AS_THE_DAG_SAYS, Target
from metlmon.tables.layout import Column, render_table
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
    style_of,
    width,
    wrap,
    wrap_parts,
)
from screens.actions import bindings_of
from screens.base.screens import SnapshotScreen, rule
from screens.pool_actions.running_action import (
    PROGRESS_LABELS,
    RunningAction,
    TargetResult,
    summary,
    target_results,
)
from screens.widgets.document import Document
from screens.widgets.lines import StaticLines

ERROR_LINES: Final = 4

NOTE_TEXT: Final = "The screens show what came of it as soon as the log tells."


class ResultsScreen(SnapshotScreen):
    """Results of a running action. Leaving the screen does not stop it."""

    SCOPES: ClassVar[tuple[str, ...]] = ("below",)
    SHOWS_ENSEMBLE: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("below")]

    def __init__(self, running: RunningAction) -> None:
        super().__init__()
        self._running_action = running

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Document()
        yield StaticLines(id="note")
        yield self.key_footer()

    def show(self, update: Snapshot | None) -> None:
        room, document = self.app.size.width, self.query_one(Document)
        running = self._running_action
        self.query_one("#head", StaticLines).show(self._head(room - 2))
        result_parts = target_results(running)
        document.show(_rows(result_parts, room) if result_parts else [])
        down = "↓"
        more = [line((f"{down} {document.lines_below} more", DIM))] if document.lines_below else []
        note = [rule(more, room), *wrap(NOTE_TEXT, room - 2, DIM, indent=1)]
        self.query_one("#note", StaticLines).show(note)
        running.end_shown = running.end_shown or running.ended

    def _head(self, room: int) -> list[Line]:
        running = self._running_action
        title = f"{PROGRESS_LABELS[running.request.act]} {plain(running.preview.subject, 120)}"
        value = running.request.site if running.request.value is None else running.request.value
        if value is not None:
            title += " where the DAG says" if value == AS_THE_DAG_SAYS else f" to {value}"
        title = plain(title, 200)
        done = f"{len(running.results)} of {running.total} answered"
        right = line(
            (done, NOTE if running.ended and len(running.results) < running.total else MOVING)
        )
        lines = [line(" ") + justify(line((title, BOLD)), right, room)]
        counts = summary(running.results)
        if counts:
            lines += [line(" ") + text for text in wrap_parts(counts, line("   "), room)]
        elif not running.ended:
            lines.append(line(" ", ("waiting for the schedd; esc leaves, it goes on", DIM)))
        if running.error is not None:
            error = wrap(plain(running.error, 1000), room, ALARM, indent=1)
            lines += limit_lines(error, ERROR_LINES, room, 1)
        return [*lines, ()]


def _rows(result_parts: list[TargetResult], room: int) -> list[Line]:
    """Return a line per target, with its message behind or, if long, below it."""
    head, *rows = render_table(_specs(result_parts), result_parts, room)
    lines = [head]
    for row, part in zip(rows, result_parts, strict=True):
        text = plain(part.text, 1000)
        short = row + line("  ", (text, DIM))
        if not text or width(short) < room:
            lines.append(short)
        else:
            lines += [row, *wrap(text, room - 2, DIM, indent=6)]
    return lines


def _specs(result_parts: list[TargetResult]) -> list[Column[TargetResult]]:
    def is_job(part: TargetResult) -> bool:
        return isinstance(part.target, Target)

    def subject(part: TargetResult, _: int | None) -> Line:
        # A run is identified by its name, in a column of its own.
        result_parts = part.subject if is_job(part) or part.target is None else ""
        return line(plain(result_parts, 60))

    def run(part: TargetResult, _: int | None) -> Line:
        return line(plain(part.target.run or "", 24) if part.target else "")

    def epoch(part: TargetResult, _: int | None) -> Line:
        has_epoch = part.target is not None and is_job(part) and part.target.epoch is not None
        return line(str(part.target.epoch) if has_epoch and part.target else "")

    def answer(part: TargetResult, _: int | None) -> Line:
        return line((part.symbol.text(), style_of(part.symbol)))

    only_dags = all(part.target is None for part in result_parts)
    specs = [
        Column("job", "DAG" if only_dags else "JOB", subject, "left" if only_dags else "right"),
        Column("run", "RUN", run, minimum=6, comfortable=10, maximum=24),
        Column("epoch", "EPOCH", epoch, "right"),
        Column("answer", "ANSWER", answer),
    ]
    without = set() if any(map(is_job, result_parts)) or only_dags else {"job", "epoch"}
    if not any(part.target is not None and part.target.run is not None for part in result_parts):
        without |= {"run", "epoch"}
    return [spec for spec in specs if spec.name not in without]
