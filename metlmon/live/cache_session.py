"""Loads the state of an earlier reader from the cache, and stores a reader's own."""

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
"""Bytes, and share of all bytes, read since the last cache write, above which the next one pays:
less is faster to read again."""

# Modules are imported late, since with pickle and hashlib they take 5 ms, which small dagdirs,
# never cached, need not spend.


class CacheSession:
    """The cache for one dagdir. Its methods never raise because of a broken cache."""

    def __init__(self, cache: Cache, dagdir: Path, only: str | None, settings: Settings) -> None:
        self._cache = cache
        self._log_key = entry_of(dagdir, only, settings)
        self._workflow_key = entry_of(dagdir, only, settings, "dags")
        self._workflows: Workflows | None = None
        self._cached_bytes = 0

    def load(self, paths: Sequence[Path]) -> Workflow:
        """Load the workflow of these DAG files, as they are now."""
        if self._workflows is None:
            self._workflows = self._load_workflows()
        return self._workflows.load(paths)

    def _load_workflows(self) -> Workflows:
        if self._cache.has(self._workflow_key.name):
            from metlmon.live.cache_entry import recalled_workflows

            # An invalid entry counts as none.
            with suppress(Exception):
                return recalled_workflows(self._cache, self._workflow_key)
        return Workflows()

    def recall(self, ensemble: Ensemble) -> CachedState | None:
        """Load the state of an earlier reader into ``ensemble``, if still valid.

        If None is returned, ``ensemble`` may be partly filled and must be discarded.
        """
        if self._cache.has(self._log_key.name):
            from metlmon.live.cache_entry import CachedState

            # As above: the logs are read instead.
            with suppress(Exception):
                return CachedState(self._cache, self._log_key, ensemble)
        return None

    def places(
        self, cached_state: CachedState, ensemble: Ensemble, dags: Sequence[Dag]
    ) -> list[Place] | None:
        """Return the cached attribution of jobs, if still valid."""
        if self._workflows is None:
            return None
        return cached_state.places(ensemble, dags, self._workflows.made_of())

    def worth(self, consumed: int) -> bool:
        """Whether enough has been read since the last cache write."""
        return consumed - self._cached_bytes >= max(WORTH_KEEPING, SHARE_WORTH_KEEPING * consumed)

    def holds(self, consumed: int) -> None:
        """Set the number of bytes of the logs that are in the cache."""
        self._cached_bytes = consumed

    def due(self, consumed: int) -> bool:
        """Whether :meth:`keep` would return any entry."""
        news = self._workflows is not None and bool(self._workflows.news)
        return news or self.worth(consumed)

    def keep(
        self,
        consumed: int,
        ensemble: Ensemble,
        logs: Iterable[LogReader],
        dagman_files: Iterable[DagmanFiles],
    ) -> list[CacheWrite]:
        """Return the entries due to be written, for the caller to write later.

        ``consumed``: bytes read of the logs; 0 if the model must not be cached.
        """
        entries: list[CacheWrite | None] = []
        if self._workflows is not None and self._workflows.news:
            from metlmon.live.cache_entry import keep_workflows

            entries.append(keep_workflows(self._cache, self._workflow_key, self._workflows))
        if self.worth(consumed):
            from metlmon.live.cache_entry import keep

            self._cached_bytes = consumed
            made_of = self._workflows.made_of() if self._workflows is not None else None
            entries.append(keep(self._cache, self._log_key, ensemble, logs, dagman_files, made_of))
        return [entry for entry in entries if entry is not None]
