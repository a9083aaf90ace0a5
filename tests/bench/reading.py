"""One measurement of reading, in a process of its own: prints it as JSON.

    python tests/bench/reading.py WHAT DIR [--check]

On one core. ``seconds`` are elapsed and ``cpu`` this process's work (user and system): imports
are in neither. ``peak`` is the greatest resident size in MB (VmHWM), imports in it; ``bytes``
those of the logs that were read.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

BLOCK: Final = 1 << 20
SEPARATOR: Final = b"\n...\n"

PICTURES: Final = 7
ENOUGH_SECONDS: Final = 10.0
"""So many pictures are drawn of each kind, fewer when they take longer than this together; the
median counts."""

PARTS: Final = ("opening", "reading", "first picture")
"""Of the way to the whole state: the DAG files; the logs; the sums."""

ENDINGS: Final = ("metl.log", "nodes.log", "dagman.log")


def logs(directory: Path) -> list[Path]:
    """The event logs of a dagdir, as metlmon reads them."""
    return sorted(path for path in directory.iterdir() if path.name.endswith(ENDINGS))


def timed(work: Callable[[], Any]) -> dict[str, float]:
    begun, worked = perf_counter(), process_time()
    work()
    return {"seconds": perf_counter() - begun, "cpu": process_time() - worked}


def peak() -> float:
    """The greatest resident size of this process so far, MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return float("nan")


def blocks(path: Path, size: int = BLOCK) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while data := file.read(size):
            yield data


def each_log(directory: Path, work: Callable[[Path], Any]) -> dict[str, float]:
    """The time of ``work`` on all logs of a dagdir."""
    return timed(lambda: [work(path) for path in logs(directory)])


def plain(directory: Path) -> dict[str, Any]:
    """Read the bytes and discard them."""
    return each_log(directory, lambda path: deque(blocks(path), maxlen=0))


def count(directory: Path) -> dict[str, Any]:
    """Read the bytes and count their separators."""
    return each_log(directory, lambda path: sum(data.count(SEPARATOR) for data in blocks(path)))


def htcondor(directory: Path) -> dict[str, Any]:
    """HTCondor's own reader: every event is made, and none is used."""
    # Ignore the configuration of this machine's pool.
    os.environ["CONDOR_CONFIG"] = os.devnull
    try:
        import htcondor2
    except ImportError:
        return {"missing": "HTCondor's bindings are not installed"}
    log = htcondor2.JobEventLog
    return each_log(directory, lambda path: deque(log(str(path)).events(stop_after=0), maxlen=0))


def parse(directory: Path) -> dict[str, Any]:
    """All events with all their details, not kept."""
    from metlmon.eventlog.reader import parse

    return _parsed(directory, parse)


def skim(directory: Path) -> dict[str, Any]:
    """The fast parser: 006 added up."""
    from metlmon.eventlog.reader import parse_fast

    return _parsed(directory, parse_fast)


def _parsed(directory: Path, parser: Callable[[bytes, Any], Any]) -> dict[str, Any]:
    from metlmon.eventlog.events import Position
    from metlmon.live.follower import CHUNK

    def work(path: Path) -> None:
        at, rest = Position(), b""
        for data in blocks(path, CHUNK):
            rest += data
            after = parser(rest, at).after
            rest, at = rest[after.offset - at.offset :], after

    return each_log(directory, work)


def _reader(directory: Path, **more: Any) -> Any:
    from metlmon.config.loader import load_settings
    from metlmon.live.dagdir_reader import DagdirReader

    return DagdirReader(directory, load_settings(directory), **more)


def state(directory: Path) -> dict[str, Any]:
    """From bytes to the whole state, with one snapshot of it."""
    import metlmon.live.dagdir_reader  # noqa: F401 - importing is not what is measured

    made: list[Any] = []
    reached: list[float] = []

    def work() -> None:
        reader = _reader(directory)
        reader.open()
        reached.append(process_time())
        reader.read_all()
        reached.append(process_time())
        reader.snapshot_builder().status()
        made.append(reader)
        reached.append(process_time())

    begun = process_time()
    found: dict[str, Any] = timed(work)
    found["peak"] = peak()
    steps = zip(PARTS, reached, [begun, *reached], strict=False)
    found["parts"] = {part: until - since for part, until, since in steps}
    (found["differences"], found["figures"]) = _differences(directory, made[0])
    return found


def _differences(directory: Path, reader: Any) -> tuple[list[str], int]:
    """The totals that differ from the generator's truth, if there is one; of how many."""
    truth_file = directory / "truth.json"
    if not truth_file.exists():
        return [], 0
    from tests.bench import totals

    truth = json.loads(truth_file.read_text())
    if "--check" in sys.argv:
        true = (totals.true_of_status(truth), totals.true_of_jobs(truth))
        return totals.differences(reader, truth), sum(map(_figures, true))
    true = totals.true_of_status(truth)
    return totals.differing("status", totals.of_status(reader.snapshot_builder()), true), _figures(
        true
    )


def _figures(true: Any) -> int:
    return sum(map(_figures, true.values())) if isinstance(true, dict) else 1


def pictures(directory: Path) -> dict[str, Any]:
    """Snapshots of an ensemble that has been read: one when only time has changed, and one after an
    event of a running job; both with the cost of processing it."""
    now = datetime(1970, 1, 1)
    reader = _reader(directory, live=True, local_now=lambda: now)
    reader.open()
    reader.read_all()
    now = reader.ensemble.newest + timedelta(seconds=1)
    first = timed(lambda: reader.snapshot_builder().status())
    passed, changed = [], []
    begun = process_time()
    while len(passed) < PICTURES and process_time() - begun < ENOUGH_SECONDS:
        now += timedelta(seconds=1)
        passed.append(timed(lambda: reader.snapshot_builder().status()))
        now += timedelta(seconds=1)
        batch = _change(reader, now)
        if batch is not None:
            changed.append(timed(lambda batch=batch: _taken(reader, batch)))
    return {
        "first": first["cpu"],
        "time passed": median(each["cpu"] for each in passed),
        "one change": median(each["cpu"] for each in changed) if changed else None,
    }


def _taken(reader: Any, batch: Any) -> None:
    reader.ensemble.apply(batch)
    reader.snapshot_builder().status()


def _change(reader: Any, now: datetime) -> Any:
    """Suspend or resume a running job's execution; None without a running job."""
    from metlmon.eventlog.reader import parse
    from metlmon.model.model_state import Batch, LogRole
    from metlmon.model.states import State

    words = {
        State.RUNNING: "010 ({}.000.000) {} Job was suspended.\n\tNumber of processes actually "
        "suspended: 9\n...\n",
        State.SUSPENDED: "011 ({}.000.000) {} Job was unsuspended.\n...\n",
    }
    for job in reversed(list(reader.ensemble.jobs.values())):
        text = words.get(job.history().state)
        if text is not None:
            result = text.format(job.cluster, now.isoformat(" ", "seconds"))
            return Batch("metl.log", LogRole.USER, parse(result.encode()).events)
    return None


MEASUREMENTS: Final = (plain, count, htcondor, parse, skim, state, pictures)
WHAT: Final = {each.__name__: each for each in MEASUREMENTS}


def main() -> None:
    what, directory = sys.argv[1], Path(sys.argv[2])
    with suppress(OSError, AttributeError):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    found = WHAT[what](directory)
    found.setdefault("peak", peak())
    found["bytes"] = sum(path.stat().st_size for path in logs(directory))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
