"""DAG files → one workflow: two passes, splices, includes, sub-DAGs, edges.

Source followed: ``DagProcessor`` in DAGMan's ``parse.cpp`` (25.x) and ``dag.cpp``.

Kinds of problems, besides those of a file's text ("syntax", and "unknown-command", which is a
warning here). Errors, since DAGMan refuses the DAG: "missing-file" (the DAG itself, a splice,
an include), "recursion", "duplicate-node", "unknown-node", "dependency", "pins", "reject",
"cycle", "too-large". Warnings: "missing-submit-file", "missing-subdag", "subdag-recursion", and
two that DAGMan refuses and HTCondor's condor_dag_checker accepts: "splice-node" (a command names
a node inside a splice) and "node-kind" (a command does not apply to nodes of this kind).
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from pathlib import Path

from metlmon.dagman import graph
from metlmon.dagman.commands import (
    ALL_NODES,
    SCOPE_SIGN,
    ConnectCommand,
    DagCommand,
    DescriptionCommand,
    DoneCommand,
    EdgeCommand,
    IncludeCommand,
    JobstateCommand,
    NodeCommand,
    NodeModifier,
    PinCommand,
    RejectCommand,
    SpliceCommand,
    StatusFileCommand,
    VarsCommand,
)
from metlmon.dagman.file_cache import FileCache, Read, TooLarge
from metlmon.dagman.lexer import shown
from metlmon.dagman.loader_scope import Scope
from metlmon.dagman.node_commands import applies, apply, keyword
from metlmon.dagman.parser import DagFile
from metlmon.dagman.records import Node, NodeKind, Problem, Workflow
from metlmon.dagman.redaction import hide_secrets
from metlmon.dagman.submit_info import Describer, PendingSubmitInfo

#: Splices in splices, sub-DAGs in sub-DAGs: no real DAG goes nearly as deep.
_DEEPEST = 40

#: What a splice costs beside its commands and nodes, in the unit of ``FileCache.spend``.
_SPLICE_WORK = 100

#: Names of a cycle that its sentence tells: a sentence, not a page.
_CYCLE_SHOWN = 6

#: Commands that the first pass has nothing to do with: nearly all of them.
_SECOND = (NodeModifier, EdgeCommand)

_ONCE = frozenset({NodeKind.FINAL, NodeKind.PROVISIONER})
_CAN_BE_DONE = frozenset({NodeKind.JOB, NodeKind.SUBDAG})


def load_workflow(paths: Sequence[Path], read: Read) -> Workflow:
    """The workflow of one DAGMan, from the DAG file or files of its command line.

    Files of several directories are read as with ``-UseDagDir``.

    ``read`` gives the bytes of a file and raises OSError where there is none; it is the only
    access to files. It is asked for whatever paths the DAG names, so it should refuse what is
    no regular file. DAGMan's working directory is taken to be that of the first path. Names
    are looked for where DAGMan would look, then beside the DAG file that names them: a copied
    directory has none of the original paths. ``log``, ``output`` and ``error`` of the nodes
    are as seen from the working directory. Whatever is wrong with the files is told in
    ``problems``, nothing is raised for it.
    """
    here = Path(os.path.normpath(paths[0].parent))
    subdags = _Subdags(FileCache(read, here))
    return subdags.top([Path(os.path.normpath(path)) for path in paths], here)


class _Subdags:
    """The workflows of one look: each sub-DAG file is woven once, however often it is named."""

    def __init__(self, library: FileCache) -> None:
        self.library = library
        self._woven: dict[Path, Workflow | None] = {}

    def top(self, paths: list[Path], here: Path) -> Workflow:
        self._woven |= dict.fromkeys(paths)
        return _WorkflowLoader(self, paths, here, depth=0).weave()

    def inner(self, path: Path, here: Path, depth: int) -> Workflow | None:
        """The sub-DAG in ``path``; None when that lies within itself, or too deep."""
        if path not in self._woven:
            self._woven[path] = None
            if depth <= _DEEPEST:
                self._woven[path] = _WorkflowLoader(self, [path], here, depth).weave()
        return self._woven[path]


class _WorkflowLoader:
    """Weaves the files of one DAGMan into one workflow."""

    def __init__(self, subdags: _Subdags, paths: list[Path], here: Path, depth: int) -> None:
        self._subdags = subdags
        self._library = subdags.library
        self._paths = paths
        self._depth = depth
        self._home = here
        self._top = Scope(here)
        self._scopes = [self._top]
        self._out = Workflow(paths[0])
        self._problems: dict[Problem, None] = {}  # a splice used twice tells each but once
        self._munge = ""
        self._joins = 0
        self._undescribed: dict[str, PendingSubmitInfo] = {}
        self._reading: list[Path] = []
        self._woven: dict[Path, None] = {}

    def weave(self) -> Workflow:
        out = self._out
        try:
            for index, path in enumerate(self._paths):
                # DAGMan tells apart what several files on one command line call the same.
                self._munge = f"{index}." if len(self._paths) > 1 else ""
                # With -UseDagDir the nodes of each file are in its own directory.
                self._top.here = path.parent
                self._top.dir = _seen_from(self._home, path.parent)
                self._top_file(path)
        except TooLarge:
            self._say("too-large", "more nodes and edges than can be held: the rest is left out")
        out.nodes = {node.name: node for node in self._top.all_nodes()}
        graph.settle(out.nodes.values())
        if names := graph.cycle(out.nodes):
            self._say("cycle", f"nodes wait for each other in a circle: {_chain(names)}")
        describer = Describer(self._library, self._home, self._scopes)
        for waiting in self._undescribed.values():
            describer.describe(waiting)
        hide_secrets(out.nodes.values())
        out.problems = [*self._problems, *describer.problems]
        tops = [path for path in self._paths if path in self._woven]
        out.files = list(dict.fromkeys([*tops, *self._woven, *describer.files]))
        return out

    # --- files -------------------------------------------------------------------------

    def _top_file(self, path: Path) -> None:
        dag = self._library.dag(path)
        if dag is None:
            text = "the DAG file cannot be read"
            name = self._library.name(path)
            self._problems[Problem("missing-file", name, None, text, error=True)] = None
            return
        self._out.commands += len(dag.commands)
        self._file(path, dag, self._top)

    def _file(self, path: Path, dag: DagFile, scope: Scope) -> None:
        """Weaves one file into ``scope``: first what makes nodes, then all else."""
        self._library.spend(1 + len(dag.commands))
        self._reading.append(path)
        self._woven[path] = None
        self._problems |= dict.fromkeys(dag.problems)
        for command in dag.commands:
            if not isinstance(command, _SECOND):
                self._first_pass(command, scope)
        for command in dag.commands:
            if not isinstance(command, NodeCommand):
                self._second_pass(command, scope)
        self._reading.pop()

    def _named_dag(
        self, command: DagCommand, name: str, here: Path, what: str
    ) -> tuple[Path, DagFile] | None:
        """The DAG file that a command names, None (and a problem) when it cannot be used."""
        wanted, found = self._library.find_dag(name, here, self._home, self._reading[-1].parent)
        self._out.references.add(wanted)
        if found is None:
            self._refuse("missing-file", command, f"{what} {shown(name)} cannot be read")
        elif wanted in self._reading:
            self._refuse("recursion", command, f"{what} {shown(name)} leads back to itself")
            return None
        elif len(self._reading) > _DEEPEST:
            self._refuse("too-large", command, f"{what} {shown(name)} is nested too deep")
            return None
        return None if found is None else (wanted, found)

    # --- problems ------------------------------------------------------------------------

    def _say(self, kind: str, text: str) -> None:
        name = self._library.name(self._paths[0])
        self._problems[Problem(kind, name, None, text, error=True)] = None

    def _refuse(self, kind: str, command: DagCommand, text: str) -> None:
        self._tell(kind, command, text, error=True)

    def _warn(self, kind: str, command: DagCommand, text: str) -> None:
        self._tell(kind, command, text, error=False)

    def _tell(self, kind: str, command: DagCommand, text: str, *, error: bool) -> None:
        name = self._library.name(self._reading[-1])
        self._problems[Problem(kind, name, command.line, text, error)] = None

    # --- the first pass: what makes nodes ------------------------------------------------

    def _first_pass(self, command: DagCommand, scope: Scope) -> None:
        match command:
            case NodeCommand():
                self._node(command, scope)
            case DescriptionCommand(name=name, description=description):
                scope.descriptions.setdefault(name, description)
            case SpliceCommand():
                self._splice(command, scope)
            case StatusFileCommand(file=file) if scope is self._top:
                self._out.node_status_file = self._out.node_status_file or file
            case JobstateCommand(file=file) if scope is self._top:
                self._out.jobstate_log = self._out.jobstate_log or file
            case RejectCommand():
                self._refuse("reject", command, "the DAG is marked with REJECT")
            case _:
                pass

    def _node(self, command: NodeCommand, scope: Scope) -> None:
        # Not as an f-string: what nothing is put before is the same object.
        key = self._munge + command.name
        if complaint := _misplaced(command, key, scope):
            self._refuse("duplicate-node", command, complaint)
            return
        node = Node(
            name=scope.prefix + key,
            kind=command.kind,
            file=self._library.name(self._reading[-1]),
            line=command.line,
            submit=command.submit,
            dir=(posixpath.join(scope.dir, command.dir or "") if scope.dir else command.dir)
            or None,
            noop=command.noop,
            done=command.done and command.kind in _CAN_BE_DONE,
        )
        scope.add(key, node)
        if command.kind is NodeKind.SUBDAG:
            self._subdag(command, node, scope)
        else:
            self._undescribed[node.name] = PendingSubmitInfo(
                node, scope, self._reading[-1], command.inline
            )

    def _subdag(self, command: NodeCommand, node: Node, scope: Scope) -> None:
        name = command.submit or ""
        here = scope.here / (command.dir or "")
        wanted, found = self._library.find_dag(name, here, self._home, self._reading[-1].parent)
        self._out.references.add(wanted)
        inner = None
        if found is None:
            text = f"sub-DAG {shown(name)} cannot be read: its nodes are not shown"
            self._warn("missing-subdag", command, text)
        else:
            inner = self._subdags.inner(wanted, here, self._depth + 1)
            if inner is None:
                text = f"sub-DAG {shown(name)} leads back to itself: its nodes are not shown"
                self._warn("subdag-recursion", command, text)
        node.subdag = len(self._out.subdags)
        self._out.subdags.append(inner)

    def _splice(self, command: SpliceCommand, scope: Scope) -> None:
        key = f"{self._munge}{command.name}"
        if scope.taken(key):
            self._refuse("duplicate-node", command, f"{shown(key)} is already defined in the DAG")
            return
        here = scope.here / (command.dir or "")
        found = self._named_dag(command, command.file, here, f"splice {shown(command.name)}: file")
        if found is None:
            return
        inner = Scope(
            here,
            prefix=f"{scope.prefix}{key}{SCOPE_SIGN}",
            dir=posixpath.join(scope.dir, command.dir or ""),
        )
        scope.splices[key] = inner
        self._scopes.append(inner)
        self._library.spend(_SPLICE_WORK)
        self._file(*found, inner)
        inner.complete()
        self._library.spend(len(inner.lifted))

    # --- the second pass: all else -------------------------------------------------------

    def _second_pass(self, command: DagCommand, scope: Scope) -> None:
        match command:
            case EdgeCommand():
                self._edges(command, scope)
            case PinCommand():
                self._pin(command, scope)
            case NodeModifier():
                self._modify(command, scope)
            case ConnectCommand():
                self._connect(command, scope)
            case IncludeCommand(file=file):
                if found := self._named_dag(command, file, scope.here, "include file"):
                    self._file(*found, scope)
                    scope.flat = True
            case _:
                pass

    def _edges(self, command: EdgeCommand, scope: Scope) -> None:
        parents = self._ends(command, scope, parents=True)
        children = self._ends(command, scope, parents=False)
        self._library.spend(len(parents) + len(children))
        if len(parents) > 1 and len(children) > 1:
            join = self._join(command, scope)
            graph.connect(parents, [join], weak=command.weak)
            graph.connect([join], children)  # a join node cannot fail: this half is never weak
        else:
            graph.connect(parents, children, weak=command.weak)

    def _ends(self, command: EdgeCommand, scope: Scope, *, parents: bool) -> list[Node]:
        """The nodes that one side of PARENT … CHILD … means, each once."""
        found: dict[str, Node] = {}
        unknown = []
        for name in command.parents if parents else command.children:
            key = self._munge + name
            if (splice := scope.splices.get(key)) is not None:
                if scope.flat:
                    text = f"splice {shown(name)} is not known any more behind an INCLUDE"
                    self._warn("splice-node", command, text)
                ends = splice.leaves if parents else splice.roots
                self._library.spend(len(ends))
                found |= {node.name: node for node in ends}
            elif (node := scope.find(key)) is None:
                unknown.append(shown(name))
            elif node.kind in graph.APART:
                text = f"{node.kind.name} node {shown(name)} cannot have dependencies"
                self._refuse("dependency", command, text)
            else:
                self._within_a_splice(command, key, scope)
                found[node.name] = node
        if unknown:
            side = "parent" if parents else "child"
            self._refuse("unknown-node", command, f"unknown {side} {_list(unknown)}")
        return list(found.values())

    def _join(self, command: DagCommand, scope: Scope) -> Node:
        self._joins += 1
        key = f"{graph.JOIN_NAME}{self._joins}"
        file = self._library.name(self._reading[-1])
        join = Node(f"{scope.prefix}{key}", NodeKind.JOIN, file, command.line, noop=True)
        scope.add(key, join)
        return join

    def _pin(self, command: PinCommand, scope: Scope) -> None:
        node = scope.find(f"{self._munge}{command.node}")
        if node is None:
            self._refuse("unknown-node", command, f"unknown node {shown(command.node)}")
            return
        pins = scope.pins_out if command.out else scope.pins_in
        pins.setdefault(command.number, []).append(node)

    def _connect(self, command: ConnectCommand, scope: Scope) -> None:
        parent = scope.splices.get(f"{self._munge}{command.parent}")
        child = scope.splices.get(f"{self._munge}{command.child}")
        if parent is None or child is None:
            name = command.parent if parent is None else command.child
            self._refuse("unknown-node", command, f"there is no splice {shown(name)}")
            return
        pins = parent.pins_out.keys()
        if not pins or pins != child.pins_in.keys() or max(pins) != len(pins):
            text = (
                f"outgoing pins of {shown(command.parent)} and incoming pins of "
                f"{shown(command.child)} do not match"
            )
            self._refuse("pins", command, text)
            return
        for number in pins:
            ends, starts = parent.pins_out[number], child.pins_in[number]
            self._library.spend(len(ends) * len(starts))
            graph.connect(ends, starts)
        self._library.spend(len(child.lifted))
        if orphans := graph.roots(child.lifted):
            text = f"node {shown(orphans[0].name)} has no parent: add PIN_IN or PARENT"
            self._refuse("pins", command, text)

    def _modify(self, command: NodeModifier, scope: Scope) -> None:
        if command.node.upper() == ALL_NODES:
            if isinstance(command, DoneCommand):
                self._refuse("unknown-node", command, "ALL_NODES cannot be used with DONE")
                return
            self._library.spend(len(scope.nodes))
            for node in scope.nodes.values():
                if node.kind is not NodeKind.FINAL and applies(command, node):
                    self._apply(command, node)
            return
        named = scope.find(self._munge + command.node)
        if named is None:
            self._refuse("unknown-node", command, f"unknown node {shown(command.node)}")
        elif not applies(command, named):
            text = f"{named.kind.name} node {shown(command.node)} cannot have {keyword(command)}"
            self._warn("node-kind", command, text)
        else:
            self._within_a_splice(command, self._munge + command.node, scope)
            self._apply(command, named)

    def _within_a_splice(self, command: DagCommand, key: str, scope: Scope) -> None:
        """A node inside a splice becomes known when the file is read to its end, not before."""
        if key not in scope.nodes and not scope.flat:
            text = f"{shown(key)} is a node inside a splice: it is not known yet"
            self._warn("splice-node", command, text)

    def _apply(self, command: NodeModifier, node: Node) -> None:
        apply(command, node)
        if isinstance(command, VarsCommand) and (waiting := self._undescribed.get(node.name)):
            waiting.place(command)


def _misplaced(command: NodeCommand, key: str, scope: Scope) -> str | None:
    if scope.taken(key):
        return f"{shown(key)} is already defined in the DAG"
    if command.kind is NodeKind.FINAL and scope.prefix:
        return "a spliced DAG cannot have a FINAL node"
    if command.kind in _ONCE and command.kind in scope.kinds:
        return f"there is already a {command.kind.name} node"
    return None


def _seen_from(home: Path, folder: Path) -> str:
    """``folder`` relative to ``home``, empty where they are the same."""
    return "" if folder == home else os.path.relpath(folder, home)


def _chain(names: list[str]) -> str:
    text = " → ".join(shown(name) for name in names[:_CYCLE_SHOWN])
    return text if len(names) <= _CYCLE_SHOWN else f"{text} → …"


def _list(names: list[str]) -> str:
    text = ", ".join(names[:_CYCLE_SHOWN])
    return text if len(names) <= _CYCLE_SHOWN else f"{text}, …"
