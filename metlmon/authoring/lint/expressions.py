"""ClassAd expressions as far as one can tell that HTCondor refuses them without evaluating any."""

from __future__ import annotations

import re
from typing import Final

_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*+"')
COMPARES: Final = ("=", "?=", "!=")
"""What an assigned value begins with that was meant to be compared: ``==``, ``=?=``, ``=!=``."""

LONGEST_EXPRESSION: Final = 10_000
"""Characters: ten times what the longest real requirements have."""

_BRACKETS: Final = re.compile(r"[()]")
_OPEN_END: Final = re.compile(r"(?:&&|\|\||==|=\?=|=!=|<=?|>=?|[-+*/])\s*\Z")


def unfinished(value: str) -> str | None:
    """What is wrong with the quotes or brackets of an expression, or with its end; None where
    nothing is."""
    if len(value) > LONGEST_EXPRESSION:
        return None
    bare = _QUOTED.sub('""', value)
    if '"' in bare.replace('""', ""):
        return "opens a quote that is not closed"
    depth = 0
    for sign in _BRACKETS.findall(bare):
        depth += 1 if sign == "(" else -1
        if depth < 0:
            return "closes a bracket that was not opened"
    if depth > 0:
        return "opens a bracket that is not closed"
    return "ends where something must follow" if _OPEN_END.search(bare) else None
