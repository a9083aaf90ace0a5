"""``metlmon submit``: write an ensemble and submit it, with a screen or without."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from metlmon import authoring
from metlmon.authoring.request import (
    Plan,
    PlanError,
    Request,
    RequestProblem,
    StopRules,
)
from metlmon.cli.exit_codes import Exit
from metlmon.cli.new_output import (
    SubmitOutput,
    TemplatesOutput,
    counts,
    print_answer,
    print_files,
    say,
)
from metlmon.cli.new_output import submit as submit_dag
from metlmon.cli.output import is_terminal
from metlmon.cli.request_options import option_of, with_options
from metlmon.config.loader import load_settings
from metlmon.errors import InputError
from metlmon.text.formatting import plain

_MOST_NAMES: Final = 1000
"""Names of new directories to try: ``ensemble-2``, ``ensemble-3``…"""


def submit(options: argparse.Namespace) -> int:
    """``metlmon submit``. Raises InputError for arguments that cannot be used."""
    try:
        if options.list_templates:
            return _list_templates(options.json)
        directory = options.dir if options.dir is not None else options.name.replace("/", "_")
        request = with_options(Request("", Path(directory), gate=StopRules()), options, plain=True)
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


def _new_directory(name: str) -> Path:
    """A directory that does not exist yet, as the default of the form."""
    paths = (Path(f"{name}-{n}" if n > 1 else name) for n in range(1, _MOST_NAMES))
    return next((path for path in paths if not path.exists()), Path(name))


def _plan(request: Request) -> tuple[Plan | None, tuple[RequestProblem, ...]]:
    """The plan, if there is one, and all problems, which are printed."""
    validation = authoring.validate(request)
    problems = validation.problems
    for problem in problems:
        kind = "" if problem.fatal else "warning: "
        say(problem.text, f"{kind}{option_of(problem.field)}: ")
    if validation.fatal:
        return None, problems
    try:
        return authoring.make_plan(request, validation), problems
    except PlanError as error:
        say(str(error))
        return None, problems


def _dry_run(request: Request, options: argparse.Namespace) -> int:
    plan, problems = _plan(request)
    if plan is None:
        return Exit.USAGE
    if options.json:
        print_answer(SubmitOutput(plan=plan, problems=problems))
    else:
        print_files(plan)
    return Exit.OK


def _write_and_submit(request: Request, options: argparse.Namespace) -> int:
    plan, problems = _plan(request)
    if plan is None:
        return Exit.USAGE
    try:
        paths = authoring.write_plan(plan, overwrite=options.force)
    except PlanError as error:
        hint = " (--force)" if plan.existing_files and not options.force else ""
        say(f"{error}{hint}")
        return Exit.USAGE
    answer = SubmitOutput(plan=plan, problems=problems, written=True) if options.json else None
    if not options.no_submit:
        return submit_dag(plan, answer)
    print_answer(answer)
    if answer is None:
        print(f"wrote {counts(plan)}: {', '.join(plain(str(path)) for path in paths)}")
    say(f"nothing is submitted; condor_submit_dag {shlex.quote(plan.dag_file)} there does it")
    return Exit.OK


def _list_templates(as_json: bool) -> int:
    templates = authoring.templates()
    if as_json:
        print_answer(TemplatesOutput(templates=templates))
        return Exit.OK
    for template in templates:
        print(f"{template.name}: {plain(template.title)}")
        if template.about:
            print(f"    {plain(template.about)}")
        for parameter in template.parameters:
            default = "required" if parameter.required else f"default {parameter.default!r}"
            print(f"    --set {parameter.name}=…  {plain(parameter.help)} ({plain(default)})")
    return Exit.OK
