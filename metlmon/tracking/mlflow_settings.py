"""Which MLflow server to write to, and with which credentials.

The address: ``--tracking-uri``, else MLflow's own ``MLFLOW_TRACKING_URI``, else ``[tracking]`` in
the user's ``metlmon.toml``. Credentials come from MLflow's environment variables; those of
``[tracking]`` are for the server named there alone. A dagdir's ``metlmon.toml`` has no say: it may
be a copy of somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from metlmon.config.settings import TrackingSettings
from metlmon.errors import InputError
from metlmon.text.formatting import plain
from metlmon.tracking.mlflow_client import CALL_SECONDS, Credentials, TrackingClient

DEFAULT_EXPERIMENT: Final = "metlmon"
"""The same for all ensembles: one that is named like a directory would change with it."""

NO_SERVER: Final = (
    "--to mlflow: no server is named; give --tracking-uri https://HOST, or set "
    "MLFLOW_TRACKING_URI, or uri under [tracking] in your metlmon.toml"
)


def tracking_server(
    uri: str | None, environment: Mapping[str, str], settings: TrackingSettings
) -> TrackingClient:
    """The server to write to; ``uri``: of the command line. Raises InputError."""
    configured = settings.uri
    address = uri or environment.get("MLFLOW_TRACKING_URI") or configured
    if not address:
        raise InputError(NO_SERVER)
    base, user, password = _split(address)
    if uri and (user or password):
        raise InputError(
            "--tracking-uri: leave the user name and the password out, which all users of this "
            "machine could see; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    own = configured is not None and _split(configured)[0] == base
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


def _split(uri: str) -> tuple[str, str, str]:
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
