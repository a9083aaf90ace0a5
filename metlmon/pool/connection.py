"""The line to the worker: the process in which HTCondor's bindings run."""

from __future__ import annotations


class Connection:
    """Starts the worker when it is needed first, and anew when it ended."""

    def __init__(self) -> None: ...

    def close(self) -> None:
        """End the worker; returns when it has ended."""
