"""Files are written beside their place first: their names, and what a killed program left."""

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
"""A draft that is older belongs to a program that was killed."""

LONGEST_NAME: Final = 180
"""Characters of the file's name that are part of its draft's: names may have 255."""


def draft_name(name: str) -> str:
    """A new name beside the file ``name``, with a leading dot."""
    return f".{name[:LONGEST_NAME]}.{secrets.token_hex(6)}"


def remove_stale_drafts(directory: Path | int, names: Iterable[str]) -> None:
    """Delete the drafts of these files in ``directory`` (a path, or an open one's descriptor) that
    are older than an hour. What cannot be deleted stays, without an error."""
    beginnings = {name[:LONGEST_NAME] for name in names}
    before = time.time() - STALE_SECONDS
    at = {"dir_fd": directory} if isinstance(directory, int) else {}
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            found = _DRAFT.fullmatch(entry.name)
            if found is None or found[1] not in beginnings:
                continue
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < before:
                    os.unlink(entry.name if at else entry.path, **at)


_DRAFT: Final = re.compile(r"\.(.+)\.[0-9a-f]{12}", re.DOTALL)
