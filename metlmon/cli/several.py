"""Several dagdirs on the command line, or a directory with some below it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.output import print_refusal
from metlmon.cli.reading import open_reader, start_watchdog
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.discovery import dag_file_paths, has_event_logs, is_event_log
from metlmon.remote import filesystem
from metlmon.remote.paths import Disconnected

if TYPE_CHECKING:
    from metlmon.home.finder import FoundDagdir


SAID_AFTER: Final = 3.0
"""Seconds of a search after which a line says that it goes on."""

LONGEST_SEARCH: Final = 30.0
"""Seconds of a search; what it has found until then is shown, as of too many directories."""


def names_one(options: argparse.Namespace) -> bool:
    """Whether ``options.dirs`` is one ensemble: a dagdir, a file, event logs or a cluster.

    ``options.dir`` is then that one, or the first of several logs, and ``options.more`` are the
    other logs; without ``dirs`` it is the current directory.
    """
    paths = options.dirs or ["."]
    options.dir, options.more = paths[0], []
    start_watchdog(options.dir)
    path = Path(options.dir)
    if len(paths) == 1 and not getattr(options, "unusable", 0):
        return not filesystem.isdir(path) or bool(dag_file_paths(path)) or has_event_logs(path)
    # Of a machine that has gone meanwhile, reading tells.
    with suppress(Disconnected):
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

    ``options.dir`` is then that one. Also None if nothing is below the only path, or it cannot be
    read: reading it tells why.
    """
    if names_one(options):
        return None
    paths = options.dirs or ["."]
    try:
        found = list(_search([os.path.abspath(path) for path in paths]))
    except FileNotFoundError:  # The current directory is gone, as reading it tells.
        return None
    is_alone = [each.path for each in found] == [os.path.abspath(paths[0])]
    return None if is_alone and found[0].error and not found[0].interrupted else found


def _search(paths: Sequence[str]) -> Iterator[FoundDagdir]:
    """What is found below paths within ``LONGEST_SEARCH``; a long search is said."""
    from metlmon.home.finder import FoundDagdir, find_dagdirs

    started, is_said = monotonic(), False
    for finding in find_dagdirs(paths, wait=True):
        if finding is not None:
            yield finding
        seconds = monotonic() - started
        if seconds > LONGEST_SEARCH:
            yield FoundDagdir(paths[0], more=True)
            return
        if seconds > SAID_AFTER and not is_said:
            is_said = True
            print_refusal(f"searching below {', '.join(paths)} for DAG files (^C ends it)")


def refuse_several(options: argparse.Namespace, *names: str) -> None:
    """Raises InputError if one of these options is given, which are for one ensemble."""
    for name in names:
        if getattr(options, name[2:].replace("-", "_"), None) not in (None, False):
            raise InputError(f"{name} is for one ensemble: give the directory of one DAG")


def read_each(
    found: Iterable[FoundDagdir], options: argparse.Namespace, work: Callable[[DagdirReader], None]
) -> Exit:
    """Read dagdirs one after another and do ``work`` with each; returns the exit status.

    One that cannot be read is reported on standard error.
    """
    code = Exit.USAGE if getattr(options, "unusable", 0) else Exit.OK
    for finding in found:
        error = finding.error
        if error is None and not finding.more:
            options.dir = finding.path
            try:
                reader = open_reader(options)
                if getattr(options, "notify", None):
                    from metlmon.cli.notifications import notify_once

                    notify_once(reader, options)
                work(reader)
            except (InputError, Disconnected) as problem:
                error = str(problem).removeprefix(f"{finding.path}: ")
        if finding.more:
            error = "only the first directories below it were searched"
        if error is not None:
            print_refusal(f"{finding.path}: {error}")
            code = Exit.USAGE
    return code
