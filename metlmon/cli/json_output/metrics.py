"""The JSON of points of metrics, and of the metric of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from metlmon.cli.json_output.objects import JsonObject, Stamp, finite, nonfinite
from metlmon.jobfiles.records import Point
from metlmon.snapshot.types import RunRow
from metlmon.stats.curves import MetricCurve
from metlmon.text.formatting import epoch_number

if TYPE_CHECKING:
    from metlmon.stats.run_figures import RunFigures

POINT: Final = JsonObject(
    Point,
    "A value of a metric at an epoch; where it is no number it is null, and odd says which "
    "(nan, inf, -inf). version: the k of the version_<k> that it comes from, null for other files.",
    "epoch version file",
    computed={
        "value": (float | None, lambda point: finite(point.value)),
        "odd": (str | None, lambda point: nonfinite(point.value)),
    },
)
SINCE: Final = (
    int | None,
    lambda curve: None if curve.since is None else epoch_number(curve.since),
)
"""The epoch since which a curve has its course."""

RUN_METRIC: Final = JsonObject(
    MetricCurve,
    "The primary metric of a run, as in metlmon curves --json; is_best: of several runs.",
    "goal last best trend course",
    name="RunMetric",
    computed={"since": SINCE},
    given={"metric": str, "is_best": bool},
    main=False,
)
RUN_FIGURES: Final = {
    "metric": (RUN_METRIC, None),
    "swept": dict[str, str | None],
    "wall_seconds": float | None,
}
"""The fields of a run that statistics add, and their kinds."""


def run_figures_json(row: RunRow, figures: RunFigures, stamp: Stamp) -> dict[str, Any]:
    """The values of these fields."""
    curve, wall = figures.by_run.get(row.key), figures.wall_seconds.get(row.key)
    given = {"metric": figures.curves.metric, "is_best": row.key == figures.best}
    return {
        "metric": None if curve is None else RUN_METRIC.write(curve, stamp, **given),
        "swept": {name: figures.swept_value(row.key, name) for name in figures.swept_names},
        "wall_seconds": None if wall is None else round(wall, 3),
    }
