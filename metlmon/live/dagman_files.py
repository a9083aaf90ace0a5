"""Following what DAGMan writes beside a DAG file: the small files anew when they change, the
growing ones from where they were left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from metlmon.dagman import (
    OutState,
    Problem,
    Rescue,
    read_condor_sub,
    read_dagman_out,
    read_jobstate,
    read_metrics,
    read_node_status,
    read_rescue,
    rescue_number,
)
from metlmon.live.discovery import read_regular
from metlmon.live.file_errors import FileErrors
from metlmon.live.follower import CHUNK, DirectoryMtimes, FileCheck, Follower
from metlmon.live.fs_timeout import FsTimeout, call_with_timeout
from metlmon.model.dag import Dag
from metlmon.model.ensemble import NOTICES_PER_KIND, Changes, Ensemble

LARGEST_SMALL_FILE: Final = 64 << 20
"""Bytes: rescue, status and metrics files of a hundred thousand nodes are a tenth of this."""


class DagmanFiles:
    """All files of one DAG's DAGMan. ``shared`` are jobstate logs that several DAGs name:
    their lines do not say whose they are."""

    def __init__(self, dag: Dag, shared: frozenset[str]) -> None:
        path = dag.workflow.path
        self.key = dag.key
        self._folder = path.parent
        self._name = path.name
        self._folders = DirectoryMtimes()
        self._out = Follower(path.with_name(f"{path.name}.dagman.out"))
        self._out_state = OutState()
        jobstate = dag.workflow.jobstate_log
        named = jobstate is not None and jobstate not in shared
        self._jobstate = Follower(self._beside(jobstate)) if jobstate and named else None
        self._jobstate_line = 1
        status = dag.workflow.node_status_file
        self._named = (jobstate, status, jobstate in shared)
        self._status = Follower(self._beside(status)) if status else None
        self._metrics = Follower(path.with_name(f"{path.name}.metrics"))
        self._condor_sub = Follower(path.with_name(f"{path.name}.condor.sub"))
        self._rescues: dict[str, tuple[int, int, int]] = {}
        self.problems: dict[str, list[Problem]] = {}
        self.faults = FileErrors()
        self.misjudged = False
        """The DAG file has been changed so that what was heard would be understood otherwise."""

    def fits(self, dag: Dag, shared: frozenset[str]) -> bool:
        """Does the DAG file, written anew, still name the same files?"""
        jobstate, status = dag.workflow.jobstate_log, dag.workflow.node_status_file
        return (jobstate, status, jobstate in shared) == self._named

    def _beside(self, name: str) -> Path:
        """As DAGMan would find it, else beside the DAG file: a copy has no other places."""
        written = self._folder / name
        there = call_with_timeout(os.path.exists, written)
        return written if there else self._folder / Path(name).name

    @property
    def behind(self) -> int:
        """Bytes of the growing files that are still to be read."""
        return self._out.behind + (self._jobstate.behind if self._jobstate else 0)

    @property
    def total(self) -> int:
        """Bytes of the growing files."""
        return self._out.size + (self._jobstate.size if self._jobstate else 0)

    # --- being kept ---------------------------------------------------------------------

    @property
    def growing(self) -> list[Follower]:
        """The growing files that there may be."""
        return [self._out, *([self._jobstate] if self._jobstate is not None else [])]

    def standing(self) -> tuple[OutState, int, list[Problem]]:
        """What must be known beside the files' offsets to read on in them."""
        return self._out_state, self._jobstate_line, list(self.problems.get("jobstate", ()))

    def resume(self, out: OutState, line: int, problems: list[Problem]) -> None:
        """Go on from there (:meth:`standing`)."""
        self._out_state, self._jobstate_line = out, line
        if problems:
            self.problems["jobstate"] = problems

    # --- small files --------------------------------------------------------------------

    def look(self, ensemble: Ensemble, listed: dict[Path, list[str]]) -> Changes:
        """Read the small files that changed, and see how far the growing ones have grown.
        ``listed``: names that other DAGs found in their folders at this look."""
        dag, changed = ensemble.dags[self.key], False
        try:
            self._look_for_named(dag)
            names: Iterable[str] = self._rescues
            if self._folders.changed([self._folder], time.time()):
                names = self._rescue_names(listed)
            changed = self._look_rescues(names, dag)
            changed |= self._look_small(self._status, self._take_status, dag)
            changed |= self._look_small(self._metrics, self._take_metrics, dag)
            changed |= self._look_small(self._condor_sub, self._take_condor_sub, dag)
            halted = call_with_timeout(os.path.exists, self._folder / f"{self._name}.halt")
            changed |= halted != dag.halted
            dag.halted = halted
        except FsTimeout:
            # All names are looked for again, when there is an answer.
            self._folders = DirectoryMtimes()
        forgotten = self._look_growing(dag)
        changes = ensemble.facts_changed(self.key) if changed else Changes()
        return changes | ensemble.words_forgotten(self.key) if forgotten else changes

    def _look_for_named(self, dag: Dag) -> None:
        """A file that the DAG file names may come later than the DAG, to either place."""
        workflow = dag.workflow
        for follower, name in (
            (self._status, workflow.node_status_file),
            (self._jobstate, workflow.jobstate_log),
        ):
            if follower is not None and name and not follower.found:
                follower.path = self._beside(name)

    def _look_growing(self, dag: Dag) -> bool:
        """See how the growing files have grown; True when one of them began anew."""
        forgotten = False
        out = self._out.look()
        self._tell(self._out, out)
        if out.restarted:
            self._out_state = OutState()
            dag.forget_out()
            forgotten = True
        if self._jobstate is not None:
            jobstate = self._jobstate.look()
            self._tell(self._jobstate, jobstate)
            if jobstate.restarted:
                self._jobstate_line = 1
                self.problems["jobstate"] = []
                dag.forget_jobstate()
                forgotten = True
        return forgotten

    def _tell(self, follower: Follower, look: FileCheck) -> None:
        """What cannot be read is told, but not of a file that is not there yet."""
        missing = look.gone and not follower.found
        self.faults.take(follower.path.name, follower, None if missing else look.problem, look.gone)

    def _look_small(
        self, follower: Follower | None, take: Callable[[Path, bytes, Dag], None], dag: Dag
    ) -> bool:
        if follower is None:
            return False
        look = follower.look()
        self._tell(follower, look)
        if look.problem is not None or not (look.restarted or look.grew):
            return False
        try:
            data = follower.read(0, LARGEST_SMALL_FILE)
        except OSError:
            return False
        # Replaced by rename, or rewritten: always read whole; the offset only tells change.
        follower.consume(0)
        take(follower.path, data, dag)
        return True

    def _take_status(self, path: Path, data: bytes, dag: Dag) -> None:
        status, problems = read_node_status(path, data)
        self.problems["status"] = problems
        if dag.status_file is not None and any(problem.kind == "torn-file" for problem in problems):
            # It is being copied: what it said when it was whole is better than half of it.
            return
        if status is not None and self._is_ours(status.dag_files):
            dag.status_file = status

    def _is_ours(self, dag_files: tuple[str, ...]) -> bool:
        """Two DAGs in one directory can name the same status file; it says whose it is."""
        return not dag_files or self._name in {Path(f).name for f in dag_files}

    def _take_metrics(self, path: Path, data: bytes, dag: Dag) -> None:
        metrics, problems = read_metrics(path, data)
        self.problems["metrics"] = problems
        if metrics is not None:
            dag.metrics_file = metrics

    def _take_condor_sub(self, _: Path, data: bytes, dag: Dag) -> None:
        dag.command_line = read_condor_sub(data)

    def _rescue_names(self, listed: dict[Path, list[str]]) -> Iterable[str]:
        if self._folder not in listed:
            # Fifty DAGs beside ten thousand files are no reason to list them fifty times.
            try:
                names = call_with_timeout(os.listdir, self._folder)
            except OSError:
                return self._rescues
            listed[self._folder] = [name for name in names if ".rescue" in name]
        names = listed[self._folder]
        return [name for name in names if rescue_number(name, self._name) is not None]

    def _look_rescues(self, names: Iterable[str], dag: Dag) -> bool:
        found = {}
        for name in sorted(names):
            try:
                status = call_with_timeout(os.stat, self._folder / name)
            except FileNotFoundError:
                continue
            except OSError:
                # Nobody says that it is not there any more: what it told stays.
                return False
            found[name] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if found == self._rescues:
            return False
        here: bool = call_with_timeout(os.path.isdir, self._folder)
        if not (found or here):
            return False
        # All are read before anything is taken over: there may be no answer.
        read = [_read_rescue(self._folder / name) for name in found]
        self._rescues = found
        dag.rescue_files = {each.number: each for each, _ in read if each is not None}
        self.problems["rescue"] = [problem for _, problems in read for problem in problems]
        return True

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
        entries, problems, used = read_jobstate(
            data, file=self._jobstate.path.name, line=self._jobstate_line
        )
        _advance(self._jobstate, used, len(data))
        self._jobstate_line += data.count(b"\n", 0, used)
        known = self.problems.setdefault("jobstate", [])
        known += problems[: NOTICES_PER_KIND - len(known)]
        return ensemble.read_jobstate(self.key, entries) if entries else Changes()


def _read_rescue(path: Path) -> tuple[Rescue | None, list[Problem]]:
    try:
        return read_rescue(path, read_regular(path))
    except OSError as error:
        why = f"the rescue file cannot be read: {error.strerror or error}"
        return None, [Problem("unreadable", path.name, None, why, False)]


def _next_chunk(follower: Follower) -> bytes:
    try:
        return follower.read(follower.offset, CHUNK)
    except OSError:
        return b""


def _advance(follower: Follower, used: int, had: int) -> None:
    follower.consume(follower.offset + used)
    if used == 0:
        # A torn last line: there is nothing more to do until the file grows.
        follower.size = follower.offset
    elif had < CHUNK:
        follower.size = follower.offset
