"""Confirmation of a pool action: targets, exclusions, effect, undo, and site."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, ClassVar, Final

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from metlmon.live.feed import Snapshot
from metlmon.pool.gate_requests import site_of
from metlmon.pool.queue_checks import target
from metlmon.pool.run_actions import unknown_site, with_site
from metlmon.pool.types import (
    AS_THE_DAG_SAYS,
    DAG_ACTS,
    RUN_ACTS,
    ActionPreview,
    DagTarget,
    LeftOut,
    PoolAction,
    QueueSnapshot,
    RunTarget,
    SiteInfo,
    Target,
)
from metlmon.snapshot.records import Epoch, Job, Status
from metlmon.tables.layout import UNKNOWN_CELL, Column, Kind, render_table
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    KEY,
    NOTE,
    PLAIN,
    Line,
    crop,
    file_name,
    fit,
    limit_lines,
    line,
    symbol_span,
    width,
    wrap,
)
from screens.base.screens import (
    ConfirmationBase,
    Prompt,
    ask_in_thread,
    heading,
    hidden_below,
    rule,
)
from screens.pool_actions.menu import MenuScreen, ResultsScreen
from screens.pool_actions.running_action import (
    IRREVERSIBLE,
    SITE_ACTIONS,
    capitalized,
    common_folder,
    files_title,
    question_text,
    undo_text,
)
from screens.widgets.line_widget import Document

DAG_DEFAULT: Final = "as the DAG says"
"""Accepted instead of a site name, to undo an earlier choice of site."""

MAX_SITES: Final = 6
"""Maximum sites listed; the targets need the other lines."""


def known_sites(
    pool_sites: Sequence[SiteInfo],
    status: Status | None,
    epochs: Iterable[Epoch],
    with_default: bool,
) -> dict[str, str]:
    """Return the selectable sites with a description: collector, DAG, past executions.

    ``with_default`` puts the entry :data:`DAG_DEFAULT` first.
    """
    about = {DAG_DEFAULT: "no longer elsewhere"} if with_default else {}
    for site in pool_sites:
        slots = formatting.count(site.slots, "slot")
        about[site.name] = ", ".join([slots, *site.gpus])
    targets = {row.target for row in epochs if row.target} | requested_sites(status)
    for name in sorted(targets):
        about.setdefault(name, "named in the DAG")
    for row in status.sites if status is not None else ():
        if row.site is not None:
            count = formatting.count(row.executions, "execution")
            about.setdefault(row.site, f"{count} so far")
    return about


def requested_sites(status: Status | None) -> set[str]:
    """Return the sites that runs request, in the DAG or by their gates."""
    runs = status.runs if status is not None else ()
    places = (part for run in runs for part in (run.latest, run.gate) if part is not None)
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
        """Insert the next matching site."""
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


EFFECT_LINES: Final = 3
"""Maximum lines each for effect and undo; the job table needs the rest."""

PRIORITY_LIMIT: Final = 2**31 - 1
"""JobPrio is a 32-bit number in the schedd."""


class NumberPrompt(Prompt):
    """Input of a whole number; ``enter`` goes on to the confirmation."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "screen.back", show=False)]

    def __init__(self) -> None:
        super().__init__(id="value", hint="a whole number; larger goes first, 0 is the usual")
        self.restrict = r"-?\d{0,10}"


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
        self._loading_sites = preview.act in (*SITE_ACTIONS, PoolAction.EXCLUDE_SITE)
        self._sites_error: str | None = None

    def compose_input(self) -> ComposeResult:
        if self._preview.act is PoolAction.PRIORITY:
            yield NumberPrompt()
        elif self._preview.act in SITE_ACTIONS:
            yield SitePrompt(self._known_sites)

    def on_mount(self) -> None:
        super().on_mount()
        for prompt in self.query(Prompt):
            self.call_after_refresh(self.set_focus, prompt)
        pool = self.context.pool_actions
        if self._loading_sites and pool is not None:
            ask_in_thread(self, pool.sites, self._sites_loaded, "asking for sites failed")

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
        room = self.app.size.width
        self.show_document(self._head(room - 2), self._body(room))

    def hidden_actions(self) -> Collection[str]:
        closed = self._input_missing or not self.can_confirm
        return {*super().hidden_actions(), *(("confirm",) if closed else ())}

    def show_document_note(self, document: Document, below: Sequence[Line] = ()) -> None:
        self.show_note([rule(hidden_below(document.lines_below, NOTE), self.app.size.width)])

    # --- rendering ------------------------------------------------------------------------

    def _head(self, room: int) -> list[Line]:
        preview = self._current_preview
        style = ALARM if preview.act in IRREVERSIBLE else BOLD
        title = question_text(preview, len(self._dag_jobs), self._entered)
        lines = wrap(title, room, style, indent=1)[:2]
        effect = wrap(capitalized(preview.effect), room, indent=1)
        lines += limit_lines(effect, EFFECT_LINES, room, 1)
        if preview.undo:
            undo = wrap(undo_text(preview), room, DIM, indent=1)
            lines += limit_lines(undo, EFFECT_LINES, room, 1)
        if isinstance(self._entered, str):
            warning = unknown_site(self._entered, self._pool_sites, list(self._known_sites()))
            lines += wrap(capitalized(warning), room, NOTE, indent=1) if warning else []
        if preview.act is PoolAction.EXCLUDE_SITE and preview.request is not None:
            snapshot = self.context.snapshot
            requested = requested_sites(snapshot.status if snapshot is not None else None)
            warning = unknown_site(preview.request.site or "", self._pool_sites, requested)
            lines += wrap(capitalized(warning), room, NOTE, indent=1) if warning else []
        return [*lines, crop(self._key_hint(), room)]

    def _key_hint(self) -> Line:
        if not self._input_missing:
            confirm = line(("y", KEY), " does it, ") if self.can_confirm else line(("wait, ", DIM))
            return line(" ") + confirm + line(("esc", KEY), " or ", ("n", KEY), " touches nothing")
        if self._input_error:
            return line(" ", (self._input_error, BAD))
        hint = line(" Type the new priority, then ")
        if self._preview.act in SITE_ACTIONS:
            hint = line(" Type a site, or take one with ", ("up", KEY), " and ", ("down", KEY))
            hint += line(", then ")
        return hint + line(("enter", KEY), ("; you are asked then", DIM))

    def _body(self, room: int) -> list[Line]:
        preview = self._current_preview
        order = preview.request
        targets, runs = (order.targets, order.runs) if order is not None else ((), ())
        lines = self._site_list(room) if self._input_missing else []
        if preview.line is not None:
            added = "Add to" if preview.act is PoolAction.EXCLUDE_SITE else "Take out of"
            lines += [heading(f"{added} the submit file, for later jobs", room)]
            lines += [*wrap(plain(preview.line, 600), room - 2, BOLD, indent=1), ()]
        if order is not None and order.dags:
            lines += [heading("Later jobs of these DAGs, by a file", room)]
            lines += [*render_table(_dag_columns(), order.dags, room), ()]
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
            title = f"It {'removes' if runs else 'touches'} {_jobs_count(targets)}"
            title = "DAGMan's own job" if preview.act in DAG_ACTS else title
            lines += [heading(title, room), *self._jobs(targets, room)]
        if self._dag_jobs:
            dag_jobs = [target(job) for job in self._dag_jobs]
            title = f"{_jobs_count(dag_jobs)} in the queue go with it"
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
            expected = "a site's name, without quotes, $ and backslash,"
            if self._preview.act is PoolAction.PRIORITY:
                expected = f"a whole number from {-PRIORITY_LIMIT} to {PRIORITY_LIMIT}"
            self._input_error = f"{expected} is needed here"
        else:
            self.set_focus(self.query_one(Document))
            self.start_delay()
        self._refresh_if_mounted()

    def _parse(self, text: str) -> int | str | None:
        if self._preview.act is PoolAction.PRIORITY:
            return parse_priority(text)
        if self._preview.act is PoolAction.SEND and text.strip() == DAG_DEFAULT:
            return AS_THE_DAG_SAYS
        return site_of(text)

    def _known_sites(self) -> dict[str, str]:
        """The known sites with a description; incomplete until the collector has replied."""
        order, snapshot = self._preview.request, self.context.snapshot
        touched: list[RunTarget | Target] = []
        if order is not None:
            touched += [*order.runs, *order.targets]
        run = touched[0].run if touched else None
        rows = snapshot.status.runs if snapshot is not None else ()
        key = next((row.key for row in rows if row.name == run), None)
        view = self.context.feed.run_view(key) if key is not None else None
        return known_sites(
            self._pool_sites,
            status=snapshot.status if snapshot is not None else None,
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
        if self._input_missing or not self.key_confirms:
            return
        if isinstance(self._entered, int):
            order = replace(order, value=self._entered)
        context = self.context
        running = context.perform(preview, order)
        self._on_confirmed()
        while isinstance(context.screen, ConfirmScreen | MenuScreen):
            context.pop_screen()
        context.push_screen(ResultsScreen(running))


def parse_priority(text: str) -> int | None:
    """Parse a job priority; None if it is no 32-bit number."""
    try:
        value = int(text)
    except ValueError:
        return None
    return value if -PRIORITY_LIMIT <= value <= PRIORITY_LIMIT else None


def _jobs_count(targets: Sequence[Target]) -> str:
    return formatting.count(len(targets), "job")


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
    """Epoch and state of a job or a run."""
    return [
        Column(
            "epoch",
            "EPOCH",
            lambda target: "" if target.epoch is None else formatting.epoch_number(target.epoch),
            Kind.COUNT,
            drop=epoch_drop,
        ),
        Column("state", "STATE", lambda target: STATES[target.state], Kind.STATE, drop=state_drop),
    ]


def _job_columns(
    targets: Sequence[Target], act: PoolAction, queue: QueueSnapshot | None
) -> list[Column[Target]]:
    """Columns of jobs, with the value in the queue that the action changes.

    It guides the new one, and is needed to go back.
    """

    def priority(target: Target) -> int | str:
        job = queue.job(target.cluster, target.proc) if queue is not None else None
        return "" if job is None else job.priority

    def site(target: Target) -> str:
        job = queue.job(target.cluster, target.proc) if queue is not None else None
        return "" if job is None or job.site is None else plain(job.site, 40)

    columns: list[Column[Target]] = [
        Column("job", "JOB", lambda target: _text(target.id), align="right"),
        Column(
            "run", "RUN", lambda target: _text(target.run), minimum=6, comfortable=10, maximum=24
        ),
        *_state_columns(),
        Column(
            "node", "NODE", lambda target: _text(target.node), drop=2, maximum=40, comfortable=16
        ),
    ]
    if len({target.dag for target in targets}) > 1:
        dag: Column[Target] = Column(
            "dag",
            "DAG",
            lambda target: target.dag,
            drop=1,
            cell=lambda target, width: (
                line(plain(file_name(target.dag, width), 60)) if target.dag else UNKNOWN_CELL
            ),
            maximum=30,
            comfortable=12,
        )
        columns.append(dag)
    if queue is not None and act is PoolAction.PRIORITY:
        columns.insert(3, Column("now", "NOW", priority, align="right", write=str))
    if queue is not None and act is PoolAction.RETARGET:
        columns.insert(3, Column("now", "NOW FOR", site, maximum=24))
    return columns


def _dag_columns() -> list[Column[DagTarget]]:
    """Columns of DAGs, the file that is written for each, and their runs."""
    return [
        Column("dag", "DAG", lambda dag: _text(dag.dag), minimum=8, maximum=30),
        Column("file", "FILE", lambda dag: plain(dag.file, 300), minimum=20),
        Column("runs", "RUNS", lambda dag: len(dag.runs), Kind.COUNT),
    ]


def _run_columns(runs: Sequence[RunTarget]) -> list[Column[RunTarget]]:
    """Columns of runs, and of the files that are written for them."""
    one_folder = common_folder(runs) is not None

    def files(target: RunTarget) -> str:
        names = [PurePath(file).name if one_folder else file for file in target.files]
        return plain("  ".join(names), 300)

    return [
        Column(
            "run",
            "RUN",
            lambda target: plain(target.run, 60),
            minimum=6,
            comfortable=10,
            maximum=24,
        ),
        *_state_columns(epoch_drop=2, state_drop=1),
        Column("files", "FILE", files, minimum=20, comfortable=40),
    ]
