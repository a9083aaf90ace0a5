"""What screens and widgets see of the application, and what it remembers of lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from msgspec import Struct
from textual.screen import Screen

from metlmon.config.settings import NotifySettings
from metlmon.config.user_state import read_state, state_directory, write_state
from metlmon.health.types import ExitWhen
from metlmon.live.feed import Feed, Snapshot
from metlmon.pool.client import FeedAndPool, PoolClient
from metlmon.pool.types import ActionPreview, ActionRequest, QueueSnapshot
from metlmon.snapshot.types import JobRow
from screens.base.absence import Absence
from screens.base.stats_worker import StatsWorker
from screens.pool_actions.running_action import RunningAction
from screens.time_travel import TimeTravel

if TYPE_CHECKING:
    # The authoring modules are loaded with the submit form only.
    from metlmon.authoring.request import Request
    from metlmon.home.feed import HomeFeed
    from screens.submit.form_model import FormState


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
    that it returns. ``timeout``: seconds after which that wait ends (exit code 5). ``pool_actions``
    act on the jobs of the feed; None: not possible here, for the reason ``no_pool_reason``.
    ``read_only`` removes all pool actions. ``open_dagdir`` opens the feed and pool actions of
    another dagdir (one just submitted, or one of Home). ``home``: the ensembles of the first
    screen, if that is Home. ``submission_pool`` submits, without a dagdir; None:
    submitting is not possible here. ``initial_request``: the initial content of the submit form.
    ``state_file`` has columns and orders; None: they last for the session. ``remember_choices``:
    they, and the list of Home, are written. ``caption`` gives
    the text that the demo shows on every screen. ``files`` saves reports and pictures; None: not
    here. ``remember_seen``: what was seen is compared with what is there the next time.
    ``notify``: send notifications.
    """

    mouse: bool = False
    ascii: bool = False
    no_color: bool = False
    run_filter: str | None = None
    start: Literal["overview", "submit"] | tuple[Literal["run"], str] = "overview"
    exit_when: ExitWhen | None = None
    timeout: float | None = None
    pool_actions: PoolClient | None = None
    no_pool_reason: str = "nothing can be acted on here"
    read_only: bool = False
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


class AppContext(Protocol):
    """The application, as screens and widgets use it.

    ``feed``, ``stats`` and ``snapshot`` belong to the moment shown, ``present_stats`` to the
    present. ``pool_actions`` is None where nothing can be acted on. ``form_state`` is the
    content of the submit form while it is closed. ``error_banner`` is an error to be shown on
    every screen. ``pending_task`` names a task that exiting waits for; empty: none.
    ``CONFIRM_SECONDS`` is the time that a confirmation is on the screen before a key confirms.
    ``last_key_time`` and ``pause_before_key`` are the time of the last key or paste, and the
    seconds without one before it. ``keys`` are the key caps set in ``metlmon.toml``, by action;
    ``list_states`` the chosen columns and orders, by class of the screen. ``absence`` is what
    is done for somebody who is away.
    """

    CONFIRM_SECONDS: ClassVar[float]
    options: AppOptions
    no_color: bool
    feed: Feed
    stats: StatsWorker
    present_stats: StatsWorker
    snapshot: Snapshot | None
    time_travel: TimeTravel
    pool_actions: PoolClient | None
    running_action: RunningAction | None
    form_state: FormState | None
    error_banner: str
    pending_task: str
    last_key_time: float
    pause_before_key: float
    keys: Mapping[str, str]
    list_states: dict[str, ListState]
    absence: Absence

    @property
    def screen(self) -> Screen[Any]:
        """The current screen."""

    @property
    def screen_name(self) -> str | None:
        """The name of the current screen, or of the nearest one below it that has a tab."""

    @property
    def queue(self) -> QueueSnapshot | None:
        """The latest queue snapshot; None without a schedd, and in the past."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def push_screen(self, screen: Screen[Any]) -> object:
        """Open a screen above the current one."""

    def pop_screen(self) -> object:
        """Close the current screen."""

    def open_screen(self, name: str) -> None:
        """Open the screen of this name, unless it is the current one."""

    def open_run(self, key: str) -> None:
        """Open the screen of a run."""

    def open_output(self, cluster: int, proc: int) -> None:
        """Open the output files of a job."""

    def open_job(self, cluster: int, proc: int) -> None:
        """Open the screen of a job."""

    def open_run_of(self, job: JobRow) -> None:
        """Open the run that a job belongs to, if any."""

    def go_back(self) -> None:
        """Return to the present, or else to the previous screen."""

    def watch_dagdir(self, dagdir: Path) -> None:
        """Switch to another dagdir; raises InputError if it cannot be read."""

    def show_ensemble(self, opened: FeedAndPool) -> None:
        """Show an ensemble that was opened, from its overview on."""

    def close_ensemble(self) -> None:
        """Close the ensemble that was opened from Home, if there is one."""

    def save_list_states(self) -> None:
        """Remember the chosen columns and orders."""

    def action_refusal(self) -> str | None:
        """The reason that refuses all pool actions; None if each is checked by itself."""

    def perform(self, preview: ActionPreview, request: ActionRequest) -> RunningAction:
        """Perform a pool action in a thread."""

    def run_in_thread(self, work: Callable[[], object]) -> None:
        """Do work in a thread; its errors are not fatal."""

    def content_changed(self) -> None:
        """Refresh the current screen soon; called in any thread."""

    def show_error(self, context: str, error: BaseException) -> None:
        """Show an error in the banner of the current screen, until a key is pressed."""

    def record_error(self, error: Exception) -> None:
        """Let a test's pilot raise an error, even if it is survived."""


# --- the chosen columns and orders of the lists, remembered between sessions ----------------


class ListState(Struct):
    """What was chosen in a list.

    ``hidden`` are columns that are not shown, ``shown`` those that ``metlmon.toml`` leaves out;
    ``column`` is the one that the rows are sorted by, None: by the list's own order ``order``, the
    index of one of its criteria.
    """

    hidden: list[str] = []
    shown: list[str] = []
    column: str | None = None
    order: int = 0
    reversed: bool = False


def state_file() -> Path | None:
    """The file of the user's choices, ``lists.json``; None if there is no home."""
    directory = state_directory()
    return None if directory is None else directory / "lists.json"


def load_states(path: Path | None) -> dict[str, ListState]:
    """The states by name of their screen; empty if the file is missing or damaged."""
    return read_state(path, dict[str, ListState]) or {}


def save_states(path: Path | None, states: dict[str, ListState]) -> None:
    """Write the states; where that is not possible, they last for the session."""
    write_state(path, states)
