"""Typed records of the output of trainings."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Point(Struct, frozen=True):
    """A metric's value in one epoch.

    ``epoch`` counts from 0, as in the node's name; ``value`` may be NaN or infinite.
    ``version``: the ``version_<k>`` of its file, None for other files. ``file``: its path
    relative to the dagdir.
    """

    epoch: int
    value: float
    version: int | None
    file: str


class TrainingOutput(Struct, frozen=True):
    """The output of one run's training.

    ``metrics``: the points of each metric by epoch, one per epoch (a later version wins).
    ``summary``: ``metrics.txt`` of the newest version that has one. ``arguments``: the
    contents of ``args.txt`` by version (without values that look like secrets). ``problems``:
    sentences about files that could not be read.
    """

    run: str
    metrics: Mapping[str, tuple[Point, ...]]
    summary: Mapping[str, float]
    arguments: Mapping[int, Mapping[str, str]]
    problems: tuple[str, ...] = ()


class Streamed(Struct, frozen=True):
    """The newest progress line of a running job.

    ``fraction``: 0–1 of its epoch; ``rate``: steps per second; ``remaining``: seconds, as in
    the line; ``loss``: the newest in the line; ``epoch``: the number in the line. A field is
    None when the line does not contain it.
    """

    fraction: float | None
    done: int | None
    total: int | None
    rate: float | None
    remaining: float | None
    epoch: int | None
    loss: float | None
