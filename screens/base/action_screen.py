"""Base class of screens with pool actions on a selection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from textual import on

from metlmon.pool.site_exclusion import EXCLUDED, NOT_EXCLUDED
from metlmon.pool.types import DAG_ACTS, SITE_ACTS, ActionPreview, PoolAction
from metlmon.snapshot.records import DagRow, Job, JobView, Run
from metlmon.text.formatting import plain
from metlmon.text.spans import Line
from screens.base.screens import SnapshotScreen
from screens.pool_actions.confirm import ConfirmScreen
from screens.pool_actions.menu import MenuScreen, ResultsScreen
from screens.pool_actions.running_action import (
    PoolActionKeys,
    Selection,
    action_of,
    is_possible,
    refused_previews,
    without_ruled_out,
)
from screens.widgets.table import Table

ACTION_SCOPES: Final = ("marking", "acting")
"""Scopes of a table whose rows can be marked and acted on."""


class ActionScreen(PoolActionKeys, SnapshotScreen):
    """A screen with the keys of the pool actions. Subclasses define the selection."""

    PALETTE_SCOPES = ("acts",)

    def selection(self) -> Selection:
        """The marked rows, or else the row under the cursor."""
        raise NotImplementedError

    def previews(self) -> list[ActionPreview]:
        """Previews of all pool actions on the selection; DAG actions once per DAG."""
        selection, snapshot, pool = (
            self.selection(),
            self.context.snapshot,
            self.context.pool_actions,
        )
        refusal = self.context.action_refusal()
        if refusal is not None or snapshot is None or pool is None:
            refused = refused_previews(refusal or "nothing was read yet", selection)
            return without_ruled_out(self._fitting(refused, selection))
        previews = pool.previews(
            snapshot.status, selection.jobs, selection.dags, selection.runs, selection.site
        )
        if len(selection.dags) > 1:
            previews = tuple(preview for preview in previews if preview.act not in DAG_ACTS)
            for dag in selection.dags:
                dag_previews = pool.previews(snapshot.status, (), (dag,))
                previews += tuple(preview for preview in dag_previews if preview.act in DAG_ACTS)
            # Sorted by action, then DAG: a menu row too far is the same action on another
            # DAG, not another action.
            previews = tuple(
                sorted(previews, key=lambda preview: list(PoolAction).index(preview.act))
            )
        return without_ruled_out(self._fitting(previews, selection))

    def _fitting(
        self, previews: Iterable[ActionPreview], selection: Selection
    ) -> list[ActionPreview]:
        """The previews without those of jobs, DAGs and runs where only a site is selected."""
        only_site = selection.site is not None and not (
            selection.jobs or selection.dags or selection.runs
        )
        return [each for each in previews if not only_site or each.act in SITE_ACTS]

    def refusals(self) -> Mapping[str, str]:
        """Reasons, by action name, of actions of which every preview is refused."""
        if self.context.options.read_only:
            return {}
        previews = self.previews()
        possible_names = {
            action_of(preview.act).name for preview in previews if is_possible(preview)
        }
        site = self.selection().site
        reasons = {action_of(act).name: _missing(act, site) for act in PoolAction}
        reasons |= {
            action_of(preview.act).name: preview.refused or "nothing is selected"
            for preview in previews
        }
        refused_names = {name: why for name, why in reasons.items() if name not in possible_names}
        if self.context.running_action is None:
            refused_names["answers"] = "nothing was asked yet"
        return refused_names

    def request_action(self, *actions: PoolAction) -> None:
        """Open the confirmation of one of these actions.

        Where several are possible, or it is refused, open the menu with the reason instead.
        """
        previews = [preview for preview in self.previews() if preview.act in actions]
        possible_previews = [preview for preview in previews if is_possible(preview)]
        if len(previews) == 1 and possible_previews:
            self.open_confirmation(possible_previews[0])
        else:
            self.context.push_screen(
                MenuScreen(self, (possible_previews or previews)[0] if previews else None)
            )

    def open_confirmation(self, preview: ActionPreview) -> None:
        """Open the confirmation, with all queued jobs that the action also removes."""
        also_removed: tuple[Job, ...] = ()
        if preview.act is PoolAction.REMOVE_DAG and preview.request is not None:
            queued = self.context.feed.queued_jobs()
            also_removed = tuple(job for job in queued if job.dag == preview.request.dag)
        self.context.push_screen(ConfirmScreen(preview, also_removed, self.clear_all_marks))

    def clear_all_marks(self) -> None:
        """Clear the marks after a confirmed action, so that the next one starts afresh."""
        for table in self.query(Table):
            table.clear_marks()

    def action_acts(self) -> None:
        self.context.push_screen(MenuScreen(self))

    def action_answers(self) -> None:
        if self.context.running_action is None:
            self.show_message("nothing was asked of the schedd yet")
        else:
            self.context.push_screen(ResultsScreen(self.context.running_action))

    def messages(self) -> list[Line]:
        """Progress of the latest pool action until its end was seen, and other notes."""
        action = self.context.running_action
        lines = [action.status_line()] if action is not None and not action.end_shown else []
        return [*lines, *super().messages()]

    @on(Table.RowHighlighted)
    def _mark_action_seen(self) -> None:
        if self.context.running_action is not None and self.context.running_action.ended:
            self.context.running_action.end_shown = True

    # --- parts of selections --------------------------------------------------------------

    def dags_of(self, files: Iterable[str | None]) -> tuple[DagRow, ...]:
        """The DAGs with these files, in the snapshot's order."""
        wanted, snapshot = frozenset(files), self.context.snapshot
        dags = () if snapshot is None else snapshot.status.dags
        return tuple(dag for dag in dags if dag.file in wanted)

    def job_rows(self, jobs: Iterable[tuple[int, int]]) -> tuple[Job, ...]:
        """The jobs with these ids, whatever their state."""
        return tuple(view.job for view in self.job_views(jobs))

    def job_views(self, jobs: Iterable[tuple[int, int]]) -> list[JobView]:
        """The jobs with these ids, whatever their state, with their details."""
        views = (self.context.feed.job_view(*job) for job in jobs)
        return [view for view in views if view is not None]

    def name_or_count(self, names: list[str], noun: str) -> str:
        """The one name, or the number of names: ``run4``, ``3 runs``."""
        if len(names) == 1:
            return plain(names[0], 40)
        return f"{len(names)} {noun}s" if names else "nothing"


def _missing(act: PoolAction, site: str | None) -> str:
    """Why there is no preview of an action."""
    if act not in SITE_ACTS:
        return "no job, run or DAG is selected"
    if not site:
        return "no site is selected: see Sites"
    return f"the site is {EXCLUDED if act is PoolAction.EXCLUDE_SITE else NOT_EXCLUDED}"


def jobs_of_runs(runs: Iterable[Run], queued: Iterable[Job]) -> dict[str, list[Job]]:
    """The queued jobs of each run, by its key."""
    jobs: dict[str, list[Job]] = {run.key: [] for run in runs}
    for job in queued:
        if job.run in jobs:
            jobs[job.run].append(job)
    return jobs
