"""Reads rescue files and save files: the nodes that are done when DAGMan starts.

Source followed: ``Dag::Rescue``, ``Dag::WriteRescue`` and ``Dag::WriteNodeToRescue`` in
``dag.cpp``, ``DagmanUtils::RescueDagName`` for the names; HTCondor manual, "The Rescue DAG".
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from metlmon.dagman.commands import DoneCommand, NodeCommand, RetryCommand
from metlmon.dagman.parser import read_commands
from metlmon.dagman.records import NodeKind, Problem, Rescue

_NUMBER: Final = re.compile(r"\.rescue([0-9]{3,6})\Z")
_CREATED: Final = re.compile(
    r"#\s*Created (\d{1,2})/(\d{1,2})/(\d{4}) (\d{1,2}):(\d{2}):(\d{2}) UTC", re.IGNORECASE
)
_TOTAL: Final = re.compile(r"#\s*Total number of Nodes:\s*(\d{1,12})", re.IGNORECASE)
_FAILED: Final = re.compile(r"#\s*Nodes that failed:.*\n#((?:(?!<ENDLIST>).)*)", re.IGNORECASE)
"""The names are in the comment below."""

_CAN_BE_DONE: Final = frozenset({NodeKind.JOB, NodeKind.SUBDAG, NodeKind.PROVISIONER})
"""Kinds of nodes whose command may end in DONE: DAGMan rejects it for the others."""


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
    end = data.rfind(b"\n") + 1
    done: set[str] = set()
    retries: dict[str, int] = {}
    invalid: list[int] = []
    for source in read_commands(data[:end], path.name):
        match source.command:
            case DoneCommand(node=name):
                done.add(_unquote(name))
            case RetryCommand(node=name, retries=left):
                retries[_unquote(name)] = left
            case NodeCommand(kind=kind, name=name, done=True) if kind in _CAN_BE_DONE:
                done.add(_unquote(name))
            case None:
                invalid.append(source.line)
            case _:
                pass  # A full rescue file repeats the DAG file.
    problems = []
    if data[end:].strip():
        problems.append(
            _problem(
                "torn-file",
                path,
                data.count(b"\n") + 1,
                "the last line has no end and is not used: the file is being written, or was cut",
            )
        )
    if invalid:
        also = f", nor are {len(invalid) - 1} more lines" if len(invalid) > 1 else ""
        text = f"no line of a rescue file{also}; passed over"
        problems.append(_problem("rescue-line", path, invalid[0], text))
    comments = "\n".join(re.findall(r"^[ \t]*(#.*)", data[:end].decode("utf-8", "replace"), re.M))
    number, total = _NUMBER.search(path.name), _TOTAL.search(comments)
    failed = _FAILED.search(comments)
    names = failed[1].split(",") if failed else ()
    rescue = Rescue(
        path=path,
        number=int(number[1]) if number else 0,
        created=_created(comments),
        done=frozenset(done),
        retries=retries,
        total=int(total[1]) if total else None,
        failed=frozenset(name.strip() for name in names if name.strip()),
    )
    return rescue, problems


def _problem(kind: str, path: Path, line: int, text: str) -> Problem:
    return Problem(kind, str(path), line, text, error=False)


def _unquote(name: str) -> str:
    """Remove the quotes that the DAG grammar allows around a node's name."""
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
        return name[1:-1]
    return name


def _created(comments: str) -> datetime | None:
    if (match := _CREATED.search(comments)) is None:
        return None
    month, day, year, hour, minute, second = map(int, match.groups())
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
