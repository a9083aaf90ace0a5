"""Wording: the same words on screens and in commands, and no foreign text unescaped."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from metlmon.model.states import DagState, Outcome, State
from metlmon.text import formatting
from metlmon.text.formatting import THIN
from metlmon.text.spans import to_ascii
from tests.support.sample_snapshots import RUNS


def test_states_have_unique_glyphs_and_words() -> None:
    for table, states in (
        (formatting.STATES, State),
        (formatting.OUTCOMES, Outcome),
        (formatting.DAG_STATES, DagState),
    ):
        assert set(table) == set(states)
        glyphs = [symbol.glyph for symbol in table.values()]
        for texts in (glyphs, list(map(to_ascii, glyphs)), [s.word for s in table.values()]):
            assert len(set(texts)) == len(texts), texts
        assert all(len(glyph) == len(to_ascii(glyph)) == 1 for glyph in glyphs)
        assert all(symbol.word.isascii() for symbol in table.values())


@pytest.mark.parametrize(
    ("seconds", "output_of"),
    [
        (None, "–"),
        (0, "0s"),
        (12.9, "12s"),
        (60, "1m00s"),
        (3 * 3600 + 41 * 60 + 10, "3h41m"),
        (86399, "23h59m"),
        (2 * 86400 + 4 * 3600 + 12 * 60 + 59, "2d04h"),
        (140 * 86400, "140d"),
        (-90, "-1m30s"),
    ],
)
def test_durations_are_unambiguous(seconds: float | None, output_of: str) -> None:
    assert formatting.duration(seconds) == output_of


def test_ages_have_one_unit() -> None:
    result = [formatting.age(s) for s in (None, 3, 2500, 5 * 3600 + 1, 12 * 86400, -4)]
    assert result == ["–", "3s", "41m", "5h", "12d", "0s"]


def test_large_numbers_have_separators() -> None:
    assert formatting.number(2302770316569) == f"2{THIN}302{THIN}770{THIN}316{THIN}569"
    assert to_ascii(formatting.number(5879)) == "5,879"
    assert formatting.number(412) == "412"
    assert formatting.count(1, "warning") == "1 warning"
    assert to_ascii(formatting.count(1200, "warning")) == "1,200 warnings"
    assert formatting.count(2, "entry", "entries") == "2 entries"


def test_hours_keep_significant_decimals() -> None:
    values = (None, 0, 0.001, 0.31, 0.999, 4.24, 99.94, 564.77, 3902.4)
    result = [to_ascii(formatting.hours(h)) for h in values]
    assert result == ["-", "0", "<0.01", "0.31", "1.0", "4.2", "99.9", "565", "3,902"]


@pytest.mark.parametrize(
    ("parts", "report_of"),
    [
        ((564.77, 401.01, 45.53), (("564.8", "401.0", "45.5"), "1,011.3")),
        ((0.3118, 0.1041, 0.0), (("0.312", "0.104", "0"), "0.416")),
        ((0.03, 0.004, 4.3), (("0.03", "<0.01", "4.30"), "4.33")),
        ((5879.2, 3902.4, 212.0), (("5,879.2", "3,902.4", "212.0"), "9,993.6")),
        ((10984.4, 1131.4, 0.0), (("10,984", "1,131", "0"), "12,115")),
        ((0.0, 0.0001, 0.0), (("0", "<0.001", "0"), "<0.001")),
        ((0.0, 0.0, 0.0), (("0", "0", "0"), "0")),
    ],
)
def test_hours_shown_together_have_equal_decimals(
    parts: tuple[float, ...], report_of: tuple[tuple[str, ...], str]
) -> None:
    shown, total = formatting.hours_added(parts)
    assert (tuple(map(to_ascii, shown)), to_ascii(total)) == report_of


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=4))
def test_shown_hours_add_up(parts: list[float]) -> None:
    shown, total = formatting.hours_added(parts)
    figures = [0 if "<" in part else Decimal(part.replace(THIN, "")) for part in shown]
    if "<" not in total:
        assert sum(figures) == Decimal(total.replace(THIN, ""))


@pytest.mark.parametrize(
    ("state", "done", "waits"),
    [
        (State.COMPLETED, 3, True),
        (State.SKIPPED, 3, True),
        (State.COMPLETED, 6, False),
        (State.RUNNING, 3, False),
        (State.FAILED, 3, False),
    ],
)
def test_run_between_epochs_waits_for_the_next(state: State, done: int, waits: bool) -> None:
    run = replace(RUNS[0], state=state, epochs_done=done, epochs_skipped=0, epochs_total=6)
    assert run.is_between_epochs is waits


def test_shares_round_to_0_and_100_only_if_exact() -> None:
    assert formatting.share(3902, 9781) == "40 %"
    assert formatting.share(0.2, 100) == "<1 %"
    assert formatting.share(99.9, 100) == ">99 %"
    assert formatting.share(0, 100) == "0 %"
    assert formatting.share(1, 0) == "–"


def test_sizes_in_decimal_units() -> None:
    result = [formatting.size(b) for b in (None, 512, 131493599880, 2302770316569, 999_950)]
    assert result == ["–", "512 B", "131 GB", "2.30 TB", "1.00 MB"]


def test_times_have_utc_only_if_the_log_has() -> None:
    when = datetime(2025, 11, 14, 8, 14)
    assert formatting.moment(when, 2025) == "14 Nov 08:14"
    assert formatting.moment(when, 2026) == formatting.moment(when) == "14 Nov 2025 08:14"
    assert formatting.moment(when, 2025, seconds=True) == "14 Nov 08:14:00"
    assert formatting.moment(when.replace(tzinfo=UTC), 2025) == "14 Nov 08:14 UTC"
    assert formatting.moment(None) == "–"


@pytest.mark.parametrize(
    ("device", "output_of"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA A100 80GB PCIe", "A100-80"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla V100-SXM2-32GB", "V100-32"),
        ("NVIDIA H100 80GB HBM3", "H100-80"),
        ("NVIDIA H100 PCIe", "H100"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("Quadro RTX 6000", "RTX 6000"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "A100-80 MIG 1g.10gb"),
        ("NVIDIA A40 + NVIDIA L40S", "A40+L40S"),
        ("", "–"),
        (None, "–"),
    ],
)
def test_gpu_names_are_short(device: str | None, output_of: str) -> None:
    assert formatting.gpu_short(device) == output_of


def test_gpus_have_their_number() -> None:
    assert formatting.gpus("NVIDIA A100-SXM4-40GB", 2) == "A100-40 ×2"
    assert to_ascii(formatting.gpus("NVIDIA L40S", 1)) == "L40S x1"
    assert formatting.gpus(None, 0) == "no GPU"
    assert formatting.gpus(None, None) == "–"


def test_bar_without_room_is_empty() -> None:
    assert formatting.progress_bar(5, 10, 0) == ""


@given(done=st.integers(0, 500), total=st.integers(0, 500), width=st.integers(3, 60))
def test_bar_is_full_only_when_done(done: int, total: int, width: int) -> None:
    bar = formatting.progress_bar(done, total, width)
    for shown, empty, full in ((bar, "─", "━"), (to_ascii(bar), "-", "=")):
        assert len(shown) == width
        assert (shown == full * width) == (0 < total <= done)
        assert (shown == empty * width) == (done == 0 or total == 0)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("≥4/10", "4+/10"),
        (f"≥1{THIN}234.5 h", "1,234.5+ h"),
        ("≥<0.01", "<0.01+"),
        (f"5{THIN}%", "5 %"),
        ("Delta ≠ expanse …", "Delta ! expanse ~"),
        ("模型", "????"),
    ],
)
def test_ascii_text_has_the_same_width_and_meaning(text: str, shown: str) -> None:
    assert to_ascii(text) == shown
    assert cell_len(text) == len(shown)


def test_harmless_text_is_unchanged() -> None:
    for text in ("Delta ≠ expanse", "μ=3 ± 2 °C", "模型 训练", "é", "[bold]not markup[/bold]"):
        assert formatting.plain(text) == text
    assert formatting.plain("  two   words\t three \n") == "two words three"
    assert formatting.plain("memory usage exceeded", 10) == "memory us…"
    assert to_ascii(formatting.plain("memory usage exceeded", 10)) == "memory us~"
    assert to_ascii("Zürich") == "Zurich"
    assert to_ascii("“killed”… – why?") == '"killed"~ - why?'
