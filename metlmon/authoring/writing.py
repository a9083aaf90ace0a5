"""A plan → files on disk, all of them or none."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from metlmon.authoring.place import already_there, in_the_way, is_locked, leftovers
from metlmon.authoring.records import Plan, PlanError, PlannedFile

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""What file systems without hard links answer (some FUSE and AFS mounts)."""


def write_plan(plan: Plan, overwrite: bool = False) -> tuple[Path, ...]:
    """Write the plan's files; their paths, in the plan's order.

    The directory is made when its parent is there. A file that exists is an error, unless
    ``overwrite``; one with the same bytes is left as it is. Links are never followed. Each
    file is written under another name and then put in its place, the DAG as the last one, so
    that no reader meets half of one. Raises PlanError with the file and what to do; then all
    is as before, unless a file could not be overwritten after others had been.
    """
    directory = plan.request.directory
    made = _make(directory)
    try:
        _refuse(plan, overwrite)
        last_is_dag = sorted(plan.files, key=lambda file: file.name == plan.dag_file)
        _place(directory, [f for f in last_is_dag if not _kept(plan, f)], overwrite)
    except BaseException:
        if made:
            _quietly_remove_directory(directory)
        raise
    return tuple(directory / file.name for file in plan.files)


def _make(directory: Path) -> bool:
    """Whether the directory was not there and is now."""
    try:
        directory.mkdir()
        return True
    except FileExistsError:
        if directory.is_dir():
            return False
        raise PlanError(f"{directory}: is no directory; choose another name") from None
    except FileNotFoundError:
        raise PlanError(f"{directory.parent}: no such directory; make it first") from None
    except (OSError, ValueError) as error:
        raise PlanError(f"{directory}: cannot be made: {_why(error)}") from None


def _quietly_remove_directory(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        return


def _kept(plan: Plan, file: PlannedFile) -> bool:
    path = plan.request.directory / file.name
    return file.name != plan.dag_file and already_there(path, file.data, file.executable)


def _refuse(plan: Plan, overwrite: bool) -> None:
    """Looks once more, right before writing: the plan may be an hour old."""
    directory, name = plan.request.directory, plan.request.name
    try:
        left = leftovers(directory, name)
    except OSError as error:
        raise PlanError(f"{directory}: cannot be listed: {_why(error)}") from None
    if left:
        lock = is_locked(left, name)
        what = "a DAGMan runs this DAG" if lock else f"{left[0]} is left of an earlier submission"
        text = f"{directory / plan.dag_file}: {what}; choose another name or directory"
        raise PlanError(text)
    for file in plan.files:
        path = directory / file.name
        if not in_the_way(path) or _kept(plan, file):
            continue
        if not overwrite:
            raise PlanError(
                f"{path}: is there already; choose another name or directory, or say that it "
                "may be overwritten"
            )
        if path.is_dir() and not path.is_symlink():
            raise PlanError(f"{path}: is a directory; choose another name or directory")


def _place(directory: Path, files: Sequence[PlannedFile], overwrite: bool) -> None:
    drafts: list[tuple[Path, Path]] = []
    placed: list[Path] = []
    path = directory
    try:
        for file in files:
            path = directory / file.name
            draft = directory / f".{file.name}.{secrets.token_hex(6)}"
            drafts.append((draft, path))
            _write(draft, file)
        for draft, path in drafts:
            if overwrite:
                os.replace(draft, path)
            else:
                _link(draft, path)
                placed.append(path)
    except BaseException as error:  # ctrl-c, too, leaves all or nothing
        for there in placed:
            there.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            text = f"{path}: came there a moment ago; choose another name or directory"
            raise PlanError(text) from None
        if isinstance(error, OSError):
            raise PlanError(f"{path}: cannot be written: {_why(error)}") from None
        raise
    finally:
        for draft, _ in drafts:
            draft.unlink(missing_ok=True)


def _write(path: Path, file: PlannedFile) -> None:
    """A new file, on disk when this returns: a full disk or quota shows here, not later."""
    mode = 0o755 if file.executable else 0o644
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(handle, "wb") as out:
        out.write(file.data)
        out.flush()
        os.fsync(out.fileno())


def _link(draft: Path, path: Path) -> None:
    """Puts the draft in its place if nothing is there. Raises FileExistsError."""
    try:
        os.link(draft, path, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Claimed first, then replaced: for a moment there is an empty file of that name.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.replace(draft, path)


def _why(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
