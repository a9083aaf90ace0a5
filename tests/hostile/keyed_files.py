"""Files of an ensemble with one secret each, recognisable only by its place: the value of an
environment, of an attribute, a macro or an argument whose name is that of a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.wandb_files import history_record, log_file, run_record

UUID: Final = "3f1c2d4e-1a2b-4c3d-8e9f-0123456789ab"
WANDB_RUN: Final = "wandb/offline-run-20261121_090400-3f1c2d4e/run-3f1c2d4e.wandb"

NODES: Final = ("3f1c2d4e-train_epoch0", "3f1c2d4e-train_epoch1")

DAG: Final = """\
# what nobody reads: {comment}
ENV SET OMP_NUM_THREADS={env-command};B=1
SUBMIT-DESCRIPTION train {{
    executable = train.sh
    arguments = --wandb-key {inline-arguments} --epochs $(epoch)
    environment = "OMP_NUM_THREADS={inline-environment} A=1"
    environment2 @=end
OMP_PLACES={inline-block}
@end
    +Environment = "OMP={inline-plus}"
    MY.Env = "OMP={inline-my} \\
      P={inline-continued}"
    log = keyed.log
    output = $(JOB)_$(CLUSTERID).out
    error = $(JOB)_$(CLUSTERID).err
    request_gpus = 1
    queue
}}
JOB {first} train
JOB {second} other.sub
VARS {first} run_uuid="3f1c2d4e-1a2b-4c3d-8e9f-0123456789ab" epoch="1" ResourceName="Delta"
VARS {first} environment="OMP={vars-environment}" +Environment="OMP={vars-plus}"
VARS {first} wandb_key="{vars-named}" extra="--token {vars-argument} --lr 0.1"
VARS {first} note="it says \\"password: {vars-escaped}\\" there" +ApiToken="{vars-attribute}"
VARS {second} run_uuid="3f1c2d4e-1a2b-4c3d-8e9f-0123456789ab" epoch="2" ResourceName="Delta"
PARENT {first} CHILD {second}
SCRIPT PRE {first} pre.sh --password={script-pre}
SCRIPT POST {first} post.sh --token {script-post} $RETURN
SCRIPT PRE {second} gate.py run.gate.json 3f1c2d4e-1a2b-4c3d-8e9f-0123456789ab 1 train
JOBSTATE_LOG keyed.jobstate.log
NODE_STATUS_FILE keyed.status
ghp_{unknown-command}q7Xz2LmP9vRk4TbN8sWd3HyJ is no command
--token={unknown-named} is none
"""

SUBMIT: Final = """\
executable = train.sh
include : more.sub
arguments = "--token ""{submit-arguments}"" --epochs $(epoch)"
environment = "OMP_NUM_THREADS={submit-environment}"
log = keyed.json.log
output = $(JOB)_$(CLUSTERID).out
queue
"""

INCLUDED: Final = """\
env = OMP_NUM_THREADS={included-environment};B=2
secret_token = {included-macro}
"""

LOG: Final = """\
000 (87.000.000) 2026-11-21 09:00:00 Job submitted from host: <127.0.0.1:9618>
    DAG Node: {first}
...
001 (87.000.000) 2026-11-21 09:01:00 Job executing on host: <127.0.0.1:9618>
\tSlotName: slot1_1@localhost
\tEnvironment = "OMP={execute-environment}"
\tGLIDEIN_ResourceName = "Delta-GPU"
\tGPUs = 1
...
028 (87.000.000) 2026-11-21 09:09:00 Job ad information event triggered.
Arguments = "--api-key {ad-arguments}"
Env = "OMP={ad-environment}"
Environment = "OMP={ad-environment-2} P={ad-environment-3}"
JobStatus = 2
...
033 (87.000.000) 2026-11-21 09:10:00 Setting job attribute Environment to \
"OMP={attribute-environment}"
...
033 (87.000.000) 2026-11-21 09:11:00 Changing job attribute ApiToken from "{attribute-from}" \
to "ghp_{attribute-to}q7Xz2LmP9vRk4TbN8sWd3HyJ"
...
102 (87.000.000) 2026-11-21 09:12:00 Something newer with password: {unknown-event}
\tand below it token={unknown-event-body}
...
004 (87.000.000) 2026-11-21 09:13:00 Job was evicted.
\t(0) CPU times
\tReason: preempted while https://me:{evicted}@example.org/data was read
...
"""

TORN: Final = """\
000 (88.000.000) 2026-11-21 09:20:00 Job submitted from host: <127.0.0.1:9618>
    DAG Node: {second}
    torn off with --token {torn}"""

JSON_EVENTS: Final = """\
{{
  "MyType": "JobReleasedEvent", "EventTypeNumber": 13, "Cluster": 89, "Proc": 0, "Subproc": 0,
  "EventTime": "2026-11-21T09:30:00", "Environment": "OMP={json-environment}"
}}
{{
  "MyType": "AttributeUpdateEvent", "EventTypeNumber": 33, "Cluster": 89, "Proc": 0, "Subproc": 0,
  "EventTime": "2026-11-21T09:31:00",
  "Attribute": "Environment", "Value": "OMP={json-value}\\nP={json-second-line}"
}}
"""

CONDOR_SUB: Final = """\
executable = /usr/bin/condor_dagman
arguments = "-p 0 -f -l . -Dag keyed.dag -AppendEnv 'TOKEN={sub-arguments}'"
environment = "_CONDOR_X='{sub-environment}';OMP={sub-environment-2}"
"""

STOPPED: Final = """\
{{"schema": 1, "run": "3f1c2d4e", "uuid": "3f1c2d4e-1a2b-4c3d-8e9f-0123456789ab",
 "node": "{second}", "epoch": 1, "rule": "file",
 "reason": "asked with --token {stop-reason} by me", "time": "2026-11-21T09:40:00"}}
"""

ARGUMENTS: Final = """\
--max_epochs
3
--wandb_api_key
{args-named}
--extra
--lr={args-lr}
"""


class _Keys(dict[str, str]):
    """A secret for each place, made at its first use."""

    def __missing__(self, place: str) -> str:
        if place in ("first", "second"):
            return NODES[place == "second"]
        self[place] = f"Pl4nted{len(self) + 1:02d}x7QwZ"
        return self[place]


def write_keyed_files(path: Path) -> None:
    """Write a DAG with such secrets, and its logs, into a dagdir."""
    keys = _Keys()
    for name, text in (
        ("keyed.dag", DAG),
        ("other.sub", SUBMIT),
        ("more.sub", INCLUDED),
        ("keyed.log", LOG + TORN),
        ("keyed.json.log", JSON_EVENTS),
        ("keyed.dag.condor.sub", CONDOR_SUB),
        (f"gate/run/{UUID}.stopped", STOPPED),
        (f"gate/run/{UUID}.target", "token={gate-target}\n"),
        (f"placement/run/{NODES[1]}.inc", "ResourceName = token={placement}\n"),
        (f"output/training_logs/{UUID}/version_0/args.txt", ARGUMENTS),
    ):
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format_map(keys), encoding="utf-8")
    config = {"wandb_api_key": keys["wandb-named"], "note": f"token={keys['wandb-config']}"}
    row = {"val_loss": 0.5, "epoch": 0, "remark": f"--token {keys['wandb-text']}"}
    file = path / f"output/training_logs/{UUID}/{WANDB_RUN}"
    file.parent.mkdir(parents=True)
    file.write_bytes(log_file([run_record(1_795_254_258, config), history_record(row)]))
