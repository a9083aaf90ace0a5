"""Steering a run by the files that its gate looks at, and that a node's submit file includes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from metlmon.live.feed import Feed
from metlmon.pool import gate_requests
from metlmon.pool.run_actions import NO_GATE, NO_RETRY, files_of
from metlmon.pool.types import (
    AS_THE_DAG_SAYS,
    ActionRequest,
    ActionResult,
    PoolAction,
    ResultCode,
    RunTarget,
    Target,
)
from metlmon.redact import redact_secrets

MET: Final = "the gate has met it: metlmon continue goes on from the checkpoint"


def ask_gate(feed: Feed, order: ActionRequest, run: RunTarget) -> ActionResult:
    """Write or delete the files that ask a run's gate for this."""
    home = (feed.dagdir / run.dag).parent
    if run.uuid is None or not gate_requests.FILE_NAME.fullmatch(run.uuid):
        return ActionResult(
            run.id, ResultCode.NOT_FOUND, "it has no run_uuid that could name a file"
        )
    rules = gate_requests.gate_rules(run.dag)
    try:
        if gate_requests.content_of(home, rules) is None:
            return ActionResult(run.id, ResultCode.NOT_FOUND, f"{NO_GATE}: {rules} is not there")
        why = gate_requests.why_stopped(
            home, gate_requests.request_file(run.dag, run.uuid, "stopped")
        )
    except OSError as error:
        return refused(run.id, "the files of its gate cannot be read", error)
    if why is not None:
        text = redact_secrets("it was stopped before" + (f": {why}" if why else ""))
        stops = order.act in (PoolAction.STOP, PoolAction.STOP_NOW)
        return ActionResult(run.id, ResultCode.ALREADY if stops else ResultCode.BAD_STATE, text)
    if order.act is PoolAction.STOP_NOW and run.jobs and _without_retry(feed, run):
        return ActionResult(run.id, ResultCode.BAD_STATE, NO_RETRY)
    if order.dry:
        return _checked(home, run)
    if order.act is PoolAction.RESUME_RUN:
        return _take_back(home, run, run.uuid)
    (file,) = files_of(order.act, run.dag, run.uuid)
    if order.act is PoolAction.SEND and order.site == AS_THE_DAG_SAYS:
        return _deleted(home, run, file)
    return _written(home, order, run, file)


def _checked(home: Path, run: RunTarget) -> ActionResult:
    for file in run.files:
        try:
            gate_requests.check_writable(home, file)
        except OSError as error:
            return refused(run.id, f"{file} cannot be written", error)
    return ActionResult(run.id, ResultCode.DONE)


def _without_retry(feed: Feed, run: RunTarget) -> bool:
    """Would the node fail, by what is known now?"""
    rows = feed.latest.status.runs if feed.latest is not None else ()
    latest = next((row.latest for row in rows if row.uuid == run.uuid), None)
    return latest is not None and latest.retries_left == 0


def _written(home: Path, order: ActionRequest, run: RunTarget, file: str) -> ActionResult:
    try:
        if order.act is PoolAction.SEND:
            done = gate_requests.put(home, file, f"{(order.site or '').strip()}\n".encode())
        else:
            done = gate_requests.create(home, file, gate_requests.by_whom() + gate_requests.when())
    except OSError as error:
        return refused(run.id, f"{file} cannot be written", error)
    if done:
        return ActionResult(run.id, ResultCode.DONE, f"{file} was written")
    there = "says so" if order.act is PoolAction.SEND else "is there"
    return ActionResult(run.id, ResultCode.ALREADY, f"{file} {there}")


def _deleted(home: Path, run: RunTarget, file: str) -> ActionResult:
    try:
        done = gate_requests.delete(home, file)
    except OSError as error:
        return refused(run.id, f"{file} cannot be deleted", error)
    if done:
        return ActionResult(run.id, ResultCode.DONE, f"{file} was deleted")
    return ActionResult(run.id, ResultCode.ALREADY, f"{file} is not there")


def _take_back(home: Path, run: RunTarget, uuid: str) -> ActionResult:
    """Delete what asks to pause or to stop, as far as that was confirmed."""
    answers = [_deleted(home, run, file) for file in run.files]
    bad = [each for each in answers if each.reply not in (ResultCode.DONE, ResultCode.ALREADY)]
    if bad:
        return bad[0]
    done = [each for each in answers if each.reply is ResultCode.DONE]
    try:
        stopped = gate_requests.content_of(
            home, gate_requests.request_file(run.dag, uuid, "stopped")
        )
    except OSError:
        stopped = None
    if stopped is not None:
        return ActionResult(run.id, ResultCode.BAD_STATE, f"too late: {MET}")
    text = "; ".join(each.text for each in done or answers)
    return ActionResult(run.id, ResultCode.DONE if done else ResultCode.ALREADY, text)


def place(feed: Feed, target: Target, site: str) -> str:
    """Let a retry of the job's node go there, too: what came of that, to be added to the answer.
    Where the run as a whole is sent elsewhere, its gate says so again when it is tried again."""
    if target.file is None or target.dag is None:
        return "; a retry goes where the DAG file says"
    home = (feed.dagdir / target.dag).parent
    try:
        gate_requests.put(home, target.file, gate_requests.placement_line(site))
    except OSError as error:
        why = error.strerror or str(error)
        return f"; {target.file} cannot be written ({why}): a retry goes where the DAG file says"
    return f"; {target.file} was written"


def refused(subject: str, what: str, error: OSError) -> ActionResult:
    """The answer to what the file system did not let us do."""
    reply = ResultCode.DENIED if isinstance(error, PermissionError) else ResultCode.FAILED
    return ActionResult(subject, reply, f"{what}: {error.strerror or error}")
