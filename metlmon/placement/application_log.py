"""The log of applications, ``gate/<dag>/advice.log``, and how the last one is taken back.

A line of JSON for each application to a DAG::

    {"schema": 1, "time": "2026-01-05T08:14:00Z", "command": "…", "way": "send",
     "changes": [{"run": "run0", "uuid": "…", "dag": "ens.dag", "before": null,
                  "after": "delta|expanse", "reason": "…", …}],
     "undo": "metlmon advise DIR --undo"}

``command`` identifies the command or screen that applied plans, maybe several times. A line with
``undo_of`` says that this was taken back. The file is untrusted: what it names is checked again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from metlmon.jobfiles.gate_files import read_target
from metlmon.live.feed import Feed
from metlmon.live.file_access import UnreadableFile, read_file_end
from metlmon.placement.application import ApplyWay, SiteChange
from metlmon.pool.client import PoolClient
from metlmon.pool.gate_requests import (
    FILE_NAME,
    append_line,
    delete_file,
    file_error,
    placed_sites,
    placement_file,
    placement_line,
    read_file,
    replace_file,
    request_file,
    site_of,
)
from metlmon.pool.queue_checks import target
from metlmon.pool.types import (
    ActionRequest,
    ActionResult,
    PoolAction,
    ResultCode,
)

LOG_FILE: Final = "advice.log"
LONGEST_LOG: Final = 1 << 20
"""Bytes read of the end of the log: some thousand applications."""

CHANGED: Final = "it was changed since, and is left as it is"
GONE: Final = "it has left the queue"


class AppliedPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the log; ``undo_of``: the command that was taken back."""

    schema: int = 1
    time: str
    command: str
    way: str = ""
    changes: tuple[SiteChange, ...] = ()
    undo: str = ""
    undo_of: str = ""


def command_name() -> str:
    """A new name for a command that applies plans."""
    return f"{_now()} {os.getpid()}"


def log_file(dag: str) -> str:
    """The log of a DAG, relative to the directory of the DAG file ``dag``."""
    return str(PurePath("gate", PurePath(dag).name.removesuffix(".dag"), LOG_FILE))


def log_application(
    feed: Feed, command: str, way: ApplyWay, changes: Iterable[SiteChange]
) -> Iterator[str]:
    """Append the changes to the logs of their DAGs; yields a sentence for each failure."""
    by_dag: dict[str, list[SiteChange]] = {}
    for change in changes:
        by_dag.setdefault(change.dag, []).append(change)
    for dag, group in by_dag.items():
        record = AppliedPlan(
            time=_now(),
            command=command,
            way=str(way),
            changes=tuple(group),
            undo=f"metlmon advise {feed.dagdir} --undo",
        )
        yield from _append(feed, dag, record)


def last_application(feed: Feed) -> tuple[str, tuple[SiteChange, ...]]:
    """The last command that applied plans and was not taken back, and its changes.

    "" if there is none. Reads the logs: not for the UI thread.
    """
    records = list(_records(feed))
    earlier = {record.undo_of for _, record in records}
    open_records = [(dag, each) for dag, each in records if each.changes]
    open_records = [(dag, each) for dag, each in open_records if each.command not in earlier]
    if not open_records:
        return "", ()
    last = max(each.command for _, each in open_records)
    changes = _folded(
        replace(change, dag=dag)
        for dag, each in sorted(open_records, key=lambda pair: pair[1].time)
        if each.command == last
        for change in each.changes
    )
    return last, changes


def undo_application(
    command: str,
    changes: Sequence[SiteChange],
    feed: Feed,
    client: PoolClient,
    on_result: Callable[[ActionResult], None],
) -> None:
    """Restore what was before the :func:`last_application`.

    ``on_result`` receives a result for each change: DONE, or why it could not be restored. Raises
    PoolError.
    """
    _Undo(feed, client, on_result).restore(changes)
    for dag in sorted({change.dag for change in changes}):
        record = AppliedPlan(time=_now(), command=command, undo_of=command)
        for problem in _append(feed, dag, record):
            on_result(ActionResult(dag, ResultCode.FAILED, problem))


def _folded(changes: Iterable[SiteChange]) -> tuple[SiteChange, ...]:
    """Per run or job one change: from before the first to after the last."""
    folded: dict[tuple[str, str], SiteChange] = {}
    for change in changes:
        first = folded.get((change.dag, change.subject), change)
        folded[change.dag, change.subject] = replace(
            change, before=first.before, placed=first.placed
        )
    return tuple(folded.values())


class _Undo:
    """Restores changes, each only if it is as the last application left it."""

    def __init__(
        self, feed: Feed, client: PoolClient, on_result: Callable[[ActionResult], None]
    ) -> None:
        assert feed.latest is not None
        self._feed, self._client, self._on_result = feed, client, on_result
        self._status = feed.latest.status

    def restore(self, changes: Sequence[SiteChange]) -> None:
        for change in (each for each in changes if not each.job):
            self._restore_run(change)
        jobs = [change for change in changes if change.job]
        if jobs:
            assert self._client.queue is not None
            self._client.queue.query()
        for change in jobs:
            self._restore_job(change)

    def _restore_run(self, change: SiteChange) -> None:
        row = next((run for run in self._status.runs if run.uuid == change.uuid), None)
        if row is None or row.uuid is None or not FILE_NAME.fullmatch(row.uuid):
            self._reject(change, "it is not here any more")
            return
        directory = (self._feed.dagdir / row.dag).parent
        file, before = request_file(row.dag, row.uuid, "target"), site_of(change.before or "")
        try:
            content = read_file(directory, file)
            if content is None or read_target(content) != change.after:
                self._reject(change, CHANGED)
            elif before is None:
                delete_file(directory, file)
                self._on_result(_done(change, f"{file} was deleted"))
            else:
                replace_file(directory, file, f"{before}\n".encode())
                self._on_result(_done(change, f"{file} was written"))
        except OSError as error:
            self._on_result(file_error(change.subject, f"{file} cannot be restored", error))

    def _restore_job(self, change: SiteChange) -> None:
        self._restore_placement(change)
        cluster, _, proc = change.job.partition(".")
        view = None
        if cluster.isdecimal() and proc.isdecimal():
            view = self._feed.job_view(int(cluster), int(proc))
        queued = None
        if view is not None:
            queued = self._client.queue_snapshot.job(view.job.cluster, view.job.proc)
        before = site_of(change.before or "")
        if view is None or queued is None or before is None:
            self._reject(change, GONE)
        elif queued.site != change.after:
            self._reject(change, CHANGED)
        else:
            request = ActionRequest(PoolAction.RETARGET, (target(view.job),), site=before)
            self._client.perform(request, self._on_result)

    def _restore_placement(self, change: SiteChange) -> None:
        """Restore the file by which a retry of the job's node would go there, too."""
        if not FILE_NAME.fullmatch(change.node):
            return
        if placed_sites(self._feed, change.dag, change.node) != change.after:
            return
        directory = (self._feed.dagdir / change.dag).parent
        file = placement_file(change.dag, change.node)
        placed = site_of(change.placed or "")
        with suppress(OSError):
            if placed is None:
                delete_file(directory, file)
            else:
                replace_file(directory, file, placement_line(placed))

    def _reject(self, change: SiteChange, why: str) -> None:
        self._on_result(ActionResult(change.subject, ResultCode.BAD_STATE, why))


def _done(change: SiteChange, message: str) -> ActionResult:
    return ActionResult(change.subject, ResultCode.DONE, message)


def _records(feed: Feed) -> Iterator[tuple[str, AppliedPlan]]:
    """The lines of the logs of all DAGs, with the DAG; lines that are none are left out."""
    assert feed.latest is not None
    decoder = msgspec.json.Decoder(AppliedPlan)
    for dag in feed.latest.status.dags:
        path = (feed.dagdir / dag.file).parent / log_file(dag.file)
        try:
            text = read_file_end(str(path), LONGEST_LOG)
        except (OSError, UnreadableFile):
            continue
        for line in text.splitlines():
            with suppress(msgspec.MsgspecError):
                yield dag.file, decoder.decode(line.encode("utf-8", "replace"))


def _append(feed: Feed, dag: str, record: AppliedPlan) -> Iterator[str]:
    directory = (feed.dagdir / dag).parent
    try:
        append_line(directory, log_file(dag), msgspec.json.encode(record))
    except OSError as error:
        yield f"{Path(dag).parent / log_file(dag)} cannot be written: {error.strerror or error}"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
