"""``metlmon new``: a description, a sweep file or options → a directory with the DAG.

What it would be is told first: how many runs, nodes and jobs, the files, and a picture; where a
DAG is there already, what differs. ``--json`` prints one object (schema 1)::

    schema, directory, dag, template, runs, nodes, jobs, files, complaints, written, submitted
               as `metlmon submit --json` has them
    shape      chain, sweep, stages, bag or multi-node
    source     the description or sweep file that was read, or null
    picture    lines that draw the graph
    cost       with --past: epochs, gpu_hours, lower, upper, seconds (of a run), and past (epochs,
               gpu_hours, lower, upper: of one; lost: the share; cycle_seconds); null: not known
    change     what differs from what is there:
      stand    new, written, running or ended: how far the DAG that is there has come
      same     nothing is to be written
      ran      nodes of it that have run
      rescue   the file that the next DAGMan goes on from, or null
      refusal  why it may not be written, or null
      remarks  what is to be known before it is
      runs_added, runs_removed   names
      nodes    each: node, dag, how (added, removed, changed), ran, differences (name, old, new)
      files    each: name, how (added, changed, unused), by_hand, kept

``--explain NODE --json``: ``explained``, a list of nodes; each has node, file, role, run, epoch,
submit, pre, post, hold, defer, options (of scripts, by PRE, POST and HOLD), skip, retries,
unless_exit, parents, children, weak_parents, says (further lines of the DAG file about it), where,
and variables: name, value, level, where, append (goes before the submit file, too), and hides (the
same of lower levels).
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import threading
from codecs import BOM_UTF8
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metlmon import authoring
from metlmon.authoring.ascii_graph import picture
from metlmon.authoring.diff import FileChangeKind, PlanDiff, plan_diff
from metlmon.authoring.explain import explain, names
from metlmon.authoring.from_toml import (
    STEERED,
    DescriptionError,
    description_of,
    place_of,
    template_for,
)
from metlmon.authoring.graph import VariableValue
from metlmon.authoring.inputs import megabytes, seeds_in, sites_in
from metlmon.authoring.manifest import by_hand, in_own_words, kept_name
from metlmon.authoring.request import (
    EnsembleShape,
    Evaluation,
    Plan,
    PlanError,
    Policy,
    Request,
    RequestProblem,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
)
from metlmon.authoring.runs import epochs_of, gpus_of
from metlmon.authoring.target_directory import in_the_way, same_place
from metlmon.authoring.to_toml import example
from metlmon.authoring.variables import DESCRIPTION
from metlmon.authoring.write_files import amend_plan
from metlmon.cli.commands import new_output
from metlmon.cli.commands.submit import counts, hand_over, option_of, plan_json, say, setting
from metlmon.cli.exit_codes import Exit
from metlmon.cli.output import print_json
from metlmon.config.files import load_settings
from metlmon.live.errors import InputError
from metlmon.pool.types import PoolError
from metlmon.text.formatting import plain

if TYPE_CHECKING:
    from metlmon.stats.cost import CostEstimate

SWEEP_FILE: Final = 1 << 22
"""Bytes of a file that is asked whether it is a sweep."""

SWEEP_SYNTAX: Final = "sweep-file"
"""The example that is no description: what a sweep file may say."""

SLOW: Final = 1.0
"""Seconds without an answer, after which it is said that there will be one."""

FIELDS: Final = {"random_seed": "seeds"}
"""Variables that the description calls otherwise."""

SAID_BY_A_SWEEP_FILE: Final = (
    *("shape", "runs", "epochs", "sweep", "how", "shards", "machines", "every"),
)
"""Options that mean nothing beside one."""

_PLACED: Final = re.compile(r"[^:]+:[0-9]+: ")
"""What begins with file and line."""

CELLS: Final = 80
"""Of a picture that no terminal asks for."""


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
    slow = threading.Timer(SLOW, _tell_slow)
    slow.daemon = True
    try:
        request, source = asked(options)
        slow.start()
        found = list(authoring.validate(request, amending=_amends(request)))
        _tell(found, source, options)
        if any(each.fatal for each in found):
            return Exit.USAGE
        plan = authoring.make_plan(request, amending=_amends(request))
        if options.explain is not None:
            return _explain(plan, source, options)
        plan = _in_own_words(plan, source)
        if options.picture:
            print(*picture(plan.graph, _cells()), sep="\n")
            return Exit.OK
        change = plan_diff(plan, source, options.force)
    except DescriptionError as error:
        for sentence in error.sentences:
            say(sentence)
        return Exit.USAGE
    except PlanError as error:
        raise InputError(str(error)) from None
    finally:
        slow.cancel()
    return _write(plan, change, found, source, options)


def _tell_slow() -> None:
    """Nobody should think that it hangs; who reads a file or a pipe does not wait."""
    if sys.stderr.isatty():
        say("working it out: so many nodes take a while")


# --- what is asked for ------------------------------------------------------------------------


def asked(options: argparse.Namespace) -> tuple[Request, Path | None]:
    """The request, and the file that it begins with. Raises InputError and PlanError."""
    source, directory = _places(options)
    if source is None and directory is not None:
        source = _kept_there(directory, options.name)
    if source is None:
        request = Request("", Path(), gate=StopRules())
    elif source.suffix == ".toml":
        request = description_of(source)
    else:
        request = Request(
            "", Path(), name=source.stem, gate=StopRules(), source=_sweep_file(source)
        )
    if request.source is not None:
        _refuse_beside_a_sweep_file(options)
    request = _changed(request, options, plain=source is None)
    if directory is None:
        directory = _home(source, request.name)
    return replace(request, directory=directory), source


def _places(options: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """FILE and DIR: what ends in .toml, or is a file, is FILE."""
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


def _kept_there(directory: Path, name: str | None) -> Path | None:
    """The description that was kept beside a DAG in this directory."""
    try:
        there = os.listdir(directory)
    except OSError:
        return None
    found = sorted(
        kept_name(dag.removesuffix(".dag"))
        for dag in there
        if dag.endswith(".dag") and kept_name(dag.removesuffix(".dag")) in there
    )
    if name is not None:
        return directory / kept_name(name) if kept_name(name) in found else None
    if len(found) > 1:
        raise InputError(f"{directory}: holds {', '.join(found)}; say which one, or --name")
    return directory / found[0] if found else None


def _home(source: Path | None, name: str) -> Path:
    """Where the DAG goes when nothing is said: to that of which ``source`` is the description,
    else to a directory of its name."""
    kept = source is not None and source.name == kept_name(name)
    if source is not None and kept and in_the_way(source.parent / f"{name}.dag"):
        return source.parent
    return Path(name.replace("/", "_"))


def _sweep_file(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            text = file.read(SWEEP_FILE)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    lines = text.removeprefix(BOM_UTF8).upper().split(b"\n")
    words = (line.split(None, 2)[:2] for line in lines)
    if [b"GEN", b"SUBDAG"] not in words:
        raise InputError(
            f"{path}: is neither a description (.toml) nor a sweep file: it has no GEN SUBDAG; "
            "a DAG file that is written already can be looked at with metlmon check"
        )
    return path


def _refuse_beside_a_sweep_file(options: argparse.Namespace) -> None:
    """What a sweep file says itself would have no effect beside it, or half of one."""
    said = [name for name in SAID_BY_A_SWEEP_FILE if getattr(options, name) not in (None, [])]
    if options.evaluate == "":
        said.append("evaluate")
    if said:
        remedy = "; name a template (--evaluate T), or take it out" * (said[0] == "evaluate")
        raise InputError(f"--{said[0]}: the sweep file says that{remedy or '; take it out'}")


def _changed(request: Request, options: argparse.Namespace, plain: bool) -> Request:
    """The request with what the options say. ``plain``: nothing else says anything."""
    said: dict[str, Any] = {
        "name": options.name,
        "runs": options.runs,
        "epochs": options.epochs,
        "gpus": options.gpus,
        "retries": options.retries,
        "shards": options.shards,
        "machines": options.machines,
        "subdags": options.subdags,
        "policy": None if options.policy is None else Policy(options.policy),
        "sites": None if options.sites is None else sites_in(options.sites),
        "gpu_models": None if options.gpu_models is None else sites_in(options.gpu_models),
        "gpu_memory_mb": _size(options, "gpu_memory"),
        "memory_mb": _size(options, "memory"),
        "template": options.template,
    }
    if options.seeds is not None:
        said["seeds"] = _seeds(options.seeds)
        if options.runs is None and request.source is None and said["seeds"]:
            said["runs"] = len(said["seeds"])
    shape = _shape(options)
    said |= {"shape": shape, "sweep": _sweep(request, options)}
    said |= {"evaluation": _evaluation(request, options)}
    said = {field: value for field, value in said.items() if value is not None}
    said["values"] = {**request.values, **dict(map(setting, options.set))}
    said["variables"] = {**request.variables, **dict(map(setting, options.var))}
    request = replace(request, **said)
    if not request.template:
        request = replace(request, template=template_for(request.shape))
    return replace(request, gate=_gate(request, options, plain))


def _shape(options: argparse.Namespace) -> EnsembleShape | None:
    if options.shape is not None:
        return EnsembleShape(options.shape)
    told = {
        EnsembleShape.SWEEP: bool(options.sweep),
        EnsembleShape.BAG: options.shards is not None,
        EnsembleShape.MULTI_NODE: options.machines is not None,
    }
    return next((shape for shape, said in told.items() if said), None)


def _sweep(request: Request, options: argparse.Namespace) -> SweepRequest | None:
    how = None if options.how is None else SweepMode(options.how)
    if not options.sweep:
        if how is None:
            return None
        if request.sweep is None:
            raise InputError("--how: there is no sweep; say what is swept with --sweep NAME=VALUES")
        return replace(request.sweep, how=how)
    from metlmon.authoring.sweeps.values import values

    variables = []
    for text in options.sweep:
        name, equals, line = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--sweep {text!r}: write it as a=0.01 to 0.1 by 0.01, or a=1,2,3")
        where = f"--sweep {name.strip()}"
        variables.append(SweptVariable(name.strip(), values(line, where), where))
    group = request.sweep.group if request.sweep is not None else "run"
    return SweepRequest(group, tuple(variables), how, "--sweep")


def _evaluation(request: Request, options: argparse.Namespace) -> Evaluation | None:
    if options.evaluate is None and options.every is None:
        return request.evaluation
    found = request.evaluation or Evaluation()
    if options.evaluate:
        found = replace(found, template=options.evaluate)
    return found if options.every is None else replace(found, every=options.every)


def _gate(request: Request, options: argparse.Namespace, plain: bool) -> StopRules | None:
    rules = {
        "patience": options.stop_patience,
        "divergence": options.diverge,
        "median_after": options.median_after,
    }
    rules = {field: value for field, value in rules.items() if value is not None}
    if options.gate is False:
        if rules:
            raise InputError("--no-gate: nobody would follow the rules then; take one of them out")
        return None
    gate = request.gate
    if plain and request.shape not in STEERED and not options.gate:
        gate = None
    if rules or options.gate:
        gate = gate or StopRules()
    return replace(gate, **rules) if gate is not None and rules else gate


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return seeds_in(text)
    except ValueError as error:
        raise InputError(f"--seeds {text!r}: {error}") from None


def _size(options: argparse.Namespace, name: str) -> int | None:
    text = getattr(options, name)
    if text is None:
        return None
    size = megabytes(text)
    if size is None:
        option = "--" + name.replace("_", "-")
        raise InputError(f"{option} {text!r} is no size; write it as 4096 (MB) or 4GB")
    return size


def _amends(request: Request) -> bool:
    return in_the_way(request.directory / f"{request.name}.dag")


def _tell(found: list[RequestProblem], source: Path | None, options: argparse.Namespace) -> None:
    """Complaints, each with the line or the option that it is about."""
    for each in found:
        kind = "" if each.fatal else "warning: "
        where = None
        if source is not None and source.suffix == ".toml" and not _is_given(options, each.field):
            where = place_of(source, each.field)
        whole = source is not None and each.text.startswith(f"{source.name}:")
        if whole or (each.field == "source" and _PLACED.match(each.text)):
            say(f"{kind}{each.text}")
        else:
            say(each.text, f"{kind}{where or option_of(each.field)}: ")


def _is_given(options: argparse.Namespace, field: str) -> bool:
    """Does an option say what the complaint is about?"""
    name, _, rest = field.partition(".")
    if name in ("values", "variables"):
        texts = options.set if name == "values" else options.var
        return any(text.partition("=")[0].strip() == rest for text in texts)
    option = option_of(field).removeprefix("--").replace("-", "_")
    return getattr(options, option, None) not in (None, [])


# --- showing ------------------------------------------------------------------------------------


def _cells() -> int:
    return shutil.get_terminal_size((CELLS, 24)).columns if sys.stdout.isatty() else CELLS


def _explain(plan: Plan, source: Path | None, options: argparse.Namespace) -> int:
    if not options.explain:
        known = names(plan.graph)
        some = ", ".join(map(plain, known[:6])) + (", …" if len(known) > 6 else "")
        raise InputError(f"--explain: name a node, or several as 'run0-*'; there are {some}")
    found = explain(plan.graph, options.explain, plan.dag_file)
    if not found:
        from difflib import get_close_matches

        near = get_close_matches(options.explain[:80], names(plan.graph)[:20_000], n=1, cutoff=0.4)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"--explain {options.explain!r}: no node is called so{meant}")
    place = partial(_place_of, source, options)
    if options.json:
        told = [new_output.explained_json(each, place) for each in found]
        print_json({"schema": 1, "explained": told})
    else:
        room = _cells() if sys.stdout.isatty() else None
        new_output.print_explained(found, place, room)
    return Exit.OK


def _place_of(source: Path | None, options: argparse.Namespace, given: VariableValue) -> str:
    """What gave a variable, with the line or the option where it is the description."""
    if given.where != DESCRIPTION:
        return given.where
    field = FIELDS.get(given.name, given.name)
    fields = (f"variables.{given.name}", f"values.{given.name}", field)
    for field in fields:
        if _is_given(options, field):
            return option_of(field)
    if source is None or source.suffix != ".toml":
        return "the default"
    places = (place_of(source, field, exact=True) for field in fields)
    return next((place for place in places if place is not None), "the default")


# --- writing ------------------------------------------------------------------------------------


def _in_own_words(plan: Plan, source: Path | None) -> Plan:
    """The plan, whose description is that of the user where it lies beside the DAG already and
    says all of it: with the comments of those who wrote it."""
    request = plan.request
    kept = request.directory / kept_name(request.name)
    if source is None or source.suffix != ".toml" or not same_place(source, kept):
        return plan
    if description_of(source, request.directory) == request:
        return in_own_words(plan, source)
    if by_hand(source):
        text = "options say it otherwise, so it is written anew, without comments of yours"
        say(f"warning: {source}: {text}; change the file itself to keep them")
    return plan


def _write(
    plan: Plan,
    change: PlanDiff,
    found: list[RequestProblem],
    source: Path | None,
    options: argparse.Namespace,
) -> int:
    drawn = picture(plan.graph, CELLS if options.json else _cells() - 2)
    answer: dict[str, Any] = {}
    if options.json:  # The texts of 100,000 nodes take seconds to be looked through.
        answer = {
            **plan_json(plan, found),
            "shape": plan.request.shape.value if plan.request.source is None else "sweep file",
            "source": None if source is None else str(source),
            "picture": drawn,
            "change": new_output.change_json(change),
        }
    costs = None if options.past is None else _cost(plan, options)
    if options.past is not None:
        answer["cost"] = None if costs is None else new_output.cost_json(costs)
    if not options.json:
        new_output.print_plan(plan, change, drawn)
        if costs is not None:
            _print_cost(costs, options)
    for remark in change.remarks:
        say(f"warning: {remark}")
    if change.refusal is not None:
        _answer(options, answer)
        say(change.refusal)
        return Exit.USAGE
    if options.submit:
        _may_submit(plan, change)
    if options.dry_run or (change.same and not options.submit):
        _answer(options, answer)
        return Exit.OK
    try:
        paths = () if change.same else _placed(plan, change, options)
    except PlanError as error:
        say(f"{error}{' (--force)' if plan.in_the_way and not options.force else ''}")
        return Exit.USAGE
    answer["written"] = bool(paths)
    if options.submit:
        return _submit(plan, answer, options)
    _answer(options, answer)
    new_output.say_next(plan, change)
    return Exit.OK


def _cost(plan: Plan, options: argparse.Namespace) -> CostEstimate | None:
    """What it would cost by what the epochs of another ensemble did."""
    from metlmon.cli.reading import read_whole
    from metlmon.stats.cost import cost_history, estimate_cost
    from metlmon.stats.worker import StatsInput

    reader = read_whole(Path(options.past))
    painter = reader.snapshot_builder()
    known = cost_history(StatsInput(painter.status(), painter.ledger(), reader.ensemble.settings))
    asked = plan.request
    evaluations = asked.evaluation is not None
    made = estimate_cost(
        known, plan.graph.trainings, epochs_of(asked), gpus_of(asked), evaluations=evaluations
    )
    if made is None:
        why = "it trains no epoch" if known else f"too few epochs of {options.past} are completed"
        say(f"what it would cost cannot be told: {why}")
    return made


def _print_cost(made: CostEstimate, options: argparse.Namespace) -> None:
    from metlmon.stats.cost import cost_estimate_lines

    print()
    for sentence in cost_estimate_lines(made, options.past):
        print(plain(sentence))


def _placed(plan: Plan, change: PlanDiff, options: argparse.Namespace) -> tuple[Path, ...]:
    if change.stand is FileChangeKind.NEW:
        return authoring.write_plan(plan, overwrite=options.force)
    return amend_plan(plan, change)


def _may_submit(plan: Plan, change: PlanDiff) -> None:
    directory = plan.request.directory
    if load_settings(directory).read_only:
        raise InputError("--submit: metlmon.toml says read_only = true; take one of them out")
    if change.stand is FileChangeKind.ENDED:
        raise InputError(
            f"--submit: {plan.dag_file} ran before: write it without --submit, then go on with "
            f"metlmon act resubmit {shlex.quote(str(directory))}"
        )


def _submit(plan: Plan, answer: dict[str, Any], options: argparse.Namespace) -> int:
    dag = plan.request.directory / plan.dag_file
    try:
        done = hand_over(dag)
    except PoolError as error:
        _answer(options, answer)
        say(f"written, but not submitted: {error}")
        return Exit.REFUSED
    answer["submitted"] = {"cluster": done.cluster, "way": done.way, "text": done.text or None}
    _answer(options, answer)
    if not options.json:
        where = plain(str(dag))
        print(f"cluster {done.cluster}: {where}, {counts(plan)}, submitted by {done.way}")
    say(f"watch it with: metlmon watch {shlex.quote(str(plan.request.directory))}")
    return Exit.OK


def _answer(options: argparse.Namespace, answer: dict[str, Any]) -> None:
    if options.json:
        print_json(answer)
