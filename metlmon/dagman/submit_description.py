"""Evaluates submit descriptions: paths of log and output, GPUs, number of jobs.

Source followed: HTCondor manual, "condor_submit" ("Submit description file commands",
"Macros", "If/Else"). Values of ``environment`` are dropped while reading: real files contain
secrets in them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum

from metlmon.dagman.lexer import integer
from metlmon.frozen import frozen

#: Reads the lines of a file named by ``include : name``; None when there is none.
Include = Callable[[str], Sequence[str] | None]

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

_ENVIRONMENT = frozenset({"environment", "environment2", "env"})

#: Macros defined only when the job exists or runs: they are not expanded.
_UNEXPANDED = frozenset(
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


class _Keyword(Enum):
    SET = "set"
    IF = "if"
    ELIF = "elif"
    ELSE = "else"
    ENDIF = "endif"
    QUEUE = "queue"


@frozen
class _Statement:
    keyword: _Keyword
    key: str
    value: str


@frozen
class Description:
    """A parsed submit description that can be evaluated for any number of nodes."""

    statements: tuple[_Statement, ...]


@frozen
class Submission:
    """The result of a submit description for one node.

    Paths are as written there, joined to ``initialdir``; ``request_gpus`` is None when absent
    or an expression; ``queue_count`` is None when it does not follow from the text.
    """

    log: str | None
    output: str | None
    error: str | None
    request_gpus: int | None
    queue_count: int | None


def is_environment(key: str) -> bool:
    """Whether this submit command or job attribute is a job's environment."""
    name = key.lower().removeprefix("+").removeprefix("my.")
    return name in _ENVIRONMENT


def parse_description(lines: Iterable[str], include: Include | None = None) -> Description:
    """Parse the statements of a description up to its first ``queue``. Never raises."""
    statements: list[_Statement] = []
    source = _with_includes(lines, include)
    open_ifs = 0
    for line in source:
        if tagged := _TAGGED.match(line):
            value = _lines_until(source, f"@{tagged[2]}")
            _add_assignment(statements, tagged[1], "\n".join(value))
        elif assignment := _ASSIGNMENT.match(line):
            _add_assignment(statements, assignment[1], assignment[2].strip())
        elif directive := _DIRECTIVE.match(line):
            keyword = _Keyword(directive[1].lower())
            value_text = directive[2].strip()
            if keyword is _Keyword.QUEUE and value_text.endswith("("):
                value_text = "\n".join([value_text, *_lines_until(source, ")"), ")"])
            statements.append(_Statement(keyword, "", value_text))
            open_ifs += (keyword is _Keyword.IF) - (keyword is _Keyword.ENDIF)
            if keyword is _Keyword.QUEUE and open_ifs <= 0:
                break
        if len(statements) >= _MAX_STATEMENTS:
            break
    return Description(tuple(statements))


def _with_includes(lines: Iterable[str], include: Include | None) -> Iterator[str]:
    """The joined lines, with includes replaced by the lines of the files."""
    open_files = [_join_lines(lines)]
    includes_left = _MAX_INCLUDES if include is not None else 0
    while open_files:
        line = next(open_files[-1], None)
        if line is None:
            open_files.pop()
        elif not (included := _INCLUDED.match(line)):
            yield line
        elif include is not None and includes_left:
            includes_left -= 1
            open_files.append(_join_lines(include(included[1].strip()) or ()))


def _join_lines(lines: Iterable[str]) -> Iterator[str]:
    """Lines without comments, with continuation lines joined."""
    continued = ""
    for raw in lines:
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line.endswith("\\"):
            continued += line[:-1]
            continue
        yield continued + line
        continued = ""
    if continued:
        yield continued


def _lines_until(source: Iterable[str], end: str) -> list[str]:
    block = []
    for line in source:
        if line.strip() == end:
            break
        block.append(line)
    return block


def _add_assignment(statements: list[_Statement], key: str, value: str) -> None:
    if not is_environment(key):
        name = f"my.{key[1:]}" if key.startswith("+") else key
        statements.append(_Statement(_Keyword.SET, name.lower(), value))


class _Macros:
    """The macro table while one description is evaluated for one node."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values
        self.unexpanded: set[str] = set(_UNEXPANDED)
        self._characters_left = _MAX_EXPANDED

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
        self._characters_left -= len(value)
        if len(value) > _MAX_VALUE or self._characters_left < 0:
            return None
        pieces: list[str] = []
        size = position = 0
        for match in _MACRO.finditer(value):
            replacement = self._replacement(match, depth)
            if replacement is None:
                return None
            pieces += [value[position : match.start()], replacement]
            size += len(pieces[-2]) + len(replacement)
            position = match.end()
            if size > _MAX_VALUE:
                return None
        pieces.append(value[position:])
        return "".join(pieces)

    def _replacement(self, match: re.Match[str], depth: int) -> str | None:
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
                return match[0] if name in self.unexpanded else ""
            value = match[2]
        return self.expand(value, depth - 1)


def submission(
    description: Description, before: Mapping[str, str], after: Mapping[str, str]
) -> Submission:
    """Evaluate ``description`` for one node.

    ``before`` are macros set before the description is read (DAGMan's own and VARS
    PREPEND, the default), which it may override; ``after`` override it (VARS APPEND).
    """
    expanded, count = _evaluate(description, before, after)
    return _submission(expanded, count)


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
    macros = _Macros({key.lower(): value for key, value in before.items()})
    _execute(description.statements, macros)
    for key, value in after.items():
        macros.set(key.lower(), value)
    return {name: _expanded_value(macros, name) for name in names}


#: The commands that set each field of a submission; the first one present counts.
_COMMANDS = (
    ("initialdir", "initial_dir"),
    ("log", "userlog"),
    ("output", "stdout", "out"),
    ("error", "stderr", "err"),
    ("request_gpus",),
)


def _evaluate(
    description: Description, before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[list[str | None], int | None]:
    """The expanded values of :data:`_COMMANDS`, and the number of procs."""
    macros = _Macros({key.lower(): value for key, value in before.items()})
    queue = _execute(description.statements, macros)
    for key, value in after.items():
        macros.set(key.lower(), value)
    # First, since the names of its items are then not expanded in the other values.
    count = _count_procs(queue, macros)
    return [_expanded_value(macros, *keys) for keys in _COMMANDS], count


def _expanded_value(macros: _Macros, *keys: str) -> str | None:
    for key in keys:
        if (raw := macros.values.get(key)) is not None:
            return macros.expand(raw)
    return None


def _submission(expanded: Sequence[str | None], count: int | None) -> Submission:
    folder, log, output, error, gpus = [(value and value.strip()) or None for value in expanded]
    return Submission(
        log=_join_path(folder or "", log),
        output=_join_path(folder or "", output),
        error=_join_path(folder or "", error),
        request_gpus=integer(gpus) if gpus is not None and gpus.isdecimal() else None,
        queue_count=count,
    )


def _join_path(folder: str, name: str | None) -> str | None:
    return posixpath.join(folder, name) if name is not None and folder else name


def _execute(statements: tuple[_Statement, ...], macros: _Macros) -> str:
    """Execute the assignments of active branches; return the arguments of ``queue``."""
    # One entry per open if: is it active, is its current branch, and was any branch taken?
    branches: list[tuple[bool, bool, bool]] = []
    for statement in statements:
        active = not branches or (branches[-1][0] and branches[-1][1])
        match statement.keyword:
            case _Keyword.SET:
                if active:
                    macros.set(statement.key, statement.value)
            case _Keyword.IF:
                condition = active and _condition_holds(statement.value, macros)
                branches.append((active, condition, condition))
            case _Keyword.ELIF | _Keyword.ELSE if branches:
                outer, _, taken = branches.pop()
                condition = not taken and (
                    statement.keyword is _Keyword.ELSE or _condition_holds(statement.value, macros)
                )
                branches.append((outer, condition, taken or condition))
            case _Keyword.ENDIF if branches:
                branches.pop()
            case _Keyword.QUEUE if active:
                return statement.value
            case _:
                pass
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
        holds = text in _TRUE or bool(integer(text)) or bool(_VERSION.match(text))
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


# --- the submissions of many nodes ----------------------------------------------------------

#: Delimits the index of a macro's value while a template is built.
_MARK = "\0"
_MARKED = re.compile(f"{_MARK}([0-9]+){_MARK}")

#: Characters of a value, and of all values together, that a template is used for: far below
#: the point at which :data:`_MAX_VALUE` would truncate an intermediate value.
_MAX_TEMPLATE_VALUE = 4096


class QueueStatements:
    """Evaluates one description for many nodes, like :func:`submission`.

    Most nodes differ only in the values of some macros: the description is then evaluated once
    per set of macro names, as a template.
    """

    def __init__(self, description: Description) -> None:
        self._description = description
        self.has_templates = _is_independent_of_values(description)
        self._templates: dict[tuple[tuple[str, ...], tuple[str, ...]], _Template | None] = {}

    def of(self, before: Mapping[str, str], after: Mapping[str, str]) -> Submission:
        if self.has_templates:
            names = (tuple(before), tuple(after))
            if names not in self._templates:
                self._templates[names] = _build_template(self._description, *names)
            template = self._templates[names]
            if template is not None:
                result = template.render((*before.values(), *after.values()))
                if result is not None:
                    return result
        return submission(self._description, before, after)


def _is_independent_of_values(description: Description) -> bool:
    """Whether the evaluation takes the same path for all values of its macros.

    Not if a condition or the number of procs uses a macro, or a macro its own old value.
    """
    for statement in description.statements:
        if _MARK in statement.value:
            return False
        value = statement.value.lower()
        reference = f"$({statement.key})" if statement.keyword is _Keyword.SET else "$("
        if reference in value:
            return False
    return True


@frozen
class _Template:
    """The values of :data:`_COMMANDS`, each as a format and the indices of its values.

    ``constant`` is the submission if no part takes any value.
    """

    parts: tuple[tuple[str | None, tuple[int, ...]], ...]
    queue_count: int | None
    constant: Submission | None

    def render(self, values: tuple[str, ...]) -> Submission | None:
        """The submission for ``values``; None if one of them might change the evaluation."""
        joined = "".join(values)
        if "$" in joined or len(joined) > _MAX_TEMPLATE_VALUE or "" in values:
            return None
        if self.constant is not None:
            return self.constant
        expanded = [
            text % tuple([values[index] for index in indices]) if text and indices else text
            for text, indices in self.parts
        ]
        if any(value and len(value) > _MAX_TEMPLATE_VALUE for value in expanded):
            return None
        return _submission(expanded, self.queue_count)


def _build_template(
    description: Description, before: tuple[str, ...], after: tuple[str, ...]
) -> _Template | None:
    """Evaluate for any values of these names; None if a result is too long."""
    marks = [f"{_MARK}{index}{_MARK}" for index in range(len(before) + len(after))]
    expanded, count = _evaluate(
        description,
        dict(zip(before, marks, strict=False)),
        dict(zip(after, marks[len(before) :], strict=True)),
    )
    if any(value and len(value) > _MAX_TEMPLATE_VALUE for value in expanded):
        return None
    parts = tuple(_template_part(value) for value in expanded)
    constant = None if any(indices for _, indices in parts) else _submission(expanded, count)
    return _Template(parts, count, constant)


def _template_part(value: str | None) -> tuple[str | None, tuple[int, ...]]:
    indices = tuple(int(index) for index in _MARKED.findall(value or ""))
    if value is None or not indices:
        return value, ()
    return _MARKED.sub("%s", value.replace("%", "%%")), indices
