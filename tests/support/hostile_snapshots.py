"""Pictures in which every text a log or a job may have written tries to harm the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from metlmon.pool.types import ActionPreview, ActionRequest, ActionResult, SelectedRun
from metlmon.snapshot.types import DagRow, JobRow, JobView, ProblemGroup, RunView, Status
from tests.support.fake_pool import QUEUE, ActingDesk
from tests.support.sample_snapshots import FakeFeed, problems, status, update

PAYLOAD = (
    "[b]m[/]\x1b]0;OWNED\x07\x1b[2J\x1b[31m\x9b31m\x1b]52;c;RVZJTA==\x07\x90q\x9c[bold red]mark[/]"
    "[@click=app.exit()]x[/]\u202eesrever\u2066\u200b\u200d\ufeff\x00\x08\x7f\r\n\t\u2028"
    "a\u0301\u0301\u0301\u0301\u0301é模\ud83d"
)

KEYS = frozenset({"key", "uuid", "runs"})
"""Fields by which things are found again: made hostile, but still told apart."""


def harmed(thing: Any, field: str = "") -> Any:
    """The same picture with the payload in front of every text in it."""
    if isinstance(thing, Enum | datetime | bool | int | float) or thing is None:
        return thing
    if isinstance(thing, str):
        return f"{thing}{PAYLOAD}" if field in KEYS else f"{PAYLOAD}{thing}"
    if isinstance(thing, tuple):
        return tuple(harmed(each, field) for each in thing)
    if isinstance(thing, Struct):
        changed = {name: harmed(getattr(thing, name), name) for name in thing.__struct_fields__}
        return replace(thing, **changed)
    return thing


class HostileFeed(FakeFeed):
    """A feed of harmed pictures."""

    def __init__(self) -> None:
        self._clean = FakeFeed(update(status()))
        super().__init__(replace(update(), status=harmed(status()), error=PAYLOAD))
        self.causes = harmed(problems())

    def run_view(self, key: str) -> RunView | None:
        return harmed(self._clean.run_view(key.removesuffix(PAYLOAD)))

    def job_view(self, cluster: int, proc: int) -> JobView | None:
        view = self._clean.job_view(cluster, proc)
        return None if view is None else harmed(replace(view, queue=replace(QUEUE, differs="x")))

    def queued_jobs(self, run: str | None = None) -> tuple[JobRow, ...]:
        return harmed(self._clean.queued_jobs(run))

    def problems(self) -> tuple[ProblemGroup, ...]:
        return self.causes


class HostileDesk(ActingDesk):
    """A desk to which the schedd says such things."""

    def __init__(self) -> None:
        super().__init__()
        self.word = harmed(self.word)

    def offers(
        self,
        status: Status,
        jobs: Sequence[JobRow],
        dags: Sequence[DagRow],
        runs: Sequence[SelectedRun] = (),
    ) -> tuple[ActionPreview, ...]:
        return harmed(super().offers(status, jobs, dags, runs))

    def perform(
        self, order: ActionRequest, told: Callable[[ActionResult], None]
    ) -> tuple[ActionResult, ...]:
        answers = super().perform(order, lambda answer: None)
        return tuple(replace(answer, text=PAYLOAD) for answer in answers)
