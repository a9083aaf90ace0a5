"""The user's list of directories that Home shows.

It is ``home.json`` in the directory of the user's state: a JSON object whose ``directories`` are
absolute paths of dagdirs, or of directories that have some below them, or ``HOST:DIR`` where these
are on other machines.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from metlmon.config.user_state import read_state, state_directory, write_state
from metlmon.remote.paths import as_typed


class UserList(Struct):
    """The content of the file."""

    directories: list[str] = []


def _file() -> Path | None:
    directory = state_directory()
    return None if directory is None else directory / "home.json"


def load_list() -> tuple[str, ...]:
    """The paths of the list; none if the file is missing or damaged.

    Connections to other machines are made in the background.
    """
    content = read_state(_file(), UserList) or UserList()
    return tuple(filter(None, map(_path, content.directories)))


def _path(directory: str) -> str | None:
    if os.path.isabs(directory):
        return directory
    from metlmon.remote.machine import connect_later
    from metlmon.remote.paths import UnusableMachine

    try:
        return connect_later(directory)
    except UnusableMachine:
        return None


def save_list(directories: Iterable[str]) -> bool:
    """Write the list; return whether that succeeded. If not, the old one stays."""
    return write_state(_file(), UserList([as_typed(path) for path in directories]))
