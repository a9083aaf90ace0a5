"""The jobstate log: one line per event of a node, appended for ever.

Source followed: ``JobstateLog`` in ``jobstate_log.cpp``; HTCondor manual, "A
Machine-Readable Event History, the jobstate.log File". Over a recovery the log goes on,
lines already written are not repeated; over a rescue the sequence numbers go on.
"""

from __future__ import annotations

import re
from sys import intern
from typing import Final

from metlmon.dagman.records import JobstateLine, Problem

_LINE: Final = re.compile(
    rb"(?P<epoch>\d{1,15}) (?:"
    rb"INTERNAL \*\*\* (?P<internal>[A-Z_]{1,64})(?: (?P<argument>\S+))? \*\*\*"
    rb"|(?P<node>\S+) (?P<event>[A-Z][A-Z0-9_]{0,63}) (?P<job>\S+)"
    rb"(?: \S+)?(?: \S+)? (?P<sequence>-?\d{1,12})"
    rb")\s*"
)
_JOB: Final = re.compile(rb"(-?\d{1,12})\.(-?\d{1,12})")
_VALUE: Final = re.compile(rb"-?\d{1,12}")

LONGEST_LINE: Final = 64 * 1024
"""Bytes: DAGMan keeps 1023 of a node's name; what is longer than this is no line of it, and
a file without line ends must not be read again from its beginning at every look."""


def read_jobstate(
    data: bytes, final: bool = False, *, file: str = "jobstate log", line: int = 1
) -> tuple[list[JobstateLine], list[Problem], int]:
    """Read the complete lines of ``data``.

    Comes out: the lines' records, at most one problem (the first bad line and how many more
    there are), and the number of bytes used; the rest is to be passed again with what
    follows it. ``final``: nothing follows, a last line without newline counts. ``file`` and
    ``line`` (1-based, of the first byte) are for the problem's text. Never raises.
    """
    used = len(data) if final else data.rfind(b"\n") + 1
    if len(data) - used > LONGEST_LINE:
        used = len(data)
    said: list[JobstateLine] = []
    strange: list[int] = []
    for number, text in enumerate(data[:used].split(b"\n"), start=line):
        record = _record(text) if len(text) <= LONGEST_LINE else None
        if record is not None:
            said.append(record)
        elif text.strip():
            strange.append(number)
    return said, _problems(file, strange), used


def _problems(file: str, strange: list[int]) -> list[Problem]:
    if not strange:
        return []
    more = f", nor are {len(strange) - 1} more lines" if len(strange) > 1 else ""
    text = f"no line of a jobstate log{more}; passed over"
    return [Problem("jobstate-line", file, strange[0], text, error=False)]


def _record(line: bytes) -> JobstateLine | None:
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    epoch, internal, argument, node, event, job, sequence = found.groups()
    if internal:
        job = argument
    ids = _JOB.fullmatch(job) if job else None
    value = _VALUE.fullmatch(job) if job and not ids else None
    return JobstateLine(
        epoch=int(epoch),
        node=None if internal else node.decode("utf-8", "replace"),
        event=intern((internal or event).decode("ascii")),
        cluster=int(ids[1]) if ids else None,
        proc=int(ids[2]) if ids else None,
        value=int(job) if value else None,
        sequence=int(sequence) if sequence else None,
    )
