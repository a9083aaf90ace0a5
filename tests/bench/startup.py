"""How long a command takes to start, and what it imports.

    python tests/bench/startup.py                 # on fixtures/demo
    python tests/bench/startup.py DIR [TIMES]     # on any dagdir

Every command is run in turn with ``python -c pass``, the interpreter's own start, so that what else
the machine does falls on all of them. Printed are milliseconds **over that start**: the median and
the least of elapsed time, and the median of CPU time, which other processes move less; "all" is
the median with the start. Modules are compiled beforehand, as they are where metlmon was installed.
``watch`` is not here: ``first_screen.py`` measures what it shows. What a command imports
``python -X importtime -m metlmon`` prints. No test asserts these.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

TIMES: Final = 15

PLAIN: Final = ("python", "-c", "pass")

GOALS: Final = {"metlmon --version": 60, "metlmon status --json DIR": 150}
"""Milliseconds over the interpreter's own start."""


@dataclass
class Measurement:
    """Elapsed and CPU seconds of one command, run by run."""

    elapsed: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def commands(directory: Path) -> dict[str, list[str]]:
    """The typed command, and what runs for it: the installed script, if there is one."""
    script = Path(sys.executable).with_name("metlmon")
    module = [sys.executable, "-m", "metlmon"]
    installed = [str(script)] if script.exists() else module
    typed = (
        *("--version", "--help", "completion bash", "config path DIR"),
        *("status --json DIR", "status DIR", "jobs --json DIR", "jobs DIR"),
        *("sites --json DIR", "sites DIR", "timeline --json DIR", "curves --json DIR"),
        *("estimate --json DIR", "report --json DIR"),
    )

    def arguments(words: str) -> list[str]:
        return [str(directory) if word == "DIR" else word for word in words.split()]

    found = {" ".join(PLAIN): [sys.executable, "-c", "pass"]}
    found |= {f"metlmon {words}": [*installed, *arguments(words)] for words in typed}
    found["python -m metlmon --version"] = [*module, "--version"]
    found["python -m metlmon status --json DIR"] = [*module, *arguments("status --json DIR")]
    return found


def environment(compiled: str) -> dict[str, str]:
    """This environment, with a writable directory for compiled modules."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**env, "PYTHONPYCACHEPREFIX": compiled, "PYTHONPATH": str(ROOT)}


def run_once(argv: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Elapsed and CPU seconds of one run, without its output."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    streams = [(os.POSIX_SPAWN_DUP2, nowhere, number) for number in (0, 1, 2)]
    begun = time.perf_counter()
    process = os.posix_spawn(argv[0], argv, env, file_actions=streams)
    _, status, used = os.wait4(process, 0)
    elapsed = time.perf_counter() - begun
    os.close(nowhere)
    if status:
        raise SystemExit(f"{' '.join(argv)}: exit status {os.waitstatus_to_exitcode(status)}")
    return elapsed, used.ru_utime + used.ru_stime


def measured(rows: dict[str, list[str]], times: int) -> dict[str, Measurement]:
    """All commands in turn, so many times."""
    found = {name: Measurement() for name in rows}
    with tempfile.TemporaryDirectory() as compiled:
        env = environment(compiled)
        for turn in range(times + 1):
            for name, argv in rows.items():
                elapsed, cpu = run_once(argv, env)
                if turn:  # The first run compiles.
                    found[name].elapsed.append(elapsed)
                    found[name].cpu.append(cpu)
    return found


def table(found: dict[str, Measurement]) -> str:
    plain = found[" ".join(PLAIN)]
    start, least = statistics.median(plain.elapsed), min(plain.elapsed)
    work = statistics.median(plain.cpu)
    lines = [f"{'milliseconds over the own start of Python':42}{'median':>7}{'least':>7}{'CPU':>7}"]
    lines[0] += f"{'all':>7}   goal"
    for name, each in found.items():
        median = statistics.median(each.elapsed)
        figures = (median - start, min(each.elapsed) - least, statistics.median(each.cpu) - work)
        if name == " ".join(PLAIN):
            figures = (median, least, work)
        goal = f"{GOALS[name]:>7}" if name in GOALS else ""
        cells = "".join(f"{1000 * value:7.0f}" for value in (*figures, median))
        lines.append(f"{name:42}{cells}{goal}")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    directory = Path(arguments[0]) if arguments else ROOT / "fixtures" / "demo"
    times = int(arguments[1]) if len(arguments) > 1 else TIMES
    print(f"{directory}, {times} runs each, Python {sys.version.split()[0]}")
    print(table(measured(commands(directory.resolve()), times)))


if __name__ == "__main__":
    main(sys.argv[1:])
