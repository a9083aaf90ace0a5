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
    templates = bundled_templates()
    template, template_problem = _template(state.text("template").strip(), templates)
    request, unreadable = parse_form(state, template)
    skipped = {problem.field for problem in unreadable}
    try:
        # An unreadable field has a default, whose problems are not reported.
        problems = authoring.validate(request, tuple(sites), gpus=tuple(gpus))
        reported = [problem for problem in problems if problem.field not in skipped]
    except UNREADABLE as error:
        reported = [RequestProblem("template", str(error))]
    if template_problem is not None and not any(
        problem.field == "template" for problem in reported
    ):
        reported.append(template_problem)
    form_problems = _by_form_field((*unreadable, *reported), state, template)
    plan = None
    if not any(problem.fatal for problem in form_problems):
        try:
            plan = authoring.make_plan(request)
        except UNREADABLE as error:
            form_problems = (*form_problems, RequestProblem("", str(error)))
    return FormResult(state, templates, template, request, form_problems, plan)


def _by_form_field(
    problems: Sequence[RequestProblem], state: FormState, template: Template | None
) -> tuple[RequestProblem, ...]:
    """Assign the problems to form fields, in form order; others come last."""
    fields = fields_of(template, (), state)
    positions = {field.name: index for index, field in enumerate(fields)}
    renamed = [
        replace(problem, field=FIELD_ALIASES.get(problem.field, problem.field))
        if problem.field in positions or not problem.field.startswith("stages.")
        else replace(problem, field="stages")
        for problem in problems
    ]
    return tuple(sorted(renamed, key=lambda problem: positions.get(problem.field, len(positions))))


def bundled_templates() -> tuple[Template, ...]:
    """Return the bundled templates; none if they are damaged."""
    try:
        return tuple(authoring.templates())
    except UNREADABLE:
        return ()


def _template(
    name: str, templates: Sequence[Template]
) -> tuple[Template | None, RequestProblem | None]:
    for template in templates:
        if template.name == name:
            return template, None
    try:
        return authoring.load_template(name), None
    except UNREADABLE as error:
        return None, RequestProblem("template", str(error))
