"""The process that exports a DAG into one MLflow run until the DAG ends.

``mlflow run . -b metlmon`` starts it and returns at once. The server and its credentials are those
of the environment, as for ``metlmon export --to mlflow --follow``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

from metlmon.cli.exit_codes import Exit
from metlmon.cli.mlflow_follower import POLL_SECONDS, MlflowFollower
from metlmon.config.loader import load_settings
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import ENDED
from metlmon.tracking.mlflow_client import UPDATE_RUN, TrackingClient, TrackingError
from metlmon.tracking.mlflow_export import MlflowExporter
from metlmon.tracking.mlflow_records import NoContent
from metlmon.tracking.mlflow_runs import ENDED_STATUSES
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
    while reader.snapshot_builder().ledger().first_time is None:
        dags = reader.snapshot_builder().status().dags
        if dags and all(row.state in ENDED for row in dags):
            _end_run(server, run_id, ENDED_STATUSES[dags[0].state])
            return Exit.OK
        time.sleep(POLL_SECONDS)
        reader.check()
        reader.read_all()
    exporter = MlflowExporter(server, "", parent_id=run_id)
    return MlflowFollower(reader, server, exporter).run()


def _end_run(server: TrackingClient, run_id: str, status: str) -> None:
    """Set the status of the run of a DAG that ended before it submitted a job."""
    body = {"run_id": run_id, "status": status, "end_time": round(1000 * time.time())}
    server.post(UPDATE_RUN, NoContent, body)


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
