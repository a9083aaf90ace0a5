"""Runs as table rows: columns, orders, filter text, details. Pure functions.

Beside the table: the states of all epochs as a bar and as counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

from msgspec.structs import replace
from rich.cells import cell_len

from metlmon.config.settings import MetricSettings
from metlmon.jobfiles.records import Streamed
from metlmon.model.job_events import JobId
from metlmon.model.states import TERMINAL, UNPLACED, URGENCY, State
from metlmon.snapshot import row_text
from metlmon.snapshot.records import Epoch, Run, SideCounts, Status
from metlmon.snapshot.row_text import (
    PAUSED,
    REQUESTED,
    gate_sentences,
    gate_symbol,
)
from metlmon.stats.curves import Course, MetricCurve, course_text, curve_symbol
from metlmon.stats.run_figures import RunFigures
from metlmon.tables.curves import (
    BEST_VALUE,
    LAST,
    alarm_order,
    last_cell,
    percent,
    value_cell,
    value_formats,
)
from metlmon.tables.layout import (
    UNKNOWN_CELL,
    Column,
    Kind,
    Value,
    dag_column,
    empty_text,
    have_same_names,
    name_column,
    searched,
)
from metlmon.tables.sweep import BEST, BEST_STYLE, short_values
from metlmon.text import formatting
from metlmon.text.formatting import STATES, Symbol, apportion, clip, clip_middle, plain
from metlmon.text.spans import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    GOOD,
    MOVING,
    NOTE,
    PLAIN,
    Line,
    TextStyle,
    crop_middle,
    first_that_fits,
    join,
    join_fitting,
    line,
    style_of,
    symbol_span,
    wrap,
)
from metlmon.text.spans import width as line_width

FAULTS: Final = frozenset(
    {
        State.HELD,
        State.FAILED,
        State.REMOVED,
        State.RETRYING,
        State.FUTILE,
        State.SUSPENDED,
        State.DISCONNECTED,
    }
)
"""States of the fault filter; held and failed need attention."""

NO_STREAMS: Final[Mapping[JobId, Streamed]] = {}
NO_CLOCKS: Final[Mapping[JobId, str]] = {}

BAR_CELLS: Final = 8
BAR_GROWN_CELLS: Final = 22
SHORT_BAR_CELLS: Final = 4
"""Widths of the progress bar: usual, with spare room, and beside a metric on a narrow screen."""

LONGEST: Final = 1000
SHARE_CELLS: Final = 6
"""Width of a share after hours; it is fixed, so that the hours line up."""

MIN_NAME: Final = 3
"""Minimum width of a site and of its target if both are shown."""

REASON_CELLS: Final = 100
"""Width of the screen from which a hold reason is shown below its run, else below the table."""

ORDERS: Final = (
    ("DAG order", None),
    "best",
    (
        "what needs attention",
        lambda row: (
            URGENCY[State.WAITING if row.is_between_epochs else row.state],
            -(row.seconds or 0.0),
        ),
    ),
    "progress",
    "since",
    "lost",
    "site",
)
"""The orders that the sort key cycles through: DAG order, metric, urgency, columns."""


def overruled_state(state: State) -> Line:
    """``✓ job failed``: the state of a node whose POST script accepted its failed job."""
    symbol = STATES[state]
    return line((f"{symbol.glyph} ", style_of(symbol)), ("job failed", NOTE))


def filter_text(row: Run) -> str:
    parts = [row.run, row.uuid, row.dag, STATES[row.state].word, *gate_sentences(row)]
    parts += [formatting.BETWEEN] * row.is_between_epochs
    parts += [sign.word] if (sign := gate_symbol(row)) is not None else []
    parts += [row.failed.node, row.failed.reason] if row.failed is not None else []
    if (latest := row.latest) is not None:
        job = formatting.job_id(latest.cluster, latest.proc)
        parts += [latest.node, latest.target, latest.site, latest.gpu, job, latest.hold_reason]
    return searched(*parts)


def columns(
    rows: Sequence[Run],
    streams: Mapping[JobId, Streamed] = NO_STREAMS,
    figures: RunFigures | None = None,
    metrics: MetricSettings | None = None,
    clocks: Mapping[JobId, str] = NO_CLOCKS,
    *,
    every: bool = False,
) -> list[Column[Run]]:
    """The columns of the overview that are informative for these runs; ``every``: all of them.

    ``streams``: progress lines of running jobs. ``figures``: what statistics add; None while
    unknown. ``metrics``: settings of the metric columns; None omits these. ``clocks``: when held
    jobs will be removed, shown behind their state if there is room. If all runs have ended, their
    wall time and hours replace the time in state. If runs of several DAGs have the same name, the
    DAG identifies the run.
    """
    measured = every or (metrics is not None and has_metrics(figures, rows))
    finished = bool(rows) and all(row.has_ended for row in rows)
    same_names = have_same_names(rows)
    digits = max((len(epochs_text(row)) for row in rows), default=3)
    unit = rows[0].hours.measure.short if rows else "GPU-h"
    late = measured or finished

    def state(row: Run, cells: int | None) -> Line:
        latest, shown = row.latest, state_text(row, streams)
        if cells is None or latest is None or row.state is not State.HELD:
            return shown
        clock = clocks.get((latest.cluster or 0, latest.proc or 0))
        longer = shown + line((f", {clock}" if clock else "", ALARM))
        return longer if line_width(longer) <= cells else shown

    found = [
        name_column(
            "run",
            lambda row: clip(row.run, 80),
            doc="name of the run, a part of the names of its nodes",
            style=_run_style,
            minimum=6,
            comfortable=28,
            maximum=80,
        ),
        dag_column(lambda row: row.dag, same_names),
        Column(
            "uuid",
            lambda row: clip((row.uuid or "")[:8], 8),
            doc="first characters of the VAR run_uuid",
            drop=15,
            style=DIM,
            maximum=8,
        ),
        *variable_columns(figures),
        Column(
            "progress",
            lambda row: row.epochs_done / max(1, row.epochs_total),
            Kind.SHARE,
            doc="epochs done, of all",
            align="left",
            cell=partial(_progress, digits=digits),
            grow=BAR_GROWN_CELLS + 1 + digits,
            comfortable=SHORT_BAR_CELLS + 1 + digits if measured else None,
            order=lambda row: (-row.epochs_done / max(1, row.epochs_total), -row.epochs_done),
        ),
        Column(
            "epoch",
            _epoch,
            Kind.COUNT,
            doc="the latest epoch, or the one that failed; from 1",
            drop=13 if late or same_names else 5,
        ),
        Column(
            "state",
            lambda row: gate_symbol(row) or STATES[row.state],
            Kind.STATE,
            doc="state, with the percent of the running epoch that is done",
            cell=state,
            minimum=12,
            reserve=(lambda row: line_width(state(row, LONGEST))) if clocks else None,
        ),
        Column(
            "since",
            _since,
            Kind.DURATION,
            title="FOR",
            doc="time in this state",
            drop=12 if measured else 1,
            minimum=9,
        ),
        *metric_columns(rows, figures, metrics or MetricSettings()),
        Column(
            "wall",
            lambda row: None if figures is None else figures.wall_seconds.get(row.key),
            Kind.DURATION,
            doc="from first submission to end, once all runs have ended",
            drop=7,
            minimum=5,
        ),
        Column(
            "hours",
            lambda row: None if _is_unlogged(row) else row.hours.total,
            Kind.HOURS,
            title=unit.upper(),
            doc="all hours of the run, once all runs have ended",
            unit=unit,
            drop=7.5,
            cell=lambda row, _: _hours(row, row.hours.total),
        ),
        Column(
            "site",
            lambda row: row.shown_epoch.site if row.shown_epoch else None,
            doc="where the latest epoch runs or ran; ≠: it asked for another",
            drop=11 if finished else 8,
            cell=_site_cell,
            minimum=site_minimum(row.latest for row in rows),
            comfortable=9 if same_names or measured else 14,
            maximum=32,
            measure=_site_width,
            reserve=_site_room,
        ),
        Column("gpu", _gpu, doc="GPU model, and how many", drop=14, maximum=20),
        Column("job", _job, doc="its latest job", align="right", drop=16, style=DIM),
        Column(
            "try",
            lambda row: (row.shown_epoch and row.shown_epoch.attempts) or None,
            Kind.COUNT,
            doc="executions of the latest epoch",
            drop=17,
            style=lambda row: tries_style(row.shown_epoch.attempts) if row.shown_epoch else PLAIN,
        ),
        Column(
            "good",
            lambda row: None if _is_unlogged(row) else row.hours.goodput,
            Kind.HOURS,
            title="GOODPUT",
            doc="hours of what succeeded, or up to the last checkpoint",
            unit=unit,
            drop=19,
            cell=lambda row, _: _hours(row, row.hours.goodput),
        ),
        Column(
            "lost",
            lambda row: row.hours.badput,
            Kind.HOURS,
            title="BADPUT",
            doc="hours that were lost, and their share of those ended",
            unit=unit,
            drop=9 if late else 18,
            cell=_lost,
            minimum=6,
            short=6,
        ),
    ]
    if every:
        return found
    absent = {"since"} if finished else {"wall", "hours"}
    absent |= set() if measured else {"last", "best", "curve"}
    absent |= {"curve"} if max((row.epochs_total for row in rows), default=0) < 2 else set()
    # A column of dashes would take room from names.
    absent |= {
        column.name
        for column in found
        if column.name in _OF_JOBS and all(column.value(row) is None for row in rows)
    }
    absent |= {"dag"} if len({row.dag for row in rows}) < 2 else set()
    absent |= set() if any(row.uuid and row.uuid != row.run for row in rows) else {"uuid"}
    if rows and not any(row.dag for row in rows):
        absent |= set() if any(_epoch(row) for row in rows) else {"epoch"}
    return [column for column in found if column.name not in absent]


_OF_JOBS: Final = frozenset({"since", "gpu", "job", "try"})
"""Columns that are empty before a job was submitted."""


def epochs_text(row: Run) -> str:
    """``4/12``, ``≥4/12``: the epochs done out of all."""
    return formatting.at_least(f"{row.epochs_done}/{row.epochs_total}", row.epochs_unknown > 0)


def _run_style(row: Run) -> TextStyle:
    # The state column is coloured; a name is bold only if it needs attention.
    if row.state in (State.HELD, State.FAILED):
        return BOLD
    return DIM if row.state is State.WAITING else PLAIN


def _progress(row: Run, cells: int | None, digits: int) -> Line:
    numbers = epochs_text(row).rjust(digits)
    bar_cells = BAR_CELLS if cells is None else max(0, cells - digits - 1)
    bar = formatting.progress_bar(row.epochs_done, row.epochs_total, bar_cells)
    filled = sum(bar.count(piece) for piece in ("━", "╸", "#"))
    return line((bar[:filled], GOOD), (bar[filled:], DIM), " ", numbers)


def _epoch(row: Run) -> int | None:
    job = row.failed or row.latest
    return None if job is None or job.epoch is None else formatting.epoch_number(job.epoch)


def state_text(row: Run, streams: Mapping[JobId, Streamed] = NO_STREAMS) -> Line:
    """The state of a run, with the progress of its running epoch."""
    if (gate := gate_symbol(row)) is not None:
        return symbol_span(gate)
    failed = line((", job failed", NOTE)) if row.shown_epoch and row.shown_epoch.overruled else ()
    if row.is_between_epochs:
        symbol = STATES[row.state]
        return line((symbol.glyph, style_of(symbol)), " ", (formatting.BETWEEN, DIM)) + failed
    latest = row.latest
    streamed = None
    if latest is not None and latest.cluster is not None and row.state is latest.state:
        streamed = streams.get((latest.cluster, latest.proc or 0))
    requested = f" {REQUESTED.glyph}" if row.has_open_request else ""
    content = symbol_span(STATES[row.state]) + failed + epoch_percent(row.state, streamed)
    return content + line((requested, style_of(REQUESTED)))


def epoch_percent(state: State, streamed: Streamed | None) -> Line:
    """`` 64 %`` of a running epoch, from the last progress line of its job."""
    done = percent(streamed) if state is State.RUNNING else ""
    return line((f" {done:>4}", MOVING)) if done else ()


def _since(row: Run) -> float | None:
    job = row.failed or row.latest
    return None if job is None or row.state is not job.state else row.seconds


def _site_cell(row: Run, cells: int | None) -> Line:
    job = row.shown_epoch
    if job is None:
        return UNKNOWN_CELL
    return site_and_target(job.site, job.target, job.off_target, cells, state=job.state)


def _site_width(row: Run) -> int:
    """The cells of a job's site, without its last site, which is dropped once it is released."""
    job = row.shown_epoch
    if job is None or job.site is None or job.state not in UNPLACED:
        return line_width(_site_cell(row, None))
    return cell_len(clip(job.site, 40) if job.target is None else formatting.wants(job.target))


def _site_room(row: Run) -> int:
    """The cells that a job's site may need: after a release or an eviction it may wait again."""
    job = row.shown_epoch
    if job is None or job.site is None or job.state in TERMINAL:
        return 0
    return cell_len(formatting.last_site(job.site, job.target))


_ADDRESS: Final = re.compile(r"[\d.]+|[0-9a-fA-F:]+")


def site_and_target(
    site: str | None,
    target: str | None,
    off_target: bool,
    cells: int | None,
    state: State | None = None,
) -> Line:
    """The site of a job, with a mark in any width if it is not the target.

    An arrow and the target without a site, or if ``state`` means that the job is not placed.
    """
    if site is not None and state in UNPLACED:
        text = formatting.last_site(site, target)
        if cells is None or len(text) <= cells:
            return line((text, DIM))
        if target is None:
            return line((f"({clip(site, min(40, max(1, cells - 2)))})", DIM))
    elif site is not None:
        return _site_with_target(clip(site, 40), target, off_target, cells)
    if target is None:
        return UNKNOWN_CELL
    return line((formatting.wants(target), DIM))


def host_and_site(host: str | None, site: Line) -> Line:
    """``on rails08 (UIUC-TGI-RAILS-CE1)``; only the site if the host is unknown."""
    if not host:
        return site
    name = host if _ADDRESS.fullmatch(host) else host.partition(".")[0]
    return line(("on ", DIM), clip(name, 40), " (") + site + line(")")


def site_minimum(rows: Iterable[Epoch | None]) -> int:
    """The minimum width of a column of sites: two names, if any site is not the target."""
    return 9 if any(row is not None and row.off_target for row in rows) else 7


def _site_with_target(site: str, target: str | None, off_target: bool, cells: int | None) -> Line:
    if not off_target or target is None:
        return line(site)
    mark, target = " ≠ ", clip(target, 40)
    room = len(site) + len(target) if cells is None else cells - len(mark)
    if room < 2 * MIN_NAME:
        return line(formatting.clip(site, max(1, room + 1)), (mark.rstrip(), NOTE))
    # If both names are long, the beginnings of both are shown.
    kept = min(len(site), max(room - len(target), room // 2))
    names = formatting.clip(site, kept), formatting.clip(target, room - kept)
    return line(names[0], (mark + names[1], NOTE))


def _gpu(row: Run) -> str | None:
    job = row.shown_epoch
    return None if job is None else formatting.gpus(job.gpu, job.gpus)


def _job(row: Run) -> str | None:
    job = row.shown_epoch
    return None if job is None else formatting.job_id(job.cluster, job.proc)


def tries_style(tries: int) -> TextStyle:
    """The style of a number of tries: marked above two."""
    return NOTE if tries > 2 else PLAIN


def hours_cell(hours: float, style: TextStyle = PLAIN, more: bool = False) -> Line:
    """A number of GPU-hours, dim for 0, with ``≥`` before it if there may be ``more``."""
    text = formatting.at_least(formatting.hours(hours), more)
    return line((text, style if hours > 0 else DIM))


def _is_unlogged(row: Run) -> bool:
    """Whether epochs are or may be done, but no log has hours of any of them.

    The hours of an epoch whose failed job a POST script overruled are badput.
    """
    overruled = row.epochs_overruled if row.hours.badput else 0
    return row.epochs_done + row.epochs_unlogged > overruled and not row.hours.goodput


def _hours(row: Run, hours: float) -> Line:
    return UNKNOWN_CELL if _is_unlogged(row) else hours_cell(hours, more=row.lacks_hours)


def _lost(row: Run, cells: int | None) -> Line:
    """``87.9  41 %`` of the hours that have ended; only the share if there is less room."""
    bad, ended = row.hours.badput, row.hours.badput + row.hours.goodput
    if _is_unlogged(row) and not bad:
        return UNKNOWN_CELL
    share = formatting.UNKNOWN if _is_unlogged(row) else formatting.share(bad, ended)
    full = hours_cell(bad, BAD, row.lacks_hours) + line((share.rjust(SHARE_CELLS), DIM))
    short = line((share, BAD if bad > 0 else DIM))
    return first_that_fits((full, short), LONGEST if cells is None else cells)


def reason(row: Run) -> str | None:
    """Why a run is held, or failed without a job, in one line; None if not or unknown."""
    latest, failed = row.latest, row.failed
    if failed is not None and failed.reason is not None:
        return hold_reason(f"{failed.node}: {failed.reason}")
    if latest is None or latest.state is not State.HELD or latest.hold_reason is None:
        return None
    return hold_reason(latest.hold_reason)


def hold_reason(reason: str) -> str:
    """A hold reason in one line, without the slot that reported it."""
    return _SLOT.sub("", plain(reason, REASON_LIMIT))


_SLOT: Final = re.compile(r"^Error from \S+: (?=.)")
"""The slot that reported a hold: dropped, since the row shows the site."""


def detail_line(row: Run, cells: int, indent: int) -> Line:
    """The second line of a held or failed run, on a screen ``cells`` wide."""
    explanation = reason(row)
    if not explanation or cells < REASON_CELLS:
        return ()
    return line((crop_middle(explanation, cells - indent - 1), BAD))


REASON_LIMIT: Final = 4000
"""Maximum length of a reason in characters: one may contain a whole error log."""

REASON_LINES: Final = 3
"""Lines of a hold reason below the table; its end is often what matters."""


def cursor_detail(
    row: Run | None,
    shown: set[str],
    cells: int,
    figures: RunFigures | None = None,
    *,
    explained: bool = False,
) -> list[Line]:
    """Details of the run under the cursor: why it is in trouble, or the dropped columns.

    ``explained``: why it is in trouble is shown elsewhere.
    """
    if row is None:
        return [()]
    if cells >= REASON_CELLS:
        return gate_details(row, cells) or [_dropped(row, shown, cells, figures)]
    explanation = "" if explained else reason(row)
    if explanation:
        return wrap(explanation, cells - 2, BAD, 1, REASON_LINES, _sign(STATES[row.state]))
    if details := gate_details(row, cells):
        return details
    if row.latest is None:
        uuid = "" if "uuid" in shown else clip((row.uuid or "")[:8], 8)
        outcome = "not submitted"
        if row.epochs_unknown:
            outcome = "the state of its epochs is unknown"
        elif row.epochs_inferred:
            outcome = f"{formatting.count(row.epochs_inferred, 'epoch')} done (inferred)"
        facts = join((line((uuid, DIM)), line((outcome, DIM))), line("  "))
        return [line(" ", (clip_middle(row.run, 24), BOLD), "  ") + facts]
    return [_dropped(row, shown, cells, figures)]


def gate_details(row: Run, cells: int) -> list[Line]:
    """Requests to the gate of a run and their state; no line if there are none."""
    texts = gate_sentences(row)
    if not texts:
        return []
    symbol = gate_symbol(row) or REQUESTED
    text = f"{clip_middle(row.run, 24)} {'; '.join(texts)}"
    return wrap(text, cells - 2, style_of(symbol), 1, REASON_LINES, _sign(symbol))


def _sign(symbol: Symbol) -> Line:
    return line((f"{symbol.glyph} ", style_of(symbol)))


def _dropped(row: Run, shown: set[str], cells: int, figures: RunFigures | None) -> Line:
    """The contents of dropped columns for a run, as far as they fit; () if none was dropped."""
    by_name = {column.name: column for column in columns([row])}
    unit = f" {row.hours.measure.short}"
    parts = [best_text(row, figures)]
    labels = {"site": "", "gpu": "", "since": "for ", "uuid": "", "job": "job ", "try": "try "}
    parts += [
        line((label, DIM)) + cell
        for name, label in labels.items()
        if name not in shown and name in by_name
        if (cell := by_name[name].draw(row)) != UNKNOWN_CELL
    ]
    hours = (
        ("good", "goodput ", None if _is_unlogged(row) else row.hours.goodput, PLAIN),
        ("lost", "badput ", row.hours.badput, BAD),
    )
    parts += [
        line((label, DIM)) + hours_cell(seconds, style, row.lacks_hours) + line((unit, DIM))
        for name, label, seconds, style in hours
        if name not in shown and seconds is not None
    ]
    if not any(parts):
        return ()
    name = line(" ", (clip_middle(row.run, 24), BOLD))
    return join_fitting((name, *parts), line("  "), cells - 1)


def empty(fault_filter: bool, text_filter: str, has_runs: bool, has_dags: bool) -> list[Line]:
    """The text of an empty table: why it is empty, and how to change that."""
    if has_runs and fault_filter and not text_filter:
        calm = line(("No open entry of Health [2] concerns a run.", GOOD))
        return empty_text(calm, "[f] shows all runs again.")
    if has_runs:
        wanted = line("No run has this in any column: ", (text_filter, ALARM))
        return empty_text(wanted, "[esc] clears the filter; [/] changes it.")
    if has_dags:
        return empty_text(
            "The DAG has no training runs.",
            "A run is made of nodes with a VARS run_uuid, or of nodes",
            "that are named like run0-train_epoch0.",
        )
    return empty_text(
        "There is no DAG file here yet, and no event in a log; what appears is",
        "shown at once. For another directory: metlmon watch DIRECTORY",
    )


def no_dagdir_text() -> list[Line]:
    """The text shown if no dagdir is open."""
    return empty_text(
        "No ensemble is open.",
        "[N] brings the form for a new one back; once submitted, it is",
        "watched here. For one that is there: metlmon watch DIRECTORY",
    )


SPARK_CELLS: Final = 8
SPARK_STEPS: Final = "▁▂▃▄▅▆▇"
NOT_FINITE: Final = "×"
"""Marks NaN and infinity in a sparkline."""

MAX_VARIABLES: Final = 6
"""Maximum number of swept variables with a column of their own."""

NAME_CELLS: Final = 14
VALUE_CELLS: Final = 12


def has_metrics(figures: RunFigures | None, rows: Sequence[Run]) -> bool:
    """Whether the runs have values of the metric.

    Before the files of the trainings are read, runs with a completed epoch may have some.
    """
    if figures is None or not figures.curves.files_read:
        return any(row.epochs_done for row in rows)
    return bool(figures.by_run)


def best_mark(row: Run, figures: RunFigures | None) -> Line:
    """``★`` for the run with the best value."""
    return line((BEST, BEST_STYLE)) if figures is not None and row.key == figures.best else ()


def best_columns(figures: RunFigures) -> list[Column[Run]]:
    """The column of :func:`best_mark` for texts, which have no margin; none without a best run."""
    if figures.best is None:
        return []
    best = figures.best
    return [Column("star", lambda row: BEST if row.key == best else "", title="", style=BEST_STYLE)]


def variable_columns(figures: RunFigures | None) -> list[Column[Run]]:
    """A column for each swept variable, the most distinctive first; the last is dropped first."""
    if figures is None:
        return []
    return [
        _variable_column(figures, name, drop=5 - (MAX_VARIABLES - place) / MAX_VARIABLES)
        for place, name in enumerate(figures.swept_names[:MAX_VARIABLES])
    ]


def _variable_column(figures: RunFigures, name: str, drop: float) -> Column[Run]:
    texts = short_values({figures.swept_value(run, name) for run in figures.sweep.runs})

    def value(row: Run) -> str | float | None:
        text = figures.swept_value(row.key, name)
        return text if text is None or not _is_number(text) else float(text)

    def cell(row: Run, _: int | None) -> Line:
        return line(texts.get(figures.swept_value(row.key, name), formatting.UNKNOWN))

    return Column(
        f"vars.{name}",
        value,
        title=clip(name, NAME_CELLS),
        doc="value of a variable (VARS) in which the runs differ",
        align="right" if all(map(_is_number, texts.values())) else "left",
        drop=drop,
        cell=cell,
        maximum=VALUE_CELLS,
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == formatting.UNKNOWN
    return True


def metric_columns(
    rows: Sequence[Run], figures: RunFigures | None, metrics: MetricSettings
) -> list[Column[Run]]:
    """The columns of the last and best value, and of a sparkline of all values."""
    is_read = figures is not None and figures.curves.files_read
    curves = figures.by_run if figures is not None else {}
    metric = figures.curves.metric if figures is not None and is_read else metrics.primary
    most_epochs = max((row.epochs_total for row in rows), default=0)
    cells = min(SPARK_CELLS, most_epochs)
    of_jobs = any(row.item == "job" for row in rows)
    lasts, bests = value_formats(curves.values())

    def last(curve: MetricCurve, _: int | None) -> Line:
        return last_cell(curve, lasts)

    def best(curve: MetricCurve, _: int | None) -> Line:
        is_best = figures is not None and curve.key == figures.best
        return value_cell(curve.best, BEST_STYLE if is_best else PLAIN, bests)

    def of_run(column: Column[Any]) -> Column[Run]:
        """A column of curves as a column of their runs; runs without a curve are sorted last."""

        def value(row: Run) -> Value:
            curve = curves.get(row.key)
            return column.value(curve) if curve is not None else None if is_read else ""

        def draw(row: Run, width: int | None) -> Line:
            curve = curves.get(row.key)
            return column.draw(curve, width) if curve else UNKNOWN_CELL if is_read else ()

        def order(row: Run) -> tuple[object, ...]:
            curve = curves.get(row.key)
            return (1,) if curve is None else (0, column.sort_key(curve))

        return replace(column, value=value, cell=draw, order=order)

    epochs = "TREND" if of_jobs or not rows else f"{formatting.number(most_epochs)} EPOCHS"
    return [
        of_run(
            replace(LAST, title=clip(metric, NAME_CELLS), doc="last value of the metric", cell=last)
        ),
        of_run(
            replace(BEST_VALUE, doc="best value of the metric; ★: the best of all runs", cell=best)
        ),
        of_run(
            Column(
                "curve",
                lambda curve: curve_symbol(curve).word,
                title=epochs,
                doc="values of the metric by epoch, and the sign of the trend",
                drop=4,
                cell=lambda curve, _: curve_cell(curve, cells),
                order=alarm_order,
                minimum=cells + 2,
            )
        ),
    ]


def curve_cell(curve: MetricCurve, cells: int) -> Line:
    """A sparkline of all values in at most ``cells`` cells, and the sign of the trend."""
    spark = sparkline([point.value for point in curve.points], cells)
    symbol, sign = curve_symbol(curve), ""
    if curve.course is Course.IMPROVES:
        sign = "↑" if (curve.trend or 0.0) > 0 else "↓"
    elif curve.diverged or curve.course is Course.FLAT:
        sign = symbol.glyph
    gap = " " * (cells - len(spark) + 1)
    return line((spark, BAD if curve.diverged else PLAIN), gap, (sign, style_of(symbol)))


def sparkline(values: Sequence[float], cells: int) -> str:
    """The values, scaled from the minimum to the maximum, in at most ``cells`` characters.

    With more values, each character is the mean of equally many; NaN and infinity have a sign.
    """
    steps = min(cells, len(values))
    cuts = [step * len(values) // steps for step in range(steps + 1)] if steps else []
    parts = ([v for v in values[a:b] if math.isfinite(v)] for a, b in pairwise(cuts))
    # Divide first: the sum or the difference of two values may be infinite.
    means = [sum(v / len(part) / 2 for v in part) if part else None for part in parts]
    known = [mean for mean in means if mean is not None]
    low, span = (min(known), max(known) - min(known)) if known else (0.0, 0.0)
    top = len(SPARK_STEPS) - 1
    return "".join(
        NOT_FINITE
        if mean is None
        else SPARK_STEPS[round(top * ((mean - low) / span if span else 0.5))]
        for mean in means
    )


def best_text(row: Run, figures: RunFigures | None) -> Line:
    """``best 0.2308 in epoch 5, improves``: what the columns do not show of a metric.

    ``no gain for 2 epochs`` is shown even before that counts as a plateau.
    """
    curve = figures.by_run.get(row.key) if figures is not None else None
    if curve is None or curve.best is None:
        return ()
    epoch = formatting.epoch_number(curve.best.epoch)
    best = (f"best {formatting.metric(curve.best.value)} in epoch {epoch}", DIM)
    course = course_text(curve)
    if curve.course is Course.IMPROVES and curve.last is not None:
        since = curve.last.epoch - curve.best.epoch
        waits = f"no gain for {formatting.count(since, 'epoch')}"
        course = waits if since else curve_symbol(curve).word
    return line(best, (f", {course}", DIM))


# --- the states of all epochs --------------------------------------------------------------

_STATES: Final[Mapping[State, tuple[str, int]]] = {
    State.COMPLETED: ("█", 9),
    State.SKIPPED: ("▁", 8),
    State.POST: ("▓", 6),
    State.TRANSFERRING_OUTPUT: ("▓", 2),
    State.RUNNING: ("▓", 10),
    State.SUSPENDED: ("╳", 14),
    State.DISCONNECTED: ("╳", 15),
    State.STARTING: ("▒", 1),
    State.TRANSFERRING_INPUT: ("▒", 3),
    State.PRE: ("▒", 7),
    State.IDLE: ("░", 4),
    State.RETRYING: ("╳", 13),
    State.HELD: ("╳", 18),
    State.FAILED: ("╳", 17),
    State.REMOVED: ("╳", 16),
    State.FUTILE: ("╳", 12),
    State.UNKNOWN: ("╳", 11),
    State.WAITING: ("─", 5),
}
"""Texture in the bar, which distinguishes the parts without colours, and the rank by which words
are dropped on a narrow terminal. From finished to not started, with trouble before the latter."""

_OVER: Final = TERMINAL | {State.SKIPPED, State.FUTILE}
"""States of nodes that have ended."""

_SHORT_WORDS: Final = {
    State.TRANSFERRING_INPUT: "in",
    State.TRANSFERRING_OUTPUT: "out",
    State.PRE: "pre",
    State.POST: "post",
}


def state_bar(states: Mapping[State, int], cells: int) -> Line:
    """All epochs as one bar; every state that occurs has at least one cell."""
    present = [(state, states.get(state, 0)) for state in _STATES if states.get(state, 0) > 0]
    total = sum(count for _, count in present)
    if not total:
        return line("─" * cells)
    shares = apportion([count for _, count in present], cells)
    cells_of = zip(present, shares, strict=True)
    return line(*((_STATES[s][0] * share, style_of(STATES[s])) for (s, _), share in cells_of))


BAR_LENGTHS: Final = (12, 8, 4)
"""Possible lengths of the bar beside the counts; few, so that the counts seldom move."""

SHORT_COUNTS: Final = 40
"""Cells that the counts of the states need before a bar is shown beside them."""


def total_text(status: Status) -> str:
    """``36 epochs``, or the number of nodes if no node is an epoch."""
    counted = status.counted_states
    noun = status.item if counted is status.epoch_states else "node"
    return formatting.count(sum(counted.values()), noun)


def progress_line(status: Status, room: int) -> Line:
    """A short bar of the states, their total and their counts, on one line."""
    counted = status.counted_states
    start = line((total_text(status), DIM), "  ")
    candidates = _count_candidates(counted, status.paused_epochs)
    room -= line_width(start)
    spare = room - line_width(candidates[1])
    states = sum(map(bool, counted.values()))
    bar_cells = next((cells for cells in BAR_LENGTHS if states <= cells <= spare - 2), 0)
    if spare < 0 and room - BAR_LENGTHS[0] - 2 >= SHORT_COUNTS:
        bar_cells = BAR_LENGTHS[0]
    if bar_cells:
        room -= bar_cells + 2
        start = state_bar(counted, bar_cells) + line("  ") + start
    return start + first_that_fits(candidates, room)


def state_counts(states: Mapping[State, int], cells: int, paused: int = 0) -> Line:
    """``✓ 412 done   ▶ 9 running   …``: states that occur, and always done ones.

    While something is left to do, running ones, too.
    """
    return first_that_fits(_count_candidates(states, paused), cells)


def _count_candidates(states: Mapping[State, int], paused: int) -> list[Line]:
    """The counts of the states: all words, short words, then ever fewer words."""
    paused_count = min(paused, states.get(State.PRE, 0))
    paused_text: Line = ()
    if paused_count:
        paused_text = line((PAUSED.glyph, style_of(PAUSED)), f" {formatting.number(paused_count)}")
        paused_text += line((f" {PAUSED.word}", style_of(PAUSED)))
        states = {**states, State.PRE: states[State.PRE] - paused_count}
    is_over = all(state in _OVER for state, count in states.items() if count)
    always = {State.COMPLETED} if is_over else {State.COMPLETED, State.RUNNING}
    present = [s for s in _STATES if states.get(s, 0) or s in always]

    words = {s: "done" if s is State.COMPLETED else STATES[s].word for s in State}
    short = words | _SHORT_WORDS
    gaps = line("   "), line("  ")
    candidates = [join((_count(s, states, words) for s in present), gaps[0])]
    candidates.append(join((_count(s, states, short) for s in present), gaps[1]))
    for dropped in sorted(present, key=lambda state: _STATES[state][1]):
        short[dropped] = ""
        candidates.append(join((_count(s, states, short) for s in present), gaps[1]))
    return [join((candidate, paused_text), gaps[0]) for candidate in candidates]


def _count(state: State, states: Mapping[State, int], words: Mapping[State, str]) -> Line:
    count = states.get(state, 0)
    style = style_of(STATES[state]) if count else DIM
    word = f" {words[state]}" if words[state] else ""
    return line((STATES[state].glyph, style), f" {formatting.number(count)}", (word, style))


def other_nodes(status: Status) -> Line:
    """Active or failed nodes that are not epochs, after a count of failed evaluations."""
    counts = status.active_other_nodes
    parts = [
        _count(state, counts, {state: STATES[state].word}) for state in _STATES if state in counts
    ]
    active = line(("other nodes  ", DIM)) + join(parts, line("  ")) if parts else ()
    return join((failed_evaluations(status.side_nodes), active), line("   "))


def failed_evaluations(side: SideCounts) -> Line:
    """``2 evaluations failed``: an alarm if that fails the DAG, else a note."""
    text, detail = row_text.failed_evaluations(side)
    detail_span = (f" ({detail})" if detail else "", ALARM if side.failed else DIM)
    return line((text, ALARM if side.failed and not side.overruled else NOTE), detail_span)
