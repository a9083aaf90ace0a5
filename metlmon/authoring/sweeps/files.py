"""Files that the DAG of a sweep names: they lie beside the sweep file, and must beside the DAG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from metlmon.authoring.sweeps.commands import Command, Splice, Whole
from metlmon.authoring.sweeps.reading import LARGEST
from metlmon.authoring.sweeps.records import Referenced
from metlmon.dagman.dagtext import Tokens


def files_named(
    source: Path, commands: Sequence[Command], named: Iterable[tuple[str, str, bool]]
) -> tuple[Referenced, ...]:
    """Each file once, in the order in which they are named. ``named`` by nodes: (file, place,
    whether it is a script). Never raises."""
    found: dict[str, tuple[str, bool]] = {}
    for name, where, script in named:
        found.setdefault(name, (where, script))
    for command in commands:
        if isinstance(command, Splice | Whole) and (file := _named(command)):
            found.setdefault(file, (command.where, False))
    return tuple(
        Referenced(name, where, _data(source.parent, name), executable)
        for name, (where, executable) in found.items()
        if not name.startswith("/")
    )


def _named(command: Splice | Whole) -> str | None:
    """The file of SPLICE name file, or of CONFIG file."""
    words = list(iter(Tokens(command.text).next, ""))
    if isinstance(command, Splice):
        return words[2]
    return words[1] if command.keyword == "CONFIG" else None


def _data(folder: Path, name: str) -> bytes | None:
    """What lies there under a bare name; a path may lead anywhere, and is left alone."""
    if "/" in name or "$" in name:
        return None
    path = folder / name
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError):
        return None
    return data if len(data) <= LARGEST else None
