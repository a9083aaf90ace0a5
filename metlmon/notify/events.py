"""Events to notify about, and one message for several of them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from metlmon.health.types import KINDS, Health, HealthEntry, Severity
from metlmon.model.states import DagState
from metlmon.snapshot.records import DagRow, Status
from metlmon.text.formatting import clip_middle, count, directory_name, number, plain

DONE: Final = "done"

MAX_EVENTS: Final = 500
"""Maximum events of one ensemble: the most serious ones."""

MAX_TEXT: Final = 300
MAX_NAME: Final = 48

LINES: Final = 5
"""Maximum events that a message lists; the others are counted."""

UNREAD: Final = ("unreadable", "missing-log")
"""Kinds of warnings about files that were not read."""

URGENT: Final = (Severity.STOPPED.value, Severity.BLOCKED.value)

MENTIONS: Final = re.compile(r"@(?=everyone\b|here\b|channel\b|all\b)|<(?=[!@#])")
"""What a chat would interpret as a mention of all its members."""


class NotifyEvent(Struct, frozen=True, kw_only=True):
    """One thing to notify about; all texts are safe to show, and one line each.

    ``key``: as in :class:`HealthEntry`. ``name``: one of
    :data:`metlmon.config.settings.EVENT_NAMES`. ``runs`` and ``nodes``: how many it concerns.
    """

    key: str
    name: str
    text: str
    kind: str | None = None
    severity: str | None = None
    runs: int = 0
    nodes: int = 0
    since: datetime | None = None

    @property
    def size(self) -> int:
        """The number of runs, or of nodes without runs."""
        return self.runs or self.nodes


class Message(Struct, frozen=True, kw_only=True):
    """One notification.

    ``ensemble``: its name; ``events``: the most serious first; empty for a test message.
    """

    ensemble: str = "metlmon"
    dagdir: str = ""
    events: tuple[NotifyEvent, ...] = ()

    @property
    def title(self) -> str:
        """The ensemble, and what happened: ``metl-aws: failed, held``."""
        return f"{self.ensemble}: {self.event.replace(',', ', ')}" if self.events else "test"

    @property
    def lines(self) -> list[str]:
        """The first events, one line each."""
        if not self.events:
            return ["notifications arrive here"]
        lines = [event.text for event in self.events[:LINES]]
        if len(self.events) > LINES:
            lines.append(f"and {len(self.events) - LINES} more")
        return lines

    @property
    def text(self) -> str:
        """All of it on one line, without the name of the ensemble."""
        if not self.events:
            return self.lines[0]
        more = f"; and {len(self.events) - 1} more" if len(self.events) > 1 else ""
        return f"{self.events[0].text}{more}"

    @property
    def event(self) -> str:
        """The names of the events, separated by commas."""
        return ",".join(dict.fromkeys(event.name for event in self.events)) or "test"

    def json(self) -> dict[str, Any]:
        """What a webhook, and the standard input of a command, receive."""
        text = "\n".join([self.title, *self.lines])
        return {
            "schema": 1,
            "text": MENTIONS.sub(r"\g<0> ", text),
            "ensemble": self.ensemble,
            "dagdir": self.dagdir,
            "events": [
                {
                    "event": event.name,
                    "kind": event.kind,
                    "severity": event.severity,
                    "text": event.text,
                    "runs": event.runs,
                    "nodes": event.nodes,
                    "since": None if event.since is None else event.since.isoformat(),
                }
                for event in self.events
            ],
        }


def make_message(dagdir: str, events: Iterable[NotifyEvent]) -> Message:
    """One message about several events of an ensemble."""
    return Message(
        ensemble=clip_middle(plain(directory_name(dagdir)), MAX_NAME),
        dagdir=plain(os.path.abspath(dagdir), MAX_TEXT),
        events=tuple(events),
    )


def find_events(health: Health, status: Status, about: Collection[str]) -> tuple[NotifyEvent, ...]:
    """What currently holds and is worth a notification, the most serious first."""
    events = [*_finished(status)]
    events += [
        _from_entry(entry, name, health) for entry in health.open_entries if (name := _name(entry))
    ]
    events.sort(key=lambda event: event.severity not in URGENT)
    return tuple(event for event in events if event.name in about)[:MAX_EVENTS]


def is_complete(status: Status) -> bool:
    """Whether all logs and DAGMan's files could be read; otherwise an event may be missing."""
    return not any(notice.kind in UNREAD for notice in status.warnings)


def _name(entry: HealthEntry) -> str | None:
    """The name of an entry's event; None if nobody is notified of it."""
    if entry.severity is Severity.NOTE or entry.kind not in KINDS:
        return None
    return KINDS[entry.kind].condition


def _from_entry(entry: HealthEntry, name: str, health: Health) -> NotifyEvent:
    runs = entry.runs
    cause = f"{entry.heading}: {entry.text}" if entry.heading else entry.text
    where = f" · {count(len(runs), 'run')}" if runs else ""
    if not runs and entry.nodes > 1:
        where = f" · {count(entry.nodes, 'node')}"
    if len(runs) == 1:
        where = f" · {clip_middle(plain(health.label_of(runs[0])), MAX_NAME)}"
    return NotifyEvent(
        key=entry.key,
        name=name,
        text=f"{plain(cause, MAX_TEXT)}{where}",
        kind=entry.kind,
        severity=entry.severity.value,
        runs=len(runs),
        nodes=entry.nodes,
        since=entry.since,
    )


def _finished(status: Status) -> Sequence[NotifyEvent]:
    """The DAGs that are done; without DAGs, the runs if all of them are finished."""
    done = [dag for dag in status.dags if dag.state is DagState.DONE]
    if done:
        return [
            NotifyEvent(
                key=f"{DONE}:{dag.file}",
                name=DONE,
                text=f"{clip_middle(plain(dag.file), MAX_NAME)} is done: {_nodes(dag)}",
                since=dag.ended,
            )
            for dag in done
        ]
    runs = status.runs
    if not runs or any(run.epochs_left for run in runs):
        return []
    text = f"all epochs of {count(len(runs), 'run')} are done"
    return [NotifyEvent(key=DONE, name=DONE, text=text, runs=len(runs))]


def _nodes(dag: DagRow) -> str:
    """The nodes of a DAG; it can be done although some of them are not."""
    if dag.nodes_done == dag.nodes_total:
        return count(dag.nodes_total, "node")
    return f"{number(dag.nodes_done)} of {count(dag.nodes_total, 'node')}"
