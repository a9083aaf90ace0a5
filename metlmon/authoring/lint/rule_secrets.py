"""Keys and tokens in DAG and submit files: by the name they go by, never by their value."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Final

from metlmon.authoring.lint.context import LintContext
from metlmon.authoring.lint.source_map import SubmitText
from metlmon.dagman.commands import ScriptCommand, VarsCommand
from metlmon.dagman.lexer import shown
from metlmon.dagman.submit_description import is_environment
from metlmon.redact import is_secret_name, redact_secrets

# Each begins where a word does, and takes a word whole: a hostile value is gone over once.
_VARIABLE: Final = re.compile(r"""(?<!\w)([A-Za-z_]\w*+)=(?:'([^']*)'|"++([^"]*)"*|([^\s;"']*))""")
_PAIR: Final = re.compile(
    r"""(?<![^\s"'])([^\s="']++)[ \t]*+=[ \t]*+(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s"']*))"""
)
_OPTION: Final = re.compile(r"(?<![\w-])--?([A-Za-z][\w-]*+)(?:=|[ \t]++)['\"]?([^\s'\"]++)")
_COMMENTED: Final = re.compile(rb"(?<!\w)(\w{2,60}+)=[\"']?([^\s\"']{16,})")

_CHECKSUM: Final = re.compile(r"(?:commit|sha\d*|hash|rev(?:ision)?|digest|checksum|md5)$", re.I)
"""Names of what looks like a key and is for everybody to see."""

SHORTEST: Final = 8
"""Characters of the least key: what is shorter is a switch, a number, or a placeholder."""

LONGEST: Final = 200_000
"""Characters of one value that are gone over: what is longer is data, no command line."""


def check(look: LintContext) -> None:
    for name in look.names:
        data = look.shelf.get(look.names[name]) or b""
        _comments(look, name, data)
    for text, _ in look.texts().values():
        _description(look, text)
    for name, told in look.commands.items():
        for each in told:
            rest = each.rest[:LONGEST]
            if isinstance(each.command, VarsCommand):
                _vars(look, name, each.line, rest)
            elif isinstance(each.command, ScriptCommand):
                _arguments(look, name, each.line, rest, "in the arguments of a script")
            elif each.keyword in ("ENV", "SET_JOB_ATTR"):
                _environment(look, name, each.line, rest)


def _comments(look: LintContext, name: str, data: bytes) -> None:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.lstrip(b" \t").startswith(b"#"):
            for variable, _ in _COMMENTED.findall(line[:LONGEST]):
                if is_secret_name(word := variable.decode("utf-8", "replace")):
                    _tell(look, name, number, word, "in a comment")


def _description(look: LintContext, text: SubmitText) -> None:
    for each in text.statements:
        value = each.value[:LONGEST]
        bare = each.key.removeprefix("my.")
        if is_environment(each.key):
            _environment(look, each.file, each.line, value)
        elif bare in ("arguments", "arguments2", "args"):
            _arguments(look, each.file, each.line, value, "in arguments")
        elif not each.directive and is_secret_name(bare) and _is_named(bare, value):
            _tell(look, each.file, each.line, bare, "here")
        elif not each.directive and _hides_more(value) and not _CHECKSUM.search(bare):
            _tell(look, each.file, each.line, None, f"in {shown(bare)}")


def _is_named(name: str, value: str) -> bool:
    """Is this a command that holds a key, and not the name of the file with it?"""
    return _is_value(value.strip("\"' ")) and _hides_more(f"{name}={value}")


def _environment(look: LintContext, file: str, line: int, value: str) -> None:
    for name, *said in _VARIABLE.findall(value):
        if is_secret_name(name) and _is_value("".join(said)):
            _tell(look, file, line, name, "in the environment")


def _vars(look: LintContext, file: str, line: int, rest: str) -> None:
    for name, *said in _PAIR.findall(rest):
        value = "".join(said)
        bare = name.removeprefix("+")
        if is_environment(name):
            _environment(look, file, line, value.replace('\\"', '"'))
        elif is_secret_name(bare) and _is_value(value):
            _tell(look, file, line, bare, "in VARS")
        elif _hides_more(value) and not _CHECKSUM.search(bare):
            _tell(look, file, line, None, f"in VARS {shown(bare)}")


def _arguments(look: LintContext, file: str, line: int, value: str, where: str) -> None:
    found = False
    for name, said in _OPTION.findall(value):
        if is_secret_name(name) and _is_value(said):
            _tell(look, file, line, name, where)
            found = True
    rest = _OPTION.sub(lambda one: "" if _CHECKSUM.search(one[1]) else one[0], value)
    if not found and _hides_more(rest):
        _tell(look, file, line, None, where)


@lru_cache(maxsize=4096)
def _hides_more(value: str) -> bool:
    """Does what knows secrets by their looks see one?"""
    return redact_secrets(value) != value


def _is_value(value: str) -> bool:
    """Something that could be a key: no placeholder, no macro, no path to a file that holds it."""
    value = value.strip()
    return len(value) >= SHORTEST and not value.startswith("$") and not _PLACE.match(value)


_PLACE: Final = re.compile(
    r"(?:\.{0,2}/[\w./$(){}-]*|[\w./$(){}-]*\.(?:json|txt|key|pem|token|use))\Z"
)


def _tell(look: LintContext, file: str, line: int, name: str | None, where: str) -> None:
    what = (
        f"{shown(name)} has its value {where}" if name else f"something like a key stands {where}"
    )
    look.found.add("secret", file, line, what + _readable(look, file))


def _readable(look: LintContext, file: str) -> str:
    try:
        mode = os.stat(look.names.get(file, look.home / file)).st_mode
    except (OSError, ValueError):
        return ""
    return ", in a file that everybody on this machine can read" if mode & 0o004 else ""
