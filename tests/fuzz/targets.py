"""What is fuzzed: one function for each kind of foreign bytes. Each takes any bytes and raises
only where metlmon is wrong: no input may crash a reader, and what two ways of reading tell of the
same bytes is the same.

How an input is divided (the cuts of a growing file, one file or another of a dagdir) follows from
its own bytes, so that a finding is one file and is found again by it alone.
"""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import random
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from metlmon.config.loader import load_configuration
from metlmon.config.settings import Settings
from metlmon.dagman import reports
from metlmon.dagman.dagman_out import OutState, read_dagman_out
from metlmon.dagman.loader import load_workflow
from metlmon.dagman.records import Workflow
from metlmon.dagman.submit_description import parse_description, submission
from metlmon.errors import InputError
from metlmon.eventlog.events import (
    Event,
    Evicted,
    ImageSize,
    ImageSizes,
    LogWarning,
    Position,
    Terminated,
    usage_rows,
)
from metlmon.eventlog.reader import parse, parse_fast
from metlmon.jobfiles.training_files import (
    MAX_EPOCHS,
    MAX_METRICS,
    NAME_CHARACTERS,
    newest_progress,
    printed_values,
    read_args_txt,
    read_metrics_csv,
    read_metrics_txt,
)
from metlmon.jobfiles.wandb_run import BLOCK_BYTES, read_wandb_run
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import DagState, State
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.stats.totals import break_down
from metlmon.text.record_json import json_of
from tests.support.wandb_files import history_record, log_file

BETWEEN: Final = b"\n#--\n"
"""Divides the files of an input that is several: a comment in nearly all of them."""

LONGEST_SENTENCE: Final = 600
"""Characters of a problem's text: it quotes a little of a file, never all of it."""


def dice(data: bytes) -> random.Random:
    """Random numbers that depend on the bytes only."""
    return random.Random(crc32(data))


def check(holds: bool, message: str) -> None:
    """Like ``assert``, which neither atheris' instrumentation nor ``-O`` leaves alone."""
    if not holds:
        raise AssertionError(message)


# --- event logs -----------------------------------------------------------------------------

Reading = tuple[list[Event], list[LogWarning], Position]


def event_log(data: bytes) -> None:
    """At once, in pieces, by a few events, and by patterns: the same events and warnings."""
    whole = parse(data, year_hint=2025)
    result = list(whole.events), list(whole.warnings), whole.after
    roll = dice(data)
    several = roll.randrange(4 + len(data) // 20_000)
    cuts = sorted(roll.randrange(len(data) + 1) for _ in range(several))
    check(_in_pieces(data, cuts, None) == result, f"in pieces at {cuts} it tells something else")
    few = 1 + len(whole.events) // 50
    check(_in_pieces(data, [], few) == result, "a few events at a time it tells something else")
    fast, slow = _skimmed(data, cuts), _summed(result[0])
    check(fast[:2] == slow, "skimmed it tells something else")
    check(fast[2:] == result[1:], "skimmed it warns of something else, or ends elsewhere")
    check(whole.after.offset <= len(data), "it goes beyond its end")
    dead = parse(data, year_hint=2025, final=True)
    # Bytes without the start of an event have no form, and are left.
    form_known = dead.after.form is not None
    check(dead.after.offset == len(data) or not form_known, "a dead log is not read to its end")
    lines = data.count(b"\n") + 1
    for event in dead.events:
        _sound_event(event, lines)
    _sound_sentences((w.text for w in dead.warnings), (w.line for w in dead.warnings), lines)


def _in_pieces(data: bytes, cuts: Iterable[int], limit: int | None) -> Reading:
    at, events, warnings = Position(), [], []
    for end in [*cuts, len(data)]:
        while True:
            parsed = parse(data[at.offset : end], at, limit=limit, year_hint=2025)
            events += parsed.events
            warnings += parsed.warnings
            moved = parsed.after.offset > at.offset
            at = parsed.after
            if limit is None or not moved:
                break
    return events, warnings, at


Sums = dict[tuple[int, int, int], tuple[int, datetime, datetime, int | None]]


def _summed(events: Iterable[Event]) -> tuple[list[Event], Sums]:
    """The usual 006 added up as the fast parser does, and all other events."""
    others: list[Event] = []
    sums: Sums = {}
    for event in events:
        if event.number == 6 and not event.damaged and isinstance(event.detail, ImageSize):
            at = event.time
            size = event.detail.memory_mb
            _add(sums, ImageSizes(event.cluster, event.proc, event.subproc, 1, at, at, size))
        else:
            others.append(event)
    return others, sums


def _add(sums: Sums, one: ImageSizes) -> None:
    key = one.cluster, one.proc, one.subproc
    updates, first, last, memory = sums.get(key, (0, one.first, one.last, None))
    sizes = [size for size in (memory, one.memory_mb) if size is not None]
    # A log may switch to UTC some day: which time is earlier is then not the parser's decision.
    earlier, later = min(first, one.first, key=_naive), max(last, one.last, key=_naive)
    sums[key] = updates + one.updates, earlier, later, max(sizes, default=None)


def _naive(time: datetime) -> datetime:
    return time.replace(tzinfo=None)


def _skimmed(
    data: bytes, cuts: Iterable[int]
) -> tuple[list[Event], Sums, list[LogWarning], Position]:
    at = Position()
    events: list[Event] = []
    warnings: list[LogWarning] = []
    sums: Sums = {}
    for end in [*cuts, len(data)]:
        got = parse_fast(data[at.offset : end], at, year_hint=2025)
        others, more = _summed(got.events)
        events += others
        warnings += got.warnings
        for job, (updates, first, last, memory) in more.items():
            _add(sums, ImageSizes(*job, updates, first, last, memory))
        for image in got.images:
            _add(sums, image)
        at = got.after
    return events, sums, warnings, at


def _sound_event(event: Event, lines: int) -> None:
    check(1 <= event.line <= lines, f"line {event.line} of {lines}")
    check("\n" not in event.text, "two lines in a first text")
    for text in (event.text, event.body):
        check("\0" not in text, "a NUL in a text")
        text.encode()  # Raises for half a surrogate: it could be written nowhere.
    if isinstance(event.detail, Terminated | Evicted):
        for row in usage_rows(event.detail.usage):
            for number in (row.usage, row.request, row.allocated):
                check(number is None or isinstance(number, float), "a cell that is not a number")
    repr(event.detail)


def _sound_sentences(
    texts: Iterable[str], numbers: Iterable[int | None] = (), lines: int = 0
) -> None:
    """They are one short line each, and can be encoded."""
    for text in texts:
        check(len(text) <= LONGEST_SENTENCE, f"a sentence of {len(text)} characters")
        check(text.isprintable(), f"what cannot be printed in {text!r}")
        text.encode()
    for number in numbers:
        check(number is None or 1 <= number <= lines, f"line {number} of {lines}")


# --- DAG and submit files ---------------------------------------------------------------------

HOME: Final = Path("/ap/home/ensemble")
DAG_FILES: Final = ("run.dag", "s.dag", "x.sub", "more.sub", "deep/s.dag")


def dag(data: bytes) -> None:
    """A DAG file, those it names, and the submit files."""
    files = dict(zip((HOME / name for name in DAG_FILES), data.split(BETWEEN), strict=False))

    def read(path: Path) -> bytes:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    _sound_workflow(load_workflow([HOME / "run.dag"], read), len(data))
    if len(files) > 1:
        _sound_workflow(load_workflow([HOME / "run.dag", HOME / "s.dag"], read), len(data))


def _sound_workflow(flow: Workflow, size: int) -> None:
    for name, node in flow.nodes.items():
        check(node.name == name, "a node under another's name")
        for child in node.children:
            check(name in flow.nodes[child].parents, "an edge that one end does not know")
        for parent in node.parents:
            check(name in flow.nodes[parent].children, "an edge that one end does not know")
        check(set(node.weak_parents) <= set(node.parents), "a weak edge that is none")
    _sound_sentences((p.text for p in flow.problems), (p.line for p in flow.problems), size + 1)
    for inner in flow.subdags:
        if inner is not None and inner is not flow:
            check(len(inner.nodes) <= size + 1, "more nodes than bytes")
    pickle.dumps(flow)


def submit(data: bytes) -> None:
    """A submit description, an included file, and macros of nodes."""
    pieces = data.decode("utf-8", "replace").split(BETWEEN.decode())
    description, included, output, *_ = [*pieces, "", ""]
    lines = included.split("\n")
    read = parse_description(description.split("\n"), lambda name: (name, lines))
    pairs = dict(line.partition("=")[::2] for line in output.split("\n")[:20])
    names = list(pairs)
    before = {name: pairs[name] for name in names[::2]}
    after = {name: pairs[name] for name in names[1::2]}
    result = submission(read, before, after)
    for text in (result.log, result.output, result.error):
        check(text is None or len(text) <= 3 * 16_384 + len(data), "a path without bounds")
    check((result.submission.queue_count or 0) >= 0, "fewer jobs than none")


# --- DAGMan's other files ---------------------------------------------------------------------


def node_status(data: bytes) -> None:
    result, problems = reports.read_node_status(Path("run.dag.status"), data)
    _sound_sentences((p.text for p in problems), (p.line for p in problems), data.count(b"\n") + 1)
    if result is None:
        check(bool(problems), "no status file, and no word of it")
        return
    check(all(0 <= node.status <= 7 for node in result.nodes.values()), "a status that is none")
    for name, node in result.nodes.items():
        (name + node.details).encode()


def rescue(data: bytes) -> None:
    result, problems = reports.read_rescue(Path("run.dag.rescue001"), data)
    check(result.number == 1, "another number than its name has")
    _sound_sentences((p.text for p in problems), (p.line for p in problems), data.count(b"\n") + 1)
    # A single line has no more than all of them.
    cut = data.rfind(b"\n", 0, dice(data).randrange(len(data) + 1)) + 1
    before, _ = reports.read_rescue(Path("run.dag.rescue001"), data[:cut])
    check(before.done <= result.done, "the beginning names nodes that the whole does not")


def jobstate(data: bytes) -> None:
    result, _, used = reports.read_jobstate(data)
    roll = dice(data)
    records, offset, line = [], 0, 1
    for end in [*sorted(roll.randrange(len(data) + 1) for _ in range(3)), len(data)]:
        some, problems, passed = reports.read_jobstate(data[offset:end], line=line)
        _sound_sentences((p.text for p in problems), (p.line for p in problems), len(data) + 1)
        line += data.count(b"\n", offset, offset + passed)
        offset += passed
        records += some
    if max(map(len, data.split(b"\n"))) < 1 << 16:
        check((records, offset) == (result, used), "in pieces it tells something else")
    reports.read_jobstate(data, final=True)


def dagman_out(data: bytes) -> None:
    """Other lines are skipped; line by line the result is the same."""
    start = OutState()
    result, state, used = read_dagman_out(data, start)
    check(used <= len(data), "it goes beyond its end")
    slow, at, offset, end = [], start, 0, 0
    for line in re.findall(rb"[^\n]*\n|[^\n]+", data):
        end += len(line)
        some, at, passed = read_dagman_out(data[offset:end], at)
        slow += some
        offset += passed
    check((slow, at, offset) == (result, state, used), "line by line it tells something else")
    cut = dice(data).randrange(len(data) + 1)
    first, at, passed = read_dagman_out(data[:cut], start)
    second, at, more = read_dagman_out(data[passed:], at)
    check(
        (first + second, at, passed + more) == (result, state, used),
        "in two pieces, something else",
    )
    for one in result:
        check(one.time is None or one.time.tzinfo is None, "a time with a zone")


def metrics(data: bytes) -> None:
    """``.metrics`` and ``.condor.sub``."""
    result, problems = reports.read_metrics(Path("run.dag.metrics"), data)
    check((result is None) == bool(problems), "neither a word nor a problem")
    if result is not None:
        for when in (result.start, result.end):
            check(when is None or math.isfinite(when), "a time that is none")
        repr(result).encode()
    sub = reports.read_condor_sub(data)
    check(len(sub.dag_files) <= len(data), "more DAG files than bytes")
    reports.read_dagman_arguments(data.decode("utf-8", "replace"))


# --- what trainings write ---------------------------------------------------------------------


def metrics_csv(data: bytes) -> None:
    lines = io.StringIO(data.decode("utf-8", "replace"), newline="").readlines()
    table = read_metrics_csv(lines)
    check(len(table.values) <= 2 * MAX_METRICS * max(1, len(lines)), "too many metrics")
    for values in table.values.values():
        check(all(0 <= epoch < MAX_EPOCHS for epoch in values), "an epoch that is none")
    check(len(table.problems) <= 20, "more sentences than anybody reads")
    _sound_sentences(table.problems)
    more = read_metrics_csv([*lines, "half a li"])
    check(repr(more.values) == repr(table.values) or _ends_torn(lines), "a torn line counts")


def wandb_run(data: bytes) -> None:
    """A W&B run, and a record of one whose checksum is right."""
    for file in (data, log_file([history_record({"a": 1, "epoch": 0}), data])):
        blocks = [file[at : at + BLOCK_BYTES] for at in range(0, len(file), BLOCK_BYTES)]
        run = read_wandb_run(blocks)
        values = run.table.values
        check(len({*values, *run.newest}) <= MAX_METRICS, "too many metrics")
        check(all(len(name) <= NAME_CHARACTERS for name in values), "a name without bounds")
        for by_epoch in values.values():
            check(all(0 <= epoch < MAX_EPOCHS for epoch in by_epoch), "an epoch that is none")
        check(not (values and run.newest), "rows with an epoch, and rows without one")
        check(len(run.table.problems) <= 3, "more sentences than anybody reads")
        _sound_sentences(run.table.problems)
    check(values["a"][0] == 1 or b"a" in data, "a row before it is lost")


def _ends_torn(lines: list[str]) -> bool:
    """Whether the following bytes may change the meaning of the last line."""
    return not lines or not lines[-1].endswith(("\n", "\r")) or any('"' in line for line in lines)


def small_files(data: bytes) -> None:
    """metrics.txt and args.txt."""
    text = data.decode("utf-8", "replace")
    for name, value in read_metrics_txt(text).items():
        check(bool(name) and isinstance(value, float), "a line that is none")
    for name, result in read_args_txt(text).items():
        check(len(name) <= 500 and len(result) <= 500, "an argument without bounds")


def printed(data: bytes) -> None:
    """Progress lines and printed values, as a job's output ends in them."""
    text = data.decode("utf-8", "replace")
    streamed = newest_progress(text)
    if streamed is not None:
        fraction, rate, remaining = (
            streamed.fraction,
            streamed.steps_per_second,
            streamed.seconds_left,
        )
        check(fraction is None or 0 <= fraction <= 1, f"a fraction of {fraction}")
        for each in (rate, remaining):
            check(each is None or (math.isfinite(each) and each >= 0), f"{each} is not a duration")
        check(streamed.step is None or streamed.step >= 0, "fewer steps than none")
    lines = text.split("\n")
    for epoch, value in printed_values(lines, "val_loss").items():
        check(epoch is None or epoch >= 0, "an epoch that is none")
        check(isinstance(value, float), "a value that is not a number")


# --- metlmon.toml and the cache ---------------------------------------------------------------


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary directory, in memory where possible."""
    memory = Path("/dev/shm")
    base = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="metlmon-fuzz-", dir=base) as path:
        yield Path(path)


def toml(data: bytes) -> None:
    with scratch() as folder:
        (folder / "metlmon.toml").write_bytes(data)
        found = load_configuration(folder)
    for complaint in found.problems:
        str(complaint).encode("utf-8", "surrogateescape")
        lines = data.count(b"\n") + 1
        check(complaint.line is None or 1 <= complaint.line <= lines, "a line that is not there")
    json.dumps([[e.key, e.json_value(), e.origin, e.line] for e in found.entries], allow_nan=False)


# --- a whole dagdir ---------------------------------------------------------------------------

DAGDIR_FILES: Final = (
    *("run.dag", "run.dag.nodes.log", "metl.log", "run.dag.dagman.out", "run.dag.dagman.log"),
    *("run.dag.status", "run.jobstate", "run.dag.rescue001", "run.dag.metrics"),
    *("run.dag.condor.sub", "train.sub", "metlmon.toml"),
)
"""The files of an input, in their order; the DAG of the seeds names them so."""


def dagdir(data: bytes) -> None:
    """Read as by ``metlmon status``, by two readers, and with its logs cut."""
    with scratch() as folder:
        home = folder / "ensemble"
        home.mkdir()
        for name, content in zip(DAGDIR_FILES, data.split(BETWEEN), strict=False):
            if content:
                (home / name).write_bytes(content)
        found = load_configuration(home).settings
        settings = replace(found, metrics=Settings().metrics)
        result = _reported_of(home, settings)
        check(_reported_of(home, settings) == result, "a second look tells something else")
        for cut in sorted(home.glob("*.log")):
            half = cut.read_bytes()
            cut.write_bytes(half[: len(half) // 2])
        _reported_of(home, settings)


def _reported_of(home: Path, settings: Settings) -> str:
    reader = DagdirReader(home, settings, live=False)
    try:
        reader.open()
    except InputError as error:
        _sound_sentences([str(error)[:LONGEST_SENTENCE]])
        return ""
    reader.read_all()
    builder = reader.snapshot_builder()
    result = _sound_status(builder)
    status = builder.status()
    beside = sum(map(builder.derivation.is_beside, builder.states))
    nodes = sum(status.node_states.values())
    check(nodes == len(builder.states) - beside, "nodes without a state")
    views = [builder.run_view(row.key) for row in status.runs]
    rows = builder.job_rows()
    views += [builder.job_view(row.cluster, row.proc) for row in rows[:5]]
    check(None not in views, "a run or a job that is listed and has no view")
    json.dumps(json_of([*rows, *views], builder.clock.with_offset), allow_nan=False)
    builder.ledger()
    return result


def _sound_status(builder: SnapshotBuilder) -> str:
    status = builder.status()
    result = json_of(status, builder.clock.with_offset)
    text = json.dumps(result, allow_nan=False)
    text.encode()
    known = {str(state) for state in State}
    check({*result["epoch_states"], *result["node_states"]} <= known, "a state that is none")
    for each in result["dags"]:
        check(each["state"] in {str(state) for state in DagState}, "a DAG's state that is none")
        check(each["nodes_total"] is None or each["nodes_total"] >= 0, "fewer nodes than none")
    places = json_of(break_down(builder.ledger()), builder.clock.with_offset)
    every = [result, *result["runs"], *places["sites"], *places["gpus"]]
    hours = [each["hours"] for each in every]
    for each in hours:
        good, bad, flying, total = (each[k] for k in ("goodput", "badput", "running", "total"))
        check(min(good, bad, flying, total) >= 0, f"hours below zero: {each}")
        check(math.isclose(good + bad + flying, total, rel_tol=1e-6, abs_tol=1e-5), f"{each}")
    for run in result["runs"]:
        check(run["state"] in {str(state) for state in State}, "a run's state that is none")
        check(0 <= run["epochs_done"] <= run["epochs_total"], f"{run}")
    return text


# --- the table --------------------------------------------------------------------------------


class Target(Struct, frozen=True):
    """``longest``: bytes of an input that the fuzzer makes. ``share``: of the inputs tried in each
    target, as many as fit in the same time."""

    look: Callable[[bytes], None]
    longest: int
    share: float = 1.0


TARGETS: Final = {
    "log-text": Target(event_log, 1 << 16),
    "log-xml": Target(event_log, 1 << 14),
    "log-json": Target(event_log, 1 << 14),
    "dag": Target(dag, 1 << 14),
    "submit": Target(submit, 1 << 13),
    "node-status": Target(node_status, 1 << 14),
    "rescue": Target(rescue, 1 << 14),
    "jobstate": Target(jobstate, 1 << 14),
    "dagman-out": Target(dagman_out, 1 << 14),
    "metrics": Target(metrics, 1 << 13),
    "csv": Target(metrics_csv, 1 << 14),
    "wandb": Target(wandb_run, 1 << 14),
    "small": Target(small_files, 1 << 13),
    "printed": Target(printed, 1 << 14),
    "toml": Target(toml, 1 << 13),
    "dagdir": Target(dagdir, 1 << 15, share=0.1),
}
