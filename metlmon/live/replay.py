"""Replays a recorded dagdir as if it happened now.

Appends the recorded data again to a copy in an empty directory, at the original pace or faster.
The reader follows the copy as it follows any live dagdir.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from metlmon.dagman.reports import read_rescue
from metlmon.errors import describe_error
from metlmon.eventlog.events import Position
from metlmon.eventlog.reader import looks_like_event_log, parse
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Snapshot
from metlmon.live.session import Session
from metlmon.model.job_events import LoggedJob

TICK_SECONDS: Final = 0.05
"""Interval of writing the data that has become due, too short to be visible."""

OUTPUT_STEPS: Final = 40
"""Pieces in which a job's output is written over its execution, as a progress line would be."""

_EPOCH: Final = re.compile(r"^--(?:stop_after_epoch|epoch)\n(\d+)$", re.MULTILINE)
"""The last epoch of a job in a training's ``args.txt``."""

_OUT_STAMP: Final = re.compile(rb"^(\d\d/\d\d/\d\d \d\d:\d\d:\d\d) ", re.MULTILINE)


class ReplayPiece(Struct, frozen=True, order=True):
    """Bytes appended to a file at one time (the recording's local time)."""

    time: datetime
    order: int
    file: str
    data: bytes


def replay_pieces(recording: Path) -> list[ReplayPiece]:
    """Return all pieces of a recorded dagdir in the order they were written.

    Event logs are split into events, ``.dagman.out`` and the jobstate log into lines (the latter
    with the UTC offset found in the others), job output evenly over the job's last execution. A
    rescue file appears at its creation time, a training's ``version_<k>`` at the end of the run's
    k-th start. DAG and submit files exist from the beginning; files that DAGMan rewrites appear
    at the end.
    """
    reader = DagdirReader(recording)
    reader.open()
    reader.read_all()
    ensemble = reader.ensemble
    first_time = min(b.first for b in ensemble.log_stats.values() if b.first is not None)
    last_time = ensemble.newest or first_time
    outputs = _outputs(ensemble.jobs.values(), reader)
    training_log_times = _training_log_times(recording, reader)
    jobstate = {dag.workflow.jobstate_log for dag in ensemble.dags.values()}
    cuts: list[tuple[datetime, str, bytes]] = []
    for path in sorted(p for p in recording.rglob("*") if p.is_file()):
        data = path.read_bytes()
        name = path.relative_to(recording).as_posix()
        if path.parent != recording:
            # Other files in subdirectories have no known time.
            cuts.append(
                (training_log_times.get(path.parent.relative_to(recording), last_time), name, data)
            )
        elif looks_like_event_log(data[:4096]) and name.endswith(".log"):
            cuts += [(when, name, part) for when, part in _events(data)]
        elif name.endswith(".dagman.out"):
            cuts += [(when, name, part) for when, part in _lines(data, first_time)]
        elif name in jobstate:
            cuts += [(w, name, p) for w, p in _jobstate(data, ensemble.clock.to_local, first_time)]
        elif name in outputs:
            cuts += [(when, name, part) for when, part in _spread_over(data, *outputs[name])]
        elif re.search(r"\.rescue\d+$", name):
            cuts.append((_created(path, data, ensemble.clock.to_local) or last_time, name, data))
        elif re.search(r"\.(metrics|status)$", name):
            cuts.append((last_time, name, data))
        else:
            cuts.append((first_time, name, data))
    # Times step back where two writers share a log; keep the order of the file.
    latest: dict[str, datetime] = {}
    pieces = []
    for order, (when, name, part) in enumerate(cuts):
        latest[name] = max(when, latest.get(name, when))
        pieces.append(ReplayPiece(latest[name], order, name, part))
    return sorted(pieces)


def _events(data: bytes) -> Iterator[tuple[datetime, bytes]]:
    position = Position()
    while True:
        parsed = parse(data[position.offset :], position, limit=1)
        if parsed.after.offset == position.offset:
            return
        if parsed.events:
            when = parsed.events[-1].time.replace(tzinfo=None)
            yield when, data[position.offset : parsed.after.offset]
        position = parsed.after


def _lines(data: bytes, first_time: datetime) -> Iterator[tuple[datetime, bytes]]:
    when = first_time
    for line in data.splitlines(keepends=True):
        stamp = _OUT_STAMP.match(line)
        if stamp:
            when = datetime.strptime(stamp[1].decode(), "%m/%d/%y %H:%M:%S")
        yield when, line


def _jobstate(
    data: bytes, local: Callable[[float], datetime | None], first_time: datetime
) -> Iterator[tuple[datetime, bytes]]:
    for line in data.splitlines(keepends=True):
        first = line.split(b" ", 1)[0]
        when = local(float(first)) if first.isdigit() else None
        yield when or first_time, line


def _created(path: Path, data: bytes, local: Callable[[float], datetime | None]) -> datetime | None:
    created = read_rescue(path, data)[0].created
    return local(created.timestamp()) if created is not None else None


def _training_log_times(recording: Path, reader: DagdirReader) -> dict[Path, datetime]:
    """Return when each training log directory was transferred back.

    At the ends of the executions of its epoch; the last directory belongs to the last end, since
    starts without a directory came before it.
    """
    jobs: dict[tuple[str, str], list[datetime]] = {}
    painter = reader.snapshot_builder()
    for run in painter.status().runs:
        view = painter.run_view(run.key)
        for epoch in view.epochs if view is not None and run.uuid else ():
            job_views = (painter.job_view(*job) for job in epoch.jobs)
            rows = [
                job_view.job
                for job_view in job_views
                if job_view is not None and job_view.job.executions
            ]
            ends = [row.executions[-1].end for row in rows for _ in row.executions]
            key = (run.uuid or "", str(epoch.epoch_var))
            jobs[key] = sorted(end for end in ends if end is not None)
    versions: dict[tuple[str, str], list[Path]] = {}
    argument_files = recording.glob("*/training_logs/*/version_*/args.txt")
    for path in sorted(argument_files, key=lambda path: (len(path.parent.name), path.parent.name)):
        match = _EPOCH.search(path.read_text(errors="replace"))
        if match is not None:
            versions.setdefault((path.parent.parent.name, match[1]), []).append(path.parent)
    return {
        path.relative_to(recording): end
        for key, paths in versions.items()
        for path, end in zip(reversed(paths), reversed(jobs.get(key, [])), strict=False)
    }


def _outputs(
    jobs: Iterable[LoggedJob], reader: DagdirReader
) -> dict[str, tuple[datetime, datetime]]:
    """Return the time span of each job's output and error files: its last execution."""
    painter = reader.snapshot_builder()
    spans: dict[str, tuple[datetime, datetime]] = {}
    for job in jobs:
        executions = job.history().executions
        view = painter.job_view(*job.id)
        if not executions or view is None or executions[-1].end is None:
            continue
        for name in (view.output, view.error):
            if name:
                spans[Path(name).name] = (executions[-1].start, executions[-1].end)
    return spans


def _spread_over(data: bytes, start: datetime, end: datetime) -> Iterator[tuple[datetime, bytes]]:
    yield start, b""
    size = max(1, -(-len(data) // OUTPUT_STEPS))
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    for i, part in enumerate(parts, start=1):
        yield start + (end - start) * i / len(parts), part


class Replay:
    """Writes the pieces of a recording into ``directory``, ``speed`` times as fast as it happened.

    Nothing else may use the directory. The replayed time is :meth:`now`.
    """

    def __init__(self, pieces: Sequence[ReplayPiece], directory: Path, speed: float) -> None:
        self.pieces = pieces
        self.speed = speed
        self._directory = directory
        self._stop = threading.Event()
        self._pieces_written = 0
        self.error: str | None = None
        """The error that stopped the replay before its end."""
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="metlmon-replay", daemon=True)
        self.begin = self.pieces[0].time
        self.end = self.pieces[-1].time

    def now(self) -> datetime:
        """Return the current time of the replay."""
        passed = (time.monotonic() - self._started) * self.speed
        return min(self.end, self.begin + timedelta(seconds=passed)).replace(microsecond=0)

    @property
    def ended(self) -> bool:
        """Whether all has been written, or an error stopped the replay."""
        return self.error is not None or self._pieces_written == len(self.pieces)

    def start(self) -> None:
        """Write the initial files, then start the thread."""
        self.write_until(self.begin)
        self._started = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def write_until(self, moment: datetime) -> bool:
        """Write all data due at ``moment``; return False if none is left."""
        while self._pieces_written < len(self.pieces):
            piece = self.pieces[self._pieces_written]
            if piece.time > moment:
                return True
            path = self._directory / piece.file
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "ab") as file:
                file.write(piece.data)
            self._pieces_written += 1
        return False

    def _run(self) -> None:
        try:
            self._write_in_steps()
        except Exception as error:
            self.error = describe_error("the replay stopped", error)

    def _write_in_steps(self) -> None:
        more = True
        while more and not self._stop.wait(TICK_SECONDS):
            passed = (time.monotonic() - self._started) * self.speed
            more = self.write_until(self.begin + timedelta(seconds=passed))


# --- the demo ----------------------------------------------------------------------------------

CHECK_SECONDS: Final = 0.2
PAUSE_SECONDS: Final = 15.0
"""How long the end stays before the replay starts again."""


class LoopingFeed:
    """A :class:`metlmon.live.feed.Feed` of a replay that starts again some time after its end.

    ``replay`` writes into ``directory``; each further one into a new directory beside it.
    ``pause``: seconds at the end of each; None: it stays there. All but ``start`` and ``stop``
    is that of the current replay's session. ``rounds``: the replays so far.
    """

    def __init__(self, replay: Replay, directory: Path, pause: float | None) -> None:
        self.replay = replay
        self._directory = directory
        self._pause = pause
        self.rounds = 1
        self._stopped = threading.Event()
        self._notify: Callable[[Snapshot], None] = lambda snapshot: None
        self._thread = threading.Thread(target=self._repeat, name="metlmon-demo", daemon=True)
        self._session = self._open(directory)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def start(self, notify: Callable[[Snapshot], None]) -> None:
        """Start the session and, unless the end is to stay, the thread that starts over."""
        self._notify = notify
        self._session.start(notify)
        if self._pause is not None:
            self._thread.start()

    def stop(self) -> None:
        """Stop replaying and reading; returns when the threads have ended."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._session.stop()
        self.replay.stop()

    def _open(self, directory: Path) -> Session:
        directory.mkdir()
        self.replay.start()
        reader = DagdirReader(directory, local_now=self.replay.now)
        reader.open()
        return Session(reader)

    def _repeat(self) -> None:
        while not self._stopped.wait(CHECK_SECONDS):
            if self.replay.ended and not self._stopped.wait(self._pause):
                self._begin_again()

    def _begin_again(self) -> None:
        self.rounds += 1
        directory = self._directory.with_name(f"{self._directory.name}-{self.rounds}")
        previous = self._session
        self.replay = Replay(self.replay.pieces, directory, self.replay.speed)
        self._session = self._open(directory)
        previous.stop()
        self._session.start(self._notify)
