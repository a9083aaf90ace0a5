"""Health: its kinds, its entries, its first line.

Entries: each trouble of an ensemble once, ranked by the epochs that it blocks.

The header, the Health screen, the faults filter, ``metlmon health``, ``status --json``,
``--exit-on`` and notifications all read these.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from msgspec import Struct

from metlmon.model.job_events import JobId, NodeKey
from metlmon.text.formatting import count, hours, number, share

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


class Kind(Struct, frozen=True):
    """One kind of trouble.

    ``title``: the wording of headings and columns. ``severity``: that of an open entry, unless its
    rule sets another one. ``condition``: the name of the event in notifications, and in
    ``--exit-on`` where it has a condition of that name; None for a kind that neither reports.
    """

    title: str
    severity: Severity
    condition: str | None = None


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "dag-failed": Kind("DAG failed", Severity.STOPPED, "failed"),
        "dag-stopped": Kind("DAG stopped", Severity.STOPPED, "failed"),
        "dag-crashes": Kind("DAGMan crashes", Severity.STOPPED, "failed"),
        "dag-stuck": Kind("DAGMan stuck", Severity.BLOCKED, "stalled"),
        "dag-held": Kind("DAGMan held", Severity.BLOCKED, "held"),
        "dag-halted": Kind("DAG halted", Severity.BLOCKED),
        "run-failed": Kind("run failed", Severity.STOPPED, "failed"),
        "run-removed": Kind("run removed", Severity.STOPPED, "failed"),
        "node-failed": Kind("node failed", Severity.STOPPED, "failed"),
        "job-failed": Kind("job failed", Severity.STOPPED, "failed"),
        "removed-by-policy": Kind("removed by a policy", Severity.STOPPED, "failed"),
        "removed-by-user": Kind("removed by a user", Severity.STOPPED, "failed"),
        "script-failed": Kind("script failed", Severity.STOPPED, "failed"),
        "submit-failed": Kind("submission failed", Severity.STOPPED, "failed"),
        "retries-exhausted": Kind("retries exhausted", Severity.STOPPED, "failed"),
        "futile": Kind("futile", Severity.STOPPED, "failed"),
        "held": Kind("held", Severity.BLOCKED, "held"),
        "quota": Kind("disk quota", Severity.BLOCKED, "held"),
        "log-silent": Kind("log silent", Severity.BLOCKED, "stalled"),
        "black-hole": Kind("black hole", Severity.COSTLY, "black-hole"),
        "wrong-site": Kind("wrong site", Severity.COSTLY),
        "transfer-stalled": Kind("stalled transfer", Severity.COSTLY, "stalled"),
        "disconnected": Kind("disconnected", Severity.COSTLY, "stalled"),
        "unmatched": Kind("unmatched", Severity.COSTLY, "stalled"),
        "diverged": Kind("diverged", Severity.COSTLY, "diverged"),
        "configuration": Kind("arguments changed", Severity.COSTLY),
        "lineage-broken": Kind("checkpoint chain broken", Severity.COSTLY),
        "annex-expired": Kind("annex expired", Severity.COSTLY),
        "gpu-idle": Kind("GPU idle", Severity.COSTLY),
        "evictions": Kind("mass eviction", Severity.COSTLY),
        "evicted": Kind("evicted", Severity.COSTLY, "stalled"),
        "rescue-missing": Kind("rescue file missing", Severity.COSTLY),
        "ended-early": Kind("ended early", Severity.NOTE),
        "dag-file-changed": Kind("DAG file changed", Severity.NOTE),
        "lineage-gap": Kind("checkpoint not recorded", Severity.NOTE),
        "memory-tight": Kind("memory tight", Severity.NOTE),
        "over-requested": Kind("over-requested", Severity.NOTE),
        "log-gap": Kind("log gap", Severity.NOTE),
        "log-damage": Kind("log damaged", Severity.NOTE),
    }
)
"""All kinds, in the order in which the guide lists them."""


def numbered(steps: Sequence[str]) -> tuple[str, ...]:
    """The steps with their numbers, where there are several."""
    if len(steps) < 2:
        return tuple(steps)
    return tuple(f"{number}. {step}" for number, step in enumerate(steps, 1))


class HealthEntry(Struct, frozen=True, kw_only=True):
    """One trouble: what it is, whom it concerns, and the next step.

    ``key`` identifies the trouble in later snapshots and processes. ``kind``: one of
    :data:`KINDS`. ``open``: whether it holds at as-of. ``text``: one line that
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
    names by run key, and ``labels``: those with the DAG where several runs have the same name.
    ``badput``: of the ``ended_hours`` of all executions that have ended. ``doubtful``: by run key,
    why the model of a run may not be what it seems although nothing of it is held or failed.
    ``hour_unit``: the unit of all hours, such as ``GPU-h``. ``item``: what runs consist of, "job"
    for jobs without epochs. ``unlogged``: jobs were submitted, but no event log of any is here.
    """

    json_omits: ClassVar = frozenset({"labels"})

    entries: tuple[HealthEntry, ...] = ()
    runs_total: int = 0
    runs_stopped: int = 0
    epochs_left: int = 0
    jobs_queued: int = 0
    badput: float = 0.0
    ended_hours: float = 0.0
    names: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    hour_unit: str = "GPU-h"
    item: str = "epoch"
    unlogged: bool = False
    doubtful: Mapping[str, str] = {}

    @property
    def open_entries(self) -> tuple[HealthEntry, ...]:
        """Entries that hold at as-of."""
        return tuple(entry for entry in self.entries if entry.open)

    @property
    def closed_entries(self) -> tuple[HealthEntry, ...]:
        """Entries that are over."""
        return tuple(entry for entry in self.entries if not entry.open)

    def label_of(self, run: str) -> str:
        """The name of the run with this key, with its DAG where another one is called the same."""
        return self.labels.get(run) or self.names.get(run, run)

    @property
    def worst(self) -> HealthEntry | None:
        """The first open entry above a note."""
        return next((e for e in self.open_entries if e.severity is not Severity.NOTE), None)

    @property
    def headline(self) -> Headline:
        """``STOPPED  10 of 10 runs · 206 epochs left · no job queued``, or the worst entry."""
        worst = self.worst
        serious = [e for e in self.open_entries if e.severity is not Severity.NOTE]
        others = max(0, len(serious) - 1)
        if self.runs_stopped:
            runs = f"{number(self.runs_stopped)} of {count(self.runs_total, 'run')}"
            parts = [runs, f"{count(self.epochs_left, self.item)} left"]
            if not self.jobs_queued:
                parts.append("no job queued")
            cause = (worst.heading or worst.text) if worst is not None else None
            return Headline(Severity.STOPPED, "STOPPED", " · ".join(parts), cause, others)
        if worst is None and self.unlogged:
            return Headline(Severity.NOTE, "", UNLOGGED)
        if worst is None:
            return _calm(self)
        return Headline(worst.severity, "", worst.text, None, others)


HealthSource: TypeAlias = Callable[[], Health | None]
"""Returns the current health; None while it is unknown."""

ExitWhen: TypeAlias = "Callable[[Status, HealthSource], int | None]"
"""Returns the exit status for a status and its health; None to continue."""


# --- the first line of health: what a header, ``metlmon status`` and notifications say ---

CALM: Final = "nothing held or failed"
NOTABLE_BADPUT: Final = 0.1
"""Share of badput from which it is mentioned although all is well."""
UNLOGGED: Final = "no event log of the jobs is here: only .dagman.out may say that one is held"


class Headline(Struct, frozen=True):
    """The first line of health.

    ``severity``: that of the worst entry, None if all is well. ``label``: STOPPED if runs are
    stopped, else empty. ``text``: the figures, or the worst entry. ``cause``: the worst entry if
    runs are stopped; if all is well the reason of the doubt, or the cause with most badput.
    Omitted, or on a second line, where the first has no room for it. ``others``: the number of
    further open entries above a note.
    """

    severity: Severity | None
    label: str
    text: str
    cause: str | None = None
    others: int = 0

    @property
    def line(self) -> str:
        """The complete headline in one line."""
        more = f" (and {number(self.others)} more)" if self.others else ""
        parts = [f"{self.label}  {self.text}" if self.label else self.text, self.cause or ""]
        return ": ".join(filter(None, parts)) + more


def _calm(health: Health) -> Headline:
    """The headline when all is well; with doubtful models, else much badput and its main cause."""
    if health.doubtful:
        text = f"{CALM} · {count(len(health.doubtful), 'model')} doubtful"
        return Headline(None, "", text, ", ".join(dict.fromkeys(health.doubtful.values())))
    if health.badput <= NOTABLE_BADPUT * health.ended_hours:
        return Headline(None, "", CALM)
    by_kind = defaultdict[str, float](float)
    for entry in health.closed_entries:
        by_kind[entry.kind] += entry.gpu_hours
    kind, most = max(by_kind.items(), key=lambda item: item[1], default=("", 0.0))
    cause = None
    if 2 * most > health.badput:
        # "job failed" as "failed jobs"
        what = re.sub(r"^(job|node|run) (failed|removed)$", r"\2 \1s", KINDS[kind].title)
        cause = f"mostly {what} ({hours(most)} {health.hour_unit})"
    lost = share(health.badput, health.ended_hours)
    return Headline(None, "", f"{CALM} now · had {lost} badput", cause)
