"""``metlmon submit``: write an ensemble and hand it to the pool, with a screen or without."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from metlmon import authoring
from metlmon.authoring.inputs import megabytes, seeds_in, sites_in
from metlmon.authoring.request import (
    Plan,
    PlanError,
    Policy,
    Request,
    RequestProblem,
    StopRules,
    Template,
)
from metlmon.cli.exit_codes import Exit
from metlmon.cli.output import is_terminal, print_json
from metlmon.config.files import load_settings
from metlmon.live.errors import InputError, shorten_words
from metlmon.pool.types import PoolError, SubmitResult
from metlmon.redact import redact_secrets
from metlmon.text.formatting import plain

SCHEMA: Final = 1
"""Of the JSON: fields are added, never renamed."""

MOST_TRIED: Final = 1000
"""Names of new directories that are tried: ``ensemble-2``, ``ensemble-3``…"""

_SENTENCE: Final = 2000


def submit(options: argparse.Namespace) -> int:
    """``metlmon submit``. Raises InputError for arguments that cannot be used."""
    try:
        if options.list_templates:
            return _list_templates(options.json)
        request = asked(options)
    except PlanError as error:
        raise InputError(str(error)) from None
    if options.dry_run:
        return _dry_run(request, options)
    if not options.no_submit and load_settings(request.directory).read_only:
        raise InputError(
            "submit: metlmon.toml says read_only = true; take that out, or say --no-submit to "
            "write the files only"
        )
    if options.yes or options.no_submit:
        return _write_and_submit(request, options)
    if options.json or not is_terminal():
        raise InputError(
            "submit: without a terminal to ask at, or with --json, say --yes to write and submit, "
            "--no-submit to write only, or --dry-run to see what would be written"
        )
    from metlmon.cli.session_setup import open_submit_pane

    if options.dir is None:
        request = replace(request, directory=_new_directory(request.name))
    return open_submit_pane(options, request)


# --- the request --------------------------------------------------------------------------


def asked(options: argparse.Namespace) -> Request:
    """What the options ask for. Raises InputError for one that cannot be read."""
    usual = Request("", Path())
    seeds = _seeds(options.seeds)
    return Request(
        template=template_name(options.template),
        directory=Path(options.dir if options.dir is not None else _beside(options.name)),
        name=options.name,
        runs=options.runs if options.runs is not None else len(seeds) or usual.runs,
        epochs=options.epochs,
        seeds=seeds,
        sites=sites_in(options.sites or ""),
        policy=Policy(options.policy),
        gpus=options.gpus,
        gpu_models=sites_in(options.gpu_models or ""),
        gpu_memory_mb=None if options.gpu_memory is None else _size(options, "gpu_memory"),
        memory_mb=_size(options, "memory"),
        retries=options.retries,
        values=dict(map(setting, options.set)),
        gate=None if options.gate is False else StopRules(),
    )


def _beside(name: str) -> str:
    """The directory of a DAG for which none was given; a bad name is told of as a name only."""
    return name.replace("/", "_")


def template_name(given: str | None) -> str:
    if given is not None:
        return given
    known = authoring.templates()
    return known[0].name if known else ""


def _seeds(text: str | None) -> tuple[int, ...]:
    try:
        return seeds_in(text or "")
    except ValueError as error:
        raise InputError(f"--seeds {text!r}: {error}") from None


def _size(options: argparse.Namespace, name: str) -> int:
    text = getattr(options, name)
    size = megabytes(text)
    if size is None:
        option = "--" + name.replace("_", "-")
        raise InputError(f"{option} {text!r} is no size; write it as 4096 (MB) or 4GB")
    return size


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        # What stands behind a blank may be a value, and a secret one.
        said = text.split()[0] if text.split() else text
        raise InputError(f"--set {said!r}: write it as name=value, a parameter of the template")
    return name.strip(), value


def _new_directory(name: str) -> Path:
    """A name that nothing has yet, for the pane to begin with."""
    tried = (Path(f"{name}-{n}" if n > 1 else name) for n in range(1, MOST_TRIED))
    return next((each for each in tried if not each.exists()), Path(name))


# --- what would be written ------------------------------------------------------------------


def _planned(request: Request) -> tuple[Plan | None, tuple[RequestProblem, ...]]:
    """The plan, and all complaints, which are told on standard error."""
    found = authoring.validate(request)
    _tell(found)
    if any(each.fatal for each in found):
        return None, found
    try:
        return authoring.make_plan(request), found
    except PlanError as error:
        say(str(error))
        return None, found


def _tell(found: Iterable[RequestProblem]) -> None:
    for each in found:
        kind = "" if each.fatal else "warning: "
        say(each.text, f"{kind}{option_of(each.field)}: ")


OPTIONS: Final = {
    "directory": "DIR",
    "gpu_memory_mb": "--gpu-memory",
    "gpu_models": "--gpu-models",
    "memory_mb": "--memory",
    "evaluation": "--evaluate",
    "evaluation.template": "--evaluate",
    "evaluation.every": "--every",
    "gate.patience": "--stop-patience",
    "gate.divergence": "--diverge",
    "gate.median_after": "--median-after",
    "source": "FILE",
    "variables": "--var",
}
"""Fields that are called otherwise on the command line."""


def option_of(field: str) -> str:
    """What the field of a complaint is called on the command line."""
    if field.startswith("values."):
        return f"--set {field.removeprefix('values.')}"
    if field.startswith("variables."):
        return f"--var {field.removeprefix('variables.')}"
    return OPTIONS.get(field, f"--{field}")


def say(text: str, of: str = "") -> None:
    """A sentence, behind what it is about. Each is looked through by itself: what is called
    ``api_token:`` is not one that the sentence then gives away."""
    print(
        f"metlmon: {plain(shorten_words(redact_secrets(of) + redact_secrets(text)), _SENTENCE)}",
        file=sys.stderr,
    )


def _dry_run(request: Request, options: argparse.Namespace) -> int:
    plan, found = _planned(request)
    if plan is None:
        return Exit.USAGE
    if options.json:
        print_json(plan_json(plan, found))
    else:
        _print_plan(plan)
    return Exit.OK


def _print_plan(plan: Plan) -> None:
    where = plain(str(plan.request.directory))
    print(f"{plan.dag_file} in {where}: {counts(plan)}, template {plain(plan.request.template)}")
    for run in plan.runs:
        # One word where all epochs go to the same place.
        goes = run.targets[:1] if len(set(run.targets)) == 1 else run.targets
        on = "" if run.gpu is None else f"  on {plain(run.gpu)}"
        print(f"  {run.name}  {run.uuid}  seed {run.seed}  {' '.join(goes)}{on}")
    for file in plan.files:
        notes = [file.about, f"{len(file.data)} bytes"]
        notes += ["executable"] * file.executable + ["EXISTS ALREADY"] * file.exists
        print(f"\n=== {file.name} ({'; '.join(notes)})")
        for line in authoring.shown(file).rstrip("\n").split("\n"):
            print(visible(line))


def counts(plan: Plan) -> str:
    words = (("run", len(plan.runs)), ("node", plan.nodes), ("job", plan.jobs))
    told = [(word, n) for word, n in words if n or word != "run"]
    return ", ".join(f"{n} {word}" if n == 1 else f"{n} {word}s" for word, n in told)


_BLANKS: Final = re.compile(r"([ \t]+)")


def visible(line: str) -> str:
    """A line as it will be written, but for what a terminal would obey or not show: that is
    escaped."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(
        each if number % 2 else plain(each) for number, each in enumerate(_BLANKS.split(line))
    )


def plan_json(plan: Plan, found: Iterable[RequestProblem]) -> dict[str, Any]:
    """The plan as ``--json`` prints it; ``text`` is null for a file that is not text."""
    request = plan.request
    return {
        "schema": SCHEMA,
        "directory": str(request.directory),
        "dag": plan.dag_file,
        "template": request.template,
        "nodes": plan.nodes,
        "jobs": plan.jobs,
        "runs": [
            {
                "run": run.name,
                "uuid": run.uuid,
                "seed": run.seed,
                "targets": list(run.targets),
                "gpu": run.gpu,
            }
            for run in plan.runs
        ],
        "files": [
            {
                "name": file.name,
                "about": file.about,
                "executable": file.executable,
                "exists": file.exists,
                "bytes": len(file.data),
                "text": authoring.shown(file) if _is_text(file.data) else None,
            }
            for file in plan.files
        ],
        "complaints": [
            {"field": each.field, "text": each.text, "fatal": each.fatal} for each in found
        ],
        "written": False,
        "submitted": None,
    }


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# --- writing and submitting -----------------------------------------------------------------


def _write_and_submit(request: Request, options: argparse.Namespace) -> int:
    plan, found = _planned(request)
    if plan is None:
        return Exit.USAGE
    try:
        paths = authoring.write_plan(plan, overwrite=options.force)
    except PlanError as error:
        hint = " (--force)" if plan.in_the_way and not options.force else ""
        say(f"{error}{hint}")
        return Exit.USAGE
    answer = {**plan_json(plan, found), "written": True}
    dag = request.directory / plan.dag_file
    watch = f"metlmon watch {shlex.quote(str(request.directory))}"
    if options.no_submit:
        _answer(options, answer, [f"wrote {counts(plan)}: {listed(paths)}"])
        say(f"nothing is submitted; condor_submit_dag {shlex.quote(plan.dag_file)} there does it")
        return Exit.OK
    try:
        done = hand_over(dag)
    except PoolError as error:
        _answer(options, answer, [])
        say(f"written, but not submitted: {error}")
        return Exit.REFUSED
    told = {"cluster": done.cluster, "way": done.way, "text": done.text or None}
    _answer(
        options,
        {**answer, "submitted": told},
        [f"cluster {done.cluster}: {plain(str(dag))}, {counts(plan)}, submitted by {done.way}"],
    )
    say(f"watch it with: {watch}")
    return Exit.OK


def hand_over(dag: Path) -> SubmitResult:
    from metlmon.pool.client import open_pool

    office = open_pool()
    try:
        return office.submit_dag(dag.absolute())
    finally:
        office.close()


def _answer(options: argparse.Namespace, answer: dict[str, Any], lines: list[str]) -> None:
    if options.json:
        print_json(answer)
    else:
        for line in lines:
            print(line)


def listed(paths: Iterable[Path]) -> str:
    return ", ".join(plain(str(path)) for path in paths)


# --- templates ------------------------------------------------------------------------------


def _list_templates(as_json: bool) -> int:
    known = authoring.templates()
    if as_json:
        print_json({"schema": SCHEMA, "templates": [_template_json(each) for each in known]})
        return Exit.OK
    for each in known:
        print(f"{each.name}: {plain(each.title)}")
        if each.about:
            print(f"    {plain(each.about)}")
        for parameter in each.parameters:
            default = "required" if parameter.required else f"default {parameter.default!r}"
            print(f"    --set {parameter.name}=…  {plain(parameter.help)} ({plain(default)})")
    return Exit.OK


def _template_json(template: Template) -> dict[str, Any]:
    return {
        "name": template.name,
        "title": template.title,
        "about": template.about,
        "parameters": [
            {
                "name": each.name,
                "default": None if each.required else each.default,
                "help": each.help,
                "required": each.required,
            }
            for each in template.parameters
        ],
        "ships": [name for name, _, _ in template.ships],
    }
