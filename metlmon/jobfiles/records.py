"""Records of what trainings write."""

from __future__ import annotations

from collections.abc import Mapping

from metlmon.frozen import frozen


@frozen
class Point:
    """A metric's value of one epoch. ``epoch`` from 0, as in the node's name; ``value`` may be
    NaN or infinite: that is told, not hidden. ``version``: the ``version_<k>`` it comes from,
    None for other files. ``file``: its name below the dagdir."""

    epoch: int
    value: float
    version: int | None
    file: str


@frozen
class TrainingOutput:
    """All that is known of one run's training. ``metrics``: for each metric its points in order
    of epoch, one per epoch (a later version wins). ``summary``: ``metrics.txt`` of the newest
    version that has one. ``arguments``: for each version what ``args.txt`` says (secret-looking
    values left out). ``problems``: sentences about files that could not be read."""

    run: str
    metrics: Mapping[str, tuple[Point, ...]]
    summary: Mapping[str, float]
    arguments: Mapping[int, Mapping[str, str]]
    problems: tuple[str, ...] = ()


@frozen
class Streamed:
    """The newest progress line of a running job. ``fraction``: 0–1 of its epoch; ``rate``:
    steps a second; ``remaining``: seconds as the line says; ``loss``: the newest it tells.
    Each None when the line does not say it. ``epoch``: the number that the line gives."""

    fraction: float | None
    done: int | None
    total: int | None
    rate: float | None
    remaining: float | None
    epoch: int | None
    loss: float | None
