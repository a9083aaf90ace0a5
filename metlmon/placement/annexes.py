"""Annexes as one table: from schedd and collectors, from the ledger, and their warnings.

HTCondor manual, "HPC annexes". An annex is a request in the schedd, the ads of its nodes in a
collector, or both; of an annex that neither shows, the ledger has the jobs that ran in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Final

from msgspec.structs import replace

from metlmon.live.feed import StatsInput
from metlmon.model.reasons import is_expiry
from metlmon.model.states import Outcome, State
from metlmon.placement.annex_command import AnnexShape, annex_command, shape_of, site_command
from metlmon.placement.annex_epochs import AnnexEpochs
from metlmon.placement.types import ABSENT, Annex, AnnexReport, AnnexState, SiteLife
from metlmon.pool.annex_types import (
    AnnexAd,
    AnnexAnswer,
    AnnexGeneration,
    AnnexRequest,
    AnnexSlotType,
)
from metlmon.snapshot.records import HOUR, Execution, Job, Ledger
from metlmon.stats.totals import group_by
from metlmon.text.formatting import count, duration, epoch_number, moment, plain, year_of

EXPIRING_SECONDS: Final = 600.0
"""Time left from which an annex is expiring where no epoch has a known duration."""

GONE_SECONDS: Final = 60.0
"""Time after its end from which an annex is gone, though its ads are still in the collector: they
stay for 15 minutes where its nodes were killed, and a shutdown takes seconds."""

IDLE_LIMIT: Final = 300.0
"""Seconds after which a node without a claim leaves (STARTD_NOCLAIM_SHUTDOWN of annexes)."""

EXPIRY_SPREAD: Final = timedelta(minutes=1)
"""Evictions of one expiry come within this time."""

MINUTE: Final = 60.0

JOB_IDLE: Final = 1
JOB_RUNNING: Final = 2
"""JobStatus of the queue."""

NAME_LIMIT: Final = 40

_NEVER_SEEN: Final = (
    "which was never seen: request it (htcondor annex create), or send them elsewhere"
)

_WHOLE: Final = (AnnexSlotType.PARTITIONABLE, AnnexSlotType.STATIC)
"""Slots that together have all GPUs of a node."""

_UP: Final = (AnnexState.UP, AnnexState.EXPIRING)


class AnnexHistory:
    """What the ledger of one snapshot has of annexes: sites, and durations of epochs."""

    def __init__(self, stats_input: StatsInput) -> None:
        self.ledger, self.settings = stats_input.ledger, stats_input.settings
        self.is_live = stats_input.status.live
        self.sites = site_lives(stats_input.ledger)
        self.epochs = AnnexEpochs(stats_input)


def annex_history(stats_input: StatsInput) -> AnnexHistory:
    """The history, with all that takes long: a statistic for a screen."""
    history = AnnexHistory(stats_input)
    history.epochs.prepare()
    return history


def make_annexes(
    stats_input: StatsInput, answer: AnnexAnswer | None = None, now: float | None = None
) -> AnnexReport:
    """All annexes, with their warnings; arguments as of :func:`report_annexes`."""
    return report_annexes(AnnexHistory(stats_input), answer, now)


def report_annexes(
    history: AnnexHistory, answer: AnnexAnswer | None, now: float | None
) -> AnnexReport:
    """All annexes, with their warnings.

    ``answer``: of schedd and collectors at ``now`` (seconds since the epoch); without one, what
    the logs show.
    """
    ledger, sites = history.ledger, history.sites
    asked = answer is not None and answer.queried_at is not None
    rows: list[Annex] = []
    errors: list[str] = []
    if answer is not None and now is not None:
        builder = _AnnexBuilder(history, answer, now)
        rows = builder.rows()
        errors = [*builder.general_warnings(rows)]
    known = {row.name.casefold() for row in rows}
    rows += [_inferred(site, ledger) for site in sites if _may_be_annex(site, known)]
    seen = {row.name.casefold() for row in rows}
    for jobs in group_by(ledger.jobs, lambda job: (job.target_annex or "").casefold()).values():
        if jobs[0].target_annex and jobs[0].target_annex.casefold() not in seen:
            rows.append(_never_seen(jobs))
    rows.sort(key=_rank)
    last, generation = _last_requested(rows), answer.generation if answer is not None else None
    command = last.command if last is not None else ""
    if generation is not None and not command:
        command = annex_command(AnnexShape(name="NAME"), generation) or ""
    return AnnexReport(
        as_of=ledger.as_of,
        annexes=tuple(rows),
        sites=sites,
        warnings=(*(text for row in rows for text in row.warnings), *errors),
        asked=asked,
        generation=generation or "",
        command=command,
        site_command=last.site_command if last is not None else "",
    )


def _last_requested(rows: Iterable[Annex]) -> Annex | None:
    """The annex that was requested last, of those with a command."""
    known = (row for row in rows if row.command)
    return max(known, key=lambda row: row.requested or datetime.min, default=None)


def _rank(row: Annex) -> tuple[object, ...]:
    states = list(AnnexState)
    end = row.alive_until or datetime.max
    absent = row.state in ABSENT
    return (
        absent,
        not row.warnings,
        end,
        states.index(row.state),
        row.name,
        row.request_id,
        row.site,
    )


def _is_same(name: str, other: str) -> bool:
    """Do two texts name one annex? HTCondor compares them without regard to case."""
    return name.casefold() == other.casefold()


def _is_busy(ad: AnnexAd) -> bool:
    """Does the ad say that a job runs? A partitionable slot runs its jobs in dynamic ones."""
    return ad.busy and ad.slot_type in (AnnexSlotType.DYNAMIC, AnnexSlotType.STATIC)


def _request_id(ads: Iterable[AnnexAd]) -> str:
    return next((ad.request_id for ad in ads if ad.request_id), "")


# --- from logs ----------------------------------------------------------------------------------


def site_lives(ledger: Ledger) -> tuple[SiteLife, ...]:
    """Each site, and each annex there that the logs name: first and last start, and expiries."""
    executions = [e for e in ledger.executions if not e.dagman and e.site is not None]
    lives = []
    for (site, annex), there in group_by(executions, lambda e: (e.site, e.annex)).items():
        starts = [entry.start for entry in there]
        lives.append(
            SiteLife(
                site=site or "",
                annex=annex or "",
                first_start=min(starts),
                last_start=max(starts),
                last_end=max((e.end for e in there if e.end is not None), default=None),
                executions=len(there),
                running=sum(entry.outcome is Outcome.IN_FLIGHT for entry in there),
                expiries=tuple(_expiry_times(there)),
            )
        )
    return tuple(sorted(lives, key=lambda life: (life.site, life.annex)))


def _expiry_times(executions: Iterable[Execution]) -> Iterator[datetime]:
    """When annexes expired: the first eviction of each."""
    ends = sorted(e.end for e in executions if e.end is not None and is_expiry(e.cause))
    last: datetime | None = None
    for end in ends:
        if last is None or end - last > EXPIRY_SPREAD:
            yield end
        last = end


def _may_be_annex(site: SiteLife, known: set[str]) -> bool:
    if site.annex:
        return site.annex.casefold() not in known
    return bool(site.expiries) and not known


def _inferred(site: SiteLife, ledger: Ledger) -> Annex:
    """An annex that the logs alone show."""
    expired = bool(site.expiries) and site.expiries[-1] >= site.last_start
    state = AnnexState.UNKNOWN
    if ledger.live and site.running:
        state = AnnexState.UP
    elif expired:
        state = AnnexState.GONE
    return Annex(
        name=site.annex,
        site=site.site,
        state=state,
        inferred=True,
        first_start=site.first_start,
        last_start=site.last_start,
        expiries=site.expiries,
    )


def _never_seen(jobs: Sequence[Job]) -> Annex:
    """An annex that jobs name, and neither a log, the schedd nor a collector shows."""
    name, idle = jobs[0].target_annex or "", sum(job.state is State.IDLE for job in jobs)
    waiting = f"{count(idle, 'job')} {'waits' if idle == 1 else 'wait'} for {{}}"
    return Annex(
        name=name,
        site="",
        state=AnnexState.NEVER_SEEN,
        inferred=True,
        jobs_idle=idle,
        warnings=(f"{waiting.format(plain(name, NAME_LIMIT))}, {_NEVER_SEEN}",) if idle else (),
    )


# --- from schedd and collectors -----------------------------------------------------------------


class _AnnexBuilder:
    """Builds the annexes that schedd or collectors know."""

    def __init__(self, history: AnnexHistory, answer: AnnexAnswer, now: float) -> None:
        self._answer, self._now = answer, now
        self._settings, self._ledger = history.settings, history.ledger
        self._is_live = history.is_live
        self._epochs, self._sites = history.epochs, history.sites
        self._year = year_of(history.ledger.as_of)
        self._collector_times = {
            collector.address: collector.answered_at for collector in answer.collectors
        }
        self._silent = {c.address for c in answer.collectors if c.error is not None}

    def rows(self) -> list[Annex]:
        """All annexes, by request; ads without a known request by the id that they advertise."""
        ads = group_by(self._answer.ads, lambda ad: (ad.annex.casefold(), ad.request_id))
        requests = [*self._answer.requests]
        rows = []
        for request in requests:
            name = request.name.casefold()
            own = ads.pop((name, request.request_id), [])
            if not own and sum(other.name.casefold() == name for other in requests) == 1:
                # Nodes of the old generation may not advertise the id.
                own = ads.pop((name, ""), [])
            rows.append(self._row(request.name, request, own))
        rows += [self._row(found[0].annex, None, found) for found in ads.values()]
        names = {row.name.casefold() for row in rows}
        targeted = {job.annex.casefold(): job.annex for job in self._answer.jobs}
        rows += [self._row(targeted[name], None, []) for name in targeted if name not in names]
        return [replace(row, warnings=tuple(self._warnings(row))) for row in rows]

    def general_warnings(self, rows: Sequence[Annex]) -> Iterator[str]:
        """What concerns no single annex: several of one name, and who did not answer."""
        present = [row for row in rows if row.state not in ABSENT]
        for same in group_by(present, lambda row: row.name.casefold()).values():
            if len(same) > 1:
                name = plain(same[0].name, NAME_LIMIT)
                yield (
                    f"{len(same)} annexes are called {name}: a job that targets the name may run "
                    "in any of them; shut down those that are not needed"
                )
        names = {row.name.casefold() for row in present}
        for key, gone in group_by(rows, lambda row: row.name.casefold()).items():
            idle = gone[0].jobs_idle
            if key not in names and idle:
                jobs = f"{count(idle, 'job')} {'waits' if idle == 1 else 'wait'}"
                name = plain(gone[0].name, NAME_LIMIT)
                again = "which is gone: create it again, or send them elsewhere"
                never = gone[0].state is AnnexState.NEVER_SEEN
                yield f"{jobs} for {name}, {_NEVER_SEEN if never else again}"
        # Of an ensemble of the past nobody expects an answer.
        if self._is_live:
            yield from self._answer.errors

    def _row(self, name: str, request: AnnexRequest | None, ads: Sequence[AnnexAd]) -> Annex:
        lives = [site for site in self._sites if _is_same(site.annex, name)]
        site = next((ad.site for ad in ads if ad.site), lives[-1].site if lives else "")
        gpu = next((ad.gpu for ad in ads if ad.gpu), "")
        started = self._started(request, ads)
        end = self._end(request, ads, started)
        left = None if end is None else max(0.0, end - self._now)
        jobs = [job for job in self._answer.jobs if _is_same(job.annex, name)]
        idle = [(job.cluster, job.proc) for job in jobs if job.status == JOB_IDLE]
        nodes = {ad.node for ad in ads}
        running = [
            (job.cluster, job.proc)
            for job in jobs
            if job.status == JOB_RUNNING and job.slot.partition("@")[2] in nodes
        ]
        executions = self._epochs.running(name, running)
        known = [ad.gpus for ad in ads if ad.slot_type in _WHOLE and ad.gpus is not None]
        gpus = sum(known) if known else None
        row = Annex(
            name=name,
            site=site,
            state=self._state(request, ads, lives, started, end),
            gpu=gpu,
            nodes=len({ad.node for ad in ads}) if ads or not self._is_silent(request) else None,
            gpus=gpus,
            gpus_busy=None if gpus is None else sum(ad.gpus or 0 for ad in ads if _is_busy(ad)),
            slots_busy=sum(map(_is_busy, ads)) if ads else None,
            alive_until=self._local(end),
            request_id=request.request_id if request is not None else _request_id(ads),
            nodes_requested=request.nodes if request is not None else None,
            started=self._local(started),
            seconds_left=left,
            jobs_idle=len(idle),
            answered_at=self._local(self._answered(request)),
            requested=self._local(request.submitted_at) if request is not None else None,
            first_start=min((life.first_start for life in lives), default=None),
            last_start=max((life.last_start for life in lives), default=None),
            expiries=tuple(self._expiries(request, lives)),
        )
        row = self._with_commands(self._with_balance(row, request), request, ads)
        if row.state not in _UP:
            return row
        like = self._epochs.similar(name, site, gpu)
        needs = self._epochs.next_seconds(like)
        fits = None if needs is None or left is None else needs <= left
        epochs = self._epochs.annex_epochs(executions, left)
        pressure = None
        if row.gpus and left is not None and needs:
            pressure = self._epochs.pressure(
                epochs, idle, gpus=row.gpus, seconds_left=left, epoch_seconds=needs
            )
        soon = left is not None and left < EXPIRING_SECONDS
        expiring = soon if fits is None else not fits
        return replace(
            row,
            state=AnnexState.EXPIRING if expiring else AnnexState.UP,
            epochs=epochs,
            epoch_seconds=needs,
            next_fits=fits,
            pressure=pressure,
        )

    def _with_commands(
        self, row: Annex, request: AnnexRequest | None, ads: Sequence[AnnexAd]
    ) -> Annex:
        """The row with the commands for another annex like it."""
        generation = self._answer.generation
        if generation is None:
            return row
        shape = AnnexShape(name=row.name, site=row.site)
        per_node = row.gpus // row.nodes if row.gpus is not None and row.nodes else None
        if request is not None:
            configured = self._answer.configured_collector
            shape = shape_of(request, row.site, configured=configured)
        lives = [ad.stops_at - ad.started_at for ad in ads if ad.stops_at and ad.started_at]
        lifetime = round(lives[0] / MINUTE) * MINUTE if lives else None
        # A request of the new generation has no numbers, only its nodes do.
        shape = replace(
            shape,
            nodes=shape.nodes or row.nodes or None,
            gpus=per_node,
            lifetime=shape.lifetime or lifetime,
        )
        names = [each.name for each in self._answer.requests]
        there = site_command(shape) if generation is AnnexGeneration.NEW else None
        return replace(
            row,
            command=annex_command(shape, generation, names) or "",
            site_command=there or "",
        )

    def _expiries(
        self, request: AnnexRequest | None, lives: Iterable[SiteLife]
    ) -> Iterator[datetime]:
        """When it expired: of several requests of one name, after this one and before the next."""
        begin = None if request is None else self._local(request.submitted_at)
        others = (
            self._local(other.submitted_at)
            for other in self._answer.requests
            if request is not None and _is_same(other.name, request.name)
        )
        end = min((at for at in others if at and begin and at > begin), default=datetime.max)
        for time in sorted(time for life in lives for time in life.expiries):
            if (begin or datetime.min) <= time < end:
                yield time

    @staticmethod
    def _started(request: AnnexRequest | None, ads: Sequence[AnnexAd]) -> float | None:
        """When the first node started; by the request, up to five minutes too late."""
        starts = [ad.started_at for ad in ads if ad.started_at is not None]
        if starts:
            return min(starts)
        return request.started_at if request is not None else None

    @staticmethod
    def _end(
        request: AnnexRequest | None, ads: Sequence[AnnexAd], started: float | None
    ) -> float | None:
        """When the first node leaves: as its ad says, else the lifetime after the start."""
        stops = [ad.stops_at for ad in ads if ad.stops_at is not None]
        if stops:
            return min(stops)
        if request is None or request.lifetime is None or started is None:
            return None
        return started + request.lifetime

    def _state(
        self,
        request: AnnexRequest | None,
        ads: Sequence[AnnexAd],
        lives: Sequence[SiteLife],
        started: float | None,
        end: float | None,
    ) -> AnnexState:
        over = end is not None and end < self._now
        if ads:
            return AnnexState.GONE if over and self._is_long_over(end) else AnnexState.UP
        if over:
            return AnnexState.GONE
        if self._is_silent(request):
            return AnnexState.UNKNOWN
        if request is None and not lives:
            return AnnexState.NEVER_SEEN
        if request is None or started is not None:
            return AnnexState.GONE
        submitted = bool(request.pid or request.batch_job)
        return AnnexState.PENDING if submitted else AnnexState.REQUESTED

    def _is_long_over(self, end: float | None) -> bool:
        return end is not None and end + GONE_SECONDS < self._now

    def _is_silent(self, request: AnnexRequest | None) -> bool:
        """Whether the collector that would have its ads did not answer."""
        if request is not None and request.collector in self._collector_times:
            return request.collector in self._silent
        return bool(self._silent) or not self._collector_times

    def _answered(self, request: AnnexRequest | None) -> float | None:
        if request is not None and request.collector in self._collector_times:
            return self._collector_times[request.collector]
        return max((t for t in self._collector_times.values() if t is not None), default=None)

    def _with_balance(self, row: Annex, request: AnnexRequest | None) -> Annex:
        """The row with what is left of the allocation that its site, or its request, names."""
        name = request.allocation if request is not None else ""
        for allocation in self._settings.advisor:
            if allocation.name == name or row.site in allocation.sites:
                spent = self._spent_since(allocation.as_of, allocation.sites) * allocation.charge
                return replace(row, allocation=allocation.name, balance=allocation.balance - spent)
        return replace(row, allocation=name)

    def _spent_since(self, since: datetime | None, sites: Iterable[str]) -> float:
        """GPU-hours of this ensemble at some sites since a time; None: nothing since now."""
        if since is None:
            return 0.0
        names, total = frozenset(sites), 0.0
        for entry in self._ledger.executions:
            end = entry.end or self._ledger.as_of
            if entry.site in names and end is not None and end > since:
                seconds = self._ledger.seconds_between(max(entry.start, since), end)
                total += seconds * (entry.gpus or 0) / HOUR
        return total

    def _local(self, seconds: float | None) -> datetime | None:
        """A time since the epoch in the access point's local time, to the second."""
        if seconds is None:
            return None
        try:
            local = datetime.fromtimestamp(int(seconds), self._settings.zone)
        except (OverflowError, OSError, ValueError):
            return None
        return local.replace(tzinfo=None)

    # --- warnings -------------------------------------------------------------------------

    def _warnings(self, row: Annex) -> Iterator[str]:
        name = plain(row.name, NAME_LIMIT)
        late = [epoch for epoch in row.epochs if epoch.fits is False]
        if late:
            first = late[0]
            which = "" if first.epoch is None else f" epoch {epoch_number(first.epoch)}"
            verb = f" and {len(late) - 1} more end" if len(late) > 1 else " ends"
            yield (
                f"{name} expires in {duration(row.seconds_left)}, before"
                f" {plain(first.run_name, NAME_LIMIT)}{which}{verb} (in "
                f"{duration(first.seconds_left)})"
            )
        if row.next_fits is False:
            yield (
                f"{name}: the next epoch will not fit; it takes {duration(row.epoch_seconds)}, "
                f"{duration(row.seconds_left)} are left"
            )
        if row.state in _UP and row.slots_busy == 0 and not row.epochs and not row.jobs_idle:
            yield self._idle_text(row, name)

    def _idle_text(self, row: Annex, name: str) -> str:
        known = [site.last_end for site in self._sites if _is_same(site.annex, row.name)]
        since = max((time for time in (*known, row.started) if time is not None), default=None)
        now = self._local(self._now)
        expires = inf if row.seconds_left is None else row.seconds_left
        if since is None or now is None:
            left = min(IDLE_LIMIT, expires)
            return f"{name} is idle: its nodes leave when they are idle for {duration(left)}"
        # Its end, or that of the idle time, whichever comes first.
        left = min(IDLE_LIMIT - self._ledger.seconds_between(since, now), expires)
        if left <= 0:
            return f"{name} is idle since {moment(since, self._year)} and may leave at any moment"
        return f"{name} is idle, leaves in {duration(left)}"
