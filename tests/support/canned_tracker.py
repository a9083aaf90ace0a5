"""A tracking server that takes everything and has nothing, for what must not reach one."""

from __future__ import annotations

import json

from tests.support.faulty_tracker import Answer, Call, FaultyTracker

RUN = {"info": {"run_id": "0123456789abcdef", "artifact_uri": "mlflow-artifacts:/1/0123/artifacts"}}

ANSWERS = {
    "experiments/get-by-name": {"experiment": {"experiment_id": "1"}},
    "runs/create": {"run": RUN},
}


def take_everything(call: Call) -> Answer:
    """The answer of a server in which there are no runs."""
    name = call.path.partition("/mlflow/")[2].partition("?")[0]
    return Answer(200, json.dumps(ANSWERS.get(name, {})).encode())


def canned_tracker() -> FaultyTracker:
    """A tracker with these answers. Use it with ``with``."""
    tracker = FaultyTracker(None)
    tracker.fault = take_everything
    return tracker
