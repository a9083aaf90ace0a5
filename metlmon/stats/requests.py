"""Requests that would fit: what completed jobs used, compared with what they requested.

The figures are those of the usage tables (manual, "Managing a Job"). Enough is their 95th
percentile plus a tenth. A request is raised only after jobs were held for exceeding it, by the
factor of the acts that raise requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
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
"""Minimum completed epochs for a suggestion."""

MARGIN: Final = 1.1
"""Factor on the 95th percentile of what was used."""

WORTH: Final = 0.9
"""Maximum share of the present request for a smaller one: above it, the present one fits."""

GB: Final = 1 << 20
"""In KB, as in submit files."""

BY_COMMAND: Final = {each.command: each for each in RESOURCES.values()}


class RequestAdvice(Struct, frozen=True, kw_only=True):
    """What jobs with equal requests used of one resource, and what would have been enough.

    ``submit``: their submit file, None if unknown; ``training``: whether they are epochs.
    ``command``: the submit command; its amounts are in ``unit``. ``requested``: None without a
    request. ``used_95``, ``used_most``: 95th percentile and maximum of the ``measured`` jobs that
    completed an epoch of usual length (without hidden compute), averages for CPUs and GPUs;
    ``rounded``: the schedd rounded these up, so that they are upper bounds. ``suggested``: a
    request that would fit better, None if the present one fits or too few jobs were measured.
    ``exceeding``: the number of all ``completed`` jobs that used more than what is suggested, or
    else requested. ``exceeded``: jobs that were held for exceeding the request. ``slots``: those of
    the pool, if its collector was asked; ``gain``: the share of them that matches the suggestions
    for all resources, but has less than the present request for this one.
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
        """The suggested request, or the present one if it fits; None if unknown."""
        if self.suggested is not None:
            return self.suggested
        is_known = self.measured >= MIN_EPOCHS and self.used_95 is not None
        return self.requested if is_known and (self.used_95 or 0) <= (self.requested or 0) else None


_Shape: TypeAlias = tuple[str | None, bool, tuple[float | None, ...]]
"""Submit file of jobs, whether they train, and their requests by command."""

Slots: TypeAlias = Sequence[tuple[Mapping[str, float], int]]
"""Amounts of slots by the command that requests them, and the number of slots that have them."""


class _Sample(Struct):
    """The jobs of a shape: usage tables, and by command the amounts that held ones would need."""

    usual: list[ResourceUsage] = []
    completed: list[ResourceUsage] = []
    epochs: set[object] = set()
    enough: dict[str, list[float]] = {}
    newest: tuple[datetime, int] = datetime.min, 0


def advise_requests(
    stats_input: StatsInput, window: TimeWindow = ALL, slots: Slots = ()
) -> tuple[RequestAdvice, ...]:
    """A row for each request of each submit file, those of the newest jobs first.

    Computed from jobs that were completed or held in ``window``; ``slots``: those of the pool.
    """
    ledger = stats_input.ledger
    clipped = clip_ledger(ledger, window)
    in_window = {(entry.job, entry.start) for entry in clipped.executions if entry.counted}
    nodes = {each.node_key: each.node for each in stats_input.load_description().nodes.all}
    hidden = {epoch.node_key for epoch in ledger.epochs if epoch.hidden}
    samples: dict[_Shape, _Sample] = {}

    def sample_of(job: Job, usage: ResourceUsage) -> _Sample:
        node = nodes.get(job.node_key) if job.node_key else None
        # Device memory is requested by a command whose value is in no usage table.
        device_memory = node.submission.gpus_minimum_memory if node else None
        requests = *requested(usage)[:-1], device_memory
        shape = node.submit if node else None, job.training, requests
        sample = samples.setdefault(shape, _Sample())
        sample.newest = max(sample.newest, (job.submitted or datetime.min, job.cluster))
        return sample

    for job in clipped.jobs:
        if job.at_access_point:
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
    newest_first = sorted(
        samples.items(), key=lambda item: (item[0][1], item[1].newest), reverse=True
    )
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
    """The requests for whose excess a job was held, each once, with what would have been enough."""
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
        suggested = round_up(unit, max(enough))
    elif request and used_95 is not None and len(sample.epochs) >= MIN_EPOCHS <= len(used):
        # A GPU cannot be in use more than all the time, so that the average needs no margin; and
        # less than a GB of memory or disk gains nothing.
        margin = 1.0 if resource.name == "gpus" else MARGIN
        least = max(round_up(unit, used_95 * margin), GB // (kilobytes or GB))
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
        # In MB, amounts below a GB may look rounded by chance.
        rounded=max(used, default=0) * kilobytes >= GB
        and all(least_amount(value, kilobytes) < value for value in used),
        measured=len(used),
        suggested=suggested,
        exceeding=0 if limit is None else sum(value > limit for value in completed),
        completed=len(completed),
        exceeded=len(enough),
    )


def round_up(unit: str, amount: float) -> int:
    """The amount rounded up to whole GB, below 1 GB to 128 MB; CPUs and GPUs to at least 1."""
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
    """What a new ensemble should request, given past jobs: a text for each field of its request.

    Based on the newest jobs of which enough were measured; evaluations count only without
    trainings. A default is not changed by less than a GB.
    """
    found: dict[str, tuple[str, RequestAdvice]] = {}
    for row in rows:
        value = row.fitting if row.training is rows[0].training else None
        if value is not None and (not row.unit or value * KILOBYTES[row.unit] >= GB):
            resource = row.resource
            text = resource.submitted(value) if resource.name == "disk_kb" else f"{value:.0f}"
            found.setdefault(resource.field, (text, row))
    return found
