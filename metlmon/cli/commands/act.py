"""``metlmon act``: hold, release, remove, stop, … from the command line, after a yes."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output.objects import SCHEMA, JsonObject
from metlmon.cli.output import print_json
from metlmon.cli.reading import one_run, open_reader
from metlmon.live.errors import InputError
from metlmon.live.session import Session
from metlmon.pool.client import PoolClient
from metlmon.pool.gate_requests import NO_SITE, site_of
from metlmon.pool.job_actions import already_so
from metlmon.pool.reasons import target
from metlmon.pool.run_actions import unknown_site, with_site
from metlmon.pool.types import (
    AS_THE_DAG_SAYS,
    DAG_ACTS,
    RUN_ACTS,
    ActionPreview,
    ActionRequest,
    ActionResult,
    PoolAction,
    PoolError,
    ResultCode,
    RunTarget,
    SelectedRun,
    Target,
)
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.types import DagRow, JobRow, RunRow, Status
from metlmon.text.formatting import plain

JOBS_LISTED: Final = 20
"""Jobs that the question names; it counts the others."""

FILES_ALONE: Final = frozenset(RUN_ACTS) - {PoolAction.STOP_NOW}
"""They need no schedd, and none is asked."""

BACK: Final = "dag"
"""After ``--to``: where the DAG file says, no longer elsewhere."""
BACK_TOO: Final = f" (or --to {BACK}: as the DAG file says)"

WELL: Final = frozenset({ResultCode.DONE, ResultCode.ALREADY})

TARGET: Final = JsonObject(
    "Target",
    Target,
    "A job that an action is for; file is written, too.",
    "cluster proc dag node run epoch state file",
)
RUN_TARGET: Final = JsonObject(
    "RunTarget",
    RunTarget,
    "A run that an action is for, the files that it writes, and the jobs that it removes.",
    "run uuid dag epoch state files jobs",
)
LEFT_OUT: Final = JsonObject(
    "LeftOut",
    None,
    "A job or a run that an action leaves out, and why; with the fields of one of these.",
    given={"run": str | None, "dag": str | None, "epoch": int | None, "state": str, "why": str},
    optional={
        **{"cluster": int, "proc": int, "node": str | None, "file": str | None},
        **{"uuid": str | None, "files": list[str], "jobs": [TARGET]},
    },
)
ANSWER: Final = JsonObject(
    "Answer",
    ActionResult,
    "What came of an action for a job, a run or a DAG.",
    "subject reply",
    computed={"text": (str | None, lambda answer: answer.text or None)},
)
ACT_OUTPUT: Final = JsonObject(
    "ActOutput",
    ActionPreview,
    "metlmon act --json; refused: why nothing was tried.",
    "act subject",
    given={
        **{"schema": int, "dag": str | None, "value": int | None, "site": str | None},
        **{"runs": [RUN_TARGET], "jobs": [TARGET], "left_out": [LEFT_OUT]},
        **{"refused": str | None, "answers": [ANSWER]},
    },
)


def act(options: argparse.Namespace) -> int:
    """``metlmon act``. 0: every answer was "done" or "already so"; REFUSED: not so."""
    wanted = PoolAction(options.action)
    if wanted is PoolAction.PRIORITY and options.value is None:
        raise InputError("priority needs --value N, a whole number; higher ones go first")
    if wanted is not PoolAction.PRIORITY and options.value is not None:
        raise InputError(f"--value is for priority, not for {wanted}")
    site = _site(wanted, options.to)
    if options.keep and wanted is not PoolAction.RESUBMIT:
        raise InputError(f"--keep is for resubmit, not for {wanted}")
    reader = open_reader(options)
    if reader.ensemble.settings.read_only:
        raise InputError("read_only is set in metlmon.toml: nothing can be done to jobs from here")
    painter, session = reader.snapshot_builder(), Session(reader)
    status = session.take().status
    jobs: list[JobRow] = []
    dags: list[DagRow] = []
    runs: list[SelectedRun] = []
    if wanted in DAG_ACTS:
        dags = [_dag(status, options.targets)]
    elif wanted in RUN_ACTS:
        runs = _runs(status, painter, session, options.targets)
    else:
        jobs = _jobs(painter, session, options.targets)
    office = PoolClient(session)
    try:
        assert office.queue is not None
        if wanted not in FILES_ALONE:
            office.queue.ask()
        offer = next(o for o in office.offers(status, jobs, dags, runs) if o.act is wanted)
        if offer.order is not None and options.value is not None:
            offer = replace(offer, order=replace(offer.order, value=options.value))
        unknown = None
        if offer.order is not None and options.keep:
            offer = replace(offer, order=replace(offer.order, confirmed=tuple(options.keep)))
        if site is not None:
            offer = with_site(offer, site)
            unknown = _unknown(office, painter, site) if offer.order is not None else None
        if unknown is not None and (options.yes or options.dry_run):
            offer = replace(offer, order=None, refused=f"{unknown} (without --yes you are asked)")
        if not jobs and not dags and not runs:
            meant = plain(" ".join(options.targets), 200)
            offer = replace(offer, subject=meant, refused="no job of that is in the queue now")
        along = [row for row in session.queued_jobs() if dags and row.dag == dags[0].file]
        return _carry_out(office, offer, options, along, unknown)
    finally:
        office.close()


def _unknown(office: PoolClient, painter: SnapshotBuilder, site: str) -> str | None:
    """That the collector knows sites, and this is none of them; a collector that gives no answer
    is no reason to ask again."""
    named = {painter.target(key) for key in painter.nodes} | set(painter.totals.sites)
    try:
        return unknown_site(site, office.sites(), (name for name in named if name))
    except PoolError:
        return None


def _carry_out(
    office: PoolClient,
    offer: ActionPreview,
    options: argparse.Namespace,
    along: Sequence[JobRow],
    warning: str | None = None,
) -> int:
    """``along``: a DAG's jobs, which leave the queue with it; ``warning``: what to think of before
    one says yes. Of a dry run the answers are those that ``--yes`` would not do."""
    order = offer.order
    if order is None:
        already = already_so(offer)
        _tell(f"metlmon: {'no need to' if already else 'cannot'} {_deed(offer)}: {offer.refused}")
        code = _told(offer, None, (), options)
        return Exit.OK if already else code
    for line in question(offer, order, along if offer.act is PoolAction.REMOVE_DAG else ()):
        _tell(line)
    if warning is not None:
        _tell(f"warning: {warning}")
    if options.dry_run:
        order = replace(order, dry=True)
    elif not options.yes and not _confirmed():
        _tell("metlmon: nothing was done")
        return Exit.REFUSED

    def tell(answer: ActionResult) -> None:
        if not options.json and not (options.dry_run and answer.reply is ResultCode.DONE):
            print(answer_line(answer, order), flush=True)

    try:
        answers = office.perform(order, tell)
    except PoolError as error:
        _tell(f"metlmon: nothing was done: {error}")
        return _told(offer, order, (), options, str(error))
    if options.dry_run:
        answers = tuple(each for each in answers if each.reply is not ResultCode.DONE)
    return _told(offer, order, answers, options)


def _told(
    offer: ActionPreview,
    order: ActionRequest | None,
    answers: tuple[ActionResult, ...],
    options: argparse.Namespace,
    error: str | None = None,
) -> int:
    if options.json:
        print_json(_json(offer, order, answers, error))
    tried = order is not None and error is None
    return Exit.OK if tried and all(each.reply in WELL for each in answers) else Exit.REFUSED


# --- what is meant ------------------------------------------------------------------------


def _dag(status: Status, targets: list[str]) -> DagRow:
    """The one DAG that is meant. Raises InputError with the candidates."""
    files = ", ".join(plain(dag.file, 60) for dag in status.dags)
    if not targets and len(status.dags) == 1:
        return status.dags[0]
    if len(targets) != 1:
        raise InputError(f"name one DAG: {files}" if files else "there is no DAG here")
    for dag in status.dags:
        if dag.file == targets[0]:
            return dag
    raise InputError(f"{targets[0]}: no such DAG; there are {files or 'none'}")


def _jobs(painter: SnapshotBuilder, session: Session, targets: list[str]) -> list[JobRow]:
    """The jobs that are meant, each once. Raises InputError for what is none."""
    if not targets:
        raise InputError("name jobs (12.0), runs (a name, a uuid or its beginning), or: all")
    found: dict[tuple[int, int], JobRow] = {}
    for text in targets:
        for row in _meant(painter, session, text):
            found[row.cluster, row.proc] = row
    return list(found.values())


def _meant(painter: SnapshotBuilder, session: Session, text: str) -> Iterable[JobRow]:
    if text == "all":
        return session.queued_jobs()
    number = re.fullmatch(r"(\d{1,10})\.(\d{1,10})", text)
    if number is None:
        return session.queued_jobs(one_run(painter, text).key)
    view = session.job_view(int(number[1]), int(number[2]))
    if view is None:
        raise InputError(f"{text}: no log tells of this job")
    return (view.row,)


def _runs(
    status: Status, painter: SnapshotBuilder, session: Session, targets: list[str]
) -> list[SelectedRun]:
    """The runs that are meant, each once. Raises InputError for what is none."""
    if not targets:
        raise InputError("name runs (a name, a uuid or its beginning), or: all")
    found: dict[str, RunRow] = {}
    for text in targets:
        for row in status.runs if text == "all" else (one_run(painter, text),):
            found[row.key] = row
    return [SelectedRun(row, session.queued_jobs(row.key)) for row in found.values()]


def _site(wanted: PoolAction, to: str | None) -> str | None:
    """Where to. Raises InputError for what is no site, and where one is missing."""
    if wanted not in (PoolAction.RETARGET, PoolAction.SEND):
        if to is not None:
            raise InputError(f"--to is for retarget and send, not for {wanted}")
        return None
    if to is None:
        raise InputError(f"{wanted} needs --to SITE{BACK_TOO if wanted is PoolAction.SEND else ''}")
    if wanted is PoolAction.SEND and to == BACK:
        return AS_THE_DAG_SAYS
    site = site_of(to)
    if site is None:
        raise InputError(f"--to {to}: {NO_SITE}")
    return site


# --- the question and the answers ---------------------------------------------------------


def question(offer: ActionPreview, order: ActionRequest, along: Sequence[JobRow] = ()) -> list[str]:
    """What will be touched, exactly, and what comes of it."""
    given = order.site if order.value is None else order.value
    to = f" to {given}" if given is not None else ""
    lines = [f"{_deed(offer)}{' where the DAG says' if given == AS_THE_DAG_SAYS else to}"]
    if order.runs:
        lines += _listed("", [_named(each) for each in order.touched])
    elif order.dag is None:
        lines += _listed("", [_named(each) for each in order.targets])
    elif order.targets:
        lines.append(f"  DAGMan's job {order.targets[0].id}, and {len(along)} jobs with it")
        lines += _listed("  ", [_named(target(row)) for row in along])
    out = [f"{_named(each)}: {plain(why, 120)}" for each, why in offer.left_out]
    lines += _listed("left out: ", out)
    return [*lines, f"effect: {offer.effect}", f"undo: {offer.undo}"]


def _deed(offer: ActionPreview) -> str:
    """``hold job 12.0 of run1``."""
    said = {
        PoolAction.PRIORITY: "set the priority of",
        PoolAction.RELEASE_DAG: "release DAGMan of",
        PoolAction.REMOVE_DAG: "remove",
        PoolAction.STOP_NOW: "stop now:",
        PoolAction.RESUME_RUN: "let go on:",
        PoolAction.SEND: "send the next epochs of",
    }
    return f"{said.get(offer.act, offer.act)} {offer.subject}"


def _listed(before: str, names: Sequence[str]) -> list[str]:
    lines = [f"  {before}{name}" for name in names[:JOBS_LISTED]]
    if len(names) > JOBS_LISTED:
        lines.append(f"  {before}and {len(names) - JOBS_LISTED} more")
    return lines


def _named(target: Target | RunTarget) -> str:
    parts = [target.id] if isinstance(target, Target) else []
    if target.run is not None:
        parts.append(plain(target.run, 60))
    if target.epoch is not None:
        parts.append(f"epoch {target.epoch}")
    parts.append(str(target.state).replace("_", " "))
    files = target.files if isinstance(target, RunTarget) else [target.file or ""]
    return "  ".join([*parts, *(plain(file, 300) for file in files if file)])


def answer_line(answer: ActionResult, order: ActionRequest) -> str:
    """``12.0  done``, with more where there is more to say; of a run its name."""
    names = {run.id: run.run for run in order.runs}
    line = f"{plain(names.get(answer.subject, answer.subject), 60)}  {answer.reply}"
    return f"{line}: {plain(answer.text, 400)}" if answer.text else line


def _confirmed() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError("nothing was done: there is no terminal to ask on; add --yes")
    sys.stderr.write("go on? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _tell(line: str) -> None:
    """Narration goes to standard error: standard output is for the answers."""
    print(plain(line, 600) if not line.startswith("  ") else line, file=sys.stderr, flush=True)


def _json(
    offer: ActionPreview,
    order: ActionRequest | None,
    answers: tuple[ActionResult, ...],
    error: str | None,
) -> dict[str, Any]:
    return ACT_OUTPUT.write(
        offer,
        schema=SCHEMA,
        dag=order and order.dag,
        value=order and order.value,
        site=order and (order.site or None),
        runs=order.runs if order else (),
        jobs=order.targets if order else (),
        left_out=[
            {**(TARGET if isinstance(each, Target) else RUN_TARGET).write(each), "why": why}
            for each, why in offer.left_out
        ],
        refused=offer.refused or error,
        answers=answers,
    )
