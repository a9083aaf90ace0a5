"""Texts that grow eightfold take about eight times the time, and memory in proportion: for every
reader, with its longest lines, deepest nestings and most repetitions.

The modules' patterns are attacked singly in ``test_every_pattern.py``.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from metlmon.config.loader import load_configuration
from metlmon.dagman import loader, reports
from metlmon.dagman.dagman_out import read_dagman_out
from metlmon.dagman.loader import load_workflow
from metlmon.dagman.parser import parse_dag
from metlmon.dagman.submit_description import parse_description, submission
from metlmon.eventlog.events import resource_usage
from metlmon.eventlog.reader import parse, parse_fast
from metlmon.jobfiles.training_files import (
    newest_progress,
    printed_values,
    read_args_txt,
    read_metrics_csv,
)
from metlmon.jobfiles.wandb_run import BLOCK_BYTES, read_wandb_run
from tests.fuzz.targets import HOME, scratch
from tests.support.effort import effort
from tests.support.wandb_files import history_record, log_file

SMALLEST: Final = 1 << 12
LARGEST: Final = 1 << 18
ENOUGH_SECONDS: Final = 0.03
"""From here on a text need not grow further to show how its time does."""

FLOOR_SECONDS: Final = 0.003
"""What takes less is as good as nothing: a busy machine takes it now and then for that."""

STEEP: Final = 25.0
"""Eight times the text: a straight line is 8, a square 64."""

OF_MEMORY: Final = 16 << 10
"""Bytes of the text for which memory is counted."""

TIMES_THE_TEXT: Final = 300
LITTLE: Final = 2 << 20
"""Bytes of memory: up to so many times the text, beside what anything takes."""

STAMP: Final = b" (001.000.000) 2025-11-04 09:00:00 "
HELD: Final = b"012" + STAMP + b"Job was held.\n"
EXECUTE: Final = b"001" + STAMP + b"Job executing on host: <1>\n"
ENDED: Final = b"005" + STAMP + b"Job terminated."
ABORTED: Final = b"009" + STAMP + b"Job was aborted."
TABLE: Final = ENDED + b"\n\tPartitionable Resources : Usage Request\n"
EVICTED: Final = b"004" + STAMP + b"Job was evicted.\n\t(0) requeued\n"
RELEASED: Final = b"013" + STAMP + b"x\n...\n"
IMAGE_SIZE: Final = (
    b"006" + STAMP + b"Image size of job updated: 1\n\t1  -  MemoryUsage of job (MB)\n"
    b"\t1  -  ResidentSetSize of job (KB)\n...\n"
)
GENERIC: Final = (
    b'{"EventTypeNumber":8,"Cluster":1,"Proc":0,"EventTime":"2025-11-04T09:00:00","Info":"%s"}\n'
)
GENERIC_XML: Final = b'<c><a n="EventTypeNumber"><i>8</i></a><a n="x">%s</a></c>\n'
SAYS: Final = b"11/21/26 00:17:25 "
TOTALS: Final = SAYS + b"Of 1 nodes total:\n" + SAYS + b" Done " + b"Pre " * 2000 + b"\n"


def log(data: bytes) -> None:
    parsed = parse(data, final=True)
    parse_fast(data)
    for event in parsed.events[:100]:
        resource_usage(getattr(event.detail, "usage", ()))


def flow(dag: bytes, **files: bytes) -> None:
    lying = {Path("/h/run.dag"): dag}
    lying |= {Path("/h") / name.replace("_", "."): text for name, text in files.items()}

    def read(path: Path) -> bytes:
        if path not in lying:
            raise FileNotFoundError(path)
        return lying[path]

    load_workflow([Path("/h/run.dag")], read)


def dag(text: bytes) -> None:
    parse_dag(text, "run.dag")


def described(text: str) -> None:
    submission(parse_description(text.split("\n")), {}, {})


def status(data: bytes) -> None:
    reports.read_node_status(Path("run.status"), b'[\nType = "DagStatus";\n' + data)


def rescue(data: bytes) -> None:
    reports.read_rescue(Path("run.dag.rescue001"), data)


def metrics(data: bytes) -> None:
    reports.read_metrics(Path("run.dag.metrics"), data)


def out(line: bytes, n: int) -> None:
    """Lines of 8 KB: of longer ones only the beginning is read."""
    read_dagman_out((SAYS + line + b"\n") * (n // 8000 + 1))


def wandb_run(records: Iterable[bytes]) -> None:
    data = log_file(records)
    read_wandb_run(data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES))


def toml(text: str) -> None:
    with scratch() as folder:
        (folder / "metlmon.toml").write_text(text)
        load_configuration(folder)


FAMILIES: Final[dict[str, Callable[[int], Any]]] = {
    "log: glued headers": lambda n: log(ENDED * (n // 55) + b"\n...\n"),
    "log: unterminated no end": lambda n: log((ENDED + b"\n") * (n // 55)),
    "log: quoted headers in lines of a reason": lambda n: log(
        HELD + (b"\tas of " + ABORTED + b"\n") * (n // 64) + b"...\n"
    ),
    "log: long line then headers": lambda n: log(
        HELD + b"\t   w" + b"x" * (n // 2) + (b" " + ABORTED) * (n // 110) + b"\n...\n"
    ),
    "log: nuls": lambda n: log(EXECUTE + b"\0" * n + EXECUTE + b"...\n"),
    "log: usage rows": lambda n: log(TABLE + b"\t   Cpus : 1 2\n" * (n // 14) + b"...\n"),
    "log: 004 requeued": lambda n: log(EVICTED + b"\tReason: \n" * (n // 10) + b"...\n"),
    "log: mixed stamps": lambda n: log(
        (RELEASED + RELEASED.replace(b"00 ", b"00Z ", 1)) * (n // 90)
    ),
    "log: 006 then damage": lambda n: log((IMAGE_SIZE + b"x\n...\n") * (n // 140)),
    "json: nested 300..": lambda n: log(
        (b'{"EventTypeNumber":8,"a":' + b'{"a":' * 400 + b"1" + b"}" * 401 + b"\n") * (n // 2400)
    ),
    "json: lists": lambda n: log(b'{"a":' + b"[" * n + b"\n"),
    "json: open strings": lambda n: log(b'{"a":"x\n' * (n // 8)),
    "json: braces in an open string": lambda n: log(b'{"a":"' + b'{"b":1}' * (n // 7) + b"\n{}\n"),
    "json: one event": lambda n: log(GENERIC % (b"x" * n)),
    "json: commas": lambda n: log(b"{}\n" + b",[" * (n // 2) + b"{}\n"),
    "xml: nested": lambda n: log(
        b"<c>" + b'<a n="a"><c>' * (n // 12) + b"</c></a>" * (n // 12) + b"</c>\n"
    ),
    "xml: nested lists": lambda n: log(GENERIC_XML % (b"<l>" * (n // 3) + b"</l>" * (n // 3))),
    "xml: blanks": lambda n: log(b"<c>" + b'<a n="x">                    ' * (n // 30) + b"</c>\n"),
    "dag: escapes": lambda n: dag(b'JOB "' + b'\\"' * (n // 2) + b"\n"),
    "dag: vars broken": lambda n: dag(b"VARS A " + b'a="1" ' * (n // 6) + b"x\n"),
    "dag: continuations": lambda n: dag(b"JOB A \\\n" + b"\\\n" * (n // 2) + b"x\n"),
    "dag: same job": lambda n: flow(b"JOB A x\n" * (n // 8)),
    "dag: blocks": lambda n: flow(b"JOB A {\n" * (n // 8)),
    "dag: parents": lambda n: flow(
        b"".join(b"JOB n%d x NOOP\n" % i for i in range(n // 40))
        + b"PARENT "
        + b" ".join(b"n%d" % i for i in range(n // 80))
        + b" CHILD "
        + b" ".join(b"n%d" % i for i in range(n // 80, n // 40))
        + b"\n"
    ),
    "dag: star edges": lambda n: flow(
        b"JOB A x NOOP\n"
        + b"".join(b"JOB n%d x NOOP\nPARENT A CHILD n%d\n" % (i, i) for i in range(n // 40))
    ),
    "dag: cycle": lambda n: flow(
        b"".join(b"JOB n%d x NOOP\nPARENT n%d CHILD n%d\n" % (i, i, i + 1) for i in range(n // 45))
        + b"JOB n%d x NOOP\nPARENT n%d CHILD n0\n" % (n // 45, n // 45)
    ),
    "dag: appended vars": lambda n: flow(
        b"JOB A x NOOP\n" + b"".join(b'VARS A APPEND a%d="1"\n' % i for i in range(n // 22))
    ),
    "dag: pins": lambda n: flow(
        b"SPLICE S s.dag\nSPLICE T s.dag\nCONNECT S T\n",
        s_dag=b"".join(
            b"JOB n%d x NOOP\nPIN_IN n%d %d\nPIN_OUT n%d %d\n" % (i, i, i + 1, i, i + 1)
            for i in range(n // 60)
        ),
    ),
    "dag: splices": lambda n: flow(
        b"".join(b"SPLICE S%d s.dag\n" % i for i in range(n // 18)), s_dag=b"JOB A x NOOP\n"
    ),
    "dag: plus names": lambda n: flow(
        b"SPLICE S s.dag\nRETRY " + b"S+" * (n // 2) + b"A 1\n", s_dag=b"JOB A x NOOP\n"
    ),
    "sub: ifs": lambda n: described("if true\n" * (n // 8)),
    "sub: self": lambda n: described(
        "a=xxxxxxxxxxxxxxxx\n" + "a = $(a)$(a)\n" * (n // 13) + "log=$(a)\n"
    ),
    "sub: self wide": lambda n: described(
        "a=" + "x" * (n // 2) + "\na = " + "$(a)" * (n // 8) + "\nlog=$(a)\n"
    ),
    "sub: empty bomb": lambda n: described(
        "\n".join(f"a{i}=$(a{i + 1})$(a{i + 1})" for i in range(6 + n.bit_length()))
        + "\nlog=$(a0)\n"
    ),
    "sub: open macros2": lambda n: described("log=" + "$(a:$(b:)" * (n // 9) + "\n"),
    "sub: continuations2": lambda n: described("log=a\\\n" + "xxxx\\\n" * (n // 6)),
    "sub: queue names": lambda n: described("queue " + "x," * (n // 2) + " in (1)\n"),
    "status: items escapes": lambda n: status(b'DagFiles = { "' + b'\\"' * (n // 2) + b"\n};\n]\n"),
    "status: brackets lines": lambda n: status(b"[\n]\n" * (n // 4)),
    "status: nodes": lambda n: status(
        b"]\n" + b'[\nType = "NodeStatus";\nNode = "A";\nNodeStatus = 5;\n]\n' * (n // 55)
    ),
    "rescue: comments": lambda n: rescue(b"# Nodes that failed:\n#" + b"a," * (n // 2) + b"\n"),
    "jobstate: one line": lambda n: reports.read_jobstate(b"1 " + b"x " * (n // 2) + b"\n"),
    "out: error2": lambda n: out(b'ERROR "x' + b'" at line 1' * 700 + b"y", n),
    "out: no lines": lambda n: read_dagman_out(b"x" * n),
    "out: table": lambda n: read_dagman_out(
        (TOTALS + SAYS + b"1 " * 4000 + b"\n") * (n // 17000 + 1)
    ),
    "metrics: nested": lambda n: metrics(b'{"a":' * (n // 5)),
    "metrics: keys": lambda n: metrics(
        b"{" + b",".join(b'"%d":1' % i for i in range(n // 9)) + b"}"
    ),
    "condorsub: words": lambda n: reports.read_condor_sub(
        b'arguments = "' + b"-Dag x " * (n // 7) + b'"\n'
    ),
    "csv: columns": lambda n: read_metrics_csv(
        ["epoch," + "a," * (n // 2) + "\n", "1," + "1," * (n // 2) + "\n"]
    ),
    "csv: wide headers": lambda n: read_metrics_csv(["epoch," + "a," * 300 + "\n"] * (n // 600)),
    "csv: quoted lines": lambda n: read_metrics_csv(["epoch,a\n", '"'] + ["x\n"] * (n // 2)),
    "csv: metrics": lambda n: read_metrics_csv(f"epoch,a{i}\n{i},1\n" for i in range(n // 18)),
    "wandb: epochs": lambda n: wandb_run(
        history_record({"a": i, "epoch": i}) for i in range(n // 40)
    ),
    "wandb: names": lambda n: wandb_run([history_record({f"m{i}": 1 for i in range(n // 20)})]),
    "wandb: nested": lambda n: wandb_run([history_record({"a" + ".a" * (n // 4): 1})]),
    "wandb: integers": lambda n: wandb_run([b"\x08" + b"\xff" * n]),
    "printed: returns": lambda n: (
        newest_progress("\r" * n),
        printed_values(["val_loss" + "\r" * n], "val_loss"),
    ),
    "printed: values blanks": lambda n: printed_values(
        [("val_loss" + " " * 39) * (n // 47)], "val_loss"
    ),
    "small: args": lambda n: read_args_txt("--a\n" + "x\n" * (n // 2)),
    "toml: dotted key": lambda n: toml("a." * (n // 2) + "a=1\n"),
    "toml: inline tables": lambda n: toml("a=" + "{a=" * (n // 3)),
    "toml: labels": lambda n: toml("[[label]]\nname='a'\nruns=['b']\n" * (n // 32)),
}


def test_descriptions_too_long_for_many_nodes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node evaluates them separately, so the cost is a product."""
    monkeypatch.setattr(loader, "_MAX_WORK", 10)
    nodes = b"".join(b"JOB n%d x.sub\n" % i for i in range(12))
    submits = {HOME / "x.sub": b"log = a.log\nlog = $(log)$(log)\n", HOME / "run.dag": nodes}
    result = load_workflow([HOME / "run.dag"], submits.__getitem__)
    assert [problem.kind for problem in result.problems] == ["too-large"]
    logs = [node.log for node in result.nodes.values()]
    assert logs[:5] == ["a.loga.log"] * 5
    assert set(logs[5:]) == {None}


def test_recursive_includes_end() -> None:
    lines = ["include : x", *["a = $(a)x"] * 1000]
    assert len(parse_description(lines, lambda name: (name, lines)).statements) == 20_000


def seconds(family: Callable[[int], object], size: int) -> float:
    return effort(lambda: family(size))


def memory(family: Callable[[int], object]) -> int:
    """The peak memory in bytes while a text of this kind is read."""
    family(SMALLEST)
    tracemalloc.start()
    try:
        family(OF_MEMORY)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", FAMILIES)
def test_time_is_linear_in_the_text(name: str) -> None:
    family = FAMILIES[name]
    size, before = SMALLEST, seconds(family, SMALLEST)
    while size < LARGEST and before < ENOUGH_SECONDS:
        size *= 8
        took = seconds(family, size)
        if took > STEEP * max(before, FLOOR_SECONDS):
            # Only repeated results count.
            before = max(before, *(seconds(family, size // 8) for _ in range(2)))
            took = min(took, seconds(family, size))
            assert took < STEEP * max(before, FLOOR_SECONDS), (
                f"{size // 8}: {before}, {size}: {took}"
            )
        before = took


@pytest.mark.parametrize("name", FAMILIES)
def test_memory_is_linear_in_the_text(name: str) -> None:
    enough = LITTLE + TIMES_THE_TEXT * OF_MEMORY
    most = memory(FAMILIES[name])
    if most > enough:
        most = memory(FAMILIES[name])  # Only repeated results count.
    assert most <= enough, f"{most / OF_MEMORY:.0f} times the text"
