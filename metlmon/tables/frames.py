"""An ensemble as pandas frames, for notebooks and exports.

``metlmon.load(dagdir)`` returns :class:`Frames`. A row is one entry of the ledger, so that sums
over a frame equal those of screens, reports and JSON; its columns are declared here, and frames,
exported files and the printed documentation follow from them. pandas is imported on first access
to a frame.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from metlmon.config.loader import load_settings, time_zone
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.job_events import JobId
from metlmon.model.states import Outcome, State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.records import EventLine, Ledger, Status
from metlmon.stats.windows import ALL, TimeWindow, clip_ledger, window_text
from metlmon.tables.layout import Column, Kind
from metlmon.text.formatting import count, epoch_number, job_id, plain
from metlmon.text.time_arguments import parse_time_argument

if TYPE_CHECKING:
    import pandas as pd

TEXT_LIMIT: Final = 8000
"""Maximum characters of a text: reasons can be megabytes long, spreadsheet cells hold 32767."""

MAX_INTEGER: Final = 2**63 - 1
"""Maximum of an integer column; only damaged logs exceed it."""

Value = str | int | float | bool | datetime | None
Of = Callable[[Any], Any]
AnyColumn = Column[Any]

TIMES_UNIT: Final = "local time"
"""Times are those of the access point, as in logs."""

_TYPES: Final[Mapping[Kind, str]] = {
    Kind.TEXT: "string",
    Kind.STATE: "category",
    Kind.TIME: "datetime64[us]",
    Kind.COUNT: "Int64",
    Kind.BYTES: "Int64",
    Kind.FLAG: "boolean",
}
"""pandas types; all other kinds are float64. Text, integers and booleans are nullable. Times have
microseconds: nanoseconds end in the year 2262, and damaged logs contain 9999."""

_UNITS: Final[Mapping[Kind, str]] = {
    Kind.TIME: TIMES_UNIT,
    Kind.DURATION: "s",
    Kind.HOURS: "GPU h",
    Kind.BYTES: "bytes",
}


def dtype(column: AnyColumn) -> str:
    """The type of a column in a frame."""
    return _TYPES.get(column.kind, "float64")


def unit(column: AnyColumn) -> str:
    """The unit of a column in a frame, or an empty text."""
    return column.unit or _UNITS.get(column.kind, "")


class JobEvent(NamedTuple):
    """One event of one job."""

    job: JobId
    event: EventLine


# --- columns ----------------------------------------------------------------------------------


def _column(name: str, doc: str, value: Of | None = None, *, kind: Kind, **more: Any) -> AnyColumn:
    """A column with its name as heading; ``value`` defaults to the attribute of that name."""
    return Column(name, value or attrgetter(name), kind, doc, title=name, **more)


_text = partial(_column, kind=Kind.TEXT)
_count = partial(_column, kind=Kind.COUNT)
_flag = partial(_column, kind=Kind.FLAG)
_time = partial(_column, kind=Kind.TIME)
_seconds = partial(_column, kind=Kind.DURATION)
_hours = partial(_column, kind=Kind.HOURS)
_bytes = partial(_column, kind=Kind.BYTES)
_state = partial(_column, kind=Kind.STATE)


def _gpu_hours(subject: str) -> tuple[AnyColumn, ...]:
    """GPU-hours of each of the three kinds, and their total."""
    meanings = {
        "goodput": f"{subject} that ended well",
        "badput": f"{subject} that ended in any other way",
        "running": f"{subject} that have not ended, up to as-of",
    }
    return (
        *(
            _hours(f"gpu_hours_{kind}", meaning, attrgetter(f"hours.of_gpus.{kind}"))
            for kind, meaning in meanings.items()
        ),
        _hours("gpu_hours", "the three together", attrgetter("hours.of_gpus.total")),
    )


def _epoch(entry: Any) -> int | None:
    return None if entry.epoch is None else epoch_number(entry.epoch)


def _success(name: str) -> Of:
    return lambda epoch: None if epoch.success is None else getattr(epoch.success, name)


def _latest(name: str) -> Of:
    return lambda entry: None if entry.latest is None else getattr(entry.latest, name)


RUN_KEY: Final = _text(
    "key", "key of the run: its run_uuid, without one its DAG and name; joins the frames"
)

JOB_KEY: Final = (
    _count("cluster", "the job's cluster; with proc it joins the frames", lambda e: e.job[0]),
    _count("proc", "the job's number in its cluster", lambda e: e.job[1]),
)

RUN_NAMES: Final = (
    RUN_KEY,
    _text("run", "name of the run, as its nodes are called"),
    _text("uuid", "run_uuid of the run"),
    _text("label", "cohort of the run ([[label]] in metlmon.toml)"),
)

EPOCH: Final = _count("epoch", "number of the epoch, from 1", _epoch)

OWNER: Final = (
    _text("dag", "top-level DAG file of its node; empty for a job of no DAG"),
    _text("node", "its node"),
    *RUN_NAMES,
    EPOCH,
    _flag("training", "its node is an epoch (not an evaluation, not another node)"),
    _text("target", "where it was sent: VAR ResourceName"),
)

IN_DAG: Final = _text(
    "in_dag", "DAG that holds its node, a sub-DAG of dag perhaps; with node it joins the frames"
)

RUNS: Final = (
    *RUN_NAMES,
    _text("dag", "top-level DAG file of its latest epoch"),
    _state("state", "state of its latest epoch; completed when all are done", words=tuple(State)),
    _count("epochs_total", "its epochs"),
    _count("epochs_done", "epochs completed, the inferred ones included"),
    _count("epochs_inferred", "epochs taken for completed because a later one was submitted"),
    _count("epochs_skipped", "epochs that PRE_SKIP ended: they trained nothing"),
    _time("began", "first submission of any of its nodes"),
    _count(
        "latest_epoch", "highest epoch submitted, from 1", lambda e: e.latest and _epoch(e.latest)
    ),
    _text("latest_node", "node of that epoch", _latest("node")),
    _count("latest_cluster", "its job: cluster", _latest("cluster")),
    _count("latest_proc", "its job: proc", _latest("proc")),
    _state("latest_state", "its state", _latest("state"), words=tuple(State)),
    _time("latest_since", "since when it is in that state", _latest("since")),
    _seconds("seconds", "how long it is in its state: that of the epoch that failed, else of this"),
    _count(
        "latest_attempts",
        "executions of its node so far; procs of one submission run as one",
        _latest("attempts"),
    ),
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
    EPOCH,
    _count("epoch_var", "number in VAR epoch, as it is written there"),
    _flag("counts", "this node counts for its epoch (another DAG may have the epoch, too)"),
    _state("state", "its state", words=tuple(State)),
    _flag("inferred", "taken for completed because a later node was submitted"),
    _text("target", "where it was sent: VAR ResourceName"),
    _time("first_submitted", "submission of its first job"),
    _time(
        "completed",
        "end of the execution that completed it; empty where the logs do not say when it ended "
        "(inferred, or marked DONE)",
    ),
    _count("attempts", "its executions; procs of one submission run as one"),
    _text(
        "jobs",
        "its jobs in order of submission: cluster.proc, blanks between",
        lambda e: " ".join(job_id(*job) for job in e.jobs),
    ),
    _text("site", "site of the execution that completed it", _success("site")),
    _text("gpu", "GPU model of that execution", _success("gpu")),
    _count("gpus", "number of GPUs of that execution", _success("gpus")),
    _seconds("seconds", "how long that execution ran", attrgetter("success_seconds")),
    _text("longest_site", "site of its longest execution"),
    _text("longest_gpu", "GPU model of its longest execution"),
    _seconds("longest_seconds", "how long its longest execution ran"),
    _flag(
        "hidden",
        "the execution that completed it is shorter than half its longest one: that one trained it",
    ),
    *_gpu_hours("its executions"),
    IN_DAG,
)

JOBS: Final = (
    *JOB_KEY,
    *OWNER,
    _state("state", "its state", words=tuple(State)),
    _time("submitted", "when it was submitted"),
    _time("ended", "when it left the queue"),
    _count("holds", "how often it was held", lambda entry: len(entry.holds)),
    _seconds(
        "held_seconds",
        "how long it was held, up to as-of",
        lambda e: sum((hold.seconds for hold in e.holds), 0.0),
    ),
    _text(
        "hold_cause",
        "its last hold's reason, changing parts folded",
        lambda e: e.holds[-1].cause if e.holds else None,
    ),
    _bytes("bytes_sent", "sent by its executions"),
    _bytes("bytes_received", "received by its executions"),
    _count("memory_mb", "the most it used (006 events, and usage when it ended)", unit="MB"),
    _count("request_memory_mb", "what it requested", unit="MB"),
    _flag("dagman", "it is the DAGMan of a sub-DAG, which runs at no site"),
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
    _seconds("seconds", "from start to end, or to as-of"),
    _seconds("suspended_seconds", "suspended of that", attrgetter("suspended")),
    _seconds("gpu_seconds", "seconds × GPUs; empty when their number is not known", unit="GPU s"),
    _hours("gpu_hours", "the same in hours"),
    _state("outcome", "how it ended", words=tuple(Outcome)),
    _state(
        "kind",
        "the same in three: return value 0 or all of it stored, or not, or yet",
        words=("goodput", "badput", "running"),
    ),
    _time("checkpoint", "when its last checkpoint was stored; empty where it ended well"),
    _seconds(
        "lost_seconds", "lost of its seconds: those after that checkpoint", attrgetter("lost")
    ),
    _count("code", "hold code or vacate code of its end"),
    _count("subcode", "subcode of its end"),
    _text("cause", "why it ended badly: the reason, changing parts folded"),
    _text("reason", "the reason as logged"),
    _count("return_value", "return value"),
    _count("signal", "signal that killed it"),
    _flag("uncertain", "its end was not logged; taken from the event that proves it was over"),
    _seconds("wait_seconds", "idle before it, without the transfer", attrgetter("wait")),
    _seconds("transfer_seconds", "input transfer before it", attrgetter("transfer")),
    _bytes("bytes_sent", "sent by it; over a job they add up to the job's"),
    _bytes("bytes_received", "received by it, in the same way"),
    _flag("final", "it completed its epoch"),
    _flag("dagman", "it is the DAGMan of a sub-DAG, which runs at no site"),
    _flag("counted", "in a window of time: it ended in it, or is in flight in the last one"),
    IN_DAG,
)

TRANSFERS: Final = (
    *JOB_KEY,
    RUN_KEY,
    EPOCH,
    _state("direction", "input goes to the machine, output comes back", words=("input", "output")),
    _time("start", "when it started; empty when that was not logged"),
    _time("end", "when it finished or was broken off; empty in flight"),
    _seconds("seconds", "from start to end, or to as-of"),
    _state(
        "outcome",
        "of an input: ok when an execution followed, aborted when none did, unfinished when it "
        "never finished; of an output: failed when an error of it was logged",
        words=("ok", "aborted", "unfinished", "failed", "in-flight"),
    ),
    _text("host", "the other end, as logged"),
    _text("site", "site of that host, as far as it is known"),
    _seconds("queue_seconds", "waited for a turn to transfer"),
    _flag("counted", "in a window of time: it ended in it, or is in flight in the last one"),
)

EVENTS: Final = (
    *JOB_KEY,
    _time("time", "when it happened", attrgetter("event.time")),
    _count(
        "number",
        "event number; every one but 006, which jobs have in memory_mb alone",
        attrgetter("event.number"),
    ),
    _text("name", "its name, as HTCondor has it", attrgetter("event.name")),
    _text(
        "text",
        "first line, and the reason below it; never a value of Environment",
        attrgetter("event.text"),
    ),
    _flag("damaged", "it was cut in the log", attrgetter("event.damaged")),
)


class FrameTable(Struct, frozen=True):
    """One frame: the meaning of a row, and its columns in order."""

    name: str
    row: str
    columns: tuple[AnyColumn, ...]


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


# --- documentation ----------------------------------------------------------------------------


def listing(tables: Iterable[FrameTable], width: int) -> str:
    """The documentation of the columns in lines of ``width`` cells."""
    parts = []
    for table in tables:
        types = {}
        for column in table.columns:
            shown = "" if unit(column) in ("", TIMES_UNIT) else f" ({unit(column)})"
            types[column.name] = dtype(column) + shown
        name, type_ = max(map(len, types)), max(map(len, types.values()))
        parts.append(f"{table.name}: a row is {table.row}\n")
        for column in table.columns:
            start = f"  {column.name:<{name}}  {types[column.name]:<{type_}}  "
            room = max(20, width - len(start))
            # States are too many to be listed.
            named = column.words and column.words != tuple(State)
            meaning = f"{column.doc}; one of {', '.join(column.words)}" if named else column.doc
            first, *others = wrap(meaning, room, break_on_hyphens=False)
            parts += [f"{start}{first}\n", *(f"{' ' * len(start)}{line}\n" for line in others)]
        parts.append("\n")
    return "".join(parts[:-1])


# --- frames -----------------------------------------------------------------------------------


def load(
    dagdir: str | os.PathLike[str],
    *,
    as_of: str | datetime | None = None,
    tz: str | None = None,
    live: bool | None = None,
) -> Frames:
    """Read the current state of a dagdir (or one DAG file) and its ``metlmon.toml``.

    ``as_of``: a past state instead, in the logs' local time. ``tz``: the access point's time
    zone, e.g. "America/Chicago", which makes the frames' times aware. ``live``: durations extend
    to now (True) or end with the newest event (False); None decides by the files. Raises
    InputError, with a message, for unreadable input.
    """
    path = Path(dagdir).expanduser()
    settings = load_settings(path)
    if tz is not None:
        settings = replace(settings, zone=time_zone(tz))
    moment = parse_time_argument("as_of=", as_of, settings.zone)
    reader = DagdirReader(path, settings, as_of=moment, live=live)
    reader.open()
    reader.read_all()
    return Frames(reader.snapshot_builder())


def _frame(name: str) -> cached_property[pd.DataFrame]:
    """The frame of this name, as an attribute of :class:`Frames`."""

    def build(frames: Frames) -> pd.DataFrame:
        import pandas as pd

        values = frames.values(name)
        series = [
            _series(column, values[column.name], frames.zone).rename(column.name)
            for column in TABLES[name].columns
        ]
        return pd.concat(series, axis=1)

    return cached_property(build)


class Frames:
    """The frames of a snapshot of an ensemble.

    ``runs``, ``epochs``, ``jobs``, ``executions``, ``transfers`` and ``events`` are built on
    first access and cached. Times are the access point's local time; they are aware if the zone
    is known (``tz``, ``metlmon.toml``, or logs in UTC), else naive. Durations have their own
    columns, because differences of local times are wrong twice a year. Texts from logs and jobs
    are single lines with visible control characters.
    """

    def __init__(self, builder: SnapshotBuilder, window: TimeWindow = ALL) -> None:
        self._builder = builder
        self._window = window

    runs = _frame("runs")
    epochs = _frame("epochs")
    jobs = _frame("jobs")
    executions = _frame("executions")
    transfers = _frame("transfers")
    events = _frame("events")

    @property
    def columns(self) -> pd.DataFrame:
        """The columns of all frames: frame, column, dtype, unit, meaning."""
        import pandas as pd

        rows = [
            (table.name, column.name, dtype(column), unit(column), column.doc)
            for table in TABLES.values()
            for column in table.columns
        ]
        return pd.DataFrame(rows, columns=["frame", "column", "dtype", "unit", "meaning"])

    def frame(self, name: str) -> pd.DataFrame:
        """The frame of this name. Raises InputError if there is none."""
        frame: pd.DataFrame = getattr(self, _table(name).name)
        return frame

    # --- time window ---------------------------------------------------------------------

    def windowed(
        self, since: str | datetime | None = None, until: str | datetime | None = None
    ) -> Frames:
        """The frames of a time window from ``since`` to ``until`` (exclusive).

        :func:`metlmon.stats.windows.clip_ledger` defines its content; the windows of a partition
        sum to the total. ``status`` remains that of the whole ensemble. Raises InputError.
        """
        settings = self._builder.ensemble.settings
        as_of = self._builder.status().as_of
        window = TimeWindow(
            parse_time_argument("since=", since, settings.zone, lambda: as_of),
            parse_time_argument("until=", until, settings.zone, lambda: as_of),
        )
        if window.since is not None and window.until is not None and window.since >= window.until:
            raise InputError(f"since={since!r} is not before until={until!r}: nothing is between")
        return Frames(self._builder, window)

    # --- values without pandas -----------------------------------------------------------

    def values(self, name: str) -> dict[str, list[Value]]:
        """The columns of a frame as plain Python values, in order; None means unknown."""
        table = _table(name)
        entries = list(self._entries(name))
        return {
            column.name: [_clean(column, column.value(entry)) for entry in entries]
            for column in table.columns
        }

    def _entries(self, name: str) -> Iterable[object]:
        if name == "events":
            return self._events()
        entries: Iterable[object] = getattr(self.ledger, name)
        return entries

    def _events(self) -> Iterator[JobEvent]:
        since, until = self._window.since, self._window.until
        for job in self._builder.real_jobs():
            for event in self._builder.event_lines(job):
                if (since is None or since <= event.time) and (until is None or event.time < until):
                    yield JobEvent(job.id, event)

    def local_time_text(self, when: datetime) -> str:
        """The time in ISO 8601, with the UTC offset if the zone is known."""
        return self._builder.clock.with_offset(when).isoformat()

    # --- source --------------------------------------------------------------------------

    @cached_property
    def ledger(self) -> Ledger:
        """The entries that the frames are built from."""
        return clip_ledger(self._builder.ledger(), self._window)

    @cached_property
    def status(self) -> Status:
        """The snapshot of the whole ensemble, as ``metlmon status`` shows it."""
        return self._builder.status()

    @property
    def dagdir(self) -> str:
        """The directory, as given."""
        return self._builder.dagdir

    @property
    def as_of(self) -> datetime | None:
        """The time that durations refer to; None for an ensemble without events."""
        return self._builder.as_of

    @property
    def zone(self) -> tzinfo | None:
        """The time zone of the frames' times; None if unknown."""
        clock = self._builder.clock
        return clock.zone or (UTC if clock.utc_only else None)

    def __repr__(self) -> str:
        as_of = f" as of {self.as_of}" if self.as_of is not None else ""
        window = "" if self._window.unbounded else f", {window_text(self._window)}"
        lines = [f"metlmon: {plain(self.dagdir, 200)}{as_of}{window}"]
        for table in TABLES.values():
            rows = count(sum(1 for _ in self._entries(table.name)), "row")
            columns = count(len(table.columns), "column")
            lines.append(f"  .{table.name:<11}{rows:>12} of {columns}; a row is {table.row}")
        lines.append("  .columns says what the columns mean; .status and .ledger have the rest")
        return "\n".join(lines)


def _table(name: str) -> FrameTable:
    if name not in TABLES:
        raise InputError(f"no frame is called {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name]


def _clean(column: AnyColumn, value: Any) -> Value:
    """Convert a value to the column's type; sanitise texts to a single line."""
    if value is None:
        return None
    match dtype(column):
        case "string" | "category":
            return plain(str(value), TEXT_LIMIT)
        case "Int64":
            return whole if abs(whole := int(value)) <= MAX_INTEGER else None
        case "float64":
            return float(value)
        case "boolean":
            return bool(value)
    assert isinstance(value, datetime)
    return value


def _series(column: AnyColumn, values: list[Value], zone: tzinfo | None) -> pd.Series:
    import pandas as pd

    if column.kind is Kind.STATE:
        return pd.Series(pd.Categorical(values, categories=list(map(str, column.words))))
    if column.kind is Kind.TIME and zone is not None:
        moments = [_utc(value, zone) if isinstance(value, datetime) else None for value in values]
        return pd.Series(moments, dtype="datetime64[us, UTC]").dt.tz_convert(zone)
    return pd.Series(values, dtype=dtype(column))


def _utc(when: datetime, zone: tzinfo) -> datetime | None:
    """Convert to UTC with ``datetime``, which resolves ambiguous times by ``fold``."""
    try:
        return (when if when.tzinfo else when.replace(tzinfo=zone)).astimezone(UTC)
    except OverflowError:
        return None
