"""All annexes in one table, from schedd, collectors and the ledger, with warnings.

HTCondor manual, "HPC annexes". An annex is a request in the schedd, the ads of its nodes in a
collector, or both; if neither shows an annex, the ledger has the jobs that ran in it.

Durations are medians of similar executions (:class:`metlmon.stats.estimates.ExecutionDurations`)
and the forecast of the epoch in progress: an epoch fits if it is as likely as not to end in time.

The command that requests another annex is to be copied: metlmon never runs it. Options of
``htcondor annex create`` are those of HTCondor 23.9 (old generation) and 25.14 (new). Names of
annexes and sites come from ads of jobs and nodes: if a shell or the command could misinterpret one,
no command is given.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from math import inf
from statistics import median
from typing import Final

from msgspec.structs import replace

from metlmon.live.feed import StatsInput
from metlmon.model.job_events import JobId
from metlmon.model.reasons import is_expiry
from metlmon.model.states import Outcome, State
from metlmon.placement.planner import charged_hours
from metlmon.placement.types import ABSENT, Annex, AnnexEpoch, AnnexReport, AnnexState, SiteLife
from metlmon.pool.annex_ads import (
    AnnexAd,
    AnnexAnswer,
    AnnexGeneration,
    AnnexRequest,
    AnnexShape,
    AnnexSlotType,
)
from metlmon.snapshot.records import Execution, Job, Ledger
from metlmon.stats.estimates import ExecutionDurations, Forecast, make_forecast
from metlmon.stats.totals import group_by
from metlmon.text.formatting import count, duration, epoch_number, moment, plain, year_of

# --- commands ---------------------------------------------------------------------------------


SYSTEMS: Final = tuple("anvil bridges2 delta expanse path-facility perlmutter spark".split())
"""The systems that ``htcondor annex systems`` lists."""

QUEUE, SYSTEM = "QUEUE", "SYSTEM"
"""Placeholders for unknown values, which the user replaces."""


def annex_command(
    shape: AnnexShape, generation: AnnexGeneration, names: Iterable[str] = ()
) -> str | None:
    """The command for the access point, quoted for a shell.

    ``names``: those of the annexes with a request in the queue, to which nodes are added. None if a
    text of the shape is not safe in a command.
    """
    is_known = shape.name.casefold() in {name.casefold() for name in names}
    verb = "add" if is_known else "create"
    words = ["htcondor", "annex", verb, shape.name]
    if generation is AnnexGeneration.OLD:
        words += [f"{shape.queue or QUEUE}@{system_of(shape.site) or SYSTEM}"]
        words += _options(
            ("--nodes", shape.nodes),
            ("--lifetime", shape.lifetime),
            ("--project", shape.allocation),
            ("--gpus", shape.gpus),
            ("--cpus", shape.cpus),
            ("--mem_mb", shape.memory),
        )
    words += _options(("--pool", shape.collector))
    return _quoted(words, shape)


def site_command(shape: AnnexShape) -> str | None:
    """The command for the site after a request of the new generation, quoted for a shell.

    It submits the script that ``annex-setup.sh`` wrote; options of ``sbatch`` come before those
    in the script. None as for :func:`annex_command`.
    """
    minutes = None if shape.lifetime is None else -(-int(shape.lifetime) // 60)
    options = _options(
        ("--partition", shape.queue),
        ("--nodes", shape.nodes),
        ("--time", minutes),
        ("--account", shape.allocation),
        ("--gpus-per-node", shape.gpus),
        ("--cpus-per-task", shape.cpus),
        ("--mem", shape.memory),
    )
    return _quoted(["sbatch", *options, "hpc.slurm"], shape)


def system_of(site: str) -> str:
    """The system of a site ("Delta-GPU": delta); empty if HTCondor does not have it."""
    return next((system for system in SYSTEMS if system in site.casefold()), "")


def _options(*options: tuple[str, float | str | None]) -> list[str]:
    """The options that have a value, each followed by it."""
    words: list[str] = []
    for option, value in options:
        if value is not None and value != "":
            words += [option, value if isinstance(value, str) else f"{value:.0f}"]
    return words


def _quoted(words: Iterable[str], shape: AnnexShape) -> str | None:
    texts = (shape.name, shape.queue, shape.allocation, shape.collector)
    is_fit = shape.name and all(text.isprintable() and not text.startswith("-") for text in texts)
    return shlex.join(words) if is_fit else None


# --- epochs in annexes ------------------------------------------------------------------------


class AnnexHistory:
    """The annexes in an ensemble's ledger: their sites, and epochs that run or could run there."""

    def __init__(self, stats_input: StatsInput) -> None:
        self._stats_input = stats_input
        self.ledger, self.settings = stats_input.ledger, stats_input.settings
        self.is_live = stats_input.status.live
        self.sites = site_lives(stats_input.ledger)
        self._newest_first = sorted(self.ledger.trainings, key=lambda e: e.start, reverse=True)
        self._running = [e for e in self._newest_first if e.outcome is Outcome.IN_FLIGHT]
        self._next_seconds: dict[tuple[str, str, str], float | None] = {}

    @cached_property
    def _durations(self) -> ExecutionDurations:
        return ExecutionDurations(self.ledger)

    @cached_property
    def _forecast(self) -> Forecast:
        return make_forecast(self._stats_input)

    @cached_property
    def _forecasts(self) -> Mapping[str, tuple[int | None, float]]:
        """Number and remaining seconds of each run's epoch in progress."""
        return {
            run.key: (run.epoch, run.epoch_remaining.median)
            for run in self._forecast.runs
            if run.epoch_remaining is not None
        }

    @cached_property
    def _runs(self) -> Mapping[JobId, str]:
        return {job.job: job.key or "" for job in self.ledger.jobs}

    def running(self, annex: str, jobs: Iterable[JobId]) -> list[Execution]:
        """The epochs that run in an annex, by the log, or else (``jobs``) by their slots."""
        in_slots = frozenset(jobs)
        return [
            entry
            for entry in self._running
            if _is_in(entry, annex) or (entry.annex is None and entry.job in in_slots)
        ]

    def next_seconds(self, annex: str, site: str, gpu: str) -> float | None:
        """Median seconds from the match to the end of an epoch in an annex.

        As of the newest execution there, else at its site, else on its GPU model. Includes the
        input transfer; None without a completed epoch.
        """
        key = annex, site, gpu
        if key not in self._next_seconds:
            newest = self._newest_first
            own = (e for e in newest if _is_in(e, annex))
            at_site = (e for e in newest if site and e.site == site and gpu in ("", e.gpu))
            of_model = (e for e in newest if gpu and e.gpu == gpu)
            like = next(chain(own, at_site, of_model), None)
            curve, _ = self._durations.curve(like, "")
            transfers = [
                entry.transfer
                for entry in newest
                if entry.transfer is not None and (like is None or entry.site == like.site)
            ]
            transfer = median(transfers) if transfers else 0.0
            self._next_seconds[key] = (
                None if curve is None else curve.conditional_quantile(0.5) + transfer
            )
        return self._next_seconds[key]

    def annex_epochs(
        self, running: Iterable[Execution], seconds_left: float | None
    ) -> tuple[AnnexEpoch, ...]:
        """Each running epoch, and whether it ends within ``seconds_left`` of the annex."""
        epochs = []
        for entry in running:
            rest = self._remaining(entry)
            known = rest is not None and seconds_left is not None
            epochs.append(
                AnnexEpoch(
                    key=entry.key or "",
                    run=entry.run or entry.node or "",
                    epoch=entry.epoch,
                    job=entry.job,
                    gpus=entry.gpus,
                    seconds_left=rest,
                    fits=rest <= seconds_left if known else None,  # type: ignore[operator]
                )
            )
        return tuple(epochs)

    def _remaining(self, entry: Execution) -> float | None:
        """Seconds until a running epoch ends; those of the Estimates screen if that has it."""
        forecast = self._forecasts.get(entry.key or "")
        if forecast is not None and forecast[0] == entry.epoch:
            return forecast[1]
        curve, _ = self._durations.curve(entry, entry.key or "")
        return None if curve is None else curve.conditional_quantile(0.5, entry.trained)

    def pressure(
        self,
        epochs: Sequence[AnnexEpoch],
        ready: Iterable[JobId],
        gpus: int,
        seconds_left: float,
        epoch_seconds: float,
    ) -> float | None:
        """(ready + expected before expiry) x GPU-hours per epoch / GPU-hours left.

        ``ready``: jobs that wait for the annex. Expected: the later epochs of their runs and of the
        running ones, one after the other until the annex expires. GPU-hours left: those that the
        running epochs do not take. None if nothing is left.
        """
        epochs_left = {run.key: run.epochs_left for run in self._forecast.runs}

        def later(seconds: float, run: str) -> int:
            """Epochs of a run that become ready within ``seconds``, after the current one."""
            if seconds < 0 or epoch_seconds <= 0:
                return 0
            return min(1 + int(seconds // epoch_seconds), max(0, epochs_left.get(run, 0) - 1))

        left, expected = gpus * seconds_left, 0
        for epoch in epochs:
            rest = epoch_seconds if epoch.seconds_left is None else epoch.seconds_left
            left -= (epoch.gpus or 1) * min(rest, seconds_left)
            expected += later(seconds_left - rest, epoch.key)
        for job in ready:
            expected += 1 + later(seconds_left - epoch_seconds, self._runs.get(job, ""))
        counts = [epoch.gpus for epoch in epochs if epoch.gpus]
        counts = counts or [entry.gpus for entry in self._newest_first if entry.gpus]
        per_epoch = (median(counts) if counts else 1.0) * epoch_seconds
        return expected * per_epoch / left if left > 0 else None


def _is_in(entry: Execution, annex: str) -> bool:
    """Whether an execution names an annex; HTCondor ignores the case of names."""
    return entry.annex is not None and entry.annex.casefold() == annex.casefold()


# --- the table --------------------------------------------------------------------------------


EXPIRING_SECONDS: Final = 600.0
"""Time left below which an annex is expiring if no epoch has a known duration."""

GONE_SECONDS: Final = 60.0
"""Time after its end after which an annex is gone, though its ads are still in the collector: these
stay for 15 minutes if its nodes were killed, but a shutdown takes seconds."""

IDLE_LIMIT: Final = 300.0
"""Seconds after which a node without a claim leaves (STARTD_NOCLAIM_SHUTDOWN of annexes)."""

MINUTE: Final = 60.0

JOB_IDLE: Final = 1
JOB_RUNNING: Final = 2

NAME_LIMIT: Final = 40

_WHOLE: Final = (AnnexSlotType.PARTITIONABLE, AnnexSlotType.STATIC)
"""Slots that together have all GPUs of a node."""

_UP: Final = (AnnexState.UP, AnnexState.EXPIRING)


def annex_history(stats_input: StatsInput) -> AnnexHistory:
    """The history with its slow parts computed, as a statistic for a screen."""
    history = AnnexHistory(stats_input)
    for name in ("_durations", "_forecasts", "_runs"):
        getattr(history, name)
    return history


def make_annexes(
    stats_input: StatsInput, answer: AnnexAnswer | None = None, now: float | None = None
) -> AnnexReport:
    """All annexes with their warnings; arguments as for :func:`report_annexes`."""
    return report_annexes(AnnexHistory(stats_input), answer, now)


def report_annexes(
    history: AnnexHistory, answer: AnnexAnswer | None, now: float | None
) -> AnnexReport:
    """All annexes, with their warnings; ``now``: seconds since the epoch."""
    ledger, sites = history.ledger, history.sites
    asked = answer is not None and answer.queried_at is not None
    rows: list[Annex] = []
    errors: list[str] = []
    if answer is not None and now is not None:
        builder = _AnnexBuilder(history, answer, now)
        rows = builder.rows()
        errors = [*builder.general_warnings(rows)]
    known = {row.name.casefold() for row in rows}
    rows += [_inferred_annex(site, ledger) for site in sites if _may_be_annex(site, known)]
    seen = {row.name.casefold() for row in rows}
    for jobs in group_by(ledger.jobs, lambda job: (job.target_annex or "").casefold()).values():
        if jobs[0].target_annex and jobs[0].target_annex.casefold() not in seen:
            rows.append(_unseen_annex(jobs))
    rows.sort(key=_rank)
    requested = (row for row in rows if row.command)
    last = max(requested, key=lambda row: row.requested or datetime.min, default=None)
    generation = answer.generation if answer is not None else None
    command = last.command if last is not None else ""
    if generation is not None and not command:
        command = annex_command(AnnexShape(name="NAME"), generation) or ""
    return AnnexReport(
        as_of=ledger.as_of,
        annexes=tuple(rows),
        sites=sites,
        annex_warnings=(*(text for row in rows for text in row.warnings), *errors),
        asked=asked,
        generation=generation or "",
        command=command,
        site_command=last.site_command if last is not None else "",
    )


def _rank(row: Annex) -> tuple[object, ...]:
    state, end = list(AnnexState).index(row.state), row.alive_until or datetime.max
    return (row.state in ABSENT, not row.warnings, end, state, row.name, row.request_id, row.site)


def _is_same(name: str, other: str) -> bool:
    """Whether two texts name one annex; HTCondor ignores their case."""
    return name.casefold() == other.casefold()


def _is_busy(ad: AnnexAd) -> bool:
    """Whether a job runs in the ad's slot; partitionable slots run jobs in dynamic ones."""
    return ad.busy and ad.slot_type in (AnnexSlotType.DYNAMIC, AnnexSlotType.STATIC)


# --- from logs --------------------------------------------------------------------------------


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
        # The evictions of one expiry come within a minute.
        if last is None or end - last > timedelta(minutes=1):
            yield end
        last = end


def _may_be_annex(site: SiteLife, known: set[str]) -> bool:
    if site.annex:
        return site.annex.casefold() not in known
    return bool(site.expiries) and not known


def _inferred_annex(site: SiteLife, ledger: Ledger) -> Annex:
    """An annex that only the logs show."""
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


def _unseen_annex(jobs: Sequence[Job]) -> Annex:
    """An annex that jobs name, but neither a log, the schedd nor a collector shows."""
    name, idle = jobs[0].target_annex or "", sum(job.state is State.IDLE for job in jobs)
    started = sum(bool(job.executions) for job in jobs)
    waiting = _waiting_text(name, idle, AnnexState.NEVER_SEEN, started)
    return Annex(
        name=name,
        site="",
        state=AnnexState.NEVER_SEEN,
        inferred=True,
        jobs_idle=idle,
        jobs_started=started,
        warnings=(waiting,) if idle else (),
    )


def _waiting_text(name: str, idle: int, state: AnnexState, started: int = 0) -> str:
    """The warning that jobs wait for an annex that does not exist."""
    what = "was never seen: request it (htcondor annex create)"
    if state is not AnnexState.NEVER_SEEN:
        what = "is gone: create it again"
    elif started:
        what = "no log names: if it is gone, request it (htcondor annex create)"
    verb = "waits" if idle == 1 else "wait"
    jobs = f"{count(idle, 'job')} {verb} for {plain(name, NAME_LIMIT)}"
    return f"{jobs}, which {what}, or send them elsewhere"


# --- from schedd and collectors ---------------------------------------------------------------


class _AnnexBuilder:
    """Builds the annexes that schedd or collectors know."""

    def __init__(self, history: AnnexHistory, answer: AnnexAnswer, now: float) -> None:
        self._answer, self._now = answer, now
        self._history = history
        self._settings, self._ledger, self._sites = history.settings, history.ledger, history.sites
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
        targeted = {job.annex.casefold(): job.annex for job in self._answer.jobs if job.annex}
        rows += [self._row(targeted[name], None, []) for name in targeted if name not in names]
        return [replace(row, warnings=tuple(self._warnings(row))) for row in rows]

    def general_warnings(self, rows: Sequence[Annex]) -> Iterator[str]:
        """Warnings that are not about a single annex: duplicate names, and missing answers."""
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
                yield _waiting_text(gone[0].name, idle, gone[0].state)
        # For an ensemble of the past no answer is expected.
        if self._history.is_live:
            yield from self._answer.errors

    def _row(self, name: str, request: AnnexRequest | None, ads: Sequence[AnnexAd]) -> Annex:
        lives = [site for site in self._sites if _is_same(site.annex, name)]
        site = next((ad.site for ad in ads if ad.site), lives[-1].site if lives else "")
        gpu = next((ad.gpu for ad in ads if ad.gpu), "")
        # The first node; if it is known by the request, up to five minutes too late.
        starts = [ad.started_at for ad in ads if ad.started_at is not None]
        started = min(starts, default=request.started_at if request is not None else None)
        end = min((ad.stops_at for ad in ads if ad.stops_at is not None), default=None)
        lifetime = request.lifetime if request is not None else None
        if end is None and started is not None and lifetime is not None:
            end = started + lifetime
        left = None if end is None else max(0.0, end - self._now)
        jobs = [job for job in self._answer.jobs if _is_same(job.annex or "", name)]
        idle = [(job.cluster, job.proc) for job in jobs if job.status == JOB_IDLE]
        nodes = {ad.node for ad in ads}
        running = [
            (job.cluster, job.proc)
            for job in jobs
            if job.status == JOB_RUNNING and (job.slot or "").partition("@")[2] in nodes
        ]
        executions = self._history.running(name, running)
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
            request_id=request.request_id
            if request is not None
            else next((ad.request_id for ad in ads if ad.request_id), ""),
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
        needs = self._history.next_seconds(name, site, gpu)
        fits = None if needs is None or left is None else needs <= left
        epochs = self._history.annex_epochs(executions, left)
        pressure = None
        if row.gpus and left is not None and needs:
            pressure = self._history.pressure(
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
        shape = AnnexShape(name=row.name) if request is None else request
        if shape.collector == self._answer.configured_collector:
            shape = replace(shape, collector="")
        per_node = row.gpus // row.nodes if row.gpus is not None and row.nodes else None
        lives = [ad.stops_at - ad.started_at for ad in ads if ad.stops_at and ad.started_at]
        lifetime = round(lives[0] / MINUTE) * MINUTE if lives else None
        # A request of the new generation has no numbers; only its nodes do.
        shape = replace(
            shape,
            site=row.site,
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
        """When it expired; with several requests of one name, between this one and the next."""
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
            is_long_over = end is not None and end + GONE_SECONDS < self._now
            return AnnexState.GONE if is_long_over else AnnexState.UP
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

    def _is_silent(self, request: AnnexRequest | None) -> bool:
        """Whether the collector to which it reports did not answer."""
        if request is not None and request.collector in self._collector_times:
            return request.collector in self._silent
        return bool(self._silent) or not self._collector_times

    def _answered(self, request: AnnexRequest | None) -> float | None:
        if request is not None and request.collector in self._collector_times:
            return self._collector_times[request.collector]
        return max((t for t in self._collector_times.values() if t is not None), default=None)

    def _with_balance(self, row: Annex, request: AnnexRequest | None) -> Annex:
        """The row with the balance of the allocation that covers its site, or its request names."""
        name = request.allocation if request is not None else ""
        for allocation in self._settings.advisor:
            if allocation.name == name or row.site in allocation.sites:
                balance = allocation.balance - charged_hours(allocation, self._ledger)
                return replace(row, allocation=allocation.name, balance=balance)
        return replace(row, allocation=name)

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
                f" {plain(first.run, NAME_LIMIT)}{which}{verb} (in "
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
        # Until its end, or that of the idle time, whichever comes first.
        left = min(IDLE_LIMIT - self._ledger.seconds_between(since, now), expires)
        if left <= 0:
            return f"{name} is idle since {moment(since, self._year)} and may leave at any moment"
        return f"{name} is idle, leaves in {duration(left)}"
