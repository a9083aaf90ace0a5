"""What there is to notify about, and how a message says it."""

from __future__ import annotations

from msgspec.structs import replace

from metlmon.config.settings import EVENT_NAMES
from metlmon.health.kinds import KINDS
from metlmon.health.types import Health, HealthEntry, Severity
from metlmon.model.states import DagState, State
from metlmon.notify.events import Message, NotifyEvent, find_events, make_message
from metlmon.text.formatting import plain
from tests.support.sample_snapshots import run, status

NAMES = {"1": "run7", "2": "run8"}


def entry(kind: str = "held", *, is_open: bool = True, **fields: object) -> HealthEntry:
    severity = fields.pop("severity", KINDS[kind].severity)
    text = fields.pop("text", f"{kind} (hold 12)")
    return HealthEntry(
        key=f"{kind}:1", kind=kind, severity=severity, open=is_open, text=text, advice="", **fields
    )  # type: ignore[arg-type]


def found(*entries: HealthEntry, about: tuple[str, ...] = EVENT_NAMES) -> list[tuple[str, str]]:
    health = Health(entries=entries, names=NAMES)
    return [(event.name, event.text) for event in find_events(health, status(), about)]


def test_an_event_says_the_cause_and_how_many_runs() -> None:
    assert found(entry(runs=("1", "2")), entry("black-hole"), entry("run-failed", runs=("1",))) == [
        ("held", "held (hold 12) · 2 runs"),
        ("failed", "run-failed (hold 12) · run7"),
        ("black-hole", "black-hole (hold 12)"),
    ]
    assert found(entry(nodes=12)) == [("held", "held (hold 12) · 12 nodes")]


def test_an_event_says_what_removed_the_jobs() -> None:
    heading = "held, then removed by the access point's policy"
    (event,) = found(entry("removed-by-policy", heading=heading, text="input file missing"))
    assert event == ("failed", f"{heading}: input file missing")


def test_what_is_closed_a_note_or_not_wanted_is_no_event() -> None:
    entries = entry(is_open=False), entry("log-gap"), entry(severity=Severity.NOTE)
    assert found(*entries, entry("diverged"), about=("held",)) == []


def test_every_event_has_a_name_that_can_be_chosen() -> None:
    conditions = {kind.condition for kind in KINDS.values()} - {None}
    assert conditions == set(EVENT_NAMES) - {"done"}


def test_a_dag_that_is_done_is_an_event_else_all_runs() -> None:
    rows = run("run0", 3, 3, State.COMPLETED), run("run1", 3, 3, State.COMPLETED)
    unknown = status(rows, live=False)
    (dag,) = unknown.dags
    done = replace(unknown, dags=(replace(dag, state=DagState.DONE, nodes_done=4),))
    for made, text in (
        (done, "global_pretraining.dag is done: 4 of 6 nodes"),
        (unknown, "all epochs of 2 runs are done"),
        (status(), None),
    ):
        texts = [event.text for event in find_events(Health(), made, EVENT_NAMES)]
        assert texts == ([text] if text else [])


def test_foreign_text_cannot_act_on_a_terminal_or_a_chat() -> None:
    text = "held\x1b]0;x\x07\n\u202e @channel <!here> slot1@host"
    health = Health(entries=(entry(text=text, runs=("\x9b1",)),))
    (event,) = find_events(health, status(), EVENT_NAMES)
    assert event.text.isprintable()
    assert plain(event.text) == event.text
    message = make_message("/tmp/\x1b[2J-evil", [event])
    assert message.title.isprintable()
    text = message.json()["text"]
    assert "@channel" not in text
    assert "<!here" not in text
    assert "slot1@host" in text


def test_several_events_are_one_line_and_the_first_five() -> None:
    events = tuple(NotifyEvent(key=str(n), name="held", text=f"event {n}") for n in range(7))
    message = Message(ensemble="lr", dagdir="/lr", events=events)
    assert message.title == "lr: held"
    assert message.text == "event 0; and 6 more"
    assert message.lines[-2:] == ["event 4", "and 2 more"]
    assert len(message.json()["events"]) == 7
