"""The Problems screen: causes of failures, their cost and their jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from metlmon.live.feed import Snapshot
from metlmon.model.states import State
from metlmon.snapshot.types import JobRow, ProblemGroup
from metlmon.tables.layout import Column, text_column
from metlmon.tables.runs import site_and_target
from metlmon.text import formatting
from metlmon.text.formatting import STATES, plain, problem_sign
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    GOOD,
    Line,
    TextStyle,
    crop_middle,
    file_name,
    join,
    justify,
    limit_lines,
    line,
    symbol_span,
    wrap,
)
from screens.base.action_screen import ACTION_SCOPES, ActionScreen
from screens.base.list_screen import ListScreen, runs_cell
from screens.base.screens import padded
from screens.pool_actions.running_action import Selection

EXAMPLE_LINES: Final = 2
"""Lines of the example; fixed, so that the table keeps its height."""

MOST_JOBS: Final = 200
"""Maximum jobs listed of one problem, latest first: each fetches its view."""


def _text(group: ProblemGroup) -> str:
    parts = [group.kind, group.cause, group.example or "", *group.run_names, *group.nodes]
    return "\n".join(parts).lower()


def _columns(this_year: int | None) -> list[Column[ProblemGroup]]:
    def now(group: ProblemGroup, _: int | None) -> Line:
        return line((formatting.number(group.now), ALARM if group.now else DIM))

    def lost(group: ProblemGroup, _: int | None) -> Line:
        return line((formatting.hours(group.lost), BAD if group.lost > 0 else DIM))

    def runs(group: ProblemGroup, room: int | None) -> Line:
        return runs_cell(group.run_names, room)

    def last(group: ProblemGroup, _: int | None) -> Line:
        return line((formatting.moment(group.last, this_year) if group.last else "", DIM))

    def cause(group: ProblemGroup, room: int | None) -> Line:
        text = plain(group.cause, 400)
        text = text if room is None else crop_middle(text, room)
        return line((text, BOLD if group.now else TextStyle()))

    return [
        Column("kind", "KIND", lambda group, _: symbol_span(problem_sign(group.kind))),
        Column("now", "NOW", now, "right", minimum=4),
        text_column("times", "TIMES", lambda group: formatting.number(group.times), "right"),
        Column("lost", "BADPUT", lost, "right"),
        Column("runs", "RUNS", runs, drop=2, minimum=4, comfortable=8, maximum=20),
        Column("last", "LAST", last, "right", drop=3),
        Column("cause", "CAUSE", cause, minimum=20, comfortable=56, maximum=400),
    ]


def _no_problem(groups: Sequence[ProblemGroup], update: Snapshot | None) -> str:
    states = {} if update is None else update.status.node_states
    ended = any(states.get(state) for state in (State.HELD, State.FAILED, State.REMOVED))
    return "no job is held now" if groups or ended else "no job is held, failed or removed"


class ProblemsScreen(ListScreen, ActionScreen):
    """All causes of problems, those with affected jobs first."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", *ACTION_SCOPES, "below")
    ORDERS = (
        ("what hurts now", lambda group: (-group.now, -group.lost, -group.times)),
        ("badput", lambda group: (-group.lost, -group.times)),
        ("times", lambda group: (-group.times,)),
        ("kind", lambda group: (group.kind, -group.lost)),
    )

    def show(self, update: Snapshot | None) -> None:
        groups = self.context.feed.problems()
        self.show_head(self._head(groups, update))
        self.fill(
            _columns(self.this_year),
            groups,
            lambda group: group.key,
            _text,
            empty=self._empty(update),
            noun="cause",
            details=self._example,
        )

    def _head(self, groups: Sequence[ProblemGroup], update: Snapshot | None) -> list[Line]:
        now = sum(group.now for group in groups if not group.nodes)
        nodes = sum(group.now for group in groups if group.nodes)
        parts = [(now, "job"), (nodes, "node")]
        troubled = " and ".join(formatting.count(n, noun) for n, noun in parts if n)
        worst = max(groups, key=lambda group: group.lost, default=None)
        first = line(("Problems", BOLD), "   ") + (
            line((troubled, ALARM), " held, failed or stalled now")
            if troubled
            else line((_no_problem(groups, update), GOOD))
        )
        total = sum(group.lost for group in groups)
        lost = line(("badput ", DIM), (formatting.hours(total), BAD), (" GPU-hours", DIM))
        lines = [line(" ") + justify(first, lost if total else (), self.app.size.width - 2)]
        if worst is not None and worst.lost > 0:
            share = formatting.share(worst.lost, total)
            text = f"largest cause ({share}): "
            cause = crop_middle(plain(worst.cause), self.app.size.width - len(text) - 2)
            lines.append(line(" ", (text, DIM), cause))
        return [*lines, ()]

    def _empty(self, update: Snapshot | None) -> list[Line]:
        if update is None or update.progress.fraction < 1:
            return [line("  ", ("Causes appear as the logs are read.", DIM))]
        return [
            line("  ", ("No job was ever held, evicted or failed.", GOOD)),
            line("  ", ("What goes wrong is grouped here by its cause.", DIM)),
        ]

    def _example(self, group: ProblemGroup | None) -> list[Line]:
        if group is None or not group.example:
            return [()] * EXAMPLE_LINES
        room = self.app.size.width - 2
        lines = wrap(f"e.g. {plain(group.example, 2000)}", room, indent=1)
        return padded(limit_lines(lines, EXAMPLE_LINES, room, 1), EXAMPLE_LINES)

    def selection(self) -> Selection:
        """Select the queued jobs of the marked or current causes.

        If there are none, select the latest jobs of the causes.
        """
        keys = self.table.marks or {self.table.cursor}
        groups = [group for group in self.context.feed.problems() if group.key in keys]
        jobs_with_cause = {job for group in groups for job in group.jobs}
        jobs = tuple(
            j for j in self.context.feed.queued_jobs() if (j.cluster, j.proc) in jobs_with_cause
        )
        if not jobs:
            latest = dict.fromkeys(job for group in groups for job in group.jobs[:MOST_JOBS])
            jobs = self.job_rows(latest)
        words = self.name_or_count([group.cause for group in groups], "cause")
        return Selection(words, jobs, self.dags_of(job.dag for job in jobs))

    def open_row(self, key: str) -> None:
        self.context.push_screen(CauseScreen(key))


class CauseScreen(ListScreen, ActionScreen):
    """One cause: its full text, and its jobs, latest first."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list", "cause", *ACTION_SCOPES, "below")
    ORDERS = (
        ("latest first", None),
        ("run", lambda row: (row.run or "", row.epoch or 0)),
        ("state", lambda row: (row.state.value,)),
    )

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key

    def show(self, update: Snapshot | None) -> None:
        group = self._group()
        if group is None:
            text = [line("  ", ("[esc] goes back to the others", DIM))]
            self.show_nothing("Problems", "this cause is gone", text, "job")
            return
        self.show_head(self._head(group))
        views = [self.context.feed.job_view(*job) for job in group.jobs[:MOST_JOBS]]
        jobs = [view.row for view in views if view is not None]
        names = [line("  ", plain(name, 80)) for name in group.nodes[:MOST_JOBS]]
        more = [line((f"the latest {MOST_JOBS} jobs", DIM))] if len(group.jobs) > MOST_JOBS else []
        self.fill(
            _job_columns(jobs),
            jobs,
            lambda job: f"{job.cluster}.{job.proc}",
            _job_text,
            empty=[line("  ", "Of these nodes no log has a job:"), (), *names],
            noun="job",
            extra=more,
        )

    def _group(self) -> ProblemGroup | None:
        return next((g for g in self.context.feed.problems() if g.key == self.key), None)

    def _head(self, group: ProblemGroup) -> list[Line]:
        room = self.app.size.width
        sign = problem_sign(group.kind)
        first = join(
            (
                symbol_span(sign),
                line((formatting.number(group.now), ALARM if group.now else DIM), " now"),
                line(formatting.count(group.times, "time")),
                line((formatting.hours(group.lost), BAD), " GPU-hours of badput"),
                line(formatting.count(len(group.runs), "run")),
            ),
            line("   "),
        )
        text = plain(group.cause, 2000)
        lines = [line(" ") + first, *wrap(text, room - 2, TextStyle(sign.colour), indent=1)[:6]]
        if group.example and plain(group.example, 2000) != text:
            example = plain(group.example, 2000)
            lines += wrap(f"e.g. {example}", room - 2, DIM, indent=1)[:4]
        return [*lines, ()]

    def selection(self) -> Selection:
        """Select the marked jobs, or the current one, in row order."""
        keys = self.table.marks or {self.table.cursor}
        group = self._group()
        cause_jobs = [] if group is None else group.jobs[:MOST_JOBS]
        jobs = self.job_rows(job for job in cause_jobs if f"{job[0]}.{job[1]}" in keys)
        words = self.name_or_count([f"job {job.cluster}.{job.proc}" for job in jobs], "job")
        return Selection(words, jobs, self.dags_of(job.dag for job in jobs))

    def open_row(self, key: str) -> None:
        cluster, _, proc = key.partition(".")
        self.context.open_job(int(cluster), int(proc))

    def action_owner(self) -> None:
        if self.table.cursor is None:
            return
        cluster, _, proc = self.table.cursor.partition(".")
        view = self.context.feed.job_view(int(cluster), int(proc))
        if view is not None:
            self.context.open_run_of(view.row)


def _job_text(row: JobRow) -> str:
    parts = [formatting.job_id(row.cluster, row.proc), row.run, row.uuid, row.node, row.dag]
    parts += [row.site, row.target, STATES[row.state].word]
    return "\n".join(part for part in parts if part is not None).lower()


def _job_columns(jobs: Sequence[JobRow]) -> list[Column[JobRow]]:
    def text(value: str | None) -> Line:
        return line(plain(value, 40) if value else (formatting.UNKNOWN, DIM))

    def since(row: JobRow, _: int | None) -> Line:
        return line(formatting.duration(row.seconds))

    def where(row: JobRow, max_width: int | None) -> Line:
        return site_and_target(row.site, row.target, False, max_width, state=row.state)

    def dag(row: JobRow, max_width: int | None) -> Line:
        return text(None if row.dag is None else file_name(row.dag, max_width))

    columns: list[Column[JobRow]] = [
        text_column("job", "JOB", lambda row: formatting.job_id(row.cluster, row.proc), "right"),
        Column("run", "RUN", lambda row, _: text(row.run), minimum=6, maximum=24),
        text_column("epoch", "EPOCH", _epoch, "right"),
        Column("state", "NOW", lambda row, _: symbol_span(STATES[row.state])),
        Column("since", "FOR", since, "right", minimum=9),
        Column("site", "SITE", where, minimum=7, maximum=24, drop=2),
        text_column("gpu", "GPU", lambda row: formatting.gpus(row.gpu, row.gpus), drop=3),
        text_column("tries", "TRIES", lambda row: str(len(row.executions)), "right", drop=4),
    ]
    if len({job.dag for job in jobs}) > 1:
        columns.insert(1, Column("dag", "DAG", dag, drop=1, maximum=24))
    return columns


def _epoch(row: JobRow) -> str:
    return "" if row.epoch is None else str(formatting.epoch_number(row.epoch))
