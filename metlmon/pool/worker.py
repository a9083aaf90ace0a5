"""The worker process that runs HTCondor's bindings: JSON lines in, JSON lines out.

Only this module imports ``htcondor2``. Its C++ code prints to standard error, can terminate its
process (``EXCEPT``) and can block for long; none of that may reach a screen. The original
standard output carries responses only; anything else that is printed goes to standard error, a
file of the parent.

A request is ``{"op": name, …}``, the response ``{"value": …}`` or ``{"error": kind, "text": …}``
with a kind of :class:`ErrorKind`. Constraints are built from integers only, and jobs are named by
``cluster.proc`` from integers. Manual: "Python Bindings > htcondor2 API Reference".
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import IO, Any, Final

from metlmon.redact import redact_secrets

LONGEST_TEXT: Final = 4096
"""Characters used of a text attribute; jobs can set texts of megabytes."""

IDS_AT_ONCE: Final = 200
"""Ids per constraint: the schedd evaluates all of it for every job in its queue."""

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
}
JOB_FLAGS: Final = {
    "in": "TransferringInput",
    "out": "TransferringOutput",
    "wait": "TransferQueued",
}
REQUIREMENTS: Final = "Requirements"
BY_SITE: Final = re.compile(r"\bMetlSite\b", re.IGNORECASE)
"""Finds MetlSite, case-insensitive like attribute names.

A quoted site name with the same spelling matches too: retargeting is then offered needlessly.
"""

PROJECTION: Final = [
    *JOB_TEXTS.values(),
    *JOB_NUMBERS.values(),
    *JOB_FLAGS.values(),
    REQUIREMENTS,
]
"""The attributes that queries request."""

AGAIN_SECONDS: Final = 5.0
"""Only faster failures are retried, not those that took HTCondor's 20 s."""

SITE: Final = re.compile(r"[^\s\"'$\\](?:[^\"'$\\]{0,198}[^\s\"'$\\])?")
"""Valid site names (which must be printable as well).

They go into a submit file and a ClassAd, and must not end the line or the quotes there, or be a
macro. The gate accepts the same names.
"""

SCHEDULER_UNIVERSE: Final = 7
"""The universe of DAGMan's own jobs."""

ACTIONS: Final = {"hold": "Hold", "release": "Release", "remove": "Remove", "vacate": "Vacate"}
"""Our action names, and those of ``htcondor2.JobAction``."""

REASON: Final = "via metlmon"
"""Written to the job's log and ad; never contains text from a log."""

TOTALS: Final = {
    "TotalSuccess": "done",
    "TotalNotFound": "not-found",
    "TotalBadStatus": "bad-state",
    "TotalAlreadyDone": "already",
    "TotalPermissionDenied": "denied",
    "TotalError": "failed",
}


class ErrorKind(StrEnum):
    """Kinds of failure."""

    NO_BINDINGS = "no-bindings"
    NO_SCHEDD = "no-schedd"
    NO_ANSWER = "no-answer"
    NO_COLLECTOR = "no-collector"
    REFUSED = "refused"
    ROOT = "root"
    REQUEST = "request"
    OTHER = "other"


class WorkerFailure(Exception):
    """A failed operation, with its kind and HTCondor's message."""

    def __init__(self, kind: ErrorKind, text: str) -> None:
        super().__init__(redact_secrets(text[:LONGEST_TEXT]))
        self.kind = kind


# --- values -------------------------------------------------------------------------------


def number(value: object) -> int:
    """A job number from a request. Raises WorkerFailure for anything else."""
    if type(value) is not int or not 0 <= value < 2**31:
        raise WorkerFailure(ErrorKind.REQUEST, f"{value!r} is no number of a job")
    return value


def numbers(value: object) -> list[int]:
    """Job numbers from a request. Raises WorkerFailure for anything else."""
    if not isinstance(value, list):
        raise WorkerFailure(ErrorKind.REQUEST, "a list of numbers is wanted")
    return [number(item) for item in value]


def job_id(request: dict[str, Any]) -> str:
    """``cluster.proc`` of the request's job."""
    return f"{number(request.get('cluster'))}.{number(request.get('proc'))}"


def job_answer(ad: Any) -> dict[str, Any] | None:
    """A job's ad as plain values, or None if it lacks an id or the status.

    A value that is not of the attribute's type (an expression, a list) counts as absent.
    """
    record: dict[str, Any] = {}
    for name, attribute in JOB_NUMBERS.items():
        value = ad.get(attribute)
        record[name] = int(value) if type(value) in (int, float) and abs(value) < 2**53 else None
    for name, attribute in JOB_TEXTS.items():
        value = ad.get(attribute)
        record[name] = value[:LONGEST_TEXT] if isinstance(value, str) else None
    for name in PROSE:
        if record[name] is not None:
            record[name] = redact_secrets(ad[JOB_TEXTS[name]][: 2 * LONGEST_TEXT])[:LONGEST_TEXT]
    if None in (record["cluster"], record["proc"], record["status"]):
        return None
    flags = {name: ad.get(attribute) is True for name, attribute in JOB_FLAGS.items()}
    direction = "input" if flags["in"] else "output" if flags["out"] else None
    record["transferring"] = "queued" if direction is None and flags["wait"] else direction
    record["by_site"] = record["site"] is not None and _refers_to_site(ad.get(REQUIREMENTS))
    return record


def _refers_to_site(requirements: object) -> bool:
    """Whether the requirements, an expression, refer to MetlSite."""
    return BY_SITE.search(str(requirements)) is not None


def any_of(attribute: str, values: Iterable[int]) -> Iterator[str]:
    """Constraints that together match every job with ``attribute`` in ``values``."""
    sorted_values = sorted(set(values))
    for start in range(0, len(sorted_values), IDS_AT_ONCE):
        batch = sorted_values[start : start + IDS_AT_ONCE]
        yield " || ".join(f"{attribute} == {number(value)}" for value in batch)


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
        """The schedd. Raises WorkerFailure if there is none."""
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

    def where(self, request: dict[str, Any]) -> dict[str, Any]:
        """The schedd, its version, and our identity (None: authentication refused)."""
        # The located address may be outdated; only a response proves that it is valid.
        self._query("false", ["ClusterId"])
        location = self._location
        try:
            user = self._api.ping(location, "WRITE").get("MyRemoteUserName")
        except self._api.HTCondorException:
            user = None
        version = str(location.get("CondorVersion") or "").removeprefix("$CondorVersion:").split()
        return {
            "schedd": str(location.get("Name") or location.get("Machine") or "?"),
            "version": version[0] if version else "?",
            "user": user if isinstance(user, str) else None,
            "dagman": shutil.which("condor_dagman") is not None,
            "submit_command": shutil.which("condor_submit_dag"),
        }

    def query(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The jobs of these DAGMans, and of these clusters."""
        constraints = [
            *any_of("DAGManJobId", numbers(request.get("dagmans"))),
            *any_of("ClusterId", numbers(request.get("clusters"))),
        ]
        jobs = {}
        for constraint in constraints:
            for job in self._jobs(constraint):
                jobs[job["cluster"], job["proc"]] = job
        return list(jobs.values())

    def job(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """One job, None if the queue does not have it."""
        cluster, proc = number(request.get("cluster")), number(request.get("proc"))
        jobs = self._jobs(f"ClusterId == {cluster} && ProcId == {proc}")
        return jobs[0] if jobs else None

    def dagmans(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Every DAGMan in the queue."""
        return self._jobs(f"JobUniverse == {SCHEDULER_UNIVERSE}")

    def _query(self, constraint: str, attributes: list[str]) -> Any:
        started = time.monotonic()
        try:
            with self._translating_errors():
                return self.schedd().query(constraint, attributes)
        except WorkerFailure:
            # A restarted schedd has another address, or lacks our session; this fails at once.
            if time.monotonic() - started > AGAIN_SECONDS:
                raise
            with self._translating_errors():
                return self.schedd().query(constraint, attributes)

    def _jobs(self, constraint: str) -> list[dict[str, Any]]:
        ads = self._query(constraint, PROJECTION)
        records = (job_answer(ad) for ad in ads)
        return [record for record in records if record is not None]

    def act(self, request: dict[str, Any]) -> str:
        """Perform one of :data:`ACTIONS` on one job; returns the schedd's result."""
        action = ACTIONS.get(str(request.get("action")))
        if action is None:
            raise WorkerFailure(ErrorKind.REQUEST, f"there is no action {request.get('action')!r}")
        schedd = self.schedd()
        with self._translating_errors(ErrorKind.REFUSED):
            totals = schedd.act(
                getattr(self._api.JobAction, action), [job_id(request)], (REASON, None)
            )
        if totals is not None:
            for total, result in TOTALS.items():
                if totals.get(total):
                    return result
        return "failed"

    def priority(self, request: dict[str, Any]) -> None:
        """Set a job's priority. The absence of an exception does not prove success."""
        value = request.get("value")
        if type(value) is not int or abs(value) >= 2**31:
            raise WorkerFailure(ErrorKind.REQUEST, f"{value!r} is no priority")
        schedd = self.schedd()
        with self._translating_errors(ErrorKind.REFUSED):
            schedd.edit([job_id(request)], "JobPrio", str(value))

    def place(self, request: dict[str, Any]) -> None:
        """Set a job's MetlSite. The absence of an exception does not prove success."""
        site = request.get("site")
        if not isinstance(site, str) or not SITE.fullmatch(site) or not site.isprintable():
            raise WorkerFailure(ErrorKind.REQUEST, f"{site!r} is no site")
        schedd = self.schedd()
        with self._translating_errors(ErrorKind.REFUSED):
            schedd.edit([job_id(request)], "MetlSite", f'"{site}"')

    def sites(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The slots that advertise a site: its name and the GPU."""
        attributes = ["GLIDEIN_ResourceName", "GPUs_DeviceName", "AvailableGPUs", "TotalGPUs"]
        with self._translating_errors(ErrorKind.NO_COLLECTOR):
            ads = self._api.Collector().query(
                self._api.AdType.Startd, "GLIDEIN_ResourceName isnt undefined", attributes
            )
        return [slot for slot in map(_slot, ads) if slot is not None]

    def submit_dag(self, request: dict[str, Any]) -> int:
        """Submit DAGMan for ``file`` from ``directory``; returns its cluster."""
        if os.geteuid() == 0:
            raise WorkerFailure(ErrorKind.ROOT, "root may not submit")
        directory, file, options = (request.get(key) for key in ("directory", "file", "options"))
        if not isinstance(directory, str) or not isinstance(file, str):
            raise WorkerFailure(ErrorKind.REQUEST, "a directory and a file are wanted")
        if not isinstance(options, dict):
            raise WorkerFailure(ErrorKind.REQUEST, "options are wanted")
        schedd = self.schedd()
        previous_directory = os.getcwd()
        try:
            os.chdir(directory)
            with self._translating_errors(ErrorKind.OTHER):
                description = self._api.Submit.from_dag(file, options)
            with self._translating_errors(ErrorKind.REFUSED):
                return int(schedd.submit(description).cluster())
        except (OSError, ValueError, TypeError) as error:
            raise WorkerFailure(ErrorKind.OTHER, str(error)) from None
        finally:
            os.chdir(previous_directory)


def _slot(ad: Any) -> dict[str, Any] | None:
    name = ad.get("GLIDEIN_ResourceName")
    if not isinstance(name, str):
        return None
    gpu = ad.get("GPUs_DeviceName")
    if not isinstance(gpu, str):
        # A partitionable slot describes each of its GPUs in a nested ad.
        gpu = next(
            (
                value["DeviceName"]
                for key, value in ad.items()
                if str(key).startswith("GPUs_")
                and hasattr(value, "get")
                and isinstance(value.get("DeviceName"), str)
            ),
            None,
        )
    return {"name": name[:LONGEST_TEXT], "gpu": gpu[:LONGEST_TEXT] if gpu else None}


# --- the process --------------------------------------------------------------------------

OPERATIONS: Final = (
    *("where", "query", "job", "dagmans", "act", "priority", "place", "sites", "submit_dag"),
)


@contextmanager
def terminating_at_eof(requests: IO[bytes]) -> Iterator[None]:
    """Let the end of standard input terminate this process, even if it is blocked.

    The bindings can block for long, and Python handles no event until they return. A write by the
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
    instance: Any = None
    for line in requests:
        try:
            request = json.loads(line)
            operation = request.get("op")
            if operation not in OPERATIONS:
                raise WorkerFailure(ErrorKind.REQUEST, f"there is no operation {operation!r}")
            with terminating_at_eof(requests):
                instance = instance or pool()
                response = {"value": getattr(instance, operation)(request)}
        except WorkerFailure as failure:
            response = {"error": str(failure.kind), "text": str(failure)[:LONGEST_TEXT]}
        except Exception as error:  # The worker must survive: report the exception.
            text = f"{type(error).__name__}: {error}"
            response = {"error": str(ErrorKind.OTHER), "text": text[:LONGEST_TEXT]}
        responses.write(json.dumps(response).encode() + b"\n")
        responses.flush()


def main() -> None:
    """Run as a child process of :class:`metlmon.pool.connection.PoolConnection`."""
    # The terminal's interrupt key is for the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    responses = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    serve(sys.stdin.buffer, responses)


if __name__ == "__main__":
    main()
