"""The site of an execution, from attributes of events 001 and 028."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.model.states import State
from tests.support.event_logs import Log
from tests.support.lint_ensemble import findings
from tests.support.records import read_dagdir

CASE = Path(__file__).parents[3] / "shared" / "cases" / "site-in-event-028"


def event(number: int, at: str, text: str, *lines: str) -> bytes:
    body = "".join(f"{line}\n" for line in lines)
    return Log().raw(number, 7, text, body, f"2025-03-01 10:{at}").data


SUBMITTED = event(0, "00:00", "Job submitted from host: <10.0.0.9:9618>")


def started(minute: int, *lines: str) -> bytes:
    slot = ("SlotName: slot1_1@wn7.cluster.local", "GPUs = 1", *lines)
    host = "Job executing on host: <10.1.0.7:9618>"
    return event(1, f"{minute:02d}:00", host, *(f"\t{line}" for line in slot))


def evicted(minute: int) -> bytes:
    return event(4, f"{minute:02d}:00", "Job was evicted.", "\t(0) Job was not checkpointed.")


def attributes(minute: int, trigger: int, *lines: str, second: int = 0) -> bytes:
    more = ("Proc = 0", f"TriggerEventTypeNumber = {trigger}")
    text = "Job ad information event triggered."
    return event(28, f"{minute:02d}:{second:02d}", text, *lines, *more)


def sites(path: Path) -> list[str | None]:
    return [each.site for each in read_dagdir(path).ledger().executions]


def of_log(tmp_path: Path, *events: bytes) -> list[str | None]:
    (tmp_path / "train.log").write_bytes(b"".join((SUBMITTED, *events)))
    return sites(tmp_path)


@pytest.mark.skipif(not CASE.exists(), reason=f"{CASE} is not here")
def test_sites_of_fermilab_cms_and_osg() -> None:
    assert sorted(map(str, sites(CASE))) == ["FermiGrid", "Purdue-Geddes", "T2_UK_Bristol"]
    assert "no-site" not in {finding.kind for finding in findings(CASE)}


NAMES = (
    "GLIDEIN_ResourceName GLIDEIN_CMSSite GLIDEIN_Site JOB_Site JOB_CMSSite JOB_GLIDEIN_Site "
    "JOB_GLIDEIN_ResourceName JOBGLIDEIN_ResourceName JOBGLIDEIN_CMSSite MATCH_GLIDEIN_Site "
    "MATCH_GLIDEIN_CMSSite MATCH_GLIDEIN_ResourceName MATCH_EXP_JOB_GLIDEIN_Site "
    "MATCH_EXP_JOB_Site MATCH_EXP_JOBGLIDEIN_ResourceName MATCH_EXP_JOBGLIDEIN_CMSSite "
    "MachineAttrGLIDEIN_ResourceName0 MachineAttrGLIDEIN_Site0 machineattrglidein_cmssite0"
)


@pytest.mark.parametrize("name", NAMES.split())
def test_attributes_give_the_site(tmp_path: Path, name: str) -> None:
    given = f'{name} = "T2_UK_Bristol"'
    assert of_log(tmp_path, started(5), attributes(5, 1, given)) == ["T2_UK_Bristol"]
    assert of_log(tmp_path, started(5, given)) == ["T2_UK_Bristol"]


@pytest.mark.parametrize(
    "line",
    [
        'MachineAttrGLIDEIN_Site1 = "Earlier"',
        'DESIRED_Sites = "A,B"',
        'JOBGLIDEIN_ResourceName = "$$([ifThenElse(GLIDEIN_Site is undefined, \\"U\\", X)])"',
        'JOB_Site = "Unknown"',
        'MATCH_EXP_JOBGLIDEIN_ResourceName = "Local Job"',
        "JOB_Site = undefined",
        'MachineAttrGLIDEIN_Site0 = ""',
        'GLIDEIN_SiteWMS = "SLURM"',
        'Site = "elsewhere"',
    ],
)
def test_other_values_are_not_sites(tmp_path: Path, line: str) -> None:
    assert of_log(tmp_path, started(5), attributes(5, 1, line)) == ["cluster.local"]


SITE, RESOURCE = 'GLIDEIN_Site = "Purdue"', 'MATCH_EXP_JOBGLIDEIN_ResourceName = "Purdue-Geddes"'


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # A resource is more precise than a site.
        ([started(5, SITE, RESOURCE)], ["Purdue-Geddes"]),
        ([started(5), attributes(5, 1, SITE, RESOURCE)], ["Purdue-Geddes"]),
        # The site in the start precedes that in its 028.
        (
            [
                started(5, 'GLIDEIN_ResourceName = "Purdue-Geddes"'),
                attributes(5, 1, 'MATCH_EXP_JOB_GLIDEIN_Site = "Purdue"'),
            ],
            ["Purdue-Geddes"],
        ),
        ([started(5, 'GLIDEIN_ResourceName = "Expanse"'), attributes(5, 1, RESOURCE)], ["Expanse"]),
        # Attributes of a start precede it, or follow a second later.
        (
            [
                attributes(5, 1, 'JOB_Site = "A"'),
                *(started(5), evicted(7)),
                attributes(9, 1, 'JOB_Site = "B"'),
                started(9),
            ],
            ["A", "B"],
        ),
        ([started(5), attributes(5, 1, 'JOB_Site = "A"', second=1)], ["A"]),
        # Those of the end belong to the ended execution; between executions, to none.
        (
            [started(5), evicted(7), attributes(7, 4, 'MATCH_GLIDEIN_Site = "A"'), started(9)],
            ["A", "cluster.local"],
        ),
        (
            [started(5), evicted(7), attributes(8, 13, 'MATCH_GLIDEIN_Site = "A"'), started(9)],
            ["cluster.local", "cluster.local"],
        ),
    ],
)
def test_sites_of_executions(tmp_path: Path, events: list[bytes], expected: list[str]) -> None:
    assert of_log(tmp_path, *events) == expected


def test_attributes_do_not_reconnect_a_job(tmp_path: Path) -> None:
    lost = Log().disconnect(7, at="2025-03-01 10:06:00").data
    found = of_log(tmp_path, started(5), lost, attributes(6, 22, 'JOB_Site = "A"'))
    assert found == ["A"]
    assert [job.state for job in read_dagdir(tmp_path).ledger().jobs] == [State.DISCONNECTED]
