"""The JSON of ``new`` and ``submit``."""

from __future__ import annotations

from typing import Any, Final

from metlmon import authoring
from metlmon.authoring.existing.diff import NodeChange, PlanDiff, VariableDiff
from metlmon.authoring.graph import NodeExplanation
from metlmon.authoring.request import (
    Parameter,
    Plan,
    PlannedFile,
    RequestProblem,
    RunPlan,
    Template,
)
from metlmon.cli.json_output.objects import SCHEMA, JsonObject
from metlmon.pool.types import SubmitResult
from metlmon.redact import hide_value
from metlmon.stats.cost import CostEstimate, CostHistory

PLANNED_RUN: Final = JsonObject(
    RunPlan, "A run of a new ensemble.", "run=name uuid seed targets gpu", name="PlannedRun"
)


def _text(file: PlannedFile) -> str | None:
    try:
        file.data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return authoring.redacted_text(file)


PLANNED_FILE: Final = JsonObject(
    PlannedFile,
    "A file to be written; text is null for one that is not text.",
    "name about executable exists",
    computed={"bytes": (int, lambda file: len(file.data)), "text": (str | None, _text)},
)
COMPLAINT: Final = JsonObject(
    RequestProblem, "What is wrong with a request.", "field text fatal", name="Complaint"
)
SUBMITTED: Final = JsonObject(
    SubmitResult,
    "DAGMan's cluster, and how the DAG was submitted: htcondor2 or condor_submit_dag.",
    "cluster way",
    name="Submitted",
    computed={"text": (str | None, lambda result: result.text or None)},
)
SUBMIT_OUTPUT: Final = JsonObject(
    Plan,
    "metlmon submit --json; submitted is null unless the pool took the DAG.",
    "directory=request.directory dag=dag_file template=request.template nodes jobs runs files",
    name="SubmitOutput",
    computed={
        "schema": (int, lambda plan: SCHEMA),
        "written": (bool, lambda plan: False),
        "submitted": ((SUBMITTED, None), lambda plan: None),
    },
    given={"complaints": [COMPLAINT]},
)
DIFFERENCE: Final = JsonObject(
    VariableDiff,
    "A variable or setting of a node that differs, with secrets hidden.",
    "name",
    name="Difference",
    computed={
        "old": (str | None, lambda each: _hidden(each.name, each.old)),
        "new": (str | None, lambda each: _hidden(each.name, each.new)),
    },
)


def _hidden(name: str, value: str | None) -> str | None:
    return None if value is None else hide_value(name, value)


NODE_CHANGE: Final = JsonObject(
    NodeChange,
    "A node that was added, removed or changed.",
    "node dag how=kind ran differences",
)
FILE_CHANGE: Final = JsonObject(
    None,
    "A file that is added, changed or unused; kept: changed by_hand.",
    name="FileChange",
    given={"name": str, "how": str, "by_hand": bool, "kept": bool},
)
CHANGE: Final = JsonObject(
    PlanDiff,
    "How a plan differs from the DAG that is there. stand: how far that has come (new, written, "
    "running, ended). ran: nodes of it that have run. rescue: the file that the next DAGMan goes "
    "on from. refusal: why the plan may not be written. remarks: what is to be known before it is.",
    "stand=progress same=unchanged ran rescue refusal remarks=notes runs_added runs_removed nodes",
    name="Change",
    computed={
        "files": (
            [FILE_CHANGE],
            lambda diff: [
                FILE_CHANGE.write(
                    file,
                    name=file.name,
                    how=file.kind,
                    by_hand=file.edited,
                    kept=file.name in diff.protected_files,
                )
                for file in diff.files
            ],
        ),
    },
)
PAST: Final = JsonObject(
    CostHistory,
    "Epochs of an earlier ensemble: the quartiles of one, and the share that was lost. gpus: least "
    "and most that an epoch requested.",
    "epochs runs gpu_hours=hours lower upper lost=lost_share cycle_seconds gpus",
    name="Past",
)
COST: Final = JsonObject(
    CostEstimate,
    "What an ensemble would cost: lower to upper in four of five cases. seconds: of a run. gpus: "
    "requested by an epoch. evaluations_left_out: whether there are evaluations, which cost more.",
    "epochs gpu_hours=hours lower upper seconds gpus evaluations_left_out=evaluations past=history",
    name="Cost",
)
VARIABLE: Final = JsonObject(
    None,
    "A variable of a node, where it comes from, and the same of lower levels that it hides. "
    "append: it goes before the submit file, too.",
    name="Variable",
    given={
        **{"name": str, "value": str, "level": str, "where": str, "append": bool},
        "hides": list[dict[str, Any]],
    },
)
EXPLAINED_NODE: Final = JsonObject(
    NodeExplanation,
    "A node of a plan. options: of its scripts, by PRE, POST and HOLD. says: further lines of the "
    "DAG file about it.",
    "node=node.name file kind=node.kind role=node.role run=node.run epoch=node.epoch "
    "submit=node.submit pre=node.pre defer=node.defer skip=node.skip_code post=node.post "
    "hold=node.hold retries=node.retries unless_exit=unless noop=node.noop where=node.where "
    "parents children weak_parents=weak says=commands",
    name="ExplainedNode",
    computed={"options": (dict[str, str], lambda explained: dict(explained.node.options))},
    given={"variables": [VARIABLE]},
)
NEW_OUTPUT: Final = JsonObject(
    Plan,
    "metlmon new --json. source: the description or sweep file that was read. picture: lines that "
    "draw the graph. cost: with --past, null where it is not known.",
    name="NewOutput",
    given={"shape": str, "source": str | None, "picture": list[str], "change": CHANGE},
    optional={"cost": (COST, None)},
    base=SUBMIT_OUTPUT,
    main=False,
)
EXPLAIN_OUTPUT: Final = JsonObject(
    None,
    "metlmon new --explain NODE --json.",
    name="ExplainOutput",
    given={"schema": int, "explained": [EXPLAINED_NODE]},
)
PARAMETER: Final = JsonObject(
    Parameter,
    "A parameter of a template.",
    "name help required",
    computed={"default": (str | None, lambda each: None if each.required else each.default)},
)
TEMPLATE: Final = JsonObject(
    Template,
    "A template that comes along, and the files that it ships.",
    "name title about parameters",
    computed={
        "ships": (list[str], lambda template: [name for name, *_ in template.shipped_files]),
    },
)
TEMPLATES_OUTPUT: Final = JsonObject(
    None,
    "metlmon submit --list-templates --json.",
    name="TemplatesOutput",
    given={"schema": int, "templates": [TEMPLATE]},
)
