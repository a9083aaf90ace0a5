"""What one reader does with the cache: it recalls what an earlier one learnt of the dagdir, and
keeps what it has learnt itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metlmon.dagman import Workflow
from metlmon.live.cache import Cache, entry_of
from metlmon.live.cached_workflows import Workflows
from metlmon.live.dagman_files import DagmanFiles
from metlmon.model.dag import Dag
from metlmon.model.ensemble import Ensemble, Place
from metlmon.model.settings import Settings

if TYPE_CHECKING:
    from metlmon.live.cache_entry import CachedState, CacheWrite
    from metlmon.live.dagdir_reader import LogReader

WORTH_KEEPING: Final = 5 << 20
SHARE_WORTH_KEEPING: Final = 0.02
"""So many bytes, and this share of all, must have been read since they were kept last: less is
read again sooner than it is kept."""

# The modules that are imported late take 5 ms, with pickle and hashlib: small dagdirs, of which
# nothing is ever kept, need not pay for that.


class CacheSession:
    """The cache, for one dagdir. Nothing here raises for what is wrong with the cache."""

    def __init__(self, cache: Cache, dagdir: Path, only: str | None, settings: Settings) -> None:
        self._cache = cache
        self._entry = entry_of(dagdir, only, settings)
        self._dags = entry_of(dagdir, only, settings, "dags")
        self._workflows: Workflows | None = None
        self._kept = 0

    def load(self, paths: Sequence[Path]) -> Workflow:
        """The workflow of these DAG files, as they are now."""
        if self._workflows is None:
            self._workflows = self._recalled_workflows()
        return self._workflows.load(paths)

    def _recalled_workflows(self) -> Workflows:
        if self._cache.has(self._dags.name):
            from metlmon.live.cache_entry import recalled_workflows

            # Whatever is wrong with it, it is none.
            with suppress(Exception):
                return recalled_workflows(self._cache, self._dags)
        return Workflows()

    def recall(self, ensemble: Ensemble) -> CachedState | None:
        """What an earlier reader learnt from the logs, where that still holds: it has been
        given to ``ensemble``. Where there is none that may be spoilt."""
        if self._cache.has(self._entry.name):
            from metlmon.live.cache_entry import CachedState

            # As above: the logs will say it again.
            with suppress(Exception):
                return CachedState(self._cache, self._entry, ensemble)
        return None

    def places(
        self, recalled: CachedState, ensemble: Ensemble, dags: Sequence[Dag]
    ) -> list[Place] | None:
        """Where each job belongs, where that was kept and still follows from what is known."""
        if self._workflows is None:
            return None
        return recalled.places(ensemble, dags, self._workflows.made_of())

    def worth(self, consumed: int) -> bool:
        """Has so much been read since it was kept last that it is to be kept again?"""
        return consumed - self._kept >= max(WORTH_KEEPING, SHARE_WORTH_KEEPING * consumed)

    def holds(self, consumed: int) -> None:
        """So many bytes of the logs need not be kept: they are."""
        self._kept = consumed

    def due(self, consumed: int) -> bool:
        """Is there anything that :meth:`keep` would write?"""
        news = self._workflows is not None and bool(self._workflows.news)
        return news or self.worth(consumed)

    def keep(
        self,
        consumed: int,
        ensemble: Ensemble,
        logs: Iterable[LogReader],
        facts: Iterable[DagmanFiles],
    ) -> list[CacheWrite]:
        """What is worth keeping, to be written when nobody waits. ``consumed``: bytes that were
        read of the logs; 0 where what was learnt is not to be kept."""
        found: list[CacheWrite | None] = []
        if self._workflows is not None and self._workflows.news:
            from metlmon.live.cache_entry import keep_workflows

            found.append(keep_workflows(self._cache, self._dags, self._workflows))
        if self.worth(consumed):
            from metlmon.live.cache_entry import keep

            self._kept = consumed
            made_of = self._workflows.made_of() if self._workflows is not None else None
            found.append(keep(self._cache, self._entry, ensemble, logs, facts, made_of))
        return [each for each in found if each is not None]
