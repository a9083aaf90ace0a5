"""The application: takes pictures from a feed, and gives the terminal back whatever happens."""

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
from screens.terminal.driver import DiffRenderingApp, somebody_resumes
from screens.theme import DARK, LIGHT, SIXTEEN, fitting_theme
from screens.time_travel import TimeTravel

if TYPE_CHECKING:
    from metlmon.authoring.request import Request
    from screens.submit.form_model import FormState

REPAINT_SECONDS: Final = 0.2
"""Pictures are shown at most so often: more is not seen, and costs bytes over ssh."""

ANSWER_SECONDS: Final = 0.5
"""A question has stood on the screen for so long, without another key, before it is answered: a
person has not read it sooner, and characters of a paste come faster."""

REST_AFTER: Final = 20.0
REST_SECONDS: Final = 5.0
"""Nobody has touched a key and nothing has happened for the first of these: of pictures in which
only time went by, one is shown in the second. The clock beside them says of when they are."""

LISTEN_SECONDS: Final = 1.0
"""How often the queue's word is looked at: it costs nothing, and a DAG that does not live has no
pictures that would bring it along."""

PATIENCE_SECONDS: Final = 3.0
"""How long a signal waits for a clean end before the terminal is given back by force."""

MISHAPS: Final = 30
MISHAPS_SECONDS: Final = 10.0
"""After more errors than the first in the second, nothing of use is on the screen: then it is
better to end with a word than to go on. A screen that fails at each picture has five a second
at most."""

LINE_MILLISECONDS: Final = 5000
"""How often the thread that awaits the end of the terminal sees whether it is needed still: a
hang-up wakes it at once."""

ERROR_CODE: Final = 70
"""The exit status after an error that nothing could go on after; the commands document it."""

INTERRUPTED_CODE: Final = 128 + signal.SIGINT
"""What a shell says of a program that ^C ended; in a full screen, ^C is a key."""

TIMEOUT_CODE: Final = 5
"""The exit status when ``--timeout`` passed first; the commands document it."""


@frozen
class AppOptions:
    """How to show it.

    ``mouse`` asks the terminal for the mouse (it then cannot select text). ``ascii``: only
    characters below 0x80. ``no_color``: as if NO_COLOR were set. ``only``: names or uuid
    prefixes of runs, separated by commas. ``start``: the first screen.
    ``exit_when`` is asked of every complete picture, and leaves with the code it gives;
    ``timeout``: seconds after which that wait is given up (exit code 5).
    ``desk`` acts on the jobs of the feed; None: nothing can be acted on here, for the reason
    that ``no_desk`` gives. ``read_only`` takes all actions away. ``opener`` makes feed and
    desk of another dagdir (one that was just submitted), and ``pool`` is the desk of no
    dagdir, for submitting; None: nothing can be submitted here. ``draft``: what the submit
    pane is filled with at first.
    """

    mouse: bool = False
    ascii: bool = False
    no_color: bool = False
    only: str | None = None
    start: Literal["overview", "submit"] | tuple[Literal["run"], str] = "overview"
    exit_when: Callable[[Status], int | None] | None = None
    timeout: float | None = None
    desk: PoolActions | None = None
    no_desk: str = "nothing can be acted on here"
    read_only: bool = False
    opener: Callable[[Path], tuple[Feed, PoolActions]] | None = None
    pool: PoolActions | None = None
    draft: Request | None = None


class MetlmonApp(DiffRenderingApp):
    """Shows the pictures of a feed. The feed is started here, and stopped by
    :func:`run_app` (or by who started the application otherwise)."""

    CSS_PATH = Path(__file__).with_name("metlmon.tcss")
    TITLE = "metlmon"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("everywhere")]
    REPAINT_SECONDS: ClassVar[float] = REPAINT_SECONDS
    ANSWER_SECONDS: ClassVar[float] = ANSWER_SECONDS
    key_at = key_pause = 0.0
    """When the last key or paste came, and how long there was none before it."""

    class NewPicture(Message):
        """The feed has a newer picture than the one shown."""

    class NewFigures(Message):
        """Figures have come that took a while."""

    class DeedMoved(Message):
        """The order under way has another answer, or is over."""

    def __init__(self, feed: Feed, options: AppOptions | None = None) -> None:
        self.options = options or AppOptions()
        super().__init__()
        self.feed = self.present = feed
        self.study = self.present_study = StatsWorker(feed, self.figures_came)
        self._foreseen: StatsWorker | None = None
        self.travel = TimeTravel(self)
        self.desk = None if self.options.read_only else self.options.desk
        self.deed: RunningAction | None = None
        self._word: QueueSnapshot | None = None
        self.picture: Snapshot | None = feed.latest
        self.newest = self.picture
        self.form: FormState | None = None
        self._told = False
        self.mishap = ""
        self.last_words: list[str] = []
        self.unfinished = ""
        self.leaving = threading.Event()
        self._failed_at: list[float] = []
        self._asleep: asyncio.AbstractEventLoop | None = None
        self._shown_at = float("-inf")
        self._stirred = monotonic()
        self._moved_at = float("-inf")
        self._resting = False
        for theme in (DARK, LIGHT, SIXTEEN):
            self.register_theme(theme)
        self.theme = fitting_theme(
            self.console.color_system,
            self.no_color or self.options.no_color,
            os.environ.get("COLORFGBG"),
        )
        if self.no_color or self.options.no_color:
            self._without_colours()

    def _without_colours(self) -> None:
        from textual.filter import Monochrome, NoColor

        # Textual's own filter for NO_COLOR makes greys, which are colours too.
        kept = [each for each in self._filters if not isinstance(each, Monochrome | NoColor)]
        self._filters = [*kept, NoColor()]

    # --- errors ---------------------------------------------------------------------------

    def _handle_exception(self, error: Exception) -> None:
        """Textual ends with the first exception that nobody foresaw. Here the screen tells it,
        and what can go on goes on."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        self.noticed(error)
        if self._exit:
            # Screens are being closed: a key that was waiting finds its widgets gone.
            return
        now = monotonic()
        if not self._failed_at or now - self._failed_at[-1] > REPAINT_SECONDS:
            # Every line of a table may fail at once, that is one error.
            recent = (at for at in self._failed_at if now - at < MISHAPS_SECONDS)
            self._failed_at = [*recent, now]
        bearable = self._running and len(self.screen_stack) > 1
        if not bearable or len(self._failed_at) > MISHAPS:
            self._end_with(cause)
            return
        self.tell_mishap("something failed", cause)

    def noticed(self, error: Exception) -> None:
        """Under a test's pilot no error goes unnoticed, borne or not."""
        if self.is_headless and self._exception is None:
            self._exception = error
            self._exception_event.set()

    def tell_mishap(self, what: str, error: BaseException) -> None:
        """Say on whatever screen what failed, until a key is pressed."""
        self.mishap = describe_error(what, error)
        screen = self.screen
        if isinstance(screen, SnapshotScreen) and screen.is_attached:
            self.call_next(screen.tell_first)

    def _end_with(self, error: BaseException) -> None:
        self._return_code = ERROR_CODE
        # A terminal shows what is written to it: no local variables, no raw text of a log.
        self.last_words = [f"metlmon: {describe_error('ended by an error', error)}"]
        if os.environ.get(TRACEBACK):
            self.last_words += format_traceback(error)
        self._close_messages_no_wait()

    def _fatal_error(self) -> None:
        self._end_with(sys.exc_info()[1] or RuntimeError("for no known reason"))

    def panic(self, *renderables: Any) -> None:
        """Textual's own prints tracebacks."""
        self._fatal_error()

    def terminal_lost(self) -> None:
        self.leave_soon(128 + signal.SIGHUP)

    # --- pictures -------------------------------------------------------------------------

    def on_mount(self) -> None:
        self._asleep = asyncio.get_running_loop()
        self.push_screen(OverviewScreen())
        start = self.options.start
        if start == "submit":
            self.action_new()
        elif start != "overview":
            self.open_run(start[1])
        if self.options.exit_when is not None and self.options.timeout is not None:
            self.set_timer(self.options.timeout, self._timed_out)
        self.set_interval(LISTEN_SECONDS, self._listen)
        self._follow(self.feed)

    def _listen(self) -> None:
        """Show the queue's word when there is another one than before."""
        word = self.word
        if word is not self._word:
            self._word = word
            self.show_again()

    def _timed_out(self) -> None:
        self.exit(TIMEOUT_CODE, return_code=TIMEOUT_CODE)

    def _follow(self, feed: Feed) -> None:
        def heard(update: Snapshot) -> None:
            # One that was left may still have something to say.
            if feed is self.present:
                self._heard(update)

        feed.start(heard)

    def _heard(self, update: Snapshot) -> None:
        """Called on the feed's thread. One message is under way at most, and whoever takes it
        finds the newest picture."""
        self.newest = update
        if not self._told:
            self._told = True
            self.post_message(self.NewPicture())

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.InputEvent):
            self._stirred = monotonic()
            self._rest(False)
            # A key that no widget took bubbles back to here.
            fresh = event.time != self.key_at
            if fresh and isinstance(event, events.Key | events.Paste):
                self.key_at, self.key_pause = event.time, event.time - self.key_at
            if self.mishap and isinstance(event, events.Key):
                self.mishap = ""
                self.call_next(self.show_again)
        await super().on_event(event)

    def on_metlmon_app_new_picture(self) -> None:
        if self._rests():
            return
        # That the clock ticked a moment ago keeps no change waiting.
        wait = self._moved_at + self.REPAINT_SECONDS - monotonic()
        if wait > 0:
            self.set_timer(wait, self._show_newest)
        else:
            self._show_newest()

    def _rests(self) -> bool:
        """Has only time gone by, and nobody looks? Then the next picture will do."""
        before, now = self.picture, monotonic()
        # First the flag, as below.
        self._told = False
        if before is None or self.newest is None or not only_later(before, self.newest):
            self._stirred = now
        self._rest(now - self._stirred > REST_AFTER)
        lately = now - self._shown_at < REST_SECONDS - LISTEN_SECONDS / 2
        self._told = not self._resting or not lately
        return not self._told

    def _rest(self, resting: bool) -> None:
        if resting != self._resting:
            self._resting = resting
            self.feed.rest(resting)

    def _show_newest(self) -> None:
        # First the flag, then the picture: the other way round one could be missed.
        self._told = False
        self._shown_at = monotonic()
        before, now = self.picture, self.newest
        if before is None or now is None or not only_later(before, now):
            self._moved_at = self._shown_at
        if self.travel.then is None:
            self.picture = now
        if not self._time_to_leave():
            self.show_again()
            self._foresee()

    def _foresee(self) -> None:
        """As soon as all is read, what the screens of a large ensemble will ask for."""
        update = self.newest
        if self._foreseen is self.present_study or update is None or update.progress.fraction < 1:
            return
        self._foreseen = self.present_study
        from metlmon.stats.timeline import timeline
        from metlmon.stats.usage import sites

        self.present_study.foresee(timeline, sites)

    def show_again(self) -> None:
        """Show the picture on the screen that is looked at."""
        # An answer or a picture may still come while the widgets are taken down.
        if not self.is_running or self._exit:
            return
        if isinstance(self.screen, SnapshotScreen) and self.screen.is_mounted:
            self.screen.again()

    def turn_to(self, feed: Feed, study: StatsWorker) -> None:
        """Let every screen show this feed: one of the past, or the present."""
        self.feed, self.study = feed, study
        self.picture = self.newest if feed is self.present else feed.latest

    def _time_to_leave(self) -> bool:
        """Has what ``--exit-on`` waits for come? Not asked before all is read once."""
        update, asked = self.newest, self.options.exit_when
        if update is None or asked is None or update.progress.fraction < 1:
            return False
        code = asked(update.status)
        if code is not None:
            self.exit(code, return_code=code)
        return code is not None

    def exit(self, *args: Any, **how: Any) -> None:
        """Leave; whoever is still at work has some seconds to end."""
        self.leaving.set()
        super().exit(*args, **how)

    def leave_soon(self, code: int) -> None:
        """Leave with this exit code; may be called from a signal handler, where the event loop
        is asleep and does not notice a message."""
        if self._asleep is not None and not self._asleep.is_closed():
            self._asleep.call_soon_threadsafe(self.exit, code, code)

    def watch_dagdir(self, dagdir: Path) -> None:
        """From now on show another dagdir, from its overview on. Raises InputError when it
        cannot be read; what is shown then stays."""
        if self.options.opener is None:
            return
        feed, desk = self.options.opener(dagdir)
        self.travel.come_back()
        old_feed, old_desk = self.feed, self.desk
        self.feed = self.present = feed
        self.desk = None if self.options.read_only else desk
        self.study.close()
        self.study = self.present_study = StatsWorker(feed, self.figures_came)
        self.picture, self.deed = feed.latest, None
        self.newest = feed.latest
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self.push_screen(OverviewScreen())
        self._follow(feed)
        # The old ones' threads may be in the middle of a file or a query: not waited for here.
        self.run_worker(partial(_close, old_feed, old_desk), thread=True, exit_on_error=False)

    def figures_came(self) -> None:
        """Called in the study's thread: figures are there that were not before."""
        self.post_message(self.NewFigures())

    def on_metlmon_app_new_figures(self) -> None:
        self.show_again()

    # --- the pool -------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the epoch, for the age of what the queue said."""
        return time()

    @property
    def word(self) -> QueueSnapshot | None:
        """What the queue said last; None where nobody is asked, and of the past. Acting may be
        switched off."""
        if self.travel.then is not None:
            return None
        desk = self.desk or self.options.desk
        return None if desk is None else desk.word

    def why_nothing_can_be_done(self) -> str | None:
        """The reason that refuses every act; None when each is looked at by itself."""
        if self.options.read_only:
            return "this is read-only"
        if self.travel.away:
            return self.travel.refusal()
        if self.desk is None:
            return self.options.no_desk
        if self.deed is not None and not self.deed.over:
            return f"{name_of(self.deed.order.act)} is still under way"
        return None

    def perform(self, offer: ActionPreview, order: ActionRequest) -> RunningAction:
        """Do it in a thread, whatever screen is looked at; it tells how far it is."""
        deed = self.deed = RunningAction(offer, order)
        if self.desk is not None:
            work = partial(self._perform, self.desk, deed)
            self.run_worker(work, thread=True, group="deed", description="what was ordered")
        return deed

    def _perform(self, desk: PoolActions, deed: RunningAction) -> None:
        def told(answer: ActionResult) -> None:
            deed.answers.append(answer)
            self.post_message(self.DeedMoved())
            if self._exit and answer.reply is ResultCode.FAILED:
                # What was confirmed is done to its end, also when one leaves; but nobody waits
                # job by job for a schedd that does not answer.
                raise PoolError("metlmon was left, and the schedd did not answer")

        self.unfinished = name_of(deed.order.act)
        try:
            answers = desk.perform(deed.order, told)
            # Also those that were not told on the way.
            deed.answers = list(answers)
        except PoolError as error:
            deed.error = str(error)
        except Exception as error:
            deed.error = describe_error(
                "it broke off; look into the queue for what was done", error
            )
        self.unfinished = ""
        deed.over = True
        self.post_message(self.DeedMoved())

    def on_metlmon_app_deed_moved(self) -> None:
        self.show_again()

    # --- going about ----------------------------------------------------------------------

    def open_run(self, key: str) -> None:
        """To the history of a run."""
        self.push_screen(RunScreen(key))

    def open_job(self, cluster: int, proc: int) -> None:
        """To the life of a job."""
        self.push_screen(JobScreen(cluster, proc))

    def open_run_of(self, job: JobRow) -> None:
        """To the run that a job belongs to, if it belongs to one."""
        if self.picture is None or job.run is None:
            return
        for row in self.picture.status.runs:
            same = row.uuid == job.uuid if job.uuid else (row.run, row.dag) == (job.run, job.dag)
            if same:
                self.open_run(row.key)
                return

    def go_back(self) -> None:
        """To the present; there, to the screen before. The overview stays."""
        back = self.travel.away or self.travel.error is not None
        if back and isinstance(self.screen, SnapshotScreen) and self.screen.IN_TIME:
            self.travel.come_back()
        elif len(self.screen_stack) > 2:
            self.pop_screen()

    def _open_once(self, screen: SnapshotScreen) -> None:
        if not isinstance(self.screen, type(screen)):
            self.push_screen(screen)

    def action_new(self) -> None:
        from screens.submit.screen import SubmitScreen

        if self.options.read_only:
            return
        if self.travel.away and isinstance(self.screen, SnapshotScreen):
            self.screen.say(self.travel.refusal() or "")
        elif self.options.pool is not None:
            self._open_once(SubmitScreen(self.options.draft))
        elif isinstance(self.screen, SnapshotScreen):
            self.screen.say(f"nothing can be submitted: {self.options.no_desk}")

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

        # From a run's own screen to that run's curves.
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
        self._step_in_time(-1)

    def action_later(self) -> None:
        self._step_in_time(1)

    def _step_in_time(self, by: int) -> None:
        if isinstance(self.screen, SnapshotScreen) and self.screen.IN_TIME:
            why = self.travel.step(by)
            if why is not None:
                self.screen.say(why)

    def on_time_travel_arrived(self, message: TimeTravel.Arrived) -> None:
        self.travel.arrived(message.reading)

    def action_inputs(self) -> None:
        self._open_once(SourcesScreen())

    def action_help(self) -> None:
        screen = self.screen
        first = (screen.HELPS or screen.SCOPES) if isinstance(screen, SnapshotScreen) else ()
        self._open_once(HelpScreen(first))

    def action_palette(self) -> None:
        if isinstance(self.screen, SnapshotScreen):
            screen, read_only = self.screen, self.options.read_only
            palette = PaletteScreen(screen.SCOPES, screen.refusals(), read_only)
            self.push_screen(palette, self._chosen)

    async def _chosen(self, action: str | None) -> None:
        if action is not None:
            where = self.screen if hasattr(self.screen, f"action_{action}") else self
            await self.run_action(action, default_namespace=where)

    def action_light(self) -> None:
        if self.theme != SIXTEEN.name:
            self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def action_pause(self) -> None:
        # As the terminal does it where ^Z is no key: all that was started together is stopped.
        if somebody_resumes():
            os.killpg(os.getpgrp(), signal.SIGTSTP)
        elif isinstance(self.screen, SnapshotScreen):
            self.screen.say("there is no shell to go back to: this was not started from one")

    def action_leave(self) -> None:
        self.exit(0)

    def action_interrupt(self) -> None:
        self.exit(INTERRUPTED_CODE, return_code=INTERRUPTED_CODE)


def only_later(before: Snapshot, now: Snapshot) -> bool:
    """Do these differ in nothing but what time does: how long things last?"""

    def read(update: Snapshot) -> tuple[object, ...]:
        told = update.status
        states = told.live, told.epoch_states, told.node_states
        return update.progress, update.error, told.logs, told.dags, told.warnings, *states

    return read(before) == read(now)


def _close(feed: Feed, desk: PoolActions | None) -> None:
    feed.stop()
    if desk is not None:
        desk.close()


def run_app(feed: Feed, options: AppOptions) -> int:
    """Show a feed until the user leaves. Returns the exit code: 0, or 128 and the number of
    the signal that ended it, or 70 after an error (a sentence on standard error tells it).

    The caller has made sure that there is a terminal to draw on.
    """
    app = MetlmonApp(feed, options)
    try:
        with _terminal_given_back(app):
            app.run(mouse=options.mouse)
    finally:
        for told in app.last_words:
            _tell(told)
        if app.travel.then is not None:
            app.travel.then.feed.stop()
        # Who may only look was asked all the same.
        _close(app.present, options.desk if options.read_only else app.desk)
        if options.pool is not None:
            options.pool.close()
    return app.return_code or 0


def _tell(what: str) -> None:
    """On standard error, if there is one."""
    with suppress(OSError, ValueError):
        os.write(2, f"{what}\n".encode("ascii", "backslashreplace"))


@contextmanager
def _terminal_given_back(app: MetlmonApp) -> Iterator[None]:
    """The signals below leave as ``q`` does. If leaving does not come to its end soon (the
    terminal is gone or does not read any more, a thread waits for a file), or at a second
    signal, the terminal's modes are restored by force, and the process ends."""
    modes = _modes()
    done = threading.Event()
    ended: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        if ended:
            _by_force(128 + number, modes, _ended_by(ended[0]))
        ended.append(number)
        app.leave_soon(128 + number)
        threading.Thread(
            target=_insist, args=(done, 128 + number, modes), name="metlmon-leave", daemon=True
        ).start()

    def hung_up() -> None:
        app.leave_soon(128 + signal.SIGHUP)
        _insist(done, 128 + signal.SIGHUP, modes)

    before = {each: signal.getsignal(each) for each in (*_SIGNALS, *_TEXTUALS)}
    for each in _SIGNALS:
        # Of nohup: whoever started this does not want it to end by that.
        if before[each] is not signal.SIG_IGN:
            signal.signal(each, end)
    for target, args in ((_await_hangup, (done, hung_up)), (_see_to_it, (app, done, modes))):
        threading.Thread(target=target, args=args, name="metlmon-line", daemon=True).start()
    try:
        yield
    finally:
        done.set()
        app.leaving.set()
        for each, handler in before.items():
            signal.signal(each, handler)
        if ended:
            _tell(_ended_by(ended[0]))


_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)

_TEXTUALS: Final = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
"""Textual hears these, and never gives them back."""

_RESTORED: Final = (
    b"\x1b[0m\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""What the driver writes when it leaves: pen, paste mode, wrap, mouse, keys, screen, cursor."""


def _modes() -> list[Any] | None:
    try:
        return termios.tcgetattr(sys.__stdin__.fileno()) if sys.__stdin__ else None
    except (termios.error, OSError, ValueError):
        return None


def _await_hangup(done: threading.Event, hung_up: Callable[[], None]) -> None:
    """A terminal that goes does not always send SIGHUP (it may not be the controlling one);
    left alone, Textual would then read nothing for ever, as fast as it can."""
    line = select.poll()
    try:
        line.register(0, 0)
    except (OSError, ValueError):
        return
    while not done.is_set():
        said = [what for _, what in line.poll(LINE_MILLISECONDS)]
        if any(what & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for what in said):
            hung_up()
            return


def _see_to_it(app: MetlmonApp, done: threading.Event, modes: list[Any] | None) -> None:
    """Once leaving has begun, see to it that it ends. What the pool was asked to do is waited
    for: half of it done, and nobody who was told, would be worse."""
    app.leaving.wait()
    if done.wait(PATIENCE_SECONDS):
        return
    if app.unfinished:
        _tell(f"metlmon: waiting for the schedd: {app.unfinished} is under way (^C: do not wait)")
        while app.unfinished:
            if done.wait(0.1):
                return
    _insist(done, app.return_code or 0, modes)


def _insist(done: threading.Event, code: int, modes: list[Any] | None) -> None:
    if not done.wait(PATIENCE_SECONDS):
        _by_force(code, modes, _ended_by(code - 128) if code > 128 else "")


def _ended_by(number: int) -> str:
    return f"metlmon: ended by {signal.Signals(number).name}"


def _by_force(code: int, modes: list[Any] | None, why: str = "") -> None:
    try:
        os.set_blocking(2, False)
        os.write(2, _RESTORED + f"{why}\r\n".encode() * bool(why))
        if modes is not None:
            termios.tcsetattr(0, termios.TCSANOW, modes)
    except (OSError, termios.error):
        pass  # The terminal is gone: there is nothing to give back.
    os._exit(code)
