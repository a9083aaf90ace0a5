"""``metlmon config``: what is set, where it is read from, what is wrong with it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.json_output.objects import SCHEMA, JsonObject
from metlmon.cli.output import print_json
from metlmon.config.loader import Configuration, SettingEntry, Source, load_configuration
from metlmon.config.toml_file import SettingProblem
from metlmon.live.cache import cache_directory
from metlmon.redact import hide_value
from metlmon.text.formatting import count, plain

TEXT_LIMIT: Final = 400
"""Characters of one cell or sentence; ``--json`` has them whole."""

COLUMN_LIMIT: Final = 44
"""Characters of a column: what stands further out on the right is not found by the eye."""

ORIGINS: Final = {"user": "your own", "dagdir": "this dagdir's", "built-in": "built in"}

SETTINGS_FILE: Final = JsonObject(
    "SettingsFile",
    Source,
    "A file that settings are read from; origin: user or dagdir.",
    "origin path exists",
)
SETTING: Final = JsonObject(
    "Setting",
    SettingEntry,
    "A setting, and where it comes from.",
    "key origin path line",
    given={"value": Any},
)
SETTING_ERROR: Final = JsonObject(
    "SettingError",
    SettingProblem,
    "What is wrong in a file of settings.",
    "path line message",
    computed={"key": (str | None, lambda problem: problem.key or None)},
)
CONFIG_OUTPUT: Final = JsonObject(
    "ConfigOutput",
    None,
    "metlmon config --json. cache with path only, settings with show only, valid and errors with "
    "show and validate.",
    given={"schema": int, "dagdir": str, "files": [SETTINGS_FILE]},
    optional={
        "cache": str | None,
        "settings": [SETTING],
        "valid": bool,
        "errors": [SETTING_ERROR],
    },
)


def config(options: argparse.Namespace) -> int:
    """``metlmon config show|path|validate``."""
    path = Path(options.dir)
    dagdir = path.parent if path.is_file() else path
    found = load_configuration(dagdir)
    wrong = Exit.USAGE if found.problems else Exit.OK
    if options.json:
        print_json(_json(options.what, str(dagdir), found))
    elif options.what == "path":
        _print_files(found)
    elif options.what == "validate":
        _print_verdict(found)
    else:
        _print_settings(found)
    # ``path`` is asked by who wants to mend a file: that it is broken is not its concern.
    return Exit.OK if options.what == "path" else wrong


def _json(what: str, dagdir: str, found: Configuration) -> dict[str, Any]:
    values: dict[str, Any] = {"schema": SCHEMA, "dagdir": dagdir, "files": found.sources}
    if what == "path":
        cache = cache_directory()
        return CONFIG_OUTPUT.write(None, cache=None if cache is None else str(cache), **values)
    values |= {"valid": not found.problems, "errors": found.problems}
    if what == "show":
        values["settings"] = [
            SETTING.write(entry, value=_without_keys(entry.key, entry.value))
            for entry in found.entries
        ]
    return CONFIG_OUTPUT.write(None, **values)


# --- for people ---------------------------------------------------------------------------


def _say(text: str) -> None:
    print(plain(text, TEXT_LIMIT))


def _print_columns(rows: list[tuple[str, ...]]) -> None:
    """Cells under each other; one that is wider than most stands out of its column."""
    shown = [tuple(plain(cell, TEXT_LIMIT) for cell in row) for row in rows]
    columns = list(zip(*shown, strict=True))[:-1]
    widths = [min(COLUMN_LIMIT, max(map(len, column))) for column in columns]
    for *cells, last in shown:
        padded = [f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=True)]
        print("".join(padded) + last)


def _print_files(found: Configuration) -> None:
    """The files that are looked at, in the order in which they win."""
    _print_columns(
        [
            (
                str(source.path),
                "is read" if source.exists else "is not there",
                ORIGINS[source.origin],
            )
            for source in reversed(found.sources)
        ]
    )
    cache = cache_directory()
    if cache is not None:
        _say(f"{cache}  what was read of large logs, for the next time; it can be removed")


def _print_verdict(found: Configuration) -> None:
    read = [source for source in found.sources if source.exists]
    for complaint in found.problems:
        _say(str(complaint))
    if found.problems:
        _say(f"{count(len(found.problems), 'error')}: no command will run before they are mended")
    elif read:
        files = " and ".join(str(source.path) for source in reversed(read))
        _say(f"{files}: no errors")
    else:
        _say("nothing to validate: there is no metlmon.toml; metlmon config path says where")


def _print_settings(found: Configuration) -> None:
    _print_columns([(_named(each), _shown(each), _from(each)) for each in found.entries])
    for complaint in found.problems:
        print(f"metlmon: {plain(str(complaint), TEXT_LIMIT)}", file=sys.stderr)


def _named(entry: SettingEntry) -> str:
    """As its header stands in the file."""
    if entry.number is not None:
        return f"[[{entry.key}]]"
    is_table = entry.key.endswith("_aliases") or entry.key == "keys"
    return f"[{entry.key}]" if is_table else entry.key


def _shown(entry: SettingEntry) -> str:
    """Its value on one line, as one would write it."""
    match _without_keys(entry.key, entry.value):
        case {"host": host, "name": name}:
            return f"{host} {_arrow()} {name}"
        case {"logged": logged, "shown": shown}:
            return f"{logged} {_arrow()} {shown}"
        case {"action": action, "key": key}:
            return f"{action} {_arrow()} {key}"
        case {"name": name, "runs": runs}:
            return f"{name}: {', '.join(runs) or 'no runs'}"
        case {"name": name, "file": file, "pattern": pattern}:
            return f"{name} in {file}: {pattern}"
        case None:
            return "not set"
        case str(text):
            return text
        case value:
            return json.dumps(value, ensure_ascii=False)


def _without_keys(key: str, value: Any) -> Any:
    """A value as TOML has it; what looks like a key goes out of its texts."""
    if isinstance(value, str):
        return hide_value(key, value)
    if isinstance(value, dict):
        return {name: _without_keys(name, one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_keys(key, one) for one in value]
    return value


def _arrow() -> str:
    return "→"


def _from(entry: SettingEntry) -> str:
    if entry.path is None:
        return ORIGINS[entry.origin]
    line = f":{entry.line}" if entry.line is not None else ""
    return f"{ORIGINS[entry.origin]}, {entry.path}{line}"
