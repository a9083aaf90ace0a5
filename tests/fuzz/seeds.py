"""Seeds of fuzzing: small pieces of recorded files, and a few lines for what none of them has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.targets import BETWEEN, DAGDIR_FILES
from tests.support.wandb_files import history_record, log_file, run_record

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
SHARED = ROOT.parent / "shared"
"""Other recordings, where they lie beside the checkout."""

PIECE = 3000
"""Bytes of a seed: small ones are changed in more ways in the same time."""

MOST = 60
"""Seeds of one target from one place, and lines or words of its dictionary."""

LONGEST_WORD = 64
"""Bytes that libFuzzer takes."""


def seeds(target: str) -> list[bytes]:
    """The seeds of a target, at least one."""
    found = [*_SEEDS[target]()] if target in _SEEDS else []
    return list(dict.fromkeys(found)) or [b""]


def _files(*patterns: str) -> Iterator[bytes]:
    for place in (FIXTURES, SHARED):
        found = sorted(path for pattern in patterns for path in place.glob(pattern))
        for path in found[:MOST]:
            if path.is_file() and "findings" not in path.parts:
                yield path.read_bytes()


def _events() -> Iterator[bytes]:
    """One event of each number in a log, and some sequences."""
    for data in _files("*/metl.log", "examples/*/metl.log", "conformance/logs/**/*log"):
        if data.lstrip()[:1] in b"<{":
            continue
        seen: set[bytes] = set()
        events = data.split(b"\n...\n")
        for event in events[:5000]:
            kind = event[:3]
            if kind not in seen and len(event) < PIECE:
                seen.add(kind)
                yield event + b"\n...\n"
        middle = len(events) // 2
        yield b"\n...\n".join([*events[middle : middle + 5], b""])[:PIECE]


def _attribute_logs(first: bytes, end: bytes) -> Iterator[bytes]:
    for data in _files("conformance/logs/golden/*.log"):
        if data.lstrip()[:1] == first:
            events = data.split(end)
            for at in range(0, len(events) - 1, 3):
                yield end.join([*events[at : at + 2], b""])
    yield {b"<": XML_EVENT, b"{": JSON_EVENT}[first]


XML_EVENT = b"""<c>
    <a n="MyType"><s>JobTerminatedEvent</s></a>
    <a n="EventTypeNumber"><i>5</i></a>
    <a n="EventTime"><s>2025-11-04T09:00:00</s></a>
    <a n="Cluster"><i>12</i></a>
    <a n="Proc"><i>0</i></a>
    <a n="Subproc"><i>0</i></a>
    <a n="TerminatedNormally"><b v="t"/></a>
    <a n="ReturnValue"><i>0</i></a>
    <a n="RequestGPUs"><i>1</i></a>
    <a n="ToE"><c><a n="Who"><s>itself &lt;x&gt;</s></a></c></a>
    <a n="SentBytes"><r>1.000000000000000E+00</r></a>
</c>
"""
JSON_EVENT = b"""{
  "MyType": "JobHeldEvent",
  "EventTypeNumber": 12,
  "EventTime": "2025-11-04T09:00:00",
  "Cluster": 12,
  "Proc": 0,
  "HoldReason": "he said \\"no\\"",
  "HoldReasonCode": 13,
  "ExecuteProps": { "GPUs": 1, "Memory": "/Expr(1 + 2)/" }
}
"""
DAG_FILE = b"""SUBMIT-DESCRIPTION train {
    log = metl.log
    output = $(run)/$(epoch)_$(Cluster).out
    request_gpus = 1
}
NODE_STATUS_FILE run.dag.status 60
JOBSTATE_LOG run.jobstate
JOB A-train_epoch0 train
VARS A-train_epoch0 run_uuid="aaaa1111-0000" epoch="0" run="A"
JOB A-train_epoch1 train.sub
VARS A-train_epoch1 run_uuid="aaaa1111-0000" epoch="1"
JOB A-eval_epoch1 train NOOP
PARENT A-train_epoch0 CHILD A-train_epoch1
PARENT A-train_epoch1 CHILD A-eval_epoch1
RETRY A-train_epoch1 3 UNLESS-EXIT 2
SCRIPT POST A-train_epoch1 check.sh $RETURN
"""


def _dags() -> Iterator[bytes]:
    for data in _files("*/*.dag", "conformance/dags/**/*.dag"):
        lines = data.split(b"\n")
        yield b"\n".join(lines[:40])[:PIECE]
    yield BETWEEN.join(
        [
            DAG_FILE + b"SPLICE S s.dag\nPARENT A-eval_epoch1 CHILD S\nSUBDAG EXTERNAL D s.dag\n",
            b"JOB X x.sub\nJOB Y x.sub\nPARENT X CHILD Y\nPIN_IN X 1\nPIN_OUT Y 1\n",
            SUBMIT_FILE,
            b"error = $(JOB).err\n",
        ]
    )


SUBMIT_FILE = b"""a = 1
include : more.sub
if defined a
  log = $(dir)/metl.log
elif version >= 9
  log = other.log
else
  log = $(a:x$(b)).log
endif
arguments @=E
 x
@E
output = $(a).out
queue 2 x, y in (1 2 3)
"""


def _submits() -> Iterator[bytes]:
    for data in _files("*/*.sub"):
        yield data[:PIECE]
    yield BETWEEN.join([SUBMIT_FILE, b"b = $(a)$(a)\n", b"dir=/d\na=2\nrun=r\n"])


def _each(*patterns: str) -> Iterator[bytes]:
    """The beginning, the middle and the end of every such file, at line ends."""
    for data in _files(*patterns):
        yield data[:PIECE]
        middle = data.find(b"\n", len(data) // 2) + 1
        if len(data) > PIECE:
            yield data[middle : middle + PIECE]
            yield data[data.find(b"\n", len(data) - PIECE) + 1 :]


def _tables() -> Iterator[bytes]:
    yield from _each("*/output/**/metrics.csv")
    yield b"epoch,step,val_loss,test_loss\n0,10,0.5,\n1,20,nan,\n2,30,,0.25\n"


def _wandb_runs() -> Iterator[bytes]:
    rows = [{"val_loss": n / 4, "epoch": n, "a.b": {"c": [1]}, "h._type": "x"} for n in range(5)]
    yield log_file([run_record(1_795_254_258, {"lr": 0.1}), *map(history_record, rows)])
    yield history_record({"val_loss": 0.5, "epoch": 1})
    yield run_record(1_795_254_258)


def _small() -> Iterator[bytes]:
    yield from _each("*/output/**/metrics.txt", "*/output/**/args.txt")
    yield b"--lr\n0.1\n--wandb\n--name=x\nval_loss,0.25\nmodel,a.ckpt\n"


def _printed() -> Iterator[bytes]:
    for data in (*_files("demo/*.out", "trainer/*.err"), *_files("examples/*/*.out")):
        if b"it/s" in data or b"val_loss" in data:
            yield data[-PIECE:]
    yield (
        b"Epoch 3:  45%|####5     | 46335/102968 [11:02:13<13:30:01, 1.17it/s, loss=48, v_num=0]\r"
        b"Validating: 5it [00:05, 2.35s/it]\rEpoch 4, global step 640: 'val_loss' reached 0.23981\n"
        b"{'val_loss': 0.27}\n"
    )


TOML = b"""tz = "America/Chicago"
train_node = '^(?P<run>.*)-train_epoch(?P<epoch>\\\\d+)$'
checkpoint_codes = [85]
read_only = true
[site_aliases]
"SDSC-PRP-CE1" = "NRP"
[[site]]
host = "*.example.edu"
name = "example"
[[label]]
name = "control"
runs = ["run1*"]
[metrics]
files = ["output/{uuid}"]
primary = "val_loss"
goal = "min"
[[metric]]
name = "spearman"
file = "out"
pattern = 'rho=(?P<value>\\\\S+)'
"""


def _dagdirs() -> Iterator[bytes]:
    made = {
        "run.dag": DAG_FILE,
        "metlmon.toml": TOML.replace(b"\\\\", b"\\"),
        "train.sub": SUBMIT_FILE,
        "metl.log": b"",
    }
    yield BETWEEN.join(made.get(name, b"") for name in DAGDIR_FILES)
    for folder, dag in (("demo", "ens.dag"), ("rescue", "ens.dag"), ("holds", "ens.dag")):
        yield _recorded(FIXTURES / folder, dag)


def _recorded(folder: Path, dag: str) -> bytes:
    """The nodes of one run of a recorded dagdir, with what its files say of them."""
    text = (folder / dag).read_bytes()
    text = re.sub(rb"(?m)^(NODE_STATUS_FILE) \S+", rb"\1 run.dag.status", text)
    text = re.sub(rb"(?m)^(JOBSTATE_LOG) \S+", rb"\1 run.jobstate", text)
    of_others = re.compile(rb"\brun[1-9]\d*-")
    files = {"run.dag": _lines_without(of_others, text)}
    taken = {
        "run.dag.dagman.out": f"{dag}.dagman.out",
        "run.dag.status": "nodes.dag.status",
        "run.jobstate": dag.replace(".dag", ".jobstate.log"),
        "run.dag.rescue001": f"{dag}.rescue001",
        "run.dag.metrics": f"{dag}.metrics",
        "run.dag.condor.sub": f"{dag}.condor.sub",
    }
    for name, recorded in taken.items():
        if (folder / recorded).exists():
            files[name] = _lines_without(of_others, (folder / recorded).read_bytes())[:PIECE]
    log = (folder / "metl.log").read_bytes().split(b"\n...\n")
    ours = {e.split(b"(")[1].split(b".")[0] for e in log if b"DAG Node: run0-" in e}
    events = [e for e in log if e[5:].split(b".")[0] in ours and e[:3] != b"006"]
    files["metl.log"] = b"\n...\n".join([*events[:25], b""])
    return BETWEEN.join(files.get(name, b"") for name in DAGDIR_FILES)


def _lines_without(pattern: re.Pattern[bytes], text: bytes) -> bytes:
    return b"\n".join(line for line in text.split(b"\n") if not pattern.search(line))


_SEEDS = {
    "log-text": _events,
    "log-xml": lambda: _attribute_logs(b"<", b"</c>\n"),
    "log-json": lambda: _attribute_logs(b"{", b"\n}\n"),
    "dag": _dags,
    "submit": _submits,
    "node-status": lambda: _each("*/*.status"),
    "rescue": lambda: _each("*/*.rescue001", "*/*.rescue002"),
    "jobstate": lambda: _each("*/*jobstate.log"),
    "dagman-out": lambda: _each("*/*.dagman.out"),
    "metrics": lambda: _each("*/*.metrics", "*/*.condor.sub"),
    "csv": _tables,
    "wandb": _wandb_runs,
    "small": _small,
    "printed": _printed,
    "toml": lambda: iter([TOML.replace(b"\\\\", b"\\")]),
    "dagdir": _dagdirs,
}


def write_seeds(target: str, folder: Path, most: int | None = None) -> None:
    """Write seeds into a corpus directory: all, or so many of them."""
    found = seeds(target)
    for count, seed in enumerate(found[:: len(found) // (most or len(found)) or 1]):
        (folder / f"seed{count:04d}").write_bytes(seed)


def words_of(target: str) -> list[bytes]:
    """The fuzzer's dictionary: lines that most seeds of a target have, and their beginnings."""
    lines = Counter(line for seed in seeds(target) for line in set(seed.splitlines(keepends=True)))
    words = Counter(b" ".join(line.split(b" ")[:2]) for line in lines)
    found = [word[:LONGEST_WORD] for each in (lines, words) for word, _ in each.most_common(MOST)]
    return [word for word in dict.fromkeys(found) if word]
