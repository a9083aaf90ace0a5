"""A dagdir with a key in every place where one can stand, each its own."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Final

from tests.support.wandb_files import history_record, log_file, run_record

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
    log = metl.log
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
JOBSTATE_LOG run.jobstate.log
NODE_STATUS_FILE run.status
ghp_{unknown-command}q7Xz2LmP9vRk4TbN8sWd3HyJ is no command
--token={unknown-named} is none
"""

SUBMIT: Final = """\
executable = train.sh
include : more.sub
arguments = "--token ""{submit-arguments}"" --epochs $(epoch)"
environment = "OMP_NUM_THREADS={submit-environment}"
log = json.log
output = $(JOB)_$(CLUSTERID).out
queue
"""

INCLUDED: Final = """\
env = OMP_NUM_THREADS={included-environment};B=2
secret_token = {included-macro}
"""

LOG: Final = """\
000 (77.000.000) 2026-11-21 09:00:00 Job submitted from host: <127.0.0.1:9618>
    DAG Node: {first}
    started by me with --token {submit-note} for fun
    WARNING: Committed job submission into the queue with the following warning(s): \
the line password={submit-warning} was not used
...
001 (77.000.000) 2026-11-21 09:01:00 Job executing on host: <127.0.0.1:9618>
\tSlotName: slot1_1@localhost
\tEnvironment = "OMP={execute-environment}"
\tGLIDEIN_ResourceName = "Delta-GPU"
\tGPUs = 1
...
007 (77.000.000) 2026-11-21 09:02:00 Shadow exception!
\tError from slot1_1@localhost: cannot run train.sh --token {shadow-exception} any more
\t0  -  Run Bytes Sent By Job
\t0  -  Run Bytes Received By Job
...
001 (77.000.000) 2026-11-21 09:03:00 Job executing on host: <127.0.0.1:9618>
\tSlotName: slot1_1@localhost
\tGLIDEIN_ResourceName = "Delta-GPU"
\tGPUs = 1
...
004 (77.000.000) 2026-11-21 09:04:00 Job was evicted.
\t(0) CPU times
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
\t0  -  Run Bytes Sent By Job
\t0  -  Run Bytes Received By Job
\tReason: preempted while https://me:{evicted}@example.org/data was read
...
008 (77.000.000) 2026-11-21 09:05:00 chirp says WANDB_API_KEY={generic}
...
021 (77.000.000) 2026-11-21 09:06:00 Error from starter on slot1_1@localhost:
\tgot https://example.org/x?X-Amz-Signature={remote-error}&x=1 instead
...
022 (77.000.000) 2026-11-21 09:07:00 Job disconnected, attempting to reconnect
    Socket closed, Authorization: Bearer {disconnected}
    Trying to reconnect to slot1_1@localhost <127.0.0.1:9618>
...
024 (77.000.000) 2026-11-21 09:08:00 Job reconnection failed
    the lease of token={reconnect-failed} ended
    Can not reconnect to slot1_1@localhost, rescheduling job
...
028 (77.000.000) 2026-11-21 09:09:00 Job ad information event triggered.
Arguments = "--api-key {ad-arguments}"
Env = "OMP={ad-environment}"
Environment = "OMP={ad-environment-2} P={ad-environment-3}"
JobStatus = 2
...
033 (77.000.000) 2026-11-21 09:10:00 Setting job attribute Environment to \
"OMP={attribute-environment}"
...
033 (77.000.000) 2026-11-21 09:11:00 Changing job attribute ApiToken from "{attribute-from}" \
to "ghp_{attribute-to}q7Xz2LmP9vRk4TbN8sWd3HyJ"
...
102 (77.000.000) 2026-11-21 09:12:00 Something newer with password: {unknown-event}
\tand below it token={unknown-event-body}
...
012 (77.000.000) 2026-11-21 09:13:00 Job was held.
\tTransfer input files failure: curl https://example.org/?sig={hold-reason}0aB at the end
\tCode 13 Subcode 2
...
013 (77.000.000) 2026-11-21 09:14:00 Job was released.
\treleased by me (key password={release-reason})
...
this is no event, but has --token {garbage} in it
...
009 (77.000.000) 2026-11-21 09:15:00 Job was aborted.
\tvia condor_rm (by user me, token={abort-reason})
...
016 (77.000.000) 2026-11-21 09:16:00 POST Script terminated.
\t(1) Normal termination (return value 1)
    DAG Node: {first}
...
"""

TORN: Final = """\
000 (78.000.000) 2026-11-21 09:20:00 Job submitted from host: <127.0.0.1:9618>
    DAG Node: {second}
    torn off with --token {torn}"""

JSON_EVENT: Final = """\
{{
  "MyType": "JobHeldEvent", "EventTypeNumber": 12, "Cluster": 79, "Proc": 0, "Subproc": 0,
  "EventTime": "2026-11-21T09:30:00",
  "HoldReason": "json says --token \\"{json-reason}\\" here", "HoldReasonCode": 13,
  "Environment": "OMP={json-environment}"
}}
{{
  "MyType": "AttributeUpdateEvent", "EventTypeNumber": 33, "Cluster": 79, "Proc": 0, "Subproc": 0,
  "EventTime": "2026-11-21T09:31:00",
  "Attribute": "Environment", "Value": "OMP={json-value}\\nP={json-second-line}"
}}
"""

OUT: Final = """\
11/21/26 09:00:00 ** condor_scheduniv_exec.70.0 (CONDOR_DAGMAN) STARTING UP
11/21/26 09:00:00 argv[9] == "-token={out-argument}"
11/21/26 09:00:01 ERROR: cannot go on with token={out-error} in there
11/21/26 09:16:01 Event: ULOG_SUBMIT for HTCondor Node {first} (77.0.0) {{11/21/26 09:00:00}}
11/21/26 09:17:00 ---------------------- Job ----------------------
11/21/26 09:17:00       Node Name: {first}
11/21/26 09:17:00            Noop: false
11/21/26 09:17:00          NodeID: 0
11/21/26 09:17:00     Node Status: STATUS_ERROR
11/21/26 09:17:00 Node return val: 1
11/21/26 09:17:00           Error: Job proc (77.0.0) failed with --password={out-node-error}
11/21/26 09:18:00 **** condor_scheduniv_exec.70.0 (condor_DAGMAN) pid 1 EXITING WITH STATUS 1
"""

STATUS: Final = """\
[
  Type = "DagStatus";
  DagFiles = {{ "run.dag" }};
  Timestamp = 1795254258; /* "Sat Nov 21 09:44:18 2026" */
  DagStatus = 6; /* "STATUS_ERROR" */
  NodesTotal = 2; NodesDone = 0; NodesFailed = 1;
]
[
  Type = "NodeStatus";
  Node = "{first}";
  NodeStatus = 6; /* "STATUS_ERROR" */
  StatusDetails = "Job failed: --token {status-details} it was";
  RetryCount = 0; JobProcsQueued = 0; JobProcsHeld = 0;
]
[
  Type = "StatusEnd";
  EndTime = 1795254258; /* "Sat Nov 21 09:44:18 2026" */
]
"""

JOBSTATE: Final = """\
1795254258 INTERNAL *** DAGMAN_STARTED 70.0 ***
1795254259 token={jobstate} nonsense
"""

CONDOR_SUB: Final = """\
executable = /usr/bin/condor_dagman
arguments = "-p 0 -f -l . -Dag run.dag -AppendEnv 'TOKEN={sub-arguments}'"
environment = "_CONDOR_X='{sub-environment}';OMP={sub-environment-2}"
"""

PRINTED: Final = """\
starting with WANDB_API_KEY={printed}
Epoch 0:  45%|####      | 45/100 [11:02:13<13:30:01, 1.17it/s, loss=48, token={progress}]
Traceback (most recent call last):
  File "train.py", line 3, in <module>
ValueError: no such password: {printed-error}
"""

STOPPED: Final = """\
{{"schema": 1, "run": "3f1c2d4e", "uuid": "3f1c2d4e-1a2b-4c3d-8e9f-0123456789ab",
 "node": "{second}", "epoch": 1, "rule": "file",
 "reason": "asked with --token {stop-reason} by me", "time": "2026-11-21T09:40:00"}}
"""

GATE_LOG: Final = """\
2026-11-21T09:40:00 gate: no such file: https://me:{gate-log}@example.org/data
"""

ARGUMENTS: Final = """\
--max_epochs
3
--wandb_api_key
{args-named}
--extra
--lr={args-lr}
--comment
token={args-comment}
"""

TOML: Final = """\
[metrics]
primary = "token={toml-primary}"
nonsense = "password={toml-unknown}"

[labels]
runs = [{{ name = 3, uuid = "token={toml-label}" }}]
"""


class Planted:
    """The dagdir, and by place the key that stands there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: dict[str, str] = {}
        self._numbers = count(1)
        path.mkdir(parents=True, exist_ok=True)

    def key(self, place: str) -> str:
        """The key of one place, made when it is asked for first."""
        if place not in self.keys:
            self.keys[place] = f"Pl4nted{next(self._numbers):02d}x7QwZ"
        return self.keys[place]

    def write(self, name: str, text: str) -> None:
        """A file, with keys in the places that ``{place}`` names."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format_map(self), encoding="utf-8")

    def __getitem__(self, place: str) -> str:
        if place in ("first", "second"):
            return NODES[place == "second"]
        return self.key(place)

    def left_in(self, data: bytes) -> list[str]:
        """The places whose keys stand in ``data``."""
        return [place for place, key in self.keys.items() if key.encode() in data]


def plant(path: Path) -> Planted:
    """Write such a dagdir."""
    planted = Planted(path)
    for name, text in (
        ("run.dag", DAG),
        ("other.sub", SUBMIT),
        ("more.sub", INCLUDED),
        ("metl.log", LOG + TORN),
        ("run.dag.nodes.log", LOG.split("007 (", 1)[0]),
        ("json.log", JSON_EVENT),
        ("run.dag.dagman.out", OUT),
        ("run.status", STATUS),
        ("run.jobstate.log", JOBSTATE),
        ("run.dag.condor.sub", CONDOR_SUB),
        (f"{NODES[0]}_77.out", PRINTED),
        (f"{NODES[0]}_77.err", PRINTED.replace("Epoch", "epoch")),
        ("gate/run/3f1c2d4e-1a2b-4c3d-8e9f-0123456789ab.stopped", STOPPED),
        ("gate/run/3f1c2d4e-1a2b-4c3d-8e9f-0123456789ab.target", "token={gate-target}\n"),
        ("gate/run/gate.log", GATE_LOG),
        (f"placement/run/{NODES[1]}.inc", "ResourceName = token={placement}\n"),
        ("output/training_logs/3f1c2d4e-1a2b-4c3d-8e9f-0123456789ab/version_0/args.txt", ARGUMENTS),
    ):
        planted.write(name, text)
    config = {"wandb_api_key": planted["wandb-named"], "note": f"token={planted['wandb-config']}"}
    row = {"val_loss": 0.5, "epoch": 0, "remark": f"--token {planted['wandb-text']}"}
    data = log_file([run_record(1_795_254_258, config), history_record(row)])
    file = path / "output/training_logs/3f1c2d4e-1a2b-4c3d-8e9f-0123456789ab" / WANDB_RUN
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    return planted
