"""Continuing DAGs of the METL experiment: ``continue_from_checkpoint`` is a flag, and the job's
input files are in the submit description."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metlmon.cli.main import main
from metlmon.dagman.submit_description import command_values, parse_description
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.trainer import train
from tests.conftest import Shared
from tests.support.commands import Captured, json_output
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log, Out
from tests.support.gated_dagdir import table
from tests.trainer.conftest import write_table

RUNS = {"run0": "0ee9fad9", "run1": "b40d6718"}
EPOCHS = 4

DESCRIPTION = """\
\tuniverse = vanilla
\texecutable = train.py
\targuments = --uuid $(run_uuid) --seed $(random_seed) --max-epochs 4 --stop-after-epoch $(epoch)

\tpreserve_relative_paths = true
\tlogs = output/training_logs
\ttransfer_input_files = pretrain.sh, osdf:///ospool/ap40/data/processed-global.tar.gz
\tif defined continue_from_checkpoint
\t    transfer_input_files = $(transfer_input_files), $(logs)/$(run_uuid)
\tendif
\ttransfer_output_files = output
\tshould_transfer_files = YES
\twhen_to_transfer_output = ON_EXIT_OR_EVICT
\toutput = $(run_uuid)/$(JOB)_$(CLUSTERID).out
\terror = $(run_uuid)/$(JOB)_$(CLUSTERID).err
\tlog = metl.log
\tMY.TargetAnnexName = "aws"
\tqueue
"""


class Metl(Dagdir):
    """A directory whose DAG was removed after each run had trained two epochs of four."""

    def __init__(self, path: Path, epochs: int = EPOCHS, description: str = DESCRIPTION) -> None:
        super().__init__(path, "")
        lines, flag = [f"SUBMIT-DESCRIPTION aws_pretrain.sub {{\n{description}}}"], ""
        for run, uuid in RUNS.items():
            for epoch in range(epochs):
                node = f"{run}-train_epoch{epoch}"
                flag = ' continue_from_checkpoint="true"' if epoch else ""
                values = f'epoch="{epoch + 1}" run_uuid="{uuid}" random_seed="14"'
                lines.append(f"JOB {node} aws_pretrain.sub")
                lines.append(f'VARS {node} {values} ResourceName="aws"{flag}')
                if epoch:
                    lines.append(f"PARENT {run}-train_epoch{epoch - 1} CHILD {node}")
            self.write(f"{uuid}/.keep", "")
        self.write("metl.dag", "\n".join([*lines, ""]))
        self.write("pretrain.sh", "#!/bin/sh\n")
        shutil.copy(train.__file__, self.path / "train.py")
        log, job = Log(), 100
        for epoch in range(min(2, epochs)):
            for run in RUNS:
                job += 1
                log.submit(job, f"{run}-train_epoch{epoch}").execute(job).terminate(job)
        self.write("metl.log", log.data)
        self.write("metl.dag.dagman.out", Out().start("09:00:00").exit(2, "12:00:00").data)

    def trained(self, folder: str = "output/training_logs/{}", file: str = "last.ckpt") -> None:
        """Write what two epochs leave."""
        for uuid in RUNS.values():
            here = folder.format(uuid)
            for epoch in range(2):
                self.write(f"{here}/version_{epoch}/metrics.csv", table(epoch, 0.5))
            self.write(f"{here}/checkpoints/{file}", b"a checkpoint")

    def go_on(self, *words: str) -> int:
        return main(["continue", str(self.path), *words])

    def run(self, dag: str, node: str) -> None:
        """Run the job of a node as HTCondor does: in a directory with its transferred files."""
        reader = DagdirReader(self.path / dag)
        reader.open()
        found = next(each for each in reader.ensemble.dags.values() if each.file == dag)
        text = (self.path / dag).read_text()
        block = text[text.index("{") + 1 : text.index("\n}")]
        names = ("arguments", "transfer_input_files", "executable")
        macros = {"JOB": node, **found.workflow.nodes[node].vars}
        values = command_values(parse_description(block.split("\n")), macros, {}, names)
        sandbox = self.path.parent / "sandbox"
        sandbox.mkdir()
        for name in (values["transfer_input_files"] or "").split(","):
            source = self.path / name.strip()
            if source.is_dir():
                shutil.copytree(source, sandbox / name.strip())
        script = self.path / str(values["executable"])
        data = self.path.parent / "table.tsv"
        write_table(data, rows=400)
        words = [sys.executable, str(script), *str(values["arguments"]).split(), "--data", data]
        subprocess.run(words, cwd=sandbox, check=True, capture_output=True, timeout=120)
        shutil.copytree(sandbox / "output", self.path / "output", dirs_exist_ok=True)
        shutil.rmtree(sandbox)


def test_checkpoint_flag_is_not_a_path(tmp_path: Path, capsys: Captured) -> None:
    metl = Metl(tmp_path / "metl")
    metl.trained()
    output = json_output("continue", capsys, metl.path)
    assert output["excluded"] == []
    assert [
        (run["checkpoint"], run["first_epoch"], run["last_epoch"]) for run in output["runs"]
    ] == [(f"output/training_logs/{uuid}", 3, 4) for uuid in RUNS.values()]
    assert main(["check", str(metl.path / "metl-2.dag")]) == 0


def test_continuation_trains_the_remaining_epochs(tmp_path: Path) -> None:
    """Two epochs, then two by the continuing DAG: the same weights as in one DAG."""
    metl, whole = Metl(tmp_path / "metl"), Metl(tmp_path / "whole")
    for epoch in range(2):
        metl.run("metl.dag", f"run0-train_epoch{epoch}")
    assert metl.go_on("run0") == 0
    for epoch in range(2, EPOCHS):
        metl.run("metl-2.dag", f"run0-train_epoch{epoch}")
    for epoch in range(EPOCHS):
        whole.run("metl.dag", f"run0-train_epoch{epoch}")
    last = "output/training_logs/0ee9fad9/checkpoints/last.ckpt"
    assert (metl.path / last).read_bytes() == (whole.path / last).read_bytes()


def test_continued_first_epochs_get_the_input_files(tmp_path: Path) -> None:
    metl = Metl(tmp_path / "metl", epochs=1)
    for run in RUNS:
        metl.run("metl.dag", f"{run}-train_epoch0")
    assert metl.go_on("--epochs", "2") == 0
    assert main(["check", str(metl.path / "metl-2.dag")]) == 0
    metl.run("metl-2.dag", "run1-train_epoch1")
    assert (metl.path / "output/training_logs/b40d6718/version_1/metrics.csv").exists()


@pytest.mark.parametrize(
    ("place", "folder"),
    [
        ("models/$(run_uuid)/", "models/{}"),
        ("models/$(run_uuid)/checkpoints", "models/{}"),
        ("models/$(run_uuid)/checkpoints/last.ckpt", "models/{}"),
        ("resume.yaml, models", "models/{}"),
        ("models/$(ResourceName)-$(run_uuid)", "models/aws-{}"),
    ],
)
def test_checkpoint_is_found_by_the_description(
    tmp_path: Path, capsys: Captured, place: str, folder: str
) -> None:
    text = DESCRIPTION.replace("$(logs)/$(run_uuid)", place)
    metl = Metl(tmp_path / "metl", description=text)
    metl.trained(folder)
    runs = json_output("continue", capsys, metl.path)["runs"]
    assert [run["checkpoint"] for run in runs] == [folder.format(uuid) for uuid in RUNS.values()]


def test_recorded_experiment_continues(tmp_path: Path, shared: Shared, capsys: Captured) -> None:
    """The recorded directory, with the checkpoints that its runs must have left."""
    recorded = shared("examples/metl-aws")
    for name in ("global_pretraining_in_aws.dag", "metl.log"):
        (tmp_path / name).symlink_to(recorded / name)
    for uuid in ("0ee9fad9", "b40d6718", "62da8813", "bf53842f", "f6dc971b"):
        folder = tmp_path / f"output/training_logs/{uuid}/checkpoints"
        folder.mkdir(parents=True)
        (folder / "last.ckpt").write_bytes(b"a checkpoint")
    output = json_output("continue", capsys, tmp_path)
    assert output["excluded"] == []
    # metl.log: 10, 8, 9, 6 and 9 epochs ended with return value 0.
    assert [run["first_epoch"] - 1 for run in output["runs"]] == [10, 8, 9, 6, 9]
    assert output["plan"]["nodes"] == 5 * 30 - 42
