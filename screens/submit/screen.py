"""The submit screen: form, preview of every file, submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Final

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from metlmon.authoring.from_toml import parse_sites
from metlmon.authoring.request import EnsembleShape, Request, RequestProblem, StopRules, Template
from metlmon.live.feed import Snapshot
from metlmon.pool.types import ScheddInfo, SiteInfo
from metlmon.stats import cost as stats
from metlmon.stats.cost import CostHistory
from metlmon.tables.layout import TableColumn
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    KEY,
    NOTE,
    Line,
    crop,
    join,
    justify,
    limit_lines,
    line,
    wrap,
)
from screens.actions import bindings_of
from screens.base.screens import ResultModal, SnapshotScreen, ask_in_thread, padded, rule
from screens.submit.form_model import (
    LABELS,
    Field,
    FormState,
    fields_of,
    first_template,
    new_directory,
)
from screens.submit.launch_screen import LaunchScreen, PoolInfo, schedd_line, wait_text
from screens.submit.preview import (
    FormResult,
    Preview,
    build_preview,
    bundled_templates,
    size_text,
    validate_form,
)
from screens.widgets.footer import KeyFooter
from screens.widgets.form import FormEntry, FormView
from screens.widgets.line_widget import EDGE, SidePane, StaticLines
from screens.widgets.table import Table, TableRow


class ChoiceScreen(ResultModal[tuple[str, ...] | None]):
    """Modal list; returns the chosen values, or None to leave the field as it is.

    ``choices`` are the values with their descriptions. With ``several`` the space bar marks, and
    enter accepts the marked values (the row under the cursor if nothing was marked or unmarked).
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", show=False),
        Binding("enter", "choose", show=False),
        Binding("space", "mark", show=False),
    ]

    def __init__(
        self, title: str, choices: Mapping[str, str], current: Sequence[str], several: bool = False
    ) -> None:
        super().__init__()
        self._title, self._choices, self._several = title, choices, several
        self._current = current
        self._marked = [value for value in current if several and value in choices]
        self._others = [value for value in current if several and value not in choices]
        self._untouched = not self._marked

    def compose(self) -> ComposeResult:
        with Vertical(id="choice"):
            yield StaticLines(id="title")
            yield Table()
            yield StaticLines(id="keys-of-choice")

    def on_mount(self) -> None:
        self.query_one(Table).focus()

    def fill(self) -> None:
        table = self.query_one(Table)
        self.query_one("#title", StaticLines).show([line((self._title, BOLD))])
        width = max((len(plain(value, 30)) for value in self._choices), default=4)
        width += 2 * self._several
        columns = [
            TableColumn("", width),
            TableColumn("", max(10, table.size.width - width - 4)),
        ]
        rows = [TableRow(value, partial(self._cells, value)) for value in self._choices]
        first = not table.rows
        table.show(columns, rows)
        if first and self._current:
            table.select(self._current[0])
        keys = line(("space", KEY), (" mark   ", DIM)) if self._several else ()
        keys += line(("enter", KEY), (" take   ", DIM), ("esc", KEY), (" cancel", DIM))
        self.query_one("#keys-of-choice", StaticLines).show([keys])

    def _cells(self, value: str) -> tuple[Line, Line]:
        tick = ("✓ " if value in self._marked else "  ") if self._several else ""
        description = line((plain(self._choices[value], 200), DIM))
        return line((tick, GOOD), plain(value, 30)), description

    def action_mark(self) -> None:
        key = self.query_one(Table).cursor
        if not self._several or key is None:
            return
        self._untouched = False
        if key in self._marked:
            self._marked.remove(key)
        else:
            self._marked.append(key)
        self.fill()

    def action_choose(self) -> None:
        key = self.query_one(Table).cursor
        if key is not None and (not self._several or self._untouched):
            self.return_result((key, *self._others))
        else:
            self.return_result((*self._marked, *self._others) if self._several else None)

    def action_give_up(self) -> None:
        self.return_result(None)


SIDE_BY_SIDE: Final = 130
"""Minimum width for form and preview side by side."""

FORM_CELLS: Final = 92
"""Width of the form there; leaves room for problems beside the fields."""

SEVERAL: Final = {"sites": "site", "gpu_models": "GPU model"}
"""Fields with several values, which the collector knows, and what one of them is."""

NOTE_LINES: Final = 3
"""Lines below the form; fixed, so that its height does not depend on the cursor."""


class SubmitScreen(SnapshotScreen):
    """The form and its preview. The form state is kept in the application."""

    SCOPES: ClassVar[tuple[str, ...]] = ("submit",)
    SHOWS_ENSEMBLE: ClassVar[bool] = False
    HELP_SCOPES: ClassVar[tuple[str, ...]] = ("submit", "form", "preview", "typing")
    AUTO_FOCUS: ClassVar[str | None] = "FormView"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("submit", "typing")]

    def __init__(self, draft: Request | None = None) -> None:
        super().__init__()
        self.initial_request = draft
        self.form_result = FormResult(FormState())
        self.pool_info = PoolInfo()
        self._form = FormState()
        self._validating: tuple[FormState, int] | None = None
        self._stale = self._submit_pending = self._in_preview = False
        self._last_input: tuple[FormState, int] | None = None
        self._launch: LaunchScreen | None = None

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        with Horizontal():
            yield FormView(self._set_field, id="form")
            yield SidePane(id="preview")
        yield StaticLines(id="note")
        yield self.key_footer()

    def key_footer(self) -> KeyFooter:
        return KeyFooter(("submit", "typing"))

    def on_mount(self) -> None:
        templates = bundled_templates()
        self._form = self.context.form_state or FormState.from_request(
            self.initial_request or _default_request(templates)
        )
        # Bundled templates are loaded first, so that fields do not appear later.
        name = self._form.text("template")
        template = next((candidate for candidate in templates if candidate.name == name), None)
        self.form_result = FormResult(self._form, templates, template)
        self._tick = self.set_interval(1.0, self._update_pool_info, pause=True)
        super().on_mount()
        self._request_pool_info()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        if self._ready:
            # Files may have been created or deleted.
            self._launch = None
            self._start_validation(force=True)

    # --- rendering ------------------------------------------------------------------------

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
        return fields_of(self.form_result.template, self.form_result.templates, self._form)

    def show(self, update: Snapshot | None) -> None:
        form, preview_pane = self.query_one(FormView), self.query_one(SidePane)
        head = self._head()
        self.show_head(head)
        form.styles.width = self._form_cells
        form.page_target = preview_pane if self._wide else form
        form.display, preview_pane.display = (
            self._wide or not self._in_preview,
            self._wide or self._in_preview,
        )
        free = self.app.size.height - len(head) - NOTE_LINES - 2
        form.show(self._entries(free), 26 if self._form_cells < 84 else 32)
        self.show_note(self._note(form, preview_pane))
        self._start_validation()

    def _head(self) -> list[Line]:
        room = self.app.size.width
        right = schedd_line(self.pool_info, long=room >= 100)
        title = line(("Submit a new ensemble", BOLD))
        lines = [
            line(" ") + justify(title, right, room - 2),
            line(" ") + self._summary_line(),
        ]
        if self.pool_info.error is not None:
            message = plain(f"Nothing can be submitted: {self.pool_info.error}", 2000)
            lines += limit_lines(wrap(message, room - 1, NOTE, indent=1), 2, room - 1, 1)
        return [*lines, ()]

    def _summary_line(self) -> Line:
        """Summarise the plan, or the fields with problems, in one line."""
        result = self.form_result
        if result.request is None:
            return line(("working out what it comes to", DIM))
        if result.plan is None:
            names = dict.fromkeys(_label(problem) for problem in result.fatal)
            count = formatting.count(len(names), "field needs", "fields need")
            text = plain(", ".join(names), 200)
            return line((f"{count} another look: ", BAD), text)
        plan = result.plan
        jobs = formatting.count(plan.jobs, "job")
        files = formatting.count(len(plan.files), "file")
        way = formatting.count(len(plan.existing_files), "is", "are")
        return join(
            (
                line((size_text(plan), BOLD), (f" = {jobs}", BOLD)),
                line(formatting.count(plan.nodes, "node")),
                line(files),
                line((f"{way} in the way", NOTE)) if plan.existing_files else (),
            ),
            line("   "),
        )

    def _entries(self, free: int) -> list[FormEntry]:
        """Return the form entries, with headings if they fit into ``free`` lines."""
        fields = self._fields
        first_parameter = next((f.name for f in fields if f.name.startswith("values.")), None)
        titles = {field.name: field.title for field in fields if field.title}
        roomy = free >= len(fields) + 2 * len(titles) + (2 if first_parameter else 0)
        titles = titles if roomy else {}
        if first_parameter is not None:
            template = self.form_result.template
            titles[first_parameter] = (
                f"Parameters of {plain(template.name if template else '', 40)}"
            )
        entries: list[FormEntry] = []
        for field in fields:
            if field.name in titles:
                entries += [FormEntry(None, "")] if roomy and entries else []
                entries.append(FormEntry(None, titles[field.name]))
            entries.append(self._entry(field))
        return entries

    def _entry(self, field: Field) -> FormEntry:
        return FormEntry(
            name=field.name,
            label=plain(field.label, 18),
            text=self._form.text(field.name, self.form_result.template),
            # A problem replaces the unit.
            unit="" if self.form_result.problem_of(field.name) else field.unit,
            note=self._field_note(field),
            hint=field.empty,
            options=tuple(field.options),
            options_only=field.options_only,
            has_list=any(field.options.values()) or field.name in ("sites", "gpu_models"),
        )

    def _field_note(self, field: Field) -> Line:
        """Return the problem of a field, or else the meaning of its value."""
        problem = self.form_result.problem_of(field.name)
        if problem is not None:
            style = BAD if problem.fatal else NOTE
            return line(("✗ " if problem.fatal else "! ", style), (plain(problem.text, 400), style))
        if field.name == "template" and self.form_result.template is not None:
            return line((plain(self.form_result.template.title, 100), DIM))
        if field.options_only:
            return line((field.options.get(self._form.text(field.name), ""), DIM))
        if field.name == "sweep":
            return self._sweep_note()
        if field.name == "sites":
            return self._pool_count(len(self.pool_info.sites), "site")
        if field.name == "gpu_models":
            return self._pool_count(len(self.pool_info.gpu_models), "GPU model")
        return ()

    def _sweep_note(self) -> Line:
        """Return the number of values of each variable."""
        request = self.form_result.request
        if request is None or request.sweep is None:
            return ()
        counts = (
            f"{plain(variable.name, 20)} {formatting.number(len(variable.values))}"
            for variable in request.sweep.variables
        )
        return line((f"values: {', '.join(counts)}", DIM))

    def _pool_count(self, count: int, noun: str) -> Line:
        """Return the number known to the collector, or why it is unknown."""
        pool_info = self.pool_info
        if pool_info.sites_asked is not None:
            return line((f"asking the collector{wait_text(pool_info.sites_asked)}", DIM))
        if count:
            return line((f"enter: {formatting.count(count, noun)}", DIM))
        return line((plain(pool_info.sites_error or "the collector names none", 400), DIM))

    def _note(self, form: FormView, preview_pane: SidePane) -> list[Line]:
        room = self.app.size.width
        above, below = form.lines_above, form.lines_below
        if self._in_preview and not self._wide:
            above, below = preview_pane.top_line, preview_pane.lines_below
        outside = [f"↑ {above}"] * (above > 0) + [f"↓ {below} more"] * (below > 0)
        parts = [*self.messages(), *([line(("  ".join(outside), DIM))] if outside else [])]
        if self._wide and preview_pane.lines_below:
            total = formatting.number(len(preview_pane.lines))
            position = f"{preview_pane.top_line + 1} of {total} lines"
            parts.append(line((f"preview {position}, pgdn", DIM)))
        return [rule(parts, room), *padded(self._help(form, room - 2), NOTE_LINES)]

    def _help(self, form: FormView, room: int) -> list[Line]:
        """Return the problem and the help of the field under the cursor."""
        if self._in_preview:
            keys = "n next file   up and down, pgup and pgdn scroll   tab or esc back to the form"
            return [line(" ", (keys, DIM))]
        field = next((field for field in self._fields if field.name == form.cursor), None)
        if field is None:
            return []
        problem = self.form_result.problem_of(field.name) or self.form_result.problem_of("")
        lines: list[Line] = []
        if problem is not None:
            style = BAD if problem.fatal else NOTE
            lines = wrap(plain(problem.text, 2000), room, style, indent=1)
            # The end of the message says how to fix it.
            lines = limit_lines(lines, NOTE_LINES, room, 1)
        about = self.form_result.template.about if self.form_result.template else ""
        text = f"{field.help} {about}" if field.name == "template" else field.help
        if field.name != "template" and any(field.options.values()):
            text += f" {'; '.join(f'{value}: {sense}' for value, sense in field.options.items())}."
        if len(lines) < NOTE_LINES:
            lines += wrap(plain(text, 2000), room, DIM, indent=1)
        if len(lines) > NOTE_LINES:
            lines[NOTE_LINES - 1] = crop(lines[NOTE_LINES - 1] + line(("…", DIM)), room)
        return lines[:NOTE_LINES]

    # --- validation in a thread -----------------------------------------------------------

    def _start_validation(self, force: bool = False) -> None:
        """Validate the form in a worker, unless a validation is running."""
        inputs = (self._form, self._preview_cells)
        if self._validating is not None:
            self._stale |= force or self._validating != inputs
        elif force or self._stale or self._last_input != inputs:
            self._validating, self._stale, self._last_input = inputs, False, inputs
            history = self.context.present_stats.value(stats.cost_history)
            work = partial(self._work, *inputs, self.pool_info, history)
            self.run_worker(work, thread=True, description="what would be written")

    def _work(
        self, state: FormState, width: int, pool_info: PoolInfo, history: CostHistory | None
    ) -> None:
        """Validate a form, and render its preview; runs in a thread."""
        try:
            result = validate_form(state, pool_info.site_names, pool_info.gpu_models)
            lines = build_preview(result, width, history)
        except Exception as error:
            self.call_later(self._validation_failed, error)
        else:
            self.call_later(self._validated, result, lines, width)

    def _validation_failed(self, error: Exception) -> None:
        self._validating, self._submit_pending = None, False
        self.context.show_error("judging the form failed", error)
        self._refresh_if_mounted()

    def _validated(self, result: FormResult, preview: Preview, width: int) -> None:
        self._validating, self.form_result = None, result
        if width == self._preview_cells:
            self.query_one(SidePane).show(preview, preview.sections)
        self._refresh_if_mounted()
        if self._submit_pending and self._validating is None:
            self._submit_pending = False
            self._open()

    # --- pool information -----------------------------------------------------------------

    def _request_pool_info(self) -> None:
        """Ask for the schedd, then for the sites."""
        pool = self.context.options.submission_pool
        if pool is None:
            self._update_pool_info(error="this is not where jobs are submitted from")
            return
        now = monotonic()
        self._update_pool_info(error=None, schedd=None, schedd_asked=now, sites_asked=now)
        self._tick.resume()

        def schedd_known(schedd: ScheddInfo | None, error: str | None) -> None:
            self._update_pool_info(schedd=schedd, error=error, schedd_asked=None)
            ask_in_thread(self, pool.sites, sites_known, "asking failed")

        def sites_known(sites: tuple[SiteInfo, ...] | None, error: str | None) -> None:
            known = {} if sites is None else {"sites": sites}
            self._update_pool_info(**known, sites_error=error, sites_asked=None)

        ask_in_thread(self, pool.where, schedd_known, "asking failed")

    def _update_pool_info(self, **fields: Any) -> None:
        previous = self.pool_info
        self.pool_info = replace(previous, **fields)
        if self.pool_info.schedd_asked is None and self.pool_info.sites_asked is None:
            self._tick.pause()
        if self._launch is not None and self._launch.is_attached:
            self._launch.update_pool_info(self.pool_info)
        if self.pool_info.site_names != previous.site_names:
            self._start_validation(force=True)
        self._refresh_if_mounted()

    # --- editing --------------------------------------------------------------------------

    def _set_field(self, name: str, text: str) -> None:
        previous = self._form.shape
        self._form = self._form.with_text(name, text)
        if self._form.shape is not previous:
            # Replace the default template of the previous shape; keep a chosen one.
            templates = self.form_result.templates
            if self._form.text("template") == first_template(templates, previous):
                template = first_template(templates, self._form.shape)
                self._form = self._form.with_text("template", template)
        self.context.form_state = self._form
        self._message = ""
        self._refresh_if_mounted()

    def on_form_view_field_highlighted(self, event: FormView.FieldHighlighted) -> None:
        event.stop()
        self._message = ""
        self._refresh_if_mounted()

    def action_choose(self) -> None:
        """Open the list of the field under the cursor, or move to the next field."""
        form = self.query_one(FormView)
        if not form.has_focus:
            return
        field = next((field for field in self._fields if field.name == form.cursor), None)
        if field is None:
            return
        noun, choices = SEVERAL.get(field.name), self._choices(field)
        if not choices and noun is not None:
            unknown = f"no {noun} is known (yet): type their names"
            self.show_message(self.pool_info.sites_error or unknown)
        elif not choices:
            form.action_down()
        else:
            text = self._form.text(field.name)
            current = (text,) if noun is None else parse_sites(text)
            title = f"{field.label}: which?"
            screen = ChoiceScreen(title, choices, current, several=noun is not None)
            self.app.push_screen(screen, partial(self._chosen, field.name))

    def _choices(self, field: Field) -> Mapping[str, str]:
        """Return the values in the list of a field with descriptions; none without a list."""
        sites = self.pool_info.sites
        if field.name == "sites":
            return {
                site.name: f"{formatting.count(site.slots, 'slot')}, "
                + (plain(", ".join(site.gpus), 80) or "GPU unknown")
                for site in sites
            }
        if field.name == "gpu_models":
            return {
                model: plain(", ".join(site.name for site in sites if model in site.gpus), 80)
                for model in self.pool_info.gpu_models
            }
        return field.options if any(field.options.values()) else {}

    def _chosen(self, name: str, values: tuple[str, ...] | None) -> None:
        if values is not None:
            self._set_field(name, ", ".join(values))

    # --- keys -----------------------------------------------------------------------------

    def action_preview(self) -> None:
        """Toggle between preview and form."""
        self._in_preview = not self._in_preview
        self._refresh_if_mounted()
        self.set_focus(self.query_one(SidePane if self._in_preview else FormView))

    def action_back(self) -> None:
        if self._in_preview:
            self.action_preview()
        else:
            super().action_back()

    def action_again(self) -> None:
        self._request_pool_info()

    def action_submit(self) -> None:
        """Validate again, since files may have changed, then open the confirmation."""
        self._submit_pending = True
        self._start_validation(force=True)

    def _open(self) -> None:
        if self.app.screen is not self:
            return
        if self.form_result.plan is None:
            first = next((problem for problem in self.form_result.fatal if problem.field), None)
            if first is not None:
                if self._in_preview:
                    self.action_preview()
                self.query_one(FormView).select(first.field)
            self.show_message("nothing can be written yet")
            return
        self._launch = LaunchScreen(self.form_result.plan, self.pool_info)
        self.app.push_screen(self._launch)


def _default_request(templates: Sequence[Template]) -> Request:
    """Return the initial request."""
    first = first_template(templates, EnsembleShape.CHAIN)
    return Request(template=first, directory=new_directory(Path.cwd()), gate=StopRules())


def _label(problem: RequestProblem) -> str:
    return LABELS.get(problem.field, problem.field.removeprefix("values.")) or "the plan"
