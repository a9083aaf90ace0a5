"""The question before an act: exactly what it touches, what it leaves out, how to undo it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from metlmon.ensemble import wording
from metlmon.ensemble.views import JobRow
from metlmon.ensemble.wording import STATES, plain
from metlmon.live.feed import Update
from metlmon.pool.records import DAG_ACTS, Act, Offer, QueueWord, Target
from screens.actions import bindings_of
from screens.answers import AnswersScreen
from screens.columns import Spec, drawn
from screens.deeds import FOR_GOOD, question, sentence, undone
from screens.ink import (
    ALARM,
    BAD,
    BOLD,
    DIM,
    KEY,
    NOTE,
    Line,
    bounded,
    crop,
    line,
    signed,
    wrapped,
)
from screens.menu import MenuScreen
from screens.monitor import MonitorScreen, Prompt, heading, rule
from screens.widgets.document import Document
from screens.widgets.keys import ELSEWHERE, Keys
from screens.widgets.panel import Panel

EFFECT_LINES: Final = 3
"""Of what it does, and of how to undo it; the jobs need the rest."""

LARGEST: Final = 2**31 - 1
"""JobPrio is a 32-bit number in the schedd."""


class NumberPrompt(Prompt):
    """A whole number; any other key is not for it, and ``enter`` goes on to the question."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False)]

    def __init__(self) -> None:
        super().__init__(id="number", hint="a whole number; larger goes first, 0 is the usual")
        self.restrict = r"-?\d{0,10}"

    def action_give_up(self) -> None:
        self.monitor_screen.action_back()

    @property
    def monitor_screen(self) -> MonitorScreen:
        screen = self.screen
        assert isinstance(screen, MonitorScreen)
        return screen


class QuestionScreen(MonitorScreen):
    """Asks once more. Only ``y`` does it; ``along`` are jobs that go with what is touched."""

    SCOPES: ClassVar[tuple[str, ...]] = ("question",)
    IN_TIME: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("question")]
    AUTO_FOCUS = "Document"

    def __init__(self, offer: Offer, along: Sequence[JobRow], ordered: Callable[[], None]) -> None:
        super().__init__()
        self._offer = offer
        self._along = along
        self._ordered = ordered
        self._value: int | None = None
        self._wrong = ""

    def compose(self) -> ComposeResult:
        yield Panel(id="head")
        if self._offer.act is Act.PRIORITY:
            yield NumberPrompt()
        yield Document()
        yield Panel(id="note")
        yield self.keys()

    def on_mount(self) -> None:
        super().on_mount()
        for prompt in self.query(NumberPrompt):
            self.call_after_refresh(self.set_focus, prompt)

    def keys(self) -> Keys:
        return Keys((*self.SCOPES, "everywhere"), ELSEWHERE)

    @property
    def _number_is_missing(self) -> bool:
        return self._offer.act is Act.PRIORITY and self._value is None

    def show(self, update: Update | None) -> None:
        self.query_one(Keys).leave_out(
            ELSEWHERE | ({"confirm"} if self._number_is_missing else set())
        )
        room, ascii, document = self.app.size.width, self.ascii, self.query_one(Document)
        self.query_one("#head", Panel).show(self._head(room - 2))
        document.show(self._body(room))
        down = "v" if ascii else "↓"
        more = [line((f"{down} {document.below} more", NOTE))] if document.below else []
        self.query_one("#note", Panel).show([rule(more, room, ascii)])

    # --- what is told ---------------------------------------------------------------------

    def _head(self, room: int) -> list[Line]:
        offer, ascii = self._offer, self.ascii
        how = ALARM if offer.act in FOR_GOOD else BOLD
        asked = question(offer, len(self._along), self._value, ascii)
        lines = wrapped(asked, room, how, indent=1)[:2]
        effect = wrapped(sentence(offer.effect, ascii), room, indent=1)
        lines += bounded(effect, EFFECT_LINES, room, 1, ascii)
        if offer.undo:
            undo = wrapped(undone(offer, ascii), room, DIM, indent=1)
            lines += bounded(undo, EFFECT_LINES, room, 1, ascii)
        lines.append(crop(self._how_to_go_on(), room, ascii))
        return lines

    def _how_to_go_on(self) -> Line:
        yes = line(" ", ("y", KEY), " does it, ", ("esc", KEY), " or ", ("n", KEY))
        if not self._number_is_missing:
            return yes + line(" touches nothing")
        if self._wrong:
            return line(" ", (self._wrong, BAD))
        return line(" Type the new priority, then ", ("enter", KEY), ("; you are asked then", DIM))

    def _body(self, room: int) -> list[Line]:
        offer, ascii = self._offer, self.ascii
        targets = offer.order.targets if offer.order is not None else ()
        lines: list[Line] = []
        if offer.act in DAG_ACTS:
            dag = offer.order.dag if offer.order is not None else None
            named = plain(dag or offer.subject, 200, ascii)
            lines += [heading("It touches the DAG", room, ascii), line(" ", (named, BOLD))]
        if targets:
            count = wording.count(len(targets), "job", ascii=ascii)
            what = "DAGMan's own job" if offer.act in DAG_ACTS else f"It touches {count}"
            lines += [heading(what, room, ascii), *self._jobs(targets, room)]
        if self._along:
            with_it = [target_of(job) for job in self._along]
            title = f"{wording.count(len(with_it), 'job', ascii=ascii)} in the queue go with it"
            lines += [(), heading(title, room, ascii)]
            lines += self._jobs(with_it, room)
        if offer.left_out:
            title = f"{wording.count(len(offer.left_out), 'job', ascii=ascii)} left out"
            lines += [(), heading(title, room, ascii)]
            for target, why in offer.left_out:
                epoch = "" if target.epoch is None else f"  epoch {target.epoch}"
                about = f" {target.id}  {plain(target.run or '', 24, ascii)}{epoch}  "
                sign = STATES[target.state]
                told = line((about, DIM)) + signed(sign, ascii)
                lines.append(told + line((f"  {plain(why, 200, ascii)}", NOTE)))
        return lines

    def _jobs(self, targets: Sequence[Target], room: int) -> list[Line]:
        specs, word, ascii = _specs(targets, self.ascii), self.monitor.word, self.ascii
        if self._offer.act is Act.PRIORITY and word is not None:
            # What it is now: by this one chooses the new one, and goes back to the old.
            specs.insert(3, Spec("now", "NOW", partial(_priority_now, word), "right"))
        return drawn(specs, targets, room, ascii)

    # --- the answer -----------------------------------------------------------------------

    @on(Input.Changed, "#number")
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._value, self._wrong = None, ""
        self._again()

    @on(Input.Submitted, "#number")
    def _given(self, event: Input.Submitted) -> None:
        event.stop()
        self._value = priority_of(event.value)
        if self._value is None:
            self._wrong = f"a whole number from {-LARGEST} to {LARGEST} is needed here"
        else:
            self.set_focus(self.query_one(Document))
        self._again()

    def action_confirm(self) -> None:
        offer, order = self._offer, self._offer.order
        if order is None or self.monitor.why_nothing_can_be_done() is not None:
            return
        if self._number_is_missing:
            return
        if offer.act is Act.PRIORITY:
            order = replace(order, value=self._value)
        monitor = self.monitor
        deed = monitor.perform(offer, order)
        self._ordered()
        while isinstance(monitor.screen, QuestionScreen | MenuScreen):
            monitor.pop_screen()
        monitor.push_screen(AnswersScreen(deed))


def priority_of(text: str) -> int | None:
    """The number that was typed, if it is one that the schedd takes."""
    try:
        value = int(text)
    except ValueError:
        return None
    return value if -LARGEST <= value <= LARGEST else None


def target_of(job: JobRow) -> Target:
    """A job as acts name it."""
    return Target(job.cluster, job.proc, job.dag, job.node, job.run, job.epoch, job.state)


def _priority_now(word: QueueWord, target: Target, _: int | None) -> Line:
    job = word.job(target.cluster, target.proc)
    return line("" if job is None else str(job.priority))


def _specs(targets: Sequence[Target], ascii: bool) -> list[Spec[Target]]:
    def text(value: str | None, _: int | None = None) -> Line:
        return line(plain(value, 60, ascii) if value else (wording.unknown(ascii), DIM))

    def of(name: str) -> Callable[[Target, int | None], Line]:
        return lambda target, _: text(getattr(target, name))

    def epoch(target: Target, _: int | None) -> Line:
        return line("" if target.epoch is None else str(target.epoch))

    def dag(target: Target, _: int | None) -> Line:
        return text(PurePath(target.dag).name if target.dag else None)

    specs: list[Spec[Target]] = [
        Spec("job", "JOB", of("id"), "right"),
        Spec("run", "RUN", of("run"), least=6, soft=10, most=24),
        Spec("epoch", "EPOCH", epoch, "right"),
        Spec("state", "STATE", lambda target, _: signed(STATES[target.state], ascii)),
        Spec("node", "NODE", of("node"), drop=2, most=40, soft=16),
    ]
    if len({target.dag for target in targets}) > 1:
        specs.append(Spec("dag", "DAG", dag, drop=1, most=30, soft=12))
    return specs
