"""Parser of sweep files and of their template files: text to commands.

Comments, continuations, quotes and case are handled as by DAGMan, and its commands are read as
such. Placeholders are not filled in here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.fields import nearest
from metlmon.authoring.request import PlanError, SweepMode, SweepRequest, SweptVariable
from metlmon.authoring.runs import is_reserved, variable_problem
from metlmon.authoring.sweeps.values import duplicate_variable, labelled_values
from metlmon.dagman.commands import (
    ConfigCommand,
    DagCommand,
    NodeCommand,
    NodeModifier,
    ScriptKind,
    SpliceCommand,
    VarsCommand,
    VarsPlacement,
)
from metlmon.dagman.lexer import Line, LogicalLines, SyntaxFault, Tokens, shown, without_secrets_of
from metlmon.dagman.parser import READERS
from metlmon.dagman.records import NodeKind
from metlmon.dagman.submit_description import is_environment

BUILTIN_NAMES: Final = ("run", "index", "uuid")
"""Placeholders of every run: its name (group and padded index), index from 0, and uuid."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_GROUP: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_VALUE_LINE: Final = re.compile(r"^[^A-Za-z]|,|^[^ \t]+$| to ", re.IGNORECASE)

_PER_NODE_VARIABLES: Final = frozenset({"epoch", "node", "run_uuid", "continue_from_checkpoint"})
"""Variables that the trainer needs per node, which cannot be swept per run."""

_KEYWORDS: Final = frozenset({*READERS, "GEN", "REGION"})

_GEN_USAGE: Final = (
    "write 'GEN SUBDAG group file.subdag a, b from' (or 'from zip', 'from product'), and the "
    "values of each variable on a line of its own below"
)
_REGION_USAGE: Final = "write 'REGION name { node node }', with blanks around the braces"


class SweepCommand(Struct, frozen=True):
    """A command of a sweep file.

    ``where``: file and line; ``text``: the whole command as written. ``keyword``: in upper case,
    with ``_``. ``command``: as DAGMan reads it; a plain DagCommand or NodeModifier if it is read
    once its placeholders are filled in. ``before``, ``after``: the text around the name of such a
    NodeModifier (``SCRIPT PRE`` and the script).
    """

    where: str
    text: str
    keyword: str
    command: DagCommand
    before: str = ""
    after: str = ""

    @property
    def is_global(self) -> bool:
        """Whether it is about the DAG as a whole."""
        return type(self.command) in (DagCommand, ConfigCommand, SpliceCommand)


class GenCommand(DagCommand, frozen=True):
    """``GEN SUBDAG``.

    ``labels``: by variable the label of each value; the value itself if it has none. Variables
    without any labels are left out.
    """

    sweep: SweepRequest
    template: str
    labels: Mapping[str, Mapping[str, str]]


class RegionCommand(DagCommand, frozen=True):
    """``REGION name { members }``."""

    name: str
    members: tuple[str, ...]


class InlineDescription(DagCommand, frozen=True):
    """SUBMIT-DESCRIPTION; the text of its command is all of its lines."""

    name: str


def parse(name: str, text: str) -> Iterator[SweepCommand]:
    """The commands of the file ``name``. Raises PlanError with file and line."""
    return _Parser(name, text).commands()


class _Parser:
    """Parses one file."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._raw = text.split("\n")
        self._lines = LogicalLines(text.encode())

    def commands(self) -> Iterator[SweepCommand]:
        after_gen = False
        while (line := self._lines.logical()) is not None:
            where, keyword = f"{self._name}:{line.number}", "command"
            tokens = Tokens(line.text)
            try:
                keyword = tokens.next().upper().replace("-", "_")
                if keyword not in _KEYWORDS:
                    raise PlanError(f"{where}: {_unknown_command(line.text, keyword, after_gen)}")
                command = SweepCommand(where, line.text, keyword, DagCommand(line.number))
                yield _PARSERS.get(keyword, _Parser.global_command)(self, command, tokens)
                after_gen = keyword == "GEN"
            except SyntaxFault as fault:
                message = without_secrets_of(line.text, str(fault))
                raise PlanError(f"{where}: {shown(keyword)}: {message}") from None

    # --- metlmon's commands -------------------------------------------------------------------

    def gen(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        where = read.where
        if tokens.next().upper() != "SUBDAG":
            raise PlanError(f"{where}: GEN is not followed by SUBDAG; {_GEN_USAGE}")
        group, template = tokens.next(), tokens.file()
        names, mode = _swept_names(tokens.rest(), where)
        if not _GROUP.fullmatch(group):
            raise PlanError(
                f"{where}: {shown(group)!r} cannot be a group's name: use letters, digits, '.', "
                "'_' and '-', 64 at most"
            )
        variables: list[SweptVariable] = []
        labels: dict[str, dict[str, str]] = {}
        for name in names:
            previous = self._lines.number
            line = self._lines.logical()
            if line is None or _is_command(line.text):
                found, plural = len(variables) or "no", "" if len(variables) == 1 else "s"
                raise PlanError(
                    f"{where}: GEN names {len(names)} variable{'s' * (len(names) > 1)} "
                    f"({', '.join(names)}) and has {found} line{plural} of values below; the "
                    f"values of {name} are missing{self._misread_hint(previous, line)}"
                )
            position = f"{self._name}:{line.number}"
            values = labelled_values(line.text, f"{position}: {name}")
            variables.append(SweptVariable(name, tuple(text for text, _ in values), position))
            given: dict[str, str | None] = {}
            for text, label in values:
                if given.setdefault(text, label) != label:
                    problem = f"{shown(text)} has two labels; give it one"
                    raise PlanError(f"{position}: {name}: {problem}")
            if any(given.values()) and f"{name}_label" not in names:
                labels[name] = {text: label or text for text, label in given.items()}
        sweep = SweepRequest(group, tuple(variables), mode, where)
        return replace(read, command=GenCommand(read.command.line, sweep, template, labels))

    def _misread_hint(self, previous: int, line: Line | None) -> str:
        """A hint that a value line may have been read as a comment or command.

        ``previous``: the number of the line where the values were expected first.
        """
        last_line = line.number if line is not None else len(self._raw) + 1
        skipped = enumerate(self._raw[previous - 1 : last_line - 1], start=previous)
        comments = (number for number, raw in skipped if raw.lstrip().startswith(("#", "//")))
        number = next(comments, None)
        if number is None and line is None:
            return ""
        kind = "command" if number is None else "comment"
        text = f"line {number or last_line} is read as a {kind}"
        return f"; {text}: quote the value if it is meant as one"

    def region(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        where, name = read.where, tokens.next()
        if not _GROUP.fullmatch(name):
            raise PlanError(f"{where}: {shown(name)!r} cannot be a region's name; {_REGION_USAGE}")
        words = tokens.rest().replace(",", " ").split()
        if not words or words[0] != "{":
            raise PlanError(f"{where}: no '{{' behind the region's name; {_REGION_USAGE}")
        members = words[1:]
        while "}" not in members:
            line = self._lines.logical()
            if line is None:
                text = f"the region {name} has no '}}' at its end; {_REGION_USAGE}"
                raise PlanError(f"{where}: {text}")
            if _is_command(line.text):
                raise PlanError(
                    f"{self._name}:{line.number}: a command within the region {name}; a "
                    "region holds names of nodes, runs and groups only: end it with '}' before"
                )
            members += line.text.replace(",", " ").split()
        if members[-1] != "}" or members.count("}") > 1:
            raise PlanError(f"{where}: something stands behind '}}'; {_REGION_USAGE}")
        if len(members) == 1:
            raise PlanError(f"{where}: the region {name} is empty; name its nodes")
        region = RegionCommand(read.command.line, name, tuple(members[:-1]))
        return replace(read, text=" ".join(region.members), command=region)

    # --- DAGMan's commands ---------------------------------------------------------------------

    def node(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        """JOB and the like; unlike DAGMan's, a file's name may begin with a placeholder."""
        where, keyword = read.where, read.keyword
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
        options = set()
        while option := tokens.next().upper():
            if option == "DIR":
                raise PlanError(
                    f"{where}: DIR is not possible here; write the directory before the names in "
                    "the submit file instead (initialdir)"
                )
            if option not in ("NOOP", "DONE"):
                raise SyntaxFault(f"Unexpected token '{shown(option)}'")
            options.add(option)
        command = NodeCommand(
            read.command.line,
            kind=NodeKind[keyword],
            name=name,
            submit=submit,
            inline=None,
            dir=None,
            noop="NOOP" in options,
            done="DONE" in options,
        )
        return replace(read, command=command)

    def submit_description(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        name, opening = tokens.next(), tokens.next()
        end = "}" if opening.startswith("{") else ""
        if opening.startswith("@=") and len(opening) > 2:
            end = f"@{opening[2:]}"
        if not name or not end:
            raise SyntaxFault("No inline description provided")
        body, suffix = self._lines.block(end)
        lines = [
            f"  {line.text}" for line in body if not _is_queue_one(line.text, read.where, name)
        ]
        text = "\n".join([tokens.text, *lines, end + suffix])
        return replace(read, text=text, command=InlineDescription(read.command.line, name))

    def vars(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        """VARS; DAGMan's reader leaves out what is refused here."""
        name = tokens.next()
        if not name or "=" in name:
            raise PlanError(f"{read.where}: write 'VARS name key=value …', with a node's name")
        placement = tokens.take_keyword(VarsPlacement.__members__) or "PREPEND"
        pairs = tuple(iter(tokens.pair, None))
        for key, value in pairs:
            problem = variable_problem(key, value)
            if is_environment(key):
                problem = f"{key} in VARS: all who see the DAG would read it"
                problem += "; set it in the submit file"
            if problem:
                raise PlanError(f"{read.where}: {problem}")
        if not pairs:
            text = f"VARS {shown(name)} gives nothing; write key=value behind it"
            raise PlanError(f"{read.where}: {text}")
        command = VarsCommand(read.command.line, name, pairs, VarsPlacement[placement])
        return replace(read, command=command)

    def script(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        start = tokens.position
        self.whole(read, tokens)
        tokens.position = start
        while tokens.next().upper() not in ScriptKind.__members__:
            for _ in range(2):  # DEFER and DEBUG have two arguments each.
                tokens.next()
        return self.about_node(read, tokens)

    def about_node(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        before = read.text[: tokens.position].strip()
        command = NodeModifier(read.command.line, tokens.require_node())
        return replace(read, command=command, before=before, after=tokens.rest())

    def whole(self, read: SweepCommand, tokens: Tokens) -> SweepCommand:
        """A command without placeholders, or with some in names only."""
        command = READERS[read.keyword](read.command.line, tokens, self._lines)
        return replace(read, command=command)

    def global_command(self, read: SweepCommand, _: Tokens) -> SweepCommand:
        return read


_PARSERS: Final[dict[str, Callable[[_Parser, SweepCommand, Tokens], SweepCommand]]] = {
    "GEN": _Parser.gen,
    "REGION": _Parser.region,
    **dict.fromkeys(("JOB", "SUBDAG", "FINAL", "PROVISIONER", "SERVICE"), _Parser.node),
    "SUBMIT_DESCRIPTION": _Parser.submit_description,
    **dict.fromkeys(("PARENT", "WEAK", "SPLICE", "INCLUDE", "CONFIG"), _Parser.whole),
    "VARS": _Parser.vars,
    "SCRIPT": _Parser.script,
    **dict.fromkeys(
        ("RETRY", "PRE_SKIP", "ABORT_DAG_ON", "PRIORITY", "CATEGORY", "DONE", "TOLERANCE"),
        _Parser.about_node,
    ),
    "SAVE_POINT_FILE": _Parser.about_node,
}
"""All others are about the whole DAG."""


def _unknown_command(text: str, keyword: str, after_gen: bool) -> str:
    if after_gen and _VALUE_LINE.search(text):
        return (
            "a line of values more than GEN names variables; name another before 'from', or "
            "take the line out"
        )
    similar = nearest(keyword, _KEYWORDS)
    remedy = f"is {similar.replace('_', '-')} meant?" if similar else "take the line out"
    return f"{shown(Tokens(text).next())!r} is no command of a DAG file; {remedy}"


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
    for problem in (*map(_swept_name_problem, names), duplicate_variable(names)):
        if problem:
            raise PlanError(f"{where}: {problem}")
    if not mode_words:
        return tuple(names), None
    if mode_words in (["zip"], ["product"]):
        return tuple(names), SweepMode(mode_words[0])
    raise PlanError(
        f"{where}: {shown(' '.join(words[position + 1 :]))!r} behind 'from'; only 'zip' or "
        "'product' may stand there, and values on the lines below"
    )


def _swept_name_problem(name: str) -> str | None:
    if not _IDENTIFIER.fullmatch(name):
        rule = "use letters, digits and '_', and commas between names"
        return f"{shown(name)!r} cannot be a variable's name; {rule}"
    if name.lower() in _PER_NODE_VARIABLES:
        remedy = "choose another name for what is swept"
        return f"{name} tells nodes of one run apart, or runs; {remedy}"
    if name.lower() in BUILTIN_NAMES:
        return f"{{{name}}} is what metlmon fills in for every run; choose another name"
    if is_reserved(name):
        return (
            f"{name} means something to HTCondor, and would change the job; choose another name, "
            "and say $(name) where it is meant"
        )
    return None


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
    rest = rest.lstrip()
    is_keyword = keyword.upper().replace("-", "_") in _KEYWORDS
    return is_keyword and bool(rest) and not rest.startswith((",", "as ", "to "))
