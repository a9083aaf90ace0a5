"""The screen of one job: its state, history and output."""

from __future__ import annotations

from functools import partialmethod
from pathlib import Path
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.containers import Horizontal

from metlmon.errors import describe_error
from metlmon.live.feed import Snapshot
from metlmon.live.file_access import (
    FsExecutor,
    FsTimeout,
    UnreadableFile,
    call_with_timeout,
    calls_through,
    output_file,
    read_tail,
)
from metlmon.model.states import TERMINAL, State
from metlmon.snapshot.records import JobView
from metlmon.stats.lineage import CheckpointOrigin, lineage
from metlmon.tables import curves as curves_table
from metlmon.text import formatting
from metlmon.text.formatting import STATES, clip
from metlmon.text.spans import (
    ALARM,
    BOLD,
    DIM,
    NOTE,
    Line,
    file_name,
    join,
    justify,
    line,
    symbol_span,
    wrap_parts,
)
from screens.base.action_screen import ActionScreen
from screens.base.screens import job_queue_lines
from screens.base.stats_worker import streams
from screens.job import sections as job_sections
from screens.job.job_tools import JobTools
from screens.job.sections import NO_OUTPUT_IN_PAST, OutputTail
from screens.pool_actions.running_action import Selection
from screens.widgets.line_widget import Document, StaticLines

SIDE_BY_SIDE: Final = 150
"""From this width on, the output is shown beside the sections."""

TAIL_LINES: Final = 400


class JobScreen(JobTools, ActionScreen):
    """The history of one job, and the end of its output files."""

    SCOPES: ClassVar[tuple[str, ...]] = ("job", "acting", "below")
    AUTO_FOCUS = "#story"

    def __init__(self, cluster: int, proc: int) -> None:
        super().__init__()
        self.job = (cluster, proc)
        self._is_only_job = False
        self._tails: tuple[OutputTail, ...] = ()
        self._reading = False
        self._files = FsExecutor(lambda: None)
        self._inputs: tuple[Any, ...] | None = None
        self._sections = job_sections.JobSections([], [])

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        with Horizontal():
            yield Document(id="story")
            yield Document(id="output", follow=True)
        yield StaticLines(id="note")
        yield self.key_footer()

    def hidden_actions(self) -> tuple[str, ...]:
        return ("previous", "next") if self._is_only_job else ()

    def show(self, snapshot: Snapshot | None) -> None:
        view = self.context.feed.job_view(*self.job)
        document, output = self.query_one("#story", Document), self.query_one("#output", Document)
        if view is None:
            self.show_head([line(" ", (formatting.job_id(*self.job), BOLD))])
            output.display = False
            document.show(self._missing_text(snapshot))
            self._update_note()
            return
        self.show_head(self._header(view))
        self._is_only_job = len(self._node_jobs(view)) < 2
        self._read_tails(view)
        room = self.app.size.width
        side_by_side = room >= SIDE_BY_SIDE and any(tail.lines for tail in self._tails)
        if output.display != side_by_side:
            output.display = side_by_side
        ended = view.job.state in TERMINAL
        as_of = None if snapshot is None or ended else snapshot.status.as_of
        left_width = room * 3 // 5 if side_by_side else room
        tails = () if side_by_side else self._tails
        inputs = (view, as_of, tails, left_width - 1, self.this_year, self._origin())
        if inputs != self._inputs:
            # A job may have thousands of events: build the sections only after a change.
            self._inputs, self._sections = inputs, job_sections.build_sections(*inputs)
        content = self._sections
        if side_by_side:
            output_content = job_sections.output_sections(self._tails, room - left_width - 1)
            output.show(output_content.lines, output_content.sections)
        document.show(content.lines, content.sections)
        self._update_note()

    def _origin(self) -> CheckpointOrigin | None:
        """Where the checkpoint of the job's epoch comes from, once that is known."""
        self.context.stats.watch_job_files()
        known = self.context.stats.value(lineage)
        return known.of_job(self.job) if known is not None else None

    def _missing_text(self, snapshot: Snapshot | None) -> list[Line]:
        if snapshot is None or not snapshot.is_complete:
            return [(), line("  ", ("The job appears as soon as its log has been read.", DIM))]
        return [
            (),
            line("  ", "No log in this directory has an event of this job."),
            line("  ", ("[esc] goes back.", DIM)),
        ]

    def _header(self, view: JobView) -> list[Line]:
        row, room = view.job, self.app.size.width
        state = symbol_span(STATES[row.state])
        duration = formatting.duration(view.seconds)
        since = line((" for ", DIM), duration)
        if row.state in TERMINAL:
            since = line(" ", duration, (" ago", DIM))
        elif row.state is State.HELD and (clock := self.removal_clock(*self.job)):
            since += line((f", {clock}", ALARM))
        title = line(("job ", DIM), (formatting.job_id(row.cluster, row.proc), BOLD))
        left = join((title, state + (since if view.seconds is not None else ())), line("   "))
        lines = [line(" ") + justify(left, self._job_label(view), room - 2)]
        node = line(("node ", DIM), clip(row.node_name or "none: it belongs to no DAG", 60))
        dag = line(("in ", DIM), file_name(row.dag, 40)) if row.dag else ()
        lines.append(line(" ") + join((node, dag), line("  ")))
        if row.candidates:
            names = ", ".join(clip(name, 40) for name in row.candidates)
            prefix = "may belong to any of " if len(row.candidates) > 1 else "may belong to "
            suffix = "" if len(row.candidates) > 1 else ", or to another directory's DAG"
            lines.append(line(" ", (prefix, NOTE), (names + suffix, NOTE)))
        facts = job_sections.facts(view, self.this_year)
        if facts:
            lines += [line(" ") + content for content in wrap_parts(facts, line("   "), room - 2)]
        lines += self._progress(view)
        lines += job_queue_lines(view, self.context.now(), room - 2)
        return [*lines, ()]

    def _progress(self, view: JobView) -> list[Line]:
        """Progress of the running epoch, from the last progress line of the job."""
        if view.job.state is not State.RUNNING:
            return []
        self.context.stats.watch_job_files()
        streamed = (self.context.stats.value(streams) or {}).get(self.job)
        if streamed is None:
            return []
        content = line(("it printed last   ", DIM)) + curves_table.progress(streamed)
        return [line(" ") + content]

    def _job_label(self, view: JobView) -> Line:
        row = view.job
        run = line(clip(row.run_name, 24)) if row.run_name else ()
        epoch = (
            line(("epoch ", DIM), formatting.epoch_text(row.epoch)) if row.epoch is not None else ()
        )
        jobs = self._node_jobs(view)
        place = f"job {jobs.index(self.job) + 1} of {len(jobs)}" if len(jobs) > 1 else ""
        return join((run, epoch, line((place, NOTE))), line("  "))

    def _node_jobs(self, view: JobView) -> list[tuple[int, int]]:
        """The jobs of the node in order of submission, including this one."""
        jobs = list(dict.fromkeys(view.siblings))
        return jobs if self.job in jobs else sorted([*jobs, self.job])

    def _update_note(self) -> None:
        self.show_document_note(self.query_one("#story", Document))

    # --- output files: read in a thread with a time-out, since a read on NFS can block ---------

    def _read_tails(self, view: JobView) -> None:
        if self._reading:
            return
        names = ((".err", view.error), (".out", view.output))
        files = [(title, name) for title, name in names if name is not None]
        if self.context.time_travel.past_view is not None:
            self._tails = tuple(OutputTail(*file, (), NO_OUTPUT_IN_PAST) for file in files)
            return
        self._reading = True
        job, dagdir = self.job, self.context.feed.dagdir

        def read() -> None:
            tails = tuple(self._read_tail(dagdir, *file) for file in files)
            self.call_later(self._set_tails, job, tails)

        self.run_worker(
            read, thread=True, exit_on_error=True, group="tails", description="the output"
        )

    def _read_tail(self, dagdir: Path, title: str, name: str) -> OutputTail:
        try:
            with calls_through(self._files):
                lines = call_with_timeout(lambda path: read_tail(output_file(path, name)), dagdir)
            return OutputTail(title, name, tuple(lines[-TAIL_LINES:]))
        except (UnreadableFile, FsTimeout) as reason:
            return OutputTail(title, name, (), str(reason))
        except Exception as error:
            return OutputTail(title, name, (), describe_error("reading it failed", error))

    def on_unmount(self) -> None:
        self._files.close()

    def _set_tails(self, job: tuple[int, int], tails: tuple[OutputTail, ...]) -> None:
        self._reading = False
        if job != self.job or self.context.time_travel.past_view is not None:
            self._refresh_if_mounted()
        elif tails != self._tails:
            self._tails = tails
            self._refresh_if_mounted()

    # --- acting ---------------------------------------------------------------------------

    def selection(self) -> Selection:
        """This job and its DAG."""
        jobs = self.job_rows([self.job])
        text = f"job {formatting.job_id(*self.job)}"
        return Selection(text, jobs, self.dags_of(job.dag for job in jobs))

    # --- moving ---------------------------------------------------------------------------

    def _step(self, delta: int) -> None:
        view = self.context.feed.job_view(*self.job)
        if view is None:
            return
        jobs = self._node_jobs(view)
        index = jobs.index(self.job) + delta
        if not 0 <= index < len(jobs):
            self.show_message(f"this is the {'newest' if delta > 0 else 'oldest'} job of its node")
        else:
            self.job = jobs[index]
            self._tails = ()
            self.query_one("#story", Document).scroll_to_line(0)
            self._refresh_if_mounted()

    action_previous = partialmethod(_step, -1)
    action_next = partialmethod(_step, 1)

    def action_section(self) -> None:
        self.query_one("#story", Document).next_section()
        self._update_note()

    def action_output(self) -> None:
        self.context.open_screen("output", *self.job)

    def action_owner(self) -> None:
        view = self.context.feed.job_view(*self.job)
        if view is not None:
            self.context.open_run_of(view.job)
