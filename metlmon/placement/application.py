"""Applies a plan: requests to gates and schedd send epochs to the sites of the plan.

A plan gives each run a set of sites; the acts SEND (the next epochs, by the gate's files) and
RETARGET (idle jobs, by the schedd) take such a set as a list. Running jobs are never changed.

``gate/<dag>/advice.log`` has a line of JSON for each application to a DAG::

    {"schema": 1, "time": "2026-01-05T08:14:00Z", "command": "…", "way": "send",
     "changes": [{"run": "run0", "uuid": "…", "dag": "ens.dag", "before": null,
                  "after": "delta|expanse", "reason": "…", …}],
     "undo": "metlmon advise DIR --undo"}

``command`` identifies the command or screen that applied plans, maybe several times. A line with
``undo_of`` records that this was undone. The file is untrusted: the names in it are checked again.

Without a gate, the user adds lines to submit files. condor_submit reads a submit file for each job
that DAGMan submits, so that an added line applies from the next epoch on. Manual: "condor_submit"
(``$(name:default)``).
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path, PurePath
from typing import ClassVar, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from metlmon.jobfiles.gate_files import read_target
from metlmon.live.feed import Feed
from metlmon.live.file_access import UnreadableFile, read_file_end
from metlmon.model.sites import ANY_SITE_TARGETS, BUILT_IN_SITES, normalize_name
from metlmon.model.states import State
from metlmon.placement.types import PlacementPlan, RunPlacement
from metlmon.pool.client import PoolClient
from metlmon.pool.exclusion import can_exclude
from metlmon.pool.gate_requests import (
    FILE_NAME,
    ONE_SITE,
    append_line,
    delete_file,
    file_error,
    placed_sites,
    placement_file,
    placement_line,
    read_file,
    request_file,
    site_of,
    submit_file,
    takes_site_lists,
    write_file,
)
from metlmon.pool.queue_checks import target
from metlmon.pool.types import (
    ActionPreview,
    ActionRequest,
    ActionResult,
    PoolAction,
    PoolError,
    ResultCode,
    SelectedRun,
)
from metlmon.snapshot.records import Run
from metlmon.stats.estimates import LeftOut
from metlmon.stats.totals import group_by
from metlmon.text.formatting import SEPARATOR, count, joined, plain, site_list
from metlmon.text.record_json import Nullable

NAME_LIMIT: Final = 40
REASON_LIMIT: Final = 200
COMMAND_LIMIT: Final = 100_000
MAX_NAMES: Final = 8
"""Maximum number of runs or jobs that one line names."""

LONGEST_LIST: Final = 200
"""Maximum length of a list of sites that gates and the pool's worker accept."""

NO_NAME: Final = "its sites are known by their hosts, not by names that slots advertise"


class ApplyWay(StrEnum):
    """How a plan is applied; ``PRINT`` changes nothing."""

    PRINT = "print"
    SEND = "send"
    RETARGET = "retarget"


class SiteChange(Struct, frozen=True, kw_only=True):
    """A change of the sites where the next epochs of a run, or one of its idle jobs, may go.

    ``job``: ``cluster.proc``, empty for the next epochs. ``before``, ``after``: lists of sites;
    ``before`` None: as in the DAG. ``placed``: the list in the job's placement file before, None
    without one. ``reason``: that of the plan.
    """

    json_omits: ClassVar = frozenset({"after", "before", "node", "placed"})
    json_properties: ClassVar = ("sites", "sites_before")

    run: str
    uuid: str | None
    dag: str
    after: str
    before: str | None = None
    job: Nullable[str] = ""
    node: str = ""
    placed: str | None = None
    reason: str = ""

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites where they may go."""
        return site_list(self.after)

    @property
    def sites_before(self) -> tuple[str, ...] | None:
        """The sites where they could go before; None: as in the DAG."""
        return None if self.before is None else site_list(self.before)

    @property
    def name(self) -> str:
        """The run, followed by the job, if any."""
        return f"{self.run} {self.job}".strip()

    @property
    def subject(self) -> str:
        """The subject of its :class:`ActionResult`."""
        return self.job or self.uuid or self.run


class Application(Struct, frozen=True, kw_only=True):
    """The changes by applying a plan in one way.

    ``left_out``: skipped runs or jobs and why, without those that go there already
    (``unchanged``). ``refused``: why nothing can be done at all, else None.
    """

    json_omits: ClassVar = frozenset({"requests"})

    way: ApplyWay
    changes: tuple[SiteChange, ...] = ()
    requests: tuple[ActionRequest, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    unchanged: int = 0
    refused: str | None = None


# --- texts ----------------------------------------------------------------------------------


def change_texts(changes: Iterable[SiteChange]) -> list[str]:
    """``run0, run1 → delta or expanse``, for each set of sites."""
    groups = group_by(changes, lambda change: change.after)
    return [
        f"{_name_list([change.name for change in group])} → {_sites_text(after)}"
        for after, group in groups.items()
    ]


def _sites_text(sites: str) -> str:
    return " or ".join(plain(site, NAME_LIMIT) for site in site_list(sites))


def send_commands(changes: Iterable[SiteChange], directory: str) -> list[str]:
    """``metlmon act send DIR run0 run1 --to 'A|B'``, for each set of sites."""
    commands = (
        ("metlmon", "act", "send", directory, *(c.uuid or c.run for c in group), "--to", sites)
        for sites, group in group_by(changes, lambda change: change.after).items()
    )
    return [plain(shlex.join(command), COMMAND_LIMIT) for command in commands]


def application_lines(application: Application) -> list[str]:
    """The changes by applying a plan, a line per set of sites, and what is left out and why."""
    lines = change_texts(application.changes)
    for why, group in group_by(application.left_out, lambda each: each.why).items():
        names = _name_list([each.run for each in group])
        lines.append(f"left out: {names}: {plain(why, REASON_LIMIT)}")
    if application.unchanged:
        go = "go" if application.unchanged > 1 else "goes"
        what = "run" if application.way is ApplyWay.SEND else "job"
        lines.append(f"{count(application.unchanged, what)} {go} there already")
    return lines


def _name_list(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{plain(', '.join(names[:MAX_NAMES]), REASON_LIMIT)}{more}"


def undo_lines(changes: Sequence[SiteChange]) -> list[str]:
    """``run0 → as the DAG says``: where runs and jobs go once changes are undone."""
    lines = []
    for change in changes[:MAX_NAMES]:
        sites = _sites_text(change.before or "") or "as the DAG says"
        lines.append(f"{plain(change.name, NAME_LIMIT)} → {sites}")
    if len(changes) > MAX_NAMES:
        lines.append(f"and {len(changes) - MAX_NAMES} more")
    return lines


def undo_sentence(command: str, changes: Sequence[SiteChange]) -> str:
    """``restore what was before 2026-01-05T08:14:00Z: 2 runs or jobs``."""
    when = plain(command.partition(" ")[0], NAME_LIMIT)
    what = count(len(changes), "run or idle job", "runs or idle jobs")
    return f"restore what was before {when}: {what}; what was changed since stays"


def application_sentence(application: Application) -> str:
    """``2 runs sent elsewhere: their next epochs``, or why nothing changes."""
    changes = len(application.changes)
    if application.refused is not None:
        reasons = list({each.why: None for each in application.left_out}) or [application.refused]
        why = f": {plain(reasons[0], REASON_LIMIT)}" if len(reasons) == 1 else ""
        return f"nothing can be changed{why}"
    if not changes:
        return "nothing is to be changed"
    if application.way is ApplyWay.SEND:
        return f"send the next epochs of {count(changes, 'run')}; running jobs are not touched"
    return f"retarget {count(changes, 'idle job')}; running jobs are not touched"


# --- the changes by a plan --------------------------------------------------------------------


def plan_application(
    plan: PlacementPlan, way: ApplyWay, feed: Feed, client: PoolClient
) -> Application:
    """The changes by applying the plan to the newest snapshots. Not for the UI thread."""
    builder = _ApplicationBuilder(way, feed, client)
    for placement in plan.runs:
        builder.add(placement)
    return builder.application()


_Candidate = tuple[SiteChange, SelectedRun, bool]
"""A change, what it is about, and whether that takes a list of several sites."""


class _ApplicationBuilder:
    """Collects changes by their set of sites, with one act per set."""

    def __init__(self, way: ApplyWay, feed: Feed, client: PoolClient) -> None:
        assert feed.latest is not None
        self._way, self._feed, self._client = way, feed, client
        self._status = feed.latest.status
        self._runs = {run.key: run for run in self._status.runs}
        self._changes: dict[str, list[SiteChange]] = {}
        self._selected: dict[str, list[SelectedRun]] = {}
        self._left_out: list[LeftOut] = []
        self._unchanged = 0

    def add(self, placement: RunPlacement) -> None:
        """Add the change that sends a run's next epochs, or idle job, to the sites of its plan."""
        row = self._runs.get(placement.key)
        if row is None:
            return
        names = dict.fromkeys(pool.site for pool in placement.pools if pool.site)
        sites = _first_sites(name for name in names if is_advertised(name, self._feed))
        if not sites:
            self._left_out.append(LeftOut(row.run, NO_NAME if names else placement.reason))
            return
        changes = self._run_changes if self._way is ApplyWay.SEND else self._job_changes
        for change, selected, takes_lists in changes(row, sites, placement.reason):
            before = change.sites_before
            if before is not None and sorted(before) == sorted(change.sites):
                self._unchanged += 1
            elif len(change.sites) > 1 and not takes_lists:
                self._left_out.append(LeftOut(change.name, ONE_SITE))
            else:
                self._changes.setdefault(sites, []).append(change)
                self._selected.setdefault(sites, []).append(selected)

    def _run_changes(self, row: Run, sites: str, reason: str) -> Iterator[_Candidate]:
        before = row.gate.target if row.gate is not None else None
        change = SiteChange(
            run=row.run, uuid=row.uuid, dag=row.dag, before=before, after=sites, reason=reason
        )
        takes_lists = row.gate is None or takes_site_lists(self._feed, row.key)
        yield change, SelectedRun(row, self._feed.queued_jobs(row.key)), takes_lists

    def _job_changes(self, row: Run, sites: str, reason: str) -> Iterator[_Candidate]:
        for job in self._feed.queued_jobs(row.key):
            is_next = row.latest is not None and job.node == row.latest.node
            if not is_next or job.state is not State.IDLE or job.dag is None or job.node is None:
                continue
            queued = self._client.queue_snapshot.job(job.cluster, job.proc)
            change = SiteChange(
                run=row.run,
                uuid=row.uuid,
                dag=job.dag,
                job=f"{job.cluster}.{job.proc}",
                node=job.node,
                before=queued.site if queued is not None else None,
                placed=placed_sites(self._feed, job.dag, job.node),
                after=sites,
                reason=reason,
            )
            yield change, SelectedRun(row, (job,)), queued is None or queued.by_site_list

    def application(self) -> Application:
        """The added changes, as far as the acts allow them."""
        changes: list[SiteChange] = []
        requests: list[ActionRequest] = []
        refused: list[str] = []
        left_out = [*self._left_out]
        for sites, selected in self._selected.items():
            preview = self._preview(selected)
            left_out += [LeftOut(e.run or e.subject, e.reason) for e in preview.left_out]
            if preview.request is None:
                refused.append(preview.refused or "")
                continue
            subjects = {target.id for target in preview.request.touched}
            changes += [each for each in self._changes[sites] if each.subject in subjects]
            requests.append(replace(preview.request, site=sites))
        return Application(
            way=self._way,
            changes=tuple(changes),
            requests=tuple(requests),
            left_out=tuple(dict.fromkeys(left_out)),
            unchanged=self._unchanged,
            refused=refused[0] if refused and not requests else None,
        )

    def _preview(self, selected: Sequence[SelectedRun]) -> ActionPreview:
        jobs = [job for run in selected for job in run.jobs]
        is_send = self._way is ApplyWay.SEND
        previews = self._client.previews(
            self._status, () if is_send else jobs, (), selected if is_send else ()
        )
        act = PoolAction.SEND if is_send else PoolAction.RETARGET
        return next(preview for preview in previews if preview.act is act)


def _first_sites(names: Iterable[str]) -> str:
    """The list of these sites, as many of the first ones as fit into it."""
    sites: list[str] = []
    for name in names:
        if len(joined([*sites, name])) > LONGEST_LIST:
            break
        sites.append(name)
    return joined(sorted(sites))


def is_advertised(site: str, feed: Feed) -> bool:
    """Whether slots advertise this name of a site, as far as the logs or the DAG show."""
    assert feed.latest is not None
    if not can_exclude(site) or not is_named_by_host(site, feed):
        return can_exclude(site)
    latest = (run.latest for run in feed.latest.status.runs)
    return any(site in site_list((each and each.target) or "") for each in latest)


def is_named_by_host(site: str, feed: Feed) -> bool:
    """Whether metlmon may have derived this name of a site from host names."""
    return site in {name for _, name in (*feed.settings.sites, *BUILT_IN_SITES)}


def perform_application(
    application: Application,
    client: PoolClient,
    on_result: Callable[[ActionResult], None],
) -> None:
    """Perform an application; ``on_result`` is called with each result. Raises PoolError."""
    for request in application.requests:
        client.perform(request, on_result)


def changes_done(
    application: Application, results: Iterable[ActionResult]
) -> tuple[SiteChange, ...]:
    """The changes that were made, by their results."""
    done = {result.subject for result in results if result.reply is ResultCode.DONE}
    return tuple(change for change in application.changes if change.subject in done)


# --- the log, and undo ------------------------------------------------------------------------


LONGEST_LOG: Final = 1 << 20
"""Bytes that are read at the end of the log: some thousand applications."""

CHANGED: Final = "it was changed since, and is left as it is"
GONE: Final = "it has left the queue"


class AppliedPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the log; ``undo_of``: the command that was undone."""

    schema: int = 1
    time: str
    command: str
    way: str = ""
    changes: tuple[SiteChange, ...] = ()
    undo: str = ""
    undo_of: str = ""


def command_name() -> str:
    """A new identifier for a command that applies plans."""
    return f"{_now()} {os.getpid()}"


def log_file(dag: str) -> str:
    """The log of a DAG, relative to the directory of the DAG file ``dag``."""
    return str(PurePath("gate", PurePath(dag).name.removesuffix(".dag"), "advice.log"))


def log_application(
    feed: Feed, command: str, way: ApplyWay, changes: Iterable[SiteChange]
) -> Iterator[str]:
    """Append the changes to the logs of their DAGs; yield a sentence for each failure."""
    for dag, group in group_by(changes, lambda change: change.dag).items():
        record = AppliedPlan(
            time=_now(),
            command=command,
            way=str(way),
            changes=tuple(group),
            undo=f"metlmon advise {feed.dagdir} --undo",
        )
        yield from _append(feed, dag, record)


def last_application(feed: Feed) -> tuple[str, tuple[SiteChange, ...]]:
    """The last applied command that was not undone, or "", and its changes.

    Reads logs; raises PoolError for one that cannot be read.
    """
    records = list(_records(feed))
    earlier = {record.undo_of for _, record in records}
    open_records = [(dag, each) for dag, each in records if each.changes]
    open_records = [(dag, each) for dag, each in open_records if each.command not in earlier]
    if not open_records:
        return "", ()
    last = max(each.command for _, each in open_records)
    changes = _merge_changes(
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
    """Undo the :func:`last_application`.

    ``on_result`` is called with a result for each change: DONE, or why it could not be undone.
    Raises PoolError.
    """
    _Undo(feed, client, on_result).restore(changes)
    for dag in sorted({change.dag for change in changes}):
        record = AppliedPlan(time=_now(), command=command, undo_of=command)
        for problem in _append(feed, dag, record):
            on_result(ActionResult(dag, ResultCode.FAILED, problem))


def _merge_changes(changes: Iterable[SiteChange]) -> tuple[SiteChange, ...]:
    """One change per run or job, from before the first change to after the last."""
    folded: dict[tuple[str, str], SiteChange] = {}
    for change in changes:
        first = folded.get((change.dag, change.subject), change)
        folded[change.dag, change.subject] = replace(
            change, before=first.before, placed=first.placed
        )
    return tuple(folded.values())


class _Undo:
    """Undoes changes, each only if nothing has changed since the last application."""

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
                write_file(directory, file, f"{before}\n".encode())
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
        """Restore the placement file, which retries of the job's node use."""
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
                write_file(directory, file, placement_line(placed))

    def _reject(self, change: SiteChange, why: str) -> None:
        self._on_result(ActionResult(change.subject, ResultCode.BAD_STATE, why))


def _done(change: SiteChange, message: str) -> ActionResult:
    return ActionResult(change.subject, ResultCode.DONE, message)


def _records(feed: Feed) -> Iterator[tuple[str, AppliedPlan]]:
    """The lines of the logs of all DAGs, with the DAG; invalid lines are left out."""
    assert feed.latest is not None
    decoder = msgspec.json.Decoder(AppliedPlan)
    for dag in feed.latest.status.dags:
        path = (feed.dagdir / dag.file).parent / log_file(dag.file)
        try:
            text = read_file_end(str(path), LONGEST_LOG)
        except UnreadableFile as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                continue
            raise PoolError(f"{path}: {error}; mend that, then undo again") from None
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


# --- lines for submit files -------------------------------------------------------------------


PINNED: Final = "instead of the condition on the site in its requirements"
ADDED: Final = "below its requirements"


class SubmitLine(Struct, frozen=True, kw_only=True):
    """A line for a submit file without a gate, which applies to all ``runs`` that use it.

    ``file``: relative to the dagdir. ``where``: the place of the line in the file.
    """

    file: str
    line: str
    where: str
    runs: tuple[str, ...]


def submit_lines(plan: PlacementPlan, feed: Feed) -> tuple[SubmitLine, ...]:
    """The lines for all runs of the plan that no request can send to a list of sites.

    A file that several runs use gets the sites of all of them; one that would exclude none of the
    plan's excluded sites gets no line. Reads submit files: not for the UI thread.
    """
    assert feed.latest is not None
    rows: Mapping[str, Run] = {run.key: run for run in feed.latest.status.runs}
    runs: dict[str, list[Run]] = {}
    sites: dict[str, set[str]] = {}
    for placement in plan.runs:
        row = rows.get(placement.key)
        names = {pool.site for pool in placement.pools}
        if row is None or not names or (row.gate and takes_site_lists(feed, row.key)):
            continue
        # A machine does not advertise a name derived from its host: the line would exclude it.
        if any(not can_exclude(name) or is_named_by_host(name, feed) for name in names):
            continue
        file = submit_file(feed, row.key)
        if file is not None:
            runs.setdefault(file, []).append(row)
            sites.setdefault(file, set()).update(names)
    unused = {each.pool.site for each in plan.excluded}
    lines = []
    for file, using in runs.items():
        targets = {normalize_name((run.latest and run.latest.target) or "any") for run in using}
        is_pinned = not targets <= ANY_SITE_TARGETS
        if not is_pinned and unused <= sites[file]:
            continue
        allowed = joined(sorted(sites[file]))
        before = "" if is_pinned else "($(requirements:true)) && "
        member = f'stringListIMember(TARGET.GLIDEIN_ResourceName, "{allowed}", "{SEPARATOR}")'
        lines.append(
            SubmitLine(
                file=file,
                line=f"requirements = {before}{member}",
                where=PINNED if is_pinned else ADDED,
                runs=tuple(run.run for run in using),
            )
        )
    return tuple(lines)


def submit_line_text(row: SubmitLine) -> tuple[str, str]:
    """The place of a line, with the names of some of its runs, and the line."""
    runs = _name_list(row.runs)
    place = f"{plain(row.file, 100)}, {row.where} (for the next epochs of {runs}):"
    return place, plain(row.line, 400)
