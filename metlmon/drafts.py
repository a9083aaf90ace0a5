"""Names of draft files, and removal of stale ones.

A file is written to a draft beside it, which is then renamed to it.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

STALE_SECONDS: Final = 3600.0
"""Age from which a draft belongs to a program that was killed."""

LONGEST_NAME: Final = 180
"""Characters of the file's name in the name of its draft; names may have 255."""


def draft_name(name: str) -> str:
    """A new draft name for the file ``name``, with a leading dot."""
    return f".{name[:LONGEST_NAME]}.{secrets.token_hex(6)}"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft of a file, empty at first, that replaces it in the end, or is deleted on an error.

    No reader meets half a file. It gets the permissions of the file that it replaces, or those of
    a new one. Raises OSError.
    """
    remove_stale_drafts(path.parent, [path.name])
    draft = path.with_name(draft_name(path.name))
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        yield draft
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.chmod(_mode(path))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _mode(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def remove_stale_drafts(directory: Path | int, names: Iterable[str]) -> None:
    """Delete the drafts of these files in ``directory`` that are over an hour old.

    ``directory``: a path, or an open descriptor. Errors on deletion are ignored.
    """
    prefixes = {name[:LONGEST_NAME] for name in names}
    limit = time.time() - STALE_SECONDS
    dir_fd = {"dir_fd": directory} if isinstance(directory, int) else {}
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            match = _DRAFT_NAME.fullmatch(entry.name)
            if match is None or match[1] not in prefixes:
                continue
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < limit:
                    os.unlink(entry.name if dir_fd else entry.path, **dir_fd)


_DRAFT_NAME: Final = re.compile(r"\.(.+)\.[0-9a-f]{12}", re.DOTALL)
