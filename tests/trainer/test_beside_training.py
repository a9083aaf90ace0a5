"""What the bundled trainer does beside a chain of epochs: sweeps, stages, evaluations, shards,
and epochs of several machines."""

from __future__ import annotations

import csv
import re
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from metlmon.jobfiles.metrics_csv import read_metrics_csv
from metlmon.trainer import train
from tests.trainer.test_train import (
    PATIENCE,
    UUID,
    column,
    last,
    logs,
    one_job_an_epoch,
    run,
    start,
)


@pytest.fixture(scope="module", name="trained")
def _trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    run(folder, "--max-epochs", 2)
    return folder


# --- what can be swept ------------------------------------------------------------------------

SWEPT = ("--learning-rate", "0.1", "--batch-size", "64", "--hidden", "4")


def test_swept_options_make_another_model_however_it_is_cut(tmp_path: Path, trained: Path) -> None:
    run(tmp_path / "one", "--max-epochs", 2, *SWEPT)
    cut = one_job_an_epoch(tmp_path, 2, *SWEPT)
    assert last(cut) == last(tmp_path / "one")
    assert last(cut) != last(trained)
    found = (logs(cut) / "version_1" / "hparams.yaml").read_text()
    for line in ("batch_size: 64", "embedding_len: 4", "learning_rate: 0.1"):
        assert line in found


def test_each_option_makes_a_difference(tmp_path: Path) -> None:
    run(tmp_path / "usual", "--max-epochs", 1)
    for at in range(0, len(SWEPT), 2):
        run(tmp_path / str(at), "--max-epochs", 1, *SWEPT[at : at + 2])
        assert last(tmp_path / str(at)) != last(tmp_path / "usual")


def test_what_an_option_may_be(tmp_path: Path) -> None:
    for words in (("--learning-rate", "0"), ("--learning-rate", "x"), ("--batch-size", "0")):
        run(tmp_path, *words, status=2)
    run(tmp_path, "--rank", "2", "--machines", "2", status=2)
    run(tmp_path, "--infer", "3/3", status=2)


def test_a_model_of_another_size_does_not_go_on(tmp_path: Path) -> None:
    run(tmp_path, "--max-epochs", 2, "--stop-after-epoch", 1)
    _, err = run(tmp_path, "--max-epochs", 2, "--hidden", 4, status=train.EXIT_CHECKPOINT)
    assert "not of this model's size" in err


# --- stages -------------------------------------------------------------------------------------


def rates(folder: Path, version: int) -> list[float]:
    return [float(value) for value in column(folder, version, "lr-Adagrad").values()]


def test_a_later_stage_has_a_schedule_of_its_own(tmp_path: Path) -> None:
    stage = ("--max-epochs", 3, "--schedule-from", 2)
    run(tmp_path, "--max-epochs", 3, "--stop-after-epoch", 2)
    run(tmp_path, *stage, "--stop-after-epoch", 3, "--learning-rate", "0.05")
    whole = tmp_path / "whole"
    run(whole, "--max-epochs", 3)
    assert rates(tmp_path, 1)[0] < 0.05
    assert rates(tmp_path, 1)[0] == pytest.approx(0.05, rel=0.5)
    assert rates(whole, 0)[-1] < rates(tmp_path, 1)[0]
    assert last(tmp_path) != last(whole)


def test_a_stage_however_it_is_cut_is_one(tmp_path: Path) -> None:
    first = ("--max-epochs", 3, "--stop-after-epoch", 1)
    later = ("--max-epochs", 3, "--schedule-from", 1)
    for name in ("one", "two"):
        run(tmp_path / name, *first)
    run(tmp_path / "one", *later)
    run(tmp_path / "two", *later, "--stop-after-epoch", 2)
    run(tmp_path / "two", *later, "--stop-after-epoch", 3)
    assert last(tmp_path / "one") == last(tmp_path / "two")


def table(path: Path, targets: int) -> Path:
    names = "\t".join(f"score{n}" for n in range(targets))
    lines = [f"variant\t{names}"]
    for position in range(2, 30):
        for to in "AG":
            values = "\t".join(f"{position * 0.1 + n}" for n in range(targets))
            lines.append(f"{train.WILD_TYPE[position]}{position}{to}\t{values}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_later_stage_may_have_other_data_and_other_targets(tmp_path: Path) -> None:
    data = table(tmp_path / "fine.tsv", targets=1)
    run(tmp_path, "--max-epochs", 2, "--stop-after-epoch", 1)
    options = ("--max-epochs", 3, "--schedule-from", 1, "--data", data)
    _, err = run(tmp_path, *options[:2], *options[4:], status=train.EXIT_CHECKPOINT)
    assert "its data is" in err
    # Positions of this table are fewer than the protein's: its embedding cannot go on.
    _, err = run(tmp_path, *options, status=train.EXIT_CHECKPOINT)
    assert "not of this model's size" in err
    whole = data.read_text() + "M0A\t1.0\n" + f"{train.WILD_TYPE[55]}55A\t1.0\n"
    data.write_text(whole)
    run(tmp_path, *options, "--stop-after-epoch", 2)
    assert train.unpack(str(logs(tmp_path) / "checkpoints" / "last.ckpt")).best.epoch == 1  # type: ignore[union-attr]
    # From then on the data are the run's.
    run(tmp_path, *options, "--stop-after-epoch", 3)


# --- evaluation ---------------------------------------------------------------------------------


def everything(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_an_evaluation_leaves_the_training_as_it_is(trained: Path) -> None:
    before = everything(trained / "output")
    out, _ = run(trained, "--evaluate", 2)
    assert everything(trained / "output") == before
    path = trained / "evaluation" / "training_logs" / UUID / "version_2" / "metrics.csv"
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["epoch"] == "1"
    assert float(row["eval/pearson_total_score"]) > 0.8
    assert "Epoch 1: eval_loss" in out
    read = read_metrics_csv(path.open(newline=""))
    assert set(read.values["eval_loss"]) == {1}
    assert read.problems == ()


def test_an_evaluation_without_a_checkpoint(tmp_path: Path) -> None:
    _, err = run(tmp_path, "--evaluate", 1, status=train.EXIT_CHECKPOINT)
    assert "cannot be read" in err


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (("--evaluate", 1), "evaluation"),
        (("--infer", "0/2", "--checkpoint", "gone"), "predictions"),
        (("--gather", 2), "gathered"),
        (("--machines", 2, "--rank", 1, "--data", "gone"), "output"),
    ],
)
def test_what_is_to_be_brought_back_is_there_when_it_fails(
    tmp_path: Path, words: tuple[object, ...], folder: str
) -> None:
    # HTCondor holds a job without its transfer_output_files: it would never count as failed.
    with start(tmp_path, *words) as process:
        process.communicate(timeout=PATIENCE)
    assert process.returncode in (train.EXIT_CHECKPOINT, train.EXIT_DATA)
    assert (tmp_path / folder).is_dir()


# --- shards -------------------------------------------------------------------------------------


def test_shards_together_are_every_variant_once(trained: Path, tmp_path: Path) -> None:
    checkpoint = logs(trained) / "checkpoints" / "last.ckpt"
    for shard in range(3):
        run(tmp_path, "--infer", f"{shard}/3", "--checkpoint", checkpoint)
    run(tmp_path, "--gather", 3)
    header, *rows = (tmp_path / "gathered" / "predictions.tsv").read_text().splitlines()
    assert header.split("\t") == ["variant", *train.TARGETS]
    assert len({row.split("\t")[0] for row in rows}) == len(rows) == 56 * 19
    values = [float(row.split("\t")[1]) for row in rows]
    assert values == sorted(values)
    assert all(re.fullmatch(r"[A-Z]\d+[A-Z]", row.split("\t")[0]) for row in rows)


def test_pairs_of_substitutions_are_counted_once() -> None:
    found = sum(1 for _ in train.every_variant(2))
    assert found == 56 * 55 // 2 * 19 * 19


def test_a_shard_that_is_missing_is_told(tmp_path: Path) -> None:
    run(tmp_path, "--infer", "0/2")
    _, err = run(tmp_path, "--gather", 2, status=train.EXIT_DATA)
    assert "shard_1.tsv" in err


# --- several machines ----------------------------------------------------------------------------


def together(folder: Path, machines: int, *more: object) -> list[subprocess.Popen[bytes]]:
    """A process for each machine, in a directory of its own, as HTCondor has them."""
    meeting = folder / "meeting"
    options = ("--max-epochs", 2, "--machines", machines, "--rendezvous", meeting, *more)
    folder.mkdir(exist_ok=True)
    return [start(folder / f"m{rank}", *options, "--rank", rank) for rank in range(machines)]


def end(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    for process in processes:
        with process:
            process.communicate(timeout=PATIENCE)
    return [process.returncode for process in processes]


def test_machines_that_find_each_other_train_one_model(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert end(together(tmp_path / name, 3)) == [0, 0, 0]
    assert last(tmp_path / "a" / "m0") == last(tmp_path / "b" / "m0")
    assert not (tmp_path / "a" / "meeting").exists()
    assert column(tmp_path / "a" / "m0", 0, "val_loss")
    # The others bring nothing back that could take the place of the run's own.
    left = everything(tmp_path / "a" / "m1" / "output")
    assert list(left) == [f"training_logs/{UUID}/machines/rank_1.txt"]


def test_it_learns_from_all_parts(tmp_path: Path) -> None:
    assert end(together(tmp_path, 2)) == [0, 0]
    found = (logs(tmp_path / "m0") / "version_0" / "metrics.txt").read_text()
    value = re.search(r"test/pearson_total_score,(\S+)", found)
    assert value is not None
    assert float(value[1]) > 0.8


def test_a_machine_that_gets_lost_ends_the_epoch_for_all(tmp_path: Path) -> None:
    first, second = together(tmp_path, 2, "--slow-factor", 20)
    assert first.stdout is not None
    while b"train together" not in first.stdout.readline():
        assert first.poll() is None
    second.kill()
    assert end([first, second]) == [train.EXIT_PEERS, -9]


def test_a_stranger_is_not_taken_for_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("_CONDOR_CHIRP_CONFIG", raising=False)
    meeting, met = tmp_path / "meeting", threading.Event()

    def come() -> None:
        while not (said := (meeting.read_text() if meeting.exists() else "")).endswith("\n"):
            met.wait(0.01)
        host, port, word = said.split()
        for greeting in ("wrong 1\n", f"{word} 9\n", "\n", f"{word} x\n", f"{word} 1\n"):
            with socket.create_connection((host, int(port)), PATIENCE) as connection:
                connection.sendall(greeting.encode())
                if greeting == f"{word} 1\n":
                    met.wait(PATIENCE)

    thread = threading.Thread(target=come)
    thread.start()
    try:
        peers = train.Peers(str(meeting), 2)
        assert len(peers._streams) == 1
    finally:
        met.set()
        thread.join(PATIENCE)


class Starter:
    """HTCondor's end of a chirp connection: files of a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cookie = folder, "secret"
        self._door = socket.create_server(("127.0.0.1", 0))
        self.config = folder / ".chirp.config"
        self.config.write_text(f"127.0.0.1 {self._door.getsockname()[1]} {self.cookie}\n")
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._door.accept()
        with connection, connection.makefile("rwb") as stream:
            while line := stream.readline():
                self._answer(stream, *line.decode().split())
                stream.flush()

    def _answer(self, stream: object, word: str, name: str, *more: str) -> None:
        say = stream.write  # type: ignore[attr-defined]
        path = self.folder / name
        if word == "cookie":
            say(b"0\n" if name == self.cookie else b"-1\n")
        elif word == "putfile":
            say(f"{more[1]}\n".encode())
            stream.flush()  # type: ignore[attr-defined]
            path.write_bytes(stream.read(int(more[1])))  # type: ignore[attr-defined]
            say(f"{more[1]}\n".encode())
        elif word == "getfile" and path.exists():
            data = path.read_bytes()
            say(f"{len(data)}\n".encode() + data)
        elif word == "unlink" and path.exists():
            path.unlink()
            say(b"0\n")
        else:
            say(b"-3\n")


def test_files_beside_the_dag_are_reached_through_htcondor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_CONDOR_CHIRP_CONFIG", str(Starter(tmp_path).config))
    chirp = train.Chirp()
    assert chirp.read("meeting") == b""
    chirp.write("meeting", b"here 1 word\n")
    assert (tmp_path / "meeting").read_bytes() == b"here 1 word\n"
    assert chirp.read("meeting") == b"here 1 word\n"
    chirp.remove("meeting")
    assert not (tmp_path / "meeting").exists()


def test_a_job_without_that_door_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_CONDOR_CHIRP_CONFIG", str(tmp_path / "gone"))
    with pytest.raises(train.Trouble, match=r"set \+WantIOProxy = true"):
        train.Chirp()


def test_the_address_is_the_one_htcondor_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ad = tmp_path / ".machine.ad"
    ad.write_text('Name = "slot1"\nStartdIpAddr = "<10.1.2.3:9618?addrs=10.1.2.3-9618>"\n')
    monkeypatch.setenv("_CONDOR_MACHINE_AD", str(ad))
    assert train.own_address() == "10.1.2.3"
    monkeypatch.delenv("_CONDOR_MACHINE_AD")
    assert train.own_address() == "127.0.0.1"
