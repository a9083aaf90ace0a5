"""What was read of files, kept until they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from metlmon.live.file_access import FileState, UnreadableFile, file_state

T = TypeVar("T")


class FileCache(Generic[T]):
    """The contents of files, read again only when a file has changed.

    A file that cannot be read has the content ``default``.
    """

    def __init__(self, read: Callable[[str], T], default: T) -> None:
        self._read = read
        self._default = default
        self._known: dict[str, tuple[FileState, T]] = {}
        self._used: set[str] = set()

    def read(self, path: str) -> tuple[FileState, T] | None:
        """Return the file's state and content; None if there is no such file."""
        state = file_state(path)
        if state is None:
            return None
        self._used.add(path)
        known = self._known.get(path)
        if known is None or known[0] != state:
            try:
                content = self._read(path)
            except (UnreadableFile, OSError):
                content = self._default
            known = self._known[path] = (state, content)
        return known

    def forget_unused(self) -> None:
        """Forget the files that were not read since the last call of this method."""
        for path in self._known.keys() - self._used:
            del self._known[path]
        self._used.clear()
