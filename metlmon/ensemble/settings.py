"""What a user may set about reading an ensemble (``metlmon.toml``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

TRAIN_NODE: Final = r"^(?P<run>.*?)[-_.+]?train[-_]?epoch[-_]?(?P<epoch>\d+)$"
"""A training node: the part before it names the run, the number is the epoch."""

SIDE_NODE: Final = r"^(?P<run>.*?)[-_.+]?eval(?:uate|uation)?[-_]?epoch[-_]?(?P<epoch>\d+)$"
"""A node of a run that trains nothing."""


@dataclass(frozen=True, slots=True)
class Settings:
    """``sites``: (host pattern, site), tried before the built-in table.
    ``checkpoint_codes``: return values that mean "checkpointed, run me again".
    ``read_only``: no action may be offered."""

    train_node: re.Pattern[str] = re.compile(TRAIN_NODE)
    side_node: re.Pattern[str] = re.compile(SIDE_NODE)
    sites: tuple[tuple[str, str], ...] = ()
    checkpoint_codes: frozenset[int] = frozenset()
    zone: tzinfo | None = None
    read_only: bool = False
