"""Detects ClassAd expressions that HTCondor refuses, without evaluating them."""

from __future__ import annotations

import re
from typing import Final

_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*+"')
COMPARISON_STARTS: Final = ("=", "?=", "!=")
"""Starts of an assigned value where ``==``, ``=?=`` or ``=!=`` was meant."""

LONGEST_EXPRESSION: Final = 10_000
"""In characters: ten times the longest real requirements."""

_BRACKETS: Final = re.compile(r"[()]")
_OPEN_END: Final = re.compile(r"(?:&&|\|\||==|=\?=|=!=|<=?|>=?|[-+*/])\s*\Z")


def unfinished(value: str) -> str | None:
    """What is wrong with an expression's quotes, brackets or end, or None."""
    if len(value) > LONGEST_EXPRESSION:
        return None
    unquoted = _QUOTED.sub('""', value)
    if '"' in unquoted.replace('""', ""):
        return "opens a quote that is not closed"
    depth = 0
    for bracket in _BRACKETS.findall(unquoted):
        depth += 1 if bracket == "(" else -1
        if depth < 0:
            return "closes a bracket that was not opened"
    if depth > 0:
        return "opens a bracket that is not closed"
    return "ends where something must follow" if _OPEN_END.search(unquoted) else None
