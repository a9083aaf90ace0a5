"""A form, judged: what is wrong with it, and what would be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from metlmon import authoring
from metlmon.authoring.request import Plan, PlanError, Request, RequestProblem, Template
from metlmon.frozen import frozen
from screens.submit.form_model import AS_FIELD, FormState, asked, fields_of

UNREADABLE: Final = (PlanError, OSError, ValueError)
"""What a template of one's own, or a directory, may raise while it is looked at."""


@frozen
class FormResult:
    """What there is to say of a form. ``templates`` come along; ``template`` is the chosen
    one, None when it cannot be read. ``plan`` None: something fatal is among the complaints."""

    draft: FormState
    templates: tuple[Template, ...] = ()
    template: Template | None = None
    request: Request | None = None
    complaints: tuple[RequestProblem, ...] = ()
    plan: Plan | None = None

    @property
    def fatal(self) -> tuple[RequestProblem, ...]:
        """Complaints with which nothing can be written."""
        return tuple(each for each in self.complaints if each.fatal)

    def of(self, field: str) -> RequestProblem | None:
        """The worst complaint about a field."""
        about = [each for each in self.complaints if each.field == field]
        return next((each for each in about if each.fatal), about[0] if about else None)


def validate_form(
    draft: FormState, sites: Sequence[str] = (), gpus: Sequence[str] = ()
) -> FormResult:
    """Judge a form. Looks at files (a template, what lies in the directory) and may take long
    for a large ensemble: called in a thread. ``sites``, ``gpus`` (models): those that the collector
    knows."""
    templates = come_along()
    template, unread = _template(draft.text("template").strip(), templates)
    request, unreadable = asked(draft, template)
    skipped = {each.field for each in unreadable}
    try:
        # A field that cannot be read has a stand-in, of which nothing is to be said.
        found = authoring.validate(request, tuple(sites), gpus=tuple(gpus))
        said = [each for each in found if each.field not in skipped]
    except UNREADABLE as error:
        said = [RequestProblem("template", str(error))]
    if unread is not None and not any(each.field == "template" for each in said):
        said.append(unread)
    complaints = _as_in_the_form((*unreadable, *said), draft, template)
    plan = None
    if not any(each.fatal for each in complaints):
        try:
            plan = authoring.make_plan(request)
        except UNREADABLE as error:
            complaints = (*complaints, RequestProblem("", str(error)))
    return FormResult(draft, templates, template, request, complaints, plan)


def _as_in_the_form(
    complaints: Sequence[RequestProblem], draft: FormState, template: Template | None
) -> tuple[RequestProblem, ...]:
    """From the first field to the last, each beside a field that there is; what is about none of
    them comes at the end."""
    fields = fields_of(template, (), draft)
    place = {field.name: at for at, field in enumerate(fields)}
    beside = [
        replace(each, field=AS_FIELD.get(each.field, each.field))
        if each.field in place or not each.field.startswith("stages.")
        else replace(each, field="stages")
        for each in complaints
    ]
    return tuple(sorted(beside, key=lambda each: place.get(each.field, len(place))))


def come_along() -> tuple[Template, ...]:
    """The templates that come along; none when they are damaged (whoever names one is told)."""
    try:
        return tuple(authoring.templates())
    except UNREADABLE:
        return ()


def _template(
    wanted: str, templates: Sequence[Template]
) -> tuple[Template | None, RequestProblem | None]:
    for each in templates:
        if each.name == wanted:
            return each, None
    try:
        return authoring.load_template(wanted), None
    except UNREADABLE as error:
        return None, RequestProblem("template", str(error))
