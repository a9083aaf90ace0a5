"""Request and plan types: what the user requests, and what would be written."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct, field

from metlmon.authoring.graph import NO_GRAPH, Graph, NodeRole
from metlmon.redact import redact_job_text, redact_secrets

LONGEST_VALUE: Final = 4096
"""Maximum characters of a value; no path is longer."""

MOST_VALUES: Final = 100_000
"""Most values of a swept variable, and most runs: as many as a DAG may have nodes."""

_WHOLE: Final = re.compile(r"[+-]?\d{1,18}")


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
    values: Mapping[str, str] = field(default_factory=dict)


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
    values: Mapping[str, str] = field(default_factory=dict)


class Request(Struct, frozen=True):
    """The ensemble to write.

    - ``template``: name of a bundled template, or path of a template file.
    - ``name``: of the DAG file, without ``.dag``.
    - ``seeds``: one per run; empty: 1, 2, 3… In a sweep, every point is trained with each of them.
    - ``memory_mb``, ``gpu_memory_mb`` (minimum memory of a GPU): in MB.
    - ``gpu_models``: DeviceNames, for the policy ``gpu-pin``.
    - ``values``: of the template's parameters.
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
    values: Mapping[str, str] = field(default_factory=dict)
    shape: EnsembleShape = EnsembleShape.CHAIN
    sweep: SweepRequest | None = None
    stages: tuple[StageRequest, ...] = ()
    shards: int = 0
    machines: int = 1
    evaluation: Evaluation | None = None
    gate: StopRules | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    source: Path | None = None
    subdags: bool = False
    gather: str | None = None
    mlproject: bool = False


class Constraint(Struct, frozen=True):
    """The values that a parameter may have.

    One of ``words``; if empty, a number from ``low`` to ``high`` (``whole``: without a fraction).
    """

    words: tuple[str, ...] = ()
    whole: bool = False
    low: float = -math.inf
    high: float = math.inf

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
    one. ``added_later``: the template gained it after runs had been named; its default is not part
    of their uuids.
    """

    json_omits: ClassVar = frozenset({"allowed", "added_later"})

    name: str
    default: str
    help: str
    required: bool = False
    allowed: Constraint | None = None
    added_later: bool = False


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
    graph: Graph = NO_GRAPH

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


class PlanError(Exception):
    """The request cannot be planned or written.

    The message is one sentence, with anything that looks like a secret redacted.
    """

    def __init__(self, message: str) -> None:
        super().__init__(redact_secrets(message))
