"""Watching an ensemble from beginning to end: each snapshot is checked, and the last one is
compared with that of a later reader."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.follower import NO_REPLY
from metlmon.live.session import Session
from metlmon.model.clock import Clock
from metlmon.model.states import State
from metlmon.snapshot.records import GpuHours, Snapshot
from metlmon.text.record_json import json_of

ROUNDING = 1e-9


@dataclass(slots=True)
class Watched:
    """A live session, and the errors found in its snapshots. ``inner``: nodes of sub-DAGs, which
    belong to none of its listed DAGs. ``runless``: there are jobs of no run, which use GPUs where
    their slot has some, requested or not."""

    reader: DagdirReader
    session: Session
    inner: int = 0
    runless: bool = False
    wrong: list[str] = field(default_factory=list)
    pictures: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    _done: int = 0
    _hours: GpuHours = field(default_factory=GpuHours)

    @classmethod
    def begin(cls, dagdir: Path, inner: int = 0, runless: bool = False) -> Watched:
        reader = DagdirReader(dagdir)
        reader.open()
        made = cls(reader, Session(reader), inner, runless)
        made.session.start(made.see)
        return made

    def see(self, update: Snapshot) -> None:
        """Check that no final state changes, and that sums agree with their parts."""
        self.pictures += 1
        status, hours = update.status, update.status.hours
        done = status.node_states[State.COMPLETED]
        if done < self._done:
            self.wrong.append(f"{status.as_of}: {self._done} nodes were done, now {done}")
        before = self._hours
        # The unit, at first job-hours, changes once, when the first execution names its GPUs.
        if before.measure is hours.measure and (
            hours.goodput < before.goodput - ROUNDING or hours.badput < before.badput - ROUNDING
        ):
            self.wrong.append(f"{status.as_of}: hours that ended became fewer: {hours}")
        total = sum(dag.nodes_total for dag in status.dags) + self.inner
        if sum(status.node_states.values()) != total:
            self.wrong.append(f"{status.as_of}: {status.node_states} are not {total} nodes")
        others = hours.total - sum(run.hours.total for run in status.runs)
        if others < -1e-6 or (others > 1e-6 and not self.runless):
            self.wrong.append(f"{status.as_of}: the runs' hours are not {hours}")
        # On a busy machine a call of the file system may take seconds.
        if update.error is not None and NO_REPLY not in update.error:
            self.wrong.append(f"{status.as_of}: {update.error}")
        self._done, self._hours = done, hours
        if not status.live and self.pictures > 1:
            self.ended.set()

    def last(self) -> dict[str, Any]:
        """The last snapshot, as ``status --json`` writes it."""
        latest = self.session.latest
        assert latest is not None
        clock: Clock = self.reader.ensemble.clock
        return json_of(latest.status, clock.with_offset)


FIGURES = ("metric", "swept", "wall_seconds")
"""Fields of a run that the screens take from a statistic, not from the snapshot."""


def without_figures(status: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of a status without figures, as in a snapshot."""
    return [{k: v for k, v in run.items() if k not in FIGURES} for run in status["runs"]]
