"""What the lines of a sweep file say, typed; their words as written, placeholders and all.

``where`` of each is file and line.
"""

from __future__ import annotations

from metlmon.authoring.records import How
from metlmon.authoring.sweeps.values import Value
from metlmon.dagman import NodeKind
from metlmon.frozen import frozen


@frozen
class Command:
    where: str


@frozen
class Generate(Command):
    """``GEN SUBDAG``: ``lines`` has the place and the values of each name."""

    group: str
    template: str
    names: tuple[str, ...]
    how: How | None
    lines: tuple[tuple[str, tuple[Value, ...]], ...]


@frozen
class RegionOf(Command):
    """``REGION name { members }``."""

    name: str
    members: tuple[str, ...]


@frozen
class Declare(Command):
    """JOB, SUBDAG EXTERNAL, FINAL, PROVISIONER, SERVICE."""

    kind: NodeKind
    name: str
    submit: str
    noop: bool
    done: bool


@frozen
class Describe(Command):
    """SUBMIT-DESCRIPTION: ``text`` is all of its lines."""

    name: str
    text: str


@frozen
class Before(Command):
    """[WEAK] PARENT … CHILD …"""

    parents: tuple[str, ...]
    children: tuple[str, ...]
    weak: bool


@frozen
class Give(Command):
    """VARS; ``append``: DAGMan is to let them override the submit file."""

    name: str
    pairs: tuple[tuple[str, str], ...]
    append: bool


@frozen
class Say(Command):
    """A command about one node or ALL_NODES: ``head`` stands before the name (``SCRIPT PRE``),
    ``rest`` behind it. ``keyword`` in upper case, with ``_``."""

    keyword: str
    head: str
    name: str
    rest: str


@frozen
class Splice(Command):
    name: str
    text: str


@frozen
class Whole(Command):
    """A command about the DAG as a whole; ``text`` is all of it."""

    keyword: str
    text: str
