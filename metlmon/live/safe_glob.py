"""Finds the files that match a pattern, strictly below the dagdir.

Patterns of file names come from the settings; the values in them from a DAG file, which may have
been copied from anywhere. A name that leads out of its directory matches nothing, links are
followed only within the dagdir, and each directory is listed once.
"""

from __future__ import annotations

import glob
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain, islice
from pathlib import Path
from typing import Final, NamedTuple

from metlmon.remote import filesystem
from metlmon.remote.paths import is_remote

MOST_ENTRIES: Final = 100_000
"""Maximum number of names read in one directory, three times those of 10,000 jobs."""

MAX_MATCHES: Final = 1000
"""Maximum number of matches of one pattern for one run."""

MATCHING_SECONDS: Final = 3.0
SECONDS_PER_RUN: Final = 0.002
"""CPU time of all patterns of one check: usual ones take less than 0.1 ms for each run."""


class _Step(NamedTuple):
    """The rest of a pattern, to be matched in a directory."""

    folder: Path
    parts: Sequence[str]
    values: Mapping[str, str | None]
    is_listed: bool = False


class SafeGlob:
    """Finds the matches of patterns; caches directory listings, so make one per check.

    ``runs``: the number of runs for which each pattern is matched.
    """

    def __init__(self, dagdir: Path, runs: int = 0) -> None:
        try:
            self.base = filesystem.resolve(dagdir)
        except (OSError, RuntimeError):
            self.base = dagdir
        self._listings: dict[Path, dict[str, bool]] = {}
        self._folders: dict[Path, list[str]] = {}
        self._walks: dict[tuple[Path, tuple[str, ...]], list[Path]] = {}
        self._indexes: dict[tuple[Path, tuple[str, ...]], dict[str, list[Path]]] = {}
        self._seconds_left = MATCHING_SECONDS + SECONDS_PER_RUN * runs
        self.disabled = False
        """Whether the patterns took too long, and match no more."""

    def matching(
        self, pattern: str, values: Mapping[str, str | None], start: Path | None = None
    ) -> list[Path]:
        """Return the resolved paths in the dagdir that match ``pattern``, sorted by name.

        ``{name}`` is replaced by its value in ``values``; a missing value, or one that is no
        plain file name, matches nothing. ``start``: a directory that matched before, by default
        the dagdir. Patterns that begin alike share the walk to their last folders.
        """
        expanded = [_expand(part, values) for part in Path(pattern).parts]
        parts = tuple(part for part in expanded if part is not None)
        if self.disabled or not parts or len(parts) < len(expanded):
            return []
        begin = time.thread_time()
        folders = self._folders_of(start or self.base, parts[:-1])
        is_walk = any(map(glob.has_magic, parts[:-1])) and not glob.has_magic(parts[-1])
        if is_walk and not is_remote(self.base):
            # Of many folders few have a name: one listing of them answers for all patterns. A
            # machine far away was asked for the names beforehand, not for listings.
            folders = self._index_of(start or self.base, parts[:-1]).get(parts[-1], [])
        found = (self._matches_in(folder, parts[-1], last=True) for folder in folders)
        paths = list(chain.from_iterable(found))
        self._seconds_left -= time.thread_time() - begin
        self.disabled = self._seconds_left < 0
        return paths[:MAX_MATCHES]

    def _folders_of(self, start: Path, parts: tuple[str, ...]) -> list[Path]:
        """The folders below ``start`` that match ``parts``."""
        if not parts:
            return [start]
        key = (start, parts)
        if key not in self._walks:
            found = [
                path
                for folder in self._folders_of(start, parts[:-1])
                for path in self._matches_in(folder, parts[-1], last=False)
            ]
            self._walks[key] = found[:MAX_MATCHES]
        return self._walks[key]

    def _index_of(self, start: Path, parts: tuple[str, ...]) -> dict[str, list[Path]]:
        """The folders that match ``parts``, by the names in them."""
        key = (start, parts)
        if key not in self._indexes:
            index = self._indexes[key] = {}
            for folder in self._folders_of(start, parts):
                for name in self.list_directory(folder):
                    index.setdefault(name, []).append(folder)
        return self._indexes[key]

    def prefetch(
        self,
        patterns: Sequence[str],
        values: Sequence[Mapping[str, str | None]],
        starts: Sequence[Path] | None = None,
    ) -> list[Path]:
        """Ask a machine far away about all that these patterns match, in few exchanges.

        ``starts``: directories that matched before, by default the dagdir; they are listed.
        Returns all matches.
        """
        folders = [self.base] if starts is None else starts
        steps = [
            _Step(folder, Path(pattern).parts, each, is_listed=True)
            for each in values
            for folder in folders
            for pattern in patterns
        ]
        while steps:
            queries: list[tuple[str, Path]] = []
            steps = [later for step in steps for later in self._add_queries(queries, step)]
            filesystem.prefetch(self.base, queries)
        return [
            path
            for each in values
            for folder in folders
            for pattern in patterns
            for path in self.matching(pattern, each, folder)
        ]

    def _add_queries(self, queries: list[tuple[str, Path]], step: _Step) -> Iterator[_Step]:
        """Add the queries of a step up to a wildcard; yields the steps after their answers."""
        folder, parts, values, is_listed = step
        name = _expand(parts[0], values) if parts else None
        if name is None:
            return
        last = len(parts) == 1
        names = [name]
        if is_listed:
            names = self._names_in(folder, name, last)
        elif glob.has_magic(name):
            queries.append(("list", folder))
            yield step._replace(is_listed=True)
            return
        for path in (folder / each for each in names[:MAX_MATCHES]):
            queries.append(("lstat", path))
            if not last:
                yield from self._add_queries(queries, _Step(path, parts[1:], values))
            elif not is_listed or self.list_directory(folder)[path.name]:
                queries.append(("list", path))

    def list_directory(self, path: Path) -> Mapping[str, bool]:
        """Return the sorted names in a directory, and whether each is a directory.

        Empty if it is unreadable. Links that leave the dagdir are excluded.
        """
        if path not in self._listings:
            try:
                with filesystem.scandir(path) as entries:
                    names_and_kinds = [
                        (entry.name, entry.is_dir())
                        for entry in islice(entries, MOST_ENTRIES)
                        if not entry.is_symlink()
                        or self.resolve_inside(path / entry.name) is not None
                    ]
            except OSError:
                names_and_kinds = []
            self._listings[path] = dict(sorted(names_and_kinds))
        return self._listings[path]

    def relative(self, path: str) -> str:
        """Return a path relative to the dagdir."""
        return path.removeprefix(f"{self.base}/")

    def resolve_inside(self, path: Path) -> Path | None:
        """Return the resolved path if it is below the dagdir.

        For a name in a resolved directory, one ``lstat`` suffices unless it is a link.
        """
        try:
            is_link = stat.S_ISLNK(filesystem.lstat(path).st_mode)
            resolved = filesystem.resolve(path, strict=True) if is_link else path
        except (OSError, RuntimeError, ValueError):
            return None
        return resolved if resolved.is_relative_to(self.base) and resolved != self.base else None

    def _matches_in(self, folder: Path, name_pattern: str, last: bool) -> list[Path]:
        names = [name_pattern]
        if glob.has_magic(name_pattern):
            names = self._names_in(folder, name_pattern, last)
        resolved_paths = (self.resolve_inside(folder / name) for name in names)
        return [path for path in resolved_paths if path is not None]

    def _names_in(self, folder: Path, name_pattern: str, last: bool) -> list[str]:
        """The names that match: unless it is the ``last`` part, of directories."""
        names = self.list_directory(folder)
        if not last and folder not in self._folders:
            self._folders[folder] = [name for name, is_folder in names.items() if is_folder]
        # As in a shell, hidden names match only a pattern that begins with a dot.
        return [
            name
            for name in (names if last else self._folders[folder])
            if fnmatchcase(name, name_pattern) and (name_pattern[0] == "." or name[0] != ".")
        ]


def _expand(part: str, values: Mapping[str, str | None]) -> str | None:
    if part in ("..", "/") or "\0" in part:
        return None
    for name, value in values.items():
        if f"{{{name}}}" not in part:
            continue
        if not value or value in (".", "..") or "/" in value or "\0" in value:
            return None
        part = part.replace(f"{{{name}}}", glob.escape(value))
    return part
