"""A written ensemble of which some has run: what DAGMan and the jobs leave, to the byte."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_JOB = """\
000 ({id:03}.000.000) 2026-01-02 10:00:{second:02} Job submitted from host: <10.0.0.1:9618>
    DAG Node: {node}
...
001 ({id:03}.000.000) 2026-01-02 10:01:{second:02} Job executing on host: <10.0.0.2:9618>
...
"""
_DONE = """\
005 ({id:03}.000.000) 2026-01-02 10:02:{second:02} Job terminated.
\t(1) Normal termination (return value 0)
\t\tUsr 0 00:00:01, Sys 0 00:00:00  -  Run Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
\t\tUsr 0 00:00:01, Sys 0 00:00:00  -  Total Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage
...
"""
_REMOVED = """\
009 ({id:03}.000.000) 2026-01-02 10:02:{second:02} Job was aborted.
\tvia condor_rm (by user somebody)
...
"""


def ran(
    directory: Path,
    done: Iterable[str] = (),
    removed: Iterable[str] = (),
    rescue: bool = True,
    name: str = "ensemble",
) -> None:
    """Jobs of these nodes, in the log, and DAGMan's rescue file, which it writes when it was
    removed or a node failed."""
    done, removed = list(done), list(removed)
    text = ""
    for number, node in enumerate([*done, *removed], start=1):
        how = _DONE if node in done else _REMOVED
        text += (_JOB + how).format(id=100 + number, second=number, node=node)
    (directory / f"{name}.log").write_text(text)
    (directory / f"{name}.dag.condor.sub").write_text("# Filename: the DAGMan's own job\n")
    (directory / f"{name}.dag.dagman.out").write_text("")
    if rescue:
        lines = [
            "# Rescue DAG file, created after running",
            f"#   the {name}.dag DAG file",
            "# Created 1/2/2026 10:05:00 UTC",
            "# Rescue DAG version: 2.0.1 (partial)",
            "#",
            f"# Total number of Nodes: {len(done) + len(removed)}",
            "",
            *(f"DONE {node}" for node in done),
        ]
        (directory / f"{name}.dag.rescue001").write_text("\n".join(lines) + "\n")


def running(directory: Path, name: str = "ensemble") -> None:
    """The lock file of a DAGMan."""
    (directory / f"{name}.dag.lock").write_text("12345\n")
    (directory / f"{name}.dag.dagman.out").write_text("")


def listing(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and its mtime."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.iterdir()
        if path.is_file()
    }
