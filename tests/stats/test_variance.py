"""How much of the variation of epoch times lies between GPU models, sites, hosts and runs."""

from __future__ import annotations

from pathlib import Path

from metlmon.snapshot.records import Ledger
from metlmon.stats.pool_profiles import profiles_in_window
from metlmon.stats.usage import usage_in_window
from tests.generated.effects import Effects, planted
from tests.support.records import read_dagdir


def test_a_planted_ensemble_reads_from_its_log_as_from_its_ledger(tmp_path: Path) -> None:
    made = planted(Effects(runs=6, epochs=8, slow_hosts=2), seed=4)
    made.write(tmp_path)
    read, direct = read_dagdir(tmp_path).ledger(), made.stats_input.ledger

    def places(ledger: Ledger) -> list[object]:
        return [
            (e.job, e.run, e.epoch, e.site, e.host, e.gpu, e.seconds, e.wait, e.transfer, e.usage)
            for e in ledger.executions
        ]

    assert places(read) == places(direct)
    assert usage_in_window(read).site_gpus == usage_in_window(direct).site_gpus
    assert len(profiles_in_window(read)) == len(profiles_in_window(direct))
    assert {e.host for e in read.executions} >= made.slow
