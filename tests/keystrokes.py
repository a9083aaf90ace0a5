"""Several keys in one write, as a terminal sends them that has the Kitty keyboard protocol.

The program takes plain characters that come in one read for a paste, and a test does not know
when what it wrote has been read.
"""

from __future__ import annotations

import os
import re
from typing import Final

_KEYS: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)?|.", re.DOTALL)


def encode_keys(keys: str) -> bytes:
    """Each printable character as the sequence of its key (``CSI code ; ; text u``); sequences,
    control characters and a character alone as they are."""
    found = _KEYS.findall(keys)
    if len(found) == 1:
        return keys.encode()
    return "".join(
        f"\x1b[{ord(key)};;{ord(key)}u" if key.isprintable() else key for key in found
    ).encode()


def type_keys(master: int, keys: bytes) -> None:
    """Write keys to a pseudo-terminal."""
    os.write(master, encode_keys(keys.decode()))
