"""VARS of a sweep file → what each node is told, with the place that tells it."""

from __future__ import annotations

from collections.abc import Sequence

from metlmon.authoring.graph import Precedence, VariableValue
from metlmon.authoring.sweeps.commands import SweepCommand, VarsLine
from metlmon.authoring.sweeps.names import SweepNames
from metlmon.authoring.sweeps.node_drafts import NodeDraft
from metlmon.authoring.sweeps.placeholders import PlaceholderText, read_text
from metlmon.authoring.sweeps.template import known_names
from metlmon.authoring.sweeps.training_chain import TRAINS
from metlmon.dagman import NodeKind
from metlmon.dagman.commands import ALL_NODES


class VarsAssigner:
    """Tells nodes, from the widest to the nearest: of one level, what is told last counts."""

    def __init__(self, names: SweepNames, commands: Sequence[SweepCommand]) -> None:
        self._names = names
        self._gives = [each for each in commands if isinstance(each, VarsLine)]
        self._texts: dict[tuple[int, str], PlaceholderText] = {}

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

    def _of(self, name: str) -> list[VarsLine]:
        return [give for give in self._gives if give.name.upper() == name]

    def _swept(self) -> None:
        """The swept values themselves, of what trains and evaluates."""
        for run in self._names.runs.values():
            where = {each.name: each.where for each in run.template.sweep.variables}
            given = [VariableValue(n, v, Precedence.RUN, where[n]) for n, v in run.point.items()]
            for node in run.nodes.values():
                if node.role in TRAINS:
                    node.given += given

    def _templates(self) -> None:
        for run in self._names.runs.values():
            for part in run.template.parts:
                node = run.nodes[part.key]
                for gift in part.gifts:
                    value = gift.value.fill(run.filling)
                    given = VariableValue(
                        gift.name, value, gift.level, gift.where, append=gift.append
                    )
                    node.given.append(given)

    def _workflow(self, gives: Sequence[VarsLine]) -> None:
        for give in gives:
            level = self._level(give.name)
            for node in self._names.meant(give.name, give.where):
                if level is Precedence.ALL and node.kind is NodeKind.FINAL:
                    continue
                pairs = [(name, self.fill(node, raw, give.where)) for name, raw in give.pairs]
                node.given += [
                    VariableValue(name, value, level, give.where, append=give.append)
                    for name, value in pairs
                ]

    def _level(self, name: str) -> Precedence:
        if _is_all(name):
            return Precedence.ALL
        if name in self._names.regions:
            return Precedence.REGION
        return (
            Precedence.RUN
            if name in self._names.groups or name in self._names.runs
            else Precedence.NODE
        )

    def fill(self, node: NodeDraft, raw: str, where: str) -> str:
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
