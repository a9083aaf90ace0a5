"""A desk that says what a test wants, and the form's doings in words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from metlmon.pool.types import (
    ActionPreview,
    ActionRequest,
    ActionResult,
    PoolError,
    QueueSnapshot,
    ScheddInfo,
    SelectedRun,
    SiteInfo,
    SubmitResult,
)
from metlmon.snapshot.types import DagRow, JobRow, Status

SITES = (
    SiteInfo("Expanse-GPU", 2, ("NVIDIA A100-SXM4-40GB",)),
    SiteInfo("Delta-GPU", 4, ("NVIDIA A40",)),
    SiteInfo("CHTC-Spark-CE1", 1, ("NVIDIA L40S", "NVIDIA H100")),
)
HERE = ScheddInfo(
    "ap1.example.org", "23.9.6", "someone@example.org", True, "/usr/bin/condor_submit_dag"
)


class ScriptedDesk:
    """Answers at once, or when ``gate`` is opened; an answer that is an error is raised."""

    word = QueueSnapshot()

    def __init__(
        self,
        where: ScheddInfo | PoolError = HERE,
        sites: Sequence[SiteInfo] | PoolError = SITES,
        submitted: SubmitResult | PoolError | None = None,
    ) -> None:
        self.answers = {"where": where, "sites": sites}
        self.submitted = submitted or SubmitResult(4711, "htcondor2")
        self.gate = threading.Event()
        self.gate.set()
        self.dags: list[Path] = []
        self.asked: list[str] = []
        self.closed = False

    def _answer(self, question: str) -> object:
        self.asked.append(question)
        assert self.gate.wait(20)
        answer = self.answers[question]
        if isinstance(answer, PoolError):
            raise answer
        return answer

    def where(self) -> ScheddInfo:
        return self._answer("where")  # type: ignore[return-value]

    def sites(self) -> tuple[SiteInfo, ...]:
        return self._answer("sites")  # type: ignore[return-value]

    def submit_dag(self, dag_file: Path) -> SubmitResult:
        self.dags.append(dag_file)
        assert self.gate.wait(20)
        if isinstance(self.submitted, PoolError):
            raise self.submitted
        return self.submitted

    def offers(
        self,
        status: Status,
        jobs: Sequence[JobRow],
        dags: Sequence[DagRow],
        runs: Sequence[SelectedRun] = (),
    ) -> tuple[ActionPreview, ...]:
        return ()

    def perform(
        self, order: ActionRequest, told: Callable[[ActionResult], None]
    ) -> tuple[ActionResult, ...]:
        raise AssertionError("nothing is acted on here")

    def close(self) -> None:
        self.closed = True
        self.gate.set()
