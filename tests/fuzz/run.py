"""Coverage-guided fuzzing of one target: ``python tests/fuzz/run.py TARGET --minutes 5``.

libFuzzer ends its process, and instrumentation is per process: so fuzzing runs in a child. An input
that raises is a finding: it is reduced to few bytes, saved in ``fixtures/findings/<target>/`` if it
is new, and fuzzing goes on. ``--runs N --seed S`` tries the same inputs each time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
FINDINGS = ROOT / "fixtures" / "findings"

MEMORY = 3 << 30
"""Bytes of address space: an input that wants more raises MemoryError, which is a finding."""

LONGEST_SECONDS = 20
"""For one input of some KB: beyond this it hangs."""

SHRINK_SECONDS = 20.0

SEEDS_OF_BOUNDED_RUN = 25


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="one of them, or all")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=-1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, help="kept from run to run")
    parser.add_argument("--findings", type=Path, default=FINDINGS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        _fuzz(asked.findings)
        return 0
    sys.path.insert(0, str(ROOT))
    from tests.fuzz.targets import TARGETS

    names = list(TARGETS) if asked.target == "all" else [asked.target]
    with tempfile.TemporaryDirectory() as scratch:
        jobs = [_job(asked, name, Path(scratch) / name) for name in names]
        return max([*_run(asked.findings, jobs)])


# --- the parent -----------------------------------------------------------------------------


def _job(asked: argparse.Namespace, name: str, scratch: Path) -> dict[str, Any]:
    """The parameters of fuzzing one target."""
    from tests.fuzz.seeds import words_of, write_seeds
    from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    corpus, first = scratch / "corpus", scratch / "seeds"
    if asked.corpus:
        corpus = asked.corpus / name if asked.target == "all" else asked.corpus
    corpus.mkdir(parents=True, exist_ok=True)
    first.mkdir(parents=True)
    # A bounded run ends before it has tried more.
    write_seeds(name, first, SEEDS_OF_BOUNDED_RUN if asked.runs > 0 else None)
    words = scratch / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in words_of(name)))
    arguments = [
        *(str(corpus), str(first), f"-dict={words}", f"-max_len={target.longest}"),
        *(f"-seed={asked.seed or int(time.time())}", f"-timeout={LONGEST_SECONDS}"),
        f"-runs={asked.runs if asked.runs <= 0 else max(1, int(asked.runs * target.share))}",
        *("-print_final_stats=1", "-rss_limit_mb=2560", f"-artifact_prefix={scratch}/"),
    ]
    if asked.runs <= 0:
        arguments.append(f"-max_total_time={max(1, int(asked.minutes * 60))}")
    return {"name": name, "scratch": str(scratch), "arguments": arguments}


def _run(findings: Path, jobs: list[dict[str, Any]]) -> Iterator[int]:
    """Fuzz, and print the figures of each target; 1 for each that found something."""
    child = [sys.executable, __file__, "-", "--child", "--findings", str(findings)]
    done = subprocess.run(child, input=json.dumps(jobs).encode(), check=False)
    yield done.returncode and 1
    for job in jobs:
        name, scratch = job["name"], Path(job["scratch"])
        result = scratch / "output"
        found = result.read_text() if result.exists() else ""
        for path in scratch.iterdir():
            # Inputs for which libFuzzer itself ends are not reduced.
            if path.name.startswith(("timeout-", "oom-", "crash-")):
                place = findings / name / path.name[:20]
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(path.read_bytes())
                found += f"finding: {place.name}: {path.stat().st_size} bytes\n"
        text = (scratch / "log").read_text(errors="replace") if (scratch / "log").exists() else ""
        figures = _figures(text)
        print(f"{found}{name}: {figures}, {found.count('finding:')} findings")
        if "?" in figures.split()[0]:
            print(text[-3000:])
            yield 1
        yield int(bool(found))


def _escaped(word: bytes) -> str:
    return "".join(
        chr(byte) if 32 < byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word
    )


def _figures(text: str) -> str:
    units = re.findall(r"stat::number_of_executed_units:\s*(\d+)", text)
    rate = re.findall(r"stat::average_exec_per_sec:\s*(\d+)", text)
    cover = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", text)
    edges, features, corpus = cover[-1] if cover else ("?", "?", "?")
    return (
        f"{units[-1] if units else '?'} executions, {rate[-1] if rate else '?'} a second, "
        f"{edges} edges, {features} features, {corpus} inputs kept"
    )


# --- the child ------------------------------------------------------------------------------


def _fuzz(findings: Path) -> None:
    """Fuzz in one process after another, as libFuzzer ends each. Imports are instrumented once."""
    sys.path.insert(0, str(ROOT))
    import atheris

    with atheris.instrument_imports(include=["metlmon"]):
        from tests.fuzz.targets import TARGETS
    jobs = json.load(sys.stdin)
    for job in jobs:
        if os.fork() == 0:
            with open(Path(job["scratch"]) / "log", "wb") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            _one_target(job, TARGETS[job["name"]].look, findings)
        os.wait()


def _one_target(job: dict[str, Any], look: Callable[[bytes], None], findings: Path) -> NoReturn:
    import atheris

    name, output = job["name"], Path(job["scratch"]) / "output"
    known: set[str] = set()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def one(data: bytes) -> None:
        result = raised(look, data)
        if result is not None and result not in known:
            known.add(result)
            place = save(name, shrunk(look, data, result), result, findings)
            with open(output, "a") as file:
                file.write(f"finding: {place.name}: {result}\n")

    atheris.Setup([sys.argv[0], *job["arguments"]], one)
    atheris.Fuzz()
    os._exit(0)


def raised(look: Callable[[bytes], None], data: bytes) -> str | None:
    """The error that an input raises, and its place; None without one."""
    try:
        look(data)
    except (Exception, MemoryError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f for f in frames if "/metlmon/" in f.filename and "/fuzz/" not in f.filename]
        if ours and not isinstance(error, AssertionError):
            return f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}"
        if isinstance(error, AssertionError):
            return f"{str(error)[:60].split(':')[0]}"
        return f"{type(error).__name__} at {Path(frames[-1].filename).name}:{frames[-1].lineno}"
    return None


def shrunk(look: Callable[[bytes], None], data: bytes, output_of: str) -> bytes:
    """A smaller input that raises the same: pieces are removed, the larger ones first."""
    until = time.monotonic() + SHRINK_SECONDS
    size = max(1, len(data) // 2)
    while size:
        at, smaller = 0, False
        while at < len(data) and time.monotonic() < until:
            less = data[:at] + data[at + size :]
            if raised(look, less) == output_of:
                data, smaller = less, True
            else:
                at += size
        if not smaller or size > 1:
            size //= 2
        if time.monotonic() >= until:
            break
    return data


def save(target: str, data: bytes, output_of: str, findings: Path) -> Path:
    """Save a finding where the tests read it."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", output_of).strip("-").lower()[:40]
    place = findings / target / f"{words}-{hashlib.sha1(data).hexdigest()[:6]}"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return place


if __name__ == "__main__":
    sys.exit(main())
