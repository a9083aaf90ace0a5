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

from metlmon.dagman.lexer import integer
from metlmon.frozen import frozen

#: Reads the lines of a file that ``include : name`` names; None when there is none.
Include = Callable[[str], Sequence[str] | None]

#: More than any real description has, so that files which include themselves come to an end.
_MOST_INCLUDES = 100

#: Macros within macros: HTCondor itself gives up on loops.
_MACRO_DEPTH = 32

#: Longest value that is worth expanding; a path is 4 KB at most. Ends ``$(a)$(a)`` bombs.
_LONGEST_VALUE = 16_384

#: Characters that are looked at for macros in what one description says for one node: a
#: hundred times what real ones come to. Ends bombs that come to nothing, twice at each level.
_MOST_EXPANDED = 262_144

#: Of one description: what includes itself a hundred times over would fill the memory.
_MOST_STATEMENTS = 20_000

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
        if len(statements) >= _MOST_STATEMENTS:
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
        self._left = _MOST_EXPANDED

    def set(self, key: str, value: str) -> None:
        """An assignment; a value that names its own key takes the old value right there."""
        if "$(" in value and f"$({key})" in value.lower():
            old = self.values.get(key, "")
            most = _LONGEST_VALUE // max(1, len(old)) + 1
            name = rf"\$\({re.escape(key)}\)"
            value = re.sub(
                name, lambda _: old, value[:_LONGEST_VALUE], count=most, flags=re.IGNORECASE
            )
            value = value[:_LONGEST_VALUE]
        self.values[key] = value

    def expand(self, value: str, depth: int = _MACRO_DEPTH) -> str | None:
        """``value`` with its macros filled in; None when they go round in circles or grow
        beyond every path. ``$F…(x)``, ``$ENV(x)``, ``$$(x)`` and the like stay as they are."""
        if "$(" not in value:
            return value
        self._left -= len(value)
        if len(value) > _LONGEST_VALUE or self._left < 0:
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
    expanded, count = _expanded(description, before, after)
    return _submission(expanded, count)


def command_values(
    description: Description,
    before: Mapping[str, str],
    after: Mapping[str, str],
    names: Iterable[str],
) -> dict[str, str | None]:
    """What these commands come to for one node, as :func:`submission` understands ``before`` and
    ``after``; names in lower case. None where one is not said, or has no end."""
    macros = _Macros({key.lower(): value for key, value in before.items()})
    _run(description.statements, macros)
    for key, value in after.items():
        macros.set(key.lower(), value)
    return {name: _value(macros, name) for name in names}


#: What a submission is made of, and the commands that say it; the first that is there counts.
_SAID = (
    ("initialdir", "initial_dir"),
    ("log", "userlog"),
    ("output", "stdout", "out"),
    ("error", "stderr", "err"),
    ("request_gpus",),
)


def _expanded(
    description: Description, before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[list[str | None], int | None]:
    """The values of :data:`_SAID` with their macros filled in, and the number of procs."""
    macros = _Macros({key.lower(): value for key, value in before.items()})
    queue = _run(description.statements, macros)
    for key, value in after.items():
        macros.set(key.lower(), value)
    # This first: the names of its items stay as they are written in all else.
    count = _queued(queue, macros)
    return [_value(macros, *keys) for keys in _SAID], count


def _value(macros: _Macros, *keys: str) -> str | None:
    for key in keys:
        if (raw := macros.values.get(key)) is not None:
            return macros.expand(raw)
    return None


def _submission(expanded: Sequence[str | None], count: int | None) -> Submission:
    folder, log, output, error, gpus = [(each and each.strip()) or None for each in expanded]
    return Submission(
        log=_path(folder or "", log),
        output=_path(folder or "", output),
        error=_path(folder or "", error),
        request_gpus=integer(gpus) if gpus is not None and gpus.isdecimal() else None,
        queue_count=count,
    )


def _path(folder: str, name: str | None) -> str | None:
    return posixpath.join(folder, name) if name is not None and folder else name


def _run(statements: tuple[_Statement, ...], macros: _Macros) -> str:
    """Carries out the assignments that count; gives what stands behind ``queue``."""
    # One entry per open if: does it count itself, its present branch, and did one count already?
    branches: list[tuple[bool, bool, bool]] = []
    for statement in statements:
        counts = not branches or (branches[-1][0] and branches[-1][1])
        match statement.word:
            case _Word.SET:
                if counts:
                    macros.set(statement.key, statement.value)
            case _Word.IF:
                holds = counts and _holds(statement.value, macros)
                branches.append((counts, holds, holds))
            case _Word.ELIF | _Word.ELSE if branches:
                around, _, done = branches.pop()
                holds = not done and (
                    statement.word is _Word.ELSE or _holds(statement.value, macros)
                )
                branches.append((around, holds, done or holds))
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


# --- the submissions of many nodes ----------------------------------------------------------

#: Stands for the value of a macro while a form is made: with its place in between.
_MARK = "\0"
_MARKED = re.compile(f"{_MARK}([0-9]+){_MARK}")

#: Longest value, and longest list of them, that a form is filled in with: far below what
#: :data:`_LONGEST_VALUE` would cut off somewhere on the way.
_LONGEST_FILLED = 4096


class QueueStatements:
    """:func:`submission` of one description for many nodes. Most of them differ in the values of
    some macros only: what comes of the description is then found once for the names."""

    def __init__(self, description: Description) -> None:
        self._description = description
        self.has_forms = _leads_the_same_way(description)
        self._forms: dict[tuple[tuple[str, ...], tuple[str, ...]], _Form | None] = {}

    def of(self, before: Mapping[str, str], after: Mapping[str, str]) -> Submission:
        if self.has_forms:
            names = (tuple(before), tuple(after))
            if names not in self._forms:
                self._forms[names] = _form(self._description, *names)
            form = self._forms[names]
            if form is not None:
                said = form.filled_in((*before.values(), *after.values()))
                if said is not None:
                    return said
        return submission(self._description, before, after)


def _leads_the_same_way(description: Description) -> bool:
    """Does it say the same whatever the values of its macros are, but for the values? Not where
    a condition or the number of procs asks for one, nor where a macro is put together from what it
    was before."""
    for statement in description.statements:
        if _MARK in statement.value:
            return False
        value = statement.value.lower()
        asked = f"$({statement.key})" if statement.word is _Word.SET else "$("
        if asked in value:
            return False
    return True


@frozen
class _Form:
    """The values of :data:`_SAID`, each as a format and the places of the values that it takes;
    ``always`` is the submission, where none takes any."""

    parts: tuple[tuple[str | None, tuple[int, ...]], ...]
    queue_count: int | None
    always: Submission | None

    def filled_in(self, values: tuple[str, ...]) -> Submission | None:
        """None where one of the values might lead another way."""
        together = "".join(values)
        if "$" in together or len(together) > _LONGEST_FILLED or "" in values:
            return None
        if self.always is not None:
            return self.always
        expanded = [
            form % tuple([values[place] for place in places]) if form and places else form
            for form, places in self.parts
        ]
        if any(value and len(value) > _LONGEST_FILLED for value in expanded):
            return None
        return _submission(expanded, self.queue_count)


def _form(
    description: Description, before: tuple[str, ...], after: tuple[str, ...]
) -> _Form | None:
    """What comes of it for any values of these names; None where that depends on them."""
    marks = [f"{_MARK}{place}{_MARK}" for place in range(len(before) + len(after))]
    expanded, count = _expanded(
        description,
        dict(zip(before, marks, strict=False)),
        dict(zip(after, marks[len(before) :], strict=True)),
    )
    if any(value and len(value) > _LONGEST_FILLED for value in expanded):
        return None
    parts = tuple(_part(value) for value in expanded)
    always = None if any(places for _, places in parts) else _submission(expanded, count)
    return _Form(parts, count, always)


def _part(value: str | None) -> tuple[str | None, tuple[int, ...]]:
    places = tuple(int(place) for place in _MARKED.findall(value or ""))
    if value is None or not places:
        return value, ()
    return _MARKED.sub("%s", value.replace("%", "%%")), places
