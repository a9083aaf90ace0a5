"""An ensemble at four sites with every kind of trouble, and a feed on it."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache

from metlmon.snapshot.builder import SnapshotBuilder
from tests.support.builder_feed import BuilderFeed
from tests.support.event_logs import Log, read_ensemble

A40, A100, L40S = "NVIDIA A40", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S"

AS_OF = "2026-05-14 20:00:00"

PLACES = (
    # run, site, GPU model, number of GPUs, minutes of each epoch
    ("run0", "delta", A40, 2, (281, 275, 290, 279, 284, 288, 276)),
    ("run1", "expanse", A40, 2, (502, 514, 489, 530, 497)),
    ("run2", "CHTC-Spark-CE1", A100, 1, (252, 264, 249, 255, 260, 258, 262, 251)),
    ("run3", "aws", L40S, 2, (349, 351, 347, 350)),
)

SCARE = "Error from slot1_4@\x1b[31mnode7: job has gone over cgroup memory limit of 65536 megabytes"


def _log() -> tuple[Log, list[str], list[str]]:
    log, nodes, targets = Log(), [], []
    job = 14600000
    for run, site, gpu, gpus, took in PLACES:
        at = datetime(2026, 5, 4, 8)
        for epoch, minutes in enumerate(took):
            node = f"{run}-train_epoch{epoch}"
            nodes.append(node)
            targets.append(site if run != "run2" else "ospool")
            job += 1
            log.submit(job, node, at=str(at))
            at += timedelta(minutes=20 + epoch * 13)
            log.transfer(job, "started input", at=str(at))
            at += timedelta(minutes=4 + epoch)
            log.transfer(job, "finished input", at=str(at))
            if epoch % 3 == 1:
                log.execute(job, gpus=gpus, gpu=gpu, site=site, at=str(at))
                at += timedelta(minutes=minutes + 40 if run == "run3" else 45)
                if run == "run1":
                    log.evict(job, None, at=str(at)).hold(job, 34, SCARE, at=str(at), subcode=102)
                    at += timedelta(hours=3)
                    log.release(job, at=str(at))
                else:
                    log.evict(job, 1005, "Unspecified job interruption", at=str(at))
                at += timedelta(minutes=30)
            log.execute(job, gpus=gpus, gpu=gpu, site=site, at=str(at))
            # The nearly finished epoch is completed in a short second try.
            at += timedelta(minutes=19 if run == "run3" and epoch == 1 else minutes)
            log.terminate(job, run=(2_000_000_000, 9_000_000_000), at=str(at))
            at += timedelta(minutes=1)
    # Open jobs: one running, one idle, one removed while idle, one whose input never arrived.
    for last, epoch in (("run0", 7), ("run1", 5), ("run2", 8), ("run3", 4)):
        nodes.append(f"{last}-train_epoch{epoch}")
        targets.append("ospool")
    log.submit(14700001, "run0-train_epoch7", at="2026-05-14 09:00:00")
    log.execute(14700001, gpus=2, gpu=A40, site="delta", at="2026-05-14 16:11:00")
    log.submit(14700002, "run1-train_epoch5", at="2026-05-12 01:30:00")
    log.submit(14700003, "run2-train_epoch8", at="2026-05-10 09:00:00")
    log.remove(14700003, at="2026-05-11 21:00:00")
    log.submit(14700004, "run3-train_epoch4", at="2026-05-14 11:00:00")
    log.transfer(14700004, "started input", at="2026-05-14 12:00:00")
    log.hold(14700004, 13, "Transfer input files failure at access point ap40: timed out",
             at="2026-05-14 14:30:00", subcode=110)  # fmt: skip
    return log, nodes, targets


@cache
def builder() -> SnapshotBuilder:
    """The snapshot builder after reading the whole log."""
    log, nodes, targets = _log()
    dag = "".join(
        f'JOB {node} train.sub\nVARS {node} ResourceName="{target}"\n'
        for node, target in zip(nodes, targets, strict=True)
    )
    return read_ensemble({"/home/someone/global.dag": dag}, log).builder(AS_OF)


def placed_feed(of: SnapshotBuilder | None = None) -> BuilderFeed:
    """A feed on it."""
    return BuilderFeed(of or builder(), "global_pretraining")
