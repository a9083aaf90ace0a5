"""Files saved from the dashboard: a report, and pictures of screens."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from metlmon.cli.output import OutputFile, is_inside
from metlmon.cli.reading import feed_stats
from metlmon.errors import InputError
from metlmon.live.feed import Feed
from metlmon.live.file_access import replacing
from metlmon.text.formatting import directory_name

FURTHER_NAMES: Final = 1000
"""Maximum number appended to a name that is taken."""

DISPLAYS: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables, one of which is set if a browser can be opened."""


def output_directory(dagdir: Path) -> Path:
    """Where files are saved, never in a dagdir. Raises InputError if that is impossible."""
    for place in (Path.cwd(), Path.home()):
        if not is_inside(place, dagdir) and os.access(place, os.W_OK):
            return place
    raise InputError("neither the current directory nor yours can be written to")


def render_report(feed: Feed) -> tuple[str, str]:
    """The file name and the HTML of the report of the newest snapshot.

    Reads files: not for the UI thread. Raises InputError.
    """
    from metlmon.report.build import build_report
    from metlmon.report.to_html import render_html

    snapshot = feed.latest
    if snapshot is None:
        raise InputError("nothing has been read yet")
    document = build_report(feed_stats(feed, snapshot), feed.settings.zone)
    return f"{_stem(feed)}-report.html", render_html(document)


def save_report(feed: Feed) -> Path:
    """Write the newest report as HTML; return its path. Reads files. Raises InputError."""
    from metlmon.cli.commands.report import REPORT_MARKS

    name, html = render_report(feed)
    path = output_directory(feed.dagdir) / name
    OutputFile(str(path), marks=REPORT_MARKS).check_replaceable()
    with replacing(path) as draft:
        draft.write_text(html, encoding="utf-8")
    return path


def save_picture(feed: Feed, screen: str, svg: str) -> Path:
    """Write the picture of a screen beside earlier ones; return its path. Raises InputError."""
    directory = output_directory(feed.dagdir)
    for number in range(1, FURTHER_NAMES):
        path = directory / f"{_stem(feed)}-{screen}-{number}.svg"
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(svg)
        except FileExistsError:
            continue
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        return path
    raise InputError(f"{directory}: there are {FURTHER_NAMES} pictures of this already")


def open_file(path: Path) -> None:
    """Open a file in the browser. Raises InputError if there is none."""
    if not any(os.environ.get(name) for name in DISPLAYS):
        raise InputError(f"no browser on this machine; copy {path} to yours")
    command = os.environ.get("BROWSER", "").split(os.pathsep)[0] or "xdg-open"
    quiet = subprocess.DEVNULL
    try:
        subprocess.Popen(
            [command, str(path)], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )
    except OSError as error:
        raise InputError(f"{command}: {error.strerror}; copy {path} to your machine") from None


def _stem(feed: Feed) -> str:
    """The ensemble's name, as a part of a file name."""
    name = directory_name(str(feed.dagdir))
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "ensemble"
