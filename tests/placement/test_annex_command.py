"""The command that requests an annex parses with the ``htcondor`` that is installed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from metlmon.placement.annex_command import (
    AnnexShape,
    annex_command,
    shape_of,
    site_command,
    system_of,
)
from metlmon.pool.annex_types import AnnexGeneration, AnnexRequest

OLD, NEW = AnnexGeneration.OLD, AnnexGeneration.NEW

PARSE = """\
import json, sys
from htcondor_cli.cli import parse_args
print(json.dumps(parse_args(), default=str))
"""
"""Prints what the installed command reads from its arguments, without doing it."""

SHAPE = AnnexShape(
    name="metl delta",
    site="Delta-GPU",
    queue="gpuA100x4",
    nodes=2,
    lifetime=43200.0,
    gpus=4,
    cpus=16,
    memory=64000,
    allocation="abc123-delta-gpu",
    collector="cm.annex.example.org:9618",
)


def parsed(command: str | None, generation: AnnexGeneration) -> dict[str, Any]:
    pytest.importorskip("htcondor_cli")
    assert command is not None
    program, *arguments = shlex.split(command)
    assert program == "htcondor"
    environment = {**os.environ, "CONDOR_CONFIG": os.devnull}
    environment["_CONDOR_ANNEX_USE_OLD_CREATE"] = str(generation is OLD)
    done = subprocess.run(
        [sys.executable, "-c", PARSE, *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("names", "verb"), [((), "create"), (("other",), "create"), (("Metl Delta",), "add")]
)
def test_the_old_generation_gets_all_numbers(names: tuple[str, ...], verb: str) -> None:
    found = parsed(annex_command(SHAPE, OLD, names), OLD)
    assert (found["verb"], found["annex_name"]) == (verb, "metl delta")
    assert found["queue_at_system"] == "gpuA100x4@delta"
    assert (found["nodes"], found["lifetime"], found["gpus"]) == (2, 43200, "4")
    assert (found["cpus"], found["mem_mb"]) == (16, 64000)
    assert found["allocation"] == "abc123-delta-gpu"
    assert found["collector"] == "cm.annex.example.org:9618"


@pytest.mark.parametrize(("names", "verb"), [((), "create"), (("metl delta",), "add")])
def test_the_new_generation_gets_the_name_and_the_site_the_numbers(
    names: tuple[str, ...], verb: str
) -> None:
    found = parsed(annex_command(SHAPE, NEW, names), NEW)
    assert (found["verb"], found["annex_name"]) == (verb, "metl delta")
    assert found["collector"] == "cm.annex.example.org:9618"
    assert "queue_at_system" not in found
    assert site_command(SHAPE) == (
        "sbatch --partition gpuA100x4 --nodes 2 --time 720 --account abc123-delta-gpu "
        "--gpus-per-node 4 --cpus-per-task 16 --mem 64000 hpc.slurm"
    )


def test_what_is_not_known_is_left_out_or_shown_as_such() -> None:
    shape = AnnexShape(name="x")
    assert annex_command(shape, OLD) == "htcondor annex create x QUEUE@SYSTEM"
    assert annex_command(shape, NEW) == "htcondor annex create x"
    assert site_command(shape) == "sbatch hpc.slurm"


def test_the_numbers_are_those_of_the_last_request() -> None:
    request = AnnexRequest(
        cluster=1,
        proc=0,
        name="x",
        request_id="ap#1.0#1",
        status=1,
        generation=OLD,
        queue="gpuA100x4",
        nodes=3,
        lifetime=7200.0,
        allocation="abc",
        collector="cm.annex",
    )
    found = parsed(annex_command(shape_of(request, "delta"), OLD), OLD)
    assert found["collector"] == "cm.annex"
    assert (found["nodes"], found["lifetime"]) == (3, 7200)
    assert (found["queue_at_system"], found["allocation"]) == ("gpuA100x4@delta", "abc")
    assert "--pool" not in (annex_command(shape_of(request, configured="cm.annex"), OLD) or "")


@pytest.mark.parametrize(
    ("site", "system"),
    [("Delta-GPU", "delta"), ("expanse", "expanse"), ("CHTC-Spark-CE1", "spark"), ("aws", "")],
)
def test_a_site_has_the_name_that_htcondor_has_for_its_system(site: str, system: str) -> None:
    assert system_of(site) == system


def test_every_system_of_the_list_is_one_of_htcondors() -> None:
    validate = pytest.importorskip("htcondor_cli.annex_validate")
    from metlmon.placement.annex_command import SYSTEMS

    assert set(SYSTEMS) <= set(validate.SYSTEM_TABLE)


@pytest.mark.parametrize("text", ["$(rm -rf ~)", "a;b", "a'b", 'a"b', "a b", "`x`", "a&b"])
@pytest.mark.parametrize("generation", [OLD, NEW])
def test_no_text_leaves_its_quotes(text: str, generation: AnnexGeneration) -> None:
    shape = replace(SHAPE, name=text, queue=text, allocation=text, collector=text)
    words = shlex.split(annex_command(shape, generation) or "")
    assert words[3] == text
    assert words[-1] == text
    done = subprocess.run(
        ["sh", "-c", f"set -- {annex_command(shape, generation)}; printf '%s\\n' \"$@\""],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == words


@pytest.mark.parametrize("text", ["--token_file=/etc/shadow", "-x", "a\nrm -rf ~", "\x1b[2J"])
@pytest.mark.parametrize("field", ["name", "queue", "allocation", "collector"])
def test_what_a_terminal_or_the_command_would_read_otherwise_gives_no_command(
    field: str, text: str
) -> None:
    shape = replace(SHAPE, **{field: text})
    assert [annex_command(shape, OLD), annex_command(shape, NEW)] == [None, None]
    assert site_command(shape) is None


def test_an_annex_without_a_name_has_no_command() -> None:
    assert annex_command(AnnexShape(name=""), NEW) is None
