"""Remote files that grow, are truncated and replaced are read like local ones."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.home.summary import make_figures
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.file_access import UnreadableFile, output_file, read_tail
from metlmon.live.job_files import TrainingFiles
from metlmon.live.output_pager import Search, page_above, page_around, page_at_end
from metlmon.remote import machine
from metlmon.remote.machine import MACHINES, Machine, connect_to
from tests.support.dagdir_builder import NODE, Dagdir, again, log_of
from tests.support.event_logs import Log
from tests.support.gated_dagdir import gated_dag
from tests.support.recordings import FIXTURES, opened, read_all
from tests.support.ssh_server import SHELL, SshServer
from tests.support.wandb_files import history_record, log_file, log_records, run_record

pytestmark = pytest.mark.xdist_group("ssh")


LATER = "run0-train_epoch1"

RESCUE = f"# Rescue DAG file\n# Created 5/4/2026 12:00:00 UTC\n\nDONE {NODE}\n"

RUN = "output/training_logs/aaaa1111-0000"


class ReaderPair:
    """Two readers of one directory: one local, one over ssh."""

    def __init__(self, host: str, path: Path) -> None:
        self.host = host
        paths = path, Path(connect_to(f"{host}:{path}"))
        self.readers = [opened(each) for each in paths]

    def compare(self) -> dict[str, Any]:
        """Read once more; check that both agree, and return the result."""
        pictures = []
        MACHINES[self.host].look()
        for reader in self.readers:
            again(reader)
            pictures.append(picture(reader))
        here, there = pictures
        for name in here:
            assert there[name] == here[name], name
        return here


TIME = re.compile(r"\d\d:\d\d:\d\d")


def picture(reader: DagdirReader) -> dict[str, Any]:
    """All that is shown of an ensemble, without its path and the times of notices."""
    builder = reader.snapshot_builder()
    outputs = TrainingFiles(reader.dagdir, reader.ensemble.settings)
    notices = [(n.kind, n.file, n.line, TIME.sub("", n.text)) for n in builder.notices()]
    return {
        "status": replace(builder.status(), dagdir="", warnings=()),
        "jobs": builder.job_rows(),
        "notices": notices,
        "files": outputs.read(builder),
        "error": reader.error and TIME.sub("", reader.error),
    }


def grow(dagdir: Dagdir) -> None:
    dagdir.append("metl.log", Log().terminate(77).submit(78, LATER).data)


def tear(dagdir: Dagdir) -> None:
    dagdir.append("metl.log", Log().submit(78, LATER).data[:-40])


def replace_by_a_copy_that_continues(dagdir: Dagdir) -> None:
    before = (dagdir.path / "metl.log").read_bytes()
    dagdir.replace("metl.log", before + Log().terminate(77).data)


def overwrite_bytes_in_place(dagdir: Dagdir) -> None:
    path = dagdir.path / "metl.log"
    path.write_bytes(path.read_bytes().replace(b"(077.", b"(078.").replace(b"(77.", b"(78."))


def rotate(dagdir: Dagdir) -> None:
    os.rename(dagdir.path / "metl.log", dagdir.path / "metl.log.1")
    dagdir.write("metl.log", Log().submit(78, LATER).data)


def change_the_dag(dagdir: Dagdir) -> None:
    text = (dagdir.path / "run.dag").read_text()
    dagdir.write("run.dag", f"{text}JOB run1-train_epoch0 train\n")


def log_elsewhere(dagdir: Dagdir) -> None:
    log = dagdir.path.parent / "elsewhere" / "other.log"
    log.parent.mkdir()
    log.write_bytes(log_of(96, node="run2-train_epoch0"))
    dagdir.write("other.sub", f"executable = x\nlog = {log}\nqueue\n")
    text = (dagdir.path / "run.dag").read_text()
    dagdir.write("run.dag", f"{text}JOB run2-train_epoch0 other.sub\n")


def write_metrics(dagdir: Dagdir, run: str = RUN) -> None:
    dagdir.write(f"{run}/version_0/metrics.csv", "epoch,step,val_loss\n0,10,0.5\n")


def write_wandb_run(dagdir: Dagdir, run: str = RUN) -> None:
    rows = [{"epoch": 0, "val_loss": 0.5}, {"epoch": 1, "val_loss": 0.4}]
    records = [run_record(1_777_888_999), *map(history_record, rows)]
    dagdir.write(f"{run}/wandb/offline-run-20260504_100300-ab/run-ab.wandb", log_file(records[:2]))
    dagdir.write(f"{run}/wandb/offline-run-20260504_110300-cd/run-cd.wandb", log_file(records))


def grow_wandb_run(dagdir: Dagdir) -> None:
    row = history_record({"epoch": 2, "val_loss": 0.3})
    path = dagdir.path / f"{RUN}/wandb/offline-run-20260504_110300-cd/run-cd.wandb"
    path.write_bytes(log_file([*log_records(path.read_bytes()), row]))


def write_sidecar(dagdir: Dagdir, run: str = RUN) -> None:
    text = json.dumps({"epoch": 0, "checkpoint_hash": "ab" * 32, "parent_hash": None})
    dagdir.write(f"{run}/checkpoints/last.ckpt.provenance.json", text)


def replace_sidecar(dagdir: Dagdir) -> None:
    path = dagdir.path / f"{RUN}/checkpoints/last.ckpt.provenance.json"
    path.with_name("new").write_text("{}")
    path.with_name("new").replace(path)


def write_events(dagdir: Dagdir, run: str = RUN) -> None:
    event = {"type": "epoch.completed", "epoch": 1, "checkpoint_out_hash": "cd" * 32}
    dagdir.write(f"{run}/{Path(run).name}.ndjson", f"{json.dumps(event)}\n")


STEPS: dict[str, tuple[Callable[[Dagdir], object], ...]] = {
    "a log grows": (grow,),
    "the last event is written in two parts": (tear, grow),
    "a log is emptied, and written again": (lambda made: made.write("metl.log", b""), grow),
    "a log is emptied and grows past its old end between two looks": (
        lambda made: made.write("metl.log", log_of(*range(80, 89))),
        grow,
    ),
    "a log is truncated": (
        lambda made: os.truncate(made.path / "metl.log", len(Log().submit(77, NODE).data)),
        grow,
    ),
    "a log is replaced by a copy that continues it": (replace_by_a_copy_that_continues, tear),
    "a log is replaced by another one": (
        lambda made: made.replace("metl.log", log_of(90, 91)),
        grow,
    ),
    "bytes are overwritten in place": (overwrite_bytes_in_place, grow),
    "a log is removed, and comes back": (lambda made: (made.path / "metl.log").unlink(), grow),
    "a log is rotated": (rotate, grow),
    "DAGMan's files appear": (
        lambda made: made.write("run.dag.nodes.log", log_of(77, 95)),
        lambda made: made.write("run.dag.rescue001", RESCUE),
        lambda made: made.write("run.dag.halt", b""),
    ),
    "the DAG grows, with a log in another directory": (change_the_dag, log_elsewhere, grow),
    "metrics are written": (write_metrics, grow, write_metrics),
    "W&B runs are written, and grow": (write_wandb_run, grow, grow_wandb_run),
    "provenance is written, and replaced": (write_sidecar, write_events, grow, replace_sidecar),
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS.keys())
def test_each_step_is_read_as_locally(
    access_point: str, dagdir: Dagdir, steps: tuple[Callable[[Dagdir], object], ...]
) -> None:
    both = ReaderPair(access_point, dagdir.path)
    before = both.compare()
    assert len(before["jobs"]) == 1

    for step in steps:
        step(dagdir)
        both.compare()


@pytest.mark.parametrize(("name", "runs", "checkpoints"), [("demo", 6, 0), ("lineage", 3, 4)])
def test_whole_ensemble_is_read_as_locally(
    access_point: str, tmp_path: Path, name: str, runs: int, checkpoints: int
) -> None:
    copy = shutil.copytree(FIXTURES / name, tmp_path / name)
    shown = ReaderPair(access_point, copy).compare()

    assert len(shown["status"].runs) == len(shown["files"].trainings) == runs
    assert {len(each.checkpoints) for each in shown["files"].trainings.values()} == {checkpoints}


def test_output_is_paged_and_searched_as_locally(access_point: str, dagdir: Dagdir) -> None:
    lines = b"".join(b"line %06d of a job's output\n" % number for number in range(30_000))
    dagdir.write("job.out", lines + b"the end, without a line end")
    pages = []
    for directory in (dagdir.path, Path(connect_to(f"{access_point}:{dagdir.path}"))):
        path = output_file(directory, "job.out")
        page = page_at_end(path)
        above = page_above(path, page, page.rows[0].start)
        around = page_around(path, 400_000)
        found = Search("LINE 000017".lower()).find(path, 0)
        pages.append((page, above, around, found, read_tail(path)))
    assert pages[0] == pages[1]
    assert MACHINES[access_point].file_bytes <= (dagdir.path / "job.out").stat().st_size


def test_link_out_of_the_directory_is_not_output(access_point: str, dagdir: Dagdir) -> None:
    (dagdir.path.parent / "secret").write_bytes(b"not the job's")
    os.symlink("../secret", dagdir.path / "job.out")
    os.mkfifo(dagdir.path / "pipe.out")
    directory = Path(connect_to(f"{access_point}:{dagdir.path}"))
    for name in ("job.out", "pipe.out", "../../secret", f"{dagdir.path.parent}/secret", "none.out"):
        with pytest.raises(UnreadableFile):
            output_file(directory, name)


def test_times_are_in_the_zone_of_the_machine(
    access_point: str, ssh_server: SshServer, dagdir: Dagdir
) -> None:
    moment = datetime(2026, 5, 4, 10, 30)
    seconds = int(moment.replace(tzinfo=UTC).timestamp()) + 10 * 3600
    dagdir.write("run.dag", gated_dag([Path(RUN).name]))
    dagdir.write("e.sub", "executable = x\nlog = metl.log\nqueue\n")
    os.utime(dagdir.write(f"gate/e/{Path(RUN).name}.stop", b""), (seconds, seconds))
    rows = [run_record(seconds), history_record({"val_loss": 0.5})]
    dagdir.write(f"{RUN}/run-ab.wandb", log_file(rows))
    host = ssh_server.add_host("honolulu", f"export TZ=HST10\n{SHELL}")

    path = Path(connect_to(f"{host}:{dagdir.path}"))
    shown = picture(read_all(DagdirReader(path, live=True)))
    figures = make_figures(opened(path))
    assert shown["status"].runs[0].gate.stop_requested == moment
    (training,) = shown["files"].trainings.values()
    assert [point.epoch for point in training.metrics["val_loss"]] == [0]
    ahead = figures.now(datetime.now()) - datetime.now(UTC).replace(tzinfo=None)
    assert round(ahead.total_seconds() / 3600, 1) == -10


# --- traffic ------------------------------------------------------------------------------------


@pytest.mark.parametrize("grows", [False, True])
def test_look_is_one_exchange_of_new_bytes(
    access_point: str, dagdir: Dagdir, monkeypatch: pytest.MonkeyPatch, grows: bool
) -> None:
    for number in range(200):
        dagdir.write(f"job_{number}.out", b"written by a job\n")
    os.utime(dagdir.path, (0, 0))
    reader = opened(Path(connect_to(f"{access_point}:{dagdir.path}")))
    reader.check()
    exchanges = count_exchanges(MACHINES[access_point], monkeypatch)
    if grows:
        grow(dagdir)

    MACHINES[access_point].look()
    again(reader)

    assert len(reader.snapshot_builder().job_rows()) == 1 + grows
    assert len(exchanges) == 1
    assert grows or exchanges[0] < 200


@pytest.mark.parametrize("runs", [1, 8])
def test_files_of_all_runs_need_few_exchanges(
    access_point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    names = [f"aaaa{number}-0000" for number in range(runs)]
    dagdir = Dagdir(tmp_path / "ensemble", gated_dag(names, gated=False))
    for name in names:
        for write in (write_metrics, write_wandb_run, write_sidecar, write_events):
            write(dagdir, f"output/training_logs/{name}")
    reader = opened(Path(connect_to(f"{access_point}:{dagdir.path}")))
    # A busy machine would be asked for changes meanwhile.
    monkeypatch.setattr(machine, "LOOK_SECONDS", 60.0)
    exchanges = count_exchanges(MACHINES[access_point], monkeypatch)

    outputs = picture(reader)["files"].trainings

    assert len(outputs) == runs
    for output in outputs.values():
        # Of the metrics.csv and a W&B run; of the sidecar and the events.
        assert [point.value for point in output.metrics["val_loss"]] == [0.5, 0.4]
        assert len(output.checkpoints) == 2
    assert len(exchanges) < 9


def count_exchanges(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the sizes in bytes of the responses from now on."""
    sizes: list[int] = []
    exchange = machine.channel.exchange

    def counted(frame: bytes) -> bytes:
        response: bytes = exchange(frame)
        sizes.append(len(response))
        return response

    monkeypatch.setattr(machine.channel, "exchange", counted)
    return sizes
