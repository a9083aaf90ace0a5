"""The bundled templates: what they declare and request, and what they never contain."""

from __future__ import annotations

import re

import pytest

from metlmon.authoring.templates import BUILT_IN, fill, load_template, used_placeholders
from metlmon.trainer import train

OF_THE_NODE = set(
    "run_uuid run epoch epochs random_seed ResourceName continue_from_checkpoint".split()
)
"""Macros that the VARS of every node set."""

OF_OTHER_SHAPES: dict[str, set[str]] = {
    "trainer": set(),
    "metl": set(),
    "evaluate": set(),
    "infer": {"shard", "shards"},
    "gather": {"shards"},
    "multinode": {"Process"},
    "provision": {"machines", "Process"},
}


def filled(name: str, **given: str) -> dict[str, str]:
    """The commands of the description: the last of each name, in lower case."""
    template = load_template(name)
    values = {each.name: each.default for each in template.parameters}
    values |= {
        "name": "ensemble",
        "epochs": "3",
        "gpus": "1",
        "gpu_memory_mb": "",
        "memory_mb": "512",
        "requirements": "",
        "require_gpus": "",
        "machines": "2",
        "stage_first": "0",
    }
    commands: dict[str, str] = {}
    for line in fill(template, {**values, **given}).splitlines():
        key, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            own = f"$({key.strip()})"
            commands[key.strip().lower()] = value.strip().replace(
                own, commands.get(key.strip().lower(), "")
            )
    return commands


def words(name: str, node: dict[str, str], **given: str) -> list[str]:
    """The arguments of a node's job."""
    result = filled(name, **given)["arguments"]
    return re.sub(r"\$\((\w+)\)", lambda match: node[match[1]], result).split()


NODE = {"run_uuid": "75f86c77", "random_seed": "7", "epochs": "30", "epoch": "4"}


@pytest.mark.parametrize("name", OF_OTHER_SHAPES)
def test_templates_use_declared_parameters(name: str) -> None:
    template = load_template(name)
    assert template.title != name
    assert template.about.endswith(".")
    assert all(each.help for each in template.parameters)
    declared = {each.name for each in template.parameters}
    assert used_placeholders(template) <= declared | set(BUILT_IN)
    assert declared <= used_placeholders(template)
    used = set(re.findall(r"\$\((\w+)\)", "\n".join(filled(name).values())))
    own = {"transfer_input_files", "arguments", "predictions", "Cluster"}
    assert used <= OF_THE_NODE | own | OF_OTHER_SHAPES[name]
    assert re.search(r"\nqueue( \{machines\})?$", template.text.rstrip())


@pytest.mark.parametrize("name", ["trainer", "metl"])
def test_epoch_transfers_its_folder_and_logs_its_site(name: str) -> None:
    commands = filled(name)
    assert commands["when_to_transfer_output"] == "ON_EXIT_OR_EVICT"
    assert commands["preserve_relative_paths"] == "true"
    assert commands["transfer_output_files"] == "output"
    assert "$(continue_from_checkpoint)" in commands["transfer_input_files"]
    assert commands["ulog_execute_attrs"] == "GLIDEIN_ResourceName"
    assert commands["log"] == "metl.log"
    assert commands["output"] == "$(run_uuid)_$(epoch)_$(Cluster).out"
    assert commands["stream_output"] == "true"
    assert commands["priority"] == "$(epoch)"
    assert not {"environment", "env", "getenv"} & set(commands)


@pytest.mark.parametrize("name", ["trainer", "metl"])
def test_unrequested_commands_are_omitted(name: str) -> None:
    bare = filled(name)
    absent = {"gpus_minimum_memory", "requirements", "+projectname", "retry_request_memory"}
    assert not absent & set(bare)
    asked = filled(name, gpu_memory_mb="20000", requirements="true", project="MLSupplement")
    assert asked["gpus_minimum_memory"] == "20000"
    assert asked["requirements"] == "true"
    assert asked["+projectname"] == '"MLSupplement"'


def test_trainer_accepts_the_arguments_of_its_template() -> None:
    given = {"data": "/home/somebody/gb1.tsv", "fail_rate": "0.2", "diverge_at": "2"}
    args = train.parse_arguments(words("trainer", NODE, **given))
    assert (args.uuid, args.seed, args.max_epochs, args.stop_after_epoch) == ("75f86c77", 7, 30, 4)
    assert (args.fail_rate, args.diverge_at) == (0.2, 2)
    assert args.data == "/home/somebody/gb1.tsv"
    assert filled("trainer", **given)["transfer_input_files"].endswith(", /home/somebody/gb1.tsv")


def test_metl_runs_its_script_in_the_container() -> None:
    commands = filled(
        "metl", container="osdf:///a/metl.sif", data="osdf:///a/d.tgz", retry_memory_mb="9000"
    )
    assert commands["universe"] == "container"
    assert commands["container_image"] == "osdf:///a/metl.sif"
    assert commands["arguments"] == "pretrain.sh $(epoch) $(run_uuid) $(random_seed)"
    files = commands["transfer_input_files"].split(", ")
    assert files == ["pretrain.sh", "$(continue_from_checkpoint)", "osdf:///a/d.tgz"]
    assert commands["retry_request_memory"] == "9000MB"
    assert [each.name for each in load_template("metl").parameters if each.required] == [
        "container"
    ]


def test_swept_parameters_reach_the_trainer() -> None:
    more = {"learning_rate": "0.05", "batch_size": "16", "hidden": "4", "stage_first": "3"}
    args = train.parse_arguments(words("trainer", NODE, **more))
    assert (args.learning_rate, args.batch_size, args.hidden) == (0.05, 16, 4)
    assert args.schedule_from == 3
    usual = train.parse_arguments(words("trainer", NODE))
    assert (usual.learning_rate, usual.batch_size, usual.hidden) == (0.2, 32, 8)
    assert usual.schedule_from == 0


def test_evaluation_template_changes_no_training_file() -> None:
    commands = filled("evaluate")
    assert commands["transfer_input_files"] == "$(continue_from_checkpoint)"
    assert commands["transfer_output_files"] == "evaluation"
    args = train.parse_arguments(words("evaluate", NODE))
    assert (args.uuid, args.evaluate) == ("75f86c77", 4)


def test_machines_get_their_rank() -> None:
    args = train.parse_arguments(words("multinode", {**NODE, "Process": "1", "Cluster": "99"}))
    assert (args.machines, args.rank) == (2, 1)


def test_shards_and_their_gather_node() -> None:
    args = train.parse_arguments(
        words("infer", {"shard": "2", "shards": "8"}, checkpoint="a/last.ckpt")
    )
    assert (args.infer, args.checkpoint) == ((2, 8), "a/last.ckpt")
    assert train.parse_arguments(words("gather", {"shards": "8"})).gather == 8


def test_provisioner_is_shipped_and_executable() -> None:
    ((name, data, executable),) = load_template("provision").shipped_files
    assert (name, executable) == ("provision.sh", True)
    assert b'condor_qedit "$job" ProvisionerState 2' in data
