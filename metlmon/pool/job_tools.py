"""HTCondor's tools for one job: ``condor_q -better-analyze`` and ``condor_tail``.

Manual: condor_q, ``-better-analyze``; condor_tail. The bindings have neither.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

from msgspec import Struct

from metlmon.pool.types import PoolError

OUTPUT_BYTES: Final = 1 << 20
"""Bytes of a tool's output that are used."""


class JobTool(Struct, frozen=True):
    """A tool: its words before the id of a job, and the seconds that it may take."""

    words: tuple[str, ...]
    seconds: float

    def command(self, job: tuple[int, int]) -> list[str]:
        """The command for a job."""
        return [*self.words, f"{job[0]}.{job[1]}"]

    def run(self, job: tuple[int, int]) -> list[str]:
        """What it prints about a job, as lines; no shell is used. Blocks; raises PoolError."""
        program, *words = self.command(job)
        tool = shutil.which(program)
        if tool is None:
            raise PoolError(f"{program} is not installed here")
        try:
            done = subprocess.run(
                [tool, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PoolError(f"{program} did not answer within {self.seconds:.0f} s") from None
        except OSError as error:
            raise PoolError(f"{program}: {error.strerror}") from None
        lines = done.stdout[:OUTPUT_BYTES].decode("utf-8", "replace").splitlines()
        if done.returncode:
            errors = done.stderr[:OUTPUT_BYTES].decode("utf-8", "replace").split("\n")
            reason = next((line.strip() for line in reversed(errors) if line.strip()), "")
            raise PoolError(f"{program}: {reason or f'exit status {done.returncode}'}")
        return lines


ANALYZE: Final = JobTool(("condor_q", "-better-analyze"), 60.0)
"""Says why a job is idle; asks the collector for every slot, some seconds in a large pool."""

TAIL: Final = JobTool(("condor_tail", "-maxbytes", "65536"), 30.0)
"""Fetches the end of a running job's output from its machine."""
