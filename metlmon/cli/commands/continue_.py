"""``metlmon continue``: a DAG that continues stopped and incomplete runs."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import Final

from metlmon.authoring.continuation import Continuation, ContinuedRun, continuation
from metlmon.authoring.request import PlanError
from metlmon.authoring.write_files import write_plan
from metlmon.cli.exit_codes import Exit
from metlmon.cli.output import Output, print_output
from metlmon.cli.reading import open_reader
from metlmon.cli.text_output import TextOutput
from metlmon.errors import InputError
from metlmon.tables.layout import Column, Kind
from metlmon.text.formatting import count, epoch_number, plain
from metlmon.text.record_json import Flat

NAME_LIMIT: Final = 40
REASON_LIMIT: Final = 300


class ContinueOutput(Output, frozen=True, kw_only=True):
    """``metlmon continue --json``."""

    dagdir: str
    result: Flat[Continuation]
    written: bool


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
            _print(result)
        written = result.plan is not None and not options.dry_run
        if result.plan is not None and written:
            write_plan(result.plan)
    except PlanError as error:
        raise InputError(f"continue: {error}") from None
    if options.json:
        print_output(ContinueOutput(dagdir=reader.path_given, result=result, written=written))
    elif result.plan is not None:
        file = plain(result.plan.dag_file, 200)
        where = shlex.quote(plain(str(reader.dagdir), 2000))
        if written:
            line = f"cd {where} && condor_submit_dag {shlex.quote(file)}"
            print(f"{file}: written; to submit it: {line}")
    return Exit.OK


def _print(result: Continuation) -> None:
    out = TextOutput()
    if result.plan is not None:
        jobs = count(result.plan.jobs, "node")
        of = ", ".join(plain(file, NAME_LIMIT) for file in result.source_files)
        runs = count(len(result.runs), "run")
        print(f"{plain(result.plan.dag_file, 200)} goes on with {runs} of {of}: {jobs}\n")
        out.table(_columns(), result.runs)
        print()
    else:
        print("No run continues.")
    for each in result.excluded:
        name, why = plain(each.run, NAME_LIMIT), plain(each.reason, REASON_LIMIT)
        print(f"{name} is left out: {why}")


def _columns() -> list[Column[ContinuedRun]]:
    """The columns of the runs that continue."""

    def trains(run: ContinuedRun) -> str:
        first, last = epoch_number(run.first_epoch), epoch_number(run.last_epoch)
        return f"epoch {first}" if first == last else f"epochs {first} to {last}"

    return [
        Column("run", lambda run: plain(run.run, NAME_LIMIT)),
        Column("uuid", lambda run: plain(run.uuid, 16), drop=1),
        Column(
            "done",
            lambda run: None if run.done_epoch is None else epoch_number(run.done_epoch),
            Kind.COUNT,
            write=lambda epoch: f"epoch {epoch}",
        ),
        Column("trains", trains),
        Column("before", lambda run: plain(run.reason, REASON_LIMIT)),
    ]
