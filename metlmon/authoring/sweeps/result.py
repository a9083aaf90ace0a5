"""What becomes of a sweep file."""

from __future__ import annotations

from collections.abc import Mapping

from metlmon.authoring.graph import Graph
from metlmon.authoring.request import RequestProblem, RunPlan, SweepMode
from metlmon.frozen import frozen


@frozen
class Referenced:
    """A file that the DAG names: a submit file, a script, a sub-DAG, a configuration. ``data``
    None: it does not lie beside the sweep file (or is named by a path), so that it must be there
    already where the DAG is submitted. ``taken``: jobs take it along; an earlier one may bring
    it."""

    name: str
    where: str
    data: bytes | None
    executable: bool = False
    taken: bool = False


@frozen
class Group:
    """One GEN line: how many runs it makes, of how many nodes each. ``counts``: the number of
    values of each variable; ``how``: zipped or multiplied, said or not."""

    name: str
    template: str
    runs: int
    nodes: int
    counts: Mapping[str, int]
    how: SweepMode
    where: str


@frozen
class Expansion:
    """``runs`` in the order of the file, ``values`` those of the swept variables of each.
    ``files``: what the DAG names. ``sources``: names and contents of the sweep file and of all that
    it was read with. ``warnings``: what is given and has no effect."""

    graph: Graph
    runs: tuple[RunPlan, ...]
    values: tuple[Mapping[str, str], ...]
    groups: tuple[Group, ...]
    files: tuple[Referenced, ...]
    sources: tuple[tuple[str, bytes], ...]
    warnings: tuple[RequestProblem, ...] = ()
