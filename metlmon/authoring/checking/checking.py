"""All rules over all DAGs of a directory."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from metlmon.authoring.checking import (
    descriptions,
    exposed,
    files,
    horizon,
    shape,
    storage,
    syntax,
    trainings,
)
from metlmon.authoring.checking.look import Look, Shelf
from metlmon.authoring.checking.records import Checked, Findings, listed
from metlmon.dagman import Workflow, load_workflow
from metlmon.dagman.dagtext import shown
from metlmon.ensemble.settings import Settings
from metlmon.live.discovery import check_dagdir, read_workflows
from metlmon.live.errors import InputError

RULES: Final = (syntax, shape, files, descriptions, exposed, trainings, horizon, storage)


def check(path: Path, settings: Settings) -> Checked:
    """What is wrong with the DAGs in the directory ``path``, or with the DAG file ``path``.

    Only reads, and only regular files. Raises InputError where there is no DAG file.
    """
    dagdir, only = _place(path)
    shelf, found = Shelf(), Findings()
    flows = read_workflows(dagdir, only, lambda paths: load_workflow(paths, shelf.read))
    if not flows:
        raise InputError(
            f"no DAG file in {dagdir}: give the directory where one is, or the file itself"
        )
    looks = [_look(flow, dagdir, shelf, settings, found) for flow in _with_inner(flows)]
    for look in looks:
        for rule in RULES:
            rule.check(look)
    _together(looks, found)
    return Checked(tuple(_called(flow.path, dagdir) for flow in flows), found.all())


def _place(path: Path) -> tuple[Path, str | None]:
    if path.is_dir():
        check_dagdir(path)
        return path, None
    if not path.exists():
        raise InputError(f"{path}: no such file or directory; give the directory of a DAG")
    if not path.is_file():
        raise InputError(f"{path}: neither a directory nor a regular file")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return path.parent, path.name


def _with_inner(flows: list[Workflow]) -> Iterator[Workflow]:
    """The workflows and their sub-DAGs, each once."""
    seen: set[int] = set()
    ahead = list(flows)
    while ahead:
        flow = ahead.pop(0)
        if id(flow) not in seen:
            seen.add(id(flow))
            yield flow
            ahead += [inner for inner in flow.subdags if inner is not None]


def _look(flow: Workflow, dagdir: Path, shelf: Shelf, settings: Settings, found: Findings) -> Look:
    home = Path(os.path.normpath(dagdir))
    look = Look(flow, home, shelf, settings, found, _called(flow.path, dagdir))
    look.open()
    return look


def _called(path: Path, dagdir: Path) -> str:
    try:
        return str(path.relative_to(os.path.normpath(dagdir)))
    except ValueError:
        return str(path)


def _together(looks: list[Look], found: Findings) -> None:
    """What several DAGs share that each should have for itself."""
    logs: dict[str, list[Look]] = defaultdict(list)
    for look in looks:
        for log in sorted({node.log for node in look.flow.nodes.values() if node.log}):
            logs[os.path.normpath(log)].append(look)
    for log, some in logs.items():
        names: set[str] = set()
        twice = False
        for look in some:
            twice = twice or not names.isdisjoint(look.flow.nodes)
            names |= look.flow.nodes.keys()
        if twice:
            what = f"the log {shown(log)} is shared with {listed(_others(some))}, node names too"
            found.add("shared-log", some[0].name, None, what)
    for attribute in ("node_status_file", "jobstate_log"):
        written: dict[str, list[Look]] = defaultdict(list)
        for look in looks:
            if file := getattr(look.flow, attribute):
                written[os.path.normpath(file)].append(look)
        for file, some in written.items():
            if len(some) > 1:
                what = f"{listed(_others(some))} writes {shown(file)}, too"
                found.add("shared-status-file", some[0].name, None, what)


def _others(some: list[Look]) -> list[str]:
    return [shown(look.name) for look in some[1:]]
