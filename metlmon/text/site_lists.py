"""Lists of sites in one text, as in MetlSite, MetlExcluded and the files of the gate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SEPARATOR: Final = "|"
"""Separates the sites of a list; names may contain commas and blanks."""


def site_list(text: str) -> tuple[str, ...]:
    """The sites of a list; a single name is a list of one."""
    return tuple(filter(None, (name.strip() for name in text.split(SEPARATOR))))


def joined(sites: Iterable[str]) -> str:
    """The sites as a list."""
    return SEPARATOR.join(sites)
