"""The submit pane: choose, see every file, submit, watch."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message

from metlmon.authoring.inputs import sites_in
from metlmon.authoring.request import EnsembleShape, Request, RequestProblem, StopRules, Template
from metlmon.error_text import describe_error
from metlmon.live.feed import Snapshot
from metlmon.pool.interface import PoolActions
from metlmon.pool.types import PoolError
from metlmon.stats import cost as stats
from metlmon.stats.cost import CostHistory
from metlmon.text import formatting
from metlmon.text.formatting import plain
from screens.actions import bindings_of
from screens.base.screens import SnapshotScreen, rule
from screens.submit.choice_screen import ChoiceOption, ChoiceScreen
from screens.submit.form_model import (
    HOWS,
    LABELS,
    POLICIES,
    SHAPES,
    Field,
    FormState,
    fields_of,
    first_template,
    new_directory,
)
from screens.submit.launch_screen import LaunchScreen
from screens.submit.pool_info import PoolInfo, gpus, schedd, seconds
from screens.submit.preview import Preview, amount, preview
from screens.submit.validation import FormResult, come_along, validate_form
from screens.widgets.footer import KeyFooter
from screens.widgets.form import FormEntry, FormView
from screens.widgets.lines import StaticLines
from screens.widgets.side_pane import EDGE, SidePane
from screens.widgets.spans import (
    BAD,
    BOLD,
    DIM,
    NOTE,
    Line,
    bounded,
    crop,
    joined,
    line,
    spread,
    wrapped,
)

SIDE_BY_SIDE: Final = 130
"""From this width on, form and preview stand beside each other."""

FORM_CELLS: Final = 92
"""As wide as the form gets there: what is wrong with a field still fits beside it."""

NOTE_LINES: Final = 3
"""Below the form, always as many: the form keeps its height while the cursor moves."""

_TITLES: Final[Mapping[str, str]] = {
    "template": "What to train",
    "shape": "How much of it",
    "sites": "Where",
    "gpus": "What each job asks for",
    "gate": "Steering it while it runs",
}
"""Headings above these fields, where there is room."""

_HINTS: Final[Mapping[str, str]] = {
    "seeds": "1, 2, 3 and so on",
    "sites": "anywhere",
    "gpu_memory_mb": "any",
    "evaluation.every": "none",
    "gate.patience": "never",
    "gate.divergence": "never",
    "gate.median_after": "never",
}
"""What an empty field stands for."""


_MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "policy": POLICIES,
    "shape": SHAPES,
    "how": HOWS,
}
"""Fields of some words, each with its meaning."""


class SubmitScreen(SnapshotScreen):
    """The form and what it would write. The form outlives the screen, in the application."""

    SCOPES: ClassVar[tuple[str, ...]] = ("submit",)
    IN_TIME: ClassVar[bool] = False
    HELPS: ClassVar[tuple[str, ...]] = ("submit", "form", "preview", "typing")
    AUTO_FOCUS: ClassVar[str | None] = "FormView"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("submit", "typing")]

    class Judged(Message):
        """The form was judged."""

        def __init__(self, verdict: FormResult, shown: Preview, cells: int) -> None:
            super().__init__()
            self.verdict, self.shown, self.cells = verdict, shown, cells

    class Misjudged(Message):
        """Judging it broke off."""

        def __init__(self, error: Exception) -> None:
            super().__init__()
            self.error = error

    class Learned(Message):
        """The schedd or the collector answered: fields of :class:`PoolInfo`."""

        def __init__(self, **fields: object) -> None:
            super().__init__()
            self.fields = fields

    def __init__(self, draft: Request | None = None) -> None:
        super().__init__()
        self.draft = draft
        self.verdict = FormResult(FormState())
        self.known = PoolInfo()
        self._form = FormState()
        self._judging: tuple[FormState, int] | None = None
        self._stale = self._opening = self._aside = False
        self._asked = 0.0
        self._launch: LaunchScreen | None = None

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        with Horizontal():
            yield FormView(self._put, id="form")
            yield SidePane(id="preview")
        yield StaticLines(id="note")
        yield self.keys()

    def keys(self) -> KeyFooter:
        return KeyFooter(("submit", "typing"))

    def on_mount(self) -> None:
        along = come_along()
        self._form = self.monitor.form or FormState.of(self.draft or _first_request(along))
        # What comes along is at hand: its fields need not appear later and push others down.
        wanted = self._form.text("template")
        template = next((each for each in along if each.name == wanted), None)
        self.verdict = FormResult(self._form, along, template)
        self._tick = self.set_interval(1.0, self._wait_on, pause=True)
        super().on_mount()
        self._ask()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        if self._ready:
            # Files may have come or gone.
            self._launch = None
            self._judge(anew=True)

    # --- what is shown --------------------------------------------------------------------

    @property
    def _wide(self) -> bool:
        return self.app.size.width >= SIDE_BY_SIDE

    @property
    def _form_cells(self) -> int:
        room = self.app.size.width
        return min(FORM_CELLS, room * 45 // 100) if self._wide else room

    @property
    def _preview_cells(self) -> int:
        return self.app.size.width - (self._form_cells if self._wide else 0) - EDGE

    @property
    def _fields(self) -> tuple[Field, ...]:
        names = [each.name for each in self.verdict.templates]
        return fields_of(self.verdict.template, names, self._form)

    def show(self, update: Snapshot | None) -> None:
        form, sheet = self.query_one(FormView), self.query_one(SidePane)
        head = self._head()
        self.query_one("#head", StaticLines).show(head)
        form.styles.width = self._form_cells
        form.display, sheet.display = self._wide or not self._aside, self._wide or self._aside
        free = self.app.size.height - len(head) - NOTE_LINES - 2
        form.show(self._entries(free), 26 if self._form_cells < 84 else 32)
        self.query_one("#note", StaticLines).show(self._note(form, sheet))
        self._judge()

    def _head(self) -> list[Line]:
        ascii, room = self.ascii, self.app.size.width
        right = schedd(self.known, ascii, long=room >= 100)
        title = line(("Submit a new ensemble", BOLD))
        lines = [line(" ") + spread(title, right, room - 2, ascii), line(" ") + self._sum()]
        if self.known.error is not None:
            why = plain(f"Nothing can be submitted: {self.known.error}", 2000, ascii)
            lines += bounded(wrapped(why, room - 1, NOTE, indent=1), 2, room - 1, 1, ascii)
        return [*lines, ()]

    def _sum(self) -> Line:
        """What it comes to, in one line."""
        verdict, ascii = self.verdict, self.ascii
        if verdict.request is None:
            return line(("working out what it comes to", DIM))
        if verdict.plan is None:
            names = dict.fromkeys(_label(each) for each in verdict.fatal)
            what = formatting.count(len(names), "field needs", "fields need", ascii=ascii)
            told = plain(", ".join(names), 200, ascii)
            return line((f"{what} another look: ", BAD), told)
        plan = verdict.plan
        jobs = formatting.count(plan.jobs, "job", ascii=ascii)
        files = formatting.count(len(plan.files), "file", ascii=ascii)
        way = formatting.count(len(plan.in_the_way), "is", "are", ascii=ascii)
        return joined(
            (
                line((amount(plan, ascii), BOLD), (f" = {jobs}", BOLD)),
                line(formatting.count(plan.nodes, "node", ascii=ascii)),
                line(files),
                line((f"{way} in the way", NOTE)) if plan.in_the_way else (),
            ),
            line("   "),
        )

    def _entries(self, free: int) -> list[FormEntry]:
        """The fields as they are drawn, with headings where all has room in ``free`` lines."""
        fields = self._fields
        own = [each for each in fields if each.name.startswith("values.")]
        roomy = free >= len(fields) + 2 * len(_TITLES) + (2 if own else 0)
        entries: list[FormEntry] = []
        for each in fields:
            title = _TITLES.get(each.name) if roomy else None
            if own and each is own[0]:
                template = self.verdict.template
                name = plain(template.name if template else "", 40, self.ascii)
                title = f"Parameters of {name}"
            if title is not None:
                entries += [FormEntry(None, "")] * (roomy and bool(entries)) + [
                    FormEntry(None, title)
                ]
            entries.append(self._entry(each))
        return entries

    def _entry(self, each: Field) -> FormEntry:
        label = plain(each.label, 18, self.ascii)
        text = self._form.text(each.name, self.verdict.template)
        hint = _HINTS.get(each.name, "")
        # What is wrong needs the room more than the unit does.
        unit = "" if self.verdict.of(each.name) else each.unit
        beside = self._beside(each)
        listed = each.name in ("template", "sites", "gpu_models", *_MEANINGS)
        return FormEntry(
            each.name, label, text, unit, beside, hint, each.options, each.closed, listed
        )

    def _beside(self, field: Field) -> Line:
        """What is wrong with a field, or else what stands in it means."""
        said = self.verdict.of(field.name)
        if said is not None:
            return self._said_of(said)
        text = self._form.text(field.name, self.verdict.template)
        if field.name in _MEANINGS:
            return line((_MEANINGS[field.name].get(text, ""), DIM))
        if field.name == "sweep":
            return self._swept_told()
        if field.name == "template" and self.verdict.template is not None:
            return line((plain(self.verdict.template.title, 100, self.ascii), DIM))
        if field.name == "sites":
            return self._of_the_pool(len(self.known.sites), "site")
        if field.name == "gpu_models":
            return self._of_the_pool(len(self.known.gpu_models), "GPU model")
        return ()

    def _swept_told(self) -> Line:
        """How many values of each variable there are."""
        request = self.verdict.request
        if request is None or request.sweep is None:
            return ()
        told = (
            f"{plain(each.name, 20, self.ascii)} {formatting.number(len(each.values), self.ascii)}"
            for each in request.sweep.variables
        )
        return line((f"values: {', '.join(told)}", DIM))

    def _of_the_pool(self, listed: int, what: str) -> Line:
        """How many of it the collector knows, or why it tells none."""
        known, ascii = self.known, self.ascii
        if known.asking_sites is not None:
            return line((f"asking the collector{seconds(known.asking_sites)}", DIM))
        if listed:
            return line((f"enter: {formatting.count(listed, what, ascii=ascii)}", DIM))
        return line((plain(known.no_sites or "the collector names none", 400, ascii), DIM))

    def _said_of(self, said: RequestProblem) -> Line:
        sign = ("X " if self.ascii else "✗ ") if said.fatal else "! "
        how = BAD if said.fatal else NOTE
        return line((sign, how), (plain(said.text, 400, self.ascii), how))

    def _note(self, form: FormView, sheet: SidePane) -> list[Line]:
        room, ascii = self.app.size.width, self.ascii
        down, up = ("v", "^") if ascii else ("↓", "↑")
        seen = sheet if self._aside and not self._wide else form
        above = sheet.top if seen is sheet else form.above
        outside = [f"{up} {above}"] * (above > 0) + [f"{down} {seen.below} more"] * (seen.below > 0)
        parts = [*self.remarks(), *([line(("  ".join(outside), DIM))] if outside else [])]
        if self._wide and sheet.below:
            of = f"{sheet.top + 1} of {formatting.number(len(sheet.lines), ascii)} lines"
            parts.append(line((f"preview {of}, pgdn", DIM)))
        lines = self._help(form, room - 2)
        return [rule(parts, room, ascii), *lines, *[()] * (NOTE_LINES - len(lines))]

    def _help(self, form: FormView, room: int) -> list[Line]:
        """What is wrong with the field under the cursor, and what it is for."""
        if self._aside:
            keys = "n next file   up and down, pgup and pgdn scroll   tab or esc back to the form"
            return [line(" ", (keys, DIM))]
        field = next((each for each in self._fields if each.name == form.cursor), None)
        if field is None:
            return []
        said = self.verdict.of(field.name) or self.verdict.of("")
        lines: list[Line] = []
        if said is not None:
            how = BAD if said.fatal else NOTE
            lines = wrapped(plain(said.text, 2000, self.ascii), room, how, indent=1)
            # Its end says what to do about it.
            lines = bounded(lines, NOTE_LINES, room, 1, self.ascii)
        about = self.verdict.template.about if self.verdict.template else ""
        told = f"{field.help} {about}" if field.name == "template" else field.help
        if len(lines) < NOTE_LINES:
            lines += wrapped(plain(told, 2000, self.ascii), room, DIM, indent=1)
        if len(lines) > NOTE_LINES:
            dots = line(("..." if self.ascii else "…", DIM))
            lines[NOTE_LINES - 1] = crop(lines[NOTE_LINES - 1] + dots, room, self.ascii)
        return lines[:NOTE_LINES]

    # --- the form is judged, in a thread --------------------------------------------------

    def _judge(self, anew: bool = False) -> None:
        """See to it that what is typed is judged; one judgement is under way at most."""
        wanted = (self._form, self._preview_cells)
        if self._judging is not None:
            self._stale |= anew or self._judging != wanted
        elif anew or self._stale or self._last != wanted:
            self._judging, self._stale, self._last = wanted, False, wanted
            past = self.monitor.present_study.of(stats.past)
            work = partial(self._work, *wanted, self.known, self.ascii, past)
            self.run_worker(work, thread=True, description="what would be written")

    _last: tuple[FormState, int] | None = None

    def _work(
        self, draft: FormState, cells: int, known: PoolInfo, ascii: bool, past: CostHistory | None
    ) -> None:
        try:
            verdict = validate_form(draft, known.site_names, known.gpu_models)
            shown = preview(verdict, cells, ascii, past)
        except Exception as error:
            self.post_message(self.Misjudged(error))
            return
        self.post_message(self.Judged(verdict, shown, cells))

    def on_submit_screen_misjudged(self, event: Misjudged) -> None:
        self._judging, self._opening = None, False
        self.monitor.tell_mishap("judging the form failed", event.error)
        self._again()

    def on_submit_screen_judged(self, event: Judged) -> None:
        self._judging = None
        self.verdict = event.verdict
        if event.cells == self._preview_cells:
            self.query_one(SidePane).show(event.shown, event.shown.sections)
        self._again()
        if self._opening and self._judging is None:
            self._opening = False
            self._open()

    # --- the pool is asked ----------------------------------------------------------------

    def _ask(self) -> None:
        """Ask for schedd and sites. Not in a worker: who quits does not wait for an answer."""
        desk = self.monitor.options.pool
        if desk is None:
            self._learn(error="this is not where jobs are submitted from")
            return
        self._asked = monotonic()
        self._learn(error=None, where=None, asking=0.0, asking_sites=0.0)
        self._tick.resume()
        threading.Thread(
            target=self._question, args=(desk,), name="metlmon-ask", daemon=True
        ).start()

    def _question(self, desk: PoolActions) -> None:
        # Whoever asked may be gone when the answer comes.
        with suppress(RuntimeError):
            try:
                where = desk.where()
                self.post_message(self.Learned(where=where, error=None, asking=None))
            except Exception as error:
                self.post_message(self.Learned(where=None, error=_said(error), asking=None))
            try:
                sites = desk.sites()
                self.post_message(self.Learned(sites=sites, no_sites=None, asking_sites=None))
            except Exception as error:
                self.post_message(self.Learned(no_sites=_said(error), asking_sites=None))

    def on_submit_screen_learned(self, event: Learned) -> None:
        self._learn(**event.fields)

    def _learn(self, **fields: object) -> None:
        before = self.known
        self.known = replace(before, **fields)  # type: ignore[arg-type]
        if self.known.asking is None and self.known.asking_sites is None:
            self._tick.pause()
        if self._launch is not None and self._launch.is_attached:
            self._launch.learn(self.known)
        if self.known.site_names != before.site_names:
            self._judge(anew=True)
        self._again()

    def _wait_on(self) -> None:
        waited = monotonic() - self._asked
        known = self.known
        self._learn(
            asking=None if known.asking is None else waited,
            asking_sites=None if known.asking_sites is None else waited,
        )

    # --- what is typed --------------------------------------------------------------------

    def _put(self, name: str, text: str) -> None:
        before = self._form.shape
        self._form = self._form.with_text(name, text)
        self._follow(before)
        self.monitor.form = self._form
        self._said = ""
        self._again()

    def _follow(self, before: EnsembleShape) -> None:
        """Another shape needs another kind of job: the template that came with the shape before
        goes with it. One that was chosen stays."""
        if self._form.shape is not before:
            along = self.verdict.templates
            usual = first_template(along, before)
            if self._form.text("template") == usual:
                chosen = first_template(along, self._form.shape)
                self._form = self._form.with_text("template", chosen)

    def on_form_view_moved(self, event: FormView.Moved) -> None:
        event.stop()
        self._said = ""
        self._again()

    def on_form_view_paged(self, event: FormView.Paged) -> None:
        event.stop()
        sheet = self.query_one(SidePane)
        if not self._wide:
            self.query_one(FormView).page(event.by)
        elif event.by < 0:
            sheet.action_page_up()
        else:
            sheet.action_page_down()

    def action_choose(self) -> None:
        """A list for the field under the cursor; where it has none, on to the next field."""
        form = self.query_one(FormView)
        if not form.has_focus:
            return
        name = form.cursor
        now: Sequence[str] = [self._form.text(name or "")]
        choices: list[ChoiceOption] = []
        if name == "template":
            choices = [ChoiceOption(each.name, each.title) for each in self.verdict.templates]
        elif name is not None and name in _MEANINGS:
            choices = [ChoiceOption(value, about) for value, about in _MEANINGS[name].items()]
        elif name == "sites":
            now = sites_in(self._form.text("sites"))
            choices = [ChoiceOption(each.name, self._offer(each.slots, gpus(each, self.ascii)))
                       for each in self.known.sites]  # fmt: skip
            if not choices:
                self.say(self.known.no_sites or "no site is known (yet): type their names")
                return
        elif name == "gpu_models":
            now = sites_in(self._form.text("gpu_models"))
            choices = [ChoiceOption(each, self._at_sites(each)) for each in self.known.gpu_models]
            if not choices:
                self.say(self.known.no_sites or "no GPU model is known (yet): type their names")
                return
        if name is None or not choices:
            form.action_down()
            return
        title = f"{LABELS[name]}: which?"
        chosen = partial(self._chosen, name)
        several = name in ("sites", "gpu_models")
        self.app.push_screen(ChoiceScreen(title, choices, now, several=several), chosen)

    def _at_sites(self, model: str) -> str:
        """Where a GPU model is."""
        there = (each.name for each in self.known.sites if model in each.gpus)
        return plain(", ".join(there), 80, self.ascii)

    def _offer(self, slots: int, gpu: str) -> str:
        return f"{formatting.count(slots, 'slot', ascii=self.ascii)}, {gpu}"

    def _chosen(self, name: str, values: tuple[str, ...] | None) -> None:
        if values is not None:
            self._put(name, ", ".join(values))

    # --- keys -----------------------------------------------------------------------------

    def action_preview(self) -> None:
        """To the preview, or back to the form."""
        self._aside = not self._aside
        self._again()
        self.set_focus(self.query_one(SidePane if self._aside else FormView))

    def action_back(self) -> None:
        if self._aside:
            self.action_preview()
        else:
            super().action_back()

    def action_again(self) -> None:
        self._ask()

    def action_submit(self) -> None:
        """The question is asked of a plan that is made now: files may have come or gone."""
        self._opening = True
        self._judge(anew=True)

    def _open(self) -> None:
        if self.app.screen is not self:
            return
        if self.verdict.plan is None:
            first = next((each for each in self.verdict.fatal if each.field), None)
            if first is not None:
                if self._aside:
                    self.action_preview()
                self.query_one(FormView).select(first.field)
            self.say("nothing can be written yet")
            return
        self._launch = LaunchScreen(self.verdict.plan, self.known)
        self.app.push_screen(self._launch)

    def action_help(self) -> None:
        self.monitor.action_help()

    def action_palette(self) -> None:
        self.monitor.action_palette()

    def action_leave(self) -> None:
        self.monitor.action_leave()


def _first_request(along: Sequence[Template]) -> Request:
    """What the form begins with."""
    first = first_template(along, EnsembleShape.CHAIN)
    return Request(template=first, directory=new_directory(Path.cwd()), gate=StopRules())


def _said(error: Exception) -> str:
    """Why there is no answer: a foreseen reason is a sentence already."""
    return str(error) if isinstance(error, PoolError) else describe_error("asking failed", error)


def _label(said: RequestProblem) -> str:
    return LABELS.get(said.field, said.field.removeprefix("values.")) or "the plan"
