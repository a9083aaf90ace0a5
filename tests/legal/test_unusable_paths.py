"""Unusable paths, given to every command: directories that may not be entered, names that are too
long, circular links. One sentence names the path; the exit status is 2."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from metlmon.cli.arguments import COMMANDS
from tests.support.command_server import ROOT, run_program

FIXTURE = ROOT / "fixtures" / "rescue"

NOBODY = 65534

NO_PATH = frozenset({"demo", "completion", "help", "schema"})
"""Commands that take no path."""

ON_A_DAGDIR = (
    *(["status", "{path}"], ["status", "--json", "{path}"], ["watch", "{path}"]),
    *(["serve", "{path}"],),
    *(["run", "run0", "{path}"], ["jobs", "{path}"], ["nodes", "{path}"], ["sites", "{path}"]),
    ["usage", "{path}"],
    *(["timeline", "{path}"], ["curves", "{path}"], ["grid", "{path}"], ["shards", "{path}"]),
    *(
        ["health", "{path}"],
        ["compare", "run0", "run1", "{path}"],
        ["estimate", "{path}"],
        ["changes", "{path}"],
        ["advise", "{path}"],
        ["annexes", "{path}"],
        ["report", "{path}"],
        ["export", "{path}"],
        ["check", "{path}"],
    ),
    *(["config", "show", "{path}"], ["config", "path", "{path}"], ["config", "validate", "{path}"]),
    *(["act", "hold", "{path}", "all"], ["act", "halt", "{path}"], ["act", "resubmit", "{path}"]),
    *(["act", "stop", "{path}", "all"], ["continue", "{path}"], ["notify", "{path}"]),
    *(["new", "{path}"], ["new", "--shape", "chain", "{path}"], ["new", "{path}/x.toml", "made"]),
    *(["new", "--shape", "chain", "--past", "{path}", "made"],),
    *(["new", "--shape", "chain", "--template", "{path}", "made"],),
    *(["submit", "--no-submit", "--yes", "{path}"], ["submit", "--dry-run", "{path}"]),
    *(["submit", "--dry-run", "--template", "{path}", "made"],),
)

AS_OUTPUT = (
    ["report", "{dagdir}", "--html", "{path}"],
    ["report", "{dagdir}", "--md", "{path}/report.md"],
    ["export", "{dagdir}", "--out", "{path}"],
)


@pytest.fixture(name="place")
def _place() -> Iterator[Path]:
    """A directory that every user may enter, with a dagdir, a working directory, and a dagdir
    within a directory that only root may enter."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    shutil.copytree(FIXTURE, made / "ens")
    (made / "work").mkdir()
    (made / "work").chmod(0o777)
    shutil.copytree(FIXTURE, made / "closed" / "ens")
    (made / "closed").chmod(0)
    (made / "circle").symlink_to("circle")
    made.chmod(0o555)  # The user of the tests may be its owner.
    yield made
    made.chmod(0o755)
    (made / "closed").chmod(0o700)
    shutil.rmtree(made)


def run(place: Path, commands: list[list[str]]) -> list[tuple[int, str, str]]:
    """Exit status, output and errors of each command, as an ordinary user."""
    user = NOBODY if os.geteuid() == 0 else None
    work = place / "work"
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(work)}
    ran = [run_program(command, work, environment, user) for command in commands]
    return [(done.returncode, done.stdout.decode(), done.stderr.decode()) for done in ran]


def test_every_command_with_a_path_is_covered() -> None:
    tried = {command[0] for command in ON_A_DAGDIR + AS_OUTPUT}
    assert tried == COMMANDS.keys() - NO_PATH


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("closed", "closed: Permission denied; ask its owner"),
        ("closed/ens/ens.dag", "Permission denied; ask its owner"),
        ("n" * 5000, "File name too long; "),
        ("n" * 300, "File name too long; "),
    ],
    ids=["closed", "closed-file", "long", "long-name"],
)
def test_unusable_path_is_one_sentence_and_exit_2(place: Path, name: str, why: str) -> None:
    """A closed directory with every command, other paths with some."""
    path = str(place / name)
    on_a_dagdir = ON_A_DAGDIR[:: 1 if name == "closed" else 5]
    commands = [
        [word.format(path=path, dagdir=place / "ens") for word in command]
        for command in on_a_dagdir + AS_OUTPUT
    ]
    for command, (code, out, err) in zip(commands, run(place, commands), strict=True):
        result = [word[:60] for word in command]
        assert "report this" not in err, result
        if command[0] == "config" and name == "closed":
            # It names every file that it looks for.
            assert path in out + err
            continue
        assert (code, out) == (2, ""), (result, err[:400])
        lines = err.splitlines()
        # All errors of an ensemble to be written are reported at once.
        assert len(lines) == 1 or command[0] == "submit", result
        assert all(line.startswith("metlmon: ") and path[:60] in line for line in lines), result
        assert len(err) < 600, result
        if command in commands[: len(on_a_dagdir)] and command[0] not in ("new", "submit"):
            assert why in err, (result, err[:400])
    assert not list((place / "work").iterdir()), "nothing is written"


def test_circular_links_and_file_in_the_path(place: Path) -> None:
    for path in (place / "circle", place / "ens/ens.dag/x"):
        commands = [
            [word.format(path=path, dagdir=place / "ens") for word in command]
            for command in ON_A_DAGDIR[:23:4] + AS_OUTPUT
            if command[0] != "config"
        ]
        for command, (code, _, err) in zip(commands, run(place, commands), strict=True):
            assert (code, err.count("\n")) == (2, 1), (command, err)
            assert "report this" not in err, command
