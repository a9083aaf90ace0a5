"""The process that exports a DAG into one MLflow run until the DAG ends.

``mlflow run . -b metlmon`` starts it and returns at once. The server and its credentials are those
of the environment, as for ``metlmon export --to mlflow --follow``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.mlflow_follower import MlflowFollower
from metlmon.config.loader import load_settings
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.tracking.mlflow_client import TrackingError
from metlmon.tracking.mlflow_export import MlflowExporter
from metlmon.tracking.mlflow_settings import tracking_server

COMMAND: Final = ("-P", "-m", "metlmon.cli.run_export")
"""Arguments of Python, before the DAG file and the id of the run."""

OUTPUT_FILE: Final = "mlflow-export.txt"
"""Where its messages go, beside the DAG."""


def export_until_end(dag: Path, run_id: str) -> int:
    """Export until the DAG has ended. Returns the exit status; 6: something was refused.

    Raises InputError and TrackingError.
    """
    settings = load_settings(dag.parent)
    reader = DagdirReader(dag, settings)
    reader.open()
    reader.read_all()
    server = tracking_server(None, os.environ, settings.tracking)
    exporter = MlflowExporter(server, "", parent_id=run_id)
    return MlflowFollower(reader, server, exporter).run()


def main() -> int:
    """Export by the arguments of the process: the DAG file and the id of the run."""
    dag, run_id = sys.argv[1:]
    try:
        return export_until_end(Path(dag), run_id)
    except (InputError, TrackingError) as error:
        print(f"metlmon: {error}", file=sys.stderr)
        return Exit.REFUSED


if __name__ == "__main__":
    sys.exit(main())
