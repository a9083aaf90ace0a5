"""A template file and the GEN line that asks for it → the nodes that every run of it has.

All is found once, by the names as they are written; a run only fills them in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from metlmon.authoring.graph import Precedence
from metlmon.authoring.request import PlanError, SweepRequest, SweptVariable
from metlmon.authoring.sweeps.commands import (
    Declare,
    Describe,
    Generate,
    GlobalCommand,
    ParentChild,
    RegionOf,
    Splice,
    SweepCommand,
    SweepNodeCommand,
    VarsLine,
)
from metlmon.authoring.sweeps.parser import listed
from metlmon.authoring.sweeps.placeholders import (
    OWN,
    PlaceholderText,
    has_places,
    nearest,
    read_text,
)
from metlmon.dagman.commands import ALL_NODES
from metlmon.dagman.graph import APART
from metlmon.dagman.lexer import shown
from metlmon.frozen import frozen

RUN: Final = "{run}"
"""As the name of VARS in a template: all nodes of the run."""

Kind = TypeVar("Kind", bound=SweepCommand)


@frozen
class TemplateVars:
    """A variable that is to be given, ``level``, ``where`` and ``append`` as of the Given that it
    becomes."""

    name: str
    value: PlaceholderText
    level: Precedence
    where: str
    append: bool


@frozen
class TemplateNode:
    """A node of every run. ``declared``: its JOB line, if it has one, and the file named there."""

    key: str
    name: PlaceholderText
    where: str
    declared: Declare | None
    submit: PlaceholderText | None
    gifts: tuple[TemplateVars, ...]


@frozen
class TemplateCommand:
    """A command for the nodes of every run: of one part, or of all (``key`` None)."""

    key: str | None
    command: SweepNodeCommand
    head: PlaceholderText
    rest: PlaceholderText

    def fill(self, filling: Mapping[str, str]) -> SweepNodeCommand:
        """The command of one run."""
        head, rest = self.head.fill(filling), self.rest.fill(filling)
        return replace(self.command, head=head, rest=rest)


@frozen
class Edge:
    """Between parts, or a part and a node of the workflow."""

    parent: PlaceholderText
    child: PlaceholderText
    where: str
    weak: bool
    outside: bool


@frozen
class RunTemplate:
    """``firsts`` and ``lasts``: parts that wait for none of the run, and that none waits for.
    ``edges`` in the order of the file, each once. ``ordered``: keys, parents first; ``before``:
    the parents of each."""

    generate: Generate
    sweep: SweepRequest
    parts: tuple[TemplateNode, ...]
    edges: tuple[Edge, ...]
    ordered: tuple[str, ...]
    before: Mapping[str, tuple[str, ...]]
    firsts: tuple[str, ...]
    lasts: tuple[str, ...]
    sayings: tuple[TemplateCommand, ...]
    whole: tuple[tuple[GlobalCommand, PlaceholderText], ...]
    descriptions: tuple[Describe, ...]


def sweep_of(generate: Generate) -> SweepRequest:
    """The sweep that a GEN line asks for."""
    pairs = zip(generate.names, generate.lines, strict=True)
    swept = tuple(
        SweptVariable(name, tuple(each.text for each in values), where)
        for name, (where, values) in pairs
    )
    return SweepRequest(generate.group, swept, generate.how, generate.where)


def labels_of(generate: Generate) -> dict[str, dict[str, str]]:
    """By each variable that has labels: what each of its values is called, itself if nothing."""
    found = {}
    for name, (_, values) in zip(generate.names, generate.lines, strict=True):
        if any(each.label for each in values) and f"{name}_label" not in generate.names:
            found[f"{name}_label"] = {each.text: each.label or each.text for each in values}
    return found


def known_names(generate: Generate) -> frozenset[str]:
    """What may stand in braces in the template."""
    return frozenset({*generate.names, *labels_of(generate), *OWN})


def read_template(generate: Generate, commands: list[SweepCommand]) -> RunTemplate:
    """The template that a GEN line names, from what its file says. Raises PlanError."""
    return _TemplateCompiler(generate, commands).template()


def shared(describe: Describe, known: Collection[str]) -> Describe:
    """A description as it stands in the DAG, once for all runs. Raises PlanError where it holds
    what each run would fill in; ``known``: the names of that."""
    text = read_text(describe.text, known, describe.where)
    if text.names:
        name = text.names[0]
        macro = "run_uuid" if name == "uuid" else name
        raise PlanError(
            f"{describe.where}: {{{name}}} in the description {shown(describe.name)}, which all "
            f"runs share; use $({macro}), which VARS give"
        )
    return replace(describe, text=text.fill({}))


class _TemplateCompiler:
    def __init__(self, generate: Generate, commands: list[SweepCommand]) -> None:
        self._generate = generate
        self._known = known_names(generate)
        self._commands = commands
        self._keys: dict[str, str] = {}
        self._declared: dict[str, Declare] = {}
        self._regions: dict[str, tuple[str, ...]] = {}
        self._before: dict[str, dict[str, None]] = {}
        self._followed: set[str] = set()
        self._edges: dict[tuple[str, str], Edge] = {}

    def template(self) -> RunTemplate:
        self._refuse_others()
        self._find_nodes()
        self._find_edges()
        self._find_regions()
        gifts = self._gifts()
        parts = tuple(
            TemplateNode(
                key=key,
                name=self._text(key, where),
                where=where,
                declared=declared,
                submit=self._text(declared.submit, declared.where) if declared else None,
                gifts=tuple(gifts[key]),
            )
            for key, where in self._keys.items()
            for declared in [self._declared.get(key)]
        )
        within = [part for part in parts if not (part.declared and part.declared.kind in APART)]
        return RunTemplate(
            generate=self._generate,
            sweep=sweep_of(self._generate),
            parts=parts,
            edges=tuple(self._edges.values()),
            ordered=self._ordered(),
            before={key: tuple(self._before.get(key, ())) for key in self._keys},
            firsts=tuple(part.key for part in within if part.key not in self._before),
            lasts=tuple(part.key for part in within if part.key not in self._followed),
            sayings=tuple(self._sayings()),
            whole=tuple(
                (each, self._text(each.text, each.where)) for each in self._of(GlobalCommand)
            ),
            descriptions=tuple(shared(each, self._known) for each in self._of(Describe)),
        )

    def _of(self, kind: type[Kind]) -> Iterator[Kind]:
        return (each for each in self._commands if isinstance(each, kind))

    def _text(self, raw: str, where: str) -> PlaceholderText:
        return read_text(raw, self._known, where)

    def _refuse_others(self) -> None:
        for command in self._commands:
            if isinstance(command, Generate):
                raise PlanError(
                    f"{command.where}: GEN within a template ({self._generate.where}); a run "
                    "cannot be swept again: name all variables in one GEN line of the workflow"
                )
            if isinstance(command, Splice):
                raise PlanError(
                    f"{command.where}: a template cannot hold a SPLICE, which takes no variables; "
                    "write its nodes here, or INCLUDE its file"
                )

    # --- nodes and edges ----------------------------------------------------------------------

    def _find_nodes(self) -> None:
        ordered = any(self._is_own(n) for each in self._of(ParentChild) for n in each.parents)
        for command in self._commands:
            if isinstance(command, Declare):
                if other := self._declared.get(command.name):
                    raise PlanError(
                        f"{command.where}: {shown(command.name)} is declared already "
                        f"({other.where}); take one of the lines out"
                    )
                self._declared[command.name] = command
                self._keys.setdefault(command.name, command.where)
            elif isinstance(command, ParentChild):
                for name in (*command.parents, *command.children):
                    if self._is_own(name):
                        self._keys.setdefault(name, command.where)
            elif isinstance(command, VarsLine) and not ordered and self._is_own(command.name):
                # Where nothing waits for anything, VARS are all that is said of a node.
                self._keys.setdefault(command.name, command.where)
        if not self._keys:
            raise PlanError(
                f"{self._generate.where}: {shown(self._generate.template)} has no node; write "
                "'PARENT {run}-train_epoch0 CHILD {run}-train_epoch1', or JOB lines"
            )

    def _is_own(self, name: str) -> bool:
        return name != RUN and (has_places(name) or name in self._declared)

    def _find_edges(self) -> None:
        declared = {key: each.kind for key, each in self._declared.items()}
        for command in self._of(ParentChild):
            for parent in command.parents:
                for child in command.children:
                    self._edge(parent, child, command)
            for name in (*command.parents, *command.children):
                if declared.get(name) in APART:
                    raise PlanError(
                        f"{command.where}: {shown(name)} stands outside the graph "
                        f"({self._declared[name].where}); take it out of PARENT … CHILD"
                    )

    def _edge(self, parent: str, child: str, command: ParentChild) -> None:
        within = parent in self._keys and child in self._keys
        if (parent, child) in self._edges:
            return
        self._edges[parent, child] = Edge(
            self._text(parent, command.where),
            self._text(child, command.where),
            command.where,
            command.weak,
            not within,
        )
        if within:
            self._before.setdefault(child, {})[parent] = None
            self._followed.add(parent)

    def _ordered(self) -> tuple[str, ...]:
        waiting = {key: len(self._before.get(key, ())) for key in self._keys}
        after: dict[str, list[str]] = {}
        for child, parents in self._before.items():
            for parent in parents:
                after.setdefault(parent, []).append(child)
        ready = [key for key, count in waiting.items() if not count]
        for key in ready:
            for child in after.get(key, ()):
                waiting[child] -= 1
                if not waiting[child]:
                    ready.append(child)
        if len(ready) < len(waiting):
            stuck = tuple(key for key, count in waiting.items() if count)
            where = next(
                edge.where
                for (parent, child), edge in self._edges.items()
                if parent in stuck and child in stuck
            )
            raise PlanError(
                f"{where}: nodes wait for each other in a circle ({listed(stuck)}); take one of "
                "the PARENT lines out"
            )
        return tuple(ready)

    # --- variables and all else ---------------------------------------------------------------

    def _find_regions(self) -> None:
        for region in self._of(RegionOf):
            if region.name in self._regions:
                raise PlanError(f"{region.where}: the region {region.name} is there twice")
            keys: dict[str, None] = {}
            for member in region.members:
                self._text(member, region.where)
                keys |= dict.fromkeys(self._members(member, region.where))
            self._regions[region.name] = tuple(keys)

    def _members(self, member: str, where: str) -> Iterable[str]:
        if member in self._keys:
            return (member,)
        if member in self._regions:
            return self._regions[member]
        found = [key for key in self._keys if fnmatchcase(key, member)]
        if not found:
            raise self._no_such(member, where)
        return found

    def _meant(self, name: str, where: str) -> tuple[str, ...]:
        """The parts that a command is about."""
        if name.upper() == ALL_NODES or name == RUN:
            return tuple(self._keys)
        if name in self._keys:
            return (name,)
        if name in self._regions:
            return self._regions[name]
        raise self._no_such(name, where)

    def _no_such(self, name: str, where: str) -> PlanError:
        self._text(name, where)
        near = nearest(name, (*self._keys, *self._regions))
        guess = f"; is {near} meant?" if near else f"; there are {listed(tuple(self._keys))}."
        return PlanError(
            f"{where}: {shown(name)} is no node or region of {shown(self._generate.template)}"
            f"{guess} A node is declared by 'JOB {shown(name)} file.sub'"
        )

    def _gifts(self) -> dict[str, list[TemplateVars]]:
        gifts: dict[str, list[TemplateVars]] = {key: [] for key in self._keys}
        for command in self._of(VarsLine):
            keys = self._meant(command.name, command.where)
            level = self._level(command.name)
            for name, raw in command.pairs:
                text = self._text(raw, command.where)
                gift = TemplateVars(name, text, level, command.where, command.append)
                for key in keys:
                    gifts[key].append(gift)
        return gifts

    def _level(self, name: str) -> Precedence:
        if name.upper() == ALL_NODES:
            return Precedence.ALL
        if name == RUN:
            return Precedence.RUN
        return Precedence.NODE if name in self._keys else Precedence.REGION

    def _sayings(self) -> Iterator[TemplateCommand]:
        for command in self._of(SweepNodeCommand):
            texts = [self._text(raw, command.where) for raw in (command.head, command.rest)]
            if command.name.upper() == ALL_NODES:
                yield TemplateCommand(None, command, *texts)
                continue
            for key in self._meant(command.name, command.where):
                yield TemplateCommand(key, command, *texts)


def fillings(
    generate: Generate, points: Iterable[Mapping[str, str]], marks: Collection[str]
) -> Iterator[dict[str, str]]:
    """What each run puts into the places of its template; ``marks`` stand for the uuids, which
    are made of all else."""
    labels = labels_of(generate)
    width = len(str(len(marks) - 1))
    for index, (point, mark) in enumerate(zip(points, marks, strict=True)):
        filling = dict(point)
        for name, called in labels.items():
            filling[name] = called[point[name.removesuffix("_label")]]
        yield {
            **filling,
            "run": f"{generate.group}{index:0{width}}",
            "index": str(index),
            "uuid": mark,
        }
