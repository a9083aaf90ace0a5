"""Severity of findings."""

from __future__ import annotations

from enum import StrEnum


class Severity(StrEnum):
    """The severity of a finding.

    ERROR: HTCondor refuses it, or a node cannot do its work. WARNING: it runs, but causes trouble
    later. NOTE: worth knowing, often intended.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
