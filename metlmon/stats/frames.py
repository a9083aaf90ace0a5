"""An ensemble as pandas frames, for notebooks and exports.

``metlmon.load(dagdir)`` returns :class:`Frames`. :mod:`metlmon.stats.frame_columns` defines the
columns; a row is one entry of the ledger, so that sums over a frame equal those of screens, reports
and JSON. pandas is imported on first access to a frame.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from metlmon.config.loader import load_settings, time_zone
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.remote.paths import as_typed
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.snapshot.ledger import Ledger
from metlmon.snapshot.types import Status
from metlmon.stats.frame_columns import (
    COUNT,
    NUMBER,
    TABLES,
    TEXT,
    TIME,
    TRUTH,
    WORD,
    EventRecord,
    FrameColumn,
    FrameTable,
)
from metlmon.stats.windows import ALL, TimeWindow, clip_ledger, window_text
from metlmon.text.formatting import count, plain
from metlmon.text.time_arguments import parse_time_argument

if TYPE_CHECKING:
    import pandas as pd

TEXT_LIMIT: Final = 8000
"""Maximum characters of a text: reasons can be megabytes long, spreadsheet cells hold 32767."""

MAX_INTEGER: Final = 2**63 - 1
"""Maximum of an integer column; only damaged logs exceed it."""

Value = str | int | float | bool | datetime | None


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
    settings = load_settings(path.parent if path.is_file() else path)
    if tz is not None:
        settings = replace(settings, zone=time_zone(tz))
    moment = parse_time_argument("as_of=", as_of, settings.zone)
    reader = DagdirReader(path, settings, as_of=moment, live=live)
    reader.open()
    reader.read_all()
    return Frames(reader.snapshot_builder())


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
        self._ledger: Ledger | None = None
        self._status: Status | None = None
        self._frames: dict[str, pd.DataFrame] = {}

    # --- frames -------------------------------------------------------------------------

    @property
    def runs(self) -> pd.DataFrame:
        """A row for each run."""
        return self.frame("runs")

    @property
    def epochs(self) -> pd.DataFrame:
        """A row for each training node of a run."""
        return self.frame("epochs")

    @property
    def jobs(self) -> pd.DataFrame:
        """A row for each job."""
        return self.frame("jobs")

    @property
    def executions(self) -> pd.DataFrame:
        """A row for each execution of a job."""
        return self.frame("executions")

    @property
    def transfers(self) -> pd.DataFrame:
        """A row for each transfer of a job's files."""
        return self.frame("transfers")

    @property
    def events(self) -> pd.DataFrame:
        """A row for each event of a job but 006, which only ``jobs.memory_mb`` shows."""
        return self.frame("events")

    @property
    def columns(self) -> pd.DataFrame:
        """The columns of all frames: frame, column, dtype, unit, meaning."""
        import pandas as pd

        rows = [
            (table.name, column.name, column.dtype, column.unit, column.meaning)
            for table in TABLES.values()
            for column in table.columns
        ]
        return pd.DataFrame(rows, columns=["frame", "column", "dtype", "unit", "meaning"])

    def frame(self, name: str) -> pd.DataFrame:
        """The frame of this name. Raises InputError if there is none."""
        if name not in self._frames:
            self._frames[name] = self._build(_table(name))
        return self._frames[name]

    def _build(self, table: FrameTable) -> pd.DataFrame:
        import pandas as pd

        values = self.values(table.name)
        series = [
            _series(column, values[column.name], self.zone).rename(column.name)
            for column in table.columns
        ]
        return pd.concat(series, axis=1)

    # --- time window ---------------------------------------------------------------------

    def windowed(
        self, since: str | datetime | None = None, until: str | datetime | None = None
    ) -> Frames:
        """The frames of a time window from ``since`` to ``until`` (exclusive).

        :func:`metlmon.stats.windows.clipped` defines its content; the windows of a partition sum
        to the total. ``status`` remains that of the whole ensemble. Raises InputError.
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

    def _events(self) -> Iterator[EventRecord]:
        since, until = self._window.since, self._window.until
        for job in self._builder.real_jobs():
            for line in self._builder.event_lines(job):
                if (since is None or since <= line.time) and (until is None or line.time < until):
                    yield EventRecord(
                        job.id, line.time, line.number, line.name, line.text, line.damaged
                    )

    def local_time_text(self, when: datetime) -> str:
        """The time in ISO 8601, with the UTC offset if the zone is known."""
        return self._builder.clock.with_offset(when).isoformat()

    # --- source --------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """The entries that the frames are built from."""
        if self._ledger is None:
            self._ledger = clip_ledger(self._builder.ledger(), self._window)
        return self._ledger

    @property
    def status(self) -> Status:
        """The snapshot of the whole ensemble, as ``metlmon status`` shows it."""
        if self._status is None:
            self._status = self._builder.status()
        return self._status

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
        lines = [f"metlmon: {plain(as_typed(self.dagdir), 200)}{as_of}{window}"]
        for table in TABLES.values():
            rows = sum(1 for _ in self._entries(table.name))
            lines.append(
                f"  .{table.name:<11}{count(rows, 'row'):>12} of "
                f"{count(len(table.columns), 'column')}; a row is {table.row}"
            )
        lines.append("  .columns says what the columns mean; .status and .ledger have the rest")
        return "\n".join(lines)


def _table(name: str) -> FrameTable:
    if name not in TABLES:
        raise InputError(f"no frame is called {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name]


def _clean(column: FrameColumn, value: object) -> Value:
    """Convert a value to the column's type; sanitise texts to a single line."""
    if value is None:
        return None
    if column.dtype in (TEXT, WORD):
        return plain(str(value), TEXT_LIMIT)
    if column.dtype == COUNT:
        whole = int(value)  # type: ignore[call-overload]
        return whole if abs(whole) <= MAX_INTEGER else None
    if column.dtype == NUMBER:
        return float(value)  # type: ignore[arg-type]
    if column.dtype == TRUTH:
        return bool(value)
    assert isinstance(value, datetime)
    return value


def _series(column: FrameColumn, values: list[Value], zone: tzinfo | None) -> pd.Series:
    import pandas as pd

    if column.dtype == WORD:
        return pd.Series(pd.Categorical(values, categories=list(column.categories)))
    if column.dtype == TIME and zone is not None:
        moments = [_utc(value, zone) if isinstance(value, datetime) else None for value in values]
        return pd.Series(moments, dtype="datetime64[us, UTC]").dt.tz_convert(zone)
    return pd.Series(values, dtype=column.dtype)


def _utc(when: datetime, zone: tzinfo) -> datetime | None:
    """Convert to UTC with ``datetime``, which resolves ambiguous times by ``fold``."""
    try:
        return (when if when.tzinfo else when.replace(tzinfo=zone)).astimezone(UTC)
    except OverflowError:
        return None
