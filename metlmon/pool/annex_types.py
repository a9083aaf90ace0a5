"""What schedd and collectors report of HPC annexes.

An annex's ``htcondor annex create`` submits a local-universe job that represents the request;
the execute nodes advertise the annex's name to a collector. Attributes in brackets. Manual: "HPC
annexes"; source: ``htcondor_cli/annex_create.py`` of HTCondor 23 and 25. Nothing here refers to
tokens, passwords, or the setup archive.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf

from msgspec import Struct


class AnnexGeneration(StrEnum):
    """Which ``htcondor annex create`` made a request.

    OLD (HTCondor 23, or ANNEX_USE_OLD_CREATE) submits to the site's batch system itself and knows
    nodes and lifetime; NEW only writes an archive for the user to copy there.
    """

    OLD = "old"
    NEW = "new"


class AnnexRequest(Struct, frozen=True, kw_only=True):
    """An annex's job in the schedd: one request; several may have one ``name``.

    ``request_id`` [hpc_annex_request_id]: that its nodes advertise, too. ``status`` [JobStatus]:
    as in the queue. ``submitted_at``, ``started_at`` [QDate, hpc_annex_start_time]: seconds since
    the epoch; the latter is when the job noticed the first node, which it looks for every five
    minutes. ``collector``: an address. The rest is of the old generation, else None or empty:
    ``lifetime`` in seconds from the start of the site's batch job; ``nodes``, ``cpus``,
    ``memory`` (MB), ``queue``, ``allocation`` as requested; ``pid``, ``batch_job`` [hpc_annex_PID,
    hpc_annex_JOB_ID]: of the site's script and batch job.
    """

    cluster: int
    proc: int
    name: str
    request_id: str
    status: int
    generation: AnnexGeneration
    owner: str = ""
    collector: str = ""
    submitted_at: float | None = None
    started_at: float | None = None
    lifetime: float | None = None
    nodes: int | None = None
    cpus: int | None = None
    memory: int | None = None
    queue: str = ""
    allocation: str = ""
    pid: str = ""
    batch_job: str = ""


class AnnexSlotType(StrEnum):
    """Types of slots [SlotType]."""

    PARTITIONABLE = "Partitionable"
    DYNAMIC = "Dynamic"
    STATIC = "Static"


class AnnexAd(Struct, frozen=True, kw_only=True):
    """The ad of a slot that belongs to an annex.

    ``annex`` [AnnexName]: names of annexes are compared without case. ``request_id``: empty if it
    advertises none. ``slot``, ``node`` [Name, before and after "@"]: the latter identifies its
    startd; ``host`` [Machine].
    ``started_at``, ``stops_at`` [DaemonStartTime, DaemonStopTime] and ``heard_at``
    [LastHeardFrom]: seconds since the epoch. ``cpus``, ``gpus``: of a partitionable slot all of
    the node [TotalSlotGPUs], of others those of the slot itself; None if it advertises none. An
    annex has as many GPUs as its partitionable and static slots together; busy are those of the
    dynamic and static slots with ``busy``. ``gpu``: their model. ``site``
    [GLIDEIN_ResourceName]; ``identity`` [AuthenticatedIdentity]: the collector's word on who
    sent it.
    """

    annex: str
    slot: str
    node: str
    slot_type: AnnexSlotType
    host: str = ""
    request_id: str = ""
    started_at: float | None = None
    stops_at: float | None = None
    heard_at: float | None = None
    state: str = ""
    activity: str = ""
    cpus: int | None = None
    gpus: int | None = None
    gpu: str = ""
    site: str = ""
    identity: str = ""

    @property
    def busy(self) -> bool:
        """Whether a job runs in the slot."""
        return self.state == "Claimed" and self.activity == "Busy"


class AnnexJob(Struct, frozen=True):
    """A queued job of ours that may run only in one annex [TargetAnnexName].

    ``status`` [JobStatus]: 1 idle, 2 running, as in the queue. ``slot`` [RemoteHost]: where it
    runs, empty if it does not.
    """

    cluster: int
    proc: int
    annex: str
    status: int
    slot: str = ""


class AnnexCollector(Struct, frozen=True, kw_only=True):
    """A collector that was asked for annexes.

    ``answered_at``: when it last answered, seconds since the epoch, None if never. ``error``: why
    the last query failed, one sentence, None if it did not.
    """

    address: str
    answered_at: float | None = None
    error: str | None = None


class AnnexQueue(Struct, frozen=True, kw_only=True):
    """What the schedd and the local configuration say about annexes.

    ``requests``: of all users. ``collector`` [ANNEX_COLLECTOR]: empty if it is not configured;
    ``pool_collector``: the pool's own. ``generation``: what ``htcondor annex create`` of this
    access point makes.
    """

    requests: tuple[AnnexRequest, ...] = ()
    collector: str = ""
    pool_collector: str = ""
    generation: AnnexGeneration = AnnexGeneration.NEW


class FreeGpus(Struct, frozen=True):
    """The GPUs of one model that are free at a site, of slots that belong to no annex.

    ``site`` [GLIDEIN_ResourceName], ``gpu`` [GPUs_DeviceName]. ``count``: 0 where all are in use.
    ``seen_at``: when the collector answered, seconds since the epoch.
    """

    site: str
    gpu: str
    count: int
    seen_at: float


class AnnexAnswer(Struct, frozen=True, kw_only=True):
    """What schedd and collectors last answered about the annexes of an ensemble.

    ``requests`` are our own, those of the owners of its jobs, and those that its ``jobs`` target;
    ``ads`` have the names of either.
    ``queried_at``: when the schedd answered (seconds since the epoch), None if it never did;
    ``error``: why it did not answer the last time, one sentence. ``generation``: what ``htcondor
    annex create`` of this access point makes, None if unknown; ``configured_collector``
    [ANNEX_COLLECTOR]: where it lets annexes report. ``is_pending``: nothing was asked yet.
    ``free_gpus``: of the pool's other slots, if asked for; empty if its collector did not answer.
    """

    requests: tuple[AnnexRequest, ...] = ()
    ads: tuple[AnnexAd, ...] = ()
    jobs: tuple[AnnexJob, ...] = ()
    collectors: tuple[AnnexCollector, ...] = ()
    queried_at: float | None = None
    error: str | None = None
    generation: AnnexGeneration | None = None
    configured_collector: str = ""
    is_pending: bool = False
    free_gpus: tuple[FreeGpus, ...] = ()

    @property
    def errors(self) -> tuple[str, ...]:
        """Why something is missing: one sentence each, of the schedd first."""
        found = [self.error, *(collector.error for collector in self.collectors)]
        return tuple(error for error in found if error)

    @property
    def ends(self) -> dict[str, frozenset[float]]:
        """The known ends of annexes, seconds since the epoch, by name in lower case."""
        found: dict[str, set[float]] = {}
        starts: dict[str, float] = {}
        for ad in self.ads:
            if ad.stops_at is not None:
                found.setdefault(ad.annex.casefold(), set()).add(ad.stops_at)
            if ad.started_at is not None and ad.request_id:
                starts[ad.request_id] = min(ad.started_at, starts.get(ad.request_id, inf))
        for request in self.requests:
            start = starts.get(request.request_id, request.started_at)
            if request.lifetime is not None and start is not None:
                found.setdefault(request.name.casefold(), set()).add(start + request.lifetime)
        return {name: frozenset(ends) for name, ends in found.items()}
