"""Names in submit descriptions: commands of condor_submit, macros, and unknown ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from metlmon.authoring.lint.rule_submit import COMMANDS
from tests.support.lint_ensemble import DAG, GOOD, damaged, findings, write


def complaints(directory: Path) -> list[str]:
    return [each.message for each in findings(directory) if each.kind == "submit-command"]


def described(*lines: str, **more: str) -> dict[str, str | bytes]:
    return damaged("train.sub", "queue\n", "\n".join([*lines, "queue\n"]), **more)


MISSPELT = {
    "requst_gpus": "request_gpus",
    "request_gpu": "request_gpus",
    "Request_GPUS_": "request_gpus",
    "request_memmory": "request_memory",
    "requirement": "requirements",
    "argument": "arguments",
    "transfer_input_file": "transfer_input_files",
    "should_transfer_file": "should_transfer_files",
    "transferoutput_files": None,
    "enviroment": "environment",
    "notify_users": "notify_user",
    "job_ad_file": "",
    "wandb_project": "",
}
"""Name → the command that is meant; "" where none is like it, None where it is one itself."""


@pytest.mark.parametrize("name", MISSPELT)
def test_misspelt_command_is_reported_with_the_right_one(tmp_path: Path, name: str) -> None:
    write(tmp_path, described(f"{name} = 1"))
    meant = MISSPELT[name]
    if meant is None:
        assert complaints(tmp_path) == []
        return
    rest = f": is {meant} meant?" if meant else ", and no line uses it as a macro"
    assert complaints(tmp_path) == [f"{name.lower()} is not a command of condor_submit{rest}"]


def test_commands_are_known_in_any_case(tmp_path: Path) -> None:
    names = [spelt for name in sorted(COMMANDS) for spelt in (name, name.upper(), name.title())]
    write(tmp_path, described(*(f"{name} = 1" for name in names)))
    assert complaints(tmp_path) == []


FINE = {
    "an attribute": ["MY.Project = 1", "+Project = 1", "my.WantFlocking = true"],
    "a job attribute's name": ["TransferInputFiles = a", "RequestGPUs = 1", "JobPrio = 3"],
    "a resource of the pool": ["request_fpgas = 1", "require_fpgas = x > 1"],
    "a service's token": ["box_oauth_permissions = read", "box_oauth_resource_x = y"],
    "a macro": ["folder = out", "output = $(folder)/a"],
    "a macro with a default": ["folder = out", "output = $(Folder:none)/a"],
    "a macro within a macro": ["a = 1", "b = $(a)", "output = $(b)"],
    "a macro's number": ["steps = 3", "arguments = $INT(steps,%d)"],
    "a macro's file name": ["data = x/y.tar", "arguments = $Fnx(data)"],
    "a macro of a choice": ["sites = a,b", "arguments = $CHOICE(Process,sites)"],
    "a macro of an if": ["fast = true", "if $(fast)", "priority = 3", "endif"],
    "a macro of an if defined": ["fast = true", "if defined fast", "priority = 3", "endif"],
    "a port of a container": ["web_container_port = 80"],
    "a tag": ["ec2_tag_owner = me", "cloud_label_x = y"],
}


@pytest.mark.parametrize("what", FINE)
def test_valid_names_are_accepted(tmp_path: Path, what: str) -> None:
    write(tmp_path, described(*FINE[what]))
    assert complaints(tmp_path) == []


def test_macro_that_is_used_elsewhere_is_accepted(tmp_path: Path) -> None:
    """In VARS, in another description, maybe in an include that cannot be read."""
    in_vars = described("base = out", ens_dag=DAG.replace('uuid="u0"', 'uuid="$(base)0"'))
    in_another = {**described("include : common.inc", **{"common_inc": "folder = out\n"})}
    in_another["eval.sub"] = GOOD["eval.sub"].replace("queue", "output = $(folder)/x\nqueue")
    for files in (in_vars, in_another, described("include : $(somewhere).inc", "folder = out")):
        write(tmp_path, files)
        assert complaints(tmp_path) == []
