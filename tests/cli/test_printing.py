"""Output printed piece by piece equals output printed at once."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct
from rich.cells import cell_len

from metlmon.cli import Exit, output
from metlmon.cli.output import EnsembleOutput, print_record, print_records, waiting_line
from metlmon.cli.text_output import TextOutput
from metlmon.model.model_state import Notice
from metlmon.tables.layout import Column
from metlmon.text.record_json import unstamped
from metlmon.text.spans import ALARM, GOOD, PLAIN, TextStyle
from tests.support.commands import Captured
from tests.support.patience import PATIENCE
from tests.support.recordings import FIXTURES

DEMO = FIXTURES / "demo"


class Item(Struct):
    cluster: int
    node: str | None = None
    seconds: tuple[float, ...] = ()


class ItemsOutput(EnsembleOutput, frozen=True, kw_only=True):
    items: tuple[Item, ...]


ITEMS = [Item(12, 'a "quoted" é]'), Item(13, seconds=(1.5,))]

WARNED: Any = SimpleNamespace(
    dagdir="d",
    as_of=None,
    live=False,
    notices=lambda: [Notice("kind", None, None, '"items": []')],
    clock=SimpleNamespace(with_offset=unstamped),
)
"""What is asked of a snapshot's builder."""


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("items", [[], ITEMS[:1], ITEMS])
def test_list_printed_by_items_equals_the_whole(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, terminal: bool, items: list[Item]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    print_record(ItemsOutput, WARNED, items=items)
    whole = capsys.readouterr()
    print_records(ItemsOutput, WARNED, "items", iter(items))
    assert capsys.readouterr() == whole


class Stream(io.StringIO):
    """A standard error that signals when its first line has been written."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal
        self.written = threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def flush(self) -> None:
        self.written.set()


WAITING = "asking the schedd ..."


@pytest.mark.parametrize(
    ("terminal", "seconds", "shown"), [(True, 0.0, WAITING), (False, 0.0, ""), (True, 600.0, "")]
)
def test_waiting_line_is_shown_until_the_answer(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, seconds: float, shown: str
) -> None:
    """On a terminal, once it has waited."""
    stream = Stream(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(output, "WAITING_SECONDS", seconds)
    with waiting_line(WAITING):
        assert not shown or stream.written.wait(PATIENCE)
        assert stream.getvalue() == shown
    assert stream.getvalue() == (f"{shown}\r\x1b[K" if shown else "")


Row = tuple[str, str, str, TextStyle]

COLUMNS: list[Column[Row]] = [
    Column("run", lambda row: row[0], style=lambda row: row[3]),
    Column("n", lambda row: row[1], align="right"),
    Column("site", lambda row: row[2], drop=1, style=lambda row: row[3]),
]
ROWS: list[Row] = [
    ("run1", "3", "日本", ALARM),
    ("a-long-name-of-a-run", "12", "Delta", PLAIN),
    ("another-long-name", "—", "", GOOD),
]


@pytest.mark.parametrize("width", [None, 40, 24, 12])
def test_table_fits_its_terminal_with_and_without_colours(
    width: int | None, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []
    for no_color in ("1", ""):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: width is not None)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("NO_COLOR", no_color)
        monkeypatch.setenv("TERM", "xterm")
        TextOutput().table(COLUMNS, ROWS)
        shown.append(capsys.readouterr().out)
    plain, coloured = shown
    assert ("\x1b[" in coloured) == (width is not None)
    assert "\x1b" not in plain
    without = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert [row.rstrip() for row in without.splitlines()] == plain.splitlines()
    assert ("…" in plain) == (width == 12)
    assert ("SITE" in plain) == (width in (None, 40))
    assert width is None or max(map(cell_len, plain.splitlines())) <= width


ABOUT_A_DAGDIR = ("status", "jobs")
WITHOUT_A_DAGDIR = ("--help",)


def run_into(output: int, command: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command with this descriptor as standard output."""
    words = [*command.split(), *([str(DEMO)] if command in ABOUT_A_DAGDIR else [])]
    with open(output, "wb") as stream:
        return subprocess.run(
            [sys.executable, "-m", "metlmon", *words],
            stdout=stream,
            stderr=subprocess.PIPE,
            cwd=DEMO.parents[1],
            timeout=60,
        )


@pytest.mark.parametrize("command", [*ABOUT_A_DAGDIR, *WITHOUT_A_DAGDIR])
def test_closed_pipe_is_no_failure(command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run_into(writing, command)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("command", [*ABOUT_A_DAGDIR, *WITHOUT_A_DAGDIR, "jobs --json"])
def test_full_disk_is_one_sentence(command: str) -> None:
    words = f"{command} {DEMO}" if command == "jobs --json" else command
    done = run_into(os.open("/dev/full", os.O_WRONLY), words)
    assert done.returncode == Exit.BROKEN
    assert done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


def test_terminal_width_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, used in (("99999999", output.WIDEST), ("120", 120)):
        monkeypatch.setenv("COLUMNS", columns)
        assert output.terminal_width() == used
