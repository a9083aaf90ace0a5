"""Inspects the directory that a DAG is to be written to. Changes nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from metlmon.authoring.gate_config import FOLDERS
from metlmon.authoring.write_dag import jobstate_log

_EXECUTABLE = stat.S_IXUSR


def leftovers(directory: Path, name: str) -> tuple[str, ...]:
    """Files of an earlier submission of this DAG, by DAGMan or a gate.

    Includes those of condor_submit_dag. A new DAGMan would take the nodes in a rescue file for
    done; a gate would skip the runs that its files name. Raises OSError.
    """
    try:
        entries = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    folders = (f"{folder}/{name}" for folder in FOLDERS if folder in entries)
    used_folders = [folder for folder in folders if _is_not_empty(directory / folder)]
    return (*sorted(file for file in entries if is_left(file, name)), *used_folders)


def gate_leftovers(leftover_files: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the leftover files that belong to a gate."""
    return tuple(
        entry
        for entry in leftover_files
        if entry.startswith(tuple(f"{gate_folder}/" for gate_folder in FOLDERS))
    )


def _is_not_empty(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_left(file: str, name: str) -> bool:
    """Whether the file name is one that DAGMan uses for the DAG ``name``."""
    return file.startswith(f"{name}.dag.") or file == jobstate_log(name)


def is_locked(leftover_files: tuple[str, ...], name: str) -> bool:
    """Whether DAGMan's lock file exists: it runs, or was killed."""
    return f"{name}.dag.lock" in leftover_files


def other_dags(directory: Path, name: str) -> tuple[str, ...]:
    """Names of the other DAG files in the directory. Raises OSError."""
    try:
        entries = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(
        sorted(file for file in entries if file.endswith(".dag") and file != f"{name}.dag")
    )


def in_the_way(path: Path) -> bool:
    """Whether the path exists, including dangling symbolic links."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def already_there(path: Path, data: bytes, executable: bool) -> bool:
    """Whether a regular file with exactly this content exists."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size != len(data):
            return False
        if executable and not status.st_mode & _EXECUTABLE:
            return False
        return path.read_bytes() == data
    except OSError:
        return False


def same_place(path: Path, other: Path) -> bool:
    """Whether both paths are the same existing file."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False
