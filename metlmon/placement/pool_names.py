"""Names of pools for people: the site, and what tells its pools apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from metlmon.stats.pool_profiles import ResourcePool
from metlmon.text.formatting import gpu_short, plain


def pool_names(pools: Iterable[ResourcePool]) -> Mapping[ResourcePool, str]:
    """``delta``; ``delta A40`` where several models of one site are among them; ``delta (annex)``.

    Several GPU models of one site without an annex are distinguished by the model.
    """
    pools = set(pools)
    shared = Counter((pool.site, pool.annex) for pool in pools)
    names = {}
    for pool in pools:
        gpu = f" {gpu_short(pool.gpu or None)}" if shared[pool.site, pool.annex] > 1 else ""
        annex = f" (annex {pool.annex})" if pool.annex else ""
        names[pool] = plain(f"{pool.site or 'unknown site'}{gpu}{annex}")
    return names


def name_list(names: Sequence[str], most: int = 3) -> str:
    """``a, b and c``; ``a, b and 4 others`` beyond ``most`` names."""
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} others"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
