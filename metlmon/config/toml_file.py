"""One TOML file, with the lines of its keys and its problems.

``tomllib`` reports lines of syntax errors only; the line of a key is found by reading the file's
lines once more (TOML 1.0, "Keys", "Table" and "Array of Tables").
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from metlmon.errors import REMEDIES, nearest
from metlmon.remote import filesystem
from metlmon.text.record_json import Nullable

Where = tuple[str | int, ...]
"""Path of a key: ``("site", 1, "host")`` is ``host`` of the second ``[[site]]``."""

MAX_BYTES: Final = 256_000
"""Twenty times the size of a file with every setting and a hundred sites."""

MAX_DOTS: Final = 500
"""Dots in one line: ``tomllib`` takes time cubic in the number of parts of a dotted key."""

MAX_PROBLEMS: Final = 100

MAX_KEY: Final = 80
"""Characters of an unknown key that are compared with the known ones."""

_NAME: Final = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_KEY: Final = rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*="
_HEADER: Final = rf"\s*(\[\[?)\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*\]\]?"


class SettingProblem(Struct, frozen=True):
    """One problem of a file.

    ``line`` None: it does not concern a line. ``key``: as written, ``site.host``; empty if it
    concerns the file itself.
    """

    path: Path
    line: int | None
    key: Nullable[str]
    message: str

    def __str__(self) -> str:
        line = f" (line {self.line})" if self.line is not None else ""
        return f"{self.path}: {self.message}{line}"


class TomlFile:
    """The contents of ``path``.

    ``table`` is empty if the file cannot be read, which is a problem unless it is missing (see
    ``exists``). ``within``: a link out of this directory is not followed. ``foreign``: the file
    belongs to another user. ``fraction``: converts the text of a number with a point or an
    exponent. ``largest``: maximum size in bytes.
    """

    def __init__(
        self,
        path: Path,
        within: Path | None = None,
        fraction: Callable[[str], float] = float,
        largest: int = MAX_BYTES,
    ) -> None:
        self.path = path
        self._fraction = fraction
        self.exists = False
        self.foreign = False
        self.table: dict[str, Any] = {}
        self.problems: list[SettingProblem] = []
        self._lines: dict[Where, int] = {}
        try:
            status = filesystem.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            # The directory itself cannot be used.
            reason = f"{error.strerror}; {REMEDIES.get(error.errno or 0, 'give another path')}"
            self._refuse(reason, path.parent)
            return
        self.foreign = status.st_uid != filesystem.user_number(path)
        text = self._read_text(within if stat.S_ISLNK(status.st_mode) else None, largest)
        if text is not None:
            self.exists = True
            self._parse(text)

    def _read_text(self, within: Path | None, max_bytes: int) -> str | None:
        """The text of the file; None if it cannot be read, which is a problem if it exists."""
        # Imported late, like tomllib.
        from metlmon.live.file_access import UnreadableFile, read_file

        try:
            real = filesystem.resolve(self.path, strict=True)
            if within is not None and not real.is_relative_to(filesystem.resolve(within)):
                self._refuse("is a link out of this directory, not followed: copy the file here")
                return None
            return read_file(str(real), max_bytes).decode("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            self._refuse("not UTF-8 text: save the file as UTF-8", line=line)
            return None
        except (UnreadableFile, OSError, RuntimeError) as error:
            self._refuse(f"cannot be read: {str(error).removeprefix('it cannot be read: ')}")
            return None

    def _refuse(self, reason: str, path: Path | None = None, line: int | None = None) -> None:
        self.exists = True
        self.problems.append(SettingProblem(path or self.path, line, "", reason))

    def _parse(self, text: str) -> None:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.count(".") > MAX_DOTS:
                message = f"not valid TOML: more than {MAX_DOTS} dots in one line"
                self._refuse(message, line=number)
                return
        import tomllib  # Imported late: most dagdirs and users have no such file.

        try:
            self.table = tomllib.loads(text, parse_float=self._fraction)
        except RecursionError:
            self._refuse("not valid TOML: brackets within brackets, too deep to read")
        except ValueError as error:
            # Not always a TOMLDecodeError: a number may have too many digits.
            self._refuse(f"not valid TOML: {error}")
        else:
            self._lines = key_lines(text)

    def line(self, where: Where) -> int | None:
        """The line of a key, or of the nearest table that contains it."""
        for length in range(len(where), 0, -1):
            if where[:length] in self._lines:
                return self._lines[where[:length]]
        return None

    def report_problem(self, where: Where, message: str) -> None:
        """Report a problem with the key at ``where``."""
        self.problems.append(
            SettingProblem(self.path, self.line(where), dotted_key(where), message)
        )

    def report_unknown_keys(self, where: Where, keys: Iterable[str], known: Iterable[str]) -> None:
        """Report each of ``keys`` below ``where`` that is not in ``known``."""
        names = sorted(known)
        for key in keys:
            if key in names or len(self.problems) >= MAX_PROBLEMS:
                continue
            similar = nearest(key[:MAX_KEY], names)
            suggestion = f"did you mean {similar!r}? " if similar else ""
            table = f" in {dotted_key(where)}" if where else ""
            message = f"no setting{table} is called {key[:MAX_KEY]!r}"
            self.report_problem(
                (*where, key), f"{message}; {suggestion}there are: {', '.join(names)}"
            )


def dotted_key(where: Where) -> str:
    """A key as it is written: without the indices of tables."""
    return ".".join(part for part in where if isinstance(part, str))


def key_lines(text: str) -> dict[Where, int]:
    """The line of each key and table header, from 1.

    Text in a multi-line string may be mistaken for a key; a real key before it takes precedence.
    """
    lines: dict[Where, int] = {}
    counts: dict[Where, int] = {}
    table: Where = ()
    for number, line in enumerate(text.split("\n"), start=1):
        header = re.match(_HEADER, line)
        if header is not None:
            table = _key_parts(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                lines.setdefault(table, number)
                table = (*table, counts[table])
            lines.setdefault(table, number)
            continue
        key = re.match(_KEY, line)
        if key is not None:
            parts = _key_parts(key[1])
            for length in range(1, len(parts) + 1):
                lines.setdefault((*table, *parts[:length]), number)
    return lines


def _key_parts(dotted: str) -> Where:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in re.findall(_NAME, dotted))
