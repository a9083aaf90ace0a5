"""One job: why is it here."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.worker import get_current_worker

from metlmon.ensemble import wording
from metlmon.ensemble.states import TERMINAL, State
from metlmon.ensemble.views import JobView
from metlmon.ensemble.wording import STATES, plain
from metlmon.live.asking import Asker, NoAnswer, ask, patiently
from metlmon.live.feed import Update
from metlmon.live.tail import NotRead, output_file, read_tail
from metlmon.mishap import mishap
from metlmon.stats.curves import streams
from screens import curverows, jobstory, queueword
from screens.acting import ActingScreen
from screens.actions import bindings_of
from screens.deeds import Selection
from screens.ink import BOLD, DIM, NOTE, Line, file_name, joined, line, packed, signed, spread
from screens.jobstory import Tail
from screens.monitor import rule
from screens.widgets.document import Document
from screens.widgets.keys import Keys
from screens.widgets.panel import Panel

SIDE_BY_SIDE: Final = 150
"""From this width on, the output stands beside the story."""

TAIL_LINES: Final = 400

NOT_THEN: Final = "what it had written then is not known: its lines carry no times"


class JobScreen(ActingScreen):
    """The life of one job, and the end of what it wrote."""

    SCOPES: ClassVar[tuple[str, ...]] = ("job", "acting", "below")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("job", "acting", "below")]
    AUTO_FOCUS = "#story"

    def __init__(self, cluster: int, proc: int) -> None:
        super().__init__()
        self.job = (cluster, proc)
        self._tails: tuple[Tail, ...] = ()
        self._reading = False
        self._files = Asker(lambda: None)
        self._asked: tuple[JobView, datetime | None, tuple[Tail, ...], int, bool] | None = None
        self._story = jobstory.Story([], [])

    def compose(self) -> ComposeResult:
        yield Panel(id="head")
        with Horizontal():
            yield Document(id="story")
            yield Document(id="output", follow=True)
        yield Panel(id="note")
        yield self.keys()

    def show(self, update: Update | None) -> None:
        view = self.monitor.feed.job_view(*self.job)
        story, output = self.query_one("#story", Document), self.query_one("#output", Document)
        if view is None:
            self.query_one("#head", Panel).show([line(" ", (wording.job_id(*self.job), BOLD))])
            output.display = False
            story.show(self._missing(update))
            self._note()
            return
        self.query_one("#head", Panel).show(self._head(view))
        self.query_one(Keys).leave_out(("older", "newer") if len(self._family(view)) < 2 else ())
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
            self._asked, self._story = asked, jobstory.story(*asked)
        told = self._story
        if beside:
            ends = jobstory.outputs(self._tails, room - left - 1, ascii)
            output.show(ends.lines, ends.sections)
        story.show(told.lines, told.sections)
        self._note()

    def _missing(self, update: Update | None) -> list[Line]:
        if update is None or update.progress.fraction < 1:
            return [(), line("  ", ("The job appears as soon as its log has been read.", DIM))]
        return [
            (),
            line("  ", "No log in this directory has an event of this job."),
            line("  ", ("esc goes back.", DIM)),
        ]

    def _head(self, view: JobView) -> list[Line]:
        row, ascii, room = view.row, self.ascii, self.app.size.width
        state = signed(STATES[row.state], ascii)
        lasted = wording.duration(row.seconds, ascii)
        since = line((" for ", DIM), lasted)
        if row.state in TERMINAL:
            since = line(" ", lasted, (" ago", DIM))
        what = line(("job ", DIM), (wording.job_id(row.cluster, row.proc), BOLD))
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
        facts = jobstory.facts(row, ascii)
        if facts:
            lines += [line(" ") + each for each in packed(facts, line("   "), room - 2)]
        lines += self._progress(view)
        lines += queueword.of_a_job(view.queue, self.monitor.now(), room - 2, ascii)
        return [*lines, ()]

    def _progress(self, view: JobView) -> list[Line]:
        """How far the running epoch is, as the job itself printed last."""
        if view.row.state is not State.RUNNING:
            return []
        self.monitor.study.want_written()
        streamed = (self.monitor.study.of(streams) or {}).get(self.job)
        if streamed is None:
            return []
        told = line(("it printed last   ", DIM)) + curverows.progress(streamed, self.ascii)
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
        self.query_one("#note", Panel).show([rule(more, self.app.size.width, self.ascii)])

    # --- output files: read in a thread, since a dagdir on NFS can make a read wait, and with
    # patience: the end does not wait for that thread for ever ---------------------------------

    def _read_tails(self, view: JobView) -> None:
        if self._reading:
            return
        if self.monitor.travel.then is not None:
            named = ((".err", view.error), (".out", view.output))
            self._tails = tuple(Tail(t, n, (), NOT_THEN) for t, n in named if n is not None)
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
                    with patiently(self._files):
                        lines = ask(_tail_of, dagdir, name)[-TAIL_LINES:]
                    made.append(Tail(title, name, tuple(lines)))
                except (NotRead, NoAnswer) as reason:
                    made.append(Tail(title, name, (), str(reason)))
                except Exception as error:
                    made.append(Tail(title, name, (), mishap("reading it failed", error)))
            if not get_current_worker().is_cancelled:
                self.app.call_from_thread(self._have_tails, job, tuple(made))

        self.run_worker(
            work, thread=True, exit_on_error=True, group="tails", description="the output"
        )

    def on_unmount(self) -> None:
        self._files.close()

    def _have_tails(self, job: tuple[int, int], made: tuple[Tail, ...]) -> None:
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
        words = f"job {wording.job_id(*self.job)}"
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
