"""Caches the workflows of large DAG files until one of their files changes.

Loading takes some 25 µs per node; comparing the files and loading from the cache, a tenth of
that. The inputs of a workflow are known exactly: every file read and its content, or its error.
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
from metlmon.live.discovery import read_regular_file

WORTH_SECONDS: Final = 0.1
"""Minimum loading time of a workflow that is cached."""

NODES_AT_ONCE: Final = 2000
"""Nodes per record, some milliseconds of work."""

_SCRIPTS: Final = ("pre", "post", "hold")
_FIELDS: Final = tuple(field.name for field in fields(Node))


Reads: TypeAlias = dict[str, bytes | int | None]
"""The files read: a digest of the content of each, or its errno."""


@frozen
class CachedWorkflow:
    """A workflow and its input files."""

    reads: Reads
    workflow: Workflow

    def holds(self) -> bool:
        """Whether the input files are unchanged."""
        return all(_digest_of(_read(Path(path))) == before for path, before in self.reads.items())


def _read(path: Path) -> bytes | OSError:
    try:
        return read_regular_file(path)
    except OSError as error:
        return error


def _digest_of(read: bytes | OSError) -> bytes | int | None:
    from hashlib import blake2b  # Takes 3 ms: import only for large DAGs.

    return read.errno if isinstance(read, OSError) else blake2b(read, digest_size=16).digest()


class Workflows:
    """The workflows of one reader. ``news``: some are not in the cache yet."""

    def __init__(self, known: dict[tuple[str, ...], CachedWorkflow] | None = None) -> None:
        self._known = known or {}
        self._loaded: dict[tuple[str, ...], Reads] = {}
        self._undigested: dict[tuple[str, ...], dict[str, bytes | OSError]] = {}
        self.news = False

    def load(self, paths: Sequence[Path]) -> Workflow:
        """Load a workflow of the current files, from the cache if unchanged."""
        key = tuple(map(str, paths))
        known = self._known.pop(key, None)
        if known is None or not known.holds():
            known, self._undigested[key] = self._load_fresh(paths)
            self.news |= known.reads != {}
        if known.reads:
            self._known[key] = known
        self._loaded[key] = known.reads
        return known.workflow

    def made_of(self) -> bytes:
        """Return a digest of the input files of all workflows loaded so far."""
        from hashlib import blake2b

        digests = []
        for key, reads in self._loaded.items():
            if not reads:
                # These files are few and small, and their digests are rarely needed.
                reads = {path: _digest_of(data) for path, data in self._undigested[key].items()}
                self._loaded[key], self._undigested[key] = reads, {}
            digests.append((key, sorted(reads.items())))
        return blake2b(repr(sorted(digests)).encode("utf-8", "surrogateescape")).digest()

    def _load_fresh(
        self, paths: Sequence[Path]
    ) -> tuple[CachedWorkflow, dict[str, bytes | OSError]]:
        """Load a workflow; for a small one return the file contents instead of digests."""
        started = time.monotonic()
        reads: dict[str, bytes | OSError] = {}

        def read(path: Path) -> bytes:
            data = reads.setdefault(str(path), _read(path))
            if isinstance(data, OSError):
                raise data
            return data

        workflow = load_workflow(paths, read)
        if time.monotonic() - started < WORTH_SECONDS:
            return CachedWorkflow({}, workflow), reads
        return CachedWorkflow(
            {path: _digest_of(data) for path, data in reads.items()}, workflow
        ), {}

    def records(self) -> Iterator[Any]:
        """Return all workflows as plain data, for :func:`workflows_of`."""
        self.news = False
        return _records(dict(self._known))


# --- as plain data ------------------------------------------------------------------------


def _records(known: dict[tuple[str, ...], CachedWorkflow]) -> Iterator[Any]:
    for key, cached in known.items():
        workflows = _subdags_first(cached.workflow)
        yield key, cached.reads, len(workflows)
        places = {id(workflow): place for place, workflow in enumerate(workflows)}
        for workflow in workflows:
            subdags = [subdag and places[id(subdag)] for subdag in workflow.subdags]
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


def _subdags_first(workflow: Workflow) -> list[Workflow]:
    """Return all sub-DAGs, each once and after its own ones, then the workflow itself."""
    ordered: dict[int, Workflow] = {}

    def visit(dag: Workflow) -> None:
        for subdag in dag.subdags:
            if subdag is not None and id(subdag) not in ordered:
                visit(subdag)
        ordered[id(dag)] = dag

    visit(workflow)
    return list(ordered.values())


def _nodes(nodes: list[Node]) -> Iterator[Any]:
    """Yield columns of batches of nodes; for a uniform column, its single value."""
    for start in range(0, len(nodes), NODES_AT_ONCE):
        batch = nodes[start : start + NODES_AT_ONCE]
        columns: dict[str, Any] = {}
        for name in _FIELDS:
            column = [getattr(node, name) for node in batch]
            if name == "kind":
                column = [kind.value for kind in column]
            elif name in _SCRIPTS:
                column = [script and (script.command, script.defer) for script in column]
            uniform = all(value == column[0] for value in column)
            columns[name] = (len(batch), column[0]) if uniform else column
        yield columns


def workflows_of(records: Iterable[Any]) -> Workflows:
    """Restore what :meth:`Workflows.records` returned.

    Malformed records raise any exception.
    """
    remaining = iter(records)
    known = {}
    for key, reads, count in remaining:
        cached: list[Workflow] = []
        for _ in range(count):
            cached.append(_workflow(next(remaining), remaining, cached))
        known[key] = CachedWorkflow(reads, cached[-1])
    return Workflows(known)


def _workflow(
    record: dict[str, Any], remaining: Iterator[Any], workflows: list[Workflow]
) -> Workflow:
    nodes: dict[str, Node] = {}
    while len(nodes) < record["nodes"]:
        columns = next(remaining)
        for node in map(Node, *(_column(name, columns[name]) for name in _FIELDS)):
            nodes[node.name] = node
    return Workflow(
        Path(record["path"]),
        nodes,
        [None if place is None else workflows[place] for place in record["subdags"]],
        [Path(path) for path in record["files"]],
        {Path(path) for path in record["references"]},
        [Problem(*problem) for problem in record["problems"]],
        record["node_status_file"],
        record["jobstate_log"],
        record["commands"],
    )


def _column(name: str, column: Any) -> list[Any]:
    """Return the values of one field."""
    if isinstance(column, tuple):
        count, uniform = column
        column = [uniform] * count
    if name == "kind":
        return [NodeKind(value) for value in column]
    if name in _SCRIPTS:
        return [None if script is None else Script(*script) for script in column]
    return list(column)
