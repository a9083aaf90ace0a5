"""The commands of a sweep file as records, with placeholders not yet filled in.

``where`` is the position: file and line.
"""

from __future__ import annotations

from metlmon.authoring.request import SweepMode
from metlmon.authoring.sweeps.values import Value
from metlmon.dagman import NodeKind
from metlmon.frozen import frozen


@frozen
class SweepCommand:
    """A command of a sweep file."""

    where: str


@frozen
class GenCommand(SweepCommand):
    """``GEN SUBDAG``.

    ``lines``: for each name, the position and the values of its value line.
    """

    group: str
    template: str
    names: tuple[str, ...]
    how: SweepMode | None
    lines: tuple[tuple[str, tuple[Value, ...]], ...]


@frozen
class RegionCommand(SweepCommand):
    """``REGION name { members }``."""

    name: str
    members: tuple[str, ...]


@frozen
class NodeDeclaration(SweepCommand):
    """JOB, SUBDAG EXTERNAL, FINAL, PROVISIONER or SERVICE."""

    kind: NodeKind
    name: str
    submit: str
    noop: bool
    done: bool


@frozen
class SweepDescription(SweepCommand):
    """SUBMIT-DESCRIPTION.

    ``text``: all of its lines.
    """

    name: str
    text: str


@frozen
class ParentChild(SweepCommand):
    """``[WEAK] PARENT … CHILD …``."""

    parents: tuple[str, ...]
    children: tuple[str, ...]
    weak: bool


@frozen
class VarsLine(SweepCommand):
    """VARS.

    ``append``: the variables override the submit file (VARS … APPEND).
    """

    name: str
    pairs: tuple[tuple[str, str], ...]
    append: bool


@frozen
class SweepNodeCommand(SweepCommand):
    """A command about one node or ALL_NODES.

    ``head``: the text before the name (``SCRIPT PRE``), ``rest``: the text after it. ``keyword``:
    in upper case, with ``_``.
    """

    keyword: str
    head: str
    name: str
    rest: str


@frozen
class Splice(SweepCommand):
    """A SPLICE command; ``text`` is all of it."""

    name: str
    text: str


@frozen
class GlobalCommand(SweepCommand):
    """A command about the whole DAG; ``text`` is all of it."""

    keyword: str
    text: str
