"""What each number of a report means, with the other common definition beside it where papers
differ. The words are those of ``domain.md``; the numbers are the report's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from metlmon.model.hour_unit import HourUnit
from metlmon.model.states import State
from metlmon.report.values import hours, percent
from metlmon.snapshot.ledger import HOUR, SHORT_SUCCESS
from metlmon.stats.report_usage import WHISKER, ReportUsage, box, jobs_in, quantile
from metlmon.stats.windows import Unit
from metlmon.text.formatting import count, duration, number


def definition(key: str, books: ReportUsage, digits: int) -> str:
    """The text of one note, for these accounts; ``digits``: decimals of hours."""
    return DEFINITIONS[key](books, digits)


def _share(part: float, whole: float) -> str:
    return percent(part / whole if whole else None)


def _epochs(books: ReportUsage, digits: int) -> str:
    inferred = sum(e.inferred for e in books.part.epochs if e.counts)
    text = (
        "An epoch is one training node of a run. It is completed when that node succeeded, and is "
        "counted once, for the GPU and the site of the execution that completed it."
    )
    if inferred:
        text += (
            f" {count(inferred, 'epoch')} of {number(books.epochs)} left no word of their end, and "
            "count because the node after them was submitted."
        )
    if books.unplaced:
        text += (
            f" For {number(books.unplaced)} of {number(books.epochs)} the logs have no successful "
            "execution (they are marked done, inferred, or saved by a POST script): no GPU and no "
            "site has them."
        )
    if books.again:
        text += (
            f" {count(books.again, 'successful execution')} of epochs that another DAG trained or "
            "began again are in the rows of GPUs and sites, and not in the number of "
            f"{number(books.epochs)} epochs."
        )
    if books.window.whole and any(run.epochs_skipped for run in books.whole.runs):
        text += (
            " Skipped ones trained nothing and are not completed: PRE_SKIP ended their nodes, as "
            "when a run is stopped before its end."
        )
    return text + " The other definition is beside it: by longest attempt."


def _by_longest(books: ReportUsage, digits: int) -> str:
    moved = sum(
        e.counts
        and e.longest_seconds is not None
        and (e.site, e.gpu) != (e.longest_site, e.longest_gpu)
        and e.seconds is not None
        for e in books.part.epochs
        if e.state is State.COMPLETED
    )
    return (
        "Completed epochs counted for the GPU and the site of their longest execution instead of "
        "their successful one. The two differ where a job trained, failed after it, and succeeded "
        "in a short second execution (hidden compute): "
        f"{number(books.hidden)} of {count(books.epochs, 'completed epoch')} had a successful "
        f"execution shorter than {SHORT_SUCCESS:.0%} of their longest one, and {number(moved)} "
        "would be another GPU model's or site's."
    )


def _executions(books: ReportUsage, digits: int) -> str:
    jobs = len(jobs_in(books))
    spent = books.total.spent
    inside = "" if books.window.whole else " in this window"
    ran = len({e.job for e in books.part.executions if not e.dagman})
    return (
        "An execution is the time from a job's start on a machine (event 001) to the first event "
        "that ends it; a job that is evicted and starts again has several. It is counted where "
        "and when it ended (in flight: as of the end of the log). Counted by jobs instead: "
        f"{count(jobs, 'job')} in the queue{inside}, of which {number(ran)} ran, with "
        f"{count(spent.executions, 'execution')}."
    )


def _gpu_hours(books: ReportUsage, digits: int) -> str:
    total = books.total
    wall = sum(e.seconds for e in books.part.executions if not e.dagman) / HOUR
    measure = next((e.measure for e in books.part.executions), HourUnit.GPU)
    formula = (
        "(end − start) of every execution, whatever came of it: no execution had a GPU, and not "
        "every one says how many CPUs it had"
        if measure is HourUnit.WALL
        else f"(end − start) × {measure}s of every execution, whatever came of it; {measure}s are "
        "those that this execution was given"
    )
    return (
        f"{formula}. Transfers of input are not in it; time suspended is. Sums are made "
        "of seconds, and each number is rounded for itself. "
        f"Here: {hours(total.spent.total / HOUR, digits)} GPU-hours, in "
        f"{hours(wall, digits)} hours by the clock. Other reports count only the hours of the "
        f"longest attempt of each completed epoch: {hours(total.longest / HOUR, digits)} hours, or "
        f"{hours(total.longest_gpu / HOUR, digits)} GPU-hours."
    )


def _good(books: ReportUsage, digits: int) -> str:
    finals = sum(e.gpu_seconds or 0.0 for e in books.part.executions if e.final) / HOUR
    return (
        "GPU-hours of executions that ended with return value 0 (or the return value that is set "
        "as “checkpointed, run me again”). Of the executions that completed an epoch alone: "
        f"{hours(finals, digits)}."
    )


def _bad(books: ReportUsage, digits: int) -> str:
    spent = books.total.spent
    settled = spent.good + spent.bad
    return (
        "GPU-hours of executions that ended in any other way: failed, evicted, held, removed, "
        f"lost. Here: {hours(spent.bad / HOUR, digits)}, which is {_share(spent.bad, settled)} of "
        f"what has ended and {_share(spent.bad, spent.total)} of all. Some of it may have been of "
        "use: a checkpoint that was sent back is continued by the next execution."
    )


def _in_flight(books: ReportUsage, digits: int) -> str:
    return (
        "GPU-hours of executions whose end is not in the logs, up to as-of. They are neither good "
        "nor bad. Reports that leave them out have a total of "
        f"{hours((books.total.spent.good + books.total.spent.bad) / HOUR, digits)} GPU-hours."
    )


def _longest(books: ReportUsage, digits: int) -> str:
    return (
        "Hours by the clock of the longest execution of each completed epoch, whatever came of "
        "it, for the GPU and site that it ran on: what the training of an epoch takes. All "
        f"{number(books.epochs)} together: {hours(books.total.longest / HOUR, digits)} hours "
        f"({hours(books.total.longest_gpu / HOUR, digits)} GPU-hours), against "
        f"{hours(books.total.spent.total / HOUR, digits)} GPU-hours of all executions."
    )


def _success(books: ReportUsage, digits: int) -> str:
    spent = books.total.spent
    ended = spent.good_executions + spent.bad_executions
    hours_share = _share(spent.good, spent.good + spent.bad)
    return (
        "Good executions of those that have ended: "
        f"{number(spent.good_executions)} of {number(ended)}. By GPU-hours instead of by number: "
        f"{hours_share}."
    )


def _per_epoch(books: ReportUsage, digits: int) -> str:
    spent = books.total.spent
    told = (
        "GPU-hours of the runs' executions that have ended (good and bad), for each epoch that an "
        "execution in the logs completed"
    )
    if spent.per_epoch is None:
        return f"{told}: there is none."
    good = spent.run_good / HOUR / spent.completed
    return (
        f"{told}: {hours(spent.per_epoch / HOUR, digits)}, of {count(spent.completed, 'epoch')}. "
        f"Of good executions alone: {hours(good, digits)}. Executions in flight, and jobs of no "
        "run, are not in it." + _beside(books, digits)
    )


def _beside(books: ReportUsage, digits: int) -> str:
    """What was spent beside the training of epochs."""
    side = [e for e in books.part.executions if e.run is not None and not e.training]
    if not side:
        return ""
    spent = sum(e.gpu_seconds or 0.0 for e in side) / HOUR
    told = count(sum(e.counted for e in side), "execution")
    return f" Side nodes of runs (evaluations) are in it: {told}, {hours(spent, digits)} GPU-hours."


def _epoch_time(books: ReportUsage, digits: int) -> str:
    clear = sorted(
        e.seconds for e in books.part.epochs if e.counts and e.seconds is not None and not e.hidden
    )
    longest = sorted(
        e.longest_seconds
        for e in books.part.epochs
        if e.counts and e.state is State.COMPLETED and e.longest_seconds is not None
    )
    told = [
        f"{name} {duration(quantile(values, 0.5)) if values else '–'} (n = {number(len(values))})"
        for name, values in (
            ("of successful executions", books.epoch_times),
            ("without those that trained elsewhere", clear),
            ("of longest executions", longest),
        )
    ]
    return (
        "Time by the clock of the execution that completed the epoch; input transfer and waiting "
        f"are not in it. Medians: {', '.join(told)}."
    )


def _box(books: ReportUsage, digits: int) -> str:
    return (
        "Boxes reach from the first to the third quartile (linear between values) with the median "
        f"in them; whiskers to the last value within {WHISKER:g} times that range; circles are "
        f"values beyond. Of {number(books.hidden)} of {number(books.epochs)} epochs the successful "
        "execution is shorter than half their longest one: they trained in another execution."
    )


def _wait(books: ReportUsage, digits: int) -> str:
    n = len(books.waits)
    spread = box(books.waits)
    mean = f"; mean {duration(sum(books.waits) / n)}" if n else ""
    ends = f"; longest {duration(max(books.waits))}" if spread else ""
    inside = "" if books.window.whole else " that ended in the window or are in flight at its end"
    return (
        "Time that a job was idle before an execution: from its submission, or from the end of its "
        "execution before. Input transfer, holds and suspension are not in it. Of "
        f"{count(n, 'execution')}{inside}{mean}{ends}."
    )


def _bytes(books: ReportUsage, digits: int) -> str:
    return (
        "Of each job the larger of its own totals and the sum of what its executions say that they "
        "moved; in decimal units (1 GB = 10⁹ B). To jobs is input, from jobs is output, streamed "
        "output among it. Transfers that were broken off left no number."
    )


WHOLE_TRANSFERS: Final = (
    "; they are those inside the window, where median and longest are of the whole length of the "
    "transfers that ended in it"
)


def _transfers(books: ReportUsage, digits: int) -> str:
    inside = "" if books.window.whole else WHOLE_TRANSFERS
    return (
        "Transfers of files, as the access point logged their start and end. Input: ok when the "
        "job then ran; aborted when the transfer ended and it did not; unfinished when its end "
        "was never logged before the job was evicted, held or removed. Hours are by the clock, "
        f"those in the transfer queue of the access point among them{inside}."
    )


def _moved(books: ReportUsage, digits: int) -> str:
    return (
        "Transfers in both directions and of all outcomes. Of a transfer that no execution "
        "followed the site is known only when its host is."
    )


def _cause(books: ReportUsage, digits: int) -> str:
    return (
        "Code and subcode are those of the event that ended the execution (1000 and above: "
        "HTCondor's reasons to vacate; below: its reasons to hold). Reasons are the logs' own "
        "words, with hosts, files and numbers folded. A removal whose end is unknown was not "
        "logged when it happened; its time runs to the event that proves it was over. Hours are "
        "those that were lost, also where a checkpoint saved some of the work."
    )


def _period(books: ReportUsage, digits: int) -> str:
    name = {Unit.DAY: "day", Unit.WEEK: "week (from Monday)", Unit.MONTH: "month"}[books.period]
    text = (
        f"Each {name} has the GPU-hours that lie in it, also of executions that reach over its "
        "border; executions, epochs and bytes are counted where they ended. The rows add up to "
        "the total."
    )
    if books.unmoored and books.window.whole:
        text += (
            f" No event says when {count(books.unmoored, 'completed epoch')} ended: no {name} "
            "has them."
        )
    return text


def _share_of(books: ReportUsage, digits: int) -> str:
    return "Of all completed epochs, by the execution that completed them."


def _lost_share(books: ReportUsage, digits: int) -> str:
    spent = books.total.spent
    return (
        f"Of all {hours(spent.bad / HOUR, digits)} bad GPU-hours. Of all GPU-hours that have "
        f"ended, bad ones are {_share(spent.bad, spent.good + spent.bad)}."
    )


def _cumulated(books: ReportUsage, digits: int) -> str:
    return (
        "GPU-hours are of the time in which they were spent, by what their executions came to in "
        "the end, even where that was later. Epochs are of the time at which they were completed."
    )


DEFINITIONS: Final[Mapping[str, Callable[[ReportUsage, int], str]]] = {
    "epochs": _epochs,
    "by_longest": _by_longest,
    "executions": _executions,
    "gpu_hours": _gpu_hours,
    "good": _good,
    "bad": _bad,
    "in_flight": _in_flight,
    "longest": _longest,
    "success": _success,
    "per_epoch": _per_epoch,
    "epoch_time": _epoch_time,
    "box": _box,
    "wait": _wait,
    "bytes": _bytes,
    "transfers": _transfers,
    "moved": _moved,
    "cause": _cause,
    "period": _period,
    "share": _share_of,
    "lost_share": _lost_share,
    "cumulated": _cumulated,
}
