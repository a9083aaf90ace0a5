"""Validation of the submit form: its problems, and the resulting plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon import authoring
from metlmon.authoring.request import Plan, PlanError, Request, RequestProblem, Template
from screens.submit.form_model import FIELD_ALIASES, FormState, fields_of, parse_form

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
        problems = authoring.validate(request, tuple(sites), gpus=tuple(gpus))
        reported = [problem for problem in problems if problem.field not in skipped]
    except UNREADABLE as error:
        reported = [RequestProblem("template", str(error))]
    if not any(problem.field == "template" for problem in reported):
        reported += missing
    order = [field.name for field in fields_of(template, (), state)]
    shown = [_in_form(problem, order) for problem in (*unreadable, *reported)]
    shown.sort(key=lambda problem: [*order, problem.field].index(problem.field))
    plan = None
    if not any(problem.fatal for problem in shown):
        try:
            plan = authoring.make_plan(request)
        except UNREADABLE as error:
            shown.append(RequestProblem("", str(error)))
    return FormResult(state, templates, template, request, tuple(shown), plan)


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
