"""The result of expanding a sweep file."""

from __future__ import annotations

from collections.abc import Mapping

from metlmon.authoring.graph import Graph
from metlmon.authoring.request import RequestProblem, RunPlan, SweepMode
from metlmon.frozen import frozen


@frozen
class Referenced:
    """A file that the DAG names: submit file, script, sub-DAG or configuration.

    ``data`` None: it is not beside the sweep file (or is named by a path), so that it must exist
    where the DAG is submitted. ``taken``: an input file of jobs, which an earlier job may create.
    """

    name: str
    where: str
    data: bytes | None
    executable: bool = False
    taken: bool = False


@frozen
class Group:
    """The runs of one GEN command.

    ``runs``: how many; ``nodes``: the nodes of each. ``counts``: the number of values of each
    variable; ``how``: the mode, explicit or implied.
    """

    name: str
    template: str
    runs: int
    nodes: int
    counts: Mapping[str, int]
    how: SweepMode
    where: str


@frozen
class Expansion:
    """An expanded sweep file.

    ``runs``: in file order; ``values``: the swept values of each run. ``files``: the files that
    the DAG names. ``sources``: names and contents of the sweep file and all files read with it.
    ``warnings``: variables without an effect.
    """

    graph: Graph
    runs: tuple[RunPlan, ...]
    values: tuple[Mapping[str, str], ...]
    groups: tuple[Group, ...]
    files: tuple[Referenced, ...]
    sources: tuple[tuple[str, bytes], ...]
    warnings: tuple[RequestProblem, ...] = ()
