"""Epochs whose training did not start from the checkpoint of the epoch before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from metlmon.health.facts import HealthFacts
from metlmon.health.groups import make_entry
from metlmon.health.types import HealthEntry
from metlmon.snapshot.records import Epoch
from metlmon.text.formatting import count, epoch_text, job_id

if TYPE_CHECKING:
    from metlmon.stats.lineage import ChainBreak


def broken_chains(facts: HealthFacts) -> Iterator[HealthEntry]:
    """Broken chains of checkpoints, one entry per run; unrecorded checkpoints are one entry."""
    if not any(training.checkpoints for training in facts.stats_input.job_files.trainings.values()):
        return
    from metlmon.stats.lineage import Break, lineage

    broken: defaultdict[str, list[ChainBreak]] = defaultdict(list)
    missing: list[ChainBreak] = []
    for each in lineage(facts.stats_input).breaks:
        if each.kind is Break.MISSING:
            missing.append(each)
        else:
            broken[each.key].append(each)
    epochs = {(epoch.key, epoch.epoch): epoch for epoch in facts.ledger.epochs if epoch.counts}
    for run, breaks in broken.items():
        yield _broken_run(facts, run, breaks, epochs)
    if missing:
        runs = tuple(dict.fromkeys(each.key for each in missing))
        first = missing[0]
        yield make_entry(
            kind="lineage-gap",
            text=f"nothing is recorded of {count(len(missing), 'checkpoint')} that later epochs "
            f"continue, the first of epoch {epoch_text(first.before)}",
            steps=(
                "Which job made these is inferred; keep the *.ckpt.provenance.json, or the "
                "events of the run, with its checkpoints",
            ),
            is_open=any(facts.goes_on(facts.runs[run]) for run in runs),
            key=first.key,
            runs=runs,
        )


def _broken_run(
    facts: HealthFacts,
    run: str,
    breaks: list[ChainBreak],
    epochs: dict[tuple[str, int | None], Epoch],
) -> HealthEntry:
    first = breaks[0]
    more = f", and {count(len(breaks) - 1, 'more break')}" if len(breaks) > 1 else ""
    nodes = [epochs[run, each.epoch] for each in breaks]
    number, before = epoch_text(first.epoch), epoch_text(first.before)
    return make_entry(
        kind="lineage-broken",
        text=f"{_sentence(facts, first)}{more}",
        steps=(
            f"The model lacks the training of epoch {before}: to have it, put its checkpoint "
            f"back, and train epoch {number} and the later ones again",
        ),
        is_open=facts.goes_on(facts.runs[run]),
        key=run,
        runs=(run,),
        dag=facts.runs[run].dag,
        nodes=len(nodes),
        node_keys=tuple(node.node_key for node in nodes),
        jobs=tuple(node.jobs[-1] for node in nodes if node.jobs),
        since=nodes[0].completed or nodes[0].first_submitted,
    )


def _sentence(facts: HealthFacts, broken: ChainBreak) -> str:
    """What is wrong at one epoch."""
    from metlmon.stats.lineage import Break

    epoch, before = f"epoch {epoch_text(broken.epoch)}", f"epoch {epoch_text(broken.before)}"
    match broken.kind:
        case Break.SKIPPED:
            other = f"epoch {epoch_text(broken.parent_epoch)}"
            return f"{epoch} continues the checkpoint of {other}, not that of {before}"
        case Break.FROM_SCRATCH:
            return f"{epoch} was trained from scratch, not from the checkpoint of {before}"
        case Break.OTHER_RUN:
            other = facts.runs[broken.parent_key or ""].run
            return f"{epoch} continues a checkpoint of {other}, not that of {before}"
        case Break.UNUSED if broken.used is not None and broken.job is not None:
            return (
                f"{epoch} continues what job {job_id(*broken.used)} made of {before}, not what "
                f"job {job_id(*broken.job)} made, which completed it"
            )
        case _:
            return f"{epoch} continues an unrecorded checkpoint, not that of {before}"
