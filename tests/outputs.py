"""Output of commands and screens for every fixture, to compare before and after a refactoring.

    python -m tests.outputs write DIR [--of PLACE ...]    # a file for each output
    python -m tests.outputs compare OLD NEW   # exit status 1 where they differ

Outputs are those of commands with and without ``--json``, also as of a time in the middle, tables
of ``export``, and the text of screens at 80×24 and 200×50. JSON is compared field by field: fields
may be added, numbers rounded otherwise, and sentences (texts with a blank in them) reworded. Texts
are compared line by line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from difflib import unified_diff
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
SHARED: Final = ROOT.parent / "shared"
PLACES: Final = (
    *(ROOT / "fixtures", SHARED / "examples", SHARED / "cases"),
    *(SHARED / "conformance" / "dags", SHARED / "conformance" / "logs"),
)
SECONDS: Final = 120
"""How long one output may take."""

OF_LOGS: Final = (
    *("jobs", "nodes", "sites", "usage", "annexes", "timeline", "changes", "curves", "estimate"),
    "report",
)
OF_DIRECTORIES: Final = ("status", *OF_LOGS, "health", "grid", "shards", "advise")
OF_A_MOMENT: Final = ("status", "jobs", "sites", "health")
SIZES: Final = ((80, 24), (200, 50))
EXPORTS: Final = ("csv", "openmetrics")
TIME: Final = re.compile(rb"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")


def inputs(places: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """The directories with a DAG file below ``places``, and their logs elsewhere, by name."""
    for place in places:
        directories = sorted({file.parent for file in place.rglob("*.dag")})
        logs = [] if directories else sorted(each for each in place.rglob("*") if is_log(each))
        for path in directories or logs:
            yield str(path.relative_to(place.parent)).replace("/", "_"), path


def is_log(path: Path) -> bool:
    return path.is_file() and path.suffix not in (".json", ".md")


def write_all_of(job: tuple[str, Path, Path]) -> int:
    """Write all outputs of one input; returns how many."""
    from tests.support.shared_readers import shared_readers

    name, path, target = job
    os.environ.update(
        TZ="UTC",
        XDG_CACHE_HOME=str(target / "cache"),
        XDG_CONFIG_HOME="/nonexistent",
        XDG_STATE_HOME="/nonexistent",
        CONDOR_CONFIG="/nonexistent",
        COLUMNS="200",
        NO_COLOR="1",
    )
    count = 0
    with shared_readers(lambda path: True):
        for output, make in outputs(path):
            text = limited(make).replace(str(ROOT), "ROOT").replace(f"{target}/", "TARGET/")
            (target / f"{name}.{output}").write_text(text, errors="surrogateescape")
            count += 1
    return count


def limited(make: Callable[[], str]) -> str:
    """An output, or the reason of its absence."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    try:
        return make()
    except Exception:
        return f"{traceback.format_exc()}\n"
    finally:
        signal.alarm(0)


def outputs(path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """The name of each output of an input, and the function that makes it."""

    def both(name: str, *words: str) -> Iterator[tuple[str, Callable[[], str]]]:
        yield name, partial(printed, *words, "--json")
        yield f"{name}.txt", partial(printed, *words)

    still = (str(path), "--no-live")
    for command in OF_DIRECTORIES if path.is_dir() else OF_LOGS:
        yield from both(command, command, *still)
    if not path.is_dir():
        return
    yield "check", partial(printed, "check", str(path), "--json")
    yield "config", partial(printed, "config", "show", str(path), "--json")
    yield "continue", partial(printed, "continue", str(path), "--dry-run", "--json")
    moment = middle(path)
    for command in OF_A_MOMENT if moment else ():
        yield f"{command}-then", partial(printed, command, str(path), "--as-of", moment, "--json")
    runs = run_names(path)
    for number in dict.fromkeys((0, len(runs) - 1)) if runs else ():
        yield from both(f"run{number}", "run", runs[number], *still)
    if len(runs) > 1:
        yield from both("compare", "compare", runs[0], runs[-1], *still)
    for target in EXPORTS:
        yield f"export-{target}.txt", partial(exported, target, *still)
    for columns, rows in SIZES:
        yield f"screens-{columns}x{rows}.txt", partial(screen_texts, path, (columns, rows))


def middle(directory: Path) -> str:
    """The time in the middle of all that the logs of a directory have; empty if they have none."""
    found = [time for log in sorted(directory.rglob("*.log")) for time in TIME.findall(log_of(log))]
    return sorted(found)[len(found) // 2].decode().replace(" ", "T") if found else ""


def log_of(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def run_names(path: Path) -> list[str]:
    """The names of an ensemble's runs that a command takes, in the order of the overview."""
    text = printed("status", str(path), "--no-live", "--json")
    status = json_of(text)
    runs = status.get("runs", ()) if isinstance(status, dict) else ()
    return [each.get("uuid") or each.get("name") or each.get("run") for each in runs]


def printed(*words: str) -> str:
    """The output of ``metlmon WORDS``, followed by its exit status and warnings."""
    from metlmon.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: object = main(words)
        except SystemExit as ended:
            code = ended.code
    return f"{out.getvalue()}\nexit {code}\n{err.getvalue()}"


def exported(to: str, *words: str) -> str:
    """The output or file of ``metlmon export --to TO``."""
    if to == "openmetrics":
        return printed("export", *words, "--to", to)
    with TemporaryDirectory() as place:
        said = printed("export", *words, "--to", to, "--out", place, "--force")
        files = sorted(Path(place).iterdir())
        return said.replace(place, "OUT") + "".join(
            f"== {file.name}\n{file.read_text()}" for file in files
        )


def screen_texts(path: Path, size: tuple[int, int]) -> str:
    return asyncio.run(screens_of(path, size))


async def screens_of(path: Path, size: tuple[int, int]) -> str:
    """The text of each screen reachable by keys from the overview."""
    from metlmon.config.loader import load_settings
    from metlmon.live.dagdir_reader import DagdirReader
    from tests.support.screen_view import VISITS
    from tests.support.static_sessions import StaticSession, opened

    reader = DagdirReader(path, load_settings(path), live=False)
    reader.open()
    reader.read_all()
    feed = StaticSession(reader)
    feed.take()
    visits = (*VISITS, ("3", "enter"), ("2", "enter"), ("space", "down", "space", "ampersand"))
    shown = []
    async with opened(feed, size) as seen:
        shown.append(f"== overview\n{seen.text}")
        for keys in visits:
            for position, key in enumerate(keys):
                await seen.press(key)
                shown.append(f"== {' '.join(keys[: position + 1])}\n{seen.text}")
            for _ in range(len(keys) + 1):
                if len(seen.app.screen_stack) > 2 or keys[0] in ("slash", "space"):
                    await seen.press("escape")
    return "\n".join("\n".join(map(str.rstrip, each.splitlines())) for each in shown) + "\n"


def write(target: Path, places: Sequence[Path]) -> int:
    target.mkdir(parents=True, exist_ok=True)
    jobs = [(name, path, target.resolve()) for name, path in inputs(places)]
    with ProcessPoolExecutor(2) as pool:
        count = sum(pool.map(write_all_of, jobs))
    print(f"{count} outputs of {len(jobs)} inputs written to {target}")
    return 0


# --- comparing ------------------------------------------------------------------------------


def flattened(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value of a JSON object by its path, including empty objects and lists."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from flattened(each, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for index, each in enumerate(value):
            yield from flattened(each, f"{path}[{index}]")
    else:
        yield path, value


def json_differences(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Where two JSON outputs differ: the path without numbers, and the difference."""
    before, after = (dict(flattened(json_of(text))) for text in (old, new))
    for path, value in before.items():
        general = re.sub(r"\[\d+\]", "[]", path)
        if path not in after:
            yield general, f"{path}: gone, was {value!r}"
        elif not are_equal(value, after[path]):
            yield general, f"{path}: {value!r} -> {after[path]!r}"
    if exit_of(old) != exit_of(new):
        yield "exit", f"exit status {exit_of(old)} -> {exit_of(new)}"


def are_equal(old: object, new: object) -> bool:
    """Whether two values are equal, both sentences, or one number rounded in two ways."""
    if isinstance(old, float | int) and isinstance(new, float | int):
        roundings = (new, round(new, 3), round(new, 4), round(new, 6))
        return old in roundings or float(f"{old:.12g}") == new
    return old == new or (is_sentence(old) and is_sentence(new))


def text_differences(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Where two texts differ: the screen (the line that begins with ``==``), and some lines."""
    before, after = sections(old), sections(new)
    for name, lines in before.items():
        if name not in after:
            yield f"[{name}]", f" [{name}] gone"
        elif lines != after[name]:
            found = list(unified_diff(lines, after[name], lineterm="", n=0))[2:]
            changed = [line for line in found if not line.startswith("@@")]
            shown = "\n    ".join(changed[:6])
            yield f"[{name}]", f" [{name}] {len(changed)} lines:\n    {shown}"


def sections(text: str) -> dict[str, list[str]]:
    """The lines of a text by the titles (``== TITLE``) above them."""
    result: dict[str, list[str]] = {}
    lines = result.setdefault("", [])
    for line in text.splitlines():
        if line.startswith("== "):
            lines = result.setdefault(line[3:], [])
        else:
            lines.append(line)
    return result


def is_sentence(value: object) -> bool:
    return isinstance(value, str) and " " in value


def json_of(text: str) -> Any:
    """The JSON object that was printed, None where there is none."""
    try:
        return json.loads(text.partition("\nexit ")[0])
    except json.JSONDecodeError:
        return None


def exit_of(text: str) -> str:
    return text.partition("\nexit ")[2].partition("\n")[0]


def compare(old: Path, new: Path) -> int:
    """Print each kind of difference with its first example; returns the exit status."""
    files = sorted(file.name for file in old.iterdir() if file.is_file())
    found: dict[tuple[str, str], list[str]] = {}
    for name in files:
        plain = name.endswith(".txt")
        output = name.removesuffix(".txt").rpartition(".")[2]
        command = re.sub(r"(?<=run)\d+$|-then$", "", output)
        kind = f"{command}.txt" if plain else command
        if not (new / name).exists():
            found.setdefault((kind, "missing"), []).append(name)
            continue
        a, b = ((place / name).read_text(errors="replace") for place in (old, new))
        each = text_differences(a, b) if plain else json_differences(a, b)
        for where, difference in each:
            found.setdefault((kind, where), []).append(f"{name}{difference}"[:1500])
    for (kind, where), all_of in found.items():
        print(f"{kind} {where}: {len(all_of)} times, first {all_of[0]}")
    print(f"{len(files)} outputs, {sum(map(len, found.values()))} differences")
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    writing = actions.add_parser("write")
    writing.add_argument("target", type=Path)
    writing.add_argument("--of", type=Path, nargs="+", default=PLACES)
    comparing = actions.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    given = parser.parse_args()
    if given.action == "write":
        return write(given.target, given.of)
    return compare(given.old, given.new)


if __name__ == "__main__":
    sys.exit(main())
