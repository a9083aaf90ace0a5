"""How fast a large ensemble is read, against what else reads the same bytes.

    python tests/bench/table.py                   # all ensembles but those of 1 GB
    python tests/bench/table.py --all             # those too: 2 GB of disk, and half an hour
    python tests/bench/table.py mix20 storm20 --rows state htcondor --times 3

Ensembles are generated below ``--directory`` when they are not there (``tests.generated.large``).
Every row is measured in a process of its own, on one core, all rows of an ensemble in turn, and
that as often as ``--times`` says: what else the machine does falls on all of them. Printed are
medians. "CPU" is what of the time was the process's own work; the rate and the ratio to
``htcondor2.JobEventLog`` (the rate's median ratio within one turn) are of that. The logs are in
the page cache: reading them from a disk is not measured. The totals that are read are held
against what the generator knows; one that differs is an error, and the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.generated.large import KINDS, cache_directory, generated  # noqa: E402

ROWS: Final = {
    "plain": "plain read",
    "count": "counting separators",
    "htcondor": "htcondor2.JobEventLog",
    "parse": "eventlog.parse",
    "skim": "eventlog.parse_fast",
    "state": "bytes to full state",
}
STATE: Final = "state"
PICTURES: Final = "pictures"
TIMES: Final = 3
HUGE: Final = "1000"
"""What names of ensembles end in that are written and read only when asked for."""

PATIENCE: Final = 1800.0

Found = dict[str, Any]


def measured(what: str, directory: Path, cache: Path, check: bool) -> Found:
    """The measurement of ``reading.py``, with its own cache directory."""
    argv = [sys.executable, str(HERE / "reading.py"), what, str(directory)]
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), "XDG_CONFIG_HOME": str(cache / "none")}
    found: Found = json.loads(
        subprocess.check_output(argv + ["--check"] * check, env=env, timeout=PATIENCE)
    )
    return found


def turns(directory: Path, rows: Sequence[str], times: int) -> dict[str, list[Found]]:
    """All rows of one ensemble, in turn."""
    found: defaultdict[str, list[Found]] = defaultdict(list)
    for turn in range(times):
        with tempfile.TemporaryDirectory() as made:
            for row in rows:
                print(f"{directory.name}: {row}, {turn + 1} of {times}", file=sys.stderr)
                one = measured(row, directory, Path(made) / row, check=turn == 0 and row == STATE)
                if "missing" in one:
                    print(f"{directory.name}: {row}: {one['missing']}", file=sys.stderr)
                else:
                    found[row].append(one)
    return found


# --- output -----------------------------------------------------------------------------------


def lines(found: dict[str, list[Found]]) -> Iterable[list[str]]:
    """Cells of the rows of one ensemble."""
    for row, name in ROWS.items():
        many = found.get(row)
        if not many:
            continue
        cpu = [one["cpu"] for one in many]
        ratios = [
            one["cpu"] / mine for one, mine in zip(found.get("htcondor", []), cpu, strict=False)
        ]
        yield [
            name,
            f"{median(one['seconds'] for one in many):.3f}",
            f"{median(cpu):.3f}",
            f"{median(one['bytes'] / 1e6 / one['cpu'] for one in many):.0f}",
            f"{median(ratios):.1f}" if ratios else "",
            f"{median(one['peak'] for one in many):.0f}",
        ]


HEADS: Final = ["", "seconds", "CPU", "MB/s", "× JobEventLog", "peak MB"]


def picture_line(many: list[Found]) -> str:
    """One sentence on the cost of snapshots."""

    def ms(key: str) -> str:
        values = [one[key] for one in many if one[key] is not None]
        return f"{1000 * median(values):.0f}" if values else "–"

    return (
        f"A picture (CPU, ms): the first {ms('first')}, when only time has passed "
        f"{ms('time passed')}, after one event {ms('one change')}."
    )


def parts_line(many: list[Found]) -> str:
    """The parts of the way to the state."""
    parts = (
        f"{part} {1000 * median(one['parts'][part] for one in many):.0f}"
        for part in many[0]["parts"]
    )
    return f"{ROWS[STATE].capitalize()} (CPU, ms): {', '.join(parts)}."


def plain_table(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    return "\n".join(
        row[0].ljust(widths[0])
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    )


def machine() -> str:
    """The date and the size of the machine, without its name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    python = platform.python_version()
    return f"{datetime.now(UTC):%Y-%m-%d}, {cores} cores, {memory:.0f} GiB, Python {python}"


def heading(directory: Path, found: dict[str, list[Found]]) -> str:
    truth = json.loads((directory / "truth.json").read_text(encoding="utf-8"))
    events = sum(truth["events"].values())
    size = next(
        (many[0]["bytes"] for many in found.values() if "bytes" in many[0]), truth["log_bytes"]
    )
    share = 100 * truth["events"].get("006", 0) / events
    return (
        f"{directory.name}: {size / 1e6:,.0f} MB of logs, {truth['epochs']:,} nodes, "
        f"{truth['jobs']:,} jobs, {sum(truth['executions'].values()):,} executions, "
        f"{share:.0f} % of the events are 006"
    )


def report(directory: Path, found: dict[str, list[Found]]) -> list[str]:
    """Print one ensemble's table; return the figures that differ from the truth."""
    print(f"\n{heading(directory, found)}\n")
    rows = list(lines(found))
    if rows:
        print(plain_table([HEADS, *rows]), flush=True)
    if many := found.get(PICTURES):
        print(f"\n{picture_line(many)}", flush=True)
    checked = found.get(STATE, [])
    if checked:
        print(f"\n{parts_line(checked)}", flush=True)
    wrong = [line for one in checked for line in one["differences"]]
    if checked and not wrong:
        figures = max(one["figures"] for one in checked)
        print(f"\nAll {figures} figures held against the generator's are its own.", flush=True)
    return [f"{directory.name}: {line}" for line in wrong]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="How fast is a large ensemble read? Prints medians and ratios."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(KINDS))
    parser.add_argument("--all", action="store_true", help="those of 1 GB too")
    parser.add_argument("--rows", nargs="+", choices=[*ROWS, PICTURES], default=[*ROWS, PICTURES])
    parser.add_argument("--times", type=int, default=TIMES, help=f"turns (default {TIMES})")
    parser.add_argument("--directory", type=Path, default=cache_directory())
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in KINDS]:
        parser.error(f"no such ensemble: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    names = given.names or [name for name in KINDS if given.all or not name.endswith(HUGE)]
    print(machine(), flush=True)
    wrong: list[str] = []
    for name in names:
        directory = generated(name, given.directory)
        wrong += report(directory, turns(directory, given.rows, given.times))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
