"""Requests offered for runs, the runs left out and why; and when an idle job can be retargeted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metlmon.model.states import DagState, State
from metlmon.pool import gate_requests, previews
from metlmon.pool.previews import action_previews, is_already_done
from metlmon.pool.types import RUN_ACTS, ActionPreview, PoolAction, QueueSnapshot, SelectedRun
from metlmon.snapshot.records import Run
from metlmon.text.spans import text
from screens.pool_actions import effect_lines
from tests.support.gate_rows import (
    STOPPED,
    UUID,
    WORD,
    asked,
    at,
    latest,
    queued,
    run,
    selected,
    training,
)
from tests.support.queue_rows import dag, picture

NO_SCHEDD = QueueSnapshot(error="no schedd is known here")
STOP_FIRST = "its stop is asked for: resume-run takes that back"


def offer(
    act: PoolAction,
    *runs: SelectedRun,
    word: QueueSnapshot = WORD,
    state: DagState = DagState.RUNNING,
) -> ActionPreview:
    made = action_previews(word, (), (), runs, picture([dag(state)]))
    return next(each for each in made if each.act is act)


def refused(act: PoolAction, row: Run, **more: object) -> str | None:
    return offer(act, selected(row), **more).refused  # type: ignore[arg-type]


def test_stop_now_removes_the_running_job() -> None:
    word = replace(WORD, jobs=(queued(7), queued(8, "run0-eval_epoch2")))
    evaluation = training(8, "run0-eval_epoch2")
    made = offer(PoolAction.STOP_NOW, selected(run(), training(), evaluation), word=word)
    (target,) = made.request.runs
    assert [job.id for job in target.jobs] == ["7.0"], "evaluations of trained epochs go on"
    assert made.effect.startswith("removes job 7.0: the epoch under way loses what it did since")
    lines = effect_lines(replace(made, effect=made.effect.replace("7.0", "11845708.0")), 78, 4)
    assert " ".join(map(text, lines[:3])).endswith(f"first writes gate/ens/{UUID}.stop")
    assert "cannot be undone" in made.undo


@pytest.mark.parametrize(
    ("act", "row", "why"),
    [
        (PoolAction.STOP, run(None), gate_requests.NO_GATE),
        (PoolAction.STOP, run(uuid=None), "it has no run_uuid, by which its gate would know it"),
        (PoolAction.PAUSE, run(uuid="../x"), "its run_uuid cannot be part of a file's name"),
        (PoolAction.PAUSE, run(uuid=".x"), "its run_uuid cannot be part of a file's name"),
        (PoolAction.STOP, run(epochs_done=10), "it is over: all its epochs are done"),
        (
            PoolAction.SEND,
            run(epochs_done=7, epochs_skipped=3),
            "it is over: all its epochs are done",
        ),
        (PoolAction.PAUSE, run(state=State.FAILED), "it is over: it is failed"),
        (PoolAction.STOP, run(asked(stop_requested=at(9))), previews.STOP_REQUESTED),
        (PoolAction.STOP, run(asked(stopped=STOPPED)), previews.STOPPED),
        (PoolAction.STOP_NOW, run(asked(stopped=STOPPED)), previews.STOPPED),
        (PoolAction.PAUSE, run(asked(pause_requested=at(9))), previews.PAUSE_REQUESTED),
        (PoolAction.PAUSE, run(asked(pause_requested=at(9), paused=at(9))), previews.PAUSED),
        (PoolAction.RESUME_RUN, run(), previews.NOT_REQUESTED),
        (
            PoolAction.RESUME_RUN,
            run(asked(stopped=STOPPED, stop_requested=at(9))),
            "it is stopped, for good: metlmon continue resumes from its checkpoint",
        ),
        *(
            (act, run(asked(stop_requested=at(9))), STOP_FIRST)
            for act in (PoolAction.PAUSE, PoolAction.SEND)
        ),
        (PoolAction.STOP, run(epochs_done=9), f"{previews.LAST}, and stop-now ends it"),
        (PoolAction.PAUSE, run(epochs_done=9), previews.LAST),
        (PoolAction.SEND, run(epochs_done=9), previews.LAST),
        (PoolAction.STOP_NOW, run(epochs_done=9), None),
        (PoolAction.STOP, run(epochs_done=9, latest=latest(8, State.COMPLETED)), None),
        (PoolAction.STOP_NOW, run(asked(stop_requested=at(9))), None),
        (PoolAction.STOP, run(asked(pause_requested=at(9))), None),
        (PoolAction.SEND, run(asked(pause_requested=at(9))), None),
        (PoolAction.STOP_NOW, run(retries_left=0), gate_requests.NO_RETRY),
        (PoolAction.STOP, run(retries_left=0), None),
        (PoolAction.STOP_NOW, run(retries_left=None), None),
    ],
)
def test_refusals_have_their_reason(act: PoolAction, row: Run, why: str | None) -> None:
    made = offer(act, selected(row), word=replace(WORD, jobs=(queued(7),)))
    assert made.refused == why
    assert (made.request is None) == (why is not None)


@pytest.mark.parametrize("act", RUN_ACTS)
@pytest.mark.parametrize(
    "state", [DagState.DONE, DagState.FAILED, DagState.REMOVED, DagState.NOT_SUBMITTED]
)
def test_gates_need_a_dagman(act: PoolAction, state: DagState) -> None:
    row = run(asked(pause_requested=at(9)))
    ended = state is not DagState.NOT_SUBMITTED
    said = f"the DAG has ended: {state}" if ended else "the DAG is not submitted"
    assert refused(act, row, state=state) == said


def test_requests_by_files_need_no_schedd() -> None:
    for act in (PoolAction.STOP, PoolAction.PAUSE, PoolAction.SEND):
        assert refused(act, run(), word=NO_SCHEDD) is None
        assert refused(act, run(), word=QueueSnapshot(is_pending=True)) is None
    assert refused(PoolAction.RESUME_RUN, run(asked(pause_requested=at(9))), word=NO_SCHEDD) is None
    assert refused(PoolAction.STOP_NOW, run(), word=NO_SCHEDD) == "no schedd is known here"
    # It is refused for the reason in the files.
    why = refused(PoolAction.STOP_NOW, run(), word=NO_SCHEDD, state=DagState.DONE)
    assert why == "the DAG has ended: done"
    assert offer(PoolAction.STOP).refused == "no run is selected"


@pytest.mark.parametrize(
    ("act", "change", "why"),
    [
        (PoolAction.STOP_NOW, {"dagmans": (), "foreign_jobs": ((7, 0),)}, "to another directory"),
        (PoolAction.STOP_NOW, {"jobs": (queued(7, owner="ben"),)}, "belongs to ben, you are anna"),
        (PoolAction.SEND, {"jobs": (queued(7, by_site=False),)}, "do not look at MetlSite"),
        (PoolAction.SEND, {"jobs": (queued(7),)}, None),
    ],
)
def test_queue_may_rule_out_a_request(
    act: PoolAction, change: dict[str, object], why: str | None
) -> None:
    found = refused(act, run(), word=replace(WORD, **change))
    assert found is None if why is None else why in (found or "")


def test_reasons_of_refused_runs_are_counted() -> None:
    made = offer(
        PoolAction.STOP, selected(run(None)), selected(run(None)), selected(run(epochs_done=10))
    )
    assert made.refused == (
        f"2 runs: {gate_requests.NO_GATE}; 1 run: it is over: all its epochs are done"
    )
    assert not is_already_done(made)


def test_withdrawal_deletes_the_request() -> None:
    def files(**gate: object) -> tuple[str, ...]:
        made = offer(PoolAction.RESUME_RUN, selected(run(asked(**gate))))
        return made.request.runs[0].files

    assert files(pause_requested=at(9)) == (f"gate/ens/{UUID}.pause",)
    assert files(stop_requested=at(9)) == (f"gate/ens/{UUID}.stop",)
    both = files(stop_requested=at(9), pause_requested=at(9))
    assert both == (f"gate/ens/{UUID}.pause", f"gate/ens/{UUID}.stop")


# --- an idle job ----------------------------------------------------------------------------


def retarget(
    state: State = State.IDLE, gate: bool = True, sent: str | None = None, **ad: object
) -> ActionPreview:
    row = training(7, state=state)
    word = replace(WORD, jobs=(queued(7, **{"status": 1, **ad}),))
    status = replace(picture([dag()]), runs=(run(asked(target=sent) if gate else None),))
    made = action_previews(word, (row,), (), (), status)
    return next(each for each in made if each.act is PoolAction.RETARGET)


def test_idle_job_and_its_retry_are_retargeted() -> None:
    made = retarget()
    assert made.request.targets[0].file == "placement/ens/run0-train_epoch2.inc"
    assert made.effect == (
        "in the queue for a machine of that site alone (any: wherever their requirements allow); "
        "sets MetlSite; writes placement/ens/run0-train_epoch2.inc; a retry goes there, too"
    )
    assert made.undo == "retarget to delta"


def test_job_without_a_gate_has_no_placement() -> None:
    made = retarget(gate=False)
    assert made.request.targets[0].file is None
    assert made.effect.endswith("sets MetlSite; a retry goes where the DAG file says")
    assert retarget(sent="expanse").effect.endswith("a retry goes where its run is sent, expanse")


@pytest.mark.parametrize(
    ("state", "ad", "why"),
    [
        (State.RUNNING, {}, "running: only idle jobs can be retargeted"),
        (State.HELD, {}, "held: only idle jobs can be retargeted"),
        (State.COMPLETED, {}, "completed: no longer in the queue"),
        *(
            (State.IDLE, ad, "not placed by MetlSite: its requirements do not look at it")
            for ad in ({"site": None}, {"by_site": False})
        ),
        (State.IDLE, {"owner": "ben"}, "belongs to ben, you are anna"),
    ],
)
def test_other_jobs_cannot_be_retargeted(state: State, ad: dict[str, object], why: str) -> None:
    assert retarget(state, **ad).refused == why  # type: ignore[arg-type]
