"""Reads the text of a submit description: commands by line, input files, secrets.

:mod:`metlmon.dagman.submit_description` evaluates descriptions and drops every environment; here
the line of each command matters. Source followed: HTCondor manual, "condor_submit" ("Submit
description file commands").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from metlmon.authoring.request import PlannedFile
from metlmon.frozen import frozen
from metlmon.redact import HIDDEN, redact_secrets

_ASSIGNMENT: Final = re.compile(r"([+\w.]+)[ \t]*=(?!=)(.*)", re.DOTALL)
_QUEUE: Final = re.compile(r"queue\b(.*)", re.IGNORECASE | re.DOTALL)
_VARIABLE: Final = re.compile(r"""(?:^|[\s;"'])([A-Za-z_]\w*)=('[^']*'|[^\s;"']*)""")
_SECRET: Final = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)

_ENVIRONMENTS: Final = frozenset({"environment", "environment2", "env"})

_NAMES: Final = r"(?:\+|my\.)?env(?:ironment2?)?"
_SET: Final = re.compile(
    rf"(^|\s)({_NAMES}[ \t]*=)(?!=)[^\n]*(?:(?<=\\)\r?\n[^\n]*)*", re.IGNORECASE | re.MULTILINE
)
_TAGGED: Final = re.compile(
    rf"^([ \t]*{_NAMES}[ \t]*@=(\S+)[ \t]*\r?\n).*?(?=^[ \t]*@\2|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)


@frozen
class Assignment:
    """``key = value`` of a logical line; ``key`` in lower case, ``line`` from 1."""

    line: int
    key: str
    value: str


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, continuations joined, with the number of the first."""
    continued, first_number = "", 0
    for number, raw_line in enumerate(text.split("\n"), start=1):
        line = raw_line.strip()
        if not line or line.startswith("#"):
            continue
        first_number = first_number if continued else number
        if line.endswith("\\"):
            continued += line[:-1] + " "
            continue
        yield first_number, continued + line
        continued = ""
    if continued:
        yield first_number, continued


def assignments(text: str) -> list[Assignment]:
    """All assignments in the order of the file, including those under an ``if``."""
    result = []
    for number, line in _logical_lines(text):
        if match := _ASSIGNMENT.match(line):
            result.append(Assignment(number, match[1].lower(), match[2].strip()))
    return result


def queues(text: str) -> bool:
    """Whether there is a ``queue`` command."""
    return any(_QUEUE.match(line) for _, line in _logical_lines(text))


def input_files(commands: list[Assignment]) -> list[str]:
    """Files transferred from the DAG's directory, as written.

    Without URLs and names that contain macros.
    """
    sends_executable = not any(
        command.key == "transfer_executable" and command.value.lower() in ("false", "f", "no", "0")
        for command in commands
    )
    names: dict[str, None] = {}
    for command in commands:
        if command.key == "transfer_input_files" or (
            command.key == "executable" and sends_executable
        ):
            for name in command.value.strip('"').split(","):
                name = name.strip()
                if name and "$" not in name and "://" not in name:
                    names[name] = None
    return list(names)


def secrets(commands: list[Assignment]) -> list[tuple[int, str]]:
    """(line, variable) of variables in the job's environment that look like secrets."""
    return [
        (command.line, variable)
        for command in commands
        if command.key.removeprefix("+").removeprefix("my.") in _ENVIRONMENTS
        for variable, value in _VARIABLE.findall(command.value)
        if is_secret(variable) and value.strip("'") and not value.startswith("$")
    ]


def without_secrets(text: str) -> str:
    """A DAG file or submit description without environment values and other secrets."""
    text = _SET.sub(rf"\1\2 {HIDDEN}", _TAGGED.sub(rf"\1{HIDDEN}\n", text))
    if "-----BEGIN" in text:
        return redact_secrets(text)
    # Line by line is faster: most lines are quickly known to hold no secret.
    return "\n".join(map(redact_secrets, text.split("\n")))


def shown(file: PlannedFile) -> str:
    """The text of a planned file with secrets redacted."""
    text = file.data.decode("utf-8", "backslashreplace")
    is_job_text = file.name.endswith((".dag", ".sub", ".template"))
    return without_secrets(text) if is_job_text else redact_secrets(text)


def is_secret(name: str) -> bool:
    """Whether a variable of this name probably holds a secret."""
    return _SECRET.search(name) is not None
