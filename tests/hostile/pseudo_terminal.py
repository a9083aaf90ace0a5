"""The real program on a pseudo-terminal, and its bytes without its own sequences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.hostile.corpus import fields_in
from tests.support.terminal import PseudoTerminal


class Terminal(PseudoTerminal):
    """A program; ``seen`` has its screens whenever they came to rest."""

    def __init__(
        self, argv: Sequence[bytes | str], size: tuple[int, int], env: Mapping[str, str]
    ) -> None:
        super().__init__(argv, size, env)
        self.seen: list[str] = []

    def wait_for(self, text: str, gone: str | None = None) -> None:
        super().wait_for(text, gone)
        self.seen.append(self.text)

    def wait_for_field(self, field: str) -> None:
        """Wait until a text of this field of the dagdir is on the screen."""
        self.until(lambda: field in fields_in(self.text), f"{field} did not come")

    def rest(self, seconds: float = 0.25) -> None:
        """Wait until there was no output for this time, and no thread waits for a processor."""
        self.until(lambda: not self.pump(seconds) and not self._is_busy(), "it never rests")
        self.seen.append(self.text)

    def _is_busy(self) -> bool:
        for thread in Path(f"/proc/{self.child.pid}/task").glob("*/stat"):
            with suppress(OSError):
                if thread.read_text().rpartition(")")[2].split()[0] == "R":
                    return True
        return False

    def end(self) -> int:
        status = super().end()
        self.seen.append(self.text)
        return status


SEQUENCES = re.compile(
    r"\x1b\[[0-9;:]*m"  # colours and weights
    r"|\x1b\[\d*(?:;\d*)?H|\x1b\[\d*[ABCDGd]"  # where to write
    r"|\x1b\[\d*[JKXP@LMST]|\x1b\[(?:\d+;\d+)?r"  # erase, insert, scroll
    r"|\x1b\[\?(?:25|7|1004|1049|2004|2026|2048|1000|1002|1003|1006|1015|1016)[hl]"
    r"|\x1b\[\?(?:2026|2048)\$p"
    r"|\x1b\[(?:>\d+|<|\?|=\d+(?:;\d+)?)u"  # the keyboard protocol
    r"|\x1b\[14t|\x1b\[c|\x1b\[6n|\x1b\[>0q"
    r"|\rreading \d+ MB: +\d+%(?=\r)|\r(?=\x1b\[K)"  # how far a command has read
    r"|\r(?![b=])"  # to the first column; what follows it in an attack is b or =
    r"|\x1b\]22;default(?:\x1b\\|\x07)"  # the ordinary mouse pointer, of Textual
)
"""Every form of sequence that the program writes itself, and no other."""


def without_own(data: bytes) -> str:
    """What reached a terminal, without the program's own sequences."""
    return SEQUENCES.sub("", data.decode("utf-8")).replace("\r\n", "\n")
