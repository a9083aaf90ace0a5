"""``metlmon advise`` and ``annexes``: where the next epochs should go, and borrowed nodes."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from math import inf
from types import FrameType
from typing import Any, Final

from msgspec import UNSET, UnsetType

from metlmon.cli import Exit
from metlmon.cli.commands.act import confirmed, exit_status, result_line
from metlmon.cli.commands.status import follow
from metlmon.cli.exit_conditions import has_ended
from metlmon.cli.output import EnsembleOutput, print_message, print_record, show
from metlmon.cli.queue_report import query_annexes
from metlmon.cli.reading import input_with_trainings, open_reader
from metlmon.cli.text_output import TextOutput
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import StatsInput
from metlmon.live.session import Session
from metlmon.placement.annexes import make_annexes
from metlmon.placement.application import (
    Application,
    ApplyWay,
    SiteChange,
    SubmitLine,
    application_lines,
    application_sentence,
    change_texts,
    changes_done,
    command_name,
    last_application,
    log_application,
    perform_application,
    plan_application,
    send_commands,
    submit_line_text,
    submit_lines,
    undo_application,
    undo_lines,
    undo_sentence,
)
from metlmon.placement.elastic import ElasticAdvice
from metlmon.placement.planner import (
    Advice,
    PlanState,
    make_advice,
    must_replan,
    plan_state,
    what_if_at,
    what_if_table,
)
from metlmon.placement.types import Annex, AnnexReport, PlacementPlan, WhatIf
from metlmon.pool.annex_ads import AnnexAnswer, FreeGpus
from metlmon.pool.client import PoolClient
from metlmon.pool.types import ActionResult, PoolError, ResultCode
from metlmon.stats.pool_profiles import PoolProfile
from metlmon.tables import advice as tables
from metlmon.tables.annexes import (
    WHAT_IT_IS,
    columns,
    command_line,
    head_lines,
    site_columns,
    site_line,
)
from metlmon.tables.usage import profile_columns
from metlmon.text.formatting import count, duration, moment, plain, year_of
from metlmon.text.record_json import Flat
from metlmon.text.spans import BOLD, line, text
from metlmon.text.time_arguments import parse_duration

POLL_SECONDS: Final = 2.0
"""Interval at which ``--every`` looks for a reason to plan again."""

ASK_SECONDS: Final = 60.0
"""Interval at which it asks the schedd and collectors for annexes."""

GPUS_SECONDS: Final = 600.0
"""Interval at which it asks the collector for free GPUs: a large pool has many slots."""


class AdviseOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon advise --json``.

    ``why``: the reason of a new plan (``--every``); ``application``, ``answers``: with ``--apply``.
    """

    plan: PlacementPlan
    what_if: tuple[WhatIf, ...]
    elastic: tuple[ElasticAdvice, ...]
    profiles: tuple[PoolProfile, ...]
    submit_lines: tuple[SubmitLine, ...]
    why: str | UnsetType = UNSET
    application: Application | UnsetType = UNSET
    answers: tuple[ActionResult, ...] | UnsetType = UNSET


class AdviseUndoOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon advise --undo --json``; ``command``: the one taken back, None without one."""

    command: str | None
    changes: tuple[SiteChange, ...]
    answers: tuple[ActionResult, ...]


def advise(options: argparse.Namespace) -> int:
    every = _check_options(options)
    reader = open_reader(options)
    acts = options.undo or options.apply in (ApplyWay.SEND, ApplyWay.RETARGET)
    if acts and reader.ensemble.settings.read_only:
        raise InputError("read_only is set in metlmon.toml: nothing can be applied from here")
    if options.undo:
        return _undo(reader, options)
    if every is not None:
        return _repeat(reader, options, every)
    answer = _annex_answer(reader)
    advice = make_advice(*_advice_input(reader, answer), _free_gpus(answer))
    what_if: tuple[WhatIf, ...]
    if not options.what_if:  # Without a pool: the whole table.
        what_if = what_if_table(advice.values, advice.plan)
    else:
        what_if = what_if_at(advice.values, advice.plan, options.what_if)
        if not options.json:
            out = TextOutput()
            sentences = tables.plan_lines(advice.plan)
            out.table(tables.what_if_columns(advice.plan), what_if, *sentences, "")
            return Exit.OK
    session = Session(reader)
    session.take()
    lines = submit_lines(advice.plan, session)
    if not options.json:
        _print_advice(advice, what_if, lines)
    if options.apply == ApplyWay.PRINT and not options.json:
        _print_commands(session, advice, options.dir)
    code, answered = _apply(session, advice, options) if acts else (Exit.OK, {})
    if options.json:
        _print_json(reader, advice, what_if, lines, **answered)
    return code


def _check_options(options: argparse.Namespace) -> float | None:
    """The seconds of ``--every``. Raises InputError for options that exclude each other."""
    if options.as_of is not None and (options.undo or options.every or options.apply):
        raise InputError("--as-of is for plans as of then: they cannot be applied")
    if options.what_if and (options.every or options.apply):
        raise InputError("--what-if POOL only shows: leave out --apply and --every")
    if options.undo and (options.apply or options.every or options.what_if is not None):
        raise InputError("--undo goes with no other option than --yes and --json")
    if options.every is None:
        if options.yes and not options.undo:
            raise InputError("--yes is for --every and --undo: one plan is applied after a yes")
        return None
    every = parse_duration(options.every)
    if not every:
        raise InputError(f"--every {options.every!r} is not a time; write it as 12h, 30m or 1d")
    if options.apply in (ApplyWay.SEND, ApplyWay.RETARGET) and not options.yes:
        raise InputError(f"--every with --apply {options.apply} asks nobody: add --yes")
    return every.total_seconds()


def _advice_input(
    reader: DagdirReader, answer: AnnexAnswer | None
) -> tuple[StatsInput, tuple[Annex, ...]]:
    """The input of advice; ``answer``: that of schedd and collectors about annexes."""
    stats = input_with_trainings(reader)
    return stats, make_annexes(stats, answer, time.time()).annexes


def _annex_answer(reader: DagdirReader, *, free_gpus: bool = True) -> AnnexAnswer | None:
    """The answer of schedd and collectors; None for an ensemble of the past."""
    is_live = reader.snapshot_builder().status().live and reader.as_of is None
    return query_annexes(reader, free_gpus=free_gpus) if is_live else None


def _free_gpus(answer: AnnexAnswer | None) -> tuple[FreeGpus, ...]:
    return () if answer is None else answer.free_gpus


# --- applying ----------------------------------------------------------------------------------


def _apply(
    session: Session, advice: Advice, options: argparse.Namespace
) -> tuple[Exit, dict[str, Any]]:
    """Show what a plan changes, ask, and apply it. Returns the status, and fields of the JSON."""
    with closing(PoolClient(session)) as client:
        application = _planned(session, client, advice, ApplyWay(options.apply))
        answered: dict[str, Any] = {"application": application, "answers": ()}
        lines = application_lines(application)
        print(application_sentence(application), *lines, sep="\n  ", file=sys.stderr)
        if not application.changes:
            refused = application.refused is not None or application.left_out
            return Exit.REFUSED if refused else Exit.OK, answered
        if not confirmed():
            return Exit.REFUSED, answered
        results = _perform(session, client, application, command_name(), quiet=options.json)
        answered["answers"] = results
        return exit_status(results), answered


def _planned(session: Session, client: PoolClient, advice: Advice, way: ApplyWay) -> Application:
    if way is ApplyWay.RETARGET:
        assert client.queue is not None
        client.queue.query()
    return plan_application(advice.plan, way, session, client)


def _perform(
    session: Session, client: PoolClient, application: Application, command: str, *, quiet: bool
) -> tuple[ActionResult, ...]:
    """Perform an application and write it to the log, as far as it got."""
    names = {change.subject: change.name for change in application.changes}
    results: list[ActionResult] = []

    def take(result: ActionResult) -> None:
        results.append(result)
        if not quiet:
            print(result_line(result, names), flush=True)

    with _interrupt_afterwards():
        try:
            perform_application(application, client, take)
        except PoolError as error:
            take(ActionResult("schedd", ResultCode.FAILED, str(error)))
        finally:
            done = changes_done(application, results)
            for problem in log_application(session, command, application.way, done):
                print_message(problem)
    return tuple(results)


@contextmanager
def _interrupt_afterwards() -> Iterator[None]:
    """Defer ^C until what was changed is also in the log; a second one is not deferred."""
    before = signal.getsignal(signal.SIGINT)
    interrupted = False

    def wait(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if interrupted:
            signal.raise_signal(signal.SIGINT)


def _undo(reader: DagdirReader, options: argparse.Namespace) -> int:
    session = Session(reader)
    session.take()
    try:
        command, changes = last_application(session)
    except PoolError as error:
        raise InputError(str(error)) from None
    results: list[ActionResult] = []
    if not command:
        print_message("no plan is applied here")
    elif not options.yes:
        lines = undo_lines(changes)
        print(undo_sentence(command, changes), *lines, sep="\n  ", file=sys.stderr)
        if not confirmed():
            return Exit.REFUSED
    with closing(PoolClient(session)) as client:
        try:
            undo_application(command, changes, session, client, results.append)
        except PoolError as error:
            print_message(str(error))
            return Exit.REFUSED
    if options.json:
        print_record(
            AdviseUndoOutput,
            reader.snapshot_builder(),
            command=command or None,
            changes=changes,
            answers=results,
        )
        return exit_status(results)
    names = {change.subject: change.name for change in changes}
    for result in results:
        print(result_line(result, names))
    return exit_status(results)


# --- repeated planning -------------------------------------------------------------------------


def _repeat(reader: DagdirReader, options: argparse.Namespace, every: float) -> int:
    """Plan now and whenever there is a reason, until the ensemble has ended; a line for each."""
    command = command_name()
    before: PlanState | None = None
    answer: AnnexAnswer | None = None
    free_gpus: tuple[FreeGpus, ...] = ()
    planned_at = asked_at = gpus_asked_at = -inf
    for changed in follow(reader, POLL_SECONDS):
        now = time.monotonic()
        asks = now - asked_at >= ASK_SECONDS
        if asks:
            ask_gpus = now - gpus_asked_at >= GPUS_SECONDS
            answer, asked_at = _annex_answer(reader, free_gpus=ask_gpus), now
            if ask_gpus:
                free_gpus, gpus_asked_at = _free_gpus(answer), now
        if changed or asks or now - planned_at >= every:
            stats, annexes = _advice_input(reader, answer)
            state = plan_state(stats, annexes)
            why = must_replan(before, state)
            if why is None and now - planned_at >= every:
                why = f"the plan is {duration(every)} old"
            if why is not None:
                before, planned_at = state, now
                advice = make_advice(stats, annexes, free_gpus)
                _apply_again(reader, advice, options, command, why)
        if has_ended(reader.snapshot_builder().status()):
            break
    if not options.json:
        print("the ensemble has ended", flush=True)
    return Exit.OK


def _apply_again(
    reader: DagdirReader, advice: Advice, options: argparse.Namespace, command: str, why: str
) -> None:
    """Apply a new plan as ``--apply`` says, without asking, and print one line."""
    session = Session(reader)
    session.take()
    answered: dict[str, Any] = {}
    parts = [why, *map(text, tables.plan_lines(advice.plan))]
    if options.apply in (ApplyWay.SEND, ApplyWay.RETARGET):
        with closing(PoolClient(session)) as client:
            application = _planned(session, client, advice, ApplyWay(options.apply))
            results = _perform(session, client, application, command, quiet=True)
        answered = {"application": application, "answers": results}
        parts += _outcome(application, results)
    if options.json:
        lines = submit_lines(advice.plan, session)
        answered["why"] = why
        _print_json(reader, advice, (), lines, one_line=True, **answered)
    else:
        print(f"{moment(datetime.now())}  {'; '.join(parts)}", flush=True)


def _outcome(application: Application, results: Sequence[ActionResult]) -> Iterator[str]:
    """``2 runs sent: run0 → delta or expanse``, and what failed."""
    changes = changes_done(application, results)
    if changes:
        verb = "sent" if application.way is ApplyWay.SEND else "retargeted"
        what = "run" if application.way is ApplyWay.SEND else "idle job"
        yield f"{count(len(changes), what)} {verb}: {', '.join(change_texts(changes))}"
    failed = [result for result in results if not result.succeeded]
    if failed:
        yield f"{count(len(failed), 'change')} failed: {plain(failed[0].text, 120)}"
    if application.left_out:
        name, reason = application.left_out[0]
        yield f"{len(application.left_out)} left out: {plain(name, 40)}: {plain(reason, 120)}"


# --- output -------------------------------------------------------------------------------------


def _print_json(
    reader: DagdirReader,
    advice: Advice,
    what_if: Sequence[WhatIf],
    lines: Sequence[SubmitLine],
    *,
    one_line: bool = False,
    **more: Any,
) -> None:
    print_record(
        AdviseOutput,
        reader.snapshot_builder(),
        one_line=one_line,
        plan=advice.plan,
        what_if=what_if,
        elastic=advice.elastic,
        profiles=advice.profiles,
        submit_lines=lines,
        **more,
    )


def _print_advice(advice: Advice, what_if: Sequence[WhatIf], lines: Sequence[SubmitLine]) -> None:
    """The plan, what would change its end, and what is known of the pools."""
    out, plan = TextOutput(), advice.plan
    pools = advice.values.supplies.profiles
    out.print(*tables.plan_lines(plan))
    rows = plan.runs
    if tables.shows_plan(plan):
        out.table(tables.plan_columns(plan, pools), tables.plan_rows(plan), "")
    for each in advice.elastic:
        out.print(line(("elastic: ", BOLD), each.reason))
    excluded = tables.excluded_lines(plan, pools)
    if excluded and rows:
        out.print(*(line("avoid ") + each for each in excluded))
    if rows and plan.runs_excluded:
        out.print(*tables.runs_excluded_lines(plan))
    for each_line in lines if tables.shows_plan(plan) else ():
        place, content = submit_line_text(each_line)
        out.print("", place, line("  ", (content, BOLD)))
    out.table(tables.what_if_columns(plan), what_if, "", tables.what_if_title(plan) + ":")
    out.table(profile_columns(advice.profiles), advice.profiles, "")


def _print_commands(session: Session, advice: Advice, directory: str) -> None:
    """The commands that send the runs where the plan has them, for manual use."""
    with closing(PoolClient(session)) as client:
        application = plan_application(advice.plan, ApplyWay.SEND, session, client)
    commands = send_commands(application.changes, directory)
    # Not wrapped, so that they can be copied.
    print("", *(commands or [application_sentence(application)]), sep="\n")


# --- annexes -----------------------------------------------------------------------------------


class AnnexesOutput(EnsembleOutput, frozen=True, kw_only=True):
    """``metlmon annexes --json``."""

    report: Flat[AnnexReport]


def annexes(options: argparse.Namespace) -> int:
    """Print all annexes as tables or as JSON; those of the past from the logs alone."""
    reader = open_reader(options)
    # The schedd of this machine does not have the jobs of another one.
    answer = query_annexes(reader) if reader.as_of is None and not reader.host else None
    if answer is not None:
        reader.ensemble.add_annex_ends(answer.ends)
    report = make_annexes(input_with_trainings(reader), answer, time.time())
    builder = reader.snapshot_builder()
    return show(options, AnnexesOutput, builder, partial(print_annexes, report), report=report)


def print_annexes(report: AnnexReport) -> None:
    """The annexes, with their warnings first; then the sites according to the logs."""
    out, year = TextOutput(), year_of(report.as_of)
    out.print(*head_lines(report))
    if report.annexes:
        out.table(columns(report), report.annexes, "")
    else:
        for paragraph in WHAT_IT_IS:
            out.print("", paragraph)
    if report.command:
        out.print("", command_line(report, report.command))
    if report.site_command:
        out.print(site_line(report.site_command))
    out.table(site_columns(year), report.sites, "", "By the logs, jobs ran at:")
