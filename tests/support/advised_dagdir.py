"""A gated ensemble over three sites, one of which fails every job, in the middle of its epochs."""

from __future__ import annotations

from pathlib import Path

from metlmon.authoring.runs import requirements
from tests.support.dagdir_builder import Dagdir
from tests.support.event_logs import Log, Out
from tests.support.gate_rows import OTHER, UUID, rules
from tests.support.gated_dagdir import gated_dag

FAST, SLOW, BROKEN = "Delta-GPU", "SDSC PRP", "Spark-CE1"
THIRD = "cccc3333-0000"
RUNS = (UUID, OTHER, THIRD)


def advised(path: Path, gated: bool = True, lists: bool = True) -> Dagdir:
    """Three runs of six epochs: two are done of each; of the third epochs two run and one is idle.

    ``gated``: with a gate, and a submit file that uses MetlSite; ``lists``: as a list.
    """
    dagdir = Dagdir(path, "")
    if gated:
        rules(path, "ens", *RUNS)
    dagdir.write("ens.dag", gated_dag(RUNS, "ens", retries=3, epochs=6, gated=gated))
    one_site = "TARGET.GLIDEIN_ResourceName =?= MY.MetlSite"
    line = requirements((), gated=True) if lists else one_site
    line = f"requirements = {line}\n" if gated else ""
    dagdir.write("e.sub", f"log = metl.log\nexecutable = train.py\n{line}queue\n")
    dagdir.write("ens.dag.dagman.out", Out().start("01:00:00").data)
    dagdir.write("metl.log", history().data)
    return dagdir


def history() -> Log:
    log, cluster = Log(), 0
    for epoch in range(2):
        for run in range(3):
            node = f"run{run}-train_epoch{epoch}"
            hour = 1 + 3 * epoch
            for _ in range(2):
                cluster += 1
                log.submit(cluster, node, at=f"{hour:02}:00:{cluster:02}")
                log.execute(cluster, site=BROKEN, at=f"{hour:02}:05:{cluster:02}")
                log.terminate(cluster, code=1, at=f"{hour:02}:07:{cluster:02}")
            cluster += 1
            site, end = (FAST, hour + 1) if run else (SLOW, hour + 2)
            log.submit(cluster, node, at=f"{hour:02}:10:{cluster:02}")
            log.execute(cluster, site=site, at=f"{hour:02}:15:{cluster:02}")
            log.terminate(cluster, at=f"{end:02}:15:{cluster:02}")
    log.submit(101, "run0-train_epoch2", at="08:00:00").execute(101, site=SLOW, at="08:05:00")
    log.submit(102, "run1-train_epoch2", at="08:00:01").execute(102, site=FAST, at="08:05:01")
    return log.submit(103, "run2-train_epoch2", at="08:00:02")
