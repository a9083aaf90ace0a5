"""A plan → files on disk, all of them or none."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metlmon.authoring.request import Plan, PlanError, PlannedFile
from metlmon.authoring.target_directory import already_there, in_the_way, is_locked, leftovers
from metlmon.drafts import draft_name, remove_stale_drafts

if TYPE_CHECKING:
    from metlmon.authoring.diff import PlanDiff

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""What file systems without hard links answer (some FUSE and AFS mounts)."""

_ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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


def amend_plan(plan: Plan, found: PlanDiff) -> tuple[Path, ...]:
    """Write what ``found``, made of this plan, says is added or changed; the paths that were
    written. What was changed by hand is replaced as far as ``found`` was asked to. Nothing is
    written if it holds a refusal, or if DAGMan came or went meanwhile. All as with
    :func:`write_plan`, which is for a directory with no DAG of this name."""
    directory, name = plan.request.directory, plan.request.name
    if found.refusal is not None:
        raise PlanError(found.refusal)
    left = leftovers(directory, name)
    if is_locked(left, name) or left != found.left:
        text = f"a DAGMan has taken {plan.dag_file} meanwhile, or left it; look at it again"
        raise PlanError(f"{directory / plan.dag_file}: {text}")
    to_write = {each.name for each in found.files if each.how in ("added", "changed")}
    to_write -= set(found.keeps)
    files = [file for file in plan.files if file.name in to_write]
    for file in files:
        path = directory / file.name
        if path.is_dir() and not path.is_symlink():
            raise PlanError(f"{path}: is a directory; choose another name or directory")
    _place(directory, sorted(files, key=lambda file: file.name == plan.dag_file), overwrite=True)
    for old in found.drops:
        (directory / old).unlink(missing_ok=True)
    return tuple(directory / file.name for file in files)


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
    remove_stale_drafts(directory, [file.name for file in files])
    try:
        for file in files:
            path = directory / file.name
            draft = directory / draft_name(file.name)
            drafts.append((draft, path))
            _write(draft, file)
        with _undisturbed():
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


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-c and the like wait for the end of it: all is written already, and what is left to be
    done takes no time."""
    if threading.current_thread() is not threading.main_thread():
        # Python handles signals in the main thread alone: nothing is broken off here.
        yield
        return
    came: list[int] = []
    # Not masked: another thread of the process would take it, and the handler would run all the
    # same. None is a handler that is not Python's, and cannot be put back.
    before = {each: handler for each in _ENDS if (handler := signal.getsignal(each)) is not None}
    for each in before:
        signal.signal(each, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in came:
            signal.raise_signal(number)


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
