"""``metlmon new`` and ``submit``: a DAG from a description, sweep file, options or a screen.

And ``metlmon continue``: one that continues stopped and incomplete runs.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from metlmon.authoring.ascii_graph import draw_graph
from metlmon.authoring.continuation import Continuation, ContinuedRun, continuation
from metlmon.authoring.description import (
    SET_BY_SWEEP_FILE,
    DescriptionError,
    description_name,
    example,
    is_edited,
    position_of_field,
    read_description,
    with_own_text,
)
from metlmon.authoring.diff import (
    DagProgress,
    NodeChange,
    PlanDiff,
    amend_plan,
    plan_diff,
)
from metlmon.authoring.graph import (
    GraphNode,
    NodeExplanation,
    Precedence,
    SetValue,
    explain,
)
from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import (
    FIELDS,
    GATED_SHAPES,
    EnsembleShape,
    Evaluation,
    Plan,
    PlanError,
    Request,
    RequestProblem,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
    Template,
    option_of,
    with_fields,
)
from metlmon.authoring.runs import DESCRIPTION, epochs_of, gpus_of
from metlmon.authoring.templates import bundled_templates, load_template, template_for
from metlmon.authoring.validate import validate
from metlmon.authoring.write_files import is_same_file, new_directory, path_exists, write_plan
from metlmon.cli import Exit
from metlmon.cli.output import Output, is_terminal, print_message, print_output, waiting_line
from metlmon.cli.reading import open_reader, read_whole, stats_input
from metlmon.cli.text_output import TextOutput
from metlmon.config.loader import load_settings
from metlmon.errors import InputError, nearest
from metlmon.pool.types import PoolError
from metlmon.redact import hide_value
from metlmon.stats.cost import CostEstimate, cost_estimate_lines, cost_history, estimate_cost
from metlmon.stats.requests import RequestAdvice, advice_text, advise_requests, advised_fields
from metlmon.tables.layout import Column, Kind
from metlmon.text.formatting import count, epoch_number, plain, size
from metlmon.text.record_json import Flat

if TYPE_CHECKING:
    from metlmon.live.feed import StatsInput


LONGEST_SWEEP_FILE: Final = 1 << 22
"""Maximum bytes of a file in which a GEN command is searched."""

SLOW: Final = "planning: this many nodes take a while"

_FIELDS: Final = {"random_seed": ("seeds",), "epochs": ("epochs", "stages")}
"""The fields that set a variable, if they are not named like it."""

_PLACED: Final = re.compile(r"[^:]+:[0-9]+: ")
"""Matches a message that begins with file and line."""

WIDTH: Final = 80
"""Width of a drawing without a terminal."""

SENTENCE: Final = 300
NAME: Final = 40
"""Maximum characters of a sentence, and of a name in a table."""

MAX_GROUPS: Final = 12
"""Maximum lines of differences: many nodes mostly differ in the same way."""

_SIGNS: Final = {"added": "+", "changed": "~", "removed": "-"}

_PROGRESS: Final = {
    DagProgress.WRITTEN: "not submitted yet",
    DagProgress.RUNNING: "a DAGMan has it",
    DagProgress.ENDED: "it ran before",
}


class SubmitOutput(Output, frozen=True, kw_only=True):
    """``metlmon submit --json``; ``submitted``: DAGMan's cluster, or null if it has none."""

    plan: Flat[Plan]
    problems: tuple[RequestProblem, ...]
    written: bool = False
    submitted: int | None = None


class NewOutput(SubmitOutput, frozen=True, kw_only=True):
    """``metlmon new --json``.

    ``source``: the description or sweep file that was read. ``picture``: lines that draw the graph.
    ``cost``: null without --past, or if unknown; ``requests``: what was taken from there, by the
    field that it set.
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


class ContinueOutput(Output, frozen=True, kw_only=True):
    """``metlmon continue --json``."""

    dagdir: str
    result: Flat[Continuation]
    written: bool


def new(options: argparse.Namespace) -> int:
    """``metlmon new``. Raises InputError for arguments that cannot be used."""
    if options.example == "sweep-file":
        from metlmon.authoring.sweeps import SYNTAX

        print(SYNTAX)
        return Exit.OK
    if options.example is not None:
        shape = EnsembleShape(options.example)
        print(example(shape, template_for(shape)), end="")
        return Exit.OK
    past = None
    if options.past is not None:
        past = stats_input(read_whole(Path(options.past)).snapshot_builder())
    try:
        request, source = _request(options)
        advised: dict[str, RequestAdvice] = {}
        if past is not None:
            request, advised = _with_past_requests(request, source, options, past)
        amending = path_exists(request.directory / f"{request.name}.dag")
        plan, problems = _make_plan(request, source, options, amending=amending)
        if plan is None:
            return Exit.USAGE
        if options.explain is not None:
            return _explain(plan, source, options)
        plan = _with_own_description(plan, source)
        if options.picture:
            print(*draw_graph(plan.graph, _width()), sep="\n")
            return Exit.OK
        with waiting_line(SLOW):
            diff = plan_diff(plan, source, options.force)
    except DescriptionError as error:
        for sentence in error.sentences:
            print_message(sentence)
        return Exit.USAGE
    answer = NewOutput(
        plan=plan,
        problems=problems,
        shape=plan.request.shape.value if plan.request.source is None else "sweep file",
        source=source,
        picture=tuple(draw_graph(plan.graph, WIDTH)),
        change=diff,
        cost=UNSET if past is None else _cost(plan, past, options),
        requests=UNSET if past is None else advised,
    )
    if not options.json:
        _print_plan(answer, options)
    return _write(answer, options)


# --- the request ------------------------------------------------------------------------------


def _request(options: argparse.Namespace) -> tuple[Request, Path | None]:
    """The request, and the file that it begins with. Raises InputError."""
    source, directory = _file_and_directory(options)
    if source is None and directory is not None:
        source = _description_in(directory, options.name)
    if source is None:
        request = Request("", Path(), gate=StopRules())
    elif source.suffix == ".toml":
        request = read_description(source)
    else:
        _check_sweep_file(source)
        request = Request("", Path(), name=source.stem, gate=StopRules(), source=source)
    if request.source is not None:
        refuse_sweep_file_options(options)
    request = with_options(request, options, plain=source is None)
    if directory is None:
        directory = _default_directory(source, request.name)
    return replace(request, directory=directory), source


def _with_past_requests(
    request: Request, source: Path | None, options: argparse.Namespace, past: StatsInput
) -> tuple[Request, dict[str, RequestAdvice]]:
    """The request with what fitted past jobs where nothing else sets it; and what was taken."""
    parameters = load_template(request.template).parameters if request.template else ()
    known = {f"values.{parameter.name}" for parameter in parameters} | FIELDS.keys()
    values: dict[str, Any] = {"values": dict(request.values)}
    taken: dict[str, RequestAdvice] = {}
    for field, (text, row) in advised_fields(advise_requests(past)).items():
        is_set = is_given(options, field) or position_of(options, source, field, exact=True)
        if field not in known or is_set:
            continue
        taken[field] = row
        if field in FIELDS:
            values[field] = FIELDS[field].read(text)
        else:
            values["values"][field.removeprefix("values.")] = text
    return with_fields(request, values), taken


def _file_and_directory(options: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """FILE and DIR: a first argument that ends in .toml or is a file is FILE."""
    words = [word for word in (options.file, options.dir) if word is not None]
    if not words:
        return None, None
    first = Path(words[0])
    if first.suffix == ".toml" or first.is_file():
        return first, Path(words[1]) if len(words) > 1 else None
    if first.suffix == ".dag":
        raise InputError(f"{first}: there is no such file")
    if len(words) > 1:
        raise InputError(f"{first}: is not a description: FILE ends in .toml, or is a sweep file")
    return None, first


def _description_in(directory: Path, name: str | None) -> Path | None:
    """The description beside a DAG in this directory."""
    try:
        files = os.listdir(directory)
    except OSError:
        return None
    dags = (file.removesuffix(".dag") for file in files if file.endswith(".dag"))
    descriptions = sorted(description_name(dag) for dag in dags if description_name(dag) in files)
    if name is not None:
        return (
            directory / description_name(name) if description_name(name) in descriptions else None
        )
    if len(descriptions) > 1:
        raise InputError(f"{directory}: holds {', '.join(descriptions)}; say which one, or --name")
    return directory / descriptions[0] if descriptions else None


def _default_directory(source: Path | None, name: str) -> Path:
    """The directory of the DAG that ``source`` describes, or one with the DAG's name."""
    is_description = source is not None and source.name == description_name(name)
    if source is not None and is_description and path_exists(source.parent / f"{name}.dag"):
        return source.parent
    return Path(name.replace("/", "_"))


def _check_sweep_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            text = file.read(LONGEST_SWEEP_FILE)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    lines = text.removeprefix(BOM_UTF8).upper().split(b"\n")
    if [b"GEN", b"SUBDAG"] not in (line.split(None, 2)[:2] for line in lines):
        raise InputError(
            f"{path}: is neither a description (.toml) nor a sweep file: it has no GEN SUBDAG; "
            "a DAG file that is written already can be looked at with metlmon check"
        )


def _make_plan(
    request: Request, source: Path | None, options: argparse.Namespace, *, amending: bool = False
) -> tuple[Plan | None, tuple[RequestProblem, ...]]:
    """The plan, if possible; prints all problems, each with its line or its option.

    Raises PlanError.
    """
    with waiting_line(SLOW):
        validation = validate(request, amending=amending)
    for problem in validation.problems:
        kind = "" if problem.fatal else "warning: "
        where = position_of(options, source, problem.field) or option_of(problem.field)
        # Some name their option, or the line of their file, themselves.
        places = (f"{where} ",) if source is None else (f"{where} ", f"{source.name}:")
        is_placed = problem.text.startswith(places)
        if is_placed or (problem.field == "source" and _PLACED.match(problem.text)):
            print_message(f"{kind}{problem.text}")
        else:
            print_message(problem.text, f"{kind}{where}: ")
    if validation.fatal:
        return None, validation.problems
    with waiting_line(SLOW):
        return make_plan(request, validation), validation.problems


def _with_own_description(plan: Plan, source: Path | None) -> Plan:
    """The plan with the user's own description, which keeps the comments.

    Only if that is beside the DAG and complete.
    """
    request = plan.request
    kept = request.directory / description_name(request.name)
    if source is None or source.suffix != ".toml" or not is_same_file(source, kept):
        return plan
    if read_description(source, request.directory) == request:
        return with_own_text(plan, source)
    if is_edited(source):
        text = "options say it otherwise, so it is written again, without your comments"
        print_message(f"warning: {source}: {text}; change the file itself to keep them")
    return plan


# --- the options of a request -------------------------------------------------------------------
# ``new`` applies them to a description, ``submit`` to the defaults.


def is_given(options: argparse.Namespace, field: str) -> bool:
    """Whether an option sets the field of a request."""
    name, _, rest = field.partition(".")
    if name in ("values", "variables"):
        texts = (options.set if name == "values" else options.var) or ()
        return any(text.partition("=")[0].strip() == rest for text in texts)
    option = option_of(field).removeprefix("--").replace("-", "_")
    return getattr(options, option, None) not in (None, [])


def position_of(
    options: argparse.Namespace, source: Path | None, field: str, exact: bool = False
) -> str | None:
    """The line of a description that sets a field; None if an option or nothing sets it.

    ``source``: the description, or a sweep file. ``exact``: as for :func:`position_of_field`.
    """
    if source is None or source.suffix != ".toml" or is_given(options, field):
        return None
    return position_of_field(source, field, exact=exact)


def with_options(request: Request, options: argparse.Namespace, plain: bool) -> Request:
    """The request with what the options set. ``plain``: without a description.

    Raises InputError for an option that cannot be read.
    """
    values: dict[str, Any] = {
        "shape": _implied_shape(options),
        "sweep": _sweep(request, options),
        "values": {**request.values, **_assignments("--set", options.set)},
        "variables": {**request.variables, **_assignments("--var", options.var or ())},
    }
    if options.evaluate is not None:
        values["evaluation"] = request.evaluation or Evaluation()
    for field in FIELDS.values():
        value = getattr(options, field.option.replace("-", "_"), None)
        if value is None or (value == "" and field.name == "evaluation.template"):
            continue
        try:
            values[field.name] = field.read(value)
        except ValueError as error:
            raise InputError(f"--{field.option} {value!r} {error}") from None
    rules = {name: values.pop(name) for name in list(values) if name.startswith("gate.")}
    request = with_fields(request, {k: value for k, value in values.items() if value is not None})
    if not request.template:
        request = replace(request, template=template_for(request.shape))
    if options.gate is False:
        if rules:
            raise InputError("--no-gate: nobody would follow the rules then; take one of them out")
        return replace(request, gate=None)
    if options.gate:
        request = replace(request, gate=request.gate or StopRules())
    elif plain and request.shape not in GATED_SHAPES:
        request = replace(request, gate=None)
    return with_fields(request, rules)


def refuse_sweep_file_options(options: argparse.Namespace) -> None:
    """Raise InputError for an option that would have no effect on a sweep file."""
    fields = (*SET_BY_SWEEP_FILE, "shards", "machines")
    names = (*(FIELDS[name].option for name in fields), "sweep", "how")
    if given := [name for name in names if getattr(options, name) not in (None, [])]:
        raise InputError(f"--{given[0]}: the sweep file says that; take it out")
    if options.evaluate == "":
        remedy = "name a template (--evaluate T), or take it out"
        raise InputError(f"--evaluate: the sweep file says that; {remedy}")


def _implied_shape(options: argparse.Namespace) -> EnsembleShape | None:
    """The shape that another option implies."""
    if options.sweep:
        return EnsembleShape.SWEEP
    if options.shards is not None:
        return EnsembleShape.BAG
    return EnsembleShape.MULTI_NODE if options.machines is not None else None


def _sweep(request: Request, options: argparse.Namespace) -> SweepRequest | None:
    how = None if options.how is None else SweepMode(options.how)
    if not options.sweep:
        if how is None:
            return None
        if request.sweep is None:
            raise InputError("--how: there is no sweep; say what is swept with --sweep NAME=VALUES")
        return replace(request.sweep, mode=how)
    from metlmon.authoring.sweeps.values import values  # Imported late: most have no sweep.

    variables = []
    for text in options.sweep:
        name, equals, line = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--sweep {text!r}: write it as a=0.01 to 0.1 by 0.01, or a=1,2,3")
        where = f"--sweep {name.strip()}"
        variables.append(SweptVariable(name.strip(), values(line, where), where))
    group = request.sweep.group if request.sweep is not None else "run"
    return SweepRequest(group, tuple(variables), how, "--sweep")


def _assignments(option: str, texts: Iterable[str]) -> dict[str, str]:
    """The values of ``--set`` or ``--var``. Raises InputError."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            # The text after a blank may be a value, even a secret one.
            first = text.split()[0] if text.split() else text
            what = "a parameter of the template" if option == "--set" else "a variable of all nodes"
            raise InputError(f"{option} {first!r}: write it as name=value, {what}")
        values[name.strip()] = value
    return values


# --- printing ---------------------------------------------------------------------------------


def _width() -> int:
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH


_Value = TypeVar("_Value", bound=SetValue)


def _explain(plan: Plan, source: Path | None, options: argparse.Namespace) -> int:
    pattern = options.explain
    names = list(dict.fromkeys(node.name for node in plan.graph.all_nodes))
    if not pattern:
        examples = ", ".join(map(plain, names[:6])) + (", …" if len(names) > 6 else "")
        raise InputError(f"--explain: name a node, or several as 'run0-*'; there are {examples}")
    explanations = explain(plan.graph, pattern, plan.dag_file)
    if not explanations:
        similar = nearest(pattern, names, cutoff=0.4)
        hint = f"; did you mean {similar}?" if similar else ""
        raise InputError(f"--explain {pattern!r}: no node is called so{hint}")

    def shown(value: _Value) -> _Value:
        """The value without secrets; its ``where`` says what set it."""
        where = _source_of(source, options, value)
        return replace(value, value=hide_value(value.name, value.value), where=where)

    def explained(node: GraphNode) -> GraphNode:
        variables = (
            replace(shown(each), hides=tuple(map(shown, each.hides))) for each in node.variables
        )
        return replace(node, variables=tuple(variables))

    explanations = [replace(each, node=explained(each.node)) for each in explanations]
    if options.json:
        print_output(NewExplainOutput(explained=tuple(explanations)))
    else:
        print_explained(explanations, _width() if sys.stdout.isatty() else None)
    return Exit.OK


def _source_of(source: Path | None, options: argparse.Namespace, variable: SetValue) -> str:
    """What set a variable; if it is the description, with the line or the option."""
    if variable.where != DESCRIPTION:
        return variable.where
    name = variable.name
    fields = (f"variables.{name}", f"values.{name}", *_FIELDS.get(name, (name,)))
    for field in fields:
        if is_given(options, field):
            return option_of(field)
    positions = (position_of(options, source, field, exact=True) for field in fields)
    return next(filter(None, positions), "the default")


def _cost(plan: Plan, past: StatsInput, options: argparse.Namespace) -> CostEstimate | None:
    history = cost_history(past)
    request = plan.request
    result = estimate_cost(
        history,
        plan.graph.trainings,
        epochs_of(request),
        gpus_of(request),
        evaluations=request.evaluation is not None,
    )
    if result is None:
        why = "it trains no epoch" if history else f"too few epochs of {options.past} are completed"
        print_message(f"the cost is unknown: {why}")
    return result


# --- writing ------------------------------------------------------------------------------------


def _write(answer: NewOutput, options: argparse.Namespace) -> int:
    plan, diff = answer.plan, answer.change
    if diff.refusal is not None:
        _print_answer(options, answer)
        print_message(diff.refusal)
        return Exit.USAGE
    if options.submit:
        _check_submittable(plan, diff)
    if options.dry_run or (diff.unchanged and not options.submit):
        _print_answer(options, answer)
        return Exit.OK
    paths = () if diff.unchanged else _write_files(plan, diff, force=options.force)
    answer = replace(answer, written=bool(paths))
    if options.submit:
        return _submit_plan(answer, options)
    _print_answer(options, answer)
    next_steps(plan, diff)
    return Exit.OK


def _write_files(plan: Plan, diff: PlanDiff | None, *, force: bool) -> tuple[Path, ...]:
    """Write a DAG, or what differs from the existing one. Raises InputError."""
    try:
        if diff is None or diff.progress is DagProgress.NEW:
            return write_plan(plan, overwrite=force)
        return amend_plan(plan, diff)
    except PlanError as error:
        hint = " (--force)" if plan.existing_files and not force else ""
        raise InputError(f"{error}{hint}") from None


def _check_submittable(plan: Plan, diff: PlanDiff) -> None:
    """Raise InputError if the DAG must not be submitted."""
    directory = plan.request.directory
    if load_settings(directory).read_only:
        raise InputError("--submit: metlmon.toml says read_only = true; take one of them out")
    if diff.progress is DagProgress.ENDED:
        raise InputError(
            f"--submit: {plan.dag_file} ran before: write it without --submit, then go on with "
            f"metlmon act resubmit {shlex.quote(str(directory))}"
        )


# --- submit -------------------------------------------------------------------------------------


def submit(options: argparse.Namespace) -> int:
    """``metlmon submit``. Raises InputError for arguments that cannot be used."""
    if options.list_templates:
        return _list_templates(options.json)
    request = with_options(Request("", Path(), gate=StopRules()), options, plain=True)
    directory = options.dir and Path(options.dir)
    request = replace(request, directory=directory or _default_directory(None, request.name))
    only_writes = options.dry_run or options.no_submit
    if not only_writes and load_settings(request.directory).read_only:
        raise InputError(
            "submit: metlmon.toml says read_only = true; take that out, or say --no-submit to "
            "write the files only"
        )
    if not only_writes and not options.yes:
        return _open_pane(request, options)
    plan, problems = _make_plan(request, None, options)
    if plan is None:
        return Exit.USAGE
    answer = SubmitOutput(plan=plan, problems=problems)
    if options.dry_run:
        _print_answer(options, answer, partial(print_files, plan))
        return Exit.OK
    paths = _write_files(plan, None, force=options.force)
    answer = replace(answer, written=True)
    if not options.no_submit:
        return _submit_plan(answer, options)
    files = ", ".join(plain(str(path)) for path in paths)
    _print_answer(options, answer, lambda: print(f"wrote {counts(plan)}: {files}"))
    print_message(
        f"nothing is submitted; condor_submit_dag {shlex.quote(plan.dag_file)} there does it"
    )
    return Exit.OK


def _open_pane(request: Request, options: argparse.Namespace) -> int:
    """Open the form, which shows everything before it is written. Raises InputError."""
    if options.json or not is_terminal():
        raise InputError(
            "submit: without a terminal to ask at, or with --json, say --yes to write and submit, "
            "--no-submit to write only, or --dry-run to see what would be written"
        )
    from metlmon.cli.session_setup import open_submit_pane

    if options.dir is None:
        request = replace(request, directory=new_directory(Path(request.name)))
    return open_submit_pane(options, request)


def _list_templates(as_json: bool) -> int:
    templates = bundled_templates()
    if as_json:
        print_output(SubmitListTemplatesOutput(templates=templates))
        return Exit.OK
    for template in templates:
        print(f"{template.name}: {plain(template.title)}")
        if template.about:
            print(f"    {plain(template.about)}")
        for parameter in template.parameters:
            default = "required" if parameter.required else f"default {parameter.default!r}"
            print(f"    --set {parameter.name}=…  {plain(parameter.help)} ({plain(default)})")
    return Exit.OK


# --- texts ----------------------------------------------------------------------------------


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


def _print_plan(answer: NewOutput, options: argparse.Namespace) -> None:
    """Print counts, drawing, files, the differences from the existing DAG, and what it costs."""
    plan, diff, request = answer.plan, answer.change, answer.plan.request
    where = plain(str(request.directory), SENTENCE)
    origin = f"{request.shape}, template {request.template}"
    if request.source is not None:
        origin = f"from the sweep file {request.source.name}"
    print(f"{plan.dag_file} in {where}: {counts(plan)}, {plain(origin, SENTENCE)}")
    print()
    for line in draw_graph(plan.graph, _width() - 2):
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
    if answer.cost:
        print()
        for sentence in cost_estimate_lines(answer.cost, options.past):
            print(plain(sentence))
    for field, row in (answer.requests or {}).items():
        joint = "=" if field.startswith("values.") else " "
        taken = f"{option_of(field)}{joint}{row.resource.submitted(row.fitting)}"
        print(plain(f"{taken}, from {options.past}: {advice_text(row)}"))


# --- submitting -----------------------------------------------------------------------------


def _submit_plan(answer: SubmitOutput, options: argparse.Namespace) -> int:
    """Submit the written DAG and print the result."""
    from metlmon.pool.client import PoolClient  # Imported late: slow.

    plan, directory = answer.plan, answer.plan.request.directory
    dag = directory / plan.dag_file
    try:
        with closing(PoolClient()) as pool:
            cluster = pool.submit_dag(dag.absolute())
    except PoolError as error:
        _print_answer(options, answer)
        print_message(f"written, but not submitted: {error}")
        return Exit.REFUSED
    submitted = f"cluster {cluster}: {plain(str(dag))}, {counts(plan)}"
    _print_answer(options, replace(answer, submitted=cluster), lambda: print(submitted))
    print_message(f"watch it with: metlmon watch {shlex.quote(str(directory))}")
    return Exit.OK


def _print_answer(
    options: argparse.Namespace, answer: SubmitOutput, print_text: Callable[[], None] | None = None
) -> None:
    """Print the JSON object with ``--json``, else the text, if any."""
    if options.json:
        print_output(answer)
    elif print_text is not None:
        print_text()


def next_steps(plan: Plan, diff: PlanDiff) -> None:
    """Print on standard error how to proceed with the written DAG."""
    where = shlex.quote(str(plan.request.directory))
    if diff.progress is DagProgress.ENDED:
        print_message(f"written; go on with: metlmon act resubmit {where}")
        return
    dag = shlex.quote(plan.dag_file)
    print_message(f"written; look it over with metlmon check {where}, submit it there with")
    print_message(f"condor_submit_dag {dag}, and watch it with metlmon watch {where}")
    if plan.request.mlproject:
        print_message(f"as an MLflow project: mlflow run {where} -b metlmon")


# --- differences ----------------------------------------------------------------------------


def _diff_lines(diff: PlanDiff) -> Iterable[str]:
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
    for (how, *_), nodes in list(groups.items())[:MAX_GROUPS]:
        differences = "; ".join(_common_differences(nodes))
        span = _span("node", [node.node for node in nodes])
        yield f"  {_SIGNS[how]} {span}" + (f": {differences}" if differences else "")
    if len(groups) > MAX_GROUPS:
        yield f"  and {count(len(groups) - MAX_GROUPS, 'other change')}"
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
    """The differences of all these nodes; with values if they are the same in all."""
    for index, first in enumerate(nodes[0].differences):
        same = all(node.differences[index] == first for node in nodes)
        sides = ("nothing" if side is None else plain(side, 80) for side in (first.old, first.new))
        yield plain(first.name, 80) + (" from {} to {}".format(*sides) if same else "")


def _span(noun: str, names: Sequence[str]) -> str:
    """``3 runs: run0 … run2``."""
    first, last = (plain(name, 100) for name in (names[0], names[-1]))
    if len(names) == 1:
        return f"{noun} {first}"
    between = ", " if len(names) == 2 else " … "
    return f"{count(len(names), noun)}: {first}{between}{last}"


# --- one node -------------------------------------------------------------------------------


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
        for hidden in variable.hides:
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


# --- continue -----------------------------------------------------------------------------


def continue_(options: argparse.Namespace) -> int:
    """``metlmon continue DIR [RUN …]``. Raises InputError if nothing can continue."""
    if options.epochs is not None and options.epochs < 1:
        raise InputError(f"--epochs {options.epochs}: a run has at least one epoch")
    dag_file = None
    if os.path.isfile(options.dir):
        # All DAGs of the directory are read: another one may have continued its runs.
        options.dir, dag_file = os.path.split(options.dir)
        options.dir = options.dir or os.curdir
    reader = open_reader(options)
    try:
        builder = reader.snapshot_builder()
        result = continuation(
            builder, reader.dagdir, options.runs, options.epochs, dag_file=dag_file
        )
        if not options.json:
            _print_continuation(result)
        written = result.plan is not None and not options.dry_run
        if result.plan is not None and written:
            write_plan(result.plan)
    except PlanError as error:
        raise InputError(f"continue: {error}") from None
    if options.json:
        print_output(ContinueOutput(dagdir=reader.path_given, result=result, written=written))
    elif result.plan is not None and written:
        file = plain(result.plan.dag_file, 200)
        where = shlex.quote(plain(str(reader.dagdir), 2000))
        line = f"cd {where} && condor_submit_dag {shlex.quote(file)}"
        print(f"{file}: written; to submit it: {line}")
    return Exit.OK


def _print_continuation(result: Continuation) -> None:
    out = TextOutput()
    if result.plan is not None:
        jobs = count(result.plan.jobs, "node")
        of = ", ".join(plain(file, NAME) for file in result.source_files)
        runs = count(len(result.runs), "run")
        print(f"{plain(result.plan.dag_file, 200)} goes on with {runs} of {of}: {jobs}\n")
        out.table(_continued_columns(), result.runs)
        print()
    else:
        print(f"No run continues{'.' if result.excluded else ': none has epochs left.'}")
    for each in result.excluded:
        name, why = plain(each.run, NAME), plain(each.reason, SENTENCE)
        print(f"{name} is left out: {why}")


def _continued_columns() -> list[Column[ContinuedRun]]:
    def trains(run: ContinuedRun) -> str:
        first, last = epoch_number(run.first_epoch), epoch_number(run.last_epoch)
        return f"epoch {first}" if first == last else f"epochs {first} to {last}"

    return [
        Column("run", lambda run: plain(run.run, NAME)),
        Column("uuid", lambda run: plain(run.uuid, 16), drop=1),
        Column(
            "done",
            lambda run: None if run.done_epoch is None else epoch_number(run.done_epoch),
            Kind.COUNT,
            write=lambda epoch: f"epoch {epoch}",
        ),
        Column("trains", trains),
        Column("before", lambda run: plain(run.reason, SENTENCE)),
    ]
