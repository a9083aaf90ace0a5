"""The site of an execution, from its 001; never the target site of the run."""

from __future__ import annotations

import re
from collections.abc import Set
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, TypeAlias

from metlmon.config.settings import Settings
from metlmon.eventlog.events import Execute
from metlmon.text.formatting import site_list

SiteAndGpu: TypeAlias = tuple[str | None, str | None]
"""Site and GPU model."""

MAX_CACHED_MACHINES: Final = 5000
"""Machines whose site is cached: more than a pool has at a time."""

BUILT_IN_SITES: Final[tuple[tuple[str, str], ...]] = (
    ("*.delta.ncsa.illinois.edu", "delta"),
    ("*.expanse.sdsc.edu", "expanse"),
    ("*.anvil.rcac.purdue.edu", "anvil"),
    ("*.bridges2.psc.edu", "bridges2"),
    ("*.ec2.internal", "aws"),
    ("*.amazonaws.com", "aws"),
    ("*.chtc.wisc.edu", "chtc"),
)
"""Host patterns and their sites; rules of the user take precedence."""

ANY_SITE_TARGETS: Final = frozenset({"any", "anywhere", "all"})
"""Targets that every site matches."""

POOL_TARGETS: Final = frozenset({"osg", "ospool"})
"""Targets that name a pool of sites: only the sites of other targets are off target."""

_ALIAS = re.compile(r"[?&]alias=([^&>]+)")
_IP = re.compile(r"[\d.]+|\[?[0-9a-fA-F:-]+\]?")


def host_of(machine: Execute) -> str | None:
    """The execute host's name.

    The part of SlotName after the last ``@``, else ``alias=``, else the address in the sinful
    string.
    """
    if machine.slot:
        return machine.slot.rsplit("@", 1)[-1] or None
    if machine.alias:
        return machine.alias
    address = re.match(r"<?\[?([^\]>?]+?)\]?(?::\d+)?(?:[?>]|$)", machine.host)
    return address.group(1) if address else None


def site_of(
    machine: Execute | None, rules: tuple[tuple[str, str], ...] = BUILT_IN_SITES
) -> str | None:
    """The site of an execution; None if unknown.

    GLIDEIN_ResourceName first, then the first of ``rules`` (pattern, site) that matches the
    host in SlotName or ``alias=``, then the host's domain.
    """
    if machine is None:
        return None
    if machine.site:
        return machine.site
    slot = machine.slot.rsplit("@", 1)[-1] if machine.slot else None
    hosts = [host.lower() for host in (slot, machine.alias) if host]
    return _by_rules(tuple(hosts), rules)


def site_of_address(
    address: str, rules: tuple[tuple[str, str], ...] = BUILT_IN_SITES
) -> str | None:
    """The site of a host by its address alone; ``rules`` as for :func:`site_of`."""
    alias = alias_of(address)
    return _by_rules((alias.lower(),), rules) if alias else None


def alias_of(address: str) -> str | None:
    """The ``alias=`` of a sinful string."""
    match = _ALIAS.search(address)
    return match[1] if match else None


@lru_cache(maxsize=4096)
def _by_rules(hosts: tuple[str, ...], rules: tuple[tuple[str, str], ...]) -> str | None:
    for pattern, site in rules:
        if any(fnmatchcase(host, pattern.lower()) for host in hosts):
            return site
    return next((domain for domain in map(_domain, hosts) if domain), None)


def _domain(host: str) -> str | None:
    if _IP.fullmatch(host) or "." not in host:
        return None
    return host.split(".", 1)[1] or None


class NameTable:
    """Names of sites and GPU models, with the aliases of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._sites = (*settings.sites, *BUILT_IN_SITES)
        self._site_aliases: dict[str | None, str] = dict(settings.site_aliases)
        self._gpu_aliases: dict[str | None, str] = dict(settings.gpu_aliases)
        # Jobs on one machine mostly share one object for it, so that the look-up is fast.
        self.site_and_gpu = lru_cache(MAX_CACHED_MACHINES)(self._site_and_gpu)

    def _site_and_gpu(self, machine: Execute | None) -> SiteAndGpu:
        """Site and GPU model of an execution, each under its alias in the settings, if any."""
        if machine is None:
            return None, None
        site, gpu = site_of(machine, self._sites), machine.gpu
        return self._site_aliases.get(site, site), self._gpu_aliases.get(gpu, gpu)

    def site_of_address(self, address: str) -> str | None:
        """The site of a host without executions, if a rule matches its address."""
        name = site_of_address(address, self._sites)
        return self._site_aliases.get(name, name) if name is not None else None


def normalize_name(name: str) -> str:
    """The name of a site or target without case and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def names_other_target(target: str, site: str | None, targets: Set[str]) -> bool:
    """Whether the site's name contains that of another of the normalized ``targets``."""
    actual = normalize_name(site or "")
    others = targets - ANY_SITE_TARGETS - POOL_TARGETS - set(_wanted(target))
    return any(name in actual for name in others)


@lru_cache(maxsize=4096)
def misses_target(target: str, site: str | None, targets: frozenset[str]) -> bool:
    """Whether the target of a job excludes the site where it ran.

    A target may list several sites. A pool-wide one only excludes the sites of the DAG's other
    ``targets`` (normalized).
    """
    if not site:
        return False
    wanted, actual = _wanted(target), normalize_name(site)
    if any(name in ANY_SITE_TARGETS or name in actual or actual in name for name in wanted):
        return False
    return POOL_TARGETS.isdisjoint(wanted) or names_other_target(target, site, targets)


def _wanted(target: str) -> list[str]:
    """The normalized sites that a target lists."""
    return [normalize_name(name) for name in site_list(target)]
