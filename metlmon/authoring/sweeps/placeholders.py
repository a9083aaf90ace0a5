"""``{word}`` in a template file: what each run puts in its place.

Only declared names, ``run``, ``index`` and ``uuid`` are filled in. ``$(…)`` is HTCondor's, braces
around anything but one word stay as they are, and ``{{word}}`` is ``{word}`` in the result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

from metlmon.authoring.request import PlanError
from metlmon.frozen import frozen

OWN: Final = ("run", "index", "uuid")
"""What every run has: its name (group and zero-padded index), its number from 0, its uuid."""

_WORD: Final = re.compile(r"\{\{([A-Za-z_]\w*+)\}\}|\{([A-Za-z_]\w*+)\}", re.ASCII)


@frozen
class PlaceholderText:
    """A text with places to fill in: literal pieces and names by turns, a piece first."""

    parts: tuple[str, ...]

    def fill(self, filling: Mapping[str, str]) -> str:
        if len(self.parts) == 1:
            return self.parts[0]
        return "".join(
            filling[part] if place % 2 else part for place, part in enumerate(self.parts)
        )

    @property
    def names(self) -> tuple[str, ...]:
        return self.parts[1::2]


def has_places(raw: str) -> bool:
    """Whether a text has a place to fill in."""
    return bool(places(raw))


def places(raw: str) -> frozenset[str]:
    """The names that stand in a text to be filled in."""
    if "{" not in raw:
        return frozenset()
    return frozenset(match[2] for match in _WORD.finditer(raw) if match[2])


def read_text(raw: str, known: Collection[str], where: str) -> PlaceholderText:
    """``raw`` with its places found. ``known``: names that may stand there. Raises PlanError for
    any other, with the nearest one that is known."""
    parts = [""]
    done = 0
    for match in _WORD.finditer(raw):
        parts[-1] += raw[done : match.start()]
        done = match.end()
        if match[1]:
            parts[-1] += f"{{{match[1]}}}"
            continue
        if match[2] not in known:
            raise _unknown(match[2], known, where)
        parts += [match[2], ""]
    parts[-1] += raw[done:]
    return PlaceholderText(tuple(parts))


def _unknown(name: str, known: Collection[str], where: str) -> PlanError:
    listed = ", ".join(f"{{{each}}}" for each in sorted(known))
    there = f"there are {listed}." if known else "there are such names for nodes of runs only."
    near = nearest(name, known)
    guess = f"; is {{{near}}} meant?" if near else f"; {there}"
    return PlanError(
        f"{where}: nothing is called {{{name}}}{guess} Write {{{{{name}}}}} to mean the braces"
    )


MOST_COMPARED: Final = 2000
"""Names that one is compared with to find the nearest: it is for people who read an error."""


def nearest(name: str, known: Collection[str]) -> str | None:
    """The name most like this one, None when none is."""
    few = list(known)[:MOST_COMPARED]
    return next(iter(get_close_matches(name[:200], few, n=1)), None)
