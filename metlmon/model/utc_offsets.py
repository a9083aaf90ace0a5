"""What an ensemble's files and events tell of the access point's offset (``domain.md``,
"Time")."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from metlmon.dagman import JobstateLine
from metlmon.eventlog import Event, Submit, Terminated
from metlmon.model.clock import Clock
from metlmon.model.clock_evidence import SubmissionTimes
from metlmon.model.dag import Dag


class UtcOffsets:
    """Gives a clock the moments that are stated in local time and in UTC, and calls ``changed``
    when one tells another time than before. ``first_later``: the time of the first event behind
    the cut."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self.first_later: datetime | None = None
        self._clock = clock
        self._changed = changed
        self._later = SubmissionTimes()

    def read_files(self, dag: Dag) -> None:
        """Moments that the files of a DAG's DAGMan state."""
        for local, epoch in dag.clock_observations():
            self._observe(local, epoch)

    def read_end(self, event: Event) -> None:
        """Until 24.7 an event 005 says in UTC when its job ended."""
        detail = event.detail
        if not isinstance(detail, Terminated) or detail.ended_utc is None or self._clock.zone:
            return
        if self._clock.hint(event.time, detail.ended_utc.timestamp()):
            self._changed()

    def read_submission(self, cluster: int, local: datetime, dag: Dag | None) -> None:
        """A job event of a submission, of which the jobstate log of ``dag`` may have told."""
        epoch = dag.submit_epochs.get(cluster) if dag is not None else None
        if epoch is not None and self._clock.zone is None:
            self._observe(local, epoch)

    def read_jobstate(
        self, dag: Dag, entries: Iterable[JobstateLine], submitted: Callable[[int], datetime | None]
    ) -> None:
        """Lines of a jobstate log. ``submitted``: when a cluster was, by its events up to the
        cut."""
        if self._clock.zone is not None:
            return
        for entry in entries:
            cluster = entry.cluster
            epoch = dag.submit_epochs.get(cluster) if cluster is not None else None
            if entry.event == "SUBMIT" and cluster is not None and epoch is not None:
                local = submitted(cluster) or self._later.get(cluster)
                if local is not None:
                    self._observe(local, epoch)

    def read_later(self, events: Iterable[Event], teller: Callable[[int], Dag | None]) -> None:
        """Events behind the cut, which count for nothing else. ``teller``: the DAG that tells
        of a cluster."""
        for event in events:
            if self.first_later is None or event.time < self.first_later:
                self.first_later = event.time
            if isinstance(event.detail, Submit):
                self._later.add(event.cluster, event.time)
                self.read_submission(event.cluster, event.time, teller(event.cluster))
            else:
                self.read_end(event)

    def _observe(self, local: datetime, epoch: float) -> None:
        if self._clock.observe(local, epoch):
            self._changed()
