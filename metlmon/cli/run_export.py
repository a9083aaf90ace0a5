"""The process that exports a DAG into one MLflow run until the DAG ends.

``mlflow run . -b metlmon`` starts it and returns at once. The server and its credentials are those
of the environment, as for ``metlmon export --to mlflow``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

from metlmon.cli.commands.report import report_of
from metlmon.cli.exit_codes import Exit
from metlmon.cli.reading import input_with_trainings
from metlmon.config.loader import load_settings
from metlmon.errors import InputError
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.model.states import ENDED
from metlmon.report.to_html import render_html
from metlmon.tracking.mlflow_client import TrackingError
from metlmon.tracking.mlflow_export import MlflowExporter
from metlmon.tracking.mlflow_runs import tracked_ensemble
from metlmon.tracking.mlflow_settings import tracking_server

COMMAND: Final = ("-P", "-m", "metlmon.cli.run_export")
"""Arguments of Python, before the DAG file and the id of the run."""

OUTPUT_FILE: Final = "mlflow-export.txt"
"""Where its messages go, beside the DAG."""

POLL_SECONDS: Final = 1.0
"""How often the files are read."""

EXPORT_SECONDS: Final = 10.0
"""The least time between two exports while the DAG runs: several calls each."""


def export_until_end(dag: Path, run_id: str) -> int:
    """Export changes until the DAG has ended and nothing of it changes any more.

    Returns an exit status; 6: the server refused the last export, or did not answer.
    """
    settings = load_settings(dag.parent)
    reader = DagdirReader(dag, settings)
    reader.open()
    server = tracking_server(None, os.environ, settings.tracking)
    exporter = MlflowExporter(server, "", parent_id=run_id)
    exported: object = None
    earliest = 0.0
    while True:
        reader.read_all()
        status = reader.snapshot_builder().status()
        seen = status.logs, status.dags, status.node_states
        ended = bool(status.dags) and all(row.state in ENDED for row in status.dags)
        if seen == exported and ended:
            return Exit.OK
        if seen != exported and (ended or time.monotonic() >= earliest):
            try:
                _export(reader, exporter, ended)
                exported = seen
            except TrackingError as error:
                print(f"metlmon: {error}", file=sys.stderr, flush=True)
                if ended or not error.transient:
                    return Exit.REFUSED
            earliest = time.monotonic() + EXPORT_SECONDS
        time.sleep(POLL_SECONDS)
        reader.check()


def _export(reader: DagdirReader, exporter: MlflowExporter, ended: bool) -> None:
    """Export what there is now; the report when the DAG has ended."""
    ensemble = tracked_ensemble(reader.snapshot_builder(), input_with_trainings(reader))
    if ensemble is None:
        return
    report = render_html(report_of(reader)).encode() if ended else None
    result = exporter.export(ensemble, report)
    for text in (*result.warnings, *result.problems):
        print(f"metlmon: {text}", file=sys.stderr, flush=True)


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
