"""How a job's ClassAd names sites: those of MetlSite, and those that it excludes.

metlmon's own submit files let Requirements refer to the attributes MetlSite and MetlExcluded,
string lists (in older submit files MetlSite is one site). In other jobs a clause is appended to
Requirements, which is recognised, and removed again, by its form. Pure; imported by
:mod:`metlmon.pool.worker`. Manual: "ClassAd Mechanism > Built-in Functions" (stringListIMember),
"Matchmaking with ClassAds".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from metlmon.pool.protocol import SITE
from metlmon.text.site_lists import SEPARATOR, joined, site_list

ATTRIBUTE: Final = "MetlExcluded"
"""The job's attribute with the excluded sites."""

_SITE_LIST: Final = re.compile(
    r"stringListIMember\(\s*TARGET\.GLIDEIN_ResourceName\s*,\s*MY\.MetlSite\s*,", re.IGNORECASE
)

_REFERENCE: Final = re.compile(r"\bMetlExcluded\b", re.IGNORECASE)

# HTCondor's two notations of the operator: =!= and isnt.
_CLAUSE: Final = re.compile(
    r"\((?P<before>.*)\) && \(stringListIMember\(TARGET\.GLIDEIN_ResourceName, ?"
    r'"(?P<sites>[^"\\]+)", ?"\|"\) (?:=!=|isnt) true\)',
    re.IGNORECASE | re.DOTALL,
)


def can_exclude(site: str) -> bool:
    """Whether the name can be quoted in a ClassAd, and listed in a submit file."""
    return bool(SITE.fullmatch(site)) and site.isprintable() and SEPARATOR not in site


def refers_to_list(requirements: str) -> bool:
    """Whether the requirements refer to MetlExcluded."""
    return _REFERENCE.search(requirements) is not None


def sites_of_clause(requirements: str) -> tuple[str, ...]:
    """The sites that metlmon's clause of the requirements excludes; empty without one."""
    match = _CLAUSE.fullmatch(requirements)
    return site_list(match["sites"]) if match else ()


def with_clause(requirements: str, sites: Iterable[str]) -> str:
    """The requirements with a clause for exactly these sites; without sites, as they were."""
    match = _CLAUSE.fullmatch(requirements)
    before = match["before"] if match else requirements
    names = joined(sites)
    if not names:
        return before
    member = f'stringListIMember(TARGET.GLIDEIN_ResourceName, "{names}", "{SEPARATOR}")'
    return f"({before}) && ({member} =!= true)"


def matches_site_list(requirements: str) -> bool:
    """Whether the requirements, of a job or in a submit file, accept any site listed in MetlSite.

    Requirements that a user changed may compare MetlSite with one site.
    """
    return _SITE_LIST.search(requirements) is not None


def submit_line(site: str) -> str:
    """The line for a submit file that excludes the site, below its requirements if it has some.

    Manual: "condor_submit" (``$(name:default)``).
    """
    clause = f'TARGET.GLIDEIN_ResourceName =!= "{site}"'
    return f"requirements = ($(requirements:true)) && ({clause})"
