"""Each kind of trouble, recorded on a pool: all views name the same cause.

The expectations are HTCondor's answers at the time (``htcondor.json``: condor_q, condor_history,
DAGMan's metrics) and what was done to the ensemble; see fixtures/README.md.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

import pytest

from metlmon.config.settings import EVENT_NAMES
from metlmon.health.advice import SEE_OUTPUT
from metlmon.health.build import make_health
from metlmon.health.types import Health, HealthEntry, Severity
from metlmon.live.feed import StatsInput
from metlmon.notify.events import find_events, make_message
from metlmon.text.spans import Line
from screens.overview import health_lines
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir, stats_input

RECORDED: Final = FIXTURES / "health"

STOPPED, BLOCKED, COSTLY, NOTE = Severity

REMOVED, COMPLETED, HELD = 3, 4, 5
"""JobStatus in HTCondor's ads."""


class Trouble(NamedTuple):
    """A recording, and its expected first entry, which is open.

    ``runs``: the runs concerned; ``words``: words in the line. ``hours``: the time of the look,
    after the end of the recording.
    """

    directory: str
    kind: str
    severity: Severity
    runs: str
    words: str
    blocked: int = 0
    act: str | None = None
    code: int | None = None
    hours: float = 0


TABLE: Final = """
policy-removal removed-by-policy stopped 01 4 resubmit 3 0 then removed by the job's policy (held > 10s): held by
system-policy-removal removed-by-policy stopped 23 4 resubmit 12 0 policy (held > 30s): output file missing (hold 12)
removal-clock removed-by-policy stopped 0 2 resubmit 12 0 policy (held > 30s): output file missing (hold 12)
removed-by-user removed-by-user stopped 0 2 resubmit - 0 removed by researcher
dag-removed removed-by-user stopped 012 6 resubmit - 0 condor_rm of the DAG
dag-held dag-held blocked - 3 release-dag 1 0 DAGMan held by researcher (hold 1)
system-policy-hold held blocked 01 4 release 26 0 access point's policy: Job ran
hold-script held blocked 0 2 release 12 0 output file missing (hold 12)
memory held blocked 01 4 raise-memory 34 0 memory limit reached (hold 34)
quota quota blocked 012 4 release 12 0 disk full at the access point
pre-failed script-failed stopped 0 2 resubmit - 0 PRE script check.sh failed with status 2
post-failed script-failed stopped 0 2 resubmit - 0 POST script check.sh failed with status 2
submit-failed submit-failed stopped 0 2 resubmit - 0 failed to create job classad
retries-exhausted retries-exhausted stopped 0 3 resubmit - 0 value 3, 3 of 3 tries used
no-further run-failed stopped 012 6 resubmit - 0 exited with return value 3
dag-failed dag-failed stopped 012 6 resubmit - 0 DAGMan lost track of node
black-hole black-hole costly 02345 0 exclude-site - 0 Expanse-GPU: 13 starts, 0 epochs
stalled-transfer transfer-stalled costly 0 0 vacate - 2 1 input transfer has taken 2h
unmatched unmatched costly 0 0 retarget - 4 1 job for Mars-GPU idle for 4h
wrong-site wrong-site costly 012 0 - - 0 that requested Delta-GPU ran at
diverged diverged costly 1 0 stop - 0 val_loss
rescue-missing removed-by-user stopped 012 3 resubmit - 0 condor_rm of the DAG
dag-changed dag-file-changed stopped 3 2 - - 0 changed after it was submitted
"""  # noqa: E501
"""Fields of a row, runs by their digits; a dash for none."""

EVERY_KIND: Final = tuple(
    Trouble(
        *(directory, kind, Severity(severity)),
        *(" ".join(f"run{digit}" for digit in runs.strip("-")), words, int(blocked)),
        *(None if act == "-" else act, None if code == "-" else int(code), float(hours)),
    )
    for line in TABLE.strip().splitlines()
    for directory, kind, severity, runs, blocked, act, code, hours, words in [line.split(" ", 8)]
)
"""A row for each kind. Of hold-codes, which has eight causes, see below."""

ROWS: Final = {row.directory: row for row in EVERY_KIND}
every_kind = pytest.mark.parametrize("row", EVERY_KIND, ids=list(ROWS))


@cache
def answers_of(directory: str) -> dict[str, Any]:
    """HTCondor's answers for a recording."""
    result: dict[str, Any] = json.loads((RECORDED / directory / "htcondor.json").read_text())
    return result


def look(directory: str) -> tuple[datetime, bool]:
    """The time at which an ensemble is read, and whether its DAGMan exists then."""
    row = ROWS.get(directory)
    later = timedelta(hours=row.hours if row else 0)
    recorded = datetime.fromisoformat(answers_of(directory)["recorded"])
    return recorded + later, any(job["in_queue"] for job in answers_of(directory)["dagman"])


@cache
def input_of(directory: str) -> StatsInput:
    as_of, live = look(directory)
    path = RECORDED / directory
    return stats_input(read_dagdir(path, as_of=as_of, live=live), path)


@cache
def health_of(directory: str) -> Health:
    return make_health(input_of(directory))


def first(row: Trouble) -> HealthEntry:
    return health_of(row.directory).entries[0]


def run_names(health: Health, entry: HealthEntry) -> set[str]:
    return {health.names[run] for run in entry.runs}


def run_of(node: str) -> str:
    return node.partition("-")[0]


@every_kind
def test_first_entry_is_the_cause(row: Trouble) -> None:
    health, entry = health_of(row.directory), first(row)
    assert (entry.kind, entry.severity, entry.open) == (row.kind, row.severity, True)
    assert row.words in f"{entry.heading}: {entry.text}"
    assert (entry.epochs_blocked, entry.act, entry.code) == (row.blocked, row.act, row.code)
    if row.runs:
        assert run_names(health, entry) == set(row.runs.split())


def test_dagman_held_by_a_user_needs_only_a_release() -> None:
    assert health_of("dag-held").entries[0].advice == "Release DAGMan: it continues"


@every_kind
def test_blocked_epochs_are_those_left_undone(row: Trouble) -> None:
    if row.directory == "dag-held":
        undone = 6 - len(done_nodes(row.directory))
        assert health_of(row.directory).entries[0].epochs_blocked == undone
        return
    health = health_of(row.directory)
    open_entries = [e for e in health.open_entries if e.severity in (STOPPED, BLOCKED)]
    runs = {name for entry in open_entries for name in run_names(health, entry)}
    undone = sum(run in runs for run in map(run_of, all_nodes(row.directory))) - sum(
        run_of(node) in runs for node in done_nodes(row.directory)
    )
    assert sum(entry.epochs_blocked for entry in open_entries) == undone


def all_nodes(directory: str) -> list[str]:
    (dag,) = (RECORDED / directory).glob("*.dag")
    return [line.split()[1] for line in dag.read_text().splitlines() if line.startswith("JOB ")]


def done_nodes(directory: str) -> set[str]:
    """By the schedd's history, without those whose POST script failed by DAGMan's jobstate log."""
    (log,) = (RECORDED / directory).glob("*.jobstate.log")
    lines = [line.split() for line in log.read_text().splitlines()]
    failed = {words[1] for words in lines if words[2] == "POST_SCRIPT_FAILURE"}
    ended = [job for job in answers_of(directory)["jobs"] if job["JobStatus"] == COMPLETED]
    return {job["node"] for job in ended if job["ExitCode"] == 0} - failed


@pytest.mark.parametrize("directory", ["hold-codes", *ROWS])
def test_held_jobs_agree_with_the_queue(directory: str) -> None:
    """The codes of all held jobs are those in condor_q."""
    health = health_of(directory)
    held = {
        (run_of(job["node"]), job["HoldReasonCode"], job["HoldReasonSubCode"])
        for job in answers_of(directory)["jobs"]
        if job["JobStatus"] == HELD
    }
    entries = [e for e in health.open_entries if e.kind in ("held", "quota")]
    assert {(name, e.code, e.subcode) for e in entries for name in run_names(health, e)} == held


HOLDS: Final = {
    1: "held by researcher (hold 1)",
    3: "held by the job's policy: loss is NaN (hold 3)",
    12: "output file missing (hold 12)",
    13: "input file missing (hold 13)",
    32: "input larger than the 1 MB allowed (hold 32)",
    33: "output larger than the 1 MB allowed (hold 33)",
    46: "allowed job duration of 4s reached (hold 46)",
    47: "wall-time limit of 4s reached (hold 47)",
}


def test_each_hold_code_has_cause_and_advice() -> None:
    entries = {entry.code: entry for entry in health_of("hold-codes").open_entries}
    assert {code: entry.text for code, entry in entries.items()} == HOLDS
    assert {entry.act for entry in entries.values()} == {"release"}
    assert len({entry.advice for entry in entries.values()}) == len(HOLDS)


@pytest.mark.parametrize("directory", sorted(ROWS.keys() - {"dag-failed"}))
def test_removed_jobs_agree_with_the_history(directory: str) -> None:
    """Each removed job is in one entry, and no other job is.

    The log of dag-failed has no removals, as the disk was full.
    """
    removed = {job["job"] for job in answers_of(directory)["jobs"] if job["JobStatus"] == REMOVED}
    kinds = ("removed-by-policy", "removed-by-user", "run-removed")
    entries = [e for e in health_of(directory).entries if e.kind in kinds]
    named = [f"{cluster}.{proc}" for entry in entries for cluster, proc in entry.jobs]
    assert sorted(named) == sorted(removed)


def test_removal_policy_predicts_the_next_removal() -> None:
    """SYSTEM_PERIODIC_REMOVE after 30 s on hold, seen in the 009 of run0, counts for run1."""
    (job,) = (job for job in answers_of("removal-clock")["jobs"] if job["JobStatus"] == HELD)
    (entry,) = (e for e in health_of("removal-clock").open_entries if e.kind == "held")
    held_since = datetime.utcfromtimestamp(job["EnteredCurrentStatus"])
    assert entry.removal_at == held_since + timedelta(seconds=30)


def test_deleted_rescue_file_is_reported() -> None:
    health = health_of("rescue-missing")
    assert [e.kind for e in health.open_entries] == ["removed-by-user", "rescue-missing"]
    assert health.open_entries[0].steps[0] == "Put the rescue file back"


def test_log_cut_by_a_full_disk_is_a_note() -> None:
    """No other file has what the log lacks: three removals in the schedd's history."""
    health = health_of("log-gap")
    assert len([job for job in answers_of("log-gap")["jobs"] if job["JobStatus"] == REMOVED]) == 3
    (entry,) = (e for e in health.entries if e.kind == "log-damage")
    assert (entry.severity, entry.open) == (NOTE, False)
    assert "metl.log:80 is damaged" in entry.text
    assert len(entry.jobs) == 2
    assert health.open_entries == ()


@pytest.mark.parametrize("directory", ["healthy-done", "healthy-running"])
def test_healthy_ensembles_have_no_entry(directory: str) -> None:
    assert health_of(directory).entries == ()


EVENTS: Final = {
    "black-hole": "black-hole",
    "stalled-transfer": "stalled",
    "unmatched": "stalled",
    "diverged": "diverged",
    "wrong-site": None,
    "dag-changed": None,
}
"""What notifications call it; of what stopped or is held by the severity."""


@every_kind
def test_notification_names_the_cause(row: Trouble) -> None:
    entry = first(row)
    name = EVENTS.get(row.directory, "held" if row.severity is BLOCKED else "failed")
    events = find_events(health_of(row.directory), input_of(row.directory).status, EVENT_NAMES)
    events = tuple(event for event in events if event.name != "done")
    assert [event.key for event in events if event.key == entry.key] == [entry.key] * bool(name)
    if name is not None:
        message = make_message(row.directory, events)
        assert message.event.split(",")[0] == name
        assert row.words in message.text


def text_of(content: Line) -> str:
    return "".join(span[0] for span in content)


@every_kind
def test_header_of_a_small_terminal_has_cause_and_advice(row: Trouble) -> None:
    health, status = health_of(row.directory), input_of(row.directory).status
    lines = [text_of(each) for each in health_lines(health, status, 78, roomy=False)]
    assert all(len(each) <= 78 for each in lines)
    assert len(lines) <= 4
    head = "\n".join(lines)
    entry = first(row)
    assert (entry.heading or entry.text)[:40] in head
    goes_on = health.jobs_queued or not health.runs_stopped
    assert ("STOPPED" in lines[0]) is not bool(goes_on)
    assert entry.steps[0][:40] in head.replace("See its output", SEE_OUTPUT), "in short or in full"
    names = row.runs.split()
    if len(names) == 1:
        assert f"{names[0]}: " in head
    elif names and not entry.heading:
        assert f"{len(names)} runs" in head


@pytest.mark.parametrize(
    ("directory", "moment"),
    [
        ("removal-clock", "when the DAG has ended"),
        ("rescue-missing", "when its rescue file is back"),
        ("no-further", None),
    ],
)
def test_resubmission_is_offered_at_the_right_time(directory: str, moment: str | None) -> None:
    entries = [entry for entry in health_of(directory).open_entries if entry.act == "resubmit"]
    assert {entry.act_when for entry in entries} == {moment}
