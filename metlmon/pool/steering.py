"""Steering a run by the files that its gate looks at, and that a node's submit file includes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from metlmon.live.feed import Feed
from metlmon.pool import requests
from metlmon.pool.records import AS_THE_DAG_SAYS, Act, Answer, Order, Reply, RunTarget, Target
from metlmon.pool.runoffers import NO_GATE, NO_RETRY, files_of
from metlmon.secret import hide

MET: Final = "the gate has met it: metlmon continue goes on from the checkpoint"


def ask_gate(feed: Feed, order: Order, run: RunTarget) -> Answer:
    """Write or delete the files that ask a run's gate for this."""
    home = (feed.dagdir / run.dag).parent
    if run.uuid is None or not requests.FILE_NAME.fullmatch(run.uuid):
        return Answer(run.id, Reply.NOT_FOUND, "it has no run_uuid that could name a file")
    rules = requests.gate_rules(run.dag)
    try:
        if requests.content_of(home, rules) is None:
            return Answer(run.id, Reply.NOT_FOUND, f"{NO_GATE}: {rules} is not there")
        why = requests.why_stopped(home, requests.request_file(run.dag, run.uuid, "stopped"))
    except OSError as error:
        return refused(run.id, "the files of its gate cannot be read", error)
    if why is not None:
        text = hide("it was stopped before" + (f": {why}" if why else ""))
        stops = order.act in (Act.STOP, Act.STOP_NOW)
        return Answer(run.id, Reply.ALREADY if stops else Reply.BAD_STATE, text)
    if order.act is Act.STOP_NOW and run.jobs and _without_retry(feed, run):
        return Answer(run.id, Reply.BAD_STATE, NO_RETRY)
    if order.dry:
        return _checked(home, run)
    if order.act is Act.RESUME_RUN:
        return _take_back(home, run, run.uuid)
    (file,) = files_of(order.act, run.dag, run.uuid)
    if order.act is Act.SEND and order.site == AS_THE_DAG_SAYS:
        return _deleted(home, run, file)
    return _written(home, order, run, file)


def _checked(home: Path, run: RunTarget) -> Answer:
    for file in run.files:
        try:
            requests.check_writable(home, file)
        except OSError as error:
            return refused(run.id, f"{file} cannot be written", error)
    return Answer(run.id, Reply.DONE)


def _without_retry(feed: Feed, run: RunTarget) -> bool:
    """Would the node fail, by what is known now?"""
    rows = feed.latest.status.runs if feed.latest is not None else ()
    latest = next((row.latest for row in rows if row.uuid == run.uuid), None)
    return latest is not None and latest.retries_left == 0


def _written(home: Path, order: Order, run: RunTarget, file: str) -> Answer:
    try:
        if order.act is Act.SEND:
            done = requests.put(home, file, f"{(order.site or '').strip()}\n".encode())
        else:
            done = requests.create(home, file, requests.by_whom() + requests.when())
    except OSError as error:
        return refused(run.id, f"{file} cannot be written", error)
    if done:
        return Answer(run.id, Reply.DONE, f"{file} was written")
    there = "says so" if order.act is Act.SEND else "is there"
    return Answer(run.id, Reply.ALREADY, f"{file} {there}")


def _deleted(home: Path, run: RunTarget, file: str) -> Answer:
    try:
        done = requests.delete(home, file)
    except OSError as error:
        return refused(run.id, f"{file} cannot be deleted", error)
    if done:
        return Answer(run.id, Reply.DONE, f"{file} was deleted")
    return Answer(run.id, Reply.ALREADY, f"{file} is not there")


def _take_back(home: Path, run: RunTarget, uuid: str) -> Answer:
    """Delete what asks to pause or to stop, as far as that was confirmed."""
    answers = [_deleted(home, run, file) for file in run.files]
    bad = [each for each in answers if each.reply not in (Reply.DONE, Reply.ALREADY)]
    if bad:
        return bad[0]
    done = [each for each in answers if each.reply is Reply.DONE]
    try:
        stopped = requests.content_of(home, requests.request_file(run.dag, uuid, "stopped"))
    except OSError:
        stopped = None
    if stopped is not None:
        return Answer(run.id, Reply.BAD_STATE, f"too late: {MET}")
    text = "; ".join(each.text for each in done or answers)
    return Answer(run.id, Reply.DONE if done else Reply.ALREADY, text)


def place(feed: Feed, target: Target, site: str) -> str:
    """Let a retry of the job's node go there, too: what came of that, to be added to the answer.
    Where the run as a whole is sent elsewhere, its gate says so again when it is tried again."""
    if target.file is None or target.dag is None:
        return "; a retry goes where the DAG file says"
    home = (feed.dagdir / target.dag).parent
    try:
        requests.put(home, target.file, requests.placement_line(site))
    except OSError as error:
        why = error.strerror or str(error)
        return f"; {target.file} cannot be written ({why}): a retry goes where the DAG file says"
    return f"; {target.file} was written"


def refused(subject: str, what: str, error: OSError) -> Answer:
    """The answer to what the file system did not let us do."""
    reply = Reply.DENIED if isinstance(error, PermissionError) else Reply.FAILED
    return Answer(subject, reply, f"{what}: {error.strerror or error}")
