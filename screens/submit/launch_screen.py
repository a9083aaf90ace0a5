"""Confirmation, writing and submission of a new ensemble."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from time import monotonic
from typing import ClassVar, Final

from msgspec import Struct

from metlmon import authoring
from metlmon.authoring.request import Plan, PlanError
from metlmon.errors import InputError, describe_error
from metlmon.live.feed import Snapshot
from metlmon.pool.client import PoolClient
from metlmon.pool.types import PoolError, ScheddInfo, SiteInfo
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
from screens.base.screens import ConfirmationBase, heading
from screens.submit.preview import file_list, size_text


class PoolInfo(Struct, frozen=True):
    """The local schedd and the collector's sites, or why they are unknown.

    ``error`` and ``sites_error`` are the reasons; ``schedd_asked`` and ``sites_asked`` the times of
    the monotonic clock at which a running query was started.
    """

    schedd: ScheddInfo | None = None
    error: str | None = None
    sites: tuple[SiteInfo, ...] = ()
    sites_error: str | None = None
    schedd_asked: float | None = None
    sites_asked: float | None = None

    @property
    def site_names(self) -> tuple[str, ...]:
        """Names of the sites known to the collector."""
        return tuple(site.name for site in self.sites)

    @property
    def gpu_models(self) -> tuple[str, ...]:
        """GPU models of the sites, sorted."""
        return tuple(sorted({model for site in self.sites for model in site.gpus}))

    @property
    def refusal(self) -> str | None:
        """The reason why nothing can be submitted; None if it is possible."""
        if self.schedd is None:
            return self.error or "the schedd has not answered yet"
        if not self.schedd.dagman and self.schedd.submit_command is None:
            return "neither condor_dagman nor condor_submit_dag is at hand on this machine"
        return None


def submission_method(schedd_info: ScheddInfo) -> str:
    """Return the submission method."""
    if schedd_info.dagman:
        return "htcondor2, with the condor_dagman at hand"
    return plain(schedd_info.submit_command or "no way", 200)


def schedd_line(pool_info: PoolInfo, long: bool = True) -> Line:
    """Render the schedd and the user, or that there is none."""
    info = pool_info.schedd
    if info is None:
        if pool_info.error is not None:
            return line(("no schedd", NOTE))
        return line((f"asking for the schedd{wait_text(pool_info.schedd_asked)}", DIM))
    version = plain(info.version, 40)
    text = line(plain(info.schedd, 60), (" as ", DIM), plain(info.user, 40))
    return text + line((f"   HTCondor {version}", DIM)) if long else text


def wait_text(asked: float | None) -> str:
    """Return the time since a query was started, from one second on."""
    waited = 0.0 if asked is None else monotonic() - asked
    return f"  {formatting.duration(waited)}" if waited >= 1 else ""


RESULT_SECONDS: Final = 1.5
"""Seconds that the cluster id is displayed before the overview opens."""


PENDING: Final = ("▶", MOVING)
DONE: Final = ("✓", GOOD)
FAILED: Final = ("✗", ALARM)
"""Mark and style of a step: under way, done, failed."""


class LaunchStep(Struct):
    """A step of the submission; ``started`` is a time of the monotonic clock."""

    title: str
    text: str
    mark: tuple[str, TextStyle] = PENDING
    started: float = 0.0


class LaunchScreen(ConfirmationBase):
    """Lists what will be written, asks for confirmation, writes and submits."""

    SCOPES: ClassVar[tuple[str, ...]] = ("launch",)
    SHOWS_ENSEMBLE: ClassVar[bool] = False
    RESULT_SECONDS: ClassVar[float] = RESULT_SECONDS

    def __init__(self, plan: Plan, pool_info: PoolInfo) -> None:
        super().__init__()
        self.plan, self.pool_info = plan, pool_info
        self._steps: dict[str, LaunchStep] = {}
        self._replace = self._busy = self._written = self._submitted = False

    def on_mount(self) -> None:
        super().on_mount()
        self._tick = self.set_interval(1.0, self._refresh_if_mounted, pause=True)

    def update_pool_info(self, pool_info: PoolInfo) -> None:
        """Update the pool information."""
        self.pool_info = pool_info
        self._refresh_if_mounted()

    @property
    def _in_the_way(self) -> bool:
        return bool(self.plan.existing_files) and not self._written

    def hidden_actions(self) -> Collection[str]:
        return {*super().hidden_actions(), *self.refusals()}

    def refusals(self) -> Mapping[str, str]:
        """Return the unavailable actions with their reasons."""
        no: dict[str, str] = {}
        if self.pool_info.refusal is not None:
            no["launch"] = f"cannot be submitted: {self.pool_info.refusal}"
        if not self._in_the_way:
            no["replace"] = "no file is in the way"
        elif not self._replace:
            files = formatting.count(len(self.plan.existing_files), "file")
            no["launch"] = no["write"] = f"{files} in the way: F says that they may be replaced"
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
        text = [*self._progress_lines(room), *self._effect_lines(room)]
        self.show_document([head, ()], text)

    def _progress_lines(self, room: int) -> list[Line]:
        """Return the question, or the progress of the steps."""
        if not self._steps:
            return [*self._question_lines(room), ()]
        lines: list[Line] = []
        for step in self._steps.values():
            waited = monotonic() - step.started
            text = step.text
            if step.mark == PENDING and waited >= 1:
                text = f"{text}  {formatting.duration(waited)}"
            text_lines = wrap(plain(text, 4000), room - 2, indent=15)
            first = line(" ", step.mark, f" {step.title:<12}")
            lines += [first + line(text_lines[0][-1]), *text_lines[1:]]
        return [*lines, (), *self._next_keys(room), ()]

    def _next_keys(self, room: int) -> list[Line]:
        if self._busy:
            return [line(" ", ("nothing needs to be done", DIM))]
        if self._submitted:
            return [line(" ", ("enter", KEY), " watches it now")]
        back = line(("esc", KEY), " back to the form, as it was")
        if self.pool_info.refusal is not None:
            return [*wrap(self._refusal_text(), room - 2, NOTE, indent=1), line(" ") + back]
        effect = "submits it" if self._written else "tries again"
        return [line(" ", ("y", KEY), f" {effect}   ") + back]

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
            existing = f"{formatting.count(len(plan.existing_files), 'file')} in the way"
            if self._replace:
                text = line((f"{existing} will be replaced", ALARM), " ", (replaces, KEY), " no")
            else:
                text = line((existing, ALARM), ": what is in them would be lost. ")
                text += line((replaces, KEY), " yes, replace them")
            lines.append(line(" ") + text)
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
        if self._key_in_time() and not self.notify_refusal("replace"):
            self._replace = not self._replace
            self._refresh_if_mounted()

    def action_back(self) -> None:
        if not self.notify_refusal("back"):
            super().action_back()

    def action_watch(self) -> None:
        if self.notify_refusal("watch"):
            return
        try:
            self.context.watch_dagdir(self.plan.request.directory)
        except InputError as error:
            self._record_step(LaunchStep("watching", str(error), FAILED))

    def _key_in_time(self) -> bool:
        if not self.key_confirms:
            self.show_message("that key came too soon after another; press it again")
        return self.key_confirms

    def _begin(self, action: str, submit: bool) -> None:
        if not self._key_in_time() or self.notify_refusal(action):
            return
        self._busy, self._message = True, ""
        self._steps = {key: step for key, step in self._steps.items() if step.mark == DONE}
        self._tick.resume()
        pool = self.context.options.submission_pool if submit else None
        work = partial(self._work, pool, self._written, self._replace)
        # Run to the end, even if the user quits meanwhile.
        self.run_worker(work, thread=True, description="writing and submitting")
        self._refresh_if_mounted()

    def _work(self, pool: PoolClient | None, written: bool, replace_files: bool) -> None:
        """Write and submit in a thread; the screen shows each step as it begins and ends."""
        self.context.pending_task = "writing and submitting" if pool is not None else "writing"
        plan, count = self.plan, formatting.count(len(self.plan.files), "file")
        try:
            submitted = False
            if written or self._step(
                LaunchStep("writing", f"{count} into {plan.request.directory}"),
                partial(self._write, replace_files, count),
            ):
                submitted = pool is not None and self._step(
                    LaunchStep("submitting", f"{plan.dag_file}: waiting for the schedd's answer"),
                    partial(self._submit, pool),
                )
            self.call_later(self._finished, submitted)
        finally:
            self.context.pending_task = ""

    def _step(self, step: LaunchStep, do: Callable[[], str]) -> bool:
        step.started = monotonic()
        self.call_later(self._record_step, step)
        try:
            text, mark = do(), DONE
        except Exception as error:
            expected = isinstance(error, PlanError | PoolError | OSError)
            text = str(error) if expected else describe_error("it broke off", error)
            mark = FAILED
            present = _files_present(self.plan) if self._written else []
            if present:
                text = f"{text} (written and still there: {', '.join(present)})"
        self.call_later(self._record_step, LaunchStep(step.title, text, mark))
        return mark == DONE

    def _write(self, replace_files: bool, count: str) -> str:
        authoring.write_plan(self.plan, overwrite=replace_files)
        self._written = True
        return f"{count} in {self.plan.request.directory}"

    def _submit(self, pool: PoolClient) -> str:
        submission = pool.submit_dag(self.plan.request.directory / self.plan.dag_file)
        text = f": {submission.text}" if submission.text else ""
        return f"{self.plan.dag_file} is cluster {submission.cluster}, by {submission.way}{text}"

    def _record_step(self, step: LaunchStep) -> None:
        self._steps[step.title] = step
        self._refresh_if_mounted()

    def _finished(self, submitted: bool) -> None:
        self._busy, self._submitted = False, submitted
        self._tick.pause()
        if submitted:
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
