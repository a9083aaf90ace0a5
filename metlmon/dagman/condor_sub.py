"""The submit file of DAGMan itself, ``<dag>.condor.sub``: what its command line was.

Source followed: ``DagmanUtils::writeSubmitFile`` in ``dagman_utils.cpp`` (which writes the
``arguments``), ``main_init`` in ``dagman_main.cpp`` (which reads them), and
``ArgList::AppendArgsV2Quoted`` in ``condor_arglist.cpp`` for the quoting. Nothing else of the
file is read: its ``environment`` can hold secrets.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from metlmon.frozen import frozen

_ARGUMENTS: Final = re.compile(r"^[ \t]*arguments[ \t]*=[ \t]*(\S.*)$", re.I | re.M)
_CONFIGURED: Final = re.compile(rb"_CONDOR_DAGMAN_(?!LOG\b)")
"""How names of configuration variables of DAGMan begin in its ``environment``, but for that of its
log, ``_CONDOR_DAGMAN_LOG``. No value of them is read."""

_WORD: Final = re.compile(r"(?:[^\s']|'[^']*(?:''[^']*)*(?:'|\Z))+")
_QUOTED: Final = re.compile(r"'([^']*(?:''[^']*)*)(?:'|\Z)")


@frozen
class CondorSub:
    """DAGMan's command line: the DAG files in their order (several make one workflow whose
    nodes are called ``0.A``, ``1.A``), whether each is read in its own directory
    (``-UseDagDir``), and ``rescue_from``, the number after ``-DoRescueFrom``. ``words``: all of
    the command line. ``configured``: DAGMan has a configuration file of its own."""

    dag_files: tuple[str, ...]
    use_dag_dir: bool
    rescue_from: int | None = None
    words: tuple[str, ...] = field(default=(), compare=False)
    configured: bool = field(default=False, compare=False)


def read_condor_sub(data: bytes) -> CondorSub:
    """Read a ``.condor.sub`` file. No DAG files come out of what is none. Never raises."""
    found = _ARGUMENTS.findall(data.decode("utf-8", "replace"))
    words = _words(found[-1].rstrip(" \t\r")) if found else []
    return _understood(words, _CONFIGURED.search(data) is not None)


def read_dagman_arguments(arguments: str) -> CondorSub:
    """Read ``Arguments`` of the ad of DAGMan's job: the new syntax, without the quotes around
    the whole that a submit file has. Never raises."""
    return _understood([_unquoted(word) for word in _WORD.findall(arguments)])


def _understood(words: list[str], configured: bool = False) -> CondorSub:
    flags = [word.lower() for word in words]
    values = list(zip(flags, words[1:], strict=False))
    rescue = [value for flag, value in values if flag == "-dorescuefrom"]
    number = int(rescue[-1]) if rescue and re.fullmatch(r"\d{1,9}", rescue[-1]) else 0
    return CondorSub(
        dag_files=tuple(value for flag, value in values if flag == "-dag"),
        use_dag_dir="-usedagdir" in flags,
        rescue_from=number or None,
        words=tuple(words),
        configured=configured,
    )


def _words(arguments: str) -> list[str]:
    """Split the arguments: in double quotes the new syntax, else the old one (blanks)."""
    if not arguments.startswith('"'):
        return arguments.replace('\\"', '"').split()
    inner = arguments[1:].removesuffix('"').replace('""', '"')
    return [_unquoted(word) for word in _WORD.findall(inner)]


def _unquoted(word: str) -> str:
    """``'a b'`` groups, a doubled single quote inside stands for one."""
    return _QUOTED.sub(lambda quoted: quoted.group(1).replace("''", "'"), word)
