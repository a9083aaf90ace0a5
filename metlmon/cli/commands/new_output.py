"""What ``metlmon new`` prints: a plan, what it changes, and what a node is told."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from metlmon.authoring.diff import FileChangeKind, NodeChange, PlanDiff, VariableDiff
from metlmon.authoring.explain import LEVELS, NodeExplanation
from metlmon.authoring.graph import GraphNode, VariableValue
from metlmon.authoring.request import Plan
from metlmon.cli.commands.submit import counts, say
from metlmon.redact import hide_value
from metlmon.text.formatting import count, plain, size

if TYPE_CHECKING:
    from metlmon.stats.cost import CostEstimate

SENTENCE: Final = 300
MOST_GROUPS: Final = 12
"""Lines of what differs: many nodes mostly differ in the same way."""

HOW: Final = {"added": "+", "changed": "~", "removed": "-"}
Place = Callable[[VariableValue], str]
"""What gave a variable, in words."""

STANDS: Final = {
    FileChangeKind.WRITTEN: "not submitted yet",
    FileChangeKind.RUNNING: "a DAGMan has it",
    FileChangeKind.ENDED: "it ran before",
}


def cost_json(made: CostEstimate) -> dict[str, Any]:
    """As ``--past --json`` prints it. ``lower``, ``upper``: of the sum, in four of five cases;
    those of ``past`` are the quartiles of an epoch. ``gpus``: that an epoch asks for, of ``past``
    the least and the most that one had. ``evaluations_left_out``: there are some, which cost more.
    """
    known = made.history
    return {
        "epochs": made.epochs,
        "gpu_hours": made.hours,
        "lower": made.lower,
        "upper": made.upper,
        "seconds": made.seconds,
        "gpus": made.gpus,
        "evaluations_left_out": made.evaluations,
        "past": {
            "epochs": known.epochs,
            "runs": known.runs,
            "gpu_hours": known.hours,
            "lower": known.lower,
            "upper": known.upper,
            "lost": known.lost_share,
            "cycle_seconds": known.cycle_seconds,
            "gpus": list(known.gpus) if known.gpus is not None else None,
        },
    }


# --- the plan -------------------------------------------------------------------------------


def print_plan(plan: Plan, change: PlanDiff, drawn: Sequence[str]) -> None:
    """Counts, picture, files, and what differs from what is there."""
    where = plain(str(plan.request.directory), SENTENCE)
    request = plan.request
    made_of = f"{request.shape}, template {request.template}"
    if request.source is not None:
        made_of = f"from the sweep file {request.source.name}"
    print(f"{plan.dag_file} in {where}: {counts(plan)}, {plain(made_of, SENTENCE)}")
    print()
    for line in drawn:
        print(f"  {line}")
    print()
    wide = max((len(file.name) for file in plan.files), default=0)
    for file in plan.files:
        name, about = (plain(text, SENTENCE) for text in (file.name, file.about))
        print(f"  {name:<{wide}}  {size(len(file.data)):>7}  {about}")
    if change.stand is not FileChangeKind.NEW:
        print()
        for line in changes(change):
            print(line)


def changes(change: PlanDiff) -> Iterable[str]:
    """What differs from the DAG that is there, in lines."""
    stand = STANDS[change.stand]
    if change.ran:
        stand += f", {count(change.ran, 'node')} of it have run"
    if change.same:
        yield f"nothing differs from what is there ({stand})"
    else:
        yield f"differs from what is there ({stand}):"
    for sign, runs in (("+", change.runs_added), ("-", change.runs_removed)):
        if runs:
            yield f"  {sign} {_some('run', runs)}"
    groups = _alike(change.nodes)
    for (how, *_), nodes in list(groups.items())[:MOST_GROUPS]:
        said = "; ".join(_in_common(nodes))
        named = _some("node", [each.node for each in nodes])
        yield f"  {HOW[how]} {named}" + (f": {said}" if said else "")
    if len(groups) > MOST_GROUPS:
        yield f"  and {count(len(groups) - MOST_GROUPS, 'other change')}"
    for file in change.files:
        name = plain(file.name, SENTENCE)
        if file.name in change.keeps:
            yield f"  {name}: kept, it was changed by hand (--force writes it anew)"
        elif file.name in change.drops:
            yield f"  {name}: taken away, nothing needs it any more"
        elif file.how == "unused":
            yield f"  {name}: stays, but nothing needs it any more"
        else:
            yield f"  {name}: {file.how}"
    if change.rescue is not None and change.refusal is None and not change.same:
        yield f"the next DAGMan goes on from {change.rescue}"


def _alike(nodes: Iterable[NodeChange]) -> dict[tuple[str, ...], list[NodeChange]]:
    """Nodes that change in the same things."""
    groups: dict[tuple[str, ...], list[NodeChange]] = {}
    for each in nodes:
        groups.setdefault((each.how, *(d.name for d in each.differences)), []).append(each)
    return groups


def _in_common(nodes: Sequence[NodeChange]) -> Iterable[str]:
    """What changes in all of these, with the values where they are the same in all."""
    for place, first in enumerate(nodes[0].differences):
        if all(each.differences[place] == first for each in nodes):
            yield _told(first)
        else:
            yield plain(first.name, 80)


def _some(word: str, names: Sequence[str]) -> str:
    rest = "…"
    first, last = (plain(each, 100) for each in (names[0], names[-1]))
    if len(names) == 1:
        return f"{word} {first}"
    between = ", " if len(names) == 2 else f" {rest} "
    return f"{count(len(names), word)}: {first}{between}{last}"


def _told(each: VariableDiff) -> str:
    old, new = (
        "nothing" if value is None else plain(hide_value(each.name, value), 80)
        for value in (each.old, each.new)
    )
    return f"{plain(each.name, 80)} from {old} to {new}"


def say_next(plan: Plan, change: PlanDiff) -> None:
    """What to do next, on standard error."""
    where = shlex.quote(str(plan.request.directory))
    if change.stand is FileChangeKind.ENDED:
        say(f"written; go on with: metlmon act resubmit {where}")
        return
    dag = shlex.quote(plan.dag_file)
    say(f"written; look it over with metlmon check {where}, submit it there with")
    say(f"condor_submit_dag {dag}, and watch it with metlmon watch {where}")


def change_json(change: PlanDiff) -> dict[str, Any]:
    """What differs, as ``--json`` prints it."""
    return {
        "stand": change.stand.value,
        "same": change.same,
        "ran": change.ran,
        "rescue": change.rescue,
        "refusal": change.refusal,
        "remarks": list(change.remarks),
        "runs_added": list(change.runs_added),
        "runs_removed": list(change.runs_removed),
        "nodes": [
            {
                "node": each.node,
                "dag": each.dag,
                "how": each.how,
                "ran": each.ran,
                "differences": [
                    {"name": d.name, "old": _hidden(d.name, d.old), "new": _hidden(d.name, d.new)}
                    for d in each.differences
                ],
            }
            for each in change.nodes
        ],
        "files": [
            {
                "name": each.name,
                "how": each.how,
                "by_hand": each.foreign,
                "kept": each.name in change.keeps,
            }
            for each in change.files
        ],
    }


def _hidden(name: str, value: str | None) -> str | None:
    return None if value is None else hide_value(name, value)


# --- one node -------------------------------------------------------------------------------


def print_explained(found: Sequence[NodeExplanation], place: Place, room: int | None) -> None:
    """Each node: what it is, and where each of its variables comes from. ``room``: cells of a
    line, where there is a limit."""
    for number, each in enumerate(found):
        if number:
            print()
        for line in (*_node(each), *_variables(each, place, room)):
            print(line)


def _node(each: NodeExplanation) -> Iterable[str]:
    node = each.node
    of_run = f", run {plain(node.run, 100)}" if node.run is not None else ""
    epoch = f", epoch {node.epoch} of the name" if node.epoch is not None else ""
    kind = "" if node.kind.value == "job" else f"{node.kind.name} "
    yield f"{plain(node.name, SENTENCE)}: {kind}{node.role}{of_run}{epoch}"
    yield f"  file      {each.file}" + (f" ({plain(node.where, SENTENCE)})" * bool(node.where))
    yield f"  submits   {plain(node.submit, SENTENCE)}"
    yield from _scripts(node)
    if node.retries is not None or each.unless is not None:
        unless = f", unless it exits with {each.unless}" if each.unless is not None else ""
        yield f"  retries   {each.retries}{unless}"
    if node.noop:
        yield "  NOOP      it submits nothing"
    for line in each.says:
        yield f"  says      {plain(line, SENTENCE)}"
    yield f"  after     {_names(each.parents, each.weak)}"
    yield f"  before    {_names(each.children)}"


def _scripts(node: GraphNode) -> Iterable[str]:
    ends = []
    if node.defer is not None:
        ends.append(f"{node.defer[0]}: asked again after {node.defer[1]} s")
    if node.skip is not None:
        ends.append(f"{node.skip}: done without a job")
    options = dict(node.options)
    for kind, script in (("PRE", node.pre), ("POST", node.post), ("HOLD", node.hold)):
        if script is not None:
            told = f"  (exit {'; '.join(ends)})" if ends and kind == "PRE" else ""
            beside = f"  ({plain(options[kind], SENTENCE)})" if kind in options else ""
            yield f"  {kind:<9} {plain(script, SENTENCE)}{told}{beside}"


def _variables(each: NodeExplanation, place: Place, room: int | None) -> Iterable[str]:
    """A row of each variable, or, where that is too wide, two lines."""
    variables = each.node.variables
    if not variables:
        yield "  it has no variables"
        return
    rows = [_row(given, place) for given in variables]
    wide = [max(len(row[column]) for row in rows) for column in range(4)]
    broken = room is not None and sum(wide) + 10 > room
    for given, row in zip(variables, rows, strict=True):
        if broken:
            name, value, level, where = row
            yield f"    {name} = {value}"
            yield f"      {level}: {where}"
        else:
            yield "    " + "  ".join(c.ljust(w) for c, w in zip(row, wide, strict=True)).rstrip()
        for hidden in given.over:
            _, value, level, where = _row(hidden, place)
            yield f"      hides {value} ({level}: {where})"


def _row(given: VariableValue, place: Place) -> tuple[str, str, str, str]:
    value = plain(hide_value(given.name, given.value), SENTENCE)
    name, where = plain(given.name, 100), plain(place(given), SENTENCE)
    where += ", APPEND: before the submit file" * given.append
    return name, f'"{value}"', LEVELS[given.level], where


def _names(names: Sequence[str], weak: Sequence[str] = ()) -> str:
    if not names:
        return "no node"
    listed = ", ".join(
        plain(name, 100) + " (weak: also if it fails)" * (name in weak) for name in names[:6]
    )
    return listed + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def explained_json(each: NodeExplanation, place: Place) -> dict[str, Any]:
    """One node, as ``--json`` prints it."""
    node = each.node
    return {
        "node": node.name,
        "file": each.file,
        "kind": node.kind.value,
        "role": node.role.value,
        "run": node.run,
        "epoch": node.epoch,
        "submit": node.submit,
        "pre": node.pre,
        "defer": None if node.defer is None else list(node.defer),
        "skip": node.skip,
        "post": node.post,
        "hold": node.hold,
        "options": dict(node.options),
        "retries": node.retries,
        "unless_exit": each.unless,
        "noop": node.noop,
        "where": node.where,
        "parents": list(each.parents),
        "children": list(each.children),
        "weak_parents": list(each.weak),
        "says": list(each.says),
        "variables": [_given_json(given, place) for given in node.variables],
    }


def _given_json(given: VariableValue, place: Place) -> dict[str, Any]:
    return {
        "name": given.name,
        "value": hide_value(given.name, given.value),
        "level": given.level.name.lower(),
        "where": place(given),
        "append": given.append,
        "hides": [_given_json(each, place) for each in given.over],
    }
