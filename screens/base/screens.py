"""Base classes of all screens, and the lines that many of them have."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Input

from metlmon.errors import InputError, describe_error, unusable_path
from metlmon.health.build import make_health
from metlmon.live.feed import Snapshot
from metlmon.pool.types import PoolError, QueueSnapshot
from metlmon.remote.paths import UnusableMachine
from metlmon.snapshot.types import QueueRow
from metlmon.tables.health import removal_clocks
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    MOVING,
    NOTE,
    Line,
    TextStyle,
    crop,
    join,
    line,
    width,
    wrap,
    wrap_parts,
)
from screens.actions import READ_ONLY_REFUSED, bindings_of
from screens.terminal.private import FaultTolerant, release_caches
from screens.widgets.footer import KeyFooter
from screens.widgets.line_widget import Document, StaticLines

if TYPE_CHECKING:
    from screens.app import MetlmonApp

T = TypeVar("T")


TAB_HEIGHT: Final = 16
"""Lower terminals have no room for the tab bar."""

CHECK_SECONDS: Final = 0.1
"""Interval of the check whether confirming is possible yet, to show that."""

BACK_TO_NOW: Final = "now"
"""Footer label of the key that returns to the present."""

HIDDEN_IN_MODALS: Final = frozenset({"palette"})
"""Actions that leave a modal screen, which offers its own keys instead."""


class SnapshotScreen(FaultTolerant, Screen[None]):
    """A screen that shows the current snapshot.

    ``SCOPES``: the scopes of its actions, from which its bindings are made; ``PALETTE_SCOPES``:
    further scopes, for the palette; of their keys only those of ``DIRECT`` actions work.
    ``HELP_SCOPES``: the scopes that the help lists, if they differ. ``SHOWS_ENSEMBLE``: it shows
    the ensemble, present or past; prompts and help screens do not. ``HAS_HEADER``: errors of the
    files are shown in its own header; elsewhere they are in the banner.
    """

    SCOPES: ClassVar[tuple[str, ...]] = ()
    PALETTE_SCOPES: ClassVar[tuple[str, ...]] = ()
    HELP_SCOPES: ClassVar[tuple[str, ...]] = ()
    SHOWS_ENSEMBLE: ClassVar[bool] = True
    HAS_HEADER: ClassVar[bool] = False
    AUTO_FOCUS: ClassVar[str | None] = "Table, Document"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "BINDINGS" not in cls.__dict__:
            cls.BINDINGS = bindings_of(*cls.SCOPES, direct_of=cls.PALETTE_SCOPES)
        super().__init_subclass__(**kwargs)

    def __init__(self) -> None:
        super().__init__()
        self._ready = False
        self._message = self._error = ""
        self._banner: StaticLines | None = None
        self._application: MetlmonApp | None = None

    @property
    def context(self) -> MetlmonApp:
        """The application; in threads too, which may outlive the screen."""
        if self._application is None:
            self._application = cast("MetlmonApp", self.app)
        return self._application

    @property
    def this_year(self) -> int | None:
        """The year of the snapshot, which times leave out."""
        snapshot = self.context.snapshot
        return None if snapshot is None else formatting.year_of(snapshot.status.as_of)

    def show(self, snapshot: Snapshot | None) -> None:
        """Show a new snapshot; None before the first."""
        raise NotImplementedError

    def on_mount(self) -> None:
        # Before the first layout: painting an empty screen first would flicker, and cost
        # its bytes twice.
        self._ready = True
        self._refresh_if_mounted()

    def on_unmount(self) -> None:
        release_caches()

    def on_screen_resume(self) -> None:
        self._refresh_if_mounted()

    def on_resize(self) -> None:
        self._refresh_if_mounted()

    def _refresh_if_mounted(self) -> None:
        """Refresh, if the screen is mounted."""
        if self._ready and self.is_attached:
            self.refresh_view()

    def refresh_view(self) -> None:
        """Refresh the banner, the current snapshot and the footer."""
        self.show_banner()
        try:
            self.show(self.context.snapshot)
        except Exception as error:
            # The last content stays, keys work, and the next snapshot is tried again.
            self._error = describe_error("this screen failed and is tried again", error)
            self.context.record_error(error)
            self.show_banner()
        else:
            if self._error:
                self._error = ""
                self.show_banner()
        self.update_footer()

    def footer_labels(self) -> Mapping[str, str]:
        """Footer labels, by action name, that currently differ from the registry."""
        return {"back": BACK_TO_NOW} if self.SHOWS_ENSEMBLE and self._in_past else {}

    def hidden_actions(self) -> Collection[str]:
        """Actions that the footer leaves out, because they would do nothing now."""
        return ()

    @property
    def _in_past(self) -> bool:
        """Is a past moment shown, being read, or unreadable?"""
        travel = self.context.time_travel
        return any(
            each is not None for each in (travel.past_view, travel.requested_moment, travel.error)
        )

    def update_footer(self) -> None:
        """Update the footer to what the keys currently do."""
        for footer in self.query(KeyFooter):
            footer.update_lines()

    @property
    def tab_lines(self) -> int:
        """The height of the tab bar: 0 where it is not shown."""
        return int(self.SHOWS_ENSEMBLE and self.app.size.height >= TAB_HEIGHT)

    def show_banner(self) -> None:
        """Show or hide the first line: an error, or which past moment is shown.

        The widget is created when it is first needed.
        """
        width = self.app.size.width
        returns = self.footer_labels().get("back") == BACK_TO_NOW
        content: Line = ()
        if self.SHOWS_ENSEMBLE and self._in_past:
            content = self.context.time_travel.banner(width, returns)
        error = self._error or self.context.error_banner
        snapshot = self.context.snapshot
        if snapshot is not None and not content and self.SHOWS_ENSEMBLE and not self.HAS_HEADER:
            error = error or snapshot.error or ""
        if error:
            content = line(" ", (plain(error, max(width - 2, 1)), ALARM))
        if self._banner is None and content:
            self._banner = StaticLines(id="when")
            self.mount(self._banner, before=0)
        if self._banner is not None:
            self._banner.display = bool(content)
            if content:
                self._banner.show([content])

    def on_document_scrolled(self) -> None:
        self._refresh_if_mounted()

    def removal_clock(self, cluster: int | None, proc: int | None) -> str:
        """``removed in 1d`` for a held job that a policy will remove; else empty."""
        snapshot = self.context.snapshot
        as_of = None if snapshot is None else snapshot.status.as_of
        clocks = removal_clocks(self.context.stats.value(make_health), as_of)
        return clocks.get((cluster or 0, proc or 0), "")

    def show_message(self, message: str) -> None:
        """Show a message on the note line, until the cursor moves."""
        self._message = message
        self._refresh_if_mounted()

    def messages(self) -> list[Line]:
        """Messages at the start of the note line."""
        caption = self.context.options.caption
        texts = (self._message, self.context.stats.error, "" if caption is None else caption())
        messages = [text for text in texts if text]
        return [line(plain(message, 200)) for message in messages]

    def entries(self) -> Sequence[tuple[str, str, str]]:
        """What the palette finds on this screen only: kind, text and key of each."""
        return ()

    def refusals(self) -> Mapping[str, str]:
        """Reasons, by action name, of actions that are currently not possible."""
        return {}

    def notify_refusal(self, action: str) -> bool:
        """Tell why an action is not possible; False if it is."""
        reason = self.refusals().get(action)
        if reason is not None:
            self.show_message(reason)
        return reason is not None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action may run: with ``read_only``, none that changes something."""
        return not (self.context.options.read_only and action in READ_ONLY_REFUSED)

    def key_footer(self) -> KeyFooter:
        """The footer of this screen."""
        return KeyFooter((*self.SCOPES, "everywhere"))

    def show_head(self, lines: Sequence[Line]) -> None:
        """Show the lines above the table or the text."""
        self.query_one("#head", StaticLines).show(lines)

    def show_note(self, lines: Sequence[Line]) -> None:
        """Show these lines below the content."""
        self.query_one("#note", StaticLines).show(lines)

    def show_document_note(self, document: Document, below: Sequence[Line] = ()) -> None:
        """Show the rule below a text, with messages and the number of lines out of view."""
        notes = [*self.messages(), *hidden_below(document.lines_below)]
        self.show_note([rule(notes, self.app.size.width), *below])

    def action_back(self) -> None:
        self.context.go_back()

    def close(self) -> None:
        """Return to the previous screen."""
        if self.SHOWS_ENSEMBLE:
            self.context.pop_screen()
        else:
            self.action_back()


class DocumentScreen(SnapshotScreen):
    """A screen with a head and one text."""

    SCOPES: ClassVar[tuple[str, ...]] = ("below",)

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield from self.compose_input()
        yield Document()
        yield StaticLines(id="note")
        yield self.key_footer()

    def compose_input(self) -> ComposeResult:
        """The widgets between head and text; by default none."""
        yield from ()

    def show_document(
        self, head: Sequence[Line], lines: Sequence[Line], below: Sequence[Line] = ()
    ) -> None:
        """Show a head and a text, and the lines ``below`` under the rule."""
        document = self.query_one(Document)
        self.show_head(head)
        document.show(lines)
        self.show_document_note(document, below)


class ConfirmationBase(DocumentScreen):
    """A screen that asks for confirmation before something is changed.

    Pasted text that the terminal does not mark as a paste arrives as single keys: the first may
    open the confirmation, the next confirm it. A key confirms only after the question has been on
    the screen for ``CONFIRM_SECONDS`` without any other key.
    """

    _painted_at = inf
    _shown_can_confirm = False

    def hidden_actions(self) -> Collection[str]:
        return HIDDEN_IN_MODALS

    def on_mount(self) -> None:
        super().on_mount()
        self.start_delay()
        self.set_interval(CHECK_SECONDS, self._update_can_confirm)

    def start_delay(self) -> None:
        """Restart the delay for a new question, once that is painted."""
        self._painted_at, self._shown_can_confirm = inf, False
        self.call_after_refresh(self._question_painted)

    def _question_painted(self) -> None:
        self._painted_at = monotonic()
        self._update_can_confirm()

    @property
    def can_confirm(self) -> bool:
        """Would a key confirm now?"""
        last_event = max(self._painted_at, self.context.last_key_time)
        return monotonic() - last_event >= self.context.CONFIRM_SECONDS

    @property
    def key_confirms(self) -> bool:
        """May the key that is being handled confirm?"""
        monitor = self.context
        seconds_shown = monitor.last_key_time - self._painted_at
        return min(seconds_shown, monitor.pause_before_key) >= monitor.CONFIRM_SECONDS

    def _update_can_confirm(self) -> None:
        if self.can_confirm != self._shown_can_confirm:
            self._shown_can_confirm = self.can_confirm
            self._refresh_if_mounted()


class ResultModal(FaultTolerant, ModalScreen[T]):
    """A modal screen with a table, which returns its result once."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # A modal screen hides the application's bindings.
        Binding("ctrl+c", "app.interrupt", priority=True, show=False),
    ]

    def on_mount(self) -> None:
        self.call_after_refresh(self.fill)

    def on_resize(self) -> None:
        self.call_after_refresh(self.fill)

    def fill(self) -> None:
        """Show the rows."""
        raise NotImplementedError

    def on_table_row_selected(self, event: Message) -> None:
        event.stop()
        self.action_choose()

    def action_choose(self) -> None:
        """Choose the row under the cursor."""
        raise NotImplementedError

    def return_result(self, result: T) -> None:
        """Dismiss with this result, unless already dismissed.

        A second key in the same batch must not dismiss the screen below.
        """
        if self.is_current:
            self.dismiss(result)


class Prompt(FaultTolerant, Input):
    """A one-line input. Its cursor does not blink: that would repaint an idle screen."""

    def __init__(self, *, id: str, hint: str) -> None:
        super().__init__(id=id, placeholder=hint, select_on_focus=False, compact=True)
        self.cursor_blink = False


def rule(parts: Sequence[Line], available: int) -> Line:
    """A horizontal rule with notes at its right end."""
    if not parts:
        return line(("─" * available, DIM))
    notes = line(" ") + crop(join(parts, line("   ")), available - 6) + line(" ")
    return line(("─" * (available - width(notes) - 2), DIM)) + notes + line(("─" * 2, DIM))


def heading(title: str, width: int) -> Line:
    """A section heading followed by a rule."""
    return line((f" {title} ", DIM), ("─" * max(0, width - cell_len(title) - 3), DIM))


def hidden_below(count: int, style: TextStyle = DIM) -> list[Line]:
    """The note on lines or rows below the view, if there are any."""
    return [line((f"↓ {count} more", style))] if count else []


def padded(lines: Sequence[Line], count: int) -> list[Line]:
    """These lines and blank ones, so that what is above keeps its height."""
    return [*lines, *[()] * (count - len(lines))]


def how_to(paragraphs: Sequence[str], available: int) -> list[Line]:
    """The text of an empty screen: what is missing, then how it is made."""
    lines = wrap(paragraphs[0], available - 2, BOLD, 2)
    for paragraph in paragraphs[1:]:
        lines += [(), *wrap(paragraph, available - 2, DIM, 2)]
    return lines


def ask_in_thread(
    screen: Screen[None],
    query: Callable[[], T],
    on_answer: Callable[[T | None, str | None], None],
    failure: str,
) -> None:
    """Ask the pool, or open what may be slow, in a daemon thread: quitting does not wait for it.

    ``on_answer`` is called by the screen, unless it is closed by then, with the answer and None, or
    with None and the reason why there is none; ``failure`` begins the reason of an unexpected
    error.
    """

    def work() -> None:
        answer, error = None, None
        try:
            answer = query()
        except (PoolError, InputError, UnusableMachine) as problem:
            error = str(problem)
        except Exception as problem:
            known = unusable_path(problem) if isinstance(problem, OSError) else None
            error = str(known) if known else describe_error(failure, problem)
        # The screen may be closed when the answer arrives.
        with suppress(RuntimeError):
            screen.call_later(on_answer, answer, error)

    threading.Thread(target=work, name="metlmon-ask", daemon=True).start()


# --- the queue: a job in it, and the schedd's state -----------------------------------------
# ``now`` and the times of the queue snapshot are seconds since the epoch.

ROOMY_LINES: Final = 30
"""Height from which there is room for blank lines."""

MAX_REASON: Final = 400
"""Maximum length in characters of the negotiator's reasons and the schedd's errors."""


def job_queue_lines(row: QueueRow | None, now: float, room: int) -> list[Line]:
    """Priority, position, matches and last rejection of a job, ``room`` cells wide.

    A difference between the states in queue and log comes first.
    """
    if row is None:
        return []
    lines: list[Line] = []
    if row.differs is not None:
        text = f"! {plain(row.differs, MAX_REASON)}"
        lines += wrap(text, room, ALARM, indent=1)
    parts = [
        line(("in the queue", DIM)),
        _queue_position(row),
        line(("priority ", DIM), str(row.priority)),
        line(formatting.count(row.matches, "match", "matches")),
        line((f"asked {age_text(row.queried_at, now)}", DIM)),
    ]
    lines += [
        line(" ") + content
        for content in wrap_parts([part for part in parts if part], line("   "), room)
    ]
    if row.rejection is not None:
        time = "" if row.rejected_at is None else f" {age_text(row.rejected_at, now)}"
        text = f"last rejected{time}: {plain(row.rejection, MAX_REASON)}"
        lines += wrap(text, room, NOTE, indent=1)
    return lines


def job_queue_line(row: QueueRow | None, now: float) -> Line:
    """One line on an idle job: its difference to the log, position and last rejection."""
    if row is None:
        return ()
    rejected: Line = ()
    if row.rejection is not None:
        time = "" if row.rejected_at is None else f" {age_text(row.rejected_at, now)}"
        rejected = line((f"rejected{time}: ", DIM), (plain(row.rejection, MAX_REASON), NOTE))
    differs = line((plain(row.differs, MAX_REASON), ALARM)) if row.differs else ()
    return join((differs, _queue_position(row), rejected), line("   "))


def queue_lines_below(
    context: MetlmonApp, job: tuple[int, int] | None, name: str, height: int
) -> list[Line]:
    """The line below a table on an idle job (None: on none), after its name.

    On a screen of ``ROOMY_LINES`` the line is always there, so that the table keeps its height.
    """
    # Building the view of a job with thousands of events takes time and memory.
    view = None if job is None or context.queue is None else context.feed.job_view(*job)
    text = job_queue_line(view.queue if view else None, context.now())
    if text:
        return [line(" ", (name, BOLD), "  ") + text]
    return [()] if height >= ROOMY_LINES and context.queue is not None else []


def _queue_position(row: QueueRow) -> Line:
    if row.position is None:
        return ()
    position, idle_jobs = (formatting.number(number) for number in (row.position, row.waiting))
    return line(("place ", DIM), (position, BOLD), f" of {idle_jobs} idle")


def age_text(time: float, now: float) -> str:
    """The age of a time: ``12 s ago``."""
    return f"{formatting.age(now - time)} ago"


def schedd_status_lines(
    queue: QueueSnapshot | None, no_schedd_reason: str, now: float, room: int
) -> list[Line]:
    """The schedd, its version, our user and the time of the last query, or its error.

    ``no_schedd_reason``: why there is no schedd.
    """
    if queue is None:
        return wrap(f"not asked: {plain(no_schedd_reason, MAX_REASON)}", room, DIM, indent=1)
    name = line((plain(queue.schedd, 80), BOLD)) if queue.schedd else ()
    version = line((plain(queue.version or "", 60), DIM))
    user = line(("as ", DIM), plain(queue.user, 60)) if queue.user else ()
    schedd_lines = [
        line(" ") + content
        for content in wrap_parts(
            [part for part in (name, version, user) if part], line("   "), room
        )
    ]
    if queue.error is not None:
        error_lines = wrap(plain(queue.error, MAX_REASON), room, NOTE, indent=1)
        wait = None if queue.next_try is None else max(0.0, queue.next_try - now)
        retry = "" if wait is None else f"asked again in {formatting.age(wait)}; "
        note = f"{retry}only the logs are shown"
        return [*schedd_lines, *error_lines, *wrap(note, room, DIM, indent=1)]
    if queue.queried_at is None:
        return [*schedd_lines, line(" ", ("asking the schedd" + "…", MOVING))]
    jobs = formatting.count(len(queue.jobs), "job")
    summary = line(
        f" {jobs} of this ensemble in the queue", (f"   {age_text(queue.queried_at, now)}", DIM)
    )
    return [*schedd_lines, summary]
