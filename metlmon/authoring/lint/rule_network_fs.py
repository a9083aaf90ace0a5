"""Rules for log locations: network file systems lose, delay or split appends."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.dagman.lexer import shown

MOUNTS: Final = Path("/proc/self/mountinfo")
"""The mount table of this process (man 5 proc).

The file systems themselves are not queried, since an unreachable server would block.
"""

NETWORK: Final = frozenset(
    {
        *("nfs", "nfs3", "nfs4", "afs", "auristorfs", "lustre", "gpfs", "mmfs", "beegfs"),
        *("ceph", "fuse.ceph", "cifs", "smb", "smb3", "smbfs", "glusterfs", "fuse.glusterfs"),
        *("fuse.sshfs", "panfs", "orangefs", "pvfs2", "wekafs", "fuse.juicefs", "fuse.s3fs"),
        *("fuse.rclone", "fuse.gcsfuse"),
    }
)

TEMPORARY = "/tmp"
"""The directory in which DAGMan refuses its nodes log, by default.

Source: ``DagmanUtils``, "default node log file … is in /tmp".
"""

MAX_LOG_DIRECTORIES: Final = 100
"""Most log directories to check: enough for one per run."""

_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def check(context: LintContext) -> None:
    """Check the directories of DAGMan's files and of the job logs."""
    dagman_dir = os.path.abspath(context.dagman_dir)
    if dagman_dir == TEMPORARY or dagman_dir.startswith(f"{TEMPORARY}/"):
        message = f"DAGMan's own files, nodes.log among them, lie below {TEMPORARY}"
        context.findings.add("in-tmp", context.name, None, message)
    mounts = read_mounts(MOUNTS)
    if not mounts:
        return
    if kind := network_type(dagman_dir, mounts):
        message = f"DAGMan's own files, nodes.log among them, lie on {kind}"
        context.findings.add("network-file-system", context.name, None, message)
    seen: set[str] = set()
    for node in context.jobs():
        if not node.log or "$" in node.log or len(seen) >= MAX_LOG_DIRECTORIES:
            continue
        directory = os.path.dirname(os.path.normpath(os.path.join(dagman_dir, node.log)))
        if directory in seen or directory == dagman_dir:
            continue
        seen.add(directory)
        text = context.description_of(node)
        statement = text.last("log", "userlog") if text is not None else None
        if statement is not None and (kind := network_type(directory, mounts)):
            message = f"the log {shown(node.log)} lies on {kind}"
            context.report("network-file-system", statement, message)


def read_mounts(path: Path) -> list[tuple[str, str]]:
    """(mount point, type) in mount order; empty if the table cannot be read."""
    try:
        text = path.read_text("utf-8", "surrogateescape")
    except OSError:
        return []
    mounts = []
    for line in text.splitlines():
        head, separator, tail = line.partition(" - ")
        fields = head.split(" ")
        if separator and len(fields) > 4 and tail:
            point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
            mounts.append((point, tail.split(" ", 1)[0]))
    return mounts


def network_type(path: str, mounts: list[tuple[str, str]]) -> str | None:
    """The type of the file system of ``path`` if it is a network one, else None."""
    try:
        real_path = os.path.realpath(path)
    except ValueError:  # a NUL in the name
        return None
    best_point, kind = "", ""
    for point, mount_type in mounts:
        inside = point == "/" or real_path == point or real_path.startswith(point + "/")
        if inside and len(point) >= len(best_point):
            best_point, kind = point, mount_type
    return kind if kind in NETWORK else None
