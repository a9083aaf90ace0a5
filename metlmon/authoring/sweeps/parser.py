"""Parser of sweep files and of their template files: bytes to commands.

Comments, continuations, quotes and case are handled as by DAGMan. Commands that metlmon need not
interpret are kept as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from os.path import exists
from pathlib import Path
from typing import Final

from metlmon.authoring.manifest import kept_source
from metlmon.authoring.request import PlanError, SweepMode
from metlmon.authoring.sweeps.commands import (
    GenCommand,
    GlobalCommand,
    NodeDeclaration,
    ParentChild,
    RegionCommand,
    Splice,
    SweepCommand,
    SweepDescription,
    SweepNodeCommand,
    VarsLine,
)
from metlmon.authoring.sweeps.placeholders import BUILTIN_NAMES, nearest
from metlmon.authoring.sweeps.values import duplicate_variable, labelled_values
from metlmon.authoring.variables import has_meaning
from metlmon.dagman import NodeKind
from metlmon.dagman.lexer import Line, LogicalLines, SyntaxFault, Tokens, shown, without_secrets_of
from metlmon.dagman.parser import READERS
from metlmon.dagman.submit_description import is_environment

MAX_FILE_BYTES: Final = 16 << 20
"""Size limit of one file; exceeds any DAG that may result."""

MOST_COMMANDS: Final = 400_000
MOST_INCLUDES: Final = 100
MAX_DEPTH: Final = 10
"""Most levels of nested INCLUDE."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_GROUP: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_VARIABLE: Final = re.compile(r"(?:\+|[Mm][Yy]\.)?[A-Za-z_][A-Za-z0-9_]{0,199}")

KINDS: Final = {
    "JOB": NodeKind.JOB,
    "SUBDAG": NodeKind.SUBDAG,
    "FINAL": NodeKind.FINAL,
    "PROVISIONER": NodeKind.PROVISIONER,
    "SERVICE": NodeKind.SERVICE,
}
NODE_COMMANDS: Final = frozenset(
    {
        *("RETRY", "PRE_SKIP", "ABORT_DAG_ON", "PRIORITY", "CATEGORY", "DONE", "TOLERANCE"),
        "SAVE_POINT_FILE",
    }
)
DAG_COMMANDS: Final = frozenset(
    {
        *("MAXJOBS", "CONFIG", "DOT", "NODE_STATUS_FILE", "JOBSTATE_LOG", "SET_JOB_ATTR", "ENV"),
        *("REJECT", "CONNECT", "PIN_IN", "PIN_OUT"),
    }
)
_PER_NODE_VARIABLES: Final = frozenset({"epoch", "node", "run_uuid", "continue_from_checkpoint"})
"""Variables that the trainer needs per node, which cannot be swept per run."""

KEYWORDS: Final = frozenset({*READERS, "GEN", "REGION"})

_VALUE_LINE: Final = re.compile(r"^[^A-Za-z]|,|^[^ \t]+$| to ", re.IGNORECASE)

_GEN_USAGE: Final = (
    "write 'GEN SUBDAG group file.subdag a, b from' (or 'from zip', 'from product'), and the "
    "values of each variable on a line of its own below"
)
_REGION_USAGE: Final = "write 'REGION name { node node }', with blanks around the braces"


class SweepFiles:
    """The files read for one sweep, by the names that the sweep uses.

    Names are relative to the sweep's directory. ``is_copy``: the sweep may be the copy beside its
    DAG.
    """

    def __init__(self, directory: Path, is_copy: bool) -> None:
        self.directory = directory
        self._is_copy = is_copy
        self.contents: dict[str, bytes] = {}
        """The contents of the files read, by name."""
        self._commands_left = MOST_COMMANDS
        self._includes_left = MOST_INCLUDES

    def commands(self, name: str, named_at: str = "") -> list[SweepCommand]:
        """All commands of a file, with included files expanded in place.

        ``named_at``: the position that names the file. Raises PlanError.
        """
        return self._read_file(name, named_at, ())

    def _path(self, name: str) -> Path:
        """The file's path; of a copied sweep, that of the copy if there is no original."""
        path, copy = self.directory / name, self.directory / kept_source(name)
        return copy if self._is_copy and not exists(path) and exists(copy) else path

    def _read_file(
        self, name: str, named_at: str, including: tuple[str, ...]
    ) -> list[SweepCommand]:
        data = self.contents[name] = _read_bytes(self._path(name), name, named_at)
        text = _decode(data, name)
        commands: list[SweepCommand] = []
        for command in _Parser(name, text).commands():
            self._commands_left -= 1
            if self._commands_left < 0:
                raise PlanError(f"{command.where}: more than {MOST_COMMANDS} lines; make two DAGs")
            if not (isinstance(command, GlobalCommand) and command.keyword == "INCLUDE"):
                commands.append(command)
                continue
            self._includes_left -= 1
            if command.text in (*including, name):
                raise PlanError(f"{command.where}: {shown(command.text)} leads back to itself")
            if len(including) >= MAX_DEPTH or self._includes_left < 0:
                raise PlanError(f"{command.where}: too many files within files; join some of them")
            commands += self._read_file(command.text, command.where, (*including, name))
        return commands


def _read_bytes(path: Path, name: str, named_at: str) -> bytes:
    prefix = f"{named_at}: " if named_at else ""
    try:
        if not path.is_file():
            kind = "is no file" if path.exists() else "is not there"
            directory = path.parent if str(path.parent) != "." else "the current directory"
            raise PlanError(f"{prefix}{shown(name)} {kind}; it is looked for in {directory}")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name cannot be a file's"
        raise PlanError(f"{prefix}{shown(name)} cannot be read: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        raise PlanError(
            f"{prefix}{shown(name)} is larger than {MAX_FILE_BYTES >> 20} MB; make two DAGs"
        )
    return data


def _decode(data: bytes, name: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PlanError(f"{name}:{line}: not UTF-8 text; save the file as UTF-8") from None
    if control := _CONTROL.search(text):
        line = text[: control.start()].count("\n") + 1
        raise PlanError(f"{name}:{line}: a control character; take it out")
    content = text.rstrip()
    if content.endswith("\\") and not content[content.rfind("\n") + 1 :].lstrip().startswith(
        ("#", "//")
    ):
        line = content.count("\n") + 1
        raise PlanError(f"{name}:{line}: the last line is continued, but nothing follows")
    return text


class _Parser:
    """Parses one file. Syntax errors are raised as PlanError with file and line."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._raw = text.split("\n")
        self._lines = LogicalLines(text.encode())
        self._after_gen = False
        self._pending: Line | None = None

    def commands(self) -> Iterator[SweepCommand]:
        while (line := self._next_line()) is not None:
            where = f"{self._name}:{line.number}"
            tokens, keyword = Tokens(line.text), "command"
            try:
                keyword = tokens.next().upper().replace("-", "_")
                parse = _READERS.get(keyword)
                if parse is None:
                    raise PlanError(f"{where}: {self._unknown_command(line, keyword)}")
                yield parse(self, where, tokens, line)
                self._after_gen = keyword == "GEN"
            except SyntaxFault as fault:
                message = without_secrets_of(line.text, str(fault))
                raise PlanError(f"{where}: {shown(keyword)}: {message}") from None

    def _next_line(self) -> Line | None:
        pending, self._pending = self._pending, None
        return pending or self._lines.logical()

    def _unknown_command(self, line: Line, keyword: str) -> str:
        if self._after_gen and _VALUE_LINE.search(line.text):
            return (
                "a line of values more than GEN names variables; name another before 'from', or "
                "take the line out"
            )
        similar = nearest(keyword, KEYWORDS)
        remedy = f"is {similar.replace('_', '-')} meant?" if similar else "take the line out"
        return f"{shown(Tokens(line.text).next())!r} is no command of a DAG file; {remedy}"

    # --- metlmon's commands -------------------------------------------------------------------

    def gen(self, where: str, tokens: Tokens, _: Line) -> SweepCommand:
        if tokens.next().upper() != "SUBDAG":
            raise PlanError(f"{where}: GEN is not followed by SUBDAG; {_GEN_USAGE}")
        group, template = tokens.next(), tokens.file()
        names, mode = _swept_names(tokens.rest(), where)
        if not _GROUP.fullmatch(group):
            raise PlanError(
                f"{where}: {shown(group)!r} cannot be a group's name: use letters, digits, '.', "
                "'_' and '-', 64 at most"
            )
        lines = []
        for index, name in enumerate(names):
            previous = self._lines.number
            line = self._next_line()
            if line is None or _is_command(line.text):
                count = f"{len(names)} variables" if len(names) > 1 else "1 variable"
                raise PlanError(
                    f"{where}: GEN names {count} ({', '.join(names)}) and has "
                    f"{index or 'no'} line{'' if index == 1 else 's'} of values below; the values "
                    f"of {name} are missing{self._misread_hint(previous, line)}"
                )
            position = f"{self._name}:{line.number}"
            values = labelled_values(line.text, f"{position}: {name}")
            labels: dict[str, str | None] = {}
            for value in values:
                if labels.setdefault(value.text, value.label) != value.label:
                    raise PlanError(
                        f"{position}: {name}: {shown(value.text)} has two labels; give it one"
                    )
            lines.append((position, values))
        return GenCommand(where, group, template, names, mode, tuple(lines))

    def _misread_hint(self, previous: int, line: Line | None) -> str:
        """A hint that a value line may have been read as a comment or command.

        ``previous``: the number of the line where the values were expected first.
        """
        last_line = line.number if line is not None else len(self._raw) + 1
        for number in range(previous, last_line):
            if self._raw[number - 1].lstrip().startswith(("#", "//")):
                return (
                    f"; line {number} is read as a comment: quote the value if it is meant as one"
                )
        if line is None:
            return ""
        return f"; line {last_line} is read as a command: quote the value if it is meant as one"

    def region(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
        name = tokens.next()
        if not _GROUP.fullmatch(name):
            raise PlanError(f"{where}: {shown(name)!r} cannot be a region's name; {_REGION_USAGE}")
        words = tokens.rest().replace(",", " ").split()
        if not words or words[0] != "{":
            raise PlanError(f"{where}: no '{{' behind the region's name; {_REGION_USAGE}")
        members = words[1:]
        while "}" not in members:
            next_line = self._lines.logical()
            if next_line is None:
                raise PlanError(
                    f"{where}: the region {name} has no '}}' at its end; {_REGION_USAGE}"
                )
            if _is_command(next_line.text):
                raise PlanError(
                    f"{self._name}:{next_line.number}: a command within the region {name}; a "
                    "region holds names of nodes, runs and groups only: end it with '}' before"
                )
            members += next_line.text.replace(",", " ").split()
        if members[-1] != "}" or members.count("}") > 1:
            raise PlanError(f"{where}: something stands behind '}}'; {_REGION_USAGE}")
        if len(members) == 1:
            raise PlanError(f"{where}: the region {name} is empty; name its nodes")
        return RegionCommand(where, name, tuple(members[:-1]))

    # --- DAGMan's commands ---------------------------------------------------------------------

    def node_declaration(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
        keyword = Tokens(line.text).next().upper()
        if keyword == "SUBDAG" and tokens.next().upper() != "EXTERNAL":
            raise SyntaxFault("Missing EXTERNAL keyword")
        name, submit = tokens.next(), tokens.file()
        if not name or not submit:
            raise PlanError(f"{where}: write '{keyword} name file'")
        if submit == "{" or submit.startswith("@="):
            raise PlanError(
                f"{where}: the description of {shown(name)} stands in the DAG file, where every "
                f"run would repeat it; put it into a file, and write '{keyword} {shown(name)} "
                "file.sub'"
            )
        noop = done = False
        while option := tokens.next().upper():
            if option == "DIR":
                raise PlanError(
                    f"{where}: DIR is not possible here; write the directory before the names in "
                    "the submit file instead (initialdir)"
                )
            if option not in ("NOOP", "DONE"):
                raise SyntaxFault(f"Unexpected token '{shown(option)}'")
            noop, done = noop or option == "NOOP", done or option == "DONE"
        return NodeDeclaration(where, KINDS[keyword], name, submit, noop, done)

    def submit_description(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
        name, opening = tokens.next(), tokens.next()
        end = (
            "}"
            if opening.startswith("{")
            else f"@{opening[2:]}"
            if opening.startswith("@=")
            else ""
        )
        if not name or len(end) + (end == "}") < 2:
            raise SyntaxFault("No inline description provided")
        body, suffix = self._lines.block(end)
        body = [body_line for body_line in body if not _is_queue_one(body_line, where, name)]
        text = "\n".join([line.text, *(f"  {body_line}" for body_line in body), end + suffix])
        return SweepDescription(where, name, text)

    def parent_child(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
        weak = tokens.text[:4].upper() == "WEAK"
        if weak and tokens.next().upper() != "PARENT":
            raise SyntaxFault("WEAK dependency missing PARENT keyword")
        words = list(iter(tokens.next, ""))
        child_positions = [index for index, word in enumerate(words) if word.upper() == "CHILD"]
        if len(child_positions) != 1 or not 0 < child_positions[0] < len(words) - 1:
            raise PlanError(f"{where}: write 'PARENT name … CHILD name …'")
        return ParentChild(
            where,
            tuple(words[: child_positions[0]]),
            tuple(words[child_positions[0] + 1 :]),
            weak,
        )

    def vars_line(self, where: str, tokens: Tokens, _: Line) -> SweepCommand:
        name = tokens.next()
        if not name or "=" in name:
            raise PlanError(f"{where}: write 'VARS name key=value …', with a node's name")
        placement = tokens.take_keyword(("PREPEND", "APPEND"))
        pairs = []
        while (pair := tokens.pair()) is not None:
            _check_variable(*pair, where)
            pairs.append(pair)
        if not pairs:
            raise PlanError(f"{where}: VARS {shown(name)} gives nothing; write key=value behind it")
        return VarsLine(where, name, tuple(pairs), placement == "APPEND")

    def script(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
        READERS["SCRIPT"](line.number, Tokens(tokens.rest()), LogicalLines(b""))
        tokens = Tokens(line.text)
        head = [tokens.next()]
        while (keyword := tokens.next().upper()) not in ("PRE", "POST", "HOLD"):
            head += [keyword, tokens.next(), tokens.next()]
        return SweepNodeCommand(
            where, "SCRIPT", " ".join([*head, keyword]), tokens.next(), tokens.rest()
        )

    def node_command(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
        keyword = Tokens(line.text).next()
        name = tokens.next()
        if not name:
            raise SyntaxFault("No node name specified")
        return SweepNodeCommand(
            where, keyword.upper().replace("-", "_"), keyword, name, tokens.rest()
        )

    def splice(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
        READERS["SPLICE"](line.number, Tokens(Tokens(line.text[6:]).rest()), LogicalLines(b""))
        return Splice(where, tokens.next(), line.text)

    def global_command(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
        keyword = Tokens(line.text).next().upper().replace("-", "_")
        return GlobalCommand(where, keyword, line.text)

    def include(self, where: str, tokens: Tokens, _: Line) -> SweepCommand:
        file = tokens.file()
        if not file:
            raise SyntaxFault("No include file specified")
        tokens.end()
        return GlobalCommand(where, "INCLUDE", file)


_READERS: Final[dict[str, Callable[[_Parser, str, Tokens, Line], SweepCommand]]] = {
    "GEN": _Parser.gen,
    "REGION": _Parser.region,
    **dict.fromkeys(KINDS, _Parser.node_declaration),
    "SUBMIT_DESCRIPTION": _Parser.submit_description,
    "PARENT": _Parser.parent_child,
    "WEAK": _Parser.parent_child,
    "VARS": _Parser.vars_line,
    "SCRIPT": _Parser.script,
    **dict.fromkeys(NODE_COMMANDS, _Parser.node_command),
    "SPLICE": _Parser.splice,
    "INCLUDE": _Parser.include,
    **dict.fromkeys(DAG_COMMANDS, _Parser.global_command),
}


def _swept_names(text: str, where: str) -> tuple[tuple[str, ...], SweepMode | None]:
    """The names and the mode in ``a, b from product``."""
    words = text.replace(",", " ").split()
    lowered = [word.lower() for word in words]
    if "from" not in lowered:
        raise PlanError(f"{where}: there is no 'from' behind the names; {_GEN_USAGE}")
    position = lowered.index("from")
    names, mode_words = words[:position], lowered[position + 1 :]
    if not names:
        raise PlanError(f"{where}: no variable stands before 'from'; {_GEN_USAGE}")
    for name in names:
        if not _IDENTIFIER.fullmatch(name):
            raise PlanError(
                f"{where}: {shown(name)!r} cannot be a variable's name; use letters, digits and "
                "'_', and commas between names"
            )
        if name.lower() in _PER_NODE_VARIABLES:
            raise PlanError(
                f"{where}: {name} tells nodes of one run apart, or runs; choose another name for "
                "what is swept"
            )
        if name.lower() in BUILTIN_NAMES:
            raise PlanError(
                f"{where}: {{{name}}} is what metlmon fills in for every run; choose another name"
            )
        if has_meaning(name):
            raise PlanError(
                f"{where}: {name} means something to HTCondor, and would change the job; choose "
                "another name, and say $(name) where it is meant"
            )
    if problem := duplicate_variable(names):
        raise PlanError(f"{where}: {problem}")
    if not mode_words:
        return tuple(names), None
    if len(mode_words) == 1 and mode_words[0] in ("zip", "product"):
        return tuple(names), SweepMode(mode_words[0])
    raise PlanError(
        f"{where}: {shown(' '.join(words[position + 1 :]))!r} behind 'from'; only 'zip' or "
        "'product' may stand there, and values on the lines below"
    )


def _is_queue_one(line: str, where: str, name: str) -> bool:
    """Whether the line is a redundant ``queue`` or ``queue 1``.

    Raises PlanError if it queues anything else.
    """
    words = line.lower().split()
    if words[0] != "queue" or words[1:2] == ["="]:
        return False
    if words[1:] in ([], ["1"]):
        return True  # Dropped, since HTCondor before 24.11 refuses it there.
    raise PlanError(
        f"{where}: {shown(line)!r} in the description {shown(name)}, which HTCondor before 24.11 "
        "refuses there; put the description into a file of its own"
    )


def _is_command(text: str) -> bool:
    """Whether a line is a command where values or names are expected."""
    keyword, _, rest = text.partition(" ")
    return (
        keyword.upper().replace("-", "_") in KEYWORDS
        and bool(rest.strip())
        and not rest.lstrip().startswith((",", "as ", "to "))
    )


def _check_variable(name: str, value: str, where: str) -> None:
    """Raises PlanError if VARS cannot set this variable to this value."""
    if not _VARIABLE.fullmatch(name) or name.lower().startswith("queue"):
        raise PlanError(
            f"{where}: {shown(name)!r} cannot be a variable's name: use letters, digits and '_', "
            "and do not begin with 'queue'"
        )
    if is_environment(name):
        raise PlanError(
            f"{where}: {name} in VARS: all who see the DAG would read it; set it in the submit file"
        )
    if not value:
        raise PlanError(
            f"{where}: {name} is empty, which newer DAGMans refuse; give a value, or leave it out"
        )
    if not value.isprintable():
        raise PlanError(f"{where}: {name} holds a control character; take it out")


def listed(names: Iterator[str] | tuple[str, ...], limit: int = 6) -> str:
    """The first names as text, and the number of the others."""
    all_names = list(names)
    more = f" and {len(all_names) - limit} more" if len(all_names) > limit else ""
    return ", ".join(chain(map(shown, all_names[:limit]))) + more
