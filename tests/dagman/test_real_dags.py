"""The DAG files of a real experiment and of a real pool's run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from msgspec import Struct

from metlmon.dagman import load_workflow
from tests.support.dag_texts import graph_shape


def everything_in(value):
    """Every string that can be reached from ``value``."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from everything_in(getattr(value, name))
    elif isinstance(value, dict):
        for key, held in value.items():
            yield from everything_in(key)
            yield from everything_in(held)
    elif isinstance(value, list | tuple | set | frozenset):
        for held in value:
            yield from everything_in(held)


def test_an_experiment_of_five_runs_of_thirty_epochs(shared):
    path = shared("examples/metl-aws/global_pretraining_in_aws.dag")
    flow = load_workflow([path], Path.read_bytes)
    nodes = list(flow.nodes.values())
    shape = graph_shape(flow.nodes)
    assert flow.problems == []
    assert (len(nodes), shape.arcs, shape.height, shape.width) == (150, 145, 30, 5)
    assert Counter(node.vars["run_uuid"] for node in nodes).most_common()[-1][1] == 30
    assert len({node.vars["run_uuid"] for node in nodes}) == 5
    assert {node.retries for node in nodes} == {3}
    assert {node.log for node in nodes} == {"metl.log"}
    assert {node.request_gpus for node in nodes} == {2}
    assert {node.queue_count for node in nodes} == {1}
    assert {node.vars["ResourceName"] for node in nodes} == {"aws"}
    assert all("pre_request_annex.sh" in node.pre.command for node in nodes if node.pre)
    assert any(node.pre for node in nodes)
    assert flow.node_status_file == "nodes.dag.status"
    second = flow.nodes["run0-train_epoch1"]
    assert second.vars["epoch"] == "2"
    assert second.output == f"{second.vars['run_uuid']}/2_$(Cluster).out"
    assert second.parents == {"run0-train_epoch0"}


def test_no_secret_of_an_environment_is_anywhere_in_the_workflow(shared):
    path = shared("examples/metl-aws/global_pretraining_in_aws.dag")
    assert b"0000000000" in path.read_bytes()
    strings = list(everything_in(load_workflow([path], Path.read_bytes)))
    assert "metl.log" in strings
    assert not any("0000000000" in string or "WANDB" in string for string in strings)


def test_a_run_on_a_real_pool(shared):
    flow = load_workflow([shared("examples/pool-ensemble/ens.dag")], Path.read_bytes)
    nodes = flow.nodes
    assert flow.problems == []
    assert len(nodes) == 30
    assert {name for name, node in nodes.items() if node.post} == {
        f"run{run}-train_epoch4" for run in range(6)
    }
    assert (flow.node_status_file, flow.jobstate_log) == ("nodes.dag.status", "ens.jobstate.log")
    first = nodes["run0-train_epoch0"]
    assert first.output == "52e6b438_1_$(Cluster).out"
    assert (first.submit, first.request_gpus) == ("expanse_train.sub", 2)
    assert nodes["run0-train_epoch1"].request_gpus == 1
