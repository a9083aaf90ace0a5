"""Defines the numbers of a report.

Where papers differ, the other common definition is given too. The terms are those of
``metlmon/README.md``; the numbers are the report's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Final

from metlmon.model.states import HourUnit, State
from metlmon.report.values import hours, percent
from metlmon.snapshot.ledger import HOUR, SHORT_SUCCESS
from metlmon.stats.report_usage import WHISKER, ReportUsage, jobs_in
from metlmon.stats.windows import Unit
from metlmon.text.formatting import count, duration, number


def definition(key: str, usage: ReportUsage, digits: int) -> str:
    """Return the text of one note; ``digits``: decimals of hours."""
    return DEFINITIONS[key](usage, digits)


def _share(part: float, whole: float) -> str:
    return percent(part / whole if whole else None)


def _epochs(usage: ReportUsage, digits: int) -> str:
    inferred = sum(e.inferred for e in usage.clipped.epochs if e.counts)
    text = (
        "An epoch is one training node of a run. It is completed when that node succeeded, and is "
        "counted once, for the GPU and the site of the execution that completed it."
    )
    if inferred:
        text += (
            f" {count(inferred, 'epoch')} of {number(usage.epochs)} left no word of their end, and "
            "count because the node after them was submitted."
        )
    if usage.unlocated:
        text += (
            f" For {number(usage.unlocated)} of {number(usage.epochs)} the logs have no successful "
            "execution (they are marked done, inferred, or saved by a POST script): no GPU and no "
            "site has them."
        )
    if usage.repeated:
        text += (
            f" {count(usage.repeated, 'successful execution')} of epochs that another DAG trained "
            "or began again are in the rows of GPUs and sites, and not in the number of "
            f"{number(usage.epochs)} epochs."
        )
    if usage.window.unbounded and any(run.epochs_skipped for run in usage.ledger.runs):
        text += (
            " Skipped ones trained nothing and are not completed: PRE_SKIP ended their nodes, as "
            "when a run is stopped before its end."
        )
    return text + " The other definition is beside it: by longest attempt."


def _by_longest(usage: ReportUsage, digits: int) -> str:
    moved = sum(
        e.counts
        and e.longest_seconds is not None
        and (e.site, e.gpu) != (e.longest_site, e.longest_gpu)
        and e.seconds is not None
        for e in usage.clipped.epochs
        if e.state is State.COMPLETED
    )
    return (
        "Completed epochs counted for the GPU and the site of their longest execution instead of "
        "their successful one. The two differ where a job trained, failed after it, and succeeded "
        "in a short second execution (hidden compute): "
        f"{number(usage.hidden)} of {count(usage.epochs, 'completed epoch')} had a successful "
        f"execution shorter than {SHORT_SUCCESS:.0%} of their longest one, and {number(moved)} "
        "would be another GPU model's or site's."
    )


def _executions(usage: ReportUsage, digits: int) -> str:
    jobs = len(jobs_in(usage))
    spent = usage.total.totals
    scope = "" if usage.window.unbounded else " in this window"
    ran = len({e.job for e in usage.clipped.executions if not e.dagman})
    return (
        "An execution is the time from a job's start on a machine (event 001) to the first event "
        "that ends it; a job that is evicted and starts again has several. It is counted where "
        "and when it ended (in flight: as of the end of the log). Counted by jobs instead: "
        f"{count(jobs, 'job')} in the queue{scope}, of which {number(ran)} ran, with "
        f"{count(spent.executions, 'execution')}."
    )


def _gpu_hours(usage: ReportUsage, digits: int) -> str:
    total, longest = usage.total, usage.total.longest
    wall = sum(e.seconds for e in usage.clipped.executions if not e.dagman) / HOUR
    measure = next((e.measure for e in usage.clipped.executions), HourUnit.GPU)
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
        f"Here: {hours(total.totals.total / HOUR, digits)} GPU-hours, in "
        f"{hours(wall, digits)} hours by the clock. Other reports count only the hours of the "
        f"longest attempt of each completed epoch: {hours(longest.seconds / HOUR, digits)} hours, "
        f"or {hours(longest.gpu_seconds / HOUR, digits)} GPU-hours."
    )


def _good(usage: ReportUsage, digits: int) -> str:
    finals = sum(e.gpu_seconds or 0.0 for e in usage.clipped.executions if e.final) / HOUR
    return (
        "GPU-hours of executions that ended with return value 0 (or the return value that is set "
        "as “checkpointed, run me again”). Of the executions that completed an epoch alone: "
        f"{hours(finals, digits)}."
    )


def _bad(usage: ReportUsage, digits: int) -> str:
    spent = usage.total.totals
    settled = spent.good + spent.bad
    return (
        "GPU-hours of executions that ended in any other way: failed, evicted, held, removed, "
        f"lost. Here: {hours(spent.bad / HOUR, digits)}, which is {_share(spent.bad, settled)} of "
        f"what has ended and {_share(spent.bad, spent.total)} of all. Some of it may have been of "
        "use: a checkpoint that was sent back is continued by the next execution."
    )


def _in_flight(usage: ReportUsage, digits: int) -> str:
    return (
        "GPU-hours of executions whose end is not in the logs, up to as-of. They are neither good "
        "nor bad. Reports that leave them out have a total of "
        f"{hours((usage.total.totals.good + usage.total.totals.bad) / HOUR, digits)} GPU-hours."
    )


def _longest(usage: ReportUsage, digits: int) -> str:
    longest = usage.total.longest
    return (
        "Hours by the clock of the longest execution of each completed epoch, whatever came of "
        "it, for the GPU and site that it ran on: what the training of an epoch takes. All "
        f"{number(usage.epochs)} together: {hours(longest.seconds / HOUR, digits)} hours "
        f"({hours(longest.gpu_seconds / HOUR, digits)} GPU-hours), against "
        f"{hours(usage.total.totals.total / HOUR, digits)} GPU-hours of all executions."
    )


def _success(usage: ReportUsage, digits: int) -> str:
    spent = usage.total.totals
    ended = spent.good_executions + spent.bad_executions
    hours_share = _share(spent.good, spent.good + spent.bad)
    return (
        "Good executions of those that have ended: "
        f"{number(spent.good_executions)} of {number(ended)}. By GPU-hours instead of by number: "
        f"{hours_share}."
    )


def _per_epoch(usage: ReportUsage, digits: int) -> str:
    spent = usage.total.totals
    text = (
        "GPU-hours of the runs' executions that have ended (good and bad), for each epoch that an "
        "execution in the logs completed"
    )
    if spent.per_epoch is None:
        return f"{text}: there is none."
    good = spent.run_good / HOUR / spent.completed
    return (
        f"{text}: {hours(spent.per_epoch / HOUR, digits)}, of {count(spent.completed, 'epoch')}. "
        f"Of good executions alone: {hours(good, digits)}. Executions in flight, and jobs of no "
        "run, are not in it." + _side_node_usage(usage, digits)
    )


def _side_node_usage(usage: ReportUsage, digits: int) -> str:
    """Return a sentence on the usage of side nodes of runs."""
    side = [e for e in usage.clipped.executions if e.run is not None and not e.training]
    if not side:
        return ""
    spent = sum(e.gpu_seconds or 0.0 for e in side) / HOUR
    ran = count(sum(e.counted for e in side), "execution")
    return f" Side nodes of runs (evaluations) are in it: {ran}, {hours(spent, digits)} GPU-hours."


def _epoch_time(usage: ReportUsage, digits: int) -> str:
    clear = sorted(
        e.seconds
        for e in usage.clipped.epochs
        if e.counts and e.seconds is not None and not e.hidden
    )
    longest = sorted(
        e.longest_seconds
        for e in usage.clipped.epochs
        if e.counts and e.state is State.COMPLETED and e.longest_seconds is not None
    )
    medians = [
        f"{name} {duration(median(values)) if values else '–'} (n = {number(len(values))})"
        for name, values in (
            ("of successful executions", usage.epoch_times),
            ("without those that trained elsewhere", clear),
            ("of longest executions", longest),
        )
    ]
    return (
        "Time by the clock of the execution that completed the epoch; input transfer and waiting "
        f"are not in it. Medians: {', '.join(medians)}."
    )


def _box(usage: ReportUsage, digits: int) -> str:
    return (
        "Boxes reach from the first to the third quartile (linear between values) with the median "
        f"in them; whiskers to the last value within {WHISKER:g} times that range; circles are "
        f"values beyond. Of {number(usage.hidden)} of {number(usage.epochs)} epochs the successful "
        "execution is shorter than half their longest one: they trained in another execution."
    )


def _wait(usage: ReportUsage, digits: int) -> str:
    n = len(usage.waits)
    mean = f"; mean {duration(sum(usage.waits) / n)}" if n else ""
    ends = f"; longest {duration(max(usage.waits))}" if n else ""
    scope = (
        "" if usage.window.unbounded else " that ended in the window or are in flight at its end"
    )
    return (
        "Time that a job was idle before an execution: from its submission, or from the end of its "
        "execution before. Input transfer, holds and suspension are not in it. Of "
        f"{count(n, 'execution')}{scope}{mean}{ends}."
    )


def _bytes(usage: ReportUsage, digits: int) -> str:
    return (
        "Of each job the larger of its own totals and the sum of what its executions say that they "
        "moved; in decimal units (1 GB = 10⁹ B). To jobs is input, from jobs is output, streamed "
        "output among it. Transfers that were broken off left no number."
    )


WHOLE_TRANSFERS: Final = (
    "; they are those inside the window, where median and longest are of the whole length of the "
    "transfers that ended in it"
)


def _transfers(usage: ReportUsage, digits: int) -> str:
    scope = "" if usage.window.unbounded else WHOLE_TRANSFERS
    return (
        "Transfers of files, as the access point logged their start and end. Input: ok when the "
        "job then ran; aborted when the transfer ended and it did not; unfinished when its end "
        "was never logged before the job was evicted, held or removed. Hours are by the clock, "
        f"those in the transfer queue of the access point among them{scope}."
    )


def _moved(usage: ReportUsage, digits: int) -> str:
    return (
        "Transfers in both directions and of all outcomes. Of a transfer that no execution "
        "followed the site is known only when its host is."
    )


def _cause(usage: ReportUsage, digits: int) -> str:
    return (
        "Code and subcode are those of the event that ended the execution (1000 and above: "
        "HTCondor's reasons to vacate; below: its reasons to hold). Reasons are the logs' own "
        "words, with hosts, files and numbers folded. A removal whose end is unknown was not "
        "logged when it happened; its time runs to the event that proves it was over. Hours are "
        "those that were lost, also where a checkpoint saved some of the work."
    )


def _period(usage: ReportUsage, digits: int) -> str:
    name = {Unit.DAY: "day", Unit.WEEK: "week (from Monday)", Unit.MONTH: "month"}[usage.period]
    text = (
        f"Each {name} has the GPU-hours that lie in it, also of executions that reach over its "
        "border; executions, epochs and bytes are counted where they ended. The rows add up to "
        "the total."
    )
    if usage.undated and usage.window.unbounded:
        text += (
            f" No event says when {count(usage.undated, 'completed epoch')} ended: no {name} "
            "has them."
        )
    return text


def _epoch_share(usage: ReportUsage, digits: int) -> str:
    return "Of all completed epochs, by the execution that completed them."


def _lost_share(usage: ReportUsage, digits: int) -> str:
    spent = usage.total.totals
    return (
        f"Of all {hours(spent.bad / HOUR, digits)} bad GPU-hours. Of all GPU-hours that have "
        f"ended, bad ones are {_share(spent.bad, spent.good + spent.bad)}."
    )


def _cumulated(usage: ReportUsage, digits: int) -> str:
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
    "share": _epoch_share,
    "lost_share": _lost_share,
    "cumulated": _cumulated,
}
