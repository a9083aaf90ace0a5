"""Queries the schedd for requests for annexes, and their collectors for slots.

Follows the queue's polling, and never queries more often. Collectors have a worker process of their
own, so that one that does not answer delays neither the queue nor the actions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from metlmon.errors import describe_error
from metlmon.pool.annex_ads import (
    AnnexAd,
    AnnexAnswer,
    AnnexCollector,
    AnnexQueue,
    AnnexRequest,
    FreeGpus,
)
from metlmon.pool.connection import PoolConnection, PoolUnreachable
from metlmon.pool.queue_checks import user_name
from metlmon.pool.types import LONGEST_PAUSE, QUERY_SECONDS, PoolError, QueueJob, QueueSnapshot

MAX_COLLECTORS: Final = 4
MAX_NAMES: Final = 200


class AnnexPoller:
    """The annexes of the ensemble whose jobs are in the queue snapshots of ``queue``.

    Queries run in a thread between :meth:`start` and :meth:`stop`, after calls of
    :meth:`follow_queue` or :meth:`query_soon`, and in the caller's thread in :meth:`query`, which
    blocks. ``connection``: for the schedd, shared with the queue's poller; ``collectors``: for
    collectors only, closed by :meth:`stop`.
    """

    def __init__(
        self,
        queue: Callable[[], QueueSnapshot],
        connection: PoolConnection,
        collectors: PoolConnection | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._queue = queue
        self._connection = connection
        self._collectors = collectors or PoolConnection()
        self._now = now
        self._answer = AnnexAnswer(is_pending=True)
        self._ads: dict[str, tuple[AnnexAd, ...]] = {}
        self._configured = AnnexQueue()
        self._next_query = 0.0
        self._gpus_requested = False
        self._next_gpus = 0.0
        self._query_lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def answer(self) -> AnnexAnswer:
        """The latest answer."""
        return self._answer

    # --- the thread ---------------------------------------------------------------------

    def start(self, on_answer: Callable[[], None]) -> None:
        """Start the thread, which calls ``on_answer`` after every query."""
        self._thread = threading.Thread(
            target=self._run, args=(on_answer,), name="metlmon-annexes", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, even while it waits for a collector."""
        self._stop.set()
        self._wake.set()
        self._collectors.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def follow_queue(self) -> None:
        """Query for annexes if that is due; called after each query of the queue."""
        if self.is_due():
            self._wake.set()

    def query_soon(self) -> None:
        """Query now, in the thread, since a user looks at the annexes."""
        self._next_query = 0.0
        self._wake.set()

    def query_gpus_soon(self) -> None:
        """Query for free GPUs, which plans need, in the thread; at most every ten minutes."""
        if self._now() >= self._next_gpus:
            self._gpus_requested = True
            self._wake.set()

    def is_due(self) -> bool:
        """Whether to query again.

        As often as the queue while there are annexes or the schedd does not answer; else every
        ten minutes, or when a job targets an annex.
        """
        is_first_target = not self._answer.collectors and any(_annex_jobs(self._queue()))
        return self._now() >= self._next_query or is_first_target

    def _run(self, on_answer: Callable[[], None]) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self.query()
            except Exception as error:  # An uncaught one would be printed on the screen.
                self._answer = replace(
                    self._answer, error=describe_error("asking failed", error), is_pending=False
                )
            if not self._stop.is_set():
                on_answer()

    # --- queries ------------------------------------------------------------------------

    def query(self) -> AnnexAnswer:
        """Query now and wait for the answer, which may have errors."""
        with self._query_lock:
            queue, before = self._queue(), self._answer
            jobs = _annex_jobs(queue)
            queried_at, error = before.queried_at, None
            try:
                if queue.error is not None:
                    # Do not wait a second time for a schedd that does not answer.
                    raise PoolError(queue.error)
                self._configured = self._connection.annex_queue()
                queried_at = self._now()
            except PoolError as failure:
                error = str(failure)
            configured = self._configured
            requests = _requests_of(configured.requests, queue, jobs)
            names = _names(requests, jobs)
            addresses = _addresses(configured, requests, user_name(queue.user or ""))
            known = {collector.address: collector for collector in before.collectors}
            collectors = tuple(
                self._ask(known.get(address) or AnnexCollector(address=address), names)
                for address in (addresses if names else ())
            )
            self._answer = AnnexAnswer(
                requests=requests,
                ads=self._all_ads(collectors),
                jobs=jobs,
                collectors=collectors,
                queried_at=queried_at,
                error=error,
                generation=configured.generation if queried_at is not None else None,
                configured_collector=configured.collector,
                free_gpus=self._free_gpus(error) if self._gpus_requested else before.free_gpus,
            )
            pause = QUERY_SECONDS if names or error is not None else LONGEST_PAUSE
            self._next_query = self._now() + pause
            return self._answer

    def _ask(self, collector: AnnexCollector, names: Sequence[str]) -> AnnexCollector:
        """Query a collector; its earlier slots stay if it does not answer."""
        try:
            self._ads[collector.address] = self._collectors.annex_ads(collector.address, names)
        except PoolUnreachable as error:
            return replace(collector, error=f"{error} ({collector.address})")
        except PoolError as error:
            return replace(collector, error=str(error))
        return replace(collector, answered_at=self._now(), error=None)

    def _free_gpus(self, error: str | None) -> tuple[FreeGpus, ...]:
        """The free GPUs; none if the collector, or (by ``error``) the schedd, does not answer."""
        self._gpus_requested, self._next_gpus = False, self._now() + LONGEST_PAUSE
        if error is not None:
            return ()
        try:
            return self._collectors.free_gpus()
        except PoolError:
            return ()

    def _all_ads(self, collectors: Iterable[AnnexCollector]) -> tuple[AnnexAd, ...]:
        """The slots of all collectors, each once: two addresses may be those of one collector."""
        slots = {
            (ad.annex, ad.node, ad.slot): ad
            for collector in collectors
            for ad in self._ads.get(collector.address, ())
        }
        return tuple(slots[key] for key in sorted(slots))


def _annex_jobs(queue: QueueSnapshot) -> tuple[QueueJob, ...]:
    """The jobs of a queue snapshot that target an annex."""
    return tuple(job for job in queue.jobs if job.annex)


def _requests_of(
    requests: Iterable[AnnexRequest], queue: QueueSnapshot, jobs: Iterable[QueueJob]
) -> tuple[AnnexRequest, ...]:
    """The requests that concern an ensemble, in the order of the queue."""
    owners = {job.owner for job in (*queue.jobs, *queue.dagmans)} | {user_name(queue.user or "")}
    targets = {job.annex.casefold() for job in jobs if job.annex}
    found = (
        request
        for request in requests
        if request.owner in owners - {""} or request.name.casefold() in targets
    )
    return tuple(sorted(found, key=lambda request: (request.cluster, request.proc)))


def _names(requests: Iterable[AnnexRequest], jobs: Iterable[QueueJob]) -> list[str]:
    """The names of annexes to query, each once regardless of case."""
    names = {job.annex.casefold(): job.annex for job in jobs if job.annex}
    names.update({request.name.casefold(): request.name for request in requests})
    return sorted(names.values())[:MAX_NAMES]


def _addresses(queue: AnnexQueue, requests: Iterable[AnnexRequest], user: str) -> list[str]:
    """The collectors to query: those of ANNEX_COLLECTOR and of our requests, else the pool's.

    Another user's request must not determine the hosts to which this process connects.
    """
    addresses = dict.fromkeys(
        [queue.collector, *(request.collector for request in requests if request.owner == user)]
    )
    found = [address for address in addresses if address]
    return (found or [queue.pool_collector] * bool(queue.pool_collector))[:MAX_COLLECTORS]
