"""A client of an MLflow tracking server, based on MLflow's own, and the choice of the server.

MLflow's REST store determines what is sent and what an answer means; it is the class behind
``MlflowClient``, and accepts credentials without environment variables. Importing it takes
1.4 s of a processor and 160 MB, so the first call imports it. This module adds what an export
guarantees:

- A call is not repeated: one whose answer was lost may have been carried out.
- A call has one time limit from its first byte to its last, and all calls share a deadline.
- Credentials go only to the tracking server. Redirections are refused, no proxy is used for
  this machine, and those of ``~/.netrc`` and ``~/.mlflow/credentials`` are not used.
- No text, error or ``repr`` contains them: MLflow's errors quote the server's answers, which may
  repeat them.
- Nothing is sent to MLflow's developers (its telemetry).

The size of an answer has no limit, and a call that exceeds its time limit continues in its thread
until the program ends. For HTTP 408, 429 and 5xx MLflow keeps only the status, so no text is shown.

The server's address: ``--tracking-uri``, else MLflow's own ``MLFLOW_TRACKING_URI``, else
``[tracking]`` in the user's ``metlmon.toml``. Credentials come from MLflow's environment variables;
those of ``[tracking]`` are only for the server named there. A dagdir's ``metlmon.toml`` is ignored:
it may be a copy of somebody else's.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from metlmon.config.loader import LOOPBACK
from metlmon.config.settings import TrackingSettings
from metlmon.errors import InputError
from metlmon.redact import HIDDEN, redact_secrets
from metlmon.text.formatting import plain

ARTIFACTS: Final = "/api/2.0/mlflow-artifacts/artifacts/"

CALL_SECONDS: Final = 30.0
"""Default time limit of a call."""

MAX_QUOTED: Final = 300
"""Maximum characters shown of an error of MLflow or its server."""

DEFAULT_EXPERIMENT: Final = "metlmon"
"""The same for all ensembles: the name of the directory would change when it is renamed."""

NO_SERVER: Final = (
    "--to mlflow: no server is named; give --tracking-uri https://HOST, or set "
    "MLFLOW_TRACKING_URI, or uri under [tracking] in your metlmon.toml"
)


class Call(NamedTuple):
    """A call to a server: what it does, and whether it writes."""

    task: str
    writes: bool = True


CALLS: Final = {
    "get_experiment_by_name": Call("look for the experiment", writes=False),
    "get_run": Call("read a run", writes=False),
    "search_runs": Call("search for runs", writes=False),
    "get_metric_history": Call("read a metric", writes=False),
    "create_experiment": Call("create the experiment"),
    "create_run": Call("create a run"),
    "update_run_info": Call("set the status of a run"),
    "delete_run": Call("delete a duplicate of a run"),
    "log_batch": Call("write metrics, params and tags"),
    "delete_tag": Call("delete a tag"),
    "upload": Call("upload a file"),
}
"""The calls by the method of MLflow's tracking stores."""


class TrackingError(Exception):
    """A failed call. ``str()`` is one sentence: what happened at which server, and a remedy.

    ``event``: the sentence without the remedy. ``transient``: whether a retry may succeed.
    ``code``: the server's error code, such as ``RESOURCE_DOES_NOT_EXIST``, or "".
    """

    def __init__(self, event: str, remedy: str, *, transient: bool = False, code: str = "") -> None:
        super().__init__(f"{event}; {remedy}")
        self.event = event
        self.transient = transient
        self.code = code


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
        """What no text may contain, including the password as HTTP encodes it."""
        encoded = b64encode(f"{self.user}:{self.password}".encode()).decode()
        return tuple(filter(None, (self.token, self.password, self.password and encoded)))


class TrackingClient:
    """A client of an MLflow tracking server.

    ``uri``: its http or https address, without credentials. ``seconds``: the time limit of a call;
    ``deadline``: that of all calls together, on the monotonic clock. ``certificates``: a file of
    trusted certificates. ``calls`` and ``writes`` count the calls made. Methods raise
    TrackingError.
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
        self._certificates = certificates
        self._verify = verify

    def __repr__(self) -> str:
        return f"TrackingClient({self.uri!r})"

    @property
    def sends_secrets_in_clear(self) -> bool:
        """Whether credentials cross a network without encryption."""
        local = urlsplit(self.uri).hostname in LOOPBACK
        encrypted = self.uri.startswith("https:")
        return bool(self._credentials.secrets) and not encrypted and not local

    def safe_text(self, text: str) -> str:
        """A text of the server for display, without the credentials, which it may repeat."""
        for secret in self._credentials.secrets:
            text = text.replace(secret, HIDDEN)
        return plain(redact_secrets(text), MAX_QUOTED)

    # --- calls ------------------------------------------------------------------------------

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of MLflow's store (:data:`CALLS`) and return its result."""
        return self._ask(method, getattr(self._store, method), *arguments, **named)

    def pages(self, method: str, **named: Any) -> Iterator[Any]:
        """The items of all pages. Raises TrackingError if a page names itself as the next one."""
        token = None
        while True:
            page = self.call(method, **named, page_token=token)
            yield from page
            if not page.token:
                return
            if page.token == token:
                raise TrackingError(
                    f"{self.uri} answered with the same page again", "see the server's log"
                )
            token = page.token

    def set_status(self, run_id: str, status: str, end: int | None) -> None:
        """Set the status of a run, and its end unless that is None."""
        update = self._store.update_run_info
        from mlflow.entities import RunStatus

        number = RunStatus.from_string(status)
        self._ask("update_run_info", update, run_id, number, end_time=end, run_name=None)

    def upload(self, path: str, content: bytes, media_type: str) -> None:
        """Upload a file to the server's artifacts, where it gets this ``path``.

        MLflow's classes for artifacts take credentials from the environment, and send them to the
        host that the server names.
        """
        from mlflow.utils.rest_utils import http_request, verify_rest_response

        endpoint, headers = ARTIFACTS + quote(path), {"Content-Type": media_type}

        def put() -> None:
            answer = http_request(
                self._host(), endpoint, "PUT", data=content, extra_headers=headers
            )
            # The body has no fixed form: some servers send an empty one.
            if answer.status_code != 200:
                verify_rest_response(answer, endpoint)

        self._ask("upload", put)

    # --- one call ---------------------------------------------------------------------------

    @cached_property
    def _store(self) -> Any:
        """MLflow's store, imported on first access."""
        with self._variables(self.seconds):
            from mlflow.store.tracking.rest_store import RestStore

        # Their messages would contain answers of the server.
        for name in ("mlflow.exceptions", "mlflow.store", "mlflow.utils"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        return RestStore(self._host)

    def _host(self) -> Any:
        """The server in the form that MLflow's classes expect."""
        from mlflow.utils.rest_utils import MlflowHostCreds

        return MlflowHostCreds(
            self.uri,
            username=self._credentials.user,
            password=self._credentials.password,
            token=self._credentials.token,
            ignore_tls_verification=not self._verify,
            server_cert_path=self._certificates if self._verify else None,
        )

    def _ask(self, name: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The result of an MLflow function, within the time limit; ``name``: a key of ``CALLS``.

        MLflow limits the time only for each part of an answer, so the function runs in a thread,
        which is abandoned when time is up.
        """
        self.calls += 1
        self.writes += CALLS[name].writes
        seconds = min(self.seconds, self.deadline - time.monotonic())
        answer: Future[Any] = Future()

        def run() -> None:
            try:
                answer.set_result(function(*arguments, **named))
            except Exception as error:
                answer.set_exception(error)

        try:
            with self._variables(seconds):
                if seconds > 0:
                    threading.Thread(target=run, name="metlmon-mlflow", daemon=True).start()
                return answer.result(seconds)
        except Exception as error:
            raise self._failure(CALLS[name].task, error) from None

    @contextmanager
    def _variables(self, seconds: float) -> Iterator[None]:
        """Set the environment for a call: MLflow reads further options of HTTP requests from it."""
        variables = {
            "MLFLOW_HTTP_REQUEST_TIMEOUT": str(max(1, math.ceil(seconds))),
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
            "MLFLOW_ALLOW_HTTP_REDIRECTS": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "NETRC": os.devnull,
        }
        host = urlsplit(self.uri).hostname
        if host in LOOPBACK:
            variables["no_proxy"] = host
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def _failure(self, task: str, error: Exception) -> TrackingError:
        """The error of a call as a sentence."""
        from mlflow.exceptions import MlflowException
        from requests.exceptions import RequestException, SSLError, Timeout

        causes: list[BaseException] = [error]
        while cause := causes[-1].__cause__ or causes[-1].__context__:
            causes.append(cause)

        def is_caused_by(*kinds: type[BaseException]) -> bool:
            return any(isinstance(cause, kinds) for cause in causes)

        if is_caused_by(TimeoutError, Timeout):
            return TrackingError(
                f"{self.uri} did not answer within {self.seconds:g} s when asked to {task}",
                "export again, which goes on where it stopped",
                transient=True,
            )
        if not is_caused_by(MlflowException):
            return TrackingError(
                f"{self.uri} does not answer as an MLflow server does when asked to {task} "
                f"({type(error).__name__})",
                "check the tracking URI",
            )
        first = causes[-1]
        text = getattr(first, "strerror", None) or str(first) or type(first).__name__
        event = f"{self.uri} was asked to {task}: {self.safe_text(text)}"
        if is_caused_by(SSLError):
            remedy = "MLFLOW_TRACKING_SERVER_CERT_PATH names a file with the right certificates"
            return TrackingError(event, remedy)
        if is_caused_by(RequestException):
            remedy = (
                "check that it runs and that the tracking URI is right, then export again, which "
                "goes on where it stopped"
            )
            return TrackingError(event, remedy, transient=True)
        status = error.get_http_status_code() if isinstance(error, MlflowException) else None
        remedy = "check the tracking URI, and see the server's log"
        if status in (401, 403):
            remedy = (
                "set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD, to what the server takes"
            )
        return TrackingError(event, remedy, code=getattr(error, "error_code", ""))


# --- which server -------------------------------------------------------------------------------


def tracking_server(
    uri: str | None, environment: Mapping[str, str], settings: TrackingSettings
) -> TrackingClient:
    """The server to write to; ``uri``: that of the command line. Raises InputError."""
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
    """The experiment to write to; ``name``: that of the command line."""
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
