"""Texts of hundreds of kilobytes in every field: output, memory and time are bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from metlmon.eventlog.events import TEXT_LIMIT, redact_and_truncate
from tests.hostile.dagdir import Dagdir, write
from tests.support.command_server import Ran, read_before

FILLING = 60_000

LONGEST = 1100


@pytest.fixture(scope="module", name="long")
def _long(tmp_path_factory: pytest.TempPathFactory) -> Dagdir:
    dagdir = write(tmp_path_factory.mktemp("long"), (0,), FILLING)
    read_before(dagdir.path)
    return dagdir


PEOPLE = ("status", "jobs", "timeline", "report", "config show")


@pytest.mark.parametrize("command", PEOPLE)
def test_lines_are_bounded(command: str, long: Dagdir, metlmon: Callable[..., Ran]) -> None:
    ran = metlmon(*command.split(), long.path)
    assert ran.returncode == 0, ran.stderr[-1000:]
    text = ran.stdout.decode() + ran.stderr.decode()
    assert max(map(len, text.split("\n"))) <= LONGEST
    assert len(text) < FILLING, "no single text is there whole"


@pytest.mark.parametrize("form", ["--html", "--md"])
def test_reports_are_bounded(form: str, long: Dagdir, metlmon: Callable[..., Ran]) -> None:
    assert "LLLL" in (text := metlmon("report", form, "-", long.path).stdout.decode())
    assert max(map(len, text.replace("<", "\n").replace("|", "\n").split("\n"))) <= 3000


def test_texts_of_events_are_truncated(long: Dagdir, metlmon: Callable[..., Ran]) -> None:
    output = json.loads(metlmon("jobs", "--json", long.path).stdout)
    texts = [
        text
        for job in output["jobs"]
        for each in (job, *job["executions"], *job["transfers"])
        for name in ("reason", "hold_reason", "site", "host", "gpu")
        if (text := each.get(name)) is not None
    ]
    assert TEXT_LIMIT in map(len, texts), "a long one was met"
    assert max(map(len, texts)) <= TEXT_LIMIT


def test_secret_at_the_cut_is_hidden_entirely() -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 4
    text = "x" * (TEXT_LIMIT - 10) + " token=" + secret + "y" * 1_000_000
    assert "a1B2" not in redact_and_truncate(text)


def test_memory_is_bounded_by_kept_texts(
    tmp_path: Path, environment: dict[str, str], small: Dagdir, long: Dagdir
) -> None:
    """Further bytes of a file are not held several times."""
    code = (
        "import resource, sys; from metlmon.cli.main import main; main(sys.argv[1:]);"
        "sys.stderr.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))"
    )

    def peak(dagdir: Dagdir) -> int:
        done = subprocess.run(
            [sys.executable, "-c", code, "jobs", str(dagdir.path)],
            capture_output=True,
            env=environment,
            check=True,
            cwd=tmp_path,
        )
        return int(done.stderr.split()[-1]) * 1024

    files = sum(each.stat().st_size for each in long.path.rglob("*") if each.is_file())
    assert files > 10_000_000
    assert peak(long) - peak(small) < 4 * files
