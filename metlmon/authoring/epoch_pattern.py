"""Extrapolates the pattern of a run's epochs to epochs that are added to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def period(epochs: Collection[int], selected: Collection[int]) -> tuple[int, int] | None:
    """(n, r) such that exactly those ``epochs`` that leave r modulo n are ``selected``.

    The least n; None if there is none, or if it would be longer than the observed epochs.
    """
    last = max(selected)
    for n in range(1, last + 2):
        if {epoch for epoch in epochs if epoch % n == last % n} == set(selected):
            return n, last % n
    return None


def next_site(sites: Mapping[int, str], epoch: int) -> str | None:
    """The site of ``epoch``, given the ``sites`` of earlier epochs.

    The common site; or, if each site occurs once per round, the one of the remaining sites that was
    used least recently. None if there is no such pattern.
    """
    names = set(sites.values())
    rounds: dict[int, set[str]] = {}
    last_epoch_at: dict[str, int] = {}
    for past_epoch in sorted(sites):
        used_sites = rounds.setdefault(past_epoch // len(names), set())
        if sites[past_epoch] in used_sites and len(names) > 1:
            return None
        used_sites.add(sites[past_epoch])
        last_epoch_at[sites[past_epoch]] = past_epoch
    if len(names) == 1:
        return next(iter(names))
    remaining = names - rounds.get(epoch // len(names), set())
    return min(remaining, key=lambda site: last_epoch_at[site], default=None)
