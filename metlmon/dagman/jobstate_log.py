"""Parses the jobstate log: one appended line per event of a node.

Source followed: ``JobstateLog`` in ``jobstate_log.cpp``; HTCondor manual, "A
Machine-Readable Event History, the jobstate.log File". A recovery continues the log without
repeating lines; a rescue continues the sequence numbers.
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
"""Bytes: DAGMan stores 1023 of a node's name, so longer lines are not its own; a file without
line ends is then not read again from its start on each update."""


def read_jobstate(
    data: bytes, final: bool = False, *, file: str = "jobstate log", line: int = 1
) -> tuple[list[JobstateLine], list[Problem], int]:
    """Read the complete lines of ``data``.

    Returns the lines' records, at most one problem (the first invalid line and the number of
    others), and the number of bytes used; the rest must be passed again with the bytes that
    follow. ``final``: nothing follows, so a last line without newline counts. ``file`` and
    ``line`` (1-based, of the first byte) are used in the problem. Never raises.
    """
    used = len(data) if final else data.rfind(b"\n") + 1
    if len(data) - used > LONGEST_LINE:
        used = len(data)
    records: list[JobstateLine] = []
    invalid: list[int] = []
    for number, text in enumerate(data[:used].split(b"\n"), start=line):
        record = _parse_record(text) if len(text) <= LONGEST_LINE else None
        if record is not None:
            records.append(record)
        elif text.strip():
            invalid.append(number)
    return records, _problems(file, invalid), used


def _problems(file: str, invalid: list[int]) -> list[Problem]:
    if not invalid:
        return []
    more = f", nor are {len(invalid) - 1} more lines" if len(invalid) > 1 else ""
    text = f"no line of a jobstate log{more}; passed over"
    return [Problem("jobstate-line", file, invalid[0], text, error=False)]


def _parse_record(line: bytes) -> JobstateLine | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    epoch, internal, argument, node, event, job, sequence = match.groups()
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
