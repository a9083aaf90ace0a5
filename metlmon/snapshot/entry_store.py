"""Stores the ledger entries of all jobs, in order."""

from __future__ import annotations

from itertools import chain
from typing import Final, NamedTuple

from metlmon.model.job_events import JobKey
from metlmon.snapshot.ledger import ExecutionEntry, JobEntry, TransferEntry
from metlmon.snapshot.totals import JobEntries, LedgerTotals

CLUSTERS_PER_BLOCK: Final = 256
"""Clusters whose entries are sorted together: a change re-sorts one block."""


class Block(NamedTuple):
    """The entries of some clusters, sorted."""

    jobs: tuple[JobEntry, ...]
    executions: tuple[ExecutionEntry, ...]
    transfers: tuple[TransferEntry, ...]


class EntryStore:
    """The entries of all jobs, by job; every change is posted to ``totals``."""

    def __init__(self, totals: LedgerTotals) -> None:
        self._totals = totals
        self._entries: dict[int, dict[JobKey, JobEntries]] = {}
        self._blocks: dict[int, Block] = {}

    def get(self, key: JobKey) -> JobEntries | None:
        """The entries of a job; None for a job of another directory's DAG."""
        return self._entries.get(key[0] // CLUSTERS_PER_BLOCK, {}).get(key)

    def put(self, key: JobKey, entries: JobEntries | None) -> None:
        """Replace the entries of a job; None: it has none."""
        number = key[0] // CLUSTERS_PER_BLOCK
        block = self._entries.setdefault(number, {})
        self._totals.post(key, block.get(key), entries)
        if entries is None:
            block.pop(key, None)
        else:
            block[key] = entries
        self._blocks.pop(number, None)

    def blocks(self) -> list[Block]:
        """All entries, in order."""
        return [self._block(number) for number in sorted(self._entries)]

    def _block(self, number: int) -> Block:
        block = self._blocks.get(number)
        if block is None:
            by_job = self._entries[number]
            entries = [by_job[key] for key in sorted(by_job)]
            block = self._blocks[number] = Block(
                tuple([each.job for each in entries]),
                tuple(chain.from_iterable(each.executions for each in entries)),
                tuple(chain.from_iterable(each.transfers for each in entries)),
            )
        return block
