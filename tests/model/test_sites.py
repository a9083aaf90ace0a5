"""Where an execution ran, by the attributes that access points of OSG, CMS and Fermilab log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from metlmon.cli.reading import read_whole
from metlmon.eventlog.bodies import site_of_attributes
from metlmon.live.session import Session
from tests.support.event_logs import Log, of_one_job
from tests.support.lint_ensemble import findings

HOST = "wn33.cluster.local"


def sites_of(dagdir: Path) -> dict[str | None, float]:
    """GPU-hours by site."""
    ledger = Session(read_whole(dagdir)).ledger()
    hours: dict[str | None, float] = {}
    for entry in ledger.executions:
        hours[entry.site] = hours.get(entry.site, 0.0) + entry.seconds / 3600
    return hours


def test_sites_of_event_028(shared: Callable[[str], Path]) -> None:
    dagdir = shared("cases/site-in-event-028")
    assert sites_of(dagdir) == {"FermiGrid": 1.0, "T2_UK_Bristol": 1.0, "Purdue-Geddes": 1.0}
    assert "no-site" not in {finding.kind for finding in findings(dagdir)}


@pytest.mark.parametrize(
    "attribute",
    [
        *("JOB_Site", "JOB_GLIDEIN_Site", "JOBGLIDEIN_ResourceName", "JOBGLIDEIN_CMSSite"),
        *("MATCH_EXP_JOB_Site", "MATCH_EXP_JOB_GLIDEIN_Site", "MATCH_GLIDEIN_Site"),
        *("MATCH_EXP_JOBGLIDEIN_ResourceName", "MATCH_EXP_JOBGLIDEIN_CMSSite"),
        *("MachineAttrGLIDEIN_ResourceName0", "MachineAttrGLIDEIN_Site0", "GLIDEIN_CMSSite"),
        *("GLIDEIN_Site", "match_exp_jobglidein_resourcename"),
    ],
)
def test_each_attribute_names_the_site(attribute: str) -> None:
    assert site_of_attributes([("Owner", "x"), (attribute, "Bristol")]) == "Bristol"


@pytest.mark.parametrize(
    "attribute", ["Site", "MySite", "MachineAttrGLIDEIN_ResourceName1", "GLIDEIN_SiteWMS"]
)
def test_other_attributes_do_not(attribute: str) -> None:
    assert site_of_attributes([(attribute, "Bristol")]) is None


@pytest.mark.parametrize(
    "value", ["", "Unknown", "undefined", "Local Job", "$$(GLIDEIN_Site:Unknown)", 7]
)
def test_values_that_name_no_site(value: object) -> None:
    ad = [("MATCH_EXP_JOBGLIDEIN_ResourceName", value), ("JOB_Site", "FermiGrid")]
    assert site_of_attributes(ad) == "FermiGrid"


def test_a_resource_is_more_exact_than_a_site() -> None:
    ad = [("JOB_Site", "Purdue"), ("MATCH_EXP_JOBGLIDEIN_ResourceName", "Purdue-Geddes")]
    assert site_of_attributes(ad) == site_of_attributes(reversed(ad)) == "Purdue-Geddes"


def information(log: Log, site: str, trigger: int) -> Log:
    """Event 028 that another event triggers, with the site of the latest match."""
    body = f'MATCH_EXP_JOBGLIDEIN_ResourceName = "{site}"\nTriggerEventTypeNumber = {trigger}\n'
    return log.raw(28, 77, "Job ad information event triggered.", body)


def test_each_execution_has_the_site_of_its_own_match() -> None:
    log = Log().submit(77, "run0-train_epoch0").execute(77, slot=f"slot1@{HOST}")
    information(information(log, "Bristol", 1).evict(77), "Bristol", 4)
    information(log.execute(77, slot=f"slot1@{HOST}"), "Geddes", 1).terminate(77)
    machines = [each.machine for each in of_one_job(log).life(77).executions]
    assert [machine and machine.site for machine in machines] == ["Bristol", "Geddes"]


def test_the_site_of_an_ended_execution_may_follow_its_end() -> None:
    log = Log().submit(77, "run0-train_epoch0").execute(77, slot=f"slot1@{HOST}").terminate(77)
    (only,) = of_one_job(information(log, "Bristol", 5)).life(77).executions
    assert only.machine is not None
    assert only.machine.site == "Bristol"


def test_the_site_in_event_001_comes_first() -> None:
    log = Log().submit(77, "run0-train_epoch0").execute(77, site="Expanse")
    (only,) = of_one_job(information(log, "Bristol", 1)).life(77).executions
    assert only.machine is not None
    assert only.machine.site == "Expanse"
