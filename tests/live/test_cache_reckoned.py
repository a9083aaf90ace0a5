"""What jobs and nodes came to is not reckoned again when a dagdir is opened again, and is so
wherever it could be another."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from metlmon.live import cache_entry as kept_module
from metlmon.live import cached_workflows as workflows_module
from metlmon.live.cache import Cache
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model import job_events as record_module
from metlmon.model.settings import Settings
from tests.live.dagdirs import NODE, Dagdir, log_of
from tests.live.test_cache_reopening import (
    FIXTURES,
    another_node,
    another_post,
    dagman_says_more,
    opened,
    read,
    recalled,
    same,
    told,
)

SOURCE = FIXTURES / "first-round"


pytestmark = pytest.mark.usefixtures("all_is_worth_keeping")


@pytest.fixture(name="folded")
def _folded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each time that a job's life was folded."""
    counted: list[int] = []
    fold = record_module.fold

    def counting(*given: object) -> object:
        counted.append(1)
        return fold(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(record_module, "fold", counting)
    return counted


def add_up(reader: DagdirReader) -> None:
    """All that a first picture needs of its jobs and nodes."""
    reader.ensemble.aggregates.add_up()
    reader.ensemble.aggregates.settle(reader.live())


def test_no_job_is_folded_twice_for_a_first_picture(folded: list[int]) -> None:
    reader = opened(SOURCE)
    while reader.step().more:
        pass
    folded.clear()
    reader.snapshot_builder()
    assert 0 < len(folded) <= len(reader.ensemble.jobs)


def test_no_job_is_folded_when_nothing_has_changed(cache: Cache, folded: list[int]) -> None:
    first = read(SOURCE, cache)
    folded.clear()
    again = opened(SOURCE, cache)
    add_up(again)
    assert not folded
    assert len(again.ensemble.jobs) == len(first.ensemble.jobs) > 100
    assert same(again)


def test_only_what_was_appended_is_added_up(
    dagdir: Dagdir, cache: Cache, folded: list[int]
) -> None:
    dagdir.write("metl.log", b"".join(log_of(n, node=NODE) for n in range(1, 50)))
    read(dagdir.path, cache)
    dagdir.append("metl.log", log_of(77, node="run0-train_epoch1"))
    folded.clear()
    again = opened(dagdir.path, cache)
    again.read_all()
    assert len(folded) <= 2
    assert same(again)


def test_what_was_not_added_up_yet_is_when_it_is_opened_again(dagdir: Dagdir, cache: Cache) -> None:
    dagdir.write("metl.log", log_of(77))
    reader = opened(dagdir.path, cache)
    reader.step()
    reader.snapshot_builder().status()
    dagdir.append("metl.log", log_of(78) + log_of(79, node="run0-train_epoch1"))
    reader.check()
    reader.step()
    for kept in reader.keep():
        assert kept.write()
    again = opened(dagdir.path, cache)
    assert again.ensemble.changed_jobs
    assert not again.ensemble.all_changed
    assert same(again)


@pytest.mark.parametrize("change", [another_node, another_post])
def test_other_dag_files_are_another_matter(
    dagdir: Dagdir, cache: Cache, change: Callable[[Dagdir], None]
) -> None:
    told(dagdir, cache)
    change(dagdir)
    reader = opened(dagdir.path, cache)
    assert recalled(reader) > 0
    assert reader.ensemble.all_changed
    reader.read_all()
    assert same(reader)


@pytest.mark.parametrize("worth_seconds", [0.0, 1000.0])
def test_a_submit_description_is_one_of_the_files(
    dagdir: Dagdir, cache: Cache, monkeypatch: pytest.MonkeyPatch, worth_seconds: float
) -> None:
    """Also where the workflow itself is not worth keeping."""
    monkeypatch.setattr(workflows_module, "WORTH_SECONDS", worth_seconds)
    dagdir.write("run.dag", f"JOB {NODE} train.sub\n")
    dagdir.write("train.sub", "log = metl.log\noutput = a.out\n")
    told(dagdir, cache)
    assert not opened(dagdir.path, cache).ensemble.all_changed
    dagdir.write("train.sub", "log = metl.log\noutput = b.out\n")
    reader = opened(dagdir.path, cache)
    assert reader.ensemble.all_changed
    assert same(reader)


def test_dagman_may_say_more(dagdir: Dagdir, cache: Cache) -> None:
    told(dagdir, cache)
    dagman_says_more(dagdir)
    reader = opened(dagdir.path, cache)
    assert not reader.ensemble.all_changed
    reader.read_all()
    assert same(reader)


@pytest.mark.parametrize(
    "other",
    [
        Settings(site_aliases=(("aws", "elsewhere"), ("delta", "d"))),
        Settings(gpu_aliases=(("NVIDIA A10G", "small"),)),
        Settings(sites=(("*", "everywhere"),)),
        Settings(train_node=re.compile(r"^(?P<run>x)(?P<epoch>\d+)$")),
    ],
    ids=["site-alias", "gpu-alias", "site-rule", "train-node"],
)
def test_other_settings_come_to_something_else(cache: Cache, other: Settings) -> None:
    read(SOURCE, cache)
    reader = opened(SOURCE, cache, other)
    assert recalled(reader) > 0
    assert reader.ensemble.all_changed
    assert same(reader, other)


def test_what_is_of_another_shape_is_reckoned_anew(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(SOURCE, cache)
    monkeypatch.setattr("metlmon.snapshot.dump_totals.NodeState", lambda: None)
    reader = opened(SOURCE, cache)
    assert recalled(reader) > 0
    assert reader.ensemble.all_changed
    monkeypatch.undo()
    monkeypatch.setattr(kept_module, "code", lambda: "this code")
    assert same(reader)
