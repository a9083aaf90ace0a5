"""What is printed piece by piece is what is printed at once."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from metlmon.cli.output import print_json, print_json_list
from metlmon.cli.tables import TextColumn, print_table

DEMO = Path(__file__).resolve().parents[2] / "fixtures" / "demo"

JOBS: list[dict[str, Any]] = [
    {"cluster": 12, "node": 'a "quoted" é]'},
    {"cluster": 13, "executions": [{"seconds": 1.5}], "site": None},
]


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("jobs", [[], JOBS[:1], JOBS])
@pytest.mark.parametrize("rest", [{}, {"queue": {"jobs": []}}])
def test_a_list_is_printed_item_by_item(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    jobs: list[dict[str, Any]],
    rest: dict[str, Any],
) -> None:
    head = {"schema": 1, "warnings": [{"text": '"jobs": []'}]}
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    print_json({**head, "jobs": jobs, **rest})
    whole = capsys.readouterr().out
    print_json_list(head, "jobs", iter(jobs), rest)
    assert capsys.readouterr().out == whole


COLUMNS = (TextColumn("RUN", shrinks=6), TextColumn("N", right=True), TextColumn("SITE", drop=1))
ROWS: list[list[str | Text]] = [
    ["run1", "3", Text("日本", style="bold red")],
    ["a-long-name-of-a-run", "12", "Delta"],
    [Text("another-long-name", style="green"), "—", ""],
]


@pytest.mark.parametrize("width", [1000, 24, 12])
def test_a_table_has_the_same_words_with_and_without_colours(width: int) -> None:
    shown = []
    for colours in (None, "truecolor"):
        stream = io.StringIO()
        console = Console(
            file=stream, width=width, color_system=colours, force_terminal=bool(colours)
        )
        print_table(console, COLUMNS, ROWS)
        shown.append(stream.getvalue())
    plain, coloured = shown
    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    assert ("…" in plain) == (width == 12)


@pytest.mark.parametrize(
    "command", ["status", "jobs", "nodes", "sites", "timeline", "curves", "estimate", "grid"]
)
def test_a_reader_that_has_seen_enough_is_no_failure(command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "metlmon", command, str(DEMO)],
            stdout=closed,
            stderr=subprocess.PIPE,
            cwd=DEMO.parents[1],
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, b"")
