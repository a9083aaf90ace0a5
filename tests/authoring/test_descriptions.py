"""An ensemble in TOML: reading, errors, and writing it back."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from metlmon.authoring import description
from metlmon.authoring.request import (
    FIELDS,
    EnsembleShape,
    Evaluation,
    MetricGoal,
    Region,
    Request,
    StageRequest,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
    read_names,
    read_seeds,
    read_size,
)
from metlmon.authoring.templates import template_for
from tests.authoring.test_shapes import requests


def read(tmp_path: Path, text: str, name: str = "e.toml") -> Request:
    path = tmp_path / name
    path.write_text(text)
    return description.read_description(path, tmp_path / "out")


def wrong(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(description.DescriptionError) as caught:
        read(tmp_path, text)
    prefix = f"{tmp_path}/e.toml:"
    assert all(sentence.startswith(prefix) for sentence in caught.value.sentences)
    return [sentence.removeprefix(prefix) for sentence in caught.value.sentences]


# --- meaning ------------------------------------------------------------------------------------


def test_empty_description_is_a_chain_with_a_gate(tmp_path: Path) -> None:
    found = read(tmp_path, "", "mine.toml")
    usual = Request("trainer", tmp_path / "out", name="mine", gate=StopRules())
    assert found == usual


def test_values_and_regions_in_usual_notation(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """\
sites = "A, B"
gpus = 2
gpu_memory = "40 GB"
memory = 4096
seeds = "7-9"
[values]
cpus = 8
rate = 0.10
[region.late]
epochs = "20 to 29"
runs = ["run0"]
variables = { ResourceName = "B" }
[region.one]
epochs = 3
variables.x = 0.5
""",
    )
    assert (found.gpus, found.gpu_memory_mb, found.memory_mb) == (2, 40960, 4096)
    assert (found.sites, found.seeds, found.runs) == (("A", "B"), (7, 8, 9), 3)
    assert found.values == {"cpus": "8", "rate": "0.10"}
    assert found.regions == (
        Region("late", {"ResourceName": "B"}, (20, 29), ("run0",), "e.toml:9"),
        Region("one", {"x": "0.5"}, (3, 3), (), "e.toml:13"),
    )


def test_sweep_keeps_notation_and_line_of_numbers(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        '[sweep]\ngroup = "lr"\nhow = "product"\n\na = "0.01 to 0.05 by 0.02"\n'
        'b = [1_0.10, 1e-3, 7, "x y", true]\n',
    )
    assert found.shape is EnsembleShape.SWEEP
    assert found.sweep == SweepRequest(
        "lr",
        (
            SweptVariable("a", ("0.01", "0.03", "0.05"), "e.toml:5"),
            SweptVariable("b", ("10.10", "1e-3", "7", "x y", "true"), "e.toml:6"),
        ),
        SweepMode.PRODUCT,
        "e.toml:1",
    )


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("", StopRules()),
        ("gate = false", None),
        ("gate = true\n[bag]\nshards = 2", StopRules()),
        ("[bag]\nshards = 2", None),
        ("[stop]", StopRules()),
        ("[stop]\npatience = 2", StopRules(patience=2)),
        ("[stop]\nmetric = 'r'\ngoal = 'max'", StopRules("r", MetricGoal.MAX)),
        ("[multi-node]\nmachines = 2", None),
        ("[[stage]]\nname = 'a'\nepochs = 1", StopRules()),
    ],
)
def test_runs_have_a_gate_by_default(tmp_path: Path, text: str, gate: StopRules | None) -> None:
    assert read(tmp_path, text).gate == gate


def test_tables_determine_the_shape(tmp_path: Path) -> None:
    text = "[[stage]]\nname = 'pre'\nepochs = 3\n[[stage]]\nname = 'fine'\nepochs = 2\n"
    found = read(tmp_path, text + "template = 'metl'\nvalues = { a = 1 }")
    assert found.shape is EnsembleShape.STAGES
    assert found.stages == (StageRequest("pre", 3), StageRequest("fine", 2, "metl", {"a": "1"}))
    assert read(tmp_path, "[bag]\nshards = 5\n").shards == 5
    assert read(tmp_path, "[multi-node]\nmachines = 3").machines == 3


def test_relative_files_are_beside_the_description(tmp_path: Path) -> None:
    found = read(tmp_path, 'template = "own/nap.sub"\nsource = "train.sweep"\n')
    assert found.template == str(tmp_path / "own" / "nap.sub")
    assert found.source == tmp_path / "train.sweep"
    assert read(tmp_path, 'template = "metl"').template == "metl"


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("\nepoch = 3", "2: no setting is called 'epoch'; did you mean 'epochs'? there are: bag"),
        ("a = 1\n[stop]\npatienc = 3", "3: no setting in stop is called 'patienc'; did you mean"),
        ('runs = "x"', "1: runs must be a whole number, such as 4"),
        (
            'shape = "swep"',
            "1: shape must be one of chain, sweep, stages, bag, multi-node; did you",
        ),
        ("gate = 1", "1: gate must be true or false"),
        ('seeds = "1-x"', "1: seeds must be whole numbers"),
        ('memory = "big"', '1: memory must be a size: 4096 (MB), or "4 GB"'),
        ("values = 3", "1: values is a table: [values], then its keys"),
        ("[values]\na = [1]", "2: values.a must be a text in quotes or a number"),
        ("[stop]\ngoal = 'most'", "2: stop.goal must be one of min, max"),
        ("[stop]\ndivergence = 'x'", "2: stop.divergence must be a number, such as 0.01"),
        ("gate = false\n[stop]", "1: gate = false leaves nobody to follow [stop]"),
        (
            "[sweep]\nhow = 'zipp'\na = [1]",
            "2: sweep.how must be one of zip, product; did you mean",
        ),
        ("[sweep]", "1: [sweep] has no variable; write one such as"),
        ("[sweep]\na = []", "2: sweep.a must be a list of 1 to"),
        ("[sweep]\na = [[1]]", "2: sweep.a must be a list of 1 to"),
        ("[sweep]\n\na = '1 to 0 by 1'", "3: sweep.a: "),
        ("[[stage]]\nname = 'a'", '1: each [[stage]] needs name = "pretrain" and epochs = 10'),
        ("[[stage]]\nname='a'\nepochs='x'", "3: stage.epochs must be a whole number"),
        ("shape = 'chain'\n[bag]\nshards = 2", '2: [bag] belongs to shape = "bag", and this is'),
        ("[region.x]\nepochs = 1", "1: [region.x] gives no variables"),
        ("[region.x]\nepochs = '9 to 3'\nvariables.a = 1", "2: region.x.epochs must be an epoch"),
        ("[bag]\nshard = 2", "2: no setting in bag is called 'shard'; did you mean 'shards'?"),
        ("source = 's.dag'\nepochs = 7", "2: epochs: the sweep file (source) says that; take it"),
        ("runs = 9\nsource = 's.dag'", "1: runs: the sweep file (source) says that"),
        ("source = 's.dag'\n[sweep]\na = [1]", "2: sweep: the sweep file (source) says that"),
        ("source = 's.dag'\n[bag]\nshards = 1", "2: bag: the sweep file (source) says that"),
        (
            "source = 's.dag'\n[evaluation]\nevery = 3",
            "3: evaluation.every: the sweep file (source) says that",
        ),
    ],
)
def test_errors_name_the_line_and_the_key(tmp_path: Path, text: str, sentence: str) -> None:
    found = wrong(tmp_path, text)
    assert [each for each in found if each.startswith(sentence)], found


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    found = wrong(tmp_path, "runs = 'x'\nnam = 1\nepochs = 'y'\n")
    assert [each.split(":")[0] for each in found] == ["1", "2", "3"]
    with pytest.raises(description.DescriptionError, match=r"\(and 2 more\)"):
        description.read_description(tmp_path / "e.toml")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(description.DescriptionError, match=r"e\.toml: not valid TOML: .*line 1"):
        read(tmp_path, "runs = = 3")
    (tmp_path / "latin.toml").write_bytes(b"runs = 3\n# \xe9\n")
    for path, what in [
        (tmp_path / "latin.toml", r"latin\.toml:2: not UTF-8 text"),
        (tmp_path / "none.toml", "there is no such file"),
        (tmp_path, "cannot be read"),
    ]:
        with pytest.raises(description.DescriptionError, match=what):
            description.read_description(path)
    (tmp_path / "large.toml").write_bytes(b"# x\n" * (description.LARGEST // 4 + 1))
    with pytest.raises(description.DescriptionError, match="cannot be read"):
        description.read_description(tmp_path / "large.toml")


def test_problems_have_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text(
        "runs = 0\ngpu_memory = 1\n[values]\nx = 1\n[[stage]]\nname = 'a'\n[[stage]]\n"
        "name = 'b'\nepochs = 0\n[evaluation]\nevery = 0\n"
    )
    assert description.position_of_field(path, "runs") == f"{path}:1: runs"
    assert description.position_of_field(path, "gpu_memory_mb") == f"{path}:2: gpu_memory"
    assert description.position_of_field(path, "values.x") == f"{path}:4: values.x"
    assert description.position_of_field(path, "stages.b.epochs") == f"{path}:9: stage.epochs"
    assert description.position_of_field(path, "evaluation.every") == f"{path}:11: evaluation.every"
    assert description.position_of_field(path, "retries") is None


# --- round trips ----------------------------------------------------------------------------------


def without_places(request: Request) -> Request:
    sweep = request.sweep
    if sweep is not None:
        variables = tuple(replace(each, where="") for each in sweep.variables)
        sweep = replace(sweep, where="", variables=variables)
    regions = tuple(replace(each, where="") for each in request.regions)
    return replace(request, sweep=sweep, regions=regions)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
WORD = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=8)
NAMES = st.dictionaries(WORD, TEXT, max_size=3)
VARIABLE = WORD.filter(lambda name: name not in ("group", "how"))
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
WHOLE = st.integers(0, 10**6)
RULES = st.builds(
    StopRules,
    metric=WORD,
    patience=st.none() | WHOLE,
    min_delta=NUMBER,
    divergence=st.none() | NUMBER,
    median_after=st.none() | WHOLE,
    poll=WHOLE,
)
SWEEP = st.builds(
    SweepRequest,
    group=WORD,
    variables=st.lists(
        st.builds(
            SweptVariable, VARIABLE, st.lists(TEXT, min_size=1, max_size=30).map(tuple), st.just("")
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda each: each.name,
    ).map(tuple),
    mode=st.none() | st.sampled_from(SweepMode),
)
ODD = st.builds(
    Request,
    template=st.sampled_from(["trainer", "metl"]),
    directory=st.just(Path("out")),
    name=TEXT,
    sites=st.lists(TEXT, max_size=3).map(tuple),
    gpu_models=st.lists(TEXT, max_size=3).map(tuple),
    gpu_memory_mb=st.none() | WHOLE,
    values=NAMES,
    variables=NAMES,
    evaluation=st.none() | st.builds(Evaluation, every=WHOLE, values=NAMES),
    gate=st.none() | RULES,
    regions=st.dictionaries(
        WORD,
        st.tuples(
            st.dictionaries(WORD, TEXT, min_size=1, max_size=2),
            st.none() | st.tuples(st.integers(0, 9), st.integers(9, 99)),
            st.lists(TEXT, max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(lambda found: tuple(Region(name, *each) for name, each in found.items())),
)
SWEEPS = st.builds(
    Request,
    template=st.just("trainer"),
    directory=st.just(Path("out")),
    shape=st.just(EnsembleShape.SWEEP),
    sweep=SWEEP,
)


@pytest.fixture(name="place", scope="module")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("there") / "back.toml"


@given(request=requests() | ODD | SWEEPS)
def test_written_description_reads_back_as_the_request(place: Path, request: Request) -> None:
    text = description.format_request(request)
    place.write_text(text, encoding="utf-8", newline="")
    found = description.read_description(place, request.directory)
    if request.seeds and request.shape in (EnsembleShape.SWEEP, EnsembleShape.BAG):
        # Their runs are counted otherwise.
        found = replace(found, runs=request.runs)
    assert without_places(found) == without_places(request)
    assert description.format_request(found) == text


@pytest.mark.parametrize("shape", EnsembleShape)
def test_every_shape_has_an_example(tmp_path: Path, shape: EnsembleShape) -> None:
    text = description.example(shape, template_for(shape) or "own.sub")
    assert f'shape = "{shape}"' in text
    assert max(map(len, text.split("\n"))) <= 100
    found = read(tmp_path, text)
    assert found.shape is shape
    assert found.name == "ensemble"
    # Lines that are commented out are valid as they are.
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.split("\n")]
    seeds = () if shape is EnsembleShape.BAG else (1, 2, 3, 4)
    assert read(tmp_path, "\n".join(lines)).seeds == seeds


# --- sizes, seeds and sites as people type them ---------------------------------------------------


@pytest.mark.parametrize(
    ("read_value", "values"),
    [
        (read_size, {"4096": 4096, " 4 GB ": 4096, "4g": 4096, "4GiB": 4096, "0": 0}),
        (read_size, {"1 TB": 1 << 20, "1025 kB": 2}),
        (read_seeds, {"": (), "7": (7,), "7, 11 13,": (7, 11, 13)}),
        (read_seeds, {"1-3,9": (1, 2, 3, 9), "-4": (-4,)}),
        (read_names, {" A ,B,, A,C D": ("A", "B", "C D"), "": ()}),
    ],
)
def test_sizes_seeds_and_names_are_read(
    read_value: Callable[[str], object], values: dict[str, object]
) -> None:
    assert {text: read_value(text) for text in values} == values


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("memory_mb", ["", "-1", "4 XB", "4GBB", "1.5GB", "9" * 16, True, None]),
        ("seeds", ["x", "1,x", "3-1", "1-999999999", "1.5", "1--2", "٣", [1, "x"], 4]),
        ("runs", ["", "x", "4.0", 4.0, "٣", "9" * 19, "1_000", True, None]),
        ("gate.divergence", ["", "x", True, None, 10**400]),
        ("sites", [[1], 4, ["x" * 5000]]),
        ("policy", ["", "Any", 3, ["any"]]),
        ("name", [3, "x" * 5000]),
        ("subdags", ["true", 1]),
    ],
)
def test_invalid_values_are_refused(field: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=r"^must be "):
            FIELDS[field].read(value)
