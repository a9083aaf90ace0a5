"""Excluding a site: the offer, its effects on files and jobs, and undo."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.model.states import DagState, State
from metlmon.pool.client import PoolClient
from metlmon.pool.exclusion import submit_line
from metlmon.pool.previews import exclusion_preview, is_already_done
from metlmon.pool.types import (
    HOST_ACTS,
    SITE_ACTS,
    ActionPreview,
    ActionResult,
    PoolAction,
    QueueJob,
    QueueSnapshot,
    ResultCode,
)
from metlmon.snapshot.records import Job
from tests.support.gate_rows import UUID, GatedLogs, run
from tests.support.gated_dagdir import GO, GatedDagdir
from tests.support.queue_rows import Schedd, dag, dagman, job, picture, row

EXCLUDE, INCLUDE = SITE_ACTS
EXCLUDE_HOST = HOST_ACTS[0]
X = "Expanse-GPU"
HOST = "gpu1.expanse.sdsc.edu"

WORD = QueueSnapshot(
    schedd="ap.example.org", user="anna@example.org", queried_at=100.0, dagmans=(dagman(),)
)


def preview(
    act: PoolAction,
    *rows: Job,
    jobs: tuple[QueueJob, ...] = (),
    site: str = X,
    sites: tuple[str, ...] = (),
    state: DagState = DagState.RUNNING,
) -> ActionPreview:
    status = replace(picture([dag(state)]), runs=(run(),))
    word = replace(WORD, jobs=jobs)
    return exclusion_preview(act, word, site, rows, status, {"ens.dag": sites})


def test_only_idle_jobs_are_changed() -> None:
    rows = (row(1), row(2, State.HELD), row(3, State.RUNNING), row(4))
    jobs = (job(1), job(2, 5), job(3, 2), job(4, excluded=(X.lower(),)))
    made = preview(EXCLUDE, *rows, jobs=jobs)
    assert [each.id for each in made.request.targets] == ["1.0", "2.0"]
    assert [(each.subject, each.reason) for each in made.left_out] == [("4.0", "excluded already")]
    assert "2 waiting jobs no longer match its machines" in made.effect
    assert "1 job at machines is not touched" in made.effect
    assert made.line == submit_line(X)
    assert "ens.dag submits later go there unless its submit file has the line" in made.effect


def test_job_bound_to_the_excluded_site_is_reported() -> None:
    bound = replace(row(1), target=X)
    assert "1 of them asks for this site alone" in preview(EXCLUDE, bound, jobs=(job(1),)).effect
    free = job(1, site="any", by_site=True)
    assert "alone" not in preview(EXCLUDE, bound, jobs=(free,)).effect
    elsewhere = job(1, site=X, by_site=True, by_list=True)
    assert "alone" not in preview(EXCLUDE, bound, jobs=(elsewhere,)).effect


def test_submit_files_with_a_list_need_no_line() -> None:
    made = preview(EXCLUDE, row(1), jobs=(job(1, by_list=True),))
    (target,) = made.request.dags
    assert (target.file, target.runs) == ("placement/ens.excluded", ("run0",))
    assert made.line is None
    assert "the next epochs of 1 run do not go there either" in made.effect
    assert "writes placement/ens.excluded" in made.effect


def test_only_excluded_sites_can_be_included() -> None:
    jobs = (job(1, excluded=(X,)), job(2), job(3, excluded=("Other",)))
    made = preview(INCLUDE, row(1, State.RUNNING), row(2), row(3), jobs=jobs)
    assert [each.id for each in made.request.targets] == ["1.0"], "also while it runs elsewhere"
    assert (made.request.dags, made.left_out) == ((), ())
    ended = preview(INCLUDE, sites=(X,), state=DagState.DONE)
    assert [each.file for each in ended.request.dags] == ["placement/ens.excluded"]


@pytest.mark.parametrize(
    ("act", "jobs", "why", "already"),
    [
        (EXCLUDE, (job(1, excluded=(X,)),), "the site is excluded already", True),
        (INCLUDE, (job(1),), "the site is not excluded", True),
        (
            EXCLUDE,
            (job(1, owner="ben"),),
            "the jobs that wait: belongs to ben, you are anna",
            False,
        ),
    ],
)
def test_exclusion_without_jobs_is_no_error(
    act: PoolAction, jobs: tuple[QueueJob, ...], why: str, already: bool
) -> None:
    made = preview(act, row(1), jobs=jobs)
    assert (made.request, made.refused, made.line is None) == (None, why, act is INCLUDE)
    assert is_already_done(made) is already


def test_submit_line_is_given_without_idle_jobs() -> None:
    made = preview(EXCLUDE, row(1, State.RUNNING), jobs=(job(1, 2),))
    assert "add the line" in (made.refused or "")
    assert made.line == submit_line(X)
    assert preview(EXCLUDE, state=DagState.DONE).refused == "nothing of it is in the queue"


class Ensemble:
    """A dagdir, its jobs in the queue, and the actions on them."""

    def __init__(self, home: Path, *jobs: QueueJob) -> None:
        self.home = home
        (home / "ens.dag").write_text("JOB a a.sub\n")
        rows = [row(each.cluster, node=each.node) for each in jobs]
        self.logs = GatedLogs(*rows, runs=[run()], dagdir=home)
        self.schedd = Schedd(*jobs, dagman(directory=home))
        self.file = home / "placement" / "ens.excluded"

    def act(self, act: PoolAction, site: str = X, **more: object) -> tuple[ActionResult, ...]:
        """Act as a newly started process would."""
        client = PoolClient(self.logs, self.schedd)  # type: ignore[arg-type]
        client.queue.query()
        made = client.previews(self.logs.latest.status, (), (), (), site, site)
        request = next(each.request for each in made if each.act is act)
        if request is None:
            return ()
        return client.perform(replace(request, **more), lambda result: None)  # type: ignore[arg-type]


def test_exclusion_changes_files_then_jobs_and_is_undone(tmp_path: Path) -> None:
    there = Ensemble(tmp_path, job(1, by_list=True, directory=tmp_path))
    assert [each.reply for each in there.act(EXCLUDE, dry=True)] == [ResultCode.DONE] * 2
    assert (there.file.exists(), there.schedd.acts()) == (False, [])
    results = there.act(EXCLUDE)
    assert [(each.subject, each.reply) for each in results] == [
        ("ens.dag", ResultCode.DONE),
        ("1.0", ResultCode.DONE),
    ]
    assert there.file.read_bytes() == b"metlmon_excluded = Expanse-GPU\n"
    assert there.act(EXCLUDE) == ()
    there.act(EXCLUDE, "Delta GPU")
    assert there.file.read_bytes() == b"metlmon_excluded = Expanse-GPU|Delta GPU\n"
    there.act(INCLUDE, "Delta GPU")
    assert there.file.read_bytes() == b"metlmon_excluded = Expanse-GPU\n"
    there.act(INCLUDE)
    assert not there.file.exists()


def test_exclusion_is_verified_in_the_ad(tmp_path: Path) -> None:
    there = Ensemble(tmp_path, job(1, directory=tmp_path))
    there.schedd.deaf = {1}
    (result,) = there.act(EXCLUDE)
    assert (result.reply, result.text) == (ResultCode.FAILED, "its requirements are as before")


def test_older_submit_file_gets_a_line_for_a_host() -> None:
    made = preview(EXCLUDE_HOST, row(1), jobs=(job(1, by_list=True),), site=HOST, sites=(X,))
    assert (made.request.dags, [each.id for each in made.request.targets]) == ((), ["1.0"])
    assert made.line == f'requirements = ($(requirements:true)) && (TARGET.Machine =!= "{HOST}")'
    assert "1 waiting job no longer matches it" in made.effect
    assert "include-host" in made.undo


@pytest.mark.parametrize(
    ("act", "name", "why"),
    [
        *(
            (EXCLUDE, name, "a site's name is one line")
            for name in ('a"b', "$(x)", "a|b", "a\nb", "\x1b[2J", "a\\")
        ),
        *(
            (EXCLUDE_HOST, name, "a host's name, not its address")
            for name in ('a"b', "$(x)", "a|b", "a b", "\x1b[2J", "10.0.0.1", "fe80::1", "*")
        ),
    ],
)
def test_unquotable_name_is_refused(act: PoolAction, name: str, why: str) -> None:
    made = preview(act, row(1), jobs=(job(1),), site=name)
    assert (made.request, made.line) == (None, None)
    assert (made.refused or "").startswith(why)
    assert "\x1b" not in made.subject


def test_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    there = Ensemble(tmp_path, job(1, by_list=True, directory=tmp_path))
    there.file.parent.mkdir()
    (tmp_path / "mine").write_text("precious")
    there.file.symlink_to(tmp_path / "mine")
    results = there.act(EXCLUDE)
    assert results[0].reply is ResultCode.FAILED
    assert "not a regular file" in results[0].text
    assert (tmp_path / "mine").read_text() == "precious"


def test_edited_file_is_read_as_a_list_of_sites(tmp_path: Path) -> None:
    there = Ensemble(tmp_path, job(1, by_list=True, directory=tmp_path))
    there.file.parent.mkdir()
    there.file.write_text('metlmon_excluded = A|b"|$(x)| C \nexecutable = evil\n')
    there.act(EXCLUDE)
    assert there.file.read_text() == "metlmon_excluded = A|C|Expanse-GPU\n"


def test_placement_and_exclusion_coexist(tmp_path: Path) -> None:
    """A run sent to one site with another one excluded: both files are in effect."""
    gated = GatedDagdir(tmp_path, {}, UUID)
    excluded = tmp_path / "placement" / "ensemble.excluded"
    excluded.parent.mkdir()
    excluded.write_text("metlmon_excluded = Expanse-GPU\n")
    gated.ask_for("target", "Delta-GPU\n", UUID)
    assert gated.asks(3, UUID) == GO
    node = tmp_path / "placement" / "ensemble" / "run0-train_epoch3.inc"
    assert node.read_text() == "ResourceName = Delta-GPU\n"
    assert excluded.read_text() == "metlmon_excluded = Expanse-GPU\n"
