"""What does a dagdir of another machine cost on the line, and how long does it take?

    python tests/bench/remote.py [MEGABYTES]      # of one event log; default 20

An sshd on the loopback interface, behind a line that counts bytes. Printed are bytes to and from
the server for the login, the first opening, a minute in which nothing happens, and a job that is
logged; the same opening over a line that delays each direction by 50 ms; and how long after a cut
line is mended the picture is current again. The log is generated: jobs that are submitted, run and
end, with an event for the image size every five minutes. No test asserts these.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import Snapshot
from metlmon.live.session import Session
from metlmon.remote.machine import MACHINES, connect_to
from tests.support.event_logs import Log
from tests.support.ssh_server import Line, SshServer

DELAY = 0.05
IDLE_SECONDS = 60.0


def fill(directory: Path, megabytes: float) -> int:
    """Write an ensemble with a log of this size; returns the bytes of all its files."""
    log, nodes = Log(), []
    size = cluster = 0
    with (directory / "metl.log").open("wb") as file:
        while size < megabytes * 1e6:
            run, epoch = cluster % 30, cluster // 30
            node = f"run{run}-train_epoch{epoch}"
            nodes.append(
                f'JOB {node} t\nVARS {node} run_uuid="uuid-{run:04d}" epoch="{epoch + 1}"\n'
            )
            log.events.clear()
            log.submit(1000 + cluster, node).execute(1000 + cluster, 1)
            for number in range(60):
                log.image(1000 + cluster, 20_000 + 37 * number * (cluster % 11 + 1))
            log.terminate(1000 + cluster)
            size += file.write(log.data)
            cluster += 1
    description = "SUBMIT-DESCRIPTION t {\n executable = x\n log = metl.log\n}\n"
    (directory / "ens.dag").write_text(description + "".join(nodes))
    return sum(path.stat().st_size for path in directory.iterdir())


class Opened:
    """A session on a dagdir over a line."""

    def __init__(self, host: str, directory: Path, line: Line) -> None:
        self.line = line
        self.snapshots: SimpleQueue[Snapshot] = SimpleQueue()
        self.begun = time.monotonic()
        path = connect_to(f"{host}:{directory}")
        self.login = (line.sent, line.received, time.monotonic() - self.begun)
        reader = DagdirReader(Path(path))
        reader.open()
        self.session = Session(reader)
        self.session.start(self.snapshots.put)
        self.until_read()
        self.seconds = time.monotonic() - self.begun

    def until_read(self) -> Snapshot:
        while True:
            snapshot = self.snapshots.get(timeout=300)
            if snapshot.error is None and snapshot.progress.fraction == 1:
                return snapshot

    def bytes_until(self, seconds: float) -> tuple[int, int]:
        """Bytes sent and received in some seconds."""
        before = self.line.sent, self.line.received
        time.sleep(seconds)
        return self.line.sent - before[0], self.line.received - before[1]


def main() -> None:
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    with tempfile.TemporaryDirectory() as name:
        directory, server_directory = Path(name, "dagdir"), Path(name, "server")
        directory.mkdir()
        server_directory.mkdir()
        total = fill(directory, megabytes)
        print(f"{total:,} bytes of files")
        with SshServer(server_directory) as server, Line(server.port) as line:
            os.environ["PATH"] = server.path_variable()
            os.environ["XDG_CACHE_HOME"] = name
            opened = Opened(server.add_host("near", port=line.port), directory, line)
            sent, received, login = opened.login
            print(f"login: {sent:,} bytes sent, {received:,} received, {login:.1f} s")
            sent, received = line.sent - sent, line.received - received
            print(
                f"first opening: {sent:,} sent, {received:,} received "
                f"({received / total:.1%}), {opened.seconds - login:.1f} s"
            )
            print(f"of files received: {MACHINES['near'].file_bytes:,}")
            opened.bytes_until(3.0)
            sent, received = opened.bytes_until(IDLE_SECONDS)
            print(f"a minute in which nothing happens: {sent:,} sent, {received:,} received")
            log = Log().submit(7, "run0-train_epoch0").execute(7, 1)
            with (directory / "metl.log").open("ab") as file:
                file.write(log.data)
            sent, received = opened.bytes_until(3.0)
            print(f"a job of {len(log.data):,} bytes: {sent:,} sent, {received:,} received in 3 s")
            cut(opened, line)
            opened.session.stop()
            with Line(server.port, DELAY) as far:
                over = Opened(server.add_host("far", port=far.port), directory, far)
                login = over.login[2]
                print(
                    f"over {2 * DELAY * 1000:.0f} ms there and back: login {login:.1f} s, "
                    f"first opening {over.seconds - login:.1f} s"
                )
                over.session.stop()


def cut(opened: Opened, line: Line) -> None:
    """Cut the line for some seconds, three times."""
    for seconds in (1.0, 5.0, 20.0):
        before = MACHINES["near"].file_bytes
        line.cut()
        begun = time.monotonic()
        while not (opened.snapshots.get(timeout=60).error or "").startswith("near: connection"):
            pass
        noticed = time.monotonic() - begun
        time.sleep(seconds)
        while not opened.snapshots.empty():
            opened.snapshots.get()
        line.mend()
        begun = time.monotonic()
        opened.until_read()
        again = MACHINES["near"].file_bytes - before
        print(
            f"cut for {seconds:.0f} s: shown after {noticed:.1f} s, current again "
            f"{time.monotonic() - begun:.1f} s after it was mended, {again} bytes of files again"
        )


if __name__ == "__main__":
    main()
