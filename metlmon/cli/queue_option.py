"""``--queue``: what the schedd says of the jobs, beside what the logs say."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

from metlmon.cli.json_output import queue_word
from metlmon.live.dagdir_reader import DagdirReader

if TYPE_CHECKING:
    from metlmon.pool.discrepancies import QueueDiscrepancy
    from metlmon.pool.types import QueueSnapshot

    QueueReport: TypeAlias = tuple[QueueSnapshot, tuple[QueueDiscrepancy, ...]]


def query_queue(reader: DagdirReader, options: argparse.Namespace) -> QueueReport | None:
    """The queue snapshot, where ``--queue`` asks for it."""
    if not getattr(options, "queue", False):
        return None
    from metlmon.cli.commands.queue import ask

    return ask(reader)


def queue_json(report: QueueReport | None) -> dict[str, Any]:
    """The field ``queue`` of the JSON, where there is one."""
    return {} if report is None else {"queue": queue_word(*report)}


def print_report(report: QueueReport | None) -> None:
    """Print it for people, where there is one."""
    if report is not None:
        from metlmon.cli.commands.queue import print_queue

        print_queue(*report, sys.stdout)
