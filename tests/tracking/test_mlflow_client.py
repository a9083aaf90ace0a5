"""Calls of a tracking server: sentences for what goes wrong, and no secret in any of them."""

from __future__ import annotations

import json
import math
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from metlmon.tracking import mlflow_client
from metlmon.tracking.mlflow_client import (
    GET_RUN,
    LOG_BATCH,
    METRIC_HISTORY,
    SEARCH_RUNS,
    Credentials,
    TrackingClient,
    TrackingError,
)
from tests.support.faulty_tracker import Answer, FaultyTracker

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


def failure(client: TrackingClient) -> TrackingError:
    """The error of a search, in which there is no secret."""
    with pytest.raises(TrackingError) as raised:
        client.call(SEARCH_RUNS)
    assert TOKEN not in f"{raised.value} {raised.value!r}"
    assert len(str(raised.value).splitlines()) == 1
    return raised.value


def test_a_call(tracker: FaultyTracker, client: TrackingClient) -> None:
    tracker.always(answer({"run": {"info": {"run_id": "7", "run_uuid": "7", "end_time": "12"}}}))
    run = client.call(GET_RUN, run_id="a b&c").run
    assert (run.id, run.info.end_time, run.tags) == ("7", 12, {})
    client.call(LOG_BATCH, run_id="7")
    get, post = tracker.calls
    assert (get.method, get.path) == ("GET", "/api/2.0/mlflow/runs/get?run_id=a+b%26c")
    assert (post.method, post.json()) == ("POST", {"run_id": "7"})
    assert {call.headers["Authorization"] for call in tracker.calls} == {f"Bearer {TOKEN}"}
    assert (client.calls, client.writes) == (2, 1)


def test_numbers_as_texts(tracker: FaultyTracker, client: TrackingClient) -> None:
    values = ["NaN", "Infinity", "-Infinity", "0.5", 1]
    metrics = [{"key": "m", "value": value, "step": "3"} for value in values]
    tracker.always(answer({"metrics": metrics}))
    found = client.call(METRIC_HISTORY).metrics
    assert math.isnan(found[0].value)
    assert [each.value for each in found[1:]] == [math.inf, -math.inf, 0.5, 1.0]
    assert {each.step for each in found} == {3}


@pytest.mark.parametrize(
    "body",
    [b"[]", b"7", b"{", b"\xff", b'{"runs": 3}', b'{"runs": [{"info": {}}]}', b"[" * 100_000],
    ids=repr,
)
def test_an_answer_of_something_else(
    body: bytes, tracker: FaultyTracker, client: TrackingClient
) -> None:
    tracker.always(Answer(200, body))
    assert str(failure(client)) == (
        f"{tracker.url} does not answer as an MLflow server does when asked to search for runs; "
        "check the tracking URI"
    )


@pytest.mark.parametrize(
    ("code", "body", "sentence", "transient"),
    [
        (401, b"", "HTTP 401; set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and", False),
        (403, b"[]", "HTTP 403; set MLFLOW_TRACKING_TOKEN", False),
        (404, b"<html>", "HTTP 404; check the tracking URI", False),
        (
            *(404, b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no run"}'),
            *("HTTP 404 RESOURCE_DOES_NOT_EXIST (no run); see the server's log", False),
        ),
        (400, b'{"message": "a\\nb\\u001b[31m"}', "HTTP 400 (a b\\x1b[31m); see the", False),
        (500, b"", "HTTP 500; export again later, which goes on where it stopped", True),
        (503, b'{"error_code": 3}', "HTTP 503 3; export again later", True),
    ],
)
def test_a_refusal(
    code: int,
    body: bytes,
    sentence: str,
    transient: bool,
    tracker: FaultyTracker,
    client: TrackingClient,
) -> None:
    tracker.always(Answer(code, body))
    error = failure(client)
    assert f"{tracker.url} was asked to search for runs and answered {sentence}" in str(error)
    assert error.transient is transient


@pytest.mark.parametrize(
    ("credentials", "secret"),
    [(Credentials(token=TOKEN), TOKEN), (Credentials(user="ada", password=TOKEN), f"ada:{TOKEN}")],
)
@pytest.mark.parametrize("before", [0, 290], ids="before {}".format)
def test_no_part_of_a_repeated_secret_is_left(
    credentials: Credentials, secret: str, before: int, tracker: FaultyTracker
) -> None:
    """Not even where the text is cut."""
    tracker.always(answer({"error_code": secret, "message": "x" * before + secret}, 401))
    assert TOKEN[:8] not in str(failure(TrackingClient(tracker.url, credentials)))


def test_no_proxy_is_asked_for_this_machine(
    tracker: FaultyTracker, client: TrackingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultyTracker(None) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        tracker.always(answer({}))
        TrackingClient(tracker.url).call(SEARCH_RUNS)
        assert (len(tracker.calls), proxy.calls) == (1, [])


# --- time and size --------------------------------------------------------------------------


@contextmanager
def raw_server(*pieces: bytes, endless: bytes = b"") -> Iterator[str]:
    """A server of one call that sends these bytes, then ``endless`` as long as it is read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                try:
                    for piece in pieces:
                        connection.sendall(piece)
                    while endless:
                        connection.sendall(endless)
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(60)


HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def test_an_answer_without_an_end() -> None:
    with raw_server(HEAD + b"\r\n", endless=b" ") as url:
        error = failure(TrackingClient(url, seconds=0.1))
    assert f"{url} did not answer within 0.1 s when asked to search for runs" in str(error)
    assert error.transient


def test_after_the_deadline_of_all_calls_there_is_none(
    tracker: FaultyTracker, client: TrackingClient
) -> None:
    client.deadline = 0.0
    assert failure(client).transient
    assert tracker.calls == []


def test_a_head_that_comes_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of the clock each look is ten seconds later; no part of the head is late by itself.
    monkeypatch.setattr(mlflow_client.time, "monotonic", count(0.0, 10.0).__next__)
    with raw_server(HEAD, *(b"X-%d: %s\r\n" % (n, b"x" * 2000) for n in range(90))) as url:
        error = failure(TrackingClient(url, seconds=20))
    assert f"{url} did not answer within 20 s when asked to search for runs" in str(error)
    assert error.transient


def test_an_answer_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_client, "MAX_ANSWER", 1000)
    with raw_server(HEAD + b"\r\n", endless=b" " * 100) as url:
        error = failure(TrackingClient(url, seconds=20))
    assert str(error) == f"{url} answered with more than 0.001 MB; check the tracking URI"
    assert not error.transient


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{}", b"SSH-2.0-OpenSSH_9.2\r\n"]
)
def test_no_answer_of_http(sent: bytes) -> None:
    with raw_server(sent) as url:
        error = failure(TrackingClient(url, seconds=20))
    assert f"{url} could not be asked to search for runs (" in str(error)
    assert error.transient


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    error = failure(TrackingClient(url))
    assert f"{url} could not be asked to search for runs (Connection refused); check" in str(error)
    assert error.transient


@pytest.fixture(name="certificate")
def _certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1, signed by itself, with its key in one file."""
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


def test_encrypted_calls_need_a_certificate_that_is_trusted(
    tracker: FaultyTracker, certificate: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    tracker.encrypt(context)
    tracker.always(answer({}))
    url = tracker.url.replace("http:", "https:")
    error = failure(TrackingClient(url, Credentials(token=TOKEN), seconds=20))
    assert "has a certificate that is not trusted here (self" in str(error)
    assert "MLFLOW_TRACKING_SERVER_CERT_PATH names a file with the right one" in str(error)
    assert (error.transient, tracker.calls) == (False, [])
    for options in ({"certificates": str(certificate)}, {"verify": False}):
        client = TrackingClient(url, Credentials(token=TOKEN), seconds=20, **options)
        assert client.call(SEARCH_RUNS).runs == []
    assert len(tracker.calls) == 2
