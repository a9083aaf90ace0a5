"""Placeholders ``{word}`` in a template file.

Only declared names, ``run``, ``index`` and ``uuid`` are filled in. ``$(…)`` belongs to HTCondor;
braces around anything but one word stay as they are, and ``{{word}}`` becomes ``{word}``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

from metlmon.authoring.request import PlanError
from metlmon.frozen import frozen

BUILTIN_NAMES: Final = ("run", "index", "uuid")
"""Defined for every run: name (group and padded index), index from 0, and uuid."""

_WORD: Final = re.compile(r"\{\{([A-Za-z_]\w*+)\}\}|\{([A-Za-z_]\w*+)\}", re.ASCII)


@frozen
class PlaceholderText:
    """A text with placeholders: literals and names alternate, a literal first."""

    parts: tuple[str, ...]

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with these values filled in."""
        if len(self.parts) == 1:
            return self.parts[0]
        return "".join(values[part] if index % 2 else part for index, part in enumerate(self.parts))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the placeholders, in order."""
        return self.parts[1::2]


def has_placeholders(raw: str) -> bool:
    """Whether a text contains a placeholder."""
    return bool(placeholder_names(raw))


def placeholder_names(raw: str) -> frozenset[str]:
    """The names of the placeholders in a text."""
    if "{" not in raw:
        return frozenset()
    return frozenset(match[2] for match in _WORD.finditer(raw) if match[2])


def parse_placeholders(raw: str, known: Collection[str], where: str) -> PlaceholderText:
    """Parse ``raw``; ``known``: the names allowed in placeholders.

    Raises PlanError for any other, with the most similar known name.
    """
    parts = [""]
    end = 0
    for match in _WORD.finditer(raw):
        parts[-1] += raw[end : match.start()]
        end = match.end()
        if match[1]:
            parts[-1] += f"{{{match[1]}}}"
            continue
        if match[2] not in known:
            raise _unknown(match[2], known, where)
        parts += [match[2], ""]
    parts[-1] += raw[end:]
    return PlaceholderText(tuple(parts))


def _unknown(name: str, known: Collection[str], where: str) -> PlanError:
    listed = ", ".join(f"{{{name_}}}" for name_ in sorted(known))
    available = f"there are {listed}." if known else "there are such names for nodes of runs only."
    similar = nearest(name, known)
    hint = f"; is {{{similar}}} meant?" if similar else f"; {available}"
    return PlanError(
        f"{where}: nothing is called {{{name}}}{hint} Write {{{{{name}}}}} to mean the braces"
    )


MOST_COMPARED: Final = 2000
"""Most names to compare for a suggestion in an error message."""


def nearest(name: str, known: Collection[str]) -> str | None:
    """The most similar name, or None."""
    candidates = list(known)[:MOST_COMPARED]
    return next(iter(get_close_matches(name[:200], candidates, n=1)), None)
