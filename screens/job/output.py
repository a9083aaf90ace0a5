"""The output files of one job, whole: by offset, wrapped, searched, followed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial, partialmethod
from pathlib import Path
from typing import ClassVar, Final

from rich.cells import chop_cells
from textual import on
from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import Input

from metlmon.errors import describe_error
from metlmon.live import output_pager
from metlmon.live.feed import Snapshot
from metlmon.live.file_access import (
    FsExecutor,
    FsTimeout,
    UnreadableFile,
    call_with_timeout,
    calls_through,
    output_file,
)
from metlmon.live.output_pager import OutputPage, Search
from metlmon.text import formatting
from metlmon.text.formatting import plain, size
from metlmon.text.spans import BOLD, DIM, NOTE, Line, crop, file_name, line
from screens.base.screens import FilterPrompt, SnapshotScreen, rule
from screens.job.job_tools import JobTools
from screens.job.sections import NO_OUTPUT_IN_PAST
from screens.widgets.line_widget import Document, StaticLines

POLL_SECONDS: Final = 1.0
"""How often the file is looked at for more while its end is in view."""

NEAR_EDGE: Final = 100
"""Lines from the first or last loaded one at which more are read."""

EMPTY: Final = OutputPage((), 0, 0)

PagerRead = Callable[[Path], OutputPage | None]
"""Reads a page, given the path of the file; None: what is shown stays."""


class OutputView(Document):
    """The loaded rows. The keys for the first and the last line are for those of the file."""

    class EdgeRequested(Message):
        """The first or the last row of the file is wanted."""

        def __init__(self, at_end: bool) -> None:
            super().__init__()
            self.at_end = at_end

    def action_first(self) -> None:
        self.post_message(self.EdgeRequested(at_end=False))

    def action_last(self) -> None:
        self.post_message(self.EdgeRequested(at_end=True))


class OutputScreen(JobTools, SnapshotScreen):
    """What a job has written, from the first byte to the last."""

    SCOPES: ClassVar[tuple[str, ...]] = ("output", "below")
    AUTO_FOCUS = "OutputView"

    def __init__(self, cluster: int, proc: int) -> None:
        super().__init__()
        self.job = (cluster, proc)
        self.filter_text = ""
        self._files = FsExecutor(lambda: None)
        self._shown_file = 0
        self._page = EMPTY
        self._line_starts: list[int] = []
        self._wraps = True
        self._reading = False
        self._problem: str | None = None
        self._search: Search | None = None

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield OutputView(follow=True)
        yield StaticLines(id="note")
        yield FilterPrompt("a text to find; capitals count if there are any")
        yield self.key_footer()

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(POLL_SECONDS, self._poll)
        self._request(output_pager.page_at_end)

    def on_unmount(self) -> None:
        self._cancel_search()
        self._files.close()

    @property
    def view(self) -> OutputView:
        """The widget with the rows."""
        return self.query_one(OutputView)

    def _output_names(self) -> list[tuple[str, str]]:
        """Title and name of each output file, as in the submit description."""
        view = self.context.feed.job_view(*self.job)
        names = () if view is None else ((".out", view.output), (".err", view.error))
        return [(title, name) for title, name in names if name]

    # --- what is shown ----------------------------------------------------------------------

    def show(self, snapshot: Snapshot | None) -> None:
        names = self._output_names()
        head = line(" ", ("job ", DIM), (formatting.job_id(*self.job), BOLD), "  ")
        if names:
            title, name = names[self._shown_file % len(names)]
            others = [other for other, _ in names if other != title]
            head += line((title, BOLD), "  ") + line(file_name(name, 60))
            head += line((f"  {size(self._page.size)}", DIM))
            head += line((f"   [v] {others[0]}" if others else "", DIM))
        self.show_head([crop(head, self.app.size.width)])
        self._show_note()

    def _show_note(self) -> None:
        parts = self.messages()
        if self._search is not None:
            parts.append(line((f"searching {self._search.done:.0%}; [esc] stops", NOTE)))
        elif self.filter_text:
            parts.append(line(("find ", DIM), (plain(self.filter_text, 30), NOTE)))
        if self._page.rows:
            at_end = self._page.reaches_end and self.view.lines_below == 0
            share = f"{self._top_offset() / max(1, self._page.size):.0%}"
            parts.append(line(("end of the file, followed" if at_end else share, DIM)))
        self.show_note([rule(parts, self.app.size.width)])

    def _show_rows(self) -> None:
        """Show the loaded rows, or why there are none."""
        room = max(1, self.app.size.width - 1)
        lines: list[Line] = []
        self._line_starts = []
        for row in self._page.rows:
            self._line_starts.append(len(lines))
            lines += self._row_lines(row.text, room)
        if not lines:
            reason = self._problem or ("reading …" if self._reading else "it is empty")
            lines = [line("  ", (plain(reason, 300), DIM))]
        self.view.show(lines)

    def _row_lines(self, text: str, room: int) -> Sequence[Line]:
        safe = plain(text.expandtabs(8))
        parts = chop_cells(safe, room) if self._wraps else [safe]
        return [self._with_matches(part) for part in parts] or [()]

    def _with_matches(self, text: str) -> Line:
        """The text with the first match of what was searched for marked."""
        wanted = self.filter_text
        at = (text if wanted != wanted.lower() else text.lower()).find(wanted) if wanted else -1
        if at < 0:
            return line(text)
        end = at + len(wanted)
        return line(text[:at], (text[at:end], NOTE), text[end:])

    def _top_offset(self) -> int:
        """The offset of the row at the top of the view."""
        index = bisect_right(self._line_starts, self.view.top_line) - 1
        return self._page.rows[index].start if 0 <= index < len(self._page.rows) else 0

    def _scroll_to_offset(self, offset: int) -> None:
        """Scroll the row at this offset to the top; the size of the file: to the end."""
        if offset >= self._page.size:
            self.view.scroll_to_line(len(self.view.lines))
            return
        ends = [row.end for row in self._page.rows]
        self.view.scroll_to_line(self._line_starts[bisect_right(ends, offset)])

    def on_resize(self) -> None:
        top = self._top_offset()
        follows = self._follows()
        self._show_rows()
        if self._page.rows:
            self._scroll_to_offset(self._page.size if follows else top)

    # --- reading, in a thread ---------------------------------------------------------------

    def _request(self, read: PagerRead) -> None:
        """Read a page of the file shown, and show it."""
        names = self._output_names()
        if self._reading:
            return
        self._problem = None
        if self.context.time_travel.past_view is not None:
            self._problem = NO_OUTPUT_IN_PAST
        elif not names:
            self._problem = "its submit description names no output file"
        if self._problem is not None:
            self._page = EMPTY
            self._show_rows()
            self._refresh_if_mounted()
            return
        self._reading = True
        name = names[self._shown_file % len(names)][1]
        work = partial(self._read_in_thread, read, self.context.feed.dagdir, name)
        self.run_worker(work, thread=True, group="output", description="the output")

    def _read_in_thread(self, read: PagerRead, dagdir: Path, name: str) -> None:
        page, problem = None, None
        try:
            with calls_through(self._files):
                path = call_with_timeout(output_file, dagdir, name)
                page = call_with_timeout(read, path)
        except (UnreadableFile, FsTimeout) as reason:
            problem = str(reason)
        except Exception as error:
            problem = describe_error("reading it failed", error)
        self.call_later(self._show_page, page, problem)

    def _show_page(self, page: OutputPage | None, problem: str | None) -> None:
        self._reading, self._problem = False, problem
        if problem is not None:
            self._page = EMPTY
        elif page is not None:
            self._page = page
        if not self.is_mounted or (page is None and problem is None):
            return
        self._show_rows()
        if self._page.rows:
            self._scroll_to_offset(self._page.top)
        self._refresh_if_mounted()

    def _follows(self) -> bool:
        return self._page.reaches_end and self.view.lines_below == 0

    def _poll(self) -> None:
        if self._follows():
            # Looking at it must not replace a problem by an empty page.
            page = self._page
            self._request(lambda path: output_pager.page_if_changed(path, page))

    def on_document_scrolled(self) -> None:
        page, view = self._page, self.view
        if page.rows and view.lines_below < NEAR_EDGE and not page.reaches_end:
            top = self._top_offset()
            self._request(lambda path: output_pager.page_below(path, page, top))
        elif page.rows and view.top_line < NEAR_EDGE and page.rows[0].start > 0:
            top = self._top_offset()
            self._request(lambda path: output_pager.page_above(path, page, top))
        self._show_note()

    def on_output_view_edge_requested(self, event: OutputView.EdgeRequested) -> None:
        event.stop()
        if event.at_end:
            self._request(output_pager.page_at_end)
        else:
            self._request(lambda path: output_pager.page_around(path, 0))

    # --- keys -------------------------------------------------------------------------------

    def action_view(self) -> None:
        """Show the other file."""
        if len(self._output_names()) < 2:
            self.show_message("it has no other output file")
        elif not self._reading:
            self._shown_file += 1
            self._page = EMPTY
            self._request(output_pager.page_at_end)

    def action_wrap(self) -> None:
        """Wrap long lines, or cut them at the edge of the screen."""
        top, follows = self._top_offset(), self._follows()
        self._wraps = not self._wraps
        self._show_rows()
        if self._page.rows:
            self._scroll_to_offset(self._page.size if follows else top)
        self.show_message("long lines are wrapped" if self._wraps else "long lines are cut")

    def action_pager(self) -> None:
        """Open the file in $PAGER; its end returns here."""
        if self.app.is_web:
            self.show_message("a pager needs a terminal: a browser has none")
            return
        names = self._output_names()
        command = shlex.split(os.environ.get("PAGER", "")) or ["less"]
        tool = shutil.which(command[0])
        if not names or tool is None:
            why = f"{command[0]} is not installed here" if names else "there is no output file"
            self.show_message(why)
            return
        try:
            path = output_file(self.context.feed.dagdir, names[self._shown_file % len(names)][1])
            with self.app.suspend():
                subprocess.run([tool, *command[1:], str(path)], check=False)
        except (UnreadableFile, OSError) as error:
            self.show_message(f"{command[0]}: {error}")
        self.app.refresh()

    # --- searching --------------------------------------------------------------------------

    def action_filter(self) -> None:
        self.query_one(FilterPrompt).begin(self.filter_text)
        self.update_footer()

    @on(Input.Blurred, "#prompt")
    def _prompt_blurred(self, event: Input.Blurred) -> None:
        event.stop()
        self.query_one(FilterPrompt).display = False
        self.update_footer()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action may run: in the prompt, the key of the prompt is a letter."""
        if action == "filter" and isinstance(self.focused, FilterPrompt):
            return False
        return super().check_action(action, parameters)

    def set_filter(self, text: str) -> None:
        """Find a text, from the top of the view on; none: mark nothing any more."""
        self.filter_text = text
        self.set_focus(self.view)
        top = self._top_offset()
        self._show_rows()
        if self._page.rows:
            self._scroll_to_offset(top)
        if text:
            self._find(backward=False)

    def _find(self, backward: bool) -> None:
        """Find the next match in a thread; [esc] cancels it."""
        names = self._output_names()
        if not self.filter_text or not names or self._search is not None:
            if not self.filter_text:
                self.show_message("[/] finds a text")
            return
        search = self._search = Search(self.filter_text)
        offset = self._top_offset()
        name = names[self._shown_file % len(names)][1]
        work = partial(self._find_in_thread, search, name, offset, backward)
        self.run_worker(work, thread=True, group="search", description="the search")
        self._show_note()

    def _find_in_thread(self, search: Search, name: str, offset: int, backward: bool) -> None:
        found, problem = None, None
        try:
            path = output_file(self.context.feed.dagdir, name)
            found = search.find(path, offset, backward)
        except UnreadableFile as reason:
            problem = str(reason)
        self.call_later(self._end_search, search, found, problem)

    def _end_search(self, search: Search, found: int | None, problem: str | None) -> None:
        self._search = None
        if not self.is_mounted:
            return
        if found is not None:
            self._request(lambda path: output_pager.page_around(path, found))
        elif not search.cancelled:
            self.show_message(problem or f"{plain(search.text, 40)!r} is not in this file")
        self._show_note()

    def _step(self, backward: bool) -> None:
        self._find(backward)

    action_next = partialmethod(_step, False)
    action_previous = partialmethod(_step, True)

    def _cancel_search(self) -> None:
        if self._search is not None:
            self._search.cancelled = True

    def action_back(self) -> None:
        if self._search is not None:
            self._cancel_search()
        elif self.filter_text:
            self.set_filter("")
        else:
            super().action_back()
