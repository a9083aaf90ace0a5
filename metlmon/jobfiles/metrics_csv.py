"""``metrics.csv`` as PyTorch Lightning's CSVLogger writes it (1.7.7, METL's; and later ones).

Each row is one call of the logger: sparse, in columns of any order, several for one epoch.
``epoch`` counts from 0. What is kept is one value for each metric and epoch, the last one
written; the rows between (a loss for every fiftieth step) are read and forgotten, so that a
file of any length costs what its epochs cost.

The row of a test stands behind the last epoch, and its ``epoch`` is the number of epochs that
are complete (Lightning counts up before it tests): its metrics are those of the epoch just
finished, one less.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from metlmon.frozen import frozen
from metlmon.jobfiles.numbers import number

EPOCH: Final = "epoch"

_NOT_METRICS: Final = frozenset({EPOCH, "step", "global_step", ""})
_PER_STEP: Final = "_step"
"""Ending of a metric that Lightning logs for single steps; ``…_epoch`` is its mean."""

TEST: Final = "test"
"""Beginning of a metric that comes from the test behind an epoch, not from the epoch."""

MOST_METRICS: Final = 256
MOST_EPOCHS: Final = 100_000
"""Bounds of what one file can make us keep; a training has a dozen and some hundred."""

NAME_CHARACTERS: Final = 200


@frozen
class MetricsTable:
    """One file: for each metric its value by epoch, and sentences about what is odd."""

    values: Mapping[str, Mapping[int, float]]
    problems: tuple[str, ...] = ()


def read_metrics_csv(lines: Iterable[str]) -> MetricsTable:
    """The metrics in the lines of a ``metrics.csv``. Lines keep their ends (``\\n``, ``\\r\\n``):
    one without is still being written, or was cut off with its job, and its last number may be
    half a number; it is left out. Raises nothing: what cannot be read is told in ``problems``.
    """
    table = _CsvTable()
    try:
        for row in csv.reader(_complete(lines)):
            table.take(row)
    except csv.Error as error:
        table.problems.append(f"is not read to its end: {error}")
    return table.done()


def _complete(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if line.endswith(("\n", "\r")):
            yield line.replace("\0", "")


class _CsvTable:
    """A file while it is read."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._epoch_at: int | None = None
        self._columns: list[tuple[int, str]] = []
        self._headed = False
        self._values: dict[str, dict[int, float]] = {}
        self._tests: dict[str, dict[int, float]] = {}
        self._newest = -1

    def take(self, row: list[str]) -> None:
        if not row:
            return
        if not self._headed or self._is_header(row):
            self._head(row)
            return
        at = self._epoch_at
        if at is None or at >= len(row):
            return
        epoch = _epoch(row[at])
        if epoch is None:
            return
        for place, name in self._columns:
            if place < len(row) and row[place]:
                self._keep(name, epoch, row[place])

    def _is_header(self, row: list[str]) -> bool:
        """A logger that begins anew in the same file writes its header again."""
        return EPOCH in row

    def _head(self, row: list[str]) -> None:
        self._headed = True
        names = [name.strip().lstrip("\ufeff")[:NAME_CHARACTERS] for name in row]
        self._epoch_at = names.index(EPOCH) if EPOCH in names else None
        if self._epoch_at is None:
            self.problems.append("has no column called epoch")
        wanted = [
            (place, name)
            for place, name in enumerate(names)
            if name not in _NOT_METRICS and not name.endswith(_PER_STEP)
        ]
        if len(wanted) > MOST_METRICS:
            self.problems.append(f"has more than {MOST_METRICS} metrics: only those are read")
        self._columns = wanted[:MOST_METRICS]

    def _keep(self, name: str, epoch: int, text: str) -> None:
        value = number(text)
        if value is None:
            return
        of_test = name.startswith(TEST)
        kept = (self._tests if of_test else self._values).setdefault(name, {})
        if epoch in kept or len(kept) < MOST_EPOCHS:
            kept[epoch] = value
        if not of_test:
            self._newest = max(self._newest, epoch)

    def done(self) -> MetricsTable:
        values = dict(self._values)
        for name, tests in self._tests.items():
            values[name] = {self._tested(epoch): tests[epoch] for epoch in sorted(tests)}
        return MetricsTable(values, tuple(self.problems))

    def _tested(self, epoch: int) -> int:
        """The epoch that a test with this number is of. A test in the middle of an epoch that
        has values of its own is that epoch's."""
        return max(0, epoch - 1) if epoch > self._newest else epoch


def _epoch(text: str) -> int | None:
    value = number(text)
    if value is None or not 0 <= value < MOST_EPOCHS or value != int(value):
        return None
    return int(value)
