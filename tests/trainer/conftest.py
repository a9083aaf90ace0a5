"""Small data for the bundled trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.trainer import train

Data = tuple[str, Path]


def write_table(path: Path, first: int = 0, rows: int = 1000) -> None:
    source = train.generator("a table")
    lines = ["variant\tnum_mutations\tscore"]
    for _ in range(rows):
        position = int(source.random() * len(train.WILD_TYPE))
        residue = train.ALPHABET[1 + int(source.random() * 20)]
        score = train.scores(train.rows_of({position: residue}))[0]
        lines.append(f"{train.WILD_TYPE[position]}{position + first}{residue}\t1\t{score:.4f}")
    path.write_text("\n".join([*lines, "_wt\t0\t0.0", ""]))


@pytest.fixture(scope="session", name="small")
def _small(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """The option of a table with a tenth of the usual data."""
    path = tmp_path_factory.mktemp("small") / "table.tsv"
    write_table(path, rows=400)
    return "--data", path
