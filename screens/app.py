"""The application: shows a feed's snapshots, and restores the terminal at exit."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, time
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.worker import WorkerFailed

from metlmon.error_text import TRACEBACK, describe_error, format_traceback
from metlmon.frozen import frozen
from metlmon.live.feed import Feed, Snapshot
from metlmon.pool.interface import PoolActions
from metlmon.pool.types import (
    ActionPreview,
    ActionRequest,
    ActionResult,
    PoolError,
    QueueSnapshot,
    ResultCode,
)
from metlmon.snapshot.types import JobRow, Status
from metlmon.stats.worker import StatsWorker
from screens.actions import bindings_of
from screens.base.screens import SnapshotScreen
from screens.help import HelpScreen
from screens.job.screen import JobScreen
from screens.overview.screen import OverviewScreen
from screens.palette import PaletteScreen
from screens.pool_actions.running_action import RunningAction, name_of
from screens.problems import ProblemsScreen
from screens.run.screen import RunScreen
from screens.sources import SourcesScreen
from screens.terminal.driver import DiffRenderingApp, can_be_resumed
from screens.theme import DARK, LIGHT, SIXTEEN, fitting_theme
from screens.time_travel import TimeTravel

if TYPE_CHECKING:
    from metlmon.authoring.request import Request
    from screens.submit.form_model import FormState

REPAINT_SECONDS: Final = 0.2
"""Minimum time between snapshots shown: more is not seen, and costs bytes over ssh."""

CONFIRM_SECONDS: Final = 0.5
"""Time a confirmation is on the screen, without another key, before it can be answered: longer
than the gaps between pasted characters, and no longer than reading it takes."""

IDLE_AFTER_SECONDS: Final = 20.0
IDLE_REPAINT_SECONDS: Final = 5.0
"""After ``IDLE_AFTER_SECONDS`` without input or change, snapshots that differ in elapsed time only
are shown once in ``IDLE_REPAINT_SECONDS``. The clock beside them shows their time."""

QUEUE_CHECK_SECONDS: Final = 1.0
"""Interval of the check for a new queue snapshot: it is cheap, and a DAG that does not run
produces no snapshots that would trigger it."""

EXIT_TIMEOUT_SECONDS: Final = 3.0
"""Time for a clean end after a signal; then the terminal is restored by force."""

ERROR_LIMIT: Final = 30
ERROR_LIMIT_SECONDS: Final = 10.0
"""More than ``ERROR_LIMIT`` errors within ``ERROR_LIMIT_SECONDS`` end the application with a
message: the screen shows nothing useful then. A screen that fails at each snapshot has five a
second."""

HANGUP_CHECK_MILLISECONDS: Final = 5000
"""Interval at which the hang-up thread checks whether it may end; a hang-up wakes it at once."""

ERROR_CODE: Final = 70
"""The exit status after a fatal error; documented with the commands."""

INTERRUPTED_CODE: Final = 128 + signal.SIGINT
"""The shell's exit status for ^C, which is a key in a full-screen application."""

TIMEOUT_CODE: Final = 5
"""The exit status when ``--timeout`` expired; documented with the commands."""


@frozen
class AppOptions:
    """Options of the application.

    ``mouse`` enables mouse reporting (the terminal then cannot select text). ``ascii``: only
    characters below 0x80. ``no_color``: as if NO_COLOR were set. ``run_filter``: names or uuid
    prefixes of runs, separated by commas. ``start``: the first screen. ``exit_when`` is called
    with the status of every complete snapshot; the application exits with the code it returns.
    ``timeout``: seconds after which that wait ends (exit code 5). ``pool_actions`` performs pool
    actions on the jobs of the feed; None: not possible here, for the reason ``no_pool_reason``.
    ``read_only`` removes all pool actions. ``open_dagdir`` opens the feed and pool actions of
    another dagdir (one just submitted). ``submission_pool`` submits, without a dagdir; None:
    submitting is not possible here. ``initial_request``: the initial content of the submit form.
    """

    mouse: bool = False
    ascii: bool = False
    no_color: bool = False
    run_filter: str | None = None
    start: Literal["overview", "submit"] | tuple[Literal["run"], str] = "overview"
    exit_when: Callable[[Status], int | None] | None = None
    timeout: float | None = None
    pool_actions: PoolActions | None = None
    no_pool_reason: str = "nothing can be acted on here"
    read_only: bool = False
    open_dagdir: Callable[[Path], tuple[Feed, PoolActions]] | None = None
    submission_pool: PoolActions | None = None
    initial_request: Request | None = None


class MetlmonApp(DiffRenderingApp):
    """Shows the snapshots of a feed.

    The application starts the feed; :func:`run_app`, or another caller, stops it.
    """

    CSS_PATH = Path(__file__).with_name("metlmon.tcss")
    TITLE = "metlmon"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("everywhere")]
    REPAINT_SECONDS: ClassVar[float] = REPAINT_SECONDS
    CONFIRM_SECONDS: ClassVar[float] = CONFIRM_SECONDS
    last_key_time = pause_before_key = 0.0
    """When the last key or paste arrived, and the time without one before it."""

    class SnapshotReady(Message):
        """The feed has a newer snapshot than the one shown."""

    class StatsReady(Message):
        """Statistics that take a while have been computed."""

    class ActionProgressed(Message):
        """The running pool action has a further result, or has ended."""

    def __init__(self, feed: Feed, options: AppOptions | None = None) -> None:
        self.options = options or AppOptions()
        super().__init__()
        self.feed = self.present_feed = feed
        self.stats = self.present_stats = StatsWorker(feed, self.stats_ready)
        self._precomputed_stats: StatsWorker | None = None
        self.time_travel = TimeTravel(self)
        self.pool_actions = None if self.options.read_only else self.options.pool_actions
        self.running_action: RunningAction | None = None
        self._shown_queue: QueueSnapshot | None = None
        self.snapshot: Snapshot | None = feed.latest
        self.newest_snapshot = self.snapshot
        self.form_state: FormState | None = None
        self._update_posted = False
        self.error_banner = ""
        self.exit_messages: list[str] = []
        self.pending_task = ""
        self.exit_started = threading.Event()
        self._failed_at: list[float] = []
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._shown_at = float("-inf")
        self._active_at = monotonic()
        self._change_shown_at = float("-inf")
        self._idle = False
        for theme in (DARK, LIGHT, SIXTEEN):
            self.register_theme(theme)
        self.theme = fitting_theme(
            self.console.color_system,
            self.no_color or self.options.no_color,
            os.environ.get("COLORFGBG"),
        )
        if self.no_color or self.options.no_color:
            self._remove_colours()

    def _remove_colours(self) -> None:
        from textual.filter import Monochrome, NoColor

        # Textual's own filter for NO_COLOR produces greys, which are colours too.
        filters = [
            filter_ for filter_ in self._filters if not isinstance(filter_, Monochrome | NoColor)
        ]
        self._filters = [*filters, NoColor()]

    # --- errors ---------------------------------------------------------------------------

    def _handle_exception(self, error: Exception) -> None:
        """Show an unexpected exception and continue, where Textual would exit."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        self.record_error(error)
        if self._exit:
            # Screens are being closed: a queued key finds its widgets gone.
            return
        now = monotonic()
        if not self._failed_at or now - self._failed_at[-1] > REPAINT_SECONDS:
            # All lines of a table may fail at once: count that as one error.
            recent = (
                failed_at for failed_at in self._failed_at if now - failed_at < ERROR_LIMIT_SECONDS
            )
            self._failed_at = [*recent, now]
        can_continue = self._running and len(self.screen_stack) > 1
        if not can_continue or len(self._failed_at) > ERROR_LIMIT:
            self._exit_with_error(cause)
            return
        self.show_error("something failed", cause)

    def record_error(self, error: Exception) -> None:
        """Record an error for a test's pilot, even if it is survived."""
        if self.is_headless and self._exception is None:
            self._exception = error
            self._exception_event.set()

    def show_error(self, context: str, error: BaseException) -> None:
        """Show an error in the banner of the current screen, until a key is pressed."""
        self.error_banner = describe_error(context, error)
        screen = self.screen
        if isinstance(screen, SnapshotScreen) and screen.is_attached:
            self.call_next(screen.show_banner)

    def _exit_with_error(self, error: BaseException) -> None:
        self._return_code = ERROR_CODE
        # No local variables and no raw text of a log: the terminal would interpret it.
        self.exit_messages = [f"metlmon: {describe_error('ended by an error', error)}"]
        if os.environ.get(TRACEBACK):
            self.exit_messages += format_traceback(error)
        self._close_messages_no_wait()

    def _fatal_error(self) -> None:
        self._exit_with_error(sys.exc_info()[1] or RuntimeError("for no known reason"))

    def panic(self, *renderables: Any) -> None:
        """End with a message; Textual's own method prints tracebacks."""
        self._fatal_error()

    def terminal_lost(self) -> None:
        self.exit_threadsafe(128 + signal.SIGHUP)

    # --- snapshots ------------------------------------------------------------------------

    def on_mount(self) -> None:
        self._event_loop = asyncio.get_running_loop()
        self.push_screen(OverviewScreen())
        start = self.options.start
        if start == "submit":
            self.action_new()
        elif start != "overview":
            self.open_run(start[1])
        if self.options.exit_when is not None and self.options.timeout is not None:
            self.set_timer(self.options.timeout, self._timed_out)
        self.set_interval(QUEUE_CHECK_SECONDS, self._check_queue)
        self._start_feed(self.feed)

    def _check_queue(self) -> None:
        """Refresh the screen when there is a new queue snapshot."""
        queue_snapshot = self.queue
        if queue_snapshot is not self._shown_queue:
            self._shown_queue = queue_snapshot
            self.refresh_screen()

    def _timed_out(self) -> None:
        self.exit(TIMEOUT_CODE, return_code=TIMEOUT_CODE)

    def _start_feed(self, feed: Feed) -> None:
        def on_snapshot(snapshot: Snapshot) -> None:
            # A feed that was replaced may still report.
            if feed is self.present_feed:
                self._receive_snapshot(snapshot)

        feed.start(on_snapshot)

    def _receive_snapshot(self, snapshot: Snapshot) -> None:
        """Store a snapshot and post a message; called on the feed's thread.

        At most one message is queued; its handler shows the newest snapshot.
        """
        self.newest_snapshot = snapshot
        if not self._update_posted:
            self._update_posted = True
            self.post_message(self.SnapshotReady())

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.InputEvent):
            self._active_at = monotonic()
            self._set_idle(False)
            # A key that no widget handled bubbles back to here.
            fresh = event.time != self.last_key_time
            if fresh and isinstance(event, events.Key | events.Paste):
                self.last_key_time, self.pause_before_key = (
                    event.time,
                    event.time - self.last_key_time,
                )
            if self.error_banner and isinstance(event, events.Key):
                self.error_banner = ""
                self.call_next(self.refresh_screen)
        await super().on_event(event)

    def on_metlmon_app_snapshot_ready(self) -> None:
        if self._skips_snapshot():
            return
        # A recent clock tick must not delay a real change.
        wait = self._change_shown_at + self.REPAINT_SECONDS - monotonic()
        if wait > 0:
            self.set_timer(wait, self._show_newest)
        else:
            self._show_newest()

    def _skips_snapshot(self) -> bool:
        """Can this snapshot be skipped: only elapsed time differs, and there is no input?"""
        shown, now = self.snapshot, monotonic()
        # Clear the flag before reading the snapshot, as in _show_newest.
        self._update_posted = False
        if (
            shown is None
            or self.newest_snapshot is None
            or not differs_in_time_only(shown, self.newest_snapshot)
        ):
            self._active_at = now
        self._set_idle(now - self._active_at > IDLE_AFTER_SECONDS)
        shown_recently = now - self._shown_at < IDLE_REPAINT_SECONDS - QUEUE_CHECK_SECONDS / 2
        self._update_posted = not self._idle or not shown_recently
        return not self._update_posted

    def _set_idle(self, resting: bool) -> None:
        if resting != self._idle:
            self._idle = resting
            self.feed.set_unattended(resting)

    def _show_newest(self) -> None:
        # Clear the flag before reading the snapshot, or one could be missed.
        self._update_posted = False
        self._shown_at = monotonic()
        shown, newest = self.snapshot, self.newest_snapshot
        if shown is None or newest is None or not differs_in_time_only(shown, newest):
            self._change_shown_at = self._shown_at
        if self.time_travel.past_view is None:
            self.snapshot = newest
        if not self._exit_if_done():
            self.refresh_screen()
            self._precompute()

    def _precompute(self) -> None:
        """Once all is read, compute statistics that are slow for a large ensemble."""
        snapshot = self.newest_snapshot
        if (
            self._precomputed_stats is self.present_stats
            or snapshot is None
            or snapshot.progress.fraction < 1
        ):
            return
        self._precomputed_stats = self.present_stats
        from metlmon.stats.timeline import timeline
        from metlmon.stats.usage import site_usage

        self.present_stats.precompute(timeline, site_usage)

    def refresh_screen(self) -> None:
        """Refresh the current screen."""
        # A result or a snapshot may still arrive while the widgets are removed.
        if not self.is_running or self._exit:
            return
        if isinstance(self.screen, SnapshotScreen) and self.screen.is_mounted:
            self.screen.refresh_view()

    def switch_feed(self, feed: Feed, stats: StatsWorker) -> None:
        """Switch all screens to this feed: a past one, or the present one."""
        self.feed, self.stats = feed, stats
        self.snapshot = self.newest_snapshot if feed is self.present_feed else feed.latest

    def _exit_if_done(self) -> bool:
        """Exit if the condition of ``--exit-on`` holds; not checked before all is read."""
        snapshot, exit_when = self.newest_snapshot, self.options.exit_when
        if snapshot is None or exit_when is None or snapshot.progress.fraction < 1:
            return False
        code = exit_when(snapshot.status)
        if code is not None:
            self.exit(code, return_code=code)
        return code is not None

    def exit(self, *args: Any, **kwargs: Any) -> None:
        """Exit; threads that still run have some seconds to end."""
        self.exit_started.set()
        super().exit(*args, **kwargs)

    def exit_threadsafe(self, code: int) -> None:
        """Exit with this code; safe in a signal handler.

        There the event loop sleeps and does not notice a posted message.
        """
        if self._event_loop is not None and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self.exit, code, code)

    def watch_dagdir(self, dagdir: Path) -> None:
        """Switch to another dagdir, starting at its overview.

        Raises InputError if it cannot be read; the current one then stays.
        """
        if self.options.open_dagdir is None:
            return
        feed, pool = self.options.open_dagdir(dagdir)
        self.time_travel.return_to_now()
        old_feed, old_pool = self.feed, self.pool_actions
        self.feed = self.present_feed = feed
        self.pool_actions = None if self.options.read_only else pool
        self.stats.close()
        self.stats = self.present_stats = StatsWorker(feed, self.stats_ready)
        self.snapshot, self.running_action = feed.latest, None
        self.newest_snapshot = feed.latest
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self.push_screen(OverviewScreen())
        self._start_feed(feed)
        # The old threads may be in the middle of a file or a query: do not wait here.
        self.run_worker(partial(_close, old_feed, old_pool), thread=True, exit_on_error=False)

    def stats_ready(self) -> None:
        """Called in the statistics thread when a result is ready."""
        self.post_message(self.StatsReady())

    def on_metlmon_app_stats_ready(self) -> None:
        self.refresh_screen()

    # --- the pool -------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the epoch, for the age of the queue snapshot."""
        return time()

    @property
    def queue(self) -> QueueSnapshot | None:
        """The latest queue snapshot; None without a schedd, and in the past.

        It is available even where pool actions are switched off.
        """
        if self.time_travel.past_view is not None:
            return None
        pool = self.pool_actions or self.options.pool_actions
        return None if pool is None else pool.word

    def action_refusal(self) -> str | None:
        """The reason that refuses all pool actions; None if each is checked by itself."""
        if self.options.read_only:
            return "this is read-only"
        if self.time_travel.active:
            return self.time_travel.refusal()
        if self.pool_actions is None:
            return self.options.no_pool_reason
        if self.running_action is not None and not self.running_action.ended:
            return f"{name_of(self.running_action.request.act)} is still under way"
        return None

    def perform(self, preview: ActionPreview, request: ActionRequest) -> RunningAction:
        """Perform a pool action in a thread, on whatever screen, and report its progress."""
        action = self.running_action = RunningAction(preview, request)
        if self.pool_actions is not None:
            perform = partial(self._perform, self.pool_actions, action)
            self.run_worker(perform, thread=True, group="deed", description="what was ordered")
        return action

    def _perform(self, pool: PoolActions, action: RunningAction) -> None:
        def on_result(result: ActionResult) -> None:
            action.results.append(result)
            self.post_message(self.ActionProgressed())
            if self._exit and result.reply is ResultCode.FAILED:
                # A confirmed action is completed even after quitting, but without waiting job
                # by job for a schedd that does not respond.
                raise PoolError("metlmon was left, and the schedd did not answer")

        self.pending_task = name_of(action.request.act)
        try:
            results = pool.perform(action.request, on_result)
            # Includes results that were not reported on the way.
            action.results = list(results)
        except PoolError as error:
            action.error = str(error)
        except Exception as error:
            action.error = describe_error(
                "it broke off; look into the queue for what was done", error
            )
        self.pending_task = ""
        action.ended = True
        self.post_message(self.ActionProgressed())

    def on_metlmon_app_action_progressed(self) -> None:
        self.refresh_screen()

    # --- navigation -----------------------------------------------------------------------

    def open_run(self, key: str) -> None:
        """Open the screen of a run."""
        self.push_screen(RunScreen(key))

    def open_job(self, cluster: int, proc: int) -> None:
        """Open the screen of a job."""
        self.push_screen(JobScreen(cluster, proc))

    def open_run_of(self, job: JobRow) -> None:
        """Open the run that a job belongs to, if any."""
        if self.snapshot is None or job.run is None:
            return
        for row in self.snapshot.status.runs:
            is_run = row.uuid == job.uuid if job.uuid else (row.run, row.dag) == (job.run, job.dag)
            if is_run:
                self.open_run(row.key)
                return

    def go_back(self) -> None:
        """Return to the present, or else to the previous screen; the overview stays."""
        in_past = self.time_travel.active or self.time_travel.error is not None
        if in_past and isinstance(self.screen, SnapshotScreen) and self.screen.SHOWS_ENSEMBLE:
            self.time_travel.return_to_now()
        elif len(self.screen_stack) > 2:
            self.pop_screen()

    def _open_once(self, screen: SnapshotScreen) -> None:
        if not isinstance(self.screen, type(screen)):
            self.push_screen(screen)

    def action_new(self) -> None:
        from screens.submit.screen import SubmitScreen

        if self.options.read_only:
            return
        if self.time_travel.active and isinstance(self.screen, SnapshotScreen):
            self.screen.show_message(self.time_travel.refusal() or "")
        elif self.options.submission_pool is not None:
            self._open_once(SubmitScreen(self.options.initial_request))
        elif isinstance(self.screen, SnapshotScreen):
            self.screen.show_message(f"nothing can be submitted: {self.options.no_pool_reason}")

    def action_problems(self) -> None:
        self._open_once(ProblemsScreen())

    def action_timeline(self) -> None:
        from screens.timeline.screen import TimelineScreen

        self._open_once(TimelineScreen())

    def action_sites(self) -> None:
        from screens.sites.screen import SitesScreen

        self._open_once(SitesScreen())

    def action_curves(self) -> None:
        from screens.curves.screen import CurvesScreen

        # From a run's screen, open that run's curves.
        self._open_once(CurvesScreen(getattr(self.screen, "key", None)))

    def action_nodes(self) -> None:
        from screens.nodes.screen import NodesScreen

        self._open_once(NodesScreen())

    def action_grid(self) -> None:
        from screens.sweep.screen import SweepScreen

        self._open_once(SweepScreen())

    def action_bag(self) -> None:
        from screens.shards.screen import ShardsScreen

        self._open_once(ShardsScreen())

    def action_estimates(self) -> None:
        from screens.estimates import EstimatesScreen

        self._open_once(EstimatesScreen())

    def action_incidents(self) -> None:
        from screens.incidents import IncidentsScreen

        self._open_once(IncidentsScreen())

    def action_earlier(self) -> None:
        self._step_time(-1)

    def action_later(self) -> None:
        self._step_time(1)

    def _step_time(self, steps: int) -> None:
        if isinstance(self.screen, SnapshotScreen) and self.screen.SHOWS_ENSEMBLE:
            refusal = self.time_travel.step(steps)
            if refusal is not None:
                self.screen.show_message(refusal)

    def on_time_travel_reading_progressed(self, message: TimeTravel.ReadingProgressed) -> None:
        self.time_travel.handle_progress(message.reading)

    def action_inputs(self) -> None:
        self._open_once(SourcesScreen())

    def action_help(self) -> None:
        screen = self.screen
        scopes = (screen.HELP_SCOPES or screen.SCOPES) if isinstance(screen, SnapshotScreen) else ()
        self._open_once(HelpScreen(scopes))

    def action_palette(self) -> None:
        if isinstance(self.screen, SnapshotScreen):
            screen, read_only = self.screen, self.options.read_only
            palette = PaletteScreen(screen.SCOPES, screen.refusals(), read_only)
            self.push_screen(palette, self._run_chosen)

    async def _run_chosen(self, action: str | None) -> None:
        if action is not None:
            namespace = self.screen if hasattr(self.screen, f"action_{action}") else self
            await self.run_action(action, default_namespace=namespace)

    def action_light(self) -> None:
        if self.theme != SIXTEEN.name:
            self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def action_pause(self) -> None:
        # As the terminal does where ^Z is not a key: stop the whole process group.
        if can_be_resumed():
            os.killpg(os.getpgrp(), signal.SIGTSTP)
        elif isinstance(self.screen, SnapshotScreen):
            self.screen.show_message(
                "there is no shell to go back to: this was not started from one"
            )

    def action_leave(self) -> None:
        self.exit(0)

    def action_interrupt(self) -> None:
        self.exit(INTERRUPTED_CODE, return_code=INTERRUPTED_CODE)


def differs_in_time_only(previous: Snapshot, current: Snapshot) -> bool:
    """Do these snapshots differ in elapsed times only?"""

    def compared_fields(snapshot: Snapshot) -> tuple[object, ...]:
        status = snapshot.status
        states = status.live, status.epoch_states, status.node_states
        return snapshot.progress, snapshot.error, status.logs, status.dags, status.warnings, *states

    return compared_fields(previous) == compared_fields(current)


def _close(feed: Feed, pool: PoolActions | None) -> None:
    feed.stop()
    if pool is not None:
        pool.close()


def run_app(feed: Feed, options: AppOptions) -> int:
    """Show a feed until the user quits; the caller has checked for a terminal.

    Returns the exit code: 0, or 128 plus the number of the signal that ended it, or 70 after
    an error (with a message on standard error).
    """
    app = MetlmonApp(feed, options)
    try:
        with _terminal_restored(app):
            app.run(mouse=options.mouse)
    finally:
        for message in app.exit_messages:
            _write_stderr(message)
        if app.time_travel.past_view is not None:
            app.time_travel.past_view.feed.stop()
        # Read-only mode polls the queue all the same.
        _close(app.present_feed, options.pool_actions if options.read_only else app.pool_actions)
        if options.submission_pool is not None:
            options.submission_pool.close()
    return app.return_code or 0


def _write_stderr(message: str) -> None:
    """Write to standard error, if there is one."""
    with suppress(OSError, ValueError):
        os.write(2, f"{message}\n".encode("ascii", "backslashreplace"))


@contextmanager
def _terminal_restored(app: MetlmonApp) -> Iterator[None]:
    """Exit cleanly on signals, and restore the terminal in any case.

    The signals below exit as ``q`` does. If that takes too long (the terminal is gone or no
    longer reads, a thread waits for a file), or at a second signal, the terminal modes are
    restored by force and the process ends.
    """
    modes = _terminal_modes()
    done = threading.Event()
    received: list[int] = []

    def handle_signal(number: int, frame: FrameType | None) -> None:
        if received:
            _restore_and_exit(128 + number, modes, _signal_message(received[0]))
        received.append(number)
        app.exit_threadsafe(128 + number)
        threading.Thread(
            target=_exit_after_patience,
            args=(done, 128 + number, modes),
            name="metlmon-leave",
            daemon=True,
        ).start()

    def handle_hangup() -> None:
        app.exit_threadsafe(128 + signal.SIGHUP)
        _exit_after_patience(done, 128 + signal.SIGHUP, modes)

    handlers = {number: signal.getsignal(number) for number in (*_EXIT_SIGNALS, *_TEXTUAL_SIGNALS)}
    for number in _EXIT_SIGNALS:
        # Ignored by nohup: keep ignoring it.
        if handlers[number] is not signal.SIG_IGN:
            signal.signal(number, handle_signal)
    for target, args in ((_poll_hangup, (done, handle_hangup)), (_ensure_exit, (app, done, modes))):
        threading.Thread(target=target, args=args, name="metlmon-line", daemon=True).start()
    try:
        yield
    finally:
        done.set()
        app.exit_started.set()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            _write_stderr(_signal_message(received[0]))


_EXIT_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)

_TEXTUAL_SIGNALS: Final = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
"""Textual handles these, and never restores their handlers."""

_RESTORE_SEQUENCE: Final = (
    b"\x1b[0m\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""What the driver writes at exit: style, paste mode, wrap, mouse, keys, screen, cursor."""


def _terminal_modes() -> list[Any] | None:
    try:
        return termios.tcgetattr(sys.__stdin__.fileno()) if sys.__stdin__ else None
    except (termios.error, OSError, ValueError):
        return None


def _poll_hangup(done: threading.Event, hung_up: Callable[[], None]) -> None:
    """Detect that the terminal has gone, by polling.

    SIGHUP is not always sent (it may not be the controlling terminal); Textual would then read
    nothing in a busy loop.
    """
    poller = select.poll()
    try:
        poller.register(0, 0)
    except (OSError, ValueError):
        return
    while not done.is_set():
        events = [event for _, event in poller.poll(HANGUP_CHECK_MILLISECONDS)]
        if any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for event in events):
            hung_up()
            return


def _ensure_exit(app: MetlmonApp, done: threading.Event, modes: list[Any] | None) -> None:
    """Once exiting has begun, make sure that it ends.

    A running pool action is waited for: half of it done, and not reported, would be worse.
    """
    app.exit_started.wait()
    if done.wait(EXIT_TIMEOUT_SECONDS):
        return
    if app.pending_task:
        _write_stderr(
            f"metlmon: waiting for the schedd: {app.pending_task} is under way (^C: do not wait)"
        )
        while app.pending_task:
            if done.wait(0.1):
                return
    _exit_after_patience(done, app.return_code or 0, modes)


def _exit_after_patience(done: threading.Event, code: int, modes: list[Any] | None) -> None:
    if not done.wait(EXIT_TIMEOUT_SECONDS):
        _restore_and_exit(code, modes, _signal_message(code - 128) if code > 128 else "")


def _signal_message(number: int) -> str:
    return f"metlmon: ended by {signal.Signals(number).name}"


def _restore_and_exit(code: int, modes: list[Any] | None, message: str = "") -> None:
    try:
        os.set_blocking(2, False)
        os.write(2, _RESTORE_SEQUENCE + f"{message}\r\n".encode() * bool(message))
        if modes is not None:
            termios.tcsetattr(0, termios.TCSANOW, modes)
    except (OSError, termios.error):
        pass  # The terminal is gone: there is nothing to restore.
    os._exit(code)
