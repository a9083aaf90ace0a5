"""Health entries: each trouble of an ensemble once, ranked by the epochs that it blocks.

The header, the Health screen, the faults filter, ``metlmon health``, ``status --json``,
``--exit-on`` and notifications all read these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from msgspec import Struct

from metlmon.model.job_events import JobId, NodeKey

if TYPE_CHECKING:
    from metlmon.snapshot.records import Status


class Severity(StrEnum):
    """How serious an entry is; members are in the order in which entries are listed.

    ``STOPPED``: something cannot continue. ``BLOCKED``: something waits for a person.
    ``COSTLY``: it costs time or GPU-hours. ``NOTE``: it limits what the figures can say.
    """

    STOPPED = "stopped"
    BLOCKED = "blocked"
    COSTLY = "costly"
    NOTE = "note"


def numbered(steps: Sequence[str]) -> tuple[str, ...]:
    """The steps with their numbers, where there are several."""
    if len(steps) < 2:
        return tuple(steps)
    return tuple(f"{number}. {step}" for number, step in enumerate(steps, 1))


class HealthEntry(Struct, frozen=True, kw_only=True):
    """One trouble: what it is, whom it concerns, and the next step.

    ``key`` identifies the trouble in later snapshots and processes. ``kind``: one of
    :data:`metlmon.health.kinds.KINDS`. ``open``: whether it holds at as-of. ``text``: one line that
    names the cause, without names of runs; ``reason``: the full text as logged, or None. ``steps``:
    what to do, in order. ``act``: the offered action by its name in ``metlmon act``, or None.
    ``act_when``: when that will be possible, None if nothing in the files rules it out now.
    ``runs``: run keys; ``nodes``: the number of nodes; ``node_keys`` and ``jobs``: those that the
    cursor or an action can go to. ``epochs_blocked``: epochs that will not be trained unless
    somebody acts. ``code``, ``subcode``: of the hold, vacate or exit. ``policy``: the expression
    that held or removed it; ``removal_at``: when the policy will remove the first held job, and
    ``removal_times``: each of them. ``host``: the only one concerned. ``error_file``: where a
    failed job wrote ``reason``, relative to the dagdir. ``gpu_hours``: badput, in the ensemble's
    hour unit; ``unused_gpu_hours``: those of GPUs that were allocated and not in use. ``heading``:
    what several entries have in common, under which a screen lists them (one policy that removed
    jobs held for different reasons). Names and reasons are as logged: screens and commands make
    them safe.
    """

    json_omits: ClassVar = frozenset({"node_keys", "removal_times"})
    json_properties: ClassVar = ("advice",)

    key: str
    kind: str
    severity: Severity
    open: bool
    text: str
    steps: tuple[str, ...]
    act: str | None = None
    act_when: str | None = None
    dag: str | None = None
    runs: tuple[str, ...] = ()
    nodes: int = 0
    node_keys: tuple[NodeKey, ...] = ()
    jobs: tuple[JobId, ...] = ()
    epochs_blocked: int = 0
    since: datetime | None = None
    until: datetime | None = None
    code: int | None = None
    subcode: int | None = None
    code_name: str | None = None
    policy: str | None = None
    removal_at: datetime | None = None
    removal_times: Mapping[JobId, datetime] = {}
    reason: str | None = None
    error_file: str | None = None
    gpu_hours: float = 0.0
    unused_gpu_hours: float = 0.0
    site: str | None = None
    host: str | None = None
    heading: str | None = None

    @property
    def advice(self) -> str:
        """The steps as one text, numbered if there are several."""
        return "  ".join(numbered(self.steps))

    @property
    def cost(self) -> float:
        """The hours that it costs: badput, or for idle GPUs the hours not in use."""
        return self.gpu_hours or self.unused_gpu_hours

    @property
    def evidence(self) -> str | None:
        """The reason after the name of its file; None if ``text`` contains it."""
        if self.error_file:
            return f"{self.error_file}: {self.reason}"
        return self.reason if self.reason and self.reason not in self.text else None


class Health(Struct, frozen=True):
    """All entries, the open ones first, each group ranked; and the ensemble in figures.

    ``runs_stopped``: runs that cannot continue unless somebody acts; ``epochs_left``: their epochs
    that are not done; ``jobs_queued``: jobs in the queue according to the logs; ``names``: run
    names by run key. ``badput``: of the ``ended_hours`` of all executions that have ended.
    ``hour_unit``: the unit of all hours, such as ``GPU-h``. ``item``: what runs consist of, "job"
    for jobs without epochs. ``unlogged``: jobs were submitted, but no event log of any is here.
    """

    entries: tuple[HealthEntry, ...] = ()
    runs_total: int = 0
    runs_stopped: int = 0
    epochs_left: int = 0
    jobs_queued: int = 0
    badput: float = 0.0
    ended_hours: float = 0.0
    names: Mapping[str, str] = {}
    hour_unit: str = "GPU-h"
    item: str = "epoch"
    unlogged: bool = False

    @property
    def open_entries(self) -> tuple[HealthEntry, ...]:
        """Entries that hold at as-of."""
        return tuple(entry for entry in self.entries if entry.open)

    @property
    def closed_entries(self) -> tuple[HealthEntry, ...]:
        """Entries that are over."""
        return tuple(entry for entry in self.entries if not entry.open)

    @property
    def worst(self) -> HealthEntry | None:
        """The first open entry above a note."""
        return next((e for e in self.open_entries if e.severity is not Severity.NOTE), None)


HealthSource: TypeAlias = Callable[[], Health | None]
"""Returns the current health; None while it is unknown."""

ExitWhen: TypeAlias = "Callable[[Status, HealthSource], int | None]"
"""Returns the exit status for a status and its health; None to continue."""
