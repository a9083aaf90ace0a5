"""Reports of ensembles, made like by the command."""

from __future__ import annotations

from functools import cache

from metlmon.report.build import build_report
from metlmon.report.document import Report
from metlmon.snapshot.builder import SnapshotBuilder
from metlmon.stats.windows import ALL, TimeWindow
from tests.conftest import shared_path
from tests.support.event_logs import Log, of_one_job
from tests.support.recordings import FIXTURES
from tests.support.records import read_dagdir, stats_input

EXAMPLES = ("metl-aws", "pool-ensemble")
NODE = "run0-train_epoch0"

HOSTILE = "</title><script>alert(1)</script><img src=x onerror=alert(2)>|`&\"'\x1b[31m\u202e"
"""What a job, a host or a person may write: markup, pipes, escape sequences."""


@cache
def builder(name: str) -> SnapshotBuilder:
    """The snapshot builder of a fixture or example."""
    return read_dagdir(shared_path(f"examples/{name}") if name in EXAMPLES else FIXTURES / name)


@cache
def report_of(name: str, window: TimeWindow = ALL, title: str | None = None) -> Report:
    return build_report(stats_input(builder(name)), None, window, title=title)


def report_of_log(log: Log, title: str | None = None) -> Report:
    return build_report(stats_input(of_one_job(log).builder()), None, title=title)


def hostile() -> Report:
    """One with hostile sites, GPU models and reasons."""
    log = Log().submit(77, NODE, at="10:00:00")
    gpu = HOSTILE.replace('"', "'").replace("\\", "")
    log.execute(77, gpu=gpu, site=gpu, at="10:10:00")
    log.hold(77, 12, f"cannot {HOSTILE}", at="11:10:00")
    log.submit(78, NODE).execute(78, gpu=gpu, site=gpu, at="12:00:00").terminate(78, at="15:00:00")
    return report_of_log(log, title=HOSTILE)


EMPTY = Log()
