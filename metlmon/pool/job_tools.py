"""HTCondor's tools for one job: ``condor_q -better-analyze`` and ``condor_tail``.

Manual: condor_q, ``-better-analyze``; condor_tail. The bindings have neither.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from metlmon.pool.types import PoolError

ANALYZE_SECONDS: Final = 60.0
"""The tool queries the collector for every slot, which takes some seconds in a large pool."""

TAIL_SECONDS: Final = 30.0

TAIL_BYTES: Final = 65536

OUTPUT_BYTES: Final = 1 << 20
"""Bytes of a tool's output that are used."""


def analyze_command(job: tuple[int, int]) -> list[str]:
    """The command that says why a job is idle."""
    return ["condor_q", "-better-analyze", f"{job[0]}.{job[1]}"]


def tail_command(job: tuple[int, int], errors: bool = False) -> list[str]:
    """The command that fetches the end of a running job's output from its machine."""
    stream = ["-no-stdout", "-stderr"] if errors else []
    return ["condor_tail", "-maxbytes", str(TAIL_BYTES), *stream, f"{job[0]}.{job[1]}"]


def analyze(job: tuple[int, int]) -> list[str]:
    """Why a job is idle, as lines. Blocks on schedd and collector; raises PoolError."""
    return _run(analyze_command(job), ANALYZE_SECONDS)


def tail(job: tuple[int, int], errors: bool = False) -> list[str]:
    """The end of a running job's output or error file as lines. Blocks; raises PoolError."""
    return _run(tail_command(job, errors), TAIL_SECONDS)


def _run(command: Sequence[str], seconds: float) -> list[str]:
    """Run a tool, without a shell; return the lines that it prints."""
    tool = shutil.which(command[0])
    if tool is None:
        raise PoolError(f"{command[0]} is not installed here")
    try:
        done = subprocess.run(
            [tool, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PoolError(f"{command[0]} did not answer within {seconds:.0f} s") from None
    except OSError as error:
        raise PoolError(f"{command[0]}: {error.strerror}") from None
    lines = done.stdout[:OUTPUT_BYTES].decode("utf-8", "replace").splitlines()
    if done.returncode:
        errors = done.stderr[:OUTPUT_BYTES].decode("utf-8", "replace").split("\n")
        reason = next((line.strip() for line in reversed(errors) if line.strip()), "")
        raise PoolError(f"{command[0]}: {reason or f'exit status {done.returncode}'}")
    return lines
