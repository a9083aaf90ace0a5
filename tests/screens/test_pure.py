"""Rows, bars and charts without a terminal."""

from __future__ import annotations

import itertools
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from metlmon.model.states import State
from metlmon.snapshot.records import GpuHours, Run
from metlmon.snapshot.row_text import name_range
from metlmon.tables import runs as runs_table
from metlmon.tables.layout import GAP, MARGIN, Column, distinct_texts, fit_columns
from metlmon.text import formatting, spans
from screens.actions import actions_of
from screens.base.screens import key_line
from screens.job import spans_by_state, state_bar
from screens.overview import gpu_hours, standstill_warning
from screens.pool_actions import executed_sites, known_sites
from screens.run import seconds_chart
from screens.theme import DARK, LIGHT, PALETTES, SIXTEEN, fitting_theme
from tests.support.event_logs import Log, of_one_job
from tests.support.records import job_at, stats_input
from tests.support.sample_snapshots import AS_OF, RUNS, epochs, job_view, status


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=16), st.integers(1, 200))
def test_every_state_has_a_part_of_the_bar(amounts: list[int], cells: int) -> None:
    shares = formatting.apportion(amounts, cells)
    assert sum(shares) == cells
    if cells >= len(amounts):
        assert min(shares) >= 1


def test_counts_drop_words_before_numbers() -> None:
    states = status().epoch_states
    for cells in (200, 100, 80, 60):
        result = spans.text(runs_table.state_counts(states, cells))
        assert len(result) <= cells
        for number in ("143", "149"):
            assert number in result
        assert "held" in result, "what needs attention keeps its word longest"


def test_ended_ensemble_has_no_running_count() -> None:
    ended = {State.COMPLETED: 4, State.SKIPPED: 1, State.FAILED: 1, State.FUTILE: 2}
    counts = "✓ 4 done   – 1 skipped   ✗ 1 failed   ⊘ 2 futile"
    assert spans.text(runs_table.state_counts(ended, 80)) == counts
    waiting = spans.text(runs_table.state_counts(ended | {State.WAITING: 3}, 80))
    assert "▶ 0 running" in waiting
    hours = GpuHours(4.0, 1.0)
    assert "running" not in spans.text(gpu_hours(hours))
    assert "2.00 running" in spans.text(gpu_hours(replace(hours, running=2.0)))


def test_bar_shrinks_before_the_words_of_the_counts() -> None:
    states = {State.COMPLETED: 5, State.RUNNING: 4, State.IDLE: 1, State.HELD: 1, State.WAITING: 19}
    few = replace(status(), epoch_states=states)
    counts = "✓ 5 done  ▶ 4 running  ◦ 1 idle  ■ 1 held  · 19 waiting"
    line = spans.text(runs_table.progress_line(few, 78))
    assert line.endswith(f"30 epochs  {counts}")
    assert line.startswith("█▓░╳────  "), "a shorter bar"
    assert spans.text(runs_table.progress_line(few, 66)) == f"30 epochs  {counts}"
    many = replace(status(), epoch_states=states | {State.RETRYING: 1000, State.WAITING: 1000})
    line = spans.text(runs_table.progress_line(many, 78))
    assert line.startswith("█▓░╳"), "where no bar helps, there is one"
    assert "idle" not in line


@given(st.integers(10, 250))
def test_columns_fit_any_width(cells: int) -> None:
    specs = runs_table.columns(RUNS)
    widths = fit_columns(specs, RUNS, cells)
    assert {"run", "progress", "state"} <= set(widths)
    least = sum(spec.minimum for spec in specs if spec.name in widths)
    total = sum(widths.values()) + GAP * (len(widths) - 1) + MARGIN + 1
    assert total <= cells or {spec.drop for spec in specs if spec.name in widths} == {0}
    assert least <= sum(widths.values())


def test_column_shrinks_before_others_are_dropped() -> None:
    specs: list[Column[str]] = [
        Column("name", lambda thing: thing, comfortable=6),
        Column("more", lambda thing: "1234", drop=1),
    ]
    assert fit_columns(specs, ["a long name indeed"], 20) == {"name": 11, "more": 4}
    assert fit_columns(specs, ["a long name indeed"], 14) == {"name": 11}


def test_chart_has_its_scale_and_labels() -> None:
    rows = epochs(RUNS[1])[:4]
    rows = [replace(row, epoch=n, execution=3600.0 * (n + 1)) for n, row in enumerate(rows)]
    drawn = [spans.text(line) for line in seconds_chart(rows, 40, 4)]
    assert drawn[0].startswith("4h00m │")
    assert "██" in drawn[0]
    assert drawn[0].count("██") == 1
    assert drawn[3].count("██") == 4
    assert drawn[4].split() == ["1", "2", "3", "4"]


def test_life_of_a_job_has_its_states() -> None:
    made = spans_by_state(job_view(RUNS[1], 14700390).job, AS_OF)
    assert [stretch.state for stretch in made] == [
        State.IDLE, State.TRANSFERRING_INPUT, State.STARTING, State.RUNNING, State.IDLE,
        State.RUNNING, State.SUSPENDED, State.RUNNING, State.HELD,
    ]  # fmt: skip
    assert made[0].start == 0
    assert all(a.end == b.start for a, b in itertools.pairwise(made))
    assert made[-1].end == timedelta(days=3).total_seconds()
    assert spans.width(state_bar(made, 57)) == 57


def test_life_with_unordered_times_never_goes_back() -> None:
    job = job_view(RUNS[1], 14700390).job
    states = job.states
    early = (states[0][0] - timedelta(hours=1), State.HELD)
    states = (*states[:4], early, *states[4:])
    made = spans_by_state(job.with_states(states), AS_OF)
    assert all(stretch.end > stretch.start for stretch in made)
    assert all(a.end == b.start for a, b in itertools.pairwise(made))


@given(st.text(max_size=200), st.integers(8, 60))
def test_wrapped_text_fits_and_is_complete(text: str, cells: int) -> None:
    shown = formatting.plain(text)
    lines = spans.wrap(shown, cells)
    assert all(spans.width(line) <= max(8, cells) for line in lines)
    assert "".join("".join(map(spans.text, lines)).split()) == "".join(shown.split())


@given(st.text(max_size=40), st.integers(0, 30), st.booleans())
def test_fitted_line_has_its_exact_width(text: str, cells: int, right: bool) -> None:
    shown = spans.line(formatting.plain(text))
    made = spans.fit(shown, cells, "right" if right else "left")
    assert spans.width(made) == cells


def test_footer_keeps_the_most_important_keys() -> None:
    actions = actions_of(("list", "overview", "everywhere"))
    keys = [(action.footer, action.cap, action.label) for action in actions if action.footer]
    for cells in range(16, 140):
        made = key_line(keys, cells)
        assert spans.width(made) <= cells
        assert "q back" in spans.text(made)


def test_theme_fits_the_colours_of_its_terminal() -> None:
    assert fitting_theme("truecolor", False, None) == DARK.name
    assert fitting_theme("256", False, "0;15") == LIGHT.name
    assert fitting_theme("256", False, "15;0") == DARK.name
    assert fitting_theme("standard", False, None) == SIXTEEN.name
    assert fitting_theme("truecolor", True, None) == SIXTEEN.name
    assert fitting_theme(None, False, None) == SIXTEEN.name


def test_colours_have_enough_contrast() -> None:
    from textual.color import Color

    for theme in (DARK, LIGHT):
        shades = PALETTES[theme.name]
        for ground in (theme.background, shades.selection_background):
            for name, colour in shades.colours.items():
                contrast = _contrast(Color.parse(colour), Color.parse(ground or ""))
                assert contrast >= (4.5 if ground == theme.background else 3.0), (name, ground)


def _contrast(one: object, other: object) -> float:
    """WCAG 2's contrast ratio."""

    def luminance(colour: object) -> float:
        parts = [c / 255 for c in colour.rgb]  # type: ignore[attr-defined]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def between() -> Run:
    """A run whose latest epoch is done and whose next one is unsubmitted."""
    row = next(row for row in RUNS if row.state is State.RUNNING and row.latest is not None)
    assert row.latest is not None
    latest = replace(row.latest, state=State.COMPLETED)
    return replace(row, state=State.COMPLETED, latest=latest, epochs_done=1, epochs_total=3)


def test_run_between_epochs_is_not_complete() -> None:
    (state,) = (spec for spec in runs_table.columns([between()]) if spec.name == "state")
    assert spans.text(state.draw(between(), None)) == "✓ between epochs"
    whole = replace(between(), epochs_done=3)
    assert spans.text(state.draw(whole, None)) == "✓ completed"


def test_equally_named_runs_keep_their_dag_on_a_narrow_screen() -> None:
    twins = [replace(row, dag=dag, run="run0") for row in RUNS[:1] for dag in ("a.dag", "b.dag")]
    narrow = fit_columns(runs_table.columns(twins), twins, 80)
    assert "dag" in narrow
    assert "site" in narrow


def test_long_reason_stays_in_its_lines_below_the_table() -> None:
    held = next(row for row in RUNS if row.state is State.HELD)
    assert held.latest is not None
    wordy = replace(
        held, latest=replace(held.latest, job=job_at(None, hold="at ap40, no such file " * 40))
    )
    result = runs_table.cursor_detail(wordy, set(), 80)
    assert len(result) == runs_table.REASON_LINES
    assert all(spans.width(each) < 80 for each in result)
    assert spans.text(result[-1]).strip().startswith("…")
    assert spans.text(result[-1]).endswith("no such file"), "the error is not in the last line"
    explained = runs_table.cursor_detail(wordy, set(), 80, explained=True)
    assert "no such file" not in "".join(map(spans.text, explained)), "not twice"


@given(st.text(max_size=300), st.integers(1, 200))
def test_text_cut_in_the_middle_fits(text: str, cells: int) -> None:
    shown = spans.crop_middle(text, cells)
    assert spans.width(spans.line(shown)) <= cells
    assert spans.width(spans.line(spans.crop_middle("run0 … check", cells))) <= cells
    assert "……" not in spans.crop_middle("run0 … check", cells)


def test_range_of_long_names_has_both_ends() -> None:
    shown = name_range(f"{'x' * 70}_0", f"{'x' * 70}_19")
    assert shown.startswith("xxx"), shown
    assert shown.endswith("xx_0 … 19")


def test_other_nodes_are_shown_while_active() -> None:
    quiet = status()
    at_work = {State.RUNNING: 2, State.COMPLETED: 5}
    assert "2 running" in spans.text(runs_table.other_nodes(replace(quiet, other_states=at_work)))
    at_rest = {State.RUNNING: 0, State.COMPLETED: 5}
    assert runs_table.other_nodes(replace(quiet, other_states=at_rest)) == ()


def test_stalled_dag_is_distinct_from_a_running_one() -> None:
    only = dict.fromkeys(State, 0) | {State.COMPLETED: 4, State.WAITING: 8}
    still = replace(status(), node_states=only, live=True, as_of=AS_OF + timedelta(hours=2))
    assert spans.text(standstill_warning(still)) == "nothing is queued or running"
    queued = replace(still, node_states=only | {State.IDLE: 1})
    assert standstill_warning(queued) == ()
    over = replace(still, node_states=only | {State.WAITING: 0})
    assert standstill_warning(over) == ()
    just_now = replace(still, as_of=max(log.last for log in still.logs if log.last))
    assert standstill_warning(just_now) == ()


# --- long names in tables ---------------------------------------------------------------------


def test_names_are_cut_where_they_agree() -> None:
    names = [
        f"pretraining-lr1e-{rate}-warmup-{epochs}-long-tail"
        for rate in (3, 4)
        for epochs in (5, 10)
    ]
    shown = distinct_texts(names, 20)
    assert [shown[name].split("…")[1] for name in names] == [
        f"{rate}-warmup-{epochs}" for rate in (3, 4) for epochs in (5, 10)
    ]


@given(
    st.text("ab_-", max_size=40),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=2, max_size=6, unique=True),
    st.text("ab_-", max_size=40),
    st.integers(14, 60),
)
def test_different_names_stay_different(
    start: str, different: list[str], end: str, room: int
) -> None:
    names = [f"{start}_{each}_{end}" for each in different]
    shown = distinct_texts([name for name in names if len(name) > room], room)
    texts = [shown.get(name, name) for name in names]
    assert all(cell_len(each) <= room for each in texts)
    assert len(set(texts)) == len(set(names)), texts


def test_prompt_for_a_site_offers_sites_with_executions() -> None:
    log = Log().submit(1, "A")
    log = log.execute(1, site="anvil").evict(1).execute(1, site="delta").evict(1)
    log = log.execute(1, site="anvil").terminate(1)
    executed = executed_sites(stats_input(of_one_job(log).builder()))
    sites = known_sites((), status(()), executed, (), with_default=False)
    assert sites.keys() == {"anvil", "delta"}
    assert sites["anvil"].startswith("2 executions")
