"""Which job made the checkpoint of each epoch, and from which checkpoint.

A sidecar or an event of the training (:mod:`metlmon.jobfiles.provenance`) says so as a fact. Else
it is inferred: the execution that completed the epoch, or the longest one where the epoch has
hidden compute (``metlmon/README.md``, "GPU-hours").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta, tzinfo
from enum import StrEnum
from itertools import pairwise
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.jobfiles.records import CheckpointRecord
from metlmon.live.feed import StatsInput
from metlmon.model.job_events import JobId, NodeKey
from metlmon.model.states import State
from metlmon.snapshot.records import Epoch, Execution

CLOCK_TOLERANCE: Final = timedelta(minutes=5)
"""Clocks of execute nodes differ from the access point's; a sidecar may be written at the end."""


class Break(StrEnum):
    """What is wrong between the checkpoints of two epochs."""

    SKIPPED = "skipped"
    UNKNOWN = "unknown"
    FROM_SCRATCH = "from-scratch"
    OTHER_RUN = "other-run"
    UNUSED = "unused"
    MISSING = "missing"


class CheckpointOrigin(Struct, frozen=True, kw_only=True):
    """Where the checkpoint of one epoch comes from.

    ``node``: the node that counts for the epoch. ``recorded``: a sidecar or an event (``file``)
    says so; else it is inferred. ``job`` made it in its ``execution`` (from 1), at ``site``; None
    if unknown. ``completed_by`` completed the epoch in its ``completed_execution``. ``sha256``,
    ``parent_sha256``: SHA-256 of it and of the one that it was trained from (None: of none), which
    may not be recorded (``parent_known``); ``parent_epoch``: the epoch of that one, from 0.
    ``broken``: why it does not continue the checkpoint of the epoch before; None where it does.
    """

    json_omits: ClassVar = frozenset({"node", "recorded", "parent_known"})
    json_properties: ClassVar = ("source",)

    node: NodeKey
    recorded: bool
    job: JobId | None
    execution: int | None
    site: str | None
    completed_by: JobId | None = None
    completed_execution: int | None = None
    sha256: str | None = None
    parent_sha256: str | None = None
    parent_known: bool = False
    parent_epoch: int | None = None
    file: str | None = None
    broken: Break | None = None

    @property
    def source(self) -> str:
        """``recorded`` or ``inferred``."""
        return "recorded" if self.recorded else "inferred"

    @property
    def made_by_another(self) -> bool:
        """Whether it is recorded that another execution made it than completed the epoch."""
        if not self.recorded or self.job is None or self.completed_by is None:
            return False
        if self.job != self.completed_by:
            return True
        executions = self.execution, self.completed_execution
        return None not in executions and self.execution != self.completed_execution


def origin_of(row: Epoch, origins: Mapping[int, CheckpointOrigin]) -> CheckpointOrigin | None:
    """The origin of an epoch's checkpoint, by the origins of its run; None if unknown."""
    origin = origins.get(row.epoch) if row.epoch is not None else None
    return origin if origin is not None and origin.node == row.node_key else None


class ChainBreak(Struct, frozen=True, kw_only=True):
    """An epoch whose checkpoint was not trained from that of the epoch before.

    ``before``: the epoch that it should continue; ``parent_epoch``: the one that it continues, if
    known; ``parent_key``: the run key of that one. MISSING: nothing is recorded of the epoch
    before. UNUSED: ``job`` completed the epoch before, but ``used`` made the checkpoint that was
    continued.
    """

    kind: Break
    key: str
    epoch: int
    before: int
    parent_epoch: int | None = None
    parent_key: str | None = None
    job: JobId | None = None
    used: JobId | None = None


class Lineage(Struct, frozen=True):
    """The origins of all checkpoints by run key and epoch, and where chains are broken.

    ``epochs``: run key and epoch of each training job.
    """

    origins: Mapping[str, Mapping[int, CheckpointOrigin]] = {}
    breaks: tuple[ChainBreak, ...] = ()
    epochs: Mapping[JobId, tuple[str, int]] = {}

    def of_job(self, job: JobId) -> CheckpointOrigin | None:
        """The origin of the checkpoint of a job's epoch."""
        run, epoch = self.epochs.get(job, ("", 0))
        return self.origins.get(run, {}).get(epoch)


def lineage(stats_input: StatsInput) -> Lineage:
    """The lineage of the checkpoints of all runs."""
    epochs: defaultdict[str, dict[int, Epoch]] = defaultdict(dict)
    for epoch in stats_input.ledger.epochs:
        if epoch.counts and epoch.epoch is not None:
            epochs[epoch.key][epoch.epoch] = epoch
    executions: defaultdict[JobId, list[Execution]] = defaultdict(list)
    for execution in stats_input.ledger.trainings:
        executions[execution.job].append(execution)
    records = {
        run: training.checkpoints
        for run, training in stats_input.job_files.trainings.items()
        if training.checkpoints and run in epochs
    }
    run_of = {record.digest: run for run, each in records.items() for record in each}
    origins: dict[str, dict[int, CheckpointOrigin]] = {}
    breaks: list[ChainBreak] = []
    for run, by_number in epochs.items():
        chain = _Chain(by_number, executions, records.get(run, ()), stats_input.settings.zone)
        origins[run] = chain.origins()
        found = list(chain.breaks(run_of))
        for each in found:
            origin = origins[run][each.epoch]
            origins[run][each.epoch] = replace(origin, broken=each.kind)
        breaks += found
    jobs = {
        job: (run, number)
        for run, by_number in epochs.items()
        for number, epoch in by_number.items()
        for job in epoch.jobs
    }
    return Lineage(origins, tuple(breaks), jobs)


class _Chain:
    """The checkpoints of one run.

    ``records`` of an epoch that never ran are left out: METL numbers a checkpoint whose file name
    has no epoch by its place among the files.
    """

    def __init__(
        self,
        epochs: Mapping[int, Epoch],
        executions: Mapping[JobId, Sequence[Execution]],
        records: Sequence[CheckpointRecord],
        zone: tzinfo | None,
    ) -> None:
        self._epochs = dict(sorted(epochs.items()))
        self._executions = executions
        self._zone = zone
        self._by_digest = {record.digest: record for record in records}
        self._claims: defaultdict[int, list[CheckpointRecord]] = defaultdict(list)
        for record in records:
            epoch = self._epochs.get(record.epoch)
            if epoch is not None and epoch.state not in (State.WAITING, State.SKIPPED):
                self._claims[record.epoch].append(record)
        self._chosen = self._choose()

    def _choose(self) -> dict[int, CheckpointRecord]:
        """The checkpoint of each epoch that the later ones continue, else its newest one."""
        chosen: dict[int, CheckpointRecord] = {}
        used: set[str] = set()
        for number in sorted(self._claims, reverse=True):
            claims = self._claims[number]
            best = next((claim for claim in claims if claim.digest in used), None)
            best = best or max(claims, key=lambda claim: (str(claim.time or ""), claim.digest))
            chosen[number] = best
            used = {ancestor.digest for ancestor in self._ancestors(best)}
        return chosen

    def _ancestors(self, record: CheckpointRecord) -> Iterator[CheckpointRecord]:
        """The recorded checkpoints that one descends from, the nearest first."""
        seen = {record.digest}
        while record.parent is not None and record.parent not in seen:
            seen.add(record.parent)
            parent = self._by_digest.get(record.parent)
            if parent is None:
                return
            record = parent
            yield record

    def origins(self) -> dict[int, CheckpointOrigin]:
        """The origin of each checkpoint, recorded or inferred."""
        origins = {}
        for number, epoch in self._epochs.items():
            record = self._chosen.get(number)
            origin = self._inferred(epoch) if record is None else self._recorded(epoch, record)
            if origin is not None:
                origins[number] = origin
        return origins

    def _inferred(self, epoch: Epoch) -> CheckpointOrigin | None:
        if epoch.state is not State.COMPLETED:
            return None
        executions = self._executions_of(epoch)
        final = next((each for each in executions if each.final), None)
        made = max(executions, key=lambda each: each.trained, default=None)
        if final is None or made is None:
            return None
        made = made if epoch.hidden else final
        return CheckpointOrigin(
            node=epoch.node_key,
            recorded=False,
            job=made.job,
            execution=self._number(made),
            site=made.site,
            completed_by=final.job,
            completed_execution=self._number(final),
        )

    def _recorded(self, epoch: Epoch, record: CheckpointRecord) -> CheckpointOrigin:
        made = self._execution_of(epoch, record)
        job = record.job if made is None else made.job
        final = next((each for each in self._executions_of(epoch) if each.final), None)
        parent = self._by_digest.get(record.parent or "")
        return CheckpointOrigin(
            node=epoch.node_key,
            recorded=True,
            job=job,
            execution=None if made is None else self._number(made),
            site=record.site if made is None else made.site,
            completed_by=None if final is None else final.job,
            completed_execution=None if final is None else self._number(final),
            sha256=record.digest,
            parent_sha256=record.parent,
            parent_known=record.parent_known,
            parent_epoch=None if parent is None else parent.epoch,
            file=record.file,
        )

    def _executions_of(self, epoch: Epoch) -> list[Execution]:
        jobs = dict.fromkeys(epoch.jobs)
        entries = (each for job in jobs for each in self._executions.get(job, ()))
        return [each for each in entries if each.node_key == epoch.node_key]

    def _number(self, execution: Execution) -> int:
        entries = (e for e in self._executions[execution.job] if e.reuse == execution.reuse)
        return [each.start for each in entries].index(execution.start) + 1

    def _execution_of(self, epoch: Epoch, record: CheckpointRecord) -> Execution | None:
        """The execution that made a checkpoint; None if several may have."""
        if record.job is not None:
            candidates = list(self._executions.get(record.job, ()))
        elif record.host is not None:
            executions = self._executions_of(epoch)
            candidates = [each for each in executions if each.host and _is_at_host(each, record)]
        else:
            return None
        for test in (_is_at_host, _is_at_site, self._is_at_time):
            if len(candidates) > 1:
                candidates = [each for each in candidates if test(each, record)]
        return candidates[0] if len(candidates) == 1 else None

    def _is_at_time(self, execution: Execution, record: CheckpointRecord) -> bool:
        """Whether a checkpoint may have been written in an execution; True without a zone."""
        if record.time is None or self._zone is None:
            return True
        time = record.time.astimezone(self._zone).replace(tzinfo=None)
        end = execution.end
        return execution.start - CLOCK_TOLERANCE <= time and (
            end is None or time <= end + CLOCK_TOLERANCE
        )

    def breaks(self, run_of: Mapping[str, str]) -> Iterator[ChainBreak]:
        """Where the chain is broken; ``run_of``: runs of all recorded checkpoints."""
        for before, number in pairwise(self._epochs):
            record = self._chosen.get(number)
            if record is None or not record.parent_known:
                continue
            kind, parent = self._find_break(record, before, run_of)
            run = self._epochs[number].key
            if kind is None and parent is not None:
                yield from self._unused(run, number, parent)
            elif kind is not None:
                yield ChainBreak(
                    kind=kind,
                    key=run,
                    epoch=number,
                    before=before,
                    parent_epoch=None if parent is None else parent.epoch,
                    parent_key=run_of.get(record.parent or ""),
                )

    def _find_break(
        self, record: CheckpointRecord, before: int, run_of: Mapping[str, str]
    ) -> tuple[Break | None, CheckpointRecord | None]:
        """What is wrong with the parent of a checkpoint, and its ancestor of an earlier epoch."""
        oldest = record
        for ancestor in self._ancestors(record):
            if ancestor.epoch == before:
                return None, ancestor
            if ancestor.epoch < before:
                is_recorded = before in self._claims
                return Break.SKIPPED if is_recorded else Break.MISSING, ancestor
            oldest = ancestor
        if before not in self._claims:
            return Break.MISSING, None
        if oldest.parent is None:
            return (Break.FROM_SCRATCH if oldest.parent_known else None), None
        is_elsewhere = oldest.parent in run_of and oldest.parent not in self._by_digest
        return (Break.OTHER_RUN if is_elsewhere else Break.UNKNOWN), None

    def _unused(self, run: str, number: int, parent: CheckpointRecord) -> Iterator[ChainBreak]:
        """Of two jobs with a checkpoint of an epoch, the other one was continued."""
        epoch = self._epochs[parent.epoch]
        used = self._recorded(epoch, parent)
        others = {self._recorded(epoch, claim).job for claim in self._claims[parent.epoch]}
        if used.job not in (None, used.completed_by) and used.completed_by in others:
            yield ChainBreak(
                kind=Break.UNUSED,
                key=run,
                epoch=number,
                before=parent.epoch,
                parent_epoch=parent.epoch,
                job=used.completed_by,
                used=used.job,
            )


def _is_at_host(execution: Execution, record: CheckpointRecord) -> bool:
    """Whether two names of a host, of which one may lack the domain, are the same."""
    if record.host is None or execution.host is None:
        return True
    names = [record.host.lower(), execution.host.lower()]
    if not all("." in name for name in names):
        names = [name.partition(".")[0] for name in names]
    return names[0] == names[1]


def _is_at_site(execution: Execution, record: CheckpointRecord) -> bool:
    return record.site is None or execution.site is None or record.site == execution.site
