"""Rules for keys and tokens in DAG and submit files; reports names, never values."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.authoring.submit_source import SubmitText
from metlmon.dagman.commands import ScriptCommand, VarsCommand
from metlmon.dagman.lexer import shown
from metlmon.dagman.submit_description import is_environment
from metlmon.redact import is_secret_name, redact_secrets

# Anchored at word starts, with possessive quantifiers: linear time on hostile values.
_VARIABLE: Final = re.compile(r"""(?<!\w)([A-Za-z_]\w*+)=(?:'([^']*)'|"++([^"]*)"*|([^\s;"']*))""")
_PAIR: Final = re.compile(
    r"""(?<![^\s"'])([^\s="']++)[ \t]*+=[ \t]*+(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s"']*))"""
)
_OPTION: Final = re.compile(r"(?<![\w-])--?([A-Za-z][\w-]*+)(?:=|[ \t]++)['\"]?([^\s'\"]++)")
_COMMENTED: Final = re.compile(rb"(?<!\w)(\w{2,60}+)=[\"']?([^\s\"']{16,})")

_CHECKSUM: Final = re.compile(r"(?:commit|sha\d*|hash|rev(?:ision)?|digest|checksum|md5)$", re.I)
"""Names of values that look like a key but are public."""

MIN_KEY_LENGTH: Final = 8
"""Shorter values are switches, numbers or placeholders."""

MAX_VALUE_LENGTH: Final = 200_000
"""How many characters of a value are searched; longer ones are data."""


def check(context: LintContext) -> None:
    """Check comments, descriptions, VARS, script arguments and environments."""
    for name in context.names:
        data = context.files.get(context.names[name]) or b""
        _check_comments(context, name, data)
    for text, _ in context.submit_texts().values():
        _check_description(context, text)
    for entry in context.all_commands():
        rest = entry.rest[:MAX_VALUE_LENGTH]
        if isinstance(entry.command, VarsCommand):
            _check_vars(context, entry.file, entry.line, rest)
        elif isinstance(entry.command, ScriptCommand):
            where = "in the arguments of a script"
            _check_arguments(context, entry.file, entry.line, rest, where)
        elif entry.keyword in ("ENV", "SET_JOB_ATTR"):
            _check_environment(context, entry.file, entry.line, rest)


def _check_comments(context: LintContext, name: str, data: bytes) -> None:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.lstrip(b" \t").startswith(b"#"):
            for variable, _ in _COMMENTED.findall(line[:MAX_VALUE_LENGTH]):
                if is_secret_name(variable_name := variable.decode("utf-8", "replace")):
                    _report(context, name, number, variable_name, "in a comment")


def _check_description(context: LintContext, text: SubmitText) -> None:
    for statement in text.statements:
        value = statement.value[:MAX_VALUE_LENGTH]
        key = statement.key.removeprefix("my.")
        if is_environment(statement.key):
            _check_environment(context, statement.file, statement.line, value)
        elif key in ("arguments", "arguments2", "args"):
            _check_arguments(context, statement.file, statement.line, value, "in arguments")
        elif not statement.directive and is_secret_name(key) and _holds_key(key, value):
            _report(context, statement.file, statement.line, key, "here")
        elif not statement.directive and _contains_secret(value) and not _CHECKSUM.search(key):
            _report(context, statement.file, statement.line, None, f"in {shown(key)}")


def _holds_key(name: str, value: str) -> bool:
    """Whether the command's value is a key, not the name of a key file."""
    return _may_be_key(value.strip("\"' ")) and _contains_secret(f"{name}={value}")


def _check_environment(context: LintContext, file: str, line: int, value: str) -> None:
    for name, *alternatives in _VARIABLE.findall(value):
        if is_secret_name(name) and _may_be_key("".join(alternatives)):
            _report(context, file, line, name, "in the environment")


def _check_vars(context: LintContext, file: str, line: int, rest: str) -> None:
    for name, *alternatives in _PAIR.findall(rest):
        value = "".join(alternatives)
        key = name.removeprefix("+")
        if is_environment(name):
            _check_environment(context, file, line, value.replace('\\"', '"'))
        elif is_secret_name(key) and _may_be_key(value):
            _report(context, file, line, key, "in VARS")
        elif _contains_secret(value) and not _CHECKSUM.search(key):
            _report(context, file, line, None, f"in VARS {shown(key)}")


def _check_arguments(context: LintContext, file: str, line: int, value: str, where: str) -> None:
    reported = False
    for name, option_value in _OPTION.findall(value):
        if is_secret_name(name) and _may_be_key(option_value):
            _report(context, file, line, name, where)
            reported = True
    rest = _OPTION.sub(lambda match: "" if _CHECKSUM.search(match[1]) else match[0], value)
    if not reported and _contains_secret(rest):
        _report(context, file, line, None, where)


@lru_cache(maxsize=4096)
def _contains_secret(value: str) -> bool:
    """Whether the redaction finds a secret in the value."""
    return redact_secrets(value) != value


def _may_be_key(value: str) -> bool:
    """Whether the value may be a key: not a placeholder, macro or path of a key file."""
    value = value.strip()
    return len(value) >= MIN_KEY_LENGTH and not value.startswith("$") and not _KEY_FILE.match(value)


_KEY_FILE: Final = re.compile(
    r"(?:\.{0,2}/[\w./$(){}-]*|[\w./$(){}-]*\.(?:json|txt|key|pem|token|use))\Z"
)


def _report(context: LintContext, file: str, line: int, name: str | None, where: str) -> None:
    """Add a finding, without the value."""
    message = (
        f"{shown(name)} has its value {where}" if name else f"something like a key stands {where}"
    )
    context.findings.add("secret", file, line, message + _readable_suffix(context, file))


def _readable_suffix(context: LintContext, file: str) -> str:
    """The suffix about a file that is readable by all users."""
    try:
        mode = os.stat(context.names.get(file, context.dagman_dir / file)).st_mode
    except (OSError, ValueError):
        return ""
    return ", in a file that everybody on this machine can read" if mode & 0o004 else ""
