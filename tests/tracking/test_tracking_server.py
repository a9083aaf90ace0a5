"""The server of the tests, what it has stored, and the faults of the tracker before it."""

from __future__ import annotations

import http.client
import json
import math
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.support.faulty_tracker import CUT, LOST, REFUSED, TRUNCATED, FaultyTracker
from tests.support.tracking_server import Point, TrackingServer

pytestmark = pytest.mark.xdist_group("tracking")


def post(tracker: FaultyTracker, path: str, body: dict[str, Any]) -> Any:
    """The answer to a call that goes by the tracker."""
    url = f"{tracker.url}/api/2.0/mlflow/{path}"
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json", "X-Test": "here"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_what_is_written_is_read(tracking_server: TrackingServer) -> None:
    experiment = tracking_server.call("experiments/create", {"name": "written"})["experiment_id"]
    run = tracking_server.call(
        "runs/create", {"experiment_id": experiment, "run_name": "3f1c2d4e", "start_time": 1000}
    )["run"]["info"]["run_id"]
    points = [(0, "NaN"), (1, "Infinity"), (2, "-Infinity"), (3, 0.1)]
    tracking_server.call(
        "runs/log-batch",
        {
            "run_id": run,
            "metrics": [
                {"key": "loss", "value": value, "timestamp": 2000 + step, "step": step}
                for step, value in points
            ],
            "params": [{"key": "lr", "value": "0.01"}],
            "tags": [{"key": "site", "value": "Delta"}],
        },
    )
    tracking_server.call("runs/update", {"run_id": run, "status": "FINISHED", "end_time": 3000})

    [stored] = tracking_server.runs("written")

    assert stored[:5] == (run, "3f1c2d4e", "FINISHED", 1000, 3000)
    assert (stored.params, stored.tags["site"]) == ({"lr": "0.01"}, "Delta")
    first, *others = stored.metrics["loss"]
    assert (first.step, math.isnan(first.value)) == (0, True)
    assert others == [Point(1, math.inf, 2001), Point(2, -math.inf, 2002), Point(3, 0.1, 2003)]


def test_calls_are_recorded_and_fail_as_asked(
    tracker: FaultyTracker, tracking_server: TrackingServer
) -> None:
    post(tracker, "experiments/create", {"name": "faults"})
    tracker.always(REFUSED)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        post(tracker, "experiments/create", {"name": "refused"})
    tracker.always(TRUNCATED)
    with pytest.raises((http.client.IncompleteRead, json.JSONDecodeError)):
        post(tracker, "experiments/create", {"name": "truncated"})

    assert [call.number for call in tracker.writes] == [0, 1, 2]
    assert tracker.calls[0].headers["X-Test"] == "here"
    assert tracker.calls[1].json() == {"name": "refused"}
    found = tracking_server.call("experiments/search", {"max_results": 1000})["experiments"]
    names = {each["name"] for each in found}
    assert "faults" in names
    assert not names & {"refused", "truncated"}


@pytest.mark.parametrize(("fault", "arrives"), [(CUT, False), (LOST, True)])
def test_a_connection_is_cut(
    fault: Any, arrives: bool, tracker: FaultyTracker, tracking_server: TrackingServer
) -> None:
    tracker.at(0, fault)
    name = f"arrives {arrives}"
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        post(tracker, "experiments/create", {"name": name})

    found = tracking_server.call("experiments/search", {"max_results": 1000})["experiments"]
    assert (name in {each["name"] for each in found}) == arrives


def test_a_tracker_vanishes_and_comes_back(tracker: FaultyTracker) -> None:
    tracker.vanish()
    with pytest.raises(urllib.error.URLError, match="refused"):
        post(tracker, "runs/search", {"experiment_ids": ["0"]})
    tracker.come_back()

    assert post(tracker, "runs/search", {"experiment_ids": ["0"]}) == {}
    assert tracker.writes == []
