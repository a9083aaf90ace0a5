"""The submit screen: form, preview of every file, confirmation and submission."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, chop_cells
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from metlmon.authoring.ascii_graph import draw_graph
from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import FIELDS as REQUEST_FIELDS
from metlmon.authoring.request import (
    GATED_SHAPES,
    SHAPES,
    EnsembleShape,
    FormText,
    Plan,
    PlanError,
    PlannedFile,
    Policy,
    Request,
    RequestField,
    RequestProblem,
    RunPlan,
    StageRequest,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
    Template,
    read_names,
    value_of,
    with_fields,
)
from metlmon.authoring.runs import epochs_of, gpus_of
from metlmon.authoring.templates import GATHER, bundled_templates, load_template, template_for
from metlmon.authoring.validate import validate
from metlmon.authoring.write_files import has_content, new_directory, write_plan
from metlmon.errors import InputError, sentence_of
from metlmon.pool.client import PoolClient
from metlmon.pool.submission import NO_COMMAND
from metlmon.pool.types import PoolError, ScheddInfo, SiteInfo
from metlmon.snapshot.records import Snapshot
from metlmon.stats import cost as stats
from metlmon.stats.cost import CostHistory, cost_estimate_lines, estimate_cost
from metlmon.stats.requests import RequestAdvice, advice_text, advise_requests, advised_fields
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    GOOD,
    KEY,
    MOVING,
    NOTE,
    Line,
    TextStyle,
    crop,
    join,
    justify,
    line,
    wrap,
)
from screens.actions import actions_of, bindings_of
from screens.base.screens import (
    ChoiceScreen,
    ConfirmationBase,
    DocumentScreen,
    KeyFooter,
    Sections,
    SnapshotScreen,
    ask_in_thread,
    heading,
    out_of_view,
    padded,
    rule,
)
from screens.widgets.form import FormEntry, FormView, plain_with_blanks
from screens.widgets.line_widget import EDGE, SidePane

AUTO: Final = "auto"
"""No sweep mode chosen."""

SWEEP_MODES: Final[Mapping[str, str]] = {
    AUTO: "zip, where there are equally many",
    SweepMode.ZIP.value: "first with first, second with second",
    SweepMode.PRODUCT.value: "each value with each of the others",
}
"""Sweep modes with a one-line description."""

YES, NO = "yes", "no"
YES_OR_NO: Final[Mapping[str, str]] = {YES: "", NO: ""}

MAX_DIGITS: Final = 9
"""Maximum digits of a number of epochs; bounds the time for parsing it."""

NUMBERS_OF_SHAPES: Final = {"shards": 10, "machines": 2}
"""Initial numbers if the request has another shape."""

FIELD_ALIASES: Final[Mapping[str, str]] = {
    "evaluation": "evaluation.every",
    "evaluation.template": "evaluation.every",
    "evaluation.values": "evaluation.every",
    "gate.poll": "gate",
    "gate.metric": "gate",
    "gate.min_delta": "gate",
}
"""Form field that shows a problem of a request field without a form field."""


DEFAULTS: Final = Request("", Path())
"""The request from which fields start."""


# --- texts to values: each raises ValueError or PlanError with a sentence ------------------------


def _directory(text: str) -> Path:
    if not text:
        raise ValueError("a directory is needed: a name that nothing has yet")
    try:
        return Path(text).expanduser().absolute()
    except (RuntimeError, OSError) as error:
        raise ValueError(str(error)) from error


_QUOTED: Final = re.compile(r'"[^"]*"')
_EXTRA_VARIABLE: Final = re.compile(r",\s*([A-Za-z_]\w*)\s*=")
"""Matches what looks like another variable after a comma, not a value."""


def _variables(text: str) -> tuple[SweptVariable, ...]:
    """Parse ``a = 0.01 to 0.1 by 0.01; b = 1, 2``."""
    from metlmon.authoring.sweeps.values import values

    variables: list[SweptVariable] = []
    for part in filter(str.strip, text.split(";")):
        name, equals, line = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            advice = "write it as a = 0.01 to 0.1 by 0.01; b = 1, 2, 4"
            raise ValueError(f"{part.strip()!r}: {advice}")
        if extra := _EXTRA_VARIABLE.search(_QUOTED.sub("", line)):
            advice = "put ';' before a further variable, or the value into quotes"
            raise ValueError(f"{extra[1]}= among the values of {name}; {advice}")
        variables.append(SweptVariable(name, values(line, name), ""))
    if not variables:
        raise ValueError("nothing is swept; write a = 0.01 to 0.1 by 0.01")
    return tuple(variables)


def _stages(text: str) -> tuple[StageRequest, ...]:
    """Parse ``pretrain 5, finetune 3``."""
    stages: list[StageRequest] = []
    for part in filter(str.strip, text.split(",")):
        name, _, epochs = part.strip().rpartition(" ")
        if not name.strip() or not epochs.isdecimal() or len(epochs) > MAX_DIGITS:
            advice = "write each with its epochs: pretrain 5, finetune 3"
            raise ValueError(f"{part.strip()!r}: {advice}")
        stages.append(StageRequest(name.strip(), int(epochs)))
    if not stages:
        raise ValueError("no stage is named; write pretrain 5, finetune 3")
    return tuple(stages)


# --- the fields ---------------------------------------------------------------------------------


OWN_FIELDS: Final[Mapping[str, tuple[RequestField, ...]]] = {
    "template": (
        RequestField(
            "directory",
            _directory,
            form=FormText(
                "Directory",
                "A new directory for the DAG, its logs and what the jobs send back. Files that lie "
                "there already are never replaced without being named and asked about.",
            ),
        ),
    ),
    "runs": (
        RequestField(
            "sweep",
            _variables,
            form=FormText(
                "Sweep",
                "What differs from run to run: a = 0.01 to 0.1 by 0.01; b = 1, 2, 4. A template's "
                "parameter of that name takes the values; else the jobs have them as $(a).",
            ),
            shapes={EnsembleShape.SWEEP},
        ),
        RequestField(
            "how",
            lambda text: None if text == AUTO else SweepMode(text),
            form=FormText("Together", "How the values of several variables go together."),
            choices=SWEEP_MODES,
            shapes={EnsembleShape.SWEEP},
        ),
    ),
    "epochs": (
        RequestField(
            "stages",
            _stages,
            form=FormText(
                "Stages",
                "One after the other in every run, each with its epochs: pretrain 5, finetune 3. A "
                "stage begins with the checkpoint of the one before.",
            ),
            shapes={EnsembleShape.STAGES},
        ),
    ),
    "shards": (
        RequestField(
            "gather",
            lambda text: GATHER if text == YES else None,
            form=FormText("Gather", "A node at the end that puts together what the shards made."),
            choices=YES_OR_NO,
            shapes={EnsembleShape.BAG},
        ),
    ),
    "retries": (
        RequestField(
            "gate",
            str,
            form=FormText(
                "Steer",
                "yes: a script before each epoch lets a run be stopped, paused, or sent elsewhere "
                "while the DAG goes on, and stops it by the rules below. Its later epochs are "
                "skipped; the DAG does not fail.",
            ),
            choices=YES_OR_NO,
            shapes=GATED_SHAPES,
        ),
    ),
}
"""Fields with the form's own notation, by the field that they follow."""

TITLES: Final = {
    "template": "What to train",
    "shape": "How much of it",
    "sites": "Where",
    "gpus": "What each job asks for",
    "gate": "Steering it while it runs",
}
"""Headings above fields."""


FIELDS: Final = tuple(
    each
    for field in REQUEST_FIELDS.values()
    for each in (field, *OWN_FIELDS.get(field.name, ()))
    if each.form.label
)
"""Fields common to all templates, in form order; ``name`` as in a :class:`RequestProblem`."""

LABELS: Final = {field.name: field.form.label for field in FIELDS}


def fields_of(
    template: Template | None, templates: Sequence[Template], state: FormState
) -> tuple[RequestField, ...]:
    """Return the visible fields of a form, then the template's own parameters."""
    first, *rest = FIELDS
    suggested = {bundled.name: bundled.title for bundled in templates}
    hidden = {field.name for field in FIELDS if state.shape not in field.shapes}
    if not state.has_gate:
        hidden |= {name for name in REQUEST_FIELDS if name.startswith("gate.")}
    if state.texts.get("policy") != Policy.GPU_PIN:
        hidden.add("gpu_models")
    parameters = []
    for each in template.parameters if template is not None else ():
        unit = "needed" if each.required else ""
        form = FormText(each.name, each.help or "A parameter of the template.", unit)
        parameters.append(RequestField(f"values.{each.name}", str, form=form))
    visible = (field for field in rest if field.name not in hidden)
    return (replace(first, choices=suggested), *visible, *parameters)


def _is_choice(field: RequestField) -> bool:
    """Whether no text except its choices is allowed; those of a template are suggestions."""
    return bool(field.choices) and field.name != "template"


# --- the state ----------------------------------------------------------------------------------


NOT_IN_FORM: Final = ("variables", "regions", "subdags", "mlproject", "evaluation", "gate")
"""What an option can set besides the fields of the form."""


class FormState(Struct, frozen=True):
    """State of the form: the texts by field name. ``base``: a request for everything else."""

    texts: Mapping[str, str] = {}
    base: Request = DEFAULTS

    @classmethod
    def from_request(cls, request: Request) -> FormState:
        names = (field.name for field in FIELDS if field.name in REQUEST_FIELDS)
        texts = {name: _text(value_of(request, name)) for name in names}
        swept = request.sweep.variables if request.sweep is not None else ()
        return cls(
            {
                **texts,
                "directory": str(request.directory),
                "sweep": "; ".join(f"{each.name} = {', '.join(each.values)}" for each in swept),
                "how": (request.sweep and request.sweep.mode) or AUTO,
                "stages": ", ".join(f"{stage.name} {stage.epochs}" for stage in request.stages),
                "shards": str(request.shards or NUMBERS_OF_SHAPES["shards"]),
                "gather": NO if request.gather is None else YES,
                "machines": str(max(NUMBERS_OF_SHAPES["machines"], request.machines)),
                "gate": NO if request.gate is None else YES,
                **{f"values.{name}": value for name, value in request.values.items()},
            },
            replace(DEFAULTS, **{name: getattr(request, name) for name in NOT_IN_FORM}),
        )

    @property
    def shape(self) -> EnsembleShape:
        """The chosen shape; a chain if the text is not a shape."""
        text = self.texts.get("shape", "")
        return EnsembleShape(text) if text in SHAPES else EnsembleShape.CHAIN

    @property
    def has_gate(self) -> bool:
        """Whether its runs have a gate."""
        return self.shape in GATED_SHAPES and self.texts.get("gate") == YES

    def text(self, name: str, template: Template | None = None) -> str:
        """Return the text of a field, or the default of a template parameter."""
        parameters = template.parameters if template is not None else ()
        defaults = {f"values.{each.name}": each.default for each in parameters}
        return self.texts.get(name, defaults.get(name, ""))

    def with_text(self, name: str, text: str) -> FormState:
        return replace(self, texts={**self.texts, name: text})


def _text(value: object) -> str:
    """The value of a field, as a user would type it."""
    match value:
        case None:
            return ""
        case tuple():
            return ", ".join(map(str, value))
        case float():
            return f"{value:g}"
        case StrEnum():
            return value.value
    return str(value)


def parse_form(
    state: FormState, template: Template | None
) -> tuple[Request, tuple[RequestProblem, ...]]:
    """Parse the form into a request and the problems of unreadable fields."""
    problems: list[RequestProblem] = []
    values: dict[str, Any] = {}
    for field in fields_of(None, (), state):
        text = state.text(field.name).strip()
        if field.name in REQUEST_FIELDS and not text and value_of(DEFAULTS, field.name) is None:
            continue
        try:
            values[field.name] = field.read(text)
        except (PlanError, ValueError) as error:
            problems.append(RequestProblem(field.name, str(error)))
            if field.name in NUMBERS_OF_SHAPES:
                values[field.name] = NUMBERS_OF_SHAPES[field.name]
    mode, variables = values.pop("how", None), values.pop("sweep", None)
    if variables is not None:
        values["sweep"] = SweepRequest("run", variables, mode)
    base = state.base
    values["gate"] = (base.gate or StopRules()) if state.has_gate else None
    values["evaluation"] = base.evaluation if "evaluation.every" in values else None
    parameters = template.parameters if template is not None else ()
    texts = {each: state.text(f"values.{each.name}", template) for each in parameters}
    # Values equal to the template's default are omitted.
    values["values"] = {each.name: text for each, text in texts.items() if text != each.default}
    return with_fields(base, values), tuple(problems)


UNREADABLE: Final = (PlanError, OSError, ValueError)
"""Exceptions of reading a user's template or directory."""


class FormResult(Struct, frozen=True):
    """Result of validating a form.

    ``templates`` are the bundled ones; ``template`` is the chosen one, None if it cannot be read.
    ``plan`` is None if a problem is fatal.
    """

    templates: tuple[Template, ...] = ()
    template: Template | None = None
    request: Request | None = None
    problems: tuple[RequestProblem, ...] = ()
    plan: Plan | None = None

    @property
    def fatal(self) -> tuple[RequestProblem, ...]:
        """Problems that prevent writing."""
        return tuple(problem for problem in self.problems if problem.fatal)

    def problem_of(self, field: str) -> RequestProblem | None:
        """Return the worst problem of a field."""
        matching = (problem for problem in self.problems if problem.field == field)
        return max(matching, key=lambda problem: problem.fatal, default=None)


def validate_form(
    state: FormState, sites: Sequence[str] = (), gpus: Sequence[str] = ()
) -> FormResult:
    """Validate a form; ``sites``, ``gpus``: known ones. Reads files: call in a thread."""
    templates, name = readable_templates(), state.text("template").strip()
    template = next((each for each in templates if each.name == name), None)
    missing: list[RequestProblem] = []
    if template is None:
        try:
            template = load_template(name)
        except UNREADABLE as error:
            missing = [RequestProblem("template", str(error))]
    request, unreadable = parse_form(state, template)
    # An unreadable field has a default, whose problems are not reported.
    skipped = {problem.field for problem in unreadable}
    try:
        validation = validate(request, tuple(sites), gpus=tuple(gpus))
        reported = [each for each in validation.problems if each.field not in skipped]
    except UNREADABLE as error:
        validation, reported = None, [RequestProblem("template", str(error))]
    if not any(problem.field == "template" for problem in reported):
        reported += missing
    order = [field.name for field in fields_of(template, (), state)]
    shown = []
    for problem in (*unreadable, *reported):
        field = FIELD_ALIASES.get(problem.field, problem.field)
        if field not in order and field.startswith("stages."):
            field = "stages"
        shown.append(replace(problem, field=field))
    shown.sort(key=lambda problem: [*order, problem.field].index(problem.field))
    plan = None
    if not any(problem.fatal for problem in shown):
        try:
            plan = make_plan(request, validation)
        except UNREADABLE as error:
            shown.append(RequestProblem("", str(error)))
    return FormResult(templates, template, request, problems=tuple(shown), plan=plan)


def readable_templates() -> tuple[Template, ...]:
    """Return the bundled templates; none if they are damaged."""
    try:
        return bundled_templates()
    except UNREADABLE:
        return ()


def file_lines(file: PlannedFile, width: int) -> list[Line]:
    """Return the exact text of one file, with line numbers; long lines are wrapped."""
    text = file.text
    texts = text.removesuffix("\n").split("\n") if text else []
    digits = max(3, len(str(len(texts))))
    text_width = max(8, width - digits - 2)
    lines: list[Line] = []
    for number, row in enumerate(texts, 1):
        gutter, is_comment = f"{number:>{digits}} ", row.lstrip().startswith("#")
        for piece in chop_cells(plain_with_blanks(row), text_width) or [""]:
            lines.append(line((gutter, DIM), (piece, DIM) if is_comment else piece))
            gutter = " " * (digits - 1) + "↪ "
    if not text.endswith("\n"):
        note = "no line end here" if texts else "empty"
        lines.append(line((" " * (digits + 1) + note, DIM)))
    return lines


def run_lines(runs: Sequence[RunPlan], width: int) -> list[Line]:
    """Return the runs: name, uuid, seed, and the target of each epoch."""
    uuid_width = 36 if width >= 90 else 8
    name_width = max(cell_len(plain(run.name, 24)) for run in runs)
    seed_width = max(len(str(run.seed)) for run in runs)
    return [
        line(
            f"  {plain(run.name, 24):<{name_width}}  ",
            (plain(run.uuid, 36)[:uuid_width], DIM),
            ("  seed ", DIM),
            f"{run.seed:<{seed_width}}  ",
            *_targets(run.targets),
            *(line(("  on ", DIM), plain(run.gpu, 60)) if run.gpu is not None else ()),
        )
        for run in runs
    ]


def _targets(names: Sequence[str]) -> Line:
    """Return the targets of the epochs in order: ``Expanse-GPU ×2, Delta-GPU``."""
    parts = []
    for name, group in groupby(names):
        n = len(list(group))
        parts.append(plain(name, 30) + (f" ×{n}" if n > 1 else ""))
    return line(("→ ", DIM), ", ".join(parts)) if parts else ()


def build_preview(result: FormResult, width: int, history: CostHistory | None = None) -> Sections:
    """Build the preview of a form, or the list of its fatal problems."""
    plan = result.plan
    if plan is None:
        return Sections(_missing(result, width))
    nodes, jobs = formatting.count(plan.nodes, "node"), formatting.count(plan.jobs, "job")
    preview = Sections(
        [
            line(" ", (size_text(plan), BOLD), "   ", nodes, "   ", (jobs, BOLD)),
            *wrap(f"into {plain(str(plan.request.directory), 1000)}", width - 1, DIM, indent=1),
            *cost_lines(plan, history, width),
            (),
            *(line(" ", text) for text in draw_graph(plan.graph, width - 2)),
        ]
    )
    size = formatting.size(sum(len(file.data) for file in plan.files))
    files = formatting.count(len(plan.files), "file")
    preview.add(f"{files}, {size}", file_list(plan), width)
    if plan.runs:
        preview.add(formatting.count(len(plan.runs), "run"), run_lines(plan.runs, width), width)
    for file in plan.files:
        title = f"{plain(file.name, max(12, width - 30))}  {formatting.size(len(file.data))}"
        title += ", executable" if file.executable else ""
        preview.add(title, file_lines(file, width), width)
    return preview


def size_text(plan: Plan) -> str:
    """Return the size: ``4 runs × 3 epochs``, ``100 shards``."""
    request, times = plan.request, " × "
    if request.shape is EnsembleShape.BAG:
        return formatting.count(request.shards, "shard")
    runs = formatting.count(len(plan.runs), "run")
    epochs = formatting.count(epochs_of(request), "epoch")
    machines = f"{times}{request.machines} machines" if request.machines > 1 else ""
    return f"{runs}{times}{epochs}{machines}"


def cost_lines(plan: Plan, history: CostHistory | None, width: int) -> list[Line]:
    """Return the estimated cost from past epochs; empty if none are known."""
    request = plan.request
    evaluations = request.evaluation is not None
    estimate = estimate_cost(
        history, plan.graph.trainings, epochs_of(request), gpus_of(request), evaluations=evaluations
    )
    if estimate is None:
        return []
    first, *more = cost_estimate_lines(estimate, "the ensemble on the screen")
    lines = [line(" ", (first, BOLD))]
    for sentence in more:
        lines += wrap(sentence, width - 1, DIM, indent=1)
    return lines


def file_list(plan: Plan, new: str = "new", existing: str = "exists") -> list[Line]:
    """List the files to be written: whether new, size, purpose."""
    name_width = max((cell_len(plain(file.name, 40)) for file in plan.files), default=0)
    status_width = max((len(existing if file.exists else new) for file in plan.files), default=0)
    return [
        line(
            "  ",
            (f"! {existing:<{status_width}}", NOTE)
            if file.exists
            else (f"+ {new:<{status_width}}", GOOD),
            f"  {plain(file.name, 40):<{name_width}}",
            f"  {formatting.size(len(file.data)):>8}  ",
            (plain(file.about, 120), DIM),
        )
        for file in plan.files
    ]


def _label(problem: RequestProblem) -> str:
    return LABELS.get(problem.field, problem.field.removeprefix("values."))


def _missing(result: FormResult, width: int) -> list[Line]:
    if result.request is None:
        return [line(" ", ("what would be written appears here", DIM))]
    lines: list[Line] = [line(" ", ("Nothing can be written yet:", BOLD)), ()]
    for problem in result.fatal:
        label = _label(problem)
        has_label = not label or problem.text.startswith(f"{label} ")
        text = plain(problem.text if has_label else f"{label}: {problem.text}", 1000)
        lines += wrap(text, width - 1, BAD, indent=2)
    return lines


class PoolInfo(Struct, frozen=True):
    """The local schedd and the collector's sites, or why they are unknown.

    ``error`` and ``sites_error`` are the reasons; ``schedd_asked`` and ``sites_asked`` the times of
    the monotonic clock at which a running query was started.
    """

    schedd: ScheddInfo | None = None
    error: str | None = None
    sites: tuple[SiteInfo, ...] = ()
    sites_error: str | None = None
    schedd_asked: float | None = None
    sites_asked: float | None = None

    @property
    def site_names(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.sites)

    @property
    def gpu_models(self) -> tuple[str, ...]:
        """GPU models of the sites, sorted."""
        return tuple(sorted({model for site in self.sites for model in site.gpus}))

    @property
    def refusal(self) -> str | None:
        """The reason why nothing can be submitted; None if it is possible."""
        if self.schedd is None:
            return self.error or "the schedd has not answered yet"
        return NO_COMMAND if self.schedd.submit_command is None else None


def schedd_line(pool_info: PoolInfo, long: bool = True) -> Line:
    """Render the schedd and the user, or that none was found."""
    info = pool_info.schedd
    if info is None:
        if pool_info.error is not None:
            return line(("no schedd", NOTE))
        return line((f"asking for the schedd{wait_text(pool_info.schedd_asked)}", DIM))
    version = plain(info.version, 40)
    text = line(plain(info.schedd, 60), (" as ", DIM), plain(info.user, 40))
    return text + line((f"   HTCondor {version}", DIM)) if long else text


def wait_text(asked: float | None) -> str:
    """Return the time since a query was started, from one second on."""
    waited = 0.0 if asked is None else monotonic() - asked
    return f"  {formatting.duration(waited)}" if waited >= 1 else ""


PENDING: Final = ("▶", MOVING)
DONE: Final = ("✓", GOOD)
FAILED: Final = ("✗", ALARM)
"""Mark and style of a step: under way, done, failed."""


class LaunchStep(Struct):
    """A step of the submission; ``started`` is a time of the monotonic clock."""

    title: str
    text: str
    mark: tuple[str, TextStyle] = PENDING
    started: float = 0.0


class LaunchScreen(ConfirmationBase):
    """Lists what will be written, asks for confirmation, writes and submits."""

    SCOPES: ClassVar[tuple[str, ...]] = ("launch",)
    SHOWS_ENSEMBLE: ClassVar[bool] = False
    RESULT_SECONDS: ClassVar[float] = 1.5
    """Seconds that the cluster id is displayed before the overview opens."""

    show_document_note = DocumentScreen.show_document_note

    def __init__(self, plan: Plan, pool_info: PoolInfo) -> None:
        super().__init__()
        self.plan, self.pool_info = plan, pool_info
        self._steps: dict[str, LaunchStep] = {}
        self._replace = self._busy = self._written = self._submitted = False

    def on_mount(self) -> None:
        super().on_mount()
        self._tick = self.set_interval(1.0, self._refresh_if_mounted, pause=True)

    @property
    def _must_replace(self) -> bool:
        return bool(self.plan.existing_files) and not self._written

    @property
    def _caps(self) -> dict[str, str]:
        """The key cap of each of its actions."""
        return {a.name: a.cap for a in actions_of(self.SCOPES, keys=self.context.keys)}

    def hidden_actions(self) -> Collection[str]:
        return {*super().hidden_actions(), *self.refusals()}

    def refusals(self) -> Mapping[str, str]:
        """Return the unavailable actions with their reasons."""
        no: dict[str, str] = {}
        if self.pool_info.refusal is not None:
            no["launch"] = f"cannot be submitted: {self.pool_info.refusal}"
        if not self._must_replace:
            no["replace"] = "no file exists yet"
        elif not self._replace:
            files = formatting.count(len(self.plan.existing_files), "file")
            allows = self._caps["replace"]
            no["launch"] = no["write"] = f"{files} would be replaced: {allows} allows it"
        if self._written:
            no["write"] = "the files are written"
        if self._busy:
            no |= dict.fromkeys(("launch", "write", "replace", "back"), "an answer is awaited")
        if self._submitted:
            no |= dict.fromkeys(("launch", "write", "replace"), "the DAG is in the queue")
        else:
            no["watch"] = "nothing was submitted yet"
        return no

    # --- rendering ------------------------------------------------------------------------

    def show(self, update: Snapshot) -> None:
        room = self.app.size.width
        name = plain(self.plan.dag_file, 60)
        title = f"Submit {name}?"
        if self._busy or self._submitted:
            title = f"{name} is submitted" if self._submitted else f"Submitting {name}"
        right = schedd_line(self.pool_info, long=room >= 100)
        head = line(" ") + justify(line((title, BOLD)), right, room - 2)
        text = [*self._progress_lines(room), *self._effect_lines(room)]
        self.show_document([head, ()], text)

    def _progress_lines(self, room: int) -> list[Line]:
        if not self._steps:
            return [*self._question_lines(room), ()]
        lines: list[Line] = []
        for step in self._steps.values():
            waited = monotonic() - step.started
            text = step.text
            if step.mark == PENDING and waited >= 1:
                text = f"{text}  {formatting.duration(waited)}"
            start = line(" ", step.mark, f" {step.title:<12}")
            lines += wrap(plain(text, 4000), room - 2, start=start)
        return [*lines, (), *self._next_keys(room), ()]

    def _next_keys(self, room: int) -> list[Line]:
        if self._busy:
            return [line(" ", ("nothing needs to be done", DIM))]
        if self._submitted:
            return [line(" ", ("enter", KEY), " watches it now")]
        back = line(("esc", KEY), " back to the form, as it was")
        if self.pool_info.refusal is not None:
            return [*wrap(self._refusal_text(), room - 2, NOTE, indent=1), line(" ") + back]
        effect = "submits it" if self._written else "tries again"
        return [line(" ", ("y", KEY), f" {effect}   ") + back]

    def _refusal_text(self) -> str:
        return plain(f"It cannot be submitted: {self.pool_info.refusal}", 2000)

    def _question_lines(self, room: int) -> list[Line]:
        plan = self.plan
        files = formatting.count(len(plan.files), "file")
        jobs = formatting.count(plan.jobs, "job")
        lines: list[Line] = []
        # Show a key only once it is accepted.
        caps = self._caps
        if not self.can_confirm:
            caps |= dict.fromkeys(("launch", "write", "replace"), " ")
        yes, writes, back = (f"{caps[name]:<5}" for name in ("launch", "write", "back"))
        if self._must_replace:
            existing = formatting.count(len(plan.existing_files), "existing file")
            if self._replace:
                text = line(
                    (f"{existing} will be replaced", ALARM), " ", (caps["replace"], KEY), " no"
                )
            else:
                text = line((existing, ALARM), ": the contents would be lost. ")
                text += line((caps["replace"], KEY), " yes, replace them")
            lines.append(line(" ") + text)
        refusals = self.refusals()
        if "launch" not in refusals:
            lines.append(line(" ", (yes, KEY), f"writes {files} and submits {jobs}"))
        elif self.pool_info.refusal is not None:
            lines += wrap(self._refusal_text(), room - 2, NOTE, indent=1)
        if "write" not in refusals:
            lines.append(line(" ", (writes, KEY), f"writes {files}, and submits nothing"))
        lines.append(line(" ", (back, KEY), "back to the form; nothing is written"))
        return lines

    def _effect_lines(self, room: int) -> list[Line]:
        plan, pool_info = self.plan, self.pool_info
        size = size_text(plan)
        nodes = formatting.count(plan.nodes, "node")
        jobs = formatting.count(plan.jobs, "job")
        facts: list[tuple[str, str]] = [
            ("directory", str(plan.request.directory)),
            ("DAG", f"{plan.dag_file}, {size}: {nodes}, {jobs}"),
        ]
        if pool_info.schedd is not None:
            facts += [
                ("schedd", f"{pool_info.schedd.schedd}, HTCondor {pool_info.schedd.version}"),
                ("user", pool_info.schedd.user),
                ("by way of", pool_info.schedd.submit_command or "no command"),
            ]
        else:
            facts.append(("schedd", pool_info.error or "not answered yet"))
        lines = [heading("What is touched", room)]
        for label, text in facts:
            text_lines = wrap(plain(text, 4000), room - 2, indent=14)
            lines += [line(" ", (f"{label:<13}", DIM), text_lines[0][-1]), *text_lines[1:]]
        count = formatting.count(len(plan.files), "file")
        new, existing = "new", "to be replaced" if self._replace else "exists"
        if self._written:
            new, existing = "written", "replaced"
        lines += [(), heading(count, room), *file_list(plan, new, existing)]
        undo = "To take it back: [a][D] on its overview removes the DAG; the files stay."
        return [*lines, (), line(" ", (undo, DIM))]

    # --- actions --------------------------------------------------------------------------

    def action_launch(self) -> None:
        self._begin("launch", submit=True)

    def action_write(self) -> None:
        self._begin("write", submit=False)

    def action_replace(self) -> None:
        if self._key_in_time() and not self.notify_refusal("replace"):
            self._replace = not self._replace
            self._refresh_if_mounted()

    def action_back(self) -> None:
        if not self.notify_refusal("back"):
            super().action_back()

    def action_watch(self) -> None:
        if self.notify_refusal("watch"):
            return
        try:
            self.context.watch_dagdir(self.plan.request.directory)
        except InputError as error:
            self._record_step(LaunchStep("watching", str(error), FAILED))

    def _key_in_time(self) -> bool:
        if not self.key_confirms:
            self.show_message("that key came too soon after another; press it again")
        return self.key_confirms

    def _begin(self, action: str, submit: bool) -> None:
        if not self._key_in_time() or self.notify_refusal(action):
            return
        self._busy, self._message = True, ""
        self._steps = {key: step for key, step in self._steps.items() if step.mark == DONE}
        self._tick.resume()
        pool = self.context.options.submission_pool if submit else None
        work = partial(self._work, pool, self._written, self._replace)
        # Run to the end, even if the user quits meanwhile.
        self.run_worker(work, thread=True, description="writing and submitting")
        self._refresh_if_mounted()

    def _work(self, pool: PoolClient | None, written: bool, replace_files: bool) -> None:
        """Write and submit in a thread; the screen shows each step as it begins and ends."""
        self.context.pending_task = "writing and submitting" if pool is not None else "writing"
        plan, count = self.plan, formatting.count(len(self.plan.files), "file")
        try:
            submitted = False
            if written or self._step(
                LaunchStep("writing", f"{count} into {plan.request.directory}"),
                partial(self._write, replace_files, count),
            ):
                submitted = pool is not None and self._step(
                    LaunchStep("submitting", f"{plan.dag_file}: waiting for the schedd's answer"),
                    partial(self._submit, pool),
                )
            self.call_later(self._finished, submitted)
        finally:
            self.context.pending_task = ""

    def _step(self, step: LaunchStep, do: Callable[[], str]) -> bool:
        step.started = monotonic()
        self.call_later(self._record_step, step)
        try:
            text, mark = do(), DONE
        except Exception as error:
            text = sentence_of(error, "it broke off", PlanError, PoolError, OSError)
            mark = FAILED
            directory = self.plan.request.directory
            present = [
                file.name
                for file in self.plan.files
                if self._written and has_content(directory / file.name, file.data, file.executable)
            ]
            if present:
                text = f"{text} (written and still there: {', '.join(present)})"
        self.call_later(self._record_step, LaunchStep(step.title, text, mark))
        return mark == DONE

    def _write(self, replace_files: bool, count: str) -> str:
        write_plan(self.plan, overwrite=replace_files)
        self._written = True
        return f"{count} in {self.plan.request.directory}"

    def _submit(self, pool: PoolClient) -> str:
        cluster = pool.submit_dag(self.plan.request.directory / self.plan.dag_file)
        return f"{self.plan.dag_file} is cluster {cluster}"

    def _record_step(self, step: LaunchStep) -> None:
        self._steps[step.title] = step
        self._refresh_if_mounted()

    def _finished(self, submitted: bool) -> None:
        self._busy, self._submitted = False, submitted
        self._tick.pause()
        if submitted:
            self.set_timer(self.RESULT_SECONDS, self.action_watch)
        self._refresh_if_mounted()


SIDE_BY_SIDE: Final = 130
"""Minimum width for form and preview side by side."""

FORM_CELLS: Final = 92
"""Width of the form there; leaves room for problems beside the fields."""

SEVERAL: Final = {"sites": "site", "gpu_models": "GPU model"}
"""Fields with several values that the collector knows, and the noun for one of them."""

NOTE_LINES: Final = 4
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
        self.form_result = FormResult()
        self.pool_info = PoolInfo()
        self._form = FormState()
        self._validating: tuple[FormState, int] | None = None
        self._stale = self._submit_pending = self._in_preview = False
        self._last_input: tuple[FormState, int] | None = None
        self._launch: LaunchScreen | None = None
        self._advised: Mapping[str, tuple[str, RequestAdvice]] = {}

    def compose_body(self) -> ComposeResult:
        with Horizontal():
            yield FormView(self._set_field, id="form")
            yield SidePane(id="preview")

    def key_footer(self) -> KeyFooter:
        return KeyFooter(("submit", "typing"))

    def on_mount(self) -> None:
        templates = readable_templates()
        self._form = self.context.form_state or FormState.from_request(
            self.initial_request
            or Request(
                template=template_for(EnsembleShape.CHAIN, templates),
                directory=new_directory(Path.cwd() / "ensemble"),
                gate=StopRules(),
            )
        )
        # Bundled templates are loaded first, so that fields do not appear later.
        name = self._form.text("template")
        template = next((candidate for candidate in templates if candidate.name == name), None)
        self.form_result = FormResult(templates, template)
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
    def _fields(self) -> tuple[RequestField, ...]:
        return fields_of(self.form_result.template, self.form_result.templates, self._form)

    def show(self, update: Snapshot) -> None:
        form, preview_pane = self.query_one(FormView), self.query_one(SidePane)
        self._take_requests()
        head = self._head()
        self.show_head(head)
        form.styles.width = self._form_cells
        form.page_target = preview_pane if self._wide else form
        form.display = self._wide or not self._in_preview
        preview_pane.display = self._wide or self._in_preview
        free = self.app.size.height - len(head) - NOTE_LINES - 2
        form.show(self._entries(free), 26 if self._form_cells < 84 else 32)
        self.show_note(self._note(form, preview_pane))
        self._start_validation()

    def _take_requests(self) -> None:
        """Start with what would fit the jobs of the shown ensemble, unless the form is edited."""
        is_new = self.initial_request is None and self.context.form_state is None
        if is_new and not self._advised:
            advice = self.context.present_stats.value(advise_requests)
            self._advised = advised_fields(advice or ())
            for name, (text, _) in self._advised.items():
                self._form = self._form.with_text(name, text)

    def _head(self) -> list[Line]:
        room = self.app.size.width
        right = schedd_line(self.pool_info, long=room >= 100)
        title = line(("Submit a new ensemble", BOLD))
        lines = [line(" ") + justify(title, right, room - 2), line(" ") + self._summary_line()]
        if self.pool_info.error is not None:
            message = plain(f"Nothing can be submitted: {self.pool_info.error}", 2000)
            lines += wrap(message, room - 1, NOTE, indent=1, limit=2)
        return [*lines, ()]

    def _summary_line(self) -> Line:
        result = self.form_result
        if result.request is None:
            return line(("working out what it comes to", DIM))
        if result.plan is None:
            names = dict.fromkeys(_label(problem) or "the plan" for problem in result.fatal)
            count = formatting.count(len(names), "field needs", "fields need")
            text = plain(", ".join(names), 200)
            return line((f"{count} another look: ", BAD), text)
        plan = result.plan
        jobs = formatting.count(plan.jobs, "job")
        files = formatting.count(len(plan.files), "file")
        exist = formatting.count(len(plan.existing_files), "exists", "exist")
        parts = (
            line((size_text(plan), BOLD), (f" = {jobs}", BOLD)),
            line(formatting.count(plan.nodes, "node")),
            line(files),
            line((f"{exist} already", NOTE)) if plan.existing_files else (),
        )
        return join(parts, line("   "))

    def _entries(self, free: int) -> list[FormEntry]:
        """Return the form entries, with headings if they fit into ``free`` lines."""
        fields = self._fields
        first_parameter = next((f.name for f in fields if f.name.startswith("values.")), None)
        titles = {field.name: TITLES[field.name] for field in fields if field.name in TITLES}
        roomy = free >= len(fields) + 2 * len(titles) + (2 if first_parameter else 0)
        titles = titles if roomy else {}
        if first_parameter is not None:
            template = self.form_result.template
            name = plain(template.name if template else "", 40)
            titles[first_parameter] = f"Parameters of {name}"
        entries: list[FormEntry] = []
        for field in fields:
            if field.name in titles:
                entries += [FormEntry(None, "")] if roomy and entries else []
                entries.append(FormEntry(None, titles[field.name]))
            entries.append(self._entry(field))
        return entries

    def _entry(self, field: RequestField) -> FormEntry:
        return FormEntry(
            name=field.name,
            label=plain(field.form.label, 18),
            text=self._form.text(field.name, self.form_result.template),
            # A problem replaces the unit.
            unit="" if self.form_result.problem_of(field.name) else field.form.unit,
            note=self._field_note(field),
            hint=field.form.empty,
            options=tuple(field.choices),
            options_only=_is_choice(field),
            has_list=any(field.choices.values()) or field.name in SEVERAL,
        )

    def _field_note(self, field: RequestField) -> Line:
        """Return the problem of a field, or else the meaning of its value."""
        problem = self.form_result.problem_of(field.name)
        if problem is not None:
            style = BAD if problem.fatal else NOTE
            return line(("✗ " if problem.fatal else "! ", style), (plain(problem.text, 400), style))
        if field.name == "template" and self.form_result.template is not None:
            return line((plain(self.form_result.template.title, 100), DIM))
        if _is_choice(field):
            return line((field.choices.get(self._form.text(field.name), ""), DIM))
        if field.name == "sweep":
            return self._sweep_note()
        if field.name in SEVERAL:
            return self._pool_count(len(self._choices(field)), SEVERAL[field.name])
        text, advice = self._advised.get(field.name, ("", None))
        if advice is not None and text == self._form.text(field.name):
            return line((advice_text(advice), DIM))
        return ()

    def _sweep_note(self) -> Line:
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
        parts = [*self.messages(), *out_of_view(above, below)]
        if self._wide and preview_pane.lines_below:
            total = formatting.number(len(preview_pane.lines))
            position = f"{preview_pane.top_line + 1} of {total} lines"
            parts.append(line((f"preview {position}, pgdn", DIM)))
        return [rule(parts, room), *padded(self._help(form, room - 2), NOTE_LINES)]

    def _help(self, form: FormView, room: int) -> list[Line]:
        """Return the problem and the help of the field under the cursor."""
        if self._in_preview:
            keys = "] next file   up and down, pgup and pgdn scroll   tab or esc back to the form"
            return [line(" ", (keys, DIM))]
        field = next((field for field in self._fields if field.name == form.cursor), None)
        if field is None:
            return []
        problem = self.form_result.problem_of(field.name) or self.form_result.problem_of("")
        lines: list[Line] = []
        if problem is not None:
            style = BAD if problem.fatal else NOTE
            # The end of the message says how to fix it.
            lines = wrap(plain(problem.text, 2000), room, style, 1, NOTE_LINES)
        about = self.form_result.template.about if self.form_result.template else ""
        text = f"{field.form.help} {about}" if field.name == "template" else field.form.help
        if field.name != "template" and any(field.choices.values()):
            text += f" {'; '.join(f'{value}: {sense}' for value, sense in field.choices.items())}."
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

    def _validated(self, result: FormResult, preview: Sections, width: int) -> None:
        self._validating, self.form_result = None, result
        if width == self._preview_cells:
            self.query_one(SidePane).show(preview.lines, preview.sections)
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
            self._launch.pool_info = self.pool_info
            self._launch.refresh_view()
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
            if self._form.text("template") == template_for(previous, templates):
                template = template_for(self._form.shape, templates)
                self._form = self._form.with_text("template", template)
        self.context.form_state = self._form
        self._message = ""
        self._refresh_if_mounted()

    def on_form_view_field_highlighted(self, event: FormView.FieldHighlighted) -> None:
        event.stop()
        self._message = ""
        self._refresh_if_mounted()

    @property
    def _field_under_cursor(self) -> RequestField | None:
        cursor = self.query_one(FormView).cursor
        return next((field for field in self._fields if field.name == cursor), None)

    def footer_labels(self) -> Mapping[str, str]:
        field = self._field_under_cursor
        has_list = field is None or field.name in SEVERAL or self._choices(field)
        return super().footer_labels() if has_list else {"choose": "next field"}

    def action_choose(self) -> None:
        """Open the list of the field under the cursor, or move to the next field."""
        form = self.query_one(FormView)
        if not form.has_focus:
            return
        field = self._field_under_cursor
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
            current = (text,) if noun is None else read_names(text)
            title = f"{field.form.label}: which?"
            screen = ChoiceScreen(title, choices, current, several=noun is not None)
            self.app.push_screen(screen, partial(self._chosen, field.name))

    def _choices(self, field: RequestField) -> Mapping[str, str]:
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
        return field.choices if any(field.choices.values()) else {}

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
