"""What trainings wrote: curves that diverge, arguments that changed between epochs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from metlmon.health.facts import HealthFacts
from metlmon.health.groups import make_entry
from metlmon.health.types import HealthEntry
from metlmon.model.run import variable
from metlmon.text.formatting import epoch_text

LOCATION_ARGUMENTS: Final = re.compile(
    r"path|dir|file|ckpt|checkpoint|output|log|version|uuid|host|resume|wandb|name|^id$|_id$"
    r"|gpus|devices|workers|nodes|slow_factor"
)
"""Arguments that say where a training runs; they may differ, as they do not affect the model."""


def diverged_runs(facts: HealthFacts) -> Iterator[HealthEntry]:
    """Runs whose primary metric diverged, by the definition of :mod:`metlmon.stats.curves`."""
    if not facts.stats_input.job_files.trainings:
        return
    from metlmon.stats.curves import curve_symbol, curves

    metric_curves = curves(facts.stats_input)
    for curve in metric_curves.runs:
        if not curve.diverged:
            continue
        run = facts.runs[curve.key]
        since = (
            f" since epoch {epoch_text(curve.since_epoch)}" if curve.since_epoch is not None else ""
        )
        goes_on = facts.goes_on(run)
        yield make_entry(
            kind="diverged",
            text=f"{metric_curves.metric} {curve_symbol(curve).word}{since}",
            steps=(
                f"{'Stop the run, or restart' if goes_on else 'Restart'} it from an earlier "
                "checkpoint with a lower learning rate",
            ),
            act="stop" if goes_on else None,
            is_open=goes_on or (not run.stopped and run.epochs_left > 0),
            key=curve.key,
            runs=(curve.key,),
            dag=run.dag,
        )


def configuration_changes(facts: HealthFacts) -> Iterator[HealthEntry]:
    """Arguments that changed between the epochs of one run; runs with the same changes once."""
    groups: dict[tuple[bool, str], list[str]] = {}
    for key, training in facts.stats_input.job_files.trainings.items():
        changes = list(_changes(training.arguments)) if key in facts.runs else []
        if any("epoch" in change.name for change in changes):
            # Not from the number of epochs in one DAG to that in another.
            goals = set(_goals(facts, key))
            changes = [
                c for c in changes if "epoch" not in c.name or not {c.before, c.after} <= goals
            ]
        if changes:
            more = f", and {len(changes) - 3} more" if len(changes) > 3 else ""
            is_open = facts.goes_on(facts.runs[key])
            groups.setdefault((is_open, f"{'; '.join(map(str, changes[:3]))}{more}"), []).append(
                key
            )
    for (is_open, changed), runs in groups.items():
        yield make_entry(
            kind="configuration",
            text=f"arguments changed: {changed}",
            steps=(
                "If this was not intended, compare the args.txt of these versions: epochs "
                "with other arguments are not of the same model",
            ),
            is_open=is_open,
            key=runs[0],
            runs=tuple(runs),
        )


class _Change(NamedTuple):
    """One argument in a version and in the next; empty where it was not given."""

    name: str
    old: int
    before: str
    new: int
    after: str

    def __str__(self) -> str:
        before, after = self.before or "not given", self.after or "not given"
        return f"{self.name}: {before} in version {self.old}, {after} in version {self.new}"


def _goals(facts: HealthFacts, run: str) -> list[str]:
    """The VAR ``epochs`` in each DAG of a run with several: ``metlmon continue`` changes it."""
    nodes = facts.stats_input.load_description().nodes.all
    goals = {node.node_key[0]: variable(node.node, "epochs") for node in nodes if node.key == run}
    return [goal for goal in goals.values() if goal] if len(goals) > 1 else []


def _changes(arguments: Mapping[int, Mapping[str, str]]) -> Iterator[_Change]:
    """The first change of each argument: ``lr: 0.1 in version 1, 0.2 in version 2``."""
    versions = sorted(arguments)
    for name in sorted({name for version in versions for name in arguments[version]}):
        plain = name.lstrip("-").lower()
        values = [(version, arguments[version].get(name, "")) for version in versions]
        if LOCATION_ARGUMENTS.search(plain) or any("/" in value for _, value in values):
            continue
        if ("epoch" in plain or "seed" in plain) and _counts_up(values):
            continue
        for (old, before), (new, after) in pairwise(values):
            if after != before:
                yield _Change(plain, old, before, new, after)
                break


def _counts_up(texts: Sequence[tuple[int, str]]) -> bool:
    """Whether the values are integers that grow by at most one per version."""
    try:
        values = [(version, int(text)) for version, text in texts]
    except ValueError:
        return False
    return all(0 <= b - a <= new - old for (old, a), (new, b) in pairwise(values))
