"""``metlmon status``, ``metlmon run`` and ``metlmon watch``; and ``--exit-on``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Final

from metlmon.cli.exit_codes import CONDITIONS, Exit
from metlmon.cli.output import is_terminal, print_json, print_output, print_warnings
from metlmon.cli.reading import (
    check_only,
    new_reader,
    one_run,
    open_reader,
    select_runs,
    stats_input,
)
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import ACTIVE, ENDED, DagState, State
from metlmon.snapshot.types import RunRow, Status

POLL_SECONDS: Final = 1.0
"""How often ``--exit-on`` looks again: as often as the dashboard does."""


def status(options: argparse.Namespace) -> int:
    """Print the status as a table or as JSON. Returns the exit status."""
    reader = open_reader(options)
    check_only(reader.snapshot_builder(), options.only)
    code = wait(reader, options) if options.exit_on else Exit.OK
    queue = None
    if options.queue:
        from metlmon.cli.session_setup import query_queue

        queue = query_queue(reader)
    builder = reader.snapshot_builder()
    shown = select_runs(builder.status(), options.only)
    stats = stats_input(reader)
    if options.json:
        from metlmon.cli.json_output.status import STATUS_OUTPUT, figures_json

        more = figures_json(stats) | ({"queue": queue.json()} if queue else {})
        print_output(STATUS_OUTPUT, builder, shown, **more)
        return code
    from metlmon.cli.status_text import print_status
    from metlmon.stats.incidents import headline

    print_status(shown, headline(stats))
    if queue is not None:
        queue.print()
    return code


def wait(reader: DagdirReader, options: argparse.Namespace) -> Exit:
    """Wait until a condition of ``--exit-on`` is met, or ``--timeout`` is over."""
    met = exit_condition(options.exit_on)
    deadline = time.monotonic() + options.timeout if options.timeout is not None else None
    while True:
        code = met(reader.snapshot_builder().status())
        if code is not None:
            return code
        if deadline is not None and time.monotonic() >= deadline:
            print("metlmon: --timeout passed before --exit-on was met", file=sys.stderr)
            return Exit.TIMEOUT
        pause(POLL_SECONDS)
        reader.check()
        reader.read_all()


def run(options: argparse.Namespace) -> int:
    """Open the Run screen, or print the run as JSON or table. Returns the exit status."""
    from metlmon.cli.command_line import swap_run_and_directory

    swap_run_and_directory(options)
    reader = open_reader(options)
    builder = reader.snapshot_builder()
    row = one_run(builder, options.run)
    view = builder.run_view(row.key)
    if view is None:
        raise InputError(f"{options.run}: no such run")
    if options.json:
        from metlmon.cli.json_output.status import RUN_OUTPUT

        stamp = builder.clock.with_offset
        print_json(RUN_OUTPUT.write(row, stamp, epochs=view.epochs, side_nodes=view.side))
        print_warnings(builder.notices())
        return Exit.OK
    if not is_terminal():
        from metlmon.cli.status_text import print_run

        print_run(view)
        return Exit.OK
    from metlmon.cli.session_setup import connect_pool, open_screens

    return open_screens(connect_pool(reader, options), options, row.key)


def watch(options: argparse.Namespace) -> int:
    """Open the dashboard; without terminal print the status. Returns the exit status."""
    if not is_terminal():
        options.json = options.queue = False
        return status(options)
    reader = new_reader(options)
    reader.open()
    check_only(reader.snapshot_builder(), options.only)
    exit_when = exit_condition(options.exit_on) if options.exit_on else None
    from metlmon.cli.session_setup import connect_pool, open_screens

    return open_screens(connect_pool(reader, options), options, exit_when=exit_when)


# --- what --exit-on can wait for --------------------------------------------------------------

UNDER_WAY: Final = frozenset({State.PRE, State.POST, State.RETRYING})
"""States of a node that has no job in the queue, and is not over."""


def pause(seconds: float) -> None:
    """Wait, outside of the modules whose calls the watchdog takes for reading."""
    time.sleep(seconds)


def exit_condition(text: str) -> Callable[[Status], Exit | None]:
    """A function that gives the code to exit with, None to go on waiting.

    ``text``: the names in ``--exit-on``. Raises InputError for one that there is not.
    """
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(names - CONDITIONS.keys())
    if unknown or not names:
        what = unknown[0] if unknown else text
        raise InputError(f"--exit-on {what!r}: there are {', '.join(CONDITIONS)}")

    def met(status: Status) -> Exit | None:
        codes = (TESTS[name](status) for name in CONDITIONS if name in names)
        return next((code for code in codes if code is not None), None)

    return met


def _all_runs(status: Status) -> Exit | None:
    runs = status.runs
    if runs and all(_finished(run) for run in runs):
        return Exit.FAILED if all(_stopped(run) for run in runs) else Exit.OK
    if runs and all(_finished(run) or _is_over(run) for run in runs):
        return Exit.FAILED
    return _cannot_go_on(status)


def _finished(run: RunRow) -> bool:
    """All its epochs are over. Its state does not say that: it is its latest epoch's."""
    return run.epochs_done + run.epochs_skipped == run.epochs_total


def _stopped(run: RunRow) -> bool:
    """Its gate ended it before its last epoch was done."""
    gate = run.gate
    return gate is not None and gate.stopped is not None and run.epochs_done < run.epochs_total


def _is_over(run: RunRow) -> bool:
    """Not all its epochs are over, and none will begin, even if its DAGMan lives."""
    if run.state in (State.FAILED, State.REMOVED, State.FUTILE):
        return True
    return _stopped(run) and run.state not in ACTIVE and run.state not in UNDER_WAY


def _cannot_go_on(status: Status) -> Exit | None:
    """Nobody is at work any more, and not all is done."""
    submitted = [dag for dag in status.dags if dag.state is not DagState.NOT_SUBMITTED]
    if submitted and all(dag.state in ENDED for dag in submitted):
        return Exit.FAILED
    return None


def _done(status: Status) -> Exit | None:
    states = [dag.state for dag in status.dags]
    if states and all(state is DagState.DONE for state in states):
        return Exit.OK
    return _failed(status)


def _failed(status: Status) -> Exit | None:
    if any(dag.state in (DagState.FAILED, DagState.REMOVED) for dag in status.dags):
        return Exit.FAILED
    return None


def _held(status: Status) -> Exit | None:
    dagman = any(dag.state is DagState.HELD for dag in status.dags)
    return Exit.HELD if dagman or status.node_states.get(State.HELD) else None


TESTS: Final[dict[str, Callable[[Status], Exit | None]]] = {
    "all": _all_runs,
    "done": _done,
    "failed": _failed,
    "held": _held,
}
