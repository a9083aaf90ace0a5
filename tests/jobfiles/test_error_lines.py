"""The line that explains a failed job, in outputs of PyTorch, launchers and shells."""

from __future__ import annotations

import re

import pytest

from metlmon.jobfiles.error_lines import LINE_CHARACTERS, find_error_line, find_script_lines

FRAMES = """\
Traceback (most recent call last):
  File "/srv/code/train.py", line 310, in <module>
    main(args)
  File "/srv/env/lib/python3.10/site-packages/torch/nn/modules/module.py", line 1501, in _call_impl
    return forward_call(*args, **kwargs)
"""

ELASTIC = """\
WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 2410413 closing signal SIGTERM
ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "/opt/conda/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-03-01_16:39:58
  host      : gpua042.delta
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 2410412)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""

BAR = "Epoch 4:  37%|███▋      | 512/1383 [04:11<07:07,  2.04it/s, loss=1.21, v_num=0]"

CAUSES = {
    "PyTorch": (
        FRAMES + "«RuntimeError: CUDA out of memory. Tried to allocate 1.21 GiB» (GPU 0; 31.74 GiB "
        "total capacity; 29.01 GiB already allocated)\n",
        "CUDA out of memory",
    ),
    "a progress bar behind it": (
        f"{BAR}\r{FRAMES}«torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 "
        f"MiB.»\n\r{BAR}\n",
        "CUDA out of memory",
    ),
    "torchrun": (
        f"[rank0]: {FRAMES}[rank0]: «torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        f"2.50 GiB.» GPU 0 has a total capacity of 39.39 GiB\n{ELASTIC}",
        "CUDA out of memory",
    ),
    "rich": (
        "╭───────────── Traceback (most recent call last) ─────────────╮\n"
        "│ /srv/code/train.py:41 in training_step                      │\n"
        "│ ❱ 41 │   │   raise ValueError('CUDA out of memory')         │\n"
        "╰─────────────────────────────────────────────────────────────╯\n"
        "«ValueError: Expected input batch_size (64) to match target batch_size (32).»\n",
        None,
    ),
    "a module": (
        FRAMES + "«ModuleNotFoundError: No module named 'pytorch_lightning'»\n",
        "no module named pytorch_lightning",
    ),
    "python -m": ("«/usr/bin/python3: No module named metl.train»\n", "no module named metl.train"),
    "a shell": (
        "+ source /opt/env/bin/activate\n+ python3 train.py\n"
        "«./run.sh: line 12: python3: command not found»\n",
        "a command cannot be executed",
    ),
    "another architecture": (
        "«condor_exec.exe: ./train: cannot execute binary file: Exec format error»\n",
        "a command cannot be executed",
    ),
    "Apptainer": (
        "INFO:    Converting SIF file to temporary sandbox...\n"
        "«FATAL:   while extracting image.sif: root filesystem extraction failed»: "
        "extract command failed: ERROR  : write failed: No space left on device\n",
        "no space left on device",
    ),
    "Apptainer without a namespace": (
        "WARNING: Skipping mount /etc/localtime\n«FATAL:   container creation failed: mount "
        "hook function failure»: mount /proc/self/fd/3->/var/lib/apptainer: can't mount image\n"
        "INFO:    Cleaning up image...\n",
        None,
    ),
    "a quota": (
        FRAMES + "«OSError: [Errno 122] Disk quota exceeded»: 'checkpoints/last.ckpt'\n",
        "disk quota exceeded",
    ),
    "Slurm": (
        "«slurmstepd: error: Detected 1 oom_kill event in StepId=45226719.batch.» Some of the step "
        "tasks have been OOM Killed.\nsrun: error: gpua042: task 0: Out Of Memory\n",
        "out of memory",
    ),
    "a shell that reports a kill": (
        f"{BAR}\n«/var/spool/slurmd/job00191/slurm_script: line 28:  8156 Killed»"
        "                  python3 main.py --epochs 400\n",
        "killed",
    ),
    "a DataLoader": (
        FRAMES + "«RuntimeError: DataLoader worker (pid 1817) is killed by signal: Killed.» \n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        + FRAMES
        + "RuntimeError: DataLoader worker (pid(s) 1817) exited unexpectedly\n",
        "killed",
    ),
    "shared memory": (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
        f"shared memory (shm).\n{FRAMES}«RuntimeError: DataLoader worker (pid 71) is killed by "
        "signal: Bus error.» It is possible that dataloader's workers are out of shared memory.\n",
        "too little shared memory",
    ),
    "numpy": (
        FRAMES + "«numpy.core._exceptions._ArrayMemoryError: Unable to allocate 42.1 GiB» for an "
        "array with shape (5654784000,) and data type float64\n",
        "out of memory",
    ),
    "without a GPU": (FRAMES + "«RuntimeError: No CUDA GPUs are available»\n", "no GPU found"),
    "an old driver": (
        FRAMES
        + "«RuntimeError: The NVIDIA driver on your system is too old (found version 11040).» "
        "Please update your GPU driver\n",
        "the GPU driver is too old",
    ),
    "a GPU that is too new": (
        "/opt/conda/lib/python3.9/site-packages/torch/cuda/__init__.py:146: UserWarning: \n"
        f"NVIDIA H100 with CUDA capability sm_90 is not supported.\n{FRAMES}«RuntimeError: CUDA "
        "error: no kernel image is available for execution on the device»\nCUDA kernel errors "
        "might be asynchronously reported at some other API call.\nFor debugging consider passing "
        "CUDA_LAUNCH_BLOCKING=1.\nCompile with `TORCH_USE_CUDA_DSA` to enable assertions.\n",
        "this build does not support the GPU",
    ),
    "a label out of range": (
        "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward: block: [0,0,0], thread: "
        "[5,0,0] Assertion `t >= 0 && t < n_classes` failed.\n"
        f"{FRAMES}«RuntimeError: CUDA error: device-side assert triggered»\n",
        "an assertion failed on the GPU",
    ),
    "a broken GPU": (
        FRAMES + "«RuntimeError: CUDA error: uncorrectable ECC error encountered»\n",
        "GPU error",
    ),
    "NCCL": (
        "[rank1]:«[E1101 03:12:44 ProcessGroupNCCL.cpp:607] Watchdog caught collective operation "
        "timeout»: WorkNCCL(SeqNum=1732, OpType=ALLREDUCE) ran for 600029 milliseconds\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n",
        "communication between GPUs failed",
    ),
    "NaN": (
        f"{BAR}\n{FRAMES}«ValueError: The loss returned in `training_step` is nan.»\n",
        "NaN or infinite values",
    ),
    "a checkpoint that was cut": (
        FRAMES + "«RuntimeError: PytorchStreamReader failed reading zip archive»: failed finding "
        "central directory\n",
        "a file is damaged",
    ),
    "a checkpoint of another model": (
        FRAMES + "RuntimeError: Error(s) in loading state_dict for RegressionTask:\n"
        "\t«size mismatch for model.fc.weight»: copying a param with shape torch.Size([512, 256]) "
        "from checkpoint, the shape in current model is torch.Size([1024, 256]).\n",
        "the checkpoint does not match the model",
    ),
    "a name that is not resolved": (
        "«curl: (6) Could not resolve host: data.example.org»\n",
        "no connection",
    ),
    "W&B without a network": (
        "wandb: Network error (ConnectionError), entering retry loop.\n"
        f"{FRAMES}«requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.wandb.ai'», "
        "port=443): Max retries exceeded with url: /graphql\n"
        "wandb: You can sync this run to the cloud by running:\nwandb: Synced 5 W&B file(s)\n",
        "no connection",
    ),
    "permissions": (
        FRAMES + "«PermissionError: [Errno 13] Permission denied: '/home/alice/.cache/torch'»\n",
        "permission denied",
    ),
    "a file": (
        FRAMES + "«FileNotFoundError: [Errno 2] No such file or directory: 'data/train.h5'»\n",
        "a file is missing",
    ),
    "argparse": (
        "usage: train.py [-h] [--lr LR]\n"
        "«train.py: error: unrecognized arguments: --learning-rate 1»\n",
        "wrong arguments",
    ),
    "a time limit": (
        f"{BAR}\n«slurmstepd: error: *** STEP 84013.0 ON gpua042 CANCELLED AT 2026-03-01T12:00:01 "
        "DUE TO» TIME LIMIT ***\nsrun: error: gpua042: task 0: Terminated\n",
        "the time limit was reached",
    ),
    "MPI": (
        "«train_mpi: solver.cpp:88: step: Assertion `dt > 0' failed.»\n"
        "--------------------------------------------------------------------------\n"
        "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"
        "--------------------------------------------------------------------------\n",
        "an assertion failed",
    ),
    "a crash": (
        f"{BAR}\n«run.sh: line 7: 4242 Segmentation fault      (core dumped) python3 train.py»\n",
        "segmentation fault",
    ),
    "an assertion": (FRAMES + "«AssertionError: batch 12 is empty»\n", "an assertion failed"),
    "an exception of its own": (
        f"{BAR}\n{FRAMES}«metl.errors.DataError: variant A17C is not in the table»\n"
        "Exception ignored in: <function _ConnectionBase.__del__ at 0x7f>\n"
        "/usr/lib/python3.9/multiprocessing/resource_tracker.py:216: UserWarning: "
        "resource_tracker: There appear to be 6 leaked semaphore objects to clean up at shutdown\n",
        None,
    ),
    "one word": ("«boom»\n", None),
    "a warning behind it": (
        "«train.py: failed on purpose, as --fail-rate asks for»\n"
        "/srv/env/x.py:3: DeprecationWarning: distutils is deprecated\n  import distutils\n",
        None,
    ),
    "a script that ends with its command": (
        f"{FRAMES}«KeyError: 'ddg'»\nmake: *** [Makefile:12: train] Error 1\n",
        None,
    ),
    "a launcher alone": (
        "«subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit» "
        "status 1.\n",
        None,
    ),
}
"""By name the end of an output, with the line that is to be found in «», and the cause."""


@pytest.mark.parametrize(("tail", "cause"), CAUSES.values(), ids=CAUSES)
def test_error_line_is_the_one_a_person_would_pick(tail: str, cause: str | None) -> None:
    line = find_error_line(re.sub("[«»]", "", tail))
    assert line.text.startswith(tail[tail.index("«") + 1 : tail.index("»")])
    assert line.cause == cause
    assert (line.advice is None) == (cause is None)


@pytest.mark.parametrize(
    ("tail", "name"),
    [
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/ospool/a.h5'\n",
            "/ospool/a.h5",
        ),
        ("cat: /ospool/a.h5: No such file or directory\n", "/ospool/a.h5"),
        ("open: No such file or directory\n", "the path that it uses"),
    ],
)
def test_advice_names_the_missing_file(tail: str, name: str) -> None:
    line = find_error_line(tail)
    assert f"that {name} exists" in (line.advice or "")


@pytest.mark.parametrize(
    "tail",
    [
        "",
        "\n\n",
        f"{BAR}\r{BAR}\n",
        "/srv/env/x.py:3: FutureWarning: use sdpa\n  warnings.warn(\n",
        "+ set -e\n+ python3 train.py\n",
        'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n',
    ],
)
def test_output_without_an_error_has_no_line(tail: str) -> None:
    assert find_error_line(tail) is None


def test_error_line_is_visible_bounded_and_redacted() -> None:
    error = "\x1b[31mValueError: bad token=hf_abcdefghijklmnopqrstuvwxyz012345 \u202e\x07\n"
    line = find_error_line(error + "x" * 5000)
    assert len(line.text) <= LINE_CHARACTERS
    found = find_error_line("\x1b[31mOSError: --api-key 4f6Hq0Zx7Q \u202eis bad\x07\n")
    assert found.text == "OSError: --api-key (hidden) \\u202eis bad\\x07"


def header(node: str, script: str = "PRE", status: int = 256) -> str:
    """DAGMan's header of a script's output, as recorded."""
    return f"*** Node={node} Type={script} Status={status} Completion=1795982679 Cmd='./a {node}'\n"


def test_each_script_has_its_own_line() -> None:
    before = "the end of what an earlier one wrote\n"
    found = find_script_lines(
        before
        + header("a")
        + "looking\ngate: no metrics\n"
        + header("S+b", "POST")
        + "ValueError: no line end"
        + header("a", "POST")
        + "judge: not better\n"
    )
    assert {run: line.text for run, line in found.items()} == {
        ("a", "PRE"): "gate: no metrics",
        ("S+b", "POST"): "ValueError: no line end",
        ("a", "POST"): "judge: not better",
    }
    assert find_script_lines(before) == {}


def test_last_run_of_a_script_counts() -> None:
    again = header("a") + "first\n" + header("a")
    assert find_script_lines(again + "second\n")["a", "PRE"].text == "second"
    assert find_script_lines(again) == {}, "the last one wrote nothing"
    assert find_script_lines(again + header("a", status=0) + "went well\n") == {}
