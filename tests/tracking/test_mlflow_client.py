"""Calls of a tracking server: which one, one sentence for each error, and no secret."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

import pytest

from metlmon.config.settings import SecretText, TrackingSettings
from metlmon.errors import InputError
from metlmon.tracking.mlflow_client import (
    Credentials,
    TrackingClient,
    TrackingError,
    experiment_name,
    tracking_server,
)
from tests.support.faulty_tracker import Answer, FaultyTracker
from tests.support.tracking_server import NEEDS_MLFLOW

pytestmark = NEEDS_MLFLOW

TOKEN: Final = "Kq7Xz2LmP9vRk4TbN8sWd3HyJ6cFg5Ae"


@pytest.fixture(name="tracker")
def _tracker() -> Iterator[FaultyTracker]:
    """A tracker without a server behind it."""
    with FaultyTracker(None) as tracker:
        yield tracker


@pytest.fixture(name="client")
def _client(tracker: FaultyTracker) -> TrackingClient:
    return TrackingClient(tracker.url, Credentials(token=TOKEN), seconds=20)


def answer(value: Any, code: int = 200, **more: Any) -> Answer:
    return Answer(code, json.dumps(value).encode(), **more)


def search(client: TrackingClient) -> Any:
    return client.call("search_runs", ["1"], "", 1)


def failure(client: TrackingClient) -> TrackingError:
    """The error of a search, which must have no secret."""
    with pytest.raises(TrackingError) as raised:
        search(client)
    assert TOKEN not in f"{raised.value} {raised.value!r}"
    assert len(str(raised.value).splitlines()) == 1
    assert str(raised.value).startswith(client.uri)
    return raised.value


def test_call_has_method_path_and_headers(tracker: FaultyTracker, client: TrackingClient) -> None:
    tracker.always(answer({"run": {"info": {"run_id": "7", "run_uuid": "7", "end_time": "12"}}}))
    run = client.call("get_run", "a b&c")
    assert (run.info.run_id, run.info.end_time, run.data.tags) == ("7", 12, {})
    client.call("log_batch", "7", metrics=[], params=[], tags=[])
    get, post = tracker.calls
    assert get.path.endswith("/runs/get?run_uuid=a+b%26c&run_id=a+b%26c")
    assert post.json()["run_id"] == "7"
    assert {call.headers["Authorization"] for call in tracker.calls} == {f"Bearer {TOKEN}"}
    assert (client.calls, client.writes) == (2, 1)


@pytest.mark.parametrize(
    "body", [b"[]", b"7", b"{", b"\xff", b'{"runs": 3}', b"[" * 100_000], ids=repr
)
def test_other_answers_are_one_sentence(
    body: bytes, tracker: FaultyTracker, client: TrackingClient
) -> None:
    tracker.always(Answer(200, body))
    error = failure(client)
    assert "was asked to search for runs" in str(error) or "when asked to search for" in str(error)
    assert "check the tracking URI" in str(error)
    assert not error.transient


@pytest.mark.parametrize(
    ("code", "body", "cause", "remedy", "transient"),
    [
        (
            *(401, b"", "error code 401"),
            *("set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME", False),
        ),
        (403, b"[]", "error code 403", "set MLFLOW_TRACKING_TOKEN", False),
        (404, b"<html>", "error code 404", "check the tracking URI", False),
        (
            *(404, b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no run"}'),
            *("RESOURCE_DOES_NOT_EXIST: no run", "the server's log", False),
        ),
        (400, b'{"message": "a\\nb\\u001b[31m"}', "a b\\x1b[31m", "the server's log", False),
        (500, b"", "500 error", "export again, which goes on where it stopped", True),
        (503, b'{"error_code": 3}', "503 error", "export again", True),
    ],
)
def test_refusals_are_one_sentence(
    code: int,
    body: bytes,
    cause: str,
    remedy: str,
    transient: bool,
    tracker: FaultyTracker,
    client: TrackingClient,
) -> None:
    tracker.always(Answer(code, body))
    error = failure(client)
    assert f"{tracker.url} was asked to search for runs: " in error.event
    assert cause in error.event
    assert remedy in str(error)
    assert error.transient is transient
    assert len(tracker.calls) == 1, "nothing is repeated"


@pytest.mark.parametrize(
    ("credentials", "secret"),
    [(Credentials(token=TOKEN), TOKEN), (Credentials(user="ada", password=TOKEN), f"ada:{TOKEN}")],
)
@pytest.mark.parametrize("before", [0, 270], ids="before {}".format)
def test_repeated_secrets_are_hidden(
    credentials: Credentials, secret: str, before: int, tracker: FaultyTracker
) -> None:
    """Not even where the text is cut."""
    tracker.always(answer({"error_code": secret, "message": "x" * before + secret}, 401))
    assert TOKEN[:8] not in str(failure(TrackingClient(tracker.url, credentials)))


def test_loopback_uses_no_proxy(
    tracker: FaultyTracker, client: TrackingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultyTracker(None) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        tracker.always(answer({}))
        search(client)
        assert (len(tracker.calls), proxy.calls) == (1, [])


def test_credential_files_in_the_home_are_not_used(
    tracker: FaultyTracker, client: TrackingClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text("default login ada password other\n")
    (tmp_path / ".mlflow").mkdir()
    (tmp_path / ".mlflow" / "credentials").write_text(
        "[mlflow]\nmlflow_tracking_username = ada\nmlflow_tracking_password = other\n"
    )
    tracker.always(answer({}))
    search(client)
    search(TrackingClient(tracker.url))
    headers = [call.headers.get("Authorization") for call in tracker.calls]
    assert headers == [f"Bearer {TOKEN}", None]


# --- time -----------------------------------------------------------------------------------


@contextmanager
def endless_server() -> Iterator[str]:
    """A server of one call that sends blanks as long as they are read."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
                while not over.is_set():
                    connection.sendall(b" ")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        thread.join(60)


def test_endless_answer_times_out() -> None:
    """No single part of it is late."""
    with endless_server() as url:
        error = failure(TrackingClient(url, seconds=0.1))
    assert f"{url} did not answer within 0.1 s when asked to search for runs" in str(error)
    assert error.transient


def test_no_call_after_the_overall_deadline(tracker: FaultyTracker, client: TrackingClient) -> None:
    client.deadline = 0.0
    assert failure(client).transient
    assert tracker.calls == []


def test_missing_server_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    error = failure(TrackingClient(url))
    assert f"{url} was asked to search for runs: Connection refused; check that it runs" in str(
        error
    )
    assert error.transient


@pytest.fixture(name="certificate")
def _certificate(tmp_path: Path) -> Path:
    """A self-signed certificate of 127.0.0.1, with its key in the same file."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tracker")])
    addresses = [x509.IPAddress(IPv4Address("127.0.0.1"))]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .sign(key, hashes.SHA256())
    )
    text = serialization.Encoding.PEM
    path = tmp_path / "tracker.pem"
    path.write_bytes(
        key.private_bytes(text, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(text)
    )
    return path


def test_tls_needs_a_trusted_certificate(tracker: FaultyTracker, certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    tracker.encrypt(context)
    tracker.always(answer({}))
    url = tracker.url.replace("http:", "https:")
    error = failure(TrackingClient(url, Credentials(token=TOKEN), seconds=20))
    assert "certificate verify failed" in str(error)
    assert "MLFLOW_TRACKING_SERVER_CERT_PATH names a file with the right certificates" in str(error)
    assert (error.transient, tracker.calls) == (False, [])
    for options in ({"certificates": str(certificate)}, {"verify": False}):
        client = TrackingClient(url, Credentials(token=TOKEN), seconds=20, **options)
        assert list(search(client)) == []
    assert len(tracker.calls) == 2


# --- which server an export writes to, and with which credentials -----------------------------


HOST: Final = "https://mlflow.example.edu"
OTHERS: Final = (
    *("databricks", "sqlite:///x.db", "file:///x"),
    *("http://", "http://a:x", "http://é.edu"),
)
CONFIGURED: Final = TrackingSettings(
    uri=f"{HOST}/", experiment="mine", token=SecretText("configured-token")
)


def server(
    uri: str | None = None, settings: TrackingSettings | None = None, **environment: str
) -> TrackingClient:
    return tracking_server(uri, environment, settings or TrackingSettings())


def header(client: TrackingClient) -> str | None:
    """The ``Authorization`` header of the client."""
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
def test_first_given_address_counts(given: str | None, environment: str, expected: str) -> None:
    assert server(given, CONFIGURED, MLFLOW_TRACKING_URI=environment).uri == expected


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        (None, "--tracking-uri https://HOST, or set MLFLOW_TRACKING_URI"),
        *((uri, "at https:// or http:// addresses only") for uri in OTHERS),
        ("https://ada:sesame@mlflow.example.edu", "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACK"),
    ],
)
def test_unusable_address_is_refused(uri: str | None, sentence: str) -> None:
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
def test_credentials_from_the_environment(
    environment: Mapping[str, str], expected: str | None
) -> None:
    variables = {f"MLFLOW_TRACKING_{name}": value for name, value in environment.items()}
    client = server(**{"MLFLOW_TRACKING_URI": HOST, **variables})
    assert client.uri == HOST
    assert header(client) == expected


def test_credentials_of_the_settings_are_for_their_server_only() -> None:
    assert header(server(None, CONFIGURED)) == "Bearer configured-token"
    assert header(server(HOST, CONFIGURED)) == "Bearer configured-token"
    for other in (
        "https://other.example.edu",
        f"{HOST}:444",
        f"{HOST}/other",
        "http://mlflow.example.edu",
    ):
        assert header(server(other, CONFIGURED)) is None, other
    # Those of the environment take precedence.
    assert header(server(None, CONFIGURED, MLFLOW_TRACKING_TOKEN="t")) == "Bearer t"


@pytest.mark.parametrize("token", ["t\r\nX-Other: 1", "tökén"])
def test_token_invalid_in_a_header_is_refused(token: str) -> None:
    with pytest.raises(InputError, match="no HTTP header may have") as error:
        server(HOST, MLFLOW_TRACKING_TOKEN=token)
    assert token not in str(error.value)


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "nan", "1e9"])
def test_invalid_time_limit_is_refused(seconds: str) -> None:
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
def test_secrets_sent_in_clear_are_detected(uri: str, token: str, clear: bool) -> None:
    assert server(uri, MLFLOW_TRACKING_TOKEN=token).sends_secrets_in_clear is clear


def test_first_given_experiment_counts() -> None:
    variable: dict[str, Any] = {"MLFLOW_EXPERIMENT_NAME": "theirs"}
    assert experiment_name("given", variable, CONFIGURED) == "given"
    assert experiment_name(None, variable, CONFIGURED) == "theirs"
    assert experiment_name(None, {}, CONFIGURED) == "mine"
    assert experiment_name(None, {}, TrackingSettings()) == "metlmon"
