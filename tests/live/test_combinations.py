"""Every combination of what may lie in a dagdir, and what metlmon then says of it.

One recorded ensemble (``fixtures/rescue``: three lives of DAGMan, two rescue files) is laid out
with each of its files present, absent, older, or of another DAG (``fixtures/demo``). What is shown
of each combination (state and counts of the DAG, states of nodes and runs) is held against what the
whole directory says of the same moment: whatever is contradicted has to be marked as inferred, be
unknown, or come with a warning about the files.

Taken are those in which two files at most are not as recorded, and those in which each file is
there or not.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Final

import pytest

from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import DagState, State
from metlmon.snapshot.records import Status

FIXTURES: Final = Path(__file__).resolve().parents[2] / "fixtures"
OURS = FIXTURES / "rescue"
OTHER = FIXTURES / "demo"

DAG, METRICS, STATUS = "ens.dag", "ens.dag.metrics", "nodes.dag.status"
OUT, NODES_LOG, LOG = "ens.dag.dagman.out", "ens.dag.nodes.log", "metl.log"
RESCUES = ("ens.dag.rescue001", "ens.dag.rescue002")

ABOUT_FILES: Final = frozenset(
    {"missing-rescue", "missing-record", "dag-file-changed", "counts-differ", "log-behind"}
    | {"missing-dag", "ambiguous-dag", "unknown-nodes"}
)
"""Kinds of warnings which say that the files do not tell all, or do not fit together."""

ABSENT, PRESENT, OLDER, FOREIGN = "absent", "present", "older", "other"
KINDS: Final = (PRESENT, ABSENT, OLDER, FOREIGN)

TO_COME: Final = (State.WAITING, State.FUTILE)
"""States of what was never submitted."""

Combination = tuple[str, ...]


# --- the files --------------------------------------------------------------------------------


def _second_life_ended(text: bytes) -> bytes:
    """``.dagman.out`` before the third DAGMan began."""
    begin = text.rindex(b"******", 0, text.rindex(b"STARTING UP"))
    return text[: text.rindex(b"\n", 0, begin) + 1]


def _older_metrics(data: bytes) -> bytes:
    """Those of the second life: it began and ended when ``.dagman.out`` says, in UTC."""
    output = json.loads(data)
    output |= {"start_time": 1795254203.0, "end_time": 1795254242.0, "duration": 39.0}
    output |= {"exitcode": 1, "dagman_id": "407", "rescue_dag_number": 1, "DagStatus": 2}
    output |= {"jobs_failed": 1, "jobs_succeeded": 14, "total_jobs_run": 15}
    return json.dumps(output, indent=4).encode()


def _older_status(data: bytes) -> bytes:
    """As the second life left it: run2's third epoch failed, the last one is futile."""
    text = data.decode().replace(
        '1795254258; /* "Sat Nov 21 09:44:18 2026" */',
        '1795254242; /* "Sat Nov 21 09:44:02 2026" */',
    )
    text = text.replace('DagStatus = 5; /* "STATUS_DONE (success)" */', "DagStatus = 6;")
    text = text.replace("NodesDone = 16;", "NodesDone = 14;")
    text = text.replace("NodesFailed = 0;", "NodesFailed = 1;").replace(
        "NodesFutile = 0;", "NodesFutile = 1;"
    )
    for node, status in (("run2-train_epoch2", 6), ("run2-train_epoch3", 7)):
        text = re.sub(rf'("{node}";\s+NodeStatus = )5;[^\n]*', rf"\g<1>{status};", text)
    return text.encode()


def _before(stamp: bytes) -> Callable[[bytes], bytes]:
    """A log up to its first event that is not before ``stamp``."""

    def cut(data: bytes) -> bytes:
        found = re.search(rb"^\d{3} \([\d.]+\) 2026-11-21 " + re.escape(stamp), data, re.MULTILINE)
        return data[: found.start()]

    return cut


def _fewer_nodes(data: bytes) -> bytes:
    """The DAG file when it had no run3 yet."""
    return b"".join(line for line in data.splitlines(True) if b"run3-" not in line)


@dataclass(frozen=True)
class Part:
    """Something that may lie in a dagdir: its files, and what makes older ones of them."""

    name: str
    files: tuple[str, ...]
    older: Callable[[bytes], bytes] | None

    def lay(self, kind: str, folder: Path) -> None:
        """Put its files, of this kind, into a folder."""
        for name in self.files if kind != ABSENT else ():
            source = (OTHER if kind == FOREIGN else OURS) / name
            if kind == OLDER and self.older is None and name == self.files[-1]:
                continue
            if not source.exists():
                continue
            data = source.read_bytes()
            if kind == OLDER and self.older is not None:
                data = self.older(data)
            (folder / name).write_bytes(data)


PARTS: Final = (
    Part("DAG file", (DAG,), _fewer_nodes),
    Part("rescue", RESCUES, None),
    Part("metrics", (METRICS,), _older_metrics),
    Part("status", (STATUS,), _older_status),
    Part("dagman.out", (OUT,), _second_life_ended),
    Part("nodes.log", (NODES_LOG,), _before(b"09:44:10")),
    Part("user log", (LOG,), _before(b"09:44:05")),
)


def sample() -> list[Combination]:
    """All with at most one file that differs, and every sixth of :func:`pairs`."""
    found = pairs()
    usual = [c for c in found if min(len(c) - c.count(kind) for kind in (PRESENT, ABSENT)) < 2]
    return list(dict.fromkeys([*usual, *found[::6]]))


def pairs() -> list[Combination]:
    """Each file there or not, and any two files of any kind, the others as recorded or absent."""
    found = dict.fromkeys(product((PRESENT, ABSENT), repeat=len(PARTS)))
    for rest in (PRESENT, ABSENT):
        for one, other in combinations(range(len(PARTS)), 2):
            for kinds in product(KINDS, repeat=2):
                made = [rest] * len(PARTS)
                made[0] = PRESENT
                made[one], made[other] = kinds
                found[tuple(made)] = None
    return list(found)


# --- what is shown ----------------------------------------------------------------------------


@dataclass
class Claims:
    """What is shown of one combination: states by name, and what of it is contradicted."""

    refused: str | None = None
    moment: datetime | None = None
    dag: DagState | None = None
    counts: tuple[int, int] = (0, 0)
    at_least: bool = False
    nodes: dict[str, tuple[State, bool]] = field(default_factory=dict)
    runs: dict[str, State] = field(default_factory=dict)
    warned: frozenset[str] = frozenset()
    contradicted: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """What is contradicted although nothing says that it may be wrong."""
        return [] if self.warned else self.contradicted


def messages_of(folder: Path, as_of: datetime | None = None) -> Claims:
    """What metlmon says of a directory."""
    reader = DagdirReader(folder, as_of=as_of)
    try:
        reader.open()
    except InputError as error:
        return Claims(refused=str(error))
    reader.read_all()
    painter = reader.snapshot_builder()
    status = painter.status()
    if not status.dags:
        return Claims(refused="only its jobs are shown: there is no DAG file")
    (dag,) = status.dags
    return Claims(
        None,
        _moment(status),
        dag.state,
        (dag.nodes_done, dag.nodes_total),
        dag.is_lower_bound,
        {key[1]: (state.state, state.inferred) for key, state in painter.states.items()},
        {run.name: run.state for run in status.runs},
        frozenset(each.kind for each in status.warnings) & ABOUT_FILES,
    )


def _moment(status: Status) -> datetime | None:
    """The moment that a picture is of: of its newest event, or of DAGMan's end."""
    ended = [dag.ended for dag in status.dags]
    # The recording was made in UTC.
    moments = [each.replace(tzinfo=None) for each in (status.as_of, *ended) if each is not None]
    return max(moments, default=None)


@cache
def truth(moment: datetime | None, whole: Path = OURS) -> Claims:
    """What the whole directory says of this moment."""
    return messages_of(whole, moment.replace(microsecond=0) if moment is not None else None)


def judged(combination: Combination, folder: Path) -> Claims:
    """Lay a combination out, and hold what is shown of it against the truth."""
    for each in folder.iterdir():
        each.unlink()
    for part, kind in zip(PARTS, combination, strict=True):
        part.lay(kind, folder)
    result = messages_of(folder)
    if result.refused is None and not _same_to_anybody(combination):
        # Which DAG is asked for, its file says.
        whole = OTHER if combination[0] == FOREIGN else OURS
        result.contradicted = list(_contradicted(result, truth(result.moment, whole)))
    return result


def _same_to_anybody(combination: Combination) -> bool:
    """Would another truth look the same? A DAG file alone is one that was not submitted yet; the
    logs of a DAG whose node names are among those of another one may be that one's."""
    dag, _, *dagmans, _, _ = combination
    return set(combination[1:]) == {ABSENT} or (
        dag == FOREIGN and set(dagmans) <= {ABSENT, FOREIGN}
    )


def _contradicted(output_of: Claims, true: Claims) -> Iterator[str]:
    if output_of.dag is not true.dag and output_of.dag is not DagState.UNKNOWN:
        yield f"DAG {output_of.dag}, not {true.dag}"
    for name, (state, inferred) in output_of.nodes.items():
        if inferred or state is State.UNKNOWN:
            continue
        if name not in true.nodes and state in TO_COME:
            # That nothing was submitted of it is true.
            continue
        if name not in true.nodes:
            yield f"node {name} {state}, there is none"
        elif state is not true.nodes[name][0]:
            yield f"node {name} {state}, not {true.nodes[name][0]}"
    unsure = any(inferred or state is State.UNKNOWN for state, inferred in output_of.nodes.values())
    of_another = output_of.counts[1] != true.counts[1]
    right = output_of.counts[0] <= true.counts[0] if of_another else output_of.counts == true.counts
    if not right and not output_of.at_least and not unsure:
        yield f"{output_of.counts} nodes done, not {true.counts}"
    for run, state in output_of.runs.items():
        unsure = any(
            inferred or found is State.UNKNOWN
            for name, (found, inferred) in output_of.nodes.items()
            if name.startswith(f"{run}-")
        )
        right = state is true.runs.get(run) or (run not in true.runs and state in TO_COME)
        if not right and not unsure and state is not State.UNKNOWN:
            yield f"run {run} {state}, not {true.runs.get(run)}"


# --- all of them ------------------------------------------------------------------------------


def judge_all(wanted: Iterable[Combination]) -> dict[Combination, Claims]:
    """What is shown of each combination."""
    found = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for combination in wanted:
            found[combination] = judged(combination, folder)
    return found


@pytest.fixture(name="found", scope="module")
def _found() -> dict[Combination, Claims]:
    return judge_all(sample())


def test_nothing_is_reported_that_the_whole_directory_contradicts(
    found: dict[Combination, Claims],
) -> None:
    assert {
        combination: result.wrong for combination, result in found.items() if result.wrong
    } == {}


def test_the_whole_directory_says_what_htcondor_did(found: dict[Combination, Claims]) -> None:
    result = found[(PRESENT,) * len(PARTS)]
    assert (result.dag, result.counts) == (DagState.DONE, (16, 16))
    assert set(result.nodes.values()) == {(State.COMPLETED, False)}
    assert not result.warned
    assert set(result.runs.values()) == {State.COMPLETED}


def test_files_of_an_older_dagman_do_not_end_the_dag(found: dict[Combination, Claims]) -> None:
    names = [part.name for part in PARTS]
    older = [OLDER if name == "dagman.out" else PRESENT for name in names]
    result = found[tuple(older)]
    assert result.dag is not DagState.FAILED
    assert "log-behind" in result.warned


def test_each_claim_needs_a_file_that_supports_it(found: dict[Combination, Claims]) -> None:
    """With one file absent the others tell all; with all absent nothing is claimed to be done."""
    for at in range(1, len(PARTS)):
        result = found[tuple(ABSENT if at == n else PRESENT for n in range(len(PARTS)))]
        assert (result.dag, result.counts) == (DagState.DONE, (16, 16)), PARTS[at].name
    alone = found[(PRESENT, *(ABSENT,) * (len(PARTS) - 1))]
    assert (alone.dag, alone.counts) == (DagState.NOT_SUBMITTED, (0, 16))
