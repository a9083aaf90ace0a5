"""Follows the gate's files, in ``gate/<name>/`` and ``placement/<name>/``.

A check costs one ``stat`` for each of these directories as long as no name in them is added,
removed or replaced.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from metlmon.dagman.records import Workflow
from metlmon.jobfiles.gate_files import (
    LONGEST,
    RunGate,
    read_log,
    read_paused,
    read_placement,
    read_request,
    read_stopped,
    read_target,
)
from metlmon.live.file_access import (
    UnreadableFile,
    call_with_timeout,
    file_state,
    read_file,
    read_file_end,
)
from metlmon.live.follower import DirectoryMtimes
from metlmon.model.ensemble import Ensemble
from metlmon.model.job_events import NodeKey
from metlmon.model.model_state import Notice
from metlmon.model.run import gate_name
from metlmon.redact import visible
from metlmon.remote import filesystem
from metlmon.remote.paths import NoAnswer

RECHECK_SECONDS: Final = 30.0
"""Interval of checking files that a user may have edited in place, which does not change their
directory; metlmon and the gate replace files."""

MAX_STATUSES: Final = 500
"""Maximum number of files that are all checked by ``stat`` when their directory has changed; of
more (a placement for each of thousands of nodes) only the inode numbers are compared."""

MAX_NAMES: Final = 100_000
"""Maximum number of names read in one directory."""

FILES_PER_CALL: Final = 20
"""Files read in one file-system call."""

GATE_LOG: Final = "gate.log"

_READERS: Final[dict[str, tuple[Callable[[bytes], Any], str]]] = {
    "target": (read_target, "it names no site: one line without quotes is expected"),
    "stopped": (read_stopped, "it is none that a gate wrote"),
    "paused": (read_paused, "it is none that a gate wrote"),
}
"""Readers of the files ``<uuid>.<kind>``, and the problem of an invalid one."""

_REQUESTS: Final = frozenset({"stop", "pause"})

T = TypeVar("T")


class GateDirectory(Generic[T]):
    """The wanted files of one directory; ``read`` returns the content of a file."""

    def __init__(
        self, path: Path, is_wanted: Callable[[str], bool], read: Callable[[Path, str], T]
    ) -> None:
        self.path = path
        self.files: dict[str, tuple[tuple[int, ...], T]] = {}
        """State and content of each file, by name."""
        self._is_wanted, self._read = is_wanted, read
        self._directory_mtimes = DirectoryMtimes()
        self._checked_at = float("-inf")

    def check(self, now: float) -> bool:
        """Read new and changed files; return whether there were any. Raises NoAnswer."""
        due = time.monotonic() - self._checked_at >= RECHECK_SECONDS
        due = due and 0 < len(self.files) <= MAX_STATUSES
        if not self._directory_mtimes.changed([self.path], now) and not due:
            return False
        self._checked_at = time.monotonic()
        listed: dict[str, tuple[int, ...]] = {}
        try:
            with suppress(OSError):
                listed = call_with_timeout(_file_states, self.path, self._is_wanted)
            return self._update(listed)
        except NoAnswer:
            self._directory_mtimes = DirectoryMtimes()
            raise

    def _update(self, listed: dict[str, tuple[int, ...]]) -> bool:
        files = {
            name: self.files[name]
            for name, state in listed.items()
            if name in self.files and self.files[name][0] == state
        }
        new = [name for name in listed if name not in files]
        changed = bool(new) or len(files) != len(self.files)
        for start in range(0, len(new), FILES_PER_CALL):
            names = tuple(new[start : start + FILES_PER_CALL])
            contents = call_with_timeout(self._read_files, self.path, names)
            files |= {n: (listed[n], content) for n, content in zip(names, contents, strict=True)}
        self.files = files
        return changed

    def _read_files(self, path: Path, names: tuple[str, ...]) -> list[T]:
        return [self._read(path, name) for name in names]


def _file_states(path: Path, is_wanted: Callable[[str], bool]) -> dict[str, tuple[int, ...]]:
    """Inode, size and mtime of each wanted file; only the inodes if there are many files."""
    with filesystem.scandir(path) as entries:
        # Like the gate, this does not follow links.
        wanted = [
            entry
            for entry in islice(entries, MAX_NAMES)
            if is_wanted(entry.name) and entry.is_file(follow_symlinks=False)
        ]
    if len(wanted) > MAX_STATUSES:
        return {entry.name: (entry.inode(),) for entry in wanted}
    states = {entry.name: file_state(str(path / entry.name)) for entry in wanted}
    return {name: state for name, state in states.items() if state is not None}


def _is_gate_file(name: str) -> bool:
    kind = name.rpartition(".")[2]
    return name == GATE_LOG or kind in _REQUESTS or kind in _READERS


def _read_state(folder: Path, name: str) -> tuple[Any, str | None]:
    """The value of one gate file, as in :class:`RunGate`, and its problem."""
    path, kind = str(folder / name), name.rpartition(".")[2]
    try:
        if name == GATE_LOG:
            count, last = read_log(read_file_end(path, LONGEST).encode())
            more = f" ({count} lines in all)" if count > 1 else ""
            return None, f"a gate could not decide, and let the epoch train: {last}{more}"
        if kind in _REQUESTS:
            return _request_time(path), None
        read, problem = _READERS[kind]
        value = read(read_file(path, LONGEST))
        return value, None if value else problem
    except UnreadableFile as error:
        return None, str(error)
    except OSError as error:
        return None, f"it cannot be read: {error.strerror}"


def _request_time(path: str) -> float:
    """When a request was written; it is valid whatever it contains."""
    try:
        written = read_request(read_file(path, LONGEST))
    except UnreadableFile:
        written = None
    return filesystem.lstat(path).st_mtime if written is None else written


def _read_placement(folder: Path, name: str) -> str | None:
    try:
        return read_placement(read_file(str(folder / name), LONGEST))
    except UnreadableFile:
        return None


class _Gate:
    """The two directories of one gate."""

    def __init__(self, states: Path) -> None:
        placements = states.parent.parent / "placement" / states.name
        self.states = GateDirectory(states, _is_gate_file, _read_state)
        self.placements = GateDirectory(
            placements, lambda name: name.endswith(".inc"), _read_placement
        )


class GateFiles:
    """The gates of one dagdir."""

    def __init__(self) -> None:
        self._folders_by_dag: dict[str, tuple[Workflow, tuple[Path, ...]]] = {}
        self._gates: dict[Path, _Gate] = {}
        self._changed = False
        self.are_used = False
        """Whether :meth:`check` has anything to do; most ensembles have no gate."""

    def find(self, ensemble: Ensemble) -> None:
        """Find the gates of the DAGs, when DAG files have been read."""
        self._folders_by_dag = {
            key: (dag.workflow, _gate_folders(dag.workflow)) for key, dag in ensemble.dags.items()
        }
        paths = sorted({path for _, paths in self._folders_by_dag.values() for path in paths})
        self._gates = {path: self._gates.get(path) or _Gate(path) for path in paths}
        self._changed = self.are_used = True

    def check(self, ensemble: Ensemble, now: float) -> bool:
        """Update the ensemble from new and changed files; return whether anything changed.

        ``now``: seconds since 1970 by the clock of the dagdir's machine.
        """
        try:
            for gate in self._gates.values():
                self._changed |= gate.states.check(now)
                self._changed |= gate.placements.check(now)
        except NoAnswer:
            return False
        if not self._changed:
            return False
        is_new = ensemble.set_placements(self._placements())
        # Sub-DAGs of one ensemble share a directory.
        folders = {paths for _, paths in self._folders_by_dag.values()}
        runs = {paths: self._run_gates(paths) for paths in folders}
        for key, (_, paths) in self._folders_by_dag.items():
            is_new |= ensemble.set_gates(key, runs[paths])
        self._changed, self.are_used = False, bool(self._gates)
        return is_new

    def notices(self) -> list[Notice]:
        """Return the problems of the files, and of the gates."""
        return [
            Notice("gate", f"gate/{path.name}/{name}", None, problem)
            for path, gate in self._gates.items()
            for name, (_, (_, problem)) in sorted(gate.states.files.items())
            if problem is not None
        ]

    def _run_gates(self, paths: tuple[Path, ...]) -> dict[str, RunGate]:
        """The contents of all gate files in these directories, by run uuid as in the records."""
        values: dict[str, dict[str, Any]] = {}
        for path in paths:
            for name, (_, (value, _)) in self._gates[path].states.files.items():
                uuid, _, kind = name.rpartition(".")
                if name != GATE_LOG:
                    run = values.setdefault(visible(uuid), {})
                    run[kind] = value if run.get(kind) is None else run[kind]
        return {uuid: RunGate(**run) for uuid, run in values.items()}

    def _placements(self) -> dict[NodeKey, str]:
        """The site of every node with a gate and a placement.

        Another DAG's nodes may have the same names.
        """
        sites: dict[NodeKey, str] = {}
        for key, (workflow, paths) in self._folders_by_dag.items():
            for path in paths:
                for name, (_, site) in self._gates[path].placements.files.items():
                    node = workflow.nodes.get(name.removesuffix(".inc"))
                    if site is not None and node is not None and gate_name(node) == path.name:
                        sites[key, node.name] = site
        return sites


def _gate_folders(workflow: Workflow) -> tuple[Path, ...]:
    names = {gate_name(node) for node in workflow.nodes.values()} - {None}
    return tuple(workflow.path.parent / "gate" / name for name in sorted(filter(None, names)))
