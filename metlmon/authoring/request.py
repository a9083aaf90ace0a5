"""What is asked for, and what would be written: plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from metlmon.authoring.constraints import Constraint
from metlmon.authoring.graph import NO_GRAPH, Graph, NodeRole
from metlmon.frozen import frozen
from metlmon.redact import redact_secrets


class Policy(StrEnum):
    """Which epoch may run at which site, or on which GPU."""

    ANY = "any"
    """Every epoch at any of the sites (at any site at all, when none is named)."""
    PERMUTE = "permute"
    """Each site once before one repeats, in an order of each run's own."""
    PIN = "pin"
    """A run stays at one site; runs take the sites in turn."""
    GPU_PIN = "gpu-pin"
    """A run stays on one GPU model, at any of the sites (a control cohort); runs take the models
    in turn."""


class EnsembleShape(StrEnum):
    """How the nodes of the DAG hang together."""

    CHAIN = "chain"
    """Each run a chain of its epochs, one job each ("shish-kebab")."""
    SWEEP = "sweep"
    """A chain for every combination of swept values."""
    STAGES = "stages"
    """Chains one after the other in every run: pretrain, then finetune from its checkpoint."""
    BAG = "bag"
    """Shards that need nothing of each other (throughput inference)."""
    MULTI_NODE = "multi-node"
    """Several machines train an epoch together; a PROVISIONER node comes before them."""


class SweepMode(StrEnum):
    """How the values of several swept variables are put together."""

    ZIP = "zip"
    """The first of each, then the second of each."""
    PRODUCT = "product"
    """Every value of one with every value of the others; the last variable changes fastest."""


@frozen
class SweptVariable:
    """A variable that differs from run to run. ``values`` as they are printed; ``where``: file
    and line (or the option) that gave them."""

    name: str
    values: tuple[str, ...]
    where: str


@frozen
class SweepRequest:
    """``group`` is what the runs are called: group and zero-padded index. ``how`` None: not said;
    equal lengths are zipped then, unequal ones are an error."""

    group: str
    variables: tuple[SweptVariable, ...]
    how: SweepMode | None = None
    where: str = ""


@frozen
class Region:
    """Nodes with variables of their own. ``epochs``: (first, last) as in node names, from 0, of
    training and evaluation nodes alike, or None for all; ``runs``: names of runs, or empty: all."""

    name: str
    variables: Mapping[str, str]
    epochs: tuple[int, int] | None = None
    runs: tuple[str, ...] = ()
    where: str = ""


@frozen
class Evaluation:
    """A side node after every ``every``-th training node. ``template``: as in :class:`Request`.
    ``gates``: the next epoch waits for it (it does not, if not asked); then a failure of it fails
    the run, else it fails nothing."""

    template: str = "evaluate"
    every: int = 1
    gates: bool = False
    values: Mapping[str, str] = field(default_factory=dict)


class MetricGoal(StrEnum):
    """Which values of a metric are good ones."""

    MIN = "min"
    MAX = "max"


@frozen
class StopRules:
    """When the gate stops a run by itself, by the ``metric`` of each finished epoch. ``goal``:
    which of its values are good, None: by its name. ``patience``: after so many epochs without an
    improvement of more than ``min_delta``; ``divergence``: at NaN, or above this many times the
    best value (of one that is to be great: below the best divided by this); ``median_after``: from
    this many finished epochs on (of this and of at least two other runs), when it is worse than
    the median of all runs that have a value at the same epoch. None: not by this rule. ``poll``:
    seconds after which a paused node asks again."""

    metric: str = "val_loss"
    goal: MetricGoal | None = None
    patience: int | None = None
    min_delta: float = 0.0
    divergence: float | None = None
    median_after: int | None = None
    poll: int = 60


@frozen
class StageRequest:
    """One part of every run. ``template`` None: the request's. ``values`` go before the
    request's; ``epochs`` of this stage."""

    name: str
    epochs: int
    template: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)


@frozen
class Request:
    """An ensemble to be written. ``template``: the name of one that comes along, or the path
    of a template file. ``name``: of the DAG file, without ``.dag``. ``seeds``: one for each
    run, or empty: then 1, 2, 3… ``memory_mb`` and ``gpu_memory_mb`` (the least memory of a
    GPU) in MB. ``gpu_models``: their DeviceNames, for the policy ``gpu-pin``. ``values``: the
    template's own parameters.

    ``shape`` and what belongs to it: ``sweep`` (``runs`` are then counted by it, one seed for all
    if one is given, and ``values`` may be swept: a swept variable with the name of a template's
    parameter takes its place), ``stages``, ``shards`` of a bag, ``machines`` of a multi-node epoch.
    ``variables``: VARS of every node, beside what metlmon gives; ``regions``: of some. ``gate``:
    can a run be stopped, paused and sent elsewhere while the DAG runs; None: it cannot.
    ``source``: a sweep file (``GEN SUBDAG``) that says it all; ``subdags``: each run in an external
    sub-DAG of its own instead of flat nodes. ``seeds`` of a sweep: every point is trained with each
    of them. ``gather``: template of a node that comes after all shards of a bag."""

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


@frozen
class Parameter:
    """A template's own parameter. ``required``: there is no default that could serve.
    ``allowed``: what it may be, where the template says so. ``later``: the template got it when
    runs were named already; at its default it is no part of their uuids."""

    name: str
    default: str
    help: str
    required: bool = False
    allowed: Constraint | None = None
    later: bool = False


@frozen
class Template:
    """A job that trains one epoch, or does what its ``role`` says: a submit description with
    parameters. ``ships``: (name beside the DAG, text, executable) of files that go along."""

    name: str
    title: str
    about: str
    text: str
    parameters: tuple[Parameter, ...]
    ships: tuple[tuple[str, bytes, bool], ...] = ()
    path: Path | None = None
    role: NodeRole = NodeRole.TRAIN


@frozen
class RequestProblem:
    """What is wrong with one field of a request (its name in :class:`Request`, or
    ``values.<parameter>``, ``evaluation.every``, ``stages.<name>.epochs`` and the like), in a
    sentence that says what to do. ``fatal`` False: a warning; it can be written all the same."""

    field: str
    text: str
    fatal: bool = True


@frozen
class PlannedFile:
    """One file to be written. ``exists``: something is at its place already."""

    name: str
    data: bytes
    executable: bool
    about: str
    exists: bool = False


@frozen
class RunPlan:
    """One run of the plan: its name, its uuid (the same for the same parameters), its seed,
    where each epoch is meant to go ("any": anywhere), and the GPU model that it stays on, None
    where any will do."""

    name: str
    uuid: str
    seed: int
    targets: tuple[str, ...]
    gpu: str | None = None


@frozen
class Plan:
    """All that would be written, and how much that makes. ``graph``: the nodes of the DAG file."""

    request: Request
    dag_file: str
    files: tuple[PlannedFile, ...]
    runs: tuple[RunPlan, ...]
    nodes: int
    jobs: int
    graph: Graph = NO_GRAPH

    @property
    def in_the_way(self) -> tuple[str, ...]:
        """Names of files that exist already."""
        return tuple(each.name for each in self.files if each.exists)


class PlanError(Exception):
    """The request cannot be planned, or not be written: one sentence, in which nothing that looks
    like a secret is quoted."""

    def __init__(self, sentence: str) -> None:
        super().__init__(redact_secrets(sentence))
