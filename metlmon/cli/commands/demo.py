"""``metlmon demo``: a generated ensemble of METL's size, replayed as if live."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, cast
from zipfile import ZipFile

from msgspec import json

from metlmon.cli import Exit
from metlmon.cli.output import is_terminal, print_message
from metlmon.cli.reading import input_with_trainings, read_whole
from metlmon.cli.session_setup import RECORDING, open_screens
from metlmon.config.settings import Settings
from metlmon.errors import InputError
from metlmon.live.feed import Feed
from metlmon.live.replay import PAUSE_SECONDS, LoopingFeed, Replay, ReplayPiece
from metlmon.memory import gc_paused
from metlmon.pool.client import FeedAndPool

STORY_SECONDS: Final = 120.0
"""Duration of the whole story without ``--speed``: two months in two minutes."""

Captions = list[tuple[datetime, str]]


def archive() -> Path:
    """The archive of the story, in the wheel or a checkout. Raises InputError."""
    package = Path(__file__).resolve().parents[2]
    for place in (package / "story.zip", package.parent / "fixtures" / "story.zip"):
        if place.is_file():
            return place
    raise InputError(f"{package}: the demo's ensemble is not there; install metlmon again")


def read_story() -> tuple[list[ReplayPiece], Captions]:
    """The pieces of the story, and what happens when."""
    with ZipFile(archive()) as story:
        pieces = json.decode(story.read("pieces.json"), type=list[tuple[datetime, str, str]])
        captions = json.decode(story.read("captions.json"), type=Captions)
    return [
        ReplayPiece(time, order, file, text.encode())
        for order, (time, file, text) in enumerate(pieces)
    ], captions


def demo(options: argparse.Namespace) -> int:
    """Replay the story on the screens; without a terminal, print how it ends."""
    if options.speed is not None and options.speed <= 0:
        raise InputError(f"--speed {options.speed:g}: give a number above 0, such as 4")
    with tempfile.TemporaryDirectory(prefix="metlmon-demo-") as scratch:
        directory = Path(scratch) / "demo"
        with gc_paused():
            pieces, captions = read_story()
        if options.status or not is_terminal():
            return _print_end(pieces, directory)
        length = (pieces[-1].time - pieces[0].time).total_seconds()
        speed = options.speed or max(1.0, length / STORY_SECONDS)
        replay = Replay(pieces, directory, speed)
        pause = None if options.still else PAUSE_SECONDS
        feed = LoopingFeed(replay, directory, pause)
        try:
            return open_screens(
                FeedAndPool(cast(Feed, feed), None, RECORDING),
                options,
                caption=None if options.no_captions else partial(_caption, feed, captions),
            )
        finally:
            feed.stop()
            if feed.replay.error is not None:
                print_message(feed.replay.error)


def _caption(feed: LoopingFeed, captions: Captions) -> str:
    now = feed.replay.now()
    return next((text for time, text in reversed(captions) if time <= now), "")


def _print_end(pieces: Sequence[ReplayPiece], directory: Path) -> int:
    from metlmon.cli.status_text import print_status
    from metlmon.health.build import make_health
    from metlmon.stats.estimates import make_forecast

    Replay(pieces, directory, 1.0).write_until(pieces[-1].time)
    stats = input_with_trainings(read_whole(directory, Settings()))
    print_status(stats, make_forecast(stats), make_health(stats))
    return Exit.OK
