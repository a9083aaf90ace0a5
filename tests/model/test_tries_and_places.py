"""Nodes of no run, tries of several procs, and the site shown for a job that does not run."""

from __future__ import annotations

import pytest

from metlmon.model.states import State
from metlmon.snapshot.records import Epoch
from metlmon.tables.runs import site_and_target
from metlmon.text import formatting
from metlmon.text.spans import text
from screens.timeline import lane_state_line
from tests.support.event_logs import EnsembleReading, Log, read_ensemble

NODE = "run0-train_epoch0"
SITE = f'JOB {NODE} t.sub\nVARS {NODE} run_uuid="aaaa" ResourceName="expanse"\n'


def test_node_of_a_run_without_training_has_no_run() -> None:
    dag = SITE + 'JOB fetch f.sub\nVARS fetch run_uuid="bbbb"\n'
    builder = read_ensemble(dag, Log().submit(5, "fetch")).builder()
    assert [run.uuid for run in builder.status().runs] == ["aaaa"]
    row = builder.node_row(("run.dag", "fetch"))
    assert (row.state, row.key) == (State.IDLE, None)
    assert builder.status().other_states[State.IDLE] == 1
    assert builder.status().side_nodes.total == 0


def test_node_of_a_training_run_is_its_side_node() -> None:
    builder = read_ensemble(SITE + 'JOB fetch f.sub\nVARS fetch run_uuid="aaaa"\n').builder()
    (run,) = builder.status().runs
    assert (run.run, run.epochs_total) == ("run0", 1)
    view = builder.run_view(run.key)
    assert [row.node for row in view.side] == ["fetch"]


def attempts(report_of: EnsembleReading) -> tuple[int, int, list[int]]:
    builder = report_of.builder()
    latest, node = report_of.run("run0").latest, builder.node_row(("run.dag", NODE))
    assert latest is not None
    assert node is not None
    entries = sorted(builder.ledger().executions, key=lambda e: (e.job, e.start))
    assert builder.ledger().epochs[0].attempts == latest.attempts
    return latest.attempts, node.attempts, [entry.attempt for entry in entries]


def test_two_procs_of_a_node_are_one_try() -> None:
    log = Log().submit((7, 0), NODE).submit((7, 1), NODE)
    log.execute((7, 0)).execute((7, 1))
    assert attempts(read_ensemble(SITE, log)) == (1, 1, [1, 1])
    log.evict((7, 1)).execute((7, 1))
    assert attempts(read_ensemble(SITE, log)) == (2, 2, [1, 1, 2])
    log.terminate((7, 0), 1).remove((7, 1))
    log.submit((8, 0), NODE).submit((8, 1), NODE).execute((8, 1)).execute((8, 0))
    assert attempts(read_ensemble(SITE, log)) == (3, 3, [1, 1, 2, 3, 3])


def latest(log: Log, dag: str = SITE) -> Epoch:
    found = read_ensemble(dag, log).run("run0").latest
    assert found is not None
    return found


def _where(at: Epoch) -> str:
    return text(site_and_target(at.site, at.target, at.off_target, None, at.state))


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (7, "Delt… ≠"),
        (10, "De… ≠ exp…"),
        (14, "Delt… ≠ expan…"),
        (16, "Delta… ≠ expanse"),
        (19, "Delta-GPU ≠ expanse"),
    ],
)
def test_site_and_target_are_shown_if_they_differ(cells: int, shown: str) -> None:
    at = latest(Log().submit(7, NODE).execute(7, site="Delta-GPU"))
    found = text(site_and_target(at.site, at.target, at.off_target, cells, at.state))
    assert len(found) <= cells
    assert found == shown


def test_idle_job_shows_its_target() -> None:
    log = Log().submit(7, NODE).execute(7, site="Delta-GPU")
    assert _where(latest(log)) == "Delta-GPU ≠ expanse"
    at = latest(log.evict(7))
    assert at.state is State.IDLE
    assert _where(at) == "→ expanse (was at Delta-GPU)"
    cells = "".join(piece for piece, _ in site_and_target(at.site, at.target, 14, False, at.state))
    assert cells == "→ expanse"
    moving = latest(log.transfer(7, "started input"))
    assert moving.state is State.TRANSFERRING_INPUT
    assert _where(moving) == "→ expanse (was at Delta-GPU)"
    assert _where(latest(log.execute(7, site="Expanse-GPU"))) == "Expanse-GPU"


def test_idle_job_without_a_target_shows_its_last_site() -> None:
    at = latest(Log().submit(7, NODE).execute(7, site="Delta-GPU").evict(7), f"JOB {NODE} t\n")
    assert _where(at) == "was at Delta-GPU"
    texts = [
        "".join(piece for piece, _ in site_and_target(at.site, at.target, False, cells, at.state))
        for cells in (None, 16, 15, 9)
    ]
    assert texts == ["was at Delta-GPU", "was at Delta-GPU", "(Delta-GPU)", "(Delta-…)"]


@pytest.mark.parametrize(
    ("rescue", "output_of"),
    [(1, "done by the rescue file"), (None, "done, and no log here has a job of it")],
)
def test_run_completed_in_a_rescue_file_was_submitted(rescue: int | None, output_of: str) -> None:
    from metlmon.stats.timeline import build_timeline

    other = "JOB run1-train_epoch0 t.sub\n"
    log = Log().submit(7, "run1-train_epoch0").execute(7)
    if rescue is None:
        result = read_ensemble(SITE.replace("t.sub", "t.sub DONE") + other, log)
    else:
        result = read_ensemble(SITE + other, log, rescue=f"DONE {NODE}\n")
    made = build_timeline(result.builder().ledger())
    lane = next(lane for lane in made.lanes if lane.run == "run0")
    (dag,) = result.builder().status().dags
    assert dag.rescue == rescue
    drawn = lane_state_line(made, lane, made.seconds, False, 80, dag.rescue)
    assert output_of in "".join(piece for piece, _ in drawn)
    assert formatting.done_without_job(rescue) == output_of
