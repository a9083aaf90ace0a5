"""Reads rescue files and save files: the nodes that are done when DAGMan starts.

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
"""Commands of a full rescue file that may end in DONE: DAGMan rejects it for FINAL and
SERVICE nodes."""

_FULL_ONLY: Final = frozenset(
    {"FINAL", "SERVICE", "PARENT", "SCRIPT", "VARS", "PRIORITY", "CATEGORY"}
    | {"MAXJOBS", "PRE_SKIP", "ABORT_DAG_ON", "CONFIG", "NODE_STATUS_FILE", "JOBSTATE_LOG"}
    | {"REJECT", "DOT"}
)
"""Other commands of a full rescue file: they repeat the DAG file and are skipped."""


def rescue_number(name: str, dag_name: str) -> int | None:
    """The number in the name of a rescue file of this DAG; None for other files.

    ``dag_name`` is the name of the DAG file, the first of several on one command line: their
    rescue file is named ``x.dag_multi.rescue001``.
    """
    for stem in (dag_name, f"{dag_name}_multi"):
        if name.startswith(f"{stem}.rescue"):
            match = _NUMBER.fullmatch(name, len(stem))
            return int(match.group(1)) if match else None
    return None


def read_rescue(path: Path, data: bytes) -> tuple[Rescue, list[Problem]]:
    """Read a rescue file, partial (DAGMan's default) or full, or a save file.

    Returns its contents and the problems: lines that do not belong in a rescue file, and a
    last line without newline, which is ignored (half a name can be another node's name).
    ``number`` is 0 for a name without a number (save files). Never raises.
    """
    parser = _RescueParser(path)
    lines = data.decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        parser.read_line(number, line.strip())
    if lines[-1].strip():
        parser.add_problem(
            "torn-file",
            len(lines),
            "the last line has no end and is not used: the file is being written, or was cut",
        )
    return parser.result(), parser.problems


class _RescueParser:
    """The state of one pass over one rescue file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.created: datetime | None = None
        self.total: int | None = None
        self.failed: frozenset[str] = frozenset()
        self.done: set[str] = set()
        self.retries: dict[str, int] = {}
        self.list_follows = False
        self.invalid: list[int] = []

    def result(self) -> Rescue:
        if self.invalid:
            rest = len(self.invalid) - 1
            also = f", nor are {rest} more lines" if rest else ""
            self.add_problem(
                "rescue-line", self.invalid[0], f"no line of a rescue file{also}; passed over"
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

    def add_problem(self, kind: str, line: int, text: str) -> None:
        self.problems.append(Problem(kind, str(self.path), line, text, error=False))

    def read_line(self, number: int, line: str) -> None:
        if line.startswith("#"):
            self.read_comment(line)
        elif line and not line.startswith("//") and not self.read_command(line.split()):
            self.invalid.append(number)

    def read_comment(self, line: str) -> None:
        if self.list_follows:
            self.list_follows = False
            names = line[1:].partition(_END_OF_LIST)[0].split(",")
            self.failed = frozenset(name.strip() for name in names if name.strip())
        elif _FAILED.match(line):
            self.list_follows = True
        elif match := _TOTAL.match(line):
            self.total = int(match.group(1))
        elif match := _CREATED.match(line):
            self.created = _parse_created(match)

    def read_command(self, words: list[str]) -> bool:
        """Read one command; False when it does not belong in a rescue file."""
        keyword = words[0].upper().replace("-", "_")
        if keyword == "DONE" and len(words) > 1:
            self.done.add(_unquote(words[1]))
        elif keyword == "RETRY" and len(words) > 2 and re.fullmatch(r"\d{1,9}", words[2]):
            self.retries[_unquote(words[1])] = int(words[2])
        elif keyword in _JOB_LIKE and len(words) > 2:
            self.read_job(words[2:] if keyword == "SUBDAG" else words[1:])
        else:
            return keyword in _FULL_ONLY
        return True

    def read_job(self, words: list[str]) -> None:
        """Read JOB or SUBDAG EXTERNAL of a full file: name, file, options in any order."""
        options = iter(words[2:])
        for option in options:
            if option.upper() == "DIR":
                next(options, None)
            elif option.upper() == "DONE":
                self.done.add(_unquote(words[0]))


def _unquote(name: str) -> str:
    """Remove the quotes that the DAG grammar allows around a node's name."""
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
        return name[1:-1]
    return name


def _parse_created(match: re.Match[str]) -> datetime | None:
    month, day, year, hour, minute, second = map(int, match.groups())
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
