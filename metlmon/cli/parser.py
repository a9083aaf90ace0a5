"""The parser of the command line: what it cannot use it quotes, visibly."""

from __future__ import annotations

import argparse
from typing import Final, NoReturn

SENTENCE: Final = 1000
"""Characters of a complaint: an argument may be a megabyte."""


class CommandParser(argparse.ArgumentParser):
    """argparse's, which would write arguments to the terminal as they are: a file name that a
    shell completed can hold an escape sequence."""

    def error(self, message: str) -> NoReturn:
        from metlmon.redact import redact_secrets
        from metlmon.text.formatting import plain

        super().error(plain(redact_secrets(message[: 16 * SENTENCE]), SENTENCE))
