"""What is redacted and what is not, in bounded time, and at every entry."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metlmon.authoring.request import PlanError
from metlmon.errors import InputError
from metlmon.pool.protocol import ErrorKind, QueueJob
from metlmon.pool.types import PoolError
from metlmon.pool.worker import WorkerFailure, queue_job
from metlmon.redact import HIDDEN, find_secrets, hide_value, might_contain_secret, redact_secrets
from tests.conftest import Shared
from tests.support.effort import effort
from tests.support.recordings import FIXTURES

_LOT: Final = "q7Xz2LmP9vRk4TbN8sWd3HyJ6cFg5AeU1oKi0ZxYtQrVwMnB"
"""Letters and digits as if by lot."""

SHAPES: Final = {
    "AWS": "AKIAQ7XZ2LMP9VRK4TBN",
    "AWS for a while": "ASIAQ7XZ2LMP9VRK4TBN",
    "AWS secret": "q7Xz2LmP9vRk4/bN8sWd3HyJ6cFg5A+U1oKi0ZxY",
    "GitHub": f"ghp_{_LOT[:36]}",
    "GitHub's server": f"ghs_{_LOT[:36]}",
    "GitHub, newer": f"github_pat_{_LOT[:22]}_{_LOT}",
    "GitLab": f"glpat-{_LOT[:20]}",
    "Hugging Face": f"hf_{_LOT[:34]}",
    "OpenAI": f"sk-proj-{_LOT}",
    "Anthropic": f"sk-ant-api03-{_LOT[:20]}_{_LOT[:20]}-AA",
    "Slack": "xoxb-123456789012-1234567890123-q7Xz2LmP9vRk4TbN8sWd3HyJ",
    "Google": f"AIza{_LOT[:35]}",
    "W&B": "3f9a1c5e7b2d4f608a1c3e5d7f9b0a2c4e6d8f01",
    "W&B, newer": f"wandb_v1_{_LOT}",
    "token of a pool": f"eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJwb29sIn0.{_LOT[:43]}",
    "by lot": _LOT[:40],
}

PEM: Final = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gt\n"
    "ZWQyNTUxOQAAACDq7Xz2LmP9vRk4TbN8sWd3HyJ6cFg5AeU1oKi0ZxYtQ\n"
    "-----END OPENSSH PRIVATE KEY-----"
)

NAMED = [
    "WANDB_API_KEY={}",
    'environment = "A=1 WANDB_API_KEY={} B=2"',
    "environment = A=1;WANDB_API_KEY={};B=2",
    "train.sh --wandb-key {} --epochs 3",
    "train.sh --wandb-key \\\n    {} --epochs 3",
    "train.sh --token={} --epochs 3",
    "train.sh --token '{}' --epochs 3",
    'train.sh --api-key "{}"',
    "password: {}",
    "Authorization: Bearer {}",
    "curl -H 'Authorization: token {}' x",
    '{{"token": "{}", "lr": 0.1}}',
    "{{'client_secret': '{}'}}",
    'VARS A args="--token \\"{}\\" --epochs 3"',
    'VARS A note="it says \\"password: {}\\" there"',
    'arguments = "--token ""{}"" --epochs 3"',
    "environment = \"TOKEN=''{}'' B=2\"",
    "<s>TOKEN=&quot;{}&quot;</s>",
    "https://me:{}@example.org/data.tar",
    "https://example.org/data.tar?token={}&x=1",
    "https://example.org/data.tar?X-Amz-Signature={}&x=1",
    "https://example.org/data.tar?X-Amz-Credential={}%2F20251121&x=1",
    "https://example.org/data.tar?AWSAccessKeyId={}&Expires=1",
    "https://account.example.org/data.tar?sv=1&sig={}",
    "x?TOKEN%3D{}",
    "export HF_TOKEN={}; python train.py",
    'MY.SecretKey = "{}"',
    "aws_secret_access_key = {}",
    "wandbApiKey: '{}'",
    "PASSWORD={}",
    "-e DB_PASS={}",
    "PASS={}",
    "curl --header=Authorization:\\ Bearer\\ {} x",
    "osdf://example.org/data.tar?authz=Bearer%20{}",
    "machine api.example.org login me password {}",
    "curl -u me:{} https://example.org",
    "curl --user 'me:{}' https://example.org",
    "https://{}and4more@example.org/data.tar",
    "https://hooks.slack.com/services/T00000000/B00000000/{}",
    "https://discord.com/api/webhooks/123456789012345678/{}",
    "TOKEN=0123-{}",
]
"""Where a value stands that only its name tells."""

VALUE = "n0Shape4this7value"


@pytest.mark.parametrize("place", NAMED)
def test_values_named_like_secrets_are_hidden(place: str) -> None:
    text = place.format(VALUE)
    hidden = redact_secrets(text)
    assert VALUE not in hidden
    assert HIDDEN in hidden
    before, _, behind = hidden.partition(HIDDEN)
    assert text.startswith(before)
    # The text around it stays, but for what may be part of the value.
    assert behind == "" or text.endswith(behind[-8:])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "around",
    [
        *("{}", " {} ", "'{}'", '"{}"', '\\"{}\\"', "({})"),
        *("x={}", "--x {}", "a,{},b", "[{}]", "a\n{}\nb"),
    ],
)
def test_values_shaped_like_keys_are_hidden(shape: str, around: str) -> None:
    key = SHAPES[shape]
    hidden = redact_secrets(around.format(key))
    assert key not in hidden
    assert HIDDEN in hidden
    # No longer piece of it is left.
    assert not any(key[at : at + 12] in hidden for at in range(len(key) - 11))


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "W&B"])
@given(cut=st.integers(0, 20))
def test_truncated_key_is_hidden(shape: str, cut: int) -> None:
    key = SHAPES[shape]
    kept = key[: max(36, len(key) - cut)] if len(key) > 40 else key
    assert kept not in redact_secrets(f"failed with {kept}…")


@given(end=st.integers(1, len(PEM)))
def test_private_key_is_hidden_from_its_beginning(end: int) -> None:
    hidden = redact_secrets(f"said:\n{PEM[:end]}")
    assert "b3BlbnNzaC" not in hidden
    assert hidden.startswith("said:\n")


KEPT = [
    # uuids, names of GPUs, slots, hosts
    "run_uuid 3f1c2d4e-1a2b-4c3d-8e9f-0123456789ab, GPU-1a2b3c4d",
    'GPUs_GPU_1a2b = [ Id = "GPU-1a2b"; DeviceUuid = "1a2b3c4d-0000-4000-8000-000000000000" ]',
    "slot1_3@glidein_1234_567890123@gpub042.delta.ncsa.illinois.edu",
    "<10.0.0.1:9618?addrs=10.0.0.1-9618+[2001-db8--1]-9618&alias=ap.example.org&noUDP&sock=schedd_1_2>",
    'DeviceName = "NVIDIA A100-SXM4-40GB"; GlobalMemoryMb = 40326',
    # files, sums, numbers, dates
    "/var/lib/condor-execute/expanse/dir_1234/output/training_logs/version_3/metrics.csv",
    "epoch=29-step=480000-val_loss=0.2398.ckpt",
    "output/3f9a1c5e7b2d4f608a1c3e5d7f9b0a2c4e6d8f01.tar.gz",
    "git commit 3f9a1c5e7b2d4f608a1c3e5d7f9b0a2c4e6d8f01",
    "run_uuid=3f9a1c5e7b2d4f608a1c3e5d7f9b0a2c4e6d8f01",
    "docker://example/train@sha256:3f9a1c5e7b2d4f608a1c3e5d7f9b0a2c4e6d8f013f9a1c5e7b2d4f608a1c3e5d",
    "2025-11-14 08:14:00 1763108040 12345678901234567890123456789012345678901234567890",
    "ModelCheckpointEpochEndValidationLossCallbackVersionNumber2OfThree",
    "osdf:///ospool/uc-shared/project/pretrain.h5",
    # output of trainings
    "--max-tokens 2048 --tokenizer bert-base-cased --pad_token [PAD] --num_tokens=4096",
    "key_dim=64 n_keys: 8 num_key_value_heads=8 sort_key=epoch",
    "--token-file /run/secrets/wandb --ssh-key ~/.ssh/id_ed25519",
    "GOOGLE_APPLICATION_CREDENTIALS=/home/me/credentials.json",
    "BEARER_TOKEN_FILE=/run/user/1000/bt_u1000",
    "DAGMAN_PRODUCE_JOB_CREDENTIALS setting: True",
    "WANDB_API_KEY=$ENV(WANDB_API_KEY) token = $(token) PASSWORD=",
    "remove_kill_sig = SIGUSR1",
    # texts of HTCondor
    "authentication token expired",
    "The SciToken has expired: token is not valid",
    "token file not found",
    "Failed to read token: No such file or directory",
    "AUTHENTICATE:1004:Failed to authenticate using SCITOKENS|TOKEN:1005:Failed to get token",
    "Transfer input files failure at execution point slot1@host using protocol osdf. Details: "
    "credential is required for osdf:///ospool/x but was not discovered",
    "Job credentials are not available (CREDMON: no credential for scitokens)",
    'Can\'t open directory "/etc/condor/passwords.d" as PRIV_ROOT, errno: 13 (Permission denied)',
    "Failed to transfer files: bad password: Permission denied",
    "invalid credential: expired",
    "Unexpected token '[DIR'",
    "token: 401 Unauthorized",
    "HEAD is now at 3f9a1c5e7b2d4f608a1c3e5d7f9b0a2c4e6d8f01 Train longer",
    "git checkout 3f9a1c5e7b2d4f608a1c3e5d7f9b0a2c4e6d8f01",
    "docker run -u 1000:1000 --user trainer:trainers image",
    "Basic block12345, basic training2024",
    "login failed password incorrect",
    "first_pass=3 https://someone@example.org/x",
]


@pytest.mark.parametrize("text", KEPT)
def test_useful_values_are_kept(text: str) -> None:
    assert redact_secrets(text) == text
    assert find_secrets(text) == []


def test_values_are_judged_by_their_names() -> None:
    assert hide_value("wandb_key", "hunter2") == HIDDEN
    assert hide_value("extra", "--token hunter2 --lr 1") == f"--token {HIDDEN} --lr 1"
    assert hide_value("epoch", "12") == "12"
    sha = "3f9a1c5e7b2d4f608a1c3e5d7f9b0a2c4e6d8f01"
    assert hide_value("run_uuid", sha) == sha, "runs are distinguished by it"
    assert hide_value("wandb", sha) == HIDDEN


def test_hidden_values_are_named_not_shown() -> None:
    text = f"A=1 WANDB_API_KEY={VALUE} {SHAPES['GitHub']}"
    found = find_secrets(text)
    assert [each.name for each in found] == ["WANDB_API_KEY", "GitHub token"]
    assert text[found[0].start : found[0].end] == VALUE
    assert VALUE not in repr(found)


def test_secrets_behind_a_secret_are_found() -> None:
    once = redact_secrets(f"{SHAPES['W&B, newer']}--token {VALUE}")
    assert VALUE not in once
    assert redact_secrets(once) == once


PIECES = st.sampled_from(
    [
        *("token=", "--token ", "password: ", "KEY", "Bearer ", '"', "'", '\\"', "''", "&quot;"),
        *("\\\n", "\n", " ", "=", ":", "(", ")", HIDDEN, "://", "@", "?sig=", "&", ";", ",", "%3D"),
        *("ghp_", "sk-", "eyJ", "AKIA", "-----BEGIN PRIVATE KEY-----", "abc", "12", "Ab1", "/x"),
        *SHAPES.values(),
    ]
)


@given(st.lists(PIECES | st.text(max_size=6), max_size=12).map("".join))
def test_redaction_is_idempotent(text: str) -> None:
    once = redact_secrets(text)
    assert redact_secrets(once) == once


@given(st.lists(PIECES | st.text(max_size=6), max_size=12).map("".join))
def test_text_without_secrets_is_unchanged(text: str) -> None:
    found = find_secrets(text)
    assert (redact_secrets(text) == text) == (not found)
    assert all(a.end <= b.start for a, b in pairwise(found))
    assert not found or might_contain_secret(text)


def _cpu(text: str) -> float:
    return effort(lambda: redact_secrets(text))


@pytest.mark.parametrize(
    "unit",
    [
        *("a", "token='", 'token=\\"x\\" ', "--key ", "sk-a-", "eyJa.", "://a:", "Bearer ", "%3D"),
        *(" -u a", "basic%20", "-----BEGIN ", "aB3", "token \\\n", "password=a,b", "&quot;"),
    ],
)
def test_redaction_is_linear_in_the_text(unit: str) -> None:
    """Eight times the text takes eight times the time, not sixty-four; with a wide margin."""
    small, large = (unit * (size // len(unit)) for size in (20_000, 160_000))
    redact_secrets(unit * 10)
    base = max(min(_cpu(small) for _ in range(3)), 0.001)
    assert _cpu(large) < 30 * base or _cpu(large) < 30 * base


def names_of_secrets(place: Path) -> set[str]:
    """The names of the secrets in all files below a directory."""
    return {
        each.name
        for path in place.rglob("*")
        if path.is_file()
        for line in path.read_bytes().decode("utf-8", "replace").split("\n")
        for each in find_secrets(line)
    }


@pytest.mark.parametrize("folder", ["examples", "conformance"])
def test_only_the_key_in_real_files_is_hidden(folder: str, shared: Shared) -> None:
    """The METL team's DAG has its key replaced by zeros; a thousand other files of HTCondor and
    trainings have none."""
    assert names_of_secrets(shared(folder)) <= {"WANDB_API_KEY"}


RECORDED = "demo holds rescue scripts shared-log trainer first-round gated"


@pytest.mark.parametrize("name", RECORDED.split())
def test_no_value_of_recorded_ensembles_is_hidden(name: str) -> None:
    assert names_of_secrets(FIXTURES / name) == set()


KEY = SHAPES["GitHub"]


def test_texts_of_the_queue_are_redacted() -> None:
    ad = {"ClusterId": 1, "ProcId": 0, "JobStatus": 5, "HoldReason": f"train.sh --token {KEY} x"}
    job = queue_job(ad)
    assert job.hold_reason == f"train.sh --token {HIDDEN} x"
    assert not {"env", "environment"} & {*QueueJob.__struct_fields__}
    assert KEY not in str(WorkerFailure(ErrorKind.OTHER, f"bad token={KEY} there"))


def test_errors_are_redacted() -> None:
    for error in (InputError, PoolError, PlanError):
        assert str(error(f"no token={KEY} here")) == f"no token={HIDDEN} here"
