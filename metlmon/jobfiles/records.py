"""Typed records of the output of trainings, and the numbers in it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Final

from msgspec import Struct

from metlmon.text.record_json import Nullable, nonfinite


class Point(Struct, frozen=True):
    """A metric's value in one epoch.

    ``epoch`` counts from 0, as in the node's name; ``value`` may be NaN or infinite.
    ``version``: the ``version_<k>`` of its file, None for other files. ``file``: its path
    relative to the dagdir.
    """

    json_properties: ClassVar = ("odd",)

    epoch: int
    value: Nullable[float]
    version: int | None
    file: str

    @property
    def odd(self) -> str | None:
        """``nan``, ``inf`` or ``-inf``; None for a number."""
        return nonfinite(self.value)


class CheckpointRecord(Struct, frozen=True, kw_only=True):
    """The checkpoint of one epoch, as a sidecar or an event records it.

    ``epoch`` counts from 0; ``digest``, ``parent``: SHA-256 of the checkpoint, and of the one that
    it was trained from (None: of none), which may not be recorded (``parent_known``). ``job``,
    ``host``, ``slot`` and ``site`` made it at ``time`` (UTC), as far as recorded. ``file``: where
    it is recorded, relative to the dagdir.
    """

    epoch: int
    digest: str
    parent: str | None
    parent_known: bool
    job: tuple[int, int] | None
    host: str | None
    slot: str | None
    site: str | None
    time: datetime | None
    file: str


class TrainingOutput(Struct, frozen=True):
    """The output of one run's training.

    ``metrics``: the points of each metric by epoch, one per epoch (a later version wins).
    ``summary``: ``metrics.txt`` of the newest version that has one. ``arguments``: the
    contents of ``args.txt`` by version (without values that look like secrets). ``problems``:
    sentences about files that could not be read. ``checkpoints``: what is recorded of the
    checkpoints, each once, by epoch.
    """

    key: str
    metrics: Mapping[str, tuple[Point, ...]]
    summary: Mapping[str, float]
    arguments: Mapping[int, Mapping[str, str]]
    problems: tuple[str, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()


class Streamed(Struct, frozen=True):
    """The newest progress line of a running job.

    ``fraction``: 0–1 of its epoch; ``steps_per_second``: steps per second; ``seconds_left``:
    seconds, as in the line; ``loss``: the newest in the line; ``epoch``: the number in the line. A
    field is None when the line does not contain it.
    """

    json_omits: ClassVar = frozenset({"epoch"})
    json_properties: ClassVar = ("loss_odd",)

    fraction: float | None
    step: int | None
    steps: int | None
    steps_per_second: float | None
    seconds_left: float | None
    epoch: int | None
    loss: float | None

    @property
    def loss_odd(self) -> str | None:
        """``nan``, ``inf`` or ``-inf``; None for a number."""
        return nonfinite(self.loss)


# --- values of metrics ----------------------------------------------------------------------

NAN: Final = math.nan
"""The single NaN object, so that two records of the same file are equal."""

NUMBER: Final = r"[-+]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,5})?"
"""A decimal number; every part is bounded, so that no text slows down a search."""

VALUE: Final = rf"(?:{NUMBER}|[-+]?(?i:nan|inf(?:inity)?)\b)"
"""A number, or NaN or infinity as Python, torch and numpy write them."""

_WRAPPED: Final = re.compile(r"(?:tensor|(?:np|numpy)\.float\d{1,3})\(([^,()]{1,60})[^()]{0,60}\)")
"""``tensor(0.27, device='cuda:0')``, ``np.float64(0.27)``."""

_VALUE: Final = re.compile(VALUE)
_MICROSOFT: Final = re.compile(r"([-+]?)1\.#(INF|IND|QNAN|SNAN)\d{0,9}|[-+]?nan\(\w{0,9}\)", re.I)
"""NaN and infinity of old Windows C libraries, and glibc's ``-nan(ind)``."""


def number(text: str) -> float | None:
    """Parse the number in a field or a match; None for any other text.

    NaN and the infinities are numbers here, so that a diverged training is reported.
    """
    text = text.strip()
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is not None:
        text = wrapped.group(1).strip()
    microsoft = _MICROSOFT.fullmatch(text)
    if microsoft is not None:
        if (microsoft.group(2) or "").upper() == "INF":
            return -math.inf if microsoft.group(1) == "-" else math.inf
        return NAN
    if _VALUE.fullmatch(text) is None:
        return None
    value = float(text)
    return NAN if math.isnan(value) else value


MORE_IS_BETTER: Final = (
    "pearson",
    "spearman",
    "kendall",
    "corr",
    "r2",
    "acc",
    "auc",
    "f1",
    "precision",
    "recall",
)
"""Substrings of names of metrics whose largest value is the best."""

LESS_IS_BETTER: Final = ("loss", "error")
"""Substrings of names of metrics whose smallest value is the best; these take precedence."""


def more_is_better(metric: str) -> bool:
    """Whether the largest value of the metric with this name is the best."""
    name = metric.lower()
    if any(word in name for word in LESS_IS_BETTER):
        return False
    return any(word in name for word in MORE_IS_BETTER)
