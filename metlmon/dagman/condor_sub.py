"""Reads DAGMan's command line from its own submit file, ``<dag>.condor.sub``.

Source followed: ``DagmanUtils::writeSubmitFile`` in ``dagman_utils.cpp`` (which writes the
``arguments``), ``main_init`` in ``dagman_main.cpp`` (which reads them), and
``ArgList::AppendArgsV2Quoted`` in ``condor_arglist.cpp`` for the quoting. Nothing else of the
file is read: its ``environment`` can hold secrets.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

_ARGUMENTS: Final = re.compile(r"^[ \t]*arguments[ \t]*=[ \t]*(\S.*)$", re.I | re.M)
_CONFIGURED: Final = re.compile(rb"_CONDOR_DAGMAN_(?!LOG\b)")
"""The prefix of DAGMan's configuration variables in its ``environment``, except that of its log,
``_CONDOR_DAGMAN_LOG``. Their values are not read."""

_WORD: Final = re.compile(r"(?:[^\s']|'[^']*(?:''[^']*)*(?:'|\Z))+")
_QUOTED: Final = re.compile(r"'([^']*(?:''[^']*)*)(?:'|\Z)")


class CondorSub(Struct, frozen=True):
    """DAGMan's command line.

    The DAG files in their order (several make one workflow whose nodes are named ``0.A``,
    ``1.A``), whether each is read in its own directory (``-UseDagDir``), and ``rescue_from``,
    the number after ``-DoRescueFrom``. ``words``: the whole command line. ``configured``:
    DAGMan has a configuration file of its own.
    """

    dag_files: tuple[str, ...]
    use_dag_dir: bool
    rescue_from: int | None = None
    words: tuple[str, ...] = ()
    configured: bool = False


def read_condor_sub(data: bytes) -> CondorSub:
    """Read a ``.condor.sub`` file; other files have no DAG files. Never raises."""
    arguments = _ARGUMENTS.findall(data.decode("utf-8", "replace"))
    words = _split_words(arguments[-1].rstrip(" \t\r")) if arguments else []
    return _parse_words(words, _CONFIGURED.search(data) is not None)


def read_dagman_arguments(arguments: str) -> CondorSub:
    """Read ``Arguments`` of the ad of DAGMan's job. Never raises.

    The new syntax, without the surrounding quotes of a submit file.
    """
    return _parse_words([_unquote(word) for word in _WORD.findall(arguments)])


def _parse_words(words: list[str], configured: bool = False) -> CondorSub:
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


def _split_words(arguments: str) -> list[str]:
    """Split the arguments: the new syntax in double quotes, else the old one (blanks)."""
    if not arguments.startswith('"'):
        return arguments.replace('\\"', '"').split()
    inner = arguments[1:].removesuffix('"').replace('""', '"')
    return [_unquote(word) for word in _WORD.findall(inner)]


def _unquote(word: str) -> str:
    """Remove the quotes of ``'a b'``; a doubled single quote inside means one."""
    return _QUOTED.sub(lambda quoted: quoted.group(1).replace("''", "'"), word)
