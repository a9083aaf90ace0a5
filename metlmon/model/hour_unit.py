"""The unit for the total time of executions: GPU-hours, or a substitute.

The GPU-hours of an ensemble without GPUs would be 0, whatever it cost: its unit is CPU-hours, by
the ``Cpus`` in the 001 of each execution, or wall-clock hours if not every 001 has them.
"""

from __future__ import annotations

from enum import StrEnum


class HourUnit(StrEnum):
    """Unit of the time of executions."""

    GPU = "GPU"
    CPU = "CPU"
    WALL = "wall"

    @property
    def hours(self) -> str:
        """``GPU-hours``, ``CPU-hours``, ``wall-hours``."""
        return f"{self.value}-hours"

    @property
    def short(self) -> str:
        """``GPU-h``, for column headings."""
        return f"{self.value}-h"

    def weight(self, gpus: int | None, cpus: int | None) -> int | None:
        """Factor for the time of one execution; None if unknown."""
        if self is HourUnit.GPU:
            return gpus
        return cpus if self is HourUnit.CPU else 1


def hour_unit_of(executions: int, with_gpus: int, with_cpus: int) -> HourUnit:
    """The unit for a set of executions.

    ``with_gpus``: number of executions with a GPU. ``with_cpus``: number of executions with a
    known number of CPUs.
    """
    if with_gpus or not executions:
        return HourUnit.GPU
    return HourUnit.CPU if with_cpus == executions else HourUnit.WALL
