"""How bad a finding is."""

from __future__ import annotations

from enum import StrEnum


class Severity(StrEnum):
    """ERROR: HTCondor refuses it, or a node cannot do what it is for. WARNING: it runs, and
    people regret it. NOTE: worth knowing, often meant so."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
