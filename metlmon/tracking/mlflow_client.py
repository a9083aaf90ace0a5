"""A client of MLflow's REST API on the standard library alone, and which server it talks to.

MLflow's own client (mlflow-skinny 3.17) takes 1.4 s to import and 160 MB of memory, waits without
an end for a server that drips its answer, reads answers of any size, sends the token for this
machine to a proxy, and has what a server says, token and control sequences included, in its errors.
The ten endpoints used here are documented in MLflow's "REST API", as are the fields of what a
server answers. Fields that metlmon does not use are left out, and ignored where a server has them.

The server's address: ``--tracking-uri``, else MLflow's own ``MLFLOW_TRACKING_URI``, else
``[tracking]`` in the user's ``metlmon.toml``. Credentials come from MLflow's environment variables;
those of ``[tracking]`` are for the server named there alone. A dagdir's ``metlmon.toml`` has no
say: it may be a copy of somebody else's. Credentials go to the tracking server only: redirections
are refused, and no text, error or ``repr`` contains them.
"""

from __future__ import annotations

import json
import math
import ssl
import sys
import time
from base64 import b64encode
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from io import BufferedReader, RawIOBase
from socket import socket
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.error import URLError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import (
    BaseHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from msgspec import Struct, ValidationError, convert, field

from metlmon import __version__
from metlmon.config.readers import LOOPBACK
from metlmon.config.settings import TrackingSettings
from metlmon.errors import InputError
from metlmon.redact import HIDDEN, redact_secrets
from metlmon.text.formatting import plain

API: Final = "/api/2.0/mlflow/"
ARTIFACTS: Final = "/api/2.0/mlflow-artifacts/artifacts/"

CALL_SECONDS: Final = 30.0
"""Default time limit of connecting, and of an answer from its first header to its last byte."""

MAX_ANSWER: Final = 256_000_000
"""Maximum bytes of an answer."""

MAX_QUOTED: Final = 300
"""Characters of a server's message that an error quotes."""

TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP codes of failures that may not last."""


DEFAULT_EXPERIMENT: Final = "metlmon"
"""The same for all ensembles: one that is named like a directory would change with it."""

NO_SERVER: Final = (
    "--to mlflow: no server is named; give --tracking-uri https://HOST, or set "
    "MLFLOW_TRACKING_URI, or uri under [tracking] in your metlmon.toml"
)

Answer = TypeVar("Answer", bound=Struct)


class TrackingError(Exception):
    """A call failed. ``str()`` is one sentence: what happened at which server, and a remedy.

    ``event``: the sentence without the remedy. ``transient``: it may succeed later. ``code``: the
    server's error code, such as ``RESOURCE_DOES_NOT_EXIST``, or "".
    """

    def __init__(self, event: str, remedy: str, *, transient: bool = False, code: str = "") -> None:
        super().__init__(f"{event}; {remedy}")
        self.event = event
        self.transient = transient
        self.code = code


# --- answers ------------------------------------------------------------------------------------


class NoContent(Struct):
    """An answer of which nothing is used."""


class KeyValue(Struct):
    """A param or a tag."""

    key: str
    value: str = ""


class Metric(Struct):
    """One value of a metric; ``timestamp``: milliseconds since 1970."""

    key: str
    value: float
    timestamp: int = 0
    step: int = 0


class RunInfo(Struct):
    """``end_time``: milliseconds since 1970; None or 0 before the first end."""

    run_id: str
    experiment_id: str = ""
    status: str = ""
    end_time: int | None = None
    artifact_uri: str = ""


class RunData(Struct):
    """``metrics``: of each the value with the greatest step, then the latest time."""

    metrics: list[Metric] = field(default_factory=list)
    params: list[KeyValue] = field(default_factory=list)
    tags: list[KeyValue] = field(default_factory=list)


class Run(Struct):
    """A run as the server has it."""

    info: RunInfo
    data: RunData = field(default_factory=RunData)

    @property
    def id(self) -> str:
        return self.info.run_id

    @property
    def params(self) -> dict[str, str]:
        return {param.key: param.value for param in self.data.params}

    @property
    def tags(self) -> dict[str, str]:
        return {tag.key: tag.value for tag in self.data.tags}


class RunAnswer(Struct):
    """Of ``runs/create`` and ``runs/get``."""

    run: Run


class RunsAnswer(Struct):
    """Of ``runs/search``."""

    runs: list[Run] = field(default_factory=list)
    next_page_token: str = ""


class HistoryAnswer(Struct):
    """Of ``metrics/get-history``."""

    metrics: list[Metric] = field(default_factory=list)
    next_page_token: str = ""


class Experiment(Struct):
    """An experiment; ``lifecycle_stage``: active or deleted."""

    experiment_id: str
    lifecycle_stage: str = ""


class ExperimentAnswer(Struct):
    """Of ``experiments/get-by-name``."""

    experiment: Experiment


class Endpoint(NamedTuple, Generic[Answer]):
    """A REST endpoint: method, path, what a call of it does, its answer, whether it writes."""

    method: str
    path: str
    task: str
    answer: type[Answer]
    writes: bool = False


def _writing(path: str, task: str, answer: type[Answer]) -> Endpoint[Answer]:
    return Endpoint("POST", API + path, task, answer, writes=True)


GET_EXPERIMENT: Final = Endpoint(
    "GET", f"{API}experiments/get-by-name", "look for the experiment", ExperimentAnswer
)
GET_RUN: Final = Endpoint("GET", f"{API}runs/get", "read a run", RunAnswer)
SEARCH_RUNS: Final = Endpoint("POST", f"{API}runs/search", "search for runs", RunsAnswer)
METRIC_HISTORY: Final = Endpoint("GET", f"{API}metrics/get-history", "read a metric", HistoryAnswer)
CREATE_EXPERIMENT: Final = _writing("experiments/create", "create the experiment", Experiment)
CREATE_RUN: Final = _writing("runs/create", "create a run", RunAnswer)
UPDATE_RUN: Final = _writing("runs/update", "set the status of a run", NoContent)
DELETE_RUN: Final = _writing("runs/delete", "delete a duplicate of a run", NoContent)
LOG_BATCH: Final = _writing("runs/log-batch", "write metrics, params and tags", NoContent)
DELETE_TAG: Final = _writing("runs/delete-tag", "delete a tag", NoContent)


def stored_value(value: float) -> float | None:
    """A value as an SQL store returns it: infinities as the largest number; None for NaN."""
    if math.isnan(value):
        return None
    return max(-sys.float_info.max, min(sys.float_info.max, value))


# --- the client ---------------------------------------------------------------------------------


class Credentials(Struct, frozen=True):
    """A token, or a user name and a password; all may be missing."""

    token: str = ""
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Credentials({HIDDEN})" if self.secrets else "Credentials()"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no text may contain."""
        encoded = self.header.split()[-1] if self.header else ""
        return tuple(filter(None, (self.token, self.password, encoded)))

    @property
    def header(self) -> str | None:
        """The value of ``Authorization``; as in MLflow a password precedes a token."""
        if self.user and self.password:
            pair = f"{self.user}:{self.password}".encode()
            return f"Basic {b64encode(pair).decode()}"
        return f"Bearer {self.token}" if self.token else None


class _LimitedReads(RawIOBase):
    """What a socket receives until its time limit has passed once, however little comes."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rb", buffering=0)
        seconds = connection.gettimeout()
        self._end = None if seconds is None else time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._end is not None:
            # 0 would mean not to wait at all.
            self._connection.settimeout(max(1e-3, self._end - time.monotonic()))
            if time.monotonic() > self._end:
                raise TimeoutError
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _LimitedResponse(HTTPResponse):
    """A response whose head and body come within one time limit together."""

    def __init__(self, sock: socket, *arguments: Any, **more: Any) -> None:
        super().__init__(sock, *arguments, **more)
        self.fp.close()
        self.fp = BufferedReader(_LimitedReads(sock))


class _LimitedHandler(HTTPSHandler, HTTPHandler):
    """Connections whose responses are limited."""

    def do_open(self, http_class: Any, req: Request, **more: Any) -> HTTPResponse:
        limited: Any = type("Limited", (http_class,), {"response_class": _LimitedResponse})
        return super().do_open(limited, req, **more)


class _AnyStatus(HTTPErrorProcessor):
    """Returns answers of any status as they are: no redirection is followed."""

    def http_response(self, request: Request, response: HTTPResponse) -> HTTPResponse:
        return response

    https_response = http_response


class TrackingClient:
    """A client of an MLflow tracking server.

    ``uri``: its http or https address, without credentials. ``seconds``: the time limit of a
    call; ``deadline``: that of all calls together, of the monotonic clock. ``calls`` and ``writes``
    count the calls made. Methods raise TrackingError, and repeat nothing: a call whose answer was
    lost may have been carried out. Raises InputError where ``certificates``, a file, cannot be
    read.
    """

    def __init__(
        self,
        uri: str,
        credentials: Credentials | None = None,
        *,
        seconds: float = CALL_SECONDS,
        certificates: str | None = None,
        verify: bool = True,
    ) -> None:
        self.uri = uri.rstrip("/")
        self.seconds = seconds
        self.deadline = math.inf
        self.calls = self.writes = 0
        self._credentials = credentials or Credentials()
        self._opener = self._make_opener(certificates, verify)

    def __repr__(self) -> str:
        return f"TrackingClient({self.uri!r})"

    @property
    def sends_secrets_in_clear(self) -> bool:
        """Whether credentials cross a network without encryption."""
        local = urlsplit(self.uri).hostname in LOOPBACK
        encrypted = self.uri.startswith("https:")
        return bool(self._credentials.secrets) and not encrypted and not local

    def call(self, endpoint: Endpoint[Answer], **fields: Any) -> Answer:
        """Call an endpoint: ``fields`` are parameters of a GET, the JSON body of a POST."""
        query, content = "", None
        if endpoint.method == "GET":
            query = f"?{urlencode(fields)}"
        else:
            content = json.dumps(fields, allow_nan=False).encode()
        answer = self._send(endpoint, query, content, "application/json")
        try:
            # Not strict: some servers write integers and NaN as texts.
            return convert(json.loads(answer or b"{}"), endpoint.answer, strict=False)
        except (ValueError, ValidationError, RecursionError):
            raise TrackingError(
                f"{self.uri} does not answer as an MLflow server does when asked to "
                f"{endpoint.task}",
                "check the tracking URI",
            ) from None

    def put_artifact(self, path: str, content: bytes, media_type: str) -> None:
        """Upload a file to the artifacts of the server, of which ``path`` is the path there."""
        endpoint = Endpoint("PUT", ARTIFACTS + quote(path), "upload a file", NoContent, True)
        self._send(endpoint, "", content, media_type)

    def safe_text(self, text: str) -> str:
        """A text of the server for people, without the credentials, which it may repeat."""
        for secret in self._credentials.secrets:
            text = text.replace(secret, HIDDEN)
        return plain(redact_secrets(text), MAX_QUOTED)

    # --- one call ---------------------------------------------------------------------------

    def _send(
        self, endpoint: Endpoint[Any], query: str, content: bytes | None, media_type: str
    ) -> bytes:
        headers = {"Content-Type": media_type, "User-Agent": f"metlmon/{__version__}"}
        if self._credentials.header is not None:
            headers["Authorization"] = self._credentials.header
        request = Request(
            f"{self.uri}{endpoint.path}{query}", content, headers, method=endpoint.method
        )
        self.calls += 1
        self.writes += endpoint.writes
        try:
            seconds = min(self.seconds, self.deadline - time.monotonic())
            if seconds <= 0:
                raise TimeoutError
            with self._opener.open(request, timeout=seconds) as answer:
                body = self._read_whole(answer)
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise self._failure(endpoint, error) from None
        if 200 <= answer.status < 300:
            return body
        raise self._refusal(endpoint, answer, body)

    def _read_whole(self, answer: HTTPResponse) -> bytes:
        """The body, of a limited size."""
        parts = []
        size = 0
        while part := answer.read1(1 << 16):
            parts.append(part)
            size += len(part)
            if size > MAX_ANSWER:
                raise TrackingError(
                    f"{self.uri} answered with more than {MAX_ANSWER / 1e6:g} MB",
                    "check the tracking URI",
                )
        if answer.length:
            raise ConnectionResetError
        return b"".join(parts)

    def _make_opener(self, certificates: str | None, verify: bool) -> OpenerDirector:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # Trusts nobody: http has none.
        if self.uri.startswith("https:"):
            try:
                context = ssl.create_default_context(cafile=certificates)
            except OSError as error:
                raise InputError(
                    f"MLFLOW_TRACKING_SERVER_CERT_PATH={certificates}: cannot be read: "
                    f"{error.strerror or 'no certificates'}; name a file of certificates"
                ) from None
            if not verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
        handlers: list[BaseHandler] = [_AnyStatus(), _LimitedHandler(context=context)]
        if urlsplit(self.uri).hostname in LOOPBACK:
            handlers.append(ProxyHandler({}))
        return build_opener(*handlers)

    # --- errors -----------------------------------------------------------------------------

    def _failure(self, endpoint: Endpoint[Any], error: Exception) -> TrackingError:
        """The error of a call without a complete answer."""
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, TimeoutError):
            return TrackingError(
                f"{self.uri} did not answer within {self.seconds:g} s when asked to "
                f"{endpoint.task}",
                "export again, which goes on where it stopped",
                transient=True,
            )
        if isinstance(reason, ssl.SSLCertVerificationError):
            return TrackingError(
                f"{self.uri} has a certificate that is not trusted here "
                f"({plain(reason.verify_message, 80)})",
                "MLFLOW_TRACKING_SERVER_CERT_PATH names a file with the right one",
            )
        detail = reason.strerror if isinstance(reason, OSError) and reason.strerror else ""
        detail = plain(detail or type(reason).__name__, 80)
        return TrackingError(
            f"{self.uri} could not be asked to {endpoint.task} ({detail})",
            "check that it runs and that the tracking URI is right, then export again",
            transient=isinstance(reason, OSError | HTTPException),
        )

    def _refusal(self, endpoint: Endpoint[Any], answer: HTTPResponse, body: bytes) -> TrackingError:
        """The error of a call that the server answered with another status than 2xx."""
        status = answer.status
        code, message = _error_body(body)
        named = f"HTTP {status} {self.safe_text(code)}".strip()
        text = f"{self.uri} was asked to {endpoint.task} and answered {named}"
        if message:
            text += f" ({self.safe_text(message)})"
        if 300 <= status < 400:
            target = self.safe_text(_origin(answer.headers.get("Location", "")))
            remedy = f"it redirects to {target}: give the tracking URI that it redirects to"
        elif status in (401, 403):
            remedy = (
                "set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD, to what the server takes"
            )
        elif status == 404 and not code:
            remedy = "check the tracking URI"
        elif status in TRANSIENT:
            remedy = "export again later, which goes on where it stopped"
        else:
            remedy = "see the server's log"
        return TrackingError(text, remedy, transient=status in TRANSIENT, code=code)


def _error_body(body: bytes) -> tuple[str, str]:
    """The error code and the message of an answer of MLflow's; empty for another's."""
    try:
        value = json.loads(body)
        return str(value.get("error_code", "")), str(value.get("message", ""))
    except (ValueError, AttributeError, RecursionError):
        return "", ""


def _origin(url: str) -> str:
    """Scheme and host of a URL, without what may be secret in it."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "another address"
    return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else "another path"


# --- which server -------------------------------------------------------------------------------


def tracking_server(
    uri: str | None, environment: Mapping[str, str], settings: TrackingSettings
) -> TrackingClient:
    """The server to write to; ``uri``: of the command line. Raises InputError."""
    configured = settings.uri
    address = uri or environment.get("MLFLOW_TRACKING_URI") or configured
    if not address:
        raise InputError(NO_SERVER)
    base, user, password = _without_credentials(address)
    if uri and (user or password):
        raise InputError(
            "--tracking-uri: leave the user name and the password out, which all users of this "
            "machine could see; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    own = configured is not None and _without_credentials(configured)[0] == base
    credentials = Credentials(
        token=environment.get("MLFLOW_TRACKING_TOKEN", "").strip(),
        user=user or environment.get("MLFLOW_TRACKING_USERNAME", ""),
        password=password or environment.get("MLFLOW_TRACKING_PASSWORD", ""),
    )
    if own and not credentials.secrets:
        credentials = Credentials(
            token=settings.token.value if settings.token else "",
            user=settings.username or "",
            password=settings.password.value if settings.password else "",
        )
    if not credentials.token.isascii() or not credentials.token.isprintable():
        raise InputError("MLFLOW_TRACKING_TOKEN has characters that no HTTP header may have")
    return TrackingClient(
        base,
        credentials,
        seconds=_seconds(environment.get("MLFLOW_HTTP_REQUEST_TIMEOUT")),
        certificates=environment.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or None,
        verify=environment.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() not in ("true", "1"),
    )


def experiment_name(
    name: str | None, environment: Mapping[str, str], settings: TrackingSettings
) -> str:
    """The experiment to write to; ``name``: of the command line."""
    return (
        name
        or environment.get("MLFLOW_EXPERIMENT_NAME")
        or settings.experiment
        or DEFAULT_EXPERIMENT
    )


def _without_credentials(uri: str) -> tuple[str, str, str]:
    """An address without credentials, and the user and the password in it. Raises InputError."""
    try:
        parts = urlsplit(uri.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or not uri.isascii():
        shown = plain(uri, 80) if "@" not in uri else "the address"
        raise InputError(
            f"{shown}: metlmon writes to MLflow servers at https:// or http:// addresses only; "
            "--tracking-uri names one"
        )
    place = parts.netloc.rpartition("@")[2]
    base = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
    return base, unquote(parts.username or ""), unquote(parts.password or "")


def _seconds(text: str | None) -> float:
    try:
        seconds = float(text or CALL_SECONDS)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise InputError(f"MLFLOW_HTTP_REQUEST_TIMEOUT={text}: a number of seconds, up to an hour")
    return seconds
