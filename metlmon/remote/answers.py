"""What an agent answers, as values of Python: statuses, names, lengths. All of it is foreign.

What makes no sense raises ValueError, TypeError, KeyError or AttributeError.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from metlmon.remote.agent import MAX_NAMES, to_bytes


class RemoteEntry(NamedTuple):
    """A name in a directory, with the methods of :class:`os.DirEntry` that are used."""

    path: str
    name: str
    kind: str
    number: int

    def is_symlink(self) -> bool:
        """Whether it is a link, also one to nowhere."""
        return self.kind.isupper() or self.kind == "l"

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file, or a link to one."""
        return self.kind == "f" or (follow_symlinks and self.kind == "F")

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory, or a link to one."""
        return self.kind == "d" or (follow_symlinks and self.kind == "D")

    def inode(self) -> int:
        """Its inode number."""
        return self.number


class Failure(NamedTuple):
    """The answer of a query that failed."""

    errno: int

    def error(self, path: str) -> OSError:
        """The error of the query, about this path."""
        is_listing = self.errno == errno.EFBIG
        text = f"it has more than {MAX_NAMES:,} names" if is_listing else os.strerror(self.errno)
        return OSError(self.errno, text, path)


LAST_MOMENT: Final = 253_402_300_799
"""The last second of the year 9999, since 1970: no date is later."""


def failure_of(answer: Any) -> Failure | None:
    """The failure in an answer; None if it is the answer of a query that succeeded."""
    if not isinstance(answer, dict) or "errno" not in answer:
        return None
    number = int(answer["errno"])
    if number not in errno.errorcode:
        raise ValueError("no error of the operating system")
    # As of a broken disk: a closed pipe is one of this process for those who call.
    return Failure(errno.EIO if number == errno.EPIPE else number)


def path_of(answer: Any) -> str:
    """An absolute path, normalized."""
    if not isinstance(answer, str) or not answer.startswith("/") or not is_name(answer):
        raise ValueError("no absolute path")
    return posixpath.normpath(f"/{answer}").replace("//", "/")


def is_name(text: str) -> bool:
    """Whether files can have this name: it has no NUL, and can be encoded."""
    to_bytes(text)
    return "\0" not in text


def stat_result(numbers: Sequence[int]) -> os.stat_result:
    """The result of ``stat`` from its first ten numbers, the times in nanoseconds."""
    *first, accessed, modified, changed = map(int, numbers)
    limit = LAST_MOMENT * 10**9
    times = {
        name: max(-limit // 5, min(ns, limit))
        for name, ns in (("st_atime", accessed), ("st_mtime", modified), ("st_ctime", changed))
    }
    if len(first) != 7 or min(first) < 0:
        raise ValueError("no status")
    return os.stat_result(
        (*first, *(ns // 10**9 for ns in times.values())),
        {
            **{name: ns / 1e9 for name, ns in times.items()},
            **{f"{name}_ns": ns for name, ns in times.items()},
        },
    )


def names_of(entries: Any) -> dict[str, tuple[str, int]]:
    """The names in a directory, of which none leads to another one."""
    names = {str(name): (str(kind), int(number)) for name, (kind, number) in entries.items()}
    if any("/" in name or not is_name(name) or name in ("", ".", "..") for name in names):
        raise ValueError("no name of a file")
    return names


def length_of(answer: Any, data: bytes) -> int:
    """The number of bytes that belong to an answer."""
    length = int(answer["bytes"])
    if not 0 <= length <= len(data):
        raise ValueError("fewer bytes than announced")
    return length
