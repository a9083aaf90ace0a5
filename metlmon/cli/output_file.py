"""One file that a command writes, or standard output in its place."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from metlmon.errors import InputError
from metlmon.live.file_access import replacing
from metlmon.text.formatting import plain

STDOUT: Final = "-"

BEGINNING: Final = 1000
"""Bytes in which a file says what it is."""


def check_outside(name: str, dagdir: Path, command: str) -> None:
    """Raises InputError for a file in the dagdir, where watching never writes."""
    if name == STDOUT:
        return
    path = Path(name)
    if path.is_dir():
        raise InputError(f"{plain(name)}: this is a directory; name a file")
    inside = os.path.realpath(dagdir)
    # Both: a link may lie in it, or lead into it.
    places = map(os.path.realpath, (path.parent, path))
    if any(Path(each).is_relative_to(inside) for each in places):
        raise InputError(
            f"{plain(name)}: this is in the dagdir, where metlmon {command} writes nothing; name a "
            "file elsewhere"
        )


def check_replaceable(name: str, *, force: bool, marks: Sequence[str]) -> None:
    """Raises InputError where a file is in the way that begins with none of our marks."""
    path = Path(name)
    if name == STDOUT or force or not path.is_file():
        return
    with open(path, "rb") as file:
        beginning = file.read(BEGINNING)
    if not any(mark.encode() in beginning for mark in marks):
        raise InputError(
            f"{plain(name)}: is there already; --force overwrites it, or name another file"
        )


def write_output(name: str, text: str, *, force: bool, marks: Sequence[str]) -> None:
    """Write a file, which is there whole or not at all, or to standard output.

    ``force``, ``marks``: as in :func:`check_replaceable`. Raises InputError.
    """
    data = text.encode("utf-8")
    if name == STDOUT:
        sys.stdout.flush()
        out = getattr(sys.stdout, "buffer", None)
        if out is None:
            sys.stdout.write(text)
        else:
            out.write(data)
        sys.stdout.flush()
        return
    path = Path(name)
    try:
        if path.exists() and not path.is_file():
            # A pipe or a device is written to, never replaced.
            path.write_bytes(data)
            return
        # Through a symbolic link: what it points to is renewed, the link stays.
        with replacing(Path(os.path.realpath(path))) as draft:
            draft.write_bytes(data)
            check_replaceable(name, force=force, marks=marks)
    except OSError as error:
        raise InputError(f"{plain(name)}: {error.strerror or error}") from None
    print(f"{plain(name)} written ({len(data) / 1000:.0f} kB)", file=sys.stderr)
