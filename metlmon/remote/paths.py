"""Names of files on other machines: as users type them, and as paths.

A user types ``HOST:DIR``, as for scp. Inside the program it is the path ``/HOST:/DIR``: an absolute
path, which can be split and joined like any other, and whose first part is a machine that the user
has named. Only such paths lead to another machine: a DAG file cannot name one.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Final, NamedTuple


class NoAnswer(Exception):
    """A file system, or the machine that it is on, does not answer.

    ``str()`` is a sentence; ``since``: when that began, in seconds since 1970; ``path``: the file
    that was asked about, unless the sentence names what does not answer. Not an OSError, because
    the state of the file is unknown.
    """

    def __init__(self, sentence: str, since: float = 0.0, path: Path | None = None) -> None:
        super().__init__(sentence)
        self.since = since
        self.path = path

    def describe(self) -> str:
        """One sentence with the path."""
        return str(self) if self.path is None else f"{self.path}: {self}"


class Disconnected(NoAnswer):
    """The connection to a machine is lost, but may come back; the sentence names the machine."""


class UnusableMachine(Exception):
    """A machine cannot be used; ``str()`` is one sentence with the reason."""


HOSTS: Final[set[str]] = set()
"""The machines that the user has named, as they were typed."""


class Place(NamedTuple):
    """A file on another machine: the machine, and its path there."""

    host: str
    path: str


_ARGUMENT: Final = re.compile(
    r"((?:[^/\[\]:@]+@)?(?:\[[0-9A-Za-z:.%]+\]|[^/\[\]:]*)):(.*)", re.DOTALL
)


def split_argument(word: str) -> tuple[str, str] | None:
    """Host and directory of a word like ``HOST:DIR``; None if it is a local path.

    An existing file of this name is local, and so is any word that begins with ``/``, ``./`` or
    ``../``. An IPv6 address is in brackets. Raises UnusableMachine for a host that ssh would take
    for an option.
    """
    match = _ARGUMENT.fullmatch(word)
    if match is None or word.startswith(("./", "../")) or os.path.lexists(word):
        return None
    host, directory = match[1], match[2]
    if not host or not host.isprintable() or " " in host or host.startswith("-") or "@-" in host:
        raise UnusableMachine(
            f"{word}: no host can have this name; give HOST:DIR, or ./ and a file name"
        )
    if directory.startswith("//"):
        return None  # A URL.
    return host, directory


def ssh_host(host: str) -> str:
    """The host as ssh takes it: an IPv6 address without brackets."""
    user, at, name = host.rpartition("@")
    return f"{user}{at}{name[1:-1]}" if name.startswith("[") else host


def remote_path(host: str, path: str) -> str:
    """The path of a file on a machine, from its absolute path there."""
    return f"/{host}:{path}"


def split(path: str | os.PathLike[str]) -> Place | None:
    """The machine of a path and the path there; None if it is on this machine."""
    if not HOSTS:
        return None
    name = os.fspath(path)
    host, separator, there = name[1:].partition(":/")
    if not separator:
        host, there = name[1:].removesuffix(":"), ""
    return Place(host, f"/{there}") if name.startswith("/") and host in HOSTS else None


def host_of(path: str | os.PathLike[str]) -> str:
    """The machine of a path, as users type it; empty for this one."""
    place = split(path)
    return "" if place is None else place.host


def join(directory: Path, name: str | Path) -> Path:
    """The file ``name``, relative to ``directory`` or absolute: on the same machine."""
    place = split(directory)
    if place is None:
        path = directory / name
        # A name in a local file must not lead to another machine.
        return directory / f"\0{name}" if split(path) is not None else path
    return Path(remote_path(place.host, posixpath.join(place.path, name)))


def normalize(path: Path) -> Path:
    """Like :func:`os.path.normpath`, on the same machine."""
    place = split(path)
    if place is None:
        return Path(os.path.normpath(path))
    return Path(remote_path(place.host, posixpath.normpath(place.path)))


def as_typed(text: str) -> str:
    """A path, or a sentence with paths, as users type them: ``HOST:DIR``."""
    for host in HOSTS:
        text = text.replace(f"/{host}:/", f"{host}:/")
    return text


def there(path: str | os.PathLike[str]) -> str:
    """A path without its machine, as it is on that machine."""
    place = split(path)
    return os.fspath(path) if place is None else place.path
