"""Groups of jobs and nodes with one cause; each group becomes one entry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from metlmon.health.kinds import KINDS
from metlmon.health.types import HealthEntry, Severity
from metlmon.model.job_events import JobId, NodeKey
from metlmon.model.reasons import code_name
from metlmon.snapshot.records import HOUR, Execution, Job, NodeFault, Transfer

T = TypeVar("T")


class Group:
    """Jobs and nodes with one cause.

    ``fields``: fields of the entry that all of them share. ``severity``: None for that of the
    kind.
    """

    def __init__(self, kind: str, key: str, *, is_open: bool, **fields: Any) -> None:
        self.kind, self.key, self.open = kind, key, is_open
        self.fields = fields
        self.severity: Severity | None = None
        self.title: str | None = None
        """What the failed job wrote; the entry has the cause in brackets after it."""
        self.seconds = 0.0
        self.blocked = 0
        self.times = 0
        self.faults: list[NodeFault] = []
        self._runs: dict[str, None] = {}
        self._nodes: dict[NodeKey, None] = {}
        self._jobs: dict[JobId, None] = {}
        self.since: datetime | None = None
        self.until: datetime | None = None

    def _severity(self) -> Severity:
        if self.severity is not None:
            return self.severity
        if self.open:
            return KINDS[self.kind].severity
        return Severity.COSTLY if self.seconds else Severity.NOTE

    def add_job(self, job: Job, since: datetime | None, until: datetime | None = None) -> None:
        """Add a job that had the trouble from ``since`` to ``until``."""
        self._jobs[job.job] = None
        self._add(job.key, job.node_key, since, until)

    def add_fault(self, fault: NodeFault) -> None:
        """Add a node."""
        self.faults.append(fault)
        if fault.job is not None:
            self._jobs[fault.job[:2]] = None
        self._add(fault.key, fault.node_key, fault.since, None)

    def add_execution(self, execution: Execution, seconds: float) -> None:
        """Add a lost execution; ``seconds``: in the hour unit of the ensemble."""
        self._jobs[execution.job] = None
        self.seconds += seconds
        self._add(execution.key, execution.node_key, execution.end, execution.end)

    def add_node(self, node: NodeKey, time: datetime | None) -> None:
        """Add a node without trouble, with the time of what it did."""
        self._add(None, node, time, time)

    def add_runs(self, runs: Iterable[str]) -> None:
        self._runs.update(dict.fromkeys(runs))

    def _add(
        self,
        run: str | None,
        node: NodeKey | None,
        since: datetime | None,
        until: datetime | None,
    ) -> None:
        self.times += 1
        if run is not None:
            self._runs[run] = None
        if node is not None:
            self._nodes[node] = None
        if since is not None and (self.since is None or since < self.since):
            self.since = since
        if until is not None and (self.until is None or until > self.until):
            self.until = until

    def entry(self, **fields: Any) -> HealthEntry:
        """The entry; ``fields`` are those that depend on the whole group."""
        fields = {**self.fields, **fields}
        code = fields.get("code")
        return HealthEntry(
            key=f"{self.kind} {self.key}" if self.open else f"{self.kind} {self.key} past",
            kind=self.kind,
            severity=self._severity(),
            open=self.open,
            runs=tuple(self._runs),
            nodes=len(self._nodes),
            node_keys=tuple(self._nodes),
            jobs=tuple(self._jobs),
            epochs_blocked=self.blocked,
            since=self.since,
            until=None if self.open else self.until,
            code_name=(code_name(code) or None) if code is not None else None,
            gpu_hours=self.seconds / HOUR,
            **fields,
        )


def short_cause(execution: Execution, cause: str) -> str:
    """``exit 3`` for an execution with a return value, as written after what its job wrote."""
    value = execution.return_value
    return cause if value is None else f"exit {value}"


def make_entry(
    *,
    kind: str,
    text: str,
    steps: tuple[str, ...],
    is_open: bool,
    entries: Sequence[Execution | Transfer | Job] = (),
    key: str = "",
    **fields: Any,
) -> HealthEntry:
    """An entry on executions, transfers or jobs; with the site if they share one."""
    sites = {None if isinstance(each, Job) else each.site for each in entries}
    nodes = unique(None if isinstance(each, Transfer) else each.node_key for each in entries)
    values: dict[str, Any] = {
        "severity": KINDS[kind].severity,
        "runs": unique(each.key for each in entries),
        "jobs": unique(each.job for each in entries),
        "site": next(iter(sites)) if len(sites) == 1 else None,
        "nodes": len(nodes),
        "node_keys": nodes,
    }
    suffix = key or str(fields.get("since"))
    return HealthEntry(
        key=f"{kind} {suffix}",
        kind=kind,
        open=is_open,
        text=text,
        steps=steps,
        **(values | fields),
    )


def unique(values: Iterable[T | None]) -> tuple[T, ...]:
    """The values without None and without repetition."""
    return tuple(dict.fromkeys(value for value in values if value is not None))
