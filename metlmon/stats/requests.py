"""Requests that would fit: what completed jobs used, beside what they had requested.

The measurements are those of the tables "Partitionable Resources" (manual, "Managing a Job"). What
would be enough is their 95th percentile and a tenth more. A request is raised only after jobs
were held since they exceeded it, as :data:`metlmon.model.reasons.RAISE_FACTOR` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import ceil, floor, log10
from statistics import quantiles
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from metlmon.eventlog.events import ResourceUsage
from metlmon.live.feed import StatsInput
from metlmon.model.reasons import RAISE_FACTOR, exceeded_request, reached_mb
from metlmon.model.states import State
from metlmon.snapshot.records import Execution, Job
from metlmon.text.formatting import UNKNOWN, count, number, request_amount
from metlmon.text.record_json import Nullable

MIN_EPOCHS: Final = 5
"""Completed epochs below which no request is suggested."""

MARGIN: Final = 1.1
"""Times the 95th percentile of what was used."""

WORTH: Final = 0.9
"""Share of the present request that a smaller one has at most: else it fits as it is."""

GB: Final = 1 << 20
"""KB, as in submit files."""

LEAST_ROUNDED: Final = 1_000_000
"""KB: smaller values lie near to a rounded one by chance, since MB are coarse."""


class RequestCommand(StrEnum):
    """The submit commands that request resources."""

    MEMORY = "request_memory"
    DISK = "request_disk"
    CPUS = "request_cpus"
    GPUS = "request_gpus"
    GPU_MEMORY = "gpus_minimum_memory"

    @property
    def unit(self) -> str:
        """MB, KB, or none, as in usage tables."""
        return _UNITS.get(self, "")

    @property
    def kilobytes(self) -> int:
        """KB of the unit; 0 of CPUs and GPUs."""
        return {"MB": 1024, "KB": 1}.get(self.unit, 0)


_UNITS: Final = {
    RequestCommand.MEMORY: "MB",
    RequestCommand.DISK: "KB",
    RequestCommand.GPU_MEMORY: "MB",
}


_USED: Final = {
    RequestCommand.MEMORY: "memory_mb",
    RequestCommand.DISK: "disk_kb",
    RequestCommand.CPUS: "cpus",
    RequestCommand.GPUS: "gpus",
    RequestCommand.GPU_MEMORY: "gpu_memory_mb",
}
"""The fields of usage tables."""


class RequestAdvice(Struct, frozen=True, kw_only=True):
    """What jobs with equal requests used of one of them, and what would have been enough.

    ``submit``: their submit file, None where it is not known. ``requested``: None where it is not
    known, or not requested. ``used_95``, ``used_most``: 95th percentile and maximum of the
    ``measured`` jobs that completed an epoch of usual length (without hidden compute), of CPUs
    and GPUs the averages; ``rounded``: the schedd rounds them up, they were at most that.
    ``suggested``: a request that would fit better, None if the present one fits or too few were
    measured. ``exceeding``: of all ``completed`` jobs those that used more than is suggested, or
    else requested. ``exceeded``: jobs that were held since they exceeded the request.
    ``slots``: of the pool, if its collector was asked; ``gain``: the share of these that have as
    much as is suggested and less than is requested.
    """

    submit: Nullable[str | None]
    training: bool
    command: RequestCommand
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
    def fitting(self) -> float | None:
        """The suggested request, or the present one if it fits; None where that is not known."""
        if self.suggested is None and self.measured < MIN_EPOCHS:
            return None
        return self.requested if self.suggested is None else self.suggested


class _Shape(NamedTuple):
    """Jobs of one submit file with equal requests: amounts by command."""

    submit: str | None
    training: bool
    requests: tuple[float | None, ...]


class _Sample(Struct):
    """The jobs of a shape: measurements, and amounts that were not enough by command."""

    usual: list[ResourceUsage] = []
    completed: list[ResourceUsage] = []
    epochs: set[object] = set()
    exceeded: dict[RequestCommand, list[float]] = {}
    newest: int = 0


def advise_requests(stats_input: StatsInput) -> tuple[RequestAdvice, ...]:
    """A row for each request of each submit file, that of the newest jobs first."""
    ledger = stats_input.ledger
    nodes = {each.key: each.node for each in stats_input.load_description().nodes.all}
    hidden = {epoch.key for epoch in ledger.epochs if epoch.hidden}
    samples: dict[_Shape, _Sample] = {}

    def sample_of(entry: Job | Execution, usage: ResourceUsage) -> _Sample:
        node = nodes.get(entry.key) if entry.key else None
        requests = (
            *(usage.memory_mb_requested, usage.disk_kb_requested, usage.cpus_requested),
            *(usage.gpus_requested, node.gpus_minimum_memory if node else None),
        )
        shape = _Shape(node.submit if node else None, entry.training, requests)
        return samples.setdefault(shape, _Sample())

    for job in ledger.jobs:
        if job.dagman or job.at_access_point:
            continue
        for entry in job.executions[-1:]:
            if entry.usage is not None and job.state is State.COMPLETED:
                sample = sample_of(entry, entry.usage)
                sample.completed.append(entry.usage)
                sample.newest = max(sample.newest, job.cluster)
                if entry.key not in hidden:
                    sample.usual.append(entry.usage)
                    sample.epochs.add(entry.key or job.job)
        for command, usage, enough in _exceeded(job):
            sample = sample_of(job, usage)
            sample.newest = max(sample.newest, job.cluster)
            sample.exceeded.setdefault(command, []).append(enough)
    newest_first = sorted(samples.items(), key=lambda item: (not item[0].training, -item[1].newest))
    rows = (
        _advice(shape, command, requested, sample)
        for shape, sample in newest_first
        for command, requested in zip(RequestCommand, shape.requests, strict=True)
    )
    return tuple(row for row in rows if row.requested is not None or row.measured)


def _exceeded(job: Job) -> Iterable[tuple[RequestCommand, ResourceUsage, float]]:
    """The requests that a job was held for, each once, with what would have been enough."""
    found: dict[RequestCommand, tuple[ResourceUsage, float]] = {}
    for hold in job.holds:
        name = exceeded_request(hold.code, hold.subcode, hold.reason)
        before = [entry for entry in job.executions if entry.start <= hold.start]
        usage = (before[-1].usage if before else None) or job.usage
        if name is None or usage is None:
            continue
        command = RequestCommand(name)
        requested = getattr(usage, f"{_USED[command]}_requested")
        if requested is not None:
            reached = [mb * 1024 / command.kilobytes for mb in reached_mb(hold.reason)]
            found[command] = usage, max([requested, *reached]) * RAISE_FACTOR
    return [(command, *each) for command, each in found.items()]


def _advice(
    shape: _Shape, command: RequestCommand, requested: float | None, sample: _Sample
) -> RequestAdvice:
    name = _USED[command]
    used = [value for usage in sample.usual if (value := getattr(usage, name)) is not None]
    completed = [value for each in sample.completed if (value := getattr(each, name)) is not None]
    used_95 = quantiles(used, n=20, method="inclusive")[-1] if len(used) > 1 else None
    too_small = sample.exceeded.get(command, [])
    suggested = None
    if too_small:
        suggested = handy(command, max(too_small))
    elif requested and used_95 is not None and len(sample.epochs) >= MIN_EPOCHS <= len(used):
        # No GPU is in use more than all the time: the average needs no margin. Less than a GB of
        # memory or disk gains nothing.
        margin = 1.0 if command is RequestCommand.GPUS else MARGIN
        enough = max(handy(command, used_95 * margin), GB // (command.kilobytes or GB))
        suggested = enough if enough <= WORTH * requested else None
    limit = requested if suggested is None else suggested
    return RequestAdvice(
        submit=shape.submit,
        training=shape.training,
        command=command,
        unit=command.unit,
        requested=requested,
        used_95=used_95,
        used_most=max(used, default=None),
        rounded=_are_rounded(command, used),
        measured=len(used),
        suggested=suggested,
        exceeding=0 if limit is None else sum(value > limit for value in completed),
        completed=len(completed),
        exceeded=len(too_small),
    )


def handy(command: RequestCommand, amount: float) -> int:
    """The amount rounded up to whole GB, below one to 128 MB; CPUs and GPUs to at least 1."""
    step = 1
    if command.kilobytes:
        gb = GB // command.kilobytes
        step = gb if amount > gb else gb // 8
    return max(1, ceil(round(amount / step, 6))) * step


def _are_rounded(command: RequestCommand, values: Iterable[float]) -> bool:
    """Whether the schedd has rounded all values up to a quarter of their magnitude.

    Manual, SCHEDD_ROUND_ATTR_<xxxx>: by default ResidentSetSize and DiskUsage are.
    """
    if command not in (RequestCommand.MEMORY, RequestCommand.DISK):
        return False
    large = [kb for value in values if (kb := value * command.kilobytes) >= LEAST_ROUNDED]
    return bool(large) and all(
        kb % (10 ** floor(log10(kb)) / 4) < command.kilobytes for kb in large
    )


def with_gain(
    advice: Iterable[RequestAdvice], slots: Mapping[RequestCommand, Iterable[tuple[float, int]]]
) -> tuple[RequestAdvice, ...]:
    """The advice with what it gains of a pool's slots: pairs of an amount and how many have it."""
    rows = []
    for row in advice:
        have = list(slots.get(row.command, ()))
        total = sum(number for _, number in have)
        if row.suggested is not None and row.requested is not None and total:
            more = sum(n for amount, n in have if row.suggested <= amount < row.requested)
            row = replace(row, slots=total, gain=more / total)
        rows.append(row)
    return tuple(rows)


# --- texts, and the fields of a new ensemble ---

REQUEST_FIELDS: Final[Mapping[str, RequestCommand]] = {
    "memory_mb": RequestCommand.MEMORY,
    "gpus": RequestCommand.GPUS,
    "gpu_memory_mb": RequestCommand.GPU_MEMORY,
    "values.cpus": RequestCommand.CPUS,
    "values.disk": RequestCommand.DISK,
}
"""Fields of a new ensemble, and what its jobs request by them; ``values``: of a template."""


def amount(command: RequestCommand, value: float | None) -> str:
    """``35GB``, as a submit file has it; of CPUs and GPUs a number."""
    if value is None:
        return UNKNOWN
    return request_amount(value * command.kilobytes) if command.unit else f"{value:g}"


def used_text(row: RequestAdvice, value: float | None) -> str:
    """``31.0GB``, ``≤46.6GB`` where the schedd rounds, ``0.49`` CPUs."""
    if value is None:
        return UNKNOWN
    command = row.command
    text = request_amount(value * command.kilobytes, 1) if command.unit else f"{value:.2f}"
    return f"≤{text}" if row.rounded else text


def over_text(row: RequestAdvice) -> str:
    """``0 of 42``: completed jobs that used more than would fit."""
    return f"{number(row.exceeding)} of {number(row.completed)}" if row.completed else UNKNOWN


def advice_text(row: RequestAdvice, item: str = "epoch") -> str:
    """``33 epochs used at most 31.0GB: 35GB would fit, 0 of 42 completed jobs used more``."""
    noun = row.command.value.removeprefix("request_")
    per = "" if row.command.unit else f" {noun[:-1].upper()}s on average"
    facts = []
    if row.exceeded:
        facts.append(f"{count(row.exceeded, 'job')} exceeded {amount(row.command, row.requested)}")
    if row.measured:
        most = used_text(row, row.used_most).removeprefix("≤")
        most += " (rounded up)" if row.rounded else ""
        facts.append(f"{count(row.measured, item)} used at most {most}{per}")
    over = f", {over_text(row)} completed jobs used more" if row.completed else ""
    fits = "it fits" if row.suggested is None else f"{amount(row.command, row.suggested)} would fit"
    return f"{'; '.join(facts)}: {fits}{over}"


def advised_fields(rows: Sequence[RequestAdvice]) -> dict[str, RequestAdvice]:
    """What a new ensemble should request by past jobs, by the field of its request.

    By the newest jobs of which enough were measured; evaluations do not count beside trainings.
    """
    found: dict[RequestCommand, RequestAdvice] = {}
    for row in rows:
        if row.training is rows[0].training and row.fitting is not None:
            found.setdefault(row.command, row)
    return {name: found[each] for name, each in REQUEST_FIELDS.items() if each in found}


def field_text(row: RequestAdvice) -> str:
    """What fits, as the text of its field."""
    value = row.fitting or 0
    return amount(row.command, value) if row.command is RequestCommand.DISK else f"{value:.0f}"
