"""Epochs as table rows: columns, filter text, details. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from metlmon.jobfiles.error_lines import NO_ERRORS, Errors
from metlmon.jobfiles.records import Streamed
from metlmon.model.job_events import JobId
from metlmon.model.states import FAILED_JOB, TROUBLE, State
from metlmon.snapshot.records import Epoch, Job, Run, RunView
from metlmon.snapshot.row_text import (
    PAUSED,
    brief_reason,
    epoch_target,
    failure_text,
    is_waiting_at,
    job_result_text,
    waits_since,
)
from metlmon.stats.curves import EvaluationResult, values_by_epoch
from metlmon.stats.lineage import Break, CheckpointOrigin, origin_of
from metlmon.stats.run_figures import RunFigures
from metlmon.tables.curves import METRIC_CELLS, change_cell
from metlmon.tables.layout import UNKNOWN_CELL, Column, Kind, searched
from metlmon.tables.runs import (
    NAME_CELLS,
    NO_STREAMS,
    epoch_percent,
    hold_reason,
    overruled_state,
    site_and_target,
    site_minimum,
    tries_style,
)
from metlmon.tables.usage import HIDDEN
from metlmon.text import formatting
from metlmon.text.formatting import STATES, clip
from metlmon.text.spans import (
    BAD,
    DIM,
    NOTE,
    PLAIN,
    Line,
    TextStyle,
    crop,
    crop_middle,
    line,
    style_of,
    symbol_span,
    width,
)

NO_ORIGINS: Final[Mapping[int, CheckpointOrigin]] = {}


def key_of(row: Epoch) -> str:
    """The row key of an epoch: node names are only unique within their DAG."""
    return f"{row.in_dag}\n{row.node}"


def filter_text(row: Epoch) -> str:
    jobs = [formatting.job_id(*job) for job in row.jobs]
    parts = [row.node, row.dag, STATES[row.state].word, row.target, row.site, row.gpu]
    parts += [row.trained_on, row.hold_reason, *jobs]
    parts += [str(formatting.epoch_number(row.epoch))] if row.epoch is not None else []
    parts += [HIDDEN.word] if row.hidden else []
    return searched(*parts, *map(filter_text, row.evaluations))


def columns(
    view: RunView,
    streams: Mapping[JobId, Streamed] = NO_STREAMS,
    marks: bool = True,
    result: EvaluationResult | None = None,
    this_year: int | None = None,
    origins: Mapping[int, CheckpointOrigin] = NO_ORIGINS,
    figures: RunFigures | None = None,
) -> list[Column[Epoch]]:
    """The columns of a run's epochs.

    ``streams``: progress lines of running jobs. ``marks``: whether evaluations are shown beside
    their epochs, with their ``result``. ``origins``: those of the checkpoints, by epoch; their
    column is shown if any is recorded. ``figures``: the primary metric; None while unknown.
    """
    curve = figures.by_run.get(view.row.key) if figures is not None else None
    values = values_by_epoch(curve, view.epochs)
    goal = curve.goal if curve is not None else None

    value_format = formatting.metric_format(each.value for each in values.values())
    change_format = formatting.metric_format((each.change for each in values.values()), 3)

    def change(e: Epoch) -> float | None:
        return values[e.node_key].change if e.node_key in values else None

    row, run = view.row, view.row.run
    job = row.item == "job"
    columns: list[Column[Epoch]] = [
        Column(
            "epoch",
            partial(_epoch, run=run),
            title="JOB" if job else "EPOCH",
            doc="number of the epoch, from 1; of a node that does not train, its name",
            align="right",
            style=lambda e: DIM if is_epoch(e) and e.state is State.WAITING else PLAIN,
            comfortable=12,
            maximum=28,
        ),
        Column(
            "state",
            lambda e: STATES[e.state],
            Kind.STATE,
            doc="state of the node",
            cell=partial(_state, run=row, streams=streams),
            minimum=11,
        ),
        Column(
            "eval",
            lambda e: " ".join(STATES[each.state].word for each in e.evaluations),
            title=clip(result.metric, 12).upper() if result else "EVAL",
            doc="the nodes that evaluate the epoch",
            cell=partial(_evaluation, result=result),
            minimum=4,
            comfortable=9 if result else 4,
        ),
        Column(
            "metric",
            lambda e: values[e.node_key].value if e.node_key in values else "",
            Kind.NUMBER,
            title=clip(figures.curves.metric, NAME_CELLS) if figures is not None else "METRIC",
            doc="value of the primary metric",
            drop=1.5,
            write=value_format,
            minimum=METRIC_CELLS,
        ),
        Column(
            "change",
            change,
            Kind.NUMBER,
            doc="its change per epoch, since the value before",
            drop=2.5,
            cell=lambda e, _: (
                change_cell(change(e), goal, change_format) if e.node_key in values else ()
            ),
            minimum=METRIC_CELLS,
        ),
        Column(
            "site",
            lambda e: e.site,
            doc="where its last execution ran; ≠: the run asked for another site",
            drop=1,
            cell=partial(_site, run=row),
            minimum=site_minimum(view.epochs),
            comfortable=14,
            maximum=32,
        ),
        Column("gpu", _gpu, doc="GPU model, and how many", drop=8, maximum=20),
        Column(
            "use",
            lambda e: _known(e, e.gpu_use),
            Kind.NUMBER,
            title="GPU USE",
            doc="GPUs in use on average in its last execution, of those it had; if measured",
            drop=3.5,
            cell=_gpu_use,
        ),
        Column(
            "queued",
            lambda e: _known(e, e.queue_wait),
            Kind.DURATION,
            doc="from its submission, or the end before, to its last start, without the transfer",
            drop=4,
            minimum=8,
        ),
        Column(
            "transfer",
            lambda e: _known(e, e.transfer),
            Kind.DURATION,
            doc="input transfer before the last execution",
            drop=7,
        ),
        Column(
            "execution",
            lambda e: _known(e, e.execution),
            Kind.DURATION,
            doc="the last execution; ⇄: another one took over twice as long",
            drop=2,
            cell=_execution,
        ),
        Column(
            "try",
            lambda e: _known(e, e.attempts or None),
            Kind.COUNT,
            title="TRIES",
            doc="executions",
            drop=3,
            style=lambda e: tries_style(e.attempts),
        ),
        Column(
            "good",
            lambda e: _hours(e, e.hours.goodput),
            Kind.HOURS,
            title="GOODPUT",
            doc="hours of executions that succeeded, or up to their last checkpoint",
            drop=6,
        ),
        Column(
            "lost",
            lambda e: _hours(e, e.hours.badput),
            Kind.HOURS,
            title="BADPUT",
            doc="hours that were lost",
            drop=5,
            style=BAD,
        ),
        Column(
            "job",
            lambda e: formatting.job_id(*e.jobs[-1]) if e.jobs else "",
            title="LAST JOB" if job else "JOB",
            doc="its latest job",
            align="right",
            drop=9,
            style=DIM,
        ),
        Column(
            "jobs", lambda e: len(e.jobs) or "", Kind.COUNT, doc="submissions", drop=10, style=DIM
        ),
        Column(
            "submitted",
            lambda e: e.submitted or "",
            Kind.TIME,
            doc="the last submission",
            drop=11,
            style=DIM,
            year=this_year,
        ),
        Column(
            "made",
            lambda e: _maker(origin_of(e, origins)),
            title="MADE BY",
            doc="the job that made the checkpoint",
            align="right",
            drop=12,
            cell=lambda e, _: _made_by(origin_of(e, origins)),
        ),
    ]
    evaluated = marks and any(epoch.evaluations for epoch in view.epochs)
    recorded = any(origin.recorded for origin in origins.values())
    absent = (set() if evaluated else {"eval"}) | (set() if recorded else {"made"})
    absent |= set() if values else {"metric", "change"}
    absent |= (
        set() if any(row.gpu_use is not None for row in (*view.epochs, *view.side)) else {"use"}
    )
    return [column for column in columns if column.name not in absent]


def _known(row: Epoch, value: float | None) -> float | str | None:
    """A value; if it is unknown, empty for an epoch that has not begun."""
    if value is not None:
        return value
    return "" if row.state is State.WAITING or not row.jobs else None


def _hours(row: Epoch, hours: float) -> float | str | None:
    """Hours of an epoch; None if no log has any."""
    if not row.jobs:
        return ""
    return None if row.lacks_hours and not row.hours.total else hours


def _maker(origin: CheckpointOrigin | None) -> str | None:
    if origin is None:
        return ""
    return formatting.job_id(*origin.job) if origin.job else None


def _made_by(origin: CheckpointOrigin | None) -> Line:
    """The job that made a checkpoint, dim if inferred."""
    if origin is None:
        return ()
    job = formatting.job_id(*origin.job) if origin.job else formatting.UNKNOWN
    return line(job) if origin.recorded else line((f"{job} inferred", DIM))


def name_in_run(run: str, node: str) -> str:
    """The name of a side node without the name of its run."""
    return node.removeprefix(f"{run}-") or node


def _epoch(row: Epoch, run: str) -> str | int:
    if not is_epoch(row):
        return clip(name_in_run(run, row.node), 40)
    return formatting.epoch_number(row.epoch or 0)


PASSING: Final = frozenset(
    {State.TRANSFERRING_INPUT, State.STARTING, State.TRANSFERRING_OUTPUT, State.POST, State.PRE}
)
"""States that last only briefly in most executions."""


def last_changes(jobs: Iterable[Job], most: int, this_year: int | None) -> list[Line]:
    """The last states that jobs of a run entered, newest first: when, which job, and where."""
    entered = []
    for job in sorted(jobs, key=lambda job: job.job):
        shown: State | None = None
        for index, (time, state) in enumerate(job.states, 1):
            if state is not shown and (state not in PASSING or index == len(job.states)):
                shown = state
                entered.append((time, state, job))
    entered.sort(key=lambda each: each[0])
    lines = []
    for time, state, job in entered[: -most - 1 : -1]:
        number = formatting.epoch_text(job.epoch) if job.training else ""
        node = f"epoch {number}" if number else name_in_run(job.run or "", job.node or "")
        site = job.site if state is State.RUNNING else None
        if state is State.RUNNING:
            site = next((each.site for each in job.executions if each.start == time), site)
        lines.append(
            line((f"{formatting.moment(time, this_year):>12}  ", DIM), f"{clip(node, 20)}  ")
            + symbol_span(STATES[state])
            + line((f"  {clip(site, 40)}" if site else "", DIM))
        )
    return lines


def is_epoch(row: Epoch) -> bool:
    """Whether this is a training node, according to its name."""
    return row.epoch is not None and "train" in row.node.rpartition("epoch")[0]


def _state(row: Epoch, _: int | None, run: Run, streams: Mapping[JobId, Streamed]) -> Line:
    if is_waiting_at(run, row):
        return symbol_span(PAUSED)
    symbol = STATES[row.state]
    if row.inferred:
        return line((symbol.glyph, style_of(symbol)), (" inferred", DIM))
    if row.overruled and not is_epoch(row):
        return overruled_state(row.state)
    if row.overruled:
        return symbol_span(symbol) + line((", job failed", NOTE))
    streamed = streams.get(row.jobs[-1]) if row.jobs else None
    return symbol_span(symbol) + epoch_percent(row.state, streamed)


def evaluation_sign(row: Epoch) -> Line:
    """Mark and word of an evaluation; one whose failure was overruled has a node that succeeded."""
    if row.overruled:
        return line((f"{STATES[State.FAILED].glyph} job failed", NOTE))
    symbol = STATES[row.state]
    word = "done" if row.state is State.COMPLETED else symbol.word
    return line((f"{symbol.glyph} {word}", style_of(symbol)))


def _evaluation(row: Epoch, cells: int | None, result: EvaluationResult | None) -> Line:
    """The evaluations of an epoch: state or result of a single one, else marks."""
    contents = [
        evaluation_sign(evaluation) + _value(result.value(evaluation, row) if result else None)
        for evaluation in row.evaluations
    ]
    if len(contents) == 1 and result and len(contents[0]) > 1:
        contents = [((contents[0][0][0][:1], contents[0][0][1]), *contents[0][1:])]
    if len(contents) == 1 and (cells is None or width(contents[0]) <= cells):
        return contents[0]
    return tuple((content[0][0][:1], content[0][1]) for content in contents)


def _value(value: float | None) -> Line:
    return () if value is None else line((f" {formatting.metric(value)}", TextStyle()))


def _site(row: Epoch, cells: int | None, run: Run) -> Line:
    target = epoch_target(run, row)
    if row.site is None and (target is None or row.state is State.SKIPPED):
        return UNKNOWN_CELL if _known(row, None) is None else ()
    return site_and_target(row.site, target, row.off_target, cells, state=row.state)


def _gpu(row: Epoch) -> str | None:
    if row.gpu is None and row.gpus is None:
        return "" if _known(row, None) == "" else None
    return formatting.gpus(row.gpu, row.gpus)


def _gpu_use(row: Epoch, _: int | None) -> Line:
    usage = row.job.last_usage if row.job else None
    text = usage and formatting.used_of(usage.gpus, usage.gpus_allocated or row.gpus)
    return line(text) if text else UNKNOWN_CELL if _known(row, None) is None else ()


def _execution(row: Epoch, _: int | None) -> Line:
    mark = line((HIDDEN.glyph, style_of(HIDDEN)), " ") if row.hidden else ()
    seconds = _known(row, row.execution)
    if seconds is None:
        return mark + UNKNOWN_CELL
    return mark + line("" if isinstance(seconds, str) else formatting.duration(seconds))


def detail_line(
    row: Epoch,
    cells: int,
    run: Run | None = None,
    origin: CheckpointOrigin | None = None,
    errors: Errors = NO_ERRORS,
) -> Line:
    """The second line of an epoch: why it is held or failed, its checkpoint, or its gate."""
    if run is not None and run.gate is not None and is_waiting_at(run, row):
        return crop(line((waits_since(run.gate), style_of(PAUSED))), cells)
    if row.state is State.HELD and row.hold_reason:
        return line((crop_middle(hold_reason(row.hold_reason), cells), BAD))
    if row.state in (State.FAILED, State.RETRYING) and is_epoch(row):
        text = failure_text(row, errors)
        return crop(line((text if len(text) <= cells else brief_reason(text), BAD)), cells)
    if origin is not None and is_broken(origin):
        text = "does not continue the checkpoint of the epoch before"
        return crop(line((text, NOTE), ("; see Health", DIM)), cells)
    if origin is not None and origin.made_by_another and origin.job is not None:
        where = f" at {clip(origin.site, 40)}" if origin.site is not None else ""
        maker = f"job {formatting.job_id(*origin.job)}"
        if origin.job == origin.completed_by:
            maker = f"execution {origin.execution} of {maker}"
        text = f"{HIDDEN.glyph} {maker}{where} made the checkpoint"
        return crop(line((text, style_of(HIDDEN)), (" (recorded)", DIM)), cells)
    if row.hidden and origin is not None and origin.recorded and origin.job:
        text = f"job {formatting.job_id(*origin.job)} made the checkpoint (recorded)"
        return crop(line((text, DIM)), cells)
    if row.hidden:
        elsewhere = row.trained_on is not None and row.trained_on != row.site
        where = f" at {clip(row.trained_on or '', 40)}" if elsewhere else ""
        longest = formatting.duration(row.longest_seconds)
        duration = formatting.duration(row.success_seconds)
        text = f"{HIDDEN.glyph} done in {duration}; a try of {longest}{where}"
        return line((text, style_of(HIDDEN)), (" may have done the training", DIM))
    troubled = _in_trouble(row)
    return _trouble_line(troubled, errors, cells) if troubled is not None else ()


def is_broken(origin: CheckpointOrigin) -> bool:
    """Whether the chain is broken at this checkpoint, not merely unrecorded."""
    return origin.broken not in (None, Break.MISSING)


def _in_trouble(row: Epoch) -> Epoch | None:
    """What is in trouble: the evaluation of an epoch, or the side node itself."""
    candidates = row.evaluations if is_epoch(row) else (row,)
    return next((node for node in candidates if node.overruled or node.state in TROUBLE), None)


def evaluation_to_open(row: Epoch) -> Epoch | None:
    """The evaluation of an epoch that is in trouble, else the one submitted last."""
    troubled = _in_trouble(row)
    return troubled or max(
        row.evaluations, key=lambda evaluation: evaluation.jobs[-1:], default=None
    )


def _trouble_line(row: Epoch, errors: Errors, cells: int) -> Line:
    name = clip(row.node, 40)
    if row.state is State.HELD:
        reason = hold_reason(row.hold_reason) if row.hold_reason else "the log gives no reason"
        return line((crop_middle(f"{name} is held: {reason}", cells), BAD))
    ending = job_result_text(row, errors) if row.job_state in FAILED_JOB else "its job ended well"
    if row.overruled:
        content = line((f"{name}: {ending}", NOTE), ("; its POST script succeeded", DIM))
    else:
        content = line((f"{name} failed: {ending}", BAD))
    return crop(content, cells)
