"""The connection to the worker process that runs HTCondor's bindings.

Every method blocks, at most for its operation's time-out; call them in a thread.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from msgspec import UNSET

from metlmon.errors import InputError
from metlmon.pool.annex_ads import AnnexAd, AnnexQueue, FreeGpus
from metlmon.pool.protocol import (
    SCHEDULER_UNIVERSE,
    Answer,
    QueueJob,
    ScheddInfo,
    SiteInfo,
)
from metlmon.pool.types import PoolError

ANSWER_SECONDS: Final = {
    "where": 30.0,
    "annex_ads": 10.0,
    "free_gpus": 10.0,
    "slots": 10.0,
}
OTHER_SECONDS: Final = 40.0
"""Time-outs of the operations. HTCondor's own time-outs are 20 s per step."""

COLLECTOR_OPERATIONS: Final = {
    "sites": "the collector",
    "free_gpus": "the collector",
    "slots": "the collector",
    "annex_ads": "the annex collector",
}
"""Operations that wait for a collector, and its name in messages."""

CHANGING: Final = frozenset({"act", "edit", "exclude"})
"""Operations that change something in the pool."""

END_SECONDS: Final = 1.0
"""Time for the worker to exit after its input closes, before it is killed."""

CLOSE_SECONDS: Final = 0.1
"""How long ``close`` lets an operation finish before it kills the worker."""

STDERR_BYTES: Final = 4000
"""Bytes at the end of the bindings' output that are read to quote a line of it."""

BOOTSTRAP: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import main; main()"
)
"""Bootstrap code of a worker. Isolated from the environment (``-I``), with the parent's import path
but never the working directory: that is a dagdir, which another user may have written."""

HINTS: Final = {
    "no-bindings": "HTCondor's Python bindings are not installed here (pip install htcondor)",
    "no-schedd": "no schedd on this host: it is not running, or this is not an access point",
    "no-answer": "the schedd does not answer: is it running, and may this machine reach it?",
    "no-collector": "the collector does not answer: does CONDOR_HOST name it?",
    "no-annex-collector": "the annex collector does not answer: does ANNEX_COLLECTOR name it?",
    "annex-collector-refused": "the annex collector does not let you read: its administrator can "
    "grant READ access, or a token",
    "refused": "the schedd refused: it may not have authenticated you "
    "(SEC_CLIENT_AUTHENTICATION_METHODS in the configuration says how it can)",
}
"""The problem and its remedy by the worker's error kind."""


DAGMAN_LOG: Final = ".dagman.log"
"""Suffix of the log of DAGMan's own job, after the name of its DAG file."""


def command(module: str = "metlmon.pool.worker") -> list[str]:
    """The command line of a worker: a process that calls ``main`` of this module."""
    directory = os.getcwd()
    paths = [path for path in sys.path if os.path.isabs(path) and path != directory]
    package_root = str(Path(__file__).resolve().parents[2])
    flags = ["-I", "-B"] if sys.dont_write_bytecode else ["-I"]
    return [
        sys.executable,
        *flags,
        "-c",
        BOOTSTRAP.format(module=module),
        json.dumps([*paths, package_root]),
    ]


class PoolRefused(PoolError):
    """The schedd refused an operation.

    ``schedd_text``: its message.
    """

    def __init__(self, text: str, schedd_text: str) -> None:
        super().__init__(text)
        self.schedd_text = schedd_text


class PoolUnreachable(PoolError):
    """The schedd did not respond in time.

    The operation may or may not have been performed.
    """


class PoolConnection:
    """Starts the worker on first use, and again after it has exited.

    Thread-safe, one operation at a time. Every method raises PoolError with a one-sentence
    message.
    """

    def __init__(self, argv: Sequence[str] | None = None) -> None:
        self._argv = argv
        self._line = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._closed = False

    # --- operations ---------------------------------------------------------------------

    def where(self) -> ScheddInfo:
        """The local schedd."""
        info: ScheddInfo = self._call(ScheddInfo, "where")
        return info

    def query(self, dagmans: Iterable[int], clusters: Iterable[int]) -> tuple[QueueJob, ...]:
        """The jobs of these DAGMans and these clusters."""
        jobs = self._call(list[QueueJob], "query", sorted(set(dagmans)), sorted(set(clusters)))
        return tuple(jobs)

    def job(self, cluster: int, proc: int) -> QueueJob | None:
        """One job, or None if the queue does not have it."""
        job: QueueJob | None = self._call(QueueJob | None, "job", cluster, proc)
        return job

    def dagmans(self) -> tuple[QueueJob, ...]:
        """Every DAGMan in the queue, of all users."""
        return tuple(self._call(list[QueueJob], "dagmans"))

    def act(self, action: str, cluster: int, proc: int) -> str:
        """Hold, release, remove or vacate one job; return a ResultCode's text."""
        return str(self._call(str, "act", action, cluster, proc))

    def edit(self, cluster: int, proc: int, field: str, value: int | str) -> None:
        """Request another value of a field; only the job's ad shows whether it was set."""
        self._call(object, "edit", cluster, proc, field, value)

    def exclude(self, cluster: int, proc: int, name: str, excluded: bool, on: str) -> None:
        """Request to exclude or include a site or host; only the job's ad shows the result."""
        self._call(object, "exclude", cluster, proc, name, excluded, on)

    def sites(self) -> tuple[SiteInfo, ...]:
        """The sites currently known to the collector, sorted by name."""
        return tuple(self._call(list[SiteInfo], "sites"))

    def free_gpus(self) -> tuple[FreeGpus, ...]:
        """The free GPUs of the pool's collector, by site and model."""
        return tuple(self._call(list[FreeGpus], "free_gpus"))

    def slots(self) -> tuple[tuple[dict[str, float], int], ...]:
        """The pool's slots: amounts by the submit command that requests them, and their number."""
        return tuple(self._call(list[tuple[dict[str, float], int]], "slots"))

    def annex_queue(self) -> AnnexQueue:
        """All requests for annexes in the queue, and the configuration for annexes."""
        queue: AnnexQueue = self._call(AnnexQueue, "annex_queue")
        return queue

    def annex_ads(self, collector: str, names: Sequence[str]) -> tuple[AnnexAd, ...]:
        """The slots of the annexes with these names, from the collector at this address."""
        return tuple(self._call(list[AnnexAd], "annex_ads", collector, names))

    # --- the protocol -------------------------------------------------------------------

    def _call(self, kind: Any, operation: str, *arguments: Any) -> Any:
        """The result of an operation of the worker, converted to ``kind``."""
        with self._line:
            if self._closed:
                raise PoolError("the connection to the pool is closed")
            worker = self._ensure_worker()
            answer = self._exchange(worker, operation, arguments)
            try:
                if answer is not None and answer.error is None and answer.value is not UNSET:
                    return msgspec.json.decode(answer.value, type=kind)
            except msgspec.MsgspecError:
                answer = None
            if answer is None or answer.error is None:
                raise self._ended_unexpectedly()
        raise self._error(answer.error, answer.text)

    def _ensure_worker(self) -> subprocess.Popen[bytes]:
        if self._worker is not None and self._worker.poll() is None:
            return self._worker
        self._stop_worker()
        # Append mode: writes continue at the start after a truncation.
        try:
            self._stderr = tempfile.TemporaryFile("ab+", buffering=0)  # noqa: SIM115
        except OSError:
            # No writable temporary directory: error messages lack the bindings' output.
            self._stderr = open(os.devnull, "ab+", buffering=0)  # noqa: SIM115
        try:
            self._worker = subprocess.Popen(
                self._argv or command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise PoolError(f"HTCondor's bindings cannot be started: {error}") from None
        return self._worker

    def _exchange(
        self, worker: subprocess.Popen[bytes], operation: str, arguments: tuple[Any, ...]
    ) -> Answer | None:
        """The worker's answer; None without a readable one."""
        seconds = ANSWER_SECONDS.get(operation, OTHER_SECONDS)
        request = {"op": operation, "args": arguments}
        assert worker.stdin is not None
        assert self._stderr is not None
        with suppress(OSError):
            self._stderr.truncate(0)
        try:
            worker.stdin.write(msgspec.json.encode(request) + b"\n")
            line = self._read(worker, time.monotonic() + seconds)
        except OSError:
            line = b""
        if line is None:
            self._stop_worker(graceful=False)
            doubt = "; whether it was done will show in the log" * (operation in CHANGING)
            daemon = COLLECTOR_OPERATIONS.get(operation, "the schedd")
            raise PoolUnreachable(f"{daemon} gave no answer in {seconds:.0f} s{doubt}")
        try:
            return msgspec.json.decode(line, type=Answer)
        except msgspec.MsgspecError:
            return None

    def _ended_unexpectedly(self) -> PoolError:
        code = self._stop_worker(graceful=False)
        status = f" (status {code})" if code is not None else ""
        text = self._last_error_line()
        return PoolError(
            f"HTCondor's bindings ended unexpectedly{status}" + (f": {text}" if text else "")
        )

    def _read(self, worker: subprocess.Popen[bytes], deadline: float) -> bytes | None:
        """Read a line from the worker, incomplete if it exits; None after ``deadline``."""
        assert worker.stdout is not None
        parts: list[bytes] = []
        descriptor = worker.stdout.fileno()
        while not (parts and parts[-1].endswith(b"\n")):
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not select.select([descriptor], [], [], remaining)[0]:
                return None
            part = os.read(descriptor, 1 << 16)
            if not part:
                break
            parts.append(part)
        return b"".join(parts)

    def _error(self, kind: str, text: str) -> PoolError:
        hint = HINTS.get(kind)
        detail = " ".join(text.split()).rstrip(".")
        if hint is None:
            return PoolError(detail or "HTCondor's bindings failed without a word")
        if kind == "refused":
            return PoolRefused(f"{hint}: {detail}" if detail else hint, detail)
        return PoolError(f"{hint} ({detail})" if detail else hint)

    def _last_error_line(self) -> str:
        """The most relevant line that the bindings printed during the last operation."""
        stderr = self._stderr
        if stderr is None:
            return ""
        try:
            size = stderr.seek(0, os.SEEK_END)
            stderr.seek(max(0, size - STDERR_BYTES))
            text = stderr.read(STDERR_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower() and "hostname" not in line]
        return (errors or lines or [""])[-1]

    def _stop_worker(self, graceful: bool = True) -> int | None:
        worker, self._worker = self._worker, None
        if worker is None:
            return None
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            return worker.wait(END_SECONDS if graceful else 0.1)
        except subprocess.TimeoutExpired:
            worker.kill()
            return worker.wait()

    def close(self) -> None:
        """End the worker, even during an operation, which fails; return when it has exited."""
        self._closed = True
        while not self._line.acquire(timeout=CLOSE_SECONDS):
            # The other thread may have just started the worker: kill it repeatedly.
            worker = self._worker
            if worker is not None:
                worker.kill()
        try:
            self._stop_worker()
            if self._stderr is not None:
                self._stderr.close()
                self._stderr = None
        finally:
            self._line.release()


def cluster_logs(cluster: int) -> list[Path]:
    """The event logs (``UserLog``) of the jobs of a cluster that are in the queue.

    For a DAGMan, its DAG file. Raises InputError without a schedd, for a cluster that is not in its
    queue, and for jobs without a log.
    """
    connection = PoolConnection()
    try:
        jobs = connection.query((), (cluster,))
    except PoolError as error:
        raise InputError(f"cluster {cluster}: {error}; or give the path of its log") from None
    finally:
        connection.close()
    if not jobs:
        raise InputError(
            f"cluster {cluster} is not in the queue: it has left it, or is another schedd's; "
            "give the log that its submit file names"
        )
    logs: dict[Path, None] = {}
    for job in jobs:
        if job.log is None:
            continue
        path = Path(job.directory or "", job.log)
        if job.universe == SCHEDULER_UNIVERSE and path.name.endswith(DAGMAN_LOG):
            return [path.with_name(path.name.removesuffix(DAGMAN_LOG))]
        logs[path] = None
    if not logs:
        raise InputError(
            f"cluster {cluster} writes no event log: its submit file has no log command; "
            "condor_qedit cannot add one to jobs in the queue"
        )
    return list(logs)
