"""Model of the submit form: field definitions, form state, and its request.

Pure functions and plain data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, field
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

FIELD_ALIASES: Final[Mapping[str, str]] = {
    "evaluation": "evaluation.every",
    "evaluation.template": "evaluation.every",
    "evaluation.values": "evaluation.every",
    "gate.poll": "gate",
    "gate.metric": "gate",
    "gate.min_delta": "gate",
}
"""Form field that shows a problem of a request field without a form field."""


class Field(Struct, frozen=True):
    """A form field; ``name`` is the field name of a :class:`RequestProblem`.

    ``options`` are suggested values; with ``options_only`` no others are allowed.
    """

    name: str
    label: str
    help: str
    unit: str = ""
    options: tuple[str, ...] = ()
    options_only: bool = False


FIELDS: Final = (
    Field(
        "template",
        "Template",
        "The job that trains one epoch. Left and right go through those that come along, enter "
        "lists them; or type the path of a file of your own.",
    ),
    Field(
        "directory",
        "Directory",
        "A new directory for the DAG, its logs and what the jobs send back. Files that lie there "
        "already are never replaced without being named and asked about.",
    ),
    Field("name", "DAG name", "The DAG file gets this name.", ".dag"),
    Field(
        "shape",
        "Shape",
        "How the nodes hang together. chain: each run a chain of its epochs; sweep: a chain for "
        "every combination of values; stages: one chain after the other in each run; bag: shards "
        "that need nothing of each other; multi-node: several machines train an epoch together.",
        options=tuple(SHAPES),
        options_only=True,
    ),
    Field("runs", "Runs", "How many models are trained, each on its own.", "runs"),
    Field(
        "sweep",
        "Sweep",
        "What differs from run to run: a = 0.01 to 0.1 by 0.01; b = 1, 2, 4. A template's "
        "parameter of that name takes the values; else the jobs have them as $(a).",
    ),
    Field(
        "how",
        "Together",
        "How the values of several variables go together. product: every value of one with every "
        "value of the others; zip: first with first; auto: zip, where there are equally many.",
        options=tuple(SWEEP_MODES),
        options_only=True,
    ),
    Field(
        "epochs",
        "Epochs",
        "How many epochs each run is trained for; every epoch is a job of its own.",
        "per run",
    ),
    Field(
        "stages",
        "Stages",
        "One after the other in every run, each with its epochs: pretrain 5, finetune 3. A stage "
        "begins with the checkpoint of the one before.",
    ),
    Field("shards", "Shards", "Into how many jobs the work is cut.", "jobs"),
    Field(
        "gather",
        "Gather",
        "A node at the end that puts together what the shards made.",
        options=(YES, NO),
        options_only=True,
    ),
    Field("machines", "Machines", "How many train an epoch together, at the same time.", "per job"),
    Field(
        "seeds",
        "Seeds",
        "One for each run: 7, 11, 13 or 1-4. Empty: 1, 2, 3 and so on. In a sweep each point is "
        "trained once with each of them; empty: once.",
    ),
    Field(
        "evaluation.every",
        "Evaluate",
        "A side node after every so many epochs, which the next epoch does not wait for; if it "
        "fails, nothing else does. Empty: none.",
        "epochs",
    ),
    Field(
        "sites",
        "Sites",
        "Where jobs may run, as GLIDEIN_ResourceName, with commas between. enter lists those that "
        "the collector knows now. Empty: anywhere.",
    ),
    Field(
        "policy",
        "Policy",
        "Which epoch may run at which site. any: every epoch at any of them; permute: each site "
        "once before one repeats, in an order of each run's own; pin: a run stays at one site; "
        "gpu-pin: a run stays on one GPU model, at any of the sites.",
        options=tuple(POLICIES),
        options_only=True,
    ),
    Field(
        "gpu_models",
        "GPU models",
        "DeviceNames such as NVIDIA A40, with commas between: runs take them in turn. enter lists "
        "those that the collector knows now.",
    ),
    Field("gpus", "GPUs", "How many GPUs each job asks for; 0 is none.", "per job"),
    Field(
        "gpu_memory_mb",
        "GPU memory",
        "The least memory that each GPU must have: 40000, or 40 GB. Empty: any.",
        "MB",
    ),
    Field("memory_mb", "Memory", "What each job asks for: 4096, or 4 GB.", "MB"),
    Field("retries", "Retries", "How often DAGMan tries an epoch again that failed.", "times"),
    Field(
        "gate",
        "Steer",
        "yes: a script before each epoch lets a run be stopped, paused, or sent elsewhere while "
        "the DAG goes on, and stops it by the rules below. Its later epochs are skipped; the DAG "
        "does not fail.",
        options=(YES, NO),
        options_only=True,
    ),
    Field(
        "gate.patience",
        "Patience",
        "Stop a run after so many epochs without a better val_loss. Empty: never.",
        "epochs",
    ),
    Field(
        "gate.divergence",
        "Divergence",
        "Stop a run whose val_loss is no number, or above so many times its best. Empty: never.",
        "times",
    ),
    Field(
        "gate.median_after",
        "Median",
        "From so many finished epochs on, stop a run whose val_loss is worse than the median of "
        "all runs at the same epoch. Empty: never.",
        "epochs",
    ),
)
"""Fields common to all templates, in form order."""

LABELS: Final = {field.name: field.label for field in FIELDS}


def fields_of(
    template: Template | None, names: Sequence[str], state: FormState
) -> tuple[Field, ...]:
    """Return the visible fields of a form, then the template's own parameters.

    ``names`` are the names of the bundled templates.
    """
    first, *rest = FIELDS
    template_field = Field(first.name, first.label, first.help, options=tuple(names))
    amounts = {name for fields in SIZE_FIELDS.values() for name in fields}
    absent = amounts - set(SIZE_FIELDS[state.shape])
    if state.shape not in GATED_SHAPES:
        absent |= {"gate", *GATE_FIELDS}
    elif not state.has_gate:
        absent |= set(GATE_FIELDS)
    if not state.pins_gpus:
        absent.add("gpu_models")
    parameters = [] if template is None else [
        Field(
            f"values.{field.name}",
            field.name,
            field.help or "A parameter of the template.",
            "needed" if field.required else "",
        )
        for field in template.parameters
    ]  # fmt: skip
    return (template_field, *(field for field in rest if field.name not in absent), *parameters)


class FormState(Struct, frozen=True):
    """State of the form: the texts by field name."""

    texts: Mapping[str, str] = field(default_factory=dict)

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
    placeholder = "machines" if shape is EnsembleShape.MULTI_NODE else ""
    candidates = [template for template in templates if template.role is role]
    matching = (
        [template for template in candidates if placeholder in used_placeholders(template)]
        if placeholder
        else candidates
    )
    return next((template.name for template in matching or candidates), "")


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
    defaults = Request("", Path())

    def whole(name: str, default: int) -> int:
        try:
            return int(state.text(name).strip())
        except ValueError:
            problems.append(
                RequestProblem(name, "a whole number is needed, such as " + str(default))
            )
            return default

    def memory(name: str, default: int | None) -> int | None:
        text = state.text(name).strip()
        if not text and name == "gpu_memory_mb":
            return None
        size = parse_megabytes(text)
        if size is None:
            problems.append(RequestProblem(name, "a size in MB is needed, such as 4096 or 4 GB"))
        return default if size is None else size

    def seeds() -> tuple[int, ...]:
        try:
            return parse_seeds(state.text("seeds"))
        except ValueError as error:
            problems.append(RequestProblem("seeds", str(error)))
            return ()

    def directory() -> Path:
        text = state.text("directory").strip()
        try:
            if not text:
                raise ValueError("a directory is needed: a name that nothing has yet")
            return Path(text).expanduser().absolute()
        except (ValueError, RuntimeError, OSError) as error:
            problems.append(RequestProblem("directory", str(error)))
            return Path()

    def number(name: str, example: str) -> float | None:
        text = state.text(name).strip()
        try:
            return float(text) if text else None
        except ValueError:
            problems.append(
                RequestProblem(name, f"a number is needed, such as {example}, or nothing")
            )
            return None

    def optional(name: str) -> int | None:
        return whole(name, 1) if state.text(name).strip() else None

    parameters = template.parameters if template is not None else ()
    values = {
        parameter.name: state.text(f"values.{parameter.name}", template) for parameter in parameters
    }
    shape = state.shape
    field_names = SIZE_FIELDS[shape]
    request = Request(
        template=state.text("template").strip(),
        directory=directory(),
        name=state.text("name").strip(),
        runs=whole("runs", defaults.runs) if "runs" in field_names else defaults.runs,
        epochs=whole("epochs", defaults.epochs) if "epochs" in field_names else defaults.epochs,
        seeds=seeds() if "seeds" in field_names else (),
        sites=parse_sites(state.text("sites")),
        policy=Policy(state.text("policy"))
        if state.text("policy") in POLICIES
        else defaults.policy,
        gpu_models=parse_sites(state.text("gpu_models")) if state.pins_gpus else (),
        gpus=whole("gpus", defaults.gpus),
        gpu_memory_mb=memory("gpu_memory_mb", None),
        memory_mb=memory("memory_mb", defaults.memory_mb) or 0,
        retries=whole("retries", defaults.retries),
        # Values equal to the template's default are omitted.
        values={
            parameter.name: values[parameter.name]
            for parameter in parameters
            if values[parameter.name] != parameter.default
        },
        shape=shape,
        sweep=_sweep(state, problems) if shape is EnsembleShape.SWEEP else None,
        stages=_stages(state, problems) if shape is EnsembleShape.STAGES else (),
        shards=whole("shards", SHARDS) if shape is EnsembleShape.BAG else 0,
        gather=GATHER if shape is EnsembleShape.BAG and state.text("gather") == YES else None,
        machines=whole("machines", 2) if shape is EnsembleShape.MULTI_NODE else 1,
    )
    if "evaluation.every" in field_names and (interval := optional("evaluation.every")) is not None:
        request = replace(request, evaluation=Evaluation(every=interval))
    if state.has_gate:
        rules = StopRules(
            patience=optional("gate.patience"),
            divergence=number("gate.divergence", "3"),
            median_after=optional("gate.median_after"),
        )
        request = replace(request, gate=rules)
    return request, tuple(problems)


_QUOTED: Final = re.compile(r'"[^"]*"')
_EXTRA_VARIABLE: Final = re.compile(r",\s*([A-Za-z_]\w*)\s*=")
"""Matches what looks like another variable behind a comma, not a value."""


def _sweep(state: FormState, problems: list[RequestProblem]) -> SweepRequest | None:
    """Parse ``a = 0.01 to 0.1 by 0.01; b = 1, 2``; None if it is unreadable."""
    from metlmon.authoring.sweeps.values import values

    variables: list[SweptVariable] = []
    for text in filter(str.strip, state.text("sweep").split(";")):
        name, equals, line = (part.strip() for part in text.partition("="))
        if not equals or not name:
            advice = "write it as a = 0.01 to 0.1 by 0.01; b = 1, 2, 4"
            problems.append(RequestProblem("sweep", f"{text.strip()!r}: {advice}"))
            return None
        if extra := _EXTRA_VARIABLE.search(_QUOTED.sub("", line)):
            advice = "put ';' before a further variable, or the value into quotes"
            problems.append(
                RequestProblem("sweep", f"{extra[1]}= among the values of {name}; {advice}")
            )
            return None
        try:
            variables.append(SweptVariable(name, values(line, name), ""))
        except PlanError as error:
            problems.append(RequestProblem("sweep", str(error)))
            return None
    if not variables:
        problems.append(RequestProblem("sweep", "nothing is swept; write a = 0.01 to 0.1 by 0.01"))
        return None
    mode = state.text("how")
    return SweepRequest(
        "run", tuple(variables), SweepMode(mode) if mode in set(SweepMode) else None
    )


def _stages(state: FormState, problems: list[RequestProblem]) -> tuple[StageRequest, ...]:
    """Parse ``pretrain 5, finetune 3``; empty if it is unreadable."""
    stages: list[StageRequest] = []
    for text in filter(str.strip, state.text("stages").split(",")):
        name, _, epochs = text.strip().rpartition(" ")
        if not name.strip() or not epochs.isdecimal() or len(epochs) > MOST_DIGITS:
            advice = "write each with its epochs: pretrain 5, finetune 3"
            problems.append(RequestProblem("stages", f"{text.strip()!r}: {advice}"))
            return ()
        stages.append(StageRequest(name.strip(), int(epochs)))
    if not stages:
        problems.append(RequestProblem("stages", "no stage is named; write pretrain 5, finetune 3"))
    return tuple(stages)
