"""Many ensembles read one after another, followed, and stored for the next session."""

from __future__ import annotations

import os
import shutil
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from metlmon.cli.reading import read_health, read_whole
from metlmon.config.user_state import state_path, write_state
from metlmon.health.changes import PURPOSE, seen
from metlmon.home import finder, reading, worker
from metlmon.home.reading import HomeReader, HomeUpdate, StoredSummary
from metlmon.home.summary import EnsembleState, Figures, HomeSummary, Phase
from tests.support.dagdir_builder import NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.recordings import FIXTURES, opened


class Watch:
    """A reader of Home under a clock that the test sets."""

    def __init__(self, *paths: Path, stored: tuple[StoredSummary, ...] = ()) -> None:
        self.now = 100.0
        self.updates: list[HomeUpdate] = []
        self.reader = HomeReader(self.updates.append, stored, lambda: self.now)
        self.reader.set_paths(map(str, paths))
        self.lines: dict[str, HomeSummary] = {}

    def settle(self) -> dict[str, HomeSummary]:
        """Do all that is due now; return the lines by name of the directory."""
        while self.reader.turn() == 0:
            pass
        for update in self.updates:
            for path in update.removed:
                del self.lines[os.path.basename(path)]
            self.lines |= {os.path.basename(each.path): each for each in update.summaries}
        self.updates.clear()
        return self.lines

    def later(self, seconds: float = 60.0) -> dict[str, HomeSummary]:
        self.now += seconds
        return self.settle()

    def read(self) -> list[str]:
        """The names of the ensembles that the next step reads figures of."""
        while self.reader.turn() == 0:
            pass
        summaries = [each for update in self.updates for each in update.summaries]
        self.settle()
        return [os.path.basename(each.path) for each in summaries if each.phase is Phase.READ]


def figures(summary: HomeSummary) -> Figures:
    assert summary.phase is Phase.READ
    assert summary.figures is not None
    return summary.figures


def live_dagdir(path: Path) -> Dagdir:
    """A running ensemble whose only job started a minute before this machine's clock."""
    made = Dagdir(path)
    made.write("metl.log", Log().submit(1, NODE, at=ago(90)).execute(1, at=ago(60)).data)
    return made


def ago(seconds: int) -> str:
    """A time before this machine's clock, as a log has it."""
    return str((datetime.now() - timedelta(seconds=seconds)).replace(microsecond=0))


def end_job(dagdir: Dagdir) -> None:
    dagdir.append("metl.log", Log().terminate(1, at=ago(30)).data)


def test_lines_have_the_figures_of_the_dashboard() -> None:
    names = ("demo", "scripts", "first-round", "rescue")
    lines = Watch(*(FIXTURES / name for name in names)).settle()
    for name in names:
        reader = read_whole(FIXTURES / name)
        builder = reader.snapshot_builder()
        status, line = builder.status(), figures(lines[name])
        health = read_health(reader)
        counts = status.counted_states
        assert (line.done, line.total) == (
            sum(run.epochs_done + run.epochs_skipped for run in status.runs),
            sum(counts.values()),
        )
        assert line.headline == health.headline.line
        assert (line.trouble is None) == (health.worst is None)
        assert line.hours == status.hours
        assert line.as_of == status.as_of
    assert figures(lines["first-round"]).state is EnsembleState.DONE
    assert figures(lines["first-round"]).completed_at is not None
    assert lines["demo"].needs_person
    assert not lines["rescue"].needs_person


def test_lines_appear_at_once_and_newest_is_read_first(tmp_path: Path) -> None:
    for name, day in (("holds", 1), ("rescue", 3), ("scripts", 2)):
        shutil.copytree(FIXTURES / name, tmp_path / name)
        os.utime(tmp_path / name, (day * 86400.0, day * 86400.0))
    watch = Watch(tmp_path)
    while watch.reader.turn() == 0:
        pass
    seen = [(os.path.basename(s.path), s.phase) for u in watch.updates for s in u.summaries]
    assert seen[:3] == [(name, Phase.WAITING) for name in ("holds", "rescue", "scripts")]
    read = [name for name, phase in seen if phase is Phase.READ]
    assert read == ["rescue", "scripts", "holds"]


def test_finished_ensemble_is_read_again_only_on_change(tmp_path: Path) -> None:
    dagdir = tmp_path / "ens"
    shutil.copytree(FIXTURES / "holds", dagdir)
    watch = Watch(tmp_path)
    watch.settle()
    assert [entry.reader for entry in watch.reader._entries.values()] == [None]
    watch.now += 3600
    assert watch.read() == []
    with (dagdir / "ens.dag").open("a") as file:
        file.write("JOB late-train_epoch0 job.sub\n")
    watch.now += 3600
    assert watch.read() == ["ens"]
    assert figures(watch.lines["ens"]).total == 25


def test_lines_follow_new_and_deleted_ensembles(tmp_path: Path) -> None:
    parent = tmp_path / "all"
    parent.mkdir()
    watch = Watch(parent)
    assert watch.settle()["all"].phase is Phase.UNREADABLE
    shutil.copytree(FIXTURES / "rescue", parent / "new")
    assert watch.later().keys() == {"new"}
    shutil.rmtree(parent / "new")
    assert watch.later().keys() == {"all"}


def test_live_ensemble_is_followed(tmp_path: Path) -> None:
    made = live_dagdir(tmp_path / "ens")
    watch = Watch(tmp_path)
    assert figures(watch.settle()["ens"]).running == 1
    assert figures(watch.lines["ens"]).live
    end_job(made)
    line = figures(watch.later(3.0)["ens"])
    assert (line.running, line.done) == (0, 1)


def test_live_ensembles_beyond_the_budget_are_read_on_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FOLLOWED_BYTES", 700)
    made = [live_dagdir(tmp_path / name) for name in ("a", "b", "c")]
    watch = Watch(tmp_path)
    watch.settle()
    followed = [entry for entry in watch.reader._entries.values() if entry.reader is not None]
    assert sum(entry.summary.size for entry in followed) <= 700
    assert len(followed) < 3
    for each in made:
        end_job(each)
    for _ in made:
        watch.later()
    assert [figures(line).done for line in watch.lines.values()] == [1, 1, 1]


def test_unreadable_ensemble_is_reported_and_retried(tmp_path: Path) -> None:
    (tmp_path / "ens").mkdir()
    dag = tmp_path / "ens" / "bad.dag"
    dag.write_text("PARENT a CHILD b\n")
    shutil.copytree(FIXTURES / "rescue", tmp_path / "rescue")
    watch = Watch(tmp_path)
    lines = watch.settle()
    assert lines["ens"].phase is Phase.UNREADABLE
    assert "bad.dag:1" in (lines["ens"].error or "")
    assert lines["rescue"].phase is Phase.READ
    dag.write_text("JOB run0-train_epoch0 a.sub\n")
    line = watch.later()["ens"]
    assert line.error is None
    assert figures(line).total == 1


def test_stalled_file_server_delays_only_its_ensembles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, listing = threading.Event(), finder._list
    hung, here = tmp_path / "nfs", tmp_path / "here"
    for place in (hung, here):
        shutil.copytree(FIXTURES / "rescue", place / f"on-{place.name}")

    def wait_for_server(path: Path) -> object:
        if path == hung:
            answer.wait()
        return listing(path)

    monkeypatch.setattr(finder, "_list", wait_for_server)
    watch = Watch(hung, here)
    lines = watch.settle()
    assert "no answer from the file system" in (lines["nfs"].error or "")
    assert lines["on-here"].phase is Phase.READ
    answer.set()
    assert watch.later().keys() == {"on-nfs", "on-here"}


# --- between sessions -----------------------------------------------------------------------


def test_unchanged_ensembles_are_shown_without_reading(tmp_path: Path) -> None:
    for name in ("holds", "rescue"):
        shutil.copytree(FIXTURES / name, tmp_path / name)
    first = Watch(tmp_path)
    before = dict(first.settle())
    stored = tuple(first.reader.stored())
    os.utime(tmp_path / "rescue" / "metl.log")
    second = Watch(tmp_path, stored=stored)
    second.reader.turn()
    phases = {os.path.basename(s.path): s.phase for u in second.updates for s in u.summaries}
    assert phases == {"holds": Phase.READ, "rescue": Phase.STORED}
    assert second.settle() == before
    assert second.reader._entries[str(tmp_path / "holds")].figures_at == float("-inf")


def test_summaries_are_stored_for_the_same_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summaries = [StoredSummary(HomeSummary(path="/a"), (("/a/x", 1, 2),))]
    for place, stored in ((tmp_path / "cache", summaries), (None, [])):
        worker.store(place, summaries)
        assert worker.load_stored(place) == stored
    monkeypatch.setattr(worker, "_version", lambda: "another")
    assert worker.load_stored(tmp_path / "cache") == []


def test_opening_an_ensemble_marks_its_changes_as_seen(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "holds", tmp_path / "ens")
    status = opened(tmp_path / "ens").snapshot_builder().status()
    now, path = seen(status), state_path(PURPOSE, tmp_path / "ens")
    write_state(path, type(now)(now.until - timedelta(seconds=2)))
    watch = Watch(tmp_path / "ens")
    assert (figures(watch.settle()["ens"]).since_seen or "").endswith(" epochs done")
    write_state(path, now)
    watch.reader.look_again(str(tmp_path / "ens"))
    assert figures(watch.later(2.0)["ens"]).since_seen is None
