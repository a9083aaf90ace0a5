"""Learning curves: metrics by epoch, per run and as a band; evaluations.

Values come from the files of the trainings (:mod:`metlmon.jobfiles`). Non-finite values (NaN,
infinities) are reported per run and excluded from medians. Epochs are numbered like nodes, from 0.

Definitions for one run and one metric; ``worse`` means larger for a loss:

- best: the best finite value, the first of equal ones; last: the value of the last epoch.
- trend: the change per epoch from the finite value ``TREND_EPOCHS`` epochs back (or the first
  one) to the last finite one.
- improves: the best value is among the last ``PATIENCE`` ones (of a long run more), and there are
  at least two.
- diverged: the curve ends in non-finite values, or in values whose distance from the best exceeds
  ``FAR_FACTOR`` times the larger of the best's magnitude and the gain since the first epoch; or it
  became worse for ``MIN_RISING_EPOCHS`` consecutive epochs and is worse than in its first epoch.
  The epoch of divergence is the first from which on every value is non-finite, far off, or worse
  than the previous one. A run that recovers has not diverged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import ClassVar, Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from metlmon.config.settings import MetricSettings
from metlmon.jobfiles.records import Point, Streamed, TrainingOutput, more_is_better
from metlmon.live.feed import StatsInput
from metlmon.model.job_events import NodeKey
from metlmon.snapshot.records import Epoch, Run
from metlmon.snapshot.row_text import run_labels
from metlmon.stats.totals import quartiles
from metlmon.text.formatting import (
    Colour,
    Symbol,
    Weight,
    clip,
    clip_middle,
    count,
    epoch_number,
    epoch_text,
    number,
)
from metlmon.text.formatting import metric as format_metric
from metlmon.text.record_json import Nullable

Goal = Literal["min", "max"]

TREND_EPOCHS: Final = 3
"""Long enough to ignore one lucky epoch, short enough to show a lowered learning rate."""

PATIENCE: Final = 3
PATIENT_SHARE: Final = 0.1
"""Epochs without a new best after which a run no longer improves: three (Lightning's default for
early stopping), and of a long run a tenth of its epochs."""

FAR_FACTOR: Final = 3.0
"""Divergence threshold: no healthy curve loses three times what it has gained."""

MIN_RISING_EPOCHS: Final = 2
"""Consecutive worsening epochs of a divergence: one may be chance, two are a direction."""

NO_GOAL_PREFIXES: Final = ("lr-", "lr_", "learning_rate", "momentum", "epoch_time")
"""Name prefixes of values that a training sets instead of optimising them."""


PREFERRED_METRIC: Final = "eval_loss"
"""The metric that is shown if there are several."""

METRIC_PREFIX: Final = "eval"
"""Prefix of the metrics that evaluations write, which separates them from the training's."""


class Course(StrEnum):
    """The course of a run's curve."""

    IMPROVES = "improves"
    FLAT = "flat"
    DIVERGED = "diverged"
    NAN = "nan"
    EARLY = "early"
    NONE = "none"


class MetricCurve(Struct, frozen=True):
    """The curve of one run.

    ``course``: NONE without values or for a metric without a goal, EARLY with one value.
    ``since_epoch``: the epoch in which it diverged or became NaN, or of its best value if it is
    flat. ``odd_epochs``: numbers of those without a finite value. ``trend``: the change per epoch.
    ``streamed``: the progress line of the running epoch, ``running_epoch``: its number. ``ended``:
    whether no epoch of the run is left.
    """

    json_omits: ClassVar = frozenset({"ended"})

    key: str
    run: str
    uuid: str | None
    label: str | None
    epochs_total: int
    points: tuple[Point, ...]
    best: Point | None
    last: Point | None
    trend: float | None
    course: Course
    since_epoch: int | None
    odd_epochs: tuple[int, ...]
    goal: Goal | None
    running_epoch: int | None = None
    streamed: Streamed | None = None
    ended: bool = False
    dag: Nullable[str] = ""

    @property
    def diverged(self) -> bool:
        """Whether the curve diverged or became NaN."""
        return self.course in (Course.DIVERGED, Course.NAN)


class EpochValue(NamedTuple):
    """The value of a metric in an epoch, and its change per epoch since the value before."""

    value: Nullable[float]
    change: float | None


class BandLevel(Struct, frozen=True):
    """The distribution of the ``n`` values of several curves at one epoch.

    Values of diverged runs count up to the epoch before the divergence; ``excluded``: the number of
    excluded values.
    """

    epoch: int
    n: int
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    maximum: float
    excluded: int = 0


class MetricBand(Struct, frozen=True):
    """The band of several runs. ``label`` None: the runs without a label, or all runs."""

    label: str | None
    runs: int
    levels: tuple[BandLevel, ...]


class Curves(Struct, frozen=True):
    """The curves of one metric of an ensemble.

    ``goal`` None: no direction is better. ``metrics``: all metrics, the primary one first.
    ``runs``: of all runs in the ledger's order, including runs without points. ``bands``: by
    label, if there are labels; ``problems``: of all files.
    """

    json_omits: ClassVar = frozenset({"files_read"})

    metric: str
    goal: Goal | None
    metrics: tuple[str, ...]
    runs: tuple[MetricCurve, ...]
    band: MetricBand
    bands: tuple[MetricBand, ...]
    problems: tuple[str, ...] = ()
    files_read: bool = True

    @property
    def curves_with_values(self) -> tuple[MetricCurve, ...]:
        return tuple(curve for curve in self.runs if curve.points)

    @property
    def best(self) -> MetricCurve | None:
        """The curve with the best value."""
        return best_curve(self.runs)


def best_curve(curves: Iterable[MetricCurve]) -> MetricCurve | None:
    """The curve with the best value, all of one metric; None if none has a value."""

    def cost(curve: MetricCurve) -> float:
        value = curve.best.value if curve.best is not None else math.inf
        return -value if curve.goal == "max" else value

    return min((curve for curve in curves if curve.best is not None), key=cost, default=None)


COURSES: Final[Mapping[Course, Symbol]] = {
    Course.IMPROVES: Symbol("✓", "improves", Colour.GREEN),
    Course.FLAT: Symbol("≈", "plateau", Colour.ORANGE),
    Course.DIVERGED: Symbol("✗", "diverged", Colour.VERMILLION, Weight.BOLD),
    Course.NAN: Symbol("✗", "NaN", Colour.VERMILLION, Weight.BOLD),
    Course.EARLY: Symbol("◦", "one value", Colour.GREY),
    Course.NONE: Symbol("·", "no values", Colour.GREY, Weight.DIM),
}

_INFINITE: Final = replace(COURSES[Course.NAN], word="inf")


def course_symbol(course: Course, last: float | None) -> Symbol:
    """The symbol of a course; ``last`` distinguishes an infinity from NaN."""
    if course is Course.NAN and last is not None and math.isinf(last):
        return _INFINITE
    return COURSES[course]


def curve_symbol(curve: MetricCurve) -> Symbol:
    """The symbol of a curve's course."""
    return course_symbol(curve.course, curve.last.value if curve.last is not None else None)


MAX_NAMED_RUNS: Final = 2
"""Maximum diverged runs that the verdict names; of more, it gives the number."""

NAME_LIMIT: Final = 40


class CurvesSummary(Struct, frozen=True):
    """The summary of the curves in parts; a part that does not apply is "".

    ``5 of 6 runs improve``, ``best 0.2308 run1 epoch 4``, ``run4 diverged in epoch 3``
    (``diverged_short``: ``1 run diverged``), ``1 run on a plateau``. ``all_improve``: all runs with
    enough epochs improve.
    """

    runs: str
    best: str
    diverged: str
    diverged_short: str
    flat: str
    all_improve: bool


def curves_summary(metric_curves: Curves, live: bool) -> CurvesSummary:
    """The summary of one metric, in the present (``live``) or the past tense."""
    known = metric_curves.curves_with_values

    def count_runs(course: Course) -> int:
        return sum(curve.course is course for curve in known)

    improving, total = count_runs(Course.IMPROVES), count(len(known), "run")
    early = count_runs(Course.EARLY)
    if metric_curves.goal is None:
        runs_text = f"{total} with {clip(metric_curves.metric, NAME_LIMIT)}"
    elif early == len(known):
        suffix = "" if len(known) == 1 else " each"
        runs_text = f"{total} with one epoch{suffix}: too early to say"
    else:
        verb = "were improving" if not live else "improves" if len(known) == 1 else "improve"
        runs_text = f"{number(improving)} of {total} {verb}"
        runs_text += f", {number(early)} too early to say" if early else ""
    labels = run_labels(metric_curves.runs)
    lost = [curve for curve in known if curve.diverged]
    short = f"{count(len(lost), 'run')} diverged" if lost else ""
    run_texts = ", ".join(
        f"{clip_middle(labels[curve.key], NAME_LIMIT)} "
        f"{f'is {curve_symbol(curve).word} since' if curve.course is Course.NAN else 'diverged in'}"
        f" epoch {epoch_text(curve.since_epoch)}"
        for curve in lost[:MAX_NAMED_RUNS]
    )
    flat = count_runs(Course.FLAT)
    return CurvesSummary(
        runs=runs_text,
        best=_best_text(metric_curves, labels),
        diverged=run_texts if len(lost) <= MAX_NAMED_RUNS else short,
        diverged_short=short,
        flat=f"{count(flat, 'run')} on a plateau" if flat else "",
        all_improve=0 < improving == len(known) - early,
    )


def _best_text(metric_curves: Curves, labels: Mapping[str, str]) -> str:
    curve = metric_curves.best
    if curve is None or curve.best is None:
        return ""
    name = clip_middle(labels[curve.key], NAME_LIMIT)
    return f"best {format_metric(curve.best.value)} {name} epoch {epoch_number(curve.best.epoch)}"


def course_text(curve: MetricCurve) -> str:
    """``diverged in epoch 3``, ``plateau since epoch 12``, ``improves``, …

    ``best 2 epochs ago``; of a run that has all its epochs ``best at 29 of 30``, ``no gain for 4
    epochs``.
    """
    if curve.course is Course.NONE and curve.points:
        return "no goal"
    text = curve_symbol(curve).word
    best, last = curve.best, curve.last
    ended = curve.ended and curve.epochs_total > 1
    since_best = last.epoch - best.epoch if best is not None and last is not None else 0
    if ended and best and last and curve.course is Course.IMPROVES:
        text = f"best at {epoch_number(best.epoch)} of {epoch_number(last.epoch)}"
    elif since_best and curve.course is Course.IMPROVES:
        text = f"best {count(since_best, 'epoch')} ago"
    elif ended and curve.course is Course.FLAT:
        text = f"no gain for {count(since_best, 'epoch')}"
    elif curve.since_epoch is not None:
        text += f" {'in' if curve.course is Course.DIVERGED else 'since'}"
        text += f" epoch {epoch_number(curve.since_epoch)}"
    odd = next((p for p in reversed(curve.points) if not math.isfinite(p.value)), None)
    if odd is None or curve.diverged:
        return text
    return f"{text}, {course_symbol(Course.NAN, odd.value).word} in epoch {epoch_number(odd.epoch)}"


def metric_names(stats_input: StatsInput) -> tuple[str, ...]:
    """All metrics: the primary one, then validation, test and training by name."""
    trainings = stats_input.job_files.trainings.values()
    names = {name for training in trainings for name in training.metrics}
    primary = stats_input.settings.metrics.primary

    def sort_key(name: str) -> tuple[int, str]:
        if name == primary:
            return 0, name
        for order, prefix in enumerate(("val", "test", "train"), start=1):
            if name.startswith(prefix):
                return order, name
        return 9, name

    return tuple(sorted(names, key=sort_key))


def goal_of(metric: str, metrics: MetricSettings) -> Goal | None:
    """The goal of a metric: configured for the primary one, else by its name."""
    if metric == metrics.primary:
        return "max" if metrics.goal == "max" else "min"
    if metric.lower().startswith(NO_GOAL_PREFIXES):
        return None
    return "max" if more_is_better(metric) else "min"


def curves(stats_input: StatsInput, metric: str | None = None) -> Curves:
    """The curves of ``metric``; None: the primary one, else the first."""
    names, files = metric_names(stats_input), stats_input.job_files
    primary = stats_input.settings.metrics.primary
    wanted = metric or (primary if primary in names or not names else names[0])
    goal = goal_of(wanted, stats_input.settings.metrics)
    run_curves = tuple(curve_of(run, wanted, goal, stats_input) for run in stats_input.ledger.runs)
    labels = list(dict.fromkeys(curve.label for curve in run_curves))
    known_labels = [label for label in labels if label is not None]
    cohorts = [*known_labels, None] if known_labels and None in labels else known_labels
    return Curves(
        metric=wanted,
        goal=goal,
        metrics=names,
        runs=run_curves,
        band=metric_band(None, run_curves),
        bands=tuple(
            metric_band(label, [c for c in run_curves if c.label == label]) for label in cohorts
        ),
        problems=tuple(p for training in files.trainings.values() for p in training.problems),
        files_read=files.are_read,
    )


def curve_of(run: Run, metric: str, goal: Goal | None, stats_input: StatsInput) -> MetricCurve:
    """The curve of a metric of one run."""
    training = stats_input.job_files.trainings.get(run.key)
    points = training.metrics.get(metric, ()) if training is not None else ()
    finite = [point for point in points if math.isfinite(point.value)]
    sign = -1.0 if goal == "max" else 1.0
    best = min(finite, key=lambda point: sign * point.value, default=None) if goal else None
    course, since = course_of(points, goal, run.epochs_total)
    latest = run.latest
    streamed = running = None
    if latest is not None and latest.cluster is not None:
        streamed = stats_input.job_files.streams.get((latest.cluster, latest.proc or 0))
        running = latest.epoch if streamed is not None else None
    return MetricCurve(
        key=run.key,
        run=run.run,
        uuid=run.uuid,
        dag=run.dag,
        label=run.label,
        epochs_total=run.epochs_total,
        points=points,
        best=best,
        last=points[-1] if points else None,
        trend=trend_of(finite),
        course=course,
        since_epoch=since,
        odd_epochs=tuple(epoch_number(p.epoch) for p in points if not math.isfinite(p.value)),
        goal=goal,
        running_epoch=running,
        streamed=streamed,
        ended=not run.epochs_left,
    )


def trend_of(finite: Sequence[Point]) -> float | None:
    """The change per epoch over the last epochs; None for fewer than two values."""
    if len(finite) < 2:
        return None
    last = finite[-1]
    earlier = [point for point in finite[:-1] if point.epoch <= last.epoch - TREND_EPOCHS]
    first = earlier[-1] if earlier else finite[0]
    return (last.value - first.value) / (last.epoch - first.epoch)


def values_by_epoch(curve: MetricCurve | None, rows: Iterable[Epoch]) -> dict[NodeKey, EpochValue]:
    """The values of a run's curve by the key of the node that counts for the epoch."""
    points = () if curve is None else curve.points
    changes = [math.nan, *(trend_of(pair) or 0.0 for pair in pairwise(points))]
    values = {
        point.epoch: EpochValue(point.value, change if math.isfinite(change) else None)
        for point, change in zip(points, changes, strict=False)
    }
    return {
        row.node_key: values[row.epoch]
        for row in rows
        if row.counts and row.training and row.epoch in values
    }


def course_of(
    points: Sequence[Point], goal: Goal | None, epochs_total: int = 0
) -> tuple[Course, int | None]:
    """The course of a curve, and since which epoch."""
    if not points:
        return Course.NONE, None
    nan_since = _trailing_nan(points)
    if goal is None:
        return (Course.NAN, nan_since) if nan_since is not None else (Course.NONE, None)
    costs = [-point.value if goal == "max" else point.value for point in points]
    start = _divergence(costs)
    if start is not None:
        since = points[start].epoch
        return (Course.NAN if since == nan_since else Course.DIVERGED), since
    known = [
        (cost, point) for cost, point in zip(costs, points, strict=True) if math.isfinite(cost)
    ]
    if len(known) < 2:
        return Course.EARLY, None
    index = min(range(len(known)), key=lambda i: known[i][0])
    patience = max(PATIENCE, math.ceil(PATIENT_SHARE * max(epochs_total, len(points))))
    if len(known) - 1 - index < patience:
        return Course.IMPROVES, None
    return Course.FLAT, known[index][1].epoch


def _trailing_nan(points: Sequence[Point]) -> int | None:
    """The first epoch of the non-finite values at the end; None if the last value is finite."""
    since = None
    for point in reversed(points):
        if math.isfinite(point.value):
            break
        since = point.epoch
    return since


def _divergence(costs: Sequence[float]) -> int | None:
    """The index from which the values diverge until the end; None if they do not."""
    finite = [cost for cost in costs if math.isfinite(cost)]
    first, best = (finite[0], min(finite)) if finite else (0.0, 0.0)
    spread = max(abs(best), first - best)
    limit = best + FAR_FACTOR * spread if spread > 0 else math.inf

    def far(cost: float) -> bool:
        return not math.isfinite(cost) or cost > limit

    start, previous = len(costs), math.inf
    for index, cost in enumerate(costs):
        if not far(cost) and cost <= previous:
            start = len(costs)
        elif start == len(costs):
            start = index
        previous = cost if math.isfinite(cost) else previous
    rising = len(costs) - start >= MIN_RISING_EPOCHS and previous > first
    return start if start < len(costs) and (far(costs[-1]) or rising) else None


def metric_band(label: str | None, metric_curves: Iterable[MetricCurve]) -> MetricBand:
    """Median, quartiles and extremes of several curves by epoch.

    Quartiles use the inclusive method; those of one value are that value. Values of a run from
    its divergence on are counted but excluded.
    """
    with_values = [curve for curve in metric_curves if curve.points]
    by_epoch: dict[int, list[float]] = {}
    lost: Counter[int] = Counter()
    for curve in with_values:
        diverged_at = curve.since_epoch if curve.diverged else None
        for point in curve.points:
            if diverged_at is not None and point.epoch >= diverged_at:
                lost[point.epoch] += 1
            elif math.isfinite(point.value):
                by_epoch.setdefault(point.epoch, []).append(point.value)
    levels = []
    for epoch, values in sorted(by_epoch.items()):
        lower, middle, upper = quartiles(values)
        levels.append(
            BandLevel(
                epoch=epoch,
                n=len(values),
                minimum=min(values),
                lower_quartile=lower,
                median=middle,
                upper_quartile=upper,
                maximum=max(values),
                excluded=lost[epoch],
            )
        )
    return MetricBand(label, len(with_values), tuple(levels))


# --- evaluations ----------------------------------------------------------------------------


class EvaluationResult(Struct, frozen=True):
    """The evaluation results of one run, for one ``metric``.

    ``by_version``: by the ``version_<k>`` of the file (for an evaluation: VAR ``epoch``);
    ``by_epoch``: by the epoch in the training node's name.
    """

    metric: str
    by_version: Mapping[int, float]
    by_epoch: Mapping[int, float]

    def value(self, evaluation: Epoch, epoch: Epoch) -> float | None:
        """The result of the evaluation of an epoch; None if it has written none."""
        if self.by_version:
            return self.by_version.get(-1 if evaluation.epoch_var is None else evaluation.epoch_var)
        return self.by_epoch.get(-1 if epoch.epoch is None else epoch.epoch)


def evaluations(stats_input: StatsInput) -> Mapping[str, EvaluationResult]:
    """The evaluation results by run key, without runs that have none."""
    trainings = stats_input.job_files.trainings
    results = {key: _evaluation_result(training) for key, training in trainings.items()}
    return {key: result for key, result in results.items() if result is not None}


def _evaluation_result(training: TrainingOutput) -> EvaluationResult | None:
    names = sorted(name for name in training.metrics if name.startswith(METRIC_PREFIX))
    if not names:
        return None
    name = PREFERRED_METRIC if PREFERRED_METRIC in names else names[0]
    points = training.metrics[name]
    by_version = {p.version: p.value for p in points if p.version is not None}
    return EvaluationResult(name, by_version, {p.epoch: p.value for p in points})
