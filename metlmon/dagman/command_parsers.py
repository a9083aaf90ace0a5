"""Parsers of DAG commands: the tokens after the keyword → a typed command.

Source followed: the ``Parse…`` functions of HTCondor's ``dag_parser.cpp``. Where that parser
rejects a line, the reader raises :class:`SyntaxFault` with the same message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from metlmon.dagman.commands import (
    ALL_NODES,
    SCOPE_SIGN,
    AbortCommand,
    CategoryCommand,
    ConnectCommand,
    DagCommand,
    DescriptionCommand,
    DoneCommand,
    EdgeCommand,
    IncludeCommand,
    JobstateCommand,
    NodeCommand,
    PinCommand,
    Placement,
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
)
from metlmon.dagman.lexer import LogicalLines, SyntaxFault, Tokens, integer, shown
from metlmon.dagman.records import NodeKind
from metlmon.dagman.submit_description import is_environment, parse_description

RESERVED = frozenset({"PARENT", "CHILD", ALL_NODES})

_HIGHEST_EXIT_CODE = 255

#: Parses one command from its line number, the tokens after its keyword, the lines below.
Reader = Callable[[int, Tokens, LogicalLines], DagCommand]


def _require(tokens: Tokens, message: str) -> str:
    token = tokens.next()
    if not token:
        raise SyntaxFault(message)
    return token


def _require_file(tokens: Tokens, message: str) -> str:
    token = tokens.file()
    if not token:
        raise SyntaxFault(message)
    return token


def _normalize(token: str) -> str:
    """A sub-command as the parser compares it: case-insensitive, ``-`` like ``_``."""
    return token.upper().replace("-", "_")


def _require_number(
    tokens: Tokens,
    missing: str,
    invalid: str,
    low: int = -sys.maxsize,
    high: int = sys.maxsize,
) -> int:
    """The next token as a number; ``{}`` in ``invalid`` stands for the token."""
    token = _require(tokens, missing)
    number = integer(token)
    if number is None or not low <= number <= high:
        raise SyntaxFault(invalid.format(shown(token)))
    return number


def _require_node(tokens: Tokens) -> str:
    return _require(tokens, "No node name specified")


def _block_end(token: str) -> str | None:
    """The end of the inline description that ``token`` opens; None when it opens none."""
    if token.startswith("{"):
        return "}"
    if token.startswith("@="):
        if token == "@=":
            raise SyntaxFault("No inline description closing token specified (@=TOKEN)")
        return f"@{token[2:]}"
    return None


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
                directory = _require_file(tokens, "No directory path provided for DIR subcommand")
            case _:
                raise SyntaxFault(f"Unexpected token '{shown(token)}'")
    return directory, noop, done


def _read_node(line: int, tokens: Tokens, lines: LogicalLines, kind: NodeKind) -> DagCommand:
    name = _require(tokens, "Missing node name")
    if name.upper() in RESERVED:
        raise SyntaxFault(f"Node name '{shown(name)}' is a reserved word")
    if SCOPE_SIGN in name:
        raise SyntaxFault(f"Node name '{shown(name)}' contains the illegal character +")
    submit: str | None = _require_file(tokens, "No submit description provided")
    assert submit is not None
    inline = None
    if kind is not NodeKind.SUBDAG and (end := _block_end(submit)):
        block, rest = lines.block(end)
        submit, inline, tokens = None, parse_description(block), Tokens(rest)
    directory, noop, done = _parse_options(tokens)
    return NodeCommand(
        line,
        kind=kind,
        name=name,
        submit=submit,
        inline=inline,
        dir=directory,
        noop=noop,
        done=done,
    )


def _node_reader(kind: NodeKind) -> Reader:
    def read(line: int, tokens: Tokens, lines: LogicalLines) -> DagCommand:
        return _read_node(line, tokens, lines, kind)

    return read


def _read_subdag(line: int, tokens: Tokens, lines: LogicalLines) -> DagCommand:
    if tokens.next().upper() != "EXTERNAL":
        raise SyntaxFault("Missing EXTERNAL keyword")
    return _read_node(line, tokens, lines, NodeKind.SUBDAG)


def _read_description(line: int, tokens: Tokens, lines: LogicalLines) -> DagCommand:
    name = _require(tokens, "No submit description name provided")
    end = _block_end(_require(tokens, "No inline description provided"))
    if end is None:
        raise SyntaxFault("No inline description provided")
    block, _ = lines.block(end)
    return DescriptionCommand(line, name, parse_description(block))


def _read_splice(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    name = _require(tokens, "Missing splice name")
    file = _require_file(tokens, "Missing DAG file")
    directory = None
    if token := tokens.next():
        if token.upper() != "DIR":
            raise SyntaxFault(f"Unexpected token '{shown(token)}'")
        directory = _require_file(tokens, "No directory path provided for DIR subcommand")
    tokens.end()
    return SpliceCommand(line, name, file, directory)


def _read_include(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    file = _require_file(tokens, "No include file specified")
    tokens.end()
    return IncludeCommand(line, file)


def _read_edges(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    return _parse_edges(line, tokens, weak=False)


def _read_weak(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    if tokens.next().upper() != "PARENT":
        raise SyntaxFault("WEAK dependency missing PARENT keyword")
    return _parse_edges(line, tokens, weak=True)


def _parse_edges(line: int, tokens: Tokens, *, weak: bool) -> DagCommand:
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
            parents.append(token)
        else:
            children.append(token)
    if not parents:
        raise SyntaxFault("No parent node(s) specified")
    if children is None:
        raise SyntaxFault("Missing CHILD specifier")
    return EdgeCommand(line, tuple(parents), tuple(children), weak)


def _read_script(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    defer = None
    while True:
        token = tokens.next().upper()
        if token in ScriptKind.__members__:
            break
        if token == "DEFER":
            status = _require_number(
                tokens, "DEFER missing status value", "Invalid DEFER status value '{}'"
            )
            defer = (
                status,
                _require_number(
                    tokens, "DEFER missing time value", "Invalid DEFER time value '{}'"
                ),
            )
        elif token == "DEBUG":
            _require(tokens, "DEBUG missing filename")
            stream = _require(tokens, "DEBUG missing output stream type (STDOUT, STDERR, ALL)")
            if stream.upper() not in {"STDOUT", "STDERR", "ALL"}:
                raise SyntaxFault(f"Unknown DEBUG output stream type '{shown(stream)}'")
        else:
            raise SyntaxFault(
                "Missing script type (PRE, POST, HOLD) and optional sub-commands (DEFER, DEBUG)"
            )
    node = _require_node(tokens)
    command = tokens.rest()
    if not command:
        raise SyntaxFault("No script specified")
    return ScriptCommand(line, node, ScriptKind[token], command, defer)


def _read_retry(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = _require_node(tokens)
    invalid = "Invalid max retry value '{}' (Must be positive integer)"
    retries = _require_number(tokens, "Missing max retry value", invalid, low=0)
    code = None
    if token := tokens.next():
        if _normalize(token) != "UNLESS_EXIT":
            raise SyntaxFault(f"Unexpected token '{shown(token)}'")
        code = _require_number(
            tokens, "UNLESS-EXIT missing exit code", "Invalid UNLESS-EXIT code '{}' specified"
        )
    tokens.end()
    return RetryCommand(line, node, retries, code)


def _read_abort(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = _require_node(tokens)
    status = _require_number(
        tokens, "Missing exit status to abort on", "Invalid exit status '{}' specified"
    )
    returns = None
    if token := tokens.next():
        if token.upper() != "RETURN":
            raise SyntaxFault(f"Unexpected token '{shown(token)}'")
        invalid = f"Invalid RETURN code '{{}}' (Must be between 0 and {_HIGHEST_EXIT_CODE})"
        returns = _require_number(tokens, "RETURN is missing value", invalid, 0, _HIGHEST_EXIT_CODE)
    tokens.end()
    return AbortCommand(line, node, status, returns)


def _read_vars(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = _require_node(tokens)
    placement = Placement.PREPEND
    if token := tokens.take_keyword(Placement.__members__):
        placement = Placement[token]
    pairs = []
    has_pairs = False
    while (pair := tokens.pair()) is not None:
        has_pairs = True
        if is_stored(pair[0]):
            pairs.append(pair)
    if not has_pairs:
        raise SyntaxFault("No key=value pairs specified")
    return VarsCommand(line, node, tuple(pairs), placement)


def is_stored(key: str) -> bool:
    """Whether VARS of this name are stored: all but a job's environment.

    Raises SyntaxFault when DAGMan rejects the name.
    """
    if key == "+":
        raise SyntaxFault("Variable name must contain at least one alphanumeric character")
    if key.lower().startswith("queue"):
        raise SyntaxFault(f"Illegal variable name '{shown(key)}': name can not begin with 'queue'")
    return not is_environment(key)


def _read_priority(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = _require_node(tokens)
    priority = _require_number(tokens, "Missing priority value", "Invalid priority value '{}'")
    tokens.end()
    return PriorityCommand(line, node, priority)


def _read_pre_skip(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = _require_node(tokens)
    code = _require_number(tokens, "Missing exit code", "Invalid exit code '{}'")
    tokens.end()
    return PreSkipCommand(line, node, code)


def _read_tolerance(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = _require_node(tokens)
    token = _require(tokens, "Missing failure tolerance value")
    if token == "%":
        raise SyntaxFault("Empty percentage specified for failure tolerance")
    mode = tokens.next()
    number = integer(token)
    if number is None or number < 0:
        raise SyntaxFault(f"Invalid tolerance value '{shown(token.removesuffix('%'))}'")
    if mode == "%" and not token.endswith("%"):
        mode = tokens.next()
    if mode and _normalize(mode) not in {"FAIL_FAST", "WAIT"}:
        raise SyntaxFault(f"Unexpected token '{shown(mode)}'")
    tokens.end()
    return ToleranceCommand(line, node)


def _read_save_point(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = _require_node(tokens)
    if _normalize(node) == ALL_NODES:
        raise SyntaxFault("ALL_NODES cannot be used for save point file command")
    if tokens.file():
        tokens.end()
    return SavePointCommand(line, node)


def _read_done(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = _require_node(tokens)
    tokens.end()
    return DoneCommand(line, node)


def _read_category(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    node = _require_node(tokens)
    category = _require(tokens, "No category name specified")
    tokens.end()
    return CategoryCommand(line, node, category)


def _read_max_jobs(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    _require(tokens, "No category name specified")
    _require_number(tokens, "No throttle limit specified", "Invalid throttle limit '{}'", low=0)
    tokens.end()
    return DagCommand(line)


def _read_config(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    _require_file(tokens, "No configuration file specified")
    tokens.end()
    return DagCommand(line)


def _read_dot(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    _require_file(tokens, "No file specified")
    while token := tokens.next():
        option = _normalize(token)
        if option == "INCLUDE":
            _require(tokens, "Missing INCLUDE header file")
        elif option not in {"UPDATE", "DONT_UPDATE", "OVERWRITE", "DONT_OVERWRITE"}:
            raise SyntaxFault(f"Unexpected token '{shown(token)}'")
    return DagCommand(line)


def _read_status_file(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    file = _require_file(tokens, "No file specified")
    while token := tokens.next():
        if _normalize(token) != "ALWAYS_UPDATE" and integer(token) is None:
            raise SyntaxFault(f"Unexpected token '{shown(token)}'")
    return StatusFileCommand(line, file)


def _read_jobstate_log(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    file = _require_file(tokens, "No file specified")
    tokens.end()
    return JobstateCommand(line, file)


def _read_job_attribute(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    if not tokens.rest():
        raise SyntaxFault("No attribute line (key = value) provided")
    return DagCommand(line)


def _read_env(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    action = _require(tokens, "Missing action (SET or GET) and variables")
    if action.upper() not in {"SET", "GET"}:
        raise SyntaxFault(f"Unexpected token '{shown(action)}'")
    if not tokens.rest():
        raise SyntaxFault("No environment variables provided")
    return DagCommand(line)


def _read_reject(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    tokens.end()
    return RejectCommand(line)


def _read_connect(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
    parent = _require(tokens, "Missing splice(s) to connect")
    child = _require(tokens, "Missing splice(s) to connect")
    tokens.end()
    return ConnectCommand(line, parent, child)


def _pin_reader(*, out: bool) -> Reader:
    def read(line: int, tokens: Tokens, _: LogicalLines) -> DagCommand:
        node = _require_node(tokens)
        number = _require_number(
            tokens, "No pin number specified", "Invalid pin number '{}'", low=1
        )
        tokens.end()
        return PinCommand(line, node, number, out)

    return read


#: Parsers by keyword, in upper case and with ``_`` for ``-``.
READERS: dict[str, Reader] = {
    "JOB": _node_reader(NodeKind.JOB),
    "FINAL": _node_reader(NodeKind.FINAL),
    "PROVISIONER": _node_reader(NodeKind.PROVISIONER),
    "SERVICE": _node_reader(NodeKind.SERVICE),
    "SUBDAG": _read_subdag,
    "SPLICE": _read_splice,
    "INCLUDE": _read_include,
    "SUBMIT_DESCRIPTION": _read_description,
    "CATEGORY": _read_category,
    "PARENT": _read_edges,
    "WEAK": _read_weak,
    "SCRIPT": _read_script,
    "RETRY": _read_retry,
    "ABORT_DAG_ON": _read_abort,
    "VARS": _read_vars,
    "PRIORITY": _read_priority,
    "PRE_SKIP": _read_pre_skip,
    "TOLERANCE": _read_tolerance,
    "DONE": _read_done,
    "MAXJOBS": _read_max_jobs,
    "CONFIG": _read_config,
    "DOT": _read_dot,
    "NODE_STATUS_FILE": _read_status_file,
    "JOBSTATE_LOG": _read_jobstate_log,
    "SAVE_POINT_FILE": _read_save_point,
    "SET_JOB_ATTR": _read_job_attribute,
    "ENV": _read_env,
    "REJECT": _read_reject,
    "CONNECT": _read_connect,
    "PIN_IN": _pin_reader(out=False),
    "PIN_OUT": _pin_reader(out=True),
}
