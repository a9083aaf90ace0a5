"""The Advice screen: where the next epochs should go, and the acts that send them there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from msgspec import Struct

from metlmon.errors import sentence_of
from metlmon.live.feed import Feed, StatsInput
from metlmon.placement.annexes import make_annexes
from metlmon.placement.application import (
    Application,
    ApplyWay,
    SubmitLine,
    application_lines,
    application_sentence,
    changes_done,
    command_name,
    last_application,
    log_application,
    perform_application,
    plan_application,
    submit_line_text,
    submit_lines,
    undo_application,
    undo_lines,
    undo_sentence,
)
from metlmon.placement.planner import Advice, make_advice, what_if_table
from metlmon.placement.types import WhatIf
from metlmon.pool.client import PoolClient
from metlmon.pool.types import ActionResult, PoolAction, PoolError, ResultCode
from metlmon.snapshot.records import Snapshot, Status
from metlmon.tables import advice as advice_table
from metlmon.tables.layout import empty_text, render_table
from metlmon.tables.usage import profile_columns
from metlmon.text.formatting import plain
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    KEY,
    NOTE,
    Line,
    crop,
    line,
    symbol_span,
    text,
    wrap,
    wrap_line,
)
from screens.base.screens import (
    ConfirmationBase,
    DocumentScreen,
    ask_in_thread,
    heading,
)
from screens.pool_actions import RESULT_SYMBOLS, capitalized, undo_text

if TYPE_CHECKING:
    from screens.app import MetlmonApp

OnResult: TypeAlias = Callable[[ActionResult], None]

WHAT_IT_IS: Final = (
    "Of runs that are under way, once an epoch has completed, this screen shows where the next "
    "epochs of each should go, so that the last run ends first."
)


class ShownAdvice(Struct, frozen=True):
    """What the screen shows; ``lines``: those for submit files of nodes without a gate."""

    advice: Advice
    what_if: tuple[WhatIf, ...]
    lines: tuple[SubmitLine, ...]


def shown_advice(stats_input: StatsInput, context: MetlmonApp) -> ShownAdvice:
    """The statistic that the screen shows, shared by all such screens of an application."""
    pool = context.opened.pool
    answer = pool.annex_answer if pool is not None and context.queue is not None else None
    annexes = make_annexes(stats_input, answer, context.now()).annexes
    free_gpus = answer.free_gpus if answer is not None and stats_input.status.live else ()
    advice = make_advice(stats_input, annexes, free_gpus)
    what_if = what_if_table(advice.values, advice.plan)
    return ShownAdvice(advice, what_if, submit_lines(advice.plan, context.feed))


class AdviceScreen(DocumentScreen):
    """The plan first, then what would change its end, then what is known of the pools."""

    SCOPES: ClassVar[tuple[str, ...]] = ("advice", "below")

    @property
    def _advice(self) -> ShownAdvice | None:
        return self.context.stats.value(shown_advice, self.context)

    def show(self, update: Snapshot) -> None:
        self.context.stats.watch_job_files()
        pool = self.context.opened.pool
        if pool is not None and self.context.queue is not None and update.status.live:
            pool.query_gpus_soon()
        shown, room = self._advice, self.app.size.width
        title = line(" ", ("Advice", BOLD), "   ")
        if shown is None:
            waiting = "The plan comes as soon as the logs are read."
            self.show_document([title, ()], empty_text("", waiting))
            return
        end, *others = advice_table.plan_lines(shown.advice.plan)
        rows = [row for each in (title[1:] + end, *others) for row in wrap_line(each, room - 2)]
        head = [*(line(" ") + row for row in rows), ()]
        self.show_document(head, advice_lines(shown, room))

    def refusals(self) -> Mapping[str, str]:
        refusal = self.context.action_refusal()
        return {} if refusal is None else {"acts": refusal}

    def action_acts(self) -> None:
        shown = self._advice
        if self.notify_refusal("acts"):
            return
        if shown is None or self.context.pool_actions is None:
            self.show_message("there is no plan yet")
        else:
            self.context.push_screen(ApplyScreen(shown, self.context.pool_actions))


def advice_lines(shown: ShownAdvice, room: int) -> list[Line]:
    """The body of the screen."""
    advice, plan = shown.advice, shown.advice.plan
    names = advice.values.supplies.profiles
    lines: list[Line] = []
    if not any(round(sum(run.epochs)) for run in plan.runs):
        lines = wrap(WHAT_IT_IS, room - 2, DIM, 2)
    else:
        if advice_table.shows_plan(plan):
            columns = advice_table.plan_columns(plan, names)
            lines = render_table(columns, advice_table.plan_rows(plan), room)
        for elastic in advice.elastic:
            lines += wrap(plain(elastic.reason, 300), room - 2, indent=1)
        for each_line in advice_table.excluded_lines(plan, names, "a"):
            lines += wrap(f"avoid {text(each_line)}", room - 2, NOTE, indent=1)
        for each_line in advice_table.runs_excluded_lines(plan):
            lines.append(crop(line(" ") + each_line, room - 1))
    for row in shown.lines if advice_table.shows_plan(plan) else ():
        place, content = submit_line_text(row)
        lines += [(), *wrap(place, room - 2, DIM, indent=1), *wrap(content, room - 2, BOLD, 3)]
    if shown.what_if:
        lines += [()] if lines else []
        lines.append(heading(advice_table.what_if_title(plan), room))
        lines += render_table(advice_table.what_if_columns(plan), shown.what_if, room)
    if advice.profiles:
        source = ", inferred from logs" if plan.inferred else ""
        lines += [(), heading(f"What is known of the pools{source}", room)]
        lines += render_table(profile_columns(advice.profiles), advice.profiles, room)
    return lines


# --- acts ---------------------------------------------------------------------------------------


class PlannedAct(Struct, frozen=True):
    """An act on the screen: its sentence and lines; ``perform`` is None if it changes nothing.

    ``perform`` is called in a thread, with a function for each result. ``names``: those of the
    subjects of the results.
    """

    label: str
    sentence: str
    lines: Sequence[str]
    names: Mapping[str, str]
    perform: Callable[[OnResult], object] | None


class ApplyScreen(ConfirmationBase):
    """The confirmation before a plan is applied, or the last application is taken back."""

    SCOPES: ClassVar[tuple[str, ...]] = ("question", "applying")
    SHOWS_ENSEMBLE: ClassVar[bool] = False

    def __init__(self, shown: ShownAdvice, pool: PoolClient) -> None:
        super().__init__()
        self._plan, self._pool = shown.advice.plan, pool
        known = shown.advice.values.supplies.profiles
        self._sites = advice_table.sites_to_exclude(self._plan, known)
        self._acts: tuple[PlannedAct, ...] = ()
        self._index = 0
        self._failure: str | None = None
        self._results: list[ActionResult] | None = None
        self._is_over = False

    def on_mount(self) -> None:
        super().on_mount()
        ask_in_thread(self, self._planned_acts, self._take_acts, "finding out what changes failed")

    def _planned_acts(self) -> tuple[PlannedAct, ...]:
        """What each act changes; in a thread, as it reads files and, unless known, the queue."""
        feed, pool, plan = self.context.feed, self._pool, self._plan
        if pool.queue is not None and pool.queue_snapshot.is_pending:
            pool.queue.query()
        ways = (ApplyWay.SEND, ApplyWay.RETARGET)
        applications = [plan_application(plan, way, feed, pool) for way in ways]
        acts = [apply_act(application, feed, pool) for application in applications]
        status = self.context.snapshot.status
        acts += [exclude_act(site, status, pool) for site in self._sites]
        return (*acts, undo_act(feed, pool))

    def _take_acts(self, acts: tuple[PlannedAct, ...] | None, error: str | None) -> None:
        self._acts, self._failure = acts or (), error
        self.start_delay()
        self._refresh_if_mounted()

    @property
    def may_confirm(self) -> bool:
        return bool(self._acts) and self._results is None and self._act.perform is not None

    @property
    def _act(self) -> PlannedAct:
        return self._acts[self._index]

    def show(self, update: Snapshot) -> None:
        room = self.app.size.width
        self.show_document(self._head(room), self._body(room))

    def hidden_actions(self) -> Collection[str]:
        hidden = super().hidden_actions()
        is_asking = self._results is None and self._acts
        return hidden if is_asking else {*hidden, "next_act"}

    def _head(self, room: int) -> list[Line]:
        if self._failure is not None:
            return [*wrap(plain(self._failure, 400), room - 2, ALARM, indent=1), ()]
        if not self._acts:
            return [line(" ", ("finding out what would change…", DIM)), ()]
        title = self._act.sentence[:1].upper() + self._act.sentence[1:]
        question = "?" if self.may_confirm else "."
        return [*wrap(title + question, room - 2, BOLD, indent=1), self._hint(), ()]

    def _hint(self) -> Line:
        leave = line(("esc", KEY), " touches nothing")
        if self._is_over:
            leave = line("done; ", ("esc", KEY), " goes back")
        elif self._results is not None:
            leave = line(("under way…", DIM))
        elif self.may_confirm:
            leave = self.confirm_hint() + leave
        other = line()
        if self._results is None:
            label = self._acts[(self._index + 1) % len(self._acts)].label
            other = line(", ", ("tab", KEY), f": {label} instead")
        return line(" ") + leave + other

    def _body(self, room: int) -> list[Line]:
        if not self._acts:
            return []
        lines = [each for text in self._act.lines for each in wrap(text, room - 4, indent=3)]
        if self._results is not None:
            lines += [(), heading("What came of it", room)]
        for result in self._results or ():
            sign = RESULT_SYMBOLS[result.reply]
            name = plain(self._act.names.get(result.subject, result.subject), 60)
            details = line((f"  {plain(result.text, 200)}" if result.text else "", DIM))
            lines.append(crop(line(f" {name}  ") + symbol_span(sign) + details, room - 1))
        return lines

    # --- keys ---------------------------------------------------------------------------------

    def action_next_act(self) -> None:
        if self._acts and self._results is None:
            self._index = (self._index + 1) % len(self._acts)
            self.start_delay()
            self._refresh_if_mounted()

    def action_confirm(self) -> None:
        if not self.may_confirm or not self.key_confirms:
            return
        if self.context.action_refusal() is None:
            self._results = []
            self.context.run_in_thread(self._perform)
            self._refresh_if_mounted()

    def _perform(self) -> None:
        """Perform the act, in a thread that exiting waits for."""
        results = self._results = []
        self.context.pending_task = "advise"
        try:
            assert self._act.perform is not None
            self._act.perform(results.append)
        except Exception as error:
            self._failure = sentence_of(error, "it broke off", PoolError)
        finally:
            self.context.pending_task = ""
            self._is_over = True
            self.context.content_changed()


def apply_act(application: Application, feed: Feed, pool: PoolClient) -> PlannedAct:
    """The act that applies a plan in one way."""

    def perform(on_result: OnResult) -> None:
        results: list[ActionResult] = []

        def take(result: ActionResult) -> None:
            results.append(result)
            on_result(result)

        try:
            perform_application(application, pool, take)
        finally:
            done = changes_done(application, results)
            for problem in log_application(feed, command_name(), application.way, done):
                on_result(ActionResult("log", ResultCode.FAILED, problem))

    reasons = [f"{change.run}: {change.reason}" for change in application.changes]
    return PlannedAct(
        str(application.way),
        application_sentence(application),
        [*application_lines(application), *(plain(each, 200) for each in reasons)],
        {change.subject: change.name for change in application.changes},
        perform if application.changes else None,
    )


def exclude_act(site: str, status: Status, pool: PoolClient) -> PlannedAct:
    """The act that keeps all jobs of the ensemble off a site that the plan avoids."""
    previews = pool.previews(status, (), (), (), site, None)
    preview = next(each for each in previews if each.act is PoolAction.EXCLUDE_SITE)
    label, request = preview.phrase(), preview.request
    if preview.refused is not None or request is None:
        reason = plain(preview.refused or "no job can go there", 400)
        return PlannedAct(label, f"{label}: {reason}", (), {}, None)
    lines = [capitalized(preview.effect), undo_text(preview)]
    if preview.line is not None:
        lines.append(f"For later jobs, in the submit file: {plain(preview.line, 600)}")
    return PlannedAct(label, label, lines, {}, partial(pool.perform, request))


def undo_act(feed: Feed, pool: PoolClient) -> PlannedAct:
    """The act that takes the last application back."""
    try:
        command, changes = last_application(feed)
    except PoolError as error:
        return PlannedAct("undo", plain(str(error), 300), (), {}, None)
    if not command:
        return PlannedAct("undo", "no plan is applied here", (), {}, None)
    return PlannedAct(
        "undo",
        undo_sentence(command, changes),
        undo_lines(changes),
        {change.subject: change.name for change in changes},
        lambda on_result: undo_application(command, changes, feed, pool, on_result),
    )
