"""``status``, ``jobs``, ``run`` and ``watch``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from metlmon.cli.exit_codes import CONDITIONS, Exit
from metlmon.cli.hang_watchdog import look_away, look_on
from metlmon.cli.json_output import JsonWriter, figures_json, queue_word
from metlmon.cli.output import can_show, is_terminal, print_json, print_json_list
from metlmon.cli.warnings import print_warnings
from metlmon.config.files import load_settings, zone
from metlmon.live.cache import user_cache
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.ensemble_warnings import OF_A_MOMENT
from metlmon.live.errors import InputError
from metlmon.live.time_argument import asked_moment
from metlmon.model.run_filter import is_named, listed_runs, run_named
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.types import Progress, RunRow, Status

if TYPE_CHECKING:
    from metlmon.authoring.request import Request
    from metlmon.cli.session_setup import FeedAndPool
    from metlmon.pool.discrepancies import QueueDiscrepancy
    from metlmon.pool.types import QueueSnapshot

    Said = tuple[QueueSnapshot, tuple[QueueDiscrepancy, ...]]

POLL_SECONDS: Final = 1.0
"""How often ``--exit-on`` looks again: as often as the dashboard does."""

TELLS_WARNINGS: Final = frozenset({"status", "watch", "export"})
"""Commands that print all warnings also for people."""

TELL_AFTER: Final = 1.0
"""Reading that takes longer than this many seconds says how far it is."""


def status(options: argparse.Namespace) -> int:
    """``metlmon status``."""
    reader = open_reader(options)
    check_only(reader.painter(), options.only)
    code = _wait(reader, options) if options.exit_on else Exit.OK
    said = _asked_queue(reader, options)
    from metlmon.stats.worker import StatsInput

    painter = reader.painter()
    picture = narrowed(painter.status(), options.only)
    basis = StatsInput(painter.status(), painter.ledger(), reader.ensemble.settings)
    if options.json:
        writer = JsonWriter(painter.clock.stated)
        print_json(writer.status(picture) | figures_json(writer, basis) | _queue_json(said))
        print_warnings(picture.warnings)
    else:
        from metlmon.cli.tables import print_status
        from metlmon.stats.headline import headline

        print_status(picture, headline(basis), options.ascii or not can_show(sys.stdout))
        _print_queue(said)
    return code


def jobs(options: argparse.Namespace) -> int:
    """``metlmon jobs``."""
    reader = open_reader(options)
    said = _asked_queue(reader, options)
    painter = reader.painter()
    check_only(painter, options.only)
    rows = painter.job_rows()
    if options.only:
        rows = [row for row in rows if is_named(options.only, row.uuid, row.run)]
    if options.json:
        writer = JsonWriter(painter.clock.stated)
        listed = (writer.job(row) for row in rows)
        print_json_list(writer.jobs_head(painter), "jobs", listed, _queue_json(said))
        print_warnings(painter.notices())
    else:
        from metlmon.cli.tables import print_jobs

        print_jobs(rows, ascii=options.ascii or not can_show(sys.stdout))
        _print_queue(said)
    return Exit.OK


def _asked_queue(reader: DagdirReader, options: argparse.Namespace) -> Said | None:
    """The queue's answer, where ``--queue`` wants it."""
    if not getattr(options, "queue", False):
        return None
    from metlmon.cli.commands.queue import ask

    return ask(reader)


def _queue_json(said: Said | None) -> dict[str, Any]:
    return {} if said is None else {"queue": queue_word(*said)}


def _print_queue(said: Said | None) -> None:
    if said is not None:
        from metlmon.cli.commands.queue import print_queue

        print_queue(*said, sys.stdout)


def run(options: argparse.Namespace) -> int:
    """``metlmon run``: the Run screen, or one run as JSON or a table."""
    reader = open_reader(options)
    painter = reader.painter()
    row = one_run(painter, options.run)
    view = painter.run_view(row.key)
    if view is None:
        raise InputError(f"{options.run}: no such run")
    if options.json:
        print_json(JsonWriter(painter.clock.stated).run_view(view))
        print_warnings(painter.notices())
        return Exit.OK
    if not is_terminal():
        from metlmon.cli.tables import print_run

        print_run(view, ascii=options.ascii or not can_show(sys.stdout))
        return Exit.OK
    return _open_screens(reader, options, row.key)


def watch(options: argparse.Namespace) -> int:
    """``metlmon watch``: the dashboard; without a terminal, the one-shot status."""
    if not is_terminal():
        options.json = False
        return status(options)
    reader = new_reader(options)
    reader.open()
    check_only(reader.painter(), options.only)
    return _open_screens(reader, options, None)


# --- reading ------------------------------------------------------------------------------


def new_reader(options: argparse.Namespace) -> DagdirReader:
    """A reader of the directory in ``options``; nothing is read yet."""
    look_on(options.dir)
    path = Path(options.dir)
    settings = load_settings(path.parent if path.is_file() else path)
    if options.tz:
        settings = replace(settings, zone=zone(options.tz))
    return DagdirReader(
        path,
        settings,
        as_of=asked_moment("--as-of", options.as_of, settings.zone),
        live=options.live,
        cache=user_cache(),
    )


def open_reader(options: argparse.Namespace) -> DagdirReader:
    """A reader that has read everything there is. What is to be said of the moment of
    ``--as-of`` goes to standard error where the command prints no warnings of its own."""
    reader = _read(new_reader(options))
    told = getattr(options, "json", False) or getattr(options, "command", "") in TELLS_WARNINGS
    if isinstance(options.as_of, str) and not told:
        print_warnings(n for n in reader.painter().notices() if n.kind in OF_A_MOMENT)
    return reader


def read_whole(dagdir: Path) -> DagdirReader:
    """As :func:`open_reader`, of a directory that is not the command's own."""
    return _read(DagdirReader(dagdir, load_settings(dagdir), cache=user_cache()))


def _read(reader: DagdirReader) -> DagdirReader:
    reader.open()
    tell = _teller(sys.stderr)
    reader.read_all(tell)
    tell(None)
    return reader


def _teller(stream: TextIO) -> Callable[[Progress | None], None]:
    """Progress on standard error, if that is a terminal and reading takes long."""
    begun = time.monotonic()
    told = False

    def tell(progress: Progress | None) -> None:
        nonlocal told
        if progress is None:
            if told:
                stream.write("\r\x1b[K")
                stream.flush()
        elif stream.isatty() and time.monotonic() - begun > TELL_AFTER:
            told = True
            stream.write(f"\rreading {progress.total / 1e6:.0f} MB: {progress.fraction:4.0%}")
            stream.flush()

    return tell


def _wait(reader: DagdirReader, options: argparse.Namespace) -> Exit:
    """Until one of ``--exit-on`` is so."""
    from metlmon.cli.exit_on import condition, pause

    met = condition(exit_conditions(options.exit_on))
    deadline = time.monotonic() + options.timeout if options.timeout is not None else None
    while True:
        code = met(reader.painter().status())
        if code is not None:
            return code
        if deadline is not None and time.monotonic() >= deadline:
            print("metlmon: --timeout passed before --exit-on was met", file=sys.stderr)
            return Exit.TIMEOUT
        pause(POLL_SECONDS)
        reader.look()
        reader.read_all()


def exit_conditions(text: str) -> frozenset[str]:
    """The names in ``--exit-on``. Raises InputError for one that there is not."""
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(names - CONDITIONS.keys())
    if unknown or not names:
        what = unknown[0] if unknown else text
        raise InputError(f"--exit-on {what!r}: there are {', '.join(CONDITIONS)}")
    return names


# --- choosing -----------------------------------------------------------------------------


def one_run(painter: SnapshotBuilder, wanted: str) -> RunRow:
    """The one run that ``wanted`` means. Raises InputError with the candidates."""
    rows = painter.find_runs(wanted)
    if len(rows) == 1:
        return rows[0]
    if rows:
        listed = ", ".join(f"{r.uuid or r.key} ({r.run}, {r.dag})" for r in rows[:20])
        raise InputError(f"{wanted}: {len(rows)} runs are meant by that: {listed}")
    raise InputError(f"{wanted}: no such run; {listed_runs(painter.status().runs)}")


def check_only(painter: SnapshotBuilder, only: str | None) -> None:
    """Raises InputError when ``--only`` names no run that there is."""
    runs = painter.status().runs
    if only and not any(run_named(run, only) for run in runs):
        raise InputError(f"--only {only}: no such run; {listed_runs(runs)}")


def narrowed(picture: Status, only: str | None) -> Status:
    """The picture with the runs of ``--only``; totals stay the whole ensemble's."""
    if not only:
        return picture
    runs = tuple(run for run in picture.runs if run_named(run, only))
    return replace(picture, runs=runs)


# --- screens ------------------------------------------------------------------------------


def _open_screens(reader: DagdirReader, options: argparse.Namespace, key: str | None) -> int:
    from metlmon.cli.session_setup import connect_pool

    return show(connect_pool(reader, options), options, key)


def show(
    staffed: FeedAndPool,
    options: argparse.Namespace,
    key: str | None = None,
    draft: Request | None = None,
) -> int:
    """Open the screens over a feed, on the overview, on the run with this ``key``, or on the
    submit pane with this ``draft``; the one place where the core knows of them."""
    from metlmon.cli.exit_on import condition
    from metlmon.cli.session_setup import another
    from metlmon.pool.client import open_pool
    from screens.app import AppOptions, run_app

    look_away()
    exit_on = getattr(options, "exit_on", None)
    when = condition(exit_conditions(exit_on)) if exit_on else None
    return run_app(
        staffed.feed,
        AppOptions(
            mouse=getattr(options, "mouse", False),
            ascii=getattr(options, "ascii", False) or not can_show(sys.stdout),
            no_color=bool(os.environ.get("NO_COLOR")),
            only=getattr(options, "only", None),
            start="submit" if draft is not None else ("run", key) if key else "overview",
            exit_when=when,
            timeout=getattr(options, "timeout", None),
            desk=staffed.desk,
            no_desk=staffed.no_desk,
            read_only=staffed.read_only,
            opener=another,
            pool=None if staffed.read_only else open_pool(),
            draft=draft,
        ),
    )
