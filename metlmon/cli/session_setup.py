"""Opens the screens over a feed, with a pool if available.

HTCondor's bindings are imported only when a screen asks for the pool, so that the first frame
does not wait for them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from metlmon.cli.commands.notify import notify_settings
from metlmon.cli.output import WEB_DRIVER, can_show
from metlmon.cli.reading import stop_watchdog
from metlmon.config.loader import load_settings
from metlmon.errors import InputError
from metlmon.health.types import ExitWhen
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Feed
from metlmon.live.session import Session
from metlmon.memory import gc_paused, keep_loaded_code, share_one_arena
from metlmon.pool.annex_poller import AnnexPoller
from metlmon.pool.client import FeedAndPool, PoolClient
from metlmon.pool.connection import PoolConnection
from metlmon.pool.poller import QueueFeed, QueuePoller
from metlmon.remote.paths import NoAnswer

if TYPE_CHECKING:
    from metlmon.authoring.request import Request
    from metlmon.home.feed import HomeFeed

PAST: Final = "this is how it was then; only the present can be acted on (leave out --as-of)"
ELSEWHERE: Final = "this is on another machine; act there"
RECORDING: Final = "this is a recording; there is no pool behind it"


def connect_pool(reader: DagdirReader, options: argparse.Namespace) -> FeedAndPool:
    """The feed of a dagdir, with a pool client if options and settings allow one."""
    read_only = bool(options.read_only) or reader.ensemble.settings.read_only
    if reader.host:
        return FeedAndPool(Session(reader), None, ELSEWHERE)
    if reader.as_of is not None and not read_only:
        return FeedAndPool(Session(reader), None, PAST)
    session, connection = Session(reader), PoolConnection()
    queue = QueuePoller(session, connection)
    annexes = AnnexPoller(lambda: queue.snapshot, connection)
    # Also where nothing may be done: reading the queue is not an action.
    feed = cast(Feed, QueueFeed(session, queue, annexes))
    pool = PoolClient(session, connection, queue, annexes=annexes)
    return FeedAndPool(
        feed, pool, "metlmon is read-only here" if read_only else "", read_only=read_only
    )


def open_dagdir(options: argparse.Namespace, path: Path) -> FeedAndPool:
    """Feed and pool client of a dagdir or DAG file chosen on a screen. Raises InputError."""
    try:
        settings = load_settings(path)
        reader = DagdirReader(path, settings)
        reader.open()
    except NoAnswer as error:
        raise InputError(str(error)) from None
    return connect_pool(reader, options)


def open_submit_pane(options: argparse.Namespace, draft: Request) -> int:
    """``metlmon submit`` on a terminal: the form, then the ensemble that it started."""
    from metlmon.live.feed import NullFeed

    no_pool = "there is no ensemble yet"
    return open_screens(FeedAndPool(NullFeed(), None, no_pool), options, draft=draft)


def forget_textual_variables() -> None:
    """Remove the variables of Textual's developers, before it is imported.

    They write logs and pictures into the current directory, which may be a dagdir, press keys, and
    load another driver. Those that textual-serve sets stay.
    """
    kept = {"TEXTUAL_FPS", "TEXTUAL_COLOR_SYSTEM"}
    if os.environ.get("TEXTUAL_DRIVER") == WEB_DRIVER:
        kept.add("TEXTUAL_DRIVER")
    for name in [each for each in os.environ if each.startswith("TEXTUAL")]:
        if name not in kept:
            del os.environ[name]


def open_screens(
    feed_and_pool: FeedAndPool,
    options: argparse.Namespace,
    key: str | None = None,
    draft: Request | None = None,
    exit_when: ExitWhen | None = None,
    caption: Callable[[], str] | None = None,
    home: HomeFeed | None = None,
) -> int:
    """Run the application over a feed: the only place that imports the screens.

    It opens on the overview, on the run with this ``key``, on the submit form with this ``draft``,
    or on Home with the ensembles of ``home``. It ends with the status that ``exit_when`` returns.
    ``caption``: the text that the demo shows. Returns the exit status.
    """
    forget_textual_variables()
    with gc_paused():
        from metlmon.cli import saved_files
        from metlmon.pool.client import PoolClient
        from screens.app import AppOptions, SavedFiles, run_app
        from screens.base.screens import state_file

    stop_watchdog()
    keep_loaded_code()
    share_one_arena()
    watches = options.command in ("watch", "run")
    remembers = not options.read_only
    return run_app(
        feed_and_pool,
        AppOptions(
            mouse=bool(options.mouse),
            ascii=options.ascii or not can_show(sys.stdout),
            no_color=bool(os.environ.get("NO_COLOR")),
            run_filter=options.only,
            start="submit" if draft is not None else ("run", key) if key else "overview",
            exit_when=exit_when,
            timeout=options.timeout,
            open_dagdir=partial(open_dagdir, options),
            home=home,
            submission_pool=None if feed_and_pool.read_only else PoolClient(),
            initial_request=draft,
            state_file=state_file(),
            caption=caption,
            files=cast(SavedFiles, saved_files),
            remember_choices=remembers,
            remember_seen=remembers and watches and not options.as_of,
            notify=notify_settings(feed_and_pool.feed.settings, options) if watches else None,
        ),
    )
