"""Acts in words and signs, what they are asked for, and one that is under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from metlmon.ensemble import wording
from metlmon.ensemble.views import DagRow, JobRow
from metlmon.ensemble.wording import Colour, Sign, Weight, plain
from metlmon.frozen import frozen
from metlmon.pool.records import (
    AS_THE_DAG_SAYS,
    DAG_ACTS,
    Act,
    Answer,
    Offer,
    Order,
    Reply,
    RunTarget,
    SelectedRun,
    Target,
)
from screens.actions import ACTIONS, Action
from screens.ink import ALARM, DIM, Line, ink, joined, line

QUESTION: Final[Mapping[Act, str]] = {
    Act.HOLD: "Hold {}?",
    Act.RELEASE: "Release {}?",
    Act.REMOVE: "Remove {} from the queue?",
    Act.VACATE: "Vacate {}?",
    Act.PRIORITY: "Set the priority of {}",
    Act.RETARGET: "Retarget {}",
    Act.HALT: "Halt {}?",
    Act.RESUME: "Resume {}?",
    Act.RELEASE_DAG: "Release DAGMan of {}?",
    Act.REMOVE_DAG: "Remove {}",
    Act.RESUBMIT: "Submit {} again, from its newest rescue file?",
    Act.STOP: "Stop {} after the epoch that is under way?",
    Act.STOP_NOW: "Stop {} now?",
    Act.PAUSE: "Pause {} before the next epoch?",
    Act.RESUME_RUN: "Let {} go on?",
    Act.SEND: "Send the next epochs of {}",
}

DOING: Final[Mapping[Act, str]] = {
    Act.HOLD: "Holding",
    Act.RELEASE: "Releasing",
    Act.REMOVE: "Removing",
    Act.VACATE: "Vacating",
    Act.PRIORITY: "Setting the priority of",
    Act.RETARGET: "Retargeting",
    Act.HALT: "Halting",
    Act.RESUME: "Resuming",
    Act.RELEASE_DAG: "Releasing DAGMan of",
    Act.REMOVE_DAG: "Removing",
    Act.RESUBMIT: "Submitting again",
    Act.STOP: "Stopping",
    Act.STOP_NOW: "Stopping now",
    Act.PAUSE: "Pausing",
    Act.RESUME_RUN: "Resuming",
    Act.SEND: "Sending",
}

FOR_GOOD: Final = frozenset({Act.REMOVE, Act.REMOVE_DAG, Act.STOP, Act.STOP_NOW})
"""What cannot be undone by another key."""

ELSEWHERE_ACTS: Final = (Act.RETARGET, Act.SEND)
"""They ask for a site."""

REPLIES: Final[Mapping[Reply, Sign]] = {
    Reply.DENIED: Sign("✗", "X", "permission denied", Colour.VERMILLION, Weight.BOLD),
    Reply.FAILED: Sign("✗", "X", "failed", Colour.VERMILLION, Weight.BOLD),
    Reply.NOT_FOUND: Sign("?", "?", "not found", Colour.ORANGE),
    Reply.BAD_STATE: Sign("!", "!", "not possible in this state", Colour.ORANGE),
    Reply.ALREADY: Sign("=", "=", "already so", Colour.SKY),
    Reply.DONE: Sign("✓", "+", "done", Colour.GREEN),
}
"""What needs a person first: in this order answers are told."""

_NAMES: Final = {Act.RESUME: "halt", Act.RELEASE_DAG: "release", Act.PAUSE: "pause_run"}
"""Actions that are not called by their act: ``pause`` is ctrl+z."""

AWAITED: Final = Sign("·", ".", "no answer yet", Colour.GREY, Weight.DIM)
NOT_ASKED: Final = Sign("–", "-", "not answered", Colour.ORANGE)


@frozen
class Selection:
    """What is marked, or under the cursor: in ``words``, its jobs whatever their state, the DAGs
    that they belong to, and the runs where it is runs that one looks at."""

    words: str
    jobs: tuple[JobRow, ...] = ()
    dags: tuple[DagRow, ...] = ()
    runs: tuple[SelectedRun, ...] = ()


@dataclass(slots=True)
class Deed:
    """An order that was given: the answers so far, the sentence that it ended with if it
    did not go well, and whether somebody saw the end. The thread that performs it only
    appends to ``answers``, then sets ``error`` and ``over``."""

    offer: Offer
    order: Order
    answers: list[Answer] = field(default_factory=list)
    error: str | None = None
    over: bool = False
    seen: bool = False

    @property
    def total(self) -> int:
        """How many answers there will be: one for each run and each job, or one for the DAG."""
        return 1 if self.order.act in DAG_ACTS else len(self.order.touched)

    def told(self, ascii: bool) -> Line:
        """``hold: 3 of 12 answered`` while it is under way, then how it ended."""
        name = line((f"{name_of(self.order.act)}: ", DIM))
        if not self.over:
            return name + line(f"{len(self.answers)} of {self.total} answered")
        ended = summary(self.answers, ascii)
        if self.error is not None:
            ended.append(line((plain(self.error, 200, ascii), ALARM)))
        return name + joined(ended, line("   ")) + line(("   A: per job", DIM))


def action_of(act: Act) -> Action:
    """The action whose key asks for this act; halting and resuming share one."""
    name = _NAMES.get(act, act.value.replace("-", "_"))
    return next(action for action in ACTIONS if (action.scope, action.name) == ("acting", name))


def name_of(act: Act) -> str:
    """The act in a word or two."""
    if act is Act.RELEASE_DAG:
        return "release DAG"
    return act.value if act in (Act.HALT, Act.RESUME) else action_of(act).label


def question(offer: Offer, along: int, given: int | str | None, ascii: bool) -> str:
    """``Hold 3 jobs of run4?``. ``along``: how many jobs go with a DAG; ``given``: the new
    priority or site, None while it is not known."""
    told = QUESTION[offer.act].format(plain(offer.subject, 120, ascii))
    if offer.act is Act.REMOVE_DAG:
        return f"{told} and its {wording.count(along, 'job', ascii=ascii)} in the queue?"
    if given == AS_THE_DAG_SAYS:
        return f"{told} where the DAG says?"
    if given is not None:
        return f"{told} to {plain(str(given), 60, ascii)}?"
    return told


def files_title(order: Order, ascii: bool) -> str:
    """What is done to the files of runs: ``It writes 3 files in gate/ens``."""
    count = wording.count(sum(len(run.files) for run in order.runs), "file", ascii=ascii)
    folder = folder_of(order.runs)
    where = f" in {plain(folder, 60, ascii)}" if folder is not None else ""
    back = order.act is Act.RESUME_RUN or order.site == AS_THE_DAG_SAYS
    return f"It {'deletes' if back else 'writes'} {count}{where}"


def folder_of(runs: Sequence[RunTarget]) -> str | None:
    """Where all their files lie; None where that is not one folder."""
    folders = {str(PurePath(file).parent) for run in runs for file in run.files}
    return folders.pop() if len(folders) == 1 else None


def refused(why: str, chosen: Selection) -> tuple[Offer, ...]:
    """Every act, refused for one reason."""
    acts = [(act, "" if act in DAG_ACTS else chosen.words) for act in Act]
    return tuple(Offer(act, subject, None, why, (), "", "") for act, subject in acts)


def one_of_halt_and_resume(offers: Sequence[Offer]) -> list[Offer]:
    """Without that of the two, of each DAG, which its state rules out: they share a key. DAGMan
    is offered to be released only while it is held."""
    resumable = {offer.subject for offer in offers if offer.act is Act.RESUME and possible(offer)}
    hidden = {
        Act.HALT: lambda offer: offer.subject in resumable,
        Act.RESUME: lambda offer: offer.subject not in resumable,
        Act.RELEASE_DAG: lambda offer: not possible(offer),
    }
    return [o for o in offers if not (o.act in hidden and hidden[o.act](o))]


def possible(offer: Offer) -> bool:
    """Whether it can be asked for."""
    return offer.refused is None and offer.order is not None


def sentence(text: str, ascii: bool) -> str:
    """What an act does, with a capital letter."""
    told = plain(text, 600, ascii)
    return told[:1].upper() + told[1:]


def undone(offer: Offer, ascii: bool) -> str:
    """How to take it back, or that one cannot."""
    told = plain(offer.undo, 600, ascii)
    return sentence(told, ascii) if "cannot be undone" in told else f"To undo: {told}"


def touches(offer: Offer, ascii: bool) -> str:
    """What it would touch and how many: ``3 jobs of run4, 1 left out``."""
    told = plain(offer.subject, 80, ascii)
    if offer.left_out:
        told += f", {wording.number(len(offer.left_out), ascii)} left out"
    return told


def summary(answers: Sequence[Answer], ascii: bool) -> list[Line]:
    """``✗ 1 permission denied``, ``✓ 11 done``: what needs a person first."""
    counts = Counter(answer.reply for answer in answers)
    return [
        line((f"{sign.mark(ascii)} {wording.number(counts[reply], ascii)} {sign.word}", ink(sign)))
        for reply, sign in REPLIES.items()
        if counts[reply]
    ]


@frozen
class Part:
    """A job or a run and what became of it; ``target`` None: the DAG itself."""

    subject: str
    target: Target | RunTarget | None
    sign: Sign
    text: str = ""


def parts(deed: Deed) -> list[Part]:
    """Each target with its answer, trouble first."""
    # Taken once: the thread that performs it goes on appending.
    answers = {answer.subject: answer for answer in tuple(deed.answers)}
    targets: dict[str, Target | RunTarget | None] = {each.id: each for each in deed.order.touched}
    if deed.order.act in DAG_ACTS:
        # The answer is on the DAG, also where DAGMan's own job is what is touched.
        targets = dict.fromkeys(answers or [deed.order.dag or deed.offer.subject])
    order = list(REPLIES)

    def made(subject: str, target: Target | RunTarget | None) -> tuple[int, Part]:
        answer = answers.get(subject)
        if answer is None:
            waits = NOT_ASKED if deed.over else AWAITED
            return len(order) - 1, Part(subject, target, waits)
        return order.index(answer.reply), Part(subject, target, REPLIES[answer.reply], answer.text)

    found = [made(subject, target) for subject, target in targets.items()]
    return [part for _, part in sorted(found, key=lambda pair: pair[0])]


class ActKeys:
    """The acts' keys, for a screen that has :meth:`act`."""

    def act(self, *acts: Act) -> None:
        """Ask for the first of these acts that is possible."""
        raise NotImplementedError

    def action_hold(self) -> None:
        self.act(Act.HOLD)

    def action_release(self) -> None:
        self.act(Act.RELEASE, Act.RELEASE_DAG)

    def action_remove(self) -> None:
        self.act(Act.REMOVE)

    def action_vacate(self) -> None:
        self.act(Act.VACATE)

    def action_priority(self) -> None:
        self.act(Act.PRIORITY)

    def action_halt(self) -> None:
        self.act(Act.HALT, Act.RESUME)

    def action_remove_dag(self) -> None:
        self.act(Act.REMOVE_DAG)

    def action_resubmit(self) -> None:
        self.act(Act.RESUBMIT)

    def action_retarget(self) -> None:
        self.act(Act.RETARGET)

    def action_stop(self) -> None:
        self.act(Act.STOP)

    def action_stop_now(self) -> None:
        self.act(Act.STOP_NOW)

    def action_pause_run(self) -> None:
        self.act(Act.PAUSE)

    def action_resume_run(self) -> None:
        self.act(Act.RESUME_RUN)

    def action_send(self) -> None:
        self.act(Act.SEND)
