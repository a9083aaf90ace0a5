"""A command on a pseudo-terminal, for the tests on a pool."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from tests.support.terminal import PseudoTerminal

PATIENCE = 300.0
"""Seconds until a test says that what it waits for does not come."""

KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "shift+tab": "\x1b[Z",
    "space": " ",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "backspace": "\x7f",
}
"""What a terminal sends for a key that has a name; any other key sends its character."""


class Terminal(PseudoTerminal):
    """A command whose screen is searched by regular expressions; it ends by SIGTERM."""

    def __exit__(self, *error: object) -> None:
        if self.child.poll() is None:
            self.child.terminate()
            with suppress(AssertionError):
                self.end()
        super().__exit__(*error)

    def settle(self) -> str:
        """Wait until no more output comes; return the text on the screen."""
        self.pump(1.0)
        while self.pump(0.15):
            pass
        return self.text

    def press(self, *keys: str) -> None:
        """Type keys, as :data:`KEYS` names them, or characters."""
        for key in keys:
            self.type(KEYS.get(key) or key)

    def until_text(
        self, condition: Callable[[str], object], what: str, seconds: float = PATIENCE
    ) -> str:
        """Wait until the screen's text meets a condition; return it."""
        self.until(lambda: condition(self.text), f"{what} did not come", seconds)
        return self.text

    def wait_for_match(
        self, pattern: str, gone: str | None = None, seconds: float = PATIENCE
    ) -> str:
        """Wait until a pattern matches the screen, and ``gone`` does not; return the text."""

        def matches(text: str) -> bool:
            return bool(re.search(pattern, text)) and not (gone and re.search(gone, text))

        return self.until_text(matches, repr(pattern), seconds)

    def line(self, pattern: str) -> str:
        """The first line of the screen that a regular expression matches."""
        found = [line for line in self.text.splitlines() if re.search(pattern, line)]
        assert found, f"no line has {pattern!r}:\n{self.text}"
        return found[0]
