"""The user's own commands on keys: ``[[command]]`` of their ``metlmon.toml``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metlmon.config.settings import OwnCommand
from metlmon.errors import InputError
from metlmon.text.formatting import plain
from screens.actions import SCOPES, actions_of, textual_key
from screens.pool_actions import ActionScreen

if TYPE_CHECKING:
    from screens.app import MetlmonApp

HARMLESS: Final = {
    "job": re.compile(r"\d+\.\d+"),
    "run": re.compile(r"\w[\w.+:@=-]*", re.ASCII),
    "dagdir": re.compile(r"/[\w./+@=,-]*", re.ASCII),
}
"""What may replace a placeholder: no option, and nothing that a shell would interpret."""


def by_key(
    commands: Iterable[OwnCommand], keys: Mapping[str, str]
) -> tuple[dict[str, OwnCommand], dict[int, str]]:
    """The commands by Textual's names of their keys; and, by number, why others are refused."""
    taken = {
        cap: action.label
        for action in actions_of(("tabs", *SCOPES), keys=keys)
        for cap in action.keys
    }
    found: dict[str, OwnCommand] = {}
    problems: dict[int, str] = {}
    for number, command in enumerate(commands):
        if command.key in taken:
            why = f"{command.key} is the key of {taken[command.key]!r}"
            problems[number] = f"[[command]] {plain(command.name, 40)}: {why}"
            continue
        taken[command.key] = command.name
        found[textual_key(command.key)] = command
    return found, problems


def run_command(app: MetlmonApp, command: OwnCommand) -> str:
    """Give the terminal to a command until it ends; return a message about it."""
    try:
        program, *arguments = _arguments(app, command)
        with app.suspend():
            done = subprocess.run([program, *arguments], check=False)
    except (InputError, OSError) as error:
        return f"{plain(command.name, 40)}: {error}"
    app.refresh()
    return f"{plain(command.name, 40)}: exit status {done.returncode}" if done.returncode else ""


def _arguments(app: MetlmonApp, command: OwnCommand) -> list[str]:
    """The program, and its arguments without placeholders. Raises InputError."""
    program = shutil.which(Path(command.command[0]).expanduser())
    if program is None:
        raise InputError(f"{plain(command.command[0], 60)} is not installed here")
    values = _selected(app)
    words = [program]
    for word in command.command[1:]:
        name = word.strip("{}")
        if word != f"{{{name}}}" or name not in HARMLESS:
            words.append(word)
        elif not values[name]:
            raise InputError(f"no single {name} is selected here")
        elif not HARMLESS[name].fullmatch(values[name]):
            raise InputError(f"the {name} has characters that a shell would obey, or is elsewhere")
        else:
            words.append(values[name])
    return words


def _selected(app: MetlmonApp) -> dict[str, str]:
    """Job, run and dagdir by the name of their placeholder; empty for none or several.

    For a run without queued jobs, the job is its latest one.
    """
    screen = app.screen
    jobs, runs = {}, {}
    if isinstance(screen, ActionScreen):
        selection = screen.selection()
        jobs = {f"{job.cluster}.{job.proc}": job.run for job in selection.jobs}
        runs = {each.row.run: each.row.latest for each in selection.runs}
    if not jobs and len(runs) == 1:
        latest = next(iter(runs.values()))
        jobs = dict.fromkeys(f"{a}.{b}" for a, b in (latest.jobs[-1:] if latest else ()))
    names = list(runs or dict.fromkeys(filter(None, jobs.values())))
    return {
        "job": next(iter(jobs)) if len(jobs) == 1 else "",
        "run": names[0] if len(names) == 1 else "",
        "dagdir": os.path.abspath(app.feed.dagdir),
    }
