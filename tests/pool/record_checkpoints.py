"""Record an ensemble that checkpoints itself, with what its jobs wrote down of themselves.

    python tests/pool/record_checkpoints.py [DIRECTORY]    # default: fixtures/checkpoints; a pool

Two runs of three epochs that exit with their ``checkpoint_exit_code`` to store checkpoints, in
three minutes. run0: the job of its second epoch is evicted after two checkpoints, stores a third
one elsewhere, and fails; DAGMan writes a rescue file, the DAG file is mended and submitted again,
and the new job goes on from what the failed one brought back. run1: the job of its second epoch is
evicted before its first checkpoint. Copied as ``record.py`` copies, with ``truth.json`` beside it:
the diary of all processes of the jobs, in order.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import record  # noqa: E402
import truth  # noqa: E402
from pools import Pool, pool_in_use, until  # noqa: E402

TRAINING = """\
#!/usr/bin/python3
# train.py DIARY STATE LAST STOPS FAIL: trains in steps of a second; exits with 85 after the steps
# STOPS and with 1 after the step FAIL. Adds a line about itself to the diary when it ends.
import json, os, re, signal, sys, time
diary, state, last, stops, fail = sys.argv[1:]
begun = time.time()
job = open(os.environ["_CONDOR_JOB_AD"]).read()
machine = open(os.environ["_CONDOR_MACHINE_AD"]).read()
first = step = int(open(state + "/step").read())


def end(how, code):
    text = json.dumps({
        "cluster": int(re.search("^ClusterId = (.*)", job, re.M)[1]),
        "node": re.search('^DAGNodeName = "(.*)"', job, re.M)[1],
        "start": int(re.search("^NumShadowStarts = (.*)", job, re.M)[1]),
        "site": re.search('^GLIDEIN_ResourceName = "(.*)"', machine, re.M)[1],
        "gpus": len(os.environ["_CONDOR_AssignedGPUs"].split(",")),
        "begun": begun, "ended": time.time(), "steps": [first, step], "how": how,
    })
    with open(diary, "a") as file:
        file.write(text + "\\n")
    sys.exit(code)


signal.signal(signal.SIGTERM, lambda *_: end("evicted", 1))
while step < int(last):
    time.sleep(1)
    step += 1
    if str(step) == fail:
        end("failed", 1)
    if str(step) in stops.split(",") or step == int(last):
        with open(state + "/step", "w") as file:
            file.write(str(step))
        if step < int(last):
            end("checkpoint", 85)
end("done", 0)
"""

SUBMIT = """\
SUBMIT-DESCRIPTION train {
  executable = train.py
  arguments = $(diary) state-$(run) $(last) $(stops) $(fail)
  transfer_input_files = state-$(run)
  transfer_output_files = state-$(run)
  checkpoint_exit_code = 85
  transfer_checkpoint_files = state-$(run)
  should_transfer_files = YES
  when_to_transfer_output = ON_EXIT
  request_gpus = $(gpus)
  request_memory = 64
  request_disk = 1MB
  ulog_execute_attrs = GLIDEIN_ResourceName
  log = metl.log
}
"""

FAIL_AT = 43
EPOCHS: dict[int, list[dict[str, Any]]] = {
    0: [{"last": 10, "stops": "5"}, {"last": 50, "stops": "16,22,38", "fail": FAIL_AT}],
    1: [{"last": 12, "stops": "6"}, {"last": 40, "stops": "30"}],
}
"""The epochs of each run: its steps go on from one epoch to the next."""
for _run in EPOCHS.values():
    _run.append({"last": _run[-1]["last"] + 10, "stops": "0"})
GPUS = {0: 1, 1: 2}
EVICTIONS = {"run0-train_epoch1": (2, 4), "run1-train_epoch1": (0, 7)}
"""By node, how many checkpoints it has stored, and the seconds after them, when it is evicted."""


def write(pool: Pool) -> Path:
    """Write the ensemble."""
    directory = pool.directory("checkpoints")
    pool.place(directory / "train.py", TRAINING, 0o755)
    pool.place(directory / "diary", "", 0o666)
    lines = [SUBMIT]
    for run, epochs in EPOCHS.items():
        state = directory / f"state-{run}"
        state.mkdir()
        pool.give(state)
        pool.place(state / "step", "0")
        nodes = [f"run{run}-train_epoch{number}" for number in range(len(epochs))]
        for number, (node, epoch) in enumerate(zip(nodes, epochs, strict=True), 1):
            macros = {"run": run, "run_uuid": f"{run:04x}{run + 1:04x}", "epoch": number}
            macros |= {"gpus": GPUS[run], "diary": directory / "diary", "fail": 0, **epoch}
            given = [f'{key}="{value}"' for key, value in macros.items()]
            lines += [f"JOB {node} train", f"VARS {node} {' '.join(given)}"]
        lines += [f"PARENT {a} CHILD {b}" for a, b in pairwise(nodes)]
    lines += ["NODE_STATUS_FILE nodes.dag.status 1", "JOBSTATE_LOG ens.jobstate.log", ""]
    pool.place(directory / "ens.dag", "\n".join(lines))
    return directory


def diary(directory: Path) -> list[dict[str, Any]]:
    """What the processes of all jobs wrote about themselves, by the time of their begin."""
    lines = (directory / "diary").read_text().splitlines()
    return sorted(map(json.loads, lines), key=lambda entry: entry["begun"])


def play(pool: Pool, directory: Path) -> None:
    """Submit it, evict two jobs, wait until it has failed, mend and submit it again."""
    pool.run(["condor_submit_dag", "ens.dag"], directory)
    todo = dict(EVICTIONS)

    def evict() -> bool:
        now = int(pool.run(["date", "+%s"]).stdout)
        for node, (checkpoints, seconds) in list(todo.items()):
            stored = [
                entry["ended"]
                for entry in diary(directory)
                if (entry["node"], entry["how"]) == (node, "checkpoint")
            ]
            for ad in pool.queue("JobStatus == 2", f'DAGNodeName == "{node}"'):
                started = ad.get("JobCurrentStartExecutingDate") or now
                if len(stored) == checkpoints and now - max([started, *stored]) >= seconds:
                    pool.run(["condor_vacate_job", str(ad["ClusterId"])])
                    del todo[node]
        return not todo

    until(evict, "both jobs were evicted")
    truth.until_gone(pool, directory)
    dag = directory / "ens.dag"
    pool.place(dag, dag.read_text().replace(f'fail="{FAIL_AT}"', 'fail="0"'))
    pool.run(["condor_submit_dag", "ens.dag"], directory)
    truth.until_gone(pool, directory)


def main(fixture: Path) -> int:
    with pool_in_use({}) as pool, tempfile.TemporaryDirectory() as made:
        directory = write(pool)
        play(pool, directory)
        new = Path(made) / "new"
        record.scrubbed(directory, new)
        (new / "diary").unlink()
        (new / "truth.json").write_text(json.dumps(diary(directory), indent=1) + "\n")
        shutil.rmtree(fixture, ignore_errors=True)
        shutil.copytree(new, fixture)
    return 0


if __name__ == "__main__":
    named = sys.argv[1:2]
    sys.exit(main(Path(named[0]) if named else HERE.parents[1] / "fixtures" / "checkpoints"))
