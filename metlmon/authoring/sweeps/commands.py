"""What the lines of a sweep file say, typed; their words as written, placeholders and all.

``where`` of each is file and line.
"""

from __future__ import annotations

from metlmon.authoring.request import SweepMode
from metlmon.authoring.sweeps.values import Value
from metlmon.dagman import NodeKind
from metlmon.frozen import frozen


@frozen
class SweepCommand:
    where: str


@frozen
class Generate(SweepCommand):
    """``GEN SUBDAG``: ``lines`` has the place and the values of each name."""

    group: str
    template: str
    names: tuple[str, ...]
    how: SweepMode | None
    lines: tuple[tuple[str, tuple[Value, ...]], ...]


@frozen
class RegionOf(SweepCommand):
    """``REGION name { members }``."""

    name: str
    members: tuple[str, ...]


@frozen
class Declare(SweepCommand):
    """JOB, SUBDAG EXTERNAL, FINAL, PROVISIONER, SERVICE."""

    kind: NodeKind
    name: str
    submit: str
    noop: bool
    done: bool


@frozen
class Describe(SweepCommand):
    """SUBMIT-DESCRIPTION: ``text`` is all of its lines."""

    name: str
    text: str


@frozen
class ParentChild(SweepCommand):
    """[WEAK] PARENT … CHILD …"""

    parents: tuple[str, ...]
    children: tuple[str, ...]
    weak: bool


@frozen
class VarsLine(SweepCommand):
    """VARS; ``append``: DAGMan is to let them override the submit file."""

    name: str
    pairs: tuple[tuple[str, str], ...]
    append: bool


@frozen
class SweepNodeCommand(SweepCommand):
    """A command about one node or ALL_NODES: ``head`` stands before the name (``SCRIPT PRE``),
    ``rest`` behind it. ``keyword`` in upper case, with ``_``."""

    keyword: str
    head: str
    name: str
    rest: str


@frozen
class Splice(SweepCommand):
    name: str
    text: str


@frozen
class GlobalCommand(SweepCommand):
    """A command about the DAG as a whole; ``text`` is all of it."""

    keyword: str
    text: str
