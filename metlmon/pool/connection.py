"""The line to the worker: the process in which HTCondor's bindings run.

Every method waits for the schedd, at most for its operation's time; call them in a thread.
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

from metlmon.pool.types import PoolError, QueueJob, ScheddInfo, SiteInfo

ANSWER_SECONDS: Final = {"submit_dag": 120.0, "where": 30.0}
OTHER_SECONDS: Final = 40.0
"""How long an operation may take. HTCondor's own timeouts are 20 s for each step; a DAG of a
hundred thousand nodes takes a while to be looked through before it is submitted."""

END_SECONDS: Final = 1.0
"""A worker whose requests end, ends; one that the schedd keeps waiting is ended."""

CLOSE_SECONDS: Final = 0.1
"""How long closing waits for an operation to end by itself, before it ends the worker."""

CHATTER_BYTES: Final = 4000
"""The end of what the bindings printed: enough to quote the last lines of."""

BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from metlmon.pool.worker import main; main()"
)
"""Isolated from the environment (``-I``), with the very places that we import from: never the
working directory, which is the dagdir of whoever wrote it."""

HINTS: Final = {
    "no-bindings": "HTCondor's Python bindings are not installed here (pip install htcondor)",
    "no-schedd": "no schedd is known here: it does not run, or this is no access point "
    "(CONDOR_CONFIG names the configuration)",
    "no-answer": "the schedd does not answer: is it running, and may this machine reach it?",
    "no-collector": "the collector does not answer: does CONDOR_HOST name it?",
    "refused": "the schedd refused: it may not have authenticated you "
    "(SEC_CLIENT_AUTHENTICATION_METHODS in the configuration says how it can)",
    "root": "root may not submit: HTCondor runs no job as root, so become the user whose DAG it is",
}
"""By the worker's kind of failure: what is the matter and what to do about it."""


def command() -> list[str]:
    """The worker's command line."""
    here = os.getcwd()
    places = [place for place in sys.path if os.path.isabs(place) and place != here]
    own = str(Path(__file__).resolve().parents[2])
    flags = ["-I", "-B"] if sys.dont_write_bytecode else ["-I"]
    return [sys.executable, *flags, "-c", BOOT, json.dumps([*places, own])]


class PoolRefused(PoolError):
    """The schedd was reached, and said no. ``said``: its words."""

    def __init__(self, text: str, said: str) -> None:
        super().__init__(text)
        self.said = said


class PoolUnreachable(PoolError):
    """The schedd did not answer in time; what was asked of it may have been done or not."""


class PoolConnection:
    """Starts the worker when it is first needed, and anew when it ended. Thread-safe: one
    operation at a time. Every method raises PoolError with a sentence."""

    def __init__(self, argv: Sequence[str] | None = None) -> None:
        self._argv = argv
        self._line = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._chatter: IO[bytes] | None = None
        self._closed = False

    # --- operations ---------------------------------------------------------------------

    def where(self) -> ScheddInfo:
        """The schedd at hand; ``user`` is empty when it did not authenticate us."""
        value = self._ask("where")
        return ScheddInfo(
            str(value["schedd"]),
            str(value["version"]),
            str(value["user"] or ""),
            bool(value["dagman"]),
            value["submit_command"],
        )

    def query(self, dagmans: Iterable[int], clusters: Iterable[int]) -> tuple[QueueJob, ...]:
        """The jobs of these DAGMans and these clusters."""
        value = self._ask("query", dagmans=sorted(set(dagmans)), clusters=sorted(set(clusters)))
        return tuple(queue_job(each) for each in value)

    def job(self, cluster: int, proc: int) -> QueueJob | None:
        """One job; None when the queue does not have it."""
        value = self._ask("job", cluster=cluster, proc=proc)
        return queue_job(value) if value is not None else None

    def dagmans(self) -> tuple[QueueJob, ...]:
        """Every DAGMan in the queue, anybody's."""
        return tuple(queue_job(each) for each in self._ask("dagmans"))

    def act(self, action: str, cluster: int, proc: int) -> str:
        """Hold, release, remove or vacate one job: "done", "already", "denied", "not-found",
        "bad-state" or "failed"."""
        return str(self._ask("act", action=action, cluster=cluster, proc=proc))

    def priority(self, cluster: int, proc: int, value: int) -> None:
        """Ask for a job's new priority; look at the job to see whether it has it."""
        self._ask("priority", cluster=cluster, proc=proc, value=value)

    def place(self, cluster: int, proc: int, site: str) -> None:
        """Ask for a job's new site (MetlSite); look at the job to see whether it has it."""
        self._ask("place", cluster=cluster, proc=proc, site=site)

    def sites(self) -> tuple[SiteInfo, ...]:
        """The sites that the collector knows now, by name."""
        slots: dict[str, list[str | None]] = {}
        for slot in self._ask("sites"):
            slots.setdefault(slot["name"], []).append(slot["gpu"])
        return tuple(
            SiteInfo(name, len(gpus), tuple(sorted({gpu for gpu in gpus if gpu})))
            for name, gpus in sorted(slots.items())
        )

    def submit_dag(self, directory: Path, file: str, options: dict[str, int | bool | str]) -> int:
        """DAGMan's cluster; ``options`` as of ``htcondor2.Submit.from_dag``."""
        return int(self._ask("submit_dag", directory=str(directory), file=file, options=options))

    # --- the line -----------------------------------------------------------------------

    def _ask(self, operation: str, **request: Any) -> Any:
        with self._line:
            if self._closed:
                raise PoolError("the connection to the pool is closed")
            worker = self._running()
            answer = self._exchange(worker, operation, request)
        if "error" not in answer:
            return answer.get("value")
        raise self._failure(str(answer["error"]), str(answer.get("text", "")))

    def _running(self) -> subprocess.Popen[bytes]:
        if self._worker is not None and self._worker.poll() is None:
            return self._worker
        self._end()
        # Appending: what is cut off between two operations does not come back.
        try:
            self._chatter = tempfile.TemporaryFile("ab+", buffering=0)  # noqa: SIM115
        except OSError:
            # No directory for it can be written to: then only its last words are lost.
            self._chatter = open(os.devnull, "ab+", buffering=0)  # noqa: SIM115
        try:
            self._worker = subprocess.Popen(
                self._argv or command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._chatter,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise PoolError(f"HTCondor's bindings cannot be started: {error}") from None
        return self._worker

    def _exchange(
        self, worker: subprocess.Popen[bytes], operation: str, request: dict[str, Any]
    ) -> dict[str, Any]:
        seconds = ANSWER_SECONDS.get(operation, OTHER_SECONDS)
        assert worker.stdin is not None
        assert self._chatter is not None
        with suppress(OSError):
            self._chatter.truncate(0)
        try:
            worker.stdin.write(json.dumps({"op": operation, **request}).encode() + b"\n")
            line = self._read(worker, time.monotonic() + seconds)
        except OSError:
            line = b""
        if line is None:
            self._end(patient=False)
            raise PoolUnreachable(
                f"the schedd gave no answer in {seconds:.0f} s; whether it was done will show in "
                "the log"
                if operation in ("act", "priority", "place", "submit_dag")
                else f"the schedd gave no answer in {seconds:.0f} s"
            )
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            code = self._end(patient=False)
            said = self._last_words()
            raise PoolError(
                "HTCondor's bindings ended unexpectedly"
                + (f" (status {code})" if code is not None else "")
                + (f": {said}" if said else "")
            )
        return answer

    def _read(self, worker: subprocess.Popen[bytes], deadline: float) -> bytes | None:
        """A line; what there was of it when the worker ended; None when time is up."""
        assert worker.stdout is not None
        parts: list[bytes] = []
        descriptor = worker.stdout.fileno()
        while not (parts and parts[-1].endswith(b"\n")):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                return None
            part = os.read(descriptor, 1 << 16)
            if not part:
                break
            parts.append(part)
        return b"".join(parts)

    def _failure(self, kind: str, text: str) -> PoolError:
        hint = HINTS.get(kind)
        said = " ".join(text.split()).rstrip(".")
        if kind == "other":
            # condor_submit_dag's own code prints what is the matter, and raises less.
            said = self._last_words() or said
        if hint is None:
            return PoolError(said or "HTCondor's bindings failed without a word")
        if kind == "refused":
            return PoolRefused(f"{hint}: {said}" if said else hint, said)
        return PoolError(f"{hint} ({said})" if said and kind != "root" else hint)

    def _last_words(self) -> str:
        """The end of what the bindings printed during the last operation."""
        chatter = self._chatter
        if chatter is None:
            return ""
        try:
            size = chatter.seek(0, os.SEEK_END)
            chatter.seek(max(0, size - CHATTER_BYTES))
            text = chatter.read(CHATTER_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower() and "hostname" not in line]
        return (errors or lines or [""])[-1]

    def _end(self, patient: bool = True) -> int | None:
        """End the worker, if there is one; its exit status."""
        worker, self._worker = self._worker, None
        if worker is None:
            return None
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            return worker.wait(END_SECONDS if patient else 0.1)
        except subprocess.TimeoutExpired:
            worker.kill()
            return worker.wait()

    def close(self) -> None:
        """End the worker, whatever it waits for; returns when it has ended. An operation that
        another thread waits for fails."""
        self._closed = True
        while not self._line.acquire(timeout=CLOSE_SECONDS):
            # Whoever is on the line may just have started the worker: once is not enough.
            worker = self._worker
            if worker is not None:
                worker.kill()
        try:
            self._end()
            if self._chatter is not None:
                self._chatter.close()
                self._chatter = None
        finally:
            self._line.release()


def queue_job(value: dict[str, Any]) -> QueueJob:
    """The worker's answer as a record."""
    return QueueJob(
        cluster=value["cluster"],
        proc=value["proc"],
        status=value["status"],
        owner=value["owner"] or "",
        priority=value["priority"] or 0,
        matches=value["matches"] or 0,
        position=None,
        waiting=0,
        rejection=(value["rejection"] or "").strip() or None,
        rejected_at=value["rejected_at"],
        submitted_at=value["submitted_at"],
        node=value["node"],
        directory=value["directory"],
        log=value["log"],
        hold_reason=value["hold_reason"],
        transferring=value["transferring"],
        nodes_log=value["nodes_log"],
        dagman=value["dagman"],
        universe=value["universe"],
        arguments=value["arguments"],
        site=value["site"],
        by_site=value["by_site"],
    )
