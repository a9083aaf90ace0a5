"""An installed metlmon has its templates and what they ship."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_holds_the_templates_and_the_trainer(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        for name in ("templates/trainer.sub", "templates/metl.sub", "train.py"):
            held = archive.read(f"metlmon/trainer/{name}")
            assert held == (ROOT / "metlmon" / "trainer" / name).read_bytes()
