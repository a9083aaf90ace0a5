"""An installed metlmon has its templates and what they ship."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.trainer.test_job_templates import BESIDE, TRAINING

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_holds_the_templates_and_the_trainer(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        templates = [f"templates/{name}.sub" for name in (*TRAINING, *BESIDE)]
        for name in (*templates, "train.py", "gate.py", "provision.sh"):
            held = archive.read(f"metlmon/trainer/{name}")
            assert held == (ROOT / "metlmon" / "trainer" / name).read_bytes()
