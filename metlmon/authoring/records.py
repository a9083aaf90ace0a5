"""What is asked for, and what would be written: plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from metlmon.authoring.allowed import Allowed
from metlmon.frozen import frozen
from metlmon.secret import hide


class Policy(StrEnum):
    """Which epoch may run at which site."""

    ANY = "any"
    """Every epoch at any of the sites (at any site at all, when none is named)."""
    PERMUTE = "permute"
    """Each site once before one repeats, in an order of each run's own."""
    PIN = "pin"
    """A run stays at one site; runs take the sites in turn."""


@frozen
class Request:
    """An ensemble to be written. ``template``: the name of one that comes along, or the path
    of a template file. ``name``: of the DAG file, without ``.dag``. ``seeds``: one for each
    run, or empty: then 1, 2, 3… ``memory_mb`` and ``gpu_memory_mb`` (the least memory of a
    GPU) in MB. ``values``: the template's own parameters."""

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
    memory_mb: int = 1024
    retries: int = 3
    values: Mapping[str, str] = field(default_factory=dict)


@frozen
class Parameter:
    """A template's own parameter. ``required``: there is no default that could serve.
    ``allowed``: what it may be, where the template says so."""

    name: str
    default: str
    help: str
    required: bool = False
    allowed: Allowed | None = None


@frozen
class Template:
    """A job that trains one epoch: a submit description with parameters. ``ships``: (name
    beside the DAG, text, executable) of files that go along."""

    name: str
    title: str
    about: str
    text: str
    parameters: tuple[Parameter, ...]
    ships: tuple[tuple[str, bytes, bool], ...] = ()
    path: Path | None = None


@frozen
class Complaint:
    """What is wrong with one field of a request (its name in :class:`Request`, or
    ``values.<parameter>``), in a sentence that says what to do. ``fatal`` False: a warning;
    it can be written all the same."""

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
    and where each epoch is meant to go ("any": anywhere)."""

    name: str
    uuid: str
    seed: int
    targets: tuple[str, ...]


@frozen
class Plan:
    """All that would be written, and how much that makes."""

    request: Request
    dag_file: str
    files: tuple[PlannedFile, ...]
    runs: tuple[RunPlan, ...]
    nodes: int
    jobs: int

    @property
    def in_the_way(self) -> tuple[str, ...]:
        """Names of files that exist already."""
        return tuple(each.name for each in self.files if each.exists)


class PlanError(Exception):
    """The request cannot be planned, or not be written: one sentence, in which nothing that looks
    like a secret is quoted."""

    def __init__(self, sentence: str) -> None:
        super().__init__(hide(sentence))
