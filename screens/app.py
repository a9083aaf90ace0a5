"""The application: shows a feed's snapshots, and restores the terminal at exit.

It survives errors. Time travel: all screens show the ensemble as it was at a past moment; the past
snapshot comes from a feed of its own, read in a thread. The present feed keeps running, so that
returning to it takes no time.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial, partialmethod
from io import StringIO
from pathlib import Path
from time import monotonic, sleep, time
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace
from textual import events
from textual.binding import BindingType
from textual.timer import Timer
from textual.worker import WorkerFailed

from metlmon.config.settings import NotifySettings, OwnCommand
from metlmon.config.user_state import read_state, state_path, write_state
from metlmon.errors import TRACEBACK, InputError, describe_error, format_traceback, sentence_of
from metlmon.health.build import make_health
from metlmon.health.changes import PURPOSE, Changes, LastSeen, changes_since, seen, since_seen
from metlmon.health.types import ExitWhen
from metlmon.live.feed import Feed, NullFeed, unread
from metlmon.pool.client import FeedAndPool, PoolClient
from metlmon.pool.types import ActionPreview, ActionRequest, QueueSnapshot
from metlmon.snapshot.records import Job, Progress, Snapshot, Status
from metlmon.stats.timeline import Timeline, timeline
from metlmon.tables.timeline_text import nice_step, snap_to_step
from metlmon.text import formatting
from metlmon.text.formatting import plain, seconds_ago
from metlmon.text.spans import ALARM, BOLD, DIM, KEY, NOTE, Line, first_that_fits, line
from screens.actions import (
    KNOWN_NAMES,
    TABS,
    bindings_of,
    create_screen,
    key_cap,
    keymap,
    name_of_screen,
)
from screens.base.screens import ListState, SnapshotScreen
from screens.base.stats_worker import StatsWorker, has_job_files
from screens.overview import OverviewScreen
from screens.pool_actions import RunningAction, name_of
from screens.terminal.driver import DiffRenderingApp, can_be_resumed
from screens.terminal.private import release_caches
from screens.theme import DARK, LIGHT, SIXTEEN, fitting_theme

if TYPE_CHECKING:
    # Modules that are loaded only when they are needed.
    from metlmon.authoring.request import Request
    from metlmon.home.feed import HomeFeed
    from metlmon.home.summary import HomeSummary
    from metlmon.notify.delivery import Notifier
    from screens.palette import Choice
    from screens.submit import FormState

# --- options --------------------------------------------------------------------------


class SavedFiles(Protocol):
    """Writes files outside of the dagdir. All raise InputError with one sentence.

    ``render_report`` and ``save_report`` read files: not for the UI thread.
    """

    @staticmethod
    def render_report(feed: Feed) -> tuple[str, str]: ...

    @staticmethod
    def save_report(feed: Feed) -> Path: ...

    @staticmethod
    def save_picture(feed: Feed, screen: str, svg: str) -> Path: ...

    @staticmethod
    def open_file(path: Path) -> None: ...


class AppOptions(Struct, frozen=True):
    """Options of the application.

    ``mouse`` enables mouse reporting (the terminal then cannot select text). ``ascii``: only
    characters below 0x80. ``no_color``: as if NO_COLOR were set. ``run_filter``: names or uuid
    prefixes of runs, separated by commas. ``start``: the first screen. ``exit_when`` is called
    with the status of every complete snapshot and the health; the application exits with the code
    that it returns. ``timeout``: seconds after which that wait ends (exit code 5). ``open_dagdir``
    opens another dagdir (one just submitted, or one of Home). ``home``: the ensembles of Home,
    which is then the first screen. ``submission_pool`` submits, without a dagdir; None: submitting
    is not possible here. ``initial_request``: the initial content of the submit form.
    ``state_file`` stores columns and orders; None: they last for the session. ``remember_choices``:
    whether they, and the list of Home, are written. ``caption`` gives the text that the demo shows
    on every screen. ``files`` saves reports and pictures; None: not possible here.
    ``remember_seen``: whether what was seen is remembered for the next session. ``notify``: send
    notifications.
    """

    mouse: bool = False
    ascii: bool = False
    no_color: bool = False
    run_filter: str | None = None
    start: Literal["overview", "submit"] | tuple[Literal["run"], str] = "overview"
    exit_when: ExitWhen | None = None
    timeout: float | None = None
    open_dagdir: Callable[[Path], FeedAndPool] | None = None
    home: HomeFeed | None = None
    submission_pool: PoolClient | None = None
    initial_request: Request | None = None
    state_file: Path | None = None
    remember_choices: bool = True
    caption: Callable[[], str] | None = None
    files: SavedFiles | None = None
    remember_seen: bool = False
    notify: NotifySettings | None = None


# --- errors ---------------------------------------------------------------------------

ERROR_LIMIT: Final = 30
ERROR_LIMIT_SECONDS: Final = 10.0
"""More than ``ERROR_LIMIT`` errors within ``ERROR_LIMIT_SECONDS`` end the application with a
message: the screen is useless then. A screen that fails at each snapshot has five a second."""

SAME_ERROR_SECONDS: Final = 0.2
"""Errors within this time count as one: all lines of a table may fail at once."""

ERROR_CODE: Final = 70
"""The exit status after a fatal error; documented with the commands."""


class FaultTolerantApp(DiffRenderingApp):
    """Shows unexpected errors in a banner, and ends with a message after too many.

    ``banners`` are the errors that the screens show, one after the other until a key is pressed;
    ``exit_messages`` are written to standard error after the end. ``exit_started`` is set once the
    application exits. ``pending_task`` names a task that exiting waits for; empty: none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.banners: list[str] = []
        self.exit_messages: list[str] = []
        self.pending_task = ""
        self.exit_started = threading.Event()
        self._failed_at: list[float] = []
        self._event_loop: asyncio.AbstractEventLoop | None = None

    def on_mount(self) -> None:
        self._event_loop = asyncio.get_running_loop()

    def _handle_exception(self, error: Exception) -> None:
        """Show an unexpected exception and continue, while Textual would exit."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        self.record_error(error)
        if self.is_exiting:
            # Screens are being closed: a queued key finds its widgets gone.
            return
        now = monotonic()
        if not self._failed_at or now - self._failed_at[-1] > SAME_ERROR_SECONDS:
            recent = (
                failed_at for failed_at in self._failed_at if now - failed_at < ERROR_LIMIT_SECONDS
            )
            self._failed_at = [*recent, now]
        can_continue = self.is_running and len(self.screen_stack) > 1
        if not can_continue or len(self._failed_at) > ERROR_LIMIT:
            self._exit_with_error(cause)
            return
        self.show_error("something failed", cause)

    def show_error(self, context: str, error: BaseException) -> None:
        """Show an error in the banner of the current screen, until a key is pressed."""
        self.add_banner(describe_error(context, error))
        screen = self.screen
        if isinstance(screen, SnapshotScreen) and screen.is_attached:
            self.call_next(screen.show_banner)

    def add_banner(self, text: str) -> None:
        """Add a text to the banner, after those that no key has closed yet."""
        if text not in self.banners:
            self.banners.append(text)

    def _exit_with_error(self, error: BaseException) -> None:
        # No local variables and no raw text of a log: the terminal would interpret it.
        self.exit_messages = [f"metlmon: {describe_error('ended by an error', error)}"]
        if os.environ.get(TRACEBACK):
            self.exit_messages += format_traceback(error)
        self._return_code = ERROR_CODE
        # Needed even if ``exit`` is no longer handled.
        self._close_messages_no_wait()

    def _fatal_error(self) -> None:
        """End with the message of the exception that is being handled."""
        self._exit_with_error(sys.exc_info()[1] or RuntimeError("for no known reason"))

    def panic(self, *renderables: Any) -> None:
        """End with a message; Textual's own method prints tracebacks."""
        self._fatal_error()

    def record_error(self, error: Exception) -> None:
        """Let a test's pilot raise an error even if the application survived it."""
        if self.is_headless and self._exception is None:
            self._exception = error
            self._exception_event.set()

    @property
    def is_exiting(self) -> bool:
        """Whether ``exit`` has been called."""
        return self._exit

    def terminal_lost(self) -> None:
        self.exit_threadsafe(128 + signal.SIGHUP)

    def exit(self, *args: Any, **kwargs: Any) -> None:
        """Exit; running threads have some seconds to end."""
        self.exit_started.set()
        super().exit(*args, **kwargs)

    def exit_threadsafe(self, code: int) -> None:
        """Exit with this code; safe in a signal handler.

        In a handler the event loop sleeps and would not notice a posted message.
        """
        if self._event_loop is not None and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self.exit, code, code)


# --- the application ------------------------------------------------------------------

QUEUE_CHECK_SECONDS: Final = 1.0
"""Interval of the check for a new queue snapshot: it is cheap, and a DAG that does not run
produces no snapshots that would trigger it."""

UNATTENDED_SECONDS: Final = 20.0
"""Time without a key after which snapshots for the clock alone become rare."""

RELEASE_AFTER: Final = 500
"""Number of snapshots between two clearings of the text caches of Textual and Rich."""

INTERRUPTED_CODE: Final = 128 + signal.SIGINT
"""The shell's exit status for ^C, which is a key in a full-screen application."""

ACTION_CHECK_SECONDS: Final = 0.1
"""Interval of the check whether an action has ended, after which its pool client is closed."""

TIMEOUT_CODE: Final = 5
"""The exit status when ``--timeout`` expired; documented with the commands."""


class MetlmonApp(FaultTolerantApp):
    """Shows the snapshots of a feed; what screens and widgets call is public.

    The application starts the feed; :func:`run_app`, or another caller, stops it. ``opened``
    is the ensemble that it shows. ``feed``, ``stats`` and ``snapshot`` belong to the moment shown,
    ``present_feed`` and ``present_stats`` to the present. ``form_state`` is the content of the
    submit form while it is closed. ``keys`` are the key caps set in ``metlmon.toml``, by action;
    ``list_states`` the chosen columns and orders, by class of the screen. ``absence`` handles the
    absence of the user.
    """

    CSS_PATH = Path(__file__).with_name("metlmon.tcss")
    TITLE = "metlmon"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = bindings_of("everywhere", "tabs")
    CONFIRM_SECONDS: ClassVar[float] = 0.5
    """Time that a confirmation is on the screen, without another key, before it can be answered:
    longer than the gaps between pasted characters, but not longer than reading it takes."""

    last_key_time = pause_before_key = 0.0
    """The time of the last key or paste, and the time without one before it."""

    def __init__(self, opened: FeedAndPool, options: AppOptions | None = None) -> None:
        self.options = options or AppOptions()
        super().__init__()
        self._first = opened
        self._take(opened)
        self._precomputed_stats: StatsWorker | None = None
        self.time_travel = TimeTravel(self)
        self.report_path: Path | None = None
        self._shown_queue: QueueSnapshot | None = None
        self._announced = self._unattended = False
        self._input_at = monotonic()
        self._shown_count = 0
        self.form_state: FormState | None = None
        states = read_state(self.options.state_file, dict[str, ListState])
        self.list_states = states or {}
        self._unknown_keys: set[tuple[str, str]] = set()
        self.absence = Absence(self, self.options.notify, remembers=self.options.remember_seen)
        for theme in (DARK, LIGHT, SIXTEEN):
            self.register_theme(theme)
        self.theme = fitting_theme(
            self.console.color_system,
            self.no_color or self.options.no_color,
            os.environ.get("COLORFGBG"),
        )
        if self.no_color or self.options.no_color:
            self.remove_colours()

    def _take(self, opened: FeedAndPool) -> None:
        """Take an ensemble, its statistics, and the keys and commands of its settings."""
        self.opened = opened
        feed = self.feed = opened.feed
        self.stats = self.present_stats = StatsWorker(feed, self.content_changed)
        self.snapshot = self.newest_snapshot = feed.latest or unread(feed.dagdir)
        """The snapshot shown, and the newest one of the present."""
        self.running_action: RunningAction | None = None
        self.keys: Mapping[str, str] = dict(feed.settings.keys)
        self.set_keymap(keymap(self.keys))
        self._own_commands: Mapping[str, OwnCommand] = {}
        if feed.settings.command:
            # Few users have any: load what they need only then.
            from screens.own_commands import by_key

            self._own_commands, refused = by_key(feed.settings.command, self.keys)
            for problem in refused.values():
                self.add_banner(f"metlmon.toml: {problem}")

    # --- snapshots ------------------------------------------------------------------------

    @property
    def present_feed(self) -> Feed:
        """The feed of the present, whatever moment is shown."""
        return self.opened.feed

    def on_mount(self) -> None:
        home = self.options.home
        self.push_screen(OverviewScreen() if home is None else create_screen("home", home))
        for name in (name for name in self.keys if name not in KNOWN_NAMES["keys"]):
            self.add_banner(f"metlmon.toml: [keys]: unknown action {name[:40]!r}")
        start = self.options.start
        if start == "submit":
            self.action_new()
        elif start != "overview":
            self.open_screen(*start)
        if self.options.exit_when is not None and self.options.timeout is not None:
            timed_out = partial(self.exit, TIMEOUT_CODE, return_code=TIMEOUT_CODE)
            self.set_timer(self.options.timeout, timed_out)
        self.set_interval(QUEUE_CHECK_SECONDS, self._check_queue)
        self._start_feed(self.feed)
        self.call_after_refresh(self._precompute)

    def _check_queue(self) -> None:
        if self.queue is not self._shown_queue:
            self._shown_queue = self.queue
            self.refresh_screen()

    def _start_feed(self, feed: Feed) -> None:
        def on_snapshot(snapshot: Snapshot) -> None:
            # A feed that was replaced may still report.
            if feed is not self.present_feed:
                return
            self.newest_snapshot = snapshot
            if not self._announced:
                self._announced = True
                self.call_later(self._take_newest)

        feed.start(on_snapshot)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.InputEvent):
            self._input_at = monotonic()
            self._set_unattended(False)
            self.absence.last_look.record_input()
            # A key that no widget handled bubbles up to here.
            fresh = event.time != self.last_key_time
            if fresh and isinstance(event, events.Key | events.Paste):
                self.pause_before_key = event.time - self.last_key_time
                self.last_key_time = event.time
            if self.banners and fresh and isinstance(event, events.Key):
                del self.banners[0]
                self.call_next(self.refresh_screen)
        await super().on_event(event)

    def _set_unattended(self, unattended: bool) -> None:
        if unattended != self._unattended:
            self._unattended = unattended
            self.present_feed.set_unattended(unattended)

    def _take_newest(self) -> None:
        # Cleared before the snapshot is read, or one could be missed.
        self._announced = False
        newest = self.newest_snapshot
        self._set_unattended(monotonic() - self._input_at > UNATTENDED_SECONDS)
        if self.time_travel.past_view is None:
            self.snapshot = newest
        self._shown_count += 1
        if self._shown_count % RELEASE_AFTER == 0:
            release_caches()
        self.absence.take(newest, self.present_stats)
        if not self._exit_if_done():
            self.refresh_screen()
            self._precompute()

    def _precompute(self) -> None:
        """After everything is read, compute what the screens of statistics show first."""
        snapshot = self.newest_snapshot
        is_done = self._precomputed_stats is self.present_stats
        if is_done or not snapshot.is_complete or isinstance(self.present_feed, NullFeed):
            return
        self._precomputed_stats = self.present_stats
        from metlmon.stats.usage import site_usage
        from metlmon.stats.variance import site_variation

        self.present_stats.precompute(timeline, site_usage, site_variation)

    def refresh_screen(self) -> None:
        # A result or a snapshot may still arrive while the widgets are removed.
        if not self.is_running or self.is_exiting:
            return
        if isinstance(self.screen, SnapshotScreen) and self.screen.is_mounted:
            self.screen.refresh_view()

    def switch_feed(self, feed: Feed, stats: StatsWorker) -> None:
        """Switch all screens to this feed, which is a past or the present one."""
        self.feed, self.stats = feed, stats
        self.snapshot = self.newest_snapshot
        if feed is not self.present_feed:
            self.snapshot = feed.latest or unread(feed.dagdir)

    def _exit_if_done(self) -> bool:
        """Exit if the condition of ``--exit-on`` holds; not checked until everything is read."""
        snapshot, exit_when = self.newest_snapshot, self.options.exit_when
        if exit_when is None or not snapshot.is_complete:
            return False
        code = exit_when(snapshot.status, partial(self.present_stats.value, make_health))
        if code is not None:
            self.exit(code, return_code=code)
        return code is not None

    def watch_dagdir(self, dagdir: Path) -> None:
        """Switch to another dagdir, starting at its overview.

        Raises InputError if it cannot be read; the current one then stays.
        """
        if self.options.open_dagdir is not None:
            self.show_ensemble(self.options.open_dagdir(dagdir))
            if self.options.home is not None:
                self.options.home.add_path(str(dagdir.absolute()))

    def show_ensemble(self, opened: FeedAndPool) -> None:
        """Show an ensemble that was opened, starting at its overview; above Home, if any."""
        self._replace_feed(opened)
        while len(self.screen_stack) > (1 if self.options.home is None else 2):
            self.pop_screen()
        self.push_screen(OverviewScreen())
        self._start_feed(opened.feed)

    def close_ensemble(self) -> None:
        """Close the ensemble that was opened from Home, if any."""
        if self.present_feed is not self._first.feed:
            self._replace_feed(self._first)

    def _replace_feed(self, opened: FeedAndPool) -> None:
        """Replace feed and pool actions; the old ones are closed in a thread."""
        self.time_travel.return_to_now()
        old = self.present_feed, self.opened.pool, self.running_action
        no_pool = opened.no_pool or self.opened.no_pool
        read_only = opened.read_only or self._first.read_only
        self.stats.close()
        self._take(replace(opened, no_pool=no_pool, read_only=read_only))
        self.absence.take(self.snapshot, self.present_stats)
        # The old threads may be in the middle of a file, a query or an action: do not wait here.
        self.run_in_thread(partial(_close, *old))

    @property
    def own_commands(self) -> Mapping[str, OwnCommand]:
        """The user's own commands by key; empty in read-only mode or in a browser."""
        return {} if self.opened.read_only or self.is_web else self._own_commands

    def run_own_command(self, key: str) -> None:
        """Give the terminal to the user's own command on this key."""
        from screens.own_commands import run_command

        self._show_message(run_command(self, self.own_commands[key]))

    def run_in_thread(self, work: Callable[[], object]) -> None:
        """Do short work with files in a thread; its errors are not fatal."""
        self.run_worker(work, thread=True, exit_on_error=False)

    def content_changed(self) -> None:
        """Refresh the current screen soon, with a new statistic or result; from any thread."""
        self.call_later(self._take_content)

    def _take_content(self) -> None:
        self.absence.take(self.newest_snapshot, self.present_stats)
        self.refresh_screen()

    # --- the pool -------------------------------------------------------------------------

    @property
    def pool_actions(self) -> PoolClient | None:
        """The client that acts on the jobs; None if no action is possible."""
        return None if self.opened.read_only else self.opened.pool

    def now(self) -> float:
        """Seconds since the epoch, for the age of the queue snapshot."""
        return time()

    @property
    def queue(self) -> QueueSnapshot | None:
        """The latest queue snapshot; None without a schedd, and in the past.

        It is available even if pool actions are disabled.
        """
        if self.time_travel.past_view is not None:
            return None
        return None if self.opened.pool is None else self.opened.pool.queue_snapshot

    def action_refusal(self) -> str | None:
        """Why all pool actions are refused; None if each is checked separately."""
        if self.opened.read_only:
            return "this is read-only"
        if self.time_travel.active:
            return self.time_travel.refusal()
        if self.pool_actions is None:
            return self.opened.no_pool
        if self.running_action is not None and not self.running_action.ended:
            return f"{name_of(self.running_action.request.act)} is still under way"
        return None

    def act_moment(self) -> str | None:
        """When or where acts are possible, "" if unknown; None: here and now."""
        if self.time_travel.active:
            return "in the present"
        if self.opened.read_only or self.pool_actions is None or self.queue is None:
            return ""
        return "where a schedd answers" if self.queue.error is not None else None

    def perform(self, preview: ActionPreview, request: ActionRequest) -> RunningAction:
        """Perform a pool action in a thread, and report its progress on any screen."""
        action = self.running_action = RunningAction(preview, request)
        if self.pool_actions is not None:
            perform = partial(self._perform, self.pool_actions, action)
            self.run_worker(perform, thread=True, description="the pool action")
        return action

    def _perform(self, pool: PoolClient, action: RunningAction) -> None:
        self.pending_task = name_of(action.request.act)
        action.perform(pool, self.content_changed, lambda: self.is_exiting)
        self.pending_task = ""
        self.content_changed()

    # --- files: the report, and pictures of screens --------------------------------------

    def action_report(self) -> None:
        """Write the report of the shown ensemble, in a thread."""
        if self.refuse_on_home():
            return
        if self.options.files is not None:
            self._show_message("writing the report …")
            self.run_in_thread(partial(self._save_report, self.options.files, self.feed))

    def _save_report(self, files: SavedFiles, feed: Feed) -> None:
        try:
            if self.is_web:
                self.call_from_thread(self._download, *files.render_report(feed))
                return
            self.report_path = files.save_report(feed)
            message = f"report written: {self.report_path}; [^o] opens it"
        except (InputError, OSError) as error:
            message = f"no report was written: {error}"
        self.call_from_thread(self._show_message, message)

    def _download(self, name: str, text: str) -> None:
        """Have the browser save a file on the user's machine; nothing is written on this one."""
        self.deliver_text(StringIO(text), save_filename=name, encoding="utf-8")
        self._show_message(f"sent to your browser's downloads: {name}")

    def action_browse(self) -> None:
        if self.options.files is None:
            return
        if self.is_web:
            self._show_message("reports are in your browser's downloads; [^y] sends one")
        elif self.report_path is None:
            self._show_message("no report was written yet; [^y] writes it")
        else:
            try:
                self.options.files.open_file(self.report_path)
            except InputError as error:
                self._show_message(str(error))

    def action_picture(self) -> None:
        if self.options.files is None:
            return
        screen = self.screen_name or "screen"
        try:
            svg = self.export_screenshot(title=f"metlmon {screen}")
            if self.is_web:
                self._download(f"metlmon-{screen}.svg", svg)
                return
            path = self.options.files.save_picture(self.feed, screen, svg)
        except (InputError, OSError) as error:
            self._show_message(f"no picture was saved: {error}")
        else:
            self._show_message(f"picture saved: {path}")

    def _show_message(self, message: str) -> None:
        if isinstance(self.screen, SnapshotScreen):
            self.screen.show_message(message)

    # --- navigation -----------------------------------------------------------------------

    @property
    def screen_name(self) -> str | None:
        """The name of the current screen, or of the nearest one below it that has a tab."""
        names = map(name_of_screen, reversed(self.screen_stack))
        return next((name for name in names if any(name in tab for tab in TABS)), None)

    def open_screen(self, name: str, *arguments: object) -> None:
        """Open a screen on what the arguments name; without any, return to it if it is below.

        From a run's screen, the curves are those of the run.
        """
        if self.refuse_on_home():
            return
        names = [name_of_screen(screen) for screen in self.screen_stack]
        key = getattr(self.screen, "key", None) if name == "curves" else None
        if key is not None and names[-1] != name:
            arguments = (key,)
        if name in names and not arguments:
            for _ in names[names.index(name) + 1 :]:
                self.pop_screen()
        else:
            self.push_screen(create_screen(name, *arguments))

    def refuse_on_home(self) -> bool:
        """On Home, say that the other screens belong to a single ensemble."""
        is_home = name_of_screen(self.screen) == "home"
        if is_home:
            self._show_message("open an ensemble first: [enter]")
        return is_home

    def action_tab(self, number: int) -> None:
        """Open a tab; if its screen is shown, open the next screen of the tab instead."""
        if self.refuse_on_home():
            return
        names, current = TABS[number - 1], name_of_screen(self.screen)
        if current in names and len(names) > 1:
            self.pop_screen()
            self.open_screen(names[(names.index(current) + 1) % len(names)])
        else:
            below = [name_of_screen(screen) for screen in self.screen_stack]
            self.open_screen(next((name for name in names if name in below), names[0]))

    def open_run_of(self, job: Job) -> None:
        """Open the run that a job belongs to, if any."""
        if any(row.key == job.key for row in self.snapshot.status.runs):
            self.open_screen("run", job.key)

    def go_back(self) -> None:
        """Return to the present, or else to the previous screen; the overview stays open."""
        if isinstance(self.screen, SnapshotScreen) and self.screen.shows_past:
            self.time_travel.return_to_now()
        elif len(self.screen_stack) > 2:
            self.pop_screen()

    def action_close(self) -> None:
        if len(self.screen_stack) <= 2:
            self.exit(0)
        elif isinstance(self.screen, SnapshotScreen):
            self.screen.close()

    def handle_unbound_key(self, key: str) -> None:
        """Say once per screen that a key does nothing."""
        screen = self.screen
        if key in self.own_commands and isinstance(screen, SnapshotScreen):
            if screen.SHOWS_ENSEMBLE:
                self.run_own_command(key)
            return
        place = type(self.screen).__name__, key
        if place not in self._unknown_keys:
            self._unknown_keys.add(place)
            self._show_message(f"[{key_cap(key)}] does nothing here; [?] shows the keys")

    def save_list_states(self) -> None:
        """Remember the chosen columns and orders."""
        if self.options.remember_choices:
            # If that is not possible, they last for the session.
            write_state(self.options.state_file, self.list_states)

    def action_new(self) -> None:
        if self.opened.read_only or not isinstance(self.screen, SnapshotScreen):
            return
        if self.time_travel.active:
            self._show_message(self.time_travel.refusal() or "")
        elif self.options.submission_pool is None:
            self._show_message(f"nothing can be submitted: {self.opened.no_pool}")
        else:
            self.push_screen(create_screen("new", self.options.initial_request))

    def _step_time(self, steps: int) -> None:
        if isinstance(self.screen, SnapshotScreen) and self.screen.SHOWS_ENSEMBLE:
            refusal = self.time_travel.step(steps)
            if refusal is not None:
                self._show_message(refusal)

    action_earlier = partialmethod(_step_time, -1)
    action_later = partialmethod(_step_time, 1)

    def action_help(self) -> None:
        from screens.help import HelpScreen

        screen = self.screen
        if isinstance(screen, HelpScreen):
            screen.show_all()
            return
        scopes = (screen.HELP_SCOPES or screen.SCOPES) if isinstance(screen, SnapshotScreen) else ()
        self.push_screen(create_screen("help", scopes))

    def action_palette(self) -> None:
        from screens.palette import PaletteScreen

        if isinstance(self.screen, SnapshotScreen):
            self.push_screen(PaletteScreen(self.screen), self._open_choice)

    async def _open_choice(self, choice: Choice | None) -> None:
        if choice is None:
            return
        kind, *target = choice
        if kind == "ensemble":
            self.screen.open_row(str(target[0]))  # type: ignore[attr-defined]
        elif kind == "command":
            self.run_own_command(str(target[0]))
        elif kind == "action":
            action = str(target[0])
            namespace = self.screen if hasattr(self.screen, f"action_{action}") else self
            await self.run_action(action, default_namespace=namespace)
        else:
            self.open_screen(kind, *target)

    def action_light(self) -> None:
        if self.theme != SIXTEEN.name:
            self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def action_pause(self) -> None:
        # As the terminal does if ^Z is not a key: stop the whole process group.
        if not self.is_web and can_be_resumed():
            os.killpg(os.getpgrp(), signal.SIGTSTP)
        else:
            self._show_message("there is no shell to go back to: this was not started from one")

    async def action_quit(self) -> None:
        self.exit(0)

    def action_interrupt(self) -> None:
        self.exit(INTERRUPTED_CODE, return_code=INTERRUPTED_CODE)


def _close(feed: Feed, pool: PoolClient | None, action: RunningAction | None = None) -> None:
    """Close a feed and its pool client, after the action in progress."""
    while action is not None and not action.ended:
        sleep(ACTION_CHECK_SECONDS)
    feed.stop()
    if pool is not None:
        pool.close()


def run_app(opened: FeedAndPool, options: AppOptions) -> int:
    """Show an ensemble until the user quits; the caller has checked for a terminal.

    Returns the exit code: 0, or 128 plus the number of the signal that ended it, or 70 after
    an error (with a message on standard error).
    """
    app = MetlmonApp(opened, options)
    try:
        with terminal_guard(app):
            app.run(mouse=options.mouse)
    finally:
        for message in app.exit_messages:
            write_stderr(message)
        app.absence.close()
        if app.time_travel.past_view is not None:
            app.time_travel.past_view.feed.stop()
        # Read-only mode still polls the queue.
        _close(app.present_feed, app.opened.pool)
        if options.home is not None:
            options.home.stop()
        if options.submission_pool is not None:
            options.submission_pool.close()
    return app.return_code or 0


# --- time travel ----------------------------------------------------------------------

SETTLE_SECONDS: Final = 0.15
"""Delay before reading starts: a repeating key requests thirty moments a second."""

STEPS: Final = 100
"""The step keys move by this fraction of the whole time span, rounded: an epoch or less."""


class Reading(Struct):
    """A past moment being read: written by its feed's thread, read by the screens."""

    moment: datetime
    feed: Feed | None = None
    progress: Progress | None = None
    error: str | None = None
    cancelled: bool = False


class PastView(Struct, frozen=True):
    """The past moment that the screens show, with its feed and statistics."""

    moment: datetime
    feed: Feed
    stats: StatsWorker


class TimeTravel:
    """The moment that the screens of ``app`` show; ``past_view`` None: the present."""

    def __init__(self, app: MetlmonApp) -> None:
        self._app = app
        self.past_view: PastView | None = None
        self.requested_moment: datetime | None = None
        self.error: str | None = None
        self._reading: Reading | None = None
        self._timer: Timer | None = None

    @property
    def active(self) -> bool:
        """Whether a past moment is shown or being read."""
        return self.past_view is not None or self.requested_moment is not None

    @property
    def moment(self) -> datetime | None:
        """The moment requested last; None: the present."""
        past = None if self.past_view is None else self.past_view.moment
        return self.requested_moment or past

    # --- moving in time ---------------------------------------------------------------------

    def load(self, moment: datetime) -> None:
        """Show the ensemble as it was at ``moment``, or the present if that is not past."""
        snapshot = self._app.newest_snapshot
        if isinstance(self._app.present_feed, NullFeed):
            return
        as_of = snapshot.status.as_of
        if as_of is None or moment >= as_of:
            self.return_to_now()
            return
        if moment == self.moment and self.requested_moment is None:
            return
        self.requested_moment, self.error = moment, None
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._app.set_timer(SETTLE_SECONDS, self._start_reading)
        self._app.refresh_screen()

    def step(self, steps: int) -> str | None:
        """Move by a number of steps (negative: earlier). Returns a refusal, or None."""
        known = self._app.present_stats.value(timeline)
        if known is None:
            return "the times are being added up: try again in a moment"
        if known.first is None or known.last is None:
            return "there is no past: no log has an event yet"
        status = self._app.newest_snapshot.status
        # The statistic may be a little older than the snapshot.
        now = status.as_of if status.live else None
        start = self.moment or now or known.last
        self.load(step_moment(known, start, steps))
        return None

    def _start_reading(self) -> None:
        moment = self.requested_moment
        if moment is None:
            return
        self._cancel_reading()
        reading = self._reading = Reading(moment)
        self._app.run_in_thread(lambda: self._read(self._app.present_feed, reading))

    def _read(self, present: Feed, reading: Reading) -> None:
        """Open the past feed, in a thread: opening a dagdir reads its DAG files."""
        try:
            feed = present.historical(reading.moment)
        except Exception as error:
            reading.error = sentence_of(error, "opening it failed", InputError, OSError)
            self._app.call_later(self._handle_progress, reading)
            return

        def on_snapshot(snapshot: Snapshot) -> None:
            reading.progress = snapshot.progress
            reading.error = snapshot.error
            self._app.call_later(self._handle_progress, reading)

        reading.feed = feed
        if not reading.cancelled:
            feed.start(on_snapshot)
        if reading.cancelled:
            feed.stop()

    def _handle_progress(self, reading: Reading) -> None:
        """Handle progress of a reading, unless it was cancelled; show it once it is complete."""
        if reading is not self._reading:
            return
        feed, progress = reading.feed, reading.progress
        if reading.error is not None:
            self.return_to_now()
            self.error = reading.error
        elif feed is not None and progress is not None and progress.fraction >= 1:
            self._reading = None
            previous = self.past_view
            stats = StatsWorker(feed, self._app.content_changed)
            self.past_view = PastView(reading.moment, feed, stats)
            if self.requested_moment == reading.moment:
                self.requested_moment = None
            self._app.switch_feed(feed, stats)
            self._close(previous)
        self._app.refresh_screen()

    def return_to_now(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._cancel_reading()
        previous, self.past_view = self.past_view, None
        self.requested_moment = self.error = None
        if previous is not None:
            self._app.switch_feed(self._app.present_feed, self._app.present_stats)
            self._close(previous)
        self._app.refresh_screen()

    def _cancel_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancelled = True
            if reading.feed is not None:
                self._app.run_in_thread(reading.feed.stop)

    def _close(self, past: PastView | None) -> None:
        if past is not None:
            past.stats.close()
            self._app.run_in_thread(past.feed.stop)

    # --- texts ------------------------------------------------------------------------------

    def refusal(self) -> str | None:
        """Why pool actions are refused; None in the present."""
        if not self.active:
            return None
        when = when_text(self.moment)
        return f"this is how it was {when}; only the present can be acted on ([esc] returns to it)"

    def banner(self, width: int, show_key: bool = True) -> Line:
        """The first line of every screen that shows the past; () in the present."""
        if self.error is not None:
            message = plain(self.error, 2 * width)
            return line(" ", ("that past cannot be read: ", ALARM), message)
        if not self.active:
            return ()
        return_hint: Line = line((" — ", DIM), ("esc", KEY), (" returns to now", DIM))
        short_hint: Line = line((" — ", DIM), ("esc", KEY), (": now", DIM))
        shown: Line = line(" ")
        if self.past_view is not None:
            shown = line(
                (" ◀◀ as it was ", NOTE),
                (when_text(self.past_view.moment), BOLD),
                (self._ago(self.past_view.moment), NOTE),
            )
        reading = self._reading_text()
        hints = (shown + reading + return_hint, shown + reading + short_hint) if show_key else ()
        return first_that_fits((*hints, shown + reading), width)

    def _ago(self, moment: datetime) -> str:
        status = self._app.newest_snapshot.status
        seconds = seconds_ago(status.as_of, moment)
        if seconds is None:
            return ""
        reference = "ago" if status.live else "before the end"
        return f" ({formatting.age(seconds)} {reference})"

    def _reading_text(self) -> Line:
        if self.requested_moment is None:
            return ()
        reading = self._reading
        text = "reading"
        if reading is not None and reading.progress is not None:
            done = formatting.share(reading.progress.done, reading.progress.total)
            text += f" {done} of {formatting.size(reading.progress.total)}"
        gap, moment = "  " if self.past_view else "", when_text(self.requested_moment)
        return line(f"{gap}going to ", (moment, BOLD), (f": {text}", DIM))


def when_text(moment: datetime | None) -> str:
    """``10 Nov 2025 14:00``, with seconds unless they are 0."""
    return formatting.moment(moment, seconds=bool(moment.second)) if moment else ""


def step_moment(times: Timeline, start: datetime, steps: int) -> datetime:
    """The moment a number of round steps from ``start``, not before the first event."""
    step = nice_step(times.seconds / STEPS)
    seconds = times.position_of(start)
    nearest = snap_to_step(times, seconds, step)
    between_steps = abs(nearest - seconds) > 1e-6
    if between_steps and (nearest > seconds) == (steps > 0):
        steps -= 1 if steps > 0 else -1
    moment = times.time_at(max(0.0, nearest + steps * step))
    return start if moment is None else moment


# --- a user who is away ---------------------------------------------------------------

ATTENDED_SECONDS: Final = 60.0
"""Time after a key during which somebody is assumed to look."""

AWAY_SECONDS: Final = 900.0
"""Time without a key after which the next one means that somebody has returned."""

SHOWN_SECONDS: Final = 60.0
READ_SECONDS: Final = 2.0
"""The line is shown for a minute or until the next key, but at least as long as reading takes."""


class LastLook:
    """Tracks when somebody looks, and remembers between sessions how far they saw.

    ``clock`` returns seconds. ``since``: how far they had seen before they came or returned; None
    if unknown.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._path: Path | None = None
        self.since: datetime | None = None
        self._newest: Status | None = None
        self._last: LastSeen | None = None
        self._input_at = clock()
        self._returned = True
        self._text = ""
        self._shown_at = 0.0

    def load(self, dagdir: Path) -> None:
        """Read how far a dagdir was seen; without this call nothing is remembered.

        Reads a file: not for the UI thread.
        """
        path = state_path(PURPOSE, dagdir)
        before = read_state(path, LastSeen)
        self.since = None if before is None else before.until
        self._path = path

    @property
    def has_ended(self) -> bool:
        """Whether nobody is looking any longer, but what was seen has not been saved yet."""
        return self._newest is not None and self._clock() - self._input_at > ATTENDED_SECONDS

    def save(self) -> None:
        """Remember what was seen last, unless that has been done. Writes a file."""
        newest, self._newest = self._newest, None
        if newest is not None and (last := seen(newest)) is not None:
            self._last = last
            write_state(self._path, last)

    def record_input(self) -> None:
        """Record that somebody has pressed a key."""
        now = self._clock()
        if now - self._input_at > AWAY_SECONDS:
            self.save()
            self.since = self._last.until if self._last is not None else self.since
            self._returned = True
        elif now - self._shown_at > READ_SECONDS:
            self._text = ""
        self._input_at = now

    def see(self, status: Status) -> None:
        """Record that a screen shows this status; it is seen if somebody looks."""
        if self._clock() - self._input_at <= ATTENDED_SECONDS:
            self._newest = status

    def show(self, status: Status, changes_since: Callable[[datetime], Changes | None]) -> str:
        """What has changed since the last look, as one line; empty if that is not news.

        ``status``: that of a complete snapshot, which is shown now. ``changes_since`` returns what
        has changed in it, or None while that is unknown.
        """
        self.see(status)
        now = self._clock()
        if self._returned and self.since is not None:
            changes = changes_since(self.since)
            if changes is not None:
                self._returned = False
                self._text, self._shown_at = since_seen(changes), now
        if now - self._shown_at > SHOWN_SECONDS:
            self._text = ""
        return self._text


class Absence:
    """Sends notifications, and tracks when somebody looks at the ensemble.

    ``settings`` None: no notifications are sent; ``remembers``: whether what was seen is remembered
    between sessions.
    """

    def __init__(
        self, application: MetlmonApp, settings: NotifySettings | None, *, remembers: bool
    ) -> None:
        self._application, self._remembers = application, remembers
        self.last_look = LastLook()
        self._dagdir: str | None = None
        self.notifier: Notifier | None = None
        if settings is not None:
            from metlmon.notify.delivery import Notifier

            self.notifier = Notifier(settings, application.write_apart, application.content_changed)

    def take(self, snapshot: Snapshot, stats: StatsWorker) -> None:
        """Take the newest snapshot and statistics of the present."""
        if not snapshot.is_complete:
            return
        status = snapshot.status
        # Before an ensemble is opened, the snapshot is empty.
        dagdir = status.dagdir if status.dags or status.logs else None
        if dagdir != self._dagdir:
            if self._dagdir is not None:
                self._application.run_in_thread(self.last_look.save)
            self.last_look, self._dagdir = LastLook(), dagdir
            if dagdir is not None and self._remembers:
                self._application.run_in_thread(partial(self._load, self.last_look, dagdir))
        if dagdir is None:
            return
        self.last_look.see(status)
        if self.last_look.has_ended:
            self._application.run_in_thread(self.last_look.save)
        if self.notifier is not None:
            self._notify(self.notifier, snapshot, stats)

    def take_home(self, summaries: Iterable[HomeSummary]) -> None:
        """Take what Home knows of all ensembles except the open one."""
        if self.notifier is None:
            return
        from metlmon.home.summary import Phase

        about = self.notifier.settings.about
        for summary in summaries:
            figures, is_open = summary.figures, summary.path == self._dagdir
            if is_open or figures is None or summary.phase is not Phase.READ:
                continue
            events = tuple(event for event in figures.events if event.name in about)
            self.notifier.update(
                Path(summary.path),
                events,
                live=figures.live,
                as_of=figures.as_of,
                complete=figures.complete,
            )

    def _load(self, last_look: LastLook, dagdir: str) -> None:
        last_look.load(Path(dagdir))
        self._application.content_changed()

    def _notify(self, notifier: Notifier, snapshot: Snapshot, stats: StatsWorker) -> None:
        """Pass what holds now to the notifier, after all files have been read."""
        from metlmon.notify.events import find_events, is_complete

        stats.watch_job_files()
        # Requested first, the health is evaluated first: if all files are read, it is not older.
        stats.value(make_health)
        complete = stats.value(has_job_files)
        health = stats.value(make_health)
        if complete and health is not None:
            status = snapshot.status
            notifier.update(
                Path(status.dagdir),
                find_events(health, status, notifier.settings.about),
                live=status.live,
                as_of=status.as_of,
                complete=snapshot.error is None and is_complete(status),
            )

    def news(self, snapshot: Snapshot, stats: StatsWorker) -> str:
        """What has changed since somebody last looked; empty if that is not news."""
        if not snapshot.is_complete:
            return ""
        return self.last_look.show(snapshot.status, lambda since: stats.value(changes_since, since))

    def close(self) -> None:
        """Remember what was seen last; the next process sends what has not been sent."""
        self.last_look.save()
        if self.notifier is not None:
            self.notifier.close()


# --- exit on signals -------------------------------------------------------------------------

EXIT_TIMEOUT_SECONDS: Final = 3.0
"""Time for a clean end after a signal; then the terminal is restored by force."""

HANGUP_CHECK_MILLISECONDS: Final = 5000
"""Interval at which the hang-up thread checks whether it may end; a hang-up wakes it at once."""

_EXIT_SIGNALS: Final = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGXCPU,
)
"""Signals that end an unprepared process; SIGXCPU is a limit of a batch system or a shell."""

_TEXTUAL_SIGNALS: Final = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
"""Textual handles these, and never restores their handlers."""

_RESTORE_SEQUENCE: Final = (
    b"\x1b[0m\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""What the driver writes at exit: style, paste mode, wrap, mouse, keys, screen, cursor."""


@contextmanager
def terminal_guard(app: FaultTolerantApp) -> Iterator[None]:
    """Exit cleanly on signals, and restore the terminal in any case.

    ``_EXIT_SIGNALS`` exit as ``q`` does. If that takes too long (the terminal
    is gone or no longer reads, a thread waits for a file), or at a second signal, the terminal
    modes are restored by force and the process ends.
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
            target=_exit_after_timeout,
            args=(done, 128 + number, modes),
            name="metlmon-exit",
            daemon=True,
        ).start()

    def handle_hangup() -> None:
        app.exit_threadsafe(128 + signal.SIGHUP)
        _exit_after_timeout(done, 128 + signal.SIGHUP, modes)

    handlers = {number: signal.getsignal(number) for number in (*_EXIT_SIGNALS, *_TEXTUAL_SIGNALS)}
    for number in _EXIT_SIGNALS:
        # Ignored by nohup: keep ignoring it.
        if handlers[number] is not signal.SIG_IGN:
            signal.signal(number, handle_signal)
    for target, args in ((_poll_hangup, (done, handle_hangup)), (_ensure_exit, (app, done, modes))):
        threading.Thread(target=target, args=args, name="metlmon-terminal", daemon=True).start()
    try:
        yield
    finally:
        done.set()
        app.exit_started.set()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            write_stderr(_signal_message(received[0]))


def write_stderr(message: str) -> None:
    """Write to standard error, if there is one."""
    with suppress(OSError, ValueError):
        os.write(2, f"{message}\n".encode("ascii", "backslashreplace"))


def _terminal_modes() -> list[Any] | None:
    try:
        return termios.tcgetattr(sys.__stdin__.fileno()) if sys.__stdin__ else None
    except (termios.error, OSError, ValueError):
        return None


def _poll_hangup(done: threading.Event, on_hangup: Callable[[], None]) -> None:
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
            on_hangup()
            return


def _ensure_exit(app: FaultTolerantApp, done: threading.Event, modes: list[Any] | None) -> None:
    """Make sure that exiting, once begun, ends.

    A pending task is waited for: leaving it half done and unreported would be worse.
    """
    app.exit_started.wait()
    if done.wait(EXIT_TIMEOUT_SECONDS):
        return
    if app.pending_task:
        write_stderr(
            f"metlmon: waiting for the schedd: {app.pending_task} is under way (^C: do not wait)"
        )
        while app.pending_task:
            if done.wait(0.1):
                return
    _exit_after_timeout(done, app.return_code or 0, modes)


def _exit_after_timeout(done: threading.Event, code: int, modes: list[Any] | None) -> None:
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
