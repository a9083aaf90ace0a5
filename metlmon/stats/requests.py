"""Requests that would fit: what completed jobs used, beside what they had requested.

The figures are those of the usage tables (manual, "Managing a Job"). Enough is their 95th
percentile and a tenth more. A request is raised only after jobs were held since they exceeded it,
by the factor of the acts that raise requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from metlmon.eventlog.events import ResourceUsage, least_amount
from metlmon.live.feed import StatsInput
from metlmon.model.reasons import RAISE_FACTOR, exceeded_request, reached_mb
from metlmon.model.states import State
from metlmon.snapshot.records import Job
from metlmon.stats.resources import KILOBYTES, RESOURCES, Resource, amounts_of, requested
from metlmon.stats.totals import percentile
from metlmon.stats.windows import ALL, TimeWindow, clip_ledger
from metlmon.text.formatting import UNKNOWN, count, number, share
from metlmon.text.record_json import Nullable

MIN_EPOCHS: Final = 5
"""Completed epochs below which no request is suggested."""

MARGIN: Final = 1.1
"""Times the 95th percentile of what was used."""

WORTH: Final = 0.9
"""Share of the present request that a smaller one has at most: else it fits as it is."""

GB: Final = 1 << 20
"""KB, as in submit files."""

BY_COMMAND: Final = {each.command: each for each in RESOURCES.values()}


class RequestAdvice(Struct, frozen=True, kw_only=True):
    """What jobs with equal requests used of one of them, and what would have been enough.

    ``submit``: their submit file, None where it is not known; ``training``: they are epochs.
    ``command``: the submit command, its amounts in ``unit``. ``requested``: None where there is
    none. ``used_95``, ``used_most``: 95th percentile and maximum of the ``measured`` jobs that
    completed an epoch of usual length (without hidden compute), of CPUs and GPUs the averages;
    ``rounded``: the schedd rounds them up, they were at most that.
    ``suggested``: a request that would fit better, None if the present one fits or too few were
    measured. ``exceeding``: of all ``completed`` jobs those that used more than is suggested, or
    else requested. ``exceeded``: jobs that were held since they exceeded the request. ``slots``:
    of the pool, if its collector was asked; ``gain``: the share of these that match what is
    suggested, of all requests, and have less than is requested of this one.
    """

    submit: Nullable[str | None]
    training: bool
    command: str
    unit: str
    requested: float | None
    used_95: float | None
    used_most: float | None
    rounded: bool
    measured: int
    suggested: int | None
    exceeding: int
    completed: int
    exceeded: int
    slots: int | None = None
    gain: float | None = None

    @property
    def resource(self) -> Resource:
        return BY_COMMAND[self.command]

    @property
    def fitting(self) -> float | None:
        """The suggested request, or the present one if it fits; None where that is not known."""
        if self.suggested is not None:
            return self.suggested
        is_known = self.measured >= MIN_EPOCHS and self.used_95 is not None
        return self.requested if is_known and (self.used_95 or 0) <= (self.requested or 0) else None


_Shape: TypeAlias = tuple[str | None, bool, tuple[float | None, ...]]
"""Submit file of jobs, whether they train, and what all of them request, by command."""

Slots: TypeAlias = Sequence[tuple[Mapping[str, float], int]]
"""What slots have, by the command that requests it, and how many have that."""


class _Sample(Struct):
    """The jobs of a shape: tables, and by command what would have been enough for held ones."""

    usual: list[ResourceUsage] = []
    completed: list[ResourceUsage] = []
    epochs: set[object] = set()
    enough: dict[str, list[float]] = {}
    newest: int = 0


def advise_requests(
    stats_input: StatsInput, window: TimeWindow = ALL, slots: Slots = ()
) -> tuple[RequestAdvice, ...]:
    """A row for each request of each submit file, those of the newest jobs first.

    By the jobs that were completed or held in ``window``; ``slots``: of the pool.
    """
    ledger = stats_input.ledger
    clipped = clip_ledger(ledger, window)
    in_window = {(entry.job, entry.start) for entry in clipped.executions if entry.counted}
    nodes = {each.node_key: each.node for each in stats_input.load_description().nodes.all}
    hidden = {epoch.node_key for epoch in ledger.epochs if epoch.hidden}
    samples: dict[_Shape, _Sample] = {}

    def sample_of(job: Job, usage: ResourceUsage) -> _Sample:
        node = nodes.get(job.node_key) if job.node_key else None
        # Device memory is requested by a command that is in no table.
        requests = *requested(usage)[:-1], node.gpus_minimum_memory if node else None
        shape = node.submit if node else None, job.training, requests
        sample = samples.setdefault(shape, _Sample())
        sample.newest = max(sample.newest, job.cluster)
        return sample

    for job in clipped.jobs:
        if job.dagman or job.at_access_point:
            continue
        last = job.last_execution
        if (
            last is not None
            and last.usage is not None
            and job.state is State.COMPLETED
            and (job.job, last.start) in in_window
        ):
            sample = sample_of(job, last.usage)
            sample.completed.append(last.usage)
            if job.node_key not in hidden:
                sample.usual.append(last.usage)
                sample.epochs.add(job.node_key or job.job)
        for command, usage, enough in _exceeded(job):
            sample_of(job, usage).enough.setdefault(command, []).append(enough)
    newest_first = sorted(samples.items(), key=lambda item: (not item[0][1], -item[1].newest))
    rows: list[RequestAdvice] = []
    for shape, sample in newest_first:
        of_shape = [
            _advice(shape, resource, request, sample)
            for resource, request in zip(RESOURCES.values(), shape[2], strict=True)
        ]
        rows += _with_gain(of_shape, slots) if slots else of_shape
    return tuple(row for row in rows if row.requested is not None or row.measured)


def _with_gain(rows: Sequence[RequestAdvice], slots: Slots) -> Iterable[RequestAdvice]:
    needed = {row.command: row.suggested or row.requested or 0 for row in rows}
    matching = [
        (amounts, number)
        for amounts, number in slots
        if all(amounts.get(command, 0) >= amount for command, amount in needed.items())
    ]
    total = sum(number for _, number in slots)
    for row in rows:
        requested = row.requested or 0
        more = sum(n for amounts, n in matching if amounts.get(row.command, 0) < requested)
        is_less = row.suggested is not None and row.suggested < requested
        yield replace(row, slots=total, gain=more / total) if is_less else row


def _exceeded(job: Job) -> Iterable[tuple[str, ResourceUsage, float]]:
    """The requests that a job was held for, each once, with what would have been enough."""
    found: dict[str, tuple[str, ResourceUsage, float]] = {}
    for hold in job.holds:
        command = exceeded_request(hold.code, hold.subcode, hold.reason)
        before = [entry for entry in job.executions if entry.start <= hold.start]
        usage = (before[-1].usage if before else None) or job.usage
        if command is not None and usage is not None:
            resource = BY_COMMAND[command]
            reached = [mb * 1024 / KILOBYTES[resource.unit] for mb in reached_mb(hold.reason)]
            most = max([getattr(usage, f"{resource.name}_requested") or 0, *reached])
            found[command] = command, usage, most * RAISE_FACTOR
    return found.values()


def _advice(
    shape: _Shape, resource: Resource, request: float | None, sample: _Sample
) -> RequestAdvice:
    unit, kilobytes = resource.unit, KILOBYTES[resource.unit]

    used = amounts_of(sample.usual, resource.name)
    completed = amounts_of(sample.completed, resource.name)
    used_95 = percentile(used, 0.95) if len(used) > 1 else None
    enough = sample.enough.get(resource.command, [])
    suggested = None
    if enough:
        suggested = handy(unit, max(enough))
    elif request and used_95 is not None and len(sample.epochs) >= MIN_EPOCHS <= len(used):
        # No GPU is in use more than all the time, so that the average needs no margin; and less
        # than a GB of memory or disk gains nothing.
        margin = 1.0 if resource.name == "gpus" else MARGIN
        least = max(handy(unit, used_95 * margin), GB // (kilobytes or GB))
        suggested = least if least <= WORTH * request else None
    limit = request if suggested is None else suggested
    return RequestAdvice(
        submit=shape[0],
        training=shape[1],
        command=resource.command,
        unit=unit,
        requested=request,
        used_95=used_95,
        used_most=max(used, default=None),
        # MB are coarse: less than a GB may look rounded by chance.
        rounded=max(used, default=0) * kilobytes >= GB
        and all(least_amount(value, kilobytes) < value for value in used),
        measured=len(used),
        suggested=suggested,
        exceeding=0 if limit is None else sum(value > limit for value in completed),
        completed=len(completed),
        exceeded=len(enough),
    )


def handy(unit: str, amount: float) -> int:
    """The amount rounded up to whole GB, below one to 128 MB; CPUs and GPUs to at least 1."""
    gb = GB // (KILOBYTES[unit] or GB)
    step = gb if amount > gb or not unit else gb // 8
    return max(1, ceil(round(amount / step, 6))) * step


# --- texts, and the fields of a new ensemble ----------------------------------------------------


def over_text(row: RequestAdvice) -> str:
    """``0 of 42``: completed jobs that used more than would fit."""
    return f"{number(row.exceeding)} of {number(row.completed)}" if row.completed else UNKNOWN


def advice_text(row: RequestAdvice, item: str = "epoch") -> str:
    """``33 epochs used at most 31.0 GB: 35GB would fit, 0 of 42 completed jobs used more``."""
    resource, facts = row.resource, []
    if row.exceeded:
        facts.append(f"{count(row.exceeded, 'job')} exceeded {resource.submitted(row.requested)}")
    if row.measured:
        how = " (rounded up)" if row.rounded else "" if row.unit else " on average"
        facts.append(
            f"{count(row.measured, item)} used at most {resource.used(row.used_most)}{how}"
        )
    over = f", {over_text(row)} completed jobs used more" if row.completed else ""
    fits = "it fits" if row.suggested is None else f"{resource.submitted(row.suggested)} would fit"
    more = "" if row.gain is None else f", {share(row.gain, 1)} of the pool's slots more match"
    return f"{'; '.join(facts)}: {fits}{over}{more}"


def advised_fields(rows: Sequence[RequestAdvice]) -> dict[str, tuple[str, RequestAdvice]]:
    """What a new ensemble should request by past jobs: the text for each field of its request.

    By the newest jobs of which enough were measured; evaluations do not count beside trainings.
    A default is not changed for less than a GB.
    """
    found: dict[str, tuple[str, RequestAdvice]] = {}
    for row in rows:
        value = row.fitting if row.training is rows[0].training else None
        if value is not None and (not row.unit or value * KILOBYTES[row.unit] >= GB):
            resource = row.resource
            text = resource.submitted(value) if resource.name == "disk_kb" else f"{value:.0f}"
            found.setdefault(resource.field, (text, row))
    return found
