"""Causes of failed executions: reasons with their variable parts replaced.

Many hold and evict reasons differ only in slot names, hosts, files and numbers; with
placeholders, ten causes explain hundreds of attempts.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from metlmon.model.states import Outcome

REASON_LIMIT: Final = 2000
"""Characters of a reason that are used: the first lines identify the cause, and a job can write
a megabyte there."""

VACATE_CODES: Final[dict[int, str]] = {
    1000: "startd claim ended",
    1001: "shadow could not start",
    1002: "shadow exception",
    1003: "schedd shut down",
    1004: "vacated by the user",
    1005: "starter failed",
    1007: "starter error",
    1008: "reconnect failed",
    1013: "startd shut down",
    1014: "machine draining",
    1023: "removed",
}
"""Texts for vacate codes (``condor_holdcodes.h``, "VACATE_CODE"), used only for events without a
reason."""

_FOLDS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"<[^<>\s]*\d+\.\d+\.\d+\.\d+[^<>]*>"), "<host>"),
    (re.compile(r"<\[[0-9a-fA-F:]+\][^<>]*>"), "<host>"),
    (re.compile(r"\b(?:slot|dynamic_slot)\w*@\S+?(?=[:,;)\]]?(?:\s|$))"), "<slot>"),
    (re.compile(r"\bglidein\w*@\S+?(?=[:,;)\]]?(?:\s|$))"), "<slot>"),
    (re.compile(r"\(by user [^)]*\)"), "(by a user)"),
    (re.compile(r"\b[a-z][a-z0-9+.-]*://\S+"), "<url>"),
    (re.compile(r"(?<![\w.])(?:[\w.+-]*/)+[\w.+#%=-]*"), "<file>"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+(?::\d+)?\b"), "<host>"),
    (re.compile(r"\b[a-zA-Z][\w-]*(?:\.[a-zA-Z][\w-]*){2,}\b"), "<host>"),
    (re.compile(r"\bip-\d+-\d+-\d+-\d+\b"), "<host>"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"), "<id>"),
    (re.compile(r"-?\b\d+(?:[.,]\d+)*\b"), "N"),
    (re.compile(r"\s+"), " "),
)


@lru_cache(maxsize=4096)
def fold_reason(reason: str) -> str:
    """``reason`` with hosts, slots, files, ids and numbers replaced by placeholders."""
    text = reason[:REASON_LIMIT]
    for pattern, placeholder in _FOLDS:
        text = pattern.sub(placeholder, text)
    return text.strip()


def cause_of(
    outcome: Outcome,
    code: int | None,
    reason: str | None,
    return_value: int | None,
    signal: int | None,
) -> str:
    """One line with the cause of an unsuccessful execution."""
    if outcome is Outcome.FAILED:
        if signal is not None:
            return f"died on signal {signal}"
        if return_value is not None:
            return f"exited with return value {return_value}"
        return "ended without a return value"
    if reason and reason.strip():
        return fold_reason(reason)
    if code is not None and code in VACATE_CODES:
        return VACATE_CODES[code]
    return {
        Outcome.EVICTED: "evicted, no reason given",
        Outcome.HELD: "held, no reason given",
        Outcome.REMOVED: "removed, no reason given",
        Outcome.SHADOW_EXCEPTION: "shadow exception, no reason given",
        Outcome.RECONNECT_FAILED: "reconnect failed, no reason given",
    }.get(outcome, str(outcome))
