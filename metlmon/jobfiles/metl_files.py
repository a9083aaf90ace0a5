"""Parses METL's files: ``metrics.csv``, and ``metrics.txt`` and ``args.txt`` beside it.

``metrics.csv`` is that of PyTorch Lightning's CSVLogger, 1.7.7 (METL's version) and later. Each
row is one call of the logger: sparse, in columns of any order, several per epoch. ``epoch``
counts from 0. One value is stored per metric and epoch, the last one written; the rows in between
(a loss for every 50th step) are discarded, so that the memory depends on the number of epochs.

The row of a test follows the last epoch, and its ``epoch`` is the number of completed epochs
(Lightning increments it before testing): its metrics belong to the epoch just finished, one less.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from metlmon.jobfiles.records import number
from metlmon.redact import hide_value

EPOCH: Final = "epoch"

_NOT_METRICS: Final = frozenset({EPOCH, "step", "global_step", ""})
_PER_STEP: Final = "_step"
"""Suffix of a metric that Lightning logs for single steps; ``…_epoch`` is its mean."""

TEST: Final = "test"
"""Prefix of a metric of the test that follows an epoch."""

MOST_METRICS: Final = 256
MOST_EPOCHS: Final = 100_000
"""Bounds of the values stored per file; a training has a dozen metrics, some hundred epochs."""

NAME_CHARACTERS: Final = 200


class MetricsTable(Struct, frozen=True):
    """The contents of one file: values by metric and epoch, and problems as sentences."""

    values: Mapping[str, Mapping[int, float]]
    problems: tuple[str, ...] = ()


def read_metrics_csv(lines: Iterable[str]) -> MetricsTable:
    """Parse the lines of a ``metrics.csv``, with their ends (``\\n``, ``\\r\\n``).

    A line without its end is still being written, or was cut off with its job, and its last
    number may be incomplete; it is skipped. Never raises: problems are in ``problems``.
    """
    table = _CsvTable()
    try:
        for row in csv.reader(_complete_lines(lines)):
            table.add_row(row)
    except csv.Error as error:
        table.problems.append(f"is not read to its end: {error}")
    return table.result()


def _complete_lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if line.endswith(("\n", "\r")):
            yield line.replace("\0", "")


class _CsvTable:
    """The table while its file is read."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._epoch_column: int | None = None
        self._columns: list[tuple[int, str]] = []
        self._has_header = False
        self._values: dict[str, dict[int, float]] = {}
        self._tests: dict[str, dict[int, float]] = {}
        self._newest = -1

    def add_row(self, row: list[str]) -> None:
        if not row:
            return
        if not self._has_header or self._is_header(row):
            self._read_header(row)
            return
        column = self._epoch_column
        if column is None or column >= len(row):
            return
        epoch = _parse_epoch(row[column])
        if epoch is None:
            return
        for index, name in self._columns:
            if index < len(row) and row[index]:
                self._store(name, epoch, row[index])

    def _is_header(self, row: list[str]) -> bool:
        """Whether this is another header: a restarted logger repeats it in the same file."""
        return EPOCH in row

    def _read_header(self, row: list[str]) -> None:
        self._has_header = True
        names = [name.strip().lstrip("\ufeff")[:NAME_CHARACTERS] for name in row]
        self._epoch_column = names.index(EPOCH) if EPOCH in names else None
        if self._epoch_column is None:
            self.problems.append("has no column called epoch")
        metrics = [
            (index, name)
            for index, name in enumerate(names)
            if name not in _NOT_METRICS and not name.endswith(_PER_STEP)
        ]
        if len(metrics) > MOST_METRICS:
            self.problems.append(f"has more than {MOST_METRICS} metrics: only those are read")
        self._columns = metrics[:MOST_METRICS]

    def _store(self, name: str, epoch: int, text: str) -> None:
        value = number(text)
        if value is None:
            return
        is_test = name.startswith(TEST)
        values = (self._tests if is_test else self._values).setdefault(name, {})
        if epoch in values or len(values) < MOST_EPOCHS:
            values[epoch] = value
        if not is_test:
            self._newest = max(self._newest, epoch)

    def result(self) -> MetricsTable:
        values = dict(self._values)
        for name, tests in self._tests.items():
            values[name] = {self._tested_epoch(epoch): tests[epoch] for epoch in sorted(tests)}
        return MetricsTable(values, tuple(self.problems))

    def _tested_epoch(self, epoch: int) -> int:
        """The epoch to which a test with this ``epoch`` belongs.

        A test in the middle of an epoch with values of its own belongs to that epoch.
        """
        return max(0, epoch - 1) if epoch > self._newest else epoch


def _parse_epoch(text: str) -> int | None:
    value = number(text)
    if value is None or not 0 <= value < MOST_EPOCHS or value != int(value):
        return None
    return int(value)


# --- metrics.txt and args.txt ------------------------------------------------------------

MOST_LINES: Final = 2000
VALUE_CHARACTERS: Final = 500

_SECRET: Final = re.compile(r"token|key|secret|passw|credential|auth", re.IGNORECASE)
"""Names of arguments whose value may be a secret; deliberately too broad: values omitted here
are not written anywhere."""


def read_metrics_txt(text: str) -> dict[str, float]:
    """Parse ``metrics.txt``: lines ``key,value`` with a numeric value.

    Other lines, such as a model's path, are skipped.
    """
    metrics: dict[str, float] = {}
    for line in text.splitlines()[:MOST_LINES]:
        name, comma, field = line.partition(",")
        value = number(field) if comma else None
        if name.strip() and value is not None:
            metrics[name.strip()[:VALUE_CHARACTERS]] = value
    return metrics


def read_args_txt(text: str) -> dict[str, str]:
    """Parse ``args.txt``, written by METL's ``save_args`` for argparse's ``fromfile``.

    An argument's name is on a line of its own and its values on the lines below it;
    ``--name=value`` is accepted too. Several values are joined by blanks; an argument without
    a value is a switch, "". Values that may be secrets are omitted with their names.
    """
    arguments: dict[str, list[str]] = {}
    values: list[str] | None = None
    for line in text.splitlines()[:MOST_LINES]:
        word = line.strip()
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.lstrip("-").partition("=")
            values = arguments.setdefault(name[:VALUE_CHARACTERS], [])
            values.clear()
            if equals:
                values.append(value)
        elif word and values is not None:
            values.append(word)
    return {
        name: hide_value(name, " ".join(values))[:VALUE_CHARACTERS]
        for name, values in arguments.items()
        if not _SECRET.search(name)
    }
