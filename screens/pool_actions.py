"""Actions on jobs, runs and DAGs: their texts, menu, confirmation, results and keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial, partialmethod
from pathlib import PurePath
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec import Struct, field
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from metlmon.errors import sentence_of
from metlmon.health.types import HealthEntry
from metlmon.live.feed import StatsInput
from metlmon.pool.client import PoolClient
from metlmon.pool.gate_requests import site_of
from metlmon.pool.previews import (
    EXCLUDED,
    EXPECTED,
    NOT_EXCLUDED,
    RAISED,
    UNITS,
    amount,
    is_value,
    unknown_site,
    with_value,
)
from metlmon.pool.queue_checks import target
from metlmon.pool.types import (
    ACTS,
    AS_THE_DAG_SAYS,
    DAG_ACTS,
    EXCLUDE_ACTS,
    HOST_ACTS,
    INCLUDE_ACTS,
    PLACE_ACTS,
    RAISE_ACTS,
    RUN_ACTS,
    SITE_ACTS,
    ActionPreview,
    ActionRequest,
    ActionResult,
    DagTarget,
    LeftOut,
    PoolAction,
    PoolError,
    QueueSnapshot,
    ResultCode,
    RunTarget,
    SelectedRun,
    SiteInfo,
    Target,
)
from metlmon.snapshot.records import DagRow, Epoch, Job, Snapshot, Status
from metlmon.stats.totals import SiteRow, break_down, group_by
from metlmon.tables.jobs import dag_column
from metlmon.tables.layout import (
    Column,
    Kind,
    fit_columns,
    name_column,
    render_cells,
    render_table,
    table_columns,
)
from metlmon.text import formatting
from metlmon.text.formatting import STATES, Colour, Symbol, Weight, plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    KEY,
    MOVING,
    NOTE,
    PLAIN,
    Line,
    TextStyle,
    crop,
    fit,
    join,
    justify,
    line,
    style_of,
    symbol_span,
    width,
    wrap,
    wrap_parts,
)
from screens.actions import ACTIONS, Action
from screens.base.screens import (
    HIDDEN_IN_MODALS,
    ConfirmationBase,
    DocumentScreen,
    Prompt,
    SnapshotScreen,
    ask_in_thread,
    heading,
    out_of_view,
    padded,
    rule,
)
from screens.widgets.line_widget import Document, Table, TableRow

RESULT_SYMBOLS: Final[Mapping[ResultCode, Symbol]] = {
    ResultCode.DENIED: Symbol("✗", "permission denied", Colour.VERMILLION, Weight.BOLD),
    ResultCode.FAILED: Symbol("✗", "failed", Colour.VERMILLION, Weight.BOLD),
    ResultCode.NOT_FOUND: Symbol("?", "not found", Colour.ORANGE),
    ResultCode.BAD_STATE: Symbol("!", "not possible in this state", Colour.ORANGE),
    ResultCode.ALREADY: Symbol("=", "already so", Colour.SKY),
    ResultCode.DONE: Symbol("✓", "done", Colour.GREEN),
}
"""Symbols of the results, in display order: most urgent first."""

_NAMES: Final = {
    PoolAction.RESUME: "halt",
    PoolAction.RELEASE_DAG: "release",
    PoolAction.PAUSE: "pause_run",
    PoolAction.RAISE_MEMORY: "raise",
    PoolAction.RAISE_DISK: "raise",
    PoolAction.EXCLUDE_HOST: "exclude_site",
    PoolAction.INCLUDE_HOST: "include_site",
}
"""Names of actions that differ from the pool action: ``pause`` is ctrl+z."""


MAX_JOBS: Final = 200
"""Maximum jobs listed for one entry of Health, latest first: each fetches its view."""


class Selection(msgspec.Struct, frozen=True):
    """The marked rows, or the row under the cursor.

    ``description`` describes it; ``jobs`` are its jobs in any state, ``dags`` the DAGs they belong
    to, ``runs`` the runs on screens that list runs, ``site`` or ``host`` on those that list
    them ("": none is selected).
    """

    description: str
    jobs: tuple[Job, ...] = ()
    dags: tuple[DagRow, ...] = ()
    runs: tuple[SelectedRun, ...] = ()
    site: str | None = None
    host: str | None = None

    @property
    def acts(self) -> tuple[PoolAction, ...]:
        """The actions that apply to the selection."""
        of_place = HOST_ACTS if self.host else SITE_ACTS if self.site is not None else ()
        if of_place and not (self.jobs or self.dags or self.runs):
            return of_place
        return tuple(act for act in PoolAction if act not in PLACE_ACTS or act in of_place)


class RunningAction(Struct):
    """A pool action that is running or has ended.

    ``results`` holds the results so far, ``error`` the message of a failure, ``end_shown`` whether
    the end was displayed. The performing thread only appends to ``results``, then sets ``error``
    and ``ended``.
    """

    preview: ActionPreview
    request: ActionRequest
    results: list[ActionResult] = field(default_factory=list)
    error: str | None = None
    ended: bool = False
    end_shown: bool = False

    @property
    def total(self) -> int:
        """The expected number of results: one per run and job, or one for the DAG."""
        return 1 if self.request.act in DAG_ACTS else len(self.request.touched)

    def perform(
        self, pool: PoolClient, on_progress: Callable[[], None], is_exiting: Callable[[], bool]
    ) -> None:
        """Perform the action, and record its results; runs in a thread.

        After quitting (``is_exiting``) it is completed, but without waiting job by job for a
        schedd that does not respond.
        """

        def on_result(result: ActionResult) -> None:
            self.results.append(result)
            on_progress()
            if is_exiting() and result.reply is ResultCode.FAILED:
                raise PoolError("metlmon was left, and the schedd did not answer")

        try:
            results = pool.perform(self.request, on_result)
            # Includes results that were not reported on the way.
            self.results = list(results)
        except Exception as error:
            action = "it broke off; look into the queue for what was done"
            self.error = sentence_of(error, action, PoolError)
        self.ended = True

    def status_line(self) -> Line:
        """Render the state: ``hold: 3 of 12 answered``, then the outcome."""
        name = line((f"{name_of(self.request.act)}: ", DIM))
        if not self.ended:
            return name + line(f"{len(self.results)} of {self.total} answered")
        outcome = summary(self.results)
        if self.error is not None:
            outcome.append(line((plain(self.error, 200), ALARM)))
        return name + join(outcome, line("   ")) + line(("   A: per job", DIM))


def action_of(act: PoolAction) -> Action:
    """Return the keyboard action of a pool action; halt and resume share one."""
    name = _NAMES.get(act, act.value.replace("-", "_"))
    return next(action for action in ACTIONS if (action.scope, action.name) == ("acts", name))


def name_of(act: PoolAction) -> str:
    if act is PoolAction.RELEASE_DAG:
        return "release DAG"
    shares_key = act in (PoolAction.HALT, PoolAction.RESUME, *RAISE_ACTS, *PLACE_ACTS)
    return act.value.replace("-", " ") if shares_key else action_of(act).label


def question_text(preview: ActionPreview, job_count: int, value: int | str | None) -> str:
    """Return the confirmation question: ``Hold 3 jobs of run4?``."""
    text = capitalized(preview.phrase(value))
    if preview.act is PoolAction.REMOVE_DAG:
        return f"{text} and its {formatting.count(job_count, 'job')} in the queue?"
    return text if value is None and ACTS[preview.act].value else f"{text}?"


def files_title(order: ActionRequest) -> str:
    """Return the title of the file list: ``It writes 3 files in gate/ens``."""
    count = formatting.count(sum(len(run.files) for run in order.runs), "file")
    folder = common_folder(order.runs)
    suffix = f" in {plain(folder, 60)}" if folder is not None else ""
    deletes = order.act is PoolAction.RESUME_RUN or order.site == AS_THE_DAG_SAYS
    return f"It {'deletes' if deletes else 'writes'} {count}{suffix}"


def common_folder(runs: Sequence[RunTarget]) -> str | None:
    """Return the directory of all the files, or None if there are several."""
    folders = {str(PurePath(file).parent) for run in runs for file in run.files}
    return folders.pop() if len(folders) == 1 else None


def without_ruled_out(previews: Sequence[ActionPreview]) -> list[ActionPreview]:
    """Drop halt or resume of each DAG, whichever its state rules out.

    They share a key. Releasing DAGMan is offered only while it is held; excluding or including a
    site, and raising the request for memory or disk, whichever is possible.
    """
    resumable = {
        preview.subject
        for preview in previews
        if preview.act is PoolAction.RESUME and is_possible(preview)
    }

    can_raise_disk = any(is_possible(p) for p in previews if p.act is PoolAction.RAISE_DISK)
    can_include = any(is_possible(p) for p in previews if p.act in INCLUDE_ACTS)

    only_if_possible = {PoolAction.RELEASE_DAG, PoolAction.RAISE_DISK, *INCLUDE_ACTS}
    only_if_possible |= set(EXCLUDE_ACTS) if can_include else set()
    only_if_possible |= {PoolAction.RAISE_MEMORY} if can_raise_disk else set()

    def is_offered(preview: ActionPreview) -> bool:
        if preview.act in (PoolAction.HALT, PoolAction.RESUME):
            return (preview.act is PoolAction.RESUME) == (preview.subject in resumable)
        return preview.act not in only_if_possible or is_possible(preview)

    return [preview for preview in previews if is_offered(preview)]


def is_possible(preview: ActionPreview) -> bool:
    return preview.refused is None and preview.request is not None


def refusal_text(preview: ActionPreview, limit: int) -> str:
    return plain(preview.refused or "nothing is selected", limit)


def capitalized(text: str) -> str:
    """Return the sanitised text with a capital first letter."""
    clean = plain(text, 600)
    return clean[:1].upper() + clean[1:]


def undo_text(preview: ActionPreview) -> str:
    """Return how to undo the action, or that it cannot be undone."""
    text = plain(preview.undo, 600)
    return capitalized(text) if "cannot be undone" in text else f"To undo: {text}"


def effect_lines(preview: ActionPreview, room: int, limit: int) -> list[Line]:
    """The effect of the action and how to undo it, in ``limit`` lines: of undo in half of them."""
    undo = wrap(undo_text(preview), room, DIM, 1, limit // 2) if preview.undo else []
    return [*wrap(capitalized(preview.effect), room, indent=1, limit=limit - len(undo)), *undo]


def summary(results: Sequence[ActionResult]) -> list[Line]:
    """Count the results: ``✗ 1 permission denied``, ``✓ 11 done``, most urgent first."""
    counts = Counter(result.reply for result in results)
    return [
        line((f"{sign.glyph} {formatting.number(counts[reply])} {sign.word}", style_of(sign)))
        for reply, sign in RESULT_SYMBOLS.items()
        if counts[reply]
    ]


class PoolActionKeys(SnapshotScreen):
    """A screen with the keys of the pool actions."""

    def request_action(self, *acts: PoolAction) -> None:
        """Request the first of these actions that is possible."""
        raise NotImplementedError

    def _request(self, *acts: PoolAction) -> None:
        self.request_action(*acts)

    def action_answers(self) -> None:
        if self.context.running_action is None:
            self.show_message("nothing was asked of the schedd yet")
        else:
            self.context.push_screen(ResultsScreen(self.context.running_action))


for _name, _acts in group_by(PoolAction, lambda act: action_of(act).name).items():
    setattr(PoolActionKeys, f"action_{_name}", partialmethod(PoolActionKeys._request, *_acts))


DETAIL_LINES: Final = 4
"""Number of lines under the table, constant, so that it keeps its height while the cursor moves."""


class MenuScreen(PoolActionKeys):
    """Pool actions on the selection of the screen below; rebuilt with every snapshot.

    One row for each possible action, then one for each reason why others are not possible.
    """

    SCOPES: ClassVar[tuple[str, ...]] = ("menu", "acts", "below")
    SHOWS_ENSEMBLE: ClassVar[bool] = False

    def __init__(self, origin: ActionScreen, initial: ActionPreview | None = None) -> None:
        super().__init__()
        self._origin = origin
        self._initial_key = None if initial is None else _key(initial)
        self._previews: Sequence[ActionPreview] = ()
        self._rows: Sequence[MenuRow] = ()

    def compose_body(self) -> ComposeResult:
        yield Table()

    def hidden_actions(self) -> Collection[str]:
        return HIDDEN_IN_MODALS

    def show(self, update: Snapshot) -> None:
        room, table = self.app.size.width, self.query_one(Table)
        selection = self._origin.selection().description
        self._previews = without_ruled_out(self._origin.previews())
        self.show_head([line(" ", ("Act on ", DIM), (plain(selection, 60), BOLD)), ()])
        refused = group_by(
            (preview for preview in self._previews if not is_possible(preview)),
            lambda preview: (_named_dag(preview, self._previews), preview.refused),
        )
        possible = [(preview,) for preview in self._previews if is_possible(preview)]
        self._rows = [*possible, *map(tuple, refused.values())]
        columns = _columns(self._previews)
        widths = fit_columns(columns, self._rows, room)
        rows = [
            TableRow(_key(row[0]), partial(render_cells, columns, widths, row))
            for row in self._rows
        ]
        # Keep the cursor detail right below the table on tall screens too.
        table.styles.max_height = len(rows) + 2
        table.show(table_columns(columns, widths), rows)
        if self._initial_key is not None:
            table.select(self._row_key(self._initial_key))
            self._initial_key = None
        parts = [*self.messages(), *out_of_view(0, table.rows_below)]
        self.show_note([rule(parts, room), *padded(self._details(room - 2), DETAIL_LINES)])

    def _details(self, room: int) -> list[Line]:
        """Return what the action under the cursor does, or why it is not possible."""
        row = self._under_cursor()
        if not row:
            return []
        preview = row[0]
        if not is_possible(preview):
            names = ", ".join(dict.fromkeys(name_of(each.act) for each in row))
            why = f"not now: {refusal_text(preview, 1000)}"
            listed = wrap(names, room, DIM, indent=1, limit=2) if len(row) > 1 else []
            return [*wrap(why, room, NOTE, 1, DETAIL_LINES - len(listed)), *listed]
        return effect_lines(preview, room, DETAIL_LINES)

    def _under_cursor(self) -> MenuRow:
        key = self.query_one(Table).cursor
        return next((row for row in self._rows if _key(row[0]) == key), ())

    def _row_key(self, key: str) -> str:
        """The key of the row that has this action."""
        return next((_key(row[0]) for row in self._rows if key in map(_key, row)), key)

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        event.stop()
        self._refresh_if_mounted()

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        event.stop()
        self.action_choose()

    # --- choosing -------------------------------------------------------------------------

    def action_choose(self) -> None:
        row = self._under_cursor()
        if row and is_possible(row[0]):
            self._origin.open_confirmation(row[0])

    def request_action(self, *acts: PoolAction) -> None:
        """Open the confirmation; if several actions are possible, move to the next one's row."""
        matching = [preview for preview in self._previews if preview.act in acts]
        possible = [preview for preview in matching if is_possible(preview)]
        if len(possible) == 1:
            self._origin.open_confirmation(possible[0])
        elif matching:
            keys = [self._row_key(_key(preview)) for preview in possible or matching]
            table = self.query_one(Table)
            index = keys.index(table.cursor) if table.cursor in keys else -1
            table.select(keys[(index + 1) % len(keys)])

    def action_acts(self) -> None:
        self.context.go_back()


def _key(preview: ActionPreview) -> str:
    # Halt and resume of one DAG share a row; its state decides which applies.
    dag = preview.subject if preview.act in DAG_ACTS else ""
    return f"{action_of(preview.act).name}\n{ACTS[preview.act].value}\n{dag}"


MenuRow: TypeAlias = tuple[ActionPreview, ...]
"""A possible action, or those that are refused for the same reason."""


def _named_dag(preview: ActionPreview, previews: Sequence[ActionPreview]) -> str:
    """The DAG that a refusal has to name, with several DAGs: its own."""
    subjects = {each.subject for each in previews if each.act in DAG_ACTS}
    is_one = len(subjects) > 1 and preview.act in DAG_ACTS
    return f"{plain(preview.subject, 40)}: " if is_one else ""


def _columns(previews: Sequence[ActionPreview]) -> list[Column[MenuRow]]:
    def name_style(row: MenuRow) -> TextStyle:
        if not is_possible(row[0]):
            return DIM
        return ALARM if ACTS[row[0].act].is_final else BOLD

    def name(row: MenuRow) -> str:
        return name_of(row[0].act) if len(row) == 1 else formatting.count(len(row), "act")

    def targets(row: MenuRow) -> str:
        left_out = formatting.number(len(row[0].left_out))
        if is_possible(row[0]):
            text = plain(row[0].subject, 80)
            return f"{text}, {left_out} left out" if row[0].left_out else text
        return f"✗ {_named_dag(row[0], previews)}{refusal_text(row[0], 200)}"

    return [
        Column(
            "key",
            lambda row: " ".join(dict.fromkeys(action_of(each.act).cap for each in row)),
            style=lambda row: KEY if is_possible(row[0]) else DIM,
        ),
        Column("name", name, title="ACT", style=name_style),
        Column(
            "what",
            targets,
            title="TOUCHES",
            style=lambda row: PLAIN if is_possible(row[0]) else DIM,
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
    for subject, item in targets.items():
        result = results.get(subject)
        sign = pending if result is None else RESULT_SYMBOLS[result.reply]
        rows.append(TargetResult(subject, item, sign, "" if result is None else result.text))
    problems = list(RESULT_SYMBOLS.values())[:-1]
    return sorted(rows, key=lambda row: [*problems, row.symbol].index(row.symbol))


class ResultsScreen(DocumentScreen):
    """Results of a running action. Leaving the screen does not stop it."""

    SCOPES: ClassVar[tuple[str, ...]] = ("below",)
    SHOWS_ENSEMBLE: ClassVar[bool] = False

    def __init__(self, running: RunningAction) -> None:
        super().__init__()
        self._running_action = running

    def show(self, update: Snapshot) -> None:
        room, running = self.app.size.width, self._running_action
        results = target_results(running)
        note = wrap(NOTE_TEXT, room - 2, DIM, indent=1)
        self.show_document(self._head(room - 2), _rows(results, room) if results else [], note)
        running.end_shown = running.end_shown or running.ended

    def _head(self, room: int) -> list[Line]:
        running = self._running_action
        value = running.request.site if running.request.value is None else running.request.value
        title = capitalized(running.preview.phrase(value))
        done = f"{len(running.results)} of {running.total} answered"
        incomplete = running.ended and len(running.results) < running.total
        right = line((done, NOTE if incomplete else MOVING))
        lines = [line(" ") + justify(line((plain(title, 200), BOLD)), right, room)]
        counts = summary(running.results)
        if counts:
            lines += wrap_parts(counts, line("   "), room, indent=1)
        elif not running.ended:
            lines.append(line(" ", ("waiting for the schedd; [esc] leaves, it continues", DIM)))
        if running.error is not None:
            lines += wrap(plain(running.error, 1000), room, ALARM, 1, ERROR_LINES)
        return [*lines, ()]


def _rows(results: list[TargetResult], room: int) -> list[Line]:
    """Return a line per target, with its message after it or, if long, below it."""
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
        return plain(part.target.run or "", 60) if part.target else ""

    def epoch(part: TargetResult) -> int | str:
        number = part.target.epoch if isinstance(part.target, Target) else None
        return "" if number is None else formatting.epoch_number(number)

    columns: tuple[tuple[bool, Column[TargetResult]], ...] = (
        (any_job, Column("job", subject, align="right")),
        (only_dags, Column("job", subject, title="DAG")),
        (any_run, name_column("run", run, minimum=6, comfortable=10, maximum=24)),
        (any_run and any_job, Column("epoch", epoch, Kind.COUNT)),
        (True, Column("answer", lambda part: part.symbol, Kind.STATE)),
    )
    return [column for is_shown, column in columns if is_shown]


DAG_DEFAULT: Final = "as the DAG says"
"""Accepted instead of a site name, to undo an earlier choice of site."""

MAX_SITES: Final = 6
"""Maximum sites listed; the targets need the other lines."""


def known_sites(
    pool_sites: Sequence[SiteInfo],
    status: Status,
    executed: Iterable[SiteRow],
    epochs: Iterable[Epoch],
    with_default: bool,
) -> dict[str, str]:
    """Return the selectable sites with a description: collector, DAG, past executions."""
    about = {DAG_DEFAULT: "no longer elsewhere"} if with_default else {}
    for site in pool_sites:
        slots = formatting.count(site.slots, "slot")
        about[site.name] = ", ".join([slots, *site.gpus])
    targets = {row.target for row in epochs if row.target} | requested_sites(status)
    for name in sorted(targets):
        about.setdefault(name, "named in the DAG")
    for row in executed:
        if row.site is not None:
            count = formatting.count(row.executions, "execution")
            about.setdefault(row.site, f"{count} so far")
    return about


def executed_sites(stats_input: StatsInput) -> tuple[SiteRow, ...]:
    """The statistic of the sites where jobs were executed, most hours first."""
    return break_down(stats_input.ledger).sites


def requested_sites(status: Status) -> set[str]:
    """Return the sites that runs request, in the DAG or by their gates."""
    places = (part for run in status.runs for part in (run.latest, run.gate) if part is not None)
    return {part.target for part in places if part.target}


class SitePrompt(Prompt):
    """Input of a site name; ``up`` and ``down`` go through matching ``sites``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "screen.back", show=False),
        Binding("up,shift+tab", "choose(-1)", show=False),
        Binding("down,tab", "choose(1)", show=False),
    ]

    def __init__(self, sites: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(id="value", hint="a site's name; up and down choose one")
        self._sites = sites
        self._typed = ""
        self._chosen: str | None = None

    def action_choose(self, step: int) -> None:
        if self.value != self._chosen:
            self._typed = self.value
        names = list(self.matching())
        if not names:
            return
        index = names.index(self.value) + step if self.value in names else min(step, 0)
        self._chosen = self.value = names[index % len(names)]
        self.cursor_position = len(self.value)

    def matching(self) -> dict[str, str]:
        """The sites that contain the text, as it was typed before one was chosen."""
        needle = (self._typed if self.value == self._chosen else self.value).strip().lower()
        return {name: about for name, about in self._sites().items() if needle in name.lower()}


def site_lines(
    sites: Mapping[str, str], chosen: str, loading: bool, error: str | None
) -> list[Line]:
    """Render the sites around ``chosen``, and the state of the collector query."""
    names = list(sites)
    index = names.index(chosen) if chosen in names else 0
    first = max(0, min(index - MAX_SITES // 2, len(names) - MAX_SITES))
    visible = names[first : first + MAX_SITES]
    labels = [line((plain(name, 40), BOLD if name == chosen else PLAIN)) for name in visible]
    label_width = max(map(width, labels), default=0)
    lines = [
        line("▌" if name == chosen else " ")
        + fit(label, label_width, "left")
        + line((f"  {plain(sites[name], 80)}", DIM))
        for name, label in zip(visible, labels, strict=True)
    ]
    if len(names) > len(visible):
        lines.append(line((f" {len(names) - len(visible)} more; what is typed narrows them", DIM)))
    if loading:
        lines.append(line((" asking the collector…", DIM)))
    elif error is not None:
        lines.append(line((f" {plain(error, 200)}", NOTE)))
    elif not names:
        lines.append(line((" no site that is known has this in its name", DIM)))
    return lines


EFFECT_LINES: Final = 6
"""Maximum lines for effect and undo; the job table needs the rest."""

PRIORITY_LIMIT: Final = 2**31 - 1
"""JobPrio is a 32-bit number in the schedd."""


class ValuePrompt(Prompt):
    """Input of a priority or a request; ``enter`` continues to the confirmation."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "screen.back", show=False)]

    def __init__(self, field: str) -> None:
        if field == "priority":
            super().__init__(id="value", hint="a whole number; larger goes first, 0 is the usual")
            self.restrict = r"-?\d{0,10}"
        else:
            super().__init__(id="value", hint=EXPECTED)
            self.value = RAISED
            # What is typed replaces it, instead of being added to it.
            self.select_on_focus = True


class ConfirmScreen(ConfirmationBase):
    """Confirmation of a pool action; only ``y`` performs it.

    ``dag_jobs`` are jobs that are removed together with a DAG.
    """

    SCOPES: ClassVar[tuple[str, ...]] = ("question",)
    SHOWS_ENSEMBLE: ClassVar[bool] = False
    AUTO_FOCUS = "Document"

    def __init__(
        self, preview: ActionPreview, dag_jobs: Sequence[Job], on_confirmed: Callable[[], None]
    ) -> None:
        super().__init__()
        self._preview = preview
        self._dag_jobs = dag_jobs
        self._on_confirmed = on_confirmed
        self._entered: int | str | None = None
        self._input_error = ""
        self._pool_sites: tuple[SiteInfo, ...] = ()
        self._takes = ACTS[preview.act].value
        self._loading_sites = self._takes == "site" or preview.act is PoolAction.EXCLUDE_SITE
        self._sites_error: str | None = None

    def compose_body(self) -> ComposeResult:
        if self._takes == "site":
            yield SitePrompt(self._known_sites)
        elif self._takes:
            yield ValuePrompt(self._takes)
        yield from super().compose_body()

    def on_mount(self) -> None:
        super().on_mount()
        for prompt in self.query(Prompt):
            self.call_after_refresh(self.set_focus, prompt)
        pool = self.context.pool_actions
        if self._loading_sites and pool is not None:
            ask_in_thread(self, pool.sites, self._sites_loaded, "asking for sites failed")

    @property
    def may_confirm(self) -> bool:
        """Whether a required number or site has been entered."""
        return self._takes == "" or self._entered is not None

    @property
    def _current_preview(self) -> ActionPreview:
        pool = self.context.pool_actions
        if self._entered is None or pool is None:
            return self._preview
        return with_value(self._preview, self._entered, pool.queue_snapshot)

    def show(self, update: Snapshot) -> None:
        room = self.app.size.width
        self.show_document(self._head(room - 2), self._body(room))

    # --- rendering ------------------------------------------------------------------------

    def _head(self, room: int) -> list[Line]:
        preview = self._current_preview
        style = ALARM if ACTS[preview.act].is_final else BOLD
        title = question_text(preview, len(self._dag_jobs), self._entered)
        lines = wrap(title, room, style, indent=1)[:2]
        lines += effect_lines(preview, room, EFFECT_LINES)
        if self._takes == "site" and isinstance(self._entered, str):
            warning = unknown_site(self._entered, self._pool_sites, list(self._known_sites()))
            lines += wrap(capitalized(warning), room, NOTE, indent=1) if warning else []
        if preview.act is PoolAction.EXCLUDE_SITE and preview.request is not None:
            requested = requested_sites(self.context.snapshot.status)
            warning = unknown_site(preview.request.site or "", self._pool_sites, requested)
            lines += wrap(capitalized(warning), room, NOTE, indent=1) if warning else []
        return [*lines, crop(self._key_hint(), room)]

    def _key_hint(self) -> Line:
        if self.may_confirm:
            leave = line(("esc", KEY), " or ", ("n", KEY), " touches nothing")
            return line(" ") + self.confirm_hint() + leave
        if self._input_error:
            return line(" ", (self._input_error, BAD))
        noun = "priority" if self._takes == "priority" else "request (2x, 12GB)"
        hint = line(f" Type the new {noun}, then ")
        if self._takes == "site":
            hint = line(" Type a site, or take one with ", ("up", KEY), " and ", ("down", KEY))
            hint += line(", then ")
        return hint + line(("enter", KEY), ("; a question follows", DIM))

    def _body(self, room: int) -> list[Line]:
        preview = self._current_preview
        order = preview.request
        targets, runs = (order.targets, order.runs) if order is not None else ((), ())
        lines = [] if self.may_confirm else self._site_list(room)
        if preview.line is not None:
            added = "Take out of" if preview.act in INCLUDE_ACTS else "Write into"
            lines += [heading(f"{added} the submit file, for later jobs", room)]
            lines += [*wrap(plain(preview.line, 600), room - 2, BOLD, indent=1), ()]
        if order is not None and order.dags:
            lines += [heading("Later jobs of these DAGs, by a file", room)]
            columns: list[Column[DagTarget]] = [
                Column("dag", lambda dag: _text(dag.dag), minimum=8, maximum=30),
                Column("file", lambda dag: plain(dag.file, 300), minimum=20),
                Column("runs", lambda dag: len(dag.runs), Kind.COUNT),
            ]
            lines += [*render_table(columns, order.dags, room), ()]
        if order is not None and runs:
            lines += [heading(files_title(order), room)]
            lines += render_table(_run_columns(runs), runs, room)
            targets = tuple(job for run in runs for job in run.jobs)
            lines += [()] if targets else []
        if preview.act in DAG_ACTS:
            dag = order.dag if order is not None else None
            dag_name = plain(dag or preview.subject, 200)
            lines += [heading("It touches the DAG", room), line(" ", (dag_name, BOLD))]
        if targets:
            count = formatting.count(len(targets), "job")
            title = f"It {'removes' if runs else 'touches'} {count}"
            title = "DAGMan's own job" if preview.act in DAG_ACTS else title
            lines += [heading(title, room), *self._jobs(targets, room)]
        if self._dag_jobs:
            dag_jobs = [target(job) for job in self._dag_jobs]
            title = f"{formatting.count(len(dag_jobs), 'job')} in the queue go with it"
            lines += [(), heading(title, room), *self._jobs(dag_jobs, room)]
        if preview.left_out:
            noun = "run" if preview.act in RUN_ACTS else "job"
            title = f"{formatting.count(len(preview.left_out), noun)} left out"
            lines += [(), heading(title, room)]
            lines += map(_left_out_line, preview.left_out)
        return lines

    def _jobs(self, targets: Sequence[Target], room: int) -> list[Line]:
        columns = _job_columns(targets, self._preview.act, self.context.queue)
        return render_table(columns, targets, room)

    # --- input of a number or a site ------------------------------------------------------

    @on(Input.Changed, "#value")
    def _value_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._entered, self._input_error = None, ""
        self._refresh_if_mounted()

    @on(Input.Submitted, "#value")
    def _value_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._entered = self._parse(event.value)
        if self._entered is None:
            expected = EXPECTED
            if self._takes == "site":
                expected = "a site's name, without quotes, $ and backslash,"
            if self._takes == "priority":
                expected = f"a whole number from {-PRIORITY_LIMIT} to {PRIORITY_LIMIT}"
            self._input_error = f"{expected} is needed here"
        elif self._current_preview.refused is not None:
            self._input_error, self._entered = plain(self._current_preview.refused, 200), None
        else:
            self.set_focus(self.query_one(Document))
            self.start_delay()
        self._refresh_if_mounted()

    def _parse(self, text: str) -> int | str | None:
        if self._takes == "priority":
            with suppress(ValueError):
                return value if abs(value := int(text)) <= PRIORITY_LIMIT else None
            return None
        if self._takes in UNITS:
            return text.strip() if is_value(text) else None
        if self._preview.act is PoolAction.SEND and text.strip() == DAG_DEFAULT:
            return AS_THE_DAG_SAYS
        return site_of(text)

    def _known_sites(self) -> dict[str, str]:
        """The known sites with a description; incomplete until the collector has replied."""
        order, status = self._preview.request, self.context.snapshot.status
        touched: list[RunTarget | Target] = []
        if order is not None:
            touched += [*order.runs, *order.targets]
        run = touched[0].run if touched else None
        key = next((row.key for row in status.runs if row.run == run), None)
        view = self.context.feed.run_view(key) if key is not None else None
        return known_sites(
            self._pool_sites,
            status=status,
            executed=self.context.stats.value(executed_sites) or (),
            epochs=view.epochs if view is not None else (),
            with_default=self._preview.act is PoolAction.SEND,
        )

    def _site_list(self, room: int) -> list[Line]:
        lines: list[Line] = []
        for prompt in self.query(SitePrompt):
            title = heading("Sites that are known", room)
            matching, loading = prompt.matching(), self._loading_sites
            lines += [title, *site_lines(matching, prompt.value, loading, self._sites_error), ()]
        return lines

    def _sites_loaded(self, sites: tuple[SiteInfo, ...] | None, error: str | None) -> None:
        self._pool_sites, self._sites_error, self._loading_sites = sites or (), error, False
        self._refresh_if_mounted()

    def action_confirm(self) -> None:
        preview, order = self._current_preview, self._current_preview.request
        if order is None or self.context.action_refusal() is not None:
            return
        if not self.may_confirm or not self.key_confirms:
            return
        context = self.context
        running = context.perform(preview, order)
        self._on_confirmed()
        while isinstance(context.screen, ConfirmScreen | MenuScreen):
            context.pop_screen()
        context.push_screen(ResultsScreen(running))


def _left_out_line(left_out: LeftOut) -> Line:
    target = left_out.target
    name = target.id if isinstance(target, Target) else plain(target.id, 8)
    epoch = "" if target.epoch is None else f"  epoch {formatting.epoch_number(target.epoch)}"
    about = line((f" {name}  {plain(target.run or '', 24)}{epoch}  ", DIM))
    reason = line((f"  {plain(left_out.reason, 200)}", NOTE))
    return about + symbol_span(STATES[target.state]) + reason


# --- columns ------------------------------------------------------------------------------


def _text(value: str | None) -> str | None:
    return plain(value, 60) if value else None


def _state_columns(epoch_drop: int = 0, state_drop: int = 0) -> list[Column[Any]]:
    return [
        Column(
            "epoch",
            lambda target: "" if target.epoch is None else formatting.epoch_number(target.epoch),
            Kind.COUNT,
            drop=epoch_drop,
        ),
        Column("state", lambda target: STATES[target.state], Kind.STATE, drop=state_drop),
    ]


def _job_columns(
    targets: Sequence[Target], act: PoolAction, queue: QueueSnapshot | None
) -> list[Column[Target]]:
    """Columns of jobs, with the value in the queue that the action changes."""

    field = ACTS[act].value

    def now(target: Target) -> str | None:
        job = queue.job(target.cluster, target.proc) if queue is not None else None
        value = None if job is None else getattr(job, field)
        if value is None:
            return None
        return amount(field, value) if field in UNITS else plain(str(value), 40)

    columns: list[Column[Target]] = [
        Column("job", lambda target: _text(target.id), align="right"),
        name_column("run", lambda target: _text(target.run), minimum=6, comfortable=10, maximum=24),
        *_state_columns(),
        Column("node", lambda target: _text(target.node), drop=2, maximum=40, comfortable=16),
    ]
    if len({target.dag for target in targets}) > 1:
        columns.append(dag_column(drop=1, maximum=30, comfortable=12))
    if queue is not None and field:
        title = "NOW FOR" if field == "site" else "NOW"
        columns.insert(3, Column("now", now, title=title, maximum=24))
    return columns


def _run_columns(runs: Sequence[RunTarget]) -> list[Column[RunTarget]]:
    one_folder = common_folder(runs) is not None

    def files(target: RunTarget) -> str:
        names = [PurePath(file).name if one_folder else file for file in target.files]
        return plain("  ".join(names), 300)

    return [
        name_column("run", lambda row: plain(row.run, 60), minimum=6, comfortable=10, maximum=24),
        *_state_columns(epoch_drop=2, state_drop=1),
        Column("files", files, title="FILE", minimum=20, comfortable=40),
    ]


ACTION_SCOPES: Final = ("marking", "acting")
"""Scopes of a table whose rows can be marked and acted on."""


class ActionScreen(PoolActionKeys):
    """A screen with the keys of the pool actions. Subclasses define the selection."""

    PALETTE_SCOPES = ("acts",)

    def selection(self) -> Selection:
        """The marked rows, or else the row under the cursor."""
        raise NotImplementedError

    def previews(self) -> list[ActionPreview]:
        """Previews of all pool actions on the selection."""
        return self.previews_of(self.selection())

    def previews_of(self, selection: Selection) -> list[ActionPreview]:
        """Previews of all pool actions on these; DAG actions once per DAG."""
        snapshot, pool = self.context.snapshot, self.context.pool_actions
        refusal = self.context.action_refusal()
        if refusal is not None or not snapshot.opened or pool is None:
            reason, subject = refusal or "nothing was read yet", selection.description
            subjects = {act: "" if act in DAG_ACTS else subject for act in selection.acts}
            refused = [ActionPreview(act, name, None, reason) for act, name in subjects.items()]
            return without_ruled_out(refused)
        chosen = (selection.jobs, selection.dags, selection.runs, selection.site, selection.host)
        previews = pool.previews(snapshot.status, *chosen)
        return without_ruled_out([each for each in previews if each.act in selection.acts])

    def refusals(self) -> Mapping[str, str]:
        """Reasons, by action name, of actions for which every preview is refused."""
        if self.context.opened.read_only:
            return {}
        previews = self.previews()
        possible_names = {action_of(each.act).name for each in previews if is_possible(each)}
        selection = self.selection()
        reasons = {action_of(act).name: _missing(act, selection) for act in PoolAction}
        reasons |= {
            action_of(each.act).name: each.refused or "nothing is selected" for each in previews
        }
        refused_names = {name: why for name, why in reasons.items() if name not in possible_names}
        if self.context.running_action is None:
            refused_names["answers"] = "nothing was asked yet"
        return refused_names

    def request_action(self, *actions: PoolAction) -> None:
        """Open the confirmation of the possible action, or else the menu with the reason."""
        previews = [preview for preview in self.previews() if preview.act in actions]
        possible = [preview for preview in previews if is_possible(preview)]
        if len(possible) == 1:
            self.open_confirmation(possible[0])
        else:
            self.context.push_screen(MenuScreen(self, next(iter([*possible, *previews]), None)))

    def open_confirmation(self, preview: ActionPreview) -> None:
        """Open the confirmation, with all queued jobs that the action also removes."""
        also_removed: tuple[Job, ...] = ()
        if preview.act is PoolAction.REMOVE_DAG and preview.request is not None:
            queued = self.context.feed.queued_jobs()
            also_removed = tuple(job for job in queued if job.dag == preview.request.dag)
        self.context.push_screen(ConfirmScreen(preview, also_removed, self.clear_all_marks))

    def clear_all_marks(self) -> None:
        """Clear the marks after a confirmed action, so that the next one starts afresh."""
        for table in self.query(Table):
            table.clear_marks()

    def advised(self) -> HealthEntry | None:
        """The worst entry of Health on the selection, for which an action is advised."""
        selection, health = self.selection(), self.health
        jobs, runs = {job.job for job in selection.jobs}, {run.row.key for run in selection.runs}
        for entry in () if health is None else health.open_entries:
            if entry.act and not (jobs.isdisjoint(entry.jobs) and runs.isdisjoint(entry.runs)):
                return entry
        return None

    def action_acts(self) -> None:
        entry, previews = self.advised(), self.previews()
        matching = [each for each in previews if entry is not None and each.act == entry.act]
        possible = [each for each in (*matching, *previews) if is_possible(each)]
        self.context.push_screen(MenuScreen(self, next(iter((*possible, *matching)), None)))

    def messages(self) -> list[Line]:
        """Progress of the latest pool action until its end was seen, and other notes."""
        action = self.context.running_action
        lines = [action.status_line()] if action is not None and not action.end_shown else []
        return [*lines, *super().messages()]

    @on(Table.RowHighlighted)
    def _mark_action_seen(self) -> None:
        if self.context.running_action is not None and self.context.running_action.ended:
            self.context.running_action.end_shown = True

    # --- parts of selections --------------------------------------------------------------

    def dags_of(self, files: Iterable[str | None]) -> tuple[DagRow, ...]:
        """The DAGs with these files, in the snapshot's order."""
        wanted = frozenset(files)
        return tuple(dag for dag in self.context.snapshot.status.dags if dag.file in wanted)

    def job_rows(self, jobs: Iterable[tuple[int, int]]) -> tuple[Job, ...]:
        """The jobs with these ids, whatever their state."""
        views = (self.context.feed.job_view(*job) for job in jobs)
        return tuple(view.job for view in views if view is not None)

    def name_or_count(self, names: list[str], noun: str) -> str:
        """The only name, or the number of names: ``run4``, ``3 runs``."""
        if len(names) == 1:
            return plain(names[0], 40)
        return f"{len(names)} {noun}s" if names else "nothing"


def _missing(act: PoolAction, selection: Selection) -> str:
    """Why an action has no preview."""
    if act not in PLACE_ACTS:
        return "no job, run or DAG is selected"
    if not (selection.site or selection.host):
        return "no site or host is selected: see Sites"
    kind = "host" if selection.host else "site"
    return f"the {kind} is {EXCLUDED if act in EXCLUDE_ACTS else NOT_EXCLUDED}"


def select(screen: ActionScreen, name: str, entries: Iterable[HealthEntry]) -> Selection:
    """The queued jobs and the runs of entries; without queued jobs their latest ones."""
    entries, snapshot, feed = list(entries), screen.context.snapshot, screen.context.feed
    if not entries:
        return Selection("nothing")
    ids = dict.fromkeys(job for entry in entries for job in entry.jobs)
    keys = {run for entry in entries for run in entry.runs}
    queued = feed.queued_jobs()
    jobs = tuple(job for job in queued if (job.cluster, job.proc) in ids)
    if not jobs:
        jobs = screen.job_rows(list(ids)[:MAX_JOBS])
    rows = [row for row in snapshot.status.runs if row.key in keys]
    by_run = group_by(queued, lambda job: job.key)
    runs = tuple(SelectedRun(row, tuple(by_run.get(row.key, ()))) for row in rows)
    files = [job.dag for job in jobs] + [row.dag for row in rows] + [e.dag for e in entries]
    acts = [entry.act for entry in entries]
    site = entries[0].site if acts == [PoolAction.EXCLUDE_SITE] else None
    host = entries[0].host if acts == [PoolAction.EXCLUDE_HOST] else None
    return Selection(name, jobs, screen.dags_of(files), runs, site, host)
