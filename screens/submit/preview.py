"""What a form would write: its problems, the plan, and a preview of every file.

Lines of the preview are rendered when they become visible: the DAG of a large ensemble has a
hundred thousand of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, chop_cells

from metlmon import authoring
from metlmon.authoring.ascii_graph import draw_graph
from metlmon.authoring.request import (
    EnsembleShape,
    Plan,
    PlanError,
    PlannedFile,
    Request,
    RequestProblem,
    RunPlan,
    Template,
)
from metlmon.authoring.runs import epochs_of, gpus_of
from metlmon.stats.cost import CostHistory, cost_estimate_lines, estimate_cost
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import BAD, BOLD, DIM, GOOD, NOTE, Line, line, wrap
from screens.base.screens import heading
from screens.base.stats_worker import LazySequence
from screens.submit.form_model import FIELD_ALIASES, LABELS, FormState, fields_of, parse_form
from screens.widgets.form import plain_with_blanks

UNREADABLE: Final = (PlanError, OSError, ValueError)
"""Exceptions of reading a user's template or directory."""


class FormResult(Struct, frozen=True):
    """Result of validating a form.

    ``templates`` are the bundled ones; ``template`` is the chosen one, None if it cannot be read.
    ``plan`` is None if a problem is fatal.
    """

    state: FormState
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
        matching = [problem for problem in self.problems if problem.field == field]
        return next(
            (problem for problem in matching if problem.fatal), matching[0] if matching else None
        )


def validate_form(
    state: FormState, sites: Sequence[str] = (), gpus: Sequence[str] = ()
) -> FormResult:
    """Validate a form.

    Reads files (a template, the target directory) and may take long for a large ensemble: call it
    in a thread. ``sites`` and ``gpus`` (models) are those known to the collector.
    """
    templates, name = bundled_templates(), state.text("template").strip()
    template = next((each for each in templates if each.name == name), None)
    missing: list[RequestProblem] = []
    if template is None:
        try:
            template = authoring.load_template(name)
        except UNREADABLE as error:
            missing = [RequestProblem("template", str(error))]
    request, unreadable = parse_form(state, template)
    # An unreadable field has a default, whose problems are not reported.
    skipped = {problem.field for problem in unreadable}
    try:
        validation = authoring.validate(request, tuple(sites), gpus=tuple(gpus))
        reported = [each for each in validation.problems if each.field not in skipped]
    except UNREADABLE as error:
        validation, reported = None, [RequestProblem("template", str(error))]
    if not any(problem.field == "template" for problem in reported):
        reported += missing
    order = [field.name for field in fields_of(template, (), state)]
    shown = [_in_form(problem, order) for problem in (*unreadable, *reported)]
    shown.sort(key=lambda problem: [*order, problem.field].index(problem.field))
    plan = None
    if not any(problem.fatal for problem in shown):
        try:
            plan = authoring.make_plan(request, validation)
        except UNREADABLE as error:
            shown.append(RequestProblem("", str(error)))
    return FormResult(state, templates, template, request, problems=tuple(shown), plan=plan)


def _in_form(problem: RequestProblem, fields: Sequence[str]) -> RequestProblem:
    """Assign a problem to the form field that shows it."""
    field = FIELD_ALIASES.get(problem.field, problem.field)
    if field not in fields and field.startswith("stages."):
        field = "stages"
    return replace(problem, field=field)


def bundled_templates() -> tuple[Template, ...]:
    """Return the bundled templates; none if they are damaged."""
    try:
        return tuple(authoring.templates())
    except UNREADABLE:
        return ()


LazyLines = LazySequence[Line]
"""Lines that are rendered when they become visible."""


def file_lines(file: PlannedFile, width: int) -> LazyLines:
    """Return the exact text of one file, with line numbers; long lines are wrapped."""
    text = file.text
    texts = text.removesuffix("\n").split("\n") if text else []
    digits = max(3, len(str(len(texts))))
    text_width = max(8, width - digits - 2)

    @lru_cache(64)
    def pieces(number: int) -> list[str]:
        clean = plain_with_blanks(texts[number])
        return chop_cells(clean, text_width) if cell_len(clean) > text_width else [clean]

    def row_count(number: int) -> int:
        row = texts[number]
        if row.isascii() and row.isprintable():
            return max(1, -(-len(row) // text_width))
        return len(pieces(number))

    ends = list(accumulate(map(row_count, range(len(texts)))))
    ends_open = not text.endswith("\n")

    def render(index: int) -> Line:
        number = bisect_right(ends, index)
        if number >= len(texts):
            note = "no line end here" if texts else "empty"
            return line((" " * (digits + 1) + note, DIM))
        row = index - (ends[number - 1] if number else 0)
        gutter = f"{number + 1:>{digits}} " if row == 0 else " " * (digits - 1) + "↪ "
        piece = pieces(number)[row]
        comment = texts[number].lstrip().startswith("#")
        return line((gutter, DIM), (piece, DIM) if comment else piece)

    return LazyLines((ends[-1] if ends else 0) + ends_open, render)


def run_lines(runs: Sequence[RunPlan], width: int) -> LazyLines:
    """Return the runs: name, uuid, seed, and the target of each epoch."""
    uuid_width = 36 if width >= 90 else 8
    name_width = max(cell_len(plain(run.name, 24)) for run in runs)
    seed_width = max(len(str(run.seed)) for run in runs)

    def render(index: int) -> Line:
        run = runs[index]
        return line(
            f"  {plain(run.name, 24):<{name_width}}  ",
            (plain(run.uuid, 36)[:uuid_width], DIM),
            ("  seed ", DIM),
            f"{run.seed:<{seed_width}}  ",
            *_targets(run.targets),
            *(line(("  on ", DIM), plain(run.gpu, 60)) if run.gpu is not None else ()),
        )

    return LazyLines(len(runs), render)


def _targets(names: Sequence[str]) -> Line:
    """Return the targets of the epochs in order: ``Expanse-GPU ×2, Delta-GPU``."""
    parts = []
    for name, group in groupby(names):
        n = len(list(group))
        parts.append(plain(name, 30) + (f" ×{n}" if n > 1 else ""))
    return line(("→ ", DIM), ", ".join(parts)) if parts else ()


class Preview(LazySequence[Line]):
    """The whole preview: counts, files, runs, the text of every file.

    ``sections`` are the numbers of the heading lines.
    """

    def __init__(self, parts: Sequence[Sequence[Line]], sections: Sequence[int]) -> None:
        ends = list(accumulate(len(part) for part in parts))
        starts = [0, *ends]
        self.sections = tuple(starts[part] for part in sections)

        def render(index: int) -> Line:
            part = bisect_right(ends, index)
            return parts[part][index - starts[part]]

        super().__init__(starts[-1], render)


def build_preview(result: FormResult, width: int, history: CostHistory | None = None) -> Preview:
    """Build the preview of a form, or the list of its fatal problems.

    ``past`` is the cost history of past epochs, if known.
    """
    plan = result.plan
    if plan is None:
        return Preview([_missing(result, width)], ())
    size = sum(len(file.data) for file in plan.files)
    files = f"{formatting.count(len(plan.files), 'file')}, {formatting.size(size)}"
    parts: list[Sequence[Line]] = [
        [*_size_lines(plan, width), *cost_lines(plan, history, width), ()],
        [*(line(" ", text) for text in draw_graph(plan.graph, width - 2)), ()],
        [heading(files, width)],
        [*file_list(plan), ()],
    ]
    sections = [2]
    if plan.runs:
        sections.append(len(parts))
        total = formatting.count(len(plan.runs), "run")
        parts += [[heading(total, width)], run_lines(plan.runs, width)]
    for file in plan.files:
        sections.append(len(parts))
        parts += [[(), _title(file, width)], file_lines(file, width)]
    return Preview(parts, sections)


def _title(file: PlannedFile, width: int) -> Line:
    name = plain(file.name, max(12, width - 30))
    title = f"{name}  {formatting.size(len(file.data))}"
    return heading(title + (", executable" if file.executable else ""), width)


def _size_lines(plan: Plan, width: int) -> list[Line]:
    """Return the size of the ensemble and its directory."""
    nodes = formatting.count(plan.nodes, "node")
    jobs = formatting.count(plan.jobs, "job")
    return [
        line(" ", (size_text(plan), BOLD), "   ", nodes, "   ", (jobs, BOLD)),
        *wrap(f"into {plain(str(plan.request.directory), 1000)}", width - 1, DIM, indent=1),
    ]


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


def file_list(plan: Plan, new: str = "new", existing: str = "in the way") -> list[Line]:
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


def _missing(result: FormResult, width: int) -> list[Line]:
    if result.request is None:
        return [line(" ", ("what would be written appears here", DIM))]
    lines: list[Line] = [line(" ", ("Nothing can be written yet:", BOLD)), ()]
    for problem in result.fatal:
        label = LABELS.get(problem.field, problem.field.removeprefix("values."))
        has_label = not label or problem.text.startswith(f"{label} ")
        text = plain(problem.text if has_label else f"{label}: {problem.text}", 1000)
        lines += wrap(text, width - 1, BAD, indent=2)
    return lines
