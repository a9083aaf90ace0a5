"""The directory a DAG is to be written to: what lies there already, and what of it is a
danger. Looked at, never touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from metlmon.authoring.gate_config import FOLDERS
from metlmon.authoring.write_dag import jobstate_log

_EXECUTABLE = stat.S_IXUSR


def leftovers(directory: Path, name: str) -> tuple[str, ...]:
    """What DAGMan, condor_submit_dag and a gate left of a DAG with this name: rescue files above
    all, whose nodes a new DAGMan would take for done, and answers of a gate, by which it would
    leave runs out. Raises OSError."""
    try:
        there = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    folders = (f"{folder}/{name}" for folder in FOLDERS if folder in there)
    held = [folder for folder in folders if _holds_something(directory / folder)]
    return (*sorted(n for n in there if is_left(n, name)), *held)


def answers(left: tuple[str, ...]) -> tuple[str, ...]:
    """What of it is of a gate."""
    return tuple(each for each in left if each.startswith(tuple(f"{name}/" for name in FOLDERS)))


def _holds_something(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_left(file: str, name: str) -> bool:
    """Whether a file of this name would be taken for one that DAGMan left of the DAG ``name``."""
    return file.startswith(f"{name}.dag.") or file == jobstate_log(name)


def is_locked(left: tuple[str, ...], name: str) -> bool:
    """Whether DAGMan's lock file is there: it runs, or was killed."""
    return f"{name}.dag.lock" in left


def other_dags(directory: Path, name: str) -> tuple[str, ...]:
    """Names of other DAG files there. Raises OSError."""
    try:
        there = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(sorted(n for n in there if n.endswith(".dag") and n != f"{name}.dag"))


def in_the_way(path: Path) -> bool:
    """Whether anything at all is at this place, a link that leads nowhere included."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def already_there(path: Path, data: bytes, executable: bool) -> bool:
    """Whether a regular file with just these bytes lies there already."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size != len(data):
            return False
        if executable and not status.st_mode & _EXECUTABLE:
            return False
        return path.read_bytes() == data
    except OSError:
        return False


def same_place(one: Path, other: Path) -> bool:
    """Whether both are one file that is there."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
