"""Parses one DAG file into typed commands, in file order, and problems.

Source followed: HTCondor manual, "DAG input file reference", and ``dag_parser.cpp`` /
``dag_commands.cpp`` (the parser in use since 25.5). Where that parser rejects a line, the parser
of the command raises :class:`SyntaxFault` with the same message. Reads no other file: splices,
includes and sub-DAGs are only named.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.dagman.commands import (
    ALL_NODES,
    SCOPE_SIGN,
    AbortCommand,
    CategoryCommand,
    ConfigCommand,
    ConnectCommand,
    DagCommand,
    DescriptionCommand,
    DoneCommand,
    EdgeCommand,
    IncludeCommand,
    JobstateCommand,
    MaxJobsCommand,
    NodeCommand,
    PinCommand,
    PreSkipCommand,
    PriorityCommand,
    RejectCommand,
    RetryCommand,
    SavePointCommand,
    ScriptCommand,
    ScriptKind,
    SpliceCommand,
    StatusFileCommand,
    ToleranceCommand,
    VarsCommand,
    VarsPlacement,
)
from metlmon.dagman.lexer import (
    Line,
    LogicalLines,
    SyntaxFault,
    Tokens,
    integer,
    node_name,
    shown,
    without_secrets_of,
)
from metlmon.dagman.records import NodeKind, Problem, Script
from metlmon.dagman.submit_description import is_environment, parse_lines

RESERVED = frozenset({"PARENT", "CHILD", ALL_NODES})

MAX_PROBLEMS = 1000
"""Bounds the problems of a large file that is not a DAG file."""

_HIGHEST_EXIT_CODE = 255

#: Parses one command from its line number, the tokens after its keyword, and the lines below.
Reader = Callable[[int, Tokens, LogicalLines], DagCommand]


class DagFile(Struct, frozen=True):
    """The contents of one file; ``commands`` are those that could be parsed, in order."""

    commands: tuple[DagCommand, ...]
    problems: tuple[Problem, ...]


class SourceCommand(Struct, frozen=True):
    """One command as written, in ``text`` of the file called ``file``.

    ``keyword`` is in upper case with ``_``; in the text it ends at ``end``. ``command`` is None if
    it cannot be parsed, for the reason ``fault``, or if the keyword is unknown.
    """

    file: str
    text: Line
    keyword: str
    end: int
    command: DagCommand | None
    fault: str | None

    @property
    def line(self) -> int:
        """The number of its first line."""
        return self.text.number

    @property
    def rest(self) -> str:
        """The text after the keyword."""
        return self.text.text[self.end :].strip()

    def problem(self) -> Problem:
        """The reason why it cannot be parsed."""
        last = self.text.last or self.line
        if self.fault is not None:
            text = f"Failed to parse {shown(self.keyword) or 'command'}: {self.fault}"
            return Problem("syntax", self.file, last, text, error=True)
        word = shown(self.text.text[: self.end].rstrip())
        # An INCLUDE may name any file: only text that could be a DAG keyword is quoted.
        text = f"'{word}'{_NO_COMMAND[4:]}" if _WORD.fullmatch(word) else _NO_COMMAND
        return Problem(_UNKNOWN, self.file, last, text, error=False)


def read_commands(data: bytes, name: str) -> Iterator[SourceCommand]:
    """The commands of one DAG file, in order; ``name`` is its name in problems."""
    lines = LogicalLines(data, name)
    while (line := lines.logical()) is not None:
        yield _read_command(line, lines)


def _read_command(line: Line, lines: LogicalLines) -> SourceCommand:
    """The command in ``line``, and the ``lines`` below that belong to it."""
    tokens, keyword, end, command, fault = Tokens(line.text), "", 0, None, None
    try:
        keyword = tokens.next().upper().replace("-", "_")
        end = tokens.position
        if (reader := READERS.get(keyword)) is not None:
            command = reader(line.number, tokens, lines)
    except SyntaxFault as error:
        fault = without_secrets_of(line.text, str(error))
    return SourceCommand(lines.file, line, keyword, end, command=command, fault=fault)


def parse_dag(data: bytes, name: str) -> DagFile:
    """Parse one DAG file; ``name`` is its name in problems. Never raises."""
    commands: list[DagCommand] = []
    problems: list[Problem] = []
    omitted = 0
    for source in read_commands(data, name):
        if source.command is not None:
            commands.append(source.command)
        elif len(problems) < MAX_PROBLEMS:
            problems.append(source.problem())
        else:
            omitted += 1
    if not commands:
        # May be any file that another file names, so its text is not quoted.
        problems = [replace(p, text=_NO_COMMAND) if p.kind == _UNKNOWN else p for p in problems]
    if omitted:
        text = f"{omitted} more lines behind this one are not commands either"
        last = problems[-1]
        problems.append(Problem(_UNKNOWN, name, last.line, text, error=False))
    return DagFile(tuple(commands), tuple(problems))


_UNKNOWN: Final = "unknown-command"
_NO_COMMAND: Final = "this is not a DAG command; the line is skipped"
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_=./-]{0,39}")


# --- tokens of commands --------------------------------------------------------------------


def _normalize(token: str) -> str:
    """A sub-command as the parser compares it: case-insensitive, ``-`` like ``_``."""
    return token.upper().replace("-", "_")


def _block_end(token: str) -> str | None:
    """The end of the inline description that ``token`` opens; None when it opens none."""
    if token.startswith("{"):
        return "}"
    if token.startswith("@="):
        if token == "@=":
            raise SyntaxFault("No inline description closing token specified (@=TOKEN)")
        return f"@{token[2:]}"
    return None


def _expect(token: str, *words: str) -> None:
    if _normalize(token) not in words:
        raise SyntaxFault(f"Unexpected token '{shown(token)}'")


def _parse_options(tokens: Tokens) -> tuple[str | None, bool, bool]:
    """[DIR d] [NOOP] [DONE], in any order."""
    directory, noop, done = None, False, False
    while token := tokens.next():
        match token.upper():
            case "NOOP":
                noop = True
            case "DONE":
                done = True
            case "DIR":
                directory = tokens.require_file("No directory path provided for DIR subcommand")
            case _:
                raise SyntaxFault(f"Unexpected token '{shown(token)}'")
    return directory, noop, done


def _read_node(line: int, tokens: Tokens, lines: LogicalLines, kind: NodeKind) -> DagCommand:
    name = node_name(tokens.require("Missing node name"))
    if name.upper() in RESERVED:
        raise SyntaxFault(f"Node name '{shown(name)}' is a reserved word")
    if SCOPE_SIGN in name:
        raise SyntaxFault(f"Node name '{shown(name)}' contains the illegal character +")
    submit: str | None = tokens.require_file("No submit description provided")
    assert submit is not None
    inline = None
    if kind is not NodeKind.SUBDAG and (end := _block_end(submit)):
        tokens.rest()
        block, rest = lines.block(end)
        submit, inline, tokens = None, parse_lines(block, file=lines.file), Tokens(rest)
    directory, noop, done = _parse_options(tokens)
    return NodeCommand(
        line,
        kind=kind,
        name=name,
        submit=sys.intern(submit) if submit else None,
        inline=inline,
        dir=directory,
        noop=noop,
        done=done,
    )


def _read_subdag(line: int, tokens: Tokens, lines: LogicalLines) -> DagCommand:
    if tokens.next().upper() != "EXTERNAL":
        raise SyntaxFault("Missing EXTERNAL keyword")
    return _read_node(line, tokens, lines, NodeKind.SUBDAG)


def _read_description(line: int, tokens: Tokens, lines: LogicalLines) -> DagCommand:
    name = tokens.require("No submit description name provided")
    end = _block_end(tokens.require("No inline description provided"))
    if end is None:
        raise SyntaxFault("No inline description provided")
    tokens.rest()
    block, _ = lines.block(end)
    return DescriptionCommand(line, name, parse_lines(block, file=lines.file))


def _read_splice(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    name = node_name(tokens.require("Missing splice name"))
    file = tokens.require_file("Missing DAG file")
    directory = None
    if token := tokens.next():
        _expect(token, "DIR")
        directory = tokens.require_file("No directory path provided for DIR subcommand")
    return SpliceCommand(line, name, file, directory)


def _read_weak(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    if tokens.next().upper() != "PARENT":
        raise SyntaxFault("WEAK dependency missing PARENT keyword")
    return _read_edges(line, tokens, _, weak=True)


def _read_edges(line: int, tokens: Tokens, _: LogicalLines, *, weak: bool = False) -> DagCommand:
    parents: list[str] = []
    children: list[str] | None = None
    while token := tokens.next():
        if token.upper() == "CHILD":
            if not parents:
                break
            children = children or []
            if not tokens.peek():
                raise SyntaxFault("No children node(s) specified")
        elif children is None:
            parents.append(node_name(token))
        else:
            children.append(node_name(token))
    if not parents:
        raise SyntaxFault("No parent node(s) specified")
    if children is None:
        raise SyntaxFault("Missing CHILD specifier")
    return EdgeCommand(line, tuple(parents), tuple(children), weak)


def _read_script(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    defer = debug = None
    while (token := tokens.next().upper()) not in ScriptKind.__members__:
        if token == "DEFER":
            status = tokens.require_number(
                "DEFER missing status value", "Invalid DEFER status value '{}'"
            )
            seconds = tokens.require_number(
                "DEFER missing time value", "Invalid DEFER time value '{}'"
            )
            defer = (status, seconds)
        elif token == "DEBUG":
            name = tokens.require("DEBUG missing filename")
            stream = tokens.require("DEBUG missing output stream type (STDOUT, STDERR, ALL)")
            if stream.upper() not in {"STDOUT", "STDERR", "ALL"}:
                raise SyntaxFault(f"Unknown DEBUG output stream type '{shown(stream)}'")
            debug = (name, stream.upper())
        else:
            raise SyntaxFault(
                "Missing script type (PRE, POST, HOLD) and optional sub-commands (DEFER, DEBUG)"
            )
    node = tokens.require_node()
    command = tokens.rest()
    if not command:
        raise SyntaxFault("No script specified")
    return ScriptCommand(line, node, ScriptKind[token], Script(command, defer, debug))


def _read_retry(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = tokens.require_node()
    invalid = "Invalid max retry value '{}' (Must be positive integer)"
    retries = tokens.require_number("Missing max retry value", invalid, low=0)
    code = None
    if token := tokens.next():
        _expect(token, "UNLESS_EXIT")
        code = tokens.require_number(
            "UNLESS-EXIT missing exit code", "Invalid UNLESS-EXIT code '{}' specified"
        )
    return RetryCommand(line, node, retries, code)


def _read_abort(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = tokens.require_node()
    status = tokens.require_number(
        "Missing exit status to abort on", "Invalid exit status '{}' specified"
    )
    returns = None
    if token := tokens.next():
        _expect(token, "RETURN")
        invalid = f"Invalid RETURN code '{{}}' (Must be between 0 and {_HIGHEST_EXIT_CODE})"
        returns = tokens.require_number("RETURN is missing value", invalid, 0, _HIGHEST_EXIT_CODE)
    return AbortCommand(line, node, status, returns)


def _read_vars(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = tokens.require_node()
    placement = VarsPlacement.PREPEND
    if token := tokens.take_keyword(VarsPlacement.__members__):
        placement = VarsPlacement[token]
    pairs = []
    has_pairs = False
    while (pair := tokens.pair()) is not None:
        has_pairs = True
        if _is_stored(pair[0]):
            pairs.append((sys.intern(pair[0]), sys.intern(pair[1])))
    if not has_pairs:
        raise SyntaxFault("No key=value pairs specified")
    return VarsCommand(line, node, tuple(pairs), placement)


@lru_cache(maxsize=1024)
def _is_stored(key: str) -> bool:
    """Whether VARS of this name are stored: all but a job's environment.

    Raises SyntaxFault when DAGMan rejects the name.
    """
    if key == "+":
        raise SyntaxFault("Variable name must contain at least one alphanumeric character")
    if key.lower().startswith("queue"):
        raise SyntaxFault(f"Illegal variable name '{shown(key)}': name can not begin with 'queue'")
    return not is_environment(key)


def _read_tolerance(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = tokens.require_node()
    token = tokens.require("Missing failure tolerance value")
    if token == "%":
        raise SyntaxFault("Empty percentage specified for failure tolerance")
    mode = tokens.next()
    number = integer(token)
    if number is None or number < 0:
        raise SyntaxFault(f"Invalid tolerance value '{shown(token.removesuffix('%'))}'")
    if mode == "%" and not token.endswith("%"):
        mode = tokens.next()
    if mode:
        _expect(mode, "FAIL_FAST", "WAIT")
    return ToleranceCommand(line, node)


def _read_save_point(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = tokens.require_node()
    if _normalize(node) == ALL_NODES:
        raise SyntaxFault("ALL_NODES cannot be used for save point file command")
    tokens.file()
    return SavePointCommand(line, node)


def _read_dot(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    tokens.require_file("No file specified")
    while token := tokens.next():
        if _normalize(token) == "INCLUDE":
            tokens.require("Missing INCLUDE header file")
        else:
            _expect(token, "UPDATE", "DONT_UPDATE", "OVERWRITE", "DONT_OVERWRITE")
    return DagCommand(line)


def _read_status_file(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    file = tokens.require_file("No file specified")
    while token := tokens.next():
        if integer(token) is None:
            _expect(token, "ALWAYS_UPDATE")
    return StatusFileCommand(line, file)


def _read_job_attribute(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    if not tokens.rest():
        raise SyntaxFault("No attribute line (key = value) provided")
    return DagCommand(line)


def _read_env(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    _expect(tokens.require("Missing action (SET or GET) and variables"), "SET", "GET")
    if not tokens.rest():
        raise SyntaxFault("No environment variables provided")
    return DagCommand(line)


def _read_pin(line: int, tokens: Tokens, _: LogicalLines, *, out: bool) -> DagCommand:
    node = tokens.require_node()
    number = tokens.require_number("No pin number specified", "Invalid pin number '{}'", low=1)
    return PinCommand(line, node, number, out)


def _to_the_end(reader: Reader) -> Reader:
    """The reader, followed by the check that nothing else is on the line."""

    def read(line: int, tokens: Tokens, lines: LogicalLines) -> DagCommand:
        command = reader(line, tokens, lines)
        tokens.end()
        return command

    return read


_READERS: Final[dict[str, Reader]] = {
    "JOB": partial(_read_node, kind=NodeKind.JOB),
    "FINAL": partial(_read_node, kind=NodeKind.FINAL),
    "PROVISIONER": partial(_read_node, kind=NodeKind.PROVISIONER),
    "SERVICE": partial(_read_node, kind=NodeKind.SERVICE),
    "SUBDAG": _read_subdag,
    "SPLICE": _read_splice,
    "INCLUDE": lambda line, tokens, _: IncludeCommand(
        line, tokens.require_file("No include file specified")
    ),
    "SUBMIT_DESCRIPTION": _read_description,
    "CATEGORY": lambda line, tokens, _: CategoryCommand(
        line, tokens.require_node(), tokens.require("No category name specified")
    ),
    "PARENT": _read_edges,
    "WEAK": _read_weak,
    "SCRIPT": _read_script,
    "RETRY": _read_retry,
    "ABORT_DAG_ON": _read_abort,
    "VARS": _read_vars,
    "PRIORITY": lambda line, tokens, _: PriorityCommand(
        line,
        tokens.require_node(),
        tokens.require_number("Missing priority value", "Invalid priority value '{}'"),
    ),
    "PRE_SKIP": lambda line, tokens, _: PreSkipCommand(
        line,
        tokens.require_node(),
        tokens.require_number("Missing exit code", "Invalid exit code '{}'"),
    ),
    "TOLERANCE": _read_tolerance,
    "DONE": lambda line, tokens, _: DoneCommand(line, tokens.require_node()),
    "MAXJOBS": lambda line, tokens, _: MaxJobsCommand(
        line,
        tokens.require("No category name specified"),
        tokens.require_number("No throttle limit specified", "Invalid throttle limit '{}'", low=0),
    ),
    "CONFIG": lambda line, tokens, _: ConfigCommand(
        line, tokens.require_file("No configuration file specified")
    ),
    "DOT": _read_dot,
    "NODE_STATUS_FILE": _read_status_file,
    "JOBSTATE_LOG": lambda line, tokens, _: JobstateCommand(
        line, tokens.require_file("No file specified")
    ),
    "SAVE_POINT_FILE": _read_save_point,
    "SET_JOB_ATTR": _read_job_attribute,
    "ENV": _read_env,
    "REJECT": lambda line, _, __: RejectCommand(line),
    "CONNECT": lambda line, tokens, _: ConnectCommand(
        line,
        node_name(tokens.require("Missing splice(s) to connect")),
        node_name(tokens.require("Missing splice(s) to connect")),
    ),
    "PIN_IN": partial(_read_pin, out=False),
    "PIN_OUT": partial(_read_pin, out=True),
}

READERS: Final = {keyword: _to_the_end(reader) for keyword, reader in _READERS.items()}
"""Parsers by keyword, in upper case and with ``_`` for ``-``."""
