"""The metric columns of the overview."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from metlmon.config.settings import Settings
from metlmon.jobfiles.records import Point, TrainingOutput
from screens.app import AppOptions
from tests.support.dagdir_feed import dagdir_feed, sweep
from tests.support.recordings import FIXTURES
from tests.support.sample_trainings import LOST, RUNS, learning
from tests.support.screen_view import NARROW, WIDE, RunningApp, opened


def titles(seen: RunningApp, title: str = "PROGRESS") -> list[str]:
    return seen.line(title).split()


async def test_80_columns_show_whether_runs_learn() -> None:
    async with opened(learning(), size=NARROW) as seen:
        names = ["RUN", "PROGRESS", "STATE", "val_loss", "BEST", "30", "EPOCHS", "SITE"]
        assert titles(seen) == names
        row = seen.line("run1 ")
        assert "▶ running 64 %" in row
        assert row.split("%")[1].split()[2].strip("▁▂▃▄▅▆▇") == ""
        assert "✗" in seen.line(f"{LOST} ")
        assert "NaN" in seen.line(f"{LOST} ")
        starred = [line for line in seen.lines if "★" in line]
        assert len(starred) == 1
        assert "run0" in starred[0]
        assert "best 0.2" in seen.lines[-3]
        assert " in epoch 7, improves" in seen.lines[-3]


async def test_new_value_repaints_only_its_row() -> None:
    feed = learning()
    async with opened(feed, size=WIDE) as seen:
        before = seen.lines
        key = RUNS[1].key
        longer = (*feed.written[key].metrics["val_loss"], Point(6, 0.001, 6, "x"))
        feed.written = {**feed.written, key: TrainingOutput(key, {"val_loss": longer}, {}, {})}
        later = feed.latest
        status = replace(later.status, as_of=later.status.as_of + timedelta(seconds=9))  # type: ignore[operator]
        seen.app.stats._wake.set()
        await seen.publish(replace(later, status=status))
        await seen.until(lambda: "★run1" in seen.text)
        pairs = zip(before[7:-4], seen.lines[7:-4], strict=True)
        rows = {a[2:7] for a, b in pairs if a != b and not a.startswith("│")}
        # Another run is the best now.
        assert {name.strip() for name in rows} == {"run0", "run1"}
        assert before[6] == seen.lines[6], "columns stay where they are"


async def test_nan_and_none_sort_last(tmp_path: Path) -> None:
    feed = learning()
    feed.written = {key: output for key, output in feed.written.items() if key != RUNS[3].key}
    async with opened(feed, size=WIDE, options=AppOptions(state_file=tmp_path / "x")) as seen:
        await seen.press("asterisk")
        place = next(i for i, line in enumerate(seen.lines) if "val_loss" in line and "[x]" in line)
        first = next(i for i, line in enumerate(seen.lines) if "[x]" in line and "RUN" in line)
        await seen.press(*["down"] * (place - first), "enter")
        assert "by val_loss" in seen.text
        rows = [line[2:7].strip() for line in seen.lines if line[2:5] == "run"]
        order = list(dict.fromkeys(rows))
        assert order[-2:] == [LOST, "run3"]
        curves = {row.run: feed.written[row.key] for row in RUNS if row.key in feed.written}
        last = [curves[name].metrics["val_loss"][-1].value for name in order[:-2]]
        assert last == sorted(last)


async def test_sweep_shows_its_variables() -> None:
    async with opened(dagdir_feed(sweep()), size=WIDE) as seen:
        assert titles(seen)[:5] == ["RUN", "UUID", "lr", "width", "PROGRESS"]
        assert "3e-4" in seen.line("run07 ")
        assert " 128 " in seen.line("run07 ")


async def test_chosen_columns_override_the_settings(tmp_path: Path) -> None:
    """The stored choice overrides metlmon.toml column by column."""
    options = AppOptions(state_file=tmp_path / "lists.json")
    feed = learning()
    feed.set = Settings(columns=(("overview", ("BEST", "state", "val_loss")),))
    async with opened(feed, size=WIDE, options=options) as seen:
        assert titles(seen, "STATE") == ["RUN", "BEST", "STATE", "val_loss"]
        await seen.press("asterisk")
        lines = [line for line in seen.lines if "[x]" in line or "[ ]" in line]
        gpu = next(i for i, line in enumerate(lines) if " GPU " in line)
        assert "[ ]" in lines[gpu]
        await seen.press(*["down"] * gpu, "space", *["up"] * gpu)
        best = next(i for i, line in enumerate(lines) if " BEST " in line)
        await seen.press(*["down"] * best, "space", "escape")
        assert titles(seen, "STATE") == ["RUN", "STATE", "val_loss", "GPU"]
    feed = learning()
    feed.set = Settings(columns=(("overview", ("BEST", "progress")),))
    async with opened(feed, size=WIDE, options=options) as seen:
        assert titles(seen, "PROGRESS") == ["RUN", "PROGRESS", "GPU"]


async def test_badput_has_one_form_in_all_rows() -> None:
    """Hours and their share if all columns fit, else the share only."""
    for size in (NARROW, (120, 40), (110, 40), WIDE):
        async with opened(dagdir_feed(FIXTURES / "demo"), size=size) as seen:
            if "BADPUT" not in titles(seen):
                continue
            end = seen.line("BADPUT").index("BADPUT") + 6
            cells = [line[end - 12 : end] for line in seen.lines if line[2:5] == "run"]
            assert len(cells) == 6
            assert len({"." in cell for cell in cells}) == 1, cells
