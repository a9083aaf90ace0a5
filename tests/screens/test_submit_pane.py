"""The submit pane: typing, the preview, the confirmation, and the result."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.events import Key, Paste
from textual.keys import _character_to_key

from metlmon.authoring.request import (
    EnsembleShape,
    Evaluation,
    Policy,
    Request,
    StageRequest,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
)
from metlmon.authoring.templates import load_template
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import NullFeed
from metlmon.live.session import Session
from metlmon.pool.client import FeedAndPool
from metlmon.pool.types import PoolError, ScheddInfo
from metlmon.text.spans import text as plain_text
from screens.app import AppOptions
from screens.help import HelpScreen
from screens.overview import OverviewScreen
from screens.palette import PaletteScreen
from screens.submit import FormState, LaunchScreen, SubmitScreen, parse_form
from screens.widgets.form import FormView
from screens.widgets.line_widget import SidePane
from tests.stats.test_request_advice import dagdir
from tests.support.dagdir_feed import dagdir_feed
from tests.support.fake_pool import FakePool
from tests.support.screen_view import NARROW, WIDE, RunningApp, opened

TALL = (80, 40)
"""Columns and lines in which all fields of a form are in view."""


TEMPLATE = """\
# template: A model of one's own
# about: Learns little, and that quickly.
# parameter: rate = 0.001 | step of the optimizer
# parameter: data | a file of variants
# ship: learn.py executable
executable = learn.py
arguments = --rate {rate} --data "{data}" --epochs {epochs} --run $(run_uuid) --epoch $(epoch)
request_gpus = {gpus}
request_memory = {memory_mb}
?gpus_minimum_memory = {gpu_memory_mb}
requirements = {requirements}
ulog_execute_attrs = GLIDEIN_ResourceName
log = {name}.log
"""

LEARN = "#!/usr/bin/env python3\n\tprint('a  tab, blanks ')\r\n# " + "long " * 60 + "\nno end"

OTHER = """\
# template: Another one
# parameter: index | which
executable = other.sh
request_gpus = {gpus}
log = {name}.log
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the bundled templates ``mine`` and ``other``."""
    along = tmp_path / "templates"
    along.mkdir()
    (along / "mine.sub").write_text(TEMPLATE)
    (along / "learn.py").write_text(LEARN)
    (along / "other.sub").write_text(OTHER)
    module = sys.modules[load_template.__module__]
    monkeypatch.setattr(module, "_BUNDLED", along)
    monkeypatch.setattr(module, "_HOME", along)
    monkeypatch.setattr(module, "TEMPLATE_ORDER", ("mine", "other"))
    monkeypatch.setattr(LaunchScreen, "RESULT_SECONDS", 0.01)
    where = tmp_path / "home"
    where.mkdir()
    monkeypatch.chdir(where)
    return where


def request_at(home: Path, **changes: object) -> Request:
    """A valid request."""
    usual: dict[str, object] = {"template": "mine", "directory": home / "ens", "name": "ens"}
    return Request(**{**usual, "values": {"data": "gb1.tsv"}, **changes})  # type: ignore[arg-type]


@asynccontextmanager
async def pane(
    draft: Request | None = None,
    size: tuple[int, int] = NARROW,
    pool: FakePool | None = None,
    **options: object,
) -> AsyncIterator[RunningApp]:
    """The application as ``metlmon submit`` opens it."""
    pool = pool or FakePool()
    opts = AppOptions(submission_pool=pool, start="submit", initial_request=draft, **options)  # type: ignore[arg-type]
    async with opened(NullFeed(), size, opts) as seen:  # type: ignore[arg-type]
        if pool.gate.is_set():
            screen = seen.app.screen
            assert isinstance(screen, SubmitScreen)
            await seen.until(lambda: screen.pool_info.sites_asked is None)
        yield seen
        pool.gate.set()


async def typed(seen: RunningApp, text: str) -> None:
    """Type into the field under the cursor."""
    for character in text:
        seen.app.post_message(Key(_character_to_key(character), character))
    await seen.settle()
    await seen.settle()


async def into(seen: RunningApp, field: str, text: str) -> None:
    """Replace the text of a field."""
    seen.app.screen.query_one(FormView).select(field)
    await seen.press("ctrl+u")
    await typed(seen, text)


def row(seen: RunningApp, label: str) -> str:
    """The line of the form with this label."""
    found = [line for line in seen.lines if line[1:].strip().startswith(f"{label} ")]
    assert found, f"{label!r} is not in the form:\n{seen.text}"
    return found[0]


def there(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def previewed(lines: Sequence[object], name: str) -> str:
    """The text of a file, joined from the rows of the preview."""
    rows = [plain_text(each) for each in lines]  # type: ignore[arg-type]
    start = next(i for i, row in enumerate(rows) if row.startswith(f" {name}  ") and "──" in row)
    text = ""
    for row in rows[start + 1 :]:
        if row == "":
            return text + "\n"
        if "no line end here" in row:
            return text
        gutter, content = row[:4], row[4:]
        text += content if "↪" in gutter or gutter == "  1 " else f"\n{content}"
    return text + "\n"


# --- typing ---------------------------------------------------------------------------------


async def test_field_takes_letters_pastes_and_edits(home: Path) -> None:
    async with pane(request_at(home)) as seen:
        await into(seen, "name", "abcd")
        assert "enter next field" in seen.lines[-1]
        await seen.press("left", "left", "backspace", "X", "home", "Y", "delete", "end", "Z")
        assert "YXcdZ " in row(seen, "DAG name")
        await seen.press("ctrl+w")
        assert "YXcdZ" not in row(seen, "DAG name")
        await seen.press("down")
        assert "Shape" in seen.under_cursor
        assert "enter choose" in seen.lines[-1]
        form = seen.app.screen.query_one(FormView)
        form.select("values.data")
        await seen.press("ctrl+u")
        form.post_message(Paste("a\x1b[2Jb\x00.tsv\nrm -rf"))
        await seen.settle()
        assert seen.app.form_state.text("values.data") == "a[2Jb.tsv", "one line, no controls"
        await into(seen, "values.data", "qp?:!n$(x)/a b.tsv")
        assert isinstance(seen.app.screen, SubmitScreen)
        assert "qp?:!n$(x)/a b.tsv" in row(seen, "data")
        await seen.press("f1")
        assert isinstance(seen.app.screen, HelpScreen)
        await seen.press("escape", "ctrl+p")
        assert isinstance(seen.app.screen, PaletteScreen)
        assert "Submit, after a question" in seen.text


@pytest.mark.parametrize(
    ("keys", "left"),
    [(("end", "9"), "49"), (("home", "9"), "94"), (("left", "9"), "94"), (("backspace",), "")],
)
async def test_default_can_be_edited(home: Path, keys: tuple[str, ...], left: str) -> None:
    async with pane(request_at(home)) as seen:
        form = seen.app.screen.query_one(FormView)
        form.select("runs")
        await seen.press(*keys)
        assert form._entry.text == left


async def test_template_has_its_own_fields(home: Path) -> None:
    async with pane(request_at(home), size=TALL) as seen:
        assert "‹ mine ›" in row(seen, "Template")
        assert "0.001" in row(seen, "rate")
        await seen.press("right")
        assert "‹ other ›" in row(seen, "Template")
        assert "rate " not in seen.text
        assert "✗ index (which) has no d" in row(seen, "index")
        await seen.press("left")
        assert "gb1.tsv" in row(seen, "data"), "what was typed before was lost"


async def test_policy_is_chosen_among_four(home: Path) -> None:
    async with pane(request_at(home, sites=("Delta-GPU",)), size=WIDE) as seen:
        seen.app.screen.query_one(FormView).select("policy")
        for policy, meaning in (("permute", "each site once"), ("pin", "stays at one site")):
            await seen.press("right")
            assert f"‹ {policy} ›" in row(seen, "Policy")
            assert meaning in row(seen, "Policy")
        assert "GPU models" not in seen.text
        await seen.press("right")
        assert "stays on one GPU model" in row(seen, "Policy")
        assert "needs GPU models" in row(seen, "GPU models")
        await seen.press("x", "backspace", "a")
        assert "‹ any ›" in row(seen, "Policy")


WRONG = (
    ("runs", "x", "must be a whole number"),
    ("runs", "0", "give a number from 1 to"),
    ("seeds", "1,2", "2 seeds for 4 runs"),
    ("directory", "", "a directory is needed"),
    ("values.data", "", "data (a file of variants) has no default"),
    ("template", "", "no template is chosen"),
)


async def test_errors_appear_at_once_beside_their_field(home: Path) -> None:
    async with pane(request_at(home), size=WIDE) as seen:
        for field, text, result in WRONG:
            assert "✗" not in seen.text
            right = FormState.from_request(request_at(home)).text(field)
            await into(seen, field, text)
            assert "✗" in seen.under_cursor
            assert result in "\n".join(seen.lines[-5:]), "not in full below the form"
            assert "1 field needs another look" in seen.text
            await seen.press("ctrl+s")
            assert isinstance(seen.app.screen, SubmitScreen)
            assert "nothing can be written yet" in seen.text
            await into(seen, field, right)
    assert there(home) == []


# --- the preview ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_preview_equals_the_written_files(home: Path, size: tuple[int, int]) -> None:
    request = request_at(home, sites=("Delta-GPU", "Expanse-GPU"), policy=Policy.PERMUTE, epochs=4)
    async with pane(request, size=size) as seen:
        lines = list(seen.app.screen.query_one(SidePane).lines)
        assert there(home) == []
        await seen.press("ctrl+s", "w")
        assert "w" not in seen.lines[-1].split(), "written is written"
    assert there(home) == ["ens", "ens/ens.dag", "ens/ens.sub", "ens/ens.toml", "ens/learn.py"]
    for name in ("ens.dag", "ens.sub"):
        assert previewed(lines, name) == (home / "ens" / name).read_text()
    shown = previewed(lines, "learn.py")
    wanted = LEARN.replace("\t", " " * 8).replace("\r", "\\x0d").replace("\nno end", "")
    assert shown.startswith(wanted), "blanks stay, a return is shown"


async def test_key_switches_form_and_preview_at_80_columns(home: Path) -> None:
    async with pane(request_at(home)) as seen:
        assert "JOB run0" not in seen.text
        await seen.press("tab")
        assert "+ new  ens.dag" in seen.text
        await seen.press("right_square_bracket", "right_square_bracket")
        assert "JOB run0-train_epoch0 ens.sub" in seen.text
        await seen.press("escape")
        assert "Retries" in seen.text
        assert isinstance(seen.app.screen, SubmitScreen)
        await seen.press("tab", "enter", "tab")
        assert "Template" in seen.under_cursor, "nothing moves where one does not look"


# --- confirmation ---------------------------------------------------------------------------


async def test_nothing_is_written_before_confirmation(home: Path) -> None:
    pool = FakePool()
    async with pane(request_at(home), pool=pool) as seen:
        await seen.press("ctrl+s")
        for result in (str(home / "ens"), "ens.dag", "12 jobs", "4 files", "ap1.example.org",
                     "someone@example.org", "condor_submit_dag", "23.9.6"):  # fmt: skip
            assert result.replace(" ", "") in seen.text.replace("\n", "").replace(" ", "")
        await seen.press("enter", "F", "space", "escape")
        assert isinstance(seen.app.screen, SubmitScreen)
        assert there(home) == []
        assert pool.dags == []


async def test_existing_files_need_their_own_confirmation(home: Path) -> None:
    (home / "ens").mkdir()
    (home / "ens" / "ens.sub").write_text("mine")
    pool = FakePool(submitted=PoolError("not today"))
    async with pane(request_at(home), pool=pool) as seen:
        assert "1 exists already" in seen.text
        await seen.press("ctrl+s")
        assert "! exists  ens.sub" in seen.text
        assert "yes, submit" not in seen.lines[-1], "it would not be done"
        assert "F replace" in seen.lines[-1]
        assert "F yes, replace them" in seen.text
        await seen.press("y", "w")
        assert "F allows it" in seen.text
        assert there(home / "ens") == ["ens.sub"]
        await seen.press("F")
        assert "1 existing file will be replaced" in seen.text
        assert "y yes, submit" in seen.lines[-1]
        assert (home / "ens" / "ens.sub").read_text() == "mine"
        await seen.press("y")
        assert "queue" in (home / "ens" / "ens.sub").read_text()


async def test_file_created_meanwhile_is_not_replaced(home: Path) -> None:
    pool = FakePool()
    async with pane(request_at(home), pool=pool) as seen:
        await seen.press("ctrl+s")
        (home / "ens").mkdir()
        (home / "ens" / "ens.dag").write_text("another's")
        await seen.press("y")
        assert "✗ writing" in seen.text
        assert "is there already" in " ".join(seen.text.split())
        assert pool.dags == []
        assert (home / "ens" / "ens.dag").read_text() == "another's"
        await seen.press("escape")
        assert "1 exists already" in seen.text


async def test_refusal_of_the_schedd_is_reported_and_retried(home: Path) -> None:
    pool = FakePool(submitted=PoolError("the schedd refused: the queue is full; wait"))
    async with pane(request_at(home, runs=2), pool=pool, size=TALL) as seen:
        await seen.press("ctrl+s", "y")
        text = " ".join(seen.text.split())
        assert "✓ writing" in seen.text
        assert "✗ submitting the schedd refused: the queue is full; wait" in text
        assert "written and still there: ens.dag, ens.sub, learn.py" in text
        assert "+ written  ens.dag" in seen.text
        before = (home / "ens" / "ens.dag").stat().st_mtime_ns
        await seen.press("y")
        assert len(pool.dags) == 2
        assert (home / "ens" / "ens.dag").stat().st_mtime_ns == before
        await seen.press("escape")
        assert isinstance(seen.app.screen, SubmitScreen)
        assert "2 runs × 3 epochs" in seen.text
        assert "gb1.tsv" in row(seen, "data")


async def test_pending_submission_is_shown_and_cannot_be_left(home: Path) -> None:
    pool = FakePool(submitted=PoolError("no"))
    async with pane(request_at(home), pool=pool) as seen:
        await seen.press("ctrl+s")
        pool.gate.clear()
        await seen.pilot.press("y")
        for _ in range(200):
            await seen.pilot.pause(0.005)
            if "waiting for the schedd's answer" in seen.text:
                break
        assert "▶ submitting" in seen.text
        await seen.pilot.press("escape", "y")
        await seen.pilot.pause()
        assert isinstance(seen.app.screen, LaunchScreen)
        assert "an answer is awaited" in seen.text
        pool.gate.set()
        await seen.settle()
        assert "✗ submitting" in seen.text
        assert len(pool.dags) == 1


async def test_submitted_ensemble_is_watched(home: Path) -> None:
    class Pool(FakePool):
        def submit_dag(self, dag_file: Path) -> int:
            head = "(4712.000.000) 2026-11-21 09:43:09 Job submitted from host: <127.0.0.1:9618>"
            event = f"000 {head}\n    DAG Node: run1-train_epoch0\n...\n"
            (dag_file.parent / "ens.log").write_text(event)
            return super().submit_dag(dag_file)

    def opener(dagdir: Path) -> FeedAndPool:
        reader = DagdirReader(dagdir)
        reader.open()
        opened.append(session := Session(reader))
        return FeedAndPool(session, FakePool())  # type: ignore[arg-type]

    opened: list[Session] = []
    async with pane(request_at(home, runs=2), pool=Pool(), open_dagdir=opener, size=TALL) as seen:
        await seen.press("ctrl+s", "y")
        await seen.until(lambda: isinstance(seen.app.screen, OverviewScreen))
        await seen.until(lambda: "idle" in seen.text)
        assert "ens.dag" in seen.text
        assert "idle" in seen.line("run1 ")
        assert "0/3" in seen.line("run0 ")
        assert seen.app.feed is opened[0]
        await seen.press("N")
        assert "gb1.tsv" in row(seen, "data"), "the form is there for the next one"
        assert "ens.dag is there already" in row(seen, "Directory")
        opened[0].stop()


async def test_missing_schedd_prevents_only_submission(home: Path) -> None:
    why = PoolError("no schedd answers here; start HTCondor")
    pool = FakePool(where=why, sites=PoolError("no collector"))
    async with pane(request_at(home), pool=pool) as seen:
        assert "no schedd answers here; start HTCondor" in seen.text
        await seen.press("ctrl+s", "y")
        assert there(home) == []
        assert "It cannot be submitted: no schedd answers here" in seen.text
        await seen.press("w")
        assert len(there(home)) == 5
        assert pool.dags == []
        await seen.press("escape")
        pool.answers["where"] = FakePool().answers["where"]
        await seen.press("ctrl+r")
        await seen.until(lambda: "ap1.example.org" in seen.text)
    pool = FakePool(where=ScheddInfo("ap1.example.org", "23.9.6", "someone", None))
    async with pane(request_at(home, directory=home / "new"), pool=pool) as seen:
        await seen.press("ctrl+s", "y")
        assert "condor_submit_dag is not in PATH" in seen.text
        assert not (home / "new").exists()


async def test_silent_schedd_delays_nothing(home: Path) -> None:
    pool = FakePool()
    pool.gate.clear()
    async with pane(request_at(home), pool=pool) as seen:
        assert "asking for the schedd" in seen.text
        assert "4 runs × 3 epochs = 12 jobs" in seen.text
        await seen.press("ctrl+s")
        assert "the schedd has not answered yet" in seen.text
        pool.gate.set()
        await seen.until(lambda: "writes 4 files and submits 12 jobs" in seen.text)
        pool.gate.clear()
        await seen.press("escape", "ctrl+r", "ctrl+q")
        assert not seen.app.is_running or seen.app._exit


async def test_form_is_kept_while_other_screens_are_open(home: Path) -> None:
    async with pane(request_at(home), size=TALL) as seen:
        await into(seen, "values.data", "other.tsv")
        await seen.press("escape")
        assert isinstance(seen.app.screen, OverviewScreen)
        assert "No ensemble is open." in seen.text
        assert "[N] brings the form" in seen.text
        assert "N new" in seen.lines[-1]
        assert "enter open" not in seen.lines[-1], "there is nothing to open"
        await seen.press("N")
        assert "other.tsv" in row(seen, "data")


# --- small parts ----------------------------------------------------------------------------


SHAPED: dict[str, dict[str, object]] = {
    "chain": {"seeds": (3, 4, 5, 6), "sites": ("A", "B"), "policy": Policy.PIN, "gpus": 2},
    "pinned": {"policy": Policy.GPU_PIN, "gpu_models": ("NVIDIA A40", "NVIDIA L40S")},
    "evaluated": {"evaluation": Evaluation(every=2), "gpu_memory_mb": 40000},
    "gated": {"gate": StopRules(patience=3, divergence=2.5, median_after=4)},
    "beside the form": {
        "variables": {"project": "METL"},
        "subdags": True,
        "evaluation": Evaluation(every=2, gates=True),
    },
    "stages": {
        "shape": EnsembleShape.STAGES,
        "stages": (StageRequest("pretrain", 5), StageRequest("finetune", 3)),
    },
    "bag": {"shape": EnsembleShape.BAG, "shards": 12, "gather": "gather"},
    "multi-node": {"shape": EnsembleShape.MULTI_NODE, "machines": 4},
    "sweep": {
        "shape": EnsembleShape.SWEEP,
        "sweep": SweepRequest(
            "run",
            (
                SweptVariable("a", ("0.01", "0.02"), ""),
                SweptVariable("b", ("adam", "sgd", "lion"), ""),
            ),
            SweepMode.PRODUCT,
        ),
    },
}


@pytest.mark.parametrize("shape", SHAPED)
def test_form_keeps_the_request(home: Path, shape: str) -> None:
    request = request_at(home, **SHAPED[shape])
    again, result = parse_form(FormState.from_request(request), load_template("mine"))
    assert (again, result) == (request, ())


# --- shapes ---------------------------------------------------------------------------------


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the real bundled templates."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


WORDS = {
    "chain": ("4 runs × 3 epochs = 12 jobs", "train_epoch0 ─▶ train_epoch1"),
    "stages": ("4 runs × 8 epochs = 32 jobs", "pretrain"),
    "bag": ("10 shards = 10 jobs", "shard"),
    "multi-node": ("4 runs × 3 epochs × 2 machines", "provision"),
}


async def shaped(seen: RunningApp, shape: str) -> None:
    """Choose this shape from the list."""
    seen.app.screen.query_one(FormView).select("shape")
    await seen.press("enter", "home")
    for _ in range(len(EnsembleShape)):
        if shape in seen.under_cursor.split():
            break
        await seen.press("down")
    await seen.press("enter")


@pytest.mark.parametrize("shape", WORDS)
async def test_every_shape_can_be_chosen_and_is_drawn(bundled: Path, shape: str) -> None:
    total, drawn = WORDS[shape]
    async with pane(size=WIDE) as seen:
        await shaped(seen, shape)
        if shape == "stages":
            await into(seen, "stages", "pretrain 5, finetune 3")
        await seen.until(lambda: total in seen.text)
        assert drawn in seen.text
        assert "✗" not in seen.text


async def test_sweep_shows_its_number_of_values_and_runs(bundled: Path) -> None:
    async with pane(size=WIDE) as seen:
        await shaped(seen, "sweep")
        assert "nothing is swept" in row(seen, "Sweep")
        await into(seen, "sweep", "learning_rate = 0.01 to 0.1 by 0.01; batch_size = 16, 32")
        wrong = "learning_rate has 10 values and batch_size has 2"
        await seen.until(lambda: wrong in " ".join(seen.text.split()))
        seen.app.screen.query_one(FormView).select("how")
        await seen.press("right", "right")
        await seen.until(lambda: "20 runs × 3 epochs = 60 jobs" in seen.text)
        assert "values: learning_rate 10, batch_size 2" in row(seen, "Sweep")
        assert "run00 … run19" in seen.text
        await into(seen, "sweep", "hidden = 4, 8, batch_size = 16, 32")
        wrong = "batch_size= among the values of hidden; put ';' before a further variable"
        await seen.until(lambda: wrong in " ".join(seen.text.split()))


async def test_form_has_only_fields_of_the_shape(bundled: Path) -> None:
    async with pane(size=TALL) as seen:
        assert "‹ yes ›" in row(seen, "Steer")
        assert "off" in row(seen, "Early stopping")
        seen.app.screen.query_one(FormView).select("gate")
        await seen.press("right")
        assert "Early stopping" not in seen.text
        await shaped(seen, "bag")
        for label in ("Runs", "Epochs", "Steer", "Evaluate"):
            assert f" {label} " not in seen.text
        assert "‹ infer ›" in row(seen, "Template"), "a bag needs another kind of job"
        await shaped(seen, "chain")
        assert "‹ trainer ›" in row(seen, "Template")


async def test_rules_of_the_gate_are_written(bundled: Path) -> None:
    async with pane(size=TALL) as seen:
        await into(seen, "gate.patience", "x")
        await seen.until(lambda: "1 field needs another look: Early stopping" in seen.text)
        await into(seen, "gate.patience", "4")
        await into(seen, "gate.divergence", "2.5")
        await seen.press("ctrl+s", "w")
        rules = json.loads((bundled / "ensemble" / "ensemble.gate.json").read_text())["rules"]
        assert (rules["patience"], rules["divergence"]) == (4, 2.5)


async def test_form_suggests_fitting_requests_and_keeps_typed_ones(bundled: Path) -> None:
    path = dagdir(bundled / "past", [9000] * 6)
    options = AppOptions(submission_pool=FakePool())  # type: ignore[arg-type]
    async with opened(dagdir_feed(path), size=WIDE, options=options) as seen:
        await seen.press("N")
        await seen.until(lambda: "10240" in seen.text)
        assert "6 epochs used at most" in row(seen, "Memory")
        assert "22528" in row(seen, "GPU memory")
        await into(seen, "memory_mb", "3000")
        assert "epochs used" not in row(seen, "Memory")
        await seen.press("escape", "N")
        assert "3000" in row(seen, "Memory")
