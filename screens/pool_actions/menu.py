"""Menu of pool actions on the selection, with refusals, and their results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from textual.app import ComposeResult

from metlmon.live.feed import Snapshot
from metlmon.pool.types import (
    AS_THE_DAG_SAYS,
    DAG_ACTS,
    SITE_ACTS,
    ActionPreview,
    DagTarget,
    PoolAction,
    RunTarget,
    Target,
)
from metlmon.tables.layout import (
    Column,
    Kind,
    fit_columns,
    render_cells,
    render_table,
    table_columns,
)
from metlmon.text import formatting
from metlmon.text.formatting import Colour, Symbol, Weight, plain
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    KEY,
    MOVING,
    NOTE,
    PLAIN,
    Line,
    TextStyle,
    justify,
    limit_lines,
    line,
    width,
    wrap,
    wrap_parts,
)
from screens.base.screens import (
    HIDDEN_IN_MODALS,
    DocumentScreen,
    SnapshotScreen,
    hidden_below,
    padded,
    rule,
)
from screens.pool_actions.running_action import (
    IRREVERSIBLE,
    RESULT_SYMBOLS,
    TEXTS,
    PoolActionKeys,
    RunningAction,
    action_of,
    capitalized,
    is_possible,
    name_of,
    refusal_text,
    summary,
    target_text,
    undo_text,
    without_ruled_out,
)
from screens.widgets.line_widget import StaticLines
from screens.widgets.table import Table, TableRow

if TYPE_CHECKING:
    from screens.base.action_screen import ActionScreen

DETAIL_LINES: Final = 4
"""Always as many under the table, so that it keeps its height while the cursor moves."""


class MenuScreen(PoolActionKeys, SnapshotScreen):
    """Pool actions on the selection of the screen below; rebuilt with every snapshot."""

    SCOPES: ClassVar[tuple[str, ...]] = ("menu", "acts", "below")
    SHOWS_ENSEMBLE: ClassVar[bool] = False

    def __init__(self, origin: ActionScreen, initial: ActionPreview | None = None) -> None:
        super().__init__()
        self._origin = origin
        self._initial_key = None if initial is None else _key(initial)
        self._previews: Sequence[ActionPreview] = ()

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Table()
        yield StaticLines(id="note")
        yield self.key_footer()

    def hidden_actions(self) -> Collection[str]:
        return HIDDEN_IN_MODALS

    def show(self, update: Snapshot | None) -> None:
        room, table = self.app.size.width, self.query_one(Table)
        selection = self._origin.selection().description
        self._previews = without_ruled_out(self._origin.previews())
        self.show_head([line(" ", ("Act on ", DIM), (plain(selection, 60), BOLD)), ()])
        columns = _columns(self._previews)
        widths = fit_columns(columns, self._previews, room)
        rows = [
            TableRow(_key(preview), partial(render_cells, columns, widths, preview))
            for preview in self._previews
        ]
        # Keep the cursor detail right below the table on tall screens too.
        table.styles.max_height = len(rows) + 2
        table.show(table_columns(columns, widths), rows)
        if self._initial_key is not None:
            table.select(self._initial_key)
            self._initial_key = None
        parts = [*self.messages(), *hidden_below(table.rows_below)]
        self.show_note([rule(parts, room), *padded(self._details(room - 2), DETAIL_LINES)])

    def _details(self, room: int) -> list[Line]:
        """Return what the action under the cursor does, or why it is not possible."""
        preview = self._under_cursor()
        if preview is None:
            return []
        if not is_possible(preview):
            lines = wrap(f"not now: {refusal_text(preview, 1000)}", room, NOTE, indent=1)
            return limit_lines(lines, DETAIL_LINES, room, 1)
        effect = wrap(capitalized(preview.effect), room, indent=1)
        undo = wrap(undo_text(preview), room, DIM, indent=1) if preview.undo else []
        return [*limit_lines(effect, 2, room, 1), *limit_lines(undo, 2, room, 1)]

    def _under_cursor(self) -> ActionPreview | None:
        key = self.query_one(Table).cursor
        return next((preview for preview in self._previews if _key(preview) == key), None)

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        event.stop()
        self._refresh_if_mounted()

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        event.stop()
        self.action_choose()

    # --- choosing -------------------------------------------------------------------------

    def action_choose(self) -> None:
        preview = self._under_cursor()
        if preview is not None and is_possible(preview):
            self._origin.open_confirmation(preview)

    def request_action(self, *acts: PoolAction) -> None:
        """Open the confirmation; with several DAGs, move to the next matching row."""
        matching = [preview for preview in self._previews if preview.act in acts]
        possible = [preview for preview in matching if is_possible(preview)]
        if len(matching) == 1 and possible:
            self._origin.open_confirmation(possible[0])
        elif matching:
            keys, table = [_key(preview) for preview in possible or matching], self.query_one(Table)
            index = keys.index(table.cursor) if table.cursor in keys else -1
            table.select(keys[(index + 1) % len(keys)])

    def action_acts(self) -> None:
        self.context.go_back()

    def action_answers(self) -> None:
        if self.context.running_action is not None:
            self.context.push_screen(ResultsScreen(self.context.running_action))


def _key(preview: ActionPreview) -> str:
    # Halt and resume of one DAG share a row; its state decides which applies.
    return f"{action_of(preview.act).name}\n{preview.subject}"


def _columns(previews: Sequence[ActionPreview]) -> list[Column[ActionPreview]]:
    """Columns of the menu. With several DAGs, a refusal names its DAG."""
    several_dags = len({each.subject for each in previews if each.act in DAG_ACTS}) > 1

    def name_style(preview: ActionPreview) -> TextStyle:
        if not is_possible(preview):
            return DIM
        return ALARM if preview.act in IRREVERSIBLE else BOLD

    def targets(preview: ActionPreview) -> str:
        if is_possible(preview):
            return target_text(preview)
        one_dag = several_dags and preview.act in DAG_ACTS
        prefix = f"{plain(preview.subject, 40)}: " if one_dag else ""
        return f"✗ {prefix}{refusal_text(preview, 200)}"

    return [
        Column(
            "key",
            "KEY",
            lambda preview: action_of(preview.act).cap,
            style=lambda preview: KEY if is_possible(preview) else DIM,
        ),
        Column("name", "ACT", lambda preview: name_of(preview.act), style=name_style),
        Column(
            "what",
            "TOUCHES",
            targets,
            style=lambda preview: PLAIN if is_possible(preview) else DIM,
            minimum=20,
            comfortable=20,
        ),
    ]


# --- results ------------------------------------------------------------------------------

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
        item.id: None if isinstance(item, DagTarget) else item for item in running.request.touched
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
        if value is not None and running.request.act not in SITE_ACTS:
            title += " where the DAG says" if value == AS_THE_DAG_SAYS else f" to {value}"
        done = f"{len(running.results)} of {running.total} answered"
        incomplete = running.ended and len(running.results) < running.total
        right = line((done, NOTE if incomplete else MOVING))
        lines = [line(" ") + justify(line((plain(title, 200), BOLD)), right, room)]
        counts = summary(running.results)
        if counts:
            lines += [line(" ") + text for text in wrap_parts(counts, line("   "), room)]
        elif not running.ended:
            lines.append(line(" ", ("waiting for the schedd; [esc] leaves, it continues", DIM)))
        if running.error is not None:
            error = wrap(plain(running.error, 1000), room, ALARM, indent=1)
            lines += limit_lines(error, ERROR_LINES, room, 1)
        return [*lines, ()]


def _rows(results: list[TargetResult], room: int) -> list[Line]:
    """Return a line per target, with its message behind or, if long, below it."""
    head, *rows = render_table(_result_columns(results), results, room)
    lines = [head]
    for row, result in zip(rows, results, strict=True):
        text = plain(result.text, 1000)
        short = row + line("  ", (text, DIM))
        if not text or width(short) < room:
            lines.append(short)
        else:
            lines += [row, *wrap(text, room - 2, DIM, indent=6)]
    return lines


def _result_columns(results: Sequence[TargetResult]) -> list[Column[TargetResult]]:
    """Columns of results: of jobs, of runs (identified by name) or of a DAG."""
    only_dags = all(part.target is None for part in results)
    any_job = any(isinstance(part.target, Target) for part in results)
    any_run = any(part.target is not None and part.target.run is not None for part in results)

    def subject(part: TargetResult) -> str:
        return "" if isinstance(part.target, RunTarget) else plain(part.subject, 60)

    def run(part: TargetResult) -> str:
        return plain(part.target.run or "", 24) if part.target else ""

    def epoch(part: TargetResult) -> int | str:
        number = part.target.epoch if isinstance(part.target, Target) else None
        return "" if number is None else formatting.epoch_number(number)

    columns = []
    if any_job:
        columns.append(Column("job", "JOB", subject, align="right"))
    if only_dags:
        columns.append(Column("job", "DAG", subject))
    if any_run:
        columns.append(Column("run", "RUN", run, minimum=6, comfortable=10, maximum=24))
    if any_run and any_job:
        columns.append(Column("epoch", "EPOCH", epoch, Kind.COUNT))
    return [*columns, Column("answer", "ANSWER", lambda part: part.symbol, Kind.STATE)]
