"""The text of a submit description, as far as a template's author needs to be told of it.

:mod:`metlmon.dagman.submit_description` reads descriptions as a job's owner means them and drops
every environment; here the places matter: which line sets what. Source followed: HTCondor manual,
"condor_submit" ("Submit description file commands").
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
    """``key = value`` of one logical line; ``key`` in lower case, ``line`` counts from 1."""

    line: int
    key: str
    value: str


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, continued ones joined, with the number of the first."""
    held, first = "", 0
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        first = first if held else number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        yield first, held + line
        held = ""
    if held:
        yield first, held


def assignments(text: str) -> list[Assignment]:
    """Every assignment, in the order of the file, those under an ``if`` included."""
    found = []
    for number, line in _logical(text):
        if match := _ASSIGNMENT.match(line):
            found.append(Assignment(number, match[1].lower(), match[2].strip()))
    return found


def queues(text: str) -> bool:
    """Whether there is a ``queue`` line."""
    return any(_QUEUE.match(line) for _, line in _logical(text))


def input_files(found: list[Assignment]) -> list[str]:
    """Files that are transferred from the DAG's directory, as written: neither those that
    only a job's macros tell nor URLs."""
    sent = not any(
        each.key == "transfer_executable" and each.value.lower() in ("false", "f", "no", "0")
        for each in found
    )
    names: dict[str, None] = {}
    for each in found:
        if each.key == "transfer_input_files" or (each.key == "executable" and sent):
            for name in each.value.strip('"').split(","):
                name = name.strip()
                if name and "$" not in name and "://" not in name:
                    names[name] = None
    return list(names)


def secrets(found: list[Assignment]) -> list[tuple[int, str]]:
    """(line, variable) of what looks like a key in the job's environment; never its value."""
    return [
        (each.line, variable)
        for each in found
        if each.key.removeprefix("+").removeprefix("my.") in _ENVIRONMENTS
        for variable, value in _VARIABLE.findall(each.value)
        if is_secret(variable) and value.strip("'") and not value.startswith("$")
    ]


def without_secrets(text: str) -> str:
    """A DAG file or a submit description as it may be shown: without any value of a job's
    environment, and without what looks like a key elsewhere."""
    text = _SET.sub(rf"\1\2 {HIDDEN}", _TAGGED.sub(rf"\1{HIDDEN}\n", text))
    if "-----BEGIN" in text:
        return redact_secrets(text)
    # Most lines hold nothing, which is soon known of each.
    return "\n".join(map(redact_secrets, text.split("\n")))


def shown(file: PlannedFile) -> str:
    """The text of a file that would be written, as it may be shown."""
    text = file.data.decode("utf-8", "backslashreplace")
    described = file.name.endswith((".dag", ".sub", ".template"))
    return without_secrets(text) if described else redact_secrets(text)


def is_secret(name: str) -> bool:
    """Whether something of this name is likely not meant for everybody's eyes."""
    return _SECRET.search(name) is not None
