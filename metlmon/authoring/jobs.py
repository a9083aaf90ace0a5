"""The submit files of a request: each a template with values, for the nodes of one purpose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field as made_by
from typing import Final

from metlmon.authoring.graph import NodeRole
from metlmon.authoring.request import EnsembleShape, Evaluation, PlanError, Request, Template
from metlmon.authoring.templates import load_template
from metlmon.frozen import frozen

PROVISION: Final = "provision"
"""The template of a multi-node ensemble's PROVISIONER, and the name of its node."""

GATHER: Final = "gather"
"""The node that comes after all shards of a bag."""

_MAIN: Final = {EnsembleShape.BAG: NodeRole.SHARD}


@frozen
class JobTemplate:
    """One submit file. ``file``: its name beside the DAG; ``values``: of all the template's
    parameters. ``field``: what names the template in the request; ``told``: values that are meant
    for this job alone, ``given``: where they stand. ``before``: epochs of the stages before."""

    file: str
    template: Template
    values: Mapping[str, str]
    role: NodeRole
    field: str = "template"
    given: str = "values"
    told: Mapping[str, str] = made_by(default_factory=dict)
    stage: str | None = None
    before: int = 0


class NoTemplate(PlanError):
    """A template cannot be had. ``field``: what names it in the request."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


def parameter_values(said: Mapping[str, str], template: Template) -> dict[str, str]:
    """The template's parameters with their values, those not given at their defaults."""
    return {p.name: said.get(p.name, p.default) for p in template.parameters}


def jobs_of(request: Request) -> tuple[JobTemplate, ...]:
    """The submit files that are written, the main one first. Raises NoTemplate."""
    name = request.name
    found = list(_stages(request)) if request.shape is EnsembleShape.STAGES else [_main(request)]
    evaluation = request.evaluation
    if evaluation is None and request.source is not None:
        evaluation = Evaluation()  # The sweep file says whether anything is evaluated.
    if evaluation is not None:
        template = _load(evaluation.template, "evaluation.template")
        # What the trainings are told holds for their evaluation, where it asks for it.
        values = parameter_values({**request.values, **evaluation.values}, template)
        found.append(
            JobTemplate(
                f"{name}-evaluate.sub",
                template,
                values,
                NodeRole.EVALUATE,
                "evaluation.template",
                "evaluation.values",
                evaluation.values,
            )
        )
    if request.shape is EnsembleShape.BAG and request.gather is not None:
        found.append(_besides(request, request.gather, GATHER, NodeRole.GATHER, "gather"))
    if request.shape is EnsembleShape.MULTI_NODE:
        found.append(_besides(request, PROVISION, PROVISION, NodeRole.PROVISION, "shape"))
    return tuple(found)


def _main(request: Request) -> JobTemplate:
    template = _load(request.template, "template")
    values = parameter_values(request.values, template)
    return JobTemplate(
        f"{request.name}.sub", template, values, _MAIN.get(request.shape, NodeRole.TRAIN)
    )


def _stages(request: Request) -> list[JobTemplate]:
    found, before = [], 0
    for stage in request.stages:
        field = f"stages.{stage.name}.template" if stage.template else "template"
        template = _load(stage.template or request.template, field)
        found.append(
            JobTemplate(
                f"{request.name}-{stage.name}.sub",
                template,
                parameter_values({**request.values, **stage.values}, template),
                NodeRole.TRAIN,
                field,
                f"stages.{stage.name}.values",
                stage.values,
                stage.name,
                before,
            )
        )
        before += stage.epochs
    return found


def _besides(request: Request, wanted: str, word: str, role: NodeRole, field: str) -> JobTemplate:
    template = _load(wanted, field)
    values = parameter_values(request.values, template)
    return JobTemplate(f"{request.name}-{word}.sub", template, values, role, field)


def _load(wanted: str, field: str) -> Template:
    try:
        return load_template(wanted)
    except PlanError as error:
        raise NoTemplate(field, str(error)) from None
