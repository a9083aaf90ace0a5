"""Reading a dagdir, or several, for a command, with a watchdog, and choosing runs in it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime
from functools import cache
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from metlmon.cli import Exit
from metlmon.cli.arguments import COMMANDS
from metlmon.cli.output import print_message, print_warnings, waiting_line
from metlmon.config.loader import load_settings, time_zone
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.discovery import dag_file_paths, has_event_logs, is_event_log
from metlmon.remote import filesystem
from metlmon.remote.paths import NoAnswer
from metlmon.snapshot.builder import OF_A_MOMENT, SnapshotBuilder
from metlmon.snapshot.records import Progress, Run, Status
from metlmon.snapshot.row_text import format_run_list, matches_run
from metlmon.text.formatting import plain
from metlmon.text.time_arguments import parse_time_argument

if TYPE_CHECKING:
    from metlmon.config.settings import Settings
    from metlmon.health.types import Health
    from metlmon.home.finder import FoundDagdir
    from metlmon.live.feed import Feed, StatsInput
    from metlmon.snapshot.records import Snapshot
    from metlmon.stats.windows import TimeWindow


def new_reader(options: argparse.Namespace) -> DagdirReader:
    """A reader of the directory, the logs or the cluster in ``options``; it has not read yet."""
    start_watchdog(options.dir)
    path, logs = paths_to_read(options)
    settings = load_settings(path)
    if options.tz:
        settings = replace(settings, zone=time_zone(options.tz))

    def newest() -> datetime | None:
        """As-of without ``--as-of``: the time from which ``--as-of 7d`` counts back."""
        reader = _read_all(DagdirReader(path, settings, logs=logs, live=options.live))
        return reader.snapshot_builder().as_of

    as_of = parse_time_argument("--as-of", options.as_of, settings.zone, newest)
    return DagdirReader(path, settings, logs=logs, as_of=as_of, live=options.live)


def paths_to_read(options: argparse.Namespace) -> tuple[Path, tuple[Path, ...]]:
    """The directory, DAG file or log in ``options``; for several logs their directory, and the
    logs.

    ``options.dir`` may be a cluster instead, whose logs the schedd names. Raises InputError if any
    of several words is not a file.
    """
    paths = [Path(word) for word in (options.dir, *options.more)]
    if len(paths) == 1 and options.dir.isdecimal() and not os.path.lexists(paths[0]):
        from metlmon.pool.connection import cluster_logs

        paths = cluster_logs(int(options.dir))
    if len(paths) == 1:
        return paths[0], ()
    others = [path for path in paths if not filesystem.isfile(path)]
    others.sort(key=filesystem.isdir)
    if others:
        what = "is a directory" if filesystem.isdir(others[0]) else "no such file"
        raise InputError(
            f"{others[0]}: {what}; give one directory, or one or more event logs; a run is chosen "
            f"by --only, or by metlmon run RUN DIR, a metric by --metric"
        )
    if any(path.is_absolute() for path in paths):
        paths = [Path(os.path.abspath(path)) for path in paths]
    return Path(os.path.commonpath([path.parent for path in paths])), tuple(paths)


def open_reader(options: argparse.Namespace) -> DagdirReader:
    """A reader that has read everything available."""
    reader = _read_all(new_reader(options))
    prints = options.json or COMMANDS[options.command].prints_warnings
    if isinstance(options.as_of, str) and not prints:
        print_warnings(n for n in reader.snapshot_builder().notices() if n.kind in OF_A_MOMENT)
    return reader


def read_whole(path: Path, settings: Settings | None = None) -> DagdirReader:
    """As :func:`open_reader`, for a directory or DAG file that is not the command's own."""
    return _read_all(DagdirReader(path, settings or load_settings(path)))


def _read_all(reader: DagdirReader) -> DagdirReader:
    reader.open()
    with waiting_line() as show:

        def show_progress(progress: Progress) -> None:
            show(f"reading {progress.total / 1e6:.0f} MB: {progress.fraction:4.0%}")

        reader.read_all(show_progress)
        while reader.lacks_answers:
            # A lost connection may be back; what was read before may be incomplete.
            reader.check()
            if reader.error is not None:
                raise InputError(reader.error)
            reader.read_all(show_progress)
    return reader


def stats_input(builder: SnapshotBuilder, **more: Any) -> StatsInput:
    """The input of statistics of a snapshot; ``more``: further fields."""
    from metlmon.live.feed import StatsInput

    return StatsInput(
        builder.status(),
        builder.ledger(),
        builder.ensemble.settings,
        load_description=cache(builder.dag_description),
        **more,
    )


def stats_at(options: argparse.Namespace, moment: datetime) -> StatsInput:
    """The input of statistics of an earlier moment, for which the ensemble is read again."""
    earlier = copy(options)
    # In the logs' own time, so that no zone is applied again.
    earlier.as_of, earlier.live = moment.replace(tzinfo=None).isoformat(), None
    return stats_input(open_reader(earlier).snapshot_builder())


def window_of(options: argparse.Namespace, builder: SnapshotBuilder) -> TimeWindow:
    """The time window of ``--since``, ``--until`` and ``--month``. Raises InputError."""
    from metlmon.stats.windows import parse_window

    return parse_window(
        options.since,
        options.until,
        options.month,
        zone=builder.ensemble.settings.zone,
        now=builder.ledger().as_of,
    )


def read_health(reader: DagdirReader) -> Health:
    """The health of what was read, including what the trainings wrote."""
    from metlmon.health.build import make_health

    return make_health(input_with_trainings(reader))


def input_with_trainings(reader: DagdirReader, **more: Any) -> StatsInput:
    """The input of statistics of what was read, with what the trainings wrote."""
    from metlmon.live.job_files import TrainingFiles

    builder = reader.snapshot_builder()
    files = TrainingFiles(reader.dagdir, builder.ensemble.settings)
    job_files = files.read(builder)
    if files.problem is not None:
        print_message(f"warning: {files.problem}")
    return stats_input(builder, job_files=job_files, **more)


def feed_stats(feed: Feed, snapshot: Snapshot) -> StatsInput:
    """The input of statistics of a snapshot. Reads files: not for the UI thread."""
    from metlmon.live.feed import StatsInput

    return StatsInput(
        snapshot.status,
        feed.ledger(),
        feed.settings,
        job_files=feed.job_files(),
        load_description=feed.dag_description,
    )


# --- choosing runs and metrics --------------------------------------------------------------


def one_run(builder: SnapshotBuilder, wanted: str) -> Run:
    """The one run that ``wanted`` names. Raises InputError with the candidates."""
    rows = builder.find_runs(wanted)
    if len(rows) == 1:
        return rows[0]
    if rows:
        names = ", ".join(f"{r.uuid or r.key} ({r.run}, {r.dag})" for r in rows[:20])
        raise InputError(f"{wanted} is ambiguous ({len(rows)} matches): {names}")
    raise InputError(f"{wanted}: no such run; {format_run_list(builder.status().runs)}")


def check_only(builder: SnapshotBuilder, only: str | None) -> None:
    """Raise InputError if ``--only`` names no run."""
    runs = builder.status().runs
    if only and not any(matches_run(run, only) for run in runs):
        raise InputError(f"--only {only}: no such run; {format_run_list(runs)}")


def check_metric(name: str | None, stats: StatsInput) -> None:
    """Raise InputError for a metric that no run has."""
    from metlmon.stats.curves import metric_names

    names = metric_names(stats)
    if name is not None and names and name not in names:
        some = ", ".join(plain(each, 60) for each in names)
        raise InputError(f"--metric {plain(name, 80)}: no run has it; there are: {some}")


def select_runs(status: Status, only: str | None) -> Status:
    """The status with the runs of ``--only``; totals remain those of the whole ensemble."""
    if not only:
        return status
    return replace(status, runs=tuple(run for run in status.runs if matches_run(run, only)))


# --- several dagdirs ------------------------------------------------------------------------

SEARCH_REPORT_AFTER: Final = 3.0
"""Seconds of a search after which a line reports it."""

LONGEST_SEARCH: Final = 30.0
"""Maximum seconds of a search; what it has found by then is shown, as for too many directories."""


def names_one(options: argparse.Namespace) -> bool:
    """Whether ``options.dirs`` is one ensemble: a dagdir, a file, event logs or a cluster.

    ``options.dir`` is then that one, or the first of several logs, and ``options.more`` are the
    other logs; without ``dirs`` it is the current directory.
    """
    paths = options.dirs or ["."]
    options.dir, options.more = paths[0], []
    start_watchdog(options.dir)
    path = Path(options.dir)
    if len(paths) == 1 and not options.unusable:
        return not filesystem.isdir(path) or bool(dag_file_paths(path)) or has_event_logs(path)
    # If nothing answers, reading says so.
    with suppress(NoAnswer):
        if all(map(filesystem.isfile, paths)) and any(is_event_log(Path(path)) for path in paths):
            options.more = paths[1:]
            return True
    return False


def has_dagdirs_below(options: argparse.Namespace) -> bool:
    """Whether there is any dagdir below ``options.dir``."""
    found = _search([os.path.abspath(options.dir)])
    return any(each.error is None and not each.more for each in found)


def several_dagdirs(options: argparse.Namespace) -> list[FoundDagdir] | None:
    """What is found below ``options.dirs``; None if that is one dagdir or DAG file.

    ``options.dir`` is then that one. Also None if nothing is below the only path or it cannot be
    read, which reading it reports.
    """
    if names_one(options):
        return None
    paths = options.dirs or ["."]
    try:
        found = list(_search([os.path.abspath(path) for path in paths]))
    except FileNotFoundError:  # The current directory is gone; reading it reports that.
        return None
    is_alone = [each.path for each in found] == [os.path.abspath(paths[0])]
    return None if is_alone and found[0].error and not found[0].interrupted else found


def _search(paths: Sequence[str]) -> Iterator[FoundDagdir]:
    """What is found below paths within ``LONGEST_SEARCH``; a long search is reported."""
    from metlmon.home.finder import FoundDagdir, find_dagdirs

    started, reported = monotonic(), False
    for finding in find_dagdirs(paths, wait=True):
        if finding is not None:
            yield finding
        seconds = monotonic() - started
        if seconds > LONGEST_SEARCH:
            yield FoundDagdir(paths[0], more=True)
            return
        if seconds > SEARCH_REPORT_AFTER and not reported:
            reported = True
            print_message(f"searching below {', '.join(paths)} for DAG files (^C ends it)")


def refuse_several(options: argparse.Namespace, *names: str) -> None:
    """Raise InputError if one of these options, which are for one ensemble, is given."""
    for name in names:
        if getattr(options, name[2:].replace("-", "_")) not in (None, False):
            raise InputError(f"{name} is for one ensemble: give the directory of one DAG")


def read_each(
    found: Iterable[FoundDagdir], options: argparse.Namespace, work: Callable[[DagdirReader], None]
) -> Exit:
    """Read dagdirs one after another and do ``work`` with each; returns the exit status.

    One that cannot be read is reported on standard error.
    """
    code = Exit.USAGE if options.unusable else Exit.OK
    for finding in found:
        error = finding.error
        if error is None and not finding.more:
            options.dir = finding.path
            try:
                work(open_reader(options))
            except (InputError, NoAnswer) as problem:
                error = str(problem).removeprefix(f"{finding.path}: ")
        if finding.more:
            error = "only the first directories below it were searched"
        if error is not None:
            print_message(f"{finding.path}: {error}")
            code = Exit.USAGE
    return code


# --- a file system that does not answer -----------------------------------------------------
# A call on a hard NFS mount does not return while its server is gone, and Python raises
# KeyboardInterrupt only in the main thread, which is blocked in it: a second thread watches it.

CHECK_SECONDS: Final = 0.25

REPORT_AFTER: Final = 3.0
"""Seconds in one call before it is reported; shorter ones are merely slow."""

WORK_SECONDS: Final = 0.01
"""CPU seconds within one call that prove progress: a blocked call takes none."""

INTERRUPT_CHECKS: Final = 2
"""Number of checks with a pending interrupt after which the process ends."""

READERS: Final = ("/metlmon/live/", "/metlmon/home/", "/metlmon/remote/", "/metlmon/cli/reading.py")
"""Locations of the calls that read a dagdir."""

MAX_DEPTH: Final = 12
"""Maximum calls of the standard library below one of metlmon's."""

_stopped = threading.Event()
"""Ends the current watchdog; each command has its own."""


def start_watchdog(directory: str) -> None:
    """Watch the reading of ``directory`` until :func:`stop_watchdog`."""
    global _stopped
    stop_watchdog()
    _stopped = threading.Event()
    # Tests call commands from other threads.
    if threading.current_thread() is threading.main_thread():
        args = (threading.get_ident(), plain(directory, 200), _stopped)
        threading.Thread(target=_watch, args=args, name="metlmon-look", daemon=True).start()


def stop_watchdog() -> None:
    """Stop watching: the command has ended, or opens screens, which do not block."""
    _stopped.set()


def _watch(main: int, directory: str, stopped: threading.Event) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    call: tuple[int, int] | None = None
    cpu, blocked, reported, interrupts = 0.0, 0.0, False, 0
    while not stopped.wait(CHECK_SECONDS):
        current, current_cpu = _where(sys._current_frames().get(main)), _cpu_seconds(main)
        # Count checks without CPU time instead of the clock: on a busy machine both threads wait
        # for a processor.
        if current is None or current != call or current_cpu - cpu > WORK_SECONDS:
            call, cpu, blocked, reported = current, current_cpu, 0.0, False
        else:
            blocked += CHECK_SECONDS
        if not reported and blocked >= REPORT_AFTER:
            reported = True
            since = time.strftime("%H:%M:%S", time.localtime(time.time() - blocked))
            _print(f"no answer from the file system since {since}: {directory} (^C: do not wait)")
        interrupts = interrupts + 1 if signal.SIGINT in signal.sigpending() else 0
        if interrupts >= INTERRUPT_CHECKS:
            _print(f"ended while the file system did not answer: {directory}")
            os._exit(Exit.INTERRUPTED)


def _cpu_seconds(thread: int) -> float:
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except OSError:
        return 0.0


def _where(frame: FrameType | None) -> tuple[int, int] | None:
    """Identifies the main thread's call if it reads a dagdir; None if it does not."""
    innermost = frame
    for _ in range(MAX_DEPTH):
        if frame is None or innermost is None:
            return None
        file = frame.f_code.co_filename
        if any(reader in file for reader in READERS):
            return id(innermost), innermost.f_lasti
        if "/metlmon/" in file:
            return None
        frame = frame.f_back
    return None


def _print(text: str) -> None:
    # Standard error may be closed.
    with suppress(OSError):
        os.write(2, f"metlmon: {text}\n".encode("ascii", "backslashreplace"))
