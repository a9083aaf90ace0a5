"""Sites and hosts in a job's ClassAd: those of MetlSite, and those that it excludes.

In metlmon's own submit files, Requirements refer to the attributes MetlSite and MetlExcluded,
string lists (in older submit files MetlSite is one site, and MetlExcluded has sites only). In other
jobs a clause is appended to Requirements, and is recognised, and removed again, by its form.
Pure; imported by :mod:`metlmon.pool.worker`. Manual: "ClassAd Mechanism > Built-in
Functions" (stringListIMember), "Matchmaking with ClassAds".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from metlmon.pool.protocol import SITE
from metlmon.text.formatting import SEPARATOR, joined, site_list

ATTRIBUTE: Final = "MetlExcluded"
"""The job's attribute with the excluded sites and hosts."""

ADVERTISED: Final = {"site": "GLIDEIN_ResourceName", "host": "Machine"}
"""The attribute of a machine's ad with the name of each kind of place."""

_HOST: Final = re.compile(r"(?=.*[a-z])[\w.-]{1,200}", re.ASCII | re.IGNORECASE)

_SITE_LIST: Final = re.compile(
    r"stringListIMember\(\s*TARGET\.GLIDEIN_ResourceName\s*,\s*MY\.MetlSite\s*,", re.IGNORECASE
)

_REFERENCES: Final = {
    "site": re.compile(r"\bMetlExcluded\b", re.IGNORECASE),
    "host": re.compile(r"TARGET\.Machine\s*,\s*MY\.MetlExcluded\b", re.IGNORECASE),
}

# HTCondor's two notations of the operator: =!= and isnt.
_CLAUSE: Final = re.compile(
    r"\((?P<before>.*)\) && \(stringListIMember\(TARGET\.(?P<attribute>"
    rf"{'|'.join(ADVERTISED.values())}),"
    r' ?"(?P<names>[^"\\]+)", ?"\|"\) (?:=!=|isnt) true\)',
    re.IGNORECASE | re.DOTALL,
)


def can_exclude(name: str, on: str = "site") -> bool:
    """Whether the name can be quoted in a ClassAd, and listed in a submit file.

    ``on``: "site" or "host". A host's name cannot be an address, since Machine in ads is a name.
    """
    if on == "host" and not _HOST.fullmatch(name):
        return False
    return bool(SITE.fullmatch(name)) and name.isprintable() and SEPARATOR not in name


def refers_to_list(requirements: str, on: str = "site") -> bool:
    """Whether the requirements refer to MetlExcluded for places of this kind."""
    return _REFERENCES[on].search(requirements) is not None


def names_in_clauses(requirements: str) -> dict[str, tuple[str, ...]]:
    """The names that metlmon's clauses of the requirements exclude, by kind of place."""
    return _without_clauses(requirements)[1]


def _without_clauses(requirements: str) -> tuple[str, dict[str, tuple[str, ...]]]:
    found: dict[str, tuple[str, ...]] = {}
    kinds = {attribute.lower(): on for on, attribute in ADVERTISED.items()}
    while match := _CLAUSE.fullmatch(requirements):
        on = kinds[match["attribute"].lower()]
        found[on] = (*site_list(match["names"]), *found.get(on, ()))
        requirements = match["before"]
    return requirements, found


def with_clause(requirements: str, names: Iterable[str], on: str = "site") -> str:
    """The requirements with a clause for exactly these places; for no places, without one."""
    changed, found = _without_clauses(requirements)
    for kind, attribute in ADVERTISED.items():
        listed = joined(names if kind == on else found.get(kind, ()))
        if listed:
            member = f'stringListIMember(TARGET.{attribute}, "{listed}", "{SEPARATOR}")'
            changed = f"({changed}) && ({member} =!= true)"
    return changed


def matches_site_list(requirements: str) -> bool:
    """Whether the requirements, of a job or in a submit file, accept any site listed in MetlSite.

    Requirements that a user changed may compare MetlSite with one site.
    """
    return _SITE_LIST.search(requirements) is not None


def submit_line(name: str, on: str = "site") -> str:
    """The line for a submit file that excludes the place, to be put below any requirements.

    Manual: "condor_submit" (``$(name:default)``).
    """
    clause = f'TARGET.{ADVERTISED[on]} =!= "{name}"'
    return f"requirements = ($(requirements:true)) && ({clause})"
