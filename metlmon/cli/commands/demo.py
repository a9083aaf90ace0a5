"""``metlmon demo``: a recorded ensemble, replayed as if live."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.output import is_terminal
from metlmon.cli.reading import stats_input
from metlmon.cli.session_setup import RECORDING, FeedAndPool, open_screens
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.replay import Replay
from metlmon.live.session import Session

STORY_SECONDS: Final = 75.0
"""How long the whole story takes without ``--speed``: long enough to look around while it
moves, short enough to see its end."""


def recording() -> Path:
    """Where the recording lies: in the wheel beside the package, in a checkout under
    ``fixtures/``. Raises InputError when it is in neither."""
    package = Path(__file__).resolve().parents[2]
    for place in (package / "demo_ensemble", package.parent / "fixtures" / "trainer"):
        if place.is_dir():
            return place
    raise InputError(f"{package}: the demo's recording is not there; install metlmon again")


def demo(options: argparse.Namespace) -> int:
    """Replay it on the screens; without a terminal print how it ended."""
    directory = recording()
    if options.status or not is_terminal():
        return _print_end(directory, options)
    if options.speed is not None and options.speed <= 0:
        raise InputError(f"--speed {options.speed:g}: give a number above 0, such as 4")
    with tempfile.TemporaryDirectory(prefix="metlmon-demo-") as scratch:
        folder = Path(scratch) / "demo"
        folder.mkdir()
        replay = Replay(directory, folder, options.speed or 1.0)
        if options.speed is None:
            replay.set_length(STORY_SECONDS)
        replay.start()
        try:
            reader = DagdirReader(folder, local_now=replay.now)
            reader.open()
            return open_screens(FeedAndPool(Session(reader), None, RECORDING), options)
        finally:
            replay.stop()
            if replay.error is not None:
                print(f"metlmon: {replay.error}", file=sys.stderr)


def _print_end(directory: Path, options: argparse.Namespace) -> int:
    from metlmon.cli.status_text import print_status
    from metlmon.stats.incidents import headline

    reader = DagdirReader(directory)
    reader.open()
    reader.read_all()
    stats = stats_input(reader)
    print_status(stats.status, headline(stats))
    return Exit.OK
