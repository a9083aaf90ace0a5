"""Patterns of the settings: usual ones match as in ``re``; a slow one is disabled with a
warning."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from metlmon.cli.main import main
from metlmon.cli.reading import input_with_trainings
from metlmon.config import settings
from metlmon.config.loader import load_settings
from metlmon.live import job_files
from metlmon.remote import filesystem
from tests.support.commands import Captured
from tests.support.dagdir_builder import Dagdir, log_of

USUAL = (
    (settings.TRAIN_NODE, "run0-train_epoch12"),
    (settings.SIDE_NODE, "run0-eval_epoch12"),
    (r"^(?P<run>.*)-train_epoch(?P<epoch>\d+)$", "run0-train_epoch12"),
    (r"epoch (?P<epoch>\d+): rho=(?P<value>\S+)", "epoch 3: rho=0.91"),
    (r"(?i)epoch[ :=]+(?P<epoch>\d+).*?val_loss[ :=]+(?P<value>[\d.eE+-]+)", "Epoch: 1 val_loss 2"),
    (r"^epoch,(?P<epoch>\d+),(?P<value>[^,]*),[^,]*,[^,]*$", "epoch,1,2,3,4"),
    (r"^(?P<run>run\d+)(?=_)_(?P<epoch>\d{3})", "run1_001"),
    (r"[[a](?P<value>1)", "[1"),
)


@pytest.mark.parametrize(("pattern", "text"), USUAL)
@pytest.mark.filterwarnings("error")
def test_usual_patterns_match_as_in_re(pattern: str, text: str) -> None:
    safe = settings.SafePattern(pattern)
    assert safe.search(text) is not None
    assert safe.pattern == pattern


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "not a valid pattern"),
        ("(?R)", "not a valid pattern"),
        ("a" * 501, "longer than 500"),
        ("(a{1000}){1000}", "more than 10,000 times"),
        ("a{1000000000}", "more than 10,000 times"),
    ],
)
def test_invalid_patterns_are_refused(pattern: str, problem: str) -> None:
    with pytest.raises(settings.InvalidPattern, match=problem):
        settings.SafePattern(pattern)


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"(a|aa)+$", r"([a-z]+)*\d$"])
def test_slow_pattern_is_disabled(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SEARCH_SECONDS", 0.05)
    safe = settings.SafePattern(pattern)
    start = time.thread_time()
    while not safe.disabled and time.thread_time() - start < settings.TOTAL_SECONDS:
        safe.search("a" * (settings.LONGEST_TEXT - 1) + "-b")
    assert safe.disabled
    assert safe.search("b") is None


def test_disabled_pattern_is_reported(tmp_path: Path) -> None:
    dagdir = Dagdir(tmp_path / "ensemble")
    dagdir.write("metl.log", log_of(7))
    dagdir.write("metlmon.toml", "train_node = '^(?P<run>(a|aa)+)(?P<epoch>)$'")
    dagdir.write("run.dag", f"JOB {'a' * 1990}-b t.sub\n")
    reader = dagdir.reader(live=False, settings=load_settings(dagdir.path))
    warnings = reader.snapshot_builder().status().warnings
    assert [w.text for w in warnings if w.kind == "settings"] == [
        "the pattern of train_node takes too long and is not used any more: simplify it"
    ]


def folders_and_patterns(path: Path, last: str, patterns: int) -> Dagdir:
    """Three levels of folders, one of which has the file, and as many patterns."""
    dagdir = Dagdir(path / "ensemble")
    dagdir.write("metl.log", log_of(7))
    for a in range(5):
        for b in range(5):
            (dagdir.path / f"a{a}" / f"b{b}" / "c").mkdir(parents=True)
    (dagdir.path / "a3" / "b2" / "c" / "aaaa1111-00003").mkdir()
    csv = "epoch,val_loss\n0,0.5\n"
    (dagdir.path / "a3" / "b2" / "c" / "aaaa1111-00003" / "metrics.csv").write_text(csv)
    names = ", ".join(f'"*/*/*/{last}{{uuid}}{number}"' for number in range(patterns))
    dagdir.write("metlmon.toml", f"[metrics]\nfiles = [{names}]\n")
    return dagdir


def test_patterns_share_one_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of each folder for each of hundreds of patterns would take minutes."""
    dagdir = folders_and_patterns(tmp_path, "", 500)
    looks: list[Path] = []
    file_type = filesystem.file_type

    def count(path: Path) -> int | None:
        looks.append(path)
        return file_type(path)

    monkeypatch.setattr(filesystem, "file_type", count)
    reader = dagdir.reader(live=False, settings=load_settings(dagdir.path))
    (training,) = input_with_trainings(reader).job_files.trainings.values()
    assert [point.value for point in training.metrics["val_loss"]] == [0.5]
    # 5 + 25 + 25 folders, and some files; none is searched again for each pattern.
    assert len(looks) < 200


def test_slow_file_patterns_are_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(job_files, "MATCHING_SECONDS", 0.0)
    monkeypatch.setattr(job_files, "SECONDS_PER_RUN", 0.0)
    dagdir = folders_and_patterns(tmp_path, "*", 50)
    assert main(["status", str(dagdir.path)]) == 0
    assert "take too long and are not used any more" in capsys.readouterr().err
    reader = dagdir.reader(live=False, settings=load_settings(dagdir.path))
    (training,) = input_with_trainings(reader).job_files.trainings.values()
    assert "take too long" in training.problems[0]
