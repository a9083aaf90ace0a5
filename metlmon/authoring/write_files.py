"""Writes the files of a plan to disk, either all of them or none."""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from metlmon.authoring.gate_config import FOLDERS
from metlmon.authoring.request import Plan, PlanError, PlannedFile
from metlmon.authoring.write_dag import jobstate_log
from metlmon.live.file_access import draft_name, remove_stale_drafts
from metlmon.text.formatting import listed

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems without hard links (some FUSE and AFS mounts)."""

MAX_NAMES: Final = 10_000
"""Maximum number of names tried for a new directory."""


def write_plan(plan: Plan, overwrite: bool = False) -> tuple[Path, ...]:
    """Write the files of ``plan`` and return their paths, in the plan's order.

    Creates the directory if its parent exists. A file that exists is an error unless ``overwrite``;
    an identical file is left alone. Symbolic links are never followed. Each file is written under a
    temporary name and then moved into place, the DAG last, so that no reader sees a partial file.

    Raises PlanError with the file and the remedy. Nothing has changed then, except when overwriting
    failed after some files had been replaced.
    """
    directory = plan.request.directory
    created = _create_directory(directory)
    try:
        _check_target(directory, plan.request.name)
        changed = [file for file in plan.files if not is_unchanged(directory, plan.dag_file, file)]
        for path in (directory / file.name for file in changed if not overwrite):
            if path_exists(path):
                text = "choose another name or directory, or say that it may be overwritten"
                raise PlanError(f"{path}: is there already; {text}")
        move_into_place(plan, changed, overwrite)
    except BaseException:
        if created:
            with suppress(OSError):
                directory.rmdir()  # Only if it is empty.
        raise
    return tuple(directory / file.name for file in plan.files)


def _create_directory(directory: Path) -> bool:
    """Create the directory; True if it did not exist."""
    try:
        directory.mkdir()
    except FileNotFoundError:
        raise PlanError(f"{directory.parent}: no such directory; make it first") from None
    except (OSError, ValueError) as error:
        if directory.is_dir():
            return False
        reason = "is not a directory; choose another name"
        if not isinstance(error, FileExistsError):
            reason = f"cannot be made: {_reason(error)}"
        raise PlanError(f"{directory}: {reason}") from None
    return True


def is_unchanged(directory: Path, dag_file: str, file: PlannedFile) -> bool:
    """Whether an identical file exists; never true of the DAG file, lest a DAG be written twice."""
    is_same = has_content(directory / file.name, file.data, file.executable)
    return file.name != dag_file and is_same


def _check_target(directory: Path, name: str) -> None:
    """Check the directory again right before writing: the plan may be old."""
    try:
        leftover_files = leftovers(directory, name)
    except OSError as error:
        raise PlanError(f"{directory}: cannot be listed: {_reason(error)}") from None
    if problem := leftover_problem(leftover_files, name):
        raise PlanError(f"{directory}: {problem}")


def move_into_place(plan: Plan, changed: Sequence[PlannedFile], overwrite: bool) -> None:
    """Write files of a plan under temporary names, then move them into place, the DAG last."""
    path = directory = plan.request.directory
    files = sorted(changed, key=lambda file: file.name == plan.dag_file)
    for file in files:
        path = directory / file.name
        if path.is_dir() and not path.is_symlink():
            raise PlanError(f"{path}: is a directory; choose another name or directory")
    drafts: list[tuple[Path, Path]] = []
    placed: list[Path] = []
    remove_stale_drafts(directory, [file.name for file in files])
    try:
        for file in files:
            path = directory / file.name
            draft = directory / draft_name(file.name)
            drafts.append((draft, path))
            _write_file(draft, file)
        from concurrent.futures import ThreadPoolExecutor  # Imported late: it is slow.

        # In a thread, which Ctrl-C does not interrupt; other signals wait for the quick renames.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGHUP))
        try:
            with ThreadPoolExecutor(1) as executor:
                executor.submit(_place, drafts, placed, overwrite).result()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    except BaseException as error:  # all or nothing, also on Ctrl-C
        for written in placed:
            written.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise PlanError(f"{path}: cannot be written: {_reason(error)}") from None
        raise
    finally:
        for draft, _ in drafts:
            draft.unlink(missing_ok=True)


def _place(drafts: Sequence[tuple[Path, Path]], placed: list[Path], overwrite: bool) -> None:
    """Rename each draft to its path, added to ``placed`` unless it may have existed."""
    for draft, path in drafts:
        try:
            if overwrite:
                os.replace(draft, path)
            else:
                _link_if_absent(draft, path)
                placed.append(path)
        except FileExistsError:
            text = f"{path}: came there a moment ago; choose another name or directory"
            raise PlanError(text) from None
        except OSError as error:
            raise PlanError(f"{path}: cannot be written: {_reason(error)}") from None


def _write_file(path: Path, file: PlannedFile) -> None:
    """Write a new file and sync it, so that a full disk or quota is noticed here."""
    mode = 0o755 if file.executable else 0o644
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(handle, "wb") as out:
        out.write(file.data)
        out.flush()
        os.fsync(out.fileno())


def _link_if_absent(draft: Path, path: Path) -> None:
    """Move the draft into place. Raises FileExistsError if the path exists."""
    try:
        os.link(draft, path, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Create exclusively, then replace: the file is empty for a moment.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.replace(draft, path)


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


# --- the target directory ------------------------------------------------------------------------


def new_directory(path: Path) -> Path:
    """A directory that does not exist yet: ``path``, or with a number appended, ``NAME-2``, …"""
    numbered = (Path(f"{path}-{n}") for n in range(2, MAX_NAMES))
    return next((each for each in (path, *numbered) if not each.exists()), path)


def leftovers(directory: Path, name: str) -> tuple[str, ...]:
    """Files of an earlier submission of this DAG, by DAGMan or a gate.

    Includes those of condor_submit_dag. A new DAGMan would take the nodes in a rescue file for
    done; a gate would skip the runs that its files name. Raises OSError.
    """
    entries = _entries(directory)
    folders = (f"{folder}/{name}" for folder in FOLDERS if folder in entries)
    used_folders = [folder for folder in folders if _entries(directory / folder)]
    return (*sorted(file for file in entries if is_dagman_file(file, name)), *used_folders)


def leftover_problem(leftover_files: tuple[str, ...], name: str) -> str | None:
    """Why a DAG of this name cannot be written among these files; None if it can."""
    if is_locked(leftover_files, name):
        return f"{name}.dag.lock: a DAGMan runs this DAG; choose another name or directory"
    if not leftover_files:
        return None
    return (
        f"{name}.dag was submitted from here before and left {listed(leftover_files)}: a new "
        "DAGMan would go on from these; choose another name or directory, or move them away"
    )


def _entries(directory: Path) -> list[str]:
    """The names in a directory; empty if it does not exist."""
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def gate_leftovers(leftover_files: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the leftover files that belong to a gate."""
    folders = tuple(f"{gate_folder}/" for gate_folder in FOLDERS)
    return tuple(entry for entry in leftover_files if entry.startswith(folders))


def is_dagman_file(file: str, name: str) -> bool:
    """Whether the file name is one that DAGMan uses for the DAG ``name``."""
    return file.startswith(f"{name}.dag.") or file == jobstate_log(name)


def is_locked(leftover_files: tuple[str, ...], name: str) -> bool:
    """Whether DAGMan's lock file exists: it runs, or was killed."""
    return f"{name}.dag.lock" in leftover_files


def other_dags(directory: Path, name: str) -> tuple[str, ...]:
    """Names of the other DAG files in the directory. Raises OSError."""
    entries = sorted(_entries(directory))
    return tuple(file for file in entries if file.endswith(".dag") and file != f"{name}.dag")


def path_exists(path: Path) -> bool:
    """Whether the path exists, including dangling symbolic links."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        # No file can have a name with a NUL.
        return False
    except OSError:
        return True
    return True


def has_content(path: Path, data: bytes, executable: bool) -> bool:
    """Whether a regular file with exactly this content exists."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size != len(data):
            return False
        if executable and not status.st_mode & stat.S_IXUSR:
            return False
        return path.read_bytes() == data
    except OSError:
        return False


def is_same_file(path: Path, other: Path) -> bool:
    """Whether both paths are the same existing file."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False
