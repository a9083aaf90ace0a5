"""Run actions: writes and deletes the files that gates and submit files read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from metlmon.live.feed import Feed
from metlmon.pool import gate_requests
from metlmon.pool.run_actions import NO_GATE, NO_RETRY
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

STOP_TAKEN: Final = "the gate has met it: metlmon continue resumes from the checkpoint"


def ask_gate(feed: Feed, request: ActionRequest, run: RunTarget) -> ActionResult:
    """Write or delete the run's request files for this action."""
    directory = (feed.dagdir / run.dag).parent
    if run.uuid is None or not gate_requests.FILE_NAME.fullmatch(run.uuid):
        return ActionResult(
            run.id, ResultCode.NOT_FOUND, "it has no run_uuid that could name a file"
        )
    rules = gate_requests.gate_rules(run.dag)
    try:
        if gate_requests.content_of(directory, rules) is None:
            return ActionResult(run.id, ResultCode.NOT_FOUND, f"{NO_GATE}: {rules} is not there")
        stop_reason = gate_requests.why_stopped(
            directory, gate_requests.request_file(run.dag, run.uuid, "stopped")
        )
    except OSError as error:
        return file_error(run.id, "the files of its gate cannot be read", error)
    if stop_reason is not None:
        text = redact_secrets("it was stopped before" + (f": {stop_reason}" if stop_reason else ""))
        is_stop = request.act in (PoolAction.STOP, PoolAction.STOP_NOW)
        return ActionResult(run.id, ResultCode.ALREADY if is_stop else ResultCode.BAD_STATE, text)
    if request.act is PoolAction.STOP_NOW and run.jobs and _has_no_retry(feed, run):
        return ActionResult(run.id, ResultCode.BAD_STATE, NO_RETRY)
    if request.dry:
        return _check_files(directory, run)
    if request.act is PoolAction.RESUME_RUN:
        return _withdraw(directory, run, run.uuid)
    (file,) = run.files
    if request.act is PoolAction.SEND and request.site == AS_THE_DAG_SAYS:
        return _delete(directory, run, file)
    return _write(directory, request, run, file)


def _check_files(directory: Path, run: RunTarget) -> ActionResult:
    """The result of a dry run: whether the run's files could be written."""
    for file in run.files:
        try:
            gate_requests.check_writable(directory, file)
        except OSError as error:
            return file_error(run.id, f"{file} cannot be written", error)
    return ActionResult(run.id, ResultCode.DONE)


def _has_no_retry(feed: Feed, run: RunTarget) -> bool:
    """Whether the node would fail, as far as is known."""
    rows = feed.latest.status.runs if feed.latest is not None else ()
    latest = next((row.latest for row in rows if row.uuid == run.uuid), None)
    return latest is not None and latest.retries_left == 0


def _write(directory: Path, request: ActionRequest, run: RunTarget, file: str) -> ActionResult:
    """Create or replace a request file."""
    try:
        if request.act is PoolAction.SEND:
            changed = gate_requests.put(
                directory, file, f"{(request.site or '').strip()}\n".encode()
            )
        else:
            changed = gate_requests.create(
                directory, file, gate_requests.by_whom() + gate_requests.when()
            )
    except OSError as error:
        return file_error(run.id, f"{file} cannot be written", error)
    if changed:
        return ActionResult(run.id, ResultCode.DONE, f"{file} was written")
    state = "says so" if request.act is PoolAction.SEND else "is there"
    return ActionResult(run.id, ResultCode.ALREADY, f"{file} {state}")


def _delete(directory: Path, run: RunTarget, file: str) -> ActionResult:
    """Delete a request file."""
    try:
        deleted = gate_requests.delete(directory, file)
    except OSError as error:
        return file_error(run.id, f"{file} cannot be deleted", error)
    if deleted:
        return ActionResult(run.id, ResultCode.DONE, f"{file} was deleted")
    return ActionResult(run.id, ResultCode.ALREADY, f"{file} is not there")


def _withdraw(directory: Path, run: RunTarget, uuid: str) -> ActionResult:
    """Delete the pause and stop requests that the user confirmed."""
    results = [_delete(directory, run, file) for file in run.files]
    failed = [
        result for result in results if result.reply not in (ResultCode.DONE, ResultCode.ALREADY)
    ]
    if failed:
        return failed[0]
    done = [result for result in results if result.reply is ResultCode.DONE]
    try:
        stopped = gate_requests.content_of(
            directory, gate_requests.request_file(run.dag, uuid, "stopped")
        )
    except OSError:
        stopped = None
    if stopped is not None:
        return ActionResult(run.id, ResultCode.BAD_STATE, f"too late: {STOP_TAKEN}")
    text = "; ".join(result.text for result in done or results)
    return ActionResult(run.id, ResultCode.DONE if done else ResultCode.ALREADY, text)


def write_placement(feed: Feed, target: Target, site: str) -> str:
    """Write the placement file, so that a retry of the job's node uses the site too.

    Returns text to append to the result. If the whole run is sent elsewhere, its gate overwrites
    the file at the retry.
    """
    if target.file is None or target.dag is None:
        return "; a retry goes where the DAG file says"
    directory = (feed.dagdir / target.dag).parent
    try:
        gate_requests.put(directory, target.file, gate_requests.placement_line(site))
    except OSError as error:
        message = error.strerror or str(error)
        return (
            f"; {target.file} cannot be written ({message}): a retry goes where the DAG file says"
        )
    return f"; {target.file} was written"


def file_error(subject: str, text: str, error: OSError) -> ActionResult:
    """The result for an error of the file system."""
    code = ResultCode.DENIED if isinstance(error, PermissionError) else ResultCode.FAILED
    return ActionResult(subject, code, f"{text}: {error.strerror or error}")
