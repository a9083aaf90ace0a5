"""Rules for keys and tokens in DAG and submit files; reports names, never values."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Final

from metlmon.authoring.lint.rules import LintContext, Positioned
from metlmon.dagman.commands import ScriptCommand, VarsCommand
from metlmon.dagman.lexer import shown
from metlmon.dagman.submit_description import Statement, is_environment
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

_KEY_FILE: Final = re.compile(
    r"(?:\.{0,2}/[\w./$(){}-]*|[\w./$(){}-]*\.(?:json|txt|key|pem|token|use))\Z"
)

MIN_KEY_LENGTH: Final = 8
"""Shorter values are switches, numbers or placeholders."""

MAX_VALUE_LENGTH: Final = 200_000
"""How many characters of a value are searched; longer ones are data."""


def check(context: LintContext) -> None:
    """Check comments, descriptions, VARS, script arguments and environments."""
    for name in context.names:
        data = context.files.get(context.names[name]) or b""
        for number, line in enumerate(data.split(b"\n"), start=1):
            if line.lstrip(b" \t").startswith(b"#"):
                names = (
                    found[0].decode("utf-8", "replace")
                    for found in _COMMENTED.findall(line[:MAX_VALUE_LENGTH])
                )
                for variable in filter(is_secret_name, names):
                    source = Statement(name, number, "#", "")
                    _report(context, source, variable, "in a comment")
    for text, _ in context.descriptions():
        for statement in text.statements:
            _check_statement(context, statement)
    for entry in context.all_commands():
        rest = entry.rest[:MAX_VALUE_LENGTH]
        if isinstance(entry.command, VarsCommand):
            _check_vars(context, entry, rest)
        elif isinstance(entry.command, ScriptCommand):
            _check_arguments(context, entry, rest, "in the arguments of a script")
        elif entry.keyword == "ENV":
            _check_environment(context, entry, rest)
        elif entry.keyword == "SET_JOB_ATTR":
            name, _, value = rest.partition("=")
            _check_assignment(context, entry, name.strip(), value)


def _check_statement(context: LintContext, statement: Statement) -> None:
    value = statement.value[:MAX_VALUE_LENGTH]
    key = statement.key.removeprefix("my.")
    if is_environment(statement.key):
        _check_environment(context, statement, value)
    elif key in ("arguments", "arguments2", "args"):
        _check_arguments(context, statement, value, "in arguments")
    elif not statement.directive:
        _check_assignment(context, statement, key, value)


def _check_assignment(context: LintContext, source: Positioned, key: str, value: str) -> None:
    if (
        is_secret_name(key)
        and _may_be_key(value.strip("\"' "))  # not the name of a key file
        and _contains_secret(f"{key}={value}")
    ):
        _report(context, source, key, "here")
    elif _contains_secret(value) and not _CHECKSUM.search(key):
        _report(context, source, None, f"in {shown(key)}")


def _check_environment(context: LintContext, source: Positioned, value: str) -> None:
    for name, *alternatives in _VARIABLE.findall(value):
        if is_secret_name(name) and _may_be_key("".join(alternatives)):
            _report(context, source, name, "in the environment")


def _check_vars(context: LintContext, source: Positioned, rest: str) -> None:
    for name, *alternatives in _PAIR.findall(rest):
        value, key = "".join(alternatives), name.removeprefix("+")
        if is_environment(name):
            _check_environment(context, source, value.replace('\\"', '"'))
        elif is_secret_name(key) and _may_be_key(value):
            _report(context, source, key, "in VARS")
        elif _contains_secret(value) and not _CHECKSUM.search(key):
            _report(context, source, None, f"in VARS {shown(key)}")


def _check_arguments(context: LintContext, source: Positioned, value: str, where: str) -> None:
    options = _OPTION.findall(value)
    names = [name for name, text in options if is_secret_name(name) and _may_be_key(text)]
    for name in names:
        _report(context, source, name, where)
    rest = _OPTION.sub(lambda match: "" if _CHECKSUM.search(match[1]) else match[0], value)
    if not names and _contains_secret(rest):
        _report(context, source, None, where)


@lru_cache(maxsize=4096)
def _contains_secret(value: str) -> bool:
    """Whether the redaction finds a secret in the value."""
    return redact_secrets(value) != value


def _may_be_key(value: str) -> bool:
    """Whether the value may be a key: not a placeholder, macro or path of a key file."""
    value = value.strip()
    return len(value) >= MIN_KEY_LENGTH and not value.startswith("$") and not _KEY_FILE.match(value)


def _report(context: LintContext, source: Positioned, name: str | None, where: str) -> None:
    """Add a finding, without the value."""
    message = f"something like a key stands {where}"
    if name:
        message = f"{shown(name)} has its value {where}"
    try:
        mode = os.stat(context.names.get(source.file, context.dagman_dir / source.file)).st_mode
    except (OSError, ValueError):
        mode = 0
    if mode & 0o004:
        message += ", in a file that everybody on this machine can read"
    context.report("secret", source, message)
