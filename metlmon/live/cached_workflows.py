"""Workflows of large DAG files: woven again only when a file that they are made of is not what
it was.

Weaving takes some 25 µs for each node, comparing the files and taking it over a tenth of that.
What a workflow is made of is known exactly: every file that was asked for, and what it held, or
that it could not be read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, Final, TypeAlias

from metlmon.dagman import Node, NodeKind, Problem, Workflow, load_workflow
from metlmon.dagman.records import Script
from metlmon.frozen import frozen
from metlmon.live.discovery import read_regular

WORTH_SECONDS: Final = 0.1
"""A workflow that is woven in less is not kept: nobody waits for it."""

NODES_AT_ONCE: Final = 2000
"""Nodes in one record: some milliseconds of work."""

_SCRIPTS: Final = ("pre", "post", "hold")
_FIELDS: Final = tuple(field.name for field in fields(Node))


Reads: TypeAlias = dict[str, bytes | int | None]
"""The files that were asked for: a digest of what was in each, or the number of the error."""


@frozen
class CachedWorkflow:
    """A workflow, and what it was made of."""

    reads: Reads
    workflow: Workflow

    def holds(self) -> bool:
        """Would weaving it now come to the same?"""
        return all(_known_by(_read(Path(path))) == before for path, before in self.reads.items())


def _read(path: Path) -> bytes | OSError:
    try:
        return read_regular(path)
    except OSError as error:
        return error


def _known_by(read: bytes | OSError) -> bytes | int | None:
    from hashlib import blake2b  # It takes 3 ms, which small DAGs need not pay.

    return read.errno if isinstance(read, OSError) else blake2b(read, digest_size=16).digest()


class Workflows:
    """The workflows of one reader. ``news``: there are some that are not kept yet."""

    def __init__(self, known: dict[tuple[str, ...], CachedWorkflow] | None = None) -> None:
        self._known = known or {}
        self._loaded: dict[tuple[str, ...], Reads] = {}
        self._unkept: dict[tuple[str, ...], dict[str, bytes | OSError]] = {}
        self.news = False

    def load(self, paths: Sequence[Path]) -> Workflow:
        """As :func:`metlmon.dagman.load_workflow`, of the files that are here now."""
        key = tuple(map(str, paths))
        known = self._known.pop(key, None)
        if known is None or not known.holds():
            known, self._unkept[key] = self._woven(paths)
            self.news |= known.reads != {}
        if known.reads:
            self._known[key] = known
        self._loaded[key] = known.reads
        return known.workflow

    def made_of(self) -> bytes:
        """A digest of all that the workflows were made of that it was asked for."""
        from hashlib import blake2b

        told = []
        for key, reads in self._loaded.items():
            if not reads:
                # These are few and small, and most are never asked for.
                reads = {path: _known_by(data) for path, data in self._unkept[key].items()}
                self._loaded[key], self._unkept[key] = reads, {}
            told.append((key, sorted(reads.items())))
        return blake2b(repr(sorted(told)).encode("utf-8", "surrogateescape")).digest()

    def _woven(self, paths: Sequence[Path]) -> tuple[CachedWorkflow, dict[str, bytes | OSError]]:
        """Without ``reads`` where it is not worth while to know them; then what they are made
        from."""
        begun = time.monotonic()
        reads: dict[str, bytes | OSError] = {}

        def read(path: Path) -> bytes:
            data = reads.setdefault(str(path), _read(path))
            if isinstance(data, OSError):
                raise data
            return data

        workflow = load_workflow(paths, read)
        if time.monotonic() - begun < WORTH_SECONDS:
            return CachedWorkflow({}, workflow), reads
        return CachedWorkflow({path: _known_by(data) for path, data in reads.items()}, workflow), {}

    def records(self) -> Iterator[Any]:
        """All of them as plain data, for :func:`workflows_of`."""
        self.news = False
        return _records(dict(self._known))


# --- as plain data ------------------------------------------------------------------------


def _records(known: dict[tuple[str, ...], CachedWorkflow]) -> Iterator[Any]:
    for key, woven in known.items():
        inner = _with_inner(woven.workflow)
        yield key, woven.reads, len(inner)
        places = {id(workflow): place for place, workflow in enumerate(inner)}
        for workflow in inner:
            subdags = [each and places[id(each)] for each in workflow.subdags]
            yield {
                "path": str(workflow.path),
                "subdags": subdags,
                "files": [str(path) for path in workflow.files],
                "references": [str(path) for path in workflow.references],
                "problems": [astuple(problem) for problem in workflow.problems],
                "node_status_file": workflow.node_status_file,
                "jobstate_log": workflow.jobstate_log,
                "commands": workflow.commands,
                "nodes": len(workflow.nodes),
            }
            yield from _nodes(list(workflow.nodes.values()))


def _with_inner(workflow: Workflow) -> list[Workflow]:
    """The sub-DAGs, each behind those that it has, and once; the workflow itself at the end."""
    found: dict[int, Workflow] = {}

    def visit(each: Workflow) -> None:
        for subdag in each.subdags:
            if subdag is not None and id(subdag) not in found:
                visit(subdag)
        found[id(each)] = each

    visit(workflow)
    return list(found.values())


def _nodes(nodes: list[Node]) -> Iterator[Any]:
    """Columns of some nodes at a time; of one that is alike for all of them only that value."""
    for start in range(0, len(nodes), NODES_AT_ONCE):
        some = nodes[start : start + NODES_AT_ONCE]
        columns: dict[str, Any] = {}
        for name in _FIELDS:
            column = [getattr(node, name) for node in some]
            if name == "kind":
                column = [kind.value for kind in column]
            elif name in _SCRIPTS:
                column = [script and (script.command, script.defer) for script in column]
            alike = all(value == column[0] for value in column)
            columns[name] = (len(some), column[0]) if alike else column
        yield columns


def workflows_of(records: Iterable[Any]) -> Workflows:
    """What :meth:`Workflows.records` told. Records of another shape raise whatever comes
    first."""
    rest = iter(records)
    known = {}
    for key, reads, count in rest:
        woven: list[Workflow] = []
        for _ in range(count):
            woven.append(_workflow(next(rest), rest, woven))
        known[key] = CachedWorkflow(reads, woven[-1])
    return Workflows(known)


def _workflow(told: dict[str, Any], rest: Iterator[Any], inner: list[Workflow]) -> Workflow:
    nodes: dict[str, Node] = {}
    while len(nodes) < told["nodes"]:
        columns = next(rest)
        for node in map(Node, *(_column(name, columns[name]) for name in _FIELDS)):
            nodes[node.name] = node
    return Workflow(
        Path(told["path"]),
        nodes,
        [None if place is None else inner[place] for place in told["subdags"]],
        [Path(path) for path in told["files"]],
        {Path(path) for path in told["references"]},
        [Problem(*problem) for problem in told["problems"]],
        told["node_status_file"],
        told["jobstate_log"],
        told["commands"],
    )


def _column(name: str, told: Any) -> list[Any]:
    """The values of one field."""
    if isinstance(told, tuple):
        count, alike = told
        told = [alike] * count
    if name == "kind":
        return [NodeKind(value) for value in told]
    if name in _SCRIPTS:
        return [None if script is None else Script(*script) for script in told]
    return list(told)
