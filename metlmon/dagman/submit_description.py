"""Parses submit descriptions, and evaluates them for a node.

Source followed: HTCondor manual, "condor_submit" ("Submit description file commands",
"Macros", "If/Else"). Statements contain secrets, since real files have them in ``environment``;
no macro has that name, so that nothing expands to its value.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import ceil
from sys import intern
from typing import Final, NamedTuple

from msgspec import Struct

from metlmon.dagman.lexer import Line, integer

#: More than any real description has; ends files that include themselves.
_MAX_INCLUDES = 100

#: Nesting depth of macros: HTCondor itself rejects loops.
_MACRO_DEPTH = 32

#: Characters of a value that is expanded; a path has 4 KB at most. Stops ``$(a)$(a)`` bombs.
_MAX_VALUE = 16_384

#: Characters searched for macros per description and node: 100 times those of real ones.
#: Stops bombs that expand to nothing but double at each level.
_MAX_EXPANDED = 262_144

#: Statements of one description: a file that includes itself 100 times would exhaust the memory.
_MAX_STATEMENTS = 20_000

COMMON_COMMANDS: Final = frozenset(
    """
    executable universe queue requirements transfer_input_files request_cpus request_memory
    request_disk request_gpus
    """.split()
)
"""Commands found in nearly every submit description, and hardly elsewhere."""

_ENVIRONMENT = frozenset({"environment", "environment2", "env"})

TRUE_WORDS: Final = frozenset({"true", "t", "yes", "y", "1"})
FALSE_WORDS: Final = frozenset({"false", "f", "no", "n", "0"})
"""Values of submit commands that are true or false, in lower case."""

#: Macros defined only when the job exists or runs: they are not expanded.
_UNEXPANDED = frozenset(
    """
    step row item itemindex node retry dag_status failed_count dagmanjobid dag_id max_retries
    dag_parent_names year month day submit_time submit_file
    """.split()
)
_IDS = {
    "cluster": "$(Cluster)",
    "clusterid": "$(Cluster)",
    "process": "$(Process)",
    "procid": "$(Process)",
}

_ASSIGNMENT = re.compile(r"([+\w.-]++)[ \t]*+=(.*+)", re.DOTALL)
_TAGGED = re.compile(r"([+\w.-]++)[ \t]*+@=([^\s]++)$")
_DIRECTIVE = re.compile(r"(if|elif|else|endif|queue)\b(.*+)", re.DOTALL | re.IGNORECASE)
_INCLUDE = re.compile(r"include(?:[ \t]++(\w++))?[ \t]*+:(.*+)", re.IGNORECASE | re.DOTALL)
_OTHER = re.compile(r"(?:use|error|warning)\b.*:|use[ \t]", re.IGNORECASE)
_MACRO = re.compile(r"(?<!\$)\$\(([\w.]++)(?::((?:[^()]|\([^()]*+\))*))?\)")
_CONDITION = re.compile(r"(!?)[ \t]*+(defined\b)?[ \t]*+(.*+)", re.DOTALL | re.IGNORECASE)
_VERSION = re.compile(r"version[ \t]*+(>=|>|!=)", re.IGNORECASE)
_ANNEX_NAME = re.compile(
    r"\b(?:TARGET\.)?AnnexName\s*(?:==|=\?=|\bis\b)\s*\"(?P<name>[^\"\\]{1,200})\"", re.IGNORECASE
)
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(?:([kmgt])b?)?", re.IGNORECASE)
_KB = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3}
_ITEMS = re.compile(r"\b(in|from|matching)\b", re.IGNORECASE)

Include = Callable[[str], tuple[str, Sequence[str]] | None]
"""Returns the name and the lines of the file in ``include : name``; None if it is missing."""


class Statement(Struct, frozen=True):
    """``key = value`` with file and line; the key is in lower case, ``my.`` for ``+``.

    A directive (``if``, ``queue``) has its keyword as the key, and ``directive`` set.
    """

    file: str
    line: int
    key: str
    value: str
    directive: bool = False


class Description(Struct):
    """A parsed submit description, up to its first ``queue``, for any number of nodes.

    ``file`` and ``line``: where it begins. ``stray``: lines that are not statements.
    ``unresolved``: it includes an unreadable file, which may contain missing commands.
    ``recognized``: those of its files with one of :data:`COMMON_COMMANDS`; any other file may be
    named by mistake or malice, and is not quoted. ``assignments``: the final values of its macros
    where they do not depend on those of the node: it has no condition, and no macro refers to
    its own old value; else None.
    """

    file: str
    line: int
    statements: list[Statement] = []
    stray: list[Statement] = []
    unresolved: bool = False
    recognized: set[str] = set()
    assignments: Mapping[str, str] | None = None

    def last(self, *keys: str) -> Statement | None:
        """The last assignment of one of these keys."""
        for statement in reversed(self.statements):
            if statement.key in keys and not statement.directive:
                return statement
        return None


class Submission(Struct, frozen=True):
    """What a submit description determines of a node's jobs, besides their files.

    ``queue_count``: the number of procs (``queue N``), None if unknown. ``annex``: the only annex
    in which they may run [TargetAnnexName], None for any. ``lease``: the seconds for which they run
    on without their access point [JobLeaseDuration], None for the default. ``universe`` is in lower
    case. ``gpus_minimum_memory`` is in MB, None when absent or an expression.
    """

    queue_count: int | None = 1
    annex: str | None = None
    lease: int | None = None
    universe: str | None = None
    gpus_minimum_memory: int | None = None


class Evaluation(Struct, frozen=True):
    """A submit description evaluated for one node.

    Paths are as written there, joined to ``initialdir``. ``work``: assignments made and characters
    expanded.
    """

    log: str | None
    output: str | None
    error: str | None
    submission: Submission
    work: int


def string_value(expression: str | None) -> str | None:
    """The text of a ClassAd string, None if the expression is anything else."""
    found = re.fullmatch(r'\s*"([^"\\]{1,200})"\s*', expression or "")
    return found[1] if found is not None else None


def kilobytes(text: str | None, unit: str = "m") -> int | None:
    """``16GB``, ``16000 MB`` or ``16000`` (in ``unit``) in KB, rounded up; None: an expression."""
    found = _SIZE.fullmatch(text.strip()) if text else None
    return None if found is None else ceil(float(found[1]) * _KB[(found[2] or unit).lower()])


def file_names(value: str) -> list[str]:
    """The files in the value of ``transfer_input_files`` and the like."""
    return [*filter(None, map(str.strip, value.strip().strip('"').split(",")))]


def is_environment(key: str) -> bool:
    """Whether this submit command or job attribute is a job's environment."""
    name = key.lower().removeprefix("+").removeprefix("my.")
    return name in _ENVIRONMENT


# --- statements ------------------------------------------------------------------------------


def parse_description(
    lines: Iterable[str], include: Include | None = None, file: str = ""
) -> Description:
    """Parse the lines of a submit file called ``file``. Never raises."""
    numbered = [Line(number, text) for number, text in enumerate(lines, start=1)]
    return parse_lines(numbered, include, file)


def parse_lines(
    lines: Sequence[Line], include: Include | None = None, file: str = ""
) -> Description:
    """Like :func:`parse_description`, for lines with their numbers in ``file``."""
    description = Description(file, lines[0].number if lines else 1)
    _read_statements(description, lines, include)
    description.assignments = _final_assignments(description.statements)
    return description


def _read_statements(
    description: Description, lines: Sequence[Line], include: Include | None
) -> None:
    """Add the statements of the description, and of the files that it includes."""
    open_files = [(description.file, _join_lines(lines))]
    includes_left, open_ifs = _MAX_INCLUDES, 0
    while open_files and len(description.statements) < _MAX_STATEMENTS:
        file, source = open_files[-1]
        if (line := next(source, None)) is None:
            open_files.pop()
        elif tagged := _TAGGED.match(line.text):
            value = "\n".join(_lines_until(source, f"@{tagged[2]}"))
            _add(description, Statement(file, line.number, _key(tagged[1]), value))
        elif assignment := _ASSIGNMENT.match(line.text):
            value = assignment[2].strip()
            _add(description, Statement(file, line.number, _key(assignment[1]), value))
        elif directive := _DIRECTIVE.match(line.text):
            keyword, value = directive[1].lower(), directive[2].strip()
            if keyword == "queue" and value.endswith("("):
                value = "\n".join([value, *_lines_until(source, ")"), ")"])
            _add(description, Statement(file, line.number, keyword, value, directive=True))
            open_ifs += (keyword == "if") - (keyword == "endif")
            if keyword == "queue" and open_ifs <= 0:
                return
        elif included := _INCLUDE.match(line.text):
            # "include command" would run a program.
            is_file = (included[1] or "ifexist").lower() == "ifexist"
            content = include(included[2].strip()) if is_file and include is not None else None
            if content is None or not includes_left:
                description.unresolved = True
            else:
                includes_left -= 1
                inner = (Line(number, text) for number, text in enumerate(content[1], start=1))
                open_files.append((content[0], _join_lines(inner)))
        elif not _OTHER.match(line.text):
            description.stray.append(Statement(file, line.number, "", line.text))


def _add(description: Description, statement: Statement) -> None:
    description.statements.append(statement)
    if statement.key in COMMON_COMMANDS:
        description.recognized.add(statement.file)


def _key(name: str) -> str:
    return f"my.{name[1:]}".lower() if name.startswith("+") else name.lower()


def _join_lines(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines without comments, continuations joined, numbered by their first."""
    parts: list[str] = []
    first = 0
    for line in lines:
        text = line.text.strip()
        if not text or text.startswith("#"):
            continue
        first = first if parts else line.number
        parts.append(text.removesuffix("\\"))
        if not text.endswith("\\"):
            yield Line(first, "".join(parts))
            parts = []
    if parts:
        yield Line(first, "".join(parts))


def _lines_until(source: Iterable[Line], end: str) -> list[str]:
    """The lines up to ``end``, which is consumed."""
    block = []
    for line in source:
        if line.text.strip() == end:
            break
        block.append(line.text)
    return block


def _final_assignments(statements: Iterable[Statement]) -> dict[str, str] | None:
    assignments: dict[str, str] = {}
    for statement in statements:
        if statement.directive:
            if statement.key != "queue":
                return None
        elif not is_environment(statement.key):
            if f"$({statement.key})" in statement.value.lower():
                return None
            assignments[statement.key] = statement.value
    return assignments


# --- values for a node -----------------------------------------------------------------------


class _Reference(NamedTuple):
    """A reference ``$(name)`` or ``$(name:default)`` to a macro in a value.

    ``before``: the characters between the previous reference and this one.
    """

    before: str
    text: str
    name: str
    default: str | None


@lru_cache(maxsize=256)
def _split(value: str) -> tuple[tuple[_Reference, ...], str]:
    """Split a value into its references to macros, and the text after the last one.

    Cached: the values of a description are expanded for each of its nodes.
    """
    references, position = [], 0
    for match in _MACRO.finditer(value):
        before = value[position : match.start()]
        references.append(_Reference(before, match[0], match[1].lower(), match[2]))
        position = match.end()
    return tuple(references), value[position:]


class _Macros:
    """The macro table while one description is evaluated for one node."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values
        self.unexpanded: set[str] = set()
        self.characters_left = _MAX_EXPANDED

    def set(self, key: str, value: str) -> None:
        """Assign a value; a reference to its own key is replaced by the old value now."""
        if "$(" in value and f"$({key})" in value.lower():
            old = self.values.get(key, "")
            max_count = _MAX_VALUE // max(1, len(old)) + 1
            name = rf"\$\({re.escape(key)}\)"
            value = re.sub(
                name, lambda _: old, value[:_MAX_VALUE], count=max_count, flags=re.IGNORECASE
            )
            value = value[:_MAX_VALUE]
        self.values[key] = value

    def expand(self, value: str, depth: int = _MACRO_DEPTH) -> str | None:
        """Expand the macros in ``value``; None when they loop or exceed the limits.

        ``$F…(x)``, ``$ENV(x)``, ``$$(x)`` and similar forms are not expanded.
        """
        if "$(" not in value:
            return value
        self.characters_left -= len(value)
        if len(value) > _MAX_VALUE or self.characters_left < 0:
            return None
        references, tail = _split(value)
        pieces: list[str] = []
        size = 0
        for reference in references:
            before, _, name, _ = reference
            replacement = self.values.get(name) if depth else None
            if replacement is None or "$(" in replacement or name in _IDS:
                replacement = self._replacement(reference, depth)
                if replacement is None:
                    return None
            pieces += (before, replacement)
            size += len(before) + len(replacement)
            if size > _MAX_VALUE:
                return None
        pieces.append(tail)
        return "".join(pieces)

    def _replacement(self, reference: _Reference, depth: int) -> str | None:
        name = reference.name
        if name in _IDS:
            return _IDS[name]
        if depth == 0:
            return None
        value = self.values.get(name)
        if value is None:
            if name == "dollar":
                return "$"
            if reference.default is None:
                is_kept = name in _UNEXPANDED or name in self.unexpanded
                return reference.text if is_kept else ""
            value = reference.default
        return self.expand(value, depth - 1) if "$(" in value else value


def submission(
    description: Description, before: Mapping[str, str], after: Mapping[str, str]
) -> Evaluation:
    """Evaluate ``description`` for one node.

    ``before`` are macros set before the description is read (DAGMan's own and VARS
    PREPEND, the default), which it may override; ``after`` override it (VARS APPEND).
    """
    macros, count = _macros(description, before, after)
    expanded = [_expanded_value(macros, *keys) for keys in _COMMANDS]
    values = [(value and value.strip()) or None for value in expanded]
    folder, log, output, error, annex, requirements, lease, universe, memory = values
    kb = kilobytes(memory)
    wanted = _ANNEX_NAME.search(requirements) if requirements is not None else None
    determined = Submission(
        queue_count=count,
        annex=string_value(annex) or (wanted["name"] if wanted is not None else None),
        lease=integer(lease) if lease is not None and lease.isdecimal() else None,
        universe=intern(universe.lower()) if universe is not None else None,
        gpus_minimum_memory=None if kb is None else -(-kb // 1024),
    )
    return Evaluation(
        log=_join_path(folder or "", log),
        output=_join_path(folder or "", output),
        error=_join_path(folder or "", error),
        submission=determined,
        work=len(description.statements) + _MAX_EXPANDED - macros.characters_left,
    )


def command_values(
    description: Description,
    before: Mapping[str, str],
    after: Mapping[str, str],
    names: Iterable[str],
) -> dict[str, str | None]:
    """Evaluate the given submit commands for one node; names in lower case.

    ``before`` and ``after`` as for :func:`submission`. A value is None when the command is
    absent or its macros loop.
    """
    macros, _ = _macros(description, before, after)
    return {name: _expanded_value(macros, name) for name in names}


#: The commands that set each field of a submission; the first one present counts.
_COMMANDS = (
    ("initialdir", "initial_dir"),
    ("log", "userlog"),
    ("output", "stdout", "out"),
    ("error", "stderr", "err"),
    ("my.targetannexname",),
    ("requirements",),
    ("job_lease_duration", "my.jobleaseduration"),
    ("universe",),
    ("gpus_minimum_memory",),
)


def _macros(
    description: Description, before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[_Macros, int | None]:
    """The macro table after the whole description, and the number of procs, None if unknown."""
    macros = _Macros({key.lower(): value for key, value in before.items()})
    if description.assignments is None:
        queue = _execute(description.statements, macros)
    else:
        macros.values.update(description.assignments)
        last = description.statements[-1] if description.statements else None
        queue = last.value if last is not None and last.directive else ""
    for key, value in after.items():
        macros.set(key.lower(), value)
    # The names of the items of ``queue`` are not expanded from now on: each proc has its own.
    return macros, _count_procs(queue, macros)


def _expanded_value(macros: _Macros, *keys: str) -> str | None:
    for key in keys:
        if (raw := macros.values.get(key)) is not None:
            return macros.expand(raw) if "$(" in raw else raw
    return None


def _join_path(folder: str, name: str | None) -> str | None:
    return posixpath.join(folder, name) if name is not None and folder else name


def _execute(statements: Iterable[Statement], macros: _Macros) -> str:
    """Execute the assignments of active branches; return the arguments of ``queue``."""
    # Per open if: whether it is active, its current branch is, and any branch was taken.
    branches: list[tuple[bool, bool, bool]] = []
    for statement in statements:
        active = not branches or (branches[-1][0] and branches[-1][1])
        key, value = statement.key, statement.value
        if not statement.directive:
            if active and not is_environment(key):
                macros.set(key, value)
        elif key == "queue":
            if active:
                return value
        elif key == "if":
            condition = active and _condition_holds(value, macros)
            branches.append((active, condition, condition))
        elif branches:
            outer, _, taken = branches.pop()
            if key != "endif":
                condition = not taken and (key == "else" or _condition_holds(value, macros))
                branches.append((outer, condition, taken or condition))
    return ""


def _condition_holds(condition: str, macros: _Macros) -> bool:
    """Evaluate ``[!] defined name``, a boolean or number, or ``version >= …``.

    HTCondor is assumed to be newer than any version compared with; a condition that HTCondor
    would reject is false.
    """
    match = _CONDITION.match(condition)
    assert match is not None  # every part of the pattern may be empty
    negated, defined, rest = bool(match[1]), match[2], match[3].strip()
    if defined:
        name = macros.expand(rest) if "$(" in rest else rest
        holds = bool(name) and bool(macros.values.get((name or "").lower()))
    else:
        text = (macros.expand(rest) or "").strip().lower()
        holds = text in TRUE_WORDS or bool(integer(text)) or bool(_VERSION.match(text))
    return holds != negated


def _count_procs(text: str, macros: _Macros) -> int | None:
    """The number of procs of ``queue TEXT``: 1 if empty, None if items are elsewhere."""
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
    macros.unexpanded |= {name.lower() for name in re.split(r"[,\s]+", names) if name}
    items = expanded[match.end() :].strip()
    if not items.startswith("(") or not items.endswith(")") or match[1].lower() == "matching":
        return None
    inner = items[1:-1]
    is_from = match[1].lower() == "from"
    item_list = inner.split("\n") if is_from else re.split(r"[,\s]+", inner)
    count = sum(1 for item in item_list if item.strip())
    procs_per_item = integer(times)
    return None if procs_per_item is None else count * procs_per_item
