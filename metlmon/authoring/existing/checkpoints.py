"""Finds the checkpoint of a run and the last epoch that is proven complete.

A job that continues from a checkpoint transfers it: it is in ``transfer_input_files`` of the submit
description, whatever the value of the VAR ``continue_from_checkpoint`` (METL sets it to ``true``
and tests ``if defined``; the bundled templates set it to the path).
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metlmon.authoring.lint.context import FileStore, LintContext
from metlmon.authoring.lint.finding import Findings
from metlmon.authoring.request import PlanError
from metlmon.config.settings import Settings
from metlmon.dagman import Node
from metlmon.jobfiles.metl_files import read_metrics_csv
from metlmon.live.discovery import read_workflows
from metlmon.live.regular_files import UnreadableFile, read_file
from metlmon.model.dag import Dag
from metlmon.model.run import variable
from metlmon.redact import redact_secrets

VARIABLE: Final = "continue_from_checkpoint"

LARGEST: Final = 64 << 20
"""Maximum bytes of a ``metrics.csv``."""

_COMMANDS: Final = ("transfer_input_files", "transferinputfiles", "initialdir", "initial_dir")
_FLAGS: Final = frozenset({"true", "t", "yes", "y", "on", "1", "false", "f", "no", "n", "off", "0"})
_VERSION: Final = re.compile(r"version_(\d{1,9})")


class RunCheckpoint(Struct, frozen=True):
    """The checkpoint of a run.

    ``folder``: the directory with ``checkpoints/`` and ``version_*/``, relative to the DAG's
    directory; the expected one if none exists. ``value``: of ``continue_from_checkpoint`` for a
    node without it. ``epoch``: the last epoch that the metrics prove complete, -1 for none.
    ``missing``: why the run cannot be continued, as text; else None.
    """

    folder: str
    value: str
    epoch: int
    missing: str | None = None


class CheckpointFinder:
    """Finds checkpoints of the runs of ``directory``; reads each file only once."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._directory, self._settings = directory, settings
        self._file_store = FileStore()
        self._contexts: dict[str, LintContext] = {}

    def find(self, uuid: str, nodes: Mapping[int, tuple[Dag, Node]]) -> RunCheckpoint:
        """The checkpoint of the run ``uuid`` with the training ``nodes`` by epoch.

        Raises PlanError if a DAG file names a path outside of the directory.
        """
        newest_first = [nodes[number] for number in sorted(nodes, reverse=True)]
        with_value = (pair for pair in newest_first if variable(pair[1], VARIABLE))
        dag, node = next(with_value, newest_first[0])
        value = variable(node, VARIABLE)
        default_path = f"output/training_logs/{uuid}"
        paths = self._candidates(dag, node, uuid, value or default_path) or [default_path]
        value = value if value is not None and value.lower() in _FLAGS else None
        local = [path for path in paths if "://" not in path]
        if not local:
            text = f"its checkpoint is {redact_secrets(paths[0])}, which metlmon cannot look at"
            return RunCheckpoint(paths[0], value or default_path, -1, text)
        folders = [_run_directory(self._directory, _checked_path(path), uuid) for path in local]
        found = [folder for folder in folders if _has_checkpoint(self._directory / folder)]
        if not found:
            text = f"there is no checkpoint in {folders[0]}"
            return RunCheckpoint(folders[0], value or folders[0], -1, text)
        epoch = _last_epoch(self._directory / found[0])
        return RunCheckpoint(found[0], value or found[0], epoch)

    def _candidates(self, dag: Dag, node: Node, uuid: str, value: str) -> list[str]:
        """Possible paths of the checkpoint, by the node's description or its variable."""
        others = {name: text for name, text in node.vars.items() if name.lower() != VARIABLE}
        without_variable = self._transferred(dag, replace(node, vars=others))
        transferred = self._transferred(dag, replace(node, vars={**others, VARIABLE: value}))
        if added_paths := [path for path in transferred if path not in without_variable]:
            return added_paths
        if value.lower() not in _FLAGS:
            value = re.sub(r"\$\(\s*run_uuid\s*\)", lambda _: uuid, value, flags=re.IGNORECASE)
            return [value] if "$" not in value else []
        # The description always transfers the run's directory.
        return [path for path in transferred if uuid in path]

    def _transferred(self, dag: Dag, node: Node) -> list[str]:
        """``transfer_input_files`` of the node's job, relative to the DAG's directory."""
        if dag.key not in self._contexts:
            path = dag.workflow.path
            workflow, *_ = read_workflows(
                path.parent, path.name, self._file_store.read, keep_descriptions=True
            )
            self._contexts[dag.key] = LintContext(
                workflow,
                dagman_dir=path.parent,
                dagdir=self._directory,
                files=self._file_store,
                settings=self._settings,
                findings=Findings(),
            )
        context = self._contexts[dag.key]
        description = context.description_of(node)
        if description is None:
            return []
        values = context.values(node, description, *_COMMANDS)
        files, files_alias, directory, directory_alias = (values[name] or "" for name in _COMMANDS)
        initial_directory = directory.strip() or directory_alias.strip()
        names = map(str.strip, (files.strip() or files_alias).split(","))
        return [
            name if "://" in name else posixpath.join(initial_directory, name)
            for name in names
            if name and "$" not in f"{initial_directory}{name}"
        ]


def _checked_path(path: str) -> str:
    """``path`` without a trailing slash.

    Raises PlanError unless it is relative to, and below, the DAG's directory.
    """
    relative = PurePosixPath(path)
    is_below = not relative.is_absolute() and ".." not in relative.parts
    if not is_below or any(ord(character) < 32 for character in path):
        text = f"{redact_secrets(path)!r}: a run's checkpoints must lie below the DAG's directory"
        raise PlanError(text)
    return str(relative)


def _run_directory(directory: Path, path: str, uuid: str) -> str:
    """The directory that contains ``checkpoints/``.

    ``path`` may be a checkpoint file, its directory, or the directory above those of all runs.
    """
    relative = PurePosixPath(path)
    if relative.suffix == ".ckpt":
        relative = relative.parent
    if relative.name == "checkpoints":
        relative = relative.parent
    run_path = relative / uuid
    nested = not os.path.isdir(directory / relative / "checkpoints")
    return str(run_path if nested and os.path.isdir(directory / run_path) else relative)


def _has_checkpoint(folder: Path) -> bool:
    """Whether the directory contains a checkpoint file."""
    try:
        with os.scandir(folder / "checkpoints") as entries:
            return any(entry.name.endswith(".ckpt") and entry.is_file() for entry in entries)
    except (OSError, ValueError):
        return False


def _last_epoch(folder: Path) -> int:
    """The last epoch with a validation value in any ``version_*/metrics.csv``, or -1."""
    try:
        names = [name for name in os.listdir(folder) if _VERSION.fullmatch(name)]
    except OSError:
        return -1
    return max((_last_epoch_in(folder / name / "metrics.csv") for name in names), default=-1)


def _last_epoch_in(path: Path) -> int:
    try:
        text = read_file(os.path.realpath(path), LARGEST).decode("utf-8", "replace")
    except UnreadableFile:
        return -1
    values = read_metrics_csv(StringIO(text, newline="")).values
    validated = (epochs for name, epochs in values.items() if name.startswith("val") and epochs)
    return max(map(max, validated), default=-1)
