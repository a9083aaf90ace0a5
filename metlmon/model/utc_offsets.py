"""Collects evidence on the access point's UTC offset (``metlmon/README.md``, "Time")."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from metlmon.dagman import JobstateLine
from metlmon.eventlog import Event, Submit, Terminated
from metlmon.model.clock import Clock
from metlmon.model.clock_evidence import SubmissionTimes
from metlmon.model.dag import Dag


class UtcOffsets:
    """Passes moments known in local time and in UTC to a clock.

    Calls ``on_change`` when the conversion of any time changes. ``first_later``: the time of
    the first event after the cut.
    """

    def __init__(self, clock: Clock, on_change: Callable[[], None]) -> None:
        self.first_later: datetime | None = None
        self._clock = clock
        self._on_change = on_change
        self._later_submissions = SubmissionTimes()

    def read_files(self, dag: Dag) -> None:
        """Read the moments in the files of a DAG's DAGMan."""
        for local, epoch in dag.clock_observations():
            self._observe(local, epoch)

    def read_end(self, event: Event) -> None:
        """Read a 005, which until HTCondor 24.7 has the end of the job in UTC."""
        detail = event.detail
        if not isinstance(detail, Terminated) or detail.ended_utc is None or self._clock.zone:
            return
        if self._clock.hint(event.time, detail.ended_utc.timestamp()):
            self._on_change()

    def read_submission(self, cluster: int, local: datetime, dag: Dag | None) -> None:
        """Read a 000, whose time the jobstate log of ``dag`` may have in UTC."""
        epoch = dag.submit_epochs.get(cluster) if dag is not None else None
        if epoch is not None and self._clock.zone is None:
            self._observe(local, epoch)

    def read_jobstate(
        self, dag: Dag, entries: Iterable[JobstateLine], submitted: Callable[[int], datetime | None]
    ) -> None:
        """Read lines of a jobstate log.

        ``submitted``: returns the submission time of a cluster, by its events up to the cut.
        """
        if self._clock.zone is not None:
            return
        for entry in entries:
            cluster = entry.cluster
            epoch = dag.submit_epochs.get(cluster) if cluster is not None else None
            if entry.event == "SUBMIT" and cluster is not None and epoch is not None:
                local = submitted(cluster) or self._later_submissions.get(cluster)
                if local is not None:
                    self._observe(local, epoch)

    def read_later(
        self, events: Iterable[Event], submitting_dag_of: Callable[[int], Dag | None]
    ) -> None:
        """Read events after the cut, which are used for nothing else.

        ``submitting_dag_of``: returns the DAG that submitted a cluster.
        """
        for event in events:
            if self.first_later is None or event.time < self.first_later:
                self.first_later = event.time
            if isinstance(event.detail, Submit):
                self._later_submissions.add(event.cluster, event.time)
                self.read_submission(event.cluster, event.time, submitting_dag_of(event.cluster))
            else:
                self.read_end(event)

    def _observe(self, local: datetime, epoch: float) -> None:
        if self._clock.observe(local, epoch):
            self._on_change()
