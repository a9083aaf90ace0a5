"""Submit descriptions, as far as a monitor needs them: where a job's log and output go, how
many GPUs it asks for, how many jobs it queues.

Source followed: HTCondor manual, "condor_submit" ("Submit description file commands",
"Macros", "If/Else"). Values of ``environment`` are dropped while reading: real files carry
secrets in them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum

from metlmon.dagman.dagtext import integer
from metlmon.frozen import frozen

#: Reads the lines of a file that ``include : name`` names; None when there is none.
Include = Callable[[str], Sequence[str] | None]

#: More than any real description has, so that files which include themselves come to an end.
_MOST_INCLUDES = 100

#: Macros within macros: HTCondor itself gives up on loops.
_MACRO_DEPTH = 32

#: Longest value that is worth expanding; a path is 4 KB at most. Ends ``$(a)$(a)`` bombs.
_LONGEST_VALUE = 16_384

_ENVIRONMENT = frozenset({"environment", "environment2", "env"})

#: Known only when the job exists or runs: these stay as they are written.
_LATE = frozenset(
    {
        "step",
        "row",
        "item",
        "itemindex",
        "node",
        "retry",
        "dag_status",
        "failed_count",
        "dagmanjobid",
        "dag_id",
        "max_retries",
        "dag_parent_names",
        "year",
        "month",
        "day",
        "submit_time",
        "submit_file",
    }
)
_TRUE = frozenset({"true", "t", "yes", "y"})
_IDS = {
    "cluster": "$(Cluster)",
    "clusterid": "$(Cluster)",
    "process": "$(Process)",
    "procid": "$(Process)",
}

_ASSIGNMENT = re.compile(r"([+\w.]++)[ \t]*+=(.*+)", re.DOTALL)
_TAGGED = re.compile(r"([+\w.]++)[ \t]*+@=([^\s]++)$")
_DIRECTIVE = re.compile(r"(if|elif|else|endif|queue)\b(.*+)", re.DOTALL | re.IGNORECASE)
_INCLUDED = re.compile(r"include(?:[ \t]++ifexist)?[ \t]*+:(.*+)", re.IGNORECASE)
_MACRO = re.compile(r"(?<!\$)\$\(([\w.]++)(?::((?:[^()]|\([^()]*+\))*))?\)")
_CONDITION = re.compile(r"(!?)[ \t]*+(defined\b)?[ \t]*+(.*+)", re.DOTALL | re.IGNORECASE)
_VERSION = re.compile(r"version[ \t]*+(>=|>|!=)", re.IGNORECASE)
_ITEMS = re.compile(r"\b(in|from|matching)\b", re.IGNORECASE)


class _Word(Enum):
    SET = "set"
    IF = "if"
    ELIF = "elif"
    ELSE = "else"
    ENDIF = "endif"
    QUEUE = "queue"


@frozen
class _Statement:
    word: _Word
    key: str
    value: str


@frozen
class Description:
    """A submit description that was read, ready to be expanded for any number of nodes."""

    statements: tuple[_Statement, ...]


@frozen
class Submission:
    """What a description says for one node. Paths as written there, put behind
    ``initialdir``; ``request_gpus`` None when absent or an expression; ``queue_count`` None
    when it cannot be known from the text."""

    log: str | None
    output: str | None
    error: str | None
    request_gpus: int | None
    queue_count: int | None


def is_environment(key: str) -> bool:
    """Whether a submit command or job attribute of this name holds a job's environment."""
    name = key.lower().removeprefix("+").removeprefix("my.")
    return name in _ENVIRONMENT


def parse_description(lines: Iterable[str], include: Include | None = None) -> Description:
    """The statements of a description, up to its first ``queue``. Never raises."""
    statements: list[_Statement] = []
    source = _with_includes(lines, include)
    open_ifs = 0
    for line in source:
        if tagged := _TAGGED.match(line):
            value = _until(source, f"@{tagged[2]}")
            _keep(statements, tagged[1], "\n".join(value))
        elif assignment := _ASSIGNMENT.match(line):
            _keep(statements, assignment[1], assignment[2].strip())
        elif directive := _DIRECTIVE.match(line):
            word = _Word(directive[1].lower())
            value_text = directive[2].strip()
            if word is _Word.QUEUE and value_text.endswith("("):
                value_text = "\n".join([value_text, *_until(source, ")"), ")"])
            statements.append(_Statement(word, "", value_text))
            open_ifs += (word is _Word.IF) - (word is _Word.ENDIF)
            if word is _Word.QUEUE and open_ifs <= 0:
                break
    return Description(tuple(statements))


def _with_includes(lines: Iterable[str], include: Include | None) -> Iterator[str]:
    """The joined lines, those of included files in their places."""
    open_files = [_joined(lines)]
    left = _MOST_INCLUDES if include is not None else 0
    while open_files:
        line = next(open_files[-1], None)
        if line is None:
            open_files.pop()
        elif not (included := _INCLUDED.match(line)):
            yield line
        elif include is not None and left:
            left -= 1
            open_files.append(_joined(include(included[1].strip()) or ()))


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Lines without comments, with continued ones joined."""
    held = ""
    for raw in lines:
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line.endswith("\\"):
            held += line[:-1]
            continue
        yield held + line
        held = ""
    if held:
        yield held


def _until(source: Iterable[str], end: str) -> list[str]:
    found = []
    for line in source:
        if line.strip() == end:
            break
        found.append(line)
    return found


def _keep(statements: list[_Statement], key: str, value: str) -> None:
    if not is_environment(key):
        name = f"my.{key[1:]}" if key.startswith("+") else key
        statements.append(_Statement(_Word.SET, name.lower(), value))


class _Macros:
    """The macro table while one description is read for one node."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values
        self.late: set[str] = set(_LATE)

    def set(self, key: str, value: str) -> None:
        """An assignment; a value that names its own key takes the old value right there."""
        if "$(" in value and f"$({key})" in value.lower():
            old = self.values.get(key, "")
            value = re.sub(rf"\$\({re.escape(key)}\)", lambda _: old, value, flags=re.IGNORECASE)
            value = value[:_LONGEST_VALUE]
        self.values[key] = value

    def expand(self, value: str, depth: int = _MACRO_DEPTH) -> str | None:
        """``value`` with its macros filled in; None when they go round in circles or grow
        beyond every path. ``$F…(x)``, ``$ENV(x)``, ``$$(x)`` and the like stay as they are."""
        if "$(" not in value:
            return value
        if len(value) > _LONGEST_VALUE:
            return None
        pieces: list[str] = []
        size = position = 0
        for match in _MACRO.finditer(value):
            filled = self._fill(match, depth)
            if filled is None:
                return None
            pieces += [value[position : match.start()], filled]
            size += len(pieces[-2]) + len(filled)
            position = match.end()
            if size > _LONGEST_VALUE:
                return None
        pieces.append(value[position:])
        return "".join(pieces)

    def _fill(self, match: re.Match[str], depth: int) -> str | None:
        name = match[1].lower()
        if name in _IDS:
            return _IDS[name]
        if depth == 0:
            return None
        value = self.values.get(name)
        if value is None:
            if name == "dollar":
                return "$"
            if match[2] is None:
                return match[0] if name in self.late else ""
            value = match[2]
        return self.expand(value, depth - 1)


def submission(
    description: Description, before: Mapping[str, str], after: Mapping[str, str]
) -> Submission:
    """What ``description`` says for one node.

    ``before`` are macros that stand before the description is read (DAGMan's own and VARS
    PREPEND, the default), which it may override; ``after`` override it (VARS APPEND).
    """
    macros = _Macros({key.lower(): value for key, value in before.items()})
    queue = _run(description.statements, macros)
    for key, value in after.items():
        macros.set(key.lower(), value)
    count = _queued(queue, macros)
    folder = _value(macros, "initialdir", "initial_dir") or ""
    gpus = _value(macros, "request_gpus") or ""
    return Submission(
        log=_path(folder, _value(macros, "log", "userlog")),
        output=_path(folder, _value(macros, "output", "stdout", "out")),
        error=_path(folder, _value(macros, "error", "stderr", "err")),
        request_gpus=integer(gpus) if gpus.isdecimal() else None,
        queue_count=count,
    )


def _value(macros: _Macros, *keys: str) -> str | None:
    for key in keys:
        if (raw := macros.values.get(key)) is not None:
            value = macros.expand(raw)
            return value.strip() or None if value is not None else None
    return None


def _path(folder: str, name: str | None) -> str | None:
    return None if name is None else posixpath.join(folder, name)


def _run(statements: tuple[_Statement, ...], macros: _Macros) -> str:
    """Carries out the assignments that count; gives what stands behind ``queue``."""
    # One entry per open if: does its present branch count, and did one count already?
    branches: list[tuple[bool, bool]] = []
    for statement in statements:
        counts = all(taken for taken, _ in branches)
        match statement.word:
            case _Word.SET:
                if counts:
                    macros.set(statement.key, statement.value)
            case _Word.IF:
                holds = counts and _holds(statement.value, macros)
                branches.append((holds, holds))
            case _Word.ELIF | _Word.ELSE if branches:
                _, done = branches.pop()
                holds = not done and (
                    statement.word is _Word.ELSE or _holds(statement.value, macros)
                )
                branches.append((holds, done or holds))
            case _Word.ENDIF if branches:
                branches.pop()
            case _Word.QUEUE if counts:
                return statement.value
            case _:
                pass
    return ""


def _holds(condition: str, macros: _Macros) -> bool:
    """``[!] defined name``, a boolean or number, ``version >= …`` (read as by a present-day
    HTCondor, newer than any version asked for); what HTCondor would refuse does not hold."""
    match = _CONDITION.match(condition)
    assert match is not None  # every part of the pattern may be empty
    negated, defined, rest = bool(match[1]), match[2], match[3].strip()
    if defined:
        name = macros.expand(rest) if "$(" in rest else rest
        holds = bool(name) and bool(macros.values.get((name or "").lower()))
    else:
        text = (macros.expand(rest) or "").strip().lower()
        holds = text in _TRUE or bool(integer(text)) or bool(_VERSION.match(text))
    return holds != negated


def _queued(text: str, macros: _Macros) -> int | None:
    """How many procs ``queue TEXT`` makes: 1 for none, None when items lie outside the text."""
    expanded = macros.expand(text)
    if expanded is None:
        return None
    expanded = expanded.strip()
    if not expanded:
        return 1
    if expanded.isdecimal():
        return integer(expanded)
    match = _ITEMS.search(expanded)
    if match is None:
        return None
    times, _, names = expanded[: match.start()].strip().partition(" ")
    if not times.isdecimal():
        times, names = "1", f"{times} {names}"
    macros.late |= {name.lower() for name in re.split(r"[,\s]+", names) if name}
    items = expanded[match.end() :].strip()
    if not items.startswith("(") or not items.endswith(")") or match[1].lower() == "matching":
        return None
    inner = items[1:-1]
    found = inner.split("\n") if match[1].lower() == "from" else re.split(r"[,\s]+", inner)
    count = sum(1 for item in found if item.strip())
    each = integer(times)
    return None if each is None else count * each
