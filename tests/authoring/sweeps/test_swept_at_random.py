"""Random sweep files: what they make is held against what a few lines of arithmetic say they must.

The expected nodes, edges and variables are made here from the generated structure, with fractions
and loops; nothing of metlmon is asked for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metlmon.authoring.graph import Graph
from metlmon.authoring.request import Request
from metlmon.authoring.runs import run_plans
from metlmon.authoring.sweeps.expand import expand
from metlmon.authoring.write_dag import dag_text
from metlmon.dagman.loader import load_workflow

OWN = {"run", "run_uuid", "epochs", "random_seed", "ResourceName", "continue_from_checkpoint"}
"""What metlmon gives beside the file; ``epoch`` is computed here."""

WORDS = ("adam", "sgd", "a, b", 'say "x"', "back\\slash", "it's", "$(epoch)", "{run}")


@dataclass
class Variable:
    """A swept variable: its line, and its values: numbers, or words."""

    name: str
    line: str
    values: list[Fraction] | list[str]


@dataclass
class Template:
    """A chain of ``epochs``, some evaluated, in a file of its own. ``levels``: variable v given
    by the node itself, the run, a region of the last epoch, all nodes."""

    epochs: int
    evaluated: set[int]
    levels: set[str]
    spelled: bool

    def text(self, names: list[str]) -> str:
        result = " ".join(f"{name}={{{name}}}" for name in names)
        lines = ["# one run"]
        for epoch in range(self.epochs):
            node = f"{{run}}-train_epoch{epoch}"
            if epoch:
                lines.append(f"PARENT {{run}}-train_epoch{epoch - 1} CHILD {node}")
            given = f"epoch={epoch + 1} {result}" if self.spelled else result
            lines.append(f"vars {node} \\\n  {given}")
            if epoch in self.evaluated:
                lines.append(f"Parent {node} Child {{run}}-eval_epoch{epoch + 1}")
        first, last = "{run}-train_epoch0", f"{{run}}-train_epoch{self.epochs - 1}"
        if "node" in self.levels:
            lines.append(f"VARS {first} v=node")
        if "run" in self.levels:
            lines.append("VARS {run} v=run-{run}")
        if "region" in self.levels:
            lines += [f"REGION tail {{ {first}", f"{last} }}", "VARS tail v=region"]
        if "all" in self.levels:
            lines.append("VARS ALL_NODES v='all of them'")
        return "\n".join(lines) + "\n"

    def value(self, run: str, epoch: int, *, evaluates: bool) -> str | None:
        """What v must be."""
        if "node" in self.levels and epoch == 0 and not evaluates:
            return "node"
        if "run" in self.levels:
            return f"run-{run}"
        if "region" in self.levels and epoch in (0, self.epochs - 1) and not evaluates:
            return "region"
        return "all of them" if "all" in self.levels else None


@dataclass
class Group:
    name: str
    variables: list[Variable]
    how: str
    template: Template
    report_of: dict[str, str] = field(default_factory=dict)

    def points(self) -> list[tuple[Fraction | str, ...]]:
        lists: list[list[Fraction] | list[str]] = [each.values for each in self.variables]
        return list(product(*lists) if self.how == "product" else zip(*lists, strict=True))

    def runs(self) -> list[str]:
        count = len(self.points())
        return [f"{self.name}{index:0{len(str(count - 1))}d}" for index in range(count)]

    def ends(self, run: str) -> list[str]:
        """Its last nodes: the last epoch unless that is evaluated, and all evaluations."""
        chain = self.template
        found = [f"{run}-eval_epoch{epoch + 1}" for epoch in chain.evaluated]
        if chain.epochs - 1 not in chain.evaluated:
            found.append(f"{run}-train_epoch{chain.epochs - 1}")
        return found


@dataclass
class Sweep:
    groups: list[Group]
    before: list[tuple[str, str]]

    def workflow(self) -> str:
        lines = ["JOB init init.sub", "JOB report report.sub NOOP"]
        for each in self.groups:
            names = ", ".join(variable.name for variable in each.variables)
            lines.append(f"GEN SUBDAG {each.name} {each.name}.subdag {names} from {each.how}")
            lines += ["   " + variable.line for variable in each.variables]
            lines += [f'VARS {each.name} {key}="{value}"' for key, value in each.report_of.items()]
        lines += [f"PARENT {one} CHILD {other}" for one, other in self.before]
        return "\n".join(lines) + "\n"

    def nodes(self) -> set[str]:
        found = {"init", "report"}
        for each in self.groups:
            for run in each.runs():
                found |= {f"{run}-train_epoch{e}" for e in range(each.template.epochs)}
                found |= {f"{run}-eval_epoch{e + 1}" for e in each.template.evaluated}
        return found

    def edges(self) -> set[tuple[str, str]]:
        found = set()
        for each in self.groups:
            for run in each.runs():
                chain = [f"{run}-train_epoch{e}" for e in range(each.template.epochs)]
                found |= set(pairwise(chain))
                found |= {(chain[e], f"{run}-eval_epoch{e + 1}") for e in each.template.evaluated}
        for one, other in self.before:
            found |= set(product(self._side(one, last=True), self._side(other, last=False)))
        return found

    def _side(self, name: str, *, last: bool) -> list[str]:
        for each in self.groups:
            if each.name == name:
                runs = each.runs()
                if not last:
                    return [f"{run}-train_epoch0" for run in runs]
                return [end for run in runs for end in each.ends(run)]
        return [name]

    def variables(self) -> dict[str, dict[str, Fraction | str]]:
        """What every node of a run gets from the file, and its epoch."""
        found: dict[str, dict[str, Fraction | str]] = {}
        for each in self.groups:
            for run, point in zip(each.runs(), each.points(), strict=True):
                swept = {v.name: value for v, value in zip(each.variables, point, strict=True)}
                for epoch in range(each.template.epochs):
                    for evaluates in (False, True):
                        if evaluates and epoch not in each.template.evaluated:
                            continue
                        word = f"eval_epoch{epoch + 1}" if evaluates else f"train_epoch{epoch}"
                        result = {**swept, **each.report_of, "epoch": str(epoch + 1)}
                        v = each.template.value(run, epoch, evaluates=evaluates)
                        if v is not None:
                            result["v"] = v
                        found[f"{run}-{word}"] = result
        return found


# --- how they are drawn -------------------------------------------------------------------------


def printed(number: int, places: int) -> str:
    whole, rest = divmod(abs(number), 10**places)
    digits = f"{whole}.{rest:0{places}d}" if places else str(whole)
    return f"-{digits}" if number < 0 else digits


def quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@st.composite
def variables(draw: st.DrawFn, name: str, count: int) -> Variable:
    if draw(st.booleans()):
        places = draw(st.integers(0, 3))
        first = draw(st.integers(-500, 500))
        step = draw(st.integers(1, 99)) * draw(st.sampled_from([1, -1]))
        numbers = [first + index * step for index in range(count)]
        begin, end, by = (printed(number, places) for number in (first, numbers[-1], step))
        values = [Fraction(number, 10**places) for number in numbers]
        return Variable(name, f"{begin} to {end} by {by}", values)
    words = draw(st.lists(st.sampled_from(WORDS), min_size=count, max_size=count))
    return Variable(name, ", ".join(map(quoted, words)), words)


@st.composite
def templates(draw: st.DrawFn) -> Template:
    epochs = draw(st.integers(1, 4))
    return Template(
        epochs,
        draw(st.sets(st.integers(0, epochs - 1))),
        draw(st.sets(st.sampled_from(["node", "run", "region", "all"]))),
        draw(st.booleans()),
    )


@st.composite
def groups(draw: st.DrawFn, name: str) -> Group:
    how = draw(st.sampled_from(["", "zip", "product"]))
    size = st.integers(1, 4)
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    same = draw(st.integers(1, 12))
    swept = [draw(variables(each, draw(size) if how == "product" else same)) for each in names]
    result = draw(st.dictionaries(st.sampled_from(["lr", "depth"]), st.sampled_from(["1", "x y"])))
    return Group(name, swept, how, draw(templates()), result)


@st.composite
def sweeps(draw: st.DrawFn) -> Sweep:
    found = [draw(groups(name)) for name in ["flow", "tune_", "x-"][: draw(st.integers(1, 3))]]
    order = ["init", *(each.name for each in found), "report"]
    pairs = [(a, b) for at, a in enumerate(order) for b in order[at + 1 :]]
    before = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=4))
    return Sweep(found, before)


# --- and held against what is made of them ------------------------------------------------------


def asked(folder: Path, sweep: Sweep) -> Request:
    (folder / "w.dag").write_text(sweep.workflow())
    for each in sweep.groups:
        names = [variable.name for variable in each.variables]
        (folder / f"{each.name}.subdag").write_text(each.template.text(names))
    return Request(template="trainer", directory=folder / "new", source=folder / "w.dag")


def same(value: str, expected: Fraction | str) -> bool:
    return Fraction(value) == expected if isinstance(expected, Fraction) else value == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(sweeps())
def test_nodes_edges_and_variables_are_those_that_arithmetic_says(
    tmp_path: Path, sweep: Sweep
) -> None:
    made = expand(asked(tmp_path, sweep))
    graph = made.graph
    names = [node.name for node in graph.nodes]
    assert len(names) == len(set(names))
    assert set(names) == sweep.nodes()
    assert len(graph.edges) == len(set(graph.edges))
    assert set(graph.edges) == sweep.edges()
    runs = run_plans(graph)
    assert [run.name for run in runs] == [run for g in sweep.groups for run in g.runs()]
    assert len({run.uuid for run in runs}) == len(runs)
    expected = sweep.variables()
    for node in graph.nodes:
        result = {each.name: each.value for each in node.variables if each.name not in OWN}
        wanted = expected.get(node.name, {})
        assert result.keys() == wanted.keys(), node.name
        assert all(same(result[name], wanted[name]) for name in wanted), (result, wanted)
    reads_back(graph)


def reads_back(graph: Graph) -> None:
    """The text of the DAG says all of it again."""
    text = dag_text(graph, "ensemble", "a sweep").encode()

    def read(path: Path) -> bytes:
        return text if path.name == "ensemble.dag" else b"queue\n"

    workflow = load_workflow([Path("/planned/ensemble.dag")], read)
    assert [problem for problem in workflow.problems if problem.error] == []
    assert [*workflow.nodes] == [node.name for node in graph.nodes]
    edges = {(name, child) for name, node in workflow.nodes.items() for child in node.children}
    assert edges == set(graph.edges)
    for node in graph.nodes:
        assert workflow.nodes[node.name].vars == {v.name: v.value for v in node.variables}
        assert workflow.nodes[node.name].submit == node.submit
