"""Groups of jobs and nodes with one cause; holds in words.

Each group becomes one entry.

Manual: "Job ClassAd Attributes" (HoldReason, HoldReasonCode, HoldReasonSubCode).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from metlmon.health.advice import Advice, hold_advice, hold_codes, transfer_urls
from metlmon.health.types import KINDS, HealthEntry, Severity
from metlmon.model.job_events import JobId, NodeKey
from metlmon.model.reasons import (
    CODES_WITHOUT_CAUSE,
    INPUT,
    OUTPUT,
    code_name,
    find_policy,
    with_common_numbers,
)
from metlmon.snapshot.records import HOUR, Execution, Hold, Job, NodeFault, Transfer
from metlmon.stats.causes import is_quota
from metlmon.text.formatting import count, duration, number

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
        self._holds: dict[str | None, Hold] = {}
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

    def add_hold(self, hold: Hold) -> None:
        """Add a hold; where reasons are the cause, the text says what they have in common."""
        self._holds.setdefault(hold.reason, hold)

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
        self, run: str | None, node: NodeKey | None, since: datetime | None, until: datetime | None
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
        if len(self._holds) > 1 and _is_cause(hold := next(iter(self._holds.values()))):
            common = with_common_numbers(hold.cause, self._holds)
            fields["text"] = hold_text(replace(hold, reason=common))
        code, reason = fields.get("code"), fields.get("reason")
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
            code_name=(code_name(code, reason) or None) if code is not None else None,
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
        key=f"{kind} {suffix}", kind=kind, open=is_open, text=text, steps=steps, **(values | fields)
    )


def unique(values: Iterable[T | None]) -> tuple[T, ...]:
    """The values without None and without repetition."""
    return tuple(dict.fromkeys(value for value in values if value is not None))


# --- holds in words: what they have in common, and one line on each -------------------

HoldCause: TypeAlias = tuple[int | None, int | None, str]
"""Code, subcode and, where these do not identify the cause, the folded reason."""

CODES_WITH_REASON: Final = CODES_WITHOUT_CAUSE | {None}

TEXT_LIMIT: Final = 200
"""Length in characters of a reason in the line of an entry; its ``reason`` is complete."""

_TOO_LARGE: Final = re.compile(r"\((\d{1,12})\) is greater than \w{1,60} \((\d{1,12})\)")
_LIMIT: Final = re.compile(r"bytes exceeded \(max=(\d{1,12}) MB")
_WALL_TIME: Final = re.compile(r"duration of (?:(\d{1,6})\+)?(?:(\d{1,4}):)?(\d\d):(\d\d)\b")
BY_USER: Final = re.compile(r"\(by user ([^()\s]{1,64})\)")


def hold_cause(hold: Hold) -> HoldCause:
    """What the holds of one entry have in common."""
    hold = _with_codes(hold)
    if hold.code in CODES_WITH_REASON:
        return hold.code, None, hold.cause
    if is_quota(hold.code, hold.subcode, hold.reason):
        return None, None, "quota"
    if hold.code in (OUTPUT, INPUT):
        return hold.code, hold.subcode, hold_advice(hold.code, hold.subcode, hold.reason).title
    return hold.code, hold.subcode, ""


def _is_cause(hold: Hold) -> bool:
    """Whether the text of a hold has its reason, rather than what a code or a policy means."""
    is_known = is_quota(hold.code, hold.subcode, hold.reason) or find_policy(hold.reason)
    return hold.code in CODES_WITH_REASON and not is_known


def hold_text(hold: Hold, urls: Collection[str] = ()) -> str:
    """``wall-time limit reached (hold 47)``; for a failed transfer with the URL.

    ``urls``: those of several holds with this cause; by default that of the hold.
    """
    advice = hold_advice(hold.code, hold.subcode, hold.reason)
    code = f" (hold {hold.code})" if hold.code else ""
    hold = _with_codes(hold)
    text = f"{_words(hold, advice)}{code}"
    urls = urls or failed_urls(hold)
    if not urls:
        return text
    more = f" and {count(len(urls) - 1, 'other URL')}" if len(urls) > 1 else ""
    return f"{text}: {shorten(next(iter(urls)))}{more}"


def failed_urls(hold: Hold) -> tuple[str, ...]:
    """The URLs whose transfer failed."""
    is_transfer = _with_codes(hold).code in (OUTPUT, INPUT)
    return transfer_urls(hold.reason) if is_transfer else ()


def _with_codes(hold: Hold) -> Hold:
    code, subcode = hold_codes(hold.code, hold.subcode, hold.reason)
    return hold if code == hold.code else replace(hold, code=code, subcode=subcode)


def _words(hold: Hold, advice: Advice) -> str:
    reason = " ".join((hold.reason or "")[: 10 * TEXT_LIMIT].split())
    if hold.code in (32, 33) and (sizes := _TOO_LARGE.search(reason)):
        what = "input" if hold.code == 32 else "output"
        return f"{what} {number(int(sizes[1]))} MB > {number(int(sizes[2]))} MB allowed"
    if hold.code in (32, 33) and (limit := _LIMIT.search(reason)):
        what = "input" if hold.code == 32 else "output"
        return f"{what} larger than the {number(int(limit[1]))} MB allowed"
    if hold.code in (46, 47) and (limit := _WALL_TIME.search(reason)):
        days, hours, minutes, seconds = (int(part or 0) for part in limit.groups())
        length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        what = "wall-time limit" if hold.code == 47 else "allowed job duration"
        return f"{what} of {duration(length.total_seconds())} reached"
    if is_quota(hold.code, hold.subcode, reason):
        return advice.title
    policy = find_policy(reason)
    if policy is not None:
        return shorten(f"{advice.title}: {policy.expression}")
    if hold.code == 1:
        user, detail = BY_USER.search(reason), BY_USER.sub("", reason).strip()
        more = "" if not detail or detail.startswith("via ") else f": {detail}"
        return shorten(f"held by {user[1] if user else 'a user'}{more}")
    if hold.code not in CODES_WITH_REASON:
        return advice.title
    if not reason:
        return "held, no reason logged"
    return shorten(f"{advice.title}: {reason}" if hold.code else reason)


def shorten(text: str) -> str:
    """At most TEXT_LIMIT characters of a text."""
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 1] + "…"
