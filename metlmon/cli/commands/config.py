"""``metlmon config``: the settings, their files, and mistakes in them."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from metlmon.cli import Exit
from metlmon.cli.output import Output, print_message, print_output
from metlmon.config.loader import (
    Configuration,
    SettingEntry,
    Source,
    cache_directory,
    load_configuration,
)
from metlmon.config.toml_file import SettingProblem
from metlmon.errors import InputError, nearest
from metlmon.redact import hide_value
from metlmon.text.formatting import count, plain

TEXT_LIMIT: Final = 400
"""Maximum characters of one cell or sentence; ``--json`` has the full text."""

COLUMN_LIMIT: Final = 44
"""Maximum characters of a padded column; longer cells stick out."""

OWN_COMMAND: Final = "command"
"""The setting ``[[command]]``."""

ORIGINS: Final = {"user": "your own", "dagdir": "this dagdir's", "built-in": "built in"}


class ConfigOutput(Output, frozen=True, kw_only=True):
    """``metlmon config --json``.

    ``cache`` only for path, ``settings`` only for show, ``valid`` and ``errors`` for show and
    validate.
    """

    dagdir: str
    files: tuple[Source, ...]
    cache: Path | UnsetType | None = UNSET
    settings: tuple[SettingEntry, ...] | UnsetType = UNSET
    valid: bool | UnsetType = UNSET
    errors: tuple[SettingProblem, ...] | UnsetType = UNSET


def config(options: argparse.Namespace) -> int:
    """``metlmon config show|path|validate``."""
    path = Path(options.dir)
    if not os.path.lexists(path):
        raise InputError(f"{path}: no such directory; give the directory of a DAG")
    dagdir = path.parent if path.is_file() else path
    configuration = load_configuration(dagdir)
    stops = bool(configuration.problems)
    if options.what == "validate":
        ignored = (*_taken_keys(configuration), *_unknown_names(configuration))
        problems = (*configuration.problems, *ignored)
        configuration = replace(configuration, problems=problems)
    wrong = Exit.USAGE if configuration.problems else Exit.OK
    if options.json:
        print_output(_output(options.what, str(dagdir), configuration))
    elif options.what == "path":
        _print_files(configuration)
    elif options.what == "validate":
        _print_validation(configuration, stops)
    else:
        _print_settings(configuration)
    # ``path`` is used to repair a file: errors in it do not fail the command.
    return Exit.OK if options.what == "path" else wrong


def _output(what: str, dagdir: str, configuration: Configuration) -> ConfigOutput:
    output = ConfigOutput(dagdir=dagdir, files=configuration.sources)
    if what == "path":
        return replace(output, cache=cache_directory())
    errors = configuration.problems
    output = replace(output, valid=not errors, errors=errors)
    if what == "validate":
        return output
    settings = (
        replace(entry, value=_redacted(entry.key, entry.json_value()))
        for entry in configuration.entries
    )
    return replace(output, settings=tuple(settings))


# --- for people ---------------------------------------------------------------------------


def _print_line(text: str) -> None:
    print(plain(text, TEXT_LIMIT))


def _print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in columns; cells over the limit stick out."""
    cells_of_rows = [tuple(plain(cell, TEXT_LIMIT) for cell in row) for row in rows]
    columns = list(zip(*cells_of_rows, strict=True))[:-1]
    widths = [min(COLUMN_LIMIT, max(map(len, column))) for column in columns]
    for *cells, last in cells_of_rows:
        padded = [f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=True)]
        print("".join(padded) + last)


def _print_files(configuration: Configuration) -> None:
    """Print the files, the one with the highest precedence first."""
    rows = []
    for source in reversed(configuration.sources):
        state = "is read" if source.exists else "is not there"
        rows.append((str(source.path), state, ORIGINS[source.origin]))
    _print_columns(rows)
    cache = cache_directory()
    if cache is not None:
        _print_line(f"{cache}  the lines of Home, for the next time; it can be removed")


def _taken_keys(configuration: Configuration) -> Iterator[SettingProblem]:
    """The user's own commands on keys that have an action, which the dashboard ignores."""
    own = [entry for entry in configuration.entries if entry.key == OWN_COMMAND]
    if own:
        from screens.own_commands import by_key  # Which loads the screens.

        keys = dict(configuration.settings.keys)
        for number, message in by_key((entry.value for entry in own), keys)[1].items():
            path, line = own[number].path, own[number].line
            if path is not None:
                yield SettingProblem(path, line, OWN_COMMAND, message)


def _unknown_names(configuration: Configuration) -> Iterator[SettingProblem]:
    """The names of actions and screens that the dashboard does not know, and ignores."""
    named = [entry for entry in configuration.entries if entry.key in ("keys", "columns")]
    if named:
        from screens.actions import KNOWN_NAMES

        for entry in named:
            name, known = entry.value[0], KNOWN_NAMES[entry.key]
            if name not in known and entry.path is not None:
                near = nearest(name, known)
                advice = f"; did you mean {near!r}?" if near else ""
                noun = "action" if entry.key == "keys" else "screen"
                message = f"[{entry.key}]: no {noun} is called {name!r}{advice}"
                yield SettingProblem(entry.path, entry.line, entry.key, message)


def _print_validation(configuration: Configuration, stops: bool) -> None:
    """Print the problems; ``stops``: some of them keep every command from running."""
    read = [source for source in configuration.sources if source.exists]
    for problem in configuration.problems:
        _print_line(str(problem))
    if configuration.problems:
        errors = count(len(configuration.problems), "error")
        effect = "no command will run" if stops else "the dashboard ignores these"
        _print_line(f"{errors}: {effect} until corrected")
    elif read:
        files = " and ".join(str(source.path) for source in reversed(read))
        _print_line(f"{files}: no errors")
    elif not read:
        _print_line("nothing to validate: there is no metlmon.toml; metlmon config path says where")


def _print_settings(configuration: Configuration) -> None:
    rows = []
    for entry in configuration.entries:
        # Its name is that of its header in the file.
        name, origin = entry.key, ORIGINS[entry.origin]
        if entry.number is not None:
            name = f"[[{entry.key}]]"
        elif entry.key.endswith("_aliases") or entry.key in ("keys", "columns", "advisor"):
            name = f"[{entry.key}]"
        if entry.path is not None:
            line = f":{entry.line}" if entry.line is not None else ""
            origin += f", {entry.path}{line}"
        rows.append((name, _value_text(entry), origin))
    _print_columns(rows)
    for problem in configuration.problems:
        print_message(str(problem))


def _value_text(entry: SettingEntry) -> str:
    match _redacted(entry.key, entry.json_value()):
        case {"host": host, "name": name}:
            return f"{host} → {name}"
        case {"logged": logged, "shown": shown}:
            return f"{logged} → {shown}"
        case {"action": action, "key": key}:
            return f"{action} → {key}"
        case {"screen": screen, "columns": columns}:
            return f"{screen}: {', '.join(columns)}"
        case {"name": name, "runs": runs}:
            return f"{name}: {', '.join(runs) or 'no runs'}"
        case {"name": name, "balance": balance, "charge": charge, "sites": sites, "as_of": as_of}:
            since = f", as of {as_of}" if as_of else ""
            return f"{name}: {balance:g}{since}, {charge:g} per GPU-hour at {', '.join(sites)}"
        case {"name": name, "file": file, "pattern": pattern}:
            return f"{name} in {file}: {pattern}"
        case None:
            return "not set"
        case str(text):
            return text
        case value:
            return json.dumps(value, ensure_ascii=False)


def _redacted(key: str, value: Any) -> Any:
    """A value with secrets in its texts hidden."""
    if isinstance(value, str):
        return hide_value(key, value)
    if isinstance(value, dict):
        return {name: _redacted(name, one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        # An argument may follow an option such as --token.
        names = [key, *(one.lstrip("-") if str(one)[:1] == "-" else key for one in value)]
        return [_redacted(name, one) for name, one in zip(names, value, strict=False)]
    return value
