"""A recorded dagdir, replayed as if it happened now.

What was appended to its logs is appended again to a copy in an empty directory, at the
recording's own pace or faster. The reader follows the copy as it follows any dagdir: a
replay and a live view are the same thing.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from metlmon.dagman import read_rescue
from metlmon.error_text import describe_error
from metlmon.eventlog import Position, looks_like_event_log, parse
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.job_events import Job

TICK_SECONDS: Final = 0.05
"""How often the replay writes what has become due: well below what an eye sees as a step."""

OUTPUT_STEPS: Final = 40
"""A job's output is written in so many pieces over its execution: one per two per cent of
progress is what a progress line would show."""

_EPOCH: Final = re.compile(r"^--(?:stop_after_epoch|epoch)\n(\d+)$", re.MULTILINE)
"""What a training's ``args.txt`` says of the epoch that its job ended with."""

_OUT_STAMP: Final = re.compile(rb"^(\d\d/\d\d/\d\d \d\d:\d\d:\d\d) ", re.MULTILINE)


@dataclass(frozen=True, slots=True, order=True)
class ReplayPiece:
    """Bytes that were appended to a file at a moment (the recording's local time)."""

    time: datetime
    order: int
    file: str
    data: bytes


def storyboard(recording: Path) -> list[ReplayPiece]:
    """All pieces of a recorded dagdir in the order they were written.

    Event logs are cut at their events, ``.dagman.out`` at its lines, the jobstate log by the
    offset that the others tell, job output evenly over its job's last execution. A rescue file
    comes when it says that it was made, a training's ``version_<k>`` when the run's k-th start
    had ended. DAG and submit files are there from the beginning; what DAGMan wrote over and
    over comes at its end.
    """
    reader = DagdirReader(recording)
    reader.open()
    reader.read_all()
    ensemble = reader.ensemble
    begun = min(b.first for b in ensemble.books.values() if b.first is not None)
    ended = ensemble.newest or begun
    outputs = _outputs(ensemble.jobs.values(), reader)
    brought = _brought(recording, reader)
    jobstate = {dag.workflow.jobstate_log for dag in ensemble.dags.values()}
    cuts: list[tuple[datetime, str, bytes]] = []
    for path in sorted(p for p in recording.rglob("*") if p.is_file()):
        data = path.read_bytes()
        name = path.relative_to(recording).as_posix()
        if path.parent != recording:
            # What else jobs left in directories of their own carries no time that can be told.
            cuts.append((brought.get(path.parent.relative_to(recording), ended), name, data))
        elif looks_like_event_log(data[:4096]) and name.endswith(".log"):
            cuts += [(when, name, part) for when, part in _events(data)]
        elif name.endswith(".dagman.out"):
            cuts += [(when, name, part) for when, part in _lines(data, begun)]
        elif name in jobstate:
            cuts += [(w, name, p) for w, p in _jobstate(data, ensemble.clock.local, begun)]
        elif name in outputs:
            cuts += [(when, name, part) for when, part in _spread(data, *outputs[name])]
        elif re.search(r"\.rescue\d+$", name):
            cuts.append((_created(path, data, ensemble.clock.local) or ended, name, data))
        elif re.search(r"\.(metrics|status)$", name):
            cuts.append((ended, name, data))
        else:
            cuts.append((begun, name, data))
    # Stamps step back where two wrote one log; what was written later still comes later.
    latest: dict[str, datetime] = {}
    pieces = []
    for order, (when, name, part) in enumerate(cuts):
        latest[name] = max(when, latest.get(name, when))
        pieces.append(ReplayPiece(latest[name], order, name, part))
    return sorted(pieces)


def _events(data: bytes) -> Iterator[tuple[datetime, bytes]]:
    at = Position()
    while True:
        parsed = parse(data[at.offset :], at, limit=1)
        if parsed.after.offset == at.offset:
            return
        if parsed.events:
            when = parsed.events[-1].time.replace(tzinfo=None)
            yield when, data[at.offset : parsed.after.offset]
        at = parsed.after


def _lines(data: bytes, begun: datetime) -> Iterator[tuple[datetime, bytes]]:
    when = begun
    for line in data.splitlines(keepends=True):
        stamp = _OUT_STAMP.match(line)
        if stamp:
            when = datetime.strptime(stamp[1].decode(), "%m/%d/%y %H:%M:%S")
        yield when, line


def _jobstate(
    data: bytes, local: Callable[[float], datetime | None], begun: datetime
) -> Iterator[tuple[datetime, bytes]]:
    for line in data.splitlines(keepends=True):
        first = line.split(b" ", 1)[0]
        when = local(float(first)) if first.isdigit() else None
        yield when or begun, line


def _created(path: Path, data: bytes, local: Callable[[float], datetime | None]) -> datetime | None:
    created = read_rescue(path, data)[0].created
    return local(created.timestamp()) if created is not None else None


def _brought(recording: Path, reader: DagdirReader) -> dict[Path, datetime]:
    """When the directories of training logs came back: with the jobs of their epoch, the last
    directory with the last of them (starts that brought nothing were before it)."""
    jobs: dict[tuple[str, str], list[datetime]] = {}
    painter = reader.painter()
    for run in painter.status().runs:
        view = painter.run_view(run.key)
        for epoch in view.epochs if view is not None and run.uuid else ():
            lives = (painter.job_view(*job) for job in epoch.jobs)
            rows = [life.row for life in lives if life is not None and life.row.executions]
            ends = [row.executions[-1].end for row in rows for _ in row.executions]
            key = (run.uuid or "", str(epoch.epoch_var))
            jobs[key] = sorted(end for end in ends if end is not None)
    versions: dict[tuple[str, str], list[Path]] = {}
    found = recording.glob("*/training_logs/*/version_*/args.txt")
    for path in sorted(found, key=lambda path: (len(path.parent.name), path.parent.name)):
        until = _EPOCH.search(path.read_text(errors="replace"))
        if until is not None:
            versions.setdefault((path.parent.parent.name, until[1]), []).append(path.parent)
    return {
        path.relative_to(recording): end
        for key, paths in versions.items()
        for path, end in zip(reversed(paths), reversed(jobs.get(key, [])), strict=False)
    }


def _outputs(jobs: Iterable[Job], reader: DagdirReader) -> dict[str, tuple[datetime, datetime]]:
    """When each job's output and error files were written: over its last execution."""
    painter = reader.painter()
    spans: dict[str, tuple[datetime, datetime]] = {}
    for job in jobs:
        executions = job.life().executions
        view = painter.job_view(*job.id)
        if not executions or view is None or executions[-1].end is None:
            continue
        for name in (view.output, view.error):
            if name:
                spans[Path(name).name] = (executions[-1].start, executions[-1].end)
    return spans


def _spread(data: bytes, start: datetime, end: datetime) -> Iterator[tuple[datetime, bytes]]:
    yield start, b""
    size = max(1, -(-len(data) // OUTPUT_STEPS))
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    for i, part in enumerate(parts, start=1):
        yield start + (end - start) * i / len(parts), part


class Replay:
    """Writes a recording into ``directory`` as its time goes by, ``speed`` times as fast.

    The directory belongs to the replay alone. The time it shows is :meth:`now`.
    """

    def __init__(self, recording: Path, directory: Path, speed: float) -> None:
        self._pieces = storyboard(recording)
        self._directory = directory
        self._speed = speed
        self._stop = threading.Event()
        self._written = 0
        self.failed: str | None = None
        """Why it has stopped before its end."""
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="metlmon-replay", daemon=True)
        self.begin = self._pieces[0].time
        self.end = self._pieces[-1].time

    def set_length(self, seconds: float) -> None:
        """Choose the speed so that the whole story takes ``seconds``."""
        self._speed = max(1.0, (self.end - self.begin).total_seconds() / seconds)

    def now(self) -> datetime:
        """The recording's time that the replay has come to."""
        passed = (time.monotonic() - self._started) * self._speed
        return min(self.end, self.begin + timedelta(seconds=passed)).replace(microsecond=0)

    def start(self) -> None:
        """Write what is there from the beginning, then go on in a thread."""
        self.write_until(self.begin)
        self._started = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def write_until(self, moment: datetime) -> bool:
        """Write all that is due at ``moment``; False when nothing is left to write."""
        while self._written < len(self._pieces):
            piece = self._pieces[self._written]
            if piece.time > moment:
                return True
            path = self._directory / piece.file
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "ab") as file:
                file.write(piece.data)
            self._written += 1
        return False

    def _run(self) -> None:
        try:
            self._go_on()
        except Exception as error:
            self.failed = describe_error("the replay stopped", error)

    def _go_on(self) -> None:
        more = True
        while more and not self._stop.wait(TICK_SECONDS):
            passed = (time.monotonic() - self._started) * self._speed
            more = self.write_until(self.begin + timedelta(seconds=passed))
