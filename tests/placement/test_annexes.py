"""Annexes from schedd, collector and ledger: states, ends, free room, and warnings."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.config.settings import AllocationSettings, Settings
from metlmon.live.feed import StatsInput
from metlmon.model.queue import QueueJob
from metlmon.model.reasons import ANNEX_EXPIRED_INFERRED
from metlmon.model.states import Outcome
from metlmon.placement.annexes import SYSTEMS, annex_command, make_annexes, site_command, system_of
from metlmon.placement.types import Annex, AnnexReport, AnnexState
from metlmon.pool.annex_ads import (
    AnnexAd,
    AnnexAnswer,
    AnnexCollector,
    AnnexGeneration,
    AnnexRequest,
    AnnexShape,
    AnnexSlotType,
)
from metlmon.tables.annexes import state_symbol
from tests.support.run_histories import A40, NOON, Past, basis, with_executions

NOW = NOON.timestamp()
HOUR = 3600.0
COLLECTOR = AnnexCollector(address="ap40:9618", answered_at=NOW)


def request(name: str = "gpu-annex", number: int = 1, **more: Any) -> AnnexRequest:
    fields = {
        "request_id": f"{name}-{number}",
        "status": 1,
        "generation": AnnexGeneration.NEW,
        "collector": COLLECTOR.address,
    }
    return AnnexRequest(cluster=number, proc=0, name=name, **(fields | more))


def node(
    name: str = "gpu-annex", number: int = 1, busy: int = 0, gpus: int = 4, **more: Any
) -> list[AnnexAd]:
    """A node's partitionable slot, and a dynamic slot for each busy GPU."""
    fields = {
        "node": f"n{number}",
        "request_id": f"{name}-1",
        "started_at": NOW - HOUR,
        "stops_at": NOW + HOUR,
        "gpu": A40,
        "site": "delta",
    } | more
    whole = AnnexAd(
        annex=name, slot="slot1", slot_type=AnnexSlotType.PARTITIONABLE, gpus=gpus, **fields
    )
    one = AnnexAd(
        annex=name,
        slot="slot1_1",
        slot_type=AnnexSlotType.DYNAMIC,
        gpus=1,
        state="Claimed",
        activity="Busy",
        **fields,
    )
    return [whole, *[one] * busy]


def answer(**more: Any) -> AnnexAnswer:
    return AnnexAnswer(**({"queried_at": NOW, "collectors": (COLLECTOR,)} | more))


def report(found: AnnexAnswer, stats: StatsInput | None = None) -> AnnexReport:
    return make_annexes(stats or basis({}), found, NOW)


def only(found: AnnexAnswer, stats: StatsInput | None = None) -> Annex:
    (row,) = report(found, stats).annexes
    return row


# --- states -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "ads", "state"),
    [
        (request(), [], AnnexState.REQUESTED),
        (request(generation=AnnexGeneration.OLD, pid="17"), [], AnnexState.PENDING),
        (request(batch_job="4711"), [], AnnexState.PENDING),
        (request(), node(), AnnexState.UP),
        (None, node(), AnnexState.UP),
        (request(), node(stops_at=NOW + 300), AnnexState.EXPIRING),
        (request(), node(stops_at=NOW - 5), AnnexState.EXPIRING),
        (request(), node(stops_at=NOW - 90), AnnexState.GONE),
        (request(started_at=NOW - HOUR), [], AnnexState.GONE),
        (request(started_at=NOW - HOUR, lifetime=1800.0), [], AnnexState.GONE),
    ],
)
def test_state_of_an_annex(
    requested: AnnexRequest | None, ads: list[AnnexAd], state: AnnexState
) -> None:
    requests = () if requested is None else (requested,)
    assert only(answer(requests=requests, ads=tuple(ads))).state is state


def test_nodes_and_gpus_are_counted() -> None:
    ads = [*node(number=1, busy=3), *node(number=2)]
    row = only(answer(requests=(request(nodes=2),), ads=tuple(ads)))
    assert (row.nodes, row.nodes_requested) == (2, 2)
    assert (row.gpus, row.gpus_busy, row.gpu, row.site) == (8, 3, A40, "delta")
    unknown = only(answer(ads=tuple(replace(ad, gpus=None) for ad in node(busy=1))))
    assert (unknown.gpus, unknown.gpus_busy, unknown.slots_busy) == (None, None, 1)


def test_annex_lives_until_its_first_node_stops() -> None:
    ads = [*node(number=1, stops_at=NOW + 900), *node(number=2, stops_at=NOW + 1200)]
    assert only(answer(ads=tuple(ads))).alive_until == NOON + timedelta(minutes=15)


def test_old_generation_lives_for_its_lifetime() -> None:
    ads = node(stops_at=None, started_at=NOW - 600)
    # The request's job looks for nodes only every five minutes.
    old = request(generation=AnnexGeneration.OLD, started_at=NOW - 400, lifetime=HOUR)
    row = only(answer(requests=(old,), ads=tuple(ads)))
    assert row.alive_until == NOON + timedelta(minutes=50)
    gone_quiet = only(answer(requests=(old,)))
    assert gone_quiet.alive_until == NOON + timedelta(seconds=3200)


def test_no_epoch_is_late_without_an_end() -> None:
    stats = basis({"run0": Past([HOUR] * 4, age=60)})
    row = only(answer(ads=tuple(node(stops_at=None))), stats)
    assert (row.alive_until, row.next_fits, row.state) == (None, None, AnnexState.UP)


# --- epochs -------------------------------------------------------------------------------------

RUNS = {"run0": Past([HOUR] * 4, age=1800, wait=0), "run1": Past([HOUR] * 4, age=3000, wait=0)}
TARGETED = tuple(
    QueueJob(1000 * number + 4, 0, 2, annex="gpu-annex", slot=f"slot1_{number}@n1")
    for number in (1, 2)
)


def test_running_epochs_are_compared_with_the_end() -> None:
    ads = node(busy=2, stops_at=NOW + 1200)
    row = only(answer(ads=tuple(ads), jobs=TARGETED), basis(RUNS))
    assert {epoch.key: epoch.fits for epoch in row.epochs} == {"run0": False, "run1": True}
    assert (row.next_fits, row.epochs_fit, row.state) == (False, False, AnnexState.EXPIRING)
    late, no_next = row.warnings
    assert late.startswith("gpu-annex expires in 20m00s, before run0 epoch 5 ends (in 30m")
    assert no_next == ("gpu-annex: the next epoch will not fit; it takes 1h00m, 20m00s are left")


def test_epoch_with_a_logged_annex_needs_no_target() -> None:
    stats = basis(RUNS)
    running = [e for e in stats.ledger.executions if e.outcome is Outcome.IN_FLIGHT]
    named = tuple(
        replace(e, annex="gpu-annex" if e.key == "run0" else "other") if e in running else e
        for e in stats.ledger.executions
    )
    stats = replace(stats, ledger=replace(stats.ledger, executions=named))
    row = report(answer(ads=tuple(node(busy=2)), jobs=TARGETED), stats).annexes[0]
    assert (row.name, [epoch.key for epoch in row.epochs]) == ("gpu-annex", ["run0"])


def test_epoch_in_another_slot_is_not_in_the_annex() -> None:
    """Its job targets the annex, but may match other slots."""
    elsewhere = tuple(replace(job, slot="slot1_1@glidein_7@n1") for job in TARGETED)
    row = only(answer(ads=tuple(node()), jobs=elsewhere), basis(RUNS))
    assert (row.epochs, row.gpus_busy) == ((), 0)


def test_pressure_of_an_annex() -> None:
    """One idle epoch of an hour, and one GPU for three hours, half an hour of which is taken."""
    stats = basis({"run0": RUNS["run0"], "run1": Past([HOUR] * 4, running=False, total=5, wait=0)})
    idle = QueueJob(2004, 0, 1, annex="gpu-annex")
    ads = node(busy=1, gpus=1, stops_at=NOW + 3 * HOUR)
    row = only(answer(ads=tuple(ads), jobs=(TARGETED[0], idle)), stats)
    # Ready: run1's last. Expected after run0's epoch 5: at 0.5, 1.5 and 2.5 h.
    assert row.jobs_idle == 1
    assert row.pressure == pytest.approx(4 * 1.0 / 2.5, rel=0.02)


def test_annex_has_the_balance_of_its_allocation() -> None:
    since = NOON - timedelta(hours=1)
    settings = Settings(
        advisor=(AllocationSettings("bio24", 100.0, ("delta",), charge=2.0, as_of=since),)
    )
    stats = replace(basis({"run0": Past(age=HOUR, wait=0)}), settings=settings)
    row = only(answer(ads=tuple(node())), stats)
    assert (row.allocation, row.balance) == ("bio24", pytest.approx(98.0))


# --- warnings -----------------------------------------------------------------------------------


def test_jobs_waiting_for_a_gone_annex_are_warned_of() -> None:
    jobs = tuple(QueueJob(number, 0, 1, annex="old-annex") for number in (1, 2))
    found = report(answer(jobs=jobs))
    assert [row.state for row in found.annexes] == [AnnexState.NEVER_SEEN]
    (never,) = found.annex_warnings
    assert never.startswith("2 jobs wait for old-annex, which was never seen: request it")
    assert state_symbol(found.annexes[0]).word == "never seen"
    stats = basis({"run0": Past([HOUR], running=False)})
    (execution,) = stats.ledger.executions
    there = replace(stats.ledger, executions=(replace(execution, annex="old-annex"),))
    again = report(answer(jobs=jobs), replace(stats, ledger=there))
    assert [row.state for row in again.annexes] == [AnnexState.GONE]
    assert again.annex_warnings == (
        "2 jobs wait for old-annex, which is gone: create it again, or send them elsewhere",
    )
    # Where its jobs started the log may not name the annex: the planner has none, but it was there.
    ran = [replace(job, target_annex="a", executions=(execution,)) for job in stats.ledger.jobs]
    unnamed = only(answer(), replace(stats, ledger=replace(stats.ledger, jobs=tuple(ran))))
    assert unnamed.state is AnnexState.NEVER_SEEN
    assert state_symbol(unnamed).word == "not logged"


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ({"started_at": NOW - 60}, "idle, leaves in 4m00s"),
        ({"started_at": NOW - 400}, "idle since 2 Mar 11:53 and may leave at any moment"),
        # It expires before its idle timeout.
        ({"started_at": NOW - 60, "stops_at": NOW + 90}, "idle, leaves in 1m30s"),
        (
            {"started_at": NOW - 60, "stops_at": NOW},
            "idle since 2 Mar 11:59 and may leave at any moment",
        ),
        (
            {"started_at": None, "stops_at": NOW + 90},
            "idle: its nodes leave when they are idle for 1m30s",
        ),
    ],
)
def test_idle_annex_is_warned_of(times: dict[str, float], text: str) -> None:
    assert report(answer(ads=tuple(node(**times)))).annex_warnings == (f"gpu-annex is {text}",)


@pytest.mark.parametrize("found", [{"requests": (request(),)}, {"ads": tuple(node())}])
def test_jobs_waiting_for_a_present_annex_are_no_warning(found: dict[str, Any]) -> None:
    jobs = (QueueJob(1, 0, 1, annex="gpu-annex"),)
    assert report(answer(jobs=jobs, **found)).annex_warnings == ()


def test_two_annexes_of_one_name_are_warned_of() -> None:
    ads = [*node(busy=1), *node(number=2, busy=1, request_id="gpu-annex-2")]
    found = report(answer(requests=(request(), request(number=2)), ads=tuple(ads)))
    assert [(row.request_id, row.nodes) for row in found.annexes] == [
        ("gpu-annex-1", 1),
        ("gpu-annex-2", 1),
    ]
    (warning,) = found.annex_warnings
    assert warning.startswith("2 annexes are called gpu-annex: ")


def test_silent_collector_does_not_make_an_annex_gone() -> None:
    error = "ap40:9618 did not answer within 10s"
    silent = replace(COLLECTOR, answered_at=NOW - 600, error=error)
    found = report(answer(requests=(request(started_at=NOW - HOUR),), collectors=(silent,)))
    (row,) = found.annexes
    assert (row.state, row.nodes) == (AnnexState.UNKNOWN, None)
    assert row.answered_at == NOON - timedelta(minutes=10)
    assert found.annex_warnings == (error,)


# --- logs without a pool ------------------------------------------------------------------------


def test_command_takes_missing_numbers_from_the_nodes() -> None:
    found = answer(
        requests=(request(collector="cm"),),
        ads=(*node(number=1, busy=1), *node(number=2)),
        configured_collector="cm",
        generation=AnnexGeneration.NEW,
    )
    row = only(found)
    assert row.command == "htcondor annex add gpu-annex"
    assert row.site_command == "sbatch --nodes 2 --time 120 --gpus-per-node 4 hpc.slurm"
    assert report(found).site_command == row.site_command


def test_old_generation_has_one_command() -> None:
    asked = {"lifetime": 7200.0, "nodes": 3, "queue": "gpu", "collector": ""}
    old = request(generation=AnnexGeneration.OLD, **asked)
    row = only(answer(requests=(old,), generation=AnnexGeneration.OLD))
    assert row.command == "htcondor annex add gpu-annex gpu@SYSTEM --nodes 3 --lifetime 7200"
    assert row.site_command == ""


def test_annexes_are_inferred_from_logs() -> None:
    stats = basis({f"run{n}": Past([HOUR] * 2, running=False) for n in range(3)})
    last = NOON - timedelta(minutes=30)
    executions = tuple(
        replace(e, end=last, outcome=Outcome.EVICTED, cause=ANNEX_EXPIRED_INFERRED, annex="a1")
        if e.epoch == 1
        else replace(e, annex="a1")
        for e in stats.ledger.executions
    )
    stats = replace(stats, ledger=replace(stats.ledger, executions=executions))
    found = make_annexes(stats)
    (site,) = found.sites
    assert (site.site, site.annex, site.executions) == ("delta", "a1", 6)
    assert (site.first_start, site.expiries) == (min(e.start for e in executions), (last,))
    (row,) = found.annexes
    assert (row.name, row.inferred, row.state) == ("a1", True, AnnexState.GONE)
    assert (row.nodes, row.gpus, row.alive_until, row.jobs_idle) == (None, None, None, None)


def test_expiry_belongs_to_one_of_two_requests() -> None:
    expired = [NOON - timedelta(hours=hours) for hours in (4, 1)]
    executions = tuple(
        replace(
            e, end=end, outcome=Outcome.EVICTED, cause=ANNEX_EXPIRED_INFERRED, annex="gpu-annex"
        )
        for e, end in zip(
            basis({"run0": Past([HOUR] * 2)}).ledger.executions, expired, strict=False
        )
    )
    stats = with_executions(basis({}), *executions)
    requests = (
        request(started_at=NOW - 5 * HOUR, submitted_at=NOW - 6 * HOUR),
        request(number=2, started_at=NOW - 2 * HOUR, submitted_at=NOW - 3 * HOUR),
    )
    rows = {
        row.request_id: row.expiries for row in report(answer(requests=requests), stats).annexes
    }
    assert rows == {"gpu-annex-1": (expired[0],), "gpu-annex-2": (expired[1],)}


def test_site_without_an_expiry_is_not_an_annex() -> None:
    found = make_annexes(basis({"run0": Past([HOUR] * 2)}))
    assert found.annexes == ()
    assert [site.site for site in found.sites] == ["delta"]


def test_known_ends_by_name() -> None:
    old = request("Old", 2, started_at=NOW - 400, lifetime=HOUR, request_id="r2")
    ads = node(stops_at=NOW + 600) + node("old", request_id="r2", stops_at=None)
    found = answer(requests=(request(), old), ads=tuple(ads))
    assert found.ends == {"gpu-annex": {NOW + 600}, "old": {NOW}}


def test_past_ensemble_reports_no_silent_schedd() -> None:
    answer = AnnexAnswer(error="the schedd does not let you query it")
    found = make_annexes(basis({}, live=True), answer, NOW)
    assert (found.annexes, found.asked) == ((), False)
    assert found.annex_warnings == ("the schedd does not let you query it",)
    assert make_annexes(basis({}, live=False), answer, NOW).annex_warnings == ()


# --- commands, parsed by the installed ``htcondor`` -------------------------------------------


OLD, NEW = AnnexGeneration.OLD, AnnexGeneration.NEW

PARSE = """\
import json, sys
from htcondor_cli.cli import parse_args
print(json.dumps(parse_args(), default=str))
"""
"""Prints what the installed command reads from its arguments, without doing it."""

SHAPE = AnnexShape(
    name="metl delta",
    site="Delta-GPU",
    queue="gpuA100x4",
    nodes=2,
    lifetime=43200.0,
    gpus=4,
    cpus=16,
    memory=64000,
    allocation="abc123-delta-gpu",
    collector="cm.annex.example.org:9618",
)


def parsed(command: str | None, generation: AnnexGeneration) -> dict[str, Any]:
    pytest.importorskip("htcondor_cli")
    assert command is not None
    program, *arguments = shlex.split(command)
    assert program == "htcondor"
    environment = {**os.environ, "CONDOR_CONFIG": os.devnull}
    environment["_CONDOR_ANNEX_USE_OLD_CREATE"] = str(generation is OLD)
    done = subprocess.run(
        [sys.executable, "-c", PARSE, *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("names", "verb"), [((), "create"), (("other",), "create"), (("Metl Delta",), "add")]
)
def test_old_generation_gets_all_numbers(names: tuple[str, ...], verb: str) -> None:
    found = parsed(annex_command(SHAPE, OLD, names), OLD)
    assert (found["verb"], found["annex_name"]) == (verb, "metl delta")
    assert found["queue_at_system"] == "gpuA100x4@delta"
    assert (found["nodes"], found["lifetime"], found["gpus"]) == (2, 43200, "4")
    assert (found["cpus"], found["mem_mb"]) == (16, 64000)
    assert found["allocation"] == "abc123-delta-gpu"
    assert found["collector"] == "cm.annex.example.org:9618"


@pytest.mark.parametrize(("names", "verb"), [((), "create"), (("metl delta",), "add")])
def test_new_generation_gets_the_name_only(names: tuple[str, ...], verb: str) -> None:
    found = parsed(annex_command(SHAPE, NEW, names), NEW)
    assert (found["verb"], found["annex_name"]) == (verb, "metl delta")
    assert found["collector"] == "cm.annex.example.org:9618"
    assert "queue_at_system" not in found
    assert site_command(SHAPE) == (
        "sbatch --partition gpuA100x4 --nodes 2 --time 720 --account abc123-delta-gpu "
        "--gpus-per-node 4 --cpus-per-task 16 --mem 64000 hpc.slurm"
    )


def test_unknown_numbers_are_left_out_or_marked() -> None:
    shape = AnnexShape(name="x")
    assert annex_command(shape, OLD) == "htcondor annex create x QUEUE@SYSTEM"
    assert annex_command(shape, NEW) == "htcondor annex create x"
    assert site_command(shape) == "sbatch hpc.slurm"
    assert annex_command(AnnexShape(name=""), NEW) is None


@pytest.mark.parametrize(
    ("site", "system"),
    [("Delta-GPU", "delta"), ("expanse", "expanse"), ("CHTC-Spark-CE1", "spark"), ("aws", "")],
)
def test_site_has_htcondors_name_of_its_system(site: str, system: str) -> None:
    assert system_of(site) == system


def test_listed_systems_are_known_to_htcondor() -> None:
    validate = pytest.importorskip("htcondor_cli.annex_validate")
    assert set(SYSTEMS) <= set(validate.SYSTEM_TABLE)


@pytest.mark.parametrize("text", ["$(rm -rf ~)", "a;b", "a'b", 'a"b', "a b", "`x`", "a&b"])
@pytest.mark.parametrize("generation", [OLD, NEW])
def test_texts_stay_within_their_quotes(text: str, generation: AnnexGeneration) -> None:
    shape = replace(SHAPE, name=text, queue=text, allocation=text, collector=text)
    words = shlex.split(annex_command(shape, generation) or "")
    assert words[3] == text
    assert words[-1] == text
    done = subprocess.run(
        ["sh", "-c", f"set -- {annex_command(shape, generation)}; printf '%s\\n' \"$@\""],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == words


@pytest.mark.parametrize("text", ["--token_file=/etc/shadow", "-x", "a\nrm -rf ~", "\x1b[2J"])
@pytest.mark.parametrize("field", ["name", "queue", "allocation", "collector"])
def test_unsafe_names_give_no_command(field: str, text: str) -> None:
    shape = replace(SHAPE, **{field: text})
    assert [annex_command(shape, OLD), annex_command(shape, NEW)] == [None, None]
    assert site_command(shape) is None
