"""Names of draft files, and removal of stale ones.

A file is written to a draft beside it, which is then renamed to it.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

STALE_SECONDS: Final = 3600.0
"""Age from which a draft belongs to a program that was killed."""

LONGEST_NAME: Final = 180
"""Characters of the file's name in the name of its draft; names may have 255."""


def draft_name(name: str) -> str:
    """A new draft name for the file ``name``, with a leading dot."""
    return f".{name[:LONGEST_NAME]}.{secrets.token_hex(6)}"


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
