"""Parses ClassAd literals: strings, integers, ``Name = value`` lines.

Source followed: "ClassAd Mechanism > Literals" of the HTCondor manual. Nothing is
evaluated: a value that is an expression is not a literal and is read as None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_LITERAL: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)
"""Matches unclosed strings too: otherwise each quotation mark in one would be tried as a start."""
_ATTRIBUTE: Final = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(\S.*)", re.DOTALL)
_NAMED_STRING: Final = re.compile(r'\b([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)
_NAMED_INTEGER: Final = re.compile(r"\b([A-Za-z_]\w*)\s*=\s*(-?[0-9]{1,18})\s*[;\]]")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final[Mapping[str, str]] = {"n": "\n", "t": "\t", "r": "\r"}
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)


def string(expression: str) -> str | None:
    r"""The value of a string literal (``\"`` and ``\\`` unescaped), else None."""
    match = _STRING.fullmatch(expression.strip())
    return _unescape(match[1]) if match else None


def integer(expression: str) -> int | None:
    """The value of an integer literal, or None for anything else."""
    match = _INTEGER.fullmatch(expression.strip())
    return int(match[0]) if match else None


def attribute(line: str) -> tuple[str, str] | None:
    """Split ``Name = expression`` into (name, expression); None for any other line."""
    match = _ATTRIBUTE.fullmatch(line.strip())
    return (match[1], match[2]) if match else None


def strings_in(record: str) -> dict[str, str]:
    """Every ``Name = "value"`` of a one-line record ``[ … ]``; names in lower case.

    ClassAd attribute names are case-insensitive.
    """
    return {name.lower(): _unescape(value) for name, value in _NAMED_STRING.findall(record)}


def integers_in(record: str) -> dict[str, int]:
    """Every ``Name = integer`` of a one-line record ``[ … ]``; names in lower case.

    The contents of string literals are ignored.
    """
    without_strings = _LITERAL.sub('""', record)
    return {name.lower(): int(value) for name, value in _NAMED_INTEGER.findall(without_strings)}
