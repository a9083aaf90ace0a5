"""The submit pane."""

from __future__ import annotations

from metlmon.authoring.records import Request
from screens.monitor import MonitorScreen


class SubmitScreen(MonitorScreen):
    """Choose, see, submit, watch."""

    def __init__(self, draft: Request | None = None) -> None:
        super().__init__()
        self.draft = draft
