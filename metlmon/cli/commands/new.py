"""``metlmon new`` and ``submit``: a DAG by a description, sweep file, options or a screen."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import threading
from codecs import BOM_UTF8
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from metlmon.authoring.ascii_graph import draw_graph
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
from metlmon.authoring.diff import DagProgress, PlanDiff, amend_plan, plan_diff
from metlmon.authoring.fields import FIELDS, nearest, option_of, with_fields
from metlmon.authoring.graph import SetValue, explain, node_names
from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import (
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
)
from metlmon.authoring.runs import DESCRIPTION, epochs_of, gpus_of
from metlmon.authoring.templates import bundled_templates, load_template, template_for
from metlmon.authoring.validate import validate
from metlmon.authoring.write_files import is_same_file, new_directory, path_exists, write_plan
from metlmon.cli.exit_codes import Exit
from metlmon.cli.new_output import (
    NewExplainOutput,
    NewOutput,
    SubmitListTemplatesOutput,
    SubmitOutput,
    counts,
    explained,
    next_steps,
    print_answer,
    print_explained,
    print_files,
    print_plan,
    say,
    submit_plan,
)
from metlmon.cli.output import is_terminal
from metlmon.config.loader import load_settings
from metlmon.errors import InputError
from metlmon.text.formatting import plain

if TYPE_CHECKING:
    from metlmon.live.feed import StatsInput
    from metlmon.stats.cost import CostEstimate
    from metlmon.stats.requests import RequestAdvice


LONGEST_SWEEP_FILE: Final = 1 << 22
"""Bytes of a file that are searched for a GEN command."""

SWEEP_SYNTAX: Final = "sweep-file"
"""The example that is no description, but the syntax of sweep files."""

SLOW: Final = 1.0
"""Seconds after which a message says that planning takes a while."""

_FIELDS: Final = {"random_seed": ("seeds",), "epochs": ("epochs", "stages")}
"""The fields that set a variable, if it is not one of its own name."""

_PLACED: Final = re.compile(r"[^:]+:[0-9]+: ")
"""Matches a message that begins with file and line."""

WIDTH: Final = 80
"""Width of a drawing without a terminal."""


def new(options: argparse.Namespace) -> int:
    """``metlmon new``. Raises InputError for arguments that cannot be used."""
    if options.example == SWEEP_SYNTAX:
        from metlmon.authoring.sweeps import SYNTAX

        print(SYNTAX)
        return Exit.OK
    if options.example is not None:
        shape = EnsembleShape(options.example)
        print(example(shape, template_for(shape)), end="")
        return Exit.OK
    slow = threading.Timer(SLOW, _say_slow)
    slow.daemon = True
    past = None if options.past is None else _read_past(options.past)
    try:
        request, source = _request(options)
        advised: dict[str, RequestAdvice] = {}
        if past is not None:
            request, advised = _with_past_requests(request, source, options, past)
        slow.start()
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
        diff = plan_diff(plan, source, options.force)
    except DescriptionError as error:
        for sentence in error.sentences:
            say(sentence)
        return Exit.USAGE
    except PlanError as error:
        raise InputError(str(error)) from None
    finally:
        slow.cancel()
    answer = _print_plan(plan, diff, problems, source, past, advised, options=options)
    return _write(plan, diff, answer, options)


def _say_slow() -> None:
    """Say on a terminal that the program works; a file or a pipe needs no message."""
    if sys.stderr.isatty():
        say("planning: this many nodes take a while")


# --- the request ------------------------------------------------------------------------------


def _request(options: argparse.Namespace) -> tuple[Request, Path | None]:
    """The request, and the file that it begins with. Raises InputError and PlanError."""
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


def _read_past(directory: str) -> StatsInput:
    from metlmon.cli.reading import read_whole, stats_input

    return stats_input(read_whole(Path(directory)))


def _with_past_requests(
    request: Request, source: Path | None, options: argparse.Namespace, past: StatsInput
) -> tuple[Request, dict[str, RequestAdvice]]:
    """The request with what fitted past jobs, where nothing else sets it; and what was taken."""
    from metlmon.stats.requests import advise_requests, advised_fields

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
    """FILE and DIR: a first argument that ends in .toml, or is a file, is FILE."""
    words = [word for word in (options.file, options.dir) if word is not None]
    if not words:
        return None, None
    first = Path(words[0])
    if first.suffix == ".toml" or first.is_file():
        return first, Path(words[1]) if len(words) > 1 else None
    if first.suffix == ".dag":
        raise InputError(f"{first}: there is no such file")
    if len(words) > 1:
        raise InputError(f"{first}: is no description: FILE ends in .toml, or is a sweep file")
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
    """The plan, if there can be one; prints all problems, each with its line or its option.

    Raises PlanError.
    """
    validation = validate(request, amending=amending)
    for problem in validation.problems:
        kind = "" if problem.fatal else "warning: "
        where = position_of(options, source, problem.field) or option_of(problem.field)
        has_file = source is not None and problem.text.startswith(f"{source.name}:")
        if has_file or (problem.field == "source" and _PLACED.match(problem.text)):
            say(f"{kind}{problem.text}")
        else:
            say(problem.text, f"{kind}{where}: ")
    plan = None if validation.fatal else make_plan(request, validation)
    return plan, validation.problems


def _with_own_description(plan: Plan, source: Path | None) -> Plan:
    """The plan with the user's description, if that is beside the DAG and complete.

    It keeps the user's comments.
    """
    request = plan.request
    kept = request.directory / description_name(request.name)
    if source is None or source.suffix != ".toml" or not is_same_file(source, kept):
        return plan
    if read_description(source, request.directory) == request:
        return with_own_text(plan, source)
    if is_edited(source):
        text = "options say it otherwise, so it is written again, without your comments"
        say(f"warning: {source}: {text}; change the file itself to keep them")
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
    """The line of a description that sets a field; None if an option does, or nothing.

    ``source``: the description, or a sweep file. ``exact``: as for :func:`place_of`.
    """
    if source is None or source.suffix != ".toml" or is_given(options, field):
        return None
    return position_of_field(source, field, exact=exact)


def with_options(request: Request, options: argparse.Namespace, plain: bool) -> Request:
    """The request with what the options set. ``plain``: there is no description.

    Raises InputError for an option that cannot be read, and PlanError.
    """
    values: dict[str, Any] = {
        "shape": _implied_shape(options),
        "sweep": _sweep(request, options),
        "values": {**request.values, **dict(map(_assignment, options.set))},
        "variables": {**request.variables, **dict(map(_assignment, options.var or ()))},
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


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        # The text behind a blank may be a value, even a secret one.
        first = text.split()[0] if text.split() else text
        raise InputError(f"--set {first!r}: write it as name=value, a parameter of the template")
    return name.strip(), value


# --- printing ---------------------------------------------------------------------------------


def _width() -> int:
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH


def _explain(plan: Plan, source: Path | None, options: argparse.Namespace) -> int:
    pattern = options.explain
    if not pattern:
        nodes = node_names(plan.graph)
        examples = ", ".join(map(plain, nodes[:6])) + (", …" if len(nodes) > 6 else "")
        raise InputError(f"--explain: name a node, or several as 'run0-*'; there are {examples}")
    explanations = explain(plan.graph, pattern, plan.dag_file)
    if not explanations:
        similar = nearest(pattern, node_names(plan.graph), cutoff=0.4)
        hint = f"; did you mean {similar}?" if similar else ""
        raise InputError(f"--explain {pattern!r}: no node is called so{hint}")
    source_of = partial(_source_of, source, options)
    nodes = tuple(explained(each, source_of) for each in explanations)
    if options.json:
        print_answer(NewExplainOutput(explained=nodes))
    else:
        print_explained(nodes, _width() if sys.stdout.isatty() else None)
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


def _print_plan(
    plan: Plan,
    diff: PlanDiff,
    problems: tuple[RequestProblem, ...],
    source: Path | None,
    past: StatsInput | None,
    advised: Mapping[str, RequestAdvice],
    options: argparse.Namespace,
) -> NewOutput | None:
    """Print the plan; with ``--json`` return what to print at the end instead."""
    cost = None if past is None else _cost(plan, past, options)
    if not options.json:
        print_plan(plan, diff, draw_graph(plan.graph, _width() - 2))
        if cost is not None:
            from metlmon.stats.cost import cost_estimate_lines
            from metlmon.stats.requests import advice_text, amount_text

            print()
            for sentence in cost_estimate_lines(cost, options.past):
                print(plain(sentence))
        for field, row in advised.items():
            taken = f"{option_of(field)} {amount_text(row, row.fitting)}"
            print(plain(f"{taken}, from {options.past}: {advice_text(row)}"))
        return None
    return NewOutput(
        plan=plan,
        problems=problems,
        shape=plan.request.shape.value if plan.request.source is None else "sweep file",
        source=source,
        picture=tuple(draw_graph(plan.graph, WIDTH)),
        change=diff,
        cost=UNSET if past is None else cost,
        requests=UNSET if past is None else dict(advised),
    )


def _cost(plan: Plan, past: StatsInput, options: argparse.Namespace) -> CostEstimate | None:
    """The expected cost, by the epochs of another ensemble."""
    from metlmon.stats.cost import cost_history, estimate_cost

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
        say(f"the cost is unknown: {why}")
    return result


# --- writing ------------------------------------------------------------------------------------


def _write(
    plan: Plan, diff: PlanDiff, answer: NewOutput | None, options: argparse.Namespace
) -> int:
    for remark in diff.notes:
        say(f"warning: {remark}")
    if diff.refusal is not None:
        print_answer(answer)
        say(diff.refusal)
        return Exit.USAGE
    if options.submit:
        _check_submittable(plan, diff)
    if options.dry_run or (diff.unchanged and not options.submit):
        print_answer(answer)
        return Exit.OK
    paths = () if diff.unchanged else _write_files(plan, diff, force=options.force)
    if answer is not None:
        answer = replace(answer, written=bool(paths))
    if options.submit:
        return submit_plan(plan, answer)
    print_answer(answer)
    next_steps(plan, diff)
    return Exit.OK


def _write_files(plan: Plan, diff: PlanDiff | None, *, force: bool) -> tuple[Path, ...]:
    """Write a DAG, or what differs from the one that is there. Raises InputError."""
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
    try:
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
    except PlanError as error:
        raise InputError(str(error)) from None
    if plan is None:
        return Exit.USAGE
    answer = SubmitOutput(plan=plan, problems=problems) if options.json else None
    if options.dry_run:
        print_answer(answer)
        if answer is None:
            print_files(plan)
        return Exit.OK
    paths = _write_files(plan, None, force=options.force)
    if answer is not None:
        answer = replace(answer, written=True)
    if not options.no_submit:
        return submit_plan(plan, answer)
    print_answer(answer)
    if answer is None:
        print(f"wrote {counts(plan)}: {', '.join(plain(str(path)) for path in paths)}")
    say(f"nothing is submitted; condor_submit_dag {shlex.quote(plan.dag_file)} there does it")
    return Exit.OK


def _open_pane(request: Request, options: argparse.Namespace) -> int:
    """Open the form, in which everything is shown before it is written. Raises InputError."""
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
        print_answer(SubmitListTemplatesOutput(templates=templates))
        return Exit.OK
    for template in templates:
        print(f"{template.name}: {plain(template.title)}")
        if template.about:
            print(f"    {plain(template.about)}")
        for parameter in template.parameters:
            default = "required" if parameter.required else f"default {parameter.default!r}"
            print(f"    --set {parameter.name}=…  {plain(parameter.help)} ({plain(default)})")
    return Exit.OK
