"""What ``metlmon new`` and ``metlmon submit`` print, as text and as JSON."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from metlmon.authoring.diff import DagProgress, NodeChange, PlanDiff, VariableDiff
from metlmon.authoring.graph import GraphNode, NodeExplanation, Precedence, SetValue
from metlmon.authoring.request import Plan, RequestProblem, Template
from metlmon.cli.exit_codes import Exit
from metlmon.cli.output import Output, print_output
from metlmon.errors import shorten_words
from metlmon.pool.types import PoolError
from metlmon.redact import hide_value, redact_secrets
from metlmon.stats.cost import CostEstimate
from metlmon.stats.requests import RequestAdvice
from metlmon.text.formatting import count, plain, size
from metlmon.text.record_json import Flat


class SubmitOutput(Output, frozen=True, kw_only=True):
    """``metlmon submit --json``; submitted: DAGMan's cluster, null unless the pool took the DAG."""

    plan: Flat[Plan]
    problems: tuple[RequestProblem, ...]
    written: bool = False
    submitted: int | None = None


class NewOutput(SubmitOutput, frozen=True, kw_only=True):
    """``metlmon new --json``.

    ``source``: the description or sweep file that was read. ``picture``: lines that draw the graph.
    ``cost``: with --past, null where it is not known; ``requests``: what was taken from there, by
    the field that it set.
    """

    shape: str
    source: Path | None
    picture: tuple[str, ...]
    change: PlanDiff
    cost: CostEstimate | UnsetType | None = UNSET
    requests: Mapping[str, RequestAdvice] | UnsetType = UNSET


class NewExplainOutput(Output, frozen=True, kw_only=True):
    """``metlmon new --explain NODE --json``."""

    explained: tuple[NodeExplanation, ...]


class SubmitListTemplatesOutput(Output, frozen=True, kw_only=True):
    """``metlmon submit --list-templates --json``."""

    templates: tuple[Template, ...]


SENTENCE: Final = 300
_LONGEST_MESSAGE: Final = 2000
MOST_GROUPS: Final = 12
"""Maximum lines of differences: many nodes mostly differ in the same way."""

_SIGNS: Final = {"added": "+", "changed": "~", "removed": "-"}

_Value = TypeVar("_Value", bound=SetValue)

_PROGRESS: Final = {
    DagProgress.WRITTEN: "not submitted yet",
    DagProgress.RUNNING: "a DAGMan has it",
    DagProgress.ENDED: "it ran before",
}


def say(text: str, subject: str = "") -> None:
    """Print a message about ``subject`` on standard error, with secrets redacted.

    Each is redacted by itself: a subject such as ``api_token:`` makes no secret of the message.
    """
    message = shorten_words(redact_secrets(subject) + redact_secrets(text))
    print(f"metlmon: {plain(message, _LONGEST_MESSAGE)}", file=sys.stderr)


def counts(plan: Plan) -> str:
    """``4 runs, 12 nodes, 12 jobs``."""
    numbers = (("run", len(plan.runs)), ("node", plan.nodes), ("job", plan.jobs))
    shown = [(word, n) for word, n in numbers if n or word != "run"]
    return ", ".join(f"{n} {word}" if n == 1 else f"{n} {word}s" for word, n in shown)


# --- the plan -------------------------------------------------------------------------------


def print_files(plan: Plan) -> None:
    """Print the runs, and all files with their contents."""
    where = plain(str(plan.request.directory))
    print(f"{plan.dag_file} in {where}: {counts(plan)}, template {plain(plan.request.template)}")
    for run in plan.runs:
        targets = run.targets[:1] if len(set(run.targets)) == 1 else run.targets
        gpu = "" if run.gpu is None else f"  on {plain(run.gpu)}"
        print(f"  {run.name}  {run.uuid}  seed {run.seed}  {' '.join(targets)}{gpu}")
    for file in plan.files:
        notes = [file.about, f"{len(file.data)} bytes"]
        notes += ["executable"] * file.executable + ["EXISTS ALREADY"] * file.exists
        print(f"\n=== {file.name} ({'; '.join(notes)})")
        for line in file.text.rstrip("\n").split("\n"):
            print(_visible(line))


_BLANKS: Final = re.compile(r"([ \t]+)")


def _visible(line: str) -> str:
    """A line as written, with unprintable characters escaped."""
    if line.isascii() and line.isprintable():
        return line
    parts = enumerate(_BLANKS.split(line))
    return "".join(part if number % 2 else plain(part) for number, part in parts)


def print_plan(plan: Plan, diff: PlanDiff, drawing: Sequence[str]) -> None:
    """Print counts, drawing, files, and the differences from the existing DAG."""
    where = plain(str(plan.request.directory), SENTENCE)
    request = plan.request
    origin = f"{request.shape}, template {request.template}"
    if request.source is not None:
        origin = f"from the sweep file {request.source.name}"
    print(f"{plan.dag_file} in {where}: {counts(plan)}, {plain(origin, SENTENCE)}")
    print()
    for line in drawing:
        print(f"  {line}")
    print()
    width = max((len(file.name) for file in plan.files), default=0)
    for file in plan.files:
        name, about = (plain(text, SENTENCE) for text in (file.name, file.about))
        print(f"  {name:<{width}}  {size(len(file.data)):>7}  {about}")
    if diff.progress is not DagProgress.NEW:
        print()
        for line in _diff_lines(diff):
            print(line)


# --- submitting -----------------------------------------------------------------------------


def submit_plan(plan: Plan, answer: SubmitOutput | None) -> int:
    """Submit the written DAG and print the result; ``answer``: the JSON, if any."""
    from metlmon.pool.client import PoolClient  # Imported late: slow.

    directory = plan.request.directory
    dag = directory / plan.dag_file
    try:
        with closing(PoolClient()) as pool:
            cluster = pool.submit_dag(dag.absolute())
    except PoolError as error:
        print_answer(answer)
        say(f"written, but not submitted: {error}")
        return Exit.REFUSED
    if answer is None:
        where = plain(str(dag))
        print(f"cluster {cluster}: {where}, {counts(plan)}")
    else:
        print_answer(replace(answer, submitted=cluster))
    say(f"watch it with: metlmon watch {shlex.quote(str(directory))}")
    return Exit.OK


def print_answer(answer: Output | None) -> None:
    """Print the JSON object, if there is to be one."""
    if answer is not None:
        print_output(answer)


def next_steps(plan: Plan, diff: PlanDiff) -> None:
    """Print on standard error what to do with the written DAG."""
    where = shlex.quote(str(plan.request.directory))
    if diff.progress is DagProgress.ENDED:
        say(f"written; go on with: metlmon act resubmit {where}")
        return
    dag = shlex.quote(plan.dag_file)
    say(f"written; look it over with metlmon check {where}, submit it there with")
    say(f"condor_submit_dag {dag}, and watch it with metlmon watch {where}")
    if plan.request.mlproject:
        say(f"as an MLflow project: mlflow run {where} -b metlmon")


# --- differences ----------------------------------------------------------------------------


def _diff_lines(diff: PlanDiff) -> Iterable[str]:
    """The differences from the existing DAG."""
    progress = _PROGRESS[diff.progress]
    if diff.ran:
        progress += f", {count(diff.ran, 'node')} of it have run"
    if diff.unchanged:
        yield f"nothing differs from what is there ({progress})"
    else:
        yield f"differs from what is there ({progress}):"
    for sign, runs in (("+", diff.runs_added), ("-", diff.runs_removed)):
        if runs:
            yield f"  {sign} {_span('run', runs)}"
    groups: dict[tuple[str, ...], list[NodeChange]] = {}
    for node in diff.nodes:
        names = (difference.name for difference in node.differences)
        groups.setdefault((node.kind, *names), []).append(node)
    for (how, *_), nodes in list(groups.items())[:MOST_GROUPS]:
        differences = "; ".join(_common_differences(nodes))
        span = _span("node", [node.node for node in nodes])
        yield f"  {_SIGNS[how]} {span}" + (f": {differences}" if differences else "")
    if len(groups) > MOST_GROUPS:
        yield f"  and {count(len(groups) - MOST_GROUPS, 'other change')}"
    for file in diff.files:
        name = plain(file.name, SENTENCE)
        if file.name in diff.protected_files:
            yield f"  {name}: kept, it was changed by hand (--force writes it again)"
        elif file.name in diff.obsolete_files:
            yield f"  {name}: taken away, nothing needs it any more"
        elif file.kind == "unused":
            yield f"  {name}: stays, but nothing needs it any more"
        else:
            yield f"  {name}: {file.kind}"
    if diff.rescue is not None and diff.refusal is None and not diff.unchanged:
        yield f"the next DAGMan continues from {diff.rescue}"


def _common_differences(nodes: Sequence[NodeChange]) -> Iterable[str]:
    """The differences of all of these nodes; with values if they are the same in all."""
    for index, first in enumerate(nodes[0].differences):
        same = all(node.differences[index] == first for node in nodes)
        yield _difference_text(first) if same else plain(first.name, 80)


def _span(noun: str, names: Sequence[str]) -> str:
    """``3 runs: run0 … run2``."""
    first, last = (plain(name, 100) for name in (names[0], names[-1]))
    if len(names) == 1:
        return f"{noun} {first}"
    between = ", " if len(names) == 2 else " … "
    return f"{count(len(names), noun)}: {first}{between}{last}"


def _difference_text(difference: VariableDiff) -> str:
    old, new = (
        "nothing" if value is None else plain(value, 80)
        for value in (difference.old, difference.new)
    )
    return f"{plain(difference.name, 80)} from {old} to {new}"


# --- one node -------------------------------------------------------------------------------


def explained(
    explanation: NodeExplanation, source_of: Callable[[SetValue], str]
) -> NodeExplanation:
    """A node without secrets, and with what set each of its variables in its ``where``."""
    node = explanation.node

    def shown(value: _Value) -> _Value:
        hidden = hide_value(value.name, value.value)
        return replace(value, value=hidden, where=source_of(value))

    variables = (
        replace(shown(variable), hidden=tuple(map(shown, variable.hidden)))
        for variable in node.variables
    )
    return replace(explanation, node=replace(node, variables=tuple(variables)))


def print_explained(explanations: Sequence[NodeExplanation], width: int | None) -> None:
    """Print nodes, and the source of each of their variables."""
    for number, explanation in enumerate(explanations):
        if number:
            print()
        print(*_node_lines(explanation), sep="\n")
        print(*_variable_lines(explanation.node, width), sep="\n")


def _node_lines(explanation: NodeExplanation) -> Iterable[str]:
    node = explanation.node
    run = f", run {plain(node.run, 100)}" if node.run is not None else ""
    epoch = f", epoch {node.epoch} of the name" if node.epoch is not None else ""
    kind = "" if node.kind.value == "job" else f"{node.kind.name} "
    yield f"{plain(node.name, SENTENCE)}: {kind}{node.role}{run}{epoch}"
    where = f" ({plain(node.where, SENTENCE)})" if node.where else ""
    yield f"  file      {explanation.file}{where}"
    yield f"  submits   {plain(node.submit, SENTENCE)}"
    yield from _script_lines(node)
    if node.retries is not None or explanation.unless_exit is not None:
        unless = explanation.unless_exit
        exception = f", unless it exits with {unless}" if unless is not None else ""
        yield f"  retries   {explanation.retries}{exception}"
    if node.noop:
        yield "  NOOP      it submits nothing"
    for line in explanation.commands:
        yield f"  says      {plain(line, SENTENCE)}"
    yield f"  after     {_names(explanation.parents, explanation.weak_parents)}"
    yield f"  before    {_names(explanation.children)}"


def _script_lines(node: GraphNode) -> Iterable[str]:
    exit_codes = []
    if node.defer is not None:
        exit_codes.append(f"{node.defer[0]}: asked again after {node.defer[1]}s")
    if node.skip_code is not None:
        exit_codes.append(f"{node.skip_code}: done without a job")
    options = dict(node.options)
    for kind, script in (("PRE", node.pre), ("POST", node.post), ("HOLD", node.hold)):
        if script is not None:
            codes = f"  (exit {'; '.join(exit_codes)})" if exit_codes and kind == "PRE" else ""
            option = f"  ({plain(options[kind], SENTENCE)})" if kind in options else ""
            yield f"  {kind:<9} {plain(script, SENTENCE)}{codes}{option}"


def _variable_lines(node: GraphNode, width: int | None) -> Iterable[str]:
    """A row of each variable, or two lines if the rows are too wide."""
    if not node.variables:
        yield "  it has no variables"
        return
    rows = [_variable_cells(variable) for variable in node.variables]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    is_wide = width is not None and sum(widths) + 10 > width
    for variable, row in zip(node.variables, rows, strict=True):
        if is_wide:
            name, value, level, where = row
            yield f"    {name} = {value}"
            yield f"      {level}: {where}"
        else:
            cells = (cell.ljust(n) for cell, n in zip(row, widths, strict=True))
            yield f"    {'  '.join(cells)}".rstrip()
        for hidden in variable.hidden:
            _, value, level, where = _variable_cells(hidden)
            yield f"      hides {value} ({level}: {where})"


def _variable_cells(variable: SetValue) -> tuple[str, str, str, str]:
    level = "all nodes" if variable.level is Precedence.ALL else variable.level
    where = plain(variable.where, SENTENCE)
    where += ", APPEND: before the submit file" * variable.append
    return plain(variable.name, 100), f'"{plain(variable.value, SENTENCE)}"', level, where


def _names(names: Sequence[str], weak: Sequence[str] = ()) -> str:
    if not names:
        return "no node"
    text = ", ".join(
        plain(name, 100) + " (weak: also if it fails)" * (name in weak) for name in names[:6]
    )
    return text + (f" and {len(names) - 6} more" if len(names) > 6 else "")
