"""Where the checkpoint of a run lies, and the last epoch that the files beside it prove complete.

A job that continues from a checkpoint takes it along: it is in ``transfer_input_files`` of the
submit description, whatever the VAR ``continue_from_checkpoint`` is set to (METL sets it to
``true`` and asks ``if defined``; the templates here set it to the path itself).
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Final

from metlmon.authoring.lint.context import FileStore, LintContext
from metlmon.authoring.lint.finding import Findings
from metlmon.authoring.request import PlanError
from metlmon.dagman import Node
from metlmon.frozen import frozen
from metlmon.jobfiles.metrics_csv import read_metrics_csv
from metlmon.live.safe_glob import content_of
from metlmon.live.tail import NotRead
from metlmon.model.dag import Dag
from metlmon.model.run import variable
from metlmon.model.settings import Settings
from metlmon.redact import redact_secrets

VARIABLE: Final = "continue_from_checkpoint"

LARGEST: Final = 64 << 20
"""Bytes of a ``metrics.csv``."""

_COMMANDS: Final = ("transfer_input_files", "transferinputfiles", "initialdir", "initial_dir")
_FLAGS: Final = frozenset({"true", "t", "yes", "y", "on", "1", "false", "f", "no", "n", "off", "0"})
_VERSION: Final = re.compile(r"version_(\d{1,9})")


@frozen
class Checkpoint:
    """The checkpoint of one run. ``folder``: the directory with ``checkpoints/`` and
    ``version_*/``, relative to the DAG's directory, where one is there or else is expected.
    ``value``: what ``continue_from_checkpoint`` is to be in a node that has none. ``epoch``: the
    last epoch that the metrics there prove complete, -1 where they prove none. ``missing``: why
    the run cannot continue, in words; None where it can."""

    folder: str
    value: str
    epoch: int
    missing: str | None = None


class Checkpoints:
    """Finds checkpoints of the runs of ``directory``; reads each DAG file and description once."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._directory, self._settings = directory, settings
        self._shelf = FileStore()
        self._looks: dict[str, LintContext] = {}

    def of(self, uuid: str, nodes: Mapping[int, tuple[Dag, Node]]) -> Checkpoint:
        """The checkpoint of the run ``uuid`` with the training ``nodes`` by epoch. Raises
        PlanError where a DAG file names a place outside of the directory."""
        latest = [nodes[number] for number in sorted(nodes, reverse=True)]
        dag, node = next((each for each in latest if variable(each[1], VARIABLE)), latest[0])
        value = variable(node, VARIABLE)
        usual = f"output/training_logs/{uuid}"
        places = self._places(dag, node, uuid, value or usual) or [usual]
        value = value if value is not None and value.lower() in _FLAGS else None
        inside = [each for each in places if "://" not in each]
        if not inside:
            text = f"its checkpoint is {redact_secrets(places[0])}, which metlmon cannot look at"
            return Checkpoint(places[0], value or usual, -1, text)
        folders = [_folder(self._directory, _checked(each), uuid) for each in inside]
        found = next((each for each in folders if _holds(self._directory / each)), None)
        if found is None:
            text = f"there is no checkpoint in {folders[0]}"
            return Checkpoint(folders[0], value or folders[0], -1, text)
        return Checkpoint(found, value or found, _last_epoch(self._directory / found))

    def _places(self, dag: Dag, node: Node, uuid: str, value: str) -> list[str]:
        """Where the checkpoint may be, by the node's description and else by its variable."""
        first = {key: each for key, each in node.vars.items() if key.lower() != VARIABLE}
        without = self._transferred(dag, replace(node, vars=first))
        transferred = self._transferred(dag, replace(node, vars={**first, VARIABLE: value}))
        if added := [each for each in transferred if each not in without]:
            return added
        if value.lower() not in _FLAGS:
            value = re.sub(r"\$\(\s*run_uuid\s*\)", lambda _: uuid, value, flags=re.IGNORECASE)
            return [value] if "$" not in value else []
        # A description that takes the run's folder along always, there or not.
        return [each for each in transferred if uuid in each]

    def _transferred(self, dag: Dag, node: Node) -> list[str]:
        """``transfer_input_files`` of the node's job, as seen from the DAG's directory."""
        look = self._look(dag)
        text = look.described(node)
        if text is None:
            return []
        found = look.values(node, text, *_COMMANDS)
        files, more, folder, other = [(found[name] or "").strip() for name in _COMMANDS]
        folder = folder or other
        names = [each.strip() for each in (files or more).split(",")]
        return [
            name if "://" in name else posixpath.join(folder, name)
            for name in names
            if name and "$" not in f"{folder}{name}"
        ]

    def _look(self, dag: Dag) -> LintContext:
        if dag.key not in self._looks:
            path = dag.workflow.path
            look = LintContext(
                dag.workflow,
                path.parent,
                self._directory,
                self._shelf,
                self._settings,
                Findings(),
                dag.file,
            )
            look.open()
            self._looks[dag.key] = look
        return self._looks[dag.key]


def _checked(place: str) -> str:
    """``place`` without a slash at its end. Raises PlanError where it is not relative to the DAG's
    directory and below it."""
    inside = PurePosixPath(place)
    if inside.is_absolute() or ".." in inside.parts or any(ord(c) < 32 for c in place):
        text = f"{redact_secrets(place)!r}: a run's checkpoints must lie below the DAG's directory"
        raise PlanError(text)
    return str(inside)


def _folder(directory: Path, place: str, uuid: str) -> str:
    """The directory that has ``checkpoints/``, of a place that is a checkpoint file, its
    directory, or one above that holds the directories of all runs."""
    inside = PurePosixPath(place)
    if inside.suffix == ".ckpt":
        inside = inside.parent
    if inside.name == "checkpoints":
        inside = inside.parent
    below = inside / uuid
    nested = not os.path.isdir(directory / inside / "checkpoints")
    return str(below if nested and os.path.isdir(directory / below) else inside)


def _holds(folder: Path) -> bool:
    """Whether a checkpoint file is there."""
    try:
        with os.scandir(folder / "checkpoints") as entries:
            return any(each.name.endswith(".ckpt") and each.is_file() for each in entries)
    except (OSError, ValueError):
        return False


def _last_epoch(folder: Path) -> int:
    """The last epoch with a validation value in any ``version_*/metrics.csv``, -1 without one."""
    try:
        names = [name for name in os.listdir(folder) if _VERSION.fullmatch(name)]
    except OSError:
        return -1
    return max((_last_in(folder / name / "metrics.csv") for name in names), default=-1)


def _last_in(path: Path) -> int:
    try:
        text = content_of(os.path.realpath(path), LARGEST).decode("utf-8", "replace")
    except NotRead:
        return -1
    values = read_metrics_csv(StringIO(text, newline="")).values
    judged = [max(each) for name, each in values.items() if name.startswith("val") and each]
    return max(judged, default=-1)
