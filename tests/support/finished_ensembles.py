"""A written ensemble that has run in part: the exact files of DAGMan and the jobs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.support.event_logs import Log


def ran(
    directory: Path, done: Iterable[str] = (), removed: Iterable[str] = (), rescue: bool = True
) -> None:
    """Write jobs of these nodes to the log, and the rescue file that DAGMan writes when it was
    removed or a node failed."""
    done, removed = list(done), list(removed)
    name, log = "ensemble", Log()
    for cluster, node in enumerate([*done, *removed], start=101):
        log.submit(cluster, node).execute(cluster)
        if node in done:
            log.terminate(cluster)
        else:
            log.remove(cluster)
    (directory / f"{name}.log").write_bytes(log.data)
    (directory / f"{name}.dag.condor.sub").write_text("# Filename: the DAGMan's own job\n")
    (directory / f"{name}.dag.dagman.out").write_text("")
    if rescue:
        lines = [
            "# Rescue DAG file, created after running",
            f"#   the {name}.dag DAG file",
            "# Created 5/4/2026 23:05:00 UTC",
            "# Rescue DAG version: 2.0.1 (partial)",
            "#",
            f"# Total number of Nodes: {len(done) + len(removed)}",
            "",
            *(f"DONE {node}" for node in done),
        ]
        (directory / f"{name}.dag.rescue001").write_text("\n".join(lines) + "\n")


def running(directory: Path, name: str = "ensemble") -> None:
    """Write the lock file of a DAGMan."""
    (directory / f"{name}.dag.lock").write_text("12345\n")
    (directory / f"{name}.dag.dagman.out").write_text("")


def listing(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and its mtime."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.iterdir()
        if path.is_file()
    }
