"""Descriptions of ensembles → DAG and submit files."""

from metlmon.authoring.complaints import complaints
from metlmon.authoring.planning import make_plan
from metlmon.authoring.records import (
    Complaint,
    Parameter,
    Plan,
    PlanError,
    PlannedFile,
    Policy,
    Request,
    RunPlan,
    Template,
)
from metlmon.authoring.submittext import shown
from metlmon.authoring.templates import load_template, templates
from metlmon.authoring.writing import write_plan

__all__ = [
    "Complaint",
    "Parameter",
    "Plan",
    "PlanError",
    "PlannedFile",
    "Policy",
    "Request",
    "RunPlan",
    "Template",
    "complaints",
    "load_template",
    "make_plan",
    "shown",
    "templates",
    "write_plan",
]
