"""What the hours of executions are counted in: GPU-hours, or what there is instead.

An ensemble whose executions had no GPU would have 0 of them, whatever it cost: it is measured in
CPU-hours, by the ``Cpus`` of each execution's own 001, or in hours by the clock where not every
001 has them.
"""

from __future__ import annotations

from enum import StrEnum


class HourUnit(StrEnum):
    """What an hour of an execution is multiplied by."""

    GPU = "GPU"
    CPU = "CPU"
    WALL = "wall"

    @property
    def hours(self) -> str:
        """``GPU-hours``, ``CPU-hours``, ``wall-hours``."""
        return f"{self.value}-hours"

    @property
    def short(self) -> str:
        """``GPU-h``, the head of a column."""
        return f"{self.value}-h"

    def weight(self, gpus: int | None, cpus: int | None) -> int | None:
        """What the time of one execution is multiplied by; None: not known."""
        if self is HourUnit.GPU:
            return gpus
        return cpus if self is HourUnit.CPU else 1


def measure_of(executions: int, with_gpus: int, with_cpus: int) -> HourUnit:
    """How so many executions are measured, ``with_gpus`` of which had a GPU; of ``with_cpus`` the
    number of CPUs is known."""
    if with_gpus or not executions:
        return HourUnit.GPU
    return HourUnit.CPU if with_cpus == executions else HourUnit.WALL
