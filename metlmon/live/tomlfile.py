"""One TOML file, with the lines that its keys stand on, and what is wrong with it.

``tomllib`` tells lines of syntax errors only; where a key stands is found by reading the file's
lines once more (TOML 1.0, "Keys", "Table" and "Array of Tables").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from metlmon.frozen import frozen

Where = tuple[str | int, ...]
"""The way to a key: ``("site", 1, "host")`` is ``host`` of the second ``[[site]]``."""

_NAME: Final = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_KEY: Final = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_HEAD: Final = re.compile(rf"\s*(\[\[?)\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*\]\]?")
_PART: Final = re.compile(_NAME)


@frozen
class Complaint:
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
    a file that is not there is none (``exists``)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.exists = False
        self.table: dict[str, Any] = {}
        self.complaints: list[Complaint] = []
        self._lines: dict[Where, int] = {}
        try:
            text = path.read_text(encoding="utf-8")
            self.exists = True
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, UnicodeDecodeError) as error:
            self.exists = True
            self.complaints.append(Complaint(path, None, "", f"cannot be read: {error}"))
            return
        import tomllib  # Most dagdirs and users have no such file.

        try:
            self.table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            self.complaints.append(Complaint(path, None, "", f"not valid TOML: {error}"))
            return
        self._lines = key_lines(text)

    def line(self, where: Where) -> int | None:
        """The line of a key, or of the nearest table that it is in."""
        for length in range(len(where), 0, -1):
            if where[:length] in self._lines:
                return self._lines[where[:length]]
        return None

    def complain(self, where: Where, message: str) -> None:
        """``message`` is about the key at ``where``."""
        self.complaints.append(Complaint(self.path, self.line(where), spelled(where), message))

    def knows(self, where: Where, keys: Iterable[str], known: Iterable[str]) -> None:
        """Complains of each of ``keys`` below ``where`` that is none of ``known``."""
        names = sorted(known)
        for key in keys:
            if key in names:
                continue
            from difflib import get_close_matches

            near = get_close_matches(key, names, n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            table = f" in {spelled(where)}" if where else ""
            self.complain(
                (*where, key),
                f"no setting{table} is called {key!r}; {meant}there are: {', '.join(names)}",
            )


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
