"""Rescue files and save files: which nodes DAGMan starts with as done.

Source followed: ``Dag::Rescue``, ``Dag::WriteRescue`` and ``Dag::WriteNodeToRescue`` in
``dag.cpp``, ``DagmanUtils::RescueDagName`` for the names; HTCondor manual, "The Rescue DAG".
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from metlmon.dagman.records import Problem, Rescue

_NUMBER: Final = re.compile(r"\.rescue([0-9]{3,6})\Z")
_CREATED: Final = re.compile(
    r"#\s*Created (\d{1,2})/(\d{1,2})/(\d{4}) (\d{1,2}):(\d{2}):(\d{2}) UTC", re.IGNORECASE
)
_TOTAL: Final = re.compile(r"#\s*Total number of Nodes:\s*(\d{1,12})", re.IGNORECASE)
_FAILED: Final = re.compile(r"#\s*Nodes that failed:", re.IGNORECASE)
_END_OF_LIST: Final = "<ENDLIST>"

_JOB_LIKE: Final = frozenset({"JOB", "SUBDAG", "PROVISIONER"})
"""Commands of a full rescue file whose lines can end in DONE: DAGMan refuses it for FINAL
and SERVICE nodes."""

_FULL_ONLY: Final = frozenset(
    {"FINAL", "SERVICE", "PARENT", "SCRIPT", "VARS", "PRIORITY", "CATEGORY"}
    | {"MAXJOBS", "PRE_SKIP", "ABORT_DAG_ON", "CONFIG", "NODE_STATUS_FILE", "JOBSTATE_LOG"}
    | {"REJECT", "DOT"}
)
"""What else a full rescue file holds: the DAG file says it too, so it is passed over."""


def rescue_number(name: str, dag_name: str) -> int | None:
    """The number in a rescue file's name, or None when ``name`` is none of this DAG's.

    ``dag_name`` is the DAG file's own name, of several on one command line the first one's:
    their rescue file is called ``x.dag_multi.rescue001``.
    """
    for stem in (dag_name, f"{dag_name}_multi"):
        if name.startswith(f"{stem}.rescue"):
            found = _NUMBER.fullmatch(name, len(stem))
            return int(found.group(1)) if found else None
    return None


def read_rescue(path: Path, data: bytes) -> tuple[Rescue, list[Problem]]:
    """Read a rescue file, partial (DAGMan's default) or full, or a save file.

    Comes out: what it says, and problems: lines that are no rescue file's, and a last line
    without its newline, which is not believed (half a name can be another node's name).
    ``number`` is 0 for a name that ends in no number (save files). Never raises.
    """
    reading = _RescueParser(path)
    lines = data.decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        reading.line(number, line.strip())
    if lines[-1].strip():
        reading.problem(
            "torn-file",
            len(lines),
            "the last line has no end and is not used: the file is being written, or was cut",
        )
    return reading.rescue(), reading.problems


class _RescueParser:
    """One pass over one rescue file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.created: datetime | None = None
        self.total: int | None = None
        self.failed: frozenset[str] = frozenset()
        self.done: set[str] = set()
        self.retries: dict[str, int] = {}
        self.list_follows = False
        self.strange: list[int] = []

    def rescue(self) -> Rescue:
        if self.strange:
            rest = len(self.strange) - 1
            also = f", nor are {rest} more lines" if rest else ""
            self.problem(
                "rescue-line", self.strange[0], f"no line of a rescue file{also}; passed over"
            )
        number = _NUMBER.search(self.path.name)
        return Rescue(
            path=self.path,
            number=int(number.group(1)) if number else 0,
            created=self.created,
            done=frozenset(self.done),
            retries=self.retries,
            total=self.total,
            failed=self.failed,
        )

    def problem(self, kind: str, line: int, text: str) -> None:
        self.problems.append(Problem(kind, str(self.path), line, text, error=False))

    def line(self, number: int, line: str) -> None:
        if line.startswith("#"):
            self.comment(line)
        elif line and not line.startswith("//") and not self.command(line.split()):
            self.strange.append(number)

    def comment(self, line: str) -> None:
        if self.list_follows:
            self.list_follows = False
            names = line[1:].partition(_END_OF_LIST)[0].split(",")
            self.failed = frozenset(name.strip() for name in names if name.strip())
        elif _FAILED.match(line):
            self.list_follows = True
        elif found := _TOTAL.match(line):
            self.total = int(found.group(1))
        elif found := _CREATED.match(line):
            self.created = _created(found)

    def command(self, words: list[str]) -> bool:
        """Take in one command; False when it is none of a rescue file."""
        keyword = words[0].upper().replace("-", "_")
        if keyword == "DONE" and len(words) > 1:
            self.done.add(_bare(words[1]))
        elif keyword == "RETRY" and len(words) > 2 and re.fullmatch(r"\d{1,9}", words[2]):
            self.retries[_bare(words[1])] = int(words[2])
        elif keyword in _JOB_LIKE and len(words) > 2:
            self.job(words[2:] if keyword == "SUBDAG" else words[1:])
        else:
            return keyword in _FULL_ONLY
        return True

    def job(self, words: list[str]) -> None:
        """A full rescue file's JOB or SUBDAG EXTERNAL: name, file, then options in any order."""
        options = iter(words[2:])
        for option in options:
            if option.upper() == "DIR":
                next(options, None)
            elif option.upper() == "DONE":
                self.done.add(_bare(words[0]))


def _bare(name: str) -> str:
    """A node's name without the quotes that the DAG grammar allows around it."""
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
        return name[1:-1]
    return name


def _created(found: re.Match[str]) -> datetime | None:
    month, day, year, hour, minute, second = map(int, found.groups())
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
