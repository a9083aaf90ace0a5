"""Watching an ensemble through all that happens to it: every picture is kept an eye on, and the
last one is compared with what a reader finds who comes afterwards."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Snapshot
from metlmon.live.follower import SILENT
from metlmon.live.session import Session
from metlmon.model.clock import Clock
from metlmon.model.states import State
from metlmon.snapshot.records import GpuHours
from metlmon.text.record_json import json_of

ROUNDING = 1e-9


@dataclass(slots=True)
class Watched:
    """A live session, and what was wrong in any of its pictures. ``inner``: nodes of sub-DAGs,
    which are nodes of none of the DAGs that it lists. ``runless``: there are jobs of no run, which
    use GPUs where they get a slot that has some, asked for or not."""

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
        """What ended stays ended, and the sums are those of the parts."""
        self.pictures += 1
        status, hours = update.status, update.status.hours
        done = status.node_states[State.COMPLETED]
        if done < self._done:
            self.wrong.append(f"{status.as_of}: {self._done} nodes were done, now {done}")
        before = self._hours
        # The unit changes once, from job-hours, when the first execution names its GPUs.
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
        # On a busy machine a call of the file system may last for seconds.
        if update.error is not None and SILENT not in update.error:
            self.wrong.append(f"{status.as_of}: {update.error}")
        self._done, self._hours = done, hours
        if not status.live and self.pictures > 1:
            self.ended.set()

    def last(self) -> dict[str, Any]:
        """The last picture, as ``status --json`` would write it."""
        latest = self.session.latest
        assert latest is not None
        clock: Clock = self.reader.ensemble.clock
        return json_of(latest.status, clock.with_offset)


FIGURES = ("metric", "swept", "wall_seconds")
"""Fields of a run that the screens take from a statistic, not from the snapshot."""


def without_figures(status: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of a status as a snapshot has them."""
    return [{k: v for k, v in run.items() if k not in FIGURES} for run in status["runs"]]
