"""Each kind of finding, in a text that has it and at the reported place; otherwise all is clean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from metlmon.authoring.lint import rule_files
from metlmon.authoring.lint.rules import KINDS
from tests.support.lint_ensemble import DAG, GOOD, TRAIN, damaged, findings, report_of, write

Files: TypeAlias = Mapping[str, str | bytes]

KEY = "0123456789abcdef0123456789abcdef01234567"

INLINE = DAG.replace("JOB run0-eval_epoch1 eval.sub\n", "JOB run0-eval_epoch1 {\nlog = a.log\n}\n")


def more(text: str, **files: str | bytes) -> dict[str, str | bytes]:
    """The good ensemble with more lines at the end of its DAG file."""
    return {**GOOD, "ens.dag": DAG + text, **{n.replace("_", "."): t for n, t in files.items()}}


def dag(old: str, new: str, **files: str | bytes) -> dict[str, str | bytes]:
    """The good ensemble with a change in its DAG file."""
    return damaged("ens.dag", old, new, **files)


def train(old: str, new: str, **files: str | bytes) -> dict[str, str | bytes]:
    """The good ensemble with a change in the description of its trainings."""
    return damaged("train.sub", old, new, **files)


def described(*lines: str) -> dict[str, str | bytes]:
    """The good ensemble with more lines before the queue line of its trainings."""
    return damaged("train.sub", "queue\n", "\n".join([*lines, "queue\n"]))


ARGUMENTS = "--uuid $(run_uuid) --max-epochs $(epochs) --stop-after-epoch $(epoch)"

PLAIN = "executable = train.sh\nlog = metl.log\n"

SPLICE, SUB = "JOB A plain.sub\n", "SUBDAG EXTERNAL S i.dag\n"

S = "JOB a plain.sub\nJOB b plain.sub\nPARENT a CHILD b\n"

WITHIN_A_SPLICE = (
    "PRIORITY S+a 3",
    "RETRY S+a 3",
    'VARS S+a x="1"',
    "CATEGORY S+a evaluations",
    "ABORT-DAG-ON S+a 1",
    "SCRIPT PRE S+a /bin/true",
    "PRE_SKIP S+a 3",
    "PARENT run0-train_epoch1 CHILD S+a",
    "PARENT S+b CHILD run0-train_epoch0",
)
"""Commands that HTCondor 23.9.6 was seen to refuse: a splice's nodes have no names yet."""

CASES: list[tuple[str, str, Files]] = [
    ("syntax", "ens.dag:16", dag("RETRY ALL_NODES 3", "RETRY ALL_NODES three")),
    (
        "syntax",
        "ens.dag:2",
        dag(
            "epoch0 train.sub\nJOB run0-train_epoch1",
            "epoch0 train.sub # first\nJOB run0-train_epoch1",
        ),
    ),
    ("syntax", "ens.dag:19", more('VARS ALL_NODES queue_name="x"\n')),
    ("unknown-command", "ens.dag:19", more("RETRYS ALL_NODES 3\n")),
    ("not-a-dag", "wf.dag:None", {**GOOD, "wf.dag": "digraph snakemake_dag {\n  1 -> 0\n}\n"}),
    ("byte-order-mark", "ens.dag:1", {**GOOD, "ens.dag": "\ufeff" + DAG}),
    ("crlf", "ens.dag:1", {**GOOD, "ens.dag": DAG.replace("\n", "\r\n")}),
    ("not-utf8", "ens.dag:19", {**GOOD, "ens.dag": DAG.encode() + b"# caf\xe9\n"}),
    ("unfinished-line", "ens.dag:19", more("RETRY run0-eval_epoch1 \\\n")),
    (
        "queue-in-description",
        "ens.dag:8",
        {**GOOD, "ens.dag": INLINE.replace("log = a.log\n", "log = a.log\nqueue\n")},
    ),
    ("unquoted-value", "ens.dag:19", more("VARS run0-train_epoch0 extra=1\n")),
    ("unquoted-value", "ens.dag:19", more("VARS run0-train_epoch0 extra='1'\n")),
    ("value-goes-on", "ens.dag:19", more('VARS run0-train_epoch0 a="1",b="2"\n')),
    ("vars-escape", "ens.dag:19", more('VARS run0-train_epoch0 extra="a\\tb"\n')),
    ("vars-name", "ens.dag:19", more('VARS run0-train_epoch0 learning-rate="1"\n')),
    ("vars-name", "ens.dag:19", more('VARS run0-train_epoch0 größe="1"\n')),
    ("job-attribute", "ens.dag:19", more("SET_JOB_ATTR Project\n")),
    ("job-attribute", "ens.dag:19", more("SET_JOB_ATTR +Project = 1\n")),
    ("job-attribute", "ens.dag:19", more('SET_JOB_ATTR Project = "x\n')),
    ("job-attribute", "ens.dag:19", more("SET_JOB_ATTR Share = 1 +\n")),
    ("missing-file", "ens.dag:19", more("INCLUDE more.inc\n")),
    ("missing-file", "ens.dag:19", more("SPLICE S s.dag\n")),
    ("recursion", "ens.dag:19", more("INCLUDE ens.dag\n")),
    ("duplicate-node", "ens.dag:19", more("JOB run0-train_epoch0 train.sub\n")),
    (
        "unknown-node",
        "ens.dag:12",
        dag("PARENT run0-train_epoch0 CHILD", "PARENT run0-train_epoch7 CHILD"),
    ),
    ("dependency", "ens.dag:20", more("FINAL F eval.sub\nPARENT run0-train_epoch0 CHILD F\n")),
    (
        "pins",
        "ens.dag:21",
        more("SPLICE S s.inc\nSPLICE T s.inc\nCONNECT S T\n", s_inc=SPLICE, plain_sub=PLAIN),
    ),
    ("reject", "ens.dag:19", more("REJECT\n")),
    ("cycle", "ens.dag:19", more("PARENT run0-train_epoch1 CHILD run0-train_epoch0\n")),
    ("newer-command", "ens.dag:19", more("FROBNICATE A 3\n", metl_log="", ens_dag_metrics="{}")),
    ("missing-subdag", "ens.dag:19", more("SUBDAG EXTERNAL S inner.dag\n")),
    (
        "missing-later-subdag",
        "ens.dag:19",
        more("SUBDAG EXTERNAL S inner.dag\nPARENT run0-eval_epoch1 CHILD S\n"),
    ),
    (
        "missing-later-subdag",
        "ens.dag:19",
        more("SUBDAG EXTERNAL S inner.dag\nSCRIPT PRE S /bin/true\n"),
    ),
    (
        "subdag-recursion",
        "inner.inc:1",
        more("SUBDAG EXTERNAL S inner.inc\n", inner_inc="SUBDAG EXTERNAL T inner.inc\n"),
    ),
    ("node-kind", "ens.dag:20", more("SERVICE S eval.sub\nRETRY S 3\n")),
    ("node-kind", "ens.dag:20", more("FINAL F eval.sub\nABORT-DAG-ON F 3\n")),
    *(
        ("splice-node", "ens.dag:20", more(f"SPLICE S s.inc\n{line}\n", s_inc=S, plain_sub=PLAIN))
        for line in WITHIN_A_SPLICE
    ),
    ("lone-node", "ens.dag:19", more("JOB clean eval.sub\n")),
    ("unused-throttle", "ens.dag:18", dag("MAXJOBS evaluations", "MAXJOBS evalutions")),
    ("throttle-zero", "ens.dag:18", dag("MAXJOBS evaluations 1", "MAXJOBS evaluations 0")),
    ("pre-skip-range", "ens.dag:19", more("PRE_SKIP run0-train_epoch0 256\n")),
    ("pre-skip-range", "ens.dag:19", more("PRE_SKIP run0-train_epoch0 -1\n")),
    ("pre-skip-zero", "ens.dag:19", more("PRE_SKIP run0-train_epoch0 0\n")),
    ("abort-stops-all", "ens.dag:2", more("ABORT-DAG-ON run0-train_epoch0 3 RETURN 0\n")),
    ("abort-restarts", "ens.dag:6", more("ABORT-DAG-ON run0-eval_epoch1 3\n")),
    ("done-line", "ens.dag:19", more("DONE run0-train_epoch0\n")),
    ("done-in-splice", "s.inc:1", more("SPLICE S s.inc\n", s_inc="JOB A p DONE\n", p=PLAIN)),
    (
        "nested-as-job",
        "ens.dag:19",
        more(
            "JOB inner in.dag.condor.sub\nPARENT run0-train_epoch0 CHILD inner\n",
            **{"in.dag.condor.sub": PLAIN},
        ),
    ),
    ("missing-config", "ens.dag:19", more("CONFIG dagman.conf\n")),
    ("second-config", "ens.dag:20", more("CONFIG a.cfg\nCONFIG b.cfg\n", a_cfg="", b_cfg="")),
    (
        "missing-queue-items",
        "eval.sub:4",
        damaged("eval.sub", "queue", "queue run_uuid from uuids.txt"),
    ),
    ("missing-submit-file", "ens.dag:6", dag("epoch1 eval.sub", "epoch1 evl.sub")),
    ("missing-executable", "train.sub:1", train("= train.sh", "= trian.sh")),
    ("missing-input", "train.sub:3", train("data.txt", "date.txt")),
    (
        "missing-later-input",
        "eval.sub:4",
        damaged("eval.sub", "queue", "transfer_input_files = test.txt\nqueue"),
    ),
    ("missing-script", "ens.dag:15", dag("/bin/true", "judge.sh $JOB")),
    ("script-quoted", "ens.dag:15", dag("/bin/true", '"judge.sh $JOB"')),
    ("script-not-executable", "ens.dag:15", dag("/bin/true", "data.txt")),
    ("script-crlf", "ens.dag:15", dag("/bin/true", "judge.sh", judge_sh="#!/bin/sh\r\nexit 0\r\n")),
    (
        "no-interpreter",
        "ens.dag:15",
        dag("/bin/true", "judge.sh", judge_sh="#!/usr/bin/env -S no-such-shell -u\n"),
    ),
    (
        "no-interpreter",
        "ens.dag:15",
        dag("/bin/true", "judge.sh", judge_sh="#!/opt/no/such/python\n"),
    ),
    ("script-crlf", "train.sub:1", {**GOOD, "train.sh": "#!/bin/sh\r\nexit 0\r\n"}),
    ("missing-directory", "ens.dag:6", dag("epoch1 eval.sub", "epoch1 eval.sub DIR sub")),
    ("missing-directory", "ens.dag:2", described("initialdir = runs/$(run_uuid)")),
    ("files-not-here", "ens.dag:None", train("data.txt", "date.txt", **{"ens.dag.dagman.out": ""})),
    ("files-not-here", "i.dag:None", more(SUB, i_dag="JOB a a.sub\n", ens_dag_metrics="")),
    (
        "bare-requirement",
        "train.sub:6",
        train("requirements = TARGET.GLIDEIN_ResourceName =?=", "TARGET.GLIDEIN_ResourceName =="),
    ),
    ("bare-requirement", "train.sub:6", train("requirements = TARGET", "TARGET")),
    ("bare-requirement", "train.sub:6", train("requirements = TARGET", "(TARGET")),
    ("submit-command", "train.sub:11", described("requst_gpus = 1")),
    ("bare-requirement", "train.sub:11", described('GLIDEIN_ResourceName == "Delta-GPU"')),
    ("submit-syntax", "train.sub:4", train("request_gpus = 1", "request_gpus 1\nrequest_gpus = 1")),
    (
        "unbalanced-if",
        "train.sub:11",
        described("if defined continue_from_checkpoint", "priority = 1"),
    ),
    ("unbalanced-if", "train.sub:11", described("endif")),
    ("undefined-macro", "train.sub:2", train("$(epochs)", "$(epohcs)")),
    ("gpus-not-requested", "train.sub:4", train("request_gpus = 1\n", "")),
    ("no-log", "train.sub:1", train("log = metl.log\n", "")),
    ("log-per-job", "train.sub:9", train("metl.log", "metl_$(Cluster).log")),
    ("shared-log", "a.dag:None", {**GOOD, "a.dag": DAG.replace('"u', '"v')}),
    (
        "shared-status-file",
        "a.dag:None",
        {
            "ens.dag": "NODE_STATUS_FILE nodes.status\nJOB A plain.sub\n",
            "a.dag": "NODE_STATUS_FILE nodes.status\nJOB B plain.sub\n",
            "plain.sub": PLAIN,
            "train.sh": GOOD["train.sh"],
        },
    ),
    ("several-procs", "ens.dag:2", train("queue", "queue 2")),
    ("secret", "train.sub:8", train("WANDB_MODE=offline", f"WANDB_API_KEY={KEY}")),
    ("secret", "ens.dag:19", more(f'VARS run0-train_epoch0 api_key="{KEY}"\n')),
    ("secret", "train.sub:2", train("--uuid", f"--wandb-key {KEY} --uuid")),
    ("secret", "train.sub:11", described(f'# environment = "WANDB_API_KEY={KEY}"')),
    ("secret", "train.sub:11", described(f'output_destination = "https://u:{KEY}@example.org/d"')),
    ("secret", "ens.dag:19", more(f"ENV SET WANDB_API_KEY={KEY}\n")),
    ("secret", "ens.dag:19", more(f'SET_JOB_ATTR ApiKey = "{KEY}"\n')),
    ("secret", "ens.dag:19", more(f'VARS run0-train_epoch0 note="ghp_{KEY}"\n')),
    ("secret", "ens.dag:19", more(f'VARS run0-train_epoch0 +Environment="API_KEY={KEY}"\n')),
    ("secret", "train.sub:11", described(f'+ApiKey = "{KEY}"')),
    ("no-site", "train.sub:1", train("ulog_execute_attrs = GLIDEIN_ResourceName\n", "")),
    ("no-site", "train.sub:7", train("attrs = GLIDEIN_ResourceName", "attrs = Machine")),
    ("unfinished-expression", "train.sub:11", described('periodic_release = (A == "x)" && (B')),
    ("unfinished-expression", "train.sub:11", described("on_exit_hold = A == 1))")),
    ("unfinished-expression", "train.sub:11", described("rank = TARGET.Foo > 2 &&")),
    ("no-retry", "ens.dag:2", dag("RETRY ALL_NODES 3\n", "")),
    ("side-node-fails-dag", "ens.dag:6", dag("SCRIPT POST run0-eval_epoch1 /bin/true\n", "")),
    ("failure-hidden", "ens.dag:2", more("SCRIPT POST run0-train_epoch0 /bin/true\n")),
    ("broken-chain", "ens.dag:3", dag("PARENT run0-train_epoch0 CHILD run0-train_epoch1\n", "")),
    (
        "epoch-gap",
        "ens.dag:19",
        more(
            "JOB run1-train_epoch3 train.sub\nRETRY run1-train_epoch3 3\n"
            'VARS run1-train_epoch3 run_uuid="u1" epoch="4" epochs="2"\n'
            'VARS run1-train_epoch3 continue_from_checkpoint="x"\n'
            "PARENT run1-train_epoch1 CHILD run1-train_epoch3\n"
        ),
    ),
    ("no-checkpoint", "ens.dag:3", dag(' continue_from_checkpoint="output/u0"', "")),
    (
        "checkpoint-at-first",
        "ens.dag:7",
        dag('u0" epoch="1"', 'u0" continue_from_checkpoint="data.txt" epoch="1"'),
    ),
    ("no-uuid", "ens.dag:3", dag('run_uuid="u0" epoch="2" epochs', 'epoch="2" epochs')),
    ("uuid-twice", "ens.dag:9", {**GOOD, "ens.dag": DAG.replace("u1", "u0")}),
    (
        "uuid-changes",
        "ens.dag:8",
        dag('run_uuid="u0" epoch="2" epochs', 'run_uuid="u9" epoch="2" epochs'),
    ),
    (
        "stopped-before",
        "ens.dag:4",
        {
            **more("SCRIPT PRE run1-train_epoch0 gate.sh ens.gate.json u1 0 train $JOB\n"),
            "gate/ens/u1.stopped": "{}",
            "gate/ens/u0.stopped": "{}",
            "gate.sh": "#!/bin/sh\nexit 0\n",
        },
    ),
    ("epoch-is-horizon", "train.sub:2", train("--max-epochs $(epochs)", "--max-epochs $(epoch)")),
    ("epoch-is-horizon", "ens.dag:7", dag('u0" epoch="1" epochs="2"', 'u0" epoch="1" epochs="1"')),
    (
        "epoch-is-horizon",
        "train.sh:3",
        {
            **train(ARGUMENTS, "$(epoch) $(run_uuid)"),
            "train.sh": '#!/bin/sh\nepoch=$1 uuid=$2\npython train.py --max_epochs "$epoch"\n',
        },
    ),
    (
        "no-horizon",
        "train.sub:2",
        train(
            f"train.sh\narguments = {ARGUMENTS}",
            "/bin/bash\narguments = pretrain.sh $(epoch) $(run_uuid)",
        ),
    ),
]

ELSEWHERE = {
    *("too-large", "too-many-files", "mail", "network-file-system", "in-tmp"),
    *("request-too-large", "request-exceeded"),
}
"""Kinds with a test of their own: they take many nodes, another file system, or jobs that ran."""


def test_good_ensemble_is_clean(tmp_path: Path) -> None:
    assert findings(write(tmp_path, GOOD)) == ()


ALSO: Mapping[str, set[str]] = {
    "syntax": {"no-retry", "unknown-node", "missing-input"},
    "unknown-node": {"broken-chain", "missing-input"},
    **{kind: {"lone-node"} for kind in ("pins", "done-in-splice")},
    "missing-queue-items": {"several-procs"},
    "broken-chain": {"missing-input"},
    "no-uuid": {"undefined-macro"},
    "epoch-is-horizon": {"no-horizon"},
}
"""What else the mistake brings with it: where a line is lost, its effect is missing too."""


@pytest.mark.parametrize(("kind", "place", "files"), CASES, ids=[c[0] for c in CASES])
def test_one_mistake_is_one_finding_at_its_place(
    tmp_path: Path, kind: str, place: str, files: Files
) -> None:
    """Further findings would hide the one that matters."""
    found = report_of(write(tmp_path, files))
    assert (kind, place) in [(name, f"{file}:{line}") for name, file, line in found]
    assert {each[0] for each in found} - {kind} <= ALSO.get(kind, set())
    assert not any(KEY in each.message + each.remedy for each in findings(tmp_path))


@pytest.mark.parametrize("head", ["#!/bin/sh\n", "#!/usr/bin/env python3\n"])
def test_gate_needs_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str) -> None:
    """Gates that the shell starts, and those of earlier versions."""
    call = "SCRIPT PRE run0-train_epoch1 gate.py ens.gate.json u0 1 train $JOB\nRETRY"
    write(tmp_path, {**damaged("ens.dag", "RETRY", call), "gate.py": head})
    (tmp_path / "gate.py").chmod(0o700)
    assert report_of(tmp_path) == []
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = findings(tmp_path)
    assert (found.kind, found.line) == ("no-interpreter", 16)
    assert "gate.py of run0-train_epoch1 needs python3, which is not on PATH here" in found.message


def test_gate_answers_of_a_submitted_dag_are_accepted(tmp_path: Path) -> None:
    (files,) = (case[2] for case in CASES if case[0] == "stopped-before")
    write(tmp_path, {**files, "ens.dag.dagman.out": ""})
    assert report_of(tmp_path) == []


def test_dag_refused_by_dagman_is_checked_as_unsubmitted(tmp_path: Path) -> None:
    """It has a .dagman.out and a .dagman.log, but no node has run."""
    refused = "11/23/26 01:55:14 Failed to parse ens.dag\n"
    write(tmp_path, {**more("JOB late eval.sub DIR nowhere\n"), "ens.dag.dagman.out": refused})
    write(tmp_path, {"ens.dag.dagman.log": "000 (1.000.000) 2026-11-23 01:55:14 Job submitted\n"})
    assert ("missing-directory", "ens.dag", 19) in report_of(tmp_path)
    write(tmp_path, {"ens.dag.nodes.log": ""})
    assert "missing-directory" not in [each[0] for each in report_of(tmp_path)]


def test_same_config_may_be_named_twice(tmp_path: Path) -> None:
    write(tmp_path, more("CONFIG a.cfg\nCONFIG a.cfg\n", a_cfg=""))
    assert report_of(tmp_path) == []


def test_jobstate_log_needs_its_folder(tmp_path: Path) -> None:
    write(tmp_path, more("JOBSTATE_LOG logs/jobstate.log\n"))
    assert report_of(tmp_path) == [("missing-directory", "ens.dag", 19)]
    (tmp_path / "logs").mkdir()
    assert report_of(tmp_path) == []


def test_include_expands_the_splices_before_it(tmp_path: Path) -> None:
    text = "SPLICE S s.inc\nINCLUDE more.inc\nRETRY S+a 3\n"
    files = {"s.inc": S, "plain.sub": PLAIN, "more.inc": "# nothing\n"}
    write(tmp_path, {**more(text), **files})
    assert report_of(tmp_path) == []
    write(tmp_path, more(f"{text}PARENT run0-train_epoch1 CHILD S\n"))
    assert report_of(tmp_path) == [("splice-node", "ens.dag", 22)]


def test_every_kind_has_a_case() -> None:
    assert {case[0] for case in CASES} | ELSEWHERE == set(KINDS)


def test_mail_is_reported_of_many_nodes_only(tmp_path: Path) -> None:
    lines = [f"JOB n{i} mail.sub\n" for i in range(11)]
    files = {"train.sh": GOOD["train.sh"], "mail.sub": PLAIN + "notification = always\n"}
    write(tmp_path, {**files, "ens.dag": "".join(lines)})
    assert report_of(tmp_path) == [("mail", "mail.sub", 3)]
    write(tmp_path, {**files, "ens.dag": lines[0]})
    assert report_of(tmp_path) == []


def test_log_below_tmp_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, GOOD)
    monkeypatch.setattr(rule_files, "TEMPORARY", str(tmp_path.parent))
    assert report_of(tmp_path) == [("in-tmp", "ens.dag", None)]


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / {home} rw,relatime shared:1 - nfs4 server:/export rw,vers=4.2
31 30 0:41 / {local} rw,relatime - tmpfs tmpfs rw
"""


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on NFS by the list of mounts; ``local`` in it is not."""
    home = tmp_path / "ho me"
    write(home, GOOD)
    (home / "local").mkdir()
    output_home = str(home).replace(" ", "\\040")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(home=output_home, local=f"{output_home}/local"))
    monkeypatch.setattr(rule_files, "MOUNTS", mounts)
    return home


def test_nodes_log_on_nfs_is_reported(mounted: Path) -> None:
    (one,) = findings(mounted)
    assert (one.kind, one.file, one.line) == ("network-file-system", "ens.dag", None)
    assert "nfs4" in one.message


def test_job_log_is_checked_at_its_own_place(mounted: Path, tmp_path: Path) -> None:
    inner = write(mounted / "local", GOOD)
    assert report_of(inner) == []
    write(inner, {"train.sub": TRAIN.replace("log = metl.log", "log = ../metl.log")})
    assert report_of(inner) == [("network-file-system", "train.sub", 9)]


def test_cycle_names_its_nodes_in_order(tmp_path: Path) -> None:
    nodes = "JOB A a.sub NOOP\nJOB B a.sub NOOP\nJOB C a.sub NOOP\n"
    text = nodes + "PARENT A CHILD B\nPARENT B CHILD C\nPARENT C CHILD B\n"
    (one,) = findings(write(tmp_path, {"ens.dag": text}))
    assert (one.kind, one.line) == ("cycle", 6)
    assert "B → C → B" in one.message or "C → B → C" in one.message


def test_names_that_look_like_secrets_are_accepted(tmp_path: Path) -> None:
    """Names of key files, macros, uuids and checksums."""
    environment = "WANDB_API_KEY_FILE=wandb.key TOKEN=$(token_name) KEYS= MODE=offline"
    arguments = "--uuid 7bcfae26-d8b7-54aa-abc1-32f3c2f6a6bb --token-file ./token --seed 3"
    text = TRAIN.replace("WANDB_MODE=offline", environment)
    text = text.replace("--uuid $(run_uuid)", f"{arguments} --commit {KEY}")
    write(tmp_path, {**more(f'VARS ALL_NODES data_sha1="{KEY}"\n'), "train.sub": text})
    assert {each[0] for each in report_of(tmp_path)} <= {"undefined-macro"}


def test_program_of_the_image_is_not_looked_for_locally(tmp_path: Path) -> None:
    image = "universe = container\ncontainer_image = osdf:///example/x.sif\n"
    text = image + TRAIN.replace("= train.sh", "= /opt/metl/bin/train")
    write(tmp_path, {**GOOD, "train.sub": text})
    assert report_of(tmp_path) == []


@pytest.mark.parametrize("another", ["", 'VARS run0-eval_epoch1 APPEND other="1"\n'])
def test_only_appended_vars_override_a_description(tmp_path: Path, another: str) -> None:
    text = TRAIN.replace("data.txt", "$(data)").replace("executable", "data = data.txt\nexecutable")
    for placement, expected in (("", []), ("APPEND ", ["missing-input"])):
        vars_line = f'VARS run0-train_epoch0 {placement}data="gone.txt"\n'
        write(tmp_path, {**more(vars_line + another), "train.sub": text})
        assert [kind for kind, *_ in report_of(tmp_path)] == expected


def test_sub_dag_resolves_files_in_its_directory(tmp_path: Path) -> None:
    sub = PLAIN + "transfer_input_files = only-here\n"
    write(tmp_path / "d", {"s.dag": "JOB A s.sub\n", "s.sub": sub, "train.sh": "", "only-here": ""})
    outer = {
        "ens.dag": "SUBDAG EXTERNAL S s.dag DIR d\nJOB A s.sub\nPARENT S CHILD A\n",
        "s.sub": PLAIN,
        "train.sh": GOOD["train.sh"],
    }
    write(tmp_path, outer)
    assert not any(found.kind == "shared-log" for found in findings(tmp_path))
    assert not any("only-here" in found.message for found in findings(tmp_path))
    (tmp_path / "d" / "only-here").unlink()
    missing = [found.file for found in findings(tmp_path) if "only-here" in found.message]
    assert missing == ["d/s.sub"]
