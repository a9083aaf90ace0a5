"""Parses what trainings write: METL's files, and the end of their standard output.

METL's files are ``metrics.csv``, and ``metrics.txt`` and ``args.txt`` beside it. ``metrics.csv`` is
that of PyTorch Lightning's CSVLogger, 1.7.7 (METL's version) and later. Each
row is one call of the logger: sparse, in columns of any order, several per epoch. ``epoch``
counts from 0. One value is stored per metric and epoch, the last one written; the rows in between
(a loss for every 50th step) are discarded, so that the memory depends on the number of epochs.

The row of a test follows the last epoch, and its ``epoch`` is the number of completed epochs
(Lightning increments it before testing): its metrics belong to the epoch just finished, one less.

The standard output is megabytes of progress lines separated by carriage returns. Every search is
limited to a bounded piece with bounded repeats, so that no output of a job slows it down.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from metlmon.config.settings import Pattern
from metlmon.jobfiles.records import NUMBER, VALUE, Streamed, number
from metlmon.redact import HIDDEN, harmless, hide_value, visible

EPOCH: Final = "epoch"

_NOT_METRICS: Final = frozenset({EPOCH, "step", "global_step", ""})
_PER_STEP: Final = "_step"
"""Suffix of a metric that Lightning logs for single steps; ``…_epoch`` is its mean."""

TEST: Final = "test"
"""Prefix of a metric of the test that follows an epoch."""

MAX_METRICS: Final = 256
MAX_EPOCHS: Final = 100_000
"""Bounds of the values stored per file; a training has a dozen metrics and some hundred epochs."""

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
        for row in csv.reader(table.lines_with_values(lines)):
            table.add_row(row)
    except csv.Error as error:
        table.problems.append(f"is not read to its end: {error}")
    return table.result()


class EpochTable:
    """Collects the values of metrics by epoch: the last one that is added counts."""

    def __init__(self) -> None:
        self._values: dict[str, dict[int, float]] = {}
        self._tests: dict[str, dict[int, float]] = {}
        self._newest = -1

    def add(self, name: str, epoch: int, value: float) -> None:
        """Add a value that was written in ``epoch``; that of a test may be written after it."""
        is_test = name.startswith(TEST)
        values = (self._tests if is_test else self._values).setdefault(name, {})
        if epoch in values or len(values) < MAX_EPOCHS:
            values[epoch] = value
        if not is_test:
            self._newest = max(self._newest, epoch)

    def values(self) -> dict[str, dict[int, float]]:
        """The values of all metrics, with those of tests at the epochs that were tested."""
        values = dict(self._values)
        for name, tests in self._tests.items():
            values[name] = {self._tested_epoch(epoch): tests[epoch] for epoch in sorted(tests)}
        return values

    def _tested_epoch(self, epoch: int) -> int:
        """The epoch to which a test with this ``epoch`` belongs.

        A test in the middle of an epoch with values of its own belongs to that epoch.
        """
        return max(0, epoch - 1) if epoch > self._newest else epoch


class _CsvTable:
    """The table while its file is read."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._epoch_column: int | None = None
        self._columns: list[tuple[int, str]] = []
        self._has_header = False
        self._table = EpochTable()
        self._commas = 0
        self._empty_start = ""
        self._empty_ends: tuple[str, ...] = ()
        self._no_epoch_ends: tuple[str, ...] = ()

    def lines_with_values(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the complete lines, without most of those of single steps.

        There are thousands of them for each epoch: they are recognised by their empty fields,
        which is six times as fast as parsing them.
        """
        for line in lines:
            empty = line.endswith(self._no_epoch_ends) or (
                line.endswith(self._empty_ends) and line.startswith(self._empty_start)
            )
            if line.endswith(("\n", "\r")) and not (empty and line.count(",") == self._commas):
                yield line.replace("\0", "")

    def add_row(self, row: list[str]) -> None:
        if not row:
            return
        # A restarted logger repeats the header in the same file.
        if not self._has_header or EPOCH in row:
            self._read_header(row)
            return
        column = self._epoch_column
        if column is None or column >= len(row):
            return
        epoch = whole_epoch(number(row[column]))
        if epoch is None:
            return
        for index, name in self._columns:
            value = number(row[index]) if index < len(row) and row[index] else None
            if value is not None:
                self._table.add(name, epoch, value)

    def _read_header(self, row: list[str]) -> None:
        self._has_header = True
        names = [shown_name(name.strip().lstrip("\ufeff"), NAME_CHARACTERS) for name in row]
        self._epoch_column = names.index(EPOCH) if EPOCH in names else None
        if self._epoch_column is None:
            self.problems.append("has no column called epoch")
        metrics = [(index, name) for index, name in enumerate(names) if is_metric(name)]
        if len(metrics) > MAX_METRICS:
            self.problems.append(f"has more than {MAX_METRICS} metrics: only those are read")
        self._columns = metrics[:MAX_METRICS]
        self._set_empty_fields(len(names))

    def _set_empty_fields(self, columns: int) -> None:
        """Set the beginning and the ends of lines without an epoch or a value of a metric."""

        def ends(first: int) -> tuple[str, ...]:
            commas = "," * (columns - first)
            return f"{commas}\n", f"{commas}\r\n"

        self._commas = columns - 1
        epoch, indices = self._epoch_column, [index for index, _ in self._columns]
        self._empty_ends = self._no_epoch_ends = ()
        if not epoch:
            return
        behind = [index for index in indices if index > epoch]
        self._no_epoch_ends = ends(epoch)
        if behind:
            self._empty_ends = ends(behind[0])
            self._empty_start = "," * max((i + 1 for i in indices if i < epoch), default=0)

    def result(self) -> MetricsTable:
        return MetricsTable(self._table.values(), tuple(self.problems))


def is_metric(name: str) -> bool:
    """Whether a column is a metric of epochs: neither a counter nor a value of single steps."""
    return name not in _NOT_METRICS and not name.endswith(_PER_STEP)


def whole_epoch(value: float | None) -> int | None:
    """The number of an epoch; None for any other value."""
    if value is None or not 0 <= value < MAX_EPOCHS or value != int(value):
        return None
    return int(value)


# --- metrics.txt and args.txt ------------------------------------------------------------

MAX_LINES: Final = 2000
VALUE_CHARACTERS: Final = 500

_SECRET: Final = re.compile(r"token|key|secret|passw|credential|auth", re.IGNORECASE)
"""Names of arguments whose value may be a secret; deliberately too broad: values omitted here
are not written anywhere."""

_LONG_WORD: Final = re.compile(r"[A-Za-z0-9]{12,}")
"""With capitals, small letters and digits, it may be a secret, whatever the name of the value."""


def shown_name(name: str, limit: int) -> str:
    """The name of a metric or an argument: visible, of bounded length, without secrets."""
    return harmless(name[:limit])[:limit]


def read_metrics_txt(text: str) -> dict[str, float]:
    """Parse the lines ``key,value`` of ``metrics.txt`` with a numeric value."""
    metrics: dict[str, float] = {}
    for line in text.splitlines()[:MAX_LINES]:
        name, comma, field = line.partition(",")
        value = number(field) if comma else None
        if name.strip() and value is not None:
            metrics[shown_name(name.strip(), VALUE_CHARACTERS)] = value
    return metrics


def read_args_txt(text: str) -> dict[str, str]:
    """Parse ``args.txt``, written by METL's ``save_args`` for argparse's ``fromfile``.

    An argument's name is on a line of its own and its values on the lines below it;
    ``--name=value`` is accepted too. Several values are joined by blanks; an argument without
    a value is a switch, "". Arguments named like a secret are omitted, values like one hidden.
    """
    arguments: dict[str, list[str]] = {}
    values: list[str] | None = None
    for line in text.splitlines()[:MAX_LINES]:
        word = line.strip()
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.lstrip("-").partition("=")
            values = arguments.setdefault(shown_name(name, VALUE_CHARACTERS), [])
            values.clear()
            if equals:
                values.append(value)
        elif word and values is not None:
            values.append(word)
    return {
        name: HIDDEN
        if any(map(_is_mixed, values))
        else visible(hide_value(name, " ".join(values))[:VALUE_CHARACTERS])[:VALUE_CHARACTERS]
        for name, values in arguments.items()
        if not _SECRET.search(name)
    }


def _is_mixed(value: str) -> bool:
    """Whether the value has a long word of capitals, small letters and digits."""
    return any(
        any(map(str.isdigit, word)) and not word.isupper() and not word.islower()
        for word in _LONG_WORD.findall(value[:VALUE_CHARACTERS])
    )


# --- standard output: its progress line, and values of metrics -------------------------------

PIECE_CHARACTERS: Final = 2000
"""Longer pieces are not progress lines, which have a terminal's width."""

MAX_PIECES: Final = 2000
"""Pieces searched for a progress line, from the newest: enough for 64 KB of them."""

_SEQUENCES: Final = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|\x1b[ -/]{0,8}[0-~]"
)
"""Terminal escape sequences, such as the colors of a bar; removed before parsing."""

_TIME: Final = r"(?:\d{1,5}:)?\d{1,5}:\d{2}"
_BRACKET: Final = re.compile(
    rf"\[\s?(?P<elapsed>{_TIME})(?:<(?P<remaining>{_TIME}|\?))?(?P<rest>,[^\[\]]{{0,600}})?"
)
"""The end of tqdm's line, ``[11:02:13<13:30:01, 1.17it/s, loss=48, v_num=0]``; without a total
``[00:05, 9.90it/s]``. The closing bracket may be cut off."""

_COUNT: Final = (
    rf"(?P<done>{NUMBER})(?P<k>[kMGT]?)(?:/(?P<total>{NUMBER}|\?)(?P<tk>[kMGT]?))?"
    r"[ ]?[A-Za-z]{0,16}[ ]?$"
)
"""``46335/102968 `` or ``512it `` before the bracket."""

_PERCENT: Final = r"(\d{1,3})%\s?\|"
_EPOCH: Final = r"(?i)\bepoch:?\s{0,4}\[?(\d{1,7})"
_RATE: Final = rf",\s{{0,8}}({NUMBER})([kMGT]?)([A-Za-z]{{1,16}})/([A-Za-z]{{1,16}})"
_LOSS: Final = rf"[,\s](?:train_?)?loss(?:_step)?\s?[=:]\s?({VALUE})"
_OTHER_BAR: Final = r"(?i)^\W{0,8}(?:valid|sanity|test|predict|download)"
"""Progress bars other than the epoch's."""

_SCALE: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def newest_progress(text: str) -> Streamed | None:
    """Parse the newest tqdm progress line in the end of a job's output.

    A line that names an epoch takes precedence over one that does not (the bar of a
    validation appears in between); None without such a line.
    """
    other: Streamed | None = None
    for piece in _newest_first(_SEQUENCES.sub("", text)):
        streamed = _parse_progress(piece)
        if streamed is None:
            continue
        if streamed.epoch is not None:
            return streamed
        other = other or streamed
    return other


def _newest_first(text: str) -> Iterator[str]:
    end = len(text)
    for _ in range(MAX_PIECES):
        if end < 0:
            return
        separator = max(text.rfind("\r", 0, end), text.rfind("\n", 0, end))
        if 0 < end - separator - 1 <= PIECE_CHARACTERS:
            yield text[separator + 1 : end]
        end = separator


def _parse_progress(piece: str) -> Streamed | None:
    bracket = _BRACKET.search(piece)
    if bracket is None or re.match(_OTHER_BAR, piece):
        return None
    before, rest = piece[: bracket.start()], bracket.group("rest") or ""
    count = re.search(_COUNT, before[-80:])
    if count is None:
        return None
    done = _scale(count.group("done"), count.group("k"))
    total = _scale(count.group("total") or "?", count.group("tk") or "")
    percent, epoch = re.search(_PERCENT, before), re.search(_EPOCH, before)
    loss = re.search(_LOSS, rest)
    return Streamed(
        fraction=_fraction(done, total, percent),
        step=None if done is None else int(done),
        steps=None if total is None else int(total),
        steps_per_second=_parse_rate(rest),
        seconds_left=_parse_seconds(bracket.group("remaining")),
        epoch=int(epoch.group(1)) if epoch is not None else None,
        loss=number(loss.group(1)) if loss is not None else None,
    )


def _scale(text: str, unit: str) -> float | None:
    value = number(text)
    return None if value is None or not 0 <= value < 1e15 else value * _SCALE[unit]


def _fraction(
    done: float | None, total: float | None, percent: re.Match[str] | None
) -> float | None:
    if done is not None and total:
        return min(1.0, done / total)
    return min(1.0, int(percent.group(1)) / 100) if percent is not None else None


def _parse_rate(rest: str) -> float | None:
    """Steps per second; tqdm inverts slow rates: ``2.35s/it``."""
    match = re.match(_RATE, rest)
    if match is None:
        return None
    value = _scale(match.group(1), match.group(2))
    if value is None or match.group(4) == "s":
        return value
    return 1 / value if match.group(3) == "s" and value > 0 else None


def _parse_seconds(text: str | None) -> float | None:
    if text is None or text == "?":
        return None
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part)
    return float(seconds)


# --- values of a metric ---------------------------------------------------------------------


def printed_values(lines: Iterable[str], metric: str) -> dict[int | None, float]:
    """Values of ``metric`` in a training's output, by the epoch that the line names.

    Lines without an epoch have the key None. Of several values for one epoch the most exact
    form counts (the checkpoint's message, then a separate line or table, then the progress
    line, which rounds), and of these the last.

    Forms: ``Epoch 4, global step 640: 'val_loss' reached 0.23981``, ``val_loss=0.27``,
    ``val_loss: 0.27``, ``{'val_loss': 0.27}``, ``│ val_loss │ 0.27 │``, and tqdm's line at 100 %:
    before the end of an epoch it shows the value of the previous epoch.
    """
    name = re.escape(metric)
    reached = re.compile(
        rf"\bEpoch (\d{{1,7}}), global step \d{{1,15}}: '?{name}'? reached ({VALUE})"
    )
    assigned = re.compile(
        rf"(?<![\w/.-]){name}['\"]?\s{{0,40}}[=:│┃|]\s{{0,40}}({VALUE})(?![\w/-]|\.[A-Za-z])"
    )
    best: dict[int | None, tuple[int, float]] = {}
    for line in lines:
        if metric not in line:
            continue
        for piece in line[:8000].split("\r"):
            result = _parse_value(piece, reached, assigned)
            if result is None:
                continue
            rank, epoch, value = result
            if epoch not in best or best[epoch][0] <= rank:
                best[epoch] = (rank, value)
    return {epoch: value for epoch, (_, value) in best.items()}


def _parse_value(
    piece: str, reached: re.Pattern[str], assigned: re.Pattern[str]
) -> tuple[int, int | None, float] | None:
    """(rank of the form, epoch, value) of the metric in ``piece``."""
    if (match := reached.search(piece)) is not None:
        value = number(match.group(2))
        return None if value is None else (2, int(match.group(1)), value)
    if (match := assigned.search(piece)) is None:
        return None
    value = number(match.group(1))
    if value is None:
        return None
    if _BRACKET.search(piece) is None:
        return 1, None, value
    streamed = _parse_progress(piece)
    if streamed is None or streamed.fraction != 1.0:
        return None
    return 0, streamed.epoch, value


def matched_values(lines: Iterable[str], pattern: Pattern) -> list[tuple[int | None, float]]:
    """The matches of a pattern of the settings: (epoch or None, value), in line order."""
    values: list[tuple[int | None, float]] = []
    has_epoch = "epoch" in pattern.groupindex
    for line in lines:
        match = pattern.search(line)
        value = number(match.group("value") or "") if match is not None else None
        if match is None or value is None:
            continue
        epoch = number(match.group("epoch") or "") if has_epoch else None
        is_valid = epoch is not None and 0 <= epoch < 1e6 and epoch == int(epoch)
        values.append((int(epoch) if is_valid and epoch is not None else None, value))
    return values
