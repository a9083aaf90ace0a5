"""Every screen on the hostile dagdir: the bytes sent to a terminal, its pictures, and copies."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from metlmon.redact import HIDDEN
from tests.hostile.corpus import A_KEY, NAMES, fields_in, forbidden
from tests.hostile.dagdir import Dagdir
from tests.hostile.keyed_files import write_keyed_files
from tests.hostile.pseudo_terminal import Terminal, without_own
from tests.support.screen_view import opened
from tests.support.static_sessions import session

DOWN, END, ESCAPE, ENTER, TAB = b"\x1b[B", b"\x1b[F", b"\x1b", b"\r", b"\t"

OPENED = ("csi", "c1-raw", "textual")
"""Attacks of the runs that are opened; of all others the lists are seen."""

SCREENS = (
    *(b"2", b"3", b"33", b"4", b"5", b"6", b"66", b"666", b"7", b"77", b"8", b"9"),
    *(b"?", b":", b"a", b"N"),
)
"""Keys to what can be opened from the overview: the screens of the tabs, help, palette, what can be
done, a new ensemble."""

REACHED = {
    *("dagdir", "dagfile", "label", "subfile", "outfile", "jobout", "joberr"),
    *("runt", "runj", "sitet", "gput", "resourcet", "holdt", "shadowt", "generict"),
    *("reconnectfailt", "submithostt", "hostt", "errorhostt", "disconnectt", "transferhostt"),
    *("stoppedt", "shard", "othert", "sweptt"),
}
"""Fields that stand on one of the screens that are gone through."""


FILLED_LATER = {b"5": "label", b"8": "subfile"}
"""A field on each screen that a thread fills, by the key to it. The thread pauses after each pass:
nothing may be written for a while although the screen is not yet full."""


def test_screens_send_no_hostile_bytes(hostile: Dagdir, environment: dict[str, str]) -> None:
    # On a large screen each text has room for what follows its beginning.
    inner = (ENTER, b"v", END, TAB)
    text, seen = gone_through(hostile, environment, (200, 50), inner, FILLED_LATER)
    assert forbidden(text) == []
    shown = fields_in("\n".join(seen))
    assert shown >= REACHED, sorted(REACHED - shown)


def gone_through(
    dagdir: Dagdir,
    environment: dict[str, str],
    size: tuple[int, int],
    inner: tuple[bytes, ...],
    filled_later: Mapping[bytes, str],
) -> tuple[str, list[str]]:
    """The bytes sent to the terminal without the program's own sequences, and every picture.

    ``inner``: the keys that are pressed on each screen. ``filled_later``: fields that are waited
    for, by the key to their screen.
    """
    argv = [sys.executable, "-m", "metlmon", "watch", str(dagdir.path)]
    with Terminal(argv, size, environment) as terminal:
        terminal.wait_for("snapshot")
        terminal.rest()
        at = 0
        for name in OPENED:
            row = NAMES.index(name)
            if row >= sum("runt" in line for line in terminal.text.split("\n")) and row:
                continue
            terminal.type(DOWN * (row - at))
            at = row
            for keys in (ENTER, ENTER, END, b"v", END, 2 * ESCAPE):
                terminal.type(keys)
                terminal.rest()
        for key in SCREENS:
            terminal.type(key)
            if key in filled_later:
                terminal.wait_for_field(filled_later[key])
            terminal.rest(0.15)
            for keys in (*inner, 3 * ESCAPE):
                terminal.type(keys)
                terminal.rest(0.15)
        terminal.type(b"/" + "\u202e\x9bzq".encode())
        terminal.rest()
        terminal.type(ESCAPE + ESCAPE)
        terminal.rest()
        terminal.type(b"\x11")
        assert terminal.end() == 0, terminal.text
        return without_own(terminal.bytes), terminal.seen


WAYS = {
    "job": ("enter", "enter", "v", "pagedown", "end"),
    "the epoch after": ("enter", "up", "enter", "end"),
    "lists": ("2", "tab", "end", "escape", "8", "end", "escape", "5", "v", "escape", "3", "end"),
}
"""Screens with texts of logs and files, by the keys to them."""


@pytest.mark.parametrize("way", WAYS)
async def test_pictures_and_copies_have_no_secret(way: str, tmp_path: Path) -> None:
    write_keyed_files(tmp_path)
    async with opened(session(tmp_path), (220, 120)) as seen:
        shown = seen.text
        for key in WAYS[way]:
            await seen.press(key)
            seen.app.screen.text_select_all()
            copied = seen.app.screen.get_selected_text() or ""
            shown += f"{seen.text}\n{seen.app.export_screenshot()}\n{copied}\n"
            seen.app.screen.clear_selection()
    assert "3f1c2d4e" in shown
    assert not A_KEY.search(shown)
    if way == "job":
        assert f"https://{HIDDEN}@example.org" in " ".join(shown.split())
