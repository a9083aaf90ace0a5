"""Lists the submit files of a request: a template and values for each kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field as dataclass_field
from typing import Final

from metlmon.authoring.graph import NodeRole
from metlmon.authoring.request import EnsembleShape, Evaluation, PlanError, Request, Template
from metlmon.authoring.templates import load_template
from metlmon.frozen import frozen

PROVISION: Final = "provision"
"""Template and node name of the PROVISIONER of a multi-node ensemble."""

GATHER: Final = "gather"
"""Name of the node that runs after all shards of a bag."""

_MAIN_ROLE: Final = {EnsembleShape.BAG: NodeRole.SHARD}


@frozen
class JobTemplate:
    """A submit file: a template with parameter values.

    ``file``: its name beside the DAG. ``values``: of all parameters of the template. ``field``: the
    field of the request that names the template. ``own_values``: values for this job only;
    ``values_field``: the field that contains these. ``first_epoch``: number of epochs in earlier
    stages.
    """

    file: str
    template: Template
    values: Mapping[str, str]
    role: NodeRole
    field: str = "template"
    values_field: str = "values"
    own_values: Mapping[str, str] = dataclass_field(default_factory=dict)
    stage: str | None = None
    first_epoch: int = 0


class TemplateError(PlanError):
    """A template cannot be loaded. ``field``: the field of the request that names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def parameter_values(values: Mapping[str, str], template: Template) -> dict[str, str]:
    """The values of the template's parameters, with defaults for missing ones."""
    return {p.name: values.get(p.name, p.default) for p in template.parameters}


def jobs_of(request: Request) -> tuple[JobTemplate, ...]:
    """The submit files of the request, the main one first. Raises TemplateError."""
    name = request.name
    jobs = (
        list(_stage_jobs(request))
        if request.shape is EnsembleShape.STAGES
        else [_main_job(request)]
    )
    evaluation = request.evaluation
    if evaluation is None and request.source is not None:
        evaluation = Evaluation()  # The sweep file decides about evaluations.
    if evaluation is not None:
        template = _load_template(evaluation.template, "evaluation.template")
        # Parameters of the training also apply to its evaluation, if that template has them.
        values = parameter_values({**request.values, **evaluation.values}, template)
        jobs.append(
            JobTemplate(
                file=f"{name}-evaluate.sub",
                template=template,
                values=values,
                role=NodeRole.EVALUATE,
                field="evaluation.template",
                values_field="evaluation.values",
                own_values=evaluation.values,
            )
        )
    if request.shape is EnsembleShape.BAG and request.gather is not None:
        jobs.append(
            _extra_job(
                request=request,
                template_name=request.gather,
                suffix=GATHER,
                role=NodeRole.GATHER,
                field="gather",
            )
        )
    if request.shape is EnsembleShape.MULTI_NODE:
        jobs.append(
            _extra_job(
                request=request,
                template_name=PROVISION,
                suffix=PROVISION,
                role=NodeRole.PROVISION,
                field="shape",
            )
        )
    return tuple(jobs)


def _main_job(request: Request) -> JobTemplate:
    template = _load_template(request.template, "template")
    values = parameter_values(request.values, template)
    return JobTemplate(
        f"{request.name}.sub", template, values, _MAIN_ROLE.get(request.shape, NodeRole.TRAIN)
    )


def _stage_jobs(request: Request) -> list[JobTemplate]:
    jobs, first_epoch = [], 0
    for stage in request.stages:
        field = f"stages.{stage.name}.template" if stage.template else "template"
        template = _load_template(stage.template or request.template, field)
        jobs.append(
            JobTemplate(
                file=f"{request.name}-{stage.name}.sub",
                template=template,
                values=parameter_values({**request.values, **stage.values}, template),
                role=NodeRole.TRAIN,
                field=field,
                values_field=f"stages.{stage.name}.values",
                own_values=stage.values,
                stage=stage.name,
                first_epoch=first_epoch,
            )
        )
        first_epoch += stage.epochs
    return jobs


def _extra_job(
    request: Request, template_name: str, suffix: str, role: NodeRole, field: str
) -> JobTemplate:
    template = _load_template(template_name, field)
    values = parameter_values(request.values, template)
    return JobTemplate(
        file=f"{request.name}-{suffix}.sub",
        template=template,
        values=values,
        role=role,
        field=field,
    )


def _load_template(name: str, field: str) -> Template:
    try:
        return load_template(name)
    except PlanError as error:
        raise TemplateError(field, str(error)) from None
