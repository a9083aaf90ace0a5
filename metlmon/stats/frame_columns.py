"""Registry of the frames' columns: name, type, unit, meaning and value.

Frames, exported files and the printed documentation all derive from it, so that they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from metlmon.model.job_events import JobId
from metlmon.model.states import Outcome, State
from metlmon.snapshot.ledger import HOUR, ExecutionEntry
from metlmon.text.formatting import job_id

TEXT: Final = "string"
COUNT: Final = "Int64"
NUMBER: Final = "float64"
TRUTH: Final = "boolean"
WORD: Final = "category"
TIME: Final = "datetime64[us]"
"""Types by their pandas names; text, integers and booleans are nullable. Times have microseconds:
nanoseconds end in the year 2262, and damaged logs contain 9999."""

TIMES_UNIT: Final = "local time"
"""That of the access point, as in logs."""


class FrameColumn(Struct, frozen=True):
    """One column of a frame.

    ``unit``: of its numbers, or ""; ``value``: returns its value for an entry of the ledger;
    ``categories``: the categories of a :data:`WORD` column.
    """

    name: str
    dtype: str
    unit: str
    meaning: str
    value: Callable[[Any], object]
    categories: tuple[str, ...] = ()


class EventRecord(Struct, frozen=True):
    """One event of one job."""

    job: JobId
    time: datetime
    number: int
    name: str
    text: str
    damaged: bool


Of = Callable[[Any], object] | None


def _column(dtype: str, name: str, meaning: str, value: Of = None, unit: str = "") -> FrameColumn:
    """A column; without ``value`` that of the attribute ``name``."""
    return FrameColumn(name, dtype, unit, meaning, value or attrgetter(name))


_text = partial(_column, TEXT)
_count = partial(_column, COUNT)
_boolean = partial(_column, TRUTH)
_time = partial(_column, TIME, unit=TIMES_UNIT)


def _number(name: str, unit: str, meaning: str, value: Of = None) -> FrameColumn:
    return _column(NUMBER, name, meaning, value, unit)


def _category(name: str, words: Iterable[str], meaning: str, value: Of = None) -> FrameColumn:
    listed = tuple(str(word) for word in words)
    return FrameColumn(name, WORD, "", meaning, value or attrgetter(name), listed)


def _gpu_hours(subject: str) -> tuple[FrameColumn, ...]:
    """GPU-hours of an entry that has GPU-seconds of all three kinds."""

    def hours(suffix: str, meaning: str, *kinds: str) -> FrameColumn:
        def value(entry: Any) -> float:
            return float(sum(getattr(entry, kind) for kind in kinds) / HOUR)

        return _number(f"gpu_hours{suffix}", "GPU h", meaning, value)

    return (
        hours("_good", f"{subject} that ended well", "goodput"),
        hours("_bad", f"{subject} that ended in any other way", "badput"),
        hours("_in_flight", f"{subject} that have not ended, up to as-of", "running"),
        hours("", "the three together", "goodput", "badput", "running"),
    )


def _execution_hours(entry: ExecutionEntry) -> float | None:
    return None if entry.gpu_seconds is None else entry.gpu_seconds / HOUR


def _latest(name: str) -> Callable[[Any], object]:
    return lambda entry: None if entry.latest is None else getattr(entry.latest, name)


RUN_KEY: Final = _text(
    "run", "key of the run: its run_uuid, without one its DAG and name; joins the frames"
)

JOB_KEY: Final = (
    _count("cluster", "the job's cluster; with proc it joins the frames", lambda e: e.job[0]),
    _count("proc", "the job's number in its cluster", lambda e: e.job[1]),
)

RUN_NAMES: Final = (
    RUN_KEY,
    _text("run_name", "name of the run, as its nodes are called"),
    _text("uuid", "run_uuid of the run"),
    _text("label", "cohort of the run ([[label]] in metlmon.toml)"),
)

OWNER: Final = (
    _text("dag", "top-level DAG file of its node; empty for a job of no DAG"),
    _text("node", "its node"),
    *RUN_NAMES,
    _count("epoch", "number of the epoch in the node's name"),
    _boolean("training", "its node is an epoch (not an evaluation, not another node)"),
    _text("target", "where it was sent: VAR ResourceName"),
)

IN_DAG: Final = _text(
    "in_dag", "DAG that holds its node, a sub-DAG of dag perhaps; with node it joins the frames"
)

RUNS: Final = (
    *RUN_NAMES,
    _text("dag", "top-level DAG file of its latest epoch"),
    _category("state", State, "state of its latest epoch; completed when all are done"),
    _count("epochs_total", "its epochs"),
    _count("epochs_done", "epochs completed, the inferred ones included"),
    _count("epochs_inferred", "epochs taken for completed because a later one was submitted"),
    _count("epochs_skipped", "epochs that PRE_SKIP ended: they trained nothing"),
    _time("began", "first submission of any of its nodes"),
    _count("latest_epoch", "highest epoch submitted", _latest("epoch")),
    _text("latest_node", "node of that epoch", _latest("node")),
    _count("latest_cluster", "its job: cluster", _latest("cluster")),
    _count("latest_proc", "its job: proc", _latest("proc")),
    _category("latest_state", State, "its state", _latest("state")),
    _time("latest_since", "since when it is in that state", _latest("since")),
    _number("latest_seconds", "s", "how long it is in that state", _latest("seconds")),
    _count("latest_attempt", "tries of its node so far", _latest("attempt")),
    _text("latest_target", "where it was sent", _latest("target")),
    _text("latest_site", "where it runs, or ran last", _latest("site")),
    _text("latest_gpu", "GPU model there", _latest("gpu")),
    _count("latest_gpus", "number of GPUs there", _latest("gpus")),
    _count("hold_code", "why it is held now: code", _latest("hold_code")),
    _text("hold_reason", "why it is held now, as logged", _latest("hold_reason")),
    *_gpu_hours("executions of all its nodes"),
)

EPOCHS: Final = (
    *RUN_NAMES,
    _text("dag", "top-level DAG file of its node"),
    _text("node", "its node"),
    _count("epoch", "number in the node's name"),
    _count("epoch_var", "number in VAR epoch"),
    _boolean("counts", "this node counts for its epoch (another DAG may have the epoch, too)"),
    _category("state", State, "its state"),
    _boolean("inferred", "taken for completed because a later node was submitted"),
    _text("target", "where it was sent: VAR ResourceName"),
    _time("first_submitted", "submission of its first job"),
    _time(
        "completed",
        "end of the execution that completed it; empty where the logs do not say when it ended "
        "(inferred, or marked DONE)",
    ),
    _count("attempts", "its executions"),
    _text(
        "jobs",
        "its jobs in order of submission: cluster.proc, blanks between",
        lambda e: " ".join(job_id(*job) for job in e.jobs),
    ),
    _text("site", "site of the execution that completed it"),
    _text("gpu", "GPU model of that execution"),
    _count("gpus", "number of GPUs of that execution"),
    _number("seconds", "s", "how long that execution ran"),
    _text("longest_site", "site of its longest execution"),
    _text("longest_gpu", "GPU model of its longest execution"),
    _number("longest_seconds", "s", "how long its longest execution ran"),
    _boolean(
        "hidden",
        "the execution that completed it is shorter than half its longest one: that one trained it",
    ),
    *_gpu_hours("its executions"),
    IN_DAG,
)

JOBS: Final = (
    *JOB_KEY,
    *OWNER,
    _category("state", State, "its state"),
    _time("submitted", "when it was submitted"),
    _time("ended", "when it left the queue"),
    _count("holds", "how often it was held", lambda entry: len(entry.holds)),
    _number(
        "held_seconds",
        "s",
        "how long it was held, up to as-of",
        lambda e: sum((hold.seconds for hold in e.holds), 0.0),
    ),
    _text(
        "hold_cause",
        "its last hold's reason, changing parts folded",
        lambda e: e.holds[-1].cause if e.holds else None,
    ),
    _count("bytes_sent", "sent by its executions", unit="bytes"),
    _count("bytes_received", "received by its executions", unit="bytes"),
    _count("memory_mb", "the most it used (006 events, and usage when it ended)", unit="MB"),
    _count("request_memory_mb", "what it requested", unit="MB"),
    _boolean("dagman", "it is the DAGMan of a sub-DAG, which runs at no site"),
    IN_DAG,
)

EXECUTIONS: Final = (
    *JOB_KEY,
    _count(
        "attempt",
        "number of the try of its node, from 1; the procs of one submission are tried together",
    ),
    *OWNER,
    _text("site", "where it ran"),
    _text("host", "machine that it ran on"),
    _text("gpu", "GPU model, as logged or as metlmon.toml calls it"),
    _count("gpus", "number of GPUs it had"),
    _time("start", "event 001"),
    _time("end", "the event that ended it; empty in flight"),
    _number("seconds", "s", "from start to end, or to as-of"),
    _number("suspended_seconds", "s", "suspended of that", attrgetter("suspended")),
    _number("gpu_seconds", "GPU s", "seconds × GPUs; empty when their number is not known"),
    _number("gpu_hours", "GPU h", "the same in hours", _execution_hours),
    _category("outcome", Outcome, "how it ended"),
    _category(
        "kind",
        ("good", "bad", "in_flight"),
        "the same in three: return value 0 or all of it stored, or not, or yet",
    ),
    _time("checkpoint", "when its last checkpoint was stored; empty where it ended well"),
    _number(
        "lost_seconds", "s", "lost of its seconds: those after that checkpoint", attrgetter("lost")
    ),
    _count("code", "hold code or vacate code of its end"),
    _count("subcode", "subcode of its end"),
    _text("cause", "why it ended badly: the reason, changing parts folded"),
    _text("reason", "the reason as logged"),
    _count("return_value", "return value"),
    _count("signal", "signal that killed it"),
    _boolean("uncertain", "its end was not logged; taken from the event that proves it was over"),
    _number("wait_seconds", "s", "idle before it, without the transfer", attrgetter("wait")),
    _number("transfer_seconds", "s", "input transfer before it", attrgetter("transfer")),
    _count("bytes_sent", "sent by it; over a job they add up to the job's", unit="bytes"),
    _count("bytes_received", "received by it, in the same way", unit="bytes"),
    _boolean("final", "it completed its epoch"),
    _boolean("dagman", "it is the DAGMan of a sub-DAG, which runs at no site"),
    _boolean("counted", "in a window of time: it ended in it, or is in flight in the last one"),
    IN_DAG,
)

TRANSFERS: Final = (
    *JOB_KEY,
    RUN_KEY,
    _count("epoch", "number of the epoch in the node's name"),
    _category("direction", ("input", "output"), "input goes to the machine, output comes back"),
    _time("start", "when it started; empty when that was not logged"),
    _time("end", "when it finished or was broken off; empty in flight"),
    _number("seconds", "s", "from start to end, or to as-of"),
    _category(
        "outcome",
        ("ok", "aborted", "unfinished", "failed", "in-flight"),
        "of an input: ok when an execution followed, aborted when none did, unfinished when it "
        "never finished; of an output: failed when an error of it was logged",
    ),
    _text("host", "the other end, as logged"),
    _text("site", "site of that host, as far as it is known"),
    _number("queue_seconds", "s", "waited for a turn to transfer"),
    _boolean("counted", "in a window of time: it ended in it, or is in flight in the last one"),
)

EVENTS: Final = (
    *JOB_KEY,
    _time("time", "when it happened"),
    _count("number", "event number; every one but 006, which jobs have in memory_mb alone"),
    _text("name", "its name, as HTCondor has it"),
    _text("text", "first line, and the reason below it; never a value of Environment"),
    _boolean("damaged", "it was cut in the log"),
)


class FrameTable(Struct, frozen=True):
    """One frame: the meaning of a row, and its columns in order."""

    name: str
    row: str
    columns: tuple[FrameColumn, ...]


TABLES: Final[dict[str, FrameTable]] = {
    table.name: table
    for table in (
        FrameTable("runs", "a run", RUNS),
        FrameTable("epochs", "a training node of a run", EPOCHS),
        FrameTable("jobs", "a job", JOBS),
        FrameTable("executions", "an execution of a job", EXECUTIONS),
        FrameTable("transfers", "a transfer of a job's files", TRANSFERS),
        FrameTable("events", "an event of a job", EVENTS),
    )
}
"""All frames, by name."""


def markdown(tables: Iterable[FrameTable]) -> str:
    """The documentation of the columns in Markdown, one table for each frame."""
    parts = []
    for table in tables:
        lines = [
            f"**{table.name}**: a row is {table.row}",
            "",
            "| column | type | unit | meaning |",
        ]
        lines.append("|---|---|---|---|")
        lines += [
            f"| {c.name} | {c.dtype} | {c.unit} | {_meaning_text(c)} |" for c in table.columns
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def listing(tables: Iterable[FrameTable], width: int) -> str:
    """The documentation of the columns for a terminal of ``width`` cells."""
    from textwrap import wrap

    parts = []
    for table in tables:
        name = max(len(column.name) for column in table.columns)
        kind = max(len(_kind(column)) for column in table.columns)
        lines = [f"{table.name}: a row is {table.row}"]
        for column in table.columns:
            start = f"  {column.name:<{name}}  {_kind(column):<{kind}}  "
            room = max(20, width - len(start))
            meaning_lines = wrap(_meaning_text(column), room, break_on_hyphens=False)
            lines.append(start + meaning_lines[0])
            lines += [" " * len(start) + rest for rest in meaning_lines[1:]]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _kind(column: FrameColumn) -> str:
    return (
        f"{column.dtype} ({column.unit})" if column.unit not in ("", TIMES_UNIT) else column.dtype
    )


def _meaning_text(column: FrameColumn) -> str:
    """The meaning of a column, with its categories if these are few."""
    if not column.categories or column.categories == tuple(State):
        return column.meaning
    return f"{column.meaning}; one of {', '.join(column.categories)}"
