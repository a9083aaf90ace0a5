"""The worker's side: which requests it accepts, and how it reads ads."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from metlmon.authoring.runs import requirements
from metlmon.pool import exclusion, worker
from metlmon.pool.protocol import ErrorKind, QueueJob, SiteInfo

AD: dict[str, object] = {
    "ClusterId": 12,
    "ProcId": 0,
    "JobStatus": 1,
    "Owner": "anna",
    "JobPrio": 3,
}


def answers(pool: Any, *requests: object) -> list[dict[str, Any]]:
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in requests]
    out = io.BytesIO()
    worker.serve(io.BytesIO(b"".join(lines)), out, lambda: pool)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def job(ad: dict[str, object]) -> QueueJob:
    found = worker.queue_job(ad)
    assert found is not None
    return found


class Schedd:
    """The bindings' schedd, as far as the worker uses it."""

    def __init__(self) -> None:
        self.acted: list[tuple[object, ...]] = []
        self.ad = AD

    def query(self, constraint: str, projection: list[str]) -> list[dict[str, object]]:
        self.acted.append(("query", constraint))
        return [self.ad]

    def act(self, action: object, jobs: list[str], reason: object) -> dict[str, int]:
        self.acted.append((action, jobs, reason))
        return {"TotalSuccess": 0, "TotalAlreadyDone": 1}

    def edit(self, jobs: list[str], attribute: str, value: str) -> int:
        self.acted.append(("edit", jobs, attribute, value))
        return 1


class Api:
    """The bindings."""

    class HTCondorException(Exception):
        pass

    class JobAction:
        Hold, Release, Remove, Vacate = "Hold", "Release", "Remove", "Vacate"

    def __init__(self) -> None:
        self.schedd = Schedd()

    def Schedd(self, location: object) -> Schedd:
        return self.schedd


@pytest.fixture
def pool() -> worker.Pool:
    made = worker.Pool.__new__(worker.Pool)
    made._api, made._location = Api(), {"MyAddress": "<127.0.0.1:1>"}
    return made


@pytest.mark.parametrize(
    "request_",
    [
        *(b"not json\n", b"[]\n", b"null\n", {}),
        *({"op": "__class__", "args": []}, {"op": "schedd", "args": []}),
    ],
)
def test_invalid_request_does_not_end_the_connection(request_: object) -> None:
    pool = SimpleNamespace(where=lambda: "here")
    first, second = answers(pool, request_, {"op": "where", "args": []})
    assert "error" in first
    assert second == {"value": "here"}


@pytest.mark.parametrize(
    "request_",
    [
        *(
            case
            for cluster in ("12", 1.5, True, -1, None, 2**31, [12], "12.0 || true")
            for case in (
                ("job", cluster, 0),
                ("act", "hold", cluster, 0),
                ("edit", cluster, 0, "priority", 1),
                ("exclude", cluster, 0, "x", True),
            )
        ),
        *(("query", [], clusters) for clusters in ("12", [1, "2"], [True], [[1]], None)),
        *(("act", action, 1, 0) for action in ("Hold", "continue", None, "__init__", "RemoveX")),
        *(("edit", 1, 0, "priority", value) for value in ("5", 1.5, True, 2**31, None)),
        *(("edit", 1, 0, "request_memory", value) for value in ("1", 0, -1, 2**31, "undefined")),
        *(("edit", 1, 0, field, 1) for field in ("site", "owner", "JobPrio", None)),
        *(
            ("edit", 12, 0, "site", site)
            for site in ('a"', "a'b", "a\n", "$(x)", "", " ", "a\\", 5, None, "\x1b[2J")
        ),
        *(
            ("exclude", 12, 0, site, True)
            for site in ('a"', "a|b", "a\n", "$(x)", "", "a\\", 5, None, "\x1b[2J")
        ),
        ("exclude", 12, 0, "a", "true"),
        ("job", 12),
        ("job", 12, 0, 0),
    ],
    ids=str,
)
def test_invalid_requests_make_no_call(pool: worker.Pool, request_: tuple[object, ...]) -> None:
    op, *arguments = request_
    (answer,) = answers(pool, {"op": op, "args": arguments})
    assert answer["error"] == "request"
    assert pool._api.schedd.acted == []


def test_acts_name_one_job(pool: worker.Pool) -> None:
    pool.edit(12, 3, "site", "SDSC PRP")
    pool.edit(12, 3, "priority", -5)
    pool.edit(12, 3, "request_memory", 12288)
    assert pool.act("hold", 12, 3) == "already so"
    assert pool._api.schedd.acted == [
        ("edit", ["12.3"], "MetlSite", '"SDSC PRP"'),
        ("edit", ["12.3"], "JobPrio", "-5"),
        ("edit", ["12.3"], "RequestMemory", "12288"),
        ("Hold", ["12.3"], ("via metlmon", None)),
    ]


@pytest.mark.parametrize(
    ("requirements", "by_site", "by_list"),
    [
        # As metlmon wrote them before lists of sites.
        ('(MY.MetlSite == "any") || (TARGET.GLIDEIN_ResourceName =?= MY.MetlSite)', True, False),
        ("TARGET.GLIDEIN_ResourceName is metlsite", True, False),
        (requirements((), gated=True), True, True),
        ('stringlistimember(TARGET.GLIDEIN_ResourceName,MY.MetlSite,"|")', True, True),
        ('stringListIMember(MY.MetlSite, MY.MetlExcluded, "|")', True, False),
        *((text, False, False) for text in ('TARGET.X == "MetlSites"', "true", True, None)),
    ],
)
def test_requirements_show_that_a_job_follows_its_site(
    requirements: object, by_site: bool, by_list: bool
) -> None:
    ad = {**AD, "Requirements": requirements}
    placed, without = job({**ad, "MetlSite": "delta"}), job(ad)
    assert (placed.site, placed.by_site, placed.by_site_list) == ("delta", by_site, by_list)
    assert (without.site, without.by_site) == (None, False)


class Expression:
    """Like ``classad2.ExprTree``: not a string, but it has a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        (Expression("JobStatus == 5 && NumHolds > 3"), "JobStatus == 5 && NumHolds > 3"),
        (Expression("false"), None),
        (False, None),
        (None, None),
    ],
)
def test_removal_policy_of_a_job_is_read(value: object, policy: str | None) -> None:
    assert job({**AD, "PeriodicRemove": value}).removal_policy == policy


REQUIREMENTS = '((TARGET.HasX || MY.Y =?= "1") && TARGET.Disk >= RequestDisk)'


@pytest.mark.parametrize(
    "requirements", [REQUIREMENTS, "true", "(A) || (B)", '(x == "it isnt true)")']
)
def test_including_the_last_site_restores_the_requirements(requirements: str) -> None:
    one = exclusion.with_clause(requirements, ["SDSC PRP"])
    two = exclusion.with_clause(one, ["SDSC PRP", "B"])
    assert one.startswith(f"({requirements}) && (")
    # The bindings write the operator differently from condor_q.
    printed = two.replace("=!= true)", "isnt true)").replace(", ", ",")
    for text in (two, printed):
        assert exclusion.names_in_clauses(text) == {"site": ("SDSC PRP", "B")}
        assert exclusion.with_clause(text, ["SDSC PRP"]) == one
    assert exclusion.with_clause(one, []) == requirements
    both = exclusion.with_clause(one, ["gpu1.x.org"], "host")
    assert exclusion.names_in_clauses(both) == {"site": ("SDSC PRP",), "host": ("gpu1.x.org",)}
    assert exclusion.with_clause(both, [], "host") == one
    alone = exclusion.with_clause(both, [])
    assert alone == exclusion.with_clause(requirements, ["gpu1.x.org"], "host")
    assert exclusion.with_clause(alone, [], "host") == requirements


def test_condition_of_the_user_is_kept() -> None:
    own = '(TARGET.X) && (TARGET.GLIDEIN_ResourceName =!= "A")'
    assert exclusion.names_in_clauses(own) == {}
    assert exclusion.with_clause(own, []) == own


def test_site_is_excluded_by_requirements_and_included_by_ad(pool: worker.Pool) -> None:
    schedd = pool._api.schedd
    schedd.ad = {**AD, "Requirements": REQUIREMENTS}
    pool.exclude(12, 3, "A", True, "site")
    (_, jobs, attribute, value) = schedd.acted[-1]
    assert (jobs, attribute) == (["12.3"], "Requirements")
    schedd.ad = {**AD, "Requirements": value}
    excluded = job(schedd.ad)
    assert (excluded.excluded, excluded.by_list) == (("A",), False)
    pool.exclude(12, 3, "a", False, "site")
    assert pool._api.schedd.acted[-1] == ("edit", ["12.3"], "Requirements", REQUIREMENTS)


def test_list_of_excluded_sites_is_replaced(pool: worker.Pool) -> None:
    ad = {**AD, "Requirements": "f(MY.metlexcluded) =!= true", "MetlExcluded": "A|B c"}
    pool._api.schedd.ad = ad
    assert (job(ad).excluded, job(ad).by_list) == (("A", "B c"), True)
    pool.exclude(12, 3, "D", True, "site")
    assert pool._api.schedd.acted[-1] == ("edit", ["12.3"], "MetlExcluded", '"A|B c|D"')
    pool.exclude(12, 3, "b C", False, "site")
    assert pool._api.schedd.acted[-1] == ("edit", ["12.3"], "MetlExcluded", '"A"')


def test_host_is_listed_if_the_requirements_use_machines(pool: worker.Pool) -> None:
    listing = 'stringListIMember(TARGET.Machine,MY.MetlExcluded,"|") isnt true'
    pool._api.schedd.ad = {**AD, "Requirements": listing, "MetlExcluded": "A"}
    assert job(pool._api.schedd.ad).hosts_by_list
    pool.exclude(12, 3, "gpu1.x.org", True, "host")
    assert pool._api.schedd.acted[-1] == ("edit", ["12.3"], "MetlExcluded", '"A|gpu1.x.org"')
    older = "f(MY.MetlExcluded) =!= true"
    pool._api.schedd.ad = {**AD, "Requirements": older, "MetlExcluded": "A"}
    pool.exclude(12, 3, "gpu1.x.org", True, "host")
    (_, _, attribute, value) = pool._api.schedd.acted[-1]
    assert attribute == "Requirements"
    changed = job({**AD, "Requirements": value, "MetlExcluded": "A"})
    assert (changed.excluded, changed.by_list) == (("A", "gpu1.x.org"), True)
    with pytest.raises(worker.WorkerFailure):
        pool.exclude(12, 3, "10.0.0.1", True, "host")


def test_sites_are_counted_by_their_slots(pool: worker.Pool) -> None:
    ads = [
        {"GLIDEIN_ResourceName": "b", "GPUs_DeviceName": "NVIDIA A40"},
        {"GLIDEIN_ResourceName": "b"},
        {"GLIDEIN_ResourceName": "a\ud800"},
        {"GLIDEIN_ResourceName": 5},
    ]
    pool._api.AdType = SimpleNamespace(Startd=1)
    pool._api.Collector = lambda: SimpleNamespace(query=lambda *_: ads)
    assert pool.sites() == [SiteInfo("a?", 1, ()), SiteInfo("b", 2, ("NVIDIA A40",))]


def test_slots_are_counted_by_their_resources(pool: worker.Pool) -> None:
    asked: list[tuple[str, list[str]]] = []
    ads = [{"TotalSlotMemory": 8192, "TotalSlotCpus": 4.0}] * 2 + [{"TotalSlotMemory": "many"}]

    def query(_: int, constraint: str, attributes: list[str]) -> list[dict[str, object]]:
        asked.append((constraint, attributes))
        return ads

    pool._api.AdType = SimpleNamespace(Startd=1)
    pool._api.Collector = lambda: SimpleNamespace(query=query)
    assert pool.slots() == [({"request_memory": 8192.0, "request_cpus": 4.0}, 2), ({}, 1)]
    assert asked[0][0] == 'SlotType =!= "Dynamic"'
    assert "GPUs_GlobalMemoryMb" in asked[0][1]


def test_many_ids_are_split_into_constraints() -> None:
    made = list(worker.any_of("ClusterId", range(worker.IDS_PER_CONSTRAINT + 1)))
    assert len(made) == 2
    assert made[1] == f"ClusterId == {worker.IDS_PER_CONSTRAINT}"
    assert list(worker.any_of("ClusterId", [])) == []


class RestartedSchedd(Schedd):
    """A schedd that has lost our session, or has another address now."""

    def query(self, constraint: str, projection: list[str]) -> list[dict[str, object]]:
        self.acted.append(("query", constraint))
        if len(self.acted) == 1:
            raise Api.HTCondorException("Failed to connect")
        return [AD]


class Collector:
    def locate(self, kind: object) -> dict[str, str]:
        return {"MyAddress": "<127.0.0.1:2>", "Name": "ap.example.org"}


def test_restarted_schedd_is_found_at_its_new_address(pool: worker.Pool) -> None:
    pool._api.schedd = RestartedSchedd()
    pool._api.Collector, pool._api.DaemonType = Collector, SimpleNamespace(Schedd="schedd")
    pool._api.ping = lambda location, what: {"MyRemoteUserName": "researcher@localhost"}
    where = pool.where()
    assert (where.schedd, where.user) == ("ap.example.org", "researcher@localhost")
    assert pool.job(12, 0) is not None
    assert pool._location["MyAddress"] == "<127.0.0.1:2>"


@pytest.mark.parametrize(
    ("alive", "kind"), [(True, ErrorKind.REFUSED), (False, ErrorKind.NO_ANSWER)]
)
def test_refusal_and_missing_schedd_are_distinguished(
    pool: worker.Pool, alive: bool, kind: ErrorKind
) -> None:
    class RefusingSchedd(Schedd):
        def act(self, action: object, jobs: list[str], reason: object) -> dict[str, int]:
            raise Api.HTCondorException("Error when performing action on the schedd.")

        def query(self, constraint: str, projection: list[str]) -> list[dict[str, object]]:
            if not alive:
                raise Api.HTCondorException("Failed to fetch ads from schedd")
            return []

    pool._api.schedd = RefusingSchedd()
    with pytest.raises(worker.WorkerFailure) as caught:
        pool.act("hold", 1, 0)
    assert caught.value.kind is kind


# --- ads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ClusterId", "ProcId", "JobStatus"])
@pytest.mark.parametrize("value", [None, "12", object(), True, [1], 1e300])
def test_ad_without_id_or_status_is_none(name: str, value: object) -> None:
    assert worker.queue_job({**AD, name: value}) is None


@pytest.mark.parametrize("value", [object(), {"a": 1}, ["x"], 5, True])
def test_values_of_other_types_count_as_absent(value: object) -> None:
    record = job({**AD, "DAGNodeName": value, "Iwd": value, "HoldReason": value})
    assert (record.node, record.directory, record.hold_reason) == (None, None, None)


@pytest.mark.parametrize(
    ("flags", "moving"),
    [
        ({"TransferringInput": True, "TransferQueued": True}, "input"),
        ({"TransferringOutput": True}, "output"),
        ({"TransferQueued": True}, "queued"),
        ({"TransferringInput": "yes"}, None),
    ],
)
def test_transfers_are_read(flags: dict[str, object], moving: str | None) -> None:
    record = job({**AD, **flags, "LastRejMatchReason": " no match "})
    assert (record.transferring, record.node, record.rejection) == (moving, None, "no match")
    assert (record.cluster, record.priority, record.owner) == (12, 3, "anna")


@pytest.mark.parametrize(
    ("matched_at", "expected"),
    [(None, ("no match", 500)), (400, ("no match", 500)), (600, (None, None))],
)
def test_rejection_before_the_last_match_is_dropped(
    matched_at: int | None, expected: tuple[str | None, int | None]
) -> None:
    """As condor_q -analyze does: an evicted job waits for another reason."""
    rejection = {"LastRejMatchReason": "no match", "LastRejMatchTime": 500}
    record = job({**AD, **rejection, "LastMatchTime": matched_at})
    assert (record.rejection, record.rejected_at) == expected


def test_hostile_ad_is_one_line_of_json() -> None:
    class Hostile:
        def job(self, cluster: int, proc: int) -> QueueJob | None:
            name = '\x1b[2J"\n{"value": 1}\u202e\ud800' + "x" * 10_000_000
            return worker.queue_job({**AD, "DAGNodeName": name})

    (answer,) = answers(Hostile(), {"op": "job", "args": [12, 0]})
    assert answer["value"]["cluster"] == 12
    assert len(answer["value"]["node"]) == worker.LONGEST_TEXT, "a text of megabytes is cut"
