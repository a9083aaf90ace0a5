"""What is wrong is said beside the field, with what to do; a good request has no complaint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from metlmon.authoring import PlanError, Policy, RequestProblem, make_plan, validate
from tests.authoring.written import NAP, a_request

MINIMAL = "executable = /bin/true\nlog = x.log\nulog_execute_attrs = GLIDEIN_ResourceName\n"


def about(tmp_path: Path, field: str, **changes: Any) -> list[RequestProblem]:
    return [c for c in validate(a_request(tmp_path, **changes)) if c.field == field]


def only(tmp_path: Path, field: str, fatal: bool, **changes: Any) -> str:
    """The one complaint that there is, about this field."""
    (found,) = validate(a_request(tmp_path, **changes))
    assert (found.field, found.fatal) == (field, fatal), found
    return found.text


def test_a_good_request_has_none(tmp_path: Path) -> None:
    assert validate(a_request(tmp_path)) == ()
    everything = a_request(
        tmp_path,
        name="b.2_c-d",
        seeds=(0, 2**32 - 1),
        sites=("CHTC-Spark-CE1", "Delta GPU"),
        policy=Policy.PERMUTE,
        gpus=2,
        gpu_memory_mb=40_000,
        values={"seconds": "2"},
    )
    assert validate(everything, ["CHTC-Spark-CE1", "Delta GPU"]) == ()


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
def test_ranges(tmp_path: Path, field: str, low: int, high: int) -> None:
    for good in (low, high):
        assert not [c for c in about(tmp_path, field, **{field: good}) if c.fatal]
    for bad in (low - 1, high + 1, -(10**30)):
        text = only(tmp_path, field, True, **{field: bad})
        assert text.endswith(f"give a number from {low} to {high}")


def test_more_nodes_than_a_dag_may_have(tmp_path: Path) -> None:
    assert "make several DAGs" in only(tmp_path, "epochs", True, runs=101, epochs=1000)


def test_memory_of_no_gpu(tmp_path: Path) -> None:
    only(tmp_path, "gpu_memory_mb", False, gpus=0, gpu_memory_mb=1)


# --- names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".hidden",
        "-f",
        "a b",
        "a/b",
        "../a",
        "a\nJOB x y",
        "a;rm",
        "$(x)",
        'a"b',
        "a+b",
        "é",
        "x" * 65,
        "x.dag",
        "a\x1b[2J",
    ],
    ids=repr,
)
def test_names_that_a_dag_cannot_have(tmp_path: Path, name: str) -> None:
    assert about(tmp_path, "name", name=name)[0].fatal
    with pytest.raises(PlanError, match=r"^name: "):
        make_plan(a_request(tmp_path, name=name))


def test_a_name_that_the_template_brings_along(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "nap.dag").write_text("")
    text = NAP.replace("# ship: nap.sh executable", "# ship: nap.dag\n# ship: nap.sh")
    assert "brings a nap.dag" in only(tmp_path, "name", True, text=text, name="nap")


# --- seeds and sites ------------------------------------------------------------------------


def test_seeds(tmp_path: Path) -> None:
    assert "3 seeds for 2 runs" in only(tmp_path, "seeds", True, seeds=(1, 2, 3))
    assert "-1" in only(tmp_path, "seeds", True, seeds=(-1, 2))
    assert "4294967296" in only(tmp_path, "seeds", True, seeds=(2**32, 2))
    assert "7 is there more than once" in only(tmp_path, "seeds", False, seeds=(7, 7))


def test_a_policy_that_needs_sites(tmp_path: Path) -> None:
    assert "'pin' needs sites" in only(tmp_path, "policy", True, policy=Policy.PIN)


def test_sites_that_are_none(tmp_path: Path) -> None:
    assert "means anywhere" in only(tmp_path, "sites", True, sites=("Any",))
    assert "named twice" in only(tmp_path, "sites", True, sites=("A", "B", "A"))


def test_a_site_that_the_collector_does_not_know(tmp_path: Path) -> None:
    request = a_request(tmp_path, sites=("delta-gpus", "Mars"))
    known = ["Delta-GPU", "Expanse-GPU"]
    near, far = validate(request, known)
    assert near == RequestProblem(
        "sites",
        "the collector knows no delta-gpus now; did you mean Delta-GPU?",
        fatal=False,
    )
    assert "only Delta-GPU, Expanse-GPU; its jobs would wait" in far.text
    assert validate(request) == ()


# --- the directory ----------------------------------------------------------------------------


def test_directories(tmp_path: Path) -> None:
    gone = only(tmp_path, "directory", True, directory=tmp_path / "gone" / "new")
    assert "there is no such directory; make it first" in gone
    (tmp_path / "file").write_text("")
    assert "is no directory" in only(tmp_path, "directory", True, directory=tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert "is no directory" in only(tmp_path, "directory", True, directory=tmp_path / "link")
    below = tmp_path / "file" / "new"
    assert "no such directory" in only(tmp_path, "directory", True, directory=below)
    odd = tmp_path / "a\nb"
    assert "control character" in only(tmp_path, "directory", True, directory=odd)
    assert about(tmp_path, "directory", directory=tmp_path / ("x" * 300))[0].fatal
    assert validate(a_request(tmp_path, directory=tmp_path)) == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_directories_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert "may not write" in only(tmp_path, "directory", True, directory=closed)
    assert "may not write" in only(tmp_path, "directory", True, directory=closed / "new")


def test_a_dag_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "ensemble.dag").write_text("")
    assert "is there already" in only(tmp_path, "directory", False, directory=tmp_path)
    text = only(tmp_path, "directory", False, directory=tmp_path, name="other")
    assert "ensemble.dag lies there too" in text


@pytest.mark.parametrize(
    "left",
    [
        "ensemble.dag.rescue001",
        "ensemble.dag.condor.sub",
        "ensemble.dag.nodes.log",
        "ensemble.dag.halt",
        "ensemble.jobstate.log",
    ],
)
def test_what_an_earlier_submission_left(tmp_path: Path, left: str) -> None:
    (tmp_path / left).write_text("")
    (tmp_path / "ensemble2.dag.rescue001").write_text("")  # of another DAG
    text = only(tmp_path, "directory", True, directory=tmp_path)
    assert f"left {left}: a new DAGMan would go on from these" in text


def test_a_dagman_that_runs(tmp_path: Path) -> None:
    (tmp_path / "ensemble.dag.lock").write_text("")
    assert "a DAGMan runs this DAG" in only(tmp_path, "directory", True, directory=tmp_path)


# --- templates and their parameters -----------------------------------------------------------


def test_an_unknown_template(tmp_path: Path) -> None:
    request = a_request(tmp_path)
    (found,) = validate(type(request)("nothing", request.directory))
    assert (found.field, found.fatal) == ("template", True)


def test_an_unknown_placeholder(tmp_path: Path) -> None:
    assert "nothing is called {oops}" in only(
        tmp_path, "template", True, text=MINIMAL + "x = {oops}\n"
    )


def test_parameters(tmp_path: Path) -> None:
    text = "# parameter: data | the data\n" + MINIMAL + "# {data}\n"
    assert "data (the data) has no default" in only(tmp_path, "values.data", True, text=text)
    assert only(tmp_path, "values.sec", True, values={"sec": "1"}).endswith("it has seconds")


@pytest.mark.parametrize("value", ["1\nqueue 100", "a\x1bb", "a\u202eb", "a\\", "x" * 5000])
def test_values_that_would_leave_their_line(tmp_path: Path, value: str) -> None:
    text = only(tmp_path, "values.seconds", True, values={"seconds": value})
    assert value not in text


def test_a_key_in_the_environment_is_told_without_its_value(tmp_path: Path) -> None:
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
        assert validate(a_request(tmp_path, text=MINIMAL + line + "\n")) == ()


def test_a_key_as_a_parameter(tmp_path: Path) -> None:
    text = "# parameter: api_key = | of a service\n" + MINIMAL + 'x = "{api_key}"\n'
    said = only(tmp_path, "values.api_key", False, text=text, values={"api_key": "abcdef"})
    assert "looks like a secret" in said
    assert "abcdef" not in said


def test_a_template_that_says_too_little(tmp_path: Path) -> None:
    first, second = validate(a_request(tmp_path, text="executable = /bin/true\n"))
    assert "log" in first.text
    assert "ulog_execute_attrs = GLIDEIN_ResourceName" in second.text
    assert not first.fatal
    assert not second.fatal


@pytest.mark.parametrize(
    ("field", "value"),
    [("gpus", 4), ("gpu_memory_mb", 9000), ("memory_mb", 9000), ("sites", ("A",))],
)
def test_what_a_template_ignores(tmp_path: Path, field: str, value: object) -> None:
    text = only(tmp_path, field, False, text=MINIMAL, **{field: value})
    assert "has no effect" in text


def test_files_that_jobs_take_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "data.tsv").write_text("")
    text = (
        "# parameter: data = data.tsv | the data\n"
        + MINIMAL
        + "transfer_input_files = {data}, gone.sh, /nowhere/x, osdf:///a/b, out/$(run_uuid)\n"
    )
    data, gone, nowhere = validate(a_request(tmp_path, text=text))
    assert (data.field, gone.field, nowhere.field) == ("values.data", "template", "template")
    assert "lies in the current directory, but jobs take it from" in data.text
    assert gone.text.startswith("gone.sh: no such file in ")
    assert nowhere.text.startswith("/nowhere/x: no such file;")
    assert not any(c.fatal for c in (data, gone, nowhere))
    there = a_request(tmp_path, text=text, directory=here)
    assert [c.text.split(":")[0] for c in validate(there)] == ["gone.sh", "/nowhere/x"]


def test_an_executable_that_is_not_there(tmp_path: Path) -> None:
    text = MINIMAL.replace("/bin/true", "train.sh")
    assert "train.sh: no such file" in only(tmp_path, "template", False, text=text)
    assert validate(a_request(tmp_path, text=text + "transfer_executable = False\n")) == ()


def test_output_into_a_directory_that_nobody_makes(tmp_path: Path) -> None:
    text = MINIMAL + "output = $(run_uuid)/$(epoch).out\nerror = logs/$(epoch).err\n"
    logs, uuid = validate(a_request(tmp_path, text=text))
    assert "go to logs, which is not in" in logs.text
    assert "jobs would be held" in uuid.text
