"""VARS of a sweep file → what each node is told, with the place that tells it."""

from __future__ import annotations

from collections.abc import Sequence

from metlmon.authoring.graph import Given, Level
from metlmon.authoring.sweeps.commands import Command, Give
from metlmon.authoring.sweeps.making import Making
from metlmon.authoring.sweeps.names import Names
from metlmon.authoring.sweeps.placeholders import Text, read_text
from metlmon.authoring.sweeps.template import known_names
from metlmon.authoring.sweeps.trainings import TRAINS
from metlmon.dagman import NodeKind
from metlmon.dagman.commands import ALL_NODES


class Telling:
    """Tells nodes, from the widest to the nearest: of one level, what is told last counts."""

    def __init__(self, names: Names, commands: Sequence[Command]) -> None:
        self._names = names
        self._gives = [each for each in commands if isinstance(each, Give)]
        self._texts: dict[tuple[int, str], Text] = {}

    def tell(self) -> None:
        """Fills in ``given`` of every node. Raises PlanError."""
        self._swept()
        self._workflow(self._of(ALL_NODES))
        self._templates()
        names = self._names
        for named in (names.regions, names.groups, names.runs):
            self._workflow([give for give in self._gives if give.name in named])
        near = {ALL_NODES, *names.regions, *names.groups, *names.runs}
        self._workflow(
            [give for give in self._gives if give.name not in near and not _is_all(give.name)]
        )

    def _of(self, name: str) -> list[Give]:
        return [give for give in self._gives if give.name.upper() == name]

    def _swept(self) -> None:
        """The swept values themselves, of what trains and evaluates."""
        for run in self._names.runs.values():
            where = {each.name: each.where for each in run.template.sweep.variables}
            given = [Given(n, v, Level.RUN, where[n]) for n, v in run.point.items()]
            for node in run.nodes.values():
                if node.role in TRAINS:
                    node.given += given

    def _templates(self) -> None:
        for run in self._names.runs.values():
            for part in run.template.parts:
                node = run.nodes[part.key]
                for gift in part.gifts:
                    value = gift.value.fill(run.filling)
                    given = Given(gift.name, value, gift.level, gift.where, append=gift.append)
                    node.given.append(given)

    def _workflow(self, gives: Sequence[Give]) -> None:
        for give in gives:
            level = self._level(give.name)
            for node in self._names.meant(give.name, give.where):
                if level is Level.ALL and node.kind is NodeKind.FINAL:
                    continue
                pairs = [(name, self.fill(node, raw, give.where)) for name, raw in give.pairs]
                node.given += [
                    Given(name, value, level, give.where, append=give.append)
                    for name, value in pairs
                ]

    def _level(self, name: str) -> Level:
        if _is_all(name):
            return Level.ALL
        if name in self._names.regions:
            return Level.REGION
        return Level.RUN if name in self._names.groups or name in self._names.runs else Level.NODE

    def fill(self, node: Making, raw: str, where: str) -> str:
        """What a line of the workflow says of a node, with the places of its run filled in. Raises
        PlanError where there is no such place."""
        if "{" not in raw:
            return raw
        if node.run is None:
            return read_text(raw, (), where).fill({})
        template = node.run.template
        key = (id(template), raw)
        if key not in self._texts:
            self._texts[key] = read_text(raw, known_names(template.generate), where)
        return self._texts[key].fill(node.run.filling)


def _is_all(name: str) -> bool:
    return name.upper() == ALL_NODES
