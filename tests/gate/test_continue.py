"""Runs that continue in a second DAG: which, from where, and what is written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from metlmon.cli.main import main
from metlmon.dagman.commands import VarsCommand
from metlmon.dagman.parser import parse_dag
from metlmon.live.dagdir_reader import DagdirReader
from tests.support.commands import Captured, json_output
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log, Out
from tests.support.gated_dagdir import GATE, GO, SKIP, GatedDagdir, table

RUNS = {"run0": "aaaa1111-0000", "run1": "bbbb2222-0000", "run2": "cccc3333-0000"}
EPOCHS = 4
SITES = ("delta", "expanse", "anvil", "delta")


def dag(gated: bool = True, evaluated: bool = False, gates: bool = False) -> str:
    lines = ["CONFIG dagman.config", "MAXJOBS few 2", "SAVE_POINT_FILE run0-train_epoch0"]
    lines += ["SAVE_POINT_FILE run1-train_epoch3 last.save"]
    for run, uuid in RUNS.items():
        for epoch in range(EPOCHS):
            node = f"{run}-train_epoch{epoch}"
            values = f'run_uuid="{uuid}" epoch="{epoch + 1}" epochs="{EPOCHS}" node="{node}"'
            values += f' ResourceName="{SITES[epoch]}" note="a \\"b\\" $(Cluster)"'
            if epoch:
                values += ' continue_from_checkpoint="output/training_logs/$(run_uuid)"'
                lines += [f"PARENT {run}-train_epoch{epoch - 1} CHILD {node}"]
            lines += [f"JOB {node} e.sub", f"VARS {node} {values}", f"CATEGORY {node} few"]
            if gated:
                call = f"gate.py e.gate.json {uuid} {epoch} train $JOB"
                lines += [f"SCRIPT DEFER 75 90 PRE {node} {call}"]
            if evaluated:
                side = f"{run}-eval_epoch{epoch + 1}"
                lines += [
                    f"JOB {side} eval.sub",
                    f'VARS {side} run_uuid="{uuid}" epoch="{epoch + 1}"',
                ]
                lines += [f"PARENT {node} CHILD {side}", f"SCRIPT POST {side} /bin/true"]
                if gates and epoch + 1 < EPOCHS:
                    lines += [f"PARENT {side} CHILD {run}-train_epoch{epoch + 1}"]
    return "\n".join([*lines, "PRE_SKIP ALL_NODES 42", "RETRY ALL_NODES 3", ""])


class EndedDag(Dagdir):
    """A dagdir whose DAG has ended: run0 trained two epochs and was stopped, run1 failed in its
    third, run2 is complete."""

    def __init__(self, path: Path, **how: bool) -> None:
        super().__init__(path, "")
        self.write("e.dag", dag(**how))
        self.write("e.sub", "log = metl.log\nexecutable = train.py\nqueue\n")
        self.write("eval.sub", "log = metl.log\nexecutable = eval.py\nqueue\n")
        self.write("dagman.config", "")
        self.write("gate.py", GATE.read_bytes())
        log, job = Log(), 0
        for run, epochs in (("run0", 2), ("run1", 2), ("run2", 4)):
            for epoch in range(epochs):
                job += 1
                log.submit(job, f"{run}-train_epoch{epoch}").execute(job).terminate(job)
                self.trained(RUNS[run], epoch)
        job += 1
        log.submit(job, "run1-train_epoch2").execute(job).terminate(job, 1)
        self.write("metl.log", log.data)
        self.write("e.dag.dagman.out", Out().start("09:00:00").exit(1, "12:00:00").data)
        stopped = {
            **{"schema": 1, "epoch": 2, "rule": "patience", "reason": "it stands still"},
            "time": "2026-05-04T11:00:00",
        }
        self.write(f"gate/e/{RUNS['run0']}.stopped", json.dumps(stopped))
        rules = {"metric": "val_loss", "patience": 1, "min_delta": 0.0}
        runs = {u: {"name": n, "metrics": f"output/training_logs/{u}"} for n, u in RUNS.items()}
        result = {"schema": 1, "dag": "e", "rules": rules, "runs": runs}
        self.write("e.gate.json", json.dumps(result))

    def trained(self, uuid: str, epoch: int) -> None:
        folder = f"output/training_logs/{uuid}"
        self.write(f"{folder}/version_{epoch}/metrics.csv", table(epoch, 0.5 + epoch / 10))
        self.write(f"{folder}/checkpoints/last.ckpt", b"a checkpoint")

    def go_on(self, *words: str) -> int:
        return main(["continue", str(self.path), *words])

    @property
    def second(self) -> str:
        return (self.path / "e-2.dag").read_text()


@pytest.fixture(name="ended")
def _ended(tmp_path: Path) -> EndedDag:
    return EndedDag(tmp_path / "ensemble")


def test_incomplete_runs_continue_at_their_next_epoch(ended: EndedDag, capsys: Captured) -> None:
    assert ended.go_on() == 0
    output = capsys.readouterr().out
    assert "e-2.dag goes on with 2 runs of e.dag: 4 nodes" in output
    assert "stopped by patience before epoch 3" in output
    assert "condor_submit_dag e-2.dag" in output
    jobs = re.findall(r"^JOB (\S+) (\S+)$", ended.second, re.MULTILINE)
    nodes = [f"{run}-train_epoch{epoch}" for run in ("run0", "run1") for epoch in (2, 3)]
    assert jobs == [(node, "e.sub") for node in nodes]
    assert re.findall(r"^PARENT .*$", ended.second, re.MULTILINE) == [
        f"PARENT {run}-train_epoch2 CHILD {run}-train_epoch3" for run in ("run0", "run1")
    ]
    saved = "SAVE_POINT_FILE run1-train_epoch3 last.save"
    for line in ("CONFIG dagman.config", "MAXJOBS few 2", "RETRY ALL_NODES 3", saved):
        assert f"\n{line}\n" in ended.second
    assert "SAVE_POINT_FILE run0" not in ended.second
    assert "\nCATEGORY run1-train_epoch3 few\n" in ended.second


def test_runs_can_be_extended(ended: EndedDag) -> None:
    assert ended.go_on("--epochs", "6") == 0
    new = DagdirReader(ended.path / "e-2.dag")
    new.open()
    (found,) = new.ensemble.dags.values()
    nodes = found.workflow.nodes
    assert [name for name in nodes if name.startswith("run2")] == [
        "run2-train_epoch4",
        "run2-train_epoch5",
    ]
    last = nodes["run2-train_epoch5"].vars
    assert (last["epoch"], last["epochs"], last["node"]) == ("6", "6", "run2-train_epoch5")
    sites = [nodes[f"run2-train_epoch{epoch}"].vars["ResourceName"] for epoch in (4, 5)]
    assert sites == ["expanse", "anvil"], "each site once before one repeats: delta has begun that"
    gate = "gate.py e-2.gate.json cccc3333-0000 5 train $JOB"
    assert nodes["run2-train_epoch5"].pre.command == gate


def test_continuation_has_a_new_gate(ended: EndedDag) -> None:
    """The reason of the first stop does not stop it again, and old answers are not used."""
    assert ended.go_on() == 0
    assert "SCRIPT DEFER 75 90 PRE run0-train_epoch2 gate.py e-2.gate.json" in ended.second
    assert "PRE_SKIP ALL_NODES 42" in ended.second
    rules = json.loads((ended.path / "e-2.gate.json").read_text())
    assert {run["name"]: run.get("since") for run in rules["runs"].values()} == {
        **{"run0": 2, "run1": 2, "run2": None}
    }
    gated = GatedDagdir.__new__(GatedDagdir)
    gated.path = ended.path
    words = gated.command(2, RUNS["run0"])

    def asks(rules: str, epoch: int) -> int:
        output = [rules if word == "ensemble.gate.json" else word for word in words]
        output[output.index("2")] = str(epoch)
        return subprocess.run(output, cwd=ended.path).returncode

    assert asks("e.gate.json", 2) == SKIP
    assert asks("e-2.gate.json", 2) == GO
    ended.trained(RUNS["run0"], 2)
    assert asks("e-2.gate.json", 3) == SKIP, "it stands still again"


@pytest.mark.parametrize(
    ("called", "goes_on"),
    [
        ("/usr/bin/python3 gate.py e.gate.json", "/usr/bin/python3 gate.py e-2.gate.json"),
        ("nice -n 5 ./gate.py ./e.gate.json", "nice -n 5 ./gate.py ./e-2.gate.json"),
        ("gate.py 'e.gate.json'", "gate.py 'e-2.gate.json'"),
    ],
)
def test_gate_is_called_as_before(ended: EndedDag, called: str, goes_on: str) -> None:
    text = (ended.path / "e.dag").read_text()
    ended.write("e.dag", text.replace("gate.py e.gate.json", called))
    assert ended.go_on("run0") == 0
    line = f"SCRIPT DEFER 75 90 PRE run0-train_epoch2 {goes_on} aaaa1111-0000 2 train $JOB"
    assert line in ended.second.split("\n")


@pytest.mark.parametrize(
    ("script", "debug"),
    [
        ("SCRIPT DEFER 9 7 PRE ALL_NODES wait.sh", ""),
        ("SCRIPT DEFER 9 7 DEBUG pre.out ALL PRE run0-train_epoch2 wait.sh", "DEBUG pre.out ALL "),
        ("SCRIPT DEBUG out STDERR DEFER 9 7 PRE run0-train_epoch2 wait.sh", "DEBUG out STDERR "),
        ("Script Defer 9 7 Debug out all Pre run0-train_epoch2 wait.sh", "DEBUG out ALL "),
    ],
)
def test_pre_script_is_kept(tmp_path: Path, script: str, debug: str) -> None:
    ended = EndedDag(tmp_path / "ensemble", gated=False)
    ended.write("e.dag", f"{dag(gated=False)}{script}\n")
    assert ended.go_on("run0") == 0
    assert f"SCRIPT DEFER 9 7 {debug}PRE run0-train_epoch2 wait.sh\n" in ended.second


def test_scripts_and_reactions_to_exit_codes_are_kept(ended: EndedDag) -> None:
    node = "run0-train_epoch3"
    kept = [
        f"SCRIPT DEFER 9 7 DEBUG post.out STDERR POST {node} fetch.sh $RETURN",
        f"SCRIPT HOLD {node} tell.sh $JOBID",
        *("RETRY ALL_NODES 3 UNLESS-EXIT 7", f"ABORT-DAG-ON {node} 3 RETURN 1"),
    ]
    ended.append("e.dag", "\n".join([*kept, ""]).encode())
    assert ended.go_on("run0") == 0
    assert set(kept) <= set(ended.second.split("\n"))


@pytest.mark.parametrize("gates", [False, True])
def test_evaluations_continue(tmp_path: Path, gates: bool) -> None:
    ended = EndedDag(tmp_path / "ensemble", evaluated=True, gates=gates)
    assert ended.go_on("run0", "--epochs", "5") == 0
    text = ended.second
    assert re.findall(r"^JOB (\S+)", text, re.MULTILINE) == [
        *("run0-train_epoch2", "run0-eval_epoch3", "run0-train_epoch3", "run0-eval_epoch4"),
        *("run0-train_epoch4", "run0-eval_epoch5"),
    ]
    assert "SCRIPT POST run0-eval_epoch5 /bin/true" in text
    assert 'VARS run0-eval_epoch5 run_uuid="aaaa1111-0000" epoch="5"' in text
    assert "PARENT run0-train_epoch4 CHILD run0-eval_epoch5" in text
    assert ("PARENT run0-eval_epoch3 CHILD run0-train_epoch3" in text) is gates


def test_added_epochs_are_evaluated_at_the_same_interval(tmp_path: Path) -> None:
    """Two kinds: after every second epoch, and after the last of four."""
    ended = EndedDag(tmp_path / "ensemble")
    text = dag()
    for epoch in (1, 3):
        side = f"run2-eval_epoch{epoch + 1}"
        values = f'run_uuid="{RUNS["run2"]}" epoch="{epoch + 1}" ResourceName="{SITES[epoch]}"'
        text += f"JOB {side} eval.sub\nVARS {side} {values}\n"
        text += f"PARENT run2-train_epoch{epoch} CHILD {side}\n"
    side = "run2-probe4"
    text += f'JOB {side} eval.sub\nVARS {side} run_uuid="{RUNS["run2"]}"\n'
    ended.write("e.dag", text + f"PARENT run2-train_epoch3 CHILD {side}\n")
    assert ended.go_on("run2", "--epochs", "8") == 0
    sides = [f"{run}{n}" for run, n in (("eval_epoch", 6), ("eval_epoch", 8), ("probe", 8))]
    found = re.findall(r"^JOB run2-(eval\S+|probe\S+)", ended.second, re.MULTILINE)
    assert sorted(found) == sides
    of_site = re.findall(r'^VARS run2-(\S+)_epoch\d .* ?ResourceName="(\w+)"', ended.second, re.M)
    assert of_site == [
        *(("train", "expanse"), ("train", "anvil"), ("eval", "anvil")),
        *(("train", "delta"), ("train", "expanse"), ("eval", "expanse")),
    ]


def test_nodes_are_placed_by_the_new_gate_only(ended: EndedDag) -> None:
    """The submit file is shared with the old DAG."""
    text = (ended.path / "e.dag").read_text()
    ended.write("e.dag", text.replace('note="', 'metlmon_dag="e" note="'))
    assert ended.go_on("run0") == 0
    assert ended.second.count('metlmon_dag="e-2"') == 2
    assert 'metlmon_dag="e"' not in ended.second


def test_run_without_a_checkpoint_is_left_out(ended: EndedDag, capsys: Captured) -> None:
    shutil.rmtree(ended.path / f"output/training_logs/{RUNS['run1']}/checkpoints")
    assert ended.go_on() == 0
    result = "run1 is left out: no checkpoint in output/training_logs/bbbb2222-0000"
    assert result in capsys.readouterr().out
    assert "run1" not in re.sub(r"#.*", "", ended.second)


@pytest.mark.parametrize("make", [os.mkdir, partial(os.symlink, "gone.ckpt"), os.mkfifo])
def test_checkpoint_must_be_a_file(
    ended: EndedDag, capsys: Captured, make: Callable[[Path], None]
) -> None:
    path = ended.path / f"output/training_logs/{RUNS['run1']}/checkpoints/last.ckpt"
    path.unlink()
    make(path)
    assert ended.go_on("run1") == 0
    assert "run1 is left out: no checkpoint in" in capsys.readouterr().out


def test_pipes_are_not_waited_for(ended: EndedDag, capsys: Captured) -> None:
    path = ended.path / f"output/training_logs/{RUNS['run1']}/version_1/metrics.csv"
    path.unlink()
    os.mkfifo(path)
    (found,) = json_output("continue", capsys, ended.path, "run1", "--dry-run")["runs"]
    assert found["first_epoch"] == 2
    rules = ended.path / "e.gate.json"
    rules.unlink()
    os.mkfifo(rules)
    assert "e.gate.json: it is not a regular file" in refused(ended, capsys, "run1")


@pytest.mark.parametrize(("came_back", "first"), [(1, 3), (0, 2), (None, 1)])
def test_epoch_without_a_log_is_done_if_its_output_exists(
    ended: EndedDag, capsys: Captured, came_back: int | None, first: int
) -> None:
    """A later epoch was submitted, so it is done; the log of its job is missing."""
    log = Log().submit(7, "run1-train_epoch2").execute(7).terminate(7, 1)
    ended.write("metl.log", log.data)
    folder = ended.path / f"output/training_logs/{RUNS['run1']}"
    for epoch in (0, 1):
        if came_back is None or epoch > came_back:
            shutil.rmtree(folder / f"version_{epoch}")
    (found,) = json_output("continue", capsys, ended.path, "run1", "--dry-run")["runs"]
    assert (found["first_epoch"], found["last_epoch"]) == (first, 4)


def refused(ended: EndedDag, capsys: Captured, *words: str) -> str:
    assert ended.go_on(*words) == 2
    assert not (ended.path / "e-3.dag").exists()
    return capsys.readouterr().err


def test_refused_while_the_old_dag_runs(ended: EndedDag, capsys: Captured) -> None:
    ended.write("e.dag.dagman.out", Out().start("09:00:00").data)
    ended.write("e.dag.lock", "")
    assert "e.dag still runs" in refused(ended, capsys)
    ended.write("e.dag.dagman.out", Out().start("09:00:00").exit(1, "12:00:00").data)
    assert "e.dag.lock is there" in refused(ended, capsys)
    assert not (ended.path / "e-2.dag").exists()


def test_refused_while_another_continuation_has_the_run(ended: EndedDag, capsys: Captured) -> None:
    """Its DAGMan has submitted nothing yet: the run's latest epoch is the old DAG's."""
    assert ended.go_on("run0") == 0
    assert "e-2.dag was not submitted yet" in refused(ended, capsys, "run0")
    ended.write("e-2.dag.dagman.out", Out().start("13:00:00").data)
    ended.write("e-2.dag.lock", "")
    assert "e-2.dag still runs" in refused(ended, capsys, "run0")
    assert ended.go_on("run1") == 0, "another run is not concerned"
    assert "run0" not in re.sub("#.*", "", (ended.path / "e-3.dag").read_text())


def trained_in_a_second_dag(ended: EndedDag) -> None:
    """run0 continues in e-2.dag and completes its epochs there."""
    assert ended.go_on("run0") == 0
    out = Out().start("13:00:00")
    log = Log()
    for job, epoch in ((98, 2), (99, 3)):
        node = f"run0-train_epoch{epoch}"
        out.submitted(node, job)
        log.submit(job, node, "13:01:00").execute(job).terminate(job)
        ended.trained(RUNS["run0"], epoch)
    ended.write("e-2.dag.dagman.out", out.exit(0, "14:00:00").data)
    ended.append("metl.log", log.data)


def of_file(ended: EndedDag, file: str, *words: str) -> int:
    return main(["continue", str(ended.path / file), *words])


def test_rules_of_two_dags_are_not_mixed(ended: EndedDag, capsys: Captured) -> None:
    trained_in_a_second_dag(ended)
    second = json.loads((ended.path / "e-2.gate.json").read_text())
    assert ended.go_on("--epochs", "5", "--dry-run") == 0
    second["rules"]["patience"] = 9
    ended.write("e-2.gate.json", json.dumps(second))
    result = refused(ended, capsys, "--epochs", "5")
    assert "the rules of e-2.gate.json and of e.gate.json are not the same" in result
    assert "continue the runs one by one" in result
    assert ended.go_on("run0", "--epochs", "5") == 0
    rules = json.loads((ended.path / "e-3.gate.json").read_text())["rules"]
    assert rules["patience"] == 9, "those by which it went on last"


def test_dag_file_selects_runs_and_hides_no_other_dag(ended: EndedDag, capsys: Captured) -> None:
    trained_in_a_second_dag(ended)
    capsys.readouterr()
    found = json_output("continue", capsys, ended.path / "e.dag", "--dry-run")
    assert [(run["run"], run["first_epoch"], run["last_epoch"]) for run in found["runs"]] == [
        ("run1", 3, 4)
    ]
    assert of_file(ended, "e-2.dag", "--dry-run") == 0
    assert "No run continues: none has epochs left." in capsys.readouterr().out
    assert of_file(ended, "e.sub") == 2
    assert "e.sub: no DAG of this name" in capsys.readouterr().err


def test_each_epoch_has_the_state_of_its_dag(ended: EndedDag, capsys: Captured) -> None:
    """The second DAG has no node for the epoch without output."""
    trained_in_a_second_dag(ended)
    for epoch in (1, 2, 3):
        shutil.rmtree(ended.path / f"output/training_logs/{RUNS['run0']}/version_{epoch}")
    capsys.readouterr()
    assert of_file(ended, "e-2.dag", "--epochs", "5") == 0
    text = (ended.path / "e-3.dag").read_text()
    nodes = [f"run0-train_epoch{epoch}" for epoch in (1, 2, 3, 4)]
    assert re.findall(r"^JOB (\S+)", text, re.MULTILINE) == nodes
    assert re.findall(r' epoch="(\d)" epochs="(\d)"', text) == [(n, "5") for n in "2345"]
    assert [line for line in text.split("\n") if line.startswith("CATEGORY")] == [
        f"CATEGORY {node} few" for node in nodes
    ]


def test_epochs_never_count_back(ended: EndedDag, capsys: Captured) -> None:
    """Only the second DAG was copied, with an earlier checkpoint."""
    trained_in_a_second_dag(ended)
    (ended.path / "e.dag").unlink()
    for epoch in (1, 2, 3):
        shutil.rmtree(ended.path / f"output/training_logs/{RUNS['run0']}/version_{epoch}")
    assert "no DAG file here has epoch 2 of run0" in refused(ended, capsys, "--epochs", "5")


def test_sub_dag_must_be_named(ended: EndedDag, capsys: Captured) -> None:
    ended.write("all.dag", "SUBDAG EXTERNAL inner e.dag\n")
    ended.write("all.dag.dagman.out", Out().start("08:00:00").data)
    ended.write("all.dag.lock", "")
    assert ended.go_on("run0") == 0
    assert "run0 is left out: it is in a sub-DAG" in capsys.readouterr().out
    assert of_file(ended, "e.dag", "run0") == 2
    assert "all.dag still runs" in capsys.readouterr().err, "it may start e.dag again"
    (ended.path / "all.dag.lock").unlink()
    ended.write("all.dag.dagman.out", Out().start("08:00:00").exit(1, "15:00:00").data)
    assert of_file(ended, "e.dag", "run0") == 0
    assert "JOB run0-train_epoch2 e.sub" in ended.second


def test_invalid_arguments_are_refused(ended: EndedDag, capsys: Captured) -> None:
    assert "no such run" in refused(ended, capsys, "nobody")
    assert "at least one epoch" in refused(ended, capsys, "--epochs", "0")


def test_fewer_epochs_than_trained_are_reported(ended: EndedDag, capsys: Captured) -> None:
    assert ended.go_on("run2", "--epochs", "2") == 0
    output = capsys.readouterr().out
    assert "run2 is left out: it has 4 epochs already, more than the 2 asked for" in output
    assert not (ended.path / "e-2.dag").exists()
    assert ended.go_on("run2", "--epochs", "4") == 0
    assert "it has all its epochs; --epochs N gives it more" in capsys.readouterr().out


@pytest.mark.parametrize("beside", ["lr.dag", "lr-2026.dag", "lr-2025-2.dag"])
def test_year_in_a_name_is_not_a_dag_number(ended: EndedDag, beside: str) -> None:
    """Another ensemble's DAG with a similar name is unrelated."""
    for file in ended.path.glob("e.dag*"):
        file.rename(file.with_name(file.name.replace("e.dag", "lr-2025.dag", 1)))
    ended.write(beside, 'JOB a-train_epoch0 e.sub\nVARS a-train_epoch0 run_uuid="dddd4444"\n')
    assert ended.go_on("run0") == 0
    free = "lr-2025-3.dag" if beside == "lr-2025-2.dag" else "lr-2025-2.dag"
    assert "goes on with lr-2025.dag" in (ended.path / free).read_text()


def test_values_with_line_ends_are_refused(ended: EndedDag, capsys: Captured) -> None:
    text = (ended.path / "e.dag").read_text()
    ended.write("e.dag", text.replace("output/training_logs/$(run_uuid)", "../../../etc"))
    assert "below the DAG's directory" in refused(ended, capsys)


def test_attributes_and_secrets_are_copied_but_not_printed(
    ended: EndedDag, capsys: Captured
) -> None:
    key = "hf_AbCdEfGhIjKlMnOpQrStUv0123"
    more = f'api_key="{key}" +WantX="true" My.Foo="\\"a b\\""'
    text = (ended.path / "e.dag").read_text()
    ended.write("e.dag", text.replace('note="', f'{more} note="'))
    assert ended.go_on() == 0
    assert key not in "".join(capsys.readouterr())
    commands = parse_dag(ended.second.encode(), "e-2.dag").commands
    found = [dict(each.pairs) for each in commands if isinstance(each, VarsCommand)]
    assert len(found) == 4
    for values in found:
        assert (values["api_key"], values["My.WantX"]) == (key, "true")
        assert values["My.Foo"] == '"a b"'


def test_no_value_becomes_a_command(ended: EndedDag) -> None:
    text = (ended.path / "e.dag").read_text().replace(" e.sub", " train")
    described = 'SUBMIT-DESCRIPTION train {\n  executable = train.py\n  ENV = "A=1"\n  queue\n}\n'
    ended.write("e.dag", f"# Once:\x0bENV SET A=1\n# or\u2028CONFIG other\n{text}{described}")
    assert ended.go_on() == 0
    lines = [line.strip() for line in ended.second.split("\n")]
    assert "ENV SET A=1" not in lines
    assert "CONFIG other" not in lines
    assert lines.count('ENV = "A=1"') == 1


def test_descriptions_in_included_files_are_kept(ended: EndedDag) -> None:
    text = (ended.path / "e.dag").read_text().replace(" e.sub", " train")
    described = "SUBMIT-DESCRIPTION train {\n  executable = train.py\n  log = metl.log\n}\n"
    ended.write("jobs.inc", f"{described}SUBMIT-DESCRIPTION other {{\n  executable = x\n}}\n")
    ended.write("more.inc", "INCLUDE jobs.inc\nMAXJOBS many 9\n")
    ended.write("e.dag", f"INCLUDE more.inc\n{text}")
    assert ended.go_on("run0") == 0
    assert described in ended.second
    assert "SUBMIT-DESCRIPTION other" not in ended.second
    assert "\nMAXJOBS many 9\n" in ended.second
    reader = DagdirReader(ended.path / "e-2.dag")
    reader.open()
    (found,) = reader.ensemble.dags.values()
    assert {node.log for node in found.workflow.nodes.values()} == {"metl.log"}


@pytest.mark.parametrize("where", ["MAXJOBS few\udcff 3\n", 'VARS run0-train_epoch2 x="\udcff"\n'])
def test_binary_files_are_refused(ended: EndedDag, capsys: Captured, where: str) -> None:
    text = (ended.path / "e.dag").read_text()
    ended.write("e.dag", f"{text}{where}".encode("utf-8", "surrogateescape"))
    assert "not UTF-8" in refused(ended, capsys)
