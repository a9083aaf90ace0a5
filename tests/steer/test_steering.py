"""Acting on runs and on an idle job's target: files first, then jobs, and every answer shown."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.model.states import State
from metlmon.pool.client import PoolClient
from metlmon.pool.gate_requests import NO_RETRY
from metlmon.pool.previews import action_previews
from metlmon.pool.types import (
    AS_THE_DAG_SAYS,
    ActionRequest,
    ActionResult,
    PoolAction,
    PoolError,
    ResultCode,
)
from tests.support.gate_rows import (
    OTHER,
    UUID,
    WORD,
    GatedLogs,
    asked,
    at,
    queued,
    rules,
    run,
    selected,
    training,
)
from tests.support.queue_rows import Schedd, dag, dagman, picture


class Ensemble:
    """A dagdir with gated runs, its schedd, and its files."""

    def __init__(self, home: Path) -> None:
        self.home = home
        rules(home, "ens", UUID, OTHER)
        self.logs = GatedLogs(training(), runs=[run()], dagdir=home)
        self.schedd = Schedd(queued(7, directory=home), dagman(directory=home))

    def order(self, act: PoolAction, gate: object = None, **more: object) -> ActionRequest:
        rows = [selected(run(gate or asked()))]  # type: ignore[arg-type]
        jobs = (training(state=State.IDLE),) if act is PoolAction.RETARGET else ()
        word = replace(WORD, jobs=(queued(7, status=1),) if jobs else (queued(7),))
        status = replace(picture([dag()]), runs=tuple(each.row for each in rows))
        made = next(o for o in action_previews(word, jobs, (), rows, status) if o.act is act)
        assert made.request is not None, made.refused
        return replace(made.request, **more)  # type: ignore[arg-type]

    def perform(self, order: ActionRequest) -> tuple[ActionResult, ...]:
        received: list[ActionResult] = []
        answers = PoolClient(self.logs, self.schedd).perform(order, received.append)  # type: ignore[arg-type]
        assert tuple(received) == answers, "the callback received another result"
        return answers

    def file(self, what: str, uuid: str = UUID) -> Path:
        return self.home / "gate" / "ens" / f"{uuid}.{what}"

    def stopped(self, reason: object = "patience") -> None:
        self.file("stopped").parent.mkdir(parents=True, exist_ok=True)
        self.file("stopped").write_text(json.dumps({"reason": reason}))


@pytest.fixture(name="there")
def _there(tmp_path: Path) -> Ensemble:
    return Ensemble(tmp_path)


@pytest.mark.parametrize(("act", "what"), [(PoolAction.STOP, "stop"), (PoolAction.PAUSE, "pause")])
def test_request_writes_a_file_without_the_schedd(
    there: Ensemble, act: PoolAction, what: str
) -> None:
    there.schedd.down = "no schedd is known here"
    order = there.order(act)
    assert there.perform(order) == (
        ActionResult(UUID, ResultCode.DONE, f"gate/ens/{UUID}.{what} was written"),
    )
    assert there.file(what).read_text().startswith("by ")
    assert there.perform(order) == (
        ActionResult(UUID, ResultCode.ALREADY, f"gate/ens/{UUID}.{what} is there"),
    )
    assert there.schedd.asked == []


def test_pause_and_stop_are_withdrawn(there: Ensemble) -> None:
    there.perform(there.order(PoolAction.PAUSE))
    there.perform(there.order(PoolAction.STOP))
    both = asked(pause_requested=at(9), stop_requested=at(9))
    (answer,) = there.perform(there.order(PoolAction.RESUME_RUN, both))
    assert answer.reply is ResultCode.DONE
    assert answer.text.count("was deleted") == 2
    assert not there.file("pause").exists()
    assert not there.file("stop").exists()
    (answer,) = there.perform(there.order(PoolAction.RESUME_RUN, both))
    assert answer.reply is ResultCode.ALREADY


def test_answered_stop_cannot_be_withdrawn(there: Ensemble) -> None:
    there.perform(there.order(PoolAction.STOP))
    there.stopped("asked to stop")
    (answer,) = there.perform(there.order(PoolAction.RESUME_RUN, asked(stop_requested=at(9))))
    assert answer == ActionResult(
        UUID, ResultCode.BAD_STATE, "it was stopped before: asked to stop"
    )
    assert there.file("stop").exists()


def test_stop_answered_during_withdrawal_is_reported(
    there: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.perform(there.order(PoolAction.STOP))
    before = os.unlink

    def meanwhile(*given: object, **more: object) -> None:
        there.stopped()
        before(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "unlink", meanwhile)
    (answer,) = there.perform(there.order(PoolAction.RESUME_RUN, asked(stop_requested=at(9))))
    assert answer.reply is ResultCode.BAD_STATE
    assert answer.text.startswith("too late")


@pytest.mark.parametrize(
    ("act", "reply"),
    [
        (PoolAction.STOP, ResultCode.ALREADY),
        (PoolAction.PAUSE, ResultCode.BAD_STATE),
        (PoolAction.SEND, ResultCode.BAD_STATE),
    ],
)
def test_run_stopped_meanwhile_is_reported_with_the_reason(
    there: Ensemble, act: PoolAction, reply: ResultCode
) -> None:
    order = there.order(act, site="delta" if act is PoolAction.SEND else None)
    there.stopped("val_loss is NaN at epoch 3")
    (answer,) = there.perform(order)
    assert answer == ActionResult(UUID, reply, "it was stopped before: val_loss is NaN at epoch 3")
    assert not there.file("stop").exists()


def test_send_writes_and_withdraws_the_target(there: Ensemble) -> None:
    order = there.order(PoolAction.SEND, site=" SDSC PRP ")
    (answer,) = there.perform(order)
    assert answer.reply is ResultCode.DONE
    assert there.file("target").read_bytes() == b"SDSC PRP\n"
    (answer,) = there.perform(order)
    assert answer == ActionResult(UUID, ResultCode.ALREADY, f"gate/ens/{UUID}.target says so")
    there.perform(replace(order, site="delta"))
    assert there.file("target").read_bytes() == b"delta\n"
    back = replace(order, site=AS_THE_DAG_SAYS)
    (answer,) = there.perform(back)
    assert answer == ActionResult(UUID, ResultCode.DONE, f"gate/ens/{UUID}.target was deleted")
    assert not there.file("target").exists()
    (answer,) = there.perform(back)
    assert answer.reply is ResultCode.ALREADY


@pytest.mark.parametrize("act", [PoolAction.SEND, PoolAction.RETARGET])
@pytest.mark.parametrize("site", [None, "", " ", 'a"', "$(HOME)", "a\nqueue 9", "a\\"])
def test_invalid_site_is_not_written(there: Ensemble, act: PoolAction, site: str | None) -> None:
    if act is PoolAction.SEND and site == AS_THE_DAG_SAYS:
        return
    order = replace(there.order(act), site=site)
    with pytest.raises(PoolError, match="a site's name"):
        there.perform(order)
    assert there.schedd.acts() == []
    assert not (there.home / "gate").exists()


def test_request_without_gate_rules_is_refused(there: Ensemble) -> None:
    order = there.order(PoolAction.STOP)
    (there.home / "ens.gate.json").unlink()
    (answer,) = there.perform(order)
    assert answer.reply is ResultCode.NOT_FOUND
    assert answer.text.endswith("ens.gate.json is not there")
    assert not (there.home / "gate").exists()


def test_foreign_directory_is_permission_denied(
    there: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    order = there.order(PoolAction.STOP)
    monkeypatch.setattr(os, "mkdir", refuse)
    (answer,) = there.perform(order)
    text = f"gate/ens/{UUID}.stop cannot be written: Permission denied"
    assert answer == ActionResult(UUID, ResultCode.DENIED, text)


# --- stopping now -----------------------------------------------------------------------------


def test_stop_now_writes_before_it_removes(there: Ensemble) -> None:
    seen: list[bool] = []
    act = there.schedd.act

    def removed(action: str, cluster: int, proc: int) -> str:
        seen.append(there.file("stop").exists())
        return act(action, cluster, proc)

    there.schedd.act = removed  # type: ignore[method-assign]
    answers = there.perform(there.order(PoolAction.STOP_NOW))
    assert [(each.subject, each.reply) for each in answers] == [
        (UUID, ResultCode.DONE),
        ("7.0", ResultCode.DONE),
    ]
    assert there.schedd.acts() == [("remove", 7, 0)]
    assert seen == [True]


def test_stop_now_removes_no_job_without_the_file(there: Ensemble) -> None:
    there.file("stop").mkdir(parents=True)
    answers = there.perform(there.order(PoolAction.STOP_NOW))
    assert [each.reply for each in answers] == [ResultCode.FAILED, ResultCode.FAILED]
    assert answers[1].text == "not tried: its run could not be stopped"
    assert there.schedd.acts() == []


def test_stop_now_on_the_last_retry_is_refused(there: Ensemble) -> None:
    order = there.order(PoolAction.STOP_NOW)
    there.logs.runs = (run(retries_left=0),)
    answers = there.perform(order)
    assert answers[0] == ActionResult(UUID, ResultCode.BAD_STATE, NO_RETRY)
    assert there.schedd.acts() == []
    assert not there.file("stop").exists()


def test_stop_now_writes_nothing_without_a_schedd(there: Ensemble) -> None:
    order = there.order(PoolAction.STOP_NOW)
    there.schedd.down = "the schedd does not answer"
    with pytest.raises(PoolError, match="does not answer"):
        there.perform(order)
    assert not there.file("stop").exists()


# --- retargeting ------------------------------------------------------------------------------


@pytest.fixture(name="idle")
def _idle(there: Ensemble) -> Ensemble:
    there.schedd.jobs[7, 0] = queued(7, status=1, directory=there.home)
    return there


@pytest.mark.parametrize(
    ("ad", "output_of"),
    [
        ({"status": 2}, "it is running in the queue: only idle jobs go"),
        ({"status": 5}, "it is held in the queue: only idle jobs go"),
        ({"site": None}, "its requirements do not look at MetlSite: it would not go there"),
        ({"by_site": False}, "its requirements do not look at MetlSite: it would not go there"),
    ],
)
def test_changed_job_is_not_touched(idle: Ensemble, ad: dict[str, object], output_of: str) -> None:
    order = idle.order(PoolAction.RETARGET, site="expanse")
    idle.schedd.jobs[7, 0] = replace(idle.schedd.jobs[7, 0], **ad)  # type: ignore[arg-type]
    assert idle.perform(order) == (ActionResult("7.0", ResultCode.BAD_STATE, output_of),)
    assert idle.schedd.acts() == []
    assert not (idle.home / "placement").exists()


def test_edit_is_verified_in_the_ad(idle: Ensemble) -> None:
    order = idle.order(PoolAction.RETARGET, site="expanse")
    idle.schedd.deaf = {7}
    assert idle.perform(order) == (
        ActionResult("7.0", ResultCode.FAILED, "its MetlSite is still delta"),
    )
    assert not (idle.home / "placement").exists()
    idle.schedd.jobs[7, 0] = replace(idle.schedd.jobs[7, 0], owner="ben")
    (answer,) = idle.perform(order)
    assert answer == ActionResult("7.0", ResultCode.DENIED, "the job belongs to ben, you are anna")


def test_job_that_starts_meanwhile_is_reported(idle: Ensemble) -> None:
    order = idle.order(PoolAction.RETARGET, site="expanse")
    edit = idle.schedd.edit

    def placed(cluster: int, proc: int, field: str, site: int | str) -> None:
        edit(cluster, proc, field, site)
        idle.schedd.jobs[7, 0] = replace(idle.schedd.jobs[7, 0], status=2)

    idle.schedd.edit = placed  # type: ignore[method-assign]
    (answer,) = idle.perform(order)
    assert answer.reply is ResultCode.DONE
    assert "it began to run in this moment" in answer.text


def test_unwritable_placement_is_reported_with_the_answer(idle: Ensemble) -> None:
    (idle.home / "placement").write_text("in the way")
    (answer,) = idle.perform(idle.order(PoolAction.RETARGET, site="expanse"))
    assert answer.reply is ResultCode.DONE
    assert "cannot be written" in answer.text
    assert answer.text.endswith("a retry goes where the DAG file says")
