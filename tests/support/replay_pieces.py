"""Cut a recorded dagdir into the pieces that a replay writes, by the times in its files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from metlmon.cli.commands.demo import Captions, read_story
from metlmon.dagman.reports import read_rescue
from metlmon.eventlog.events import Position
from metlmon.eventlog.reader import looks_like_event_log, parse
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.replay import Replay, ReplayPiece
from metlmon.model.job_events import LoggedJob

OUTPUT_STEPS: Final = 40
"""Pieces in which a job's output is written over its execution, as a progress line would be."""

_EPOCH: Final = re.compile(r"^--(?:stop_after_epoch|epoch)\n(\d+)$", re.MULTILINE)
"""The last epoch of a job in a training's ``args.txt``."""

_OUT_STAMP: Final = re.compile(rb"^(\d\d/\d\d/\d\d \d\d:\d\d:\d\d) ", re.MULTILINE)


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


def extract_story(directory: Path) -> tuple[Path, Captions]:
    """Write the demo's ensemble into ``directory``; return its dagdir, and its events by time."""
    pieces, captions = read_story()
    Replay(pieces, directory / "ensemble", 1.0).write_until(pieces[-1].time)
    return directory / "ensemble", captions


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
    builder = reader.snapshot_builder()
    for run in builder.status().runs:
        view = builder.run_view(run.key)
        for epoch in view.epochs if view is not None and run.uuid else ():
            job_views = (builder.job_view(*job) for job in epoch.jobs)
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
    builder = reader.snapshot_builder()
    spans: dict[str, tuple[datetime, datetime]] = {}
    for job in jobs:
        executions = job.history().executions
        view = builder.job_view(*job.id)
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
