"""The application: shows a feed's snapshots, and restores the terminal at exit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from functools import partial, partialmethod
from io import StringIO
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec.structs import replace
from textual import events
from textual.binding import BindingType
from textual.message import Message

from metlmon.config.settings import OwnCommand
from metlmon.config.user_state import read_state, write_state
from metlmon.errors import InputError
from metlmon.health.build import make_health
from metlmon.live.feed import Feed, NullFeed, Snapshot, unread
from metlmon.pool.client import FeedAndPool, PoolClient
from metlmon.pool.types import ActionPreview, ActionRequest, QueueSnapshot
from metlmon.snapshot.records import Job
from screens.actions import (
    TABS,
    bindings_of,
    create_screen,
    key_cap,
    keymap,
    name_of_screen,
    unknown_names,
)
from screens.base.absence import Absence
from screens.base.context import AppOptions, ListState, SavedFiles
from screens.base.fault_tolerant_app import FaultTolerantApp, terminal_guard, write_stderr
from screens.base.screens import SnapshotScreen
from screens.base.stats_worker import StatsWorker
from screens.overview import OverviewScreen
from screens.pool_actions import RunningAction, name_of
from screens.terminal.driver import can_be_resumed
from screens.terminal.private import release_caches
from screens.theme import DARK, LIGHT, SIXTEEN, fitting_theme
from screens.time_travel import TimeTravel

if TYPE_CHECKING:
    from screens.palette import Choice
    from screens.submit import FormState

__all__ = ["AppOptions", "MetlmonApp", "run_app"]

QUEUE_CHECK_SECONDS: Final = 1.0
"""Interval of the check for a new queue snapshot: it is cheap, and a DAG that does not run
produces no snapshots that would trigger it."""

UNATTENDED_SECONDS: Final = 20.0
"""Time without a key after which snapshots for the clock alone become rare."""

RELEASE_AFTER: Final = 500
"""Number of snapshots between two clearings of the text caches of Textual and Rich."""

CONFIRM_SECONDS: Final = 0.5
"""Time that a confirmation is on the screen, without another key, before it can be answered:
longer than the gaps between pasted characters, but not longer than reading it takes."""

INTERRUPTED_CODE: Final = 128 + signal.SIGINT
"""The shell's exit status for ^C, which is a key in a full-screen application."""

ACTION_CHECK_SECONDS: Final = 0.1
"""Interval of the check whether an action has ended, after which its pool client is closed."""

TIMEOUT_CODE: Final = 5
"""The exit status when ``--timeout`` expired; documented with the commands."""


class MetlmonApp(FaultTolerantApp):
    """Shows the snapshots of a feed; what screens and widgets call is public.

    The application starts the feed; :func:`run_app`, or another caller, stops it. ``feed``,
    ``stats`` and ``snapshot`` belong to the moment shown, ``present_feed`` and ``present_stats``
    to the present. ``pool_actions`` is None if no action is possible. ``form_state`` is the
    content of the submit form while it is closed. ``keys`` are the key caps set in
    ``metlmon.toml``, by action; ``list_states`` the chosen columns and orders, by class of the
    screen. ``absence`` handles the absence of the user.
    """

    CSS_PATH = Path(__file__).with_name("metlmon.tcss")
    TITLE = "metlmon"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = bindings_of("everywhere", "tabs")
    CONFIRM_SECONDS: ClassVar[float] = CONFIRM_SECONDS
    last_key_time = pause_before_key = 0.0
    """The time of the last key or paste, and the time without one before it."""

    class SnapshotReady(Message):
        """The feed has a newer snapshot than the one shown."""

    class ContentChanged(Message):
        """A statistic has been computed, or the running pool action has another result."""

    def __init__(self, feed: Feed, options: AppOptions | None = None) -> None:
        self.options = options or AppOptions()
        super().__init__()
        self.feed = self.present_feed = feed
        self.stats = self.present_stats = StatsWorker(feed, self.content_changed)
        self._precomputed_stats: StatsWorker | None = None
        self.time_travel = TimeTravel(self)
        self.pool_actions = None if self.options.read_only else self.options.pool_actions
        self._first = FeedAndPool(
            feed, self.options.pool_actions, self.options.no_pool_reason, self.options.read_only
        )
        self.running_action: RunningAction | None = None
        self.report_path: Path | None = None
        self._shown_queue: QueueSnapshot | None = None
        self.snapshot = self.newest_snapshot = feed.latest or unread(feed.dagdir)
        """The snapshot shown, and the newest one of the present."""
        self._announced = self._unattended = False
        self._input_at = monotonic()
        self._shown_count = 0
        self.form_state: FormState | None = None
        states = read_state(self.options.state_file, dict[str, ListState])
        self.list_states = states or {}
        self.keys: Mapping[str, str] = dict(feed.settings.keys)
        self._unknown_keys: set[tuple[str, str]] = set()
        self.absence = Absence(self, self.options.notify, remembers=self.options.remember_seen)
        self.set_keymap(keymap(self.keys))
        self._own_commands: Mapping[str, OwnCommand] = {}
        self._take_own_commands()
        for theme in (DARK, LIGHT, SIXTEEN):
            self.register_theme(theme)
        self.theme = fitting_theme(
            self.console.color_system,
            self.no_color or self.options.no_color,
            os.environ.get("COLORFGBG"),
        )
        if self.no_color or self.options.no_color:
            self.remove_colours()

    # --- snapshots ------------------------------------------------------------------------

    def on_mount(self) -> None:
        home = self.options.home
        self.push_screen(OverviewScreen() if home is None else create_screen("home", home))
        for name in unknown_names(self.keys):
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
        """Refresh the screen when there is a new queue snapshot."""
        queue_snapshot = self.queue
        if queue_snapshot is not self._shown_queue:
            self._shown_queue = queue_snapshot
            self.refresh_screen()

    def _start_feed(self, feed: Feed) -> None:
        def on_snapshot(snapshot: Snapshot) -> None:
            # A feed that was replaced may still report.
            if feed is not self.present_feed:
                return
            self.newest_snapshot = snapshot
            if not self._announced:
                self._announced = True
                self.post_message(self.SnapshotReady())

        feed.start(on_snapshot)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.InputEvent):
            self._input_at = monotonic()
            self._set_unattended(False)
            self.absence.last_look.record_input()
            # A key that no widget handled bubbles up to here.
            fresh = event.time != self.last_key_time
            if fresh and isinstance(event, events.Key | events.Paste):
                self.last_key_time, self.pause_before_key = (
                    event.time,
                    event.time - self.last_key_time,
                )
            if self.banners and fresh and isinstance(event, events.Key):
                del self.banners[0]
                self.call_next(self.refresh_screen)
        await super().on_event(event)

    def _set_unattended(self, unattended: bool) -> None:
        if unattended != self._unattended:
            self._unattended = unattended
            self.present_feed.set_unattended(unattended)

    def on_metlmon_app_snapshot_ready(self) -> None:
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
        from metlmon.stats.timeline import timeline
        from metlmon.stats.usage import site_usage
        from metlmon.stats.variance import site_variation

        self.present_stats.precompute(timeline, site_usage, site_variation)

    def refresh_screen(self) -> None:
        """Refresh the current screen."""
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
        old_feed, old_pool = self.present_feed, self.options.pool_actions
        old_action = self.running_action
        feed = self.feed = self.present_feed = opened.feed
        self.options = replace(
            self.options,
            pool_actions=opened.pool,
            no_pool_reason=opened.no_pool or self.options.no_pool_reason,
            read_only=opened.read_only or self._first.read_only,
        )
        self.pool_actions = None if self.options.read_only else opened.pool
        self.stats.close()
        self.stats = self.present_stats = StatsWorker(feed, self.content_changed)
        self.snapshot = self.newest_snapshot = feed.latest or unread(feed.dagdir)
        self.running_action = None
        self.absence.take(self.snapshot, self.present_stats)
        self.keys = dict(feed.settings.keys)
        self.set_keymap(keymap(self.keys))
        self._take_own_commands()
        # The old threads may be in the middle of a file, a query or an action: do not wait here.
        self.run_in_thread(partial(_close, old_feed, old_pool, old_action))

    def _take_own_commands(self) -> None:
        """Take the commands of the settings; the banner says why any are refused."""
        commands = self.feed.settings.command
        if commands:
            # Few users have any: load what they need only then.
            from screens.own_commands import by_key

            self._own_commands, taken = by_key(commands, self.keys)
            for problem in taken.values():
                self.add_banner(f"metlmon.toml: {problem}")

    @property
    def own_commands(self) -> Mapping[str, OwnCommand]:
        """The user's own commands by key; empty in read-only mode or in a browser."""
        return {} if self.options.read_only or self.is_web else self._own_commands

    def run_own_command(self, key: str) -> None:
        """Give the terminal to the user's own command on this key."""
        from screens.own_commands import run_command

        self._show_message(run_command(self, self.own_commands[key]))

    def run_in_thread(self, work: Callable[[], object]) -> None:
        """Do short work with files in a thread; its errors are not fatal."""
        self.run_worker(work, thread=True, exit_on_error=False)

    def content_changed(self) -> None:
        """Refresh the current screen soon; called in any thread."""
        self.post_message(self.ContentChanged())

    def on_metlmon_app_content_changed(self) -> None:
        self.absence.take(self.newest_snapshot, self.present_stats)
        self.refresh_screen()

    # --- the pool -------------------------------------------------------------------------

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
        pool = self.pool_actions or self.options.pool_actions
        return None if pool is None else pool.queue_snapshot

    def action_refusal(self) -> str | None:
        """Why all pool actions are refused; None if each is checked separately."""
        if self.options.read_only:
            return "this is read-only"
        if self.time_travel.active:
            return self.time_travel.refusal()
        if self.pool_actions is None:
            return self.options.no_pool_reason
        if self.running_action is not None and not self.running_action.ended:
            return f"{name_of(self.running_action.request.act)} is still under way"
        return None

    def act_moment(self) -> str | None:
        """When or where acts are possible, "" if unknown; None: here and now."""
        if self.time_travel.active:
            return "in the present"
        if self.options.read_only or self.pool_actions is None or self.queue is None:
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
        in_past = self.time_travel.active or self.time_travel.error is not None
        if in_past and isinstance(self.screen, SnapshotScreen) and self.screen.SHOWS_ENSEMBLE:
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
        if self.options.read_only or not isinstance(self.screen, SnapshotScreen):
            return
        if self.time_travel.active:
            self._show_message(self.time_travel.refusal() or "")
        elif self.options.submission_pool is None:
            self._show_message(f"nothing can be submitted: {self.options.no_pool_reason}")
        else:
            self.push_screen(create_screen("new", self.options.initial_request))

    def _step_time(self, steps: int) -> None:
        if isinstance(self.screen, SnapshotScreen) and self.screen.SHOWS_ENSEMBLE:
            refusal = self.time_travel.step(steps)
            if refusal is not None:
                self._show_message(refusal)

    action_earlier = partialmethod(_step_time, -1)
    action_later = partialmethod(_step_time, 1)

    def on_time_travel_reading_progressed(self, message: TimeTravel.ReadingProgressed) -> None:
        self.time_travel.handle_progress(message.reading)

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


def run_app(feed: Feed, options: AppOptions) -> int:
    """Show a feed until the user quits; the caller has checked for a terminal.

    Returns the exit code: 0, or 128 plus the number of the signal that ended it, or 70 after
    an error (with a message on standard error).
    """
    app = MetlmonApp(feed, options)
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
        _close(app.present_feed, app.options.pool_actions)
        if options.home is not None:
            options.home.stop()
        if options.submission_pool is not None:
            options.submission_pool.close()
    return app.return_code or 0
