"""The screens with a pool behind them: who can act, and who asks the queue.

Nothing of HTCondor is touched before a screen asks for it, so that the first picture waits
for nobody.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metlmon.config.files import load_settings
from metlmon.frozen import frozen
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Feed
from metlmon.live.session import Session
from metlmon.pool.client import PoolClient
from metlmon.pool.connection import PoolConnection
from metlmon.pool.interface import PoolActions
from metlmon.pool.poller import QueueFeed, QueuePoller

if TYPE_CHECKING:
    from metlmon.authoring.request import Request

PAST: Final = "this is how it was then; only the present can be acted on (leave out --as-of)"
RECORDING: Final = "this is a recording; there is no pool behind it"


@frozen
class FeedAndPool:
    """A feed, and the desk that acts on its jobs (None: for the reason in ``no_desk``)."""

    feed: Feed
    desk: PoolActions | None
    no_desk: str = ""
    read_only: bool = False


def connect_pool(reader: DagdirReader, options: argparse.Namespace) -> FeedAndPool:
    """The feed of a dagdir with a desk, as far as the options and settings allow one."""
    if getattr(options, "read_only", False) or reader.ensemble.settings.read_only:
        # The queue is asked all the same: looking is not acting.
        feed, desk = with_queue(reader)
        return FeedAndPool(feed, desk, "metlmon is read-only here", read_only=True)
    if reader.as_of is not None:
        return FeedAndPool(Session(reader), None, PAST)
    feed, desk = with_queue(reader)
    return FeedAndPool(feed, desk)


def with_queue(reader: DagdirReader) -> tuple[Feed, PoolActions]:
    """A live feed that the queue's word is added to, and the desk beside it."""
    session = Session(reader)
    connection = PoolConnection()
    queue = QueuePoller(session, connection)
    return QueueFeed(session, queue), PoolClient(session, connection, queue)


def another(dagdir: Path) -> tuple[Feed, PoolActions]:
    """Feed and desk of a dagdir that was just submitted. Raises InputError."""
    reader = DagdirReader(dagdir, load_settings(dagdir))
    reader.open()
    return with_queue(reader)


def open_submit_pane(options: argparse.Namespace, draft: Request) -> int:
    """``metlmon submit`` on a terminal: the pane first, then the ensemble that it started."""
    from metlmon.cli.commands.status import show
    from metlmon.live.null_feed import NullFeed

    return show(FeedAndPool(NullFeed(), None, "there is no ensemble yet"), options, draft=draft)
