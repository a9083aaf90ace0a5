"""What an export imports and compiles, for the process that exports are forked from."""

from __future__ import annotations

import os

import mlflow.store.tracking.rest_store  # noqa: F401

from metlmon.cli.commands import export_mlflow  # noqa: F401
from metlmon.cli.main import main
from tests.support.recordings import FIXTURES

main(["report", str(FIXTURES / "rescue"), "--html", os.devnull])
