"""The sites of jobs, off-target runs, and the causes of lost executions."""

from __future__ import annotations

import pytest

from metlmon.config.settings import Settings
from metlmon.model.reasons import REASON_LIMIT, cause_of, fold_reason, with_common_numbers
from metlmon.model.states import Outcome
from metlmon.stats.totals import break_down
from metlmon.stats.usage import usage_in_window
from tests.support.event_logs import Log, of_one_job, read_ensemble

NODE = "run0-train_epoch0"


def site(settings: Settings | None = None, **machine: str | None) -> str | None:
    log = Log().submit(77, NODE).execute(77, **machine)  # type: ignore[arg-type]
    return of_one_job(log, settings=settings).job(77).site


# --- the site table -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("gpub042.delta.ncsa.illinois.edu", "delta"),
        ("exp-9-60.expanse.sdsc.edu", "expanse"),
        ("g003.anvil.rcac.purdue.edu", "anvil"),
        ("v012.bridges2.psc.edu", "bridges2"),
        ("ip-172-31-17-82.ec2.internal", "aws"),
        ("ec2-3-82-22-19.compute-1.amazonaws.com", "aws"),
        ("gpu2003.chtc.wisc.edu", "chtc"),
        ("GPU2003.CHTC.WISC.EDU", "chtc"),
        ("node7.cluster.example.org", "cluster.example.org"),
        ("localhost", None),
        ("10.0.0.7", None),
    ],
)
def test_built_in_table_of_sites(host: str, expected: str | None) -> None:
    assert site(slot=f"slot1_3@{host}") == expected


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ({"slot": "slot1@gpu2003.chtc.wisc.edu", "site": "CHTC-Spark-CE1"}, "CHTC-Spark-CE1"),
        ({"slot": "slot1_1@glidein_37_42@exp-9-60.expanse.sdsc.edu"}, "expanse"),
        ({"slot": "", "alias": "g003.anvil.rcac.purdue.edu"}, "anvil"),
        ({"slot": "", "alias": None}, None),
    ],
)
def test_host_gives_the_site(machine: dict[str, str | None], expected: str | None) -> None:
    assert site(**machine) == expected


def test_settings_override_the_table() -> None:
    rules = Settings(sites=(("gpu2*.chtc.wisc.edu", "gpulab"), ("*.example.org", "example")))
    assert site(rules, slot="slot1@gpu2003.chtc.wisc.edu") == "gpulab"
    assert site(rules, slot="slot1@gpu4000.chtc.wisc.edu") == "chtc"
    assert site(rules, slot="slot1@node7.cluster.example.org") == "example"
    assert site(rules, slot="slot1@gpu2003.chtc.wisc.edu", site="Its-Own") == "Its-Own"


def test_alias_of_the_access_point_is_not_the_host() -> None:
    """``CCBID=128.105.68.66:9618%3falias=ap40…`` names the CCB server."""
    log = Log().submit(77, NODE)
    log.raw(
        1,
        77,
        "Job executing on host: <10.0.0.7:1?CCBID=128.105.82.112:9619%3faddrs%3d128.105.82.112-"
        "9619%26alias%3dospool-ccb.osg.chtc.wisc.edu#5&alias=node7.example.org>",
    )
    assert of_one_job(log).job(77).site == "example.org"


def test_target_is_never_a_site() -> None:
    dag = f'JOB {NODE} t.sub\nVARS {NODE} ResourceName="Delta-GPU"\n'
    log = Log().submit(77, NODE).execute(77, slot="slot1@localhost")
    job = read_ensemble(dag, log).job(77)
    assert (job.target, job.site) == ("Delta-GPU", None)


def test_transfer_without_a_start_belongs_to_its_execution() -> None:
    log = Log().submit(77, NODE)
    for name, gpu in (("A", "NVIDIA L40"), ("B", "NVIDIA A40")):
        log.transfer(77, "finished input").execute(77, site=name, gpu=gpu)
        log.transfer(77, "finished output")
        log.evict(77) if name == "A" else log.terminate(77)
    found = of_one_job(log)
    assert [(move.direction, move.site) for move in found.transfers(77)] == [
        ("input", "A"),
        ("output", "A"),
        ("input", "B"),
        ("output", "B"),
    ]
    gpus = usage_in_window(found.builder().ledger()).gpus
    assert {group.name: group.transfers for group in gpus} == {"NVIDIA L40": 1, "NVIDIA A40": 1}


def test_median_is_of_good_executions_only() -> None:
    log = Log()
    for cluster, hours in ((1, 2), (2, 4), (3, 9)):
        log.submit(cluster).execute(cluster, at="10:00:00")
        log.terminate(cluster, at=f"{10 + hours}:00:00")
    log.submit(4).execute(4, at="10:00:00").evict(4, at="10:00:10")
    (only,) = break_down(of_one_job(log).builder().ledger()).sites
    assert (only.executions, only.seconds_median) == (4, 4 * 3600)


def test_jobs_at_the_access_point_have_no_hours() -> None:
    log = Log().submit(1, NODE).execute(1).terminate(1, code=3)
    host = "<128.105.68.62:9618?addrs=128.105.68.62-9618&alias=ap40.uw.osg-htc.org&noUDP>"
    log.submit(2, "provision").raw(1, 2, f"Job executing on host: {host}").terminate(2, code=3)
    breakdown = break_down(of_one_job(log).builder().ledger())
    assert [row.executions for row in breakdown.sites] == [1]
    assert [row.executions for row in breakdown.causes] == [1]


def test_median_of_epochs_excludes_evaluations() -> None:
    log = Log().submit(1, NODE).execute(1, at="10:00:00").terminate(1, at="14:00:00")
    log.submit(2, "run0-eval_epoch0").execute(2, at="14:00:00").terminate(2, at="14:10:00")
    (only,) = break_down(of_one_job(log).builder().ledger()).sites
    assert (only.seconds_median, only.epoch_seconds_median) == (125 * 60, 4 * 3600)


@pytest.mark.parametrize(
    ("target", "where", "off"),
    [
        ("expanse", "Expanse-GPU", False),
        ("Expanse-GPU", "expanse", False),
        ("expanse", "Delta-GPU", True),
        ("ospool", "CHTC-Spark-CE1", False),
        ("ospool", "Expanse-GPU", True),
        ("bridges2", "Bridges-2-GPU", False),
        ("", "Delta-GPU", False),
        ("Bridges2-GPU|Delta-GPU", "Delta-GPU", False),
        ("Bridges2-GPU|Expanse-GPU", "Delta-GPU", True),
    ],
)
def test_run_at_another_site_is_off_target(target: str, where: str, off: bool) -> None:
    dag = f"JOB {NODE} t.sub\nJOB run1-train_epoch0 t.sub\n"
    dag += f'VARS {NODE} ResourceName="{target}"\nVARS run1-train_epoch0 ResourceName="expanse"\n'
    run = read_ensemble(dag, Log().submit(77, NODE).execute(77, site=where)).run("run0")
    assert run.latest.off_target is off


def test_off_target_is_judged_within_a_dag() -> None:
    dag = 'JOB {0} t.sub\nVARS {0} ResourceName="{1}"\n'
    pool, site = dag.format(NODE, "ospool"), dag.format("run1-train_epoch0", "expanse")
    log = Log().submit(77, NODE).execute(77, site="Expanse-GPU")

    def off(*dags: str) -> set[bool]:
        result = read_ensemble({f"{n}.dag": text for n, text in enumerate(dags)}, log)
        latest, view = result.run("run0").latest, result.builder().job_view(77, 0)
        return {latest.off_target, view.off_target}

    assert off(pool + site) == {True}
    assert off(pool, site) == {False}
    assert off(site, pool) == {False}


# --- causes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reasons",
    [
        (
            "Error from slot1_1@ip-172-31-17-82.ec2.internal: memory usage exceeded 4096 MB",
            "Error from slot1_7@ip-172-31-9-2.ec2.internal: memory usage exceeded 160000 MB",
        ),
        (
            "Transfer failure at execution point slot1@glidein_7@exp-9-60.expanse.sdsc.edu",
            "Transfer failure at execution point slot1@glidein_82@gpub042.delta.illinois.edu",
        ),
        (
            "failed to send to <128.105.68.62:9618>: |Error: reading file /mnt/a/dir_1/output",
            "failed to send to <128.105.68.63:9620>: |Error: reading file /var/b/dir_22/output",
        ),
        ("Error from interactive3_1@c1.wisc.edu: no", "Error from backfill2_7@c2: no"),
        ("via condor_hold (by user ada)", "via condor_hold (by user grace)"),
        ("The job exceeded allowed 1800 s", "The job exceeded allowed 86400 s"),
        ("requested 1000MB, used 1524MB.", "requested 1000MB, used 1576MB."),
        ("used 1.5GiB in 90s", "used 12GiB in 7s"),
        ("timer expired (1m1.4s elapsed)", "timer expired (2h0m3.95s elapsed)"),
        ("osdf:///ospool/ap40/a.tar.gz: not found", "osdf:///ospool/ap21/dir/b.sif: not found"),
    ],
)
def test_reasons_that_differ_in_names_and_numbers_are_one_cause(reasons: tuple[str, str]) -> None:
    assert fold_reason(reasons[0]) == fold_reason(reasons[1])


@pytest.mark.parametrize(
    ("reasons", "shown"),
    [
        (["held for 30 days, 2:00:07", "held for 30 days, 2:00:07"], "held for 30 days, 2:00:07"),
        (["held for 30 days, 2:00:07", "held for 30 days, 5:00:09"], "held for 30 days, N:00:N"),
        (["on slot1@a: errno 122 after 7 s", "on slot2@b: errno 122 after 9 s"],
         "on <slot>: errno 122 after N s"),
        (["1 of 2", None], "N of N"),
        (["requested 10MB, used 24MB", "requested 10MB, used 76MB"], "requested 10MB, used NMB"),
    ],
)  # fmt: skip
def test_numbers_equal_in_all_reasons_are_shown(reasons: list[str], shown: str) -> None:
    assert with_common_numbers(fold_reason(reasons[0]), reasons) == shown


def test_reasons_in_other_words_are_another_cause() -> None:
    assert fold_reason("memory usage exceeded 1 MB") != fold_reason("disk usage exceeded 1 MB")
    assert fold_reason("no 4th file, 2x as large") == "no 4th file, 2x as large"


def test_hostile_reason_is_folded_in_bounded_time() -> None:
    for reason in ("a." * 500_000, "/" * 1_000_000, "1," * 500_000, "x@" * 500_000, "-" * 10**6):
        assert len(fold_reason(reason)) <= 4 * REASON_LIMIT


def test_causes_group_badput() -> None:
    log = Log()
    for cluster, host in ((1, "a.ec2.internal"), (2, "b.ec2.internal")):
        log.submit(cluster).execute(cluster, gpus=2, at="10:00:00")
        log.hold(cluster, 34, f"Error from slot1_{cluster}@{host}: too large", at="11:00:00")
    log.submit(3).execute(3, gpus=1, at="10:00:00").terminate(3, 7, at="13:00:00")
    log.submit(4).execute(4, gpus=1, at="10:00:00").terminate(4, 0, at="13:00:00")
    rows = break_down(of_one_job(log).builder().ledger()).causes
    assert [(r.cause, r.code, r.executions, r.badput) for r in rows] == [
        ("Error from <slot>: too large", 34, 2, 4.0),
        ("exited with return value 7", None, 1, 3.0),
    ]
    assert rows[0].example == "Error from slot1_2@b.ec2.internal: too large"


@pytest.mark.parametrize(
    ("outcome", "code", "reason", "value", "signal", "cause"),
    [
        (Outcome.FAILED, None, None, 3, None, "exited with return value 3"),
        (Outcome.FAILED, None, None, None, 9, "killed by signal 9 (SIGKILL; out of memory?)"),
        (Outcome.EVICTED, 1014, None, None, None, "1014 StartdDraining"),
        (Outcome.EVICTED, None, "  ", None, None, "evicted, no reason given"),
        (Outcome.HELD, 34, None, None, None, "held, no reason given"),
    ],
)
def test_execution_without_a_reason_has_a_cause(
    outcome: Outcome, code: int, reason: str, value: int, signal: int, cause: str
) -> None:
    assert cause_of(outcome, code, reason, value, signal) == cause
