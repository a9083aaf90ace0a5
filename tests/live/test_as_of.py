"""``--as-of`` without ``--tz``: the access point's UTC offset is inferred from times that the files
state in both clocks, at any time; what cannot be placed is left out with a warning."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from metlmon.config.settings import Settings
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.replay import Replay
from metlmon.model.states import DagState
from tests.conftest import Shared
from tests.support.recordings import FIXTURES, read_all
from tests.support.replay_pieces import replay_pieces

CHICAGO = ZoneInfo("America/Chicago")
OWN_ACCORD = re.compile(rb"\n?\tJob terminated of its own accord at [^\n]*\n")


def laid_out(source: str, place: Path, *without: str, z_stamps: bool = True) -> Path:
    """A recorded dagdir without its settings and without the files with these suffixes.
    ``z_stamps`` False: as HTCondor writes events 005 since 24.7."""
    for path in (FIXTURES / source).iterdir():
        out = path.suffix in (".out", ".err") and "dagman" not in path.name
        if path.is_file() and not out and not path.name.endswith(("metlmon.toml", *without)):
            data = path.read_bytes()
            if not z_stamps and path.name.endswith(".log"):
                data = OWN_ACCORD.sub(b"", data)
            (place / path.name).write_bytes(data)
    return place


def read(path: Path, as_of: str, zone: ZoneInfo | None = None) -> DagdirReader:
    return read_all(DagdirReader(path, Settings(zone=zone), as_of=datetime.fromisoformat(as_of)))


def claims(reader: DagdirReader) -> Any:
    """The state of DAGs, runs and nodes in a status."""
    status = reader.snapshot_builder().status()
    dags = [(d.file, d.state, d.dagmans, d.nodes_done, d.rescue, d.ended) for d in status.dags]
    runs = [(run.run, run.epochs_done, run.epochs_inferred, run.state) for run in status.runs]
    return dags, runs, status.node_states


def warned(reader: DagdirReader) -> list[str]:
    return [n.text for n in reader.snapshot_builder().notices() if n.kind == "undated"]


# Before, in and between the three DAGMans, and at the seconds of the rescue files.
TIMES = "09:43:00 09:43:20 09:43:21 09:43:40 09:44:01 09:44:02 09:44:10 09:44:17 12:00:00"
RESCUED = [f"2026-11-21T{time}" for time in TIMES.split()]

OTHERS = ("jobstate.log", ".status")
RESCUES = (".rescue001", ".rescue002")


@pytest.mark.parametrize(
    ("without", "z_stamps"),
    [
        pytest.param((), True, id="all"),
        pytest.param((".metrics", ".log", ".status"), True, id="dagman.out and the rescue files"),
        pytest.param((*OTHERS, ".metrics", ".dagman.log", ".dagman.out"), True, id="005"),
        pytest.param((*OTHERS, ".dagman.out"), False, id="dagman.log and metrics"),
        pytest.param(
            (*OTHERS, ".dagman.out", ".metrics"), False, id="dagman.log and the rescue files"
        ),
        pytest.param(
            (".status", ".dagman.out", ".metrics", ".dagman.log"), False, id="the jobstate log"
        ),
        pytest.param(
            (".status", ".metrics", ".dagman.log", "metl.log", ".nodes.log"),
            False,
            id="dagman.out and the jobstate log",
        ),
    ],
)
def test_past_status_is_the_same_without_the_zone(
    tmp_path: Path, without: tuple[str, ...], z_stamps: bool
) -> None:
    path = laid_out("rescue", tmp_path, *without, z_stamps=z_stamps)
    # Every time with all files, else every second one.
    for moment in RESCUED[::2] if without else RESCUED:
        inferred = read(path, moment)
        assert inferred.ensemble.clock.has_offset
        assert claims(inferred) == claims(read(path, moment, ZoneInfo("UTC"))), moment
        assert not warned(inferred)


def test_changed_offset_is_inferred(tmp_path: Path) -> None:
    path = laid_out("first-round", tmp_path, ".dagman.out", ".metrics")
    for moment in ("2025-09-29T16:41:29", "2025-12-02T01:24:08"):
        assert claims(read(path, moment)) == claims(read(path, moment, CHICAGO))


def test_jobstate_log_alone_has_each_dagman(tmp_path: Path) -> None:
    path = laid_out("rescue", tmp_path, ".dagman.out", ".dagman.log", ".metrics", ".status")
    removed, running = DagState.REMOVED, DagState.RUNNING
    for second, state in (("43:20", running), ("43:22", removed), ("43:23", running)):
        status = read(path, f"2026-11-21T09:{second}").snapshot_builder().status()
        assert status.dags[0].state is state
    status = read(path, "2026-11-21T09:44:03").snapshot_builder().status()
    assert status.dags[0].state is DagState.FAILED
    assert str(status.dags[0].ended) == "2026-11-21 09:44:02"


@pytest.mark.parametrize("name", ["rescue", "scripts", "shared-log", "holds"])
def test_past_is_that_of_the_files_then(tmp_path: Path, name: str) -> None:
    pieces = replay_pieces(FIXTURES / name)
    for piece in pieces[::250]:
        then = tmp_path / str(piece.order)
        Replay(pieces, then, 1.0).write_until(piece.time)
        both = [read(path, str(piece.time)).snapshot_builder() for path in (FIXTURES / name, then)]
        rows = [[*b.job_rows(), *map(b.run_view, b.runs.by_key), *b.notices()] for b in both]
        assert rows[0] == rows[1], piece.time


def test_log_that_is_damaged_later_has_no_warning_yet(shared: Shared) -> None:
    torn = read(FIXTURES / "health" / "dag-failed", "2026-11-23T23:25:03")
    glued = read(shared("examples/metl-aws"), "2025-11-05T05:30:22")
    for reader in (torn, glued):
        assert not list(reader.snapshot_builder().notices())


def test_dagman_log_and_jobstate_log_are_one_dagman(tmp_path: Path) -> None:
    without = (".dagman.out", ".metrics", ".status", "metl.log", ".nodes.log", *RESCUES)
    path = laid_out("rescue", tmp_path, *without)
    assert read(path, "2026-11-21T09:43:40").ensemble.clock.has_offset


def test_files_without_a_known_time_are_left_out(tmp_path: Path) -> None:
    path = laid_out("rescue", tmp_path, *OTHERS, ".dagman.out", ".dagman.log", z_stamps=False)
    reader = read(path, "2026-11-21T09:43:40")
    status = reader.snapshot_builder().status()
    assert not reader.ensemble.clock.has_offset
    assert [dag.rescue for dag in status.dags] == [None]
    assert status.dags[0].state is not DagState.DONE
    (text,) = warned(reader)
    assert "ens.dag.rescue001, ens.dag.rescue002, ens.dag.metrics" in text
    assert "--tz" in text
    assert len(text) < 400


def test_files_far_from_the_time_are_placed_without_a_zone(tmp_path: Path) -> None:
    path = laid_out("rescue", tmp_path, *OTHERS, ".dagman.out", ".dagman.log", z_stamps=False)
    for moment in ("2026-11-20T20:00:00", "2026-11-23T00:00:00"):
        reader = read(path, moment)
        assert claims(reader)[1:] == claims(read(path, moment, ZoneInfo("UTC")))[1:]
        assert not warned(reader)


def test_undated_rescue_file_is_left_out_of_the_past(tmp_path: Path) -> None:
    path = laid_out("rescue", tmp_path, ".dagman.out")
    rescue = path / "ens.dag.rescue002"
    rescue.write_bytes(re.sub(rb"# Created [^\n]*\n", b"", rescue.read_bytes()))
    reader = read(path, "2026-11-21T09:44:10")
    assert reader.snapshot_builder().status().dags[0].rescue == 1
    (text,) = warned(reader)
    assert text.endswith("they have no date: ens.dag.rescue002")


def test_metrics_of_another_dagman_give_no_offset(tmp_path: Path) -> None:
    """Its job is not in ``.dagman.log``."""
    path = laid_out("rescue", tmp_path, *OTHERS, ".dagman.out", *RESCUES, z_stamps=False)
    metrics = path / "ens.dag.metrics"
    metrics.write_bytes(metrics.read_bytes().replace(b'"436"', b'"435"'))
    assert not read(path, "2026-11-21T09:44:10").ensemble.clock.has_offset


def test_time_travel_infers_the_offset(tmp_path: Path) -> None:
    from metlmon.live.session import Session

    path = laid_out("rescue", tmp_path, *OTHERS, ".dagman.out", z_stamps=False)
    present = read_all(DagdirReader(path))
    past = Session(present).historical(datetime(2026, 11, 21, 9, 43, 40))
    received: list[Any] = []
    past.start(received.append)
    past._thread.join(20.0)  # type: ignore[union-attr]
    assert received[-1].status.dags[0].rescue == 1
