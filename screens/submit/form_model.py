"""Model of the submit form: its fields, its state, and the request it stands for.

Pure functions and plain data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.from_toml import GATED_SHAPES, parse_megabytes, parse_seeds, parse_sites
from metlmon.authoring.graph import NodeRole
from metlmon.authoring.request import (
    EnsembleShape,
    Evaluation,
    PlanError,
    Policy,
    Request,
    RequestProblem,
    StageRequest,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
    Template,
)
from metlmon.authoring.templates import used_placeholders

POLICIES: Final[Mapping[str, str]] = {
    Policy.ANY.value: "every epoch at any of the sites",
    Policy.PERMUTE.value: "each site once before one repeats",
    Policy.PIN.value: "a run stays at one site",
    Policy.GPU_PIN.value: "a run stays on one GPU model",
}
"""Policies with a one-line description."""

SHAPES: Final[Mapping[str, str]] = {
    EnsembleShape.CHAIN.value: "each run a chain of its epochs",
    EnsembleShape.SWEEP.value: "a run for every combination of values",
    EnsembleShape.STAGES.value: "pretrain, then finetune from its checkpoint",
    EnsembleShape.BAG.value: "shards that need nothing of each other",
    EnsembleShape.MULTI_NODE.value: "several machines train an epoch together",
}
"""Shapes with a one-line description."""

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

SHARDS: Final = 10
"""Default number of shards of a bag."""

GATHER: Final = "gather"
"""Template of the final node of a bag."""

MOST_DIGITS: Final = 9
"""Maximum digits of a number of epochs; bounds the time for parsing it."""

SIZE_FIELDS: Final[Mapping[EnsembleShape, tuple[str, ...]]] = {
    EnsembleShape.CHAIN: ("runs", "epochs", "seeds", "evaluation.every"),
    EnsembleShape.SWEEP: ("sweep", "how", "epochs", "seeds", "evaluation.every"),
    EnsembleShape.STAGES: ("runs", "stages", "seeds", "evaluation.every"),
    EnsembleShape.BAG: ("shards", "gather"),
    EnsembleShape.MULTI_NODE: ("runs", "epochs", "machines", "seeds"),
}
"""Fields of the ensemble's size, by shape."""

GATE_FIELDS: Final = ("gate.patience", "gate.divergence", "gate.median_after")
"""Fields of the gate's rules; hidden without a gate."""

NUMBERS_OF_SHAPES: Final = {"shards": SHARDS, "machines": 2}
"""Numbers for which a request that has another shape is no example."""

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
"""The request that fields start from; its numbers are the examples in messages."""


# --- texts to values: each raises ValueError or PlanError with a sentence ------------------------


def _whole(example: object) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"a whole number is needed, such as {example}") from None

    return read


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number is needed, such as 3, or nothing") from None


def _megabytes(text: str) -> int:
    size = parse_megabytes(text)
    if size is None:
        raise ValueError("a size in MB is needed, such as 4096 or 4 GB")
    return size


def _directory(text: str) -> Path:
    if not text:
        raise ValueError("a directory is needed: a name that nothing has yet")
    try:
        return Path(text).expanduser().absolute()
    except (RuntimeError, OSError) as error:
        raise ValueError(str(error)) from error


def _optional(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: read(text) if text else None


_QUOTED: Final = re.compile(r'"[^"]*"')
_EXTRA_VARIABLE: Final = re.compile(r",\s*([A-Za-z_]\w*)\s*=")
"""Matches what looks like another variable behind a comma, not a value."""


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
        if not name.strip() or not epochs.isdecimal() or len(epochs) > MOST_DIGITS:
            advice = "write each with its epochs: pretrain 5, finetune 3"
            raise ValueError(f"{part.strip()!r}: {advice}")
        stages.append(StageRequest(name.strip(), int(epochs)))
    if not stages:
        raise ValueError("no stage is named; write pretrain 5, finetune 3")
    return tuple(stages)


# --- the fields ---------------------------------------------------------------------------------


class Field(Struct, frozen=True):
    """A form field; ``name`` is the field name of a :class:`RequestProblem`.

    ``read`` converts its text, stripped, to the value of the request. ``options`` are suggested
    values with their meaning; with ``options_only`` no others are allowed. ``empty`` is the meaning
    of an empty field, ``title`` a heading above it.
    """

    name: str
    label: str
    help: str
    unit: str = ""
    read: Callable[[str], Any] = str
    options: Mapping[str, str] = {}
    options_only: bool = False
    empty: str = ""
    title: str = ""


FIELDS: Final = (
    Field(
        "template",
        "Template",
        "The job that trains one epoch. Left and right go through those that come along, enter "
        "lists them; or type the path of a file of your own.",
        title="What to train",
    ),
    Field(
        "directory",
        "Directory",
        "A new directory for the DAG, its logs and what the jobs send back. Files that lie there "
        "already are never replaced without being named and asked about.",
        read=_directory,
    ),
    Field("name", "DAG name", "The DAG file gets this name.", ".dag"),
    Field(
        "shape",
        "Shape",
        "How the nodes hang together.",
        read=EnsembleShape,
        options=SHAPES,
        options_only=True,
        title="How much of it",
    ),
    Field(
        "runs",
        "Runs",
        "How many models are trained, each on its own.",
        "runs",
        read=_whole(DEFAULTS.runs),
    ),
    Field(
        "sweep",
        "Sweep",
        "What differs from run to run: a = 0.01 to 0.1 by 0.01; b = 1, 2, 4. A template's "
        "parameter of that name takes the values; else the jobs have them as $(a).",
        read=_variables,
    ),
    Field(
        "how",
        "Together",
        "How the values of several variables go together.",
        read=lambda text: None if text == AUTO else SweepMode(text),
        options=SWEEP_MODES,
        options_only=True,
    ),
    Field(
        "epochs",
        "Epochs",
        "How many epochs each run is trained for; every epoch is a job of its own.",
        "per run",
        read=_whole(DEFAULTS.epochs),
    ),
    Field(
        "stages",
        "Stages",
        "One after the other in every run, each with its epochs: pretrain 5, finetune 3. A stage "
        "begins with the checkpoint of the one before.",
        read=_stages,
    ),
    Field("shards", "Shards", "Into how many jobs the work is cut.", "jobs", read=_whole(SHARDS)),
    Field(
        "gather",
        "Gather",
        "A node at the end that puts together what the shards made.",
        read=lambda text: GATHER if text == YES else None,
        options=YES_OR_NO,
        options_only=True,
    ),
    Field(
        "machines",
        "Machines",
        "How many train an epoch together, at the same time.",
        "per job",
        read=_whole(2),
    ),
    Field(
        "seeds",
        "Seeds",
        "One for each run: 7, 11, 13 or 1-4. Empty: 1, 2, 3 and so on. In a sweep each point is "
        "trained once with each of them; empty: once.",
        read=parse_seeds,
        empty="1, 2, 3 and so on",
    ),
    Field(
        "evaluation.every",
        "Evaluate",
        "A side node after every Nth epoch, which the next epoch does not wait for; if it "
        "fails, nothing else does. Empty: none.",
        "epochs",
        read=_optional(_whole(1)),
        empty="none",
    ),
    Field(
        "sites",
        "Sites",
        "Where jobs may run, as GLIDEIN_ResourceName, with commas between. enter lists those that "
        "the collector knows now. Empty: anywhere.",
        read=parse_sites,
        empty="anywhere",
        title="Where",
    ),
    Field(
        "policy",
        "Policy",
        "Which epoch may run at which site.",
        read=Policy,
        options=POLICIES,
        options_only=True,
    ),
    Field(
        "gpu_models",
        "GPU models",
        "DeviceNames such as NVIDIA A40, with commas between: runs take them in turn. enter lists "
        "those that the collector knows now.",
        read=parse_sites,
    ),
    Field(
        "gpus",
        "GPUs",
        "How many GPUs each job asks for; 0 is none.",
        "per job",
        read=_whole(DEFAULTS.gpus),
        title="What each job asks for",
    ),
    Field(
        "gpu_memory_mb",
        "GPU memory",
        "The least memory that each GPU must have: 40000, or 40 GB. Empty: any.",
        "MB",
        read=_optional(_megabytes),
        empty="any",
    ),
    Field("memory_mb", "Memory", "What each job asks for: 4096, or 4 GB.", "MB", read=_megabytes),
    Field(
        "retries",
        "Retries",
        "How often DAGMan tries an epoch again that failed.",
        "times",
        read=_whole(DEFAULTS.retries),
    ),
    Field(
        "gate",
        "Steer",
        "yes: a script before each epoch lets a run be stopped, paused, or sent elsewhere while "
        "the DAG goes on, and stops it by the rules below. Its later epochs are skipped; the DAG "
        "does not fail.",
        options=YES_OR_NO,
        options_only=True,
        title="Steering it while it runs",
    ),
    Field(
        "gate.patience",
        "Early stopping",
        "Stop a run after this many epochs without a better val_loss. Empty: off.",
        "epochs",
        read=_optional(_whole(1)),
        empty="off",
    ),
    Field(
        "gate.divergence",
        "Divergence",
        "Stop a run whose val_loss is no number, or this many times above its best. Empty: off.",
        "times",
        read=_optional(_number),
        empty="off",
    ),
    Field(
        "gate.median_after",
        "Median",
        "From this many finished epochs on, stop a run whose val_loss is worse than the median of "
        "all runs at the same epoch. Empty: off.",
        "epochs",
        read=_optional(_whole(1)),
        empty="off",
    ),
)
"""Fields common to all templates, in form order."""

LABELS: Final = {field.name: field.label for field in FIELDS}


def fields_of(
    template: Template | None, templates: Sequence[Template], state: FormState
) -> tuple[Field, ...]:
    """Return the visible fields of a form, then the template's own parameters.

    ``templates`` are the bundled ones.
    """
    first, *rest = FIELDS
    options = {bundled.name: bundled.title for bundled in templates}
    hidden = {name for fields in SIZE_FIELDS.values() for name in fields}
    hidden -= set(SIZE_FIELDS[state.shape])
    if not state.has_gate:
        hidden |= set(GATE_FIELDS)
    if state.shape not in GATED_SHAPES:
        hidden.add("gate")
    if not state.pins_gpus:
        hidden.add("gpu_models")
    parameters = [
        Field(
            f"values.{parameter.name}",
            parameter.name,
            parameter.help or "A parameter of the template.",
            "needed" if parameter.required else "",
        )
        for parameter in (template.parameters if template is not None else ())
    ]
    visible = (field for field in rest if field.name not in hidden)
    return (replace(first, options=options), *visible, *parameters)


# --- the state ----------------------------------------------------------------------------------


class FormState(Struct, frozen=True):
    """State of the form: the texts by field name."""

    texts: Mapping[str, str] = {}

    @classmethod
    def from_request(cls, request: Request) -> FormState:
        """Build the form state of a request."""
        parameter_texts = {f"values.{name}": value for name, value in request.values.items()}
        memory = request.gpu_memory_mb
        evaluation, rules = request.evaluation, request.gate or StopRules()
        return cls(
            {
                "template": request.template,
                "directory": str(request.directory),
                "name": request.name,
                "shape": request.shape.value,
                "runs": str(request.runs),
                "sweep": _sweep_text(request.sweep),
                "how": (request.sweep and request.sweep.mode) or AUTO,
                "epochs": str(request.epochs),
                "stages": ", ".join(f"{stage.name} {stage.epochs}" for stage in request.stages),
                "shards": str(request.shards or SHARDS),
                "gather": NO if request.gather is None else YES,
                "machines": str(max(2, request.machines)),
                "evaluation.every": "" if evaluation is None else str(evaluation.every),
                "gate": NO if request.gate is None else YES,
                "gate.patience": _or_empty(rules.patience),
                "gate.divergence": _or_empty(rules.divergence),
                "gate.median_after": _or_empty(rules.median_after),
                "seeds": ", ".join(map(str, request.seeds)),
                "sites": ", ".join(request.sites),
                "policy": request.policy.value,
                "gpu_models": ", ".join(request.gpu_models),
                "gpus": str(request.gpus),
                "gpu_memory_mb": "" if memory is None else str(memory),
                "memory_mb": str(request.memory_mb),
                "retries": str(request.retries),
                **parameter_texts,
            }
        )

    @property
    def shape(self) -> EnsembleShape:
        """The chosen shape; a chain if the text is none."""
        text = self.texts.get("shape", "")
        return EnsembleShape(text) if text in SHAPES else EnsembleShape.CHAIN

    @property
    def has_gate(self) -> bool:
        """Whether its runs have a gate."""
        return self.shape in GATED_SHAPES and self.texts.get("gate") == YES

    @property
    def pins_gpus(self) -> bool:
        """Whether its runs are pinned to GPU models."""
        return self.texts.get("policy") == Policy.GPU_PIN

    def text(self, name: str, template: Template | None = None) -> str:
        """Return the text of a field, or the default of a template parameter."""
        if name in self.texts:
            return self.texts[name]
        parameters = template.parameters if template is not None else ()
        return next(
            (parameter.default for parameter in parameters if f"values.{parameter.name}" == name),
            "",
        )

    def with_text(self, name: str, text: str) -> FormState:
        """Return a copy with another text in one field."""
        return FormState({**self.texts, name: text})


def _or_empty(number: float | None) -> str:
    return "" if number is None else f"{number:g}"


def _sweep_text(sweep: SweepRequest | None) -> str:
    if sweep is None:
        return ""
    return "; ".join(
        f"{variable.name} = {', '.join(variable.values)}" for variable in sweep.variables
    )


def first_template(templates: Sequence[Template], shape: EnsembleShape) -> str:
    """Return the first template for a shape's jobs; "" if there is none."""
    role = NodeRole.SHARD if shape is EnsembleShape.BAG else NodeRole.TRAIN
    candidates = [template for template in templates if template.role is role]
    if shape is EnsembleShape.MULTI_NODE:
        several = [each for each in candidates if "machines" in used_placeholders(each)]
        candidates = several or candidates
    return candidates[0].name if candidates else ""


def new_directory(parent: Path) -> Path:
    """Return an unused path below ``parent``: ``ensemble``, ``ensemble-2``…"""
    candidates = (parent / (f"ensemble-{n}" if n > 1 else "ensemble") for n in range(1, 1000))
    return next((path for path in candidates if not path.exists()), parent / "ensemble")


def parse_form(
    state: FormState, template: Template | None
) -> tuple[Request, tuple[RequestProblem, ...]]:
    """Parse the form into a request and the problems of unreadable fields.

    A field that cannot be read has its default in the request.
    """
    problems: list[RequestProblem] = []
    values: dict[str, Any] = {"directory": Path()}
    for field in fields_of(None, (), state):
        try:
            values[field.name] = field.read(state.text(field.name).strip())
        except (PlanError, ValueError) as error:
            problems.append(RequestProblem(field.name, str(error)))
            if field.name in NUMBERS_OF_SHAPES:
                values[field.name] = NUMBERS_OF_SHAPES[field.name]
    mode, variables = values.pop("how", None), values.pop("sweep", None)
    if variables is not None:
        values["sweep"] = SweepRequest("run", variables, mode)
    interval = values.pop("evaluation.every", None)
    if interval is not None:
        values["evaluation"] = Evaluation(every=interval)
    rules = {name.removeprefix("gate."): values.pop(name, None) for name in GATE_FIELDS}
    values["gate"] = StopRules(**rules) if state.has_gate else None
    parameters = template.parameters if template is not None else ()
    texts = {each: state.text(f"values.{each.name}", template) for each in parameters}
    # Values equal to the template's default are omitted.
    changed = {each.name: text for each, text in texts.items() if text != each.default}
    return Request(**values, values=changed), tuple(problems)
