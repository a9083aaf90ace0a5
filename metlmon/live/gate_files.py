"""Following what gates and people say of runs: ``gate/<name>/`` and ``placement/<name>/`` beside a
DAG file, where a gate stands before its nodes.

A look costs one ``stat`` for each of these folders as long as no name in them comes, goes or is
replaced. Nothing of it is kept for the next session: it is read again.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, Generic, TypeVar

from metlmon.dagman import Workflow
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
from metlmon.live.follower import DirectoryMtimes
from metlmon.live.fs_timeout import FsTimeout, call_with_timeout
from metlmon.live.regular_files import UnreadableFile, read_file, read_file_end
from metlmon.model.ensemble import Ensemble
from metlmon.model.job_events import NodeKey
from metlmon.model.model_state import Changes, Notice
from metlmon.model.run import gate_name

ANEW_SECONDS: Final = 30.0
"""How often files are looked at that somebody may have written to in place, which changes no name
in their folder; metlmon and the gate replace them."""

FEW: Final = 500
"""Files of a folder that are looked at one by one when it changed: of more (a placement for each
of thousands of nodes) the numbers of their inodes are, which come with their names."""

MOST: Final = 100_000
"""Names of one folder that are looked at."""

AT_ONCE: Final = 20
"""Files that are read before the file system's answer is waited for."""

GATE_LOG: Final = "gate.log"

T = TypeVar("T")

Seen = tuple[int, int, int]
"""Inode, size and mtime of a file; of one of many its inode alone."""


class GateDirectory(Generic[T]):
    """The files of one folder, each as ``read`` makes it of its bytes, as far as ``wanted``."""

    def __init__(
        self, path: Path, wanted: Callable[[str], bool], read: Callable[[Path, str], T]
    ) -> None:
        self.path = path
        self.files: dict[str, tuple[Seen, T]] = {}
        self._wanted, self._read = wanted, read
        self._directory_mtimes = DirectoryMtimes()
        self._checked_at = float("-inf")

    def check(self, now: float) -> bool:
        """See what is new; whether anything is."""
        due = self.files and len(self.files) <= FEW
        due = due and time.monotonic() - self._checked_at >= ANEW_SECONDS
        if not self._directory_mtimes.changed([self.path], now) and not due:
            return False
        self._checked_at = time.monotonic()
        try:
            listed = call_with_timeout(_file_states, self.path, self._wanted)
        except OSError:
            listed = {}
        try:
            return self._update(listed)
        except FsTimeout:
            self._directory_mtimes = DirectoryMtimes()
            raise

    def _update(self, listed: dict[str, Seen]) -> bool:
        new = [name for name, seen in listed.items() if self._known_state(name) != seen]
        found = {name: self.files[name] for name in listed if name not in set(new)}
        for start in range(0, len(new), AT_ONCE):
            names = new[start : start + AT_ONCE]
            read = call_with_timeout(self._read_files, self.path, tuple(names))
            found |= {name: (listed[name], each) for name, each in zip(names, read, strict=True)}
        changed = bool(new) or len(found) != len(self.files)
        self.files = found
        return changed

    def _read_files(self, path: Path, names: tuple[str, ...]) -> list[T]:
        return [self._read(path, name) for name in names]

    def _known_state(self, name: str) -> Seen | None:
        return self.files[name][0] if name in self.files else None


def _file_states(path: Path, wanted: Callable[[str], bool]) -> dict[str, Seen]:
    with os.scandir(path) as entries:
        # The gate follows no link either; whether it is one comes with its name.
        named = (each for each in islice(entries, MOST) if wanted(each.name))
        some = [each for each in named if each.is_file(follow_symlinks=False)]
    if len(some) > FEW:
        return {each.name: (each.inode(), 0, 0) for each in some}
    found: dict[str, Seen] = {}
    for each in some:
        try:
            status = os.lstat(path / each.name)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            found[each.name] = status.st_ino, status.st_size, status.st_mtime_ns
    return found


# --- gate/<name>/ ---------------------------------------------------------------------------


def _is_gate_file(name: str) -> bool:
    return name == GATE_LOG or name.rpartition(".")[2] in _KINDS


_KINDS: Final = frozenset({"stop", "pause", "target", "stopped", "paused"})


def _read_state(folder: Path, name: str) -> tuple[RunGate, str | None]:
    """What one file tells, and why it does not."""
    path, kind = str(folder / name), name.rpartition(".")[2]
    try:
        if name == GATE_LOG:
            count, last = read_log(read_file_end(path, LONGEST).encode())
            more = f" ({count} lines in all)" if count > 1 else ""
            return RunGate(), f"a gate could not decide, and let the epoch train: {last}{more}"
        if kind in ("stop", "pause"):
            when = _request_time(path)
            return (RunGate(stop=when) if kind == "stop" else RunGate(pause=when)), None
        return _parse_gate_file(read_file(path, LONGEST), kind)
    except (UnreadableFile, OSError) as error:
        return RunGate(), f"it cannot be read: {error}"


def _request_time(path: str) -> float:
    """It asks whatever it says, and whoever may read it."""
    try:
        said = read_request(read_file(path, LONGEST))
    except UnreadableFile:
        said = None
    return os.lstat(path).st_mtime if said is None else said


def _parse_gate_file(data: bytes, kind: str) -> tuple[RunGate, str | None]:
    if kind == "target":
        site = read_target(data)
        wrong = None if site else "it names no site: one line without quotes is expected"
        return RunGate(target=site), wrong
    wrong = "it is none that a gate wrote"
    if kind == "paused":
        paused = read_paused(data)
        return RunGate(paused=paused), None if paused else wrong
    stopped = read_stopped(data)
    return RunGate(stopped=stopped), None if stopped else wrong


def _merge_by_run(files: Iterable[tuple[str, RunGate]]) -> dict[str, RunGate]:
    """What all files tell, by run."""
    runs: dict[str, RunGate] = {}
    for name, each in files:
        uuid = name.rpartition(".")[0]
        known = runs.get(uuid, RunGate())
        runs[uuid] = RunGate(
            known.stop if each.stop is None else each.stop,
            known.pause if each.pause is None else each.pause,
            known.target or each.target,
            known.stopped or each.stopped,
            known.paused or each.paused,
        )
    return runs


# --- placement/<name>/ -----------------------------------------------------------------------


def _placements_of(states: Path) -> Path:
    """The folder of the placements of the gate whose own folder this is."""
    return states.parent.parent / "placement" / states.name


def _is_placement(name: str) -> bool:
    return name.endswith(".inc")


def _read_placement(folder: Path, name: str) -> str | None:
    try:
        return read_placement(read_file(str(folder / name), LONGEST))
    except UnreadableFile:
        return None


# --- all of them ----------------------------------------------------------------------------


class GateFiles:
    """The gates of one dagdir."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._gates_by_dag: dict[str, tuple[Workflow, frozenset[str]]] = {}
        self._states: dict[Path, GateDirectory[tuple[RunGate, str | None]]] = {}
        self._placement_directories: dict[Path, GateDirectory[str | None]] = {}
        self._all_changed = False

    def check(self, ensemble: Ensemble) -> Changes:
        """Tell the ensemble what is new."""
        self._all_changed |= self._find_gates(ensemble)
        try:
            changes = self._check_states(ensemble, self._all_changed)
            if self._check_placements() or self._all_changed:
                changes |= ensemble.set_placements(self._placements(ensemble))
        except FsTimeout:
            # What was known stays; some of what is new may have been seen and not been told.
            self._all_changed = True
            return Changes()
        self._all_changed = False
        return changes

    def notices(self) -> list[Notice]:
        """What is wrong with the files, or went wrong with a gate."""
        return [
            Notice("gate", f"gate/{folder.path.name}/{name}", None, wrong)
            for folder in self._states.values()
            for name, (_, (_, wrong)) in sorted(folder.files.items())
            if wrong is not None
        ]

    def _find_gates(self, ensemble: Ensemble) -> bool:
        """Find the gates of DAG files that were read anew; whether there were any."""
        before = self._gates_by_dag
        self._gates_by_dag = {}
        for key, dag in ensemble.dags.items():
            known = before.get(key)
            if known is None or known[0] is not dag.workflow:
                names = map(gate_name, dag.workflow.nodes.values())
                known = dag.workflow, frozenset(name for name in names if name is not None)
            self._gates_by_dag[key] = known
        anew = any(
            before.get(key, (None,))[0] is not workflow
            for key, (workflow, _) in self._gates_by_dag.items()
        )
        if anew or len(before) != len(self._gates_by_dag):
            folders = {path for key in self._gates_by_dag for path in self._folders_of(key)}
            self._states = {
                path: self._states.get(path) or GateDirectory(path, _is_gate_file, _read_state)
                for path in sorted(folders)
            }
            places = map(_placements_of, folders)
            self._placement_directories = {
                path: self._placement_directories.get(path)
                or GateDirectory(path, _is_placement, _read_placement)
                for path in sorted(places)
            }
        return anew

    def _folders_of(self, dag: str) -> list[Path]:
        workflow, names = self._gates_by_dag[dag]
        return [workflow.path.parent / "gate" / name for name in sorted(names)]

    def _check_states(self, ensemble: Ensemble, anew: bool) -> Changes:
        now, changes = self._now(), Changes()
        changed = {path for path, folder in self._states.items() if folder.check(now)}
        # Sub-DAGs of one ensemble have one folder.
        known: dict[tuple[Path, ...], dict[str, RunGate]] = {}
        for key in self._gates_by_dag:
            paths = tuple(self._folders_of(key))
            if not paths or not (anew or changed.intersection(paths)):
                continue
            if paths not in known:
                known[paths] = self._gates_in(paths)
            changes |= ensemble.set_gates(key, known[paths])
        return changes

    def _gates_in(self, paths: Iterable[Path]) -> dict[str, RunGate]:
        return _merge_by_run(
            (name, said)
            for path in paths
            for name, (_, (said, _)) in self._states[path].files.items()
            if name != GATE_LOG
        )

    def _check_placements(self) -> bool:
        now, changed = self._now(), False
        for folder in self._placement_directories.values():
            changed |= folder.check(now)
        return changed

    def _placements(self, ensemble: Ensemble) -> Mapping[NodeKey, str]:
        """The site of every node that was given one, and stands behind a gate: another DAG's
        nodes may have the same names."""
        found: dict[NodeKey, str] = {}
        for key, (workflow, _) in self._gates_by_dag.items():
            for states in self._folders_of(key):
                for name, (_, site) in self._placement_directories[
                    _placements_of(states)
                ].files.items():
                    node = workflow.nodes.get(name.removesuffix(".inc"))
                    if site is not None and node is not None and gate_name(node) == states.name:
                        found[key, node.name] = site
        return found
