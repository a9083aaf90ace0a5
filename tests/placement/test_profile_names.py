"""Pools keep different names in the narrowest table of profiles."""

from __future__ import annotations

from pathlib import Path

from metlmon.stats.usage import site_usage
from metlmon.tables.layout import fit_columns
from metlmon.tables.usage import profile_columns
from tests.support.records import read_dagdir, stats_input

FIRST_ROUND = Path(__file__).resolve().parents[2] / "fixtures" / "first-round"


def test_models_and_numbers_of_gpus_are_whole_at_80_columns() -> None:
    profiles = site_usage(stats_input(read_dagdir(FIRST_ROUND))).profiles
    columns = profile_columns(profiles)
    (gpu,) = (column for column in columns if column.name == "gpu")
    names = {gpu.value(row) for row in profiles}
    assert {"A100-40 SXM4", "A100-40 SXM4 ×2", "A100-40 PCIE"} <= names
    widths = fit_columns(columns, profiles, 78)
    assert widths["gpu"] >= max(map(len, names))
    assert sum(widths.values()) + 2 * (len(widths) - 1) <= 78
