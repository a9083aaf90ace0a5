"""The files that one look at a DAG needs: found, read once, parsed once."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from pathlib import Path

from metlmon.dagman.parser import DagFile, parse_dag
from metlmon.dagman.submit_description import Description, parse_description

Read = Callable[[Path], bytes]

#: Nodes made, commands carried out, edges drawn and ALL_NODES applied, together, for one look.
#: A real DAG of 10,000 nodes needs a twentieth of it; a few lines of nested splices could ask
#: for more than any memory holds.
MOST_WORK = 2_000_000


class TooLarge(Exception):
    """The DAG asks for more than :data:`MOST_WORK`."""


class FileCache:
    """Reads through ``read``, names files in problems as seen from ``home``."""

    def __init__(self, read: Read, home: Path) -> None:
        self._read = read
        self._home = home
        self._dags: dict[Path, DagFile | None] = {}
        self._found: dict[tuple[str, tuple[Path, ...]], Path] = {}
        self._names: dict[Path, str] = {}
        self._submits: dict[Path, Description | None] = {}
        self._work_left = MOST_WORK

    def spend(self, amount: int) -> None:
        """Takes ``amount`` off the work that is left; raises TooLarge when there is none."""
        self._work_left -= amount
        if self._work_left < 0:
            raise TooLarge

    def name(self, path: Path) -> str:
        """How a problem calls the file: relative to the DAG's directory when it lies there."""
        if path not in self._names:
            below = path.is_relative_to(self._home)
            self._names[path] = str(path.relative_to(self._home) if below else path)
        return self._names[path]

    def dag(self, path: Path) -> DagFile | None:
        """The commands of a DAG file, None when it cannot be read."""
        if path not in self._dags:
            data = self._bytes(path)
            self._dags[path] = None if data is None else parse_dag(data, self.name(path))
        return self._dags[path]

    def find_dag(self, name: str, *folders: Path) -> tuple[Path, DagFile | None]:
        """The DAG file ``name`` looked for in ``folders``: where it is and what it says.

        Where none can be read: where it should have been, and None.
        """
        key = (name, folders)
        if key not in self._found:
            candidates = places(name, *folders)
            readable = (path for path in candidates if self.dag(path) is not None)
            self._found[key] = next(readable, candidates[0])
        path = self._found[key]
        return path, self.dag(path)

    def submit(self, path: Path) -> Description | None:
        """The description in a submit file, None when it cannot be read."""
        if path not in self._submits:
            lines = self._lines(path)
            self._submits[path] = None if lines is None else self._described(path, lines)
        return self._submits[path]

    def _described(self, path: Path, lines: list[str]) -> Description:
        return parse_description(lines, lambda name: self._included(name, path.parent))

    def _included(self, name: str, folder: Path) -> list[str] | None:
        found = (self._lines(place) for place in places(name, folder))
        return next((lines for lines in found if lines is not None), None)

    def _lines(self, path: Path) -> list[str] | None:
        data = self._bytes(path)
        return None if data is None else data.decode("utf-8", "replace").split("\n")

    def _bytes(self, path: Path) -> bytes | None:
        try:
            return self._read(path)
        except (OSError, ValueError):  # ValueError: a NUL in the name
            return None


def places(name: str, *folders: Path) -> list[Path]:
    """Where to look for the file ``name``: in each folder, then by its bare name in each."""
    bare = posixpath.basename(name) or name
    found = [folder / name for folder in folders] + [folder / bare for folder in folders]
    return list(dict.fromkeys(Path(os.path.normpath(path)) for path in found))
