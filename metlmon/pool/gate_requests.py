"""What people ask of a run's gate: small files beside the DAG file, by the run's uuid.

The gate (``gate.py`` beside the DAG) looks for them before each node of the run; formats and
meanings are told at its top. They are written whole or not at all, and no link is followed, neither
of a file nor of the folders above it up to the DAG file's own.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Final

from metlmon.drafts import draft_name, remove_stale_drafts
from metlmon.jobfiles.gate_files import LONGEST, read_stopped
from metlmon.pool.worker import SITE
from metlmon.text.formatting import plain

FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
"""What uuids and nodes must look like to be part of a file's name."""

NO_SITE: Final = "a site's name is one line without quotes, $ and backslash"

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""What file systems without hard links answer (some FUSE and AFS mounts)."""


def site_of(text: str) -> str | None:
    """The site that is meant by what was typed; None where that cannot be the name of one: it
    goes into a submit file, on one line and between quotes."""
    site = text.strip()
    return site if SITE.fullmatch(site) and site.isprintable() else None


def request_file(dag: str, uuid: str, what: str) -> str:
    """``gate/ens/<uuid>.stop`` for the DAG file ``ens.dag``; beside it, wherever it lies."""
    return str(PurePath("gate", PurePath(dag).name.removesuffix(".dag"), f"{uuid}.{what}"))


def gate_rules(dag: str) -> str:
    """The file that tells a DAG's gate its runs, beside the DAG file."""
    return f"{PurePath(dag).name.removesuffix('.dag')}.gate.json"


def placement_file(dag: str, node: str) -> str:
    """What the submit file of a node of the DAG file ``dag`` includes, and what says where it
    goes; beside the DAG file, wherever it lies."""
    return f"placement/{PurePath(dag).name.removesuffix('.dag')}/{node}.inc"


def placement_line(site: str) -> bytes:
    """All that a placement file holds."""
    return f"ResourceName = {site}\n".encode()


def by_whom() -> bytes:
    """What a stop file says: the gate tells it as the reason."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = f"user {os.geteuid()}"
    return f"by {plain(name, 60, ascii=True)} with metlmon\n".encode()


def when(seconds: float | None = None) -> bytes:
    """The line of a request that says when it was written (in UTC; now if nothing is said): a copy
    of the file has another time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ\n", time.gmtime(seconds)).encode()


class NoFile(OSError):
    """Something else lies in a file's place."""


@contextmanager
def folder(home: Path, parts: tuple[str, ...], make: bool = False) -> Iterator[int]:
    """The folder ``parts`` below ``home`` (a DAG file's own), as a descriptor. Those that are not
    there are made with ``make``, as open to others as ``home`` is: DAGMan's user writes into them,
    whoever asks. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    at = os.open(home, flags)
    try:
        for part in parts:
            made = make and _made(at, part)
            below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=at)
            try:
                if made:
                    _as_open_as(below, os.fstat(at))
            except BaseException:
                os.close(below)
                raise
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _made(at: int, name: str) -> bool:
    try:
        os.mkdir(name, 0o777, dir_fd=at)
    except FileExistsError:
        return False
    return True


def _as_open_as(handle: int, above: os.stat_result) -> None:
    owner = above.st_uid if os.geteuid() == 0 else -1
    with suppress(OSError):
        os.fchown(handle, owner, above.st_gid)
    with suppress(OSError):
        os.fchmod(handle, (above.st_mode & 0o2777) | stat.S_IRWXU)


def _split(file: str) -> tuple[tuple[str, ...], str]:
    *above, name = PurePath(file).parts
    return tuple(above), name


def create(home: Path, file: str, content: bytes) -> bool:
    """Write a file that must not be there yet; False when it is. Raises OSError."""
    above, name = _split(file)
    with folder(home, above, make=True) as at:
        if _is_there(at, name):
            return False
        with _draft(at, name, content) as draft:
            try:
                os.link(draft, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                os.replace(draft, name, src_dir_fd=at, dst_dir_fd=at)
    return True


def put(home: Path, file: str, content: bytes) -> bool:
    """Write a file, whatever it said before; False when it says just this. Raises OSError."""
    above, name = _split(file)
    with folder(home, above, make=True) as at:
        if _is_there(at, name) and _content(at, name) == content:
            return False
        with _draft(at, name, content) as draft:
            os.replace(draft, name, src_dir_fd=at, dst_dir_fd=at)
    return True


def delete(home: Path, file: str) -> bool:
    """Delete a file; False when it is not there. Raises OSError."""
    above, name = _split(file)
    try:
        with folder(home, above) as at:
            if not _is_there(at, name):
                return False
            os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        return False
    return True


def check_writable(home: Path, file: str) -> None:
    """Raises OSError where ``file``, or the folders above it, could not be made or deleted."""
    above, name = _split(file)
    for depth in range(len(above), -1, -1):
        try:
            with folder(home, above[:depth]) as at:
                if depth == len(above):
                    _is_there(at, name)
                if not os.access(".", os.W_OK | os.X_OK, dir_fd=at):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                return
        except FileNotFoundError:
            if not depth:
                raise


def content_of(home: Path, file: str) -> bytes | None:
    """What a file says, of a long one the beginning; None when it is not there. Raises OSError."""
    above, name = _split(file)
    try:
        with folder(home, above) as at:
            return _content(at, name) if _is_there(at, name) else None
    except FileNotFoundError:
        return None


def why_stopped(home: Path, file: str) -> str | None:
    """The reason in what the gate wrote when it ended a run, "" when it gives none; None when it
    has not. Raises OSError."""
    content = content_of(home, file)
    if content is None:
        return None
    stopped = read_stopped(content)
    return "" if stopped is None else stopped.reason


def _is_there(at: int, name: str) -> bool:
    try:
        mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        raise NoFile(errno.EINVAL, "it is no ordinary file: delete it yourself")
    return True


def _content(at: int, name: str) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=at), "rb") as there:
        return there.read(LONGEST)


@contextmanager
def _draft(at: int, name: str, content: bytes) -> Iterator[str]:
    """The name of a file with this content, on disk, to be put in its place; gone afterwards."""
    remove_stale_drafts(at, [name])
    draft = draft_name(name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(draft, flags, 0o644, dir_fd=at)
    try:
        with open(handle, "wb") as out:
            # Also where the umask is narrow: the gate runs as DAGMan's user, who may be another.
            os.fchmod(handle, 0o644)
            out.write(content)
            out.flush()
            os.fsync(handle)
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=at)
