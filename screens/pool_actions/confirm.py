"""Confirmation screen of a pool action: targets, exclusions, effect and undo."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from metlmon.error_text import describe_error
from metlmon.live.feed import Snapshot
from metlmon.pool.gate_requests import site_of
from metlmon.pool.interface import PoolActions
from metlmon.pool.run_actions import unknown_site, with_site
from metlmon.pool.types import (
    AS_THE_DAG_SAYS,
    DAG_ACTS,
    RUN_ACTS,
    ActionPreview,
    PoolAction,
    PoolError,
    QueueSnapshot,
    RunTarget,
    SiteInfo,
    Target,
)
from metlmon.snapshot.types import JobRow
from metlmon.tables.layout import Column, render_table
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    KEY,
    NOTE,
    Line,
    crop,
    file_name,
    limit_lines,
    line,
    symbol_span,
    wrap,
)
from screens.actions import bindings_of
from screens.base.confirmation import ConfirmationBase
from screens.base.screens import Prompt, heading, rule
from screens.pool_actions.menu import MenuScreen
from screens.pool_actions.results import ResultsScreen
from screens.pool_actions.running_action import (
    IRREVERSIBLE,
    SITE_ACTIONS,
    capitalized,
    common_folder,
    files_title,
    question_text,
    undo_text,
)
from screens.pool_actions.site_prompt import (
    DAG_DEFAULT,
    SiteChoice,
    SitePrompt,
    known_sites,
    site_lines,
)
from screens.widgets.document import Document
from screens.widgets.footer import HIDDEN_IN_MODALS, KeyFooter
from screens.widgets.lines import StaticLines

EFFECT_LINES: Final = 3
"""Maximum lines each for effect and undo; the job table needs the rest."""

PRIORITY_LIMIT: Final = 2**31 - 1
"""JobPrio is a 32-bit number in the schedd."""


class NumberPrompt(Prompt):
    """Input of a whole number; ``enter`` goes on to the confirmation."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "screen.back", show=False)]

    def __init__(self) -> None:
        super().__init__(id="number", hint="a whole number; larger goes first, 0 is the usual")
        self.restrict = r"-?\d{0,10}"


class ConfirmScreen(ConfirmationBase):
    """Confirmation of a pool action; only ``y`` performs it.

    ``dag_jobs`` are jobs that are removed together with a DAG.
    """

    class SitesLoaded(Message):
        """The collector query has ended, with or without a result."""

    SCOPES: ClassVar[tuple[str, ...]] = ("question",)
    SHOWS_ENSEMBLE: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("question")]
    AUTO_FOCUS = "Document"

    def __init__(
        self, preview: ActionPreview, dag_jobs: Sequence[JobRow], on_confirmed: Callable[[], None]
    ) -> None:
        super().__init__()
        self._preview = preview
        self._dag_jobs = dag_jobs
        self._on_confirmed = on_confirmed
        self._entered: int | str | None = None
        self._input_error = ""
        self._pool_sites: tuple[SiteInfo, ...] = ()
        self._loading_sites = preview.act in SITE_ACTIONS
        self._sites_error: str | None = None

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        if self._preview.act is PoolAction.PRIORITY:
            yield NumberPrompt()
        elif self._preview.act in SITE_ACTIONS:
            yield SitePrompt(self._known_sites)
        yield Document()
        yield StaticLines(id="note")
        yield self.key_footer()

    def on_mount(self) -> None:
        super().on_mount()
        for prompt in self.query(Prompt):
            self.call_after_refresh(self.set_focus, prompt)
        if self._loading_sites:
            # A daemon thread, not a worker: quitting must not wait for the collector.
            threading.Thread(
                target=self._load_sites,
                args=(self.context.pool_actions,),
                name="metlmon-sites",
                daemon=True,
            ).start()

    def key_footer(self) -> KeyFooter:
        return KeyFooter((*self.SCOPES, "everywhere"), HIDDEN_IN_MODALS)

    @property
    def _input_missing(self) -> bool:
        """Whether a required number or site has not been entered yet."""
        return self._preview.act in (PoolAction.PRIORITY, *SITE_ACTIONS) and self._entered is None

    @property
    def _current_preview(self) -> ActionPreview:
        """The action preview, with the entered site applied."""
        entered = self._entered
        return with_site(self._preview, entered) if isinstance(entered, str) else self._preview

    def show(self, update: Snapshot | None) -> None:
        closed = self._input_missing or not self.can_confirm
        self.query_one(KeyFooter).hide_actions(
            HIDDEN_IN_MODALS | ({"confirm"} if closed else set())
        )
        room, document = self.app.size.width, self.query_one(Document)
        self.query_one("#head", StaticLines).show(self._head(room - 2))
        document.show(self._body(room))
        down = "↓"
        more_below = (
            [line((f"{down} {document.lines_below} more", NOTE))] if document.lines_below else []
        )
        self.query_one("#note", StaticLines).show([rule(more_below, room)])

    # --- rendering ------------------------------------------------------------------------

    def _head(self, room: int) -> list[Line]:
        offer = self._current_preview
        style = ALARM if offer.act in IRREVERSIBLE else BOLD
        title = question_text(offer, len(self._dag_jobs), self._entered)
        lines = wrap(title, room, style, indent=1)[:2]
        effect = wrap(capitalized(offer.effect), room, indent=1)
        lines += limit_lines(effect, EFFECT_LINES, room, 1)
        if offer.undo:
            undo = wrap(undo_text(offer), room, DIM, indent=1)
            lines += limit_lines(undo, EFFECT_LINES, room, 1)
        if isinstance(self._entered, str):
            known_names = [site.name for site in self._known_sites()]
            warning = unknown_site(self._entered, self._pool_sites, known_names)
            lines += wrap(capitalized(warning), room, NOTE, indent=1) if warning else []
        lines.append(crop(self._key_hint(), room))
        return lines

    def _key_hint(self) -> Line:
        if not self._input_missing:
            confirm = line(("y", KEY), " does it, ") if self.can_confirm else line(("wait, ", DIM))
            return line(" ") + confirm + line(("esc", KEY), " or ", ("n", KEY), " touches nothing")
        if self._input_error:
            return line(" ", (self._input_error, BAD))
        if self._preview.act in SITE_ACTIONS:
            style = line(" Type a site, or take one with ", ("up", KEY), " and ", ("down", KEY))
            return style + line(", then ", ("enter", KEY), ("; you are asked then", DIM))
        return line(" Type the new priority, then ", ("enter", KEY), ("; you are asked then", DIM))

    def _body(self, room: int) -> list[Line]:
        offer = self._current_preview
        targets = offer.order.targets if offer.order is not None else ()
        runs = offer.order.runs if offer.order is not None else ()
        lines = self._sites(room) if self._input_missing else []
        if offer.order is not None and runs:
            lines += [heading(files_title(offer.order), room)]
            lines += render_table(_run_specs(runs), runs, room)
            targets = tuple(job for run in runs for job in run.jobs)
            lines += [()] if targets else []
        if offer.act in DAG_ACTS:
            dag = offer.order.dag if offer.order is not None else None
            dag_name = plain(dag or offer.subject, 200)
            lines += [heading("It touches the DAG", room), line(" ", (dag_name, BOLD))]
        if targets:
            count = formatting.count(len(targets), "job")
            what = "DAGMan's own job" if offer.act in DAG_ACTS else f"It touches {count}"
            what = f"It removes {count}" if runs else what
            lines += [heading(what, room), *self._jobs(targets, room)]
        if self._dag_jobs:
            dag_jobs = [target_of(job) for job in self._dag_jobs]
            title = f"{formatting.count(len(dag_jobs), 'job')} in the queue go with it"
            lines += [(), heading(title, room)]
            lines += self._jobs(dag_jobs, room)
        if offer.left_out:
            noun = "run" if offer.act in RUN_ACTS else "job"
            title = f"{formatting.count(len(offer.left_out), noun)} left out"
            lines += [(), heading(title, room)]
            for target, reason in offer.left_out:
                epoch = "" if target.epoch is None else f"  epoch {target.epoch}"
                about = f" {_name(target)}  {plain(target.run or '', 24)}{epoch}  "
                sign = STATES[target.state]
                text = line((about, DIM)) + symbol_span(sign)
                lines.append(text + line((f"  {plain(reason, 200)}", NOTE)))
        return lines

    def _jobs(self, targets: Sequence[Target], room: int) -> list[Line]:
        specs, queue = _specs(targets), self.context.queue
        if self._preview.act is PoolAction.PRIORITY and queue is not None:
            # Show the current value: it guides the new one, and is needed to go back.
            specs.insert(3, Column("now", "NOW", partial(_priority_now, queue), "right"))
        if self._preview.act is PoolAction.RETARGET and queue is not None:
            specs.insert(3, Column("now", "NOW FOR", partial(_site_now, queue), maximum=24))
        return render_table(specs, targets, room)

    # --- input of a number ----------------------------------------------------------------

    @on(Input.Changed, "#number")
    def _number_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._entered, self._input_error = None, ""
        self._refresh_if_mounted()

    @on(Input.Submitted, "#number")
    def _number_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._accept(
            parse_priority(event.value),
            f"a whole number from {-PRIORITY_LIMIT} to {PRIORITY_LIMIT}",
        )

    def _accept(self, value: int | str | None, expected: str) -> None:
        self._entered = value
        if value is None:
            self._input_error = f"{expected} is needed here"
        else:
            self.set_focus(self.query_one(Document))
            self.start_delay()
        self._refresh_if_mounted()

    # --- input of a site ------------------------------------------------------------------

    def _known_sites(self) -> list[SiteChoice]:
        """The known sites; incomplete until the collector has replied."""
        order, snapshot, feed = self._preview.order, self.context.snapshot, self.context.feed
        targets = order.touched[:1] if order is not None else ()
        runs = snapshot.status.runs if snapshot is not None else ()
        keys = [row.key for row in runs for target in targets if row.run == target.run]
        views = (feed.run_view(key) for key in keys[:1])
        epochs = [row for view in views if view is not None for row in view.epochs]
        status, with_default = (
            snapshot.status if snapshot else None,
            self._preview.act is PoolAction.SEND,
        )
        return known_sites(self._pool_sites, status, epochs, with_default)

    def _sites(self, room: int) -> list[Line]:
        lines: list[Line] = []
        for prompt in self.query(SitePrompt):
            matching = prompt.matching(self._known_sites())
            title = heading("Sites that are known", room)
            rows = site_lines(matching, prompt.value, self._loading_sites, self._sites_error)
            lines += [title, *rows, ()]
        return lines

    def _load_sites(self, pool: PoolActions | None) -> None:
        """Fetch the sites from the collector; runs in a thread."""
        try:
            self._pool_sites = pool.sites() if pool is not None else ()
        except PoolError as error:
            self._sites_error = str(error)
        except Exception as error:
            self._sites_error = describe_error("asking for sites failed", error)
        self._loading_sites = False
        # The screen may be closed when the result arrives.
        with suppress(RuntimeError):
            self.post_message(self.SitesLoaded())

    def on_confirm_screen_sites_loaded(self) -> None:
        self._refresh_if_mounted()

    @on(Input.Changed, "#site")
    def _site_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one(SitePrompt).set_typed_text(event.value)
        self._entered, self._input_error = None, ""
        self._refresh_if_mounted()

    @on(Input.Submitted, "#site")
    def _site_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._preview.act is PoolAction.SEND and event.value.strip() == DAG_DEFAULT:
            self._accept(AS_THE_DAG_SAYS, "")
        else:
            self._accept(site_of(event.value), "a site's name, without quotes, $ and backslash,")

    def action_confirm(self) -> None:
        offer, order = self._current_preview, self._current_preview.order
        if order is None or self.context.action_refusal() is not None:
            return
        if self._input_missing or not self.key_confirms:
            return
        if isinstance(self._entered, int):
            order = replace(order, value=self._entered)
        monitor = self.context
        running = monitor.perform(offer, order)
        self._on_confirmed()
        while isinstance(monitor.screen, ConfirmScreen | MenuScreen):
            monitor.pop_screen()
        monitor.push_screen(ResultsScreen(running))


def parse_priority(text: str) -> int | None:
    """Parse a job priority; None if it is no 32-bit number."""
    try:
        value = int(text)
    except ValueError:
        return None
    return value if -PRIORITY_LIMIT <= value <= PRIORITY_LIMIT else None


def target_of(job: JobRow) -> Target:
    """Convert a job row to a target of a pool action."""
    return Target(job.cluster, job.proc, job.dag, job.node, job.run, job.epoch, job.state)


def _priority_now(queue: QueueSnapshot, target: Target, _: int | None) -> Line:
    job = queue.job(target.cluster, target.proc)
    return line("" if job is None else str(job.priority))


def _site_now(queue: QueueSnapshot, target: Target, _: int | None) -> Line:
    job = queue.job(target.cluster, target.proc)
    return line("" if job is None or job.site is None else plain(job.site, 40))


def _name(target: Target | RunTarget) -> str:
    """Return a job's id, or the first characters of a run's uuid."""
    return target.id if isinstance(target, Target) else plain(target.id, 8)


def _run_specs(runs: Sequence[RunTarget]) -> list[Column[RunTarget]]:
    one_folder = common_folder(runs) is not None

    def run(target: RunTarget, _: int | None) -> Line:
        return line(plain(target.run, 60))

    def epoch(target: RunTarget, _: int | None) -> Line:
        return line("" if target.epoch is None else str(target.epoch))

    def files(target: RunTarget, _: int | None) -> Line:
        names = [PurePath(file).name if one_folder else file for file in target.files]
        return line(plain("  ".join(names), 300))

    return [
        Column("run", "RUN", run, minimum=6, comfortable=10, maximum=24),
        Column("epoch", "EPOCH", epoch, "right", drop=2),
        Column(
            "state",
            "STATE",
            lambda run_target, _: symbol_span(STATES[run_target.state]),
            drop=1,
        ),
        Column("files", "FILE", files, minimum=20, comfortable=40),
    ]


def _specs(targets: Sequence[Target]) -> list[Column[Target]]:
    def text(value: str | None, _: int | None = None) -> Line:
        return line(plain(value, 60) if value else (formatting.UNKNOWN, DIM))

    def text_column(name: str) -> Callable[[Target, int | None], Line]:
        return lambda target, _: text(getattr(target, name))

    def epoch(target: Target, _: int | None) -> Line:
        return line("" if target.epoch is None else str(target.epoch))

    def dag(target: Target, max_width: int | None) -> Line:
        return text(file_name(target.dag, max_width) if target.dag else None)

    specs: list[Column[Target]] = [
        Column("job", "JOB", text_column("id"), "right"),
        Column("run", "RUN", text_column("run"), minimum=6, comfortable=10, maximum=24),
        Column("epoch", "EPOCH", epoch, "right"),
        Column("state", "STATE", lambda target, _: symbol_span(STATES[target.state])),
        Column("node", "NODE", text_column("node"), drop=2, maximum=40, comfortable=16),
    ]
    if len({target.dag for target in targets}) > 1:
        specs.append(Column("dag", "DAG", dag, drop=1, maximum=30, comfortable=12))
    return specs
