"""A screen from which jobs and DAGs can be acted on: what is selected, and what may be done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from textual import on

from metlmon.pool.types import DAG_ACTS, ActionPreview, PoolAction
from metlmon.snapshot.types import DagRow, JobRow, RunRow
from metlmon.text.formatting import plain
from screens.base.screens import SnapshotScreen
from screens.pool_actions.confirm import ConfirmScreen
from screens.pool_actions.menu import MenuScreen
from screens.pool_actions.results import ResultsScreen
from screens.pool_actions.running_action import (
    ActKeys,
    Selection,
    action_of,
    one_of_halt_and_resume,
    possible,
    refused,
)
from screens.widgets.spans import Line
from screens.widgets.table import Table

ACTING: Final = ("marking", "acting")
"""Scopes of a list whose rows can be marked and acted on."""


class ActionScreen(ActKeys, SnapshotScreen):
    """A screen with the acts' keys. Subclasses say what is selected."""

    def selection(self) -> Selection:
        """What is marked, or else under the cursor."""
        raise NotImplementedError

    def offers(self) -> list[ActionPreview]:
        """Every act for what is selected; those on a DAG once for each DAG."""
        chosen, picture, desk = self.selection(), self.monitor.picture, self.monitor.desk
        why = self.monitor.why_nothing_can_be_done()
        if why is not None or picture is None or desk is None:
            return one_of_halt_and_resume(refused(why or "nothing was read yet", chosen))
        made = desk.offers(picture.status, chosen.jobs, chosen.dags, chosen.runs)
        if len(chosen.dags) > 1:
            made = tuple(offer for offer in made if offer.act not in DAG_ACTS)
            for dag in chosen.dags:
                its = desk.offers(picture.status, (), (dag,))
                made += tuple(offer for offer in its if offer.act in DAG_ACTS)
            # One act on each DAG, then the next act: who goes a row too far in the menu is
            # asked about another DAG, not about another act.
            made = tuple(sorted(made, key=lambda offer: list(PoolAction).index(offer.act)))
        return one_of_halt_and_resume(made)

    def refusals(self) -> Mapping[str, str]:
        """Why an act cannot be asked for, where every offer of it is refused."""
        if self.monitor.options.read_only:
            return {}
        offers = self.offers()
        able = {action_of(offer.act).name for offer in offers if possible(offer)}
        whys = {action_of(o.act).name: o.refused or "nothing is selected" for o in offers}
        out = {name: why for name, why in whys.items() if name not in able}
        if self.monitor.deed is None:
            out["answers"] = "nothing was asked yet"
        return out

    def act(self, *acts: PoolAction) -> None:
        """Ask for the first of these acts; where there is a choice, or it is refused, show
        the menu with the reason."""
        asked = [offer for offer in self.offers() if offer.act in acts]
        able = [offer for offer in asked if possible(offer)]
        if len(asked) == 1 and able:
            self.ask(able[0])
        else:
            self.monitor.push_screen(MenuScreen(self, (able or asked)[0] if asked else None))

    def ask(self, offer: ActionPreview) -> None:
        """The question that comes before: what it touches, and what goes along."""
        along: tuple[JobRow, ...] = ()
        if offer.act is PoolAction.REMOVE_DAG and offer.order is not None:
            queued = self.monitor.feed.queued()
            along = tuple(job for job in queued if job.dag == offer.order.dag)
        self.monitor.push_screen(ConfirmScreen(offer, along, self.done_with))

    def done_with(self) -> None:
        """It was ordered: the next act is for something else."""
        for table in self.query(Table):
            table.clear_marks()

    def action_acts(self) -> None:
        self.monitor.push_screen(MenuScreen(self))

    def action_answers(self) -> None:
        if self.monitor.deed is None:
            self.say("nothing was asked of the schedd yet")
        else:
            self.monitor.push_screen(ResultsScreen(self.monitor.deed))

    def remarks(self) -> list[Line]:
        """How the order that was given last goes, until somebody saw its end."""
        deed = self.monitor.deed
        told = [deed.told(self.ascii)] if deed is not None and not deed.seen else []
        return [*told, *super().remarks()]

    @on(Table.Moved)
    def _went_on(self) -> None:
        if self.monitor.deed is not None and self.monitor.deed.over:
            self.monitor.deed.seen = True

    # --- what selections are made of ------------------------------------------------------

    def dags_of(self, files: Iterable[str | None]) -> tuple[DagRow, ...]:
        """The DAGs with these files, in the picture's order."""
        wanted, picture = frozenset(files), self.monitor.picture
        dags = () if picture is None else picture.status.dags
        return tuple(dag for dag in dags if dag.file in wanted)

    def job_rows(self, jobs: Iterable[tuple[int, int]]) -> tuple[JobRow, ...]:
        """The jobs with these ids, whatever their state."""
        views = (self.monitor.feed.job_view(*job) for job in jobs)
        return tuple(view.row for view in views if view is not None)

    def named(self, things: list[str], noun: str) -> str:
        """``run4``, or ``3 runs``."""
        if len(things) == 1:
            return plain(things[0], 40, self.ascii)
        return f"{len(things)} {noun}s" if things else "nothing"


def jobs_of_runs(runs: Iterable[RunRow], queued: Iterable[JobRow]) -> dict[str, list[JobRow]]:
    """The queued jobs of each run, by its key."""
    by_name: dict[tuple[str, str], str] = {}
    by_uuid: dict[str, str] = {}
    out: dict[str, list[JobRow]] = {}
    for run in runs:
        out[run.key] = []
        by_name[run.run, run.dag] = run.key
        if run.uuid is not None:
            by_uuid[run.uuid] = run.key
    for job in queued:
        named = by_name.get((job.run or "", job.dag or ""))
        key = named if job.uuid is None else by_uuid.get(job.uuid)
        if key is not None:
            out[key].append(job)
    return out
