"""``metlmon config``: what is set, where it is read from, what is wrong with it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.output import print_json
from metlmon.config.loader import Configuration, SettingEntry, Source, load_configuration
from metlmon.config.toml_file import SettingProblem
from metlmon.live.cache import cache_directory
from metlmon.redact import hide_value
from metlmon.text.formatting import count, plain

SCHEMA: Final = 1

TEXT_LIMIT: Final = 400
"""Characters of one cell or sentence; ``--json`` has them whole."""

COLUMN_LIMIT: Final = 44
"""Characters of a column: what stands further out on the right is not found by the eye."""

ORIGINS: Final = {"user": "your own", "dagdir": "this dagdir's", "built-in": "built in"}


def config(options: argparse.Namespace) -> int:
    """``metlmon config show|path|validate``."""
    path = Path(options.dir)
    dagdir = path.parent if path.is_file() else path
    found = load_configuration(dagdir)
    wrong = Exit.USAGE if found.problems else Exit.OK
    if options.json:
        print_json(_as_json(options.what, str(dagdir), found))
    elif options.what == "path":
        _print_files(found)
    elif options.what == "validate":
        _print_verdict(found)
    else:
        _print_settings(found)
    # ``path`` is asked by who wants to mend a file: that it is broken is not its concern.
    return Exit.OK if options.what == "path" else wrong


# --- as JSON ------------------------------------------------------------------------------


def _as_json(what: str, dagdir: str, found: Configuration) -> dict[str, Any]:
    said: dict[str, Any] = {
        "schema": SCHEMA,
        "dagdir": dagdir,
        "files": [_source(source) for source in found.sources],
    }
    if what == "path":
        cache = cache_directory()
        said["cache"] = str(cache) if cache is not None else None
    if what == "show":
        said["settings"] = [_entry(entry) for entry in found.entries]
    if what != "path":
        said["valid"] = not found.problems
        said["errors"] = [_complaint(complaint) for complaint in found.problems]
    return said


def _source(source: Source) -> dict[str, Any]:
    return {"origin": source.origin, "path": str(source.path), "exists": source.exists}


def _entry(entry: SettingEntry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "value": _without_keys(entry.key, entry.value),
        "origin": entry.origin,
        "path": str(entry.path) if entry.path is not None else None,
        "line": entry.line,
    }


def _complaint(complaint: SettingProblem) -> dict[str, Any]:
    return {
        "path": str(complaint.path),
        "line": complaint.line,
        "key": complaint.key or None,
        "message": complaint.message,
    }


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
    return f"[{entry.key}]" if entry.key.endswith("_aliases") else entry.key


def _shown(entry: SettingEntry) -> str:
    """Its value on one line, as one would write it."""
    match _without_keys(entry.key, entry.value):
        case {"host": host, "name": name}:
            return f"{host} {_arrow()} {name}"
        case {"logged": logged, "shown": shown}:
            return f"{logged} {_arrow()} {shown}"
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
