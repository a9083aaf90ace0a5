"""A sweep file, or a template file that it names: bytes → commands.

Lines are DAGMan's: comments, continued lines, quotes and keywords in any case are read as it
reads them. What DAGMan knows and metlmon need not understand is kept as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from os.path import exists
from pathlib import Path
from typing import Final

from metlmon.authoring.request import PlanError, SweepMode
from metlmon.authoring.sweeps import kept_source
from metlmon.authoring.sweeps.commands import (
    Declare,
    Describe,
    Generate,
    GlobalCommand,
    ParentChild,
    RegionOf,
    Splice,
    SweepCommand,
    SweepNodeCommand,
    VarsLine,
)
from metlmon.authoring.sweeps.placeholders import OWN, nearest
from metlmon.authoring.sweeps.points import twice_named
from metlmon.authoring.sweeps.values import labelled_values
from metlmon.authoring.validate_shape import TAKEN, TAKEN_BEGINNINGS
from metlmon.dagman import NodeKind
from metlmon.dagman.command_parsers import READERS
from metlmon.dagman.lexer import Line, LogicalLines, SyntaxFault, Tokens, shown, without_secrets_of
from metlmon.dagman.submit_description import is_environment

LARGEST: Final = 16 << 20
"""Bytes of one file: longer than the DAG that may come of it."""

MOST_COMMANDS: Final = 400_000
MOST_INCLUDES: Final = 100
DEEPEST: Final = 10
"""Files within files: nobody follows more of them."""

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
OF_A_NODE: Final = frozenset(
    {
        *("RETRY", "PRE_SKIP", "ABORT_DAG_ON", "PRIORITY", "CATEGORY", "DONE", "TOLERANCE"),
        "SAVE_POINT_FILE",
    }
)
OF_THE_DAG: Final = frozenset(
    {
        *("MAXJOBS", "CONFIG", "DOT", "NODE_STATUS_FILE", "JOBSTATE_LOG", "SET_JOB_ATTR", "ENV"),
        *("REJECT", "CONNECT", "PIN_IN", "PIN_OUT"),
    }
)
_OF_A_NODE: Final = frozenset({"epoch", "node", "run_uuid", "continue_from_checkpoint"})
"""Variables that a trainer is told of, and that cannot be one for a whole run."""

KEYWORDS: Final = frozenset({*READERS, "GEN", "REGION"})

_MAYBE_VALUES: Final = re.compile(r"^[^A-Za-z]|,|^[^ \t]+$| to ", re.IGNORECASE)

_GEN: Final = (
    "write 'GEN SUBDAG group file.subdag a, b from' (or 'from zip', 'from product'), and the "
    "values of each variable on a line of its own below"
)
_REGION: Final = "write 'REGION name { node node }', with blanks around the braces"


class SweepFiles:
    """Files read for one sweep, each named as the sweep names it, from the sweep's directory.
    ``kept``: the sweep may be the copy that lies beside its DAG."""

    def __init__(self, home: Path, kept: bool) -> None:
        self.home = home
        self._kept = kept
        self.read: dict[str, bytes] = {}
        """What was read, by the names of the files."""
        self._left = MOST_COMMANDS
        self._includes = MOST_INCLUDES

    def commands(self, name: str, asked: str = "") -> list[SweepCommand]:
        """All that the file says, files that it includes in their places. ``asked``: the place
        that names it. Raises PlanError."""
        return self._file(name, asked, ())

    def _place(self, name: str) -> Path:
        """Where it lies: of a sweep that is kept beside its DAG, its copy lies there too."""
        path, copy = self.home / name, self.home / kept_source(name)
        return copy if self._kept and not exists(path) and exists(copy) else path

    def _file(self, name: str, asked: str, around: tuple[str, ...]) -> list[SweepCommand]:
        data = self.read[name] = _data(self._place(name), name, asked)
        text = _text(data, name)
        found: list[SweepCommand] = []
        for command in _Parser(name, text).commands():
            self._left -= 1
            if self._left < 0:
                raise PlanError(f"{command.where}: more than {MOST_COMMANDS} lines; make two DAGs")
            if not (isinstance(command, GlobalCommand) and command.keyword == "INCLUDE"):
                found.append(command)
                continue
            self._includes -= 1
            if command.text in (*around, name):
                raise PlanError(f"{command.where}: {shown(command.text)} leads back to itself")
            if len(around) >= DEEPEST or self._includes < 0:
                raise PlanError(f"{command.where}: too many files within files; join some of them")
            found += self._file(command.text, command.where, (*around, name))
        return found


def _data(path: Path, name: str, asked: str) -> bytes:
    before = f"{asked}: " if asked else ""
    try:
        if not path.is_file():
            kind = "is no file" if path.exists() else "is not there"
            folder = path.parent if str(path.parent) != "." else "the current directory"
            raise PlanError(f"{before}{shown(name)} {kind}; it is looked for in {folder}")
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name cannot be a file's"
        raise PlanError(f"{before}{shown(name)} cannot be read: {reason}") from None
    if len(data) > LARGEST:
        raise PlanError(f"{before}{shown(name)} is larger than {LARGEST >> 20} MB; make two DAGs")
    return data


def _text(data: bytes, name: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PlanError(f"{name}:{line}: not UTF-8 text; save the file as UTF-8") from None
    if control := _CONTROL.search(text):
        line = text[: control.start()].count("\n") + 1
        raise PlanError(f"{name}:{line}: a control character; take it out")
    last = text.rstrip()
    if last.endswith("\\") and not last[last.rfind("\n") + 1 :].lstrip().startswith(("#", "//")):
        line = last.count("\n") + 1
        raise PlanError(f"{name}:{line}: the last line is continued, but nothing follows")
    return text


class _Parser:
    """Reads one file. Faults of the text are raised as PlanError with file and line."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._raw = text.split("\n")
        self._lines = LogicalLines(text.encode())
        self._values_before = False
        self._held: Line | None = None

    def commands(self) -> Iterator[SweepCommand]:
        while (line := self._next()) is not None:
            where = f"{self._name}:{line.number}"
            tokens, keyword = Tokens(line.text), "command"
            try:
                keyword = tokens.next().upper().replace("-", "_")
                read = _READERS.get(keyword)
                if read is None:
                    raise PlanError(f"{where}: {self._unknown(line, keyword)}")
                yield read(self, where, tokens, line)
                self._values_before = keyword == "GEN"
            except SyntaxFault as fault:
                said = without_secrets_of(line.text, str(fault))
                raise PlanError(f"{where}: {shown(keyword)}: {said}") from None

    def _next(self) -> Line | None:
        held, self._held = self._held, None
        return held or self._lines.logical()

    def _unknown(self, line: Line, keyword: str) -> str:
        if self._values_before and _MAYBE_VALUES.search(line.text):
            return (
                "a line of values more than GEN names variables; name another before 'from', or "
                "take the line out"
            )
        near = nearest(keyword, KEYWORDS)
        meant = f"is {near.replace('_', '-')} meant?" if near else "take the line out"
        return f"{shown(Tokens(line.text).next())!r} is no command of a DAG file; {meant}"

    # --- metlmon's own ------------------------------------------------------------------------

    def generate(self, where: str, tokens: Tokens, _: Line) -> SweepCommand:
        if tokens.next().upper() != "SUBDAG":
            raise PlanError(f"{where}: GEN is not followed by SUBDAG; {_GEN}")
        group, template = tokens.next(), tokens.file()
        names, how = _swept(tokens.rest(), where)
        if not _GROUP.fullmatch(group):
            raise PlanError(
                f"{where}: {shown(group)!r} cannot be a group's name: use letters, digits, '.', "
                "'_' and '-', 64 at most"
            )
        lines = []
        for index, name in enumerate(names):
            above = self._lines.number
            line = self._next()
            if line is None or _is_command(line.text):
                said = f"{len(names)} variables" if len(names) > 1 else "1 variable"
                raise PlanError(
                    f"{where}: GEN names {said} ({', '.join(names)}) and has "
                    f"{index or 'no'} line{'' if index == 1 else 's'} of values below; the values "
                    f"of {name} are missing{self._taken_for_other(above, line)}"
                )
            place = f"{self._name}:{line.number}"
            found = labelled_values(line.text, f"{place}: {name}")
            called: dict[str, str | None] = {}
            for value in found:
                if called.setdefault(value.text, value.label) != value.label:
                    raise PlanError(
                        f"{place}: {name}: {shown(value.text)} has two labels; give it one"
                    )
            lines.append((place, found))
        return Generate(where, group, template, names, how, tuple(lines))

    def _taken_for_other(self, above: int, line: Line | None) -> str:
        """What is to be said where the values of a line may be what is read otherwise. ``above``:
        the number of the line where they were looked for first."""
        last = line.number if line is not None else len(self._raw) + 1
        for number in range(above, last):
            if self._raw[number - 1].lstrip().startswith(("#", "//")):
                return (
                    f"; line {number} is read as a comment: quote the value if it is meant as one"
                )
        if line is None:
            return ""
        return f"; line {last} is read as a command: quote the value if it is meant as one"

    def region(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
        name = tokens.next()
        if not _GROUP.fullmatch(name):
            raise PlanError(f"{where}: {shown(name)!r} cannot be a region's name; {_REGION}")
        words = tokens.rest().replace(",", " ").split()
        if not words or words[0] != "{":
            raise PlanError(f"{where}: no '{{' behind the region's name; {_REGION}")
        members = words[1:]
        while "}" not in members:
            more = self._lines.logical()
            if more is None:
                raise PlanError(f"{where}: the region {name} has no '}}' at its end; {_REGION}")
            if _is_command(more.text):
                raise PlanError(
                    f"{self._name}:{more.number}: a command within the region {name}; a region "
                    "holds names of nodes, runs and groups only: end it with '}' before"
                )
            members += more.text.replace(",", " ").split()
        if members[-1] != "}" or members.count("}") > 1:
            raise PlanError(f"{where}: something stands behind '}}'; {_REGION}")
        if len(members) == 1:
            raise PlanError(f"{where}: the region {name} is empty; name its nodes")
        return RegionOf(where, name, tuple(members[:-1]))

    # --- DAGMan's -----------------------------------------------------------------------------

    def declare(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
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
        while word := tokens.next().upper():
            if word == "DIR":
                raise PlanError(
                    f"{where}: DIR is not possible here; write the directory before the names in "
                    "the submit file instead (initialdir)"
                )
            if word not in ("NOOP", "DONE"):
                raise SyntaxFault(f"Unexpected token '{shown(word)}'")
            noop, done = noop or word == "NOOP", done or word == "DONE"
        return Declare(where, KINDS[keyword], name, submit, noop, done)

    def describe(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
        name, opens = tokens.next(), tokens.next()
        end = "}" if opens.startswith("{") else f"@{opens[2:]}" if opens.startswith("@=") else ""
        if not name or len(end) + (end == "}") < 2:
            raise SyntaxFault("No inline description provided")
        inside, behind = self._lines.block(end)
        inside = [each for each in inside if not _queues_one(each, where, name)]
        text = "\n".join([line.text, *(f"  {each}" for each in inside), end + behind])
        return Describe(where, name, text)

    def before(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
        weak = tokens.text[:4].upper() == "WEAK"
        if weak and tokens.next().upper() != "PARENT":
            raise SyntaxFault("WEAK dependency missing PARENT keyword")
        words = list(iter(tokens.next, ""))
        places = [at for at, word in enumerate(words) if word.upper() == "CHILD"]
        if len(places) != 1 or not 0 < places[0] < len(words) - 1:
            raise PlanError(f"{where}: write 'PARENT name … CHILD name …'")
        return ParentChild(where, tuple(words[: places[0]]), tuple(words[places[0] + 1 :]), weak)

    def give(self, where: str, tokens: Tokens, _: Line) -> SweepCommand:
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
        while (word := tokens.next().upper()) not in ("PRE", "POST", "HOLD"):
            head += [word, tokens.next(), tokens.next()]
        return SweepNodeCommand(
            where, "SCRIPT", " ".join([*head, word]), tokens.next(), tokens.rest()
        )

    def say(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
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

    def whole(self, where: str, tokens: Tokens, line: Line) -> SweepCommand:
        keyword = Tokens(line.text).next().upper().replace("-", "_")
        return GlobalCommand(where, keyword, line.text)

    def include(self, where: str, tokens: Tokens, _: Line) -> SweepCommand:
        file = tokens.file()
        if not file:
            raise SyntaxFault("No include file specified")
        tokens.end()
        return GlobalCommand(where, "INCLUDE", file)


_READERS: Final[dict[str, Callable[[_Parser, str, Tokens, Line], SweepCommand]]] = {
    "GEN": _Parser.generate,
    "REGION": _Parser.region,
    **dict.fromkeys(KINDS, _Parser.declare),
    "SUBMIT_DESCRIPTION": _Parser.describe,
    "PARENT": _Parser.before,
    "WEAK": _Parser.before,
    "VARS": _Parser.give,
    "SCRIPT": _Parser.script,
    **dict.fromkeys(OF_A_NODE, _Parser.say),
    "SPLICE": _Parser.splice,
    "INCLUDE": _Parser.include,
    **dict.fromkeys(OF_THE_DAG, _Parser.whole),
}


def _swept(text: str, where: str) -> tuple[tuple[str, ...], SweepMode | None]:
    """``a, b from product``: names and how their values are put together."""
    words = text.replace(",", " ").split()
    lowered = [word.lower() for word in words]
    if "from" not in lowered:
        raise PlanError(f"{where}: there is no 'from' behind the names; {_GEN}")
    place = lowered.index("from")
    names, behind = words[:place], lowered[place + 1 :]
    if not names:
        raise PlanError(f"{where}: no variable stands before 'from'; {_GEN}")
    for name in names:
        if not _IDENTIFIER.fullmatch(name):
            raise PlanError(
                f"{where}: {shown(name)!r} cannot be a variable's name; use letters, digits and "
                "'_', and commas between names"
            )
        if name.lower() in _OF_A_NODE:
            raise PlanError(
                f"{where}: {name} tells nodes of one run apart, or runs; choose another name for "
                "what is swept"
            )
        if name.lower() in OWN:
            raise PlanError(
                f"{where}: {{{name}}} is what metlmon fills in for every run; choose another name"
            )
        if name.lower() in TAKEN or name.lower().startswith(TAKEN_BEGINNINGS):
            raise PlanError(
                f"{where}: {name} means something to HTCondor, and would change the job; choose "
                "another name, and say $(name) where it is meant"
            )
    if twice := twice_named(names):
        raise PlanError(f"{where}: {twice}")
    if not behind:
        return tuple(names), None
    if len(behind) == 1 and behind[0] in ("zip", "product"):
        return tuple(names), SweepMode(behind[0])
    raise PlanError(
        f"{where}: {shown(' '.join(words[place + 1 :]))!r} behind 'from'; only 'zip' or 'product' "
        "may stand there, and values on the lines below"
    )


def _queues_one(line: str, where: str, name: str) -> bool:
    """Whether a line of a description says what goes without saying. Raises PlanError where it asks
    for more."""
    words = line.lower().split()
    if words[0] != "queue" or words[1:2] == ["="]:
        return False
    if words[1:] in ([], ["1"]):
        return True  # HTCondor before 24.11 refuses it there.
    raise PlanError(
        f"{where}: {shown(line)!r} in the description {shown(name)}, which HTCondor before 24.11 "
        "refuses there; put the description into a file of its own"
    )


def _is_command(text: str) -> bool:
    """Whether a line where values or names are expected is the next command instead."""
    keyword, _, behind = text.partition(" ")
    return (
        keyword.upper().replace("-", "_") in KEYWORDS
        and bool(behind.strip())
        and not behind.lstrip().startswith((",", "as ", "to "))
    )


def _check_variable(name: str, value: str, where: str) -> None:
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


def listed(names: Iterator[str] | tuple[str, ...], most: int = 6) -> str:
    """Some names, for a sentence."""
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(chain(map(shown, found[:most]))) + more
