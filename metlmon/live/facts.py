"""Following what DAGMan writes beside a DAG file: the small files anew when they change, the
growing ones from where they were left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from metlmon.dagman import (
    OutState,
    Problem,
    read_dagman_out,
    read_jobstate,
    read_metrics,
    read_node_status,
    read_rescue,
    rescue_number,
)
from metlmon.ensemble.dag import Dag
from metlmon.ensemble.ensemble import Changes, Ensemble
from metlmon.live.follower import CHUNK, FolderWatch, Follower

LARGEST_SMALL_FILE: Final = 64 << 20
"""Bytes: rescue, status and metrics files of a hundred thousand nodes are a tenth of this."""


class DagFacts:
    """All files of one DAG's DAGMan. ``shared`` are jobstate logs that several DAGs name:
    their lines do not say whose they are."""

    def __init__(self, dag: Dag, shared: frozenset[str]) -> None:
        path = dag.workflow.path
        self.key = dag.key
        self._folder = path.parent
        self._name = path.name
        self._folders = FolderWatch()
        self._out = Follower(path.with_name(f"{path.name}.dagman.out"))
        self._out_state = OutState()
        jobstate = dag.workflow.jobstate_log
        named = self._beside(jobstate) if jobstate and jobstate not in shared else None
        self._jobstate = Follower(named) if named else None
        status = dag.workflow.node_status_file
        self._named = (jobstate, status, jobstate in shared)
        self._status = Follower(self._beside(status)) if status else None
        self._metrics = Follower(path.with_name(f"{path.name}.metrics"))
        self._rescues: tuple[tuple[str, int, int], ...] = ()
        self.problems: dict[str, list[Problem]] = {}

    def fits(self, dag: Dag, shared: frozenset[str]) -> bool:
        """Does the DAG file, written anew, still name the same files?"""
        jobstate, status = dag.workflow.jobstate_log, dag.workflow.node_status_file
        return (jobstate, status, jobstate in shared) == self._named

    def _beside(self, name: str) -> Path:
        """As DAGMan would find it, else beside the DAG file: a copy has no other places."""
        written = self._folder / name
        return written if written.exists() else self._folder / Path(name).name

    @property
    def behind(self) -> int:
        """Bytes of the growing files that are still to be read."""
        return self._out.behind + (self._jobstate.behind if self._jobstate else 0)

    @property
    def total(self) -> int:
        """Bytes of the growing files."""
        return self._out.size + (self._jobstate.size if self._jobstate else 0)

    # --- small files --------------------------------------------------------------------

    def look(self, ensemble: Ensemble) -> Changes:
        """Read the small files that changed, and see how far the growing ones have grown."""
        dag = ensemble.dags[self.key]
        changed = self._folders.changed([self._folder], time.time()) and self._look_rescues(dag)
        changed |= self._look_small(self._status, self._take_status, dag)
        changed |= self._look_small(self._metrics, self._take_metrics, dag)
        halted = os.path.exists(self._folder / f"{self._name}.halt")
        changed |= halted != dag.halted
        dag.halted = halted
        if self._out.look().restarted:
            self._out_state = OutState()
            dag.forget_out()
        if self._jobstate is not None and self._jobstate.look().restarted:
            dag.forget_jobstate()
        return ensemble.facts_changed(self.key) if changed else Changes()

    def _look_small(
        self, follower: Follower | None, take: Callable[[Path, bytes, Dag], None], dag: Dag
    ) -> bool:
        if follower is None:
            return False
        look = follower.look()
        if look.problem is not None or not (look.restarted or look.grew):
            return False
        try:
            data = follower.read(0, LARGEST_SMALL_FILE)
        except OSError:
            return False
        # Replaced by rename, or rewritten: always read whole; the offset only tells change.
        follower.offset = 0
        take(follower.path, data, dag)
        return True

    def _take_status(self, path: Path, data: bytes, dag: Dag) -> None:
        status, problems = read_node_status(path, data)
        self.problems["status"] = problems
        if status is not None and self._is_ours(status.dag_files):
            dag.status = status

    def _is_ours(self, dag_files: tuple[str, ...]) -> bool:
        """Two DAGs in one directory can name the same status file; it says whose it is."""
        return not dag_files or self._name in {Path(f).name for f in dag_files}

    def _take_metrics(self, path: Path, data: bytes, dag: Dag) -> None:
        metrics, problems = read_metrics(path, data)
        self.problems["metrics"] = problems
        if metrics is not None:
            dag.metrics = metrics

    def _look_rescues(self, dag: Dag) -> bool:
        found = []
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    number = rescue_number(entry.name, self._name)
                    if number is not None and entry.is_file():
                        status = entry.stat()
                        found.append((entry.name, status.st_size, status.st_mtime_ns))
        except OSError:
            return False
        listing = tuple(sorted(found))
        if listing == self._rescues:
            return False
        self._rescues = listing
        dag.rescue_files = {}
        self.problems["rescue"] = []
        for name, _, _ in listing:
            self._read_rescue(self._folder / name, dag)
        return True

    def _read_rescue(self, path: Path, dag: Dag) -> None:
        try:
            rescue, problems = read_rescue(path, path.read_bytes())
        except OSError as error:
            self.problems["rescue"].append(
                Problem("unreadable", path.name, None, error.strerror or str(error), False)
            )
            return
        self.problems["rescue"] += problems
        dag.rescue_files[rescue.number] = rescue

    # --- growing files ------------------------------------------------------------------

    def read_some(self, ensemble: Ensemble) -> Changes:
        """Read on in the growing files, a chunk of each."""
        changes = self._read_out(ensemble)
        return changes | self._read_jobstate(ensemble)

    def _read_out(self, ensemble: Ensemble) -> Changes:
        if not self._out.behind:
            return Changes()
        data = _next_chunk(self._out)
        said, self._out_state, used = read_dagman_out(data, self._out_state)
        _advance(self._out, used, len(data))
        return ensemble.hear(self.key, said) if said else Changes()

    def _read_jobstate(self, ensemble: Ensemble) -> Changes:
        if self._jobstate is None or not self._jobstate.behind:
            return Changes()
        data = _next_chunk(self._jobstate)
        entries, problems, used = read_jobstate(data)
        _advance(self._jobstate, used, len(data))
        self.problems.setdefault("jobstate", []).extend(problems)
        return ensemble.read_jobstate(self.key, entries) if entries else Changes()


def _next_chunk(follower: Follower) -> bytes:
    try:
        return follower.read(follower.offset, CHUNK)
    except OSError:
        return b""


def _advance(follower: Follower, used: int, had: int) -> None:
    follower.offset += used
    if used == 0:
        # A torn last line: there is nothing more to do until the file grows.
        follower.size = follower.offset
    elif had < CHUNK:
        follower.size = follower.offset
