"""Caches the files of one workflow load: each is found, read and parsed once."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from pathlib import Path

from metlmon.dagman.parser import DagFile, parse_dag
from metlmon.dagman.submit_description import Description, parse_description

Read = Callable[[Path], bytes]

#: Nodes, commands, edges and applications of ALL_NODES together, for one load. A real DAG of
#: 10,000 nodes needs 5 % of it; a few lines of nested splices could exhaust any memory.
MOST_WORK = 2_000_000


class TooLarge(Exception):
    """The DAG needs more work than :data:`MOST_WORK`."""


class FileCache:
    """Reads files by ``read`` and names them in problems relative to ``home``."""

    def __init__(self, read: Read, home: Path) -> None:
        self._read = read
        self._home = home
        self._dags: dict[Path, DagFile | None] = {}
        self._paths: dict[tuple[str, tuple[Path, ...]], Path] = {}
        self._names: dict[Path, str] = {}
        self._submits: dict[Path, Description | None] = {}
        self._work_left = MOST_WORK

    def spend(self, amount: int) -> None:
        """Subtract ``amount`` from the remaining work; raise TooLarge below zero."""
        self._work_left -= amount
        if self._work_left < 0:
            raise TooLarge

    def name(self, path: Path) -> str:
        """The file's name in problems: relative to the DAG's directory when it is in it."""
        if path not in self._names:
            in_home = path.is_relative_to(self._home)
            self._names[path] = str(path.relative_to(self._home) if in_home else path)
        return self._names[path]

    def dag(self, path: Path) -> DagFile | None:
        """The commands of a DAG file, None when it cannot be read."""
        if path not in self._dags:
            data = self._read_bytes(path)
            self._dags[path] = None if data is None else parse_dag(data, self.name(path))
        return self._dags[path]

    def find_dag(self, name: str, *folders: Path) -> tuple[Path, DagFile | None]:
        """Search ``folders`` for the DAG file ``name``: its path and its commands.

        If none is readable: the first path searched, and None.
        """
        key = (name, folders)
        if key not in self._paths:
            candidates = places(name, *folders)
            readable = (path for path in candidates if self.dag(path) is not None)
            self._paths[key] = next(readable, candidates[0])
        path = self._paths[key]
        return path, self.dag(path)

    def submit(self, path: Path) -> Description | None:
        """The description in a submit file, None when it cannot be read."""
        if path not in self._submits:
            lines = self._read_lines(path)
            self._submits[path] = None if lines is None else self._parse(path, lines)
        return self._submits[path]

    def _parse(self, path: Path, lines: list[str]) -> Description:
        def include(name: str) -> tuple[str, list[str]] | None:
            for included in places(name, path.parent, self._home):
                if (content := self._read_lines(included)) is not None:
                    return self.name(included), content
            return None

        return parse_description(lines, include, self.name(path))

    def _read_lines(self, path: Path) -> list[str] | None:
        data = self._read_bytes(path)
        return None if data is None else data.decode("utf-8", "replace").split("\n")

    def _read_bytes(self, path: Path) -> bytes | None:
        try:
            return self._read(path)
        except (OSError, ValueError):  # ValueError: a NUL in the name
            return None


def places(name: str, *folders: Path) -> list[Path]:
    """Candidate paths of the file ``name``: in each folder, then by base name in each."""
    base = posixpath.basename(name) or name
    paths = [folder / name for folder in folders] + [folder / base for folder in folders]
    return list(dict.fromkeys(Path(os.path.normpath(path)) for path in paths))
