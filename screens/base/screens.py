"""Base classes of screens: with one text, with a table; their footer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from itertools import zip_longest
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Input

from metlmon.config.user_state import state_directory
from metlmon.errors import InputError, describe_error, sentence_of, unusable_path
from metlmon.health.build import make_health
from metlmon.health.types import Health
from metlmon.model.states import TERMINAL
from metlmon.pool.types import PoolError, QueueJob, QueueSnapshot
from metlmon.remote.paths import UnusableMachine
from metlmon.snapshot.records import JobView, Snapshot
from metlmon.tables.health import removal_clocks
from metlmon.tables.layout import (
    MARGIN,
    Column,
    ColumnChoice,
    TableColumn,
    empty_text,
    fit_columns,
    render_cells,
    table_columns,
)
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    GOOD,
    KEY,
    MOVING,
    NOTE,
    Line,
    TextStyle,
    crop,
    first_that_fits,
    fit,
    join,
    line,
    width,
    wrap,
    wrap_parts,
)
from screens.actions import ALL_NAMES, READ_ONLY_REFUSED, TABS, actions_of, bindings_of, title_of
from screens.terminal.private import FaultTolerant, release_caches
from screens.widgets.line_widget import Document, LineWidget, StaticLines, Table, TableRow

if TYPE_CHECKING:
    from screens.app import MetlmonApp

T = TypeVar("T")


TAB_HEIGHT: Final = 16
"""Height below which a terminal has no room for the tab bar."""

CHECK_SECONDS: Final = 0.1
"""Interval of the check whether confirming is possible yet, so that it can be shown."""

BACK_TO_NOW: Final = "now"
"""Footer label of the key that returns to the present."""

HIDDEN_IN_MODALS: Final = frozenset({"palette"})
"""Actions that leave a modal screen, which shows its own keys instead."""


class SnapshotScreen(FaultTolerant, Screen[None]):
    """A screen that shows the current snapshot.

    ``SCOPES``: the scopes of its actions, from which its bindings are made; ``PALETTE_SCOPES``:
    further scopes, for the palette; only the keys of their ``DIRECT`` actions work.
    ``HELP_SCOPES``: the scopes that the help lists, if they differ. ``SHOWS_ENSEMBLE``: it shows
    the ensemble, present or past; prompts and help screens do not. ``HAS_HEADER``: errors of the
    files are shown in its own header; on other screens they are in the banner.
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
        """The application; available in threads, too, which may outlive the screen."""
        if self._application is None:
            self._application = cast("MetlmonApp", self.app)
        return self._application

    @property
    def health(self) -> Health | None:
        """The newest health; None for a partly read log, or while it is unknown."""
        if not self.context.snapshot.is_complete:
            return None
        return self.offered(self.context.stats.value(make_health))

    def offered(self, health: Health | None) -> Health | None:
        """This health, saying when its acts can be tried if that is not possible now."""
        moment = self.context.act_moment()
        if health is None or moment is None:
            return health
        entries = [
            replace(entry, act_when=entry.act_when or moment) if entry.act else entry
            for entry in health.entries
        ]
        return replace(health, entries=tuple(entries))

    @property
    def this_year(self) -> int | None:
        """The year of the snapshot, which times omit."""
        return formatting.year_of(self.context.snapshot.status.as_of)

    def show(self, snapshot: Snapshot) -> None:
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
        return {"back": BACK_TO_NOW} if self.shows_past else {}

    def hidden_actions(self) -> Collection[str]:
        """Actions that the footer omits because they would do nothing now."""
        return ()

    @property
    def shows_past(self) -> bool:
        """Whether it shows the ensemble, and a past moment is shown, being read, or unreadable."""
        travel = self.context.time_travel
        return self.SHOWS_ENSEMBLE and (travel.active or travel.error is not None)

    def update_footer(self) -> None:
        """Update the footer to the current effects of the keys."""
        for footer in self.query(KeyFooter):
            footer.update_lines()

    @property
    def tab_lines(self) -> int:
        """The height of the tab bar; 0 if it is not shown."""
        return int(self.SHOWS_ENSEMBLE and self.app.size.height >= TAB_HEIGHT)

    def show_banner(self) -> None:
        """Show or hide the first line: an error, or which past moment is shown.

        The widget is created when it is first needed.
        """
        width = self.app.size.width
        returns = self.footer_labels().get("back") == BACK_TO_NOW
        content: Line = ()
        if self.shows_past:
            content = self.context.time_travel.banner(width, returns)
        waiting = [self._error, *self.context.banners] if self._error else self.context.banners
        error = waiting[0] if waiting else ""
        more = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
        if not content and self.SHOWS_ENSEMBLE and not self.HAS_HEADER:
            error = error or self.context.snapshot.error or ""
        if error:
            content = line(" ", (plain(error, max(width - 2 - len(more), 1)) + more, ALARM))
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
        as_of = self.context.snapshot.status.as_of
        clocks = removal_clocks(self.context.stats.value(make_health), as_of)
        return clocks.get((cluster or 0, proc or 0), "")

    def show_message(self, message: str) -> None:
        """Show a message on the note line, until the cursor moves."""
        self._message = message
        self._refresh_if_mounted()

    def show_no_job(self, reason: str) -> None:
        """Say why a row has no job to open: ``reason``, once all logs are read."""
        reading = "its log is still being read: no job is known yet"
        self.show_message(reason if self.context.snapshot.is_complete else reading)

    def messages(self) -> list[Line]:
        """Messages at the start of the note line."""
        caption = self.context.options.caption
        texts = (self._message, self.context.stats.error, "" if caption is None else caption())
        return [line(plain(text, 200)) for text in texts if text]

    def entries(self) -> Sequence[tuple[str, str, str]]:
        """What the palette finds only on this screen: kind, text and key of each."""
        return ()

    def refusals(self) -> Mapping[str, str]:
        """Reasons, by action name, of actions that are currently not possible."""
        return {}

    def notify_refusal(self, action: str) -> bool:
        """Say why an action is not possible; return False if it is."""
        reason = self.refusals().get(action)
        if reason is not None:
            self.show_message(reason)
        return reason is not None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action may run: with ``read_only``, no action that changes something."""
        return not (self.context.opened.read_only and action in READ_ONLY_REFUSED)

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield from self.compose_body()
        yield StaticLines(id="note")
        yield from self.compose_prompts()
        yield self.key_footer()

    def compose_body(self) -> ComposeResult:
        """The widgets between head and note line."""
        raise NotImplementedError

    def compose_prompts(self) -> ComposeResult:
        """The widgets below the note line; by default none."""
        yield from ()

    def key_footer(self) -> KeyFooter:
        return KeyFooter((*self.SCOPES, "everywhere"))

    def show_head(self, lines: Sequence[Line]) -> None:
        """Show the lines above the table or the text."""
        self.query_one("#head", StaticLines).show(lines)

    def show_note(self, lines: Sequence[Line]) -> None:
        """Show these lines below the content."""
        self.query_one("#note", StaticLines).show(lines)

    def show_document_note(self, document: Document, below: Sequence[Line] = ()) -> None:
        """Show the rule below a text, with messages and the number of lines out of view."""
        more = out_of_view(0, document.lines_below)
        self.show_note([rule(self.messages(), self.app.size.width, more), *below])

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

    def compose_body(self) -> ComposeResult:
        yield Document()

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
        confirms = self.may_confirm and self.can_confirm
        return HIDDEN_IN_MODALS if confirms else HIDDEN_IN_MODALS | {"confirm"}

    @property
    def may_confirm(self) -> bool:
        """Whether anything can be confirmed."""
        return True

    def show_document_note(self, document: Document, below: Sequence[Line] = ()) -> None:
        more = out_of_view(0, document.lines_below, NOTE)
        self.show_note([rule(more, self.app.size.width)])

    def confirm_hint(self) -> Line:
        """The key that confirms, as soon as it does, followed by the keys that leave the screen."""
        return line(("y", KEY), " does it, ") if self.can_confirm else line(("wait, ", DIM))

    def on_mount(self) -> None:
        super().on_mount()
        self.start_delay()
        self.set_interval(CHECK_SECONDS, self._update_can_confirm)

    def start_delay(self) -> None:
        """Restart the delay for a new question, once it is painted."""
        self._painted_at, self._shown_can_confirm = inf, False
        self.call_after_refresh(self._question_painted)

    def _question_painted(self) -> None:
        self._painted_at = monotonic()
        self._update_can_confirm()

    @property
    def can_confirm(self) -> bool:
        """Whether a key would confirm now."""
        last_event = max(self._painted_at, self.context.last_key_time)
        return monotonic() - last_event >= self.context.CONFIRM_SECONDS

    @property
    def key_confirms(self) -> bool:
        """Whether the key that is being handled may confirm."""
        monitor = self.context
        seconds_shown = monitor.last_key_time - self._painted_at
        return min(seconds_shown, monitor.pause_before_key) >= monitor.CONFIRM_SECONDS

    def _update_can_confirm(self) -> None:
        if self.can_confirm != self._shown_can_confirm:
            self._shown_can_confirm = self.can_confirm
            self._refresh_if_mounted()


class ResultModal(FaultTolerant, ModalScreen[T | None]):
    """A modal screen with a table, which returns its result once; None if it was cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # A modal screen hides the application's bindings.
        Binding("ctrl+c", "app.interrupt", priority=True, show=False)
    ]

    def on_mount(self) -> None:
        # Keys that came with the one that opened this act on its rows.
        self.fill()
        self.call_after_refresh(self.fill)

    def on_resize(self) -> None:
        self.call_after_refresh(self.fill)

    def fill(self) -> None:
        raise NotImplementedError

    def on_table_row_selected(self, event: Message) -> None:
        event.stop()
        self.action_choose()

    def on_table_row_highlighted(self, event: Message) -> None:
        """How many rows are below the view may have changed."""
        event.stop()
        self.fill()

    def action_choose(self) -> None:
        raise NotImplementedError

    def action_give_up(self) -> None:
        self.return_result(None)

    def return_result(self, result: T | None) -> None:
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


class LinePrompt(Prompt):
    """A prompt that is shown during typing; ``ended`` takes the text, empty after escape.

    Enter and escape close it while the key is handled, not some messages later. Keys queued
    after them (fast typing, one packet) go to the newly focused widget instead of the prompt.
    """

    def __init__(self, ended: Callable[[str], None], *, id: str, hint: str) -> None:
        super().__init__(id=id, hint=hint)
        self._ended = ended
        self._finished = False

    def begin(self, text: str = "") -> None:
        """Take the focus, immediately: focus() is deferred and would lose fast letters."""
        self._finished = False
        self.display = True
        self.value = text
        self.screen.set_focus(self)

    async def _on_key(self, event: events.Key) -> None:
        if not self._finished and event.key not in ("enter", "escape"):
            return
        event.stop()
        event.prevent_default()
        if self._finished:
            self.app.post_message(events.Key(event.key, event.character))
            return
        self._finished = True
        if event.key == "escape":
            self.value = ""
        self._ended(self.value)

    def on_blur(self) -> None:
        self.display = False
        cast("SnapshotScreen", self.screen).update_footer()


class FilterKeys(SnapshotScreen):
    """A screen with a filter, or a text to find; its prompt is ``#prompt``."""

    FILTER_HINT: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.filter_text = ""

    def compose_prompts(self) -> ComposeResult:
        yield LinePrompt(self.set_filter, id="prompt", hint=self.FILTER_HINT)

    @property
    def is_filtering(self) -> bool:
        """Whether a filter is being typed."""
        return self.focused is not None and self.focused.id == "prompt"

    def set_filter(self, text: str) -> None:
        """Set the filter, and return the focus."""
        raise NotImplementedError

    def action_filter(self) -> None:
        self.query_one("#prompt", LinePrompt).begin(self.filter_text)
        self.update_footer()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action may run: in a prompt, the filter's key is a letter."""
        if action == "filter" and isinstance(self.focused, Prompt):
            return False
        return super().check_action(action, parameters)


def rule(parts: Sequence[Line], available: int, ends: Sequence[Line] = ()) -> Line:
    """A horizontal rule with notes at its right end; ``ends`` are last, and never cut."""
    if not (parts or ends):
        return line(("─" * available, DIM))
    gap, end = line("   "), join(ends, line("   "))
    notes = crop(join(parts, gap), available - 6 - width(end) - 3 * bool(end))
    notes = line(" ") + join((notes, end), gap) + line(" ")
    return line(("─" * (available - width(notes) - 2), DIM)) + notes + line(("─" * 2, DIM))


def heading(title: str, width: int) -> Line:
    """A section heading followed by a rule."""
    return line((f" {title} ", DIM), ("─" * max(0, width - cell_len(title) - 3), DIM))


class Sections(Struct):
    """Lines with headings; ``sections`` are the indices of the headings."""

    lines: list[Line] = []
    sections: list[int] = []

    def add(self, title: str, body: Iterable[Line], room: int) -> None:
        """Add a section, unless it is empty."""
        lines = list(body)
        if not lines:
            return
        if self.lines:
            self.lines.append(())
        self.sections.append(len(self.lines))
        self.lines.append(heading(title, room))
        self.lines.extend(lines)


def out_of_view(above: int, below: int, style: TextStyle = DIM) -> list[Line]:
    """The note on lines or rows above and below the view, if there are any."""
    parts = ([f"↑ {above}"] if above else []) + ([f"↓ {below} more"] if below > 0 else [])
    return [line(("  ".join(parts), style))] if parts else []


def beside(left: Sequence[Line], right: Sequence[Line], cells: int) -> list[Line]:
    """Lines side by side; the left ones are ``cells`` wide."""
    if not right:
        return list(left)
    pairs = zip_longest(left, right, fillvalue=())
    return [fit(first, cells, "left") + second for first, second in pairs]


def padded(lines: Sequence[Line], count: int) -> list[Line]:
    """These lines and blank ones, up to ``count``, so that the content above keeps its height."""
    return [*lines, *[()] * (count - len(lines))]


def how_to(paragraphs: Sequence[str], available: int) -> list[Line]:
    """The text of an empty screen: what is missing, then how to create it."""
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
    """Query the pool, or open something slow, in a daemon thread: quitting does not wait for it.

    ``on_answer`` is called by the screen, unless it is closed by then, with the answer and None, or
    with None and the reason of the failure; ``failure`` begins the reason of an unexpected error.
    """

    def work() -> None:
        answer, error = None, None
        try:
            answer = query()
        except Exception as problem:
            known = unusable_path(problem) if isinstance(problem, OSError) else None
            expected = PoolError, InputError, UnusableMachine
            error = sentence_of(known or problem, failure, *expected)
        # The screen may be closed when the answer arrives.
        with suppress(RuntimeError):
            screen.call_later(on_answer, answer, error)

    threading.Thread(target=work, name="metlmon-ask", daemon=True).start()


# --- the queue: a job in it, and the schedd's state -----------------------------------------
# ``now`` and the times of the queue snapshot are seconds since the epoch.

ROOMY_LINES: Final = 30
"""Height from which a screen has room for blank lines."""

WIDE: Final = 120
"""Width from which a screen has room for two things side by side."""

MAX_REASON: Final = 400
"""Maximum length in characters of the negotiator's reasons and the schedd's errors."""


def job_queue_lines(view: JobView, now: float, room: int) -> list[Line]:
    """Priority, position, matches and last rejection of a job, ``room`` cells wide.

    A difference between the states in queue and log comes first. Nothing is shown of a job that has
    left the queue by its log since the schedd was asked.
    """
    row, queried_at = view.queue, view.queried_at
    if row is None or queried_at is None:
        return []
    if view.job.state in TERMINAL and row.differs is None:
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
        line((f"asked {age_text(queried_at, now)}", DIM)),
    ]
    lines += wrap_parts(parts, line("   "), room, indent=1)
    if row.rejection is not None:
        time = "" if row.rejected_at is None else f" {age_text(row.rejected_at, now)}"
        text = f"last rejected{time}: {plain(row.rejection, MAX_REASON)}"
        lines += wrap(text, room, NOTE, indent=1)
    return lines


def job_queue_line(row: QueueJob | None, now: float) -> Line:
    """One line on an idle job: its difference from the log, position and last rejection."""
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
    """The line below a table on an idle job, after its name; ``job`` is None for other rows.

    On a screen of ``ROOMY_LINES`` the line is always present, so that the table keeps its height.
    """
    # Building the view of a job with thousands of events takes time and memory.
    view = None if job is None or context.queue is None else context.feed.job_view(*job)
    text = job_queue_line(view.queue if view else None, context.now())
    if text:
        return [line(" ", (name, BOLD), "  ") + text]
    return [()] if height >= ROOMY_LINES and context.queue is not None else []


def _queue_position(row: QueueJob) -> Line:
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
    schedd_lines = wrap_parts((name, version, user), line("   "), room, indent=1)
    if queue.error is not None:
        error_lines = wrap(plain(queue.error, MAX_REASON), room, NOTE, indent=1)
        note = "only the logs are shown"
        if queue.next_try is not None:
            note = f"asked again in {formatting.age(max(0.0, queue.next_try - now))}; {note}"
        return [*schedd_lines, *error_lines, *wrap(note, room, DIM, indent=1)]
    if queue.queried_at is None:
        return [*schedd_lines, line(" ", ("asking the schedd…", MOVING))]
    jobs, age = formatting.count(len(queue.jobs), "job"), age_text(queue.queried_at, now)
    return [*schedd_lines, line(f" {jobs} of this ensemble in the queue", (f"   {age}", DIM))]


class ChoiceScreen(ResultModal[tuple[str, ...]]):
    """Modal list; returns the chosen values, or None to leave the field as it is.

    ``choices`` are the values with their descriptions. With ``several`` the space bar marks, and
    enter accepts the marked values (the row under the cursor if nothing was marked or unmarked).
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,Y", "give_up", show=False),
        Binding("enter", "choose", show=False),
        Binding("space", "mark", show=False),
    ]

    def __init__(
        self, title: str, choices: Mapping[str, str], current: Sequence[str], several: bool = False
    ) -> None:
        super().__init__()
        self._title, self._choices, self._several = title, choices, several
        self._current = current
        self._marked = [value for value in current if several and value in choices]
        self._others = [value for value in current if several and value not in choices]
        self._untouched = not self._marked

    def compose(self) -> ComposeResult:
        with Vertical(id="choice"):
            yield StaticLines(id="title")
            yield Table()
            yield StaticLines(id="keys-of-choice")

    def on_mount(self) -> None:
        self.query_one(Table).focus()

    def fill(self) -> None:
        table = self.query_one(Table)
        self.query_one("#title", StaticLines).show([line((self._title, BOLD))])
        width = max((len(plain(value, 30)) for value in self._choices), default=4)
        width += 2 * self._several
        columns = [TableColumn("", width), TableColumn("", max(10, table.size.width - width - 4))]
        rows = [TableRow(value, partial(self._cells, value)) for value in self._choices]
        first = not table.rows
        table.show(columns, rows)
        if first and self._current:
            table.select(self._current[0])
        keys = line(("space", KEY), (" mark   ", DIM)) if self._several else ()
        keys += line(("enter", KEY), (" take   ", DIM), ("esc", KEY), (" cancel   ", DIM))
        more = join(out_of_view(table.rows_above, table.rows_below), ())
        self.query_one("#keys-of-choice", StaticLines).show([keys + more])

    def _cells(self, value: str) -> tuple[Line, Line]:
        tick = ("✓ " if value in self._marked else "  ") if self._several else ""
        description = line((plain(self._choices[value], 200), DIM))
        return line((tick, GOOD), plain(value, 30)), description

    def action_mark(self) -> None:
        key = self.query_one(Table).cursor
        if not self._several or key is None:
            return
        self._untouched = False
        if key in self._marked:
            self._marked.remove(key)
        else:
            self._marked.append(key)
        self.fill()

    def action_choose(self) -> None:
        key = self.query_one(Table).cursor
        if key is not None and (not self._several or self._untouched):
            self.return_result((key, *self._others))
        else:
            self.return_result((*self._marked, *self._others) if self._several else None)


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


class ColumnsScreen(ResultModal[ListState]):
    """Choice of the shown columns, and of the one to sort by.

    ``columns``: those of the list. ``names``: those of ``metlmon.toml``. ``sortable``: rows
    can be sorted by them. ``fitting``: names of those that fit on the screen. Returns the new state
    of the list.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "show_or_hide", show=False),
        Binding("enter,s", "choose", show=False),
        Binding("escape,q,asterisk", "done", show=False),
    ]

    def __init__(
        self,
        columns: Sequence[Column[Any]],
        state: ListState,
        names: Sequence[str] = (),
        sortable: bool = True,
        fitting: Collection[str] = (),
    ) -> None:
        super().__init__()
        self._names = names
        self._sortable = sortable
        self._columns = columns
        self._state = deepcopy(state)
        self._without_room = {
            column.name
            for column in columns
            if column.name not in fitting and self._is_shown(column)
        }

    def compose(self) -> ComposeResult:
        with Vertical(id="palette"):
            yield StaticLines(id="head")
            yield Table()

    def fill(self) -> None:
        hint = line(("space", KEY), (" shows or hides   ", DIM))
        hint += line(("enter", KEY), (" sorts by it   ", DIM)) if self._sortable else ()
        hint += line(("esc", KEY), (" closes   ", DIM))
        rows = [TableRow(column.name, partial(self._cells, column)) for column in self._columns]
        table = self.query_one(Table)
        table.show([TableColumn("SHOWN", 6), TableColumn("COLUMN", 40)], rows)
        more = join(out_of_view(table.rows_above, table.rows_below), ())
        self.query_one("#head", StaticLines).show([line(("Columns", BOLD)), hint + more])

    def _cells(self, column: Column[Any]) -> tuple[Line, Line]:
        shown = self._is_shown(column)
        order = "   sorts the rows" if column.name == self._state.column else ""
        room = "   no room" if shown and column.name in self._without_room else ""
        notes = (order + room, DIM)
        return line("[x]" if shown else "[ ]"), line(column.title or column.name, notes)

    def _is_shown(self, column: Column[Any]) -> bool:
        return column is self._columns[0] or self._choice.includes(column.name, column.title)

    @property
    def _choice(self) -> ColumnChoice:
        return ColumnChoice(self._names, self._state.hidden, self._state.shown)

    def action_show_or_hide(self) -> None:
        name, state = self.query_one(Table).cursor, self._state
        if name is None:
            return
        title = next(column.title for column in self._columns if column.name == name)
        wanted = not self._choice.includes(name, title)
        for exceptions in (state.hidden, state.shown):
            if name in exceptions:
                exceptions.remove(name)
        if self._choice.includes(name, title) is not wanted:
            (state.shown if wanted else state.hidden).append(name)
        self.fill()

    def action_choose(self) -> None:
        if not self._sortable:
            self.action_done()
            return
        name = self.query_one(Table).cursor
        self._state.column = None if name == self._state.column else name
        self._state.reversed = False
        self.return_result(self._state)

    def action_done(self) -> None:
        self.return_result(self._state)


OwnOrder: TypeAlias = tuple[str, Callable[[Any], tuple[Any, ...]] | None]
Order: TypeAlias = str | OwnOrder
"""An order of rows: the name of a column, or a name and a sort key."""


ROW_ACTIONS: Final = frozenset(
    {"open", "filter", "sort", "columns", "mark", "section", "owner"}
    | {"compare", "log", "zoom_in", "zoom_out"}
)
"""Actions without effect in an empty list."""


class ListScreen(FilterKeys):
    """A screen with one table whose filter, order and columns survive every refresh.

    ``ORDERS``: what the sort key cycles through, names of columns, or a name and a sort key (None:
    the rows as given). ``FAULTS_NOTE``: the note while only rows that need attention are shown.
    ``DETAIL_LINES``: the minimum lines below the table, so that its height does not depend on the
    cursor.
    """

    ORDERS: ClassVar[Sequence[Order]] = ()
    FILTER_HINT = "text in any column; ! before it: rows without it"
    FAULTS_NOTE: ClassVar[str] = "faults only"
    DETAIL_LINES: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.faults_only = False
        self._columns_defined: Sequence[Column[Any]] = ()
        self._row_of_key: Mapping[str, Any] = {}
        self._sortable = True
        self._show_selection: Callable[[], None] | None = None
        self._widest: dict[str, int] = {}
        self._widest_of: object = None
        self.widths: Mapping[str, int] = {}
        """The columns that fit, by name, with their widths in cells."""

    @property
    def state(self) -> ListState:
        """The chosen columns and order, remembered by the application."""
        return self.context.list_states.setdefault(type(self).__name__, ListState())

    # --- parts ----------------------------------------------------------------------------

    def compose_body(self) -> ComposeResult:
        yield Table()

    @property
    def table(self) -> Table:
        return self.query_one(Table)

    def row(self, key: str | None) -> Any:
        """The row with this key, even if it is filtered out; None if it is gone."""
        return self._row_of_key.get(key or "")

    @property
    def chosen_keys(self) -> frozenset[str]:
        """The keys of the marked rows, or else that of the one under the cursor, if any."""
        return self.table.marks or frozenset(filter(None, (self.table.cursor,)))

    @property
    def chosen_rows(self) -> list[Any]:
        """The marked rows in order, or else the one under the cursor."""
        keys = self.chosen_keys
        return [row for key, row in self._row_of_key.items() if key in keys]

    # --- filling the table ----------------------------------------------------------------

    @property
    def table_width(self) -> int:
        return self.app.size.width

    def fill(
        self,
        columns: Sequence[Column[Any]],
        rows: Sequence[T],
        key: Callable[[T], str],
        text: Callable[[T], str] | None,
        *,
        item: Callable[[T], Any] = lambda row: row,
        all_rows: Sequence[T] | None = None,
        all_keys: Container[str] | None = None,
        total: int | None = None,
        fitted_to: Sequence[T] | None = None,
        steady: tuple[object, ...] | None = None,
        empty: Sequence[Line] = (),
        no_match: Sequence[Line] | None = None,
        cursor: str | None = None,
        extra: Sequence[Line] = (),
        noun: str = "run",
        details: Callable[[T | None], Sequence[Line]] = lambda row: (),
        second_line: Callable[[T], Line] = lambda row: (),
        indent: Callable[[], int] = lambda: MARGIN,
        sign: Callable[[T], Line] = lambda row: (),
        more_rows: Sequence[T] = (),
        more_title: str = "",
        last_line: str = "",
        expand: Callable[[list[T]], list[T]] = list,
        heading: Callable[[T], str | None] = lambda row: None,
    ) -> list[T]:
        """Show the rows that pass the filter, in the chosen order and columns; return them.

        ``key`` identifies a row; ``text`` is what the filter searches, in lower case; None: the
        rows have been filtered and sorted. ``item`` returns what the columns show, when a row comes
        into view. ``all_rows`` are those before a choice among them, ``all_keys`` and ``total``
        their keys and number, if there are more; columns are fitted to them, or to the rows
        ``fitted_to``, so that the choice does not move the columns. ``steady``: while it is equal,
        columns only become wider. ``empty`` is shown if there are no rows, ``no_match`` if none
        passes. ``cursor`` moves the cursor to this row. ``details`` are the lines below the note
        line for the row under the cursor. ``second_line`` is that of a row, if any, from the cell
        ``indent``; ``sign`` is one cell before a row, unless it is marked. ``more_rows`` follow
        under the heading ``more_title``, and ``last_line`` after all rows; ``expand`` adds the rows
        that belong to others; ``heading`` is that of a row and of those before it with the same
        one. The other arguments are those of :meth:`note_line`.
        """
        all_rows = rows if all_rows is None else all_rows
        total = len(all_rows) if total is None else total
        self._columns_defined, self._sortable = columns, text is not None
        self._row_of_key = {key(row): row for row in (*all_rows, *more_rows)}
        hidden, displayed = [*self.state.hidden], [*self.state.shown]
        columns = ColumnChoice(self.column_names, hidden, displayed).choose(columns)
        chosen = steady, hidden, displayed
        if steady is None or chosen != self._widest_of:
            self._widest, self._widest_of = {}, chosen
        widths = self.widths = fit_columns(
            columns,
            [item(row) for row in (all_rows if fitted_to is None else fitted_to)],
            self.table_width,
            None if steady is None else self._widest,
        )
        shown, more = expand(self.filter_rows(rows, text)), self.filter_rows(more_rows, text)
        if self.table.marks:
            self.table.keep_marks(all_keys or self._row_of_key)
        if all_rows:
            clears = empty_text(f"No {noun} has this text.", "[esc] clears")
            empty = clears if no_match is None else no_match
        start = indent()

        def render(row: T) -> Sequence[Line]:
            return render_cells(columns, widths, item(row))

        def table_rows(part: Iterable[T]) -> Iterator[TableRow]:
            previous: str | None = None
            for row in part:
                title = heading(row)
                if title is not None and title != previous:
                    yield TableRow.heading(title)
                previous = title
                cells = partial(render, row)
                yield TableRow(key(row), cells, second_line(row), start, sign(row))

        shown_rows = list(table_rows(shown))
        if more:
            gap = [TableRow.heading("")] if shown_rows else []
            shown_rows += [*gap, TableRow.heading(more_title), *table_rows(more)]
        shown_rows += [TableRow.heading(last_line)] * bool(last_line)
        sorted_by = self._sorted_by if self._sortable else None
        up, down = "↑↓" if self.context.options.ascii else "▲▼"
        mark = down if self.state.reversed else up
        self.table.show(table_columns(columns, widths, sorted_by, mark), shown_rows, empty)
        if cursor is not None:
            self.table.select(cursor)

        def show_details() -> None:
            note = self.note_line(len(shown) + len(more), total, extra, noun)
            below = details(self.row(self.table.cursor))
            self.show_note([note, *padded(below, self.DETAIL_LINES)])

        self.show_selection(show_details)
        return shown

    def show_selection(self, show: Callable[[], None]) -> None:
        """Show the note line and the row under the cursor, now and whenever the cursor moves."""
        self._show_selection = show
        show()

    def refresh_selection(self) -> None:
        """Show everything that depends on the cursor."""
        if self._show_selection is None:
            self._refresh_if_mounted()
        else:
            self._show_selection()
            self.update_footer()

    def show_nothing(self, title: str, text: Sequence[Line], reason: str = "") -> None:
        """Show an empty table with this text, and the reason beside the title."""
        self._row_of_key = {}
        self.show_head([line(" ", (title, BOLD), "   ", (reason, DIM))])
        self.table.show([], [], text)
        self.show_selection(lambda: self.show_note([self.note_line(0, 0)]))

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of this list in ``metlmon.toml``; empty if none are set."""
        name = type(self).__name__.removesuffix("Screen").lower()
        return self.context.feed.settings.columns_of(name)

    def action_columns(self) -> None:
        def save(state: ListState | None) -> None:
            if state is not None:
                self.context.list_states[type(self).__name__] = state
                self.context.save_list_states()
                self._refresh_if_mounted()

        if columns := self._columns_defined:
            chooser = ColumnsScreen(
                columns, self.state, self.column_names, self._sortable, fitting=self.widths
            )
            self.app.push_screen(chooser, save)
        else:
            self.show_message("this list has no columns to choose from")

    # --- keys -----------------------------------------------------------------------------

    def footer_labels(self) -> Mapping[str, str]:
        if self.is_filtering:
            return {"open": "keep filter", "back": "clear filter"}
        if self.filter_text:
            return {"back": "clear filter"}
        return {"back": "clear marks"} if self.table.marks else super().footer_labels()

    def hidden_actions(self) -> Collection[str]:
        """While a filter is typed, all except the keys that end it; of no rows those for rows."""
        if self.is_filtering:
            return ALL_NAMES - {"open", "back"}
        if not (self._row_of_key or self.table.rows):
            return ROW_ACTIONS
        return () if self._columns_defined else {"columns"}

    # --- filter and order -----------------------------------------------------------------

    def filter_rows(self, rows: Iterable[T], text: Callable[[T], str] | None) -> list[T]:
        """The rows that match the filter, in the chosen order.

        ``text`` returns the lower-case text to search; None: all rows, as they are.
        """
        if text is None:
            return list(rows)
        matches = text_filter(self.filter_text)
        matching = [row for row in rows if matches(text(row))] if matches else list(rows)
        key = self._order()[1]
        if key is not None:
            matching.sort(key=key)
        if self.state.reversed:
            matching.reverse()
        return matching

    def _order(self) -> tuple[str, Callable[[Any], tuple[Any, ...]] | None]:
        """The name and the key of the chosen order; if empty, the first one of the list."""
        if self._sorted_by is None:
            order = self.ORDERS[self._order_index] if self.ORDERS else ("", None)
            return (order[0] if self._order_index else ""), cast("OwnOrder", order)[1]
        named = (each for each in self._columns_defined if each.name == self._sorted_by)
        column = next(named, None)
        return ("", None) if column is None else (column.title, column.sort_key)

    @property
    def _order_index(self) -> int:
        return self.state.order if self.state.order < len(self.ORDERS) else 0

    @property
    def _sorted_by(self) -> str | None:
        """The name of the column by which the rows are sorted; None for an order of the list."""
        order = self.ORDERS[self._order_index] if self.ORDERS else None
        return self.state.column or (order if isinstance(order, str) else None)

    def note_line(
        self, shown: int, total: int, extra: Sequence[Line] = (), noun: str = "run"
    ) -> Line:
        """The rule below the table: filter, order, and rows outside the view."""
        width = self.app.size.width
        faults = [line((self.FAULTS_NOTE, NOTE))] if self.faults_only else []
        parts = [*self.messages(), *self._marks_note(), *faults, *extra]
        if self.filter_text:
            parts.append(line(("filter ", DIM), (plain(self.filter_text, 30), NOTE)))
        if shown != total:
            parts.append(line((f"{shown} of {total} {noun}s", NOTE)))
        order = self._order()[0]
        if order or self.state.reversed:
            order = order or (self.ORDERS[0][0] if self.ORDERS else "the file")
            parts.append(line((f"by {order}{', reversed' if self.state.reversed else ''}", DIM)))
        return rule(parts, width, out_of_view(self.table.rows_above, self.table.rows_below))

    def _marks_note(self) -> list[Line]:
        marks, hidden = self.table.marks, self.table.hidden_marks
        rest = f", {hidden} of them not shown" if hidden else ""
        compares = "comparing" in self.SCOPES and "compare" not in self.hidden_actions()
        rest += ", [&] compares" if compares and len(marks) > 1 else ""
        note = line((f"{len(marks)} marked", NOTE), (f"{rest}, [esc] clears", DIM))
        return [note] if marks else []

    def set_filter(self, text: str) -> None:
        """Set the filter and return the focus to the table."""
        self.filter_text = text
        self.set_focus(self.table)
        self._refresh_if_mounted()

    @on(Input.Changed, "#prompt")
    def _filter_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.filter_text = event.value
        self._refresh_if_mounted()

    def action_sort(self) -> None:
        state, names = self.state, {column.name for column in self._columns_defined}
        later = (
            index
            for index, order in enumerate(self.ORDERS)
            if index > state.order and (not isinstance(order, str) or order in names)
        )
        state.order = 0 if state.column else next(later, 0)
        state.column, state.reversed = None, False
        self.context.save_list_states()
        self._refresh_if_mounted()

    def action_faults(self) -> None:
        self.faults_only = not self.faults_only
        self._refresh_if_mounted()

    def action_reverse(self) -> None:
        self.state.reversed = not self.state.reversed
        self.context.save_list_states()
        self._refresh_if_mounted()

    def action_open(self) -> None:
        if self.table.cursor is not None:
            self.open_row(self.table.cursor)

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        event.stop()
        self.open_row(event.key)

    def on_table_heading_selected(self, event: Table.HeadingSelected) -> None:
        """Sort by the column; if already sorted by it, reverse the order."""
        event.stop()
        if not self._sortable:
            return
        state = self.state
        state.reversed = event.name == self._sorted_by and not state.reversed
        state.column = event.name
        self.context.save_list_states()
        self._refresh_if_mounted()

    async def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        event.stop()
        if event.moved:
            self._message = ""
        self.refresh_selection()
        # Wait until the note line requests its update, so that both are painted in one frame.
        await asyncio.sleep(0)

    def action_mark(self) -> None:
        self.table.toggle_mark()
        self._refresh_if_mounted()

    def action_mark_all(self) -> None:
        self.table.toggle_all()
        self._refresh_if_mounted()

    def clear_filter_or_marks(self) -> bool:
        """Clear the filter, or else the marks; return False if there was nothing to clear."""
        if self.filter_text:
            self.filter_text = ""
        elif self.table.marks:
            self.table.clear_marks()
        else:
            return False
        self._refresh_if_mounted()
        return True

    def open_row(self, key: str) -> None:
        """Open the screen of this row; by default that of a run."""
        self.context.open_screen("run", key)

    def action_back(self) -> None:
        if not self.clear_filter_or_marks():
            super().action_back()


def text_filter(wanted: str) -> Callable[[str], bool] | None:
    """A test of texts against a filter in lower case, ``!`` inverts it; None: all texts pass."""
    inverse = wanted.startswith("!")
    needle = wanted[inverse:].strip().lower()
    return (lambda text: (needle in text) is not inverse) if needle else None


def compare_marked(screen: ListScreen, metric: str | None = None) -> None:
    """Open the marked runs of a list side by side, by this metric; if too few, say how to mark."""
    # Few users compare: load what it needs only then.
    from metlmon.tables.comparison import MIN_RUNS

    marks = screen.table.marks
    keys = [key for key in screen.table.keys if key in marks]
    keys += sorted(marks.difference(keys))
    if len(keys) < MIN_RUNS:
        screen.show_message("[space] marks runs; mark two or more, and [&] compares them")
        return
    screen.context.open_screen("compare", keys, metric)


# --- the footer: the tab bar, and the keys of the most important actions --------------

RELABELLED: Final = 10
"""Footer priority of a temporary label: that of the help, so that it stays on narrow screens."""

KEY_GAP: Final = "   "


class KeyFooter(LineWidget):
    """The footer of a screen: the keys of its scopes, with what they do now."""

    def __init__(self, scopes: Sequence[str]) -> None:
        super().__init__(id="keys")
        self._scopes = tuple(scopes)

    @property
    def _owner(self) -> SnapshotScreen:
        return cast(SnapshotScreen, self.screen)

    def update_lines(self) -> None:
        """Show what the keys do now, below the tab bar if there is room for it."""
        height = 1 + self._owner.tab_lines
        if self.styles.height is None or self.styles.height.value != height:
            self.styles.height = height
            self.reset_painted()
        else:
            self.refresh_changed()

    def line_at(self, y: int) -> tuple[Line, bool]:
        if y < self._owner.tab_lines:
            return tab_line(self.context.screen_name, self.size.width), False
        return line(" ") + key_line(list(self._shown()), self.size.width - 2), False

    async def on_click(self, event: events.Click) -> None:
        """Open the tab whose digit is at this position, or before it."""
        if event.y < self._owner.tab_lines:
            before = crop(tab_line(self.context.screen_name, self.size.width), event.x + 1)
            digits = [text for text, style in before if style == KEY]
            if digits:
                self.context.action_tab(int(digits[-1]))

    def _shown(self) -> Iterable[tuple[int, str, str]]:
        actions = actions_of(self._scopes, self.context.opened.read_only, self.context.keys)
        labels, hidden = self._owner.footer_labels(), self._owner.hidden_actions()
        own_back = any(action.name == "back" and action.footer for action in actions)
        for action in actions:
            if action.name in hidden or (own_back and action.name == "close"):
                continue
            label = labels.get(action.name)
            if label is not None:
                yield max(action.footer, RELABELLED), action.cap, label
            elif action.footer:
                yield action.footer, action.cap, action.label


def key_line(keys: Sequence[tuple[int, str, str]], cells: int) -> Line:
    """Key caps and labels that fit into ``cells``."""
    parts = [line((cap, KEY), " ", (label, DIM)) for _, cap, label in keys]
    needed = sum([width(part) + len(KEY_GAP) for part in parts]) - len(KEY_GAP)
    for index in sorted(range(len(keys)), key=lambda index: keys[index][0]):
        if needed <= cells:
            break
        needed -= width(parts[index]) + len(KEY_GAP)
        parts[index] = ()
    return join(parts, line(KEY_GAP))


def tab_line(current: str | None, cells: int) -> Line:
    """The tab bar: every tab with its digit, that of ``current`` in brackets."""
    active = next((i for i, names in enumerate(TABS) if current in names), None)

    def bar(gap: int, tabs: Sequence[Sequence[str]], blank: str = " ", edge: str = " ") -> Line:
        content: Line = ()
        for i in range(len(tabs) + 1):
            ends, begins = i - 1 == active, i == active
            marks = ("]" if ends else " ") + ("[" if begins else " ")
            mark = marks.strip() or (" " if 0 < i < len(tabs) else edge)
            content += line((marks if gap > 1 else mark, DIM))
            if i < len(tabs):
                alone = begins and len(tabs[i]) == 1
                titles = (
                    line((title_of(name), BOLD if alone or name == current else DIM))
                    for name in tabs[i]
                )
                content += line((str(i + 1), KEY), blank if tabs[i] else "")
                content += join(titles, line(("·", DIM)))
        return content

    firsts = [names[:1] for names in TABS]
    one = [(current,) if i == active and current else names for i, names in enumerate(firsts)]
    short = [names if i == active else () for i, names in enumerate(firsts)]
    candidates = [bar(2, TABS), bar(1, TABS), bar(2, one), bar(1, one), bar(1, one, "")]
    candidates += [bar(1, one, "", ""), bar(1, firsts, ""), bar(1, short)]
    return first_that_fits(candidates, cells)
