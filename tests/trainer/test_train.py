"""The bundled trainer as its jobs run it: a process in a directory of its own."""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import math
import os
import pickle
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import pytest

from metlmon.jobfiles.provenance import read_events
from metlmon.jobfiles.records import CheckpointRecord
from metlmon.trainer import train
from tests.support.commands import Captured
from tests.support.gated_dagdir import GATE
from tests.support.patience import PATIENCE
from tests.trainer.conftest import Data, write_table

TRAINER = Path(train.__file__)

UUID = "75f86c77"


def start(
    folder: Path, *arguments: object, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    words = [sys.executable, str(TRAINER), "--uuid", UUID, *map(str, arguments)]
    return subprocess.Popen(
        words,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(
    folder: Path, *arguments: object, status: int = 0, environment: dict[str, str] | None = None
) -> tuple[str, str]:
    """Its output, and its error messages."""
    with start(folder, *arguments, environment=environment) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == status, (out, err)
    assert b"Traceback" not in err
    return out.decode(), err.decode()


def logs(folder: Path) -> Path:
    return folder / "output" / "training_logs" / UUID


def last(folder: Path) -> bytes:
    return (logs(folder) / "checkpoints" / "last.ckpt").read_bytes()


def best(folder: Path) -> list[str]:
    return sorted(path.name for path in (logs(folder) / "checkpoints").glob("epoch=*.ckpt"))


def rows(folder: Path, version: int) -> list[dict[str, str]]:
    with (logs(folder) / f"version_{version}" / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def column(folder: Path, version: int, name: str) -> dict[int, str]:
    """Step → value, in the rows that have it."""
    return {int(row["step"]): row[name] for row in rows(folder, version) if row.get(name)}


def figures_of(folder: Path, version: int) -> dict[str, str]:
    lines = (logs(folder) / f"version_{version}" / "metrics.txt").read_text().splitlines()
    return dict(line.split(",", 1) for line in lines)


def wait_for(stream: IO[bytes], text: bytes) -> None:
    """Read until ``text`` appears."""
    deadline = time.monotonic() + PATIENCE
    seen = b""
    while text not in seen:
        ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(stream.fileno(), 65536) if ready else b""
        assert piece, f"no {text!r} in {seen[-500:]!r}"
        seen += piece


def one_job_an_epoch(base: Path, epochs: int, *arguments: object) -> Path:
    """Run each job in its own directory with the output of the one before, as HTCondor transfers
    it; return the last directory."""
    before = None
    for epoch in range(1, epochs + 1):
        folder = base / f"job{epoch}"
        folder.mkdir()
        if before is not None:
            shutil.copytree(before / "output", folder / "output")
        run(folder, "--max-epochs", epochs, "--stop-after-epoch", epoch, *arguments)
        before = folder
    assert before is not None
    return before


@pytest.fixture(scope="module", name="whole")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three epochs in one job."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder, "--max-epochs", 3)
    return folder


@pytest.fixture(scope="module", name="apart")
def _apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in three jobs."""
    return one_job_an_epoch(tmp_path_factory.mktemp("apart"), 3)


@pytest.fixture(name="begun")
def _begun(apart: Path, tmp_path: Path) -> Path:
    """What the first of three jobs left."""
    folder = tmp_path / "begun"
    shutil.copytree(apart.parent / "job1", folder)
    return folder


def test_five_jobs_of_one_epoch_equal_one_job_of_five(tmp_path: Path, small: Data) -> None:
    apart = one_job_an_epoch(tmp_path, 5, "--seed", 3, *small)
    whole = tmp_path / "whole"
    run(whole, "--max-epochs", 5, "--seed", 3, *small)
    assert last(apart) == last(whole)
    assert best(apart) == best(whole)
    for name in best(whole):
        path = Path("checkpoints") / name
        assert (logs(apart) / path).read_bytes() == (logs(whole) / path).read_bytes()
    assert train.unpack(last(whole)).epochs == 5
    figures = ["test_loss", "test/pearson_score", "best_model_score"]
    assert [figures_of(apart, 4)[each] for each in figures] == [
        figures_of(whole, 0)[each] for each in figures
    ]


@pytest.mark.parametrize("program", [TRAINER, GATE], ids=lambda program: program.name)
def test_trainer_is_python_3_6_and_standard_library_only(program: Path) -> None:
    wanted = set()
    for node in ast.walk(ast.parse(program.read_text(encoding="utf-8"), feature_version=(3, 6))):
        if isinstance(node, ast.Import):
            wanted |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            wanted.add(str(node.module).split(".")[0])
    assert wanted <= sys.stdlib_module_names
    assert not wanted & {"dataclasses", "__future__", "contextvars"}  # Python 3.6 has them not


def test_files_are_those_of_metl(apart: Path) -> None:
    base = logs(apart)
    assert sorted(path.name for path in base.iterdir()) == [
        f"{UUID}.ndjson",
        "checkpoints",
        "version_0",
        "version_1",
        "version_2",
    ]
    for version in range(3):
        names = sorted(path.name for path in (base / f"version_{version}").iterdir())
        assert names == ["args.txt", "hparams.yaml", "metrics.csv", "metrics.txt"]
    steps = -(-train.TRAIN // train.BATCH)
    (name,) = best(apart)
    score = figures_of(apart, 2)["best_model_score"]
    assert name == f"epoch=2-step={3 * steps}-val_loss={float(score):.2f}.ckpt"
    assert (
        figures_of(apart, 2)["best_model_path"] == f"output/training_logs/{UUID}/checkpoints/{name}"
    )
    words = (base / "version_1" / "args.txt").read_text().splitlines()
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert (given["--max_epochs"], given["--stop_after_epoch"]) == ("3", "2")
    assert f'uuid: "{UUID}"\n' in (base / "version_1" / "hparams.yaml").read_text()


# --- provenance -----------------------------------------------------------------------------


def sidecar(folder: Path) -> dict[str, Any]:
    path = logs(folder) / "checkpoints" / "last.ckpt.provenance.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def checkpoints_of(folder: Path) -> list[CheckpointRecord]:
    """What the events of the run say."""
    path = logs(folder) / f"{UUID}.ndjson"
    return read_events(path.read_text().splitlines(), path.name)


def test_sidecar_names_the_checkpoint_and_its_parent(apart: Path) -> None:
    found = sidecar(apart)
    assert found["checkpoint_hash"] == "sha256:" + hashlib.sha256(last(apart)).hexdigest()
    before = last(apart.parent / "job2")
    assert found["parent_hash"] == "sha256:" + hashlib.sha256(before).hexdigest()
    assert (found["schema_version"], found["run_id"], found["epoch"]) == ("1.0", UUID, 2)
    assert found["training"]["val_loss"] == pytest.approx(
        float(column(apart, 2, "val_loss")[3 * -(-train.TRAIN // train.BATCH) - 1])
    )


def test_provenance_events_pass_from_job_to_job(apart: Path) -> None:
    records = checkpoints_of(apart)
    assert [record.epoch for record in records] == [0, 1, 2]
    assert [record.parent for record in records] == [None, *[r.digest for r in records[:-1]]]
    for record, job in zip(records, ("job1", "job2", "job3"), strict=True):
        assert record.digest == hashlib.sha256(last(apart.parent / job)).hexdigest()


def test_job_records_its_id_and_site(tmp_path: Path, small: Data) -> None:
    ads = {"_CONDOR_JOB_AD": tmp_path / "job.ad", "_CONDOR_MACHINE_AD": tmp_path / "machine.ad"}
    ads["_CONDOR_JOB_AD"].write_text('ClusterId = 12\nProcId = 3\nEnvironment = "KEY=1"\n')
    ads["_CONDOR_MACHINE_AD"].write_text('Cpus = 1\nGLIDEIN_ResourceName = "Delta-GPU"\n')
    environment = {name: str(path) for name, path in ads.items()} | {"_CONDOR_SLOT": "slot1_2"}
    run(tmp_path, "--max-epochs", 1, *small, environment=environment)
    place = sidecar(tmp_path)["produced_at"]
    assert (place["cluster_id"], place["proc_id"], place["slot"]) == (12, 3, "slot1_2")
    assert place["site"] == "Delta-GPU"
    (record,) = checkpoints_of(tmp_path)
    assert (record.job, record.site) == ((12, 3), "Delta-GPU")


def test_retrained_epoch_has_the_same_checkpoint(apart: Path) -> None:
    """A job that ended between sidecar and checkpoint has recorded the epoch already."""
    folder = apart.parent / "again"
    shutil.copytree(apart, folder)
    shutil.copy(
        logs(apart.parent / "job2") / "checkpoints" / "last.ckpt", logs(folder) / "checkpoints"
    )
    run(folder, "--max-epochs", 3)
    twice = [record for record in checkpoints_of(folder) if record.epoch == 2]
    assert [(r.digest, r.parent) for r in twice] == [(twice[0].digest, twice[0].parent)] * 2


def test_metrics_are_sparse_and_each_version_has_its_own_epochs(apart: Path) -> None:
    steps = -(-train.TRAIN // train.BATCH)
    for version in range(3):
        found = [row for row in rows(apart, version) if row["val_loss"]]
        assert [(row["epoch"], row["step"]) for row in found] == [
            (str(version), str((version + 1) * steps - 1))
        ]
        assert found[0]["train_loss_epoch"] == ""
        assert len(column(apart, version, "train_loss_epoch")) == 1
    data = (logs(apart) / "version_0" / "metrics.csv").read_bytes()
    assert data.count(b"\r\n") == data.count(b"\n")  # the csv module's, as Lightning's


@pytest.mark.parametrize(
    ("done", "passed", "line"),
    [
        (46335, 39733.0, "Epoch 3:  45%|####      | 46335/102968 [11:02:13<13:29:23, 1.17it/s"),
        (0, 0.0, "Epoch 3:   0%|          | 0/102968 [00:00<?, ?it/s"),
        (102968, 75.5, "Epoch 3: 100%|##########| 102968/102968 [01:15<00:00, 1363.81it/s"),
        (2, 10.0, "Epoch 3:   0%|          | 2/102968 [00:10<143:00:30, 5.00s/it"),
    ],
)
def test_progress_line(done: int, passed: float, line: str) -> None:
    assert train.progress_text(3, done, 102968, passed) == line


# --- being killed ---------------------------------------------------------------------------


def test_killed_training_resumes_with_the_same_result(begun: Path, whole: Path) -> None:
    with start(begun, "--max-epochs", 3, "--slow-factor", 60) as process:
        assert process.stdout is not None
        wait_for(process.stdout, b"loss=")
        process.kill()
    # What a process killed while writing leaves.
    for beside in ("last.ckpt.tmp", "epoch=1-step=2-val_loss=0.50.ckpt.tmp"):
        (logs(begun) / "checkpoints" / beside).write_bytes(b"half")
    run(begun, "--max-epochs", 3)
    assert last(begun) == last(whole)
    assert best(begun) == best(whole)
    assert not list(logs(begun).rglob("*.tmp"))
    assert not (logs(begun) / "version_1" / "metrics.txt").exists()
    assert [row["epoch"] for row in rows(begun, 2) if row["val_loss"]] == ["1", "2"]


def test_sigterm_leaves_complete_files(begun: Path) -> None:
    before = last(begun)
    with start(begun, "--max-epochs", 3, "--slow-factor", 60) as process:
        assert process.stdout is not None
        wait_for(process.stdout, b"loss=")
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGTERM
    assert err.count(b"\n") == 1
    assert last(begun) == before
    assert not list(logs(begun).rglob("*.tmp"))


def test_restart_after_the_last_epoch_does_nothing(begun: Path) -> None:
    before, figures = last(begun), figures_of(begun, 0)
    out, _ = run(begun, "--max-epochs", 3, "--stop-after-epoch", 1)
    assert "trained already" in out
    assert last(begun) == before
    assert figures_of(begun, 1) == figures
    # It claims no checkpoint.
    events = (logs(begun) / f"{UUID}.ndjson").read_text().splitlines()
    kinds = [json.loads(line)["type"] for line in events]
    assert kinds == ["job.assigned", "epoch.started", "epoch.completed", "job.assigned"]


# --- invalid checkpoints --------------------------------------------------------------------


def small_checkpoint() -> bytes:
    state = train.first_state(2, 1, 1)
    return train.pack(train.Checkpoint(UUID, 1, "gb1-2", 3, 1, 5, None, state))


WHOLE = small_checkpoint()
MIDDLE = len(WHOLE) // 2
NEWER = train.MAGIC + json.dumps({"arrays": [["embedding", 9]], "epochs": 1}).encode() + b"\n"
DAMAGED = {
    "cut": WHOLE[:-100],
    "flipped": WHOLE[:MIDDLE] + bytes([WHOLE[MIDDLE] ^ 1]) + WHOLE[MIDDLE + 1 :],
    "pickled": pickle.dumps({"state_dict": {}, "epoch": 3}),
    "zipped": b"PK\x03\x04archive/data.pkl" + bytes(500),
    "newer": NEWER + hashlib.sha256(NEWER).digest(),
    "empty": b"",
    "magic alone": train.MAGIC,
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_bad_checkpoint_is_refused_in_a_sentence(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "last.ckpt"
    path.write_bytes(DAMAGED[damage])
    with pytest.raises(train.TrainerError, match=re.escape(str(path))) as error:
        train.read_checkpoint(str(path))
    assert error.value.code == train.EXIT_CHECKPOINT
    assert "take it away" in str(error.value)


def test_damaged_checkpoint_has_its_own_exit_status(tmp_path: Path) -> None:
    folder = logs(tmp_path) / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "last.ckpt").write_bytes(DAMAGED["cut"])
    _, err = run(tmp_path, "--max-epochs", 3, status=train.EXIT_CHECKPOINT)
    assert err.count("\n") == 1
    assert (folder / "last.ckpt").read_bytes() == DAMAGED["cut"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("--seed", 2), "seed"), (("--data", "table.tsv"), "data"), (("--uuid", "another"), "uuid")],
)
def test_checkpoint_of_another_run_is_refused(
    begun: Path, arguments: tuple[object, ...], named: str
) -> None:
    write_table(begun / "table.tsv")
    shutil.copytree(logs(begun), logs(begun).with_name("another"))
    _, err = run(begun, "--max-epochs", 3, *arguments, status=train.EXIT_CHECKPOINT)
    assert named in err
    assert err.count("\n") == 1


def test_requested_checkpoint_continues_another_run(begun: Path) -> None:
    path = logs(begun) / "checkpoints" / "last.ckpt"
    stop = ("--max-epochs", 3, "--stop-after-epoch", 1)
    out, _ = run(begun, "--uuid", "another", *stop, "--checkpoint", path)
    assert f"resuming training from: {path}" in out


def test_longer_run_reports_its_changed_horizon(begun: Path) -> None:
    out, _ = run(begun, "--max-epochs", 9, "--stop-after-epoch", 1)
    assert "horizon was 3 epochs and is 9" in out


# --- demonstrations -------------------------------------------------------------------------


def test_simulated_failure_leaves_what_a_retry_needs(begun: Path, whole: Path) -> None:
    _, err = run(begun, "--max-epochs", 3, "--fail-rate", 1, status=train.EXIT_FAILED)
    assert "--fail-rate" in err
    run(begun, "--max-epochs", 3)
    assert last(begun) == last(whole)
    assert (logs(begun) / "version_2").is_dir()


def test_simulated_eviction_happens_at_the_first_start_only(tmp_path: Path, small: Data) -> None:
    slow = ("--max-epochs", 1, "--slow-factor", 60, "--evict-after", 0.3, *small)
    run(tmp_path, *slow, status=-signal.SIGTERM)
    ad = tmp_path / "job.ad"
    ad.write_text('NumJobStarts = 0\nOwner = "researcher"\n')
    run(tmp_path, *slow, status=-signal.SIGTERM, environment={"_CONDOR_JOB_AD": str(ad)})
    ad.write_text("NumJobStarts = 1\n")
    quick = ("--max-epochs", 1, "--slow-factor", 0.5, "--evict-after", 0.3, *small)
    run(tmp_path, *quick, environment={"_CONDOR_JOB_AD": str(ad)})


def test_simulated_divergence(tmp_path: Path) -> None:
    run(tmp_path, "--max-epochs", 4, "--diverge-at", 3)
    losses = [float(each) for each in column(tmp_path, 0, "val_loss").values()]
    assert losses[1] < losses[0]
    assert losses[2] > 10 * losses[1]
    assert math.isnan(losses[3])
    figures = figures_of(tmp_path, 0)
    assert float(figures["best_model_score"]) == losses[1]
    assert float(figures["test_loss"]) < losses[0]  # of the best epoch, not of the last
    assert len(best(tmp_path)) == 1


# --- other data -----------------------------------------------------------------------------


def test_table_of_variants_is_learned(tmp_path: Path) -> None:
    write_table(tmp_path / "gb1.tsv")
    run(tmp_path, "--data", "gb1.tsv", "--max-epochs", 12)
    assert float(figures_of(tmp_path, 0)["test/pearson_score"]) > 0.5


def test_positions_may_count_from_any_number(tmp_path: Path) -> None:
    for first in (0, 1, 227):
        write_table(tmp_path / f"{first}.tsv", first)
    zero, one, other = (train.read_data(str(tmp_path / f"{n}.tsv")) for n in (0, 1, 227))
    assert zero.train == one.train == other.train
    assert zero.rows == 56 * len(train.ALPHABET)
    assert zero.mark != one.mark


def test_transferred_file_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path / "gb1.tsv")
    monkeypatch.chdir(tmp_path)
    assert train.read_data("/home/somebody/data/gb1.tsv").targets == ("score",)


def test_total_score_is_preferred(tmp_path: Path) -> None:
    lines = ["fa_score\tn_mut\tvariant\ttotal_score"]
    lines += [f"0.{n}\t2\tA{n}G,K99R\t{n}.5" for n in range(30)]
    lines += ["\t1\tA0G\t3.0", "nan\t1\tA0G\t3.0"]
    (tmp_path / "t.tsv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    data = train.read_data(str(tmp_path / "t.tsv"))
    assert data.targets == ("total_score", "fa_score")
    assert (len(data.train), len(data.validate), len(data.test)) == (24, 3, 3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", ":1: the header"),
        (b"variant,score\nA1G,1\n", ":1: the header"),
        (b"variant\tactivity\nA1G\t1\n", ":1: the header"),
        (b"variant\tscore\nA1G\t1\nA2\t1\n", ":3: 'A2' is not a substitution"),
        (b"variant\tscore\n" + b"_wt\t1\n" * 20, "20 usable variants at 0 positions"),
        (b"variant\tscore\nA1J\t1\n", ":2: 'A1J' is not a substitution"),
        (b"variant\tscore\nA1G\tgood\n", ":2: could not convert string to float: 'good'"),
        (b"variant\tscore\nA1G\n", ":2: fewer columns"),
        (b"variant\tscore\nA1G\t1\n", "at least 20"),
        (b"variant\tscore\n\xff\xfe\t1\n", "UTF-8"),
        (b"variant\tscore\n" + b"A1G\t1\nA90000G\t1\n" * 20, "at most 5000"),
    ],
)
def test_unusable_data_is_refused_with_its_line(tmp_path: Path, text: bytes, sentence: str) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes(text)
    with pytest.raises(train.TrainerError, match=re.escape(sentence)) as error:
        train.read_data(str(path))
    assert error.value.code == train.EXIT_DATA
    assert str(path) in str(error.value)


def test_missing_data_is_one_sentence(tmp_path: Path) -> None:
    _, err = run(tmp_path, "--data", "no.tsv", status=train.EXIT_DATA)
    assert err == "train.py: no.tsv: cannot be read: No such file or directory\n"


# --- arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("--max-epochs", "3", "--stop-after-epoch", "4"),
        ("--max-epochs", "0"),
        ("--uuid", "../elsewhere"),
        ("--uuid", ""),
        ("--fail-rate", "1.5"),
        ("--slow-factor", "nan"),
        ("--evict-after", "-1"),
        ("--seed", "one"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[str, ...], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as end:
        train.main(arguments)
    assert end.value.code == 2
    assert "train.py: error: " in capsys.readouterr().err


def test_any_path_works_without_a_locale(tmp_path: Path) -> None:
    out, _ = run(tmp_path, "--max-epochs", 1, "--output", "größe", environment={"LC_ALL": "C"})
    assert "gr" in out
    assert (tmp_path / "größe" / "training_logs" / UUID / "version_0" / "args.txt").exists()
