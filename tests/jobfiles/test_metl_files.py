"""metrics.txt and args.txt."""

from __future__ import annotations

from pathlib import Path

from metlmon.jobfiles.training_files import read_args_txt, read_metrics_txt
from metlmon.redact import HIDDEN

VERSION = (
    Path(__file__).resolve().parents[2]
    / "fixtures/trainer/output/training_logs/b6469fa3-f76e-504a-b6f3-06ef2075732d/version_4"
)


def test_metrics_txt_has_numbers_by_name() -> None:
    found = read_metrics_txt((VERSION / "metrics.txt").read_text())
    assert found["best_model_score"] == 0.27163570526520203
    assert found["test_loss"] == 0.27519180914669455
    assert "best_model_path" not in found


def test_damaged_metrics_txt() -> None:
    assert read_metrics_txt("a,1\nb\nc,\n,3\nd,x\ne,2,5\nf,nan").keys() == {"a", "f"}


def test_arguments_with_several_values_and_with_none() -> None:
    found = read_args_txt("--fc\n256\n128\n--amp\n--lr=0.1\n--shift\n-1\n")
    assert found == {"fc": "256 128", "amp": "", "lr": "0.1", "shift": "-1"}


def test_possible_secrets_are_not_kept() -> None:
    names = ("wandb_api_key", "TOKEN", "client-secret", "passwd", "Password", "aws_secret_access")
    text = (
        "".join(f"--{name}\nhunter2\n" for name in names) + "--osdf_credentials=hunter2\n--a\n1\n"
    )
    assert read_args_txt(text) == {"a": "1"}


def test_values_shaped_like_keys_are_hidden() -> None:
    kept = {"ckpt": "epoch=0-step=1023-val_loss=1.248.ckpt", "set": "global_2025-11-12", "n": "7"}
    text = "".join(f"--{name}\n{value}\n" for name, value in kept.items())
    assert read_args_txt(text + "--lr\nPl4nted00x7QwZ\n--url\nhttps://x/aB3dE6gH9jK2\n") == {
        **kept,
        "lr": HIDDEN,
        "url": HIDDEN,
    }
