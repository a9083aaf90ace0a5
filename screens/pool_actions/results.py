"""What the schedd answers to an order, job by job, as the answers come."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from metlmon.live.feed import Snapshot
from metlmon.pool.types import AS_THE_DAG_SAYS, Target
from metlmon.text.formatting import plain
from screens.actions import bindings_of
from screens.base.column_layout import ColumnSpec, render_table
from screens.base.screens import SnapshotScreen, rule
from screens.pool_actions.running_action import DOING, ResultPart, RunningAction, parts, summary
from screens.widgets.document import Document
from screens.widgets.lines import StaticLines
from screens.widgets.spans import (
    ALARM,
    BOLD,
    DIM,
    MOVING,
    NOTE,
    Line,
    bounded,
    line,
    packed,
    spread,
    style_of,
    width,
    wrapped,
)

ERROR_LINES: Final = 4

REMARK: Final = "The screens show what came of it as soon as the log tells."


class ResultsScreen(SnapshotScreen):
    """An order under way. Leaving does not stop it."""

    SCOPES: ClassVar[tuple[str, ...]] = ("below",)
    IN_TIME: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("below")]

    def __init__(self, deed: RunningAction) -> None:
        super().__init__()
        self._deed = deed

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Document()
        yield StaticLines(id="note")
        yield self.keys()

    def show(self, update: Snapshot | None) -> None:
        room, ascii, document = self.app.size.width, self.ascii, self.query_one(Document)
        deed = self._deed
        self.query_one("#head", StaticLines).show(self._head(room - 2))
        told = parts(deed)
        document.show(_rows(told, room, ascii) if told else [])
        down = "v" if ascii else "↓"
        more = [line((f"{down} {document.below} more", DIM))] if document.below else []
        note = [rule(more, room, ascii), *wrapped(REMARK, room - 2, DIM, indent=1)]
        self.query_one("#note", StaticLines).show(note)
        deed.seen = deed.seen or deed.over

    def _head(self, room: int) -> list[Line]:
        deed, ascii = self._deed, self.ascii
        what = f"{DOING[deed.order.act]} {plain(deed.offer.subject, 120, ascii)}"
        given = deed.order.site if deed.order.value is None else deed.order.value
        if given is not None:
            what += " where the DAG says" if given == AS_THE_DAG_SAYS else f" to {given}"
        what = plain(what, 200, ascii)
        done = f"{len(deed.answers)} of {deed.total} answered"
        right = line((done, NOTE if deed.over and len(deed.answers) < deed.total else MOVING))
        lines = [line(" ") + spread(line((what, BOLD)), right, room, ascii)]
        counted = summary(deed.answers, ascii)
        if counted:
            lines += [line(" ") + each for each in packed(counted, line("   "), room)]
        elif not deed.over:
            lines.append(line(" ", ("waiting for the schedd; esc leaves, it goes on", DIM)))
        if deed.error is not None:
            error = wrapped(plain(deed.error, 1000, ascii), room, ALARM, indent=1)
            lines += bounded(error, ERROR_LINES, room, 1, ascii)
        return [*lines, ()]


def _rows(told: list[ResultPart], room: int, ascii: bool) -> list[Line]:
    """A line for each; what else was answered behind it, or below it where it is long."""
    head, *made = render_table(_specs(told, ascii), told, room, ascii)
    lines = [head]
    for each, part in zip(made, told, strict=True):
        text = plain(part.text, 1000, ascii)
        short = each + line("  ", (text, DIM))
        if not text or width(short) < room:
            lines.append(short)
        else:
            lines += [each, *wrapped(text, room - 2, DIM, indent=6)]
    return lines


def _specs(told: list[ResultPart], ascii: bool) -> list[ColumnSpec[ResultPart]]:
    def of_job(part: ResultPart) -> bool:
        return isinstance(part.target, Target)

    def subject(part: ResultPart, _: int | None) -> Line:
        # A run is told by its name, in a column of its own.
        told = part.subject if of_job(part) or part.target is None else ""
        return line(plain(told, 60, ascii))

    def run(part: ResultPart, _: int | None) -> Line:
        return line(plain(part.target.run or "", 24, ascii) if part.target else "")

    def epoch(part: ResultPart, _: int | None) -> Line:
        known = part.target is not None and of_job(part) and part.target.epoch is not None
        return line(str(part.target.epoch) if known and part.target else "")

    def answer(part: ResultPart, _: int | None) -> Line:
        return line((part.sign.text(ascii), style_of(part.sign)))

    of_dags = all(part.target is None for part in told)
    specs = [
        ColumnSpec("job", "DAG" if of_dags else "JOB", subject, "left" if of_dags else "right"),
        ColumnSpec("run", "RUN", run, least=6, soft=10, most=24),
        ColumnSpec("epoch", "EPOCH", epoch, "right"),
        ColumnSpec("answer", "ANSWER", answer),
    ]
    without = set() if any(map(of_job, told)) or of_dags else {"job", "epoch"}
    if not any(part.target is not None and part.target.run is not None for part in told):
        without |= {"run", "epoch"}
    return [spec for spec in specs if spec.name not in without]
