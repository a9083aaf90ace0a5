"""The few ClassAd literals that event logs carry: strings, integers, ``Name = value`` lines.

Source followed: "ClassAd Mechanism > Literals" of the HTCondor manual.  Nothing is
evaluated: a value that is an expression is no literal, and reads as None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_LITERAL: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)
"""Also one that is not closed: else each quotation mark in it would be tried as a beginning."""
_ATTRIBUTE: Final = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(\S.*)", re.DOTALL)
_NAMED_STRING: Final = re.compile(r'\b([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)
_NAMED_INTEGER: Final = re.compile(r"\b([A-Za-z_]\w*)\s*=\s*(-?[0-9]{1,18})\s*[;\]]")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final[Mapping[str, str]] = {"n": "\n", "t": "\t", "r": "\r"}
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), text)


def string(expression: str) -> str | None:
    r"""The value of a string literal (``\"`` and ``\\`` undone), or None for anything else."""
    found = _STRING.fullmatch(expression.strip())
    return _unescape(found[1]) if found else None


def integer(expression: str) -> int | None:
    """The value of an integer literal, or None for anything else."""
    found = _INTEGER.fullmatch(expression.strip())
    return int(found[0]) if found else None


def attribute(line: str) -> tuple[str, str] | None:
    """``Name = expression`` as (name, expression), or None when the line is no such thing."""
    found = _ATTRIBUTE.fullmatch(line.strip())
    return (found[1], found[2]) if found else None


def strings_in(record: str) -> dict[str, str]:
    """Every ``Name = "value"`` of a one-line record ``[ … ]``; names in lower case.

    ClassAd attribute names do not know upper and lower case.
    """
    return {name.lower(): _unescape(value) for name, value in _NAMED_STRING.findall(record)}


def integers_in(record: str) -> dict[str, int]:
    """Every ``Name = integer`` of a one-line record ``[ … ]``; names in lower case.

    What stands inside string literals is not looked at.
    """
    bare = _LITERAL.sub('""', record)
    return {name.lower(): int(value) for name, value in _NAMED_INTEGER.findall(bare)}
