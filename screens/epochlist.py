"""Epochs as rows of a run's history. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Final

from metlmon.ensemble import wording
from metlmon.ensemble.ledger import SHORT_SUCCESS
from metlmon.ensemble.record import JobId
from metlmon.ensemble.states import State
from metlmon.ensemble.views import EpochRow, RunView
from metlmon.ensemble.wording import STATES, plain
from metlmon.training.records import Streamed
from screens.chart import Bar
from screens.columns import Spec
from screens.ink import BAD, DIM, MOVING, NOTE, Ink, Line, both_ends, ink, line, signed
from screens.runlist import NOTHING, because, percent_of, place
from screens.siterows import HIDDEN


def key_of(row: EpochRow) -> str:
    """An epoch's key: node names are only unique within their DAG."""
    return f"{row.dag}\n{row.node}"


def seen_by_filter(row: EpochRow) -> str:
    """All text of an epoch in which a filter looks, in lower case."""
    jobs = [wording.job_id(*job) for job in row.jobs]
    parts = [row.node, row.dag, STATES[row.state].word, row.target, row.site, row.gpu]
    parts += [row.trained_on, row.hold_reason, str(row.epoch), *jobs]
    parts += [HIDDEN.word] if is_hidden(row) else []
    return "\n".join(part for part in parts if part is not None).lower()


def is_hidden(row: EpochRow) -> bool:
    """Did its successful execution last less than half of its longest one? Then that one may
    have trained it."""
    if row.success_seconds is None or not row.longest_seconds:
        return False
    return row.success_seconds < SHORT_SUCCESS * row.longest_seconds


def specs(
    view: RunView, ascii: bool, streams: Mapping[JobId, Streamed] = NOTHING
) -> list[Spec[EpochRow]]:
    """The columns of a run's history. ``streams``: progress lines of running jobs."""
    run = view.row.run
    return [
        Spec("epoch", "EPOCH", partial(_epoch, run=run, ascii=ascii), "right", soft=12, most=28),
        Spec("state", "STATE", partial(_state, ascii=ascii, streams=streams), least=11),
        Spec("site", "SITE", partial(_site, ascii=ascii), drop=1, least=7, soft=14, most=32),
        Spec("gpu", "GPU", partial(_gpu, ascii=ascii), drop=8, most=20),
        Spec("queued", "QUEUED", partial(_queued, ascii=ascii), "right", drop=4, least=8),
        Spec("transfer", "TRANSFER", partial(_transfer, ascii=ascii), "right", drop=7),
        Spec("execution", "EXECUTION", partial(_execution, ascii=ascii), "right", drop=2),
        Spec("try", "TRIES", partial(_tries, ascii=ascii), "right", drop=3),
        Spec("good", "GOOD h", partial(_good, ascii=ascii), "right", drop=6),
        Spec("lost", "LOST h", partial(_lost, ascii=ascii), "right", drop=5),
        Spec("job", "JOB", partial(_job, ascii=ascii), "right", drop=9),
        Spec("jobs", "JOBS", partial(_jobs, ascii=ascii), "right", drop=10),
        Spec("submitted", "SUBMITTED", partial(_submitted, ascii=ascii), drop=11),
    ]


def name_in(run: str, node: str) -> str:
    """A side node's name without its run's."""
    return node.removeprefix(f"{run}-") or node


def _epoch(row: EpochRow, cells: int | None, run: str, ascii: bool) -> Line:
    if row.epoch is None or "train" not in row.node.rpartition("epoch")[0]:
        return line(plain(name_in(run, row.node), 40, ascii))
    return line((str(row.epoch), _how(row)))


def _how(row: EpochRow) -> Ink:
    return DIM if row.state is State.WAITING else Ink()


def _state(
    row: EpochRow, cells: int | None, ascii: bool, streams: Mapping[JobId, Streamed]
) -> Line:
    sign = STATES[row.state]
    if row.inferred:
        return line((sign.mark(ascii), ink(sign)), (" inferred", DIM))
    streamed = streams.get(row.jobs[-1]) if row.jobs else None
    return signed(sign, ascii) + percent_of(row.state, streamed)


def _unknown(row: EpochRow, ascii: bool) -> Line:
    """Nothing for what has not begun, a dash for what should be known and is not."""
    blank = row.state is State.WAITING or not row.jobs
    return line(("" if blank else wording.unknown(ascii), DIM))


def _site(row: EpochRow, cells: int | None, ascii: bool) -> Line:
    if row.site is None and row.target is None:
        return _unknown(row, ascii)
    return place(row.site, row.target, row.off_target, cells, ascii)


def _gpu(row: EpochRow, cells: int | None, ascii: bool) -> Line:
    if row.gpu is None and row.gpus is None:
        return _unknown(row, ascii)
    return line(wording.gpus(row.gpu, row.gpus, ascii))


def _time(row: EpochRow, seconds: float | None, ascii: bool) -> Line:
    return _unknown(row, ascii) if seconds is None else line(wording.duration(seconds, ascii))


def _queued(row: EpochRow, cells: int | None, ascii: bool) -> Line:
    return _time(row, row.queue_wait, ascii)


def _transfer(row: EpochRow, cells: int | None, ascii: bool) -> Line:
    return _time(row, row.transfer, ascii)


def _execution(row: EpochRow, cells: int | None, ascii: bool) -> Line:
    mark = line((HIDDEN.mark(ascii), ink(HIDDEN)), " ") if is_hidden(row) else ()
    return mark + _time(row, row.execution, ascii)


def _tries(row: EpochRow, cells: int | None, ascii: bool) -> Line:
    if not row.attempts:
        return _unknown(row, ascii)
    return line((str(row.attempts), NOTE if row.attempts > 2 else Ink()))


def _hours(row: EpochRow, hours: float, how: Ink, ascii: bool) -> Line:
    if not row.jobs:
        return ()
    return line((wording.hours(hours, ascii), how if hours > 0 else DIM))


def _good(row: EpochRow, cells: int | None, ascii: bool) -> Line:
    return _hours(row, row.gpu_hours.good, Ink(), ascii)


def _lost(row: EpochRow, cells: int | None, ascii: bool) -> Line:
    return _hours(row, row.gpu_hours.bad, BAD, ascii)


def _job(row: EpochRow, cells: int | None, ascii: bool) -> Line:
    if not row.jobs:
        return ()
    return line((wording.job_id(*row.jobs[-1], ascii=ascii), DIM))


def _jobs(row: EpochRow, cells: int | None, ascii: bool) -> Line:
    return line((str(len(row.jobs)) if row.jobs else "", DIM))


def _submitted(row: EpochRow, cells: int | None, ascii: bool) -> Line:
    if row.submitted is None:
        return ()
    return line((wording.moment(row.submitted, ascii), DIM))


def below(row: EpochRow, cells: int, ascii: bool) -> Line:
    """What must be said of an epoch besides its columns, in so many cells: why it is held,
    or that another try did most of the training (marked, where it took over twice as long)."""
    if row.state is State.HELD and row.hold_reason:
        return line((both_ends(because(row.hold_reason, ascii), cells, ascii), BAD))
    if is_hidden(row):
        elsewhere = row.trained_on is not None and row.trained_on != row.site
        where = f" at {plain(row.trained_on or '', 40, ascii)}" if elsewhere else ""
        longest = wording.duration(row.longest_seconds, ascii)
        took = wording.duration(row.success_seconds, ascii)
        told = f"{HIDDEN.mark(ascii)} done in {took}; another try took {longest}{where}"
        return line((told, ink(HIDDEN)), (" and may have trained it", DIM))
    if row.trained_on is not None:
        elsewhere = row.trained_on != row.site
        where = f", on {plain(row.trained_on, 40, ascii)}" if elsewhere else ""
        return line(("an earlier try trained longest", DIM), (where, NOTE))
    return ()


def has_below(row: EpochRow) -> bool:
    """Is there something of :func:`below`? Asked of all epochs, so not made for it."""
    held = row.state is State.HELD and bool(row.hold_reason)
    return held or is_hidden(row) or row.trained_on is not None


CHART_LINES: Final = 5
CHART_LINES_NARROW: Final = 3
"""Lines of bars; a heading above and labels below come to them."""


def bars(view: RunView) -> list[Bar]:
    """Execution time of every epoch that has one, for the chart."""
    begun = [row for row in view.epochs if row.state is not State.WAITING or row.jobs]
    return [Bar(_label(row), row.execution, ink(STATES[row.state])) for row in begun]


def _label(row: EpochRow) -> str:
    return "?" if row.epoch is None else str(row.epoch)


def chart_title(rows: Sequence[EpochRow], ascii: bool) -> Line:
    """``execution time by epoch   median 3:12:00   longest 11:02:47 (epoch 7)``."""
    known = [(row.execution, row) for row in rows if row.execution is not None]
    done = [seconds for seconds, row in known if row.state is State.COMPLETED]
    title = line(("Execution time by epoch", DIM))
    if done:
        middle = wording.duration(median(done), ascii)
        title += line(("   median ", DIM), middle)
    if known:
        seconds, row = max(known, key=lambda pair: pair[0])
        longest = wording.duration(seconds, ascii)
        title += line(("   longest ", DIM), (longest, MOVING), (f" (epoch {_label(row)})", DIM))
    return title
