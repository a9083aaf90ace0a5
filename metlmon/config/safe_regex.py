"""Regular expressions of the settings, with a time limit.

A ``metlmon.toml`` may belong to another user, and a pattern that tries millions of ways to match
a line would never return.
"""

from __future__ import annotations

import math
import re
import time
import warnings
from typing import Any, Final

MAX_PATTERN: Final = 500
"""Characters of a pattern: people write less than a hundred."""

MAX_REPEATS: Final = 10_000
"""Product of all ``{n}`` of a pattern, which ``regex`` expands in memory."""

LONGEST_TEXT: Final = 2000
"""Characters of a text that is matched with a pattern."""

SEARCH_SECONDS: Final = 0.5
TOTAL_SECONDS: Final = 10.0
"""Time limits of one search and of all slow searches with one pattern."""

SLOW_SECONDS: Final = 0.0002
"""A search that takes longer counts towards the total; usual ones take microseconds."""


class InvalidPattern(Exception):
    """The problem of a pattern."""


class SafePattern:
    """A compiled pattern in Python's syntax that is disabled when it takes too long.

    A disabled pattern matches nothing. Raises InvalidPattern.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN:
            raise InvalidPattern(f"is longer than {MAX_PATTERN} characters")
        if math.prod(max(1, int(n)) for n in re.findall(r"(\d+)\}", text)) > MAX_REPEATS:
            raise InvalidPattern(f"repeats its parts more than {MAX_REPEATS:,} times")
        import regex  # Imported here, since few users set a pattern.

        try:
            with warnings.catch_warnings():
                # FutureWarnings about the syntax do not concern users.
                warnings.simplefilter("ignore")
                re.compile(text)
                self._compiled: Any = regex.compile(text, regex.VERSION0)
        except (re.error, regex.error, OverflowError, RecursionError) as error:
            raise InvalidPattern(f"is no valid pattern: {error}") from None
        self.pattern = text
        self.groupindex: dict[str, int] = dict(self._compiled.groupindex)
        self.disabled = False
        self._seconds_left = TOTAL_SECONDS

    def match(self, text: str) -> re.Match[str] | None:
        """Match at the beginning of ``text``, of which the first characters count."""
        return self._within_limit(self._compiled.match, text)

    def search(self, text: str) -> re.Match[str] | None:
        """Search ``text``, of which the first characters count."""
        return self._within_limit(self._compiled.search, text)

    def _within_limit(self, function: Any, text: str) -> re.Match[str] | None:
        if self.disabled:
            return None
        start = time.thread_time()
        match: re.Match[str] | None = None
        try:
            match = function(text[:LONGEST_TEXT], timeout=SEARCH_SECONDS)
        except (TimeoutError, MemoryError):
            self.disabled = True
        seconds = time.thread_time() - start
        if seconds > SLOW_SECONDS:
            self._seconds_left -= seconds
            self.disabled |= self._seconds_left < 0
        return match


Pattern = re.Pattern[str] | SafePattern
