"""W&B runs that the real library writes offline, in a process of its own.

``python -m tests.support.wandb_runs FILE`` writes the runs described by the JSON in FILE. A run
with ``killed`` is ended by SIGKILL once its file has two blocks, and so is the library's service
process: no end of it is written.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, to_builtins

SECONDS: Final = 120.0
"""What a busy machine may take for one process; an idle one takes four."""

HISTOGRAM: Final = "a histogram"
"""Stands in a row for an object of the library's."""

Row = Mapping[str, Any]


class RunRequest(Struct):
    """A run to write: the directory that gets ``wandb/``, its id, and its rows in order."""

    directory: str
    id: str
    rows: Sequence[Row]
    config: Mapping[str, Any] = {}
    killed: bool = False


def write_runs(requests: Sequence[RunRequest], home: Path) -> None:
    """Let the library write these runs, without a network and with its files in ``home``."""
    description = home / "requests.json"
    description.write_text(json.dumps(to_builtins(requests)))
    environment = {
        **{name: value for name, value in os.environ.items() if "WANDB" not in name},
        **{name: str(home) for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR")},
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_CONSOLE": "off",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_DISABLE_GIT": "true",
        "WANDB_DISABLE_CODE": "true",
        "WANDB_X_DISABLE_STATS": "true",
    }
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        environment[name] = str(home)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.wandb_runs", str(description)],
        env=environment,
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    expected = -signal.SIGKILL if requests[-1].killed else 0
    assert done.returncode == expected, done.stderr[-2000:]


def run_file(directory: Path) -> Path:
    """The file of the one run below ``directory``."""
    (path,) = directory.glob("wandb/offline-run-*/run-*.wandb")
    return path


def _write(request: dict[str, Any]) -> None:
    import wandb

    Path(request["directory"]).mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        dir=request["directory"],
        id=request["id"],
        project="metl",
        config=dict(request["config"]),
        settings=wandb.Settings(x_disable_stats=True),
    )
    for row in request["rows"]:
        run.log(
            {
                name: wandb.Histogram([1, 2, 3]) if value == HISTOGRAM else value
                for name, value in row.items()
            }
        )
    if not request["killed"]:
        run.finish()
        return
    path = run_file(Path(request["directory"]))
    while path.stat().st_size < 2 * 32768:
        time.sleep(0.01)
    for children in Path("/proc/self/task").glob("*/children"):
        for process in children.read_text().split():
            os.kill(int(process), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    for each in json.loads(Path(sys.argv[1]).read_text()):
        _write(each)
