"""``metlmon act``: hold, release, remove, stop, … by a command, after confirmation."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Final

from msgspec.structs import replace

from metlmon.cli import Exit
from metlmon.cli.output import LISTED, Output, print_message, print_output
from metlmon.cli.reading import one_run, open_reader
from metlmon.errors import InputError
from metlmon.live.session import Session
from metlmon.pool.client import PoolClient
from metlmon.pool.exclusion import can_exclude
from metlmon.pool.gate_requests import NO_SITE, site_of
from metlmon.pool.previews import (
    EXPECTED,
    NO_NAMES,
    RAISED,
    is_already_done,
    is_value,
    unknown_site,
    with_value,
)
from metlmon.pool.queue_checks import target
from metlmon.pool.types import (
    ACTS,
    AS_THE_DAG_SAYS,
    DAG_ACTS,
    PLACE_ACTS,
    RAISE_ACTS,
    RUN_ACTS,
    ActionPreview,
    ActionRequest,
    ActionResult,
    DagTarget,
    PoolAction,
    PoolError,
    ResultCode,
    RunTarget,
    SelectedRun,
    Target,
)
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import DagRow, Job, Run, Status
from metlmon.text.formatting import count, epoch_number, plain
from metlmon.text.record_json import Flat

TO_DAG: Final = "dag"
"""The value of ``--to`` for the site in the DAG file."""


class ActOutput(Output, frozen=True, kw_only=True):
    """``metlmon act --json``; ``refused``: why nothing was tried."""

    preview: Flat[ActionPreview]
    answers: tuple[ActionResult, ...]


def act(options: argparse.Namespace) -> int:
    """Perform an action. Returns 0 if all results are "done" or "already so"."""
    last = options.targets[-1] if options.targets else ""
    if last and os.path.exists(last) and not os.path.exists(options.dir):
        # DIR was given last.
        options.dir, options.targets = last, [options.dir, *options.targets[:-1]]
    action = PoolAction(options.action)
    value = _check_options(action, options)
    site = value if isinstance(value, str) and action not in RAISE_ACTS else None
    host = None
    reader = open_reader(options)
    if reader.ensemble.settings.read_only:
        raise InputError("read_only is set in metlmon.toml: nothing can be done to jobs from here")
    builder, session = reader.snapshot_builder(), Session(reader)
    status = session.take().status
    jobs: list[Job] = []
    dags: list[DagRow] = []
    runs: list[SelectedRun] = []
    if action in PLACE_ACTS:
        place = _select_place(ACTS[action].on, options.targets)
        site, host = (place, None) if ACTS[action].on == "site" else (None, place)
    elif action in DAG_ACTS:
        dags = [_select_dag(status, options.targets)]
    elif action in RUN_ACTS:
        runs = _select_runs(builder, session, options.targets)
    else:
        jobs = _select_jobs(builder, session, options.targets)
    with closing(PoolClient(session)) as client:
        assert client.queue is not None
        if action not in RUN_ACTS or action is PoolAction.STOP_NOW:
            # The other actions on runs only write files.
            client.queue.query()
        previews = client.previews(status, jobs, dags, runs, site, host)
        preview = next(preview for preview in previews if preview.act is action)
        if not jobs and not dags and not runs and action not in PLACE_ACTS:
            subject = plain(" ".join(options.targets), 200)
            reason = "no job of that is in the queue now"
            preview = replace(preview, subject=subject, request=None, refused=reason)
        warning = None
        if preview.request is not None:
            request = replace(preview.request, confirmed=tuple(options.keep))
            preview = replace(preview, request=request)
            if value is not None:
                preview = with_value(preview, value, client.queue_snapshot)
            if site is not None and action is not PoolAction.INCLUDE_SITE:
                warning = _unknown_site(client, builder, action, site)
            if action is PoolAction.EXCLUDE_HOST:
                known = host in {each.host for each in builder.ledger().executions}
                warning = None if known else f"no job has run on a host of the name {host}"
        if warning is not None and (options.yes or options.dry_run):
            refused = f"{warning} (without --yes you are asked)"
            preview = replace(preview, request=None, refused=refused)
        removed = [row for row in session.queued_jobs() if dags and row.dag == dags[0].file]
        return _perform(client, preview, options, removed, warning=warning)


def _check_options(action: PoolAction, options: argparse.Namespace) -> int | str | None:
    """The priority, site or request. Raises InputError for options that do not fit the action."""
    takes, is_raise = ACTS[action].value, action in RAISE_ACTS
    if takes != "priority" and not is_raise and options.value is not None:
        raise InputError(f"--value is for priority, raise-memory and raise-disk, not for {action}")
    if options.keep and action is not PoolAction.RESUBMIT:
        raise InputError(f"--keep is for resubmit, not for {action}")
    if takes != "site":
        if options.to is not None:
            raise InputError(f"--to is for retarget and send, not for {action}")
        if is_raise:
            value = RAISED if options.value is None else str(options.value)
            if not is_value(value):
                raise InputError(f"--value {plain(value, 60)}: {EXPECTED} is needed")
            return value
        return _priority(options.value) if takes == "priority" else None
    is_send = action is PoolAction.SEND
    if options.to is None:
        hint = f" (or --to {TO_DAG}: as the DAG file says)" if is_send else ""
        raise InputError(f"{action} needs --to SITE{hint}")
    if is_send and options.to == TO_DAG:
        return AS_THE_DAG_SAYS
    site = site_of(options.to)
    if site is None:
        raise InputError(f"--to {options.to}: {NO_SITE}")
    return site


def _priority(text: str | None) -> int:
    if text is not None and re.fullmatch(r"[+-]?\d{1,10}", text, re.ASCII):
        return int(text)
    wrong = "" if text is None else f"--value {plain(text, 60)}: "
    raise InputError(f"{wrong}priority needs --value N, a whole number; higher ones go first")


def _unknown_site(
    client: PoolClient, builder: SnapshotBuilder, action: PoolAction, site: str
) -> str | None:
    """A warning that the collector knows other sites; None if it does not respond."""
    sites = {builder.derivation.target(key) for key in builder.nodes}
    if action is not PoolAction.EXCLUDE_SITE:
        # A site of the logs may be metlmon's name for hosts that advertise none.
        sites |= {execution.site for execution in builder.ledger().executions}
    try:
        return unknown_site(site, client.sites(), (name for name in sites if name))
    except PoolError:
        return None


def _perform(
    client: PoolClient,
    preview: ActionPreview,
    options: argparse.Namespace,
    removed: Sequence[Job],
    warning: str | None,
) -> int:
    """Print the preview, ask, and perform it; a dry run prints what would be done."""
    request = preview.request
    if request is None:
        already = is_already_done(preview)
        verb = "no need to" if already else "cannot"
        print_message(f"{verb} {preview.phrase()}: {preview.refused}")
        if preview.line is not None:
            _print_note(_line_text(preview.line))
        _print_json(preview, (), options)
        return Exit.OK if already else Exit.REFUSED
    for line in preview_lines(preview, request, removed):
        _print_note(line)
    if warning is not None:
        _print_note(f"warning: {warning}")
    if options.dry_run:
        request = replace(request, dry=True)
        preview = replace(preview, request=request)
    elif not options.yes and not confirmed():
        return Exit.REFUSED

    names = {run.id: run.run for run in request.runs}

    def on_result(result: ActionResult) -> None:
        if not options.json and not (options.dry_run and result.reply is ResultCode.DONE):
            print(result_line(result, names), flush=True)

    try:
        results = client.perform(request, on_result)
    except PoolError as error:
        print_message(f"nothing was done: {error}")
        _print_json(replace(preview, refused=str(error)), (), options)
        return Exit.REFUSED
    if options.dry_run:
        results = tuple(result for result in results if result.reply is not ResultCode.DONE)
    _print_json(preview, results, options)
    return exit_status(results)


def _print_json(
    preview: ActionPreview, results: tuple[ActionResult, ...], options: argparse.Namespace
) -> None:
    """Print the results as JSON, if requested."""
    if options.json:
        print_output(ActOutput(preview=preview, answers=results))


def exit_status(results: Iterable[ActionResult]) -> Exit:
    """The exit status: OK if all results are "done" or "already so"."""
    return Exit.OK if all(result.succeeded for result in results) else Exit.REFUSED


# --- targets ------------------------------------------------------------------------------


def _select_dag(status: Status, targets: list[str]) -> DagRow:
    """The DAG that the targets name. Raises InputError with the candidates."""
    files = ", ".join(plain(dag.file, 60) for dag in status.dags)
    if not targets and len(status.dags) == 1:
        return status.dags[0]
    if len(targets) != 1:
        raise InputError(f"name one DAG: {files}" if files else "there is no DAG here")
    for dag in status.dags:
        if dag.file == targets[0]:
            return dag
    raise InputError(f"{targets[0]}: no such DAG; there are {files or 'none'}")


def _select_jobs(builder: SnapshotBuilder, session: Session, targets: list[str]) -> list[Job]:
    """The jobs that the targets name, each once. Raises InputError."""
    if not targets:
        raise InputError("name jobs (12.0), runs (a name, a uuid or its beginning), or: all")
    rows = (row for text in targets for row in _jobs_of(builder, session, text))
    return list({(row.cluster, row.proc): row for row in rows}.values())


def _jobs_of(builder: SnapshotBuilder, session: Session, text: str) -> Iterable[Job]:
    if text == "all":
        return session.queued_jobs()
    number = re.fullmatch(r"(\d{1,10})\.(\d{1,10})", text)
    if number is None:
        return session.queued_jobs(one_run(builder, text).key)
    job = int(number[1]), int(number[2])
    view = session.job_view(*job)
    if view is not None:
        return (view.job,)
    for dag in builder.status().dags:
        if (dag.cluster, 0) == job:
            raise InputError(
                f"{text}: DAGMan's own job of {plain(dag.file, 60)}; name the DAG, to halt, "
                "release-dag or remove-dag"
            )
    raise InputError(f"{text}: no log has this job")


def _select_runs(
    builder: SnapshotBuilder, session: Session, targets: list[str]
) -> list[SelectedRun]:
    """The runs that the targets name, each once. Raises InputError."""
    if not targets:
        raise InputError("name runs (a name, a uuid or its beginning), or: all")
    rows: dict[str, Run] = {}
    for text in targets:
        for row in builder.status().runs if text == "all" else (one_run(builder, text),):
            rows[row.key] = row
    return [SelectedRun(row, session.queued_jobs(row.key)) for row in rows.values()]


def _select_place(on: str, targets: list[str]) -> str:
    """The site or host that the targets name. Raises InputError."""
    if len(targets) != 1:
        by = " --by host" if on == "host" else ""
        raise InputError(f"name one {on}, as metlmon sites{by} lists it")
    if not can_exclude(targets[0], on):
        raise InputError(f"{targets[0]}: {NO_NAMES[on]}")
    return targets[0]


# --- text ---------------------------------------------------------------------------------


def preview_lines(
    preview: ActionPreview, request: ActionRequest, removed: Sequence[Job] = ()
) -> list[str]:
    """The targets of an action, those left out, its effect and how to undo it."""
    lines = [preview.phrase(request.site if request.value is None else request.value)]
    if request.runs or request.dag is None:
        lines += _listed("", map(_target_text, request.touched))
    elif request.targets:
        jobs = removed if preview.act is PoolAction.REMOVE_DAG else ()
        with_it = f", and {count(len(jobs), 'job')} with it" if jobs else ""
        lines.append(f"  DAGMan's job {request.targets[0].id}{with_it}")
        lines += _listed("  ", [_target_text(target(row)) for row in jobs])
    excluded = (
        f"{_target_text(each.target)}: {plain(each.reason, 120)}" for each in preview.left_out
    )
    lines += _listed("left out: ", excluded)
    lines += [f"effect: {preview.effect}", f"undo: {preview.undo}"]
    return lines if preview.line is None else [*lines, _line_text(preview.line)]


def _line_text(line: str) -> str:
    return f"the line of the submit file: {line}"


def _listed(prefix: str, names: Iterable[str]) -> list[str]:
    names = list(names)
    lines = [f"  {prefix}{name}" for name in names[:LISTED]]
    if len(names) > LISTED:
        lines.append(f"  {prefix}and {len(names) - LISTED} more")
    return lines


def _target_text(target: DagTarget | Target | RunTarget) -> str:
    if isinstance(target, DagTarget):
        runs = f"{count(len(target.runs), 'run')}: {', '.join(target.runs)}"
        return f"{plain(target.dag, 60)}  {plain(target.file, 300)}  {plain(runs, 300)}"
    parts = [target.id] if isinstance(target, Target) else []
    if target.run is not None:
        parts.append(plain(target.run, 60))
    if target.epoch is not None:
        parts.append(f"epoch {epoch_number(target.epoch)}")
    parts.append(str(target.state).replace("_", " "))
    files = target.files if isinstance(target, RunTarget) else [target.file or ""]
    return "  ".join([*parts, *(plain(file, 300) for file in files if file)])


def result_line(result: ActionResult, names: Mapping[str, str]) -> str:
    """``12.0  done``, with details if there are any; ``names``: those of runs by their subjects."""
    line = f"{plain(names.get(result.subject, result.subject), 60)}  {result.reply}"
    return f"{line}: {plain(result.text, 400)}" if result.text else line


def confirmed() -> bool:
    """Whether the user confirms on the terminal; a no is noted. Raises InputError without one."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError("nothing was done: there is no terminal to ask on; add --yes")
    sys.stderr.write("go on? [y/N] ")
    sys.stderr.flush()
    is_yes = sys.stdin.readline().strip().lower() in ("y", "yes")
    if not is_yes:
        print_message("nothing was done")
    return is_yes


def _print_note(line: str) -> None:
    """Print on standard error: standard output is for the results."""
    print(plain(line, 600) if not line.startswith("  ") else line, file=sys.stderr, flush=True)
