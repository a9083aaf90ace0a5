"""Finds the files that match a pattern, strictly below the dagdir.

Patterns of file names come from the settings; the values in them from a DAG file, which may have
been copied from anywhere. A name that leads out of its directory matches nothing, links are
followed only within the dagdir, and each directory is listed once.
"""

from __future__ import annotations

import glob
import stat
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from metlmon.remote import filesystem

MOST_ENTRIES: Final = 100_000
"""Maximum number of names read in one directory, three times those of 10,000 jobs."""

MAX_MATCHES: Final = 1000
"""Maximum number of matches of one pattern for one run."""


class _Step(NamedTuple):
    """The rest of a pattern, to be matched in a directory."""

    folder: Path
    parts: Sequence[str]
    values: Mapping[str, str | None]
    is_listed: bool = False


class SafeGlob:
    """Finds the matches of patterns; caches directory listings, so make one per check."""

    def __init__(self, dagdir: Path) -> None:
        try:
            self.base = filesystem.resolve(dagdir)
        except (OSError, RuntimeError):
            self.base = dagdir
        self._listings: dict[Path, dict[str, bool]] = {}
        self._folders: dict[Path, list[str]] = {}

    def matching(
        self, pattern: str, values: Mapping[str, str | None], start: Path | None = None
    ) -> list[Path]:
        """Return the resolved paths in the dagdir that match ``pattern``, sorted by name.

        ``{name}`` is replaced by its value in ``values``; a missing value, or one that is no
        plain file name, matches nothing. ``start``: a directory that matched before, by default
        the dagdir.
        """
        paths, parts = [start or self.base], Path(pattern).parts
        for index, part in enumerate(parts, start=1):
            name_pattern = _expand(part, values)
            if name_pattern is None:
                return []
            last = index == len(parts)
            paths = [
                path for folder in paths for path in self._matches_in(folder, name_pattern, last)
            ]
            paths = paths[:MAX_MATCHES]
        return paths if parts else []

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
