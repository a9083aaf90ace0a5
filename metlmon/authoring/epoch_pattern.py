"""What epochs that are added to a run are like, by those that it has: which are evaluated, and
where each is to go."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def period(epochs: Collection[int], those: Collection[int]) -> tuple[int, int] | None:
    """(n, r): of all ``epochs`` just those that leave r when they are divided by n are ``those``.
    The least n; None where there is none, or it would be longer than what is seen of it."""
    last = max(those)
    for n in range(1, last + 2):
        if {epoch for epoch in epochs if epoch % n == last % n} == set(those):
            return n, last % n
    return None


def next_site(sites: Mapping[int, str], epoch: int) -> str | None:
    """Where ``epoch`` goes, after epochs that went to ``sites``: to the one they all went to, or,
    where each site comes once before one repeats, to that which waited longest of those whose turn
    it is. None where they follow no such pattern."""
    names = set(sites.values())
    rounds: dict[int, set[str]] = {}
    last: dict[str, int] = {}
    for each in sorted(sites):
        taken = rounds.setdefault(each // len(names), set())
        if sites[each] in taken and len(names) > 1:
            return None
        taken.add(sites[each])
        last[sites[each]] = each
    if len(names) == 1:
        return next(iter(names))
    left = names - rounds.get(epoch // len(names), set())
    return min(left, key=lambda site: last[site], default=None)
