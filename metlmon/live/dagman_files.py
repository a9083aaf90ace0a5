"""Follows the files that DAGMan writes next to a DAG file.

Small files are read again when they change, growing ones from the last offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from metlmon.dagman.dagman_out import OutState, read_dagman_out
from metlmon.dagman.records import DagmanMessageKind, Problem, Rescue
from metlmon.dagman.reports import (
    read_condor_sub,
    read_jobstate,
    read_metrics,
    read_node_status,
    read_rescue,
    rescue_number,
)
from metlmon.live.file_access import call_with_timeout, read_regular_file
from metlmon.live.follower import CHUNK, DirectoryMtimes, FileCheck, FileErrors, Follower
from metlmon.model.dag import Dag
from metlmon.model.ensemble import NOTICES_PER_KIND, Ensemble
from metlmon.remote import filesystem
from metlmon.remote.paths import NoAnswer

MAX_SMALL_FILE_BYTES: Final = 64 << 20
"""Ten times the size of rescue, status and metrics files for 100,000 nodes."""


class DagmanFiles:
    """The DAGMan files of one DAG.

    ``shared``: jobstate logs named by several DAGs, whose lines do not identify the DAG.
    """

    def __init__(self, dag: Dag, shared: frozenset[str]) -> None:
        path = dag.workflow.path
        self.key = dag.key
        self._directory = path.parent
        self._name = path.name
        self._halt_file = path.with_name(f"{path.name}.halt")
        self._directory_mtimes = DirectoryMtimes()
        self._out = Follower(path.with_name(f"{path.name}.dagman.out"))
        self._out_state = OutState()
        self._submitted: set[int] = set()
        self._events_offset: int | None = None
        """The next offset at which job events are read, if a job of this DAG is in no log."""
        self._events_state = OutState(with_events=True)
        jobstate = dag.workflow.jobstate_log
        named = jobstate is not None and jobstate not in shared
        self._jobstate = Follower(self._locate(jobstate, dag)) if jobstate and named else None
        self._jobstate_line = 1
        status = dag.workflow.node_status_file
        self._file_names = (jobstate, status, jobstate in shared)
        self._status = Follower(self._locate(status, dag)) if status else None
        self._metrics = Follower(path.with_name(f"{path.name}.metrics"))
        self._condor_sub = Follower(path.with_name(f"{path.name}.condor.sub"))
        self._rescues: dict[str, tuple[int, int, int]] = {}
        self.problems: dict[str, list[Problem]] = {}
        self.file_errors = FileErrors()

    def names_same_files(self, dag: Dag, shared: frozenset[str]) -> bool:
        """Whether the rewritten DAG file names the same files."""
        jobstate, status = dag.workflow.jobstate_log, dag.workflow.node_status_file
        return (jobstate, status, jobstate in shared) == self._file_names

    def _locate(self, name: str, dag: Dag) -> Path:
        """Return the path as DAGMan resolves it, or, if missing, that beside the DAG file."""
        path = dag.workflow.path_of(name)
        exists = call_with_timeout(filesystem.exists, path)
        return path if exists else self._directory / Path(name).name

    @property
    def unread_bytes(self) -> int:
        """Unread bytes of the growing files."""
        unread = self._out.unread_bytes + (self._jobstate.unread_bytes if self._jobstate else 0)
        return unread + self._unread_events

    @property
    def _unread_events(self) -> int:
        return 0 if self._events_offset is None else self._out.offset - self._events_offset

    @property
    def are_answered(self) -> bool:
        """Whether the file system has answered the last call for each growing file."""
        return self._out.is_answered and (self._jobstate is None or self._jobstate.is_answered)

    @property
    def total_bytes(self) -> int:
        """Bytes of the growing files."""
        return self._out.size + (self._jobstate.size if self._jobstate else 0)

    # --- small files --------------------------------------------------------------------

    def check(self, ensemble: Ensemble, listed: dict[Path, list[str]]) -> bool:
        """Read changed small files and check the growing ones; return whether any changed.

        ``listed``: names of rescue files by directory, shared by all DAGs of this check.
        """
        dag, changed = ensemble.dags[self.key], False
        try:
            self._relocate_missing(dag)
            names: Iterable[str] = self._rescues
            if self._directory_mtimes.changed([self._directory], filesystem.now(self._directory)):
                names = self._rescue_names(listed)
            changed = self._check_rescues(names, dag)
            for follower in (self._status, self._metrics, self._condor_sub):
                data = None if follower is None else self._changed_content(follower)
                if follower is None or data is None:
                    continue
                changed = True
                if follower is self._status:
                    self._set_status(follower.path, data, dag)
                elif follower is self._metrics:
                    metrics, self.problems["metrics"] = read_metrics(follower.path, data)
                    dag.metrics_file = metrics or dag.metrics_file
                else:
                    dag.condor_sub = read_condor_sub(data)
            halted = call_with_timeout(filesystem.exists, self._halt_file)
            changed |= halted != dag.halted
            dag.halted = halted
        except NoAnswer:
            # List all names again once the file system responds.
            self._directory_mtimes = DirectoryMtimes()
        restarted = self._check_growing(dag)
        if changed:
            ensemble.dag_facts_changed(self.key)
        if restarted:
            ensemble.reset_dagman_messages(self.key)
        return changed or restarted

    def _relocate_missing(self, dag: Dag) -> None:
        """Locate again the named files that do not exist yet."""
        workflow = dag.workflow
        for follower, name in (
            (self._status, workflow.node_status_file),
            (self._jobstate, workflow.jobstate_log),
        ):
            if follower is not None and name and not follower.was_readable:
                follower.path = self._locate(name, dag)

    def _check_growing(self, dag: Dag) -> bool:
        """Check the growing files; return whether one of them restarted."""
        restarted = False
        out = self._out.check()
        self._update_errors(self._out, out)
        if out.restarted:
            self._out_state, self._events_state = OutState(), OutState(with_events=True)
            self._events_offset = None if self._events_offset is None else 0
            dag.reset_out()
            restarted = True
        if self._jobstate is not None:
            jobstate = self._jobstate.check()
            self._update_errors(self._jobstate, jobstate)
            if jobstate.restarted:
                self._jobstate_line = 1
                self.problems["jobstate"] = []
                dag.reset_jobstate()
                restarted = True
        return restarted

    def _update_errors(self, follower: Follower, check: FileCheck) -> None:
        """Record a read error, except for a file that has not existed yet."""
        missing = check.missing and not follower.was_readable
        self.file_errors.update(
            follower.path.name, follower, None if missing else check.problem, check.missing
        )

    def _changed_content(self, follower: Follower) -> bytes | None:
        """The content of a small file that has changed; else None."""
        check = follower.check()
        self._update_errors(follower, check)
        if check.problem is not None or not (check.restarted or check.grew):
            return None
        try:
            data = follower.read(0, MAX_SMALL_FILE_BYTES)
        except OSError:
            return None
        # Replaced or rewritten: always read it whole; the offset is only used to detect changes.
        follower.consume(0)
        return data

    def _set_status(self, path: Path, data: bytes, dag: Dag) -> None:
        status, problems = read_node_status(path, data)
        self.problems["status"] = problems
        if dag.status_file is not None and any(problem.kind == "torn-file" for problem in problems):
            return  # It is being copied: keep the last complete state.
        if status is None:
            return
        # Several DAGs may share a status file.
        if not status.dag_files or self._name in {Path(f).name for f in status.dag_files}:
            dag.status_file = status

    def _rescue_names(self, listed: dict[Path, list[str]]) -> Iterable[str]:
        if self._directory not in listed:
            # Each directory is listed once for all its DAGs.
            try:
                names = call_with_timeout(filesystem.listdir, self._directory)
            except OSError:
                return self._rescues
            listed[self._directory] = [name for name in names if ".rescue" in name]
        names = listed[self._directory]
        return [name for name in names if rescue_number(name, self._name) is not None]

    def _check_rescues(self, names: Iterable[str], dag: Dag) -> bool:
        signatures = {}
        for name in sorted(names):
            try:
                status = call_with_timeout(filesystem.stat, self._directory / name)
            except FileNotFoundError:
                continue
            except OSError:
                # It may still exist: keep what was read from it.
                return False
            signatures[name] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if signatures == self._rescues:
            return False
        directory_exists: bool = call_with_timeout(filesystem.isdir, self._directory)
        if not (signatures or directory_exists):
            return False
        # Read all before changing anything, since a read may time out.
        results = [_read_rescue(self._directory / name) for name in signatures]
        self._rescues = signatures
        dag.rescue_files = {rescue.number: rescue for rescue, _ in results if rescue is not None}
        self.problems["rescue"] = [problem for _, problems in results for problem in problems]
        return True

    # --- growing files ------------------------------------------------------------------

    def read_some(self, ensemble: Ensemble) -> bool:
        """Read the next chunk of each growing file; return whether any had a message."""
        has_messages = self._read_out(ensemble)
        has_messages |= self._read_events(ensemble)
        return self._read_jobstate(ensemble) or has_messages

    def find_unlogged_jobs(self, ensemble: Ensemble) -> bool:
        """Start reading job events from ``.dagman.out`` if a submitted job is in no log here.

        Call this when all logs have been read; returns whether more can be read now.
        """
        submitted, self._submitted = self._submitted, set()
        if self._events_offset is None and not all(map(ensemble.has_job, submitted)):
            self._events_offset = 0
        return self._unread_events > 0

    def _read_events(self, ensemble: Ensemble) -> bool:
        if not self._unread_events or self._events_offset is None:
            return False
        size = min(CHUNK, self._unread_events)
        try:
            data = self._out.read(self._events_offset, size)
        except OSError:
            return False
        messages, self._events_state, consumed = read_dagman_out(data, self._events_state)
        # Without a complete line, these bytes are a line that the other parser skipped.
        self._events_offset += consumed or len(data)
        kinds = DagmanMessageKind.JOB_EVENT, DagmanMessageKind.EXITED
        events = [message for message in messages if message.kind in kinds]
        if events:
            ensemble.apply_reported_events(self.key, events)
        return bool(events)

    def _read_out(self, ensemble: Ensemble) -> bool:
        if not self._out.unread_bytes:
            return False
        data = _next_chunk(self._out)
        messages, self._out_state, consumed = read_dagman_out(data, self._out_state)
        _advance(self._out, consumed, len(data))
        if messages:
            self._submitted.update(
                line.cluster
                for line in messages
                if line.kind is DagmanMessageKind.SUBMITTED and line.cluster
            )
            ensemble.apply_dagman_messages(self.key, messages)
        return bool(messages)

    def _read_jobstate(self, ensemble: Ensemble) -> bool:
        if self._jobstate is None or not self._jobstate.unread_bytes:
            return False
        data = _next_chunk(self._jobstate)
        entries, problems, consumed = read_jobstate(
            data, file=self._jobstate.path.name, line=self._jobstate_line
        )
        _advance(self._jobstate, consumed, len(data))
        self._jobstate_line += data.count(b"\n", 0, consumed)
        known = self.problems.setdefault("jobstate", [])
        known += problems[: NOTICES_PER_KIND - len(known)]
        if entries:
            ensemble.apply_jobstate(self.key, entries)
        return bool(entries)


def _read_rescue(path: Path) -> tuple[Rescue | None, list[Problem]]:
    try:
        return read_rescue(path, read_regular_file(path))
    except OSError as error:
        text = f"the rescue file cannot be read: {error.strerror or error}"
        return None, [Problem("unreadable", path.name, None, text, False)]


def _next_chunk(follower: Follower) -> bytes:
    try:
        return follower.read(follower.offset, CHUNK)
    except OSError:
        return b""


def _advance(follower: Follower, consumed: int, read: int) -> None:
    follower.consume(follower.offset + consumed)
    if consumed == 0:
        # An incomplete last line: wait until the file grows.
        follower.size = follower.offset
    elif read < CHUNK:
        follower.size = follower.offset


def shared_jobstate_logs(dags: list[Dag]) -> frozenset[str]:
    """Return the jobstate logs named by several DAGs of one directory."""
    seen: set[tuple[Path, str]] = set()
    shared: set[str] = set()
    for dag in dags:
        name = dag.workflow.jobstate_log
        if name is None:
            continue
        location = (dag.workflow.directory, name)
        if location in seen:
            shared.add(name)
        seen.add(location)
    return frozenset(shared)
