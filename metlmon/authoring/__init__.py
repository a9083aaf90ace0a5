"""Turns descriptions of ensembles into DAG and submit files."""

from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import (
    Parameter,
    Plan,
    PlanError,
    PlannedFile,
    Policy,
    Request,
    RequestProblem,
    RunPlan,
    Template,
)
from metlmon.authoring.templates import load_template, templates
from metlmon.authoring.validate import Validation, validate
from metlmon.authoring.write_files import write_plan

__all__ = [
    "Parameter",
    "Plan",
    "PlanError",
    "PlannedFile",
    "Policy",
    "Request",
    "RequestProblem",
    "RunPlan",
    "Template",
    "Validation",
    "load_template",
    "make_plan",
    "templates",
    "validate",
    "write_plan",
]
