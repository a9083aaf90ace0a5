"""Which server an export writes to, and with which credentials."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

import pytest

from metlmon.config.settings import SecretText, TrackingSettings
from metlmon.errors import InputError
from metlmon.tracking.mlflow_client import TrackingClient, experiment_name, tracking_server
from tests.support.faulty_tracker import Answer, FaultyTracker

HOST: Final = "https://mlflow.example.edu"
OTHERS: Final = (
    "databricks",
    "sqlite:///x.db",
    "file:///x",
    "http://",
    "http://a:x",
    "http://é.edu",
)
CONFIGURED: Final = TrackingSettings(
    uri=f"{HOST}/", experiment="mine", token=SecretText("configured-token")
)


def server(
    uri: str | None = None, settings: TrackingSettings | None = None, **environment: str
) -> TrackingClient:
    return tracking_server(uri, environment, settings or TrackingSettings())


def header(client: TrackingClient) -> str | None:
    """What the client sends as ``Authorization``."""
    pytest.importorskip("mlflow", reason="mlflow-skinny, of the extra mlflow, is not installed")
    with FaultyTracker(None) as tracker:
        tracker.always(Answer(200, b"{}"))
        client.uri = tracker.url
        client.call("get_run", "7")
        return tracker.calls[0].headers.get("Authorization")


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ("http://a:5000/", "http://b", "http://a:5000"),
        (None, "http://b/path/", "http://b/path"),
        (None, "", HOST),
    ],
)
def test_the_address_is_the_first_that_is_set(
    given: str | None, environment: str, expected: str
) -> None:
    assert server(given, CONFIGURED, MLFLOW_TRACKING_URI=environment).uri == expected


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        (None, "--tracking-uri https://HOST, or set MLFLOW_TRACKING_URI"),
        *((uri, "at https:// or http:// addresses only") for uri in OTHERS),
        ("https://ada:sesame@mlflow.example.edu", "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACK"),
    ],
)
def test_an_address_that_cannot_be_used(uri: str | None, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        server(uri)
    assert sentence in str(error.value)
    assert "sesame" not in str(error.value)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"TOKEN": " t0ken\n"}, "Bearer t0ken"),
        ({"USERNAME": "ada", "PASSWORD": "pw"}, f"Basic {b64encode(b'ada:pw').decode()}"),
        ({"USERNAME": "ada", "PASSWORD": "pw", "TOKEN": "t"}, "Basic YWRhOnB3"),
        ({"USERNAME": "ada"}, None),
        ({"URI": "https://ada:p%40w@mlflow.example.edu"}, "Basic YWRhOnBAdw=="),
    ],
)
def test_credentials_of_the_environment(
    environment: Mapping[str, str], expected: str | None
) -> None:
    variables = {f"MLFLOW_TRACKING_{name}": value for name, value in environment.items()}
    client = server(**{"MLFLOW_TRACKING_URI": HOST, **variables})
    assert client.uri == HOST
    assert header(client) == expected


def test_credentials_of_the_settings_are_for_their_server_alone() -> None:
    assert header(server(None, CONFIGURED)) == "Bearer configured-token"
    assert header(server(HOST, CONFIGURED)) == "Bearer configured-token"
    for other in (
        "https://other.example.edu",
        f"{HOST}:444",
        f"{HOST}/other",
        "http://mlflow.example.edu",
    ):
        assert header(server(other, CONFIGURED)) is None, other
    # Those of the environment go first.
    assert header(server(None, CONFIGURED, MLFLOW_TRACKING_TOKEN="t")) == "Bearer t"


@pytest.mark.parametrize("token", ["t\r\nX-Other: 1", "tökén"])
def test_a_token_that_no_header_may_have(token: str) -> None:
    with pytest.raises(InputError, match="no HTTP header may have") as error:
        server(HOST, MLFLOW_TRACKING_TOKEN=token)
    assert token not in str(error.value)


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "nan", "1e9"])
def test_a_time_limit_that_is_none(seconds: str) -> None:
    with pytest.raises(InputError, match="MLFLOW_HTTP_REQUEST_TIMEOUT="):
        server(HOST, MLFLOW_HTTP_REQUEST_TIMEOUT=seconds)
    assert server(HOST, MLFLOW_HTTP_REQUEST_TIMEOUT="7.5").seconds == 7.5


@pytest.mark.parametrize(
    ("uri", "token", "clear"),
    [
        ("http://mlflow.example.edu", "t", True),
        ("http://127.0.0.1:5000", "t", False),
        (HOST, "t", False),
        ("http://mlflow.example.edu", "", False),
    ],
)
def test_secrets_in_clear_are_known(uri: str, token: str, clear: bool) -> None:
    assert server(uri, MLFLOW_TRACKING_TOKEN=token).sends_secrets_in_clear is clear


def test_the_experiment_is_the_first_that_is_set() -> None:
    variable: dict[str, Any] = {"MLFLOW_EXPERIMENT_NAME": "theirs"}
    assert experiment_name("given", variable, CONFIGURED) == "given"
    assert experiment_name(None, variable, CONFIGURED) == "theirs"
    assert experiment_name(None, {}, CONFIGURED) == "mine"
    assert experiment_name(None, {}, TrackingSettings()) == "metlmon"
