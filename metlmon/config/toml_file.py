"""One TOML file, with the lines that its keys stand on, and what is wrong with it.

``tomllib`` tells lines of syntax errors only; where a key stands is found by reading the file's
lines once more (TOML 1.0, "Keys", "Table" and "Array of Tables").
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from metlmon.frozen import frozen
from metlmon.live.errors import REMEDIES

Where = tuple[str | int, ...]
"""The way to a key: ``("site", 1, "host")`` is ``host`` of the second ``[[site]]``."""

LARGEST: Final = 256_000
"""Bytes: a file with every setting and a hundred sites has a twentieth of it."""

MOST_DOTS: Final = 500
"""Dots in one line: ``tomllib`` takes the cube of the parts of a dotted key."""

MOST_COMPLAINTS: Final = 100

LONGEST_KEY: Final = 80
"""Characters of an unknown key that are compared with those that there are."""

_NAME: Final = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_KEY: Final = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_HEAD: Final = re.compile(rf"\s*(\[\[?)\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*\]\]?")
_PART: Final = re.compile(_NAME)


@frozen
class SettingProblem:
    """One thing that is wrong. ``line`` None: it is not about a line; ``key``: as a person
    writes it, ``site.host``; empty where the file itself is meant."""

    path: Path
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        line = f" (line {self.line})" if self.line is not None else ""
        return f"{self.path}: {self.message}{line}"


class TomlFile:
    """What ``path`` says. ``table`` is empty where it cannot be read, which is a complaint;
    a file that is not there is none (``exists``). ``within``: a link out of this directory is
    not followed. ``foreign``: the file is somebody else's. ``fraction`` makes what a number with
    a point or an exponent becomes of its text. ``largest``: bytes of it."""

    def __init__(
        self,
        path: Path,
        within: Path | None = None,
        fraction: Callable[[str], float] = float,
        largest: int = LARGEST,
    ) -> None:
        self.path = path
        self._fraction = fraction
        self.exists = False
        self.foreign = False
        self.table: dict[str, Any] = {}
        self.complaints: list[SettingProblem] = []
        self._lines: dict[Where, int] = {}
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            # It is the directory that cannot be used, whether this file is in it or not.
            why = f"{error.strerror}; {REMEDIES.get(error.errno or 0, 'give another path')}"
            self._refuse(why, path.parent)
            return
        self.foreign = status.st_uid != os.geteuid()
        try:
            text = _text_of(path, within if stat.S_ISLNK(status.st_mode) else None, largest)
        except FileNotFoundError:
            return
        except UnusableToml as error:
            self._refuse(str(error))
            return
        self.exists = True
        self._parse(text)

    def _refuse(self, why: str, path: Path | None = None) -> None:
        self.exists = True
        self.complaints.append(SettingProblem(path or self.path, None, "", why))

    def _parse(self, text: str) -> None:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.count(".") > MOST_DOTS:
                said = f"not valid TOML: more than {MOST_DOTS} dots in one line"
                self.complaints.append(SettingProblem(self.path, number, "", said))
                return
        import tomllib  # Most dagdirs and users have no such file.

        try:
            self.table = tomllib.loads(text, parse_float=self._fraction)
        except RecursionError:
            self._refuse("not valid TOML: brackets within brackets, too deep to read")
        except ValueError as error:
            # Not all of them are TOMLDecodeError: a number may have too many digits.
            self._refuse(f"not valid TOML: {error}")
        else:
            self._lines = key_lines(text)

    def line(self, where: Where) -> int | None:
        """The line of a key, or of the nearest table that it is in."""
        for length in range(len(where), 0, -1):
            if where[:length] in self._lines:
                return self._lines[where[:length]]
        return None

    def complain(self, where: Where, message: str) -> None:
        """``message`` is about the key at ``where``."""
        self.complaints.append(SettingProblem(self.path, self.line(where), spelled(where), message))

    def knows(self, where: Where, keys: Iterable[str], known: Iterable[str]) -> None:
        """Complains of each of ``keys`` below ``where`` that is none of ``known``."""
        names = sorted(known)
        for key in keys:
            if key in names or len(self.complaints) >= MOST_COMPLAINTS:
                continue
            from difflib import get_close_matches

            near = get_close_matches(key[:LONGEST_KEY], names, n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            table = f" in {spelled(where)}" if where else ""
            said = f"no setting{table} is called {key[:LONGEST_KEY]!r}"
            self.complain((*where, key), f"{said}; {meant}there are: {', '.join(names)}")


class UnusableToml(Exception):
    """Why a file is not read."""


def _text_of(path: Path, within: Path | None, largest: int) -> str:
    """What stands in a file. Raises Unusable, and FileNotFoundError for a link to nothing."""
    from metlmon.live.safe_glob import content_of  # Most dagdirs and users have no such file.
    from metlmon.live.tail import NotRead

    try:
        real = path.resolve(strict=True)
        if within is not None and not real.is_relative_to(within.resolve()):
            raise UnusableToml("is a link out of this directory, not followed: copy the file here")
        return content_of(str(real), largest).decode("utf-8")
    except FileNotFoundError:
        raise
    except NotRead as error:
        why = str(error).removeprefix("it cannot be read: ")
        raise UnusableToml(f"cannot be read: {why}") from error
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        raise UnusableToml(f"cannot be read: {error}") from error


def spelled(where: Where) -> str:
    """A key as people write it: without the numbers of tables."""
    return ".".join(part for part in where if isinstance(part, str))


def key_lines(text: str) -> dict[Where, int]:
    """The line of each key and table header, from 1. What stands in a text of several lines
    may be taken for a key; a key that is one is still found first."""
    lines: dict[Where, int] = {}
    counts: dict[Where, int] = {}
    table: Where = ()
    for number, line in enumerate(text.split("\n"), start=1):
        head = _HEAD.match(line)
        if head is not None:
            table = _parts(head[2])
            if head[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                lines.setdefault(table, number)
                table = (*table, counts[table])
            lines.setdefault(table, number)
            continue
        key = _KEY.match(line)
        if key is not None:
            parts = _parts(key[1])
            for length in range(1, len(parts) + 1):
                lines.setdefault((*table, *parts[:length]), number)
    return lines


def _parts(dotted: str) -> Where:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in _PART.findall(dotted))
