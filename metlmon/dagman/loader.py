"""Loads DAGs, splices, includes and sub-DAGs into one workflow (two passes).

Source followed: ``DagProcessor`` in DAGMan's ``parse.cpp`` (25.x) and ``dag.cpp``.

Kinds of problems, besides those of a file's text ("syntax", and "unknown-command", which is a
warning here). Errors, since DAGMan rejects the DAG: "missing-file" (the DAG itself, a splice,
an include), "recursion", "duplicate-node", "unknown-node", "dependency", "pins", "reject",
"cycle", "too-large". Warnings: "missing-submit-file", "missing-subdag", "subdag-recursion", and
two that DAGMan rejects but HTCondor's condor_dag_checker accepts: "splice-node" (a command names
a node inside a splice) and "node-kind" (a command does not apply to nodes of this kind).
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

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
    VarsPlacement,
    applies,
    apply,
    keyword,
)
from metlmon.dagman.graph import Scope
from metlmon.dagman.lexer import shown, shown_file
from metlmon.dagman.parser import DagFile, parse_dag
from metlmon.dagman.records import Node, NodeKind, Problem, Script, Workflow
from metlmon.dagman.submit_description import (
    Description,
    Submission,
    parse_description,
    string_value,
    submission,
)
from metlmon.redact import hide_value, redact_secrets, visible
from metlmon.remote.paths import join, normalize, there

# --- files: each is found, read and parsed once -------------------------------------------------

Read = Callable[[Path], bytes]

#: Nodes, commands, edges and applications of ALL_NODES together, for one load. A real DAG of
#: 10,000 nodes needs 5 % of it; a few lines of nested splices could exhaust any memory.
MAX_WORK = 2_000_000


class TooLarge(Exception):
    """The DAG needs more work than :data:`MAX_WORK`."""


class FileCache:
    """Reads files by ``read`` and names them in problems relative to a directory of ``homes``.

    These are the directory of the DAG file, and the working directory of its DAGMan. The cache is
    not in a reference cycle, which would keep all commands after loading.
    """

    def __init__(self, read: Read, *homes: Path) -> None:
        self._read = read
        self._homes = homes
        self.base = homes[0]
        self._work_left = MAX_WORK
        self._names: dict[Path, str] = {}
        self._dags: dict[Path, DagFile | None] = {}
        self._paths: dict[tuple[str, tuple[Path, ...]], Path] = {}
        self._submits: dict[Path, Description | None] = {}

    def spend(self, amount: int) -> None:
        """Subtract ``amount`` from the remaining work; raise TooLarge below zero."""
        self._work_left -= amount
        if self._work_left < 0:
            raise TooLarge

    def name(self, path: Path) -> str:
        """The file's name in problems: relative to the first of ``homes`` that contains it."""
        if path not in self._names:
            names = (str(path.relative_to(h)) for h in self._homes if path.is_relative_to(h))
            self._names[path] = next(names, None) or there(path)
        return self._names[path]

    def dag(self, path: Path) -> DagFile | None:
        """The commands of a DAG file, None when it cannot be read."""
        if path not in self._dags:
            data = self._read_bytes(path)
            self._dags[path] = None if data is None else parse_dag(data, self.name(path))
        return self._dags[path]

    def find_dag(self, name: str, *folders: Path) -> tuple[Path, DagFile | None]:
        """The path and commands of a DAG file in ``folders``; else the first path, None."""
        key = (name, folders)
        if key not in self._paths:
            candidates = places(name, *folders)
            readable = (path for path in candidates if self.dag(path) is not None)
            self._paths[key] = next(readable, candidates[0])
        path = self._paths[key]
        return path, self.dag(path)

    def submit(self, path: Path) -> Description | None:
        """The description in a submit file, None when it cannot be read."""
        if path not in self._submits:
            lines = self._read_lines(path)
            self._submits[path] = None if lines is None else self._parse_submit(path, lines)
        return self._submits[path]

    def _parse_submit(self, path: Path, lines: list[str]) -> Description:
        def include(name: str) -> tuple[str, list[str]] | None:
            for included in places(name, path.parent, *self._homes):
                if (content := self._read_lines(included)) is not None:
                    return self.name(included), content
            return None

        return parse_description(lines, include, self.name(path))

    def _read_lines(self, path: Path) -> list[str] | None:
        data = self._read_bytes(path)
        return None if data is None else data.decode("utf-8", "replace").split("\n")

    def _read_bytes(self, path: Path) -> bytes | None:
        try:
            return self._read(path)
        except (OSError, ValueError):  # ValueError: a NUL in the name
            return None


def places(name: str, *folders: Path) -> list[Path]:
    """Candidate paths of the file ``name``: in each folder, then by base name in each."""
    base = posixpath.basename(name) or name
    paths = [join(folder, name) for name in (name, base) for folder in folders]
    paths += moved(name, folders[-1])
    return list(dict.fromkeys(normalize(path) for path in paths))


def moved(name: str, folder: Path) -> list[Path]:
    """Where the file of an absolute ``name`` may be in a copy: near a DAG file in ``folder``.

    A copy keeps the last parts of its paths: below the directory of the DAG file, or those above.
    """
    parts = PurePosixPath(name).parts
    if not parts or parts[0] != "/":
        return []
    tails = [posixpath.join(*parts[-n:]) for n in (2, 3) if len(parts) > n]
    return [join(folder, up + tail) for tail in tails for up in ("", "../", "../../")]


# --- submit descriptions of nodes --------------------------------------------------

#: Assignments made and characters expanded for all nodes: 1,000 for each of 100,000 nodes.
_MAX_WORK = 100_000_000


class PendingSubmitInfo(Struct):
    """A node whose submit description is not resolved yet.

    ``file`` defines the node, ``inline`` is its inline description, if any, and ``appended``
    are the names of its VARS that override the description (APPEND).
    """

    node: Node
    scope: Scope
    file: Path
    inline: Description | None
    appended: set[str] | None = None

    def record_placement(self, command: VarsCommand) -> None:
        """Record whether these VARS are set before or after the description."""
        names = {name for name, _ in command.pairs}
        if command.placement is VarsPlacement.APPEND:
            if self.appended is None:
                self.appended = set()
            self.appended |= names
        elif self.appended is not None:
            self.appended -= names


class SubmitInfoResolver:
    """Finds submit descriptions and sets the fields of the nodes that depend on them."""

    def __init__(self, files: FileCache, home: Path, scopes: Iterable[Scope]) -> None:
        self._files = files
        self._home = home
        #: Names are shared among all splices; the first description of a name wins.
        self._shared: dict[str, Description] = {}
        for scope in scopes:
            for name, description in scope.descriptions.items():
                self._shared.setdefault(name, description)
        self._descriptions: dict[tuple[str, str, Path], Description | None] = {}
        self._submissions: dict[Submission, Submission] = {}
        """One object for all nodes with equal ones."""
        self._folders: dict[Path, Path] = {}
        self._work_left = _MAX_WORK
        self._limit_reported = False
        self.files: dict[Path, None] = {}
        self.problems: list[Problem] = []

    def resolve(self, pending: PendingSubmitInfo) -> Description | None:
        """Set the fields that the submit description determines; returns it, or None."""
        description = self._description(pending)
        if description is None:
            return None
        if self._work_left <= 0:
            if not self._limit_reported:
                self._limit_reported = True
                text = "submit descriptions are too long for so many nodes"
                self._warn("too-large", pending.node, f"{text}: of the rest no log is known")
            return description
        node, appended = pending.node, pending.appended
        before = {"JOB": node.name, **node.vars}
        after = {key: before.pop(key) for key in node.vars if key in appended} if appended else {}
        info = submission(description, before, after)
        self._work_left -= info.work
        node.described = True
        node.log = _in_folder(node.dir, info.log)
        node.output_parts = _parts(_in_folder(node.dir, info.output))
        node.error_parts = _parts(_in_folder(node.dir, info.error))
        named = (v for k, v in node.attributes.items() if k.lower() == "targetannexname")
        annex = string_value(next(named, None))
        determined = replace(info.submission, annex=annex) if annex else info.submission
        node.submission = self._submissions.setdefault(determined, determined)
        return description

    def _description(self, pending: PendingSubmitInfo) -> Description | None:
        node = pending.node
        if node.submit is None:
            return pending.inline
        own = pending.scope.descriptions.get(node.submit)
        if named := own or self._shared.get(node.submit):
            return named
        dag_folder = self._folders.get(pending.file)
        if dag_folder is None:
            dag_folder = self._folders[pending.file] = pending.file.parent
        key = (node.submit, node.dir or "", dag_folder)
        if key not in self._descriptions:
            self._descriptions[key] = self._read(node, *key)
        return self._descriptions[key]

    def _read(self, node: Node, name: str, folder: str, dag_folder: Path) -> Description | None:
        for path in places(name, join(self._home, folder), self._home, dag_folder):
            if (description := self._files.submit(path)) is not None:
                self.files[path] = None
                return description
        if not node.noop:
            base = there(self._files.base)
            searched = (dag_folder, self._home, join(self._home, folder))
            folders = dict.fromkeys(os.path.relpath(there(path), base) for path in searched)
            text = f"submit file {shown_file(name)} cannot be read"
            if list(folders) != ["."]:
                others = ", ".join(shown_file(each) for each in folders if each != ".")
                beside = "beside the DAG file and " if "." in folders else ""
                text += f" {beside}in {others} from the DAG file's directory"
            text += ": its log is not known"
            self._warn("missing-submit-file", node, text)
        return None

    def _warn(self, kind: str, node: Node, text: str) -> None:
        self.problems.append(Problem(kind, node.file, node.line, text, error=False))


def _parts(name: str | None) -> tuple[str, ...] | None:
    return None if name is None else (name,)


def _in_folder(folder: str | None, name: str | None) -> str | None:
    """A job's file relative to DAGMan's directory; the job is submitted in ``folder``."""
    return name if folder is None or name is None else posixpath.join(folder, name)


# --- workflows ----------------------------------------------------------------------------------

#: Nesting depth of splices and sub-DAGs: no real DAG comes close.
_MAX_DEPTH = 40

#: Cost of a splice besides its commands and nodes, in units of ``FileCache.spend``.
_SPLICE_WORK = 100

#: Names of output files that are longer are not split: a search for each VAR would take too long.
_LONG_NAME = 400

#: Node names that one message lists.
_NAMES_SHOWN = 6

#: Commands that the first pass skips: nearly all of them.
_SECOND_PASS_ONLY = (NodeModifier, EdgeCommand)

_ONCE = (NodeKind.FINAL, NodeKind.PROVISIONER)
_CAN_BE_DONE = (NodeKind.JOB, NodeKind.SUBDAG)


def load_workflow(
    paths: Sequence[Path],
    read: Read,
    *,
    directory: Path | None = None,
    use_dag_dir: bool = False,
    keep_descriptions: bool = False,
    redact: bool = True,
) -> Workflow:
    """Load the workflow of one DAGMan from the DAG files of its command line.

    ``read`` returns the bytes of a file or raises OSError; it is the only access to files. It
    is called with any path that the DAG names, so it should reject anything but regular
    files. ``directory``: DAGMan's working directory, that of the first path if not
    known. ``use_dag_dir``: names in a DAG file are relative to its own directory. Files are
    searched where DAGMan would look, then next to the DAG file that names them: in a copied
    directory the original paths do not exist. ``log``, ``output`` and ``error`` of the nodes
    are relative to the working directory. Problems of the files are reported in
    ``problems``; nothing is raised for them. ``keep_descriptions``: keep the submit descriptions,
    which may contain secrets. ``redact``: remove secrets from VARS, attributes and scripts of the
    nodes, and make VARS and attributes visible; file names in scripts stay exact.
    """
    tops = [normalize(path) for path in paths]
    home = normalize(directory) if directory is not None else tops[0].parent
    files = FileCache(read, tops[0].parent, home)
    options = _Options(files, use_dag_dir, keep_descriptions, redact, dict.fromkeys(tops))
    return _WorkflowLoader(options, tops, home, depth=0).load()


class _Options(Struct):
    """The shared state of all workflows of one load; ``loaded``: sub-DAG files, each once."""

    files: FileCache
    use_dag_dir: bool
    keep_descriptions: bool
    redact: bool
    loaded: dict[Path, Workflow | None] = {}


class _WorkflowLoader:
    def __init__(self, options: _Options, paths: list[Path], home: Path, depth: int) -> None:
        self._options = options
        self._files = options.files
        self._paths = paths
        self._depth = depth
        self._home = home
        self._top = Scope(home)
        self._scopes = [self._top]
        self._workflow = Workflow(paths[0], home)
        self._problems: dict[Problem, None] = {}  # a splice used twice reports each only once
        self._munge = ""
        self._join_count = 0
        self._pending: dict[str, PendingSubmitInfo] = {}
        self._reading: list[Path] = []
        self._loaded_files: dict[Path, None] = {}

    def load(self) -> Workflow:
        workflow = self._workflow
        try:
            for index, path in enumerate(self._paths):
                # DAGMan prefixes the names of several files on one command line.
                self._munge = f"{index}." if len(self._paths) > 1 else ""
                if self._options.use_dag_dir:
                    # The nodes of each file are in its own directory.
                    self._top.directory = path.parent
                    folder = path.parent
                    is_home = folder == self._home
                    self._top.dir = "" if is_home else os.path.relpath(folder, self._home)
                dag = self._files.dag(path)
                if dag is None:
                    self._report_file("missing-file", path, "the DAG file cannot be read")
                    continue
                self._workflow.commands += len(dag.commands)
                self._load_file(path, dag, self._top)
        except TooLarge:
            text = "more nodes and edges than can be held: the rest is left out"
            self._report_file("too-large", self._paths[0], text)
        workflow.nodes = {node.name: node for node in self._top.all_nodes()}
        graph.share_edges(workflow.nodes.values())
        if names := graph.cycle(workflow.nodes):
            text = f"nodes wait for each other in a circle: {_listed(map(shown, names), ' → ')}"
            self._report_file("cycle", self._paths[0], text)
        resolver = SubmitInfoResolver(self._files, self._home, self._scopes)
        for pending in self._pending.values():
            description = resolver.resolve(pending)
            if self._options.keep_descriptions and description is not None:
                workflow.descriptions[pending.node.name] = description
                if pending.appended:
                    workflow.appended[pending.node.name] = pending.appended
        if self._options.redact:
            _redact_nodes(workflow.nodes.values())
        _share_file_names(workflow.nodes.values())
        _share_names_of_vars(workflow.nodes.values())
        workflow.problems = [*self._problems, *resolver.problems]
        tops = [path for path in self._paths if path in self._loaded_files]
        workflow.files = list(dict.fromkeys([*tops, *self._loaded_files, *resolver.files]))
        return workflow

    # --- files -------------------------------------------------------------------------

    def _load_file(self, path: Path, dag: DagFile, scope: Scope) -> None:
        """Load one file into ``scope``: first the nodes, then everything else."""
        self._files.spend(1 + len(dag.commands))
        self._reading.append(path)
        self._loaded_files[path] = None
        self._problems |= dict.fromkeys(dag.problems)
        for command in dag.commands:
            if not isinstance(command, _SECOND_PASS_ONLY):
                self._first_pass(command, scope)
        for command in dag.commands:
            if not isinstance(command, NodeCommand):
                self._second_pass(command, scope)
        self._reading.pop()

    def _find_dag(
        self, command: DagCommand, name: str, directory: Path, label: str
    ) -> tuple[Path, DagFile] | None:
        """The DAG file that a command names; None (and a problem) if it is unusable."""
        path, dag = self._files.find_dag(name, directory, self._home, self._reading[-1].parent)
        self._workflow.references.add(path)
        if dag is None:
            self._error("missing-file", command, f"{label} {shown_file(name)} cannot be read")
        elif path in self._reading:
            self._error("recursion", command, f"{label} {shown(name)} leads back to itself")
            return None
        elif len(self._reading) > _MAX_DEPTH:
            self._error("too-large", command, f"{label} {shown(name)} is nested too deep")
            return None
        return None if dag is None else (path, dag)

    # --- problems ------------------------------------------------------------------------

    def _report_file(self, kind: str, path: Path, text: str) -> None:
        problem = Problem(kind, self._files.name(path), None, text, error=True)
        self._problems[problem] = None

    def _error(self, kind: str, command: DagCommand, text: str, *, error: bool = True) -> None:
        name = self._files.name(self._reading[-1])
        self._problems[Problem(kind, name, command.line, text, error)] = None

    def _warn(self, kind: str, command: DagCommand, text: str) -> None:
        self._error(kind, command, text, error=False)

    # --- the first pass: nodes -----------------------------------------------------------

    def _first_pass(self, command: DagCommand, scope: Scope) -> None:
        match command:
            case NodeCommand():
                self._add_node(command, scope)
            case DescriptionCommand(name=name, description=description):
                scope.descriptions.setdefault(name, description)
            case SpliceCommand():
                self._load_splice(command, scope)
            case StatusFileCommand(file=file) if scope is self._top:
                self._workflow.node_status_file = self._workflow.node_status_file or file
            case JobstateCommand(file=file) if scope is self._top:
                self._workflow.jobstate_log = self._workflow.jobstate_log or file
            case RejectCommand():
                self._error("reject", command, "the DAG is marked with REJECT")
            case _:
                pass

    def _add_node(self, command: NodeCommand, scope: Scope) -> None:
        # Not an f-string: with an empty prefix the same string object is shared.
        key = self._munge + command.name
        if message := _placement_error(command, key, scope):
            self._error("duplicate-node", command, message)
            return
        node = Node(
            name=scope.prefix + key,
            kind=command.kind,
            file=self._files.name(self._reading[-1]),
            line=command.line,
            submit=command.submit,
            dir=(posixpath.join(scope.dir, command.dir or "") if scope.dir else command.dir)
            or None,
            noop=command.noop,
            # DAGMan keeps a list of these for each DAG, and reads that of the DAG itself alone.
            done=command.done and command.kind in _CAN_BE_DONE and not scope.prefix,
        )
        scope.add(key, node)
        if command.kind is NodeKind.SUBDAG:
            self._add_subdag(command, node, scope)
        else:
            self._pending[node.name] = PendingSubmitInfo(
                node, scope, self._reading[-1], command.inline
            )

    def _add_subdag(self, command: NodeCommand, node: Node, scope: Scope) -> None:
        name = command.submit or ""
        directory = join(scope.directory, command.dir or "")
        path, dag = self._files.find_dag(name, directory, self._home, self._reading[-1].parent)
        self._workflow.references.add(path)
        subdag = None
        if dag is None:
            text = f"sub-DAG {shown_file(name)} cannot be read: its nodes are not shown"
            self._warn("missing-subdag", command, text)
        else:
            subdag = self._load_subdag(path, directory)
            if subdag is None:
                text = f"sub-DAG {shown(name)} leads back to itself: its nodes are not shown"
                self._warn("subdag-recursion", command, text)
        node.subdag = len(self._workflow.subdags)
        self._workflow.subdags.append(subdag)

    def _load_subdag(self, path: Path, home: Path) -> Workflow | None:
        """The sub-DAG in ``path``; None when it contains itself, or is too deep."""
        loaded, depth = self._options.loaded, self._depth + 1
        if path not in loaded:
            loaded[path] = None
            if depth <= _MAX_DEPTH:
                loaded[path] = _WorkflowLoader(self._options, [path], home, depth).load()
        return loaded[path]

    def _load_splice(self, command: SpliceCommand, scope: Scope) -> None:
        key = f"{self._munge}{command.name}"
        if scope.has_name(key):
            self._error("duplicate-node", command, f"{shown(key)} is already defined in the DAG")
            return
        directory = join(scope.directory, command.dir or "")
        label = f"splice {shown(command.name)}: file"
        file = self._find_dag(command, command.file, directory, label)
        if file is None:
            return
        inner = Scope(
            directory,
            prefix=f"{scope.prefix}{key}{SCOPE_SIGN}",
            dir=posixpath.join(scope.dir, command.dir or ""),
        )
        scope.splices[key] = inner
        self._scopes.append(inner)
        self._files.spend(_SPLICE_WORK)
        self._load_file(*file, inner)
        inner.complete()
        self._files.spend(len(inner.lifted))

    # --- the second pass: everything else ------------------------------------------------

    def _second_pass(self, command: DagCommand, scope: Scope) -> None:
        match command:
            case EdgeCommand():
                self._add_edges(command, scope)
            case PinCommand():
                self._add_pin(command, scope)
            case NodeModifier():
                self._modify_nodes(command, scope)
            case ConnectCommand():
                self._connect_splices(command, scope)
            case IncludeCommand(file=file):
                if dag := self._find_dag(command, file, scope.directory, "include file"):
                    self._load_file(*dag, scope)
                    scope.flat = True
            case _:
                pass

    def _add_edges(self, command: EdgeCommand, scope: Scope) -> None:
        parents = self._edge_nodes(command, scope, parents=True)
        children = self._edge_nodes(command, scope, parents=False)
        self._files.spend(len(parents) + len(children))
        if len(parents) > 1 and len(children) > 1:
            join = self._add_join(command, scope)
            graph.connect(parents, [join], weak=command.weak)
            graph.connect([join], children)  # a join node cannot fail: this half is never weak
        else:
            graph.connect(parents, children, weak=command.weak)

    def _edge_nodes(self, command: EdgeCommand, scope: Scope, *, parents: bool) -> list[Node]:
        """The nodes on one side of PARENT … CHILD …, without duplicates."""
        nodes: dict[str, Node] = {}
        unknown = []
        for name in command.parents if parents else command.children:
            key = self._munge + name
            if (splice := scope.splices.get(key)) is not None:
                if scope.flat:
                    text = f"splice {shown(name)} is not known any more behind an INCLUDE"
                    self._warn("splice-node", command, text)
                ends = splice.leaves if parents else splice.roots
                self._files.spend(len(ends))
                nodes |= {node.name: node for node in ends}
            elif (node := scope.find(key)) is None:
                unknown.append(shown(name))
            elif node.kind in graph.APART:
                text = f"{node.kind.name} node {shown(name)} cannot have dependencies"
                self._error("dependency", command, text)
            else:
                self._warn_within_splice(command, key, scope)
                nodes[node.name] = node
        if unknown:
            side = "parent" if parents else "child"
            self._error("unknown-node", command, f"unknown {side} {_listed(unknown, ', ')}")
        return list(nodes.values())

    def _add_join(self, command: DagCommand, scope: Scope) -> Node:
        self._join_count += 1
        key = f"{graph.JOIN_NAME}{self._join_count}"
        file = self._files.name(self._reading[-1])
        join = Node(f"{scope.prefix}{key}", NodeKind.JOIN, file, command.line, noop=True)
        scope.add(key, join)
        return join

    def _add_pin(self, command: PinCommand, scope: Scope) -> None:
        node = scope.find(f"{self._munge}{command.node}")
        if node is None:
            self._error("unknown-node", command, f"unknown node {shown(command.node)}")
            return
        pins = scope.pins_out if command.out else scope.pins_in
        pins.setdefault(command.number, []).append(node)

    def _connect_splices(self, command: ConnectCommand, scope: Scope) -> None:
        parent = scope.splices.get(f"{self._munge}{command.parent}")
        child = scope.splices.get(f"{self._munge}{command.child}")
        if parent is None or child is None:
            name = command.parent if parent is None else command.child
            self._error("unknown-node", command, f"there is no splice {shown(name)}")
            return
        pins = parent.pins_out.keys()
        if not pins or pins != child.pins_in.keys() or max(pins) != len(pins):
            text = (
                f"outgoing pins of {shown(command.parent)} and incoming pins of "
                f"{shown(command.child)} do not match"
            )
            self._error("pins", command, text)
            return
        for number in pins:
            ends, starts = parent.pins_out[number], child.pins_in[number]
            self._files.spend(len(ends) * len(starts))
            graph.connect(ends, starts)
        self._files.spend(len(child.lifted))
        if orphans := graph.roots(child.lifted):
            text = f"node {shown(orphans[0].name)} has no parent: add PIN_IN or PARENT"
            self._error("pins", command, text)

    def _modify_nodes(self, command: NodeModifier, scope: Scope) -> None:
        if command.node.upper() == ALL_NODES:
            if isinstance(command, DoneCommand):
                self._error("unknown-node", command, "ALL_NODES cannot be used with DONE")
                return
            self._files.spend(len(scope.nodes))
            for node in scope.nodes.values():
                if node.kind is not NodeKind.FINAL and applies(command, node):
                    self._apply(command, node)
            return
        target = scope.find(self._munge + command.node)
        if target is None:
            self._error("unknown-node", command, f"unknown node {shown(command.node)}")
        elif not applies(command, target):
            text = f"{target.kind.name} node {shown(command.node)} cannot have {keyword(command)}"
            self._warn("node-kind", command, text)
        else:
            self._warn_within_splice(command, self._munge + command.node, scope)
            self._apply(command, target)

    def _warn_within_splice(self, command: DagCommand, key: str, scope: Scope) -> None:
        """Warn about a node inside a splice: it is defined only at the end of the file."""
        if key not in scope.nodes and not scope.flat:
            text = f"{shown(key)} is a node inside a splice: it is not known yet"
            self._warn("splice-node", command, text)

    def _apply(self, command: NodeModifier, node: Node) -> None:
        apply(command, node)
        if isinstance(command, VarsCommand) and (pending := self._pending.get(node.name)):
            pending.record_placement(command)


def _placement_error(command: NodeCommand, key: str, scope: Scope) -> str | None:
    if scope.has_name(key):
        return f"{shown(key)} is already defined in the DAG"
    if command.kind is NodeKind.FINAL and scope.prefix:
        return "a spliced DAG cannot have a FINAL node"
    if command.kind in _ONCE and command.kind in scope.kinds:
        return f"there is already a {command.kind.name} node"
    return None


def _listed(names: Iterable[str], separator: str) -> str:
    """The first names, and "…" if there are more."""
    first = list(islice(names, _NAMES_SHOWN + 1))
    return separator.join((*first[:_NAMES_SHOWN], *("…" for _ in first[_NAMES_SHOWN:])))


def _redact_nodes(nodes: Iterable[Node]) -> None:
    """Redact secrets in VARS, attributes and scripts of nodes; make VARS and attributes visible.

    Call this after submit macros have been expanded with the original values, so that a log
    whose name merely looks like a secret is still found.
    """
    # Most pairs occur in many nodes.
    cached: dict[tuple[str, str], tuple[str, str]] = {}
    scripts: dict[Script, Script] = {}
    for node in nodes:
        changed = False
        for pair in node.vars.items():
            shown = cached.get(pair)
            if shown is None:
                shown = cached[pair] = (visible(pair[0]), visible(hide_value(*pair)))
            changed = changed or shown != pair
        if changed:
            node.vars = dict(cached[pair] for pair in node.vars.items())
        if node.attributes:
            node.attributes = {
                visible(k): visible(hide_value(k, v)) for k, v in node.attributes.items()
            }
        if node.pre or node.post or node.hold:
            node.pre, node.post, node.hold = (
                script and (scripts.get(script) or scripts.setdefault(script, _redacted(script)))
                for script in (node.pre, node.post, node.hold)
            )


def _share_file_names(nodes: Iterable[Node]) -> None:
    """Replace values of VARS in names of output files by references, which many nodes share.

    Call this after the VARS have been redacted: names of files are exact.
    """
    newest: dict[tuple[str | None, str], tuple[str, ...]] = {}
    for node in nodes:
        for field in ("output_parts", "error_parts"):
            parts, key = getattr(node, field), (node.submit, field)
            if parts is None or len(parts[0]) > _LONG_NAME:
                continue
            if key not in newest or node.join_parts(newest[key]) != parts[0]:
                newest[key] = _split_at_values(parts[0], {"JOB": node.name, **node.vars})
            setattr(node, field, newest[key])


def _split_at_values(name: str, values: Mapping[str, str]) -> tuple[str, ...]:
    """Literal text and names of ``values`` by turns; of two values the longer one is replaced."""
    parts = [name]
    for variable in sorted(filter(values.get, values), key=lambda each: -len(values[each])):
        split: list[str] = []
        for index, part in enumerate(parts):
            literals = [part] if index % 2 else part.split(values[variable])
            split += literals[:1]
            for literal in literals[1:]:
                split += variable, literal
        parts = split
    return tuple(parts)


def _share_names_of_vars(nodes: Iterable[Node]) -> None:
    """Let the VARS of all nodes be dicts that share their names (PEP 412, key-sharing dicts)."""
    holder = type("Vars", (), {})
    for node in nodes:
        if node.vars:
            shared = vars(holder())
            # Not of the dict itself: that would copy its table of names.
            shared.update(node.vars.items())
            node.vars = shared


def _redacted(script: Script) -> Script:
    command = redact_secrets(script.command)
    return script if command == script.command else replace(script, command=command)
