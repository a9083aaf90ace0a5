"""Labels and symbols of pool actions, selections, and running actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partialmethod
from pathlib import PurePath
from typing import Final

import msgspec
from msgspec import Struct, field

from metlmon.errors import describe_error
from metlmon.pool.client import PoolClient
from metlmon.pool.types import (
    AS_THE_DAG_SAYS,
    DAG_ACTS,
    SITE_ACTS,
    ActionPreview,
    ActionRequest,
    ActionResult,
    PoolAction,
    PoolError,
    ResultCode,
    RunTarget,
    SelectedRun,
)
from metlmon.snapshot.records import DagRow, Job
from metlmon.stats.totals import group_by
from metlmon.text import formatting
from metlmon.text.formatting import Colour, Symbol, Weight, plain
from metlmon.text.spans import ALARM, DIM, Line, join, line, style_of
from screens.actions import ACTIONS, Action


class ActionTexts(msgspec.Struct, frozen=True):
    """The question of an action, and the beginning of the title of its results."""

    question: str
    progress: str


TEXTS: Final[Mapping[PoolAction, ActionTexts]] = {
    PoolAction.HOLD: ActionTexts("Hold {}?", "Holding"),
    PoolAction.RELEASE: ActionTexts("Release {}?", "Releasing"),
    PoolAction.REMOVE: ActionTexts("Remove {} from the queue?", "Removing"),
    PoolAction.VACATE: ActionTexts("Vacate {}?", "Vacating"),
    PoolAction.PRIORITY: ActionTexts("Set the priority of {}", "Setting the priority of"),
    PoolAction.RETARGET: ActionTexts("Retarget {}", "Retargeting"),
    PoolAction.HALT: ActionTexts("Halt {}?", "Halting"),
    PoolAction.RESUME: ActionTexts("Resume {}?", "Resuming"),
    PoolAction.RELEASE_DAG: ActionTexts("Release DAGMan of {}?", "Releasing DAGMan of"),
    PoolAction.REMOVE_DAG: ActionTexts("Remove {}", "Removing"),
    PoolAction.RESUBMIT: ActionTexts(
        "Submit {} again, from its newest rescue file?", "Submitting again"
    ),
    PoolAction.STOP: ActionTexts("Stop {} after the epoch that is under way?", "Stopping"),
    PoolAction.STOP_NOW: ActionTexts("Stop {} now?", "Stopping now"),
    PoolAction.PAUSE: ActionTexts("Pause {} before the next epoch?", "Pausing"),
    PoolAction.RESUME_RUN: ActionTexts("Resume {}?", "Resuming"),
    PoolAction.SEND: ActionTexts("Send the next epochs of {}", "Sending"),
    PoolAction.EXCLUDE_SITE: ActionTexts("Exclude the site {}?", "Excluding the site"),
    PoolAction.INCLUDE_SITE: ActionTexts("Include the site {} again?", "Including the site"),
}

IRREVERSIBLE: Final = frozenset(
    {PoolAction.REMOVE, PoolAction.REMOVE_DAG, PoolAction.STOP, PoolAction.STOP_NOW}
)
"""Actions that no other key undoes."""

SITE_ACTIONS: Final = (PoolAction.RETARGET, PoolAction.SEND)
"""Actions that need a site."""

RESULT_SYMBOLS: Final[Mapping[ResultCode, Symbol]] = {
    ResultCode.DENIED: Symbol("✗", "permission denied", Colour.VERMILLION, Weight.BOLD),
    ResultCode.FAILED: Symbol("✗", "failed", Colour.VERMILLION, Weight.BOLD),
    ResultCode.NOT_FOUND: Symbol("?", "not found", Colour.ORANGE),
    ResultCode.BAD_STATE: Symbol("!", "not possible in this state", Colour.ORANGE),
    ResultCode.ALREADY: Symbol("=", "already so", Colour.SKY),
    ResultCode.DONE: Symbol("✓", "done", Colour.GREEN),
}
"""Symbols of the results, in display order: most urgent first."""

_NAMES: Final = {
    PoolAction.RESUME: "halt",
    PoolAction.RELEASE_DAG: "release",
    PoolAction.PAUSE: "pause_run",
}
"""Names of actions that differ from the pool action: ``pause`` is ctrl+z."""


class Selection(msgspec.Struct, frozen=True):
    """The marked rows, or the row under the cursor.

    ``description`` describes it; ``jobs`` are its jobs in any state, ``dags`` the DAGs they belong
    to, ``runs`` the runs on screens that list runs, ``site`` the site on those that list sites
    ("": none is selected).
    """

    description: str
    jobs: tuple[Job, ...] = ()
    dags: tuple[DagRow, ...] = ()
    runs: tuple[SelectedRun, ...] = ()
    site: str | None = None


class RunningAction(Struct):
    """A pool action that is running or has ended.

    ``results`` holds the results so far, ``error`` the message of a failure, ``end_shown`` whether
    the end was displayed. The performing thread only appends to ``results``, then sets ``error``
    and ``ended``.
    """

    preview: ActionPreview
    request: ActionRequest
    results: list[ActionResult] = field(default_factory=list)
    error: str | None = None
    ended: bool = False
    end_shown: bool = False

    @property
    def total(self) -> int:
        """The expected number of results: one per run and job, or one for the DAG."""
        return 1 if self.request.act in DAG_ACTS else len(self.request.touched)

    def perform(
        self, pool: PoolClient, on_progress: Callable[[], None], is_exiting: Callable[[], bool]
    ) -> None:
        """Perform the action, and record its results; runs in a thread.

        After quitting (``is_exiting``) it is completed, but without waiting job by job for a
        schedd that does not respond.
        """

        def on_result(result: ActionResult) -> None:
            self.results.append(result)
            on_progress()
            if is_exiting() and result.code is ResultCode.FAILED:
                raise PoolError("metlmon was left, and the schedd did not answer")

        try:
            results = pool.perform(self.request, on_result)
            # Includes results that were not reported on the way.
            self.results = list(results)
        except PoolError as error:
            self.error = str(error)
        except Exception as error:
            self.error = describe_error(
                "it broke off; look into the queue for what was done", error
            )
        self.ended = True

    def status_line(self) -> Line:
        """Render the state: ``hold: 3 of 12 answered``, then the outcome."""
        name = line((f"{name_of(self.request.act)}: ", DIM))
        if not self.ended:
            return name + line(f"{len(self.results)} of {self.total} answered")
        outcome = summary(self.results)
        if self.error is not None:
            outcome.append(line((plain(self.error, 200), ALARM)))
        return name + join(outcome, line("   ")) + line(("   A: per job", DIM))


def action_of(act: PoolAction) -> Action:
    """Return the keyboard action of a pool action; halt and resume share one."""
    name = _NAMES.get(act, act.value.replace("-", "_"))
    return next(action for action in ACTIONS if (action.scope, action.name) == ("acts", name))


def name_of(act: PoolAction) -> str:
    """Return the short name of a pool action."""
    if act is PoolAction.RELEASE_DAG:
        return "release DAG"
    return act.value if act in (PoolAction.HALT, PoolAction.RESUME) else action_of(act).label


def question_text(preview: ActionPreview, job_count: int, value: int | str | None) -> str:
    """Return the confirmation question: ``Hold 3 jobs of run4?``.

    ``job_count`` is the number of jobs removed with a DAG; ``value`` the new priority or site, None
    until it is entered.
    """
    text = TEXTS[preview.act].question.format(plain(preview.subject, 120))
    if preview.act is PoolAction.REMOVE_DAG:
        return f"{text} and its {formatting.count(job_count, 'job')} in the queue?"
    if value == AS_THE_DAG_SAYS:
        return f"{text} where the DAG says?"
    return text if value is None else f"{text} to {plain(str(value), 60)}?"


def files_title(order: ActionRequest) -> str:
    """Return the title of the file list: ``It writes 3 files in gate/ens``."""
    count = formatting.count(sum(len(run.files) for run in order.runs), "file")
    folder = common_folder(order.runs)
    suffix = f" in {plain(folder, 60)}" if folder is not None else ""
    deletes = order.act is PoolAction.RESUME_RUN or order.site == AS_THE_DAG_SAYS
    return f"It {'deletes' if deletes else 'writes'} {count}{suffix}"


def common_folder(runs: Sequence[RunTarget]) -> str | None:
    """Return the directory of all the files, or None if there are several."""
    folders = {str(PurePath(file).parent) for run in runs for file in run.files}
    return folders.pop() if len(folders) == 1 else None


def refused_previews(reason: str, selection: Selection) -> tuple[ActionPreview, ...]:
    """Return every pool action, refused for one reason."""
    acts = [act for act in PoolAction if selection.site is not None or act not in SITE_ACTS]
    return tuple(
        ActionPreview(act, "" if act in DAG_ACTS else selection.description, None, reason)
        for act in acts
    )


def without_ruled_out(previews: Sequence[ActionPreview]) -> list[ActionPreview]:
    """Drop halt or resume of each DAG, whichever its state rules out.

    They share a key. Releasing DAGMan is offered only while it is held; excluding a site or
    including it, whichever is possible.
    """
    resumable = {
        preview.subject
        for preview in previews
        if preview.act is PoolAction.RESUME and is_possible(preview)
    }

    can_include = any(is_possible(p) for p in previews if p.act is PoolAction.INCLUDE_SITE)

    def is_offered(preview: ActionPreview) -> bool:
        if preview.act in (PoolAction.HALT, PoolAction.RESUME):
            return (preview.act is PoolAction.RESUME) == (preview.subject in resumable)
        if preview.act is PoolAction.EXCLUDE_SITE and can_include:
            return is_possible(preview)
        if preview.act in (PoolAction.RELEASE_DAG, PoolAction.INCLUDE_SITE):
            return is_possible(preview)
        return True

    return [preview for preview in previews if is_offered(preview)]


def is_possible(preview: ActionPreview) -> bool:
    """Return whether the action can be requested."""
    return preview.refused is None and preview.request is not None


def refusal_text(preview: ActionPreview, limit: int) -> str:
    """Return why the action is not possible."""
    return plain(preview.refused or "nothing is selected", limit)


def capitalized(text: str) -> str:
    """Return the sanitised text with a capital first letter."""
    clean = plain(text, 600)
    return clean[:1].upper() + clean[1:]


def undo_text(preview: ActionPreview) -> str:
    """Return how to undo the action, or that it cannot be undone."""
    text = plain(preview.undo, 600)
    return capitalized(text) if "cannot be undone" in text else f"To undo: {text}"


def target_text(preview: ActionPreview) -> str:
    """Return the targets and their number: ``3 jobs of run4, 1 left out``."""
    text = plain(preview.subject, 80)
    if preview.left_out:
        text += f", {formatting.number(len(preview.left_out))} left out"
    return text


def summary(results: Sequence[ActionResult]) -> list[Line]:
    """Count the results: ``✗ 1 permission denied``, ``✓ 11 done``, most urgent first."""
    counts = Counter(result.code for result in results)
    return [
        line((f"{sign.glyph} {formatting.number(counts[reply])} {sign.word}", style_of(sign)))
        for reply, sign in RESULT_SYMBOLS.items()
        if counts[reply]
    ]


class PoolActionKeys:
    """Key handlers of the pool actions, for a screen with :meth:`request_action`."""

    def request_action(self, *acts: PoolAction) -> None:
        """Request the first of these actions that is possible."""
        raise NotImplementedError

    def _request(self, *acts: PoolAction) -> None:
        self.request_action(*acts)


for _name, _acts in group_by(PoolAction, lambda act: action_of(act).name).items():
    setattr(PoolActionKeys, f"action_{_name}", partialmethod(PoolActionKeys._request, *_acts))
