"""DAG files → one workflow: two passes, splices, includes, sub-DAGs, ALL_NODES, edges.

Source followed: ``DagProcessor`` in DAGMan's ``parse.cpp`` (25.x) and ``dag.cpp``.

Kinds of problems, besides those of ``dagfile.py`` ("syntax", "unknown-command"). Errors,
because DAGMan refuses the DAG: "missing-file" (the DAG itself, a splice, an include),
"recursion", "duplicate-node", "unknown-node", "dependency", "pins", "reject", "cycle",
"too-large". Warnings: "missing-submit-file", "missing-subdag", "ignored".
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from metlmon.dagman import graph
from metlmon.dagman.dagfile import (
    ALL_NODES,
    SCOPE_SIGN,
    AbortCommand,
    CategoryCommand,
    CheckedCommand,
    Command,
    ConnectCommand,
    DagFile,
    DescriptionCommand,
    DoneCommand,
    EdgeCommand,
    IncludeCommand,
    JobstateCommand,
    NodeCommand,
    NodeModifier,
    PinCommand,
    Placement,
    PreSkipCommand,
    PriorityCommand,
    RejectCommand,
    RetryCommand,
    ScriptCommand,
    ScriptKind,
    SpliceCommand,
    StatusFileCommand,
    VarsCommand,
    parse_dag,
)
from metlmon.dagman.dagtext import shown
from metlmon.dagman.records import Node, NodeKind, Problem, Script, Workflow
from metlmon.dagman.submit import Description, parse_description, submission

Read = Callable[[Path], bytes]

#: Splices in splices, sub-DAGs in sub-DAGs: no real DAG goes nearly as deep.
_DEEPEST = 40

#: Nodes made, edges drawn and ALL_NODES applied, together, for one call. Real DAGs of 10,000
#: nodes need a twentieth of it; a few lines of nested splices could ask for more than any
#: memory holds.
_MOST_WORK = 3_000_000


class _TooLarge(Exception):
    pass


def load_workflow(paths: Sequence[Path], read: Read) -> Workflow:
    """The workflow of one DAGMan, from the DAG file or files of its command line.

    ``read`` gives the bytes of a file and raises OSError where there is none; it is the only
    access to files, and is asked for whatever path the DAG names, so it should refuse what is
    no regular file. DAGMan's working directory is taken to be that of the first path. Names
    are looked for where DAGMan would look, then beside the DAG file that names them: a copied
    directory has none of the original paths. Never raises; what is wrong is in ``problems``.
    """
    if not paths:
        raise ValueError("load_workflow needs the path of at least one DAG file")
    return _Library(read).workflow(list(paths), paths[0].parent, depth=0)


@dataclass(slots=True)
class _Scope:
    """One DAG or splice while it is read. Names in it are as its own commands write them."""

    here: Path
    prefix: str = ""
    dir: str = ""
    nodes: dict[str, Node] = field(default_factory=dict)
    splices: dict[str, _Scope] = field(default_factory=dict)
    descriptions: dict[str, Description] = field(default_factory=dict)
    pins_in: dict[int, list[Node]] = field(default_factory=dict)
    pins_out: dict[int, list[Node]] = field(default_factory=dict)
    roots: list[Node] = field(default_factory=list)
    leaves: list[Node] = field(default_factory=list)

    def find(self, name: str) -> Node | None:
        """A node of this scope, or one inside a splice by its full name ``S+node``."""
        scope, rest = self, name
        while (node := scope.nodes.get(rest)) is None:
            head, sign, rest = rest.partition(SCOPE_SIGN)
            if not sign or (inner := scope.splices.get(head)) is None:
                return None
            scope = inner
        return node

    def all_nodes(self) -> Iterator[Node]:
        """Its own nodes, then its splices', in the order DAGMan lifts them."""
        yield from self.nodes.values()
        for splice in self.splices.values():
            yield from splice.all_nodes()


@dataclass(frozen=True, slots=True)
class _Described:
    """A node that still waits for its submit description."""

    node: Node
    scope: _Scope
    file: Path
    inline: Description | None
    appended: set[str]


class _Library:
    """The files one call has read, and how much work it may still do."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._dags: dict[Path, DagFile] = {}
        self._submits: dict[Path, Description] = {}
        self._workflows: dict[Path, Workflow | None] = {}
        self._missing: set[Path] = set()
        self._work = _MOST_WORK

    def spend(self, amount: int) -> None:
        self._work -= amount
        if self._work < 0:
            raise _TooLarge

    def bytes(self, path: Path) -> bytes | None:
        if path in self._missing:
            return None
        try:
            return self._read(path)
        except (OSError, ValueError):  # ValueError: a NUL in the name
            self._missing.add(path)
            return None

    def dag(self, path: Path) -> DagFile | None:
        if path not in self._dags:
            data = self.bytes(path)
            if data is None:
                return None
            self._dags[path] = parse_dag(data, path.name)
        return self._dags[path]

    def first_dag(self, places: list[Path]) -> tuple[Path, DagFile] | None:
        for path in places:
            if (dag := self.dag(path)) is not None:
                return path, dag
        return None

    def submit(self, path: Path) -> Description | None:
        if path not in self._submits:
            data = self.bytes(path)
            if data is None:
                return None

            def include(name: str) -> list[str] | None:
                for place in _places(name, path.parent):
                    if (more := self.bytes(place)) is not None:
                        return more.decode("utf-8", "replace").split("\n")
                return None

            lines = data.decode("utf-8", "replace").split("\n")
            self._submits[path] = parse_description(lines, include)
        return self._submits[path]

    def workflow(self, paths: list[Path], here: Path, depth: int) -> Workflow:
        return _Weaver(self, paths, here, depth).weave()

    def subdag(self, path: Path, here: Path, depth: int) -> Workflow | None:
        """The sub-DAG at ``path``, read once; None when it is missing or lies in itself."""
        if path not in self._workflows:
            self._workflows[path] = None
            if depth < _DEEPEST and self.dag(path) is not None:
                self._workflows[path] = self.workflow([path], here, depth)
        return self._workflows[path]


def _places(name: str, *folders: Path) -> list[Path]:
    """Where to look for ``name``: in each folder, at last by its bare name in the last one."""
    places = [Path(os.path.normpath(folder / name)) for folder in folders]
    places.append(folders[-1] / (posixpath.basename(name) or name))
    return list(dict.fromkeys(places))


class _Weaver:
    """Puts one workflow together."""

    def __init__(self, library: _Library, paths: list[Path], here: Path, depth: int) -> None:
        self.library = library
        self.paths = paths
        self.depth = depth
        self.top = _Scope(here)
        self.out = Workflow(paths[0])
        self.munge = ""
        self.joins = 0
        self.described: dict[str, _Described] = {}
        self.submit_files: list[Path] = []
        self.reading: list[Path] = []
        self.file = paths[0]
        self.unread: set[str] = set()

    # --- files -------------------------------------------------------------------------

    def weave(self) -> Workflow:
        out = self.out
        try:
            for index, path in enumerate(self.paths):
                # DAGMan tells apart what several files on one command line call the same.
                self.munge = f"{index}." if len(self.paths) > 1 else ""
                self._top_file(path)
        except _TooLarge:
            text = "the DAG has more nodes and edges than can be held; the rest is left out"
            out.problems.append(Problem("too-large", self.paths[0].name, None, text, error=True))
        out.nodes = {node.name: node for node in self.top.all_nodes()}
        if names := graph.cycle(out.nodes):
            text = f"the nodes wait for each other in a circle: {_chain(names)}"
            out.problems.append(Problem("cycle", self.paths[0].name, None, text, error=True))
        self._describe()
        out.files += self.submit_files
        return out

    def _top_file(self, path: Path) -> None:
        dag = self.library.dag(path)
        if dag is None:
            text = "the DAG file cannot be read"
            self.out.problems.append(Problem("missing-file", path.name, None, text, error=True))
            return
        self.out.commands += len(dag.commands)
        self._file(path, dag, self.top)

    def _file(self, path: Path, dag: DagFile, scope: _Scope) -> None:
        """Weaves one file into ``scope``: what makes nodes first, all else after."""
        outer, self.file = self.file, path
        self.reading.append(path)
        if path not in self.out.files:
            self.out.files.append(path)
            self.out.problems += dag.problems
        for command in dag.commands:
            self._first_pass(command, scope)
        for command in dag.commands:
            self._second_pass(command, scope)
        self.reading.pop()
        self.file = outer

    def _problem(self, kind: str, command: Command, text: str, *, error: bool = True) -> None:
        self.out.problems.append(Problem(kind, self.file.name, command.line, text, error))

    def _named_dag(
        self, command: Command, name: str, here: Path, what: str
    ) -> tuple[Path, DagFile] | None:
        """The DAG file that a command names, None (and a problem) when it cannot be used."""
        places = _places(name, here, self.file.parent)
        found = self.library.first_dag(places)
        self.out.references.add(places[0] if found is None else found[0])
        if found is None:
            self._problem("missing-file", command, f"{what} {shown(name)} cannot be read")
        elif found[0] in self.reading or len(self.reading) > _DEEPEST:
            self._problem("recursion", command, f"{what} {shown(name)} leads back to itself")
            return None
        return found

    # --- the first pass: what makes nodes ------------------------------------------------

    def _first_pass(self, command: Command, scope: _Scope) -> None:
        match command:
            case NodeCommand():
                self._node(command, scope)
            case DescriptionCommand(name=name, description=description):
                scope.descriptions.setdefault(name, description)
            case SpliceCommand():
                self._splice(command, scope)
            case StatusFileCommand(file=file):
                self.out.node_status_file = self.out.node_status_file or file
            case JobstateCommand(file=file):
                self.out.jobstate_log = self.out.jobstate_log or file
            case RejectCommand():
                self._problem("reject", command, "the DAG is marked with REJECT: remove the line")
            case _:
                pass

    def _node(self, command: NodeCommand, scope: _Scope) -> None:
        key = f"{self.munge}{command.name}"
        if key in scope.nodes or key in scope.splices:
            self._problem("duplicate-node", command, f"{shown(key)} is already defined in the DAG")
            return
        if complaint := self._misplaced(command, scope):
            self._problem("duplicate-node", command, complaint)
            return
        self.library.spend(1)
        directory = posixpath.join(scope.dir, command.dir or "")
        node = Node(
            name=f"{scope.prefix}{key}",
            kind=command.kind,
            file=self.file.name,
            line=command.line,
            submit=command.submit,
            dir=directory or None,
            noop=command.noop,
            done=command.done and command.kind in {NodeKind.JOB, NodeKind.SUBDAG},
        )
        scope.nodes[key] = node
        if command.kind is NodeKind.SUBDAG:
            self._subdag(command, node, scope)
        else:
            waiting = _Described(node, scope, self.file, command.inline, set())
            self.described[node.name] = waiting

    def _misplaced(self, command: NodeCommand, scope: _Scope) -> str | None:
        if command.kind is NodeKind.FINAL and scope.prefix:
            return "a spliced DAG cannot have a FINAL node"
        if command.kind not in {NodeKind.FINAL, NodeKind.PROVISIONER}:
            return None
        if any(node.kind is command.kind for node in scope.nodes.values()):
            return f"there is already a {command.kind.name} node"
        return None

    def _subdag(self, command: NodeCommand, node: Node, scope: _Scope) -> None:
        name = command.submit or ""
        here = scope.here / (command.dir or "")
        places = _places(name, here, self.file.parent)
        found = self.library.first_dag(places)
        self.out.references.add(places[0] if found is None else found[0])
        inner = None
        if found is None:
            text = f"sub-DAG {shown(name)} cannot be read: its nodes are not shown"
            self._problem("missing-subdag", command, text, error=False)
        else:
            inner = self.library.subdag(found[0], here, self.depth + 1)
            if inner is None:
                text = f"sub-DAG {shown(name)} leads back to itself: its nodes are not shown"
                self._problem("recursion", command, text, error=False)
        node.subdag = len(self.out.subdags)
        self.out.subdags.append(inner)

    def _splice(self, command: SpliceCommand, scope: _Scope) -> None:
        key = f"{self.munge}{command.name}"
        if key in scope.nodes or key in scope.splices:
            self._problem("duplicate-node", command, f"{shown(key)} is already defined in the DAG")
            return
        here = scope.here / (command.dir or "")
        found = self._named_dag(command, command.file, here, f"splice {shown(command.name)}: file")
        if found is None:
            return
        inner = _Scope(
            here,
            prefix=f"{scope.prefix}{key}{SCOPE_SIGN}",
            dir=posixpath.join(scope.dir, command.dir or ""),
        )
        scope.splices[key] = inner
        self._file(*found, inner)
        inner.roots = graph.roots(inner.all_nodes())
        inner.leaves = graph.leaves(inner.all_nodes())

    # --- the second pass: all else -------------------------------------------------------

    def _second_pass(self, command: Command, scope: _Scope) -> None:
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
                found = self._named_dag(command, file, scope.here, "include file")
                if found is not None:
                    self._file(*found, scope)
            case _:
                pass

    def _ends(self, command: EdgeCommand, scope: _Scope, *, parents: bool) -> list[Node]:
        """The nodes one side of PARENT … CHILD … means, each once, in the order written."""
        found: dict[str, Node] = {}
        unknown = []
        for name in command.parents if parents else command.children:
            key = f"{self.munge}{name}"
            if (splice := scope.splices.get(key)) is not None:
                ends = splice.leaves if parents else splice.roots
                self.library.spend(len(ends))
                found |= {node.name: node for node in ends}
            elif (node := scope.find(key)) is None:
                unknown.append(shown(name))
            elif node.kind in graph.APART:
                text = f"{node.kind.name} node {shown(name)} cannot have dependencies"
                self._problem("dependency", command, text)
            else:
                found[node.name] = node
        if unknown:
            side = "parent" if parents else "child"
            self._problem("unknown-node", command, f"unknown {side} {', '.join(unknown)}")
        return list(found.values())

    def _edges(self, command: EdgeCommand, scope: _Scope) -> None:
        parents = self._ends(command, scope, parents=True)
        children = self._ends(command, scope, parents=False)
        self.library.spend(len(parents) + len(children) + 1)
        if len(parents) > 1 and len(children) > 1:
            join = self._join(command, scope)
            graph.connect(parents, [join], weak=command.weak)
            graph.connect([join], children)
        else:
            graph.connect(parents, children, weak=command.weak)

    def _join(self, command: Command, scope: _Scope) -> Node:
        self.joins += 1
        key = f"{graph.JOIN_NAME}{self.joins}"
        name = f"{scope.prefix}{key}"
        join = Node(name, NodeKind.JOIN, self.file.name, command.line, noop=True)
        scope.nodes[key] = join
        return join

    def _pin(self, command: PinCommand, scope: _Scope) -> None:
        node = scope.find(f"{self.munge}{command.node}")
        if node is None:
            self._problem("unknown-node", command, f"unknown node {shown(command.node)}")
            return
        pins = scope.pins_out if command.out else scope.pins_in
        pins.setdefault(command.number, []).append(node)

    def _connect(self, command: ConnectCommand, scope: _Scope) -> None:
        parent = scope.splices.get(f"{self.munge}{command.parent}")
        child = scope.splices.get(f"{self.munge}{command.child}")
        if parent is None or child is None:
            name = command.parent if parent is None else command.child
            self._problem("unknown-node", command, f"there is no splice {shown(name)}")
            return
        pins = range(1, max(parent.pins_out, default=0) + 1)
        if (
            not pins
            or set(parent.pins_out) != set(child.pins_in)
            or len(pins) != len(child.pins_in)
        ):
            text = (
                f"the outgoing pins of {shown(command.parent)} and the incoming pins of "
                f"{shown(command.child)} do not match"
            )
            self._problem("pins", command, text)
            return
        for number in pins:
            ends, starts = parent.pins_out[number], child.pins_in[number]
            self.library.spend(len(ends) * len(starts))
            graph.connect(ends, starts)
        if orphans := graph.roots(child.all_nodes()):
            text = f"node {shown(orphans[0].name)} has no parent: add PIN_IN or PARENT"
            self._problem("pins", command, text)

    def _modify(self, command: NodeModifier, scope: _Scope) -> None:
        if command.node.upper() == ALL_NODES:
            if isinstance(command, DoneCommand):
                self._problem("unknown-node", command, "ALL_NODES cannot be used with DONE")
                return
            self.library.spend(len(scope.nodes))
            for node in scope.nodes.values():
                if node.kind is not NodeKind.FINAL:
                    self._apply(command, node)
            return
        node_or_none = scope.find(f"{self.munge}{command.node}")
        if node_or_none is None:
            self._problem("unknown-node", command, f"unknown node {shown(command.node)}")
            return
        self._apply(command, node_or_none)

    def _apply(self, command: NodeModifier, node: Node) -> None:
        match command:
            case ScriptCommand(kind=kind, command=line):
                _set_script(node, kind, Script(line))
            case RetryCommand(retries=retries, unless_exit=code):
                node.retries, node.unless_exit = retries, code
            case AbortCommand(on=status, returns=code):
                node.abort_on, node.abort_return = status, code
            case VarsCommand():
                self._set_vars(command, node)
            case PriorityCommand(priority=priority):
                node.priority = priority
            case PreSkipCommand(code=code):
                node.pre_skip = code
            case CategoryCommand(category=category):
                node.category = category
            case DoneCommand() if node.kind in {NodeKind.JOB, NodeKind.SUBDAG}:
                node.done = True
            case DoneCommand():
                text = f"{node.kind.name} node {shown(node.name)} cannot be marked DONE"
                self._problem("ignored", command, text, error=False)
            case CheckedCommand() | _:
                pass

    def _set_vars(self, command: VarsCommand, node: Node) -> None:
        waiting = self.described.get(node.name)
        for key, value in command.pairs:
            if name := _attribute(key):
                node.attributes[name] = value
                continue
            # Out and in again: macros are case-insensitive, and the last one written wins.
            node.vars.pop(key, None)
            node.vars[key] = value
            if waiting is None:
                continue
            if command.placement is Placement.APPEND:
                waiting.appended.add(key)
            else:
                waiting.appended.discard(key)

    # --- submit descriptions ---------------------------------------------------------------

    def _describe(self) -> None:
        """Reads each node's description and puts down what it says for that node."""
        shared: dict[str, Description] = {}
        for waiting in self.described.values():
            for name, description in waiting.scope.descriptions.items():
                shared.setdefault(name, description)
        for waiting in self.described.values():
            if (found := self._description(waiting, shared)) is not None:
                _fill_in(waiting, found)

    def _description(
        self, waiting: _Described, shared: dict[str, Description]
    ) -> Description | None:
        node, scope = waiting.node, waiting.scope
        if waiting.inline is not None or node.submit is None:
            return waiting.inline
        named = scope.descriptions.get(node.submit) or shared.get(node.submit)
        if named is not None:
            return named
        places = _places(node.submit, self.top.here / (node.dir or ""), waiting.file.parent)
        for place in places:
            if (description := self.library.submit(place)) is not None:
                if place not in self.submit_files:
                    self.submit_files.append(place)
                return description
        if not node.noop and node.submit not in self.unread:
            self.unread.add(node.submit)
            text = f"submit file {shown(node.submit)} cannot be read: its log is not known"
            self.out.problems.append(
                Problem("missing-submit-file", node.file, node.line, text, error=False)
            )
        return None


def _chain(names: list[str]) -> str:
    most = 6  # a sentence, not a page
    text = " → ".join(shown(name) for name in names[:most])
    return text if len(names) <= most else f"{text} → …"


def _attribute(key: str) -> str | None:
    """The job attribute that a VARS name stands for (``+x``, ``My.x``), None for a macro."""
    if key.startswith("+"):
        return key[1:]
    if key.lower().startswith("my."):
        return key[len("my.") :]
    return None


def _set_script(node: Node, kind: ScriptKind, script: Script) -> None:
    match kind:
        case ScriptKind.PRE:
            node.pre = script
        case ScriptKind.POST:
            node.post = script
        case ScriptKind.HOLD:
            node.hold = script


def _fill_in(waiting: _Described, description: Description) -> None:
    node = waiting.node
    before = {k: v for k, v in node.vars.items() if k not in waiting.appended}
    after = {k: v for k, v in node.vars.items() if k in waiting.appended}
    said = submission(description, {"JOB": node.name, **before}, after)
    folder = node.dir or ""
    node.log = said.log and posixpath.join(folder, said.log)
    node.output = said.output and posixpath.join(folder, said.output)
    node.error = said.error and posixpath.join(folder, said.error)
    node.request_gpus = said.request_gpus
    node.queue_count = said.queue_count
