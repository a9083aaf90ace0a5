"""What a user may set about reading an ensemble (``metlmon.toml``)."""

from __future__ import annotations

import re
from datetime import tzinfo
from fnmatch import fnmatchcase
from typing import Final

from metlmon.frozen import frozen

TRAIN_NODE: Final = r"^(?P<run>.*?)[-_.+]?train[-_]?epoch[-_]?(?P<epoch>\d+)$"
"""A training node: the part before it names the run, the number is the epoch."""

SIDE_NODE: Final = r"^(?P<run>.*?)[-_.+]?eval(?:uate|uation)?[-_]?epoch[-_]?(?P<epoch>\d+)$"
"""A node of a run that trains nothing."""


@frozen
class Label:
    """A cohort of runs. ``runs``: names, uuids, beginnings of uuids, or patterns (``run1*``)."""

    name: str
    runs: tuple[str, ...]

    def has(self, run: str, uuid: str | None) -> bool:
        """Is the run with this name and uuid one of it?"""
        return any(
            fnmatchcase(run, each)
            or (uuid is not None and (fnmatchcase(uuid, each) or uuid.startswith(each)))
            for each in self.runs
        )


@frozen
class MetricPattern:
    """How to find a metric's values in a text that jobs write. ``file``: a name pattern below
    the dagdir, in which ``{uuid}`` and ``{run}`` stand for a run's, or ``out`` for the jobs' own
    output. ``pattern`` has a group ``value`` and may have a group ``epoch`` (as in the node's
    name); without it a job's values are of its node's epoch."""

    metric: str
    file: str
    pattern: re.Pattern[str]


@frozen
class MetricSettings:
    """Where trainings write their metrics. ``files``: name patterns of directories like METL's
    ``version_<k>``, below the dagdir, with ``{uuid}`` and ``{run}``. ``primary``: the metric that
    is shown first; ``goal``: "min" or "max", which of its values is best."""

    files: tuple[str, ...] = ("*/training_logs/{uuid}", "training_logs/{uuid}")
    primary: str = "val_loss"
    goal: str = "min"
    patterns: tuple[MetricPattern, ...] = ()


@frozen
class Settings:
    """``sites``: (host pattern, site), tried before the built-in table. ``site_aliases`` and
    ``gpu_aliases``: (as logged, as shown and counted).
    ``checkpoint_codes``: return values that mean "checkpointed, run me again".
    ``labels``: cohorts; the first that has a run is the run's.
    ``read_only``: no action may be offered.
    ``remarks``: what is to be said of the settings themselves: file, line and sentence."""

    train_node: re.Pattern[str] = re.compile(TRAIN_NODE)
    side_node: re.Pattern[str] = re.compile(SIDE_NODE)
    sites: tuple[tuple[str, str], ...] = ()
    site_aliases: tuple[tuple[str, str], ...] = ()
    gpu_aliases: tuple[tuple[str, str], ...] = ()
    checkpoint_codes: frozenset[int] = frozenset()
    zone: tzinfo | None = None
    read_only: bool = False
    labels: tuple[Label, ...] = ()
    metrics: MetricSettings = MetricSettings()
    remarks: tuple[tuple[str, int | None, str], ...] = ()
