"""What a training prints: its progress line, and values of metrics.

The text is the end of a job's output, megabytes of progress lines with carriage returns
between. Every search here looks at a bounded piece with bounded repeats: no text that a job
can print makes it slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from metlmon.jobfiles.numbers import NUMBER, VALUE, number
from metlmon.jobfiles.records import Streamed

PIECE_CHARACTERS: Final = 2000
"""A progress line is a terminal's width long; what is longer is no progress line."""

MOST_PIECES: Final = 2000
"""Pieces that are looked at for a progress line, from the newest: enough for 64 KB of them."""

_SEQUENCES: Final = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|\x1b[ -/]{0,8}[0-~]"
)
"""Terminal sequences: colours of a bar mean nothing here."""

_TIME: Final = r"(?:\d{1,5}:)?\d{1,5}:\d{2}"
_BRACKET: Final = re.compile(
    rf"\[\s?(?P<elapsed>{_TIME})(?:<(?P<remaining>{_TIME}|\?))?(?P<rest>,[^\[\]]{{0,600}})?"
)
"""The end of tqdm's line: ``[11:02:13<13:30:01, 1.17it/s, loss=48, v_num=0]``; without a total
``[00:05, 9.90it/s]``. The closing bracket may be cut off."""

_COUNT: Final = re.compile(
    rf"(?P<done>{NUMBER})(?P<k>[kMGT]?)(?:/(?P<total>{NUMBER}|\?)(?P<tk>[kMGT]?))?"
    r"[ ]?[A-Za-z]{0,16}[ ]?$"
)
"""``46335/102968 `` or ``512it `` before the bracket."""

_PERCENT: Final = re.compile(r"(\d{1,3})%\s?\|")
_EPOCH: Final = re.compile(r"\bepoch:?\s{0,4}\[?(\d{1,7})", re.IGNORECASE)
_RATE: Final = re.compile(rf",\s{{0,8}}({NUMBER})([kMGT]?)([A-Za-z]{{1,16}})/([A-Za-z]{{1,16}})")
_LOSS: Final = re.compile(rf"[,\s](?:train_?)?loss(?:_step)?\s?[=:]\s?({VALUE})")
_ASIDE: Final = re.compile(r"^\W{0,8}(?:valid|sanity|test|predict|download)", re.IGNORECASE)
"""Bars that are not the epoch's own."""

_SCALE: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def newest_progress(text: str) -> Streamed | None:
    """The newest progress line in the end of a job's output, as tqdm writes it.

    A line that names an epoch goes before one that does not (the bar of a validation runs in
    between); None where there is no such line.
    """
    other: Streamed | None = None
    for piece in _newest_first(_SEQUENCES.sub("", text)):
        streamed = _progress(piece)
        if streamed is None:
            continue
        if streamed.epoch is not None:
            return streamed
        other = other or streamed
    return other


def _newest_first(text: str) -> Iterator[str]:
    end = len(text)
    for _ in range(MOST_PIECES):
        if end < 0:
            return
        at = max(text.rfind("\r", 0, end), text.rfind("\n", 0, end))
        if 0 < end - at - 1 <= PIECE_CHARACTERS:
            yield text[at + 1 : end]
        end = at


def _progress(piece: str) -> Streamed | None:
    found = _BRACKET.search(piece)
    if found is None or _ASIDE.match(piece):
        return None
    before, rest = piece[: found.start()], found.group("rest") or ""
    count = _COUNT.search(before[-80:])
    if count is None:
        return None
    done = _scaled(count.group("done"), count.group("k"))
    total = _scaled(count.group("total") or "?", count.group("tk") or "")
    percent, epoch, loss = _PERCENT.search(before), _EPOCH.search(before), _LOSS.search(rest)
    return Streamed(
        _fraction(done, total, percent),
        None if done is None else int(done),
        None if total is None else int(total),
        _rate(rest),
        _seconds(found.group("remaining")),
        int(epoch.group(1)) if epoch is not None else None,
        number(loss.group(1)) if loss is not None else None,
    )


def _scaled(text: str, unit: str) -> float | None:
    value = number(text)
    return None if value is None or not 0 <= value < 1e15 else value * _SCALE[unit]


def _fraction(
    done: float | None, total: float | None, percent: re.Match[str] | None
) -> float | None:
    if done is not None and total:
        return min(1.0, done / total)
    return min(1.0, int(percent.group(1)) / 100) if percent is not None else None


def _rate(rest: str) -> float | None:
    """Steps a second; tqdm turns slow ones round: ``2.35s/it``."""
    found = _RATE.match(rest)
    if found is None:
        return None
    value = _scaled(found.group(1), found.group(2))
    if value is None or found.group(4) == "s":
        return value
    return 1 / value if found.group(3) == "s" and value > 0 else None


def _seconds(text: str | None) -> float | None:
    if text is None or text == "?":
        return None
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part)
    return float(seconds)


# --- values of a metric ---------------------------------------------------------------------


def printed_values(lines: Iterable[str], metric: str) -> dict[int | None, float]:
    """Values of ``metric`` that a training printed, by the epoch that the line names; under
    None those of lines that name none. Of several for one epoch the most exact form counts
    (the checkpoint's message, then a line or table of its own, then the progress line, which
    rounds), and of these the last.

    Forms: ``Epoch 4, global step 640: 'val_loss' reached 0.23981``, ``val_loss=0.27``,
    ``val_loss: 0.27``, ``{'val_loss': 0.27}``, ``│ val_loss │ 0.27 │``, and tqdm's line at 100 %:
    before the end of an epoch it shows the value of the epoch before.
    """
    name = re.escape(metric)
    reached = re.compile(
        rf"\bEpoch (\d{{1,7}}), global step \d{{1,15}}: '?{name}'? reached ({VALUE})"
    )
    alone = re.compile(
        rf"(?<![\w/.-]){name}['\"]?\s{{0,40}}[=:│┃|]\s{{0,40}}({VALUE})(?![\w/-]|\.[A-Za-z])"
    )
    best: dict[int | None, tuple[int, float]] = {}
    for line in lines:
        if metric not in line:
            continue
        for piece in line[:8000].split("\r"):
            found = _printed(piece, reached, alone)
            if found is None:
                continue
            rank, epoch, value = found
            if epoch not in best or best[epoch][0] <= rank:
                best[epoch] = (rank, value)
    return {epoch: value for epoch, (_, value) in best.items()}


def _printed(
    piece: str, reached: re.Pattern[str], alone: re.Pattern[str]
) -> tuple[int, int | None, float] | None:
    if (found := reached.search(piece)) is not None:
        value = number(found.group(2))
        return None if value is None else (2, int(found.group(1)), value)
    if (found := alone.search(piece)) is None:
        return None
    value = number(found.group(1))
    if value is None:
        return None
    if _BRACKET.search(piece) is None:
        return 1, None, value
    streamed = _progress(piece)
    if streamed is None or streamed.fraction != 1.0:
        return None
    return 0, streamed.epoch, value


def matched_values(
    lines: Iterable[str], pattern: re.Pattern[str]
) -> list[tuple[int | None, float]]:
    """What a pattern of the settings finds: (epoch or None, value), in order of the lines."""
    found = []
    with_epoch = "epoch" in pattern.groupindex
    for line in lines:
        match = pattern.search(line)
        value = number(match.group("value") or "") if match is not None else None
        if match is None or value is None:
            continue
        said = number(match.group("epoch") or "") if with_epoch else None
        whole = said is not None and 0 <= said < 1e6 and said == int(said)
        found.append((int(said) if whole and said is not None else None, value))
    return found
