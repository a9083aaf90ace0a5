"""Every --json output of every fixture and example, to compare before and after a refactoring.

    python -m tests.outputs write DIR        # one file for each command and directory
    python -m tests.outputs compare OLD NEW  # field by field; exit status 1 where they differ

Values are equal, or both sentences (texts with a blank in them): sentences may get better words.
Fields may be added, never taken away.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PLACES: Final = (ROOT / "fixtures", ROOT.parent / "shared" / "examples")

COMMANDS: Final = (
    *("status", "jobs", "nodes", "sites", "timeline", "curves", "grid", "shards", "estimate"),
    *("report", "check", "config"),
)


def dagdirs() -> Iterator[tuple[str, Path]]:
    """The directories with a DAG file below the fixtures and the examples, by name."""
    for place in PLACES:
        for directory in sorted({file.parent for file in place.rglob("*.dag")}):
            yield str(directory.relative_to(place.parent)).replace("/", "_"), directory


def output_of(command: str, directory: Path) -> str:
    """What ``metlmon COMMAND DIRECTORY --json`` prints, its warnings behind it."""
    from metlmon.cli.main import main

    words = ["config", "show"] if command == "config" else [command]
    live = ["--no-live"] if command not in ("check", "config") else []
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: object = main([*words, str(directory), "--json", *live])
        except SystemExit as ended:
            code = ended.code
    return f"{out.getvalue()}\nexit {code}\n{err.getvalue()}"


def write_one(job: tuple[str, Path, str, Path]) -> None:
    name, directory, command, target = job
    os.environ.update(
        TZ="UTC", XDG_CACHE_HOME=str(target / "cache"), XDG_CONFIG_HOME="/nonexistent"
    )
    text = output_of(command, directory).replace(str(ROOT), "ROOT")
    (target / f"{name}.{command}").write_text(text)


def write(target: Path) -> int:
    target.mkdir(parents=True, exist_ok=True)
    jobs = [(name, path, command, target) for name, path in dagdirs() for command in COMMANDS]
    with ProcessPoolExecutor() as pool:
        list(pool.map(write_one, jobs))
    print(f"{len(jobs)} outputs written to {target}")
    return 0


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """Fields that are gone, and values that differ and are no sentences."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            if key not in new:
                yield f"{where}.{key}: gone"
            else:
                yield from differences(old[key], new[key], f"{where}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from differences(a, b, f"{where}[{index}]")
    elif old != new and not (is_sentence(old) and is_sentence(new)):
        yield f"{where}: {old!r} -> {new!r}"[:300]


def is_sentence(value: object) -> bool:
    return isinstance(value, str) and " " in value


def read(file: Path) -> tuple[Any, str]:
    """The JSON object of an output, None where it printed none, and its exit status."""
    text, _, rest = file.read_text().partition("\nexit ")
    try:
        return json.loads(text), rest.partition("\n")[0]
    except json.JSONDecodeError:
        return None, rest.partition("\n")[0]


def compare(old: Path, new: Path) -> int:
    files = sorted(file.name for file in old.iterdir() if file.is_file())
    found = []
    for name in files:
        if not (new / name).exists():
            found.append(f"{name}: missing")
            continue
        (a, a_code), (b, b_code) = read(old / name), read(new / name)
        found += [f"{name}{each}" for each in differences([a, a_code], [b, b_code])]
    for each in found[:100]:
        print(each)
    print(f"{len(files)} outputs, {len(found)} differences")
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["write", "compare"])
    parser.add_argument("directories", nargs="+", type=Path)
    given = parser.parse_args()
    return write(*given.directories) if given.action == "write" else compare(*given.directories)


if __name__ == "__main__":
    sys.exit(main())
