"""What one of HTCondor's tools says of a job: why it is idle, or what it is writing now."""

from __future__ import annotations

from typing import ClassVar

from metlmon.live.feed import Snapshot
from metlmon.model.states import State
from metlmon.pool import job_tools
from metlmon.redact import redact_secrets
from metlmon.text.formatting import STATES, job_id, plain
from metlmon.text.spans import BOLD, DIM, NOTE, Line, line, wrap
from screens.base.screens import DocumentScreen, ask_in_thread

RUNS: frozenset[State] = frozenset({State.RUNNING, State.SUSPENDED, State.TRANSFERRING_OUTPUT})
"""States of a job that has a machine, on which its output can be read."""


def refusal_to_ask(state: State) -> str | None:
    """Why no tool says anything of a job in this state; None where one does."""
    if state is State.IDLE or state in RUNS:
        return None
    return f"it is {STATES[state].word}: only an idle or a running job can be asked about"


class ToolScreen(DocumentScreen):
    """The answer of ``condor_q -better-analyze`` or of ``condor_tail``, asked for once."""

    SCOPES: ClassVar[tuple[str, ...]] = ("below",)

    def __init__(self, cluster: int, proc: int, idle: bool) -> None:
        super().__init__()
        self.job = (cluster, proc)
        self._idle = idle
        self._lines: list[str] | None = None
        self._problem: str | None = None

    def on_mount(self) -> None:
        super().on_mount()
        query = job_tools.analyze if self._idle else job_tools.tail
        ask_in_thread(self, lambda: query(self.job), self._receive, "the tool failed")

    def _receive(self, lines: list[str] | None, error: str | None) -> None:
        self._lines, self._problem = lines, error
        self._refresh_if_mounted()

    def show(self, snapshot: Snapshot | None) -> None:
        command = (job_tools.analyze_command if self._idle else job_tools.tail_command)(self.job)
        title = "why it is idle" if self._idle else "what it has written, where it runs"
        head = [
            line(" ", ("job ", DIM), (job_id(*self.job), BOLD), f"  {title}"),
            line(" ", (" ".join(command), DIM)),
            (),
        ]
        self.show_document(head, self._body())

    def _body(self) -> list[Line]:
        room = self.app.size.width - 3
        if self._problem is not None:
            return wrap(plain(redact_secrets(self._problem), 2000), room, NOTE, indent=1)
        if self._lines is None:
            seconds = job_tools.ANALYZE_SECONDS if self._idle else job_tools.TAIL_SECONDS
            return [line(" ", (f"waiting for the pool (up to {seconds:.0f}s) …", DIM))]
        body: list[Line] = []
        for text in self._lines:
            body += wrap(plain(redact_secrets(text.expandtabs(8))), room, indent=1) or [()]
        return body or [line(" ", ("it printed nothing", DIM))]
