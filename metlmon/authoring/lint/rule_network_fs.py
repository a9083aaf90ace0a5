"""Where the logs lie: on a network file system appends are lost, come late, or in pieces."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.dagman.lexer import shown

MOUNTS: Final = Path("/proc/self/mountinfo")
"""What is mounted where, as this process sees it (man 5 proc). Nothing is asked of the file
systems themselves: one whose server is away would not answer."""

NETWORK: Final = frozenset(
    {
        *("nfs", "nfs3", "nfs4", "afs", "auristorfs", "lustre", "gpfs", "mmfs", "beegfs"),
        *("ceph", "fuse.ceph", "cifs", "smb", "smb3", "smbfs", "glusterfs", "fuse.glusterfs"),
        *("fuse.sshfs", "panfs", "orangefs", "pvfs2", "wekafs", "fuse.juicefs", "fuse.s3fs"),
        *("fuse.rclone", "fuse.gcsfuse"),
    }
)

TEMPORARY = "/tmp"
"""Where DAGMan wants no log of its nodes (``DagmanUtils``: "default node log file … is in /tmp",
an error by default)."""

MOST_LOGS: Final = 100
"""Directories of logs that are looked at: one for each run, at most."""

_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def check(look: LintContext) -> None:
    home = os.path.abspath(look.home)
    if home == TEMPORARY or home.startswith(f"{TEMPORARY}/"):
        what = f"DAGMan's own files, nodes.log among them, lie below {TEMPORARY}"
        look.found.add("in-tmp", look.name, None, what)
    mounts = read_mounts(MOUNTS)
    if not mounts:
        return
    if kind := network_of(home, mounts):
        what = f"DAGMan's own files, nodes.log among them, lie on {kind}"
        look.found.add("network-file-system", look.name, None, what)
    seen: set[str] = set()
    for node in look.jobs():
        if not node.log or "$" in node.log or len(seen) >= MOST_LOGS:
            continue
        folder = os.path.dirname(os.path.normpath(os.path.join(home, node.log)))
        if folder in seen or folder == home:
            continue
        seen.add(folder)
        text = look.described(node)
        place = text.last("log", "userlog") if text is not None else None
        if place is not None and (kind := network_of(folder, mounts)):
            what = f"the log {shown(node.log)} lies on {kind}"
            look.found.add("network-file-system", place.file, place.line, what)


def read_mounts(path: Path) -> list[tuple[str, str]]:
    """(mount point, type), those mounted later behind; empty where the system does not say."""
    try:
        text = path.read_text("utf-8", "surrogateescape")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        head, sign, tail = line.partition(" - ")
        fields = head.split(" ")
        if sign and len(fields) > 4 and tail:
            point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
            found.append((point, tail.split(" ", 1)[0]))
    return found


def network_of(path: str, mounts: list[tuple[str, str]]) -> str | None:
    """The type of the file system that ``path`` lies on, if it is one over the network."""
    try:
        real = os.path.realpath(path)
    except ValueError:  # a NUL in the name
        return None
    best, kind = "", ""
    for point, each in mounts:
        inside = point == "/" or real == point or real.startswith(point + "/")
        if inside and len(point) >= len(best):
            best, kind = point, each
    return kind if kind in NETWORK else None
