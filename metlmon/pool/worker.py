"""The process in which HTCondor's bindings run: JSON lines in, JSON lines out.

Nothing else imports ``htcondor2``. Its C++ prints to standard error, can end the process that
it is loaded in (``EXCEPT``) and can block for long; none of that may reach a screen. What was
standard output is kept for answers alone; what the C++ prints goes where standard error goes,
which is the parent's file.

A request is ``{"op": name, …}``; its answer ``{"value": …}`` or ``{"error": kind, "text": …}``,
the kinds being :class:`ErrorKind`. Constraints are made of integers only, jobs are named by
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
"""Characters of an ad's text that are of use; what a job says of itself can be megabytes."""

IDS_AT_ONCE: Final = 200
"""Ids in one constraint: the schedd weighs the whole of it for every job in its queue."""

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
"""Those that may quote anything."""

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
"""Attributes' names know no case. Where a site's name is the same word, in quotes, that is one job
too many for which retargeting is offered."""

PROJECTION: Final = [
    *JOB_TEXTS.values(),
    *JOB_NUMBERS.values(),
    *JOB_FLAGS.values(),
    REQUIREMENTS,
]
"""The attributes that are asked for, by the names under which they are answered."""

AGAIN_SECONDS: Final = 5.0
"""A query that failed sooner is tried again; one that took HTCondor's 20 s is not."""

SITE: Final = re.compile(r"[^\s\"'$\\](?:[^\"'$\\]{0,198}[^\s\"'$\\])?")
"""What may be a site's name (and is printable): it goes into a submit file and into a ClassAd, and
must not end the line, the quotes or be a macro there. The gate lets the same through."""

SCHEDULER_UNIVERSE: Final = 7
"""DAGMan's own jobs."""

ACTIONS: Final = {"hold": "Hold", "release": "Release", "remove": "Remove", "vacate": "Vacate"}
"""Ours, and the names in ``htcondor2.JobAction``."""

REASON: Final = "via metlmon"
"""Written to the job's log and ad; never anything that a log said."""

TOTALS: Final = {
    "TotalSuccess": "done",
    "TotalNotFound": "not-found",
    "TotalBadStatus": "bad-state",
    "TotalAlreadyDone": "already",
    "TotalPermissionDenied": "denied",
    "TotalError": "failed",
}


class ErrorKind(StrEnum):
    """What went wrong."""

    NO_BINDINGS = "no-bindings"
    NO_SCHEDD = "no-schedd"
    NO_ANSWER = "no-answer"
    NO_COLLECTOR = "no-collector"
    REFUSED = "refused"
    ROOT = "root"
    REQUEST = "request"
    OTHER = "other"


class WorkerFailure(Exception):
    """An operation that did not work: its kind and what HTCondor said."""

    def __init__(self, kind: ErrorKind, text: str) -> None:
        super().__init__(redact_secrets(text[:LONGEST_TEXT]))
        self.kind = kind


# --- values -------------------------------------------------------------------------------


def number(value: object) -> int:
    """A whole number from a request. Raises Failure for anything else."""
    if type(value) is not int or not 0 <= value < 2**31:
        raise WorkerFailure(ErrorKind.REQUEST, f"{value!r} is no number of a job")
    return value


def numbers(value: object) -> list[int]:
    """Whole numbers from a request. Raises Failure for anything else."""
    if not isinstance(value, list):
        raise WorkerFailure(ErrorKind.REQUEST, "a list of numbers is wanted")
    return [number(each) for each in value]


def job_id(request: dict[str, Any]) -> str:
    """``cluster.proc`` of the request's job."""
    return f"{number(request.get('cluster'))}.{number(request.get('proc'))}"


def job_answer(ad: Any) -> dict[str, Any] | None:
    """A job's ad as plain values; None for one without id or status. Whatever is not of the
    type that the attribute has (an expression, a list) counts as absent."""
    answer: dict[str, Any] = {}
    for name, attribute in JOB_NUMBERS.items():
        value = ad.get(attribute)
        answer[name] = int(value) if type(value) in (int, float) and abs(value) < 2**53 else None
    for name, attribute in JOB_TEXTS.items():
        value = ad.get(attribute)
        answer[name] = value[:LONGEST_TEXT] if isinstance(value, str) else None
    for name in PROSE:
        if answer[name] is not None:
            answer[name] = redact_secrets(ad[JOB_TEXTS[name]][: 2 * LONGEST_TEXT])[:LONGEST_TEXT]
    if None in (answer["cluster"], answer["proc"], answer["status"]):
        return None
    flags = {name: ad.get(attribute) is True for name, attribute in JOB_FLAGS.items()}
    moving = "input" if flags["in"] else "output" if flags["out"] else None
    answer["transferring"] = "queued" if moving is None and flags["wait"] else moving
    answer["by_site"] = answer["site"] is not None and _looks_at_site(ad.get(REQUIREMENTS))
    return answer


def _looks_at_site(requirements: object) -> bool:
    """Do a job's requirements, an expression, name the attribute that says where it is to go?"""
    return BY_SITE.search(str(requirements)) is not None


def any_of(attribute: str, values: Iterable[int]) -> Iterator[str]:
    """Constraints that together match every job whose ``attribute`` is one of ``values``."""
    listed = sorted(set(values))
    for start in range(0, len(listed), IDS_AT_ONCE):
        some = listed[start : start + IDS_AT_ONCE]
        yield " || ".join(f"{attribute} == {number(value)}" for value in some)


# --- the pool -----------------------------------------------------------------------------


class Pool:
    """The pool that the configuration names; finds the schedd again when it has moved."""

    def __init__(self) -> None:
        try:
            import htcondor2
        except ImportError as error:
            raise WorkerFailure(ErrorKind.NO_BINDINGS, str(error)) from None
        self._api = htcondor2
        self._location: Any = None

    def schedd(self) -> Any:
        """The schedd. Raises Failure when there is none."""
        if self._location is None:
            try:
                self._location = self._api.Collector().locate(self._api.DaemonType.Schedd)
            except self._api.HTCondorException as error:
                raise WorkerFailure(ErrorKind.NO_SCHEDD, str(error)) from None
        return self._api.Schedd(self._location)

    @contextmanager
    def speaking(self, kind: ErrorKind = ErrorKind.NO_ANSWER) -> Iterator[None]:
        """What the bindings raise becomes a Failure, and the schedd is looked for again."""
        try:
            yield
        except self._api.HTCondorException as error:
            location, self._location = self._location, None
            if kind is ErrorKind.REFUSED and not self._answers(location):
                kind = ErrorKind.NO_ANSWER
            raise WorkerFailure(kind, str(error).strip()) from None

    def _answers(self, location: Any) -> bool:
        """A refused action and a schedd that is gone raise the same: is it there?"""
        try:
            self._api.Schedd(location).query("false", ["ClusterId"])
        except self._api.HTCondorException:
            return False
        return True

    def where(self, request: dict[str, Any]) -> dict[str, Any]:
        """Schedd, its version, and who we are to it (None: it refused to authenticate us)."""
        # It may be the address of one that has gone: only an answer proves it.
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
        found = {}
        for constraint in constraints:
            for answer in self._jobs(constraint):
                found[answer["cluster"], answer["proc"]] = answer
        return list(found.values())

    def job(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """One job, None when the queue does not have it."""
        cluster, proc = number(request.get("cluster")), number(request.get("proc"))
        found = self._jobs(f"ClusterId == {cluster} && ProcId == {proc}")
        return found[0] if found else None

    def dagmans(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Every DAGMan in the queue."""
        return self._jobs(f"JobUniverse == {SCHEDULER_UNIVERSE}")

    def _query(self, constraint: str, attributes: list[str]) -> Any:
        begun = time.monotonic()
        try:
            with self.speaking():
                return self.schedd().query(constraint, attributes)
        except WorkerFailure:
            # The schedd may have been restarted, at another address or without the session that
            # it had with us: then that took no time.
            if time.monotonic() - begun > AGAIN_SECONDS:
                raise
            with self.speaking():
                return self.schedd().query(constraint, attributes)

    def _jobs(self, constraint: str) -> list[dict[str, Any]]:
        ads = self._query(constraint, PROJECTION)
        answers = (job_answer(ad) for ad in ads)
        return [answer for answer in answers if answer is not None]

    def act(self, request: dict[str, Any]) -> str:
        """One of :data:`ACTIONS` on one job: how the schedd counted it."""
        action = ACTIONS.get(str(request.get("action")))
        if action is None:
            raise WorkerFailure(ErrorKind.REQUEST, f"there is no action {request.get('action')!r}")
        schedd = self.schedd()
        with self.speaking(ErrorKind.REFUSED):
            totals = schedd.act(
                getattr(self._api.JobAction, action), [job_id(request)], (REASON, None)
            )
        if totals is not None:
            for total, answer in TOTALS.items():
                if totals.get(total):
                    return answer
        return "failed"

    def priority(self, request: dict[str, Any]) -> None:
        """Set a job's priority. That nothing is raised does not prove that it was set."""
        value = request.get("value")
        if type(value) is not int or abs(value) >= 2**31:
            raise WorkerFailure(ErrorKind.REQUEST, f"{value!r} is no priority")
        schedd = self.schedd()
        with self.speaking(ErrorKind.REFUSED):
            schedd.edit([job_id(request)], "JobPrio", str(value))

    def place(self, request: dict[str, Any]) -> None:
        """Set where a job is to go. That nothing is raised does not prove that it was set."""
        site = request.get("site")
        if not isinstance(site, str) or not SITE.fullmatch(site) or not site.isprintable():
            raise WorkerFailure(ErrorKind.REQUEST, f"{site!r} is no site")
        schedd = self.schedd()
        with self.speaking(ErrorKind.REFUSED):
            schedd.edit([job_id(request)], "MetlSite", f'"{site}"')

    def sites(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The slots that advertise a site: its name and the GPU."""
        attributes = ["GLIDEIN_ResourceName", "GPUs_DeviceName", "AvailableGPUs", "TotalGPUs"]
        with self.speaking(ErrorKind.NO_COLLECTOR):
            ads = self._api.Collector().query(
                self._api.AdType.Startd, "GLIDEIN_ResourceName isnt undefined", attributes
            )
        return [slot for slot in map(_slot, ads) if slot is not None]

    def submit_dag(self, request: dict[str, Any]) -> int:
        """Submit DAGMan for ``file``, from ``directory``; the cluster of its job."""
        if os.geteuid() == 0:
            raise WorkerFailure(ErrorKind.ROOT, "root may not submit")
        directory, file, options = (request.get(k) for k in ("directory", "file", "options"))
        if not isinstance(directory, str) or not isinstance(file, str):
            raise WorkerFailure(ErrorKind.REQUEST, "a directory and a file are wanted")
        if not isinstance(options, dict):
            raise WorkerFailure(ErrorKind.REQUEST, "options are wanted")
        schedd = self.schedd()
        before = os.getcwd()
        try:
            os.chdir(directory)
            with self.speaking(ErrorKind.OTHER):
                description = self._api.Submit.from_dag(file, options)
            with self.speaking(ErrorKind.REFUSED):
                return int(schedd.submit(description).cluster())
        except (OSError, ValueError, TypeError) as error:
            raise WorkerFailure(ErrorKind.OTHER, str(error)) from None
        finally:
            os.chdir(before)


def _slot(ad: Any) -> dict[str, Any] | None:
    name = ad.get("GLIDEIN_ResourceName")
    if not isinstance(name, str):
        return None
    gpu = ad.get("GPUs_DeviceName")
    if not isinstance(gpu, str):
        # A partitionable slot describes each of its GPUs in an ad of its own.
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
def ending_with(requests: IO[bytes]) -> Iterator[None]:
    """Meanwhile, the end of the requests on standard input ends this process, whatever it waits
    for: the bindings can wait long, and Python hears nothing until they return. What the parent
    writes would end it, too; it writes the next request when it has the answer. Source
    followed: fcntl(2), O_ASYNC."""
    try:
        ours = requests.fileno() == 0
        flags = fcntl.fcntl(0, fcntl.F_GETFL)
        if ours:
            fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC)
    except OSError:
        ours = False
    try:
        yield
    finally:
        if ours:
            fcntl.fcntl(0, fcntl.F_SETFL, flags)


def serve(requests: IO[bytes], answers: IO[bytes], pool: Callable[[], Any] = Pool) -> None:
    """Answer each line of ``requests`` until they end."""
    opened: Any = None
    for line in requests:
        try:
            request = json.loads(line)
            operation = request.get("op")
            if operation not in OPERATIONS:
                raise WorkerFailure(ErrorKind.REQUEST, f"there is no operation {operation!r}")
            with ending_with(requests):
                opened = opened or pool()
                answer = {"value": getattr(opened, operation)(request)}
        except WorkerFailure as failure:
            answer = {"error": str(failure.kind), "text": str(failure)[:LONGEST_TEXT]}
        except Exception as error:  # The line must stay open: say what it was.
            text = f"{type(error).__name__}: {error}"
            answer = {"error": str(ErrorKind.OTHER), "text": text[:LONGEST_TEXT]}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def main() -> None:
    """Run as a child of :class:`metlmon.pool.connection.PoolConnection`."""
    # The terminal's keys are the parent's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
