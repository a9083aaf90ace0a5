"""The bundled trainer beside a chain of epochs: sweeps, stages, evaluations, shards, and epochs of
several machines."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest

from metlmon.jobfiles.training_files import read_metrics_csv
from metlmon.trainer import train
from tests.trainer.conftest import Data
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


SWEPT = ("--learning-rate", "0.1", "--batch-size", "64", "--hidden", "4")


def test_swept_options_change_the_model(tmp_path: Path, small: Data) -> None:
    run(tmp_path / "usual", "--max-epochs", 2, *small)
    run(tmp_path / "one", "--max-epochs", 2, *SWEPT, *small)
    cut = one_job_an_epoch(tmp_path, 2, *SWEPT, *small)
    assert last(cut) == last(tmp_path / "one")
    assert last(cut) != last(tmp_path / "usual")
    found = (logs(cut) / "version_1" / "hparams.yaml").read_text()
    for line in ("batch_size: 64", "embedding_len: 4", "learning_rate: 0.1"):
        assert line in found


def test_options_are_validated(tmp_path: Path) -> None:
    for words in (("--learning-rate", "0"), ("--learning-rate", "x"), ("--batch-size", "0")):
        run(tmp_path, *words, status=2)
    run(tmp_path, "--rank", "2", "--machines", "2", status=2)
    run(tmp_path, "--infer", "3/3", status=2)


def rates(folder: Path, version: int) -> list[float]:
    return [float(value) for value in column(folder, version, "lr-Adagrad").values()]


def test_later_stage_has_its_own_schedule(tmp_path: Path) -> None:
    stage = ("--max-epochs", 3, "--schedule-from", 2)
    run(tmp_path, "--max-epochs", 3, "--stop-after-epoch", 2)
    run(tmp_path, *stage, "--stop-after-epoch", 3, "--learning-rate", "0.05")
    whole = tmp_path / "whole"
    run(whole, "--max-epochs", 3)
    assert rates(tmp_path, 1)[0] < 0.05
    assert rates(tmp_path, 1)[0] == pytest.approx(0.05, rel=0.5)
    assert rates(whole, 0)[-1] < rates(tmp_path, 1)[0]
    assert last(tmp_path) != last(whole)


def table(path: Path, targets: int) -> Path:
    names = "\t".join(f"score{n}" for n in range(targets))
    lines = [f"variant\t{names}"]
    for position in range(2, 30):
        for to in "AG":
            values = "\t".join(f"{position * 0.1 + n}" for n in range(targets))
            lines.append(f"{train.WILD_TYPE[position]}{position}{to}\t{values}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_later_stage_may_have_other_data_and_targets(tmp_path: Path) -> None:
    data = table(tmp_path / "fine.tsv", targets=1)
    run(tmp_path, "--max-epochs", 2, "--stop-after-epoch", 1)
    options = ("--max-epochs", 3, "--schedule-from", 1, "--data", data)
    _, err = run(tmp_path, *options[:2], *options[4:], status=train.EXIT_CHECKPOINT)
    assert "its data is" in err
    # This table has fewer positions than the protein: its embedding cannot continue.
    _, err = run(tmp_path, *options, status=train.EXIT_CHECKPOINT)
    assert "not of this model's size" in err
    whole = data.read_text() + "M0A\t1.0\n" + f"{train.WILD_TYPE[55]}55A\t1.0\n"
    data.write_text(whole)
    run(tmp_path, *options, "--stop-after-epoch", 2)
    assert train.unpack(last(tmp_path)).best.epoch == 1  # type: ignore[union-attr]
    # From then on the data belong to the run.
    run(tmp_path, *options, "--stop-after-epoch", 3)


def everything(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_evaluation_does_not_change_the_training(trained: Path) -> None:
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


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (("--evaluate", 1), "evaluation"),
        (("--infer", "0/2", "--checkpoint", "gone"), "predictions"),
        (("--gather", 2), "gathered"),
        (("--machines", 2, "--rank", 1, "--data", "gone"), "output"),
    ],
)
def test_output_files_exist_after_a_failure(
    tmp_path: Path, words: tuple[object, ...], folder: str
) -> None:
    # HTCondor holds a job without its transfer_output_files: it would never count as failed.
    with start(tmp_path, *words) as process:
        process.communicate(timeout=PATIENCE)
    assert process.returncode in (train.EXIT_CHECKPOINT, train.EXIT_DATA)
    assert (tmp_path / folder).is_dir()


def test_shards_cover_every_variant_once(trained: Path, tmp_path: Path) -> None:
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


def test_missing_shard_is_reported(tmp_path: Path) -> None:
    run(tmp_path, "--infer", "0/2")
    _, err = run(tmp_path, "--gather", 2, status=train.EXIT_DATA)
    assert "shard_1.tsv" in err


def together(folder: Path, epochs: int, machines: int, *data: object) -> Path:
    """Each epoch on several machines, each in its own directory, as under HTCondor."""
    run_folder = folder / "output"
    run_folder.mkdir(parents=True)
    for epoch in range(1, epochs + 1):
        places = [folder / f"epoch{epoch}-rank{rank}" for rank in range(machines)]
        for rank, place in enumerate(places):
            shutil.copytree(run_folder, place / "output")
            more = ("--max-epochs", epochs, "--stop-after-epoch", epoch)
            run(place, *more, "--machines", machines, "--rank", rank, *data)
        for place in places:
            shutil.copytree(place / "output", run_folder, dirs_exist_ok=True)
    return folder


def test_epoch_starts_with_the_average_of_all_machines(tmp_path: Path, small: Data) -> None:
    folder = together(tmp_path, 2, 3, *small)
    before = [
        train.unpack((path / "output/training_logs" / UUID / "checkpoints" / name).read_bytes())
        for path, name in (
            (folder / "epoch1-rank0", "last.ckpt"),
            (folder / "epoch1-rank1", "rank_1.ckpt"),
            (folder / "epoch1-rank2", "rank_2.ckpt"),
        )
    ]
    args = train.parse_arguments(["--uuid", UUID, "--machines", "3"])
    checkpoints = folder / "second"
    shutil.copytree(folder / "epoch2-rank0", checkpoints)
    for rank, each in enumerate(before):
        name = f"rank_{rank}.ckpt" if rank else "last.ckpt"
        (checkpoints / name).write_bytes(train.pack(each))
    data = train.read_data(str(small[1]))
    start = train.load_checkpoint(str(checkpoints / "last.ckpt"), args, data)
    for name, values in start.state.items():
        columns = zip(*(each.state[name] for each in before), strict=True)
        assert values == pytest.approx([sum(column) / 3 for column in columns])


def test_weights_of_another_epoch_are_not_averaged(tmp_path: Path, small: Data) -> None:
    folder = together(tmp_path, 2, 2, *small)
    checkpoints = logs(folder) / "checkpoints"
    late = train.unpack((checkpoints / "rank_1.ckpt").read_bytes())
    (checkpoints / "rank_1.ckpt").write_bytes(train.pack(late._replace(epochs=1)))
    args = train.parse_arguments(["--uuid", UUID, "--machines", "2"])
    path = checkpoints / "last.ckpt"
    start = train.load_checkpoint(str(path), args, train.read_data(str(small[1])))
    assert start.state == train.unpack(path.read_bytes()).state
