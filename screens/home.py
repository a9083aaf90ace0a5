"""The Home screen: every ensemble in one line, live."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from textual.app import ComposeResult

from metlmon.home.feed import HomeFeed
from metlmon.home.places import load_list, save_list
from metlmon.home.summary import HomeSummary
from metlmon.pool.client import FeedAndPool
from metlmon.remote.paths import split_argument
from metlmon.snapshot.records import Snapshot
from metlmon.tables import home as home_table
from metlmon.tables.layout import empty_text
from metlmon.text.formatting import Colour, Weight, count, plain
from metlmon.text.spans import ALARM, BOLD, DIM, GOOD, NOTE, Line, TextStyle, crop, justify, line
from screens.base.screens import LinePrompt, ListScreen, ask_in_thread, how_to

NARROW: Final = 130
"""Width below which the health of an ensemble without trouble gives way to its ETA."""


class HomeScreen(ListScreen):
    """All ensembles, one row each; ``enter`` opens one."""

    SHOWS_ENSEMBLE: ClassVar[bool] = False
    SCOPES: ClassVar[tuple[str, ...]] = ("list", "home")
    FAULTS_NOTE = "only what needs attention"
    DETAIL_LINES = home_table.DETAIL_LINES
    ORDERS = (("urgency", home_table.urgency), "name", "progress", "eta", "badput")

    def __init__(self, home: HomeFeed) -> None:
        super().__init__()
        self.home = home
        self._opening: str | None = None
        self._open: str | None = None
        self._to_drop: str | None = None
        self._announced = False

    def compose_prompts(self) -> ComposeResult:
        yield from super().compose_prompts()
        hint = "a dagdir, or a directory with some below it, or HOST:DIR; [esc] adds nothing"
        yield LinePrompt(self.end_prompt, id="directory", hint=hint)

    def on_mount(self) -> None:
        super().on_mount()
        self.home.start(self._announce)

    def on_screen_resume(self) -> None:
        # New summaries may come late, after another ensemble has been opened.
        if self.is_current:
            self.context.close_ensemble()
            if self._open is not None:
                self.home.look_again(self._open)
                self._open = None
        super().on_screen_resume()

    def _announce(self) -> None:
        """Called in the thread of the feed."""
        if not self._announced:
            self._announced = True
            self.call_later(self._take_summaries)

    def _take_summaries(self) -> None:
        self._announced = False
        self.context.absence.take_home(self.home.summaries)
        if self.is_current:
            self._refresh_if_mounted()

    # --- what is shown --------------------------------------------------------------------

    def show(self, snapshot: Snapshot) -> None:
        home, width = self.home, self.app.size.width
        rows = home_table.home_rows(home.summaries)
        clock = datetime.now()
        this_year = clock.year
        self.show_head(self._head(rows, width))
        shown = [row for row in rows if row.needs_person] if self.faults_only else rows
        calm = line(("No ensemble needs attention.", GOOD))
        nothing = empty_text(calm, "[f] shows all of them again.")
        only_faults = self.faults_only and not self.filter_text
        self.fill(
            home_table.columns(rows, this_year, clock, narrow=width < NARROW),
            shown,
            lambda row: row.path,
            home_table.filter_text,
            all_rows=rows,
            steady=(width,),
            empty=self._empty_text(width),
            no_match=nothing if only_faults else None,
            noun="ensemble",
            cursor=self._first_row(shown),
            details=lambda row: home_table.detail_lines(row, this_year, width - 2),
        )

    def _first_row(self, rows: Sequence[HomeSummary]) -> str | None:
        """The row for the cursor before any key: that of the first path given, else the first."""
        if self.context.last_key_time or not rows:
            return None
        paths = [row.path for row in self.filter_rows(rows, home_table.filter_text)]
        return next((path for path in self.home.request.paths[:1] if path in paths), paths[0])

    def _head(self, rows: Sequence[HomeSummary], width: int) -> list[Line]:
        title = line(("metlmon", TextStyle(Colour.SKY, Weight.BOLD)), "  ", ("Home", BOLD), "   ")
        left = title + home_table.totals_line(rows) if rows else title
        right = line(("searching…" if self.home.searching else "", DIM))
        lines = [line(" ") + justify(crop(left, width - 2), right, width - 2)]
        if self.home.error is not None:
            lines.append(line(" ", (plain(self.home.error, 2 * width), ALARM)))
        if self.home.queue_error is not None:
            lines.append(line(" ", ("queue: ", DIM), (plain(self.home.queue_error, 300), NOTE)))
        for path in self.home.more:
            text = f"{plain(path, 60)}: only the first directories below it were searched"
            lines.append(line(" ", (text, NOTE)))
        return [*(crop(each, width) for each in lines), ()]

    def _empty_text(self, width: int) -> list[Line]:
        paths = [plain(path, 60) for path in self.home.request.paths]
        below = f" below {paths[0]}" if len(paths) == 1 else " below any of your paths"
        below = below if paths else ""
        if self.home.searching:
            return empty_text("", f"searching for ensembles{below}")
        first = f"There is no ensemble{below}."
        if self.home.request.queue and not paths:
            first = "None of your DAGMan jobs is in the queue."
        ways = [
            "[+] adds a directory to your list: a dagdir (it has the .dag file that you gave to "
            "condor_submit_dag), or a directory with some below it.",
            "metlmon DIRECTORY… shows what is below these; metlmon --queue the ensembles whose "
            "DAGMan is in the queue now.",
            "[N] submits a new ensemble.",
        ]
        return how_to([first, *ways], width)

    def entries(self) -> Sequence[tuple[str, str, str]]:
        rows = home_table.home_rows(self.home.summaries)
        return [("ensemble", row.name, row.path) for row in rows]

    def footer_labels(self) -> Mapping[str, str]:
        return {**super().footer_labels(), "close": "quit"}

    def refusals(self) -> Mapping[str, str]:
        pool = self.context.options.submission_pool is not None
        return {} if pool else {"new": self.context.opened.no_pool}

    def action_back(self) -> None:
        self.clear_filter_or_marks()

    # --- opening one ------------------------------------------------------------------------

    def open_row(self, key: str) -> None:
        """Open an ensemble, in a thread: its DAG files may be large, or on a slow server."""
        open_dagdir = self.context.options.open_dagdir
        if open_dagdir is None or self._opening is not None:
            return
        self._opening = key
        ask_in_thread(self, lambda: open_dagdir(Path(key)), self._opened, "opening failed")
        self.show_message(f"opening {plain(os.path.basename(key), 40)}…")

    def _opened(self, opened: FeedAndPool | None, error: str | None) -> None:
        path, self._opening = self._opening, None
        if opened is None:
            self.show_message(error or "")
        else:
            self._message, self._open = "", path
            self.context.show_ensemble(opened)

    # --- the user's list --------------------------------------------------------------------

    def action_add(self) -> None:
        self.query_one("#directory", LinePrompt).begin()

    def end_prompt(self, value: str) -> None:
        """Close the prompt, and add the directory that was typed, if any."""
        self.set_focus(self.table)
        value = value.strip()

        def connected(path: str | None, error: str | None) -> None:
            if path is None:
                self.show_message(error or "")
            else:
                self._add(path)

        if ":" in value:
            ask_in_thread(self, partial(_path_of, value), connected, "connecting failed")
        elif value:
            self._add(os.path.abspath(os.path.expanduser(value)))

    def _add(self, path: str) -> None:
        """Add a directory to the user's list, and to the screen."""
        listed, name = load_list(), plain(path, 60)
        if path in listed:
            self.show_message(f"{name} is in your list")
        elif not self.context.options.remember_choices:
            self.home.add_path(path)
            self.show_message(f"shown until metlmon ends, read-only as it is here: {name}")
        elif self._save([*listed, path]):
            self.home.add_path(path)
            self.show_message(f"added to your list: {name}")

    def action_drop(self) -> None:
        """Drop the directory of the row under the cursor; if that lists others, ask first."""
        path = self.table.cursor
        if path is None:
            return
        if not self.context.options.remember_choices:
            self.show_message("your list is not changed: metlmon is read-only here")
            return
        listed = load_list()
        above = [entry for entry in listed if Path(path).is_relative_to(entry)]
        if not above:
            where = "it was found where metlmon was started"
            self.show_message(f"this one is not in your list: {where}")
            return
        entry = max(above, key=len)
        others = sum(Path(each.path).is_relative_to(entry) for each in self.home.summaries)
        if others > 1 and self._to_drop != entry:
            self._to_drop = entry
            what = count(others, "ensemble")
            self.show_message(f"[-] again drops {plain(entry, 60)} with {what} from your list")
            return
        self._to_drop = None
        if self._save([each for each in listed if each != entry]):
            self.home.set_paths(each for each in self.home.request.paths if each != entry)
            self.show_message(f"dropped from your list: {plain(entry, 60)}; [+] adds it again")

    def _save(self, directories: Sequence[str]) -> bool:
        saved = save_list(directories)
        if not saved:
            self.show_message("your list cannot be written: see ~/.local/state/metlmon")
        return saved


def _path_of(word: str) -> str:
    """The path of a directory given as typed, maybe on another machine; may wait for that."""
    from metlmon.remote.machine import connect_to

    elsewhere = split_argument(word) is not None
    return connect_to(word, ask=False) if elsewhere else os.path.abspath(word)
