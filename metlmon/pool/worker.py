"""The worker process that runs HTCondor's bindings: JSON lines in, JSON lines out.

Only this module imports ``htcondor2``. Its C++ code prints to standard error, can terminate its
process (``EXCEPT``) and can block for long; none of that may reach a screen. The original
standard output carries responses only; any other output goes to standard error, a file of the
parent.

Requests and answers are those of :mod:`metlmon.pool.protocol`. Manual: "Python Bindings > htcondor2
API Reference".
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import inf
from typing import IO, Any, Final

import msgspec

from metlmon.pool import annex_ads, exclusion
from metlmon.pool.annex_ads import AnnexAd, AnnexQueue, FreeGpus
from metlmon.pool.protocol import (
    OPERATIONS,
    SCHEDULER_UNIVERSE,
    SITE,
    SLOT_AMOUNTS,
    Answer,
    ErrorKind,
    QueueJob,
    ResultCode,
    ScheddInfo,
    SiteInfo,
    WorkerRequest,
    encodable,
)
from metlmon.redact import redact_secrets
from metlmon.text.formatting import joined, site_list

LONGEST_TEXT: Final = 4096
"""Characters used of a text attribute; jobs can set texts of megabytes."""

IDS_PER_CONSTRAINT: Final = 200
"""Ids per constraint, all of which the schedd evaluates for every job in its queue."""

JOB_TEXTS: Final = {
    "owner": "Owner",
    "rejection": "LastRejMatchReason",
    "node": "DAGNodeName",
    "directory": "Iwd",
    "log": "UserLog",
    "nodes_log": "DAGManNodesLog",
    "hold_reason": "HoldReason",
    "arguments": "Arguments",
    "site": "MetlSite",
    "annex": "TargetAnnexName",
    "slot": "RemoteHost",
}
PROSE: Final = ("rejection", "hold_reason")
"""Attributes with free text, which may contain secrets."""

JOB_NUMBERS: Final = {
    "cluster": "ClusterId",
    "proc": "ProcId",
    "status": "JobStatus",
    "priority": "JobPrio",
    "matches": "NumJobMatches",
    "submitted_at": "QDate",
    "rejected_at": "LastRejMatchTime",
    "dagman": "DAGManJobId",
    "universe": "JobUniverse",
    "hold_code": "HoldReasonCode",
    "request_memory": "RequestMemory",
    "request_disk": "RequestDisk",
}
LAST_MATCH: Final = "LastMatchTime"
REQUIREMENTS: Final = "Requirements"
PERIODIC_REMOVE: Final = "PeriodicRemove"
BY_SITE: Final = re.compile(r"\bMetlSite\b", re.IGNORECASE)
"""Finds MetlSite, case-insensitive like attribute names. A quoted site name with the same spelling
matches too: retargeting is then offered needlessly."""

PROJECTION: Final = [
    *JOB_TEXTS.values(),
    *JOB_NUMBERS.values(),
    "TransferringInput",
    "TransferringOutput",
    "TransferQueued",
    LAST_MATCH,
    REQUIREMENTS,
    PERIODIC_REMOVE,
    exclusion.ATTRIBUTE,
]
"""The projection of queries for jobs."""

RETRY_SECONDS: Final = 5.0
"""Only faster failures are retried, not those that took HTCondor's 20 s."""

REASON: Final = "via metlmon"
"""Written to the job's log and ad; never contains text from a log."""

TOTALS: Final = {
    "TotalSuccess": ResultCode.DONE,
    "TotalNotFound": ResultCode.NOT_FOUND,
    "TotalBadStatus": ResultCode.BAD_STATE,
    "TotalAlreadyDone": ResultCode.ALREADY,
    "TotalPermissionDenied": ResultCode.DENIED,
}


class WorkerFailure(Exception):
    """A failed operation, with its kind and HTCondor's message."""

    def __init__(self, kind: ErrorKind, text: str) -> None:
        super().__init__(encodable(redact_secrets(text[:LONGEST_TEXT])))
        self.kind = kind


# --- values -------------------------------------------------------------------------------


def queue_job(ad: Any) -> QueueJob | None:
    """A job's ad as a record, or None if it lacks an id or the status.

    A value of another type than the attribute's (an expression, a list) counts as absent.
    """
    values: dict[str, Any] = {}
    for name, attribute in JOB_NUMBERS.items():
        value = ad.get(attribute)
        if type(value) in (int, float) and abs(value) < 2**53:
            values[name] = int(value)
    for name, attribute in JOB_TEXTS.items():
        value = ad.get(attribute)
        if isinstance(value, str):
            text = redact_secrets(value[: 2 * LONGEST_TEXT]) if name in PROSE else value
            values[name] = encodable(text[:LONGEST_TEXT])
    if not values.keys() >= {"cluster", "proc", "status"}:
        return None
    values["rejection"] = values.get("rejection", "").strip() or None
    matched_at = ad.get(LAST_MATCH)
    if type(matched_at) in (int, float) and matched_at > values.get("rejected_at", inf):
        # It has run since: an older rejection is not why it is idle now.
        values["rejection"] = values["rejected_at"] = None
    if ad.get("TransferringInput") is True:
        values["transferring"] = "input"
    elif ad.get("TransferringOutput") is True:
        values["transferring"] = "output"
    elif ad.get("TransferQueued") is True:
        values["transferring"] = "queued"
    requirements = str(ad.get(REQUIREMENTS))
    by_site = "site" in values and BY_SITE.search(requirements) is not None
    by_list = exclusion.refers_to_list(requirements)
    excluded = [*(_listed(ad) if by_list else ())]
    for names in exclusion.names_in_clauses(requirements).values():
        excluded += names
    return QueueJob(
        **values,
        by_site=by_site,
        by_site_list=by_site and exclusion.matches_site_list(requirements),
        excluded=tuple(map(encodable, excluded)),
        by_list=by_list,
        hosts_by_list=exclusion.refers_to_list(requirements, "host"),
        removal_policy=_policy(ad.get(PERIODIC_REMOVE)),
    )


def _policy(expression: object) -> str | None:
    """The text of a policy; None for a constant."""
    if expression is None or isinstance(expression, bool | int | float | str):
        return None
    text = str(expression)[:LONGEST_TEXT]
    return None if text.lower() in ("true", "false", "undefined") else encodable(text)


def _listed(ad: Any) -> tuple[str, ...]:
    """The sites and hosts in MetlExcluded."""
    names = ad.get(exclusion.ATTRIBUTE)
    return site_list(names) if isinstance(names, str) else ()


def any_of(attribute: str, values: Iterable[int]) -> Iterator[str]:
    """Constraints that together match every job with ``attribute`` in ``values``."""
    sorted_values = sorted(set(values))
    for start in range(0, len(sorted_values), IDS_PER_CONSTRAINT):
        batch = sorted_values[start : start + IDS_PER_CONSTRAINT]
        yield " || ".join(f"{attribute} == {value:d}" for value in batch)


# --- the pool -----------------------------------------------------------------------------


class Pool:
    """The configured pool; locates the schedd again after it has moved."""

    def __init__(self) -> None:
        try:
            import htcondor2
        except ImportError as error:
            raise WorkerFailure(ErrorKind.NO_BINDINGS, str(error)) from None
        self._api = htcondor2
        self._location: Any = None

    def schedd(self) -> Any:
        """The schedd. Raises WorkerFailure without one."""
        if self._location is None:
            try:
                self._location = self._api.Collector().locate(self._api.DaemonType.Schedd)
            except self._api.HTCondorException as error:
                raise WorkerFailure(ErrorKind.NO_SCHEDD, str(error)) from None
        return self._api.Schedd(self._location)

    @contextmanager
    def _translating_errors(self, kind: ErrorKind = ErrorKind.NO_ANSWER) -> Iterator[None]:
        """Convert the bindings' exceptions to WorkerFailure, and forget the schedd."""
        try:
            yield
        except self._api.HTCondorException as error:
            location, self._location = self._location, None
            if kind is ErrorKind.REFUSED and not self._responds(location):
                kind = ErrorKind.NO_ANSWER
            raise WorkerFailure(kind, str(error).strip()) from None

    def _responds(self, location: Any) -> bool:
        """Whether the schedd responds at all.

        A refused action and an absent schedd raise the same exception.
        """
        try:
            self._api.Schedd(location).query("false", ["ClusterId"])
        except self._api.HTCondorException:
            return False
        return True

    def where(self) -> ScheddInfo:
        """The schedd, its version, and our identity."""
        # The located address may be outdated; only a response proves that it is valid.
        self._query("false", ["ClusterId"])
        location = self._location
        try:
            user = self._api.ping(location, "WRITE").get("MyRemoteUserName")
        except self._api.HTCondorException:
            user = None
        version = str(location.get("CondorVersion") or "").removeprefix("$CondorVersion:").split()
        return ScheddInfo(
            schedd=str(location.get("Name") or location.get("Machine") or "?"),
            version=version[0] if version else "?",
            user=user if isinstance(user, str) else "",
            submit_command=shutil.which("condor_submit_dag"),
        )

    def query(self, dagmans: list[int], clusters: list[int]) -> list[QueueJob]:
        """The jobs of these DAGMans, and of these clusters."""
        constraints = [
            *any_of("DAGManJobId", dagmans),
            *any_of("ClusterId", clusters),
        ]
        jobs = {
            (job.cluster, job.proc): job
            for constraint in constraints
            for job in self._jobs(constraint)
        }
        return list(jobs.values())

    def job(self, cluster: int, proc: int) -> QueueJob | None:
        """One job, None if the queue does not have it."""
        jobs = self._jobs(f"ClusterId == {cluster:d} && ProcId == {proc:d}")
        return jobs[0] if jobs else None

    def dagmans(self) -> list[QueueJob]:
        """Every DAGMan in the queue."""
        return self._jobs(f"JobUniverse == {SCHEDULER_UNIVERSE}")

    def _query(self, constraint: str, attributes: list[str]) -> Any:
        started = time.monotonic()
        try:
            with self._translating_errors():
                return self.schedd().query(constraint, attributes)
        except WorkerFailure:
            # A restarted schedd has another address, or lacks our session; this fails at once.
            if time.monotonic() - started > RETRY_SECONDS:
                raise
            with self._translating_errors():
                return self.schedd().query(constraint, attributes)

    def _jobs(self, constraint: str) -> list[QueueJob]:
        jobs = map(queue_job, self._query(constraint, PROJECTION))
        return [job for job in jobs if job is not None]

    def act(self, action: str, cluster: int, proc: int) -> ResultCode:
        """Perform an action on one job; return the schedd's result."""
        kind = getattr(self._api.JobAction, action.capitalize())
        schedd = self.schedd()
        with self._translating_errors(ErrorKind.REFUSED):
            totals = schedd.act(kind, [f"{cluster:d}.{proc:d}"], (REASON, None))
        for total, result in TOTALS.items():
            if totals is not None and totals.get(total):
                return result
        return ResultCode.FAILED

    def edit(self, cluster: int, proc: int, field: str, value: int | str) -> None:
        """Set a job's priority, site or request. Returning does not prove success."""
        is_site = isinstance(value, str) and SITE.fullmatch(value) and value.isprintable()
        is_number = isinstance(value, int) and (value > 0 or field == "priority")
        if not (is_site if field == "site" else is_number):
            raise WorkerFailure(ErrorKind.REQUEST, f"{value!r} is not a valid {field}")
        text = f'"{value}"' if is_site else str(value)
        self._edit(cluster, proc, (JOB_TEXTS | JOB_NUMBERS)[field], text)

    def exclude(self, cluster: int, proc: int, name: str, excluded: bool, on: str) -> None:
        """Exclude or include a site or host for a job. Returning does not prove success."""
        if not exclusion.can_exclude(name, on):
            raise WorkerFailure(ErrorKind.REQUEST, f"{name!r} cannot be excluded")
        attributes = [REQUIREMENTS, exclusion.ATTRIBUTE]
        for ad in self._query(f"ClusterId == {cluster:d} && ProcId == {proc:d}", attributes):
            requirements = str(ad.get(REQUIREMENTS))
            by_list = exclusion.refers_to_list(requirements, on)
            now = _listed(ad) if by_list else exclusion.names_in_clauses(requirements).get(on, ())
            names = [each for each in now if each.lower() != name.lower()] + [name] * excluded
            if by_list:
                self._edit(cluster, proc, exclusion.ATTRIBUTE, f'"{joined(names)}"')
            else:
                changed = exclusion.with_clause(requirements, names, on)
                self._edit(cluster, proc, REQUIREMENTS, changed)

    def _edit(self, cluster: int, proc: int, attribute: str, value: str) -> None:
        schedd = self.schedd()
        with self._translating_errors(ErrorKind.REFUSED):
            schedd.edit([f"{cluster:d}.{proc:d}"], attribute, value)

    def _slots(self, constraint: str, attributes: list[str]) -> Any:
        with self._translating_errors(ErrorKind.NO_COLLECTOR):
            return self._api.Collector().query(self._api.AdType.Startd, constraint, attributes)

    def sites(self) -> list[SiteInfo]:
        """The sites that slots advertise, sorted by name."""
        attributes = ["GLIDEIN_ResourceName", "GPUs_DeviceName", "AvailableGPUs", "TotalGPUs"]
        gpus: dict[str, list[str]] = {}
        for ad in self._slots("GLIDEIN_ResourceName isnt undefined", attributes):
            if isinstance(name := ad.get("GLIDEIN_ResourceName"), str):
                gpu = annex_ads.gpu_model(ad) or ""
                gpus.setdefault(encodable(name[:LONGEST_TEXT]), []).append(
                    encodable(gpu[:LONGEST_TEXT])
                )
        return [
            SiteInfo(name, len(models), tuple(sorted({*models} - {""})))
            for name, models in sorted(gpus.items())
        ]

    def free_gpus(self) -> list[FreeGpus]:
        """The free GPUs of the pool's collector, by site and model."""
        return annex_ads.free_gpus(self._slots(*annex_ads.GPU_SLOTS), time.time())

    def slots(self) -> list[tuple[dict[str, float], int]]:
        """The amounts of requestable resources in slots, and the number of slots with these.

        Without dynamic slots, whose amounts are included in those of their partitionable slots.
        """
        ads = self._slots('SlotType =!= "Dynamic"', [*SLOT_AMOUNTS.values()])
        counts = Counter(
            tuple(
                (command, float(amount))
                for command, name in SLOT_AMOUNTS.items()
                if isinstance(amount := ad.get(name), int | float)
            )
            for ad in ads
        )
        return [(dict(each), number) for each, number in counts.items()]

    def annex_queue(self) -> AnnexQueue:
        """All requests for annexes in the queue, and the configuration for annexes."""
        requests = map(annex_ads.annex_request, self._query(*annex_ads.REQUESTS))
        param, version = self._api.param, str(self._location.get("CondorVersion") or "")
        return AnnexQueue(
            requests=tuple(request for request in requests if request is not None),
            collector=str(param.get("ANNEX_COLLECTOR") or ""),
            pool_collector=str(param.get("COLLECTOR_HOST") or ""),
            generation=annex_ads.generation_here(version, bool(param.get("ANNEX_USE_OLD_CREATE"))),
        )

    def annex_ads(self, collector: str, names: list[str]) -> list[AnnexAd]:
        """The slots of the annexes with these names, from this collector."""
        from classad2 import quote

        constraint = " || ".join(f"AnnexName == {quote(name)}" for name in names) or "false"
        try:
            ads = self._api.Collector(collector).query(
                self._api.AdType.Startd, constraint, annex_ads.SLOT_ATTRIBUTES
            )
        except self._api.HTCondorException:
            # Without a listener and without READ permission the exception is the same.
            error = annex_ads.connection_error(collector)
            if error is None:
                raise WorkerFailure(ErrorKind.ANNEX_COLLECTOR_REFUSED, collector) from None
            text = f"{collector}: {error}"
            raise WorkerFailure(ErrorKind.NO_ANNEX_COLLECTOR, text) from None
        slots = map(annex_ads.annex_slot, ads)
        return [slot for slot in slots if slot is not None]


# --- the process --------------------------------------------------------------------------


@contextmanager
def terminating_at_eof(requests: IO[bytes]) -> Iterator[None]:
    """Let the end of standard input terminate this process, even if it is blocked.

    The bindings can block for long, during which Python does not handle events. A write by the
    parent would terminate the process, too, but the parent sends the next request only after the
    response. Source: fcntl(2), O_ASYNC.
    """
    try:
        is_stdin = requests.fileno() == 0
        flags = fcntl.fcntl(0, fcntl.F_GETFL)
        if is_stdin:
            fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC)
    except OSError:
        is_stdin = False
    try:
        yield
    finally:
        if is_stdin:
            fcntl.fcntl(0, fcntl.F_SETFL, flags)


def serve(requests: IO[bytes], responses: IO[bytes], pool: Callable[[], Any] = Pool) -> None:
    """Respond to each line of ``requests`` until end of file."""
    decoder = msgspec.json.Decoder(WorkerRequest)
    instance: Any = None
    for line in requests:
        try:
            request = decoder.decode(line)
            if request.op not in OPERATIONS:
                raise msgspec.ValidationError("unknown operation")
            arguments = msgspec.json.decode(request.args, type=OPERATIONS[request.op])
            with terminating_at_eof(requests):
                instance = instance or pool()
                value = getattr(instance, request.op)(*arguments)
                answer = Answer(msgspec.Raw(msgspec.json.encode(value)))
        except msgspec.MsgspecError as error:
            answer = Answer(error=ErrorKind.REQUEST, text=f"no request: {error}")
        except WorkerFailure as failure:
            answer = Answer(error=failure.kind, text=str(failure))
        except Exception as error:  # The worker must survive: report the exception.
            text = encodable(f"{type(error).__name__}: {error}")
            answer = Answer(error=ErrorKind.OTHER, text=text[:LONGEST_TEXT])
        responses.write(msgspec.json.encode(answer) + b"\n")
        responses.flush()


def main() -> None:
    """Run as a child process of :class:`metlmon.pool.connection.PoolConnection`."""
    # Only the parent handles the terminal's interrupt key.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    responses = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    serve(sys.stdin.buffer, responses)


if __name__ == "__main__":
    main()
