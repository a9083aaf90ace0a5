"""Learning curves: each metric by epoch, per run and as a band over the ensemble or a cohort.

Values are those that the trainings wrote (:mod:`metlmon.jobfiles`). What is no number (NaN, an
infinity) is told of its run, and is in no median. Epochs are numbered as nodes are, from 0.

Definitions, all of one run and one metric, ``worse`` meaning larger for a loss:

- best: its best finite value, the first of equal ones; last: the value of its last epoch.
- trend: how much the metric changed per epoch from the finite value ``TREND_EPOCHS`` epochs
  back (or its first) to its last finite one.
- improves: its best value is one of its last ``PATIENCE`` ones, and it has two at least.
- diverged: it ends in values that are no numbers, or ``FAR`` times further from its best than
  the larger of the best's size and of all that it had gained since its first epoch; or it has
  become worse for ``RISING`` epochs in a row and is now worse than in its first epoch. It
  diverged in the first epoch of that end, from which on every value is no number, far off, or
  worse than the one before. A run that comes back has not diverged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cache
from statistics import quantiles
from typing import Final, Literal, Protocol

from metlmon.frozen import frozen
from metlmon.jobfiles.metric_direction import more_is_better
from metlmon.jobfiles.records import Point, Streamed
from metlmon.model.job_events import JobId
from metlmon.model.settings import MetricSettings
from metlmon.snapshot.ledger import RunEntry
from metlmon.stats.worker import StatsInput
from metlmon.text.formatting import Colour, Symbol, Weight, count, number, plain
from metlmon.text.formatting import metric as metric_told

Goal = Literal["min", "max"]

TREND_EPOCHS: Final = 3
"""Long enough that one lucky epoch is no trend, short enough to see that a rate was lowered."""

PATIENCE: Final = 3
"""Epochs without a new best after which a run no longer improves, whatever its trend: Lightning's
own default for stopping early. With a trend for the worse it does not improve before that."""

FAR: Final = 3.0
"""No healthy curve jumps three times as far back as it ever came."""

RISING: Final = 2
"""One epoch that is worse than the first may be chance; two in a row are a direction."""

NO_GOAL: Final = ("lr-", "lr_", "learning_rate", "momentum", "epoch_time")
"""Beginnings of names of what a training sets, and does not reach."""


class Course(StrEnum):
    """How a run's curve goes."""

    IMPROVES = "improves"
    FLAT = "flat"
    DIVERGED = "diverged"
    NAN = "nan"
    EARLY = "early"
    NONE = "none"


@frozen
class MetricCurve:
    """One run's curve. ``course``: :class:`Course`; NONE without values or for a metric without
    a goal, EARLY with one value. ``since``: the epoch in which it diverged or became NaN, or of
    its best where it is flat. ``odd``: epochs whose value is no number. ``trend`` is per epoch.
    ``streamed``: the progress line of its running epoch, ``running`` that epoch's number."""

    run: str
    run_name: str
    uuid: str | None
    label: str | None
    epochs_total: int
    points: tuple[Point, ...]
    best: Point | None
    last: Point | None
    trend: float | None
    course: Course
    since: int | None
    odd: tuple[int, ...]
    goal: Goal | None
    running: int | None = None
    streamed: Streamed | None = None

    @property
    def lost(self) -> bool:
        """It diverged, or became NaN."""
        return self.course in (Course.DIVERGED, Course.NAN)


@frozen
class CohortLevel:
    """The curves at one epoch: how many have a value there (``n``), and what these are. Values
    of runs that diverged are in it up to the epoch before; ``lost``: how many are not."""

    epoch: int
    n: int
    least: float
    lower: float
    median: float
    upper: float
    most: float
    lost: int = 0


@frozen
class MetricBand:
    """The curves of some runs together. ``label`` None: of those that have none, or of all."""

    label: str | None
    runs: int
    levels: tuple[CohortLevel, ...]


@frozen
class Curves:
    """One metric of an ensemble. ``goal`` None: it has no better and worse. ``metrics``: all that
    there are, the primary one first. ``curves``: of all runs in the ledger's order, with points
    or without. ``bands``: by label, where there are labels; ``problems``: of all files."""

    metric: str
    goal: Goal | None
    metrics: tuple[str, ...]
    curves: tuple[MetricCurve, ...]
    band: MetricBand
    bands: tuple[MetricBand, ...]
    problems: tuple[str, ...] = ()
    written: bool = True

    @property
    def with_values(self) -> tuple[MetricCurve, ...]:
        return tuple(curve for curve in self.curves if curve.points)

    @property
    def best(self) -> MetricCurve | None:
        """The curve with the best value of all."""
        known = [curve for curve in self.curves if curve.best is not None]
        sign = -1.0 if self.goal == "max" else 1.0
        return min(known, key=lambda c: sign * c.best.value if c.best else 0.0, default=None)


COURSES: Final[Mapping[Course, Symbol]] = {
    Course.IMPROVES: Symbol("✓", "+", "improves", Colour.GREEN),
    Course.FLAT: Symbol("≈", "~", "no better", Colour.ORANGE),
    Course.DIVERGED: Symbol("✗", "X", "diverged", Colour.VERMILLION, Weight.BOLD),
    Course.NAN: Symbol("✗", "X", "NaN", Colour.VERMILLION, Weight.BOLD),
    Course.EARLY: Symbol("◦", "i", "one value", Colour.GREY),
    Course.NONE: Symbol("·", ".", "no values", Colour.GREY, Weight.DIM),
}

_INFINITE: Final = replace(COURSES[Course.NAN], word="inf")


def course_sign(course: Course, last: float | None) -> Symbol:
    """How a curve goes; of one that is no number any more which it is, by its ``last`` value."""
    if course is Course.NAN and last is not None and math.isinf(last):
        return _INFINITE
    return COURSES[course]


def sign_of(curve: MetricCurve) -> Symbol:
    """How a curve goes."""
    return course_sign(curve.course, curve.last.value if curve.last is not None else None)


NAMED: Final = 2
"""So many runs that diverged are named in the answer; of more, how many they are."""

NAME_LIMIT: Final = 40


@frozen
class CurveVerdict:
    """Whether it is learning, in parts: ``5 of 6 runs improve``, ``best 0.2308 run1 epoch 4``,
    ``run4 diverged in epoch 3`` (``lost_short``: ``1 run diverged``), ``1 run no better``; "" for
    what there is not. ``well``: all of which it can be said improve."""

    runs: str
    best: str
    lost: str
    lost_short: str
    flat: str
    well: bool


def answer(of: Curves, live: bool, ascii: bool = False) -> CurveVerdict:
    """The sentence of one metric, told of now (``live``) or of then."""
    known = of.with_values

    def runs(course: Course) -> int:
        return sum(curve.course is course for curve in known)

    better, total = runs(Course.IMPROVES), count(len(known), "run", ascii=ascii)
    early = runs(Course.EARLY)
    if of.goal is None:
        first = f"{total} with {plain(of.metric, NAME_LIMIT, ascii)}"
    elif early == len(known):
        each = "" if len(known) == 1 else " each"
        first = f"{total} with one epoch{each}: too early to say"
    else:
        verb = "still improved" if not live else "improves" if len(known) == 1 else "improve"
        first = f"{number(better, ascii)} of {total} {verb}"
        first += f", {number(early, ascii)} too early to say" if early else ""
    lost = [curve for curve in known if curve.lost]
    short = f"{count(len(lost), 'run', ascii=ascii)} diverged" if lost else ""
    named = ", ".join(
        f"{plain(curve.run_name, NAME_LIMIT, ascii)} "
        f"{f'is {sign_of(curve).word} since' if curve.course is Course.NAN else 'diverged in'} "
        f"epoch {curve.since}"
        for curve in lost[:NAMED]
    )
    flat = runs(Course.FLAT)
    return CurveVerdict(
        first,
        _told_best(of, ascii),
        named if len(lost) <= NAMED else short,
        short,
        f"{count(flat, 'run', ascii=ascii)} no better" if flat else "",
        0 < better == len(known) - early,
    )


def _told_best(of: Curves, ascii: bool) -> str:
    curve = of.best
    if curve is None or curve.best is None:
        return ""
    name = plain(curve.run_name, NAME_LIMIT, ascii)
    return f"best {metric_told(curve.best.value, ascii)} {name} epoch {curve.best.epoch}"


def told_course(curve: MetricCurve) -> str:
    """``diverged in 3``, ``no better since 12``, ``improves, NaN in 2``: without its sign."""
    if curve.course is Course.NONE and curve.points:
        return "no goal"
    told = sign_of(curve).word
    if curve.since is not None:
        told += f" {'in' if curve.course is Course.DIVERGED else 'since'} {curve.since}"
    odd = next((p for p in reversed(curve.points) if not math.isfinite(p.value)), None)
    if odd is None or curve.lost:
        return told
    return f"{told}, {course_sign(Course.NAN, odd.value).word} in {odd.epoch}"


class CurveStat(Protocol):
    """What :meth:`metlmon.stats.worker.StatsWorker.of` asks of a basis."""

    def __call__(self, basis: StatsInput, /) -> Curves: ...


@cache
def curves_of(metric: str | None) -> CurveStat:
    """The figure of one metric (None: the first that there is, the primary one if it is): the
    same function for the same metric."""

    def figure(basis: StatsInput, /) -> Curves:
        return curves(basis, metric)

    return figure


def streams(basis: StatsInput) -> Mapping[JobId, Streamed]:
    """The progress lines of running jobs."""
    return basis.streams


def metric_names(basis: StatsInput) -> tuple[str, ...]:
    """All metrics that any run has: the primary one, then the others of validation, test and
    training by name."""
    names = {name for training in basis.trainings.values() for name in training.metrics}
    primary = basis.settings.metrics.primary

    def place(name: str) -> tuple[int, str]:
        if name == primary:
            return 0, name
        for order, beginning in enumerate(("val", "test", "train"), start=1):
            if name.startswith(beginning):
                return order, name
        return 9, name

    return tuple(sorted(names, key=place))


def goal_of(metric: str, metrics: MetricSettings) -> Goal | None:
    """Which values of a metric are good ones: as set for the primary one, else by its name."""
    if metric == metrics.primary:
        return "max" if metrics.goal == "max" else "min"
    if metric.lower().startswith(NO_GOAL):
        return None
    return "max" if more_is_better(metric) else "min"


def curves(basis: StatsInput, metric: str | None = None) -> Curves:
    """The curves of ``metric``; None: the primary metric, or if no run has it the first one."""
    names = metric_names(basis)
    primary = basis.settings.metrics.primary
    wanted = metric or (primary if primary in names or not names else names[0])
    goal = goal_of(wanted, basis.settings.metrics)
    made = tuple(_curve(run, wanted, goal, basis) for run in basis.ledger.runs)
    labels = list(dict.fromkeys(curve.label for curve in made))
    told = [label for label in labels if label is not None]
    cohorts = [*told, None] if told and None in labels else told
    return Curves(
        wanted,
        goal,
        names,
        made,
        band(None, made),
        tuple(band(label, [c for c in made if c.label == label]) for label in cohorts),
        tuple(p for training in basis.trainings.values() for p in training.problems),
        basis.written,
    )


def _curve(run: RunEntry, metric: str, goal: Goal | None, basis: StatsInput) -> MetricCurve:
    training = basis.trainings.get(run.run)
    points = training.metrics.get(metric, ()) if training is not None else ()
    finite = [point for point in points if math.isfinite(point.value)]
    sign = -1.0 if goal == "max" else 1.0
    best = min(finite, key=lambda point: sign * point.value, default=None) if goal else None
    course, since = course_of(points, goal)
    latest = run.latest
    streamed = running = None
    if latest is not None and latest.cluster is not None:
        streamed = basis.streams.get((latest.cluster, latest.proc or 0))
        running = latest.epoch if streamed is not None else None
    return MetricCurve(
        run.run,
        run.run_name,
        run.uuid,
        run.label,
        run.epochs_total,
        points,
        best,
        points[-1] if points else None,
        trend_of(finite),
        course,
        since,
        tuple(point.epoch for point in points if not math.isfinite(point.value)),
        goal,
        running,
        streamed,
    )


def trend_of(finite: Sequence[Point]) -> float | None:
    """Change per epoch over the last epochs; None of fewer than two values."""
    if len(finite) < 2:
        return None
    last = finite[-1]
    back = [point for point in finite[:-1] if point.epoch <= last.epoch - TREND_EPOCHS]
    first = back[-1] if back else finite[0]
    return (last.value - first.value) / (last.epoch - first.epoch)


def course_of(points: Sequence[Point], goal: Goal | None) -> tuple[Course, int | None]:
    """How a curve goes, and since which epoch."""
    if not points:
        return Course.NONE, None
    ended = _trailing_nan(points)
    if goal is None:
        return (Course.NAN, ended) if ended is not None else (Course.NONE, None)
    costs = [-point.value if goal == "max" else point.value for point in points]
    start = _divergence(costs)
    if start is not None:
        since = points[start].epoch
        return (Course.NAN if since == ended else Course.DIVERGED), since
    known = [
        (cost, point) for cost, point in zip(costs, points, strict=True) if math.isfinite(cost)
    ]
    if len(known) < 2:
        return Course.EARLY, None
    place = min(range(len(known)), key=lambda at: known[at][0])
    trend = trend_of([point for _, point in known]) or 0.0
    worse = trend < 0 if goal == "max" else trend > 0
    if place >= len(known) - PATIENCE and not worse:
        return Course.IMPROVES, None
    return Course.FLAT, known[place][1].epoch


def _trailing_nan(points: Sequence[Point]) -> int | None:
    """The epoch from which on no value is a number."""
    since = None
    for point in reversed(points):
        if math.isfinite(point.value):
            break
        since = point.epoch
    return since


def _divergence(costs: Sequence[float]) -> int | None:
    """The place at which the values begin to run away, to their end; None when they do not."""
    finite = [cost for cost in costs if math.isfinite(cost)]
    first, best = (finite[0], min(finite)) if finite else (0.0, 0.0)
    spread = max(abs(best), first - best)
    limit = best + FAR * spread if spread > 0 else math.inf

    def far(cost: float) -> bool:
        return not math.isfinite(cost) or cost > limit

    start, before = len(costs), math.inf
    for place, cost in enumerate(costs):
        if not far(cost) and cost <= before:
            start = len(costs)
        elif start == len(costs):
            start = place
        before = cost if math.isfinite(cost) else before
    rising = len(costs) - start >= RISING and before > first
    return start if start < len(costs) and (far(costs[-1]) or rising) else None


def band(label: str | None, of: Iterable[MetricCurve]) -> MetricBand:
    """Median, quartiles and extremes of some curves, epoch by epoch. Quartiles are those of
    the values themselves (the inclusive method): of one value they are that value. What a run
    has from the epoch on in which it diverged says nothing of the others: it is counted, and
    left out."""
    by_epoch: dict[int, list[float]] = {}
    lost: dict[int, int] = {}
    runs = 0
    for curve in of:
        runs += bool(curve.points)
        gone = curve.since if curve.lost else None
        for point in curve.points:
            if gone is not None and point.epoch >= gone:
                lost[point.epoch] = lost.get(point.epoch, 0) + 1
            elif math.isfinite(point.value):
                by_epoch.setdefault(point.epoch, []).append(point.value)
    levels = (_level(e, by_epoch[e], lost.get(e, 0)) for e in sorted(by_epoch))
    return MetricBand(label, runs, tuple(levels))


def _level(epoch: int, values: list[float], lost: int) -> CohortLevel:
    lower, middle, upper = (
        quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    )
    return CohortLevel(epoch, len(values), min(values), lower, middle, upper, max(values), lost)
