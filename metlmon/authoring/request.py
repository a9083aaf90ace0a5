"""Request and plan types: what the user requests, and what would be written.

The fields of a request that users set are in one table for all ways of setting them: a description,
the options of a command, the form, and the parameters and the configuration of an MLflow project
are read by the readers of these fields; :func:`with_fields` makes the request. The reader of a
field takes a value of TOML or a text, and raises ValueError with a text that begins with "must be",
to follow the key, the option or the label.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.graph import MAX_NODES, Graph, NodeRole
from metlmon.errors import InputError, nearest
from metlmon.redact import redact_job_text, redact_secrets

LONGEST_VALUE: Final = 4096
"""Maximum characters of a value; no path is longer."""

MAX_VALUES: Final = 100_000
"""Maximum values of a swept variable, and maximum runs: as many as a DAG may have nodes."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")


class Policy(StrEnum):
    """Which epoch may run at which site, or on which GPU model."""

    ANY = "any"
    """Every epoch may run at any of the sites; at any site at all if none is named."""
    PERMUTE = "permute"
    """Each site once before one repeats, in a separate order for each run."""
    PIN = "pin"
    """Each run stays at one site; the sites are assigned to the runs in turn."""
    GPU_PIN = "gpu-pin"
    """Each run stays on one GPU model, at any site; models are assigned in turn."""


class EnsembleShape(StrEnum):
    """The structure of the DAG."""

    CHAIN = "chain"
    """Each run is a chain of its epochs, one job per epoch ("shish-kebab")."""
    SWEEP = "sweep"
    """One chain per combination of swept values."""
    STAGES = "stages"
    """Several chains in sequence per run: pretrain, then finetune from its checkpoint."""
    BAG = "bag"
    """Independent shards (throughput inference)."""
    MULTI_NODE = "multi-node"
    """Several machines train an epoch together, after a PROVISIONER node."""


GATED_SHAPES: Final = frozenset({EnsembleShape.CHAIN, EnsembleShape.SWEEP, EnsembleShape.STAGES})
"""Shapes whose runs can be stopped and paused one by one; these have a gate by default."""


class SweepMode(StrEnum):
    """How the values of several swept variables are combined."""

    ZIP = "zip"
    """The first value of each variable, then the second of each."""
    PRODUCT = "product"
    """Every combination of values; the last variable changes fastest."""


class SweptVariable(Struct, frozen=True):
    """A variable that differs between runs.

    ``values``: as printed; ``where``: file and line, or the option, that defines them.
    """

    name: str
    values: tuple[str, ...]
    where: str


class SweepRequest(Struct, frozen=True):
    """A sweep over one or more variables.

    ``group``: prefix of the runs' names, followed by a zero-padded index. ``mode`` None: not
    specified; values of equal lengths are then zipped, unequal lengths are an error.
    """

    group: str
    variables: tuple[SweptVariable, ...]
    mode: SweepMode | None = None
    where: str = ""


class Region(Struct, frozen=True):
    """Additional variables for a subset of the nodes.

    ``epochs``: (first, last) as in node names, from 0, for training and evaluation nodes alike;
    None: all epochs. ``runs``: names of runs; empty: all runs.
    """

    name: str
    variables: Mapping[str, str]
    epochs: tuple[int, int] | None = None
    runs: tuple[str, ...] = ()
    where: str = ""


class Evaluation(Struct, frozen=True):
    """A side node after every ``every``-th training node.

    ``template``: as in :class:`Request`. ``gates``: the next epoch waits for the evaluation, and
    its failure fails the run. By default nothing waits for it, and its failure fails nothing.
    """

    template: str = "evaluate"
    every: int = 1
    gates: bool = False
    values: Mapping[str, str] = {}


class MetricGoal(StrEnum):
    """Whether a metric is minimised or maximised."""

    MIN = "min"
    MAX = "max"


class StopRules(Struct, frozen=True):
    """Rules by which the gate stops a run, based on ``metric`` of each finished epoch.

    A rule that is None is off.

    - ``goal``: whether the metric is minimised or maximised; None: derived from its name.
    - ``patience``: stop after this many epochs without an improvement of more than ``min_delta``.
    - ``divergence``: stop at NaN, or above this multiple of the best value (for a metric that is
      maximised: below the best value divided by this).
    - ``median_after``: stop if the value is worse than the median of all runs that have a value at
      the same epoch; applied once this run and at least two others have this many finished epochs.
    - ``poll``: seconds between the checks of a paused node.
    """

    metric: str = "val_loss"
    goal: MetricGoal | None = None
    patience: int | None = None
    min_delta: float = 0.0
    divergence: float | None = None
    median_after: int | None = None
    poll: int = 60


class StageRequest(Struct, frozen=True):
    """One stage of every run.

    ``template`` None: the template of the request. ``values`` take precedence over those of the
    request. ``epochs``: number of epochs in this stage.
    """

    name: str
    epochs: int
    template: str | None = None
    values: Mapping[str, str] = {}


class Request(Struct, frozen=True):
    """The ensemble to write.

    - ``template``: name of a bundled template, or path of a template file.
    - ``name``: of the DAG file, without ``.dag``.
    - ``seeds``: one per run; empty: 1, 2, 3… In a sweep, every point is trained with each of them.
    - ``memory_mb``, ``gpu_memory_mb`` (minimum memory of a GPU): in MB.
    - ``gpu_models``: DeviceNames, for the policy ``gpu-pin``.
    - ``values``: those of the template's parameters.
    - ``sweep`` (shape ``sweep``): determines the number of runs; ``seeds`` with one value is shared
      by all runs. A swept variable with the name of a template parameter replaces that parameter.
    - ``stages``, ``shards``, ``machines``: for the shapes ``stages``, ``bag`` and ``multi-node``.
    - ``gather``: template of a node that runs after all shards of a bag.
    - ``variables``: VARS of every node, in addition to metlmon's; ``regions``: VARS of some nodes.
    - ``gate``: rules of the gate, with which a run can be stopped, paused and moved to another site
      while the DAG runs; None: no gate.
    - ``source``: a sweep file (``GEN SUBDAG``) that defines the whole DAG.
    - ``subdags``: one external sub-DAG per run instead of flat nodes.
    - ``mlproject``: also write an MLflow project (:mod:`metlmon.authoring.mlproject`).
    """

    template: str
    directory: Path
    name: str = "ensemble"
    runs: int = 4
    epochs: int = 3
    seeds: tuple[int, ...] = ()
    sites: tuple[str, ...] = ()
    policy: Policy = Policy.ANY
    gpus: int = 1
    gpu_memory_mb: int | None = None
    gpu_models: tuple[str, ...] = ()
    memory_mb: int = 1024
    retries: int = 3
    values: Mapping[str, str] = {}
    shape: EnsembleShape = EnsembleShape.CHAIN
    sweep: SweepRequest | None = None
    stages: tuple[StageRequest, ...] = ()
    shards: int = 0
    machines: int = 1
    evaluation: Evaluation | None = None
    gate: StopRules | None = None
    variables: Mapping[str, str] = {}
    regions: tuple[Region, ...] = ()
    source: Path | None = None
    subdags: bool = False
    gather: str | None = None
    mlproject: bool = False


class Constraint(Struct, frozen=True):
    """The values that a parameter or a field may have.

    One of ``words``; if empty, a number from ``low`` to ``high`` (``whole``: without a fraction).
    ``noun``: what the number counts.
    """

    noun: str = ""
    low: float = -math.inf
    high: float = math.inf
    whole: bool = False
    words: tuple[str, ...] = ()

    def expectation(self, value: str) -> str | None:
        """What the value should be instead, as text; None if it is valid."""
        if self.words:
            return None if value in self.words else f"one of {', '.join(self.words)}"
        expected = f"a {'whole ' if self.whole else ''}number{self._range_text()}"
        try:
            number = float(value)
        except ValueError:
            return expected
        fits = self.low <= number <= self.high and math.isfinite(number)
        if self.whole and not _WHOLE.fullmatch(value.strip()):
            fits = False
        return None if fits else expected

    def _range_text(self) -> str:
        if math.isinf(self.low) and math.isinf(self.high):
            return ""
        if math.isinf(self.high):
            return f" from {self.low:.10g} on"
        if math.isinf(self.low):
            return f" up to {self.high:.10g}"
        return f" from {self.low:.10g} to {self.high:.10g}"


class Parameter(Struct, frozen=True):
    """A parameter of a template.

    ``required``: no default is usable. ``allowed``: constraint on the values, if the template has
    one.
    """

    json_omits: ClassVar = frozenset({"allowed"})

    name: str
    default: str
    help: str
    required: bool = False
    allowed: Constraint | None = None


class Template(Struct, frozen=True):
    """A submit description with parameters, for jobs of one ``role``.

    ``shipped_files``: (name beside the DAG, content, executable) of the files that come with it.
    ``first_line``: number of the first line of ``text`` in its file, not counting comments at the
    top.
    """

    json_omits: ClassVar = frozenset({"text", "shipped_files", "first_line"})
    json_properties: ClassVar = ("ships",)

    name: str
    title: str
    about: str
    text: str
    parameters: tuple[Parameter, ...]
    shipped_files: tuple[tuple[str, bytes, bool], ...] = ()
    path: Path | None = None
    role: NodeRole = NodeRole.TRAIN
    first_line: int = 1

    @property
    def ships(self) -> tuple[str, ...]:
        """Names of the files that come with it."""
        return tuple(name for name, *_ in self.shipped_files)


class RequestProblem(Struct, frozen=True):
    """A problem with one field of a request.

    ``field``: its name in :class:`Request`, or ``values.<parameter>``, ``evaluation.every``,
    ``stages.<name>.epochs`` and the like. ``text``: a sentence that includes the remedy. ``fatal``
    False: a warning; the request can still be written.
    """

    field: str
    text: str
    fatal: bool = True


class PlannedFile(Struct, frozen=True):
    """A file to write. ``exists``: the path already exists."""

    json_omits: ClassVar = frozenset({"data"})
    json_properties: ClassVar = ("size", "text")

    name: str
    data: bytes
    executable: bool
    about: str
    exists: bool = False

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data)

    @property
    def text(self) -> str:
        """The text without secrets; bytes that are not text are escaped."""
        text = self.data.decode("utf-8", "backslashreplace")
        is_job_text = self.name.endswith((".dag", ".sub", ".template"))
        return redact_job_text(text) if is_job_text else redact_secrets(text)


class RunPlan(Struct, frozen=True):
    """A run of the plan.

    ``uuid``: the same for the same parameters. ``targets``: the site of each epoch ("any": any
    site). ``gpu``: the GPU model of the run; None: any. ``point``: its swept values by name, each
    with its variable.
    """

    json_omits: ClassVar = frozenset({"point"})

    name: str
    uuid: str
    seed: int
    targets: tuple[str, ...]
    gpu: str | None = None
    point: Mapping[str, tuple[str, SweptVariable]] = {}


class Plan(Struct, frozen=True):
    """The files to write, and the numbers of nodes and jobs.

    ``graph``: the nodes of the DAG file.
    """

    json_omits: ClassVar = frozenset({"request", "graph"})
    json_properties: ClassVar = ("directory", "template")

    request: Request
    dag_file: str
    files: tuple[PlannedFile, ...]
    runs: tuple[RunPlan, ...]
    nodes: int
    jobs: int
    graph: Graph

    @property
    def directory(self) -> Path:
        return self.request.directory

    @property
    def template(self) -> str:
        """The name of the template of its jobs."""
        return self.request.template

    @property
    def existing_files(self) -> tuple[str, ...]:
        """Names of planned files that already exist."""
        return tuple(file.name for file in self.files if file.exists)


class PlanError(InputError):
    """The request cannot be planned or written."""


# --- the fields that users set -------------------------------------------------------------


MAX_ITEMS: Final = 10_000
"""Maximum items of a list; more runs than a DAG may have."""

_SIZE: Final = re.compile(r"([0-9]{1,15}) ?(?:([kmgt])i?b?)?", re.IGNORECASE)
_KB: Final = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3}
_RANGE: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


class NumberLiteral(float):
    """A number that keeps its spelling, so that a swept 0.10 stays 0.10."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text.replace("_", "")  # TOML allows 1_000.


def scalar_text(value: object) -> str | None:
    """A TOML string, number or boolean as text, numbers as spelled; else None."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case NumberLiteral():
            return value.text
        case int():
            return str(value)
    return None


# --- readers: each raises ValueError ----------------------------------------------------------


def read_whole(value: object) -> int:
    """A whole number."""
    if type(value) is int:
        return value
    if not isinstance(value, str) or not _WHOLE.fullmatch(value.strip()):
        raise ValueError("must be a whole number, such as 4")
    return int(value)


def read_number(value: object) -> float:
    """Any number."""
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise ValueError("must be a number, such as 0.01")


def read_flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def read_text(value: object) -> str:
    """A text of at most LONGEST_VALUE characters."""
    if isinstance(value, str) and len(value) <= LONGEST_VALUE:
        return value
    length_limit = f" of at most {LONGEST_VALUE} characters" if isinstance(value, str) else ""
    raise ValueError(f"must be a text in quotes{length_limit}")


def read_size(value: object) -> int:
    """``4096``, ``4096 MB``, ``4 GB`` or ``4g`` in MB (of 1024 kB), rounded up."""
    text = None if isinstance(value, bool) else scalar_text(value)
    match = _SIZE.fullmatch(text.strip()) if text is not None else None
    if match is None:
        raise ValueError('must be a size: 4096 (MB), or "4 GB"')
    return -(-int(match[1]) * _KB[(match[2] or "m").lower()] // 1024)


def read_seeds(value: object) -> tuple[int, ...]:
    """``7, 11, 13`` or ``1-4``, or a list of numbers."""
    if isinstance(value, list) and all(type(seed) is int for seed in value):
        return tuple(value)
    if not isinstance(value, str):
        raise ValueError('must be a list of whole numbers, [7, 11, 13], or "1-4"')
    seeds: list[int] = []
    for item in filter(None, re.split(r"[,\s]+", value.strip())):
        if match := _RANGE.fullmatch(item):
            first, last = int(match[1]), int(match[2])
            if not 0 <= last - first < MAX_VALUES:
                raise ValueError("must be ranges from the smaller seed to the larger, as 1-4")
            seeds.extend(range(first, last + 1))
        elif _WHOLE.fullmatch(item):
            seeds.append(int(item))
        else:
            raise ValueError("must be whole numbers, such as 7, 11, 13 or 1-4")
    return tuple(seeds)


def read_texts(value: object) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError('must be a list of texts, ["…", "…"]')
    if len(value) > MAX_ITEMS or any(len(item) > LONGEST_VALUE for item in value):
        raise ValueError(f"must be a list of at most {MAX_ITEMS} short texts")
    return tuple(value)


def read_names(value: object) -> tuple[str, ...]:
    """A list of names, or names separated by commas, then without duplicates."""
    if not isinstance(value, str):
        return read_texts(value)
    names = (name.strip() for name in value.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def one_of(kinds: type[StrEnum]) -> Callable[[object], Any]:
    """The reader of a word."""
    choices = [str(kind) for kind in kinds]

    def read(value: object) -> StrEnum:
        if isinstance(value, str) and value in choices:
            return kinds(value)
        similar = nearest(value, choices) if isinstance(value, str) else None
        suggestion = f"; did you mean {similar!r}?" if similar else ""
        raise ValueError(f"must be one of {', '.join(choices)}{suggestion}")

    return read


# --- the table --------------------------------------------------------------------------------


_TOML_TABLES: Final = {"stages": "stage", "regions": "region", "gate": "stop"}
"""Tables of a description whose names differ from the fields of a request."""


def _toml_key(name: str) -> str:
    table, dot, rest = name.partition(".")
    return _TOML_TABLES.get(table, table) + dot + rest


class FormText(NamedTuple):
    """What the form shows of a field; without a label it does not show the field.

    ``empty``: what an empty field means.
    """

    label: str = ""
    help: str = ""
    unit: str = ""
    empty: str = ""


class RequestField(Struct, frozen=True):
    """A field that users set.

    - ``name``: in :class:`Request`; after a dot: in its evaluation or its gate.
    - ``read``: see above; ``choices``: the possible words, with their meanings.
    - ``comment``: after its value in a description; ``hint``: a value to show there as a comment
      if it is not set; ``optional``: written only if it differs from the default.
    - ``shapes``: those of ensembles on which it has an effect; ``is_site``: whether it says where
      jobs run and what they request, not what is trained.
    - ``usage``: help of its option, if that differs; ``metavar``: its value there.
    - ``toml``, ``flag``: its key and its option, if they differ; without an option ``flag`` is "".
    """

    name: str
    read: Callable[[Any], Any]
    comment: str = ""
    form: FormText = FormText()
    limits: Constraint | None = None
    choices: Mapping[str, str] = {}
    shapes: Collection[EnsembleShape] = tuple(EnsembleShape)
    is_site: bool = False
    hint: str = ""
    optional: bool = False
    usage: str = ""
    metavar: str = "N"
    toml: str = ""
    flag: str | None = None

    @property
    def key(self) -> str:
        """Its key in a description; after a dot: in a table of it."""
        return self.toml or _toml_key(self.name)

    @property
    def option(self) -> str:
        """Its option of commands, without ``--``; "" without one."""
        return self.key.rpartition(".")[2].replace("_", "-") if self.flag is None else self.flag

    def problem_of(self, value: float) -> str | None:
        """Why the number is outside of the limits, with the remedy; None if it is inside."""
        if self.limits is None:
            return None
        expected = self.limits.expectation(str(value))
        return None if expected is None else f"{value} {self.limits.noun}: give {expected}"


SHAPES: Final[Mapping[str, str]] = {
    EnsembleShape.CHAIN.value: "each run a chain of its epochs",
    EnsembleShape.SWEEP.value: "a run for every combination of values",
    EnsembleShape.STAGES.value: "pretrain, then finetune from its checkpoint",
    EnsembleShape.BAG.value: "independent shards",
    EnsembleShape.MULTI_NODE.value: "several machines train an epoch together",
}
POLICIES: Final[Mapping[str, str]] = {
    Policy.ANY.value: "every epoch at any of the sites",
    Policy.PERMUTE.value: "each site once before one repeats",
    Policy.PIN.value: "a run stays at one site",
    Policy.GPU_PIN.value: "a run stays on one GPU model",
}

_OF_RUNS: Final = frozenset(EnsembleShape) - {EnsembleShape.BAG}

_TABLE: Final = (
    RequestField(
        "template",
        read_text,
        "a bundled template, or a submit description beside this file",
        FormText(
            "Template",
            "The job that trains one epoch. Left and right: the next bundled template; enter: a "
            "list of them; or type the path of your own.",
        ),
        usage="one of submit --list-templates, or a submit description",
        metavar="T",
    ),
    RequestField(
        "name",
        read_text,
        "name of the DAG file, without .dag",
        FormText("DAG name", "The DAG file gets this name.", ".dag"),
        metavar="NAME",
    ),
    RequestField(
        "shape",
        one_of(EnsembleShape),
        "one of " + ", ".join(EnsembleShape),
        FormText("Shape", "How the nodes depend on each other."),
        choices=SHAPES,
    ),
    RequestField(
        "runs",
        read_whole,
        "models to train",
        FormText("Runs", "How many models are trained, each on its own.", "runs"),
        Constraint("runs", 1, 500),
        shapes=_OF_RUNS - {EnsembleShape.SWEEP},
    ),
    RequestField(
        "epochs",
        read_whole,
        "epochs of each run, one job each",
        FormText(
            "Epochs",
            "How many epochs each run is trained for; every epoch is a job of its own.",
            "per run",
        ),
        Constraint("epochs of a run", 1, 10_000),
        shapes=_OF_RUNS - {EnsembleShape.STAGES},
    ),
    RequestField(
        "shards",
        read_whole,
        "independent jobs",
        FormText("Shards", "How many jobs the work is divided into.", "jobs"),
        Constraint("shards", 1, MAX_NODES),
        shapes={EnsembleShape.BAG},
        toml="bag.shards",
    ),
    RequestField(
        "gather",
        read_text,
        "template of a node after all shards",
        shapes={EnsembleShape.BAG},
        optional=True,
        toml="bag.gather",
        flag="",
    ),
    RequestField(
        "machines",
        read_whole,
        "machines that train an epoch together",
        FormText("Machines", "How many machines train an epoch together.", "per job"),
        Constraint("machines for an epoch", 2, 64),  # More are seldom free at the same time.
        shapes={EnsembleShape.MULTI_NODE},
        toml="multi-node.machines",
    ),
    RequestField(
        "seeds",
        read_seeds,
        "one for each run; 1, 2, 3, … if not given",
        FormText(
            "Seeds",
            "One for each run: 7, 11, 13 or 1-4. Empty: 1, 2, 3 and so on. In a sweep each point "
            "is trained once with each of them; empty: once.",
            empty="1, 2, 3 and so on",
        ),
        shapes=_OF_RUNS,
        hint='"1-4"',
        metavar="LIST",
    ),
    RequestField(
        "evaluation.template",
        read_text,
        usage="evaluate checkpoints with this template (default: evaluate)",
        metavar="T",
        flag="evaluate",
    ),
    RequestField(
        "evaluation.every",
        read_whole,
        "after every Nth epoch",
        FormText(
            "Evaluate",
            "A side node after every Nth epoch, which the next epoch does not wait for; if it "
            "fails, nothing else does. Empty: none.",
            "epochs",
            empty="none",
        ),
        Constraint("epochs", 1, math.inf),
        shapes=_OF_RUNS,
        usage="evaluate after every Nth epoch",
    ),
    RequestField(
        "evaluation.gates",
        read_flag,
        "whether the next epoch waits for it, and fails with it",
        flag="",
    ),
    RequestField(
        "sites",
        read_names,
        "values of GLIDEIN_ResourceName; anywhere if not given",
        FormText(
            "Sites",
            "Where jobs may run, as GLIDEIN_ResourceName, with commas between. enter lists those "
            "that the collector knows now. Empty: anywhere.",
            empty="anywhere",
        ),
        is_site=True,
        hint='["A", "B"]',
        metavar="A,B",
    ),
    RequestField(
        "policy",
        one_of(Policy),
        "any; permute: each site once, then again; pin: one a run; gpu-pin",
        FormText("Policy", "Which epoch may run at which site."),
        choices=POLICIES,
        is_site=True,
    ),
    RequestField(
        "gpus",
        read_whole,
        "GPUs of each job",
        FormText("GPUs", "How many GPUs each job asks for; 0 is none.", "per job"),
        Constraint("GPUs of a job", 0, 64),
        is_site=True,
    ),
    RequestField(
        "gpu_memory_mb",
        read_size,
        "minimum memory of each GPU, MB",
        FormText(
            "GPU memory",
            "The minimum memory of each GPU: 40000, or 40 GB. Empty: any.",
            "MB",
            empty="any",
        ),
        Constraint("MB of a GPU", 1, 1 << 20),
        is_site=True,
        hint='"40 GB"',
        usage="the minimum memory of each GPU",
        metavar="MB",
        toml="gpu_memory",
    ),
    RequestField(
        "gpu_models",
        read_names,
        form=FormText(
            "GPU models",
            "DeviceNames such as NVIDIA A40, with commas between: runs take them in turn. enter "
            "lists those that the collector knows now.",
        ),
        is_site=True,
        optional=True,
        usage="DeviceNames such as 'NVIDIA A40': runs take them in turn (with --policy gpu-pin)",
        metavar="A,B",
    ),
    RequestField(
        "memory_mb",
        read_size,
        'MB of each job, or a text such as "4 GB"',
        FormText("Memory", "What each job asks for: 4096, or 4 GB.", "MB"),
        Constraint("MB of memory", 16, 16 << 20),
        is_site=True,
        metavar="MB",
        toml="memory",
    ),
    RequestField(
        "retries",
        read_whole,
        "retries of each node",
        FormText("Retries", "How often DAGMan tries an epoch again that failed.", "times"),
        Constraint("retries", 0, 100),
        is_site=True,
    ),
    RequestField("subdags", read_flag, "each run in a sub-DAG of its own", optional=True),
    RequestField(
        "mlproject", read_flag, "also an MLflow project, for mlflow run . -b metlmon", optional=True
    ),
    RequestField("gate.metric", read_text, "the metric that stops runs", flag=""),
    RequestField(
        "gate.goal",
        one_of(MetricGoal),
        "which of its values are good; min or max by its name if not given",
        hint='"max"',
        flag="",
    ),
    RequestField(
        "gate.patience",
        read_whole,
        "stop after this many epochs without an improvement",
        FormText(
            "Early stopping",
            "Stop a run after this many epochs without a better val_loss. Empty: off.",
            "epochs",
            empty="off",
        ),
        Constraint("epochs", 1, math.inf),
        hint="3",
        flag="stop-patience",
    ),
    RequestField(
        "gate.min_delta",
        read_number,
        "minimum improvement that counts",
        limits=Constraint("as the least improvement", 0, math.inf),
        flag="",
    ),
    RequestField(
        "gate.divergence",
        read_number,
        "stop at NaN, or above this many times the best value",
        FormText(
            "Divergence",
            "Stop a run whose val_loss is not a number, or this many times above its best. "
            "Empty: off.",
            "times",
            empty="off",
        ),
        hint="5.0",
        metavar="X",
        flag="diverge",
    ),
    RequestField(
        "gate.median_after",
        read_whole,
        "stop when worse than the median of the runs, from this many epochs on",
        FormText(
            "Median",
            "From this many finished epochs on, stop a run whose val_loss is worse than the "
            "median of all runs at the same epoch. Empty: off.",
            "epochs",
            empty="off",
        ),
        Constraint("epochs", 1, math.inf),
        hint="3",
    ),
    RequestField(
        "gate.poll",
        read_whole,
        "seconds after which a paused run asks again",
        # DAGMan starts a process for each check of each paused run.
        limits=Constraint("seconds between checks", 5, 86_400),
        flag="",
    ),
)

FIELDS: Final[Mapping[str, RequestField]] = {field.name: field for field in _TABLE}
"""The fields by name, in the order of the form and of ``--help``."""

_DEFAULTS: Final = Request("", Path())


def options() -> Iterator[tuple[str, dict[str, Any]]]:
    """The options of commands that make a request, with the settings of ``add_argument``."""
    for field in FIELDS.values():
        usage = field.usage or field.comment
        settings: dict[str, Any] = {"help": usage, "metavar": field.metavar}
        if field.choices:
            settings = {"help": "; ".join(field.choices.values()), "choices": [*field.choices]}
        elif field.read is read_flag:
            settings = {"help": usage, "action": "store_const", "const": True}
        elif field.name == "evaluation.template":
            settings |= {"nargs": "?", "const": ""}
        default = value_of(_DEFAULTS, field.name)
        if default and default is not True:
            settings["help"] += f" (default: {default})"
        if field.option:
            yield f"--{field.option}", settings


def is_default(request: Request, field: RequestField) -> bool:
    """Whether the request has the default of a field."""
    return bool(value_of(request, field.name) == value_of(_DEFAULTS, field.name))


_TABLES: Final = {"evaluation": Evaluation, "gate": StopRules}

_OPTIONS: Final = {
    **{"directory": "DIR", "source": "FILE", "evaluation": "--evaluate", "variables": "--var"},
    "values": "--set",
}


def key_of(name: str) -> str:
    """The key in a description for the field of a :class:`RequestProblem`."""
    return FIELDS[name].key if name in FIELDS else _toml_key(name)


def option_of(name: str) -> str:
    """The option for the field of a :class:`RequestProblem`."""
    if name in FIELDS:
        field = FIELDS[name]
        return f"--{field.option}" if field.option else field.key
    table, dot, rest = name.partition(".")
    if dot and table in ("values", "variables"):
        return f"{_OPTIONS[table]} {rest}"
    return _OPTIONS.get(name, f"--{name}")


def value_of(request: Request, name: str) -> Any:
    """The value of a field; None if the request lacks its table."""
    value: Any = request
    for part in name.split("."):
        value = None if value is None else getattr(value, part)
    return value


def with_fields(request: Request, values: Mapping[str, Any]) -> Request:
    """The request with these values by field name, and the tables that they need."""
    fields = {name: value for name, value in values.items() if "." not in name}
    for table, kind in _TABLES.items():
        prefix = f"{table}."
        inner = {
            name.removeprefix(prefix): value
            for name, value in values.items()
            if name.startswith(prefix)
        }
        if inner:
            current = fields.get(table, getattr(request, table))
            fields[table] = replace(current or kind(), **inner)
    if fields.get("seeds") and fields.get("source", request.source) is None:
        fields.setdefault("runs", len(fields["seeds"]))
    return replace(request, **fields)
