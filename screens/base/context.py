"""Options of the application, and its remembered state of lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from metlmon.config.settings import NotifySettings
from metlmon.config.user_state import state_directory
from metlmon.health.types import ExitWhen
from metlmon.live.feed import Feed
from metlmon.pool.client import FeedAndPool, PoolClient

if TYPE_CHECKING:
    # The authoring modules are loaded only with the submit form.
    from metlmon.authoring.request import Request
    from metlmon.home.feed import HomeFeed


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
    another dagdir (one just submitted, or one of Home). ``home``: the ensembles of Home, which is
    then the first screen. ``submission_pool`` submits, without a dagdir; None: submitting is not
    possible here. ``initial_request``: the initial content of the submit form. ``state_file``
    stores columns and orders; None: they last for the session. ``remember_choices``: whether they,
    and the list of Home, are written. ``caption`` gives the text that the demo shows on every
    screen. ``files`` saves reports and pictures; None: not possible here. ``remember_seen``:
    whether what was seen is remembered for the next session. ``notify``: send notifications.
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


# --- the chosen columns and orders of the lists, remembered between sessions ----------------


class ListState(Struct):
    """What was chosen in a list.

    ``hidden`` are columns that are not shown, ``shown`` those that ``metlmon.toml`` omits;
    ``column`` is the one by which the rows are sorted; None: they are in the list's own ``order``,
    an index of its criteria.
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
