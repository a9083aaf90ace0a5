"""One job: why is it here."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.worker import get_current_worker

from metlmon.error_text import describe_error
from metlmon.live.feed import Snapshot
from metlmon.live.fs_timeout import FsExecutor, FsTimeout, call_with_timeout, calls_through
from metlmon.live.tail import NotRead, output_file, read_tail
from metlmon.model.states import TERMINAL, State
from metlmon.snapshot.types import JobView
from metlmon.stats.curves import streams
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain
from screens.actions import bindings_of
from screens.base.action_screen import ActionScreen
from screens.base.screens import rule
from screens.curves import table as curves_table
from screens.job import queue_text
from screens.job import sections as job_sections
from screens.job.sections import OutputTail
from screens.pool_actions.running_action import Selection
from screens.widgets.document import Document
from screens.widgets.footer import KeyFooter
from screens.widgets.lines import StaticLines
from screens.widgets.spans import (
    BOLD,
    DIM,
    NOTE,
    Line,
    file_name,
    joined,
    line,
    packed,
    spread,
    symbol_span,
)

SIDE_BY_SIDE: Final = 150
"""From this width on, the output stands beside the story."""

TAIL_LINES: Final = 400

NOT_THEN: Final = "what it had written then is not known: its lines carry no times"


class JobScreen(ActionScreen):
    """The life of one job, and the end of what it wrote."""

    SCOPES: ClassVar[tuple[str, ...]] = ("job", "acting", "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("job", "acting", "below")]
    AUTO_FOCUS = "#story"

    def __init__(self, cluster: int, proc: int) -> None:
        super().__init__()
        self.job = (cluster, proc)
        self._tails: tuple[OutputTail, ...] = ()
        self._reading = False
        self._files = FsExecutor(lambda: None)
        self._asked: tuple[JobView, datetime | None, tuple[OutputTail, ...], int, bool] | None = (
            None
        )
        self._story = job_sections.JobSections([], [])

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        with Horizontal():
            yield Document(id="story")
            yield Document(id="output", follow=True)
        yield StaticLines(id="note")
        yield self.keys()

    def show(self, update: Snapshot | None) -> None:
        view = self.monitor.feed.job_view(*self.job)
        story, output = self.query_one("#story", Document), self.query_one("#output", Document)
        if view is None:
            self.query_one("#head", StaticLines).show(
                [line(" ", (formatting.job_id(*self.job), BOLD))]
            )
            output.display = False
            story.show(self._missing(update))
            self._note()
            return
        self.query_one("#head", StaticLines).show(self._head(view))
        self.query_one(KeyFooter).leave_out(
            ("older", "newer") if len(self._family(view)) < 2 else ()
        )
        self._read_tails(view)
        room, ascii = self.app.size.width, self.ascii
        beside = room >= SIDE_BY_SIDE and any(tail.lines for tail in self._tails)
        if output.display != beside:
            output.display = beside
        over = view.row.state in TERMINAL
        as_of = None if update is None or over else update.status.as_of
        left = room * 3 // 5 if beside else room
        asked = (view, as_of, () if beside else self._tails, left - 1, ascii)
        if asked != self._asked:
            # A job may have thousands of events: told again only when there is news.
            self._asked, self._story = asked, job_sections.story(*asked)
        told = self._story
        if beside:
            ends = job_sections.outputs(self._tails, room - left - 1, ascii)
            output.show(ends.lines, ends.sections)
        story.show(told.lines, told.sections)
        self._note()

    def _missing(self, update: Snapshot | None) -> list[Line]:
        if update is None or update.progress.fraction < 1:
            return [(), line("  ", ("The job appears as soon as its log has been read.", DIM))]
        return [
            (),
            line("  ", "No log in this directory has an event of this job."),
            line("  ", ("esc goes back.", DIM)),
        ]

    def _head(self, view: JobView) -> list[Line]:
        row, ascii, room = view.row, self.ascii, self.app.size.width
        state = symbol_span(STATES[row.state], ascii)
        lasted = formatting.duration(row.seconds, ascii)
        since = line((" for ", DIM), lasted)
        if row.state in TERMINAL:
            since = line(" ", lasted, (" ago", DIM))
        what = line(("job ", DIM), (formatting.job_id(row.cluster, row.proc), BOLD))
        left = joined((what, state + (since if row.seconds is not None else ())), line("   "))
        lines = [line(" ") + spread(left, self._which(view), room - 2, ascii)]
        node = line(("node ", DIM), plain(row.node or "none: it belongs to no DAG", 60, ascii))
        dag = line(("in ", DIM), file_name(row.dag, 40, ascii)) if row.dag else ()
        lines.append(line(" ") + joined((node, dag), line("  ")))
        if row.ambiguous:
            names = ", ".join(plain(name, 40, ascii) for name in row.ambiguous)
            whose = "may belong to any of " if len(row.ambiguous) > 1 else "may belong to "
            other = "" if len(row.ambiguous) > 1 else ", or to another directory's DAG"
            lines.append(line(" ", (whose, NOTE), (names + other, NOTE)))
        facts = job_sections.facts(row, ascii)
        if facts:
            lines += [line(" ") + each for each in packed(facts, line("   "), room - 2)]
        lines += self._progress(view)
        lines += queue_text.of_a_job(view.queue, self.monitor.now(), room - 2, ascii)
        return [*lines, ()]

    def _progress(self, view: JobView) -> list[Line]:
        """How far the running epoch is, as the job itself printed last."""
        if view.row.state is not State.RUNNING:
            return []
        self.monitor.study.want_written()
        streamed = (self.monitor.study.of(streams) or {}).get(self.job)
        if streamed is None:
            return []
        told = line(("it printed last   ", DIM)) + curves_table.progress(streamed, self.ascii)
        return [line(" ") + told]

    def _which(self, view: JobView) -> Line:
        row, ascii = view.row, self.ascii
        run = line(plain(row.run, 24, ascii)) if row.run else ()
        epoch = line(("epoch ", DIM), str(row.epoch)) if row.epoch is not None else ()
        jobs = self._family(view)
        place = f"job {jobs.index(self.job) + 1} of {len(jobs)}" if len(jobs) > 1 else ""
        return joined((run, epoch, line((place, NOTE))), line("  "))

    def _family(self, view: JobView) -> list[tuple[int, int]]:
        """The node's jobs in order of submission, this one among them."""
        jobs = list(dict.fromkeys(view.siblings))
        return jobs if self.job in jobs else sorted([*jobs, self.job])

    def _note(self) -> None:
        story = self.query_one("#story", Document)
        down = "v" if self.ascii else "↓"
        more = [line((f"{down} {story.below} more", DIM))] if story.below else []
        more = [*self.remarks(), *more]
        self.query_one("#note", StaticLines).show([rule(more, self.app.size.width, self.ascii)])

    # --- output files: read in a thread, since a dagdir on NFS can make a read wait, and with
    # patience: the end does not wait for that thread for ever ---------------------------------

    def _read_tails(self, view: JobView) -> None:
        if self._reading:
            return
        if self.monitor.travel.then is not None:
            named = ((".err", view.error), (".out", view.output))
            self._tails = tuple(OutputTail(t, n, (), NOT_THEN) for t, n in named if n is not None)
            return
        self._reading = True
        job, dagdir = self.job, self.monitor.feed.dagdir
        named = ((".err", view.error), (".out", view.output))

        def work() -> None:
            made = []
            for title, name in named:
                if name is None:
                    continue
                try:
                    with calls_through(self._files):
                        lines = call_with_timeout(_tail_of, dagdir, name)[-TAIL_LINES:]
                    made.append(OutputTail(title, name, tuple(lines)))
                except (NotRead, FsTimeout) as reason:
                    made.append(OutputTail(title, name, (), str(reason)))
                except Exception as error:
                    made.append(
                        OutputTail(title, name, (), describe_error("reading it failed", error))
                    )
            if not get_current_worker().is_cancelled:
                self.app.call_from_thread(self._have_tails, job, tuple(made))

        self.run_worker(
            work, thread=True, exit_on_error=True, group="tails", description="the output"
        )

    def on_unmount(self) -> None:
        self._files.close()

    def _have_tails(self, job: tuple[int, int], made: tuple[OutputTail, ...]) -> None:
        self._reading = False
        if job != self.job or self.monitor.travel.then is not None:
            self._again()
        elif made != self._tails:
            self._tails = made
            self._again()

    # --- acting ---------------------------------------------------------------------------

    def selection(self) -> Selection:
        """This job, and its DAG."""
        jobs = self.job_rows([self.job])
        words = f"job {formatting.job_id(*self.job)}"
        return Selection(words, jobs, self.dags_of(job.dag for job in jobs))

    # --- moving ---------------------------------------------------------------------------

    def _step(self, by: int) -> None:
        view = self.monitor.feed.job_view(*self.job)
        if view is None:
            return
        jobs = self._family(view)
        at = jobs.index(self.job) + by
        if not 0 <= at < len(jobs):
            self.say(f"this is the {'newest' if by > 0 else 'oldest'} job of its node")
        else:
            self.job = jobs[at]
            self._tails = ()
            self.query_one("#story", Document).go_to(0)
            self._again()

    def action_older(self) -> None:
        self._step(-1)

    def action_newer(self) -> None:
        self._step(1)

    def action_section(self) -> None:
        self.query_one("#story", Document).next_section()
        self._note()

    def action_owner(self) -> None:
        view = self.monitor.feed.job_view(*self.job)
        if view is not None:
            self.monitor.open_run_of(view.row)


def _tail_of(dagdir: Path, name: str) -> list[str]:
    return read_tail(output_file(dagdir, name))
