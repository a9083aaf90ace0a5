"""The product's files that one event enters, in order: python -m tests.event_path [reader]

A 005 is appended to the log of a small ensemble that the overview shows. Recorded are the thread
that reads and the one that draws, until the run's cell shows the end; then the files of the
thread of statistics, which computes the header's forecast afterwards. With ``reader``: the same
event for :class:`DagdirReader` alone, as commands read. ``metlmon/README.md`` lists the first.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.session import Session
from metlmon.pool.client import FeedAndPool
from screens.app import MetlmonApp
from tests.support.event_logs import Log

ROOT: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = (str(ROOT / "metlmon"), str(ROOT / "screens"))
STATISTICS: Final = "metlmon-stats"

DAG: Final = """\
JOB run0-train_epoch0 a.sub
VARS run0-train_epoch0 run_uuid="81ff53dd-0000-0000-0000-000000000000"
JOB run0-train_epoch1 a.sub
VARS run0-train_epoch1 run_uuid="81ff53dd-0000-0000-0000-000000000000"
PARENT run0-train_epoch0 CHILD run0-train_epoch1
"""


class Recorder:
    """The files entered while it is on, by thread name, in order."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, None]] = {}
        self._on = False
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)

    def _enter(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if self._on and event == "call" and name.startswith(PRODUCT):
            thread = STATISTICS if threading.current_thread().name == STATISTICS else ""
            self.files.setdefault(thread, {})[str(Path(name).relative_to(ROOT))] = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._on = True
        try:
            yield
        finally:
            self._on = False


def make_ensemble(folder: Path) -> Path:
    """Write an ensemble with one running epoch; return its log."""
    folder.mkdir()
    (folder / "e.dag").write_text(DAG)
    (folder / "a.sub").write_text("executable=a\nlog=metl.log\nqueue\n")
    log = Log().submit(77, "run0-train_epoch0", at="10:00:00").execute(77, at="10:05:00")
    (folder / "metl.log").write_bytes(log.data)
    return folder / "metl.log"


def append_end(log: Path) -> None:
    with log.open("ab") as file:
        file.write(Log().terminate(77, 0, at="10:06:00").data)


async def record_screen(recorder: Recorder, log: Path) -> None:
    """Record until the overview shows the end of the epoch, then until statistics are idle."""
    reader = DagdirReader(log.parent, live=True)
    reader.open()
    app = MetlmonApp(FeedAndPool(Session(reader)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(2.0)
        app.stats.wait_until_idle(5.0)
        await pilot.pause(1.0)
        with recorder.recording():
            append_end(log)
            for _ in range(2000):
                await asyncio.sleep(0.002)
                if _shown(app):
                    break
            else:
                raise SystemExit("the end of the epoch is not shown")
        screen = dict(recorder.files.get("", {}))
        with recorder.recording():
            await pilot.pause(1.5)
        recorder.files[""] = screen
        app.exit()


def _shown(app: MetlmonApp) -> bool:
    strips = app.screen._compositor.render_strips()
    return any("1/2" in "".join(segment.text for segment in strip) for strip in strips)


def record_reader(recorder: Recorder, log: Path) -> None:
    """Record one check of the reader alone, with the snapshot after it."""
    reader = DagdirReader(log.parent, live=True)
    reader.open()
    reader.read_all()
    reader.snapshot_builder().status()
    append_end(log)
    with recorder.recording():
        reader.check()
        reader.read_all()
        reader.snapshot_builder().status()


def main() -> None:
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        log = make_ensemble(Path(folder, "e"))
        if sys.argv[1:] == ["reader"]:
            record_reader(recorder, log)
            print_files("the reader alone", recorder.files.get("", {}))
        else:
            asyncio.run(record_screen(recorder, log))
            print_files("from the log to the cell", recorder.files.get("", {}))
            print_files("statistics, afterwards", recorder.files.get(STATISTICS, {}))


def print_files(title: str, files: dict[str, None]) -> None:
    print(f"{title}: {len(files)} files")
    for file in files:
        print(f"   {file}")


if __name__ == "__main__":
    main()
