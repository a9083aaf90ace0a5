"""Confirmation, writing and submission of a new ensemble."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from time import monotonic
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message

from metlmon import authoring
from metlmon.authoring.request import Plan, PlanError
from metlmon.error_text import describe_error
from metlmon.live.errors import InputError
from metlmon.live.feed import Snapshot
from metlmon.pool.interface import PoolActions
from metlmon.pool.types import PoolError
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
    justify,
    line,
    wrap,
)
from screens.actions import bindings_of
from screens.base.confirmation import ConfirmationBase
from screens.base.screens import heading, rule
from screens.submit.pool_info import PoolInfo, schedd_line, submission_method
from screens.submit.preview import file_list, size_text
from screens.widgets.document import Document
from screens.widgets.footer import HIDDEN_IN_MODALS, KeyFooter
from screens.widgets.lines import StaticLines

RESULT_SECONDS: Final = 1.5
"""Seconds that the cluster id is displayed before the overview opens."""


class LaunchStage(Enum):
    """State of a step."""

    RUNNING = "doing"
    DONE = "done"
    FAILED = "failed"


STAGE_MARKS: Final[Mapping[LaunchStage, tuple[str, TextStyle]]] = {
    LaunchStage.RUNNING: ("▶", MOVING),
    LaunchStage.DONE: ("✓", GOOD),
    LaunchStage.FAILED: ("✗", ALARM),
}


class LaunchStep(Struct, frozen=True):
    """A step of the submission; ``started`` is a time of the monotonic clock."""

    title: str
    stage: LaunchStage
    text: str
    started: float = 0.0


class LaunchScreen(ConfirmationBase):
    """Lists what will be written, asks for confirmation, writes and submits."""

    SCOPES: ClassVar[tuple[str, ...]] = ("launch",)
    SHOWS_ENSEMBLE: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("launch")]
    RESULT_SECONDS: ClassVar[float] = RESULT_SECONDS

    class StepChanged(Message):
        """A step has begun or ended."""

        def __init__(self, step: LaunchStep) -> None:
            super().__init__()
            self.step = step

    class Finished(Message):
        """All steps have ended; ``submitted``: the DAG is in the queue."""

        def __init__(self, submitted: bool) -> None:
            super().__init__()
            self.submitted = submitted

    def __init__(self, plan: Plan, pool_info: PoolInfo) -> None:
        super().__init__()
        self.plan, self.pool_info = plan, pool_info
        self._steps: tuple[LaunchStep, ...] = ()
        self._replace = self._busy = self._written = self._submitted = False

    def compose(self) -> ComposeResult:
        yield StaticLines(id="head")
        yield Document()
        yield StaticLines(id="note")
        yield KeyFooter((*self.SCOPES, "everywhere"), HIDDEN_IN_MODALS)

    def on_mount(self) -> None:
        super().on_mount()
        self._tick = self.set_interval(1.0, self._refresh_if_mounted, pause=True)

    def update_pool_info(self, pool_info: PoolInfo) -> None:
        """Update the pool information."""
        self.pool_info = pool_info
        self._refresh_if_mounted()

    @property
    def submitted(self) -> bool:
        """Whether the DAG is in the queue."""
        return self._submitted

    @property
    def _dag(self) -> Path:
        return self.plan.request.directory / self.plan.dag_file

    @property
    def _in_the_way(self) -> bool:
        return bool(self.plan.existing_files) and not self._written

    def refusals(self) -> Mapping[str, str]:
        """Return the unavailable actions with their reasons."""
        no: dict[str, str] = {}
        if self.pool_info.refusal is not None:
            no["launch"] = f"cannot be submitted: {self.pool_info.refusal}"
        if not self._in_the_way:
            no["replace"] = "no file is in the way"
        elif not self._replace:
            files = formatting.count(len(self.plan.existing_files), "file")
            no["launch"] = no["write"] = f"{files} in the way: R says that they may be replaced"
        if self._written:
            no["write"] = "the files are written"
        if self._busy:
            no |= dict.fromkeys(("launch", "write", "replace", "back"), "an answer is awaited")
        if self._submitted:
            no |= dict.fromkeys(("launch", "write", "replace"), "the DAG is in the queue")
        else:
            no["watch"] = "nothing was submitted yet"
        return no

    # --- rendering ------------------------------------------------------------------------

    def show(self, update: Snapshot | None) -> None:
        room = self.app.size.width
        name = plain(self.plan.dag_file, 60)
        title = f"Submit {name}?"
        if self._busy or self._submitted:
            title = f"{name} is submitted" if self._submitted else f"Submitting {name}"
        right = schedd_line(self.pool_info, long=room >= 100)
        head = line(" ") + justify(line((title, BOLD)), right, room - 2)
        self.query_one("#head", StaticLines).show([head, ()])
        # The footer shows only keys that work now.
        self.query_one(KeyFooter).hide_actions(HIDDEN_IN_MODALS | self.refusals().keys())
        document = self.query_one(Document)
        document.show([*self._progress_lines(room), *self._effect_lines(room)])
        down = "↓"
        more = [line((f"{down} {document.lines_below} more", DIM))] if document.lines_below else []
        self.query_one("#note", StaticLines).show([rule([*self.messages(), *more], room)])

    def _progress_lines(self, room: int) -> list[Line]:
        """Return the question, or the progress of the steps."""
        if not self._steps:
            return [*self._question_lines(room), ()]
        lines: list[Line] = []
        for step in self._steps:
            mark, style = STAGE_MARKS[step.stage]
            waited = monotonic() - step.started
            text = step.text
            if step.stage is LaunchStage.RUNNING and waited >= 1:
                text = f"{text}  {waited:.0f} s"
            text_lines = wrap(plain(text, 4000), room - 2, indent=15)
            first = line(" ", (mark, style), f" {step.title:<12}")
            lines += [first + line(text_lines[0][-1]), *text_lines[1:]]
        return [*lines, (), *self._next_keys(room), ()]

    def _next_keys(self, room: int) -> list[Line]:
        if self._busy:
            return [line(" ", ("nothing needs to be done", DIM))]
        if self._submitted:
            return [line(" ", ("enter", KEY), " watches it now")]
        again = line("   ", ("esc", KEY), " back to the form, as it was")
        if self.pool_info.refusal is not None:
            lines = wrap(self._refusal_text(), room - 2, NOTE, indent=1)
            return [*lines, line(" ", ("esc", KEY), " back to the form, as it was")]
        effect = "submits it" if self._written else "tries again"
        return [line(" ", ("y", KEY), f" {effect}") + again]

    def _refusal_text(self) -> str:
        return plain(f"It cannot be submitted: {self.pool_info.refusal}", 2000)

    def _question_lines(self, room: int) -> list[Line]:
        plan = self.plan
        files = formatting.count(len(plan.files), "file")
        jobs = formatting.count(plan.jobs, "job")
        lines: list[Line] = []
        # Show a key only once it is accepted.
        replaces, yes, writes = ("R", "y", "w") if self.can_confirm else "   "
        if self._in_the_way:
            n = len(plan.existing_files)
            existing = f"{formatting.count(n, 'file')} in the way"
            if self._replace:
                lines.append(
                    line(" ", (f"{existing} will be replaced", ALARM), " ", (replaces, KEY), " no")
                )
            else:
                warning = ": what is in them would be lost. "
                lines.append(
                    line(" ", (existing, ALARM), warning, (replaces, KEY), " yes, replace them")
                )
        refusals = self.refusals()
        if "launch" not in refusals:
            lines.append(line(" ", (yes, KEY), f"    writes {files} and submits {jobs}"))
        elif self.pool_info.refusal is not None:
            lines += wrap(self._refusal_text(), room - 2, NOTE, indent=1)
        if "write" not in refusals:
            lines.append(line(" ", (writes, KEY), f"    writes {files}, and submits nothing"))
        lines.append(line(" ", ("esc", KEY), "  back to the form; nothing is written"))
        return lines

    def _effect_lines(self, room: int) -> list[Line]:
        plan, pool_info = self.plan, self.pool_info
        size = size_text(plan)
        nodes = formatting.count(plan.nodes, "node")
        jobs = formatting.count(plan.jobs, "job")
        facts: list[tuple[str, str]] = [
            ("directory", str(plan.request.directory)),
            ("DAG", f"{plan.dag_file}, {size}: {nodes}, {jobs}"),
        ]
        if pool_info.schedd is not None:
            facts += [
                ("schedd", f"{pool_info.schedd.schedd}, HTCondor {pool_info.schedd.version}"),
                ("user", pool_info.schedd.user),
                ("by way of", submission_method(pool_info.schedd)),
            ]
        else:
            facts.append(("schedd", pool_info.error or "not answered yet"))
        lines = [heading("What is touched", room)]
        for label, text in facts:
            text_lines = wrap(plain(text, 4000), room - 2, indent=14)
            lines += [line(" ", (f"{label:<13}", DIM), text_lines[0][-1]), *text_lines[1:]]
        count = formatting.count(len(plan.files), "file")
        new, existing = "new", "to be replaced" if self._replace else "in the way"
        if self._written:
            new, existing = "written", "replaced"
        lines += [(), heading(count, room), *file_list(plan, new, existing)]
        undo = "To take it back: D on its overview removes the DAG; the files stay."
        return [*lines, (), line(" ", (undo, DIM))]

    # --- actions --------------------------------------------------------------------------

    def action_launch(self) -> None:
        self._begin("launch", submit=True)

    def action_write(self) -> None:
        self._begin("write", submit=False)

    def action_replace(self) -> None:
        if self._key_in_time() and not self._notify_refusal("replace"):
            self._replace = not self._replace
            self._refresh_if_mounted()

    def action_back(self) -> None:
        if not self._notify_refusal("back"):
            super().action_back()

    def action_watch(self) -> None:
        if self._notify_refusal("watch"):
            return
        try:
            self.context.watch_dagdir(self.plan.request.directory)
        except InputError as error:
            self._record_step(LaunchStep("watching", LaunchStage.FAILED, str(error)))

    def _key_in_time(self) -> bool:
        if not self.key_confirms:
            self.show_message("that key came too soon after another; press it again")
        return self.key_confirms

    def _notify_refusal(self, action: str) -> bool:
        reason = self.refusals().get(action)
        if reason is not None:
            self.show_message(reason)
        return reason is not None

    def _begin(self, action: str, submit: bool) -> None:
        if not self._key_in_time() or self._notify_refusal(action):
            return
        self._busy, self._message = True, ""
        self._steps = tuple(step for step in self._steps if step.stage is LaunchStage.DONE)
        self._tick.resume()
        pool = self.context.options.submission_pool if submit else None
        work = partial(self._work, pool, self._written, self._replace)
        # Run to the end, even if the user quits meanwhile.
        self.run_worker(work, thread=True, description="writing and submitting")
        self._refresh_if_mounted()

    def _work(self, pool: PoolActions | None, written: bool, replace_files: bool) -> None:
        """Write, then submit, in a thread; each step posts its begin and end."""
        self.context.pending_task = "writing and submitting" if pool is not None else "writing"
        try:
            self._work_through(pool, written, replace_files)
        finally:
            self.context.pending_task = ""

    def _work_through(self, pool: PoolActions | None, written: bool, replace_files: bool) -> None:
        plan = self.plan
        count = formatting.count(len(plan.files), "file")
        if not written and not self._step(
            LaunchStep("writing", LaunchStage.RUNNING, f"{count} into {plan.request.directory}"),
            partial(self._write, replace_files, count),
        ):
            self.post_message(self.Finished(False))
            return
        done = pool is not None and self._step(
            LaunchStep(
                "submitting",
                LaunchStage.RUNNING,
                f"{plan.dag_file}: waiting for the schedd's answer",
            ),
            partial(self._submit, pool),
        )
        self.post_message(self.Finished(done))

    def _step(self, step: LaunchStep, do: Callable[[], str]) -> bool:
        step = replace(step, started=monotonic())
        self.post_message(self.StepChanged(step))
        try:
            text, stage = do(), LaunchStage.DONE
        except Exception as error:
            expected = isinstance(error, PlanError | PoolError | OSError)
            text = str(error) if expected else describe_error("it broke off", error)
            stage = LaunchStage.FAILED
            present = _files_present(self.plan) if self._written else []
            if present:
                text = f"{text} (written and still there: {', '.join(present)})"
        self.post_message(self.StepChanged(replace(step, stage=stage, text=text)))
        return stage is LaunchStage.DONE

    def _write(self, replace_files: bool, count: str) -> str:
        authoring.write_plan(self.plan, overwrite=replace_files)
        self._written = True
        return f"{count} in {self.plan.request.directory}"

    def _submit(self, pool: PoolActions) -> str:
        submission = pool.submit_dag(self._dag)
        text = f": {submission.text}" if submission.text else ""
        return f"{self.plan.dag_file} is cluster {submission.cluster}, by {submission.way}{text}"

    def on_launch_screen_step_changed(self, event: StepChanged) -> None:
        self._record_step(event.step)

    def _record_step(self, step: LaunchStep) -> None:
        others = tuple(earlier for earlier in self._steps if earlier.title != step.title)
        self._steps = (*others, step)
        self._refresh_if_mounted()

    def on_launch_screen_finished(self, event: Finished) -> None:
        self._busy, self._submitted = False, event.submitted
        self._tick.pause()
        if event.submitted:
            self.set_timer(self.RESULT_SECONDS, self.action_watch)
        self._refresh_if_mounted()


def _files_present(plan: Plan) -> list[str]:
    """Return the files of the plan that exist with the planned content."""

    def same(name: str, data: bytes) -> bool:
        path = plan.request.directory / name
        try:
            return path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data
        except OSError:
            return False

    return [file.name for file in plan.files if same(file.name, file.data)]
