"""Each problem of a request is reported with its field and a remedy; a good one has none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.authoring.plan import make_plan
from metlmon.authoring.request import (
    EnsembleShape,
    Evaluation,
    PlanError,
    Policy,
    Region,
    Request,
    RequestProblem,
    StageRequest,
    StopRules,
    SweepMode,
    SweepRequest,
    SweptVariable,
)
from metlmon.authoring.runs import OWN_VARIABLES, RESERVED_NAMES
from metlmon.authoring.validate import validate
from tests.support.sample_requests import NAP, a_request

MINIMAL = "executable = /bin/true\nlog = x.log\nulog_execute_attrs = GLIDEIN_ResourceName\n"

Changes = dict[str, Any]


def problems(tmp_path: Path, fatal: bool = True, **changes: Any) -> dict[str, str]:
    """The problems of a request for a bundled template: field → sentence."""
    default = {"directory": tmp_path / "new", "runs": 2, "epochs": 3, "template": "trainer"}
    found = validate(Request(**{**default, **changes})).problems
    return {problem.field: problem.text for problem in found if problem.fatal == fatal}


def only(tmp_path: Path, field: str, fatal: bool, **changes: Any) -> str:
    """The text of the one problem of a request for the template "nap"."""
    (found,) = validate(a_request(tmp_path, **changes)).problems
    assert (found.field, found.fatal) == (field, fatal), found
    return found.text


def sweep(*variables: SweptVariable, group: str = "s", how: SweepMode | None = None) -> Changes:
    return {"shape": EnsembleShape.SWEEP, "sweep": SweepRequest(group, variables, how)}


def stages(*parts: StageRequest) -> Changes:
    return {"shape": EnsembleShape.STAGES, "stages": parts}


RATE = SweptVariable("learning_rate", ("0.1", "0.2"), "x.toml:3")
SIZE = SweptVariable("batch_size", ("8", "16", "32"), "x.toml:4")
ONE, TWO = StageRequest("one", 1), StageRequest("two", 1)
BAG: Changes = {"shape": EnsembleShape.BAG, "template": "infer", "shards": 2}
SEVERAL: Changes = {"shape": EnsembleShape.MULTI_NODE, "template": "multinode"}
MANY = SweptVariable("learning_rate", tuple(f"0.{n:05}" for n in range(1, 30_002)), "")
PINNED: Changes = {"policy": Policy.GPU_PIN, "gpu_models": ("NVIDIA A40",)}


@pytest.mark.parametrize(
    "changes",
    [
        sweep(RATE),
        sweep(RATE, SIZE, how=SweepMode.PRODUCT),
        stages(ONE, TWO),
        {**BAG, "gather": "gather"},
        {**BAG, "regions": (Region("first", {"slow_factor": "1"}, None, ("shard001",)),)},
        {**SEVERAL, "machines": 2},
        {"evaluation": Evaluation(), "gate": StopRules(patience=2, divergence=3.0)},
        {"variables": {"slow_factor": "1"}, "regions": (Region("r", {"ResourceName": "A"}),)},
        {"name": "b.2_c-d", "seeds": (0, 2**32 - 1), "gpus": 2, "gpu_memory_mb": 40_000},
        {"sites": ("CHTC-Spark-CE1", "Delta GPU"), "policy": Policy.PERMUTE},
    ],
)
def test_good_request_has_no_problem(tmp_path: Path, changes: Changes) -> None:
    assert problems(tmp_path, **changes) == problems(tmp_path, fatal=False, **changes) == {}


def test_refused_plan_names_the_field(tmp_path: Path) -> None:
    request = Request("trainer", tmp_path / "new", shape=EnsembleShape.BAG, shards=0)
    with pytest.raises(PlanError, match=r"^shards: 0 shards: give a number from 1"):
        make_plan(request)


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("runs", 1, 500),
        ("epochs", 1, 10_000),
        ("gpus", 0, 64),
        ("retries", 0, 100),
        ("memory_mb", 16, 16_777_216),
        ("gpu_memory_mb", 1, 1_048_576),
    ],
)
def test_values_at_the_ends_of_ranges(tmp_path: Path, field: str, low: int, high: int) -> None:
    for good in (low, high):
        assert field not in problems(tmp_path, **{field: good})
    for bad in (low - 1, high + 1, -(10**30)):
        text = only(tmp_path, field, True, **{field: bad})
        assert text.endswith(f"give a number from {low} to {high}")


# --- one wrong field ------------------------------------------------------------------------

REFUSED: list[tuple[str, Changes, str]] = [
    ("epochs", {"runs": 101, "epochs": 1000}, "make several DAGs"),
    ("epochs", {"runs": 500, "epochs": 150, "evaluation": Evaluation()}, "150000 nodes"),
    ("shards", {**BAG, "shards": 100_001}, "100000"),
    ("seeds", {"seeds": (1, 2, 3)}, "3 seeds for 2 runs"),
    ("seeds", {"seeds": (-1, 2)}, "-1"),
    ("seeds", {"seeds": (2**32, 2)}, "4294967296"),
    ("policy", {"policy": Policy.PIN}, "'pin' needs sites"),
    ("sites", {"sites": ("Any",)}, "means anywhere"),
    ("sites", {"sites": ("A", "B", "A")}, "named twice"),
    ("gpu_models", {"policy": Policy.GPU_PIN}, "'gpu-pin' needs GPU models"),
    ("gpu_models", {"gpu_models": ("NVIDIA A40",)}, "only the policy 'gpu-pin'"),
    ("gpu_models", {**PINNED, "gpu_models": ("NVIDIA A40", "nvidia a40")}, "named twice"),
    ("gpu_models", {**PINNED, "gpu_models": ('A40" || true || "',)}, "cannot be a GPU model"),
    ("gpus", {**PINNED, "gpus": 0}, "needs jobs that ask for a GPU"),
    ("sweep", sweep(RATE, SIZE), "learning_rate has 2 values (x.toml:3) and batch_size has 3 (x"),
    (
        "sweep",
        sweep(SweptVariable("lerning_rate", ("1",), "x.toml:3")),
        "x.toml:3: no template has a parameter 'lerning_rate'",
    ),
    (
        "sweep",
        sweep(SweptVariable("batch_size", ("8", "many"), "x.toml:3")),
        "x.toml:3: batch_size is 'many'; give a whole number from 1 to 4096",
    ),
    ("sweep", sweep(RATE, SweptVariable("LEARNING_RATE", ("0.1", "0.2"), "")), "swept twice"),
    ("sweep", sweep(SweptVariable("data", ("",), "")), "is empty"),
    ("sweep", sweep(SweptVariable("data", (), "")), "no values"),
    ("sweep", sweep(), "sweeps nothing"),
    ("sweep", {"epochs": 4, **sweep(MANY)}, "120004 nodes"),
    ("sweep", {"shape": EnsembleShape.SWEEP}, "needs variables"),
    ("sweep", {"sweep": SweepRequest("s", (RATE,))}, "only a sweep sweeps"),
    *(
        ("sweep", sweep(RATE, group=group), "cannot be the name of runs")
        for group in ("", "a b", "a+b", "é", "a/b", "x" * 65)
    ),
    ("stages", {"shape": EnsembleShape.STAGES}, "no stage is named"),
    ("stages", {"stages": (ONE,)}, "only the shape 'stages'"),
    ("stages", stages(ONE, ONE), "two stages are called one"),
    ("stages", stages(StageRequest("a/b", 1)), "cannot be a stage's name"),
    (
        "stages.one.epochs",
        stages(StageRequest("one", 0), TWO),
        "one: 0 epochs of a run: give a number from 1 to 10000",
    ),
    (
        "stages.two.values.hiden",
        stages(ONE, StageRequest("two", 1, values={"hiden": "4"})),
        "has no parameter 'hiden'",
    ),
    (
        "stages.two.values.batch_size",
        stages(ONE, StageRequest("two", 1, values={"batch_size": "0"})),
        "give a whole number",
    ),
    ("stages.two.template", stages(ONE, StageRequest("two", 1, template="gone")), "gone"),
    (
        "evaluation.values.nothing",
        {"evaluation": Evaluation(values={"nothing": "1"})},
        "the template evaluate has no parameter",
    ),
    ("evaluation.template", {"evaluation": Evaluation(template="evaluat")}, "evaluat"),
    ("evaluation.template", {"evaluation": Evaluation(template="trainer")}, "choose another"),
    *(
        ("evaluation.every", {"evaluation": Evaluation(every=every)}, "give")
        for every in (0, -1, 4)
    ),
    (
        "template",
        {"template": "evaluate"},
        "the template evaluate is there to evaluate, not to train; choose another",
    ),
    ("template", {"template": "nothing"}, "choose one of"),
    ("template", {**BAG, "template": "trainer"}, "choose another"),
    ("gather", {**BAG, "gather": "gone"}, "gone"),
    ("gather", {"gather": "gather"}, "only a bag"),
    ("evaluation", {**BAG, "evaluation": Evaluation()}, "a bag has shards and no epochs"),
    ("gate", {**BAG, "gate": StopRules()}, "a bag has shards and no epochs"),
    ("subdags", {**BAG, "subdags": True}, "has no runs"),
    ("regions", {**BAG, "regions": (Region("r", {"slow_factor": "1"}, (0, 0)),)}, "a bag has none"),
    ("machines", SEVERAL, "1 machines"),
    ("machines", {**SEVERAL, "machines": 65}, "from 2 to 64"),
    ("machines", {"machines": 2}, "only the shape 'multi-node'"),
    ("subdags", {**SEVERAL, "machines": 2, "subdags": True}, "one provisioner"),
    ("retries", {"gate": StopRules(), "retries": 0}, "1 retry at least"),
    ("gate.poll", {"gate": StopRules(poll=4)}, "from 5 to 86400"),
    ("gate.poll", {"gate": StopRules(poll=86_401)}, "from 5 to 86400"),
    ("gate.patience", {"gate": StopRules(patience=0)}, "from 1 on"),
    ("gate.median_after", {"gate": StopRules(median_after=0)}, "from 1 on"),
    ("gate.min_delta", {"gate": StopRules(min_delta=-0.1)}, "from 0 on"),
    ("gate.min_delta", {"gate": StopRules(min_delta=float("nan"))}, "from 0 on"),
    ("gate.divergence", {"gate": StopRules(divergence=1.0)}, "above 1"),
    ("gate.divergence", {"gate": StopRules(divergence=float("inf"))}, "above 1"),
    ("gate.metric", {"gate": StopRules(metric=" ")}, "no metric"),
    ("gate.metric", {"gate": StopRules(metric="a\nb")}, "no metric"),
    ("regions", {"regions": (Region("late", {"slow_factor": "1"}),) * 2}, "two regions are called"),
    *(
        (
            "regions",
            {"regions": (Region("late", {"slow_factor": "1"}, epochs, (), "x.toml:7"),)},
            f"the region late has epochs {epochs[0]} to {epochs[1]}; they count from 0 to 2",
        )
        for epochs in ((0, 3), (2, 1), (-1, 0), (3, 3))
    ),
    (
        "regions",
        {"regions": (Region("r", {"slow_factor": "1"}, None, ("run0", "run7"), "x.toml:7"),)},
        "the region r names the run 'run7', which there is not; they are called run0, run1",
    ),
]


@pytest.mark.parametrize(("field", "changes", "text"), REFUSED)
def test_wrong_field_is_refused(tmp_path: Path, field: str, changes: Changes, text: str) -> None:
    assert text in problems(tmp_path, **changes)[field]


@pytest.mark.parametrize(
    ("field", "changes", "text"),
    [
        ("gpu_memory_mb", {"gpus": 0, "gpu_memory_mb": 1}, "no GPU is asked for"),
        ("seeds", {"seeds": (7, 7)}, "7 is there more than once"),
        ("sweep", sweep(SweptVariable("learning_rate", ("1", "1"), "")), "more than once"),
        ("machines", {**SEVERAL, "template": "trainer", "machines": 2}, "queue {machines}"),
        ("variables", {"variables": {"x": "1"}}, "has no effect"),
        ("regions", {"regions": (Region("r", {"x": "1"}, None, (), "x.toml:7"),)}, "x.toml:7: "),
    ],
)
def test_odd_field_is_a_warning(tmp_path: Path, field: str, changes: Changes, text: str) -> None:
    assert text in problems(tmp_path, fatal=False, **changes)[field]


def test_variable_named_by_the_template_is_accepted(tmp_path: Path) -> None:
    text = NAP.replace("arguments = ", "arguments = $(thing) ")
    request = a_request(tmp_path, text=text, **sweep(SweptVariable("thing", ("1",), "")))
    assert not [problem for problem in validate(request).problems if problem.fatal]


# --- names and values -------------------------------------------------------------------------


@pytest.mark.parametrize("site", ["a' || true", "(x)", "a=b", "$x", "a,b"])
def test_variable_resourcename_must_be_a_site(tmp_path: Path, site: str) -> None:
    (text,) = problems(tmp_path, variables={"resourcename": site}).values()
    assert "cannot be a site's name" in text


def everywhere(name: str, value: str) -> list[Changes]:
    return [
        {"variables": {name: value}},
        {"regions": (Region("r", {name: value}),)},
        sweep(SweptVariable(name, (value,), "")),
    ]


@pytest.mark.parametrize("name", ["", "7up", "a b", "a-b", 'a"', "a\nb", "My.x", "+x", "é"])
def test_invalid_names_of_variables_are_refused(tmp_path: Path, name: str) -> None:
    for changes in everywhere(name, "1"):
        (text,) = problems(tmp_path, **changes).values()
        assert "cannot be a variable's name" in text


@pytest.mark.parametrize(
    "name",
    [
        *("Run_UUID", *sorted(OWN_VARIABLES), *sorted(RESERVED_NAMES), "Arguments"),
        *("queue_length", "QUEUED", "on_exit_hold", "noop_job", "if"),
    ],
)
def test_reserved_names_of_variables_are_refused(tmp_path: Path, name: str) -> None:
    (text,) = problems(tmp_path, variables={name: "1"}).values()
    assert "choose another name" in text


@pytest.mark.parametrize(
    "value",
    ["", " ", 'a"b', "a\\b", "a\nRETRY x 9", "a\n", "a\x1bb", "$(x)", "$ENV(HOME)", "$$(x)"],
)
def test_invalid_values_of_variables_are_refused(tmp_path: Path, value: str) -> None:
    for changes in everywhere("data", value):
        (text,) = problems(tmp_path, **changes).values()
        assert "data" in text
        assert "\n" not in text


@pytest.mark.parametrize(
    "name",
    [
        *("", ".hidden", "-f", "a b", "a/b", "../a", "a\nJOB x y", "a;rm", "$(x)", 'a"b', "a+b"),
        *("é", "x" * 65, "x.dag", "a\x1b[2J"),
    ],
    ids=repr,
)
def test_invalid_names_of_dags_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PlanError, match=r"^name: "):
        make_plan(a_request(tmp_path, name=name))


@pytest.mark.parametrize(
    "site",
    [
        *('A" || true || "', "A\nqueue 1000", "$(x)", "$ENV(HOME)", "A\\", "\x1b[2J", "É", ""),
        *(" A", "A ", "A" * 200),
    ],
    ids=repr,
)
def test_invalid_names_of_sites_are_refused(tmp_path: Path, site: str) -> None:
    request = a_request(tmp_path, sites=(site,), policy=Policy.PIN)
    assert [problem.field for problem in validate(request).problems if problem.fatal] == ["sites"]
    with pytest.raises(PlanError, match="sites"):
        make_plan(request)


def test_names_unknown_to_the_collector_are_warnings(tmp_path: Path) -> None:
    request = a_request(tmp_path, sites=("delta-gpus", "Mars"))
    near, far = validate(request, ["Delta-GPU", "Expanse-GPU"]).problems
    text = "the collector knows no delta-gpus now; did you mean Delta-GPU?"
    assert near == RequestProblem("sites", text, fatal=False)
    assert "only Delta-GPU, Expanse-GPU; its jobs would wait" in far.text
    assert validate(request).problems == ()
    models = Request("trainer", tmp_path / "new", **{**PINNED, "gpu_models": ("NVIDIA L40",)})
    (found,) = validate(models, gpus=("nvidia a40", "NVIDIA L40S")).problems
    assert (found.field, found.fatal) == ("gpu_models", False)
    assert found.text == "the collector knows no NVIDIA L40 now; did you mean NVIDIA L40S?"


def test_parameter_of_a_region_needs_a_value_elsewhere(tmp_path: Path) -> None:
    # "--learning-rate" without a number would fail every other epoch.
    region = Region("late", {"learning_rate": "0.1"}, (2, 2))
    request = Request("trainer", tmp_path / "new", regions=(region,))
    with pytest.raises(PlanError, match=r"regions: the region late: only some .* of learning_rate"):
        make_plan(request)
    assert make_plan(replace(request, values={"learning_rate": "0.2"})).nodes == 12
    late = (Region("late", {"project": "b"}, (2, 2)),)
    with pytest.raises(PlanError, match=r"regions: the region late: .* project, .* holds a '\)'"):
        make_plan(replace(request, regions=late, values={"project": "a)b"}))


# --- the directory ----------------------------------------------------------------------------


def test_unusable_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, text in (
        ("gone/new", "there is no such directory; make it first"),
        ("file", "is not a directory"),
        ("link", "is not a directory"),
        ("file/new", "no such directory"),
        ("a\nb", "control character"),
        ("x" * 300, "cannot be looked into"),
    ):
        assert text in only(tmp_path, "directory", True, directory=tmp_path / name)
    assert validate(a_request(tmp_path, directory=tmp_path)).problems == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_unwritable_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    for directory in (closed, closed / "new"):
        assert "may not write" in only(tmp_path, "directory", True, directory=directory)


def test_existing_dag_is_reported(tmp_path: Path) -> None:
    (tmp_path / "ensemble.dag").write_text("")
    assert "is there already" in only(tmp_path, "directory", False, directory=tmp_path)
    text = only(tmp_path, "directory", False, directory=tmp_path, name="other")
    assert "ensemble.dag lies there too" in text
    (tmp_path / "eval.dag").write_text("")
    text = only(tmp_path, "directory", False, directory=tmp_path, name="other")
    assert "ensemble.dag, eval.dag lie there too" in text


@pytest.mark.parametrize("suffix", ["rescue001", "condor.sub", "nodes.log", "halt", "lock"])
def test_files_of_an_earlier_submission_are_reported(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"ensemble.dag.{suffix}").write_text("")
    (tmp_path / "ensemble2.dag.rescue001").write_text("")  # of another DAG
    text = only(tmp_path, "directory", True, directory=tmp_path)
    left = f"left ensemble.dag.{suffix}: a new DAGMan would go on from these"
    assert ("a DAGMan runs this DAG" if suffix == "lock" else left) in text


# --- templates --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "fatal", "text", "sentence"),
    [
        ("template", True, MINIMAL + "x = {oops}\n", "nothing is called {oops}"),
        (
            "values.data",
            True,
            "# parameter: data | the data\n" + MINIMAL + "# {data}\n",
            "data (the data) has no default",
        ),
        ("template", False, MINIMAL.replace("log = x.log\n", ""), "no 'log ='"),
        ("template", False, MINIMAL.partition("ulog")[0], "ulog_execute_attrs = GLIDEIN"),
        ("template", False, MINIMAL.replace("/bin/true", "train.sh"), "train.sh: no such file"),
        ("template", False, MINIMAL + "error = logs/$(epoch).err\n", "go to logs, which is not in"),
        ("template", False, MINIMAL + "output = $(run_uuid)/x\n", "jobs would be held"),
    ],
)
def test_bad_templates_are_refused(
    tmp_path: Path, field: str, fatal: bool, text: str, sentence: str
) -> None:
    assert sentence in only(tmp_path, field, fatal, text=text)


def test_template_without_a_needed_placeholder_is_refused(tmp_path: Path) -> None:
    for field, value in (("gpus", 4), ("gpu_memory_mb", 9000), ("memory_mb", 9000)):
        assert "has no effect" in only(tmp_path, field, False, text=MINIMAL, **{field: value})
    assert "has no effect" in only(tmp_path, "sites", False, text=MINIMAL, sites=("A",))
    assert "?require_gpus = {require_gpus}" in only(tmp_path, "gpu_models", False, **PINNED)
    text = NAP.replace("requirements = {requirements}\n", "")
    assert "sent elsewhere" in only(tmp_path, "gate", False, text=text, gate=StopRules())


def test_unknown_parameter_is_refused(tmp_path: Path) -> None:
    assert only(tmp_path, "values.sec", True, values={"sec": "1"}).endswith("it has seconds")


@pytest.mark.parametrize("value", ["1\nqueue 100", "a\x1bb", "a\u202eb", "a\\", "5\\ ", "x" * 5000])
def test_values_with_line_ends_are_refused(tmp_path: Path, value: str) -> None:
    request = a_request(tmp_path, values={"seconds": value})
    (found,) = [problem for problem in validate(request).problems if problem.fatal]
    assert found.field == "values.seconds"
    assert value not in found.text


def test_secret_is_reported_without_its_value(tmp_path: Path) -> None:
    for line in (
        'environment = "WANDB_API_KEY=abcdef A=1"',
        "environment = A=1;WANDB_API_KEY=abcdef",
        "env = \"A='b c' \\\n  WANDB_API_KEY='abc def'\"",
        '+Environment = "WANDB_API_KEY=abcdef"',
    ):
        text = only(tmp_path, "template", False, text=MINIMAL + line + "\n")
        assert "environment sets WANDB_API_KEY" in text
        assert "abc" not in text
    for line in ('environment = "WANDB_MODE=offline A_KEY="', "environment = WANDB_KEY=$(key)"):
        assert validate(a_request(tmp_path, text=MINIMAL + line + "\n")).problems == ()
    template = "# parameter: api_key = | of a service\n" + MINIMAL + 'x = "{api_key}"\n'
    values = {"api_key": "abcdef"}
    text = only(tmp_path, "values.api_key", False, text=template, values=values)
    assert "looks like a secret" in text
    assert "abcdef" not in text


def test_missing_input_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "data.tsv").write_text("")
    text = (
        "# parameter: data = data.tsv | the data\n"
        + MINIMAL
        + "transfer_input_files = {data}, gone.sh, /nowhere/x, osdf:///a/b, out/$(run_uuid)\n"
    )
    data, gone, nowhere = validate(a_request(tmp_path, text=text)).problems
    assert (data.field, gone.field, nowhere.field) == ("values.data", "template", "template")
    assert "lies in the current directory, but is needed in" in data.text
    assert gone.text.startswith("gone.sh: no such file in ")
    assert nowhere.text.startswith("/nowhere/x: no such file;")
    assert not any(problem.fatal for problem in (data, gone, nowhere))
    there = a_request(tmp_path, text=text, directory=here)
    assert [found.text.split(":")[0] for found in validate(there).problems] == [
        "gone.sh",
        "/nowhere/x",
    ]
    untransferred = MINIMAL.replace("/bin/true", "train.sh") + "transfer_executable = N\n"
    assert validate(a_request(tmp_path, text=untransferred)).problems == ()
