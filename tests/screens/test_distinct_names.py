"""Long names in tables: what tells them apart stays visible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from metlmon.tables.layout import Column, distinct_texts, table_lines
from metlmon.text.spans import text

DETECTORS = [
    f"GW230529_data0_1369419318-7_analysis_{detector}_dynesty_arg_0"
    for detector in ("H1L1", "H1", "L1")
]


def columns() -> list[Column[str]]:
    return [
        Column("node", "NODE", str, minimum=12, identifies=str),
        Column("why", "WHY", lambda name: "Job has gone over cgroup limit", minimum=20),
    ]


def test_names_that_differ_before_their_end_read_differently() -> None:
    for room in (12, 16, 20, 27, 33, 45):
        shown = distinct_texts(DETECTORS, room)
        assert len(set(shown.values())) == len(DETECTORS), shown
        assert all(cell_len(each) <= room for each in shown.values())


def test_rows_of_a_table_read_differently() -> None:
    for width in (60, 80, 120):
        rows = [text(each) for each in table_lines(columns(), DETECTORS, width)[1:]]
        assert len(set(rows)) == len(DETECTORS), rows


def test_a_name_that_fits_is_whole() -> None:
    first, *_ = [text(each) for each in table_lines(columns(), ["run0", "run1"], 80)[1:]]
    assert first.startswith("run0  ")


@given(
    st.text("ab_-", max_size=40),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=2, max_size=6, unique=True),
    st.text("ab_-", max_size=40),
    st.integers(14, 60),
)
def test_different_names_give_different_texts(
    start: str, different: list[str], end: str, room: int
) -> None:
    names = [f"{start}_{each}_{end}" for each in different]
    shown = distinct_texts([name for name in names if len(name) > room], room)
    texts = [shown.get(name, name) for name in names]
    assert all(cell_len(each) <= room for each in texts)
    assert len(set(texts)) == len(set(names)), texts
