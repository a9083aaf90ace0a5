"""Faults of a pool: DAGMan or a daemon killed, the schedd stopped, the whole pool restarted.

Only for a pool of the tests, since all its users are affected. A fault is over when its context
ends, or when its function returns.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pools import Pool, until

RESTART_SECONDS = 120.0
"""condor_master starts a daemon that died anew after 10 s, and after twice as long each time
that it dies soon again."""


def processes(pool: Pool, *words: str) -> list[int]:
    """The processes of the pool with all these words in their command line."""
    assert pool.script is not None
    found = []
    for process in pool.script.members():
        try:
            line = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if all(f" {word} " in f" {line}" for word in words):
            found.append(process)
    return sorted(found)


def kill(pool: Pool, *words: str) -> None:
    """Kill the one process with these words in its command line."""
    (process,) = until(lambda: processes(pool, *words), f"{' '.join(words)} runs")
    os.kill(process, signal.SIGKILL)


def killed(pool: Pool, *words: str) -> None:
    """Kill a process, and wait until the master (or the schedd) has started another one."""
    (before,) = until(lambda: processes(pool, *words), f"{' '.join(words)} runs")
    os.kill(before, signal.SIGKILL)
    until(
        lambda: set(processes(pool, *words)) - {before},
        f"{' '.join(words)} runs again",
        RESTART_SECONDS,
    )


def kill_dagman(pool: Pool, cluster: int) -> None:
    """``kill -9``; the schedd starts it again, and it recovers from its log."""
    killed(pool, f"condor_scheduniv_exec.{cluster}.0")


def administer(pool: Pool, *command: str) -> None:
    """Run a command as root of the pool's machine."""
    argv = ["chroot", str(pool.script.ROOT), *command]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)


def answers(pool: Pool) -> bool:
    """Whether the schedd answers a question."""
    return pool.run(["condor_q", "-totals"], expect=None).returncode == 0


@contextmanager
def without(pool: Pool, daemon: str, fast: bool = True) -> Iterator[None]:
    """Stop the daemon (``schedd``, ``collector``, …) within the context. ``fast`` False: it shuts
    down as for maintenance, which first ends its jobs."""
    how = "-fast" if fast else "-graceful"
    administer(pool, "condor_off", how, "-daemon", daemon)
    try:
        until(
            lambda: not processes(pool, f"condor_{daemon}"), f"the {daemon} ends", RESTART_SECONDS
        )
        yield
    finally:
        administer(pool, "condor_on", "-daemon", daemon)
        until(
            lambda: processes(pool, f"condor_{daemon}"), f"the {daemon} is there", RESTART_SECONDS
        )
        until(lambda: answers(pool), "the schedd answers", RESTART_SECONDS)


def restart(pool: Pool) -> None:
    """Restart the whole pool, as a reboot does; return when all its sites are back."""
    pool.script.stop()
    pool.script.up()
